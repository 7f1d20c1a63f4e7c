/* Channels: a streaming parser of answers that are messages with headers, as gpt-oss writes them.
 *
 *   <|start|>assistant<|channel|>analysis<|message|>TEXT<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>
 *   <|start|>assistant<|channel|>final<|message|>TEXT<|return|>
 *
 * A header names the channel and the recipient, in any order. What is in the channel `analysis` is
 * reasoning, a message to a recipient is a call, every other message belongs to the answer. The marks are
 * special tokens. Each stands behind the byte LN_MARK_BYTE, which no UTF-8 text has, so that an answer may
 * spell them. */
#include "reasoning.h"

#include <string.h>

typedef enum mark { MARK_OTHER, MARK_START, MARK_CHANNEL, MARK_MESSAGE, MARK_END } mark;

static const struct {
    const char *text;
    mark kind;
} marks[] = {{"<|start|>", MARK_START},    {"<|channel|>", MARK_CHANNEL}, {"<|message|>", MARK_MESSAGE},
             {"<|end|>", MARK_END},        {"<|call|>", MARK_END},        {"<|return|>", MARK_END},
             {"<|constrain|>", MARK_OTHER}};

void ln_channel_tokens(const ln_tok *tok, int32_t ids[LN_CHANNEL_TOKENS]) {
    _Static_assert(LN_COUNT(marks) == LN_CHANNEL_TOKENS, "the tokens of the marks");
    for (size_t i = 0; i < LN_COUNT(marks); i++)
        ids[i] = ln_tok_id(tok, marks[i].text, strlen(marks[i].text));
}

ln_status ln_channel_header(const ln_tok *tok, const int32_t *ids, size_t n, ln_str *out, ln_error *err) {
    const int32_t start = ln_tok_id(tok, marks[0].text, strlen(marks[0].text)),
                  message = ln_tok_id(tok, marks[2].text, strlen(marks[2].text));
    ln_status st = LN_OK;
    ln_detok d;
    size_t from = n;
    while (from > 0 && ids[from - 1] != start) from--;
    if (from == 0) return LN_OK;
    ln_detok_open(&d, tok, true);
    d.marks = true;
    ln_channel_tokens(tok, d.keep);
    for (size_t i = from - 1; st == LN_OK && i < n; i++) {
        st = ln_detok_push(&d, ids[i], err);
        if (st == LN_OK) ln_str_add(out, d.text.data, d.text.len);
        if (ids[i] == message) break; /* the text that follows is no part of the header */
    }
    ln_detok_close(&d);
    return st == LN_OK && out->failed ? LN_OOM(err, "the header of an answer") : st;
}

/* ---- headers ---- */

/* What may stand in a header between its marks: `to=` and a recipient, names of channels and of types. */
static size_t word(const ln_str *h, size_t at) {
    while (at < h->len && h->data[at] != ' ' && h->data[at] != LN_MARK_BYTE) at++;
    return at;
}

/* Finds the recipient, *n bytes, without the name of the group of functions; NULL: there is none. */
static const char *recipient_of(const ln_str *h, size_t *n) {
    static const char to[] = "to=", group[] = "functions.";
    for (size_t at = 0; at + sizeof to - 1 <= h->len; at = word(h, at) + 1) {
        if (memcmp(h->data + at, to, sizeof to - 1) != 0) continue;
        const char *name = h->data + at + sizeof to - 1;
        *n = word(h, at) - at - (sizeof to - 1);
        if (*n > sizeof group - 1 && memcmp(name, group, sizeof group - 1) == 0) {
            name += sizeof group - 1;
            *n -= sizeof group - 1;
        }
        return *n > 0 ? name : NULL;
    }
    return NULL;
}

/* Whether the header's channel is that of reasoning. */
static bool is_analysis(const ln_str *h) {
    static const char channel[] = "<|channel|>analysis";
    return memmem(h->data ? h->data : "", h->len, channel, sizeof channel - 1) != NULL;
}

/* Bytes of the header's author, or of the beginning of one. */
static size_t author(const ln_str *h) {
    static const char name[] = "assistant";
    const size_t n = LN_MIN(h->len, sizeof name - 1);
    return memcmp(h->data, name, n) == 0 ? n : 0;
}

/* Whether a text may begin a header: the author, then marks or a recipient. */
static bool may_begin(const ln_str *h) {
    static const char to[] = "to=";
    size_t at = author(h);
    while (at < h->len && h->data[at] == ' ') at++;
    return memcmp(h->data + at, to, LN_MIN(h->len - at, sizeof to - 1)) == 0;
}

/* ---- texts ---- */

/* Gives text of the answer, whose bytes were counted as not part of it. */
static void give(ln_reasoning *t, const char *text, size_t bytes) {
    ln_str_add(&t->answer, text, bytes);
    t->before -= bytes;
}

/* An empty line stands between two messages to the same reader. */
static void give_text(ln_reasoning *t, const char *text, size_t bytes) {
    const bool reasons = t->state == LN_REASONING_INSIDE;
    bool *told = reasons ? &t->reasoned : &t->begun;
    if (t->fresh && *told && bytes > 0) {
        if (reasons) ln_str_adds(&t->reasoning, "\n\n");
        else give(t, "\n\n", 2);
    }
    if (bytes == 0) return;
    t->fresh = false;
    *told = true;
    if (reasons) ln_str_add(&t->reasoning, text, bytes);
    else give(t, text, bytes);
}

static void begin_message(ln_reasoning *t) {
    size_t n = 0;
    const char *name = recipient_of(&t->header, &n);
    t->in_call = name && t->marks_calls;
    t->fresh = true;
    t->state = is_analysis(&t->header) && !name ? LN_REASONING_INSIDE : LN_REASONING_ANSWER;
    if (t->in_call) {
        give(t, LN_CHANNEL_CALL, 1);
        give(t, name, n);
        give(t, LN_CHANNEL_TEXT, 1);
        t->begun = true;
    } else if (name) { /* a call that no parser waits for is shown as it is */
        give_text(t, name, n);
        give(t, " ", 1);
    }
}

static void end_message(ln_reasoning *t) {
    if (t->in_call) give(t, LN_CHANNEL_END, 1);
    t->in_call = false;
    t->header.len = 0;
    t->state = LN_REASONING_UNDECIDED;
}

static void take_mark(ln_reasoning *t, const char *text, size_t bytes, mark kind) {
    if (t->state != LN_REASONING_UNDECIDED && (kind == MARK_OTHER || kind == MARK_MESSAGE)) return;
    if (t->state != LN_REASONING_UNDECIDED) end_message(t);
    if (kind == MARK_MESSAGE) begin_message(t);
    else if (kind == MARK_START || kind == MARK_END) t->header.len = 0;
    else ln_str_add(&t->header, text, bytes);
}

/* Takes text between marks. What cannot be a header is the answer of a model that writes none. */
static void take_text(ln_reasoning *t, const char *text, size_t bytes) {
    if (t->state != LN_REASONING_UNDECIDED) {
        if (t->in_call) give(t, text, bytes);
        else give_text(t, text, bytes);
        return;
    }
    ln_str_add(&t->header, text, bytes);
    if (t->header.failed || memchr(t->header.data, LN_MARK_BYTE, t->header.len) || may_begin(&t->header))
        return;
    const size_t from = author(&t->header);
    t->state = LN_REASONING_ANSWER;
    t->fresh = true;
    give_text(t, t->header.data + from, t->header.len - from);
}

/* The mark that begins at held[at), *bytes of it; 0 bytes: more text is needed. */
static mark find_mark(const ln_str *held, size_t at, size_t *bytes) {
    bool part = false;
    for (size_t i = 0; i < LN_COUNT(marks); i++) {
        const size_t n = strlen(marks[i].text), left = held->len - at - 1;
        if (memcmp(held->data + at + 1, marks[i].text, LN_MIN(n, left)) != 0) continue;
        *bytes = n + 1;
        if (n <= left) return marks[i].kind;
        part = true;
    }
    *bytes = part ? 0 : 1;
    return MARK_OTHER;
}

void channels_take(ln_reasoning *t) {
    size_t at = 0;
    while (at < t->held.len && !t->held.failed) {
        const char *text = t->held.data + at;
        if (*text != LN_MARK_BYTE) {
            const char *next = memchr(text, LN_MARK_BYTE, t->held.len - at);
            const size_t bytes = next ? (size_t)(next - text) : t->held.len - at;
            t->before += bytes;
            take_text(t, text, bytes);
            at += bytes;
            continue;
        }
        size_t bytes;
        const mark kind = find_mark(&t->held, at, &bytes);
        if (bytes == 0) break;
        t->before += bytes;
        if (bytes > 1) take_mark(t, text, bytes, kind);
        at += bytes;
    }
    if (at > 0) memmove(t->held.data, t->held.data + at, t->held.len - at);
    t->held.len -= at;
}
