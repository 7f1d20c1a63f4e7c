/* Sends the command a signal when it is about to write its n-th answer: a count, so that neither the speed
 * of the machine nor its load decides where it stops.
 *
 * The child's filter of system calls reports each pwrite, which batch uses for answers only, and the kernel
 * lets it wait until the parent has replied. A caught signal runs its handler before the call goes on. */
#ifndef LN_TESTS_STOP_AT_H
#define LN_TESTS_STOP_AT_H

#include "spawn.h"

#include <linux/filter.h>

#include <linux/seccomp.h>

#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { LISTENER = 200, NO_FILTER = 97 };

static void report_answers(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = LN_COUNT(code), .filter = code};
    (void)signal(SIGINT, SIG_DFL); /* a shell starts background jobs with SIGINT ignored, which stays so */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(NO_FILTER);
    const int fd =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (fd < 0 || dup2(fd, LISTENER) != LISTENER) _exit(NO_FILTER); /* the copy stays open across exec */
    close(fd);
}

/* Returns the parent's copy of the child's listener; -1 if the child ended before it had one. */
static int listener_of(pid_t pid) {
    const int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int fd = -1;
    for (siginfo_t ended = {0}; process >= 0 && fd < 0 && ended.si_pid == 0; usleep(100)) {
        fd = (int)syscall(SYS_pidfd_getfd, process, LISTENER, 0);
        if (fd < 0) (void)waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    if (process >= 0) close(process);
    return fd;
}

/* Replies to the reports of answers until the child ends; sends the signal at the n-th one. */
static void reply(int listener, pid_t pid, int n, int number) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    for (int answers = 0;;) {
        siginfo_t ended = {0};
        assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        if (ended.si_pid != 0) return;
        if (poll(&p, 1, 10) <= 0 || !(p.revents & POLLIN)) continue;
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue; /* the call was interrupted */
        answers += answers < n; /* a call that a handler interrupted is reported again */
        if (answers == n) {
            (void)kill(pid, number);
            answers++;
        }
        struct seccomp_notif_resp go_on = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on);
    }
}

/* Runs the command, and sends it the signal at its n-th answer; returns its exit code as finish() does. Skips
 * the test if the kernel has no such filters. */
static int run_to_answer(char *const argv[], int n, int number) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    before_exec = report_answers;
    const pid_t pid = start(argv, null, null, null);
    before_exec = NULL;
    close(null);
    const int listener = listener_of(pid);
    if (listener < 0) {
        (void)kill(pid, SIGKILL);
        (void)finish(pid);
        (void)fprintf(stderr, "SKIP: no filters of system calls: a batch that is killed is NOT tested\n");
        skip();
    }
    reply(listener, pid, n, number);
    close(listener);
    return finish(pid);
}

#endif
