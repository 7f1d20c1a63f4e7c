/* A text to ids: added tokens cut it, each rest is normalized, cut again by the added tokens that want normalized text, cut into pieces
 * by the pre-tokenizers, and each piece is encoded; at last the post-processors put theirs around. */
#include "tok.h"

typedef struct encoding {
    const ln_tok *t;
    ln_str clean, norm[2];
    text_regex_work regex;
    text_pre_work pre;
    text_bpe_work bpe;
    ln_ids *out;
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

/* Text without added tokens, normalized. */
static ln_status encode_words(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err) {
    const ln_tok *t = e->t;
    LN_TRY(pre_run(&t->pre, &e->pre, &e->regex, text, bytes, at_start, t->bpe.raw, err));
    for (size_t i = 0; i < e->pre.pieces.n; i++) {
        text_piece p = e->pre.pieces.p[i];
        LN_TRY(bpe_encode(&t->bpe, &e->bpe, e->pre.text + p.at, p.bytes, e->out, err));
    }
    return LN_OK;
}

typedef ln_status rest_fn(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err);

/* Cuts out the tokens of `trie`, hands what lies between to `rest`. */
static ln_status cut_tokens(encoding *e, const text_trie *trie, const char *text, size_t bytes, bool at_start, rest_fn *rest, ln_error *err) {
    for (text_scan s = {0};;) {
        text_hit hit = added_next(&e->t->added, trie, text, bytes, &s);
        if (s.done < hit.start) LN_TRY(rest(e, text + s.done, hit.start - s.done, at_start && s.done == 0, err));
        if (hit.id < 0) return LN_OK;
        if (hit.start < hit.end) LN_TRY(ln_ids_add(e->out, hit.id, err)); /* else the one before took its blanks and left nothing */
        s.done = hit.end; /* which may lie before the end of the last one, as in the reference */
    }
}

static ln_status encode_rest(encoding *e, const char *text, size_t bytes, bool at_start, ln_error *err) {
    LN_TRY(norm_run(&e->t->norm, &e->regex, e->norm, &text, &bytes, &at_start, err));
    return cut_tokens(e, &e->t->added.normal, text, bytes, at_start, encode_words, err);
}

ln_status ln_tok_encode(const ln_tok *tok, const char *text, size_t bytes, bool add_special, ln_ids *out, ln_error *err) {
    encoding e = {.t = tok, .out = out};
    size_t from = out->n;
    ln_status st;
    if (ln_utf8_valid(text, bytes) < bytes) {
        LN_GO(text_add_lossy(&e.clean, text, bytes, NULL, err));
        text = e.clean.data;
        bytes = e.clean.len;
    }
    LN_GO(cut_tokens(&e, &tok->added.plain, text, bytes, true, encode_rest, err));
    LN_GO(post_run(&tok->post, out, from, add_special, err));
out:
    if (st != LN_OK) out->n = from;
    ln_str_free(&e.clean);
    ln_str_free(&e.norm[0]);
    ln_str_free(&e.norm[1]);
    regex_work_close(&e.regex);
    pre_work_close(&e.pre);
    bpe_work_close(&e.bpe);
    return st;
}
