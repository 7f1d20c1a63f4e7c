/* The programs of training, of adapters or of all weights: forward pass, loss and gradients of a packed
 * micro-batch, and the forward pass alone for validation.
 *
 * The trainer (train/) opens one, writes initial values to the parameters, and for each step of the optimiser
 * clears the gradients, runs its micro-batches, each of which adds its gradients to those before, updates the
 * parameters (adamw.h) and says so (ln_train_values_changed). Losses and gradients are sums over targets, not
 * means: the trainer divides by the number of counted targets of the whole step.
 *
 * All memory is taken when the program is opened, and known before (ln_train_program_measure). The same batch
 * gives the same bits on any number of threads. One thread at a time uses a program. */
#ifndef LN_TRAIN_PROGRAM_H
#define LN_TRAIN_PROGRAM_H

#include "../model/decoder_train.h"
#include "run.h"

typedef struct ln_train_program ln_train_program;

typedef struct ln_train_options {
    uint32_t size;
    /* Device, n_threads, pool, numerics (LN_EXACT, else products with bf16 weights have bf16 operands),
     * progress; n_chunk, n_seqs: the most rows and sequences of a micro-batch. All of them are set
     * (ln_run_options); other fields are not read. */
    ln_run_options run;
    bool full;       /* the parameters are the weights of the model, and `lora` is not read */
    ln_lora lora;    /* else those of these adapters */
    int n_recompute; /* layers whose activations are computed again for the gradients, from the first on */
    int n_text, n_predicted; /* tokens of a text, and predicted tokens, of ln_train_predict; 0: it is not
                                called */
} ln_train_options;

/* A matrix that is trained, f32 in host memory: A or B of an adapter, or with `full` a tensor of the files, a
 * vector having one column. Weights that are the parts of one tensor have one A and one B, whose rows are in
 * the order of that tensor. `value` is the caller's to read and write between steps; `grad` is the sum of the
 * gradients since ln_train_clear. Both have [rows, cols] elements and live as long as the program. */
typedef struct ln_train_param {
    char path[160];          /* of the module, e.g. layers.3.self_attn.q_proj; full: of the tensor */
    ln_slot slot;            /* of the adapted weight; of several the first */
    int layer;               /* its layer */
    bool is_b;               /* A: [rank, n_in]; B: [n_out, rank] */
    bool is_lookup;          /* of the embedding: A is [rows of the table, rank], in files [rank, rows] */
    bool is_rows;            /* neither: rows of trained tokens, [n_tokens, D] */
    bool is_whole;           /* neither: the embedding or the head itself */
    bool is_magnitude;       /* neither: the magnitudes of DoRA, [n_out, 1], a vector in files */
    bool decays;             /* weight decay applies: to matrices, not to norms and biases */
    const ln_tensor *tensor; /* full: the tensor of the files */
    int64_t rows, cols;
    float *value, *grad;
} ln_train_param;

/* Bytes, known before a program is opened. */
typedef struct ln_train_sizes {
    uint64_t weights_bytes;    /* of the model that programs compute with */
    uint64_t activation_bytes; /* temps of the larger of the two programs */
    uint64_t scratch_bytes;    /* of the device, for both programs */
    uint64_t param_bytes;      /* parameters and gradients, in host memory and on the device */
    uint64_t bound_bytes;      /* of these, what the device has */
    uint64_t step_bytes;       /* step block and inputs */
    uint64_t graph_bytes;      /* graphs and programs, in host memory, to about a tenth */
    /* Of a device with memory of its own: all of it, and what is free before the program is opened; 0: the
     * device has the host's. Its part of the sizes: weights, activations, scratch, bound. */
    uint64_t device_total, device_free;
    uint64_t n_params;   /* trained numbers */
    uint64_t n_matrices; /* parameters that they are in */
    int n_recompute;     /* layers that are recomputed */
} ln_train_sizes;

/* One micro-batch; all arrays are borrowed during the call. Sequences follow each other without padding. */
typedef struct ln_train_batch {
    int32_t n_rows, n_seqs;
    const int32_t *ids;     /* [n_rows] */
    const int32_t *row0;    /* [n_seqs + 1] first row of each sequence; row0[n_seqs] = n_rows */
    const int32_t *targets; /* [n_rows] the id that a row predicts; below 0: it does not count */
    /* [n_seqs] tokens of the whole text whose first rows each sequence has, which decide the frequencies of a
     * dynamic rope; NULL: the rows are the text. */
    const int32_t *lengths;
    const float *weights; /* [n_rows] of the losses; NULL: 1 */
    float *losses; /* [n_rows] receives the loss of each row with a target, without its weight; NULL: not
                      wanted */
    const uint64_t *samples; /* [n_seqs] number of the sample's use, the same for no two uses, for dropout;
                                NULL: the number of the sequence in the batch */
} ln_train_batch;

typedef struct ln_train_result {
    double loss;       /* sum of weight * negative log-likelihood, in natural logarithms */
    double weight;     /* sum of the weights */
    int64_t n_counted; /* targets that count */
    bool finite;       /* loss and gradients are finite numbers */
} ln_train_result;

/* Computes the memory of a program with these options, without taking it. Errors as ln_train_program_open's.
 */
ln_status ln_train_program_measure(const ln_spec *s, const ln_weights *w, const ln_train_options *opt,
                                   ln_train_sizes *out, ln_error *err);
/* Opens the programs. s, w and cache belong to the package and must outlive *out, which the caller owns.
 * Values and gradients are 0. LN_EUSAGE, LN_EINVALID, LN_EUNSUPPORTED: an option, which the message names;
 * LN_EMEMORY, LN_EDEVICE. */
ln_status ln_train_program_open(ln_train_program **out, const ln_spec *s, const ln_weights *w,
                                ln_weight_cache *cache, const ln_train_options *opt, ln_error *err);
void ln_train_program_close(ln_train_program **p);
const ln_train_sizes *ln_train_program_sizes(const ln_train_program *p);
/* The prepared program of training or, without `gradients`, of validation; for tools that print or compare
 * programs. */
const ln_program *ln_train_program_get(const ln_train_program *p, bool gradients);
/* Returns the parameters and stores their number. Adapters: for each matrix of the files, in the order of
 * products, first A, then B. All weights: the tensors, those outside the layers first. */
ln_train_param *ln_train_program_params(ln_train_program *p, size_t *n);
/* Sets A to normal numbers of standard deviation 1 / sqrt(n_in), a function of seed and parameter alone, B to
 * 0 and magnitudes to the lengths of the model's rows; full: the values to those of the model. */
ln_status ln_train_program_init(ln_train_program *p, uint64_t seed, ln_error *err);
/* Reports that values were written: the next micro-batch computes with the new ones. */
void ln_train_values_changed(ln_train_program *p);
/* Sets all gradients to 0. */
void ln_train_clear(ln_train_program *p);
/* Runs a micro-batch and adds its gradients to those of the parameters. A batch without a counted target adds
 * nothing. LN_EINTERNAL: the batch exceeds the bounds; LN_EDEVICE. */
ln_status ln_train_step(ln_train_program *p, const ln_train_batch *batch, ln_train_result *out,
                        ln_error *err);
/* The same without gradients and without dropout. */
ln_status ln_train_evaluate(ln_train_program *p, const ln_train_batch *batch, ln_train_result *out,
                            ln_error *err);
/* A text whose next tokens are predicted; the ids are borrowed during the call. */
typedef struct ln_train_text {
    const int32_t *ids;  /* [n] */
    int32_t n, n_prompt; /* n_prompt: its first tokens, which decide the frequencies of a dynamic rope */
} ln_train_text;
/* Stores in out[i] the likeliest token after the first n - n_out + i + 1 tokens of a text, the lowest on
 * ties, with the values as they are; -1: a logit is NaN. Nothing that a step depends on changes.
 * LN_EINTERNAL: the text or n_out exceeds the options; LN_EDEVICE. */
ln_status ln_train_predict(ln_train_program *p, const ln_train_text *text, int32_t *out, int32_t n_out,
                           ln_error *err);

#endif
