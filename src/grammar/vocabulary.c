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

/* The characters of a text that are plain ones of a JSON string; 0: it has others, or parts of characters. */
static size_t plain_characters(const char *text, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes; n++) {
        uint32_t c;
        const int k = ln_utf8_get(text + i, bytes - i, &c);
        if (k == 0 || c < 0x20 || c == '"' || c == '\\') return 0;
        i += (size_t)k;
    }
    return n;
}

/* ---- the tree ---- */

/* The tokens of one kind, in the order of v->ids, become its ids; *nodes counts what the tree needs. */
static bool choose(const ln_vocabulary *v, const int32_t *ids, size_t n, bool plain, ln_trie *t,
                   size_t *nodes) {
    size_t k = 0;
    t->ids = ln_alloc((n + 1) * sizeof *t->ids);
    if (!t->ids) return false;
    *nodes = 1;
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = v->at[ids[i] + 1] - v->at[ids[i]];
        if ((plain_characters(v->text + v->at[ids[i]], bytes) > 0) != plain) continue;
        *nodes += bytes - (k > 0 ? common_bytes(v, t->ids[k - 1], ids[i]) : 0);
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

static bool make_trie(const ln_vocabulary *v, const int32_t *ids, size_t n, bool plain, ln_trie *t) {
    size_t nodes;
    uint32_t *open = ln_alloc((v->longest + 1) * sizeof *open);
    const bool ok = open && choose(v, ids, n, plain, t, &nodes);
    if (ok) add_nodes(v, t, t->nodes[nodes - 1].first, open);
    if (ok && plain) find_below(t);
    ln_free(open);
    return ok;
}

ln_status ln_vocabulary_sort(ln_vocabulary *v, ln_error *err) {
    const size_t n_vocab = (size_t)v->n_vocab, words = (n_vocab + 63) / 64;
    int32_t *ids = ln_alloc((n_vocab + 1) * sizeof *ids),
            *scratch = ln_alloc((n_vocab + 1) * sizeof *scratch);
    v->plain_mask = ln_zalloc(words + 1, sizeof *v->plain_mask);
    bool ok = ids && scratch && v->plain_mask;
    size_t n = 0;
    v->longest = v->plain_longest = 0;
    for (size_t i = 0; ok && i < n_vocab; i++) {
        const size_t bytes = v->at[i + 1] - v->at[i], chars = plain_characters(v->text + v->at[i], bytes);
        v->longest = LN_MAX(v->longest, bytes);
        v->plain_longest = LN_MAX(v->plain_longest, chars);
        if (chars > 0) v->plain_mask[i / 64] |= UINT64_C(1) << (i % 64);
        if (bytes > 0) ids[n++] = (int32_t)i;
    }
    if (ok) sort(v, ids, n, scratch);
    ok = ok && make_trie(v, ids, n, true, &v->plain) && make_trie(v, ids, n, false, &v->other);
    ln_free(ids);
    ln_free(scratch);
    return ok ? LN_OK : LN_OOM(err, "the sorted vocabulary");
}

void ln_vocabulary_free(ln_vocabulary *v) {
    void *all[] = {v->at, v->text, v->plain.nodes, v->plain.ids, v->other.nodes, v->other.ids, v->plain_mask};
    for (size_t i = 0; i < LN_COUNT(all); i++) ln_free(all[i]);
    *v = (ln_vocabulary){0};
}

uint64_t ln_vocabulary_bytes(const ln_vocabulary *v) {
    const uint64_t texts = v->at ? v->at[v->n_vocab] : 0, nodes = v->plain.n + v->other.n + 2;
    return (uint64_t)v->n_vocab * (3 * sizeof(int32_t)) + texts + nodes * sizeof(ln_trie_node) +
           (uint64_t)v->n_vocab / 8;
}
