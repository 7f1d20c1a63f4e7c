/* Runs: device weights, the KV pool, and a model's program prepared on a device. Only this module knows both
 * what runs (model/) and where (device/).
 *
 * ln_run_measure computes the memory of a run by building and planning the same program that ln_run_open
 * prepares, so that plan and run cannot disagree. A run belongs to one engine, and one thread at a time uses
 * it. */
#ifndef LN_RUN_H
#define LN_RUN_H

#include "../base/thread_pool.h"
#include "../device/registry.h"
#include "../graph/state_pool.h"
#include "../model/spec.h"
#include "ranks.h"

#include <pthread.h>

#define LN_RUN_MAX_THREADS 256

/* ---- device_weights.c: weights in a device's layout, shared by the engines of a model ---- */
/* The weights of one model, loaded on one device. Immutable once loaded, but for n_users and locked. */
typedef struct ln_device_weights {
    const ln_device_ops *ops;
    ln_dev *dev;
    const ln_weights *weights; /* `mine` */
    ln_weights mine;           /* the weights of the rank: all, if there is one rank */
    int n_ranks;
    ln_device_weight *placed; /* [weights->n] where kernels read each weight */
    ln_weight_size *sizes;    /* [weights->n] */
    ln_arena arena;           /* descriptors of weights that are used in place */
    void *room;               /* the block of all weights that are not read from the mapped files */
    /* room_bytes: size of the block; expected: bytes of it that the plan counts; bytes: bytes of it in use */
    size_t room_bytes, expected, bytes;
    size_t counted; /* bytes that ln_memory_count has for these weights */
    int n_users;    /* runs that hold these weights */
    bool warned;    /* it was logged that bytes > expected */
    bool locked;    /* by mlock */
    bool changes;   /* of one user, who changes them; not in a cache */
    uint32_t uses;  /* of those on which the device's layouts depend (ln_dev_info.layout_uses), which the
                       weights have */
    uint32_t layout_uses;
    struct ln_device_weights *next; /* in the cache */
} ln_device_weights;
/* The device weights of one model, by device and by the uses on which its layouts depend. _has, _acquire and
 * _release take its lock. */
typedef struct ln_weight_cache {
    pthread_mutex_t lock;
    struct ln_weight_cache *next, **link; /* list of all open caches, for fork */
    ln_device_weights *items;             /* list of the loaded ones */
} ln_weight_cache;
void ln_weight_cache_open(ln_weight_cache *s);
void ln_weight_cache_close(ln_weight_cache *s);
struct ln_run_options;
/* Whether the weights that these options use are loaded. */
bool ln_weight_cache_has(ln_weight_cache *s, const ln_weights *w, const struct ln_run_options *opt);
/* Acquires the weights that these options use: loads them where no run holds them yet, and locks them in
 * memory with opt->mlock. *out is borrowed until ln_weight_cache_release, and freed with its last user.
 * LN_EMEMORY, LN_EDEVICE; LN_ENUMERIC: quantising at load met a NaN or an infinity. */
ln_status ln_weight_cache_acquire(ln_weight_cache *s, const ln_weights *w, const struct ln_run_options *opt,
                                  const ln_device_weights **out, ln_error *err);
void ln_weight_cache_release(ln_weight_cache *s, const ln_device_weights *r);
/* Gives a program the addresses and forms of its weights. */
void ln_device_weights_bind(const ln_device_weights *r, ln_program *p);
/* Sets *bytes to what acquired weights will take or, if `changes`, opened ones, estimated from some rows of
 * each weight. *in_copies: the part of them that kernels read from files which could not be mapped and were
 * copied into memory. */
ln_status ln_device_weights_bytes(const ln_device_ops *ops, const ln_dev *dev, const ln_weights *w,
                                  ln_numerics numerics, bool changes, uint64_t *bytes, uint64_t *in_copies,
                                  ln_error *err);
/* Sets *out to the weights of a rank: its share of each (checkpoint/source.h), in the arena, or all, if
 * n_ranks is 0 or 1. `w` must outlive *out, which is not closed. LN_EMEMORY. */
ln_status ln_rank_weights(ln_arena *arena, const ln_weights *w, int n_ranks, int rank, ln_weights *out,
                          ln_error *err);
/* Loads weights, all of them dense, that the caller changes and shares with no run. opt->numerics is
 * LN_EXACT. The caller owns *out. LN_EMEMORY, LN_EDEVICE. */
ln_status ln_device_weights_open(ln_device_weights **out, const ln_weights *w,
                                 const struct ln_run_options *opt, ln_error *err);
void ln_device_weights_close(ln_device_weights **r);
/* Replaces n rows of weight i of opened weights, from row0 on, by `rows` in the dtype of the file; row0 is a
 * multiple of 16, n one too unless they are the last. Programs that are bound to the weights stay so.
 * LN_EMEMORY, LN_EDEVICE. */
ln_status ln_device_weights_store(ln_device_weights *r, size_t i, int64_t row0, int64_t n, const void *rows,
                                  ln_error *err);
/* The description of a weight that a device gets, for programs of these numerics; its name is borrowed. */
ln_weight_desc ln_weight_describe(const ln_weight *w, ln_numerics numerics);

/* The options of a run. Every field is set; no count is 0. */
typedef struct ln_run_options {
    ln_numerics numerics;
    ln_device device;
    const ln_device_ops *ops; /* a device that is used instead, for tests; NULL: none */
    int n_threads, n_chunk, n_seqs, n_logits;
    int n_lookup; /* for the engine: tokens that it proposes at most (ln_options) */
    int64_t n_ctx;
    int64_t n_prefault; /* positions of each sequence, at most n_ctx, whose KV pages are faulted in by
                           ln_run_open */
    int64_t n_pages; /* pages of the KV pool, at least those of one sequence of n_ctx positions; 0: those of
                        n_seqs such sequences */
    int64_t
        n_recur_pages; /* pages of the pool of recurrent state, at least those of two sequences; 0: those of
                              n_seqs sequences with LN_SNAPSHOTS_MOST snapshots each */
    int page_len;      /* positions of a KV page; 64, in tests others */
    bool keep_full_kv, mlock;
    bool kv_q8;  /* keys and values are stored in 8 bits */
    bool embeds; /* prepare the program without the head when the run is opened */
    /* Slots of the pool of adapters, 0: the program has no adapters; the largest rank of one. */
    int n_adapters, adapter_rank;
    bool adapter_experts; /* slots have space for the matrices of experts */
    /* [n_parts] for the engine: the adapter that it loads into slot 0 when it is opened; borrowed meanwhile.
     */
    const ln_adapter_part *adapter_parts;
    size_t n_adapter_parts;
    /* Thread pool of the run, borrowed while it, or another run that uses weights it has loaded, is open;
     * NULL: the pool of the process. */
    ln_pool *pool;
    /* The run whose device decides the graph's fusions and per-row formats, borrowed while this run is
     * opened; NULL: this run's own device. Weights are in this run's device's layout all the same, so its
     * kernels must be able to run that program; the reference device runs any. */
    const struct ln_run *program_of;
    ln_progress progress;
    /* Ranks that run the model together, and which of them this is; 0 or 1: this process alone. `transport`
     * is borrowed until the run is closed; NULL: the run is measured only. */
    int n_ranks, rank;
    ln_transport *transport;
    /* The group that this run leads, as a run of its model; NULL: it leads none. Borrowed like `transport`.
     */
    ln_ranks *led;
    int32_t led_model;
} ln_run_options;
/* The thread pool of a run with these options. */
static inline ln_pool *ln_run_pool(const ln_run_options *o) { return o->pool ? o->pool : ln_pool_default(); }
/* Calls the caller's progress function, if there is one. */
static inline void ln_say_progress(const ln_run_options *o, const char *what, int64_t done, int64_t total) {
    if (o->progress.fn) o->progress.fn(o->progress.user, what, done, total);
}

/* The memory of a run, in bytes, and the size of its KV pool. */
typedef struct ln_run_sizes {
    uint64_t weights_bytes, kv_bytes, temp_bytes, scratch_bytes;
    uint64_t ready_bytes;   /* of kv_bytes: faulted in by ln_run_open */
    uint64_t adapter_bytes; /* of the pool of adapters */
    uint64_t copied_bytes; /* of weights_bytes: copies of files that could not be mapped, in memory already */
    int64_t n_pages;       /* pages in the pool */
    int64_t seq_pages;     /* the most pages that a sequence of n_ctx positions holds */
    int64_t page_bytes;
    /* The pool of recurrent state; all 0: the model has none. seq_recur_pages: the most pages that a sequence
     * holds at once */
    int64_t n_recur_pages, seq_recur_pages, recur_page_bytes;
    uint64_t recur_bytes, recur_ready_bytes; /* of the pool; of it, faulted in by ln_run_open */
    int64_t step_bytes;                      /* of the step block */
    /* Of a device with memory of its own, in bytes: what it has, and what is free of it; 0: it is the host's.
     * Weights, KV pages, temporaries and scratch are in its memory then. */
    uint64_t device_total, device_free;
    int n_blocks; /* entries of a sequence's page table: ceil(n_ctx / page_len) */
    int n_groups; /* of layers with one kind of state: groups, and the most resident blocks of a sequence */
    ln_state_group groups[LN_STATE_GROUPS];
    int blocks[LN_STATE_GROUPS];
} ln_run_sizes;

/* The programs of a run. */
enum {
    LN_RUN_LOGITS, /* the whole model */
    LN_RUN_HIDDEN, /* without the head, for steps that return no logits, with up to n_chunk output rows */
    LN_RUN_PROGRAMS
};
/* A program, as prepared on the device, and the block of its steps, whose offsets depend on its bounds. */
typedef struct ln_run_program {
    bool made; /* `program` is set */
    ln_program program;
    ln_v hidden; /* what the product that makes the logits reads: the states after the final norm */
    ln_exec *exec;
    ln_step_block *step;
    void *temp;      /* program.temp_bytes of its own; NULL: the run's block is large enough */
    int64_t counted; /* bytes that ln_memory_count has for it */
} ln_run_program;

typedef struct ln_run {
    const ln_spec *spec;
    const ln_weights *weights;
    ln_run_options opt;
    ln_run_sizes sizes;
    const ln_device_ops *ops;
    ln_dev *dev;
    ln_queue *queue;
    ln_dev_info info;
    ln_arena arena;
    ln_state_pool kv;
    ln_weight_cache *weight_cache;
    const ln_device_weights *resident;
    void *temp,
        *states[LN_STATES]; /* by LN_STATE_*, in the memory of the device; NULL: the programs have none */
    size_t pool_bytes, recur_bytes, temp_bytes;
    ln_p_lora *lora; /* [weights->n] place of a matrix in the pool of adapters; NULL: there is none */
    ln_run_program programs[LN_RUN_PROGRAMS];
    int32_t id;          /* in orders to followers */
    int now;             /* the program of the next step, or of the last one */
    ln_step_block *step; /* the next step; its changes are those since the last step */
    int32_t cap_changes;
    ln_error lost; /* a device error met while changes were applied between two steps; the next step fails */
    /* Called in ln_run_step between the submission of the step and the wait for it; NULL: nothing is. */
    void (*submitted)(void *user);
    void *submitted_user;
    const ln_trace *trace; /* called after each node of the next steps; NULL: no trace */
    ln_v logits;           /* of LN_RUN_LOGITS */
} ln_run;

/* Returns LN_FAST, unless `wanted` is LN_EXACT or the checkpoint is dense f32: then LN_EXACT. */
ln_numerics ln_run_numerics(const ln_spec *s, ln_numerics wanted);
/* The device of these options: opt->ops, else that of opt->device. Errors: those of ln_device_find. */
ln_status ln_run_device(const ln_run_options *opt, const ln_device_ops **out, ln_error *err);
/* How it is opened: of several GPUs that of the rank (ln_ranks_gpu). */
ln_dev_options ln_run_dev_options(const ln_run_options *opt, const ln_device_ops *ops, bool mlock);
/* The number of GPUs that the CUDA device sees; 0, with the reason: it cannot be used. */
int ln_run_count_gpus(ln_error *err);
/* Finds it, opens it or shares the open one, and describes it. *dev is given back with ln_device_release. */
ln_status ln_run_open_device(const ln_run_options *opt, const ln_device_ops **ops, ln_dev **dev,
                             ln_dev_info *info, ln_error *err);

/* Computes the KV layout and the program of a run whose spec, weights, options, device and
 * info.real_bytes are set, and allocates nothing else: ln_run_open and ln_run_measure call it, and tests that
 * compare programs. The caller frees r->arena. */
ln_status ln_run_make_program(ln_run *r, ln_error *err);
/* Computes the memory of a run with these options, without taking it. LN_EUSAGE, LN_EMEMORY: n_ctx is too
 * large for any pool. */
ln_status ln_run_measure(const ln_spec *s, const ln_weights *w, const ln_run_options *opt, ln_run_sizes *out,
                         ln_error *err);
/* Opens a run: takes the memory that its steps will need, loads or acquires the weights, prepares the
 * program. s, w and weight_cache belong to the package and must outlive the run. The caller owns *out; NULL
 * after an error. */
ln_status ln_run_open(ln_run **out, const ln_spec *s, const ln_weights *w, ln_weight_cache *weight_cache,
                      const ln_run_options *opt, ln_error *err);
void ln_run_close(ln_run **run);
/* A digest of what has to be equal in the programs of all ranks: nodes, kernels and the layout of values. */
uint64_t ln_run_digest(const ln_run *r);
/* Prepares the program LN_RUN_HIDDEN, unless it is made already, between two steps. It is kept until the run
 * is closed. LN_EMEMORY: it needs more than `room` bytes, or an allocation failed; LN_EDEVICE. */
ln_status ln_run_add_hidden(ln_run *r, uint64_t room, ln_error *err);
/* Chooses the program of the next step before r->step is written: with no_logits LN_RUN_HIDDEN, if it is
 * made. Returns how many output rows the step may have. */
int ln_run_choose(ln_run *r, bool no_logits);
/* Runs the step of which a follower has received the used bytes of the block, by that program, node by node
 * if it is traced. LN_EDEVICE; LN_EINTERNAL: they are not a block of it. */
ln_status ln_run_follow_step(ln_run *r, int which, bool traced, const void *block, size_t bytes,
                             ln_error *err);
/* Writes bytes at an offset of the pool of adapters. */
ln_status ln_run_write_adapters(ln_run *r, int64_t at, const void *from, size_t bytes, ln_error *err);
/* Runs the step that the caller has written to r->step: counts and arrays, but no changes. LN_EINTERNAL: the
 * step exceeds the program's bounds. LN_EDEVICE: the device failed. */
ln_status ln_run_step(ln_run *r, ln_error *err);
/* Downloads row n of the last step's logits as f32 [V]. */
ln_status ln_run_logits(ln_run *r, int64_t n, float *out, ln_error *err);
/* Downloads the final hidden state, after the norm, of row n of the last step's logits as f32 [D]: the values
 * that the head is multiplied with, in the format of these numerics (f32; fast: bf16 or BFP). */
ln_status ln_run_hidden(ln_run *r, int64_t n, float *out, ln_error *err);
/* Sets ids[i] to the index of the largest logit of row `row` + i, the lowest on ties, for n rows; -1 where
 * the device cannot find it, or there is none (a NaN, or minus infinity everywhere). */
void ln_run_argmax(ln_run *r, int64_t row, int64_t n, int32_t *ids);
/* Sets ids[i] to the token that the device chooses as rows[i] says, for n rows of the logits of the last step
 * or, from ln_run.submitted, of the step that is running; -1 if it leaves that to the caller. */
void ln_run_sample(ln_run *r, const ln_row_sampling *rows, int64_t n, int32_t *ids);
/* Downloads rows row .. row + n - 1 of a temporary value as f32 [n, columns]. To be called from a trace,
 * because later nodes may reuse the value's buffer. */
ln_status ln_run_rows(ln_run *r, ln_v value, int64_t row, int64_t n, float *out, ln_error *err);
/* Overwrites those rows with f32 [n, columns], converted to the value's format. To be called from a trace,
 * right after the node that makes the value. */
ln_status ln_run_set_rows(ln_run *r, ln_v value, int64_t row, int64_t n, const float *from, ln_error *err);
/* Returns the cost of a step, summed over its nodes: see ln_cost_fn. */
ln_cost ln_run_cost(const ln_run *r, const ln_bounds *live, int64_t depth);

/* Sets entries first .. first + n - 1 of the page table of group c in a slot, counted in pages: entry
 * block * pages_per_block[c] + k. The device has them before the next step's program runs. */
void ln_run_set_pages(ln_run *r, int slot, int c, int64_t first, const int32_t *pages, int64_t n);
/* ---- state_pool.c ---- */
enum {
    LN_CHUNK_BLOCKS = 2,    /* blocks of recurrent state that a sequence holds at most */
    LN_SNAPSHOTS_MOST = 12, /* snapshots of recurrent state that are planned for a sequence at most */
};
/* Sets the size of the pool of recurrent state: n_pages, within what its sequences can use. */
void ln_run_size_recurrent(ln_run_sizes *z, int n_seqs, int64_t n_pages);
/* Sets r->kv and the sizes of the pool, with an open device. LN_EINVALID: a page is too large; LN_EUSAGE,
 * LN_EMEMORY: n_ctx is too large for any pool; LN_EUNSUPPORTED: too many groups. */
ln_status ln_run_make_pool(ln_run *r, ln_error *err);
/* Zeroes a page, which its index names; those of recurrent state follow those of keys and values. */
ln_status ln_run_zero_page(ln_run *r, int64_t page, ln_error *err);
/* Copies the keys and values of the first n positions of a group's page `from` to page `to`, which may be the
 * same; the other positions become zero, so that nothing of another text stays in them. */
ln_status ln_run_copy_page(ln_run *r, int group, int64_t to, int64_t from, int64_t n, ln_error *err);
/* Downloads one layer's keys in a page as f32 [K, E, page_len], and its values as f32 [K, page_len, Ev];
 * NULL: not these. Of a recurrent layer `keys` is its whole state in the page. */
ln_status ln_run_read_page(ln_run *r, int layer, int64_t page, float *keys, float *values, ln_error *err);
/* Writes them to a page, which has been zeroed; where the page is bf16, their low 16 bits must be zero. */
ln_status ln_run_write_page(ln_run *r, int layer, int64_t page, const float *keys, const float *values,
                            ln_error *err);

/* ---- adapter_pool.c ---- */
/* Lays out the pool of adapters and sets r->lora and sizes.adapter_bytes. LN_EUSAGE: the size overflows. */
ln_status ln_run_make_adapters(ln_run *r, ln_error *err);
/* Whether a weight takes adapters: a projection of a layer, in a run that has a pool. */
bool ln_run_adapts(const ln_run *r, size_t weight);
/* What an adapter adds to the products with one matrix W[n_out, n_in]: y += sum_j scale[j] b[j] (a[j] x),
 * + bias, + gain y. */
typedef struct ln_lora_matrix {
    int64_t rank;       /* 0: nothing but the bias */
    const float *a, *b; /* [rank, n_in], [rank, n_out] */
    const float *scale; /* [rank] */
    const float *bias;  /* [n_out]; NULL: none */
    const float *gain;  /* [n_out]; NULL: none */
} ln_lora_matrix;
/* Writes it to a slot, between two steps, in the place of what the slot had for this matrix, of experts that
 * of one of them, else 0. LN_EDEVICE,
 * LN_EMEMORY; LN_EINTERNAL: the weight takes no adapters, or the rank is too large. */
ln_status ln_run_set_adapter(ln_run *r, int slot, size_t weight, int64_t expert, const ln_lora_matrix *m,
                             ln_error *err);

#endif
