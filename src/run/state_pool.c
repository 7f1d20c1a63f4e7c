/* The pool of pages of a run: its groups, its layout, its size, and its pages.
 *
 * Layers that have the same window, heads and widths form a group, in the order of their first layers. A
 * page holds page_len positions of layers_per_page layers of one group, and all groups use pages of one
 * size from one pool. If a layer takes as many bytes in every group, layers_per_page is the greatest
 * common divisor of the groups' layer counts, and no byte is wasted. Else the size is chosen in bytes: the
 * largest page of which at most WASTE is left over in blocks, so that tables are short. A sequence holds
 * for a group with a window at most the positions of the window and of one chunk. The layout inside a page
 * is the device's.
 *
 * Recurrent layers make up groups of chunks, whose pages come from a second pool by the same rule. An
 * index of a page names one of both: those of the second pool follow those of the first. A sequence holds
 * at most two pages of a chunk at once, in addition to those that the prefix cache keeps (decision 049). */
#include "run.h"

#define WASTE 0.05

static int gcd(int a, int b) {
    while (b) {
        int t = a % b;
        a = b, b = t;
    }
    return a;
}

/* A job on the part of a page that stores a layer of a group: LN_PAGE_PACK, _UNPACK or _COPY. */
static ln_page_job page_job(const ln_state_pool *pool, int group, int op) {
    const ln_state_group *c = &pool->groups[group];
    return (ln_page_job){.size = sizeof(ln_page_job),
                         .op = op,
                         .n_layers = 1,
                         .n_kv_heads = c->n_kv_heads,
                         .head_dim = c->head_dim,
                         .v_dim = c->v_dim,
                         .page_len = pool->page_len,
                         .dtype = c->dtype,
                         .q8 = c->q8,
                         .layer_bytes = c->layer_bytes,
                         .kind = c->kind,
                         .recur = c->recur};
}
static bool is_chunks(const ln_state_pool *pool, int group) {
    return pool->groups[group].kind == LN_STATE_CHUNKS;
}

/* The group of a layer's state, which is added where the pool has none like it; -1: there are too many. */
static int recurrent_group(ln_state_pool *pool, const ln_recur_sizes *z, ln_dtype dtype) {
    int i = 0;
    while (i < pool->n_groups && (!is_chunks(pool, i) || memcmp(&pool->groups[i].recur, z, sizeof *z) != 0))
        i++;
    if (i == LN_STATE_GROUPS) return -1;
    if (i == pool->n_groups)
        pool->groups[pool->n_groups++] =
            (ln_state_group){.kind = LN_STATE_CHUNKS, .recur = *z, .dtype = dtype, .window = LN_CHUNK_WINDOW};
    return i;
}
static int group_of(ln_state_pool *pool, const ln_attn_spec *a, int n_ranks, ln_dtype dtype, bool q8) {
    const int K = (int)ln_share_of(a->K, 1, n_ranks, 0).n; /* heads of every rank */
    int i = 0;
    while (i < pool->n_groups &&
           (is_chunks(pool, i) || pool->groups[i].window != a->window || pool->groups[i].n_kv_heads != K ||
            pool->groups[i].head_dim != a->E || pool->groups[i].v_dim != a->Ev))
        i++;
    if (i == LN_STATE_GROUPS) return -1;
    if (i == pool->n_groups)
        pool->groups[pool->n_groups++] = (ln_state_group){
            .n_kv_heads = K, .head_dim = a->E, .v_dim = a->Ev, .dtype = dtype, .q8 = q8, .window = a->window};
    return i;
}

static int pages_for(const ln_state_group *c, int64_t page_bytes) {
    const int64_t fit = LN_MIN(page_bytes / c->layer_bytes, (int64_t)c->n_layers);
    return (int)((c->n_layers + fit - 1) / fit);
}

/* The share of a block's bytes that pages of this size leave over; more than 1: a layer does not fit. */
static double waste_of(const ln_state_pool *pool, int kind, int64_t page_bytes) {
    double taken = 0, used = 0;
    for (int c = 0; c < pool->n_groups; c++) {
        const ln_state_group *g = &pool->groups[c];
        if (g->kind != kind) continue;
        if (g->layer_bytes > page_bytes) return 2;
        taken += (double)pages_for(g, page_bytes) * (double)page_bytes;
        used += (double)g->n_layers * (double)g->layer_bytes;
    }
    return 1 - used / taken;
}

/* Chooses the size of pages for groups of layers of different sizes. */
static int64_t page_size(const ln_state_pool *pool, int kind) {
    int64_t best = 0;
    double least = 2;
    for (int c = 0; c < pool->n_groups; c++)
        for (int n = 1; n <= pool->groups[c].n_layers && pool->groups[c].kind == kind; n++) {
            const int64_t bytes = n * pool->groups[c].layer_bytes;
            const double waste = waste_of(pool, kind, bytes);
            const bool good = waste <= WASTE;
            if (waste > 1 || (least <= WASTE && !good)) continue;
            if (good && least <= WASTE ? bytes > best : waste < least || (waste == least && bytes > best))
                best = bytes, least = waste;
        }
    return best;
}

/* Chooses the size of the pages of one pool: of all groups of a kind. 0: there are none. */
static int64_t choose_size(ln_state_pool *pool, int kind) {
    int common = 0;
    int64_t layer_bytes = 0;
    bool same = true;
    for (int c = 0; c < pool->n_groups; c++) {
        if (pool->groups[c].kind != kind) continue;
        common = gcd(common, pool->groups[c].n_layers);
        same = same && (layer_bytes == 0 || pool->groups[c].layer_bytes == layer_bytes);
        layer_bytes = pool->groups[c].layer_bytes;
    }
    return same ? layer_bytes * common : page_size(pool, kind);
}

static ln_status choose_pages(ln_state_pool *pool, ln_error *err) {
    pool->page_bytes = choose_size(pool, LN_STATE_PAGED);
    pool->recur_page_bytes = choose_size(pool, LN_STATE_CHUNKS);
    if (pool->page_bytes <= 0) return ln_fail(err, LN_EINTERNAL, "the pool has no size of pages");
    for (int c = 0; c < pool->n_groups; c++) {
        ln_state_group *g = &pool->groups[c];
        g->pages_per_block = pages_for(g, is_chunks(pool, c) ? pool->recur_page_bytes : pool->page_bytes);
        g->layers_per_page = (g->n_layers + g->pages_per_block - 1) / g->pages_per_block;
    }
    return LN_OK;
}

/* Sets the layout of the pool. */
static ln_status lay_out(ln_run *r, ln_error *err) {
    const ln_spec *s = r->spec;
    ln_state_pool *pool = &r->kv;
    const ln_dtype dtype = r->opt.numerics == LN_FAST ? LN_BF16 : LN_F32;
    int32_t *all = ln_arena_alloc(&r->arena, 3 * (size_t)s->L * sizeof *all), *group = all,
            *page_in_block = all + s->L, *layer_in_page = all + 2 * s->L;
    int seen[LN_STATE_GROUPS] = {0};
    if (!all) return LN_OOM(err, "the KV pool's layout");
    *pool = (ln_state_pool){.size = sizeof *pool,
                            .page_len = r->opt.page_len,
                            .group = group,
                            .page_in_block = page_in_block,
                            .layer_in_page = layer_in_page};
    for (int l = 0; l < s->L; l++) {
        const int from = s->layers[l].state_from;
        const ln_recur_spec *recur = ln_recur_of(s, l);
        group[l] = recur ? recurrent_group(pool, &recur->sizes, dtype)
                   : from == l
                       ? group_of(pool, ln_attn_of(s, l), LN_MAX(1, r->opt.n_ranks), dtype, r->opt.kv_q8)
                       : group[from];
        if (group[l] < 0)
            return ln_fail(err, LN_EUNSUPPORTED,
                           "the layers have more than %d combinations of window, heads and widths",
                           (int)LN_STATE_GROUPS);
        if (from == l) pool->groups[group[l]].n_layers++;
    }
    if (s->n_recur && !(r->info.can & LN_CAN_RECURRENT))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "device %s has no kernels for layers with recurrent state (short convolution, gated "
                       "delta "
                       "rule), which this model has; use ln_options.device = LN_DEVICE_CPU",
                       r->info.name);
    if (ln_spec_both_ways(s) && !(r->info.can & LN_CAN_BOTH_WAYS))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "device %s has no kernels for attention to later tokens, which this model has; use "
                       "ln_options.device = LN_DEVICE_CPU",
                       r->info.name);
    if (r->opt.kv_q8 && !(r->info.can & LN_CAN_KV_Q8))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "device %s has no kernels for keys and values of 8 bits (ln_options.kv_type = "
                       "LN_KV_Q8); use ln_options.kv_type = LN_KV_AUTO, or ln_options.device = LN_DEVICE_CPU",
                       r->info.name);
    for (int c = 0; c < pool->n_groups; c++) {
        const ln_page_job job = page_job(pool, c, LN_PAGE_UNPACK);
        const int64_t bytes = r->ops->kv_bytes(r->dev, &job);
        if (bytes < 0)
            return ln_fail(err, LN_EINVALID, "config.json: heads x head_dim is too large for a KV page");
        pool->groups[c].layer_bytes = (bytes + 63) / 64 * 64;
    }
    LN_TRY(choose_pages(pool, err));
    for (int l = 0; l < s->L; l++) {
        const int from = s->layers[l].state_from, i = from == l ? seen[group[l]]++ : 0,
                  per = pool->groups[group[l]].layers_per_page;
        page_in_block[l] = from == l ? i / per : page_in_block[from];
        layer_in_page[l] = from == l ? i % per : layer_in_page[from];
    }
    return LN_OK;
}

/* Returns the maximum number of pages that a sequence of n positions holds, and in *recurrent that of
 * pages of chunks; blocks[c]: that of blocks of group c. */
static int64_t seq_pages(const ln_run *r, int64_t n, int blocks[LN_STATE_GROUPS], int64_t *recurrent) {
    const ln_state_pool *pool = &r->kv;
    int64_t all = (n + pool->page_len - 1) / pool->page_len, pages = 0;
    *recurrent = 0;
    for (int c = 0; c < pool->n_groups; c++) {
        int64_t w = pool->groups[c].window, here = all;
        if (is_chunks(pool, c)) here = LN_MIN(all, LN_CHUNK_BLOCKS);
        else if (w > 0 && !r->opt.keep_full_kv)
            here = LN_MIN(all, (w + r->opt.n_chunk - 2) / pool->page_len + 2);
        blocks[c] = (int)here;
        *(is_chunks(pool, c) ? recurrent : &pages) += here * pool->groups[c].pages_per_block;
    }
    return pages;
}

void ln_run_size_recurrent(ln_run_sizes *z, int n_seqs, int64_t n_pages) {
    const int64_t least = 2 * z->seq_recur_pages;
    if (!z->seq_recur_pages) return;
    z->n_recur_pages = LN_MAX(n_pages, least);
    z->n_recur_pages = LN_MIN(z->n_recur_pages, n_seqs * (z->seq_recur_pages + LN_SNAPSHOTS_MOST));
    z->recur_bytes = (uint64_t)(z->n_recur_pages * z->recur_page_bytes);
}

ln_status ln_run_make_pool(ln_run *r, ln_error *err) {
    const ln_run_options *opt = &r->opt;
    const ln_state_pool *pool = &r->kv;
    ln_run_sizes *z = &r->sizes;
    LN_TRY(lay_out(r, err));
    int64_t blocks = (opt->n_ctx + pool->page_len - 1) / pool->page_len, pages, recurrent;
    int ready[LN_STATE_GROUPS];
    if (blocks > INT32_MAX)
        return ln_fail(err, LN_EUSAGE, "ln_options.n_ctx %lld is too large; lower it", (long long)opt->n_ctx);
    z->n_blocks = (int)blocks;
    z->n_groups = pool->n_groups;
    memcpy(z->groups, pool->groups, sizeof z->groups);
    z->page_bytes = pool->page_bytes;
    z->recur_page_bytes = pool->recur_page_bytes;
    z->seq_pages = seq_pages(r, opt->n_ctx, z->blocks, &z->seq_recur_pages);
    const int64_t most = LN_MIN((int64_t)INT32_MAX / 2, INT64_MAX / pool->page_bytes); /* of any pool */
    if (__builtin_mul_overflow(z->seq_pages, (int64_t)opt->n_seqs, &pages)) pages = most;
    z->n_pages = opt->n_pages > 0 ? opt->n_pages : LN_MIN(pages, most);
    if (LN_MAX(z->seq_pages, z->n_pages) > most)
        return ln_fail(err, LN_EMEMORY,
                       "the KV pages for ln_options.n_ctx %lld do not fit in any memory; lower it",
                       (long long)opt->n_ctx);
    z->kv_bytes = (uint64_t)(z->n_pages * pool->page_bytes);
    ln_run_size_recurrent(z, opt->n_seqs,
                          opt->n_recur_pages ? opt->n_recur_pages
                                             : opt->n_seqs * (z->seq_recur_pages + LN_SNAPSHOTS_MOST));
    pages = LN_MIN(seq_pages(r, opt->n_prefault, ready, &recurrent) * opt->n_seqs, z->n_pages);
    z->ready_bytes = (uint64_t)(pages * pool->page_bytes);
    recurrent = LN_MIN(recurrent * opt->n_seqs, z->n_recur_pages);
    z->recur_ready_bytes = (uint64_t)(recurrent * pool->recur_page_bytes);
    return LN_OK;
}

/* The state and the offset in it of a page. */
static void *page_at(const ln_run *r, int64_t page, int64_t *at, int64_t *bytes) {
    const bool recurrent = page >= r->sizes.n_pages;
    *bytes = recurrent ? r->kv.recur_page_bytes : r->kv.page_bytes;
    *at = (page - (recurrent ? r->sizes.n_pages : 0)) * *bytes;
    return r->states[recurrent ? LN_STATE_RECURRENT : LN_STATE_PAGES];
}

ln_status ln_run_zero_page(ln_run *r, int64_t page, ln_error *err) {
    const ln_order order = {.what = LN_ORDER_ZERO, .id = r->id, .a = page};
    int64_t at, bytes;
    char *pool = page_at(r, page, &at, &bytes);
    LN_TRY(ln_ranks_order(r->opt.led, &order, NULL, err));
    const ln_status st = r->ops->copy(r->queue, pool + at, NULL, (size_t)bytes, LN_COPY_WITHIN, err);
    ln_ranks_done(r->opt.led);
    return st;
}

ln_status ln_run_copy_page(ln_run *r, int group, int64_t to, int64_t from, int64_t n, ln_error *err) {
    const ln_order order = {.what = LN_ORDER_COPY, .id = r->id, .a = group, .b = to, .c = from, .d = n};
    ln_page_job job = page_job(&r->kv, group, LN_PAGE_COPY);
    int64_t bytes;
    job.pool = page_at(r, to, &job.to, &bytes);
    (void)page_at(r, from, &job.from, &bytes);
    job.n = n;
    job.n_layers = r->kv.groups[group].layers_per_page;
    LN_TRY(ln_ranks_order(r->opt.led, &order, NULL, err));
    const ln_status st = r->ops->page(r->queue, &job, err);
    ln_ranks_done(r->opt.led);
    return st;
}

/* Sets the pool of a job on one layer; returns the offset in it of the part of a page that stores the
 * layer. */
static int64_t layer_at(const ln_run *r, int layer, int64_t page, ln_page_job *job) {
    const ln_state_pool *pool = &r->kv;
    int64_t at, bytes;
    job->pool = page_at(r, page, &at, &bytes);
    return at + pool->layer_in_page[layer] * pool->groups[pool->group[layer]].layer_bytes;
}

/* Rejects access to keys of which a rank has some of the heads. */
static ln_status check_ranks(const ln_run *r, ln_error *err) {
    if (r->opt.n_ranks <= 1) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "each of %d ranks has the keys of some heads only; run this on one rank", r->opt.n_ranks);
}

ln_status ln_run_read_page(ln_run *r, int layer, int64_t page, float *keys, float *values, ln_error *err) {
    ln_page_job job = page_job(&r->kv, r->kv.group[layer], LN_PAGE_UNPACK);
    LN_TRY(check_ranks(r, err));
    job.from = layer_at(r, layer, page, &job);
    job.keys = keys;
    job.values = values;
    return r->ops->page(r->queue, &job, err);
}

ln_status ln_run_write_page(ln_run *r, int layer, int64_t page, const float *keys, const float *values,
                            ln_error *err) {
    ln_page_job job = page_job(&r->kv, r->kv.group[layer], LN_PAGE_PACK);
    LN_TRY(check_ranks(r, err));
    job.to = layer_at(r, layer, page, &job);
    job.keys = (float *)(uintptr_t)keys; /* read only */
    job.values = (float *)(uintptr_t)values;
    return r->ops->page(r->queue, &job, err);
}
