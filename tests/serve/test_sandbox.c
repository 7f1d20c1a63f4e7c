/* The filter of system calls, in a child of its own: what is denied, and what still works. */
#include "../base/cm.h"

#include "serve/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void *no_work(void *user) { return user; }

static bool is_denied(bool failed) { return failed && errno == EPERM; }

/* The number of the first check that does not hold; 0: all do. */
static int check_all(void) {
    char *const none[] = {NULL};
    char text[16];
    pthread_t t;
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (!sandbox_enter(true)) return 1;
    if (fd < 0 || read(fd, text, sizeof text) <= 0) return 2;
    if (!is_denied(execve("/bin/true", none, none) != 0)) return 3;
    if (!is_denied(socket(AF_INET, SOCK_STREAM, 0) < 0)) return 4;
    if (!is_denied(open("/tmp/linnet-sandbox", O_WRONLY | O_CREAT, 0600) < 0)) return 5;
    if (!is_denied(open("/dev/null", O_RDWR) < 0)) return 6;
    if (!is_denied(mkdir("/tmp/linnet-sandbox", 0700) != 0)) return 7;
    if (!is_denied(unlink("/tmp/linnet-sandbox") != 0)) return 8;
    if (!is_denied(rename("/tmp/a", "/tmp/b") != 0)) return 9;
    if (open("/dev/null", O_RDONLY) < 0 || open("/etc/passwd", O_RDONLY) < 0) return 10;
    if (pthread_create(&t, NULL, no_work, NULL) != 0 || pthread_join(t, NULL) != 0) return 11;
    if (prctl(PR_GET_DUMPABLE) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 12;
    void *p = ln_alloc(1 << 22);
    ln_free(p);
    return p ? 0 : 13;
}

/* Runs a check in a child, because its rules stay for the rest of a process; returns its exit code. */
static int in_a_child(int (*check)(void)) {
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) _exit(check());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_filter_holds(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* see sandbox.c */
#endif
    assert_int_equal(in_a_child(check_all), 0);
}

/* ---- files ---- */

static bool is_hidden(bool failed) { return failed && errno == EACCES; }

static void *read_elsewhere(void *user) {
    (void)user;
    return is_hidden(open("/etc/passwd", O_RDONLY) < 0) ? NULL : (void *)1;
}

/* The number of the first check that does not hold; 0: all do; 77: the kernel has no Landlock. */
static int check_files(void) {
    char *const none[] = {NULL};
    char text[16];
    void *bad = NULL;
    pthread_t t;
    const char *const more[] = {"/usr/share", "/does/not/exist"};
    const int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    const bool has_sys = access("/sys/devices", R_OK) == 0; /* a bare container does not mount it */
    if (!sandbox_files(more, LN_COUNT(more))) return 77;
    if (fd < 0 || read(fd, text, sizeof text) <= 0) return 1; /* what is open stays so */
    if (!is_hidden(open("/etc/passwd", O_RDONLY) < 0)) return 2;
    if (!is_hidden(open("/", O_RDONLY | O_DIRECTORY) < 0)) return 3;
    if (!is_hidden(open("/tmp/linnet-landlock", O_WRONLY | O_CREAT, 0600) < 0)) return 4;
    if (!is_hidden(mkdir("/tmp/linnet-landlock", 0700) != 0)) return 5;
    if (!is_hidden(execve("/bin/true", none, none) != 0)) return 6;
    if (open("/proc/self/status", O_RDONLY) < 0) return 7;
    if (has_sys && open("/sys/devices", O_RDONLY) < 0) return 7;
    if (open("/usr/share", O_RDONLY) < 0) return 8;
    if (pthread_create(&t, NULL, read_elsewhere, NULL) != 0 || pthread_join(t, &bad) != 0 || bad) return 9;
    if (!sandbox_enter(true)) return 10; /* both hold together */
    if (!is_denied(execve("/bin/true", none, none) != 0)) return 11;
    return is_hidden(open("/etc/passwd", O_RDONLY) < 0) ? 0 : 12;
}

static void the_rules_for_files_hold(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* see sandbox.c */
#endif
    const int code = in_a_child(check_files);
    if (code == 77) {
        (void)fprintf(stderr, "SKIP: this kernel has no Landlock: rules for files are NOT tested\n");
        skip();
    }
    assert_int_equal(code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_filter_holds),
                                       cmocka_unit_test(the_rules_for_files_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
