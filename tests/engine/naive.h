/* The naive engine: what a request must give, computed in the plainest way that there is.
 *
 * One request alone, one row a step, one thread, keys and values of the whole text in one block of a fresh
 * sequence, nothing reused: on the reference device, or, if products have an order of their own (AMX, a
 * GPU), on that device. For tests only.
 *
 * A `world` is a model in one of the numerics modes with its naive engine and a set of questions, numbered
 * from 0, which are made from their numbers alone. Their answers are computed when they are first needed and
 * kept, so that thousands of schedules ask the same questions again. */
#ifndef LN_TESTS_NAIVE_H
#define LN_TESTS_NAIVE_H

#include "../common.h"
#include "engine/logprob.h"
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

enum {
    NAIVE_CTX = 256,
    NAIVE_CHUNK = 32,
    NAIVE_STOP_IDS = 12,
    NAIVE_STOPS = 5,
    NAIVE_TRUNKS = 10,
    NAIVE_QUESTIONS = 1000
};

/* What is asked: everything that decides the answer. */
typedef struct question {
    int32_t ids[NAIVE_CTX];
    int64_t n_ids;
    bool generate; /* else the rows of the prompt from first_row on are wanted */
    int64_t first_row;
    ln_sampling how; /* its pointers point to the fields below */
    int32_t stop_ids[NAIVE_STOP_IDS];
    char stops[NAIVE_STOPS][4];
    const char *stop[NAIVE_STOPS];
    ln_logit_bias bias;
    bool logprobs, prompt_logprobs;
    int n_top;
} question;

typedef struct answer {
    ln_ids all;       /* prompt and generated tokens */
    size_t n_visible; /* generated tokens of the result */
    double *logprobs; /* [generated], of every generated token; top [generated, n_top] */
    ln_top *top;
    double *prompt_logprobs; /* [n_ids]; prompt_top [n_ids, n_top] */
    ln_top *prompt_top;
    uint64_t *rows; /* [n_ids] hash of all logits of the row after each token of the prompt */
    ln_str text;
    ln_finish finish;
    int32_t stop_id;
    int stop_text;
} answer;

typedef struct world {
    const char *name;
    ln_package *m;
    ln_numerics numerics;
    int64_t n_ctx, V;
    ln_eng *naive;
    ln_sampler *sampler;
    question *questions[NAIVE_QUESTIONS];
    answer *answers[NAIVE_QUESTIONS];
} world;

/* A hash of the bits of a row of logits. */
static inline uint64_t row_hash(const float *row, int64_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < n; i++) {
        h = (h ^ ln_f32_bits(row[i])) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return h;
}

static inline void world_open(world *w, const char *name, ln_package *m, ln_numerics numerics) {
    *w = (world){.name = name, .m = m, .numerics = numerics, .V = m->spec.V};
    ln_run_options r = test_options(m, LN_DEVICE_AUTO, 1, 1, 1);
    w->n_ctx = LN_MIN(m->spec.n_ctx, (int64_t)NAIVE_CTX);
    r.numerics = numerics;
    r.n_ctx = r.n_prefault = w->n_ctx;
    /* One page holds the whole text, except with recurrent state, whose bits depend on the length of
     * pages. */
    r.page_len = m->spec.n_recur ? NAIVE_CHUNK : NAIVE_CTX;
    OK(ln_eng_open_with(&w->naive, m, &r, err));
    if (test_device() == LN_DEVICE_CPU && strcmp(w->naive->run->info.isa, "amx") != 0) {
        ln_eng_close(&w->naive);
        r.device = LN_DEVICE_REF;
        OK(ln_eng_open_with(&w->naive, m, &r, err));
    }
    OK(ln_sampler_open(&w->sampler, w->V, err));
}

static inline void answer_free(answer *a) {
    if (!a) return;
    ln_ids_free(&a->all);
    ln_str_free(&a->text);
    free(a->logprobs), free(a->top), free(a->prompt_logprobs), free(a->prompt_top), free(a->rows);
    free(a);
}

static inline void world_close(world *w) {
    for (int i = 0; i < NAIVE_QUESTIONS; i++) {
        free(w->questions[i]);
        answer_free(w->answers[i]);
    }
    ln_sampler_close(&w->sampler);
    ln_eng_close(&w->naive);
}

/* ---- answers ---- */

/* One row of the naive engine: the logits after token `id`. */
static inline void naive_row(world *w, ln_seq *s, int32_t id, float *logits) {
    const ln_batch_item item = {s, &id, 1, LN_LOGITS_LAST};
    OK(ln_eng_step(w->naive, &item, 1, err));
    OK(ln_run_logits(w->naive->run, 0, logits, err));
}

/* Chooses the token after a->all; returns whether the answer ends with it. */
static inline bool naive_token(world *w, const question *q, answer *a, ln_answer *text, float *logits) {
    const size_t i = a->all.n - (size_t)q->n_ids, n_top = (size_t)q->n_top;
    float *changed = malloc((size_t)w->V * sizeof *changed);
    double lse;
    int32_t id;
    OK(ln_log_sum(logits, w->V, &lse, err));
    memcpy(changed, logits, (size_t)w->V * sizeof *changed);
    OK(ln_sample(w->sampler, changed, &q->how, q->how.seed, a->all.data, (int64_t)a->all.n, (int64_t)i,
                 text->end_ids, text->n_end_ids, &id, err));
    free(changed);
    if (ln_answer_ends_at(text, id, &a->stop_text)) {
        a->stop_id = id;
        a->finish = LN_FINISH_STOP;
        return true;
    }
    a->logprobs = realloc(a->logprobs, (i + 1) * sizeof *a->logprobs);
    a->top = realloc(a->top, (i + 1) * (n_top + 1) * sizeof *a->top);
    a->logprobs[i] = (double)logits[id] - lse;
    ln_find_top(logits, w->V, lse, a->top + i * n_top, n_top);
    OK(ln_ids_add(&a->all, id, err));
    OK(ln_answer_push(text, id, err));
    ln_str_add(&a->text, text->text.data, text->text.len);
    a->finish = text->stop.hit ? LN_FINISH_STOP : LN_FINISH_LENGTH;
    return text->stop.hit || (int64_t)i + 1 >= q->how.n_max || (int64_t)a->all.n > w->n_ctx;
}

static inline void naive_end(const question *q, answer *a, ln_answer *text) {
    OK(ln_answer_flush(text, err));
    ln_str_add(&a->text, text->text.data, text->text.len);
    OK(ln_answer_visible(text, a->all.data + q->n_ids, &a->n_visible, err));
    if (!text->stop.hit) return;
    a->finish = LN_FINISH_STOP;
    a->stop_text = (int)text->stop.which;
}

static inline answer *naive_answer(world *w, const question *q) {
    answer *a = calloc(1, sizeof *a);
    float *logits = malloc((size_t)w->V * sizeof *logits);
    const size_t n = (size_t)q->n_ids, n_top = (size_t)q->n_top;
    ln_answer text = {0};
    ln_seq *s = test_seq(w->naive, q->n_ids, w->n_ctx);
    a->stop_id = a->stop_text = -1;
    a->finish = LN_FINISH_LENGTH;
    a->rows = calloc(n, sizeof *a->rows);
    a->prompt_logprobs = calloc(n, sizeof *a->prompt_logprobs);
    a->prompt_top = calloc(n * n_top + 1, sizeof *a->prompt_top);
    for (size_t i = 0; i < n; i++) OK(ln_ids_add(&a->all, q->ids[i], err));
    OK(ln_answer_open(&text, w->m, &q->how, NULL, false, q->ids, n, err));
    for (size_t t = 0; t < a->all.n; t++) {
        naive_row(w, s, a->all.data[t], logits);
        if (t < n) a->rows[t] = row_hash(logits, w->V);
        if (t + 1 < n) {
            double lse;
            OK(ln_log_sum(logits, w->V, &lse, err));
            a->prompt_logprobs[t + 1] = (double)logits[q->ids[t + 1]] - lse;
            ln_find_top(logits, w->V, lse, a->prompt_top + (t + 1) * n_top, n_top);
        } else if (!q->generate || q->how.n_max == 0 || naive_token(w, q, a, &text, logits)) {
            break;
        }
    }
    naive_end(q, a, &text);
    ln_answer_close(&text);
    ln_seq_close(w->naive, &s);
    free(logits);
    return a;
}

/* The text of the first n generated tokens, if the request was cancelled after them. */
static inline void naive_text(const world *w, const question *q, const answer *a, size_t n, ln_str *out) {
    ln_answer text = {0};
    out->len = 0;
    OK(ln_answer_open(&text, w->m, &q->how, NULL, false, q->ids, (size_t)q->n_ids, err));
    for (size_t i = 0; i <= n; i++) {
        if (i < n) OK(ln_answer_push(&text, a->all.data[(size_t)q->n_ids + i], err));
        else OK(ln_answer_flush(&text, err));
        ln_str_add(out, text.text.data, text.text.len);
    }
    ln_answer_close(&text);
}

/* ---- questions ---- */

static inline const question *world_question(world *w, int i);
static inline const answer *world_answer(world *w, int i) {
    if (!w->answers[i]) w->answers[i] = naive_answer(w, world_question(w, i));
    return w->answers[i];
}

static inline int64_t draw_below(uint64_t *seed, int64_t n) {
    return (int64_t)(test_random(seed) % (uint64_t)n);
}

static inline void add_ids(question *q, const world *w, uint64_t seed, int64_t n) {
    while (n-- > 0 && q->n_ids < w->n_ctx) q->ids[q->n_ids++] = (int32_t)draw_below(&seed, w->V);
}

/* Prompts of questions i: a trunk's beginning of random length and a tail of their own; a text of their own;
 * the next turn after the answer to an earlier question; an earlier prompt, or its beginning. */
static inline void make_prompt(world *w, int i, question *q, uint64_t *seed) {
    const int64_t kind = i == 0 ? 0 : draw_below(seed, 10), size = draw_below(seed, 10);
    const int64_t most = size == 0  ? 1
                         : size < 6 ? LN_MIN(40, w->n_ctx)
                         : size < 9 ? LN_MIN(110, w->n_ctx)
                                    : w->n_ctx;
    const int64_t n = 1 + draw_below(seed, most);
    if (kind < 5) {
        add_ids(q, w, 1000 + (uint64_t)draw_below(seed, NAIVE_TRUNKS), n);
        add_ids(q, w, (uint64_t)i * 7919 + 1, draw_below(seed, 20));
    } else if (kind < 6) {
        add_ids(q, w, (uint64_t)i * 7919 + 2, n);
    } else {
        const int before = (int)draw_below(seed, i);
        const question *p = world_question(w, before);
        q->n_ids = kind < 8 ? 1 + draw_below(seed, p->n_ids) : p->n_ids;
        memcpy(q->ids, p->ids, (size_t)q->n_ids * sizeof *q->ids);
        if (kind < 9) return;
        const answer *a = world_answer(w, before);
        q->n_ids = LN_MIN((int64_t)a->all.n, w->n_ctx);
        memcpy(q->ids, a->all.data, (size_t)q->n_ids * sizeof *q->ids);
        add_ids(q, w, (uint64_t)i * 7919 + 3, 1 + draw_below(seed, 12));
    }
}

static inline void make_stops(world *w, question *q, uint64_t *seed) {
    if (draw_below(seed, 3) == 0) {
        q->how.n_stop_ids = 1 + (size_t)draw_below(seed, NAIVE_STOP_IDS);
        for (size_t i = 0; i < q->how.n_stop_ids; i++) q->stop_ids[i] = (int32_t)draw_below(seed, w->V);
    }
    if (draw_below(seed, 3) == 0) {
        q->how.n_stop = 1 + (size_t)draw_below(seed, NAIVE_STOPS);
        for (size_t i = 0; i < q->how.n_stop; i++) {
            q->stops[i][0] = (char)('!' + draw_below(seed, 90));
            if (draw_below(seed, 4) == 0) q->stops[i][1] = (char)('!' + draw_below(seed, 90));
            q->stop[i] = q->stops[i];
        }
    }
    q->how.stop_ids = q->stop_ids;
    q->how.stop = q->stop;
}

static inline void make_sampling(world *w, question *q, uint64_t *seed) {
    ln_sampling *h = &q->how;
    const int64_t length = draw_below(seed, 20);
    *h = (ln_sampling){.top_p = 1, .repeat_penalty = 1, .has_seed = true};
    h->seed = (uint64_t)draw_below(seed, 5);
    h->n_max =
        length == 0 && q->n_ids > w->n_ctx - 60 ? INT64_MAX : 1 + draw_below(seed, length < 3 ? 50 : 16);
    if (draw_below(seed, 2)) h->temperature = 0.2 + (double)draw_below(seed, 20) / 10;
    if (draw_below(seed, 4) == 0) h->top_k = 1 + (int)draw_below(seed, 40);
    if (draw_below(seed, 4) == 0) h->top_p = 0.3 + (double)draw_below(seed, 7) / 10;
    if (draw_below(seed, 6) == 0) h->min_p = 0.05;
    if (draw_below(seed, 3) == 0) {
        h->repeat_penalty = 1.3;
        h->repeat_last = (int)draw_below(seed, 3) * 20 - 1;
    }
    if (draw_below(seed, 4) == 0) h->presence_penalty = 0.7;
    if (draw_below(seed, 4) == 0) h->frequency_penalty = -0.4;
    if (draw_below(seed, 6) == 0) h->no_repeat_ngram = 2;
    if (draw_below(seed, 4) == 0) {
        q->bias = (ln_logit_bias){(int32_t)draw_below(seed, w->V), 2};
        h->bias = &q->bias;
        h->n_bias = 1;
    }
    h->ignore_eos = draw_below(seed, 2) == 0;
    make_stops(w, q, seed);
    q->logprobs = draw_below(seed, 3) > 0;
    if (q->logprobs) q->n_top = (int)draw_below(seed, 6);
    q->prompt_logprobs = q->logprobs && draw_below(seed, 6) == 0;
    if (q->prompt_logprobs && draw_below(seed, 3) == 0) h->n_max = 0;
}

static inline const question *world_question(world *w, int i) {
    uint64_t seed = (uint64_t)i * 104729 + 17;
    if (w->questions[i]) return w->questions[i];
    question *q = calloc(1, sizeof *q);
    for (int k = 0; k < 8; k++) (void)test_random(&seed);
    make_prompt(w, i, q, &seed);
    make_sampling(w, q, &seed);
    q->generate = draw_below(&seed, 6) > 0;
    q->first_row = draw_below(&seed, 2) ? 0 : draw_below(&seed, q->n_ids);
    return w->questions[i] = q;
}

#endif
