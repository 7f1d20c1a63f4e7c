/* The embedding table and the output head that PEFT saves with an adapter (save_embedding_layers): an
 * adapter whose copies have the model's values is applied as without them, and others replace the model's
 * tables.
 *
 * Each case writes the tensors of a golden adapter, and after them copies of the model's own matrices. */
/* run: quick */
#include "../test_dir.h"

#include "base/elementary.h"
#include "base/file.h"
#include "io/adapter.h"

#include <linnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define EMBED  "base_model.model.model.embed_tokens.weight"
#define HEAD   "base_model.model.lm_head.weight"
#define OK(x)                                                               \
    do {                                                                    \
        if ((x) != LN_OK) fail_msg("%s: %s", #x, ln_last_error()->message); \
    } while (0)

/* A tensor in addition to the adapter's: the values of the model's, those of row `changed` (-1: none) plus
 * 1. */
typedef struct copy {
    const char *name, *of; /* of: the tensor in the model's file */
    ln_st_dtype dtype;
    int rows_less;
    int64_t changed;
} copy;

static void add_values(ln_str *data, const ln_tensor *from, const copy *c) {
    const int64_t D = from->dims[1];
    for (int64_t i = 0; i < (from->dims[0] - c->rows_less) * D; i++) {
        const float v = ln_adapter_value(from, (size_t)i) + (i / D == c->changed ? 1.0F : 0.0F);
        if (c->dtype == LN_ST_F32) ln_str_add(data, (const char *)&v, 4);
        else {
            const uint16_t half = ln_f32_bf16(v);
            ln_str_add(data, (const char *)&half, 2);
        }
    }
}

/* Writes the adapter with copies into `test_dir`. */
static void make(const char *model, const char *adapter, const copy *c, size_t n) {
    ln_tensors own, base;
    ln_tensor_spec specs[64] = {{0}};
    ln_str head = {0}, data = {0}, config = {0};
    char path[400], *text = NULL;
    size_t bytes;
    (void)snprintf(path, sizeof path, GOLDEN "lora/%s/adapter_config.json", adapter);
    OK(ln_read_file(path, 1 << 20, &text, &bytes, NULL));
    ln_str_add(&config, text, bytes);
    ln_free(text);
    put("adapter_config.json", config.data, config.len);
    (void)snprintf(path, sizeof path, GOLDEN "lora/%s/adapter_model.safetensors", adapter);
    OK(ln_tensors_open_file(&own, path, NULL));
    (void)snprintf(path, sizeof path, GOLDEN "%s", model);
    OK(ln_tensors_open(&base, path, false, NULL));
    assert_true(own.n + n <= 64);
    for (size_t i = 0; i < own.n; i++) {
        const ln_tensor *t = &own.items[i];
        specs[i] = (ln_tensor_spec){.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims};
        memcpy(specs[i].dims, t->dims, sizeof t->dims);
        ln_str_add(&data, (const char *)t->data, t->bytes);
    }
    for (size_t i = 0; i < n; i++) {
        const ln_tensor *t = ln_tensors_find(&base, c[i].of);
        assert_non_null(t);
        specs[own.n + i] = (ln_tensor_spec){.name = c[i].name,
                                            .dtype = c[i].dtype,
                                            .n_dims = 2,
                                            .dims = {t->dims[0] - c[i].rows_less, t->dims[1]}};
        add_values(&data, t, &c[i]);
    }
    OK(ln_tensors_header(&head, specs, own.n + n, NULL));
    ln_str_add(&head, data.data, data.len);
    put("adapter_model.safetensors", head.data, head.len);
    ln_tensors_close(&own), ln_tensors_close(&base);
    ln_str_free(&head), ln_str_free(&data), ln_str_free(&config);
}

/* Shows the adapter with the model; the digest, if it is applied, goes to digest. */
static ln_status show(const char *model, char digest[65], int *n_unapplied) {
    char path[400];
    ln_adapter_info m = {.size = sizeof m};
    (void)snprintf(path, sizeof path, GOLDEN "%s", model);
    const ln_status st = ln_adapter_show(test_dir, path, &m, NULL);
    memcpy(digest, m.digest, 65);
    *n_unapplied = m.n_tensors - m.n_applied;
    return st;
}

static void equal_ones_change_nothing(void **state) {
    (void)state;
    static const struct {
        const char *model, *adapter;
        copy copies[2];
        int n;
    } cases[] = {
        {"llama-plain-f32",
         "llama-all",
         {{EMBED, "model.embed_tokens.weight", LN_ST_F32, 0, -1}, {HEAD, "lm_head.weight", LN_ST_F32, 0, -1}},
         2},
        /* tied: the head is the embedding table */
        {"qwen2-f32", "qwen2-all", {{HEAD, "model.embed_tokens.weight", LN_ST_F32, 0, -1}}, 1},
        /* a bf16 model that was trained in f32 */
        {"llama-bias-bf16", "llama-bias-only", {{EMBED, "model.embed_tokens.weight", LN_ST_F32, 0, -1}}, 1},
        {"llama-bias-bf16", "llama-bias-only", {{EMBED, "model.embed_tokens.weight", LN_ST_BF16, 0, -1}}, 1},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char plain[65], with[65];
        int unapplied;
        make(cases[i].model, cases[i].adapter, NULL, 0);
        OK(show(cases[i].model, plain, &unapplied));
        assert_int_equal(unapplied, 0);
        make(cases[i].model, cases[i].adapter, cases[i].copies, (size_t)cases[i].n);
        OK(show(cases[i].model, with, &unapplied));
        assert_int_equal(unapplied, cases[i].n);
        assert_string_equal(plain, with); /* what it adds is the same */
    }
}

/* Copies with other values are applied, and are a part of what identifies the adapter. */
static void others_are_applied(void **state) {
    (void)state;
    static const struct {
        const char *model, *adapter;
        copy copies[2];
        int n, unapplied;
    } cases[] = {
        {"llama-plain-f32", "llama-all", {{EMBED, "model.embed_tokens.weight", LN_ST_F32, 0, 5}}, 1, 0},
        {"llama-plain-f32",
         "llama-all",
         {{EMBED, "model.embed_tokens.weight", LN_ST_F32, 0, -1}, {HEAD, "lm_head.weight", LN_ST_F32, 0, 6}},
         2,
         1},
        /* rounded to bf16: another model */
        {"llama-plain-f32", "llama-all", {{HEAD, "lm_head.weight", LN_ST_BF16, 0, -1}}, 1, 0},
        /* tied: the head becomes a table of its own */
        {"qwen2-f32", "qwen2-all", {{HEAD, "model.embed_tokens.weight", LN_ST_F32, 0, 3}}, 1, 0},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char plain[65], with[65], again[65];
        int unapplied;
        make(cases[i].model, cases[i].adapter, NULL, 0);
        OK(show(cases[i].model, plain, &unapplied));
        make(cases[i].model, cases[i].adapter, cases[i].copies, (size_t)cases[i].n);
        OK(show(cases[i].model, with, &unapplied));
        assert_int_equal(unapplied, cases[i].unapplied);
        assert_string_not_equal(plain, with);
        OK(show(cases[i].model, again, &unapplied));
        assert_string_equal(with, again);
    }
}

static void what_is_rejected(void **state) {
    (void)state;
    static const struct {
        const char *model, *adapter, *word;
        copy copies[2];
        int n;
    } cases[] = {
        {"llama-plain-f32",
         "llama-all",
         "it has fewer rows than the model's",
         {{EMBED, "model.embed_tokens.weight", LN_ST_F32, 1, -1}},
         1},
        {"llama-plain-f32",
         "llama-all",
         "the same module occurs twice",
         {{EMBED, "model.embed_tokens.weight", LN_ST_F32, 0, -1},
          {"base_model.model.embed_tokens.weight", "model.embed_tokens.weight", LN_ST_F32, 0, -1}},
         2},
        {"gemma3-text-f32",
         "gemma3-linear",
         "its width is not that of the model's table",
         {{EMBED, "model.layers.0.mlp.down_proj.weight", LN_ST_F32, 0, -1}},
         1},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char digest[65];
        int unapplied;
        make(cases[i].model, cases[i].adapter, cases[i].copies, (size_t)cases[i].n);
        const ln_status st = show(cases[i].model, digest, &unapplied);
        if (st != LN_EINVALID || !strstr(ln_last_error()->message, cases[i].word))
            fail_msg("case %zu: status %d, expected %d with '%s': %s", i, st, LN_EINVALID, cases[i].word,
                     ln_last_error()->message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_ones_change_nothing),
                                       cmocka_unit_test(others_are_applied),
                                       cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
