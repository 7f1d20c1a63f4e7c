// Attention over bf16 pages on tensor cores: what the kernel of few rows (attention_rows.cu) and that of
// tiles of rows (attention_tiles.cu) share. Both compute each row in the order below, so the bits of a row
// depend neither on the kernel nor on the other rows of the step.
//
// The positions are cut into splits at absolute multiples of 128. For each split with a visible position:
//
//     s[j] = q k[j], by mma.sync.m16n8k16 (bf16 operands, f32 sums) over steps of 16 columns, ascending; with
//            a softcap t then t tanh(scale s[j] / t)
//     m    = max s[j] of the visible positions
//     w[j] = 2^(c (s[j] - m)) rounded to bf16, c = scale log2(e), with a softcap log2(e); 0 if j is not
//            visible
//     l    = sum of w[j]; o[e] = sum of w[j] v[j][e]: by mma over steps of 16 positions, ascending
//
// and the splits are merged in ascending order, from M = -inf, L = 0, O = 0, or with a sink from M = sink
// log2(e) / c, L = 1:
//
//     M' = max(M, m); a = 2^(c (M - M')); b = 2^(c (m - M')); L = L a + l b; O = O a + o b;  finally y = O /
//     L
//
// A step of 16 positions of which a row sees none adds zeros, which changes nothing; so does a split of which
// it sees none: m is then -inf, a = 1 and b = 0. The values of positions that no row of a tile sees are zeros
// in shared memory. A value that is not finite makes the outputs of all rows in a tile that reads it NaN,
// also of those that do not see its position, because 0 times infinity is NaN.
//
// Rows of mma are pairs of a token and a query head: the `heads` query heads of a block share a key/value
// head. Keys and values of a split are [128][width + 8] bf16 in shared memory: rows are an odd number of
// 16-byte vectors apart, so ldmatrix has no bank conflicts.
#pragma once

#include "cuda_common.cuh"
#include "kv_q8.cuh"

enum {
    MMA_SPLIT = 128, // positions of a split
    MMA_TILE = 16,   // rows of an mma, and positions or columns of a step
    MMA_PAGES = 4    // pages that a split may have: they have 32 positions at least
};

template <int WIDTH> struct split_tile { // of keys or of values
    enum { PITCH = 2 * WIDTH + 16, BYTES = MMA_SPLIT * PITCH, VECTORS = WIDTH / 8 };
};

// Copies 16 bytes to shared memory; zeros where the source does not exist.
__device__ inline void copy_vector(uint32_t to, const void *from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0)
                 : "memory");
}
__device__ inline void end_copies(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ inline void wait_copies(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ inline void load_matrices(uint32_t f[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address)
                 : "memory");
}
__device__ inline void load_transposed(uint32_t f[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address)
                 : "memory");
}
__device__ inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline uint32_t bf16_pair(float lo, float hi) {
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}

__device__ inline float minus_infinity(void) { return __uint_as_float(0xff800000u); }
// What is subtracted from scores whose maximum is m; a maximum of no score counts as 0.
__device__ inline float base_of(float m) { return m == minus_infinity() ? 0.0f : m; }
// The weight of a score.
__device__ inline float weight_of(float s, float base_times_c, float c) {
    return exp2_of(fmaf(s, c, -base_times_c));
}
// c; a score s as 1 - 2 / (1 + 2^(s by)) of the softcap, which is its tanh.
__device__ inline float exponent_of(const gpu_attention &a) {
    return (a.softcap > 0 ? 1.0f : a.scale) * 1.44269504088896341f;
}
__device__ inline float capped(float s, float cap, float by) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + exp2_of(s * by)));
    return fmaf(-2.0f * cap, r, cap);
}
template <int N> __device__ inline void cap_scores(float (&s)[N][4], const gpu_attention &a) {
    const float by = 2.0f * 1.44269504088896341f * a.scale / a.softcap;
#pragma unroll
    for (int i = 0; i < 4 * N; i++) s[i / 4][i % 4] = capped(s[i / 4][i % 4], a.softcap, by);
}
// The running maximum and sum of a row, and the factors with which a split is merged.
struct running {
    float M, L, a, b;
    __device__ void merge(float m, float l, float c) {
        const float top = fmaxf(M, m), base = base_of(top);
        a = exp2_of((M - base) * c), b = exp2_of((m - base) * c);
        L = fmaf(l, b, L * a);
        M = top;
    }
};
// The state before the first split of a head.
__device__ inline running first_state(const gpu_attention &a, int32_t head) {
    if (!a.sinks) return {minus_infinity(), 0, 0, 0};
    const float sink = load_element(a.sinks, a.sink_type, head);
    return {a.softcap > 0 ? sink : __fdividef(sink, a.scale), 1, 0, 0};
}
__device__ inline float merged(float O, float o, const running &r) { return fmaf(o, r.b, O * r.a); }

// Where the splits of a sequence are: the addresses of the layer's part of a split's pages, and of a
// key/value head in them.
struct split_source {
    const gpu_kv *kv;
    int64_t first_entry; // of the sequence's page table
    const int32_t *table;
    int64_t keys, values; // byte offsets of the head in a page; of 8 bits: of its codes
    int32_t head;
    int32_t shift; // log2 of page_len

    __device__ void open(const gpu_kv &of, const gpu_step &step, int64_t slot, int32_t of_head) {
        const int32_t size = of.q8 ? 1 : 2;
        kv = &of, head = of_head;
        table = step.pages[of.window_group];
        first_entry = slot * step.n_blocks * of.pages_per_block + of.page_in_block;
        keys = q8_codes_at(of, false, head) * size;
        values = q8_codes_at(of, true, head) * size;
        shift = 31 - __clz(of.page_len);
    }
    // The address of page i of the split at `base`, NULL where none of [from, to) is in it.
    __device__ const char *page(int64_t base, int32_t i, int64_t from, int64_t to) const {
        const int64_t block = (base >> shift) + i, at = block << shift;
        if (at >= to || at + kv->page_len <= from || at >= base + MMA_SPLIT) return NULL;
        return kv->pool + table[first_entry + block * kv->pages_per_block] * kv->page_bytes +
               kv->layer_offset;
    }
};

// Copies rows [begin, end) of the tile of keys or values (offset), of `width` elements, of the split at
// `base`: positions lo .. hi - 1 of the split exist, other rows become zeros, but rows hole .. hole_end - 1
// are left as they are. `pages` are in shared memory.
template <int WIDTH, int THREADS>
__device__ inline void copy_tile(uint32_t tile, const split_source &s, const char *const *pages,
                                 int64_t offset, int32_t width, int64_t base, int32_t begin, int32_t end,
                                 int32_t lo, int32_t hi, int32_t hole = 0, int32_t hole_end = 0) {
    enum { VECTORS = split_tile<WIDTH>::VECTORS };
    const int32_t mask = s.kv->page_len - 1;
    const int32_t in_page = (int32_t)base & mask;
#pragma unroll 2
    for (int32_t i = begin * VECTORS + (int32_t)threadIdx.x; i < end * VECTORS; i += THREADS) {
        const int32_t j = i / VECTORS, v = i % VECTORS;
        const bool exists = j >= lo && j < hi && 8 * v < width;
        if (j >= hole && j < hole_end) continue;
        const char *from = pages[exists ? (in_page + j) >> s.shift : (in_page + lo) >> s.shift];
        copy_vector(tile + j * split_tile<WIDTH>::PITCH + v * 16,
                    exists ? from + offset + ((int64_t)((in_page + j) & mask) * width + 8 * v) * 2 : from,
                    exists);
    }
}

// copy_tile of pages of 8 bits, as bf16. The copies are complete at the next barrier. A thread has several
// loads on their way before it stores the first.
template <int WIDTH, int THREADS>
__device__ inline void decode_tile(char *tile, const split_source &s, const char *const *pages, bool values,
                                   int64_t base, int32_t begin, int32_t end, int32_t lo, int32_t hi,
                                   int32_t hole = 0, int32_t hole_end = 0) {
    enum { VECTORS = split_tile<WIDTH>::VECTORS, AT_ONCE = 8 };
    const gpu_kv &kv = *s.kv;
    const int32_t mask = kv.page_len - 1, in_page = (int32_t)base & mask,
                  width = values ? kv.v_width : kv.width, blocks = q8_blocks(width);
    const int64_t codes = values ? s.values : s.keys, scales = q8_scales_at(kv, values, s.head);
#pragma unroll 1
    for (int32_t i0 = begin * VECTORS + (int32_t)threadIdx.x; i0 < end * VECTORS; i0 += AT_ONCE * THREADS) {
        uint2 code[AT_ONCE];
        uint8_t scale[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int32_t i = i0 + k * THREADS, j = i / VECTORS, v = i % VECTORS;
            code[k] = make_uint2(0, 0), scale[k] = 0;
            if (i >= end * VECTORS || j < lo || j >= hi || 8 * v >= width || (j >= hole && j < hole_end))
                continue;
            const char *const page = pages[(in_page + j) >> s.shift];
            const int64_t at = (in_page + j) & mask;
            code[k] = *(const uint2 *)(page + codes + at * width + 8 * v);
            scale[k] = (uint8_t)page[scales + at * blocks + v / 4];
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int32_t i = i0 + k * THREADS, j = i / VECTORS, v = i % VECTORS;
            if (i >= end * VECTORS || (j >= hole && j < hole_end)) continue;
            float x[8];
            q8_load8(code[k], scale[k], x);
            *(uint4 *)(tile + j * split_tile<WIDTH>::PITCH + v * 16) =
                make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]),
                           bf16_pair(x[6], x[7]));
        }
    }
}

// The fragments of keys for two tiles of 8 positions, from position j of the split, in step k of the columns:
// f[0], f[1] of the first, f[2], f[3] of the second.
template <int WIDTH>
__device__ inline void key_fragments(uint32_t f[4], uint32_t tile, int32_t j, int32_t k) {
    const int32_t lane = (int32_t)threadIdx.x % 32;
    load_matrices(f, tile + (j + lane / 16 * 8 + lane % 8) * split_tile<WIDTH>::PITCH +
                         (2 * k + lane / 8 % 2) * 16);
}
// The fragments of values for two tiles of 8 columns, from column 16 n, in step k of the positions.
template <int WIDTH>
__device__ inline void value_fragments(uint32_t f[4], uint32_t tile, int32_t k, int32_t n) {
    const int32_t lane = (int32_t)threadIdx.x % 32;
    load_transposed(f, tile + (16 * k + lane % 16) * split_tile<WIDTH>::PITCH + (2 * n + lane / 16) * 16);
}

// The query heads of a block: those that share a key/value head, up to the rows of an mma.
__host__ __device__ inline int32_t mma_heads(const gpu_attention &a) {
    const int32_t group = a.n_heads / a.kv.n_kv_heads;
    return group < MMA_TILE ? group : MMA_TILE;
}
__host__ __device__ inline int32_t mma_head_blocks(const gpu_attention &a) {
    const int32_t group = a.n_heads / a.kv.n_kv_heads, heads = mma_heads(a);
    return a.kv.n_kv_heads * ((group + heads - 1) / heads);
}
// The heads of block i: those of key/value head `kv`, from `first` on.
struct head_range {
    int32_t kv, first, count;
    __device__ head_range(const gpu_attention &a, int32_t i) {
        const int32_t group = a.n_heads / a.kv.n_kv_heads, heads = mma_heads(a),
                      parts = (group + heads - 1) / heads;
        kv = i / parts;
        first = kv * group + i % parts * heads;
        count = min((kv + 1) * group - first, heads);
    }
};

// In a step of more than GPU_FEW_ROWS rows, the most rows of a sequence that are computed one by one; the
// rows of other sequences are computed in tiles.
enum { MOST_SINGLE_ROWS = 4 };

// ---- how blocks share the splits of rows ----
//
// A grid has `most` blocks for each group of heads, at least as many as rows. Every block makes the same
// list: a row of n splits has ceil(n / each) blocks in turn, where `each` is about the least for which the
// blocks suffice and the scratch has space for the splits of rows that several blocks share. So one long row
// among short ones is computed by the blocks that the short rows leave.

enum { SHARED_ROWS = 256 }; // with more rows, each has one block

struct row_share {
    int32_t item;                // the row of this block among the rows of the grid; -1: it has none
    int32_t z, workers;          // this block among the blocks of the row, and their number
    int32_t n_splits, stored_at; // of the row; where its splits begin in the scratch
};

__device__ inline int32_t blocks_of(int32_t n, int32_t each) {
    return (int32_t)((uint32_t)(n + each - 1) / (uint32_t)each);
}
// The share of block x; all lanes of a warp call it. splits_of(i): of row i, 0 if it has none.
template <int PER_LANE, typename F>
__device__ inline row_share find_share(int32_t x, int32_t most, int32_t rows, int32_t space,
                                       const F &splits_of) {
    const int32_t lane = (int32_t)threadIdx.x % 32;
    const uint32_t all = 0xffffffffu;
    enum { WORKERS_BITS = 12, MASK = (1 << WORKERS_BITS) - 1 };
    int32_t n[PER_LANE], total = 0, each;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int32_t r = lane + 32 * i;
        n[i] = r < rows ? splits_of(r) : 0;
        total += n[i];
    }
    total = __reduce_add_sync(all, total);
    for (each = max(blocks_of(total, most), 1);; each += max(each / 8, 1)) {
        int32_t workers = 0, stored = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const int32_t w = blocks_of(n[i], each);
            workers += w;
            if (w > 1) stored += n[i];
        }
        if (__reduce_add_sync(all, workers) <= most && __reduce_add_sync(all, stored) <= space) break;
    }
    int32_t before = 0; // workers, and above them the stored splits, of the rows before those of this turn
    row_share share = {-1, 0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        const int32_t w = blocks_of(n[i], each), own = w + (w > 1 ? n[i] << WORKERS_BITS : 0);
        int32_t upto = own;
#pragma unroll
        for (int k = 1; k < 32; k *= 2) {
            const int32_t below = __shfl_up_sync(all, upto, k);
            if (lane >= k) upto += below;
        }
        const int32_t from = before + upto - own, first = from & MASK;
        const uint32_t hit = __ballot_sync(all, x >= first && x < first + w);
        const int at = hit ? __ffs((int)hit) - 1 : 0;
        const int32_t begin = __shfl_sync(all, from, at), workers = __shfl_sync(all, w, at),
                      splits = __shfl_sync(all, n[i], at);
        if (hit) {
            share.item = at + 32 * i, share.z = x - (begin & MASK), share.workers = workers;
            share.n_splits = splits, share.stored_at = begin >> WORKERS_BITS;
        }
        before += __shfl_sync(all, upto, 31);
    }
    return share;
}
// The share of block x of a row that is alone: what find_share finds, without its steps.
__device__ inline row_share share_alone(int32_t x, int32_t most, int32_t n, int32_t space) {
    const int32_t each = n > space   ? n
                         : n <= most ? 1
                                     : blocks_of(n, most),
                  workers = each == 1 ? n : blocks_of(n, each);
    if (x >= workers) return {-1, 0, 0, 0, 0};
    return {0, x, workers, n, 0};
}
// MOST: rows that a step can have. The code for more is left out: a kernel of few rows takes longer if its
// code is large (bench/log/attempts.csv).
template <int MOST, typename F>
__device__ inline row_share share_of(int32_t x, int32_t most, int32_t rows, int32_t space,
                                     const F &splits_of) {
    if (rows == 1) return share_alone(x, most, splits_of(0), space);
    if (MOST <= 32) return find_share<1>(x, most, rows, space, splits_of);
    if (rows <= 64) return find_share<2>(x, most, rows, space, splits_of);
    if (rows <= SHARED_ROWS) return find_share<SHARED_ROWS / 32>(x, most, rows, space, splits_of);
    const int32_t n = x < rows ? splits_of(x) : 0;
    return {n > 0 ? x : -1, 0, 1, n, 0};
}
// Blocks for each group of heads in a grid of so many rows; `slots` of them are on the GPU at a time.
inline uint32_t sharing_blocks(int32_t rows, int32_t slots) {
    if (rows > SHARED_ROWS) return (uint32_t)rows;
    const int32_t more = rows + slots / 2;
    return (uint32_t)(more > slots ? more : slots);
}
// The number of splits of `each` positions that a row at `pos` sees, and the first of them.
__device__ inline int32_t first_position(int64_t window, int32_t pos) {
    const int32_t w = (int32_t)min(window, (int64_t)INT32_MAX);
    return w > 0 && pos >= w ? pos - w + 1 : 0;
}
__device__ inline int32_t splits_seen(int64_t window, int32_t pos, int32_t each) {
    return pos / each - first_position(window, pos) / each + 1;
}

// The columns of a key or a value, the more of both.
inline int32_t most_columns(const gpu_kv &kv) { return kv.width > kv.v_width ? kv.width : kv.v_width; }
// Calls f<width>(...) with the smallest width that a kernel is compiled for.
#define FOR_WIDTH(width, f, ...)                      \
    do {                                              \
        if ((width) <= 64) f<64>(__VA_ARGS__);        \
        else if ((width) <= 96) f<96>(__VA_ARGS__);   \
        else if ((width) <= 128) f<128>(__VA_ARGS__); \
        else f<256>(__VA_ARGS__);                     \
    } while (0)

// attention_rows.cu, attention_tiles.cu: put the kernels on the stream; raise their limits of shared memory,
// up to that of the device.
// attention_rows with h: see gpu_attention_heads; q is not read.
void attention_rows(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                    const gpu_heads *h, const gpu_array *y);
void attention_tiles(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                     const gpu_array *y);
// Bytes of shared memory that both kernels need at least.
int32_t attention_mma_shared(const gpu_attention *a);
size_t attention_rows_scratch(const gpu_attention *a, size_t *counters);
cudaError_t attention_rows_open(int32_t limit);
cudaError_t attention_tiles_open(int32_t limit);
