/* Adapters from outside: show --adapter, --adapter on every verb that runs a model, --lora on batch. */
/* run: quick cuda */
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

/* ---- running with adapters ---- */

#define LORA(name) LN_ROOT "/tests/golden/lora/" name
#define LLAMA      S(LN_ROOT "/tests/golden/llama-plain-f32")
#define IDS        S("--ids"), S("1,2,3,40,50,60,70")

static void score_of(char *adapter, char *other, char out[400]) {
    outcome *o = !adapter ? RUN(S("score"), LLAMA, IDS)
                 : !other ? RUN(S("score"), LLAMA, IDS, S("--adapter"), adapter)
                          : RUN(S("score"), LLAMA, IDS, S("--adapter"), adapter, S("--adapter"), other);
    if (o->code != 0) fail_msg("score: %s", o->err);
    (void)snprintf(out, 400, "%s", o->out);
}

static void sums_and_factors(void **state) {
    (void)state;
    char plain[400], none[400], all[400], sum[400], turned[400], half[400];
    score_of(NULL, NULL, plain);
    score_of(S(LORA("llama-all") ":0"), NULL, none);
    score_of(S(LORA("llama-all")), NULL, all);
    score_of(S(LORA("llama-all") ":0.5"), NULL, half);
    score_of(S(LORA("llama-all")), S(LORA("llama-mlp") ":-1"), sum);
    score_of(S(LORA("llama-all")), S(LORA("llama-mlp") ":0"), turned);
    assert_string_equal(plain, none);
    assert_string_equal(all, turned);
    assert_string_not_equal(plain, all);
    assert_string_not_equal(half, all);
    assert_string_not_equal(sum, all);
}

static void every_verb(void **state) {
    (void)state;
    char *a = S("--adapter"), *all = S(LORA("llama-all"));
    ends(RUN(S("run"), LLAMA, IDS, S("-n"), S("4"), S("-v"), a, all), 0, "", "28 of 28 tensors applied");
    ends(RUN(S("run"), LLAMA, IDS, S("-n"), S("4"), S("--backend"), S("native"), a, all), 0, "", "");
    ends(RUN_IN("Hi\n", S("chat"), LLAMA, S("--chat"), S("-n"), S("3"), S("-v"), a, all), 0, "",
         "28 of 28 tensors applied");
    ends(RUN_IN("hello", S("eval"), LLAMA, S("-"), a, all), 0, "perplexity", "");
    ends(RUN_IN("hello", S("classify"), LLAMA, S("--labels"), S("a,b"), a, all), 0, "\t", "");
    ends(RUN(S("explain"), LLAMA, a, all), 0, "lora_up", "");
    ends(RUN(S("diff"), LLAMA, a, all), 0, "lora_down", "");
    ends(RUN(S("plan"), LLAMA, a, all, S("--json")), 0, "\"adapter_bytes\":", "");
    ends(RUN(S("plan"), LLAMA, a, all), 0, " adapters ", "");
    ends(RUN(S("plan"), LLAMA, S("--for"), S("serve"), S("--lora-dir"), S(".")), 0, " adapters ", "");
    ends(RUN(S("bench"), LLAMA, S("--prefill"), S("8"), S("--reps"), S("1"), a, all), 0, "pp8", "");
    ends(RUN(S("attention"), LLAMA, IDS, S("-o"), at(0, "keys"), a, all), 0, "", "");
    (void)unlink(at(0, "keys"));
}

static void refused(void **state) {
    (void)state;
    char *a = S("--adapter");
    ends(RUN(S("run"), LLAMA, IDS, a, S(LORA("gemma3-linear"))), 3, "", "another model");
    ends(RUN(S("run"), LLAMA, IDS, a, S("/nonexistent")), 5, "", "expected the directory of an adapter");
    ends(RUN(S("run"), LLAMA, IDS, a, S(":2")), 2, "", "expected DIR or DIR:SCALE");
    ends(RUN(S("run"), LLAMA, IDS, S("--lora"), S("a=b")), 2, "", "--lora is no flag of run");
    ends(RUN(S("plan"), LLAMA, S("--for"), S("batch"), S("--lora"), S("/dir")), 2, "", "expected NAME=DIR");
    ends(RUN(S("serve"), LLAMA, S("--lora-dir"), S("/nonexistent")), 5, "",
         "--lora-dir: there is no directory");
    ends(RUN(S("plan"), LLAMA, S("--for"), S("serve"), S("--max-loras"), S("2")), 2, "", "needs --lora-dir");
    ends(RUN(S("serve"), LLAMA, S("--lora-dir"), S("."), S("--max-loras"), S("1"), S("--lora"),
             S("a=" LORA("llama-all")), S("--lora"), S("b=" LORA("llama-mlp"))),
         2, "", "--max-loras 1 is less than the number of --lora, 2");
    ends(RUN(S("plan"), LLAMA, S("--for"), S("batch"), S("--lora"), S("a=x"), S("--lora"), S("a=y")), 2, "",
         "twice");
}

static void a_name_for_each(void **state) {
    (void)state;
    static const char in[] =
        "{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"one\","
        "\"prompt\":[1,2,3],\"max_tokens\":12,\"temperature\":0}}\n"
        "{\"custom_id\":\"2\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"model\":\"llama-plain-f32\","
        "\"prompt\":[1,2,3],\"max_tokens\":12,\"temperature\":0}}\n"
        "{\"custom_id\":\"3\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"two\","
        "\"prompt\":[1,2,3],\"max_tokens\":12,\"temperature\":0}}\n";
    FILE *f = fopen(at(0, "in.jsonl"), "wb");
    assert_true(f && fputs(in, f) >= 0 && fclose(f) == 0);
    ends(RUN(S("batch"), LLAMA, at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--lora"),
             S("one=" LORA("llama-all")), S("--lora"), S("two=" LORA("llama-mlp") ":2")),
         0, "3 of 3 requests", "");
    char *text;
    size_t bytes;
    assert_int_equal(ln_read_file(at(1, "out.jsonl"), 1 << 20, &text, &bytes, NULL), LN_OK);
    assert_non_null(strstr(text, "\"model\":\"one\""));
    assert_non_null(strstr(text, "\"model\":\"two\""));
    assert_non_null(strstr(text, "\"model\":\"llama-plain-f32\""));
    ln_free(text);
    (void)unlink(at(0, "in.jsonl")), (void)unlink(at(1, "out.jsonl"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_layout),     cmocka_unit_test(another_model),
                                       cmocka_unit_test(sums_and_factors), cmocka_unit_test(every_verb),
                                       cmocka_unit_test(refused),          cmocka_unit_test(a_name_for_each)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
