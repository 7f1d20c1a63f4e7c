/* The public API of classifying and evaluating: checks arguments, resolves handles, forwards the call. */
#include "../engine/classify.h"
#include "../base/xxh64.h"
#include "../engine/evaluate.h"
#include "../run/ranks.h"
#include "check.h"
#include "engine_facts.h"
#include "../args/handle.h"

#include <string.h>

static ln_status done(const void *handle, ln_status st) {
    ln_handle_done(handle);
    return st;
}

static ln_status check_labels(const ln_classify_options *o, ln_error *err) {
    if (o->normalize != LN_NORMALIZE_SUM && o->normalize != LN_NORMALIZE_TOKENS)
        return ln_fail(err, LN_EUSAGE,
                       "ln_classify_options.normalize is %d, expected LN_NORMALIZE_SUM or "
                       "LN_NORMALIZE_TOKENS",
                       (int)o->normalize);
    if (o->n_labels > 0 && !o->labels)
        return ln_fail(err, LN_EUSAGE, "ln_classify_options.labels is NULL, but n_labels is %zu",
                       o->n_labels);
    for (size_t i = 0; i < o->n_labels; i++) {
        const char *text = o->labels[i];
        if (!text || !text[0])
            return ln_fail(err, LN_EUSAGE, "label %zu (ln_classify_options.labels) is empty; expected a text",
                           i + 1);
        if (ln_utf8_valid(text, strlen(text)) < strlen(text))
            return ln_fail(err, LN_EINVALID, "label %zu (ln_classify_options.labels) is not UTF-8", i + 1);
    }
    return LN_OK;
}

/* A digest of prompts and labels. */
static uint64_t digest_of(const ln_prompt *prompts, size_t n, const ln_classify_options *o) {
    ln_xxh64 h;
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        ln_xxh64_add(&h, &prompts[i].text_bytes, sizeof prompts[i].text_bytes);
        if (prompts[i].text) ln_xxh64_add(&h, prompts[i].text, prompts[i].text_bytes);
        ln_xxh64_add(&h, &prompts[i].n_ids, sizeof prompts[i].n_ids);
        if (prompts[i].ids) ln_xxh64_add(&h, prompts[i].ids, prompts[i].n_ids * sizeof *prompts[i].ids);
    }
    for (size_t i = 0; i < o->n_labels; i++) ln_xxh64_add(&h, o->labels[i], strlen(o->labels[i]) + 1);
    return ln_xxh64_value(&h);
}

/* Classifies in this process, or with the ranks that all make this call. */
static ln_status classify(ln_eng *e, const ln_prompt *prompts, size_t n, const ln_classify_options *o,
                          ln_class_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    ln_transport *ranks = ln_ranks_data(NULL);
    if (!ranks) return ln_eng_classify(e, prompts, n, o, fn, user, metrics, err);
    LN_TRY(ln_facts_agree(ranks, e, digest_of(prompts, n, o), "inputs", err));
    return ln_eng_classify_shared(e, ranks, prompts, n, o, fn, user, metrics, err);
}

ln_status ln_classify(ln_engine *engine, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                      ln_class_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    ln_eng *e;
    ln_classify_options o = ln_classify_options_default();
    ARG(fn && (prompts || n == 0), "prompts and fn must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&o, sizeof o, opt, "ln_classify_options", err));
    LN_TRY(check_labels(&o, err));
    LN_TRY(ln_api_engine(engine, &e, err));
    const ln_prompt *all;
    ln_prompt *copy = NULL;
    ln_sampling how;
    ln_status st = LN_OK;
    if (o.sampling) {
        ln_package_sampling(e->model, &how);
        st = ln_api_sampling(o.sampling, e->model->spec.V, &how, err);
        o.sampling = &how;
    }
    if (st == LN_OK) st = ln_api_prompts(prompts, n, &all, &copy, err);
    ln_api_adapted by_slot = {0};
    if (st == LN_OK) st = ln_api_use_adapters(&by_slot, e, all, n, err);
    if (st == LN_OK) st = classify(e, by_slot.prompts, n, &o, fn, user, metrics, err);
    ln_api_done_adapters(&by_slot);
    ln_free(copy);
    return done(engine, st);
}

ln_status ln_evaluate(ln_engine *engine, const int32_t *ids, size_t n_ids, int64_t window, int64_t stride,
                      ln_evaluation *out, ln_metrics *metrics, ln_error *err) {
    ln_eng *e;
    ln_evaluation all;
    ARG(out && (ids || n_ids == 0) && window >= 0 && stride >= 0, "ids and out must not be NULL, window and "
                                                                  "stride not negative");
    LN_TRY(ln_api_check_size(out, offsetof(ln_evaluation, tokens) + sizeof out->tokens, "ln_evaluation",
                             err));
    LN_TRY(ln_api_engine(engine, &e, err));
    ln_transport *ranks = ln_ranks_data(NULL);
    ln_xxh64 h;
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, (const int64_t[]){window, stride}, 2 * sizeof window);
    if (ids) ln_xxh64_add(&h, ids, n_ids * sizeof *ids);
    ln_status st = ln_facts_agree(ranks, e, ln_xxh64_value(&h), "texts", err);
    if (st == LN_OK) st = ln_eng_evaluate(e, ranks, ids, n_ids, window, stride, &all, metrics, err);
    if (st == LN_OK) ln_api_give_sized(out, sizeof all, &all);
    return done(engine, st);
}
