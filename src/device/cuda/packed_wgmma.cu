// Attention over the rows of a step on tensor cores by wgmma (packed_tiles.cuh), for compute capability 9.0:
// the build compiles this file for sm_90a only. The four warps of a block are one warpgroup.
//
// A tile is stored as panels of 64 columns, [rows][64] bf16 with a 128-byte swizzle. Both operands of the
// scores come from there; the weights are operand A in registers, and the other rows operand B, transposed.
#include "packed_tiles.cuh"
#include "hopper.cuh"

enum { PANEL_COLUMNS = 64, PANEL_ROW = 128, ROW_GROUP = 1024 }; // bytes of a row, and of eight

struct wgmma_engine {
    enum { ALIGN = ROW_GROUP };
    template <int ROLE, int WIDTH> static constexpr int others(void) {
        return WIDTH == 256 && ROLE == PACKED_QUERIES ? 32 : 64;
    }
    template <int WIDTH> static __host__ __device__ constexpr int row_bytes(void) { return 2 * WIDTH; }
    template <int ROWS, int WIDTH> static __device__ int vector_at(int row, int v) {
        return v / 8 * (ROWS * PANEL_ROW) + row * PANEL_ROW + ((v % 8) ^ (row % 8)) * 16;
    }
    // What copies wrote becomes visible to wgmma, which reads by another path.
    static __device__ void copied(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    template <int N> static __device__ void finish(float (&c)[N][4]) {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 4 * N; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
    }

    // s[n] = the own rows times the other rows 8 n .. 8 n + 7.
    template <int N, int WIDTH>
    static __device__ void scores(float (&s)[N][4], const char *own, int, const char *other) {
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++) {
            const int panel = k / 4, in_panel = k % 4 * 2;
            wgmma_tiles(s, rows_descriptor(own + panel * TILE_OWN * PANEL_ROW) + in_panel,
                        rows_descriptor(other + panel * 8 * N * PANEL_ROW) + in_panel, k > 0);
        }
        wgmma_commit();
    }
    // out[e] += the weights of the other rows times their columns 8 e .. 8 e + 7.
    template <int N, int WIDTH>
    static __device__ void add_weighted(float (&out)[WIDTH / 8][4], const float (&w)[N][4],
                                        const char *other) {
        uint32_t a[N / 2][4];
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            a[k][0] = bf16_pair(w[2 * k][0], w[2 * k][1]), a[k][1] = bf16_pair(w[2 * k][2], w[2 * k][3]);
            a[k][2] = bf16_pair(w[2 * k + 1][0], w[2 * k + 1][1]);
            a[k][3] = bf16_pair(w[2 * k + 1][2], w[2 * k + 1][3]);
        }
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < N / 2; k++)
            wgmma_weights(out, a[k], columns_descriptor(other + k * 2 * ROW_GROUP, 8 * N * PANEL_ROW));
        wgmma_commit();
    }
};

int packed_wgmma_forward(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    return forward_tiles<wgmma_engine>(l, s, p);
}
int packed_wgmma_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    return back_tiles<wgmma_engine>(l, s, p);
}
int packed_wgmma_open(int32_t shared_limit) { return open_tiles<wgmma_engine>(shared_limit); }
