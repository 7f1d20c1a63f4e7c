/* Writes a model with other values of its weights: the result of full training.
 *
 * The files are written below a temporary directory in `dir` and renamed one by one, config.json last. A kill
 * leaves the earlier model as it was. If the model has several shards, some of them may be new then. Its
 * config.json is removed first, so that no reader takes it for a model.
 */
#include "convert.h"
#include "../base/thread_pool.h"
#include "../io/directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Assigns the values to the items of their tensors. */
static ln_status give_values(ln_convert *c, const ln_convert_values *values, size_t n, ln_error *err) {
    size_t given = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        ln_convert_item *x = &c->items[i];
        for (size_t k = 0; !x->raw && k < n && !x->values; k++)
            if (strlen(values[k].name) == x->w->tensor->name_bytes &&
                memcmp(values[k].name, x->w->tensor->name, x->w->tensor->name_bytes) == 0)
                x->values = values[k].values, given++;
    }
    if (given == n) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: %zu of %zu trained tensors are no longer in the model", c->from,
                   n - given, n);
}

static ln_status move(const char *from, const char *to, const char *name, ln_error *err) {
    char a[LN_PATH_MAX], b[LN_PATH_MAX];
    LN_TRY(ln_path_join(a, from, name, err));
    LN_TRY(ln_path_join(b, to, name, err));
    if (rename(a, b) == 0) return LN_OK;
    if (errno == ENOTEMPTY || errno == EEXIST) return LN_OK; /* of modules: copies, which stay the same */
    return ln_cannot_reach(b, errno, err);
}

static ln_status move_all(const ln_convert *c, const char *from, const char *to, ln_error *err) {
    static const char config[] = "config.json";
    char path[LN_PATH_MAX];
    ln_names names;
    ln_status st = ln_path_join(path, to, config, err);
    if (st == LN_OK && c->n_shards > 1 && unlink(path) != 0 && errno != ENOENT)
        st = ln_cannot_reach(path, errno, err);
    if (st == LN_OK) st = ln_names_read(&names, from, err);
    if (st != LN_OK) return st;
    for (size_t i = 0; i < names.n && st == LN_OK; i++)
        if (strcmp(names.items[i], config) != 0) st = move(from, to, names.items[i], err);
    ln_names_free(&names);
    return st == LN_OK ? move(from, to, config, err) : st;
}

ln_status ln_convert_trained(const char *model, const char *dir, const ln_convert_values *values, size_t n,
                             int n_threads, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    char inside[LN_PATH_MAX];
    ln_out_dir tmp = {0};
    ln_status st = LN_OK;
    if (!c) return LN_OOM(err, "a model");
    c->keeps_experts = c->drops_head = true;
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(ln_convert_open(c, model, err));
    LN_GO(ln_convert_check_out(c, dir, err));
    LN_GO(ln_convert_decide_dense(c, LN_CONVERT_SHARD_BYTES, err));
    LN_GO(give_values(c, values, n, err));
    LN_GO(ln_path_join(inside, dir, ".model", err));
    LN_GO(ln_out_dir_open(&tmp, inside, true, err));
    LN_GO(ln_convert_write(c, tmp.tmp, n_threads, NULL, NULL, err));
    LN_GO(move_all(c, tmp.tmp, dir, err));
out:
    ln_out_dir_abort(&tmp);
    ln_convert_close(c);
    ln_free(c);
    return st;
}
