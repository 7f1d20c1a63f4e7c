/* The interface of a device: memory, weights, and programs that run on them. A device knows nothing of
 * models: it sees values, nodes (graph/program.h) and a step block (graph/step.h).
 *
 * run/ opens a device, uploads weights and allocates states in its memory, opens a queue, gives it a lowered
 * program to prepare, and then submits that program once per step. `prepare` allocates all memory that steps
 * need; `submit` allocates none.
 *
 * A device is shared by the engines of a process (registry.h), whose threads may call its functions at once.
 * A queue belongs to one engine and holds its page tables and prepared programs. One thread at a time calls
 * the functions of a queue and of its programs, except that several may read values at once (`value`); two
 * queues run concurrently. */
#ifndef LN_DEVICE_H
#define LN_DEVICE_H

#include "../graph/state_pool.h"
#include "../graph/program.h"
#include "../graph/step.h"

struct ln_pool;
/* Each implementation defines these structs for itself. */
typedef struct ln_dev ln_dev;     /* an open device */
typedef struct ln_queue ln_queue; /* what one engine has on a device */
typedef struct ln_exec ln_exec;   /* a prepared program of a queue */

typedef struct ln_dev_options {
    uint32_t size;
    int ordinal; /* which of several devices of a kind; 0: the first */
    /* The ordinal is the number of a process on its host. If it sees one device only, that is its own. */
    bool by_rank;
    int n_threads;
    bool mlock;
    /* Runs the device's jobs, borrowed until close; NULL: the pool of the process. A plug-in cannot use it.
     */
    struct ln_pool *pool;
} ln_dev_options;

/* What a device has kernels for besides the forward pass of a model: the products of adapters (the op lora),
 * the ops of training and of derivatives, products with weights in coded rows (quant/coded.h), those of rows
 * in bf16 with weights in fp8, which fast programs have then (LN_POLICY_FAST_FP8), those of experts, layers
 * with recurrent state, exchanges among ranks, attention to later rows (ln_p_attn.both_ways), the gradients
 * of products of experts, adapters of experts (ln_p_lora.n_experts), the gradients of recurrent layers, and
 * keys and values of 8 bits (ln_p_kv.q8). */
enum {
    LN_CAN_ADAPTERS = 1,
    LN_CAN_GRADIENTS = 2,
    LN_CAN_CODED = 4,
    LN_CAN_FP8 = 8,
    LN_CAN_EXPERTS = 16,
    LN_CAN_RECURRENT = 32,
    LN_CAN_COLLECTIVES = 64,
    LN_CAN_BOTH_WAYS = 128,
    LN_CAN_EXPERT_GRADIENTS = 256,
    LN_CAN_EXPERT_ADAPTERS = 512,
    LN_CAN_RECURRENT_GRADIENTS = 1024,
    LN_CAN_KV_Q8 = 2048
};

typedef struct ln_dev_info {
    uint32_t size;
    char name[32], isa[32], isas[96], quantised[64];
    int real_bytes; /* bytes of an LN_F32 element of a temp or a page: 4 or 8 */
    int n_threads;
    int upload_rows; /* uploads begin at a multiple of so many rows; a divisor of 16 */
    /* LN_USE_*: the uses on which the layout of a weight depends. Programs that use a weight differently in
     * these cannot share it. */
    uint32_t layout_uses;
    uint64_t memory_total,
        memory_free; /* of a device with memory of its own, in bytes; 0: it is the host's */
    uint32_t can;    /* LN_CAN_*: LN_DEVICE_AUTO takes the CPU for what another device cannot run */
    int n_devices;   /* of its kind that exist, if there may be several; else 0 */
} ln_dev_info;

/* A queue's page tables have n_slots slots of n_blocks blocks; kv, borrowed while the queue is opened, says
 * how many pages each block has (NULL: no program has a KV pool). */
typedef struct ln_queue_options {
    uint32_t size;
    int n_slots, n_blocks;
    const ln_state_pool *kv;
    struct ln_transport *ranks; /* of collectives, borrowed until close; NULL: there is one rank */
} ln_queue_options;

/* Directions of a copy: from host memory to the device, from the device, within the device. */
enum { LN_COPY_IN, LN_COPY_OUT, LN_COPY_WITHIN };

/* Per-node trace of a step: fn is called after each node, in the order of the program, with the index i of
 * the node in that order and the seconds that it took. All threads have finished the node then, and none has
 * begun the next. A traced step has a barrier after every node; its results have the same bits. */
typedef struct ln_trace {
    void (*fn)(void *user, int i, double seconds);
    void *user;
} ln_trace;

/* Measured ceilings of this machine for the kernels of a device: bytes per second read from memory, by vector
 * loads and by AMX tile loads (0: the level has none), and operations per second of its fastest dense product
 * (a multiply-add counts as two). */
#define LN_MEASURE_MOST  ((size_t)1 << 30)
#define LN_MEASURE_LEAST ((size_t)512 << 20) /* larger than any cache: some have 384 MB */
typedef struct ln_dev_limits {
    double read_bytes_s, tile_bytes_s, flop_s;
} ln_dev_limits;

/* How programs use a weight: formats of the activations that it is multiplied with (f32, bf16, block floating
 * point), and lookups of its rows. A device chooses a layout by them and knows no numerics mode. LN_USE_FP8:
 * of a weight in fp8, bf16 instead of f32 on a device with LN_CAN_FP8. LN_USE_CHANGES: other values are
 * uploaded later, for programs that are prepared. Neither bytes nor layout_id depend on the values of such a
 * weight. */
enum {
    LN_USE_F32 = 1,
    LN_USE_BF16 = 2,
    LN_USE_BFP = 4,
    LN_USE_GATHER = 8,
    LN_USE_FP8 = 16,
    LN_USE_CHANGES = 32
};

/* A weight: a vector [C], a matrix [D, C], or the matrices of X experts one after another, [X, D, C]. */
typedef struct ln_weight_desc {
    uint32_t size;
    const char *name; /* for messages; borrowed during the call */
    ln_encoding enc;
    int n_dims;
    int64_t dims[3];
    uint32_t uses; /* LN_USE_*, all uses in the model; vectors: 0 */
} ln_weight_desc;
/* The rows and columns of a weight: a vector has dims[0] rows of one column, experts follow each other. */
static inline int64_t ln_weight_desc_rows(const ln_weight_desc *w) {
    return w->n_dims == 3 ? w->dims[0] * w->dims[1] : w->dims[0];
}
static inline int64_t ln_weight_desc_cols(const ln_weight_desc *w) {
    return w->n_dims > 1 ? w->dims[w->n_dims - 1] : 1;
}
/* Rows [row0, row0 + n_rows) and columns [col0, col0 + n_cols) of a weight in host memory, at any alignment;
 * n_cols is 1 for a vector. `data`: the first element of that range (of an encoded weight the codes, with
 * scales, offsets and the groups of columns apart; see ln_encoded_rows). Rows are `pitch` bytes apart, those
 * of scales `scale_pitch`, those of
 * offsets `offset_pitch`; 0: without padding. */
typedef struct ln_host_weight {
    const void *data, *scales, *offsets;
    const uint16_t *columns;
    int64_t row0, n_rows, col0, n_cols;
    int64_t pitch, scale_pitch, offset_pitch;
} ln_host_weight;
/* What a weight takes in device memory, in bytes: at most `bound`, for memory planning `expected`, which is
 * an estimate from a sample with a margin. in_place: kernels read the host's bytes, and `bound` is that of a
 * descriptor, in host memory, too (0: none). */
typedef struct ln_weight_size {
    bool in_place;
    size_t bound, expected;
} ln_weight_size;
/* A weight in device memory, as upload returns it. */
typedef struct ln_device_weight {
    void *data;
    size_t bytes;       /* used from the start of the buffer passed by the caller */
    uint32_t layout_id; /* the device's own number of the layout that it chose; 0: its usual one */
    /* bytes that one product with the whole weight reads, for the costs that explain and bench print; 0:
     * those of its encoding in the file */
    uint64_t read_bytes;
} ln_device_weight;

/* A change of the logit of one token before the temperature, in the order of these flags (docs/numerics.md):
 * the logit plus `add`; if positive divided by ln_row_sampling.repeat_penalty, else multiplied by it; minus
 * `subtract`; minus infinity. Each step is rounded to f32. */
enum { LN_EDIT_ADD = 1, LN_EDIT_REPEAT = 2, LN_EDIT_SUBTRACT = 4, LN_EDIT_FORBID = 8 };
typedef struct ln_logit_edit {
    int32_t id;
    uint32_t what; /* LN_EDIT_* */
    float add, subtract;
} ln_logit_edit;

/* How the next token of a row of logits is chosen, in the order of the sampler (docs/numerics.md): tokens
 * whose bit in `mask` is 0 are excluded, the edits are applied, and the largest logit is taken or, with a
 * temperature, top_k, top_p of what top_k keeps, min_p, then the largest sum of logit and Gumbel noise, a
 * function of Philox(seed; position, id). All pointers are borrowed during the call. */
typedef struct ln_row_sampling {
    int64_t row;
    int32_t token;        /* a token that is chosen already; -1: one is to be chosen */
    float temperature;    /* 0: the largest logit, the lowest id on ties */
    int32_t top_k;        /* 0: off */
    float repeat_penalty; /* of LN_EDIT_REPEAT */
    double top_p, min_p;  /* 1: off; 0: off */
    uint64_t seed, position;
    const uint64_t *mask; /* [(columns + 63) / 64] bit i % 64 of word i / 64 is that of token i; NULL: all */
    const ln_logit_edit *edits; /* [n_edits] each of another token */
    int32_t n_edits;
    /* Log-probabilities of the row before mask and edits: that of the chosen token, and those of the n_top
     * (at most LN_ROW_TOP) likeliest, in descending order, the lower id first on ties. logprob NULL: none. */
    int32_t n_top;
    double *logprob;
    ln_top *top; /* [n_top] */
} ln_row_sampling;
enum { LN_ROW_TOP = 20 };

/* All functions are required unless their comment says that they may be NULL. */
typedef struct ln_device_ops {
    uint32_t abi, size; /* LN_DEVICE_ABI; of this struct */
    const char *name;
    /* Opens a device. The caller closes it. LN_EDEVICE: there is no such device, with the reason; LN_EMEMORY,
     * LN_EUSAGE, LN_EUNSUPPORTED. */
    ln_status (*open)(ln_dev **out, const ln_dev_options *opt, ln_error *err);
    void (*close)(ln_dev **dev);
    void (*describe)(const ln_dev *dev, ln_dev_info *out); /* out->size is set, and stays */
    /* Opens a queue, whose page tables have no page in any entry. The caller closes it, before the device and
     * after its programs. LN_EMEMORY. */
    ln_status (*queue_open)(ln_dev *dev, const ln_queue_options *opt, ln_queue **out, ln_error *err);
    void (*queue_close)(ln_queue **queue);
    /* Allocates zeroed memory, aligned to 16 bytes at least. Its first `ready` bytes are prefaulted, so that
     * no step waits for a page fault on them. The caller frees it with `free` and the same `bytes`.
     * LN_EMEMORY; with mlock also the error of locking it. */
    ln_status (*alloc)(ln_dev *dev, size_t bytes, size_t ready, void **out, ln_error *err);
    void (*free)(ln_dev *dev, void *p, size_t bytes);
    /* Sets *out to the size of a weight. sample: all of it, from which the estimate is made; NULL: none is
     * wanted. LN_EUNSUPPORTED: the device has no layout for it. */
    ln_status (*weight_size)(const ln_dev *dev, const ln_weight_desc *w, const ln_host_weight *sample_or_null,
                             ln_weight_size *out, ln_error *err);
    /* Brings a range of a weight into `room`, which has `bound` bytes for the whole weight: from alloc, or
     * host memory for the descriptor of a weight that is used in place. Such a weight comes in one call,
     * without padding, and `host` must outlive every program that reads it; else `host` is read during the
     * call, and pages of a mapped file are released to the system once they have been read. Several ranges
     * may follow each other; *out is that of the last. LN_EUNSUPPORTED: not such a range (the message names
     * the weight); LN_EMEMORY, LN_EDEVICE. */
    ln_status (*upload)(ln_dev *dev, const ln_weight_desc *w, const ln_host_weight *host, void *room,
                        ln_device_weight *out, ln_error *err);
    /* Copies `bytes` bytes as `how` says, LN_COPY_*; the ranges do not overlap. from NULL: writes zeros.
     * Earlier steps of the queue are done before, later ones see the result. LN_EDEVICE. */
    ln_status (*copy)(ln_queue *queue, void *to, const void *from, size_t bytes, int how, ln_error *err);
    /* Bytes of one layer's keys and values in a page of the job's sizes; its pool, offsets and arrays are not
     * read. -1: the size overflows. */
    int64_t (*kv_bytes)(const ln_dev *dev, const ln_page_job *job);
    /* Does a job on KV pages (graph/state_pool.h), ordered like a copy. LN_EDEVICE, LN_EMEMORY. */
    ln_status (*page)(ln_queue *queue, const ln_page_job *job, ln_error *err);
    /* What the device chooses for a node of a program: ln_lower_fn in graph/program.h. */
    bool (*lower)(const ln_dev *dev, const ln_lower_ask *ask, ln_lower_answer *answer);
    /* Bytes that prepare allocates in addition to `temp`. */
    size_t (*scratch_bytes)(const ln_dev *dev, const ln_program *p);
    /* Prepares a program in which the addresses of weights and states are set; the caller releases *out.
     * `temp`: a block of program.temp_bytes from alloc, which programs that never run concurrently may share.
     * Program and `temp` are borrowed until release. LN_EMEMORY; LN_EUNSUPPORTED when an op has no kernel. */
    ln_status (*prepare)(ln_queue *queue, const ln_program *p, void *temp, ln_exec **out, ln_error *err);
    void (*release)(ln_exec **exec);
    /* Applies the step's changes to the queue's page tables, then runs the program, unless the step has 0
     * rows. The step (16-byte aligned, in host memory) and the trace are borrowed, and the program's outputs
     * may not be read, until `wait` has been called with *fence. A device may run the step within this call.
     * LN_EDEVICE: the device is lost. */
    ln_status (*submit)(ln_exec *exec, const ln_step_block *step, const ln_trace *trace_or_null,
                        uint64_t *fence, ln_error *err);
    /* Waits for the step of that fence and all that were submitted to the queue before. LN_EDEVICE: the
     * device was lost, and the queue is of no more use. LN_EINTERNAL: no step has this fence. */
    ln_status (*wait)(ln_queue *queue, uint64_t fence, ln_error *err);
    /* Several threads may read rows of a queue's values at once; nothing else of the queue runs then.
     *
     * Reads rows row .. row + n - 1 of a temporary value into `rows`, f32 [n, columns], whatever its format
     * and layout; `write`: writes them from there, converted to the value's format. v: index of the value.
     * Called after `wait` (graph outputs only) or from a trace, right after the node that makes the value
     * (any value, whose buffer later nodes may reuse). LN_EINTERNAL: the value has no buffer or fewer rows;
     * LN_EDEVICE. */
    ln_status (*value)(ln_exec *exec, int v, int64_t row, int64_t n, float *rows, bool write, ln_error *err);
    /* Argmax of rows row .. row + n - 1 of an f32 graph output, after `wait`: ids[n] are the indices of the
     * largest elements, of the first among equals; -1 for a row with a NaN or without an element greater than
     * minus infinity. LN_EINTERNAL, LN_EDEVICE as for `value`. NULL: the host searches. */
    ln_status (*argmax)(ln_exec *exec, int v, int64_t row, int64_t n, int32_t *ids, ln_error *err);
    /* Measures the ceilings with the device's threads and a buffer of so many bytes (LN_MEASURE_LEAST ..
     * LN_MEASURE_MOST), in about two seconds: reading memory, of a GPU a copy within its memory (bytes read
     * and written), and multiply-adds. LN_EMEMORY, LN_EDEVICE. NULL: the device's speed is of no interest. */
    ln_status (*measure)(ln_dev *dev, size_t bytes, ln_dev_limits *out, ln_error *err);
    /* Chooses tokens from n rows of the f32 graph output v, each row once, as rows[i] says. It may be called
     * between `submit` and `wait`: the device does it behind the step and waits for both, and `wait` must
     * follow. ids[n]: the tokens; -1 if the device leaves the row to the host (a NaN, an infinity, nothing
     * left to choose); then its logprob and top are not written. The logits have their old values afterwards.
     * A noisy logit has the bits of ln_gumbel_argmax. Sums of exponentials may be added in another order: a
     * filter may end at another token if the mass before it is within 1e-12 of the limit, and
     * log-probabilities differ by 1e-12 of their magnitude or of 1 at most. LN_EINTERNAL, LN_EDEVICE as for
     * `value`. NULL: the host samples. */
    ln_status (*sample)(ln_exec *exec, int v, const ln_row_sampling *rows, int64_t n, int32_t *ids,
                        ln_error *err);
    /* Connects the ranks of a program, by the transport of its queue, after all of them have prepared it and
     * before they submit it; all call it. NULL: the device needs none. LN_EDEVICE, LN_EMEMORY; also if
     * another rank has failed. */
    ln_status (*connect)(ln_exec *exec, ln_error *err);
} ln_device_ops;

extern const ln_device_ops ln_device_ref;        /* the reference kernels in float, on one thread */
extern const ln_device_ops ln_device_ref_double; /* the same in double: the baseline of error bounds */
extern const ln_device_ops ln_device_cpu;

/* What a plug-in gets of the program that loads it; lives as long as the process. */
typedef struct ln_device_host {
    uint32_t abi, size;
    void (*log)(int level, const char *line); /* ln_level; one line without its end */
    /* Releases the pages of a mapped weight file to the system, once an upload has read them; memory that is
     * not a mapped weight file stays as it is. */
    void (*release)(const void *data, size_t bytes);
} ln_device_host;
/* The only function that a plug-in exports, under the name ln_device_plugin: returns its device, or NULL when
 * it cannot work with this host. */
typedef const ln_device_ops *ln_device_plugin_fn(const ln_device_host *host);

#endif
