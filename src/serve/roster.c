/* The models that requests choose by name: the base model first, by its name and its aliases, then its
 * adapters.
 *
 * A roster never changes once it is made: loading or unloading an adapter replaces the server's current one.
 * An exchange keeps the roster that was current when it began, so that the worker that reads its body and the
 * I/O thread that writes its answer see the same list without a lock. Only the I/O thread counts references.
 * Handles of adapters are closed when they leave the current roster; older rosters may still hold them,
 * because the library refuses a closed handle. */
#include "server.h"

#include <string.h>

/* Makes a roster of n names: one block of memory, with the names behind the arrays. */
static roster *roster_new(const server *s, const char *const *names, ln_adapter *const *adapters,
                          const double *scales, size_t n, size_t n_base) {
    size_t bytes = sizeof(roster) + n * (sizeof *names + sizeof(ln_adapter *) + sizeof(double));
    for (size_t i = 0; i < n; i++) bytes += strlen(names[i]) + 1;
    roster *r = ln_zalloc(1, bytes);
    if (!r) return NULL;
    double *own_scales = (double *)(void *)(r + 1);
    ln_adapter **own_adapters = (ln_adapter **)(void *)(own_scales + n);
    const char **own_names = (const char **)(void *)(own_adapters + n);
    char *text = (char *)(own_names + n);
    for (size_t i = 0; i < n; i++) {
        const size_t k = strlen(names[i]) + 1;
        memcpy(text, names[i], k);
        own_names[i] = text;
        own_adapters[i] = adapters[i];
        own_scales[i] = scales[i];
        text += k;
    }
    *r = (roster){.n_refs = 1,
                  .n = n,
                  .n_base = n_base,
                  .names = own_names,
                  .adapters = own_adapters,
                  .scales = own_scales,
                  .target = s->target};
    r->target.names = own_names;
    r->target.n_names = n;
    r->target.adapters = (const ln_adapter *const *)own_adapters;
    return r;
}

roster *roster_hold(roster *r) {
    if (r) r->n_refs++;
    return r;
}

void roster_release(roster *r) {
    if (r && --r->n_refs == 0) ln_free(r);
}

size_t roster_index(const roster *r, const char *name, size_t n) {
    size_t i = 0;
    while (i < r->n && (strlen(r->names[i]) != n || memcmp(r->names[i], name, n) != 0)) i++;
    return i;
}

/* Replaces the current roster by one with these entries. */
static ln_status replace(server *s, const char *const *names, ln_adapter *const *adapters,
                         const double *scales, size_t n, size_t n_base, ln_error *err) {
    roster *r = roster_new(s, names, adapters, scales, n, n_base);
    if (!r) return LN_OOM(err, "the list of adapters");
    roster_release(s->roster);
    s->roster = r;
    return LN_OK;
}

static bool has_name(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

ln_status roster_open(server *s, ln_error *err) {
    const size_t most = 1 + s->o->n_aliases;
    const char **names = ln_alloc(most * sizeof *names);
    ln_adapter **none = ln_zalloc(most, sizeof *none);
    double *ones = ln_alloc(most * sizeof *ones);
    size_t n = 0;
    ln_status st = names && none && ones ? LN_OK : LN_OOM(err, "the names of the model");
    if (st == LN_OK) {
        names[n++] = s->name;
        for (size_t i = 0; i < s->o->n_aliases; i++) {
            const char *alias = s->o->aliases[i];
            if (strcmp(alias, "*") == 0) s->target.any_name = true;
            else if (!has_name(names, n, alias)) names[n++] = alias;
        }
        for (size_t i = 0; i < n; i++) ones[i] = 1;
        st = replace(s, names, none, ones, n, n, err);
    }
    ln_free((void *)names), ln_free((void *)none), ln_free(ones);
    return st;
}

ln_status roster_put(server *s, const char *name, ln_adapter *adapter, double scale, ln_error *err) {
    const roster *old = s->roster;
    const size_t at = roster_index(old, name, strlen(name)), n = LN_MAX(old->n, at + 1);
    const char **names = ln_alloc(n * sizeof *names);
    ln_adapter **adapters = ln_alloc(n * sizeof *adapters);
    double *scales = ln_alloc(n * sizeof *scales);
    ln_status st = names && adapters && scales ? LN_OK : LN_OOM(err, "the list of adapters");
    if (st == LN_OK) {
        memcpy(names, old->names, old->n * sizeof *names);
        memcpy(adapters, old->adapters, old->n * sizeof *adapters);
        memcpy(scales, old->scales, old->n * sizeof *scales);
        ln_adapter *before = at < old->n && old->adapters[at] != adapter ? old->adapters[at] : NULL;
        names[at] = name;
        adapters[at] = adapter;
        scales[at] = scale;
        st = replace(s, names, adapters, scales, n, old->n_base, err);
        if (st == LN_OK) ln_adapter_close(&before);
    }
    ln_free((void *)names), ln_free(adapters), ln_free(scales);
    return st;
}

ln_status roster_remove(server *s, size_t i, ln_error *err) {
    const roster *now = s->roster;
    const size_t after = now->n - i - 1;
    ln_adapter *gone = now->adapters[i];
    /* a copy of the list, from which entry i is removed */
    roster *r = roster_new(s, now->names, now->adapters, now->scales, now->n, now->n_base);
    if (!r) return LN_OOM(err, "the list of adapters");
    memmove(r->names + i, r->names + i + 1, after * sizeof *r->names);
    memmove(r->adapters + i, r->adapters + i + 1, after * sizeof *r->adapters);
    memmove(r->scales + i, r->scales + i + 1, after * sizeof *r->scales);
    r->n = r->target.n_names = now->n - 1;
    roster_release(s->roster);
    s->roster = r;
    ln_adapter_close(&gone);
    return LN_OK;
}

void roster_close(server *s) {
    for (size_t i = s->roster ? s->roster->n_base : 0; s->roster && i < s->roster->n; i++)
        ln_adapter_close(&s->roster->adapters[i]);
    roster_release(s->roster);
    s->roster = NULL;
}

ln_status roster_check(const exchange *x, size_t model, ln_status st, wire_error *why) {
    ln_adapter_info *m = st != LN_OK && model >= x->roster->n_base ? ln_zalloc(1, sizeof *m) : NULL;
    ln_error err;
    if (m) m->size = sizeof *m;
    if (m && ln_adapter_describe(x->roster->adapters[model], m, &err) == LN_EUSAGE) {
        (void)wire_refuse(why, "model", "the adapter '%s' was unloaded meanwhile", x->roster->names[model]);
        why->http = 404;
        why->code = "model_not_found";
        st = LN_EINVALID;
    }
    ln_free(m);
    return st;
}
