/* The public API of fusing: checks arguments, forwards, and compares the result with the adapter applied. */
#include "../convert/convert.h"
#include "check.h"
#include "../args/handle.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16 };

typedef struct comparison {
    const char *model;
    ln_adapter_part adapter;
    int n_threads;
    ln_fuse_report report;
    int64_t n_ids; /* the model's vocabulary without the adapter, from which tokens are taken */
} comparison;

/* Receives the logits of a run: each row is kept in `out`, [ROWS, n_out], and its largest difference from
 * `than`, [ROWS, n_than], in *most. */
typedef struct rows {
    float *out;
    const float *than;
    int64_t n_out, n_than;
    double most;
} rows;

static ln_status take_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    rows *r = user;
    (void)logprob, (void)top, (void)n_top, (void)err;
    if (r->out) memcpy(r->out + t * n_vocab, logits, (size_t)n_vocab * sizeof *logits);
    for (int64_t i = 0; r->than && i < LN_MIN(n_vocab, r->n_than); i++) {
        const double d = fabs((double)logits[i] - (double)r->than[t * r->n_than + i]);
        r->most = d <= r->most ? r->most : d; /* a NaN stays */
    }
    return LN_OK;
}

/* Runs ROWS tokens spread over the vocabulary through a model; `keep`: its logits are kept. */
static ln_status run_sample(comparison *c, const char *path, bool adapted, rows *r, bool keep,
                            ln_error *err) {
    ln_options o = ln_options_default();
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_info *info = ln_zalloc(1, sizeof *info);
    int32_t ids[ROWS];
    ln_status st = info ? LN_OK : LN_OOM(err, "a comparison");
    o.numerics = LN_EXACT;
    o.n_threads = c->n_threads;
    o.n_ctx = o.n_chunk = o.n_logits = ROWS;
    if (adapted) o.adapter = &c->adapter, o.n_adapter_parts = 1;
    if (st == LN_OK) st = ln_model_open(&model, path, &o, err);
    if (info) info->size = sizeof *info;
    if (st == LN_OK) st = ln_model_info(model, info, err);
    if (st == LN_OK && !c->n_ids) c->n_ids = info->vocab_size;
    for (int i = 0; st == LN_OK && i < ROWS; i++)
        ids[i] = (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)c->n_ids);
    if (st == LN_OK && keep) {
        r->n_out = info->vocab_size;
        r->out = ln_zalloc((size_t)info->vocab_size * ROWS, sizeof *r->out);
        if (!r->out) st = LN_OOM(err, "a comparison");
    }
    if (st == LN_OK) st = ln_engine_open(&engine, model, &o, err);
    if (st == LN_OK) st = ln_score(engine, ids, ROWS, 0, take_row, r, NULL, err);
    ln_engine_close(&engine);
    ln_model_close(&model);
    ln_free(info);
    return st;
}

static ln_status compare_runs(comparison *c, const char *dir, ln_error *err) {
    rows plain = {0}, applied = {0}, fused = {0};
    ln_status st = run_sample(c, c->model, false, &plain, true, err);
    applied.than = plain.out, applied.n_than = plain.n_out;
    if (st == LN_OK) st = run_sample(c, c->model, true, &applied, true, err);
    fused.than = applied.out, fused.n_than = applied.n_out;
    if (st == LN_OK) st = run_sample(c, dir, false, &fused, false, err);
    ln_free(plain.out);
    ln_free(applied.out);
    c->report.n_rows = ROWS;
    c->report.difference = fused.most;
    c->report.change = applied.most;
    return st;
}

/* The check of ln_convert_fuse. A comparison that lacks memory is left out, and that is said. */
static ln_status compare(void *user, const char *dir, ln_error *err) {
    comparison *c = user;
    const ln_status st = compare_runs(c, dir, err);
    if (st != LN_EMEMORY) return st;
    ln_log(LN_LOG_WARN, "fused and applied were not compared: %s", err->message);
    c->report.n_rows = 0;
    c->report.difference = c->report.change = 0;
    return LN_OK;
}

ln_status ln_fuse(const char *model, const char *adapter, const char *out, const ln_fuse_options *opt,
                  ln_quantized_fn *fn, void *user, ln_fuse_report *report, ln_error *err) {
    ln_fuse_options all = ln_fuse_options_default(), *o = &all;
    ARG(model && adapter && out, "model, adapter and out must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&all, sizeof all, opt, "ln_fuse_options", err));
    if (o->bits && !ln_affine_bits_ok(o->bits))
        return ln_fail(err, LN_EUSAGE, "%s: bits: expected 2, 3, 4, 5, 6 or 8, found %d", __func__, o->bits);
    if (o->group && !ln_affine_group_ok(o->group))
        return ln_fail(err, LN_EUSAGE, "%s: group: expected 32, 64 or 128, found %d", __func__, o->group);
    if (o->group && !o->bits)
        return ln_fail(err, LN_EUSAGE,
                       "ln_fuse_options.group: a dense result has no groups; set ln_fuse_options.bits too");
    if (!isfinite(o->scale))
        return ln_fail(err, LN_EUSAGE, "ln_fuse_options.scale: expected a finite number");
    if (o->n_threads < 0) return ln_fail(err, LN_EUSAGE, "%s: n_threads must not be negative", __func__);
    comparison c = {.model = model, .adapter = {adapter, o->scale}, .n_threads = o->n_threads};
    if (report) LN_TRY(ln_api_check_size(report, sizeof report->size, "ln_fuse_report", err));
    LN_TRY(ln_convert_fuse(model, adapter, out, o, LN_CONVERT_SHARD_BYTES, fn, user, &c.report.n_modules,
                           report ? compare : NULL, &c, err));
    if (report) ln_api_give_sized(report, sizeof c.report, &c.report);
    return LN_OK;
}
