/* Files that verbs write: asked for before the work, never replaced unasked, readable by their user alone if
 * they tell what a user wrote; and what reaches a terminal. */
/* run: quick */
#include "pty.h"

#include <sys/resource.h>

static void make_file(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Asserts that a run fails with this text and has neither loaded a model nor written anything. */
static void refused_early(const outcome *o, const char *text) {
    expect(o, 5, text);
    assert_int_equal(o->out_bytes, 0);
}

static char in[300], file[300];

/* With a model that does not exist the refusal of the output comes first: nothing was opened before. */
static void asked_before_the_work(void **state) {
    (void)state;
    (void)snprintf(file, sizeof file, "%s/there", dir);
    (void)snprintf(in, sizeof in, "%s/examples/requests.jsonl", LN_ROOT);
    make_file(file, "kept");
    refused_early(RUN(S("run"), S("/no/model"), S("Hi"), S("--save-kv"), file), "--force");
    refused_early(RUN(S("score"), S("/no/model"), S("--ids=1,2"), S("--logits"), file), "--force");
    refused_early(RUN(S("classify"), S("/no/model"), S("--labels=a,b"), S("-f"), S("/dev/null"),
                      S("--logits"), file),
                  "--force");
    refused_early(RUN(S("attention"), S("/no/model"), S("--ids=1,2"), S("-o"), file), "--force");
    refused_early(RUN(S("batch"), S("/no/model"), in, S("-o"), file), "--force");
    char *text;
    size_t bytes;
    assert_int_equal(ln_read_file(file, 100, &text, &bytes, NULL), LN_OK);
    assert_string_equal(text, "kept");
    ln_free(text);
    (void)unlink(file);
    (void)snprintf(file, sizeof file, "%s/no/folder/x", dir);
    refused_early(RUN(S("run"), S("/no/model"), S("Hi"), S("--save-kv"), file), "No such file");
    refused_early(RUN(S("batch"), S("/no/model"), in, S("-o"), file), "No such file");
}

/* Runs of other training in the same directory are named before the data are read. */
static void training_asks_before_it_reads(void **state) {
    (void)state;
    (void)snprintf(file, sizeof file, "%s/run", dir);
    (void)snprintf(in, sizeof in, "%s/config.json", file);
    assert_int_equal(mkdir(file, 0700), 0);
    make_file(in, "{}");
    expect(RUN(S("train"), S(TINY), S("--data=/no/data.jsonl"), S("-o"), file), 5,
           "holds config.json already");
    (void)unlink(in);
    assert_int_equal(rmdir(file), 0);
}

/* A file that appears while the answer is computed stays as it is without --force. */
static void what_appears_meanwhile_is_kept(void **state) {
    (void)state;
    int fd[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)snprintf(file, sizeof file, "%s/keys.st", dir);
    const int full = narrow_pipe(fd);
    const pid_t pid = start((char *const[]){S("linnet"), S("run"), S(TINY), S("--raw"), S("Once"), S("-n"),
                                            S("30"), S("--save-kv"), file, NULL},
                            null, fd[1], null);
    close(fd[1]);
    close(null);
    assert_true(writes(fd[0], full)); /* it answers, and waits for its reader */
    make_file(file, "kept");
    (void)drain(fd[0]);
    assert_int_equal(finish(pid), 5);
    char *text;
    size_t bytes;
    assert_int_equal(ln_read_file(file, 100, &text, &bytes, NULL), LN_OK);
    assert_string_equal(text, "kept");
    ln_free(text);
    (void)unlink(file);
}

static void keys_and_values_are_private(void **state) {
    (void)state;
    struct stat st;
    (void)snprintf(file, sizeof file, "%s/keys.st", dir);
    const mode_t was = umask(0);
    expect(RUN(S("run"), S(TINY), S("--raw"), S("Once"), S("-n"), S("2"), S("--save-kv"), file), 0, NULL);
    (void)umask(was);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* cut off: the message does not send its reader to a hub */
    assert_int_equal(truncate(file, 5000), 0);
    expect(RUN(S("run"), S(TINY), S("--raw"), S("Once"), S("-n"), S("2"), S("--load-kv"), file), 3,
           "or write it again if it was written on this machine");
    (void)unlink(file);
}

/* A text on a pipe ends its line before a message about it. */
static void a_message_begins_a_line(void **state) {
    (void)state;
    outcome *o = RUN(S("run"), S(TINY), S("--raw"), S("Once"), S("-n"), S("3"));
    expect(o, 0, "cut at 3 tokens");
    assert_int_equal(o->out[o->out_bytes - 1], '\n');
    o = RUN(S("run"), S(TINY), S("--raw"), S("Once"), S("-n"), S("3"), S("--json"));
    assert_true(o->out_bytes > 2 && o->out[o->out_bytes - 1] == '\n' && o->out[o->out_bytes - 2] == '}');
    o = RUN(S("run"), S(TINY), S("Tell me a short story.")); /* ends by itself: no message, no newline */
    assert_int_equal(o->code, 0);
    assert_int_equal(o->err_bytes, 0);
    assert_true(o->out[o->out_bytes - 1] != '\n');
}

/* Fusing into few bits loses what a few steps of training have changed, and says so. */
static void a_lost_adapter_is_named(void **state) {
    (void)state;
    char data[300], lora[300], fused[300], command[1000];
    (void)snprintf(data, sizeof data, "%s/d.jsonl", dir);
    (void)snprintf(lora, sizeof lora, "%s/lora", dir);
    (void)snprintf(fused, sizeof fused, "%s/fused", dir);
    ln_str lines = {0};
    for (int i = 0; i < 8; i++)
        ln_str_addf(&lines, "{\"prompt\":\"question %d\",\"completion\":\"answer %d\"}\n", i, i);
    make_file(data, lines.data);
    ln_str_free(&lines);
    (void)snprintf(command, sizeof command, "--data=%s", data);
    expect(RUN(S("train"), S(TINY), command, S("-o"), lora, S("--steps=2"), S("--lr=2e-5")), 0, NULL);
    expect(RUN(S("fuse"), S(TINY), lora, S("-o"), fused, S("--bits=2")), 0, "leave out --bits");
    assert_non_null(strstr(last->err, "warning: rounding changes the logits by up to "));
    (void)snprintf(command, sizeof command, "rm -rf %s %s %s", data, lora, fused);
    assert_int_equal(system(command), 0);
}

/* Two bits hurt the bundled model, eight do not. */
static void what_rounding_costs_is_said(void **state) {
    (void)state;
    char out[300], command[400];
    (void)snprintf(out, sizeof out, "%s/small", dir);
    (void)snprintf(command, sizeof command, "rm -rf %s", out);
    for (int i = 0; i < 2; i++) {
        outcome *o =
            RUN(S("quantize"), S(TINY), S("-o"), out, i ? S("--bits=8") : S("--bits=2"), S("--json"));
        assert_int_equal(o->code, 0);
        assert_int_equal(strstr(o->err, "warning: rounding raises the perplexity") != NULL, i == 0);
        json_t *root = json_of(o);
        const double ratio = json_real_value(json_object_get(root, "perplexity_ratio"));
        assert_true(i ? ratio > 0.9 && ratio < 1.1 : ratio > 1.1);
        json_decref(root);
        assert_int_equal(system(command), 0);
    }
}

/* ---- limits ---- */

static void little_data(void) {
    const struct rlimit r = {1000 << 10, 1000 << 10};
    if (setrlimit(RLIMIT_DATA, &r) != 0) _exit(97);
}

/* `ulimit -d 1000` leaves the process alive, so that it can say what is missing. */
static void a_small_limit_of_data_is_reported(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) skip(); /* a sanitizer needs gigabytes */
    before_exec = little_data;
    outcome *o = RUN(S("run"), S(TINY), S("Hi"), S("-n"), S("2"));
    before_exec = NULL;
    expect(o, 6, NULL);
}

/* ---- terminals ---- */

/* Names of files with control characters, on a terminal and in messages. */
static void names_cannot_command_a_terminal(void **state) {
    (void)state;
    (void)snprintf(file, sizeof file, "%s/\x1b]0;owned\x07m", dir);
    (void)snprintf(in, sizeof in, "%s/config.json", file);
    assert_int_equal(mkdir(file, 0700), 0);
    make_file(in, "{\"model_type\":\"lla\\u001b[31mma\",\"hidden_size\":64,\"\\u009b2J\":1}");
    char weights[400];
    (void)snprintf(weights, sizeof weights, "%s/model.safetensors", file);
    make_file(weights, "");
    char *const lists[][5] = {{S("linnet"), S("ls"), dir, NULL}, {S("linnet"), S("show"), file, NULL}};
    for (size_t i = 0; i < LN_COUNT(lists); i++) {
        sit_down("xterm", lists[i]);
        (void)stand_up(); /* reads all output */
        assert_non_null(strstr(tty.raw.data, "owned"));
        assert_null(strstr(tty.raw.data, "\x1b]0;"));
        assert_null(strstr(tty.raw.data, "\x1b[31m"));
        assert_null(strstr(tty.raw.data, "\xc2\x9b"));
    }
    (void)unlink(weights);
    (void)unlink(in);
    assert_int_equal(rmdir(file), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_before_the_work),
        cmocka_unit_test(training_asks_before_it_reads),
        cmocka_unit_test(what_appears_meanwhile_is_kept),
        cmocka_unit_test(keys_and_values_are_private),
        cmocka_unit_test(a_message_begins_a_line),
        cmocka_unit_test(a_lost_adapter_is_named),
        cmocka_unit_test(what_rounding_costs_is_said),
        cmocka_unit_test(a_small_limit_of_data_is_reported),
        cmocka_unit_test(names_cannot_command_a_terminal),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
