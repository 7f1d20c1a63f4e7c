/* XXH64: four accumulators take 8 bytes each of a block of 32; the end mixes them with what is left. */
#include "xxh64.h"

#include <string.h>

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

/* n <= 8 bytes, little-endian */
static uint64_t read_le(const uint8_t *p, int n) {
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static uint64_t round_of(uint64_t acc, uint64_t lane) { return rotate(acc + lane * P2, 31) * P1; }

static void blocks(uint64_t acc[4], const uint8_t *p, size_t n) {
    uint64_t a = acc[0], b = acc[1], c = acc[2], d = acc[3];
    for (; n > 0; n--, p += 32) {
        a = round_of(a, read_le(p, 8));
        b = round_of(b, read_le(p + 8, 8));
        c = round_of(c, read_le(p + 16, 8));
        d = round_of(d, read_le(p + 24, 8));
    }
    acc[0] = a, acc[1] = b, acc[2] = c, acc[3] = d;
}

void ln_xxh64_open(ln_xxh64 *h) { *h = (ln_xxh64){.acc = {P1 + P2, P2, 0, 0 - P1}}; }

void ln_xxh64_add(ln_xxh64 *h, const void *data, size_t bytes) {
    const uint8_t *p = data;
    size_t held = (size_t)(h->bytes % 32);
    if (bytes == 0) return;
    h->bytes += bytes;
    if (held > 0) {
        const size_t n = LN_MIN(bytes, 32 - held);
        memcpy(h->block + held, p, n);
        p += n, bytes -= n, held += n;
        if (held < 32) return;
        blocks(h->acc, h->block, 1);
    }
    blocks(h->acc, p, bytes / 32);
    memcpy(h->block, p + bytes / 32 * 32, bytes % 32);
}

/* Mixes the bytes that fill no block. */
static uint64_t rest(uint64_t x, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) x = rotate(x ^ round_of(0, read_le(p, 8)), 27) * P1 + P4;
    if (n >= 4) {
        x = rotate(x ^ read_le(p, 4) * P1, 23) * P2 + P3;
        n -= 4, p += 4;
    }
    for (; n > 0; n--, p++) x = rotate(x ^ *p * P5, 11) * P1;
    return x;
}

uint64_t ln_xxh64_value(const ln_xxh64 *h) {
    uint64_t x = P5;
    if (h->bytes >= 32) {
        x = rotate(h->acc[0], 1) + rotate(h->acc[1], 7) + rotate(h->acc[2], 12) + rotate(h->acc[3], 18);
        for (int i = 0; i < 4; i++) x = (x ^ round_of(0, h->acc[i])) * P1 + P4;
    }
    x = rest(x + h->bytes, h->block, (size_t)(h->bytes % 32));
    x = (x ^ x >> 33) * P2;
    x = (x ^ x >> 29) * P3;
    return x ^ x >> 32;
}
