/* The CUDA device: its structs and the functions that its C files share (contracts: device/device.h).
 *
 * A device is one GPU. Uploads of weights run on a stream of the device, under its lock; steps, copies and
 * jobs on pages on the stream of their queue. All memory that steps need is allocated when a program is
 * prepared. Every entry function makes the GPU the calling thread's current one, because that is a property
 * of threads. */
#ifndef LN_CUDA_DEVICE_H
#define LN_CUDA_DEVICE_H

#include "../../base/thread_pool.h"
#include "../../graph/state_pool.h"
#include "../../graph/program.h"
#include "../../graph/step.h"
#include "../device.h"
#include "cuda_kernels.h"
#include "cuda_train_kernels.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

enum {
    GPU_ALIGN = 256,        /* of parts of a block of device memory */
    GPU_STAGING = 8 << 20,  /* bytes of each of the two pinned buffers of uploads */
    GPU_MAX_CHANGES = 4096, /* changed page-table entries that a step block brings in its own copy */
    GPU_SAMPLE_ROWS = 64,   /* rows whose tokens are chosen at a time */
    GPU_MAX_GRAPHS = 7      /* captured graphs of a program: up to 64 rows */
};

typedef struct gpu_range {
    const void *from;
    size_t bytes;
} gpu_range;

struct ln_dev {
    int ordinal, major, minor, n_multiprocessors, shared_limit;
    int32_t clusters;  /* see gpu_launch */
    int32_t splits;    /* gpu_attention.room */
    int32_t patience;  /* gpu_attention.patience */
    int32_t unpacked;  /* the most bytes of gpu_product.unpacked, unless a piece needs more; -1: unused */
    bool bad_clusters; /* for tests */
    int32_t words;     /* the most bytes of a slot of an inbox (gpu_exchange.slot_bytes) */
    bool tails;        /* products of few rows do the exchange that follows; false: for tests */
    bool maps;         /* GPUs may map each other's memory; false: for tests */
    int32_t fails_at;  /* for tests: the step, from 1 on, in which a kernel reads an address that does not
                          exist */
    char name[64];     /* of the GPU */
    size_t memory_total;
    cudaStream_t uploads;
    struct ln_pool *copiers; /* threads that copy weights to pinned memory */
    int n_copiers;
    /* of uploads: two pinned buffers, and the event after which each may be written again */
    pthread_mutex_t lock;
    void *staging[2];
    cudaEvent_t staged[2];
    int32_t *found_large; /* pinned: 1 if the present upload has a large scale (gpu_weight.large_scales) */
    gpu_range *large;     /* [n_large] the memory of weights with large scales */
    size_t n_large;
};

struct ln_queue {
    ln_dev *dev;
    cudaStream_t stream;
    int32_t *pages[LN_STATE_GROUPS]; /* page tables, in device memory */
    int32_t pages_per_block[LN_STATE_GROUPS];
    int32_t n_blocks;
    uint64_t n_submitted, n_done; /* fences: of the last step, and of the last that was waited for */
    struct ln_transport *ranks;   /* NULL: there is one */
    uint32_t *stop;               /* gpu_exchange.stop, in pinned memory; NULL: no program has exchanges */
    struct gpu_nccl *nccl;        /* NULL: it is not in use */
};

/* Fused ops of nodes: gpu_heads alone, and with the attention that follows; of training gpu_gate,
 * gpu_gate_back, gpu_norm_rope and gpu_rope_norm_back. */
enum {
    GPU_OP_HEADS = LN_OP_COUNT,
    GPU_OP_ATTENTION,
    GPU_OP_GATE,
    GPU_OP_GATE_BACK,
    GPU_OP_NORM_ROPE,
    GPU_OP_ROPE_NORM_BACK,
    GPU_OP_COUNT
};
typedef struct gpu_op gpu_op; /* cuda_ops.h */
/* A node of a prepared program: its op and operands as kernels take them. */
typedef struct gpu_node {
    int op;                 /* ln_op or GPU_OP_* */
    int variant;            /* GPU_ADD .. of a pointwise op */
    gpu_array x, second, y; /* second: an operand, of route the second output */
    gpu_weight w, bias;
    float eps, offset, scale;
    gpu_numbers numbers;
    int64_t at, cols, every;   /* of a slice; at: positions of pos_scale, the padding id of embed_back */
    int32_t n_heads, head_dim; /* n_heads: of fold_rows, how many rows are added */
    bool interleaved;
    gpu_kv kv;
    gpu_product product;
    gpu_heads heads;
    /* In steps of up to GPU_FUSED_ROWS rows: y of GPU_OP_ATTENTION and x of the linear that reads it. */
    gpu_array few;
    gpu_attention attention;
    gpu_freqs freqs;
    gpu_lora lora;
    gpu_array third; /* of training: the gradient of an op of two other operands */
    /* of training, a second output: the gradient of `up` of gpu_gate_back, a sum in bf16 of rmsnorm_back */
    gpu_array also;
    void *work; /* of training: working memory of its sums; NULL: it needs none */
    size_t work_bytes;
    const int32_t *targets;
    gpu_dropout dropout;
    gpu_cross_entropy entropy;
    gpu_packed packed;
    gpu_route route;
    gpu_experts experts;
    gpu_recur recur;
    gpu_array delta[3]; /* q, k, v of gated_delta */
    ln_exec *exec;      /* of all_gather: its links */
    /* Of a product that stores its part in the gathered value: the gather, and of that the product. */
    const struct gpu_node *pair;
} gpu_node;

/* Bytes of what gpu_sample_rows needs, and the most edits of its rows. */
typedef struct gpu_sample_size {
    size_t parameters, states, results;
    int64_t n_edits;
} gpu_sample_size;
typedef struct gpu_sampler {
    gpu_sample_size size;
    char *device, *states;      /* device memory: parameters, working memory */
    char *parameters, *results; /* pinned memory: parameters as they are sent, results */
} gpu_sampler;

/* How a program's exchanges reach other ranks; maps false: by NCCL. */
typedef struct gpu_link {
    gpu_exchange exchange;
    bool maps;
    void *mapped[GPU_MOST_RANKS][2]; /* memory of other processes */
} gpu_link;

struct ln_exec {
    ln_queue *queue;
    const ln_program *program;
    void *temp;
    gpu_node *nodes; /* [program->n_nodes], for traced steps */
    gpu_node *fused; /* [n_fused] the same with several nodes as one, for other steps */
    int n_fused;
    /* graphs[i]: the fused nodes captured for steps of up to 2^i rows, outputs and sequences; NULL: none */
    cudaGraphExec_t graphs[GPU_MAX_GRAPHS];
    int32_t clusters;               /* gpu_launch.clusters of the program's steps */
    gpu_step step;                  /* addresses in block */
    ln_step_block *block, *staging; /* the step block in device memory, and its copy in pinned memory */
    size_t block_bytes;
    void *scratch;     /* of attention, */
    int32_t *counters; /* its counters, */
    void *attended;    /* and its outputs in steps of up to GPU_FUSED_ROWS rows (cuda_fuse.c) */
    char *constants;   /* of all nodes, in device memory */
    char *inbox;       /* of exchanges among ranks; NULL: the program has none */
    gpu_link link;
    bool did_tail; /* the last product does the gather that follows it */
    /* argmax of an output, with every step: the value (-1: none), its array, scratch, and the ids [bounds.N]
     * in device memory and in pinned memory */
    ln_v argmax;
    gpu_array logits;
    void *parts;
    int32_t *ids, *host_ids;
    bool ids_hold; /* host_ids are those of the last step */
    gpu_sampler sampler;
    ln_bounds live; /* counts of the last step */
    /* Outputs of few numbers, such as gradients of adapters, in pinned memory: the first of them that is read
     * after a step brings all. gathers: the step was not traced, so that it has made all of them. */
    char *gathered;
    bool gathers, gathered_hold;
};

/* ---- cuda_device.c ---- */
/* Turns a CUDA error into a status: LN_EMEMORY where memory is lacking, else LN_EDEVICE. `what` completes
 * "while ...". error 0: LN_OK. */
ln_status gpu_status(int error, const char *what, ln_error *err);
/* LN_TRY for a call of the CUDA runtime. */
#define GPU_TRY(call, what) LN_TRY(gpu_status((int)(call), what, err))
#define GPU_GO(call, what)  LN_GO(gpu_status((int)(call), what, err))
/* Makes the device's GPU the current one of this thread. */
ln_status gpu_use(const ln_dev *d, ln_error *err);

/* ---- cuda_weights.c ---- */
ln_status gpu_weight_size(const ln_dev *d, const ln_weight_desc *w, const ln_host_weight *sample,
                          ln_weight_size *out, ln_error *err);
ln_status gpu_upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                     ln_device_weight *out, ln_error *err);
/* Forgets what is known of the scales of weights in a block that is about to be freed. */
void gpu_forget_scales(ln_dev *d, const void *block, size_t bytes);
/* Columns of a group of an fp8 weight that is packed for the tensor cores, which divides its groups; 0: it is
 * stored row by row. */
int gpu_fp8_group(ln_encoding e, int64_t cols);
/* The weight of a program's value, as kernels take it. */
gpu_weight gpu_weight_of(ln_dev *d, const ln_pvalue *v);
/* Set by the plug-in: releases pages of a mapped file to the system, once they have been read. */
extern void (*gpu_release_pages)(const void *data, size_t bytes);

/* ---- cuda_queue.c ---- */
ln_status gpu_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err);
void gpu_queue_close(ln_queue **queue);
ln_status gpu_copy(ln_queue *q, void *to, const void *from, size_t bytes, int how, ln_error *err);
int64_t gpu_kv_bytes(const ln_dev *d, const ln_page_job *job);
ln_status gpu_page(ln_queue *q, const ln_page_job *job, ln_error *err);
/* Offsets of the parts of a recurrent layer's state in its part of a page of `len` positions, in the order of
 * ln_recur_part_of; the last is the size of all. */
void gpu_recur_offsets(const ln_recur_sizes *z, int64_t len, ln_dtype dtype, int64_t at[LN_RECUR_PARTS + 1]);
/* Elements that a page has for each position of a head: E rounded up to whole vectors of 8. */
static inline int32_t gpu_kv_width(int32_t head_dim) { return (head_dim + 7) / 8 * 8; }

/* ---- cuda_lower.c ---- */
bool gpu_lower(const ln_dev *d, const ln_lower_ask *q, ln_lower_answer *a);

/* ---- cuda_prepare.c ---- */
size_t gpu_scratch_bytes(const ln_dev *d, const ln_program *p);
ln_status gpu_prepare(ln_queue *q, const ln_program *p, void *temp, ln_exec **out, ln_error *err);
void gpu_release(ln_exec **exec);

/* ---- cuda_fuse.c ---- */
/* Sets e->fused and e->n_fused. LN_EMEMORY. */
ln_status gpu_fuse(ln_exec *e, ln_error *err);

/* ---- cuda_exec.c ---- */
/* Captures the graphs of a program whose nodes are set. LN_EDEVICE, LN_EMEMORY. */
ln_status gpu_capture(ln_exec *e, ln_error *err);
void gpu_drop_graphs(ln_exec *e);
ln_status gpu_submit(ln_exec *e, const ln_step_block *block, const ln_trace *trace, uint64_t *fence,
                     ln_error *err);
ln_status gpu_wait(ln_queue *q, uint64_t fence, ln_error *err);
ln_status gpu_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write, ln_error *err);
ln_status gpu_argmax_rows(ln_exec *e, int v, int64_t row, int64_t n, int32_t *ids, ln_error *err);

/* ---- cuda_sample.c ---- */
/* The sizes for a program with so many rows of logits of V columns; 0 rows: it has no logits. */
gpu_sample_size gpu_sample_size_of(int64_t rows, int64_t V);
ln_status gpu_sample_rows(ln_exec *e, int v, const ln_row_sampling *rows, int64_t n, int32_t *ids,
                          ln_error *err);

/* ---- cuda_measure.c ---- */
ln_status gpu_measure(ln_dev *d, size_t bytes, ln_dev_limits *out, ln_error *err);

extern const ln_device_ops ln_device_cuda;

#endif
