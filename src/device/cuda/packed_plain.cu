// Attention over the rows of a step and its gradient, in f32 multiply-adds, for any width of heads.
//
// A block has 16 rows of one head as its own, queries or keys, and walks the rows that see them or that they
// see, 32 at a time, in ascending order:
//
//     s, dp    dot products of its own rows with the others, columns in ascending order
//     w        P = exp(s - lse) or dS = P (dP - delta), in shared memory
//     out      += w times the other rows; the sums are in the memory of the output, each element of which
//              belongs to one thread
//
// The forward pass keeps a running maximum and sum of each row, as attention over pages does.
#include "packed_rows.cuh"

enum { OWN = 16, OTHER = 32, PLAIN_THREADS = 256, WARPS = PLAIN_THREADS / 32, EACH = OWN / WARPS, CUT = 32 };

static inline int launched(void) { return (int)cudaGetLastError(); }

// Rows of one head of an array.
struct head_rows {
    const gpu_array &a;
    int64_t row0, col0;
    int32_t n; // rows that exist
    __device__ float at(int32_t row, int32_t col) const { return load_at(a, row0 + row, col0 + col); }
};

// d[i] = own row warp + WARPS i times other row lane, over `width` columns.
__device__ void dot_products(float (&d)[EACH], const head_rows &own, const head_rows &other, int32_t width) {
    __shared__ float a[OWN][CUT + 1], b[OTHER][CUT + 1];
    const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < EACH; i++) d[i] = 0;
    for (int32_t e = 0; e < width; e += CUT) {
        __syncthreads();
        for (int32_t r = warp; r < OWN; r += WARPS)
            a[r][lane] = r < own.n && e + lane < width ? own.at(r, e + lane) : 0.0f;
        for (int32_t r = warp; r < OTHER; r += WARPS)
            b[r][lane] = r < other.n && e + lane < width ? other.at(r, e + lane) : 0.0f;
        __syncthreads();
#pragma unroll 8
        for (int32_t k = 0; k < CUT; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++) d[i] = fmaf(a[warp + WARPS * i][k], b[lane][k], d[i]);
    }
}

// out = out * factor + w times the other rows; `first`: out has no value yet.
__device__ void add_rows(const head_rows &out, const float (*w)[OTHER + 1], const float *factor, bool first,
                         const head_rows &other, int32_t width) {
    enum { COLUMNS = 64, GROUPS = PLAIN_THREADS / COLUMNS, ROWS = OWN / GROUPS };
    const int32_t row = (int32_t)threadIdx.x / COLUMNS * ROWS;
    for (int32_t c = (int32_t)threadIdx.x % COLUMNS; c < width; c += COLUMNS) {
        float sum[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            sum[i] = first || row + i >= out.n ? 0.0f : out.at(row + i, c) * factor[row + i];
        for (int32_t o = 0; o < other.n; o++) {
            const float x = other.at(o, c);
#pragma unroll
            for (int i = 0; i < ROWS; i++) sum[i] = fmaf(w[row + i][o], x, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (row + i < out.n) store_at(out.a, out.row0 + row + i, out.col0 + c, sum[i]);
    }
}
__device__ void scale_rows(const head_rows &out, const float *factor, int32_t width) {
    for (int32_t i = (int32_t)threadIdx.x; i < out.n * width; i += PLAIN_THREADS)
        store_at(out.a, out.row0 + i / width, out.col0 + i % width,
                 out.at(i / width, i % width) * factor[i / width]);
}

// P, or dS, of a query i, a key j and their products.
template <int ROLE>
__device__ float weight_of_pair(const gpu_packed &p, int32_t i, int32_t h, float s, float dp) {
    const float w = ln_expf(s - load_at(p.lse, i, h));
    if (ROLE == PACKED_VALUES) return w;
    const float d = w * (dp - p.delta[(int64_t)i * p.n_heads + h]), t = s / p.softcap;
    return p.softcap > 0 ? d * (1.0f - t * t) : d;
}

template <int ROLE> __global__ void __launch_bounds__(PLAIN_THREADS) packed_plain(gpu_step s, gpu_packed p) {
    __shared__ float w[OWN][OTHER + 1], factor[OWN];
    begin();
    const packed_range<ROLE, OWN> range(s, p, (int32_t)blockIdx.x);
    if (range.n_own <= 0) return;
    const bool of_queries = is_of_queries(ROLE), of_keys = ROLE == PACKED_QUERIES || ROLE == PACKED_KEYS;
    const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32, E = p.head_dim,
                  Ev = p.v_dim, width = of_keys ? E : Ev;
    const int32_t out_head = of_queries ? range.head0 : range.kv_head;
    const gpu_array &to = ROLE == PACKED_FORWARD   ? p.y
                          : ROLE == PACKED_QUERIES ? p.dq
                          : ROLE == PACKED_KEYS    ? p.dk
                                                   : p.dv;
    const head_rows out = {to, range.own0, (int64_t)out_head * width, range.n_own};
    float M[EACH], L[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        M[i] = p.sinks ? load_element(p.sinks, p.sink_type, range.head0) : __uint_as_float(0xff800000u);
        L[i] = p.sinks ? 1.0f : 0.0f;
    }
    if (threadIdx.x < OWN) factor[threadIdx.x] = 1.0f;
    bool first = true;
    for (int32_t h = range.head0; h < range.head0 + range.n_heads; h++)
        for (int32_t o0 = range.from; o0 < range.end; o0 += OTHER, first = false) {
            const int32_t n = range.end - o0 < OTHER ? range.end - o0 : (int32_t)OTHER;
            const int32_t q0 = of_queries ? range.own0 : o0, k0 = of_queries ? o0 : range.own0,
                          nq = of_queries ? range.n_own : n, nk = of_queries ? n : range.n_own;
            const head_rows q = {p.q, q0, (int64_t)h * E, nq}, k = {p.k, k0, (int64_t)range.kv_head * E, nk},
                            v = {p.v, k0, (int64_t)range.kv_head * Ev, nk},
                            dy = {p.dy, q0, (int64_t)h * Ev, nq};
            float score[EACH], dp[EACH] = {};
            if (ROLE == PACKED_QUERIES) dot_products(dp, dy, v, Ev);
            if (ROLE == PACKED_KEYS) dot_products(dp, v, dy, Ev);
            dot_products(score, of_queries ? q : k, of_queries ? k : q, E);
#pragma unroll
            for (int a = 0; a < EACH; a++) {
                const int32_t own = range.own0 + warp + WARPS * a, other = o0 + lane,
                              i = of_queries ? own : other, j = of_queries ? other : own;
                const bool seen =
                    warp + WARPS * a < range.n_own && lane < n && j <= i && first_seen(s, p.window, i) <= j;
                float x = score[a] * p.scale;
                if (p.softcap > 0) x = ln_softcapf(x, p.softcap);
                if (ROLE == PACKED_FORWARD) {
                    float m = seen ? x : __uint_as_float(0xff800000u);
                    for (int b = 16; b > 0; b /= 2) {
                        const float y = __shfl_xor_sync(0xffffffffu, m, b);
                        m = y <= m || m != m ? m : y;
                    }
                    const float most = m <= M[a] ? M[a] : m,
                                base = most == __uint_as_float(0xff800000u) ? 0.0f : most;
                    x = seen ? ln_expf(x - base) : 0.0f;
                    const float old = ln_expf(M[a] - base);
                    L[a] = fmaf(L[a], old, warp_sum(x));
                    M[a] = most;
                    if (lane == 0) factor[warp + WARPS * a] = old;
                } else x = seen ? weight_of_pair<ROLE>(p, i, h, x, dp[a]) : 0.0f;
                w[warp + WARPS * a][lane] = x;
            }
            __syncthreads();
            add_rows(out, w, factor, first,
                     ROLE == PACKED_FORWARD   ? v
                     : ROLE == PACKED_QUERIES ? k
                     : ROLE == PACKED_KEYS    ? q
                                              : dy,
                     width);
            __syncthreads();
        }
#pragma unroll
    for (int a = 0; a < EACH; a++) {
        const int32_t r = warp + WARPS * a;
        if (lane > 0 || ROLE == PACKED_VALUES) continue;
        factor[r] = ROLE == PACKED_FORWARD ? 1.0f / L[a] : p.scale;
        if (ROLE == PACKED_FORWARD && r < range.n_own)
            store_at(p.lse, range.own0 + r, range.head0, M[a] + (float)log((double)L[a]));
    }
    __syncthreads();
    if (ROLE != PACKED_VALUES) scale_rows(out, factor, width);
}

// delta: the sum of dy y. A warp has a head of a row.
__global__ void packed_delta(gpu_step s, gpu_packed p, bool fours) {
    begin();
    const int64_t n = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int32_t r = (int32_t)(n / p.n_heads), h = (int32_t)(n % p.n_heads),
                  lane = (int32_t)threadIdx.x % 32;
    const int64_t at = (int64_t)h * p.v_dim;
    if (r >= s.head->n_rows) return;
    float sum = 0;
    for (int32_t e = 4 * lane; fours && e < p.v_dim; e += 128) {
        const float4 d = load_four(p.dy, r, at + e), y = load_four(p.y, r, at + e);
        sum = fmaf(d.x, y.x, sum), sum = fmaf(d.y, y.y, sum);
        sum = fmaf(d.z, y.z, sum), sum = fmaf(d.w, y.w, sum);
    }
    for (int32_t e = lane; !fours && e < p.v_dim; e += 32)
        sum = fmaf(load_at(p.dy, r, at + e), load_at(p.y, r, at + e), sum);
    sum = warp_sum(sum);
    if (lane == 0) p.delta[n] = sum;
}

static unsigned tiles_of(const gpu_launch *l) { return (unsigned)((l->T + OWN - 1) / OWN); }

static bool has_tiles(const gpu_launch *l, const gpu_packed *p) {
    return packed_has_tiles(p) && packed_tiles_fit(p, l->shared_limit);
}
static int forward_tiles(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
#ifdef GPU_HOPPER
    if (l->clusters > 0) return packed_wgmma_forward(l, s, p);
#endif
    return packed_tiles_forward(l, s, p);
}
static int back_tiles(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
#ifdef GPU_HOPPER
    if (l->clusters > 0) return packed_wgmma_back(l, s, p);
#endif
    return packed_tiles_back(l, s, p);
}

int gpu_packed_attention(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    if (has_tiles(l, p)) return forward_tiles(l, s, p);
    run(l, dim3(tiles_of(l), (unsigned)p->n_heads), PLAIN_THREADS, 0, packed_plain<PACKED_FORWARD>, *s, *p);
    return launched();
}

int gpu_packed_attention_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    const dim3 queries(tiles_of(l), (unsigned)p->n_heads), keys(tiles_of(l), (unsigned)p->n_kv_heads);
    run(l, (unsigned)(((int64_t)l->T * p->n_heads + 3) / 4), 128, 0, packed_delta, *s, *p,
        p->v_dim % 4 == 0 && has_fours(&p->dy) && has_fours(&p->y));
    if (has_tiles(l, p)) return back_tiles(l, s, p);
    run(l, queries, PLAIN_THREADS, 0, packed_plain<PACKED_QUERIES>, *s, *p);
    run(l, keys, PLAIN_THREADS, 0, packed_plain<PACKED_KEYS>, *s, *p);
    run(l, keys, PLAIN_THREADS, 0, packed_plain<PACKED_VALUES>, *s, *p);
    return launched();
}
