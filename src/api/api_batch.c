/* The public API of files of requests: what answers them, and the identity of the model.
 *
 * The module wire/ runs the requests through the public functions; here the engine's model becomes its
 * wire_target. */
#include "../engine/engine.h"
#include "../wire/batch.h"
#include "check.h"
#include "handle.h"

#include <stdio.h>
#include <string.h>

static void token_bytes(void *user, int32_t id, bool *special, ln_str *out) {
    const ln_package *m = user;
    *special = ln_tok_is_special(m->tok, id);
    if (ln_tok_bytes(m->tok, id, out, &(ln_error){0}) == LN_EMEMORY) out->failed = true;
}

static void text_of_ids(void *user, const int32_t *ids, size_t n, ln_str *out) {
    const ln_package *m = user;
    if (ln_tok_decode(m->tok, ids, n, true, out, &(ln_error){0}) == LN_EMEMORY) out->failed = true;
}

/* ---- the identity of a model ---- */

/* Adds generation_config.json; a model without one adds an empty text. */
static ln_status add_generation(ln_sha256 *h, const ln_package *m, ln_error *err) {
    char path[sizeof m->path + 32];
    char *data = NULL;
    size_t bytes = 0;
    bool there;
    (void)snprintf(path, sizeof path, "%s/generation_config.json", m->path);
    LN_TRY(ln_look(path, &there, err));
    if (there) LN_TRY(ln_read_file(path, LN_CONFIG_LIMIT, &data, &bytes, err));
    ln_sha256_add_text(h, data ? data : "", bytes);
    ln_free(data);
    return LN_OK;
}

/* Everything of the model that an answer depends on. The digest of the weights reads all of them once. */
static ln_status model_identity(const ln_package *m, char digest[LN_SHA256_HEX], ln_error *err) {
    const ln_digests *d;
    ln_sha256 h;
    size_t bytes = 0;
    LN_TRY(ln_package_digests(m, &d, err));
    ln_sha256_open(&h);
    ln_sha256_add_text(&h, d->weights, strlen(d->weights));
    ln_sha256_add_text(&h, d->config, strlen(d->config));
    ln_sha256_add_text(&h, d->tokenizer, strlen(d->tokenizer));
    LN_TRY(add_generation(&h, m, err));
    const char *source = m->tmpl ? ln_model_template_source(m->tmpl, &bytes) : "";
    ln_sha256_add_text(&h, source, bytes);
    ln_sha256_hex(&h, digest);
    return LN_OK;
}

/* ---- what answers ---- */

/* What an answer depends on besides the request and the model's files. */
static ln_status add_conditions(ln_str *s, const ln_eng *e, const ln_batch_options *opt, ln_error *err) {
    ln_str_addf(s, "numerics %s, context %lld", e->run->opt.numerics == LN_FAST ? "fast" : "exact",
                (long long)e->run->opt.n_ctx);
    if (e->model->opt.quantize_bits) ln_str_addf(s, ", quantised to %d bits", e->model->opt.quantize_bits);
    if (e->run->opt.device == LN_DEVICE_REF) ln_str_adds(s, ", reference device");
    const ln_adapter_slot *own = ln_adapters_default(e);
    if (own) ln_str_addf(s, ", adapter %s", own->digest);
    for (size_t i = 0; i < opt->n_adapters; i++) {
        ln_adapter_info m = {.size = sizeof m};
        LN_TRY(ln_adapter_describe(opt->adapters[i].adapter, &m, err));
        ln_str_addf(s, ", %s %s", opt->adapters[i].name, m.digest);
    }
    if (opt->conditions && opt->conditions[0]) ln_str_addf(s, ", %s", opt->conditions);
    return s->failed ? LN_OOM(err, "the conditions of a file of answers") : LN_OK;
}

/* The names that bodies may choose, and their adapters; one block of memory, which ln_free frees. */
static ln_status name_adapters(wire_target *t, const char *name, const char *path,
                               const ln_batch_options *opt, ln_error *err) {
    const size_t n = opt->n_adapters + 2;
    const void **all = ln_zalloc(2 * n, sizeof *all);
    if (!all) return LN_OOM(err, "the names of adapters");
    const char **names = (const char **)all;
    const ln_adapter **adapters = (const ln_adapter **)(all + n);
    names[0] = name;
    for (size_t i = 0; i < opt->n_adapters; i++) {
        names[i + 1] = opt->adapters[i].name;
        adapters[i + 1] = opt->adapters[i].adapter;
    }
    names[n - 1] = path;
    t->names = names, t->adapters = adapters, t->n_names = n;
    return LN_OK;
}

static ln_status check_adapters(const ln_batch_options *o, ln_error *err) {
    const char *own = o->model_name ? o->model_name : "model";
    for (size_t i = 0; i < o->n_adapters; i++) {
        const char *name = o->adapters ? o->adapters[i].name : NULL;
        bool ok = name && name[0] && o->adapters[i].adapter && strcmp(name, own) != 0;
        for (size_t k = 0; ok && k < i; k++) ok = strcmp(name, o->adapters[k].name) != 0;
        if (!ok)
            return ln_fail(err, LN_EUSAGE,
                           "adapter %zu (ln_batch_options.adapters): expected an open adapter and a name of "
                           "its "
                           "own, found '%s'",
                           i + 1, name ? name : "");
    }
    return LN_OK;
}

static ln_status run(ln_engine *engine, const ln_eng *e, const char *in, const char *out,
                     const ln_batch_options *opt, ln_batch_report *report, ln_error *err) {
    ln_package *m = (ln_package *)(uintptr_t)e->model;
    wire_target target = {.n_vocab = m->spec.V,
                          .has_template = m->tmpl != NULL,
                          .tool_form = m->calls ? m->calls->name : NULL,
                          .token = token_bytes,
                          .text = text_of_ids,
                          .user = m};
    char fingerprint[WIRE_FINGERPRINT];
    char digest[LN_SHA256_HEX];
    ln_str conditions = {0};
    ln_batch_options how = *opt;
    ln_status st;
    LN_GO(ln_tok_check(m->tok, err));
    LN_GO(name_adapters(&target, opt->model_name ? opt->model_name : "model", m->path, opt, err));
    ln_package_sampling(m, &target.sampling);
    wire_fingerprint(fingerprint, e->run->opt.numerics);
    target.fingerprint = fingerprint;
    LN_GO(wire_sampling_default(&target.sampling, m->path, err));
    LN_GO(add_conditions(&conditions, e, opt, err));
    LN_GO(model_identity(m, digest, err));
    how.conditions = conditions.data;
    st = batch_run(engine, e->run->opt.n_seqs, &target, digest, in, out, &how, report, err);
out:
    ln_free((void *)(uintptr_t)target.names);
    ln_str_free(&conditions);
    return st;
}

ln_status ln_batch(ln_engine *engine, const char *in, const char *out, const ln_batch_options *opt,
                   ln_batch_report *report, ln_error *err) {
    void *e;
    ln_batch_options how = ln_batch_options_default();
    ln_batch_report done = {.size = sizeof done};
    ARG(in && out, "in and out must not be NULL");
    if (report) LN_TRY(ln_api_check_size(report, sizeof report->size, "ln_batch_report", err));
    if (opt) LN_TRY(ln_api_copy_sized(&how, sizeof how, opt, "ln_batch_options", err));
    LN_TRY(check_adapters(&how, err));
    LN_TRY(ln_handle_use(LN_HANDLE_ENGINE, engine, &e, err));
    ln_status st = run(engine, e, in, out, &how, &done, err);
    if (report) ln_api_give_sized(report, sizeof done, &done);
    ln_handle_done(engine);
    return st;
}
