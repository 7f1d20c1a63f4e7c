/* Writes a model with the initial weights that transformers gives a configuration (PreTrainedModel's
 * _init_weights): matrices are normal with deviation `initializer_range`, norms have no effect, biases are 0,
 * and the embedding of the padding token is 0. The numbers are a function of seed, tensor and place alone.
 *
 * Names and shapes are those of weights.def and of the family, so that the model has the tensors that
 * transformers expects. Weights that need a rule of their own (experts, recurrent layers, sinks) are
 * rejected. */
#include "../base/c_locale.h"
#include "../base/elementary.h"
#include "../base/thread_pool.h"
#include "../io/directory.h"
#include "../model/weight_slots.h"
#include "convert.h"

#include <stdio.h>
#include <string.h>

void ln_initial_row(const ln_initial *x, int64_t r, int64_t cols, float *out) {
    const uint32_t key[2] = {(uint32_t)x->seed, (uint32_t)(x->seed >> 32)};
    const uint64_t at = (uint64_t)r * (uint64_t)cols;
    const bool draws = x->deviation > 0 && r != x->zero_row;
    double pair[2] = {0};
    for (int64_t k = 0; k < cols; k++) {
        const uint64_t i = at + (uint64_t)k;
        const uint32_t counter[4] = {(uint32_t)(i / 2), (uint32_t)(i / 2 >> 32), x->stream, 0x6d6f6465u};
        if (draws && (k == 0 || i % 2 == 0)) ln_normal_pair(counter, key, pair);
        out[k] = draws ? (float)(x->deviation * pair[i % 2]) : x->constant;
    }
}

/* ---- the configuration ---- */

/* Opens the configuration: a JSON file, or that of a model. c->from becomes the directory whose tokenizer is
 * copied. */
static ln_status open_config(ln_convert *c, const char *config, const char *tokenizer, ln_error *err) {
    char shown[LN_PATH_TEXT], dir[LN_PATH_MAX];
    const char *slash = strrchr(config, '/');
    if (ln_ends_with(config, ".json") && ln_exists(config)) {
        (void)snprintf(dir, sizeof dir, "%.*s", slash ? (int)LN_MAX(slash - config, 1) : 1,
                       slash ? config : ".");
        LN_TRY(ln_config_open_file(&c->config, config, err));
    } else {
        LN_TRY(ln_find_model(config, dir, sizeof dir, err));
        LN_TRY(ln_config_open(&c->config, dir, err));
    }
    (void)snprintf(c->from, sizeof c->from, "%s", dir);
    if (tokenizer) LN_TRY(ln_find_model(tokenizer, c->from, sizeof c->from, err));
    if (c->config.of_gguf)
        return ln_fail(err, LN_EUNSUPPORTED, "%s: expected a config.json, found a GGUF file",
                       ln_path_text(shown, c->config.path));
    if (c->config.text != c->config.root)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: describes a model of text and images; expected the configuration of a text "
                       "model, "
                       "such as its text_config",
                       ln_path_text(shown, c->config.path));
    return ln_spec_open(&c->spec, &c->config, err);
}

/* The dtype that `name` or else the configuration asks for. */
static ln_status find_dtype(const ln_convert *c, const char *name, ln_dtype *out, ln_error *err) {
    static const char *const names[] = {[LN_F32] = "float32", [LN_BF16] = "bfloat16", [LN_F16] = "float16"};
    const char *of_config =
        ln_config_text(&c->config, "dtype", ln_config_text(&c->config, "torch_dtype", NULL));
    const char *wanted = name ? name : of_config ? of_config : "float32";
    char shown[80];
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (strcmp(wanted, names[i]) == 0) {
            *out = (ln_dtype)i;
            return LN_OK;
        }
    return ln_fail(err, LN_EUSAGE, "ln_init_options.dtype: expected float32, bfloat16 or float16, found %s%s",
                   ln_excerpt(shown, wanted, strnlen(wanted, 100)), name ? "" : " in the configuration");
}

/* ---- the tensors ---- */

typedef struct filling {
    ln_convert *c;
    ln_dtype dtype;
    double deviation;
    uint64_t seed;
    int64_t padding; /* the padding token; -1: none */
} filling;

static ln_status no_rule(const filling *f, const char *name, ln_error *err) {
    char shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: %s: there is no rule for the initial values of such a tensor; expected a dense model "
                   "with attention in all layers",
                   ln_path_text(shown, f->c->config.path), name);
}

/* Decides the initial values of a weight. */
static ln_status decide(const filling *f, ln_convert_item *x, ln_error *err) {
    const ln_spec *s = &f->c->spec;
    const int flags = ln_slot_rows[x->w->slot].flags;
    x->initial = (ln_initial){.seed = f->seed, .stream = (uint32_t)f->c->n_items, .zero_row = -1};
    if (x->w->d1) {
        x->initial.deviation = f->deviation;
        if (flags & LN_WF_EMBED) x->initial.zero_row = f->padding;
        return LN_OK;
    }
    if (flags & LN_WF_NORM) {
        const bool plain = x->w->slot == LN_W_NORM && s->last_norm_plain;
        x->initial.constant = 1 - (plain ? 0 : s->norm_offset);
        return LN_OK;
    }
    return ln_ends_with(x->name, ".bias") ? LN_OK : no_rule(f, x->name, err);
}

/* Adds the tensor of a slot of layer l; that of several slots with the first of them. */
static ln_status add_tensor(const filling *f, int slot, int l, ln_error *err) {
    ln_convert *c = f->c;
    const ln_slot_row *row = &ln_slot_rows[slot];
    const ln_slot_name *own = ln_slot_name_of(&c->spec, slot);
    ln_weight *w = &c->others[c->n_others];
    ln_convert_item *x = &c->items[c->n_items];
    if (row->flags & (LN_WF_EXPERTS | LN_WF_CONV)) return no_rule(f, row->name, err);
    if (row->flags & LN_WF_OPTIONAL) return LN_OK;
    if (own && own->n_parts > 0 && own->parts[0] != (ln_slot)slot) return LN_OK;
    *w = (ln_weight){.slot = slot,
                     .layer = l,
                     .dtype = f->dtype,
                     .enc = ln_encoding_dense(f->dtype),
                     .d0 = ln_slot_size(&c->spec, row->shape[0], l)};
    if (row->shape[1]) w->d1 = ln_slot_size(&c->spec, row->shape[1], l);
    for (int i = 1; own && i < own->n_parts; i++)
        w->d0 += ln_slot_size(&c->spec, ln_slot_rows[own->parts[i]].shape[0], l);
    *x = (ln_convert_item){.w = w, .dtype = f->dtype, .computed = true};
    ln_convert_name(c, x);
    LN_TRY(decide(f, x, err));
    c->weights.n_parameters += (uint64_t)w->d0 * (uint64_t)LN_MAX(w->d1, 1);
    c->n_items++, c->n_others++;
    return LN_OK;
}

static ln_status add_tensors(const filling *f, uint64_t shard_bytes, ln_error *err) {
    ln_convert *c = f->c;
    const size_t most = (size_t)LN_W_COUNT * ((size_t)c->spec.L + 1);
    c->items = ln_zalloc(most, sizeof *c->items);
    c->others = ln_zalloc(most, sizeof *c->others);
    if (!c->items || !c->others) return LN_OOM(err, "the list of tensors");
    for (int l = -1; l < c->spec.L; l++)
        for (int k = 0; k < LN_W_COUNT; k++)
            if (ln_slot_wanted(&c->spec, k, l)) LN_TRY(add_tensor(f, k, l, err));
    ln_convert_lay_out(c, shard_bytes);
    return LN_OK;
}

static ln_status plan(ln_convert *c, const ln_init_options *opt, uint64_t shard_bytes, ln_error *err) {
    filling f = {.c = c, .seed = opt->seed, .padding = -1};
    LN_TRY(find_dtype(c, opt->dtype, &f.dtype, err));
    if (ln_config_has(&c->config, "initializer_range"))
        LN_TRY(ln_config_real(&c->config, "initializer_range", 0, 0, 1e3, &f.deviation, err));
    if (f.deviation == 0) f.deviation = 0.02; /* as in the reference */
    if (ln_config_has(&c->config, "pad_token_id"))
        LN_TRY(ln_config_int(&c->config, "pad_token_id", -1, -1, INT32_MAX, &f.padding, err));
    return add_tensors(&f, shard_bytes, err);
}

ln_status ln_convert_new(const char *config, const char *out, const ln_init_options *opt,
                         uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_convert_check_fn *check,
                         void *check_user, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    ln_out_dir dir = {0};
    ln_status st = LN_OK;
    const int n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), 256);
    if (!c) return LN_OOM(err, "a model");
    c->is_new = true;
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(open_config(c, config, opt->tokenizer, err));
    LN_GO(plan(c, opt, shard_bytes, err));
    LN_GO(ln_convert_check_out(c, out, err));
    LN_GO(ln_out_dir_open(&dir, out, opt->force, err));
    LN_GO(ln_convert_write(c, dir.tmp, n_threads, fn, user, err));
    LN_GO(check(check_user, dir.tmp, err));
    LN_GO(ln_out_dir_commit(&dir, err));
out:
    ln_out_dir_abort(&dir);
    ln_convert_close(c);
    ln_free(c);
    return st;
}
