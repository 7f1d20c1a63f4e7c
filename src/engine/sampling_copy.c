/* Copies a sampling, so that a request does not depend on how long its caller keeps the original. */
#include "sampler.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Copies n > 0 items of `item` bytes; NULL when the allocation fails. */
static void *copy_items(ln_arena *a, const void *from, size_t n, size_t item) {
    size_t bytes;
    void *to = ln_mul_size(n, item, &bytes) ? ln_arena_alloc(a, bytes) : NULL;
    if (to) memcpy(to, from, bytes);
    return to;
}

/* Copies a list of n items; true for an empty list, whose pointer becomes NULL. */
static bool copy_list(ln_arena *a, const void *from, size_t n, size_t item, const void **to) {
    *to = n > 0 ? copy_items(a, from, n, item) : NULL;
    return n == 0 || *to;
}

static bool copy_ids(ln_arena *a, const int32_t *from, size_t n, const int32_t **to) {
    const void *p;
    const bool ok = copy_list(a, from, n, sizeof *from, &p);
    *to = p;
    return ok;
}

static bool copy_texts(ln_arena *a, const char *const *from, size_t n, const char *const **to) {
    const char **texts = n > 0 ? copy_items(a, from, n, sizeof *from) : NULL;
    *to = texts;
    if (n > 0 && !texts) return false;
    for (size_t i = 0; i < n; i++)
        if (!(texts[i] = ln_arena_strndup(a, from[i], strlen(from[i])))) return false;
    return true;
}

static bool copy_words(ln_arena *a, const ln_id_list *from, size_t n, const ln_id_list **to) {
    ln_id_list *words = n > 0 ? copy_items(a, from, n, sizeof *from) : NULL;
    *to = words;
    if (n > 0 && !words) return false;
    for (size_t i = 0; i < n; i++)
        if (!copy_ids(a, from[i].ids, from[i].n, &words[i].ids)) return false;
    return true;
}

ln_status ln_sampling_copy(ln_arena *a, const ln_sampling *from, ln_sampling *out, ln_error *err) {
    const void *bias;
    *out = *from;
    const bool ok = copy_list(a, from->bias, from->n_bias, sizeof *from->bias, &bias) &&
                    copy_texts(a, from->stop, from->n_stop, &out->stop) &&
                    copy_texts(a, from->model_stop, from->n_model_stop, &out->model_stop) &&
                    copy_ids(a, from->suppress, from->n_suppress, &out->suppress) &&
                    copy_ids(a, from->begin_suppress, from->n_begin_suppress, &out->begin_suppress) &&
                    copy_ids(a, from->stop_ids, from->n_stop_ids, &out->stop_ids) &&
                    copy_texts(a, from->tool_names, from->n_tool_names, &out->tool_names) &&
                    copy_words(a, from->bad_words, from->n_bad_words, &out->bad_words);
    if (!ok) return LN_OOM(err, "the sampling of a request");
    out->bias = bias;
    return LN_OK;
}

uint64_t ln_sampling_seed(const ln_sampling *how) {
    uint64_t seed = how->seed;
    if (!how->has_seed && getentropy(&seed, sizeof seed) != 0) seed = (uint64_t)(ln_now() * 1e9);
    return seed;
}
