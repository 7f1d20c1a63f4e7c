/* Files: what is rejected at opening, and that an output file appears complete or not at all. */
/* run: quick asan */
#include "cm.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], name[2][256];

static const char *in_dir(int slot, const char *leaf) {
    (void)snprintf(name[slot], sizeof name[slot], "%s/%s", dir, leaf);
    return name[slot];
}

static void put(const char *leaf, const char *text) {
    FILE *f = fopen(in_dir(1, leaf), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void holds(const char *leaf, const char *text) {
    char *data;
    size_t n;
    assert_int_equal(ln_read_file(in_dir(1, leaf), 1 << 20, &data, &n, NULL), LN_OK);
    assert_int_equal(n, strlen(text));
    assert_string_equal(data, text);
    ln_free(data);
}

static int files_in_dir(void) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int make_dir(void **state) {
    (void)state;
    strncpy(dir, "/tmp/linnet-file-XXXXXX", sizeof dir - 1);
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && unlinkat(dirfd(d), e->d_name, 0))
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    closedir(d);
    return rmdir(dir);
}

static void maps_and_reads(void **state) {
    (void)state;
    ln_error err;
    ln_map m;
    char *data;
    size_t n;
    put("a", "hello");
    assert_int_equal(ln_map_open(&m, in_dir(0, "a"), &err), LN_OK);
    assert_int_equal(m.bytes, 5);
    assert_memory_equal(m.data, "hello", 5);
    ln_map_close(&m);
    assert_null(m.data);
    put("empty", "");
    assert_int_equal(ln_map_open(&m, in_dir(0, "empty"), &err), LN_OK);
    assert_null(m.data);
    ln_map_close(&m);
    assert_int_equal(ln_read_file(in_dir(0, "empty"), 0, &data, &n, &err), LN_OK);
    assert_int_equal(n, 0);
    ln_free(data);
    assert_int_equal(ln_read_file(in_dir(0, "a"), 5, &data, &n, &err), LN_OK);
    assert_string_equal(data, "hello");
    ln_free(data);
    assert_int_equal(ln_read_file(in_dir(0, "a"), 4, &data, &n, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "5 bytes"));
    assert_int_equal(ln_read_file("/proc/self/status", 1 << 20, &data, &n, &err),
                     LN_OK); /* a file with a reported size of 0 bytes */
    assert_true(n > 100);
    ln_free(data);
}

static void refuses_what_is_no_file(void **state) {
    (void)state;
    ln_error err;
    ln_map m;
    char *data;
    size_t n;
    assert_int_equal(mkfifo(in_dir(0, "fifo"), 0600), 0);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s/sock", dir);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    const char *const odd[] = {dir, "/dev/zero", "/dev/null", in_dir(0, "fifo"), a.sun_path};
    for (size_t i = 0; i < LN_COUNT(odd); i++) {
        assert_int_equal(ln_map_open(&m, odd[i], &err), LN_EINVALID);
        assert_non_null(strstr(err.message, "expected a regular file"));
        assert_int_equal(ln_read_file(odd[i], 100, &data, &n, &err), LN_EINVALID);
    }
    close(s);
    assert_int_equal(ln_map_open(&m, in_dir(0, "absent\n"), &err), LN_EIO);
    assert_non_null(strstr(err.message, "absent\\n: cannot open: No such file"));
    char long_name[5000];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(ln_map_open(&m, long_name, &err), LN_EIO);
    assert_int_equal(ln_map_open(&m, "", &err), LN_EIO);
    if (geteuid() != 0) {
        put("secret", "x");
        chmod(in_dir(0, "secret"), 0);
        assert_int_equal(ln_map_open(&m, in_dir(0, "secret"), &err), LN_EIO);
    }
}

static void output_appears_at_commit(void **state) {
    (void)state;
    ln_out o = {0};
    bool had_stdin = fcntl(0, F_GETFD) >= 0;
    ln_out_abort(&o); /* aborting a zeroed struct must not close descriptor 0 */
    assert_int_equal(fcntl(0, F_GETFD) >= 0, had_stdin);
    int before = files_in_dir();
    assert_int_equal(ln_out_open(&o, in_dir(0, "out"), false, NULL), LN_OK);
    assert_int_equal(ln_out_write(&o, "abc", 3, NULL), LN_OK);
    assert_false(ln_exists(in_dir(0, "out")));
    assert_int_equal(ln_out_commit(&o, NULL), LN_OK);
    holds("out", "abc");
    assert_int_equal(files_in_dir(), before + 1);
    ln_out_abort(&o);
    holds("out", "abc");
    assert_int_equal(ln_out_write(&o, "x", 1, NULL), LN_EUSAGE);
    /* Large and small writes keep their order. */
    size_t n = 300000;
    char *big = ln_alloc(n + 1);
    for (size_t i = 0; i < n; i++) big[i] = (char)('a' + i % 23);
    big[n] = '\0';
    assert_int_equal(ln_out_open(&o, in_dir(0, "big"), false, NULL), LN_OK);
    for (size_t at = 0, step = 1; at < n; at += step, step = LN_MIN(step * 3, n - at)) {
        if (step == 0) break;
        assert_int_equal(ln_out_write(&o, big + at, LN_MIN(step, n - at), NULL), LN_OK);
    }
    assert_int_equal(o.written, n);
    assert_int_equal(ln_out_commit(&o, NULL), LN_OK);
    holds("big", big);
    ln_free(big);
}

static void abort_leaves_nothing(void **state) {
    (void)state;
    ln_out o;
    put("kept", "old");
    int before = files_in_dir();
    assert_int_equal(ln_out_open(&o, in_dir(0, "kept"), true, NULL), LN_OK);
    assert_int_equal(ln_out_write(&o, "new", 3, NULL), LN_OK);
    ln_out_abort(&o);
    holds("kept", "old");
    assert_int_equal(files_in_dir(), before);
}

static void overwrites_only_by_force(void **state) {
    (void)state;
    ln_out o;
    ln_error err;
    put("there", "old");
    assert_int_equal(ln_out_open(&o, in_dir(0, "there"), false, &err), LN_EIO);
    assert_non_null(strstr(err.message, "ln_quantize_options.force"));
    assert_int_equal(ln_out_open(&o, in_dir(0, "there"), true, &err), LN_OK);
    assert_int_equal(ln_out_write(&o, "new", 3, &err), LN_OK);
    assert_int_equal(ln_out_commit(&o, &err), LN_OK);
    holds("there", "new");
    /* A file that another process creates in the meantime is not replaced. */
    assert_int_equal(ln_out_open(&o, in_dir(0, "race"), false, &err), LN_OK);
    assert_int_equal(ln_out_write(&o, "mine", 4, &err), LN_OK);
    put("race", "theirs");
    int before = files_in_dir();
    assert_int_equal(ln_out_commit(&o, &err), LN_EIO);
    holds("race", "theirs");
    assert_int_equal(files_in_dir(), before - 1);
    /* A symbolic link is followed, not replaced. */
    assert_int_equal(symlink("there", in_dir(0, "link")), 0);
    assert_int_equal(ln_out_open(&o, in_dir(0, "link"), false, &err), LN_EIO);
    assert_int_equal(ln_out_open(&o, in_dir(0, "link"), true, &err), LN_OK);
    assert_int_equal(ln_out_write(&o, "3", 1, &err), LN_OK);
    assert_int_equal(ln_out_commit(&o, &err), LN_OK);
    holds("there", "3");
    struct stat st;
    assert_true(lstat(in_dir(0, "link"), &st) == 0 && S_ISLNK(st.st_mode));
}

static void refuses_odd_targets(void **state) {
    (void)state;
    ln_out o;
    ln_error err;
    static const char *const odd[] = {"/dev/full",       "/dev/null",     "/tmp",
                                      "/nowhere/at/all", "/proc/nothing", ""};
    for (size_t i = 0; i < LN_COUNT(odd); i++) {
        for (int force = 0; force < 2; force++)
            if (ln_out_open(&o, odd[i], force, &err) != LN_EIO)
                fail_msg("'%s' was opened for writing", odd[i]);
        ln_out_abort(&o);
    }
    struct stat st;
    assert_true(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
}

static void a_full_disk_leaves_nothing(void **state) {
    (void)state;
    struct rlimit old, small = {100000, 100000};
    ln_out o;
    ln_error err;
    put("whole", "old");
    int before = files_in_dir();
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ln_status st = ln_out_open(&o, in_dir(0, "whole"), true, &err);
    char piece[1000] = {0};
    for (int i = 0; i < 200 && st == LN_OK; i++) st = ln_out_write(&o, piece, sizeof piece, &err);
    if (st == LN_OK) st = ln_out_commit(&o, &err);
    ln_out_abort(&o);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(st, LN_EIO);
    assert_non_null(strstr(err.message, "cannot write"));
    holds("whole", "old");
    assert_int_equal(files_in_dir(), before);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    put("in", "some text");
    int before_files = files_in_dir(), worked = 0;
    uint64_t before = ln_mem_bytes();
    for (int n = 1; n < 20; n++) {
        ln_out o;
        char *data = NULL;
        size_t bytes;
        ln_mem_fail_at(n, true);
        ln_status a = ln_read_file(in_dir(0, "in"), 100, &data, &bytes, NULL);
        ln_mem_fail_at(n, true);
        ln_status b = ln_out_open(&o, in_dir(0, "oom"), false, NULL);
        if (b == LN_OK) b = ln_out_write(&o, "x", 1, NULL);
        ln_out_abort(&o);
        ln_mem_fail_at(-1, false);
        ln_free(data);
        assert_true(a == LN_OK || a == LN_EMEMORY);
        assert_true(b == LN_OK || b == LN_EMEMORY);
        assert_int_equal(ln_mem_bytes(), before);
        assert_int_equal(files_in_dir(), before_files);
        if (n == 1) assert_true(a == LN_EMEMORY && b == LN_EMEMORY);
        worked += a == LN_OK && b == LN_OK;
    }
    assert_true(worked > 5);
}

static void streams(void **state) {
    (void)state;
    int p[2];
    char *data;
    size_t n;
    ln_error err;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "piped", 5), 5);
    close(p[1]);
    assert_int_equal(ln_read_stream(p[0], "stdin", 5, &data, &n, &err), LN_OK);
    assert_string_equal(data, "piped");
    ln_free(data);
    close(p[0]);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "piped", 5), 5);
    close(p[1]);
    assert_int_equal(ln_read_stream(p[0], "stdin", 4, &data, &n, &err), LN_EINVALID);
    close(p[0]);
}

/* A rename that fails leaves no temporary file. */
static void a_failed_rename_leaves_nothing(void **state) {
    (void)state;
    ln_out o;
    ln_error err;
    for (int force = 0; force < 2; force++) {
        const int before = files_in_dir();
        assert_int_equal(ln_out_open(&o, in_dir(0, "renamed"), force, &err), LN_OK);
        assert_int_equal(ln_out_write(&o, "x", 1, &err), LN_OK);
        assert_int_equal(mkdir(in_dir(0, "renamed"), 0777), 0); /* what appeared during the work */
        assert_int_equal(ln_out_commit(&o, &err), LN_EIO);
        assert_int_equal(rmdir(in_dir(0, "renamed")), 0);
        assert_int_equal(files_in_dir(), before);
    }
}

/* The system's limits of a path are named, of a relative one too. */
static void a_long_path_is_named(void **state) {
    (void)state;
    static char path[6000];
    ln_error err;
    char *data;
    size_t n;
    for (size_t at = 0; at + 3 < sizeof path; at += 2) memcpy(path + at, "a/", 3);
    assert_int_equal(ln_read_file(path, 100, &data, &n, &err), LN_EIO);
    assert_non_null(strstr(err.message, "4095 bytes"));
    (void)memset(path, 'a', 300);
    path[300] = '\0';
    assert_int_equal(ln_read_file(path, 100, &data, &n, &err), LN_EIO);
    assert_non_null(strstr(err.message, "a name in it 255"));
}

/* Rejects every openat of this process with EPERM, as the rules of a container do. */
static bool forbid_openat(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = LN_COUNT(rules), .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* EPERM is not a matter of permissions that chmod changes, and the message does not claim that. */
static void what_the_system_forbids_is_said(void **state) {
    (void)state;
    put("forbidden", "text");
    (void)in_dir(0, "forbidden");
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ln_error err;
        char *data;
        size_t n;
        if (!forbid_openat()) _exit(2);
        if (ln_read_file(name[0], 100, &data, &n, &err) != LN_EIO) _exit(3);
        _exit(strstr(err.message, "immutable") && !strstr(err.message, "check its permissions") ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        print_message("test_file: SKIP: seccomp is not available: the message of EPERM is NOT tested\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(maps_and_reads),
                                       cmocka_unit_test(refuses_what_is_no_file),
                                       cmocka_unit_test(output_appears_at_commit),
                                       cmocka_unit_test(abort_leaves_nothing),
                                       cmocka_unit_test(overwrites_only_by_force),
                                       cmocka_unit_test(refuses_odd_targets),
                                       cmocka_unit_test(a_full_disk_leaves_nothing),
                                       cmocka_unit_test(every_allocation_may_fail),
                                       cmocka_unit_test(streams),
                                       cmocka_unit_test(a_failed_rename_leaves_nothing),
                                       cmocka_unit_test(a_long_path_is_named),
                                       cmocka_unit_test(what_the_system_forbids_is_said)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
