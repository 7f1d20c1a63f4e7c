/* Facts of an engine for the clients within the library: the identity of its model, and the conditions that
 * an answer depends on. */
#include "engine_facts.h"
#include "../args/handle.h"
#include "../base/xxh64.h"
#include "../run/ranks.h"
#include "check.h"

#include <stdio.h>
#include <string.h>

void ln_facts_token(void *user, int32_t id, bool *special, ln_str *out) {
    const ln_package *m = user;
    *special = ln_tok_is_special(m->tok, id);
    if (ln_tok_bytes(m->tok, id, out, &(ln_error){0}) == LN_EMEMORY) out->failed = true;
}

void ln_facts_text(void *user, const int32_t *ids, size_t n, ln_str *out) {
    const ln_package *m = user;
    if (ln_tok_decode(m->tok, ids, n, true, out, &(ln_error){0}) == LN_EMEMORY) out->failed = true;
}

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

/* What an answer depends on in addition to the request and the model's files. */
static ln_status add_conditions(ln_str *s, const ln_eng *e, ln_error *err) {
    ln_str_addf(s, "numerics %s, context %lld", e->run->opt.numerics == LN_FAST ? "fast" : "exact",
                (long long)e->run->opt.n_ctx);
    if (e->model->opt.quantize_bits) ln_str_addf(s, ", quantised to %d bits", e->model->opt.quantize_bits);
    if (e->run->opt.device == LN_DEVICE_REF) ln_str_adds(s, ", reference device");
    const ln_adapter_slot *own = ln_adapters_default(e);
    if (own) ln_str_addf(s, ", adapter %s", own->digest);
    return s->failed ? LN_OOM(err, "the conditions of a file of answers") : LN_OK;
}

static ln_status fill(ln_engine_facts *f, const ln_eng *e, ln_error *err) {
    ln_package *m = (ln_package *)(uintptr_t)e->model;
    LN_TRY(ln_tok_check(m->tok, err));
    f->user = m;
    f->path = m->path;
    f->n_vocab = m->spec.V;
    f->has_template = m->tmpl != NULL;
    f->always_reasons = m->delims && !(m->tmpl && ln_model_template_think_switch(m->tmpl));
    f->tool_format = m->tools.format->name;
    f->single_tool_call = !m->tools.several;
    f->null_tool_content = m->tools.null_content;
    f->text_tool_arguments = m->tools.text_arguments;
    f->numerics = e->run->opt.numerics;
    f->n_parallel = e->run->opt.n_seqs;
    f->ranks = ln_ranks_data(NULL);
    ln_package_sampling(m, &f->sampling);
    LN_TRY(add_conditions(&f->conditions, e, err));
    return model_identity(m, f->identity, err);
}

ln_status ln_facts_agree(ln_transport *ranks, const ln_eng *e, uint64_t input, const char *what,
                         ln_error *err) {
    if (!ranks) return LN_OK;
    char text[160];
    ln_str conditions = {0};
    ln_xxh64 h;
    const ln_status st = add_conditions(&conditions, e, err);
    const uint64_t parts[] = {ln_package_sample_digest(e->model), ln_run_digest(e->run), input};
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, parts, sizeof parts);
    if (conditions.data) ln_xxh64_add(&h, conditions.data, conditions.len);
    ln_str_free(&conditions);
    (void)snprintf(text, sizeof text, "model, settings or %s are others than those of rank 0", what);
    return ln_ranks_agree(ranks, st, ln_xxh64_value(&h), text, err);
}

ln_status ln_engine_facts_open(ln_engine_facts *f, const ln_engine *engine, ln_error *err) {
    ln_eng *e;
    *f = (ln_engine_facts){0};
    LN_TRY(ln_api_engine(engine, &e, err));
    f->engine = engine;
    const ln_status st = fill(f, e, err);
    if (st != LN_OK) ln_engine_facts_close(f);
    return st;
}

void ln_engine_facts_close(ln_engine_facts *f) {
    if (f->engine) ln_handle_done(f->engine);
    ln_str_free(&f->conditions);
    *f = (ln_engine_facts){0};
}
