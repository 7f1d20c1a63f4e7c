// Chooses tokens from rows of logits in the order of the sampler of the host (engine/sampler.c): mask and
// edits (logprobs.cu), then the largest logit, or temperature, top-k, top-p, min-p, Gumbel noise. The first
// three kernels have PARTS blocks a row:
//
//     sample_max       the largest logit
//     sample_sum       without filters the best noisy logit; with filters the sum of the exponentials, and a
//                      histogram of the distances to the largest, in steps of 1 / STEPS
//     sample_collect   the CANDIDATES largest logits at most: the bins of the histogram that hold so many
//     sample_row       sorts the candidates, applies the filters one by one, draws
//     wide_masses      if the filters may keep more tokens: the sums of the exponentials in the bins
//     sample_wide      then: finds the last token that they keep, draws
//
// A kept logit and its noise have the bits of the host's. Sums of exponentials have another order, so a
// filter may end elsewhere if a mass is within 1e-12 of its limit.
//
// The noise of a token is between -log(53 log 2) = -3.60 and 53 log 2 = 36.74, because the uniform number is
// between 2^-53 and 1 - 2^-53. So a token that is 40.4 or more below the largest logit, which every filter
// keeps, is never drawn. The histogram ends at (BINS - 1) / STEPS = 42.6, and the tokens beyond need not be
// candidates.
#include "sampler.cuh"

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
// Whether the row's token is chosen here, and drawn rather than the largest logit.
__device__ inline bool is_drawn(const gpu_draw &d) { return d.token < 0 && d.temperature > 0; }

// The largest of a warp's logits and its id, the lower one on ties; id -1 (a NaN) stays.
__device__ inline void largest_of_warp(float *best, int32_t *id) {
    for (int m = 16; m > 0; m /= 2) {
        const float v = __shfl_xor_sync(0xffffffffu, *best, m);
        const int32_t k = __shfl_xor_sync(0xffffffffu, *id, m);
        if (k < 0 || *id < 0) *id = -1;
        else if (v > *best || (v == *best && k < *id)) *best = v, *id = k;
    }
}

__global__ void sample_max(gpu_array x, gpu_sampling in) {
    __shared__ float most[THREADS / 32];
    __shared__ int32_t most_id[THREADS / 32];
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    const float *logits = row_of(x, d.row);
    const uint32_t *mask = mask_of(d, in);
    if (d.token >= 0) return;
    float best = -CUDART_INF_F;
    int32_t id = 0;
    for_logits(x, logits, mask, [&](int32_t c, float v) {
        if (v != v) id = -1;
        if (id >= 0 && v > best) best = v, id = c;
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
        else if (most[i] > best || (most[i] == best && most_id[i] < id)) best = most[i], id = most_id[i];
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
        else if (v > best || (v == best && other < k)) best = v, k = other;
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

// The best of the tokens with their noise begins with the likeliest. A token whose noise cannot lift it above
// the best so far is skipped before its logarithms are computed: -log u >= 1 - u, so noise exceeds x only if
// 1 - u < exp(-x). The factor covers the rounding of f32, 2e-5 at most for x up to 45; no noise is larger.
__device__ inline best_of first_best(const gpu_draw &d, int32_t most_id) {
    return {ln_gumbel_of(ln_random_bits(d.seed, d.position, (uint32_t)most_id)), most_id};
}
__device__ inline bool may_be_best(const best_of &best, uint64_t bits, float l) {
    const float left = (float)(bits ^ 0xfffffffffffffULL) * 0x1p-52f;
    return left <= exp2f((l - (float)best.value) * 1.44269504f) * 1.0001f;
}
__device__ inline void add_noisy(best_of *best, const gpu_draw &d, int32_t c, float l) {
    if (l == -CUDART_INF_F) return;
    const uint64_t bits = ln_random_bits(d.seed, d.position, (uint32_t)c);
    if (may_be_best(*best, bits, l)) *best = better(*best, {(double)l + ln_gumbel_of(bits), c});
}

// The bin of a distance to the largest logit; the last one has all that are far away.
__device__ inline int32_t bin_of(float l) {
    return l > -(float)(BINS - 1) / STEPS ? (int32_t)(-l * STEPS) : BINS - 1;
}

__global__ void sample_sum(gpu_array x, gpu_sampling in) {
    __shared__ uint32_t bins[BINS];
    __shared__ best_of best[THREADS / 32];
    __shared__ double totals[THREADS / 32];
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    const float *logits = row_of(x, d.row);
    const uint32_t *mask = mask_of(d, in);
    float most;
    int32_t most_id = 0;
    if (!is_drawn(d) || !largest(s, &most, &most_id)) return;
    if (!has_filters(d)) {
        best_of mine = first_best(d, most_id);
        for_logits(x, logits, mask,
                   [&](int32_t c, float v) { add_noisy(&mine, d, c, (v - most) / d.temperature); });
        const best_of b = best_of_warp(mine);
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
    for_logits(x, logits, mask, [&](int32_t c, float logit) {
        const float l = (logit - most) / d.temperature;
        if (l == -CUDART_INF_F) return;
        total = total + ln_exp64_core((double)l);
        atomicAdd(&bins[bin_of(l)], 1u);
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

__global__ void sample_collect(gpu_array x, gpu_sampling in) {
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    const float *logits = row_of(x, d.row);
    const uint32_t *mask = mask_of(d, in);
    float most;
    int32_t most_id = 0;
    if (!is_drawn(d) || !has_filters(d) || !largest(s, &most, &most_id)) return;
    const int32_t last = last_bin(s, d.top_k > 0 ? (uint32_t)d.top_k : 0xffffffffu);
    if (blockIdx.y == 0 && threadIdx.x == 0) s.complete = last == BINS - 2;
    for_logits(x, logits, mask, [&](int32_t c, float logit) {
        const float l = (logit - most) / d.temperature;
        if (!(l > -(float)(BINS - 1) / STEPS) || bin_of(l) > last) return;
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

// How many of the n sorted candidates the filters keep; -1: perhaps tokens that are no candidates, too. If
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

// Sorts the candidates of a row; keys has space for CANDIDATES.
__device__ void sort_candidates(uint64_t *keys, const uint64_t *candidates, int32_t n) {
    int32_t size = 1;
    while (size < n) size *= 2;
    for (int32_t i = (int32_t)threadIdx.x; i < size; i += (int32_t)blockDim.x)
        keys[i] = i < n ? candidates[i] : ~0ULL;
    __syncthreads();
    sort(keys, size);
}
// The best of a block's values, in thread 0.
__device__ best_of best_of_block(best_of b, best_of *warps) {
    b = best_of_warp(b);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = b;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < ROW_THREADS / 32; i++) b = better(b, warps[i]);
    return b;
}

__global__ void __launch_bounds__(ROW_THREADS) sample_row(gpu_sampling in) {
    __shared__ uint64_t keys[CANDIDATES];
    __shared__ double p[CANDIDATES];
    __shared__ best_of best[ROW_THREADS / 32];
    __shared__ double filter_total;
    __shared__ int32_t kept;
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    const int32_t t = (int32_t)threadIdx.x;
    float most;
    int32_t most_id = 0, id = d.token;
    best_of b = {0, -1};
    const bool valid = d.token < 0 && largest(s, &most, &most_id);
    if (valid && is_drawn(d) && has_filters(d)) {
        const int32_t n = (int32_t)s.n_candidates;
        const double row_total = total_of(s);
        sort_candidates(keys, s.candidates, n);
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
            const int32_t c = (int32_t)(uint32_t)keys[i];
            b = better(b, {(double)logit_of(keys[i]) +
                               ln_gumbel_of(ln_random_bits(d.seed, d.position, (uint32_t)c)),
                           c});
        }
        b = best_of_block(b, best);
        if (t == 0) s.wide = kept < 0;
        for (int i = t; kept < 0 && i < BINS; i += ROW_THREADS) s.candidates[i] = s.mass_rest[i] = 0;
        id = b.id;
    } else if (valid && is_drawn(d)) {
        if (t < 32) {
            for (int i = t; i < PARTS; i += 32) b = better(b, s.best[i]);
            b = best_of_warp(b);
        }
        id = b.id;
    } else if (valid) id = most_id;
    if (t > 0) return;
    if (!valid || !is_drawn(d) || !has_filters(d)) s.wide = 0;
    s.id = id;
    in.ids[blockIdx.x] = id;
}

// ---- rows whose filters keep more tokens than the candidates ----

enum { DIGITS = 8, DIGIT_BITS = 3 };
// Counts and masses of the tokens of a block by the next DIGIT_BITS bits of their keys.
struct digit_sums {
    double mass[ROW_THREADS / 32][DIGITS];
    int32_t n[ROW_THREADS / 32][DIGITS];
};
// Sums each thread's values over the block, in a fixed order, into row 0.
__device__ void add_digits(digit_sums *s, const double mass[DIGITS], const int32_t n[DIGITS]) {
    const int t = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < DIGITS; k++) {
        double m = mass[k];
        for (int b = 16; b > 0; b /= 2) m = m + __shfl_xor_sync(0xffffffffu, m, b);
        const int32_t all = __reduce_add_sync(0xffffffffu, n[k]);
        if (t % 32 == 0) s->mass[t / 32][k] = m, s->n[t / 32][k] = all;
    }
    __syncthreads();
    if (t < DIGITS)
        for (int w = 1; w < ROW_THREADS / 32; w++)
            s->mass[0][t] = s->mass[0][t] + s->mass[w][t], s->n[0][t] += s->n[w][t];
    __syncthreads();
}

// Adds the exponentials of a row by bins. The sums are exact to 2^-84 a token, in integers, so that their
// order does not matter.
__global__ void wide_masses(gpu_array x, gpu_sampling in) {
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    float most;
    int32_t most_id = 0;
    if (!s.wide || d.top_p >= 1.0 || !largest(s, &most, &most_id)) return; // top-k and min-p need no sums
    for_logits(x, row_of(x, d.row), mask_of(d, in), [&](int32_t, float logit) {
        const float l = (logit - most) / d.temperature;
        if (l == -CUDART_INF_F) return;
        const double e = ln_exp64_core((double)l) * 0x1p42;
        const uint64_t whole = (uint64_t)e, rest = (uint64_t)((e - (double)whole) * 0x1p42);
        if (whole) atomicAdd((unsigned long long *)&s.candidates[bin_of(l)], (unsigned long long)whole);
        if (rest) atomicAdd((unsigned long long *)&s.mass_rest[bin_of(l)], (unsigned long long)rest);
    });
}

// The end of a prefix of the tokens in descending order: before the token at which the exponentials of those
// before it have the sum `mass`, or which has `n` before it.
struct limits {
    double mass; // infinity: none
    int32_t n;   // 0: none
    __device__ bool within(double m, int32_t k) const { return m >= mass || (n > 0 && k >= n); }
};
// Where that is: among the tokens of one bin, and of these the keys with a prefix.
struct cut {
    int32_t bin;     // of these tokens
    int32_t shift;   // the next digit of the keys
    uint64_t prefix; // the digits before
    double mass;     // the exponentials of all tokens before these; in the end, of all that are kept
    int32_t n;       // the number of tokens before these
    int32_t n_here;  // of these; 0: `last` is known
    uint64_t last;   // the greatest key that is kept
};
// Sets the bin of the end, and the digits that all its keys have in common.
__device__ void find_bin(cut *c, const limits &to, const sample_state &s, double total) {
    enum { EACH = BINS / ROW_THREADS, WARPS = ROW_THREADS / 32 };
    __shared__ double masses[WARPS];
    __shared__ int32_t counts[WARPS], first;
    const int t = (int)threadIdx.x, lane = t % 32;
    double mass[EACH], upto = 0;
    int32_t n_upto = 0;
    if (t == 0) first = BINS;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int bin = t * EACH + i;
        mass[i] = (double)s.candidates[bin] * 0x1p-42 + (double)s.mass_rest[bin] * 0x1p-84;
        upto = upto + mass[i], n_upto += (int32_t)s.bins[bin];
    }
    const double own = upto;
    const int32_t n_own = n_upto;
    for (int k = 1; k < 32; k *= 2) {
        const double m = __shfl_up_sync(0xffffffffu, upto, k);
        const int32_t n = __shfl_up_sync(0xffffffffu, n_upto, k);
        if (lane >= k) upto = upto + m, n_upto += n;
    }
    if (lane == 31) masses[t / 32] = upto, counts[t / 32] = n_upto;
    __syncthreads();
    double before = 0;
    int32_t n_before = 0;
    for (int w = 0; w < t / 32; w++) before = before + masses[w], n_before += counts[w];
    before = before + (upto - own), n_before += n_upto - n_own;
    int32_t bin = -1, n_bin = 0; // the first of this thread's in which the end is
#pragma unroll
    for (int i = 0; i < EACH && bin < 0; i++) {
        const int32_t n = (int32_t)s.bins[t * EACH + i];
        if (n > 0 && to.within(before + mass[i], n_before + n)) bin = t * EACH + i, n_bin = n;
        else before = before + mass[i], n_before += n;
    }
    if (bin >= 0) atomicMin(&first, bin);
    __syncthreads();
    // the tokens of the last bin are never drawn
    if (t == 0 && first >= BINS - 1) *c = {-1, 0, 0, total, 0, 0, ~0ULL};
    if (bin >= 0 && bin == first && bin < BINS - 1) {
        const uint32_t a = __float_as_uint((float)bin / STEPS * (1 - 0x1p-18f)),
                       b = __float_as_uint((float)(bin + 1) / STEPS * (1 + 0x1p-18f));
        *c = {bin, (63 - __clz((int)(a ^ b))) / DIGIT_BITS * DIGIT_BITS, 0, before, n_before, n_bin, 0};
        c->prefix = ((uint64_t)a << 32) >> (c->shift + DIGIT_BITS);
    }
    __syncthreads();
}
// Goes on to the digit of the end.
__device__ void narrow(cut *c, const limits &to, const digit_sums &s) {
    for (int k = 0; k < DIGITS; k++) {
        const double mass = c->mass + s.mass[0][k];
        const int32_t n = c->n + s.n[0][k];
        if (s.n[0][k] > 0 && to.within(mass, n)) {
            c->prefix = c->prefix << DIGIT_BITS | (uint64_t)k;
            c->n_here = s.n[0][k];
            if (c->shift == 0) c->last = c->prefix, c->n_here = 0, c->mass = mass;
            c->shift -= DIGIT_BITS;
            return;
        }
        c->mass = mass, c->n = n;
    }
    c->last = ((c->prefix + 1) << (c->shift + DIGIT_BITS)) - 1; // by rounding: all of them are kept
    c->n_here = 0;
}

// The tokens of a row for the threads of a block.
struct wide_row {
    const gpu_array &x;
    const float *logits;
    const uint32_t *mask;
    float most, temperature;
    // Calls f(key, distance) for the tokens of this thread.
    template <typename F> __device__ void each(F f) const {
        each_logit<ROW_THREADS>(x, logits, (int32_t)threadIdx.x, [&](int32_t id, float v) {
            const float l = (v - most) / temperature;
            if (l != -CUDART_INF_F && !is_excluded(mask, id))
                f((uint64_t)__float_as_uint(fabsf(l)) << 32 | (uint32_t)id, l);
        });
    }
};
enum { FEW = 512 };
struct wide_memory {
    uint64_t keys[FEW];
    double e[FEW];
    digit_sums sums;
    cut c;
    uint32_t n_keys;
};

// Finds the end of the tokens that are kept: m.c.last, m.c.mass.
__device__ void find_end(wide_memory &m, const limits &to, const wide_row &row, const sample_state &s,
                         double total) {
    const int32_t t = (int32_t)threadIdx.x;
    cut &c = m.c;
    if (t == 0) m.n_keys = 0;
    find_bin(&c, to, s, total);
    while (c.n_here > FEW) {
        double mass[DIGITS] = {};
        int32_t n[DIGITS] = {};
        row.each([&](uint64_t key, float l) {
            if (bin_of(l) != c.bin || key >> (c.shift + DIGIT_BITS) != c.prefix) return;
            const int digit = (int)(key >> c.shift) & (DIGITS - 1);
            const double e = ln_exp64_core((double)l);
#pragma unroll
            for (int k = 0; k < DIGITS; k++)
                if (digit == k) mass[k] = mass[k] + e, n[k]++;
        });
        add_digits(&m.sums, mass, n);
        if (t == 0) narrow(&c, to, m.sums);
        __syncthreads();
    }
    if (c.n_here == 0) return;
    row.each([&](uint64_t key, float l) { // few are left: one after the other
        if (bin_of(l) == c.bin && key >> (c.shift + DIGIT_BITS) == c.prefix)
            m.keys[atomicAdd(&m.n_keys, 1u)] = key;
    });
    __syncthreads();
    const int32_t n_here = (int32_t)m.n_keys;
    int32_t size = 1;
    while (size < n_here) size *= 2;
    for (int32_t i = n_here + t; i < size; i += ROW_THREADS) m.keys[i] = ~0ULL;
    __syncthreads();
    sort(m.keys, size);
    for (int32_t i = t; i < n_here; i += ROW_THREADS) m.e[i] = ln_exp64_core((double)logit_of(m.keys[i]));
    __syncthreads();
    if (t == 0) {
        int32_t i = 0;
        for (; i < n_here && !(c.n + i > 0 && to.within(c.mass, c.n + i)); i++) c.mass = c.mass + m.e[i];
        c.last = i > 0 ? m.keys[i - 1] : (c.prefix << (c.shift + DIGIT_BITS)) - 1;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(ROW_THREADS) sample_wide(gpu_array x, gpu_sampling in) {
    __shared__ wide_memory m;
    __shared__ best_of best[ROW_THREADS / 32];
    begin();
    const gpu_draw &d = in.draws()[blockIdx.x];
    sample_state &s = ((sample_state *)in.states)[blockIdx.x];
    if (!s.wide) return;
    float most;
    int32_t most_id = 0;
    if (!largest(s, &most, &most_id)) return; // it is not wide then
    const wide_row row = {x, row_of(x, d.row), mask_of(d, in), most, d.temperature};
    double total = total_of(s);
    const bool top_p = d.top_p < 1.0;
    find_end(m, {(double)CUDART_INF_F, d.top_k}, row, s, total);
    if (top_p) {
        total = m.c.mass; // of what top-k keeps
        __syncthreads();
        find_end(m, {d.top_p * total, d.top_k}, row, s, total);
    }
    const uint64_t last = m.c.last;
    best_of b = first_best(d, most_id);
    row.each([&](uint64_t key, float l) {
        const int32_t id = (int32_t)(uint32_t)key;
        if (key > last) return;
        const uint64_t bits = ln_random_bits(d.seed, d.position, (uint32_t)id);
        if (!may_be_best(b, bits, l)) return;
        if (d.min_p > 0 && !(ln_exp64_core((double)l) / total * total >= d.min_p)) return;
        b = better(b, {(double)l + ln_gumbel_of(bits), id});
    });
    b = best_of_block(b, best);
    if (threadIdx.x == 0) s.id = in.ids[blockIdx.x] = b.id;
}

size_t gpu_sample_scratch(int64_t rows) { return (size_t)rows * sizeof(sample_state); }

int gpu_sample(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in) {
    const dim3 grid((unsigned)in->n, PARTS);
    gpu_launch next = *l;
    next.overlap = false; // what comes before may be a copy
    const gpu_launch *first = &next;
    if (in->n_logprobs) gpu_log_sums(&next, x, in), first = l;
    if (in->n_edits) gpu_edit_rows(first, x, in), first = l;
    run(first, grid, THREADS, 0, sample_max, *x, *in);
    if (in->n_drawn) run(l, grid, THREADS, 0, sample_sum, *x, *in);
    if (in->n_filtered) run(l, grid, THREADS, 0, sample_collect, *x, *in);
    run(l, dim3((unsigned)in->n), ROW_THREADS, 0, sample_row, *in);
    if (in->n_filtered) {
        run(l, grid, THREADS, 0, wide_masses, *x, *in);
        run(l, dim3((unsigned)in->n), ROW_THREADS, 0, sample_wide, *x, *in);
    }
    if (in->n_edits || in->n_logprobs) gpu_end_rows(l, x, in);
    return (int)cudaGetLastError();
}
