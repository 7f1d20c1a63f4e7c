/* Routes that read probabilities instead of generating: /classify, /score, /rerank. They run on the worker
 * for calls, which waits for the engine; a client that leaves ends the call with the result that comes next.
 *
 * /score and /rerank judge pairs of a query and a document as Qwen3-Reranker was trained to: the model is
 * asked whether the document answers the query, and the score is the probability of "yes" among "yes" and
 * "no". */
#include "../base/json_write.h"
#include "../wire/body.h"
#include "dialect.h"

#include <linnet_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 1024, MOST_LABELS = 256 };
static const char judge[] =
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".";
static const char retrieve[] = "Given a web search query, retrieve relevant passages that answer the query";

/* One call: prompts and what comes of them. */
typedef struct call {
    request_context *x;
    ln_arena arena;
    size_t model;       /* index of `model` in x->models */
    ln_prompt *prompts; /* [n] */
    ln_message *turns;  /* [n, 2] */
    size_t n;
    const char **labels; /* [n_labels] */
    size_t n_labels;
    ln_normalize normalize;
    double *scores; /* [n] of /score and /rerank */
    ln_str out;     /* items of /classify */
    bool refused;   /* a prompt failed: x->why */
} call;

static ln_status no_room(call *c) { return wire_fail(&c->x->why, LN_OOM(&c->x->why.error, "a request")); }

/* ---- fields ---- */

/* A text, or the member `text` of an object, at place i of a field. */
static ln_status text_of(call *c, const json_t *v, const char *name, size_t i, const char **out) {
    char field[96];
    if (json_is_object(v)) v = json_object_get(v, "text");
    (void)snprintf(field, sizeof field, "%.60s[%zu]", name, i);
    return body_text(&c->x->why, field, v, out);
}

/* A list of 1 to `most` texts, or one text. The texts are the body's. */
static ln_status texts_of(call *c, const json_t *v, const char *name, size_t most, const char ***out,
                          size_t *n) {
    char found[80];
    const bool one = json_is_string(v);
    *n = one ? 1 : json_array_size(v);
    if ((!one && !json_is_array(v)) || *n == 0 || *n > most)
        return wire_refuse(&c->x->why, name, "expected a text or a list of 1 to %zu texts, found %s", most,
                           ln_json_text(v, found));
    *out = ln_arena_alloc(&c->arena, *n * sizeof **out);
    if (!*out) return no_room(c);
    for (size_t i = 0; i < *n; i++) LN_TRY(text_of(c, one ? v : json_array_get(v, i), name, i, &(*out)[i]));
    return LN_OK;
}

/* Stores the text of a member that may be absent or null; *out stays as it is then. */
static ln_status text_field(call *c, const json_t *body, const char *name, const char **out) {
    const json_t *v = body_member(body, name, NULL, &name);
    return v ? body_text(&c->x->why, name, v, out) : LN_OK;
}

static ln_status check_model(call *c, const json_t *body) {
    const char *name = NULL;
    LN_TRY(text_field(c, body, "model", &name));
    return name ? wire_find_model(&c->model, &c->x->models->target, name, strlen(name), &c->x->why) : LN_OK;
}

/* ---- prompts ---- */

static ln_status open_prompts(call *c, size_t n) {
    c->n = n;
    c->prompts = ln_arena_alloc(&c->arena, n * sizeof *c->prompts);
    c->turns = ln_arena_alloc(&c->arena, 2 * n * sizeof *c->turns);
    c->scores = ln_arena_alloc(&c->arena, n * sizeof *c->scores);
    return c->prompts && c->turns && c->scores ? LN_OK : no_room(c);
}

/* Makes prompt i a conversation, or raw text where the model has no template or none is wanted. */
static ln_status set_prompt(call *c, size_t i, const char *system, const ln_str *text, bool raw) {
    static const char no_thinking[] = "{\"enable_thinking\":false,\"thinking\":false}";
    ln_message *turns = &c->turns[2 * i];
    ln_prompt *p = &c->prompts[i];
    const char *copy = ln_arena_strndup(&c->arena, text->data ? text->data : "", text->len);
    if (!copy || text->failed) return no_room(c);
    if (raw) {
        *p = (ln_prompt){.size = sizeof(ln_prompt),
                         .text = copy,
                         .text_bytes = text->len,
                         .tmpl = LN_TEMPLATE_RAW,
                         .adapter = c->x->models->adapters[c->model]};
        return LN_OK;
    }
    size_t n = 0;
    if (system) turns[n++] = (ln_message){"system", system, strlen(system)};
    turns[n++] = (ln_message){"user", copy, text->len};
    *p = (ln_prompt){.size = sizeof(ln_prompt),
                     .messages = turns,
                     .n_messages = n,
                     .tmpl = LN_TEMPLATE_CHAT,
                     .adapter = c->x->models->adapters[c->model]};
    if (c->x->s->info.has_think_switch) {
        p->template_args = no_thinking;
        p->template_args_bytes = sizeof no_thinking - 1;
    }
    return LN_OK;
}

static ln_status add_pair(call *c, size_t i, const char *instruction, const char *query,
                          const char *document) {
    ln_str text = {0};
    ln_str_addf(&text, "<Instruct>: %s\n<Query>: ", instruction ? instruction : retrieve);
    ln_str_adds(&text, query);
    ln_str_adds(&text, "\n<Document>: ");
    ln_str_adds(&text, document);
    const ln_status st = set_prompt(c, i, judge, &text, false);
    ln_str_free(&text);
    return st;
}

/* ---- running ---- */

static void put_class(call *c, const ln_class *r) {
    ln_str *s = &c->out;
    ln_str_adds(s, s->len ? ",{" : "{");
    put_uint(s, "index", r->index);
    put_text(s, "label", c->labels[r->label]);
    put_real(s, "probability", r->probabilities[r->label]);
    put_object(s, "scores");
    for (size_t k = 0; k < c->n_labels; k++) put_real(s, c->labels[k], r->scores[k]);
    ln_str_adds(s, "}");
    put_list(s, "probs");
    for (size_t k = 0; k < c->n_labels; k++) {
        if (k > 0) ln_str_adds(s, ",");
        ln_str_double(s, r->probabilities[k]);
    }
    ln_str_addf(s, "],\"num_classes\":%zu}", c->n_labels);
}

static ln_status on_class(void *user, const ln_class *r, ln_error *err) {
    call *c = user;
    request_context *x = c->x;
    if (atomic_load(&x->left)) return ln_fail(err, LN_ECANCELLED, "the client has left");
    if (r->status != LN_OK) {
        (void)ln_fail(&x->why.error, r->status, "input %zu: %s", r->index, r->error ? r->error : "");
        (void)wire_fail_request(&x->why, &x->q, r->status);
        (void)snprintf(x->why.param, sizeof x->why.param, "%s[%zu]",
                       x->route->handle == handle_classify ? "input"
                       : x->route->handle == handle_rerank ? "documents"
                                                           : "text_2",
                       r->index);
        c->refused = true;
        return ln_fail(err, LN_ECANCELLED, "an input was refused");
    }
    if (x->route->handle == handle_classify) put_class(c, r);
    else c->scores[r->index] = r->probabilities[1];
    return LN_OK;
}

static ln_status run(call *c, ln_metrics *m) {
    ln_classify_options o = ln_classify_options_default();
    o.labels = c->labels;
    o.n_labels = c->n_labels;
    o.normalize = c->normalize;
    ln_error err = {0};
    const ln_status st = ln_classify(c->x->s->engine, c->prompts, c->n, &o, on_class, c, m, &err);
    if (c->refused) return LN_EINVALID; /* x->why says which */
    if (st == LN_OK) return LN_OK;
    c->x->why.error = err;
    (void)wire_fail(&c->x->why, st);
    return model_list_check(c->x, c->model, st, &c->x->why);
}

/* Runs pairs with the labels no and yes. */
static ln_status run_pairs(call *c, ln_metrics *m) {
    static const char *yes_no[] = {"no", "yes"};
    c->labels = yes_no;
    c->n_labels = 2;
    return run(c, m);
}

/* ---- answers ---- */

static void put_head(const call *c, const char *prefix, bool list) {
    request_context *x = c->x;
    ln_str_addf(&x->out, "{\"id\":\"%s-%s\"", prefix, x->id + 4);
    if (list) put_text(&x->out, "object", "list");
    if (list) put_int(&x->out, "created", x->created);
    put_text(&x->out, "model", x->models->names[c->model]);
}

static void put_usage(request_context *x, const ln_metrics *m) {
    ln_str_addf(&x->out,
                "],\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld,\"completion_tokens\":0,"
                "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}}",
                (long long)m->prompt_tokens, (long long)m->prompt_tokens, (long long)m->cached_tokens);
    x->prompt_tokens = m->prompt_tokens;
    x->cached_tokens = m->cached_tokens;
}

/* ---- /classify ---- */

/* Puts a text into a template in place of {text}. */
static void fill(ln_str *out, const char *form, const char *text) {
    const char *at = form ? strstr(form, "{text}") : NULL;
    if (at) ln_str_add(out, form, (size_t)(at - form));
    ln_str_adds(out, text);
    if (at) ln_str_adds(out, at + 6);
}

static ln_status classify_all(call *c, const json_t *body) {
    static const char *const known[] = {"model",  "input",  "inputs", "labels", "normalize",
                                        "system", "prompt", "raw",    NULL};
    static const char *const none[] = {NULL};
    request_context *x = c->x;
    const char *name, *system = NULL, *form = NULL, *how = NULL, **texts;
    char found[80];
    size_t n;
    ln_metrics m = {0};
    const json_t *raw = json_object_get(body, "raw");
    LN_TRY(check_model(c, body));
    const json_t *input = body_member(body, "input", "inputs", &name);
    LN_TRY(texts_of(c, input, name, MOST_INPUTS, &texts, &n));
    LN_TRY(texts_of(c, json_object_get(body, "labels"), "labels", MOST_LABELS, &c->labels, &c->n_labels));
    for (size_t i = 0; i < c->n_labels; i++)
        if (!c->labels[i][0])
            return wire_refuse(&x->why, "labels", "label %zu is empty; expected a text", i + 1);
    LN_TRY(text_field(c, body, "system", &system));
    LN_TRY(text_field(c, body, "prompt", &form));
    LN_TRY(text_field(c, body, "normalize", &how));
    if (form && !strstr(form, "{text}"))
        return wire_refuse(&x->why, "prompt", "expected a text with {text} in it");
    if (how && strcmp(how, "sum") != 0 && strcmp(how, "tokens") != 0)
        return wire_refuse(&x->why, "normalize", "expected sum or tokens, found %s",
                           ln_json_text(json_object_get(body, "normalize"), found));
    if (raw && !json_is_null(raw) && !json_is_boolean(raw))
        return wire_refuse(&x->why, "raw", "expected true or false, found %s", ln_json_text(raw, found));
    c->normalize = how && strcmp(how, "tokens") == 0 ? LN_NORMALIZE_TOKENS : LN_NORMALIZE_SUM;
    dialect_others(body, none, known);
    LN_TRY(open_prompts(c, n));
    for (size_t i = 0; i < n; i++) {
        ln_str text = {0};
        fill(&text, form, texts[i]);
        const ln_status st = set_prompt(c, i, system, &text, json_is_true(raw) || !x->s->info.has_template);
        ln_str_free(&text);
        LN_TRY(st);
    }
    LN_TRY(run(c, &m));
    put_head(c, "classify", true);
    ln_str_adds(&x->out, ",\"data\":[");
    ln_str_add(&x->out, c->out.data ? c->out.data : "", c->out.len);
    put_usage(x, &m);
    return LN_OK;
}

/* ---- /score, /rerank ---- */

static ln_status score_all(call *c, const json_t *body) {
    static const char *const known[] = {"model", "text_1", "text_2", "instruction", NULL};
    static const char *const none[] = {NULL};
    const char **first, **second, *instruction = NULL;
    size_t n, n_second;
    ln_metrics m = {0};
    LN_TRY(check_model(c, body));
    LN_TRY(texts_of(c, json_object_get(body, "text_1"), "text_1", MOST_INPUTS, &first, &n));
    LN_TRY(texts_of(c, json_object_get(body, "text_2"), "text_2", MOST_INPUTS, &second, &n_second));
    LN_TRY(text_field(c, body, "instruction", &instruction));
    if (n != 1 && n != n_second)
        return wire_refuse(&c->x->why, "text_2", "expected as many texts as text_1 has, %zu, found %zu", n,
                           n_second);
    dialect_others(body, none, known);
    LN_TRY(open_prompts(c, n_second));
    for (size_t i = 0; i < n_second; i++)
        LN_TRY(add_pair(c, i, instruction, first[n == 1 ? 0 : i], second[i]));
    LN_TRY(run_pairs(c, &m));
    put_head(c, "score", true);
    ln_str_adds(&c->x->out, ",\"data\":[");
    for (size_t i = 0; i < c->n; i++) {
        ln_str_adds(&c->x->out, i ? ",{" : "{");
        put_uint(&c->x->out, "index", i);
        put_text(&c->x->out, "object", "score");
        put_real(&c->x->out, "score", c->scores[i]);
        ln_str_adds(&c->x->out, "}");
    }
    put_usage(c->x, &m);
    return LN_OK;
}

typedef struct ranked {
    double score;
    size_t index;
} ranked;

static int by_score(const void *a, const void *b) {
    const ranked *p = a, *q = b;
    if (p->score != q->score) return p->score < q->score ? 1 : -1;
    return (p->index > q->index) - (p->index < q->index);
}

static void put_ranking(call *c, const char **documents, size_t most, bool with_text, const ln_metrics *m) {
    ln_str *s = &c->x->out;
    ranked *all = ln_arena_alloc(&c->arena, c->n * sizeof *all);
    s->failed |= !all;
    for (size_t i = 0; all && i < c->n; i++) all[i] = (ranked){c->scores[i], i};
    if (all) qsort(all, c->n, sizeof *all, by_score);
    put_head(c, "rerank", false);
    ln_str_adds(s, ",\"results\":[");
    for (size_t i = 0; all && i < LN_MIN(c->n, most); i++) {
        ln_str_adds(s, i ? ",{" : "{");
        put_uint(s, "index", all[i].index);
        put_real(s, "relevance_score", all[i].score);
        if (with_text) put_object(s, "document");
        if (with_text) put_text(s, "text", documents[all[i].index]);
        ln_str_adds(s, with_text ? "}}" : "}");
    }
    put_usage(c->x, m);
}

static ln_status rerank_all(call *c, const json_t *body) {
    static const char *const known[] = {"model",       "query", "documents", "top_n", "return_documents",
                                        "instruction", NULL};
    static const char *const none[] = {NULL};
    const char **documents, *query = NULL, *instruction = NULL;
    char found[80];
    size_t n, most = SIZE_MAX;
    ln_metrics m = {0};
    const json_t *top = json_object_get(body, "top_n"), *text = json_object_get(body, "return_documents");
    LN_TRY(check_model(c, body));
    LN_TRY(text_field(c, body, "query", &query));
    if (!query) return wire_refuse(&c->x->why, "query", "is required");
    LN_TRY(texts_of(c, json_object_get(body, "documents"), "documents", MOST_INPUTS, &documents, &n));
    LN_TRY(text_field(c, body, "instruction", &instruction));
    if (top && !json_is_null(top)) {
        int64_t n_top = 0;
        if (!body_integer(top, &n_top) || n_top < 1)
            return wire_refuse(&c->x->why, "top_n", "expected an integer of at least 1, found %s",
                               ln_json_text(top, found));
        most = (size_t)n_top;
    }
    if (text && !json_is_null(text) && !json_is_boolean(text))
        return wire_refuse(&c->x->why, "return_documents", "expected true or false, found %s",
                           ln_json_text(text, found));
    dialect_others(body, none, known);
    LN_TRY(open_prompts(c, n));
    for (size_t i = 0; i < n; i++) LN_TRY(add_pair(c, i, instruction, query, documents[i]));
    LN_TRY(run_pairs(c, &m));
    put_ranking(c, documents, most, json_is_true(text), &m);
    return LN_OK;
}

/* ---- the worker ---- */

static void call_with(work *w, ln_status (*fn)(call *c, const json_t *body)) {
    request_context *x = (request_context *)(void *)w;
    call c = {.x = x};
    json_t *body = NULL;
    if (atomic_load(&x->left)) return;
    if (request_read_object(x, &body) == LN_OK) (void)fn(&c, body);
    x->out.failed |= c.out.failed;
    ln_str_free(&c.out);
    ln_arena_free(&c.arena);
    json_decref(body);
}

static void classify(work *w) { call_with(w, classify_all); }
static void score(work *w) { call_with(w, score_all); }
static void rerank(work *w) { call_with(w, rerank_all); }

void handle_classify(request_context *x) { request_work(x, &x->s->calling, classify, request_answer); }
void handle_score(request_context *x) { request_work(x, &x->s->calling, score, request_answer); }
void handle_rerank(request_context *x) { request_work(x, &x->s->calling, rerank, request_answer); }
