/* The table of methods (contract: methods.h). */
#include "methods.h"
#include "other_layouts.h"
#include "tokenizer_files.h"

#include "../convert/convert.h"
#include "../io/directory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- an adapter ---- */

static ln_status choose_adapter(train_trainer *t, ln_error *err) {
    LN_TRY(train_targets(t, &t->program_options.lora, err));
    return train_layout_check(t, err);
}

/* The name in PEFT's layout; a text model inside a larger one is a module of it, and the head is outside. */
static void name_in_adapter(const train_trainer *t, const ln_train_param *x, char out[224]) {
    const bool inside = t->m->config.text != t->m->config.root, head = x->slot == LN_W_HEAD;
    (void)snprintf(out, 224, "base_model.model.%s%s%.140s.%s", head ? "" : "model.",
                   inside && !head ? "language_model." : "", x->path,
                   x->is_whole       ? "weight"
                   : x->is_rows      ? "token_adapter.trainable_tokens_delta"
                   : x->is_magnitude ? "lora_magnitude_vector"
                   : x->is_lookup    ? (x->is_b ? "lora_embedding_B" : "lora_embedding_A")
                   : x->is_b         ? "lora_B.weight"
                                     : "lora_A.weight");
}

static ln_status begin_adapter(train_trainer *t, ln_error *err) {
    if (!t->how.init_adapter) return ln_train_program_init(t->program, t->how.seed, err);
    return train_init_values(t->m, t->how.init_adapter, t->state.params, t->state.n_params, err);
}

static ln_status write_adapter(const train_trainer *t, const char *dir, ln_error *err) {
    if (t->how.adapter_as != LN_ADAPTER_AS_PEFT) return train_layout_write(t, dir, err);
    if (t->m->n_added > 0) LN_TRY(train_tokenizer_write(t->m, dir, err));
    return train_adapter_write(dir, t->state.params, t->state.n_params, t->how.bf16, t->adapter_config, NULL,
                               err);
}

/* ---- all weights ---- */

static ln_status choose_weights(train_trainer *t, ln_error *err) {
    if (t->how.init_adapter)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.init_adapter: expected none, because all weights are trained");
    if (t->how.layers)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.layers: expected none, because all weights are trained");
    if (t->how.bf16 || t->how.dropout > 0)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.%s: is of adapters, and all weights are trained: they keep the "
                       "dtype of their file",
                       t->how.bf16 ? "bf16" : "dropout");
    if (t->how.adapter_as != LN_ADAPTER_AS_PEFT)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.adapter_as: expected LN_ADAPTER_AS_PEFT, because all weights are "
                       "trained");
    if (t->how.dora)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.dora: expected false, because all weights are trained");
    if (t->how.modules_to_save)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.modules_to_save: expected none, because all weights are trained");
    if (t->m->n_added > 0)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "ln_options.add_tokens: tokens are added with an adapter, whose rows are trained; "
                       "fuse it, "
                       "and train all weights of the result");
    if (t->m->config.of_gguf)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "the weights of a GGUF file cannot be trained themselves; ln_convert_model makes a "
                       "model directory of it, or train an adapter");
    t->program_options.full = true;
    return LN_OK;
}

static void name_in_model(const train_trainer *t, const ln_train_param *x, char out[224]) {
    (void)t;
    (void)snprintf(out, 224, "%.*s", (int)x->tensor->name_bytes, x->tensor->name);
}

static ln_status begin_weights(train_trainer *t, ln_error *err) {
    return ln_train_program_init(t->program, t->how.seed, err);
}

static ln_status write_model(const train_trainer *t, const char *dir, ln_error *err) {
    ln_convert_values *values = ln_zalloc(t->state.n_params + 1, sizeof *values);
    if (!values) return LN_OOM(err, "the list of tensors");
    for (size_t i = 0; i < t->state.n_params; i++)
        values[i] = (ln_convert_values){t->state.params[i].name, t->state.params[i].value};
    const ln_status st = ln_convert_trained(t->m->path, dir, values, t->state.n_params,
                                            LN_CONVERT_SHARD_BYTES, t->program_options.run.n_threads, err);
    ln_free(values);
    return st;
}

const train_method train_methods[] = {
    [LN_METHOD_LORA] = {.name = "lora",
                        .choose = choose_adapter,
                        .name_param = name_in_adapter,
                        .begin = begin_adapter,
                        .write = write_adapter},
    [LN_METHOD_FULL] = {.name = "full",
                        .full = true,
                        .choose = choose_weights,
                        .name_param = name_in_model,
                        .begin = begin_weights,
                        .write = write_model},
};
