// Words with flags (exchange.cu): what kernels share that send to other GPUs or receive from them. A kernel
// of products with few rows does both itself: it sends each output that it stores, and its blocks then wait
// for those of the other ranks.
#pragma once

#include "cuda_common.cuh"

enum { LOOKS = 1024 /* looks at a flag between looks at *stop */ };

__device__ inline char *slot_of(const gpu_exchange &e, int to, int slot, int from) {
    return e.inbox[to] + GPU_INBOX_HEAD + (int64_t)(slot * e.size + from) * e.slot_bytes;
}

// Whether the host has ended all waiting.
__device__ inline bool stopped(const gpu_exchange &e) { return *(const volatile uint32_t *)e.stop != 0; }

// n neighbouring elements as they are stored.
template <typename T, int N> union group {
    T element[N];
    uint2 pair;
    uint4 four;
};

// The first column that a rank's part has in the value. Parts of the last ranks overlap if the number of
// columns is no multiple; a column is taken from the first rank that has it.
__device__ inline int64_t first_of(const gpu_gather &g, int rank) {
    const int64_t S = g.x.cols, last = g.y.cols - S;
    return rank * S < last ? rank * S : last;
}
__device__ inline bool takes(const gpu_gather &g, int rank, int64_t column) {
    return column >= rank * (int64_t)g.x.cols;
}

template <typename T> __device__ inline T *value_at(const gpu_array &y, int64_t r, int64_t c) {
    return (T *)y.data + r * y.pitch + c;
}
template <typename T, int N>
__device__ inline void store_group(const gpu_array &y, int64_t r, int64_t c, const group<T, N> &v) {
    T *to = value_at<T>(y, r, c);
    if (N == 1) *to = v.element[0];
    else if (sizeof v == 8) *(uint2 *)to = v.pair;
    else *(uint4 *)to = v.four;
}

template <typename T, int N> struct packet;
template <typename T> struct packet<T, 1> {
    uint2 word;
    __device__ void fill(const group<T, 1> &v) { word = make_uint2(0, 1), *(T *)&word.x = v.element[0]; }
    __device__ group<T, 1> read(void) const {
        group<T, 1> v;
        v.element[0] = *(const T *)&word.x;
        return v;
    }
    __device__ bool is_full(void) const { return word.y != 0; }
    __device__ void store(char *at) const {
        asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(word.x), "r"(word.y)
                     : "memory");
    }
    __device__ void load(const char *at) {
        asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(word.x), "=r"(word.y)
                     : "l"(at)
                     : "memory");
    }
};
template <typename T, int N> struct packet { // of 8 bytes
    uint4 word;
    __device__ void fill(const group<T, N> &v) { word = make_uint4(v.pair.x, 1, v.pair.y, 1); }
    __device__ group<T, N> read(void) const {
        group<T, N> v;
        v.pair = make_uint2(word.x, word.z);
        return v;
    }
    __device__ bool is_full(void) const { return word.y != 0 && word.w != 0; }
    __device__ void store(char *at) const {
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word.x), "r"(word.y),
                     "r"(word.z), "r"(word.w)
                     : "memory");
    }
    __device__ void load(const char *at) {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                     : "l"(at)
                     : "memory");
    }
};

// Waits for a packet, and empties its place. false: the host has ended all waiting.
template <typename P> __device__ inline bool receive(const gpu_exchange &e, char *at, P *p) {
    P empty;
    empty.word = {};
    for (int looks = 0;; looks++) {
        p->load(at);
        if (p->is_full()) break;
        if (looks % LOOKS == LOOKS - 1 && stopped(e)) return false;
    }
    empty.store(at);
    return true;
}

// ---- by the kernel that makes a part ----

// Sends x, which is stored in row r and column c of the rank's part.
__device__ inline void send_element(const gpu_tail &t, int64_t r, int64_t c, float x) {
    const gpu_exchange &e = t.exchange;
    const gpu_gather &g = t.gather;
    const uint2 word = make_uint2(g.y.type == GPU_F32 ? __float_as_uint(x) : f32_to_bf16(x), 1);
    const packet<uint32_t, 1> p = {word};
    for (int k = 0; k < e.size; k++)
        if (k != e.rank) p.store(slot_of(e, k, g.slot, e.rank) + (r * g.x.cols + c) * (int64_t)sizeof word);
}
// Receives elements from, from + step, .. of the parts of the other ranks, of so many rows.
__device__ inline void receive_elements(const gpu_exchange &e, const gpu_gather &g, int32_t rows,
                                        uint32_t from, uint32_t step) {
    const uint32_t S = g.x.cols, n = S * rows;
    for (int k = 0; k < e.size; k++) {
        const int64_t first = first_of(g, k);
        char *slot = slot_of(e, e.rank, g.slot, k);
        for (uint32_t i = from; k != e.rank && i < n; i += step) {
            const int64_t r = i / S, c = first + i % S;
            packet<uint32_t, 1> p;
            if (!receive(e, slot + (size_t)i * sizeof p.word, &p)) return;
            if (!takes(g, k, c)) continue;
            if (g.y.type == GPU_F32) *value_at<uint32_t>(g.y, r, c) = p.word.x;
            else *value_at<uint16_t>(g.y, r, c) = (uint16_t)p.word.x;
        }
    }
}
