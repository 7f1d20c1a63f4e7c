// Attention of tiles of rows, for prompts (order of the arithmetic: attention_mma.cuh).
//
// A block has 128 rows of mma: 128 / heads tokens of one sequence, each with the query heads that share a
// key/value head. A warp has 16 of these rows. The block goes through the splits that its rows see; keys and
// values of the next split are copied to shared memory while those of the present one are multiplied. Blocks
// of late tokens, which see most splits, come first.
#include "attention_mma.cuh"

enum { TILE_THREADS = 256, TILE_ROWS = TILE_THREADS / 32 * MMA_TILE };

// Bytes of shared memory with one or two stages of keys and values. Queries of heads of more than 128 columns
// are in shared memory too.
template <int WIDTH> __host__ __device__ constexpr int32_t tile_bytes(int32_t stages) {
    return stages * 2 * split_tile<WIDTH>::BYTES + (WIDTH <= 128 ? 0 : TILE_ROWS * split_tile<WIDTH>::PITCH);
}

// The tile of a block: rows row .. row + n - 1 of the step, n = 0: none.
struct tile_rows {
    int32_t seq, row, n;
};
// Finds tile i of the step, counted from the last sequence's last tokens: a warp looks at 32 sequences at
// once.
__device__ inline tile_rows find_tile(const gpu_step &step, int32_t i, int32_t tokens) {
    const int32_t lane = (int32_t)threadIdx.x % 32, n_seqs = step.head->n_seqs;
    tile_rows t = {0, 0, 0};
    for (int32_t from = 0; from < n_seqs; from += 32) {
        const int32_t seq = from + lane;
        const int32_t row0 = seq < n_seqs ? step.row0[seq] : 0,
                      rows = seq < n_seqs ? step.row0[seq + 1] - row0 : 0;
        const int32_t tiles = rows <= MOST_SINGLE_ROWS ? 0 : (rows + tokens - 1) / tokens;
        int32_t sum = tiles;
        for (int m = 1; m < 32; m *= 2) {
            const int32_t below = __shfl_up_sync(0xffffffffu, sum, m);
            if (lane >= m) sum += below;
        }
        const bool here = i >= sum - tiles && i < sum;
        const uint32_t who = __ballot_sync(0xffffffffu, here);
        if (who) {
            const int32_t k = tiles - 1 - (i - (sum - tiles)), src = __ffs((int)who) - 1;
            t.seq = __shfl_sync(0xffffffffu, seq, src);
            t.row = __shfl_sync(0xffffffffu, row0 + k * tokens, src);
            t.n = __shfl_sync(0xffffffffu, min(rows - k * tokens, tokens), src);
            return t;
        }
        i -= __shfl_sync(0xffffffffu, sum, 31);
    }
    return t;
}

// A row of mma of this thread: its position, and the first position that it sees; pos = -1: there is no such
// row.
struct query {
    int32_t row, head, pos, first;
};

// What a block computes: `per` heads of each of up to `tokens` tokens. Row i of mma is head i % per of token
// i / per of the tile.
struct tile_work {
    const head_range heads;
    const int32_t per, tokens, window; // window 0: all positions are seen
    const tile_rows tile;
    int32_t pos0; // of the tile's first token

    __device__ inline tile_work(const gpu_attention &a, const gpu_step &step)
        : heads(a, (int32_t)blockIdx.x), per(mma_heads(a)), tokens(TILE_ROWS / per),
          window((int32_t)min(a.window, (int64_t)INT32_MAX)),
          tile(find_tile(step, (int32_t)blockIdx.y, tokens)), pos0(0) {}
    // The first position that a token at position pos sees.
    __device__ inline int32_t first_of(int32_t pos) const {
        return window > 0 && pos >= window ? pos - window + 1 : 0;
    }
    __device__ inline int32_t last(void) const { return pos0 + tile.n - 1; }
    __device__ inline bool has(int32_t token, int32_t head) const {
        return token < tile.n && token < tokens && head < heads.count;
    }
};

// The copies of keys and values of the splits that a block sees, to one or two stages in shared memory.
template <int WIDTH, bool Q8> struct tile_copies {
    enum { BYTES = split_tile<WIDTH>::BYTES };
    split_source source;
    char *memory;
    int32_t first, last, stages;

    __device__ inline char *stage_at(int32_t stage) const {
        return memory + (stages == 2 ? stage : 0) * 2 * BYTES;
    }
    // The page of this thread of the split at `base`.
    __device__ inline const char *find_page(int32_t base) const {
        return threadIdx.x < MMA_PAGES && base <= last
                   ? source.page(base, (int32_t)threadIdx.x, first, last + 1)
                   : NULL;
    }
    __device__ inline void start(const char *const *pages, int32_t base, int32_t stage) const {
        if (base <= last) {
            const int32_t lo = max(first - base, 0), hi = min(last + 1 - base, (int32_t)MMA_SPLIT);
            const int32_t begin = lo / 16 * 16, end = (hi + 15) / 16 * 16;
            if (Q8) {
                for (int which = 0; which < 2; which++)
                    decode_tile<WIDTH, TILE_THREADS>(stage_at(stage) + which * BYTES, source, pages, which,
                                                     base, begin, end, lo, hi);
                return;
            }
            const uint32_t to = shared_address(stage_at(stage));
            copy_tile<WIDTH, TILE_THREADS>(to, source, pages, source.keys, source.kv->width, base, begin, end,
                                           lo, hi);
            copy_tile<WIDTH, TILE_THREADS>(to + BYTES, source, pages, source.values, source.kv->v_width, base,
                                           begin, end, lo, hi);
        }
        end_copies();
    }
};

template <int WIDTH> struct tile_warp {
    enum { STEPS = WIDTH / 16, QUADS = WIDTH / 32, KEEPS_Q = WIDTH <= 128, SCORES = MMA_SPLIT / 8 };
    float s[SCORES][4], O[QUADS][4][4];
    running state[2];
    query rows[2];                            // g and g + 8 of the fragment
    int32_t first, last, all_first, all_last; // positions that some row sees; that all rows see

    // Scores of the split; minus infinity where a row does not see a position. WHOLE: some row of the warp
    // sees each.
    template <bool WHOLE>
    __device__ void scores(uint32_t keys, const uint32_t q[KEEPS_Q ? STEPS : 1][4], uint32_t q_at,
                           int32_t base, const gpu_attention &of) {
#pragma unroll
        for (int i = 0; i < SCORES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) s[i][j] = 0;
        const int32_t from = first - base, to = last + 1 - base;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t a[4];
            if (KEEPS_Q) {
#pragma unroll
                for (int i = 0; i < 4; i++) a[i] = q[KEEPS_Q ? k : 0][i];
            } else load_matrices(a, q_at + 32 * k);
#pragma unroll
            for (int i = 0; i < SCORES; i += 2) {
                if (!WHOLE && (8 * i + 16 <= from || 8 * i >= to)) continue;
                uint32_t b[4];
                key_fragments<WIDTH>(b, keys, 8 * i, k);
                multiply(s[i], a, b[0], b[1]);
                multiply(s[i + 1], a, b[2], b[3]);
            }
        }
        if (of.softcap > 0) cap_scores<SCORES>(s, of);
        if (all_first <= base && all_last >= base + MMA_SPLIT - 1) return;
        const int32_t t = (int32_t)threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < SCORES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int32_t pos = base + 8 * i + 2 * t + j % 2;
                if (pos > rows[j / 2].pos || pos < rows[j / 2].first) s[i][j] = minus_infinity();
            }
    }
    // Scores to weights, in bf16: w[k] is the fragment of step k of the positions. m: the rows' maxima.
    __device__ void weights(uint32_t w[SCORES / 2][4], float m[2], float c) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = minus_infinity();
#pragma unroll
            for (int i = 0; i < SCORES; i++) most = fmaxf(most, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            m[h] = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        }
        const float base[2] = {base_of(m[0]) * c, base_of(m[1]) * c};
#pragma unroll
        for (int i = 0; i < SCORES; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                w[i / 2][i % 2 * 2 + h] =
                    bf16_pair(weight_of(s[i][2 * h], base[h], c), weight_of(s[i][2 * h + 1], base[h], c));
    }
    // Adds the split's weighted values.
    template <bool WHOLE>
    __device__ void values(uint32_t tile, const uint32_t w[SCORES / 2][4], const float m[2], int32_t base,
                           float c) {
        const int32_t from = first - base, to = last + 1 - base;
        float l[4] = {};
#pragma unroll
        for (int k = 0; k < SCORES / 2; k++)
            if (WHOLE || (16 * k + 16 > from && 16 * k < to))
                multiply(l, w[k], 0x3f803f80u, 0x3f803f80u); // ones
        state[0].merge(m[0], l[0], c);
        state[1].merge(m[1], l[2], c);
#pragma unroll
        for (int n = 0; n < QUADS; n++) {
            float o[4][4] = {};
#pragma unroll
            for (int k = 0; k < SCORES / 2; k++) {
                if (!WHOLE && (16 * k + 16 <= from || 16 * k >= to)) continue;
                uint32_t b[2][4];
                value_fragments<WIDTH>(b[0], tile, k, 2 * n);
                value_fragments<WIDTH>(b[1], tile, k, 2 * n + 1);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    multiply(o[i], w[k], b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) O[n][i][j] = merged(O[n][i][j], o[i][j], state[j / 2]);
        }
    }
    template <bool WHOLE>
    __device__ void part(uint32_t keys, uint32_t tile, const uint32_t q[KEEPS_Q ? STEPS : 1][4],
                         uint32_t q_at, int32_t base, const gpu_attention &of) {
        uint32_t w[SCORES / 2][4];
        float m[2];
        const float c = exponent_of(of);
        scores<WHOLE>(keys, q, q_at, base, of);
        weights(w, m, c);
        values<WHOLE>(tile, w, m, base, c);
    }
    // Takes rows r0 .. r0 + 15 of mma.
    __device__ void open(const tile_work &b, int32_t r0, const gpu_attention &of) {
        const int32_t g = (int32_t)threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < 4 * QUADS * 4; i++) O[i / 16][i / 4 % 4][i % 4] = 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t i = r0 + g + 8 * h, token = i / b.per, head = i % b.per, pos = b.pos0 + token;
            const bool exists = b.has(token, head);
            rows[h] = {b.tile.row + token, b.heads.first + head, exists ? pos : -1,
                       exists ? b.first_of(pos) : INT32_MAX};
            state[h] = first_state(of, exists ? b.heads.first + head : 0);
        }
        const int32_t token0 = r0 / b.per, token1 = min((r0 + MMA_TILE - 1) / b.per, b.tile.n - 1);
        const bool idle = token0 >= b.tile.n,
                   whole = r0 + MMA_TILE <= b.tile.n * b.per && b.heads.count == b.per;
        first = idle ? INT32_MAX : b.first_of(b.pos0 + token0), last = idle ? -1 : b.pos0 + token1;
        all_first = whole ? b.first_of(b.pos0 + token1) : INT32_MAX;
        all_last = whole ? b.pos0 + token0 : -1;
    }
    // The queries of the warp's rows: as fragments, or of wide heads to shared memory at `to`, the place of
    // the block's row 0, by asynchronous copies.
    __device__ void load_queries(const tile_work &b, const gpu_array &q, int32_t E, int32_t r0, uint32_t to,
                                 uint32_t fragments[KEEPS_Q ? STEPS : 1][4]) const {
        const int32_t lane = (int32_t)threadIdx.x % 32, t = lane % 4;
        if constexpr (KEEPS_Q) {
#pragma unroll
            for (int i = 0; i < 4 * STEPS; i++) {
                const query &row = rows[i % 2];
                const int32_t col = i / 4 * 16 + i % 4 / 2 * 8 + 2 * t;
                fragments[KEEPS_Q ? i / 4 : 0][i % 4] =
                    row.pos >= 0 && col < E
                        ? *(const uint32_t *)((const uint16_t *)q.data + row.row * q.pitch +
                                              (int64_t)row.head * E + col)
                        : 0;
            }
        } else {
            for (int32_t i = lane; i < MMA_TILE * (WIDTH / 8); i += 32) {
                const int32_t at = r0 + i / (WIDTH / 8), token = at / b.per, head = at % b.per,
                              v = i % (WIDTH / 8);
                const bool exists = b.has(token, head) && 8 * v < E;
                const int64_t from =
                    exists ? (b.tile.row + token) * q.pitch + (int64_t)(b.heads.first + head) * E + 8 * v : 0;
                copy_vector(to + at * split_tile<WIDTH>::PITCH + v * 16, (const uint16_t *)q.data + from,
                            exists);
            }
        }
    }
    __device__ void split(uint32_t keys, uint32_t tile, const uint32_t q[KEEPS_Q ? STEPS : 1][4],
                          uint32_t q_at, int32_t base, const gpu_attention &of) {
        if (base > last || base + MMA_SPLIT <= first) return;
        if (first <= base && last >= base + MMA_SPLIT - 1) part<true>(keys, tile, q, q_at, base, of);
        else part<false>(keys, tile, q, q_at, base, of);
    }
    __device__ void store(const gpu_array &y, int32_t v_dim) {
        const int32_t t = (int32_t)threadIdx.x % 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (rows[h].pos < 0) continue;
#pragma unroll
            for (int i = 0; i < 4 * QUADS; i++) {
                const int32_t col = 8 * i + 2 * t;
                if (col >= v_dim) continue;
                const float y0 = O[i / 4][i % 4][2 * h] / state[h].L,
                            y1 = O[i / 4][i % 4][2 * h + 1] / state[h].L;
                const int64_t at = (int64_t)rows[h].row * y.pitch + (int64_t)rows[h].head * v_dim + col;
                if (y.type == GPU_BF16) *(uint32_t *)((uint16_t *)y.data + at) = bf16_pair(y0, y1);
                else *(float2 *)((float *)y.data + at) = make_float2(y0, y1);
            }
        }
    }
};

template <int WIDTH, bool Q8>
__global__ void __launch_bounds__(TILE_THREADS, 1)
    tiles(const __grid_constant__ gpu_step step, const __grid_constant__ gpu_attention a,
          const __grid_constant__ gpu_array q, const __grid_constant__ gpu_array y, int32_t stages) {
    extern __shared__ __align__(128) char memory[];
    __shared__ const char *pages[2][MMA_PAGES];
    typedef tile_warp<WIDTH> warp_type;
    enum { BYTES = split_tile<WIDTH>::BYTES, STEPS = WIDTH / 16 };
    let_next_begin();
    tile_work b(a, step);
    if (b.tile.n == 0) {
        wait_for_inputs(); // a kernel does not end before the one before it
        return;
    }
    b.pos0 = step.pos[b.tile.row];
    const int32_t lane = (int32_t)threadIdx.x % 32, r0 = (int32_t)threadIdx.x / 32 * MMA_TILE;
    warp_type w;
    w.open(b, r0, a);
    tile_copies<WIDTH, Q8> copies = {{}, memory, b.first_of(b.pos0), b.last(), stages};
    copies.source.open(a.kv, step, step.slot[b.tile.seq], b.heads.kv);
    int32_t base = copies.first / MMA_SPLIT * MMA_SPLIT;
    if (threadIdx.x < MMA_PAGES) {
        const char *page0 = copies.find_page(base), *page1 = copies.find_page(base + MMA_SPLIT);
        pages[0][threadIdx.x] = page0, pages[1][threadIdx.x] = page1;
    }
    __syncthreads();
    wait_for_inputs();
    uint32_t fragments[warp_type::KEEPS_Q ? STEPS : 1][4];
    const uint32_t queries = shared_address(copies.memory) + stages * 2 * BYTES,
                   q_at = queries + (r0 + lane % 16) * split_tile<WIDTH>::PITCH + lane / 16 * 16;
    w.load_queries(b, q, a.kv.head_dim, r0, queries, fragments);
    copies.start(pages[0], base, 0);
    for (int32_t i = 0; base <= copies.last; i++, base += MMA_SPLIT) {
        wait_copies<0>();
        __syncthreads();
        const uint32_t keys = shared_address(copies.stage_at(i % 2));
        if (stages == 2) copies.start(pages[(i + 1) % 2], base + MMA_SPLIT, (i + 1) % 2);
        const char *page = copies.find_page(base + 2 * MMA_SPLIT);
        w.split(keys, keys + BYTES, fragments, q_at, base, a);
        if (threadIdx.x < MMA_PAGES) pages[i % 2][threadIdx.x] = page;
        if (stages == 2) continue;
        __syncthreads();
        copies.start(pages[(i + 1) % 2], base + MMA_SPLIT, (i + 1) % 2);
    }
    w.store(y, a.kv.v_dim);
}

template <int WIDTH>
static void launch_tiles(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                         const gpu_array *y) {
    const int32_t tokens = TILE_ROWS / mma_heads(*a), n = grid_rows(l, y->rows),
                  stages = WIDTH <= 128 && tile_bytes<WIDTH>(2) <= l->shared_limit ? 2 : 1;
    const dim3 grid((unsigned)mma_head_blocks(*a), (unsigned)(n / tokens + l->B));
    if (a->kv.q8)
        run(l, grid, TILE_THREADS, (size_t)tile_bytes<WIDTH>(stages), tiles<WIDTH, true>, *s, *a, *q, *y,
            stages);
    else
        run(l, grid, TILE_THREADS, (size_t)tile_bytes<WIDTH>(stages), tiles<WIDTH, false>, *s, *a, *q, *y,
            stages);
}
void attention_tiles(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                     const gpu_array *y) {
    FOR_WIDTH(most_columns(a->kv), launch_tiles, l, s, a, q, y);
}

template <int WIDTH> static void least_shared(int32_t *bytes) { *bytes = tile_bytes<WIDTH>(1); }
int32_t attention_mma_shared(const gpu_attention *a) { // a row needs no more than a tile
    int32_t bytes = 0;
    FOR_WIDTH(most_columns(a->kv), least_shared, &bytes);
    return bytes;
}

template <int WIDTH> static void raise_limit(int32_t limit, cudaError_t *e) {
    const int32_t two = WIDTH <= 128 ? tile_bytes<WIDTH>(2) : 0,
                  bytes = two && two <= limit ? two : tile_bytes<WIDTH>(1);
    for (const void *f : {(const void *)tiles<WIDTH, false>, (const void *)tiles<WIDTH, true>})
        if (*e == cudaSuccess && bytes <= limit)
            *e = cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
cudaError_t attention_tiles_open(int32_t limit) {
    cudaError_t e = cudaSuccess;
    raise_limit<64>(limit, &e), raise_limit<96>(limit, &e), raise_limit<128>(limit, &e),
        raise_limit<256>(limit, &e);
    return e;
}
