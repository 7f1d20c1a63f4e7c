/* The texts of a vocabulary in ascending order. */
#include "grammar.h"

#include <stdlib.h>
#include <string.h>

static int compare(const ln_vocabulary *v, int32_t a, int32_t b) {
    const size_t n = v->at[a + 1] - v->at[a], k = v->at[b + 1] - v->at[b];
    const int c = memcmp(v->text + v->at[a], v->text + v->at[b], LN_MIN(n, k));
    if (c != 0) return c;
    if (n != k) return n < k ? -1 : 1;
    return (a > b) - (a < b);
}

/* Merges the sorted halves ids[0..n/2) and ids[n/2..n), each at least one long. */
static void merge(const ln_vocabulary *v, int32_t *ids, size_t n, int32_t *scratch) {
    const size_t half = n / 2;
    size_t i = 0, j = half;
    memcpy(scratch, ids, n * sizeof *ids);
    for (size_t k = 0; k < n; k++) {
        const bool left = j == n || (i < half && compare(v, scratch[i], scratch[j]) < 0);
        ids[k] = left ? scratch[i++] : scratch[j++];
    }
}

/* Merge sort; its recursion is as deep as the logarithm of n. */
static void sort(const ln_vocabulary *v, int32_t *ids, size_t n, int32_t *scratch) {
    if (n < 2) return;
    sort(v, ids, n / 2, scratch);
    sort(v, ids + n / 2, n - n / 2, scratch);
    merge(v, ids, n, scratch);
}

static size_t common_bytes(const ln_vocabulary *v, int32_t a, int32_t b) {
    const size_t most = LN_MIN(v->at[a + 1] - v->at[a], v->at[b + 1] - v->at[b]);
    size_t n = 0;
    while (n < most && v->text[v->at[a] + n] == v->text[v->at[b] + n]) n++;
    return LN_MIN(n, (size_t)UINT16_MAX);
}

ln_status ln_vocabulary_sort(ln_vocabulary *v, ln_error *err) {
    const size_t n_vocab = (size_t)v->n_vocab;
    int32_t *scratch = ln_alloc((n_vocab + 1) * sizeof *scratch);
    v->ids = ln_alloc((n_vocab + 1) * sizeof *v->ids);
    v->common = ln_alloc((n_vocab + 1) * sizeof *v->common);
    const bool ok = scratch && v->ids && v->common;
    v->n = v->longest = 0;
    for (size_t i = 0; ok && i < n_vocab; i++) {
        const size_t bytes = v->at[i + 1] - v->at[i];
        v->longest = LN_MAX(v->longest, bytes);
        if (bytes > 0) v->ids[v->n++] = (int32_t)i;
    }
    if (ok) sort(v, v->ids, v->n, scratch);
    for (size_t i = 0; ok && i < v->n; i++)
        v->common[i] = i == 0 ? 0 : (uint16_t)common_bytes(v, v->ids[i - 1], v->ids[i]);
    ln_free(scratch);
    return ok ? LN_OK : LN_OOM(err, "the sorted vocabulary");
}

void ln_vocabulary_free(ln_vocabulary *v) {
    ln_free(v->ids);
    ln_free(v->at);
    ln_free(v->common);
    ln_free(v->text);
    *v = (ln_vocabulary){0};
}

uint64_t ln_vocabulary_bytes(const ln_vocabulary *v) {
    const uint64_t texts = v->at ? v->at[v->n_vocab] : 0;
    return (uint64_t)v->n_vocab * (sizeof *v->ids + sizeof *v->at + sizeof *v->common) + texts;
}
