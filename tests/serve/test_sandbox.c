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

static void the_filter_holds(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* see sandbox.c */
#endif
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) _exit(check_all());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_filter_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
