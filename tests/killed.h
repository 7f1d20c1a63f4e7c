/* Programs that end in the middle: a test runs itself again, below strace, which kills it at a call that it
 * names or lets that call fail, or kills it after some time. */
#ifndef TESTS_KILLED_H
#define TESTS_KILLED_H

#include "common.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The calls that touch files. */
static const char *const test_file_calls[] = {"openat",   "write",  "pwrite64",   "fsync",     "close",
                                              "mkdir",    "rename", "renameat2",  "unlink",    "rmdir",
                                              "unlinkat", "mmap",   "getdents64", "newfstatat"};

/* Runs this program with the arguments `args`, below `with` (strace and its arguments; NULL: nothing).
 * Returns wait's status; the process is killed after `us` microseconds unless that is negative. */
static int test_run_self(char *const *with, char *const *args, long us) {
    char self[4096] = {0}, *argv[24];
    int n = 0, status;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (; with && with[n]; n++) argv[n] = with[n];
    argv[n++] = self;
    for (int i = 0; args[i]; i++) argv[n++] = args[i];
    argv[n] = NULL;
    const pid_t pid = fork();
    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, 1), (void)dup2(null, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    assert_true(pid > 0);
    if (us >= 0) usleep((useconds_t)us), (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Runs this program; strace does `what` (signal=KILL, error=EIO) at the when-th `call`. */
static int test_run_injected(char *const *args, const char *call, const char *what, int when) {
    char inject[96];
    snprintf(inject, sizeof inject, "inject=%s:%s:when=%d", call, what, when);
    char *const with[] = {"strace", "-qq", "-o", "/dev/null", "-e", inject, NULL};
    return test_run_self(with, args, -1);
}

/* Whether this program runs below strace. */
static bool test_strace_works(char *const *args) {
    char *const with[] = {"strace", "-qq", "-o", "/dev/null", NULL};
    const int status = test_run_self(with, args, -1);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#endif
