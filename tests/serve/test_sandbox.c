/* The filter of system calls, in a child of its own: what is denied, and what still works. */
/* run: quick */
#include "../base/cm.h"

#include "serve/server.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
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
    if (!sandbox_enter(true, false)) return 1;
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

/* Calls that the server does not make: files and their metadata, sockets, processes, namespaces, and doors to
 * the kernel. Arguments are such that each would do something, or fail with another errno. */
static const struct {
    const char *name;
    long number;
    long args[6];
} denied[] = {
    {"socketpair", SYS_socketpair, {AF_UNIX, SOCK_DGRAM, 0, (long)(int[2]){0}, 0, 0}},
    {"sendmsg", SYS_sendmsg, {0, (long)&(struct msghdr){0}, 0, 0, 0, 0}},
    {"sendmmsg", SYS_sendmmsg, {0, 0, 0, 0, 0, 0}},
    {"bind", SYS_bind, {0, 0, 0, 0, 0, 0}},
    {"listen", SYS_listen, {0, 0, 0, 0, 0, 0}},
    {"fchmod", SYS_fchmod, {0, 0600, 0, 0, 0, 0}},
    {"fchmodat", SYS_fchmodat, {AT_FDCWD, (long)"/tmp", 0777, 0, 0, 0}},
    {"fchmodat2", 452, {AT_FDCWD, (long)"/tmp", 0777, 0, 0, 0}},
    {"fchown", SYS_fchown, {0, 0, 0, 0, 0, 0}},
    {"fchownat", SYS_fchownat, {AT_FDCWD, (long)"/tmp", 0, 0, 0, 0}},
    {"setxattr", SYS_setxattr, {(long)"/tmp", (long)"user.x", (long)"y", 1, 0, 0}},
    {"lsetxattr", SYS_lsetxattr, {(long)"/tmp", (long)"user.x", (long)"y", 1, 0, 0}},
    {"fsetxattr", SYS_fsetxattr, {0, (long)"user.x", (long)"y", 1, 0, 0}},
    {"removexattr", SYS_removexattr, {(long)"/tmp", (long)"user.x", 0, 0, 0, 0}},
    {"utimensat", SYS_utimensat, {AT_FDCWD, (long)"/tmp", 0, 0, 0, 0}},
    {"ftruncate", SYS_ftruncate, {0, 0, 0, 0, 0, 0}},
    {"kill", SYS_kill, {1, 0, 0, 0, 0, 0}},
    {"tkill", SYS_tkill, {1, 0, 0, 0, 0, 0}},
    {"tgkill of another", SYS_tgkill, {1, 1, 0, 0, 0, 0}},
    {"rt_sigqueueinfo", SYS_rt_sigqueueinfo, {1, 0, 0, 0, 0, 0}},
    {"pidfd_open", 434, {1, 0, 0, 0, 0, 0}},
    {"pidfd_getfd", 438, {0, 0, 0, 0, 0, 0}},
    {"pidfd_send_signal", 424, {0, 0, 0, 0, 0, 0}},
    {"clone as fork", SYS_clone, {SIGCHLD, 0, 0, 0, 0, 0}},
    {"clone(CLONE_NEWUSER)", SYS_clone, {CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0, 0}},
    {"clone(CLONE_THREAD | CLONE_NEWNET)",
     SYS_clone,
     {CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWNET, 0, 0, 0, 0, 0}},
    {"unshare", SYS_unshare, {CLONE_NEWUSER, 0, 0, 0, 0, 0}},
    {"memfd_create", SYS_memfd_create, {(long)"x", 0, 0, 0, 0, 0}},
    {"shmget", SYS_shmget, {0, 4096, 01600, 0, 0, 0}},
    {"msgget", SYS_msgget, {0, 01600, 0, 0, 0, 0}},
    {"inotify_init1", SYS_inotify_init1, {0, 0, 0, 0, 0, 0}},
    {"fsopen", 430, {0, 0, 0, 0, 0, 0}},
    {"open_tree", 428, {0, 0, 0, 0, 0, 0}},
    {"mount_setattr", 442, {0, 0, 0, 0, 0, 0}},
    {"io_uring_setup", 425, {1, 0, 0, 0, 0, 0}},
    {"ptrace", SYS_ptrace, {0, 0, 0, 0, 0, 0}},
    {"bpf", SYS_bpf, {0, 0, 0, 0, 0, 0}},
    {"keyctl", SYS_keyctl, {0, 0, 0, 0, 0, 0}},
    {"setpriority", SYS_setpriority, {0, 1, 5, 0, 0, 0}},
    {"sched_setaffinity of another", SYS_sched_setaffinity, {1, 8, (long)"\1\0\0\0\0\0\0", 0, 0, 0}},
    {"prctl(PR_SET_DUMPABLE)", SYS_prctl, {PR_SET_DUMPABLE, 1, 0, 0, 0, 0}},
    {"fcntl(F_SETOWN)", SYS_fcntl, {0, F_SETOWN, 1, 0, 0, 0}},
    {"ioctl(TIOCSTI)", SYS_ioctl, {0, TIOCSTI, (long)"x", 0, 0, 0}},
    {"ioctl of a GPU", SYS_ioctl, {0, 'F' << 8 | 42, 0, 0, 0, 0}},
    {"prlimit64", SYS_prlimit64, {0, RLIMIT_CORE, (long)&(struct rlimit){0, 0}, 0, 0, 0}},
#ifdef __x86_64__
    {"chmod", SYS_chmod, {(long)"/tmp", 0777, 0, 0, 0, 0}},
    {"lchown", SYS_lchown, {(long)"/tmp", 0, 0, 0, 0, 0}},
    {"fork", SYS_fork, {0, 0, 0, 0, 0, 0}},
    {"modify_ldt", SYS_modify_ldt, {0, 0, 0, 0, 0, 0}},
    {"arch_prctl", SYS_arch_prctl, {0, 0, 0, 0, 0, 0}},
#endif
};

/* Numbers to which the C library has an older call, and one that no kernel has. */
static const long absent[] = {435 /* clone3 */, 437 /* openat2 */, 400, 1000, 0x40000000};

static long call(long number, const long a[6]) {
    errno = 0;
    return syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* 0: all are denied; otherwise the number of the first that is not, from 1 on. */
static int check_denied(void) {
    const struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    static const long none[6];
    if (!sandbox_enter(true, false)) return 1;
    for (size_t i = 0; i < LN_COUNT(denied); i++) {
        if (is_denied(call(denied[i].number, denied[i].args) < 0)) continue;
        (void)fprintf(stderr, "%s: %s\n", denied[i].name, strerror(errno));
        return 2;
    }
    for (size_t i = 0; i < LN_COUNT(absent); i++)
        if (call(absent[i], none) != -1 || errno != ENOSYS) return 3;
    if (!is_denied(sendto(0, "x", 1, 0, (const struct sockaddr *)&to, sizeof to) < 0)) return 4;
    return send(-1, "x", 1, 0) < 0 && errno == EBADF ? 0 : 5; /* to a peer: allowed, and no descriptor here */
}

/* A failed assertion or a full heap still ends the process by its signal. */
static int check_abort(void) {
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (!sandbox_enter(true, false)) return 1;
    abort();
}

/* With a GPU the driver's ioctls are allowed, and no others. */
static int check_gpu(void) {
    if (!sandbox_enter(true, true)) return 1;
    if (ioctl(-1, 'F' << 8 | 42, 0) != -1 || errno != EBADF) return 2;
    if (ioctl(-1, 27, 0) != -1 || errno != EBADF) return 3;
    return is_denied(ioctl(-1, TIOCSTI, "x") < 0) ? 0 : 4;
}

/* Runs a check in a child, because its rules stay for the rest of a process; returns its exit code, or 1000 +
 * the signal that ended it. */
static int in_a_child(int (*check)(void)) {
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) _exit(check());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void the_filter_holds(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* see sandbox_linux.c */
#endif
    assert_int_equal(in_a_child(check_all), 0);
    assert_int_equal(in_a_child(check_denied), 0);
    assert_int_equal(in_a_child(check_gpu), 0);
    assert_int_equal(in_a_child(check_abort), 1000 + SIGABRT);
}

/* ---- files, sockets and processes ---- */

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
    if (!sandbox_enter(true, false)) return 10; /* both hold together */
    if (!is_denied(execve("/bin/true", none, none) != 0)) return 11;
    return is_hidden(open("/etc/passwd", O_RDONLY) < 0) ? 0 : 12;
}

static void the_rules_for_files_hold(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* see sandbox_linux.c */
#endif
    const int code = in_a_child(check_files);
    if (code == 77) {
        (void)fprintf(stderr, "SKIP: this kernel has no Landlock: rules for files are NOT tested\n");
        skip();
    }
    assert_int_equal(code, 0);
}

/* 77: the kernel's Landlock has no scopes. */
static int check_scopes(void) {
    struct sockaddr_un outside = {.sun_family = AF_UNIX};
    (void)snprintf(outside.sun_path + 1, sizeof outside.sun_path - 1, "linnet-scope-%ld", (long)getppid());
    const socklen_t bytes =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(outside.sun_path + 1));
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (syscall(444, NULL, 0, 1) < 6) return 77; /* landlock_create_ruleset: its version */
    if (kill(getppid(), 0) != 0 || !sandbox_files(NULL, 0)) return 1;
    if (!is_denied(kill(getppid(), 0) != 0)) return 2;
    if (!is_denied(connect(fd, (const struct sockaddr *)&outside, bytes) != 0)) return 3;
    return kill(getpid(), 0) == 0 ? 0 : 4;
}

static void other_processes_are_out_of_reach(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* see sandbox_linux.c */
#endif
    struct sockaddr_un here = {.sun_family = AF_UNIX};
    (void)snprintf(here.sun_path + 1, sizeof here.sun_path - 1, "linnet-scope-%ld", (long)getpid());
    const socklen_t bytes =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(here.sun_path + 1));
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&here, bytes), 0);
    const int code = in_a_child(check_scopes);
    (void)close(fd);
    if (code == 77) {
        (void)fprintf(stderr, "SKIP: Landlock without scopes: signals and abstract sockets are NOT tested\n");
        skip();
    }
    assert_int_equal(code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_filter_holds),
                                       cmocka_unit_test(the_rules_for_files_hold),
                                       cmocka_unit_test(other_processes_are_out_of_reach)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
