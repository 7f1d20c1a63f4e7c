/* Arbitrary-precision integers with Python's semantics: sign and magnitude in 32-bit words, at most
 * JJ_BIG_BITS bits.
 *
 * A value is JJ_BIG only if it does not fit into 64 bits, so that every integer has exactly one
 * representation. Operations work on jj_wide, which is allocated on the stack; results are copied to the
 * arena. A result that is too large is an error, never rounded. */
#include "jinja_big.h"

#include <math.h>

enum { WORD = 32 };

/* ---- magnitudes ---- */

static void trim(jj_wide *a) {
    while (a->n > 0 && a->w[a->n - 1] == 0) a->n--;
    if (a->n == 0) a->minus = false;
}

static size_t bits_of(const jj_wide *a) {
    return a->n == 0 ? 0 : a->n * WORD - (size_t)__builtin_clz(a->w[a->n - 1]);
}

static bool mul_add(jj_wide *a, uint32_t by, uint32_t more) { /* false: overflow of the array */
    uint64_t carry = more;
    for (size_t i = 0; i < a->n; i++) {
        carry += (uint64_t)a->w[i] * by;
        a->w[i] = (uint32_t)carry;
        carry >>= WORD;
    }
    if (carry && a->n == JJ_BIG_WORDS) return false;
    if (carry) a->w[a->n++] = (uint32_t)carry;
    return true;
}

static uint32_t div_small(jj_wide *a, uint32_t by) { /* divides in place; returns the remainder */
    uint64_t rest = 0;
    for (size_t i = a->n; i-- > 0;) {
        rest = rest << WORD | a->w[i];
        a->w[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    trim(a);
    return (uint32_t)rest;
}

static int compare(const jj_wide *a, const jj_wide *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (size_t i = a->n; i-- > 0;)
        if (a->w[i] != b->w[i]) return a->w[i] < b->w[i] ? -1 : 1;
    return 0;
}

static void add(const jj_wide *a, const jj_wide *b, jj_wide *out) {
    uint64_t carry = 0;
    size_t n = LN_MAX(a->n, b->n);
    for (size_t i = 0; i < n; i++) {
        carry += (uint64_t)(i < a->n ? a->w[i] : 0) + (i < b->n ? b->w[i] : 0);
        out->w[i] = (uint32_t)carry;
        carry >>= WORD;
    }
    out->n = n;
    if (carry) out->w[out->n++] = (uint32_t)carry;
}

static void subtract(const jj_wide *a, const jj_wide *b, jj_wide *out) { /* requires a >= b */
    uint64_t borrow = 0;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t d = (uint64_t)a->w[i] - (i < b->n ? b->w[i] : 0) - borrow;
        out->w[i] = (uint32_t)d;
        borrow = d >> 63;
    }
    out->n = a->n;
}

static void add_signed(const jj_wide *a, const jj_wide *b, bool b_minus, jj_wide *out) {
    if (a->minus == b_minus) {
        out->minus = a->minus;
        add(a, b, out);
    } else if (compare(a, b) >= 0) {
        out->minus = a->minus;
        subtract(a, b, out);
    } else {
        out->minus = b_minus;
        subtract(b, a, out);
    }
    trim(out);
}

static void shift_left(jj_wide *a, size_t by) {
    size_t words = by / WORD, bits = by % WORD;
    if (a->n == 0) return;
    a->w[a->n] = 0;
    for (size_t i = a->n + 1; i-- > 0;)
        a->w[i + words] = a->w[i] << bits | (bits && i > 0 ? a->w[i - 1] >> (WORD - bits) : 0);
    memset(a->w, 0, words * sizeof a->w[0]);
    a->n += words + 1;
    trim(a);
}

static void shift_right(jj_wide *a, size_t by) {
    size_t words = by / WORD, bits = by % WORD;
    for (size_t i = words; i < a->n; i++)
        a->w[i - words] = a->w[i] >> bits | (bits && i + 1 < a->n ? a->w[i + 1] << (WORD - bits) : 0);
    a->n = a->n > words ? a->n - words : 0;
    trim(a);
}

static bool multiply(const jj_wide *a, const jj_wide *b,
                     jj_wide *out) { /* false: too large; out must not alias a or b */
    *out = (jj_wide){.minus = a->minus != b->minus};
    if (a->n == 0 || b->n == 0) return true;
    if (bits_of(a) + bits_of(b) - 1 > JJ_BIG_BITS) return false;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (size_t k = 0; k < b->n; k++) {
            carry += (uint64_t)a->w[i] * b->w[k] + out->w[i + k];
            out->w[i + k] = (uint32_t)carry;
            carry >>= WORD;
        }
        if (carry) out->w[i + b->n] = (uint32_t)carry;
    }
    out->n = a->n + b->n;
    trim(out);
    return true;
}

/* Divides magnitudes: the quotient in q, the remainder in a (Knuth's algorithm D). b is not 0. */
static void divide(jj_wide *a, const jj_wide *divisor, jj_wide *q) {
    jj_wide b = *divisor;
    *q = (jj_wide){.n = 0};
    if (compare(a, &b) < 0) return;
    if (b.n == 1) {
        *q = *a;
        uint32_t rest = div_small(q, b.w[0]);
        *a = (jj_wide){.n = 1, .w = {rest}};
        trim(a);
        return;
    }
    size_t by = (size_t)__builtin_clz(b.w[b.n - 1]), n = b.n, m = a->n - b.n;
    shift_left(&b, by);
    a->w[a->n] = 0;
    if (by) shift_left(a, by);
    for (size_t i = a->n; i <= m + n; i++) a->w[i] = 0;
    for (size_t j = m + 1; j-- > 0;) {
        uint64_t top = (uint64_t)a->w[j + n] << WORD | a->w[j + n - 1], guess = top / b.w[n - 1],
                 rest = top % b.w[n - 1];
        while (guess >> WORD || guess * b.w[n - 2] > (rest << WORD | a->w[j + n - 2])) {
            guess--;
            rest += b.w[n - 1];
            if (rest >> WORD) break;
        }
        uint64_t carry = 0, borrow = 0;
        for (size_t i = 0; i < n; i++) {
            carry += guess * b.w[i];
            uint64_t d = (uint64_t)a->w[i + j] - (uint32_t)carry - borrow;
            a->w[i + j] = (uint32_t)d;
            borrow = d >> 63;
            carry >>= WORD;
        }
        uint64_t d = (uint64_t)a->w[j + n] - carry - borrow;
        a->w[j + n] = (uint32_t)d;
        if (d >> 63) { /* the guess was one too large: add the divisor back */
            guess--;
            carry = 0;
            for (size_t i = 0; i < n; i++) {
                carry += (uint64_t)a->w[i + j] + b.w[i];
                a->w[i + j] = (uint32_t)carry;
                carry >>= WORD;
            }
            a->w[j + n] += (uint32_t)carry;
        }
        q->w[j] = (uint32_t)guess;
    }
    q->n = m + 1;
    trim(q);
    a->n = n;
    trim(a);
    shift_right(a, by);
}

/* ---- values ---- */

bool jj_is_int(jj_val v) { return v.kind == JJ_BOOL || v.kind == JJ_INT || v.kind == JJ_BIG; }

void jj_widen(jj_val v, jj_wide *out) {
    int64_t i;
    *out = (jj_wide){.n = 0};
    if (v.kind == JJ_BIG) {
        out->minus = v.u.big->minus;
        out->n = v.u.big->n;
        memcpy(out->w, v.u.big->w, out->n * sizeof out->w[0]);
        return;
    }
    (void)jj_integer(v, &i);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    out->minus = i < 0;
    out->w[0] = (uint32_t)u, out->w[1] = (uint32_t)(u >> WORD);
    out->n = 2;
    trim(out);
}

bool jj_wide_int(const jj_wide *a, int64_t *out) {
    uint64_t u = (a->n > 0 ? a->w[0] : 0) | (uint64_t)(a->n > 1 ? a->w[1] : 0) << WORD;
    if (a->n > 2 || u > (uint64_t)INT64_MAX + a->minus) return false;
    *out = a->minus ? (int64_t)(0 - u) : (int64_t)u;
    return true;
}

size_t jj_big_bytes(const jj_wide *a) { return sizeof(jj_big) + a->n * sizeof a->w[0]; }

jj_val jj_big_put(const jj_wide *a, jj_big *buffer) {
    buffer->minus = a->minus;
    buffer->n = a->n;
    memcpy(buffer->w, a->w, a->n * sizeof a->w[0]);
    return (jj_val){JJ_BIG, {.big = buffer}};
}

ln_status jj_too_large(jj_run *r) { return jj_fail(r, "an integer of more than %d bits", JJ_BIG_BITS); }

ln_status jj_narrow(jj_run *r, const jj_wide *a, jj_val *out) {
    int64_t i;
    if (jj_wide_int(a, &i)) return *out = jj_int(i), LN_OK;
    if (bits_of(a) > JJ_BIG_BITS) return jj_too_large(r);
    jj_big *buffer = jj_take(r, jj_big_bytes(a));
    if (!buffer) return jj_nomem(r);
    *out = jj_big_put(a, buffer);
    return jj_spend(r, a->n);
}

/* ---- conversion from and to strings ---- */

bool jj_wide_read(jj_wide *out, const char *digits, size_t n, unsigned base) {
    *out = (jj_wide){.n = 0};
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)digits[i], low = c | 0x20;
        if (c == '_') continue;
        if (!mul_add(out, base, (uint32_t)(c <= '9' ? c - '0' : low - 'a' + 10))) return false;
    }
    return true;
}

static ln_status small_text(jj_run *r, int64_t i, unsigned base, bool *minus, const char **digits) {
    char *text = jj_take(r, 66);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    size_t at = 65;
    if (!text) return jj_nomem(r);
    do {
        text[--at] = "0123456789abcdef"[u % base];
        u /= base;
    } while (u > 0);
    *minus = i < 0;
    *digits = text + at;
    return LN_OK;
}

ln_status jj_int_text(jj_run *r, jj_val v, unsigned base, bool *minus, const char **digits) {
    jj_wide a;
    int64_t i;
    if (jj_integer(v, &i)) return small_text(r, i, base, minus, digits);
    jj_widen(v, &a);
    *minus = a.minus;
    LN_TRY(jj_spend(r, a.n * a.n));
    size_t cap = bits_of(&a) / (base == 2 ? 1 : 3) + 12, at = cap - 1;
    char *text = jj_take(r, cap);
    if (!text) return jj_nomem(r);
    const uint32_t step = base == 10  ? 1000000000u
                          : base == 8 ? 1u << 30
                                      : 1u << 28; /* the largest power of the base used per division */
    const int each = base == 10 ? 9 : base == 8 ? 10 : base == 16 ? 7 : 28;
    while (a.n > 0) {
        uint32_t rest = div_small(&a, step);
        for (int k = 0; k < each && (a.n > 0 || rest > 0); k++, rest /= base)
            text[--at] = "0123456789abcdef"[rest % base];
    }
    *digits = text + at;
    if (base == 10 && cap - 1 - at > JJ_BIG_DIGITS)
        return jj_fail(r, "an integer of more than %d digits", JJ_BIG_DIGITS);
    return LN_OK;
}

/* ---- floats ---- */

/* Rounds a * 2^-scale to the nearest double, ties to even. `sticky`: the exact value is slightly larger
 * than that. */
static double round_wide(const jj_wide *a, size_t scale, bool sticky) {
    jj_wide top = *a;
    int bits = (int)bits_of(a), exp = bits - (int)scale, keep = exp < -1021 ? 53 - (-1021 - exp) : 53;
    if (bits == 0 || keep < 0) return a->minus ? -0.0 : 0.0;
    if (exp > 1024) return a->minus ? -INFINITY : INFINITY;
    int cut = LN_MAX(bits - keep, 0);
    bool half = false;
    for (int i = 0; i < cut - 1 && !sticky; i++) sticky = a->w[i / WORD] >> (i % WORD) & 1;
    if (cut > 0) half = a->w[(cut - 1) / WORD] >> ((cut - 1) % WORD) & 1;
    shift_right(&top, (size_t)cut);
    uint64_t m = (top.n > 0 ? top.w[0] : 0) | (uint64_t)(top.n > 1 ? top.w[1] : 0) << WORD;
    if (half && (sticky || (m & 1))) m++;
    double v = ldexp((double)m, cut - (int)scale);
    return a->minus ? -v : v;
}

double jj_big_double(jj_val v) {
    jj_wide a;
    jj_widen(v, &a);
    return round_wide(&a, 0, false);
}

static void wide_of_double(double v, jj_wide *out) { /* the integer part of v */
    int exp;
    uint64_t m = (uint64_t)ldexp(frexp(fabs(v), &exp), 53);
    *out = (jj_wide){.minus = v < 0, .n = 2, .w = {(uint32_t)m, (uint32_t)(m >> WORD)}};
    trim(out);
    if (exp < 53) shift_right(out, (size_t)LN_MIN(53 - exp, 64));
    else shift_left(out, (size_t)(exp - 53));
}

ln_status jj_int_of_double(jj_run *r, double v, jj_val *out) {
    jj_wide a;
    if (isnan(v)) return jj_fail(r, "cannot convert float NaN to integer");
    if (isinf(v)) return jj_fail(r, "cannot convert float infinity to integer");
    wide_of_double(v, &a);
    return jj_narrow(r, &a, out);
}

int jj_big_order(jj_val a, jj_val b) {
    jj_wide x, y;
    if (a.kind == JJ_FLOAT || b.kind == JJ_FLOAT) {
        double f = a.kind == JJ_FLOAT ? a.u.f : b.u.f;
        if (isnan(f)) return 2;
        if (isinf(f)) return (f > 0) == (a.kind == JJ_FLOAT) ? 1 : -1;
    }
    if (a.kind == JJ_FLOAT) wide_of_double(a.u.f, &x);
    else jj_widen(a, &x);
    if (b.kind == JJ_FLOAT) wide_of_double(b.u.f, &y);
    else jj_widen(b, &y);
    /* One of the two is beyond 64 bits, so that a fraction of the float cannot change the order. */
    if (x.minus != y.minus) return x.minus ? -1 : 1;
    return x.minus ? -compare(&x, &y) : compare(&x, &y);
}

/* ---- operators ---- */

static ln_status floor_divide(jj_run *r, jj_wide *a, const jj_wide *b, bool want_rest, jj_val *out) {
    jj_wide q, one = {.n = 1, .w = {1}}, next;
    bool minus = a->minus != b->minus;
    LN_TRY(jj_spend(r, a->n * b->n));
    divide(a, b, &q);
    bool below = minus && a->n > 0;
    if (want_rest) {
        a->minus = b->minus && a->n > 0;
        if (!below) return jj_narrow(r, a, out);
        subtract(b, a, &next);
        next.minus = b->minus;
        trim(&next);
        return jj_narrow(r, &next, out);
    }
    q.minus = minus;
    trim(&q);
    if (!below) return jj_narrow(r, &q, out);
    add_signed(&q, &one, true, &next);
    return jj_narrow(r, &next, out);
}

static ln_status true_divide(jj_run *r, jj_wide *a, const jj_wide *divisor, jj_val *out) {
    jj_wide b = *divisor, q;
    bool minus = a->minus != b.minus;
    size_t have = bits_of(a), by = bits_of(&b), scale = 0;
    LN_TRY(jj_spend(r, a->n * b.n));
    if (have < by + 66) { /* ensure a quotient of at least 66 bits */
        scale = by + 66 - have;
        shift_left(a, scale);
    }
    divide(a, &b, &q);
    q.minus = minus; /* a zero keeps its sign, as in Python */
    double v = round_wide(&q, scale, a->n > 0);
    if (isinf(v)) return jj_fail(r, "integer division result too large for a float");
    *out = jj_float(v);
    return LN_OK;
}

static ln_status power(jj_run *r, jj_wide *base, const jj_wide *exponent, jj_val *out) {
    jj_wide v = {.n = 1, .w = {1}}, t;
    int64_t e;
    bool unit = base->n == 0 || (base->n == 1 && base->w[0] == 1);
    if (unit) { /* the base is 0, 1 or -1 */
        bool odd = exponent->n > 0 && (exponent->w[0] & 1);
        *out = jj_int(exponent->n == 0 ? 1 : base->n == 0 ? 0 : base->minus && odd ? -1 : 1);
        return LN_OK;
    }
    if (!jj_wide_int(exponent, &e)) return jj_too_large(r);
    for (; e > 0; e >>= 1) {
        LN_TRY(jj_spend(r, base->n * base->n + v.n * base->n));
        if (e & 1) {
            if (!multiply(&v, base, &t)) return jj_too_large(r);
            v = t;
        }
        if (e == 1) break;
        if (!multiply(base, base, &t)) return jj_too_large(r);
        *base = t;
    }
    return jj_narrow(r, &v, out);
}

ln_status jj_big_op(jj_run *r, jj_op op, jj_val left, jj_val right, jj_val *out) {
    jj_wide a, b, v;
    jj_widen(left, &a);
    jj_widen(right, &b);
    if (b.n == 0 && (op == JJ_DIV || op == JJ_FLOORDIV || op == JJ_MOD))
        return jj_fail(r, "division by zero");
    switch (op) {
    case JJ_ADD:
    case JJ_SUB: add_signed(&a, &b, b.minus != (op == JJ_SUB), &v); return jj_narrow(r, &v, out);
    case JJ_MUL:
        LN_TRY(jj_spend(r, a.n * b.n));
        return multiply(&a, &b, &v) ? jj_narrow(r, &v, out) : jj_too_large(r);
    case JJ_DIV: return true_divide(r, &a, &b, out);
    case JJ_FLOORDIV:
    case JJ_MOD: return floor_divide(r, &a, &b, op == JJ_MOD, out);
    default: return power(r, &a, &b, out); /* b >= 0 */
    }
}

ln_status jj_big_negative(jj_run *r, jj_val v, jj_val *out) {
    jj_wide a;
    jj_widen(v, &a);
    a.minus = !a.minus && a.n > 0;
    return jj_narrow(r, &a, out);
}

size_t jj_int_bits(jj_val v) {
    jj_wide a;
    jj_widen(v, &a);
    return bits_of(&a);
}
