/* Integers beyond 64 bits in templates (jj_big.c). */
#ifndef LN_TEXT_JJ_BIG_H
#define LN_TEXT_JJ_BIG_H

#include "jj.h"

enum {
    JJ_BIG_BITS = 16384,
    JJ_BIG_WORDS = JJ_BIG_BITS / 32 + 4, /* room for what an operation holds on its way */
    JJ_BIG_DIGITS = 4300                 /* decimal digits that are read or written, as in Python */
};

struct jj_big {
    bool minus;
    size_t n;
    uint32_t w[]; /* the magnitude, least significant word first */
};

typedef struct jj_wide { /* any integer, at work */
    bool minus;
    size_t n;
    uint32_t w[JJ_BIG_WORDS + 1];
} jj_wide;

void jj_widen(jj_val v, jj_wide *out);                /* bool, int */
bool jj_wide_int(const jj_wide *a, int64_t *out);     /* false: beyond 64 bits */
ln_status jj_narrow(jj_run *r, const jj_wide *a, jj_val *out);
size_t jj_big_bytes(const jj_wide *a);
jj_val jj_big_put(const jj_wide *a, jj_big *room);    /* room: jj_big_bytes */
/* Digits of a base up to 36 with underscores between; false: too large. */
bool jj_wide_read(jj_wide *out, const char *digits, size_t n, unsigned base);
ln_status jj_too_large(jj_run *r);
/* Two integers, any; for ** the right one is not negative. */
ln_status jj_big_op(jj_run *r, jj_op op, jj_val left, jj_val right, jj_val *out);
ln_status jj_big_negative(jj_run *r, jj_val v, jj_val *out);
/* -1, 0, 1; 2 for NaN. At least one is beyond 64 bits. */
int jj_big_order(jj_val a, jj_val b);
double jj_big_double(jj_val v); /* the nearest one; infinite beyond the range of a double */

#endif
