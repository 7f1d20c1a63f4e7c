/* A streaming parser that separates reasoning from the answer in generated text.
 *
 * A text has at most one span of reasoning, at its beginning; a later delimiter is part of the answer, for
 * example when a model explains such tags. The parser passes through three states in this order: undecided
 * (the text may still begin with the opening delimiter), inside the reasoning, answer. It holds back text
 * that may still become a delimiter, including adjacent newlines, which belong to the delimiter as
 * templates write it. Without delimiters the text passes through unchanged, byte for byte. Delimiters are
 * ASCII, so that splitting at them never splits a UTF-8 character. */
#include "reasoning.h"

#include <string.h>

static const ln_reasoning_delims known[] = {{"<|channel|>analysis<|message|>", "<|end|>",
                                             "<|end|><|start|>assistant", "<|channel|>final<|message|>",
                                             true},
                                            {"<think>", "</think>", "\n</think>\n\n", "", false},
                                            {"[THINK]", "[/THINK]", "\n[/THINK]\n\n", "", false}};

static bool has_channels(const ln_tok *tok, const char *source, const char *open) {
    int32_t ids[LN_CHANNEL_TOKENS];
    ln_channel_tokens(tok, ids);
    return source && strstr(source, open) && ids[0] >= 0 && ids[1] >= 0 && ids[2] >= 0;
}

const ln_reasoning_delims *ln_reasoning_delims_of(const ln_tok *tok, const ln_model_template *tmpl) {
    size_t bytes;
    const char *source = tmpl ? ln_model_template_source(tmpl, &bytes) : NULL;
    for (size_t i = 0; i < LN_COUNT(known); i++) {
        const char *end = known[i].end;
        if (known[i].channels ? has_channels(tok, source, known[i].open)
                              : ln_tok_id(tok, end, strlen(end)) >= 0 || (source && strstr(source, end)))
            return &known[i];
    }
    return NULL;
}

ln_status ln_reasoning_opened(const ln_reasoning_delims *delims, const ln_tok *tok, const int32_t *ids,
                              size_t n, bool *opened, ln_error *err) {
    enum { TAIL = 16 }; /* tokens that cover a delimiter and the newlines after it */
    ln_str text = {0};
    size_t from = n > TAIL ? n - TAIL : 0, open = strlen(delims->open);
    ln_status st = ln_tok_decode(tok, ids + from, n - from, false, &text, err);
    size_t end = text.len;
    while (end > 0 && (text.data[end - 1] == '\n' || text.data[end - 1] == ' ')) end--;
    *opened = st == LN_OK && end >= open && memcmp(text.data + end - open, delims->open, open) == 0;
    ln_str_free(&text);
    return st;
}

void ln_reasoning_open(ln_reasoning *t, const ln_reasoning_delims *delims, bool opened) {
    *t = (ln_reasoning){.delims = delims,
                        .state = !delims  ? LN_REASONING_ANSWER
                                 : opened ? LN_REASONING_INSIDE
                                          : LN_REASONING_UNDECIDED};
}

ln_status ln_reasoning_open_channels(ln_reasoning *t, const ln_reasoning_delims *delims, const char *header,
                                     size_t bytes, bool marks_calls, ln_error *err) {
    *t = (ln_reasoning){.delims = delims, .state = LN_REASONING_UNDECIDED, .marks_calls = marks_calls};
    LN_TRY(ln_reasoning_push(t, header, bytes, err));
    t->answer.len = t->reasoning.len = 0;
    t->fresh = t->begun = t->reasoned = false;
    t->before = 0;
    return LN_OK;
}

void ln_reasoning_close(ln_reasoning *t) {
    ln_str_free(&t->header);
    ln_str_free(&t->held);
    ln_str_free(&t->reasoning);
    ln_str_free(&t->answer);
}

/* Removes bytes from the held text and counts them as not part of the answer. */
static void drop(ln_reasoning *t, size_t bytes) {
    if (bytes == 0) return;
    memmove(t->held.data, t->held.data + bytes, t->held.len - bytes);
    t->held.len -= bytes;
    t->before += bytes;
}

static size_t newlines(const ln_reasoning *t) {
    size_t n = 0;
    while (n < t->held.len && t->held.data[n] == '\n') n++;
    return n;
}

static bool begins(const char *text, size_t bytes, const char *mark) {
    return memcmp(text, mark, LN_MIN(bytes, strlen(mark))) == 0;
}

/* Leaves the undecided state once the opening delimiter is complete or impossible. */
static void look_for_open(ln_reasoning *t) {
    size_t at = newlines(t), left = t->held.len - at, n = strlen(t->delims->open);
    if (left == 0) return;
    if (!begins(t->held.data + at, left, t->delims->open)) {
        t->state = LN_REASONING_ANSWER;
    } else if (left >= n) {
        drop(t, at + n);
        t->state = LN_REASONING_INSIDE;
    }
}

static void take_reasoning(ln_reasoning *t) {
    size_t n = strlen(t->delims->end), end = 0;
    if (!t->begun) drop(t, newlines(t));
    while (end < t->held.len && !begins(t->held.data + end, t->held.len - end, t->delims->end)) end++;
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
    t->state = LN_REASONING_ANSWER;
    t->begun = false;
    t->closed = true;
}

static void take_answer(ln_reasoning *t) {
    if (t->closed && !t->begun) drop(t, newlines(t));
    if (t->held.len == 0) return;
    ln_str_add(&t->answer, t->held.data, t->held.len);
    t->held.len = 0;
    t->begun = true;
}

static ln_status done(const ln_reasoning *t, ln_error *err) {
    return t->held.failed || t->reasoning.failed || t->answer.failed || t->header.failed
               ? LN_OOM(err, "generated text")
               : LN_OK;
}

ln_status ln_reasoning_push(ln_reasoning *t, const char *text, size_t bytes, ln_error *err) {
    t->reasoning.len = t->answer.len = 0;
    if (bytes == 0) return LN_OK;
    ln_str_add(&t->held, text, bytes);
    LN_TRY(done(t, err));
    if (t->delims && t->delims->channels) {
        channels_take(t);
        return done(t, err);
    }
    if (t->state == LN_REASONING_UNDECIDED) look_for_open(t);
    if (t->state == LN_REASONING_INSIDE) take_reasoning(t);
    if (t->state == LN_REASONING_ANSWER) take_answer(t);
    return done(t, err);
}

ln_status ln_reasoning_flush(ln_reasoning *t, ln_error *err) {
    t->reasoning.len = t->answer.len = 0;
    if (t->held.len == 0) return LN_OK;
    if (t->delims && t->delims->channels) { /* a part of a mark */
        drop(t, t->held.len);
        return LN_OK;
    }
    ln_str_add(t->state == LN_REASONING_INSIDE ? &t->reasoning : &t->answer, t->held.data, t->held.len);
    t->held.len = 0;
    return done(t, err);
}
