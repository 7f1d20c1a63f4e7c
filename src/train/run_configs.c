/* The configurations of a run: that of an adapter, and the settings that decide the bits of a run. */
#include "methods.h"
#include "preference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *number(double v) {
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *target_names(const ln_spec *s, const ln_lora *lora) {
    json_t *list = json_array();
    for (int i = 0; list && i < LN_W_COUNT; i++) {
        char leaf[48];
        if (!lora->targets[i]) continue;
        train_leaf(s, i, leaf);
        if (train_is_repeated(s, lora->targets, i, leaf)) continue;
        if (json_array_append_new(list, json_string(leaf)) != 0) json_decref(list), list = NULL;
    }
    return list;
}

/* Adds the beginning of a regular expression for modules of the trained layers. */
static void add_layers(const train_trainer *t, ln_str *s) {
    const char *before = "layers\\.(?:";
    for (int l = 0; l < t->m->spec.L; l++)
        if (t->program_options.lora.layers[l]) ln_str_addf(s, "%s%d", before, l), before = "|";
    ln_str_adds(s, ")\\..*\\.");
}

/* PEFT's target_modules: the names of the matrices. In a model with images PEFT would find these names in the
 * vision tower, too, and add untrained matrices there: a regular expression for the whole name keeps it out.
 */
static json_t *target_modules(const train_trainer *t) {
    const ln_lora *lora = &t->program_options.lora;
    if (t->m->config.text == t->m->config.root) return target_names(&t->m->spec, lora);
    ln_str s = {0};
    const char *before = "(?:";
    ln_str_adds(&s, lora->targets[LN_W_HEAD] ? "lm_head|.*language_model.*\\." : ".*language_model.*\\.");
    if (lora->layers) add_layers(t, &s);
    for (int i = 0; i < LN_W_COUNT; i++) {
        char leaf[48];
        if (!lora->targets[i] || i == LN_W_HEAD) continue;
        train_leaf(&t->m->spec, i, leaf);
        if (train_is_repeated(&t->m->spec, lora->targets, i, leaf)) continue;
        ln_str_addf(&s, "%s%s", before, leaf), before = "|";
    }
    ln_str_adds(&s, ")");
    json_t *out = s.failed ? NULL : json_string(s.data);
    ln_str_free(&s);
    return out;
}

/* The numbers of the layers that are trained; null: all. */
static json_t *layer_list(const train_trainer *t) {
    const bool *layers = t->program_options.lora.layers;
    json_t *list = layers ? json_array() : json_null();
    for (int l = 0; layers && list && l < t->m->spec.L; l++)
        if (layers[l] && json_array_append_new(list, json_integer(l)) != 0) json_decref(list), list = NULL;
    return list;
}

/* PEFT's layers_to_transform, which does not go with a regular expression for the names. */
static json_t *layers_to_transform(const train_trainer *t) {
    return t->m->config.text == t->m->config.root ? layer_list(t) : json_null();
}

/* PEFT's trainable_token_indices: the tokens of the embedding, and of a head that is a matrix of its own. */
static json_t *token_ids(const train_trainer *t) {
    const ln_lora *lora = &t->program_options.lora;
    json_t *ids = json_array();
    bool ok = ids != NULL;
    for (int i = 0; ok && i < lora->n_tokens; i++)
        ok = json_array_append_new(ids, json_integer(lora->tokens[i])) == 0;
    json_t *out = !ok                   ? NULL
                  : lora->n_tokens == 0 ? json_null()
                  : t->m->spec.tied     ? json_pack("{s:O}", "embed_tokens", ids)
                                        : json_pack("{s:O, s:O}", "embed_tokens", ids, "lm_head", ids);
    json_decref(ids);
    return out;
}

/* PEFT's modules_to_save. */
static json_t *saved_modules(const train_trainer *t) {
    const ln_lora *lora = &t->program_options.lora;
    json_t *list = lora->whole_table || lora->whole_head ? json_array() : json_null();
    const bool ok = (!lora->whole_table || json_array_append_new(list, json_string("embed_tokens")) == 0) &&
                    (!lora->whole_head || json_array_append_new(list, json_string("lm_head")) == 0);
    if (!ok) json_decref(list);
    return ok ? list : NULL;
}

/* adapter_config.json as PEFT writes it. The scale of an adapter that training began with is kept: alpha is
 * what gives it. */
static json_t *adapter_config(const train_trainer *t) {
    ln_hub_name hub;
    const bool cached = ln_hub_id(t->m->path, &hub);
    const char *slash = strrchr(t->m->path, '/'); /* a local path is of no use elsewhere */
    const char *base = cached ? hub.id : slash && slash[1] ? slash + 1 : t->m->path;
    const ln_lora *lora = &t->program_options.lora;
    const bool own = !t->how.init_adapter;
    const double alpha = own ? t->how.alpha : lora->scale * lora->rank;
    return json_pack("{s:s, s:s, s:s, s:s?, s:i, s:o, s:o, s:o, s:s, s:b, s:b, s:b, s:b, s:o, s:o, s:o, "
                     "s:{}, "
                     "s:{}}",
                     "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base,
                     "revision", cached ? hub.revision : NULL, "r", lora->rank, "lora_alpha", number(alpha),
                     "lora_dropout", number(lora->dropout), "target_modules", target_modules(t), "bias",
                     "none", "use_rslora", own && t->how.rslora, "use_dora", lora->magnitudes,
                     "fan_in_fan_out", 0, "inference_mode", 1, "modules_to_save", saved_modules(t),
                     "layers_to_transform", layers_to_transform(t), "trainable_token_indices", token_ids(t),
                     "rank_pattern", "alpha_pattern");
}

/* A real as text with all its digits, so that it compares equal. */
static json_t *exact_number(double v) {
    ln_str s = {0};
    ln_str_double(&s, v);
    json_t *out = s.failed ? NULL : json_string(s.data);
    ln_str_free(&s);
    return out;
}

static json_t *seed_text(uint64_t seed) {
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    return json_string(text);
}

/* The digest of the model's chat templates, that for tools included; also of those that a caller named. It is
 * written with the result, whatever the samples are. */
static void hash_template(const train_trainer *t, char hex[LN_SHA256_HEX]) {
    ln_sha256 h;
    size_t bytes = 0;
    ln_sha256_open(&h);
    const char *plain = t->m->tmpl ? ln_model_template_source(t->m->tmpl, &bytes) : NULL;
    ln_sha256_add_text(&h, plain ? plain : "", plain ? bytes : 0);
    const char *tools = t->m->tmpl ? ln_model_template_tools_source(t->m->tmpl, &bytes) : NULL;
    ln_sha256_add_text(&h, tools ? tools : "", tools ? bytes : 0);
    ln_sha256_hex(&h, hex);
}

/* What decides the bits of the run: the model as it is loaded, the samples and the options. The number of
 * steps does if the learning rate depends on it. */
static json_t *settings(const train_trainer *t, const ln_digests *of) {
    const ln_trainer_options *o = &t->how;
    const ln_lora *lora = &t->program_options.lora;
    const bool fixed = train_schedule_is_of_steps(o->schedule);
    char tmpl[LN_SHA256_HEX];
    hash_template(t, tmpl);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:b, s:o, s:o, s:o, "
                     "s:o, s:o, s:s, s:I, s:I, "
                     "s:I, s:I, s:I, "
                     "s:b, s:I, s:s, s:i}",
                     "model", of->weights, "config", of->config, "tokenizer", of->tokenizer, "template", tmpl,
                     "data", t->data.digest, "valid", t->valid.digest, "samples", t->data.samples_digest,
                     "valid_samples", t->valid.samples_digest, "quantize", t->m->opt.quantize_bits, "rank",
                     lora->rank, "scale", exact_number(lora->scale), "dropout", exact_number(lora->dropout),
                     "targets", target_names(&t->m->spec, lora), "bf16", o->bf16, "lr", exact_number(o->lr),
                     "clip", exact_number(o->clip), "weight_decay", exact_number(o->weight_decay),
                     "valid_split", exact_number(o->valid_split), "seed", seed_text(o->seed), "schedule",
                     train_schedule_name(o->schedule), "warmup", (json_int_t)o->warmup, "steps",
                     (json_int_t)(fixed ? t->info.n_steps : 0), "batch", (json_int_t)o->batch, "accum",
                     (json_int_t)o->accum, "max_length", (json_int_t)o->max_length, "shuffle", !o->no_shuffle,
                     "rows", (json_int_t)t->info.n_rows, "numerics",
                     t->info.numerics == LN_EXACT ? "exact" : "fast", "device",
                     (int)t->program_options.run.device);
}

/* The numbers of a schedule that are not the defaults. */
static bool add_schedule(const train_trainer *t) {
    const ln_trainer_options *o = &t->how;
    bool ok = true;
    if (o->min_lr > 0) ok = json_object_set_new(t->settings, "min_lr", exact_number(o->min_lr)) == 0;
    if (o->power != 1) ok = ok && json_object_set_new(t->settings, "power", exact_number(o->power)) == 0;
    if (o->cycles != 1) ok = ok && json_object_set_new(t->settings, "cycles", json_integer(o->cycles)) == 0;
    if (o->decay_steps > 0)
        ok = ok && json_object_set_new(t->settings, "decay_steps", json_integer(o->decay_steps)) == 0;
    return ok;
}

/* How samples are chosen, if it is not the usual way. */
static bool add_files(const train_trainer *t) {
    json_t *weights = t->how.n_mix > 0 ? json_array() : NULL;
    bool ok = t->how.n_mix == 0 || weights;
    for (size_t i = 0; weights && i < t->how.n_mix; i++)
        ok = ok && json_array_append_new(weights, exact_number(t->how.mix[i].weight)) == 0;
    if (weights) ok = json_object_set_new(t->settings, "weights", weights) == 0 && ok;
    if (t->how.split_by_hash)
        ok = ok && json_object_set_new(t->settings, "split_by", json_string("hash")) == 0;
    return ok;
}

ln_status train_configs(train_trainer *t, ln_error *err) {
    const ln_digests *of;
    if (!t->method->full) {
        t->adapter_config = adapter_config(t);
        if (!t->adapter_config) return LN_OOM(err, "the adapter's configuration");
    }
    if (!t->how.out) return LN_OK;
    LN_TRY(ln_package_digests(t->m, &of, err));
    t->settings = settings(t, of);
    bool failed = !t->settings;
    if (t->program_options.lora.layers)
        failed = failed || json_object_set_new(t->settings, "layers", layer_list(t)) != 0;
    if (t->program_options.lora.magnitudes)
        failed = failed || json_object_set_new(t->settings, "dora", json_true()) != 0;
    if (t->program_options.lora.whole_table || t->program_options.lora.whole_head)
        failed = failed || json_object_set_new(t->settings, "modules_to_save", saved_modules(t)) != 0;
    if (t->m->n_added > 0)
        failed = failed || json_object_set_new(t->settings, "tokens", json_string(t->m->added_texts)) != 0;
    if (t->method->full)
        failed = failed || json_object_set_new(t->settings, "method", json_string(t->method->name)) != 0;
    if (t->preference->slopes)
        failed = failed ||
                 json_object_set_new(t->settings, "preference", json_string(t->preference->name)) != 0 ||
                 json_object_set_new(t->settings, "beta", exact_number(t->how.beta)) != 0;
    failed = failed || !add_schedule(t) || !add_files(t);
    if (t->how.moment_bits != 32)
        failed = failed || json_object_set_new(t->settings, "moments", json_integer(t->how.moment_bits)) != 0;
    if (t->how.optimizer != LN_OPTIMIZER_ADAMW)
        failed = failed ||
                 json_object_set_new(t->settings, "optimizer", json_string(t->optimiser->name)) != 0 ||
                 json_object_set_new(t->settings, "momentum", exact_number(t->how.momentum)) != 0;
    if (failed) json_decref(t->settings), t->settings = NULL;
    return t->settings ? LN_OK : LN_OOM(err, "the settings of a run");
}
