/* A directory of a test's own and files in it: dir_make and dir_remove are the setup and the teardown of a
 * group of tests. */
#ifndef LN_TESTS_DIR_H
#define LN_TESTS_DIR_H

#include "base/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_dir[256];

static inline int dir_make(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(test_dir, sizeof test_dir, "%s/linnet-test-XXXXXX", base && base[0] ? base : "/tmp");
    return mkdtemp(test_dir) ? 0 : -1;
}
static inline int dir_remove(void **state) {
    (void)state;
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", test_dir);
    return system(command);
}

/* Returns the path test_dir/name, in one of eight static buffers that are used cyclically. */
static inline const char *at(const char *name) {
    static char path[8][4500];
    static int turn;
    turn = (turn + 1) % 8;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", test_dir, name);
    return path[turn];
}
/* Creates the parent directories of a path below test_dir. */
static inline void make_dirs(const char *name) {
    char part[4096];
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        if (mkdir(at(part), 0700) != 0) assert_int_equal(errno, EEXIST);
    }
}
static inline void put(const char *name, const void *data, size_t bytes) {
    make_dirs(name);
    FILE *f = fopen(at(name), "wb");
    if (!f) fail_msg("%s: cannot be written", name);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}
static inline void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }
static inline void drop(const char *name) { assert_int_equal(unlink(at(name)), 0); }
static inline void link_to(const char *target, const char *name) {
    make_dirs(name);
    assert_int_equal(symlink(target, at(name)), 0);
}

#endif
