/* The tensors that store one item of a converted model: names, shapes, bytes, and their place in the shards.
 *
 * Both drivers (quantize.c, fuse.c) and both writers (copy_config.c, write_tensors.c) use these functions;
 * this file uses none of them. */
#include "convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ln_st_dtype st_dtypes[] = {[LN_F32] = LN_ST_F32, [LN_BF16] = LN_ST_BF16, [LN_F16] = LN_ST_F16};

ln_tensor_spec ln_convert_part(const ln_convert_item *x, int k, char name[224]) {
    static const char *const leaves[] = {"", ".scales", ".biases"};
    ln_tensor_spec s = {
        .name = name, .dtype = st_dtypes[x->dtype], .n_dims = x->w->d1 ? 2 : 1, .dims = {x->w->d0, x->w->d1}};
    if (!x->w->d1 && x->w->tensor && x->w->tensor->n_dims == 0) s.n_dims = 0; /* a number */
    if (x->w->taps) { /* the kernel of a convolution */
        s.n_dims = x->w->tensor->n_dims;
        memcpy(s.dims, x->w->tensor->dims, sizeof s.dims);
    }
    (void)snprintf(name, 224, "%.*s%s", (int)(k ? x->path_bytes : strlen(x->name)), x->name, leaves[k]);
    if (x->same_name) s.name = x->w->tensor->name;
    /* a convolution keeps its axes, by which readers know whether norms are stored as w - 1 */
    const ln_tensor *as = x->raw ? x->raw : x->w->taps ? x->w->tensor : NULL;
    if (as) {
        s.n_dims = as->n_dims;
        memcpy(s.dims, as->dims, sizeof s.dims);
    }
    if (x->raw) s.dtype = x->raw->dtype;
    if (x->w->n_experts) { /* a matrix or a vector of each */
        s.n_dims++;
        s.dims[0] = x->w->n_experts, s.dims[1] = x->w->d0 / x->w->n_experts, s.dims[2] = x->w->d1;
        if (x->in & LN_EXPERTS_OUT_LAST) s.dims[2] = s.dims[1], s.dims[1] = x->w->d1;
    }
    if (!x->code.bits) return s;
    s.dims[s.n_dims - 1] = k ? x->w->d1 / x->code.group : x->w->d1 / 32 * x->code.bits;
    s.dtype = k == 0 ? LN_ST_U32 : x->mxfp4 ? LN_ST_U8 : s.dtype;
    return s;
}

uint64_t ln_convert_part_bytes(const ln_convert_item *x, int k) {
    char name[224];
    if (x->raw) return x->raw->bytes;
    ln_tensor_spec s = ln_convert_part(x, k, name);
    uint64_t n = s.dtype == LN_ST_F32 || s.dtype == LN_ST_U32 ? 4 : s.dtype == LN_ST_U8 ? 1 : 2;
    for (int d = 0; d < s.n_dims; d++) n *= (uint64_t)s.dims[d];
    return n;
}

/* The weight whose rows follow those of a weight of experts in a tensor that has both. */
static const ln_weight *second_half(const ln_convert *c, const ln_weight *w) {
    const int slot = w->slot == LN_W_X_GATE ? LN_W_X_UP : LN_W_X_UP_BIAS;
    return &c->weights.items[c->weights.index_layer[w->layer][slot]];
}
void ln_convert_add_joint(ln_convert *c, const ln_weight *w, ln_dtype dtype, uint8_t in) {
    const int kind = in & (LN_EXPERTS_OUT_LAST - 1);
    if (kind == LN_EXPERTS_SECOND || kind == LN_EXPERTS_ODD) return;
    ln_convert_item *x = &c->items[c->n_items++];
    *x = (ln_convert_item){.w = w, .dtype = dtype, .in = in, .same_name = true};
    if (kind == LN_EXPERTS_STACKED) return;
    ln_weight *both = &c->shared[c->n_shared++];
    *both = *w;
    both->d0 *= 2;
    x->w = both, x->halves[0] = w, x->halves[1] = second_half(c, w);
}

void ln_convert_shard_name(const ln_convert *c, int shard, char out[64]) {
    if (c->n_shards > 1)
        (void)snprintf(out, 64, "model-%s%05d-of-%05d.safetensors", c->other_names ? "b-" : "", shard + 1,
                       c->n_shards);
    else (void)snprintf(out, 64, "model.safetensors");
}

/* Sort key for mlx-lm's order of modules, which determines the shard of a tensor: embedding table, layers,
 * last norm, head. */
static int64_t place_of(const ln_weight *w) {
    static const ln_slot in_layer[] = {LN_W_Q,         LN_W_Q_BIAS,    LN_W_K,        LN_W_K_BIAS,
                                       LN_W_V,         LN_W_V_BIAS,    LN_W_O,        LN_W_O_BIAS,
                                       LN_W_Q_NORM,    LN_W_K_NORM,    LN_W_GATE,     LN_W_GATE_BIAS,
                                       LN_W_DOWN,      LN_W_DOWN_BIAS, LN_W_UP,       LN_W_UP_BIAS,
                                       LN_W_ATTN_NORM, LN_W_ATTN_POST, LN_W_FFN_NORM, LN_W_FFN_POST};
    if (w->slot == LN_W_EMBED) return -1;
    if (w->layer < 0) return INT64_MAX - (w->slot == LN_W_NORM);
    for (size_t i = 0; i < LN_COUNT(in_layer); i++)
        if ((int)in_layer[i] == w->slot) return w->layer * 64 + (int64_t)i;
    return w->layer * 64 + 63;
}
static int by_place(const void *a, const void *b) {
    int64_t x = place_of(((const ln_convert_item *)a)->w), y = place_of(((const ln_convert_item *)b)->w);
    if (x != y) return x < y ? -1 : 1;
    const ln_weight *v = ((const ln_convert_item *)a)->w, *w = ((const ln_convert_item *)b)->w;
    return (v > w) - (v < w); /* copied tensors, which have one key: in the order of their list */
}

void ln_convert_lay_out(ln_convert *c, uint64_t shard_bytes) {
    uint64_t at = 0;
    qsort(c->items, c->n_items, sizeof *c->items, by_place);
    for (size_t i = 0; i < c->n_items; i++) {
        ln_convert_item *x = &c->items[i];
        for (int k = 0; k < ln_convert_parts(x); k++) {
            uint64_t n = ln_convert_part_bytes(x, k);
            if (c->n_shards == 0 || at + n > shard_bytes) c->n_shards++, at = 0;
            x->shard[k] = c->n_shards - 1;
            x->at[k] = at;
            at += n;
            x->bytes += n;
        }
        c->bytes += x->bytes;
    }
}
