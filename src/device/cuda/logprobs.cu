// What surrounds the choice of tokens (sampler.cu): log-probabilities of rows of logits, and the changes of
// single logits, which are undone afterwards.
#include "sampler.cuh"

// ---- log-probabilities ----

// The least key of a block that is greater than `after`, in all threads; each thread has the least of its
// own.
__device__ uint64_t least_of_block(uint64_t mine, uint64_t *warps) {
    for (int m = 16; m > 0; m /= 2) {
        const uint64_t other = __shfl_xor_sync(0xffffffffu, mine, m);
        if (other < mine) mine = other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    uint64_t least = warps[0];
    for (int i = 1; i < THREADS / 32; i++) least = warps[i] < least ? warps[i] : least;
    return least;
}

// Of each part of a row: the largest logit, the sum of the exponentials relative to it, the likeliest tokens.
__global__ void log_parts(gpu_array x, gpu_sampling in) {
    __shared__ uint64_t warps[THREADS / 32];
    __shared__ double totals[THREADS / 32];
    __shared__ int32_t any_nan;
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    const float *logits = row_of(x, d.row);
    if (d.n_top < 0) return;
    if (threadIdx.x == 0) any_nan = 0;
    __syncthreads();
    uint64_t least = ~0ULL; // of a row's part that has no token: minus infinity
    bool nan = false;
    for_logits(x, logits, NULL, [&](int32_t c, float v) {
        nan |= v != v;
        const uint64_t key = descending_key(v, c);
        least = key < least ? key : least;
    });
    if (nan) any_nan = 1;
    least = least_of_block(least, warps);
    const float most = least == ~0ULL ? -CUDART_INF_F : logit_of_key(least);
    double total = 0;
    if (most > -CUDART_INF_F)
        for_logits(x, logits, NULL,
                   [&](int32_t, float v) { total = total + ln_exp64_core((double)v - (double)most); });
    for (int m = 16; m > 0; m /= 2) total = total + __shfl_xor_sync(0xffffffffu, total, m);
    if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; i++) total = total + totals[i];
        s.top_most[blockIdx.y] = any_nan ? CUDART_NAN_F : most;
        s.top_total[blockIdx.y] = total;
    }
    for (int k = 0; k < d.n_top; k++) {
        if (threadIdx.x == 0) s.top[blockIdx.y][k] = least;
        if (k + 1 == d.n_top) break;
        uint64_t next = ~0ULL;
        for_logits(x, logits, NULL, [&](int32_t c, float v) {
            const uint64_t key = descending_key(v, c);
            if (key > least && key < next) next = key;
        });
        least = least_of_block(next, warps);
    }
}

// The logarithm of the sum of a row, and its likeliest tokens.
__global__ void log_rows(gpu_sampling in) {
    __shared__ uint64_t warps[THREADS / 32];
    __shared__ double log_sum;
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    if (d.n_top < 0) return;
    if (threadIdx.x == 0) {
        float most = -CUDART_INF_F;
        double total = 0;
        bool nan = false;
        for (int i = 0; i < PARTS; i++)
            nan |= s.top_most[i] != s.top_most[i], most = fmaxf(most, s.top_most[i]);
        for (int i = 0; i < PARTS; i++)
            if (s.top_most[i] > -CUDART_INF_F)
                total = total + s.top_total[i] * ln_exp64_core((double)s.top_most[i] - (double)most);
        log_sum = nan || most == CUDART_INF_F || most == -CUDART_INF_F
                      ? (double)CUDART_NAN_F
                      : (double)most + ln_log64_core(total, 0);
        s.log_sum = log_sum;
    }
    __syncthreads();
    uint64_t after = 0;
    for (int k = 0; k < d.n_top; k++) {
        uint64_t mine = ~0ULL;
        for (int i = (int)threadIdx.x; i < PARTS * d.n_top; i += THREADS) {
            const uint64_t key = s.top[i / d.n_top][i % d.n_top];
            if ((k == 0 || key > after) && key < mine) mine = key;
        }
        after = least_of_block(mine, warps);
        if (threadIdx.x == 0)
            in.tops[blockIdx.x * GPU_TOP + k] = {(double)logit_of_key(after) - log_sum,
                                                 after == ~0ULL ? -1 : (int32_t)(uint32_t)after};
    }
}

void gpu_log_sums(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in) {
    run(l, dim3((unsigned)in->n, PARTS), THREADS, 0, log_parts, *x, *in);
    run(l, dim3((unsigned)in->n), THREADS, 0, log_rows, *in);
}

// ---- edits ----

// Changes the logits of a row, and keeps the old ones in place of `add`.
__global__ void edit_rows(gpu_array x, gpu_sampling in) {
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    float *logits = (float *)row_of(x, d.row);
    for (int32_t i = (int32_t)(blockIdx.y * THREADS + threadIdx.x); i < d.n_edits;
         i += (int32_t)gridDim.y * THREADS) {
        gpu_edit &e = in.edits()[d.first_edit + i];
        const float old = logits[e.id];
        float v = old;
        if (e.what & GPU_EDIT_ADD) v = v + e.add;
        if (e.what & GPU_EDIT_REPEAT) v = v > 0 ? v / d.repeat_penalty : v * d.repeat_penalty;
        if (e.what & GPU_EDIT_SUBTRACT) v = v - e.subtract;
        if (e.what & GPU_EDIT_FORBID) v = -CUDART_INF_F;
        logits[e.id] = v;
        e.add = old;
    }
}
// Restores the logits of a row; then the log-probability of the chosen token.
__global__ void end_rows(gpu_array x, gpu_sampling in) {
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    const sample_state &s = ((const sample_state *)in.states)[blockIdx.x];
    float *logits = (float *)row_of(x, d.row);
    for (int32_t i = (int32_t)threadIdx.x; i < d.n_edits; i += THREADS) {
        const gpu_edit &e = in.edits()[d.first_edit + i];
        logits[e.id] = e.add;
    }
    __syncthreads();
    if (threadIdx.x > 0 || d.n_top < 0 || s.id < 0) return;
    if (s.log_sum != s.log_sum) in.ids[blockIdx.x] = -1; // the host has the message
    else in.logprobs[blockIdx.x] = (double)logits[s.id] - s.log_sum;
}

void gpu_edit_rows(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in) {
    run(l, dim3((unsigned)in->n, 4), THREADS, 0, edit_rows, *x, *in);
}
void gpu_end_rows(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in) {
    run(l, dim3((unsigned)in->n), THREADS, 0, end_rows, *x, *in);
}
