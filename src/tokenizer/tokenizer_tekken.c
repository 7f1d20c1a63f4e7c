/* Opens tekken.json, the vocabulary of Mistral's models, as mistral-common's Tekkenizer does: byte sequences
 * with ranks, a pattern that splits texts, and special tokens, which have the first ids.
 *
 *     id of a special token  its rank; those that are not listed are called <SPECIAL_i>
 *     id of another token    its rank plus the number of special tokens, below the size of the vocabulary
 *
 * A text between special tokens is split by the pattern. A part that is a token is that token; else the two
 * neighbours whose joined bytes have the lowest rank are joined, again and again. In terms of tokenizer.json
 * it is a BPE model that ignores merges, over the alphabet of bytes. */
#include "../base/base64.h"
#include "../unicode/unicode.h"
#include "bpe_tables.h"

#include <stdio.h>

enum { TEKKEN_MOST_SPECIAL = 1 << 16, TEKKEN_OLD_VERSION = 7, TEKKEN_PATTERN = 1 << 16 };

/* Special tokens of files up to version 7, which do not list them. */
static const char *const old_special[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

typedef struct tekken {
    const char *name;
    ln_tok *tok;
    bpe_tables t;
    json_t *config, *special; /* sections; NULL: absent */
    uint64_t n_ids, n_special;
    ln_str bytes;
    uint32_t *rank; /* [n_ids] */
} tekken;

/* ---- sections ---- */

static ln_status cut(ln_json *j, const char *what, json_t **out, ln_error *err) {
    if (*out) return ln_json_fail(j, err, "%s: expected once, found twice", what);
    LN_TRY(ln_json_next(j, err));
    const size_t from = j->offset;
    LN_TRY(ln_json_skip(j, err));
    const ln_status st = ln_json_load(out, what, j->data + from, j->at - from, err);
    return st == LN_OK ? LN_OK : ln_prefix(err, st, "%s", j->name);
}

/* Reads everything but the vocabulary, whose ids depend on it. */
static ln_status read_sections(tekken *k, ln_json *j, ln_error *err) {
    LN_TRY(ln_json_want(j, LN_J_OBJECT, err));
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        if (ln_json_is(j, "config")) LN_TRY(cut(j, "config", &k->config, err));
        else if (ln_json_is(j, "special_tokens")) LN_TRY(cut(j, "special_tokens", &k->special, err));
        else LN_TRY(ln_json_skip(j, err));
    }
    LN_TRY(ln_json_want(j, LN_J_END, err));
    if (json_is_object(k->config)) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: config: expected an object, found %s", k->name,
                   k->config ? "another value" : "nothing");
}

static ln_status config_size(const tekken *k, const char *what, uint64_t most, uint64_t *out, ln_error *err) {
    const json_t *v = json_object_get(k->config, what);
    char found[80];
    if (json_is_integer(v) && json_integer_value(v) > 0 && (uint64_t)json_integer_value(v) <= most) {
        *out = (uint64_t)json_integer_value(v);
        return LN_OK;
    }
    return ln_fail(err, LN_EINVALID, "%s: config.%s: expected 1 to %llu, found %s", k->name, what,
                   (unsigned long long)most, v ? ln_json_text(v, found) : "nothing");
}

static ln_status read_config(tekken *k, ln_error *err) {
    LN_TRY(config_size(k, "default_vocab_size", TOK_MAX_IDS, &k->n_ids, err));
    LN_TRY(config_size(k, "default_num_special_tokens", TEKKEN_MOST_SPECIAL, &k->n_special, err));
    const json_t *pattern = json_object_get(k->config, "pattern"), *v = json_object_get(k->config, "version");
    const char *version = json_is_string(v) ? json_string_value(v) : "";
    uint64_t number = 0;
    if (!json_is_string(pattern) || json_string_length(pattern) > TEKKEN_PATTERN)
        return ln_fail(err, LN_EINVALID, "%s: config.pattern: expected a pattern", k->name);
    if (k->n_ids <= k->n_special)
        return ln_fail(err, LN_EINVALID,
                       "%s: config.default_vocab_size: expected more than default_num_special_tokens %llu, "
                       "found %llu",
                       k->name, (unsigned long long)k->n_special, (unsigned long long)k->n_ids);
    if (version[0] != 'v' || !ln_parse_u64(version + 1, strlen(version + 1), &number))
        return ln_fail(err, LN_EINVALID, "%s: config.version: expected v and a number", k->name);
    if (!k->special && number > TEKKEN_OLD_VERSION)
        return ln_fail(err, LN_EINVALID,
                       "%s: special_tokens: expected in a file of version %s, found nothing", k->name,
                       version);
    return LN_OK;
}

/* ---- tokens ---- */

static ln_status add_special(tekken *k, const char *text, size_t bytes, uint64_t id, bool control,
                             ln_error *err) {
    const size_t at = k->t.texts.len;
    tok_added_token a = {.id = -1, .file_id = (int32_t)id, .special = control};
    LN_TRY(utf8_append(&k->t.texts, text, bytes, err));
    LN_TRY(bpe_hold_token(&k->t, 0, at, (uint32_t)id, err));
    a.content = ln_strndup(text, bytes);
    a.bytes = bytes;
    if (!a.content) return LN_OOM(err, "added tokens");
    const ln_status st = added_wait(&k->tok->added, &a, err);
    if (st == LN_OK) return LN_OK;
    ln_free(a.content);
    return ln_prefix(err, st, "%s", k->name);
}

/* The tokens of the list have the ranks 0, 1, ... */
static ln_status add_listed(tekken *k, uint64_t *n, ln_error *err) {
    const json_t *one;
    size_t i;
    if (!json_is_array(k->special) || json_array_size(k->special) > k->n_special)
        return ln_fail(err, LN_EINVALID, "%s: special_tokens: expected a list of at most %llu tokens",
                       k->name, (unsigned long long)k->n_special);
    json_array_foreach(k->special, i, one) {
        const json_t *text = json_object_get(one, "token_str"), *rank = json_object_get(one, "rank");
        if (!json_is_string(text) || json_string_length(text) == 0 ||
            json_string_length(text) > TOK_MAX_TOKEN || !json_is_integer(rank) ||
            json_integer_value(rank) != (json_int_t)i)
            return ln_fail(err, LN_EINVALID,
                           "%s: special_tokens[%zu]: expected a token_str and rank %zu, in order", k->name, i,
                           i);
        LN_TRY(add_special(k, json_string_value(text), json_string_length(text), i,
                           !json_is_false(json_object_get(one, "is_control")), err));
    }
    *n = i;
    return LN_OK;
}

static ln_status add_all_special(tekken *k, ln_error *err) {
    uint64_t n = 0;
    if (k->special && !json_is_null(k->special)) LN_TRY(add_listed(k, &n, err));
    else
        for (; n < LN_COUNT(old_special) && n < k->n_special; n++)
            LN_TRY(add_special(k, old_special[n], strlen(old_special[n]), n, true, err));
    for (; n < k->n_special; n++) {
        char text[40];
        const int bytes = snprintf(text, sizeof text, "<SPECIAL_%llu>", (unsigned long long)n);
        LN_TRY(add_special(k, text, (size_t)bytes, n, true, err));
    }
    return LN_OK;
}

/* Appends the characters of the byte-level alphabet for k->bytes. */
static ln_status append_alphabet(tekken *k, ln_error *err) {
    for (size_t i = 0; i < k->bytes.len; i++)
        LN_TRY(utf8_append_cp(&k->t.texts, byte_level_cp[(uint8_t)k->bytes.data[i]], err));
    return LN_OK;
}

static ln_status read_token(tekken *k, ln_json *j, ln_error *err) {
    uint64_t rank = UINT64_MAX;
    const size_t at = k->t.texts.len, offset = j->offset;
    k->bytes.len = 0;
    if (j->type != LN_J_OBJECT) return ln_json_fail(j, err, "vocab: expected objects");
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        if (ln_json_is(j, "rank")) {
            LN_TRY(ln_json_next(j, err));
            LN_TRY(ln_json_u64(j, "vocab: rank", &rank, err));
        } else if (ln_json_is(j, "token_bytes")) {
            LN_TRY(ln_json_next(j, err));
            k->bytes.len = 0;
            if (j->type != LN_J_STRING || j->text_bytes > 2 * TOK_MAX_TOKEN ||
                !ln_str_unbase64(&k->bytes, j->text, j->text_bytes))
                return ln_json_fail(j, err, "vocab: token_bytes: expected at most %d bytes in base64",
                                    TOK_MAX_TOKEN);
        } else LN_TRY(ln_json_skip(j, err));
    }
    if (k->bytes.failed) return LN_OOM(err, "a vocabulary");
    if (k->bytes.len == 0 || k->bytes.len > TOK_MAX_TOKEN / 2 || rank == UINT64_MAX)
        return ln_json_fail(j, err, "vocab: expected a rank and token_bytes");
    if (rank >= k->n_ids - k->n_special) return LN_OK; /* beyond the vocabulary that the model has */
    k->rank[k->n_special + rank] = (uint32_t)rank;
    LN_TRY(append_alphabet(k, err));
    return bpe_hold_token(&k->t, offset, at, (uint32_t)(k->n_special + rank), err);
}

static ln_status read_vocab(tekken *k, ln_json *j, ln_error *err) {
    LN_TRY(ln_json_want(j, LN_J_OBJECT, err));
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) return LN_OK;
        if (!ln_json_is(j, "vocab")) {
            LN_TRY(ln_json_skip(j, err));
            continue;
        }
        LN_TRY(ln_json_want(j, LN_J_ARRAY, err));
        for (bool item;;) {
            LN_TRY(ln_json_item(j, &item, err));
            if (!item) break;
            LN_TRY(read_token(k, j, err));
        }
    }
}

static ln_status check_vocab(const tekken *k, ln_error *err) {
    for (uint64_t id = k->n_special; id < k->n_ids; id++)
        if (k->rank[id] == BPE_NOT_MERGED)
            return ln_fail(err, LN_EINVALID, "%s: vocab: rank %llu is missing", k->name,
                           (unsigned long long)(id - k->n_special));
    return LN_OK;
}

/* ---- opening ---- */

static ln_status read_model(tekken *k, const char *json, size_t bytes, ln_error *err) {
    ln_json j;
    LN_TRY(read_config(k, err));
    k->rank = ln_alloc((size_t)k->n_ids * sizeof *k->rank);
    if (!k->rank) return LN_OOM(err, "a vocabulary");
    for (uint64_t id = 0; id < k->n_ids; id++) k->rank[id] = BPE_NOT_MERGED;
    LN_TRY(strtab_open(&k->tok->bpe.vocab, (size_t)k->n_ids, err));
    LN_TRY(add_all_special(k, err));
    ln_json_open(&j, k->name, json, bytes, LN_JSON_MAX_DEPTH);
    k->t.j = &j;
    ln_status st = read_vocab(k, &j, err);
    if (st == LN_OK) st = bpe_take_tokens(&k->t, err);
    k->t.j = NULL;
    ln_json_close(&j);
    LN_TRY(st);
    LN_TRY(check_vocab(k, err));
    LN_TRY(bpe_cut_tokens(&k->t, k->rank, (size_t)k->n_ids, err));
    k->tok->bpe.ignore_merges = true;
    return bpe_build_merges(&k->t, err);
}

static ln_status finish(const tekken *k, tok_opening *o, ln_error *err) {
    o->sections[TOK_PRE] =
        json_pack("{s:s,s:[{s:s,s:{s:O},s:s,s:b},{s:s,s:b,s:b}]}", "type", "Sequence", "pretokenizers",
                  "type", "Split", "pattern", "Regex", json_object_get(k->config, "pattern"), "behavior",
                  "Isolated", "invert", 0, "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
    o->sections[TOK_DECODER] = json_pack("{s:s}", "type", "ByteLevel");
    if (!o->sections[TOK_PRE] || !o->sections[TOK_DECODER]) return LN_OOM(err, "a tokenizer");
    LN_TRY(tok_finish(k->tok, o, err));
    const int32_t bos = ln_tok_id(k->tok, "<s>", 3);
    tok_post *post = &k->tok->post;
    if (bos < 0 || post->n > 0) return LN_OK;
    LN_TRY(ln_grow((void **)&post->items, &post->cap, 3, sizeof *post->items, err));
    post->items[post->n++] = bos;
    post->items[post->n++] = POST_TEXT;
    post->items[post->n++] = POST_END;
    return LN_OK;
}

ln_status tok_open_tekken(ln_tok **out, const char *name, const char *json, size_t bytes, bool lower,
                          ln_error *err) {
    tok_opening o = {.name = name, .lower = lower};
    tekken k = {.name = name, .tok = ln_zalloc(1, sizeof *k.tok)};
    ln_json j;
    *out = NULL;
    if (!k.tok) return LN_OOM(err, "a tokenizer");
    k.t = (bpe_tables){.b = &k.tok->bpe, .name = name, .vocab = "vocab", .merges = "vocab"};
    ln_json_open(&j, name, json, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = read_sections(&k, &j, err);
    ln_json_close(&j);
    if (st == LN_OK) st = read_model(&k, json, bytes, err);
    if (st == LN_OK) st = finish(&k, &o, err);
    for (int i = 0; i < TOK_SECTIONS; i++) json_decref(o.sections[i]);
    bpe_tables_close(&k.t);
    json_decref(k.config);
    json_decref(k.special);
    ln_str_free(&k.bytes);
    ln_free(k.rank);
    if (st == LN_OK) *out = k.tok;
    else ln_tok_close(&k.tok);
    return st;
}
