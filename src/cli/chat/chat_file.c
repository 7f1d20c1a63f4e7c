/* The conversation: a list of turns that is appended to and truncated, and its file format.
 *
 * A file contains {"messages":[{"role","content"}, ...]}, one message per line: the usual format of
 * training data and chat interfaces, so that a saved conversation can be used elsewhere. */

#include "chat.h"

#include "../../base/json.h"

enum { TALK_FILE_MOST = 64 << 20 };

static const char *const roles[] = {"system", "user", "assistant"};

ln_status talk_add(talk *t, const char *role, const char *text, size_t bytes, ln_error *err) {
    void *p = t->messages;
    LN_TRY(ln_grow(&p, &t->cap, t->n + 1, sizeof *t->messages, err));
    t->messages = p;
    char *copy = ln_strndup(bytes ? text : "", bytes);
    if (!copy) return LN_OOM(err, "a message");
    t->messages[t->n++] = (ln_message){role, copy, bytes};
    return LN_OK;
}

static void drop(ln_message *m) { ln_free((void *)(uintptr_t)m->content); }

void talk_cut(talk *t, size_t n) {
    while (t->n > n) drop(&t->messages[--t->n]);
}

void talk_free(talk *t) {
    talk_cut(t, 0);
    ln_free(t->messages);
    *t = (talk){0};
}

ln_status talk_system(talk *t, const char *text, size_t bytes, ln_error *err) {
    bool had = talk_is(t, 0, "system");
    if (bytes > 0) {
        LN_TRY(talk_add(t, "system", text, bytes, err));
        ln_message added = t->messages[t->n - 1];
        memmove(t->messages + 1, t->messages, (t->n - 1) * sizeof added);
        t->messages[0] = added;
    }
    if (had) { /* the old system text is now first or second */
        size_t at = bytes > 0 ? 1 : 0;
        drop(&t->messages[at]);
        memmove(t->messages + at, t->messages + at + 1, (--t->n - at) * sizeof *t->messages);
    }
    return LN_OK;
}

bool talk_undo(talk *t, bool question_too) {
    size_t n = t->n;
    while (n > 0 && !talk_is(t, n - 1, "user")) n--;
    if (n == 0) return false;
    talk_cut(t, question_too ? n - 1 : n);
    return true;
}

ln_status talk_save(const talk *t, const char *path, bool force, ln_error *err) {
    ln_str s = {0};
    ln_out o = {.fd = -1};
    ln_str_adds(&s, "{\"messages\":[");
    for (size_t i = 0; i < t->n; i++) {
        ln_str_addf(&s, "%s\n {\"role\":\"%s\",\"content\":", i ? "," : "", t->messages[i].role);
        ln_str_json(&s, t->messages[i].content, t->messages[i].content_bytes);
        ln_str_add(&s, "}", 1);
    }
    ln_str_adds(&s, "\n]}\n");
    ln_status st = s.failed ? LN_OOM(err, "the conversation") : ln_out_open(&o, path, force, err);
    if (st == LN_OK) signals_file(o.tmp);
    if (st == LN_OK) st = ln_out_write(&o, s.data, s.len, err);
    if (st == LN_OK) st = ln_out_commit(&o, err);
    signals_file(NULL);
    ln_out_abort(&o);
    ln_str_free(&s);
    return st;
}

static ln_status add_json(talk *t, const char *path, size_t i, const json_t *m, ln_error *err) {
    char shown[80], name[LN_PATH_TEXT];
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    (void)ln_path_text(name, path);
    if (!json_is_string(role) || !json_is_string(content))
        return ln_fail(err, LN_EINVALID,
                       "%s: message %zu: expected an object with the texts role and content", name, i + 1);
    for (size_t k = 0; k < LN_COUNT(roles); k++)
        if (strcmp(json_string_value(role), roles[k]) == 0)
            return talk_add(t, roles[k], json_string_value(content), json_string_length(content), err);
    return ln_fail(err, LN_EINVALID, "%s: message %zu: role: expected system, user or assistant, found '%s'",
                   name, i + 1, ln_excerpt(shown, json_string_value(role), json_string_length(role)));
}

ln_status talk_load(talk *t, const char *path, ln_error *err) {
    json_t *doc;
    talk fresh = {0};
    char name[LN_PATH_TEXT];
    LN_TRY(ln_json_load_input(&doc, path, TALK_FILE_MOST, err));
    const json_t *list = json_is_object(doc) ? json_object_get(doc, "messages") : doc;
    ln_status st = LN_OK;
    if (!json_is_array(list))
        st = ln_fail(err, LN_EINVALID, "%s: expected {\"messages\":[...]} or a list of messages",
                     ln_path_text(name, path));
    for (size_t i = 0; st == LN_OK && i < json_array_size(list); i++)
        st = add_json(&fresh, path, i, json_array_get(list, i), err);
    json_decref(doc);
    if (st == LN_OK) {
        talk_free(t);
        *t = fresh;
    } else {
        talk_free(&fresh);
    }
    return st;
}
