/* Answers that must match a grammar: ln_sampling.grammar over the model's vocabulary.
 *
 * Reasoning is free, but no stop id may end it, because the answer is still to come. The grammar begins with
 * the answer; where the answer is messages with headers, with the header that the prompt ends with. A special
 * token has no text; in the vocabulary of a grammar it is the byte 0xFF, which no UTF-8 text has, and its
 * name, so that only the expression {"token"} of a grammar matches it. */
#include "constraint.h"

#include "../base/text_memory.h"
#include "engine.h"
#include "memory_plan.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t vocabulary_lock = PTHREAD_MUTEX_INITIALIZER; /* while ln_eng.vocabulary is made */

/* ---- the vocabulary ---- */

/* Whether decoding a text drops a blank at its beginning. */
static ln_status strips_blank(const ln_tok *tok, const ln_vocabulary *v, bool *out, ln_error *err) {
    ln_str text = {0};
    ln_status st = LN_OK;
    *out = false;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        const size_t bytes = v->at[id + 1] - v->at[id];
        if (bytes < 2 || v->text[v->at[id]] != ' ' || v->text[v->at[id] + 1] == ' ') continue;
        st = ln_tok_decode(tok, &id, 1, false, &text, err);
        *out = st == LN_OK && text.len == bytes - 1;
        break; /* one such token shows it */
    }
    ln_str_free(&text);
    return st;
}

static ln_status token_text(const ln_tok *tok, int32_t id, ln_str *all, ln_error *err) {
    size_t bytes = 0, from = all->len;
    if (!ln_tok_is_special(tok, id)) {
        LN_TRY(ln_tok_bytes(tok, id, all, err));
        const size_t bytes_of_it = all->len - from;
        if (bytes_of_it > UINT16_MAX || (bytes_of_it > 0 && memchr(all->data + from, 0xff, bytes_of_it)))
            all->len = from; /* too long for a tree, or no UTF-8 */
        return LN_OK;
    }
    const char *name = ln_tok_content(tok, id, &bytes);
    ln_str_add(all, "\xff", 1);
    if (name) ln_str_add(all, name, bytes);
    return all->failed ? LN_OOM(err, "the vocabulary of a grammar") : LN_OK;
}

ln_status ln_grammar_vocabulary(ln_vocabulary *v, const ln_tok *tok, int64_t n_vocab, ln_error *err) {
    ln_str all = {0};
    ln_status st = LN_OK;
    const int64_t n_texts = LN_MIN(n_vocab, (int64_t)ln_tok_count(tok));
    v->n_vocab = n_vocab;
    v->at = ln_zalloc((size_t)n_vocab + 1, sizeof *v->at);
    if (!v->at) LN_GO(LN_OOM(err, "the vocabulary of a grammar"));
    for (int64_t id = 0; id < n_vocab; id++) { /* a padded output layer has ids without a text */
        if (id < n_texts) LN_GO(token_text(tok, (int32_t)id, &all, err));
        v->at[id + 1] = (uint32_t)all.len;
    }
    v->text = all.data;
    all = (ln_str){0};
    LN_GO(ln_vocabulary_sort(v, err));
    LN_GO(strips_blank(tok, v, &v->strips_blank, err));
out:
    ln_str_free(&all);
    return st;
}

/* Makes the engine's vocabulary when the first grammar asks for it. */
static ln_status find_vocabulary(ln_eng *e, ln_error *err) {
    ln_status st = LN_OK;
    const char *limit;
    char need[32], left[32];
    const uint64_t bytes = (uint64_t)e->run->spec->V * 56; /* ids, offsets, nodes, about 8 bytes of text */
    ln_account *outer = ln_account_enter(NULL);            /* it belongs to the engine */
    pthread_mutex_lock(&vocabulary_lock);
    if (e->vocabulary) goto out;
    const uint64_t room = ln_memory_room(e->memory_bytes, &limit);
    if (room < bytes)
        LN_GO(ln_fail(err, LN_EMEMORY,
                      "the vocabulary of a grammar (ln_sampling.grammar) takes about %s, and %s leaves %s; "
                      "raise that limit or leave the grammar out",
                      ln_bytes_text(need, bytes), limit, ln_bytes_text(left, room)));
    ln_vocabulary *v = ln_zalloc(1, sizeof *v);
    if (!v) LN_GO(LN_OOM(err, "the vocabulary of a grammar"));
    st = ln_grammar_vocabulary(v, e->model->tok, e->run->spec->V, err);
    if (st == LN_OK) {
        e->vocabulary = v;
    } else {
        ln_vocabulary_free(v);
        ln_free(v);
    }
out:
    pthread_mutex_unlock(&vocabulary_lock);
    ln_account_leave(outer);
    return st;
}

void ln_constraint_forget(ln_eng *e) {
    if (e->vocabulary) ln_vocabulary_free(e->vocabulary);
    ln_free(e->vocabulary);
    e->vocabulary = NULL;
}

/* ---- one request ---- */

static ln_status count_allowed(ln_constraint *c, const ln_vocabulary *v, size_t *n, ln_error *err) {
    const uint64_t *mask;
    LN_TRY(ln_matcher_mask(c->matcher, &mask, err)); /* the first token's, which is kept */
    *n = 0;
    for (size_t i = 0; i < ((size_t)v->n_vocab + 63) / 64; i++) *n += (size_t)__builtin_popcountll(mask[i]);
    return LN_OK;
}

/* Advances over the header that the prompt ends with. */
static ln_status take_header(const ln_constraint *c, const ln_str *header, ln_error *err) {
    enum { MOST = 1000 }; /* bytes of ln_matcher_push */
    bool fits = true;
    for (size_t at = 0; fits && at < header->len; at += MOST)
        LN_TRY(ln_matcher_push(c->matcher, header->data + at, LN_MIN((size_t)MOST, header->len - at), &fits,
                               err));
    return fits ? LN_OK
                : ln_fail(err, LN_EINVALID,
                          "ln_sampling.grammar: the answer that the prompt begins is not the beginning of a "
                          "text of the grammar");
}

/* Whether some token may begin the text, or the text may be empty. Otherwise a model that reasons would do so
 * until its budget ends. */
static ln_status check_beginning(ln_constraint *c, const ln_vocabulary *v, const ln_answer *a,
                                 ln_error *err) {
    size_t n = 0, n_texts = 0;
    LN_TRY(count_allowed(c, v, &n, err));
    for (int64_t id = 0; id < v->n_vocab; id++) n_texts += v->at[id + 1] > v->at[id];
    c->free_between = c->prose && n == n_texts;
    if (c->whole) {
        LN_TRY(take_header(c, &a->header, err));
        LN_TRY(count_allowed(c, v, &n, err));
    }
    if (n > 0) return LN_OK;
    if (ln_matcher_complete(c->matcher)) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "ln_sampling.grammar: no token of the model begins it; {\"token\"} must name a special "
                   "token that the model has");
}

ln_status ln_constraint_open(ln_constraint *c, ln_eng *e, const ln_sampling *how, bool prose,
                             const ln_answer *a, ln_error *err) {
    const ln_tok *tok = e->model->tok;
    ln_error why;
    *c = (ln_constraint){.think_open = -1, .newlines = {-1, -1}, .prose = prose};
    if (!how->grammar) return LN_OK;
    LN_TRY(ln_tok_check(tok, err));
    const ln_status st = ln_grammar_open(&c->grammar, how->grammar, how->grammar_bytes, &why);
    if (st != LN_OK) return ln_fail(err, st, "ln_sampling.grammar: %s", why.message);
    LN_TRY(find_vocabulary(e, err));
    LN_TRY(ln_matcher_open(&c->matcher, c->grammar, e->vocabulary, err));
    c->whole = a->think.delims && a->think.delims->channels;
    LN_TRY(check_beginning(c, e->vocabulary, a, err));
    const size_t words = ((size_t)e->vocabulary->n_vocab + 63) / 64;
    c->allowed = ln_zalloc(words, sizeof *c->allowed);
    if (!c->allowed) return LN_OOM(err, "the mask of a grammar");
    c->bytes =
        ln_grammar_bytes(c->grammar) + ln_matcher_bytes(e->vocabulary->n_vocab) + words * sizeof *c->allowed;
    if (!a->think.delims || c->whole) return LN_OK;
    c->think_open = ln_tok_id(tok, a->think.delims->open, strlen(a->think.delims->open));
    for (int32_t id = 0; id < e->vocabulary->n_vocab; id++) {
        const uint32_t at = e->vocabulary->at[id], bytes = e->vocabulary->at[id + 1] - at;
        if ((bytes == 1 || bytes == 2) && memcmp(e->vocabulary->text + at, "\n\n", bytes) == 0)
            c->newlines[bytes - 1] = id;
    }
    return LN_OK;
}

void ln_constraint_close(ln_constraint *c) {
    ln_matcher_close(&c->matcher);
    ln_grammar_close(&c->grammar);
    ln_free(c->allowed);
    c->allowed = NULL;
}

/* Whether the end of reasoning has just been seen, so that newlines do not belong to the answer. */
static bool follows_reasoning(const ln_answer *a) {
    return a->think.state == LN_REASONING_ANSWER && a->think.closed && !a->think.begun;
}

/* Whether the answer is in reasoning, of which the grammar says nothing. */
static bool reasons(const ln_constraint *c, int state) { return !c->whole && state == LN_REASONING_INSIDE; }

static void permit(const ln_constraint *c, int32_t id, bool yes) {
    if (id < 0) return;
    uint64_t *word = &c->allowed[id / 64];
    *word = yes ? *word | UINT64_C(1) << (id % 64) : *word & ~(UINT64_C(1) << (id % 64));
}

/* Permits or excludes all tokens that end the answer. */
static void permit_ends(const ln_constraint *c, const ln_answer *a, bool yes) {
    for (int i = 0; i < a->n_end_ids; i++) permit(c, a->end_ids[i], yes);
    for (size_t i = 0; i < a->how->n_stop_ids; i++) permit(c, a->how->stop_ids[i], yes);
    for (size_t i = 0; i < a->stop.n_texts; i++) permit(c, a->stop_ids[i], yes);
}

/* Where the text has no beginning of a tag, every token may follow in prose. */
bool ln_constraint_binds(const ln_constraint *c, const ln_answer *a) {
    if (!ln_constrains(c)) return false;
    if (!c->prose) return true;
    if (c->whole && a->think.state == LN_REASONING_UNDECIDED) return true; /* in a header */
    return a->think.state != LN_REASONING_INSIDE && !(c->free_between && ln_calls_idle(&a->calls));
}

int32_t ln_constraint_forced(ln_constraint *c, ln_answer *a) {
    const int32_t id = ln_answer_next_forced(a);
    bool fits = true;
    if (id >= 0 && c->whole && ln_constrains(c) && ln_matcher_allows(c->matcher, id, &fits, NULL) != LN_OK)
        fits = false;
    return fits ? ln_answer_forced(a) : -1;
}

ln_status ln_constraint_mask(ln_constraint *c, const ln_answer *a, int64_t n_vocab, const uint64_t **out,
                             ln_error *err) {
    const size_t bytes = ((size_t)n_vocab + 63) / 64 * sizeof *c->allowed;
    const uint64_t *mask;
    if (reasons(c, (int)a->think.state)) {
        memset(c->allowed, 0xff, bytes);
        permit_ends(c, a, false);
        permit(c, ln_tok_id(a->model->tok, a->think.delims->end, strlen(a->think.delims->end)), true);
    } else {
        LN_TRY(ln_matcher_mask(c->matcher, &mask, err));
        memcpy(c->allowed, mask, bytes);
        permit_ends(c, a, ln_matcher_complete(c->matcher));
        if (a->think.state == LN_REASONING_UNDECIDED && ln_matcher_begins(c->matcher))
            permit(c, c->think_open, true);
        for (int i = 0; i < 2 && !c->whole && follows_reasoning(a) && !c->after_newlines; i++)
            permit(c, c->newlines[i], true);
    }
    *out = c->allowed;
    return LN_OK;
}

ln_status ln_constraint_apply(ln_constraint *c, const ln_answer *a, float *logits, int64_t n_vocab,
                              ln_error *err) {
    const uint64_t *mask;
    LN_TRY(ln_constraint_mask(c, a, n_vocab, &mask, err));
    for (int64_t i = 0; i < n_vocab; i++)
        if (!(mask[i / 64] >> (i % 64) & 1)) logits[i] = -INFINITY;
    return LN_OK;
}

ln_status ln_constraint_take(ln_constraint *c, const ln_answer *a, ln_constraint_before before, int32_t id,
                             ln_error *err) {
    bool fits = true;
    const bool after_reasoning = reasons(c, before.state) || (before.state == LN_REASONING_ANSWER &&
                                                              a->think.closed && !before.answering);
    if (reasons(c, (int)a->think.state)) {
        ln_matcher_follows(c->matcher);
    } else if (after_reasoning) { /* what is left of the token's text, without newlines */
        c->after_newlines = before.state != LN_REASONING_INSIDE;
        ln_matcher_follows(c->matcher);
        LN_TRY(ln_matcher_push(c->matcher, a->think.answer.data ? a->think.answer.data : "",
                               a->think.answer.len, &fits, err));
    } else {
        LN_TRY(ln_matcher_take(c->matcher, id, &fits, err));
    }
    if (fits || c->prose) return LN_OK; /* a token without a text changes no prose */
    return ln_fail(err, LN_EINVALID,
                   "ln_sampling.grammar: token %d, which ends the reasoning, has text that does not begin "
                   "the grammar; ask the model not to reason",
                   id);
}

bool ln_constraint_done(const ln_constraint *c) { return ln_constrains(c) && ln_matcher_final(c->matcher); }
