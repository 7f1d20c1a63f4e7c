/* The backend mlx_lm: mlx-lm in a child process.
 *
 *   mlx_lm.c       loading, facts, defaults, the end
 *   mlx_call.c     one request: its messages, cancelling, time limits
 *   mlx_answer.c   the calls: generate, classify, inspect
 *   mlx_request.c  prompts and samplings as JSON
 *
 * A request is a line, its answer a sequence of messages with the request's id. After a cancel the call waits
 * ANSWER_TO_CANCEL seconds for the last message and returns without it then; what still comes has an older id
 * than the next request and is dropped. A message that is none, or silence beyond the limit, kills the
 * process: the model can only be closed afterwards. */
#ifndef LN_CHILD_MLX_LM_H
#define LN_CHILD_MLX_LM_H

#include <linnet_backend.h>

#include "../base/json.h"
#include "../base/json_write.h"
#include "../io/io.h"
#include "child.h"

extern const ln_backend ln_mlx_backend;

typedef struct ln_mlx {
    ln_child *child;
    double reply_seconds, load_seconds; /* load: that it took */
    uint64_t next_id;
    int64_t n_ctx, n_chunk; /* 0: the defaults */
    ln_info info;
    ln_genconfig gen;
    bool has_gen;
    ln_progress progress;
} ln_mlx;

/* ---- mlx_call.c ---- */

typedef struct ln_mlx_call {
    ln_mlx *m;
    uint64_t id;
    const ln_backend_sink *sink; /* NULL: the call cannot be stopped */
    double limit, heard;         /* longest silence; when the last message came */
    bool cancelled;
    double cancelled_at;
    json_t *message; /* the last one */
    const char *event;
} ln_mlx_call;

/* Begins a request: appends {"id":N,"cmd":"CMD" to *line, whose other members and closing brace follow. */
void ln_mlx_begin(ln_mlx_call *call, ln_mlx *m, const char *cmd, const ln_backend_sink *sink, ln_str *line);
/* Sends the line, and frees it. */
ln_status ln_mlx_send(ln_mlx_call *call, ln_str *line, ln_error *err);
/* Moves the next message of the request to call->message and call->event. call->event is NULL if the request
 * was cancelled and its last message does not come in time. An event "error" becomes the status that it
 * names. */
ln_status ln_mlx_next(ln_mlx_call *call, ln_error *err);
/* Asks the process to end the request, once. */
ln_status ln_mlx_cancel(ln_mlx_call *call, ln_error *err);
void ln_mlx_done(ln_mlx_call *call); /* frees the last message */
/* Fails for a message that is not what the protocol says, and kills the process. */
ln_status ln_mlx_broken(ln_mlx *m, ln_error *err, const char *fmt, ...) LN_PRINTF(3, 4);
/* Members of call->message. Another type or no such member breaks the protocol. */
ln_status ln_mlx_int(ln_mlx_call *call, const char *name, int64_t lo, int64_t hi, int64_t *out,
                     ln_error *err);
ln_status ln_mlx_real(ln_mlx_call *call, const char *name, double *out, ln_error *err);
ln_status ln_mlx_bool(ln_mlx_call *call, const char *name, bool *out, ln_error *err);
ln_status ln_mlx_text(ln_mlx_call *call, const char *name, const char **text, size_t *bytes, ln_error *err);
ln_status ln_mlx_list(ln_mlx_call *call, const char *name, const json_t **out, ln_error *err);
/* Adds the f32 values of a message with at, total and data (base64) to *values; *full: all have arrived. The
 * first piece allocates; the caller frees *values. `most`: more values break the protocol. */
ln_status ln_mlx_array(ln_mlx_call *call, float **values, size_t *n, size_t most, bool *full, ln_error *err);

/* ---- mlx_request.c ---- */

/* Append `,"prompt":{...}` and `,"sampling":{...}`; LN_EUSAGE, LN_EINVALID: as ln_prompt_ids.
 * LN_EUNSUPPORTED: a field that mlx_lm does not honour. *seed: that of sampling. */
ln_status ln_mlx_put_prompt(ln_str *line, const char *key, const ln_prompt *p, ln_error *err);
ln_status ln_mlx_put_sampling(ln_str *line, const ln_sampling *how, uint64_t *seed, ln_error *err);

/* ---- mlx_answer.c ---- */

ln_status ln_mlx_generate(void *model, const ln_prompt *prompt, const ln_sampling *sampling,
                          const ln_backend_sink *sink, ln_backend_end *end, ln_error *err);
ln_status ln_mlx_classify(void *model, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                          ln_class_fn *fn, void *user, const ln_backend_sink *sink, ln_metrics *metrics,
                          ln_error *err);
ln_status ln_mlx_inspect(void *model, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                         const ln_backend_sink *sink, ln_error *err);

#endif
