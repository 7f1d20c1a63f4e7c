/* Embeds prompts: one request for each, whose hidden states after the final norm are read inside the steps.
 *
 * If only the last row is pooled, the rows before it may come from the prefix cache. Otherwise all rows are
 * computed and added in their order (embed_pool.c), so that chunks and neighbours change no bit. Steps that
 * only embed run a program without the head, which the first call prepares. Two prompts for each sequence of
 * the engine are under way; results go to the callback in the order of the prompts. */
#include "embed.h"
#include "../base/text_memory.h"

#include "embed_pool.h"

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
    float *row; /* [D] the state that was read last */
    embed_pool pool;
    uint64_t seen;
    ln_error error; /* of this prompt; code LN_OK: none */
} place;

typedef struct embedder {
    ln_eng *e;
    const ln_prompt *prompts;
    size_t n, n_places;
    const ln_emb_files *files;
    const ln_pooling *ways; /* [n_ways] of pooling */
    size_t n_ways;
    const char *prompt; /* [prompt_bytes] before each text */
    size_t prompt_bytes;
    bool prompt_is_asked;        /* by the options, not by the model's files */
    size_t n_long, n_unprompted; /* texts that were cut; inputs before which the default prompt cannot go */
    int64_t n_values;            /* of an embedding */
    bool normalises;
    ln_embed_fn *fn;
    void *user;
    place *places;          /* a ring: prompt i is in places[i % n_places] */
    size_t begun, reported; /* prompts */
    float *values;          /* [n_values] the embedding that is handed over */
    int64_t n_tokens, n_cached;
    double caller; /* seconds in callbacks */
    bool stopped;  /* the callback asked to stop */
} embedder;

/* Called inside a step, with the rows of a prompt in order. */
static ln_status on_row(void *user, int64_t t, int64_t row, const struct ln_scratch *x, ln_error *err) {
    place *p = user;
    (void)x;
    LN_TRY(ln_run_hidden(p->c->e->run, row, p->row, err));
    embed_pool_add(&p->pool, t, p->row);
    return LN_OK;
}

/* Takes an error: it is that of its prompt, or the whole call's. */
static ln_status take_error(const embedder *c, place *p, const ln_error *why, ln_error *err) {
    if (!ln_eng_error_of_text(c->e, why->code, (int64_t)p->ids.n))
        return ln_fail(err, why->code, "%s", why->message);
    p->error = *why;
    return LN_OK;
}

/* Encodes a text: without a template, with the prompt before it and the special tokens that the tokenizer
 * adds. *n_prompt: how many of the tokens belong to the prompt and are not pooled. */
static ln_status encode_text(embedder *c, place *p, const ln_prompt *given, int64_t *n_prompt,
                             ln_error *err) {
    const ln_embedded_text text = {given->text, c->prompt, given->text_bytes, c->prompt_bytes};
    int64_t n_cut;
    ln_text_work work;
    ln_text_begin(&work);
    const ln_status st = ln_package_encode_embedded(c->e->model, &text, &p->ids, n_prompt, &n_cut, err);
    LN_TRY(ln_text_end(&work, st, err));
    c->n_long += n_cut > 0;
    return LN_OK;
}

static ln_status encode(embedder *c, place *p, const ln_prompt *given, int64_t *n_prompt, ln_error *err) {
    *n_prompt = 0;
    p->ids.n = 0;
    p->ids.most = 0; /* a text that is too long is cut */
    const bool raw = given->tmpl == LN_TEMPLATE_AUTO || given->tmpl == LN_TEMPLATE_RAW;
    const bool alone = !given->ids && !given->messages && !given->request && !given->system;
    if (given->text && raw && alone) {
        LN_TRY(encode_text(c, p, given, n_prompt, err));
    } else {
        if (c->prompt_bytes > 0 && c->prompt_is_asked)
            return ln_fail(err, LN_EUSAGE,
                           "ln_embed_options.prompt_name: expected texts, before which the prompt goes, "
                           "found "
                           "token ids or a conversation");
        c->n_unprompted += c->prompt_bytes > 0;
        LN_TRY(ln_eng_encode(c->e, given, &p->ids, err));
    }
    if (p->ids.n == 0)
        return ln_fail(err, LN_EUSAGE,
                       "the text is empty and this model adds no token of its own; give some text");
    return ln_eng_check_ids(c->e, p->ids.data, p->ids.n, err);
}

static ln_status open_request(embedder *c, place *p, const ln_prompt *given, ln_error *err) {
    int64_t n_prompt;
    LN_TRY(encode(c, p, given, &n_prompt, err));
    const int64_t n = (int64_t)p->ids.n;
    embed_pool_begin(&p->pool, n_prompt);
    const ln_req_options o = {.ids = p->ids.data,
                              .n_ids = n,
                              .on_row = on_row,
                              .row_user = p,
                              .no_logits = true,
                              .first_row = embed_pool_first(&p->pool, n),
                              .adapter_slot = ln_prompt_adapter(given)};
    return ln_req_new(&p->req, c->e, &o, err);
}

static ln_status begin(embedder *c, ln_error *err) {
    place *p = &c->places[c->begun % c->n_places];
    ln_error why = {0};
    p->error.code = LN_OK;
    p->seen = 0;
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

/* Computes the embedding: the first n_values of what pooling and modules give, with length 1 unless the
 * length is kept. */
static ln_status compute(const embedder *c, place *p, ln_error *err) {
    double squares = 0;
    LN_TRY(embed_pool_finish(&p->pool, c->files, err));
    const double *x = p->pool.values;
    for (int64_t i = 0; i < c->n_values; i++) squares += x[i] * x[i];
    const double length = sqrt(squares);
    if (!isfinite(length) || (c->normalises && !(length > 0)))
        return ln_fail(err, LN_ENUMERIC,
                       "the hidden states of this text are %s; an embedding has no direction",
                       squares == 0 ? "all 0" : "not finite");
    for (int64_t i = 0; i < c->n_values; i++) c->values[i] = (float)(c->normalises ? x[i] / length : x[i]);
    return LN_OK;
}

static ln_status report(embedder *c, place *p, ln_error *err) {
    ln_embedding out = {.size = sizeof out, .index = c->reported, .n_tokens = (int64_t)p->ids.n};
    ln_error why = {0};
    if (p->error.code == LN_OK && compute(c, p, &why) != LN_OK) LN_TRY(take_error(c, p, &why, err));
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
    const int64_t D = c->e->run->spec->D;
    c->n_places = LN_MIN(PLACES_PER_SEQUENCE * (size_t)c->e->run->opt.n_seqs, c->n + (c->n == 0));
    c->places = ln_zalloc(c->n_places, sizeof *c->places);
    c->values = ln_zalloc((size_t)c->n_values, sizeof *c->values);
    if (!c->places || !c->values) return LN_OOM(err, "what embedding needs");
    for (size_t i = 0; i < c->n_places; i++) {
        place *p = &c->places[i];
        p->c = c;
        p->row = ln_zalloc((size_t)D, sizeof *p->row);
        if (!p->row) return LN_OOM(err, "what embedding needs");
        LN_TRY(embed_pool_open(&p->pool, c->files, c->ways, c->n_ways, D, err));
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
        embed_pool_close(&p->pool);
    }
    ln_free(c->places);
    ln_free(c->values);
}

/* Stores what the options ask for, and where they are silent the model's files. */
static ln_status choose(embedder *c, const ln_embed_options *o, ln_error *err) {
    const ln_emb_files *f = c->files;
    const char *prompt = o->prompt_name ? o->prompt_name : f->default_prompt;
    ln_error why = {0};
    c->ways = o->pooling == LN_POOLING_AUTO ? f->pooling : &o->pooling;
    c->n_ways = o->pooling == LN_POOLING_AUTO ? f->n_pooling : 1;
    c->normalises =
        o->normalize == LN_UNIT_LENGTH_YES || (o->normalize == LN_UNIT_LENGTH_AUTO && !f->keep_length);
    c->prompt_is_asked = o->prompt_name != NULL;
    if (prompt && ln_emb_prompt(f, prompt, &c->prompt, &c->prompt_bytes, &why) != LN_OK)
        return ln_fail(err, LN_EUSAGE, "ln_embed_options.prompt_name: %s", why.message);
    int64_t most = (int64_t)c->n_ways * c->e->run->spec->D;
    if (f->n_modules > 0) most = f->n_values;
    c->n_values = o->dimensions ? o->dimensions : f->dimensions ? LN_MIN(f->dimensions, most) : most;
    if (c->n_values <= most) return LN_OK;
    return ln_fail(err, LN_EUSAGE, "ln_embed_options.dimensions: expected at most %lld, found %lld",
                   (long long)most, (long long)c->n_values);
}

/* The files of modules must not have changed while they were read. */
static ln_status check_files(const embedder *c, ln_error *err) {
    for (size_t i = 0; i < c->files->n_modules; i++)
        LN_TRY(ln_tensors_check(&c->files->modules[i].tensors, true, err));
    return LN_OK;
}

static void say_what_was_not_applied(const embedder *c) {
    if (c->n_long > 0)
        ln_log(LN_LOG_WARN,
               "%zu of %zu texts to embed were cut to %lld tokens, the most that the model's files "
               "(max_seq_length, model_max_length) allow",
               c->n_long, c->n, (long long)c->files->max_tokens);
    if (c->n_unprompted > 0)
        ln_log(LN_LOG_WARN,
               "the default prompt of config_sentence_transformers.json goes before texts only: %zu of %zu "
               "inputs to embed were token ids or conversations",
               c->n_unprompted, c->n);
}

/* Prepares the program without the head at the first call. */
static ln_status add_headless(ln_eng *e, ln_error *err) {
    const char *limit;
    if (atomic_load(&e->embeds)) return LN_OK;
    LN_TRY(ln_driver_pause(e->sched, err));
    const ln_status st = ln_run_add_hidden(e->run, ln_memory_room(e->memory_bytes, &limit), err);
    if (st == LN_OK) atomic_store(&e->embeds, true);
    ln_driver_resume(e->sched);
    return st;
}

ln_status ln_eng_embed(ln_eng *e, const ln_prompt *prompts, size_t n, const ln_embed_options *opt,
                       ln_embed_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    embedder c = {.e = e, .prompts = prompts, .n = n, .fn = fn, .user = user};
    c.files = &e->model->embedding;
    const ln_error *why = &e->model->embedding_error;
    const double start = ln_now();
    ln_status st = LN_OK;
    if (why->code != LN_OK && opt->pooling == LN_POOLING_AUTO)
        return ln_fail(err, why->code, "%s", why->message);
    if (!atomic_exchange(&e->embed_warned, true)) ln_emb_files_warn(c.files);
    LN_GO(choose(&c, opt, err));
    LN_GO(add_headless(e, err));
    LN_GO(allocate(&c, err));
    LN_GO(embed_all(&c, err));
    LN_GO(check_files(&c, err));
    say_what_was_not_applied(&c);
out:
    release(&c);
    if (metrics) ln_eng_fill_metrics(e, c.n_tokens, c.n_cached, ln_now() - start - c.caller, metrics);
    return st;
}
