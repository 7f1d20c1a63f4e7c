/* Finds the chat templates of a model.
 *
 * transformers makes one dictionary of templates by name. The template files come first: chat_template.jinja
 * is named "default", then each NAME.jinja in additional_chat_templates/ is added and replaces one of the
 * same name. Only when there is no such file does the member "chat_template" of tokenizer_config.json count.
 * Without a choice, "tool_use" is for conversations with tools and "default" for all others. Two more sources
 * are read here: chat_template.json, before tokenizer_config.json, and chat_templates/, an earlier name of
 * the directory, after it. A template that is chosen by name is looked for in all sources. */
#include "template_source.h"

#include "../base/dir_names.h"
#include "../base/gguf.h"
#include "../base/json.h"
#include "../jinja/jinja.h"

#include <stdio.h>
#include <string.h>

enum { PATH_MOST = 4096 };

const char *const template_token_names[TEMPLATE_TOKENS] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                           "pad_token", "cls_token", "mask_token"};
static const char additional[] = "additional_chat_templates/", older[] = "chat_templates/",
                  member[] = "chat_template";

ln_status template_set_text(template_text *t, const char *name, const char *text, size_t bytes,
                            ln_error *err) {
    t->text = ln_strndup(text, bytes);
    t->name = ln_strndup(name, strlen(name));
    t->bytes = bytes;
    return t->text && t->name ? LN_OK : LN_OOM(err, "a chat template");
}

/* Reads a template file: a file of the model, or one that the user chose (`named`), which may be a pipe. */
static ln_status read_file(template_text *t, const char *path, bool named, ln_error *err) {
    char *data;
    size_t bytes, skip;
    LN_TRY((named ? ln_read_input : ln_read_file)(path, JINJA_MAX_SOURCE, &data, &bytes, err));
    const char *name = strrchr(path, '/');
    ln_status st = ln_utf8_mark(path, data, bytes, &skip, err);
    if (st == LN_OK) st = template_set_text(t, name ? name + 1 : path, data + skip, bytes - skip, err);
    ln_free(data);
    return st;
}

static ln_status path_of(char path[PATH_MOST], const char *dir, const char *folder, const char *name,
                         const char *suffix, ln_error *err) {
    if (snprintf(path, PATH_MOST, "%s/%s%s%s", dir, folder, name, suffix) < PATH_MOST) return LN_OK;
    return ln_fail(err, LN_EINVALID, "the path of the model is too long");
}

static bool ends_in_jinja(const char *name) {
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, ".jinja") == 0;
}

/* ---- template files ---- */

/* Reads the file DIR/FOLDER/NAME.jinja, if it exists, unless *t has a text already. */
static ln_status look_for(template_text *t, const char *dir, const char *folder, const char *name,
                          ln_error *err) {
    char path[PATH_MOST];
    bool there;
    if (t->text) return LN_OK;
    LN_TRY(path_of(path, dir, folder, name, ".jinja", err));
    LN_TRY(ln_look(path, &there, err));
    return there ? read_file(t, path, false, err) : LN_OK;
}

/* Stores the name of the first template file in DIR/additional_chat_templates/; "" if it has none. */
static ln_status any_additional(const char *dir, char name[80], ln_error *err) {
    char path[PATH_MOST];
    bool there;
    name[0] = '\0';
    LN_TRY(path_of(path, dir, additional, "", "", err));
    LN_TRY(ln_look_dir(path, &there, err));
    if (!there) return LN_OK;
    ln_names names;
    LN_TRY(ln_names_read(&names, path, err));
    const char *first = ln_names_like(&names, "", ".jinja");
    if (first) (void)ln_excerpt(name, first, strlen(first) - strlen(".jinja"));
    ln_names_free(&names);
    return LN_OK;
}

/* ---- members of JSON files ---- */

/* Reads the special tokens ("bos_token": a string, or an object with "content"). Tokens that are known
 * already are kept. */
static ln_status read_tokens(template_source *s, const json_t *config, ln_error *err) {
    for (size_t i = 0; i < TEMPLATE_TOKENS; i++) {
        const json_t *v = json_object_get(config, template_token_names[i]);
        if (i == 0 && v) s->bos_told = true;
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (s->token[i] || !json_is_string(v)) continue;
        s->token_bytes[i] = json_string_length(v);
        s->token[i] = ln_strndup(json_string_value(v), s->token_bytes[i]);
        if (!s->token[i]) return LN_OOM(err, "a special token");
    }
    return LN_OK;
}

/* Reads the template of that name in a list of named templates; of several, the last one, as in transformers.
 */
static ln_status look_in_list(template_text *t, const char *where, const json_t *list, const char *name,
                              ln_error *err) {
    for (size_t i = json_array_size(list); i-- > 0;) {
        const json_t *e = json_array_get(list, i), *n = json_object_get(e, "name"),
                     *text = json_object_get(e, "template");
        if (json_is_string(n) && json_is_string(text) && strcmp(json_string_value(n), name) == 0)
            return template_set_text(t, where, json_string_value(text), json_string_length(text), err);
    }
    return LN_OK;
}

static ln_status no_default(const char *where, const char *found, ln_error *err) {
    return ln_fail(err, LN_EINVALID,
                   "%s: expected a template named default, found only others%s%s; name one of them "
                   "(ln_options.chat_template)",
                   where, *found ? ", such as " : "", found);
}

/* Takes the template of a member "chat_template"; `where`: file and member, for messages. */
static ln_status use_member(template_source *s, const char *where, const json_t *v, const char *choice,
                            ln_error *err) {
    bool usual = !choice || strcmp(choice, "default") == 0;
    if (json_is_string(v))
        return usual ? template_set_text(&s->plain, where, json_string_value(v), json_string_length(v), err)
                     : LN_OK;
    if (!json_is_array(v))
        return ln_fail(err, LN_EINVALID, "%s: expected a text or a list of named ones, found neither", where);
    LN_TRY(look_in_list(&s->plain, where, v, choice ? choice : "default", err));
    if (choice) return LN_OK;
    LN_TRY(look_in_list(&s->tools, where, v, "tool_use", err));
    return s->plain.text || s->tools.text ? LN_OK : no_default(where, "", err);
}

/* Reads the special tokens (`tokens`) of DIR/NAME.json and, while no template was found, its template. */
static ln_status from_json(template_source *s, const char *dir, const char *name, const char *choice,
                           bool tokens, ln_error *err) {
    char path[PATH_MOST], where[80];
    json_t *root = NULL;
    bool there;
    (void)snprintf(where, sizeof where, "%s.json: %s", name, member);
    LN_TRY(path_of(path, dir, "", name, ".json", err));
    LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_json_load_file(&root, path, LN_CONFIG_LIMIT, err));
    const json_t *v = json_object_get(root, member);
    ln_status st = tokens ? read_tokens(s, root, err) : LN_OK;
    if (st == LN_OK && !s->plain.text && !s->tools.text && v && !json_is_null(v) &&
        !(json_is_string(v) && json_string_length(v) == 0))
        st = use_member(s, where, v, choice, err);
    json_decref(root);
    return st;
}

/* ---- all sources ---- */

static ln_status from_files(template_source *s, const char *dir, const char *choice, ln_error *err) {
    char name[80];
    const char *plain = choice ? choice : "default";
    LN_TRY(look_for(&s->plain, dir, additional, plain, err));
    if (strcmp(plain, "default") == 0) LN_TRY(look_for(&s->plain, dir, "", member, err));
    if (choice) return LN_OK;
    LN_TRY(look_for(&s->tools, dir, additional, "tool_use", err));
    if (s->plain.text || s->tools.text) return LN_OK;
    LN_TRY(any_additional(dir, name, err));
    return *name ? no_default("additional_chat_templates", name, err) : LN_OK;
}

static ln_status from_older(template_source *s, const char *dir, const char *choice, ln_error *err) {
    if (s->plain.text || s->tools.text) return LN_OK;
    LN_TRY(look_for(&s->plain, dir, older, choice ? choice : "default", err));
    return choice ? LN_OK : look_for(&s->tools, dir, older, "tool_use", err);
}

static ln_status from_directory(template_source *s, const char *dir, const char *choice, ln_error *err) {
    if (!s->plain.text) LN_TRY(from_files(s, dir, choice, err));
    LN_TRY(from_json(s, dir, member, choice, false, err));
    LN_TRY(from_json(s, dir, "tokenizer_config", choice, true, err));
    LN_TRY(from_json(s, dir, "special_tokens_map", choice, true,
                     err)); /* older models keep their special tokens there */
    return from_older(s, dir, choice, err);
}

ln_status template_source_read(template_source *s, const char *dir, const char *choice, ln_error *err) {
    char shown[80];
    size_t n = choice ? strlen(choice) : 0;
    if (choice && (strchr(choice, '/') || ends_in_jinja(choice)))
        LN_TRY(read_file(&s->plain, choice, true, err));
    LN_TRY((ln_gguf_is_file(dir) ? template_source_gguf : from_directory)(s, dir, choice, err));
    if (s->plain.text || !choice) return LN_OK;
    return ln_fail(err, LN_EIO,
                   "this model has no chat template named '%s'; a file is named with a '/' or by .jinja at "
                   "its end",
                   ln_excerpt(shown, choice, n));
}

ln_status template_source_file(template_source *s, const char *path, ln_error *err) {
    return read_file(&s->plain, path, true, err);
}

static void close_text(template_text *t) {
    ln_free(t->text);
    ln_free(t->name);
}

void template_source_close(template_source *s) {
    close_text(&s->plain);
    close_text(&s->tools);
    for (size_t i = 0; i < TEMPLATE_TOKENS; i++) ln_free(s->token[i]);
    *s = (template_source){0};
}
