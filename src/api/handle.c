/* The table of handles: 4,096 slots under one lock. A ticket is (generation << 16 | index << 3 | kind) as a pointer value.
 *
 * A slot whose handle was closed while it is used keeps its object and is taken by nobody until the last use ends. A model's tokenizer has
 * no slot of its own: its ticket is the model's with the kind of a tokenizer. */
#include "../engine/engine.h"
#include "../text/template.h"
#include "handle.h"

#include <pthread.h>

#define SLOTS 4096

typedef struct slot {
    void *object;              /* NULL: the slot is free */
    _Atomic uint64_t generation;
    ln_handle_kind kind;
    bool open;
    int uses;                  /* running calls and handles on top; an open handle is not counted */
    const void *base;          /* used as long as the object lives */
    _Atomic(uintptr_t) stop;
} slot;

static slot slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A child of fork finds the lock free and the table whole: fork waits for whoever is changing it, which is never for long. */
static void before_fork(void) { (void)pthread_mutex_lock(&lock); }
static void after_fork(void) { (void)pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(before_fork, after_fork, after_fork); }

static const char *const kinds[] = {"", "model", "engine", "tokenizer", "template"};

static slot *at(const void *ticket) { return &slots[((uintptr_t)ticket >> 3) % SLOTS]; }

static slot *find(ln_handle_kind kind, const void *ticket) {
    uintptr_t t = (uintptr_t)ticket;
    slot *s = at(ticket);
    return (t & 7) == (uintptr_t)kind && s->object && s->open && s->kind == kind && s->generation == t >> 16 ? s : NULL;
}

const void *ln_handle_part(const void *model, ln_handle_kind part) { return (const void *)(((uintptr_t)model & ~(uintptr_t)7) | (uintptr_t)part); }

/* The slot of the model whose tokenizer the ticket is. */
static slot *find_tokenizer(const void *ticket) { return ((uintptr_t)ticket & 7) == LN_HANDLE_TOKENIZER ? find(LN_HANDLE_MODEL, ln_handle_part(ticket, LN_HANDLE_MODEL)) : NULL; }

ln_status ln_handle_new(ln_handle_kind kind, void *object, const void *base, void **ticket, ln_error *err) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS && !found; i++) {
        slot *s = &slots[i];
        if (s->object) continue;
        s->object = object;
        s->kind = kind;
        s->open = true;
        s->uses = 0;
        s->base = base;
        *ticket = (void *)(uintptr_t)(++s->generation << 16 | i << 3 | (uintptr_t)kind);
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found ? LN_OK : ln_fail(err, LN_EMEMORY, "%d handles are open, no more fit; close some", SLOTS);
}

ln_status ln_handle_use(ln_handle_kind kind, const void *ticket, void **object, ln_error *err) {
    pthread_mutex_lock(&lock);
    slot *s = find(kind, ticket);
    slot *whole = !s && kind == LN_HANDLE_TOKENIZER ? find_tokenizer(ticket) : NULL;
    bool busy = s && kind == LN_HANDLE_ENGINE && s->uses > 0;
    *object = s && !busy ? s->object : whole ? ((ln_loaded *)whole->object)->tok : NULL;
    if (whole) s = whole;
    if (*object) s->uses++;
    pthread_mutex_unlock(&lock);
    if (*object) return LN_OK;
    if (busy) return ln_fail(err, LN_EUSAGE, "the engine is in use: one call at a time, and none from its own callback");
    return ln_fail(err, LN_EUSAGE, "the %s handle is %s", kinds[kind], ticket ? "closed or of another kind" : "NULL");
}

static void free_object(ln_handle_kind kind, void *object) {
    ln_loaded *m = object;
    ln_eng *e = object;
    ln_tok *t = object;
    ln_tmpl *p = object;
    if (kind == LN_HANDLE_MODEL) ln_loaded_close(&m);
    if (kind == LN_HANDLE_ENGINE) ln_eng_close(&e);
    if (kind == LN_HANDLE_TOKENIZER) ln_tok_close(&t);
    if (kind == LN_HANDLE_TEMPLATE) ln_tmpl_close(&p);
}

/* Ends one use, or the handle's own hold; the last one out frees, and then ends the use of what the object stood on. */
static void leave(const void *ticket, ln_handle_kind closing) {
    while (ticket) {
        pthread_mutex_lock(&lock);
        slot *s = closing ? find(closing, ticket) : at(ticket);
        void *object = NULL;
        const void *base = NULL;
        ln_handle_kind kind = LN_HANDLE_NONE;
        if (s && closing) {
            ln_handle_stop(ticket, true);
            s->open = false;
        } else if (s) {
            s->uses--;
        }
        if (s && !s->open && s->uses == 0) {
            object = s->object, base = s->base, kind = s->kind;
            s->object = NULL;
        }
        pthread_mutex_unlock(&lock);
        if (object) free_object(kind, object);
        ticket = base;
        closing = LN_HANDLE_NONE;
    }
}

void ln_handle_done(const void *ticket) { leave(ticket, LN_HANDLE_NONE); }

void ln_handle_close(ln_handle_kind kind, const void *ticket) { leave(ticket, kind); }

/* Only the newest generation's wish may stand: a late one for a closed handle must not take the place of its successor's. */
void ln_handle_stop(const void *ticket, bool stop) {
    slot *s = at(ticket);
    uintptr_t mine = (uintptr_t)ticket, now = atomic_load(&s->stop);
    if ((mine & 7) != LN_HANDLE_ENGINE || mine >> 16 != atomic_load(&s->generation)) return;
    if (!stop && now == mine) atomic_compare_exchange_strong(&s->stop, &now, 0);
    while (stop && now < mine && !atomic_compare_exchange_weak(&s->stop, &now, mine)) {}
}

const _Atomic(uintptr_t) *ln_handle_stop_word(const void *ticket) { return &at(ticket)->stop; }
