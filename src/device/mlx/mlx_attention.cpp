/* Attention over pages, on MLX's arrays.
 *
 * The keys of a sequence are those of its pages before the step, which are gathered, and those of the step's
 * own rows, which are still in MLX's graph. Pages are written after the step (mlx_store_kv), so that no
 * operation of MLX reads a page while it changes. Rows of one sequence are consecutive, and so are their
 * positions. */
#include "mlx_device.h"

#include <cstring>

void mlx_build_kv_write(ln_exec *e, const ln_pnode *n) {
    const ln_p_kv *kv = &n->p.kv;
    const mx::Dtype dtype = mlx_dtype(kv->dtype);
    const int T = e->step.T;
    mx::array k = mx::reshape(mx::astype(mlx_input(e, n, 1), dtype), {T, kv->n_kv_heads, kv->head_dim});
    mx::array v = mx::reshape(mx::astype(mlx_input(e, n, 2), dtype), {T, kv->n_kv_heads, kv->v_dim});
    e->writes.push_back({kv, mlx_operand(e, n, 0), mx::contiguous(k), mx::contiguous(v)});
}

static char *layer_at(const ln_exec *e, const ln_pvalue *pool, const ln_p_kv *kv, int32_t page) {
    (void)e;
    return (char *)pool->data + (int64_t)page * kv->page_bytes + (int64_t)kv->layer_in_page * kv->layer_bytes;
}

/* The page of a block of a sequence. */
static int32_t page_of(const ln_queue *q, const ln_p_kv *kv, int32_t slot, int64_t block) {
    const int64_t at = ((int64_t)slot * q->n_blocks + block) * kv->pages_per_block + kv->page_in_block;
    return q->pages[kv->window_group][(size_t)at];
}

void mlx_store_kv(ln_exec *e) {
    const mlx_step *s = &e->step;
    for (mlx_kv_write &w : e->writes) {
        const ln_p_kv *kv = w.kv;
        const int64_t element = ln_dtype_bytes(kv->dtype), K = kv->n_kv_heads, len = kv->page_len;
        const int64_t key = kv->head_dim * element, value = kv->v_dim * element;
        const char *k = w.keys.data<char>(), *v = w.values.data<char>();
        for (int32_t t = 0; t < s->T; t++) {
            const int64_t block = s->pos[t] / len, row = s->pos[t] % len;
            const int32_t page = page_of(e->queue, kv, s->slot[s->seq[t]], block);
            char *keys = layer_at(e, w.pool, kv, page), *values = keys + K * len * key;
            for (int64_t h = 0; h < K; h++) {
                memcpy(keys + (h * len + row) * key, k + (t * K + h) * key, (size_t)key);
                memcpy(values + (h * len + row) * value, v + (t * K + h) * value, (size_t)value);
            }
        }
    }
}

/* The keys, or the values, of positions from .. to - 1 of a sequence, from its pages: [K, to - from, E]. */
static mx::array gathered(const ln_exec *e, const ln_pvalue *pool, const ln_p_kv *kv, int32_t slot,
                          int64_t from, int64_t to, bool values) {
    const int64_t len = kv->page_len, width = values ? kv->v_dim : kv->head_dim, K = kv->n_kv_heads;
    const int64_t element = ln_dtype_bytes(kv->dtype), first = from / len, n = (to + len - 1) / len - first;
    std::vector<int32_t> ids;
    for (int64_t b = first; b < first + n; b++) ids.push_back(page_of(e->queue, kv, slot, b));
    const char *base = layer_at(e, pool, kv, 0) + (values ? K * len * kv->head_dim * element : 0);
    const int64_t n_pages = (int64_t)mlx_bytes_after(e->queue->dev, pool->data) / kv->page_bytes;
    mx::array all = mlx_view(e->queue->dev, base, {(int)n_pages, (int)K, (int)len, (int)width},
                             {kv->page_bytes / element, len * width, width, 1}, mlx_dtype(kv->dtype));
    mx::array some = mx::take(all, mx::array(ids.data(), {(int)n}, mx::int32), 0);
    some = mx::reshape(mx::transpose(some, {1, 0, 2, 3}), {(int)K, (int)(n * len), (int)width});
    return mx::slice(some, {0, (int)(from - first * len), 0}, {(int)K, (int)(to - first * len), (int)width});
}

static mx::array joined(const ln_exec *e, const mlx_kv_write &w, int32_t seq, int64_t from, bool values) {
    const mlx_step *s = &e->step;
    const int32_t r0 = s->row0[seq], r1 = s->row0[seq + 1];
    const ln_p_kv *kv = w.kv;
    const int width = values ? kv->v_dim : kv->head_dim;
    const mx::array own =
        mx::transpose(mx::slice(values ? w.values : w.keys, {r0, 0, 0}, {r1, kv->n_kv_heads, width}),
                      {1, 0, 2});
    if (from >= s->pos[r0]) return own;
    return mx::concatenate({gathered(e, w.pool, kv, s->slot[seq], from, s->pos[r0], values), own}, 1);
}

/* Which keys, from position `from` on, each row attends to: [rows, keys]; none if all rows see all keys. */
static std::optional<mx::array> mask_of(const int32_t *pos, int rows, int64_t from, int64_t n_keys,
                                        int64_t window) {
    std::vector<uint8_t> may((size_t)(rows * n_keys));
    bool all = true;
    for (int r = 0; r < rows; r++)
        for (int64_t j = 0; j < n_keys; j++) {
            const int64_t key = from + j;
            const bool yes = key <= pos[r] && (!window || key > pos[r] - window);
            may[(size_t)(r * n_keys + j)] = yes;
            all = all && yes;
        }
    if (all) return {};
    return mx::astype(mx::array(may.data(), {rows, (int)n_keys}, mx::uint8), mx::bool_);
}

/* softmax(scale q k^T) v written out, for what fast::scaled_dot_product_attention does not have. q [H, T, E],
 * k [K, S, E], v [K, S, Ev]. */
static mx::array plain_attention(const ln_p_attn *p, const mx::array &q, const mx::array &k,
                                 const mx::array &v, const std::optional<mx::array> &mask,
                                 const std::optional<mx::array> &sinks) {
    const int H = p->n_heads, K = p->kv.n_kv_heads, T = q.shape(1);
    mx::array scores = mx::multiply(mx::matmul(mx::reshape(q, {K, H / K, T, q.shape(2)}),
                                               mx::expand_dims(mx::swapaxes(k, 1, 2), 1)),
                                    mx::array(p->scale));
    if (p->softcap > 0) {
        const mx::array cap(p->softcap);
        scores = mx::multiply(cap, mx::tanh(mx::divide(scores, cap)));
    }
    if (mask) scores = mx::where(*mask, scores, mx::array(-INFINITY));
    if (sinks) {
        const mx::array column =
            mx::broadcast_to(mx::reshape(mlx_f32(*sinks), {K, H / K, 1, 1}), {K, H / K, T, 1});
        scores = mx::softmax(mx::concatenate({scores, column}, -1), -1, true);
        scores = mx::slice(scores, {0, 0, 0, 0}, {K, H / K, T, k.shape(1)});
    } else scores = mx::softmax(scores, -1, true);
    return mx::reshape(mx::matmul(scores, mx::expand_dims(v, 1)), {H, T, v.shape(2)});
}

mx::array mlx_build_attention(ln_exec *e, const ln_pnode *n) {
    const ln_p_attn *p = &n->p.attn;
    const mlx_step *s = &e->step;
    const int H = p->n_heads, E = p->kv.head_dim, Ev = p->kv.v_dim;
    const mlx_kv_write *w = nullptr;
    for (const mlx_kv_write &x : e->writes)
        if (x.kv->window_group == p->kv.window_group && x.kv->page_in_block == p->kv.page_in_block &&
            x.kv->layer_in_page == p->kv.layer_in_page)
            w = &x;
    if (!w) throw std::runtime_error("attention reads a layer whose keys the step has not written");
    std::optional<mx::array> sinks;
    if (n->n_in > 2) sinks = e->weights[n->in[2]] ? *e->weights[n->in[2]]->dense : mlx_input(e, n, 2);
    const mx::array rows = mx::reshape(mlx_f32(mlx_input(e, n, 0)), {s->T, H, E});
    std::vector<mx::array> parts;
    for (int32_t b = 0; b < s->B; b++) {
        const int32_t r0 = s->row0[b], r1 = s->row0[b + 1], T = r1 - r0;
        if (T == 0) continue;
        const int64_t from = p->window ? LN_MAX(s->pos[r0] - p->window + 1, (int64_t)0) : 0;
        const mx::array q = mx::transpose(mx::slice(rows, {r0, 0, 0}, {r1, H, E}), {1, 0, 2});
        const mx::array k = mlx_f32(joined(e, *w, b, from, false)), v = mlx_f32(joined(e, *w, b, from, true));
        const auto mask = mask_of(s->pos + r0, T, from, k.shape(1), p->window);
        const bool plain = p->softcap > 0 || sinks || E != Ev;
        const mx::array y =
            plain ? plain_attention(p, q, k, v, mask, sinks)
                  : mx::squeeze(mx::fast::scaled_dot_product_attention(mx::expand_dims(q, 0),
                                                                       mx::expand_dims(k, 0),
                                                                       mx::expand_dims(v, 0), p->scale,
                                                                       mask ? "array" : "", mask),
                                0);
        parts.push_back(mx::reshape(mx::transpose(y, {1, 0, 2}), {T, H * Ev}));
    }
    return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}
