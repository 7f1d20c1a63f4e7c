/* The model that full training writes into a directory that holds an earlier one: whatever call of a save is
 * the last, the directory holds one of the two. */
/* run: quick */
#include "../killed.h"

#include "convert/convert.h"
#include "io/io.h"

#define MODEL LN_ROOT "/tests/golden/qwen2-f32"

static char dir[100];

static void shell(const char *command) {
    char line[400];
    snprintf(line, sizeof line, "mkdir -p '%s' && cd '%s' && %s", dir, dir, command);
    if (system(line) != 0) fail_msg("%s", line);
}

/* Writes the model with the number `version` in place of each weight. */
static ln_status save(int version, uint64_t shard_bytes, ln_error *err) {
    ln_tensors t;
    ln_convert_values values[200];
    size_t most = 0;
    ln_status st = ln_tensors_open(&t, MODEL, false, err);
    if (st != LN_OK) return st;
    for (size_t i = 0; i < t.n; i++) most = LN_MAX(most, (size_t)(t.items[i].bytes / 4));
    float *numbers = calloc(most, sizeof *numbers);
    if (!numbers || t.n > LN_COUNT(values)) abort();
    for (size_t i = 0; i < most; i++) numbers[i] = (float)version;
    for (size_t i = 0; i < t.n; i++) values[i] = (ln_convert_values){t.items[i].name, numbers};
    st = ln_convert_trained(MODEL, dir, values, t.n, shard_bytes, 1, err);
    free(numbers);
    ln_tensors_close(&t);
    return st;
}

/* The version of the model in the directory, all of whose tensors must have it; 0: it holds no model. */
static int version_there(void) {
    char path[200];
    ln_tensors t;
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (access(path, F_OK) != 0) return 0;
    OK(ln_tensors_open(&t, dir, false, err));
    assert_true(t.n > 10 && t.n_absent == 0);
    const int version = (int)ln_num_load(t.items[0].data, LN_F32, 0);
    for (size_t i = 0; i < t.n; i++)
        for (int64_t k = 0; k < (int64_t)(t.items[i].bytes / 4); k++)
            if ((int)ln_num_load(t.items[i].data, LN_F32, k) != version)
                fail_msg("tensor %s is of version %g, others of %d", t.items[i].name,
                         (double)ln_num_load(t.items[i].data, LN_F32, k), version);
    ln_tensors_close(&t);
    return version;
}

static void one_after_the_other(void **state) {
    (void)state;
    shell("rm -rf * .model*");
    for (int version = 1; version <= 4; version++) {
        OK(save(version, 20000, err));
        assert_int_equal(version_there(), version);
        shell("test -f model-*00001-of-$(printf %05d $(ls model-*.safetensors | wc -l)).safetensors");
        shell("test -f tokenizer.json && test ! -e model.safetensors && ! ls -d .model* 2>/dev/null");
        shell(version % 2 ? "ls model-00001-of-*.safetensors && ! ls model-b-* 2>/dev/null"
                          : "ls model-b-00001-of-*.safetensors && ! ls model-0* 2>/dev/null");
    }
}

/* Kills the save at each call of each kind that touches files (without LN_LONG, at some of them). */
static void killed_at_every_call(void **state) {
    (void)state;
    static const uint64_t shard_bytes[] = {20000, LN_CONVERT_SHARD_BYTES};
    char number[32], bytes[32], *const args[] = {"save", dir, number, bytes, NULL};
    int n_killed = 0, n_new = 0;
    snprintf(number, sizeof number, "1");
    snprintf(bytes, sizeof bytes, "20000");
    shell("rm -rf * .model*");
    if (!test_strace_works(args)) {
        print_message("SKIP: strace is not there or may not trace: saves are NOT killed at every call\n");
        skip();
    }
    for (size_t s = 0; s < LN_COUNT(shard_bytes); s++) {
        int last = 0;
        shell("rm -rf * .model*"); /* the first save is into an empty directory */
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)shard_bytes[s]);
        for (size_t i = 0; i < LN_COUNT(test_file_calls); i++) {
            const bool all = getenv("LN_LONG") || strncmp(test_file_calls[i], "rename", 6) == 0 ||
                             strncmp(test_file_calls[i], "unlink", 6) == 0;
            for (int k = 1;; k += all ? 1 : 9) {
                snprintf(number, sizeof number, "%d", last + 1);
                const int status = test_run_injected(args, test_file_calls[i], "signal=KILL", k);
                const int now = version_there();
                assert_true(now == last || now == last + 1);
                if (WIFEXITED(status)) {
                    assert_int_equal(WEXITSTATUS(status), 0);
                    assert_int_equal(now, last + 1);
                    shell("test -z \"$(find . -name '*.tmp*')\""); /* it removes what killed ones left */
                    last = now;
                    break;
                }
                n_new += now == last + 1;
                last = now;
                n_killed++;
                assert_true(k < 5000);
            }
        }
    }
    print_message("  %d saves were killed, %d of them after the model was new\n", n_killed, n_new);
    assert_true(n_killed >= 60 && n_new >= 3);
}

static int end(void **state) {
    (void)state;
    shell("rm -rf \"$PWD\"");
    return 0;
}

int main(int argc, char **argv) {
    json_t *any;
    if (ln_json_load(&any, "", "{}", 2, NULL) != LN_OK)
        return 1; /* jansson has the library's allocator now */
    json_decref(any);
    if (argc == 5 && strcmp(argv[1], "save") == 0) {
        snprintf(dir, sizeof dir, "%s", argv[2]);
        return (int)save(atoi(argv[3]), strtoull(argv[4], NULL, 10), NULL);
    }
    snprintf(dir, sizeof dir, "/tmp/test_model_saves.%ld", (long)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_after_the_other),
                                       cmocka_unit_test(killed_at_every_call)};
    return cmocka_run_group_tests(tests, NULL, end);
}
