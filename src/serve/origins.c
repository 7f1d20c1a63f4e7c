/* Pages of other origins that may use the server (CORS): ln_serve_options.origins. A browser asks before it
 * sends (OPTIONS with Access-Control-Request-Method), and lets a page read only an answer that names its
 * origin. */
#include "server.h"

#include <string.h>

static const char exposed[] = "Access-Control-Expose-Headers: x-request-id, Retry-After\r\n";

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool same(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}

static bool all_digits(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9') return false;
    return n > 0;
}

/* Whether an origin is meant: `*` stands for every origin, after :// for every host, after a host and a colon
 * for every port, also the scheme's own. */
static bool is_meant(const char *rule, http_span origin) {
    const char *star = strchr(rule, '*');
    const size_t n = star ? (size_t)(star - rule) : strlen(rule);
    const bool any_port = star && n > 1 && rule[n - 1] == ':';
    if (any_port && origin.n == n - 1) return same(rule, origin.at, origin.n);
    if (origin.n < n || !same(rule, origin.at, n)) return false;
    if (!star) return origin.n == n;
    return any_port ? all_digits(origin.at + n, origin.n - n) : n == 0 || origin.n > n;
}

bool origin_allow(request_context *x, const http_head *h) {
    const ln_serve_options *o = x->s->o;
    const http_span origin = http_field(h, "origin");
    if (!origin.at || http_count(h, "origin") != 1) return false;
    for (size_t i = 0; i < o->n_origins; i++) {
        if (!is_meant(o->origins[i], origin)) continue;
        const bool all = strcmp(o->origins[i], "*") == 0;
        ln_str_adds(&x->fields, "Access-Control-Allow-Origin: ");
        if (all) ln_str_adds(&x->fields, "*\r\n");
        else ln_str_add(&x->fields, origin.at, origin.n), ln_str_adds(&x->fields, "\r\nVary: Origin\r\n");
        ln_str_adds(&x->fields, exposed);
        return true;
    }
    return false;
}

void origin_preflight(ln_str *out, const http_head *h, const char *methods) {
    const http_span asked = http_field(h, "access-control-request-headers");
    if (http_count(h, "access-control-request-method") == 0) return;
    ln_str_addf(out, "Access-Control-Allow-Methods: %s\r\nAccess-Control-Max-Age: 600\r\n", methods);
    if (asked.at) {
        ln_str_adds(out, "Access-Control-Allow-Headers: ");
        ln_str_add(out, asked.at, asked.n);
        ln_str_adds(out, "\r\n");
    }
    if (http_is_word(http_field(h, "access-control-request-private-network"), "true"))
        ln_str_adds(out, "Access-Control-Allow-Private-Network: true\r\n");
}
