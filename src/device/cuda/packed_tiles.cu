// Attention over the rows of a step and its gradient on tensor cores, of bf16 operands with sums in f32.
//
// A block has 64 rows of one head as its own, queries or keys, 16 for each of its four warps, and walks the
// rows that see them or that they see, `OTHER` at a time, in ascending order:
//
//     s, d     own rows times the others: q k^T and dy v^T, or their transposes, by mma.sync.m16n8k16
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
// Tiles are [64 or OTHER][WIDTH + 8] bf16 in shared memory, those of the other rows twice: the next ones are
// copied while the present ones are multiplied. Rows are an odd number of 16-byte vectors apart, so ldmatrix
// has no bank conflicts. A sum is one chain of mma over ascending rows, whatever the grid.
#include "attention_mma.cuh"
#include "packed_rows.cuh"

enum { TILE_OWN = 64, TILES_THREADS = 128 };
#define LOG2_E 1.44269504088896341f
#define LN_2   0.69314718055994531f

static inline int launched(void) { return (int)cudaGetLastError(); }

template <int ROLE, int WIDTH> struct tile_shape {
    enum {
        OTHER = ROLE == PACKED_BOTH ? 32 : 64,
        PITCH = 2 * WIDTH + 16,
        OWN_BYTES = TILE_OWN * PITCH,
        OTHER_BYTES = OTHER * PITCH,
        TWO_OWN = ROLE == PACKED_FORWARD || ROLE == PACKED_VALUES ? 1 : 2,
        NUMBERS = OTHER * 3 * 4, // lse, delta and first row of the other rows
        SHARED = TWO_OWN * OWN_BYTES + 2 * (2 * OTHER_BYTES + NUMBERS)
    };
};

// Copies rows row0 .. row0 + n - 1 of a head, `width` columns from col0 on, to a tile of ROWS rows; zeros
// elsewhere.
template <int ROWS, int WIDTH>
__device__ void copy_tile(char *to, const gpu_array &a, int32_t row0, int32_t n, int32_t col0,
                          int32_t width) {
    enum { VECTORS = WIDTH / 8, PITCH = 2 * WIDTH + 16 };
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < ROWS * VECTORS; i += TILES_THREADS) {
        const int row = i / VECTORS, v = i % VECTORS;
        const bool exists = row < n && 8 * v < width;
        const int64_t at = exists ? (int64_t)(row0 + row) * a.pitch + col0 + 8 * v : 0;
        copy_vector(shared_address(to + row * PITCH + 16 * v), (const uint16_t *)a.data + at, exists);
    }
}

// s[n] = 16 own rows from row0 on times the other rows 8 n .. 8 n + 7.
template <int N, int WIDTH>
__device__ void scores(float (&s)[N][4], const char *own, int row0, const char *other) {
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
__device__ void add_weighted(float (&out)[WIDTH / 8][4], const float (&w)[N][4], const char *other) {
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

// Stores the sums of a warp's rows times `by`, one factor for rows 0 to 7 and one for 8 to 15.
template <int WIDTH>
__device__ void store_tile(const gpu_array &y, const float (&sum)[WIDTH / 8][4], int32_t row, int32_t end,
                           int64_t col0, int32_t width, float low, float high) {
    const int32_t col = (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        const int32_t r = row + i % 4 / 2 * 8, c = i / 4 * 8 + col + i % 2;
        if (r < end && c < width) store_at(y, r, col0 + c, sum[i / 4][i % 4] * (i % 4 < 2 ? low : high));
    }
}

// The other rows of iteration i of a block: a head of the group, and rows from o0 on.
template <int ROLE, int OTHER> struct walk {
    const packed_range<ROLE, TILE_OWN> &range;
    int32_t tiles;
    __device__ walk(const packed_range<ROLE, TILE_OWN> &of)
        : range(of), tiles((of.end - of.from + OTHER - 1) / OTHER) {}
    __device__ int32_t n(void) const { return tiles * range.n_heads; }
    __device__ int32_t head(int32_t i) const { return range.head0 + i / tiles; }
    __device__ int32_t row0(int32_t i) const { return range.from + i % tiles * OTHER; }
    __device__ int32_t rows(int32_t i) const {
        const int32_t left = range.end - row0(i);
        return left < OTHER ? left : OTHER;
    }
};

template <int ROLE, int WIDTH>
__device__ void copy_others(char *to, const gpu_step &s, const gpu_packed &p,
                            const walk<ROLE, tile_shape<ROLE, WIDTH>::OTHER> &w, int32_t i) {
    typedef tile_shape<ROLE, WIDTH> shape;
    if (i < w.n()) {
        const int32_t h = w.head(i), o0 = w.row0(i), n = w.rows(i), kv = w.range.kv_head, E = p.head_dim,
                      Ev = p.v_dim;
        if (is_of_queries(ROLE)) {
            copy_tile<shape::OTHER, WIDTH>(to, p.k, o0, n, kv * E, E);
            copy_tile<shape::OTHER, WIDTH>(to + shape::OTHER_BYTES, p.v, o0, n, kv * Ev, Ev);
        } else {
            copy_tile<shape::OTHER, WIDTH>(to, p.q, o0, n, h * E, E);
            copy_tile<shape::OTHER, WIDTH>(to + shape::OTHER_BYTES, p.dy, o0, n, h * Ev, Ev);
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

template <int ROLE, int WIDTH>
__global__ void __launch_bounds__(TILES_THREADS)
    packed_tiles(const __grid_constant__ gpu_step s, const __grid_constant__ gpu_packed p) {
    typedef tile_shape<ROLE, WIDTH> shape;
    enum { N = shape::OTHER / 8, STAGE = 2 * shape::OTHER_BYTES + shape::NUMBERS };
    extern __shared__ __align__(128) char packed_shared[];
    begin();
    const packed_range<ROLE, TILE_OWN> range(s, p, (int32_t)blockIdx.x);
    if (range.n_own <= 0) return;
    constexpr bool of_queries = is_of_queries(ROLE), has_d = ROLE != PACKED_FORWARD && ROLE != PACKED_VALUES;
    const int32_t E = p.head_dim, Ev = p.v_dim, lane = (int32_t)threadIdx.x % 32,
                  row0 = (int32_t)threadIdx.x / 32 * 16, end = range.own0 + range.n_own;
    const walk<ROLE, shape::OTHER> walk(range);
    char *own = packed_shared, *own2 = own + shape::OWN_BYTES,
         *others = packed_shared + shape::TWO_OWN * shape::OWN_BYTES;
    const gpu_array &first_own = of_queries ? p.q : p.k, &second_own = of_queries ? p.dy : p.v;
    copy_tile<TILE_OWN, WIDTH>(own, first_own, range.own0, range.n_own,
                               (of_queries ? range.head0 : range.kv_head) * E, E);
    if (has_d)
        copy_tile<TILE_OWN, WIDTH>(own2, second_own, range.own0, range.n_own,
                                   (of_queries ? range.head0 : range.kv_head) * Ev, Ev);
    copy_others<ROLE, WIDTH>(others, s, p, walk, 0);
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
    for (int32_t it = 0; it < walk.n(); it++) {
        char *tile = others + it % 2 * STAGE, *tile2 = tile + shape::OTHER_BYTES;
        copy_others<ROLE, WIDTH>(others + (it + 1) % 2 * STAGE, s, p, walk, it + 1);
        wait_copies<1>();
        __syncthreads();
        const float *numbers = (const float *)(tile + 2 * shape::OTHER_BYTES);
        const int32_t o0 = walk.row0(it), n_other = walk.rows(it);
        float w[N][4], d[has_d ? N : 2][4];
        scores<N, WIDTH>(w, own, row0, tile);
        if constexpr (has_d) scores<N, WIDTH>(d, own2, row0, tile2);
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
            add_weighted<N, WIDTH>(out, w, tile2);
        }
        if constexpr (ROLE == PACKED_VALUES) add_weighted<N, WIDTH>(out, w, tile2);
        if constexpr (ROLE == PACKED_BOTH) add_weighted<N, WIDTH>(values, w, tile2);
        if constexpr (has_d) add_weighted<N, WIDTH>(out, d, tile);
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
        store_tile<WIDTH>(p.y, out, row, end, (int64_t)range.head0 * Ev, Ev, inverse[0], inverse[1]);
    } else if constexpr (ROLE == PACKED_QUERIES)
        store_tile<WIDTH>(p.dq, out, row, end, (int64_t)range.head0 * E, E, p.scale, p.scale);
    else if constexpr (ROLE == PACKED_VALUES)
        store_tile<WIDTH>(p.dv, out, row, end, (int64_t)range.kv_head * Ev, Ev, 1.0f, 1.0f);
    else store_tile<WIDTH>(p.dk, out, row, end, (int64_t)range.kv_head * E, E, p.scale, p.scale);
    if constexpr (ROLE == PACKED_BOTH)
        store_tile<WIDTH>(p.dv, values, row, end, (int64_t)range.kv_head * Ev, Ev, 1.0f, 1.0f);
}

// ---- launches ----

static bool is_bf16(const gpu_array *a) { return a->type == GPU_BF16 && a->pitch % 8 == 0; }
bool packed_has_tiles(const gpu_packed *p) {
    return is_bf16(&p->q) && is_bf16(&p->k) && is_bf16(&p->v) && (!p->dy.data || is_bf16(&p->dy)) &&
           p->head_dim % 8 == 0 && p->v_dim % 8 == 0 && p->head_dim <= 256 && p->v_dim <= 256;
}
static int width_of(const gpu_packed *p) {
    const int most = p->head_dim > p->v_dim ? p->head_dim : p->v_dim;
    return most <= 64 ? 64 : most <= 128 ? 128 : 256;
}

template <int ROLE, int WIDTH>
static void run_role(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    const dim3 grid((unsigned)((l->T + TILE_OWN - 1) / TILE_OWN),
                    (unsigned)(is_of_queries(ROLE) ? p->n_heads : p->n_kv_heads));
    run(l, grid, TILES_THREADS, (tile_shape<ROLE, WIDTH>::SHARED), packed_tiles<ROLE, WIDTH>, *s, *p);
}
int packed_tiles_forward(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    switch (width_of(p)) {
    case 64: run_role<PACKED_FORWARD, 64>(l, s, p); break;
    case 128: run_role<PACKED_FORWARD, 128>(l, s, p); break;
    default: run_role<PACKED_FORWARD, 256>(l, s, p);
    }
    return launched();
}
int packed_tiles_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p) {
    switch (width_of(p)) {
    case 64: run_role<PACKED_QUERIES, 64>(l, s, p), run_role<PACKED_BOTH, 64>(l, s, p); break;
    case 128: run_role<PACKED_QUERIES, 128>(l, s, p), run_role<PACKED_BOTH, 128>(l, s, p); break;
    default:
        run_role<PACKED_QUERIES, 256>(l, s, p);
        run_role<PACKED_KEYS, 256>(l, s, p);
        run_role<PACKED_VALUES, 256>(l, s, p);
    }
    return launched();
}

template <int ROLE, int WIDTH> static int open_role(int32_t shared_limit) {
    if (tile_shape<ROLE, WIDTH>::SHARED > shared_limit) return 0;
    return (int)cudaFuncSetAttribute((const void *)packed_tiles<ROLE, WIDTH>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     tile_shape<ROLE, WIDTH>::SHARED);
}
int packed_tiles_open(int32_t shared_limit) {
    int (*const roles[])(int32_t) = {open_role<PACKED_FORWARD, 64>,  open_role<PACKED_QUERIES, 64>,
                                     open_role<PACKED_BOTH, 64>,     open_role<PACKED_FORWARD, 128>,
                                     open_role<PACKED_QUERIES, 128>, open_role<PACKED_BOTH, 128>,
                                     open_role<PACKED_FORWARD, 256>, open_role<PACKED_QUERIES, 256>,
                                     open_role<PACKED_KEYS, 256>,    open_role<PACKED_VALUES, 256>};
    int error = 0;
    for (size_t i = 0; i < sizeof roles / sizeof *roles && !error; i++) error = roles[i](shared_limit);
    return error;
}
// Whether a block may have the shared memory of the largest kernel of this width.
bool packed_tiles_fit(const gpu_packed *p, int32_t shared_limit) {
    const int width = width_of(p), own = TILE_OWN * (2 * width + 16) * 2,
              others = 2 * (2 * 64 * (2 * width + 16) + 64 * 12);
    return own + others <= shared_limit;
}
