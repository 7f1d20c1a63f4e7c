/* Adds a LoRA adapter to the weights of a model, which becomes a plain model: W + scale * B A; a bias b that
 * has one in the adapter becomes b + factor * (bias - b), or has scale * the bias of B added.
 *
 * The weight and the sum of B A are added in double, rounded to f32 and then once to the dtype of the result.
 * A dense result has the names and dtypes of the source, matrices of a quantised one in the dtype of their
 * scales; a quantised result is what quantising the dense one gives. Tensors that linnet does not use are
 * copied, into a quantised result they are not, as in mlx-lm. */
#include "convert.h"
#include "../base/thread_pool.h"
#include "../io/directory.h"
#include "../model/adapter_match.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void add_module(ln_convert_item *x, const ln_adapter_module *m, int64_t first_row) {
    x->first_rows[x->n_modules] = first_row;
    x->modules[x->n_modules++] = m;
}
/* Assigns a module of experts to the items of their weight: one, or those of each expert. */
static bool give_experts(ln_convert *c, const ln_weight *w, const ln_adapter_module *m) {
    bool given = false;
    for (size_t k = 0; k < c->n_items; k++) {
        ln_convert_item *x = &c->items[k];
        const bool one = x->w == w || (w->parts && x->w >= w->parts && x->w < w->parts + w->n_parts);
        if (x->raw) continue;
        if (x->halves[0] == w || x->halves[1] == w) add_module(x, m, x->halves[1] == w);
        else if (one) add_module(x, m, 0);
        else continue;
        given = true;
    }
    return given;
}
/* The module of the file that a part was made of. */
static const ln_adapter_module *whole_module(const ln_adapter_file *a, const ln_adapter_module *part) {
    size_t i = 0;
    while (strcmp(a->in_file[i].path, part->stored) != 0) i++;
    return &a->in_file[i];
}
/* Assigns a module to the item of a weight; false: the model has no such weight. */
static bool give(ln_convert *c, int slot, int layer, const ln_adapter_module *m) {
    const int i = layer < 0 ? c->weights.index_fixed[slot] : c->weights.index_layer[layer][slot];
    const ln_weight *w = i < 0 ? NULL : &c->weights.items[i];
    if (w && w->n_experts) return give_experts(c, w, m);
    for (size_t k = 0; w && k < c->n_items; k++) {
        ln_convert_item *x = &c->items[k];
        if (x->raw || x->w->tensor != w->tensor) continue;
        if (!m->pieces) add_module(x, m, w->row0);
        else if (x->n_modules == 0)
            add_module(x, whole_module(c->adapter, m), 0); /* its rows lie as the tensor's */
        return true;
    }
    return false;
}

/* Assigns the modules of the adapter to the items of their matrices. */
static ln_status assign(ln_convert *c, ln_error *err) {
    const ln_adapter_file *a = c->adapter;
    int *slots = ln_zalloc(2 * a->n + 1, sizeof *slots), *layers = slots ? slots + a->n : NULL;
    ln_status st = slots ? ln_adapter_match(a, &c->spec, slots, layers, err) : LN_OOM(err, "an adapter");
    if (st == LN_OK && a->n_unused)
        st = ln_fail(err, LN_EUNSUPPORTED,
                     "%s: %zu of %zu tensors are for a vision or audio tower, to which linnet adds nothing; "
                     "apply "
                     "the adapter instead of fusing it",
                     a->path, a->n_unused, a->tensors.n);
    for (size_t i = 0; st == LN_OK && i < a->n; i++) {
        const ln_adapter_module *m = &a->modules[i];
        const int bias = ln_adapter_bias_slot(slots[i]);
        if ((m->a || m->each) && !give(c, slots[i], layers[i], m))
            st = ln_fail(err, LN_EUNSUPPORTED,
                         "%s: module %s: the model stores these experts in a format to which nothing is "
                         "added; fuse with the dense model, or quantise while fusing",
                         a->path, m->path);
        if ((m->b_bias || m->bias) && (bias == LN_W_COUNT || !give(c, bias, layers[i], m)))
            st = ln_fail(err, LN_EUNSUPPORTED,
                         "%s: module %s: has a bias, and the model has none there to add it to; apply the "
                         "adapter "
                         "instead of fusing it",
                         a->path, m->path);
    }
    ln_free(slots);
    return st;
}

/* Which tensors of the source are parts of its weights. */
static void mark_used(const ln_convert *c, bool *used) {
    for (size_t i = 0; i < c->weights.n; i++) /* experts that are not dense are copied, too */
        for (int64_t k = 0; k < ln_weight_tensors(&c->weights.items[i]); k++) {
            const ln_weight *w = &c->weights.items[i];
            if (w->n_experts && !ln_encoding_is_dense(w->enc)) continue;
            const ln_tensor *t = ln_weight_tensor(&c->weights.items[i], k);
            if (t) used[t - c->tensors.items] = true;
        }
}

/* Whether a tensor that is not used is a head that the file has although it is the embedding. */
static bool is_head_copy(const ln_convert *c, const ln_tensor *t) {
    static const char name[] = "lm_head.weight";
    const size_t n = sizeof name - 1;
    return (c->spec.tied || c->unties) && t->name_bytes >= n &&
           memcmp(t->name + t->name_bytes - n, name, n) == 0;
}

/* Adds an item for each tensor that linnet does not use. A head that an adapter has made of its own replaces
 * the copy of a tied one. */
static void add_others(ln_convert *c, const bool *used) {
    char shown[80];
    const ln_tensor *first = NULL;
    for (size_t i = 0; i < c->tensors.n; i++) {
        const ln_tensor *t = &c->tensors.items[i];
        if (used[i] || ((c->drops_head || c->unties) && is_head_copy(c, t))) continue;
        if (!first && !strstr(t->name, "experts.")) first = t;
        ln_weight *w = &c->others[c->n_others++];
        *w = (ln_weight){.slot = LN_W_COUNT, .layer = INT32_MAX / 128, .tensor = t, .d0 = (int64_t)t->bytes};
        c->items[c->n_items++] = (ln_convert_item){.w = w, .raw = t, .same_name = true};
    }
    if (first)
        ln_log(LN_LOG_INFO, "%zu tensors that are no part of the text model are copied unchanged: %s%s",
               c->n_others, ln_excerpt(shown, first->name, first->name_bytes),
               c->n_others > 1 ? ", ..." : "");
}

/* Adds the items of dense experts: their tensors as they are in the source. */
static void add_experts(ln_convert *c, const ln_weight *w) {
    const uint8_t in = ln_source_experts_in(w);
    for (int64_t k = 0; in == LN_EXPERTS_EACH && k < w->n_parts; k++)
        c->items[c->n_items++] =
            (ln_convert_item){.w = &w->parts[k], .dtype = w->dtype, .same_name = true, .expert = k};
    if (in != LN_EXPERTS_EACH) ln_convert_add_joint(c, w, w->dtype, in);
}

ln_status ln_convert_decide_dense(ln_convert *c, uint64_t shard_bytes, ln_error *err) {
    bool *used = ln_zalloc(c->tensors.n + 1, sizeof *used);
    c->items = ln_zalloc(c->weights.n + c->tensors.n + 1, sizeof *c->items);
    c->others = ln_zalloc(c->tensors.n + 1, sizeof *c->others);
    if (!used || !c->items || !c->others) {
        ln_free(used);
        return LN_OOM(err, "the list of tensors");
    }
    for (size_t i = 0; i < c->weights.n; i++) {
        const ln_weight *w = ln_convert_stored(c, i);
        if (w && w->n_experts && ln_encoding_is_dense(w->enc)) add_experts(c, w);
        if (!w || w->n_experts) continue;
        ln_convert_item *x = &c->items[c->n_items++];
        *x = (ln_convert_item){.w = w, .dtype = w->dtype, .same_name = !(c->unties && w->slot == LN_W_HEAD)};
        if (!x->same_name) ln_convert_name(c, x);
    }
    mark_used(c, used);
    add_others(c, used);
    ln_free(used);
    ln_convert_lay_out(c, shard_bytes);
    return LN_OK;
}

static ln_status decide_all(ln_convert *c, const ln_fuse_options *opt, uint64_t shard_bytes, ln_error *err) {
    const ln_quantize_options q = {
        .size = sizeof(ln_quantize_options), .bits = opt->bits, .group = opt->group};
    if (opt->bits) { /* laid out before the modules are assigned, which changes no size */
        LN_TRY(ln_convert_decide(c, &q, shard_bytes, err));
        return assign(c, err);
    }
    LN_TRY(ln_convert_decide_dense(c, shard_bytes, err));
    return assign(c, err);
}

/* Applies what the adapter changes of the model's own tensors. */
static ln_status change_weights(ln_convert *c, ln_error *err) {
    const ln_adapted by = {c->adapter, c->scale};
    const bool tied = c->spec.tied;
    const int64_t V = c->spec.V;
    LN_TRY(ln_weights_change(&c->weights, &c->spec, &by, 1, err));
    c->unties = tied && !c->spec.tied;
    c->grows = c->spec.V != V;
    return LN_OK;
}

/* The tokenizer of an adapter with added tokens becomes that of the model. */
static ln_status write_tokenizer(const ln_convert *c, const char *to, ln_error *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    bool rows = c->grows;
    for (size_t i = 0; i < c->adapter->n_changes; i++) rows = rows || c->adapter->changes[i].rows;
    for (size_t i = 0; rows && i < LN_COUNT(names); i++) {
        char path[LN_PATH_MAX];
        bool there;
        LN_TRY(ln_path_join(path, c->adapter->path, names[i], err));
        LN_TRY(ln_look(path, &there, err));
        if (!there && i == 0) return LN_OK;
        LN_TRY(ln_path_join(path, to, names[i], err));
        if (unlink(path) != 0 && errno != ENOENT) return ln_cannot_reach(path, errno, err);
        if (there) LN_TRY(ln_convert_copy(c->adapter->path, to, names[i], err));
    }
    return LN_OK;
}

/* The template that the adapter was trained with becomes that of the model. */
static ln_status write_template(const ln_convert *c, const char *to, ln_error *err) {
    static const char name[] = "chat_template.jinja";
    char path[LN_PATH_MAX];
    bool found;
    LN_TRY(ln_adapter_template(c->adapter->path, path, &found, err));
    if (!found) return LN_OK;
    LN_TRY(ln_path_join(path, to, name, err));
    if (unlink(path) != 0 && errno != ENOENT) return ln_cannot_reach(path, errno, err);
    return ln_convert_copy(c->adapter->path, to, name, err);
}

ln_status ln_convert_fuse(const char *model, const char *adapter, const char *out, const ln_fuse_options *opt,
                          uint64_t shard_bytes, ln_quantized_fn *fn, void *user, int *n_modules,
                          ln_convert_check_fn *check, void *check_user, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    ln_out_dir dir = {0};
    ln_status st = LN_OK;
    const int n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), 256);
    if (!c) return LN_OOM(err, "a model");
    c->scale = opt->scale;
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(ln_convert_open(c, model, err));
    c->keeps_experts = !opt->bits;
    LN_GO(ln_convert_check_stored(c, false, err));
    LN_GO(ln_adapter_file_open(&c->adapter, adapter, err));
    *n_modules = (int)c->adapter->n;
    *n_modules += (int)(c->adapter->n_changes - c->adapter->n_copies);
    LN_GO(change_weights(c, err));
    LN_GO(ln_adapter_split(c->adapter, &c->spec, err));
    ln_adapter_warn_absent(c->adapter);
    LN_GO(decide_all(c, opt, shard_bytes, err));
    LN_GO(ln_convert_check_out(c, out, err));
    LN_GO(ln_out_dir_open(&dir, out, opt->force, err));
    LN_GO(ln_convert_write(c, dir.tmp, n_threads, fn, user, err));
    LN_GO(write_tokenizer(c, dir.tmp, err));
    LN_GO(write_template(c, dir.tmp, err));
    if (check) LN_GO(check(check_user, dir.tmp, err));
    LN_GO(ln_out_dir_commit(&dir, err));
out:
    ln_out_dir_abort(&dir);
    ln_convert_close(c);
    ln_free(c);
    return st;
}
