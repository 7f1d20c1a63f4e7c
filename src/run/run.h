/* Weights made resident, programs prepared, kept and fed: the only room that knows both what runs and where.
 *
 * ln_run_measure says how much memory a model will take with given bounds, by building and planning the very programs that
 * ln_run_open prepares; nothing is estimated twice. A run is owned by one engine and used by one thread at a time. */
#ifndef LN_RUN_H
#define LN_RUN_H

#include "../device/device.h"
#include "../graph/pages.h"
#include "../model/spec.h"

#include <pthread.h>

/* Program modes: with logits for the wanted rows, or up to the last layer's keys and values only. */
typedef enum ln_mode { LN_MODE_LOGITS = 0, LN_MODE_KEYS, LN_MODE_COUNT } ln_mode;

#define LN_RUN_MAX_THREADS 256

/* ---- resident.c: weights in a device's own form, shared by the engines of a model ---- */
typedef struct ln_resident {
    const ln_device_ops *ops;
    ln_dev *dev;
    const ln_weights *weights;
    ln_placed *placed;          /* [n_weights] on the device */
    ln_arena arena;             /* what stands for encoded weights */
    void *room;                 /* the block that holds what is not read in place */
    size_t room_bytes, expected, bytes; /* of the block; what weights will take of it, as planned; what they took */
    int n_users;
    bool warned;                /* that they take more */
    bool locked, by_numerics;   /* the device says so: others are needed for other numerics */
} ln_resident;
typedef struct ln_residents {
    pthread_mutex_t lock;
    struct ln_residents *next, **link; /* of all that are open */
    ln_resident *items[LN_DEVICE_CUDA + 1][2]; /* [device][made for `fast`, of quantised weights] */
} ln_residents;
void ln_residents_open(ln_residents *s);
void ln_residents_close(ln_residents *s);
struct ln_run_options;
bool ln_residents_has(ln_residents *s, const ln_weights *w, const struct ln_run_options *opt);
/* The weights on a device, made by the first who asks, gone with the last who gives them back. */
ln_status ln_residents_take(ln_residents *s, const ln_weights *w, const struct ln_run_options *opt, const ln_resident **out, ln_error *err);
void ln_residents_give(ln_residents *s, const ln_resident *r);
/* What take will hold, as far as a look at some of each weight tells; *in_copies: how much of it is read in
 * place,
 * from files that were copied into memory. */
uint64_t ln_resident_bytes(const ln_device_ops *ops, const ln_dev *dev, const ln_weights *w,
                           uint64_t *in_copies);
/* encode.c: a weight that is quantised at load. Its bytes in memory; making it there, `room` being those bytes (LN_ENUMERIC names a
 * tensor that cannot be quantised); and what making holds beside them. */
size_t ln_encoded_bytes(const ln_weight *w);
ln_status ln_encode(const ln_weight *w, void *room, int n_threads, ln_affine *out, ln_error *err);
/* The same, some rows at a time, for a device that takes them in a form of its own: room is its weight_bytes. */
ln_status ln_encode_into(const ln_device_ops *ops, ln_dev *dev, const ln_weight *w, void *room, int n_threads, ln_placed *out, ln_error *err);
uint64_t ln_encoding_bytes(const ln_weights *w, int n_threads);
/* A weight as a device sees it. */
ln_value ln_weight_value(const ln_weight *w);

/* All counts decided: nothing here is 0 for "default". */
typedef struct ln_run_options {
    ln_numerics numerics;
    ln_device device;
    int n_threads, n_chunk, n_seqs, n_logits;
    int64_t n_ctx;
    int64_t n_ready;            /* positions of each sequence, at most n_ctx, whose pages are faulted in at once; the others when taken */
    int page_len;               /* positions a page; 64, tests use others */
    bool keep_all, mlock;
    const struct ln_run *as;    /* makes the program that this one's device wants, not its own; NULL: its own. Looked at while it is opened. Its
                                   weights are still in this one's form: the program must be one for which that is made, as any is for the reference device */
    ln_progress progress;
} ln_run_options;
static inline void ln_say_progress(const ln_run_options *o, const char *what, int64_t done, int64_t total) {
    if (o->progress.fn) o->progress.fn(o->progress.user, what, done, total);
}

typedef struct ln_run_sizes {
    uint64_t weights_bytes, kv_bytes, temp_bytes, scratch_bytes;
    uint64_t ready_bytes;       /* of kv_bytes: faulted in when opened */
    uint64_t copied_bytes;      /* of weights_bytes: in copies of files, in memory already */
    int64_t n_pages;            /* in the pool */
    int n_blocks;               /* entries of a sequence's page table: ceil(n_ctx / page_len) */
    int blocks[2];              /* resident at most, by class */
} ln_run_sizes;

typedef struct ln_run {
    const ln_spec *spec;
    const ln_weights *weights;
    ln_run_options opt;
    ln_run_sizes sizes;
    const ln_device_ops *ops;
    ln_dev *dev;
    ln_dev_info info;
    ln_arena arena;
    ln_kv_shape kv;
    ln_residents *residents;
    const ln_resident *resident;
    void *pool, *temp;
    size_t pool_bytes, temp_bytes;
    const ln_watch *watch;      /* looks on at the next steps; NULL: nobody does */
    struct ln_prepared {
        ln_graph graph;
        ln_program program;
        ln_exec *exec;
        ln_v logits;
    } modes[LN_MODE_COUNT];
} ln_run;

/* What a load will use: fast unless exact was asked for. A dense f32 checkpoint is always exact. */
ln_numerics ln_run_numerics(const ln_spec *s, ln_numerics wanted);
/* The device by kind; LN_EDEVICE with the reason when it is not there. */
ln_status ln_run_device(ln_device kind, const ln_device_ops **out, ln_error *err);

ln_status ln_run_measure(const ln_spec *s, const ln_weights *w, const ln_run_options *opt, ln_run_sizes *out, ln_error *err);
/* Takes all memory that steps will need, faulted in. `residents` is the model's and outlives the run. */
ln_status ln_run_open(ln_run **out, const ln_spec *s, const ln_weights *w, ln_residents *residents, const ln_run_options *opt, ln_error *err);
void ln_run_close(ln_run **run);
ln_status ln_run_step(ln_run *r, ln_mode mode, const ln_step *step, ln_error *err);
/* Row n of the last step's logits as f32 [V]. */
ln_status ln_run_logits(ln_run *r, int64_t n, float *out, ln_error *err);
/* The place of the largest of them, the first of equals, where the device can look for it itself; -1: it cannot, or there is none (NaN, all minus infinity). */
int64_t ln_run_top(ln_run *r, int64_t n);
/* Rows row .. row + n - 1 of a temp value as f32, while a watch looks on: later nodes may take its place. Of a value in panels all live rows, from 0 on. */
ln_status ln_run_rows(ln_run *r, ln_mode mode, ln_v value, int64_t row, int64_t n, float *out, ln_error *err);
/* Gives the first n rows of a value (in panels: all live ones) other numbers, on a device whose numbers are f32; only from a watch, while the node that made it is the last. */
void ln_run_set_rows(ln_run *r, ln_mode mode, ln_v value, int64_t n, const float *from);
/* What a step of a mode costs in all: see ln_op_rules.cost. */
ln_cost ln_run_cost(const ln_run *r, ln_mode mode, const ln_bounds *live, int64_t depth);

/* Pages, by number. */
ln_status ln_run_zero_page(ln_run *r, int64_t page, ln_error *err);
/* The keys of one layer in one page, as f32 [K, E, page_len]; or its values, [K, page_len, E]. */
ln_status ln_run_page_keys(ln_run *r, int layer, int64_t page, float *out, ln_error *err);
ln_status ln_run_page_values(ln_run *r, int layer, int64_t page, float *out, ln_error *err);

#endif
