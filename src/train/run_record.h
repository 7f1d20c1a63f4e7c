/* The record of a run: metrics.jsonl, a line for each step and validation, and loss.svg, its chart. */
#ifndef LN_RUN_RECORD_H
#define LN_RUN_RECORD_H

#include <linnet_train.h>

#include "../base/base.h"

typedef struct train_point {
    int64_t step;
    double loss;
} train_point;

typedef struct train_metrics {
    char path[4096]; /* of metrics.jsonl; "" if nothing is written */
    int fd;          /* -1: not open */
    train_point *steps, *valids;
    size_t n_steps, n_valids, cap_steps, cap_valids;
    int64_t text_step; /* the step of the last text, and the texts of that step */
    size_t n_texts;
} train_metrics;

/* Opens `dir`/metrics.jsonl. Lines of steps after `step` and of validations after that of `valid_step`, which
 * a killed run wrote after its last checkpoint, and a torn last line are cut off; the others are read.
 * LN_EIO, LN_EINVALID: the file is none of a run. */
ln_status train_metrics_open(train_metrics *m, const char *dir, int64_t step, int64_t valid_step,
                             ln_error *err);
void train_metrics_close(train_metrics *m);
/* Reads the points of the run in `dir`, which may go on: a last line that is not whole is left out. Nothing
 * is written. train_metrics_close. LN_EIO: there is no run; LN_EINVALID. */
ln_status train_metrics_read(train_metrics *m, const char *dir, ln_error *err);
/* The line of a step or validation, as --json prints it, with a newline. */
void train_step_line(ln_str *s, const ln_step_report *r);
void train_valid_line(ln_str *s, const ln_valid_report *r);
void train_text_line(ln_str *s, const ln_text_report *r);
ln_status train_metrics_step(train_metrics *m, const ln_step_report *r, ln_error *err);
ln_status train_metrics_valid(train_metrics *m, const ln_valid_report *r, ln_error *err);
ln_status train_metrics_text(train_metrics *m, const ln_text_report *r, ln_error *err);

/* loss_chart.c: writes the chart to `dir`/loss.svg. */
ln_status train_chart_write(const train_metrics *m, const char *dir, ln_error *err);
/* A run of a chart that compares several. */
enum { TRAIN_MOST_RUNS = 8 };
typedef struct train_run_points {
    const char *name;
    const train_point *steps, *valids;
    size_t n_steps, n_valids;
} train_run_points;
/* Appends a chart of n runs, at most TRAIN_MOST_RUNS; nothing if there are no points. */
void train_chart_of_runs(ln_str *s, const train_run_points *runs, size_t n);
/* Appends the chart; nothing if there are no points. */
void train_chart(ln_str *s, const train_point *steps, size_t n_steps, const train_point *valids,
                 size_t n_valids);

#endif
