/* A directory of the process, in memory if that is possible, for targets whose parser reads files. It is
 * removed when the process ends. */
#ifndef LN_FUZZ_DIR_H
#define LN_FUZZ_DIR_H

#include "fuzz.h"

#include "io/io.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char fuzz_dir[64];

static int dir_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)at;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}
static void dir_remove(void) { (void)nftw(fuzz_dir, dir_remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static void dir_open(void) {
    (void)snprintf(fuzz_dir, sizeof fuzz_dir, "%s/linnet-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(fuzz_dir) != NULL);
    (void)atexit(dir_remove);
}

static inline const char *dir_path(const char *name) {
    static char path[256];
    must((size_t)snprintf(path, sizeof path, "%s/%s", fuzz_dir, name) < sizeof path);
    return path;
}
static inline void dir_make(const char *name) { must(mkdir(dir_path(name), 0700) == 0); }
static inline void dir_put(const char *name, const void *data, size_t bytes) {
    const int fd = open(dir_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    (void)close(fd);
}

/* Writes a safetensors file with these f32 tensors; element i of each is i. */
static inline void dir_put_tensors(const char *name, const ln_tensor_spec *specs, size_t n) {
    ln_str s = {0};
    must(ln_tensors_header(&s, specs, n, NULL) == LN_OK);
    for (size_t i = 0; i < n; i++) {
        int64_t size = 1;
        for (int d = 0; d < specs[i].n_dims; d++) size *= specs[i].dims[d];
        for (int64_t k = 0; k < size; k++) ln_str_add(&s, (const char *)&(float){(float)k}, sizeof(float));
    }
    must(!s.failed);
    dir_put(name, s.data, s.len);
    ln_str_free(&s);
}

/* Splits the input at bytes 0xFF, which no JSON document contains, into the files of these names. An empty
 * part, except the first, is a file that does not exist. The last part is the rest of the input. */
static inline void dir_put_parts(const char *const *names, size_t n, const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < n; i++) {
        const uint8_t *mark = bytes && i + 1 < n ? memchr(data, 0xff, bytes) : NULL;
        const size_t size = mark ? (size_t)(mark - data) : bytes;
        if (i == 0 || size) dir_put(names[i], data, size);
        else (void)unlink(dir_path(names[i]));
        data += size + (mark != NULL);
        bytes -= size + (mark != NULL);
    }
}

/* An input may name files that do not exist, which no input of the other targets can. */
static inline ln_status dir_status(ln_status st, ln_error *err) {
    if (st != LN_EIO) return st;
    return err->code = LN_EINVALID;
}

#endif
