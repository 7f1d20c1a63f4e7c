// Attention over the rows of a step on tensor cores by mma.sync (packed_tiles.cuh): any capability.
//
// Tiles are [rows][WIDTH + 8] bf16: rows are an odd number of 16-byte vectors apart, so ldmatrix has no bank
// conflicts.
#include "packed_tiles.cuh"

struct mma_engine {
    enum { ALIGN = 16 };
    template <int ROLE, int WIDTH> static constexpr int others(void) { return ROLE == PACKED_BOTH ? 32 : 64; }
    template <int WIDTH> static __host__ __device__ constexpr int row_bytes(void) { return 2 * WIDTH + 16; }
    template <int ROWS, int WIDTH> static __device__ int vector_at(int row, int v) {
        return row * row_bytes<WIDTH>() + 16 * v;
    }
    static __device__ void copied(void) {}
    template <int N> static __device__ void finish(float (&)[N][4]) {}

    // s[n] = 16 own rows from row0 on times the other rows 8 n .. 8 n + 7.
    template <int N, int WIDTH>
    static __device__ void scores(float (&s)[N][4], const char *own, int row0, const char *other) {
        enum { PITCH = 2 * WIDTH + 16 };
        const int lane = (int)threadIdx.x % 32, row = lane % 8, m = lane / 8;
        const uint32_t a_at = shared_address(own + (row0 + row + m % 2 * 8) * PITCH + m / 2 * 16),
                       b_at = shared_address(other + (row + m / 2 * 8) * PITCH + m % 2 * 16);
#pragma unroll
        for (int i = 0; i < 4 * N; i++) s[i / 4][i % 4] = 0;
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++) {
            uint32_t a[4], b[4];
            load_matrices(a, a_at + (uint32_t)k * 32);
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                load_matrices(b, b_at + (uint32_t)(n * 8 * PITCH + k * 32));
                multiply(s[n], a, b[0], b[1]);
                multiply(s[n + 1], a, b[2], b[3]);
            }
        }
    }
    // out[e] += the weights of the other rows times their columns 8 e .. 8 e + 7.
    template <int N, int WIDTH>
    static __device__ void add_weighted(float (&out)[WIDTH / 8][4], const float (&w)[N][4],
                                        const char *other) {
        enum { PITCH = 2 * WIDTH + 16 };
        const int lane = (int)threadIdx.x % 32, row = lane % 8, m = lane / 8;
        const uint32_t at = shared_address(other + (row + m % 2 * 8) * PITCH + m / 2 * 16);
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            const uint32_t a[4] = {bf16_pair(w[2 * k][0], w[2 * k][1]), bf16_pair(w[2 * k][2], w[2 * k][3]),
                                   bf16_pair(w[2 * k + 1][0], w[2 * k + 1][1]),
                                   bf16_pair(w[2 * k + 1][2], w[2 * k + 1][3])};
#pragma unroll
            for (int e = 0; e < WIDTH / 8; e += 2) {
                uint32_t b[4];
                load_transposed(b, at + (uint32_t)(k * 16 * PITCH + e * 16));
                multiply(out[e], a, b[0], b[1]);
                multiply(out[e + 1], a, b[2], b[3]);
            }
        }
    }
};

// ---- launches ----

static bool is_bf16(const gpu_array *a) { return a->type == GPU_BF16 && a->pitch % 8 == 0; }
bool packed_has_tiles(const gpu_packed *p) {
    return is_bf16(&p->q) && is_bf16(&p->k) && is_bf16(&p->v) && (!p->dy.data || is_bf16(&p->dy)) &&
           p->head_dim % 8 == 0 && p->v_dim % 8 == 0 && p->head_dim <= 256 && p->v_dim <= 256;
}
int packed_tiles_forward(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    return forward_tiles<mma_engine>(l, s, p);
}
int packed_tiles_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    return back_tiles<mma_engine>(l, s, p);
}
int packed_tiles_open(int32_t shared_limit) { return open_tiles<mma_engine>(shared_limit); }
// Whether a block may have the shared memory of the largest kernel of this width.
bool packed_tiles_fit(const gpu_packed *p, int32_t shared_limit) {
    const int width = width_of(p), own = TILE_OWN * (2 * width + 16) * 2,
              others = 2 * (2 * 64 * (2 * width + 16) + 64 * 12);
    return own + others <= shared_limit;
}
