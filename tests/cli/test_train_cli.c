/* linnet train and linnet fuse from outside: lines of JSON, files, refusals and their exit codes. */
/* run: quick */
#include "spawn.h"

#include <sys/stat.h>

#define BASE_MODEL LN_ROOT "/tests/golden/qwen2-f32"
#define ROWS       LN_ROOT "/tests/golden/trainer/qwen2-f32/rows.jsonl"

#define NESTED LN_ROOT "/tests/golden/gemma3-nested-bf16"

static char dir[64], out[80], other[80];
static int begin(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/linnet-train-cli-%ld", (long)getpid());
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(other, sizeof other, "%s/fused", dir);
    return mkdir(dir, 0700);
}
static int end(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) n++;
    return n;
}

#define TRAIN S("train"), S(BASE_MODEL), S("--data"), S(ROWS), S("--steps"), S("4"), S("-o")

static void trains_resumes_and_fuses(void **state) {
    (void)state;
    expect(RUN(TRAIN, out, S("--json"), S("--valid-split"), S("0.3")), 0, NULL);
    assert_int_equal(count(last->out, "\"grad_norm\":"), 4);
    assert_true(count(last->out, "\"valid_perplexity\":") >= 1);
    assert_non_null(strstr(last->out, "{\"done\":true,\"steps\":4,\"best\":"));
    assert_non_null(strstr(last->err, "activations"));
    expect(RUN(TRAIN, out), 5, "--resume continues it");
    expect(RUN(TRAIN, out, S("--resume"), S("--valid-split"), S("0.3"), S("--rank"), S("4")), 2,
           "rank: 8 then, 4 now");
    expect(RUN(TRAIN, out, S("--resume"), S("--valid-split"), S("0.3")), 0, NULL);
    assert_non_null(strstr(last->out, "4 steps done"));
    char chart[100];
    snprintf(chart, sizeof chart, "%s/compare.svg", dir);
    expect(RUN(S("plot"), out, out, S("-o"), chart), 0, NULL);
    expect(RUN(S("plot"), out, S("-o"), chart), 5, "--force");
    expect(RUN(S("plot"), out, S("-o"), chart, S("--force")), 0, NULL);
    expect(RUN(S("plot"), S("-o"), chart), 2, "plot needs the directories of runs");
    expect(RUN(S("plot"), out), 2, "plot needs the directories of runs");
    expect(RUN(S("plot"), dir, S("-o"), other), 5, "metrics.jsonl");
    expect(RUN(S("fuse"), S(BASE_MODEL), out, S("-o"), other), 0, NULL);
    assert_non_null(strstr(last->out, "fused and applied differ by at most"));
    expect(RUN(S("show"), other), 0, NULL);
    expect(RUN(S("fuse"), S(BASE_MODEL), out, S("-o"), other), 5, "--force");
    expect(RUN(S("fuse"), S(BASE_MODEL), S("-o"), other), 2, "needs an adapter");
    expect(RUN(S("fuse"), S(BASE_MODEL), out, S("-o"), other, S("--group"), S("32")), 2, "add --bits");
}

/* In a model with images the adapter's configuration names the matrices of the text model alone: PEFT would
 * add untrained ones to the vision tower. linnet itself applies the adapter whole. */
static void of_a_model_with_images(void **state) {
    (void)state;
    char path[140], made[100], more[100];
    snprintf(made, sizeof made, "%s/images", dir);
    snprintf(more, sizeof more, "%s/more", dir);
    expect(RUN(S("train"), S(NESTED), S("--data"), S(ROWS), S("--steps"), S("1"), S("--targets"),
               S("q_proj,down_proj"), S("-o"), made),
           0, NULL);
    snprintf(path, sizeof path, "%s/adapter_config.json", made);
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(ln_read_file(path, 1 << 20, &data, &n, NULL), LN_OK);
    json_t *o = json_loadb(data, n, 0, NULL);
    assert_string_equal(text_of(o, "target_modules"), ".*language_model.*\\.(?:q_proj|down_proj)");
    json_decref(o);
    ln_free(data);
    expect(RUN(S("show"), S(NESTED), S("--adapter"), made), 0, NULL);
    assert_non_null(strstr(last->out, "tensors"));
    assert_null(strstr(last->err, "warning"));
    expect(RUN(S("train"), S(NESTED), S("--data"), S(ROWS), S("--steps"), S("1"), S("--init-adapter"), made,
               S("-o"), more),
           0, NULL);
}

/* The directories above that of the result are created, and names of matrices may have blanks around them. */
static void deep_directories(void **state) {
    (void)state;
    char deep[120];
    snprintf(deep, sizeof deep, "%s/a/b/c", dir);
    expect(RUN(TRAIN, deep, S("--targets"), S(" q_proj , v_proj")), 0, NULL);
    snprintf(deep, sizeof deep, "%s/a/b/c/adapter_config.json/d", dir);
    expect(RUN(TRAIN, deep), 5, "cannot create");
}

static void settings(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Samples that are turns of one conversation are all trained on or all validate. */
static void conversations_stay_together(void **state) {
    (void)state;
    char path[100], data[100];
    snprintf(path, sizeof path, "%s/last.jinja", dir);
    settings(path, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last and m.role == "
                   "'assistant' %}T{% endif %}{{ m.content }}"
                   "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    snprintf(data, sizeof data, "%s/turns.jsonl", dir);
    FILE *f = fopen(data, "w");
    assert_non_null(f);
    for (int i = 0; i < 20; i++)
        fprintf(f,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"%d\"},{\"role\":\"assistant\",\"content\":"
                "\"A\"},"
                "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"B\"}]}\n",
                i);
    fclose(f);
    expect(RUN(S("train"), S(TINY), S("--data"), data, S("--chat-template"), path, S("--valid-split"),
               S("0.075"), S("--dry-run")),
           0, NULL);
    const char *of = strstr(last->out, " samples, "), *held = strstr(last->out, " for validation");
    assert_true(of && held);
    while (of > last->out && of[-1] != '\n') of--;
    while (held > last->out && held[-1] != ' ') held--;
    assert_int_equal(atoi(of) + atoi(held), 40);
    assert_true(atoi(held) >= 4 &&
                atoi(held) % 2 == 0); /* 3 of 40, and the other turns of their conversations */
}

/* Settings of a file are those of flags; flags of the command line come first. */
static void settings_in_a_file(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {{"[1]", "expected a JSON object, found an array"},
               {"{\"rank\":{}}", "--config: \"rank\": expected a value"},
               {"{\"rank\":[[1]]}", "--config: \"rank\": expected a value"},
               {"{\"rslora\":1}", "--config: \"rslora\": expected true or false, found 1"},
               {"{\"rank\":true}", "--config: \"rank\": expected N, found true"},
               {"{\"lr\":\"x\"}", "--lr: expected a number"},
               {"{\"temp\":1}", "--config: temp is no setting of train"},
               {"{\"config\":\"x\"}", "--config: config is no setting of train"},
               {"{\"epochs\":1,\"steps\":1}", "--epochs and --steps contradict each other"}};
    char path[100];
    snprintf(path, sizeof path, "%s/run.json", dir);
    settings(path, "{\"data\":\"" ROWS "\",\"epochs\":2,\"rank\":4,\"targets\":\"q_proj\",\"max_length\":16,"
                   "\"rslora\":true,\"no-shuffle\":false,\"seed\":null,\"field\":[\"text=body\"]}");
    expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("--dry-run")), 0, NULL);
    assert_non_null(strstr(last->out, "in 2 matrices"));
    assert_null(strstr(last->out, "sample 2:"));
    expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("--dry-run"), S("--show"), S("3")), 0, NULL);
    assert_non_null(strstr(last->out, "sample 3:"));
    assert_null(strstr(last->out, "sample 4:"));
    expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("--dry-run"), S("--show"), S("2"),
               S("--json")),
           0, NULL);
    assert_int_equal(count(last->out, "\"mask\":"), 2);
    expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("-o"), out, S("--show"), S("2")), 2,
           "--dry-run");
    expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("--dry-run"), S("--steps"), S("7"),
               S("--targets"), S("q_proj,v_proj")),
           0, NULL);
    assert_non_null(strstr(last->out, "in 4 matrices"));
    assert_non_null(strstr(last->out, "7 steps"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        settings(path, bad[i].text);
        expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("--data"), S(ROWS), S("--dry-run")), 2,
               bad[i].word);
    }
    settings(path, "{\"lr\":1e-4,}");
    expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path, S("--data"), S(ROWS), S("--dry-run")), 3,
           "byte 11");
}

/* Every flag of train is a setting: each is known by the name that --help has. */
static void every_flag_is_a_setting(void **state) {
    (void)state;
    char path[100], text[160], names[100][40];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/run.json", dir);
    expect(RUN(S("train"), S("--help")), 0, NULL);
    for (const char *at = last->out; (at = strchr(at, '\n')) != NULL && n < LN_COUNT(names);) {
        at++; /* "  -m, --model MODEL" or "      --seed N" */
        if (strncmp(at, "      --", 8) != 0 &&
            (strncmp(at, "  -", 3) != 0 || strncmp(at + 4, ", --", 4) != 0))
            continue;
        const int bytes = (int)strspn(at + 8, "abcdefghijklmnopqrstuvwxyz0123456789-");
        snprintf(names[n++], sizeof names[0], "%.*s", bytes, at + 8);
    }
    size_t n_known = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], "help") == 0 || strcmp(names[i], "config") == 0) continue;
        snprintf(text, sizeof text, "{\"%s\":[[1]]}", names[i]);
        settings(path, text);
        snprintf(text, sizeof text, "--config: \"%s\": expected", names[i]);
        expect(RUN(S("train"), S(BASE_MODEL), S("--config"), path), 2, text);
        n_known++;
    }
    assert_true(n_known >= 50); /* 40 that train alone has, and those of every verb that loads a model */
}

/* Texts that the model writes, as lines and as text. */
static void texts_while_it_trains(void **state) {
    (void)state;
    char to[100];
    snprintf(to, sizeof to, "%s/texts", dir);
    expect(RUN(TRAIN, to, S("--sample-every"), S("1"), S("--sample-prompt"), S("a b"), S("--sample-prompt"),
               S("c"), S("--sample-tokens"), S("2"), S("--json")),
           0, NULL);
    assert_true(count(last->out, "\"sample\":1,\"prompt\":\"a b\",\"text\":\"") > 0);
    assert_int_equal(count(last->out, "\"sample\":2,"), count(last->out, "\"sample\":1,"));
    snprintf(to, sizeof to, "%s/more-texts", dir);
    expect(RUN(TRAIN, to, S("--sample-every"), S("1"), S("--sample-prompt"), S("a b")), 0, NULL);
    assert_non_null(strstr(last->out, "step 1  sample 1 of 1  a b\n"));
    expect(RUN(TRAIN, other, S("--sample-tokens"), S("3")), 2, "add --sample-every N");
    expect(RUN(TRAIN, other, S("--sample-prompt"), S("a")), 2, "--sample-every");
}

static void refused(void **state) {
    (void)state;
    expect(RUN(S("train"), S(BASE_MODEL), S("-o"), other), 2, "--data FILE -o DIR");
    expect(RUN(S("train"), S(BASE_MODEL), S("--data"), S(ROWS)), 2, "--data FILE -o DIR");
    expect(RUN(TRAIN, other, S("--epochs"), S("2")), 2, "--epochs and --steps contradict each other");
    expect(RUN(TRAIN, other, S("--lr"), S("0")), 2, "--lr");
    expect(RUN(TRAIN, other, S("--targets"), S("norm")), 2, "--targets: expected all-linear, or names among");
    expect(RUN(TRAIN, other, S("--targets"), S("proj")), 2, "--targets: expected all-linear");
    expect(RUN(TRAIN, other, S("--keep"), S("1")), 2, "--keep");
    expect(RUN(TRAIN, other, S("--init-adapter"), out, S("--rank"), S("4")), 2, "decides rank");
    char fresh[100]; /* what is in `other` is named before the data are read */
    snprintf(fresh, sizeof fresh, "%s/fresh", dir);
    expect(RUN(TRAIN, other, S("--memory"), S("1M")), 5, "holds config.json already");
    expect(RUN(TRAIN, fresh, S("--memory"), S("1M")), 6, "--memory");
    expect(RUN(S("train"), S(BASE_MODEL), S("--data"), S("/no/such"), S("-o"), fresh), 5, "/no/such");
    expect(RUN(S("train"), S(BASE_MODEL), S("--data"), S(ROWS), S("--dry-run")), 0, NULL);
    assert_non_null(strstr(last->out, "counts"));
}

static void read_whole(const char *folder, const char *name, char **data, size_t *n) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(ln_read_file(path, 64 << 20, data, n, NULL), LN_OK);
}

static void same_files(const char *a, const char *b, const char *name) {
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    read_whole(a, name, &x, &n);
    read_whole(b, name, &y, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    ln_free(x);
    ln_free(y);
}

/* The adapter of added tokens has a tokenizer that knows them, a run that is continued gives the files of one
 * in a piece, and what cannot be is rejected before the first step. */
static void added_tokens(void **state) {
    (void)state;
    char data[100], whole[100], parts[100], fused[100], none[100], command[400];
    snprintf(data, sizeof data, "%s/added.jsonl", dir);
    snprintf(whole, sizeof whole, "%s/whole", dir);
    snprintf(parts, sizeof parts, "%s/parts", dir);
    snprintf(fused, sizeof fused, "%s/added", dir);
    snprintf(none, sizeof none, "%s/none", dir);
    settings(data, "{\"prompt\": \"What is <x1>?\", \"completion\": \"<x1> and <x2>.\"}\n");
#define ADD(dir_, tokens) S("train"), S(TINY), S("--data"), data, S("-o"), dir_, S("--add-tokens"), S(tokens)
    expect(RUN(ADD(whole, "<x1>,<x2>"), S("--steps"), S("4"), S("--save-every"), S("2")), 0, NULL);
    snprintf(command, sizeof command,
             "cp -r %s %s && rm -r %s/checkpoints/step-00000004 %s/*.safetensors %s/tok*", whole, parts,
             parts, parts, parts);
    assert_int_equal(system(command), 0);
    expect(RUN(ADD(parts, "<x3>"), S("--steps"), S("4"), S("--save-every"), S("2"), S("--resume")), 3,
           "tokens: \"<x1>,<x2>\" then, \"<x3>\" now");
    expect(RUN(ADD(parts, "<x1>,<x2>"), S("--steps"), S("4"), S("--save-every"), S("2"), S("--resume")), 0,
           NULL);
    same_files(whole, parts, "adapter_model.safetensors");
    same_files(whole, parts, "tokenizer.json");
    same_files(whole, parts, "tokenizer_config.json");
    expect(RUN(S("fuse"), S(TINY), whole, S("-o"), fused), 0, NULL);
    expect(RUN(S("tokenize"), fused, S("<x1><x2>")), 0, NULL);
    assert_non_null(strstr(last->out, "[4096,4097]"));
    expect(RUN(ADD(none, "<x1>"), S("--steps"), S("1"), S("--method"), S("full")), 4,
           "tokens are added with an adapter");
    expect(RUN(ADD(none, "<x1>"), S("--steps"), S("1"), S("--dora")), 4, "no added tokens");
    expect(RUN(ADD(none, "<x1>,,<x2>"), S("--steps"), S("1")), 2, "with commas between");
}

/* An adapter that is trained with another chat template is asked with it, by run and in the fused model; its
 * configuration names a base of the cache by its id, and it is found there by its own. */
static void template_and_names(void **state) {
    (void)state;
    char path[200], hub[100], made[200], ids[64] = "", command[1200];
    FILE *f;
    snprintf(hub, sizeof hub, "%s/.cache/huggingface/hub", dir);
    snprintf(command, sizeof command,
             "mkdir -p %s/models--me--tiny/snapshots/abc %s/models--me--tiny/refs "
             "%s/models--me--lora/snapshots/d "
             "%s/models--me--lora/refs && printf abc >%s/models--me--tiny/refs/main && printf d "
             ">%s/models--me--lora/refs/main && cp %s/*.json %s/model.safetensors "
             "%s/models--me--tiny/snapshots/abc",
             hub, hub, hub, hub, hub, hub, TINY, TINY, hub);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/own.jinja", dir);
    assert_non_null(f = fopen(path, "w"));
    fputs("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
          "{% if add_generation_prompt %}<|im_end|>{% endif %}",
          f);
    fclose(f);
    snprintf(made, sizeof made, "%s/data.jsonl", dir);
    assert_non_null(f = fopen(made, "w"));
    fputs("{\"prompt\":\"a\",\"completion\":\"b\"}\n", f);
    fclose(f);
    snprintf(command, sizeof command, "%s/models--me--lora/snapshots/d", hub);
    assert_int_equal(rmdir(command), 0);
    expect(RUN(S("train"), S("me/tiny"), S("--data"), made, S("--steps"), S("1"), S("--chat-template"), path,
               S("-o"), command),
           0, NULL);
    snprintf(made, sizeof made, "%s/adapter_config.json", command);
    char text[4096] = "";
    assert_non_null(f = fopen(made, "r"));
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "\"base_model_name_or_path\": \"me/tiny\""));
    assert_non_null(strstr(text, "\"revision\": \"abc\""));
    expect(RUN(S("run"), S("tiny"), S("a"), S("-n"), S("1"), S("--json"), S("--chat-template"), path), 0,
           NULL);
    const char *want = strstr(last->out, "\"prompt_ids\":");
    assert_non_null(want);
    snprintf(ids, sizeof ids, "%.*s", (int)(strchr(want, ']') + 1 - want), want);
    expect(RUN(S("run"), S("me/tiny"), S("a"), S("-n"), S("1"), S("--json"), S("--adapter"), S("me/lora")), 0,
           NULL);
    assert_non_null(strstr(last->out, ids));
    snprintf(made, sizeof made, "%s/fused-own", dir);
    expect(RUN(S("fuse"), S("me/tiny"), S("me/lora"), S("-o"), made), 0, NULL);
    expect(RUN(S("run"), made, S("a"), S("-n"), S("1"), S("--json")), 0, NULL);
    assert_non_null(strstr(last->out, ids));
    expect(RUN(S("run"), S("tiny"), S("a"), S("-n"), S("1"), S("--json")), 0, NULL);
    assert_null(strstr(last->out, ids));
    snprintf(path, sizeof path, "%s/in.jsonl", dir);
    assert_non_null(f = fopen(path, "w"));
    fputs("{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/chat/"
          "completions\",\"body\":{\"model\":\"x\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
          "\"content\":\"a\"}]}}\n",
          f);
    fclose(f);
    snprintf(made, sizeof made, "%s/out.jsonl", dir);
    expect(RUN(S("batch"), S("tiny"), path, S("-o"), made, S("--lora"), S("x=me/lora")), 0, NULL);
    assert_non_null(strstr(last->err, "was trained with this chat template"));
    expect(RUN(S("run"), S("tiny"), S("a"), S("--adapter"), S("me/none")), 5, "hf download me/none");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(trains_resumes_and_fuses),
                                       cmocka_unit_test(of_a_model_with_images),
                                       cmocka_unit_test(template_and_names),
                                       cmocka_unit_test(deep_directories),
                                       cmocka_unit_test(settings_in_a_file),
                                       cmocka_unit_test(every_flag_is_a_setting),
                                       cmocka_unit_test(conversations_stay_together),
                                       cmocka_unit_test(texts_while_it_trains),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(added_tokens)};
    return cmocka_run_group_tests(tests, begin, end);
}
