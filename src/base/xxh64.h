/* XXH64 (the specification of xxHash, version 0.1.1): a fast hash of 64 bits that notices changed bytes. It
 * is for data that is too large for SHA-256 (sha256.h), and for accidents, not for attackers. */
#ifndef LN_XXH64_H
#define LN_XXH64_H

#include "base.h"

typedef struct ln_xxh64 {
    uint64_t acc[4];
    uint64_t bytes; /* hashed so far */
    uint8_t block[32];
} ln_xxh64;

/* Begins a hash with seed 0. */
void ln_xxh64_open(ln_xxh64 *h);
void ln_xxh64_add(ln_xxh64 *h, const void *data, size_t bytes);
/* The hash of what was added; more may be added afterwards. */
uint64_t ln_xxh64_value(const ln_xxh64 *h);

#endif
