/* Writes a tokenizer with added tokens (contract: tokenizer_files.h). tokenizer.json is copied byte for byte,
 * with the tokens put at the end of its list, so that a vocabulary of any size takes no memory but its text.
 */
#include "tokenizer_files.h"

#include "../base/file.h"
#include "../io/directory.h"
#include "../base/json.h"
#include "checkpoint.h"

#include <stdio.h>
#include <string.h>

static const char form[] = "\"special\":false,\"normalized\":false,\"lstrip\":false,\"rstrip\":false,"
                           "\"single_word\":false}";

/* The list added_tokens of tokenizer.json. */
typedef struct listing {
    size_t end;    /* of the list: the offset of its bracket; 0: there is none */
    bool is_empty; /* it has no item */
} listing;

/* Finds the list of added tokens. */
static ln_status find_list(const char *path, const char *text, size_t bytes, listing *out, ln_error *err) {
    ln_json j;
    *out = (listing){0};
    ln_json_open(&j, path, text, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, err);
    for (bool more = true; st == LN_OK && !out->end;) {
        st = ln_json_key(&j, &more, err);
        if (st != LN_OK || !more) break;
        if (!ln_json_is(&j, "added_tokens")) {
            st = ln_json_skip(&j, err);
            continue;
        }
        out->is_empty = true;
        st = ln_json_want(&j, LN_J_ARRAY, err);
        while (st == LN_OK && (st = ln_json_item(&j, &more, err)) == LN_OK && more) {
            out->is_empty = false;
            st = ln_json_skip(&j, err);
        }
        if (st == LN_OK) out->end = j.offset;
    }
    ln_json_close(&j);
    return st;
}

/* Appends the tokens that the model's own files lack, as items of added_tokens. */
static ln_status add_items(const ln_package *m, const ln_tok *own, bool first, ln_str *s, ln_error *err) {
    for (size_t i = 0; i < m->n_added; i++) {
        size_t bytes;
        const char *text = ln_tok_content(m->tok, m->added[i], &bytes);
        if (!text || ln_tok_id(own, text, bytes) == m->added[i]) continue;
        ln_str_addf(s, "%s{\"id\":%d,\"content\":", first ? "" : ",", m->added[i]);
        ln_str_json(s, text, bytes);
        ln_str_addf(s, ",%s", form);
        first = false;
    }
    return s->failed ? LN_OOM(err, "added tokens") : LN_OK;
}

static ln_status write_json(const ln_package *m, const char *dir, ln_error *err) {
    char path[4096];
    ln_map map = {0};
    ln_str items = {0};
    ln_tok *own = NULL;
    listing at;
    ln_status st = LN_OK;
    LN_GO(ln_path_join(path, m->path, "tokenizer.json", err));
    LN_GO(ln_map_open(&map, path, err));
    LN_GO(ln_tok_open(&own, m->path, err));
    LN_GO(find_list(path, (const char *)map.data, map.bytes, &at, err));
    if (!at.end)
        LN_GO(ln_fail(err, LN_EUNSUPPORTED, "%s: expected a list added_tokens, to which tokens are added",
                      path));
    LN_GO(add_items(m, own, at.is_empty, &items, err));
    const train_part parts[] = {
        {map.data, at.end}, {items.data, items.len}, {(const char *)map.data + at.end, map.bytes - at.end}};
    LN_GO(train_file_write(dir, "tokenizer.json", parts, LN_COUNT(parts), NULL, err));
    LN_GO(ln_map_check(&map, path, err));
out:
    ln_tok_close(&own);
    ln_str_free(&items);
    ln_map_close(&map);
    return st;
}

/* Adds the tokens to added_tokens_decoder, if the configuration has one: transformers then reads no other. */
static bool add_decoder(const ln_package *m, json_t *config) {
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    bool ok = true;
    for (size_t i = 0; ok && decoder && i < m->n_added; i++) {
        size_t bytes;
        char key[16];
        const char *text = ln_tok_content(m->tok, m->added[i], &bytes);
        (void)snprintf(key, sizeof key, "%d", m->added[i]);
        if (!text || json_object_get(decoder, key)) continue;
        ok = json_object_set_new(decoder, key,
                                 json_pack("{s:s%, s:b, s:b, s:b, s:b, s:b}", "content", text, bytes,
                                           "special", 0, "normalized", 0, "lstrip", 0, "rstrip", 0,
                                           "single_word", 0)) == 0;
    }
    return ok;
}

static ln_status write_config(const ln_package *m, const char *dir, ln_error *err) {
    char path[4096];
    json_t *config;
    bool there;
    LN_TRY(ln_path_join(path, m->path, "tokenizer_config.json", err));
    LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_json_object_file(&config, path, err));
    const ln_status st = add_decoder(m, config)
                             ? train_json_write(dir, "tokenizer_config.json", config, NULL, err)
                             : LN_OOM(err, "a configuration");
    json_decref(config);
    return st;
}

/* Copies a file, if the model has it. */
static ln_status copy_file(const ln_package *m, const char *dir, const char *name, ln_error *err) {
    char path[4096];
    ln_map map = {0};
    bool there;
    LN_TRY(ln_path_join(path, m->path, name, err));
    LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_map_open(&map, path, err));
    ln_status st = train_file_write(dir, name, &(train_part){map.data, map.bytes}, 1, NULL, err);
    if (st == LN_OK) st = ln_map_check(&map, path, err);
    ln_map_close(&map);
    return st;
}

ln_status train_tokenizer_write(const ln_package *m, const char *dir, ln_error *err) {
    LN_TRY(copy_file(m, dir, "special_tokens_map.json", err));
    LN_TRY(copy_file(m, dir, "added_tokens.json", err));
    LN_TRY(write_config(m, dir, err));
    return write_json(m, dir, err);
}
