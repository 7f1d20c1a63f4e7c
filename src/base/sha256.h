/* SHA-256 (FIPS 180-4): digests that identify files and settings. A digest decides whether two things are the
 * same, so that it must not collide by chance; nothing here is a secret. */
#ifndef LN_SHA256_H
#define LN_SHA256_H

#include "base.h"

enum { LN_SHA256_BYTES = 32, LN_SHA256_HEX = 65 };

typedef struct ln_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* hashed so far */
    uint8_t block[64];
} ln_sha256;

void ln_sha256_open(ln_sha256 *h);
void ln_sha256_add(ln_sha256 *h, const void *data, size_t bytes);
/* Adds the length and then the bytes, so that two lists of texts with one concatenation differ. */
void ln_sha256_add_text(ln_sha256 *h, const char *text, size_t bytes);
/* Writes the digest; the state must be opened again before its next use. */
void ln_sha256_end(ln_sha256 *h, uint8_t out[LN_SHA256_BYTES]);
/* The same as 64 lower-case hexadecimal digits and a NUL. */
void ln_sha256_hex(ln_sha256 *h, char out[LN_SHA256_HEX]);

#endif
