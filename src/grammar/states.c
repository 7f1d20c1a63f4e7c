/* The states of a grammar; see states.h. */
#include "states.h"

#include <stdlib.h>
#include <string.h>

#define CLOSED UINT32_MAX /* instead of a frame: too deep */

static bool grow(gr_states *s, void *pp, size_t *cap, size_t need, size_t item) {
    void *p;
    memcpy(&p, pp, sizeof p);
    const bool ok = ln_grow(&p, cap, need, item, NULL) == LN_OK;
    memcpy(pp, &p, sizeof p);
    s->no_memory = s->no_memory || !ok;
    return ok;
}

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_list(const uint32_t *v, size_t n) {
    uint64_t h = n + 1;
    for (size_t i = 0; i < n; i++) h = mix(h, v[i]);
    return h;
}

/* ---- tables ---- */

static uint64_t hash_frame(const gr_states *s, size_t i) {
    const gr_frame *f = &s->frames[i];
    return mix(mix(mix(1, f->node), f->count), f->next);
}
static uint64_t hash_group(const gr_states *s, size_t i) {
    return hash_list(s->members + s->groups[i].at, s->groups[i].n);
}
static uint64_t hash_state(const gr_states *s, size_t i) {
    return hash_list(s->waiting + s->states[i].at, s->states[i].n);
}

typedef uint64_t hash_fn(const gr_states *s, size_t i);

/* Grows a table for one more of n entries. */
static bool make_space(gr_states *s, gr_table *t, size_t n, hash_fn *hash) {
    if (2 * (n + 1) <= t->n_slots) return true;
    const size_t n_slots = t->n_slots ? 2 * t->n_slots : 256;
    uint32_t *slots = ln_zalloc(n_slots, sizeof *slots);
    if (!slots) return s->no_memory = true, false;
    for (size_t i = 0; i < n; i++) {
        size_t at = hash(s, i) & (n_slots - 1);
        while (slots[at]) at = (at + 1) & (n_slots - 1);
        slots[at] = (uint32_t)i + 1;
    }
    ln_free(t->slots);
    *t = (gr_table){slots, n_slots};
    return true;
}

/* ---- frames and groups ---- */

static uint32_t depth_of(const gr_states *s, uint32_t next) {
    uint32_t depth = 0;
    if (!(next & GR_GROUP)) return s->frames[next].depth;
    const gr_span_of *m = &s->groups[next & ~GR_GROUP];
    for (uint32_t i = 0; i < m->n; i++) depth = LN_MAX(depth, s->frames[s->members[m->at + i]].depth);
    return depth;
}

/* The number of a frame; CLOSED when it is too deep, or after a failure. */
static uint32_t frame_of(gr_states *s, uint32_t node, uint32_t count, uint32_t next) {
    if (next == CLOSED) return CLOSED;
    if (!make_space(s, &s->frame_table, s->n_frames, hash_frame)) return CLOSED;
    const size_t last = s->frame_table.n_slots - 1;
    size_t at = mix(mix(mix(1, node), count), next) & last;
    for (; s->frame_table.slots[at]; at = (at + 1) & last) {
        const gr_frame *o = &s->frames[s->frame_table.slots[at] - 1];
        if (o->node == node && o->count == count && o->next == next) return s->frame_table.slots[at] - 1;
    }
    const uint32_t depth = depth_of(s, next);
    if (depth + s->g->height[node] > GR_MOST_DEPTH) return CLOSED; /* it could not be completed */
    if (s->n_frames >= s->most.frames) return s->full = true, CLOSED;
    if (!grow(s, &s->frames, &s->cap_frames, s->n_frames + 1, sizeof *s->frames)) return CLOSED;
    if (!grow(s, &s->stamps, &s->cap_stamps, s->n_frames + 1, sizeof *s->stamps)) return CLOSED;
    if (!grow(s, &s->after, &s->cap_after, s->n_frames + 1, sizeof *s->after)) return CLOSED;
    s->frames[s->n_frames] = (gr_frame){node, count, next, depth + 1};
    s->stamps[s->n_frames] = 0;
    s->after[s->n_frames] = GR_UNKNOWN;
    s->frame_table.slots[at] = (uint32_t)++s->n_frames;
    return (uint32_t)s->n_frames - 1;
}

/* A group of n > 1 frames, ascending by expression and count; CLOSED after a failure. */
static uint32_t group_of(gr_states *s, const uint32_t *frames, size_t n) {
    if (!make_space(s, &s->group_table, s->n_groups, hash_group)) return CLOSED;
    const size_t last = s->group_table.n_slots - 1;
    size_t at = hash_list(frames, n) & last;
    for (; s->group_table.slots[at]; at = (at + 1) & last) {
        const gr_span_of *o = &s->groups[s->group_table.slots[at] - 1];
        if (o->n == n && memcmp(s->members + o->at, frames, n * sizeof *frames) == 0)
            return (s->group_table.slots[at] - 1) | GR_GROUP;
    }
    if (s->n_members + n > s->most.members || s->n_groups >= s->most.frames) return s->full = true, CLOSED;
    if (!grow(s, &s->groups, &s->cap_groups, s->n_groups + 1, sizeof *s->groups)) return CLOSED;
    if (!grow(s, &s->members, &s->cap_members, s->n_members + n, sizeof *s->members)) return CLOSED;
    if (!grow(s, &s->group_after, &s->cap_group_after, s->n_groups + 1, sizeof *s->group_after))
        return CLOSED;
    memcpy(s->members + s->n_members, frames, n * sizeof *frames);
    s->groups[s->n_groups] = (gr_span_of){(uint32_t)s->n_members, (uint32_t)n};
    s->n_members += n;
    s->group_after[s->n_groups] = GR_UNKNOWN;
    s->group_table.slots[at] = (uint32_t)++s->n_groups;
    return ((uint32_t)s->n_groups - 1) | GR_GROUP;
}

static size_t members_of(const gr_states *s, uint32_t next) {
    return next & GR_GROUP ? s->groups[next & ~GR_GROUP].n : 1;
}
/* Returns member i. Read it again after each call that may add to the lists. */
static uint32_t member(const gr_states *s, uint32_t next, size_t i) {
    return next & GR_GROUP ? s->members[s->groups[next & ~GR_GROUP].at + i] : next;
}

static int order_of(const gr_states *s, uint32_t a, uint32_t b) {
    const gr_frame *x = &s->frames[a], *y = &s->frames[b];
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return (x->count > y->count) - (x->count < y->count);
}

/* What comes after where both may: frames of one expression and count are joined. Each level is a call, at
 * most GR_MOST_DEPTH of them. */
static uint32_t both_of(gr_states *s, uint32_t a, uint32_t b) {
    if (a == b || b == CLOSED) return a;
    if (a == CLOSED) return b;
    const size_t n = members_of(s, a), k = members_of(s, b), from = s->n_joined;
    size_t i = 0, j = 0;
    while ((i < n || j < k) && !s->no_memory && !s->full) {
        const uint32_t x = i < n ? member(s, a, i) : CLOSED, y = j < k ? member(s, b, j) : CLOSED;
        const int c = x == CLOSED ? 1 : y == CLOSED ? -1 : order_of(s, x, y);
        uint32_t f = c <= 0 ? x : y;
        if (c == 0 && x != y) {
            const gr_frame p = s->frames[x], q = s->frames[y];
            f = frame_of(s, p.node, p.count, both_of(s, p.next, q.next));
        }
        i += c <= 0, j += c >= 0;
        if (f != CLOSED && grow(s, &s->joined, &s->cap_joined, s->n_joined + 1, sizeof *s->joined))
            s->joined[s->n_joined++] = f;
    }
    const size_t all = s->n_joined - from;
    uint32_t out = CLOSED;
    if (!s->no_memory && !s->full && all == 1) out = s->joined[from];
    if (!s->no_memory && !s->full && all > 1) out = group_of(s, s->joined + from, all);
    s->n_joined = from;
    return out;
}

/* ---- expansion ---- */

static void push_one(gr_states *s, size_t *n, uint32_t f) {
    if (f == CLOSED || !grow(s, &s->work, &s->cap_work, *n + 1, sizeof *s->work)) return;
    s->work[(*n)++] = f;
}
static void push(gr_states *s, size_t *n, uint32_t next) {
    if (next == CLOSED) return;
    for (size_t i = 0; i < members_of(s, next); i++) push_one(s, n, member(s, next, i));
}

/* Whether a byte that the expression begins with begins a character too. */
static bool begins_character(const gr_states *s, uint32_t node) {
    const gr_expr *e = &s->g->exprs[node];
    return e->kind != GR_IS_SET || s->g->sets[e->a].bits[2] == 0; /* continuations are 0x80 .. 0xbf */
}

/* Notes that so many plain characters may follow a frame of an automaton. A frame that is nearly too deep may
 * be closed in the middle of them. */
static void note_free(gr_states *s, const gr_frame *f, uint32_t chars) {
    enum { FRAMES_OF_A_STATE = 2 };
    if (f->depth + FRAMES_OF_A_STATE > GR_MOST_DEPTH) return;
    s->free_chars = LN_MAX(s->free_chars, chars);
}

/* Opens a state of an automaton whose characters are counted: its alternatives are the end, or a character,
 * or a part of one, and another state. */
static void open_counted(gr_states *s, const gr_frame *f, const gr_expr *rule, size_t *n) {
    const gr_lengths *l = &s->g->lengths[rule->max - 1];
    if (f->count <= l->max) note_free(s, f, LN_MIN(rule->free_chars, l->free[f->count] - f->count));
    for (uint32_t body = rule->a; body != GR_NOTHING;) {
        const gr_expr *e = &s->g->exprs[body];
        const uint32_t one = e->kind == GR_IS_ALT ? e->a : body;
        const gr_expr *part = &s->g->exprs[one];
        body = e->kind == GR_IS_ALT ? e->b : GR_NOTHING;
        if (part->kind == GR_IS_EMPTY && f->count >= l->min) push(s, n, f->next);
        if (part->kind != GR_IS_SEQ) continue;
        const uint32_t count = f->count + begins_character(s, part->a);
        if (gr_lengths_allow(l, s->g->exprs[part->b].b, count))
            push(s, n, frame_of(s, part->a, 0, frame_of(s, part->b, count, f->next)));
    }
}

/* Replaces a frame by what its expression begins with. */
static void open_frame(gr_states *s, uint32_t number, size_t *n) {
    const gr_frame f = s->frames[number];
    const gr_expr *e = &s->g->exprs[f.node];
    switch (e->kind) {
    case GR_IS_EMPTY: push(s, n, f.next); break;
    case GR_IS_SEQ: push(s, n, frame_of(s, e->a, 0, frame_of(s, e->b, 0, f.next))); break;
    case GR_IS_ALT:
        push(s, n, frame_of(s, e->a, 0, f.next));
        push(s, n, frame_of(s, e->b, 0, f.next));
        break;
    case GR_IS_RULE:
        if (e->max > 0) {
            open_counted(s, &f, e, n);
            break;
        }
        note_free(s, &f, e->free_chars);
        push(s, n, frame_of(s, e->a, 0, f.next));
        break;
    case GR_IS_REPEAT: {
        const gr_expr *one = &s->g->exprs[e->a];
        if (one->kind == GR_IS_RULE && one->b == GR_ANY_PLAIN && one->max == 0 && f.count < e->max)
            s->repeats = LN_MAX(s->repeats, e->max == GR_UNBOUNDED ? GR_UNBOUNDED : e->max - f.count);
        /* without an upper bound, repetitions beyond the lower one are all alike */
        const uint32_t done = e->max == GR_UNBOUNDED ? LN_MIN(f.count + 1, e->min) : f.count + 1;
        if (f.count >= e->min) push(s, n, f.next);
        if (f.count < e->max) push(s, n, frame_of(s, e->a, 0, frame_of(s, f.node, done, f.next)));
        break;
    }
    default: break; /* GR_IS_NOTHING */
    }
}

/* Adds the frames that wait, of those that `next` leads to without a byte, to s->found. */
static void expand(gr_states *s, uint32_t next) {
    size_t n = 0;
    push(s, &n, next);
    while (n > 0 && !s->no_memory && !s->full) {
        const uint32_t f = s->work[--n];
        if (s->stamps[f] == s->stamp) continue;
        s->stamps[f] = s->stamp;
        if (f != 0 && s->g->exprs[s->frames[f].node].kind != GR_IS_SET) {
            open_frame(s, f, &n);
            continue;
        }
        if (grow(s, &s->found, &s->cap_found, s->n_found + 1, sizeof *s->found)) s->found[s->n_found++] = f;
    }
}

static void begin_expansion(gr_states *s) {
    s->n_found = 0;
    s->free_chars = s->repeats = 0;
    if (++s->stamp == 0) { /* stamps would repeat */
        memset(s->stamps, 0, s->n_frames * sizeof *s->stamps);
        s->stamp = 1;
    }
}

/* ---- states ---- */

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts s->found by expression, then by number; all of them have count 0. */
static void sort_found(gr_states *s) {
    enum { FEW = 8 };
    uint32_t *f = s->found;
    const size_t n = s->n_found;
    if (n <= FEW) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k > 0; k--) {
                const int c = order_of(s, f[k - 1], f[k]);
                if (c < 0 || (c == 0 && f[k - 1] < f[k])) break;
                const uint32_t t = f[k];
                f[k] = f[k - 1], f[k - 1] = t;
            }
        return;
    }
    if (!grow(s, &s->keys, &s->cap_keys, n, sizeof *s->keys)) return;
    for (size_t i = 0; i < n; i++) s->keys[i] = (uint64_t)s->frames[f[i]].node << 32 | f[i];
    qsort(s->keys, n, sizeof *s->keys, ascending);
    for (size_t i = 0; i < n; i++) f[i] = (uint32_t)s->keys[i];
}

/* Sorts s->found and joins the frames of one set. */
static void tidy_found(gr_states *s) {
    uint32_t *f = s->found;
    size_t n = 0;
    sort_found(s);
    for (size_t i = 0; i < s->n_found && !s->no_memory && !s->full; i++) {
        if (n == 0 || order_of(s, f[n - 1], f[i]) != 0) {
            f[n++] = f[i];
            continue;
        }
        const gr_frame a = s->frames[f[n - 1]], b = s->frames[f[i]];
        f[n - 1] = frame_of(s, a.node, a.count, both_of(s, a.next, b.next));
        if (f[n - 1] == CLOSED) n--;
    }
    s->n_found = n;
}

static uint32_t add_state(gr_states *s, size_t slot) {
    const size_t n = s->n_found, classes = s->g->n_classes;
    if (s->n_states >= s->most.states || s->n_waiting + n > s->most.waiting ||
        (s->n_states + 1) * classes > s->most.cells)
        return s->full = true, 0;
    if (!grow(s, &s->waiting, &s->cap_waiting, s->n_waiting + n, sizeof *s->waiting) ||
        !grow(s, &s->states, &s->cap_states, s->n_states + 1, sizeof *s->states) ||
        !grow(s, &s->next, &s->cap_next, (s->n_states + 1) * classes, sizeof *s->next))
        return 0;
    if (n > 0) memcpy(s->waiting + s->n_waiting, s->found, n * sizeof *s->found);
    s->states[s->n_states] = (gr_state){.at = (uint32_t)s->n_waiting,
                                        .n = (uint32_t)n,
                                        .mask = -1,
                                        .common = {GR_UNKNOWN, GR_UNKNOWN},
                                        .free_chars = LN_MAX(s->free_chars, s->repeats),
                                        .stops = s->repeats > s->free_chars,
                                        .complete = n > 0 && s->found[0] == 0};
    memset(s->next + s->n_states * classes, 0xff, classes * sizeof *s->next); /* GR_UNKNOWN */
    s->n_waiting += n;
    s->state_table.slots[slot] = (uint32_t)++s->n_states;
    return (uint32_t)s->n_states - 1;
}

/* The number of the state whose frames are s->found; 0 after a failure. */
static uint32_t state_of(gr_states *s) {
    if (s->no_memory || s->full) return 0;
    if (s->n_found > 1) tidy_found(s);
    if (s->no_memory || s->full || !make_space(s, &s->state_table, s->n_states, hash_state)) return 0;
    const size_t last = s->state_table.n_slots - 1;
    size_t at = hash_list(s->found, s->n_found) & last;
    for (; s->state_table.slots[at]; at = (at + 1) & last) {
        const gr_state *o = &s->states[s->state_table.slots[at] - 1];
        if (o->n == s->n_found &&
            (o->n == 0 || memcmp(s->waiting + o->at, s->found, o->n * sizeof *s->found) == 0))
            return s->state_table.slots[at] - 1;
    }
    return add_state(s, at);
}

static uint32_t *after_of(const gr_states *s, uint32_t next) {
    return next & GR_GROUP ? &s->group_after[next & ~GR_GROUP] : &s->after[next];
}

/* Whether a frame that waits takes a byte. */
static bool takes(const gr_states *s, uint32_t f, unsigned char byte) {
    if (f == 0) return false;
    const gr_bytes *set = &s->g->sets[s->g->exprs[s->frames[f].node].a];
    return set->bits[byte / 64] >> (byte % 64) & 1;
}

/* Most bytes of a state are taken by one of its frames, and many by the same one: what comes after it is
 * expanded once. */
uint32_t gr_states_compute(gr_states *s, uint32_t from, unsigned char byte) {
    const size_t at = s->states[from].at, n = s->states[from].n;
    uint32_t next = 0, to = GR_UNKNOWN; /* next: of the last frame that takes it */
    size_t n_takes = 0;
    for (size_t i = 0; i < n; i++)
        if (takes(s, s->waiting[at + i], byte)) next = s->frames[s->waiting[at + i]].next, n_takes++;
    if (n_takes == 0) to = 0;
    if (n_takes == 1) to = *after_of(s, next);
    if (to == GR_UNKNOWN) {
        begin_expansion(s);
        for (size_t i = 0; i < n; i++)
            if (takes(s, s->waiting[at + i], byte)) expand(s, s->frames[s->waiting[at + i]].next);
        to = state_of(s);
        if (s->no_memory || s->full) return 0;
        if (n_takes == 1) *after_of(s, next) = to;
    }
    s->next[(size_t)from * s->g->n_classes + s->g->class_of[byte]] = to;
    return to;
}

/* ---- plain characters ---- */

/* The state to which all bytes lo .. hi lead, of which the plain ones alone count below 0x80; 0: they
 * differ. */
static uint32_t common_step(gr_states *s, uint32_t from, unsigned lo, unsigned hi) {
    uint64_t seen[4] = {0};
    uint32_t all = 0;
    for (unsigned c = lo; c <= hi; c++) {
        const unsigned k = s->g->class_of[c];
        if (c == '"' || c == '\\' || (seen[k / 64] >> (k % 64) & 1)) continue;
        seen[k / 64] |= UINT64_C(1) << (k % 64);
        const uint32_t to = gr_step(s, from, (unsigned char)c);
        if (to == 0 || (all != 0 && to != all)) return 0;
        all = to;
    }
    return all;
}

static uint32_t common_of(gr_states *s, uint32_t from, const gr_byte_kind *kinds, size_t n) {
    uint32_t all = from;
    for (size_t i = 0; i < n && all != 0; i++) {
        uint32_t to = common_step(s, from, kinds[i].lo, kinds[i].hi);
        if (to != 0 && kinds[i].more > 0) to = common_step(s, to, kinds[i].second_lo, kinds[i].second_hi);
        for (int k = 1; k < kinds[i].more && to != 0; k++) to = common_step(s, to, 0x80, 0xbf);
        all = to == 0 || (i > 0 && to != all) ? 0 : to;
    }
    return all;
}

/* Whether one set of a state has all ASCII characters of an alphabet, and no other set has some of them: else
 * the states after them differ, or so nearly always that it is not worth a look. */
static bool may_be_common(const gr_states *s, uint32_t from, ln_alphabet alphabet) {
    static const uint64_t chars[LN_ALPHABETS][2] = {
        {UINT64_C(0x03ff000000000000), UINT64_C(0x07fffffe87fffffe)},
        {UINT64_C(0xfffffffb00000000), UINT64_C(0xffffffffefffffff)}};
    const gr_state *state = &s->states[from];
    bool covered = false;
    for (uint32_t i = 0; i < state->n; i++) {
        const uint32_t f = s->waiting[state->at + i];
        if (f == 0) continue;
        const uint64_t *set = s->g->sets[s->g->exprs[s->frames[f].node].a].bits;
        const uint64_t low = set[0] & chars[alphabet][0], high = set[1] & chars[alphabet][1];
        if (!low && !high) continue;
        if (low != chars[alphabet][0] || high != chars[alphabet][1]) return false;
        covered = true;
    }
    return covered;
}

uint32_t gr_common_compute(gr_states *s, uint32_t from, ln_alphabet alphabet) {
    static const gr_byte_kind word[] = {
        {'0', '9', 0, 0, 0}, {'A', 'Z', 0, 0, 0}, {'_', '_', 0, 0, 0}, {'a', 'z', 0, 0, 0}};
    uint32_t all = 0;
    if (may_be_common(s, from, alphabet))
        all = alphabet == LN_WORD ? common_of(s, from, word, LN_COUNT(word))
                                  : common_of(s, from, gr_plain_kinds, GR_PLAIN_KINDS);
    if (s->no_memory || s->full) return 0;
    return s->states[from].common[alphabet] = all;
}

/* ---- memory ---- */

uint64_t gr_states_bytes(const gr_limits *most) {
    const uint64_t lists = (uint64_t)most->waiting * 3 + most->members * 2;
    return most->frames * (sizeof(gr_frame) + sizeof(gr_span_of) + 10 * sizeof(uint32_t)) +
           most->states * (sizeof(gr_state) + 4 * sizeof(uint32_t)) +
           (lists + most->cells) * sizeof(uint32_t);
}

/* Makes frame 0 and state 0. */
static void begin(gr_states *s) {
    if (grow(s, &s->frames, &s->cap_frames, 1, sizeof *s->frames) &&
        grow(s, &s->stamps, &s->cap_stamps, 1, sizeof *s->stamps) &&
        grow(s, &s->after, &s->cap_after, 1, sizeof *s->after)) {
        s->frames[0] = (gr_frame){GR_EMPTY, 0, 0, 0};
        s->stamps[0] = 0;
        s->after[0] = GR_UNKNOWN;
        s->n_frames = 1;
        s->n_found = 0;
        s->free_chars = s->repeats = 0;
        (void)state_of(s);
    }
}

ln_status gr_states_open(gr_states *s, const ln_grammar *g, gr_node root, gr_limits most, uint32_t *first,
                         ln_error *err) {
    *s = (gr_states){.g = g, .most = most};
    *first = 0;
    begin(s);
    if (!s->no_memory) {
        begin_expansion(s);
        expand(s, frame_of(s, root, 0, 0));
        *first = state_of(s);
    }
    return *first != 0 ? LN_OK : gr_states_fault(s, err);
}

void gr_states_close(gr_states *s) {
    void *all[] = {s->frames,
                   s->stamps,
                   s->after,
                   s->group_after,
                   s->groups,
                   s->members,
                   s->states,
                   s->waiting,
                   s->next,
                   s->work,
                   s->found,
                   s->joined,
                   s->keys,
                   s->frame_table.slots,
                   s->group_table.slots,
                   s->state_table.slots};
    for (size_t i = 0; i < LN_COUNT(all); i++) ln_free(all[i]);
    *s = (gr_states){0};
}

/* The old states while a few of them are moved, and the new numbers of frames and groups (+ 1; 0: none). */
typedef struct moving {
    gr_states old;
    uint32_t *frames, *groups;
} moving;

static uint32_t moved_next(gr_states *s, const moving *m, uint32_t next);
/* Each frame below is a call, at most GR_MOST_DEPTH of them. */
static uint32_t moved_frame(gr_states *s, const moving *m, uint32_t f) {
    if (f == 0) return 0;
    if (m->frames[f]) return m->frames[f] - 1;
    const gr_frame o = m->old.frames[f];
    const uint32_t to = frame_of(s, o.node, o.count, moved_next(s, m, o.next));
    if (to != CLOSED) m->frames[f] = to + 1;
    return to;
}
static uint32_t moved_next(gr_states *s, const moving *m, uint32_t next) {
    if (!(next & GR_GROUP)) return moved_frame(s, m, next);
    const uint32_t k = next & ~GR_GROUP;
    if (m->groups[k]) return (m->groups[k] - 1) | GR_GROUP;
    const gr_span_of o = m->old.groups[k];
    uint32_t *list = ln_alloc(o.n * sizeof *list);
    if (!list) return s->no_memory = true, CLOSED;
    bool ok = true;
    for (uint32_t i = 0; i < o.n; i++) {
        list[i] = moved_frame(s, m, m->old.members[o.at + i]);
        ok = ok && list[i] != CLOSED;
    }
    const uint32_t to = ok ? group_of(s, list, o.n) : CLOSED;
    if (to != CLOSED) m->groups[k] = (to & ~GR_GROUP) + 1;
    ln_free(list);
    return to;
}

static void move_states(gr_states *s, const moving *m, uint32_t *keep, size_t n) {
    begin(s);
    for (size_t i = 0; i < n && !s->no_memory && !s->full; i++) {
        const gr_state o = m->old.states[keep[i]];
        s->n_found = 0;
        s->free_chars = o.stops ? 0 : o.free_chars;
        s->repeats = o.stops ? o.free_chars : 0;
        for (uint32_t k = 0; k < o.n; k++) {
            const uint32_t f = moved_frame(s, m, m->old.waiting[o.at + k]);
            if (f != CLOSED && grow(s, &s->found, &s->cap_found, s->n_found + 1, sizeof *s->found))
                s->found[s->n_found++] = f;
        }
        keep[i] = state_of(s);
    }
}

void gr_states_forget(gr_states *s, uint32_t *keep, size_t n) {
    moving m = {.old = *s};
    m.frames = ln_zalloc(m.old.n_frames + 1, sizeof *m.frames);
    m.groups = ln_zalloc(m.old.n_groups + 1, sizeof *m.groups);
    *s = (gr_states){.g = m.old.g, .most = m.old.most, .no_memory = !m.frames || !m.groups};
    if (!s->no_memory) move_states(s, &m, keep, n);
    ln_free(m.frames);
    ln_free(m.groups);
    if (s->no_memory) { /* keep what was */
        gr_states_close(s);
        *s = m.old;
        s->no_memory = true;
        return;
    }
    gr_states_close(&m.old);
}

ln_status gr_states_fault(gr_states *s, ln_error *err) {
    const bool no_memory = s->no_memory, full = s->full;
    s->no_memory = s->full = false;
    if (no_memory) return LN_OOM(err, "the states of a grammar");
    if (!full)
        return ln_fail(err, LN_EINVALID,
                       "the grammar is nested deeper than %d expressions; nest fewer groups or brackets",
                       GR_MOST_DEPTH);
    return ln_fail(err, LN_EINVALID,
                   "the grammar needs more than %u states at once; use fewer alternatives, or lower bounds "
                   "of "
                   "repetitions",
                   s->most.states);
}
