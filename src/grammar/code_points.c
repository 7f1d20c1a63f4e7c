/* Ranges of code points as UTF-8. */
#include "grammar_build.h"

/* Code points lo .. hi that differ in the bits below 6 * k, of which k continuation bytes follow; `lead` has
 * the marking bits of the first byte. */
static gr_node follow(ln_grammar *g, uint32_t lo, uint32_t hi, int k, unsigned lead) {
    if (k == 0) return gr_byte_range(g, lead | lo, lead | hi);
    const uint32_t rest = (UINT32_C(1) << (6 * k)) - 1;
    uint32_t first = lo >> (6 * k), last = hi >> (6 * k);
    if (first == last)
        return gr_seq(g, gr_byte_range(g, lead | first, lead | first),
                      follow(g, lo & rest, hi & rest, k - 1, 0x80));
    gr_node all = GR_NOTHING;
    if ((lo & rest) != 0) {
        all =
            gr_seq(g, gr_byte_range(g, lead | first, lead | first), follow(g, lo & rest, rest, k - 1, 0x80));
        first++;
    }
    if ((hi & rest) != rest) {
        all = gr_alt(g, all,
                     gr_seq(g, gr_byte_range(g, lead | last, lead | last),
                            follow(g, 0, hi & rest, k - 1, 0x80)));
        last--;
    }
    if (first <= last)
        all = gr_alt(g, all,
                     gr_seq(g, gr_byte_range(g, lead | first, lead | last), follow(g, 0, rest, k - 1, 0x80)));
    return all;
}

gr_node gr_characters(ln_grammar *g, const gr_points *ranges, size_t n) {
    static const struct {
        uint32_t lo, hi;
        int k;
        unsigned lead;
    } lengths[] = {{0, 0x7f, 0, 0},
                   {0x80, 0x7ff, 1, 0xc0},
                   {0x800, 0xd7ff, 2, 0xe0},
                   {0xe000, 0xffff, 2, 0xe0},
                   {0x10000, 0x10ffff, 3, 0xf0}};
    gr_node all = GR_NOTHING;
    gr_bytes ascii = {{0}};
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < LN_COUNT(lengths); l++) {
            const uint32_t lo = LN_MAX(ranges[i].lo, lengths[l].lo), hi = LN_MIN(ranges[i].hi, lengths[l].hi);
            if (lo > hi) continue;
            for (uint32_t c = lo; l == 0 && c <= hi; c++) ascii.bits[c / 64] |= UINT64_C(1) << (c % 64);
            if (l > 0) all = gr_alt(g, all, follow(g, lo, hi, lengths[l].k, lengths[l].lead));
        }
    return gr_alt(g, gr_set(g, &ascii), all);
}
