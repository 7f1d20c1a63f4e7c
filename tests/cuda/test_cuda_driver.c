/* The command if the CUDA plug-in is installed and its driver is missing or too old: a library in the place
 * of the driver's reports an old version. Needs no GPU; skipped if the plug-in was not built. */
/* run: quick cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs the command with the folder before others of LD_LIBRARY_PATH; its exit code, and what it wrote to both
 * streams in out. A CUDA driver would make HOME for its cache, and other tests expect that there is no
 * /nonexistent. */
static int run(const char *folder, const char *arguments, char out[8192]) {
    char command[4096];
    (void)snprintf(command, sizeof command,
                   "HOME=/nonexistent CUDA_CACHE_DISABLE=1 CUDA_VISIBLE_DEVICES=0 "
                   "LD_LIBRARY_PATH='%s':\"$LD_LIBRARY_PATH\" "
                   "'%s/linnet' %s 2>&1",
                   folder, LN_BIN, arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(out, 1, 8191, f);
    out[n] = 0;
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void has(const char *out, const char *word) {
    if (!strstr(out, word)) fail_msg("expected '%s': %s", word, out);
}

static void old_driver(void **state) {
    char out[8192];
    (void)state;
    assert_int_equal(run(LN_BIN "/old-driver", "doctor", out), 0);
    has(out, "the NVIDIA driver supports CUDA 12.4, expected 13.");
    assert_int_equal(run(LN_BIN "/old-driver", "run tiny hello --n-predict 2 --device cuda", out), 7);
    has(out, "the NVIDIA driver supports CUDA 12.4, expected 13.");
    has(out, "--device cpu");
    assert_int_equal(run(LN_BIN "/old-driver", "run tiny hello --n-predict 2 -v", out), 0);
    has(out, "cpu is used, because cuda is not available");
}

static void no_driver(void **state) {
    char out[8192];
    (void)state;
    if (run("/nonexistent", "doctor", out) == 0 && !strstr(out, "no NVIDIA driver found")) {
        print_message("SKIP: this machine has a driver\n");
        return;
    }
    assert_int_equal(run("/nonexistent", "run tiny hello --n-predict 2 --device cuda", out), 7);
    has(out, "no NVIDIA driver found (libcuda.so.1)");
}

int main(void) {
    if (access(LN_BIN "/liblinnet-cuda.so", F_OK) != 0) {
        printf("SKIP: the CUDA plug-in was not built\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_driver), cmocka_unit_test(no_driver)};
    return cmocka_run_group_tests_name("cuda_driver", tests, NULL, NULL);
}
