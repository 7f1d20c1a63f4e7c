// Kernels of recurrent mixers: the short convolution, the gates and the gated delta rule, with their state in
// pages of chunks. The formulas, the order of sums and so the bits are those of ops/recur_op.c.
#include "recur.cuh"

static inline int launched(void) { return (int)cudaGetLastError(); }

// ---- the convolution ----

// The inputs of a sequence: rows of the step from position `pos` on, which is row `first`, and before them
// those in a page, whose inputs begin at position before_at.
struct conv_inputs {
    const gpu_recur &p;
    const gpu_array &x;
    int64_t first, pos, before_at;
    const char *before;

    __device__ inline float at(int64_t channel, int64_t where) const {
        if (where >= pos) return as_stored(p, load_at(x, first + where - pos, channel));
        if (where < 0 || !before) return 0;
        return load_element(before + p.inputs, p.type, (where - before_at) * p.channels + p.at + channel);
    }
};

// A thread has a channel of a row. It also stores the channel's input and, of the first row of a chunk, the
// inputs before it: no other row of the step reads these places.
__global__ void short_conv(gpu_step s, gpu_recur p, gpu_array x, gpu_weight w, gpu_weight bias, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (r >= live_rows(s, x.rows) || c >= x.cols) return;
    const int32_t b = s.seq[r], taps = p.taps;
    const int64_t first = s.row0[b], pos0 = s.pos[first], pos = s.pos[r], len = p.page_len,
                  chunk0 = pos0 / len - (pos0 % len == 0);
    const conv_inputs in = {
        p, x, first, pos0, chunk0 * len - (taps - 1), pos0 > 0 ? page_of(s, p, b, chunk0) : NULL};
    float sum = 0;
    for (int32_t i = 0; i < taps; i++)
        sum = fmaf(load_element(w.data, w.type, (int64_t)c * taps + i), in.at(c, pos - (taps - 1) + i), sum);
    if (bias.data) sum = sum + load_element(bias.data, bias.type, c);
    store_at(y, r, c, p.silu ? ln_siluf(sum) : sum);
    char *page = page_of(s, p, b, pos / len);
    if (!page) return;
    const int64_t at = pos % len;
    for (int64_t i = at ? at + taps - 1 : 0; i <= at + taps - 1; i++)
        store_element(page + p.inputs, p.type, i * p.channels + p.at + c,
                      in.at(c, pos - at - (taps - 1) + i));
}

int gpu_short_conv(const gpu_launch *l, const gpu_step *s, const gpu_recur *p, const gpu_array *x,
                   const gpu_weight *w, const gpu_weight *bias, const gpu_array *y) {
    const dim3 grid((unsigned)grid_rows(l, x->rows), (unsigned)((x->cols + 127) / 128));
    run(l, grid, 128, 0, short_conv, *s, *p, *x, *w, *bias, *y);
    return launched();
}

// ---- the gates ----

__device__ inline float softplus(float x) {
    const double e = (double)ln_expf(x > 0 ? -x : x);
    return x != x ? x : (x > 0 ? x : 0.0f) + (float)ln_log64_core(1.0 + e, 0);
}
__global__ void delta_gates(gpu_step s, gpu_array a, gpu_array b, gpu_weight a_log, gpu_weight dt, float by,
                            gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, heads = a.cols;
    if (r >= live_rows(s, y.rows)) return;
    for (int32_t h = (int32_t)threadIdx.x; h < heads; h += (int32_t)blockDim.x) {
        const float x = load_at(a, r, h) + load_element(dt.data, dt.type, h);
        store_at(y, r, h, -ln_expf(load_element(a_log.data, a_log.type, h)) * softplus(x));
        store_at(y, r, heads + h, by / (1.0f + ln_expf(-load_at(b, r, h))));
    }
}

int gpu_delta_gates(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                    const gpu_weight *a_log, const gpu_weight *dt, float by, const gpu_array *y) {
    run(l, (unsigned)grid_rows(l, y->rows), 64, 0, delta_gates, *s, *a, *b, *a_log, *dt, by, *y);
    return launched();
}

// ---- the delta rule ----

enum { DELTA_THREADS = 128, DELTA_COLUMNS = DELTA_THREADS / 2, DELTA_SHARED = 99 << 10 };

// A block has up to DELTA_COLUMNS columns of the values of one head of one sequence: its part of S, and the
// rows of the present chunk. The columns do not depend on each other; keys and their products are computed by
// every block that needs them. Threads of the first half compute what a row adds (by its key), those of the
// second half what it reads (by its query).
struct delta_block {
    const gpu_recur &p;
    int64_t head, key_head, col0;
    int32_t n;           // columns
    float *s;            // [E, n]
    float *u;            // [page_len, n] corrected values
    float *keys, *query; // [page_len, E + 1], [E]
    float *g;            // [page_len] sums of logarithms of decays
    float *w;            // [2, page_len] weights of the rows before, for the key and for the query

    __device__ inline int32_t pitch(void) const { return p.E + 1; }
    __device__ inline int64_t value_at(int64_t j, int64_t e) const {
        return (head * p.page_len + j) * p.Ev + col0 + e;
    }
    __device__ inline int64_t key_at(int64_t j, int64_t i) const {
        return (key_head * p.E + i) * p.page_len + j;
    }

    __device__ void clear(void) const {
        for (int32_t i = (int32_t)threadIdx.x; i < p.E * n; i += DELTA_THREADS) s[i] = 0;
        __syncthreads();
    }
    // Reads S and the first `rows` rows of a chunk.
    __device__ void load(const char *page, int32_t rows) const {
        const float *from = (const float *)(page + p.s) + head * p.E * p.Ev;
        for (int32_t i = (int32_t)threadIdx.x; i < p.E * n; i += DELTA_THREADS)
            s[i] = from[(int64_t)(i / n) * p.Ev + col0 + i % n];
        for (int32_t i = (int32_t)threadIdx.x; i < rows * n; i += DELTA_THREADS)
            u[i] = load_element(page + p.values, p.type, value_at(i / n, i % n));
        for (int32_t i = (int32_t)threadIdx.x; i < rows * p.E; i += DELTA_THREADS)
            keys[i % rows * pitch() + i / rows] =
                load_element(page + p.keys, p.type, key_at(i % rows, i / rows));
        for (int32_t j = (int32_t)threadIdx.x; j < rows; j += DELTA_THREADS)
            g[j] = ((const float *)(page + p.decays))[head * p.page_len + j];
        __syncthreads();
    }
    // Writes rows from .. to - 1 of a chunk and, if the first is among them, S. What several blocks know, one
    // of them writes.
    __device__ void store(char *page, int32_t from, int32_t to) const {
        const int32_t rows = to - from;
        for (int32_t i = (int32_t)threadIdx.x; from == 0 && i < p.E * n; i += DELTA_THREADS)
            ((float *)(page + p.s))[(head * p.E + i / n) * p.Ev + col0 + i % n] = s[i];
        for (int32_t i = (int32_t)threadIdx.x; i < rows * n; i += DELTA_THREADS)
            store_element(page + p.values, p.type, value_at(from + i / n, i % n), u[from * n + i]);
        for (int32_t i = (int32_t)threadIdx.x; col0 == 0 && head % (p.H / p.K) == 0 && i < rows * p.E;
             i += DELTA_THREADS) {
            const int32_t j = from + i % rows;
            store_element(page + p.keys, p.type, key_at(j, i / rows), keys[j * pitch() + i / rows]);
        }
        for (int32_t j = from + (int32_t)threadIdx.x; col0 == 0 && j < to; j += DELTA_THREADS)
            ((float *)(page + p.decays))[head * p.page_len + j] = g[j];
        __syncthreads();
    }
    // S at the start of the next chunk, from all rows of this one.
    __device__ void advance(void) const {
        const int32_t len = p.page_len;
        const float last = g[len - 1], decay = ln_expf(last);
        for (int32_t i = (int32_t)threadIdx.x; i < len * n; i += DELTA_THREADS)
            u[i] = ln_expf(last - g[i / n]) * u[i];
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < p.E * n; i += DELTA_THREADS) {
            float x = decay * s[i];
            for (int32_t j = 0; j < len; j++) x = fmaf(keys[j * pitch() + i / n], u[j * n + i % n], x);
            s[i] = x;
        }
        __syncthreads();
    }

    // The query and the key of a row, divided by their lengths: half a warp has each.
    __device__ void set_unit(const gpu_array &q, const gpu_array &k, int64_t r, int32_t t) const {
        if (threadIdx.x >= 32) return;
        const bool of_key = threadIdx.x >= 16;
        const gpu_array &x = of_key ? k : q;
        const int64_t col = key_head * p.E;
        float sum = 0;
        for (int32_t i = (int32_t)threadIdx.x % 16; i < p.E; i += 16) {
            const float v = load_at(x, r, col + i);
            sum = fmaf(v, v, sum);
        }
        for (int m = 8; m > 0; m /= 2) sum = sum + __shfl_xor_sync(0xffffffffu, sum, m);
        const float scale = 1.0f / sqrtf(sum + p.eps);
        for (int32_t i = (int32_t)threadIdx.x % 16; i < p.E; i += 16) {
            const float v = load_at(x, r, col + i) * scale;
            if (of_key) keys[t * pitch() + i] = as_stored(p, v);
            else query[i] = v * p.by;
        }
    }
    // Row t of the chunk, of which v and gates are row r of theirs.
    __device__ void row(const gpu_array &gates, const gpu_array &v, const gpu_array &y, int64_t r,
                        int32_t t) const {
        const int32_t half = (int32_t)threadIdx.x / DELTA_COLUMNS, e = (int32_t)threadIdx.x % DELTA_COLUMNS;
        const float *x = half ? query : keys + t * pitch(), log_decay = load_at(gates, r, head),
                    now = t ? g[t - 1] + log_decay : log_decay, decay = ln_expf(now);
        float *mine = w + half * p.page_len, dot = 0;
        for (int32_t i = 0; e < n && i < p.E; i++) dot = fmaf(s[i * n + e], x[i], dot);
        for (int32_t j = e; j < t + half; j += DELTA_COLUMNS) {
            float sum = 0;
            for (int32_t i = 0; i < p.E; i++) sum = fmaf(keys[j * pitch() + i], x[i], sum);
            mine[j] = ln_expf(now - (j < t ? g[j] : now)) * sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) g[t] = now;
        float out = half ? decay * dot : e < n ? fmaf(-decay, dot, load_at(v, r, head * p.Ev + col0 + e)) : 0;
        for (int32_t j = 0; e < n && j < t; j++) out = fmaf(half ? mine[j] : -mine[j], u[j * n + e], out);
        if (!half && e < n) u[t * n + e] = as_stored(p, load_at(gates, r, p.H + head) * out);
        __syncthreads();
        if (half && e < n) store_at(y, r, head * p.Ev + col0 + e, fmaf(mine[t], u[t * n + e], out));
    }
};

__global__ void __launch_bounds__(DELTA_THREADS)
    gated_delta(gpu_step s, gpu_recur p, gpu_array gates, gpu_array q, gpu_array k, gpu_array v, gpu_array y,
                int32_t columns) {
    extern __shared__ float shared[];
    begin();
    const int32_t b = (int32_t)blockIdx.y, parts = (p.Ev + columns - 1) / columns, len = p.page_len,
                  part = (int32_t)blockIdx.x % parts, head = (int32_t)blockIdx.x / parts,
                  n = p.Ev - part * columns < columns ? p.Ev - part * columns : columns;
    if (b >= s.head->n_seqs) return;
    float *at[7] = {shared};
    const int32_t sizes[6] = {p.E * columns, len * columns, len * (p.E + 1), p.E, len, 2 * len};
    for (int i = 0; i < 6; i++) at[i + 1] = at[i] + sizes[i];
    const delta_block d = {
        p, head, head / (p.H / p.K), (int64_t)part * columns, n, at[0], at[1], at[2], at[3], at[4], at[5]};
    int64_t r = s.row0[b], pos = s.pos[r];
    const int64_t end = s.row0[b + 1];
    int32_t t = (int32_t)(pos % len);
    if (pos == 0) d.clear();
    else {
        const char *page = page_of(s, p, b, (pos - 1) / len);
        if (!page) return;
        d.load(page, t ? t : len);
    }
    if (pos > 0 && t == 0) d.advance();
    while (r < end) {
        const int32_t rows = (int32_t)(len - t < end - r ? len - t : end - r);
        char *page = page_of(s, p, b, pos / len);
        for (int32_t i = 0; i < rows; i++) {
            d.set_unit(q, k, r + i, t + i);
            __syncthreads();
            d.row(gates, v, y, r + i, t + i);
            __syncthreads();
        }
        if (page) d.store(page, t, t + rows);
        r += rows, pos += rows, t = 0;
        if (r < end) d.advance();
    }
}

static int64_t delta_bytes(int32_t E, int32_t len, int32_t columns) {
    return ((int64_t)(E + len) * columns + (int64_t)len * (E + 4) + E) * (int64_t)sizeof(float);
}
// The columns of a block whose memory every GPU has; 0: there is no such number.
static int32_t delta_columns(int32_t E, int32_t len) {
    for (int32_t n = DELTA_COLUMNS; n >= 16; n /= 2)
        if (delta_bytes(E, len, n) <= DELTA_SHARED) return n;
    return 0;
}
bool gpu_has_gated_delta(int32_t key_dim, int32_t page_len) { return delta_columns(key_dim, page_len) > 0; }

int gpu_gated_delta(const gpu_launch *l, const gpu_step *s, const gpu_recur *p, const gpu_array *gates,
                    const gpu_array *q, const gpu_array *k, const gpu_array *v, const gpu_array *y) {
    if (l->T > l->B && gpu_has_delta_chunks(p, q, k)) return gpu_delta_chunks(l, s, p, gates, q, k, v, y);
    const int32_t columns = delta_columns(p->E, p->page_len);
    const int64_t bytes = delta_bytes(p->E, p->page_len, columns);
    const dim3 grid((unsigned)(p->H * ((p->Ev + columns - 1) / columns)), (unsigned)l->B);
    if (bytes > 48 << 10)
        (void)cudaFuncSetAttribute((const void *)gated_delta, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   DELTA_SHARED);
    run(l, grid, DELTA_THREADS, (size_t)bytes, gated_delta, *s, *p, *gates, *q, *k, *v, *y, columns);
    return launched();
}
