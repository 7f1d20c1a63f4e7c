/* linnet show --adapter: facts of an adapter, and its place in a model, from outside. */
#include "spawn.h"

#define ADAPTER(name) S(LN_ROOT "/tests/golden/adapters/" name)
#define QWEN2         S(LN_ROOT "/tests/golden/qwen2-f32")

static void ends(outcome *o, int code, const char *out, const char *err) {
    if (o->code != code || !strstr(o->out, out) || !strstr(o->err, err))
        fail_msg("code %d, expected %d with '%s' and '%s'\nstdout: %s\nstderr: %s", o->code, code, out, err,
                 o->out, o->err);
}

static void every_layout(void **state) {
    (void)state;
    ends(RUN(S("show"), QWEN2, S("--adapter"), ADAPTER("peft-default")), 0,
         "layout      PEFT\nrank        4\nscale       2\ntargets     q_proj,v_proj: 4 matrices, 1024 "
         "parameters\n"
         "applied     8 of 8 tensors\n",
         "");
    ends(RUN(S("show"), QWEN2, S("--adapter"), ADAPTER("peft-rslora")), 0, "rank        2 to 4\n", "");
    ends(RUN(S("show"), QWEN2, S("--adapter"), ADAPTER("mlx")), 0,
         "layout      mlx-lm\nrank        4\nscale       3\n", "");
    ends(RUN(S("show"), QWEN2, S("--adapter"), ADAPTER("mlx-last"), S("--json")), 0,
         "\"layout\":\"mlx-lm\",\"targets\":\"down_proj,gate_proj,up_proj,k_proj,o_proj,q_proj,v_proj\","
         "\"modules\":7,"
         "\"tensors\":14,\"applied\":14,\"rank_min\":3,\"rank_max\":3,\"scale_min\":20,\"scale_max\":20,",
         "");
    ends(RUN(S("show"), QWEN2, S("--adapter"), ADAPTER("go-mlx")), 0,
         "layout      go-mlx\nrank        8\nscale       2\n", "");
    ends(RUN(S("show"), S("--adapter"), ADAPTER("go-mlx"), S("--json")), 0, "\"applied\":null", "");
}

static void another_model(void **state) {
    (void)state;
    ends(RUN(S("show"), S(TINY), S("--adapter"), ADAPTER("peft-default")), 3, "",
         "module layers.0.self_attn.q_proj: the adapter is for a matrix of [40,40], the model's is [192,192] "
         "(and 3 more of "
         "4 modules)");
    ends(RUN(S("show"), S(TINY), S("--adapter"), S("/nonexistent")), 5, "",
         "expected the directory of an adapter");
    ends(RUN(S("show"), S("--adapter"), S(TINY)), 5, "", "adapter_config.json");
    ends(RUN(S("show")), 2, "", "show needs a MODEL");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_layout), cmocka_unit_test(another_model)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
