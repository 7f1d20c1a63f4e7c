/* Fuzzes the reader of safetensors files, from memory. The target checks the format's guarantees for every
 * file that opens: tensors are within the data and cover it once, names are sorted and can be looked up,
 * every byte is readable. A header written from the tensors must be read back as the same tensors. */
#include "fuzz.h"

#include "io/io.h"

#include <sys/mman.h>
#include <unistd.h>

static void fuzz_open(void) {}

static void check(const ln_tensors *t, const uint8_t *data, size_t bytes) {
    uint64_t total = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < t->n; i++) {
        const ln_tensor *x = &t->items[i];
        must(x->n_dims >= 0 && x->n_dims <= LN_ST_MAX_RANK && x->name_bytes == strlen(x->name));
        must(x->data >= data && x->bytes <= bytes && (size_t)(x->data - data) <= bytes - x->bytes);
        must(i == 0 || strcmp(t->items[i - 1].name, x->name) < 0);
        must(ln_tensors_find(t, x->name) == x && strlen(ln_st_dtype_name(x->dtype)) > 0);
        for (uint64_t k = 0; k < x->bytes; k++) sum += x->data[k];
        total += x->bytes;
    }
    must(ln_tensors_find(t, "") == NULL && total == t->bytes && total <= bytes && sum != 1u << 31);
}

/* Writes a header for the same tensors and reads it back. */
static ln_status write_back(const ln_tensors *t, ln_error *err) {
    ln_str s = {0};
    ln_tensors again = {0};
    uint8_t *file = NULL;
    ln_tensor_spec *specs = ln_zalloc(t->n + 1, sizeof *specs);
    ln_status st = specs ? LN_OK : LN_OOM(err, "specs");
    for (size_t i = 0; st == LN_OK && i < t->n; i++) {
        specs[i] = (ln_tensor_spec){
            .name = t->items[i].name, .dtype = t->items[i].dtype, .n_dims = t->items[i].n_dims};
        memcpy(specs[i].dims, t->items[i].dims, sizeof specs[i].dims);
    }
    if (st == LN_OK) st = ln_tensors_header(&s, specs, t->n, err);
    if (st == LN_OK) {
        file = calloc(1, s.len + t->bytes);
        must(file != NULL && s.len % 8 == 0);
        memcpy(file, s.data, s.len);
        st = ln_tensors_open_memory(&again, "written", file, s.len + t->bytes, err);
    }
    must(st == LN_OK || st == LN_EMEMORY ||
         st == LN_EUSAGE); /* LN_EUSAGE: empty shapes whose other sizes overflow in another order */
    if (st == LN_OK) {
        must(again.n == t->n && again.bytes == t->bytes);
        for (size_t i = 0; i < t->n; i++)
            must(strcmp(again.items[i].name, t->items[i].name) == 0 &&
                 memcmp(again.items[i].dims, t->items[i].dims, sizeof again.items[i].dims) == 0);
        ln_tensors_close(&again);
    }
    free(file);
    ln_str_free(&s);
    ln_free(specs);
    return st == LN_EUSAGE ? LN_OK : st;
}

/* Opens the same bytes as a file, for some of the inputs; the status must be the same. */
static void through_a_file(const uint8_t *data, size_t bytes, ln_status want) {
    char path[64];
    ln_tensors t;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) return;
    must(write(fd, data, bytes) == (ssize_t)bytes);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ln_status st = ln_tensors_open_file(&t, path, NULL);
    must(st == want || st == LN_EMEMORY || want == LN_EMEMORY);
    if (st == LN_OK) ln_tensors_close(&t);
    close(fd);
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    ln_tensors t;
    ln_status st = ln_tensors_open_memory(&t, "fuzz", data, bytes, err);
    if (bytes > 0 && hash_of(data, bytes) % 32 == 0) through_a_file(data, bytes, st);
    if (st != LN_OK) return st;
    check(&t, data, bytes);
    st = write_back(&t, err);
    ln_tensors_close(&t);
    return st;
}
