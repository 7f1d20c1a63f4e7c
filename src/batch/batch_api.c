/* The public API of files of requests: an engine becomes the wire_target that bodies are read for, and
 * batch_run answers them through the public functions. */
#include "../api/engine_facts.h"
#include "../args/args.h"
#include "../args/handle.h"
#include "batch.h"

#include <string.h>

/* Adds what an answer depends on in addition to the request, the model and the engine. */
static ln_status add_conditions(ln_str *s, const ln_batch_options *opt, ln_error *err) {
    for (size_t i = 0; i < opt->n_adapters; i++) {
        ln_adapter_info m = {.size = sizeof m};
        LN_TRY(ln_adapter_describe(opt->adapters[i].adapter, &m, err));
        ln_str_addf(s, ", %s %s", opt->adapters[i].name, m.digest);
    }
    if (opt->conditions && opt->conditions[0]) ln_str_addf(s, ", %s", opt->conditions);
    return s->failed ? LN_OOM(err, "the conditions of a file of answers") : LN_OK;
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

static ln_status run(ln_engine *engine, ln_engine_facts *f, const char *in, const char *out,
                     const ln_batch_options *opt, ln_batch_report *report, ln_error *err) {
    wire_target target = {.n_vocab = f->n_vocab,
                          .has_template = f->has_template,
                          .always_reasons = f->always_reasons,
                          .tool_format = f->tool_format,
                          .single_tool_call = f->single_tool_call,
                          .null_tool_content = f->null_tool_content,
                          .text_tool_arguments = f->text_tool_arguments,
                          .sampling = f->sampling,
                          .token = ln_facts_token,
                          .text = ln_facts_text,
                          .user = f->user};
    char fingerprint[WIRE_FINGERPRINT];
    ln_batch_options how = *opt;
    ln_status st;
    LN_GO(batch_name_models(&target, opt->model_name ? opt->model_name : "model", f->path, opt, err));
    wire_fingerprint(fingerprint, f->numerics);
    target.fingerprint = fingerprint;
    LN_GO(wire_sampling_default(&target.sampling, f->path, err));
    LN_GO(add_conditions(&f->conditions, opt, err));
    how.conditions = f->conditions.data;
    st = batch_run(engine, f->ranks, f->n_parallel, &target, f->identity, in, out, &how, report, err);
out:
    ln_free((void *)(uintptr_t)target.names);
    return st;
}

ln_status ln_batch(ln_engine *engine, const char *in, const char *out, const ln_batch_options *opt,
                   ln_batch_report *report, ln_error *err) {
    ln_engine_facts facts;
    ln_batch_options how = ln_batch_options_default();
    ln_batch_report done = {.size = sizeof done};
    ARG(in && out, "in and out must not be NULL");
    if (report) LN_TRY(ln_api_check_size(report, sizeof report->size, "ln_batch_report", err));
    if (opt) LN_TRY(ln_api_copy_sized(&how, sizeof how, opt, "ln_batch_options", err));
    LN_TRY(check_adapters(&how, err));
    LN_TRY(ln_engine_facts_open(&facts, engine, err));
    const ln_status st = run(engine, &facts, in, out, &how, &done, err);
    ln_engine_facts_close(&facts);
    if (report) ln_api_give_sized(report, sizeof done, &done);
    return st;
}
