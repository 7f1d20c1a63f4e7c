// Kernels that write rows of a weight into its packed form (fragments.cuh). They read pinned host memory, so
// that an upload needs no buffer in device memory.
#include "fragments.cuh"

// A thread packs 8 columns of a row: 16 contiguous bytes of the host, four words of the packed weight.
__global__ void pack_dense(gpu_packing p) {
    const int64_t pieces = p.cols / 8, n = (p.n + p.n_zero) * pieces;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / pieces, k = i % pieces * 8;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < p.n) v = ((const uint4 *)p.from)[i];
        uint32_t *to = (uint32_t *)p.to + dense_index(p.cols, p.row0 + r, k) / 2;
        to[0] = v.x, to[4] = v.y, to[8] = v.z, to[12] = v.w; // four lanes, 4 words each
    }
}

// Codes of 4 bits: a thread packs 32 of them of a row. Byte t of each of their four words belongs to lane t
// of the four that hold the row.
__global__ void pack_codes(gpu_packing p) {
    const int64_t chunks = p.cols / CHUNK, n = (p.n + p.n_zero) * chunks;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / chunks, k = i % chunks * CHUNK;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < p.n) v = ((const uint4 *)p.from)[i];
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        uint32_t *to = (uint32_t *)p.to + code_word(4, p.cols, p.row0 + r, k);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < 4; j++)
                word |= (words[j] >> (8 * t) & 15u) << (4 * j) | (words[j] >> (8 * t + 4) & 15u)
                                                                     << (16 + 4 * j);
            to[2 * t] = word;
        }
    }
}

// Codes of 8 bits: a thread packs 16 of them of a row. Bytes 2 t and 2 t + 1 of each half of them belong to
// lane t of the four that hold the row.
__global__ void pack_bytes(gpu_packing p) {
    const int64_t pieces = p.cols / 16, n = (p.n + p.n_zero) * pieces;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / pieces, k = i % pieces * 16;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < p.n) v = ((const uint4 *)p.from)[i];
        uint32_t *to = (uint32_t *)p.to + code_word(8, p.cols, p.row0 + r, k);
        to[0] = __byte_perm(v.x, v.z, 0x5140), to[2] = __byte_perm(v.x, v.z, 0x7362);
        to[4] = __byte_perm(v.y, v.w, 0x5140), to[6] = __byte_perm(v.y, v.w, 0x7362);
    }
}

// Packs scales (which 0) or biases (which 1) of rows. T: an unsigned integer of the elements' size.
template <typename T> __global__ void pack_scales(gpu_packing p, int which) {
    const int64_t n = (p.n + p.n_zero) * p.cols;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / p.cols;
        const T x = r < p.n ? ((const T *)p.from)[i] : (T)0;
        ((T *)p.to)[2 * scale_index(p.cols, p.row0 + r, i % p.cols) + which] = x;
        if (which == 0 && p.large_scales && (x & 0x7fff) >= SCALES_BELOW) *p.large_scales = 1;
    }
}

int gpu_pack_rows(void *stream, const gpu_packing *p) {
    enum { BLOCKS = 512, THREADS = 256 };
    const cudaStream_t st = (cudaStream_t)stream;
    switch (p->part) {
    case GPU_PACK_DENSE: pack_dense<<<BLOCKS, THREADS, 0, st>>>(*p); break;
    case GPU_PACK_CODES:
        if (p->bits == 8) pack_bytes<<<BLOCKS, THREADS, 0, st>>>(*p);
        else pack_codes<<<BLOCKS, THREADS, 0, st>>>(*p);
        break;
    default:
        if (p->element == 4)
            pack_scales<uint32_t><<<BLOCKS, THREADS, 0, st>>>(*p, p->part == GPU_PACK_BIASES);
        else pack_scales<uint16_t><<<BLOCKS, THREADS, 0, st>>>(*p, p->part == GPU_PACK_BIASES);
    }
    return (int)cudaGetLastError();
}
