/* A table of strings with integer ids: from text to id by hashing, from id to text by index (string_table.c).
 * Used for the vocabulary. Zero-initialise it; strtab_close frees it. */
#ifndef LN_STRING_TABLE_H
#define LN_STRING_TABLE_H

#include "../base/base.h"
#include <string.h>

typedef struct strtab_span {
    uint32_t at, bytes; /* offset in the heap and length; at = UINT32_MAX: the id has no text */
} strtab_span;
typedef struct string_table {
    char *heap; /* all texts, each followed by a zero byte */
    size_t n_heap, heap_cap;
    strtab_span *span; /* indexed by id */
    size_t n_span, span_cap;
    struct strtab_slot {
        uint32_t tag; /* hash of the text */
        int32_t id;   /* -1: free */
    } * slots;        /* open addressing, 2^slot_bits slots */
    unsigned slot_bits;
    size_t n_used, longest; /* texts in the hash table; bytes of the longest one */
} string_table;
/* The first min(n, 8) bytes of s as an integer, for hashing and comparing; injective for a given n. */
static inline uint64_t strtab_load(const char *s, size_t n) {
    uint64_t w = 0;
    uint32_t lo, hi;
    if (n >= 8) return memcpy(&w, s, 8), w;
    if (n >= 4) return memcpy(&lo, s, 4), memcpy(&hi, s + n - 4, 4), (uint64_t)hi << 32 | lo;
    return n == 0 ? 0
                  : (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[n / 2] << 8 |
                        (unsigned char)s[n - 1];
}
static inline uint64_t strtab_hash(const char *s, size_t n) {
    uint64_t h = n * 0x9e3779b97f4a7c55u;
    for (; n > 8; s += 8, n -= 8) {
        h = (h ^ strtab_load(s, 8)) * 0x9fb21c651e98df25u;
        h ^= h >> 32;
    }
    h = (h ^ strtab_load(s, n)) * 0x9fb21c651e98df25u;
    return h ^ h >> 29;
}
/* Whether n bytes are equal; faster than memcmp for tokens, which are short. */
static inline bool strtab_same(const char *a, const char *b, size_t n) {
    for (; n > 8; a += 8, b += 8, n -= 8)
        if (strtab_load(a, 8) != strtab_load(b, 8)) return false;
    return strtab_load(a, n) == strtab_load(b, n);
}
/* Allocates a hash table for about `expected` texts; it grows when there are more. LN_EMEMORY. */
ln_status strtab_open(string_table *v, size_t expected, ln_error *err);
void strtab_close(string_table *v);
/* Adds a copy of a text with its strtab_hash and id. When the table has the text already, *clash is its id
 * and nothing is added, else *clash is -1. LN_EINVALID: the id has another text. */
ln_status strtab_add(string_table *v, const char *text, size_t bytes, uint64_t hash, int32_t id,
                     int32_t *clash, ln_error *err);
/* Assigns a text to `id` without adding it to the hash table. LN_EINVALID: the id has another text. */
ln_status strtab_name(string_table *v, const char *text, size_t bytes, int32_t id, ln_error *err);
/* The id of a text, -1 when the table lacks it. The second function takes the text's strtab_hash. */
int32_t strtab_find(const string_table *v, const char *text, size_t bytes);
int32_t strtab_find_hash(const string_table *v, uint64_t hash, const char *text, size_t bytes);
/* Prefetches the cache line that a lookup of `hash` will read: step 0 the slot, 1 the span, 2 the text. Each
 * step reads the data of the step before. */
void strtab_prefetch(const string_table *v, uint64_t hash, int step);
/* Whether `id` has a text. */
static inline bool strtab_has(const string_table *v, int64_t id) {
    return id >= 0 && (uint64_t)id < v->n_span && v->span[id].at != UINT32_MAX;
}
/* The text of an id for which strtab_has; borrowed until the next strtab_add or strtab_name. */
static inline const char *strtab_text(const string_table *v, int32_t id, size_t *bytes) {
    *bytes = v->span[id].bytes;
    return v->heap + v->span[id].at;
}

#endif
