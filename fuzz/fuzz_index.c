/* Fuzzes the reader of model.safetensors.index.json next to three shards. What opens has its tensors sorted,
 * each once, within the shard that the index names. */
#include "fuzz_dir.h"

static void fuzz_open(void) {
    static const ln_tensor_spec specs[] = {{.name = "a", .dtype = LN_ST_F32, .n_dims = 2, .dims = {2, 3}},
                                           {.name = "b", .dtype = LN_ST_F32, .n_dims = 1, .dims = {4}},
                                           {.name = "c", .dtype = LN_ST_F32, .n_dims = 1, .dims = {1}}};
    dir_open();
    dir_put_tensors("model-00001-of-00002.safetensors", specs, 2);
    dir_put_tensors("model-00002-of-00002.safetensors", specs + 2, 1);
    dir_put_tensors("more.safetensors", specs + 1, 2);
    dir_make("sub");
    dir_put_tensors("sub/x.safetensors", specs, 1);
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    ln_tensors t;
    uint64_t total = 0;
    dir_put("model.safetensors.index.json", data, bytes);
    const ln_status st = dir_status(ln_tensors_open(&t, fuzz_dir, false, err), err);
    if (st != LN_OK) return st;
    for (size_t i = 0; i < t.n; i++) {
        must(i == 0 || strcmp(t.items[i - 1].name, t.items[i].name) < 0);
        must(t.items[i].file >= 0 && (size_t)t.items[i].file < t.n_files);
        must(ln_tensors_find(&t, t.items[i].name) == &t.items[i]);
        total += t.items[i].bytes;
    }
    for (size_t i = 0; i < t.n_absent; i++) must(t.absent[i].name && t.absent[i].shard);
    must(total == t.bytes);
    ln_tensors_close(&t);
    return LN_OK;
}
