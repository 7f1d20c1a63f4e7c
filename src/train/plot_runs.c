/* A chart that compares runs (contract: ln_plot_runs in linnet_train.h). */
#include "../base/file.h"
#include "run_record.h"
#include "train.h"

#include <string.h>

/* The last part of a path, which names a run in the legend. */
static const char *name_of(const char *dir) {
    const char *slash = strrchr(dir, '/');
    return slash && slash[1] ? slash + 1 : dir;
}

static ln_status read_all(train_metrics *m, train_run_points *runs, const char *const *dirs, size_t n,
                          ln_error *err) {
    for (size_t i = 0; i < n; i++) {
        LN_TRY(train_metrics_read(&m[i], dirs[i], err));
        if (m[i].n_steps + m[i].n_valids == 0) {
            char shown[LN_PATH_TEXT];
            return ln_fail(err, LN_EINVALID,
                           "%s: expected the steps of a run, found none; wait until one is done",
                           ln_path_text(shown, m[i].path));
        }
        runs[i] = (train_run_points){name_of(dirs[i]), m[i].steps, m[i].valids, m[i].n_steps, m[i].n_valids};
        for (size_t k = 0; k < i; k++) /* of equal names the paths tell them apart */
            if (strcmp(runs[k].name, runs[i].name) == 0) runs[i].name = dirs[i], runs[k].name = dirs[k];
    }
    return LN_OK;
}

static ln_status write_chart(const ln_str *s, const char *out, bool force, ln_error *err) {
    ln_out o = {0};
    ln_status st = LN_OK;
    bool exists = false;
    char shown[LN_PATH_TEXT];
    if (s->failed) return LN_OOM(err, "a chart");
    if (!force) LN_TRY(ln_look(out, &exists, err));
    if (exists)
        return ln_fail(err, LN_EIO,
                       "%s: exists already; ln_plot_runs.force replaces it, or name another file",
                       ln_path_text(shown, out));
    LN_GO(ln_out_open(&o, out, true, err));
    LN_GO(ln_out_write(&o, s->data, s->len, err));
    LN_GO(ln_out_commit(&o, err));
out:
    ln_out_abort(&o);
    return st;
}

ln_status train_plot(const char *const *dirs, size_t n, const char *out, bool force, ln_error *err) {
    train_metrics m[TRAIN_MOST_RUNS];
    train_run_points runs[TRAIN_MOST_RUNS];
    ln_str s = {0};
    if (n < 1 || n > TRAIN_MOST_RUNS)
        return ln_fail(err, LN_EUSAGE, "a chart compares 1 to %d runs, found %zu", (int)TRAIN_MOST_RUNS, n);
    for (size_t i = 0; i < n; i++) m[i] = (train_metrics){.fd = -1};
    ln_status st = read_all(m, runs, dirs, n, err);
    if (st == LN_OK && n == 1)
        train_chart(&s, runs[0].steps, runs[0].n_steps, runs[0].valids, runs[0].n_valids);
    else if (st == LN_OK) train_chart_of_runs(&s, runs, n);
    if (st == LN_OK) st = write_chart(&s, out, force, err);
    for (size_t i = 0; i < n; i++) train_metrics_close(&m[i]);
    ln_str_free(&s);
    return st;
}
