/* The public API of adapters: their facts, and those that an engine has loaded. */
#include "../package/package.h"
#include "check.h"
#include "../args/handle.h"

#include <stdio.h>
#include <string.h>

/* Writes the last part of a module's path; PEFT calls the module of an earlier parameter M.base_layer. */
static void last_name(const char *path, char out[80]) {
    static const char end[] = ".base_layer";
    size_t n = strlen(path);
    while (n >= sizeof end && memcmp(path + n - (sizeof end - 1), end, sizeof end - 1) == 0)
        n -= sizeof end - 1;
    size_t from = n;
    while (from > 0 && path[from - 1] != '.') from--;
    (void)snprintf(out, 80, "%.*s", (int)LN_MIN(n - from, (size_t)79), path + from);
}
/* Adds a rank and a scale to the ranges. */
static void add_rank(int64_t rank, double scale, ln_adapter_info *out) {
    const bool none = out->rank_max == 0;
    if (rank == 0) return; /* a bias alone, or rows of a table */
    out->rank_min = none ? rank : LN_MIN(out->rank_min, rank);
    out->rank_max = none ? rank : LN_MAX(out->rank_max, rank);
    out->scale_min = none ? scale : LN_MIN(out->scale_min, scale);
    out->scale_max = none ? scale : LN_MAX(out->scale_max, scale);
}
static uint64_t elements(const ln_tensor *t) {
    uint64_t n = t ? 1 : 0;
    for (int d = 0; t && d < t->n_dims; d++) n *= (uint64_t)t->dims[d];
    return n;
}
/* Adds what an adapter changes of the model's own tensors. Copies of tables are no parameters of it. */
static void add_changes(const ln_adapter_file *a, double factor, ln_adapter_info *out) {
    for (size_t i = 0; i < a->n_changes; i++) {
        const ln_adapter_change *x = &a->changes[i];
        char name[80];
        if (x->is_copy && !x->a && !x->rows) continue;
        last_name(x->path, name);
        ln_list_once(out->targets, sizeof out->targets, name, ",");
        out->n_modules++;
        out->n_parameters +=
            elements(x->a) + elements(x->b) + elements(x->rows) + (x->is_copy ? 0 : elements(x->whole));
        add_rank(x->rank, x->scale * factor, out);
    }
}
/* Adds the facts of one adapter to those of the parts before it. */
static void facts(const ln_adapter_file *a, double factor, ln_adapter_info *out) {
    const bool first = out->n_modules == 0;
    _Static_assert(sizeof out->digest == LN_SHA256_HEX, "a digest fits");
    if (first) (void)snprintf(out->path, sizeof out->path, "%s", a->path);
    if (first) (void)snprintf(out->layout, sizeof out->layout, "%s", ln_adapter_layout_name(a->layout));
    out->n_modules += (int)a->n;
    out->n_tensors += (int)a->tensors.n;
    add_changes(a, factor, out);
    for (size_t i = 0; i < a->n_in_file; i++) {
        const ln_adapter_module *m = &a->in_file[i];
        char name[80];
        last_name(m->path, name);
        ln_list_once(out->targets, sizeof out->targets, name, ",");
        out->n_experts = LN_MAX(out->n_experts, ln_package_experts_of(m));
        out->n_parameters += (uint64_t)(LN_MAX(1, m->n_experts) * m->rank * (m->n_in + m->n_out) +
                                        (m->b_bias ? m->n_out : 0) + (m->bias ? m->n_out : 0));
        add_rank(m->rank, m->scale * factor, out);
    }
}

static ln_status match(ln_adapter_file *a, const char *model, ln_adapter_info *out, ln_error *err) {
    ln_package *m;
    ln_options o = ln_options_default();
    const ln_adapter_part part = {a->path, 1};
    o.adapter = &part, o.n_adapter_parts = 1;
    LN_TRY(ln_package_open(&m, model, &o, err));
    ln_status st = ln_package_check_changes(m, &a, &part.scale, 1, true, err);
    if (st == LN_OK) st = ln_package_split_adapter(m, a, err);
    if (st == LN_OK) st = ln_package_match_adapter(m, a, NULL, err);
    ln_package_close(&m);
    if (st == LN_OK) out->n_applied = (int)ln_adapter_applied(a);
    return st;
}

ln_status ln_adapter_show(const char *dir, const char *model, ln_adapter_info *out, ln_error *err) {
    ln_adapter_file *a;
    ln_adapter_info all = {0};
    ARG(dir && out, "dir and out must not be NULL");
    NEED(out->size >= sizeof out->size, "ln_adapter_info.size must be set to its sizeof");
    LN_TRY(ln_adapter_file_open(&a, dir, err));
    facts(a, 1, &all);
    ln_adapter_warn_absent(a);
    all.n_applied = -1;
    ln_status st = LN_OK;
    for (size_t i = 0; st == LN_OK && i < a->n; i++) st = ln_adapter_check_finite(a, &a->modules[i], err);
    if (st == LN_OK && model) st = match(a, model, &all, err);
    if (st == LN_OK) st = ln_adapter_file_digest(a, all.digest, err);
    ln_adapter_file_close(&a);
    if (st != LN_OK) return st;
    all.size = out->size;
    memcpy(out, &all, LN_MIN((size_t)out->size, sizeof all));
    return LN_OK;
}

/* ---- loaded adapters ---- */

static ln_status done(const void *handle, ln_status st) {
    ln_handle_done(handle);
    return st;
}

static ln_status use_adapter(const ln_adapter *adapter, ln_adapter_ref **out, ln_error *err) {
    void *p;
    LN_TRY(ln_handle_use(LN_HANDLE_ADAPTER, adapter, &p, err));
    *out = p;
    return LN_OK;
}

ln_status ln_api_use_adapter(const ln_eng *e, ln_prompt *p, const void **used, ln_error *err) {
    ln_adapter_ref *l;
    const ln_adapter *adapter = p->adapter;
    *used = NULL;
    if (!adapter) return LN_OK;
    LN_TRY(use_adapter(adapter, &l, err));
    if (l->e != e)
        return done(adapter, ln_fail(err, LN_EUSAGE,
                                     "ln_prompt.adapter: another engine has loaded this adapter; open it "
                                     "with "
                                     "the engine of the request"));
    p->adapter = (const ln_adapter *)(const void *)l;
    *used = adapter;
    return LN_OK;
}

ln_status ln_api_use_adapters(ln_api_adapted *out, const ln_eng *e, const ln_prompt *all, size_t n,
                              ln_error *err) {
    size_t first = 0;
    *out = (ln_api_adapted){.prompts = all};
    while (first < n && !all[first].adapter) first++;
    if (first == n) return LN_OK;
    out->copy = ln_zalloc(n, sizeof *out->copy);
    out->used = ln_zalloc(n, sizeof *out->used);
    if (!out->copy || !out->used) return LN_OOM(err, "the prompts");
    memcpy(out->copy, all, n * sizeof *all);
    out->prompts = out->copy;
    for (; out->n < n; out->n++) LN_TRY(ln_api_use_adapter(e, &out->copy[out->n], &out->used[out->n], err));
    return LN_OK;
}

void ln_api_done_adapters(ln_api_adapted *p) {
    for (size_t i = 0; i < p->n; i++)
        if (p->used[i]) ln_handle_done(p->used[i]);
    ln_free(p->copy);
    ln_free(p->used);
}

static void free_adapter(void *object) {
    ln_adapter_ref *own = object;
    ln_adapter_unload(&own);
}

/* Requests of an engine are rendered with one template: says so of adapters that were trained with another
 * one. */
static void warn_of_templates(const ln_package *m, const ln_adapter_part *parts, size_t n_parts) {
    for (size_t i = 0; i < n_parts; i++) {
        char path[4096], shown[LN_PATH_TEXT];
        bool found = false, own = true;
        ln_error why = {0};
        ln_status st = ln_adapter_template(parts[i].dir, path, &found, &why);
        if (st == LN_OK && found) st = ln_package_is_template(m, path, &own, &why);
        if (st == LN_OK && !own)
            ln_log(LN_LOG_WARN,
                   "%s: the adapter was trained with this chat template, and its requests are rendered with "
                   "the "
                   "model's; name it in ln_options.chat_template if all requests are the adapter's",
                   ln_path_text(shown, path));
    }
}

ln_status ln_adapter_open(ln_adapter **out, ln_engine *engine, const ln_adapter_part *parts, size_t n_parts,
                          ln_error *err) {
    ln_eng *e;
    ln_adapter_ref *l;
    void *handle = NULL;
    ARG(out && parts, "out and parts must not be NULL");
    *out = NULL;
    LN_TRY(ln_api_engine(engine, &e, err));
    ln_status st = ln_adapter_load(&l, e, parts, n_parts, err);
    if (st != LN_OK) return done(engine, st);
    st = ln_handle_new(LN_HANDLE_ADAPTER,
                       &(ln_handle_object){.object = l, .free = free_adapter, .base = engine}, &handle, err);
    if (st != LN_OK) {
        ln_adapter_unload(&l);
        return done(engine, st);
    }
    *out = handle;
    warn_of_templates(e->model, parts, n_parts);
    return LN_OK;
}

int ln_adapter_room(const ln_engine *engine) {
    ln_eng *e;
    ln_error err;
    ENTER;
    if (ln_api_engine(engine, &e, &err) != LN_OK) return 0;
    const int n = ln_adapters_room(e);
    ln_handle_done(engine);
    return n;
}

void ln_adapter_close(ln_adapter **adapter) {
    ENTER;
    if (!adapter) return;
    ln_handle_close(LN_HANDLE_ADAPTER, *adapter);
    *adapter = NULL;
}

ln_status ln_adapter_set_scale(ln_adapter *adapter, double scale, ln_error *err) {
    ln_adapter_ref *l;
    ENTER;
    err = ln_api_error(err);
    LN_TRY(use_adapter(adapter, &l, err));
    return done(adapter, ln_adapter_rescale(l, scale, err));
}

ln_status ln_adapter_describe(const ln_adapter *adapter, ln_adapter_info *out, ln_error *err) {
    ln_adapter_ref *l;
    ln_adapter_info all = {0};
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_adapter_info", err));
    LN_TRY(use_adapter(adapter, &l, err));
    const ln_adapter_slot *s = &l->e->adapters[l->slot];
    for (size_t k = 0; k < s->n_parts; k++) {
        facts(s->files[k], s->scales[k] * s->scale, &all);
        all.n_applied += (int)ln_adapter_applied(s->files[k]);
    }
    memcpy(all.digest, s->digest, sizeof all.digest);
    ln_api_give_sized(out, sizeof all, &all);
    return done(adapter, LN_OK);
}
