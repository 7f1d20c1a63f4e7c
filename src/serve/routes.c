/* Who may ask for what: hosts, origins, keys, paths, methods, types of content. Everything is judged before
 * the body is read. */
#include "../base/sha256.h"
#include "dialect.h"

#include <stdio.h>
#include <string.h>

enum { GET = 1 << HTTP_GET | 1 << HTTP_HEAD, POST = 1 << HTTP_POST };

static const route routes[] = {
#define ROUTE(path, methods, is_public, counts, handle, what, body) \
    {path, methods, is_public, counts, handle},
#include "routes.def"
#undef ROUTE
};

static bool is_path(const route *r, http_span path) {
    const size_t n = strlen(r->path);
    const bool prefix = n > 1 && r->path[n - 1] == '/';
    return prefix ? path.n > n && memcmp(path.at, r->path, n) == 0 : http_is(path, r->path);
}

/* The route of a path, which must be equal byte for byte: nothing is normalised. Of two with the same path it
 * is that of the method, if there is one. */
static const route *route_of(http_span path, http_method method) {
    const route *found = NULL;
    for (size_t i = 0; i < LN_COUNT(routes); i++)
        if (is_path(&routes[i], path) && (!found || routes[i].methods & 1u << method)) found = &routes[i];
    return found;
}

const char *route_methods(const route *r) {
    unsigned all = 0;
    for (size_t i = 0; i < LN_COUNT(routes); i++)
        if (strcmp(routes[i].path, r->path) == 0) all |= routes[i].methods;
    return all == POST ? "POST, OPTIONS" : all & POST ? "GET, HEAD, POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

/* ---- keys ---- */

static void digest_of(const char *text, size_t n, uint8_t out[LN_SHA256_BYTES]) {
    ln_sha256 h;
    ln_sha256_open(&h);
    ln_sha256_add(&h, text, n);
    ln_sha256_end(&h, out);
}

void auth_open(server *s) {
    for (size_t i = 0; i < s->n_keys; i++) {
        digest_of(s->o->keys[i], strlen(s->o->keys[i]), s->keys[i].digest);
        (void)snprintf(s->keys[i].name, sizeof s->keys[i].name, "key-%zu", i + 1);
    }
}

/* The key's number, or -1. All keys are compared, each over all bytes, whatever the first difference is. */
static int find_key(const server *s, http_span given) {
    uint8_t digest[LN_SHA256_BYTES];
    int found = -1;
    digest_of(given.at ? given.at : "", given.n, digest);
    for (size_t i = 0; i < s->n_keys; i++) {
        unsigned differ = 0;
        for (int k = 0; k < LN_SHA256_BYTES; k++) differ |= (unsigned)(digest[k] ^ s->keys[i].digest[k]);
        const int mask = (int)((differ - 1) >> 31) & 1; /* 1: equal */
        found = mask ? (int)i : found;
    }
    return found;
}

/* The key that the request gives: Authorization: Bearer KEY, or x-api-key: KEY, or as Azure's clients send it
 * api-key: KEY. */
static http_span given_key(const http_head *h) {
    static const char bearer[] = "bearer ";
    const size_t n = sizeof bearer - 1;
    const http_span none = {NULL, 0}, auth = http_field(h, "authorization");
    const int n_auth = http_count(h, "authorization"), n_key = http_count(h, "x-api-key");
    const int n_azure = http_count(h, "api-key");
    if (n_auth > 1 || n_key > 1 || n_azure > 1) return none;
    if (n_auth == 0) return http_field(h, n_key ? "x-api-key" : "api-key");
    if (auth.n <= n || !http_is_word((http_span){auth.at, n}, bearer)) return none;
    return (http_span){auth.at + n, auth.n - n};
}

static void refuse_key(exchange *x) {
    if (failures_count(x->s, conn_address(x->c), ln_now())) {
        exchange_refuse(x, 401, "invalid_api_key",
                        "an API key is required: Authorization: Bearer KEY, or x-api-key: KEY");
        return;
    }
    x->keep_alive = false;
    x->retry_seconds = FAILURES_SECONDS;
    exchange_refuse(x, 429, "too_many_failures", "more than %d requests of this address had no valid key",
                    FAILURES_MOST);
}

/* Finds out who asks. False: refused. */
static bool authenticate(exchange *x, const http_head *h) {
    server *s = x->s;
    const char *name = conn_address(x->c);
    if (s->n_keys > 0) {
        const int k = find_key(s, given_key(h));
        if (k < 0) {
            refuse_key(x);
            return false;
        }
        name = s->keys[k].name;
    }
    x->who = tenant_of(s, name);
    if (!x->who) exchange_refuse(x, 503, "out_of_memory", "out of memory for a request");
    return x->who != NULL;
}

/* ---- hosts and origins ---- */

static bool is_loopback_name(http_span host) {
    size_t n = host.n;
    if (n > 0 && host.at[0] == '[') {
        const char *end = memchr(host.at, ']', n);
        n = end ? (size_t)(end - host.at) + 1 : n;
    } else {
        const char *colon = memchr(host.at, ':', n);
        n = colon ? (size_t)(colon - host.at) : n;
    }
    host.n = n;
    if (http_is_word(host, "localhost") || http_is(host, "[::1]") || http_is(host, "localhost.")) return true;
    if (n < 7 || memcmp(host.at, "127.", 4) != 0) return false;
    for (size_t i = 0; i < n; i++)
        if ((host.at[i] < '0' || host.at[i] > '9') && host.at[i] != '.') return false;
    return true;
}

/* Whether the origin is http://HOST, or https://HOST where a proxy in front speaks TLS. */
static bool is_own_origin(http_span origin, http_span host) {
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < LN_COUNT(schemes); i++) {
        const size_t n = strlen(schemes[i]);
        if (origin.n == n + host.n && http_is_word((http_span){origin.at, n}, schemes[i]) &&
            memcmp(origin.at + n, host.at, host.n) == 0)
            return true;
    }
    return false;
}

/* A page of another site may make a browser send requests to this machine: by a name of its own that resolves
 * to it (then Host is that name), or across origins (then Origin is not this host). */
static bool check_browser(exchange *x, const http_head *h) {
    const http_span origin = http_field(h, "origin");
    if (x->s->loopback && h->host.n > 0 && !is_loopback_name(h->host)) {
        exchange_refuse(x, 403, "forbidden_host", "the Host field names another host than this one");
        return false;
    }
    const bool safe = h->method == HTTP_GET || h->method == HTTP_HEAD || h->method == HTTP_OPTIONS;
    if (!origin.at || safe || (http_count(h, "origin") == 1 && is_own_origin(origin, h->host))) return true;
    exchange_refuse(x, 403, "forbidden_origin", "pages of other origins are not served");
    return false;
}

/* ---- content ---- */

static bool check_content(exchange *x, const http_head *h) {
    const http_span type = http_field(h, "content-type"), coding = http_field(h, "content-encoding");
    const char *end = type.at ? memchr(type.at, ';', type.n) : NULL;
    http_span bare = {type.at, end ? (size_t)(end - type.at) : type.n};
    while (bare.n > 0 && (bare.at[bare.n - 1] == ' ' || bare.at[bare.n - 1] == '\t')) bare.n--;
    http_span rest = {end ? end + 1 : "", end ? type.n - (size_t)(end - type.at) - 1 : 0};
    while (rest.n > 0 && (*rest.at == ' ' || *rest.at == '\t')) rest.at++, rest.n--;
    const bool utf8 = !end || http_is_word(rest, "charset=utf-8") || http_is_word(rest, "charset=\"utf-8\"");
    const bool json = http_count(h, "content-type") == 1 && http_is_word(bare, "application/json") && utf8;
    if (coding.at && !http_is_word(coding, "identity")) {
        exchange_refuse(x, 415, "unsupported_encoding",
                        "bodies are not decompressed; leave Content-Encoding out");
        return false;
    }
    if (json) return true;
    exchange_refuse(x, 415, "unsupported_media_type", "expected Content-Type: application/json, in UTF-8");
    return false;
}

/* ---- together ---- */

static bool check_phase(exchange *x) {
    const server *s = x->s;
    if (x->route->is_public || s->phase == PHASE_READY) return true;
    if (s->phase == PHASE_LOADING) exchange_refuse(x, 503, "loading", "the model is being loaded");
    else exchange_refuse(x, 503, "shutting_down", "the server is about to stop");
    return false;
}

static bool copy_rest(exchange *x, const http_head *h) {
    const size_t n = strlen(x->route->path);
    char *text = ln_alloc(h->path.n + 1);
    if (!text) {
        exchange_refuse(x, 503, "out_of_memory", "out of memory for a request");
        return false;
    }
    const http_span rest = {h->path.at + LN_MIN(n, h->path.n), h->path.n - LN_MIN(n, h->path.n)};
    ln_str_add(&x->path, text, http_decode(rest, text));
    ln_free(text);
    return true;
}

/* Whether a client of Anthropic's API asks: by the path, or by a header on a path that nothing answers. */
static bool is_anthropic(const http_head *h, const route *r) {
    static const char messages[] = "/v1/messages";
    const size_t n = sizeof messages - 1;
    const bool path =
        h->path.n >= n && memcmp(h->path.at, messages, n) == 0 && (h->path.n == n || h->path.at[n] == '/');
    return path || (!r && http_count(h, "anthropic-version") > 0);
}

bool route_begin(exchange *x, const http_head *h) {
    static const route unknown = {"", 0, false, false, NULL};
    x->method = h->method;
    x->minor = h->minor;
    x->keep_alive = h->keep_alive;
    const route *r = route_of(h->path, h->method);
    if (is_anthropic(h, r)) x->form = &dialect_messages; /* so that every refusal has its form */
    if (!check_browser(x, h)) return false;
    if (h->method == HTTP_OPTIONS && (r || http_is(h->path, "*"))) {
        char allow[64];
        (void)snprintf(allow, sizeof allow, "Allow: %s\r\n", r ? route_methods(r) : "GET, HEAD, OPTIONS");
        exchange_reply(x, 204, NULL, "", 0, allow);
        return false;
    }
    if (!(r && r->is_public) && !authenticate(x, h)) return false;
    x->route = r ? r : &unknown;
    if (h->method == HTTP_TRACE || h->method == HTTP_CONNECT || (r && !(r->methods & 1u << h->method))) {
        exchange_refuse(x, 405, "method_not_allowed", "%s is not answered here", http_method_name(h->method));
        return false;
    }
    if (!r) {
        exchange_refuse(x, 404, "not_found", "there is nothing at this path");
        return false;
    }
    if (!check_phase(x) || !copy_rest(x, h)) return false;
    x->roster = roster_hold(x->s->roster);
    return !(r->methods & POST) || check_content(x, h);
}
