/* Opens a tokenizer from the metadata of a GGUF file (tokenizer.ggml.*; docs/gguf.md).
 *
 * Vocabulary and merges go into the tables of tok_bpe (bpe_gguf.c), and tokens that are not normal ones
 * become added tokens. Of normalizer, pre-tokenizer, post-processor and decoder the file has only the name of
 * a splitter and a few flags. They are written as the sections that tokenizer.json has for such a model, and
 * the code that reads tokenizer.json builds them. */
#include "bpe_gguf.h"

#include <stdio.h>

enum { MOST_PATTERNS = 5 };
typedef enum splitter {
#define SPLITTER(NAME, nfc, digits, gpt2, ...) SPLIT_##NAME,
#define PRE(name, SPLITTER, whole, bos)
#include "pre_tokenizers.def"
#undef SPLITTER
#undef PRE
    N_SPLITTERS
} splitter;
static const struct {
    bool nfc, digits, gpt2;
    const char *patterns[MOST_PATTERNS];
} splitters[N_SPLITTERS] = {
#define SPLITTER(NAME, nfc, digits, gpt2, ...) {nfc, digits, gpt2, __VA_ARGS__},
#define PRE(name, SPLITTER, whole, bos)
#include "pre_tokenizers.def"
#undef SPLITTER
#undef PRE
};
typedef struct pre_tokenizer {
    const char *name;
    splitter splitter;
    bool whole, bos;
} pre_tokenizer;
static const pre_tokenizer pre_tokenizers[] = {
#define SPLITTER(NAME, nfc, digits, gpt2, ...)
#define PRE(name, SPLITTER, whole, bos) {name, SPLIT_##SPLITTER, whole, bos},
#include "pre_tokenizers.def"
#undef SPLITTER
#undef PRE
};

/* The tokens that the metadata names. */
enum { ID_BOS, ID_EOS, ID_UNKNOWN, ID_PAD, ID_SEP, ID_MASK, ID_EOT, ID_EOM, N_IDS };
static const char *const id_keys[N_IDS] = {
    "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",       "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id", "tokenizer.ggml.seperator_token_id", /* the format's spelling */
    "tokenizer.ggml.mask_token_id",    "tokenizer.ggml.eot_token_id",       "tokenizer.ggml.eom_token_id"};

typedef struct gguf_tokenizer {
    const ln_gguf *g;
    char name[LN_PATH_TEXT];
    gguf_lists lists;
    bool pieces;              /* texts of tokens are characters with U+2581 for blanks, not bytes */
    const pre_tokenizer *pre; /* NULL: pieces */
    int64_t id[N_IDS];        /* -1: none */
    bool add_bos, add_eos, space_prefix, no_extra_blanks;
} gguf_tokenizer;

/* ---- metadata ---- */

static bool is_text(const ln_gguf_text *t, const char *text) {
    return t->bytes == strlen(text) && memcmp(t->data, text, t->bytes) == 0;
}

static ln_status find_pre(gguf_tokenizer *t, ln_error *err) {
    static const char key[] = "tokenizer.ggml.pre";
    ln_gguf_text name = {"default", 7};
    bool found;
    char shown[80];
    LN_TRY(ln_gguf_get_text(t->g, key, &name, &found, err));
    if (!found)
        ln_log(LN_LOG_WARN,
               "%s: key %s is missing, so texts are split by an old default; a newer conversion of the model "
               "has it",
               t->name, key);
    for (size_t i = 0; i < LN_COUNT(pre_tokenizers); i++)
        if (is_text(&name, pre_tokenizers[i].name)) t->pre = &pre_tokenizers[i];
    if (t->pre) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: key %s: the pre-tokenizer '%s' is not supported; use the model's Hugging Face "
                   "directory, whose tokenizer.json describes it",
                   t->name, key, ln_excerpt(shown, name.data, name.bytes));
}

/* Stores an array that has an element for each token. */
static ln_status per_token(const gguf_tokenizer *t, const char *key, ln_gguf_type of,
                           const ln_gguf_value **out, ln_error *err) {
    LN_TRY(ln_gguf_array(t->g, key, of, out, err));
    if (!*out || (*out)->n == t->lists.tokens->n) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: key %s: expected %llu elements, one for each token, found %llu",
                   t->name, key, (unsigned long long)t->lists.tokens->n, (unsigned long long)(*out)->n);
}

static ln_status missing(const gguf_tokenizer *t, const char *key, ln_error *err) {
    return ln_fail(err, LN_EINVALID, "%s: key %s: expected an array, found nothing", t->name, key);
}

static ln_status check_types(const gguf_tokenizer *t, const char *key, ln_error *err) {
    for (uint64_t i = 0; t->lists.types && i < t->lists.types->n; i++) {
        const int64_t type = ln_gguf_int_at(t->lists.types, i);
        if (type < 0 || type > GGUF_TOKEN_BYTE)
            return ln_fail(err, LN_EINVALID,
                           "%s: key %s[%llu]: expected a type of token up to %d, found %lld", t->name, key,
                           (unsigned long long)i, GGUF_TOKEN_BYTE, (long long)type);
    }
    return LN_OK;
}

static ln_status read_lists(gguf_tokenizer *t, bool scores, ln_error *err) {
    static const char tokens[] = "tokenizer.ggml.tokens", types[] = "tokenizer.ggml.token_type",
                      merges[] = "tokenizer.ggml.merges", score[] = "tokenizer.ggml.scores";
    gguf_lists *l = &t->lists;
    LN_TRY(ln_gguf_array(t->g, tokens, LN_GGUF_TEXT, &l->tokens, err));
    if (!l->tokens) return missing(t, tokens, err);
    if (l->tokens->n == 0 || l->tokens->n > TOK_MAX_IDS)
        return ln_fail(err, LN_EINVALID, "%s: key %s: expected 1 to %d tokens, found %llu", t->name, tokens,
                       TOK_MAX_IDS, (unsigned long long)l->tokens->n);
    LN_TRY(per_token(t, types, LN_GGUF_I64, &l->types, err));
    LN_TRY(check_types(t, types, err));
    LN_TRY(per_token(t, score, LN_GGUF_F64, &l->scores, err));
    if (scores) return l->scores ? LN_OK : missing(t, score, err);
    l->scores = NULL; /* some converters write them for models that have merges */
    LN_TRY(ln_gguf_array(t->g, merges, LN_GGUF_TEXT, &l->merges, err));
    return l->merges ? LN_OK : missing(t, merges, err);
}

static ln_status read_ids(gguf_tokenizer *t, bool llama, ln_error *err) {
    const int64_t last = (int64_t)t->lists.tokens->n - 1;
    for (int i = 0; i < N_IDS; i++) {
        bool found;
        t->id[i] = -1;
        LN_TRY(ln_gguf_int(t->g, id_keys[i], 0, last, &t->id[i], &found, err));
        const int64_t usual = i == ID_BOS ? 1 : i == ID_EOS ? 2 : 0; /* of SentencePiece */
        if (llama && !found && i <= ID_UNKNOWN && usual <= last) t->id[i] = usual;
    }
    return LN_OK;
}

static ln_status read_flags(gguf_tokenizer *t, bool llama, ln_error *err) {
    static const char bos[] = "tokenizer.ggml.add_bos_token";
    bool told;
    t->add_bos = t->pieces || t->pre->bos;
    t->space_prefix = llama;
    LN_TRY(ln_gguf_bool(t->g, bos, &t->add_bos, &told, err));
    LN_TRY(ln_gguf_bool(t->g, "tokenizer.ggml.add_eos_token", &t->add_eos, NULL, err));
    LN_TRY(ln_gguf_bool(t->g, "tokenizer.ggml.add_space_prefix", &t->space_prefix, NULL, err));
    LN_TRY(ln_gguf_bool(t->g, "tokenizer.ggml.remove_extra_whitespaces", &t->no_extra_blanks, NULL, err));
    if (t->pieces && !llama) t->add_bos = true; /* Gemma 4: files say false, and the model needs it */
    if (t->add_bos && t->id[ID_BOS] < 0 && told)
        return ln_fail(err, LN_EINVALID, "%s: key %s is true: expected %s too, found nothing", t->name, bos,
                       id_keys[ID_BOS]);
    t->add_bos = t->add_bos && t->id[ID_BOS] >= 0;
    t->add_eos = t->add_eos && t->id[ID_EOS] >= 0;
    return LN_OK;
}

static ln_status read_metadata(gguf_tokenizer *t, ln_error *err) {
    static const char key[] = "tokenizer.ggml.model";
    ln_gguf_text model = {"", 0};
    bool found;
    char shown[80];
    LN_TRY(ln_gguf_get_text(t->g, key, &model, &found, err));
    if (!found) return ln_fail(err, LN_EIO, "%s: no tokenizer: key %s is missing", t->name, key);
    const bool llama = is_text(&model, "llama");
    t->pieces = llama || is_text(&model, "gemma4");
    if (!t->pieces && !is_text(&model, "gpt2"))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: key %s: the tokenizer '%s' is not supported; gpt2, llama and gemma4 are", t->name,
                       key, ln_excerpt(shown, model.data, model.bytes));
    t->lists.marks_blanks = t->pieces;
    if (!t->pieces) LN_TRY(find_pre(t, err));
    LN_TRY(read_lists(t, llama, err));
    LN_TRY(read_ids(t, llama, err));
    return read_flags(t, llama, err);
}

/* ---- added tokens ---- */

static char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Whether control tokens take the blanks behind them away, as those of Phi 3 do. The files have no flag for
 * it. */
static bool strips_blanks(const gguf_tokenizer *t) {
    static const char *const names[] = {"phi-3", "phi3"};
    ln_gguf_text name = {"", 0};
    ln_error ignored = {0};
    if (ln_gguf_get_text(t->g, "general.name", &name, NULL, &ignored) != LN_OK) return false;
    for (size_t i = 0; i < LN_COUNT(names); i++)
        for (size_t at = 0, n = strlen(names[i]); at + n <= name.bytes; at++) {
            size_t k = 0;
            while (k < n && lower_ascii(name.data[at + k]) == names[i][k]) k++;
            if (k == n) return true;
        }
    return false;
}

static bool keeps_blanks(const char *text, size_t bytes) {
    static const char *const texts[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < LN_COUNT(texts); i++)
        if (bytes == strlen(texts[i]) && memcmp(text, texts[i], bytes) == 0) return true;
    return false;
}

static ln_status add_tokens(const gguf_tokenizer *t, ln_tok *tok, ln_error *err) {
    const bool strips = strips_blanks(t);
    for (uint64_t i = 0; i < t->lists.tokens->n; i++) {
        const int type = gguf_token_type(&t->lists, i);
        const bool special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN;
        if ((!special && type != GGUF_TOKEN_USER) || !strtab_has(&tok->bpe.vocab, (int64_t)i)) continue;
        tok_added_token a = {.id = -1, .file_id = (int32_t)i, .special = special};
        const char *text = strtab_text(&tok->bpe.vocab, (int32_t)i, &a.bytes);
        a.rstrip = strips && type == GGUF_TOKEN_CONTROL && !keeps_blanks(text, a.bytes);
        a.content = ln_strndup(text, a.bytes);
        if (!a.content) return LN_OOM(err, "added tokens");
        const ln_status st = added_wait(&tok->added, &a, err);
        if (st != LN_OK) {
            ln_free(a.content);
            return ln_prefix(err, st, "%s", t->name);
        }
    }
    return LN_OK;
}

/* ---- sections ---- */

static json_t *split_step(const char *pattern) {
    return json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", pattern, "behavior",
                     "Isolated", "invert", 0);
}

static json_t *byte_level(int use_regex) {
    return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", use_regex);
}

static json_t *byte_splitter(const gguf_tokenizer *t) {
    const splitter s = t->pre->splitter;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; ok && i < MOST_PATTERNS && splitters[s].patterns[i]; i++)
        ok = json_array_append_new(list, split_step(splitters[s].patterns[i])) == 0;
    if (ok && splitters[s].digits)
        ok = json_array_append_new(list, json_pack("{s:s,s:b}", "type", "Digits", "individual_digits", 1)) ==
             0;
    if (ok) ok = json_array_append_new(list, byte_level((int)splitters[s].gpt2)) == 0;
    json_t *section = ok ? json_pack("{s:s,s:O}", "type", "Sequence", "pretokenizers", list) : NULL;
    json_decref(list);
    return section;
}

static json_t *byte_normalizer(const gguf_tokenizer *t) {
    return splitters[t->pre->splitter].nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
}

static bool add_step(json_t *list, json_t *step) { return json_array_append_new(list, step) == 0; }

static json_t *piece_normalizer(const gguf_tokenizer *t) {
    json_t *list = json_array();
    bool ok = list != NULL;
    if (ok && t->no_extra_blanks)
        ok = add_step(list, json_pack("{s:s,s:b,s:b}", "type", "Strip", "strip_left", 1, "strip_right", 1)) &&
             add_step(list, json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern", "Regex", " {2,}",
                                      "content", " "));
    if (ok && t->space_prefix) ok = add_step(list, json_pack("{s:s,s:s}", "type", "Prepend", "prepend", " "));
    if (ok)
        ok = add_step(list, json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern", "String", " ",
                                      "content", "\xe2\x96\x81"));
    json_t *section = ok ? json_pack("{s:s,s:O}", "type", "Sequence", "normalizers", list) : NULL;
    json_decref(list);
    return section;
}

static json_t *piece_decoder(const gguf_tokenizer *t) {
    json_t *list = json_array();
    bool ok = list &&
              add_step(list, json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern", "String",
                                       "\xe2\x96\x81", "content", " ")) &&
              add_step(list, json_pack("{s:s}", "type", "ByteFallback")) &&
              add_step(list, json_pack("{s:s}", "type", "Fuse"));
    if (ok && t->space_prefix)
        ok = add_step(list,
                      json_pack("{s:s,s:s,s:i,s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    json_t *section = ok ? json_pack("{s:s,s:O}", "type", "Sequence", "decoders", list) : NULL;
    json_decref(list);
    return section;
}

static bool make_sections(const gguf_tokenizer *t, json_t **sections) {
    sections[TOK_NORMALIZER] = t->pieces ? piece_normalizer(t) : byte_normalizer(t);
    sections[TOK_PRE] = t->pieces ? json_null() : byte_splitter(t);
    sections[TOK_DECODER] = t->pieces ? piece_decoder(t) : byte_level(1);
    return sections[TOK_NORMALIZER] && sections[TOK_PRE] && sections[TOK_DECODER];
}

/* Writes the post-processor: bos before a text and eos after it. */
static ln_status add_template(const gguf_tokenizer *t, tok_post *post, ln_error *err) {
    if (!t->add_bos && !t->add_eos) return LN_OK;
    LN_TRY(ln_grow((void **)&post->items, &post->cap, 4, sizeof *post->items, err));
    if (t->add_bos) post->items[post->n++] = (int32_t)t->id[ID_BOS];
    post->items[post->n++] = POST_TEXT;
    if (t->add_eos) post->items[post->n++] = (int32_t)t->id[ID_EOS];
    post->items[post->n++] = POST_END;
    return LN_OK;
}

/* ---- opening ---- */

static ln_status set_unknown(const gguf_tokenizer *t, tok_bpe *b, ln_error *err) {
    size_t bytes;
    b->byte_fallback = b->fuse_unk = true;
    const int64_t id = t->id[ID_UNKNOWN];
    if (!strtab_has(&b->vocab, id)) return LN_OK;
    const char *text = strtab_text(&b->vocab, (int32_t)id, &bytes);
    b->unk = ln_strndup(text, bytes);
    b->n_unk = bytes;
    return b->unk ? LN_OK : LN_OOM(err, "a tokenizer");
}

static ln_status fill(const gguf_tokenizer *t, ln_tok *tok, tok_opening *o, ln_error *err) {
    LN_TRY(bpe_read_gguf(&tok->bpe, &t->lists, err));
    if (t->pieces) LN_TRY(set_unknown(t, &tok->bpe, err));
    else tok->bpe.ignore_merges = t->pre->whole;
    LN_TRY(add_tokens(t, tok, err));
    if (!make_sections(t, o->sections)) return LN_OOM(err, "a tokenizer");
    LN_TRY(tok_finish(tok, o, err));
    return add_template(t, &tok->post, err);
}

ln_status ln_tok_open_gguf(ln_tok **out, const ln_gguf *g, ln_error *err) {
    gguf_tokenizer t = {.g = g};
    tok_opening o = {.name = t.name};
    *out = NULL;
    ln_path_text(t.name, g->files[0].path);
    t.lists.name = t.name;
    LN_TRY(read_metadata(&t, err));
    ln_tok *tok = ln_zalloc(1, sizeof *tok);
    if (!tok) return LN_OOM(err, "a tokenizer");
    const ln_status st = fill(&t, tok, &o, err);
    for (int i = 0; i < TOK_SECTIONS; i++) json_decref(o.sections[i]);
    if (st == LN_OK) *out = tok;
    else ln_tok_close(&tok);
    return st;
}

/* ---- tokenizer.json ---- */

/* The text of a token. */
static json_t *text_of(const ln_tok *tok, int64_t id) {
    size_t bytes;
    if (!strtab_has(&tok->bpe.vocab, id)) return json_null();
    const char *text = strtab_text(&tok->bpe.vocab, (int32_t)id, &bytes);
    return json_stringn(text, bytes);
}

static json_t *model_of(const gguf_tokenizer *t, const ln_tok *tok, ln_error *err) {
    json_t *merges = json_array(), *vocab = json_object(), *model = NULL;
    bool ok = merges && vocab;
    for (uint64_t i = 0; i < t->lists.tokens->n && ok; i++) {
        json_t *text = text_of(tok, (int64_t)i);
        const char *key = json_string_value(text); /* NULL: an unused token */
        ok = text && (!key || json_object_set_new(vocab, key, json_integer((json_int_t)i)) == 0);
        json_decref(text);
    }
    const ln_status st = ok ? bpe_list_merges(&t->lists, merges, err) : LN_OOM(err, "a tokenizer");
    if (st == LN_OK) {
        model =
            json_pack("{s:s,s:n,s:o,s:n,s:n,s:b,s:b,s:b,s:O,s:O}", "type", "BPE", "dropout", "unk_token",
                      t->pieces ? text_of(tok, t->id[ID_UNKNOWN]) : json_null(), "continuing_subword_prefix",
                      "end_of_word_suffix", "fuse_unk", (int)t->pieces, "byte_fallback", (int)t->pieces,
                      "ignore_merges", (int)tok->bpe.ignore_merges, "vocab", vocab, "merges", merges);
        if (!model) (void)LN_OOM(err, "a tokenizer");
    }
    json_decref(vocab);
    json_decref(merges);
    return model;
}

static json_t *added_of(const gguf_tokenizer *t, const ln_tok *tok) {
    const bool strips = strips_blanks(t);
    json_t *list = json_array();
    for (uint64_t i = 0; list && i < t->lists.tokens->n; i++) {
        const int type = gguf_token_type(&t->lists, i);
        const bool special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN;
        size_t bytes;
        if ((!special && type != GGUF_TOKEN_USER) || !strtab_has(&tok->bpe.vocab, (int64_t)i)) continue;
        const char *text = strtab_text(&tok->bpe.vocab, (int32_t)i, &bytes);
        const bool rstrip = strips && type == GGUF_TOKEN_CONTROL && !keeps_blanks(text, bytes);
        json_t *one = json_pack("{s:I,s:s%,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)i, "content", text, bytes,
                                "single_word", 0, "lstrip", 0, "rstrip", (int)rstrip, "normalized", 0,
                                "special", (int)special);
        if (json_array_append_new(list, one) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static bool add_special(const ln_tok *tok, int64_t id, int type, json_t *sequence, json_t *specials) {
    json_t *text = text_of(tok, id);
    const char *name = json_string_value(text);
    const bool ok = name &&
                    json_array_append_new(sequence, json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", name,
                                                              "type_id", type)) == 0 &&
                    json_object_set_new(specials, name,
                                        json_pack("{s:s,s:[I],s:[s]}", "id", name, "ids", (json_int_t)id,
                                                  "tokens", name)) == 0;
    json_decref(text);
    return ok;
}
/* Appends the template of one text. */
static bool add_sequence(const gguf_tokenizer *t, const ln_tok *tok, const char *name, int type, json_t *list,
                         json_t *specials) {
    if (t->add_bos && !add_special(tok, t->id[ID_BOS], type, list, specials)) return false;
    if (json_array_append_new(list, json_pack("{s:{s:s,s:i}}", "Sequence", "id", name, "type_id", type)) != 0)
        return false;
    return !t->add_eos || add_special(tok, t->id[ID_EOS], type, list, specials);
}
static json_t *post_of(const gguf_tokenizer *t, const ln_tok *tok) {
    if (!t->add_bos && !t->add_eos) return json_null();
    json_t *single = json_array(), *pair = json_array(), *specials = json_object();
    const bool ok = single && pair && specials && add_sequence(t, tok, "A", 0, single, specials) &&
                    add_sequence(t, tok, "A", 0, pair, specials) &&
                    add_sequence(t, tok, "B", 1, pair, specials);
    json_t *post = ok ? json_pack("{s:s,s:O,s:O,s:O}", "type", "TemplateProcessing", "single", single, "pair",
                                  pair, "special_tokens", specials)
                      : NULL;
    json_decref(single);
    json_decref(pair);
    json_decref(specials);
    return post;
}

/* Names the tokens that the metadata names, as the classes of the reference call them. */
static json_t *config_of(const gguf_tokenizer *t, const ln_tok *tok) {
    static const char *const names[N_IDS] = {
        [ID_BOS] = "bos_token", [ID_EOS] = "eos_token", [ID_UNKNOWN] = "unk_token",
        [ID_PAD] = "pad_token", [ID_SEP] = "sep_token", [ID_MASK] = "mask_token"};
    json_t *out = json_pack("{s:s,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                            "clean_up_tokenization_spaces", 0);
    for (int i = 0; i < N_IDS && out; i++) {
        if (!names[i] || t->id[i] < 0) continue;
        if (json_object_set_new(out, names[i], text_of(tok, t->id[i])) == 0) continue;
        json_decref(out);
        return NULL;
    }
    return out;
}

static ln_status write_json(const gguf_tokenizer *t, const ln_tok *tok, json_t *const *sections, json_t **out,
                            json_t **config, ln_error *err) {
    json_t *model = model_of(t, tok, err);
    if (!model) return err->code;
    *out = json_pack("{s:s,s:n,s:n,s:o,s:O,s:O,s:o,s:O,s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", added_of(t, tok), "normalizer", sections[TOK_NORMALIZER],
                     "pre_tokenizer", sections[TOK_PRE], "post_processor", post_of(t, tok), "decoder",
                     sections[TOK_DECODER], "model", model);
    *config = config_of(t, tok);
    return *out && *config ? LN_OK : LN_OOM(err, "a tokenizer");
}

ln_status ln_tok_json_of_gguf(json_t **tokenizer, json_t **config, const ln_gguf *g, ln_error *err) {
    gguf_tokenizer t = {.g = g};
    ln_tok *tok;
    json_t *sections[TOK_SECTIONS] = {0};
    *tokenizer = *config = NULL;
    LN_TRY(ln_tok_open_gguf(&tok, g, err));
    ln_path_text(t.name, g->files[0].path);
    t.lists.name = t.name;
    ln_status st = read_metadata(&t, err);
    if (st == LN_OK && !make_sections(&t, sections)) st = LN_OOM(err, "a tokenizer");
    if (st == LN_OK) st = write_json(&t, tok, sections, tokenizer, config, err);
    for (int i = 0; i < TOK_SECTIONS; i++) json_decref(sections[i]);
    ln_tok_close(&tok);
    return st;
}
