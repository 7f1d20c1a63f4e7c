/* The model section: vocabulary and merges straight from the pull reader into tables, no tree in between.
 *
 * A merge is three lookups (left, right, joined), the last one by the parts' hashes. Merges wait in a list until their number is known;
 * then one open-addressed table takes them, 16 bytes each, sized for 60 %. While they pass, a bitmap notes which pair of characters
 * any merge can join: where a text has a pair that no merge joins, it can be cut without changing a single id (bpe.c).
 *
 * Keys come in any order: when merges stand before what they need, the reader's state is kept and they are read at the end. */
#include "tok.h"

#include <stdio.h>

typedef struct loader {
    text_bpe *b;
    ln_json merges;          /* the reader as it stood before the merges */
    bool has_merges, read_merges, has_vocab, vocab_is_list, has_type;
    size_t merges_prefix;    /* n_prefix when they were read */
    struct triple {
        uint32_t left, right;
        int32_t id;
    } *list;
    size_t n, cap;
    ln_str key;
    uint64_t power[64];      /* of TEXT_HASH_P */
} loader;

/* ---- vocabulary ---- */

static ln_status read_vocab(loader *l, ln_json *j, ln_error *err) {
    text_vocab *v = &l->b->vocab;
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_ARRAY) { /* a Unigram vocabulary; the type may still follow and be named */
        l->vocab_is_list = true;
        return ln_json_skip(j, err);
    }
    if (j->type != LN_J_OBJECT) return ln_json_fail(j, err, "model.vocab: expected an object of texts and ids");
    LN_TRY(vocab_open(v, j->bytes / 64, err));
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        if (j->text_bytes > TEXT_MAX_TOKEN)
            return ln_json_fail(j, err, "model.vocab: expected tokens of at most %d bytes, found %zu", TEXT_MAX_TOKEN, j->text_bytes);
        l->key.len = 0;
        LN_TRY(text_add(&l->key, j->text, j->text_bytes, err));
        LN_TRY(ln_json_next(j, err));
        uint64_t id;
        if (j->type != LN_J_NUMBER || !ln_parse_u64(j->text, j->text_bytes, &id) || id >= TEXT_MAX_IDS) {
            char key[80];
            return ln_json_fail(j, err, "model.vocab: '%s': expected an id from 0 to %d", ln_excerpt(key, l->key.data, l->key.len),
                                TEXT_MAX_IDS - 1);
        }
        int32_t clash;
        ln_status st = vocab_add(v, l->key.data, l->key.len, (int32_t)id, &clash, err);
        if (st != LN_OK) return ln_prefix(err, st, "%s: model.vocab", j->name);
        if (clash >= 0) {
            char key[80];
            return ln_json_fail(j, err, "model.vocab: expected each text once, found '%s' twice", ln_excerpt(key, l->key.data, l->key.len));
        }
    }
    if (v->n_used == 0) return ln_json_fail(j, err, "model.vocab: expected at least one token, found none");
    return LN_OK;
}

/* ---- merges ---- */

static uint64_t power(const loader *l, size_t n) {
    uint64_t p = l->power[n & 63];
    for (size_t i = 64; i <= n; i += 64) p *= l->power[63] * TEXT_HASH_P;
    return p;
}

static uint32_t first_cp(const char *s, size_t n) {
    uint32_t cp = 0;
    if (n > 0) (void)text_cp(s, &cp);
    return cp;
}
static uint32_t last_cp(const char *s, size_t n) {
    size_t at = n > 0 ? n - 1 : 0;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
    return first_cp(s + at, n - at);
}

static ln_status unknown_part(const loader *l, ln_json *j, const char *s, size_t n, ln_error *err) {
    char text[80];
    return ln_json_fail(j, err, "model.merges[%zu]: expected tokens of the vocabulary, found '%s'", l->n, ln_excerpt(text, s, n));
}

/* The left part by its id (its text is in the heap), the right one as just read. */
static ln_status add_merge(loader *l, ln_json *j, int32_t left, uint64_t left_hash, const char *s, size_t n, ln_error *err) {
    text_bpe *b = l->b;
    uint64_t hash = text_hash(0, s, n);
    int32_t right = vocab_find_hash(&b->vocab, hash, s, n, NULL, 0);
    if (right < 0) return unknown_part(l, j, s, n, err);
    size_t n_left, skip = b->n_prefix;
    const char *a = vocab_text(&b->vocab, left, &n_left);
    if (skip > n || (skip < n && ((unsigned char)s[skip] & 0xc0) == 0x80))
        return ln_json_fail(j, err, "model.merges[%zu]: expected a right part that is longer than continuing_subword_prefix", l->n);
    if (skip > 0) hash = text_hash(0, s + skip, n - skip);
    uint64_t joined = left_hash * power(l, n - skip) + hash;
    int32_t id = vocab_find_hash(&b->vocab, joined, a, n_left, s + skip, n - skip);
    if (id < 0) {
        char x[80], y[80];
        return ln_json_fail(j, err, "model.merges[%zu]: expected a token of the vocabulary, found '%s' + '%s'", l->n, ln_excerpt(x, a, n_left),
                            ln_excerpt(y, s + skip, n - skip));
    }
    uint32_t bit = bpe_cross_bit(last_cp(a, n_left), first_cp(s, n));
    b->cross[bit / 64] |= (uint64_t)1 << bit % 64;
    if (l->n >= TEXT_MAX_MERGES) return ln_json_fail(j, err, "model.merges: expected at most %d, found more", TEXT_MAX_MERGES);
    if (l->n == l->cap) LN_TRY(ln_grow((void **)&l->list, &l->cap, l->n + 1, sizeof *l->list, err));
    l->list[l->n++] = (struct triple){(uint32_t)left, (uint32_t)right, id};
    return LN_OK;
}

static ln_status left_part(loader *l, ln_json *j, const char *s, size_t n, int32_t *left, uint64_t *hash, ln_error *err) {
    *hash = text_hash(0, s, n);
    *left = vocab_find_hash(&l->b->vocab, *hash, s, n, NULL, 0);
    return *left < 0 ? unknown_part(l, j, s, n, err) : LN_OK;
}

static ln_status read_merge(loader *l, ln_json *j, ln_error *err) {
    int32_t left;
    uint64_t hash;
    if (j->type == LN_J_STRING) { /* "left right" */
        const char *s = j->text, *blank = memchr(s, ' ', j->text_bytes);
        size_t n = blank ? (size_t)(blank - s) : 0, rest = blank ? j->text_bytes - n - 1 : 0;
        if (!blank || memchr(blank + 1, ' ', rest) != NULL) {
            char text[80];
            return ln_json_fail(j, err, "model.merges[%zu]: expected two tokens with one space between, found '%s'", l->n,
                                ln_excerpt(text, s, j->text_bytes));
        }
        LN_TRY(left_part(l, j, s, n, &left, &hash, err));
        return add_merge(l, j, left, hash, blank + 1, rest, err);
    }
    if (j->type != LN_J_ARRAY) return ln_json_fail(j, err, "model.merges[%zu]: expected a string or a pair", l->n);
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING) return ln_json_fail(j, err, "model.merges[%zu]: expected a pair of strings", l->n);
    LN_TRY(left_part(l, j, j->text, j->text_bytes, &left, &hash, err));
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING) return ln_json_fail(j, err, "model.merges[%zu]: expected a pair of strings", l->n);
    LN_TRY(add_merge(l, j, left, hash, j->text, j->text_bytes, err));
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_ARRAY_END ? LN_OK : ln_json_fail(j, err, "model.merges[%zu]: expected a pair, found more", l->n - 1);
}

static ln_status read_merges(loader *l, ln_json *j, ln_error *err) {
    l->n = 0;
    l->read_merges = true;
    l->merges_prefix = l->b->n_prefix;
    if (!l->b->cross) l->b->cross = ln_zalloc((size_t)1 << (TEXT_CROSS_BITS - 6), sizeof *l->b->cross);
    if (!l->b->cross) return LN_OOM(err, "merges");
    LN_TRY(ln_json_want(j, LN_J_ARRAY, err));
    for (bool more;;) {
        LN_TRY(ln_json_item(j, &more, err));
        if (!more) return LN_OK;
        LN_TRY(read_merge(l, j, err));
    }
}

/* The table; of equal pairs the last one counts, as in the reference. */
static ln_status build_merges(loader *l, ln_error *err) {
    text_bpe *b = l->b;
    size_t n_slots = l->n + l->n * 2 / 3 + 16;
    b->merges = ln_alloc(n_slots * sizeof *b->merges);
    if (!b->merges) return LN_OOM(err, "merges");
    b->n_slots = (uint32_t)n_slots;
    memset(b->merges, 0xff, n_slots * sizeof *b->merges);
    b->n_merges = l->n;
    for (size_t i = 0; i < l->n; i++) {
        const struct triple *t = &l->list[i];
        text_merge *m = bpe_merge_slot(b, t->left, t->right);
        *m = (text_merge){.pair = (uint64_t)t->left << 32 | t->right, .rank = (uint32_t)i, .id = t->id};
    }
    return LN_OK;
}

/* ---- the section ---- */

static ln_status read_text(ln_json *j, const char *what, char **out, size_t *n, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_NULL) return LN_OK;
    if (j->type != LN_J_STRING || *out || j->text_bytes > TEXT_MAX_TOKEN)
        return ln_json_fail(j, err, "model.%s: expected one string or null", what);
    *n = j->text_bytes;
    *out = ln_strndup(j->text, j->text_bytes);
    return *out ? LN_OK : LN_OOM(err, "the model");
}

static ln_status read_flag(ln_json *j, const char *what, bool *out, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_NULL ? LN_OK : ln_json_bool(j, what, out, err);
}

static ln_status read_type(loader *l, ln_json *j, ln_error *err) {
    LN_TRY(ln_json_want(j, LN_J_STRING, err));
    l->has_type = true;
    if (ln_json_is(j, "BPE")) return LN_OK;
    char name[80];
    return ln_fail(err, LN_EUNSUPPORTED, "%s: model.type: '%s' is not supported, BPE is", j->name, ln_excerpt(name, j->text, j->text_bytes));
}

static ln_status read_dropout(ln_json *j, ln_error *err) {
    double v = 0;
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_NULL) return LN_OK;
    if (j->type != LN_J_NUMBER || !ln_parse_f64(j->text, j->text_bytes, &v)) return ln_json_fail(j, err, "model.dropout: expected a number or null");
    if (v == 0) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED, "%s: model.dropout: a dropout other than 0 is not supported; set it to null", j->name);
}

static ln_status read_key(loader *l, ln_json *j, ln_error *err) {
    text_bpe *b = l->b;
    if (ln_json_is(j, "type")) return read_type(l, j, err);
    if (ln_json_is(j, "dropout")) return read_dropout(j, err);
    if (ln_json_is(j, "unk_token")) return read_text(j, "unk_token", &b->unk, &b->n_unk, err);
    if (ln_json_is(j, "continuing_subword_prefix")) return read_text(j, "continuing_subword_prefix", &b->prefix, &b->n_prefix, err);
    if (ln_json_is(j, "end_of_word_suffix")) return read_text(j, "end_of_word_suffix", &b->suffix, &b->n_suffix, err);
    if (ln_json_is(j, "fuse_unk")) return read_flag(j, "model.fuse_unk", &b->fuse_unk, err);
    if (ln_json_is(j, "byte_fallback")) return read_flag(j, "model.byte_fallback", &b->byte_fallback, err);
    if (ln_json_is(j, "ignore_merges")) return read_flag(j, "model.ignore_merges", &b->ignore_merges, err);
    if (ln_json_is(j, "vocab")) {
        if (l->has_vocab) return ln_json_fail(j, err, "model.vocab: expected once, found twice");
        l->has_vocab = true;
        return read_vocab(l, j, err);
    }
    if (!ln_json_is(j, "merges")) return ln_json_skip(j, err);
    if (l->has_merges) return ln_json_fail(j, err, "model.merges: expected once, found twice");
    l->has_merges = true;
    l->merges = *j;
    l->merges.unescaped = (ln_str){0};
    return l->has_vocab && !l->vocab_is_list ? read_merges(l, j, err) : ln_json_skip(j, err);
}

static ln_status read_all(loader *l, ln_json *j, ln_error *err) {
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        LN_TRY(read_key(l, j, err));
    }
    if (!l->has_type && !l->has_merges)
        return ln_fail(err, LN_EUNSUPPORTED, "%s: model: a model with neither type nor merges is not supported, BPE is", j->name);
    if (!l->has_vocab || l->vocab_is_list)
        return ln_fail(err, LN_EINVALID, "%s: model.vocab: expected an object of texts and ids, found %s", j->name, l->has_vocab ? "a list" : "nothing");
    if (!l->has_merges) return ln_fail(err, LN_EINVALID, "%s: model.merges: expected a list, found nothing", j->name);
    if (l->read_merges && l->merges_prefix == l->b->n_prefix) return LN_OK;
    ln_status st = read_merges(l, &l->merges, err);
    ln_json_close(&l->merges);
    return st;
}

ln_status bpe_read(text_bpe *b, ln_json *j, ln_error *err) {
    loader l = {.b = b};
    l.power[0] = 1;
    for (size_t i = 1; i < 64; i++) l.power[i] = l.power[i - 1] * TEXT_HASH_P;
    ln_status st = read_all(&l, j, err);
    if (st == LN_OK) st = build_merges(&l, err);
    ln_free(l.list);
    ln_str_free(&l.key);
    return st;
}

/* Bytes without which no ordinary text passes. Real vocabularies lack some others (SmolLM2: control characters, lead bytes of unused
 * planes); the reference drops those silently. */
static bool needed(unsigned byte) { return byte == '\n' || (byte >= 0x20 && byte <= 0x7e) || (byte >= 0x80 && byte <= 0xbf); }

ln_status bpe_finish(text_bpe *b, const char *name, bool byte_level, ln_error *err) {
    char text[8];
    bool whole = true, drops;
    b->has_unk = b->unk != NULL;
    b->unk_id = b->has_unk ? vocab_find(&b->vocab, b->unk, b->n_unk) : -1;
    drops = !b->has_unk && !b->byte_fallback;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        b->byte_id[i] = vocab_find(&b->vocab, text, 6);
        b->level_id[i] = vocab_find(&b->vocab, text, (size_t)ln_utf8_put(text, text_byte_cp[i]));
        if (b->level_id[i] >= 0) continue;
        whole = false;
        if (byte_level && drops && needed(i))
            return ln_fail(err, LN_EINVALID, "%s: model.vocab: expected all bytes of the byte-level alphabet, found none for 0x%02X (U+%04X)",
                           name, i, text_byte_cp[i]);
    }
    for (uint32_t cp = 0; cp < LN_COUNT(b->low_id); cp++) b->low_id[cp] = vocab_find(&b->vocab, text, (size_t)ln_utf8_put(text, cp));
    b->raw = byte_level && (whole || drops) && b->n_prefix == 0 && b->n_suffix == 0;
    return LN_OK;
}

void bpe_close(text_bpe *b) {
    vocab_close(&b->vocab);
    ln_free(b->merges);
    ln_free(b->unk);
    ln_free(b->prefix);
    ln_free(b->suffix);
    ln_free(b->cross);
    *b = (text_bpe){0};
}
