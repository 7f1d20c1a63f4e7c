/* Deterministic automata over bytes; see automaton.h. */
#include "automaton.h"

#include "states.h"

#include <string.h>

void automaton_free(automaton *a) {
    ln_free(a->next);
    ln_free(a->labels);
    *a = (automaton){0};
}

static ln_status too_large(ln_error *err) {
    return ln_fail(err, LN_EINVALID,
                   "it needs more than %d states; use lower bounds of repetitions, or fewer alternatives",
                   MOST_AUTOMATON);
}

/* ---- of expressions ---- */

/* The states of the open `s`, all of which are found. */
static ln_status determine(automaton *out, gr_states *s, uint32_t first, ln_error *err) {
    const size_t k = s->g->n_classes;
    for (uint32_t q = 1; q < s->n_states && !s->no_memory && !s->full; q++)
        for (size_t c = 0; c < k; c++) (void)gr_step(s, q, s->g->example[c]);
    if (s->no_memory) return LN_OOM(err, "an automaton");
    if (s->full) return too_large(err);
    *out = (automaton){.n = (uint32_t)s->n_states, .start = first, .n_classes = (uint32_t)k};
    memcpy(out->class_of, s->g->class_of, sizeof out->class_of);
    out->next = ln_zalloc(s->n_states * k, sizeof *out->next);
    out->labels = ln_zalloc(s->n_states, sizeof *out->labels);
    if (!out->next || !out->labels) return LN_OOM(err, "an automaton");
    memcpy(out->next + k, s->next + k, (s->n_states - 1) * k * sizeof *out->next);
    for (size_t q = 1; q < s->n_states; q++) out->labels[q] = s->states[q].complete;
    return LN_OK;
}

ln_status automaton_of(automaton *out, ln_grammar *g, gr_node root, ln_error *err) {
    static const gr_limits most = {1 << 17, 1 << 18, MOST_AUTOMATON, 1 << 19, 1 << 20};
    gr_states s = {0};
    uint32_t first = 0;
    bool ends = true;
    *out = (automaton){0};
    LN_TRY(gr_check(g, err));
    LN_TRY(gr_find_heights(g, root, &ends, err));
    if (!ends) { /* no text */
        *out = (automaton){.n = 1,
                           .n_classes = 1,
                           .next = ln_zalloc(1, sizeof *out->next),
                           .labels = ln_zalloc(1, sizeof *out->labels)};
        if (out->next && out->labels) return LN_OK;
        automaton_free(out);
        return LN_OOM(err, "an automaton");
    }
    ln_status st = gr_finish(g, root, err);
    if (st == LN_OK) st = gr_states_open(&s, g, root, most, &first, err);
    if (st == LN_EINVALID) st = too_large(err);
    if (st == LN_OK) st = determine(out, &s, first, err);
    gr_states_close(&s);
    if (st == LN_OK) st = automaton_minimise(out, err);
    if (st != LN_OK) automaton_free(out);
    return st;
}

/* Takes the marks of a text's beginning and end away; see gr_marked_pattern. */
static ln_status strip_marks(automaton *a, ln_error *err) {
    const size_t k = a->n_classes, begin = a->class_of[GR_BEGIN], end = a->class_of[GR_FINISH];
    uint64_t *labels = ln_zalloc(a->n, sizeof *labels);
    if (!labels) return LN_OOM(err, "an automaton");
    a->start = a->next[a->start * k + begin];
    for (uint32_t q = 1; q < a->n; q++) {
        labels[q] = a->labels[a->next[q * k + end]]; /* state 0 has none */
        a->next[q * k + begin] = 0;
    }
    for (uint32_t q = 1; q < a->n; q++) a->next[q * k + end] = 0;
    ln_free(a->labels);
    a->labels = labels;
    return automaton_minimise(a, err);
}

ln_status automaton_of_marked(automaton *out, const char *pattern, size_t bytes, bool anchored,
                              ln_error *err) {
    ln_grammar *g = NULL;
    gr_node root;
    ln_status st = LN_OK;
    *out = (automaton){0};
    LN_GO(gr_begin(&g, err));
    LN_GO(gr_marked_pattern(g, pattern, bytes, anchored, &root, err));
    LN_GO(automaton_of(out, g, root, err));
    LN_GO(strip_marks(out, err));
out:
    ln_grammar_close(&g);
    if (st != LN_OK) automaton_free(out);
    return st;
}

ln_status automaton_of_all(automaton *out, ln_error *err) {
    static const gr_points every = {0, 0x10ffff};
    ln_grammar *g = NULL;
    ln_status st = LN_OK;
    *out = (automaton){0};
    LN_GO(gr_begin(&g, err));
    LN_GO(automaton_of(out, g, gr_repeat(g, gr_characters(g, &every, 1), 0, GR_UNBOUNDED), err));
out:
    ln_grammar_close(&g);
    return st;
}

ln_status automaton_of_text(automaton *out, const char *text, size_t bytes, ln_error *err) {
    ln_grammar *g = NULL;
    ln_status st = LN_OK;
    *out = (automaton){0};
    LN_GO(gr_begin(&g, err));
    LN_GO(automaton_of(out, g, gr_text(g, text, bytes), err));
out:
    ln_grammar_close(&g);
    return st;
}

uint64_t automaton_label(const automaton *a, const char *text, size_t bytes) {
    uint32_t q = a->start;
    for (size_t i = 0; i < bytes && q; i++)
        q = a->next[(size_t)q * a->n_classes + a->class_of[(unsigned char)text[i]]];
    return q ? a->labels[q] : 0;
}

/* ---- pairs of states ---- */

/* Pairs that were met, in that order; pair i is state i + 1. */
typedef struct pairs {
    uint64_t *pair;
    uint32_t *slots; /* number + 1; 0: free */
    uint32_t *next;  /* [n + 1, n_classes] */
    size_t n, cap, n_slots, n_classes, cap_next;
    bool no_memory, full;
} pairs;

static uint64_t hash_pair(uint64_t pair) { return (pair * UINT64_C(0x9e3779b97f4a7c15)) >> 32; }

/* Makes room for one more pair and its transitions. */
static bool make_room(pairs *p) {
    void *pair = p->pair, *next = p->next;
    const size_t had = p->cap_next;
    bool ok = ln_grow(&pair, &p->cap, p->n + 1, sizeof *p->pair, NULL) == LN_OK;
    ok = ln_grow(&next, &p->cap_next, (p->n + 2) * p->n_classes, sizeof *p->next, NULL) == LN_OK && ok;
    p->pair = pair, p->next = next;
    if (ok && p->cap_next > had) memset(p->next + had, 0, (p->cap_next - had) * sizeof *p->next);
    if (ok && 2 * (p->n + 1) > p->n_slots) {
        const size_t n_slots = p->n_slots ? 2 * p->n_slots : 256;
        uint32_t *slots = ln_zalloc(n_slots, sizeof *slots);
        for (size_t i = 0; slots && i < p->n; i++) {
            size_t at = hash_pair(p->pair[i]) & (n_slots - 1);
            while (slots[at]) at = (at + 1) & (n_slots - 1);
            slots[at] = (uint32_t)i + 1;
        }
        ok = slots != NULL;
        if (ok) ln_free(p->slots);
        if (ok) p->slots = slots, p->n_slots = n_slots;
    }
    p->no_memory = p->no_memory || !ok;
    return ok;
}
static void pairs_close(pairs *p) {
    ln_free(p->pair);
    ln_free(p->slots);
    ln_free(p->next);
}

/* The state of a pair; 0 where there is no room. */
static uint32_t pair_state(pairs *p, uint32_t a, uint32_t b) {
    const uint64_t pair = (uint64_t)a << 32 | b;
    if (!make_room(p)) return 0;
    size_t at = hash_pair(pair) & (p->n_slots - 1);
    for (; p->slots[at]; at = (at + 1) & (p->n_slots - 1))
        if (p->pair[p->slots[at] - 1] == pair) return p->slots[at];
    if (p->n + 1 >= MOST_AUTOMATON) return p->full = true, 0;
    p->pair[p->n++] = pair;
    return p->slots[at] = (uint32_t)p->n;
}

/* Classes of bytes that are alike in both; class c is example[c] of them. */
static uint32_t common_classes(const automaton *a, const automaton *b, uint8_t class_of[256],
                               uint8_t example[256]) {
    uint32_t n = 0;
    for (unsigned c = 0; c < 256; c++) {
        uint32_t k = 0;
        while (k < n &&
               (a->class_of[example[k]] != a->class_of[c] || b->class_of[example[k]] != b->class_of[c]))
            k++;
        if (k == n) example[n++] = (uint8_t)c;
        class_of[c] = (uint8_t)k;
    }
    return n;
}

static uint64_t joined_label(uint64_t x, uint64_t y, automaton_join how) {
    if (how == AUTOMATON_AND) return x && y ? x | y : 0;
    return how == AUTOMATON_MINUS ? (y ? 0 : x) : x | y;
}

ln_status automaton_combine(automaton *a, const automaton *b, automaton_join how, ln_error *err) {
    automaton out = {0};
    uint8_t example[256];
    ln_status st = LN_OK;
    out.n_classes = common_classes(a, b, out.class_of, example);
    pairs p = {.n_classes = out.n_classes};
    (void)make_room(&p);
    if (a->start || (b->start && how == AUTOMATON_OR)) out.start = pair_state(&p, a->start, b->start);
    for (size_t i = 0; i < p.n && !p.full && !p.no_memory; i++) {
        const uint32_t x = (uint32_t)(p.pair[i] >> 32), y = (uint32_t)p.pair[i];
        for (uint32_t c = 0; c < out.n_classes; c++) {
            const uint32_t to_a = a->next[(size_t)x * a->n_classes + a->class_of[example[c]]],
                           to_b = b->next[(size_t)y * b->n_classes + b->class_of[example[c]]];
            if ((how == AUTOMATON_AND && to_b == 0) || (to_a == 0 && (how != AUTOMATON_OR || to_b == 0)))
                continue;
            const uint32_t to = pair_state(&p, to_a, to_b);
            p.next[(i + 1) * out.n_classes + c] = to;
        }
    }
    if (p.full) LN_GO(too_large(err));
    if (p.no_memory) LN_GO(LN_OOM(err, "an automaton"));
    out.n = (uint32_t)p.n + 1;
    out.next = p.next, p.next = NULL;
    out.labels = ln_zalloc(out.n, sizeof *out.labels);
    if (!out.labels) LN_GO(LN_OOM(err, "an automaton"));
    for (size_t i = 0; i < p.n; i++)
        out.labels[i + 1] = joined_label(a->labels[p.pair[i] >> 32], b->labels[(uint32_t)p.pair[i]], how);
    LN_GO(automaton_minimise(&out, err));
    automaton_free(a);
    *a = out;
    out = (automaton){0};
out:
    automaton_free(&out);
    pairs_close(&p);
    return st;
}

/* ---- lengths ---- */

/* Pairs of a state and the characters so far, which beyond `min` count as min where max is unbounded. */
static ln_status with_lengths(const automaton *a, uint32_t min, uint32_t max, automaton *out, bool *full,
                              ln_error *err) {
    ln_status st = LN_OK;
    const size_t k = a->n_classes;
    pairs p = {.n_classes = k};
    uint8_t example[256] = {0};
    *out = (automaton){.n_classes = a->n_classes};
    memcpy(out->class_of, a->class_of, sizeof out->class_of);
    for (unsigned c = 256; c-- > 0;) example[a->class_of[c]] = (uint8_t)c;
    (void)make_room(&p);
    if (a->start) out->start = pair_state(&p, a->start, 0);
    for (size_t i = 0; i < p.n && !p.full && !p.no_memory; i++) {
        const uint32_t q = (uint32_t)(p.pair[i] >> 32), n = (uint32_t)p.pair[i];
        for (size_t c = 0; c < k; c++) {
            const uint32_t to = a->next[q * k + c];
            const bool begins = (example[c] & 0xc0) != 0x80; /* a character, not its continuation */
            if (to == 0 || (begins && n == max)) continue;
            const uint32_t more = n + begins;
            const uint32_t state = pair_state(&p, to, max == GR_UNBOUNDED ? LN_MIN(more, min) : more);
            p.next[(i + 1) * k + c] = state;
        }
    }
    *full = p.full;
    if (p.no_memory) LN_GO(LN_OOM(err, "an automaton"));
    if (p.full) goto out;
    out->n = (uint32_t)p.n + 1;
    out->next = p.next, p.next = NULL;
    out->labels = ln_zalloc(out->n, sizeof *out->labels);
    if (!out->labels) LN_GO(LN_OOM(err, "an automaton"));
    for (size_t i = 0; i < p.n; i++)
        if ((uint32_t)p.pair[i] >= min) out->labels[i + 1] = a->labels[p.pair[i] >> 32];
    st = automaton_minimise(out, err);
out:
    if (st != LN_OK || *full) automaton_free(out);
    pairs_close(&p);
    return st;
}

ln_status automaton_limit(automaton *a, uint32_t min, uint32_t max, ln_error *err) {
    automaton out;
    bool full;
    if (min == 0 && max == GR_UNBOUNDED) return LN_OK;
    LN_TRY(with_lengths(a, min, max, &out, &full, err));
    if (full) return too_large(err);
    automaton_free(a);
    *a = out;
    return LN_OK;
}

/* ---- as expressions ---- */

/* The escapes of sets of characters that were needed. */
enum { N_ESCAPES = 16 };
typedef struct spelling {
    ln_grammar *g;
    gr_spelling how;
    struct {
        uint64_t set[2];
        gr_node node;
    } escapes[N_ESCAPES];
    size_t n;
} spelling;

static gr_node escapes_of(spelling *s, const uint64_t set[2]) {
    for (size_t i = 0; i < LN_MIN(s->n, N_ESCAPES); i++)
        if (s->escapes[i].set[0] == set[0] && s->escapes[i].set[1] == set[1]) return s->escapes[i].node;
    const size_t i = s->n++ % N_ESCAPES;
    s->escapes[i].set[0] = set[0], s->escapes[i].set[1] = set[1];
    return s->escapes[i].node = gr_escapes(s->g, set);
}

/* One byte of a set in a spelling: in a JSON string some are escaped. */
static gr_node spelt_byte(spelling *s, const gr_bytes *set) {
    static const uint64_t mask[2] = {UINT64_C(0xffffffff) | UINT64_C(1) << '"', UINT64_C(1) << ('\\' - 64)};
    gr_bytes plain = *set;
    if (s->how == GR_RAW) return gr_set(s->g, set);
    const uint64_t escaped[2] = {set->bits[0] & mask[0], set->bits[1] & mask[1]};
    plain.bits[0] &= ~mask[0], plain.bits[1] &= ~mask[1];
    return gr_alt(s->g, gr_set(s->g, &plain), escaped[0] || escaped[1] ? escapes_of(s, escaped) : GR_NOTHING);
}

/* What follows in state q: a byte and a next state, or the end. */
static gr_node body_of(spelling *s, const automaton *a, uint32_t q, const gr_node *rules, gr_node tail) {
    const size_t k = a->n_classes;
    bool done[256] = {false};
    gr_node all = tail;
    for (unsigned c = 256; c-- > 0;) {
        const uint32_t to = a->next[q * k + a->class_of[c]];
        gr_bytes set = {{0}};
        if (to == 0 || done[a->class_of[c]]) continue;
        for (unsigned d = 0; d < 256; d++)
            if (a->next[q * k + a->class_of[d]] == to) {
                set.bits[d / 64] |= UINT64_C(1) << (d % 64);
                done[a->class_of[d]] = true;
            }
        all = gr_alt(s->g, gr_seq(s->g, spelt_byte(s, &set), rules[to]), all);
    }
    return all;
}

static void set_free_chars(ln_grammar *g, const automaton *a, const gr_node *rules) {
    uint32_t *free_chars = ln_zalloc(a->n, sizeof *free_chars);
    if (g->no_memory || g->too_large || !free_chars || !automaton_free_chars(a, free_chars)) {
        g->no_memory = g->no_memory || !g->too_large;
        ln_free(free_chars);
        return;
    }
    for (uint32_t q = 1; q < a->n; q++) g->exprs[rules[q]].free_chars = free_chars[q];
    ln_free(free_chars);
}

gr_node automaton_expression(ln_grammar *g, const automaton *a, gr_spelling how, automaton_tail *tail,
                             void *context) {
    if (automaton_is_empty(a)) return GR_NOTHING;
    spelling s = {.g = g, .how = how};
    gr_node *rules = ln_alloc(a->n * sizeof *rules);
    if (!rules) return g->no_memory = true, GR_NOTHING;
    for (uint32_t q = 1; q < a->n; q++) rules[q] = gr_rule(g);
    for (uint32_t q = 1; q < a->n && !g->no_memory && !g->too_large; q++) {
        const uint64_t label = a->labels[q];
        const gr_node end = label == 0 ? GR_NOTHING : tail ? tail(context, label) : GR_EMPTY;
        gr_define(g, rules[q], body_of(&s, a, q, rules, end));
    }
    const gr_node first = rules[a->start];
    if (!tail) set_free_chars(g, a, rules); /* a tail may close states that lead to it alone */
    ln_free(rules);
    return first;
}
