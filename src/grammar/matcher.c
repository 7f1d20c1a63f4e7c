/* The matcher: how far a text has come, and which tokens of a vocabulary may continue it.
 *
 * What is remembered of the grammar's states is bounded. When it is full, everything but the states that are
 * in use is forgotten. */
#include "states.h"

#include <string.h>

enum { N_MASKS = 16 };
static const gr_limits most = {1 << 15, 1 << 16, 1 << 13, 1 << 17, 1 << 19};

struct ln_matcher {
    const ln_vocabulary *v;
    gr_states s;
    uint32_t *path; /* [longest + 1] states along a token, while a mask is computed */
    uint32_t current;
    bool begun;                /* a token was taken, or text stands before */
    uint64_t *masks;           /* [N_MASKS, words] */
    uint32_t mask_of[N_MASKS]; /* the state of each mask */
    size_t words, next_mask, n_masks;
};

uint64_t ln_matcher_bytes(int64_t n_vocab) {
    const uint64_t words = ((uint64_t)n_vocab + 63) / 64;
    return sizeof(ln_matcher) + gr_states_bytes(&most) + N_MASKS * words * sizeof(uint64_t);
}

ln_status ln_matcher_open(ln_matcher **out, const ln_grammar *g, const ln_vocabulary *v, ln_error *err) {
    ln_matcher *m = *out = ln_zalloc(1, sizeof *m);
    ln_status st;
    if (!m) return LN_OOM(err, "a grammar's matcher");
    m->v = v;
    m->words = ((size_t)v->n_vocab + 63) / 64;
    m->path = ln_zalloc(v->longest + 1, sizeof *m->path);
    m->masks = ln_zalloc(N_MASKS * m->words + 1, sizeof *m->masks);
    if (m->path && m->masks) st = gr_states_open(&m->s, g, g->root, most, &m->current, err);
    else st = LN_OOM(err, "a grammar's matcher");
    if (st != LN_OK) ln_matcher_close(out);
    return st;
}

void ln_matcher_close(ln_matcher **m) {
    if (!*m) return;
    gr_states_close(&(*m)->s);
    ln_free((*m)->path);
    ln_free((*m)->masks);
    ln_free(*m);
    *m = NULL;
}

static bool failed(const ln_matcher *m) { return m->s.no_memory || m->s.full; }

/* Forgets all states but the n of `keep`, the first of which is the current one, and all masks. */
static void forget(ln_matcher *m, uint32_t *keep, size_t n) {
    gr_states_forget(&m->s, keep, n);
    m->current = keep[0];
    m->n_masks = m->next_mask = 0;
    memset(m->mask_of, 0, sizeof m->mask_of);
}

/* ---- texts ---- */

/* The state after a text; 0: it does not fit, or a failure. */
static uint32_t walk(ln_matcher *m, const char *text, size_t bytes) {
    uint32_t at[2] = {m->current, m->current}; /* what is kept when the states are full */
    for (size_t i = 0; i < bytes && at[1] != 0; i++) {
        uint32_t to = gr_step(&m->s, at[1], (unsigned char)text[i]);
        if (m->s.full && !m->s.no_memory) {
            forget(m, at, 2);
            if (!failed(m)) to = gr_step(&m->s, at[1], (unsigned char)text[i]);
        }
        at[1] = failed(m) ? 0 : to;
    }
    return at[1];
}

static ln_status walk_from_here(ln_matcher *m, const char *text, size_t bytes, uint32_t *to, ln_error *err) {
    *to = walk(m, text, bytes);
    return failed(m) ? gr_states_fault(&m->s, err) : LN_OK;
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

/* Whether any `chars` characters of an alphabet may follow a state. */
static bool may_follow(ln_matcher *m, uint32_t state, ln_alphabet alphabet, size_t chars) {
    if (m->s.states[state].free_chars >= chars) return true;
    if (m->s.states[state].stops) return false;
    for (; chars > 0 && state != 0; chars--) {
        const uint32_t to = gr_common_step(&m->s, state, alphabet);
        if (to == state) return true;
        state = to;
    }
    return state != 0;
}

static void set_all(uint64_t *mask, const int32_t *ids, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) mask[ids[i] / 64] |= UINT64_C(1) << (ids[i] % 64);
}

/* The state after a node's byte. If the states are full, all are forgotten that are not on the way. */
static uint32_t step_along(ln_matcher *m, size_t depth, uint8_t byte) {
    uint32_t to = gr_step(&m->s, m->path[depth - 1], byte);
    if (!m->s.full || m->s.no_memory) return to;
    forget(m, m->path, depth);
    return failed(m) ? 0 : gr_step(&m->s, m->path[depth - 1], byte);
}

/* Whether all that is below a node of a slice may follow a state. */
static bool takes_all(ln_matcher *m, const ln_trie_node *p, ln_alphabet alphabet, uint32_t state) {
    const bool inside = p[1].depth > p->depth && (p[1].byte & 0xc0) == 0x80; /* a character goes on */
    return !inside && p->below < LN_TRIE_DEEP && may_follow(m, state, alphabet, p->below);
}

/* Sets the tokens of a tree that may follow. In a slice of an alphabet, tokens below a state that takes so
 * many of its characters are set without a walk. */
static void walk_tokens(ln_matcher *m, const ln_trie *t, ln_alphabet alphabet, bool strips, uint64_t *mask) {
    enum { FEW = 4 };
    for (size_t i = 0; i < t->n;) {
        const ln_trie_node *p = &t->nodes[i];
        const bool dropped = strips && p->depth == 1 && p->byte == ' ';
        const uint32_t to = dropped ? m->current : step_along(m, p->depth, p->byte);
        if (to == 0) {
            if (failed(m)) return;
            i = p->after;
            continue;
        }
        m->path[p->depth] = to;
        if (alphabet != LN_ALPHABETS && p->after - i > FEW && takes_all(m, p, alphabet, to)) {
            set_all(mask, t->ids, p->first, t->nodes[p->after].first);
            i = p->after;
        } else {
            set_all(mask, t->ids, p->first, p[1].first);
            i++;
        }
        if (failed(m)) return;
    }
}

static void find_mask(ln_matcher *m, uint64_t *mask) {
    const ln_vocabulary *v = m->v;
    const bool strips = v->strips_blank && !m->begun;
    m->path[0] = m->current;
    memset(mask, 0, m->words * sizeof *mask);
    for (int k = 0; k < LN_ALL_SLICES && !failed(m); k++) {
        const ln_slice *slice = &v->slices[k];
        const ln_alphabet alphabet = (ln_alphabet)(k / LN_SLICES);
        if (slice->longest == 0) continue;
        if (!strips && may_follow(m, m->current, alphabet, slice->longest))
            for (size_t w = 0; w < m->words; w++) mask[w] |= slice->mask[w];
        else if (!failed(m)) walk_tokens(m, &slice->trie, alphabet, strips, mask);
    }
    if (!failed(m)) walk_tokens(m, &v->other, LN_ALPHABETS, strips, mask);
}

ln_status ln_matcher_mask(ln_matcher *m, const uint64_t **mask, ln_error *err) {
    const int32_t have = m->s.states[m->current].mask;
    if (have >= 0 && (m->begun || !m->v->strips_blank)) {
        *mask = m->masks + (size_t)have * m->words;
        return LN_OK;
    }
    const size_t k = m->next_mask;
    uint64_t *made = m->masks + k * m->words;
    if (m->n_masks == N_MASKS) m->s.states[m->mask_of[k]].mask = -1;
    find_mask(m, made);
    if (m->s.full && !m->s.no_memory) { /* may_follow or the state itself needed more */
        m->s.full = false;
        forget(m, &m->current, 1);
        if (!failed(m)) find_mask(m, made);
    }
    if (failed(m)) return gr_states_fault(&m->s, err);
    *mask = made;
    if (!m->begun && m->v->strips_blank) return LN_OK; /* not for the same state later */
    m->s.states[m->current].mask = (int32_t)k;
    m->mask_of[k] = m->current;
    m->next_mask = (k + 1) % N_MASKS;
    m->n_masks = LN_MAX(m->n_masks, k + 1);
    return LN_OK;
}

bool ln_matcher_complete(const ln_matcher *m) { return m->s.states[m->current].complete; }
bool ln_matcher_final(const ln_matcher *m) {
    return m->s.states[m->current].complete && m->s.states[m->current].n == 1;
}
bool ln_matcher_begins(const ln_matcher *m) { return !m->begun; }
void ln_matcher_follows(ln_matcher *m) { m->begun = true; }
