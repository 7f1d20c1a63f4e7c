/* What files of PEFT may have for a model's own tables (adapter_changes.c): what is read, and what is
 * rejected by name. test_golden_lora has adapters that peft has written. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"

#include "io/adapter.h"

#include <string.h>
#include <unistd.h>

#define BEFORE "base_model.model.model.embed_tokens"
#define A      BEFORE ".lora_embedding_A"
#define B      BEFORE ".lora_embedding_B"
#define ROWS   BEFORE ".token_adapter.trainable_tokens_delta"
#define TOKENS "\"trainable_token_indices\":"

typedef struct tensor {
    const char *name;
    int64_t dims[2];
} tensor;

/* Opens an adapter of rank 4 and alpha 8 with these settings and tensors, whose element i is i. */
static ln_status open_with(ln_adapter_file **out, const char *settings, const tensor *t, size_t n,
                           ln_error *err) {
    ln_tensor_spec specs[4] = {{0}};
    ln_str config = {0}, file = {0};
    float next = 0;
    ln_str_addf(&config, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8%s%s}", settings[0] ? "," : "",
                settings);
    for (size_t i = 0; i < n; i++)
        specs[i] = (ln_tensor_spec){t[i].name, LN_ST_F32, 2, {t[i].dims[0], t[i].dims[1]}};
    OK(ln_tensors_header(&file, specs, n, err));
    for (size_t i = 0; i < n; i++) {
        next = 0;
        for (int64_t k = 0; k < t[i].dims[0] * t[i].dims[1]; k++, next++)
            ln_str_add(&file, (const char *)&next, sizeof next);
    }
    put("adapter_config.json", config.data, config.len);
    put("adapter_model.safetensors", file.data, file.len);
    ln_str_free(&config), ln_str_free(&file);
    return ln_adapter_file_open(out, test_dir, err);
}

static void rows_of_tokens(void **state) {
    (void)state;
    static const tensor t = {ROWS, {3, 2}};
    const float base[2] = {100, 200};
    double row[2];
    ln_adapter_file *a;
    OK(open_with(&a, TOKENS "[9,2,12]", &t, 1, err));
    assert_int_equal(a->n, 0);
    assert_int_equal(a->n_changes, 1);
    const ln_adapter_change *x = &a->changes[0];
    assert_true(ln_adapter_is_embedding(x) && ln_adapter_changes_model(a));
    assert_int_equal(ln_adapter_rows_of(x), 13);
    assert_true(ln_adapter_has_row(x, 9) && ln_adapter_has_row(x, 2) && !ln_adapter_has_row(x, 3));
    ln_adapter_changed_row(x, 2, 2, base, row);
    assert_true(row[0] == 2 && row[1] == 3); /* the second of the list */
    ln_adapter_changed_row(x, 3, 2, base, row);
    assert_true(row[0] == 100 && row[1] == 200);
    ln_adapter_file_close(&a);
}

/* Row r of the embedding has scale * sum over j of A[j][r] B[k][j] added, the scale being 8 / 4. */
static void lora_on_the_embedding(void **state) {
    (void)state;
    static const tensor t[] = {{A, {4, 3}}, {B, {2, 4}}};
    const float base[2] = {100, 200};
    double row[2];
    ln_adapter_file *a;
    OK(open_with(&a, "\"target_modules\":[\"embed_tokens\"]", t, 2, err));
    ln_adapter_changed_row(&a->changes[0], 1, 2, base, row);
    assert_true(row[0] == 100 + 2 * (1 * 0 + 4 * 1 + 7 * 2 + 10 * 3));
    assert_true(row[1] == 200 + 2 * (1 * 4 + 4 * 5 + 7 * 6 + 10 * 7));
    ln_adapter_file_close(&a);
}

static void what_is_rejected(void **state) {
    (void)state;
    static const struct {
        const char *settings, *word;
        ln_status status;
        tensor t[3];
        size_t n;
    } cases[] = {
        {"", "its other half is missing", LN_EINVALID, {{A, {4, 16}}}, 1},
        {"", "expected rank 4", LN_EINVALID, {{A, {3, 16}}, {B, {16, 3}}}, 2},
        {"\"target_modules\":[\"q_proj\"]", "not among those", LN_EINVALID, {{A, {4, 16}}, {B, {16, 4}}}, 2},
        {"\"use_dora\":true", "DoRA on the embedding", LN_EUNSUPPORTED, {{A, {4, 16}}, {B, {16, 4}}}, 2},
        {"\"use_dora\":true",
         "DoRA on the embedding or the output head",
         LN_EUNSUPPORTED,
         {{"base_model.model.lm_head.lora_magnitude_vector", {1, 16}}},
         1},
        {"", "LoRA on this embedding", LN_EUNSUPPORTED, {{BEFORE "_per_layer.lora_embedding_A", {4, 16}}}, 1},
        {"", "lora_embedding_A and", LN_EINVALID, {{BEFORE ".lora_A.weight", {4, 16}}}, 1},
        {TOKENS "[1,2]", "has 3 rows, and", LN_EINVALID, {{ROWS, {3, 16}}}, 1},
        {TOKENS "{\"embed_tokens\":[7,2,7]}", "lists an id twice", LN_EINVALID, {{ROWS, {3, 16}}}, 1},
        {TOKENS "[-1]", "expected lists of token ids", LN_EINVALID, {{ROWS, {1, 16}}}, 1},
        {TOKENS "[1]", "found both", LN_EUNSUPPORTED, {{ROWS, {1, 16}}, {A, {4, 16}}, {B, {16, 4}}}, 3},
        {"",
         "its width is not that of the table",
         LN_EINVALID,
         {{A, {4, 16}}, {B, {16, 4}}, {BEFORE ".base_layer.weight", {16, 8}}},
         3},
        {"", "does not name it", LN_EINVALID, {{"base_model.model.model.norm.weight", {1, 16}}}, 1},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_adapter_file *a = NULL;
        ln_error e = {0};
        const ln_status st = open_with(&a, cases[i].settings, cases[i].t, cases[i].n, &e);
        if (st != cases[i].status || !strstr(e.message, cases[i].word))
            fail_msg("case %zu: status %d, expected %d with '%s': %s", i, st, cases[i].status, cases[i].word,
                     e.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_tokens),
                                       cmocka_unit_test(lora_on_the_embedding),
                                       cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests_name("changes of tables", tests, dir_make, dir_remove);
}
