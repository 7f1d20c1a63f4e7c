/* Writes a model with other values of its weights: the result of full training.
 *
 * The files are written below a temporary directory in `dir` and renamed one by one, so that a kill at any
 * moment leaves the earlier model or the new one. One file of tensors replaces the earlier one. Several
 * shards get names that the index in `dir` does not use; renaming the new index replaces all of them at once,
 * and the earlier shards are removed after it. In a directory that has no model yet, config.json comes last.
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

#define INDEX       "model.safetensors.index.json"
#define INDEX_LIMIT ((size_t)128 << 20)

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

/* Decides the names of the shards: those that the index of the earlier model does not use. */
static ln_status name_shards(ln_convert *c, const char *dir, ln_error *err) {
    char path[LN_PATH_MAX], first[64];
    const char *key;
    json_t *index, *shard;
    bool exists;
    if (c->n_shards < 2) return LN_OK;
    LN_TRY(ln_path_join(path, dir, INDEX, err));
    LN_TRY(ln_look(path, &exists, err));
    if (!exists) return LN_OK;
    LN_TRY(ln_json_load_file(&index, path, INDEX_LIMIT, err));
    ln_convert_shard_name(c, 0, first);
    json_object_foreach(json_object_get(index, "weight_map"), key, shard) {
        const char *name = json_string_value(shard);
        c->other_names = c->other_names || (name && strcmp(name, first) == 0);
    }
    json_decref(index);
    return LN_OK;
}

/* Moves all files except those that make the new model the one that readers find: these come last. */
static ln_status move_all(const ln_convert *c, const char *from, const char *to, ln_error *err) {
    static const char *const last[] = {INDEX, "config.json"};
    ln_names names;
    LN_TRY(ln_names_read(&names, from, err));
    ln_status st = LN_OK;
    for (size_t i = 0; i < names.n && st == LN_OK; i++)
        if (strcmp(names.items[i], last[0]) != 0 && strcmp(names.items[i], last[1]) != 0)
            st = move(from, to, names.items[i], err);
    ln_names_free(&names);
    if (st == LN_OK) st = ln_sync_dir(to, err); /* the shards before the index that names them */
    for (size_t i = c->n_shards > 1 ? 0 : 1; i < LN_COUNT(last) && st == LN_OK; i++)
        st = move(from, to, last[i], err);
    return st;
}

/* Removes the shards of the earlier model. */
static ln_status remove_earlier(ln_convert *c, const char *dir, ln_error *err) {
    char path[LN_PATH_MAX], name[64];
    ln_status st = LN_OK;
    c->other_names = !c->other_names;
    for (int i = 0; c->n_shards > 1 && i < c->n_shards && st == LN_OK; i++) {
        ln_convert_shard_name(c, i, name);
        st = ln_path_join(path, dir, name, err);
        if (st == LN_OK && unlink(path) != 0 && errno != ENOENT) st = ln_cannot_reach(path, errno, err);
    }
    c->other_names = !c->other_names;
    return st;
}

ln_status ln_convert_trained(const char *model, const char *dir, const ln_convert_values *values, size_t n,
                             uint64_t shard_bytes, int n_threads, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    char inside[LN_PATH_MAX];
    ln_out_dir tmp = {0};
    ln_status st = LN_OK;
    if (!c) return LN_OOM(err, "a model");
    c->keeps_experts = c->drops_head = true;
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(ln_convert_open(c, model, err));
    LN_GO(ln_convert_check_out(c, dir, err));
    LN_GO(ln_convert_decide_dense(c, shard_bytes, err));
    LN_GO(name_shards(c, dir, err));
    LN_GO(give_values(c, values, n, err));
    LN_GO(ln_path_join(inside, dir, ".model", err));
    LN_GO(ln_out_dir_open(&tmp, inside, true, err));
    LN_GO(ln_convert_write(c, tmp.tmp, n_threads, NULL, NULL, err));
    LN_GO(move_all(c, tmp.tmp, dir, err));
    LN_GO(ln_sync_dir(dir, err));
    LN_GO(remove_earlier(c, dir, err));
out:
    ln_out_dir_abort(&tmp);
    ln_convert_close(c);
    ln_free(c);
    return st;
}
