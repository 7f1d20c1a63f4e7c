/* Pages of sequences: committed at admission, taken when a step needs their positions, released when no later
 * row can attend to them, and with the sequence. */
#include "kv_cache.h"

#include <string.h>

struct ln_kv {
    ln_kv_options o;
    ln_kv_ops ops;
    int32_t *free; /* [n_pages], a stack of n_free page indices */
    int64_t n_free;
    int64_t n_held;   /* pages of groups without a window that open sequences hold */
    int64_t n_window; /* pages of groups with a window that open sequences hold */
    int64_t promised; /* sum over open sequences of to_take + window_pages */
};

static int64_t blocks_of(const ln_kv *kv, int64_t n) { return (n + kv->o.page_len - 1) / kv->o.page_len; }

/* The lowest block of group c that the row at position n attends to. */
static int64_t lowest_needed(const ln_kv *kv, int c, int64_t n) {
    int64_t w = kv->o.window[c];
    return w == 0 || n < w ? 0 : (n - w + 1) / kv->o.page_len;
}

/* The most blocks of group c that a sequence of n positions holds at once: a step of n_chunk rows needs those
 * of its rows and of the window below the first of them. */
static int64_t most_blocks(const ln_kv *kv, int c, int64_t n) {
    int64_t all = blocks_of(kv, n), w = kv->o.window[c];
    return w == 0 ? all : LN_MIN(all, (w + kv->o.n_chunk - 2) / kv->o.page_len + 2);
}

/* Pages that a sequence of n positions is committed: those of groups without a window, and with one. */
static void commitment(const ln_kv *kv, int64_t n, int64_t *full, int64_t *windowed) {
    *full = *windowed = 0;
    for (int c = 0; c < kv->o.n_groups; c++)
        *(kv->o.window[c] ? windowed : full) += most_blocks(kv, c, n) * kv->o.pages_per_block[c];
}

/* ---- opening ---- */

uint64_t ln_kv_bytes(const ln_kv_options *o) { return sizeof(ln_kv) + (uint64_t)o->n_pages * 4; }

uint64_t ln_kv_seq_bytes(const ln_kv_options *o, int64_t n_most) {
    uint64_t blocks = ((uint64_t)n_most + (uint64_t)o->page_len - 1) / (uint64_t)o->page_len;
    uint64_t bytes = sizeof(ln_seq) + (uint64_t)n_most * 4;
    for (int c = 0; c < o->n_groups; c++) bytes += blocks * (uint64_t)o->pages_per_block[c] * 4;
    return bytes;
}

ln_status ln_kv_open(ln_kv **out, const ln_kv_options *o, const ln_kv_ops *ops, ln_error *err) {
    *out = NULL;
    ln_kv *kv = ln_zalloc(1, sizeof *kv);
    if (!kv) return LN_OOM(err, "the KV cache");
    kv->o = *o;
    kv->ops = *ops;
    kv->free = ln_zalloc((size_t)o->n_pages, sizeof *kv->free);
    if (!kv->free) {
        ln_kv_close(&kv);
        return LN_OOM(err, "the KV cache");
    }
    kv->n_free = o->n_pages;
    for (int64_t i = 0; i < o->n_pages; i++) kv->free[i] = (int32_t)(o->n_pages - 1 - i);
    *out = kv;
    return LN_OK;
}

void ln_kv_close(ln_kv **kv) {
    if (!*kv) return;
    ln_free((*kv)->free);
    ln_free(*kv);
    *kv = NULL;
}

ln_kv_counts ln_kv_count(const ln_kv *kv) {
    return (ln_kv_counts){
        .n_pages = kv->o.n_pages, .n_free = kv->n_free, .n_used = kv->n_held + kv->n_window};
}

/* ---- blocks of a sequence ---- */

static int32_t *entry(const ln_kv *kv, const ln_seq *s, int c, int64_t block) {
    return &s->tables[c][block * kv->o.pages_per_block[c]];
}

/* Tells the device about a block's entries. */
static void show_block(const ln_kv *kv, const ln_seq *s, int c, int64_t block) {
    const int n = kv->o.pages_per_block[c];
    kv->ops.set(kv->ops.user, s->slot, c, block * n, entry(kv, s, c, block), n);
}

/* Takes the pages of one block; `zero`: the coming step does not write all of it. */
static ln_status take_block(ln_kv *kv, ln_seq *s, int c, int64_t block, bool zero, ln_error *err) {
    int32_t *pages = entry(kv, s, c, block);
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        if (kv->n_free == 0)
            return ln_fail(err, LN_EINTERNAL, "the KV pool of %lld pages lacks one that was committed",
                           (long long)kv->o.n_pages);
        pages[i] = kv->free[--kv->n_free];
        if (kv->o.window[c]) kv->n_window++;
        else kv->n_held++, kv->promised--, s->to_take--;
        if (zero) LN_TRY(kv->ops.zero(kv->ops.user, pages[i], err));
    }
    show_block(kv, s, c, block);
    return LN_OK;
}

/* Releases the pages of one block. */
static void drop_block(ln_kv *kv, ln_seq *s, int c, int64_t block) {
    int32_t *pages = entry(kv, s, c, block);
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        if (pages[i] < 0) continue;
        kv->free[kv->n_free++] = pages[i];
        pages[i] = -1;
        if (kv->o.window[c]) kv->n_window--;
        else kv->n_held--, kv->promised++, s->to_take++;
    }
    show_block(kv, s, c, block);
}

/* Releases the pages of all blocks from first_block on. */
static void drop_from(ln_kv *kv, ln_seq *s, int64_t first_block) {
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int64_t b = LN_MAX(first_block, s->low[c]); b < blocks_of(kv, s->n_most); b++) {
            if (*entry(kv, s, c, b) < 0) break; /* resident blocks are contiguous */
            drop_block(kv, s, c, b);
        }
}

/* ---- sequences ---- */

bool ln_kv_possible(const ln_kv *kv, int64_t n) {
    int64_t full, windowed;
    commitment(kv, n, &full, &windowed);
    return n <= kv->o.n_ctx && full + windowed <= kv->o.n_pages;
}

static void free_seq(ln_seq **s) {
    if (!*s) return;
    ln_free((*s)->tokens);
    for (int c = 0; c < LN_KV_GROUPS; c++) ln_free((*s)->tables[c]);
    ln_free(*s);
    *s = NULL;
}

static ln_status new_seq(const ln_kv *kv, const ln_seq_options *opt, ln_seq **out, ln_error *err) {
    ln_seq *s = *out = ln_zalloc(1, sizeof *s);
    if (!s) return LN_OOM(err, "a sequence");
    s->n_most = opt->n_most;
    s->n_prompt = opt->n_prompt;
    s->no_cache = opt->no_cache;
    s->cache_miss_reason = opt->no_cache ? "disabled" : "";
    s->tokens = ln_zalloc((size_t)opt->n_most, sizeof *s->tokens);
    if (!s->tokens) return LN_OOM(err, "a sequence");
    for (int c = 0; c < kv->o.n_groups; c++) {
        size_t n = (size_t)(blocks_of(kv, opt->n_most) * kv->o.pages_per_block[c]);
        s->tables[c] = ln_zalloc(n, sizeof *s->tables[c]);
        if (!s->tables[c]) return LN_OOM(err, "a page table");
        memset(s->tables[c], 0xff, n * sizeof *s->tables[c]);
    }
    return LN_OK;
}

ln_status ln_kv_admit(ln_kv *kv, int slot, const ln_seq_options *opt, ln_seq **out, ln_error *err) {
    int64_t full, windowed;
    ln_seq *s = NULL;
    *out = NULL;
    if (opt->n_prompt < 0 || opt->n_most < LN_MAX(opt->n_prompt, 1) || opt->n_most > kv->o.n_ctx)
        return ln_fail(err, LN_EINTERNAL, "a sequence of %lld positions for a prompt of %lld, at most %lld",
                       (long long)opt->n_most, (long long)opt->n_prompt, (long long)kv->o.n_ctx);
    commitment(kv, opt->n_most, &full, &windowed);
    if (kv->n_held + kv->promised + full + windowed > kv->o.n_pages) return LN_OK;
    ln_status st = new_seq(kv, opt, &s, err);
    if (st != LN_OK) {
        free_seq(&s);
        return st;
    }
    s->slot = slot;
    s->to_take = full;
    s->window_pages = windowed;
    kv->promised += full + windowed;
    *out = s;
    return LN_OK;
}

void ln_kv_release(ln_kv *kv, ln_seq **out) {
    ln_seq *s = *out;
    if (!s) return;
    drop_from(kv, s, 0);
    kv->promised -= s->to_take + s->window_pages;
    free_seq(out);
}

ln_status ln_kv_cut(ln_kv *kv, ln_seq *s, int64_t n, ln_error *err) {
    if (n < 0 || n > s->n)
        return ln_fail(err, LN_EINTERNAL, "a sequence of %lld tokens cannot be cut to %lld", (long long)s->n,
                       (long long)n);
    for (int c = 0; c < kv->o.n_groups; c++)
        if (lowest_needed(kv, c, n) < s->low[c])
            return ln_fail(err, LN_EINTERNAL, "a window has moved on: the sequence cannot be cut to %lld",
                           (long long)n);
    s->n = n;
    ln_kv_free_unused(kv, s);
    return LN_OK;
}

void ln_kv_free_unused(ln_kv *kv, ln_seq *s) { drop_from(kv, s, blocks_of(kv, s->n)); }

ln_status ln_kv_reserve(ln_kv *kv, ln_seq *s, int64_t add, ln_error *err) {
    const int64_t len = kv->o.page_len;
    if (add < 1 || add > kv->o.n_chunk || s->n + add > s->n_most)
        return ln_fail(err, LN_EINTERNAL, "%lld rows at position %lld: the sequence was admitted for %lld",
                       (long long)add, (long long)s->n, (long long)s->n_most);
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int64_t b = LN_MAX(s->n / len, s->low[c]); b <= (s->n + add - 1) / len; b++) {
            const bool filled = b * len >= s->n && (b + 1) * len <= s->n + add;
            if (*entry(kv, s, c, b) < 0) LN_TRY(take_block(kv, s, c, b, !filled, err));
        }
    return LN_OK;
}

void ln_kv_advance(ln_kv *kv, ln_seq *s, const int32_t *ids, int64_t add) {
    memcpy(s->tokens + s->n, ids, (size_t)add * sizeof *ids);
    s->n += add;
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int64_t low = lowest_needed(kv, c, s->n); s->low[c] < low; s->low[c]++)
            if (s->low[c] < blocks_of(kv, s->n_most)) drop_block(kv, s, c, s->low[c]);
}
