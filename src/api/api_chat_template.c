/* The public API of chat templates; the contracts are in linnet.h. */
#include "../base/file.h"
#include "../base/json.h"
#include "../base/text_memory.h"
#include "../io/directory.h"
#include "../io/io.h"
#include "../chat/chat_template.h"
#include "../args/handle.h"

#include <linnet_tools.h>
#include <stdio.h>
#include <string.h>

/* Whether a name is a template file, not a model: it ends in .jinja or is a pipe. */
static bool is_file(const char *name) {
    size_t n = strlen(name);
    return (n > 6 && strcmp(name + n - 6, ".jinja") == 0) || ln_is_stream(name);
}

/* Binds the model's tokenizer to the template if it decides the text of {{ bos_token }}, so that renderings
 * are the same as in ln_generate. */
static ln_status bind(ln_model_template *t, const char *dir, ln_error *err) {
    char path[4200];
    ln_tok *tok;
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    bool there = false;
    if (ln_model_template_wants_tok(t)) LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_tok_open(&tok, dir, err));
    ln_status st = ln_model_template_bind(t, tok, err);
    ln_tok_close(&tok);
    return st;
}

/* Finds the directory of a model that has a chat template, or a file that may have one. */
static ln_status find_source(const char *model, char *path, size_t cap, ln_error *err) {
    static const char *const others[] = {"chat_template.jinja", "chat_template.json"};
    const ln_status st = ln_find_dir(model, "tokenizer_config.json", path, cap, err);
    for (size_t i = 0; st != LN_OK && st != LN_EMEMORY && i < LN_COUNT(others); i++)
        if (ln_find_dir(model, others[i], path, cap, NULL) == LN_OK) return LN_OK;
    return st;
}

/* Opens a template file, or the template of a model. */
static ln_status open_of(ln_model_template **t, const char *model, const char *choice, ln_error *err) {
    char path[4096], config[LN_PATH_MAX];
    ln_json_memo memo;
    if (is_file(model))
        return choice ? ln_fail(err, LN_EUSAGE, "%s is a template itself: there is nothing to choose", model)
                      : ln_model_template_open_file(t, model, err);
    LN_TRY(find_source(model, path, sizeof path, err));
    LN_TRY(ln_path_join(config, path, "tokenizer_config.json", err));
    ln_json_memo_begin(&memo, config);
    ln_status st = ln_model_template_open(t, path, choice, err);
    const bool found = st == LN_OK && *t;
    if (found) st = bind(*t, path, err);
    ln_json_memo_end(&memo);
    if (found || st != LN_OK) return st;
    return ln_fail(err, LN_EIO,
                   "%s: this model ships no chat template; name a file of one (ln_options.chat_template)",
                   path);
}

static void free_template(void *object) {
    ln_model_template *own = object;
    ln_model_template_close(&own);
}

ln_status ln_chat_template_open(ln_chat_template **out, const char *model, const char *choice,
                                ln_error *err) {
    ln_model_template *t = NULL;
    void *handle = NULL;
    ARG(out && model, "out and model must not be NULL");
    *out = NULL;
    ln_status st = open_of(&t, model, choice, err);
    if (st == LN_OK)
        st = ln_handle_new(LN_HANDLE_TEMPLATE, &(ln_handle_object){.object = t, .free = free_template},
                           &handle, err);
    if (st != LN_OK) ln_model_template_close(&t);
    *out = handle;
    return st;
}

void ln_chat_template_close(ln_chat_template **tmpl) {
    ENTER;
    if (!tmpl) return;
    ln_handle_close(LN_HANDLE_TEMPLATE, *tmpl);
    *tmpl = NULL;
}

ln_status ln_chat_template_source(const ln_chat_template *tmpl, char *text, size_t cap, size_t *bytes,
                                  ln_error *err) {
    void *t;
    ARG(bytes && (text || cap == 0), "bytes must not be NULL, text not with a capacity");
    LN_TRY(ln_handle_use(LN_HANDLE_TEMPLATE, tmpl, &t, err));
    const char *source = ln_model_template_source(t, bytes);
    if (*bytes > 0 && cap > 0) memcpy(text, source, LN_MIN(*bytes, cap));
    ln_handle_done(tmpl);
    return LN_OK;
}

ln_status ln_chat_template_render(const ln_chat_template *tmpl, const char *request, size_t bytes,
                                  ln_rendering *out, ln_error *err) {
    void *t = NULL;
    ln_rendered r;
    ARG(request && out, "request and out must not be NULL");
    memset(out, 0, sizeof *out);
    if (tmpl) LN_TRY(ln_handle_use(LN_HANDLE_TEMPLATE, tmpl, &t, err));
    ln_text_work work;
    ln_text_begin(&work);
    ln_status st = ln_model_template_request(t, request, bytes, &r, err);
    if (st == LN_OK) {
        out->text = ln_strndup(r.text.text, r.text.bytes);
        out->text_bytes = r.text.bytes;
        if (!out->text) st = LN_OOM(err, "a rendering");
    } else if (r.text.refused) {
        out->refused = ln_strndup(r.text.refused, r.text.n_refused);
        out->refused_bytes = out->refused ? r.text.n_refused : 0;
    }
    ln_rendered_free(&r);
    if (tmpl) ln_handle_done(tmpl);
    return ln_text_end(&work, st, err);
}

void ln_rendering_free(ln_rendering *r) {
    if (!r) return;
    ln_free(r->text);
    ln_free(r->refused);
    memset(r, 0, sizeof *r);
}
