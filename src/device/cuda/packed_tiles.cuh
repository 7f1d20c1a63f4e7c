// Attention over the rows of a step and its gradient on tensor cores, of bf16 operands with sums in f32: what
// the kernels of mma.sync (packed_tiles.cu) and of wgmma (packed_wgmma.cu) share. Both have the same bits.
//
// A block has 64 rows of one head as its own, queries or keys, 16 for each of its four warps, and walks the
// rows that see them or that they see, `OTHER` at a time, in ascending order:
//
//     s, d     own rows times the others: q k^T and dy v^T, or their transposes, over 16 columns at a time
//     P        2^(c s - lse log2(e)), c = scale log2(e); dS = P (d - delta)
//     out      += P or dS, rounded to bf16, times the other rows: the sums of s are operand A as they are
//
//                own rows     others          out += weight * others
//     FORWARD    q            k, v            y  += P  v      with a running maximum and sum
//     QUERIES    q, dy        k, v            dq += dS k
//     KEYS       k, v         q, dy           dk += dS q      of each head of the group
//     VALUES     k            q, dy           dv += P  dy
//     BOTH       k, v         q, dy           dk and dv
//
// Tiles of rows lie in shared memory, those of the other rows twice: the next ones are copied while the
// present ones are multiplied. A sum is one chain over ascending rows, 16 at a time, whatever the grid.
//
// An engine multiplies: how tiles lie in shared memory and which instructions are used. In the lanes of a
// warp, sums of both kinds of instructions lie in the same way.
#pragma once

#include "attention_mma.cuh"
#include "packed_rows.cuh"

enum { TILE_OWN = 64, TILES_THREADS = 128 };
#define LOG2_E 1.44269504088896341f
#define LN_2   0.69314718055994531f

// The memory of a block: its own rows, and two stages of other rows with their numbers.
template <class E, int ROLE, int WIDTH> struct tile_shape {
    enum {
        OTHER = E::template others<ROLE, WIDTH>(),
        OWN_BYTES = TILE_OWN * E::template row_bytes<WIDTH>(),
        OTHER_BYTES = OTHER * E::template row_bytes<WIDTH>(),
        TWO_OWN = ROLE == PACKED_FORWARD || ROLE == PACKED_VALUES ? 1 : 2,
        NUMBERS = (OTHER * 3 * 4 + E::ALIGN - 1) / E::ALIGN * E::ALIGN, // lse, delta, first row
        STAGE = 2 * OTHER_BYTES + NUMBERS,
        SHARED = TWO_OWN * OWN_BYTES + 2 * STAGE
    };
};

// Copies rows row0 .. row0 + n - 1 of a head, `width` columns from col0 on, to a tile of ROWS rows; zeros
// elsewhere. A thread has one vector of every STEP-th row.
template <class E, int ROWS, int WIDTH>
__device__ void copy_tile(char *to, const gpu_array &a, int32_t row0, int32_t n, int32_t col0,
                          int32_t width) {
    enum { VECTORS = WIDTH / 8, STEP = TILES_THREADS / VECTORS };
    const int v = (int)threadIdx.x % VECTORS, first = (int)threadIdx.x / VECTORS,
              rows = 8 * v < width ? n : 0;
    const uint16_t *data = (const uint16_t *)a.data,
                   *from = data + (int64_t)(row0 + first) * a.pitch + col0 + 8 * v;
    const uint32_t at = shared_address(to);
#pragma unroll
    for (int i = 0; i < ROWS / STEP; i++, from += STEP * a.pitch) {
        const int row = first + i * STEP;
        copy_vector(at + (uint32_t)E::template vector_at<ROWS, WIDTH>(row, v), row < rows ? from : data,
                    row < rows);
    }
}

// Two neighbours of a row.
__device__ inline void store_two(const gpu_array &a, int64_t row, int64_t col, float x, float y) {
    const int64_t at = row * a.pitch + col;
    if (at % 2) store_element(a.data, a.type, at, x), store_element(a.data, a.type, at + 1, y);
    else if (a.type == GPU_F32) *(float2 *)((float *)a.data + at) = make_float2(x, y);
    else *(uint32_t *)((uint16_t *)a.data + at) = f32_to_bf16(x) | (uint32_t)f32_to_bf16(y) << 16;
}
// Stores the sums of a warp's rows times `by`, one factor for rows 0 to 7 and one for 8 to 15.
template <int WIDTH>
__device__ void store_tile(const gpu_array &y, const float (&sum)[WIDTH / 8][4], int32_t row, int32_t end,
                           int64_t col0, int32_t width, float low, float high) {
    const int32_t col = (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i += 2) {
        const int32_t r = row + i % 4 / 2 * 8, c = i / 4 * 8 + col;
        const float by = i % 4 < 2 ? low : high;
        if (r < end && c < width)
            store_two(y, r, col0 + c, sum[i / 4][i % 4] * by, sum[i / 4][i % 4 + 1] * by);
    }
}

// The other rows that a block walks, OTHER at a time: of each head of the group in turn, rows from row0 on.
template <int ROLE, int OTHER> struct walk {
    int32_t head, row0, from, end, last_head;
    __device__ walk(const packed_range<ROLE, TILE_OWN> &of)
        : head(of.head0), row0(of.from), from(of.from), end(of.end), last_head(of.head0 + of.n_heads - 1) {
        if (from >= end) head = last_head + 1;
    }
    __device__ bool goes_on(void) const { return head <= last_head; }
    __device__ void next(void) {
        row0 += OTHER;
        if (row0 >= end) row0 = from, head++;
    }
    __device__ int32_t rows(void) const {
        const int32_t left = end - row0;
        return left < OTHER ? left : OTHER;
    }
};

template <class E, int ROLE, int WIDTH>
__device__ void copy_others(char *to, const gpu_step &s, const gpu_packed &p, int32_t kv,
                            const walk<ROLE, tile_shape<E, ROLE, WIDTH>::OTHER> &w) {
    typedef tile_shape<E, ROLE, WIDTH> shape;
    if (w.goes_on()) {
        const int32_t h = w.head, o0 = w.row0, n = w.rows(), D = p.head_dim, Dv = p.v_dim;
        if (is_of_queries(ROLE)) {
            copy_tile<E, shape::OTHER, WIDTH>(to, p.k, o0, n, kv * D, D);
            copy_tile<E, shape::OTHER, WIDTH>(to + shape::OTHER_BYTES, p.v, o0, n, kv * Dv, Dv);
        } else {
            copy_tile<E, shape::OTHER, WIDTH>(to, p.q, o0, n, h * D, D);
            copy_tile<E, shape::OTHER, WIDTH>(to + shape::OTHER_BYTES, p.dy, o0, n, h * Dv, Dv);
            float *numbers = (float *)(to + 2 * shape::OTHER_BYTES);
            if ((int)threadIdx.x < n) {
                const int32_t r = o0 + (int32_t)threadIdx.x;
                numbers[threadIdx.x] = load_at(p.lse, r, h) * LOG2_E;
                numbers[shape::OTHER + threadIdx.x] = p.delta[(int64_t)r * p.n_heads + h];
                ((int32_t *)numbers)[2 * shape::OTHER + threadIdx.x] = first_seen(s, p.window, r);
            }
        }
    }
    end_copies();
}

// What a thread knows of its two own rows, g and g + 8 of its warp's.
struct own_rows {
    int32_t row[2], first[2]; // first: for queries
    float lse[2], delta[2];   // lse in base 2
    float M[2], L[2];         // of the forward pass
};

// What turns the scores of a tile into weights: P and dS, of the forward pass scaled scores and their most.
struct tile_weights {
    const float *numbers; // of the other rows
    int32_t o0, n_other, end;
    float c, softcap, by;

    // Whether each own row of the warp and each other row of the tile see each other. The first rows that
    // rows see ascend with them.
    template <int ROLE, int OTHER> __device__ bool is_whole(int32_t own, const own_rows &r) const {
        constexpr bool of_queries = is_of_queries(ROLE);
        const int32_t last_own = own + 15, last = o0 + OTHER - 1;
        if (n_other < OTHER || last_own >= end) return false;
        if (of_queries) return last <= own && __shfl_sync(0xffffffffu, r.first[1], 31) <= o0;
        return last_own <= o0 && ((const int32_t *)numbers)[3 * OTHER - 1] <= own;
    }

    template <int ROLE, int N, bool MASKED, bool CAPPED, int D>
    __device__ void weigh(float (&w)[N][4], float (&d)[D][4], float (&most)[2], const own_rows &r) const {
        enum { OTHER = 8 * N };
        constexpr bool of_queries = is_of_queries(ROLE);
        const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            const int k = i % 4 / 2, o = i / 4 * 8 + lane % 4 * 2 + i % 2;
            float &x = w[i / 4][i % 4];
            float slope = 1.0f;
            if (CAPPED) {
                const float capped_score = capped(x, softcap, by), t = capped_score / softcap;
                slope = fmaf(-t, t, 1.0f);
                x = capped_score * LOG2_E;
            } else x = x * c;
            const int32_t query = of_queries ? r.row[k] : o0 + o, key = of_queries ? o0 + o : r.row[k],
                          first = !MASKED      ? 0
                                  : of_queries ? r.first[k]
                                               : ((const int32_t *)numbers)[2 * OTHER + o];
            const bool seen = !MASKED || (o < n_other && r.row[k] < end && key <= query && first <= key);
            if (ROLE == PACKED_FORWARD) {
                x = seen ? x : minus_infinity();
                most[k] = fmaxf(most[k], x);
                continue;
            }
            const float P = seen ? exp2_of(x - (of_queries ? r.lse[k] : numbers[o])) : 0.0f;
            x = P;
            if constexpr (D == N) {
                const float delta = of_queries ? r.delta[k] : numbers[OTHER + o];
                d[i / 4][i % 4] = seen ? P * (d[i / 4][i % 4] - delta) * slope : 0.0f;
            }
        }
    }
};

template <class E, int ROLE, int WIDTH>
__global__ void __launch_bounds__(TILES_THREADS)
    packed_tiles(const __grid_constant__ gpu_step s, const __grid_constant__ gpu_packed p) {
    typedef tile_shape<E, ROLE, WIDTH> shape;
    enum { N = shape::OTHER / 8, STAGE = shape::STAGE };
    extern __shared__ __align__(1024) char packed_shared[];
    begin();
    const packed_range<ROLE, TILE_OWN> range(s, p, (int32_t)blockIdx.x);
    if (range.n_own <= 0) return;
    constexpr bool of_queries = is_of_queries(ROLE), has_d = ROLE != PACKED_FORWARD && ROLE != PACKED_VALUES;
    const int32_t D = p.head_dim, Dv = p.v_dim, lane = (int32_t)threadIdx.x % 32,
                  row0 = (int32_t)threadIdx.x / 32 * 16, end = range.own0 + range.n_own;
    walk<ROLE, shape::OTHER> now(range), then = now;
    char *own = packed_shared, *own2 = own + shape::OWN_BYTES,
         *others = packed_shared + shape::TWO_OWN * shape::OWN_BYTES;
    const gpu_array &first_own = of_queries ? p.q : p.k, &second_own = of_queries ? p.dy : p.v;
    copy_tile<E, TILE_OWN, WIDTH>(own, first_own, range.own0, range.n_own,
                                  (of_queries ? range.head0 : range.kv_head) * D, D);
    if (has_d)
        copy_tile<E, TILE_OWN, WIDTH>(own2, second_own, range.own0, range.n_own,
                                      (of_queries ? range.head0 : range.kv_head) * Dv, Dv);
    copy_others<E, ROLE, WIDTH>(others, s, p, range.kv_head, now);
    own_rows r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        r.row[i] = range.own0 + row0 + lane / 4 + 8 * i;
        const int32_t here = r.row[i] < end ? r.row[i] : end - 1;
        r.first[i] = of_queries ? first_seen(s, p.window, here) : 0;
        r.lse[i] = ROLE == PACKED_QUERIES ? load_at(p.lse, here, range.head0) * LOG2_E : 0.0f;
        r.delta[i] = ROLE == PACKED_QUERIES ? p.delta[(int64_t)here * p.n_heads + range.head0] : 0.0f;
        r.M[i] = p.sinks ? load_element(p.sinks, p.sink_type, range.head0) * LOG2_E : minus_infinity();
        r.L[i] = p.sinks && lane % 4 == 0 ? 1.0f : 0.0f; // the sum over the four lanes of a row
    }
    const float c = p.scale * LOG2_E, by = p.softcap > 0 ? 2.0f * LOG2_E * p.scale / p.softcap : 0.0f;
    float out[WIDTH / 8][4] = {}, values[ROLE == PACKED_BOTH ? WIDTH / 8 : 1][4] = {};
    for (int turn = 0; now.goes_on(); turn ^= 1, now = then) {
        char *tile = others + turn * STAGE, *tile2 = tile + shape::OTHER_BYTES;
        then.next();
        copy_others<E, ROLE, WIDTH>(others + (turn ^ 1) * STAGE, s, p, range.kv_head, then);
        wait_copies<1>();
        E::copied();
        __syncthreads();
        const float *numbers = (const float *)(tile + 2 * shape::OTHER_BYTES);
        const int32_t o0 = now.row0, n_other = now.rows();
        float w[N][4], d[has_d ? N : 2][4];
        E::template scores<N, WIDTH>(w, own, row0, tile);
        if constexpr (has_d) {
            E::template scores<N, WIDTH>(d, own2, row0, tile2);
            E::finish(d);
        }
        E::finish(w);
        float most[2] = {minus_infinity(), minus_infinity()};
        const tile_weights tile_of = {numbers, o0, n_other, end, c, p.softcap, by};
        if (p.softcap > 0) tile_of.template weigh<ROLE, N, true, true>(w, d, most, r);
        else if (tile_of.template is_whole<ROLE, shape::OTHER>(range.own0 + row0, r))
            tile_of.template weigh<ROLE, N, false, false>(w, d, most, r);
        else tile_of.template weigh<ROLE, N, true, false>(w, d, most, r);
        if constexpr (ROLE == PACKED_FORWARD) {
            float old[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                most[k] = fmaxf(most[k], __shfl_xor_sync(0xffffffffu, most[k], 1));
                most[k] = fmaxf(most[k], __shfl_xor_sync(0xffffffffu, most[k], 2));
                const float top = fmaxf(most[k], r.M[k]);
                old[k] = exp2_of(r.M[k] - base_of(top));
                r.M[k] = top;
                r.L[k] = r.L[k] * old[k];
            }
#pragma unroll
            for (int i = 0; i < 4 * N; i++) {
                const int k = i % 4 / 2;
                float &x = w[i / 4][i % 4];
                x = exp2_of(x - base_of(r.M[k]));
                r.L[k] = r.L[k] + x;
            }
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) out[i / 4][i % 4] = out[i / 4][i % 4] * old[i % 4 / 2];
        }
        if constexpr (ROLE == PACKED_FORWARD || ROLE == PACKED_VALUES)
            E::template add_weighted<N, WIDTH>(out, w, tile2);
        if constexpr (ROLE == PACKED_BOTH) E::template add_weighted<N, WIDTH>(values, w, tile2);
        if constexpr (has_d) E::template add_weighted<N, WIDTH>(out, d, tile);
        if constexpr (ROLE == PACKED_BOTH) E::finish(values);
        E::finish(out);
        __syncthreads();
    }
    wait_copies<0>();
    const int32_t row = range.own0 + row0 + lane / 4;
    if constexpr (ROLE == PACKED_FORWARD) {
        float inverse[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            r.L[k] = r.L[k] + __shfl_xor_sync(0xffffffffu, r.L[k], 1);
            r.L[k] = r.L[k] + __shfl_xor_sync(0xffffffffu, r.L[k], 2);
            inverse[k] = 1.0f / r.L[k];
            if (lane % 4 == 0 && r.row[k] < end)
                store_at(p.lse, r.row[k], range.head0, (r.M[k] + log2f(r.L[k])) * LN_2);
        }
        store_tile<WIDTH>(p.y, out, row, end, (int64_t)range.head0 * Dv, Dv, inverse[0], inverse[1]);
    } else if constexpr (ROLE == PACKED_QUERIES)
        store_tile<WIDTH>(p.dq, out, row, end, (int64_t)range.head0 * D, D, p.scale, p.scale);
    else if constexpr (ROLE == PACKED_VALUES)
        store_tile<WIDTH>(p.dv, out, row, end, (int64_t)range.kv_head * Dv, Dv, 1.0f, 1.0f);
    else store_tile<WIDTH>(p.dk, out, row, end, (int64_t)range.kv_head * D, D, p.scale, p.scale);
    if constexpr (ROLE == PACKED_BOTH)
        store_tile<WIDTH>(p.dv, values, row, end, (int64_t)range.kv_head * Dv, Dv, 1.0f, 1.0f);
}

static int width_of(const gpu_packed *p) {
    const int most = p->head_dim > p->v_dim ? p->head_dim : p->v_dim;
    return most <= 64 ? 64 : most <= 128 ? 128 : 256;
}

template <class E, int ROLE, int WIDTH>
static void run_role(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    const dim3 grid((unsigned)((l->T + TILE_OWN - 1) / TILE_OWN),
                    (unsigned)(is_of_queries(ROLE) ? p->n_heads : p->n_kv_heads));
    run(l, grid, TILES_THREADS, (tile_shape<E, ROLE, WIDTH>::SHARED), packed_tiles<E, ROLE, WIDTH>, *s, *p);
}
template <class E> static int forward_tiles(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    switch (width_of(p)) {
    case 64: run_role<E, PACKED_FORWARD, 64>(l, s, p); break;
    case 128: run_role<E, PACKED_FORWARD, 128>(l, s, p); break;
    default: run_role<E, PACKED_FORWARD, 256>(l, s, p);
    }
    return (int)cudaGetLastError();
}
template <class E> static int back_tiles(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    switch (width_of(p)) {
    case 64: run_role<E, PACKED_QUERIES, 64>(l, s, p), run_role<E, PACKED_BOTH, 64>(l, s, p); break;
    case 128: run_role<E, PACKED_QUERIES, 128>(l, s, p), run_role<E, PACKED_BOTH, 128>(l, s, p); break;
    default:
        run_role<E, PACKED_QUERIES, 256>(l, s, p);
        run_role<E, PACKED_KEYS, 256>(l, s, p);
        run_role<E, PACKED_VALUES, 256>(l, s, p);
    }
    return (int)cudaGetLastError();
}

template <class E, int ROLE, int WIDTH> static int open_role(int32_t shared_limit) {
    if (tile_shape<E, ROLE, WIDTH>::SHARED > shared_limit) return 0;
    return (int)cudaFuncSetAttribute((const void *)packed_tiles<E, ROLE, WIDTH>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     tile_shape<E, ROLE, WIDTH>::SHARED);
}
template <class E> static int open_tiles(int32_t shared_limit) {
    int (*const roles[])(int32_t) = {open_role<E, PACKED_FORWARD, 64>,  open_role<E, PACKED_QUERIES, 64>,
                                     open_role<E, PACKED_BOTH, 64>,     open_role<E, PACKED_FORWARD, 128>,
                                     open_role<E, PACKED_QUERIES, 128>, open_role<E, PACKED_BOTH, 128>,
                                     open_role<E, PACKED_FORWARD, 256>, open_role<E, PACKED_QUERIES, 256>,
                                     open_role<E, PACKED_KEYS, 256>,    open_role<E, PACKED_VALUES, 256>};
    int error = 0;
    for (size_t i = 0; i < sizeof roles / sizeof *roles && !error; i++) error = roles[i](shared_limit);
    return error;
}
