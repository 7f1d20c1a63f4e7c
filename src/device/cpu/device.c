/* The CPU device: memory and packed weights; exec.c runs programs.
 *
 * Matrices are packed into the order in which kernels read them (pack.h,
 * docs/decisions/007-packed-weights.md); vectors are read in place from the mapped file, at any alignment.
 * Memory blocks are mapped directly from the system, so that large ones can be aligned to huge pages and use
 * them; the part that is certain to be needed is prefaulted by all threads at allocation, so that no step
 * waits for a page fault. The kernels are those of one ISA level (dispatch.c), which is chosen when the
 * device is opened.
 *
 *     affine weight:  | ln_affine | output scales | packed blocks | scales and biases |
 *
 * Output scales are present for products with int8 digit pairs. Separate scales and biases are present for
 * embedding tables whose packed blocks hold dequantisation constants instead. */
#include "../../base/file.h"
#include "exec.h"
#include "pack/bf12.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 };

static void copy_text(char *to, size_t cap, const char *text) {
    size_t n = LN_MIN(strlen(text), cap - 1);
    memcpy(to, text, n);
    to[n] = 0;
}

static ln_status cpu_open(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    *out = NULL;
    ln_isa isa;
    int n = opt && opt->n_threads > 0 ? opt->n_threads : ln_cores();
    LN_TRY(ln_cpu_isa_pick(&isa, err));
    ln_pool *pool = opt && opt->pool ? opt->pool : ln_pool_default();
    LN_TRY(ln_pool_reserve(pool, n, err));
    ln_dev *d = ln_zalloc(1, sizeof *d);
    if (!d) return LN_OOM(err, "the CPU device");
    d->isa = isa;
    d->pool = pool;
    d->n_threads = n;
    d->mlock = opt && opt->mlock;
    d->fast = opt && opt->fast;
    ln_cpu_kernels(isa, d->table);
    *out = d;
    return LN_OK;
}

ln_status ln_cpu_open_level(ln_dev **out, ln_isa isa, ln_error *err) {
    ln_dev *d = ln_zalloc(1, sizeof *d);
    *out = d;
    if (!d) return LN_OOM(err, "the CPU device");
    d->isa = isa;
    d->n_threads = 1;
    return LN_OK;
}

static void cpu_close(ln_dev **dev) {
    ln_free(*dev);
    *dev = NULL;
}

static void cpu_describe(const ln_dev *d, ln_dev_info *out) {
    memset(out, 0, sizeof *out);
    copy_text(out->name, sizeof out->name, "cpu");
    copy_text(out->isa, sizeof out->isa, ln_cpu_isa_name(d->isa));
    size_t at = 0;
    for (ln_isa r = LN_ISA_PLAIN; r < LN_ISA_COUNT; r++) {
        if (!ln_cpu_isa_here(r)) continue;
        if (at) out->isas[at++] = ' ';
        copy_text(out->isas + at, sizeof out->isas - at - 1, ln_cpu_isa_name(r));
        at += strlen(out->isas + at);
    }
    copy_text(out->quantised, sizeof out->quantised,
              "fast: integers, x in fixed point; exact: f32, by group");
    out->real_bytes = 4;
    out->n_threads = d->n_threads;
    out->by_numerics = ln_cpu_columns_per_row(d->isa, 1);
}

/* Bytes of a mapping: a multiple of the page size. */
static size_t block_bytes(size_t bytes) { return (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE; }

typedef struct block {
    uint8_t *data;
    int64_t n_pages;
} block;
/* Faults in huge pages [lo, hi) of a block. */
static void touch_pages(void *user, int thread, int64_t lo, int64_t hi) {
    const block *b = user;
    const int64_t n = HUGE_PAGE / SMALL_PAGE, end = LN_MIN(hi * n, b->n_pages);
    (void)thread;
    for (int64_t i = lo * n; i < end; i++) *(volatile uint8_t *)(b->data + i * SMALL_PAGE) = 0;
}

static ln_status cpu_alloc(ln_dev *d, size_t bytes, size_t ready, void **out, ln_error *err) {
    *out = NULL;
    bool huge = bytes >= HUGE_PAGE;
    size_t size = 0, slack = huge ? HUGE_PAGE : 0, all;
    if (ln_add_size(bytes ? bytes : 1, SMALL_PAGE + slack, &all)) size = block_bytes(bytes ? bytes : 1);
    uint8_t *p = size ? mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                      : MAP_FAILED;
    if (p == MAP_FAILED)
        return ln_fail(err, LN_EMEMORY,
                       "out of memory: the system gave no block of %zu bytes; lower "
                       "ln_options.n_ctx or ln_options.n_chunk, or raise the limit of this process (ulimit "
                       "-v)",
                       bytes);
    if (huge) { /* trim both ends to huge-page boundaries */
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) (void)munmap(p, head);
        if (slack - head) (void)munmap(p + head + size, slack - head);
        p += head;
        (void)madvise(p, size, MADV_HUGEPAGE); /* best effort */
    }
    block touched = {p, (int64_t)(block_bytes(ready) / SMALL_PAGE)};
    ln_pool_run_units(d->pool, d->n_threads, (int64_t)((ready + HUGE_PAGE - 1) / HUGE_PAGE),
                      LN_POOL_SLICE_BYTES / HUGE_PAGE, touch_pages, &touched);
    ln_status st = d->mlock ? ln_lock(p, size, "memory", err) : LN_OK;
    if (st != LN_OK) (void)munmap(p, size);
    else *out = p;
    return st;
}

static void cpu_free(ln_dev *d, void *p, size_t bytes) {
    (void)d;
    if (p) (void)munmap(p, block_bytes(bytes ? bytes : 1));
}

/* Matrices are packed (pack.h); an encoded one follows the ln_affine that describes it. Vectors, and all
 * weights on the plain ISA level, are read in place. */
enum { AFFINE_HEADER_BYTES = 64 };
/* Bytes of the parts of an encoded weight (head of this file). */
typedef struct affine_layout {
    size_t output_scales, blocks, gather_scales;
    bool dequant_constants;
} affine_layout;
static affine_layout affine_layout_of(const ln_dev *d, const ln_value *w) {
    const int64_t blocks = ln_pack_blocks(w->dims[0]), C = w->dims[1];
    const unsigned uses = w->uses ? w->uses : LN_USE_MATMUL | LN_USE_GATHER; /* unknown: both uses */
    const bool per_row = d->fast && uses & LN_USE_MATMUL && ln_cpu_columns_per_row(d->isa, C),
               dequant_constants = per_row && w->enc.bits <= 4;
    return (affine_layout){
        .output_scales = per_row ? (size_t)(blocks * LN_PACK_OUTPUT_SCALES) * sizeof(float) : 0,
        .blocks = (size_t)(blocks * ln_pack_block_bytes_q(w->enc, w->dtype, C)),
        .gather_scales = dequant_constants && uses & LN_USE_GATHER
                             ? (size_t)(blocks * (C / w->enc.group) * ln_pack_scales_bytes_q(w->dtype))
                             : 0,
        .dequant_constants = dequant_constants};
}
/* Whether a matrix may be stored as bf12: it is bf16, and its rows are too long for the caches; shorter rows
 * are read faster uncompressed. */
static bool may_compress(const ln_dev *d, const ln_value *w) {
    return !w->enc.bits && w->dtype == LN_BF16 && w->dims[1] > LN_BF12_MIN_COLS &&
           w->dims[1] <= LN_BF12_MAX_COLS && d->isa > LN_ISA_PLAIN;
}
static size_t cpu_weight_bytes(const ln_dev *d, const ln_value *w) {
    if (d->isa == LN_ISA_PLAIN || w->n_dims != 2) return 0;
    if (!w->enc.bits)
        return (may_compress(d, w) ? LN_BF12_HEADER_BYTES : 0) +
               (size_t)(ln_pack_blocks(w->dims[0]) * ln_pack_block_bytes(w->dtype, w->dims[1]));
    const affine_layout f = affine_layout_of(d, w);
    return AFFINE_HEADER_BYTES + f.output_scales + f.blocks + f.gather_scales;
}

static void on_pages_sampled(const void *rows, size_t bytes, bool after) {
    (after ? ln_guard_release : ln_guard_fetch)(rows, bytes);
}
static size_t cpu_weight_expected(const ln_dev *d, const ln_value *w, const void *host) {
    enum { SAMPLE_EVERY = 256, MIN_SAMPLES = 2, MAX_SAMPLES = 32 }; /* one block in SAMPLE_EVERY is sampled */
    const size_t bound = cpu_weight_bytes(d, w);
    if (!bound || !host || !may_compress(d, w)) return bound;
    const int64_t D = w->dims[0], C = w->dims[1];
    uint8_t *dst = ln_alloc((size_t)(ln_pack_block_bytes(LN_BF16, C) + ln_bf12_block_bytes(C)));
    const int64_t bytes =
        dst ? ln_bf12_estimate(host, D, C,
                               LN_MIN(LN_MAX(ln_pack_blocks(D) / SAMPLE_EVERY, (int64_t)MIN_SAMPLES),
                                      (int64_t)MAX_SAMPLES),
                               dst, on_pages_sampled)
            : -1;
    ln_free(dst);
    return bytes < 0 ? bound : (size_t)bytes;
}

/* The job of packing rows of one weight with all threads. */
typedef struct pack_job {
    const ln_value *w;
    const uint8_t *host;
    const ln_affine *affine;        /* NULL: dense */
    int64_t D;                      /* rows to pack */
    uint8_t *dst;                   /* packed blocks */
    float *output_scales;           /* NULL: not wanted */
    bool dequant_constants;         /* write these in place of scales and biases */
    uint8_t *gather_scales;         /* scales and biases for embedding lookups; NULL: not needed */
    bool bf12;                      /* pack a dense weight as bf12 */
    _Atomic bool incompressible;    /* set when bf12 would save nothing */
    _Atomic int64_t n_uncompressed; /* blocks that bf12 stores uncompressed */
} pack_job;

/* Applies ln_guard_fetch or ln_guard_release to the file's pages of rows [d, end): maps them at once, or
 * gives them back to the system. */
static void on_pages(const pack_job *p, int64_t d, int64_t end, void (*how)(const void *, size_t)) {
    const int64_t C = p->w->dims[1], size = ln_dtype_bytes(p->w->dtype);
    if (!p->affine) {
        how(p->host + d * C * size, (size_t)((end - d) * C * size));
        return;
    }
    const int64_t codes = ln_affine_row_bytes(p->w->enc, C), gather_scales = C / p->w->enc.group * size;
    how(p->affine->codes + d * codes, (size_t)((end - d) * codes));
    how(p->affine->scales + d * gather_scales, (size_t)((end - d) * gather_scales));
    how(p->affine->biases + d * gather_scales, (size_t)((end - d) * gather_scales));
}

static void pack_affine(const pack_job *p, int64_t D, int64_t C, int64_t b, int64_t end) {
    ln_pack_q(p->dst, p->affine, D, C, b, end);
    if (p->output_scales) ln_pack_output_scales(p->output_scales, p->affine, D, C, b, end);
    if (p->gather_scales) ln_pack_scales(p->gather_scales, p->dst, p->w->enc, p->w->dtype, C, b, end);
#ifdef LN_X86
    if (p->dequant_constants)
        ln_cpu_i8pair_dequant_amx(p->dst, p->output_scales, p->w->enc, p->w->dtype, C, b, end);
#endif
}

/* Packs the blocks of one partition. All threads together process 2 MB of the file at a time, which the
 * memory plan counts, or a block each where that is more: they map the pages at once, read them, and give
 * them back. */
static void pack_partition(void *user, int thread, int n_threads) {
    pack_job *p = user;
    const int64_t D = p->D, C = p->w->dims[1],
                  row = p->affine ? ln_affine_row_bytes(p->w->enc, C) : C * ln_dtype_bytes(p->w->dtype);
    const int64_t some = LN_MAX(1, ((int64_t)2 << 20) / n_threads / (row * LN_PACK_NR));
    int64_t lo, hi;
    ln_partition(ln_pack_blocks(D), 1, thread, n_threads, &lo, &hi);
    for (int64_t b = lo; b < hi && !p->incompressible; b += some) {
        const int64_t end = LN_MIN(b + some, hi), d = b * LN_PACK_NR, d_end = LN_MIN(end * LN_PACK_NR, D);
        on_pages(p, d, d_end, ln_guard_fetch);
        if (p->affine) pack_affine(p, D, C, b, end);
        else if (p->bf12) {
            if (!ln_bf12_pack(p->dst, p->host, D, C, b, end, &p->n_uncompressed)) p->incompressible = true;
        } else ln_pack(p->dst, p->host, p->w->dtype, D, C, b, end);
        on_pages(p, d, d_end, ln_guard_release);
    }
}

/* Packs a weight as bf12 and sets out->bytes and out->bf12; false when bf12 would save nothing. */
static bool pack_bf12(ln_dev *d, pack_job *p, ln_device_weight *out) {
    const int64_t C = p->w->dims[1], blocks = ln_pack_blocks(p->D);
    if (ln_bf12_bytes(blocks, C, 0) > (int64_t)out->bytes) return false;
    ln_bf12_init(p->dst, p->D, C);
    p->bf12 = true;
    ln_pool_run(d->pool, d->n_threads, pack_partition, p);
    p->bf12 = false;
    if (p->incompressible) {
        p->incompressible = false;
        return false;
    }
    out->bytes = (size_t)ln_bf12_bytes(blocks, C, p->n_uncompressed);
    return out->bf12 = true;
}

static ln_status cpu_upload(ln_dev *d, const ln_value *w, int64_t first, int64_t n, const void *host,
                            void *dst, ln_device_weight *out, ln_error *err) {
    (void)err;
    pack_job p = {.w = w, .host = host, .D = n, .dst = dst};
    const int64_t b = first / LN_PACK_NR, C = w->n_dims == 2 ? w->dims[1] : 0;
    *out = (ln_device_weight){.data = dst ? dst : (void *)(uintptr_t)host,
                              .bytes = dst ? cpu_weight_bytes(d, w) : 0}; /* kernels do not write weights */
    if (!dst || (n == w->dims[0] && may_compress(d, w) && pack_bf12(d, &p, out))) return LN_OK;
    if (w->enc.bits) {
        const affine_layout f = affine_layout_of(d, w);
        ln_affine here = *(const ln_affine *)host;
        uint8_t *output_scales = (uint8_t *)dst + AFFINE_HEADER_BYTES,
                *blocks = output_scales + f.output_scales, *gather_scales = blocks + f.blocks;
        here.units = f.output_scales ? (const float *)(const void *)output_scales : NULL;
        here.codes = blocks;
        here.scales = f.gather_scales ? gather_scales : NULL; /* else in the blocks, or unused */
        here.biases = NULL;
        memcpy(dst, &here, sizeof here);
        p.affine = host;
        p.dst = blocks + b * ln_pack_block_bytes_q(w->enc, w->dtype, C);
        p.output_scales = f.output_scales ? (float *)(void *)output_scales + b * LN_PACK_OUTPUT_SCALES : NULL;
        p.dequant_constants = f.dequant_constants;
        p.gather_scales = f.gather_scales
                              ? gather_scales + b * (C / w->enc.group) * ln_pack_scales_bytes_q(w->dtype)
                              : NULL;
    } else {
        p.dst += b * ln_pack_block_bytes(w->dtype, C);
    }
    ln_pool_run(d->pool, d->n_threads, pack_partition, &p);
    return LN_OK;
}
static const char *cpu_kernel(const ln_dev *d, int op) { return ln_cpu_kernel_isa(d->isa, op); }

static double cpu_tolerance(const ln_dev *d, const ln_node *n, const ln_value *values) {
    return ln_cpu_tolerance(d->isa, n, values);
}

static bool cpu_reads_bf16(const ln_dev *d, const ln_node *n, const ln_value *values, int k) {
    return ln_cpu_reads_bf16(d->isa, n, values, k);
}

static bool cpu_by_row(const ln_dev *d, const ln_node *n, const ln_value *values) {
    return ln_cpu_per_row(d->isa, n, values);
}

const ln_device_ops ln_device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .queue_open = ln_cpu_queue_open,
    .queue_close = ln_cpu_queue_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .weight_bytes = cpu_weight_bytes,
    .weight_estimate = cpu_weight_expected,
    .upload = cpu_upload,
    .copy = ln_cpu_copy,
    .kv_bytes = ln_cpu_kv_bytes,
    .page = ln_cpu_page,
    .kernel = cpu_kernel,
    .tolerance = cpu_tolerance,
    .reads_bf16 = cpu_reads_bf16,
    .per_row = cpu_by_row,
    .scratch_bytes = ln_cpu_scratch_bytes,
    .prepare = ln_cpu_prepare,
    .release = ln_cpu_release,
    .submit = ln_cpu_submit,
    .wait = ln_cpu_wait,
    .value = ln_cpu_value,
    .argmax = ln_cpu_argmax,
    .measure = ln_cpu_measure,
};
