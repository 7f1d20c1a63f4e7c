/* System calls whose failure looks like an end: readdir that returns NULL, a read of 0 bytes. Each n-th call
 * is made to fail; the result is an error that names the place, or is complete. */
/* run: quick */
#include "../common.h"

#include "base/dir_names.h"
#include "base/file.h"
#include "base/line_reader.h"
#include "convert/convert.h"
#include "io/adapter.h"
#include "package/package.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TINY LN_ROOT "/models/tiny"
static char top[100];

/* ---- failing calls ---- */

static int fail_list, fail_read; /* the number of the call that fails; 0: none */

struct dirent *readdir(DIR *d) {
    static struct dirent *(*next)(DIR *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "readdir");
    if (fail_list > 0 && --fail_list == 0) {
        errno = EIO;
        return NULL;
    }
    return next(d);
}

ssize_t read(int fd, void *buf, size_t n) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "read");
    if (fail_read > 0 && --fail_read == 0) return 0;
    return next(fd, buf, n);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at) {
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pread");
    if (fail_read > 0 && --fail_read == 0) return 0;
    return next(fd, buf, n, at);
}

static const char *at(const char *name) {
    static char path[4][400];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[0], "%s/%s", top, name);
    return path[turn];
}

static void put(const char *name, const char *text) {
    FILE *f = fopen(at(name), "wb");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* ---- listings ---- */

static void lists(void **state) {
    (void)state;
    ln_names names;
    OK(ln_names_read(&names, TINY, err));
    const size_t n = names.n;
    ln_names_free(&names);
    for (size_t i = 1; i <= n + 3; i++) { /* the entries, `.`, `..` and the end */
        fail_list = (int)i;
        FAILS(LN_EIO, "models/tiny: cannot be listed: Input/output error", ln_names_read(&names, TINY, err));
        assert_int_equal(names.n, 0);
    }
    fail_list = 0;
}

static bool is_whole(const char *name) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "model.safetensors.index.json"};
    char path[100];
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", name, files[i]);
        if (!ln_exists(at(path))) return false;
    }
    return true;
}

/* A directory is written whole or not at all, whichever call fails. */
static void quantized_directories(void **state) {
    (void)state;
    const ln_quantize_options o = {.size = sizeof o, .bits = 4, .force = true, .n_threads = 2};
    int failures = 0;
    for (int n = 1;; n += 5) {
        ln_error err = {0};
        fail_list = n;
        const ln_status st = ln_quantize(TINY, at("q"), &o, NULL, NULL, &err);
        const bool reached = fail_list == 0;
        fail_list = 0;
        if (st == LN_OK) {
            assert_true(is_whole("q"));
        } else {
            failures++;
            assert_int_equal(st, LN_EIO);
            assert_non_null(strstr(err.message, "cannot be listed"));
        }
        char command[200];
        (void)snprintf(command, sizeof command, "rm -rf %s/q", top); /* the next call lists the same */
        assert_int_equal(system(command), 0);
        if (!reached) break;
    }
    assert_true(failures > 4);
}

static ln_status count_one(void *user, const ln_found *f, ln_error *err) {
    (void)err;
    *(uint64_t *)user = f->bytes;
    return LN_OK;
}

/* `ls` shows the size of a model's weights, or none and a warning; never the size of a part of them. */
static void listed_models(void **state) {
    (void)state;
    uint64_t whole = 0, found;
    OK(ln_list_models(TINY, count_one, &whole, err));
    assert_true(whole > 0);
    for (int n = 1;; n++) {
        ln_error err = {0};
        found = 0;
        fail_list = n;
        const ln_status st = ln_list_models(TINY, count_one, &found, &err);
        const bool reached = fail_list == 0;
        fail_list = 0;
        assert_true(st == LN_EIO || found == whole || found == 0);
        if (!reached) break;
    }
}

/* ---- reads ---- */

static void whole_files(void **state) {
    (void)state;
    char *data;
    size_t bytes;
    put("file", "some text");
    fail_read = 1;
    FAILS(LN_EIO, "it has 9 bytes, and reading stopped after 0",
          ln_read_file(at("file"), 100, &data, &bytes, err));
    OK(ln_read_file("/proc/self/status", 1 << 20, &data, &bytes, err)); /* its size is 0 */
    assert_true(bytes > 100);
    ln_free(data);
    static const char in_sys[] = "/sys/kernel/mm/transparent_hugepage/enabled"; /* its size is 4096 */
    if (access(in_sys, R_OK) != 0) return;
    OK(ln_read_file(in_sys, 1 << 20, &data, &bytes, err));
    assert_true(bytes < 4096);
    ln_free(data);
}

/* From the middle of a file, as stdin may be. */
static void rest_of_a_file(void **state) {
    (void)state;
    char *data;
    size_t bytes;
    put("file", "some text");
    const int fd = open(at("file"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(lseek(fd, 5, SEEK_SET), 5);
    OK(ln_read_stream(fd, "stdin", 100, &data, &bytes, err));
    assert_string_equal(data, "text");
    ln_free(data);
    assert_int_equal(lseek(fd, 5, SEEK_SET), 5);
    fail_read = 1;
    FAILS(LN_EIO, "reading stopped after 5", ln_read_stream(fd, "stdin", 100, &data, &bytes, err));
    close(fd);
}

static void lines(void **state) {
    (void)state;
    ln_lines l;
    char *text;
    size_t bytes;
    uint64_t offset;
    bool whole;
    put("file", "one\ntwo\n");
    const int fd = open(at("file"), O_RDONLY | O_CLOEXEC);
    ln_lines_open(&l, fd, "file", 100);
    fail_read = 1;
    FAILS(LN_EIO, "it has 8 bytes", ln_lines_next(&l, &text, &bytes, &offset, &whole, err));
    ln_lines_close(&l);
    close(fd);
}

static int make_top(void **state) {
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/linnet-ends-%ld", (long)getpid());
    return mkdir(top, 0700);
}
static int remove_top(void **state) {
    (void)state;
    (void)unlink(at("file"));
    return rmdir(top); /* fails if something is left */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),          cmocka_unit_test(quantized_directories),
        cmocka_unit_test(listed_models),  cmocka_unit_test(whole_files),
        cmocka_unit_test(rest_of_a_file), cmocka_unit_test(lines),
    };
    return cmocka_run_group_tests(tests, make_top, remove_top);
}
