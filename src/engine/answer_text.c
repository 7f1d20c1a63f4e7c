/* The text pipeline of one answer: detokenizer, reasoning, stop texts; stop ids and the budget of reasoning.
 */
#include "answer_text.h"

#include <stdatomic.h>
#include <string.h>

static bool is_among(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* A detokenizer that leaves out special tokens but keeps the delimiters of reasoning and the tags of calls,
 * which reasoning.c and tool_calls.c need. */
static void open_detok(const ln_answer *a, ln_detok *d) {
    const ln_tok *tok = a->model->tok;
    const ln_reasoning_delims *delims = a->think.delims;
    ln_detok_open(d, tok, true);
    if (delims && delims->channels) {
        d->marks = true;
        ln_channel_tokens(tok, d->keep);
    } else if (delims) {
        d->keep[0] = ln_tok_id(tok, delims->open, strlen(delims->open));
        d->keep[1] = ln_tok_id(tok, delims->end, strlen(delims->end));
    }
    _Static_assert(LN_CALL_TOKENS + LN_CHANNEL_TOKENS <= LN_COUNT(d->keep), "tokens that a detokenizer "
                                                                            "keeps");
    if (a->calls.format) ln_call_format_tokens(a->calls.format, tok, d->keep + LN_CHANNEL_TOKENS);
}

/* Sets up an answer of channels, whose first message the prompt begins. */
static ln_status open_channels(ln_answer *a, const int32_t *ids, size_t n, ln_error *err) {
    const ln_call_format *format = a->calls.format;
    LN_TRY(ln_channel_header(a->model->tok, ids, n, &a->header, err));
    return ln_reasoning_open_channels(&a->think, a->model->delims, a->header.data ? a->header.data : "",
                                      a->header.len, format && format->place == LN_CALLS_IN_CHANNEL, err);
}

/* Sets up the split of a conversation's answer into reasoning and answer: where the prompt's ids end with the
 * opening delimiter, the answer begins with reasoning. */
static ln_status open_think(ln_answer *a, const int32_t *ids, size_t n, ln_error *err) {
    const ln_package *m = a->model;
    bool opened = false;
    ln_str end = {0};
    if (m->delims->channels) {
        LN_TRY(open_channels(a, ids, n, err));
    } else {
        LN_TRY(ln_reasoning_opened(m->delims, m->tok, ids, n, &opened, err));
        ln_reasoning_open(&a->think, m->delims, opened);
    }
    if (!a->how->has_think_budget) return LN_OK;
    const bool free =
        !a->how->grammar && !a->calls.format; /* the next message is the answer, whatever it is */
    ln_str_addf(&end, "%s%s", m->delims->leave, free ? m->delims->answer : "");
    ln_status st =
        end.failed ? LN_OOM(err, "a mark") : ln_tok_encode(m->tok, end.data, end.len, false, &a->end, err);
    ln_str_free(&end);
    return st;
}

/* Searches a stop text that is more than one token: whether it contains a special token, and the kept token
 * in it (a delimiter of reasoning or a tag of calls), -1: none. */
static ln_status search_tokens(const ln_answer *a, const char *text, bool *special, int32_t *kept,
                               ln_error *err) {
    const ln_tok *tok = a->model->tok;
    ln_ids ids = {0};
    *special = false;
    *kept = -1;
    if (ln_tok_id(tok, text, strlen(text)) >= 0) return LN_OK;
    const ln_status st = ln_tok_encode(tok, text, strlen(text), false, &ids, err);
    for (size_t i = 0; st == LN_OK && i < ids.n; i++)
        if (is_among(a->detok.keep, LN_COUNT(a->detok.keep), ids.data[i])) *kept = ids.data[i];
        else *special |= ln_tok_is_special(tok, ids.data[i]);
    ln_ids_free(&ids);
    return st == LN_EINVALID ? LN_OK : st; /* no text that the tokenizer knows: it has no special token */
}

static ln_status find_mixed(ln_answer *a, size_t n, ln_error *err) {
    int32_t kept;
    a->mixed = ln_zalloc(n, sizeof *a->mixed);
    if (!a->mixed) return LN_OOM(err, "the stop texts");
    for (size_t i = 0; i < n; i++) {
        LN_TRY(search_tokens(a, a->stops[i], &a->mixed[i], &kept, err));
        a->has_mixed |= a->mixed[i];
    }
    return LN_OK;
}

/* Collects the stop texts, those of the caller and those of generation_config.json, and the ids of those that
 * cannot occur in the answer's text, because they are tokens that it leaves out: special tokens and the
 * delimiters of reasoning. */
static ln_status open_stop(ln_answer *a, ln_error *err) {
    const ln_sampling *how = a->how;
    const ln_tok *tok = a->model->tok;
    const ln_reasoning_delims *delims = a->think.delims;
    const size_t n = how->n_stop + how->n_model_stop;
    if (n == 0) return LN_OK;
    a->stops = ln_zalloc(n, sizeof *a->stops);
    a->stop_ids = ln_zalloc(n, sizeof *a->stop_ids);
    if (!a->stops || !a->stop_ids) return LN_OOM(err, "the stop texts");
    for (size_t i = 0; i < n; i++) {
        const char *text = a->stops[i] = i < how->n_stop ? how->stop[i] : how->model_stop[i - how->n_stop];
        const int32_t id = ln_tok_id(tok, text, strlen(text));
        const bool is_mark = delims && (strcmp(text, delims->open) == 0 || strcmp(text, delims->end) == 0);
        a->stop_ids[i] = id >= 0 && (is_mark || ln_tok_is_special(tok, id)) ? id : -1;
    }
    LN_TRY(find_mixed(a, n, err));
    ln_stop_open(&a->stop, a->stops, a->has_mixed ? a->mixed : NULL, n);
    return LN_OK;
}

/* Collects the model's stop ids. ignore_eos excludes them from the text, except those that the caller names
 * as stop texts: they must be generated to end it. */
static void find_end_ids(ln_answer *a) {
    const ln_genconfig *c = &a->model->gen;
    for (int i = 0; i < c->n_eos; i++) {
        bool named = is_among(a->how->stop_ids, a->how->n_stop_ids, c->eos[i]);
        for (size_t k = 0; k < a->how->n_stop; k++)
            named = named || ln_tok_id(a->model->tok, a->how->stop[k], strlen(a->how->stop[k])) == c->eos[i];
        if (!(named && a->how->ignore_eos)) a->end_ids[a->n_end_ids++] = c->eos[i];
    }
}

static void warn_of(const ln_answer *a, size_t i, int32_t id) {
    char shown[80], token[80];
    size_t bytes = 0;
    const char *name = id >= 0 ? ln_tok_content(a->model->tok, id, &bytes) : NULL;
    if (!name) return;
    ln_log(LN_LOG_WARN,
           "%s '%s' never ends the text: it contains %s, which is split off from the text; a stop text that "
           "is "
           "this token alone ends the text there",
           i < a->how->n_stop ? "ln_sampling.stop" : "stop_strings of generation_config.json:",
           ln_excerpt(shown, a->stops[i], strlen(a->stops[i])), ln_excerpt(token, name, bytes));
}

ln_status ln_answer_warn(const ln_answer *a, _Atomic uint64_t *warned, ln_error *err) {
    uint64_t hash = 1;
    int32_t id;
    bool special;
    for (size_t i = 0; i < a->stop.n_texts; i++) {
        LN_TRY(search_tokens(a, a->stops[i], &special, &id, err));
        for (const char *c = a->stops[i]; id >= 0 && *c; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3); /* FNV-1a */
    }
    if (hash == atomic_exchange(warned, hash)) return LN_OK;
    for (size_t i = 0; i < a->stop.n_texts; i++) {
        LN_TRY(search_tokens(a, a->stops[i], &special, &id, err));
        warn_of(a, i, id);
    }
    return LN_OK;
}

/* Whether a setting of the answer concerns its text. */
static bool needs_text(const ln_answer *a) {
    const ln_sampling *how = a->how;
    return how->n_stop + how->n_model_stop > 0 || how->tool_choice || how->has_think_budget;
}

ln_status ln_answer_open(ln_answer *a, const ln_package *model, const ln_sampling *how,
                         const ln_answer_tools *tools, bool split, const int32_t *ids, size_t n,
                         ln_error *err) {
    *a = (ln_answer){.model = model, .how = how};
    ln_reasoning_open(&a->think, NULL, false);
    ln_calls_open(&a->calls, how->tool_choice ? model->tools.format : NULL, tools ? tools->list : NULL,
                  tools ? tools->n : 0, how->single_tool_call);
    ln_stop_open(&a->stop, NULL, NULL, 0);
    a->no_text = ln_tok_check(model->tok, NULL) != LN_OK;
    if (needs_text(a)) LN_TRY(ln_tok_check(model->tok, err));
    if (a->no_text) {
        find_end_ids(a);
        return LN_OK;
    }
    if (split && model->delims) LN_TRY(open_think(a, ids, n, err));
    open_detok(a, &a->detok);
    find_end_ids(a);
    return open_stop(a, err);
}

void ln_answer_close(ln_answer *a) {
    if (!a->model) return; /* never opened */
    ln_stop_close(&a->stop);
    ln_reasoning_close(&a->think);
    ln_calls_close(&a->calls);
    ln_detok_close(&a->detok);
    ln_ids_free(&a->end);
    ln_str_free(&a->header);
    ln_str_free(&a->reasoning);
    ln_str_free(&a->text);
    ln_str_free(&a->found);
    ln_str_free(&a->cut);
    ln_free(a->new_calls);
    ln_free(a->ends);
    ln_free(a->stops);
    ln_free(a->stop_ids);
    ln_free(a->mixed);
    ln_free(a->marks);
    *a = (ln_answer){0};
}

bool ln_answer_ends_at(const ln_answer *a, int32_t id, int *stop_text) {
    *stop_text = -1;
    for (size_t i = 0; i < a->stop.n_texts; i++)
        if (a->stop_ids[i] == id) {
            *stop_text = (int)i;
            return true;
        }
    return is_among(a->how->stop_ids, a->how->n_stop_ids, id) ||
           (!a->how->ignore_eos && is_among(a->end_ids, (size_t)a->n_end_ids, id));
}

int32_t ln_answer_forced(ln_answer *a) {
    const int32_t id = ln_answer_next_forced(a);
    a->n_forced += id >= 0;
    return id;
}

int32_t ln_answer_next_forced(ln_answer *a) {
    const bool spent = a->how->has_think_budget && a->think.state == LN_REASONING_INSIDE &&
                       a->n_reasoning >= a->how->think_budget;
    if (spent && a->n_forced == a->end.n && a->think.delims->channels) a->n_forced = 0; /* once more */
    return (spent || a->n_forced > 0) && a->n_forced < a->end.n ? a->end.data[a->n_forced] : -1;
}

static ln_status append(ln_str *to, const ln_str *piece, ln_error *err) {
    if (piece->len > 0) ln_str_add(to, piece->data, piece->len);
    return to->failed ? LN_OOM(err, "generated text") : LN_OK;
}

/* ---- special tokens in stop texts ---- */

static ln_status add_mark(ln_answer *a, uint64_t at, int32_t id, size_t token, ln_error *err) {
    void *p = a->marks;
    if (!a->has_mixed || a->think.state == LN_REASONING_INSIDE || !ln_tok_is_special(a->model->tok, id) ||
        is_among(a->detok.keep, LN_COUNT(a->detok.keep), id))
        return LN_OK;
    LN_TRY(ln_grow(&p, &a->cap_marks, a->n_marks + 1, sizeof *a->marks, err));
    a->marks = p;
    a->marks[a->n_marks++] = (struct ln_answer_mark){at, id, token};
    return LN_OK;
}

/* Bytes of the detokenizer's text that stop_text.c has seen or that were split off before it. */
static uint64_t seen(const ln_answer *a) { return a->think.before + a->calls.before + a->stop.taken; }

/* Gives stop_text.c the first mark. */
static ln_status push_mark(ln_answer *a, ln_error *err) {
    const struct ln_answer_mark m = a->marks[0];
    size_t bytes = 0;
    const char *text = ln_tok_content(a->model->tok, m.id, &bytes);
    memmove(a->marks, a->marks + 1, --a->n_marks * sizeof *a->marks);
    LN_TRY(ln_stop_push_mark(&a->stop, text, text ? bytes : 0, m.token, err));
    return append(&a->text, &a->stop.ready, err);
}

/* Gives stop_text.c text of the answer, with the marks at their places. */
static ln_status push_text(ln_answer *a, const char *text, size_t bytes, ln_error *err) {
    while (bytes > 0 && !a->stop.hit) {
        const uint64_t at = seen(a);
        size_t n = bytes;
        if (a->n_marks > 0 && a->marks[0].at <= at) {
            LN_TRY(push_mark(a, err));
            continue;
        }
        if (a->n_marks > 0 && a->marks[0].at - at < n) n = (size_t)(a->marks[0].at - at);
        LN_TRY(ln_stop_push(&a->stop, text, n, err));
        LN_TRY(append(&a->text, &a->stop.ready, err));
        text += n;
        bytes -= n;
    }
    return LN_OK;
}

/* Gives stop_text.c the marks before which no text is held back; at the end of the answer, all. */
static ln_status push_marks(ln_answer *a, bool final, ln_error *err) {
    while (a->n_marks > 0 && !a->stop.hit && (final || a->marks[0].at <= seen(a))) LN_TRY(push_mark(a, err));
    return LN_OK;
}

/* ---- */

/* Adds what was found of a call: its name, and a text of its arguments. No stop text reaches from the text
 * before it into the text after it. */
static ln_status add_found(ln_answer *a, ln_event_kind kind, const char *text, size_t bytes, ln_error *err) {
    void *p = a->new_calls;
    LN_TRY(ln_stop_flush(&a->stop, err));
    LN_TRY(append(&a->text, &a->stop.ready, err));
    LN_TRY(ln_grow(&p, &a->cap_calls, a->n_calls + 1, sizeof *a->new_calls, err));
    a->new_calls = p;
    ln_answer_call *c = &a->new_calls[a->n_calls++];
    *c = (ln_answer_call){.kind = kind, .at = a->text.len, .name = a->found.len};
    ln_str_add(&a->found, a->calls.name.data ? a->calls.name.data : "", a->calls.name.len);
    ln_str_add(&a->found, "", 1);
    if (bytes > 0) ln_str_add(&a->found, text, bytes);
    ln_str_add(&a->found, "", 1);
    c->end = a->found.len;
    return a->found.failed ? LN_OOM(err, "a call of a tool") : LN_OK;
}

/* Adds a call that is whole, behind what was not given of its arguments yet; or one that the end has cut. */
static ln_status add_call(ln_answer *a, bool cut, ln_error *err) {
    const ln_calls *t = &a->calls;
    const char *arguments = t->arguments.data ? t->arguments.data : "";
    if (t->told < t->arguments.len)
        LN_TRY(add_found(a, LN_EVENT_TOOL_ARGUMENTS, arguments + t->told, t->arguments.len - t->told, err));
    if (!cut) return add_found(a, LN_EVENT_TOOL_CALL, arguments, t->arguments.len, err);
    a->has_cut = true;
    ln_str_add(&a->cut, t->name.data, t->name.len + 1);
    ln_str_add(&a->cut, arguments, t->arguments.len);
    return a->cut.failed ? LN_OOM(err, "a call of a tool") : LN_OK;
}

/* Adds what reasoning.c has split to a->reasoning and a->text: the answer through tool_calls.c, and what is
 * no call through stop_text.c. */
static ln_status add_both(ln_answer *a, bool final, ln_error *err) {
    ln_calls_piece piece;
    LN_TRY(append(&a->reasoning, &a->think.reasoning, err));
    LN_TRY(ln_calls_push(&a->calls, a->think.answer.data, a->think.answer.len, err));
    while (!a->stop.hit) {
        LN_TRY(ln_calls_next(&a->calls, final, &piece, err));
        if (piece == LN_CALLS_NOTHING) break;
        if (piece == LN_CALLS_ARGUMENTS) {
            LN_TRY(add_found(a, LN_EVENT_TOOL_ARGUMENTS, a->calls.text.data, a->calls.text.len, err));
            continue;
        }
        if (piece == LN_CALLS_CALL || piece == LN_CALLS_CUT) {
            LN_TRY(add_call(a, piece == LN_CALLS_CUT, err));
            continue;
        }
        LN_TRY(push_text(a, a->calls.text.data, a->calls.text.len, err));
    }
    return push_marks(a, false, err);
}

static void forget_last(ln_answer *a) {
    a->reasoning.len = a->text.len = a->found.len = 0;
    a->n_calls = 0;
}

ln_status ln_answer_push(ln_answer *a, int32_t id, ln_error *err) {
    void *p = a->ends;
    forget_last(a);
    if (a->think.state == LN_REASONING_INSIDE) a->n_reasoning++;
    LN_TRY(ln_grow(&p, &a->cap_ends, a->n + 1, sizeof *a->ends, err));
    a->ends = p;
    if (!a->no_text) LN_TRY(ln_detok_push(&a->detok, id, err));
    a->detokenised += a->detok.text.len;
    LN_TRY(add_mark(a, a->detokenised, id, a->n, err));
    a->ends[a->n++] = a->detokenised;
    if (a->no_text) return LN_OK;
    LN_TRY(ln_reasoning_push(&a->think, a->detok.text.data, a->detok.text.len, err));
    return add_both(a, false, err);
}

ln_status ln_answer_end(ln_answer *a, int32_t id, ln_error *err) {
    return add_mark(a, UINT64_MAX, id, a->n, err);
}

ln_status ln_answer_flush(ln_answer *a, ln_error *err) {
    forget_last(a);
    if (a->stop.hit || a->no_text) return LN_OK;
    LN_TRY(ln_detok_flush(&a->detok, err));
    LN_TRY(ln_reasoning_push(&a->think, a->detok.text.data, a->detok.text.len, err));
    LN_TRY(add_both(a, false, err));
    LN_TRY(ln_reasoning_flush(&a->think, err));
    LN_TRY(add_both(a, true, err));
    LN_TRY(push_marks(a, true, err));
    if (a->stop.hit) return LN_OK;
    LN_TRY(ln_stop_flush(&a->stop, err));
    return append(&a->text, &a->stop.ready, err);
}

/* Computes the bytes of text of ids[0..n) when the text ends after them. */
static ln_status bytes_of(const ln_answer *a, const int32_t *ids, size_t n, uint64_t *bytes, ln_error *err) {
    ln_detok d;
    ln_status st = LN_OK;
    *bytes = 0;
    open_detok(a, &d);
    for (size_t i = 0; i < n; i++) {
        LN_GO(ln_detok_push(&d, ids[i], err));
        *bytes += d.text.len;
    }
    LN_GO(ln_detok_flush(&d, err));
    *bytes += d.text.len;
out:
    ln_detok_close(&d);
    return st;
}

/* Ids whose text ends beyond the released text belong to the stop text. So do the ids before them that hold
 * the first bytes of its first character, which the detokenizer gave only with a later token. */
ln_status ln_answer_visible(const ln_answer *a, const int32_t *ids, size_t *out, ln_error *err) {
    size_t n = a->n;
    uint64_t bytes = UINT64_MAX, shown = a->think.before + a->calls.before + a->stop.shown;
    if (a->stop.hit) {
        while (n > 0 && a->ends[n - 1] > shown) n--;
        n = LN_MIN(n, a->stop.token);
        while (n > 0) {
            LN_TRY(bytes_of(a, ids, n, &bytes, err));
            if (bytes <= shown) break;
            n--;
        }
    }
    *out = n;
    return LN_OK;
}
