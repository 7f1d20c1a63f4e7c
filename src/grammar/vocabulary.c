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
    return n;
}

static bool is_word(uint32_t c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* The slice of a text, numbered through all alphabets; -1: it has other characters, or parts of them. *chars:
 * its characters. */
static int slice_of(const char *text, size_t bytes, size_t *chars) {
    static const size_t most[LN_SLICES - 1] = {4, 8, 16};
    int alphabet = LN_WORD, slice = 0;
    *chars = 0;
    for (size_t i = 0; i < bytes; ++*chars) {
        uint32_t c;
        const int k = ln_utf8_get(text + i, bytes - i, &c);
        if (k == 0 || c < 0x20 || c == '"' || c == '\\') return -1;
        if (!is_word(c)) alphabet = LN_PLAIN;
        i += (size_t)k;
    }
    while (slice < LN_SLICES - 1 && *chars > most[slice]) slice++;
    return bytes == 0 ? -1 : alphabet * LN_SLICES + slice;
}

/* ---- the tree ---- */

/* The tokens of a slice (-1: of none), in the order of ids, become the tree's; *nodes counts what it
 * needs. */
static bool choose(const ln_vocabulary *v, const int32_t *ids, const int8_t *slices, size_t n, int slice,
                   ln_trie *t, size_t *nodes) {
    size_t k = 0, all = 0;
    for (size_t i = 0; i < n; i++) all += slices[ids[i]] == slice;
    t->ids = ln_alloc((all + 1) * sizeof *t->ids);
    if (!t->ids) return false;
    *nodes = 1;
    for (size_t i = 0; i < n; i++) {
        if (slices[ids[i]] != slice) continue;
        *nodes += v->at[ids[i] + 1] - v->at[ids[i]] - (k > 0 ? common_bytes(v, t->ids[k - 1], ids[i]) : 0);
        t->ids[k++] = ids[i];
    }
    t->nodes = ln_alloc(*nodes * sizeof *t->nodes);
    if (t->nodes) t->nodes[*nodes - 1].first = (uint32_t)k; /* the end */
    return t->nodes != NULL;
}

/* Adds the nodes of each text that the one before it does not have. */
static void add_nodes(const ln_vocabulary *v, ln_trie *t, size_t n_ids, uint32_t *open) {
    size_t n = 0, depth = 0;
    for (size_t i = 0; i < n_ids; i++) {
        const int32_t id = t->ids[i];
        const size_t bytes = v->at[id + 1] - v->at[id],
                     common = i > 0 ? common_bytes(v, t->ids[i - 1], id) : 0;
        for (; depth > common; depth--) t->nodes[open[depth]].after = (uint32_t)n;
        for (; depth < bytes; n++) {
            const uint8_t byte = (uint8_t)v->text[v->at[id] + depth++];
            t->nodes[n] = (ln_trie_node){.first = (uint32_t)i, .depth = (uint16_t)depth, .byte = byte};
            open[depth] = (uint32_t)n;
        }
    }
    for (; depth > 0; depth--) t->nodes[open[depth]].after = (uint32_t)n;
    t->nodes[n] = (ln_trie_node){.after = (uint32_t)n, .first = (uint32_t)n_ids};
    t->n = n;
}

/* Finds node.below, from the last node to the first: what is below a node stands after it. */
static void find_below(ln_trie *t) {
    for (size_t i = t->n; i-- > 0;) {
        unsigned below = 0;
        for (uint32_t k = (uint32_t)i + 1; k < t->nodes[i].after; k = t->nodes[k].after) {
            const bool begins = (t->nodes[k].byte & 0xc0) != 0x80; /* a character */
            below = LN_MAX(below, t->nodes[k].below + (unsigned)begins);
        }
        t->nodes[i].below = (uint8_t)LN_MIN(below, LN_TRIE_DEEP);
    }
}

static bool make_trie(const ln_vocabulary *v, const int32_t *ids, const int8_t *slices, size_t n, int slice,
                      ln_trie *t) {
    size_t nodes;
    uint32_t *open = ln_alloc((v->longest + 1) * sizeof *open);
    const bool ok = open && choose(v, ids, slices, n, slice, t, &nodes);
    if (ok) add_nodes(v, t, t->nodes[nodes - 1].first, open);
    if (ok && slice >= 0) find_below(t);
    ln_free(open);
    return ok;
}

/* Finds the slice of each token, and the masks of all. */
static bool find_slices(ln_vocabulary *v, int8_t *slices) {
    const size_t n_vocab = (size_t)v->n_vocab, words = (n_vocab + 63) / 64;
    for (int k = 0; k < LN_ALL_SLICES; k++)
        if (!(v->slices[k].mask = ln_zalloc(words + 1, sizeof *v->slices[k].mask))) return false;
    for (size_t i = 0; i < n_vocab; i++) {
        size_t chars;
        const int k = slice_of(v->text + v->at[i], v->at[i + 1] - v->at[i], &chars);
        slices[i] = (int8_t)k;
        if (k < 0) continue;
        v->slices[k].mask[i / 64] |= UINT64_C(1) << (i % 64);
        v->slices[k].longest = LN_MAX(v->slices[k].longest, chars);
    }
    return true;
}

ln_status ln_vocabulary_sort(ln_vocabulary *v, ln_error *err) {
    const size_t n_vocab = (size_t)v->n_vocab;
    int32_t *ids = ln_alloc((n_vocab + 1) * sizeof *ids),
            *scratch = ln_alloc((n_vocab + 1) * sizeof *scratch);
    int8_t *slices = ln_alloc(n_vocab + 1);
    bool ok = ids && scratch && slices && find_slices(v, slices);
    size_t n = 0;
    v->longest = 0;
    for (size_t i = 0; ok && i < n_vocab; i++) {
        const size_t bytes = v->at[i + 1] - v->at[i];
        v->longest = LN_MAX(v->longest, bytes);
        if (bytes > 0) ids[n++] = (int32_t)i;
    }
    if (ok) sort(v, ids, n, scratch);
    ok = ok && make_trie(v, ids, slices, n, -1, &v->other);
    for (int k = 0; ok && k < LN_ALL_SLICES; k++) ok = make_trie(v, ids, slices, n, k, &v->slices[k].trie);
    ln_free(ids);
    ln_free(scratch);
    ln_free(slices);
    return ok ? LN_OK : LN_OOM(err, "the sorted vocabulary");
}

void ln_vocabulary_free(ln_vocabulary *v) {
    for (int k = 0; k < LN_ALL_SLICES; k++) {
        ln_free(v->slices[k].trie.nodes);
        ln_free(v->slices[k].trie.ids);
        ln_free(v->slices[k].mask);
    }
    void *all[] = {v->at, v->text, v->other.nodes, v->other.ids};
    for (size_t i = 0; i < LN_COUNT(all); i++) ln_free(all[i]);
    *v = (ln_vocabulary){0};
}

uint64_t ln_vocabulary_bytes(const ln_vocabulary *v) {
    const uint64_t texts = v->at ? v->at[v->n_vocab] : 0, n_slices = LN_ALL_SLICES;
    uint64_t nodes = v->other.n + 1;
    for (uint64_t k = 0; k < n_slices; k++) nodes += v->slices[k].trie.n + 1;
    return (uint64_t)v->n_vocab * (2 * sizeof(int32_t) + n_slices / 8) + texts + nodes * sizeof(ln_trie_node);
}
