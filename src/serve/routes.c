/* Who may ask for what: hosts, origins, keys, paths, methods, types of content. Everything is judged before
 * the body is read. */
#include "../base/sha256.h"
#include "dialect.h"

#include <stdio.h>
#include <string.h>

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

static void refuse_key(request_context *x) {
    if (failures_count(x->s, conn_address(x->c), ln_now())) {
        request_reject(x, 401, "invalid_api_key",
                       "an API key is required: Authorization: Bearer KEY, or x-api-key: KEY");
        return;
    }
    x->keep_alive = false;
    x->retry_seconds = FAILURES_SECONDS;
    request_reject(x, 429, "too_many_failures", "more than %d requests of this address had no valid key",
                   FAILURES_MOST);
}

/* Sets x->client to the client that sent the request. False: the request was rejected. */
static bool authenticate(request_context *x, const http_head *h) {
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
    x->client = client_of(s, name);
    if (!x->client) request_reject(x, 503, "out_of_memory", "out of memory for a request");
    return x->client != NULL;
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
static bool check_browser(request_context *x, const http_head *h) {
    const http_span origin = http_field(h, "origin");
    if (x->s->loopback && h->host.n > 0 && !is_loopback_name(h->host)) {
        request_reject(x, 403, "forbidden_host", "the Host field names another host than this one");
        return false;
    }
    const bool safe = h->method == HTTP_GET || h->method == HTTP_HEAD || h->method == HTTP_OPTIONS;
    if (origin_allow(x, h) || !origin.at || safe) return true;
    if (http_count(h, "origin") == 1 && is_own_origin(origin, h->host)) return true;
    request_reject(x, 403, "forbidden_origin",
                   "pages of other origins are not served; ln_serve_options.origins allows them");
    return false;
}

/* ---- content ---- */

static bool check_content(request_context *x, const http_head *h) {
    const http_span type = http_field(h, "content-type"), coding = http_field(h, "content-encoding");
    const char *end = type.at ? memchr(type.at, ';', type.n) : NULL;
    http_span bare = {type.at, end ? (size_t)(end - type.at) : type.n};
    while (bare.n > 0 && (bare.at[bare.n - 1] == ' ' || bare.at[bare.n - 1] == '\t')) bare.n--;
    http_span rest = {end ? end + 1 : "", end ? type.n - (size_t)(end - type.at) - 1 : 0};
    while (rest.n > 0 && (*rest.at == ' ' || *rest.at == '\t')) rest.at++, rest.n--;
    const bool utf8 = !end || http_is_word(rest, "charset=utf-8") || http_is_word(rest, "charset=\"utf-8\"");
    const bool json = http_count(h, "content-type") == 1 && http_is_word(bare, "application/json") && utf8;
    if (coding.at && !http_is_word(coding, "identity")) {
        request_reject(x, 415, "unsupported_encoding",
                       "bodies are not decompressed; leave Content-Encoding out");
        return false;
    }
    /* ollama's clients send JSON with any type or none. Browsers do so without asking first, but they say
     * where the request comes from. */
    const bool program =
        http_count(h, "origin") + http_count(h, "referer") + http_count(h, "sec-fetch-site") == 0;
    if (json || (x->route->flags & ROUTE_UNTYPED && program)) return true;
    request_reject(x, 415, "unsupported_media_type", "expected Content-Type: application/json, in UTF-8");
    return false;
}

/* ---- together ---- */

static bool check_phase(request_context *x) {
    const server *s = x->s;
    if (x->route->flags & ROUTE_PUBLIC || s->phase == PHASE_READY) return true;
    if (s->phase == PHASE_LOADING) request_reject(x, 503, "loading", "the model is being loaded");
    else request_reject(x, 503, "shutting_down", "the server is about to stop");
    return false;
}

static bool copy_rest(request_context *x, http_span path) {
    const size_t n = strlen(x->route->path);
    char *text = ln_alloc(path.n + 1);
    if (!text) {
        request_reject(x, 503, "out_of_memory", "out of memory for a request");
        return false;
    }
    const http_span rest = {path.at + LN_MIN(n, path.n), path.n - LN_MIN(n, path.n)};
    ln_str_add(&x->path, text, http_decode(rest, text));
    ln_free(text);
    return true;
}

/* Returns the dialect of a client whose request may be rejected before a handler has set it: by the path, or
 * by a header on a path that nothing answers. */
static const dialect *dialect_of(const http_head *h, const route *r) {
    static const char messages[] = "/v1/messages", ollama[] = "/api/";
    const char *path = r ? r->path : h->path.at;
    const size_t bytes = r ? strlen(r->path) : h->path.n, n = sizeof messages - 1, k = sizeof ollama - 1;
    if (bytes >= n && memcmp(path, messages, n) == 0 && (bytes == n || path[n] == '/'))
        return &dialect_messages;
    if (bytes > k && memcmp(path, ollama, k) == 0) return &dialect_ollama;
    return !r && http_count(h, "anthropic-version") > 0 ? &dialect_messages : NULL;
}

/* Answers a request for a path that nothing answers, with the path to use if one is known. */
static void refuse_path(request_context *x, http_span path) {
    ln_str advice = {0};
    route_advise(path, &advice);
    request_reject(x, 404, "not_found", "there is nothing at this path%s%s", advice.len > 0 ? "; " : "",
                   advice.len > 0 && !advice.failed ? advice.data : "");
    ln_str_free(&advice);
}

/* Answers OPTIONS. A browser asks so before it sends a request of a page of another origin. */
static void reply_options(request_context *x, const http_head *h, const route *r) {
    ln_str more = {0};
    const char *methods = r ? route_methods(r) : "GET, HEAD, OPTIONS";
    ln_str_addf(&more, "Allow: %s\r\n", methods);
    if (x->fields.len > 0) origin_preflight(&more, h, methods);
    if (more.failed) request_reject(x, 503, "out_of_memory", "out of memory for an answer");
    else request_reply(x, 204, NULL, "", 0, more.data);
    ln_str_free(&more);
}

bool route_begin(request_context *x, const http_head *h) {
    static const route unknown = {"", 0, 0, NULL};
    char meant[ROUTE_MEANT];
    http_span path;
    x->method = h->method;
    x->minor = h->minor;
    x->keep_alive = h->keep_alive;
    const route *r = route_of(h->path, h->method, &path, meant);
    x->dialect = dialect_of(h, r); /* so that every rejection has its form */
    if (!check_browser(x, h)) return false;
    if (h->method == HTTP_OPTIONS && (r || http_is(h->path, "*"))) {
        reply_options(x, h, r);
        return false;
    }
    if (!(r && r->flags & ROUTE_PUBLIC) && !authenticate(x, h)) return false;
    x->route = r ? r : &unknown;
    if (h->method == HTTP_TRACE || h->method == HTTP_CONNECT || (r && !(r->methods & 1u << h->method))) {
        request_reject(x, 405, "method_not_allowed", "%s is not answered here", http_method_name(h->method));
        return false;
    }
    if (!r) {
        refuse_path(x, h->path);
        return false;
    }
    if (!check_phase(x) || !copy_rest(x, path)) return false;
    x->models = model_list_hold(x->s->models);
    return !(r->methods & 1u << HTTP_POST) || check_content(x, h);
}
