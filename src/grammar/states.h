/* The states of a grammar: which expressions may continue a text, found when they are first met.
 *
 * A frame says what is still to be matched: an expression, how often it has been repeated, and what comes
 * after it. What comes after is another frame or, where a text can be read in several ways, a group of
 * frames; frame 0 is the end of the text. A state is the list of the frames that wait for a byte, at most one
 * for each set of bytes in the grammar: two frames of one set are joined, and what comes after is the group
 * of both. So a state does not grow with the number of ways in which a text can be read. Frames, groups and
 * states are stored once each, and a transition is computed once for each state and class of bytes. */
#ifndef LN_GRAMMAR_STATES_H
#define LN_GRAMMAR_STATES_H

#include "grammar_build.h"

/* The most that is stored before something must be forgotten. */
typedef struct gr_limits {
    uint32_t frames, members, states, waiting, cells;
} gr_limits;
/* A frame that needs more than GR_MOST_DEPTH others to be completed is closed: brackets nest about 100
 * deep. */
enum { GR_MOST_DEPTH = 512 };
#define GR_UNKNOWN UINT32_MAX

typedef struct gr_frame {
    uint32_t node, count, next, depth; /* next: a frame, or GR_GROUP and the number of a group */
} gr_frame;
#define GR_GROUP UINT32_C(0x80000000)
typedef struct gr_span_of {
    uint32_t at, n;
} gr_span_of;
typedef struct gr_state {
    uint32_t at, n;                /* its frames are waiting[at .. at + n), ascending by their expressions */
    int32_t mask;                  /* number of its mask, -1: none; see matcher.c */
    uint32_t common[LN_ALPHABETS]; /* see gr_common_step; GR_UNKNOWN */
    uint32_t free_chars;           /* plain characters of a JSON string that surely may follow */
    bool stops;                    /* ... and after them no further one, of any alphabet */
    bool complete;                 /* the text may end */
} gr_state;

typedef struct gr_table { /* of numbers + 1; 0: free */
    uint32_t *slots;
    size_t n_slots;
} gr_table;

typedef struct gr_states {
    const ln_grammar *g;
    gr_limits most;
    gr_frame *frames;
    uint32_t *stamps; /* [n_frames] the last expansion that met a frame */
    uint32_t *after;  /* [n_frames] the state in which a frame alone is next, GR_UNKNOWN until it is found */
    gr_span_of *groups;
    uint32_t *group_after; /* [n_groups] the state in which a group alone is next */
    uint32_t *members;     /* frames of all groups */
    gr_state *states;
    uint32_t *waiting; /* frames of all states */
    uint32_t *next;    /* [n_states, n_classes] transitions */
    uint32_t *work, *found, *joined;
    uint64_t *keys;
    gr_table frame_table, group_table, state_table;
    size_t n_frames, cap_frames, cap_stamps, cap_after, n_groups, cap_groups, cap_group_after, n_members,
        cap_members, n_states, cap_states, n_waiting, cap_waiting, cap_next, cap_work, n_found, cap_found,
        n_joined, cap_joined, cap_keys;
    uint32_t stamp;
    uint32_t free_chars,
        repeats;          /* of the expansion that runs: by automata, by repetitions of any character */
    bool no_memory, full; /* sticky until gr_states_forget or gr_states_fault */
} gr_states;

/* Opens the states of an expression of a grammar, whose classes and heights are known; *first is the state of
 * the empty text. State 0 is that which nothing continues. The caller closes *s, after an error too. */
ln_status gr_states_open(gr_states *s, const ln_grammar *g, gr_node root, gr_limits most, uint32_t *first,
                         ln_error *err);
void gr_states_close(gr_states *s);
/* The most bytes that states ever take. */
uint64_t gr_states_bytes(const gr_limits *most);
/* Computes a transition that is not known yet. */
uint32_t gr_states_compute(gr_states *s, uint32_t from, unsigned char byte);
/* The state after a byte; 0: none, or a failure (no_memory, full). */
static inline uint32_t gr_step(gr_states *s, uint32_t from, unsigned char byte) {
    const uint32_t to = s->next[(size_t)from * s->g->n_classes + s->g->class_of[byte]];
    return to != GR_UNKNOWN ? to : gr_states_compute(s, from, byte);
}
/* The one state after any character of an alphabet; 0: the states differ, or some character may not follow,
 * or a failure. */
uint32_t gr_common_compute(gr_states *s, uint32_t from, ln_alphabet alphabet);
static inline uint32_t gr_common_step(gr_states *s, uint32_t from, ln_alphabet alphabet) {
    const uint32_t to = s->states[from].common[alphabet];
    return to != GR_UNKNOWN ? to : gr_common_compute(s, from, alphabet);
}
/* Forgets everything but the n states of `keep`, which receive their new numbers. Sets no_memory or full
 * if they leave no space. */
void gr_states_forget(gr_states *s, uint32_t *keep, size_t n);
/* The error of a failure, which it clears. */
ln_status gr_states_fault(gr_states *s, ln_error *err);

#endif
