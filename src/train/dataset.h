/* Training data: JSONL files read into token ids with a mask of the targets that count.
 *
 * A line is an object of one of four kinds, the same in all lines of a file:
 *   {"messages": [...], "tools"?, "documents"?, "kwargs"?}   a conversation; the assistant's tokens count
 *   {"prompt": text, "completion": text}                     the tokens of the completion count
 *   {"text": text}                                           all tokens but the first count
 *   {"ids": [...], "mask"?: [...]}                           ids as they are; mask[t] = 1: predicting ids[t]
 *                                                            counts; without a mask all but the first count
 * or what other tools write for these (foreign_lines.h).
 * A conversation is rendered by the model's chat template, and so is a pair of prompt and completion if the
 * model has a template, as one message of the user and one of the assistant. Other texts are tokenised with
 * the tokens that the post-processor adds, and end with the model's first stop id. Nothing is appended to
 * ids.
 *
 * All lines are read, checked and tokenised before training starts. Nothing is left out in silence: samples
 * that are cut to the length limit, samples without a counted target, which are dropped, and turns of the
 * assistant that could not be located are counted, and bad lines are named by file and line. */
#ifndef LN_DATASET_H
#define LN_DATASET_H

#include "../package/package.h"

typedef enum train_kind { TRAIN_CHAT, TRAIN_PAIR, TRAIN_TEXT, TRAIN_ROWS, TRAIN_N_KINDS } train_kind;
const char *train_kind_name(train_kind kind);

/* One sample: n tokens from ids[at], of which n_counted are counted targets (at least 1). */
typedef struct train_sample {
    size_t at;
    uint32_t n, n_counted;
    uint64_t line;   /* of the file, from 1, in which its record begins */
    uint64_t record; /* of the file, from 1: a line, an item of an array, or a row */
} train_sample;

/* The bit of an id whose prediction counts. Token ids are below 2^31. */
#define TRAIN_COUNTED UINT32_C(0x80000000)

typedef struct train_data {
    char path[4096];
    train_kind kind;
    uint32_t *ids; /* [n_ids] of all samples, one after another; with TRAIN_COUNTED if the target counts */
    size_t n_ids, cap_ids;
    train_sample *samples; /* [n] in the order of the file */
    size_t n, cap;
    uint64_t n_counted;                 /* targets of all samples */
    uint32_t longest;                   /* tokens of the longest sample */
    size_t n_lines;                     /* that are not blank */
    size_t n_read;                      /* samples that were read, dropped ones included */
    size_t n_cut;                       /* samples that were longer than the limit */
    size_t n_dropped;                   /* samples without a counted target */
    uint64_t first_dropped;             /* line of the first of these */
    size_t n_unmatched;                 /* turns of the assistant that could not be located */
    size_t n_parted;                    /* turns that lack the end of the header of an answer */
    bool in_pairs;                      /* samples 2 i and 2 i + 1 are the chosen and the rejected answer */
    size_t n_own;                       /* samples of turns that the template changes later (train_reader) */
    char digest[LN_SHA256_HEX];         /* of the file's bytes */
    char samples_digest[LN_SHA256_HEX]; /* of the ids and of which of them count, sample by sample */
    char unread[256]; /* names of members that are not read, separated by commas; "" if none */
} train_data;

/* Reads the file `path`; in_pairs: of preferences (pair_lines.h), each line being two samples. Samples are
 * cut to their first max_length tokens. `now`: the time that templates write, the same in all samples
 * (ln_conversation). `fields`: ln_trainer_options.fields. The caller closes *out, after an error too.
 * LN_EINVALID: a line is bad; each of the first 20 is logged as an error with file and line, and the message
 * names the first one and their number. Also if no sample is left. LN_EUNSUPPORTED: the file is compressed,
 * Parquet or CSV, or needs a chat template that the model does not have. LN_EIO: the file cannot be read. */
ln_status train_data_open(train_data *out, const ln_package *m, const char *path, int64_t max_length,
                          bool in_pairs, const char *now, const char *fields, ln_error *err);
/* Moves the samples of *more, which the caller closes, behind those of *d. LN_EMEMORY. */
ln_status train_data_append(train_data *d, train_data *more, ln_error *err);
void train_data_close(train_data *d);
/* Logs what was cut, dropped, not located and not read. */
void train_data_say(const train_data *d);

/* The files of --data and --valid: `data` is a file, or a directory with train.jsonl and perhaps valid.jsonl
 * or validation.jsonl. *valid is set to "" if there is none; `valid_file`, unless NULL, replaces it. LN_EIO:
 * a file does not exist. */
ln_status train_data_paths(const char *data, const char *valid_file, char train[4096], char valid[4096],
                           ln_error *err);

/* sample_reader.c: one line to samples. */
typedef struct train_line_report {
    size_t n_unmatched; /* turns that could not be located */
    size_t n_parted;    /* turns that lack the end of the header of an answer */
    size_t n_own; /* samples that end with a turn that is rendered differently once more messages follow */
    char *unread; /* [256] names of members that are not read; new names are added */
} train_line_report;
/* How lines become samples. */
typedef struct train_reader {
    const ln_package *m;
    const char *now;    /* as in train_data_open */
    const char *fields; /* ln_trainer_options.fields */
    train_kind kind;    /* TRAIN_N_KINDS before the first line, then the kind of all */
    train_line_report report;
    ln_ids ids; /* of the sample that is added, and its mask, one byte a token: predicting ids[t] counts if
                   mask[t] is 1 */
    ln_str mask;
    /* Called for each sample of a line with ids and mask, which it may not keep. */
    ln_status (*add)(void *user, const ln_ids *ids, const ln_str *mask, ln_error *err);
    void *user;
} train_reader;
/* Tokenises one line and adds its samples: one, or one more for each turn of the assistant that the template
 * renders differently once more messages follow; such a sample ends with that turn. LN_EINVALID,
 * LN_EUNSUPPORTED: the line is bad, and nothing was added; the message names neither file nor line.
 * LN_EMEMORY, and what `add` returns. */
ln_status train_line_read(train_reader *r, const char *text, size_t bytes, ln_error *err);
void train_reader_close(train_reader *r);
/* Appends the ids of a text as those of a sample begin: with the tokens of the post-processor, and one bos at
 * most. */
ln_status train_text_ids(const ln_package *m, const char *text, size_t bytes, ln_ids *out, ln_error *err);
/* Rejects ids that the model has no embedding for: a tokenizer may have more. */
ln_status train_ids_check(const ln_package *m, const ln_ids *ids, ln_error *err);

#endif
