/* The KV pool of a run: its layout, its size, and its pages.
 *
 * A page holds layers_per_page layers x page_len positions, where layers_per_page is the greatest common
 * divisor of the window groups' layer counts. So all window groups use pages of one size from one pool, and a
 * group of n layers takes n / layers_per_page pages for each block of page_len positions. A sequence holds
 * for a group with a window at most the positions of the window and of one chunk. The layout inside a page is
 * the device's. */
#include "run.h"

static int gcd(int a, int b) {
    while (b) {
        int t = a % b;
        a = b, b = t;
    }
    return a;
}

/* A job on the part of a page that stores a layer: LN_PAGE_PACK, _UNPACK or _COPY. */
static ln_page_job page_job(const ln_spec *s, const ln_kv_pool *kv, int op) {
    return (ln_page_job){.size = sizeof(ln_page_job),
                         .op = op,
                         .n_layers = 1,
                         .n_kv_heads = s->K,
                         .head_dim = s->E,
                         .page_len = kv->page_len,
                         .dtype = kv->dtype,
                         .layer_bytes = kv->layer_bytes};
}

/* Sets the layout of the pool. */
static ln_status lay_out(ln_run *r, ln_error *err) {
    const ln_spec *s = r->spec;
    ln_kv_pool *kv = &r->kv;
    int32_t *window_group = ln_arena_alloc(&r->arena, (size_t)s->L * sizeof *window_group),
            *page_in_block = ln_arena_alloc(&r->arena, (size_t)s->L * sizeof *page_in_block),
            *layer_in_page = ln_arena_alloc(&r->arena, (size_t)s->L * sizeof *layer_in_page);
    if (!window_group || !page_in_block || !layer_in_page) return LN_OOM(err, "the KV pool's layout");
    *kv = (ln_kv_pool){.size = sizeof *kv,
                       .page_len = r->opt.page_len,
                       .n_groups = s->n_window_groups,
                       .layers_per_page = s->window_groups[0].n_layers,
                       .dtype = r->opt.numerics == LN_FAST ? LN_BF16 : LN_F32,
                       .window_group = window_group,
                       .page_in_block = page_in_block,
                       .layer_in_page = layer_in_page};
    for (int c = 1; c < s->n_window_groups; c++)
        kv->layers_per_page = gcd(kv->layers_per_page, s->window_groups[c].n_layers);
    for (int c = 0; c < s->n_window_groups; c++)
        kv->pages_per_block[c] = s->window_groups[c].n_layers / kv->layers_per_page;
    const ln_page_job job = page_job(s, kv, LN_PAGE_UNPACK);
    const int64_t bytes = r->ops->kv_bytes(r->dev, &job);
    if (bytes < 0)
        return ln_fail(err, LN_EINVALID, "config.json: heads x head_dim is too large for a KV page");
    kv->layer_bytes = (bytes + 63) / 64 * 64;
    kv->page_bytes = kv->layer_bytes * kv->layers_per_page;
    int seen[2] = {0, 0};
    for (int l = 0; l < s->L; l++) {
        int i = seen[s->layers[l].window_group]++;
        window_group[l] = s->layers[l].window_group;
        page_in_block[l] = i / kv->layers_per_page;
        layer_in_page[l] = i % kv->layers_per_page;
    }
    return LN_OK;
}

/* Returns the maximum number of pages that a sequence of n positions holds; blocks[c]: that of blocks of
 * window group c. */
static int64_t seq_pages(const ln_run *r, int64_t n, int blocks[2]) {
    const ln_kv_pool *kv = &r->kv;
    int64_t all = (n + kv->page_len - 1) / kv->page_len, pages = 0;
    for (int c = 0; c < r->spec->n_window_groups; c++) {
        int64_t w = r->spec->window_groups[c].window, here = all;
        if (w > 0 && !r->opt.keep_full_kv) here = LN_MIN(all, (w + r->opt.n_chunk - 2) / kv->page_len + 2);
        blocks[c] = (int)here;
        pages += here * kv->pages_per_block[c];
    }
    return pages;
}

ln_status ln_run_make_pool(ln_run *r, ln_error *err) {
    const ln_run_options *opt = &r->opt;
    const ln_kv_pool *kv = &r->kv;
    ln_run_sizes *z = &r->sizes;
    LN_TRY(lay_out(r, err));
    int64_t blocks = (opt->n_ctx + kv->page_len - 1) / kv->page_len, pages;
    int ready[2];
    if (blocks > INT32_MAX)
        return ln_fail(err, LN_EUSAGE, "ln_options.n_ctx %lld is too large; lower it", (long long)opt->n_ctx);
    z->n_blocks = (int)blocks;
    for (int c = 0; c < kv->n_groups; c++) z->pages_per_block[c] = kv->pages_per_block[c];
    z->page_bytes = kv->page_bytes;
    z->seq_pages = seq_pages(r, opt->n_ctx, z->blocks);
    const int64_t most = LN_MIN((int64_t)INT32_MAX, INT64_MAX / kv->page_bytes); /* of any pool */
    if (__builtin_mul_overflow(z->seq_pages, (int64_t)opt->n_seqs, &pages)) pages = most;
    z->n_pages = opt->n_pages > 0 ? opt->n_pages : LN_MIN(pages, most);
    if (LN_MAX(z->seq_pages, z->n_pages) > most)
        return ln_fail(err, LN_EMEMORY,
                       "the KV pages for ln_options.n_ctx %lld do not fit in any memory; lower it",
                       (long long)opt->n_ctx);
    z->kv_bytes = (uint64_t)(z->n_pages * kv->page_bytes);
    pages = LN_MIN(seq_pages(r, opt->n_prefault, ready) * opt->n_seqs, z->n_pages);
    z->ready_bytes = (uint64_t)(pages * kv->page_bytes);
    return LN_OK;
}

ln_status ln_run_zero_page(ln_run *r, int64_t page, ln_error *err) {
    const int64_t bytes = r->kv.page_bytes;
    return r->ops->copy(r->queue, (char *)r->pool + page * bytes, NULL, (size_t)bytes, LN_COPY_WITHIN, err);
}

ln_status ln_run_copy_page(ln_run *r, int64_t to, int64_t from, int64_t n, ln_error *err) {
    ln_page_job job = page_job(r->spec, &r->kv, LN_PAGE_COPY);
    job.pool = r->pool;
    job.to = to * r->kv.page_bytes;
    job.from = from * r->kv.page_bytes;
    job.n = n;
    job.n_layers = r->kv.layers_per_page;
    return r->ops->page(r->queue, &job, err);
}

/* Offset in the pool of the part of a page that stores a layer. */
static int64_t layer_at(const ln_run *r, int layer, int64_t page) {
    return page * r->kv.page_bytes + r->kv.layer_in_page[layer] * r->kv.layer_bytes;
}

ln_status ln_run_read_page(ln_run *r, int layer, int64_t page, float *keys, float *values, ln_error *err) {
    ln_page_job job = page_job(r->spec, &r->kv, LN_PAGE_UNPACK);
    job.pool = r->pool;
    job.from = layer_at(r, layer, page);
    job.keys = keys;
    job.values = values;
    return r->ops->page(r->queue, &job, err);
}

ln_status ln_run_write_page(ln_run *r, int layer, int64_t page, const float *keys, const float *values,
                            ln_error *err) {
    ln_page_job job = page_job(r->spec, &r->kv, LN_PAGE_PACK);
    job.pool = r->pool;
    job.to = layer_at(r, layer, page);
    job.keys = (float *)(uintptr_t)keys; /* read only */
    job.values = (float *)(uintptr_t)values;
    return r->ops->page(r->queue, &job, err);
}
