/* What is wrong with the tensors of a checkpoint, in one message (bind_report.h). */
#include "bind_report.h"

#include <stdio.h>
#include <string.h>

void ln_report_fault(ln_bind_report *r, const char *name, const char *text) {
    if (r->n_bad++ < 8) ln_str_addf(&r->list, "%s%s%s", r->n_bad > 1 ? "; " : "", name, text);
}

bool ln_report_misplaced(ln_bind_report *r, const char *name) {
    char text[320], shard[80], found[80];
    for (size_t i = 0; i < r->t->n_absent; i++) {
        const struct ln_absent *a = &r->t->absent[i];
        if (strcmp(a->name, name) != 0) continue;
        (void)snprintf(text, sizeof text,
                       " is missing: the index places it in %s, which lacks it%s%s; download that shard "
                       "again",
                       ln_excerpt(shard, a->shard, strlen(a->shard)), a->found ? "; it is in " : "",
                       a->found ? ln_excerpt(found, a->found, strlen(a->found)) : "");
        ln_report_fault(r, name, text);
        if (a->no_file && r->n_gone++ == 0) r->gone = a;
        return true;
    }
    return false;
}

/* `[2, 3]`: dimensions as text. */
static void shape_text(char out[64], int n_dims, const int64_t *dims) {
    size_t n = (size_t)snprintf(out, 64, "[");
    for (int i = 0; i < n_dims && n < 48; i++)
        n += (size_t)snprintf(out + n, 64 - n, "%s%lld", i ? ", " : "", (long long)dims[i]);
    (void)snprintf(out + LN_MIN(n, (size_t)60), 4, "]");
}

bool ln_report_shape(ln_bind_report *r, const ln_tensor *x, int n_dims, const int64_t *dims,
                     const char *why) {
    char text[256], expected[64], found[64];
    if (x->n_dims == n_dims && memcmp(x->dims, dims, (size_t)n_dims * sizeof *dims) == 0) return true;
    shape_text(expected, n_dims, dims);
    shape_text(found, x->n_dims, x->dims);
    (void)snprintf(text, sizeof text, ": expected %s%s, found %s%s", expected, why, found,
                   x->bytes == 0 ? ", empty as DeepSpeed ZeRO-3 leaves it if the parts are not gathered"
                                 : "");
    ln_report_fault(r, x->name, text);
    return false;
}

ln_status ln_report_end(ln_bind_report *r, ln_error *err) {
    char shard[80], name[80];
    ln_status st = LN_OK;
    if (r->n_bad == 0) return LN_OK;
    if (r->list.failed) st = LN_OOM(err, "the list of missing tensors");
    else if (r->gone)
        st = ln_fail(err, LN_EIO,
                     "%s: No such file, but the index places %s there; %zu of the tensors that the model "
                     "needs "
                     "are in missing shards; download the model again",
                     ln_excerpt(shard, r->gone->shard, strlen(r->gone->shard)),
                     ln_excerpt(name, r->gone->name, strlen(r->gone->name)), r->n_gone);
    else
        st = ln_fail(err, LN_EINVALID, "%zu tensors do not match config.json: %s%s", r->n_bad, r->list.data,
                     r->n_bad > 8 ? "; ... and more; is this the config.json of these weights?" : "");
    ln_str_free(&r->list);
    return st;
}

bool ln_tensor_is_computed(const ln_tensor *x, ln_dtype *out) {
    if (x->dtype != LN_ST_F32 && x->dtype != LN_ST_BF16 && x->dtype != LN_ST_F16) return false;
    *out = x->dtype == LN_ST_F32 ? LN_F32 : x->dtype == LN_ST_BF16 ? LN_BF16 : LN_F16;
    return true;
}

ln_status ln_tensor_unsupported(const ln_tensors *t, const ln_tensor *x, const char *wanted, ln_error *err) {
    return ln_fail(err, LN_EUNSUPPORTED, "%s: tensor %s is stored as %s; linnet computes with %s",
                   t->files[x->file].path, x->name, ln_st_dtype_name(x->dtype), wanted);
}
