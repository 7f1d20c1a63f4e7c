/* Reads the model of a tokenizer from the metadata of a GGUF file: tokens, their types, merges or scores.
 *
 * A SentencePiece model (tokenizer.ggml.model llama) has no merges. Any two neighbours whose joined text is a
 * token may be joined, the token with the highest score first, the leftmost of equal ones first. That is a
 * list of merges in which all pairs that give a token have the rank of its score, and it is derived here: the
 * pairs into which each token can be cut. User-defined tokens that are runs of blanks come before all others,
 * because SentencePiece takes them out of a text before it merges anything. */
#include "bpe_gguf.h"

#include "bpe_tables.h"

#include <stdlib.h>

static const char tokens_key[] = "tokenizer.ggml.tokens", merges_key[] = "tokenizer.ggml.merges",
                  scores_key[] = "tokenizer.ggml.scores";
static const char blank_mark[] = "\xe2\x96\x81"; /* U+2581, which stands for a blank */

/* The text at *at of an array of texts, and moves *at to the next one. The lengths were checked when the file
 * was opened. */
static ln_gguf_text next_text(const uint8_t **at) {
    uint64_t bytes;
    memcpy(&bytes, *at, sizeof bytes);
    const ln_gguf_text text = {(const char *)*at + sizeof bytes, (size_t)bytes};
    *at += sizeof bytes + bytes;
    return text;
}

static ln_status append(ln_str *out, const ln_gguf_text *text, bool mark_blanks, ln_error *err) {
    if (!mark_blanks || !memchr(text->data, ' ', text->bytes))
        return utf8_append(out, text->data, text->bytes, err);
    for (size_t i = 0; i < text->bytes; i++) {
        const bool blank = text->data[i] == ' ';
        LN_TRY(utf8_append(out, blank ? blank_mark : text->data + i, blank ? sizeof blank_mark - 1 : 1, err));
    }
    return LN_OK;
}

static ln_status check_text(const bpe_tables *t, const char *list, uint64_t i, const ln_gguf_text *text,
                            ln_error *err) {
    const size_t good = ln_utf8_valid(text->data, text->bytes);
    char shown[80];
    if (good == text->bytes) return LN_OK;
    return bpe_fail(t, 0, err, "%s[%llu]: byte %zu: expected UTF-8, found '%s'", list, (unsigned long long)i,
                    good, ln_excerpt(shown, text->data + good, LN_MIN(text->bytes - good, (size_t)4)));
}

/* Whether a token has a text that can occur: padding of the table and empty texts have none. */
static bool is_named(const gguf_lists *g, uint64_t i, const ln_gguf_text *text) {
    return text->bytes > 0 && gguf_token_type(g, i) != GGUF_TOKEN_UNUSED;
}

static ln_status read_tokens(bpe_tables *t, const gguf_lists *g, ln_error *err) {
    const uint8_t *at = g->tokens->data;
    LN_TRY(strtab_open(&t->b->vocab, (size_t)g->tokens->n, err));
    for (uint64_t i = 0; i < g->tokens->n; i++) {
        const ln_gguf_text text = next_text(&at);
        const size_t from = t->texts.len;
        LN_TRY(check_text(t, tokens_key, i, &text, err));
        if (!is_named(g, i, &text)) continue;
        LN_TRY(append(&t->texts, &text, g->marks_blanks && gguf_token_type(g, i) == GGUF_TOKEN_USER, err));
        LN_TRY(bpe_hold_token(t, 0, from, (uint32_t)i, err));
    }
    LN_TRY(bpe_take_tokens(t, err));
    if (t->b->vocab.n_used > 0) return LN_OK;
    return bpe_fail(t, 0, err, "%s: expected at least one token, found none", tokens_key);
}

/* Reads merges "left right". The left text has at least one character, which may be a blank. */
static ln_status read_merges(bpe_tables *t, const gguf_lists *g, ln_error *err) {
    const uint8_t *at = g->merges->data;
    LN_TRY(bpe_begin_merges(t, err));
    for (uint64_t i = 0; i < g->merges->n; i++) {
        const ln_gguf_text text = next_text(&at);
        const size_t from = t->texts.len;
        const char *blank = text.bytes > 1 ? memchr(text.data + 1, ' ', text.bytes - 1) : NULL;
        LN_TRY(check_text(t, merges_key, i, &text, err));
        if (!blank) {
            char shown[80];
            return bpe_fail(t, 0, err, "%s[%llu]: expected two tokens with one space between, found '%s'",
                            merges_key, (unsigned long long)i, ln_excerpt(shown, text.data, text.bytes));
        }
        const size_t n_left = (size_t)(blank - text.data);
        LN_TRY(utf8_append(&t->texts, text.data, n_left, err));
        LN_TRY(utf8_append(&t->texts, blank + 1, text.bytes - n_left - 1, err));
        LN_TRY(bpe_hold_merge(t, 0, from, n_left, err));
    }
    return bpe_take_merges(t, err);
}

/* ---- merges from scores ---- */

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int by_score(const void *x, const void *y) {
    const scored *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Whether a token can be the result of merges. */
static bool is_merged(const gguf_lists *g, uint64_t i) {
    const int type = gguf_token_type(g, i);
    return type == GGUF_TOKEN_NORMAL || type == GGUF_TOKEN_USER;
}

/* Writes the rank of each token: 0 for user-defined ones, then by falling score. Equal scores have one rank.
 */
static ln_status rank_tokens(const bpe_tables *t, const gguf_lists *g, uint32_t *rank, ln_error *err) {
    const size_t n_tokens = (size_t)g->tokens->n;
    scored *order = ln_alloc((n_tokens + 1) * sizeof *order);
    size_t n = 0;
    bool falling = true;
    ln_status st = LN_OK;
    if (!order) return LN_OOM(err, "the scores of a tokenizer");
    for (size_t i = 0; i < n_tokens && st == LN_OK; i++) {
        const float score = (float)ln_gguf_real_at(g->scores, i);
        rank[i] = 0;
        if (score != score) st = bpe_fail(t, 0, err, "%s[%zu]: expected a number, found NaN", scores_key, i);
        if (gguf_token_type(g, i) != GGUF_TOKEN_NORMAL) continue;
        falling = falling && (n == 0 || score <= order[n - 1].score);
        order[n++] = (scored){score, (uint32_t)i};
    }
    if (!falling && st == LN_OK) qsort(order, n, sizeof *order, by_score);
    uint32_t now = 0;
    for (size_t i = 0; i < n; i++) {
        now += i == 0 || order[i].score != order[i - 1].score;
        rank[order[i].id] = now;
    }
    ln_free(order);
    return st;
}

static ln_status derive_merges(bpe_tables *t, const gguf_lists *g, ln_error *err) {
    const size_t n = (size_t)g->tokens->n;
    uint32_t *rank = ln_alloc((n + 1) * sizeof *rank);
    ln_status st = rank ? rank_tokens(t, g, rank, err) : LN_OOM(err, "the scores of a tokenizer");
    for (size_t i = 0; st == LN_OK && i < n; i++)
        if (!is_merged(g, i)) rank[i] = BPE_NOT_MERGED;
    if (st == LN_OK) st = bpe_cut_tokens(t, rank, n, err);
    ln_free(rank);
    return st;
}

/* ---- the model ---- */

static ln_status read_lists(bpe_tables *t, const gguf_lists *g, ln_error *err) {
    LN_TRY(read_tokens(t, g, err));
    return g->scores ? derive_merges(t, g, err) : read_merges(t, g, err);
}

/* A merge and the length of the token that it gives. */
typedef struct listed {
    bpe_triple merge;
    size_t bytes;
} listed;

/* By rank. User-defined tokens, rank 0, are the longest that a run of blanks allows: the longer one first. */
static int by_rank(const void *x, const void *y) {
    const listed *p = x, *q = y;
    const bpe_triple *a = &p->merge, *b = &q->merge;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->rank == 0 && p->bytes != q->bytes) return p->bytes > q->bytes ? -1 : 1;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return (a->right > b->right) - (a->right < b->right);
}

static bool add_pair(json_t *merges, const string_table *v, const bpe_triple *m) {
    size_t n_left, n_right;
    const char *left = strtab_text(v, (int32_t)m->left, &n_left),
               *right = strtab_text(v, (int32_t)m->right, &n_right);
    return json_array_append_new(merges, json_pack("[s%,s%]", left, n_left, right, n_right)) == 0;
}

ln_status bpe_list_merges(const gguf_lists *g, json_t *merges, ln_error *err) {
    tok_bpe b = {0};
    bpe_tables t = {.b = &b, .name = g->name, .vocab = tokens_key, .merges = merges_key};
    ln_status st = read_lists(&t, g, err);
    listed *order = st == LN_OK ? ln_alloc((t.n + 1) * sizeof *order) : NULL;
    if (st == LN_OK && !order) st = LN_OOM(err, "merges");
    for (size_t i = 0; i < t.n && st == LN_OK; i++) {
        order[i].merge = t.list[i];
        (void)strtab_text(&b.vocab, t.list[i].id, &order[i].bytes);
    }
    if (st == LN_OK && g->scores && t.n > 0) qsort(order, t.n, sizeof *order, by_rank);
    for (size_t i = 0; i < t.n && st == LN_OK; i++)
        if (!add_pair(merges, &b.vocab, &order[i].merge)) st = LN_OOM(err, "merges");
    ln_free(order);
    bpe_tables_close(&t);
    bpe_close(&b);
    return st;
}

ln_status bpe_read_gguf(tok_bpe *b, const gguf_lists *g, ln_error *err) {
    bpe_tables t = {.b = b, .name = g->name, .vocab = tokens_key, .merges = merges_key};
    ln_status st = read_lists(&t, g, err);
    if (st == LN_OK) st = bpe_build_merges(&t, err);
    bpe_tables_close(&t);
    return st;
}
