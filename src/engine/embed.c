/* Embeds prompts: one request for each, whose hidden states after the final norm are read inside the steps.
 *
 * Last: the state of the last row; the rows before it may come from the prefix cache. Mean: all rows are
 * computed and added in double precision in their order, so that chunks and neighbours change no bit. Steps
 * that only embed run a program without the head, which the first call prepares. Two prompts for each
 * sequence of the engine are under way; results go to the callback in the order of the prompts. */
#include "embed.h"

#include "engine.h"
#include "memory_plan.h"
#include "scheduler.h"
#include "text_calls.h"

#include <math.h>
#include <string.h>

enum { PLACES_PER_SEQUENCE = 2 };

/* A prompt under way. */
typedef struct place {
    const struct embedder *c;
    ln_req *req; /* NULL: the prompt was refused */
    ln_ids ids;
    float *row;  /* [D] the state that was read last */
    double *sum; /* [D] */
    uint64_t seen;
    ln_error error; /* of this prompt; code LN_OK: none */
} place;

typedef struct embedder {
    ln_eng *e;
    const ln_prompt *prompts;
    size_t n, n_places;
    ln_pooling pooling; /* LAST or MEAN */
    int64_t n_values;
    ln_embed_fn *fn;
    void *user;
    place *places;          /* a ring: prompt i is in places[i % n_places] */
    size_t begun, reported; /* prompts */
    float *values;          /* [D] the embedding that is handed over */
    int64_t n_tokens, n_cached;
    double caller; /* seconds in callbacks */
    bool stopped;  /* the callback asked to stop */
} embedder;

/* Called inside a step, with the rows of a prompt in order. */
static ln_status on_row(void *user, int64_t t, int64_t row, const struct ln_scratch *x, ln_error *err) {
    place *p = user;
    const int64_t D = p->c->e->run->spec->D;
    (void)t, (void)x;
    LN_TRY(ln_run_hidden(p->c->e->run, row, p->row, err));
    for (int64_t i = 0; i < D; i++) p->sum[i] += (double)p->row[i];
    return LN_OK;
}

/* Takes an error: it is that of its prompt, or the whole call's. */
static ln_status take_error(const embedder *c, place *p, const ln_error *why, ln_error *err) {
    if (!ln_eng_error_of_text(c->e, why->code, (int64_t)p->ids.n))
        return ln_fail(err, why->code, "%s", why->message);
    p->error = *why;
    return LN_OK;
}

/* The ids of a prompt: a text goes without a template, with the special tokens that the tokenizer adds. */
static ln_status encode(const embedder *c, place *p, const ln_prompt *given, ln_error *err) {
    ln_prompt prompt = *given;
    if (prompt.text && prompt.tmpl == LN_TEMPLATE_AUTO) prompt.tmpl = LN_TEMPLATE_RAW;
    p->ids.n = 0;
    LN_TRY(ln_package_encode_prompt(c->e->model, &prompt, &p->ids, err));
    if (p->ids.n == 0)
        return ln_fail(err, LN_EUSAGE,
                       "the text is empty and this model adds no token of its own; give some text");
    return ln_eng_check_ids(c->e, p->ids.data, p->ids.n, err);
}

static ln_status open_request(const embedder *c, place *p, const ln_prompt *given, ln_error *err) {
    LN_TRY(encode(c, p, given, err));
    const int64_t n = (int64_t)p->ids.n;
    const ln_req_options o = {.ids = p->ids.data,
                              .n_ids = n,
                              .on_row = on_row,
                              .row_user = p,
                              .no_logits = true,
                              .first_row = c->pooling == LN_POOLING_LAST ? n - 1 : 0,
                              .adapter_slot = ln_prompt_adapter(given)};
    return ln_req_new(&p->req, c->e, &o, err);
}

static ln_status begin(embedder *c, ln_error *err) {
    place *p = &c->places[c->begun % c->n_places];
    ln_error why = {0};
    p->error.code = LN_OK;
    p->seen = 0;
    memset(p->sum, 0, (size_t)c->e->run->spec->D * sizeof *p->sum);
    const ln_status st = open_request(c, p, &c->prompts[c->begun], &why);
    c->begun++;
    return st == LN_OK ? LN_OK : take_error(c, p, &why, err);
}

/* Ends the request of a place. */
static ln_status end(embedder *c, place *p, ln_error *err) {
    ln_error why = {0};
    int64_t n_cached;
    const ln_status st = ln_eng_end_request(&p->req, &n_cached, &why);
    c->n_tokens += (int64_t)p->ids.n;
    c->n_cached += n_cached;
    return st == LN_OK ? LN_OK : take_error(c, p, &why, err);
}

/* Computes the embedding: the first n_values of the pooled state, with length 1. */
static ln_status normalise(const embedder *c, const place *p, ln_error *err) {
    double squares = 0;
    for (int64_t i = 0; i < c->n_values; i++) squares += p->sum[i] * p->sum[i];
    const double length = sqrt(squares);
    if (!(length > 0) || !isfinite(length))
        return ln_fail(err, LN_ENUMERIC,
                       "the hidden states of this text are %s; an embedding has no direction",
                       squares == 0 ? "all 0" : "not finite");
    for (int64_t i = 0; i < c->n_values; i++) c->values[i] = (float)(p->sum[i] / length);
    return LN_OK;
}

static ln_status report(embedder *c, place *p, ln_error *err) {
    ln_embedding out = {.size = sizeof out, .index = c->reported, .n_tokens = (int64_t)p->ids.n};
    ln_error why = {0};
    if (p->error.code == LN_OK && normalise(c, p, &why) != LN_OK) LN_TRY(take_error(c, p, &why, err));
    out.status = p->error.code;
    if (out.status == LN_OK) out.values = c->values, out.n_values = c->n_values;
    else out.error = p->error.message;
    const double start = ln_now();
    const ln_status said = LN_CALLBACK(c->fn(c->user, &out, err));
    c->caller += ln_now() - start;
    c->reported++;
    c->stopped = said == LN_ECANCELLED;
    return c->stopped ? LN_OK : said;
}

static ln_status embed_all(embedder *c, ln_error *err) {
    while (c->reported < c->n && !c->stopped) {
        if (ln_eng_cancelled(c->e)) return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
        while (c->begun < c->n && c->begun - c->reported < c->n_places) LN_TRY(begin(c, err));
        place *p = &c->places[c->reported % c->n_places];
        if (p->req && ln_req_look(p->req).state != LN_REQ_DONE) {
            p->seen = ln_req_wait_change(p->req, p->seen, -1); /* runs a step where no other thread does */
            continue;
        }
        if (p->req) LN_TRY(end(c, p, err));
        LN_TRY(report(c, p, err));
    }
    return LN_OK;
}

static ln_status allocate(embedder *c, ln_error *err) {
    const size_t D = (size_t)c->e->run->spec->D;
    c->n_places = LN_MIN(PLACES_PER_SEQUENCE * (size_t)c->e->run->opt.n_seqs, c->n + (c->n == 0));
    c->places = ln_zalloc(c->n_places, sizeof *c->places);
    c->values = ln_zalloc(D, sizeof *c->values);
    if (!c->places || !c->values) return LN_OOM(err, "what embedding needs");
    for (size_t i = 0; i < c->n_places; i++) {
        place *p = &c->places[i];
        p->c = c;
        p->row = ln_zalloc(D, sizeof *p->row);
        p->sum = ln_zalloc(D, sizeof *p->sum);
        if (!p->row || !p->sum) return LN_OOM(err, "what embedding needs");
    }
    return LN_OK;
}

static void release(embedder *c) {
    for (size_t i = 0; c->places && i < c->n_places; i++)
        if (c->places[i].req) ln_req_cancel(c->places[i].req);
    for (size_t i = 0; c->places && i < c->n_places; i++) {
        place *p = &c->places[i];
        ln_req_free(&p->req);
        ln_ids_free(&p->ids);
        ln_free(p->row);
        ln_free(p->sum);
    }
    ln_free(c->places);
    ln_free(c->values);
}

/* The pooling that is asked for, or that the model's directory names, or that of the last token. */
static ln_status choose_pooling(const ln_eng *e, ln_pooling asked, ln_pooling *out, ln_error *err) {
    const ln_package *m = e->model;
    *out = asked != LN_POOLING_AUTO ? asked : m->pooling != LN_POOLING_AUTO ? m->pooling : LN_POOLING_LAST;
    if (asked != LN_POOLING_AUTO || m->pooling_error.code == LN_OK) return LN_OK;
    return ln_fail(err, m->pooling_error.code, "%s", m->pooling_error.message);
}

/* Prepares the program without the head at the first call. */
static ln_status add_headless(ln_eng *e, ln_error *err) {
    const char *limit;
    if (atomic_load(&e->embeds)) return LN_OK;
    LN_TRY(ln_driver_pause(e->sched, err));
    const ln_status st = ln_run_add_headless(e->run, ln_memory_room(e->memory_bytes, &limit), err);
    if (st == LN_OK) atomic_store(&e->embeds, true);
    ln_driver_resume(e->sched);
    return st;
}

ln_status ln_eng_embed(ln_eng *e, const ln_prompt *prompts, size_t n, const ln_embed_options *opt,
                       ln_embed_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    embedder c = {.e = e, .prompts = prompts, .n = n, .fn = fn, .user = user};
    const int64_t D = e->run->spec->D;
    const double start = ln_now();
    ln_status st = LN_OK;
    c.n_values = opt->dimensions ? opt->dimensions : D;
    if (c.n_values > D)
        return ln_fail(err, LN_EUSAGE, "ln_embed_options.dimensions: expected at most %lld, found %lld",
                       (long long)D, (long long)c.n_values);
    LN_GO(choose_pooling(e, opt->pooling, &c.pooling, err));
    LN_GO(add_headless(e, err));
    LN_GO(allocate(&c, err));
    LN_GO(embed_all(&c, err));
out:
    release(&c);
    if (metrics) ln_eng_fill_metrics(e, c.n_tokens, c.n_cached, ln_now() - start - c.caller, metrics);
    return st;
}
