/* Pages of a sequence: taken when positions come near, dropped when no pending row can see them, given back at the end.
 *
 * Window classes share one pool. A class whose window is w keeps, for a sequence of n tokens, the blocks from the one that holds
 * position n - w + 1 (the oldest that the next row sees) upwards; the full class keeps all. A sequence can be cut back to P
 * tokens only where every class still holds the block of position P - w + 1. */
#include "engine.h"

static int64_t lowest_needed(const ln_eng *e, int c, int64_t n) {
    int64_t w = e->run->spec->classes[c].window;
    if (w == 0 || e->run->opt.keep_all || n < w) return 0;
    return (n - w + 1) / e->run->kv.page_len;
}

static void drop_block(ln_eng *e, ln_seq *s, int c, int64_t block) {
    int n_sub = e->run->kv.n_sub[c];
    for (int i = 0; i < n_sub; i++) {
        int32_t *page = &s->tables[c][block * n_sub + i];
        if (*page >= 0) e->pages.free[e->pages.n_free++] = *page;
        *page = -1;
    }
}

static void drop_from(ln_eng *e, ln_seq *s, int64_t first_block) {
    for (int c = 0; c < e->run->spec->n_classes; c++)
        for (int64_t b = LN_MAX(first_block, s->low[c]); b < e->run->sizes.n_blocks; b++) {
            if (s->tables[c][b * e->run->kv.n_sub[c]] < 0) break; /* resident blocks are contiguous */
            drop_block(e, s, c, b);
        }
}

void ln_seq_clear(ln_eng *e, int seq) {
    ln_seq *s = &e->seqs[seq];
    drop_from(e, s, 0);
    s->n = s->n_prompt = 0;
    s->low[0] = s->low[1] = 0;
}

void ln_seq_begin(ln_eng *e, int seq, int64_t n) {
    ln_seq_clear(e, seq);
    e->seqs[seq].n_prompt = n;
}

int64_t ln_seq_sync(ln_eng *e, int seq, const int32_t *ids, int64_t n) {
    ln_seq *s = &e->seqs[seq];
    int64_t keep = 0, most = LN_MIN(s->n, n - 1);
    while (keep < most && s->tokens[keep] == ids[keep]) keep++;
    /* a lower cut needs lower blocks still, so there is nothing between keep and 0 to try */
    for (int c = 0; c < e->run->spec->n_classes; c++)
        if (lowest_needed(e, c, keep) < s->low[c]) keep = 0;
    if (keep == 0 || !ln_spec_same_ropes(e->run->spec, s->n_prompt, n)) {
        ln_seq_begin(e, seq, n);
        return 0;
    }
    s->n_prompt = n;
    drop_from(e, s, (keep + e->run->kv.page_len - 1) / e->run->kv.page_len);
    s->n = keep;
    return keep;
}

void ln_seq_drop_unused(ln_eng *e, int seq) {
    ln_seq *s = &e->seqs[seq];
    drop_from(e, s, (s->n + e->run->kv.page_len - 1) / e->run->kv.page_len);
}

ln_status ln_seq_reserve(ln_eng *e, int seq, int64_t add, ln_error *err) {
    ln_seq *s = &e->seqs[seq];
    int64_t len = e->run->kv.page_len;
    if (s->n + add > e->run->opt.n_ctx)
        return ln_fail(err, LN_EINVALID, "the text has %lld tokens, the context holds %lld; use a larger ln_options.n_ctx", (long long)(s->n + add),
                       (long long)e->run->opt.n_ctx);
    for (int c = 0; c < e->run->spec->n_classes; c++) {
        int n_sub = e->run->kv.n_sub[c];
        for (int64_t b = LN_MAX(s->n / len, s->low[c]); b <= (s->n + add - 1) / len; b++) {
            const bool filled = b * len >= s->n && (b + 1) * len <= s->n + add; /* by the step that comes, before it is read */
            for (int i = 0; i < n_sub; i++) {
                int32_t *page = &s->tables[c][b * n_sub + i];
                if (*page >= 0) continue;
                if (e->pages.n_free == 0)
                    return ln_fail(err, LN_EMEMORY, "the KV pool of %lld pages is spent; use a larger ln_options.n_ctx or fewer sequences",
                                   (long long)e->pages.n);
                *page = e->pages.free[--e->pages.n_free];
                if (!filled) LN_TRY(ln_run_zero_page(e->run, *page, err));
            }
        }
    }
    return LN_OK;
}

void ln_seq_drop_below(ln_eng *e, int seq) {
    ln_seq *s = &e->seqs[seq];
    for (int c = 0; c < e->run->spec->n_classes; c++)
        for (int64_t low = lowest_needed(e, c, s->n); s->low[c] < low; s->low[c]++) drop_block(e, s, c, s->low[c]);
}
