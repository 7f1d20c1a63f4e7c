/* Runs the command from a test: spawned without a shell, with files for its three descriptors, in a
 * temporary directory.
 *
 * RUN(...) and RUN_IN(stdin, ...) wait for the end and return exit code, stdout and stderr, valid until
 * the next run; start and finish are for tests that act while the command runs. S() makes a string that
 * execv accepts. At the end the directory must be empty except for the files named in remove_dir, which
 * shows that the command leaves nothing behind. */
#ifndef LN_TESTS_SPAWN_H
#define LN_TESTS_SPAWN_H

#include "../base/cm.h"
#include "base/file.h"
#include "base/json.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINNET LN_BIN "/linnet"
#define TINY   LN_ROOT "/models/tiny"
#define SMALL  LN_ROOT "/tests/golden/qwen3-f16"
#define STORY  "Tell me a short story."

enum { MOST_ARGS = 24 };

static char dir[64], path_buf[4][256];
static const char *program = LINNET; /* the program that start() runs; a test that changes it must restore
                                        it */

static char *at(int slot, const char *leaf) {
    (void)snprintf(path_buf[slot], sizeof path_buf[slot], "%s/%s", dir, leaf);
    return path_buf[slot];
}

/* ---- spawning ---- */

typedef struct outcome {
    int code; /* exit code, or 1000 + signal number */
    char *out, *err;
    size_t out_bytes, err_bytes;
} outcome;

static void (*before_exec)(void); /* changes to the child before exec: limits, environment variables */

static void set_limits(void) {
    static const char *const unset[] = {
        "LINNET_LOG", "LINNET_CPU", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"};
    for (size_t i = 0; i < LN_COUNT(unset); i++) unsetenv(unset[i]);
    setenv("HOME", dir, 1);
    setenv("CUDA_CACHE_DISABLE", "1", 1); /* else the CUDA driver leaves files in HOME */
    alarm(300);
}

/* Starts the command with these descriptors (-1: closed); returns its process id. */
static pid_t start(char *const argv[], int in, int out, int err) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    int from[3] = {in, out, err}, moved[3];
    for (int i = 0; i < 3; i++) moved[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, 10);
    for (int i = 0; i < 3; i++) {
        close(i);
        if (moved[i] >= 0 && dup2(moved[i], i) != i) _exit(99);
    }
    set_limits();
    if (before_exec) before_exec();
    execvp(program, argv);
    _exit(98);
}

static int finish(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Creates a pipe that is full except for a few bytes: a process that writes a text to it blocks until the
 * pipe is drained. Returns the number of bytes in it. */
static int narrow_pipe(int fd[2]) {
    char fill[4096 - 16] = {0};
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(fcntl(fd[1], F_SETPIPE_SZ, 4096), 4096);
    assert_int_equal(write(fd[1], fill, sizeof fill), sizeof fill);
    return sizeof fill;
}

/* Waits until something was written to a narrow pipe that held `full` bytes; false if the writer ended
 * without writing. */
static bool writes(int fd, int full) {
    struct pollfd p = {.fd = fd};
    for (int held = 0;; usleep(100)) {
        assert_true(poll(&p, 1, 0) >= 0 && ioctl(fd, FIONREAD, &held) == 0);
        if (held > full || p.revents) return held > full;
    }
}

static size_t drain(int fd) {
    char text[4096];
    size_t n = 0;
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;) n += (size_t)got;
    close(fd);
    return n;
}

static outcome *last; /* the result of the last run, freed by the next one */

static void drop_last(void) {
    if (!last) return;
    ln_free(last->out);
    ln_free(last->err);
    ln_free(last);
    last = NULL;
}

/* Runs `linnet ARGS...` with these arguments and with `input` as stdin. */
static outcome *run_with(const char *input, size_t bytes, char *const argv[]) {
    drop_last();
    char name[3][300];
    int fd[3];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name[i], sizeof name[i], "%s/std%d", dir, i);
        fd[i] = open(name[i], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd[i] >= 0);
    }
    assert_int_equal(write(fd[0], input, bytes), (ssize_t)bytes);
    assert_int_equal(lseek(fd[0], 0, SEEK_SET), 0);
    last = ln_zalloc(1, sizeof *last);
    last->code = finish(start(argv, fd[0], fd[1], fd[2]));
    for (int i = 0; i < 3; i++) close(fd[i]);
    assert_int_equal(ln_read_file(name[1], 256 << 20, &last->out, &last->out_bytes, NULL), LN_OK);
    assert_int_equal(ln_read_file(name[2], 1 << 20, &last->err, &last->err_bytes, NULL), LN_OK);
    return last;
}

#define RUN_IN(input, ...) \
    run_with(input, strlen(input), (char *const[]){(char[]){"linnet"}, __VA_ARGS__, NULL})
#define RUN(...) RUN_IN("", __VA_ARGS__)
#define S(text)  ((char[]){text})

/* Asserts that stderr is one line that begins with the command's name. */
static void said_once(const outcome *o) {
    if (strncmp(o->err, "linnet: ", 8) != 0 || strchr(o->err, '\n') != o->err + o->err_bytes - 1)
        fail_msg("stderr: '%s'", o->err);
}

static void expect(const outcome *o, int code, const char *text) {
    if (o->code != code || (text && !strstr(o->err, text)))
        fail_msg("exit %d (expected %d, '%s'), stderr: %s", o->code, code, text ? text : "", o->err);
    if (code) said_once(o);
}

static json_t *json_of(const outcome *o) {
    json_t *root;
    ln_error err;
    if (o->code != 0) fail_msg("exit %d: %s", o->code, o->err);
    if (ln_json_load(&root, "stdout", o->out, o->out_bytes, &err))
        fail_msg("%s in '%s'", err.message, o->out);
    assert_int_equal(o->out[o->out_bytes - 1], '\n');
    return root;
}

static int64_t int_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v)) fail_msg("'%s' is no integer", key);
    return json_integer_value(v);
}

static const char *text_of(const json_t *o, const char *key) {
    const char *v = json_string_value(json_object_get(o, key));
    if (!v) fail_msg("'%s' is no text", key);
    return v;
}

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-cli-XXXXXX");
    signal(SIGPIPE, SIG_IGN);
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    drop_last();
    static const char *const leaves[] = {"std0",      "std1",    "std2",      "prompt.txt", "quiet",
                                         "closed.st", "open.st", "logits.st", "keys.st"};
    for (size_t i = 0; i < LN_COUNT(leaves); i++) (void)unlink(at(0, leaves[i]));
    (void)rmdir(at(0, ".nv/ComputeCache")), (void)rmdir(at(0, ".nv"));
    return rmdir(dir); /* fails if the command left a file behind */
}

#endif
