/* Byte-pair encoding of one piece.
 *
 * A piece may be a whole text, because the tokenizer of Gemma replaces spaces by U+2581 and has no splitting
 * pre-tokenizer. The encoder therefore first cuts the piece into segments wherever no merge of the model can
 * join the characters on both sides; that changes no id. A segment is usually a word. Short segments are
 * merged by a linear scan for the lowest rank, and their ids are cached. Long segments (fifty thousand
 * underscores) are merged with a priority queue (merge_queue.c) over a linked list of symbols, in O(n log n).
 *
 * Order of merges, as in the reference: lowest rank first, leftmost first among equal ranks. An entry of the
 * queue is (rank, place); it is stale when the pair that now begins at its place has another rank.
 *
 * An unknown character becomes byte-fallback tokens when the vocabulary has a token for each of its bytes,
 * else the unknown token. With fuse_unk, a run of unknown characters becomes one unknown token. The reference
 * emits a pending unknown token only before the next known character, even when byte tokens came in between,
 * and this file does the same. */
#include "tokenizer_internal.h"

enum { SHORT = 48, CACHE_SIZE = 4096, CACHE_KEY = 24, CACHE_IDS = 8, CACHE_AFTER = 256 };

struct tok_cached {
    char key[CACHE_KEY];
    uint8_t bytes, n;
    int32_t ids[CACHE_IDS];
};

void bpe_work_close(tok_bpe_work *w) {
    ln_free(w->sym);
    ln_free(w->prev);
    ln_free(w->next);
    queue_close(&w->queue);
    ln_free(w->cache);
    ln_str_free(&w->key);
    *w = (tok_bpe_work){0};
}

static ln_status push(tok_bpe_work *w, int32_t id, ln_error *err) {
    if (w->n == w->cap_sym) LN_TRY(ln_grow((void **)&w->sym, &w->cap_sym, w->n + 1, sizeof *w->sym, err));
    w->sym[w->n++] = (uint32_t)id;
    return LN_OK;
}

static ln_status give(ln_ids *out, const uint32_t *sym, size_t n, ln_error *err) {
    if (out->n + n > out->cap)
        LN_TRY(ln_grow((void **)&out->data, &out->cap, out->n + n, sizeof *out->data, err));
    for (size_t i = 0; i < n; i++) out->data[out->n + i] = (int32_t)sym[i];
    out->n += n;
    return LN_OK;
}

/* ---- merging ---- */

/* Merges n <= SHORT symbols in place; returns the new count. */
static size_t merge_short(const tok_bpe *b, uint32_t *sym, size_t n) {
    uint32_t rank[SHORT], id[SHORT];
    for (size_t i = 0; i + 1 < n; i++) {
        const tok_merge *m = bpe_merge(b, sym[i], sym[i + 1]);
        rank[i] = m ? m->rank : UINT32_MAX;
        id[i] = m ? (uint32_t)m->id : 0;
    }
    while (n > 1) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[at]) at = i;
        if (rank[at] == UINT32_MAX) break;
        sym[at] = id[at];
        n--;
        for (size_t i = at + 1; i < n; i++) {
            sym[i] = sym[i + 1];
            rank[i - 1] = rank[i];
            id[i - 1] = id[i];
        }
        for (size_t i = at > 0 ? at - 1 : 0; i <= at && i + 1 < n; i++) {
            const tok_merge *m = bpe_merge(b, sym[i], sym[i + 1]);
            rank[i] = m ? m->rank : UINT32_MAX;
            id[i] = m ? (uint32_t)m->id : 0;
        }
    }
    return n;
}

static ln_status queue_pair(const tok_bpe *b, tok_bpe_work *w, uint32_t at, uint32_t next, ln_error *err) {
    const tok_merge *m = bpe_merge(b, w->sym[at], w->sym[next]);
    return m ? queue_add(&w->queue, m->rank, at, err) : LN_OK;
}

static ln_status merge_long(const tok_bpe *b, tok_bpe_work *w, ln_error *err) {
    const uint32_t none = UINT32_MAX;
    size_t n = w->n;
    if (n >= none) return ln_fail(err, LN_EINVALID, "a word of %zu characters is too long to tokenize", n);
    LN_TRY(ln_grow((void **)&w->prev, &w->cap_prev, n, sizeof *w->prev, err));
    LN_TRY(ln_grow((void **)&w->next, &w->cap_next, n, sizeof *w->next, err));
    LN_TRY(queue_begin(&w->queue, err));
    for (uint32_t i = 0; i < n; i++) {
        w->prev[i] = i > 0 ? i - 1 : none;
        w->next[i] = i + 1 < n ? i + 1 : none;
    }
    for (uint32_t i = 0; i + 1 < n; i++) LN_TRY(queue_pair(b, w, i, i + 1, err));
    for (uint32_t rank, at; queue_take(&w->queue, &rank, &at);) {
        uint32_t right = w->next[at];
        if (w->sym[at] == none || right == none) continue;
        const tok_merge *m = bpe_merge(b, w->sym[at], w->sym[right]);
        if (!m || m->rank != rank) continue;
        w->sym[at] = (uint32_t)m->id;
        w->sym[right] = none;
        w->next[at] = w->next[right];
        if (w->next[at] != none) w->prev[w->next[at]] = at;
        if (w->prev[at] != none) LN_TRY(queue_pair(b, w, w->prev[at], at, err));
        if (w->next[at] != none) LN_TRY(queue_pair(b, w, at, w->next[at], err));
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (w->sym[i] != none) w->sym[kept++] = w->sym[i];
    w->n = kept;
    return LN_OK;
}

static ln_status merge(const tok_bpe *b, tok_bpe_work *w, ln_error *err) {
    if (w->n > SHORT) return merge_long(b, w, err);
    w->n = merge_short(b, w->sym, w->n);
    return LN_OK;
}

/* ---- characters to symbols ---- */

static int32_t char_id(const tok_bpe *b, tok_bpe_work *w, uint32_t cp, const char *s, size_t n) {
    if (cp < LN_COUNT(b->low_id)) return b->low_id[cp];
    struct tok_char_id *c = &w->chars[(cp * 0x9e3779b1u) >> 23];
    if (c->cp1 != cp + 1) *c = (struct tok_char_id){cp + 1, strtab_find(&b->vocab, s, n)};
    return c->id;
}

static ln_status unknown(const tok_bpe *b, tok_bpe_work *w, const char *s, size_t n, size_t *pending,
                         ln_error *err) {
    bool bytes = b->byte_fallback;
    for (size_t i = 0; bytes && i < n; i++) bytes = b->byte_id[(unsigned char)s[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < n; i++) LN_TRY(push(w, b->byte_id[(unsigned char)s[i]], err));
        return LN_OK;
    }
    if (!b->has_unk) return LN_OK; /* the reference drops the character */
    if (b->unk_id < 0) {
        char name[80];
        return ln_fail(err, LN_EINVALID,
                       "the text needs the unknown token '%s', which the tokenizer's vocabulary lacks",
                       ln_excerpt(name, b->unk, b->n_unk));
    }
    if (*pending > 0 && !b->fuse_unk) LN_TRY(push(w, b->unk_id, err));
    *pending = 1;
    return LN_OK;
}

/* Converts a segment to symbols (ids of its characters) in w->sym. `first` and `last`: the segment is the
 * first and the last of its piece, for which continuing_subword_prefix and end_of_word_suffix differ. */
static ln_status symbols(const tok_bpe *b, tok_bpe_work *w, const char *s, size_t bytes, bool first,
                         bool last, ln_error *err) {
    size_t pending = 0;
    w->n = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        size_t n = utf8_next(s + at, &cp);
        bool prefix = b->n_prefix > 0 && !(first && at == 0),
             suffix = b->n_suffix > 0 && last && at + n == bytes;
        const char *key = s + at;
        size_t n_key = n;
        int32_t id;
        if (prefix || suffix) {
            w->key.len = 0;
            if (prefix) LN_TRY(utf8_append(&w->key, b->prefix, b->n_prefix, err));
            LN_TRY(utf8_append(&w->key, s + at, n, err));
            if (suffix) LN_TRY(utf8_append(&w->key, b->suffix, b->n_suffix, err));
            key = w->key.data;
            n_key = w->key.len;
            id = strtab_find(&b->vocab, key, n_key);
        } else {
            id = char_id(b, w, cp, key, n_key);
        }
        if (id < 0) {
            LN_TRY(unknown(b, w, key, n_key, &pending, err));
        } else {
            if (pending > 0) LN_TRY(push(w, b->unk_id, err));
            pending = 0;
            LN_TRY(push(w, id, err));
        }
        at += n;
    }
    return pending > 0 ? push(w, b->unk_id, err) : LN_OK;
}

/* ---- segments ---- */

/* The cache entry of a segment, which may hold another one; NULL: the segment is not cached. The cache is
 * allocated after CACHE_AFTER lookups, so that short texts do not pay for it. */
static struct tok_cached *cached(tok_bpe_work *w, const char *s, size_t bytes) {
    if (bytes > CACHE_KEY || !w->cache) {
        if (bytes > CACHE_KEY || w->n_missed++ < CACHE_AFTER) return NULL;
        w->cache = ln_zalloc(CACHE_SIZE, sizeof *w->cache);
        if (!w->cache) return NULL;
    }
    uint64_t a = 0, c = 0, e = 0;
    memcpy(&a, s, LN_MIN(bytes, (size_t)8));
    if (bytes > 8) memcpy(&c, s + 8, LN_MIN(bytes - 8, (size_t)8));
    if (bytes > 16) memcpy(&e, s + 16, bytes - 16);
    uint64_t h = (a ^ bytes) * 0x9e3779b97f4a7c55u;
    h = (h ^ h >> 32 ^ c) * 0xd6e8feb86659fd93u;
    h = (h ^ h >> 32 ^ e) * 0x9fb21c651e98df25u;
    return &w->cache[h >> 52];
}

static ln_status encode_segment(const tok_bpe *b, tok_bpe_work *w, const char *s, size_t bytes, bool first,
                                bool last, ln_ids *out, ln_error *err) {
    bool plain = b->n_prefix == 0 && b->n_suffix == 0;
    struct tok_cached *c = plain ? cached(w, s, bytes) : NULL;
    if (c && c->bytes == bytes && memcmp(c->key, s, bytes) == 0)
        return give(out, (const uint32_t *)c->ids, c->n, err);
    if (b->raw) {
        w->n = 0;
        if (bytes > w->cap_sym) LN_TRY(ln_grow((void **)&w->sym, &w->cap_sym, bytes, sizeof *w->sym, err));
        for (size_t i = 0; i < bytes; i++) {
            int32_t id = b->level_id[(unsigned char)s[i]];
            if (id >= 0)
                w->sym[w->n++] = (uint32_t)id; /* the reference drops a byte that the vocabulary lacks */
        }
    } else {
        LN_TRY(symbols(b, w, s, bytes, first, last, err));
    }
    LN_TRY(merge(b, w, err));
    if (c && w->n <= CACHE_IDS) {
        memcpy(c->key, s, bytes);
        c->bytes = (uint8_t)bytes;
        c->n = (uint8_t)w->n;
        if (w->n > 0) memcpy(c->ids, w->sym, w->n * sizeof *w->sym);
    }
    return give(out, w->sym, w->n, err);
}

/* The end of the segment that begins at `from`: the first place where no merge can join the characters on
 * both sides. A segment never ends next to a character that the vocabulary lacks, because fuse_unk joins
 * unknown characters. */
static size_t segment_end(const tok_bpe *b, tok_bpe_work *w, const char *s, size_t bytes, size_t from) {
    uint32_t cp, was;
    size_t last = from, at = from + utf8_next(s + from, &was);
    while (at < bytes) {
        size_t n = utf8_next(s + at, &cp);
        uint32_t bit = bpe_cross_bit(was, cp);
        if (!(b->cross[bit / 64] >> bit % 64 & 1) && char_id(b, w, was, s + last, at - last) >= 0 &&
            char_id(b, w, cp, s + at, n) >= 0)
            return at;
        last = at;
        was = cp;
        at += n;
    }
    return bytes;
}

/* The id of the whole piece when the vocabulary has it as one token, else -1 (for ignore_merges). */
static ln_status whole(const tok_bpe *b, tok_bpe_work *w, const char *piece, size_t bytes, int32_t *id,
                       ln_error *err) {
    *id = -1;
    if (bytes > b->vocab.longest) return LN_OK;
    if (b->raw) {
        w->key.len = 0;
        LN_TRY(utf8_reserve(&w->key, bytes * 2, err));
        for (size_t i = 0; i < bytes; i++)
            utf8_grown(&w->key,
                       (size_t)ln_utf8_put(w->key.data + w->key.len, byte_level_cp[(unsigned char)piece[i]]));
        piece = w->key.data;
        bytes = w->key.len;
    }
    *id = strtab_find(&b->vocab, piece, bytes);
    return LN_OK;
}

ln_status bpe_encode(const tok_bpe *b, tok_bpe_work *w, const char *piece, size_t bytes, ln_ids *out,
                     ln_error *err) {
    if (b->ignore_merges) {
        int32_t id;
        LN_TRY(whole(b, w, piece, bytes, &id, err));
        if (id >= 0) return give(out, (const uint32_t *)&id, 1, err);
    }
    if (b->raw || b->n_prefix > 0 || b->n_suffix > 0)
        return encode_segment(b, w, piece, bytes, true, true, out, err);
    for (size_t at = 0; at < bytes;) {
        size_t end = segment_end(b, w, piece, bytes, at);
        LN_TRY(encode_segment(b, w, piece + at, end - at, at == 0, end == bytes, out, err));
        at = end;
    }
    return LN_OK;
}
