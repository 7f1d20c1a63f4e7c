/* Files of requests: IN, a line a request, is answered line by line into OUT.
 *
 * IN is validated and digested in one pass before anything runs; of each line its offset and a hash of its
 * custom_id are kept, nothing else, so that a million lines take about 32 MB. OUT holds complete lines only:
 * each is written by one call, and what follows the last newline is dropped when the file is opened again.
 * The file OUT.state, there from before the first answer until after the last, binds OUT to the digest of IN
 * and to the model and conditions that answer it. OUT is locked while a process writes it. */
#ifndef LN_BATCH_H
#define LN_BATCH_H

#include <linnet_tools.h>

#include "../base/json.h"
#include "../base/line_reader.h"
#include "../base/rank_exchange.h"
#include "../base/sha256.h"
#include "../base/text_memory.h"
#include "../wire/wire.h"

/* The longest line, in bytes. */
enum { BATCH_MOST_LINE = 64 << 20 };

/* ---- names of models (batch_names.c) ---- */

/* Sets the names that bodies may choose, and their adapters: `name`, those of opt->adapters, `path` (may be
 * ""), opt->aliases. One block of memory, t->names, which the caller frees. */
ln_status batch_name_models(wire_target *t, const char *name, const char *path, const ln_batch_options *opt,
                            ln_error *err);

/* ---- the requests (batch_input.c) ---- */

typedef struct batch_input {
    ln_account texts; /* the index, and a line while the file is validated */
    int fd;
    const char *path; /* borrowed */
    uint64_t *offset; /* [n + 1] of each request's line; the last is the end of the file */
    uint64_t *hash;   /* [n] of its custom_id */
    uint8_t *done;    /* [n] it has an answer */
    size_t n, cap, cap_hash;
    uint32_t *table; /* [n_table], a power of two: requests by hash, + 1; 0: free */
    size_t n_table;
    uint64_t bytes;
    int64_t changed[2]; /* modification time: seconds, nanoseconds */
    char digest[LN_SHA256_HEX];
} batch_input;

/* One line of IN. */
typedef struct batch_line {
    ln_str custom_id, method, url;
    const char *body; /* borrowed from the line */
    size_t body_bytes;
} batch_line;
void batch_line_free(batch_line *line);
/* Reads a line. LN_EINVALID: it is no request; the message does not name the line. */
ln_status batch_line_read(batch_line *out, const char *text, size_t bytes, ln_error *err);

/* Validates the file and finds its lines. LN_EINVALID names the first line that is no request or repeats a
 * custom_id. The caller closes *in, after an error too. */
ln_status batch_input_open(batch_input *in, const char *path, ln_error *err);
void batch_input_close(batch_input *in);
/* Reads line i again: *text [NUL-terminated] is owned by the caller. LN_ECHANGED: the file was written to. */
ln_status batch_input_line(const batch_input *in, size_t i, char **text, size_t *bytes, ln_error *err);
/* The number of line i in the file, which blank lines may precede. */
ln_status batch_input_number(const batch_input *in, size_t i, uint64_t *number, ln_error *err);
/* The request of that custom_id, or SIZE_MAX. */
ln_status batch_input_find(const batch_input *in, const char *id, size_t bytes, size_t *out, ln_error *err);

/* ---- the answers (batch_output.c) ---- */

typedef struct batch_output {
    int fd;
    const char *path; /* borrowed */
    char *state;      /* path of the state */
    uint64_t end;     /* bytes of complete lines */
    double synced;    /* when the file was last synced */
    size_t n_failed;  /* answers in the file that are errors */
} batch_output;

/* What OUT is bound to. */
typedef struct batch_binding {
    const char *digest;     /* of IN */
    const char *model;      /* digest of the model */
    const char *conditions; /* text */
} batch_binding;

/* Opens or continues the answers to `in` and marks the existing ones as done. Errors: see ln_batch. The
 * caller closes *out, after an error too; that keeps both files. */
ln_status batch_output_open(batch_output *out, const char *path, batch_input *in, const batch_binding *to,
                            bool force, ln_error *err);
/* Adds one line, which ends with a newline. LN_EIO: it could not be written whole; the file ends as before.
 */
ln_status batch_output_add(batch_output *out, const char *line, size_t bytes, ln_error *err);
/* Syncs the answers and removes the state: all is done. */
ln_status batch_output_finish(batch_output *out, ln_error *err);
void batch_output_close(batch_output *out);

/* ---- running (batch_run.c) ---- */

/* The kind of a line's body. False: *why says that its url or method is not answered. */
bool batch_line_kind(const batch_line *line, wire_kind *kind, wire_error *why);

/* Answers the requests of `in` with `engine`, which runs n_parallel at once; the contract is ln_batch's.
 * `model` is the digest of the model that the engine has. ranks: the group whose ranks share the requests;
 * NULL: this process is alone. */
ln_status batch_run(ln_engine *engine, ln_transport *ranks, int n_parallel, const wire_target *target,
                    const char *model, const char *in, const char *out, const ln_batch_options *opt,
                    ln_batch_report *report, ln_error *err);
/* The same if `by` gives the whole result of one choice, and choices are answered one after another. It can
 * neither give log-probabilities nor repeat a prompt as text: bodies that ask for that are rejected. */
typedef ln_status batch_answer_fn(void *user, const ln_prompt *prompt, const ln_sampling *how, ln_result *out,
                                  ln_error *err);
ln_status batch_run_with(batch_answer_fn *by, void *user, const wire_target *target, const char *model,
                         const char *in, const char *out, const ln_batch_options *opt,
                         ln_batch_report *report, ln_error *err);

#endif
