/* Helpers of the kernel tests: blocks between guard pages, kernels that run on the thread pool, and
 * comparison of bits.
 *
 * A block is flush against an unreadable page, at its end or at its beginning, so that reading or writing
 * one byte outside is a crash. Bits are compared exactly, except that any NaN equals any NaN: which
 * operand's NaN an instruction passes on is not specified. */
#ifndef LN_TEST_KERNELS_H
#define LN_TEST_KERNELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "call_variant.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu.h"
#include "device/cpu/pack/bf12.h"
#include "../fewer.h"

enum { PAGE = 4096, MAX_THREADS = 7 };
static const int thread_counts[] = {1, 2, 6, 7} /* 6: also a partition into three parts of two pieces each */;

typedef struct guarded {
    uint8_t *map, *data;
    size_t map_bytes, bytes;
} guarded;

/* Allocates a block `shift` bytes away from a guard page: before the page when at_end, else after it. The
 * other bytes between the guard pages are 0xa5. The caller frees the block with unguard. */
static inline guarded guard(size_t bytes, bool at_end, size_t shift) {
    guarded g = {.bytes = bytes};
    size_t inner = (bytes + shift + PAGE) / PAGE * PAGE;
    g.map_bytes = inner + (size_t)2 * PAGE;
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + PAGE, inner, PROT_READ | PROT_WRITE), 0);
    memset(g.map + PAGE, 0xa5, inner);
    g.data = at_end ? g.map + PAGE + inner - bytes - shift : g.map + PAGE + shift;
    return g;
}
static inline void unguard(guarded *g) {
    /* the bytes between the block and the guard pages must be unchanged */
    for (uint8_t *p = g->map + PAGE; p < g->map + g->map_bytes - PAGE; p++)
        if ((p < g->data || p >= g->data + g->bytes) && *p != 0xa5)
            fail_msg("a byte %td from the block was written", p - g->data);
    munmap(g->map, g->map_bytes);
}

/* A random generator of the tests' own, so that a failure can be repeated. */
static uint64_t random_state = 1;
static inline uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}
static inline int random_in(int lo, int hi) { return lo + (int)(random_u32() % (uint32_t)(hi - lo + 1)); }
/* Uniform in (-2, 2), sometimes tiny or zero, so that signs and magnitudes mix. */
static inline float random_f32(void) {
    uint32_t u = random_u32();
    float x = ((float)(u & 0xffffu) - 32767.5f) / 16384.0f;
    return u >> 27 == 0 ? x * 1e-6f : u >> 27 == 1 ? 0.0f : x;
}
static inline void weight_put(void *to, ln_dtype t, int64_t i, float x) {
    uint16_t h = t == LN_F16 ? ln_f32_f16(x) : ln_f32_bf16(x);
    if (t == LN_F32) memcpy((char *)to + 4 * i, &x, 4);
    else memcpy((char *)to + 2 * i, &h, 2);
}
static inline void fill_f32(float *p, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = random_f32();
}

/* The format of a value that is rounded to bf16, or not. */
static inline ln_format bf16_if(bool rounded) {
    return (ln_format){rounded ? LN_FORMAT_BF16 : LN_FORMAT_F32, 0, 0};
}
/* The kernels of an ISA level; -1: the reference kernels. */
static inline ln_kernel_table *kernels_of(int isa, ln_kernel_table *table) {
    if (isa < 0) ln_ref_kernels_float(table);
    else ln_cpu_kernels((ln_isa)isa, table);
    return table;
}
/* The kernel of a list for a call. */
static inline ln_kernel kernel_of_list(const ln_kernel_row *rows, const ln_call *c) {
    ln_kernel_table t = {0};
    ln_kernels_add(&t, rows);
    return t.of[c->node->op][call_variant(c)];
}

/* Replaces the weight w[D, C] by the layout that the kernels of an ISA level read: packed, flush against a
 * guard page; unchanged on the plain ISA level. Returns the block, which the caller unguards if it is not
 * empty. */
static inline guarded packed_for(int isa, ln_arg *w) {
    if (isa <= LN_ISA_PLAIN) return (guarded){0};
    guarded g =
        guard((size_t)(ln_pack_blocks(w->rows) * ln_pack_block_bytes((ln_dtype)w->dtype, w->cols)), true, 0);
    ln_pack(g.data, w->data, w->dtype, w->rows, w->cols, 0, ln_pack_blocks(w->rows));
    w->data = g.data;
    return g;
}

/* The same as compressed bf16 (bf12.h), in exactly as many bytes as needed, packed in `shares` parts one
 * after the other. Returns an empty block if the weight does not compress. */
static inline guarded tight_for(ln_arg *w, int shares, int64_t *n_full) {
    const int64_t blocks = ln_pack_blocks(w->rows);
    guarded all = guard((size_t)ln_bf12_bytes(blocks, w->cols, ln_bf12_max_uncompressed(blocks, w->cols)),
                        true, 0),
            g = {0};
    _Atomic int64_t full = 0;
    bool won = true;
    ln_bf12_init(all.data, w->rows, w->cols);
    for (int i = 0; i < shares && won; i++)
        won = ln_bf12_pack(all.data, w->data, w->rows, w->cols, blocks * i / shares,
                           blocks * (i + 1) / shares, &full);
    if (won) {
        g = guard((size_t)ln_bf12_bytes(blocks, w->cols, full), true, 0);
        memcpy(g.data, all.data, g.bytes);
        w->data = g.data;
        w->bf12 = true;
        *n_full = full;
    }
    unguard(&all);
    return g;
}

/* Weights in affine groups. */
static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
/* Groups of 16 columns, which files of MLX do not have: those whose codes fill whole words. */
static const ln_groups small_groups[] = {{2, 16}, {4, 16}, {6, 16}, {8, 16}};
static const float weight_specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-42f, 3e38f, -3e-30f};

typedef struct weight {
    guarded codes, scales, biases;
    ln_affine a;
    int64_t D, C;
} weight;

/* Changes scales or biases to multiples of one number in n groups in sequence, as files with two levels of
 * scales have them. */
static inline void share_factors(void *numbers, int64_t rows, int64_t groups, int n) {
    for (int64_t i = 0; i < rows * groups; i += n) {
        const float factor = ln_f16_f32(ln_f32_f16(random_f32() * 0.01f));
        const int most = random_in(1, 127);
        for (int k = 0; k < n; k++)
            weight_put(numbers, LN_F32, i + k,
                       factor * (float)(random_u32() % 7 ? random_in(-most, most) : -most - 1) + 0.0f);
    }
}
/* Creates a weight of random codes, scales of either sign and biases, in three separate, unaligned blocks.
 * shared: groups that share factors; 0: none do. */
static inline weight weight_new_of(int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, bool special,
                                   int shared) {
    weight w = {.D = D, .C = C};
    int64_t n = D * (C / enc.group), size = ln_dtype_bytes(dtype);
    bool at_end = random_u32() % 2 == 0;
    w.codes = guard((size_t)(D * ln_affine_row_bytes(enc, C)), at_end, (size_t)random_in(0, 3));
    w.scales = guard((size_t)(n * size), at_end, (size_t)random_in(0, 3));
    w.biases = guard((size_t)(n * size), at_end, (size_t)random_in(0, 3));
    for (size_t i = 0; i < w.codes.bytes; i++) w.codes.data[i] = (uint8_t)random_u32();
    for (int64_t i = 0; i < n; i++) {
        ln_num_store(w.scales.data, dtype, i,
                     special && random_u32() % 23 == 0
                         ? weight_specials[random_u32() % LN_COUNT(weight_specials)]
                         : random_f32() * 0.1f);
        ln_num_store(w.biases.data, dtype, i,
                     special && random_u32() % 23 == 0
                         ? weight_specials[random_u32() % LN_COUNT(weight_specials)]
                         : random_f32());
    }
    w.a = (ln_affine){w.codes.data, w.scales.data, w.biases.data, dtype, dtype, enc};
    if (shared) {
        w.a.shared = shared;
        share_factors(w.scales.data, D, C / enc.group, shared);
        share_factors(w.biases.data, D, C / enc.group, shared);
    }
    return w;
}
/* The same; half of those that can be have scales and biases with shared factors. */
static inline weight weight_new(int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, bool special) {
    const int shared = random_in(1, 16);
    const bool can = dtype == LN_F32 && !special && C / enc.group % shared == 0;
    return weight_new_of(D, C, enc, dtype, special, can && random_u32() % 2 ? shared : 0);
}
static inline void weight_free(weight *w) { unguard(&w->codes), unguard(&w->scales), unguard(&w->biases); }

/* The code of row d, column i, read bit by bit. */
static inline uint32_t code_at(const weight *w, int64_t d, int64_t i) {
    const uint8_t *row = w->codes.data + d * w->C * w->a.code.bits / 8;
    uint32_t v = 0;
    for (int b = 0; b < w->a.code.bits; b++) {
        int64_t at = i * w->a.code.bits + b;
        v |= (uint32_t)(row[at / 8] >> at % 8 & 1) << b;
    }
    return v;
}

/* Does what packed_for does, for a weight in affine groups. */
static inline guarded packed_q_for(int isa, ln_affine *w, int64_t D, int64_t C) {
    if (isa <= LN_ISA_PLAIN) return (guarded){0};
    guarded g = guard((size_t)(ln_pack_blocks(D) * ln_packed_block_bytes(w, C)), true, 0);
    assert_true(ln_pack_q(g.data, w, D, C, 0, ln_pack_blocks(D)));
    *w = (ln_affine){
        .codes = g.data, .dtype = w->dtype, .offset = w->offset, .code = w->code, .shared = w->shared};
    return g;
}

/* A weight as packed for products of int8 pairs. */
typedef struct row_weight {
    guarded codes, units;
    ln_affine a;
} row_weight;
#if !defined(ROW_COEFFICIENTS) && defined(LN_X86)
#define ROW_COEFFICIENTS ln_cpu_i8pair_constants_amx
#endif
typedef struct row_packing {
    row_weight *p;
    const ln_affine *w;
    int64_t D, C;
} row_packing;
/* Computes the dequantisation constants in the kernels' floating-point mode, as an engine does when it
 * packs. */
static inline void row_coefficients(void *user, int thread, int n_threads) {
    const row_packing *r = user;
    (void)thread, (void)n_threads;
#ifdef ROW_COEFFICIENTS
    const ln_groups code = r->w->code;
    const int64_t n = r->C / code.group, codes = ln_pack_codes_bytes(code),
                  pitch = codes + LN_PACK_CONSTANT_BYTES;
    float *numbers = malloc((size_t)(n * 2 * LN_PACK_NR) * sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t b = 0; b < ln_pack_blocks(r->D); b++) {
        ln_pack_codes(r->p->codes.data + b * n * pitch, r->w, LN_PACK_CONSTANT_BYTES, r->D, r->C, b, b + 1);
        ln_pack_numbers(numbers, r->w, r->D, r->C, b, 0, n);
        ROW_COEFFICIENTS(r->p->codes.data + b * n * pitch + codes, pitch, numbers, n, code.bits,
                         r->p->a.units + b * LN_PACK_OUTPUT_SCALES);
    }
    free(numbers);
#else
    (void)r;
#endif
}
static inline row_weight row_packed(const ln_affine *w, int64_t D, int64_t C) {
    row_weight p = {.a = *w};
    const bool has_constants = w->code.bits <= 4;
    p.units = guard((size_t)(ln_pack_blocks(D) * LN_PACK_OUTPUT_SCALES) * sizeof(float), true, 0);
    ln_pack_output_scales((float *)(void *)p.units.data, w, D, C, 0, ln_pack_blocks(D));
    p.a.has_constants = has_constants;
    if (has_constants) {
        p.codes = guard((size_t)(ln_pack_blocks(D) * ln_packed_block_bytes(&p.a, C)), true, 0);
        p.a.codes = p.codes.data, p.a.scales = p.a.biases = NULL;
    } else p.codes = packed_q_for(1, &p.a, D, C);
    p.a.units = (const float *)(const void *)p.units.data;
    if (has_constants) ln_pool_run(ln_pool_default(), 1, row_coefficients, &(row_packing){&p, w, D, C});
    return p;
}

typedef struct kernel_run {
    ln_kernel kernel;
    ln_call call;
    guarded scratch[MAX_THREADS];
} kernel_run;
static inline void kernel_job(void *user, int thread, int n_threads) {
    const kernel_run *k = user;
    ln_call c = k->call;
    c.thread = thread;
    c.n_threads = n_threads;
    c.scratch = k->scratch[thread].data;
    k->kernel.fn(&c);
}
/* Checks the ranges of weight bytes that the kernel declares for small M (ln_kernel.reads): the threads'
 * ranges together are the whole weight, each block once and in order. */
static inline void check_reads(const ln_kernel *kernel, ln_call c, int n_threads) {
    if (!kernel->reads || c.out[0].rows < 1 || c.out[0].rows > 4) return;
    const bool dense = !c.in[1].format.bits;
    const bool pair = c.node->op == LN_OP_LINEAR_GATED && !dense;
    const ln_affine *w = c.in[1].data, *second = pair ? c.in[2].data : NULL;
    const int64_t block = c.in[1].bf12 ? ln_bf12_block_bytes(c.in[0].cols)
                          : dense      ? ln_pack_block_bytes(c.in[1].dtype, c.in[0].cols)
                                       : ln_packed_block_bytes(w, c.in[0].cols);
    const uint8_t *from = dense ? (const uint8_t *)c.in[1].data + (c.in[1].bf12 ? LN_BF12_HEADER_BYTES : 0)
                                : w->codes,
                  *at = from;
    c.n_threads = n_threads;
    for (c.thread = 0; c.thread < n_threads; c.thread++) {
        ln_reads r;
        kernel->reads(&c, &r);
        assert_ptr_equal(r.at, at);
        assert_int_equal(r.block, block);
        assert_true(r.n >= 1 && r.n <= 8);
        assert_true(!r.second ||
                    (second && r.second == (int64_t)((uintptr_t)second->codes -
                                                     (uintptr_t)from))); /* 0 if the second weight of a gated
                                                                            pair is read after the first */
        at = r.end;
    }
    assert_int_equal(at - from, ln_pack_blocks(c.out[0].cols) * block);
}

/* A program of these values, from which a kernel reads the sizes of a node. */
static inline ln_program program_of(const ln_pvalue *values) {
    return (ln_program){.values = (ln_pvalue *)(uintptr_t)values, .value_size = sizeof *values};
}
/* Runs a kernel on n threads; its scratch is filled with NaN and guarded. `values`: the values of the
 * node, if the scratch size depends on them. */
static inline void run_this(const ln_kernel *kernel, const ln_call *call, const ln_pvalue *values,
                            const ln_bounds *bounds, int n_threads) {
    kernel_run k = {.kernel = *kernel, .call = *call};
    const ln_program p = program_of(values);
    size_t bytes = k.kernel.scratch ? (k.kernel.scratch(&p, call->node, bounds) + 63) / 64 * 64 : 0;
    assert_int_equal(ln_pool_reserve(ln_pool_default(), MAX_THREADS, NULL), LN_OK);
    for (int t = 0; t < n_threads; t++) {
        k.scratch[t] = guard(bytes, true, 0);
        memset(k.scratch[t].data, 0xff, bytes);
    }
    check_reads(kernel, *call, n_threads);
    ln_pool_run(ln_pool_default(), n_threads, kernel_job, &k);
    for (int t = 0; t < n_threads; t++) unguard(&k.scratch[t]);
}

/* Runs the kernel of one ISA level (-1: of the reference table). */
static inline void run_kernel_with(int isa, const ln_call *call, const ln_pvalue *values,
                                   const ln_bounds *bounds, int n_threads) {
    ln_kernel_table table;
    run_this(&kernels_of(isa, &table)->of[call->node->op][call_variant(call)], call, values, bounds,
             n_threads);
}

static inline void run_kernel(int isa, const ln_call *call, const ln_bounds *bounds, int n_threads) {
    run_kernel_with(isa, call, NULL, bounds, n_threads);
}

/* narrow_buffer: a buffer for the values of `wide` as bf16, 2 bytes each. narrow_of: the same, filled with
 * the values of `wide`, which must be bf16-valued. */
static inline guarded narrow_buffer(const ln_arg *wide, ln_arg *narrow) {
    guarded g = guard((size_t)((wide->rows - 1) * wide->pitch + wide->cols) * 2, true, 0);
    *narrow = *wide;
    narrow->data = g.data, narrow->dtype = LN_BF16, narrow->format = bf16_if(true);
    return g;
}
static inline guarded narrow_of(const ln_arg *wide, ln_arg *narrow) {
    guarded g = narrow_buffer(wide, narrow);
    memset(g.data, 0xff, g.bytes); /* NaN between the rows */
    for (int64_t r = 0; r < wide->rows; r++)
        for (int64_t i = 0; i < wide->cols; i++)
            weight_put(g.data, LN_BF16, r * wide->pitch + i,
                       ((const float *)wide->data)[r * wide->pitch + i]);
    return g;
}
/* Converts back to f32, and checks that the bytes between the rows are unchanged (0xa5). */
static inline void widen(const ln_arg *narrow, const ln_arg *wide) {
    const uint16_t *from = narrow->data;
    for (int64_t i = 0; i < (narrow->rows - 1) * narrow->pitch + narrow->cols; i++) {
        if (i % narrow->pitch < narrow->cols) ((float *)wide->data)[i] = ln_bf16_f32(from[i]);
        else assert_int_equal(from[i], 0xa5a5);
    }
}
/* Runs the kernel with output 0 in bf16, and converts that output into c's own in f32. */
static inline void run_narrow(const ln_kernel *kernel, const ln_call *c, const ln_pvalue *values,
                              const ln_bounds *bounds, int n_threads) {
    ln_call d = *c;
    guarded g = narrow_buffer(&c->out[0], &d.out[0]);
    run_this(kernel, &d, values, bounds, n_threads);
    widen(&d.out[0], &c->out[0]);
    unguard(&g);
}

static inline bool same_bits(float a, float b) {
    return ln_f32_bits(a) == ln_f32_bits(b) || (a != a && b != b);
}
/* Fails with the first row and column in which two blocks differ. */
static inline void assert_same(const float *want, const float *got, int64_t rows, int64_t cols, int64_t pitch,
                               const char *what) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++)
            if (!same_bits(want[r * pitch + i], got[r * pitch + i]))
                fail_msg("%s: row %lld, column %lld: expected %.9g (%08x), found %.9g (%08x)", what,
                         (long long)r, (long long)i, (double)want[r * pitch + i],
                         ln_f32_bits(want[r * pitch + i]), (double)got[r * pitch + i],
                         ln_f32_bits(got[r * pitch + i]));
}

/* Whether this ISA level's kernel of an op has a summation order of its own for weights or pages of this
 * type (AMX). test_amx and test_attention test those kernels. */
static inline bool own_order(int isa, ln_op op, ln_dtype type) {
#ifdef LN_X86
    return isa == LN_ISA_AMX && type == LN_BF16 && (op == LN_OP_LINEAR || op == LN_OP_ATTN_PAGED);
#else
    return (void)isa, (void)op, (void)type, false;
#endif
}

static inline bool isa_available(int isa) {
    static bool said[LN_ISA_COUNT];
    if (ln_cpu_isa_here((ln_isa)isa)) return true;
    if (!said[isa])
        fprintf(stderr, "SKIP: this machine lacks %s; its kernels are NOT tested here\n",
                ln_cpu_isa_name((ln_isa)isa));
    said[isa] = true;
    return false;
}

/* Runs a row-wise call without weights on every ISA level above plain, with each of thread_counts: all
 * bytes of `got` must equal `want`. */
static inline void each_isa_bytes(const ln_call *call, const ln_bounds *bounds, const guarded *want,
                                  guarded *got, const char *what) {
    ln_call c = *call;
    c.out[0].data = got->data;
    for (int isa = 1; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && isa_available(isa); n++) {
            memset(got->data, 0xa5, got->bytes);
            run_kernel(isa, &c, bounds, thread_counts[n]);
            if (memcmp(want->data, got->data, got->bytes) != 0)
                fail_msg("%s, on %s: other bits than the reference's", what, ln_cpu_isa_name((ln_isa)isa));
        }
}

/* Calls a product with a weight in affine groups, and with a bias of type `bias` unless that is -1. */
static inline ln_call product_call(ln_pnode *node, ln_op op, ln_arg x, weight *w, const guarded *b, int bias,
                                   const guarded *y, int64_t ldy) {
    *node = (ln_pnode){.op = op, .n_in = bias >= 0 ? 3 : 2, .n_out = 1, .in = {0, 1, 2}};
    ln_call c = {.node = node};
    c.in[0] = x;
    c.in[1] = (ln_arg){&w->a, w->D, w->C, w->C, w->a.dtype, ln_format_of(LN_FORMAT_F32, w->a.code)};
    c.in[2] = (ln_arg){b->data, 1, w->D, w->D, (ln_dtype)LN_MAX(bias, 0)};
    c.out[0] = (ln_arg){y->data, x.rows, w->D, ldy, LN_F32};
    return c;
}

/* Runs a product with a weight in affine groups on every ISA level above plain, with each of
 * thread_counts: all of `got`, including the gaps between rows, must equal `want`. */
static inline void each_isa_q(const ln_call *call, const ln_pvalue *values, const ln_bounds *bounds,
                              const weight *w, const guarded *want, guarded *got, const char *what) {
    ln_call c = *call;
    c.out[0].data = got->data;
    for (int isa = 1; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && isa_available(isa); n++) {
            char where[200];
            snprintf(where, sizeof where, "%s, on %s, %d threads", what, ln_cpu_isa_name((ln_isa)isa),
                     thread_counts[n]);
            memset(got->data, 0xa5, got->bytes);
            ln_affine a = w->a;
            guarded packed = packed_q_for(isa, &a, w->D, w->C);
            c.in[1].data = &a;
            run_kernel_with(isa, &c, values, bounds, thread_counts[n]);
            assert_same((float *)(void *)want->data, (float *)(void *)got->data, 1, (int64_t)(got->bytes / 4),
                        0, where);
            if (packed.map) unguard(&packed);
        }
}

#endif
