/* Inspection of programs and measurement of their speed. The functions that correspond to ln_explain, ln_diff
 * and ln_bench have the contracts of linnet.h; the ln_options have passed the checks of src/api. */
#ifndef LN_INSPECT_H
#define LN_INSPECT_H

#include <linnet_tools.h>

#include "../engine/engine.h"

ln_status ln_eng_explain(ln_eng *e, int64_t n_rows, int64_t depth, int n_reps, ln_node_fn *fn, void *user,
                         ln_program_report *out, ln_error *err);
/* Runs ids[0..n) through a sequence of both engines, DIFF_ROWS rows at a time, and compares them node by
 * node. n_chunk and n_logits of the engines must be equal. LN_EINTERNAL: a node
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

/* Stores in *s a sequence of the tokens ids[0..depth), with space for `more` >= 1 tokens: shortens it if it
 * holds them, else opens one (*s NULL, or closed here) and prefills it. The caller owns *s; ln_seq_close. */
ln_status ln_eng_set_context(ln_eng *e, ln_seq **s, const int32_t *ids, int64_t depth, int64_t more,
                             ln_error *err);

#endif
