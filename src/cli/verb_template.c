/* linnet template: prints a model's chat template, or renders conversations with it.
 *
 * With --jsonl a conversation that cannot be rendered produces {"error"} as its regular result. A line
 * that is not a JSON object is a bad line (lines.c). */
#include "cli.h"

#include "../base/json.h"

#include <string.h>

enum { LINE_MOST = 9 << 20 };

static bool is_object(const char *line, size_t bytes) {
    json_t *root = NULL;
    bool is = ln_json_load(&root, "request", line, bytes, NULL) == LN_OK && json_is_object(root);
    json_decref(root);
    return is;
}

static ln_status each(void *user, const char *line, size_t bytes, ln_str *out, ln_error *err) {
    ln_rendering r = {0};
    ln_error why = {0};
    if (!line) return ln_fail(err, LN_EINVALID, "longer than %d bytes", LINE_MOST);
    ln_status st = ln_chat_template_render(user, line, bytes, &r, &why);
    if (st == LN_EINVALID && !r.refused && !is_object(line, bytes)) {
        ln_rendering_free(&r);
        return ln_fail(err, st, "%s", why.message);
    }
    ln_str_add(out, "{", 1);
    put_key(out, st == LN_OK ? "text" : "error");
    if (st == LN_OK) ln_str_json(out, r.text, r.text_bytes);
    else if (r.refused) ln_str_json(out, r.refused, r.refused_bytes);
    else {
        ln_str said = {0};
        advice_add(&said, why.message);
        out->failed |= said.failed;
        if (said.data) ln_str_json(out, said.data, said.len);
        ln_str_free(&said);
    }
    ln_str_adds(out, "}\n");
    ln_rendering_free(&r);
    if (st == LN_OK || st == LN_EINVALID) return out->failed ? LN_OOM(err, "an answer") : LN_OK;
    return ln_fail(err, st, "%s", why.message);
}

/* Prints the source as shipped. */
static ln_status print_source(const ln_chat_template *t, bool json, ln_error *err) {
    ln_str out = {0};
    size_t bytes = 0;
    LN_TRY(ln_chat_template_source(t, NULL, 0, &bytes, err));
    char *text = ln_alloc(bytes + 1);
    if (!text) return LN_OOM(err, "a chat template");
    ln_status st = ln_chat_template_source(t, text, bytes, &bytes, err);
    if (json) {
        ln_str_add(&out, "{", 1);
        put_key(&out, "template");
        ln_str_json(&out, text, bytes);
        ln_str_adds(&out, "}\n");
    } else {
        ln_str_add(&out, text, bytes);
        if (bytes > 0 && text[bytes - 1] != '\n' && out_is_tty()) ln_str_add(&out, "\n", 1);
    }
    ln_free(text);
    if (st == LN_OK) return out_str(&out, err);
    ln_str_free(&out);
    return st;
}

ln_status cmd_template(const args *a, ln_error *err) {
    ln_chat_template *t = NULL;
    if (!a->model && !has(a, F_JSONL))
        return ln_fail(err, LN_EUSAGE,
                       "template needs a MODEL or a FILE.jinja; with --jsonl the lines may bring their own");
    if (has(a, F_FILE) && !has(a, F_JSONL))
        return ln_fail(err, LN_EUSAGE,
                       "--file has the conversations for --jsonl; a template is the argument");
    if (a->model)
        LN_TRY(ln_chat_template_open(&t, a->model,
                                     has(a, F_CHAT_TEMPLATE) ? a->flag[F_CHAT_TEMPLATE].text : NULL, err));
    ln_status st = has(a, F_JSONL) ? lines_each(a->flag[F_FILE].text, each, t, LINE_MOST, err)
                                   : print_source(t, has(a, F_JSON), err);
    ln_chat_template_close(&t);
    return st;
}
