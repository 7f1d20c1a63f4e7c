/* The matcher: follows all ways through a grammar at once.
 *
 * A frame says what is still to be matched: an expression, how often it has been repeated, and the frame that
 * comes after it; frame 0 is the end of the text. A frame that waits for a byte holds a set of bytes. A state
 * is the ascending list of the frames that wait, with frame 0 among them where the text may end; state 0 has
 * none, so that nothing continues the text. Frames and states are stored once each, and a transition is
 * computed once for each state and class of bytes.
 *
 * What is remembered is bounded. When it is full, everything but the current state is forgotten. */
#include "grammar_build.h"

#include <stdlib.h>
#include <string.h>

/* A frame that needs more than MOST_DEPTH others to be completed is closed: brackets nest about 100 deep. */
enum { MOST_FRAMES = 1 << 15, MOST_STATES = 2048, MOST_WAITING = 1 << 17, MOST_DEPTH = 512, N_MASKS = 16 };
#define UNKNOWN UINT32_MAX
#define CLOSED  UINT32_MAX /* instead of a frame: too deep */

typedef struct frame {
    uint32_t node, count, next, depth;
} frame;
typedef struct state {
    uint32_t at, n; /* its frames are waiting[at .. at + n) */
    int32_t mask;   /* number of its mask, -1: none */
    bool complete;
} state;

struct ln_matcher {
    const ln_grammar *g;
    const ln_vocabulary *v;
    frame *frames;
    uint32_t *stamps; /* [n_frames] the last expansion that met a frame */
    state *states;
    uint32_t *waiting; /* frames of all states */
    uint32_t *next;    /* [n_states, n_classes] transitions */
    uint32_t *work, *found;
    uint32_t *path; /* [longest + 1] states along a token, while a mask is computed */
    size_t n_frames, cap_frames, cap_stamps, n_states, cap_states, n_waiting, cap_waiting, cap_next, cap_work,
        n_found, cap_found;
    uint32_t frame_slots[2 * MOST_FRAMES],
        state_slots[2 * MOST_STATES]; /* hash tables: number + 1, 0: free */
    uint32_t stamp, current;
    bool begun;                /* a token was taken, or text stands before */
    uint64_t *masks;           /* [N_MASKS, words] */
    uint32_t mask_of[N_MASKS]; /* the state of each mask */
    size_t words, next_mask, n_masks;
    bool no_memory, full; /* of the operation that runs */
};

uint64_t ln_matcher_bytes(int64_t n_vocab) {
    const uint64_t words = ((uint64_t)n_vocab + 63) / 64;
    return sizeof(ln_matcher) + MOST_FRAMES * (sizeof(frame) + sizeof(uint32_t)) +
           MOST_STATES * sizeof(state) + MOST_WAITING * 3 * sizeof(uint32_t) +
           (uint64_t)MOST_STATES * 256 * sizeof(uint32_t) + N_MASKS * words * sizeof(uint64_t);
}

static bool grow(ln_matcher *m, void *pp, size_t *cap, size_t need, size_t item) {
    void *p;
    memcpy(&p, pp, sizeof p);
    const bool ok = ln_grow(&p, cap, need, item, NULL) == LN_OK;
    memcpy(pp, &p, sizeof p);
    m->no_memory = m->no_memory || !ok;
    return ok;
}

/* ---- frames ---- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}
static size_t frame_slot(const frame *f) {
    return mix(mix(mix(1, f->node), f->count), f->next) & (2 * MOST_FRAMES - 1);
}

/* The number of a frame; CLOSED when it is too deep, or after a failure. */
static uint32_t frame_of(ln_matcher *m, uint32_t node, uint32_t count, uint32_t next) {
    if (next == CLOSED) return CLOSED;
    const frame f = {node, count, next, m->frames[next].depth + 1};
    size_t at = frame_slot(&f);
    for (; m->frame_slots[at]; at = (at + 1) & (2 * MOST_FRAMES - 1)) {
        const frame *o = &m->frames[m->frame_slots[at] - 1];
        if (o->node == node && o->count == count && o->next == next) return m->frame_slots[at] - 1;
    }
    if (m->frames[next].depth + m->g->height[node] > MOST_DEPTH)
        return CLOSED; /* it could not be completed */
    if (m->n_frames >= MOST_FRAMES) return m->full = true, CLOSED;
    if (!grow(m, &m->frames, &m->cap_frames, m->n_frames + 1, sizeof *m->frames)) return CLOSED;
    if (!grow(m, &m->stamps, &m->cap_stamps, m->n_frames + 1, sizeof *m->stamps)) return CLOSED;
    m->frames[m->n_frames] = f;
    m->stamps[m->n_frames] = 0;
    m->frame_slots[at] = (uint32_t)++m->n_frames;
    return (uint32_t)m->n_frames - 1;
}

static bool push(ln_matcher *m, size_t *n, uint32_t f) {
    if (f == CLOSED) return true;
    if (!grow(m, &m->work, &m->cap_work, *n + 1, sizeof *m->work)) return false;
    m->work[(*n)++] = f;
    return true;
}

/* Replaces a frame by what its expression begins with. */
static void open_frame(ln_matcher *m, uint32_t number, size_t *n) {
    const frame f = m->frames[number];
    const gr_expr *e = &m->g->exprs[f.node];
    switch (e->kind) {
    case GR_IS_EMPTY: (void)push(m, n, f.next); break;
    case GR_IS_SEQ: (void)push(m, n, frame_of(m, e->a, 0, frame_of(m, e->b, 0, f.next))); break;
    case GR_IS_ALT:
        (void)push(m, n, frame_of(m, e->a, 0, f.next));
        (void)push(m, n, frame_of(m, e->b, 0, f.next));
        break;
    case GR_IS_RULE: (void)push(m, n, frame_of(m, e->a, 0, f.next)); break;
    case GR_IS_REPEAT: {
        /* without an upper bound, repetitions beyond the lower one are all alike */
        const uint32_t done = e->max == GR_UNBOUNDED ? LN_MIN(f.count + 1, e->min) : f.count + 1;
        if (f.count >= e->min) (void)push(m, n, f.next);
        if (f.count < e->max) (void)push(m, n, frame_of(m, e->a, 0, frame_of(m, f.node, done, f.next)));
        break;
    }
    default: break; /* GR_IS_NOTHING */
    }
}

/* Adds the frames that wait, of those that the frame `first` leads to without a byte, to m->found. */
static void expand(ln_matcher *m, uint32_t first) {
    size_t n = 0;
    (void)push(m, &n, first);
    while (n > 0 && !m->no_memory && !m->full) {
        const uint32_t f = m->work[--n];
        if (m->stamps[f] == m->stamp) continue;
        m->stamps[f] = m->stamp;
        if (f != 0 && m->g->exprs[m->frames[f].node].kind != GR_IS_SET) {
            open_frame(m, f, &n);
            continue;
        }
        if (grow(m, &m->found, &m->cap_found, m->n_found + 1, sizeof *m->found)) m->found[m->n_found++] = f;
    }
}

/* ---- states ---- */

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static size_t state_slot(const uint32_t *frames, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = mix(h, frames[i]);
    return h & (2 * MOST_STATES - 1);
}

static bool add_state(ln_matcher *m, size_t slot) {
    const size_t n = m->n_found, classes = m->g->n_classes;
    if (m->n_states >= MOST_STATES || m->n_waiting + n > MOST_WAITING) return m->full = true, false;
    if (!grow(m, &m->waiting, &m->cap_waiting, m->n_waiting + n, sizeof *m->waiting) ||
        !grow(m, &m->states, &m->cap_states, m->n_states + 1, sizeof *m->states) ||
        !grow(m, &m->next, &m->cap_next, (m->n_states + 1) * classes, sizeof *m->next))
        return false;
    if (n > 0) memcpy(m->waiting + m->n_waiting, m->found, n * sizeof *m->found);
    m->states[m->n_states] = (state){(uint32_t)m->n_waiting, (uint32_t)n, -1, n > 0 && m->found[0] == 0};
    memset(m->next + m->n_states * classes, 0xff, classes * sizeof *m->next); /* UNKNOWN */
    m->n_waiting += n;
    m->state_slots[slot] = (uint32_t)++m->n_states;
    return true;
}

/* The number of the state whose frames are m->found; 0 after a failure. */
static uint32_t state_of(ln_matcher *m) {
    if (m->no_memory || m->full) return 0;
    if (m->n_found > 1) qsort(m->found, m->n_found, sizeof *m->found, ascending);
    size_t at = state_slot(m->found, m->n_found);
    for (; m->state_slots[at]; at = (at + 1) & (2 * MOST_STATES - 1)) {
        const state *s = &m->states[m->state_slots[at] - 1];
        if (s->n == m->n_found &&
            (s->n == 0 || memcmp(m->waiting + s->at, m->found, s->n * sizeof *m->found) == 0))
            return m->state_slots[at] - 1;
    }
    return add_state(m, at) ? (uint32_t)m->n_states - 1 : 0;
}

static void begin_expansion(ln_matcher *m) {
    m->n_found = 0;
    if (++m->stamp == 0) { /* stamps would repeat */
        memset(m->stamps, 0, m->n_frames * sizeof *m->stamps);
        m->stamp = 1;
    }
}

static uint32_t compute_step(ln_matcher *m, uint32_t from, unsigned c) {
    const size_t at = m->states[from].at, n = m->states[from].n;
    begin_expansion(m);
    for (size_t i = 0; i < n; i++) {
        const uint32_t f = m->waiting[at + i];
        if (f == 0) continue;
        const gr_bytes *set = &m->g->sets[m->g->exprs[m->frames[f].node].a];
        if (set->bits[c / 64] >> (c % 64) & 1) expand(m, m->frames[f].next);
    }
    return state_of(m);
}

/* The state after a byte. */
static inline uint32_t step(ln_matcher *m, uint32_t from, unsigned char byte) {
    const size_t at = (size_t)from * m->g->n_classes + m->g->class_of[byte];
    if (m->next[at] != UNKNOWN) return m->next[at];
    const uint32_t to = compute_step(m, from, byte);
    if (!m->no_memory && !m->full) m->next[at] = to;
    return to;
}

/* ---- memory ---- */

/* Forgets the frames that the n of `waiting` do not need, and renumbers both: a frame's successor has a lower
 * number than itself, and keeps one. */
static void keep_frames(ln_matcher *m, uint32_t *waiting, size_t n) {
    if (!grow(m, &m->work, &m->cap_work, m->n_frames, sizeof *m->work)) return;
    begin_expansion(m); /* a stamp marks what is kept */
    for (size_t i = 0; i < n; i++) m->stamps[waiting[i]] = m->stamp;
    for (size_t f = m->n_frames; f-- > 1;)
        if (m->stamps[f] == m->stamp) m->stamps[m->frames[f].next] = m->stamp;
    memset(m->frame_slots, 0, sizeof m->frame_slots);
    size_t kept = 1;
    m->work[0] = 0;
    for (size_t f = 1; f < m->n_frames; f++) {
        if (m->stamps[f] != m->stamp) continue;
        frame moved = m->frames[f];
        moved.next = m->work[moved.next];
        size_t at = frame_slot(&moved);
        while (m->frame_slots[at]) at = (at + 1) & (2 * MOST_FRAMES - 1);
        m->work[f] = (uint32_t)kept;
        m->frames[kept++] = moved;
        m->frame_slots[at] = (uint32_t)kept;
    }
    for (size_t i = 0; i < n; i++) waiting[i] = m->work[waiting[i]];
    m->n_frames = kept;
    memset(m->stamps, 0, kept * sizeof *m->stamps);
    m->stamp = 0;
}

/* Makes state 0, which nothing continues. */
static void no_states(ln_matcher *m) {
    memset(m->state_slots, 0, sizeof m->state_slots);
    memset(m->mask_of, 0, sizeof m->mask_of);
    m->n_states = m->n_waiting = m->n_masks = m->next_mask = 0;
    m->n_found = 0;
    (void)state_of(m);
}

/* Forgets everything but the current state. */
static void forget(ln_matcher *m) {
    const state now = m->states[m->current];
    uint32_t *frames = ln_alloc((now.n + 1) * sizeof *frames);
    if (!frames) {
        m->no_memory = true;
        return;
    }
    if (now.n > 0) memcpy(frames, m->waiting + now.at, now.n * sizeof *frames);
    m->full = false;
    keep_frames(m, frames, now.n);
    if (!m->no_memory) {
        no_states(m);
        if (now.n > 0) memcpy(m->found, frames, now.n * sizeof *frames);
        m->n_found = now.n;
        m->current = state_of(m);
    }
    ln_free(frames);
}

static ln_status fault_of(ln_matcher *m, ln_error *err) {
    const bool no_memory = m->no_memory;
    const bool full = m->full;
    m->no_memory = m->full = false;
    if (no_memory) return LN_OOM(err, "the states of a form");
    if (!full)
        return ln_fail(err, LN_EINVALID,
                       "the form is nested deeper than %d expressions; nest fewer groups or brackets",
                       MOST_DEPTH);
    return ln_fail(err, LN_EINVALID,
                   "the form needs more than %d states at once; use fewer alternatives, or lower bounds of "
                   "repetitions",
                   MOST_STATES);
}

ln_status ln_matcher_open(ln_matcher **out, const ln_grammar *g, const ln_vocabulary *v, ln_error *err) {
    ln_matcher *m = *out = ln_zalloc(1, sizeof *m);
    if (!m) return LN_OOM(err, "a form's matcher");
    m->g = g;
    m->v = v;
    m->words = ((size_t)v->n_vocab + 63) / 64;
    m->path = ln_zalloc(v->longest + 1, sizeof *m->path);
    m->masks = ln_zalloc(N_MASKS * m->words, sizeof *m->masks);
    if (m->path && m->masks && grow(m, &m->frames, &m->cap_frames, 1, sizeof *m->frames) &&
        grow(m, &m->stamps, &m->cap_stamps, 1, sizeof *m->stamps)) {
        m->frames[0] = (frame){GR_EMPTY, 0, 0, 0};
        m->stamps[0] = 0;
        m->n_frames = 1;
        no_states(m);
        begin_expansion(m);
        expand(m, frame_of(m, g->root, 0, 0));
        m->current = state_of(m);
        if (m->current != 0 && !m->no_memory && !m->full) return LN_OK;
    } else {
        m->no_memory = true;
    }
    const ln_status st = fault_of(m, err);
    ln_matcher_close(out);
    return st;
}

void ln_matcher_close(ln_matcher **m) {
    if (!*m) return;
    void *all[] = {(*m)->frames, (*m)->stamps, (*m)->states, (*m)->waiting, (*m)->next,
                   (*m)->work,   (*m)->found,  (*m)->path,   (*m)->masks};
    for (size_t i = 0; i < LN_COUNT(all); i++) ln_free(all[i]);
    ln_free(*m);
    *m = NULL;
}

/* ---- texts ---- */

/* The state after a text; 0: it does not fit, or a failure. */
static uint32_t walk(ln_matcher *m, uint32_t from, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes && from != 0; i++) from = step(m, from, (unsigned char)text[i]);
    return m->no_memory || m->full ? 0 : from;
}

/* The same from the current state, which is forgotten about as far as possible when there is no room. */
static ln_status walk_from_here(ln_matcher *m, const char *text, size_t bytes, uint32_t *to, ln_error *err) {
    *to = walk(m, m->current, text, bytes);
    if (m->full && !m->no_memory) {
        forget(m);
        *to = m->no_memory ? 0 : walk(m, m->current, text, bytes);
    }
    return m->no_memory || m->full ? fault_of(m, err) : LN_OK;
}

/* The text of a token where it stands now: a decoded text may lose a blank at its beginning. */
static const char *text_of(const ln_matcher *m, int32_t id, size_t *bytes) {
    const char *text = m->v->text + m->v->at[id];
    *bytes = m->v->at[id + 1] - m->v->at[id];
    if (m->begun || !m->v->strips_blank || *bytes == 0 || *text != ' ') return text;
    --*bytes;
    return text + 1;
}

static ln_status advance(ln_matcher *m, const char *text, size_t bytes, bool *fits, ln_error *err) {
    uint32_t to;
    *fits = false;
    LN_TRY(walk_from_here(m, text, bytes, &to, err));
    *fits = to != 0;
    if (*fits) m->current = to;
    return LN_OK;
}

ln_status ln_matcher_push(ln_matcher *m, const char *text, size_t bytes, bool *fits, ln_error *err) {
    LN_TRY(advance(m, text, bytes, fits, err));
    m->begun = m->begun || (*fits && bytes > 0);
    return LN_OK;
}

static bool has_text(const ln_matcher *m, int32_t id) {
    return id >= 0 && id < m->v->n_vocab && m->v->at[id + 1] > m->v->at[id];
}

ln_status ln_matcher_take(ln_matcher *m, int32_t id, bool *fits, ln_error *err) {
    size_t bytes;
    *fits = false;
    if (!has_text(m, id)) return LN_OK;
    const char *text = text_of(m, id, &bytes);
    LN_TRY(advance(m, text, bytes, fits, err));
    m->begun = m->begun || *fits;
    return LN_OK;
}

ln_status ln_matcher_allows(ln_matcher *m, int32_t id, bool *fits, ln_error *err) {
    size_t bytes;
    uint32_t to = 0;
    if (has_text(m, id)) {
        const char *text = text_of(m, id, &bytes);
        LN_TRY(walk_from_here(m, text, bytes, &to, err));
    }
    *fits = to != 0;
    return LN_OK;
}

/* ---- masks ---- */

/* Follows all tokens; a prefix that neighbours share is followed once. */
static void find_mask(ln_matcher *m, uint64_t *mask) {
    const ln_vocabulary *v = m->v;
    const bool strips = v->strips_blank && !m->begun;
    size_t alive = 0; /* bytes of the last token that were followed */
    memset(mask, 0, m->words * sizeof *mask);
    m->path[0] = m->current;
    for (size_t i = 0; i < v->n && !m->no_memory && !m->full; i++) {
        const int32_t id = v->ids[i];
        const char *text = v->text + v->at[id];
        const size_t bytes = v->at[id + 1] - v->at[id];
        size_t d = v->common[i];
        if (d > alive) continue; /* the byte that stopped the last token is in the prefix */
        for (; d < bytes; d++) {
            const bool dropped = strips && d == 0 && text[0] == ' ';
            const uint32_t to = dropped ? m->current : step(m, m->path[d], (unsigned char)text[d]);
            if (to == 0) break;
            m->path[d + 1] = to;
        }
        alive = d;
        if (d == bytes) mask[id / 64] |= UINT64_C(1) << (id % 64);
    }
}

ln_status ln_matcher_mask(ln_matcher *m, const uint64_t **mask, ln_error *err) {
    const int32_t have = m->states[m->current].mask;
    if (have >= 0 && (m->begun || !m->v->strips_blank)) {
        *mask = m->masks + (size_t)have * m->words;
        return LN_OK;
    }
    const size_t k = m->next_mask;
    uint64_t *made = m->masks + k * m->words;
    if (m->n_masks == N_MASKS) m->states[m->mask_of[k]].mask = -1;
    find_mask(m, made);
    if (m->full && !m->no_memory) {
        forget(m); /* masks too: the room of `made` is free */
        if (!m->no_memory) find_mask(m, made);
    }
    if (m->no_memory || m->full) return fault_of(m, err);
    *mask = made;
    if (!m->begun && m->v->strips_blank) return LN_OK; /* not for the same state later */
    m->states[m->current].mask = (int32_t)k;
    m->mask_of[k] = m->current;
    m->next_mask = (k + 1) % N_MASKS;
    m->n_masks = LN_MAX(m->n_masks, k + 1);
    return LN_OK;
}

bool ln_matcher_complete(const ln_matcher *m) { return m->states[m->current].complete; }
bool ln_matcher_final(const ln_matcher *m) {
    return m->states[m->current].complete && m->states[m->current].n == 1;
}
bool ln_matcher_begins(const ln_matcher *m) { return !m->begun; }
void ln_matcher_follows(ln_matcher *m) { m->begun = true; }
