/* The public API of adapters: their facts. */
#include "../io/adapter.h"
#include "../package/package.h"
#include "check.h"
#include "handle.h"

#include <stdio.h>
#include <string.h>

/* Adds a name to a list of names separated by commas, once; "..." where there is no room. */
static void add_name(char list[256], const char *name) {
    const size_t n = strlen(list), m = strlen(name);
    const char *at = list;
    while ((at = strstr(at, name))) {
        if ((at == list || at[-1] == ',') && (at[m] == ',' || !at[m])) return;
        at += m;
    }
    if (n + m + 8 < 256) (void)snprintf(list + n, 256 - n, "%s%s", n ? "," : "", name);
    else if (n < 4 || strcmp(list + n - 3, "...") != 0) (void)snprintf(list + n, 256 - n, ",...");
}

static ln_status facts(const ln_adapter *a, ln_adapter_info *out, ln_error *err) {
    _Static_assert(sizeof out->digest == LN_SHA256_HEX, "a digest has room");
    (void)snprintf(out->path, sizeof out->path, "%s", a->path);
    (void)snprintf(out->layout, sizeof out->layout, "%s", ln_adapter_layout_name(a->layout));
    out->n_modules = (int)a->n;
    out->n_tensors = (int)(2 * a->n);
    out->n_applied = -1;
    for (size_t i = 0; i < a->n; i++) {
        const ln_adapter_module *m = &a->modules[i];
        const char *dot = strrchr(m->path, '.');
        add_name(out->targets, dot ? dot + 1 : m->path);
        out->rank_min = i ? LN_MIN(out->rank_min, m->rank) : m->rank;
        out->rank_max = i ? LN_MAX(out->rank_max, m->rank) : m->rank;
        out->scale_min = i ? LN_MIN(out->scale_min, m->scale) : m->scale;
        out->scale_max = i ? LN_MAX(out->scale_max, m->scale) : m->scale;
        out->n_parameters += (uint64_t)(m->rank * (m->n_in + m->n_out));
    }
    return ln_adapter_digest(a, out->digest, err);
}

static ln_status match(const ln_adapter *a, const char *model, ln_adapter_info *out, ln_error *err) {
    ln_package *m;
    const ln_options o = ln_options_default();
    LN_TRY(ln_package_open(&m, model, &o, err));
    const ln_status st = ln_package_check_adapter(m, a, err);
    ln_package_close(&m);
    if (st == LN_OK) out->n_applied = out->n_tensors;
    return st;
}

ln_status ln_adapter_show(const char *dir, const char *model, ln_adapter_info *out, ln_error *err) {
    ln_adapter *a;
    ln_adapter_info all = {0};
    ARG(dir && out, "dir and out must not be NULL");
    ARG(out->size >= sizeof out->size, "ln_adapter_info.size must be set to its sizeof");
    LN_TRY(ln_adapter_open(&a, dir, err));
    ln_status st = facts(a, &all, err);
    if (st == LN_OK && model) st = match(a, model, &all, err);
    ln_adapter_close(&a);
    if (st != LN_OK) return st;
    all.size = out->size;
    memcpy(out, &all, LN_MIN((size_t)out->size, sizeof all));
    return LN_OK;
}
