/* Checkpoints: everything that a run needs to continue to the same bits, written whole or not at all.
 *
 * A checkpoint is a directory step-N below `dir`: if an adapter is trained, that in PEFT's layout
 * (adapter_model.safetensors, adapter_config.json), train_state.safetensors with parameters and moments in
 * f32, and manifest.json, written last, with step, position in the data, settings, and the size and SHA-256
 * of every file and of itself. It is written under a temporary name in the same directory; every file is
 * synced, then the directory is renamed and its parent synced. A kill at any moment leaves the checkpoints
 * before it as they were.
 *
 * Readers trust no name: they scan the directory, take the highest step whose manifest and hashes verify, and
 * name each damaged checkpoint that they pass over. */
#ifndef LN_CHECKPOINT_H
#define LN_CHECKPOINT_H

#include "../base/json.h"
#include "../base/sha256.h"
#include "batches.h"

/* A trainable matrix of f32 with its moments, each [rows, cols]. */
typedef struct train_param {
    char name[224]; /* of its tensor in PEFT's layout */
    int64_t rows, cols;
    bool is_vector;       /* files have one dimension of it; cols is 1 */
    bool is_turned;       /* adapters have [cols, rows] of it */
    float *value, *m, *v; /* m, v: NULL if the optimiser has fewer moments (train_state.n_moments) */
    /* moments of 8 bits instead of m and v (moments.h): codes, and the largest numbers of blocks; else NULL
     */
    uint8_t *m8, *v8;
    float *m_most, *v_most;
} train_param;

/* The state of a run between two steps. */
typedef struct train_state {
    train_param *params; /* [n_params] */
    size_t n_params;
    int n_moments;     /* of each number: train_param.m, and v */
    int64_t step;      /* steps that are done */
    int64_t n_updates; /* of them, those that updated the parameters */
    int64_t n_bad;     /* the last steps in a row that did not */
    train_cursor cursor;
    uint64_t n_tokens;          /* targets trained so far */
    int64_t valid_step;         /* of the last validation */
    int64_t best_step, n_worse; /* of validations: the best one (0: none yet), and those after it */
    double best_loss;
} train_state;

/* What a checkpoint is written with. */
typedef struct train_save {
    const json_t *settings;       /* an object: all that decides the bits of the run */
    const char *time;             /* that the templates of the samples have written */
    const json_t *adapter_config; /* adapter_config.json; NULL: the state alone is written */
    bool bf16;                    /* dtype of the adapter's file; the state is f32 */
    int keep;                     /* checkpoints that are kept, at least 2 */
} train_save;

/* Writes the checkpoint of s->step below `dir`, which exists, then removes older ones beyond `keep` valid
 * ones. An existing valid one is kept as it is. LN_EIO: nothing was changed. */
ln_status train_checkpoint_write(const char *dir, const train_state *s, const train_save *how, ln_error *err);

/* A checkpoint that verifies. */
typedef struct train_found {
    char path[4096];
    int64_t step;
    json_t *manifest; /* owned */
    size_t n_damaged; /* checkpoints above it, or all if there is none */
} train_found;
/* Finds the highest step whose checkpoint verifies; out->step is 0 and manifest NULL if there is none. Each
 * damaged one above it is logged as a warning with the file and what is wrong. LN_EIO: `dir` cannot be
 * listed. */
ln_status train_checkpoint_find(const char *dir, train_found *out, ln_error *err);
void train_found_free(train_found *f);
/* Verifies one checkpoint. LN_EINVALID: it is damaged. LN_EUNSUPPORTED: it was written by a newer version.
 * *manifest is owned by the caller. */
ln_status train_checkpoint_verify(const char *path, json_t **manifest, ln_error *err);
/* Reads the state into *s, whose params the caller has set up. LN_EINVALID: other parameters or shapes, or a
 * value that no run writes. */
ln_status train_checkpoint_read(const train_found *f, train_state *s, ln_error *err);
/* LN_EUSAGE if the settings of a checkpoint differ from `now`, LN_EINVALID if digests of the model or the
 * data are among them; the message lists the names, with both values unless they are digests. */
ln_status train_settings_check(const train_found *f, const json_t *now, ln_error *err);

/* Removes what killed processes left in `dir`, that of checkpoints. Only for the process that holds the lock
 * of the run's directory, as the next one. */
void train_checkpoint_sweep(const char *dir);
/* Removes checkpoints that are older than the newest `keep` (at least 2) valid ones: a process that was
 * killed after a save may have left one more. */
ln_status train_checkpoint_prune(const char *dir, int keep, ln_error *err);
/* Removes the temporary files of train_file_write that killed processes left in `dir`, which may be absent.
 */
void train_files_sweep(const char *dir);

/* ---- adapter_file.c ---- */

/* Writes adapter_model.safetensors and adapter_config.json into `dir`, replacing files of these names, each
 * atomically. `hashes`, unless NULL, receives {name: {"bytes", "sha256"}} of both. */
ln_status train_adapter_write(const char *dir, const train_param *params, size_t n, bool bf16,
                              const json_t *config, json_t *hashes, ln_error *err);
/* Writes one file atomically from parts; adds its size and hash to `hashes` unless NULL. */
typedef struct train_part {
    const void *data;
    size_t bytes;
} train_part;
ln_status train_file_write(const char *dir, const char *name, const train_part *parts, size_t n,
                           json_t *hashes, ln_error *err);
/* Writes a JSON value as a file of that name. */
ln_status train_json_write(const char *dir, const char *name, const json_t *value, json_t *hashes,
                           ln_error *err);

#endif
