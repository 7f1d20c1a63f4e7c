/* The table of backends. Entries are written once, under the lock, and published by the count. */
#include "backend.h"

#include "../child/mlx_lm.h"

#include <string.h>

typedef struct entry {
    ln_backend table;
    char name[LN_BACKEND_NAME], what[128];
} entry;

static entry added[LN_BACKENDS_MOST];
static const ln_backend *all[LN_BACKENDS_MOST] = {&ln_native_backend, &ln_mlx_backend};
static _Atomic int count = 2;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

const ln_backend *ln_registry_find(const char *name) {
    const int n = atomic_load(&count);
    for (int i = 0; name && i < n; i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}

static bool name_is_valid(const char *name) {
    const size_t n = name ? strlen(name) : 0;
    return n > 0 && n < LN_BACKEND_NAME && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

/* Copies a text that may be too long, up to a whole character. */
static void copy_text(char *to, size_t cap, const char *from) {
    size_t n = LN_MIN(strlen(from), cap - 1);
    memcpy(to, from, n);
    to[ln_utf8_valid(to, n)] = '\0';
}

static ln_status add(const ln_backend *b, ln_error *err) {
    const int i = atomic_load(&count);
    if (ln_registry_find(b->name))
        return ln_fail(err, LN_EUSAGE, "a backend named %s is registered already; choose another name",
                       b->name);
    if (i == LN_BACKENDS_MOST)
        return ln_fail(err, LN_EMEMORY, "%d backends are registered, no more fit", LN_BACKENDS_MOST);
    entry *e = &added[i];
    e->table = *b;
    copy_text(e->name, sizeof e->name, b->name);
    copy_text(e->what, sizeof e->what, b->what ? b->what : "");
    e->table.name = e->name;
    e->table.what = e->what;
    all[i] = &e->table;
    atomic_store(&count, i + 1);
    return LN_OK;
}

ln_status ln_registry_add(const ln_backend *b, ln_error *err) {
    char shown[80];
    if (!name_is_valid(b->name))
        return ln_fail(err, LN_EUSAGE, "ln_backend.name: expected 1 to %d of a-z, 0-9, _ and -, found '%s'",
                       LN_BACKEND_NAME - 1,
                       b->name ? ln_excerpt(shown, b->name, strnlen(b->name, 100)) : "NULL");
    if (!b->load || !b->close || !b->generate)
        return ln_fail(err, LN_EUSAGE, "ln_backend: %s: load, close and generate must not be NULL", b->name);
    pthread_mutex_lock(&adding);
    const ln_status st = add(b, err);
    pthread_mutex_unlock(&adding);
    return st;
}

static ln_status is_available(const ln_backend *b, const ln_backend_options *opt, ln_error *err) {
    return b->available ? b->available(b->user, opt, err) : LN_OK;
}

ln_status ln_registry_default(const ln_backend **out, const ln_backend_options *opt, ln_error *err) {
    ln_str reasons = {0};
    const int n = atomic_load(&count);
    for (int i = 0; i < n; i++) {
        ln_error why = {0};
        if (is_available(all[i], opt, &why) == LN_OK) {
            ln_str_free(&reasons);
            *out = all[i];
            return LN_OK;
        }
        ln_str_addf(&reasons, "; %s: %.200s", all[i]->name, why.message);
    }
    const ln_status st = ln_fail(err, LN_EUNSUPPORTED, "none of %d backends is available%.700s", n,
                                 reasons.data ? reasons.data : "");
    ln_str_free(&reasons);
    return st;
}

ln_status ln_registry_each(const ln_backend_options *opt, ln_backend_fn *fn, void *user, ln_error *err) {
    const int n = atomic_load(&count); /* those that fn registers are not reported */
    for (int i = 0; i < n; i++) {
        ln_error why = {0};
        const ln_status st = is_available(all[i], opt, &why);
        const ln_status said = LN_CALLBACK(fn(user, all[i], st == LN_OK ? NULL : why.message, err));
        if (said == LN_ECANCELLED) return LN_OK;
        LN_TRY(said);
    }
    return LN_OK;
}
