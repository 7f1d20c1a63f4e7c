/* Inspection of programs and measurement of their speed. The functions that correspond to ln_explain, ln_diff
 * and ln_bench have the contracts of linnet.h; the ln_options have passed the checks of src/api. */
#ifndef LN_INSPECT_H
#define LN_INSPECT_H

#include "../engine/engine.h"

ln_status ln_eng_explain(ln_eng *e, int64_t n_rows, int64_t depth, int n_reps, ln_node_fn *fn, void *user,
                         ln_program_report *out, ln_error *err);
/* Runs ids[0..n) through sequence 0 of both engines, DIFF_ROWS rows at a time, and compares them node by
 * node. Both sequences must be empty, and n_chunk and n_logits of the engines equal. LN_EINTERNAL: a node
 * differs by more than its bound, after all were reported. */
ln_status ln_eng_diff(ln_eng *ref, ln_eng *other, const int32_t *ids, int64_t n, ln_node_fn *fn, void *user,
                      ln_error *err);
ln_status ln_diff_model(const ln_package *m, const ln_options *opt, const int32_t *ids, int64_t n,
                        ln_node_fn *fn, void *user, ln_error *err);
ln_status ln_bench_model(const ln_package *m, const ln_options *opt, const ln_bench_options *how,
                         ln_bench_fn *fn, void *user, ln_bench_report *out, ln_error *err);
/* Returns n pseudo-random ids of the vocabulary, the same in every run. The caller owns them (ln_free); NULL
 * when the allocation fails. */
int32_t *ln_eng_random_ids(const ln_package *m, int64_t n);
double ln_median(double *x, int n); /* the median of x[0..n), n > 0, which it sorts */

/* Makes ids[0..depth) the tokens of a sequence, whatever it held before, with a prefill of those that it
 * lacks. */
ln_status ln_eng_set_context(ln_eng *e, int seq, const int32_t *ids, int64_t depth, ln_error *err);

#endif
