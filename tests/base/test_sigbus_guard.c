/* The SIGBUS guard of mapped files: lost pages read as zeros and are reported as lost; a signal for other
 * memory goes to the handler that was installed before. */
/* run: quick */
#include "cm.h"
#include "base/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 64, PAGE = 4096 };
static char dir[] = "/tmp/linnet-guard-XXXXXX", path[2][64];
static sigjmp_buf back;
static volatile sig_atomic_t passed_on;
static struct sigaction guard;

static void make(int which) {
    static char page[PAGE];
    memset(page, 'x', sizeof page);
    (void)snprintf(path[which], sizeof path[which], "%s/%d", dir, which);
    int fd = open(path[which], O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    for (int i = 0; i < PAGES; i++) assert_int_equal(write(fd, page, PAGE), PAGE);
    assert_int_equal(futimens(fd, (const struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}),
                     0); /* an old time stamp: the next write changes it even with a coarse clock */
    close(fd);
}

static void on_other(int number) {
    (void)number;
    passed_on++;
    siglongjmp(back, 1);
}

static int group_setup(void **s) {
    (void)s;
    ln_error err;
    struct sigaction a = {0};
    if (!mkdtemp(dir)) return -1;
    a.sa_handler = on_other;
    sigemptyset(&a.sa_mask);
    assert_int_equal(sigaction(SIGBUS, &a, NULL), 0);
    assert_int_equal(ln_guard_install(&err), LN_OK);
    assert_int_equal(ln_guard_install(&err), LN_OK); /* installing twice has the effect of once: the
                                                        handler does not pass signals on to itself */
    return sigaction(SIGBUS, NULL, &guard);
}

static int group_teardown(void **s) {
    (void)s;
    return rmdir(dir);
}

/* Restores the guard's handler; cmocka installs a handler of its own before every test. */
static void begin(void) { assert_int_equal(sigaction(SIGBUS, &guard, NULL), 0); }

static void lost_pages_read_as_zeros(void **s) {
    (void)s;
    begin();
    ln_map m;
    ln_error err;
    make(0);
    assert_int_equal(ln_map_open(&m, path[0], &err), LN_OK);
    assert_int_equal(m.data[PAGE * 40], 'x');
    assert_int_equal(ln_map_check(&m, path[0], &err), LN_OK);
    assert_int_equal(truncate(path[0], PAGE * 10), 0);
    assert_false(ln_map_broken(&m)); /* no access has met a lost page yet */
    assert_int_equal(ln_map_check(&m, path[0], &err), LN_ECHANGED);
    assert_non_null(strstr(err.message, path[0]));
    assert_int_equal(m.data[PAGE * 9 + PAGE - 1], 'x');
    assert_int_equal(m.data[PAGE * 40 + 7], 0);
    assert_int_equal(m.data[PAGE * 20], 0); /* below the page that was replaced already */
    assert_int_equal(m.data[PAGE * PAGES - 1], 0);
    assert_int_equal(m.data[0], 'x');
    assert_true(ln_map_broken(&m));
    assert_int_equal(unlink(path[0]), 0);
    assert_int_equal(ln_map_check(&m, path[0], &err), LN_ECHANGED);
    ln_map_close(&m);
    assert_int_equal(passed_on, 0);
}

static void *read_all(void *arg) {
    const ln_map *m = arg;
    uintptr_t sum = 0;
    for (size_t i = 0; i < m->bytes; i += 512) sum += m->data[i];
    return (void *)sum;
}

static void threads_may_meet_it_together(void **s) {
    (void)s;
    begin();
    ln_map m, other;
    ln_error err;
    make(0);
    make(1);
    for (int round = 0; round < 50; round++) {
        pthread_t t[3];
        make(0);
        assert_int_equal(ln_map_open(&m, path[0], &err), LN_OK);
        assert_int_equal(ln_map_open(&other, path[1], &err), LN_OK);
        assert_false(ln_map_broken(&m)); /* an entry of the table of maps that is used again starts as
                                            unbroken */
        assert_int_equal(truncate(path[0], round * PAGE), 0);
        for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, read_all, &m), 0);
        for (int i = 0; i < 3; i++) {
            void *sum;
            pthread_join(t[i], &sum);
            assert_int_equal((uintptr_t)sum, (uintptr_t)round * 8 * 'x');
        }
        assert_true(ln_map_broken(&m) && !ln_map_broken(&other));
        assert_int_equal((uintptr_t)read_all(&other), (uintptr_t)PAGES * 8 * 'x');
        ln_map_close(&other);
        ln_map_close(&m);
    }
    unlink(path[0]);
    unlink(path[1]);
    assert_int_equal(passed_on, 0);
}

static void writing_is_noticed(void **s) {
    (void)s;
    ln_map m;
    ln_error err;
    make(0);
    assert_int_equal(ln_map_open(&m, path[0], &err), LN_OK);
    int fd = open(path[0], O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "y", 1, 5000), 1);
    close(fd);
    assert_int_equal(ln_map_check(&m, path[0], &err), LN_ECHANGED);
    assert_non_null(strstr(err.message, "written to"));
    ln_map_close(&m);
    assert_int_equal(ln_map_open(&m, path[0], &err), LN_OK);
    assert_int_equal(unlink(path[0]), 0);
    assert_int_equal(ln_map_check(&m, path[0], &err), LN_OK); /* the name is gone, the mapped file is
                                                                 complete */
    make(0);
    assert_int_equal(ln_map_check(&m, path[0], &err), LN_OK); /* another file has the name */
    unlink(path[0]);
    ln_map_close(&m);
}

static void what_is_not_ours_is_passed_on(void **s) {
    (void)s;
    begin();
    make(0);
    int fd = open(path[0], O_RDWR | O_CLOEXEC);
    volatile char *p = mmap(NULL, PAGE * PAGES, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    volatile char seen = 1;
    if (sigsetjmp(back, 1) == 0) seen = p[PAGE * 3];
    assert_int_equal(seen, 1);
    assert_int_equal(passed_on, 1);
    if (sigsetjmp(back, 1) == 0) (void)raise(SIGBUS);
    assert_int_equal(passed_on, 2);
    (void)munmap((void *)(uintptr_t)p, PAGE * PAGES);
    unlink(path[0]);
}

/* Without an earlier handler the process dies of the signal, as it would without the guard. */
static void default_is_death(void **s) {
    (void)s;
    for (int sent = 0; sent < 2; sent++) {
        int status;
        make(0);
        pid_t pid = fork();
        if (pid == 0) {
            char self[32];
            (void)snprintf(self, sizeof self, "%d", sent);
            (void)execl("/proc/self/exe", "test_guard", "die", self, path[0], NULL);
            _exit(97);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        unlink(path[0]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
}

static int die(bool sent, const char *file) {
    ln_error err;
    struct sigaction a = {0};
    a.sa_handler = SIG_DFL;
    (void)sigaction(SIGBUS, &a, NULL); /* a sanitizer's handler would turn the signal into an exit */
    alarm(300);
    if (ln_guard_install(&err) != LN_OK) return 96;
    if (sent) (void)raise(SIGBUS);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED || ftruncate(fd, 0) != 0) return 95;
    return p[0];
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "die") == 0) return die(argv[2][0] == '1', argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_pages_read_as_zeros), cmocka_unit_test(threads_may_meet_it_together),
        cmocka_unit_test(writing_is_noticed), cmocka_unit_test(what_is_not_ours_is_passed_on),
        cmocka_unit_test(default_is_death)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
