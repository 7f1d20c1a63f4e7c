/* JSON numbers between bounds, digit by digit.
 *
 * A bound is followed along its digits: a digit that equals the bound's leaves the rest bounded, another one
 * on the right side of it leaves the rest free. */
#include "grammar_build.h"

#include <math.h>
#include <string.h>

enum { WHOLE_DIGITS = 18, FRACTION_DIGITS = 17, EXACT_DIGITS = 15 };
#define WHOLE_LIMIT UINT64_C(1000000000000000000) /* 10^WHOLE_DIGITS */
#define EXACT_LIMIT 9007199254740992.0            /* 2^53: integers below it are exact in a double */

static gr_node digits(ln_grammar *g, uint64_t lo, uint64_t hi) {
    return gr_byte_range(g, '0' + (unsigned)lo, '0' + (unsigned)hi);
}

/* ---- natural numbers ---- */

/* lo .. hi with leading zeros, of as many digits as `power`, the power of ten of their first digit, says. */
static gr_node padded(ln_grammar *g, uint64_t lo, uint64_t hi, uint64_t power) {
    if (power == 1) return digits(g, lo, hi);
    const uint64_t rest = power - 1;
    uint64_t first = lo / power, last = hi / power;
    if (first == last)
        return gr_seq(g, digits(g, first, first), padded(g, lo % power, hi % power, power / 10));
    gr_node all = GR_NOTHING;
    if (lo % power != 0) {
        all = gr_seq(g, digits(g, first, first), padded(g, lo % power, rest, power / 10));
        first++;
    }
    if (hi % power != rest) {
        all = gr_alt(g, all, gr_seq(g, digits(g, last, last), padded(g, 0, hi % power, power / 10)));
        last--;
    }
    if (first <= last)
        all = gr_alt(g, all, gr_seq(g, digits(g, first, last), padded(g, 0, rest, power / 10)));
    return all;
}

/* lo .. hi without leading zeros. */
static gr_node naturals(ln_grammar *g, uint64_t lo, uint64_t hi) {
    gr_node all = GR_NOTHING;
    for (uint64_t power = 1; power < WHOLE_LIMIT && lo <= hi; power *= 10) {
        const uint64_t from = LN_MAX(lo, power == 1 ? 0 : power), to = LN_MIN(hi, 10 * power - 1);
        if (from <= to) all = gr_alt(g, all, padded(g, from, to, power));
    }
    return all;
}

/* ---- bounds in decimal ---- */

typedef struct decimal {
    uint64_t whole;
    char fraction[FRACTION_DIGITS + 1]; /* digits 0 .. 9 as numbers; zeros follow */
    size_t n;                           /* of them */
    bool excluded;
} decimal;

/* The digits of the absolute value of x, as many as read back as the same double; false: they are too many.
 */
static bool decimal_of(ln_grammar *g, double x, bool excluded, decimal *out) {
    ln_str s = {0};
    *out = (decimal){.excluded = excluded};
    ln_str_double(&s, fabs(x));
    if (s.failed) return g->no_memory = true, false;
    const char *e = strchr(s.data, 'e');
    const size_t bytes = e ? (size_t)(e - s.data) : s.len;
    int64_t point = 0; /* digits before the point */
    char all[64];
    size_t n = 0;
    bool seen = false, ok = true;
    for (size_t i = 0; i < bytes && n < sizeof all; i++) {
        if (s.data[i] == '.') seen = true;
        else all[n++] = (char)(s.data[i] - '0'), point += !seen;
    }
    if (e) {
        int64_t shift = 0;
        const char *from = e + 1 + (e[1] == '+');
        ok = ln_parse_i64(from, strlen(from), &shift);
        point += shift;
    }
    while (n > 0 && all[n - 1] == 0 && (int64_t)n > point) n--;
    for (int64_t i = 0; ok && i < point; i++) {
        ok = out->whole < WHOLE_LIMIT / 10;
        out->whole = 10 * out->whole + (i < (int64_t)n ? (uint64_t)all[i] : 0);
    }
    for (int64_t i = point; ok && i < (int64_t)n; i++) {
        ok = out->n < FRACTION_DIGITS;
        if (ok) out->fraction[out->n++] = i < 0 ? 0 : all[i];
    }
    ln_str_free(&s);
    return ok;
}

/* ---- fractions ---- */

/* The bounds that still hold after some digits; NULL: none. At most `most` digits are written. */
typedef struct tight {
    const decimal *lo, *hi;
    size_t most;
} tight;

static unsigned digit_at(const decimal *d, size_t i) { return i < d->n ? (unsigned)d->fraction[i] : 0; }
static bool zeros_from(const decimal *d, size_t i) {
    for (; i < d->n; i++)
        if (d->fraction[i] != 0) return false;
    return true;
}

/* Whether the number may end before digit i. */
static bool may_end(tight t, size_t i) {
    if (t.lo && (!zeros_from(t.lo, i) || t.lo->excluded)) return false;
    return !(t.hi && zeros_from(t.hi, i) && t.hi->excluded);
}

static gr_node some_digits(ln_grammar *g, tight t, size_t i);
/* The digits from i on, perhaps none. */
static gr_node rest_of(ln_grammar *g, tight t, size_t i) {
    if (!t.lo && !t.hi) return gr_repeat(g, digits(g, 0, 9), 0, (uint32_t)(t.most - i));
    return gr_alt(g, may_end(t, i) ? GR_EMPTY : GR_NOTHING, some_digits(g, t, i));
}

/* At least one digit, from digit i on; each level is a call, at most FRACTION_DIGITS of them. */
static gr_node some_digits(ln_grammar *g, tight t, size_t i) {
    if (i >= t.most) return GR_NOTHING;
    const unsigned lo = t.lo ? digit_at(t.lo, i) : 0, hi = t.hi ? digit_at(t.hi, i) : 9;
    gr_node all = GR_NOTHING;
    for (unsigned c = lo; c <= hi;) {
        const tight after = {t.lo && c == lo ? t.lo : NULL, t.hi && c == hi ? t.hi : NULL, t.most};
        unsigned last = c;
        if (!after.lo && !after.hi) last = t.hi ? hi - 1 : hi;
        all = gr_alt(g, all, gr_seq(g, digits(g, c, last), rest_of(g, after, i + 1)));
        c = last + 1;
    }
    return all;
}

static gr_node with_fraction(ln_grammar *g, gr_node whole, tight t) {
    const gr_node point = gr_seq(g, gr_texts(g, "."), some_digits(g, t, 0));
    return gr_seq(g, whole, gr_alt(g, may_end(t, 0) ? GR_EMPTY : GR_NOTHING, point));
}

/* The most digits after the point that keep numbers apart from an excluded bound as doubles too: decimals of
 * up to EXACT_DIGITS significant digits are different doubles, and 0.99999999999999999 is 1. */
static size_t most_digits(const decimal *d) {
    size_t whole = 0, zeros = 0;
    if (!d || !d->excluded || (d->whole == 0 && zeros_from(d, 0))) return FRACTION_DIGITS;
    for (uint64_t w = d->whole; w > 0; w /= 10) whole++;
    while (whole == 0 && d->fraction[zeros] == 0) zeros++;
    return whole >= EXACT_DIGITS ? 0 : LN_MIN(EXACT_DIGITS - whole + zeros, (size_t)FRACTION_DIGITS);
}

/* Numbers lo .. hi, which are not negative; hi NULL: no bound. */
static gr_node positive(ln_grammar *g, const decimal *lo, const decimal *hi) {
    const size_t most = LN_MIN(most_digits(lo), most_digits(hi));
    if (hi && (lo->whole > hi->whole)) return GR_NOTHING;
    if (hi && lo->whole == hi->whole) {
        const int c = memcmp(lo->fraction, hi->fraction, sizeof lo->fraction); /* zeros follow the digits */
        if (c > 0 || (c == 0 && (lo->excluded || hi->excluded))) return GR_NOTHING;
        return with_fraction(g, naturals(g, lo->whole, lo->whole), (tight){lo, hi, most});
    }
    gr_node all = with_fraction(g, naturals(g, lo->whole, lo->whole), (tight){lo, NULL, most});
    const uint64_t last = hi ? hi->whole - 1 : WHOLE_LIMIT - 1;
    if (lo->whole < last)
        all = gr_alt(g, all, with_fraction(g, naturals(g, lo->whole + 1, last), (tight){NULL, NULL, most}));
    if (hi)
        all = gr_alt(g, all, with_fraction(g, naturals(g, hi->whole, hi->whole), (tight){NULL, hi, most}));
    return all;
}

/* ---- both signs ---- */

typedef gr_node between_fn(ln_grammar *g, const decimal *lo, const decimal *hi);

static gr_node whole_between(ln_grammar *g, const decimal *lo, const decimal *hi) {
    const uint64_t from = lo->whole + lo->excluded, to = hi ? hi->whole - hi->excluded : WHOLE_LIMIT - 1;
    return hi && hi->whole == 0 && hi->excluded ? GR_NOTHING : naturals(g, from, to);
}

/* Numbers within bounds, as those above zero and those below it. */
static gr_node between(ln_grammar *g, const gr_bounds *b, between_fn *fn, bool *fits) {
    decimal lo = {0}, hi = {0};
    gr_node all = GR_NOTHING;
    *fits = true;
    if (!b->has_hi || b->hi >= 0) {
        if (b->has_lo && b->lo >= 0) *fits = decimal_of(g, b->lo, b->above, &lo);
        if (b->has_hi) *fits = *fits && decimal_of(g, b->hi, b->below, &hi);
        if (*fits) all = fn(g, &lo, b->has_hi ? &hi : NULL);
    }
    if (*fits && (!b->has_lo || b->lo < 0)) {
        lo = (decimal){.excluded = true}; /* -0 is written without the sign */
        if (b->has_hi && b->hi < 0) *fits = decimal_of(g, -b->hi, b->below, &lo);
        if (b->has_lo) *fits = *fits && decimal_of(g, -b->lo, b->above, &hi);
        if (*fits) all = gr_alt(g, all, gr_seq(g, gr_texts(g, "-"), fn(g, &lo, b->has_lo ? &hi : NULL)));
    }
    *fits = *fits && all != GR_NOTHING;
    return all;
}

/* No number of 18 digits is excluded by bounds beyond them, such as those of 64-bit integers. */
static gr_bounds within_digits(const gr_bounds *b) {
    gr_bounds out = *b;
    out.has_lo = b->has_lo && b->lo > -(double)WHOLE_LIMIT;
    out.has_hi = b->has_hi && b->hi < (double)WHOLE_LIMIT;
    return out;
}

gr_node gr_numbers(ln_grammar *g, const gr_bounds *b, bool *fits) {
    const gr_bounds within = within_digits(b);
    return between(g, &within, positive, fits);
}

gr_node gr_integers(ln_grammar *g, const gr_bounds *b, bool *fits) {
    gr_bounds whole = within_digits(b);
    whole.lo = ceil(b->lo), whole.hi = floor(b->hi);
    whole.above = b->above && whole.lo == b->lo;
    whole.below = b->below && whole.hi == b->hi;
    *fits =
        !(whole.has_lo && fabs(whole.lo) > EXACT_LIMIT) && !(whole.has_hi && fabs(whole.hi) > EXACT_LIMIT);
    return *fits ? between(g, &whole, whole_between, fits) : GR_NOTHING;
}

/* ---- exponents ---- */

/* d, d.d... with at least one digit that is not 0 before the point, and an exponent of a sign; `any`: of both
 * signs. */
static gr_node scientific(ln_grammar *g, bool any) {
    const gr_node digit = digits(g, 0, 9), some = digits(g, 1, 9), minus = gr_texts(g, "-");
    const gr_node point = gr_seq(g, gr_texts(g, "."), gr_repeat(g, digit, 1, FRACTION_DIGITS));
    const gr_node zero = gr_optional(g, gr_texts(g, "0"));
    const gr_node below = gr_all(g, minus, zero, some, gr_optional(g, digit)); /* e-01 .. e-99 */
    const gr_node sign = gr_optional(g, gr_alt(g, minus, gr_texts(g, "+")));
    return gr_all(g, some, gr_optional(g, point), gr_alt(g, gr_texts(g, "e"), gr_texts(g, "E")),
                  any ? gr_seq(g, sign, gr_repeat(g, digit, 1, 2)) : below);
}

gr_node gr_exponents(ln_grammar *g, const gr_bounds *b) {
    gr_node all = GR_NOTHING;
    const bool above = !b->has_lo || b->lo <= 0, below = !b->has_hi || b->hi >= 0;
    if (above && (!b->has_hi || b->hi >= 1)) all = scientific(g, !b->has_hi);
    if (below && (!b->has_lo || b->lo <= -1))
        all = gr_alt(g, all, gr_seq(g, gr_texts(g, "-"), scientific(g, !b->has_lo)));
    return all;
}
