/* Checkpoints: a save is whole or not at all, whatever call of it is the last; damaged ones are named and
 * passed over; what was saved is read back to the same bits. */
/* run: quick */
#include "../killed.h"

#include "io/io.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_PARAMS = 4, ROWS = 3, COLS = 5 };
static char dir[100];

typedef struct model {
    train_param params[N_PARAMS];
    float data[N_PARAMS][3][ROWS * COLS];
    train_state state;
} model;

/* The state after `step` steps: all values are functions of it. */
static void state_of(model *m, int64_t step) {
    static const char *const names[N_PARAMS] = {
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
        "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight"};
    uint64_t seed = (uint64_t)step * 77 + 1;
    for (int i = 0; i < N_PARAMS; i++) {
        train_param *p = &m->params[i];
        *p = (train_param){
            .rows = ROWS, .cols = COLS, .value = m->data[i][0], .m = m->data[i][1], .v = m->data[i][2]};
        snprintf(p->name, sizeof p->name, "%s", names[i]);
        for (int k = 0; k < 3; k++)
            for (int e = 0; e < ROWS * COLS; e++) m->data[i][k][e] = test_normal(&seed);
    }
    m->state = (train_state){.params = m->params,
                             .n_params = N_PARAMS,
                             .n_moments = 2,
                             .step = step,
                             .cursor = {(uint64_t)step / 10, (uint64_t)step % 10},
                             .n_tokens = (uint64_t)step * 100,
                             .best_step = step > 1 ? step - 1 : 0,
                             .best_loss = step > 1 ? 1.0 / (double)step : 0,
                             .n_worse = 1};
}

static ln_status save(int64_t step, int keep, ln_error *err) {
    model m;
    json_t *settings = json_pack("{s:i, s:s}", "seed", 7, "schedule", "linear"),
           *config = json_pack("{s:s, s:i}", "peft_type", "LORA", "r", 3);
    state_of(&m, step);
    const ln_status st = train_checkpoint_write(dir, &m.state,
                                                &(train_save){.settings = settings,
                                                              .time = "2025-07-10T12:34:56",
                                                              .adapter_config = config,
                                                              .keep = keep},
                                                err);
    json_decref(settings);
    json_decref(config);
    return st;
}

/* Whether the checkpoint that is found is that of `step`, with its bits; 0: none. */
static void check_found(int64_t least, int64_t most) {
    train_found f;
    model m, want;
    OK(train_checkpoint_find(dir, &f, err));
    if (f.step < least || f.step > most)
        fail_msg("found step %lld, expected %lld to %lld", (long long)f.step, (long long)least,
                 (long long)most);
    if (f.step > 0) {
        state_of(&want, f.step);
        state_of(&m, 1000);
        OK(train_checkpoint_read(&f, &m.state, err));
        assert_memory_equal(m.data, want.data, sizeof m.data);
        assert_int_equal(m.state.cursor.epoch, want.state.cursor.epoch);
        assert_int_equal(m.state.cursor.at, want.state.cursor.at);
        assert_int_equal(m.state.n_tokens, want.state.n_tokens);
        assert_int_equal(m.state.best_step, want.state.best_step);
        assert_true(m.state.best_loss == want.state.best_loss);
        assert_int_equal(m.state.step, want.state.step);
    }
    train_found_free(&f);
}

static void clear(void) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", dir, dir);
    assert_int_equal(system(command), 0);
}
/* The entries of the directory whose names begin so. */
static int entries(const char *begin) {
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
             strncmp(e->d_name, begin, strlen(begin)) == 0;
    closedir(d);
    return n;
}

static void written_and_read(void **state) {
    (void)state;
    ln_tensors t;
    char path[200];
    clear();
    check_found(0, 0);
    for (int64_t s = 1; s <= 5; s++) {
        OK(save(s, 2, err));
        check_found(s, s);
        assert_int_equal(entries(""), LN_MIN(s, 2));
    }
    OK(save(5, 2, err)); /* once more: it stays */
    OK(save(6, 4, err));
    assert_int_equal(entries(""), 3);
    OK(save(6, 2, err)); /* a process that was killed before it removed the oldest one: the next one does */
    assert_int_equal(entries(""), 2);
    OK(save(7, 4, err));
    OK(train_checkpoint_prune(dir, 2, err));
    assert_int_equal(entries(""), 2);
    OK(save(6, 4, err));
    snprintf(path, sizeof path, "%s/step-00000006/adapter_model.safetensors", dir);
    OK(ln_tensors_open_file(&t, path, err));
    assert_int_equal(t.n, N_PARAMS);
    ln_tensors_close(&t);
}

static int n_warned;
static char warned[500];
static void on_log(void *user, ln_level level, const char *text) {
    (void)user;
    if (level == LN_LOG_WARN && n_warned++ == 0) snprintf(warned, sizeof warned, "%s", text);
}

/* Every file cut at any length or with a bit flipped anywhere: the one before is used, and the file named. */
static void damage(void **state) {
    (void)state;
    static const char *const files[] = {"adapter_model.safetensors", "adapter_config.json",
                                        "train_state.safetensors", "manifest.json"};
    clear();
    OK(save(1, 2, err));
    OK(save(2, 2, err));
    ln_log_set(on_log, NULL);
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        char path[200], *data;
        size_t bytes;
        snprintf(path, sizeof path, "%s/step-00000002/%s", dir, files[i]);
        OK(ln_read_file(path, 1 << 20, &data, &bytes, err));
        for (size_t at = 0; at < bytes; at += 1 + bytes / 40) {
            for (int cut = 0; cut < 2; cut++) {
                FILE *f = fopen(path, "wb");
                data[at] ^= cut ? 0 : 0x10;
                assert_int_equal(fwrite(data, 1, cut ? at : bytes, f), cut ? at : bytes);
                data[at] ^= cut ? 0 : 0x10;
                fclose(f);
                n_warned = 0;
                check_found(1, 1);
                assert_int_equal(n_warned, 1);
                assert_non_null(strstr(warned, "step-00000002"));
                if (i != 3) assert_non_null(strstr(warned, files[i]));
            }
        }
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(data, 1, bytes, f), bytes);
        fclose(f);
        ln_free(data);
        check_found(2, 2);
    }
    ln_log_set(NULL, NULL);
    /* a damaged checkpoint of the same step is replaced, and does not count as one that is kept */
    char path[200];
    snprintf(path, sizeof path, "%s/step-00000002/manifest.json", dir);
    assert_int_equal(unlink(path), 0);
    check_found(1, 1);
    OK(save(3, 2, err));
    check_found(3, 3);
    assert_int_equal(entries("step-00000001"), 1);
    OK(save(2, 2, err));
    check_found(3, 3);
}

static void other_parameters_and_settings(void **state) {
    (void)state;
    train_found f;
    model m;
    clear();
    OK(save(4, 2, err));
    OK(train_checkpoint_find(dir, &f, err));
    state_of(&m, 1);
    m.params[2].rows = 4;
    FAILS(LN_EINVALID, "expected f32 [4,5]", train_checkpoint_read(&f, &m.state, err));
    state_of(&m, 1);
    m.params[0].name[20] ^= 1;
    FAILS(LN_EINVALID, "value.base_model", train_checkpoint_read(&f, &m.state, err));
    state_of(&m, 1);
    m.state.n_params--;
    FAILS(LN_EINVALID, "expected 9 tensors, found 12", train_checkpoint_read(&f, &m.state, err));
    json_t *now = json_pack("{s:i, s:s, s:i}", "seed", 8, "schedule", "linear", "rank", 4);
    FAILS(LN_EUSAGE, "seed: 7 then, 8 now; rank: nothing then, 4 now", train_settings_check(&f, now, err));
    (void)json_object_del(now, "rank");
    (void)json_object_del(now, "schedule");
    (void)json_object_set_new(now, "seed", json_integer(7));
    FAILS(LN_EUSAGE, "schedule: \"linear\" then, nothing now", train_settings_check(&f, now, err));
    (void)json_object_set_new(now, "schedule", json_string("linear"));
    OK(train_settings_check(&f, now, err));
    json_decref(now);
    train_found_free(&f);
}

/* ---- kills ---- */

/* Runs this program as `save STEP`, killed after `us` microseconds unless that is negative; or with a call
 * that does `what`. Returns wait's status. */
static int run_save(int64_t step, long us) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)step);
    char *const args[] = {"save", dir, text, NULL};
    return test_run_self(NULL, args, us);
}
static int run_injected(int64_t step, const char *call, const char *what, int when) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)step);
    char *const args[] = {"save", dir, text, NULL};
    return test_run_injected(args, call, what, when);
}

static bool strace_works(void) {
    char *const args[] = {"save", dir, "1", NULL};
    clear();
    return test_strace_works(args);
}

static int64_t last_step(void) {
    train_found f;
    OK(train_checkpoint_find(dir, &f, err));
    const int64_t step = f.step;
    train_found_free(&f);
    return step;
}

/* Kills the save at each call of each kind that touches files (without LN_LONG, at every sixth). */
static void killed_at_every_call(void **state) {
    (void)state;
    const int by = getenv("LN_LONG") ? 1 : 6;
    if (!strace_works()) {
        print_message("SKIP: strace is not there or may not trace: saves are NOT killed at every call\n");
        skip();
    }
    int n = 0, n_killed = 0;
    clear();
    OK(save(1, 2, err));
    int64_t last = 1;
    for (size_t i = 0; i < LN_COUNT(test_file_calls); i++)
        for (int k = 1;; k += by) {
            const int status = run_injected(last + 1, test_file_calls[i], "signal=KILL", k);
            train_checkpoint_sweep(dir);
            check_found(last, last + 1);
            assert_int_equal(entries("."), 0);
            last = last_step();
            n++;
            if (WIFEXITED(status)) {
                assert_int_equal(WEXITSTATUS(status), 0);
                assert_int_equal(entries("step-"), 2); /* a complete save removes what killed ones left */
                break;
            }
            n_killed++;
            assert_true(k < 5000);
        }
    print_message("  %d of %d saves were killed\n", n_killed, n);
    assert_true(n_killed >= 15);
}

/* A call that fails: the save fails with LN_EIO and leaves nothing, or succeeds. */
static void errors_of_calls(void **state) {
    (void)state;
    static const struct {
        const char *call, *error;
    } cases[] = {{"write", "ENOSPC"}, {"write", "EIO"},     {"fsync", "EIO"},   {"openat", "EMFILE"},
                 {"mkdir", "EROFS"},  {"renameat2", "EIO"}, {"write", "EINTR"}, {"fsync", "EDQUOT"}};
    if (!strace_works()) skip();
    clear();
    OK(save(1, 2, err));
    int64_t last = 1;
    int n_failed = 0, n_row = 0; /* n_row: saves in a row that failed */
    for (size_t i = 0; i < LN_COUNT(cases); i++)
        for (int k = 1; k < (getenv("LN_LONG") ? 60 : 12); k += getenv("LN_LONG") ? 1 : 3) {
            char what[40];
            snprintf(what, sizeof what, "error=%s", cases[i].error);
            const int status = run_injected(last + 1, cases[i].call, what, k);
            assert_true(WIFEXITED(status));
            const int code = WEXITSTATUS(status);
            if (code == 127) continue; /* the program could not start */
            if (code != LN_OK && code != LN_EIO)
                fail_msg("%s %s %d: exit %d", cases[i].call, cases[i].error, k, code);
            assert_true(entries(".") == 0);
            check_found(code == LN_OK ? last + 1 : last, last + 1);
            n_row = code == LN_OK ? 0 : n_row + 1;
            /* a save whose removal of old ones fails leaves one, which the next that succeeds removes */
            assert_true(entries("step-") <= 3 + n_row);
            n_failed += code != LN_OK;
            last = last_step();
        }
    assert_true(n_failed > 5);
}

static void killed_at_random(void **state) {
    (void)state;
    uint64_t random = 3;
    const int n = getenv("LN_LONG") ? 1000 : 20;
    clear();
    const double start = ln_now();
    assert_int_equal(run_save(1, -1), 0);
    const uint32_t most =
        (uint32_t)(2e6 * (ln_now() - start)); /* microseconds: twice as long as a save takes */
    for (int i = 0; i < n; i++) {
        const int64_t last = last_step();
        (void)run_save(last + 1, (long)(test_random(&random) % most));
        train_checkpoint_sweep(dir);
        check_found(last, last + 1);
    }
    print_message("  %lld of %d saves were complete\n", (long long)last_step() - 1, n);
}

static int end(void **state) {
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(int argc, char **argv) {
    json_t *any;
    if (ln_json_load(&any, "", "{}", 2, NULL) != LN_OK)
        return 1; /* jansson has the library's allocator now */
    json_decref(any);
    if (argc == 4 && strcmp(argv[1], "save") == 0) {
        snprintf(dir, sizeof dir, "%s", argv[2]);
        return (int)save(atoll(argv[3]), 2, NULL);
    }
    snprintf(dir, sizeof dir, "%s/linnet-checkpoint-%ld", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(damage),
        cmocka_unit_test(other_parameters_and_settings),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(errors_of_calls),
        cmocka_unit_test(killed_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
