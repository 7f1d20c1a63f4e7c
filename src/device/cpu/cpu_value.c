/* Data of the CPU device outside programs: copies, KV pages, and the argmax of rows. */
#include "../../ops/kv_pages.h"
#include "../../ops/value_rows.h"
#include "exec.h"
#include "pack/pack.h"

#include <math.h>

ln_status ln_cpu_copy(ln_queue *q, void *to, const void *from, size_t bytes, int how, ln_error *err) {
    (void)q, (void)how, (void)err; /* all memory is host memory, and submit has run the earlier steps */
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
    return LN_OK;
}

int64_t ln_cpu_kv_bytes(const ln_dev *d, const ln_page_job *job) {
    (void)d;
    return ln_host_kv_bytes(job, sizeof(float));
}

ln_status ln_cpu_page(ln_queue *q, const ln_page_job *job, ln_error *err) {
    (void)q, (void)err;
    ln_host_page(job, sizeof(float));
    return LN_OK;
}

/* A row of a value in row panels to and from f32. */
static void convert_panel_row(const ln_pvalue *v, const ln_arg *a, int64_t r, float *x, bool write) {
    if (v->format.kind == LN_FORMAT_I8PAIR) {
        if (write) ln_i8pair_encode_at(x, a->cols, v->format.bits, ln_arg_i8pair(a, r));
        else ln_i8pair_decode_at(ln_arg_i8pair(a, r), a->cols, v->format.bits, x);
        return;
    }
    float *at = a->data;
    for (int64_t c = 0; c < a->cols; c++)
        if (write) at[ln_arg_at(a, r, c)] = x[c];
        else x[c] = at[ln_arg_at(a, r, c)];
}

ln_status ln_cpu_rows(const ln_program *p, void *temp, const ln_bounds *live, ln_v i, int64_t row, int64_t n,
                      float *rows, bool write, ln_error *err) {
    int64_t n_live;
    LN_TRY(ln_host_value_range(p, live, i, row, n, &n_live, err));
    const ln_pvalue *v = ln_program_value(p, i);
    if (ln_live_layout(v, n_live) != LN_CPU_PANELS)
        return ln_host_value(p, temp, live, i, row, n, rows, write, err);
    const ln_arg a = {.data = (char *)temp + ln_live_offset(v, n_live),
                      .rows = n_live,
                      .cols = v->dims[1],
                      .pitch = ln_temp_pitch(p, v),
                      .layout = LN_CPU_PANELS};
    for (int64_t r = 0; r < n; r++) convert_panel_row(v, &a, row + r, rows + r * a.cols, write);
    return LN_OK;
}

/* Argmax by partitions of the columns: each thread searches about the logits that it has computed, since
 * other threads' logits are in the caches of other cores. */
enum { ROWS_AT_ONCE = 8, SERIAL = 1 << 14 /* elements that one thread searches alone */ };
typedef struct argmax_job {
    const float *x;
    int64_t pitch, cols;
    int n;                                   /* at most ROWS_AT_ONCE */
    int32_t best[LN_POOL_MAX][ROWS_AT_ONCE]; /* column; -1: the partition has a NaN; -2: it is empty */
} argmax_job;
static void argmax_partition(void *user, int thread, int n_threads) {
    argmax_job *j = user;
    int64_t lo, hi;
    ln_partition(j->cols, LN_PACK_NR, thread, n_threads, &lo, &hi);
    for (int r = 0; r < j->n; r++) {
        const int64_t best = lo < hi ? ln_argmax(j->x + r * j->pitch + lo, hi - lo) : -2;
        j->best[thread][r] = (int32_t)(best < 0 ? best : lo + best);
    }
}
/* The result of row r from those of its partitions. */
static int32_t best_of(const argmax_job *j, int n_threads, int r) {
    const float *x = j->x + r * j->pitch;
    int64_t top = j->best[0][r];
    for (int i = 1; i < n_threads && top >= 0; i++)
        if (j->best[i][r] == -1 || (j->best[i][r] >= 0 && x[j->best[i][r]] > x[top])) top = j->best[i][r];
    return top >= 0 && x[top] > -INFINITY ? (int32_t)top : -1;
}

void ln_cpu_argmax_rows(ln_pool *pool, int n_threads, const float *x, int64_t pitch, int64_t cols, int64_t n,
                        int32_t *ids) {
    argmax_job j = {.pitch = pitch, .cols = cols};
    for (int64_t row = 0; row < n; row += j.n) {
        j.n = (int)LN_MIN(n - row, (int64_t)ROWS_AT_ONCE);
        j.x = x + row * pitch;
        const int threads = j.n * cols < SERIAL ? 1 : n_threads;
        if (threads > 1) ln_pool_run(pool, threads, argmax_partition, &j);
        else argmax_partition(&j, 0, 1);
        for (int r = 0; r < j.n; r++) ids[row + r] = best_of(&j, threads, r);
    }
}
