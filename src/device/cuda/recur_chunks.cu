// The gated delta rule for sequences of several rows: all rows of a chunk together, with the bits of a row
// after the other (recur.cu). Each sum is the same chain of fma:
//
//     d[t][e]     s_e . k_t, then s_e . q_t                           i ascending over the key's columns
//     w[t][j]     exp(g_t - g_j) k_j . k_t, j < t, then of q_t, j <= t        likewise
//     u[t][e]     beta_t (v - decay_t d[t][e] - w[t][0] u[0][e] - w[t][1] u[1][e] ..)       j ascending
//     y[t][e]     decay_t d[t][e] + w[t][0] u[0][e] + ..                                    j ascending
//
// Only u depends on the rows before it. A half warp has a column of it: as soon as u[j] is known, all later
// rows subtract their w[t][j] u[j], which is the order of each chain.
#include "recur.cuh"

enum { CHUNK_THREADS = 256, CHUNK_COLUMNS = 16, CHUNK_ROWS = 64, CHUNK_SHARED = 99 << 10 };

__device__ inline float number_of(float x) { return x; }
__device__ inline float number_of(uint16_t x) { return bf16_to_f32(x); }

// A block has 16 columns of the values of one head of one sequence, and the rows of the present chunk.
struct chunk_block {
    const gpu_recur &p;
    int64_t head, key_head, col0;
    int32_t n, t0, t1;       // columns that exist; rows t0 .. t1 - 1 of the chunk are of this step
    float *s;                // [E][16]
    float *u, *d;            // [rows][16]
    float *keys, *query;     // [rows][E + 4]
    float *w;                // [rows][rows + 1]
    float *g, *decay, *beta; // [rows]

    __device__ int32_t pitch(void) const { return p.E + 4; }
    __device__ float &weight(int32_t t, int32_t j) const { return w[t * (CHUNK_ROWS + 1) + j]; }
    __device__ bool is_of_step(int32_t t) const { return t >= t0 && t < t1; }
    __device__ int64_t value_at(int64_t j, int64_t e) const {
        return (head * p.page_len + j) * p.Ev + col0 + e;
    }
    __device__ int64_t key_at(int64_t j, int64_t i) const { return (key_head * p.E + i) * p.page_len + j; }

    __device__ void clear(void) const {
        for (int32_t i = (int32_t)threadIdx.x; i < p.E * CHUNK_COLUMNS; i += CHUNK_THREADS) s[i] = 0;
        __syncthreads();
    }
    // Reads S and the first `rows` rows of a chunk.
    __device__ void load(const char *page, int32_t rows) const {
        const float *from = (const float *)(page + p.s) + head * p.E * p.Ev;
        for (int32_t i = (int32_t)threadIdx.x; i < p.E * CHUNK_COLUMNS; i += CHUNK_THREADS) {
            const int32_t e = i % CHUNK_COLUMNS;
            s[i] = e < n ? from[(int64_t)(i / CHUNK_COLUMNS) * p.Ev + col0 + e] : 0.0f;
        }
        for (int32_t i = (int32_t)threadIdx.x; i < rows * CHUNK_COLUMNS; i += CHUNK_THREADS) {
            const int32_t e = i % CHUNK_COLUMNS;
            u[i] = e < n ? load_element(page + p.values, p.type, value_at(i / CHUNK_COLUMNS, e)) : 0.0f;
        }
        for (int32_t i = (int32_t)threadIdx.x; i < rows * p.E; i += CHUNK_THREADS)
            keys[i % rows * pitch() + i / rows] =
                load_element(page + p.keys, p.type, key_at(i % rows, i / rows));
        for (int32_t j = (int32_t)threadIdx.x; j < rows; j += CHUNK_THREADS)
            g[j] = ((const float *)(page + p.decays))[head * p.page_len + j];
        __syncthreads();
    }
    // Writes the rows of the step and, if the first of the chunk is among them, S. What several blocks know,
    // one of them writes.
    __device__ void store(char *page) const {
        const int32_t rows = t1 - t0;
        for (int32_t i = (int32_t)threadIdx.x; t0 == 0 && i < p.E * CHUNK_COLUMNS; i += CHUNK_THREADS) {
            const int32_t e = i % CHUNK_COLUMNS;
            if (e < n) ((float *)(page + p.s))[(head * p.E + i / CHUNK_COLUMNS) * p.Ev + col0 + e] = s[i];
        }
        for (int32_t i = (int32_t)threadIdx.x; i < rows * CHUNK_COLUMNS; i += CHUNK_THREADS) {
            const int32_t e = i % CHUNK_COLUMNS, t = t0 + i / CHUNK_COLUMNS;
            if (e < n) store_element(page + p.values, p.type, value_at(t, e), u[t * CHUNK_COLUMNS + e]);
        }
        for (int32_t i = (int32_t)threadIdx.x; col0 == 0 && head % (p.H / p.K) == 0 && i < rows * p.E;
             i += CHUNK_THREADS) {
            const int32_t j = t0 + i % rows;
            store_element(page + p.keys, p.type, key_at(j, i / rows), keys[j * pitch() + i / rows]);
        }
        for (int32_t j = t0 + (int32_t)threadIdx.x; col0 == 0 && j < t1; j += CHUNK_THREADS)
            ((float *)(page + p.decays))[head * p.page_len + j] = g[j];
        __syncthreads();
    }
    // S at the start of the next chunk, from all rows of this one.
    __device__ void advance(void) const {
        enum { EACH = 8, GROUPS = CHUNK_COLUMNS / EACH, LANES = CHUNK_THREADS / GROUPS };
        const int32_t len = p.page_len, e0 = (int32_t)threadIdx.x / LANES * EACH;
        const float last = g[len - 1], factor = ln_expf(last);
        for (int32_t i = (int32_t)threadIdx.x; i < len * CHUNK_COLUMNS; i += CHUNK_THREADS)
            u[i] = ln_expf(last - g[i / CHUNK_COLUMNS]) * u[i];
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x % LANES; i < p.E; i += LANES) {
            float x[EACH];
#pragma unroll
            for (int c = 0; c < EACH; c++) x[c] = factor * s[i * CHUNK_COLUMNS + e0 + c];
#pragma unroll 8
            for (int32_t j = 0; j < len; j++) {
                const float k = keys[j * pitch() + i], *row = u + j * CHUNK_COLUMNS + e0;
#pragma unroll
                for (int c = 0; c < EACH; c++) x[c] = fmaf(k, row[c], x[c]);
            }
#pragma unroll
            for (int c = 0; c < EACH; c++) s[i * CHUNK_COLUMNS + e0 + c] = x[c];
        }
        __syncthreads();
    }

    // Queries and keys of the rows, divided by their lengths: half a warp has each. T: of their elements.
    template <typename T> __device__ void set_units(const gpu_array &q, const gpu_array &k, int64_t r) const {
        enum { MOST = 16 }; // columns of a lane
        const int32_t half = (int32_t)threadIdx.x / 16, lane = (int32_t)threadIdx.x % 16;
        const bool of_key = half % 2;
        const gpu_array &x = of_key ? k : q;
        for (int32_t t = t0 + half / 2; t < t1; t += CHUNK_THREADS / 32) {
            const T *row = (const T *)x.data + (r + t - t0) * x.pitch + key_head * p.E;
            float v[MOST], sum = 0;
#pragma unroll
            for (int i = 0; i < MOST; i++) v[i] = lane + 16 * i < p.E ? number_of(row[lane + 16 * i]) : 0.0f;
#pragma unroll
            for (int i = 0; i < MOST; i++)
                if (lane + 16 * i < p.E) sum = fmaf(v[i], v[i], sum);
            for (int m = 8; m > 0; m /= 2) sum = sum + __shfl_xor_sync(0xffffffffu, sum, m);
            const float scale = 1.0f / sqrtf(sum + p.eps);
#pragma unroll
            for (int i = 0; i < MOST; i++) {
                const int32_t at = t * pitch() + lane + 16 * i;
                if (lane + 16 * i >= p.E) continue;
                if (of_key) keys[at] = as_stored(p, v[i] * scale);
                else query[at] = v[i] * scale * p.by;
            }
        }
    }
    // The same with decays and betas.
    __device__ void set_rows(const gpu_array &gates, const gpu_array &q, const gpu_array &k,
                             int64_t r) const {
        if (q.type == GPU_F32 && k.type == GPU_F32) set_units<float>(q, k, r);
        else set_units<uint16_t>(q, k, r);
        for (int32_t t = t0 + (int32_t)threadIdx.x; t < t1; t += CHUNK_THREADS) {
            g[t] = load_at(gates, r + t - t0, head);
            beta[t] = load_at(gates, r + t - t0, p.H + head);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            float now = t0 > 0 ? g[t0 - 1] : 0.0f;
#pragma unroll 8
            for (int32_t t = t0; t < t1; t++) now = t > 0 ? now + g[t] : g[t], g[t] = now;
        }
        __syncthreads();
        for (int32_t t = t0 + (int32_t)threadIdx.x; t < t1; t += CHUNK_THREADS) decay[t] = ln_expf(g[t]);
    }
    // d of x, keys or queries. A thread has four columns of a row.
    __device__ void set_dots(const float *x) const {
        const int32_t t = (int32_t)threadIdx.x / 4, e = (int32_t)threadIdx.x % 4 * 4;
        if (!is_of_step(t)) return;
        float4 sum = make_float4(0, 0, 0, 0);
        const float *row = x + t * pitch();
#pragma unroll 8
        for (int32_t i = 0; i < p.E; i++) {
            const float4 column = *(const float4 *)(s + i * CHUNK_COLUMNS + e);
            const float v = row[i];
            sum.x = fmaf(column.x, v, sum.x), sum.y = fmaf(column.y, v, sum.y);
            sum.z = fmaf(column.z, v, sum.z), sum.w = fmaf(column.w, v, sum.w);
        }
        *(float4 *)(d + t * CHUNK_COLUMNS + e) = sum;
    }
    // w of x. A thread has rows 16 apart, and of each every 16th row before it.
    __device__ void set_weights(const float *x) const {
        enum { SIDE = 16, N = CHUNK_ROWS / SIDE };
        const int32_t ty = (int32_t)threadIdx.x / SIDE, tx = (int32_t)threadIdx.x % SIDE;
        float sum[N][N] = {};
        for (int32_t i = 0; i < p.E; i += 4) {
            float4 left[N], right[N];
#pragma unroll
            for (int a = 0; a < N; a++) {
                left[a] = *(const float4 *)(x + (ty + SIDE * a) * pitch() + i);
                right[a] = *(const float4 *)(keys + (tx + SIDE * a) * pitch() + i);
            }
#pragma unroll
            for (int a = 0; a < N; a++)
#pragma unroll
                for (int b = 0; b <= a; b++) {
                    sum[a][b] = fmaf(right[b].x, left[a].x, sum[a][b]);
                    sum[a][b] = fmaf(right[b].y, left[a].y, sum[a][b]);
                    sum[a][b] = fmaf(right[b].z, left[a].z, sum[a][b]);
                    sum[a][b] = fmaf(right[b].w, left[a].w, sum[a][b]);
                }
        }
#pragma unroll
        for (int a = 0; a < N; a++)
#pragma unroll
            for (int b = 0; b <= a; b++) {
                const int32_t t = ty + SIDE * a, j = tx + SIDE * b;
                if (is_of_step(t) && j <= t) weight(t, j) = ln_expf(g[t] - g[j]) * sum[a][b];
            }
    }
    __device__ void set_values(const gpu_array &v, int64_t r) const {
        enum { SIDE = 16, N = CHUNK_ROWS / SIDE };
        const int32_t lane = (int32_t)threadIdx.x % SIDE, e = (int32_t)threadIdx.x / SIDE;
        float out[N];
#pragma unroll
        for (int a = 0; a < N; a++) {
            const int32_t t = lane + SIDE * a;
            out[a] = is_of_step(t) && e < n ? fmaf(-decay[t], d[t * CHUNK_COLUMNS + e],
                                                   load_at(v, r + t - t0, head * p.Ev + col0 + e))
                                            : 0.0f;
        }
#pragma unroll
        for (int b = 0; b < N; b++)
            for (int32_t i = 0; i < SIDE && b * SIDE + i < t1; i++) {
                const int32_t j = b * SIDE + i;
                const float mine = __shfl_sync(0xffffffffu, out[b], i, SIDE),
                            known = j < t0 ? u[j * CHUNK_COLUMNS + e] : as_stored(p, beta[j] * mine);
                if (lane == i && j >= t0) u[j * CHUNK_COLUMNS + e] = known;
#pragma unroll
                for (int a = b; a < N; a++) {
                    const int32_t t = lane + SIDE * a;
                    if (t > j && is_of_step(t)) out[a] = fmaf(-weight(t, j), known, out[a]);
                }
            }
    }
    __device__ void write_outputs(const gpu_array &y, int64_t r) const {
        const int32_t t = (int32_t)threadIdx.x / 4, e = (int32_t)threadIdx.x % 4 * 4;
        if (!is_of_step(t)) return;
        float4 out = *(const float4 *)(d + t * CHUNK_COLUMNS + e);
        out.x = decay[t] * out.x, out.y = decay[t] * out.y;
        out.z = decay[t] * out.z, out.w = decay[t] * out.w;
#pragma unroll 4
        for (int32_t j = 0; j <= t; j++) {
            const float4 row = *(const float4 *)(u + j * CHUNK_COLUMNS + e);
            const float by = weight(t, j);
            out.x = fmaf(by, row.x, out.x), out.y = fmaf(by, row.y, out.y);
            out.z = fmaf(by, row.z, out.z), out.w = fmaf(by, row.w, out.w);
        }
        const int64_t at = head * p.Ev + col0 + e;
        if (e < n) store_at(y, r + t - t0, at, out.x);
        if (e + 1 < n) store_at(y, r + t - t0, at + 1, out.y);
        if (e + 2 < n) store_at(y, r + t - t0, at + 2, out.z);
        if (e + 3 < n) store_at(y, r + t - t0, at + 3, out.w);
    }
    // Rows t0 .. t1 - 1, the first of which is row r of the step.
    __device__ void compute(const gpu_array &gates, const gpu_array &q, const gpu_array &k,
                            const gpu_array &v, const gpu_array &y, int64_t r) const {
        set_rows(gates, q, k, r);
        __syncthreads();
        set_dots(keys);
        set_weights(keys);
        __syncthreads();
        set_values(v, r);
        __syncthreads();
        set_dots(query);
        set_weights(query);
        __syncthreads();
        write_outputs(y, r);
        __syncthreads();
    }
};

__global__ void __launch_bounds__(CHUNK_THREADS)
    delta_chunks(gpu_step s, gpu_recur p, gpu_array gates, gpu_array q, gpu_array k, gpu_array v,
                 gpu_array y) {
    extern __shared__ __align__(16) float chunk_shared[];
    begin();
    const int32_t b = (int32_t)blockIdx.y, parts = (p.Ev + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS,
                  len = p.page_len, part = (int32_t)blockIdx.x % parts, head = (int32_t)blockIdx.x / parts,
                  left = p.Ev - part * CHUNK_COLUMNS;
    if (b >= s.head->n_seqs) return;
    float *at[9] = {chunk_shared};
    const int32_t sizes[8] = {p.E * CHUNK_COLUMNS,
                              CHUNK_ROWS * CHUNK_COLUMNS,
                              CHUNK_ROWS * CHUNK_COLUMNS,
                              CHUNK_ROWS * (p.E + 4),
                              CHUNK_ROWS * (p.E + 4),
                              CHUNK_ROWS * (CHUNK_ROWS + 1),
                              CHUNK_ROWS,
                              CHUNK_ROWS};
    for (int i = 0; i < 8; i++) at[i + 1] = at[i] + sizes[i];
    chunk_block c = {p,
                     head,
                     head / (p.H / p.K),
                     (int64_t)part * CHUNK_COLUMNS,
                     left < CHUNK_COLUMNS ? left : (int32_t)CHUNK_COLUMNS,
                     0,
                     0,
                     at[0],
                     at[1],
                     at[2],
                     at[3],
                     at[4],
                     at[5],
                     at[6],
                     at[7],
                     at[8]};
    int64_t r = s.row0[b], pos = s.pos[r];
    const int64_t end = s.row0[b + 1];
    c.t0 = (int32_t)(pos % len);
    if (pos == 0) c.clear();
    else {
        const char *page = page_of(s, p, b, (pos - 1) / len);
        if (!page) return;
        c.load(page, c.t0 ? c.t0 : len);
    }
    if (pos > 0 && c.t0 == 0) c.advance();
    while (r < end) {
        const int32_t rows = (int32_t)(len - c.t0 < end - r ? len - c.t0 : end - r);
        char *page = page_of(s, p, b, pos / len);
        c.t1 = c.t0 + rows;
        c.compute(gates, q, k, v, y, r);
        if (page) c.store(page);
        r += rows, pos += rows, c.t0 = 0;
        if (r < end) c.advance();
    }
}

static int64_t chunk_bytes(int32_t E) {
    return ((int64_t)(E + 2 * CHUNK_ROWS) * CHUNK_COLUMNS + 2 * (int64_t)CHUNK_ROWS * (E + 4) +
            (int64_t)CHUNK_ROWS * (CHUNK_ROWS + 1) + 3 * CHUNK_ROWS) *
           (int64_t)sizeof(float);
}
bool gpu_has_delta_chunks(const gpu_recur *p, const gpu_array *q, const gpu_array *k) {
    return p->page_len <= CHUNK_ROWS && p->E % 4 == 0 && p->E <= 256 && q->type == k->type &&
           chunk_bytes(p->E) <= CHUNK_SHARED;
}
int gpu_delta_chunks(const gpu_launch *l, const gpu_step *s, const gpu_recur *p, const gpu_array *gates,
                     const gpu_array *q, const gpu_array *k, const gpu_array *v, const gpu_array *y) {
    const int32_t parts = (p->Ev + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    const cudaError_t e = cudaFuncSetAttribute((const void *)delta_chunks,
                                               cudaFuncAttributeMaxDynamicSharedMemorySize, CHUNK_SHARED);
    if (e != cudaSuccess) return (int)e;
    run(l, dim3((unsigned)(p->H * parts), (unsigned)l->B), CHUNK_THREADS, (size_t)chunk_bytes(p->E),
        delta_chunks, *s, *p, *gates, *q, *k, *v, *y);
    return (int)cudaGetLastError();
}
