/* Files of checkpoints and results: an adapter in PEFT's layout, JSON, each written atomically and hashed. */
#include "../io/directory.h"
#include "checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The files of a result. */
static bool is_temporary(const char *name) {
    static const char *const leaves[] = {"adapter_model.safetensors.",
                                         "adapters.safetensors.",
                                         "adapter.safetensors.",
                                         "adapter_config.json.",
                                         "chat_template.jinja.",
                                         "loss.svg.",
                                         "tokenizer.json.",
                                         "tokenizer_config.json.",
                                         "special_tokens_map.json.",
                                         "added_tokens.json."};
    for (size_t i = 0; i < LN_COUNT(leaves); i++) {
        const size_t n = strlen(leaves[i]);
        if (strncmp(name, leaves[i], n) != 0) continue;
        const char *at = name + n + strspn(name + n, "0123456789"); /* of ln_out_open: process and serial */
        if (at > name + n && *at == '-') return strcmp(at + 1 + strspn(at + 1, "0123456789"), ".tmp") == 0;
    }
    return false;
}

void train_files_sweep(const char *dir) {
    ln_names names;
    char path[4096];
    if (ln_names_read(&names, dir, &(ln_error){0}) != LN_OK) return;
    for (size_t i = 0; i < names.n; i++)
        if (is_temporary(names.items[i]) && ln_path_join(path, dir, names.items[i], &(ln_error){0}) == LN_OK)
            (void)unlink(path);
    ln_names_free(&names);
}

ln_status train_file_write(const char *dir, const char *name, const train_part *parts, size_t n,
                           json_t *hashes, ln_error *err) {
    char path[4096], hex[LN_SHA256_HEX];
    ln_sha256 h;
    ln_out o = {0};
    uint64_t bytes = 0;
    ln_status st = LN_OK;
    ln_sha256_open(&h);
    LN_TRY(ln_path_join(path, dir, name, err));
    LN_GO(ln_out_open(&o, path, true, err));
    for (size_t i = 0; i < n; i++) {
        if (hashes) ln_sha256_add(&h, parts[i].data, parts[i].bytes);
        LN_GO(ln_out_write(&o, parts[i].data, parts[i].bytes, err));
        bytes += parts[i].bytes;
    }
    LN_GO(ln_out_commit(&o, err));
    ln_sha256_hex(&h, hex);
    if (hashes &&
        json_object_set_new(hashes, name,
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "sha256", hex)) != 0)
        LN_GO(LN_OOM(err, "a manifest"));
out:
    ln_out_abort(&o);
    return st;
}

static int add_text(const char *text, size_t bytes, void *user) {
    ln_str_add(user, text, bytes);
    return 0;
}

ln_status train_json_write(const char *dir, const char *name, const json_t *value, json_t *hashes,
                           ln_error *err) {
    ln_str s = {0};
    ln_status st = LN_OK;
    if (json_dump_callback(value, add_text, &s, JSON_INDENT(2) | JSON_SORT_KEYS) != 0) s.failed = true;
    ln_str_adds(&s, "\n");
    if (s.failed) LN_GO(LN_OOM(err, "a JSON file"));
    st = train_file_write(dir, name, &(train_part){s.data, s.len}, 1, hashes, err);
out:
    ln_str_free(&s);
    return st;
}

/* Whether the file has other bytes than the parameter. */
static bool is_copied(const train_param *p, bool bf16) { return bf16 || p->is_turned; }

/* Copies a parameter as the file has it, in bf16 or f32; the caller frees the result. */
static void *copy_of(const train_param *p, bool bf16) {
    const int64_t n = p->rows * p->cols;
    void *out = ln_alloc((size_t)n * (bf16 ? 2 : 4) + 1);
    for (int64_t i = 0; out && i < n; i++) {
        const int64_t to = p->is_turned ? i % p->cols * p->rows + i / p->cols : i;
        ln_num_store(out, bf16 ? LN_BF16 : LN_F32, to, p->value[i]);
    }
    return out;
}

ln_status train_adapter_write(const char *dir, const train_param *params, size_t n, bool bf16,
                              const json_t *config, json_t *hashes, ln_error *err) {
    ln_tensor_spec *specs = ln_zalloc(n + 1, sizeof *specs);
    train_part *parts = ln_zalloc(n + 1, sizeof *parts);
    ln_str header = {0};
    ln_status st = specs && parts ? LN_OK : LN_OOM(err, "an adapter's file");
    for (size_t i = 0; st == LN_OK && i < n; i++) {
        const train_param *p = &params[i];
        const void *data = is_copied(p, bf16) ? copy_of(p, bf16) : p->value;
        specs[i] = (ln_tensor_spec){
            p->name, bf16 ? LN_ST_BF16 : LN_ST_F32, p->is_vector ? 1 : 2, {p->rows, p->cols}};
        if (p->is_turned) specs[i].dims[0] = p->cols, specs[i].dims[1] = p->rows;
        parts[i + 1] = (train_part){data, (size_t)(p->rows * p->cols) * (bf16 ? 2 : 4)};
        if (!data) st = LN_OOM(err, "an adapter's file");
    }
    if (st == LN_OK) st = ln_tensors_header_as(&header, "pt", specs, n, err);
    if (st == LN_OK) parts[0] = (train_part){header.data, header.len};
    if (st == LN_OK) st = train_json_write(dir, "adapter_config.json", config, hashes, err);
    if (st == LN_OK) st = train_file_write(dir, "adapter_model.safetensors", parts, n + 1, hashes, err);
    for (size_t i = 0; parts && i < n; i++)
        if (is_copied(&params[i], bf16)) ln_free((void *)(uintptr_t)parts[i + 1].data);
    ln_str_free(&header);
    ln_free(specs);
    ln_free(parts);
    return st;
}
