/* Conversion of numbers to and from text, strict and independent of the locale.
 *
 * Reading a double: at most 19 digits and a power of ten up to 10^27 are exact in 128-bit integers, which
 * covers what people and programs write. Any other decimal is compared, in big integers, with midpoints
 * between two neighbouring doubles, in a binary search over the bit patterns of the doubles (which are
 * ordered like their values). The search starts within a few doubles of an estimate, so that a document full
 * of long numbers is read in a time proportional to its length.
 *
 * Writing a double: 15 digits if they read back, else 16, else 17. Subnormals may need fewer than 15 and are
 * tried from one digit up. */
#include "c_locale.h"

#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

bool ln_parse_u64(const char *s, size_t bytes, uint64_t *out) {
    if (bytes == 0 || (s[0] == '0' && bytes > 1)) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

bool ln_parse_i64(const char *s, size_t bytes, int64_t *out) {
    uint64_t v;
    bool minus = bytes > 0 && s[0] == '-';
    if (!ln_parse_u64(s + minus, bytes - minus, &v) || v > (uint64_t)INT64_MAX + minus) return false;
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

/* ---- decimal to double ---- */

enum {
    MAX_DIGITS = 780
}; /* midpoints of doubles have at most 767 significant digits: any further digit only breaks a tie */

typedef struct decimal {
    uint8_t digit[MAX_DIGITS + 1];
    int n;         /* digits kept, without leading zeros */
    int64_t exp10; /* value = digits as an integer, times 10^exp10 */
    bool minus;
} decimal;

static void take_digit(decimal *d, int c, bool after_point) {
    if (c == '0' && d->n == 0) { /* a leading zero only moves the decimal point */
        d->exp10 -= after_point;
        return;
    }
    if (d->n < MAX_DIGITS) {
        d->digit[d->n++] = (uint8_t)(c - '0');
        d->exp10 -= after_point;
        return;
    }
    d->exp10 += !after_point;
    if (c != '0')
        d->digit[MAX_DIGITS - 1] |=
            1; /* sticky digit: the last digit of a midpoint is 0 or 5, and both become odd */
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Parses JSON's number grammar. */
static bool scan_decimal(decimal *d, const char *s, size_t bytes) {
    size_t i = 0;
    *d = (decimal){0};
    if (i < bytes && s[i] == '-') {
        d->minus = true;
        i++;
    }
    if (i >= bytes || !is_digit(s[i]) || (s[i] == '0' && i + 1 < bytes && is_digit(s[i + 1]))) return false;
    for (; i < bytes && is_digit(s[i]); i++) take_digit(d, s[i], false);
    if (i < bytes && s[i] == '.') {
        if (++i >= bytes || !is_digit(s[i])) return false;
        for (; i < bytes && is_digit(s[i]); i++) take_digit(d, s[i], true);
    }
    if (i < bytes && (s[i] | 0x20) == 'e') {
        i++;
        bool minus = i < bytes && s[i] == '-';
        if (i < bytes && (s[i] == '-' || s[i] == '+')) i++;
        if (i >= bytes || !is_digit(s[i])) return false;
        int64_t e = 0;
        for (; i < bytes && is_digit(s[i]); i++)
            if (e < 100000000) e = e * 10 + (s[i] - '0');
        d->exp10 += minus ? -e : e;
    }
    while (d->n > 0 && d->digit[d->n - 1] == 0) { /* drop trailing zeros */
        d->n--;
        d->exp10++;
    }
    return i == bytes;
}

static double from_bits(uint64_t u) {
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* Rounds q * 2^e2 to nearest even; q != 0, `sticky`: nonzero bits follow below q. For results in the normal
 * range only. */
static double round_u128(u128 q, int e2, bool sticky) {
    uint64_t hi = (uint64_t)(q >> 64);
    int bits = hi ? 128 - __builtin_clzll(hi) : 64 - __builtin_clzll((uint64_t)q);
    int cut = bits - 53;
    uint64_t m;
    if (cut <= 0) {
        m = (uint64_t)q << -cut;
    } else {
        u128 rest = q & (((u128)1 << cut) - 1), half = (u128)1 << (cut - 1);
        m = (uint64_t)(q >> cut);
        if (rest > half || (rest == half && (sticky || (m & 1)))) m++;
    }
    int e = e2 + cut + 52 + 1023; /* biased exponent of m's top bit */
    if (m >> 53) {
        m >>= 1;
        e++;
    }
    return from_bits((uint64_t)e << 52 | (m & 0xfffffffffffffULL));
}

static bool quick(const decimal *d, double *out) {
    if (d->n > 19 || d->exp10 > 27 || d->exp10 < -27) return false;
    uint64_t w = 0, five = 1;
    for (int i = 0; i < d->n; i++) w = w * 10 + d->digit[i]; /* 19 digits fit */
    int e = (int)d->exp10, k = e < 0 ? -e : e;
    for (int i = 0; i < k; i++) five *= 5; /* 5^27 < 2^63 */
    if (e >= 0) {
        *out = round_u128((u128)w * five, e, false);
    } else {
        int up = 64 + __builtin_clzll(w);
        u128 num = (u128)w << up; /* top bit set; the quotient keeps at least 65 bits */
        *out = round_u128(num / five, -up - k, num % five != 0);
    }
    return true;
}

/* A natural number in 32-bit words, least significant first; the callers' ranges keep it below 6,100 bits. */
typedef struct big {
    uint32_t w[200];
    int n;
} big;

static void big_muladd(big *b, uint32_t mul, uint32_t add) {
    uint64_t carry = add;
    for (int i = 0; i < b->n; i++) {
        carry += (uint64_t)b->w[i] * mul;
        b->w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) b->w[b->n++] = (uint32_t)carry;
}

static void big_pow5(big *b, int k) {
    for (; k >= 13; k -= 13) big_muladd(b, 1220703125u, 0); /* 5^13 */
    for (; k > 0; k--) big_muladd(b, 5, 0);
}

static void big_shift(big *b, int k) {
    int words = k / 32, bits = k % 32;
    if (bits) big_muladd(b, 1u << bits, 0);
    if (words == 0 || b->n == 0) return;
    memmove(b->w + words, b->w, (size_t)b->n * sizeof b->w[0]);
    memset(b->w, 0, (size_t)words * sizeof b->w[0]);
    b->n += words;
}

static int big_cmp(const big *a, const big *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->w[i] != b->w[i]) return a->w[i] < b->w[i] ? -1 : 1;
    return 0;
}

/* Compares the decimal with the midpoint between the doubles with bit patterns u and u + 1. */
static int cmp_midpoint(const decimal *d, uint64_t u) {
    uint64_t m = u & 0xfffffffffffffULL;
    int e = (int)(u >> 52), e10 = (int)d->exp10;
    if (e) m |= 1ULL << 52;
    else e = 1;
    int q = e - 1075 - 1; /* midpoint = (2m + 1) * 2^q */
    big left = {.n = 0}, right = {.n = 0};
    for (int i = 0; i < d->n;) { /* nine digits at a time */
        uint32_t digits = 0, power = 1;
        for (int k = 0; k < 9 && i < d->n; k++, power *= 10) digits = digits * 10 + d->digit[i++];
        big_muladd(&left, power, digits);
    }
    right.w[0] = (uint32_t)(2 * m + 1);
    right.w[1] = (uint32_t)((2 * m + 1) >> 32);
    right.n = right.w[1] ? 2 : 1;
    if (e10 >= 0) big_pow5(&left, e10);
    else big_pow5(&right, -e10);
    if (e10 >= q) big_shift(&left, e10 - q);
    else big_shift(&right, q - e10);
    return big_cmp(&left, &right);
}

static const uint64_t LARGEST = 0x7fefffffffffffffULL; /* the bit pattern of the largest finite double */

/* Narrows the range of the result to a few doubles around the product of the first 19 digits and a power of
 * ten. False, with lo and hi unchanged, when the result is not in there: then the product underflows or
 * overflows, near the ends of the range of doubles. */
static bool near_estimate(const decimal *d, uint64_t *lo, uint64_t *hi) {
    enum { AROUND = 64 }; /* the product is off by about 20 roundings and the dropped digits */
    double v = 0, power = 10;
    int n = LN_MIN(d->n, 19);
    int64_t e = d->exp10 + d->n - n, k = e < 0 ? -e : e;
    uint64_t u;
    for (int i = 0; i < n; i++) v = v * 10 + d->digit[i];
    for (; k > 0; k >>= 1, power *= power)
        if (k & 1) v = e < 0 ? v / power : v * power;
    memcpy(&u, &v, sizeof u);
    if (u <= AROUND || u >= LARGEST - AROUND) return false;
    if (cmp_midpoint(d, u - AROUND) <= 0 || cmp_midpoint(d, u + AROUND) >= 0) return false;
    *lo = u - AROUND;
    *hi = u + AROUND;
    return true;
}

static bool slow(const decimal *d, double *out) {
    int64_t top = d->exp10 + d->n; /* value < 10^top */
    if (top > 309) return false;
    if (top < -324) {
        *out = 0;
        return true;
    }
    uint64_t lo = 0, hi = LARGEST; /* the result is in [lo, hi], or beyond: overflow */
    if (!near_estimate(d, &lo, &hi) && cmp_midpoint(d, hi) >= 0) return false;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int c = cmp_midpoint(d, mid);
        if (c < 0 || (c == 0 && (mid & 1) == 0)) hi = mid;
        else lo = mid + 1;
    }
    *out = from_bits(lo);
    return true;
}

bool ln_parse_f64(const char *s, size_t bytes, double *out) {
    decimal d;
    double v = 0;
    if (!scan_decimal(&d, s, bytes)) return false;
    if (d.n > 0 && !quick(&d, &v) && !slow(&d, &v)) return false;
    *out = d.minus ? -v : v;
    return true;
}

/* ---- double to decimal ---- */

/* Writes the digits of v > 0 rounded to n digits; returns the decimal exponent of the first digit. */
static int digits_of(double v, int n, char digit[24]) {
    char text[40];
    (void)ln_snprintf(text, sizeof text, "%.*e", n - 1, v);
    int at = 0, exp = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (is_digit(*p)) digit[at++] = *p;
    bool minus = *p && p[1] == '-';
    for (p += *p ? 2 : 0; is_digit(*p); p++) exp = exp * 10 + (*p - '0');
    return minus ? -exp : exp;
}

static bool reads_back(const char *digit, int n, int exp, double v) {
    char text[48];
    double back;
    int len = snprintf(text, sizeof text, "%.*se%d", n, digit, exp - (n - 1));
    return ln_parse_f64(text, (size_t)len, &back) && back == v;
}

/* The fewest digits that read back as v; returns their count. Just above a power of two the nearest 16 digits
 * may not read back although the next larger ones do. */
static int shortest(double v, char digit[24], int *exp) {
    for (int n = v < 2.3e-308 ? 1 : 15; n < 17; n++) {
        *exp = digits_of(v, n, digit);
        if (n > 1 && digit[0] == '0') continue;
        if (reads_back(digit, n, *exp, v)) return n;
        if (digit[n - 1] < '9') {
            digit[n - 1]++;
            if (reads_back(digit, n, *exp, v)) return n;
        }
    }
    *exp = digits_of(v, 17, digit);
    return 17;
}

/* Writes the n digits of d; `digit` has no NUL. */
static void put_digits(uint64_t d, int n, char digit[24]) {
    while (n-- > 0) digit[n] = (char)('0' + d % 10), d /= 10;
}

/* Stores the same digits as shortest() for 1e-9 <= v < 1e14, in integers of 128 bits, in which every product
 * is exact. v is m 2^e, and v 10^k is m 5^k 2^(e + k). Returns 0 if v is a power of two or rounds up to a
 * power of ten, whose neighbours are not alike. */
static int shortest_in_integers(double v, char digit[24], int *exp) {
    static const uint64_t tens[] = {100000000000000, 1000000000000000, 10000000000000000, 100000000000000000};
    uint64_t bits, m, fives[28] = {1};
    memcpy(&bits, &v, sizeof v);
    const int e = (int)(bits >> 52) - 1075;
    m = (bits & ((1ull << 52) - 1)) | 1ull << 52;
    if (m == 1ull << 52) return 0;
    for (int i = 1; i < 28; i++) fives[i] = fives[i - 1] * 5;
    int first = (e + 52) * 1233 / 4096 - 1; /* at most log10(v), and at least that less 2 */
    while (first < 13 && (u128)m * fives[15 - first] >> -(e + 15 - first) >= tens[2]) first++;
    for (int n = 15; n <= 17; n++) {
        const int k = n - 1 - first, t = -(e + k);
        const u128 five = fives[k], all = m * five, rest = all & (((u128)1 << t) - 1),
                   half = (u128)1 << (t - 1);
        uint64_t d = (uint64_t)(all >> t);
        d += rest > half || (rest == half && d & 1);
        if (d >= tens[n - 14]) return 0;
        for (int more = 0; more < 2; more++) {
            const u128 at = (u128)(d + (uint64_t)more) << (t + 1);
            const u128 low = (2 * m - 1) * five, high = (2 * m + 1) * five;
            if (more && d % 10 == 9) break;
            if (n < 17 && !(m & 1 ? at > low && at < high : at >= low && at <= high)) continue;
            put_digits(d + (uint64_t)more, n, digit);
            *exp = first;
            return n;
        }
    }
    return 0;
}

void ln_str_double(ln_str *s, double v) {
    if (v != v || v - v != 0) {
        ln_str_adds(s, "null");
        return;
    }
    if (v == 0) {
        ln_str_adds(s, __builtin_signbit(v) ? "-0.0" : "0");
        return;
    }
    if (v < 0) {
        ln_str_add(s, "-", 1);
        v = -v;
    }
    char digit[24];
    int exp = 0, n = v >= 1e-9 && v < 1e14 ? shortest_in_integers(v, digit, &exp) : 0;
    if (n == 0) n = shortest(v, digit, &exp);
    while (n > 1 && digit[n - 1] == '0') n--;
    if (exp >= -5 && exp < 17) {
        if (exp < 0) ln_str_add(s, "0.0000", (size_t)(1 - exp));
        ln_str_add(s, digit, (size_t)(exp < 0 ? n : LN_MIN(n, exp + 1)));
        for (int i = n; i <= exp; i++) ln_str_add(s, "0", 1);
        if (exp >= 0 && n > exp + 1) {
            ln_str_add(s, ".", 1);
            ln_str_add(s, digit + exp + 1, (size_t)(n - exp - 1));
        }
        return;
    }
    ln_str_add(s, digit, 1);
    if (n > 1) {
        ln_str_add(s, ".", 1);
        ln_str_add(s, digit + 1, (size_t)(n - 1));
    }
    ln_str_addf(s, "e%d", exp);
}

const char *ln_bytes_text(char buf[32], uint64_t bytes) {
    static const struct {
        uint64_t from, part; /* unit of the last digit shown */
        unsigned parts;      /* such parts per unit */
        const char *unit;
    } forms[] = {{1000000000, 10000000, 100, "GB"}, {1000000, 100000, 10, "MB"}, {0, 100, 10, "kB"}};
    size_t f = 0;
    while (bytes < forms[f].from) f++;
    uint64_t n = bytes / forms[f].part + (bytes % forms[f].part * 2 >= forms[f].part);
    (void)snprintf(buf, 32, forms[f].parts == 100 ? "%llu.%02llu %s" : "%llu.%llu %s",
                   (unsigned long long)(n / forms[f].parts), (unsigned long long)(n % forms[f].parts),
                   forms[f].unit);
    return buf;
}
