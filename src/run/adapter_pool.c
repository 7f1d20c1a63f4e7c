/* The pool of adapters of a run: where the part of each matrix is in a slot, and what is written there.
 * ln_p_lora (graph/program.h) describes a part. The pool exists where ln_run_options.n_adapters is positive;
 * all its slots are empty at first, and then rows that name them have the bits of rows without an adapter. */
#include "run.h"

#include "../model/weight_slots.h"

static bool takes_adapters(const ln_run_options *o, const ln_weight *w) {
    if (w->n_experts) return o->adapter_experts && w->d1 > 0;
    return (ln_slot_rows[w->slot].flags & LN_WF_LORA) && w->slot != LN_W_HEAD && w->d1 > 0;
}

ln_status ln_run_make_adapters(ln_run *r, ln_error *err) {
    const ln_run_options *o = &r->opt;
    int64_t at = 0, bytes = 0;
    if (o->n_adapters == 0) return LN_OK;
    if (o->adapter_experts && !(r->info.can & LN_CAN_EXPERT_ADAPTERS))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "device %s has no kernels for LoRA on experts; use ln_options.device = LN_DEVICE_CPU",
                       r->info.name);
    r->lora = ln_arena_alloc(&r->arena, (r->weights->n + 1) * sizeof *r->lora);
    if (!r->lora) return LN_OOM(err, "the layout of adapters");
    for (size_t i = 0; i < r->weights->n; i++) {
        const ln_weight *w = &r->weights->items[i];
        r->lora[i] = (ln_p_lora){0};
        if (!takes_adapters(o, w)) continue;
        r->lora[i] = (ln_p_lora){.at = at,
                                 .n_slots = o->n_adapters,
                                 .max_rank = o->adapter_rank,
                                 .n_in = w->d1,
                                 .n_out = w->n_experts ? w->d0 / w->n_experts : w->d0,
                                 .n_experts = (int)w->n_experts,
                                 .dtype = o->numerics == LN_FAST ? LN_BF16 : LN_F32};
        at += ln_lora_bytes_of(&r->lora[i]);
    }
    if (__builtin_mul_overflow(at, (int64_t)o->n_adapters, &bytes))
        return ln_fail(err, LN_EUSAGE,
                       "%d adapters of rank %d (ln_options.n_adapters, adapter_rank) do not fit in 64 bits",
                       o->n_adapters, o->adapter_rank);
    for (size_t i = 0; i < r->weights->n; i++)
        if (r->lora[i].max_rank > 0) r->lora[i].slot_bytes = at;
    r->sizes.adapter_bytes = (uint64_t)bytes;
    return LN_OK;
}

bool ln_run_adapts(const ln_run *r, size_t weight) { return r->lora && r->lora[weight].slot_bytes > 0; }

ln_status ln_run_write_adapters(ln_run *r, int64_t at, const void *from, size_t bytes, ln_error *err) {
    const ln_order order = {.what = LN_ORDER_ADAPTER, .id = r->id, .a = at, .bytes = bytes};
    char *to = (char *)r->states[LN_STATE_ADAPTERS] + at;
    LN_TRY(ln_ranks_order(r->opt.led, &order, from, err));
    const ln_status st = r->ops->copy(r->queue, to, from, bytes, LN_COPY_IN, err);
    ln_ranks_done(r->opt.led);
    return st;
}

static ln_status put(ln_run *r, const ln_p_lora *p, int slot, int64_t offset, const void *from, size_t bytes,
                     ln_error *err) {
    return bytes ? ln_run_write_adapters(r, slot * p->slot_bytes + p->at + offset, from, bytes, err) : LN_OK;
}

/* Writes n elements in the pool's type. */
static ln_status put_values(ln_run *r, const ln_p_lora *p, int slot, int64_t offset, const float *from,
                            int64_t n, ln_error *err) {
    const size_t bytes = (size_t)(n * ln_dtype_bytes(p->dtype));
    if (p->dtype == LN_F32 || n == 0) return put(r, p, slot, offset, from, bytes, err);
    void *copy = ln_alloc(bytes);
    if (!copy) return LN_OOM(err, "an adapter");
    for (int64_t i = 0; i < n; i++) ln_num_store(copy, p->dtype, i, from[i]);
    const ln_status st = put(r, p, slot, offset, copy, bytes, err);
    ln_free(copy);
    return st;
}

ln_status ln_run_set_adapter(ln_run *r, int slot, size_t weight, int64_t expert, const ln_lora_matrix *m,
                             ln_error *err) {
    ln_p_lora one = r->lora[weight];
    const ln_p_lora *p = &one;
    const ln_lora_part o = ln_lora_part_of(p);
    one.at += expert * o.bytes;
    const int32_t head[2] = {(int32_t)m->rank,
                             (m->bias ? LN_LORA_HAS_BIAS : 0) | (m->gain ? LN_LORA_HAS_GAIN : 0)};
    if (!ln_run_adapts(r, weight) || slot < 0 || slot >= p->n_slots || m->rank > p->max_rank || expert < 0 ||
        expert >= LN_MAX(1, p->n_experts))
        return ln_fail(err, LN_EINTERNAL, "an adapter of rank %lld in slot %d of %d, of rank %d",
                       (long long)m->rank, slot, r->opt.n_adapters, r->opt.adapter_rank);
    LN_TRY(put(r, p, slot, o.scale, m->scale, (size_t)m->rank * sizeof(float), err));
    if (m->bias) LN_TRY(put(r, p, slot, o.bias, m->bias, (size_t)p->n_out * sizeof(float), err));
    if (m->gain) LN_TRY(put(r, p, slot, o.gain, m->gain, (size_t)p->n_out * sizeof(float), err));
    LN_TRY(put_values(r, p, slot, o.a, m->a, m->rank * p->n_in, err));
    LN_TRY(put_values(r, p, slot, o.b, m->b, m->rank * p->n_out, err));
    return put(r, p, slot, 0, head, sizeof head, err);
}
