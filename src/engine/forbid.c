/* Excludes the tokens that generation_config.json forbids: their logits become minus infinity.
 *
 * The rules are those of the logits processors of transformers (generation/logits_process.py):
 * SuppressTokensLogitsProcessor, SuppressTokensAtBeginLogitsProcessor, NoBadWordsLogitsProcessor,
 * NoRepeatNGramLogitsProcessor, MinNewTokensLengthLogitsProcessor. transformers applies them after the
 * penalties, and so does ln_sample. Each rule only excludes tokens, so that their order does not matter. */
#include "sampler.h"

#include <math.h>
#include <string.h>

bool ln_forbids(const ln_sampling *how, int64_t n_generated) {
    return how->n_suppress > 0 || how->n_bad_words > 0 || how->no_repeat_ngram > 0 ||
           (how->n_begin_suppress > 0 && n_generated == 0) || n_generated < how->min_new;
}

/* What a forbidden token is handed to. */
typedef struct sink {
    ln_forbid_fn *fn;
    void *user;
} sink;
static void forbid_all(sink to, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) to.fn(to.user, ids[i]);
}

static bool is_in(int32_t id, const int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool same_ids(const int32_t *a, const int32_t *b, size_t n) {
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

/* bad_words: excludes the last id of each sequence whose other ids are the end of the history. */
static void forbid_words(sink to, const ln_sampling *how, const int32_t *history, int64_t n_history,
                         const int32_t *stop_ids, int n_stop_ids) {
    for (size_t i = 0; i < how->n_bad_words; i++) {
        const ln_id_list *word = &how->bad_words[i];
        const size_t before = word->n - 1;
        if (before == 0 && is_in(word->ids[0], stop_ids, n_stop_ids)) continue;
        if ((int64_t)before <= n_history && same_ids(word->ids, history + n_history - before, before))
            to.fn(to.user, word->ids[before]);
    }
}

/* no_repeat_ngram: excludes each id that followed an earlier occurrence of the last size - 1 tokens. */
static void forbid_repeats(sink to, int64_t size, const int32_t *history, int64_t n_history) {
    if (size <= 0) return;
    const int32_t *end = history + n_history - (size - 1);
    for (int64_t i = 0; i + size <= n_history; i++)
        if (same_ids(history + i, end, (size_t)size - 1)) to.fn(to.user, history[i + size - 1]);
}

void ln_forbid_each(const ln_sampling *how, const int32_t *history, int64_t n_history, int64_t n_generated,
                    const int32_t *stop_ids, int n_stop_ids, ln_forbid_fn *fn, void *user) {
    const sink to = {fn, user};
    forbid_all(to, how->suppress, how->n_suppress);
    if (n_generated == 0) forbid_all(to, how->begin_suppress, how->n_begin_suppress);
    if (n_generated < how->min_new) {
        forbid_all(to, stop_ids, (size_t)n_stop_ids);
        forbid_all(to, how->stop_ids, how->n_stop_ids);
    }
    forbid_words(to, how, history, n_history, stop_ids, n_stop_ids);
    if (n_history >= how->no_repeat_ngram) forbid_repeats(to, how->no_repeat_ngram, history, n_history);
}

static void exclude(void *logits, int32_t id) { ((float *)logits)[id] = -INFINITY; }
void ln_forbid(float *logits, const ln_sampling *how, const int32_t *history, int64_t n_history,
               int64_t n_generated, const int32_t *stop_ids, int n_stop_ids) {
    ln_forbid_each(how, history, n_history, n_generated, stop_ids, n_stop_ids, exclude, logits);
}
