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

// Codes of 4 or 8 bits of 16 rows and 32 columns, a lane's part, and the scales of its rows g and g + 8.
template <int BITS> struct code_chunk {
    uint2 word[BITS / 4];
    float s[2], b[2];
    __device__ void load(const gpu_weight &w, int64_t tile, int64_t k32, int32_t lane) {
        const uint2 *from = (const uint2 *)w.data + (tile * (w.C / CHUNK) + k32) * (BITS / 4) * 32 + lane;
        const int64_t at = 2 * scale_index(w.C / w.group, tile * TILE_ROWS + lane / 4, k32 * CHUNK / w.group);
#pragma unroll
        for (int i = 0; i < BITS / 4; i++) word[i] = from[i * 32];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool exists = tile * TILE_ROWS + lane / 4 + 8 * h < w.D;
            s[h] = exists ? load_element(w.scales, w.type, at + 2 * h) : 0.0f;
            b[h] = exists ? load_element(w.scales, w.type, at + 2 * h + 1) : 0.0f;
        }
    }
    // Word i of the tile of columns 16 k ..
    template <bool BF16> __device__ uint32_t pair(int k, int i) const {
        affine_pair<BF16> by;
        by.set(s[i % 2], b[i % 2]);
        const uint2 &from = word[BITS == 8 ? k : 0];
        const uint32_t codes = i % 2 ? from.y : from.x;
        if (BITS == 8) return by.of_numbers(bytes_of(codes, i / 2));
        return by.of(codes_of(codes >> (4 * (i / 2 + 2 * k))));
    }
};
// The same as transpose for packed codes that are numbers: a warp has two neighbouring tiles.
template <int BITS, bool BF16>
__global__ void transpose_codes(gpu_weight w, int64_t d0, int64_t n, uint4 *to) {
    begin();
    const uint32_t across = (uint32_t)(n / TILE_ROWS), chunks = across * (uint32_t)(w.C / CHUNK),
                   step = gridDim.x * (blockDim.x / 32);
    const int32_t lane = (int32_t)threadIdx.x % 32;
    for (uint32_t i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < chunks; i += AT_ONCE * step) {
        code_chunk<BITS> c[AT_ONCE];
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) {
            const uint32_t at = i + j * step;
            if (at < chunks) c[j].load(w, d0 / TILE_ROWS + at % across, at / across, lane);
        }
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) {
            const uint32_t at = i + j * step;
            if (at >= chunks) break;
#pragma unroll
            for (int k = 0; k < 2; k++)
                to[((int64_t)(at / across * 2 + k) * across + at % across) * 32 + lane] =
                    make_uint4(transposed(c[j].template pair<BF16>(k, 0)),
                               transposed(c[j].template pair<BF16>(k, 2)),
                               transposed(c[j].template pair<BF16>(k, 1)),
                               transposed(c[j].template pair<BF16>(k, 3)));
        }
    }
}

typedef void transposer(gpu_weight, int64_t, int64_t, uint4 *);
static transposer *transposer_of(const gpu_weight *w) {
    const bool bf16 = w->type == GPU_BF16;
    if (w->form != GPU_FRAGMENTS || w->numbers) return transpose;
    if (w->bits == 4) return bf16 ? transpose_codes<4, true> : transpose_codes<4, false>;
    if (w->bits == 8) return bf16 ? transpose_codes<8, true> : transpose_codes<8, false>;
    return transpose;
}
gpu_weight transposed_part(const gpu_launch *l, const gpu_weight *w, int64_t d0, int64_t n, void *to) {
    enum { THREADS = 256 };
    const int64_t blocks = n / TILE_ROWS * (w->C / MMA_K) / (THREADS / 32) + 1,
                  most = 16 * (int64_t)l->n_multiprocessors;
    run(l, dim3((unsigned)(blocks < most ? blocks : most)), THREADS, 0, transposer_of(w), *w, d0, n,
        (uint4 *)to);
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
