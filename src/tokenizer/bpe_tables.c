/* Adds tokens and merges to the tables of a BPE model.
 *
 * Each merge takes three lookups in the vocabulary: its left part, its right part, and both joined. The
 * tables exceed the caches and the lookups are random accesses, so merges are collected in batches and their
 * cache lines prefetched, which halves the time to open Gemma 3. The merges are collected in a list until
 * their number is known; then they are inserted into one hash table with open addressing, 16 bytes a slot, at
 * a load factor of 60 %. A bitmap records the pairs of characters that a merge can join; bpe.c may cut a text
 * at every other pair without changing an id. */
#include "bpe_tables.h"

#include "../base/c_locale.h"

#include <stdarg.h>
#include <stdio.h>

void bpe_tables_close(bpe_tables *t) {
    ln_free(t->list);
    ln_str_free(&t->texts);
    ln_str_free(&t->joined);
}

ln_status bpe_fail(const bpe_tables *t, size_t offset, ln_error *err, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    if (ln_vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    if (!t->j) return ln_fail(err, LN_EINVALID, "%s: %s", t->name, text);
    t->j->offset = offset;
    return ln_json_fail(t->j, err, "%s", text);
}

/* ---- tokens ---- */

ln_status bpe_take_tokens(bpe_tables *t, ln_error *err) {
    string_table *v = &t->b->vocab;
    for (size_t i = 0; i < t->n_batch; i++) strtab_prefetch(v, t->batch[i].left, 0);
    for (size_t i = 0; i < t->n_batch; i++) {
        const bpe_waiting *m = &t->batch[i];
        const char *text = t->texts.data + m->at;
        int32_t clash;
        ln_status st = strtab_add(v, text, m->n_left, m->left, (int32_t)m->n_right, &clash, err);
        if (st != LN_OK) return ln_prefix(err, st, "%s: %s", t->name, t->vocab);
        if (clash < 0) continue;
        char key[80];
        return bpe_fail(t, m->offset, err, "%s: expected each text once, found '%s' twice", t->vocab,
                        ln_excerpt(key, text, m->n_left));
    }
    t->n_batch = t->texts.len = 0;
    return LN_OK;
}

ln_status bpe_hold_token(bpe_tables *t, size_t offset, size_t at, uint32_t id, ln_error *err) {
    bpe_waiting *m = &t->batch[t->n_batch];
    const size_t bytes = t->texts.len - at;
    if (bytes > TOK_MAX_TOKEN)
        return bpe_fail(t, offset, err, "%s: expected tokens of at most %d bytes, found %zu", t->vocab,
                        TOK_MAX_TOKEN, bytes);
    *m = (bpe_waiting){.offset = offset, .at = (uint32_t)at, .n_left = (uint32_t)bytes, .n_right = id};
    m->left = strtab_hash(t->texts.data + at, bytes);
    return ++t->n_batch == BPE_BATCH ? bpe_take_tokens(t, err) : LN_OK;
}

/* ---- merges ---- */

uint32_t bpe_first_cp(const char *s, size_t n) {
    uint32_t cp = 0;
    if (n > 0) (void)utf8_next(s, &cp);
    return cp;
}
uint32_t bpe_last_cp(const char *s, size_t n) {
    size_t at = n > 0 ? n - 1 : 0;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
    return bpe_first_cp(s + at, n - at);
}

ln_status bpe_begin_merges(bpe_tables *t, ln_error *err) {
    t->n = t->n_batch = t->texts.len = 0;
    if (!t->b->cross) t->b->cross = ln_zalloc((size_t)1 << (TOK_CROSS_BITS - 6), sizeof *t->b->cross);
    return t->b->cross ? LN_OK : LN_OOM(err, "merges");
}

static ln_status unknown_part(const bpe_tables *t, const bpe_waiting *m, const char *s, size_t n,
                              ln_error *err) {
    char text[80];
    return bpe_fail(t, m->offset, err, "%s[%zu]: expected tokens of the vocabulary, found '%s'", t->merges,
                    t->n, ln_excerpt(text, s, n));
}

/* Whether the token `id` has this text. */
static bool is_token(const string_table *v, int64_t id, const char *text, size_t bytes) {
    if (!strtab_has(v, id) || v->span[id].bytes != bytes) return false;
    return strtab_same(v->heap + v->span[id].at, text, bytes);
}

/* The token of the two parts of m joined, -1 when there is none. Lists of merges usually follow the order of
 * the vocabulary, and converted lists have all splits of a token next to each other. So the function first
 * tries the token of the preceding merge and the id after it, and hashes the text only when both differ. */
static ln_status join(bpe_tables *t, const bpe_waiting *m, int32_t *id, ln_error *err) {
    const string_table *v = &t->b->vocab;
    const char *text = t->texts.data + m->at;
    size_t bytes = m->n_left + m->n_right, skip = t->b->n_prefix;
    if (skip > 0) {
        t->joined.len = 0;
        LN_TRY(utf8_append(&t->joined, text, m->n_left, err));
        LN_TRY(utf8_append(&t->joined, text + m->n_left + skip, m->n_right - skip, err));
        text = t->joined.data;
        bytes -= skip;
    }
    *id = t->n > 0 ? t->list[t->n - 1].id : -1;
    if (is_token(v, *id, text, bytes)) return LN_OK;
    if (is_token(v, (int64_t)*id + 1, text, bytes)) ++*id;
    else *id = strtab_find_hash(v, strtab_hash(text, bytes), text, bytes);
    return LN_OK;
}

ln_status bpe_add_merge(bpe_tables *t, const bpe_triple *merge, uint32_t cross[2], ln_error *err) {
    const uint32_t bit = bpe_cross_bit(cross[0], cross[1]);
    t->b->cross[bit / 64] |= (uint64_t)1 << bit % 64;
    if (t->n == t->cap) LN_TRY(ln_grow((void **)&t->list, &t->cap, t->n + 1, sizeof *t->list, err));
    t->list[t->n++] = *merge;
    return LN_OK;
}

static ln_status take_merge(bpe_tables *t, const bpe_waiting *m, ln_error *err) {
    const string_table *v = &t->b->vocab;
    const char *a = t->texts.data + m->at, *s = a + m->n_left;
    int32_t left = strtab_find_hash(v, m->left, a, m->n_left),
            right = strtab_find_hash(v, m->right, s, m->n_right), id;
    if (left < 0) return unknown_part(t, m, a, m->n_left, err);
    if (right < 0) return unknown_part(t, m, s, m->n_right, err);
    LN_TRY(join(t, m, &id, err));
    if (id < 0) {
        char x[80], y[80];
        return bpe_fail(t, m->offset, err,
                        "%s[%zu]: expected '%s' + '%s' to give a token of the vocabulary, found none",
                        t->merges, t->n, ln_excerpt(x, a, m->n_left), ln_excerpt(y, s, m->n_right));
    }
    uint32_t cross[2] = {bpe_last_cp(a, m->n_left), bpe_first_cp(s, m->n_right)};
    const bpe_triple merge = {(uint32_t)left, (uint32_t)right, (uint32_t)t->n, id};
    return bpe_add_merge(t, &merge, cross, err);
}

ln_status bpe_take_merges(bpe_tables *t, ln_error *err) {
    const string_table *v = &t->b->vocab;
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < t->n_batch; i++) {
            strtab_prefetch(v, t->batch[i].left, step);
            strtab_prefetch(v, t->batch[i].right, step);
        }
    }
    for (size_t i = 0; i < t->n_batch; i++) LN_TRY(take_merge(t, &t->batch[i], err));
    t->n_batch = t->texts.len = 0;
    return LN_OK;
}

ln_status bpe_hold_merge(bpe_tables *t, size_t offset, size_t at, size_t n_left, ln_error *err) {
    bpe_waiting *m = &t->batch[t->n_batch];
    const char *a = t->texts.data + at, *s = a + n_left;
    size_t n = t->texts.len - at - n_left, skip = t->b->n_prefix;
    if (n_left > TOK_MAX_TOKEN || n > TOK_MAX_TOKEN)
        return bpe_fail(t, offset, err, "%s[%zu]: expected tokens of at most %d bytes", t->merges,
                        t->n + t->n_batch, TOK_MAX_TOKEN);
    if (skip > n || (skip < n && ((unsigned char)s[skip] & 0xc0) == 0x80)) {
        char text[80], prefix[80];
        return bpe_fail(t, offset, err,
                        "%s[%zu]: expected a right part that is longer than continuing_subword_prefix '%s', "
                        "found '%s'",
                        t->merges, t->n + t->n_batch, ln_excerpt(prefix, t->b->prefix, skip),
                        ln_excerpt(text, s, n));
    }
    if (t->n + t->n_batch >= TOK_MAX_MERGES)
        return bpe_fail(t, offset, err, "%s: expected at most %d, found more", t->merges, TOK_MAX_MERGES);
    *m = (bpe_waiting){
        .offset = offset, .at = (uint32_t)at, .n_left = (uint32_t)n_left, .n_right = (uint32_t)n};
    m->left = strtab_hash(a, n_left);
    m->right = strtab_hash(s, n);
    return ++t->n_batch == BPE_BATCH ? bpe_take_merges(t, err) : LN_OK;
}

ln_status bpe_build_merges(bpe_tables *t, ln_error *err) {
    tok_bpe *b = t->b;
    size_t n_slots = t->n + t->n * 2 / 3 + 16;
    b->merges = ln_alloc(n_slots * sizeof *b->merges);
    if (!b->merges) return LN_OOM(err, "merges");
    b->n_slots = (uint32_t)n_slots;
    memset(b->merges, 0xff, n_slots * sizeof *b->merges);
    b->n_merges = t->n;
    for (size_t i = 0; i < t->n; i++) {
        const bpe_triple *m = &t->list[i], *ahead = &t->list[LN_MIN(i + 16, t->n - 1)];
        __builtin_prefetch(&b->merges[bpe_merge_place(b, ahead->left, ahead->right)], 1);
        *bpe_merge_slot(b, m->left, m->right) =
            (tok_merge){.pair = (uint64_t)m->left << 32 | m->right, .rank = m->rank, .id = m->id};
    }
    return LN_OK;
}
