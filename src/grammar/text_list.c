/* One of many texts: sorted, with what neighbours have in common written once, so that a state of a matcher
 * holds at most one expression for each byte that may follow. */
#include "grammar_build.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BRANCHES = 256 };

static int by_bytes(const void *a, const void *b) {
    const gr_span *x = a, *y = b;
    const size_t n = LN_MIN(x->bytes, y->bytes);
    const int c = n > 0 ? memcmp(x->text, y->text, n) : 0;
    return c != 0 ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static size_t common(const gr_span *a, const gr_span *b) {
    const size_t most = LN_MIN(a->bytes, b->bytes);
    size_t n = 0;
    while (n < most && a->text[n] == b->text[n]) n++;
    return n;
}

/* The rests from byte `at` on of n sorted texts, which agree before it. Each place where they part is a call,
 * at most MOST_BRANCHES of them; texts that part more often are alternatives. */
static gr_node rests(ln_grammar *g, const gr_span *s, size_t n, size_t at, int depth) {
    gr_node all = GR_NOTHING;
    if (n == 1) return gr_text(g, s->text + at, s->bytes - at);
    if (depth == MOST_BRANCHES) {
        for (size_t i = n; i-- > 0;) all = gr_alt(g, gr_text(g, s[i].text + at, s[i].bytes - at), all);
        return all;
    }
    const size_t to = common(&s[0], &s[n - 1]); /* of all: they are sorted */
    for (size_t end = n; end > 0;) {
        size_t first = end - 1;
        if (s[first].bytes == to) { /* the texts that end here stand first */
            all = gr_alt(g, GR_EMPTY, all);
            break;
        }
        while (first > 0 && s[first - 1].bytes > to && s[first - 1].text[to] == s[end - 1].text[to]) first--;
        all = gr_alt(g, rests(g, s + first, end - first, to, depth + 1), all);
        end = first;
    }
    return gr_seq(g, gr_text(g, s->text + at, to - at), all);
}

gr_node gr_text_list(ln_grammar *g, gr_span *texts, size_t n) {
    if (n == 0) return GR_NOTHING;
    qsort(texts, n, sizeof *texts, by_bytes);
    return rests(g, texts, n, 0, 0);
}
