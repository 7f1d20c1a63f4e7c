/* /openapi.json: the paths of routes.def and the schemas of schemas.def as an OpenAPI document. */
#include "server.h"

#include <string.h>

enum { GET = 0, POST = 1 };
enum { PUBLIC = 1, EVENTS = 2, LINES = 4, COUNTS = 0, UNTYPED = 0, EXACT = 0 };

typedef struct row {
    const char *path;
    int method;
    unsigned flags;
    const char *what, *body;
} row;

static const row rows[] = {
#define ROUTE(path, method, flags, handle, what, body) {path, method, flags, what, body},
#include "routes.def"
#undef ROUTE
};

static const struct {
    const char *name, *text;
} schemas[] = {
#define SCHEMA(name, text) {#name, text},
#include "schemas.def"
#undef SCHEMA
};

/* Members of conversations with a model whose calls of tools are read; first among the properties. */
static const char tool_members[] =
    "\"tools\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":"
    "\"#/components/schemas/Tool\"}}]},\"tool_choice\":{\"enum\":[\"auto\",\"none\",null]},"
    "\"parallel_tool_calls\":{\"type\":[\"boolean\",\"null\"]},";

static void put_schema(ln_str *out, const char *name, const char *text, bool tools) {
    static const char properties[] = "\"properties\":{";
    const char *at = tools && strcmp(name, "ChatRequest") == 0 ? strstr(text, properties) : NULL;
    ln_str_addf(out, "\"%s\":", name);
    if (at) {
        at += sizeof properties - 1;
        ln_str_add(out, text, (size_t)(at - text));
        ln_str_adds(out, tool_members);
    }
    ln_str_adds(out, at ? at : text);
    ln_str_adds(out, ",");
}

static void put_schemas(ln_str *out, const server *s) {
    ln_str_addf(out, "\"schemas\":{\"Id\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":%lld},",
                (long long)s->info.vocab_size - 1);
    for (size_t i = 0; i < LN_COUNT(schemas); i++) {
        put_schema(out, schemas[i].name, schemas[i].text, s->info.tool_format[0] != 0);
    }
    ln_str_adds(out,
                "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":"
                "\"object\",\"required\":[\"message\",\"type\",\"param\",\"code\"],\"properties\":{"
                "\"message\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"},\"param\":{\"type\":"
                "[\"string\",\"null\"]},\"code\":{\"type\":[\"string\",\"null\"]}}}}},"
                "\"OllamaError\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{"
                "\"error\":{\"type\":\"string\"}}}}");
}

static void put_error_of(ln_str *out, const row *r, const char *status, const char *what) {
    ln_str_addf(out,
                ",\"%s\":{\"description\":\"%s\",\"content\":{\"application/json\":{\"schema\":{\"$ref\":"
                "\"#/components/schemas/%sError\"}}}}",
                status, what, strncmp(r->path, "/api/", 5) == 0 ? "Ollama" : "");
}

/* Begins an operation; two rows with the same path are one path with two. */
static void begin_row(ln_str *out, const row *r) {
    const size_t n = strlen(r->path);
    const bool more = r > rows && strcmp(r[-1].path, r->path) == 0;
    if (more) out->len--; /* the end of the path's object */
    if (r > rows) ln_str_adds(out, ",");
    if (!more) ln_str_addf(out, "\"%s%s\":{", r->path, n > 1 && r->path[n - 1] == '/' ? "{id}" : "");
    ln_str_addf(out, "\"%s\":{\"summary\":", r->method == POST ? "post" : "get");
}

static void put_row(ln_str *out, const row *r, const server *s) {
    const size_t n = strlen(r->path);
    const bool prefix = n > 1 && r->path[n - 1] == '/';
    const char *text = n == 1                             ? "text/html; charset=utf-8"
                       : strcmp(r->path, "/metrics") == 0 ? "text/plain; version=0.0.4; charset=utf-8"
                                                          : NULL;       /* JSON */
    const bool changes = r->body && strstr(r->body, "Adapter") != NULL; /* of adapters */
    begin_row(out, r);
    ln_str_json(out, r->what, strlen(r->what));
    if (r->flags & PUBLIC) ln_str_adds(out, ",\"security\":[]");
    if (prefix) {
        ln_str_adds(out, ",\"parameters\":[{\"name\":\"id\",\"in\":\"path\",\"required\":true,\"schema\":{"
                         "\"type\":\"string\"},\"example\":");
        ln_str_json(out, s->name, strlen(s->name));
        ln_str_adds(out, "}]");
    }
    if (r->body)
        ln_str_addf(out,
                    ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":{"
                    "\"$ref\":\"#/components/schemas/%s\"}}}}",
                    r->body);
    ln_str_addf(out,
                ",\"responses\":{\"200\":{\"description\":\"the "
                "answer\",\"content\":{\"%s\":{\"schema\":{%s}}%s}}",
                text ? text : "application/json",
                text ? "\"type\":\"string\""
                : strcmp(r->path, "/lora-adapters") == 0 || strcmp(r->path, "/slots") == 0
                    ? "\"type\":\"array\""
                    : "\"type\":\"object\"",
                r->flags & EVENTS  ? ",\"text/event-stream; charset=utf-8\":{\"schema\":{}}"
                : r->flags & LINES ? ",\"application/x-ndjson\":{\"schema\":{}}"
                                   : "");
    if (r->body) put_error_of(out, r, "400", "a field is refused: param has its name");
    if (!(r->flags & PUBLIC)) put_error_of(out, r, "401", "a key is required");
    put_error_of(out, r, "403",
                 changes ? "the Host or the Origin of another site, or adapters may not be changed"
                         : "the Host or the Origin of another site");
    if (r->body || prefix) put_error_of(out, r, "404", "there is no such model");
    if (changes)
        put_error_of(out, r, "409", "the name is taken, there is no room, or requests use the adapter");
    if (r->body) put_error_of(out, r, "413", "the body is too long");
    if (r->body) put_error_of(out, r, "415", "the body is not application/json");
    if (r->body) put_error_of(out, r, "429", "too many requests of this key wait");
    put_error_of(out, r, "503", "the server loads, stops, or has too many requests");
    ln_str_adds(out, "}}}");
}

void handle_openapi(request_context *x) {
    ln_str out = {0};
    ln_str_addf(&out,
                "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"linnet\",\"version\":\"%s\",\"description\":"
                "\"OpenAI's API for "
                "one "
                "model\",\"license\":{\"name\":\"MIT\",\"identifier\":\"MIT\"}},\"security\":[{},{\"bearer\":"
                "[]},{\"key\":[]}],\"paths\":{",
                ln_version());
    for (size_t i = 0; i < LN_COUNT(rows); i++) put_row(&out, &rows[i], x->s);
    ln_str_adds(&out, "},\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":\"http\",\"scheme\":"
                      "\"bearer\"},\"key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"x-api-key\"}},");
    put_schemas(&out, x->s);
    ln_str_adds(&out, "}}");
    if (out.failed) request_reject(x, 503, "out_of_memory", "out of memory for an answer");
    else request_reply(x, 200, "application/json", out.data, out.len, NULL);
    ln_str_free(&out);
}
