/* A streaming parser that separates calls of tools from generated text.
 *
 * It looks for the tag of the format, reads what stands before a call's arguments, the arguments to their
 * end, and what stands after them. Text that may still become a call is held back, with blanks before it,
 * which belong to the call as templates write it; of blanks between two texts with calls between them one
 * stays. What turns out to be no call (another tool, arguments that are no object) is text, so that nothing
 * is lost. A call whose arguments are complete counts although the text ends before its end tag; one that the
 * end of the text cuts in its arguments is given as such. Tags are split at whole characters. */
#include "call_reader.h"
#include "reasoning.h"

#include <string.h>

/* After so many tags without a call the rest is text: a text of nothing but tags, each of which might begin a
 * call, takes linear time. */
enum { MOST_FAILED = 64 };

/* ---- the parser's text ---- */

void ln_calls_open(ln_calls *t, const ln_call_format *format, const ln_call_tool *tools, size_t n,
                   bool single) {
    *t = (ln_calls){.format = format, .tools = tools, .n_tools = n, .single = single};
    if (!format) t->step = LN_CALLS_REST;
}

void ln_calls_close(ln_calls *t) {
    ln_str_free(&t->held);
    ln_str_free(&t->text);
    ln_str_free(&t->name);
    ln_str_free(&t->arguments);
}

ln_status ln_calls_push(ln_calls *t, const char *text, size_t bytes, ln_error *err) {
    if (t->ended) t->before += bytes;
    else if (bytes > 0) ln_str_add(&t->held, text, bytes);
    return calls_done(t, err);
}

static bool in_channel(const ln_calls *t) { return t->format && t->format->place == LN_CALLS_IN_CHANNEL; }

/* The text before a call as the parser is given it, and that between a name and its arguments: channels.c has
 * put bytes in the place of what the model wrote. */
static const char *tag_of(const ln_calls *t) { return in_channel(t) ? LN_CHANNEL_CALL : t->format->tag; }
static const char *middle_of(const ln_calls *t) {
    return in_channel(t) ? LN_CHANNEL_TEXT : t->format->middle;
}

/* Removes the bytes with which channels.c marks calls from a text that is none; a blank stands between what
 * was a name and its arguments. */
static void remove_marks(ln_calls *t, size_t from) {
    size_t n = from;
    for (size_t i = from; i < t->text.len; i++) {
        const char c = t->text.data[i];
        if (c == LN_CHANNEL_TEXT[0]) t->text.data[n++] = ' ';
        else if (c != LN_CHANNEL_CALL[0] && c != LN_CHANNEL_END[0]) t->text.data[n++] = c;
        else t->before++;
    }
    t->text.len = n;
}

static void shorten(ln_calls *t, size_t bytes) {
    if (bytes > 0) memmove(t->held.data, t->held.data + bytes, t->held.len - bytes);
    t->held.len -= bytes;
}

/* Bytes of blanks at the beginning of held[0..n), and of marks of the end of a call. */
static size_t blanks(const ln_calls *t, size_t n) {
    size_t i = 0;
    while (i < n &&
           (call_is_blank(t->held.data[i]) || (in_channel(t) && t->held.data[i] == LN_CHANNEL_END[0])))
        i++;
    return i;
}

/* Notes the blanks at the beginning of held[0..n), which stand beside a call. */
static void note_gap(ln_calls *t, size_t n) {
    n = blanks(t, n);
    for (size_t i = 0; i < n; i++)
        if (call_is_blank(t->held.data[i])) t->gap = t->held.data[i] == '\n' || t->gap == '\n' ? '\n' : ' ';
}

/* Removes bytes that belong to a call. */
static void drop(ln_calls *t, size_t bytes) {
    shorten(t, bytes);
    t->before += bytes;
}

/* Gives text. One of the blanks between it and the text before the calls stays. */
static ln_calls_piece give_text(ln_calls *t, size_t bytes) {
    const char gap = (char)t->gap;
    if (t->spoke && gap) {
        ln_str_add(&t->text, &gap, 1);
        t->before--;
    }
    const size_t from = t->text.len;
    ln_str_add(&t->text, t->held.data, bytes);
    if (in_channel(t)) remove_marks(t, from);
    shorten(t, bytes);
    t->skip = false;
    t->gap = 0;
    if (t->text.len == 0) return LN_CALLS_NOTHING; /* there were only marks */
    t->spoke = true;
    return LN_CALLS_TEXT;
}

static void skip_blanks(ln_calls *t) {
    const size_t n = blanks(t, t->held.len);
    note_gap(t, n);
    drop(t, n);
}

/* ---- what stands before a call's arguments ---- */

/* The character that the arguments begin with; NUL: any. */
static char first_of(ln_call_body body) {
    return body == LN_CALLS_PYTHON ? '\0' : body == LN_CALLS_TAGS ? '<' : '{';
}

/* The name of a tool and what follows it, up to the arguments. */
static match match_tool(const ln_calls *t, const cursor *from, const ln_call_tool *tool, cursor *c) {
    const size_t n = strlen(tool->name), left = from->n - from->at;
    const char first = first_of(t->format->body);
    *c = *from;
    if (memcmp(c->s + c->at, tool->name, LN_MIN(n, left)) != 0) return NO;
    if (left < n) return PART;
    c->at += n;
    const match m = take(c, middle_of(t));
    if (m != YES || !first) return m;
    if (t->format->body != LN_CALLS_TAGS) take_blanks(c);
    return c->at == c->n ? PART : c->s[c->at] == first ? YES : NO;
}

static match find_tool(ln_calls *t, cursor *c) {
    match best = NO;
    for (size_t i = 0; i < t->n_tools; i++) {
        cursor after;
        const match m = match_tool(t, c, &t->tools[i], &after);
        if (m == PART) best = PART;
        if (m != YES) continue;
        t->tool = &t->tools[i];
        *c = after;
        return YES;
    }
    return best;
}

/* What stands before an object: a bracket may, where a model makes a list of its calls. */
static match find_object(ln_calls *t, cursor *c) {
    take_blanks(c);
    if (!t->in_group && !t->format->sep && next_is(c, '[')) {
        c->at++;
        take_blanks(c);
        t->listed = true;
    }
    return c->at == c->n ? PART : c->s[c->at] == '{' ? YES : NO;
}

/* Whether a call's arguments, or its object, begin after what may be in front of them at c. */
static match begins(ln_calls *t, cursor *c) {
    const ln_call_format *f = t->format;
    take_blanks(c);
    match m = t->in_group ? YES : take(c, f->open);
    if (m != YES) return m;
    if (f->body == LN_CALLS_OBJECT) return find_object(t, c);
    take_blanks(c);
    m = in_channel(t) ? YES : take(c, f->begin);
    return m == YES ? find_tool(t, c) : m;
}

static void begin_reading(ln_calls *t, size_t at) {
    t->step = LN_CALLS_READ;
    t->body = t->pos = at;
    t->from = t->end = t->told = t->seen = 0;
    t->depth = 0;
    t->in_string = t->escaped = false;
    t->name.len = t->arguments.len = 0;
    if (t->format->body == LN_CALLS_OBJECT) t->tool = NULL;
    else ln_str_adds(&t->name, t->tool->name);
    if (t->format->body == LN_CALLS_TAGS) ln_str_adds(&t->arguments, "{");
}

/* What looked like a call is text: its tag, after which the search goes on. */
static ln_calls_piece no_call(ln_calls *t, bool counts) {
    const bool start = t->format->place == LN_CALLS_AT_START;
    const size_t tag = strlen(tag_of(t));
    const bool group = t->in_group; /* the calls before it were given */
    if (counts) t->n_malformed++;
    t->step = start || group || ++t->n_failed > MOST_FAILED ? LN_CALLS_REST : LN_CALLS_SEARCH;
    t->in_group = t->listed = false;
    return give_text(t, start || group ? t->held.len : LN_MIN(t->begin + tag, t->held.len));
}

/* ---- the end of a call ---- */

/* Ends a call at held[end). */
static ln_status end_call(ln_calls *t, size_t end, ln_calls_piece *piece, ln_error *err) {
    bool is_call;
    members m;
    LN_TRY(finish_arguments(t, &is_call, &m, err));
    if (!is_call) {
        *piece = no_call(t, t->format->place == LN_CALLS_ANYWHERE || (m.name && m.arguments));
        return calls_done(t, err);
    }
    note_gap(t, end);
    drop(t, end);
    *piece = LN_CALLS_CALL;
    t->skip = true;
    t->in_group = t->format->sep || t->listed;
    t->step = t->in_group ? LN_CALLS_NEXT : LN_CALLS_SEARCH;
    t->n++;
    t->ended = t->single;
    if (t->ended) drop(t, t->held.len);
    return calls_done(t, err);
}

/* The text ends in a call. */
static void cut_call(ln_calls *t, ln_calls_piece *piece) {
    const ln_call_body body = t->format->body;
    if (body == LN_CALLS_OBJECT && t->from == 0) {
        *piece = no_call(t, true);
        return;
    }
    if (body == LN_CALLS_OBJECT || body == LN_CALLS_JSON) {
        const size_t from = body == LN_CALLS_OBJECT ? t->from : t->body;
        t->arguments.len = 0;
        ln_str_add(&t->arguments, t->held.data + from, (t->end ? t->end : t->held.len) - from);
    }
    drop(t, t->held.len);
    t->step = LN_CALLS_REST;
    *piece = LN_CALLS_CUT;
}

/* What stands after the arguments. */
static match take_end(ln_calls *t, cursor *c) {
    const ln_call_format *f = t->format;
    cursor here = *c;
    match m;
    if (f->body == LN_CALLS_OBJECT) {
        take_blanks(&here);
        if (t->listed && next_is(&here, ']')) {
            here.at++;
        } else if (!f->sep && here.at < here.n && strchr("{,;", here.s[here.at])) {
            t->listed = true; /* several calls in one tag */
            return YES;
        }
    }
    if (f->body == LN_CALLS_TAGS) take_blanks(&here);
    m = take(&here, f->end);
    if (m != YES) return m;
    *c = here;
    t->listed = false;
    return YES;
}

/* ---- the search ---- */

/* At the place where a call must begin, if one follows. */
static bool search_start(ln_calls *t, bool final) {
    cursor c = at_place(t, 0), tag;
    take_blanks(&c);
    tag = c;
    const match m = t->format->tag[0] ? take(&tag, t->format->tag) : NO;
    if (m == YES) c = tag;
    const match found = m == PART ? PART : begins(t, &c);
    t->begin = 0;
    if (found == YES) begin_reading(t, c.at);
    if (found == YES || (found == PART && !final)) return found == YES;
    t->step = LN_CALLS_REST;
    t->in_group = false;
    return true;
}

/* Finds the next tag. Gives the text before it; blanks directly before it are held back. */
static bool search_on(ln_calls *t, bool final, ln_calls_piece *piece) {
    const char *tag = tag_of(t);
    match m = NO;
    size_t at = 0, end;
    cursor c = at_place(t, 0);
    for (; at < t->held.len; at++) {
        if (t->held.data[at] != tag[0]) continue;
        c.at = at;
        m = take(&c, tag);
        if (m != NO) break;
    }
    if (final && m == PART) at = t->held.len;
    for (end = at; end > 0 && at - end < MOST_BLANKS && call_is_blank(t->held.data[end - 1]);) end--;
    if (final && m != YES) end = at;
    if (end > 0) {
        *piece = give_text(t, end);
        return true;
    }
    if (m != YES) return false;
    t->begin = at;
    t->pos = c.at;
    t->listed = false;
    t->step = LN_CALLS_OPEN;
    return true;
}

/* What may stand between two calls of a group, and before its end. */
static void take_separator(const ln_calls *t, cursor *c) {
    const ln_call_format *f = t->format;
    cursor tag;
    take_blanks(c);
    for (const char *sep = f->sep ? f->sep : ",;"; *sep && c->at < c->n; sep++)
        if (!call_is_blank(*sep) && c->s[c->at] == *sep) {
            c->at++;
            break;
        }
    take_blanks(c);
    tag = *c;
    if (f->place == LN_CALLS_AT_START && f->tag[0] && take(&tag, f->tag) == YES) *c = tag;
}

/* Whether a part of the tag, which may stand between two calls, ends the text. */
static bool ends_in_tag(const ln_calls *t, cursor c) {
    return t->format->place == LN_CALLS_AT_START && t->format->tag[0] && take(&c, t->format->tag) == PART;
}

/* After a call of a group: another one, or the group's end, which may be missing. */
static bool take_next(ln_calls *t, bool final) {
    const ln_call_format *f = t->format;
    cursor c = at_place(t, 0), end = c;
    take_blanks(&end);
    const match close = f->close[0] && !t->listed ? take(&end, f->close) : NO;
    t->step = f->place == LN_CALLS_AT_START ? LN_CALLS_REST : LN_CALLS_SEARCH;
    if (close == YES) {
        drop(t, end.at);
        t->in_group = false;
        return true;
    }
    take_separator(t, &c);
    const size_t separated = c.at;
    match m = ends_in_tag(t, c) ? PART : begins(t, &c);
    if (m == YES) {
        t->begin = 0;
        begin_reading(t, c.at);
        return true;
    }
    if (!final && (m == PART || close == PART)) {
        t->step = LN_CALLS_NEXT;
        return false;
    }
    if (separated == t->held.len) drop(t, separated); /* separators at the end of the text */
    t->in_group = t->listed = false;
    return true;
}

/* ---- the steps ---- */

static ln_status take_rest(ln_calls *t, bool final, bool *more, ln_calls_piece *piece, ln_error *err) {
    cursor c = at_place(t, t->pos);
    const match m = take_end(t, &c);
    *more = true;
    if (m == YES) return end_call(t, c.at, piece, err);
    if (m == PART && final) return end_call(t, t->held.len, piece, err);
    *more = m == NO;
    if (m == NO) *piece = no_call(t, true);
    return calls_done(t, err);
}

/* Takes a step; false: more text is needed. A piece may have been found. */
static ln_status take_step(ln_calls *t, bool final, bool *more, ln_calls_piece *piece, ln_error *err) {
    cursor c = at_place(t, t->pos);
    match m;
    *more = true;
    switch (t->step) {
    case LN_CALLS_SEARCH:
        if (t->format->place == LN_CALLS_AT_START) {
            *more = search_start(t, final);
            break;
        }
        if (t->skip) skip_blanks(t);
        *more = t->held.len > 0 && search_on(t, final, piece);
        break;
    case LN_CALLS_OPEN:
        m = begins(t, &c);
        if (m == YES) begin_reading(t, c.at);
        else if (m == NO || final) *piece = no_call(t, true);
        else *more = false;
        break;
    case LN_CALLS_READ:
        m = read_on(t);
        if (m == YES) t->step = LN_CALLS_END;
        else if (m == NO) *piece = no_call(t, true);
        else if (tell_arguments(t)) *piece = LN_CALLS_ARGUMENTS;
        else if (final) cut_call(t, piece);
        else *more = false;
        break;
    case LN_CALLS_END: return take_rest(t, final, more, piece, err);
    case LN_CALLS_NEXT: *more = take_next(t, final); break;
    case LN_CALLS_REST:
        if (t->skip) skip_blanks(t);
        *more = false;
        if (t->held.len > 0) *piece = give_text(t, t->held.len);
    }
    return calls_done(t, err);
}

ln_status ln_calls_next(ln_calls *t, bool final, ln_calls_piece *piece, ln_error *err) {
    bool more = true;
    *piece = LN_CALLS_NOTHING;
    t->text.len = 0;
    LN_TRY(calls_done(t, err));
    while (more && *piece == LN_CALLS_NOTHING && t->held.len > 0)
        LN_TRY(take_step(t, final, &more, piece, err));
    return LN_OK;
}

bool ln_calls_idle(const ln_calls *t) {
    if (!t->format || t->step == LN_CALLS_REST) return true;
    if (t->step != LN_CALLS_SEARCH || t->format->place == LN_CALLS_AT_START) return false;
    for (size_t i = 0; i < t->held.len; i++)
        if (!call_is_blank(t->held.data[i])) return false;
    return true;
}
