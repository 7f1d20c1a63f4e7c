/* A device: where a program runs. A device never knows what it runs: it sees values, nodes and a step block.
 *
 * run/ opens one, places weights and states in its memory, hands it a lowered program to prepare, and then
 * runs it step by step. `prepare` takes all memory that runs will need; `run` takes none. */
#ifndef LN_DEVICE_H
#define LN_DEVICE_H

#include "../base/base.h"

struct ln_program;
struct ln_value;
struct ln_node;
struct ln_step;
typedef struct ln_dev ln_dev;   /* an open device; each device defines its own */
typedef struct ln_exec ln_exec; /* a prepared program */

typedef struct ln_dev_options {
    int n_threads;
    bool mlock;
    bool fast; /* weights are for programs of `fast` numerics alone: see ln_dev_info.by_numerics */
} ln_dev_options;

typedef struct ln_dev_info {
    char name[32], rung[32], rungs[96], quantised[64];
    int real_bytes; /* of LN_F32 values: 4 or 8 */
    int n_threads;
    bool by_numerics; /* weights in affine groups have a form of their own where the device was opened for
                         `fast` */
} ln_dev_info;

/* Looks on while a program runs: called after each node, in the order of the program, when all threads are
 * through with it and none has begun the next, with the seconds it took. A watched run meets at a barrier
 * after every node; it gives the same bits. */
typedef struct ln_watch {
    void (*fn)(void *user, int i, double seconds);
    void *user;
} ln_watch;

/* What the machine gives at best to kernels of this device: bytes read from memory, by vectors and by tiles
 * (0: none here), and multiply-adds (two operations each) of its fastest dense product. */
#define LN_MEASURE_MOST ((size_t)1 << 30)
#define LN_MEASURE_LEAST ((size_t)512 << 20) /* larger than any cache: some have 384 MB */
typedef struct ln_dev_limits {
    double read_bytes_s, tile_bytes_s, flop_s;
} ln_dev_limits;

/* A weight where kernels read it. */
typedef struct ln_placed {
    void *data;
    size_t bytes; /* that it took of its room, from the beginning; 0: it has none */
    bool tight;   /* ln_arg.tight */
} ln_placed;

typedef struct ln_device_ops {
    const char *name;
    ln_status (*open)(ln_dev **out, const ln_dev_options *opt, ln_error *err);
    void (*close)(ln_dev **dev);
    void (*describe)(const ln_dev *dev, ln_dev_info *out);
    /* Zeroed, 64-byte aligned; the first `ready` bytes are faulted in, so that no step waits for their pages.
     */
    ln_status (*alloc)(ln_dev *dev, size_t bytes, size_t ready, void **out, ln_error *err);
    void (*free)(ln_dev *dev, void *p, size_t bytes);
    /* Bytes of the device's own form of a weight, at most; 0: its kernels read the host's bytes where they
     * lie. */
    size_t (*weight_bytes)(const ln_dev *dev, const struct ln_value *w);
    /* Bytes that it will take as far as a look at some of the host's rows tells, and some more: what a plan
     * counts. */
    size_t (*weight_expected)(const ln_dev *dev, const struct ln_value *w, const void *host);
    /* Makes rows [first, first + n) of a weight readable by kernels, `first` a multiple of 16: into `room`
     * (weight_bytes of memory from alloc, the whole weight's), or in place when that is NULL. `host`: those
     * rows, of an encoded weight an ln_affine of them, at any alignment; pages of a file are given back to
     * the system as they are read into room. */
    ln_status (*upload)(ln_dev *dev, const struct ln_value *w, int64_t first, int64_t n, const void *host,
                        void *room, ln_placed *out, ln_error *err);
    ln_status (*download)(ln_dev *dev, const void *p, void *host, size_t bytes, ln_error *err);
    /* The place of the largest of n > 0 numbers of f32, the first of equals; -1: one is NaN, or none is more
     * than minus infinity. NULL: the host is to look. */
    int64_t (*top)(ln_dev *dev, const float *p, int64_t n);
    const char *(*kernel)(const ln_dev *dev, int op); /* which rung's kernel runs an op; NULL: none */
    /* How far from the reference's, in parts of the largest of them, the numbers that a node makes may lie,
     * its inputs being the same. 0: they have the same bits. */
    double (*freedom)(const ln_dev *dev, const struct ln_node *n, const struct ln_value *values);
    /* Whether the kernel of a node wants input k, whose numbers are bf16 numbers, in two bytes each. What
     * makes such a value then stores it so. */
    bool (*reads_bf16)(const ln_dev *dev, const struct ln_node *n, const struct ln_value *values, int k);
    /* Whether a linear_fixed is to be one of rows that have a scale each (linear_fixed_row). Who says so has
     * kernels of linear_fixed_row_swiglu and _geglu too. */
    bool (*by_row)(const ln_dev *dev, const struct ln_node *n, const struct ln_value *values);
    /* What prepare will take besides `temp`. */
    size_t (*scratch_bytes)(const ln_dev *dev, const struct ln_program *p);
    /* `temp`: a block of program.temp_bytes from alloc, which programs that never run together may share. */
    ln_status (*prepare)(ln_dev *dev, const struct ln_program *p, void *temp, ln_exec **out, ln_error *err);
    void (*release)(ln_exec **exec);
    ln_status (*run)(ln_exec *exec, const struct ln_step *step, const ln_watch *watch_or_null, ln_error *err);
    /* With the device's threads, reading a buffer of so many bytes (LN_MEASURE_LEAST .. LN_MEASURE_MOST): about
     * two seconds. */
    ln_status (*measure)(ln_dev *dev, size_t bytes, ln_dev_limits *out, ln_error *err);
} ln_device_ops;

extern const ln_device_ops ln_device_ref;        /* the reference kernels in float, one thread */
extern const ln_device_ops ln_device_ref_double; /* in double: what bounds are measured against */
extern const ln_device_ops ln_device_cpu;

#endif
