/* The ops of the forward pass (graph/ops.def) as MLX's. Each function returns the array of output 0 of a
 * node, [R, C]; sums are in f32, and values in format bf16 are arrays of bf16. */
#include "mlx_device.h"

extern "C" {
#include "../../base/elementary.h"
}

#include <cmath>
#include <cstring>

using mx::array;

static array weight_dense(const ln_exec *e, const ln_pnode *n, int k) { return *e->weights[n->in[k]]->dense; }

/* ---- products ---- */

/* The product of two arrays of bf16, whose sums in f32 MLX rounds to bf16 (decision 066). What rounding took is
 * the product minus the rounded one, in one operation. */
static array product_bf16(const array &x, const array &w) {
    const array columns = mx::transpose(w), rounded = mx::matmul(x, columns);
    return mx::add(mlx_f32(rounded), mlx_f32(mx::addmm(mx::negative(rounded), x, columns)));
}

/* x w^T. Weights that are not multiplied as they are become f32 for this step. */
static array product(const ln_exec *e, const ln_pnode *n) {
    const array &x = mlx_input(e, n, 0);
    const mlx_weight &w = *e->weights[n->in[1]];
    if (mlx_multiplies_bf16(e->program, n)) return product_bf16(x, *w.dense);
    if (w.dense) return mx::matmul(mlx_f32(x), mx::transpose(mlx_f32(*w.dense)));
    return mx::quantized_matmul(mlx_f32(x), *w.codes, mlx_f32(*w.scales), mlx_f32(*w.biases), true, w.group,
                                w.bits);
}

static array build_linear(const ln_exec *e, const ln_pnode *n) {
    const array y = product(e, n);
    return n->n_in > 2 ? mx::add(y, mlx_f32(weight_dense(e, n, 2))) : y;
}

static array build_embed(const ln_exec *e, const ln_pnode *n) {
    const mlx_weight &w = *e->weights[n->in[0]];
    const array ids(e->step.ids, {e->step.T}, mx::int32);
    array y = w.dense ? mlx_f32(mx::take(*w.dense, ids, 0))
                      : mx::dequantize(mx::take(*w.codes, ids, 0), mlx_f32(mx::take(*w.scales, ids, 0)),
                                       mlx_f32(mx::take(*w.biases, ids, 0)), w.group, w.bits);
    return n->p.embed.scale == 1 ? y : mx::multiply(y, array(n->p.embed.scale));
}

/* ---- rows ---- */

static array build_rmsnorm(const ln_exec *e, const ln_pnode *n) {
    const ln_p_norm *p = &n->p.norm;
    const array x = mlx_f32(mlx_input(e, n, 0));
    const int C = n->n_in > 1 ? (int)mlx_operand(e, n, 1)->dims[0] : (int)p->width;
    std::optional<array> w;
    if (n->n_in > 1) w = mlx_f32(weight_dense(e, n, 1));
    if (w && p->offset != 0) w = mx::add(*w, array(p->offset));
    return mx::reshape(mx::fast::rms_norm(mx::reshape(x, {-1, C}), w, p->eps), x.shape());
}

static array gelu_tanh(const array &a) {
    const array inner = mx::multiply(array(0.7978845608028654f),
                                     mx::add(a, mx::multiply(array(0.044715f), mx::power(a, array(3)))));
    return mx::multiply(mx::multiply(a, array(0.5f)), mx::add(array(1.0f), mx::tanh(inner)));
}

static array activation(ln_act act, const array &a) {
    if (act == LN_ACT_GELU_TANH) return gelu_tanh(a);
    if (act == LN_ACT_RELU2) return mx::square(mx::maximum(a, array(0.0f)));
    return mx::multiply(a, mx::sigmoid(a));
}

static array build_slice(const ln_exec *e, const ln_pnode *n) {
    const ln_p_slice *p = &n->p.slice;
    const array &x = mlx_input(e, n, 0);
    const int R = x.shape(0), C = x.shape(1), at = (int)p->at, cols = (int)p->cols;
    if (!p->every) return mx::slice(x, {0, at}, {R, at + cols});
    const int groups = C / (int)p->every;
    return mx::reshape(mx::slice(mx::reshape(x, {R, groups, (int)p->every}), {0, 0, at},
                                 {R, groups, at + cols}),
                       {R, groups * cols});
}

/* ---- positions ---- */

/* Frequencies for a text of n tokens (docs/rope.md). */
static void dynamic_freqs(const ln_ntk *ntk, int64_t n, int n_freqs, float *freqs) {
    const double width = 2.0 * n_freqs;
    const float grown = (float)ntk->factor * (float)n / (float)ntk->positions - (float)(ntk->factor - 1);
    const float base = (float)ntk->theta * ln_powf(grown, (float)(width / (width - 2)));
    for (int i = 0; i < n_freqs; i++) freqs[i] = 1.0f / ln_powf(base, (float)(2 * i) / (float)width);
}

static array build_rope_table(const ln_exec *e, const ln_pnode *n) {
    const ln_p_freqs *p = &n->p.freqs;
    const mlx_step *s = &e->step;
    std::vector<float> table((size_t)s->T * 2 * (size_t)p->n), grown((size_t)p->n);
    for (int32_t t = 0; t < s->T; t++) {
        const float *freqs = p->freqs;
        if (p->ntk.positions) {
            const int64_t length = LN_MAX((int64_t)s->pos[t] + 1, (int64_t)s->n_prompt[s->seq[t]]);
            if (length > p->ntk.positions && !p->beyond) dynamic_freqs(&p->ntk, length, p->n, grown.data());
            if (length > p->ntk.positions) freqs = p->beyond ? p->beyond : grown.data();
        }
        float *y = table.data() + (size_t)t * 2 * (size_t)p->n;
        for (int i = 0; i < p->n; i++) {
            double sine, cosine;
            ln_sincos64((double)((float)s->pos[t] * freqs[i]), &sine, &cosine);
            y[i] = (float)cosine * p->scale, y[i + p->n] = (float)sine * p->scale;
        }
    }
    return array(table.data(), {s->T, 2 * p->n}, mx::float32);
}

static array build_rope(const ln_exec *e, const ln_pnode *n) {
    const ln_p_heads *p = &n->p.heads;
    const array &table = mlx_input(e, n, 1);
    const int T = table.shape(0), half = table.shape(1) / 2, H = p->n_heads, E = p->head_dim;
    const array x = mx::reshape(mlx_f32(mlx_input(e, n, 0)), {T, H, E});
    const array c = mx::reshape(mx::slice(table, {0, 0}, {T, half}), {T, 1, half});
    const array s = mx::reshape(mx::slice(table, {0, half}, {T, 2 * half}), {T, 1, half});
    const int step = p->interleaved ? 2 : 1, second = p->interleaved ? 1 : half;
    const array a = mx::slice(x, {0, 0, 0}, {T, H, p->interleaved ? 2 * half : half}, {1, 1, step});
    const array b = mx::slice(x, {0, 0, second}, {T, H, 2 * half}, {1, 1, step});
    const array first = mx::subtract(mx::multiply(a, c), mx::multiply(b, s));
    const array other = mx::add(mx::multiply(b, c), mx::multiply(a, s));
    array turned = p->interleaved ? mx::reshape(mx::stack({first, other}, -1), {T, H, 2 * half})
                                  : mx::concatenate({first, other}, -1);
    if (E > 2 * half) turned = mx::concatenate({turned, mx::slice(x, {0, 0, 2 * half}, {T, H, E})}, -1);
    return mx::reshape(turned, {T, H * E});
}

static array build_pos_scale(const ln_exec *e, const ln_pnode *n) {
    const ln_p_pos_scale *p = &n->p.pos_scale;
    std::vector<float> y((size_t)e->step.T);
    for (int32_t t = 0; t < e->step.T; t++)
        y[(size_t)t] = 1 + p->factor * std::log((float)(1 + (int64_t)e->step.pos[t] / p->positions));
    return array(y.data(), {e->step.T, 1}, mx::float32);
}

/* ---- adapters ---- */

/* The adapter slots that rows of a node have, and their number of rows. */
static std::vector<int32_t> slots_of(const ln_exec *e, const ln_p_lora *p) {
    const mlx_step *s = &e->step;
    std::vector<int32_t> slots;
    for (int32_t i = 0, n = p->of_outputs ? s->N : s->T; i < n; i++)
        slots.push_back(s->adapter[p->of_outputs ? s->out_rows[i] : i]);
    return slots;
}

/* A part of the pool that an adapter uses for a matrix. */
struct adapter {
    int32_t rank, has; /* LN_LORA_HAS_* */
    const char *at;
    ln_lora_part part;
};
static adapter adapter_of(const ln_pvalue *pool, const ln_p_lora *p, int32_t slot) {
    adapter a = {};
    a.part = ln_lora_part_of(p);
    a.at = (const char *)pool->data + slot * p->slot_bytes + p->at;
    memcpy(&a.rank, a.at, 4);
    memcpy(&a.has, a.at + 4, 4);
    return a;
}

/* Calls fn for each adapter that changes the matrix, with a mask [R, 1] of its rows. */
template <typename F>
static void each_adapter(const ln_exec *e, const ln_pvalue *pool, const ln_p_lora *p, F fn) {
    const std::vector<int32_t> slots = slots_of(e, p);
    for (int32_t slot = 0; slot < p->n_slots; slot++) {
        std::vector<uint8_t> own;
        bool any = false;
        for (int32_t s : slots) own.push_back(s == slot), any = any || s == slot;
        if (!any) continue;
        const adapter a = adapter_of(pool, p, slot);
        if (a.rank || a.has)
            fn(a, mx::astype(array(own.data(), {(int)own.size(), 1}, mx::uint8), mx::bool_));
    }
}

static array build_lora_down(const ln_exec *e, const ln_pnode *n) {
    const ln_p_lora *p = &n->p.lora;
    const ln_dev *d = e->queue->dev;
    const array x = mlx_f32(mlx_input(e, n, 0));
    array t = mx::zeros({x.shape(0), p->max_rank}, mx::float32);
    each_adapter(e, mlx_operand(e, n, 1), p, [&](const adapter &a, const array &rows) {
        if (!a.rank) return;
        const array A = mlx_view(d, a.at + a.part.a, {a.rank, (int)p->n_in}, mlx_dtype(p->dtype));
        const array scale = mlx_view(d, a.at + a.part.scale, {1, a.rank}, mx::float32);
        array own = mx::multiply(mx::matmul(x, mx::transpose(mlx_f32(A))), scale);
        if (a.rank < p->max_rank) own = mx::pad(own, {{0, 0}, {0, p->max_rank - a.rank}});
        t = mx::where(rows, own, t);
    });
    return t;
}

static array build_lora_up(const ln_exec *e, const ln_pnode *n) {
    const ln_p_lora *p = &n->p.lora;
    const ln_dev *d = e->queue->dev;
    array y = mlx_f32(mlx_input(e, n, 0));
    const array t = mlx_input(e, n, 1);
    each_adapter(e, mlx_operand(e, n, 2), p, [&](const adapter &a, const array &rows) {
        array own = y;
        if (a.rank) {
            const array B = mlx_view(d, a.at + a.part.b, {a.rank, (int)p->n_out}, mlx_dtype(p->dtype));
            own = mx::add(own, mx::matmul(mx::slice(t, {0, 0}, {t.shape(0), a.rank}), mlx_f32(B)));
        }
        if (a.has & LN_LORA_HAS_BIAS)
            own = mx::add(own, mlx_view(d, a.at + a.part.bias, {1, (int)p->n_out}, mx::float32));
        if (a.has & LN_LORA_HAS_GAIN)
            own = mx::add(own,
                          mx::multiply(y, mlx_view(d, a.at + a.part.gain, {1, (int)p->n_out}, mx::float32)));
        y = mx::where(rows, own, y);
    });
    return y;
}

/* ---- all ops ---- */

bool mlx_has_op(int op) {
    switch (op) {
    case LN_OP_EMBED:
    case LN_OP_LINEAR:
    case LN_OP_CONVERT:
    case LN_OP_RMSNORM:
    case LN_OP_ADD:
    case LN_OP_MUL:
    case LN_OP_SILU:
    case LN_OP_GELU_TANH:
    case LN_OP_RELU2:
    case LN_OP_SIGMOID:
    case LN_OP_SOFTCAP:
    case LN_OP_CENTRE:
    case LN_OP_CLAMP:
    case LN_OP_SLICE:
    case LN_OP_ROPE_TABLE:
    case LN_OP_ROPE:
    case LN_OP_POS_SCALE:
    case LN_OP_KV_WRITE:
    case LN_OP_ATTN_PAGED:
    case LN_OP_GATED:
    case LN_OP_GATHER_ROWS:
    case LN_OP_SCALE:
    case LN_OP_SCALE_ROWS:
    case LN_OP_XIELU:
    case LN_OP_LORA_DOWN:
    case LN_OP_LORA_UP: return true;
    default: return false;
    }
}

static array build_xielu(const array &a, const ln_p_xielu *p) {
    const array line = mx::multiply(array(p->beta), a);
    const array above = mx::add(mx::multiply(array(p->alpha_p), mx::square(a)), line);
    const array least = mx::expm1(mx::minimum(a, array(p->eps)));
    const array below = mx::add(mx::multiply(mx::subtract(least, a), array(p->alpha_n)), line);
    return mx::where(mx::greater(a, array(0.0f)), above, below);
}

static array build_pointwise(const ln_exec *e, const ln_pnode *n) {
    const array a = mlx_f32(mlx_input(e, n, 0));
    switch (n->op) {
    case LN_OP_ADD: return mx::add(a, mlx_f32(mlx_input(e, n, 1)));
    case LN_OP_MUL:
    case LN_OP_SCALE_ROWS: return mx::multiply(a, mlx_f32(mlx_input(e, n, 1)));
    case LN_OP_SCALE: return mx::multiply(a, array(n->p.scale.factor));
    case LN_OP_SILU: return activation(LN_ACT_SILU, a);
    case LN_OP_GELU_TANH: return activation(LN_ACT_GELU_TANH, a);
    case LN_OP_RELU2: return activation(LN_ACT_RELU2, a);
    case LN_OP_GATED: return mx::multiply(activation(n->p.gate.act, a), mlx_f32(mlx_input(e, n, 1)));
    case LN_OP_SIGMOID: return mx::sigmoid(a);
    case LN_OP_SOFTCAP:
        return mx::multiply(array(n->p.scale.factor), mx::tanh(mx::divide(a, array(n->p.scale.factor))));
    case LN_OP_CENTRE: return mx::subtract(a, mx::mean(a, -1, true));
    case LN_OP_CLAMP: return mx::clip(a, array(n->p.clamp.low), array(n->p.clamp.high));
    case LN_OP_XIELU: return build_xielu(a, &n->p.xielu);
    default: throw std::runtime_error(std::string("no function for the op ") + ln_op_name(n->op));
    }
}

static array build(ln_exec *e, const ln_pnode *n) {
    switch (n->op) {
    case LN_OP_EMBED: return build_embed(e, n);
    case LN_OP_LINEAR: return build_linear(e, n);
    case LN_OP_CONVERT: return mlx_input(e, n, 0); /* mlx_build rounds */
    case LN_OP_RMSNORM: return build_rmsnorm(e, n);
    case LN_OP_SLICE: return build_slice(e, n);
    case LN_OP_ROPE_TABLE: return build_rope_table(e, n);
    case LN_OP_ROPE: return build_rope(e, n);
    case LN_OP_POS_SCALE: return build_pos_scale(e, n);
    case LN_OP_ATTN_PAGED: return mlx_build_attention(e, n);
    case LN_OP_GATHER_ROWS:
        return mx::take(mlx_input(e, n, 0), array(e->step.out_rows, {e->step.N}, mx::int32), 0);
    case LN_OP_LORA_DOWN: return build_lora_down(e, n);
    case LN_OP_LORA_UP: return build_lora_up(e, n);
    default: return build_pointwise(e, n);
    }
}

void mlx_build(ln_exec *e, const ln_pnode *n) {
    if (n->op == LN_OP_KV_WRITE) {
        mlx_build_kv_write(e, n);
        return;
    }
    array y = build(e, n);
    const bool narrow = ln_program_value(e->program, n->out[0])->format.kind == LN_FORMAT_BF16;
    e->values[n->out[0]] = mx::astype(y, narrow ? mx::bfloat16 : mx::float32);
}
