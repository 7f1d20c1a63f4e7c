/* Multiples of a number, by what is left of the digits so far. */
#include "grammar_build.h"

#include <string.h>

enum { WHOLE_DIGITS = 18, EXACT_DIGITS = 15, MOST_SCALE = 6 };

/* x as digits * 10^-scale. */
static bool decimal_of(ln_grammar *g, double x, uint32_t *digits, int *scale) {
    ln_str s = {0};
    uint64_t all = 0;
    int64_t exponent = 0;
    int after = 0;
    bool seen = false, ok = x > 0;
    ln_str_double(&s, x);
    if (s.failed) return g->no_memory = true, false;
    const char *e = strchr(s.data, 'e');
    if (e) ok = ok && ln_parse_i64(e + 1 + (e[1] == '+'), strlen(e + 1 + (e[1] == '+')), &exponent);
    for (const char *p = s.data; ok && *p && p != e; p++) {
        if (*p == '.') {
            seen = true;
            continue;
        }
        ok = all < UINT64_C(100000000000000000);
        all = 10 * all + (uint64_t)(*p - '0');
        after += seen;
    }
    ln_str_free(&s);
    int64_t places = after - exponent;
    for (; all > 0 && all % 10 == 0 && places > 0; places--) all /= 10;
    for (; ok && places < 0 && all <= MOST_MULTIPLE; places++) all *= 10;
    *digits = (uint32_t)LN_MIN(all, UINT32_MAX);
    *scale = (int)LN_MIN(LN_MAX(places, 0), MOST_SCALE + 1);
    return ok && all > 0 && all <= MOST_MULTIPLE && *scale <= MOST_SCALE;
}

/* The digits that may follow where what is left is r: rest[r] after one digit less. */
static void prepend(ln_grammar *g, uint32_t of, const gr_node *ends, const gr_node *rest, gr_node *out) {
    for (uint32_t r = 0; r < of; r++) {
        out[r] = ends[r];
        for (uint32_t c = 10; c-- > 0;)
            out[r] =
                gr_alt(g, gr_seq(g, gr_byte_range(g, '0' + c, '0' + c), rest[(10 * r + c) % of]), out[r]);
    }
}

/* ends[r]: what may follow digits before the point, of which r is left: the end, or a point and up to `scale`
 * digits, after the last one `whole`. */
static bool find_ends(ln_grammar *g, uint32_t of, int scale, bool integer, gr_node whole, gr_node *ends) {
    gr_node *now = ln_alloc(of * sizeof *now), *later = ln_alloc(of * sizeof *later);
    const bool ok = now && later;
    if (!ok) g->no_memory = true;
    uint64_t power = 1;                                               /* what a missing digit multiplies by */
    for (int j = scale; ok && j >= 0; j--, power = power * 10 % of) { /* after j digits */
        for (uint32_t r = 0; r < of; r++)
            ends[r] = r * power % of != 0 ? GR_NOTHING : j == scale ? whole : GR_EMPTY;
        if (j == scale || integer) memcpy(later, ends, of * sizeof *later);
        else if (j > 0) prepend(g, of, ends, now, later);
        else
            for (uint32_t r = 0; r < of; r++) {
                gr_node digits = GR_NOTHING;
                for (uint32_t c = 10; c-- > 0;)
                    digits = gr_alt(g, gr_seq(g, gr_byte_range(g, '0' + c, '0' + c), now[(10 * r + c) % of]),
                                    digits);
                later[r] = gr_alt(g, ends[r], gr_seq(g, gr_texts(g, "."), digits));
            }
        gr_node *const t = now;
        now = later, later = t;
    }
    if (ok) memcpy(ends, now, of * sizeof *ends);
    ln_free(now);
    ln_free(later);
    return ok;
}

gr_node gr_multiples(ln_grammar *g, double step, bool integer, bool zeros, bool *fits) {
    uint32_t of;
    int scale;
    gr_node all = GR_NOTHING;
    *fits = decimal_of(g, step, &of, &scale);
    if (!*fits) return GR_NOTHING;
    gr_node *ends = ln_alloc(3 * (size_t)of * sizeof *ends), *rest = ends + of, *longer = rest + of;
    if (!ends) return g->no_memory = true, GR_NOTHING;
    const gr_node zero_digit = gr_byte_range(g, '0', '0');
    gr_node whole = GR_EMPTY; /* zeros that change nothing */
    if (zeros && !integer) whole = gr_repeat(g, zero_digit, 0, GR_UNBOUNDED);
    if (zeros && !integer && scale == 0)
        whole = gr_optional(g, gr_seq(g, gr_texts(g, "."), gr_repeat(g, zero_digit, 1, GR_UNBOUNDED)));
    if (find_ends(g, of, scale, integer, whole, ends)) {
        const gr_node zero = gr_seq(g, gr_texts(g, "0"), ends[0]);
        memcpy(rest, ends, of * sizeof *rest);
        const int most = scale > 0 ? EXACT_DIGITS - scale : WHOLE_DIGITS;
        for (int digits = 1; digits < most; digits++) {
            prepend(g, of, ends, rest, longer);
            memcpy(rest, longer, of * sizeof *rest);
        }
        for (uint32_t c = 10; c-- > 1;)
            all = gr_alt(g, gr_seq(g, gr_byte_range(g, '0' + c, '0' + c), rest[c % of]), all);
        all = gr_seq(g, gr_optional(g, gr_texts(g, "-")), gr_alt(g, zero, all));
    }
    ln_free(ends);
    return all;
}

gr_node gr_fractions(ln_grammar *g) {
    const gr_node digit = gr_byte_range(g, '0', '9'), some = gr_byte_range(g, '1', '9');
    const gr_node whole = gr_alt(g, gr_texts(g, "0"), gr_seq(g, some, gr_repeat(g, digit, 0, 6)));
    return gr_all(g, gr_optional(g, gr_texts(g, "-")), whole, gr_texts(g, "."), gr_repeat(g, digit, 0, 6),
                  some);
}
