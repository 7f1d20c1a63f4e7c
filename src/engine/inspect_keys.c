/* Gathers the keys of a text: a request without logits whose sequence is held until its pages are read.
 *
 * The token is taken for each layer and given back while the caller's function runs, so that a slow function
 * delays no other request. */
#include "engine.h"
#include "scheduler.h"
#include "score.h"

/* Gathers the keys of one layer from the pages: f32 [K, E, page_len] of each block becomes keys [K, T, E].
 * `page` is scratch of K x E x page_len floats. */
static ln_status layer_keys(ln_eng *e, const ln_seq *q, int layer, int64_t T, float *page, float *keys,
                            ln_error *err) {
    const ln_state_pool *kv = &e->run->kv;
    const int group = kv->group[layer], len = kv->page_len;
    const ln_state_group *g = &kv->groups[group];
    const int64_t K = g->n_kv_heads, E = g->head_dim;
    for (int64_t block = 0; block * len < T; block++) {
        const int32_t number = q->tables[group][block * g->pages_per_block + kv->page_in_block[layer]];
        if (number < 0)
            return ln_fail(err, LN_EUSAGE,
                           "layer %d: positions below %lld were dropped; open the engine with keep_full_kv",
                           layer, (long long)(block + 1) * len);
        LN_TRY(ln_run_read_page(e->run, layer, number, page, NULL, err));
        for (int64_t h = 0; h < K; h++)
            for (int64_t t = block * len; t < LN_MIN(T, (block + 1) * len); t++)
                for (int64_t i = 0; i < E; i++)
                    keys[(h * T + t) * E + i] = page[(h * E + i) * len + (t - block * len)];
    }
    return LN_OK;
}

/* Runs the text, and waits until its keys are in the pages. */
static ln_status run_text(ln_eng *e, const int32_t *ids, size_t n, ln_req **out, ln_error *err) {
    const ln_req_options o = {.ids = ids, .n_ids = (int64_t)n, .hold = true, .no_cache = true};
    ln_req_view v = {0};
    LN_TRY(ln_req_new(out, e, &o, err));
    while ((v = ln_req_look(*out)).state != LN_REQ_HELD && v.state != LN_REQ_DONE)
        (void)ln_req_wait_change(*out, v.changes, -1);
    if (v.state == LN_REQ_HELD) return LN_OK;
    LN_TRY(ln_req_wait(*out, err));
    return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
}

static ln_status one_layer(ln_eng *e, ln_req *r, int layer, int64_t T, float *page, float *keys,
                           ln_error *err) {
    ln_sched *s = e->sched;
    pthread_mutex_lock(&s->lock);
    ln_driver_take(s);
    const bool held = r->state == LN_REQ_HELD;
    pthread_mutex_unlock(&s->lock);
    ln_status st = held ? layer_keys(e, r->seq, layer, T, page, keys, err)
                        : ln_fail(err, LN_ECANCELLED, "stopped by the caller");
    ln_driver_leave(s);
    return st;
}

ln_status ln_eng_inspect_keys(ln_eng *e, const int32_t *ids, size_t n, ln_keys_fn *fn, void *user,
                              ln_error *err) {
    const ln_state_pool *kv = &e->run->kv;
    ln_req *r = NULL;
    LN_TRY(ln_eng_check_ids(e, ids, n, err));
    if (n == 0) return ln_fail(err, LN_EUSAGE, "there are no tokens to look at");
    if (!e->run->opt.keep_full_kv)
        return ln_fail(err, LN_EUSAGE,
                       "the engine drops positions below the window; open it with keep_full_kv");
    ln_status st = LN_OK;
    size_t head = 0; /* the most elements of a position's keys */
    for (int c = 0; c < kv->n_groups; c++)
        head = LN_MAX(head, (size_t)kv->groups[c].n_kv_heads * (size_t)kv->groups[c].head_dim);
    float *page = ln_zalloc(head * (size_t)e->run->kv.page_len, sizeof *page),
          *keys = ln_zalloc(head * n, sizeof *keys);
    if (!page || !keys) LN_GO(LN_OOM(err, "keys"));
    LN_GO(run_text(e, ids, n, &r, err));
    for (int l = 0; l < e->run->spec->L; l++) {
        if (kv->groups[kv->group[l]].kind == LN_STATE_CHUNKS) continue; /* a recurrent layer has no keys */
        LN_GO(one_layer(e, r, l, (int64_t)n, page, keys, err));
        ln_req_callback here;
        ln_req_callback_begin(&here, e);
        const ln_state_group *g = &kv->groups[kv->group[l]];
        ln_status said = LN_CALLBACK(fn(user, l, keys, g->n_kv_heads, (int64_t)n, g->head_dim, err));
        ln_req_callback_end(&here);
        if (said == LN_ECANCELLED) break;
        LN_GO(said);
    }
out:
    ln_req_free(&r);
    ln_free(page);
    ln_free(keys);
    return st;
}
