/* The table of handles: 16,384 slots under one lock. A handle is (generation << 20 | index << 4 | kind) as a
 * pointer value. Free slots are in a list; those that were never used follow the last used one. Slots are
 * mapped a part at a time when they are first used, and never unmapped: as a static array they would take so
 * much of a process's data that the kernel kills it under a small `ulimit -d` before it can report anything.
 *
 * A slot whose handle was closed while calls use it keeps its object, and is not reused, until the last
 * reference is released. A model's tokenizer has no slot of its own: its handle is the model's with the kind
 * of a tokenizer. */
#include "handle.h"

#include "../base/stop_count.h"

#include <pthread.h>
#include <sys/mman.h>

enum { SLOTS = 16384, PART = 256, KIND_BITS = 4, INDEX_BITS = 16, KINDS = (1 << KIND_BITS) - 1 };

typedef struct slot {
    ln_handle_object o; /* o.object NULL: the slot is free */
    _Atomic uint64_t generation;
    ln_handle_kind kind;
    bool open;
    int uses;      /* references of running calls and of dependent handles; the open handle is not counted */
    int next_free; /* of a free slot: index + 1 of the next one; 0: none */
    _Atomic(uintptr_t) stop;
    atomic_bool closed; /* the handle was closed: its stop request stays */
} slot;

static _Atomic(slot *) parts[SLOTS / PART];
static int first_free; /* index + 1 of the first free slot that was used before; 0: none */
static int n_used;     /* slots that were ever used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A forked child finds the lock free and the table consistent: fork waits for the thread that holds the lock,
 * which no thread does for long. */
static void before_fork(void) { (void)pthread_mutex_lock(&lock); }
static void after_fork(void) { (void)pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static const char *const kinds[] = {
    "",      "model",   "engine", "tokenizer", "template", "request", "model of a backend",
    "graph", "adapter", "trainer"};

static int index_of(const void *handle) { return (int)(((uintptr_t)handle >> KIND_BITS) % SLOTS); }
/* Returns the slot of a handle; NULL if no handle can be of it yet. Async-signal-safe. */
static slot *at(const void *handle) {
    slot *part = atomic_load(&parts[index_of(handle) / PART]);
    return part ? &part[index_of(handle) % PART] : NULL;
}
static uintptr_t kind_of(const void *handle) { return (uintptr_t)handle & KINDS; }
static uintptr_t generation_of(const void *handle) { return (uintptr_t)handle >> (KIND_BITS + INDEX_BITS); }

/* The slot of an open handle of this kind; NULL for any other value. Call it under the lock. */
static slot *find(ln_handle_kind kind, const void *handle) {
    slot *s = at(handle);
    return s && kind_of(handle) == (uintptr_t)kind && s->o.object && s->open && s->kind == kind &&
                   s->generation == generation_of(handle)
               ? s
               : NULL;
}

const void *ln_handle_part(const void *model, ln_handle_kind part) {
    return (const void *)(((uintptr_t)model & ~(uintptr_t)KINDS) | (uintptr_t)part);
}

/* The slot of the model whose tokenizer this handle names; NULL for any other value. */
static slot *find_tokenizer(const void *handle) {
    return kind_of(handle) == LN_HANDLE_TOKENIZER
               ? find(LN_HANDLE_MODEL, ln_handle_part(handle, LN_HANDLE_MODEL))
               : NULL;
}

/* Returns slot i, whose part is mapped when its first slot is used; NULL: the system gave no memory. */
static slot *slot_at(int i) {
    slot *part = atomic_load(&parts[i / PART]);
    if (!part) {
        void *p = mmap(NULL, PART * sizeof *part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return NULL;
        part = p;
        atomic_store(&parts[i / PART], part);
    }
    return &part[i % PART];
}

ln_status ln_handle_new(ln_handle_kind kind, const ln_handle_object *o, void **handle, ln_error *err) {
    pthread_mutex_lock(&lock);
    const int i = first_free ? first_free - 1 : n_used < SLOTS ? n_used : -1;
    slot *s = i >= 0 ? slot_at(i) : NULL;
    if (s) {
        if (first_free) first_free = s->next_free;
        else n_used++;
        s->o = *o;
        s->kind = kind;
        s->open = true;
        atomic_store(&s->closed, false);
        s->uses = 0;
        *handle = (void *)(uintptr_t)(++s->generation << (KIND_BITS + INDEX_BITS) | (uint64_t)i << KIND_BITS |
                                      (uint64_t)kind);
    }
    pthread_mutex_unlock(&lock);
    if (s) return LN_OK;
    return i < 0 ? ln_fail(err, LN_EMEMORY, "%d handles are open, no more fit; close some", SLOTS)
                 : LN_OOM(err, "the table of handles");
}

ln_status ln_handle_use(ln_handle_kind kind, const void *handle, void **object, ln_error *err) {
    pthread_mutex_lock(&lock);
    slot *s = find(kind, handle);
    slot *whole = !s && kind == LN_HANDLE_TOKENIZER ? find_tokenizer(handle) : NULL;
    *object = s ? s->o.object : whole ? whole->o.tokenizer : NULL;
    if (whole) s = whole;
    if (*object) s->uses++;
    pthread_mutex_unlock(&lock);
    if (*object) return LN_OK;
    return ln_fail(err, LN_EUSAGE, "the %s handle is %s", kinds[kind],
                   handle ? "closed or of another kind" : "NULL");
}

/* Releases one reference or, with `closing`, the open handle itself. The last release frees the object and
 * then releases its reference to the base handle, in a loop. */
static void leave(const void *handle, ln_handle_kind closing) {
    while (handle) {
        pthread_mutex_lock(&lock);
        slot *s = closing ? find(closing, handle) : at(handle);
        ln_handle_object gone = {0};
        const int i = index_of(handle);
        if (s && closing) {
            atomic_store(&s->closed, true);
            ln_handle_stop(handle, true);
            s->open = false;
        } else if (s) {
            s->uses--;
        }
        if (s && !s->open && s->uses == 0) {
            gone = s->o;
            s->o.object = NULL;
            s->next_free = first_free;
            first_free = i + 1;
        }
        pthread_mutex_unlock(&lock);
        if (gone.object) gone.free(gone.object);
        handle = gone.base;
        closing = LN_HANDLE_NONE;
    }
}

void ln_handle_done(const void *handle) { leave(handle, LN_HANDLE_NONE); }

void ln_handle_close(ln_handle_kind kind, const void *handle) { leave(handle, kind); }

bool ln_handle_is(ln_handle_kind kind, const void *handle) { return kind_of(handle) == (uintptr_t)kind; }

/* A stop request is kept only for the newest generation of a slot: a late request for a closed handle must
 * not replace that of its successor. A newer handle of a slot has a larger value, because the generation is
 * in its high bits. The stop of a close stays: `closed` is set before it and read after clearing, so that one
 * of the two writes it last. */
void ln_handle_stop(const void *handle, bool stop) {
    slot *s = at(handle);
    uintptr_t mine = (uintptr_t)handle, now = mine;
    if (kind_of(handle) != LN_HANDLE_ENGINE && kind_of(handle) != LN_HANDLE_REQUEST &&
        kind_of(handle) != LN_HANDLE_BACKEND)
        return;
    if (!s || generation_of(handle) != atomic_load(&s->generation)) return;
    if (!stop) atomic_compare_exchange_strong(&s->stop, &now, 0);
    if (!stop && !atomic_load(&s->closed)) return;
    now = atomic_load(&s->stop);
    while (now < mine && !atomic_compare_exchange_weak(&s->stop, &now, mine)) {
    }
    atomic_fetch_add(&ln_stop_count, 1);
}

const _Atomic(uintptr_t) *ln_handle_stop_word(const void *handle) { return &at(handle)->stop; }
