/* Predicted tokens of a text, with the values as they are between two steps (contract: train_program.h). */
#include "train_parts.h"

#include <math.h>

/* Writes the first n tokens of a text as a step whose last n_out rows are wanted. */
static void write_text(ln_step_block *s, const ln_train_text *text, int32_t n, int32_t n_out) {
    s->n_rows = n;
    s->n_out = n_out;
    s->n_seqs = 1;
    ln_step_row0(s)[0] = 0;
    ln_step_row0(s)[1] = n;
    ln_step_n_prompt(s)[0] = text->n_prompt;
    ln_step_slot(s)[0] = 0;
    for (int32_t r = 0; r < n; r++) {
        ln_step_ids(s)[r] = text->ids[r];
        ln_step_pos(s)[r] = r;
        ln_step_seq(s)[r] = 0;
        ln_step_adapter(s)[r] = -1;
    }
    for (int32_t i = 0; i < n_out; i++) ln_step_out_rows(s)[i] = n - n_out + i;
}

/* Returns the index of the largest of n numbers, the lowest on ties; -1: one is NaN. */
static int32_t largest(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return -1;
        if (x[i] > x[best]) best = i;
    }
    return (int32_t)best;
}

/* Runs the step that p->step has. */
static ln_status run_text(ln_train_program *p, int32_t *out, int32_t n_out, ln_error *err) {
    const mode *m = &p->modes[PREDICT];
    uint64_t fence;
    ln_tables_inputs(p);
    LN_TRY(p->ops->copy(p->queue, p->bound, p->host, p->bound_bytes, LN_COPY_IN, err));
    LN_TRY(p->ops->submit(m->exec, p->step, NULL, &fence, err));
    LN_TRY(p->ops->wait(p->queue, fence, err));
    for (int32_t i = 0; i < n_out; i++) {
        LN_TRY(p->ops->value(m->exec, m->graph.outputs[0], i, 1, p->read, false, err));
        out[i] = largest(p->read, p->spec->V);
    }
    return LN_OK;
}

ln_status ln_train_predict(ln_train_program *p, const ln_train_text *text, int32_t *out, int32_t n_out,
                           ln_error *err) {
    if (text->n > p->opt.n_text || n_out < 1 || n_out > LN_MIN(p->opt.n_predicted, text->n))
        return ln_fail(err, LN_EINTERNAL, "%d predicted tokens of a text of %d: expected at most %d and %d",
                       n_out, text->n, p->opt.n_predicted, p->opt.n_text);
    write_text(p->step, text, 1, 0); /* DoRA measures rows by a step of the other programs */
    LN_TRY(ln_train_write_params(p, err));
    p->step = p->blocks[1];
    write_text(p->step, text, text->n, n_out);
    const ln_status st = run_text(p, out, n_out, err);
    p->step = p->blocks[0];
    return st;
}
