/* A text to ids: added tokens cut it, each rest is normalized, cut again by the added tokens that want normalized text, cut into pieces
 * by the pre-tokenizers, and each piece is encoded; at last the post-processors put theirs around.
 *
 * Under a guard, control tokens are not matched in what messages spell. Origins follow a text through normalization by runs: each run of
 * one origin is normalized by itself, and where their sum is not what the whole became, all of it counts as data. What then is left is a
 * vocabulary that spells a control token by itself: such a piece is encoded character by character. */
#include "guard.h"

typedef struct encoding {
    const ln_tok *t;
    ln_str clean, norm[2];
    text_regex_work regex;
    text_pre_work pre;
    text_bpe_work bpe;
    ln_ids *out;
    const ln_guard *guard;    /* or NULL */
    const char *whole;        /* the text that the guard speaks of */
    text_guard now;           /* for the text that is cut at the moment */
    ln_str run[2], runs, run_origin;
} encoding;

ln_status ln_ids_add(ln_ids *ids, int32_t id, ln_error *err) {
    if (ids->n == ids->cap) LN_TRY(ln_grow((void **)&ids->data, &ids->cap, ids->n + 1, sizeof *ids->data, err));
    ids->data[ids->n++] = id;
    return LN_OK;
}

void ln_ids_free(ln_ids *ids) {
    ln_free(ids->data);
    *ids = (ln_ids){0};
}

static bool has_control(const encoding *e, size_t from) {
    const ln_controls *c = e->guard->controls;
    for (size_t i = from; i < e->out->n; i++)
        if (e->out->data[i] < c->n_ids && c->ids[e->out->data[i]]) return true;
    return false;
}

/* Text without added tokens, normalized. */
static ln_status encode_words(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err) {
    const ln_tok *t = e->t;
    LN_TRY(pre_run(&t->pre, &e->pre, &e->regex, text, bytes, at_start, t->bpe.raw, err));
    for (size_t i = 0; i < e->pre.pieces.n; i++) {
        text_piece p = e->pre.pieces.p[i];
        size_t from = e->out->n;
        LN_TRY(bpe_encode(&t->bpe, &e->bpe, e->pre.text + p.at, p.bytes, e->out, err));
        if (!e->guard || !has_control(e, from)) continue;
        e->out->n = from;
        for (size_t at = p.at, n; at < p.at + p.bytes; at += n) {
            uint32_t cp;
            n = text_cp(e->pre.text + at, &cp);
            LN_TRY(bpe_encode(&t->bpe, &e->bpe, e->pre.text + at, n, e->out, err));
        }
    }
    return LN_OK;
}

typedef ln_status rest_fn(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err);

/* Cuts out the tokens of `trie`, hands what lies between to `rest`. */
static ln_status cut_tokens(encoding *e, const text_trie *trie, const char *text, size_t bytes, bool at_start, rest_fn *rest, ln_error *err) {
    const text_guard guard = e->now; /* `rest` sets it for what it cuts itself */
    for (text_scan s = {0};;) {
        text_hit hit = added_next(&e->t->added, trie, text, bytes, e->guard ? &guard : NULL, &s);
        if (s.done < hit.start) LN_TRY(rest(e, text + s.done, hit.start - s.done, at_start && s.done == 0, err));
        if (hit.id < 0) return LN_OK;
        if (hit.start < hit.end) LN_TRY(ln_ids_add(e->out, hit.id, err)); /* else the one before took its blanks and left nothing */
        s.done = hit.end; /* which may lie before the end of the last one, as in the reference */
    }
}

/* What the normalizer puts before every text (Llama's U+2581): the bytes before the "a" of a normalized "a". */
static ln_status prepended(encoding *e, size_t *n, ln_error *err) {
    const char *a = "a";
    size_t bytes = 1;
    bool at_start = false;
    LN_TRY(norm_run(&e->t->norm, &e->regex, e->run, &a, &bytes, &at_start, err));
    *n = bytes > 1 && a[bytes - 1] == 'a' ? bytes - 1 : 0;
    return LN_OK;
}

/* The origins of the normalized rest: e->runs becomes the runs' sum, e->run_origin theirs. */
static ln_status normalize_runs(encoding *e, const uint8_t *origin, const char *text, size_t bytes, bool at_start, ln_error *err) {
    size_t n_before, skip = 0;
    LN_TRY(prepended(e, &n_before, err));
    e->runs.len = e->run_origin.len = 0;
    for (size_t from = 0, to; from < bytes; from = to) {
        for (to = from + 1; to < bytes && (origin[to] == origin[from] || ((unsigned char)text[to] & 0xc0) == 0x80);) to++; /* whole characters */
        const char *run = text + from;
        size_t n = to - from;
        LN_TRY(norm_run(&e->t->norm, &e->regex, e->run, &run, &n, &at_start, err));
        at_start = false;
        skip = LN_MIN(from > 0 ? n_before : 0, n); /* it stands before the first run only */
        n -= skip;
        LN_TRY(text_add(&e->runs, run + skip, n, err));
        LN_TRY(text_room(&e->run_origin, n, err));
        if (n > 0) memset(e->run_origin.data + e->run_origin.len, origin[from], n);
        text_grown(&e->run_origin, n);
    }
    return LN_OK;
}

static ln_status encode_rest(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err) {
    if (e->guard && e->guard->origin && e->t->added.normal.n > 0)
        LN_TRY(normalize_runs(e, e->guard->origin + (text - e->whole), text, bytes, at_start, err));
    LN_TRY(norm_run(&e->t->norm, &e->regex, e->norm, &text, &bytes, &at_start, err));
    if (e->guard && e->guard->origin && e->t->added.normal.n > 0) {
        bool same = e->runs.len == bytes && memcmp(e->runs.data, text, bytes) == 0;
        e->now.origin = same ? (const uint8_t *)e->run_origin.data : NULL;
        e->now.all_data = true;
    }
    return cut_tokens(e, &e->t->added.normal, text, bytes, at_start, encode_words, err);
}

static ln_status encode(const ln_tok *tok, const char *text, size_t bytes, bool add_special, const ln_guard *guard, ln_ids *out, ln_error *err) {
    encoding e = {.t = tok, .out = out, .guard = guard, .whole = text};
    size_t from = out->n;
    ln_status st;
    if (ln_utf8_valid(text, bytes) < bytes) {
        LN_GO(text_add_lossy(&e.clean, text, bytes, NULL, err));
        text = e.clean.data;
        bytes = e.clean.len;
    }
    if (guard) e.now = (text_guard){guard->origin, guard->all_data, guard->controls->added};
    LN_GO(cut_tokens(&e, &tok->added.plain, text, bytes, true, encode_rest, err));
    LN_GO(post_run(&tok->post, out, from, add_special, err));
out:
    if (st != LN_OK) out->n = from;
    ln_str_free(&e.clean);
    ln_str_free(&e.norm[0]);
    ln_str_free(&e.norm[1]);
    ln_str_free(&e.run[0]);
    ln_str_free(&e.run[1]);
    ln_str_free(&e.runs);
    ln_str_free(&e.run_origin);
    regex_work_close(&e.regex);
    pre_work_close(&e.pre);
    bpe_work_close(&e.bpe);
    return st;
}

ln_status ln_tok_encode(const ln_tok *tok, const char *text, size_t bytes, bool add_special, ln_ids *out, ln_error *err) {
    return encode(tok, text, bytes, add_special, NULL, out, err);
}

ln_status ln_tok_encode_guarded(const ln_tok *tok, const char *text, size_t bytes, bool add_special, const ln_guard *guard, ln_ids *out, ln_error *err) {
    size_t good = ln_utf8_valid(text, bytes);
    if (good < bytes) return ln_fail(err, LN_EINVALID, "a conversation: byte %zu: expected UTF-8", good);
    return encode(tok, text, bytes, add_special, guard, out, err);
}
