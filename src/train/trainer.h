/* The trainer: data, program, optimiser state and files of one run (the contracts are in linnet.h).
 *
 * A step takes the next batch * accum samples of the order, packs them into micro-batches of at most n_rows
 * tokens, sums loss and gradients over all of them, divides by the number of counted targets and updates the
 * parameters. All that the next step depends on is train_state and the settings, which are what a checkpoint
 * holds: a run that is resumed continues to the same bits. */
#ifndef LN_TRAINER_H
#define LN_TRAINER_H

#include "../run/adamw.h"
#include "optimiser.h"
#include "../run/train_program.h"
#include "checkpoint.h"
#include "dataset.h"
#include "event_file.h"
#include "run_record.h"
#include "schedule.h"
#include "train.h"

/* A sample of a preference in a pass over samples. */
typedef struct train_scored {
    bool whole;        /* all of its tokens are targets, not only those that count */
    double logp, all;  /* evaluated: sums of log-probabilities of the targets that count, and of all */
    double by, by_all; /* trained: the weights of their losses */
} train_scored;

enum { TRAIN_MOST_PROMPTS = 64 };
/* A prompt that the model continues while it trains. */
typedef struct train_prompt {
    const char *text; /* of reports */
    size_t bytes;
    int32_t *ids;              /* [n_prompt + how.sample_tokens] the prompt, then */
    int32_t n_prompt, n_guess; /* n_guess tokens, with which the next text may begin */
} train_prompt;

struct train_trainer {
    const ln_package *m;
    const struct train_method *method;
    const struct train_preference *preference;
    const train_optimiser *optimiser;
    ln_trainer_options how; /* with defaults; its texts are copies in the arena */
    ln_arena arena;
    uint64_t memory_bytes;
    ln_train_options program_options;
    ln_train_program *program;
    ln_trainer_info info;
    train_data data, valid; /* valid: of a file of its own */
    /* [n_train], [n_valid] indices of samples of data, or of `valid`; of preferences those of pairs, which
     * have samples 2 i and 2 i + 1 */
    uint32_t *train_rows, *valid_rows;
    size_t n_train, n_valid;
    train_share *shares;      /* [n_shares] of the files, if there are several */
    size_t n_shares, n_epoch; /* n_epoch: samples, or pairs, of an epoch */
    bool valid_is_split;      /* valid_rows are samples of `data` */
    train_schedule schedule;
    train_order order;
    train_state state;
    train_found found; /* the checkpoint that a resumed run begins with */
    char time[32];     /* that templates write into samples: that of the start of the run, resumed or not */
    json_t *settings, *adapter_config;
    int lock; /* descriptor of `out`, locked; -1 */
    train_metrics metrics;
    train_events events;
    ln_transport *ranks; /* that share the micro-batches of a step; NULL: there is one */
    bool writes;         /* this process writes the files of the run */
    float *sum;          /* [trained numbers] of ranks: sum of the gradients of a step */
    float *piece;        /* [TRAIN_PIECE] what is exchanged, and */
    float *gathered;     /* [ranks, TRAIN_PIECE] what has arrived */
    /* of a step */
    size_t per_step;                 /* batch * accum */
    uint32_t *chosen, *sizes, *bins; /* [most], most: the larger of the samples of a step and EVAL_SAMPLES */
    uint64_t *scratch;               /* [2 most] */
    int32_t *ids, *row0, *targets;   /* [n_rows], [most + 1], [n_rows] */
    int32_t *lengths;                /* [most] */
    /* of preferences; NULL: there are none */
    train_scored *scored;        /* [most] of the samples in `chosen` */
    float *weights, *row_losses; /* [n_rows] */
    train_prompt *prompts;       /* [n_prompts] */
    size_t n_prompts;
    int32_t *next;           /* [how.sample_tokens] predicted tokens */
    double *was, *was_valid; /* by sample of data and of valid: log-probabilities before the first step */
    uint64_t *uses;          /* [most] */
};

/* train_ranks.c: ranks train together. Micro-batch i of a step belongs to rank i mod N; all ranks add losses
 * and gradients in the order of micro-batches, so that they have the sums of one rank, and make the same
 * update. */
typedef struct train_sums {
    double loss;
    int64_t n_counted, n_tokens;
    bool finite;
} train_sums;
enum { TRAIN_PIECE = 1 << 18 }; /* numbers that are exchanged at a time */
/* Bytes of `sum` and `gathered`; 0 without ranks. */
uint64_t train_ranks_bytes(const train_trainer *t, uint64_t n_numbers);
/* Allocates them, and checks that all ranks have opened the same run, with these statuses. */
ln_status train_ranks_open(train_trainer *t, ln_status st, ln_error *err);
/* Checks it again, with the state that a run begins with. */
ln_status train_ranks_compare(train_trainer *t, ln_status st, ln_error *err);
/* Ends a round of N micro-batches, of which this rank has run `mine`, or none (NULL): adds what all ranks
 * have computed to *out and, if it `trains`, to t->sum. st: of the rank. LN_EDEVICE, errors of other ranks.
 */
ln_status train_ranks_round(train_trainer *t, ln_status st, const ln_train_result *mine, bool trains,
                            train_sums *out, ln_error *err);
/* Sets the scores of the n samples of an evaluation, each of which the rank of its micro-batch has, on all
 * ranks. LN_EDEVICE. */
ln_status train_ranks_scores(train_trainer *t, size_t n, ln_error *err);
/* Begins and ends the sum of a step. */
void train_ranks_clear(train_trainer *t);
void train_ranks_finish(train_trainer *t);

enum { EVAL_SAMPLES = 64 }; /* samples of a validation that are packed together */

/* trainer_data.c: reads the samples, and decides which validate and which an epoch has. */
ln_status train_read_data(train_trainer *t, ln_error *err);

/* train_texts.c: texts that the model writes while it trains. LN_EUSAGE: an option that is of them. */
ln_status train_prompts_check(const ln_trainer_options *o, ln_error *err);
/* Reads the prompts, and sets the options of the program that are of them. */
ln_status train_prompts_read(train_trainer *t, ln_error *err);
/* Continues the prompt i by the likeliest tokens. The text is added to *text, and *out has the rest of the
 * report. LN_EDEVICE, LN_EMEMORY. */
ln_status train_text(train_trainer *t, size_t i, ln_str *text, ln_text_report *out, ln_error *err);

/* trainer_targets.c: which matrices are trained, with which rank and scale; from options or from an adapter.
 */
ln_status train_targets(train_trainer *t, ln_lora *out, ln_error *err);
/* Copies the values of the adapter how->init_adapter to the parameters. */
ln_status train_init_values(const ln_package *m, const char *dir, train_param *params, size_t n,
                            ln_error *err);
/* run_configs.c. Objects for adapter_config.json, and the settings that decide the bits; the caller owns
 * them. */
ln_status train_configs(train_trainer *t, ln_error *err);

/* trainer.c: runs the n samples of d in t->chosen in packed micro-batches, and adds to *out. use0: the number
 * of the first one's use, for dropout. Of preferences it adds to the scores, or trains by their weights. */
ln_status train_run_samples(train_trainer *t, const train_data *d, size_t n, uint64_t use0, bool trains,
                            train_sums *out, ln_error *err);

/* pair_steps.c: preferences. Samples that a pair has, and whether there are pairs. */
bool train_is_in_pairs(const train_trainer *t);
static inline size_t train_per_unit(const train_trainer *t) { return train_is_in_pairs(t) ? 2 : 1; }
/* Allocates t->was and t->was_valid, if the preference needs them. LN_EMEMORY. */
ln_status train_pairs_open(train_trainer *t, ln_error *err);
/* Computes what the answers' log-probabilities are before the first step, with the parameters as they are. */
ln_status train_pairs_begin(train_trainer *t, ln_error *err);
/* A step of the samples in t->chosen, which leaves its gradient; a validation. */
ln_status train_pairs_step(train_trainer *t, uint64_t use0, ln_step_report *out, bool *finite, ln_error *err);
ln_status train_pairs_eval(train_trainer *t, const train_data *d, ln_valid_report *out, ln_error *err);

/* trainer.c: the directory of checkpoints; reads the state of a checkpoint, or of none. */
void train_checkpoints(const train_trainer *t, char path[4096 + 16]);
ln_status train_resume_from(train_trainer *t, const train_found *f, int64_t *step, ln_error *err);

#endif
