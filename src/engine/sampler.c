/* The sampler. The order is fixed: bias, repeat penalty, presence and frequency penalties, forbidden tokens
 * (forbid.c), argmax when greedy, temperature, top-k, top-p, min-p, sampling. This is transformers'
 * order. So top-p's probabilities are those among the tokens that top-k keeps.
 *
 * Each of the three filters keeps a prefix of the candidates in descending order of their logits (ties: the
 * lowest id first). So no full sort is needed: candidates are popped off a heap until a filter ends them. The
 * token is argmax(logit + Gumbel noise) over the candidates that are left, which is a sample of their softmax
 * (Gumbel 1954); the noise is a pure function of seed, position and id. Penalties are computed in f32, as the
 * reference does; probability masses in double. */
#include "sampler.h"

#include "../base/elementary.h"

#include <math.h>

struct ln_sampler {
    int64_t V;
    int32_t *heap;    /* [V] ids of the candidates, a binary heap */
    uint32_t *counts; /* [V] scratch: occurrences of each id; all zero between calls */
};

uint64_t ln_sampler_bytes(int64_t n_vocab) {
    return (uint64_t)n_vocab * (sizeof(int32_t) + sizeof(uint32_t));
}

ln_status ln_sampler_open(ln_sampler **out, int64_t n_vocab, ln_error *err) {
    ln_sampler *s = ln_zalloc(1, sizeof *s);
    if (s) {
        s->V = n_vocab;
        s->heap = ln_zalloc((size_t)n_vocab, sizeof *s->heap);
        s->counts = ln_zalloc((size_t)n_vocab, sizeof *s->counts);
    }
    *out = s;
    if (s && s->heap && s->counts) return LN_OK;
    ln_sampler_close(out);
    return LN_OOM(err, "the sampler");
}

void ln_sampler_close(ln_sampler **s) {
    if (!*s) return;
    ln_free((*s)->heap);
    ln_free((*s)->counts);
    ln_free(*s);
    *s = NULL;
}

/* Applies the penalty once to each distinct id of the last repeat_last tokens. */
static void repeat_penalty(ln_sampler *s, float *logits, const ln_sampling *how, const int32_t *ids,
                           int64_t n) {
    if (how->repeat_penalty == 1.0 || how->repeat_last == 0) return;
    int64_t from = how->repeat_last < 0 || n < how->repeat_last ? 0 : n - how->repeat_last;
    float p = (float)how->repeat_penalty;
    for (int64_t i = from; i < n; i++) {
        if (s->counts[ids[i]]++) continue;
        float *l = &logits[ids[i]];
        *l = *l > 0 ? *l / p : *l * p;
    }
    for (int64_t i = from; i < n; i++) s->counts[ids[i]] = 0;
}

static void presence_frequency(ln_sampler *s, float *logits, const ln_sampling *how, const int32_t *ids,
                               int64_t n) {
    if (how->presence_penalty == 0 && how->frequency_penalty == 0) return;
    for (int64_t i = 0; i < n; i++) s->counts[ids[i]]++;
    for (int64_t i = 0; i < n; i++) {
        uint32_t k = s->counts[ids[i]];
        if (k == 0) continue;
        logits[ids[i]] -= (float)how->presence_penalty + (float)how->frequency_penalty * (float)k;
        s->counts[ids[i]] = 0;
    }
}

static ln_status argmax(const float *logits, int64_t V, int32_t *out, ln_error *err) {
    const int64_t best = ln_argmax(logits, V);
    if (best < 0) {
        int64_t i = 0;
        while (logits[i] == logits[i]) i++;
        return ln_fail(err, LN_ENUMERIC,
                       "logits: NaN for token %lld; the weights or the arithmetic are broken, try "
                       "ln_options.numerics = LN_EXACT",
                       (long long)i);
    }
    if (logits[best] == -INFINITY)
        return ln_fail(err, LN_ENUMERIC,
                       "logits: minus infinity for every token; all are excluded (by ln_sampling.bias, "
                       "ln_sampling.ignore_eos, ln_sampling.grammar, or suppress_tokens, bad_words_ids, "
                       "no_repeat_ngram_size and the like in generation_config.json), or the weights are "
                       "broken");
    *out = (int32_t)best;
    return LN_OK;
}

/* Whether candidate a comes before b: the larger logit, then the lower id. */
static bool before(const float *l, int32_t a, int32_t b) { return l[a] > l[b] || (l[a] == l[b] && a < b); }

static void sift(const float *l, int32_t *heap, int64_t n, int64_t i) {
    for (;;) {
        int64_t best = i, k = 2 * i + 1;
        if (k < n && before(l, heap[k], heap[best])) best = k;
        if (k + 1 < n && before(l, heap[k + 1], heap[best])) best = k + 1;
        if (best == i) return;
        int32_t t = heap[i];
        heap[i] = heap[best], heap[best] = t;
        i = best;
    }
}

/* Moves the first of the *left candidates to the tail of the heap array and returns it. */
static int32_t pop(const float *logits, int32_t *heap, int64_t *left) {
    const int32_t first = heap[0];
    heap[0] = heap[--*left];
    heap[*left] = first;
    sift(logits, heap, *left, 0);
    return first;
}

/* Applies top-k, top-p and min-p to the n candidates of the heap array. `logits` are relative to the largest,
 * which is 0. Candidates are popped in descending order, all that top-k keeps where top-p needs their sum,
 * else until a filter ends them; so the i-th is heap[n - 1 - i]. Returns how many are kept; *from is where
 * they begin. */
static int64_t filter(ln_sampler *s, const float *logits, const ln_sampling *how, int64_t n, int32_t **from) {
    const bool cut = how->top_k > 0 && how->top_k < n;
    const int64_t most = cut ? how->top_k : n;
    double total = 0, mass = 0;
    int64_t kept = 0, left = n;
    for (int64_t i = n / 2; i-- > 0;) sift(logits, s->heap, n, i);
    if (cut && how->top_p < 1.0)
        while (n - left < most) total += ln_exp64((double)logits[pop(logits, s->heap, &left)]);
    else total = ln_exp_sum(logits, (size_t)s->V); /* excluded tokens add exp(-inf) = 0 */
    for (; kept < most; kept++) {
        const int32_t id = kept < n - left ? s->heap[n - 1 - kept] : pop(logits, s->heap, &left);
        const double p = ln_exp64((double)logits[id]) / total;
        const bool keep = kept == 0 || ((how->top_p >= 1.0 || mass < how->top_p) &&
                                        (how->min_p <= 0 || p * total >= how->min_p));
        if (!keep) break;
        mass += p;
    }
    *from = s->heap + n - kept;
    return kept;
}

ln_status ln_sample(ln_sampler *s, float *logits, const ln_sampling *how, uint64_t seed,
                    const int32_t *history, int64_t n_history, int64_t n_generated, const int32_t *stop_ids,
                    int n_stop_ids, int32_t *out, ln_error *err) {
    for (size_t i = 0; i < how->n_bias; i++) logits[how->bias[i].id] += how->bias[i].bias;
    for (int i = 0; how->ignore_eos && i < n_stop_ids; i++) logits[stop_ids[i]] = -INFINITY;
    repeat_penalty(s, logits, how, history, n_history);
    presence_frequency(s, logits, how, history + n_history - n_generated, n_generated);
    if (ln_forbids(how, n_generated))
        ln_forbid(logits, how, history, n_history, n_generated, stop_ids, n_stop_ids);
    LN_TRY(argmax(logits, s->V, out, err));
    if (how->temperature <= 0 || how->top_k == 1) return LN_OK;
    if (logits[*out] == INFINITY)
        return ln_fail(err, LN_ENUMERIC,
                       "logits: infinite for token %d; the weights or the arithmetic are broken", *out);
    float max = logits[*out], t = (float)how->temperature;
    if (!(t > 0)) return LN_OK; /* the temperature is 0 in f32: greedy */
    int64_t n = 0;
    for (int64_t i = 0; i < s->V; i++) {
        logits[i] = (logits[i] - max) / t; /* the largest becomes 0, so that nothing overflows for small t */
        if (logits[i] != -INFINITY) s->heap[n++] = (int32_t)i;
    }
    int32_t *ids = s->heap;
    if (how->top_p < 1.0 || how->top_k > 0 || how->min_p > 0) n = filter(s, logits, how, n, &ids);
    *out = ids[ln_gumbel_argmax(logits, ids, (size_t)n, seed, (uint64_t)n_history)];
    return LN_OK;
}

/* Whether nothing but stop ids changes the logits before the temperature. */
static bool keeps_logits(const ln_sampling *how, int64_t n_generated) {
    return how->n_bias == 0 && (how->repeat_penalty == 1.0 || how->repeat_last == 0) &&
           how->presence_penalty == 0 && how->frequency_penalty == 0 && !ln_forbids(how, n_generated);
}
bool ln_sample_is_plain(const ln_sampling *how, int64_t n_generated) {
    return (how->temperature <= 0 || how->top_k == 1) && keeps_logits(how, n_generated);
}

uint32_t *ln_sampler_marks(ln_sampler *s) { return s->counts; }
