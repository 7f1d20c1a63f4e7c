/* Helpers of the two test programs for old defects.
 *
 * The predecessor of this system had sixteen correctness defects, B1 to B16. Each of them that is possible
 * here has a test named after it, and tests/mutants/ has a patch that reintroduces it; tools/mutants
 * applies the patches one by one and requires that the named test fails. A program takes the name of one
 * test as its argument. Everything runs on one thread, so that a crash of a mutant is a failed test. */
#ifndef LN_TESTS_DEFECTS_H
#define LN_TESTS_DEFECTS_H

#include "../common.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN_DEFECTS(argc, argv, tests)                     \
    do {                                                   \
        if ((argc) > 1) cmocka_set_test_filter((argv)[1]); \
        return cmocka_run_group_tests(tests, NULL, NULL);  \
    } while (0)

/* A temporary directory with the weights and the tokenizer of a golden model, and its configuration
 * changed by `edit`. */
typedef struct copied {
    char dir[64];
} copied;
static inline void copied_put(const copied *c, const char *file, const json_t *value) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", c->dir, file);
    assert_int_equal(json_dump_file(value, path, 0), 0);
}
static inline copied copy_of(const char *golden, void (*edit)(json_t *config)) {
    copied c = {"/tmp/linnet-defect-XXXXXX"};
    static const char *const files[] = {"model.safetensors", "tokenizer.json"};
    char from[600], to[128];
    assert_non_null(mkdtemp(c.dir));
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(from, sizeof from, "%s/tests/golden/%s/%s", LN_ROOT, golden, files[i]);
        (void)snprintf(to, sizeof to, "%s/%s", c.dir, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    (void)snprintf(from, sizeof from, "%s/tests/golden/%s/config.json", LN_ROOT, golden);
    json_t *config = json_load_file(from, 0, NULL);
    assert_non_null(config);
    edit(config);
    copied_put(&c, "config.json", config);
    json_decref(config);
    return c;
}
static inline void copy_gone(const copied *c) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json", "config.json",
                                        "generation_config.json", "tokenizer_config.json"};
    char path[128];
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", c->dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(c->dir);
}

#endif
