/* What base/os.h promises on every system: events, sockets whose peer ends or leaves, descriptors that exec
 * closes, waits with a limit, words that threads sleep on, times of files, processes that end. */
/* run: quick asan tsan */
#include "cm.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool is_readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}
static bool is_closed_by_exec(int fd) { return fcntl(fd, F_GETFD) & FD_CLOEXEC; }
static bool is_nonblocking(int fd) { return fcntl(fd, F_GETFL) & O_NONBLOCK; }

/* An event is readable from its first set on, however often it is set, until it is cleared once. */
static void events(void **state) {
    int fd[2];
    (void)state;
    assert_int_equal(ln_os_event_open(fd), 0);
    assert_true(is_closed_by_exec(fd[0]) && is_closed_by_exec(fd[1]));
    assert_false(is_readable(fd[0]));
    for (int i = 0; i < 1000; i++) ln_os_event_set(fd[1]);
    assert_true(is_readable(fd[0]));
    ln_os_event_clear(fd[0]);
    assert_false(is_readable(fd[0]));
    ln_os_event_clear(fd[0]); /* does not wait */
    ln_os_event_close(fd);
    assert_int_equal(fd[0], -1);
    ln_os_event_close(fd);
}

static void peers(void **state) {
    int fd[2];
    (void)state;
    assert_int_equal(ln_os_socket_pair(fd), 0);
    assert_true(is_closed_by_exec(fd[0]) && is_closed_by_exec(fd[1]));
    assert_int_equal(ln_os_peer_of(fd[0]), LN_OS_PEER_OPEN);
    assert_int_equal(shutdown(fd[1], SHUT_WR), 0);
    assert_int_equal(ln_os_peer_of(fd[0]), LN_OS_PEER_ENDED);
    (void)close(fd[1]);
    assert_int_not_equal(ln_os_peer_of(fd[0]), LN_OS_PEER_OPEN);
    assert_int_equal(send(fd[0], "x", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
    (void)close(fd[0]);
}

static void flags(void **state) {
    int fd[2];
    (void)state;
    for (int n = 0; n < 2; n++) {
        assert_int_equal(ln_os_pipe(fd, n), 0);
        for (int i = 0; i < 2; i++) {
            assert_true(is_closed_by_exec(fd[i]));
            assert_int_equal(is_nonblocking(fd[i]), n);
            (void)close(fd[i]);
        }
        const int s = ln_os_socket(AF_UNIX, SOCK_STREAM, n);
        assert_true(s >= 0 && is_closed_by_exec(s));
        assert_int_equal(is_nonblocking(s), n);
        (void)close(s);
    }
}

/* A wait ends at its time, and not before it. */
static void limits_of_waits(void **state) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c;
    (void)state;
    assert_int_equal(ln_os_cond_init(&c), 0);
    (void)pthread_mutex_lock(&lock);
    const double until = ln_now() + 0.05;
    while (ln_os_wait_until(&c, &lock, until)) continue;
    assert_true(ln_now() >= until - 1e-6);
    assert_false(ln_os_wait_until(&c, &lock, ln_now() - 1)); /* a time that has passed */
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_cond_destroy(&c);
}

static _Atomic uint32_t word;
static void *sleep_on_it(void *user) {
    (void)user;
    while (atomic_load(&word) == 0) ln_os_sleep_on(&word, 0);
    return NULL;
}
static void sleepers(void **state) {
    pthread_t t[4];
    (void)state;
    ln_os_sleep_on(&word, 7); /* it is another number: no sleep */
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, sleep_on_it, NULL), 0);
    atomic_store(&word, 1);
    ln_os_wake(&word, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
}

static void files(void **state) {
    char path[] = "/tmp/linnet-os-XXXXXX", program[4096];
    const struct timespec then[2] = {{1000, 0}, {1234, 567000}};
    struct stat st;
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, then), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(ln_os_changed(&st).tv_sec, 1234);
    assert_int_equal(ln_os_changed(&st).tv_nsec, 567000);
    assert_int_equal(ln_os_sync_data(fd), 0);
    assert_false(ln_os_size_is_guess(fd));
    (void)close(fd);
    (void)unlink(path);
    ln_os_program(program, sizeof program);
    assert_non_null(strstr(program, "test_os"));
}

static void ended_children(void **state) {
    (void)state;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    const int fd = ln_os_watch_process(pid);
    if (fd >= 0) assert_false(is_readable(fd));
    (void)kill(pid, SIGKILL);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd >= 0) assert_int_equal(poll(&p, 1, -1), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    if (fd >= 0) (void)close(fd);
}

static void machine(void **state) {
    const char *limit = NULL;
    (void)state;
    assert_true(ln_cores() >= 1 && ln_logical_cores() >= 1);
    assert_true(ln_memory_total() >= ln_memory_resident());
    assert_true(ln_memory_left(&limit) > 0 && limit);
    void *p = malloc(1000); /* not ln_alloc: the size is the system's */
    assert_true(ln_os_block_bytes(p) >= 1000);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(events),         cmocka_unit_test(peers),
                                       cmocka_unit_test(flags),          cmocka_unit_test(limits_of_waits),
                                       cmocka_unit_test(sleepers),       cmocka_unit_test(files),
                                       cmocka_unit_test(ended_children), cmocka_unit_test(machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
