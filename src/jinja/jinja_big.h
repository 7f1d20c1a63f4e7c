/* Arbitrary-precision integers of templates: Python integers beyond 64 bits (jinja_big.c). */
#ifndef LN_TEXT_JJ_BIG_H
#define LN_TEXT_JJ_BIG_H

#include "jinja_internal.h"

enum {
    JJ_BIG_BITS = 16384,
    JJ_BIG_WORDS = JJ_BIG_BITS / 32 + 4, /* 32-bit words, with space for intermediate results */
    JJ_BIG_DIGITS = 4300 /* decimal digits that can be parsed or printed, Python's default limit */
};

struct jj_big {
    bool minus;
    size_t n;
    uint32_t w[]; /* the magnitude, least significant word first */
};

typedef struct jj_wide { /* an integer of any size on the stack, as operand or result of an operation */
    bool minus;
    size_t n;
    uint32_t w[JJ_BIG_WORDS + 1];
} jj_wide;

void jj_widen(jj_val v, jj_wide *out);            /* v: a bool or an integer */
bool jj_wide_int(const jj_wide *a, int64_t *out); /* false: does not fit into 64 bits */
/* Converts an integer to a value: JJ_INT if it fits into 64 bits, else JJ_BIG in the arena. LN_EINVALID:
 * more than JJ_BIG_BITS bits. */
ln_status jj_narrow(jj_run *r, const jj_wide *a, jj_val *out);
size_t jj_big_bytes(const jj_wide *a);
jj_val jj_big_put(const jj_wide *a, jj_big *buffer); /* `buffer` has jj_big_bytes(a) bytes */
/* Parses n digits of a base up to 36; underscores between digits are skipped. False: larger than jj_wide. */
bool jj_wide_read(jj_wide *out, const char *digits, size_t n, unsigned base);
ln_status jj_too_large(jj_run *r);
/* Applies a binary operator to two integers of any size. The exponent of ** must not be negative. */
ln_status jj_big_op(jj_run *r, jj_op op, jj_val left, jj_val right, jj_val *out);
ln_status jj_big_negative(jj_run *r, jj_val v, jj_val *out);
/* Compares two numbers of which at least one is beyond 64 bits: -1, 0 or 1, or 2 when one is NaN. */
int jj_big_order(jj_val a, jj_val b);
double jj_big_double(jj_val v); /* the nearest double, infinite beyond its range */

#endif
