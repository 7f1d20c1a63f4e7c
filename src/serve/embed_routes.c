/* Embeddings: OpenAI's /v1/embeddings, ollama's /api/embed and /api/embeddings. They run on the worker for
 * calls, which waits for the engine. A client that leaves ends the call with the next embedding. */
#include "../base/base64.h"
#include "../base/c_locale.h"
#include "../base/json_write.h"
#include "../wire/body.h"
#include "dialect.h"

#include <linnet_tools.h>
#include <stdio.h>
#include <string.h>

enum { MOST_EMBEDDED = 2048 }; /* inputs of a request, as OpenAI has it */

typedef enum embed_api { OPENAI = 0, OLLAMA, OLLAMA_OLDER } embed_api;

/* One call. The texts of its prompts are the body's. */
typedef struct call {
    request_context *x;
    embed_api api;
    ln_arena arena;
    ln_prompt *prompts; /* [n] */
    size_t n;
    size_t model; /* index of `model` in x->models */
    ln_embed_options o;
    bool base64;
    ln_str data;    /* items of the answer */
    bool refused;   /* an input failed: x->why */
    int64_t tokens; /* of all inputs */
} call;

static ln_status no_room(call *c) { return wire_fail(&c->x->why, LN_OOM(&c->x->why.error, "a request")); }

/* ---- the body ---- */

/* Reads token ids into a prompt; `v` is a list. Whether they are in the vocabulary, the engine says. */
static ln_status read_ids(call *c, const json_t *v, const char *field, ln_prompt *p) {
    char found[80];
    const size_t n = json_array_size(v);
    int32_t *ids = ln_arena_alloc(&c->arena, (n + 1) * sizeof *ids);
    if (!ids) return no_room(c);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(v, i);
        int64_t value;
        if (!body_integer(id, &value) || value < 0 || value > INT32_MAX)
            return wire_refuse(&c->x->why, field, "expected token ids, found %s", ln_json_text(id, found));
        ids[i] = (int32_t)value;
    }
    if (n == 0) return wire_refuse(&c->x->why, field, "expected a text or token ids, found []");
    *p = (ln_prompt){.size = sizeof *p, .ids = ids, .n_ids = n, .adapter = c->x->models->adapters[c->model]};
    return LN_OK;
}

/* Input i of the request: a text or a list of token ids. */
static ln_status read_input(call *c, const json_t *v, size_t i) {
    char field[32], found[80];
    ln_prompt *p = &c->prompts[i];
    if (c->api != OPENAI && !json_is_string(v)) {
        (void)snprintf(field, sizeof field, "input[%zu]", i);
        return wire_refuse(&c->x->why, field, "expected a text, found %s", ln_json_text(v, found));
    }
    (void)snprintf(field, sizeof field, "input[%zu]", i);
    if (json_is_array(v)) return read_ids(c, v, field, p);
    if (!json_is_string(v))
        return wire_refuse(&c->x->why, field, "expected a text or a list of token ids, found %s",
                           ln_json_text(v, found));
    *p = (ln_prompt){.size = sizeof *p,
                     .text = json_string_value(v),
                     .text_bytes = json_string_length(v),
                     .tmpl = LN_TEMPLATE_RAW,
                     .adapter = c->x->models->adapters[c->model]};
    return LN_OK;
}

/* A text, token ids, or a list of either: a list of integers is one input. */
static ln_status read_inputs(call *c, const json_t *v) {
    char found[80];
    int64_t id;
    const bool one = json_is_string(v) || (json_is_array(v) && body_integer(json_array_get(v, 0), &id));
    c->n = one ? 1 : json_array_size(v);
    if (c->api == OLLAMA_OLDER && !json_is_string(v))
        return wire_refuse(&c->x->why, "prompt", "expected a text, found %s", ln_json_text(v, found));
    if (c->n == 0 || c->n > MOST_EMBEDDED)
        return wire_refuse(&c->x->why, "input",
                           "expected a text, token ids, or a list of 1 to %d of these, found %s",
                           MOST_EMBEDDED, ln_json_text(v, found));
    c->prompts = ln_arena_alloc(&c->arena, c->n * sizeof *c->prompts);
    if (!c->prompts) return no_room(c);
    for (size_t i = 0; i < c->n; i++) LN_TRY(read_input(c, one ? v : json_array_get(v, i), i));
    return LN_OK;
}

/* The number of a text in a list; the first one where the field is absent or null. */
static ln_status read_choice(call *c, const json_t *body, const char *field, const char *const *all, size_t n,
                             size_t *out) {
    char found[80];
    ln_str names = {0};
    const json_t *v = json_object_get(body, field);
    *out = 0;
    if (!v || json_is_null(v)) return LN_OK;
    for (; *out < n; (*out)++)
        if (json_is_string(v) && strcmp(json_string_value(v), all[*out]) == 0) return LN_OK;
    for (size_t i = 0; i < n; i++) ln_str_addf(&names, "%s%s", i == 0 ? "" : " or ", all[i]);
    const ln_status st = wire_refuse(&c->x->why, field, "expected %s, found %s", names.data ? names.data : "",
                                     ln_json_text(v, found));
    ln_str_free(&names);
    return st;
}

static ln_status read_dimensions(call *c, const json_t *v) {
    char found[80];
    if (!v || json_is_null(v)) return LN_OK;
    int64_t n;
    if (!body_integer(v, &n) || n < 1)
        return wire_refuse(&c->x->why, "dimensions", "expected an integer of 1 or more, found %s",
                           ln_json_text(v, found));
    c->o.dimensions = n;
    return LN_OK;
}

/* Reads the fields that sentence-transformers names so: the name of a prompt, and whether vectors get
 * length 1. */
static ln_status read_manner(call *c, const json_t *body) {
    char found[80];
    const json_t *name = json_object_get(body, "prompt_name"), *one = json_object_get(body, "normalize");
    if (name && !json_is_null(name) && !json_is_string(name))
        return wire_refuse(&c->x->why, "prompt_name", "expected a text, found %s", ln_json_text(name, found));
    if (one && !json_is_null(one) && !json_is_boolean(one))
        return wire_refuse(&c->x->why, "normalize", "expected true or false, found %s",
                           ln_json_text(one, found));
    c->o.prompt_name = json_string_value(name);
    if (json_is_boolean(one)) c->o.normalize = json_is_true(one) ? LN_UNIT_LENGTH_YES : LN_UNIT_LENGTH_NO;
    return LN_OK;
}

static ln_status check_model(call *c, const json_t *v) {
    char found[80];
    if (!v || json_is_null(v)) return LN_OK;
    if (!json_is_string(v))
        return wire_refuse(&c->x->why, "model", "expected a text, found %s", ln_json_text(v, found));
    return wire_find_model(&c->model, &c->x->models->target, json_string_value(v), json_string_length(v),
                           &c->x->why);
}

/* Reads a body of ollama's. Its older path takes one text and keeps the vector's length. */
static ln_status read_ollama(call *c, const json_t *body) {
    static const char *const known[] = {"model",      "name",       "input",    "prompt", "options",
                                        "keep_alive", "dimensions", "truncate", NULL};
    static const char *const none[] = {NULL};
    json_t *model = ollama_model(c->x, body);
    ln_status st = check_model(c, model);
    json_decref(model);
    LN_TRY(st);
    LN_TRY(read_inputs(c, json_object_get(body, c->api == OLLAMA ? "input" : "prompt")));
    LN_TRY(read_dimensions(c, json_object_get(body, "dimensions")));
    if (c->api == OLLAMA_OLDER) c->o.normalize = LN_UNIT_LENGTH_NO;
    dialect_others(body, none, known);
    return LN_OK;
}

static ln_status read_body(call *c, const json_t *body) {
    static const char *const forms[] = {"float", "base64"}, *const ways[] = {
                                                                "auto",        "last", "mean",
                                                                "cls",         "max",  "mean_sqrt_len_tokens",
                                                                "weightedmean"}; /* as ln_pooling */
    static const char *const known[] = {"model", "input",       "encoding_format", "pooling", "dimensions",
                                        "user",  "prompt_name", "normalize",       NULL};
    static const char *const none[] = {NULL};
    size_t form, way;
    LN_TRY(check_model(c, json_object_get(body, "model")));
    LN_TRY(read_inputs(c, json_object_get(body, "input")));
    LN_TRY(read_choice(c, body, "encoding_format", forms, LN_COUNT(forms), &form));
    LN_TRY(read_choice(c, body, "pooling", ways, LN_COUNT(ways), &way));
    LN_TRY(read_dimensions(c, json_object_get(body, "dimensions")));
    LN_TRY(read_manner(c, body));
    c->base64 = form == 1;
    c->o.pooling = (ln_pooling)way;
    dialect_others(body, none, known);
    return LN_OK;
}

/* ---- the answer ---- */

static void put_values(call *c, const ln_embedding *e) {
    char text[32];
    if (c->api == OPENAI)
        ln_str_addf(&c->data, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", e->index ? "," : "",
                    e->index);
    else if (e->index > 0) ln_str_adds(&c->data, ",");
    if (c->base64) { /* f32, little-endian, as the machines that this runs on have it */
        ln_str_adds(&c->data, "\"");
        ln_str_base64(&c->data, e->values, (size_t)e->n_values * sizeof *e->values);
        ln_str_adds(&c->data, "\"}");
        return;
    }
    for (int64_t i = 0; i < e->n_values; i++) {
        (void)ln_snprintf(text, sizeof text, "%s%.9g", i == 0 ? "[" : ",", (double)e->values[i]);
        ln_str_adds(&c->data, text);
    }
    ln_str_adds(&c->data, c->api == OPENAI ? "]}" : "]");
}

static ln_status on_embedding(void *user, const ln_embedding *e, ln_error *err) {
    call *c = user;
    request_context *x = c->x;
    if (atomic_load(&x->left)) return ln_fail(err, LN_ECANCELLED, "the client has left");
    c->tokens += e->n_tokens;
    if (e->status == LN_OK) {
        put_values(c, e);
        return LN_OK;
    }
    (void)ln_fail(&x->why.error, e->status, "input %zu: %s", e->index, e->error);
    (void)wire_fail_request(&x->why, &x->q, e->status);
    if (c->n == 1)
        (void)snprintf(x->why.param, sizeof x->why.param, c->api == OLLAMA_OLDER ? "prompt" : "input");
    else (void)snprintf(x->why.param, sizeof x->why.param, "input[%zu]", e->index);
    c->refused = true;
    return ln_fail(err, LN_ECANCELLED, "an input was refused");
}

/* Names the field of the body that an error about ln_embed_options is about. */
static void name_field(wire_error *why) {
    static const char options[] = "ln_embed_options.";
    char *text = why->error.message;
    if (strncmp(text, options, sizeof options - 1) != 0) return;
    const char *name = text + sizeof options - 1;
    const size_t n = strcspn(name, ":");
    (void)snprintf(why->param, sizeof why->param, "%.*s", (int)n, name);
    memmove(text, name, strlen(name) + 1);
}

static void put_vectors(call *c, double seconds) {
    static const char *const heads[] = {"{\"object\":\"list\",\"data\":[", "{\"embeddings\":[",
                                        "{\"embedding\":"};
    ln_str *out = &c->x->out;
    ln_str_adds(out, heads[c->api]);
    ln_str_add(out, c->data.data ? c->data.data : "", c->data.len);
    out->failed |= c->data.failed;
    if (c->api != OLLAMA_OLDER) {
        ln_str_adds(out, "]");
        put_text(out, "model", c->x->models->names[c->model]);
    }
    if (c->api == OPENAI) {
        put_object(out, "usage");
        put_int(out, "prompt_tokens", c->tokens);
        put_int(out, "total_tokens", c->tokens);
        ln_str_adds(out, "}");
    } else if (c->api == OLLAMA) {
        put_int(out, "total_duration", (int64_t)(1e9 * seconds));
        put_int(out, "load_duration", 0);
        put_int(out, "prompt_eval_count", c->tokens);
    }
    ln_str_adds(out, "}");
}

static ln_status embed_all(call *c, const json_t *body) {
    request_context *x = c->x;
    ln_metrics m = {0};
    LN_TRY(c->api == OPENAI ? read_body(c, body) : read_ollama(c, body));
    const double began = ln_now();
    ln_error err = {0};
    const ln_status st = ln_embed(x->s->engine, c->prompts, c->n, &c->o, on_embedding, c, &m, &err);
    if (c->refused) return LN_EINVALID; /* x->why says which */
    if (st != LN_OK) {
        x->why.error = err;
        (void)wire_fail(&x->why, st);
        name_field(&x->why);
        return model_list_check(x, c->model, st, &x->why);
    }
    put_vectors(c, ln_now() - began);
    x->prompt_tokens = m.prompt_tokens;
    x->cached_tokens = m.cached_tokens;
    return LN_OK;
}

static void run(work *w, embed_api api) {
    request_context *x = (request_context *)(void *)w;
    call c = {.x = x, .api = api, .o = ln_embed_options_default()};
    json_t *body = NULL;
    ln_status st = request_read_object(x, &body);
    if (st == LN_OK) st = embed_all(&c, body);
    (void)st; /* x->why has it */
    json_decref(body);
    ln_str_free(&c.data);
    ln_arena_free(&c.arena);
}

static void embed(work *w) { run(w, OPENAI); }
static void embed_ollama(work *w) { run(w, OLLAMA); }
static void embed_ollama_older(work *w) { run(w, OLLAMA_OLDER); }

void handle_embeddings(request_context *x) { request_work(x, &x->s->calling, embed, request_answer); }
void handle_ollama_embed(request_context *x) {
    request_work(x, &x->s->calling, embed_ollama, request_answer);
}
void handle_ollama_embeddings(request_context *x) {
    request_work(x, &x->s->calling, embed_ollama_older, request_answer);
}
