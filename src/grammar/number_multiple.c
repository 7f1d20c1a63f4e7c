/* Multiples of an integer: few are listed, and all of them are followed by what is left of the digits so far.
 */
#include "grammar_build.h"

#include <math.h>

enum { MOST_DIGITS = 18 };

/* The multiples from lo to hi. */
static gr_node listed(ln_grammar *g, int64_t of, int64_t lo, int64_t hi) {
    gr_span spans[MOST_LISTED];
    ln_str all = {0};
    size_t n = 0, at = 0;
    for (int64_t k = lo; k <= hi; k++) {
        const size_t from = all.len;
        ln_str_addf(&all, "%lld", (long long)(k * of));
        spans[n++].bytes = all.len - from;
    }
    gr_node out = GR_NOTHING;
    g->no_memory = g->no_memory || all.failed;
    if (!all.failed) {
        for (size_t i = 0; i < n; at += spans[i++].bytes) spans[i].text = all.data + at;
        out = gr_text_list(g, spans, n);
    }
    ln_str_free(&all);
    return out;
}

/* A multiple above 0. rest[r]: the digits that may follow digits whose number leaves r. */
static gr_node above_zero(ln_grammar *g, uint32_t of) {
    gr_node rest[MOST_MULTIPLE], longer[MOST_MULTIPLE], all = GR_NOTHING;
    for (uint32_t r = 0; r < of; r++) rest[r] = r == 0 ? GR_EMPTY : GR_NOTHING;
    for (int digits = 1; digits < MOST_DIGITS; digits++) {
        for (uint32_t r = 0; r < of; r++) {
            longer[r] = r == 0 ? GR_EMPTY : GR_NOTHING;
            for (uint32_t c = 10; c-- > 0;)
                longer[r] = gr_alt(g, gr_seq(g, gr_byte_range(g, '0' + c, '0' + c), rest[(10 * r + c) % of]),
                                   longer[r]);
        }
        for (uint32_t r = 0; r < of; r++) rest[r] = longer[r];
    }
    for (uint32_t c = 10; c-- > 1;)
        all = gr_alt(g, gr_seq(g, gr_byte_range(g, '0' + c, '0' + c), rest[c % of]), all);
    return all;
}

gr_node gr_multiples(ln_grammar *g, uint32_t of, const gr_bounds *b, bool *fits) {
    double lo = ceil(b->lo / of), hi = floor(b->hi / of);
    if (lo * of < b->lo || (b->above && lo * of == b->lo)) lo++; /* the quotient was rounded, or excluded */
    if (hi * of > b->hi || (b->below && hi * of == b->hi)) hi--;
    *fits = true;
    if (b->has_lo && b->has_hi) {
        *fits = lo <= hi && hi - lo < MOST_LISTED && fabs(lo) < 1e12 && fabs(hi) < 1e12;
        return *fits ? listed(g, of, (int64_t)lo, (int64_t)hi) : GR_NOTHING;
    }
    *fits = !b->has_hi && (!b->has_lo || lo == 0 || lo == 1);
    if (!*fits) return GR_NOTHING;
    const gr_node more = above_zero(g, of), zero = gr_texts(g, "0");
    if (b->has_lo) return lo == 0 ? gr_alt(g, zero, more) : more;
    return gr_alt(g, zero, gr_seq(g, gr_optional(g, gr_texts(g, "-")), more));
}
