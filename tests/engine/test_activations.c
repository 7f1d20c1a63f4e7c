/* Golden models whose config.json names another activation: experts and shared experts have the logits of
 * transformers with each one, and a model whose convolutions would have it too is rejected by name. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N_IDS = 20, N_LOGITS = 8 };
typedef struct activation_case {
    const char *model, *name;
    float
        logits[N_LOGITS]; /* the first of the row after ids 256, 1, 2, ... 19, by transformers 5.24 in f32 */
} activation_case;
static const activation_case cases[] = {
    {"mixtral-base-bf16",
     "silu",
     {1.72961f, 2.06593f, -0.17125f, -0.77989f, -0.07553f, -1.33758f, -2.32385f, 0.35826f}},
    {"mixtral-base-bf16",
     "gelu_pytorch_tanh",
     {1.65192f, 1.93913f, -0.24775f, -0.88301f, -0.10395f, -1.28203f, -2.17458f, 0.29889f}},
    {"mixtral-base-bf16",
     "relu2",
     {1.28396f, 1.94842f, -0.06064f, -1.0319f, -0.45944f, -1.12367f, -1.7429f, 0.14024f}},
    {"glm4_moe-base-bf16",
     "gelu_pytorch_tanh",
     {3.17018f, -3.03972f, 0.07736f, 0.22127f, -2.08226f, -0.21124f, 0.68721f, 0.80961f}},
    {"glm4_moe-base-bf16",
     "relu2",
     {2.38527f, -1.17505f, -0.99805f, 1.52009f, 0.97613f, -0.62875f, -1.83477f, 2.14612f}},
};

static void copy_model(const char *model, const char *activation) {
    char command[700];
    (void)snprintf(command, sizeof command,
                   "cp -f " LN_ROOT "/tests/golden/families/%s/* '%s' && chmod u+w '%s/config.json' && "
                   "sed -i 's/\"hidden_act\": *\"[a-z0-9_]*\"/\"hidden_act\": \"%s\"/' '%s/config.json' && "
                   "grep -q '\"%s\"' '%s/config.json'",
                   model, test_dir, test_dir, activation, test_dir, activation, test_dir);
    assert_int_equal(system(command), 0);
}

static void last_row(ln_package *m, float *out) {
    int32_t ids[N_IDS] = {256};
    for (int i = 1; i < N_IDS; i++) ids[i] = i;
    ln_run_options o = test_options(m, LN_DEVICE_AUTO, 1, N_IDS, 1);
    o.numerics = LN_EXACT;
    ln_eng *e;
    OK(ln_eng_open_with(&e, m, &o, err));
    ln_seq *s = test_seq(e, N_IDS, N_IDS);
    const ln_batch_item item = {s, ids, N_IDS, LN_LOGITS_LAST};
    OK(ln_eng_step(e, &item, 1, err));
    OK(ln_run_logits(e->run, 0, out, err));
    ln_seq_close(e, &s);
    ln_eng_close(&e);
}

static void experts_have_the_activation(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_package *m;
        copy_model(cases[i].model, cases[i].name);
        OK(ln_package_open(&m, test_dir, &(ln_options){0}, err));
        float *got = malloc((size_t)m->spec.V * sizeof *got);
        last_row(m, got);
        for (int k = 0; k < N_LOGITS; k++)
            if (!(fabsf(got[k] - cases[i].logits[k]) < 4e-4f)) /* 2e-4 of the deviation, 2 */
                fail_msg("%s with %s: logit %d: expected %g, found %g", cases[i].model, cases[i].name, k,
                         (double)cases[i].logits[k], (double)got[k]);
        free(got);
        ln_package_close(&m);
    }
}

static void convolutions_have_silu_only(void **state) {
    static const char *const models[] = {"qwen3_5_text-last-linear-bf16", "qwen3_5_moe_text-bias-bf16"};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        ln_package *m = NULL;
        ln_error why = {0};
        copy_model(models[i], "gelu_pytorch_tanh");
        assert_int_equal(ln_package_open(&m, test_dir, &(ln_options){0}, &why), LN_EUNSUPPORTED);
        assert_non_null(strstr(why.message, "config.json: hidden_act: expected silu"));
        assert_non_null(strstr(why.message, "found \"gelu_pytorch_tanh\""));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts_have_the_activation),
                                       cmocka_unit_test(convolutions_have_silu_only)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
