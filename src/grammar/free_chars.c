/* How many plain characters surely may follow in the states of an automaton, whichever they are: the mask of
 * a state that so many may follow takes whole slices of a vocabulary without a walk. The number is the
 * distance, in characters, to the nearest state that some plain character may not follow. */
#include "automaton.h"

#include <string.h>

const gr_byte_kind gr_plain_kinds[GR_PLAIN_KINDS] = {
    {0x20, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2},
    {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2}, {0xee, 0xef, 0x80, 0xbf, 2},
    {0xf0, 0xf0, 0x90, 0xbf, 3}, {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};

/* The states after a plain character of each state, each once: to[at[q] .. at[q + 1]). */
typedef struct steps {
    const automaton *a;
    uint32_t *to, *at, *seen; /* seen: [n] the last state whose list has this one, + 1 */
    size_t n, cap;
    bool no_memory;
} steps;

static void add_step(steps *s, uint32_t q, uint32_t to) {
    void *p = s->to;
    if (s->seen[to] == q + 1) return;
    s->seen[to] = q + 1;
    s->no_memory = s->no_memory || ln_grow(&p, &s->cap, s->n + 1, sizeof *s->to, NULL) != LN_OK;
    s->to = p;
    if (!s->no_memory) s->to[s->n++] = to;
}

/* Adds the states after a character of state q of which the bytes lo .. hi are next, of state `from`, and
 * `more` bytes follow. False: one of the characters may not follow. Each byte is a call, at most 4. */
static bool add_steps(steps *s, uint32_t q, uint32_t from, unsigned lo, unsigned hi, const gr_byte_kind *k,
                      int more) {
    const automaton *a = s->a;
    uint64_t seen[4] = {0};
    for (unsigned c = lo; c <= hi; c++) {
        const unsigned class = a->class_of[c];
        if (c == '"' || c == '\\' || (seen[class / 64] >> (class % 64) & 1)) continue;
        seen[class / 64] |= UINT64_C(1) << (class % 64);
        const uint32_t to = a->next[(size_t)from * a->n_classes + class];
        if (to == 0) return false;
        if (more == 0) add_step(s, q, to);
        else if (!add_steps(s, q, to, more == k->more ? k->second_lo : 0x80,
                            more == k->more ? k->second_hi : 0xbf, k, more - 1))
            return false;
    }
    return true;
}

static bool find_steps(steps *s, uint32_t *free_chars) {
    for (uint32_t q = 1; q < s->a->n && !s->no_memory; q++) {
        const size_t before = s->n;
        bool all = true;
        for (int i = 0; all && i < GR_PLAIN_KINDS; i++) {
            const gr_byte_kind *k = &gr_plain_kinds[i];
            all = add_steps(s, q, q, k->lo, k->hi, k, k->more);
        }
        if (!all) s->n = before; /* the distance is 0 */
        free_chars[q] = all ? GR_UNBOUNDED : 0;
        s->at[q + 1] = (uint32_t)s->n;
    }
    return !s->no_memory;
}

/* Fills the distances, from those that are 0 on: `from` are the states before each state, as `to` after. */
static bool find_distances(const steps *s, uint32_t *free_chars) {
    const uint32_t n = s->a->n;
    uint32_t *at = ln_zalloc(n + 2, sizeof *at), *from = ln_alloc((s->n + 1) * sizeof *from),
             *queue = ln_alloc(n * sizeof *queue), n_queue = 0;
    const bool ok = at && from && queue;
    for (size_t i = 0; ok && i < s->n; i++) at[s->to[i] + 2]++;
    for (uint32_t q = 2; ok && q < n + 2; q++) at[q] += at[q - 1];
    for (uint32_t q = 1; ok && q < n; q++) {
        for (uint32_t i = s->at[q]; i < s->at[q + 1]; i++) from[at[s->to[i] + 1]++] = q;
        if (free_chars[q] == 0) queue[n_queue++] = q;
    }
    for (uint32_t k = 0; ok && k < n_queue; k++)
        for (uint32_t i = at[queue[k]]; i < at[queue[k] + 1]; i++) {
            if (free_chars[from[i]] != GR_UNBOUNDED) continue;
            free_chars[from[i]] = free_chars[queue[k]] + 1;
            queue[n_queue++] = from[i];
        }
    ln_free(at);
    ln_free(from);
    ln_free(queue);
    return ok;
}

bool automaton_free_chars(const automaton *a, uint32_t *free_chars) {
    steps s = {.a = a, .at = ln_zalloc(a->n + 1, sizeof *s.at), .seen = ln_zalloc(a->n, sizeof *s.seen)};
    const bool ok = s.at && s.seen && find_steps(&s, free_chars) && find_distances(&s, free_chars);
    ln_free(s.to);
    ln_free(s.at);
    ln_free(s.seen);
    return ok;
}
