/* The table of handles: 4,096 slots under one lock. A ticket is (generation << 16 | index << 2 | kind) as a pointer value. */
#include "handle.h"

#include <pthread.h>

#define SLOTS 4096

static struct slot {
    void *object;
    uint64_t generation;
    ln_handle_kind kind;
} slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const kinds[] = {"", "model", "engine", "tokenizer"};

static struct slot *find(ln_handle_kind kind, const void *ticket) {
    uintptr_t t = (uintptr_t)ticket;
    struct slot *s = &slots[(t >> 2) % SLOTS];
    return (t & 3) == (uintptr_t)kind && s->object && s->kind == kind && s->generation == t >> 16 ? s : NULL;
}

ln_status ln_handle_new(ln_handle_kind kind, void *object, void **ticket, ln_error *err) {
    ln_status st = ln_fail(NULL, LN_EMEMORY, " ");
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS && st != LN_OK; i++) {
        if (slots[i].object) continue;
        slots[i].object = object;
        slots[i].kind = kind;
        slots[i].generation++;
        *ticket = (void *)(uintptr_t)(slots[i].generation << 16 | i << 2 | (uintptr_t)kind);
        st = LN_OK;
    }
    pthread_mutex_unlock(&lock);
    return st == LN_OK ? LN_OK : ln_fail(err, LN_EMEMORY, "%d handles are open, no more fit; close some", SLOTS);
}

ln_status ln_handle_get(ln_handle_kind kind, const void *ticket, void **object, ln_error *err) {
    pthread_mutex_lock(&lock);
    struct slot *s = find(kind, ticket);
    *object = s ? s->object : NULL;
    pthread_mutex_unlock(&lock);
    if (*object) return LN_OK;
    return ln_fail(err, LN_EUSAGE, "the %s handle is %s", kinds[kind], ticket ? "closed or of another kind" : "NULL");
}

void *ln_handle_take(ln_handle_kind kind, const void *ticket) {
    pthread_mutex_lock(&lock);
    struct slot *s = find(kind, ticket);
    void *object = s ? s->object : NULL;
    if (s) s->object = NULL;
    pthread_mutex_unlock(&lock);
    return object;
}
