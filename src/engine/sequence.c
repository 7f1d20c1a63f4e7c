/* Sequences of an engine: slots, and the KV cache bound to the run's pages and page tables. */
#include "engine.h"

ln_kv_options ln_seq_cache_options(const ln_run_options *o, const ln_run_sizes *z) {
    ln_kv_options k = {.n_pages = z->n_pages,
                       .n_ctx = o->n_ctx,
                       .page_len = o->page_len,
                       .n_chunk = o->n_chunk,
                       .n_seqs = o->n_seqs,
                       .n_groups = z->n_groups};
    const int64_t snapshots = z->n_recur_pages - o->n_seqs * z->seq_recur_pages;
    k.n_chunk_pages = z->n_recur_pages;
    k.chunk_weight = (z->recur_page_bytes + z->page_bytes - 1) / z->page_bytes;
    k.n_spaced =
        (int)LN_MAX(1, snapshots / 2 / o->n_seqs); /* half of them: the others are of prompts and turns */
    for (int c = 0; c < z->n_groups; c++) {
        k.chunks[c] = z->groups[c].kind == LN_STATE_CHUNKS;
        k.window[c] = o->keep_full_kv && !k.chunks[c] ? 0 : z->groups[c].window;
        k.pages_per_block[c] = z->groups[c].pages_per_block;
    }
    return k;
}

uint64_t ln_seqs_bytes(const ln_run_options *o, const ln_run_sizes *z) {
    const ln_kv_options k = ln_seq_cache_options(o, z);
    return ln_kv_bytes(&k) + (uint64_t)o->n_seqs * ln_kv_seq_bytes(&k, o->n_ctx);
}

static ln_status zero_page(void *user, int64_t page, ln_error *err) {
    return ln_run_zero_page(((ln_eng *)user)->run, page, err);
}
static ln_status copy_page(void *user, int group, int64_t to, int64_t from, int64_t n, ln_error *err) {
    return ln_run_copy_page(((ln_eng *)user)->run, group, to, from, n, err);
}
static void set_pages(void *user, int slot, int group, int64_t first, const int32_t *pages, int64_t n) {
    ln_run_set_pages(((ln_eng *)user)->run, slot, group, first, pages, n);
}

ln_status ln_seqs_open(ln_eng *e, ln_error *err) {
    const ln_run *r = e->run;
    const ln_kv_options o = ln_seq_cache_options(&r->opt, &r->sizes);
    const ln_kv_ops ops = {.user = e, .zero = zero_page, .copy = copy_page, .set = set_pages};
    e->seqs = ln_zalloc((size_t)r->opt.n_seqs, sizeof(ln_seq *));
    if (!e->seqs) return LN_OOM(err, "sequences");
    return ln_kv_open(&e->kv, &o, &ops, err);
}

void ln_seqs_close(ln_eng *e) {
    for (int i = 0; e->seqs && e->kv && i < e->run->opt.n_seqs; i++)
        if (e->seqs[i]) ln_kv_release(e->kv, &e->seqs[i]);
    ln_free(e->seqs);
    ln_kv_close(&e->kv);
}

bool ln_seq_possible(const ln_eng *e, int64_t n) { return ln_kv_possible(e->kv, n); }

ln_status ln_seq_open(ln_eng *e, const ln_seq_options *opt, ln_seq **out, ln_error *err) {
    int slot = 0;
    ln_seq_options o = *opt;
    const ln_adapter_slot *a = o.adapter_slot == 0 && o.adapter == 0 ? ln_adapters_default(e) : NULL;
    if (a) o.adapter_slot = 1, o.adapter = a->key;
    *out = NULL;
    while (slot < e->run->opt.n_seqs && e->seqs[slot]) slot++;
    if (slot == e->run->opt.n_seqs) return LN_OK;
    const int64_t rope = ln_spec_rope_length(e->run->spec, opt->n_prompt);
    LN_TRY(ln_kv_admit(e->kv, slot, rope, &o, out, err));
    e->seqs[slot] = *out;
    return LN_OK;
}

void ln_seq_close(ln_eng *e, ln_seq **s) {
    if (!*s) return;
    e->seqs[(*s)->slot] = NULL;
    ln_kv_release(e->kv, s);
}

ln_status ln_seq_cut(ln_eng *e, ln_seq *s, int64_t n, ln_error *err) { return ln_kv_cut(e->kv, s, n, err); }
ln_status ln_seq_reserve(ln_eng *e, ln_seq *s, int64_t add, ln_error *err) {
    return ln_kv_reserve(e->kv, s, add, err);
}
void ln_seq_reserve_snapshots(ln_eng *e, ln_seq *s, int64_t add) { ln_kv_reserve_snapshots(e->kv, s, add); }
void ln_seq_advance(ln_eng *e, ln_seq *s, const int32_t *ids, int64_t add) {
    ln_kv_advance(e->kv, s, ids, add);
}
ln_status ln_seq_truncate(ln_eng *e, ln_seq *s, ln_error *err) { return ln_kv_truncate(e->kv, s, err); }
void ln_seq_free_unused(ln_eng *e, ln_seq *s) { ln_kv_free_unused(e->kv, s); }
