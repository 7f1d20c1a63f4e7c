/* The common part of all fuzz targets (libFuzzer). A target defines fuzz_one, which opens the object that the
 * input describes, checks its invariants, closes it and returns the status, and fuzz_open, which runs once
 * before. Each target is built twice. The second binary, with FUZZ_OOM, runs every input once more while the
 * n-th allocation fails; n is a function of the input. Its status must be that of the first run or
 * LN_EMEMORY, because an error that blames the file when memory is short would mislead the user.
 *
 * Both binaries check that an error has its code and a message of one line without control characters, and
 * that no memory stays allocated. The input is copied to a block of exactly its size, so that
 * AddressSanitizer finds a read of one byte beyond it. */
#ifndef LN_FUZZ_H
#define LN_FUZZ_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The static libstdc++ refers to this function, which glibc has since 2.36. Nothing calls it; the definition
 * lets the binaries run with an older glibc. */
uint32_t arc4random(void);
uint32_t arc4random(void) { return 4; }

static void fuzz_open(void);
static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err);

/* Checks an invariant; prints its place and aborts when it does not hold, which the fuzzer reports as a
 * crash. */
#define must(held) \
    ((held) ? (void)0 : (fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #held), abort()))

static inline uint64_t hash_of(const uint8_t *data, size_t bytes) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ data[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static ln_status run_once(const uint8_t *data, size_t bytes) {
    ln_error err = {0};
    uint64_t before = ln_mem_bytes();
    uint8_t *copy = malloc(bytes ? bytes : 1);
    must(copy != NULL);
    if (bytes) memcpy(copy, data, bytes);
    ln_status st = fuzz_one(copy, bytes, &err);
    ln_mem_fail_at(-1, false);
    free(copy);
    must(ln_mem_bytes() == before);
    must(st == LN_OK || st == LN_EINVALID || st == LN_EUNSUPPORTED || st == LN_EMEMORY);
    if (st != LN_OK) must(err.code == st && err.message[0]);
    for (const char *p = err.message; st != LN_OK && *p; p++) must((unsigned char)*p >= 0x20 && *p != 0x7f);
    return st;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_open();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ln_status st = run_once(data, bytes);
#ifdef FUZZ_OOM
    uint64_t h = hash_of(data, bytes);
    ln_mem_fail_at(1 + (int64_t)(h % ((uint64_t)1 << (1 + (h >> 40 & 7)))),
                   h >> 50 & 1); /* one of the first 2, 4, ... or 256 allocations */
    ln_status failed = run_once(data, bytes);
    must(failed == st || failed == LN_EMEMORY);
#endif
    (void)st;
    return 0;
}

#endif
