// Exchanges among GPUs: all_gather, in which each rank has some columns of a value and all ranks get all of
// them. The GPUs reach each other's memory, over NVLink or PCIe; no host takes part (decision 062).
//
// What a rank sends is its part as the value stores it: rounded to bf16 if the value is narrow, with the
// residual added if an addition was fused. So every rank computes its own columns and copies the others'.
//
// Few bytes go as words with a flag: a rank stores its columns to the inboxes of all others, each 8 bytes
// with two flags in one 16-byte store (or one element with one flag in 8 bytes), and a reader waits for
// the flags and not for a signal that follows the data. The reader zeroes the flags that it has read.
// Exchanges that follow each other have different slots: a slot is written again after another exchange, and
// a rank takes part in that one only after it has ended this one.
//
// Many bytes are pulled: each rank places its own columns in the value's buffer, signals that, waits for the
// signals of the others, copies their columns, and waits until the others have copied its own.
//
// All waiting ends if the host sets *stop: another rank has failed, and nothing of the step is used.
#include "exchange.cuh"

static inline int launched(void) { return (int)cudaGetLastError(); }

enum { THREADS = 512 };

// An inbox begins with counters of its own rank and the signals of the others, which are words 128 bytes
// apart; slots follow.
struct counters {
    uint32_t number; // exchanges by pulling that have ended
    uint32_t blocks; // of the present one that have ended
};
enum { SIGNAL_STRIDE = 128, READY = 1, COPIED = 2 };
static_assert(GPU_INBOX_HEAD >= SIGNAL_STRIDE * (1 + 2 * GPU_MOST_RANKS), "the signals fit");
__device__ inline counters *counters_of(const gpu_exchange &e) { return (counters *)e.inbox[e.rank]; }
__device__ inline uint32_t *signal_of(char *inbox, int what, int from) {
    return (uint32_t *)(inbox + SIGNAL_STRIDE * (1 + (what - READY) * GPU_MOST_RANKS + from));
}

// ---- what a rank sends ----

template <typename T> __device__ inline T stored(float x);
template <> __device__ inline float stored<float>(float x) { return x; }
template <> __device__ inline uint16_t stored<uint16_t>(float x) { return f32_to_bf16(x); }

// N elements of a row; four or two of f32 in one load, because they begin at a multiple of their bytes.
template <int N> __device__ inline void load_row(const gpu_array &a, int64_t r, int64_t c, float (&v)[N]) {
    const float *at = (const float *)a.data + r * a.pitch + c;
    if (a.type == GPU_F32 && N == 4) *(float4 *)v = *(const float4 *)at;
    else if (a.type == GPU_F32 && N == 2) *(float2 *)v = *(const float2 *)at;
    else
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = load_at(a, r, c + k);
}

// Columns c .. c + N - 1 of row r of a rank's part, whose first column in the value is `first`.
template <typename T, int N>
__device__ inline group<T, N> part_at(const gpu_gather &g, int64_t r, int64_t c, int64_t first) {
    group<T, N> v;
    alignas(16) float x[N], add[N];
    load_row<N>(g.x, r, c, x);
    if (g.residual.data) load_row<N>(g.residual, r, first + c, add);
#pragma unroll
    for (int k = 0; k < N; k++) v.element[k] = stored<T>(g.residual.data ? add[k] + x[k] : x[k]);
    return v;
}

// ---- words with flags ----

// Indices of elements of a value fit in 32 bits, which divide faster.
template <typename T, int N>
__global__ void __launch_bounds__(THREADS) exchange_words(gpu_step s, gpu_exchange e, gpu_gather g) {
    typedef packet<T, N> P;
    let_next_begin();
    const uint32_t S = g.x.cols / N, n = S * live_rows(s, g.x.rows), step = gridDim.x * THREADS,
                   from = blockIdx.x * THREADS + threadIdx.x;
    const int64_t own = first_of(g, e.rank);
    wait_for_inputs();
    for (uint32_t i = from; i < n; i += step) {
        const uint32_t r = i / S, c = i % S * N;
        const group<T, N> v = part_at<T, N>(g, r, c, own);
        P p;
        p.fill(v);
        for (int k = 0; k < e.size; k++)
            if (k != e.rank) p.store(slot_of(e, k, g.slot, e.rank) + (size_t)i * sizeof(p.word));
        if (!g.placed && takes(g, e.rank, own + c)) store_group<T, N>(g.y, r, own + c, v);
    }
    for (int k = 0; k < e.size; k++) {
        const int64_t first = first_of(g, k);
        char *slot = slot_of(e, e.rank, g.slot, k);
        for (uint32_t i = from; k != e.rank && i < n; i += step) {
            const int64_t c = first + i % S * N;
            P p;
            if (!receive(e, slot + (size_t)i * sizeof(p.word), &p)) return;
            if (takes(g, k, c)) store_group<T, N>(g.y, i / S, c, p.read());
        }
    }
}

// ---- pulling ----

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) place_part(gpu_step s, int rank, gpu_gather g) {
    begin();
    const uint32_t S = g.x.cols / N, n = S * live_rows(s, g.x.rows);
    const int64_t own = first_of(g, rank);
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        const uint32_t r = i / S, c = i % S * N;
        if (takes(g, rank, own + c)) store_group<T, N>(g.y, r, own + c, part_at<T, N>(g, r, c, own));
    }
}

__device__ inline void signal(uint32_t *at, uint32_t number) {
    __threadfence_system();
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(number) : "memory");
}
// Waits until a signal has this number, or a later one.
__device__ inline void await(const gpu_exchange &e, const uint32_t *at, uint32_t number) {
    for (int looks = 0;; looks++) {
        uint32_t v;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
        if ((int32_t)(v - number) >= 0) return;
        if (looks % LOOKS == LOOKS - 1 && stopped(e)) return;
    }
}
// Called by one thread of each block when its block is done: whether it is the last.
__device__ inline bool is_last_block(const gpu_exchange &e) {
    __threadfence();
    return atomicAdd(&counters_of(e)->blocks, 1u) == gridDim.x - 1;
}

// Copies the columns of rank k, rows of S vectors, from its buffer of y, which is at `from`.
template <typename V>
__device__ inline void copy_part(const gpu_gather &g, int k, const char *from, uint32_t rows, uint32_t S,
                                 int32_t element) {
    enum { AHEAD = 8 };
    const uint32_t n = S * rows, step = gridDim.x * THREADS;
    const int64_t first = first_of(g, k) * element, pitch = g.y.pitch * element;
    char *const y = (char *)g.y.data;
    for (uint32_t i0 = blockIdx.x * THREADS + threadIdx.x; i0 < n; i0 += AHEAD * step) {
        V v[AHEAD];
        int64_t at[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const uint32_t i = i0 + a * step;
            const int64_t column = first + i % S * (int64_t)sizeof(V);
            at[a] = i < n ? i / S * pitch + column : -1;
            if (i < n) v[a] = __ldcg((const V *)(from + at[a]));
            if (i < n && !takes(g, k, column / element)) at[a] = -1;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (at[a] >= 0) *(V *)(y + at[a]) = v[a];
    }
}

// V: a vector whose size divides the bytes of the columns of each part.
template <typename V>
__global__ void __launch_bounds__(THREADS)
    pull_parts(gpu_step s, gpu_exchange e, gpu_gather g, int32_t element) {
    __shared__ uint32_t shared_number;
    let_next_begin();
    const int32_t rows = live_rows(s, g.x.rows), thread = (int32_t)threadIdx.x;
    wait_for_inputs();
    if (rows == 0) return; // in all ranks
    if (thread == 0) shared_number = *(volatile uint32_t *)&counters_of(e)->number + 1;
    __syncthreads();
    const uint32_t number = shared_number;
    const bool other = thread < e.size && thread != e.rank;
    if (blockIdx.x == 0 && other) signal(signal_of(e.inbox[thread], READY, e.rank), number);
    if (other) await(e, signal_of(e.inbox[e.rank], READY, thread), number);
    __syncthreads();
    for (int k = 0; k < e.size; k++)
        if (k != e.rank)
            copy_part<V>(g, k, e.temp[k] + ((char *)g.y.data - e.temp[e.rank]), rows,
                         g.x.cols * element / (int)sizeof(V), element);
    __syncthreads();
    if (thread != 0 || !is_last_block(e)) return;
    for (int k = 0; k < e.size; k++)
        if (k != e.rank) signal(signal_of(e.inbox[k], COPIED, e.rank), number);
    for (int k = 0; k < e.size; k++)
        if (k != e.rank) await(e, signal_of(e.inbox[e.rank], COPIED, k), number);
    counters_of(e)->blocks = 0;
    counters_of(e)->number = number;
}

// ---- through a buffer, by NCCL ----

// Stores rows row0 .. row0 + n - 1 of the rank's part one after another.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    pack_part(gpu_step s, int rank, gpu_gather g, int64_t row0, int64_t n, T *to) {
    begin();
    const int64_t S = g.x.cols, own = first_of(g, rank), rows = live_rows(s, g.x.rows);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n * S;
         i += (int64_t)gridDim.x * THREADS)
        if (row0 + i / S < rows) to[i] = part_at<T, 1>(g, row0 + i / S, i % S, own).element[0];
}
// Stores the parts [size, n, S] of all ranks in their columns.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    place_parts(gpu_step s, int size, gpu_gather g, int64_t row0, int64_t n, const T *from) {
    begin();
    const int64_t S = g.x.cols, rows = live_rows(s, g.x.rows), all = size * n * S;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        const int k = (int)(i / (n * S));
        const int64_t r = row0 + i / S % n, c = first_of(g, k) + i % S;
        if (r < rows && takes(g, k, c)) *value_at<T>(g.y, r, c) = from[i];
    }
}

// ---- launches ----

static unsigned blocks_for(const gpu_launch *l, int64_t n) {
    const int64_t blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks < l->n_multiprocessors ? blocks : l->n_multiprocessors);
}
static int element_of(const gpu_gather *g) { return g->y.type == GPU_F32 ? 4 : 2; }
// Whether parts of all ranks begin and end at multiples of n elements.
static bool is_whole(const gpu_gather *g, int32_t n) { return g->x.cols % n == 0 && g->y.cols % n == 0; }
static int32_t words_of(const gpu_gather *g) { return 8 / element_of(g); }

size_t gpu_words_bytes(const gpu_gather *g, int64_t rows) {
    const int32_t n = words_of(g);
    return is_whole(g, n) && !g->single ? (size_t)(rows * (g->x.cols / n)) * 16
                                        : (size_t)(rows * g->x.cols) * 8;
}

int gpu_exchange_words(const gpu_launch *l, const gpu_step *s, const gpu_exchange *e, const gpu_gather *g) {
    const bool whole = is_whole(g, words_of(g)) && !g->single, f32 = g->y.type == GPU_F32;
    const int64_t n = (int64_t)grid_rows(l, g->x.rows) * (whole ? g->x.cols / words_of(g) : g->x.cols);
    const unsigned blocks = blocks_for(l, n);
    if (f32 && whole) run(l, blocks, THREADS, 0, exchange_words<float, 2>, *s, *e, *g);
    else if (f32) run(l, blocks, THREADS, 0, exchange_words<float, 1>, *s, *e, *g);
    else if (whole) run(l, blocks, THREADS, 0, exchange_words<uint16_t, 4>, *s, *e, *g);
    else run(l, blocks, THREADS, 0, exchange_words<uint16_t, 1>, *s, *e, *g);
    return launched();
}

// Stores the part of a rank in its columns of y.
static void place(const gpu_launch *l, const gpu_step *s, int rank, const gpu_gather *g) {
    const bool f32 = g->y.type == GPU_F32, whole = is_whole(g, 4);
    const int64_t n = (int64_t)grid_rows(l, g->x.rows) * g->x.cols;
    const unsigned blocks = blocks_for(l, whole ? n / 4 : n);
    if (f32 && whole) run(l, blocks, THREADS, 0, place_part<float, 4>, *s, rank, *g);
    else if (f32) run(l, blocks, THREADS, 0, place_part<float, 1>, *s, rank, *g);
    else if (whole) run(l, blocks, THREADS, 0, place_part<uint16_t, 4>, *s, rank, *g);
    else run(l, blocks, THREADS, 0, place_part<uint16_t, 1>, *s, rank, *g);
}

int gpu_exchange_pull(const gpu_launch *l, const gpu_step *s, const gpu_exchange *e, const gpu_gather *g) {
    const int32_t element = element_of(g);
    const bool vectors = is_whole(g, 16 / element);
    const int64_t n = (int64_t)grid_rows(l, g->x.rows) * g->x.cols;
    const unsigned blocks = blocks_for(l, vectors ? n * element / 16 : n);
    if (!g->placed) place(l, s, e->rank, g);
    if (vectors) run(l, blocks, THREADS, 0, pull_parts<uint4>, *s, *e, *g, element);
    else if (element == 4) run(l, blocks, THREADS, 0, pull_parts<uint32_t>, *s, *e, *g, element);
    else run(l, blocks, THREADS, 0, pull_parts<uint16_t>, *s, *e, *g, element);
    return launched();
}

int gpu_pack_part(const gpu_launch *l, const gpu_step *s, int rank, const gpu_gather *g, int64_t row0,
                  int64_t n, void *to) {
    const unsigned blocks = blocks_for(l, n * g->x.cols);
    if (g->y.type == GPU_F32)
        run(l, blocks, THREADS, 0, pack_part<float>, *s, rank, *g, row0, n, (float *)to);
    else run(l, blocks, THREADS, 0, pack_part<uint16_t>, *s, rank, *g, row0, n, (uint16_t *)to);
    return launched();
}
int gpu_place_parts(const gpu_launch *l, const gpu_step *s, int size, const gpu_gather *g, int64_t row0,
                    int64_t n, const void *from) {
    const unsigned blocks = blocks_for(l, size * n * g->x.cols);
    if (g->y.type == GPU_F32)
        run(l, blocks, THREADS, 0, place_parts<float>, *s, size, *g, row0, n, (const float *)from);
    else run(l, blocks, THREADS, 0, place_parts<uint16_t>, *s, size, *g, row0, n, (const uint16_t *)from);
    return launched();
}
