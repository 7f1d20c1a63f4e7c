// Instructions of compute capability 9.0 that CUDA C++ has no functions for: barriers in shared memory,
// bulk copies, wgmma. Their meaning is that of the PTX manual.
#pragma once

#include "cuda_common.cuh"

#include <cuda.h>
#include <stdint.h>

// ---- barriers: arrivals and bytes of bulk copies end a phase ----

__device__ inline void barrier_init(uint64_t *b, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
                 : "memory");
}
// Arrives, and adds the bytes that copies will bring before the phase ends.
__device__ inline void barrier_expect(uint64_t *b, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}
// Arrives at the barrier at the same address in block `rank` of the cluster.
__device__ inline void barrier_arrive(uint64_t *b, uint32_t rank) {
    asm volatile("{.reg .b32 at; mapa.shared::cluster.u32 at, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [at];}" ::"r"(shared_address(b)),
                 "r"(rank)
                 : "memory");
}
// Waits until the phase of this parity has ended.
__device__ inline void barrier_wait(uint64_t *b, uint32_t parity) {
    asm volatile("{.reg .pred done; WAIT: "
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
                 "@!done bra WAIT;}" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
}

// ---- clusters ----

__device__ inline uint32_t cluster_rank(void) {
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
__device__ inline void cluster_barrier(void) {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
// Four values of another block's shared memory.
__device__ inline float4 load_of_cluster(const float4 *p, uint32_t rank) {
    float4 v;
    asm volatile("{.reg .b32 at; mapa.shared::cluster.u32 at, %4, %5; "
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at];}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(shared_address(p)), "r"(rank)
                 : "memory");
    return v;
}

// ---- bulk copies to shared memory; barrier b counts the bytes that arrive ----

// The box at column c of row r.
__device__ inline void copy_box(void *to, const CUtensorMap *map, int32_t c, int32_t r, uint64_t *b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(c), "r"(r), "r"(shared_address(b))
                 : "memory");
}
// The same for the blocks of `mask`, at the same addresses in each.
__device__ inline void copy_box_to(void *to, const CUtensorMap *map, int32_t c, int32_t r, uint64_t *b,
                                   uint16_t mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(c), "r"(r), "r"(shared_address(b)), "h"(mask)
                 : "memory");
}

// ---- wgmma ----

__device__ inline void wgmma_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most N groups are not finished.
template <int N> __device__ inline void wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// The descriptor of operand B in shared memory: rows of 64 columns of 16 bits, 128-byte swizzle, 1,024-byte
// aligned. For the columns from 16 k on, add 2 k.
__device__ inline uint64_t rows_descriptor(const void *p) {
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

// The descriptor of an operand B whose rows are what is added up and whose columns are outputs, in panels of
// 64 columns that are `panel` bytes apart. For the rows from 16 k on, pass their address.
__device__ inline uint64_t columns_descriptor(const void *p, int panel) {
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | (uint64_t)(panel >> 4) << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

#define F4(i)  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
#define F32(i) F16(i), F16(i + 16)
#define R(i)   "%" #i "0,%" #i "1,%" #i "2,%" #i "3,%" #i "4,%" #i "5,%" #i "6,%" #i "7,%" #i "8,%" #i "9,"
#define R32    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," R(1) R(2) "%30,%31"
#define R64    R32 ",%32,%33,%34,%35,%36,%37,%38,%39," R(4) R(5) "%60,%61,%62,%63"
#define R88    R64 ",%64,%65,%66,%67,%68,%69," R(7) "%80,%81,%82,%83,%84,%85,%86,%87"
#define R96    R64 ",%64,%65,%66,%67,%68,%69," R(7) R(8) "%90,%91,%92,%93,%94,%95"
#define WGMMA(rows, sums, fragment, descriptor, keep, ...)                     \
    asm volatile("{.reg .pred keep; setp.ne.b32 keep, " keep ", 0; "           \
                 "wgmma.mma_async.sync.aligned.m64n" rows "k16.f32.bf16.bf16 " \
                 "{" sums "}, {" fragment "}, " descriptor ", keep, 1, 1, 0;}" \
                 : __VA_ARGS__                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))

// c = a b + (add ? c : 0) for 64 outputs and twice as many rows as c has elements. a: this thread's fragment.
__device__ inline void wgmma(float (&c)[32], const uint32_t a[4], uint64_t b, bool add) {
    WGMMA("64", R32, "%32,%33,%34,%35", "%36", "%37", F32(0));
}
__device__ inline void wgmma(float (&c)[64], const uint32_t a[4], uint64_t b, bool add) {
    WGMMA("128", R64, "%64,%65,%66,%67", "%68", "%69", F32(0), F32(32));
}
__device__ inline void wgmma(float (&c)[88], const uint32_t a[4], uint64_t b, bool add) {
    WGMMA("176", R88, "%88,%89,%90,%91", "%92", "%93", F32(0), F32(32), F16(64), F4(80), F4(84));
}
__device__ inline void wgmma(float (&c)[96], const uint32_t a[4], uint64_t b, bool add) {
    WGMMA("192", R96, "%96,%97,%98,%99", "%100", "%101", F32(0), F32(32), F32(64));
}

// Sums in rows of eight columns, as mma.sync has them: c[n] is of the columns 8 n to 8 n + 7.
#define C4(i)  "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define C16(i) C4(i), C4(i + 1), C4(i + 2), C4(i + 3)
#define C64(i) C16(i), C16(i + 4), C16(i + 8), C16(i + 12)
#define R16    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define R128 \
    R64 ",%64,%65,%66,%67,%68,%69," R(7) R(8) R(9) R(10) R(11) "%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_TILES(rows, sums, a_at, b_at, keep, ...)                         \
    asm volatile("{.reg .pred keep; setp.ne.b32 keep, " keep ", 0; "           \
                 "wgmma.mma_async.sync.aligned.m64n" rows "k16.f32.bf16.bf16 " \
                 "{" sums "}, " a_at ", " b_at ", keep, 1, 1, 0, 0;}"          \
                 : __VA_ARGS__                                                 \
                 : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_WEIGHTS(rows, sums, fragment, b_at, ...)                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" rows "k16.f32.bf16.bf16 " \
                 "{" sums "}, {" fragment "}, " b_at ", 1, 1, 1, 1;"           \
                 : __VA_ARGS__                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// c = a b^T + (add ? c : 0) of 64 rows and 32 or 64 rows of 16 columns, both in shared memory.
__device__ inline void wgmma_tiles(float (&c)[4][4], uint64_t a, uint64_t b, bool add) {
    WGMMA_TILES("32", R16, "%16", "%17", "%18", C16(0));
}
__device__ inline void wgmma_tiles(float (&c)[8][4], uint64_t a, uint64_t b, bool add) {
    WGMMA_TILES("64", R32, "%32", "%33", "%34", C16(0), C16(4));
}
// c += a b of a fragment a and 16 rows of 64, 128 or 256 columns (columns_descriptor).
__device__ inline void wgmma_weights(float (&c)[8][4], const uint32_t a[4], uint64_t b) {
    WGMMA_WEIGHTS("64", R32, "%32,%33,%34,%35", "%36", C16(0), C16(4));
}
__device__ inline void wgmma_weights(float (&c)[16][4], const uint32_t a[4], uint64_t b) {
    WGMMA_WEIGHTS("128", R64, "%64,%65,%66,%67", "%68", C64(0));
}
__device__ inline void wgmma_weights(float (&c)[32][4], const uint32_t a[4], uint64_t b) {
    WGMMA_WEIGHTS("256", R128, "%128,%129,%130,%131", "%132", C64(0), C64(16));
}
#undef C4
#undef C16
#undef C64
#undef R16
#undef R128
#undef WGMMA_TILES
#undef WGMMA_WEIGHTS
#undef F4
#undef F16
#undef F32
#undef R
#undef R32
#undef R64
#undef R88
#undef R96
#undef WGMMA
