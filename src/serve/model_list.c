/* The models that requests choose by name: the base model first, by its name and its aliases, then its
 * adapters.
 *
 * A model list never changes once it is made: loading or unloading an adapter replaces the server's current
 * one. A request keeps the list that was current when it began. So the worker that reads its body and the I/O
 * thread that writes its answer use the same list without a lock. Only the I/O thread counts references.
 * Handles of adapters are closed when they leave the current list; older lists may still hold them, because
 * the library rejects a closed handle. */
#include "server.h"

#include <string.h>

/* Makes a list of n names: one block of memory, with the names behind the arrays. */
static model_list *model_list_new(const server *s, const char *const *names, ln_adapter *const *adapters,
                                  const double *scales, size_t n, size_t n_base) {
    size_t bytes = sizeof(model_list) + n * (sizeof *names + sizeof(ln_adapter *) + sizeof(double));
    for (size_t i = 0; i < n; i++) bytes += strlen(names[i]) + 1;
    model_list *r = ln_zalloc(1, bytes);
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
    *r = (model_list){.n_refs = 1,
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

model_list *model_list_hold(model_list *r) {
    if (r) r->n_refs++;
    return r;
}

void model_list_release(model_list *r) {
    if (r && --r->n_refs == 0) ln_free(r);
}

size_t model_list_index(const model_list *r, const char *name, size_t n) {
    size_t i = 0;
    while (i < r->n && (strlen(r->names[i]) != n || memcmp(r->names[i], name, n) != 0)) i++;
    return i;
}

/* Replaces the current list by one with these entries. */
static ln_status replace(server *s, const char *const *names, ln_adapter *const *adapters,
                         const double *scales, size_t n, size_t n_base, ln_error *err) {
    model_list *r = model_list_new(s, names, adapters, scales, n, n_base);
    if (!r) return LN_OOM(err, "the list of adapters");
    model_list_release(s->models);
    s->models = r;
    return LN_OK;
}

static bool has_name(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

ln_status model_list_open(server *s, ln_error *err) {
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

ln_status model_list_put(server *s, const char *name, ln_adapter *adapter, double scale, ln_error *err) {
    const model_list *old = s->models;
    const size_t at = model_list_index(old, name, strlen(name)), n = LN_MAX(old->n, at + 1);
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

ln_status model_list_remove(server *s, size_t i, ln_error *err) {
    const model_list *now = s->models;
    const size_t after = now->n - i - 1;
    ln_adapter *gone = now->adapters[i];
    /* a copy of the list, from which entry i is removed */
    model_list *r = model_list_new(s, now->names, now->adapters, now->scales, now->n, now->n_base);
    if (!r) return LN_OOM(err, "the list of adapters");
    memmove(r->names + i, r->names + i + 1, after * sizeof *r->names);
    memmove(r->adapters + i, r->adapters + i + 1, after * sizeof *r->adapters);
    memmove(r->scales + i, r->scales + i + 1, after * sizeof *r->scales);
    r->n = r->target.n_names = now->n - 1;
    model_list_release(s->models);
    s->models = r;
    ln_adapter_close(&gone);
    return LN_OK;
}

void model_list_close(server *s) {
    for (size_t i = s->models ? s->models->n_base : 0; s->models && i < s->models->n; i++)
        ln_adapter_close(&s->models->adapters[i]);
    model_list_release(s->models);
    s->models = NULL;
}

ln_status model_list_check(const request_context *x, size_t model, ln_status st, wire_error *why) {
    ln_adapter_info *m = st != LN_OK && model >= x->models->n_base ? ln_zalloc(1, sizeof *m) : NULL;
    ln_error err;
    if (m) m->size = sizeof *m;
    if (m && ln_adapter_describe(x->models->adapters[model], m, &err) == LN_EUSAGE) {
        (void)wire_refuse(why, "model", "the adapter '%s' was unloaded before the request began",
                          x->models->names[model]);
        why->http = 404;
        why->code = "model_not_found";
        st = LN_EINVALID;
    }
    ln_free(m);
    return st;
}
