/* Messages and tools as other tools write them. */
#include "foreign_values.h"

#include <string.h>

const char *raw_found(const raw *v, char buf[80]) {
    switch (v->type) {
    case LN_J_OBJECT: return "an object";
    case LN_J_ARRAY: return "an array";
    default: return ln_excerpt(buf, v->text, v->bytes);
    }
}

ln_status raw_want(const raw *v, ln_jtype type, const char *wanted, ln_error *err) {
    char found[80];
    if (v->type == type) return LN_OK;
    return ln_fail(err, LN_EINVALID, "\"%s\": expected %s, found %s", v->name, wanted, raw_found(v, found));
}

ln_status raw_read(ln_json *j, raw *v, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    v->type = j->type;
    v->text = j->data + j->offset;
    v->seen = true;
    LN_TRY(ln_json_skip(j, err));
    v->bytes = (size_t)(j->data + j->at - v->text);
    return LN_OK;
}

ln_status raw_unescape(const raw *v, ln_str *out, ln_error *err) {
    ln_json j;
    ln_json_open(&j, "JSON", v->text, v->bytes, LN_JSON_MAX_DEPTH);
    const ln_status st = ln_json_next(&j, err);
    if (st == LN_OK) ln_str_add(out, j.text, j.text_bytes);
    ln_json_close(&j);
    return st == LN_OK && out->failed ? LN_OOM(err, "a sample") : st;
}

/* ---- a message ---- */

enum { ROLE, FROM, CONTENT, VALUE, WEIGHT, TRAIN, TRAINING, CALL, N_PARTS };
static const char *const part_names[N_PARTS] = {"role",   "from",  "content",  "value",
                                                "weight", "train", "training", "function_call"};

/* Names of roles that templates do not know. NULL: a call of a function, whose text is JSON. */
static const struct {
    const char *name, *role;
} roles[] = {{"human", "user"},         {"gpt", "assistant"},
             {"chatgpt", "assistant"},  {"bot", "assistant"},
             {"model", "assistant"},    {"observation", "tool"},
             {"function", "tool"},      {"function_response", "tool"},
             {"tool_response", "tool"}, {"function_call", NULL},
             {"tool_call", NULL}};

typedef struct message {
    const char *list; /* name of the list and place in it, for messages */
    size_t i;
    raw v[N_PARTS];
    ln_str rest;
} message;

static ln_status bad_part(const message *m, int part, const char *wanted, ln_error *err) {
    char found[80];
    return ln_fail(err, LN_EINVALID, "\"%s\": item %zu: \"%s\": expected %s, found %s", m->list, m->i,
                   part_names[part], wanted, raw_found(&m->v[part], found));
}

static ln_status read_message(message *m, const raw *item, ln_error *err) {
    ln_json j;
    ln_status st = LN_OK;
    bool more;
    ln_json_open(&j, "JSON", item->text, item->bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&j, err));
    for (;;) {
        int k = 0;
        raw other = {0};
        LN_GO(ln_json_key(&j, &more, err));
        if (!more) break;
        while (k < N_PARTS && !ln_json_is(&j, part_names[k])) k++;
        if (k == N_PARTS) {
            ln_str_adds(&m->rest, ",");
            ln_str_json(&m->rest, j.text, j.text_bytes);
            ln_str_adds(&m->rest, ":");
        }
        LN_GO(raw_read(&j, k < N_PARTS ? &m->v[k] : &other, err));
        if (k == N_PARTS) raw_put(&m->rest, &other);
    }
out:
    ln_json_close(&j);
    return st;
}

/* Returns the row of a role that has another name here, LN_COUNT(roles) if it has the usual one. */
static size_t role_row(const raw *v) {
    size_t i = 0;
    for (; i < LN_COUNT(roles); i++)
        if (v->bytes == strlen(roles[i].name) + 2 && memcmp(v->text + 1, roles[i].name, v->bytes - 2) == 0)
            break;
    return i;
}

/* ShareGPT's names are few: another one would be a role that no template knows. */
static ln_status check_from(const message *m, ln_error *err) {
    static const char *const usual[] = {"\"system\"", "\"user\"", "\"assistant\"", "\"tool\"",
                                        "\"developer\""};
    const raw *from = &m->v[FROM];
    if (!raw_is_text(from)) return bad_part(m, FROM, "the name of a role", err);
    for (size_t i = 0; i < LN_COUNT(usual); i++)
        if (from->bytes == strlen(usual[i]) && memcmp(from->text, usual[i], from->bytes) == 0) return LN_OK;
    if (role_row(from) < LN_COUNT(roles)) return LN_OK;
    return bad_part(m, FROM, "human, gpt, system, observation, function_call or a usual role", err);
}

/* Appends calls whose JSON a text holds: an object, or a list of them. */
static ln_status put_calls(ln_str *s, const message *m, int part, ln_error *err) {
    ln_str text = {0};
    ln_json j;
    ln_status st = LN_OK;
    if (!raw_is_text(&m->v[part])) return bad_part(m, part, "a call as JSON, {\"name\", \"arguments\"}", err);
    st = raw_unescape(&m->v[part], &text, err);
    if (st != LN_OK) {
        ln_str_free(&text);
        return st;
    }
    ln_json_open(&j, "JSON", text.data ? text.data : "", text.len, LN_JSON_MAX_DEPTH);
    bool good = ln_json_next(&j, NULL) == LN_OK && (j.type == LN_J_OBJECT || j.type == LN_J_ARRAY),
         more = true;
    ln_str_adds(s, ",\"tool_calls\":[");
    if (good && j.type == LN_J_OBJECT) {
        ln_str_adds(s, "{\"type\":\"function\",\"function\":");
        good = ln_json_skip(&j, NULL) == LN_OK && ln_json_want(&j, LN_J_END, NULL) == LN_OK;
        ln_str_add(s, text.data, text.len);
        ln_str_adds(s, "}");
    } else
        for (size_t i = 0; good; i++) {
            if (ln_json_item(&j, &more, NULL) != LN_OK) good = false;
            if (!good || !more) break;
            const size_t from = j.offset;
            good = j.type == LN_J_OBJECT && ln_json_skip(&j, NULL) == LN_OK;
            ln_str_addf(s, "%s{\"type\":\"function\",\"function\":", i ? "," : "");
            ln_str_add(s, j.data + from, good ? j.at - from : 0);
            ln_str_adds(s, "}");
        }
    ln_str_adds(s, "]");
    if (!good) st = bad_part(m, part, "a call as JSON, {\"name\", \"arguments\"}", err);
    ln_json_close(&j);
    ln_str_free(&text);
    return st;
}

/* Whether the message's flags say that it is not trained on. */
static ln_status read_train(const message *m, bool *off, ln_error *err) {
    static const int flags[] = {TRAIN, TRAINING};
    for (size_t i = 0; i < LN_COUNT(flags); i++) {
        const raw *v = &m->v[flags[i]];
        if (!v->seen || v->type == LN_J_NULL) continue;
        if (v->type != LN_J_TRUE && v->type != LN_J_FALSE) return bad_part(m, flags[i], "true or false", err);
        *off |= v->type == LN_J_FALSE;
    }
    return LN_OK;
}

/* Appends a message that has other members than templates read. `off`: it is not trained on. */
static ln_status put_message(ln_str *s, const message *m, bool off, ln_error *err) {
    const bool sharegpt = !m->v[ROLE].seen;
    const raw *role = &m->v[sharegpt ? FROM : ROLE], *call = &m->v[CALL];
    const raw *content = &m->v[m->v[CONTENT].seen ? CONTENT : VALUE];
    if (sharegpt && role->seen) LN_TRY(check_from(m, err));
    LN_TRY(read_train(m, &off, err));
    const size_t row = raw_is_text(role) ? role_row(role) : LN_COUNT(roles);
    const bool is_call = sharegpt && row < LN_COUNT(roles) && !roles[row].role;
    ln_str_adds(s, "{\"role\":");
    if (is_call) ln_str_adds(s, "\"assistant\"");
    else if (row < LN_COUNT(roles) && roles[row].role) ln_str_addf(s, "\"%s\"", roles[row].role);
    else if (role->seen) raw_put(s, role);
    else ln_str_adds(s, "null");
    if (is_call) LN_TRY(put_calls(s, m, content == &m->v[CONTENT] ? CONTENT : VALUE, err));
    else if (content->seen) {
        ln_str_adds(s, ",\"content\":");
        raw_put(s, content);
    }
    if (call->seen && call->type == LN_J_OBJECT) {
        ln_str_adds(s, ",\"tool_calls\":[{\"type\":\"function\",\"function\":");
        raw_put(s, call);
        ln_str_adds(s, "}]");
    } else if (call->seen && call->type != LN_J_NULL) return bad_part(m, CALL, "an object", err);
    ln_str_add(s, m->rest.data, m->rest.len);
    if (off) ln_str_adds(s, ",\"weight\":0");
    else if (m->v[WEIGHT].seen) {
        ln_str_adds(s, ",\"weight\":");
        raw_put(s, &m->v[WEIGHT]);
    }
    ln_str_adds(s, "}");
    return LN_OK;
}

/* Appends an item of a list of messages. `off`: the assistant's are not trained on. */
static ln_status put_item(ln_str *s, const char *list, size_t i, const raw *item, bool off, bool *changed,
                          ln_error *err) {
    message m = {.list = list, .i = i};
    ln_status st = LN_OK;
    if (item->type != LN_J_OBJECT) {
        char found[80];
        return ln_fail(err, LN_EINVALID, "\"%s\": item %zu: expected a message, found %s", list, i,
                       raw_found(item, found));
    }
    LN_GO(read_message(&m, item, err));
    const raw *role = &m.v[ROLE];
    const bool usual = !m.v[VALUE].seen && !m.v[TRAIN].seen && !m.v[TRAINING].seen && !m.v[CALL].seen &&
                       (role->seen || !m.v[FROM].seen) &&
                       (!raw_is_text(role) || role_row(role) == LN_COUNT(roles));
    if (usual && !off) raw_put(s, item);
    else {
        *changed = true;
        LN_GO(put_message(s, &m, off, err));
    }
out:
    ln_str_free(&m.rest);
    return st;
}

ln_status foreign_messages(ln_str *s, const raw *list, bool first, bool off, bool *changed, ln_error *err) {
    ln_json j;
    ln_status st = LN_OK;
    bool more;
    ln_json_open(&j, "JSON", list->text, list->bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&j, err));
    for (size_t i = 0;; i++) {
        raw item = {0};
        LN_GO(ln_json_item(&j, &more, err));
        if (!more) break;
        item.type = j.type, item.text = j.data + j.offset;
        LN_GO(ln_json_skip(&j, err));
        item.bytes = (size_t)(j.data + j.at - item.text);
        if (!first || i > 0) ln_str_adds(s, ",");
        LN_GO(put_item(s, list->name, i, &item, off, changed, err));
    }
out:
    ln_json_close(&j);
    return st;
}

/* ---- lists of tools ---- */

ln_status foreign_tools(ln_str *s, const char *name, const char *text, size_t bytes, bool *changed,
                        ln_error *err) {
    ln_json j;
    ln_status st = LN_OK;
    bool more;
    ln_json_open(&j, "\"tools\"", text, bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&j, err));
    if (j.type != LN_J_ARRAY) {
        char found[80];
        LN_GO(ln_fail(err, LN_EINVALID, "\"%s\": expected a list of tools, found %s", name,
                      ln_json_found(&j, found)));
    }
    ln_str_adds(s, "[");
    for (size_t i = 0;; i++) {
        bool wrapped = true, named = false;
        LN_GO(ln_json_item(&j, &more, err));
        if (!more) break;
        const size_t from = j.offset;
        if (j.type == LN_J_OBJECT) {
            for (wrapped = false;;) {
                LN_GO(ln_json_key(&j, &more, err));
                if (!more) break;
                wrapped |= ln_json_is(&j, "function");
                named |= ln_json_is(&j, "name");
                LN_GO(ln_json_skip(&j, err));
            }
        } else LN_GO(ln_json_skip(&j, err));
        const bool wrap = !wrapped && named;
        *changed |= wrap;
        ln_str_addf(s, "%s%s", i ? "," : "", wrap ? "{\"type\":\"function\",\"function\":" : "");
        ln_str_add(s, j.data + from, j.at - from);
        if (wrap) ln_str_adds(s, "}");
    }
    ln_str_adds(s, "]");
    LN_GO(ln_json_want(&j, LN_J_END, err));
out:
    ln_json_close(&j);
    return st;
}
