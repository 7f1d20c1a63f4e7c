/* The changes of logits before the temperature as a list: what ln_sample does to a row itself, in the same
 * order, for a device that has the row. */
#include "sampler.h"

typedef struct edits {
    uint32_t *marks; /* [V] number of a token's edit + 1; 0: it has none */
    ln_logit_edit *out;
    int64_t n;
} edits;

static ln_logit_edit *edit_of(edits *e, int32_t id) {
    if (e->marks[id] == 0) {
        e->out[e->n++] = (ln_logit_edit){.id = id};
        e->marks[id] = (uint32_t)e->n;
    }
    return &e->out[e->marks[id] - 1];
}
static void forbid(void *user, int32_t id) { edit_of(user, id)->what |= LN_EDIT_FORBID; }

static bool has_repeat(const ln_sampling *how) { return how->repeat_penalty != 1.0 && how->repeat_last != 0; }
static bool has_counts(const ln_sampling *how) {
    return how->presence_penalty != 0 || how->frequency_penalty != 0;
}
/* The first token that the repeat penalty looks at. */
static int64_t repeat_from(const ln_sampling *how, int64_t n) {
    return how->repeat_last < 0 || n < how->repeat_last ? 0 : n - how->repeat_last;
}

int64_t ln_edits_most(const ln_sampling *how, int64_t n_vocab, int64_t n_history, int64_t n_generated,
                      int n_stop_ids) {
    int64_t n = (int64_t)how->n_bias;
    if (how->ignore_eos) n += n_stop_ids;
    if (has_repeat(how)) n += n_history - repeat_from(how, n_history);
    if (has_counts(how)) n += n_generated;
    if (ln_forbids(how, n_generated)) {
        n += (int64_t)(how->n_suppress + how->n_bad_words + how->n_begin_suppress + how->n_stop_ids) +
             n_stop_ids;
        if (how->no_repeat_ngram > 0) n += n_history;
    }
    return LN_MIN(n, n_vocab);
}

static void count_tokens(edits *e, const ln_sampling *how, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        ln_logit_edit *x = edit_of(e, ids[i]);
        x->what |= LN_EDIT_SUBTRACT;
        x->subtract++; /* exact: a context has fewer than 2^24 positions */
    }
    for (int64_t i = 0; i < e->n; i++)
        if (e->out[i].what & LN_EDIT_SUBTRACT)
            e->out[i].subtract =
                (float)how->presence_penalty + (float)how->frequency_penalty * e->out[i].subtract;
}

int64_t ln_edits_make(ln_sampler *s, const ln_sampling *how, const int32_t *history, int64_t n_history,
                      int64_t n_generated, const int32_t *stop_ids, int n_stop_ids, ln_logit_edit *out) {
    edits e = {.marks = ln_sampler_marks(s), .out = out};
    bool once = true;
    for (size_t i = 0; i < how->n_bias; i++) {
        ln_logit_edit *x = edit_of(&e, how->bias[i].id);
        once &= x->what == 0;
        x->what = LN_EDIT_ADD, x->add = how->bias[i].bias;
    }
    for (int i = 0; how->ignore_eos && i < n_stop_ids; i++) forbid(&e, stop_ids[i]);
    for (int64_t i = has_repeat(how) ? repeat_from(how, n_history) : n_history; i < n_history; i++)
        edit_of(&e, history[i])->what |= LN_EDIT_REPEAT;
    if (has_counts(how)) count_tokens(&e, how, history + n_history - n_generated, n_generated);
    if (ln_forbids(how, n_generated))
        ln_forbid_each(how, history, n_history, n_generated, stop_ids, n_stop_ids, forbid, &e);
    for (int64_t i = 0; i < e.n; i++) e.marks[out[i].id] = 0;
    return once ? e.n : -1;
}
