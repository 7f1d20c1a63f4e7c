// Paged attention (docs/numerics.md; the order of the reference is at LN_ATTN_SPLIT in ops/ops.h).
//
// A block computes up to HEADS query heads that share a key/value head, for one row. The positions are cut
// into splits at absolute multiples of 256. For each split with a visible position:
//
//     s[j] = scale * q k[j]     8 lanes sum 8 columns in turn; a tree of fixed order adds the lanes; with a
//                               softcap c then c tanh(s[j] / c)
//     m    = max s;  w[j] = exp(s[j] - m), rounded to bf16 over bf16 pages;  l = sum of w
//     o[e] = sum of w[j] v[j][e]: n slices, each of every n-th position, added in ascending order
//
// and the splits are merged in ascending order:
//
//     M' = max(M, m); a = exp(M - M'); b = exp(m - M'); L = L a + l b; O = O a + o b;  y = O / L at the end
//
// A head with a sink begins with M = sink, L = 1, O = 0, others with the first split's m, l and o.
//
// Several blocks may share the splits of a row (row_share in attention_mma.cuh): each writes its splits' m, l
// and o to memory, and the last to finish merges them. The arithmetic is the same, so a row's
// bits depend neither on the other rows nor on how many blocks work on it.
//
// This kernel serves f32 pages, and heads that the tensor cores do not. Over bf16 pages, heads of a multiple
// of 16 columns up to 256 are computed on tensor cores, in another order (attention_mma.cuh).
#include "attention_mma.cuh"
#include "kv_q8.cuh"

enum {
    SPLIT = 256, // positions of a split, LN_ATTN_SPLIT
    THREADS = 256,
    MAX_HEADS = 4,        // of a block
    MAX_SHARED = 96 << 10 // bytes of shared memory
};

__device__ inline void load8(const float *p, float x[8]) {
    const float4 a = ((const float4 *)p)[0], b = ((const float4 *)p)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
__device__ inline void load8(const uint16_t *p, float x[8]) {
    const uint4 v = *(const uint4 *)p;
    const uint32_t u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = __uint_as_float(u[i] << 16);
        x[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
    }
}

// Shared memory of a block, in floats: q [HEADS][width], o and O [HEADS][v_width], s [HEADS][SPLIT], partial
// sums [slices][HEADS][v_width], and a few scalars for each head. Partial results have `width` v_width.
__host__ __device__ inline int32_t slices_of(int32_t v_width) { return THREADS / (v_width / 8); }
__host__ __device__ inline int32_t shared_floats(int32_t heads, const gpu_kv &kv) {
    return heads * (kv.width + 2 * kv.v_width + SPLIT + slices_of(kv.v_width) * kv.v_width + 4);
}
__host__ __device__ inline int32_t partial_floats(int32_t heads, int32_t width) {
    return heads * (width + 2);
}

template <typename T, int HEADS> struct block {
    const gpu_kv &kv;
    const char **page; // the layer's part of the pages of a split; pages have 32 positions at least
    float *q, *s, *part, *o, *O, *m, *l, *M, *L;

    // 8 columns from column 8 c on of position j of the split: of a head's keys, or values.
    __device__ void load(int32_t j, bool values, int32_t head, int32_t c, float x[8]) const {
        const int32_t width = values ? kv.v_width : kv.width, at = j % kv.page_len;
        const char *const layer = page[j / kv.page_len];
        const int64_t from = q8_codes_at(kv, values, head) + (int64_t)at * width + 8 * c;
        if constexpr (sizeof(T) == 1)
            q8_load8(*(const uint2 *)(layer + from),
                     (uint8_t)layer[q8_scales_at(kv, values, head) + at * q8_blocks(width) + c / 4], x);
        else load8((const T *)layer + from, x);
    }
    __device__ void find_pages(const gpu_step &step, int64_t slot, int64_t base, int64_t from, int64_t to) {
        const int32_t i = (int32_t)threadIdx.x;
        const int64_t first = base + i * kv.page_len;
        if (i < SPLIT / kv.page_len && first < to && first + kv.page_len > from) {
            const int64_t entry =
                (slot * step.n_blocks + first / kv.page_len) * kv.pages_per_block + kv.page_in_block;
            page[i] = kv.pool + step.pages[kv.window_group][entry] * kv.page_bytes + kv.layer_offset;
        }
    }
    // Scores of positions lo .. hi - 1 of the split into s; minus infinity for the others.
    __device__ void scores(int32_t head, int32_t lo, int32_t hi, const gpu_attention &a) {
        const int32_t lane = (int32_t)threadIdx.x % 8;
        for (int32_t j = (int32_t)threadIdx.x / 8; j < SPLIT; j += THREADS / 8) {
            const bool visible = j >= lo && j < hi;
            float acc[HEADS] = {};
            for (int32_t c = lane; visible && c < kv.width / 8; c += 8) {
                float k[8];
                load(j, false, head, c, k);
#pragma unroll
                for (int h = 0; h < HEADS; h++)
#pragma unroll
                    for (int i = 0; i < 8; i++) acc[h] = fmaf(q[h * kv.width + 8 * c + i], k[i], acc[h]);
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                for (int b = 4; b > 0; b /= 2) acc[h] = acc[h] + __shfl_xor_sync(0xffffffffu, acc[h], b);
                const float score =
                    a.softcap > 0 ? ln_softcapf(acc[h] * a.scale, a.softcap) : acc[h] * a.scale;
                if (lane == 0) s[h * SPLIT + j] = visible ? score : __uint_as_float(0xff800000u);
            }
        }
    }
    // Scores to weights, their maximum and their sum: a warp for each head.
    __device__ void softmax(int32_t lo, int32_t hi) {
        const int32_t h = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
        if (h >= HEADS) return;
        float most = __uint_as_float(0xff800000u), sum = 0;
        for (int32_t j = lane; j < SPLIT; j += 32) most = fmaxf(most, s[h * SPLIT + j]);
        for (int b = 16; b > 0; b /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, b));
        for (int32_t j = lane; j < SPLIT; j += 32) {
            float w = j >= lo && j < hi ? ln_expf(s[h * SPLIT + j] - most) : 0.0f;
            if (kv.type == GPU_BF16) w = bf16_to_f32(f32_to_bf16(w));
            s[h * SPLIT + j] = w;
            sum = sum + w;
        }
        sum = warp_sum(sum);
        if (lane == 0) m[h] = most, l[h] = sum;
    }
    __device__ void weighted_values(int32_t head, int32_t lo, int32_t hi) {
        const int32_t width = kv.v_width, n = width / 8, slices = slices_of(width),
                      c = (int32_t)threadIdx.x % n, slice = (int32_t)threadIdx.x / n;
        if (slice < slices) {
            float acc[HEADS][8] = {};
            for (int32_t j = slice; j < hi; j += slices) {
                if (j < lo) continue;
                float v[8];
                load(j, true, head, c, v);
#pragma unroll
                for (int h = 0; h < HEADS; h++)
#pragma unroll
                    for (int i = 0; i < 8; i++) acc[h][i] = fmaf(s[h * SPLIT + j], v[i], acc[h][i]);
            }
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < 8; i++) part[(slice * HEADS + h) * width + 8 * c + i] = acc[h][i];
        }
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < HEADS * width; i += THREADS) {
            float sum = 0;
            for (int32_t k = 0; k < slices; k++) sum = sum + part[k * HEADS * width + i];
            o[i] = sum;
        }
        __syncthreads();
    }
    // m, l and o of a split that begins at `base`, of positions from `first` to `last`.
    __device__ void split(const gpu_step &step, int64_t slot, int32_t head, int64_t base, int64_t first,
                          int64_t last, const gpu_attention &a) {
        const int64_t from = base > first ? base : first,
                      to = base + SPLIT < last + 1 ? base + SPLIT : last + 1;
        const int32_t lo = (int32_t)(from - base), hi = (int32_t)(to - base);
        find_pages(step, slot, base, from, to);
        __syncthreads();
        scores(head, lo, hi, a);
        __syncthreads();
        softmax(lo, hi);
        __syncthreads();
        weighted_values(head, lo, hi);
    }
    // Merges n splits whose results are in memory, `pitch` floats apart, into O and L: the factors of all of
    // a tile of splits first, then each element in order. The operations are those of merge. sunk: M, L and O
    // are those of sinks.
    __device__ void merge_all(const float *results, int64_t n, int64_t pitch, float *factors, bool sunk) {
        enum { TILE = SPLIT / 2 }; // splits whose two factors fit in s
        const int32_t width = kv.v_width;
        float top = 0, sum = 0;
        if (sunk && threadIdx.x < HEADS) top = M[threadIdx.x], sum = L[threadIdx.x];
        for (int64_t from = 0; from < n; from += TILE) {
            const int32_t end = (int32_t)(n - from < TILE ? n - from : TILE), h = (int32_t)threadIdx.x;
            if (h < HEADS) {
                for (int32_t i = 0; i < end; i++) {
                    const float *in = results + (from + i) * pitch + HEADS * width;
                    const float sm = in[h], sl = in[HEADS + h];
                    const bool is_first = from + i == 0 && !sunk;
                    const float most = is_first || !(sm <= top) ? sm : top;
                    const float a = is_first ? 0.0f : ln_expf(top - most),
                                b = is_first ? 1.0f : ln_expf(sm - most);
                    sum = is_first ? sl : sum * a + sl * b;
                    top = most;
                    factors[h * SPLIT + 2 * i] = a, factors[h * SPLIT + 2 * i + 1] = b;
                }
            }
            __syncthreads();
            for (int32_t k = (int32_t)threadIdx.x; k < HEADS * width; k += THREADS) {
                const float *f = factors + k / width * SPLIT, *in = results + from * pitch + k;
                const bool begun = from || sunk;
                float y = begun ? O[k] : in[0];
#pragma unroll 4
                for (int32_t i = begun ? 0 : 1; i < end; i++)
                    y = fmaf(in[i * pitch], f[2 * i + 1], y * f[2 * i]);
                O[k] = y;
            }
            __syncthreads();
        }
        if (threadIdx.x < HEADS) L[threadIdx.x] = sum;
        __syncthreads();
    }
    // Merges a split (of, sm, sl) into O, M and L.
    __device__ void merge(bool is_first, const float *of, const float *sm, const float *sl) {
        for (int32_t i = (int32_t)threadIdx.x; i < HEADS * kv.v_width; i += THREADS) {
            const int32_t h = i / kv.v_width;
            if (is_first) {
                O[i] = of[i];
                continue;
            }
            const float top = sm[h] <= M[h] ? M[h] : sm[h];
            O[i] = fmaf(of[i], ln_expf(sm[h] - top), O[i] * ln_expf(M[h] - top));
        }
        __syncthreads();
        const int32_t h = (int32_t)threadIdx.x;
        if (h < HEADS && is_first) M[h] = sm[h], L[h] = sl[h];
        else if (h < HEADS) {
            const float top = sm[h] <= M[h] ? M[h] : sm[h];
            L[h] = L[h] * ln_expf(M[h] - top) + sl[h] * ln_expf(sm[h] - top);
            M[h] = top;
        }
        __syncthreads();
    }
};

// The last position that row r sees. Both ways, a step has all rows of its sequences.
__device__ inline int32_t last_position(const gpu_step &step, const gpu_attention &a, int32_t r) {
    const int32_t pos = step.pos[r];
    if (!a.both_ways) return pos;
    const int32_t end = step.pos[step.row0[step.seq[r] + 1] - 1],
                  w = (int32_t)min(a.window, (int64_t)INT32_MAX);
    return w > 0 && end - pos >= w ? pos + w - 1 : end;
}

template <typename T, int HEADS>
__global__ void __launch_bounds__(THREADS)
    attention(gpu_step step, gpu_attention a, gpu_array q, gpu_array y) {
    extern __shared__ float memory[];
    __shared__ bool is_last;
    __shared__ const char *pages[SPLIT / 32];
    begin();
    const row_share share = share_of<INT32_MAX>((int32_t)blockIdx.x, (int32_t)gridDim.x,
                                                live_rows(step, y.rows), a.room, [&](int32_t i) {
                                                    return last_position(step, a, i) / SPLIT -
                                                           first_position(a.window, step.pos[i]) / SPLIT + 1;
                                                });
    const int32_t r = share.item, width = a.kv.width, E = a.kv.head_dim, v_width = a.kv.v_width,
                  Ev = a.kv.v_dim;
    if (r < 0) return;
    const int32_t group = a.n_heads / a.kv.n_kv_heads, parts = (group + HEADS - 1) / HEADS;
    const int32_t head = (int32_t)blockIdx.y / parts, h0 = head * group + (int32_t)blockIdx.y % parts * HEADS;
    const int32_t n_heads = (head + 1) * group - h0 < HEADS ? (head + 1) * group - h0 : HEADS;
    const int64_t last = last_position(step, a, r), slot = step.slot[step.seq[r]],
                  first = first_position(a.window, step.pos[r]), split0 = first / SPLIT;
    const int32_t n_splits = share.n_splits, workers = share.workers;
    const bool shared = workers > 1;
    block<T, HEADS> b = {a.kv, pages};
    b.q = memory, b.s = b.q + HEADS * width, b.o = b.s + HEADS * SPLIT, b.O = b.o + HEADS * v_width;
    b.part = b.O + HEADS * v_width, b.m = b.part + slices_of(v_width) * HEADS * v_width;
    b.l = b.m + HEADS, b.M = b.l + HEADS, b.L = b.M + HEADS;
    for (int32_t i = (int32_t)threadIdx.x; i < HEADS * width; i += THREADS) {
        const int32_t h = i / width, e = i % width;
        b.q[i] = h < n_heads && e < E ? load_at(q, r, (int64_t)(h0 + h) * E + e) : 0.0f;
    }
    const bool sunk = a.sinks != NULL;
    for (int32_t i = (int32_t)threadIdx.x; sunk && i < HEADS * v_width; i += THREADS) b.O[i] = 0;
    if (sunk && threadIdx.x < HEADS) {
        const int32_t h = min((int32_t)threadIdx.x, n_heads - 1);
        b.M[threadIdx.x] = load_element(a.sinks, a.sink_type, h0 + h), b.L[threadIdx.x] = 1;
    }
    __syncthreads();
    int32_t *counter = a.counters + (int64_t)r * gridDim.y + blockIdx.y;
    float *results = (float *)a.results + ((int64_t)share.stored_at * gridDim.y + blockIdx.y * n_splits) *
                                              partial_floats(HEADS, v_width);
    for (int64_t i = share.z; i < n_splits; i += workers) {
        b.split(step, slot, head, (split0 + i) * SPLIT, first, last, a);
        if (!shared) {
            b.merge(i == 0 && !sunk, b.o, b.m, b.l);
            continue;
        }
        float *out = results + i * partial_floats(HEADS, v_width);
        for (int32_t k = (int32_t)threadIdx.x; k < HEADS * v_width; k += THREADS) out[k] = b.o[k];
        if (threadIdx.x < HEADS) {
            out[HEADS * v_width + threadIdx.x] = b.m[threadIdx.x];
            out[HEADS * v_width + HEADS + threadIdx.x] = b.l[threadIdx.x];
        }
        __syncthreads();
    }
    if (shared) { // the last block of the row to come here merges
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) is_last = atomicAdd(counter, 1) == workers - 1;
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        b.merge_all(results, n_splits, partial_floats(HEADS, v_width), b.s, sunk);
        if (threadIdx.x == 0) *counter = 0;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < n_heads * v_width; i += THREADS) {
        const int32_t h = i / v_width, e = i % v_width;
        if (e < Ev) store_at(y, r, (int64_t)(h0 + h) * Ev + e, b.O[i] / b.L[h]);
    }
}

// Heads of a block: a power of two, at most the heads that share keys, and as many as fit in shared memory.
static int32_t heads_of(const gpu_attention *a) {
    const int32_t group = a->n_heads / a->kv.n_kv_heads;
    int32_t heads = MAX_HEADS;
    while (heads > 1 && (heads >= 2 * group || shared_floats(heads, a->kv) * 4 > MAX_SHARED)) heads /= 2;
    return heads;
}
static int32_t head_blocks(const gpu_attention *a) {
    const int32_t group = a->n_heads / a->kv.n_kv_heads, heads = heads_of(a);
    return a->kv.n_kv_heads * ((group + heads - 1) / heads);
}

// Whether the tensor cores compute attention over these pages.
static bool suits_mma(const gpu_attention *a) {
    const int32_t E = a->kv.head_dim, Ev = a->kv.v_dim;
    return !a->both_ways && a->kv.type == GPU_BF16 && E % MMA_TILE == 0 && E <= 256 && Ev % MMA_TILE == 0 &&
           Ev <= 256 && a->scale > 0;
}

static size_t general_scratch(const gpu_attention *a, size_t *counters) {
    const size_t blocks = (size_t)head_blocks(a);
    *counters = SHARED_ROWS * blocks * sizeof(int32_t);
    return (size_t)a->room * blocks * (size_t)partial_floats(heads_of(a), a->kv.v_width) * sizeof(float);
}

size_t gpu_attention_scratch(const gpu_attention *a, size_t *counters) {
    size_t more = 0;
    const size_t bytes = general_scratch(a, counters);
    if (!suits_mma(a)) return bytes;
    const size_t rows = attention_rows_scratch(a, &more);
    *counters = *counters > more ? *counters : more;
    return bytes > rows ? bytes : rows;
}

template <typename T, int HEADS>
static void launch(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                   const gpu_array *y) {
    const int32_t groups = head_blocks(a), rows = grid_rows(l, y->rows);
    const dim3 grid(sharing_blocks(rows, 4 * l->n_multiprocessors / groups + 1), (unsigned)groups);
    const size_t bytes = (size_t)shared_floats(HEADS, a->kv) * sizeof(float);
    run(l, grid, THREADS, bytes, attention<T, HEADS>, *s, *a, *q, *y);
}

int gpu_attention_paged(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                        const gpu_array *y) {
    if (suits_mma(a) && q->type == GPU_BF16 && attention_mma_shared(a) <= l->shared_limit) {
        const bool few = grid_rows(l, y->rows) <= GPU_FEW_ROWS;
        if (!few) attention_tiles(l, s, a, q, y);
        if (few || l->B > 1) attention_rows(l, s, a, q, NULL, y);
        return (int)cudaGetLastError();
    }
    const int heads = heads_of(a);
    const bool narrow = a->kv.type == GPU_BF16;
    if (a->kv.q8) {
        if (heads == 4) launch<int8_t, 4>(l, s, a, q, y);
        else if (heads == 2) launch<int8_t, 2>(l, s, a, q, y);
        else launch<int8_t, 1>(l, s, a, q, y);
    } else if (heads == 4 && narrow) launch<uint16_t, 4>(l, s, a, q, y);
    else if (heads == 4) launch<float, 4>(l, s, a, q, y);
    else if (heads == 2 && narrow) launch<uint16_t, 2>(l, s, a, q, y);
    else if (heads == 2) launch<float, 2>(l, s, a, q, y);
    else if (narrow) launch<uint16_t, 1>(l, s, a, q, y);
    else launch<float, 1>(l, s, a, q, y);
    return (int)cudaGetLastError();
}

bool gpu_has_attention_heads(const gpu_attention *a, const gpu_heads *h, int32_t shared_limit) {
    return suits_mma(a) && h->y.type == GPU_BF16 && attention_mma_shared(a) <= shared_limit;
}
int gpu_attention_heads(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_heads *h,
                        const gpu_array *y) {
    attention_rows(l, s, a, &h->y, h, y);
    return (int)cudaGetLastError();
}

template <typename T, int HEADS> static cudaError_t raise_limit(void) {
    return cudaFuncSetAttribute((const void *)attention<T, HEADS>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, MAX_SHARED);
}
int gpu_attention_open(int32_t shared_limit) {
    const cudaError_t of[] = {attention_rows_open(shared_limit), attention_tiles_open(shared_limit),
                              raise_limit<uint16_t, 4>(),        raise_limit<uint16_t, 2>(),
                              raise_limit<uint16_t, 1>(),        raise_limit<float, 4>(),
                              raise_limit<float, 2>(),           raise_limit<float, 1>(),
                              raise_limit<int8_t, 4>(),          raise_limit<int8_t, 2>(),
                              raise_limit<int8_t, 1>()};
    for (const cudaError_t e : of)
        if (e != cudaSuccess) return (int)e;
    return 0;
}
