/* Sources: how the bytes of a checkpoint become weights. The only way from files to weights.
 *
 * A source finds a weight under the names that checkpoints use for it, decides its encoding, and hands out
 * its rows. What a file stores as linnet computes with it is handed out in place; a source may also compute
 * rows while a model is loaded. A format of checkpoints is one file of this module:
 *
 *     tensor_source.c     dense tensors, and MLX's affine groups, by the quantization block of config.json
 *     fp8_source.c        8-bit floats with scales by tensor, row or block
 *     gptq_source.c, awq_source.c, compressed_source.c
 *                         packed integers with scales and zero points (int_matrix.h)
 *     gguf_source.c       blocks of GGUF files (gguf_blocks.h)
 *     piece_source.c      rows that lie in pieces in a tensor (decision 065)
 *     expert_source.c     matrices of experts, which files hold one by one, stacked, or two in one tensor
 *     mxfp4_source.c      4-bit floats of experts
 *     changed_source.c    rows that an adapter of the model changes
 *     share_source.c      the rows of another source that a rank has (decision 055)
 *     quantize_source.c   rows of another source, quantised while they are loaded (ln_options.quantize_bits)
 *
 * schemes.def says which quant_method is read by which. Such a source wraps that of the dense tensors, which
 * it asks for every weight that is not stored in its format.
 *
 * model/ binds weights through `find`, and knows no format; run/ brings rows to a device through `rows`, and
 * knows no file. A weight that the source computes (`made`) has no tensors of its own encoding. */
#ifndef LN_SOURCE_H
#define LN_SOURCE_H

#include "../base/thread_pool.h"
#include "../base/transport.h"
#include "bind_report.h"
#include "quant_config.h"

/* A weight of a model, and the tensors that store it. */
typedef struct ln_weight {
    int slot, layer; /* the model's own names of it: ln_slot; -1: outside the layers */
    /* borrowed from the tensor set; scales and biases: NULL unless the file is quantised */
    const ln_tensor *tensor, *scales, *biases;
    const ln_tensor *more[3]; /* what else stores it, or belongs to it and is not read */
    ln_dtype dtype;           /* of the elements; of a quantised weight, of its scales */
    ln_encoding enc;          /* of the rows that the source hands out */
    ln_encoding under; /* of a weight that is quantised while it is loaded: of the rows that it is made of */
    /* of integers with scales: what the file says of them (of MLX's the quantization block); group 0: a scale
     * for each row; bits 0: of other weights */
    ln_groups code;
    /* rows that ranks do not divide, of a matrix or of that of each expert; 0: every rank has all rows */
    int64_t split_rows;
    /* of a rank's share of another weight: that weight, and its rows or those of each expert; else NULL */
    const struct ln_weight *share_of;
    ln_share share;
    int64_t n_experts; /* 0; else the rows are those of so many matrices, one after another */
    /* What stores the weight, if it is not one tensor with its own name and shape: of experts one weight for
     * each, or one with the rows of two weights; one that has the rows in pieces. In the source's arena;
     * NULL: the tensors below */
    const struct ln_weight *parts;
    int64_t n_parts;
    int64_t d0, d1; /* rows and columns of a matrix; a vector has d0 elements, and d1 is 0 */
    /* of a tensor that holds the rows of several weights, how many it has, and the first of this weight's; 0
     * if the tensor is this weight's alone */
    int64_t whole, row0;
    /* of a convolution of one channel each: the tensor is [d0 / taps, 1, taps] or, as mlx-lm writes it,
     * [d0 / taps, taps, 1]; else 0 */
    int taps;
    unsigned uses;   /* of a matrix: what the programs do with it */
    bool made;       /* its rows are computed while it is loaded, from the tensors */
    bool quantised;  /* from rows of the encoding `under`, while it is loaded */
    bool changed;    /* by an adapter, while it is loaded (changed_source.h) */
    bool transposed; /* any of its rows is computed from all of its first tensor */
    /* what the source that computes its rows knows of it, in the source's arena; NULL: nothing else */
    const void *how;
} ln_weight;
/* Tensors of a weight: ln_weight_tensor returns them for i = 0 .. ln_weight_tensors(w) - 1; NULL: it lacks
 * that one. */
enum { LN_WEIGHT_TENSORS = 6 };
static inline int64_t ln_weight_tensors(const ln_weight *w) {
    return LN_WEIGHT_TENSORS * (w->parts ? w->n_parts : 1);
}
static inline const ln_tensor *ln_weight_tensor(const ln_weight *w, int64_t i) {
    if (w->parts) w = &w->parts[i / LN_WEIGHT_TENSORS];
    i %= LN_WEIGHT_TENSORS;
    return i == 0 ? w->tensor : i == 1 ? w->scales : i == 2 ? w->biases : w->more[i - 3];
}

/* Returns the bytes of such a tensor that are the weight's: its share if the tensor holds several weights, or
 * if the weight is a rank's share. */
static inline uint64_t ln_weight_tensor_bytes(const ln_weight *w, int64_t i) {
    if (w->share_of) /* as many bytes a row as the whole weight has */
        return ln_weight_tensor_bytes(w->share_of, i) / (uint64_t)w->share.all * (uint64_t)w->share.n;
    const ln_tensor *t = ln_weight_tensor(w, i);
    if (t && w->parts && w->n_parts == 1)
        return t->bytes / (uint64_t)w->parts->d0 * (uint64_t)w->d0 +
               t->bytes % (uint64_t)w->parts->d0 * (uint64_t)w->d0 / (uint64_t)w->parts->d0;
    if (!t || !w->whole) return t ? t->bytes : 0;
    const uint64_t row = t->bytes / (uint64_t)w->whole, rest = t->bytes % (uint64_t)w->whole;
    return row * (uint64_t)w->d0 + (w->row0 ? 0 : rest);
}

/* Returns the rows of the tensor that holds a weight: more than the weight's own if it is shared. */
static inline int64_t ln_source_stored_rows(const ln_weight *w) { return w->whole ? w->whole : w->d0; }

/* How a tensor with a name holds the matrices of experts. EACH: in a tensor for each, whose number the name
 * has as {x}. STACKED: [X,D,C]. The others: with those of another weight [X,2D,C], as the first or the second
 * D rows of an expert, or as its even or odd rows. OUT_LAST: outputs are the last axis of a dense tensor,
 * [X,C,D] or [X,C,2D]. */
typedef enum ln_experts_in {
    LN_EXPERTS_EACH,
    LN_EXPERTS_STACKED,
    LN_EXPERTS_FIRST,
    LN_EXPERTS_SECOND,
    LN_EXPERTS_EVEN,
    LN_EXPERTS_ODD,
    LN_EXPERTS_OUT_LAST = 8
} ln_experts_in;

/* What `find` is asked for. */
typedef struct ln_source_ask {
    const char *const *names; /* [n_names] that its tensor may have, in order of preference */
    const uint8_t *experts;   /* [n_names] of a weight of experts: ln_experts_in */
    size_t n_names;
    const ln_row_pieces *pieces; /* NULL: the rows of the weight follow each other */
    ln_bind_report *report;      /* takes what is missing or misshapen */
} ln_source_ask;
/* Threads that compute rows. */
typedef struct ln_source_work {
    ln_pool *pool;
    int n_threads;
} ln_source_work;

typedef struct ln_source ln_source;
typedef struct ln_source_ops {
    /* Finds a weight whose slot, layer, sizes (n_experts, d0, d1, whole, row0, taps) are set, and sets the
     * rest but `uses`. w->tensor NULL with LN_OK: no tensor has any of the names. *fits false: the tensors
     * do not fit, and ask->report says how. LN_EINVALID, LN_EUNSUPPORTED: the quantization block
     * contradicts the tensors, or an encoding that linnet does not read. */
    ln_status (*find)(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err);
    /* Sets *out to rows row0 .. row0 + n - 1 of a weight, without padding: in place, or computed into `room`,
     * which has ln_source_bytes bytes for them, aligned to 64. Scales and offsets are NULL if its encoding
     * has none.
     * LN_ENUMERIC: a tensor, which the message names, has a NaN or an infinity that the encoding cannot hold.
     * LN_EMEMORY. */
    ln_status (*rows)(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *room, ln_encoded_rows *out, ln_error *err);
} ln_source_ops;
struct ln_source {
    const ln_source_ops *ops;
    const ln_tensors *tensors; /* borrowed */
    const ln_quant *quant;     /* borrowed */
    const ln_source *of;       /* of a source that computes rows of another one; else NULL */
    ln_arena *arena;           /* borrowed: for what it knows of weights */
};

/* Returns the source of a checkpoint's files, in the arena; NULL: out of memory. `quant`: its quantization
 * block, whose scheme chooses the source. All three must outlive the source. */
const ln_source *ln_source_of_tensors(ln_arena *arena, const ln_tensors *t, const ln_quant *quant);
/* Returns the source of the experts of another one, which it wraps, in the arena; NULL: out of memory. */
const ln_source *ln_source_of_experts(ln_arena *arena, const ln_source *of);
/* Returns the source of weights in pieces of another one's, which it wraps; NULL: out of memory. */
const ln_source *ln_source_of_pieces(ln_arena *arena, const ln_source *of);
/* Whether a weight is the pieces of a tensor, its only part. */
bool ln_source_is_in_pieces(const ln_weight *w);
/* Returns how the tensors of a weight of experts hold them: ln_experts_in. */
uint8_t ln_source_experts_in(const ln_weight *w);
/* Returns the tensor of the module of a weight, `a.b.weight`, whose name ends in `leaf`: `a.b.scales`; or
 * NULL. LN_SOURCE_NAME: bytes of a name that ln_source_sibling_name writes. */
enum { LN_SOURCE_NAME = 192 };
const ln_tensor *ln_source_sibling(const ln_tensors *t, const char *weight, const char *leaf);
/* Returns the tensor that stores the codes or elements of a weight, `a.b.weight`, in any format; or NULL. */
const ln_tensor *ln_source_tensor(const ln_tensors *t, const char *weight);
void ln_source_sibling_name(char out[LN_SOURCE_NAME], const char *weight, const char *leaf);
/* Returns a source of the shares of another one's weights; NULL: out of memory. ln_source_share_of returns
 * the rows, of each expert if there are some, that a rank has of a weight. ln_source_take_share sets *w to
 * that share of `all`, which must outlive it. */
const ln_source *ln_source_of_shares(ln_arena *arena, const ln_source *of);
ln_share ln_source_share_of(const ln_weight *all, int size, int rank);
void ln_source_take_share(ln_weight *w, const ln_weight *all, int size, int rank);
/* Returns a source of the weights of another one that quantises the rows of made weights while they are
 * loaded; NULL: out of memory. ln_source_quantize makes a weight such a one, if it is a dense matrix of whole
 * groups of columns, or one in fp8; it returns whether it is. */
const ln_source *ln_source_quantizing(ln_arena *arena, const ln_source *of);
bool ln_source_quantize(ln_weight *w, ln_groups code);
/* Whether a weight is stored in fp8 with scales (not in a mode of MLX). */
bool ln_source_is_fp8(const ln_weight *w);
/* Whether a weight is experts in mxfp4, in which models are published. */
bool ln_source_is_mxfp4(const ln_weight *w);

/* Returns the bytes of a part of the buffer for rows, rounded up to 64. */
static inline size_t ln_source_aligned(int64_t bytes) { return (size_t)((bytes + 63) / 64 * 64); }
/* Bytes of n rows of a weight in its encoding, each part aligned to 64 bytes: 0 for rows in place. */
size_t ln_source_bytes(const ln_weight *w, int64_t n);
/* Rows of a made weight that are computed at a time for a device with its own layout: a multiple of 16, or
 * all. */
int64_t ln_source_slice(const ln_weight *w);
/* The most bytes that computing the rows of these weights takes in addition while it runs. */
uint64_t ln_source_work_bytes(const ln_weight *weights, size_t n, int n_threads);

#endif
