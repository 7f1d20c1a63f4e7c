// Kernels of rmsnorm, rope, writing keys and values, of the page tables, and of the argmax of rows.
#include "heads.cuh"
#include "kv_q8.cuh"

static inline int launched(void) { return (int)cudaGetLastError(); }
static inline unsigned blocks_of(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

// ---- page tables ----

// One warp: each lane loads a change, and the lanes store one after the other, so that of several changes of
// one entry the last holds.
__global__ void apply_changes(gpu_step s, const ln_page_change *changes, int32_t count) {
    begin();
    const int32_t n = count < 0 ? s.head->n_changes : count;
    for (int32_t from = 0; from < n; from += 32) {
        const int32_t i = from + (int32_t)threadIdx.x;
        ln_page_change c = {0, 0, 0};
        if (i < n) c = changes[i];
        for (int32_t lane = 0; lane < 32 && from + lane < n; lane++) {
            if ((int32_t)threadIdx.x == lane) s.pages[c.group][c.at] = c.page;
            __syncwarp();
        }
    }
}

int gpu_apply_changes(const gpu_launch *l, const gpu_step *s, const ln_page_change *changes, int32_t count) {
    run(l, 1, 32, 0, apply_changes, *s, changes, count);
    return launched();
}

// ---- rmsnorm ----

// A group of C columns belongs to THREADS threads of the block, 256 / THREADS groups to a block. Thread t
// sums the squares of columns t, t + THREADS, ...; a tree adds the lanes of a warp, and the warps' sums are
// added in ascending order.
template <int THREADS>
__global__ void rmsnorm(gpu_step s, gpu_array x, gpu_weight w, gpu_array y, float eps, float offset) {
    __shared__ float sums[8];
    begin();
    const int32_t C = (int32_t)w.C, groups = x.cols / C, t = (int32_t)(threadIdx.x % THREADS);
    const int64_t i = (int64_t)blockIdx.x * (256 / THREADS) + threadIdx.x / THREADS;
    const int64_t r = i / groups, col0 = i % groups * C;
    const bool live = r < live_rows(s, y.rows);
    float sum = 0;
    for (int32_t c = t; live && c < C; c += THREADS) {
        const float v = load_at(x, r, col0 + c);
        sum = fmaf(v, v, sum);
    }
    sum = warp_sum(sum);
    if (THREADS > 32) {
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = sums[0];
        for (int k = 1; k < THREADS / 32; k++) sum = sum + sums[k];
    }
    const float scale = 1.0f / sqrtf(sum / (float)C + eps);
    for (int32_t c = t; live && c < C; c += THREADS)
        store_at(y, r, col0 + c,
                 (load_at(x, r, col0 + c) * scale) *
                     (w.data ? load_element(w.data, w.type, c) + offset : 1.0f));
}

// The same for f32 rows of one group of up to 256 PER columns and bf16 weights, a block for each: with every
// load on its way before the first is used, and the weights before the kernel before has finished.
template <int PER>
__global__ void rmsnorm_wide(gpu_step s, gpu_array x, gpu_weight w, gpu_array y, float eps, float offset) {
    __shared__ float sums[8];
    let_next_begin();
    const int32_t C = (int32_t)w.C, t = (int32_t)threadIdx.x;
    const int64_t r = blockIdx.x;
    const bool live = r < live_rows(s, y.rows);
    const float *row = (const float *)x.data + r * x.pitch;
    float weight[PER], v[PER], sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        weight[i] = t + 256 * i < C ? bf16_to_f32(((const uint16_t *)w.data)[t + 256 * i]) + offset : 0;
    wait_for_inputs();
#pragma unroll
    for (int i = 0; i < PER; i++) v[i] = live && t + 256 * i < C ? row[t + 256 * i] : 0;
#pragma unroll
    for (int i = 0; i < PER; i++) sum = fmaf(v[i], v[i], sum);
    sum = warp_sum(sum);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    sum = sums[0];
    for (int k = 1; k < 8; k++) sum = sum + sums[k];
    const float scale = 1.0f / sqrtf(sum / (float)C + eps);
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (live && t + 256 * i < C) store_at(y, r, t + 256 * i, (v[i] * scale) * weight[i]);
}

int gpu_rmsnorm(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                const gpu_array *y, float eps, float offset) {
    const int64_t groups = grid_rows(l, y->rows) * (x->cols / w->C);
    const unsigned n = (unsigned)groups;
    const bool wide = x->type == GPU_F32 && w->data && w->type == GPU_BF16 && x->cols == w->C;
    if (w->C <= 256) run(l, blocks_of(groups, 8), 256, 0, rmsnorm<32>, *s, *x, *w, *y, eps, offset);
    else if (!wide) run(l, n, 256, 0, rmsnorm<256>, *s, *x, *w, *y, eps, offset);
    else if (w->C <= 1024) run(l, n, 256, 0, rmsnorm_wide<4>, *s, *x, *w, *y, eps, offset);
    else if (w->C <= 2048) run(l, n, 256, 0, rmsnorm_wide<8>, *s, *x, *w, *y, eps, offset);
    else if (w->C <= 4096) run(l, n, 256, 0, rmsnorm_wide<16>, *s, *x, *w, *y, eps, offset);
    else run(l, n, 256, 0, rmsnorm<256>, *s, *x, *w, *y, eps, offset);
    return launched();
}

// ---- centre ----

// A warp has a row.
__global__ void centre(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const int32_t lane = (int32_t)threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (r >= live_rows(s, y.rows)) return;
    const float sum = row_sum(x, r, lane);
    const float mean = __shfl_sync(0xffffffffu, sum, 0) / (float)x.cols;
    for (int32_t c = lane; c < x.cols; c += 32) store_at(y, r, c, load_at(x, r, c) - mean);
}

int gpu_centre(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y) {
    run(l, blocks_of(grid_rows(l, y->rows), 4), 128, 0, centre, *s, *x, *y);
    return launched();
}

// ---- rope ----

// The frequency i of a text of n > positions tokens: dynamic NTK scaling (ops/rope_op.c).
__device__ float dynamic_freq(const gpu_freqs &f, int64_t n, int32_t i) {
    const double width = 2.0 * f.n;
    const float grown = (float)f.factor * (float)n / (float)f.positions - (float)(f.factor - 1);
    const float power = (float)exp((double)(float)(width / (width - 2)) * log((double)grown));
    const float base = (float)f.theta * power;
    return 1.0f / (float)exp((double)((float)(2 * i) / (float)width) * log((double)base));
}

__global__ void rope_table(gpu_step s, gpu_freqs f, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, y.rows)) return;
    const int32_t pos = s.pos[r], prompt = s.n_prompt[s.seq[r]];
    const int64_t n = pos + 1 > prompt ? pos + 1 : prompt;
    for (int32_t i = (int32_t)threadIdx.x; i < f.n; i += (int32_t)blockDim.x) {
        const bool longer = f.positions && n > f.positions;
        const float freq = !longer ? f.freqs[i] : f.beyond ? f.beyond[i] : dynamic_freq(f, n, i);
        const float angle = (float)pos * freq;
        double sn, co;
        sincos((double)angle, &sn, &co);
        store_at(y, r, i, (float)co * f.scale);
        store_at(y, r, i + f.n, (float)sn * f.scale);
    }
}

int gpu_rope_table(const gpu_launch *l, const gpu_step *s, const gpu_freqs *f, const gpu_array *y) {
    run(l, (unsigned)grid_rows(l, y->rows), 64, 0, rope_table, *s, *f, *y);
    return launched();
}

// A thread has a pair of columns, or one or two of those that pass unchanged.
__global__ void rope(gpu_step s, gpu_array x, gpu_array table, gpu_array y, int32_t n_heads, int32_t E,
                     bool interleaved, bool back) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, n = table.cols / 2, each = (E + 1) / 2;
    if (r >= live_rows(s, y.rows)) return;
    for (int32_t k = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x); k < n_heads * each;
         k += (int32_t)(gridDim.y * blockDim.x)) {
        const int32_t i = k % each;
        const int64_t at = (int64_t)(k / each) * E;
        if (i >= n) {
            for (int32_t c = 2 * i; c < 2 * i + 2 && c < E; c++)
                store_at(y, r, at + c, load_at(x, r, at + c));
            continue;
        }
        const int64_t one = at + (interleaved ? 2 * i : i), two = interleaved ? one + 1 : one + n;
        const float a = load_at(x, r, one), b = load_at(x, r, two), co = load_at(table, r, i),
                    sine = load_at(table, r, i + n), sn = back ? -sine : sine;
        store_at(y, r, one, a * co - b * sn);
        store_at(y, r, two, b * co + a * sn);
    }
}

// The same for whole heads of pairs that are half a head apart: a thread has four of them.
__global__ void rope_fours(gpu_step s, gpu_array x, gpu_array table, gpu_array y, int32_t n_heads,
                           bool back) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, n = table.cols / 2, fours = n / 4;
    if (r >= live_rows(s, y.rows)) return;
    for (int32_t k = (int32_t)threadIdx.x; k < n_heads * fours; k += (int32_t)blockDim.x) {
        const int32_t i = k % fours * 4;
        const int64_t one = (int64_t)(k / fours) * 2 * n + i, two = one + n;
        const float4 a = load_four(x, r, one), b = load_four(x, r, two), co = load_four(table, r, i),
                     of = load_four(table, r, i + n);
        const float4 sn = back ? make_float4(-of.x, -of.y, -of.z, -of.w) : of;
        store_four(y, r, one,
                   make_float4(a.x * co.x - b.x * sn.x, a.y * co.y - b.y * sn.y, a.z * co.z - b.z * sn.z,
                               a.w * co.w - b.w * sn.w));
        store_four(y, r, two,
                   make_float4(b.x * co.x + a.x * sn.x, b.y * co.y + a.y * sn.y, b.z * co.z + a.z * sn.z,
                               b.w * co.w + a.w * sn.w));
    }
}

int gpu_rope(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *table,
             const gpu_array *y, int32_t n_heads, int32_t head_dim, bool interleaved, bool back) {
    const dim3 grid((unsigned)grid_rows(l, y->rows), blocks_of((int64_t)n_heads * ((head_dim + 1) / 2), 256));
    if (!interleaved && head_dim == table->cols && table->cols % 8 == 0 && has_fours(x) && has_fours(y) &&
        has_fours(table)) {
        const int32_t threads = (n_heads * head_dim / 8 + 31) / 32 * 32;
        run(l, grid.x, (unsigned)(threads < 256 ? threads : 256), 0, rope_fours, *s, *x, *table, *y, n_heads,
            back);
    } else run(l, grid, 256, 0, rope, *s, *x, *table, *y, n_heads, head_dim, interleaved, back);
    return launched();
}

// ---- kv_write ----

__global__ void kv_write(gpu_step s, gpu_kv kv, gpu_array k, gpu_array v) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, k.rows)) return;
    const int64_t pos = s.pos[r], slot = s.slot[s.seq[r]];
    const int64_t entry = (slot * s.n_blocks + pos / kv.page_len) * kv.pages_per_block + kv.page_in_block;
    char *layer = kv.pool + s.pages[kv.window_group][entry] * kv.page_bytes + kv.layer_offset;
    const int64_t values = (int64_t)kv.n_kv_heads * kv.page_len * kv.width;
    const auto at = [&](int32_t i, int32_t dim, int32_t width) {
        return ((int64_t)(i / dim) * kv.page_len + pos % kv.page_len) * width + i % dim;
    };
    for (int32_t i = (int32_t)threadIdx.x; i < kv.n_kv_heads * kv.head_dim; i += (int32_t)blockDim.x)
        store_element(layer, kv.type, at(i, kv.head_dim, kv.width), load_at(k, r, i));
    for (int32_t i = (int32_t)threadIdx.x; i < kv.n_kv_heads * kv.v_dim; i += (int32_t)blockDim.x)
        store_element(layer, kv.type, values + at(i, kv.v_dim, kv.v_width), load_at(v, r, i));
}

// A warp for each block of 32 columns of a key or a value.
__global__ void kv_write_q8(gpu_step s, gpu_kv kv, gpu_array k, gpu_array v) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, lane = (int32_t)threadIdx.x % 32;
    if (r >= live_rows(s, k.rows)) return;
    const int64_t pos = s.pos[r], slot = s.slot[s.seq[r]], at = pos % kv.page_len;
    const int64_t entry = (slot * s.n_blocks + pos / kv.page_len) * kv.pages_per_block + kv.page_in_block;
    char *layer = kv.pool + s.pages[kv.window_group][entry] * kv.page_bytes + kv.layer_offset;
    const int32_t of_keys = kv.n_kv_heads * q8_blocks(kv.width),
                  all = of_keys + kv.n_kv_heads * q8_blocks(kv.v_width);
    for (int32_t i = (int32_t)threadIdx.x / 32; i < all; i += (int32_t)blockDim.x / 32) {
        const bool values = i >= of_keys;
        const int32_t width = values ? kv.v_width : kv.width, dim = values ? kv.v_dim : kv.head_dim,
                      blocks = q8_blocks(width), head = (i - (values ? of_keys : 0)) / blocks,
                      block = (i - (values ? of_keys : 0)) % blocks, c = block * LN_BLOCK_INT8 + lane;
        const float x = c < dim ? load_at(values ? v : k, r, (int64_t)head * dim + c) : 0.0f;
        const uint32_t most = __reduce_max_sync(0xffffffffu, __float_as_uint(x) & 0x7fffffffu);
        const uint8_t scale = ln_block_int8_scale(most);
        if (c < width)
            layer[q8_codes_at(kv, values, head) + at * width + c] =
                (char)ln_block_int8_code(x, ln_block_int8_inverse(scale));
        if (lane == 0) layer[q8_scales_at(kv, values, head) + at * blocks + block] = (char)scale;
    }
}

int gpu_kv_write(const gpu_launch *l, const gpu_step *s, const gpu_kv *kv, const gpu_array *k,
                 const gpu_array *v) {
    if (kv->q8) {
        run(l, (unsigned)grid_rows(l, k->rows), 256, 0, kv_write_q8, *s, *kv, *k, *v);
        return launched();
    }
    run(l, (unsigned)grid_rows(l, k->rows), 256, 0, kv_write, *s, *kv, *k, *v);
    return launched();
}

// ---- argmax ----

// The better of two candidates: the larger value, then the lower index. A NaN always wins, with index -1.
// Value minus infinity with index -1: no candidate.
struct candidate {
    float value;
    int32_t index;
};
__device__ candidate better(candidate a, candidate b) {
    if (a.value != a.value || b.value != b.value) return {__uint_as_float(0x7fc00000u), -1};
    if (b.value > a.value) return b;
    if (b.value == a.value && b.index >= 0 && (a.index < 0 || b.index < a.index)) return b;
    return a;
}

__device__ candidate best_of_warp(candidate best) {
    for (int m = 16; m > 0; m /= 2)
        best = better(best, {__shfl_xor_sync(0xffffffffu, best.value, m),
                             __shfl_xor_sync(0xffffffffu, best.index, m)});
    return best;
}

// A block searches one part of a row.
__global__ void argmax_parts(gpu_step s, gpu_array x, candidate *parts) {
    begin();
    __shared__ candidate of_warp[8];
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, x.rows)) return;
    candidate best = {__uint_as_float(0xff800000u), -1};
    for (int32_t c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x); c < x.cols;
         c += (int32_t)(GPU_ARGMAX_PARTS * blockDim.x)) {
        const float v = load_at(x, r, c);
        if (v > best.value || v != v) best = better(best, {v, c});
    }
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (unsigned i = 1; i < blockDim.x / 32; i++) best = better(best, of_warp[i]);
    parts[(int64_t)r * GPU_ARGMAX_PARTS + blockIdx.y] = best;
}
// A warp finds the best part of a row.
__global__ void argmax_rows(gpu_step s, gpu_array x, const candidate *parts, int32_t *ids) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, x.rows)) return;
    const candidate best = best_of_warp(parts[(int64_t)r * GPU_ARGMAX_PARTS + threadIdx.x]);
    if (threadIdx.x == 0) ids[r] = best.index;
}

size_t gpu_argmax_scratch(int64_t rows) { return (size_t)rows * GPU_ARGMAX_PARTS * sizeof(candidate); }

int gpu_argmax(const gpu_launch *l, const gpu_step *s, const gpu_array *x, void *scratch, int32_t *ids) {
    const unsigned rows = (unsigned)grid_rows(l, x->rows);
    run(l, dim3(rows, GPU_ARGMAX_PARTS), 256, 0, argmax_parts, *s, *x, (candidate *)scratch);
    run(l, rows, 32, 0, argmax_rows, *s, *x, (const candidate *)scratch, ids);
    return launched();
}

// ---- the heads of a step: rmsnorm of q and k, rope, kv_write in one kernel ----

// A warp has one head of a row: first the H heads of q, then the K of k, whose value head it also writes.
__global__ void heads(gpu_step s, gpu_heads h) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, lane = (int32_t)threadIdx.x % 32;
    const int32_t i = (int32_t)(blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32), E = h.kv.head_dim,
                  K = h.kv.n_kv_heads;
    if (r >= live_rows(s, h.q.rows) || i >= h.n_heads + K) return;
    if (i < h.n_heads) {
        rotate_head(h, h.q, h.q_norm, r, (int64_t)i * E,
                    [&](int32_t c, float v) { store_at(h.y, r, (int64_t)i * E + c, v); });
        return;
    }
    const int64_t pos = s.pos[r], slot = s.slot[s.seq[r]], col0 = (int64_t)(i - h.n_heads) * E;
    const int64_t entry =
        (slot * s.n_blocks + pos / h.kv.page_len) * h.kv.pages_per_block + h.kv.page_in_block;
    char *layer = h.kv.pool + s.pages[h.kv.window_group][entry] * h.kv.page_bytes + h.kv.layer_offset;
    const int64_t at = ((int64_t)(i - h.n_heads) * h.kv.page_len + pos % h.kv.page_len) * h.kv.width,
                  values = (int64_t)K * h.kv.page_len * h.kv.width;
    rotate_head(h, h.k, h.k_norm, r, col0,
                [&](int32_t c, float v) { store_element(layer, h.kv.type, at + c, v); });
    for (int32_t c = lane; c < E; c += 32)
        store_element(layer, h.kv.type, values + at + c, load_at(h.v, r, col0 + c));
}

// The same for heads of 64 N columns where q, k and v are f32: a warp has several heads of a row, so that it
// loads norms, cosines and sines once. Blocks y < q_blocks have heads of q, the others those of k and v. The
// order of the sum of squares is that of rotate_head.
template <int N>
__global__ void __launch_bounds__(128)
    heads_of_rows(const __grid_constant__ gpu_step s, const __grid_constant__ gpu_heads h, int q_blocks) {
    enum { E = 64 * N };
    const int32_t r = (int32_t)blockIdx.x, lane = (int32_t)threadIdx.x % 32;
    const bool of_q = (int)blockIdx.y < q_blocks;
    const int32_t y = (int32_t)blockIdx.y - (of_q ? 0 : q_blocks), n = of_q ? h.n_heads : h.kv.n_kv_heads,
                  step = (of_q ? q_blocks : (int32_t)gridDim.y - q_blocks) * 4;
    const gpu_weight &w = of_q ? h.q_norm : h.k_norm;
    const gpu_array &from = of_q ? h.q : h.k;
    float norm[2 * N], co[N], sn[N];
    let_next_begin();
    const bool live = r < live_rows(s, h.q.rows);
    char *layer = NULL;
    int64_t place = 0;
    if (live && !of_q) {
        const int64_t pos = s.pos[r], slot = s.slot[s.seq[r]];
        const int64_t entry =
            (slot * s.n_blocks + pos / h.kv.page_len) * h.kv.pages_per_block + h.kv.page_in_block;
        layer = h.kv.pool + s.pages[h.kv.window_group][entry] * h.kv.page_bytes + h.kv.layer_offset;
        place = pos % h.kv.page_len;
    }
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        norm[i] = w.data ? load_element(w.data, w.type, lane + 32 * i) + h.offset : 1.0f;
    wait_for_inputs();
    if (!live) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        co[i] = load_at(h.table, r, lane + 32 * i);
        sn[i] = load_at(h.table, r, lane + 32 * i + E / 2);
    }
    const float *x = (const float *)from.data + r * from.pitch + lane,
                *v = (const float *)h.v.data + r * h.v.pitch + lane;
    for (int32_t i = y * 4 + (int32_t)threadIdx.x / 32; i < n; i += step) {
        float a[2 * N], value[2 * N], sum = 0, scale = 1;
#pragma unroll
        for (int k = 0; k < 2 * N; k++) {
            a[k] = x[i * E + 32 * k];
            value[k] = of_q ? 0.0f : v[i * E + 32 * k];
        }
        if (w.data) {
#pragma unroll
            for (int k = 0; k < 2 * N; k++) sum = fmaf(a[k], a[k], sum);
            scale = 1.0f / sqrtf(warp_sum(sum) / (float)E + h.eps);
#pragma unroll
            for (int k = 0; k < 2 * N; k++) a[k] = (a[k] * scale) * norm[k];
        }
        const int64_t at = ((int64_t)i * h.kv.page_len + place) * h.kv.width + lane,
                      values = (int64_t)n * h.kv.page_len * h.kv.width;
#pragma unroll
        for (int k = 0; k < 2 * N; k++) {
            const int c = k % N;
            const float out = k < N ? a[c] * co[c] - a[c + N] * sn[c] : a[c + N] * co[c] + a[c] * sn[c];
            if (of_q) store_at(h.y, r, (int64_t)i * E + lane + 32 * k, out);
            else {
                store_element(layer, h.kv.type, at + 32 * k, out);
                store_element(layer, h.kv.type, values + at + 32 * k, value[k]);
            }
        }
    }
}

// Heads of a warp: more of them with many rows, as long as all multiprocessors have several blocks.
template <int N> static void run_heads_of_rows(const gpu_launch *l, const gpu_step *s, const gpu_heads *h) {
    const int64_t rows = grid_rows(l, h->q.rows), blocks = rows * (h->n_heads + h->kv.n_kv_heads) / 4,
                  many = 8 * (int64_t)l->n_multiprocessors, each = blocks / many;
    const int per_block = 4 * (each < 1 ? 1 : each > 8 ? 8 : (int)each);
    const unsigned of_q = blocks_of(h->n_heads, per_block), of_k = blocks_of(h->kv.n_kv_heads, per_block);
    run(l, dim3((unsigned)rows, of_q + of_k), 128, 0, heads_of_rows<N>, *s, *h, (int)of_q);
}

int gpu_run_heads(const gpu_launch *l, const gpu_step *s, const gpu_heads *h) {
    const int32_t n = h->kv.head_dim % 64 ? 0 : h->kv.head_dim / 64;
    const bool whole = h->table.cols == h->kv.head_dim && !h->interleaved;
    if (whole && h->q.type == GPU_F32 && h->k.type == GPU_F32 && h->v.type == GPU_F32 &&
        (n == 1 || n == 2 || n == 4)) {
        if (n == 1) run_heads_of_rows<1>(l, s, h);
        else if (n == 2) run_heads_of_rows<2>(l, s, h);
        else run_heads_of_rows<4>(l, s, h);
        return launched();
    }
    const dim3 grid((unsigned)grid_rows(l, h->q.rows), blocks_of(h->n_heads + h->kv.n_kv_heads, 4));
    run(l, grid, 128, 0, heads, *s, *h);
    return launched();
}
