/* Quantises a checkpoint into a new directory: first everything is planned, then the tensors are streamed.
 *
 * Names, shapes and offsets of all tensors follow from the configuration, so that the headers are written
 * before any element is read. Then the tensors are processed one after the other (write_tensors.c). The
 * directory gets its final name when it is complete. */
#include "../base/thread_pool.h"
#include "../model/weight_slots.h"
#include "convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The dtype to which mlx-lm casts: torch_dtype, else the text model's dtype. False: tensors keep their
 * dtype. */
static bool cast_dtype(const ln_config *c, ln_dtype *out) {
    static const char *const names[] = {[LN_F32] = "float32", [LN_BF16] = "bfloat16", [LN_F16] = "float16"};
    const json_t *v = json_object_get(c->root, "torch_dtype");
    if (!v || json_is_null(v)) v = json_object_get(json_object_get(c->root, "text_config"), "dtype");
    for (int t = 0; json_is_string(v) && t < (int)LN_COUNT(names); t++)
        if (strcmp(json_string_value(v), names[t]) == 0) {
            *out = (ln_dtype)t;
            return true;
        }
    return false;
}

/* Whether `name` is the module path or a run of whole components of it. */
static bool names_module(const char *name, const char *path, size_t path_bytes) {
    size_t n = strlen(name);
    for (size_t i = 0; n && i + n <= path_bytes; i++)
        if (memcmp(path + i, name, n) == 0 && (i == 0 || path[i - 1] == '.') &&
            (i + n == path_bytes || path[i + n] == '.'))
            return true;
    return false;
}

/* Whether an override names a weight: a tied table is the head, too, and all experts are `experts`. */
static bool is_named(const ln_convert *c, const ln_convert_item *x, const char *name) {
    if (c->spec.tied && x->w->slot == LN_W_EMBED && strcmp(name, "lm_head") == 0) return true;
    if (x->w->n_experts && strcmp(name, "experts") == 0) return true;
    return names_module(name, x->name, x->path_bytes);
}
/* Decides the encoding of one weight; the last matching entry of opt->overrides applies. Marks the matching
 * entries in used[opt->n_overrides]. */
static void decide(const ln_convert *c, ln_convert_item *x, const ln_quantize_options *opt, bool *used) {
    if (!x->w->d1) return;
    if (!ln_weight_stays_dense(x->w)) x->code = c->code;
    x->mxfp4 = ln_source_is_mxfp4(x->w);
    for (size_t i = 0; i < opt->n_overrides; i++) {
        if (!is_named(c, x, opt->overrides[i].name)) continue;
        used[i] = true, x->mxfp4 = false;
        x->code.bits = opt->overrides[i].bits == 16 ? 0 : opt->overrides[i].bits;
    }
    if (!x->code.bits || x->w->d1 % c->code.group != 0) x->code = (ln_groups){0, 0};
    if (x->mxfp4) x->code = (ln_groups){4, 32};
    x->entry = x->mxfp4 || (x->code.bits && x->code.bits != c->code.bits);
}

void ln_convert_name(const ln_convert *c, ln_convert_item *x) {
    const char *outer = c->config.text != c->config.root ? "language_model." : "";
    char slot[160];
    const ln_slot which = (ln_slot)x->w->slot;
    ln_weight_name(slot, &c->spec, which, x->w->layer);
    uint8_t in;
    if (x->in) (void)ln_joint_name(slot, &c->spec, which, x->w->layer, &in);
    else if (x->w->n_experts) ln_stacked_name(slot, &c->spec, which, x->w->layer);
    else if (strstr(slot, "{x}"))
        (void)ln_expert_name(slot, &c->spec, which, x->w->layer, x->w->row0 / x->w->d0);
    (void)snprintf(x->name, sizeof x->name, "%s%s%s", outer, x->w->slot == LN_W_HEAD ? "" : "model.", slot);
    x->path_bytes = (size_t)(strrchr(x->name, '.') - x->name);
}

int64_t ln_convert_tensors(const ln_convert *c, const ln_weight *w) {
    return w->n_experts && !c->code.bits ? w->n_experts : 1;
}
/* Tensors that may be written: one for each weight, or for each of its experts. */
static size_t count_stored(const ln_convert *c) {
    size_t n = 1;
    for (size_t i = 0; i < c->weights.n; i++) n += (size_t)LN_MAX(1, c->weights.items[i].n_experts);
    return n;
}
const ln_weight *ln_convert_tensor(ln_convert *c, const ln_weight *w, int64_t k) {
    if (!w->n_experts || c->code.bits) return w;
    ln_weight *one = &c->shared[c->n_shared++];
    *one = *w;
    one->d0 /= w->n_experts, one->n_experts = 0;
    one->row0 = k * one->d0;
    return one;
}

ln_status ln_convert_decide(ln_convert *c, const ln_quantize_options *opt, uint64_t shard_bytes,
                            ln_error *err) {
    ln_dtype cast = LN_BF16;
    bool casts = cast_dtype(&c->config, &cast), any = false;
    bool *used = ln_zalloc(opt->n_overrides + 1, sizeof *used);
    char shown[80];
    ln_status st = LN_OK;
    c->code = (ln_groups){opt->bits ? opt->bits : 4, opt->group ? opt->group : 64};
    c->items = ln_zalloc(c->weights.n + 1, sizeof *c->items);
    if (!used || !c->items) LN_GO(LN_OOM(err, "the list of tensors"));
    for (size_t i = 0; i < c->weights.n; i++) {
        const ln_weight *w = ln_convert_stored(c, i);
        const int64_t n = w ? ln_convert_tensors(c, w) : 0;
        for (int64_t k = 0; k < n; k++) {
            ln_convert_item *x = &c->items[c->n_items++];
            x->w = ln_convert_tensor(c, w, k);
            x->dtype = c->config.of_gguf ? c->dtype : casts ? cast : x->w->dtype;
            ln_convert_name(c, x);
            decide(c, x, opt, used);
            any |= x->code.bits != 0;
        }
    }
    for (size_t i = 0; i < opt->n_overrides; i++)
        if (!used[i])
            LN_GO(ln_fail(err, LN_EUSAGE,
                          "ln_quantize_options.overrides %s: no matrix of this model is called so; a name is "
                          "a "
                          "module's path or a part of it, such as lm_head or down_proj",
                          ln_excerpt(shown, opt->overrides[i].name, strnlen(opt->overrides[i].name, 200))));
    if (!any)
        LN_GO(ln_fail(err, LN_EUNSUPPORTED,
                      "nothing to quantise: no matrix that is not kept has whole groups of %d columns; try "
                      "ln_quantize_options.group 32",
                      c->code.group));
    ln_convert_lay_out(c, shard_bytes);
out:
    ln_free(used);
    return st;
}

const ln_weight *ln_convert_stored(ln_convert *c, size_t i) {
    const ln_weight *w = &c->weights.items[i];
    if (ln_source_is_in_pieces(w)) /* the tensor, once */
        return ln_slot_name_of(&c->spec, w->slot)->parts[0] == (ln_slot)w->slot ? w->parts : NULL;
    if (!w->whole) return w;
    if (w->row0 > 0) return NULL;
    ln_weight *all = &c->shared[c->n_shared++];
    *all = *w;
    all->d0 = w->whole, all->whole = 0;
    return all;
}

/* Whether quantize or fuse reads a weight: it is dense, or in the named formats of published models. */
static bool is_read(const ln_weight *w, bool takes_fp8) {
    if (ln_source_is_in_pieces(w)) w = w->parts;
    const bool dense = w->n_experts ? ln_encoding_is_dense(w->enc) : !w->made;
    return dense || (takes_fp8 && (ln_source_is_fp8(w) || ln_source_is_mxfp4(w)));
}

ln_status ln_convert_check_stored(const ln_convert *c, bool takes_fp8, ln_error *err) {
    char shown[LN_PATH_TEXT];
    for (size_t i = 0; i < c->weights.n; i++) {
        const ln_weight *w = &c->weights.items[i];
        if (w->made && c->config.of_gguf)
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: a GGUF file, to which no adapter is added; ln_convert_model makes a "
                           "directory of it",
                           ln_path_text(shown, c->from));
        const bool kept = w->n_experts && c->keeps_experts &&
                          (!c->spec.quant.scheme || ln_source_is_mxfp4(w)); /* copied as they are */
        if (is_read(w, takes_fp8) || kept) continue;
        if (!w->made) continue; /* MLX's affine groups */
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: tensor %s is stored as %s; quantize reads dense weights, fp8 and experts in "
                       "mxfp4, fuse dense weights "
                       "and MLX's affine groups; use the model in bf16 that it was made from",
                       ln_path_text(shown, c->from), w->tensor->name, ln_quant_method(&c->spec.quant));
    }
    return LN_OK;
}

ln_status ln_convert_open(ln_convert *c, const char *model, ln_error *err) {
    LN_TRY(ln_find_model(model, c->from, sizeof c->from, err));
    LN_TRY(ln_config_open(&c->config, c->from, err));
    LN_TRY(ln_spec_open(&c->spec, &c->config, err));
    LN_TRY(ln_tensors_open(&c->tensors, c->from, false, err));
    c->tied_there = c->spec.tied;
    LN_TRY(ln_weights_bind(&c->weights, &c->spec, &c->tensors, err));
    c->shared = ln_zalloc(c->weights.n + count_stored(c), sizeof *c->shared);
    if (!c->shared) return LN_OOM(err, "the list of tensors");
    return LN_OK;
}

static ln_status check_dense(const ln_convert *c, ln_error *err) {
    char shown[LN_PATH_TEXT];
    if (!ln_weights_are_quantised(&c->weights)) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: is quantised already, to %d bits; quantise the dense model that it was made from",
                   ln_path_text(shown, c->from), c->weights.code.bits);
}

void ln_convert_close(ln_convert *c) {
    ln_weights_close(&c->weights);
    ln_tensors_close(&c->tensors);
    ln_spec_close(&c->spec);
    ln_config_close(&c->config);
    ln_adapter_file_close(&c->adapter);
    ln_free(c->shared);
    ln_free(c->others);
    ln_free(c->items);
}

/* LN_EUSAGE if the output directory is the source model or contains it. */
ln_status ln_convert_check_out(const ln_convert *c, const char *out, ln_error *err) {
    char *to = realpath(out, NULL), *from = realpath(c->from, NULL), shown[LN_PATH_TEXT];
    size_t n = to ? strlen(to) : 0;
    bool inside = to && from && strncmp(from, to, n) == 0 && (from[n] == '\0' || from[n] == '/');
    free(to);
    free(from);
    return inside ? ln_fail(err, LN_EUSAGE,
                            "%s: the output directory holds the model that is read; name another directory",
                            ln_path_text(shown, out))
                  : LN_OK;
}

ln_status ln_convert_quantize(const char *model, const char *out, const ln_quantize_options *opt,
                              uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    ln_status st = LN_OK;
    int n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), 256);
    if (!c) return LN_OOM(err, "a model");
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(ln_convert_open(c, model, err));
    if (!c->config.of_gguf) LN_GO(ln_convert_check_stored(c, true, err));
    if (!c->config.of_gguf) LN_GO(check_dense(c, err));
    c->dtype = LN_BF16; /* of a GGUF file */
    LN_GO(ln_convert_decide(c, opt, shard_bytes, err));
    if (c->config.of_gguf) ln_convert_compute(c);
    LN_GO(ln_convert_save(c, out, opt->force, n_threads, fn, user, err));
out:
    ln_convert_close(c);
    ln_free(c);
    return st;
}
