// Draws tokens from rows of logits in the order of the sampler of the host (engine/sampler.c): temperature,
// top-k, top-p, min-p, Gumbel noise. Four kernels, of which the first three have PARTS blocks a row:
//
//     sample_max       the largest logit
//     sample_sum       without filters the best noisy logit; with filters the sum of the exponentials, and a
//                      histogram of the distances to the largest, in steps of 1 / STEPS
//     sample_collect   the CANDIDATES largest logits at most: the bins of the histogram that hold so many
//     sample_row       sorts the candidates, applies the filters one by one, draws
//
// A kept logit and its noise have the bits of the host's. The sum of the exponentials has another order, so a
// filter may end elsewhere where a mass is within 1e-12 of its limit. A row whose filters would keep more
// than the candidates is left to the host.
//
// The noise of a token is between -log(53 log 2) = -3.60 and 53 log 2 = 36.74, because the uniform number is
// between 2^-53 and 1 - 2^-53. So a token that is 40.4 or more below the largest logit, which every filter
// keeps, is never drawn. The histogram ends at (BINS - 1) / STEPS = 42.6, and the tokens beyond need not be
// candidates.
#include "cuda_common.cuh"

#include <math_constants.h>

enum { PARTS = 64, THREADS = 256, ROW_THREADS = 1024, BINS = 2048, STEPS = 48, CANDIDATES = 2048 };

struct best_of {
    double value; // of logit and noise
    int32_t id;   // -1: none
};
// Working memory of a row.
struct sample_state {
    float most[PARTS];
    int32_t most_id[PARTS]; // -1: a NaN
    double total[PARTS];
    best_of best[PARTS];
    uint32_t bins[BINS];
    uint32_t n_candidates, complete; // complete: every token that could be drawn is a candidate
    uint64_t candidates[CANDIDATES]; // high half: bits of the distance to the largest logit; low half: the id
};

__device__ inline best_of better(best_of a, best_of b) {
    if (b.id < 0) return a;
    if (a.id < 0 || b.value > a.value || (b.value == a.value && b.id < a.id)) return b;
    return a;
}
__device__ inline best_of best_of_warp(best_of x) {
    for (int m = 16; m > 0; m /= 2)
        x = better(x, {__shfl_xor_sync(0xffffffffu, x.value, m), __shfl_xor_sync(0xffffffffu, x.id, m)});
    return x;
}
__device__ inline bool has_filters(const gpu_draw &d) { return d.top_p < 1.0 || d.top_k > 0 || d.min_p > 0; }
__device__ inline bool is_excluded(const gpu_draw &d, int32_t id) {
    for (int32_t i = 0; i < d.n_excluded; i++)
        if (d.excluded[i] == id) return true;
    return false;
}
__device__ inline const float *row_of(const gpu_array &x, int64_t row) {
    return (const float *)x.data + row * x.pitch;
}

// The largest of a warp's logits and its id, the lower one on ties; id -1 (a NaN) stays.
__device__ inline void largest_of_warp(float *best, int32_t *id) {
    for (int m = 16; m > 0; m /= 2) {
        const float v = __shfl_xor_sync(0xffffffffu, *best, m);
        const int32_t k = __shfl_xor_sync(0xffffffffu, *id, m);
        if (k < 0 || *id < 0) *id = -1;
        else if (v > *best || (v == *best && k < *id)) *best = v, *id = k;
    }
}

// Calls f(id, logit) for the tokens of this thread, in ascending order. Several loads are on their way before
// the first logit is used.
template <typename F> __device__ inline void for_logits(const gpu_array &x, const float *logits, F f) {
    enum { AT_ONCE = 5, STEP = PARTS * THREADS };
    for (int32_t c = (int32_t)(blockIdx.y * THREADS + threadIdx.x); c < x.cols; c += AT_ONCE * STEP) {
        float v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) v[i] = c + i * STEP < x.cols ? logits[c + i * STEP] : 0.0f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (c + i * STEP < x.cols) f(c + i * STEP, v[i]);
    }
}

__global__ void sample_max(gpu_array x, int64_t row0, const gpu_draw *draws, sample_state *states) {
    __shared__ float most[THREADS / 32];
    __shared__ int32_t most_id[THREADS / 32];
    begin();
    const gpu_draw &d = draws[blockIdx.x];
    sample_state &s = states[blockIdx.x];
    const float *logits = row_of(x, row0 + blockIdx.x);
    float best = -CUDART_INF_F;
    int32_t id = 0;
    for_logits(x, logits, [&](int32_t c, float v) {
        if (v != v) id = -1;
        if (id >= 0 && v > best && !is_excluded(d, c)) best = v, id = c;
    });
    largest_of_warp(&best, &id);
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = best, most_id[threadIdx.x / 32] = id;
    for (int i = (int)threadIdx.x; i < BINS / PARTS; i += THREADS)
        s.bins[blockIdx.y * (BINS / PARTS) + i] = 0;
    if (blockIdx.y == 0 && threadIdx.x == 0) s.n_candidates = 0;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < THREADS / 32; i++) {
        if (most_id[i] < 0 || id < 0) id = -1;
        else if (most[i] > best) best = most[i], id = most_id[i];
    }
    s.most[blockIdx.y] = best, s.most_id[blockIdx.y] = id;
}

// Sets the largest logit of the row and its id in all threads of a block. Returns false where there is a NaN
// or an infinity, or all tokens are excluded; the host reports these cases.
__device__ inline bool largest(const sample_state &s, float *most, int32_t *id) {
    const int lane = (int)threadIdx.x % 32;
    float best = s.most[lane];
    int32_t k = s.most_id[lane];
#pragma unroll
    for (int i = lane + 32; i < PARTS; i += 32) {
        const float v = s.most[i];
        const int32_t other = s.most_id[i];
        if (other < 0 || k < 0) k = -1;
        else if (v > best) best = v, k = other;
    }
    largest_of_warp(&best, &k);
    *most = best, *id = k;
    return k >= 0 && best > -CUDART_INF_F && best < CUDART_INF_F;
}

// The sum of the exponentials of the row, for all threads of a block.
__device__ inline double total_of(const sample_state &s) {
    double total = s.total[threadIdx.x % 32];
#pragma unroll
    for (int i = (int)threadIdx.x % 32 + 32; i < PARTS; i += 32) total = total + s.total[i];
    for (int m = 16; m > 0; m /= 2) total = total + __shfl_xor_sync(0xffffffffu, total, m);
    return total;
}

// The best of this thread's tokens with their noise. A token whose noise cannot lift it above the best so far
// is skipped before its logarithms are computed: -log u >= 1 - u, so noise exceeds x only where 1 - u <
// exp(-x). The factor covers the rounding of f32, 2e-5 at most for x up to 45; no noise is larger.
__device__ best_of draw_part(const gpu_array &x, const float *logits, const gpu_draw &d, float most,
                             int32_t most_id) {
    best_of best = {ln_gumbel_of(ln_random_bits(d.seed, d.position, (uint32_t)most_id)), most_id};
    for_logits(x, logits, [&](int32_t c, float logit) {
        const float l = (logit - most) / d.temperature;
        if (l == -CUDART_INF_F) return;
        const uint64_t bits = ln_random_bits(d.seed, d.position, (uint32_t)c);
        const float left = (float)(bits ^ 0xfffffffffffffULL) * 0x1p-52f;
        if (left > exp2f((l - (float)best.value) * 1.44269504f) * 1.0001f || is_excluded(d, c)) return;
        best = better(best, {(double)l + ln_gumbel_of(bits), c});
    });
    return best;
}

__global__ void sample_sum(gpu_array x, int64_t row0, const gpu_draw *draws, sample_state *states) {
    __shared__ uint32_t bins[BINS];
    __shared__ best_of best[THREADS / 32];
    __shared__ double totals[THREADS / 32];
    begin();
    const gpu_draw &d = draws[blockIdx.x];
    sample_state &s = states[blockIdx.x];
    const float *logits = row_of(x, row0 + blockIdx.x);
    float most;
    int32_t most_id = 0;
    if (!largest(s, &most, &most_id)) return;
    if (!has_filters(d)) {
        const best_of b = best_of_warp(draw_part(x, logits, d, most, most_id));
        if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = b;
        __syncthreads();
        if (threadIdx.x > 0) return;
        best_of all = best[0];
        for (int i = 1; i < THREADS / 32; i++) all = better(all, best[i]);
        s.best[blockIdx.y] = all;
        return;
    }
    for (int i = (int)threadIdx.x; i < BINS; i += THREADS) bins[i] = 0;
    __syncthreads();
    double total = 0;
    for_logits(x, logits, [&](int32_t c, float logit) {
        const float l = (logit - most) / d.temperature;
        if (l == -CUDART_INF_F || is_excluded(d, c)) return;
        total = total + ln_exp64_core((double)l);
        atomicAdd(&bins[l > -(float)(BINS - 1) / STEPS ? (int32_t)(-l * STEPS) : BINS - 1], 1u);
    });
    for (int m = 16; m > 0; m /= 2) total = total + __shfl_xor_sync(0xffffffffu, total, m);
    if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BINS; i += THREADS)
        if (bins[i]) atomicAdd(&s.bins[i], bins[i]);
    if (threadIdx.x > 0) return;
    for (int i = 1; i < THREADS / 32; i++) total = total + totals[i];
    s.total[blockIdx.y] = total;
}

// Returns, to all threads of a block, the last bin whose tokens become candidates. Bins are taken from the
// largest logits on while they hold CANDIDATES tokens at most, until they hold `enough`. Groups of EACH bins
// are taken as a whole while that is possible, so there may be a few bins more. The very last bin, whose
// tokens are never drawn, is never taken.
__device__ int32_t last_bin(const sample_state &s, uint32_t enough) {
    enum { EACH = BINS / THREADS };
    __shared__ uint32_t sums[THREADS / 32];
    __shared__ int32_t last;
    const int t = (int)threadIdx.x;
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) mine += s.bins[t * EACH + i];
    uint32_t upto = mine; // the sum of the bins up to the last of this thread
#pragma unroll
    for (int m = 1; m < 32; m *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, upto, m);
        if (t % 32 >= m) upto += before;
    }
    if (t % 32 == 31) sums[t / 32] = upto;
    __syncthreads();
    for (int i = 0; i < t / 32; i++) upto += sums[i];
    uint32_t n = upto - mine;
    const int whole = __syncthreads_count(upto <= CANDIDATES && n < enough); // threads all of whose bins are
    if (t == (whole < THREADS ? whole : THREADS - 1)) {
        int32_t i = whole * EACH, end = (whole < THREADS ? whole + 1 : whole) * EACH;
        for (; i < end && n < enough && n + s.bins[i] <= CANDIDATES; i++) n += s.bins[i];
        last = i - 1 < BINS - 2 ? i - 1 : BINS - 2;
    }
    __syncthreads();
    return last;
}

__global__ void sample_collect(gpu_array x, int64_t row0, const gpu_draw *draws, sample_state *states) {
    begin();
    const gpu_draw &d = draws[blockIdx.x];
    sample_state &s = states[blockIdx.x];
    const float *logits = row_of(x, row0 + blockIdx.x);
    float most;
    int32_t most_id = 0;
    if (!has_filters(d) || !largest(s, &most, &most_id)) return;
    const int32_t last = last_bin(s, d.top_k > 0 ? (uint32_t)d.top_k : 0xffffffffu);
    if (blockIdx.y == 0 && threadIdx.x == 0) s.complete = last == BINS - 2;
    for_logits(x, logits, [&](int32_t c, float logit) {
        const float l = (logit - most) / d.temperature;
        if (!(l > -(float)(BINS - 1) / STEPS) || (int32_t)(-l * STEPS) > last || is_excluded(d, c)) return;
        const uint32_t at = atomicAdd(&s.n_candidates, 1u);
        s.candidates[at] = (uint64_t)__float_as_uint(fabsf(l)) << 32 | (uint32_t)c;
    });
}

// Sorts keys[n] in ascending order; n is a power of two.
__device__ void sort(uint64_t *keys, int32_t n) {
    for (int32_t k = 2; k <= n; k *= 2)
        for (int32_t j = k / 2; j > 0; j /= 2) {
            for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
                const int32_t other = i ^ j;
                if (other < i) continue; // the thread of the lower one swaps
                const uint64_t a = keys[i], b = keys[other];
                if ((a > b) == ((i & k) == 0)) keys[i] = b, keys[other] = a;
            }
            __syncthreads();
        }
}
__device__ inline float logit_of(uint64_t key) { return -__uint_as_float((uint32_t)(key >> 32)); }

// Whether top-k keeps no more tokens than the n candidates.
__device__ inline bool cuts(const gpu_draw &d, int32_t n) { return d.top_k > 0 && d.top_k <= n; }

// The sum of exponentials that top-p's probabilities are shares of: of the tokens that top-k keeps, in the
// host's order, else of the row. e[n]: the exponentials of the sorted candidates.
__device__ double total_for(const gpu_draw &d, const double *e, int32_t n, double row_total) {
    if (!cuts(d, n) || d.top_p >= 1.0) return row_total;
    double total = 0;
    for (int32_t i = 0; i < d.top_k; i++) total = total + e[i];
    return total;
}

// How many of the n sorted candidates the filters keep; -1: perhaps tokens that are no candidates, too. Where
// top-k keeps more than the candidates, the sum for top-p is known only if they are complete.
__device__ int32_t kept_of(const gpu_draw &d, const double *p, int32_t n, bool complete, double total) {
    const int32_t most = cuts(d, n) ? d.top_k : n;
    if (!complete && d.top_k > n && d.top_p < 1.0) return -1;
    double mass = 0;
    int32_t i = 0;
    for (; i < most; i++) {
        if (i > 0 && !((d.top_p >= 1.0 || mass < d.top_p) && (d.min_p <= 0 || p[i] * total >= d.min_p)))
            return i;
        mass = mass + p[i];
    }
    if (complete || cuts(d, n) || (d.top_p < 1.0 && mass >= d.top_p)) return i;
    return -1;
}

__global__ void __launch_bounds__(ROW_THREADS)
    sample_row(const gpu_draw *draws, sample_state *states, int32_t *ids) {
    __shared__ uint64_t keys[CANDIDATES];
    __shared__ double p[CANDIDATES];
    __shared__ best_of best[ROW_THREADS / 32];
    __shared__ double filter_total;
    __shared__ int32_t kept;
    begin();
    const gpu_draw &d = draws[blockIdx.x];
    sample_state &s = states[blockIdx.x];
    float most;
    int32_t most_id = 0, size = 1;
    best_of b = {0, -1};
    if (d.n_excluded < 0 || !largest(s, &most, &most_id)) {
        if (threadIdx.x == 0) ids[blockIdx.x] = -1;
        return;
    }
    if (!has_filters(d)) {
        if (threadIdx.x < 32) {
            for (int i = (int)threadIdx.x; i < PARTS; i += 32) b = better(b, s.best[i]);
            b = best_of_warp(b);
        }
        if (threadIdx.x == 0) ids[blockIdx.x] = b.id;
        return;
    }
    const int32_t n = (int32_t)s.n_candidates, t = (int32_t)threadIdx.x;
    const double row_total = total_of(s);
    while (size < n) size *= 2;
    for (int32_t i = t; i < size; i += ROW_THREADS) keys[i] = i < n ? s.candidates[i] : ~0ULL;
    __syncthreads();
    sort(keys, size);
    for (int32_t i = t; i < n; i += ROW_THREADS) p[i] = ln_exp64_core((double)logit_of(keys[i]));
    __syncthreads();
    if (t == 0) filter_total = total_for(d, p, n, row_total);
    __syncthreads();
    const double total = filter_total;
    for (int32_t i = t; i < n; i += ROW_THREADS) p[i] = p[i] / total;
    __syncthreads();
    if (t == 0) kept = kept_of(d, p, n, s.complete != 0, total);
    __syncthreads();
    for (int32_t i = t; i < kept; i += ROW_THREADS) {
        const int32_t id = (int32_t)(uint32_t)keys[i];
        b = better(b, {(double)logit_of(keys[i]) +
                           ln_gumbel_of(ln_random_bits(d.seed, d.position, (uint32_t)id)),
                       id});
    }
    b = best_of_warp(b);
    if (t % 32 == 0) best[t / 32] = b;
    __syncthreads();
    if (t > 0) return;
    for (int i = 1; i < ROW_THREADS / 32; i++) b = better(b, best[i]);
    ids[blockIdx.x] = b.id;
}

size_t gpu_sample_scratch(int64_t rows) { return (size_t)rows * sizeof(sample_state); }

int gpu_sample(const gpu_launch *l, const gpu_array *x, int64_t row, int32_t n, const gpu_draw *draws,
               void *scratch, int32_t *ids) {
    sample_state *states = (sample_state *)scratch;
    const dim3 grid((unsigned)n, PARTS);
    gpu_launch next = *l;
    next.overlap = false; // what comes before may be a copy
    run(&next, grid, THREADS, 0, sample_max, *x, row, draws, states);
    run(l, grid, THREADS, 0, sample_sum, *x, row, draws, states);
    run(l, grid, THREADS, 0, sample_collect, *x, row, draws, states);
    run(l, dim3((unsigned)n), ROW_THREADS, 0, sample_row, draws, states, ids);
    return (int)cudaGetLastError();
}
