// Attention of single rows, for decoding (order of the arithmetic: attention_mma.cuh).
//
// A block has one row with the query heads that share a key/value head, as the rows of one mma, and splits of
// its sequence. For each split, each of the four warps computes the scores of 32 positions, then every fourth
// tile of 16 columns of the outputs. Keys and values are copied to shared memory asynchronously. Those that
// earlier steps have written are copied before the kernel before has finished, because only the keys and
// values of this step depend on it.
//
// Several blocks may share the splits of a row (row_share): each writes its splits' m, l and o to memory. The
// last blocks of a row to finish merge them, each some of the heads. These wait for the blocks that have not
// finished, but only for a short time: if other work occupies the multiprocessors, blocks of the row may not
// have begun. The last block to finish waits for none, and does the work of those that gave up.
//
// With gpu_heads the kernel also does what comes before attention: rmsnorm and rope of the queries and of the
// keys of this step, which it then does not read from pages. A block computes the keys of all rows of the
// step that its row sees, and writes those of its row to the page.
#include "attention_rows.cuh"

__host__ __device__ inline int32_t partial_floats(int32_t heads, int32_t width) {
    return heads * (width + 2); // o, m and l
}

template <int WIDTH> struct row_block {
    enum { STEPS = WIDTH / 16, TILES = (WIDTH / 16 + ROW_WARPS - 1) / ROW_WARPS, PITCH = MMA_SPLIT * 2 + 16 };
    float O[TILES][2][4];
    running state[2]; // of the rows g and g + 8 of a fragment

    // Scores of this warp's positions from `from` to `to` - 1, in the fragments s.
    __device__ void scores(float (&s)[ROW_POSITIONS / 8][4], const uint32_t q[STEPS][4], uint32_t keys,
                           int32_t from, int32_t to, const gpu_attention &a) {
        const int32_t j0 = (int32_t)threadIdx.x / 32 * ROW_POSITIONS, t = (int32_t)threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < ROW_POSITIONS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) s[i][j] = 0;
#pragma unroll
        for (int i = 0; i < ROW_POSITIONS / 8; i += 2) {
            if (j0 + 8 * i + 16 <= from || j0 + 8 * i >= to) continue;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                uint32_t b[4];
                key_fragments<WIDTH>(b, keys, j0 + 8 * i, k);
                multiply(s[i], q[k], b[0], b[1]);
                multiply(s[i + 1], q[k], b[2], b[3]);
            }
        }
        if (a.softcap > 0) cap_scores<ROW_POSITIONS / 8>(s, a);
#pragma unroll
        for (int i = 0; i < ROW_POSITIONS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int32_t at = j0 + 8 * i + 2 * t + j % 2;
                if (at < from || at >= to) s[i][j] = minus_infinity();
            }
    }
    // The maxima of this warp's scores, to shared memory.
    __device__ void maxima(float *most, const float s[ROW_POSITIONS / 8][4]) {
        const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = minus_infinity();
#pragma unroll
            for (int i = 0; i < ROW_POSITIONS / 8; i++) m = fmaxf(m, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
            m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
            m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
            if (lane % 4 == 0) most[(int32_t)threadIdx.x / 32 * MMA_TILE + lane / 4 + 8 * h] = m;
        }
    }
    // This warp's scores to weights, in shared memory.
    __device__ void weights(char *w, const float s[ROW_POSITIONS / 8][4], const float m[2], float c) {
        const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4, t = lane % 4,
                      j0 = (int32_t)threadIdx.x / 32 * ROW_POSITIONS;
        const float base[2] = {base_of(m[0]) * c, base_of(m[1]) * c};
#pragma unroll
        for (int i = 0; i < ROW_POSITIONS / 8; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(uint32_t *)(w + (g + 8 * h) * PITCH + (j0 + 8 * i + 2 * t) * 2) =
                    bf16_pair(weight_of(s[i][2 * h], base[h], c), weight_of(s[i][2 * h + 1], base[h], c));
    }
    // Weighted sums: o of this warp's columns, and l of the rows g and g + 8.
    __device__ void sums(float o[TILES][2][4], float l[2], uint32_t w, uint32_t values, int32_t from,
                         int32_t to) {
        const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
        float total[4] = {};
#pragma unroll
        for (int i = 0; i < TILES * 8; i++) o[i / 8][i / 4 % 2][i % 4] = 0;
#pragma unroll
        for (int k = 0; k < MMA_SPLIT / 16; k++) {
            if (16 * k + 16 <= from || 16 * k >= to) continue;
            uint32_t a[4];
            load_matrices(a, w + lane % 16 * PITCH + (2 * k + lane / 16) * 16);
            multiply(total, a, 0x3f803f80u, 0x3f803f80u); // ones
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const int32_t n = warp + ROW_WARPS * i;
                if (n >= WIDTH / 16) continue;
                uint32_t b[4];
                value_fragments<WIDTH>(b, values, k, n);
                multiply(o[i][0], a, b[0], b[1]);
                multiply(o[i][1], a, b[2], b[3]);
            }
        }
        l[0] = total[0], l[1] = total[2];
    }
    // Calls f(half, head, column, value, value) for pairs of a fragment's elements, of `count` heads; half 1:
    // row g + 8.
    template <typename F> __device__ void each(const float o[TILES][2][4], int32_t count, const F &f) {
        const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4, t = lane % 4,
                      warp = (int32_t)threadIdx.x / 32;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) { // half of the tile, row of the fragment
                const int32_t head = g + j % 2 * 8, col = 16 * (warp + ROW_WARPS * i) + j / 2 * 8 + 2 * t;
                if (head < count && col < WIDTH)
                    f(j % 2, head, col, o[i][j / 2][j % 2 * 2], o[i][j / 2][j % 2 * 2 + 1]);
            }
    }
};

__device__ inline void store_pair(const gpu_array &y, int64_t row, int64_t col, float y0, float y1) {
    if (y.type == GPU_BF16) *(uint32_t *)((uint16_t *)y.data + row * y.pitch + col) = bf16_pair(y0, y1);
    else *(float2 *)((float *)y.data + row * y.pitch + col) = make_float2(y0, y1);
}

// Merges the n splits of head h of a block from memory: the factors of a tile of splits by a warp, with a
// prefix maximum, then each element in order. The operations are those of running::merge and merged. first:
// the head's state before the first split. The head's outputs are columns `col` .. of y, Ev of them.
template <int WIDTH>
__device__ void merge_head(const float *results, int32_t n, int32_t count, int32_t h, float c,
                           const running &first, const gpu_array &y, int32_t r, int64_t col, int32_t Ev) {
    enum { PER = (WIDTH + ROW_THREADS - 1) / ROW_THREADS }; // elements of a thread
    __shared__ float fa[MERGE_TILE], fb[MERGE_TILE], fl[MERGE_TILE];
    const int64_t pitch = partial_floats(count, WIDTH);
    const int32_t lane = (int32_t)threadIdx.x % 32;
    float O[PER] = {}, L = first.L, M = first.M;
    for (int32_t from = 0; from < n; from += MERGE_TILE) {
        const int32_t end = min(n - from, (int32_t)MERGE_TILE);
        const float *in = results + from * pitch;
        float x[MERGE_TILE][PER];
#pragma unroll
        for (int i = 0; i < MERGE_TILE; i++)
#pragma unroll
            for (int k = 0; k < PER; k++) {
                const int32_t e = (int32_t)threadIdx.x + k * ROW_THREADS;
                x[i][k] = i < end && e < WIDTH ? __ldcg(in + i * pitch + h * WIDTH + e) : 0.0f;
            }
        if (threadIdx.x < 32) {
            const float *scalars = in + lane * pitch + count * WIDTH + h;
            const float m = lane < end ? __ldcg(scalars) : minus_infinity();
            fl[lane] = lane < end ? __ldcg(scalars + count) : 0.0f;
            float top = fmaxf(M, m);
            for (int k = 1; k < 32; k *= 2) {
                const float below = __shfl_up_sync(0xffffffffu, top, k);
                if (lane >= k) top = fmaxf(top, below);
            }
            const float before = __shfl_up_sync(0xffffffffu, top, 1);
            running f = {lane ? before : M, 0, 0, 0};
            f.merge(m, 0, c);
            fa[lane] = f.a, fb[lane] = f.b;
            M = __shfl_sync(0xffffffffu, top, 31);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < MERGE_TILE; i++) {
            if (i >= end) break;
            const float a = fa[i], b = fb[i];
            L = fmaf(fl[i], b, L * a);
#pragma unroll
            for (int k = 0; k < PER; k++) O[k] = fmaf(x[i][k], b, O[k] * a);
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int32_t e = (int32_t)threadIdx.x + k * ROW_THREADS;
        if (e < Ev) store_at(y, r, col + e, O[k] / L);
    }
}

template <int WIDTH, bool HEADS, bool Q8> struct row_kernel {
    typedef row_block<WIDTH> block;
    enum { Q_PITCH = own_heads<WIDTH>::QUERY_PITCH };
    enum { W_BYTES = MMA_TILE * (block::PITCH > Q_PITCH ? block::PITCH : Q_PITCH) };
    enum { GAVE_UP = 16 };
    const gpu_attention &a;
    const row_job &job;
    const row_copies<WIDTH, Q8> &copies;
    const own_heads<WIDTH> &heads;
    char *w;     // weights, or queries
    float *most; // maxima of the warps
    uint32_t q[block::STEPS][4];
    block b;

    __device__ void load_queries(const gpu_array &x) {
        const int32_t lane = (int32_t)threadIdx.x % 32, E = a.kv.head_dim;
#pragma unroll
        for (int i = 0; i < 4 * block::STEPS; i++) {
            const int32_t head = lane / 4 + i % 2 * 8, col = i / 4 * 16 + i % 4 / 2 * 8 + lane % 4 * 2;
            q[i / 4][i % 4] = head < job.heads.count && col < E
                                  ? *(const uint32_t *)((const uint16_t *)x.data + job.row * x.pitch +
                                                        (int64_t)(job.heads.first + head) * E + col)
                                  : 0;
        }
    }
    // The queries that own_heads has made, in w.
    __device__ void read_queries(void) {
        const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < block::STEPS; k++)
            load_matrices(q[k], shared_address(w) + lane % 16 * Q_PITCH + (2 * k + lane / 16) * 16);
    }
    // Stores o, m and l of split i for the block that merges.
    __device__ void store_partial(float *out, const float o[block::TILES][2][4], const float m[2],
                                  const float l[2]) {
        const int32_t g = (int32_t)threadIdx.x % 32 / 4, t = (int32_t)threadIdx.x % 4, n = job.heads.count,
                      head = g + 8 * t;
        b.each(o, n, [&](int, int32_t h, int32_t col, float x, float y) {
            *(float2 *)(out + h * WIDTH + col) = make_float2(x, y);
        });
        if (threadIdx.x >= 32 || t > 1 || head >= n) return;
        out[n * WIDTH + head] = t ? m[1] : m[0];
        out[n * (WIDTH + 1) + head] = t ? l[1] : l[0];
    }
    __device__ void merge_split(const float o[block::TILES][2][4], const float m[2], const float l[2],
                                float c) {
        b.state[0].merge(m[0], l[0], c);
        b.state[1].merge(m[1], l[1], c);
#pragma unroll
        for (int k = 0; k < block::TILES * 8; k++) {
            float &O = b.O[k / 8][k / 4 % 2][k % 4];
            O = merged(O, o[k / 8][k / 4 % 2][k % 4], b.state[k % 4 / 2]);
        }
    }
    // Goes through the splits of this block; keys and values of earlier steps in the first are on their way,
    // as two groups of copies.
    __device__ void all_splits(float *results, float c) {
        const int32_t g = (int32_t)threadIdx.x % 32 / 4, begin = job.z;
        const uint32_t keys = shared_address(copies.tile(0)), values = shared_address(copies.tile(1));
#pragma unroll
        for (int h = 0; h < 2; h++)
            b.state[h] = first_state(a, job.heads.first + min(g + 8 * h, job.heads.count - 1));
#pragma unroll
        for (int i = 0; i < block::TILES * 8; i++) b.O[i / 8][i / 4 % 2][i % 4] = 0;
#pragma unroll 1
        for (int32_t i = begin, stage = 0; i < job.n_splits; i += job.workers, stage ^= 1) {
            float s[ROW_POSITIONS / 8][4], o[block::TILES][2][4], m[2], l[2];
            const int32_t next = i + job.workers;
            const char *page = copies.find_page(next);
            bool waits = false;
            if (HEADS) heads.make(i, stage, i == begin);
            else waits = copies.copy_own(i, stage);
            if (waits) end_copies(), wait_copies<0>();
            else wait_copies<1>();
            __syncthreads();
            if (HEADS && i == begin) read_queries();
            b.scores(s, q, keys, job.lo(i), job.hi(i), a);
            b.maxima(most, s);
            if (threadIdx.x < MMA_PAGES) copies.pages[stage ^ 1][threadIdx.x] = page;
            __syncthreads();
            if (next < job.n_splits) copies.copy_old(0, next, stage ^ 1);
            end_copies();
#pragma unroll
            for (int h = 0; h < 2; h++) {
                m[h] = most[g + 8 * h];
                for (int k = 1; k < ROW_WARPS; k++) m[h] = fmaxf(m[h], most[k * MMA_TILE + g + 8 * h]);
            }
            b.weights(w, s, m, c);
            wait_copies<1>();
            __syncthreads();
            b.sums(o, l, shared_address(w), values, job.lo(i), job.hi(i));
            if (job.shared)
                store_partial(results + (int64_t)i * partial_floats(job.heads.count, WIDTH), o, m, l);
            else merge_split(o, m, l, c);
            __syncthreads();
            if (next < job.n_splits) copies.copy_old(1, next, stage ^ 1);
            end_copies();
        }
        wait_copies<0>();
    }
    // Arrives at the counter of a row and waits until all blocks of the row have. The counter has the number
    // of blocks that have stored their splits, and from bit GAVE_UP on a bit for each place that gave up.
    // Returns the place among the blocks that merge, -1: this block does not merge; *left: the places that
    // gave up, for the last block, else 0. One thread calls it.
    __device__ int32_t wait_for_others(int32_t *counter, int32_t helpers, uint32_t *left) {
        const int32_t arrived = (int32_t)atomicAdd((uint32_t *)counter, 1u);
        const int32_t place = (arrived & ((1 << GAVE_UP) - 1)) - (job.workers - helpers);
        *left = place == helpers - 1 ? (uint32_t)arrived >> GAVE_UP : 0;
        if (place < 0 || place == helpers - 1) return place;
        for (int i = 0; i < a.patience; i++) {
            if ((*(volatile int32_t *)counter & ((1 << GAVE_UP) - 1)) == job.workers) return place;
            __nanosleep(50);
        }
        for (uint32_t seen = *(volatile uint32_t *)counter;;) { // gives up, unless all are here now
            if ((int32_t)(seen & ((1u << GAVE_UP) - 1)) == job.workers) return place;
            const uint32_t was = atomicCAS((uint32_t *)counter, seen, seen | 1u << (GAVE_UP + place));
            if (was == seen) return -1;
            seen = was;
        }
    }
    // Merges the splits of all blocks, once they are there. counters: see wait_for_others; then the blocks
    // that have merged.
    __device__ void merge_shared(const float *results, int32_t *counters, const gpu_array &y, float c) {
        __shared__ int32_t place;
        __shared__ uint32_t left;
        const int32_t n = job.heads.count, Ev = a.kv.v_dim,
                      helpers = max(min(n, job.workers / 4), 1); // blocks that merge
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) place = wait_for_others(counters, helpers, &left);
        __syncthreads();
        if (place < 0) return;
        __threadfence();
        if (threadIdx.x == 0) {
            const int32_t gone = __popc(*(volatile uint32_t *)counters >> GAVE_UP);
            if (atomicAdd(counters + 1, 1) == helpers - gone - 1) counters[0] = counters[1] = 0;
        }
        for (int32_t h = 0; h < n; h++)
            if (h % helpers == place || left >> (h % helpers) & 1)
                merge_head<WIDTH>(results, job.n_splits, n, h, c, first_state(a, job.heads.first + h), y,
                                  job.row, (int64_t)(job.heads.first + h) * Ev, Ev);
    }
    __device__ void run(const gpu_array &y) {
        const float c = exponent_of(a);
        const int32_t Ev = a.kv.v_dim, of = (int32_t)blockIdx.x, n = (int32_t)gridDim.x;
        float *results = (float *)a.results + ((int64_t)job.stored_at * n + of * job.n_splits) *
                                                  partial_floats(mma_heads(a), WIDTH);
        all_splits(results, c);
        if (job.shared) {
            merge_shared(results, a.counters + 2 * (job.item * n + of), y, c);
            return;
        }
        b.each(b.O, job.heads.count, [&](int half, int32_t h, int32_t col, float x, float x1) {
            const float L = half ? b.state[1].L : b.state[0].L;
            if (col < Ev) store_pair(y, job.row, (int64_t)(job.heads.first + h) * Ev + col, x / L, x1 / L);
        });
    }
};

// q: queries, or with HEADS not read.
template <int WIDTH, bool HEADS, bool Q8>
__global__ void __launch_bounds__(ROW_THREADS, WIDTH <= 128 ? 3 : 1)
    rows(const __grid_constant__ gpu_step step, const __grid_constant__ gpu_attention a,
         const __grid_constant__ gpu_array q, const __grid_constant__ gpu_array y,
         const __grid_constant__ gpu_heads h, int32_t per_seq) {
    typedef row_kernel<WIDTH, HEADS, Q8> kernel;
    extern __shared__ __align__(128) char memory[];
    __shared__ const char *pages[2][MMA_PAGES];
    __shared__ float most[ROW_WARPS * MMA_TILE];
    __shared__ __align__(16) char w[kernel::W_BYTES];
    let_next_begin();
    const row_share share = find_row < HEADS ? GPU_FUSED_ROWS : INT32_MAX > (step, a, per_seq);
    if (share.item < 0) {
        if (blockIdx.y == 0) wait_for_inputs(); // if there are rows, the first block of a group has one
        return;
    }
    const row_job job(step, a, row_at(step, share.item, per_seq), share);
    row_copies<WIDTH, Q8> copies = {job, {}, pages, memory};
    const row_copies<WIDTH> &plain = (const row_copies<WIDTH> &)copies; // which HEADS alone reads
    own_heads<WIDTH> heads = {job, h, plain, w};
    copies.source.open(a.kv, step, step.slot[job.seq], job.heads.kv);
    if (threadIdx.x < MMA_PAGES) pages[0][threadIdx.x] = copies.find_page(job.z);
    if (HEADS) heads.open();
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; HEADS && i < kernel::W_BYTES / 4; i += ROW_THREADS)
        ((uint32_t *)w)[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int which = 0; which < 2; which++) {
        copies.copy_old(which, job.z, 0);
        end_copies();
    }
    wait_for_inputs();
    kernel k = {a, job, copies, heads, w, most};
    if (!HEADS) k.load_queries(q);
    k.run(y);
}

template <int WIDTH> struct row_memory {
    enum {
        BYTES = 2 * split_tile<WIDTH>::BYTES,
        PER_MULTIPROCESSOR = WIDTH <= 64    ? 5
                             : WIDTH <= 128 ? 3
                                            : 1 // blocks
    };
};
template <int WIDTH>
static void launch_rows(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                        const gpu_heads *h, const gpu_array *y) {
    const int32_t n = grid_rows(l, y->rows), per_seq = n <= GPU_FEW_ROWS ? 0 : MOST_SINGLE_ROWS,
                  groups = mma_head_blocks(*a),
                  slots = row_memory<WIDTH>::PER_MULTIPROCESSOR * l->n_multiprocessors / groups;
    // The blocks of all groups before the next of each: those that have work begin first. The other way
    // round, one stream of a small model took a tenth longer.
    const dim3 grid((unsigned)groups, sharing_blocks(per_seq ? l->B * per_seq : n, slots));
    if (h)
        run(l, grid, ROW_THREADS, row_memory<WIDTH>::BYTES, rows<WIDTH, true, false>, *s, *a, *q, *y, *h,
            per_seq);
    else if (a->kv.q8)
        run(l, grid, ROW_THREADS, row_memory<WIDTH>::BYTES, rows<WIDTH, false, true>, *s, *a, *q, *y,
            gpu_heads{}, per_seq);
    else
        run(l, grid, ROW_THREADS, row_memory<WIDTH>::BYTES, rows<WIDTH, false, false>, *s, *a, *q, *y,
            gpu_heads{}, per_seq);
}
void attention_rows(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                    const gpu_heads *h, const gpu_array *y) {
    FOR_WIDTH(most_columns(a->kv), launch_rows, l, s, a, q, h, y);
}

template <int WIDTH> static void scratch_of(const gpu_attention *a, size_t *bytes) {
    *bytes = (size_t)a->room * (size_t)mma_head_blocks(*a) * (size_t)partial_floats(mma_heads(*a), WIDTH) *
             sizeof(float);
}
size_t attention_rows_scratch(const gpu_attention *a, size_t *counters) {
    size_t bytes = 0;
    FOR_WIDTH(most_columns(a->kv), scratch_of, a, &bytes);
    *counters = 2 * SHARED_ROWS * (size_t)mma_head_blocks(*a) * sizeof(int32_t);
    return bytes;
}

template <int WIDTH> static void raise_limit(int32_t limit, cudaError_t *e) {
    if (row_memory<WIDTH>::BYTES > limit) return;
    for (const void *f : {(const void *)rows<WIDTH, false, false>, (const void *)rows<WIDTH, true, false>,
                          (const void *)rows<WIDTH, false, true>})
        if (*e == cudaSuccess)
            *e = cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      row_memory<WIDTH>::BYTES);
}
cudaError_t attention_rows_open(int32_t limit) {
    cudaError_t e = cudaSuccess;
    raise_limit<64>(limit, &e), raise_limit<96>(limit, &e), raise_limit<128>(limit, &e),
        raise_limit<256>(limit, &e);
    return e;
}
