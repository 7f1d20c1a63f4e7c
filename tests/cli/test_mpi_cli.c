/* The command as several processes that mpirun starts on this machine: the answers of one process, ranks that
 * hang or are killed, another model on a rank. Needs Open MPI's mpirun (docs/ranks.md); without it all tests
 * are skipped. */
/* run: slow */
#include "spawn.h"

#include <dirent.h>
#include <time.h>

static char mpirun[300]; /* path; "": not installed */

static void allow_root(void) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("TMPDIR", "/tmp", 1);
}

static bool find_mpirun(void) {
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t n = strcspn(path, ":");
        (void)snprintf(mpirun, sizeof mpirun, "%.*s/mpirun", (int)n, path);
        if (access(mpirun, X_OK) == 0) return true;
        path += n + (path[n] == ':');
    }
    mpirun[0] = '\0';
    return false;
}

/* Skips a test without mpirun; else the next runs are those of mpirun. */
static void need_mpirun(void) {
    if (!mpirun[0] && !find_mpirun()) {
        print_message("SKIP: mpirun is not installed (Debian: apt-get install openmpi-bin)\n");
        skip();
    }
    before_exec = allow_root;
}

#define MPIRUN(n) S("mpirun"), S("--oversubscribe"), S("--bind-to"), S("none"), S("-n"), S(n)

/* Runs the command on so many ranks. */
static outcome *run_ranks(char *const argv[]) {
    program = mpirun;
    outcome *o = run_with("", 0, argv);
    program = LINNET;
    return o;
}
#define RANKS(...) run_ranks((char *const[]){__VA_ARGS__, NULL})

static json_t *one_json(outcome *o) {
    if (o->code != 0) fail_msg("exit %d: %s", o->code, o->err);
    json_t *j = json_loads(o->out, 0, NULL);
    if (!j) fail_msg("no JSON: %s", o->out);
    return j;
}
static void same_member(const json_t *a, const json_t *b, const char *name) {
    if (!json_equal(json_object_get(a, name), json_object_get(b, name)))
        fail_msg("%s differs between ranks", name);
}

#define ARGS                                                                                               \
    S("--raw"), S("--json"), S("-n"), S("40"), S("--temp"), S("0.8"), S("--seed"), S("5"), S("--threads"), \
        S("1"), S("--chunk"), S("16")

static void test_run(void **state) {
    static const char *const models[] = {TINY, SMALL};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        need_mpirun();
        before_exec = NULL;
        json_t *one = one_json(RUN(S("run"), (char *)(uintptr_t)models[i], S(STORY), ARGS));
        need_mpirun();
        json_t *two = one_json(RANKS(MPIRUN("2"), S(LINNET), S("run"), (char *)(uintptr_t)models[i], S(STORY),
                                     ARGS)),
               *three = one_json(RANKS(MPIRUN("3"), S(LINNET), S("run"), (char *)(uintptr_t)models[i],
                                       S(STORY), ARGS));
        assert_true(json_array_size(json_object_get(one, "ids")) > 0);
        same_member(one, two, "ids"), same_member(one, three, "ids");
        json_decref(one), json_decref(two), json_decref(three);
    }
}

static void test_score(void **state) {
    (void)state;
    need_mpirun();
    before_exec = NULL;
    json_t *one = one_json(RUN(S("score"), S(SMALL), S(STORY), S("--json"), S("--top"), S("3")));
    need_mpirun();
    json_t *two = one_json(RANKS(MPIRUN("2"), S(LINNET), S("score"), S(SMALL), S(STORY), S("--json"),
                                 S("--top"), S("3")));
    same_member(one, two, "logprobs"), same_member(one, two, "top");
    json_decref(one), json_decref(two);
}

/* A rank has another model under the same name. */
static void test_other_model(void **state) {
    static const char *const models[] = {TINY, SMALL};
    char folder[2][100], link[2][110];
    (void)state;
    need_mpirun();
    for (int i = 0; i < 2; i++) {
        (void)snprintf(folder[i], sizeof folder[i], "%s/%d", dir, i);
        (void)snprintf(link[i], sizeof link[i], "%s/model", folder[i]);
        assert_int_equal(mkdir(folder[i], 0700) | symlink(models[i], link[i]), 0);
    }
    outcome *o =
        RANKS(MPIRUN("1"), S("--wdir"), folder[0], S(LINNET), S("run"), S("./model"), S(STORY), S(":"),
              S("-n"), S("1"), S("--wdir"), folder[1], S(LINNET), S("run"), S("./model"), S(STORY));
    for (int i = 0; i < 2; i++) assert_int_equal(unlink(link[i]) | rmdir(folder[i]), 0);
    assert_int_equal(o->code, 2);
    if (!strstr(o->err, "rank 1 of 2: its model is another one than that of rank 0"))
        fail_msg("expected the rank, found: %s", o->err);
}

/* The process of a rank: a child of mpirun. 0: not started yet. */
static pid_t process_of(pid_t parent, int rank) {
    DIR *d = opendir("/proc");
    pid_t found = 0;
    char path[300], text[8192], mark[64];
    const int n = snprintf(mark, sizeof mark, "OMPI_COMM_WORLD_RANK=%d", rank);
    assert_non_null(d);
    for (const struct dirent *x; !found && (x = readdir(d));) {
        int ppid = 0;
        (void)snprintf(path, sizeof path, "/proc/%.60s/stat", x->d_name);
        FILE *f = x->d_name[0] >= '0' && x->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        if (!f) continue;
        const bool mine = fscanf(f, "%*d (%*[^)]) %*c %d", &ppid) == 1 && ppid == parent;
        (void)fclose(f);
        (void)snprintf(path, sizeof path, "/proc/%.60s/environ", x->d_name);
        f = mine ? fopen(path, "r") : NULL;
        if (!f) continue;
        const size_t got = fread(text, 1, sizeof text, f);
        (void)fclose(f);
        for (size_t i = 0; i + (size_t)n < got && !found; i++)
            if (memcmp(text + i, mark, (size_t)n) == 0 && text[i + (size_t)n] == '\0' &&
                (i == 0 || !text[i - 1]))
                found = (pid_t)atoi(x->d_name);
    }
    (void)closedir(d);
    return found;
}

/* Starts a long answer on two ranks, sends a signal to rank 1 once text has come, and returns how long the
 * job then took to end. */
static double signalled(int number, int *code, char *said, size_t cap) {
    char *const argv[] = {MPIRUN("2"), S(LINNET), S("run"),          S(TINY),        S(STORY), S("--raw"),
                          S("-n"),     S("900"),  S("--ignore-eos"), S("--threads"), S("1"),   NULL};
    int out[2], err[2], in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char byte;
    assert_int_equal(pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
    program = mpirun;
    const pid_t job = start(argv, in, out[1], err[1]);
    program = LINNET;
    close(out[1]), close(err[1]), close(in);
    assert_int_equal(read(out[0], &byte, 1), 1);
    const pid_t rank = process_of(job, 1);
    assert_true(rank > 0);
    assert_int_equal(kill(rank, number), 0);
    const double since = ln_now();
    (void)drain(out[0]);
    const ssize_t n = read(err[0], said, cap - 1);
    size_t all = n > 0 ? (size_t)n : 0;
    for (ssize_t got; all < cap - 1 && (got = read(err[0], said + all, cap - 1 - all)) > 0;)
        all += (size_t)got;
    said[all] = '\0';
    close(err[0]);
    *code = finish(job);
    if (number == SIGSTOP) (void)kill(rank, SIGKILL);
    return ln_now() - since;
}

static void test_hung_rank(void **state) {
    (void)state;
    char said[16384];
    int code;
    need_mpirun();
    const double took = signalled(SIGSTOP, &code, said, sizeof said);
    if (!strstr(said, "rank 1 of 2 (host ") || !strstr(said, "has not answered for 4 s"))
        fail_msg("expected the rank that hangs, found: %s", said);
    assert_int_equal(code, 7);
    assert_true(took < 30); /* 4 s, and what a busy machine takes */
}

/* mpirun itself ends the job and names the rank. */
static void test_killed_rank(void **state) {
    (void)state;
    char said[16384];
    int code;
    need_mpirun();
    (void)signalled(SIGKILL, &code, said, sizeof said);
    assert_true(code != 0);
    if (!strstr(said, "rank 1")) fail_msg("expected the rank that was killed, found: %s", said);
}

/* Writes requests for `batch`. */
static void write_requests(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 24; i++)
        (void)fprintf(f,
                      "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/"
                      "completions\",\"body\":{\"model\":"
                      "\"tiny\",\"prompt\":\"Tell me "
                      "%d\",\"max_tokens\":%d,\"seed\":1,\"ignore_eos\":true}}\n",
                      i, i, 20 * i + 4);
    assert_int_equal(fclose(f), 0);
}
/* Returns the texts of a file of answers by custom_id, every line of which must be a whole answer. */
static json_t *answers_of(const char *path) {
    json_t *all = json_object();
    FILE *f = fopen(path, "r");
    static char line[1 << 16];
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, NULL);
        const json_t *response = json_object_get(row, "response"), *body = json_object_get(response, "body");
        if (json_integer_value(json_object_get(response, "status_code")) != 200)
            fail_msg("an answer: %s", line);
        const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
        assert_int_equal(json_object_set(all, json_string_value(json_object_get(row, "custom_id")),
                                         json_object_get(choice, "text")),
                         0);
        json_decref(row);
    }
    (void)fclose(f);
    return all;
}
static int64_t size_of(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : 0;
}

/* A rank hangs in the middle of a batch: the file has whole answers only, and another run, of one process,
 * adds the others. */
static void test_batch(void **state) {
    char in[100], one[100], two[100];
    (void)state;
    need_mpirun();
    (void)snprintf(in, sizeof in, "%s/in.jsonl", dir);
    (void)snprintf(one, sizeof one, "%s/one.jsonl", dir);
    (void)snprintf(two, sizeof two, "%s/two.jsonl", dir);
    write_requests(in);
    before_exec = NULL;
    expect(RUN(S("batch"), S(TINY), in, S("-o"), one, S("--threads"), S("1")), 0, NULL);
    need_mpirun();
    char *const argv[] = {MPIRUN("2"), S(LINNET), S("batch"),     S(TINY), in,
                          S("-o"),     two,       S("--threads"), S("1"),  NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    program = mpirun;
    const pid_t job = start(argv, null, null, null);
    program = LINNET;
    for (int i = 0; i < 12000 && size_of(two) == 0; i++) usleep(10000);
    const pid_t rank = process_of(job, 1);
    assert_true(rank > 0);
    assert_int_equal(kill(rank, SIGSTOP), 0);
    assert_int_equal(finish(job), 7);
    (void)kill(rank, SIGKILL);
    close(null);
    json_t *want = answers_of(one), *some = answers_of(two);
    assert_in_range(json_object_size(some), 1, json_object_size(want) - 1);
    before_exec = NULL;
    expect(RUN(S("batch"), S(TINY), in, S("-o"), two, S("--threads"), S("1")), 0, NULL);
    json_t *all = answers_of(two);
    assert_true(json_equal(want, all));
    json_decref(want), json_decref(some), json_decref(all);
    assert_int_equal(unlink(in) | unlink(one) | unlink(two), 0);
}

/* A server whose rank hangs ends: it has no answer to give any more. */
static void test_serve(void **state) {
    char said[4096];
    int err[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    size_t n = 0;
    (void)state;
    need_mpirun();
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    char *const argv[] = {MPIRUN("2"), S(LINNET),      S("serve"), S(TINY), S("--port"),
                          S("0"),      S("--threads"), S("1"),     NULL};
    program = mpirun;
    const pid_t job = start(argv, null, null, err[1]);
    program = LINNET;
    close(err[1]), close(null);
    memset(said, 0, sizeof said);
    for (ssize_t got = 1; got > 0 && !strstr(said, "listening on"); n += (size_t)LN_MAX(got, 0))
        got = read(err[0], said + n, sizeof said - 1 - n);
    const pid_t rank = process_of(job, 1);
    assert_true(rank > 0);
    assert_int_equal(kill(rank, SIGSTOP), 0);
    for (ssize_t got = 1; got > 0 && n < sizeof said - 1; n += (size_t)LN_MAX(got, 0))
        got = read(err[0], said + n, sizeof said - 1 - n);
    close(err[0]);
    assert_int_equal(finish(job), 7);
    (void)kill(rank, SIGKILL);
    assert_non_null(strstr(said, "rank 1 of 2 (host "));
    assert_non_null(strstr(said, "this rank ends"));
}

/* ---- training ---- */

static void write_samples(const char *path) {
    static const char *const words[] = {"the", "cat", "dog", "sat", "on", "a", "mat", "and", "ran", "away"};
    FILE *f = fopen(path, "w");
    uint32_t x = 7;
    assert_non_null(f);
    for (int i = 0; i < 40; i++) {
        (void)fprintf(f, "{\"text\":\"");
        for (int k = 0; k < 5 + i % 30; k++)
            (void)fprintf(f, "%s ", words[(x = x * 1664525u + 1013904223u) >> 16 & 7]);
        (void)fprintf(f, "\"}\n");
    }
    assert_int_equal(fclose(f), 0);
}
static void remove_tree(const char *path) {
    char command[400];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}
static void same_files(const char *one, const char *other, const char *leaf) {
    char path[2][400], *data[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path[i], sizeof path[i], "%s/%s", i ? other : one, leaf);
        assert_int_equal(ln_read_file(path[i], 64 << 20, &data[i], &bytes[i], NULL), LN_OK);
    }
    if (bytes[0] != bytes[1] || memcmp(data[0], data[1], bytes[0]) != 0)
        fail_msg("%s and %s differ", path[0], path[1]);
    ln_free(data[0]), ln_free(data[1]);
}

#define TRAIN(out)                                                                                          \
    S("train"), S(TINY), S("--data"), data, S("-o"), out, S("--valid-split"), S("0.1"), S("--steps"),       \
        S("4"), S("--batch"), S("4"), S("--accum"), S("3"), S("--max-length"), S("24"), S("--save-every"),  \
        S("2"), S("--keep"), S("9"), S("--threads"), S("1"), S("--rank"), S("2"), S("--dropout"), S("0.1"), \
        S("--seed"), S("3")

/* Two and three ranks train to the bits of one, also from the other's checkpoint. */
static void test_train(void **state) {
    char data[100], one[100], two[100], trained[400];
    (void)state;
    need_mpirun();
    before_exec = NULL;
    (void)snprintf(data, sizeof data, "%s/samples.jsonl", dir);
    (void)snprintf(one, sizeof one, "%s/one", dir);
    (void)snprintf(two, sizeof two, "%s/two", dir);
    write_samples(data);
    expect(RUN(TRAIN(one)), 0, NULL);
    need_mpirun();
    outcome *o = RANKS(MPIRUN("2"), S(LINNET), TRAIN(two));
    if (o->code) fail_msg("exit %d: %s", o->code, o->err);
    same_files(one, two, "adapter_model.safetensors");
    same_files(one, two, "best/adapter_model.safetensors");
    same_files(one, two, "checkpoints/step-00000004/train_state.safetensors");
    for (int i = 0; i < 3; i++) { /* as after a kill behind step 2 */
        static const char *const leaves[] = {"checkpoints/step-00000004", "adapter_model.safetensors",
                                             "best"};
        (void)snprintf(trained, sizeof trained, "%s/%s", two, leaves[i]);
        remove_tree(trained);
    }
    o = RANKS(MPIRUN("3"), S(LINNET), TRAIN(two), S("--resume"));
    if (o->code) fail_msg("exit %d: %s", o->code, o->err);
    same_files(one, two, "adapter_model.safetensors");
    remove_tree(one), remove_tree(two);
    assert_int_equal(unlink(data), 0);
}

/* A rank that is bound to one core says so. */
static void test_bound_rank(void **state) {
    (void)state;
    need_mpirun();
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) skip();
    outcome *o = RANKS(MPIRUN("2"), S("taskset"), S("-c"), S("0"), S(LINNET), S("run"), S(TINY), S(STORY),
                       S("-n"), S("2"));
    assert_int_equal(o->code, 0);
    assert_non_null(strstr(o->err, "is bound to one core of"));
}

/* What a rank takes is planned without starting any. */
static void test_plan(void **state) {
    (void)state;
    outcome *o = RUN(S("plan"), S(TINY), S("--ranks"), S("3"), S("--json"));
    json_t *plan = one_json(o);
    const json_t *rows = json_object_get(plan, "ranks");
    assert_int_equal(json_array_size(rows), 3);
    const int64_t third = json_integer_value(json_object_get(json_array_get(rows, 2), "weights_bytes"));
    json_decref(plan);
    plan = one_json(RUN(S("plan"), S(TINY), S("--json")));
    assert_true(third < json_integer_value(json_object_get(plan, "weights_bytes")));
    json_decref(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan),       cmocka_unit_test(test_run),
                                       cmocka_unit_test(test_score),      cmocka_unit_test(test_other_model),
                                       cmocka_unit_test(test_hung_rank),  cmocka_unit_test(test_killed_rank),
                                       cmocka_unit_test(test_bound_rank), cmocka_unit_test(test_batch),
                                       cmocka_unit_test(test_serve),      cmocka_unit_test(test_train)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
