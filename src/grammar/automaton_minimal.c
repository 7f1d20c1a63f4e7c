/* Minimising automata: Hopcroft's partition refinement, in the form of Valmari (2012), which keeps one
 * partition of the states and one of the transitions. */
#include "automaton.h"

#include <string.h>

/* A partition of the elements 0 .. n - 1: set s is elems[first[s] .. end[s]), of which the first marked[s]
 * are marked. */
typedef struct partition {
    uint32_t n_sets, n_touched;
    uint32_t *elems, *place, *set_of, *first, *end, *marked, *touched;
} partition;

static bool partition_open(partition *p, uint32_t n) {
    uint32_t *all = ln_zalloc(7 * ((size_t)n + 1), sizeof *all);
    const size_t room = (size_t)n + 1;
    if (!all) return false;
    *p = (partition){.n_sets = n > 0, .elems = all, .place = all + room, .set_of = all + 2 * room};
    p->first = all + 3 * room, p->end = all + 4 * room, p->marked = all + 5 * room,
    p->touched = all + 6 * room;
    for (uint32_t i = 0; i < n; i++) p->elems[i] = p->place[i] = i;
    p->end[0] = n;
    return true;
}

static void mark(partition *p, uint32_t e) {
    const uint32_t s = p->set_of[e], i = p->place[e], j = p->first[s] + p->marked[s];
    if (i < j) return; /* is marked */
    const uint32_t other = p->elems[j];
    p->elems[i] = other, p->place[other] = i;
    p->elems[j] = e, p->place[e] = j;
    if (p->marked[s]++ == 0) p->touched[p->n_touched++] = s;
}

/* Parts the marked elements of each set from the others: the smaller part becomes a new set. */
static void split(partition *p) {
    while (p->n_touched > 0) {
        const uint32_t s = p->touched[--p->n_touched], middle = p->first[s] + p->marked[s], z = p->n_sets;
        const bool front = p->marked[s] <= p->end[s] - middle;
        p->marked[s] = 0;
        if (middle == p->end[s]) continue;
        p->first[z] = front ? p->first[s] : middle;
        p->end[z] = front ? middle : p->end[s];
        if (front) p->first[s] = middle;
        else p->end[s] = middle;
        for (uint32_t i = p->first[z]; i < p->end[z]; i++) p->set_of[p->elems[i]] = z;
        p->marked[z] = 0;
        p->n_sets++;
    }
}

/* The transitions between states that matter. */
typedef struct edges {
    uint32_t n;
    uint32_t *tail, *head, *class_at; /* class_at [n_classes + 1]: they are ordered by class */
    uint32_t *into, *into_at;         /* the edges into state q are into[into_at[q] .. into_at[q + 1]) */
} edges;

/* Marks in keep[] the states that can be reached and from which a text ends. */
static bool find_useful(const automaton *a, bool *keep) {
    const size_t k = a->n_classes;
    uint32_t *list = ln_alloc((a->n + 1) * sizeof *list);
    bool *reached = ln_zalloc(a->n + 1, sizeof *reached);
    size_t n = 0;
    if (list && reached) {
        if (a->start) reached[a->start] = true, list[n++] = a->start;
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < k; c++) {
                const uint32_t to = a->next[list[i] * k + c];
                if (to && !reached[to]) reached[to] = true, list[n++] = to;
            }
        for (size_t i = 0; i < n; i++) keep[list[i]] = a->labels[list[i]] != 0;
        for (bool more = true; more;) {
            more = false;
            for (size_t i = n; i-- > 0;)
                for (size_t c = 0; c < k && !keep[list[i]]; c++)
                    if (keep[a->next[list[i] * k + c]]) keep[list[i]] = more = true;
        }
        keep[0] = false;
    }
    const bool ok = list && reached;
    ln_free(list);
    ln_free(reached);
    return ok;
}

static bool find_edges(const automaton *a, const bool *keep, edges *e) {
    const size_t k = a->n_classes, most = a->n * k + 1;
    *e = (edges){.tail = ln_alloc(most * sizeof(uint32_t)),
                 .head = ln_alloc(most * sizeof(uint32_t)),
                 .class_at = ln_zalloc(k + 1, sizeof(uint32_t)),
                 .into = ln_alloc(most * sizeof(uint32_t)),
                 .into_at = ln_zalloc(a->n + 2, sizeof(uint32_t))};
    if (!e->tail || !e->head || !e->class_at || !e->into || !e->into_at) return false;
    for (size_t c = 0; c < k; c++) {
        for (uint32_t q = 0; q < a->n; q++) {
            const uint32_t to = a->next[q * k + c];
            if (!keep[q] || !keep[to]) continue;
            e->tail[e->n] = q, e->head[e->n++] = to;
            e->into_at[to + 2]++;
        }
        e->class_at[c + 1] = e->n;
    }
    for (uint32_t q = 2; q <= a->n; q++) e->into_at[q + 1] += e->into_at[q];
    for (uint32_t i = 0; i < e->n; i++) e->into[e->into_at[e->head[i] + 1]++] = i;
    return true;
}

static void refine(const automaton *a, const bool *keep, const edges *e, partition *states,
                   partition *moves) {
    for (uint32_t q = 0; q < a->n; q++) /* those that do not matter are a set */
        if (keep[q]) mark(states, q);
    split(states);
    for (uint64_t last = 0; last != UINT64_MAX;) { /* one set for each label, in ascending order */
        uint64_t label = UINT64_MAX;
        for (uint32_t q = 0; q < a->n; q++)
            if (keep[q] && a->labels[q] > last) label = LN_MIN(label, a->labels[q]);
        for (uint32_t q = 0; q < a->n; q++)
            if (keep[q] && a->labels[q] == label) mark(states, q);
        split(states);
        last = label;
    }
    for (uint32_t c = 0; c < a->n_classes; c++) {
        for (uint32_t i = e->class_at[c]; i < e->class_at[c + 1]; i++) mark(moves, i);
        split(moves);
    }
    uint32_t done_states = 0, done_moves = 0;
    while (done_moves < moves->n_sets || done_states < states->n_sets) {
        for (; done_states < states->n_sets; done_states++) {
            for (uint32_t i = states->first[done_states]; i < states->end[done_states]; i++) {
                const uint32_t q = states->elems[i];
                for (uint32_t j = e->into_at[q]; j < e->into_at[q + 1]; j++) mark(moves, e->into[j]);
            }
            split(moves);
        }
        if (done_moves == moves->n_sets) break;
        for (uint32_t i = moves->first[done_moves]; i < moves->end[done_moves]; i++)
            mark(states, e->tail[moves->elems[i]]);
        split(states);
        done_moves++;
    }
}

/* Makes the automaton of the sets. */
static ln_status rebuild(automaton *a, const bool *keep, const partition *p, ln_error *err) {
    const size_t k = a->n_classes;
    uint32_t *number = ln_zalloc(p->n_sets + 1, sizeof *number), n = 1;
    for (uint32_t q = 0; number && q < a->n; q++) /* in the order of the old states */
        if (keep[q] && number[p->set_of[q]] == 0) number[p->set_of[q]] = n++;
    automaton out = {.n = n, .n_classes = a->n_classes};
    out.next = ln_zalloc(n * k, sizeof *out.next);
    out.labels = ln_zalloc(n, sizeof *out.labels);
    memcpy(out.class_of, a->class_of, sizeof out.class_of);
    if (!number || !out.next || !out.labels) {
        ln_free(number);
        automaton_free(&out);
        return LN_OOM(err, "an automaton");
    }
    for (uint32_t q = 0; q < a->n; q++) {
        if (!keep[q]) continue;
        const uint32_t to = number[p->set_of[q]];
        out.labels[to] = a->labels[q];
        for (size_t c = 0; c < k; c++) {
            const uint32_t after = a->next[q * k + c];
            out.next[to * k + c] = keep[after] ? number[p->set_of[after]] : 0;
        }
    }
    if (keep[a->start]) out.start = number[p->set_of[a->start]];
    ln_free(number);
    automaton_free(a);
    *a = out;
    return LN_OK;
}

ln_status automaton_minimise(automaton *a, ln_error *err) {
    bool *keep = ln_zalloc(a->n + 1, sizeof *keep);
    edges e = {0};
    partition states = {0}, moves = {0};
    ln_status st = LN_OK;
    const bool ok = keep && find_useful(a, keep) && find_edges(a, keep, &e) &&
                    partition_open(&states, a->n) && partition_open(&moves, e.n);
    if (ok) {
        refine(a, keep, &e, &states, &moves);
        st = rebuild(a, keep, &states, err);
    } else {
        st = LN_OOM(err, "an automaton");
    }
    ln_free(keep);
    ln_free(e.tail);
    ln_free(e.head);
    ln_free(e.class_at);
    ln_free(e.into);
    ln_free(e.into_at);
    ln_free(states.elems);
    ln_free(moves.elems);
    return st;
}
