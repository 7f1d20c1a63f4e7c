/* One tensor file from memory, for libFuzzer: clang -std=c17 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc
 * fuzz/fuzz_safetensors.c src/base/[a-z]*.c src/io/[a-z]*.c -ljansson -lpthread -lm. Not built by default.
 *
 * Crash-freedom alone is a weak oracle: what loads must also keep the format's promises, so they are checked here a second time, from the
 * outside: ranges inside the data, no two overlapping, names sorted and found again, every byte readable. The last input byte fails an
 * allocation (0: none). */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held) {
    if (!held) abort();
}

static void check(const ln_tensors *t, const uint8_t *data, size_t bytes) {
    uint64_t total = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < t->n; i++) {
        const ln_tensor *x = &t->items[i];
        must(x->n_dims >= 0 && x->n_dims <= LN_ST_MAX_RANK && x->name_bytes == strlen(x->name));
        must(x->data >= data && x->bytes <= bytes && (size_t)(x->data - data) <= bytes - x->bytes);
        must(i == 0 || strcmp(t->items[i - 1].name, x->name) < 0);
        must(ln_tensors_find(t, x->name) == x);
        for (uint64_t k = 0; k < x->bytes; k++) sum += x->data[k];
        total += x->bytes;
    }
    must(total == t->bytes && total <= bytes && sum != 1u << 31);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t fail = data[--size];
    uint8_t *copy = malloc(size ? size : 1); /* exactly sized, so that one byte too many is seen */
    if (!copy) return 0;
    memcpy(copy, data, size);
    ln_tensors t;
    ln_error err = {0};
    uint64_t before = ln_mem_bytes();
    ln_log_level(LN_LOG_ERROR);
    ln_mem_fail_at(fail ? fail : -1, fail & 1);
    ln_status st = ln_tensors_open_memory(&t, "fuzz", copy, size, &err);
    ln_mem_fail_at(-1, false);
    if (st == LN_OK) {
        check(&t, copy, size);
        ln_tensors_close(&t);
    } else {
        must(st == err.code && err.message[0] != '\0' && (st == LN_EINVALID || st == LN_EUNSUPPORTED || st == LN_EMEMORY));
    }
    must(ln_mem_bytes() == before);
    free(copy);
    return 0;
}
