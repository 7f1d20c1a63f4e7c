/* The tokens that the other files next to tokenizer.json add, in the order in which transformers 5 adds them.
 *
 * transformers opens tokenizer.json and then adds one list of tokens: the tokens of added_tokens_decoder in
 * tokenizer_config.json, in the order of their ids; the named special tokens (the standard ones bos_token,
 * eos_token and so on, then other keys that end in _token); and extra_special_tokens, which older files call
 * additional_special_tokens. Without an added_tokens_decoder, it first reads special_tokens_map.json, whose
 * values replace those of tokenizer_config.json, and added_tokens.json. A named or extra token that is an
 * added token already is not changed, except that a named one becomes special. When there is a
 * tokenizer.json, add_bos_token and add_eos_token have no effect. */
#include "tokenizer_internal.h"

#include "../base/file.h"

#include <stdlib.h>

enum { CONFIG_MOST = 16 << 20, N_STANDARD = 7, STANDARD_PAD = 4 };
static const char *const standard_names[N_STANDARD] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};
static const char own_name[] = "tokenizer.json", config_name[] = "tokenizer_config.json",
                  map_name[] = "special_tokens_map.json", added_name[] = "added_tokens.json",
                  additional_name[] = "additional_special_tokens";

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

/* The tokenizer needs no config.json: one that cannot be read is reported by the code that needs it. */
static ln_status load_model(json_t **out, const char *dir, ln_error *err) {
    ln_error why = {0};
    const ln_status st = load(out, dir, "config.json", &why);
    if (st == LN_EMEMORY) return ln_fail(err, st, "%s", why.message);
    if (st != LN_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return LN_OK;
}

ln_status config_open(text_config *c, const char *dir, ln_error *err) {
    *c = (text_config){0};
    ln_status st = load(&c->config, dir, config_name, err);
    c->decoder = json_object_get(c->config, "added_tokens_decoder");
    if (json_is_null(c->decoder)) c->decoder = NULL;
    if (st == LN_OK && !c->decoder) st = load(&c->map, dir, map_name, err);
    if (st == LN_OK && !c->decoder) st = load(&c->added, dir, added_name, err);
    if (st == LN_OK) st = load_model(&c->model, dir, err);
    if (st != LN_OK) config_close(c);
    return st;
}

void config_close(text_config *c) {
    json_decref(c->config);
    json_decref(c->map);
    json_decref(c->added);
    json_decref(c->model);
    *c = (text_config){0};
}

/* ---- named and extra tokens ---- */

/* A named or extra token: a string, or an object with the token's flags. Everything is borrowed. */
typedef struct value {
    const char *file, *key;
    const json_t *json;
} value;
typedef struct values {
    value *v;
    size_t n, cap;
} values;
typedef struct names {
    value standard[N_STANDARD]; /* json NULL: the files lack it */
    values by_object, by_text,
        extra;         /* other keys that end in _token, as objects and as strings; extra special tokens */
    value additional;  /* additional_special_tokens, used if no file has extra_special_tokens */
    size_t n_standard; /* standard tokens, the first ones of by_object after join_named */
    bool has_extra, has_pad;
} names;

static ln_status add_value(values *v, value x, ln_error *err) {
    LN_TRY(ln_grow((void **)&v->v, &v->cap, v->n + 1, sizeof *v->v, err));
    v->v[v->n++] = x;
    return LN_OK;
}

/* Adds a value; a repeated key replaces the earlier value at its place. */
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

/* Adds a list of extra special tokens, or an object of named tokens. */
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

/* Whether an object of tokenizer_config.json is a token: transformers leaves others as they are. */
static bool is_added_token(const json_t *v) {
    const char *type = json_string_value(json_object_get(v, "__type"));
    return type && strcmp(type, "AddedToken") == 0;
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
        } else if (file == config_name && is_token_key(key) && json_is_object(v) && !is_added_token(v)) {
            ln_log(LN_LOG_WARN, "%s: %.60s is no token, as in transformers: its __type is not AddedToken",
                   file, key);
        } else if (is_token_key(key) && (json_is_string(v) || json_is_object(v) ||
                                         json_is_null(v))) { /* null reserves the place */
            LN_TRY(set_value(json_is_string(v) && texts_by_text ? &n->by_text : &n->by_object, x, err));
        }
    }
    return LN_OK;
}

/* Whether Python counts the value as false: absent, null, or an empty list or object. */
static bool is_empty(const json_t *v) {
    return !is_given(v) || (json_array_size(v) == 0 && json_object_size(v) == 0);
}

static ln_status read_config(names *n, const json_t *root, ln_error *err) {
    const json_t *extra = json_object_get(root, "extra_special_tokens");
    n->additional = (value){config_name, additional_name, json_object_get(root, additional_name)};
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

/* Reads special_tokens_map.json. In extra_special_tokens, an object or null replaces the extra tokens so far,
 * and a list is appended to them. */
static ln_status read_map(names *n, const json_t *root, ln_error *err) {
    const json_t *extra = json_object_get(root, "extra_special_tokens"),
                 *more = json_object_get(root, additional_name);
    LN_TRY(read_named(n, map_name, root, false, err));
    if (json_is_object(extra) || json_is_null(extra)) n->extra.n = 0;
    if (extra) n->has_extra = !json_is_object(extra);
    if (more) n->additional = (value){map_name, additional_name, more};
    return add_extra(n, (value){map_name, "extra_special_tokens", extra}, err);
}

static ln_status read_additional(names *n, ln_error *err) {
    if (!n->has_extra) return add_extra(n, n->additional, err);
    if (!is_empty(n->additional.json))
        ln_log(LN_LOG_WARN,
               "%s: additional_special_tokens is not used with extra_special_tokens, as in transformers",
               n->additional.file);
    return LN_OK;
}

/* Collects all named tokens in by_object, in the order of transformers. */
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

/* A token with the id that a file states. Only the order of these ids counts; added_number assigns ids. */
typedef struct numbered {
    int64_t number;
    size_t at; /* index in the list; of equal numbers the last token counts */
    tok_added_token t;
} numbered;

typedef struct adding {
    tok_added *a;
    names names;
    string_table named;    /* contents of named tokens */
    string_table reserved; /* contents of standard and extra tokens that are strings: such a token of
                              added_tokens.json is not normalized */
    string_table known;    /* contents of numbered tokens */
    string_table added;    /* named and extra tokens so far, each with its text and flags */
    numbered *list;
    size_t n, cap;
} adding;

static ln_status content_of(const value *v, const char **text, size_t *bytes, ln_error *err) {
    const json_t *o = v->json, *content = json_is_object(o) ? json_object_get(o, "content") : o;
    if (!json_is_string(content)) return bad(v, "a token: a text, or an object with a text as content", err);
    *text = json_string_value(content);
    *bytes = json_string_length(content);
    if (*bytes <= TOK_MAX_TOKEN) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: %s: expected at most %d bytes, found %zu", v->file, v->key,
                   TOK_MAX_TOKEN, *bytes);
}

static ln_status note(string_table *set, const char *text, size_t bytes, ln_error *err) {
    int32_t twin;
    if (strtab_find(set, text, bytes) >= 0) return LN_OK;
    return strtab_add(set, text, bytes, strtab_hash(text, bytes), (int32_t)set->n_used, &twin, err);
}

static ln_status note_all(string_table *set, const values *list, size_t n, bool texts_only, ln_error *err) {
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

/* Reads a token. A string is a special token; an object has its own flags, and is special also when it is a
 * named token. The flag `normalized` is false for special tokens and true for others unless the object states
 * it. On success the caller owns t->content. */
static ln_status read_token(const adding *g, const value *v, bool special, tok_added_token *t,
                            ln_error *err) {
    char what[160];
    const char *text;
    *t = (tok_added_token){.id = -1, .file_id = -1};
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
        t->special || special || json_is_string(v->json) || strtab_find(&g->named, text, t->bytes) >= 0;
    t->normalized = !t->special;
    if (json_is_object(v->json))
        LN_TRY(section_bool(v->json, what, "normalized", t->normalized, &t->normalized, err));
    t->content = ln_strndup(text, t->bytes);
    return t->content ? LN_OK : LN_OOM(err, "added tokens");
}

/* Appends a token to g->list, which then owns its content; on an error the content is freed. */
static ln_status put_numbered(adding *g, int64_t number, const tok_added_token *t, ln_error *err) {
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
        tok_added_token t;
        int64_t number = 0;
        size_t n = 0;
        char shown[80];
        for (; key[n] >= '0' && key[n] <= '9' && number < TOK_MAX_IDS; n++)
            number = number * 10 + (key[n] - '0');
        if (n == 0 || key[n] || number >= TOK_MAX_IDS)
            return ln_fail(err, LN_EINVALID,
                           "%s: added_tokens_decoder: expected ids less than %d as keys, found '%s'",
                           config_name, TOK_MAX_IDS, ln_excerpt(shown, key, strlen(key)));
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
        if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) >= TOK_MAX_IDS)
            return bad(&v, "an id", err);
        bool special = strtab_find(&g->reserved, key, bytes) >= 0 || strtab_find(&g->named, key, bytes) >= 0;
        bool normalized = strtab_find(&g->reserved, key, bytes) < 0;
        tok_added_token t = {.content = ln_strndup(key, bytes),
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

/* Adds the added tokens of tokenizer.json once more, as transformers does: those that are named become
 * special. */
static ln_status read_own(adding *g, ln_error *err) {
    for (size_t i = 0; i < g->a->n; i++) {
        tok_added_token t = g->a->t[i];
        t.content = ln_strndup(t.content, t.bytes);
        if (!t.content) return LN_OOM(err, "added tokens");
        t.special |= strtab_find(&g->named, t.content, t.bytes) >= 0;
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

/* Appends the numbered tokens, sorted by number, to the waiting tokens. */
static ln_status add_numbered(adding *g, ln_error *err) {
    if (g->n > 1) qsort(g->list, g->n, sizeof *g->list, by_number);
    for (size_t i = 0; i < g->n; i++) {
        tok_added_token *t = &g->list[i].t;
        bool last = i + 1 == g->n || g->list[i + 1].number != g->list[i].number;
        if (!last || t->bytes == 0) continue;
        LN_TRY(note(&g->known, t->content, t->bytes, err));
        LN_TRY(added_wait(g->a, t, err));
        t->content = NULL;
    }
    return LN_OK;
}

/* Copies to a standard token the flags of the numbered token of the same content, even of one that a later
 * token with the same number has replaced. */
static void take_flags(const adding *g, tok_added_token *t) {
    for (size_t i = 0; i < g->n; i++) {
        const tok_added_token *o = &g->list[i].t;
        if (!o->content || o->bytes != t->bytes || memcmp(o->content, t->content, t->bytes) != 0) continue;
        t->normalized = o->normalized;
        t->lstrip = o->lstrip;
        t->rstrip = o->rstrip;
        t->single_word = o->single_word;
    }
}

/* *out: whether no token of the same JSON type, flags and content was added before. */
static ln_status is_new(adding *g, const value *v, const tok_added_token *t, bool *out, ln_error *err) {
    const int flags = t->special | t->normalized << 1 | t->lstrip << 2 | t->rstrip << 3 | t->single_word << 4;
    char head[2] = {json_is_string(v->json) ? 't' : 'o', (char)('@' + flags)};
    ln_str key = {0};
    ln_status st;
    LN_GO(utf8_append(&key, head, sizeof head, err));
    LN_GO(utf8_append(&key, t->content, t->bytes, err));
    *out = strtab_find(&g->added, key.data, key.len) < 0;
    if (*out) LN_GO(note(&g->added, key.data, key.len, err));
out:
    ln_str_free(&key);
    return st;
}

/* Appends the tokens that are new to the waiting tokens. The first n_standard tokens of the list are standard
 * ones. */
static ln_status add_values(adding *g, const values *list, size_t n_standard, bool special, ln_error *err) {
    for (size_t i = 0; i < list->n; i++) {
        tok_added_token t;
        const value *v = &list->v[i];
        /* transformers gives the tokens of special_tokens_map.json the flag, but not those of this list */
        const bool of_map = strcmp(v->file, map_name) == 0 && strcmp(v->key, additional_name) != 0;
        LN_TRY(read_token(g, v, special || of_map, &t, err));
        if (i < n_standard && v->file != own_name) take_flags(g, &t);
        bool known = strtab_find(&g->known, t.content, t.bytes) >= 0 ||
                     strtab_find(&g->a->seen, t.content, t.bytes) >= 0;
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

ln_status config_tokens(const text_config *c, const json_t *padding, tok_added *a, ln_error *err) {
    adding g = {.a = a};
    ln_status st;
    LN_GO(strtab_open(&g.named, 16, err));
    LN_GO(strtab_open(&g.reserved, 16, err));
    LN_GO(strtab_open(&g.known, a->n, err));
    LN_GO(strtab_open(&g.added, 16, err));
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
    if (json_is_true(json_object_get(c->config, clean_up)) &&
        json_is_true(json_object_get(c->config, "clean_up_tokenization_spaces")))
        ln_log(LN_LOG_WARN, "%s: %s is not applied: decoded texts keep their blanks", config_name, clean_up);
    LN_GO(section_bool(c->config, config_name, "split_special_tokens", false, &a->split_special, err));
out:
    for (size_t i = 0; i < g.n; i++) ln_free(g.list[i].t.content);
    ln_free(g.list);
    strtab_close(&g.named);
    strtab_close(&g.reserved);
    strtab_close(&g.known);
    strtab_close(&g.added);
    names_close(&g.names);
    return st;
}
