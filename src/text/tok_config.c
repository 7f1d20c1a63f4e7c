/* The tokens that the files beside tokenizer.json add, in the order in which transformers 5 adds them.
 *
 * transformers opens tokenizer.json and then adds, in one list: the tokens of tokenizer_config.json's
 * added_tokens_decoder, by their numbers; the named special tokens (bos_token, eos_token and so on, then
 * other keys that end in _token); and extra_special_tokens, which older files call additional_special_tokens.
 * Without an added_tokens_decoder it first reads special_tokens_map.json, whose values replace those of
 * tokenizer_config.json, and added_tokens.json. A named or extra token that is an added token already is left
 * alone, but a named one becomes special. add_bos_token and add_eos_token have no effect beside a
 * tokenizer.json. */
#include "tok.h"

#include "../base/file.h"

#include <stdlib.h>

enum { CONFIG_MOST = 16 << 20, N_STANDARD = 7, STANDARD_PAD = 4 };
static const char *const standard_names[N_STANDARD] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                        "pad_token", "cls_token", "mask_token"};
static const char own_name[] = "tokenizer.json", config_name[] = "tokenizer_config.json",
                  map_name[] = "special_tokens_map.json", added_name[] = "added_tokens.json";

static const char clean_up[] = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";

/* ---- the files ---- */

static ln_status load(json_t **out, const char *dir, const char *name, ln_error *err) {
    ln_str path = {0};
    char shown[LN_PATH_TEXT], found[80];
    *out = NULL;
    ln_str_addf(&path, "%s%s%s", dir, *dir && dir[strlen(dir) - 1] == '/' ? "" : "/", name);
    ln_status st = path.failed ? LN_OOM(err, "a path") : LN_OK;
    if (st == LN_OK && ln_exists(path.data)) st = ln_json_load_file(out, path.data, CONFIG_MOST, err);
    if (st == LN_OK && *out && !json_is_object(*out))
        st = ln_fail(err, LN_EINVALID, "%s: expected an object, found %s", ln_path_text(shown, path.data),
                     ln_json_text(*out, found));
    ln_str_free(&path);
    return st;
}

ln_status config_open(text_config *c, const char *dir, ln_error *err) {
    *c = (text_config){0};
    ln_status st = load(&c->config, dir, config_name, err);
    c->decoder = json_object_get(c->config, "added_tokens_decoder");
    if (json_is_null(c->decoder)) c->decoder = NULL;
    if (st == LN_OK && !c->decoder) st = load(&c->map, dir, map_name, err);
    if (st == LN_OK && !c->decoder) st = load(&c->added, dir, added_name, err);
    if (st != LN_OK) config_close(c);
    return st;
}

void config_close(text_config *c) {
    json_decref(c->config);
    json_decref(c->map);
    json_decref(c->added);
    *c = (text_config){0};
}

/* ---- what they name ---- */

/* A named or extra token: a text, or an object with its flags. */
typedef struct value {
    const char *file, *key;
    const json_t *json;
} value;
typedef struct values {
    value *v;
    size_t n, cap;
} values;
typedef struct names {
    value standard[N_STANDARD];      /* json NULL: none */
    values by_object, by_text,
        extra; /* other keys that end in _token, in their two forms; extra special tokens */
    value additional;                 /* the older name of extra ones: used where nothing has the newer one */
    size_t n_standard;                /* of by_object once all are joined there */
    bool has_extra, has_pad;
} names;

static ln_status add_value(values *v, value x, ln_error *err) {
    LN_TRY(ln_grow((void **)&v->v, &v->cap, v->n + 1, sizeof *v->v, err));
    v->v[v->n++] = x;
    return LN_OK;
}

/* A key again replaces its value and keeps its place. */
static ln_status set_value(values *v, value x, ln_error *err) {
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->v[i].key, x.key) == 0) return v->v[i] = x, LN_OK;
    return add_value(v, x, err);
}

static int standard_of(const char *key) {
    for (int i = 0; i < N_STANDARD; i++)
        if (strcmp(key, standard_names[i]) == 0) return i;
    return -1;
}

static bool is_token_key(const char *key) {
    size_t n = strlen(key);
    return n > 6 && strcmp(key + n - 6, "_token") == 0;
}

static bool is_given(const json_t *v) { return v && !json_is_null(v); }

static ln_status bad(const value *v, const char *want, ln_error *err) {
    char found[80];
    return ln_fail(err, LN_EINVALID, "%s: %s: expected %s, found %s", v->file, v->key, want,
                   ln_json_text(v->json, found));
}

/* A list of extra special tokens, or an object of named ones. */
static ln_status add_extra(names *n, value list, ln_error *err) {
    const char *key;
    json_t *item;
    size_t i;
    if (!is_given(list.json)) return LN_OK;
    if (json_is_object(list.json)) {
        json_object_foreach((json_t *)(uintptr_t)list.json, key, item)
            LN_TRY(set_value(&n->by_text, (value){list.file, key, item}, err));
        return LN_OK;
    }
    if (!json_is_array(list.json)) return bad(&list, "a list of tokens, or an object of named ones", err);
    json_array_foreach(list.json, i, item)
        LN_TRY(add_value(&n->extra, (value){list.file, list.key, item}, err));
    return LN_OK;
}

static ln_status read_named(names *n, const char *file, const json_t *root, bool texts_by_text,
                            ln_error *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        value x = {file, key, v};
        int k = standard_of(key);
        if (k >= 0) {
            n->standard[k] = x;
            n->has_pad |= k == STANDARD_PAD;
        } else if (is_token_key(key) &&
                   (json_is_string(v) || json_is_object(v) || json_is_null(v))) { /* null keeps its place */
            LN_TRY(set_value(json_is_string(v) && texts_by_text ? &n->by_text : &n->by_object, x, err));
        }
    }
    return LN_OK;
}

/* Empty, as Python judges it. */
static bool is_empty(const json_t *v) {
    return !is_given(v) || (json_array_size(v) == 0 && json_object_size(v) == 0);
}

static ln_status read_config(names *n, const json_t *root, ln_error *err) {
    const json_t *extra = json_object_get(root, "extra_special_tokens");
    n->additional =
        (value){config_name, "additional_special_tokens", json_object_get(root, "additional_special_tokens")};
    LN_TRY(read_named(n, config_name, root, true, err));
    if (is_empty(extra) && n->additional.json) {
        value list = n->additional;
        n->additional.json = NULL;
        n->has_extra = !json_is_object(list.json);
        return add_extra(n, list, err);
    }
    n->has_extra = extra && !json_is_object(extra);
    return add_extra(n, (value){config_name, "extra_special_tokens", extra}, err);
}

/* An object or null replaces the extra tokens so far, a list is added to them. */
static ln_status read_map(names *n, const json_t *root, ln_error *err) {
    const json_t *extra = json_object_get(root, "extra_special_tokens"),
                 *more = json_object_get(root, "additional_special_tokens");
    LN_TRY(read_named(n, map_name, root, false, err));
    if (json_is_object(extra) || json_is_null(extra)) n->extra.n = 0;
    if (extra) n->has_extra = !json_is_object(extra);
    if (more) n->additional = (value){map_name, "additional_special_tokens", more};
    return add_extra(n, (value){map_name, "extra_special_tokens", extra}, err);
}

static ln_status read_additional(names *n, ln_error *err) {
    if (!n->has_extra) return add_extra(n, n->additional, err);
    if (!is_empty(n->additional.json))
        ln_log(LN_LOG_WARN,
               "%s: additional_special_tokens is not used beside extra_special_tokens, as in transformers",
               n->additional.file);
    return LN_OK;
}

/* All named tokens in transformers' order, into by_object. */
static ln_status join_named(names *n, ln_error *err) {
    values all = {0};
    ln_status st = LN_OK;
    for (size_t i = 0; i < n->by_text.n; i++) LN_GO(set_value(&n->by_object, n->by_text.v[i], err));
    for (size_t i = 0; i < n->by_object.n; i++) {
        int k = standard_of(n->by_object.v[i].key);
        if (k >= 0) n->standard[k] = n->by_object.v[i];
    }
    for (int k = 0; k < N_STANDARD; k++)
        if (is_given(n->standard[k].json)) LN_GO(add_value(&all, n->standard[k], err));
    n->n_standard = all.n;
    for (size_t i = 0; i < n->by_object.n; i++)
        if (standard_of(n->by_object.v[i].key) < 0 && is_given(n->by_object.v[i].json))
            LN_GO(add_value(&all, n->by_object.v[i], err));
out:
    ln_free(n->by_object.v);
    n->by_object = all;
    return st;
}

static void names_close(names *n) {
    ln_free(n->by_object.v);
    ln_free(n->by_text.v);
    ln_free(n->extra.v);
}

/* ---- tokens ---- */

/* Tokens with the numbers that a file gives them. Only their order counts. */
typedef struct numbered {
    int64_t number;
    size_t at; /* equal numbers: the last one wins */
    text_added_token t;
} numbered;

typedef struct adding {
    text_added *a;
    names names;
    text_vocab named;    /* contents of named tokens */
    text_vocab reserved; /* contents of standard and extra ones that are texts: what added_tokens.json holds
                            of them is not normalized */
    text_vocab known;    /* contents of numbered tokens */
    text_vocab added;    /* named and extra tokens so far, each with its form and flags */
    numbered *list;
    size_t n, cap;
} adding;

static ln_status content_of(const value *v, const char **text, size_t *bytes, ln_error *err) {
    const json_t *o = v->json, *content = json_is_object(o) ? json_object_get(o, "content") : o;
    if (!json_is_string(content)) return bad(v, "a token: a text, or an object with a text as content", err);
    *text = json_string_value(content);
    *bytes = json_string_length(content);
    if (*bytes <= TEXT_MAX_TOKEN) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: %s: expected at most %d bytes, found %zu", v->file, v->key,
                   TEXT_MAX_TOKEN, *bytes);
}

static ln_status note(text_vocab *set, const char *text, size_t bytes, ln_error *err) {
    int32_t twin;
    if (vocab_find(set, text, bytes) >= 0) return LN_OK;
    return vocab_add(set, text, bytes, text_hash(text, bytes), (int32_t)set->n_used, &twin, err);
}

static ln_status note_all(text_vocab *set, const values *list, size_t n, bool texts_only, ln_error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *text;
        size_t bytes;
        LN_TRY(content_of(&list->v[i], &text, &bytes, err));
        bool is_text = json_is_string(list->v[i].json) || strcmp(list->v[i].file, map_name) == 0;
        if (texts_only && (!is_text || list->v[i].file == own_name)) continue;
        LN_TRY(note(set, text, bytes, err));
    }
    return LN_OK;
}

/* A text is a special token; an object has its own flags, and is special when it is named. Unless it says so,
 * a special token is not normalized and others are. t->content is yours. */
static ln_status read_token(const adding *g, const value *v, bool special, text_added_token *t,
                            ln_error *err) {
    char what[160];
    const char *text;
    *t = (text_added_token){.id = -1, .file_id = -1};
    LN_TRY(content_of(v, &text, &t->bytes, err));
    snprintf(what, sizeof what, "%s: %s", v->file, v->key);
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"special", &t->special},
                 {"lstrip", &t->lstrip},
                 {"rstrip", &t->rstrip},
                 {"single_word", &t->single_word}};
    for (size_t i = 0; json_is_object(v->json) && i < LN_COUNT(flags); i++)
        LN_TRY(section_bool(v->json, what, flags[i].key, false, flags[i].flag, err));
    t->special =
        t->special || special || json_is_string(v->json) || vocab_find(&g->named, text, t->bytes) >= 0;
    t->normalized = !t->special;
    if (json_is_object(v->json))
        LN_TRY(section_bool(v->json, what, "normalized", t->normalized, &t->normalized, err));
    t->content = ln_strndup(text, t->bytes);
    return t->content ? LN_OK : LN_OOM(err, "added tokens");
}

static ln_status put_numbered(adding *g, int64_t number, const text_added_token *t, ln_error *err) {
    ln_status st = ln_grow((void **)&g->list, &g->cap, g->n + 1, sizeof *g->list, err);
    if (st == LN_OK) {
        g->list[g->n] = (numbered){number, g->n, *t};
        g->n++;
    } else {
        ln_free(t->content);
    }
    return st;
}

static ln_status read_decoder(adding *g, const json_t *decoder, ln_error *err) {
    value v = {config_name, "added_tokens_decoder", decoder};
    const char *key;
    json_t *item;
    if (!json_is_object(decoder)) return bad(&v, "an object of tokens by their ids", err);
    json_object_foreach((json_t *)(uintptr_t)decoder, key, item) {
        text_added_token t;
        int64_t number = 0;
        size_t n = 0;
        char shown[80];
        for (; key[n] >= '0' && key[n] <= '9' && number < TEXT_MAX_IDS; n++)
            number = number * 10 + (key[n] - '0');
        if (n == 0 || key[n] || number >= TEXT_MAX_IDS)
            return ln_fail(err, LN_EINVALID,
                           "%s: added_tokens_decoder: expected ids less than %d as keys, found '%s'",
                           config_name, TEXT_MAX_IDS, ln_excerpt(shown, key, strlen(key)));
        v = (value){config_name, "added_tokens_decoder", item};
        if (!json_is_object(item)) return bad(&v, "an object for each token", err);
        LN_TRY(read_token(g, &v, false, &t, err));
        t.file_id = (int32_t)number;
        LN_TRY(put_numbered(g, number, &t, err));
    }
    return LN_OK;
}

static ln_status read_added(adding *g, const json_t *added, ln_error *err) {
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)added, key, item) {
        size_t bytes = strlen(key);
        value v = {added_name, key, item};
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) >= TEXT_MAX_IDS)
            return bad(&v, "an id", err);
        bool special = vocab_find(&g->reserved, key, bytes) >= 0 || vocab_find(&g->named, key, bytes) >= 0;
        bool normalized = vocab_find(&g->reserved, key, bytes) < 0;
        text_added_token t = {.content = ln_strndup(key, bytes),
                              .bytes = bytes,
                              .id = -1,
                              .special = special,
                              .normalized = normalized};
        if (!t.content) return LN_OOM(err, "added tokens");
        t.file_id = (int32_t)json_integer_value(item);
        LN_TRY(put_numbered(g, t.file_id, &t, err));
    }
    return LN_OK;
}

/* transformers adds tokenizer.json's own tokens once more: those that are named become special. */
static ln_status read_own(adding *g, ln_error *err) {
    for (size_t i = 0; i < g->a->n; i++) {
        text_added_token t = g->a->t[i];
        t.content = ln_strndup(t.content, t.bytes);
        if (!t.content) return LN_OOM(err, "added tokens");
        t.special |= vocab_find(&g->named, t.content, t.bytes) >= 0;
        t.shown = NULL;
        LN_TRY(put_numbered(g, t.file_id, &t, err));
    }
    return LN_OK;
}

static int by_number(const void *x, const void *y) {
    const numbered *a = x, *b = y;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The numbered tokens, in order, to the end of what is added. */
static ln_status add_numbered(adding *g, ln_error *err) {
    if (g->n > 1) qsort(g->list, g->n, sizeof *g->list, by_number);
    for (size_t i = 0; i < g->n; i++) {
        text_added_token *t = &g->list[i].t;
        bool last = i + 1 == g->n || g->list[i + 1].number != g->list[i].number;
        if (!last || t->bytes == 0) continue;
        LN_TRY(note(&g->known, t->content, t->bytes, err));
        LN_TRY(added_wait(g->a, t, err));
        t->content = NULL;
    }
    return LN_OK;
}

/* A standard token has the flags of a numbered one of the same content, even one whose number another has
 * taken. */
static void take_flags(const adding *g, text_added_token *t) {
    for (size_t i = 0; i < g->n; i++) {
        const text_added_token *o = &g->list[i].t;
        if (!o->content || o->bytes != t->bytes || memcmp(o->content, t->content, t->bytes) != 0) continue;
        t->normalized = o->normalized;
        t->lstrip = o->lstrip;
        t->rstrip = o->rstrip;
        t->single_word = o->single_word;
    }
}

/* Whether no token of the same form, flags and content was added before. */
static ln_status is_new(adding *g, const value *v, const text_added_token *t, bool *out, ln_error *err) {
    unsigned flags = t->special | t->normalized << 1 | t->lstrip << 2 | t->rstrip << 3 | t->single_word << 4;
    char head[2] = {json_is_string(v->json) ? 't' : 'o', (char)('@' + flags)};
    ln_str key = {0};
    ln_status st;
    LN_GO(text_add(&key, head, sizeof head, err));
    LN_GO(text_add(&key, t->content, t->bytes, err));
    *out = vocab_find(&g->added, key.data, key.len) < 0;
    if (*out) LN_GO(note(&g->added, key.data, key.len, err));
out:
    ln_str_free(&key);
    return st;
}

/* Adds the tokens that are not added yet; the first n_standard of them are standard ones. */
static ln_status add_values(adding *g, const values *list, size_t n_standard, bool special, ln_error *err) {
    for (size_t i = 0; i < list->n; i++) {
        text_added_token t;
        const value *v = &list->v[i];
        LN_TRY(read_token(g, v, special || strcmp(v->file, map_name) == 0, &t, err));
        if (i < n_standard && v->file != own_name) take_flags(g, &t);
        bool known = vocab_find(&g->known, t.content, t.bytes) >= 0 ||
                     vocab_find(&g->a->seen, t.content, t.bytes) >= 0;
        bool wanted = !known && t.bytes > 0;
        ln_status st = wanted ? is_new(g, v, &t, &wanted, err) : LN_OK;
        if (st == LN_OK && wanted) st = added_wait(g->a, &t, err);
        if (st != LN_OK || !wanted) ln_free(t.content);
        LN_TRY(st);
    }
    return LN_OK;
}

static ln_status read_names(const text_config *c, const json_t *padding, names *n, ln_error *err) {
    if (c->config) LN_TRY(read_config(n, c->config, err));
    if (c->map) LN_TRY(read_map(n, c->map, err));
    const json_t *pad = json_object_get(padding, "pad_token");
    if (!n->has_pad && is_given(pad)) n->standard[STANDARD_PAD] = (value){own_name, "padding.pad_token", pad};
    return join_named(n, err);
}

ln_status config_tokens(const text_config *c, const json_t *padding, text_added *a, ln_error *err) {
    adding g = {.a = a};
    ln_status st;
    LN_GO(vocab_open(&g.named, 16, err));
    LN_GO(vocab_open(&g.reserved, 16, err));
    LN_GO(vocab_open(&g.known, a->n, err));
    LN_GO(vocab_open(&g.added, 16, err));
    LN_GO(read_names(c, padding, &g.names, err));
    LN_GO(note_all(&g.named, &g.names.by_object, g.names.by_object.n, false, err));
    LN_GO(note_all(&g.reserved, &g.names.by_object, g.names.n_standard, true, err));
    LN_GO(note_all(&g.reserved, &g.names.extra, g.names.extra.n, true, err));
    LN_GO(read_additional(&g.names, err));
    if (c->decoder) {
        LN_GO(read_decoder(&g, c->decoder, err));
    } else {
        LN_GO(read_added(&g, c->added, err));
        if (c->added || g.names.by_object.n > 0) LN_GO(read_own(&g, err));
    }
    LN_GO(add_numbered(&g, err));
    LN_GO(add_values(&g, &g.names.by_object, g.names.n_standard, true, err));
    LN_GO(add_values(&g, &g.names.extra, 0, false, err));
    if (json_is_true(json_object_get(c->config, clean_up)))
        ln_log(LN_LOG_WARN, "%s: %s is not applied: decoded texts keep their blanks", config_name, clean_up);
    LN_GO(section_bool(c->config, config_name, "split_special_tokens", false, &a->split_special, err));
out:
    for (size_t i = 0; i < g.n; i++) ln_free(g.list[i].t.content);
    ln_free(g.list);
    vocab_close(&g.named);
    vocab_close(&g.reserved);
    vocab_close(&g.known);
    vocab_close(&g.added);
    names_close(&g.names);
    return st;
}
