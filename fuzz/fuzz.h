/* What all fuzz targets share. A target is one function, fuzz_one, which opens what the input says, checks what must then hold, closes it
 * and returns the status; fuzz_open runs once before. Built twice: as it is, and with FUZZ_OOM as its twin, which runs every input a
 * second time while the n-th allocation fails, n taken from the input. The twin's status must be the first one or LN_EMEMORY: a lack of
 * memory that is told as a defect of the file would send people to the wrong place.
 *
 * Either way an error has its code, a message on one line without control characters, and nothing stays allocated. The input lies in a
 * block of exactly its size, so that a read one byte beyond it is seen. */
#ifndef LN_FUZZ_H
#define LN_FUZZ_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The archive of libstdc++ refers to it, and only C libraries since 2.36 have it; nothing calls it here. With it the binaries run on older ones. */
uint32_t arc4random(void);
uint32_t arc4random(void) { return 4; }

static void fuzz_open(void);
static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err);

/* A finding: said with its place, and reported by the fuzzer as a crash. */
#define must(held) ((held) ? (void)0 : (fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #held), abort()))

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
    ln_mem_fail_at(1 + (int64_t)(h % ((uint64_t)1 << (1 + (h >> 40 & 7)))), h >> 50 & 1); /* among the first 2, 4, ... 256 */
    ln_status failed = run_once(data, bytes);
    must(failed == st || failed == LN_EMEMORY);
#endif
    (void)st;
    return 0;
}

#endif
