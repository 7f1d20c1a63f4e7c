/* The memory that training takes at its peak is what the plan says, whatever is trained: each run is a
 * process of its own, of a model whose tables are large. */
/* run: slow */
#include "../fewer.h"
#include "train_runs.h"

#include <linnet_tools.h>

static const char *const kinds[] = {"lora", "tokens", "whole", "tables", "dora", "texts", "full"};

/* Exits with 0 if the run of a kind takes at most 1.02 times what was planned. */
static int run_kind(const char *kind) {
    char model[400], data[400], out[400];
    ln_options o = ln_options_default();
    ln_trainer_options how = ln_trainer_options_default();
    ln_trainer_info f = {.size = sizeof f};
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    o.numerics = LN_EXACT, o.n_threads = 1;
    how.data = at(data, "rows.jsonl"), how.out = at(out, kind), how.batch = 2, how.steps = 2, how.rank = 4;
    how.save_every = 1;
    if (strcmp(kind, "tokens") == 0) o.add_tokens = "<one>,<two>";
    if (strcmp(kind, "whole") == 0) how.modules_to_save = "embed_tokens,lm_head";
    if (strcmp(kind, "tables") == 0) how.targets = "q_proj,embed_tokens,lm_head";
    if (strcmp(kind, "texts") == 0) how.sample_every = 1, how.sample_tokens = 8;
    if (strcmp(kind, "full") == 0) how.method = LN_METHOD_FULL;
    how.dora = strcmp(kind, "dora") == 0;
    OK(ln_model_open(&m, at(model, "model"), &o, err));
    OK(ln_trainer_new(&t, m, &o, &how, err));
    OK(ln_trainer_get_info(t, &f, err));
    ln_trainer_result end = {.size = sizeof end};
    OK(ln_trainer_run(t, NULL, &end, err));
    char line[200];
    uint64_t peak = 0;
    FILE *status = fopen("/proc/self/status", "rb");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0) peak = strtoull(line + 6, NULL, 10) * 1024;
    if (status) fclose(status);
    fprintf(stderr, "%s: peak %.1f MB, planned %.1f MB, %.3f times\n", kind, (double)peak / 1e6,
            (double)f.peak_bytes / 1e6, (double)peak / (double)f.peak_bytes);
    return peak > 0 && (double)peak <= 1.02 * (double)f.peak_bytes ? 0 : 1;
}

static void as_planned(void **state) {
    (void)state;
    char config[400], out[400], data[400];
    static const char text[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":256,"
        "\"intermediate_size\":256,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":24000,"
        "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"
        "\"hidden_act\":\"silu\",\"rope_theta\":10000.0,\"torch_dtype\":\"float32\"}";
    ln_init_options how = ln_init_options_default();
    how.tokenizer = LN_ROOT "/models/tiny";
    shell("mkdir -p config");
    (void)put(config, "config/config.json", text);
    OK(ln_init_model(at(config, "config/config.json"), at(out, "model"), &how, NULL, NULL, err));
    (void)put(data, "rows.jsonl",
              "{\"ids\":[1,5,7,8,9,23000,4,5,6,3,2,2,9]}\n{\"ids\":[4,5,6,3,2,2,9,17,28,19999,3,1,4]}\n");
    for (size_t i = 0; i < (size_t)fewer((int64_t)LN_COUNT(kinds), 3); i++) {
        char self[4096] = {0}, command[4600];
        assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
        snprintf(command, sizeof command, "'%s' '%s' %s", self, top, kinds[i]);
        if (system(command) != 0) fail_msg("%s", kinds[i]);
    }
}

static int begin(void **state) {
    (void)state;
    return make_dir("test_train_peak");
}

int main(int argc, char **argv) {
    if (argc == 3) {
        snprintf(top, sizeof top, "%s", argv[1]);
        return run_kind(argv[2]);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_planned)};
    return cmocka_run_group_tests_name("peak memory of training", tests, begin, remove_dir);
}
