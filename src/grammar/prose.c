/* Free text with marks in it: text that has none of them, and text in which each is followed by an
 * expression.
 *
 * The marks make an automaton (Aho and Corasick's): a state says how much of a mark the text ends with, and
 * is a rule of the grammar. Each rule ends with the next one, so that a matcher keeps one frame for it,
 * however long the text becomes. */
#include "grammar_build.h"

#include <string.h>

enum { MOST_MARK_BYTES = 4096, BYTES = 256 };

/* A state: the marks' first bytes that the text ends with. */
typedef struct prose_state {
    uint16_t to[BYTES]; /* 0: the start, which no mark's byte leads back to before the links are filled in */
    uint16_t fallback;  /* the state of the longest shorter ending */
    uint16_t mark;      /* 1 + the mark that is complete here; 0: none */
    gr_node rule;
} prose_state;

typedef struct prose {
    ln_grammar *g;
    prose_state *states;
    size_t n;
    const gr_mark *marks;
    gr_prose_kind kind;
    gr_node after; /* the rule of text without any mark (at the start only) */
} prose;

/* ---- the automaton ---- */

static void add_mark(prose *p, const gr_mark *m, size_t number) {
    size_t at = 0;
    for (size_t i = 0; i < m->bytes; i++) {
        uint16_t *to = &p->states[at].to[(unsigned char)m->text[i]];
        if (!*to) *to = (uint16_t)p->n++;
        at = *to;
    }
    if (!p->states[at].mark) p->states[at].mark = (uint16_t)(number + 1);
}

/* Fills in where each state goes at a byte that continues no mark, level by level. */
static void fill_links(prose *p, uint16_t *queue) {
    size_t first = 0, end = 0;
    for (unsigned c = 0; c < BYTES; c++)
        if (p->states[0].to[c]) queue[end++] = p->states[0].to[c];
    for (; first < end; first++) {
        prose_state *s = &p->states[queue[first]];
        const prose_state *shorter = &p->states[s->fallback];
        if (!s->mark) s->mark = shorter->mark;
        for (unsigned c = 0; c < BYTES; c++) {
            if (s->to[c]) {
                p->states[s->to[c]].fallback = shorter->to[c];
                queue[end++] = s->to[c];
            } else {
                s->to[c] = shorter->to[c];
            }
        }
    }
}

static bool make_states(prose *p, size_t n_marks) {
    size_t bytes = 1;
    for (size_t i = 0; i < n_marks; i++) bytes += p->marks[i].bytes;
    p->states = ln_zalloc(bytes, sizeof *p->states);
    uint16_t *queue = ln_alloc(bytes * sizeof *queue);
    if (p->states && queue) {
        p->n = 1;
        for (size_t i = 0; i < n_marks; i++) add_mark(p, &p->marks[i], i);
        if (p->kind != GR_MARKS_AT_START) fill_links(p, queue);
    }
    const bool ok = p->states && queue;
    ln_free(queue);
    p->g->no_memory = p->g->no_memory || !ok;
    return ok;
}

/* ---- its rules ---- */

static bool is_space(unsigned c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether a byte may stand in the text. Text that is read as JSON's has characters in UTF-8, which
 * other_characters adds, and no control character but white space. */
static bool may_stand(const prose *p, unsigned c) {
    return p->kind != GR_MARKS_NOWHERE || (c < 0x80 && (c >= 0x20 || is_space(c)));
}

/* What follows a byte that leads from state `from` to state `to`. */
static gr_node node_of(const prose *p, size_t from, unsigned c, size_t *to) {
    *to = p->states[from].to[c];
    if (p->states[*to].mark) return p->marks[p->states[*to].mark - 1].then;
    if (p->kind == GR_MARKS_AT_START && *to == 0 && !(from == 0 && is_space(c))) return p->after;
    return p->states[*to].rule;
}

/* The body of a state's rule: bytes that lead to the same place are one set. */
static gr_node body_of(const prose *p, size_t from) {
    ln_grammar *g = p->g;
    gr_node all = GR_EMPTY;
    bool seen[BYTES] = {false};
    for (unsigned c = 0; c < BYTES; c++) {
        gr_bytes set = {{0}};
        size_t to, other;
        if (seen[c] || !may_stand(p, c)) continue;
        const gr_node next = node_of(p, from, c, &to);
        for (unsigned d = c; d < BYTES; d++) {
            if (seen[d] || !may_stand(p, d) || node_of(p, from, d, &other) != next) continue;
            seen[d] = true;
            set.bits[d / 64] |= UINT64_C(1) << (d % 64);
        }
        all = gr_alt(g, gr_seq(g, gr_set(g, &set), next), all);
    }
    if (p->kind != GR_MARKS_NOWHERE) return all;
    const gr_node other = gr_characters(g, &(gr_points){0x80, 0x10ffff}, 1);
    return gr_alt(g, gr_seq(g, other, p->states[0].rule), all);
}

static void close_prose(prose *p) {
    ln_free(p->states);
    p->states = NULL;
}

gr_node gr_prose(ln_grammar *g, gr_mark *marks, size_t n, gr_prose_kind kind) {
    prose p = {.g = g, .marks = marks, .kind = kind, .after = GR_NOTHING};
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += marks[i].bytes;
    if (bytes > MOST_MARK_BYTES) return g->too_large = true, GR_NOTHING;
    if (!make_states(&p, n)) return close_prose(&p), GR_NOTHING;
    for (size_t s = 0; s < p.n; s++) p.states[s].rule = gr_rule(g);
    const gr_node start = p.states[0].rule;
    for (size_t i = 0; i < n; i++) {
        if (kind == GR_MARKS_NOWHERE) marks[i].then = GR_NOTHING;
        if (kind == GR_MARKS_ANYWHERE) marks[i].then = gr_seq(g, marks[i].then, start);
    }
    if (kind == GR_MARKS_AT_START) p.after = gr_repeat(g, gr_byte_range(g, 0, BYTES - 1), 0, GR_UNBOUNDED);
    for (size_t s = 0; s < p.n; s++) {
        const gr_node body = body_of(&p, s);
        gr_define(g, p.states[s].rule, body);
    }
    close_prose(&p);
    return start;
}
