/* A streaming parser that separates calls of tools from generated text.
 *
 * Three forms are known, by what the chat templates of models show:
 *   hermes   <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>, several one after another, after
 *            a text or without one (Hermes 2 Pro, Qwen 2.5, Qwen 3)
 *   llama3   {"name": "f", "parameters": {...}} as the whole answer, perhaps after <|python_tag|>; several
 *            are separated by semicolons or blanks (Llama 3.1 to 3.3)
 *   mistral  [TOOL_CALLS] [{"name": "f", "arguments": {...}}, ...]
 *
 * The parser looks for the beginning of a call, reads its object to the brace that closes it, by counting
 * braces outside of strings, and looks for the end tag. Text that may still become a call is held back, with
 * blanks before it, which belong to the call as templates write it. What turns out to be no call (no JSON, a
 * tool that does not exist, arguments that are no object, no end) is text, so that nothing is lost. A call
 * whose object is complete counts although the text ends before its end tag. Tags are ASCII, so that
 * splitting at them never splits a UTF-8 character. */
#include "tool_calls.h"

#include <string.h>

/* A longer run of blanks belongs to no call. After so many tags without a call the rest is text: a text of
 * nothing but tags, each of which might begin a call, takes linear time. */
enum { MOST_BLANKS = 64, MOST_FAILED = 64 };

static const ln_call_form forms[] = {
    {"hermes", LN_CALLS_TAGGED, "<tool_call>", "</tool_call>", "arguments"},
    {"llama3", LN_CALLS_WHOLE, "<|python_tag|>", "", "parameters"},
    {"mistral", LN_CALLS_LISTED, "[TOOL_CALLS]", "", "arguments"},
};

/* ---- the form of a model ---- */

const ln_call_form *ln_call_form_in(const char *source) {
    /* other families write <function=...> or <arg_key> between the tags, or [ARGS] after a name */
    const bool tagged = strstr(source, "<tool_call>") && strstr(source, "arguments") &&
                        !strstr(source, "<function=") && !strstr(source, "<arg_key>");
    const bool whole = strstr(source, "<|start_header_id|>") && strstr(source, "\"parameters\": ");
    const bool listed = strstr(source, "[TOOL_CALLS]") && !strstr(source, "[ARGS]");
    return tagged ? &forms[0] : whole ? &forms[1] : listed ? &forms[2] : NULL;
}

const ln_call_form *ln_call_form_of(const ln_model_template *tmpl) {
    size_t bytes;
    return tmpl ? ln_call_form_in(ln_model_template_tools_source(tmpl, &bytes)) : NULL;
}

/* ---- the parser's text ---- */

void ln_calls_open(ln_calls *t, const ln_call_form *form, const char *const *names, size_t n, bool single) {
    *t = (ln_calls){.form = form, .names = names, .n_names = n, .single = single};
    if (!form) t->step = LN_CALLS_REST;
}

void ln_calls_close(ln_calls *t) {
    ln_str_free(&t->held);
    ln_str_free(&t->text);
    ln_str_free(&t->name);
    ln_str_free(&t->arguments);
}

static ln_status done(const ln_calls *t, ln_error *err) {
    return t->held.failed || t->text.failed || t->name.failed || t->arguments.failed
               ? LN_OOM(err, "generated text")
               : LN_OK;
}

ln_status ln_calls_push(ln_calls *t, const char *text, size_t bytes, ln_error *err) {
    if (t->ended) t->before += bytes;
    else if (bytes > 0) ln_str_add(&t->held, text, bytes);
    return done(t, err);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void shorten(ln_calls *t, size_t bytes) {
    if (bytes > 0) memmove(t->held.data, t->held.data + bytes, t->held.len - bytes);
    t->held.len -= bytes;
}

/* Removes bytes that belong to a call. */
static void drop(ln_calls *t, size_t bytes) {
    shorten(t, bytes);
    t->before += bytes;
}

static ln_calls_piece give_text(ln_calls *t, size_t bytes) {
    ln_str_add(&t->text, t->held.data, bytes);
    shorten(t, bytes);
    t->skip = false;
    return LN_CALLS_TEXT;
}

static void skip_blanks(ln_calls *t) {
    size_t n = 0;
    while (n < t->held.len && is_blank(t->held.data[n])) n++;
    drop(t, n);
}

/* ---- matching ---- */

typedef enum match { NO, PART, YES } match; /* PART: more text decides */

/* A place in the held text; `part`: what was looked for may still follow at the end. */
typedef struct cursor {
    const char *s;
    size_t n, at;
    bool part;
} cursor;

static bool take(cursor *c, const char *what) {
    const size_t n = strlen(what), left = c->n - c->at;
    if (memcmp(c->s + c->at, what, LN_MIN(n, left)) != 0) return false;
    c->part = left < n;
    if (!c->part) c->at += n;
    return !c->part;
}

static void take_blanks(cursor *c, bool semicolons) {
    for (size_t n = 0; n < MOST_BLANKS && c->at < c->n; n++, c->at++)
        if (!is_blank(c->s[c->at]) && !(semicolons && c->s[c->at] == ';')) break;
}

/* Whether the object of a call begins after what may be in front of it at c. */
static match begins(const ln_calls *t, cursor *c) {
    const ln_call_form *f = t->form;
    if (f->style == LN_CALLS_WHOLE) {
        take_blanks(c, t->n > 0);
        if (!take(c, f->open) && c->part) return PART;
    } else if (t->in_list) {
        take_blanks(c, false);
        if (!take(c, ",")) return c->part ? PART : NO;
    } else {
        if (!take(c, f->open)) return c->part ? PART : NO;
        take_blanks(c, false);
        if (f->style == LN_CALLS_LISTED && !take(c, "[")) return c->part ? PART : NO;
    }
    take_blanks(c, false);
    return take(c, "{") ? YES : c->part ? PART : NO;
}

/* ---- a call ---- */

static bool is_name(const ln_calls *t, const ln_json *j) {
    for (size_t i = 0; i < t->n_names; i++)
        if (strlen(t->names[i]) == j->text_bytes && memcmp(t->names[i], j->text, j->text_bytes) == 0)
            return true;
    return false;
}

/* Reads the value of a member. LN_EINVALID: it is not that of a call. Either name of the arguments is taken,
 * since models confuse the two. */
static ln_status read_member(ln_calls *t, ln_json *j, ln_error *err) {
    if (ln_json_is(j, "name")) {
        LN_TRY(ln_json_want(j, LN_J_STRING, err));
        if (t->name.len > 0 || !is_name(t, j)) return ln_json_fail(j, err, "no tool of this name");
        ln_str_add(&t->name, j->text, j->text_bytes);
        return LN_OK;
    }
    if (!ln_json_is(j, "arguments") && !ln_json_is(j, "parameters")) return ln_json_skip(j, err);
    LN_TRY(ln_json_want(j, LN_J_OBJECT, err));
    if (t->arguments.len > 0) return ln_json_fail(j, err, "arguments twice");
    const size_t from = j->offset;
    LN_TRY(ln_json_skip(j, err));
    ln_str_add(&t->arguments, j->data + from, j->at - from);
    return LN_OK;
}

/* Reads the call's object, held[object .. pos). */
static ln_status read_call(ln_calls *t, bool *is_call, ln_error *err) {
    ln_json j;
    bool more = true;
    t->name.len = t->arguments.len = 0;
    ln_json_open(&j, "a call", t->held.data + t->object, t->pos - t->object, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, err);
    while (st == LN_OK && more) {
        st = ln_json_key(&j, &more, err);
        if (st == LN_OK && more) st = read_member(t, &j, err);
    }
    if (st == LN_OK) st = ln_json_want(&j, LN_J_END, err);
    ln_json_close(&j);
    *is_call = st == LN_OK && t->name.len > 0 && t->arguments.len > 0;
    return st == LN_EINVALID ? LN_OK : st;
}

/* What looked like a call is text: its opening tag, after which the search goes on. */
static ln_calls_piece no_call(ln_calls *t) {
    const bool whole = t->form->style == LN_CALLS_WHOLE;
    const size_t bytes = t->in_list ? t->object : t->begin + strlen(t->form->open);
    t->step = whole || ++t->n_failed > MOST_FAILED ? LN_CALLS_REST : LN_CALLS_SEARCH;
    t->in_list = false;
    return give_text(t, whole ? t->held.len : bytes);
}

/* Ends a call at held[end). */
static ln_status end_call(ln_calls *t, size_t end, ln_calls_piece *piece, ln_error *err) {
    bool is_call;
    LN_TRY(read_call(t, &is_call, err));
    if (!is_call) {
        *piece = no_call(t);
        return done(t, err);
    }
    drop(t, end);
    *piece = LN_CALLS_CALL;
    t->step = LN_CALLS_SEARCH;
    t->in_list = t->form->style == LN_CALLS_LISTED;
    t->skip = true;
    t->n++;
    t->ended = t->single;
    if (t->ended) drop(t, t->held.len);
    return done(t, err);
}

/* Looks on for the brace that closes the object; true: t->pos is behind it. */
static bool read_object(ln_calls *t) {
    while (t->pos < t->held.len) {
        const char c = t->held.data[t->pos++];
        if (t->in_string) {
            if (t->escaped) t->escaped = false;
            else if (c == '\\') t->escaped = true;
            else if (c == '"') t->in_string = false;
        } else if (c == '"') {
            t->in_string = true;
        } else if (c == '{' || c == '[') {
            t->depth++;
        } else if ((c == '}' || c == ']') && --t->depth == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the search ---- */

static void begin_object(ln_calls *t, size_t begin, size_t object) {
    t->step = LN_CALLS_OBJECT;
    t->begin = begin;
    t->object = t->pos = object;
    t->depth = 0;
    t->in_string = t->escaped = false;
}

/* At the place where a call must begin, if one follows: a whole answer, and inside a list. */
static bool search_here(ln_calls *t, bool final) {
    cursor c = {t->held.data, t->held.len, 0, false};
    match m = begins(t, &c);
    if (m == YES) begin_object(t, 0, c.at - 1);
    if (m == YES || (m == PART && !final)) return m == YES;
    c.at = 0;
    take_blanks(&c, t->form->style == LN_CALLS_WHOLE && t->n > 0);
    if (t->n > 0 && c.at == c.n) { /* separators at the end of the text */
        drop(t, c.at);
        return false;
    }
    if (t->in_list && take(&c, "]")) drop(t, c.at);
    t->step = t->in_list ? LN_CALLS_SEARCH : LN_CALLS_REST;
    t->in_list = false;
    return true;
}

/* Finds the next tag. Gives the text before it; blanks directly before it are held back. */
static bool search_on(ln_calls *t, bool final, ln_calls_piece *piece) {
    match m = NO;
    cursor c = {t->held.data, t->held.len, 0, false};
    size_t at = 0, end;
    for (; at < t->held.len; at++) {
        if (t->held.data[at] != t->form->open[0]) continue;
        c.at = at;
        c.part = false;
        m = begins(t, &c);
        if (m != NO) break;
    }
    if (final && m == PART) at = t->held.len;
    for (end = at; end > 0 && at - end < MOST_BLANKS && is_blank(t->held.data[end - 1]);) end--;
    if (final && m != YES) end = at;
    if (end > 0) {
        *piece = give_text(t, end);
        return true;
    }
    if (m == YES) begin_object(t, at, c.at - 1);
    return m == YES;
}

/* ---- the steps ---- */

/* Takes a step; false: more text is needed. A piece may have been found. */
static ln_status take_step(ln_calls *t, bool final, bool *more, ln_calls_piece *piece, ln_error *err) {
    cursor c = {t->held.data, t->held.len, t->pos, false};
    *more = true;
    switch (t->step) {
    case LN_CALLS_SEARCH:
        if (t->form->style == LN_CALLS_WHOLE || t->in_list) *more = search_here(t, final);
        else {
            if (t->skip) skip_blanks(t);
            *more = t->held.len > 0 && search_on(t, final, piece);
        }
        break;
    case LN_CALLS_OBJECT:
        *more = read_object(t) || final;
        if (t->depth > 0 && final) *piece = no_call(t);
        else if (*more && t->form->style == LN_CALLS_TAGGED) t->step = LN_CALLS_END;
        else if (*more) return end_call(t, t->pos, piece, err);
        break;
    case LN_CALLS_END:
        take_blanks(&c, false);
        if (take(&c, t->form->end)) return end_call(t, c.at, piece, err);
        if (c.part && final) return end_call(t, t->held.len, piece, err);
        *more = !c.part;
        if (!c.part) *piece = no_call(t);
        break;
    case LN_CALLS_REST:
        if (t->skip) skip_blanks(t);
        *more = false;
        if (t->held.len > 0) *piece = give_text(t, t->held.len);
    }
    return done(t, err);
}

ln_status ln_calls_next(ln_calls *t, bool final, ln_calls_piece *piece, ln_error *err) {
    bool more = true;
    *piece = LN_CALLS_NOTHING;
    t->text.len = 0;
    LN_TRY(done(t, err));
    while (more && *piece == LN_CALLS_NOTHING && t->held.len > 0)
        LN_TRY(take_step(t, final, &more, piece, err));
    return LN_OK;
}
