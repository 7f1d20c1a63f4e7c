/* The tensors of a checkpoint that do not fit its config.json: missing or misshapen ones are gathered while
 * weights are bound, and rejected together in one message, because a checkpoint that lacks one tensor usually
 * lacks many. */
#ifndef LN_BIND_REPORT_H
#define LN_BIND_REPORT_H

#include "../io/io.h"

typedef struct ln_bind_report {
    const ln_tensors *t;
    ln_str list; /* descriptions of the first 8 */
    size_t n_bad;
    const struct ln_absent *gone; /* the first of them whose shard does not exist, or NULL */
    size_t n_gone;                /* how many of them */
} ln_bind_report;

/* Records that tensor `name` is wrong; `text` follows its name. */
void ln_report_fault(ln_bind_report *r, const char *name, const char *text);
/* Whether the index of the shards places a tensor in a file that does not have it; records that. */
bool ln_report_misplaced(ln_bind_report *r, const char *name);
/* Whether a tensor has the shape [dims[0], ...]; records it as misshapen otherwise. `why` follows the
 * expected shape in the message. */
bool ln_report_shape(ln_bind_report *r, const ln_tensor *x, int n_dims, const int64_t *dims, const char *why);
/* Frees the report. LN_EIO, LN_EINVALID: something was recorded. */
ln_status ln_report_end(ln_bind_report *r, ln_error *err);

/* Whether linnet computes with elements as this tensor stores them; then *out is their dtype. */
bool ln_tensor_is_computed(const ln_tensor *x, ln_dtype *out);
/* LN_EUNSUPPORTED: a tensor is stored as what is not `wanted`. */
ln_status ln_tensor_unsupported(const ln_tensors *t, const ln_tensor *x, const char *wanted, ln_error *err);

#endif
