/* Reads the model section: vocabulary and merges go from the pull parser directly into tables, without a tree
 * of JSON values.
 *
 * Each merge takes three lookups in the vocabulary: its left part, its right part, and both joined. The
 * tables exceed the caches and the lookups are random accesses, so the loader collects merges in batches and
 * prefetches their cache lines, which halves the time to open Gemma 3. The merges are collected in a list
 * until their number is known; then they are inserted into one hash table with open addressing, 16 bytes a
 * slot, at a load factor of 60 %. While reading the merges, the loader also fills a bitmap of the pairs of
 * characters that a merge can join; bpe.c may cut a text at every other pair without changing an id.
 *
 * The keys of the section may come in any order. When the merges come before the vocabulary or the prefix
 * that they depend on, the loader saves the state of the parser and reads them at the end. */
#include "tokenizer_internal.h"

#include <stdio.h>

enum { BATCH = 64 };

/* A merge of the current batch. Its left and right texts follow each other in loader.texts from `at` on. A
 * vocabulary entry uses the same struct: the left text is its text, n_right its id. */
typedef struct waiting {
    size_t offset; /* in the file, for messages */
    uint32_t at, n_left, n_right;
    uint64_t left, right; /* hashes */
} waiting;

typedef struct loader {
    tok_bpe *b;
    ln_json merges; /* copy of the parser's state before the merges */
    bool has_merges, read_merges, has_vocab, vocab_is_list, has_type;
    size_t merges_prefix; /* n_prefix when the merges were read */
    struct triple {
        uint32_t left, right;
        int32_t id;
    } * list;
    size_t n, cap;
    waiting batch[BATCH];
    size_t n_batch;
    ln_str texts, joined;
} loader;

/* ---- vocabulary ---- */

static ln_status take_vocab(loader *l, ln_json *j, ln_error *err) {
    string_table *v = &l->b->vocab;
    for (size_t i = 0; i < l->n_batch; i++) strtab_prefetch(v, l->batch[i].left, 0);
    for (size_t i = 0; i < l->n_batch; i++) {
        const waiting *m = &l->batch[i];
        const char *text = l->texts.data + m->at;
        int32_t clash;
        ln_status st = strtab_add(v, text, m->n_left, m->left, (int32_t)m->n_right, &clash, err);
        if (st != LN_OK) return ln_prefix(err, st, "%s: model.vocab", j->name);
        if (clash < 0) continue;
        char key[80];
        j->offset = m->offset;
        return ln_json_fail(j, err, "model.vocab: expected each text once, found '%s' twice",
                            ln_excerpt(key, text, m->n_left));
    }
    l->n_batch = l->texts.len = 0;
    return LN_OK;
}

static ln_status read_entry(loader *l, ln_json *j, ln_error *err) {
    waiting *m = &l->batch[l->n_batch];
    if (j->text_bytes > TOK_MAX_TOKEN)
        return ln_json_fail(j, err, "model.vocab: expected tokens of at most %d bytes, found %zu",
                            TOK_MAX_TOKEN, j->text_bytes);
    *m = (waiting){.offset = j->offset, .at = (uint32_t)l->texts.len, .n_left = (uint32_t)j->text_bytes};
    m->left = strtab_hash(j->text, j->text_bytes);
    LN_TRY(utf8_append(&l->texts, j->text, j->text_bytes, err));
    LN_TRY(ln_json_next(j, err));
    uint64_t id;
    if (j->type != LN_J_NUMBER || !ln_parse_u64(j->text, j->text_bytes, &id) || id >= TOK_MAX_IDS) {
        char key[80], found[80];
        return ln_json_fail(j, err, "model.vocab: '%s': expected an id from 0 to %d, found %s",
                            ln_excerpt(key, l->texts.data + m->at, m->n_left), TOK_MAX_IDS - 1,
                            ln_json_found(j, found));
    }
    m->n_right = (uint32_t)id;
    return ++l->n_batch == BATCH ? take_vocab(l, j, err) : LN_OK;
}

static ln_status read_vocab(loader *l, ln_json *j, ln_error *err) {
    char found[80];
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_ARRAY) { /* a Unigram vocabulary; a later key "type" gives the better message */
        l->vocab_is_list = true;
        return ln_json_skip(j, err);
    }
    if (j->type != LN_J_OBJECT)
        return ln_json_fail(j, err, "model.vocab: expected an object of texts and ids, found %s",
                            ln_json_found(j, found));
    LN_TRY(strtab_open(&l->b->vocab, j->bytes / 128, err));
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        LN_TRY(read_entry(l, j, err));
    }
    LN_TRY(take_vocab(l, j, err));
    if (l->b->vocab.n_used == 0)
        return ln_json_fail(j, err, "model.vocab: expected at least one token, found none");
    return LN_OK;
}

/* ---- merges ---- */

static uint32_t first_cp(const char *s, size_t n) {
    uint32_t cp = 0;
    if (n > 0) (void)utf8_next(s, &cp);
    return cp;
}
static uint32_t last_cp(const char *s, size_t n) {
    size_t at = n > 0 ? n - 1 : 0;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
    return first_cp(s + at, n - at);
}

static ln_status unknown_part(const loader *l, ln_json *j, const waiting *m, const char *s, size_t n,
                              ln_error *err) {
    char text[80];
    j->offset = m->offset;
    return ln_json_fail(j, err, "model.merges[%zu]: expected tokens of the vocabulary, found '%s'", l->n,
                        ln_excerpt(text, s, n));
}

/* Whether the token `id` has this text. */
static bool is_token(const string_table *v, int64_t id, const char *text, size_t bytes) {
    if (!strtab_has(v, id) || v->span[id].bytes != bytes) return false;
    return strtab_same(v->heap + v->span[id].at, text, bytes);
}

/* The token of the two parts of m joined, -1 when there is none. Lists of merges usually follow the order of
 * the vocabulary, and converted lists have all splits of a token next to each other. So the function first
 * tries the token of the preceding merge and the id after it, and hashes the text only when both differ. */
static ln_status join(loader *l, const waiting *m, int32_t *id, ln_error *err) {
    const string_table *v = &l->b->vocab;
    const char *text = l->texts.data + m->at;
    size_t bytes = m->n_left + m->n_right, skip = l->b->n_prefix;
    if (skip > 0) {
        l->joined.len = 0;
        LN_TRY(utf8_append(&l->joined, text, m->n_left, err));
        LN_TRY(utf8_append(&l->joined, text + m->n_left + skip, m->n_right - skip, err));
        text = l->joined.data;
        bytes -= skip;
    }
    *id = l->n > 0 ? l->list[l->n - 1].id : -1;
    if (is_token(v, *id, text, bytes)) return LN_OK;
    if (is_token(v, (int64_t)*id + 1, text, bytes)) ++*id;
    else *id = strtab_find_hash(v, strtab_hash(text, bytes), text, bytes);
    return LN_OK;
}

static ln_status take_merge(loader *l, ln_json *j, const waiting *m, ln_error *err) {
    tok_bpe *b = l->b;
    const string_table *v = &b->vocab;
    const char *a = l->texts.data + m->at, *s = a + m->n_left;
    int32_t left = strtab_find_hash(v, m->left, a, m->n_left),
            right = strtab_find_hash(v, m->right, s, m->n_right), id;
    if (left < 0) return unknown_part(l, j, m, a, m->n_left, err);
    if (right < 0) return unknown_part(l, j, m, s, m->n_right, err);
    LN_TRY(join(l, m, &id, err));
    if (id < 0) {
        char x[80], y[80];
        j->offset = m->offset;
        return ln_json_fail(j, err,
                            "model.merges[%zu]: expected '%s' + '%s' to give a token of the vocabulary, "
                            "found none",
                            l->n, ln_excerpt(x, a, m->n_left), ln_excerpt(y, s, m->n_right));
    }
    uint32_t bit = bpe_cross_bit(last_cp(a, m->n_left), first_cp(s, m->n_right));
    b->cross[bit / 64] |= (uint64_t)1 << bit % 64;
    if (l->n == l->cap) LN_TRY(ln_grow((void **)&l->list, &l->cap, l->n + 1, sizeof *l->list, err));
    l->list[l->n++] = (struct triple){(uint32_t)left, (uint32_t)right, id};
    return LN_OK;
}

static ln_status take_batch(loader *l, ln_json *j, ln_error *err) {
    const string_table *v = &l->b->vocab;
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < l->n_batch; i++) {
            strtab_prefetch(v, l->batch[i].left, step);
            strtab_prefetch(v, l->batch[i].right, step);
        }
    }
    for (size_t i = 0; i < l->n_batch; i++) LN_TRY(take_merge(l, j, &l->batch[i], err));
    l->n_batch = l->texts.len = 0;
    return LN_OK;
}

/* Adds a merge to the batch; its two texts are at the end of l->texts, the left one from `at` on. */
static ln_status hold_merge(loader *l, ln_json *j, size_t at, size_t n_left, ln_error *err) {
    waiting *m = &l->batch[l->n_batch];
    const char *a = l->texts.data + at, *s = a + n_left;
    size_t n = l->texts.len - at - n_left, skip = l->b->n_prefix;
    if (n_left > TOK_MAX_TOKEN || n > TOK_MAX_TOKEN)
        return ln_json_fail(j, err, "model.merges[%zu]: expected tokens of at most %d bytes",
                            l->n + l->n_batch, TOK_MAX_TOKEN);
    if (skip > n || (skip < n && ((unsigned char)s[skip] & 0xc0) == 0x80)) {
        char text[80], prefix[80];
        return ln_json_fail(j, err,
                            "model.merges[%zu]: expected a right part that is longer than "
                            "continuing_subword_prefix '%s', found '%s'",
                            l->n + l->n_batch, ln_excerpt(prefix, l->b->prefix, skip),
                            ln_excerpt(text, s, n));
    }
    if (l->n + l->n_batch >= TOK_MAX_MERGES)
        return ln_json_fail(j, err, "model.merges: expected at most %d, found more", TOK_MAX_MERGES);
    *m = (waiting){.offset = j->offset,
                   .at = (uint32_t)at,
                   .n_left = (uint32_t)n_left,
                   .n_right = (uint32_t)n};
    m->left = strtab_hash(a, n_left);
    m->right = strtab_hash(s, n);
    return ++l->n_batch == BATCH ? take_batch(l, j, err) : LN_OK;
}

static ln_status read_merge(loader *l, ln_json *j, ln_error *err) {
    size_t at = l->texts.len, index = l->n + l->n_batch;
    char found[80];
    if (j->type == LN_J_STRING) { /* "left right" */
        const char *s = j->text, *blank = memchr(s, ' ', j->text_bytes);
        size_t n = blank ? (size_t)(blank - s) : 0, rest = blank ? j->text_bytes - n - 1 : 0;
        if (!blank || memchr(blank + 1, ' ', rest) != NULL) {
            char text[80];
            return ln_json_fail(j, err,
                                "model.merges[%zu]: expected two tokens with one space between, found '%s'",
                                index, ln_excerpt(text, s, j->text_bytes));
        }
        LN_TRY(utf8_append(&l->texts, s, n, err));
        LN_TRY(utf8_append(&l->texts, blank + 1, rest, err));
        return hold_merge(l, j, at, n, err);
    }
    if (j->type != LN_J_ARRAY)
        return ln_json_fail(j, err, "model.merges[%zu]: expected a string or a pair, found %s", index,
                            ln_json_found(j, found));
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING)
        return ln_json_fail(j, err, "model.merges[%zu]: expected a pair of strings, found %s", index,
                            ln_json_found(j, found));
    size_t n = j->text_bytes;
    LN_TRY(utf8_append(&l->texts, j->text, n, err));
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING)
        return ln_json_fail(j, err, "model.merges[%zu]: expected a pair of strings, found %s", index,
                            ln_json_found(j, found));
    LN_TRY(utf8_append(&l->texts, j->text, j->text_bytes, err));
    LN_TRY(hold_merge(l, j, at, n, err));
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_ARRAY_END
               ? LN_OK
               : ln_json_fail(j, err, "model.merges[%zu]: expected a pair, found a third item: %s", index,
                              ln_json_found(j, found));
}

static ln_status read_merges(loader *l, ln_json *j, ln_error *err) {
    l->n = l->n_batch = l->texts.len = 0;
    l->read_merges = true;
    l->merges_prefix = l->b->n_prefix;
    if (!l->b->cross) l->b->cross = ln_zalloc((size_t)1 << (TOK_CROSS_BITS - 6), sizeof *l->b->cross);
    if (!l->b->cross) return LN_OOM(err, "merges");
    LN_TRY(ln_json_want(j, LN_J_ARRAY, err));
    for (bool more;;) {
        const char *text[2];
        size_t bytes[2], at = l->texts.len;
        if (ln_json_pair(j, text, bytes)) {
            LN_TRY(utf8_append(&l->texts, text[0], bytes[0], err));
            LN_TRY(utf8_append(&l->texts, text[1], bytes[1], err));
            LN_TRY(hold_merge(l, j, at, bytes[0], err));
            continue;
        }
        LN_TRY(ln_json_item(j, &more, err));
        if (!more) return take_batch(l, j, err);
        LN_TRY(read_merge(l, j, err));
    }
}

/* Builds the hash table of merges. Of several merges of the same pair, the last one counts, as in the
 * reference. */
static ln_status build_merges(loader *l, ln_error *err) {
    tok_bpe *b = l->b;
    size_t n_slots = l->n + l->n * 2 / 3 + 16;
    b->merges = ln_alloc(n_slots * sizeof *b->merges);
    if (!b->merges) return LN_OOM(err, "merges");
    b->n_slots = (uint32_t)n_slots;
    memset(b->merges, 0xff, n_slots * sizeof *b->merges);
    b->n_merges = l->n;
    for (size_t i = 0; i < l->n; i++) {
        const struct triple *t = &l->list[i], *ahead = &l->list[LN_MIN(i + 16, l->n - 1)];
        __builtin_prefetch(&b->merges[bpe_merge_place(b, ahead->left, ahead->right)], 1);
        tok_merge *m = bpe_merge_slot(b, t->left, t->right);
        *m = (tok_merge){.pair = (uint64_t)t->left << 32 | t->right, .rank = (uint32_t)i, .id = t->id};
    }
    return LN_OK;
}

/* ---- the section ---- */

static ln_status read_text(ln_json *j, const char *what, char **out, size_t *n, ln_error *err) {
    char found[80];
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_NULL) return LN_OK;
    if (j->type != LN_J_STRING || *out || j->text_bytes > TOK_MAX_TOKEN)
        return ln_json_fail(j, err, "model.%s: expected one string or null, found %s", what,
                            *out ? "a second one" : ln_json_found(j, found));
    *n = j->text_bytes;
    *out = ln_strndup(j->text, j->text_bytes);
    return *out ? LN_OK : LN_OOM(err, "the model");
}

static ln_status read_flag(ln_json *j, const char *what, bool *out, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_NULL ? LN_OK : ln_json_bool(j, what, out, err);
}

static ln_status read_type(loader *l, ln_json *j, ln_error *err) {
    char name[80];
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING)
        return ln_json_fail(j, err, "model.type: expected a string, found %s", ln_json_found(j, name));
    l->has_type = true;
    if (ln_json_is(j, "BPE")) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED, "%s: model.type: '%s' is not supported, BPE is", j->name,
                   ln_excerpt(name, j->text, j->text_bytes));
}

static ln_status read_dropout(ln_json *j, ln_error *err) {
    double v = 0;
    char found[80];
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_NULL) return LN_OK;
    if (j->type != LN_J_NUMBER || !ln_parse_f64(j->text, j->text_bytes, &v))
        return ln_json_fail(j, err, "model.dropout: expected a number or null, found %s",
                            ln_json_found(j, found));
    if (v == 0) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: model.dropout: a dropout other than 0 is not supported, found %s; set it to null",
                   j->name, ln_json_found(j, found));
}

static ln_status read_key(loader *l, ln_json *j, ln_error *err) {
    tok_bpe *b = l->b;
    if (ln_json_is(j, "type")) return read_type(l, j, err);
    if (ln_json_is(j, "dropout")) return read_dropout(j, err);
    if (ln_json_is(j, "unk_token")) return read_text(j, "unk_token", &b->unk, &b->n_unk, err);
    if (ln_json_is(j, "continuing_subword_prefix"))
        return read_text(j, "continuing_subword_prefix", &b->prefix, &b->n_prefix, err);
    if (ln_json_is(j, "end_of_word_suffix"))
        return read_text(j, "end_of_word_suffix", &b->suffix, &b->n_suffix, err);
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
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: model: a model with neither type nor merges is not supported, BPE is", j->name);
    if (!l->has_vocab || l->vocab_is_list)
        return ln_fail(err, LN_EINVALID, "%s: model.vocab: expected an object of texts and ids, found %s",
                       j->name, l->has_vocab ? "a list" : "nothing");
    if (!l->has_merges)
        return ln_fail(err, LN_EINVALID, "%s: model.merges: expected a list, found nothing", j->name);
    if (l->read_merges && l->merges_prefix == l->b->n_prefix) return LN_OK;
    ln_status st = read_merges(l, &l->merges, err);
    ln_json_close(&l->merges);
    return st;
}

ln_status bpe_read(tok_bpe *b, ln_json *j, ln_error *err) {
    loader l = {.b = b};
    ln_status st = read_all(&l, j, err);
    if (st == LN_OK) st = build_merges(&l, err);
    ln_free(l.list);
    ln_str_free(&l.texts);
    ln_str_free(&l.joined);
    return st;
}

/* Whether ordinary text needs the byte: line feed, printable ASCII, continuation bytes of UTF-8. Published
 * vocabularies lack some other bytes (SmolLM2: control characters, lead bytes of unassigned planes), which
 * the reference drops silently. */
static bool needed(unsigned byte) {
    return byte == '\n' || (byte >= 0x20 && byte <= 0x7e) || (byte >= 0x80 && byte <= 0xbf);
}

ln_status bpe_finish(tok_bpe *b, const char *name, bool byte_level, ln_error *err) {
    char text[8];
    bool whole = true, drops;
    b->n_ids = b->vocab.n_span;
    b->has_unk = b->unk != NULL;
    b->unk_id = b->has_unk ? strtab_find(&b->vocab, b->unk, b->n_unk) : -1;
    drops = !b->has_unk && !b->byte_fallback;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        b->byte_id[i] = strtab_find(&b->vocab, text, 6);
        b->level_id[i] = strtab_find(&b->vocab, text, (size_t)ln_utf8_put(text, byte_level_cp[i]));
        if (b->level_id[i] >= 0) continue;
        whole = false;
        if (byte_level && drops && needed(i))
            return ln_fail(err, LN_EINVALID,
                           "%s: model.vocab: expected all bytes of the byte-level alphabet, found none for "
                           "0x%02X (U+%04X)",
                           name, i, byte_level_cp[i]);
    }
    for (uint32_t cp = 0; cp < LN_COUNT(b->low_id); cp++)
        b->low_id[cp] = strtab_find(&b->vocab, text, (size_t)ln_utf8_put(text, cp));
    b->raw = byte_level && (whole || drops) && b->n_prefix == 0 && b->n_suffix == 0;
    return LN_OK;
}

void bpe_close(tok_bpe *b) {
    strtab_close(&b->vocab);
    ln_free(b->merges);
    ln_free(b->unk);
    ln_free(b->prefix);
    ln_free(b->suffix);
    ln_free(b->cross);
    *b = (tok_bpe){0};
}
