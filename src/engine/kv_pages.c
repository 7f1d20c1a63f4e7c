/* Allocates KV pages to sequences: taken from the pool when a step needs their positions, evicted when no
 * later row can attend to them, freed with the sequence.
 *
 * All window groups share one pool. For a sequence of n tokens, a group with window w keeps the blocks from
 * the one of position n - w + 1, the oldest that the next row attends to; a group without a window keeps all.
 * A sequence can be cut back to P tokens only where every group still holds the block of position P - w + 1.
 * Between a group's lowest resident block and the sequence's last one all blocks are resident. */
#include "engine.h"

/* The lowest block of window group c that the row at position n attends to. */
static int64_t lowest_needed(const ln_eng *e, int c, int64_t n) {
    int64_t w = e->run->spec->window_groups[c].window;
    if (w == 0 || e->run->opt.keep_full_kv || n < w) return 0;
    return (n - w + 1) / e->run->kv.page_len;
}

/* Frees the pages of one block. */
static void drop_block(ln_eng *e, ln_seq *s, int c, int64_t block) {
    int pages_per_block = e->run->kv.pages_per_block[c];
    for (int i = 0; i < pages_per_block; i++) {
        int32_t *page = &s->tables[c][block * pages_per_block + i];
        if (*page >= 0) e->pages.free[e->pages.n_free++] = *page;
        *page = -1;
    }
}

/* Frees the pages of all blocks from first_block on, in all window groups. */
static void drop_from(ln_eng *e, ln_seq *s, int64_t first_block) {
    for (int c = 0; c < e->run->spec->n_window_groups; c++)
        for (int64_t b = LN_MAX(first_block, s->low[c]); b < e->run->sizes.n_blocks; b++) {
            if (s->tables[c][b * e->run->kv.pages_per_block[c]] < 0)
                break; /* resident blocks are contiguous */
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

int64_t ln_seq_match_prefix(ln_eng *e, int seq, const int32_t *ids, int64_t n) {
    ln_seq *s = &e->seqs[seq];
    int64_t keep = 0, most = LN_MIN(s->n, n - 1);
    while (keep < most && s->tokens[keep] == ids[keep]) keep++;
    /* A shorter prefix needs blocks that are lower still, so where this one lacks a block none is kept. */
    for (int c = 0; c < e->run->spec->n_window_groups; c++)
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

void ln_seq_free_unused(ln_eng *e, int seq) {
    ln_seq *s = &e->seqs[seq];
    drop_from(e, s, (s->n + e->run->kv.page_len - 1) / e->run->kv.page_len);
}

ln_status ln_seq_reserve(ln_eng *e, int seq, int64_t add, ln_error *err) {
    ln_seq *s = &e->seqs[seq];
    int64_t len = e->run->kv.page_len;
    if (s->n + add > e->run->opt.n_ctx)
        return ln_fail(err, LN_EINVALID,
                       "the text has %lld tokens, the context holds %lld; use a larger ln_options.n_ctx",
                       (long long)(s->n + add), (long long)e->run->opt.n_ctx);
    for (int c = 0; c < e->run->spec->n_window_groups; c++) {
        int pages_per_block = e->run->kv.pages_per_block[c];
        for (int64_t b = LN_MAX(s->n / len, s->low[c]); b <= (s->n + add - 1) / len; b++) {
            const bool filled =
                b * len >= s->n && (b + 1) * len <= s->n + add; /* the coming step writes all of it */
            for (int i = 0; i < pages_per_block; i++) {
                int32_t *page = &s->tables[c][b * pages_per_block + i];
                if (*page >= 0) continue;
                if (e->pages.n_free == 0)
                    return ln_fail(err, LN_EMEMORY,
                                   "the KV pool of %lld pages is spent; use a larger ln_options.n_ctx or "
                                   "fewer sequences",
                                   (long long)e->pages.n);
                *page = e->pages.free[--e->pages.n_free];
                if (!filled) LN_TRY(ln_run_zero_page(e->run, *page, err));
            }
        }
    }
    return LN_OK;
}

void ln_seq_evict_below(ln_eng *e, int seq) {
    ln_seq *s = &e->seqs[seq];
    for (int c = 0; c < e->run->spec->n_window_groups; c++)
        for (int64_t low = lowest_needed(e, c, s->n); s->low[c] < low; s->low[c]++)
            drop_block(e, s, c, s->low[c]);
}
