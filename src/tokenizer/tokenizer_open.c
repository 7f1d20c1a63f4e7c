/* Opens tokenizer.json: dispatches its sections, initialises them in the order of their dependencies, and
 * implements the queries on an open tokenizer (counts, ids, texts).
 *
 * The model and the added tokens go from the pull parser directly into tables; the small sections are parsed
 * into trees. The keys of the file may come in any order, so everything with a dependency (added tokens on
 * the vocabulary and the normalizer, post-processors on ids) is initialised after the end of the document.
 * Truncation and padding are validated and otherwise ignored, because the caller decides about lengths. */
#include "tokenizer_internal.h"

#include "../base/gguf.h"

static const char *const section_names[TOK_SECTIONS] = {"normalizer", "pre_tokenizer", "post_processor",
                                                        "decoder",    "truncation",    "padding"};

typedef struct opening {
    ln_tok *t;
    tok_opening parts;
    bool has_model, has_added;
} opening;

static ln_status twice(ln_json *j, const char *key, ln_error *err) {
    return ln_json_fail(j, err, "%s: expected once, found twice", key);
}

/* Parses the value of the current key into a tree, o->sections[which]. */
static ln_status cut_section(opening *o, ln_json *j, int which, ln_error *err) {
    if (o->parts.sections[which]) return twice(j, section_names[which], err);
    LN_TRY(ln_json_next(j, err));
    size_t from = j->offset;
    LN_TRY(ln_json_skip(j, err));
    if (j->at - from > TOK_MAX_SECTION)
        return ln_json_fail(j, err, "%s: expected at most %d bytes, found %zu", section_names[which],
                            TOK_MAX_SECTION, j->at - from);
    ln_status st =
        ln_json_load(&o->parts.sections[which], section_names[which], j->data + from, j->at - from, err);
    return st == LN_OK ? LN_OK : ln_prefix(err, st, "%s", o->parts.name);
}

static ln_status read_key(opening *o, ln_json *j, ln_error *err) {
    for (int i = 0; i < TOK_SECTIONS; i++)
        if (ln_json_is(j, section_names[i])) return cut_section(o, j, i, err);
    if (ln_json_is(j, "added_tokens")) {
        if (o->has_added) return twice(j, "added_tokens", err);
        o->has_added = true;
        return added_read(&o->t->added, j, err);
    }
    if (!ln_json_is(j, "model")) return ln_json_skip(j, err);
    if (o->has_model) return twice(j, "model", err);
    o->has_model = true;
    LN_TRY(ln_json_want(j, LN_J_OBJECT, err));
    return bpe_read(&o->t->bpe, j, err);
}

static ln_status read_document(opening *o, ln_json *j, ln_error *err) {
    LN_TRY(ln_json_want(j, LN_J_OBJECT, err));
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        LN_TRY(read_key(o, j, err));
    }
    LN_TRY(ln_json_want(j, LN_J_END, err));
    return o->has_model ? LN_OK
                        : ln_fail(err, LN_EINVALID, "%s: expected a model, found none", o->parts.name);
}

/* Validates the sections truncation and padding, which have no other effect. */
static ln_status check_lengths(const json_t *truncation, const json_t *padding, ln_error *err) {
    if (json_is_object(truncation)) {
        size_t most, stride;
        LN_TRY(section_size(truncation, "truncation", "max_length", SIZE_MAX, &most, err));
        LN_TRY(section_size(truncation, "truncation", "stride", 0, &stride, err));
        if (stride > 0 && stride >= most)
            return ln_fail(err, LN_EINVALID,
                           "truncation.stride: expected less than max_length %zu, found %zu", most, stride);
        ln_log(LN_LOG_DEBUG, "tokenizer.json: truncation is ignored");
    }
    if (json_is_object(padding)) {
        const json_t *strategy = json_object_get(padding, "strategy"),
                     *fixed = json_object_get(strategy, "Fixed");
        size_t multiple;
        char found[80];
        LN_TRY(section_size(padding, "padding", "pad_to_multiple_of", 0, &multiple, err));
        if (fixed && (!json_is_integer(fixed) || json_integer_value(fixed) < 0 ||
                      json_integer_value(fixed) > INT32_MAX))
            return ln_fail(err, LN_EINVALID,
                           "padding.strategy.Fixed: expected a length from 0 to %d, found %s", INT32_MAX,
                           ln_json_text(fixed, found));
        ln_log(LN_LOG_DEBUG, "tokenizer.json: padding is ignored");
    }
    return LN_OK;
}

static ln_status read_sections(ln_tok *t, const tok_opening *o, ln_error *err) {
    json_t *const parts[3] = {o->sections[TOK_NORMALIZER], o->sections[TOK_PRE], o->sections[TOK_DECODER]};
    if (o->config) LN_TRY(class_apply(t, o->config, parts, err));
    if (o->config) LN_TRY(class_compare(t, o->config, parts, err));
    LN_TRY(check_lengths(o->sections[TOK_TRUNCATION], o->sections[TOK_PADDING], err));
    LN_TRY(norm_read(&t->norm, o->sections[TOK_NORMALIZER], err));
    if (o->lower) LN_TRY(norm_lower_first(&t->norm, err));
    LN_TRY(pre_read(&t->pre, o->sections[TOK_PRE], err));
    return dec_read(&t->dec, o->sections[TOK_DECODER], err);
}

/* Shrinks the table's buffers to their contents. A failed realloc keeps the larger buffer. */
static void trim(string_table *v) {
    char *heap = ln_realloc(v->heap, v->n_heap + 1);
    strtab_span *span = ln_realloc(v->span, (v->n_span + 1) * sizeof *span);
    if (heap) {
        v->heap = heap;
        v->heap_cap = v->n_heap + 1;
    }
    if (span) {
        v->span = span;
        v->span_cap = v->n_span + 1;
    }
}

/* Adds tokens of a caller, whose texts have commas between. */
static ln_status add_texts(ln_tok *t, const char *texts, ln_error *err) {
    for (size_t n; texts; texts = texts[n] ? texts + n + 1 : NULL) {
        n = strcspn(texts, ",");
        if (n == 0 || n > TOK_MAX_TOKEN)
            return ln_fail(err, LN_EUSAGE,
                           "ln_options.add_tokens: expected texts of 1 to %d bytes with commas between",
                           (int)TOK_MAX_TOKEN);
        tok_added_token one = {.content = ln_strndup(texts, n), .bytes = n, .id = -1, .file_id = -1};
        const ln_status st = one.content ? added_wait(&t->added, &one, err) : LN_OOM(err, "added tokens");
        if (st != LN_OK) {
            ln_free(one.content);
            return st;
        }
    }
    return added_number(&t->added, "ln_options.add_tokens", &t->bpe.vocab, false, err);
}

ln_status tok_finish(ln_tok *t, const tok_opening *o, ln_error *err) {
    ln_status st = read_sections(t, o, err);
    if (st != LN_OK) return ln_prefix(err, st, "%s", o->name);
    LN_TRY(bpe_finish(&t->bpe, o->name, t->pre.has_bytes, err));
    t->bpe.raw = t->bpe.raw && t->pre.n > 0 && t->pre.steps[t->pre.n - 1].kind == PRE_BYTES;
    if (t->bpe.raw) { /* raw pieces are short and not cut into segments */
        ln_free(t->bpe.cross);
        t->bpe.cross = NULL;
    }
    LN_TRY(added_number(&t->added, o->name, &t->bpe.vocab, true, err));
    if (o->config) {
        LN_TRY(config_tokens(o->config, o->sections[TOK_PADDING], &t->added, err));
        LN_TRY(added_number(&t->added, o->config->decoder ? "tokenizer_config.json" : "added_tokens.json",
                            &t->bpe.vocab, false, err));
    }
    LN_TRY(add_texts(t, o->more, err));
    LN_TRY(added_finish(&t->added, &t->norm, err));
    LN_TRY(post_read(&t->post, o->name, o->sections[TOK_POST], &t->bpe.vocab, err));
    trim(&t->bpe.vocab);
    t->n_flags = t->bpe.vocab.n_span;
    t->flags = ln_zalloc(t->n_flags + 1, 1);
    if (!t->flags) return LN_OOM(err, "a tokenizer");
    t->longest = tok_longest(t);
    return added_flags(&t->added, t->flags, err);
}

static ln_status open_document(ln_tok **out, const char *name, const char *json, size_t bytes,
                               const text_config *config, bool lower, const char *more, ln_error *err) {
    opening o = {.parts = {.name = name, .config = config, .lower = lower, .more = more},
                 .t = ln_zalloc(1, sizeof *o.t)};
    ln_json j;
    *out = NULL;
    if (!o.t) return LN_OOM(err, "a tokenizer");
    ln_json_open(&j, name, json, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = read_document(&o, &j, err);
    ln_json_close(&j);
    if (st == LN_OK) st = tok_finish(o.t, &o.parts, err);
    for (int i = 0; i < TOK_SECTIONS; i++) json_decref(o.parts.sections[i]);
    if (st == LN_OK) *out = o.t;
    else ln_tok_close(&o.t);
    return st;
}

ln_status ln_tok_open_memory(ln_tok **out, const char *name, const char *json, size_t bytes, ln_error *err) {
    return open_document(out, name, json, bytes, NULL, false, NULL, err);
}

/* If the directory of *path, a tokenizer.json, has only a tekken.json, makes *path that file. */
static ln_status find_tekken(ln_str *path, bool *found, ln_error *err) {
    const int n = (int)(path->len - strlen("tokenizer.json"));
    ln_str tekken = {0};
    bool there;
    LN_TRY(ln_look(path->data, &there, err));
    if (there) return LN_OK;
    ln_str_addf(&tekken, "%.*stekken.json", n, path->data);
    const ln_status st = tekken.failed ? LN_OOM(err, "a path") : ln_look(tekken.data, found, err);
    if (st != LN_OK || !*found) {
        ln_str_free(&tekken);
        return st;
    }
    ln_str_free(path);
    *path = tekken;
    return LN_OK;
}

static ln_status open_dir(ln_tok **out, const char *dir, bool lower, const char *more, ln_error *err) {
    ln_str path = {0};
    ln_map map = {0};
    text_config config = {0};
    char shown[LN_PATH_TEXT];
    bool is_tekken = false;
    ln_status st;
    *out = NULL;
    ln_str_addf(&path, "%s%stokenizer.json", dir, *dir && dir[strlen(dir) - 1] == '/' ? "" : "/");
    if (path.failed) return LN_OOM(err, "a path");
    LN_GO(find_tekken(&path, &is_tekken, err));
    LN_GO(ln_map_open(&map, path.data, err));
    LN_GO(config_open(&config, dir, err));
    ln_path_text(shown, path.data);
    if (map.bytes > TOK_MAX_FILE)
        st = ln_fail(err, LN_EINVALID, "%s: expected at most %d bytes, found %zu", shown, TOK_MAX_FILE,
                     map.bytes);
    else if (is_tekken && more)
        st = ln_fail(err, LN_EUNSUPPORTED, "ln_options.add_tokens: expected tokenizer.json, found %s", shown);
    else if (is_tekken) st = tok_open_tekken(out, shown, (const char *)map.data, map.bytes, lower, err);
    else st = open_document(out, shown, (const char *)map.data, map.bytes, &config, lower, more, err);
    if (ln_map_broken(&map)) { /* the file was truncated while it was read: no result is valid */
        ln_tok_close(out);
        st = ln_map_check(&map, path.data, err);
    }
out:
    ln_map_close(&map);
    config_close(&config);
    ln_str_free(&path);
    return st;
}

static ln_status open_gguf(ln_tok **out, const char *path, ln_error *err) {
    ln_gguf *g;
    *out = NULL;
    LN_TRY(ln_gguf_open(&g, path, err));
    const ln_status st = ln_tok_open_gguf(out, g, err);
    ln_gguf_close(&g);
    return st;
}

ln_status ln_tok_open(ln_tok **out, const char *dir, ln_error *err) {
    return ln_gguf_is_file(dir) ? open_gguf(out, dir, err) : open_dir(out, dir, false, NULL, err);
}

ln_status ln_tok_open_lower(ln_tok **out, const char *dir, ln_error *err) {
    return open_dir(out, dir, true, NULL, err);
}

ln_status ln_tok_open_adding(ln_tok **out, const char *dir, const char *texts, ln_error *err) {
    *out = NULL;
    if (ln_gguf_is_file(dir))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "ln_options.add_tokens: expected a model directory, found a GGUF file");
    return open_dir(out, dir, false, texts, err);
}

ln_status ln_tok_open_absent(ln_tok **out, const ln_error *why, ln_error *err) {
    *out = ln_zalloc(1, sizeof **out);
    if (!*out) return LN_OOM(err, "a tokenizer");
    (*out)->absent = *why;
    return LN_OK;
}

ln_status ln_tok_check(const ln_tok *tok, ln_error *err) {
    if (tok->absent.code == LN_OK) return LN_OK;
    return ln_fail(err, tok->absent.code, "%s", tok->absent.message);
}

void ln_tok_close(ln_tok **tok) {
    ln_tok *t = *tok;
    if (!t) return;
    bpe_close(&t->bpe);
    added_close(&t->added);
    norm_close(&t->norm);
    pre_close(&t->pre);
    post_close(&t->post);
    dec_close(&t->dec);
    ln_free(t->flags);
    ln_free(t);
    *tok = NULL;
}

/* ---- queries ---- */

int32_t ln_tok_count(const ln_tok *tok) { return (int32_t)tok->bpe.vocab.n_span; }

int32_t ln_tok_vocab(const ln_tok *tok) { return (int32_t)tok->bpe.n_ids; }

int32_t ln_tok_id(const ln_tok *tok, const char *content, size_t bytes) {
    int32_t id = strtab_find(&tok->bpe.vocab, content, bytes);
    for (size_t i = 0; id < 0 && i < tok->added.n; i++) {
        const tok_added_token *t = &tok->added.t[i];
        if (t->bytes == bytes && memcmp(t->content, content, bytes) == 0) id = t->id;
    }
    return id;
}

const char *ln_tok_content(const ln_tok *tok, int32_t id, size_t *bytes) {
    if (!strtab_has(&tok->bpe.vocab, id)) return NULL;
    return strtab_text(&tok->bpe.vocab, id, bytes);
}

bool ln_tok_is_special(const ln_tok *tok, int32_t id) {
    return id >= 0 && (size_t)id < tok->n_flags && (tok->flags[id] & TOK_FLAG_SPECIAL) != 0;
}

const char *tok_shown(const ln_tok *tok, int32_t id, size_t *bytes, bool *skip) {
    const char *text = ln_tok_content(tok, id, bytes);
    *skip = false;
    if (!text) return NULL;
    *skip = (tok->flags[id] & TOK_FLAG_SKIP) != 0;
    if (!(tok->flags[id] & TOK_FLAG_SHOWN)) return text;
    size_t lo = 0, hi = tok->added.n_shown;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (tok->added.shown[mid].id <= id) lo = mid;
        else hi = mid;
    }
    const tok_added_token *t = &tok->added.t[tok->added.shown[lo].token];
    *bytes = t->n_shown;
    return t->shown;
}
