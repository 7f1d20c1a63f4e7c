/* Merges that follow from the ranks of tokens, for models that list no merges: each way to cut a token into
 * two tokens is a merge, and all merges that give a token have its rank. */
#include "bpe_tables.h"

/* A way to cut a token in two. */
typedef struct cut {
    const char *text;
    size_t n_left, n_right;
    uint64_t left, right; /* hashes */
    uint32_t id;
} cut;
typedef struct cuts {
    bpe_tables *t;
    const uint32_t *rank;
    cut batch[BPE_BATCH];
    size_t n;
} cuts;

/* Adds the cuts of the batch whose parts are tokens to the list of merges. */
static ln_status take_cuts(cuts *c, ln_error *err) {
    const string_table *v = &c->t->b->vocab;
    for (int step = 0; step < 3; step++)
        for (size_t i = 0; i < c->n; i++) {
            strtab_prefetch(v, c->batch[i].left, step);
            strtab_prefetch(v, c->batch[i].right, step);
        }
    for (size_t i = 0; i < c->n; i++) {
        const cut *p = &c->batch[i];
        const char *rest = p->text + p->n_left;
        const int32_t left = strtab_find_hash(v, p->left, p->text, p->n_left);
        const int32_t right = left < 0 ? -1 : strtab_find_hash(v, p->right, rest, p->n_right);
        if (right < 0) continue;
        if (c->t->n >= TOK_MAX_MERGES)
            return bpe_fail(c->t, 0, err, "%s: expected tokens with at most %d cuts into two, found more",
                            c->t->vocab, TOK_MAX_MERGES);
        uint32_t cross[2] = {bpe_last_cp(p->text, p->n_left), bpe_first_cp(rest, p->n_right)};
        const bpe_triple merge = {(uint32_t)left, (uint32_t)right, c->rank[p->id], (int32_t)p->id};
        LN_TRY(bpe_add_merge(c->t, &merge, cross, err));
    }
    c->n = 0;
    return LN_OK;
}

/* Tokens longer than this many bytes are not cut: no run of merges builds them, and cutting takes time that
 * grows with the square of the length. */
enum { LONGEST_CUT = 512 };

ln_status bpe_cut_tokens(bpe_tables *t, const uint32_t *rank, size_t n, ln_error *err) {
    const string_table *v = &t->b->vocab;
    cuts c = {.t = t, .rank = rank};
    ln_status st = bpe_begin_merges(t, err);
    for (uint32_t id = 0; id < n && st == LN_OK; id++) {
        size_t bytes;
        uint32_t cp;
        if (rank[id] == BPE_NOT_MERGED || !strtab_has(v, id)) continue;
        const char *text = strtab_text(v, (int32_t)id, &bytes);
        if (bytes > LONGEST_CUT) continue;
        for (size_t at = utf8_next(text, &cp); at < bytes && st == LN_OK; at += utf8_next(text + at, &cp)) {
            c.batch[c.n++] =
                (cut){text, at, bytes - at, strtab_hash(text, at), strtab_hash(text + at, bytes - at), id};
            if (c.n == BPE_BATCH) st = take_cuts(&c, err);
        }
    }
    return st == LN_OK ? take_cuts(&c, err) : st;
}
