/* Weights of the CPU device: their sizes, and packing them with all threads.
 *
 * Matrices are packed into the order in which kernels read them (pack.h,
 * docs/decisions/007-packed-weights.md); the plain ISA level reads them in place, at any alignment. Vectors
 * are copied: they are a few KB, for which the operating system would keep 64 KB of the file resident. An
 * encoded matrix follows the ln_affine that describes it:
 *
 *     affine weight:  | ln_affine | output scales | packed blocks | scales and biases |
 *
 * Output scales are present for products with int8 digit pairs. Separate scales and biases are present for
 * embedding tables whose packed blocks hold dequantisation constants instead. Coded rows are copied as they
 * are (coded_weight.c). */
#include "../../../base/file.h"
#include "../exec.h"
#include "bf12.h"
#include "coded_weight.h"

enum { AFFINE_HEADER_BYTES = 64 };

static ln_groups groups_of(const ln_weight_desc *w) { return ln_encoding_groups(w->enc); }
static bool is_encoded(const ln_weight_desc *w) { return !ln_encoding_is_dense(w->enc); }
static bool is_coded(const ln_weight_desc *w) { return ln_encoding_is_coded(w->enc); }
/* The dtype of the packed scales and biases; of a dense weight, of its elements. */
static ln_dtype unit_of(const ln_weight_desc *w) { return ln_encoding_unit_dtype(w->enc); }
/* How they are stored if no constants are in their place. */
static ln_pack_units numbers_of(const ln_weight_desc *w) {
    return (ln_pack_units){unit_of(w), w->enc.shared};
}
static int64_t rows_of(const ln_weight_desc *w) { return ln_weight_desc_rows(w); }
static int64_t cols_of(const ln_weight_desc *w) { return ln_weight_desc_cols(w); }
/* The matrices of experts, each packed by itself: rows and number; of another weight all rows, and 1. */
static int64_t matrices_of(const ln_weight_desc *w) { return w->n_dims == 3 ? w->dims[0] : 1; }
static int64_t matrix_rows(const ln_weight_desc *w) { return rows_of(w) / matrices_of(w); }
static int64_t blocks_of(const ln_weight_desc *w) { return matrices_of(w) * ln_pack_blocks(matrix_rows(w)); }
/* The parts of an encoded weight (head of this file): bytes of each, and of a block of two of them. */
typedef struct affine_layout {
    size_t output_scales, blocks, gather_scales;
    int64_t block, gather_block;
    bool has_constants;
} affine_layout;
static affine_layout affine_layout_of(const ln_dev *d, const ln_weight_desc *w) {
    const int64_t blocks = blocks_of(w), C = cols_of(w);
    const ln_groups code = groups_of(w);
    const ln_pack_units numbers = numbers_of(w);
    const bool per_row = w->uses & LN_USE_BFP && ln_cpu_columns_per_row(d->isa, C);
    affine_layout f = {.has_constants = per_row && code.bits <= 4};
    f.block = ln_pack_block_bytes_q(code,
                                    ln_packed_units(&(ln_affine){.dtype = numbers.dtype,
                                                                 .shared = numbers.shared,
                                                                 .has_constants = f.has_constants}),
                                    C);
    if (f.has_constants && w->uses & LN_USE_GATHER)
        f.gather_block = ln_pack_block_bytes_q(code, numbers, C) - C / code.group * ln_pack_codes_bytes(code);
    f.output_scales = per_row ? (size_t)(blocks * LN_PACK_OUTPUT_SCALES) * sizeof(float) : 0;
    f.blocks = (size_t)(blocks * f.block), f.gather_scales = (size_t)(blocks * f.gather_block);
    return f;
}
/* Whether a matrix may be stored as bf12: it is bf16, its values stay, and its rows are too long for the
 * caches; shorter rows are read faster uncompressed. */
static bool may_compress(const ln_dev *d, const ln_weight_desc *w) {
    return w->enc.kind == LN_STORED_BF16 && cols_of(w) > LN_BF12_MIN_COLS && cols_of(w) <= LN_BF12_MAX_COLS &&
           d->isa > LN_ISA_PLAIN && w->n_dims == 2 && !(w->uses & LN_USE_CHANGES);
}
/* Whether kernels read the host's bytes: the plain level reads matrices so. */
static bool is_in_place(const ln_dev *d, const ln_weight_desc *w) {
    return d->isa == LN_ISA_PLAIN && w->n_dims > 1 && !is_coded(w);
}
static size_t packed_bytes(const ln_dev *d, const ln_weight_desc *w) {
    if (w->n_dims == 1) return (size_t)(rows_of(w) * ln_dtype_bytes(unit_of(w)));
    if (is_coded(w)) return ln_cpu_coded_bytes(w);
    if (is_in_place(d, w)) return is_encoded(w) ? AFFINE_HEADER_BYTES : 0;
    if (!is_encoded(w))
        return (may_compress(d, w) ? LN_BF12_HEADER_BYTES : 0) +
               (size_t)(blocks_of(w) * ln_pack_block_bytes(unit_of(w), cols_of(w)));
    const affine_layout f = affine_layout_of(d, w);
    return AFFINE_HEADER_BYTES + f.output_scales + f.blocks + f.gather_scales;
}

static void on_pages_sampled(const void *rows, size_t bytes, bool after) {
    (after ? ln_guard_release : ln_guard_fetch)(rows, bytes);
}
/* The packed size of a bf16 matrix, estimated from some of its blocks; `bound` where memory is short. */
static size_t sampled_bytes(const ln_weight_desc *w, const void *host, size_t bound) {
    enum { SAMPLE_EVERY = 256, MIN_SAMPLES = 2, MAX_SAMPLES = 32 }; /* one block in SAMPLE_EVERY is sampled */
    const int64_t D = rows_of(w), C = cols_of(w);
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

static bool is_dense_host(const ln_weight_desc *w, const ln_host_weight *h) {
    const ln_row_bytes row = ln_encoding_row(w->enc, cols_of(w));
    return (h->pitch == 0 || h->pitch == row.data) && (h->scale_pitch == 0 || h->scale_pitch == row.scales) &&
           (h->offset_pitch == 0 || h->offset_pitch == row.offsets);
}
static bool is_whole(const ln_weight_desc *w, const ln_host_weight *h) {
    return h->row0 == 0 && h->n_rows == rows_of(w);
}

ln_status ln_cpu_weight_size(const ln_dev *d, const ln_weight_desc *w, const ln_host_weight *sample,
                             ln_weight_size *out, ln_error *err) {
    (void)err;
    *out = (ln_weight_size){.in_place = is_in_place(d, w), .bound = packed_bytes(d, w)};
    out->expected = out->bound;
    if (sample && may_compress(d, w) && is_whole(w, sample) && is_dense_host(w, sample))
        out->expected = sampled_bytes(w, sample->data, out->bound);
    return LN_OK;
}

/* The job of packing rows of one weight with all threads. */
typedef struct pack_job {
    const ln_weight_desc *w;
    const uint8_t *host;
    const ln_affine *affine; /* NULL: dense */
    int64_t D;               /* rows to pack */
    int n_threads;
    uint8_t *dst;                   /* packed blocks */
    float *output_scales;           /* NULL: not wanted */
    bool has_constants;             /* write these in place of scales and biases */
    uint8_t *gather_scales;         /* scales and biases for embedding lookups; NULL: not needed */
    _Atomic bool lacks_factors;     /* set when scales are not what the encoding says */
    bool bf12;                      /* pack a dense weight as bf12 */
    _Atomic bool incompressible;    /* set when bf12 would save nothing */
    _Atomic int64_t n_uncompressed; /* blocks that bf12 stores uncompressed */
} pack_job;

/* Applies ln_guard_fetch or ln_guard_release to the file's pages of rows [d, end): maps them at once, or
 * gives them back to the system. */
static void on_pages(const pack_job *p, int64_t d, int64_t end, void (*how)(const void *, size_t)) {
    const ln_row_bytes row = ln_encoding_row(p->w->enc, cols_of(p->w));
    how(p->host + d * row.data, (size_t)((end - d) * row.data));
    if (!p->affine) return;
    how(p->affine->scales + d * row.scales, (size_t)((end - d) * row.scales));
    how(p->affine->biases + d * row.offsets, (size_t)((end - d) * row.offsets));
}

#ifdef LN_X86
/* Packs blocks with constants, some groups at a time. */
static void pack_with_constants(const pack_job *p, int64_t D, int64_t C, int64_t first, int64_t end) {
    enum { SOME = 32 };
    const ln_groups code = groups_of(p->w);
    const int64_t groups = C / code.group, codes = ln_pack_codes_bytes(code),
                  pitch = codes + LN_PACK_CONSTANT_BYTES;
    float numbers[SOME * 2 * LN_PACK_NR];
    for (int64_t b = first; b < end; b++) {
        uint8_t *block = p->dst + b * groups * pitch;
        ln_pack_codes(block, p->affine, LN_PACK_CONSTANT_BYTES, D, C, b, b + 1);
        for (int64_t g = 0; g < groups; g += SOME) {
            const int64_t n = LN_MIN(groups - g, (int64_t)SOME);
            ln_pack_numbers(numbers, p->affine, D, C, b, g, n);
            ln_cpu_i8pair_constants_amx(block + g * pitch + codes, pitch, numbers, n, code.bits,
                                        p->output_scales + b * LN_PACK_OUTPUT_SCALES);
        }
    }
}
#endif

/* Packs blocks [b, end); false: scales are not what the encoding says. */
static bool pack_affine(const pack_job *p, int64_t D, int64_t C, int64_t b, int64_t end) {
    if (p->output_scales) ln_pack_output_scales(p->output_scales, p->affine, D, C, b, end);
    if (p->gather_scales && !ln_pack_scales(p->gather_scales, p->affine, D, C, b, end)) return false;
#ifdef LN_X86
    if (p->has_constants) {
        pack_with_constants(p, D, C, b, end);
        return true;
    }
#endif
    return ln_pack_q(p->dst, p->affine, D, C, b, end);
}

/* Bytes of the file that one block is packed from. */
static int64_t block_file_bytes(const pack_job *p) {
    return ln_encoding_row(p->w->enc, cols_of(p->w)).data * LN_PACK_NR;
}
/* Packs blocks [lo, hi). All threads together process 2 MB of the file at a time, which the memory plan
 * counts, or a block each where that is more: they map the pages at once, read them, and give them back. */
static void pack_blocks(void *user, int thread, int64_t lo, int64_t hi) {
    pack_job *p = user;
    const int64_t D = p->D, C = cols_of(p->w),
                  some = LN_MAX(1, ((int64_t)2 << 20) / p->n_threads / block_file_bytes(p));
    (void)thread;
    for (int64_t b = lo; b < hi && !p->incompressible; b += some) {
        const int64_t end = LN_MIN(b + some, hi), d = b * LN_PACK_NR, d_end = LN_MIN(end * LN_PACK_NR, D);
        on_pages(p, d, d_end, ln_guard_fetch);
        if (p->affine) {
            if (!pack_affine(p, D, C, b, end)) p->lacks_factors = true;
        } else if (p->bf12) {
            if (!ln_bf12_pack(p->dst, p->host, D, C, b, end, &p->n_uncompressed)) p->incompressible = true;
        } else ln_pack(p->dst, p->host, unit_of(p->w), D, C, b, end);
        on_pages(p, d, d_end, ln_guard_release);
    }
}

/* Packs all blocks in the background, so that steps of other engines are not delayed by more than a slice. */
static void pack_all(ln_dev *d, pack_job *p) {
    p->n_threads = d->n_threads;
    ln_pool_run_units(d->pool, d->n_threads, ln_pack_blocks(p->D), LN_POOL_SLICE_BYTES / block_file_bytes(p),
                      pack_blocks, p);
}

/* Packs a weight as bf12 and sets *out; false when bf12 would save nothing. */
static bool pack_bf12(ln_dev *d, pack_job *p, ln_device_weight *out) {
    const int64_t C = cols_of(p->w), blocks = ln_pack_blocks(p->D);
    if (ln_bf12_bytes(blocks, C, 0) > (int64_t)out->bytes) return false;
    ln_bf12_init(p->dst, p->D, C);
    p->bf12 = true;
    pack_all(d, p);
    p->bf12 = false;
    if (p->incompressible) {
        p->incompressible = false;
        return false;
    }
    out->bytes = (size_t)ln_bf12_bytes(blocks, C, p->n_uncompressed);
    out->layout_id = LN_CPU_LAYOUT_BF12;
    out->read_bytes = (uint64_t)(p->D * C) * 3 / 2; /* 12 bits an element */
    return true;
}

/* The encoded rows of a host, without padding. */
static ln_affine affine_of(const ln_weight_desc *w, const ln_host_weight *h) {
    return (ln_affine){.codes = h->data,
                       .scales = h->scales,
                       .biases = h->offsets,
                       .dtype = (ln_dtype)w->enc.scale,
                       .offset = (ln_dtype)w->enc.offset,
                       .code = groups_of(w),
                       .shared = w->enc.shared};
}

/* Uploads dense rows to be packed, from block b on. */
static ln_status pack_blocks_from(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, int64_t b,
                                  void *buffer, ln_device_weight *out, ln_error *err) {
    const int64_t C = cols_of(w);
    const ln_affine affine = affine_of(w, h);
    pack_job p = {.w = w, .host = h->data, .D = h->n_rows, .dst = buffer};
    if (is_whole(w, h) && may_compress(d, w) && pack_bf12(d, &p, out)) return LN_OK;
    if (is_encoded(w)) {
        const affine_layout f = affine_layout_of(d, w);
        ln_affine here = affine;
        here.dtype = here.offset = unit_of(w);
        here.has_constants = f.has_constants;
        uint8_t *output_scales = (uint8_t *)buffer + AFFINE_HEADER_BYTES,
                *blocks = output_scales + f.output_scales, *gather_scales = blocks + f.blocks;
        here.units = f.output_scales ? (const float *)(const void *)output_scales : NULL;
        here.codes = blocks;
        here.scales = f.gather_scales ? gather_scales : NULL; /* else in the blocks, or unused */
        here.biases = NULL;
        memcpy(buffer, &here, sizeof here);
        p.affine = &affine;
        p.dst = blocks + b * f.block;
        p.output_scales = f.output_scales ? (float *)(void *)output_scales + b * LN_PACK_OUTPUT_SCALES : NULL;
        p.has_constants = f.has_constants;
        p.gather_scales = f.gather_scales ? gather_scales + b * f.gather_block : NULL;
        if (w->enc.shared) out->read_bytes = (uint64_t)f.blocks;
    } else {
        p.dst += b * ln_pack_block_bytes(unit_of(w), C);
    }
    pack_all(d, &p);
    return p.lacks_factors ? ln_fail(err, LN_EINTERNAL,
                                     "weight %s: expected scales of %d groups that are multiples of one "
                                     "number, found others",
                                     w->name, w->enc.shared)
                           : LN_OK;
}

/* The rows of each matrix begin with a block of their own. */
static ln_status pack_rows(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *buffer,
                           ln_device_weight *out, ln_error *err) {
    const int64_t D = matrix_rows(w), end = h->row0 + h->n_rows;
    const ln_row_bytes row = ln_encoding_row(w->enc, cols_of(w));
    for (int64_t r = h->row0, n; r < end; r += n) {
        const int64_t at = r - h->row0;
        ln_host_weight part = *h;
        n = LN_MIN(D - r % D, end - r);
        part.n_rows = n;
        part.row0 = r;
        part.data = (const char *)h->data + at * row.data;
        if (row.scales) part.scales = (const char *)h->scales + at * row.scales;
        if (row.offsets) part.offsets = (const char *)h->offsets + at * row.offsets;
        LN_TRY(pack_blocks_from(d, w, &part, r / D * ln_pack_blocks(D) + r % D / LN_PACK_NR, buffer, out,
                                err));
    }
    return LN_OK;
}

/* Copies rows of `bytes` bytes that are `pitch` bytes apart. */
static void gather(uint8_t *to, const void *from, int64_t n, int64_t bytes, int64_t pitch) {
    for (int64_t r = 0; r < n; r++)
        memcpy(to + r * bytes, (const uint8_t *)from + r * (pitch ? pitch : bytes), (size_t)bytes);
}
/* Packs rows with a pitch of their own by way of a dense copy. */
static ln_status pack_pitched(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                              ln_device_weight *out, ln_error *err) {
    const int64_t n = h->n_rows;
    const ln_row_bytes row = ln_encoding_row(w->enc, cols_of(w));
    uint8_t *copy = ln_alloc((size_t)(n * (row.data + row.scales + row.offsets) + 1));
    if (!copy) return LN_OOM(err, "rows of a weight");
    ln_host_weight dense = *h;
    dense.pitch = dense.scale_pitch = dense.offset_pitch = 0;
    dense.data = copy;
    gather(copy, h->data, n, row.data, h->pitch);
    if (is_encoded(w)) {
        dense.scales = copy + n * row.data;
        dense.offsets = copy + n * (row.data + row.scales);
        gather(copy + n * row.data, h->scales, n, row.scales, h->scale_pitch);
        gather(copy + n * (row.data + row.scales), h->offsets, n, row.offsets, h->offset_pitch);
    }
    const ln_status st = pack_rows(d, w, &dense, room, out, err);
    ln_free(copy);
    return st;
}

/* An encoded weight that kernels read in place is described by an ln_affine. */
static void describe_in_place(const ln_weight_desc *w, const ln_host_weight *h, void *room,
                              ln_device_weight *out) {
    out->data = is_encoded(w) ? room : (void *)(uintptr_t)h->data; /* kernels do not write weights */
    if (is_encoded(w)) *(ln_affine *)room = affine_of(w, h);
}

ln_status ln_cpu_upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                        ln_device_weight *out, ln_error *err) {
    const int64_t C = cols_of(w), element = ln_dtype_bytes(unit_of(w));
    const bool dense = is_dense_host(w, h), in_place = is_in_place(d, w);
    *out = (ln_device_weight){.data = room, .bytes = packed_bytes(d, w)};
    if (h->row0 < 0 || h->n_rows < 0 || h->row0 > rows_of(w) - h->n_rows || h->col0 != 0 || h->n_cols != C ||
        (w->n_dims > 1 && h->row0 % matrix_rows(w) % LN_PACK_NR) || (in_place && !(is_whole(w, h) && dense)))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: the CPU device takes all columns%s, found rows %lld + %lld, columns %lld "
                       "+ "
                       "%lld of [%lld, %lld]",
                       w->name, in_place ? " and rows without padding" : " of rows from a multiple of 16 on",
                       (long long)h->row0, (long long)h->n_rows, (long long)h->col0, (long long)h->n_cols,
                       (long long)rows_of(w), (long long)C);
    if (in_place) {
        describe_in_place(w, h, room, out);
    } else if (is_coded(w)) {
        ln_cpu_coded_upload(w, h, out->data);
    } else if (w->n_dims > 1) {
        if (!dense) return pack_pitched(d, w, h, room, out, err);
        return pack_rows(d, w, h, room, out, err);
    } else {
        gather((uint8_t *)room + h->row0 * element, h->data, h->n_rows, element, h->pitch);
        ln_guard_release(h->data, (size_t)(h->n_rows * element));
    }
    return LN_OK;
}
