/* Reasoning split from the answer, in text that comes in pieces.
 *
 * A text has at most one span of reasoning, and it comes first: a marker further on is a word of the answer, where a model explains
 * tags, say. So there are three states, passed in order: it may begin with a marker yet; reasoning; answer. What can still become a marker
 * is held back, the newlines beside it too: they belong to the marker, as templates write it. Where nothing is marked, all text is
 * answer, byte for byte. Markers are ASCII, so that cutting at them keeps characters whole. */
#include "engine.h"

#include <string.h>

static const ln_marks known[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

const ln_marks *ln_marks_of(const ln_tok *tok, const ln_tmpl *tmpl) {
    size_t bytes;
    for (size_t i = 0; i < LN_COUNT(known); i++) {
        const char *end = known[i].end;
        if (ln_tok_id(tok, end, strlen(end)) >= 0 || (tmpl && strstr(ln_tmpl_source(tmpl, &bytes), end))) return &known[i];
    }
    return NULL;
}

ln_status ln_marks_opened(const ln_marks *marks, const ln_tok *tok, const int32_t *ids, size_t n, bool *opened, ln_error *err) {
    enum { TAIL = 16 }; /* a marker of a few tokens and the newlines after it */
    ln_str text = {0};
    size_t from = n > TAIL ? n - TAIL : 0, open = strlen(marks->open);
    ln_status st = ln_tok_decode(tok, ids + from, n - from, false, &text, err);
    size_t end = text.len;
    while (end > 0 && (text.data[end - 1] == '\n' || text.data[end - 1] == ' ')) end--;
    *opened = st == LN_OK && end >= open && memcmp(text.data + end - open, marks->open, open) == 0;
    ln_str_free(&text);
    return st;
}

void ln_think_open(ln_think *t, const ln_marks *marks, bool opened) {
    *t = (ln_think){.marks = marks, .state = !marks ? LN_THINK_ANSWER : opened ? LN_THINK_REASONING : LN_THINK_MAYBE};
}

void ln_think_close(ln_think *t) {
    ln_str_free(&t->held);
    ln_str_free(&t->reasoning);
    ln_str_free(&t->answer);
}

/* Takes bytes from what is held; reasoning and what belongs to markers lies before the answer. */
static void drop(ln_think *t, size_t bytes) {
    if (bytes == 0) return;
    memmove(t->held.data, t->held.data + bytes, t->held.len - bytes);
    t->held.len -= bytes;
    t->before += bytes;
}

static size_t newlines(const ln_think *t) {
    size_t n = 0;
    while (n < t->held.len && t->held.data[n] == '\n') n++;
    return n;
}

static bool begins(const char *text, size_t bytes, const char *mark) { return memcmp(text, mark, LN_MIN(bytes, strlen(mark))) == 0; }

/* Leaves the state when the opening marker is there, or cannot be any more. */
static void look_for_open(ln_think *t) {
    size_t at = newlines(t), left = t->held.len - at, n = strlen(t->marks->open);
    if (left == 0) return;
    if (!begins(t->held.data + at, left, t->marks->open)) {
        t->state = LN_THINK_ANSWER;
    } else if (left >= n) {
        drop(t, at + n);
        t->state = LN_THINK_REASONING;
    }
}

static void take_reasoning(ln_think *t) {
    size_t n = strlen(t->marks->end), end = 0;
    if (!t->begun) drop(t, newlines(t));
    while (end < t->held.len && !begins(t->held.data + end, t->held.len - end, t->marks->end)) end++;
    bool found = t->held.len - end >= n;
    size_t certain = end;
    while (certain > 0 && t->held.data[certain - 1] == '\n') certain--;
    if (certain > 0) ln_str_add(&t->reasoning, t->held.data, certain);
    t->begun = t->begun || certain > 0;
    if (!found) {
        drop(t, certain);
        return;
    }
    drop(t, end + n);
    t->state = LN_THINK_ANSWER;
    t->begun = false;
    t->closed = true;
}

static void take_answer(ln_think *t) {
    if (t->closed && !t->begun) drop(t, newlines(t));
    if (t->held.len == 0) return;
    ln_str_add(&t->answer, t->held.data, t->held.len);
    t->held.len = 0;
    t->begun = true;
}

static ln_status done(const ln_think *t, ln_error *err) {
    return t->held.failed || t->reasoning.failed || t->answer.failed ? LN_OOM(err, "generated text") : LN_OK;
}

ln_status ln_think_push(ln_think *t, const char *text, size_t bytes, ln_error *err) {
    t->reasoning.len = t->answer.len = 0;
    if (bytes == 0) return LN_OK;
    ln_str_add(&t->held, text, bytes);
    LN_TRY(done(t, err));
    if (t->state == LN_THINK_MAYBE) look_for_open(t);
    if (t->state == LN_THINK_REASONING) take_reasoning(t);
    if (t->state == LN_THINK_ANSWER) take_answer(t);
    return done(t, err);
}

ln_status ln_think_flush(ln_think *t, ln_error *err) {
    t->reasoning.len = t->answer.len = 0;
    if (t->held.len == 0) return LN_OK;
    ln_str_add(t->state == LN_THINK_REASONING ? &t->reasoning : &t->answer, t->held.data, t->held.len);
    t->held.len = 0;
    return done(t, err);
}
