// The parts of the kernel of attention_rows.cu that come before its arithmetic: the row and the splits of a
// block, the copies of their keys and values to shared memory, and rmsnorm and rope of the queries and of
// this step's keys.
#pragma once

#include "attention_mma.cuh"
#include "heads.cuh"

enum {
    ROW_THREADS = 128,
    ROW_WARPS = ROW_THREADS / 32,
    ROW_POSITIONS = MMA_SPLIT / ROW_WARPS, // whose scores a warp computes
    MERGE_TILE = 32                        // splits that are merged at once
};

// Row i of the rows that are computed one by one, -1: there is none. per_seq 0: row i of the step; else row
// i % per_seq of sequence i / per_seq, of those that have up to per_seq rows.
__device__ inline int32_t row_at(const gpu_step &step, int32_t i, int32_t per_seq) {
    if (!per_seq) return i;
    const int32_t seq = i / per_seq, row0 = step.row0[seq], n = step.row0[seq + 1] - row0;
    return n <= per_seq && i % per_seq < n ? row0 + i % per_seq : -1;
}
template <int MOST>
__device__ inline row_share find_row(const gpu_step &step, const gpu_attention &a, int32_t per_seq) {
    const int32_t rows = per_seq ? step.head->n_seqs * per_seq : step.head->n_rows;
    return share_of<MOST>((int32_t)blockIdx.y, (int32_t)gridDim.y, rows, a.room, [&](int32_t i) {
        const int32_t r = row_at(step, i, per_seq);
        return r < 0 ? 0 : splits_seen(a.window, step.pos[r], MMA_SPLIT);
    });
}

// What a block works on: heads of a row, and the splits that the row sees.
struct row_job {
    head_range heads;
    int32_t row, row0, seq, pos, first, old; // old: positions of the sequence before this step
    int32_t split0, n_splits;
    int32_t z, workers;      // this block, and the number of blocks of the row
    int32_t item, stored_at; // see row_share
    bool shared;             // several blocks share the splits

    __device__ row_job(const gpu_step &step, const gpu_attention &a, int32_t r, const row_share &share)
        : heads(a, (int32_t)blockIdx.x), row(r) {
        seq = step.seq[r], pos = step.pos[r], row0 = step.row0[seq], old = step.pos[row0];
        first = first_position(a.window, pos);
        split0 = first / MMA_SPLIT, n_splits = share.n_splits;
        z = share.z, workers = share.workers, shared = workers > 1;
        item = share.item, stored_at = share.stored_at;
    }
    __device__ int32_t base(int32_t i) const { return (split0 + i) * MMA_SPLIT; }
    // Positions of split i that the row sees, from the split's first; of these, those from `own` on are of
    // this step.
    __device__ int32_t lo(int32_t i) const { return max(first - base(i), 0); }
    __device__ int32_t hi(int32_t i) const { return min(pos + 1 - base(i), (int32_t)MMA_SPLIT); }
    __device__ int32_t own(int32_t i) const { return min(max(old - base(i), lo(i)), hi(i)); }
};

// The copies of keys and values of splits from pages to shared memory.
template <int WIDTH, bool Q8 = false> struct row_copies {
    const row_job &job;
    split_source source;
    const char *(*pages)[MMA_PAGES]; // [2], in shared memory
    char *tiles;                     // of keys, then of values

    // Of this thread, in split i.
    __device__ const char *find_page(int32_t i) const {
        if (threadIdx.x >= MMA_PAGES || i >= job.n_splits) return NULL;
        return source.page(job.base(i), (int32_t)threadIdx.x, job.first, (int64_t)job.pos + 1);
    }
    __device__ char *tile(int which) const { return tiles + which * split_tile<WIDTH>::BYTES; }
    __device__ int64_t offset(int which) const { return which ? source.values : source.keys; }
    __device__ int32_t width(int which) const { return which ? source.kv->v_width : source.kv->width; }
    // The positions of split i that earlier steps have written, and zeros before the first and behind the
    // last that the row sees, up to whole steps of 16. The positions of this step are left out.
    __device__ void copy_old(int which, int32_t i, int32_t stage) const {
        const int32_t lo = job.lo(i), hi = job.hi(i), own = job.own(i);
        if (Q8)
            decode_tile<WIDTH, ROW_THREADS>(tile(which), source, pages[stage], which, job.base(i),
                                            lo / 16 * 16, (hi + 15) / 16 * 16, lo, own, own, hi);
        else
            copy_tile<WIDTH, ROW_THREADS>(shared_address(tile(which)), source, pages[stage], offset(which),
                                          width(which), job.base(i), lo / 16 * 16, (hi + 15) / 16 * 16, lo,
                                          own, own, hi);
    }
    // The positions of this step in split i; returns whether there are any.
    __device__ bool copy_own(int32_t i, int32_t stage) const {
        const int32_t own = job.own(i), hi = job.hi(i);
        if (own >= hi) return false;
#pragma unroll 1
        for (int which = 0; which < 2; which++)
            if (Q8)
                decode_tile<WIDTH, ROW_THREADS>(tile(which), source, pages[stage], which, job.base(i), own,
                                                hi, own, hi);
            else
                copy_tile<WIDTH, ROW_THREADS>(shared_address(tile(which)), source, pages[stage],
                                              offset(which), width(which), job.base(i), own, hi, own, hi);
        return true;
    }
};

// Makes the keys and values of this step's rows and the queries of the block's row from the operands of
// gpu_heads, a warp for each head. The code is kept small: unrolled for every case and type, it took longer
// (bench/log/attempts.csv).
template <int WIDTH> struct own_heads {
    enum { N = (WIDTH + 31) / 32, TILE_PITCH = split_tile<WIDTH>::PITCH, QUERY_PITCH = 2 * WIDTH + 16 };
    enum { QUERY, KEY, VALUE };
    const row_job &job;
    const gpu_heads &h;
    const row_copies<WIDTH> &copies;
    char *queries;
    // Heads have WIDTH columns, operands f32 and norms bf16, as in most models: make_whole is used, in which
    // lane c has columns c + 32 i of a head.
    bool whole;
    float weights[2][N]; // of the norms of queries and keys, with the offset

    struct task {
        int kind;
        int32_t row, at; // row of the step; head of the block, or position in the split
    };
    // Task t of a split, of whose positions n, from `own` on, are of this step: keys, values, then queries.
    __device__ task task_of(int32_t t, int32_t split, int32_t own, int32_t n) const {
        if (t >= 2 * n) return {QUERY, job.row, t - 2 * n};
        const int32_t at = own + t % n;
        return {t < n ? KEY : VALUE, job.row0 + job.base(split) + at - job.old, at};
    }
    __device__ const float *source_of(const task &t) const {
        const float *x = (const float *)(t.kind == QUERY ? h.q.data : t.kind == KEY ? h.k.data : h.v.data);
        const int64_t pitch = t.kind == QUERY ? h.q.pitch : t.kind == KEY ? h.k.pitch : h.v.pitch;
        return x + t.row * pitch +
               (int64_t)(t.kind == QUERY ? job.heads.first + t.at : job.heads.kv) * h.kv.head_dim;
    }
    __device__ uint16_t *target_of(const task &t) const {
        if (t.kind == QUERY) return (uint16_t *)(queries + t.at * QUERY_PITCH);
        return (uint16_t *)(copies.tile(t.kind - KEY) + t.at * TILE_PITCH);
    }
    // Where the key or value belongs in a page, NULL where another block writes it.
    __device__ uint16_t *page_of(const task &t, int32_t split, int32_t stage) const {
        if (t.kind == QUERY || t.row != job.row ||
            job.heads.first != job.heads.kv * (h.n_heads / h.kv.n_kv_heads))
            return NULL;
        const int32_t mask = h.kv.page_len - 1, in_page = (job.base(split) & mask) + t.at;
        return (uint16_t *)(copies.pages[stage][in_page >> copies.source.shift] +
                            copies.offset(t.kind - KEY)) +
               (in_page & mask) * h.kv.width;
    }

    __device__ void open(void) {
        const gpu_weight *const norms[2] = {&h.q_norm, &h.k_norm};
        whole = WIDTH % 64 == 0 && h.kv.head_dim == WIDTH && h.table.cols == WIDTH && !h.interleaved &&
                h.q.type == GPU_F32 && h.k.type == GPU_F32 && h.v.type == GPU_F32 && h.table.type == GPU_F32;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            if (!norms[k]->data) continue;
            whole = whole && norms[k]->type == GPU_BF16;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (whole)
                    weights[k][i] =
                        bf16_to_f32(((const uint16_t *)norms[k]->data)[threadIdx.x % 32 + 32 * i]) + h.offset;
        }
    }
    __device__ void load(float x[N], float angle[N], const task &t) const {
        const float *from = source_of(t) + threadIdx.x % 32,
                    *turn = (const float *)h.table.data + t.row * h.table.pitch + threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = from[32 * i];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (t.kind != VALUE) angle[i] = turn[32 * i]; // cosines, then sines
    }
    // The operations, and their order, are those of rotate_head.
    __device__ void turn(float x[N], const float angle[N], const task &t) const {
        if (t.kind == VALUE) return;
        if (h.q_norm.data) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < N; i++) sum = fmaf(x[i], x[i], sum);
            const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)h.kv.head_dim + h.eps);
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = (x[i] * scale) * (t.kind == QUERY ? weights[0][i] : weights[1][i]);
        }
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float a = x[i], b = x[i + N / 2], co = angle[i], sn = angle[i + N / 2];
            x[i] = a * co - b * sn, x[i + N / 2] = b * co + a * sn;
        }
    }
    __device__ void make_whole(int32_t split, int32_t stage, int32_t own, int32_t n, int32_t tasks) const {
        float x[N], angle[N];
        int32_t i = (int32_t)threadIdx.x / 32;
        if (i < tasks) load(x, angle, task_of(i, split, own, n));
#pragma unroll 1
        for (; i < tasks; i += ROW_WARPS) {
            const task t = task_of(i, split, own, n);
            float next[N], next_angle[N];
            if (i + ROW_WARPS < tasks) load(next, next_angle, task_of(i + ROW_WARPS, split, own, n));
            turn(x, angle, t);
            uint16_t *to = target_of(t), *page = page_of(t, split, stage);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const uint16_t bits = f32_to_bf16(x[k]);
                to[threadIdx.x % 32 + 32 * k] = bits;
                if (page) page[threadIdx.x % 32 + 32 * k] = bits;
                x[k] = next[k], angle[k] = next_angle[k];
            }
        }
    }
    __device__ void make_any(int32_t split, int32_t stage, int32_t own, int32_t n, int32_t tasks) const {
        const int32_t lane = (int32_t)threadIdx.x % 32, E = h.kv.head_dim;
        for (int32_t i = (int32_t)threadIdx.x / 32; i < tasks; i += ROW_WARPS) {
            const task t = task_of(i, split, own, n);
            uint16_t *to = target_of(t), *page = page_of(t, split, stage);
            const auto store = [&](int32_t c, float v) {
                const uint16_t bits = f32_to_bf16(v);
                to[c] = bits;
                if (page) page[c] = bits;
            };
            const int64_t col0 = (int64_t)(t.kind == QUERY ? job.heads.first + t.at : job.heads.kv) * E;
            if (t.kind == VALUE)
                for (int32_t c = lane; c < E; c += 32) store(c, load_at(h.v, t.row, col0 + c));
            else
                rotate_head(h, t.kind == QUERY ? h.q : h.k, t.kind == QUERY ? h.q_norm : h.k_norm, t.row,
                            col0, store);
            for (int32_t c = E + lane; c < WIDTH; c += 32) to[c] = 0;
        }
    }
    // Makes the keys and values of a split; with_queries: and the queries of the block's row.
    __device__ void make(int32_t split, int32_t stage, bool with_queries) const {
        const int32_t own = job.own(split), n = max(job.hi(split) - own, 0),
                      tasks = 2 * n + (with_queries ? job.heads.count : 0);
        if (whole) make_whole(split, stage, own, n, tasks);
        else make_any(split, stage, own, n, tasks);
    }
};
