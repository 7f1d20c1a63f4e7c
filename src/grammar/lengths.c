/* Texts of an automaton whose length is bounded: a counter of characters in the frames of a matcher takes the
 * place of a state for each length. So that no way leads to a dead end, a table says for each state and
 * number of characters whether a text may end after exactly so many more. */
#include "automaton.h"

#include <string.h>

enum { MOST_BITS = 1 << 23 };

/* Whether the bytes of a class continue a character. A class has bytes of one kind, or such as no text has.
 */
typedef struct kinds {
    bool continues[256];
} kinds;
static kinds kinds_of(const automaton *a) {
    kinds k = {{false}};
    for (unsigned c = 0x80; c < 0xc0; c++) k.continues[a->class_of[c]] = true;
    return k;
}

/* The states after one character of each state, each once: to[at[q] .. at[q + 1]). Inside a character: after
 * its rest. */
typedef struct steps {
    uint32_t *to, *at, *seen;
    size_t cap;
    uint32_t n, stamp;
} steps;

/* Adds the states after the continuation of a character that reaches q; each byte is a call, at most 3. */
static ln_status add_ends(const automaton *a, const kinds *k, steps *s, uint32_t q, ln_error *err) {
    bool inside = false;
    for (uint32_t c = 0; c < a->n_classes; c++) {
        const uint32_t to = a->next[(size_t)q * a->n_classes + c];
        if (to == 0 || !k->continues[c]) continue;
        inside = true;
        LN_TRY(add_ends(a, k, s, to, err));
    }
    if (inside || s->seen[q] == s->stamp) return LN_OK;
    void *p = s->to;
    LN_TRY(ln_grow(&p, &s->cap, s->n + 1, sizeof *s->to, err));
    s->to = p;
    s->seen[q] = s->stamp;
    s->to[s->n++] = q;
    return LN_OK;
}

static ln_status find_steps(const automaton *a, const kinds *k, steps *s, ln_error *err) {
    s->at = ln_zalloc(a->n + 1, sizeof *s->at);
    s->seen = ln_zalloc(a->n + 1, sizeof *s->seen);
    if (!s->at || !s->seen) return LN_OOM(err, "an automaton");
    for (uint32_t q = 0; q < a->n; q++) {
        s->stamp++;
        for (uint32_t c = 0; c < a->n_classes; c++) {
            const uint32_t to = a->next[(size_t)q * a->n_classes + c];
            if (to != 0) LN_TRY(add_ends(a, k, s, to, err));
        }
        s->at[q + 1] = s->n;
    }
    return LN_OK;
}

static bool is_inside(const automaton *a, const kinds *k, uint32_t q) {
    for (uint32_t c = 0; c < a->n_classes; c++)
        if (a->next[(size_t)q * a->n_classes + c] != 0 && k->continues[c]) return true;
    return false;
}

static bool get(const gr_lengths *l, uint32_t q, uint32_t n) {
    return l->ends[q * l->words + n / 64] >> (n % 64) & 1;
}
static void set(const gr_lengths *l, uint32_t q, uint32_t n) {
    l->ends[q * l->words + n / 64] |= UINT64_C(1) << (n % 64);
}

static void fill(const automaton *a, const kinds *k, const steps *s, const gr_lengths *l) {
    for (uint32_t n = 0; n <= l->max; n++)
        for (uint32_t q = 1; q < a->n; q++) {
            bool ends = n == 0 && a->labels[q] != 0;
            for (uint32_t i = s->at[q]; !ends && n > 0 && i < s->at[q + 1]; i++)
                ends = get(l, s->to[i], n - 1);
            if (ends) set(l, q, n);
        }
    for (uint32_t q = 1; q < a->n; q++) { /* a character that has begun is counted already */
        if (!is_inside(a, k, q)) continue;
        memset(l->ends + q * l->words, 0, l->words * sizeof *l->ends);
        for (uint32_t i = s->at[q]; i < s->at[q + 1]; i++)
            for (size_t w = 0; w < l->words; w++)
                l->ends[q * l->words + w] |= l->ends[s->to[i] * l->words + w];
    }
}

/* Whether a text of a length may go on in a state: next[n] is the least number of characters, from n on, to
 * an end of the state. */
static bool may_go_on(const gr_lengths *l, const uint32_t *next, uint32_t length) {
    return next[l->min - LN_MIN(l->min, length)] <= l->max - length;
}

/* Fills l->free. */
static bool find_free(const automaton *a, const kinds *k, const gr_lengths *l) {
    bool *all = ln_alloc(l->max + 1); /* of a length, whether a text may go on in every state */
    uint32_t *next = ln_alloc((l->max + 2) * sizeof *next);
    const bool ok = all && next;
    for (uint32_t n = 0; ok && n <= l->max; n++) all[n] = true;
    for (uint32_t q = 1; ok && q < a->n; q++) {
        if (is_inside(a, k, q)) continue;
        next[l->max + 1] = GR_UNBOUNDED;
        for (uint32_t n = l->max + 1; n-- > 0;) next[n] = get(l, q, n) ? n : next[n + 1];
        for (uint32_t n = 0; n <= l->max; n++) all[n] = all[n] && may_go_on(l, next, n);
    }
    for (uint32_t n = l->max + 1; ok && n-- > 0;) l->free[n] = n < l->max && all[n + 1] ? l->free[n + 1] : n;
    ln_free(all);
    ln_free(next);
    return ok;
}

bool gr_lengths_allow(const gr_lengths *l, uint32_t q, uint32_t n) {
    if (n > l->max) return false;
    for (uint32_t more = l->min - LN_MIN(l->min, n); more <= l->max - n; more++)
        if (get(l, q, more)) return true;
    return false;
}

ln_status automaton_counted(ln_grammar *g, const automaton *a, gr_spelling how, uint32_t min, uint32_t max,
                            gr_node *out, ln_error *err) {
    void *p = g->lengths;
    steps s = {0};
    ln_status st = LN_OK;
    *out = GR_NOTHING;
    if (automaton_is_empty(a)) return LN_OK;
    const uint32_t most = MOST_BITS / a->n;
    if (min > most)
        return ln_fail(err, LN_EINVALID, "texts of at least %u characters are too long beside such a pattern",
                       min);
    const kinds k = kinds_of(a);
    gr_lengths l = {.min = min, .max = LN_MIN(max, most), .states = a->n};
    l.words = l.max / 64 + 1;
    l.ends = ln_zalloc(a->n * l.words, sizeof *l.ends);
    l.free = ln_zalloc(l.max + 1, sizeof *l.free);
    if (!l.ends || !l.free) LN_GO(LN_OOM(err, "an automaton"));
    LN_GO(find_steps(a, &k, &s, err));
    fill(a, &k, &s, &l);
    if (!find_free(a, &k, &l)) LN_GO(LN_OOM(err, "an automaton"));
    if (!gr_lengths_allow(&l, a->start, 0)) goto out; /* no text is of such a length */
    LN_GO(ln_grow(&p, &g->cap_lengths, g->n_lengths + 1, sizeof *g->lengths, err));
    g->lengths = p;
    g->lengths[g->n_lengths++] = l;
    l.ends = NULL, l.free = NULL;
    *out = automaton_expression(g, a, how, NULL, NULL);
    LN_GO(gr_check(g, err));              /* else some rules are missing */
    for (uint32_t q = 1; q < a->n; q++) { /* the rules of the states are one after the other */
        gr_expr *rule = &g->exprs[*out - a->start + q];
        rule->b = q, rule->max = (uint32_t)g->n_lengths;
    }
out:
    ln_free(l.ends);
    ln_free(l.free);
    ln_free(s.to);
    ln_free(s.at);
    ln_free(s.seen);
    return st;
}
