/* Helpers that the tests of files share: a temporary directory, files in it, tensor files in memory, and
 * the check of an error. */
#ifndef LN_TESTS_IO_H
#define LN_TESTS_IO_H

#include "../base/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io.h"

#define OK(x)                                                               \
    do {                                                                    \
        ln_error e_ = {0}, *err = &e_;                                      \
        ln_status s_ = (x);                                                 \
        if (s_ != LN_OK) fail_msg("%s: status %d: %s", #x, s_, e_.message); \
    } while (0)

/* Asserts that the status is `want` and, for an error, that the message contains `word`. `id` names the
 * case. */
static inline void expect(const char *id, ln_status want, const char *word, ln_status got,
                          const ln_error *err) {
    if (got != want)
        fail_msg("%s: status %d, expected %d: %s", id, got, want, got ? err->message : "no error");
    if (got != LN_OK && err->code != got)
        fail_msg("%s: returned %d, but the error says %d", id, got, err->code);
    if (got != LN_OK && !strstr(err->message, word))
        fail_msg("%s: the message lacks \"%s\": %s", id, word, err->message);
    for (const char *p = err->message; got != LN_OK && *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) fail_msg("%s: the message holds a control character", id);
}

/* ---- a temporary directory, removed at the end ---- */

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

/* Returns the path test_dir/name, in one of four static buffers that are used cyclically. */
static inline const char *at(const char *name) {
    static char path[4][4500];
    static int turn;
    turn = (turn + 1) % 4;
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

/* ---- tensor files ---- */

/* Returns a tensor file: header length, header and `data` bytes 0, 1, 2, ... The caller frees it. */
static inline uint8_t *file_of(const char *header, size_t header_bytes, size_t data, size_t *bytes) {
    *bytes = 8 + header_bytes + data;
    uint8_t *p = malloc(*bytes);
    assert_non_null(p);
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)((uint64_t)header_bytes >> 8 * i);
    memcpy(p + 8, header, header_bytes);
    for (size_t i = 0; i < data; i++) p[8 + header_bytes + i] = (uint8_t)i;
    return p;
}
static inline void put_tensors(const char *name, const char *header, size_t data) {
    size_t bytes;
    uint8_t *p = file_of(header, strlen(header), data, &bytes);
    put(name, p, bytes);
    free(p);
}

#endif
