/* The table of paths, and what a path means that is not in it.
 *
 * Clients join a base URL and a path in several ways: without /v1, with two of it, with a slash too many.
 * Such a path is answered as the one that it means; a path of another server's API gets a line that names the
 * path to use. Percent-encoded characters and dots are never resolved. */
#include "dialect.h"

#include <stdio.h>
#include <string.h>

enum { GET = 1 << HTTP_GET | 1 << HTTP_HEAD, POST = 1 << HTTP_POST, MOST_PATH = 256 };
enum {
    PUBLIC = ROUTE_PUBLIC,
    COUNTS = ROUTE_COUNTS,
    EXACT = ROUTE_EXACT,
    UNTYPED = ROUTE_UNTYPED,
    EVENTS = 0, /* the OpenAPI document's */
    LINES = 0
};

static const route routes[] = {
#define ROUTE(path, methods, flags, handle, what, body) {path, methods, flags, handle},
#include "routes.def"
#undef ROUTE
};

static bool is_path(const route *r, http_span path) {
    const size_t n = strlen(r->path);
    const bool prefix = n > 1 && r->path[n - 1] == '/';
    return prefix ? path.n > n && memcmp(path.at, r->path, n) == 0 : http_is(path, r->path);
}

/* Returns the route of a path, byte for byte. Of two with the same path it is that of the method, if there is
 * one. */
static const route *exact_route(http_span path, http_method method) {
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

/* Copies a path to buf[n) with one slash for each run of slashes, none at the end, and one /v1 for several at
 * the beginning. Returns "" if it does not fit. */
static const char *tidy(http_span path, char *buf, size_t cap) {
    size_t n = 0;
    if (path.n >= cap) return "";
    for (size_t i = 0; i < path.n; i++)
        if (path.at[i] != '/' || n == 0 || buf[n - 1] != '/') buf[n++] = path.at[i];
    while (n > 1 && buf[n - 1] == '/') n--;
    buf[n] = '\0';
    while (strncmp(buf, "/v1/v1", 6) == 0 && (buf[6] == '/' || buf[6] == '\0')) buf += 3;
    return buf;
}

const route *route_of(http_span path, http_method method, http_span *meant, char buf[ROUTE_MEANT]) {
    char text[MOST_PATH];
    const route *r = exact_route(path, method);
    *meant = path;
    if (r) return r;
    const char *plain = tidy(path, text, sizeof text);
    const char *const forms[][2] = {
        {"", plain}, {"/v1", plain}, {"", strncmp(plain, "/v1/", 4) == 0 ? plain + 3 : ""}};
    for (size_t i = 0; i < LN_COUNT(forms) && plain[0] && !r; i++) {
        const int n = snprintf(buf, ROUTE_MEANT, "%s%s", forms[i][0], forms[i][1]);
        if (n <= 0 || n >= ROUTE_MEANT) continue;
        *meant = (http_span){buf, (size_t)n};
        r = exact_route(*meant, method);
        if (r && r->flags & ROUTE_EXACT) r = NULL;
    }
    return r;
}

/* ---- paths that nothing answers ---- */

/* Paths of other servers and of other parts of OpenAI's and ollama's APIs; one that ends in / is a prefix. */
static const struct {
    const char *path, *advice;
} advices[] = {
    {"/v1", "this is the base URL of the API; its paths are /v1/chat/completions, /v1/models and those of "
            "/openapi.json"},
    {"/api", "this is the base of ollama's paths: /api/chat, /api/generate, /api/tags, /api/show, "
             "/api/embed"},
    {"/generate", "TGI's and SGLang's /generate is not answered; use /v1/completions or "
                  "/v1/chat/completions"},
    {"/generate_stream", "TGI's /generate_stream is not answered; use /v1/completions or "
                         "/v1/chat/completions with \"stream\": "
                         "true"},
    {"/completion", "llama.cpp's /completion is not answered; use /v1/completions"},
    {"/embedding", "llama.cpp's /embedding is not answered; use /v1/embeddings"},
    {"/embed", "TEI's /embed is not answered; use /v1/embeddings or /api/embed"},
    {"/infill", "text is only continued, not filled in; use /v1/completions"},
    {"/invocations", "use /v1/chat/completions or /v1/completions"},
    {"/pooling", "use /v1/embeddings"},
    {"/reranking", "use /rerank"},
    {"/v2/rerank", "use /rerank"},
    {"/api/pull", "models are not downloaded; the server answers for the model that it was started with"},
    {"/api/push", "models are not uploaded"},
    {"/api/create", "models are not made here"},
    {"/api/copy", "one model is served; ln_serve_options.aliases gives it further names"},
    {"/api/delete", "models are not deleted here"},
    {"/api/blobs/", "models are not uploaded"},
    {"/v1/images/", "only text is supported"},
    {"/v1/audio/", "only text is supported"},
    {"/v1/moderations", "there are no moderations"},
    {"/v1/files", "no files are kept; send the requests one by one"},
    {"/v1/batches", "no files are kept; send the requests one by one"},
    {"/v1/messages/batches", "no files are kept; send the requests one by one"},
    {"/v1/fine_tuning/", "models are not trained here"},
    {"/v1/assistants", "nothing is kept between requests; use /v1/responses or /v1/chat/completions"},
    {"/v1/threads", "nothing is kept between requests; use /v1/responses or /v1/chat/completions"},
    {"/v1/conversations", "nothing is kept between requests; use /v1/responses or /v1/chat/completions"},
    {"/v1/responses/", "no response is kept: send the whole conversation as input"},
    {"/v1/realtime", "use /v1/chat/completions with \"stream\": true"},
};

static bool has_begin(const char *path, const char *begin) {
    const size_t n = strlen(begin);
    return begin[n - 1] == '/' ? strncmp(path, begin, n) == 0 && path[n] : strcmp(path, begin) == 0;
}

/* Whether the path ends with that of a route behind /v1, which comes at the end of a longer base URL:
 * /openai/deployments/m/chat/completions. */
static bool ends_with(const char *path, const route *r) {
    const char *tail = strncmp(r->path, "/v1/", 4) == 0 ? r->path + 3 : "";
    const size_t n = strlen(path), k = strlen(tail);
    return k > 1 && tail[k - 1] != '/' && !(r->flags & ROUTE_EXACT) && n > k &&
           strcmp(path + n - k, tail) == 0;
}

void route_advise(http_span path, ln_str *out) {
    char text[MOST_PATH];
    const char *plain = tidy(path, text, sizeof text);
    for (size_t i = 0; i < LN_COUNT(advices); i++)
        if (has_begin(plain, advices[i].path)) {
            ln_str_adds(out, advices[i].advice);
            return;
        }
    const char *bare = strncmp(plain, "/v1/", 4) == 0 ? plain + 3 : plain;
    for (size_t i = 0; i < LN_COUNT(routes); i++)
        if (strcmp(bare, routes[i].path) == 0 || ends_with(plain, &routes[i])) {
            ln_str_addf(out, "use %s", routes[i].path);
            return;
        }
}
