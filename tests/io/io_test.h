/* Helpers that the tests of files share: a directory with files, tensor files in memory, and the check of an
 * error. */
#ifndef LN_TESTS_IO_H
#define LN_TESTS_IO_H

#include "../test_dir.h"

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
