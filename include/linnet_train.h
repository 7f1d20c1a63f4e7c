/* linnet_train - fine-tunes models, and computes gradients.
 *
 * In this order: loss masks of conversations, training a LoRA adapter, graphs whose gradients the library
 * computes. What linnet.h says about errors, callbacks, ownership and threads holds here too. */
#ifndef LINNET_TRAIN_H
#define LINNET_TRAIN_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loss masks ---- */

/* Owned by the caller; ln_token_mask_free frees the contents. */
typedef struct ln_token_mask {
    int32_t *ids;  /* [n_ids] */
    uint8_t *mask; /* [n_ids]: 1 for tokens that the assistant wrote, including the end of its turn, else 0 */
    size_t n_ids;
    /* Turns of the assistant that could not be located, because the template renders them differently once
     * more messages follow; their tokens have mask 0. */
    size_t n_unmatched;
} ln_token_mask;

/* Computes the ids of a whole conversation (messages or request), without a header after it, and which of
 * them the assistant wrote: the loss mask of fine-tuning. If the template marks generated text ({%
 * generation %}), the mask is that; else a turn is what it adds to the rendering of the messages before it
 * and the header of an answer. LN_EUNSUPPORTED: the model has no usable chat template. LN_EINVALID: as for
 * ln_prompt_ids. *out is overwritten, not freed; after an error it is empty. */
LN_API LN_MUST_CHECK ln_status ln_assistant_mask(const ln_model *model, const ln_prompt *conversation,
                                                 ln_token_mask *out, ln_error *err);
/* Frees the contents and zeroes the struct; NULL and an empty struct are fine. */
LN_API void ln_token_mask_free(ln_token_mask *mask);

/* ---- fine-tuning ---- */

/* A run that trains a LoRA adapter, or all weights of a model; the model's files stay as they are. A handle,
 * as an engine is; one thread at a time uses it. */
typedef struct ln_trainer ln_trainer;
/* What is trained. FULL: all tensors of the text model, of which the result is a model directory. */
typedef enum ln_method { LN_METHOD_LORA = 0, LN_METHOD_FULL } ln_method;
/* What is learned of pairs of answers, of which one was chosen: DPO, DPO of log-probabilities by token, IPO,
 * ORPO. NONE: the targets of samples are learned. */
typedef enum ln_preference {
    LN_PREFERENCE_NONE = 0,
    LN_PREFERENCE_DPO,
    LN_PREFERENCE_DPO_NORM,
    LN_PREFERENCE_IPO,
    LN_PREFERENCE_ORPO
} ln_preference;
/* What updates the values: AdamW, or SGD, whose weight decay is a part of the gradient as in PyTorch. */
/* Layouts in which an adapter is written. mlx-lm's and go-mlx's are of text models, and of all layers or the
 * last ones. */
typedef enum ln_adapter_as {
    LN_ADAPTER_AS_PEFT = 0,
    LN_ADAPTER_AS_MLX_LM,
    LN_ADAPTER_AS_GO_MLX
} ln_adapter_as;
typedef enum ln_optimizer { LN_OPTIMIZER_ADAMW = 0, LN_OPTIMIZER_SGD } ln_optimizer;
/* The learning rate after the warm-up, by the names of transformers. */
typedef enum ln_schedule {
    LN_SCHEDULE_CONSTANT = 0,
    LN_SCHEDULE_LINEAR, /* to 0 */
    LN_SCHEDULE_COSINE, /* as half a cosine to 0 */
    LN_SCHEDULE_CONSTANT_WITH_WARMUP,
    LN_SCHEDULE_COSINE_WITH_RESTARTS, /* to 0 `cycles` times */
    LN_SCHEDULE_POLYNOMIAL,           /* to min_lr as (1 - p)^power */
    LN_SCHEDULE_INVERSE_SQRT,         /* as 1 / sqrt(step); no end */
    LN_SCHEDULE_COSINE_WITH_MIN_LR,   /* as half a cosine to min_lr */
    LN_SCHEDULE_WARMUP_STABLE_DECAY   /* constant, in the last decay_steps as half a cosine to min_lr */
} ln_schedule;

/* A run before its first step: its memory, its data and its steps. */
typedef struct ln_trainer_info {
    uint32_t size; /* of the caller's struct: sizeof(ln_trainer_info) */
    /* The six parts of peak_bytes. optimizer_bytes are the moments of the optimiser, data_bytes the samples'
     * tokens and what is known of each sample, other_bytes what the process holds now, and tables. */
    uint64_t weights_bytes, adapter_bytes, optimizer_bytes, activation_bytes, data_bytes, other_bytes;
    uint64_t peak_bytes;      /* what the process will hold at its peak: the sum of the six parts, of a GPU
                            without device_bytes */
    uint64_t available_bytes; /* what the machine or the caller allows the process */
    const char *limit;        /* which limit decides available_bytes, as in ln_plan; static */
    bool fits;                /* both memories have what is needed */
    uint64_t n_trainable; /* values that training changes: those of the adapter's matrices, or of the model */
    uint64_t n_parameters; /* values of the model */
    int64_t n_matrices;    /* matrices of the model that the adapter changes: A and B for each; or tensors */
    int64_t n_rows;        /* tokens of a micro-batch, into which samples are packed */
    int64_t n_samples, n_valid; /* samples that train; samples that validate */
    int64_t n_truncated;        /* samples that were longer than max_length, and were cut to it */
    int64_t n_dropped;          /* samples that were left out, because no token of them counts */
    int64_t longest;            /* tokens of the longest sample */
    int64_t n_steps, step;      /* steps of the whole run; steps done before it */
    uint64_t n_targets;         /* counted tokens of an epoch */
    int samples_per_step;       /* batch * accum */
    int n_recompute; /* layers whose activations are computed again for the gradients, to save memory */
    ln_numerics numerics;
    ln_method method;
    /* Of a GPU: what is taken of its memory, weights, activations and copies of the parameters, and what is
     * free there, or ln_options.memory_bytes if that is less. 0: the device has the process's memory. */
    uint64_t device_bytes, device_available_bytes;
} ln_trainer_info;

/* One of several files of samples, and how often an epoch has its samples: with 0.5 half of them, the others
 * in the next epoch; with 2 each of them twice. */
typedef struct ln_train_file {
    const char *path;
    double weight;
} ln_train_file;

/* What is trained, on what, and how. Start from ln_trainer_options_default. The struct and its texts are
 * borrowed during the call that takes them. */
typedef struct ln_trainer_options {
    uint32_t size;    /* of the caller's struct; set by ln_trainer_options_default */
    const char *data; /* JSONL, a JSON array or CSV (docs/training.md): a file, or a directory with train.* */
    const char *valid;  /* a file of samples for validation; NULL: valid.jsonl of the directory, if any */
    double valid_split; /* without `valid`: the share of `data` that validates, 0 .. below 1; default 0 */
    /* Members of the data that have other names: "text=body,prompt=q" reads body as text and q as prompt; a
     * member that has such a name itself is not read then. NULL: none. */
    const char *fields;
    int64_t max_length; /* a longer sample is cut to so many tokens; default 2048, at most the context */
    bool no_shuffle;    /* samples in the order of the file in every epoch */
    int rank;           /* of A and B; default 8 */
    double alpha;       /* B A is multiplied by alpha / rank; default 16 */
    bool rslora;        /* by alpha / sqrt(rank) instead */
    double dropout;     /* of the input of A, 0 .. below 1; default 0 */
    /* q_proj to down_proj, embed_tokens and lm_head with commas between, or all-linear, which is all matrices
     * of the layers; default q_proj,v_proj */
    const char *targets;
    bool bf16; /* A and B are computed with and saved in bf16; the optimiser has f32 values */
    /* Directory of an adapter to begin with, which decides rank, scale and targets; NULL: A is normal with
     * deviation 1 / sqrt(n_in), B is 0. */
    const char *init_adapter;
    double lr;            /* learning rate; default 1e-4 */
    double weight_decay;  /* AdamW: decoupled; default 0.01 */
    double clip;          /* largest norm of the gradient (0: no limit); default 1 */
    int batch;            /* samples that are computed at once; default 4 */
    int accum;            /* a step takes batch * accum samples; default 1 */
    int64_t epochs;       /* passes over the data, if `steps` is 0; default 1 */
    int64_t steps;        /* 0, the default: as many as `epochs` take */
    int64_t warmup;       /* steps in which the learning rate rises, before `schedule`; default 0 */
    ln_schedule schedule; /* of the learning rate after them; default constant */
    uint64_t seed;        /* of the order of samples, A and dropout; default 0 */
    const char *out;      /* directory of the result, checkpoints and metrics; NULL: nothing is written */
    int64_t eval_every;   /* steps between validations; 0, the default: after each epoch and at the end */
    int64_t save_every;   /* steps between checkpoints (0: only at the end); default 100 */
    int keep;             /* checkpoints that stay; default and least 2 */
    int early_stop;       /* validations without a better loss that end the run; 0, the default: off */
    bool resume;          /* continue the run in `out` at its last checkpoint */
    /* Called by ln_trainer_new with the plan, before it takes the memory; a status other than LN_OK ends it.
     * NULL: not called. */
    ln_status (*on_ready)(void *user, const ln_trainer_info *plan, ln_error *err);
    void *user;
    /* LN_METHOD_FULL is for dense models without experts. Of the options of adapters rank, alpha, rslora and
     * targets have no effect, and bf16, dropout and init_adapter are not set. Tensors keep their dtype, and
     * the optimiser has f32 values. weight_decay applies to matrices, not to norms and biases. */
    ln_method method;
    /* The data are pairs of answers, {"prompt", "chosen", "rejected"}. A sample is such a pair. The
     * log-probabilities that DPO and IPO compare with are those before the first step. dropout is 0. */
    ln_preference preference;
    double beta;              /* how much a preference counts; default 0.1 */
    const ln_train_file *mix; /* [n_mix] files in addition to `data`, whose weight is 1; NULL: none */
    size_t n_mix;
    /* valid_split chooses each sample by the hash of its tokens: it then validates whatever the other
     * samples, their order and the seed are. */
    bool split_by_hash;
    bool event_file;        /* also write events that TensorBoard reads below `out` */
    ln_optimizer optimizer; /* default AdamW */
    double momentum;        /* of SGD, 0 .. below 1; default 0 */
    const char *layers;     /* the layers that are adapted, such as "0-3,7"; NULL: all */
    double min_lr;          /* of schedules that end above 0; default 0 */
    double power;           /* of LN_SCHEDULE_POLYNOMIAL; default 1 */
    int cycles;             /* of LN_SCHEDULE_COSINE_WITH_RESTARTS; default 1 */
    int64_t decay_steps;    /* of LN_SCHEDULE_WARMUP_STABLE_DECAY, at least 1; default 0 */
    /* DoRA: each row of W + scale B A is divided by its length and multiplied by a magnitude that is trained.
     * dropout is 0; init_adapter decides it itself. */
    bool dora;
    int moment_bits; /* of AdamW's moments: 32, the default, or 8, in blocks of 256 (docs/training.md) */
    ln_adapter_as
        adapter_as; /* the layout of the adapter in `out`; checkpoints have PEFT's. Default PEFT's */
    /* Steps between texts that the model writes while it trains, by its likeliest tokens (on_text); 0, the
     * default: none. Training has the same bits with and without. */
    int64_t sample_every;
    /* [n_sample_prompts], at most 64: what these texts continue. If samples are conversations, or pairs of a
     * model with a chat template, each is a message of the user. NULL: the prompt of a sample that
     * validates, or else trains. */
    const char *const *sample_prompts;
    size_t n_sample_prompts;
    int sample_tokens; /* of each text at most; default 64 */
    /* embed_tokens, lm_head or both with a comma between: trained as a whole next to the adapter, and saved
     * with it, as PEFT's modules_to_save. A head that is the embedding becomes one of its own. NULL: none */
    const char *modules_to_save;
} ln_trainer_options;
LN_DEFAULT(ln_trainer_options)

/* Reads the data and writes the plan to *out. Errors: those of ln_trainer_new, except LN_EMEMORY, for which
 * out->fits is false. */
LN_API LN_MUST_CHECK ln_status ln_trainer_plan(ln_model *model, const ln_options *opt,
                                               const ln_trainer_options *how, ln_trainer_info *out,
                                               ln_error *err);
/* Writes an SVG file that compares the losses of n runs, 1 to 8, whose directories are dirs; they may go on.
 * force: an existing file is replaced. LN_EIO: a directory holds no run, or the file exists; LN_EINVALID,
 * LN_EUSAGE, LN_EMEMORY. */
LN_API LN_MUST_CHECK ln_status ln_plot_runs(const char *const *dirs, size_t n, const char *out, bool force,
                                            ln_error *err);
/* Stores the first samples of how->data in out[0 .. *n), at most `most`. Mask 1: the token counts as a
 * target. The caller frees each with ln_token_mask_free. */
LN_API LN_MUST_CHECK ln_status ln_training_samples(ln_model *model, const ln_trainer_options *how,
                                                   ln_token_mask *out, size_t most, size_t *n, ln_error *err);
/* Reads and checks the data, loads the model and makes a run ready for its next step. Of `opt` (NULL: the
 * defaults) numerics, device, n_threads, memory_bytes and progress count. The caller owns *out.
 *
 * LN_EINVALID: bad lines (the first 20 are logged), nothing to learn, an initial adapter that does not fit,
 * all checkpoints damaged, or of other data or another model. LN_EUSAGE: an option out of its range, or not
 * that of the checkpoint. LN_EIO: `out` holds a run and how->resume is false, another process writes it, or
 * it cannot be written. LN_EMEMORY, before anything is taken: the plan does not fit. LN_EUNSUPPORTED. */
LN_API LN_MUST_CHECK ln_status ln_trainer_new(ln_trainer **out, ln_model *model, const ln_options *opt,
                                              const ln_trainer_options *how, ln_error *err);
LN_API void ln_trainer_free(ln_trainer **trainer);
LN_API LN_MUST_CHECK ln_status ln_trainer_get_info(const ln_trainer *trainer, ln_trainer_info *out,
                                                   ln_error *err);

/* One step of a run. */
typedef struct ln_step_report {
    uint32_t size;     /* of the caller's struct: sizeof(ln_step_report) */
    int64_t step;      /* steps done, this one included: 1 after the first */
    int64_t steps;     /* of the whole run */
    int64_t tokens;    /* of the step's samples */
    int64_t n_targets; /* those that count in the loss */
    double epoch;      /* epochs that are done */
    double loss;       /* mean over the counted targets, before the update */
    double lr;         /* learning rate of the update */
    double grad_norm;  /* norm of the gradient, before clipping */
    double seconds, tok_s;
    uint64_t peak_bytes; /* maximum resident memory of the process so far */
    bool skipped;        /* loss or gradient was not finite, and nothing was updated */
    /* Of preferences: the share of the step's pairs whose chosen answer has the higher reward, and the mean
     * difference of the rewards; else NaN. */
    double accuracy, margin;
} ln_step_report;
/* A validation. */
typedef struct ln_valid_report {
    uint32_t size;           /* of the caller's struct: sizeof(ln_valid_report) */
    int64_t step;            /* steps done when it ran */
    double loss, perplexity; /* mean over all counted targets; exp(loss) */
    bool best;               /* the loss is the lowest so far */
    double accuracy, margin; /* as in ln_step_report; the perplexity is NaN then */
} ln_valid_report;
/* A text that the model has written after a step. */
typedef struct ln_text_report {
    uint32_t size; /* of the caller's struct: sizeof(ln_text_report) */
    int64_t step;
    size_t index, n; /* of the prompt, from 0, and the number of prompts */
    /* UTF-8, valid during the call: the prompt, as it was given or as the tokens of the sample read, and what
     * the model added to it */
    const char *prompt, *text;
    size_t prompt_bytes, text_bytes;
    int64_t n_tokens; /* of the text */
    bool ended;       /* by a stop token, which is no part of the text */
} ln_text_report;
/* Runs one step, then the optimiser. The third step in a row without a finite loss and gradient, and each
 * after it, is LN_ENUMERIC. LN_EUSAGE: all steps are done. The caller sets out->size. */
LN_API LN_MUST_CHECK ln_status ln_trainer_step(ln_trainer *trainer, ln_step_report *out, ln_error *err);
/* Validates (LN_EUSAGE: no samples); writes a checkpoint of the last step below `out`/checkpoints, whole or
 * not at all. */
LN_API LN_MUST_CHECK ln_status ln_trainer_eval(ln_trainer *trainer, ln_valid_report *out, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_trainer_save(ln_trainer *trainer, ln_error *err);
/* Goes back, or on, to the last valid checkpoint in `out`; *step: its number, 0 if there is none. */
LN_API LN_MUST_CHECK ln_status ln_trainer_resume(ln_trainer *trainer, int64_t *step, ln_error *err);
/* Writes the result as it is now to `dir`, with the chat template: the adapter in PEFT's layout, or the
 * model. LN_EIO. */
LN_API LN_MUST_CHECK ln_status ln_trainer_export(ln_trainer *trainer, const char *dir, ln_error *err);
/* A or B of matrix i / 2, i < 2 n_matrices, or tensor i < n_matrices: its name in the files of the result and
 * its values, f32 [rows, cols], borrowed until the trainer is freed; they change with each step. A vector has
 * one column. */
typedef struct ln_trained {
    const char *name;
    int64_t rows, cols;
    const float *values;
} ln_trained;
LN_API LN_MUST_CHECK ln_status ln_trainer_matrix(const ln_trainer *trainer, size_t i, ln_trained *out,
                                                 ln_error *err);

/* Called by ln_trainer_run; NULL: not called. LN_ECANCELLED ends the run after a checkpoint is saved. */
typedef struct ln_trainer_events {
    uint32_t size; /* sizeof(ln_trainer_events) */
    void *user;
    ln_status (*on_step)(void *user, const ln_step_report *report, ln_error *err);
    ln_status (*on_valid)(void *user, const ln_valid_report *report, ln_error *err);
    ln_status (*on_text)(void *user, const ln_text_report *report, ln_error *err);
} ln_trainer_events;
typedef struct ln_trainer_result {
    uint32_t size;     /* of the caller's struct: sizeof(ln_trainer_result) */
    int64_t steps;     /* steps done */
    int64_t best_step; /* the step of the lowest validation loss; 0: no validation has run */
    double best_loss;
    bool stopped_early; /* by ln_trainer_options.early_stop */
    bool cancelled;     /* by a callback */
} ln_trainer_result;
/* Runs the steps that are left, with validations and checkpoints in between. Writes below `out` the result
 * of the last step, that of the lowest validation loss (best/), checkpoints/, metrics.jsonl and loss.svg.
 * `events` NULL: none. Errors: those of ln_trainer_step, _eval and _save; the last checkpoint is intact. */
LN_API LN_MUST_CHECK ln_status ln_trainer_run(ln_trainer *trainer, const ln_trainer_events *events,
                                              ln_trainer_result *out, ln_error *err);

/* ---- graphs: gradients of a computation that the caller builds ---- */

/* A graph of values, each a matrix [rows, cols] of f32; a scalar is [1, 1]. Builders return the number of the
 * new value, -1 after a mistake: the first one is kept, and every later call that returns a status returns it
 * (LN_EUSAGE, with the shapes). Values need not be used, and building may go on after a run. One thread at a
 * time uses a graph. */
typedef struct ln_graph ln_graph;
/* Creates an empty graph. `opt` NULL: the defaults; only device and n_threads are used. The caller owns
 * *out; ln_graph_free. LN_EDEVICE: there is no such device. */
LN_API LN_MUST_CHECK ln_status ln_graph_new(ln_graph **out, const ln_options *opt, ln_error *err);
LN_API void ln_graph_free(ln_graph **graph);

/* Values with data: an input, a trainable, which ln_graph_adamw may change, and class labels [rows, 1],
 * int32. */
LN_API int32_t ln_graph_input(ln_graph *graph, int64_t rows, int64_t cols);
LN_API int32_t ln_graph_trainable(ln_graph *graph, int64_t rows, int64_t cols);
LN_API int32_t ln_graph_labels(ln_graph *graph, int64_t rows);
/* Elementwise, of values of one shape: a + b, a - b, a * b, a * by, a * a, SiLU, GELU by tanh. */
LN_API int32_t ln_graph_add(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_sub(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_mul(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_scale(ln_graph *graph, int32_t a, float by);
LN_API int32_t ln_graph_square(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_silu(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_gelu(ln_graph *graph, int32_t a);
/* a[R, C] b[C, D] -> [R, D]; softmax of each row; sum and mean of all elements, [1, 1]. */
LN_API int32_t ln_graph_matmul(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_softmax(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_sum(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_mean(ln_graph *graph, int32_t a);
/* a[R, C] b[D, C]^T and a[R, C]^T b[R, D]; a^T, by a product with the identity. */
LN_API int32_t ln_graph_matmul_nt(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_matmul_tn(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_transpose(ln_graph *graph, int32_t a);
/* Elementwise: max(a, 0), tanh, the logistic function, and a, at least low and at most high, whose slope is 1
 * between the bounds and 0 elsewhere. */
LN_API int32_t ln_graph_relu(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_tanh(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_sigmoid(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_clamp(ln_graph *graph, int32_t a, float low, float high);
/* Elementwise: e^a, natural logarithm, square root, a / b. What has no value is NaN or infinite, such as the
 * logarithm of 0, and so is its gradient. */
LN_API int32_t ln_graph_exp(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_log(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_sqrt(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_div(ln_graph *graph, int32_t a, int32_t b);
/* The elements of a, row by row, in another shape of as many. */
LN_API int32_t ln_graph_reshape(ln_graph *graph, int32_t a, int64_t rows, int64_t cols);
/* Ends a part of the graph, to save memory: gradients compute the values within it again instead of keeping
 * them, and keep only what later parts read. Call it after each layer of a deep network. No bit changes. */
LN_API void ln_graph_checkpoint(ln_graph *graph);
/* A number [1, 1], a row [1, C] or a column [R, 1] in every place of [rows, cols], for biases and factors. */
LN_API int32_t ln_graph_spread(ln_graph *graph, int32_t a, int64_t rows, int64_t cols);
/* The row of table[V, D] that each label chooses, [rows, D]: an embedding. It takes rows * V * 4 bytes. */
LN_API int32_t ln_graph_rows(ln_graph *graph, int32_t table, int32_t labels);
/* Sums of rows, [R, 1], and of columns, [1, C]. */
LN_API int32_t ln_graph_row_sums(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_column_sums(ln_graph *graph, int32_t a);
/* Columns at .. at + cols - 1; the columns of a, then those of b. */
LN_API int32_t ln_graph_slice(ln_graph *graph, int32_t a, int64_t at, int64_t cols);
LN_API int32_t ln_graph_concat(ln_graph *graph, int32_t a, int32_t b);
/* Each row divided by the root of the mean of its squares + eps; times weight[1, C], unless that is -1. */
LN_API int32_t ln_graph_rmsnorm(ln_graph *graph, int32_t a, int32_t weight, float eps);
/* The mean over rows of log(1 + e^x) - x y, of logits x[rows, 1] and targets y[rows, 1] from 0 to 1. */
LN_API int32_t ln_graph_binary_cross_entropy(ln_graph *graph, int32_t logits, int32_t targets);
/* Losses, [1, 1]. cross_entropy: the mean over rows of log sum exp(logits) - logits[label].
 * masked_cross_entropy: the same mean weighted by an input mask[rows, 1] and divided by its sum; running it
 * is LN_EINVALID if the sum is 0. mse: the mean of (a - b)^2. */
LN_API int32_t ln_graph_cross_entropy(ln_graph *graph, int32_t logits, int32_t labels);
LN_API int32_t ln_graph_masked_cross_entropy(ln_graph *graph, int32_t logits, int32_t labels, int32_t mask);
LN_API int32_t ln_graph_mse(ln_graph *graph, int32_t a, int32_t b);

/* Copies data [rows * cols] into an input or a trainable, labels [rows] into labels (each from 0 below the
 * columns of the logits, else a run is LN_EINVALID), and out of an input or a trainable. */
LN_API LN_MUST_CHECK ln_status ln_graph_set(ln_graph *graph, int32_t value, const float *data, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_graph_set_labels(ln_graph *graph, int32_t value, const int32_t *labels,
                                                   ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_graph_get(ln_graph *graph, int32_t value, float *out, ln_error *err);

/* Computes y into value (its rows * cols elements, NULL: not wanted). For each of n values wrt[i] it
 * computes the gradient of the scalar y into grads[i], of the shape of wrt[i]; it is zero if y does not
 * depend on wrt[i]. n 0: y alone, which may then have any shape. The first call for the same y and wrt
 * prepares a program, which later calls use. */
LN_API LN_MUST_CHECK ln_status ln_graph_value_and_grad(ln_graph *graph, int32_t y, const int32_t *wrt,
                                                       size_t n, float *value, float *const *grads,
                                                       ln_error *err);
/* The vector-Jacobian product: gradients of the sum of cotangent * y, cotangent having the shape of y. */
LN_API LN_MUST_CHECK ln_status ln_graph_vjp(ln_graph *graph, int32_t y, const float *cotangent,
                                            const int32_t *wrt, size_t n, float *value, float *const *grads,
                                            ln_error *err);
/* The Jacobian-vector product: the derivative of y in the direction tangents[i] of each wrt[i], into
 * `tangent`, of the shape of y. LN_EUNSUPPORTED: an op, which the message names, has no rule for it. */
LN_API LN_MUST_CHECK ln_status ln_graph_jvp(ln_graph *graph, int32_t y, const int32_t *wrt,
                                            const float *const *tangents, size_t n, float *value,
                                            float *tangent, ln_error *err);

/* AdamW, decoupled decay: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p = p (1 - lr
 * weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps). */
typedef struct ln_adamw {
    uint32_t size;
    double lr, beta1, beta2, eps, weight_decay;
} ln_adamw;
LN_DEFAULT(ln_adamw) /* lr 1e-5, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0.01 */
/* Updates n different trainables by their gradients. The graph keeps the moments of each and the number t of
 * calls. LN_ENUMERIC: a gradient, or what would become of a value, is NaN or infinite; nothing is updated. */
LN_API LN_MUST_CHECK ln_status ln_graph_adamw(ln_graph *graph, const ln_adamw *how, const int32_t *params,
                                              const float *const *grads, size_t n, ln_error *err);
/* Forgets the moments and the number of calls. */
LN_API LN_MUST_CHECK ln_status ln_graph_adamw_reset(ln_graph *graph, ln_error *err);

#ifdef __cplusplus
}
#endif
#endif
