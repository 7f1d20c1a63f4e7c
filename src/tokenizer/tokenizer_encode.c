/* Converts a text to ids. The encoder cuts the text at the added tokens that are matched before
 * normalization, normalizes each part between them, cuts it at the added tokens that are matched in
 * normalized text, splits the rest into pieces with the pre-tokenizers, and encodes each piece. At the end
 * the post-processors add their tokens.
 *
 * With a guard (ln_guard), control tokens are not matched in text from messages. To know the origin of
 * normalized text, the encoder also normalizes each run of bytes of one origin by itself. When the runs'
 * results together differ from the normalized whole, all of it is treated as data. There remains the case
 * that BPE itself merges text into a control token; such a piece is encoded character by character. */
#include "control_tokens.h"

enum { KEPT = 1 << 16 }; /* bytes of a buffer of the normalizer that is kept while it holds nothing */

typedef struct encoding {
    const ln_tok *t;
    ln_str clean, norm[2];
    tok_regex_work regex;
    tok_pre_work pre;
    tok_bpe_work bpe;
    ln_ids *out;
    const ln_guard *guard;           /* or NULL */
    const char *whole;               /* the text that guard->origin is indexed by */
    tok_guard now;                   /* the guard of the text that cut_tokens is called for */
    ln_str run[2], runs, run_origin; /* buffers of one run; all runs normalized; the origin of each byte */
} encoding;

ln_status ln_ids_add(ln_ids *ids, int32_t id, ln_error *err) {
    if (ids->n == ids->cap)
        LN_TRY(ln_grow((void **)&ids->data, &ids->cap, ids->n + 1, sizeof *ids->data, err));
    ids->data[ids->n++] = id;
    return LN_OK;
}

void ln_ids_free(ln_ids *ids) {
    ln_free(ids->data);
    *ids = (ln_ids){0};
}

ln_status ln_ids_check_length(ln_ids *ids, const ln_tok *tok, const char *text, size_t bytes, ln_error *err) {
    const size_t fewest = ids->most > 0 ? ids->n + ln_tok_fewest(tok, text, bytes) : 0;
    if (fewest <= ids->most) return LN_OK;
    ids->fewest = fewest;
    return ln_fail(err, LN_EINVALID, "the text has at least %zu tokens, expected at most %zu", fewest,
                   ids->most);
}

/* Whether the ids from index `from` on contain a control token. */
static bool has_control(const encoding *e, size_t from) {
    const ln_controls *c = e->guard->controls;
    for (size_t i = from; i < e->out->n; i++)
        if (e->out->data[i] < c->n_ids && c->ids[e->out->data[i]]) return true;
    return false;
}

/* Appends the ids of one piece. One that BPE merges into a control token is encoded by characters. */
static ln_status encode_piece(void *user, const char *text, size_t bytes, ln_error *err) {
    encoding *e = user;
    const ln_tok *t = e->t;
    size_t from = e->out->n;
    LN_TRY(bpe_encode(&t->bpe, &e->bpe, text, bytes, e->out, err));
    if (!e->guard || !has_control(e, from)) return LN_OK;
    e->out->n = from;
    for (size_t at = 0, n; at < bytes; at += n) {
        uint32_t cp;
        n = utf8_next(text + at, &cp);
        LN_TRY(bpe_encode(&t->bpe, &e->bpe, text + at, n, e->out, err));
    }
    return LN_OK;
}

/* Splits and encodes normalized text that contains no added token. */
static ln_status encode_words(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err) {
    const ln_tok *t = e->t;
    return pre_run(&t->pre, &e->pre, &e->regex, text, bytes, at_start, t->bpe.raw, encode_piece, e, err);
}

typedef ln_status rest_fn(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err);

/* Appends the ids of the added tokens of `trie` that the text contains, and calls `rest` for the parts
 * between them. */
static ln_status cut_tokens(encoding *e, const tok_trie *trie, const char *text, size_t bytes, bool at_start,
                            rest_fn *rest, ln_error *err) {
    const tok_guard guard = e->now; /* a copy: `rest` changes e->now before it calls this function again */
    for (tok_scan s = {0};;) {
        tok_hit hit = added_next(&e->t->added, trie, text, bytes, e->guard ? &guard : NULL, &s);
        if (s.done < hit.start)
            LN_TRY(rest(e, text + s.done, hit.start - s.done, at_start && s.done == 0, err));
        if (hit.id < 0) return LN_OK;
        if (hit.start < hit.end)
            LN_TRY(ln_ids_add(e->out, hit.id,
                              err)); /* empty when the rstrip of the token before covers all of it */
        s.done = hit.end;            /* may be less than the end of the match before, as in the reference */
    }
}

/* Stores in *n how many bytes the normalizer puts before every text (Llama's U+2581): the bytes before the
 * "a" of a normalized "a". */
static ln_status prepended(encoding *e, size_t *n, ln_error *err) {
    const char *a = "a";
    size_t bytes = 1;
    bool at_start = false;
    LN_TRY(norm_run(&e->t->norm, &e->regex, e->run, &a, &bytes, &at_start, err));
    *n = bytes > 1 && a[bytes - 1] == 'a' ? bytes - 1 : 0;
    return LN_OK;
}

/* Normalizes each run of one origin by itself. e->runs receives the results, concatenated, and e->run_origin
 * the origin of each byte of them. */
static ln_status normalize_runs(encoding *e, const uint8_t *origin, const char *text, size_t bytes,
                                bool at_start, ln_error *err) {
    size_t n_before, skip = 0;
    LN_TRY(prepended(e, &n_before, err));
    e->runs.len = e->run_origin.len = 0;
    for (size_t from = 0, to; from < bytes; from = to) {
        for (to = from + 1;
             to < bytes && (origin[to] == origin[from] || ((unsigned char)text[to] & 0xc0) == 0x80);)
            to++; /* a run consists of whole characters */
        const char *run = text + from;
        size_t n = to - from;
        LN_TRY(norm_run(&e->t->norm, &e->regex, e->run, &run, &n, &at_start, err));
        at_start = false;
        skip = LN_MIN(from > 0 ? n_before : 0, n); /* only the first run keeps the normalizer's prefix */
        n -= skip;
        LN_TRY(utf8_append(&e->runs, run + skip, n, err));
        LN_TRY(utf8_reserve(&e->run_origin, n, err));
        if (n > 0) memset(e->run_origin.data + e->run_origin.len, origin[from], n);
        utf8_grown(&e->run_origin, n);
    }
    return LN_OK;
}

static ln_status encode_rest(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err) {
    if (e->guard && e->guard->origin && e->t->added.normal.n > 0)
        LN_TRY(normalize_runs(e, e->guard->origin + (text - e->whole), text, bytes, at_start, err));
    LN_TRY(norm_run(&e->t->norm, &e->regex, e->norm, &text, &bytes, &at_start, err));
    for (size_t i = 0; i < LN_COUNT(e->norm); i++)
        if (e->norm[i].data != text && e->norm[i].cap > KEPT) ln_str_free(&e->norm[i]);
    if (e->guard && e->guard->origin && e->t->added.normal.n > 0) {
        bool same = e->runs.len == bytes && memcmp(e->runs.data, text, bytes) == 0;
        e->now.origin = same ? (const uint8_t *)e->run_origin.data : NULL;
        e->now.all_data = true;
    }
    return cut_tokens(e, &e->t->added.normal, text, bytes, at_start, encode_words, err);
}

/* Removes ids of a text from index `from` on until limit->most are left with those that the post-processor
 * will add. */
static ln_status cut_ids(const ln_tok *tok, const ln_tok_limit *limit, ln_ids *out, size_t from,
                         size_t *n_cut, ln_error *err) {
    ln_ids added = {0};
    const size_t n = out->n - from;
    const ln_status st = post_run(&tok->post, &added, 0, true, err);
    const size_t n_added = added.n;
    ln_ids_free(&added);
    LN_TRY(st);
    if (limit->most < n_added)
        return ln_fail(err, LN_EINVALID,
                       "a text of at most %zu tokens: expected at least %zu, which the tokenizer adds to it",
                       limit->most, n_added);
    *n_cut = n > limit->most - n_added ? n - (limit->most - n_added) : 0;
    if (limit->left && *n_cut > 0)
        memmove(out->data + from, out->data + from + *n_cut, (n - *n_cut) * sizeof *out->data);
    out->n -= *n_cut;
    return LN_OK;
}

/* How a text is encoded. */
typedef struct manner {
    bool add_special;
    const ln_guard *guard;     /* or NULL */
    const ln_tok_limit *limit; /* or NULL; n_cut: how many ids it took away */
    size_t n_cut;
} manner;

static ln_status encode(const ln_tok *tok, const char *text, size_t bytes, manner *how, ln_ids *out,
                        ln_error *err) {
    const ln_guard *guard = how->guard;
    encoding e = {.t = tok, .out = out, .guard = guard, .whole = text};
    size_t from = out->n;
    ln_status st;
    LN_TRY(ln_tok_check(tok, err));
    LN_TRY(ln_ids_check_length(out, tok, text, bytes, err));
    if (ln_utf8_valid(text, bytes) < bytes) {
        LN_GO(utf8_append_lossy(&e.clean, text, bytes, NULL, err));
        text = e.clean.data;
        bytes = e.clean.len;
    }
    if (guard) e.now = (tok_guard){guard->origin, guard->all_data, guard->controls->added};
    LN_GO(cut_tokens(&e, &tok->added.plain, text, bytes, true, encode_rest, err));
    if (how->limit) LN_GO(cut_ids(tok, how->limit, out, from, &how->n_cut, err));
    LN_GO(post_run(&tok->post, out, from, how->add_special, err));
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

ln_status ln_tok_encode(const ln_tok *tok, const char *text, size_t bytes, bool add_special, ln_ids *out,
                        ln_error *err) {
    manner how = {.add_special = add_special};
    return encode(tok, text, bytes, &how, out, err);
}

ln_status ln_tok_encode_limited(const ln_tok *tok, const char *text, size_t bytes, const ln_tok_limit *limit,
                                ln_ids *out, size_t *n_cut, ln_error *err) {
    manner how = {.add_special = true, .limit = limit};
    const ln_status st = encode(tok, text, bytes, &how, out, err);
    *n_cut = how.n_cut;
    return st;
}

ln_status ln_tok_encode_guarded(const ln_tok *tok, const char *text, size_t bytes, bool add_special,
                                const ln_guard *guard, ln_ids *out, ln_error *err) {
    size_t good = ln_utf8_valid(text, bytes);
    if (good < bytes) return ln_fail(err, LN_EINVALID, "a conversation: byte %zu: expected UTF-8", good);
    manner how = {.add_special = add_special, .guard = guard};
    return encode(tok, text, bytes, &how, out, err);
}
