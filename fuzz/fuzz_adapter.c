/* Fuzzes the reader of LoRA adapters. The first byte chooses whose layout the tensors have: PEFT's, mlx-lm's
 * or go-mlx's. The rest is adapter_config.json and, after a byte 0xFF, other tensors. What opens has sorted
 * modules with finite scales, and every value can be read. */
#include "fuzz_dir.h"

#include "io/adapter.h"

#include <math.h>

#define PEFT "base_model.model.model.layers.%d.self_attn.%s_proj."
static const char *const files[] = {"adapter_model.safetensors", "adapters.safetensors",
                                    "adapter.safetensors"},
                         *const kept[] = {"peft", "mlx-lm", "go-mlx"};

static void put_tensors(int layout, const char *name) {
    static char names[8][120];
    ln_tensor_spec specs[8];
    for (int i = 0; i < 8; i++) {
        const bool b = i % 2, v = i / 2 % 2;
        const int64_t in = b ? 2 : 8, out = b ? (v ? 4 : 8) : 2;
        if (layout == 0)
            (void)snprintf(names[i], sizeof names[i], PEFT "lora_%c.weight", i / 4, v ? "v" : "q",
                           b ? 'B' : 'A');
        else
            (void)snprintf(names[i], sizeof names[i], "model.layers.%d.self_attn.%s_proj.lora_%c", i / 4,
                           v ? "v" : "q", b ? 'b' : 'a');
        specs[i] = (ln_tensor_spec){.name = names[i],
                                    .dtype = LN_ST_F32,
                                    .n_dims = 2,
                                    .dims = {layout == 1 ? in : out, layout == 1 ? out : in}};
    }
    dir_put_tensors(name, specs, 8);
}

static void fuzz_open(void) {
    dir_open();
    for (int i = 0; i < 3; i++) put_tensors(i, kept[i]);
}

static ln_status check(const ln_adapter_file *a, ln_error *err) {
    char digest[LN_SHA256_HEX];
    must(a->n > 0);
    for (size_t i = 0; i < a->n; i++) {
        const ln_adapter_module *m = &a->modules[i];
        must(i == 0 || strcmp(a->modules[i - 1].path, m->path) < 0);
        must(isfinite(m->scale) && m->rank >= 0 && m->n_out > 0);
        must((m->a != NULL) == (m->b != NULL) && (m->a != NULL) == (m->rank > 0));
        if (!m->a || m->rank * m->n_in > 1 << 20 || m->rank * m->n_out > 1 << 20) continue;
        float *A = malloc((size_t)(m->rank * m->n_in) * sizeof *A),
              *B = malloc((size_t)(m->rank * m->n_out) * sizeof *B);
        must(A && B);
        ln_adapter_file_read(a, m, A, B);
        free(A);
        free(B);
        const ln_status st = ln_adapter_check_finite(a, m, err);
        must(st == LN_OK || st == LN_EINVALID || st == LN_ENUMERIC);
    }
    return ln_adapter_file_digest(a, digest, err);
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    ln_adapter_file *a;
    const int layout = bytes ? data[0] % 3 : 0;
    const uint8_t *mark;
    if (bytes) data++, bytes--;
    for (int i = 0; i < 3; i++) (void)unlink(dir_path(files[i]));
    mark = bytes ? memchr(data, 0xff, bytes) : NULL;
    if (mark) dir_put(files[layout], mark + 1, (size_t)(data + bytes - mark - 1));
    else {
        char from[256];
        (void)snprintf(from, sizeof from, "%s", dir_path(kept[layout]));
        must(link(from, dir_path(files[layout])) == 0);
    }
    dir_put("adapter_config.json", data, mark ? (size_t)(mark - data) : bytes);
    ln_status st = dir_status(ln_adapter_file_open(&a, fuzz_dir, err), err);
    if (st != LN_OK) return st;
    ln_adapter_warn_absent(a);
    st = check(a, err);
    ln_adapter_file_close(&a);
    return st;
}
