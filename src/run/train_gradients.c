/* Adds the gradients of a micro-batch to those of the parameters (contract: train_parts.h). */
#include "../base/float_env.h"
#include "train_parts.h"

ln_status ln_train_add_gradient(ln_train_program *p, const mode *m, size_t i, ln_train_result *out,
                                ln_error *err) {
    const piece *y = &p->pieces[i];
    const ln_train_param *x = &p->params[y->param];
    const int64_t rows = y->is_vector   ? 1
                         : y->is_lookup ? p->step->n_rows
                                        : y->rows,
                  cols = y->is_vector ? y->rows : x->cols, some = LN_MAX(1, (int64_t)p->read_numbers / cols);
    for (int64_t r = 0, n; r < rows; r += n) {
        n = LN_MIN(some, rows - r);
        bool finite = true;
        float *grad = x->grad + (y->is_vector ? y->row0 * x->cols + r * cols : ln_train_row(y, r, &n) * cols);
        LN_TRY(p->ops->value(m->exec, m->grads[i], r, n, p->read, false, err));
        if (y->is_lookup) {
            out->finite = ln_tables_add(p, y, r, n, p->read) && out->finite;
            continue;
        }
        for (int64_t k = 0; k < n * cols; k++) {
            grad[k] += p->read[k];
            finite &= isfinite(grad[k]) != 0;
        }
        out->finite = out->finite && finite;
    }
    return LN_OK;
}

/* Gradients of the pieces first .. end - 1, one after the other in `read`, that are added to those of their
 * parameters. */
typedef struct adding {
    ln_train_program *p;
    size_t first, end;
    bool infinite; /* atomic */
} adding;
/* Rows and columns of the gradient of a piece. */
static int64_t gradient_rows(const piece *y) { return y->is_vector ? 1 : y->rows; }
static int64_t gradient_cols(const ln_train_program *p, const piece *y) {
    return y->is_vector ? y->rows : p->params[y->param].cols;
}
/* A thread has some rows of each piece. Denormals are kept, as outside a job. */
static void add_some(void *user, int thread, int n_threads) {
    adding *a = user;
    const float *from = a->p->read;
    bool finite = true;
    ln_float_env env;
    ln_float_env_default(&env);
    for (size_t i = a->first; i < a->end; i++) {
        const piece *y = &a->p->pieces[i];
        const ln_train_param *x = &a->p->params[y->param];
        const int64_t rows = gradient_rows(y), cols = gradient_cols(a->p, y),
                      end = rows * (thread + 1) / n_threads;
        for (int64_t r = rows * thread / n_threads, n = 1; r < end; r++) {
            float *grad = x->grad + (y->is_vector ? y->row0 * x->cols : ln_train_row(y, r, &n) * cols);
            for (int64_t k = 0; k < cols; k++) {
                grad[k] += from[r * cols + k];
                finite &= isfinite(grad[k]) != 0;
            }
        }
        from += rows * cols;
    }
    ln_float_env_restore(&env);
    if (!finite) __atomic_store_n(&a->infinite, true, __ATOMIC_RELAXED);
}
/* As many gradients as `read` has place for are read at a time. */
ln_status ln_train_add_gradients(ln_train_program *p, const mode *m, ln_train_result *out, ln_error *err) {
    for (size_t i = 0; i < p->n_pieces;) {
        adding a = {.p = p, .first = i, .end = i};
        for (size_t n = 0; a.end < p->n_pieces; a.end++) {
            const piece *y = &p->pieces[a.end];
            const size_t numbers = (size_t)(gradient_rows(y) * gradient_cols(p, y));
            if (y->is_lookup || numbers > p->read_numbers - n) break; /* by the tokens of the step: alone */
            LN_TRY(p->ops->value(m->exec, m->grads[a.end], 0, gradient_rows(y), p->read + n, false, err));
            n += numbers;
        }
        if (a.end == i) LN_TRY(ln_train_add_gradient(p, m, a.end++, out, err));
        else ln_pool_run(ln_run_pool(&p->opt.run), p->opt.run.n_threads, add_some, &a);
        out->finite = out->finite && !a.infinite;
        i = a.end;
    }
    return LN_OK;
}
