// Products of rows with the matrices of their experts: which rows a block has.
//
// A pair is a row and one of its choices, so a row of y. With few pairs each is computed by itself, and the
// matrices that it names are read from memory or the cache. Else a kernel before the product lists the pairs
// of each expert (experts.cu), and cuts the list of an expert into chunks, so that a block reads the weights
// once for all rows of a chunk. The order in a list may differ from run to run, but a row's result depends
// neither on its place nor on its neighbours.
#pragma once

#include "fragments.cuh"

// Pairs up to which each is a chunk by itself.
enum { EXPERTS_DIRECT = 16 };

// In gpu_experts.lists: the number of chunks, from CHUNKS_AT on four numbers for each (expert, first place in
// the list, rows, 0), then the pairs.
enum { CHUNKS_AT = 4 };
__host__ __device__ inline int64_t pairs_at(int64_t pairs, int32_t n_experts) {
    return CHUNKS_AT + 4 * (pairs + (pairs < n_experts ? pairs : n_experts));
}
__device__ inline int32_t *listed_pairs(const gpu_experts &e) {
    return e.lists + pairs_at(e.n_pairs, e.n_experts);
}

// The rows of a block: n of one expert; 0: the block has nothing to do.
struct expert_rows {
    int64_t expert;
    int32_t first, n;
    const int32_t *pairs; // NULL: pair `first` alone

    __device__ inline int32_t pair(int32_t i) const {
        return pairs ? pairs[first + (i < n ? i : n - 1)] : first;
    }
    // Row i of the chunk as a row of x; of rows behind the last, that of the last.
    __device__ inline int32_t row_of_x(const gpu_experts &e, int32_t i) const {
        return e.shared ? pair(i) / e.top_k : pair(i);
    }
};
// The rows of chunk blockIdx.y, of at most `most` rows.
__device__ inline expert_rows expert_rows_of(const gpu_step &s, const gpu_experts &e, int32_t most) {
    const int32_t live = live_rows(s, e.ids.rows), i = (int32_t)blockIdx.y;
    if (!e.lists) return {i < live ? (int64_t)load_at(e.ids, i, 0) : 0, i, i < live ? 1 : 0, NULL};
    if (i >= e.lists[0]) return {0, 0, 0, NULL};
    const int32_t *chunk = e.lists + CHUNKS_AT + 4 * i;
    return {chunk[0], chunk[1], chunk[2] < most ? chunk[2] : most, listed_pairs(e)};
}
__device__ inline void store_expert(const gpu_experts &e, const expert_rows &rows, int32_t i, int64_t d,
                                    float sum) {
    if (e.bias.data) sum = sum + load_element(e.bias.data, e.bias.type, rows.expert * e.D + d);
    store_at(e.y, rows.pair(i), d, sum);
}

// Launches the kernel that lists the pairs if they are many, else sets e->lists to NULL. Returns the largest
// number of chunks of up to `rows` rows.
unsigned list_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e, int32_t rows);
