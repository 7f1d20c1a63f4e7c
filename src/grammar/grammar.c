/* Grammars: expressions, stored once each, and the classes of bytes. */
#include "grammar_build.h"

#include <string.h>

enum { MOST_EXPRS = 1 << 18 };

static void no_memory(ln_grammar *g) { g->no_memory = true; }

static uint64_t hash_of(const gr_expr *e) {
    uint64_t h = e->kind;
    const uint32_t parts[] = {e->a, e->b, e->min, e->max};
    for (size_t i = 0; i < LN_COUNT(parts); i++)
        h = (h ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
    return h;
}

static bool same(const gr_expr *x, const gr_expr *y) {
    return x->kind == y->kind && x->a == y->a && x->b == y->b && x->min == y->min && x->max == y->max;
}

/* Makes the hash table twice as large. */
static bool grow_slots(ln_grammar *g) {
    const size_t n = g->n_slots ? 2 * g->n_slots : 1024;
    uint32_t *slots = ln_zalloc(n, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < g->n_exprs; i++) {
        size_t at = hash_of(&g->exprs[i]) & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    ln_free(g->slots);
    g->slots = slots;
    g->n_slots = n;
    return true;
}

static gr_node add(ln_grammar *g, gr_expr e) {
    void *p = g->exprs;
    if (g->no_memory || g->too_large) return GR_NOTHING;
    if (2 * (g->n_exprs + 1) > g->n_slots && !grow_slots(g)) return no_memory(g), GR_NOTHING;
    size_t at = hash_of(&e) & (g->n_slots - 1);
    for (; g->slots[at]; at = (at + 1) & (g->n_slots - 1))
        if (same(&g->exprs[g->slots[at] - 1], &e)) return g->slots[at] - 1;
    if (g->n_exprs >= MOST_EXPRS) return g->too_large = true, GR_NOTHING;
    if (ln_grow(&p, &g->cap_exprs, g->n_exprs + 1, sizeof *g->exprs, NULL) != LN_OK)
        return no_memory(g), GR_NOTHING;
    g->exprs = p;
    g->exprs[g->n_exprs] = e;
    g->slots[at] = (uint32_t)++g->n_exprs;
    return (gr_node)g->n_exprs - 1;
}

static uint64_t hash_of_set(const gr_bytes *s) {
    uint64_t h = 1;
    for (size_t i = 0; i < LN_COUNT(s->bits); i++)
        h = (h ^ s->bits[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
    return h;
}

static bool grow_set_slots(ln_grammar *g) {
    const size_t n = g->n_set_slots ? 2 * g->n_set_slots : 512;
    uint32_t *slots = ln_zalloc(n, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < g->n_sets; i++) {
        size_t at = hash_of_set(&g->sets[i]) & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    ln_free(g->set_slots);
    g->set_slots = slots;
    g->n_set_slots = n;
    return true;
}

gr_node gr_set(ln_grammar *g, const gr_bytes *bytes) {
    void *p = g->sets;
    if ((bytes->bits[0] | bytes->bits[1] | bytes->bits[2] | bytes->bits[3]) == 0) return GR_NOTHING;
    if (g->no_memory || g->too_large) return GR_NOTHING;
    if (2 * (g->n_sets + 1) > g->n_set_slots && !grow_set_slots(g)) return no_memory(g), GR_NOTHING;
    size_t at = hash_of_set(bytes) & (g->n_set_slots - 1);
    while (g->set_slots[at] && memcmp(&g->sets[g->set_slots[at] - 1], bytes, sizeof *bytes) != 0)
        at = (at + 1) & (g->n_set_slots - 1);
    if (!g->set_slots[at]) {
        if (ln_grow(&p, &g->cap_sets, g->n_sets + 1, sizeof *g->sets, NULL) != LN_OK)
            return no_memory(g), GR_NOTHING;
        g->sets = p;
        g->sets[g->n_sets] = *bytes;
        g->set_slots[at] = (uint32_t)++g->n_sets;
    }
    return add(g, (gr_expr){.kind = GR_IS_SET, .a = g->set_slots[at] - 1});
}

gr_node gr_byte_range(ln_grammar *g, unsigned lo, unsigned hi) {
    gr_bytes s = {{0}};
    for (unsigned c = lo; c <= hi; c++) s.bits[c / 64] |= UINT64_C(1) << (c % 64);
    return gr_set(g, &s);
}

gr_node gr_seq(ln_grammar *g, gr_node a, gr_node b) {
    if (a == GR_NOTHING || b == GR_NOTHING) return GR_NOTHING;
    if (a == GR_EMPTY) return b;
    if (b == GR_EMPTY) return a;
    return add(g, (gr_expr){.kind = GR_IS_SEQ, .a = a, .b = b});
}

gr_node gr_alt(ln_grammar *g, gr_node a, gr_node b) {
    if (a == GR_NOTHING || a == b) return b;
    if (b == GR_NOTHING) return a;
    return add(g, (gr_expr){.kind = GR_IS_ALT, .a = a, .b = b});
}

gr_node gr_repeat(ln_grammar *g, gr_node a, uint32_t min, uint32_t max) {
    if (max == 0 || a == GR_EMPTY) return GR_EMPTY;
    if (a == GR_NOTHING) return min == 0 ? GR_EMPTY : GR_NOTHING;
    if (min == 1 && max == 1) return a;
    return add(g, (gr_expr){.kind = GR_IS_REPEAT, .a = a, .min = min, .max = max});
}

gr_node gr_optional(ln_grammar *g, gr_node a) { return gr_alt(g, a, GR_EMPTY); }

gr_node gr_text(ln_grammar *g, const char *text, size_t bytes) {
    gr_node all = GR_EMPTY;
    for (size_t i = bytes; i-- > 0;)
        all = gr_seq(g, gr_byte_range(g, (unsigned char)text[i], (unsigned char)text[i]), all);
    return all;
}

gr_node gr_texts(ln_grammar *g, const char *text) { return gr_text(g, text, strlen(text)); }

gr_node gr_all_of(ln_grammar *g, const gr_node *parts) {
    gr_node all = GR_EMPTY;
    size_t n = 0;
    while (parts[n] != GR_END) n++;
    while (n-- > 0) all = gr_seq(g, parts[n], all);
    return all;
}

gr_node gr_rule(ln_grammar *g) {
    return add(g, (gr_expr){.kind = GR_IS_RULE, .a = GR_NOTHING, .min = ++g->n_rules});
}

void gr_define(ln_grammar *g, gr_node rule, gr_node body) {
    /* the hash of a rule is never asked for again: its number is its own */
    if (rule != GR_NOTHING && g->exprs[rule].kind == GR_IS_RULE) g->exprs[rule].a = body;
}

ln_status gr_check(const ln_grammar *g, ln_error *err) {
    if (g->no_memory) return LN_OOM(err, "a grammar");
    if (g->too_large)
        return ln_fail(err, LN_EINVALID,
                       "the grammar is too large: it needs more than %d expressions; use fewer alternatives",
                       MOST_EXPRS);
    return LN_OK;
}

/* ---- classes of bytes ---- */

/* Splits the classes by each set: bytes stay together while every set has all of them or none. */
static void find_classes(ln_grammar *g) {
    memset(g->class_of, 0, sizeof g->class_of);
    g->n_classes = 1;
    for (size_t s = 0; s < g->n_sets; s++) {
        int to[256];
        bool seen[256] = {false};
        const uint32_t n = g->n_classes;
        for (uint32_t k = 0; k < n; k++) to[k] = -1;
        for (unsigned c = 0; c < 256; c++) /* classes that keep a byte outside the set */
            if (!(g->sets[s].bits[c / 64] >> (c % 64) & 1)) seen[g->class_of[c]] = true;
        for (unsigned c = 0; c < 256; c++) {
            const unsigned k = g->class_of[c];
            if (k >= n || !(g->sets[s].bits[c / 64] >> (c % 64) & 1) || !seen[k]) continue;
            if (to[k] < 0) to[k] = (int)g->n_classes++;
            g->class_of[c] = (uint8_t)to[k];
        }
    }
    for (unsigned c = 256; c-- > 0;) g->example[g->class_of[c]] = (uint8_t)c;
}

/* ---- opening ---- */

ln_status gr_begin(ln_grammar **out, ln_error *err) {
    ln_grammar *g = *out = ln_zalloc(1, sizeof *g);
    if (!g) return LN_OOM(err, "a grammar");
    (void)add(g, (gr_expr){.kind = GR_IS_EMPTY});
    (void)add(g, (gr_expr){.kind = GR_IS_NOTHING});
    return gr_check(g, err);
}

ln_status gr_finish(ln_grammar *g, gr_node root, ln_error *err) {
    LN_TRY(gr_check(g, err));
    g->root = root;
    ln_free(g->slots);
    ln_free(g->set_slots);
    g->slots = g->set_slots = NULL;
    g->n_slots = g->n_set_slots = 0;
    find_classes(g);
    return LN_OK;
}

void ln_grammar_close(ln_grammar **g) {
    if (!*g) return;
    for (size_t i = 0; i < (*g)->n_lengths; i++) {
        ln_free((*g)->lengths[i].ends);
        ln_free((*g)->lengths[i].free);
    }
    ln_free((*g)->lengths);
    ln_free((*g)->exprs);
    ln_free((*g)->sets);
    ln_free((*g)->slots);
    ln_free((*g)->set_slots);
    ln_free((*g)->height);
    ln_free(*g);
    *g = NULL;
}

uint64_t ln_grammar_bytes(const ln_grammar *g) {
    uint64_t lengths = 0;
    for (size_t i = 0; i < g->n_lengths; i++) {
        const gr_lengths *l = &g->lengths[i];
        lengths += sizeof *l + l->words * l->states * sizeof *l->ends + (l->max + 1) * sizeof *l->free;
    }
    return sizeof *g + g->cap_exprs * sizeof *g->exprs + g->n_exprs * sizeof *g->height +
           g->cap_sets * sizeof *g->sets + lengths;
}
