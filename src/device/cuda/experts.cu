// Kernels of mixtures of experts: route, fold_rows, the lists of rows of each expert; and the choice of the
// kernel for their products.
#include "experts.cuh"
#include "products.cuh"

static inline int launched(void) { return (int)cudaGetLastError(); }

// ---- route ----

enum { MOST_EXPERTS = 1024, MOST_CHOICES = 64 }; // LN_ROUTE_EXPERTS, LN_ROUTE_MOST

// One row, of X experts, by one warp: the formulas and the order of sums of ops/route_row.h, with its bits.
struct route_warp {
    const gpu_route &p;
    int32_t X, lane;
    float *score, *merit; // [X], in shared memory
    bool *taken;          // [X]

    __device__ inline void softmax(float *s, int32_t n) const {
        float max = s[0], sum = 0;
        for (int32_t i = 1; i < n; i++) max = s[i] <= max ? max : s[i];
        __syncwarp();
        for (int32_t i = lane; i < n; i += 32) s[i] = ln_expf(s[i] - max);
        __syncwarp();
        for (int32_t i = 0; i < n; i++) sum = sum + s[i];
        __syncwarp();
        for (int32_t i = lane; i < n; i += 32) s[i] = s[i] / sum;
        __syncwarp();
    }
    __device__ inline void set_scores(const gpu_array &logits, int64_t r) const {
        for (int32_t x = lane; x < X; x += 32) {
            const float v = load_at(logits, r, x);
            score[x] = p.kind == GPU_ROUTE_SIGMOID ? 1.0f / (1.0f + ln_expf(-v)) : v;
        }
        __syncwarp();
        if (p.kind == GPU_ROUTE_SOFTMAX) softmax(score, X);
        for (int32_t x = lane; x < X; x += 32) {
            merit[x] = p.bias.data ? score[x] + load_element(p.bias.data, p.bias.type, x) : score[x];
            taken[x] = false;
        }
        __syncwarp();
    }

    // The sum of the two largest merits of a group.
    __device__ inline float top_two(int32_t from, int32_t n) const {
        float first = __uint_as_float(0xff800000u), second = first;
        for (int32_t i = from; i < from + n; i++) {
            if (merit[i] > first) second = first, first = merit[i];
            else if (merit[i] > second) second = merit[i];
        }
        return n > 1 ? first + second : first;
    }
    // Leaves the merits of the top groups; the others become minus infinity. sums: [n_groups].
    __device__ inline void leave_groups(float *sums) const {
        const int32_t n = X / p.n_groups;
        for (int32_t g = lane; g < p.n_groups; g += 32) sums[g] = top_two(g * n, n);
        __syncwarp();
        for (int32_t g = lane; g < p.n_groups; g += 32) {
            int32_t before = 0;
            for (int32_t o = 0; o < p.n_groups; o++)
                before += sums[o] > sums[g] || (sums[o] == sums[g] && o < g);
            for (int32_t i = g * n; before >= p.top_groups && i < (g + 1) * n; i++)
                merit[i] = __uint_as_float(0xff800000u);
        }
        __syncwarp();
    }

    // The first expert that is left if its merit is NaN, else the largest merit that is left, the first of
    // equal ones.
    __device__ inline int32_t best(void) const {
        int32_t first = X, at = -1;
        float most = 0;
        for (int32_t x = lane; x < X; x += 32) {
            if (taken[x]) continue;
            if (first == X) first = x;
            if (merit[x] == merit[x] && (at < 0 || merit[x] > most)) at = x, most = merit[x];
        }
        for (int m = 16; m > 0; m /= 2) {
            const int32_t other_first = __shfl_xor_sync(0xffffffffu, first, m),
                          other = __shfl_xor_sync(0xffffffffu, at, m);
            const float value = __shfl_xor_sync(0xffffffffu, most, m);
            if (other_first < first) first = other_first;
            if (other >= 0 && (at < 0 || value > most || (value == most && other < at)))
                at = other, most = value;
        }
        return at < 0 || merit[first] != merit[first] ? first : at;
    }
    // The numbers of the chosen experts, ascending; ids: [top_k].
    __device__ inline void choose(int32_t *ids) const {
        for (int32_t k = 0; k < p.top_k; k++) {
            const int32_t x = best();
            __syncwarp();
            if (lane == 0) taken[x] = true;
            __syncwarp();
        }
        int32_t before = 0;
        for (int32_t from = 0; from < X; from += 32) {
            const bool mine = from + lane < X && taken[from + lane];
            const uint32_t all = __ballot_sync(0xffffffffu, mine);
            if (mine) ids[before + __popc(all & ((1u << lane) - 1u))] = from + lane;
            before += __popc(all);
        }
        __syncwarp();
    }
    __device__ inline void set_weights(const int32_t *ids, float *w) const {
        for (int32_t k = lane; k < p.top_k; k += 32) w[k] = score[ids[k]];
        __syncwarp();
        if (p.kind == GPU_ROUTE_CHOSEN) softmax(w, p.top_k);
        float by = 0;
        for (int32_t k = 0; k < p.top_k; k++) by = by + w[k];
        by = by + p.eps;
        __syncwarp();
        for (int32_t k = lane; k < p.top_k; k += 32) {
            if (p.normed) w[k] = w[k] / by;
            if (p.factor != 1) w[k] = w[k] * p.factor;
            if (p.scale.data) w[k] = w[k] * load_element(p.scale.data, p.scale.type, ids[k]);
        }
    }
};

__global__ void route(gpu_step s, gpu_route p, gpu_array logits, gpu_array ids, gpu_array weights) {
    __shared__ float score[MOST_EXPERTS], merit[MOST_EXPERTS], w[MOST_CHOICES], sums[MOST_EXPERTS];
    __shared__ bool taken[MOST_EXPERTS];
    __shared__ int32_t chosen[MOST_CHOICES];
    begin();
    const int32_t r = (int32_t)blockIdx.x, lane = (int32_t)threadIdx.x;
    if (r >= live_rows(s, logits.rows)) return;
    const route_warp row = {p, logits.cols, lane, score, merit, taken};
    row.set_scores(logits, r);
    if (p.n_groups > 1) row.leave_groups(sums);
    row.choose(chosen);
    row.set_weights(chosen, w);
    for (int32_t k = lane; k < p.top_k; k += 32) {
        store_at(ids, (int64_t)r * p.top_k + k, 0, (float)chosen[k]);
        store_at(weights, (int64_t)r * p.top_k + k, 0, w[k]);
    }
}

int gpu_route_rows(const gpu_launch *l, const gpu_step *s, const gpu_route *p, const gpu_array *logits,
                   const gpu_array *ids, const gpu_array *weights) {
    run(l, (unsigned)grid_rows(l, logits->rows), 32, 0, route, *s, *p, *logits, *ids, *weights);
    return launched();
}

// ---- fold_rows ----

__global__ void fold_rows(gpu_step s, gpu_array x, gpu_array by, int32_t n, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (r >= live_rows(s, y.rows) || c >= y.cols) return;
    float sum = 0;
    for (int64_t p = (int64_t)r * n; p < (int64_t)(r + 1) * n; p++)
        sum = by.data ? fmaf(load_at(by, p, 0), load_at(x, p, c), sum) : sum + load_at(x, p, c);
    store_at(y, r, c, sum);
}

int gpu_fold_rows(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *by, int32_t n,
                  const gpu_array *y) {
    const dim3 grid((unsigned)grid_rows(l, y->rows), (unsigned)((y->cols + 255) / 256));
    run(l, grid, 256, 0, fold_rows, *s, *x, *by, n, *y);
    return launched();
}

// ---- the rows of each expert ----

// One block, a thread for each expert: counts the pairs of each, gives each its place in the list and its
// chunks, in the order of experts, then writes the pairs.
__global__ void __launch_bounds__(MOST_EXPERTS) list_pairs(gpu_step s, gpu_experts e, int32_t most) {
    __shared__ int32_t place[MOST_EXPERTS], chunk[MOST_EXPERTS];
    begin();
    const int32_t x = (int32_t)threadIdx.x, live = live_rows(s, e.ids.rows);
    place[x] = 0;
    __syncthreads();
    for (int32_t p = x; p < live; p += MOST_EXPERTS) atomicAdd(&place[(int32_t)load_at(e.ids, p, 0)], 1);
    __syncthreads();
    const int32_t n = place[x], n_chunks = (n + most - 1) / most;
    chunk[x] = n_chunks;
    __syncthreads();
    for (int32_t d = 1; d < MOST_EXPERTS; d *= 2) { // sums of all before and including x
        const int32_t more = x >= d ? place[x - d] : 0, more_chunks = x >= d ? chunk[x - d] : 0;
        __syncthreads();
        place[x] += more, chunk[x] += more_chunks;
        __syncthreads();
    }
    const int32_t first = place[x] - n, first_chunk = chunk[x] - n_chunks;
    for (int32_t i = 0; i < n_chunks; i++) {
        int32_t *to = e.lists + CHUNKS_AT + 4 * (first_chunk + i);
        to[0] = x, to[1] = first + i * most, to[2] = n - i * most < most ? n - i * most : most;
    }
    if (x == MOST_EXPERTS - 1) e.lists[0] = chunk[x];
    __syncthreads();
    place[x] = first;
    __syncthreads();
    for (int32_t p = x; p < live; p += MOST_EXPERTS)
        listed_pairs(e)[atomicAdd(&place[(int32_t)load_at(e.ids, p, 0)], 1)] = p;
}

unsigned list_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e, int32_t rows) {
    const int32_t pairs = grid_rows(l, e->ids.rows);
    if (pairs <= EXPERTS_DIRECT) {
        e->lists = NULL;
        return (unsigned)pairs;
    }
    run(l, 1, MOST_EXPERTS, 0, list_pairs, *s, *e, rows);
    return (unsigned)(pairs / rows + (pairs < e->n_experts ? pairs : e->n_experts));
}
size_t gpu_experts_scratch(int64_t pairs, int32_t n_experts) {
    return (size_t)(pairs_at(pairs, n_experts) + pairs) * sizeof(int32_t);
}

int gpu_run_experts(const gpu_launch *l, const gpu_step *s, const gpu_experts *experts) {
    gpu_experts copy = *experts, *e = &copy;
    if (e->w.form == GPU_CODED) {
        experts_coded(l, s, e);
        return launched();
    }
    switch (e->w.bits) {
    case 0: experts_dense(l, s, e); break;
    case 2: experts_2bit(l, s, e); break;
    case 3: experts_3bit(l, s, e); break;
    case 4: experts_4bit(l, s, e); break;
    case 5: experts_5bit(l, s, e); break;
    case 6: experts_6bit(l, s, e); break;
    default: experts_8bit(l, s, e); break;
    }
    return launched();
}
