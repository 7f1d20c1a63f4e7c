/* mlock: weights, keys and values really are locked, or opening fails with a message that gives the
 * reason; no page stays locked after close. */
/* run: quick */
#include <linnet.h>

#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/qwen3-sharded-bf16"

static uint64_t locked_bytes(void) {
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmLck: %llu kB", &kb) == 1) break;
    if (f) fclose(f);
    return kb << 10;
}

/* Drops all capabilities and sets the limit of locked memory. */
static void become_ordinary(rlim_t limit) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){limit, limit}) != 0) _exit(91);
    if (syscall(SYS_capset, &head, data) != 0) _exit(90);
}

static int open_locked(ln_device device, uint64_t *locked, uint64_t *least, ln_error *err) {
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_plan plan = {.size = sizeof plan};
    ln_options o = {.size = sizeof(ln_options), .mlock = true, .n_ctx = 64, .device = device};
    ln_status st = ln_plan_memory(MODEL, &o, &plan, err);
    if (st == LN_OK) st = ln_model_open(&m, MODEL, &o, err);
    if (st == LN_OK) st = ln_engine_open(&e, m, &o, err);
    *locked = locked_bytes();
    *least = plan.weights_bytes + plan.kv_bytes;
    ln_engine_close(&e);
    ln_model_close(&m);
    return st;
}

static int in_child(ln_device device, rlim_t limit) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t locked, least;
        ln_error err = {0};
        become_ordinary(limit);
        int st = open_locked(device, &locked, &least, &err);
        if (locked_bytes() != 0) _exit(92);
        if (st == LN_OK) _exit(locked >= least ? 0 : 93);
        if (!strstr(err.message, "ulimit -l") || !strstr(err.message, "ln_options.mlock")) _exit(94);
        _exit(st);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void locks_or_says_why(void **s) {
    (void)s;
    struct rlimit now;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("SKIP: a sanitizer's mlock does nothing\n");
    return;
#endif
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &now), 0);
    for (ln_device d = LN_DEVICE_REF; d <= LN_DEVICE_CPU; d++) {
        assert_int_equal(in_child(d, 0), LN_EMEMORY);
        assert_int_equal(in_child(d, 16384), LN_EMEMORY);
        if (now.rlim_max < (4u << 20)) print_message("SKIP: this process may not lock 4 MiB\n");
        else assert_int_equal(in_child(d, now.rlim_max), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(locks_or_says_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
