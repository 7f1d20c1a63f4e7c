/* Reads the model section of tokenizer.json: vocabulary and merges go from the pull parser directly into
 * tables (bpe_tables.h), without a tree of JSON values.
 *
 * The keys of the section may come in any order. When the merges come before the vocabulary or the prefix
 * that they depend on, the loader saves the state of the parser and reads them at the end. */
#include "bpe_tables.h"

#include <stdio.h>

typedef struct loader {
    bpe_tables t;
    ln_json merges; /* copy of the parser's state before the merges */
    bool has_merges, read_merges, has_vocab, vocab_is_list, has_type;
    size_t merges_prefix; /* n_prefix when the merges were read */
} loader;

/* ---- vocabulary ---- */

static ln_status read_entry(loader *l, ln_json *j, ln_error *err) {
    const size_t offset = j->offset, at = l->t.texts.len;
    if (j->text_bytes > TOK_MAX_TOKEN)
        return ln_json_fail(j, err, "model.vocab: expected tokens of at most %d bytes, found %zu",
                            TOK_MAX_TOKEN, j->text_bytes);
    LN_TRY(utf8_append(&l->t.texts, j->text, j->text_bytes, err));
    LN_TRY(ln_json_next(j, err));
    uint64_t id;
    if (j->type != LN_J_NUMBER || !ln_parse_u64(j->text, j->text_bytes, &id) || id >= TOK_MAX_IDS) {
        char key[80], found[80];
        return ln_json_fail(j, err, "model.vocab: '%s': expected an id from 0 to %d, found %s",
                            ln_excerpt(key, l->t.texts.data + at, l->t.texts.len - at), TOK_MAX_IDS - 1,
                            ln_json_found(j, found));
    }
    return bpe_hold_token(&l->t, offset, at, (uint32_t)id, err);
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
    LN_TRY(strtab_open(&l->t.b->vocab, j->bytes / 128, err));
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        LN_TRY(read_entry(l, j, err));
    }
    LN_TRY(bpe_take_tokens(&l->t, err));
    if (l->t.b->vocab.n_used == 0)
        return ln_json_fail(j, err, "model.vocab: expected at least one token, found none");
    return LN_OK;
}

/* ---- merges ---- */

static ln_status read_merge(loader *l, ln_json *j, ln_error *err) {
    size_t at = l->t.texts.len, index = l->t.n + l->t.n_batch;
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
        LN_TRY(utf8_append(&l->t.texts, s, n, err));
        LN_TRY(utf8_append(&l->t.texts, blank + 1, rest, err));
        return bpe_hold_merge(&l->t, j->offset, at, n, err);
    }
    if (j->type != LN_J_ARRAY)
        return ln_json_fail(j, err, "model.merges[%zu]: expected a string or a pair, found %s", index,
                            ln_json_found(j, found));
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING)
        return ln_json_fail(j, err, "model.merges[%zu]: expected a pair of strings, found %s", index,
                            ln_json_found(j, found));
    size_t n = j->text_bytes;
    LN_TRY(utf8_append(&l->t.texts, j->text, n, err));
    LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_STRING)
        return ln_json_fail(j, err, "model.merges[%zu]: expected a pair of strings, found %s", index,
                            ln_json_found(j, found));
    LN_TRY(utf8_append(&l->t.texts, j->text, j->text_bytes, err));
    LN_TRY(bpe_hold_merge(&l->t, j->offset, at, n, err));
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_ARRAY_END
               ? LN_OK
               : ln_json_fail(j, err, "model.merges[%zu]: expected a pair, found a third item: %s", index,
                              ln_json_found(j, found));
}

static ln_status read_merges(loader *l, ln_json *j, ln_error *err) {
    l->t.j = j;
    l->read_merges = true;
    l->merges_prefix = l->t.b->n_prefix;
    LN_TRY(bpe_begin_merges(&l->t, err));
    LN_TRY(ln_json_want(j, LN_J_ARRAY, err));
    for (bool more;;) {
        const char *text[2];
        size_t bytes[2], at = l->t.texts.len;
        if (ln_json_pair(j, text, bytes)) {
            LN_TRY(utf8_append(&l->t.texts, text[0], bytes[0], err));
            LN_TRY(utf8_append(&l->t.texts, text[1], bytes[1], err));
            LN_TRY(bpe_hold_merge(&l->t, j->offset, at, bytes[0], err));
            continue;
        }
        LN_TRY(ln_json_item(j, &more, err));
        if (!more) return bpe_take_merges(&l->t, err);
        LN_TRY(read_merge(l, j, err));
    }
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
    tok_bpe *b = l->t.b;
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
    if (l->read_merges && l->merges_prefix == l->t.b->n_prefix) return LN_OK;
    ln_status st = read_merges(l, &l->merges, err);
    ln_json_close(&l->merges);
    return st;
}

ln_status bpe_read(tok_bpe *b, ln_json *j, ln_error *err) {
    loader l = {.t = {.b = b, .j = j, .name = j->name, .vocab = "model.vocab", .merges = "model.merges"}};
    ln_status st = read_all(&l, j, err);
    if (st == LN_OK) st = bpe_build_merges(&l.t, err);
    bpe_tables_close(&l.t);
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
