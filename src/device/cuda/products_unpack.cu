// Weights in groups as bf16: for products of many rows, for which no kernel reads the codes.
//
// An element has the bits that the kernel of few rows multiplies with (products_forms.cuh): s q + b rounded
// to bf16 once if scales are bf16, else by way of f32. So the product has the bits of that kernel too.
#include "fragments.cuh"

__device__ inline uint32_t code_at(const gpu_weight &w, int64_t d, int64_t k) {
    if (w.form != GPU_FRAGMENTS) return affine_code(affine_row(w, d), w.bits, k);
    const uint32_t word = ((const uint32_t *)w.data)[code_word(w.bits, w.C, d, k)];
    return word >> code_shift(w.bits, k) & ((1u << w.bits) - 1u);
}
__device__ inline float scale_at(const gpu_weight &w, int64_t d, int64_t group, bool bias) {
    const int64_t groups = w.C / w.group;
    if (w.form == GPU_FRAGMENTS)
        return load_element(w.scales, w.type, 2 * scale_index(groups, d, group) + (bias ? 1 : 0));
    return load_element(bias ? w.biases : w.scales, w.type, d * groups + group);
}
template <bool BF16> __device__ inline uint32_t element_pair(float s, float b, uint32_t numbers) {
    affine_pair<BF16> p;
    p.set(s, b);
    return p.of_numbers(numbers);
}

// The elements (d, k) and (d, k + 1), zeros behind the last row.
__device__ inline uint32_t pair_at(const gpu_weight &w, int64_t d, int64_t k) {
    if (d >= w.D) return 0;
    const uint32_t q =
        round_pair(number_of(w.numbers, code_at(w, d, k)), number_of(w.numbers, code_at(w, d, k + 1)));
    const float s = scale_at(w, d, k / w.group, false), b = scale_at(w, d, k / w.group, true);
    return w.type == GPU_BF16 ? element_pair<true>(s, b, q) : element_pair<false>(s, b, q);
}

// A thread makes a word, of two elements of a row.
__global__ void unpack(gpu_weight w, int64_t d0, int64_t rows, uint32_t *to) {
    begin();
    const int64_t words = rows * (w.C / 2);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t tile = i / (8 * w.C), in_tile = i % (8 * w.C), k16 = in_tile / 128;
        const int32_t lane = (int32_t)(in_tile % 128 / 4), r = (int32_t)(in_tile % 4);
        const int64_t d = d0 + tile * TILE_ROWS + lane / 4 + 8 * (r % 2),
                      k = k16 * MMA_K + 8 * (r / 2) + lane % 4 * 2;
        to[i] = pair_at(w, d, k);
    }
}

// ---- the transpose ----

__device__ inline uint32_t transposed(uint32_t a) {
    uint32_t d;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
// A lane's four words of a tile of 16 x 16 elements (fragments.cuh); zeros behind the last row.
__device__ inline uint4 tile_words(const gpu_weight &w, int64_t tile, int64_t k16, int32_t lane) {
    if (tile * TILE_ROWS >= w.D) return make_uint4(0, 0, 0, 0);
    if (!w.bits) return ((const uint4 *)w.data)[(tile * (w.C / MMA_K) + k16) * 32 + lane];
    const int64_t d = tile * TILE_ROWS + lane / 4, k = k16 * MMA_K + lane % 4 * 2;
    return make_uint4(pair_at(w, d, k), pair_at(w, d + 8, k), pair_at(w, d, k + 8), pair_at(w, d + 8, k + 8));
}
// A warp transposes a tile: each of its four blocks of 8 x 8 elements, and the two off the diagonal change
// places.
enum { AT_ONCE = 4 }; // tiles that a warp reads before it writes them
__global__ void transpose(gpu_weight w, int64_t d0, int64_t n, uint4 *to) {
    begin();
    const uint32_t across = (uint32_t)(n / TILE_ROWS), tiles = across * (uint32_t)(w.C / MMA_K),
                   step = gridDim.x * (blockDim.x / 32);
    const int32_t lane = (int32_t)threadIdx.x % 32;
    for (uint32_t i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < tiles; i += AT_ONCE * step) {
        uint4 t[AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t at = i + k * step;
            if (at < tiles) t[k] = tile_words(w, d0 / TILE_ROWS + at % across, at / across, lane);
        }
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t at = i + k * step;
            if (at < tiles)
                to[(int64_t)at * 32 + lane] = make_uint4(transposed(t[k].x), transposed(t[k].z),
                                                         transposed(t[k].y), transposed(t[k].w));
        }
    }
}

gpu_weight transposed_part(const gpu_launch *l, const gpu_weight *w, int64_t d0, int64_t n, void *to) {
    enum { THREADS = 256 };
    const int64_t blocks = n / TILE_ROWS * (w->C / MMA_K) / (THREADS / 32) + 1,
                  most = 16 * (int64_t)l->n_multiprocessors;
    run(l, dim3((unsigned)(blocks < most ? blocks : most)), THREADS, 0, transpose, *w, d0, n, (uint4 *)to);
    gpu_weight part = {};
    part.data = to, part.D = w->C, part.C = n, part.type = GPU_BF16, part.form = GPU_FRAGMENTS;
    return part;
}

gpu_weight unpacked_part(const gpu_launch *l, const gpu_weight *w, int64_t d0, int64_t n, void *to) {
    enum { THREADS = 256 };
    const int64_t rows = (n + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, blocks = rows * w->C / 2 / THREADS + 1,
                  most = 16 * (int64_t)l->n_multiprocessors;
    run(l, dim3((unsigned)(blocks < most ? blocks : most)), THREADS, 0, unpack, *w, d0, rows, (uint32_t *)to);
    gpu_weight part = {};
    part.data = to, part.D = n, part.C = w->C, part.type = GPU_BF16, part.form = GPU_FRAGMENTS;
    return part;
}
