/* Log-probabilities in the two layouts of the API.
 *
 * A token is shown by its own bytes. Where these are only a part of a character, a text cannot hold them: the
 * text then spells them as \xe2\x82, in completions as bytes:\xe2\x82, and the list `bytes` of a conversation
 * has them as numbers. */
#include "wire.h"
#include "../base/json_write.h"

#include <math.h>
#include <string.h>

/* The API has no way to write minus infinity. */
static void put_logprob(ln_str *out, double v) { ln_str_double(out, v < -9999 ? -9999 : v); }

typedef struct spelling {
    ln_str bytes, text; /* of one token: as they are; as the API spells them */
    bool special;
} spelling;

static void spell(const wire_request *q, int32_t id, spelling *s) {
    s->bytes.len = s->text.len = 0;
    s->special = false;
    q->target->token(q->target->user, id, &s->special, &s->bytes);
    size_t n = s->bytes.len;
    if (ln_utf8_valid(s->bytes.data, n) == n) {
        ln_str_add(&s->text, s->bytes.data ? s->bytes.data : "", n);
    } else {
        if (q->kind == WIRE_COMPLETION) ln_str_adds(&s->text, "bytes:");
        for (size_t i = 0; i < n; i++) ln_str_addf(&s->text, "\\x%02x", (unsigned char)s->bytes.data[i]);
    }
}

static void put_spelling(ln_str *out, const spelling *s) {
    ln_str_json(out, s->text.data ? s->text.data : "", s->text.len);
}

static bool same_spelling(const spelling *a, const spelling *b) {
    size_t n = a->text.len;
    return n == b->text.len && (n == 0 || memcmp(a->text.data, b->text.data, n) == 0);
}

static void drop(ln_str *out, spelling *s) {
    out->failed |= s->bytes.failed | s->text.failed;
    ln_str_free(&s->bytes);
    ln_str_free(&s->text);
}

/* ---- conversations ---- */

static void put_entry(ln_str *out, const wire_request *q, spelling *s, int32_t id, double logprob) {
    spell(q, id, s);
    ln_str_adds(out, "{");
    put_key(out, "token");
    put_spelling(out, s);
    put_key(out, "logprob");
    put_logprob(out, logprob);
    put_list(out, "bytes");
    for (size_t i = 0; i < s->bytes.len; i++)
        ln_str_addf(out, i ? ",%u" : "%u", (unsigned char)s->bytes.data[i]);
    ln_str_adds(out, "]");
}

void wire_put_token_logprobs(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to) {
    spelling s = {0};
    ln_str_adds(out, "[");
    for (size_t t = from; t < to; t++) {
        if (t > from) ln_str_adds(out, ",");
        put_entry(out, q, &s, r->ids[t], r->logprobs[t]);
        put_list(out, "top_logprobs");
        for (size_t k = 0; k < r->n_top; k++) {
            if (k > 0) ln_str_adds(out, ",");
            put_entry(out, q, &s, r->top[t * r->n_top + k].id, r->top[t * r->n_top + k].logprob);
            ln_str_adds(out, "}");
        }
        ln_str_adds(out, "]}");
    }
    ln_str_adds(out, "]");
    drop(out, &s);
}

static void put_chat(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to) {
    ln_str_adds(out, "{");
    put_key(out, "content");
    wire_put_token_logprobs(out, q, r, from, to);
    put_text(out, "refusal", NULL);
    ln_str_adds(out, "}");
}

/* ---- completions ---- */

/* The tokens of a choice in a row: those of the prompt where it is echoed, then those of the answer. */
typedef struct row {
    const ln_result *r;
    size_t n_prompt; /* 0: no echo */
} row;
static int32_t id_at(const row *w, size_t t) {
    return t < w->n_prompt ? w->r->prompt_ids[t] : w->r->ids[t - w->n_prompt];
}
static double logprob_at(const row *w, size_t t) {
    return t < w->n_prompt ? w->r->prompt_logprobs[t] : w->r->logprobs[t - w->n_prompt];
}
static const ln_top *top_at(const row *w, size_t t) {
    return t < w->n_prompt ? w->r->prompt_top + t * w->r->n_top : w->r->top + (t - w->n_prompt) * w->r->n_top;
}

static void put_tokens(ln_str *out, const wire_request *q, const row *w, size_t from, size_t to) {
    spelling s = {0};
    ln_str_adds(out, "{");
    put_list(out, "tokens");
    for (size_t t = from; t < to; t++) {
        spell(q, id_at(w, t), &s);
        if (t > from) ln_str_adds(out, ",");
        put_spelling(out, &s);
    }
    ln_str_adds(out, "]");
    put_list(out, "token_logprobs");
    for (size_t t = from; t < to; t++) {
        if (t > from) ln_str_adds(out, ",");
        put_logprob(out, logprob_at(w, t)); /* NaN, the first token of a text: null */
    }
    ln_str_adds(out, "]");
    drop(out, &s);
}

/* Appends an object of the likeliest tokens and the chosen one. Tokens that are spelt alike share a member,
 * which has the likeliest's number. */
static void put_likeliest(ln_str *out, const wire_request *q, const row *w, size_t t) {
    spelling s[WIRE_MOST_LOGPROBS + 1] = {0};
    size_t n = 0, most = LN_MIN(w->r->n_top, (size_t)WIRE_MOST_LOGPROBS);
    if (isnan(logprob_at(w, t))) {
        ln_str_adds(out, "null");
        return;
    }
    ln_str_adds(out, "{");
    for (size_t k = 0; k <= most; k++) {
        const ln_top *top = k < most ? &top_at(w, t)[k] : NULL;
        bool known = false;
        spell(q, top ? top->id : id_at(w, t), &s[n]);
        for (size_t i = 0; i < n && !known; i++) known = same_spelling(&s[i], &s[n]);
        if (known) continue;
        if (n > 0) ln_str_adds(out, ",");
        put_spelling(out, &s[n++]);
        ln_str_adds(out, ":");
        put_logprob(out, top ? top->logprob : logprob_at(w, t));
    }
    ln_str_adds(out, "}");
    for (size_t i = 0; i < LN_COUNT(s); i++) drop(out, &s[i]);
}

/* Characters (code points) that begin in these bytes. */
static size_t characters(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* Appends where each token begins in the choice's text, in characters. A text leaves special tokens out, and
 * with some tokenizers the blank of its first token. */
static void put_offsets(ln_str *out, const wire_request *q, const row *w, size_t from, size_t to,
                        wire_place *p) {
    spelling s = {0};
    ln_str text = {0};
    put_list(out, "text_offset");
    if (w->n_prompt > 0) q->target->text(q->target->user, w->r->prompt_ids, w->n_prompt, &text);
    ln_str_add(&text, w->r->text, w->r->text_bytes);
    for (; p->t < to; p->t++) {
        if (p->t >= from) ln_str_addf(out, p->t > from ? ",%zu" : "%zu", p->at);
        spell(q, id_at(w, p->t), &s);
        if (s.special || s.bytes.len == 0) continue;
        bool dropped = !p->begun && s.bytes.data[0] == ' ' && (text.len == 0 || text.data[0] != ' ');
        p->at += characters(s.bytes.data, s.bytes.len) - dropped;
        p->begun = true;
    }
    ln_str_adds(out, "]");
    out->failed |= text.failed;
    ln_str_free(&text);
    drop(out, &s);
}

static void put_completion(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to,
                           wire_place *at) {
    row w = {r, q->echo && from == 0 && r->prompt_logprobs ? r->n_prompt_ids : 0};
    to += w.n_prompt;
    put_tokens(out, q, &w, from, to);
    put_list(out, "top_logprobs");
    for (size_t t = from; t < to; t++) {
        if (t > from) ln_str_adds(out, ",");
        put_likeliest(out, q, &w, t);
    }
    ln_str_adds(out, "]");
    put_offsets(out, q, &w, from, to, at);
    ln_str_adds(out, "}");
}

void wire_put_logprobs_after(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to,
                             wire_place *at) {
    if (q->n_logprobs < 0 || (to > from && !r->logprobs)) ln_str_adds(out, "null");
    else if (q->kind == WIRE_CHAT) put_chat(out, q, r, from, to);
    else put_completion(out, q, r, from, to, at);
}

void wire_put_logprobs(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to) {
    wire_place at = {0};
    wire_put_logprobs_after(out, q, r, from, to, &at);
}
