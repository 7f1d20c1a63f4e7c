/* Models that several ranks open together, and the loop in which a rank follows rank 0 (run/ranks.h). A
 * follower has packages and runs under the numbers that rank 0 gave them, and no engine. */
#include "../base/json_write.h"
#include "../base/xxh64.h"
#include "package.h"

#include <string.h>

/* What a follower is told of a model. */
typedef struct model_order {
    int32_t quantize_bits;
    bool skip_unknown;
    char model[4096]; /* as rank 0 was given it */
} model_order;

/* ---- the weights are the same on all ranks ---- */

enum { SAMPLE = 4096, SAMPLES = 3 }; /* bytes of a tensor that are compared, at its start, middle and end */

/* Every rank reads only its share of a model, so that comparing all bytes would cost more than loading. */
uint64_t ln_package_sample_digest(const ln_package *m) {
    ln_xxh64 h;
    ln_str config = {0};
    ln_xxh64_open(&h);
    ln_str_json_value(&config, m->config.root);
    if (config.data) ln_xxh64_add(&h, config.data, config.len);
    ln_str_free(&config);
    for (size_t i = 0; i < m->tensors.n; i++) {
        const ln_tensor *t = &m->tensors.items[i];
        const uint64_t n = LN_MIN(t->bytes, (uint64_t)SAMPLE);
        ln_xxh64_add(&h, t->name, t->name_bytes);
        ln_xxh64_add(&h, &t->dtype, sizeof t->dtype);
        ln_xxh64_add(&h, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        for (uint64_t k = 0; k < SAMPLES && n; k++)
            ln_xxh64_add(&h, t->data + (t->bytes - n) / (SAMPLES - 1) * k, (size_t)n);
    }
    return ln_xxh64_value(&h);
}

static ln_status agree(ln_package **m, ln_transport *t, ln_status st, ln_error *err) {
    st = ln_ranks_agree(t, st, *m ? ln_package_sample_digest(*m) : 0,
                        "model is another one than that of rank 0", err);
    if (st != LN_OK) ln_package_close(m);
    return st;
}

ln_status ln_package_open_led(ln_package **out, const char *model, const ln_options *opt, ln_error *err) {
    ln_ranks *k = ln_ranks_led();
    model_order what = {.quantize_bits = opt->quantize_bits, .skip_unknown = opt->skip_unknown};
    *out = NULL;
    if (!k) return ln_package_open(out, model, opt, err);
    if (snprintf(what.model, sizeof what.model, "%s", model) >= (int)sizeof what.model)
        return ln_fail(err, LN_EUSAGE, "the name of the model has more than %zu bytes",
                       sizeof what.model - 1);
    const ln_order order = {.what = LN_ORDER_MODEL, .id = ++k->last_id, .bytes = sizeof what};
    LN_TRY(ln_ranks_order(k, &order, &what, err));
    ln_status opened = ln_package_open(out, model, opt, err);
    if (opened == LN_OK && (*out)->n_changers > 0)
        opened =
            ln_fail(err, LN_EUNSUPPORTED,
                    "ln_options.adapter: an adapter that changes the model itself is applied by one rank "
                    "alone; fuse it into the model, and run that on %d ranks",
                    k->transport->size);
    const ln_status st = agree(out, k->transport, opened, err);
    if (st == LN_OK) (*out)->led = k, (*out)->led_id = order.id;
    ln_ranks_done(k);
    return st;
}

void ln_package_end_led(ln_package *m) {
    const ln_order order = {.what = LN_ORDER_MODEL_CLOSE, .id = m->led_id};
    if (m->led && ln_ranks_order(m->led, &order, NULL, NULL) == LN_OK) ln_ranks_done(m->led);
    m->led = NULL;
}

/* ---- following ---- */

enum { MOST = 64 }; /* models, and runs, that are open at once */
typedef struct follower {
    ln_transport *t;
    int32_t model_ids[MOST], run_ids[MOST]; /* 0: free */
    ln_package *models[MOST];
    ln_run *runs[MOST];
    ln_pool *pool; /* its own, because a job of rank 0 waits for one of a rank that is a thread here */
    void *payload;
    size_t cap;
} follower;

static int place_of(const int32_t *ids, int32_t id) {
    int i = 0;
    while (i < MOST && ids[i] != id) i++;
    return i;
}

static ln_status open_model(follower *f, const ln_order *o, ln_error *err) {
    const model_order *what = f->payload;
    ln_package *m = NULL;
    ln_options opt = {.quantize_bits = what->quantize_bits, .skip_unknown = what->skip_unknown};
    const int at = place_of(f->model_ids, 0);
    const ln_status opened = at < MOST ? ln_package_open(&m, what->model, &opt, err)
                                       : ln_fail(err, LN_EUSAGE, "more than %d models are open", (int)MOST);
    const ln_status st = agree(&m, f->t, opened, err);
    if (st == LN_OK) f->models[at] = m, f->model_ids[at] = o->id;
    return f->t->failed.code; /* of a model that all ranks reject rank 0 tells its caller */
}

/* Opens a run with the options of rank 0, except what belongs to this process. */
static ln_status open_run(follower *f, const ln_order *o, ln_error *err) {
    ln_run_options opt = *(const ln_run_options *)f->payload;
    ln_run *r = NULL;
    const int at = place_of(f->run_ids, 0), model = place_of(f->model_ids, (int32_t)o->a);
    const bool known = at < MOST && model < MOST;
    opt.ops = NULL, opt.adapter_parts = NULL, opt.pool = f->pool, opt.program_of = NULL, opt.led = NULL;
    opt.progress = (ln_progress){0};
    opt.n_threads = LN_MIN(opt.n_threads, ln_cores());
    opt.rank = f->t->rank, opt.transport = f->t;
    const ln_package *m = known ? f->models[model] : NULL;
    if (!m) return ln_fail(err, LN_EINTERNAL, "rank %d: a run of an unknown model", f->t->rank);
    const ln_status st = ln_run_open(&r, &m->spec, &m->weights, m->weight_cache, &opt, err);
    if (st == LN_OK) f->runs[at] = r, f->run_ids[at] = o->id;
    return f->t->failed.code;
}

static void close_model(follower *f, const ln_order *o) {
    const int at = place_of(f->model_ids, o->id);
    if (at == MOST) return;
    ln_package_close(&f->models[at]);
    f->model_ids[at] = 0;
}
static void close_run(follower *f, const ln_order *o) {
    const int at = place_of(f->run_ids, o->id);
    if (at == MOST) return;
    ln_run_close(&f->runs[at]);
    f->run_ids[at] = 0;
}

static ln_status add_hidden(follower *f, ln_run *r, const ln_order *o, ln_error *err) {
    (void)ln_run_add_hidden(r, (uint64_t)o->a, err); /* rank 0 tells its caller */
    return f->t->failed.code;
}

/* Orders to a run that is open. */
static ln_status obey_run(follower *f, const ln_order *o, ln_error *err) {
    const int at = place_of(f->run_ids, o->id);
    if (at == MOST || o->id == 0)
        return ln_fail(err, LN_EINTERNAL, "rank %d: an order to the run %d, which is not open", f->t->rank,
                       o->id);
    ln_run *r = f->runs[at];
    switch (o->what) {
    case LN_ORDER_HIDDEN: return add_hidden(f, r, o, err);
    case LN_ORDER_STEP: return ln_run_follow_step(r, (int)o->a, o->b == 1, f->payload, o->bytes, err);
    case LN_ORDER_ZERO: return ln_run_zero_page(r, o->a, err);
    case LN_ORDER_COPY: return ln_run_copy_page(r, (int)o->a, o->b, o->c, o->d, err);
    case LN_ORDER_ADAPTER: return ln_run_write_adapters(r, o->a, f->payload, o->bytes, err);
    default: return ln_fail(err, LN_EINTERNAL, "rank %d: an unknown order %d", f->t->rank, o->what);
    }
}

static ln_status obey(follower *f, const ln_order *o, ln_error *err) {
    switch (o->what) {
    case LN_ORDER_MODEL: return open_model(f, o, err);
    case LN_ORDER_RUN: return open_run(f, o, err);
    case LN_ORDER_MODEL_CLOSE: close_model(f, o); return LN_OK;
    case LN_ORDER_RUN_CLOSE: close_run(f, o); return LN_OK;
    default: return obey_run(f, o, err);
    }
}

/* Receives an order and its payload. */
static ln_status receive(follower *f, ln_order *o, ln_error *err) {
    ln_status st = f->t->broadcast(f->t, o, sizeof *o);
    if (st == LN_OK && o->bytes) {
        LN_TRY(ln_grow(&f->payload, &f->cap, o->bytes, 1, err));
        st = f->t->broadcast(f->t, f->payload, o->bytes);
    }
    if (st != LN_OK && err) *err = f->t->failed;
    return st;
}

ln_status ln_ranks_follow_all(ln_transport *t, ln_error *err) {
    follower *f = ln_zalloc(1, sizeof *f);
    if (!f) return LN_OOM(err, "a rank");
    f->t = t;
    ln_order o = {0};
    ln_status st = ln_pool_open(&f->pool, err);
    while (st == LN_OK && (st = receive(f, &o, err)) == LN_OK && o.what != LN_ORDER_END) {
        st = obey(f, &o, err);
        if (st != LN_OK && t->failed.code != LN_OK && err) *err = t->failed;
    }
    for (int i = 0; i < MOST; i++) ln_run_close(&f->runs[i]);
    for (int i = 0; i < MOST; i++) ln_package_close(&f->models[i]);
    ln_pool_close(&f->pool);
    ln_free(f->payload);
    ln_free(f);
    return st;
}
