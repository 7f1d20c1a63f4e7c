/* Reading a call of a tool: matching what stands around its arguments, and the arguments in the notations of
 * the formats. */
#include "call_reader.h"
#include "reasoning.h"
#include "../base/json_write.h"

#include <string.h>

ln_status calls_done(const ln_calls *t, ln_error *err) {
    return t->held.failed || t->text.failed || t->name.failed || t->arguments.failed
               ? LN_OOM(err, "generated text")
               : LN_OK;
}

/* ---- matching ---- */

void take_blanks(cursor *c) {
    for (size_t n = 0; n < MOST_BLANKS && c->at < c->n && call_is_blank(c->s[c->at]); n++) c->at++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_id(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

match take(cursor *c, const char *what) {
    for (; *what; what++) {
        size_t n = 0;
        if (call_is_blank(*what)) {
            take_blanks(c);
            continue;
        }
        if (*what == '#')
            while (c->at + n < c->n && n < ID_CHARACTERS && is_digit(c->s[c->at + n])) n++;
        else if (*what == '@')
            while (c->at + n < c->n && n < ID_CHARACTERS && is_id(c->s[c->at + n])) n++;
        else n = c->at < c->n && c->s[c->at] == *what;
        if (n == 0) return c->at < c->n ? NO : PART;
        c->at += n;
    }
    return YES;
}

/* ---- an object with name and arguments ---- */

static const ln_call_tool *tool_named(const ln_calls *t, const char *name, size_t bytes) {
    for (size_t i = 0; i < t->n_tools; i++)
        if (strlen(t->tools[i].name) == bytes && memcmp(t->tools[i].name, name, bytes) == 0)
            return &t->tools[i];
    return NULL;
}

/* Reads arguments: an object, or a text that has one. */
static ln_status read_arguments(ln_calls *t, ln_json *j, ln_error *err) {
    ln_str text = {0};
    LN_TRY(ln_json_next(j, err));
    const size_t from = j->offset;
    if (j->type == LN_J_STRING) {
        const bool good = ln_str_call_arguments(&text, j->text, j->text_bytes);
        if (good) ln_str_add(&t->arguments, text.data, text.len);
        ln_str_free(&text);
        return good ? LN_OK : ln_json_fail(j, err, "no arguments");
    }
    if (j->type == LN_J_NULL) return LN_OK;
    if (j->type != LN_J_OBJECT) return ln_json_fail(j, err, "no arguments");
    LN_TRY(ln_json_skip(j, err));
    ln_str_add(&t->arguments, j->data + from, j->at - from);
    return LN_OK;
}

/* Reads the value of a member. LN_EINVALID: it is not that of a call. Either name of the arguments is taken,
 * since models confuse the two. */
static ln_status read_member(ln_calls *t, ln_json *j, members *m, ln_error *err) {
    if (ln_json_is(j, "name")) {
        LN_TRY(ln_json_want(j, LN_J_STRING, err));
        t->tool = m->name ? NULL : tool_named(t, j->text, j->text_bytes);
        m->name = true;
        return t->tool ? LN_OK : ln_json_fail(j, err, "no tool of this name");
    }
    if (!ln_json_is(j, "arguments") && !ln_json_is(j, "parameters")) {
        m->others = m->others || !(ln_json_is(j, "type") || ln_json_is(j, "id"));
        return ln_json_skip(j, err);
    }
    if (m->arguments) return ln_json_fail(j, err, "arguments twice");
    m->arguments = true;
    return read_arguments(t, j, err);
}

/* Reads the call's object, held[body .. pos). A call without arguments has none, but a whole answer that is
 * an object with a name and other members is no call. */
static ln_status read_object(ln_calls *t, bool *is_call, members *m, ln_error *err) {
    ln_json j;
    bool more = true;
    *m = (members){0};
    t->arguments.len = 0;
    t->tool = NULL;
    ln_json_open(&j, "a call", t->held.data + t->body, t->pos - t->body, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, err);
    while (st == LN_OK && more) {
        st = ln_json_key(&j, &more, err);
        if (st == LN_OK && more) st = read_member(t, &j, m, err);
    }
    if (st == LN_OK) st = ln_json_want(&j, LN_J_END, err);
    ln_json_close(&j);
    *is_call =
        st == LN_OK && t->tool && (m->arguments || t->format->place == LN_CALLS_ANYWHERE || !m->others);
    t->name.len = 0;
    if (*is_call) ln_str_adds(&t->name, t->tool->name);
    if (*is_call && t->arguments.len == 0) ln_str_adds(&t->arguments, "{}");
    return st == LN_EINVALID ? LN_OK : st;
}

/* Whether a member of this name follows at c, with its colon. */
static bool take_key(cursor *c, const char *key) {
    take_blanks(c);
    if (take(c, "\"") != YES || take(c, key) != YES || take(c, "\"") != YES) return false;
    take_blanks(c);
    if (take(c, ":") != YES) return false;
    take_blanks(c);
    return true;
}

/* Finds the arguments of an object whose members come in the usual order, before it is complete. */
static void find_arguments(ln_calls *t) {
    cursor c = at_place(t, t->body + 1), key;
    if (t->from > 0 || t->pos - t->body > MOST_HEAD || !take_key(&c, "name") || take(&c, "\"") != YES) return;
    for (size_t i = 0; i < t->n_tools; i++) {
        cursor after = c;
        const size_t n = strlen(t->tools[i].name);
        if (c.n - c.at <= n || memcmp(c.s + c.at, t->tools[i].name, n) != 0) continue;
        after.at += n;
        if (take(&after, "\"") != YES) continue;
        take_blanks(&after);
        if (take(&after, ",") != YES) return;
        key = after;
        if (!take_key(&key, "arguments") && (key = after, !take_key(&key, "parameters"))) return;
        if (!next_is(&key, '{')) return;
        t->tool = &t->tools[i];
        t->from = key.at;
        t->name.len = 0;
        ln_str_adds(&t->name, t->tool->name);
        return;
    }
}

/* ---- arguments ---- */

/* A byte of arguments outside of their texts. True: it closes the last bracket. */
static bool count_bracket(ln_calls *t, char c) {
    const bool python = t->format->body == LN_CALLS_PYTHON;
    if (c == '"' || (c == '\'' && python)) {
        t->in_string = true;
        t->quote = c;
    } else if (c == '{' || c == '[' || (c == '(' && python)) {
        t->depth++;
    } else if (c == '}' || c == ']' || (c == ')' && python)) {
        return --t->depth < (python ? 0 : 1);
    }
    return false;
}

/* Whether the quote of a QUOTED format stands at held[pos); sets *part where it may. */
static bool at_quote(const ln_calls *t, bool *part) {
    const char *quote = t->format->body == LN_CALLS_QUOTED ? t->format->key : "";
    const size_t n = strlen(quote), left = t->held.len - t->pos;
    *part = n > left && memcmp(t->held.data + t->pos, quote, left) == 0;
    return n > 0 && n <= left && memcmp(t->held.data + t->pos, quote, n) == 0;
}

/* Looks on for the bracket that closes the arguments or the object. YES: t->pos is behind it, or for Python
 * at it. NO: the message ends without it. */
static match read_brackets(ln_calls *t) {
    const bool python = t->format->body == LN_CALLS_PYTHON;
    while (t->pos < t->held.len) {
        bool part = false;
        if ((!t->in_string || t->quote == '\0') && at_quote(t, &part)) {
            t->in_string = !t->in_string;
            t->quote = '\0';
            t->pos += strlen(t->format->key);
            continue;
        }
        if (t->format->body == LN_CALLS_QUOTED && part) return PART;
        const char c = t->held.data[t->pos++];
        if (c == LN_CHANNEL_END[0] && t->format->place == LN_CALLS_IN_CHANNEL) return NO;
        if (t->in_string) {
            if (t->escaped) t->escaped = false;
            else if (c == '\\') t->escaped = t->quote != '\0';
            else if (c == t->quote && t->quote != '\0') t->in_string = false;
        } else if (count_bracket(t, c)) {
            if (python) t->pos--;
            return YES;
        }
        if (t->from > 0 && t->end == 0 && t->pos > t->from && t->depth == 1 && !t->in_string) t->end = t->pos;
    }
    return PART;
}

static const ln_call_param *param_named(const ln_call_tool *tool, const char *name, size_t bytes) {
    for (size_t i = 0; i < tool->n_params; i++)
        if (strlen(tool->params[i].name) == bytes && memcmp(tool->params[i].name, name, bytes) == 0)
            return &tool->params[i];
    return NULL;
}

/* The place of the first word of a text, *n bytes, in held[from ..). */
static const char *find_core(const ln_calls *t, size_t from, const char *text, size_t *n) {
    while (call_is_blank(*text)) text++;
    *n = strcspn(text, " \n");
    return from < t->held.len ? memmem(t->held.data + from, t->held.len - from, text, *n) : NULL;
}

/* Reads one parameter at t->pos. NO: there is none; PART: more text decides. */
static match read_param(ln_calls *t) {
    const ln_call_format *f = t->format;
    cursor c = at_place(t, t->pos);
    size_t n_end, n_close;
    take_blanks(&c);
    const match m = take(&c, f->key);
    if (m != YES) return m;
    const char *key_end = find_core(t, c.at, f->key_end, &n_end);
    if (!key_end) return PART;
    const size_t key = c.at, key_bytes = (size_t)(key_end - t->held.data) - key;
    const char *behind = f->key_end + n_end; /* of the first word of what ends the name */
    c.at = key + key_bytes + n_end;
    if (strcmp(behind, "\n") == 0) { /* no more of the white space, which the value may begin with */
        if (c.at == c.n) return PART;
        c.at += c.s[c.at] == '\n';
    } else {
        const match rest = take(&c, behind);
        if (rest != YES) return rest;
    }
    const size_t from = c.at;
    const char *close = find_core(t, LN_MAX(from, t->seen), f->value_end, &n_close);
    if (!close) { /* the next search goes on where this one ended */
        t->seen = t->held.len - LN_MIN(t->held.len, n_close);
        return PART;
    }
    size_t end = (size_t)(close - t->held.data);
    t->pos = end + n_close;
    if (f->value_end[0] == '\n' && end > from && t->held.data[end - 1] == '\n') end--;
    const ln_call_param *p = param_named(t->tool, t->held.data + key, key_bytes);
    if (t->arguments.len > 1) ln_str_adds(&t->arguments, ", ");
    ln_str_json(&t->arguments, t->held.data + key, key_bytes);
    ln_str_adds(&t->arguments, ": ");
    ln_call_put_value(&t->arguments, p ? p->kinds : LN_PARAM_ANY, t->held.data + from, end - from);
    return YES;
}

match read_on(ln_calls *t) {
    match m;
    if (t->format->body != LN_CALLS_TAGS) {
        if (t->format->body == LN_CALLS_OBJECT) find_arguments(t);
        return read_brackets(t);
    }
    do m = read_param(t);
    while (m == YES);
    return m == NO ? YES : PART;
}

bool tell_arguments(ln_calls *t) {
    const ln_call_body body = t->format->body;
    size_t from, to;
    if (body == LN_CALLS_TAGS) {
        ln_str_add(&t->text, t->arguments.data + t->told, t->arguments.len - t->told);
        t->told = t->arguments.len;
        return t->text.len > 0;
    }
    if (body == LN_CALLS_OBJECT && t->from == 0) return false;
    if (body != LN_CALLS_OBJECT && body != LN_CALLS_JSON) return false;
    from = (body == LN_CALLS_OBJECT ? t->from : t->body) + t->told;
    to = t->end ? t->end : t->pos;
    if (to <= from) return false;
    ln_str_add(&t->text, t->held.data + from, to - from);
    t->told += to - from;
    return true;
}

/* Whether a text is an object of JSON. A name may occur twice, as for other readers of calls. */
static bool is_object(const char *text, size_t bytes) {
    ln_json j;
    ln_json_open(&j, "arguments", text, bytes, LN_JSON_MAX_DEPTH);
    bool yes = ln_json_next(&j, NULL) == LN_OK && j.type == LN_J_OBJECT && ln_json_skip(&j, NULL) == LN_OK &&
               ln_json_want(&j, LN_J_END, NULL) == LN_OK;
    ln_json_close(&j);
    return yes;
}

ln_status finish_arguments(ln_calls *t, bool *is_call, members *m, ln_error *err) {
    const char *text = t->held.data + t->body;
    const size_t bytes = t->pos - t->body;
    *is_call = true;
    *m = (members){.name = true, .arguments = true};
    switch (t->format->body) {
    case LN_CALLS_OBJECT: return read_object(t, is_call, m, err);
    case LN_CALLS_TAGS: ln_str_adds(&t->arguments, "}"); break;
    case LN_CALLS_QUOTED: *is_call = ln_call_put_quoted(&t->arguments, t->format->key, text, bytes); break;
    case LN_CALLS_PYTHON: *is_call = ln_call_put_python(&t->arguments, text, bytes); break;
    case LN_CALLS_JSON: *is_call = is_object(text, bytes); ln_str_add(&t->arguments, text, bytes);
    }
    return calls_done(t, err);
}
