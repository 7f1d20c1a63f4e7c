/* --adapter DIR[:SCALE], whose sum all requests use, and --lora NAME=DIR[:SCALE], which requests choose by
 * name. */
#include "cli.h"

#include <math.h>
#include <string.h>

enum { HOT_ADAPTERS = 8, HOT_RANK = 16 }; /* --max-loras and --max-lora-rank without the flags */

/* Splits DIR[:SCALE]. The caller owns out->dir. */
static ln_status read_part(const char *name, const char *text, ln_adapter_part *out, ln_error *err) {
    const char *colon = strrchr(text, ':');
    size_t n = strlen(text);
    *out = (ln_adapter_part){.scale = 1};
    if (colon && ln_parse_f64(colon + 1, strlen(colon + 1), &out->scale)) n = (size_t)(colon - text);
    else out->scale = 1;
    if (n == 0 || !isfinite(out->scale))
        return ln_fail(err, LN_EUSAGE, "%s: expected DIR or DIR:SCALE, found '%s'", name, text);
    out->dir = ln_strndup(text, n);
    return out->dir ? LN_OK : LN_OOM(err, "the command line");
}

ln_status adapter_add(args *a, const char *text, ln_error *err) {
    void *p = a->adapters;
    LN_TRY(ln_grow(&p, &a->cap_adapters, a->n_adapters + 1, sizeof *a->adapters, err));
    a->adapters = p;
    LN_TRY(read_part("--adapter", text, &a->adapters[a->n_adapters], err));
    a->n_adapters++;
    return LN_OK;
}

ln_status lora_add(args *a, const char *text, ln_error *err) {
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : 0;
    void *p = a->loras;
    if (n == 0 || n > 199 || ln_utf8_valid(text, n) < n)
        return ln_fail(err, LN_EUSAGE,
                       "--lora: expected NAME=DIR, a name of 1 to 199 bytes of UTF-8 and a directory, found "
                       "'%s'",
                       text);
    for (size_t i = 0; i < a->n_loras; i++)
        if (strlen(a->loras[i].name) == n && memcmp(a->loras[i].name, text, n) == 0)
            return ln_fail(err, LN_EUSAGE, "--lora: the name %s is given twice", a->loras[i].name);
    LN_TRY(ln_grow(&p, &a->cap_loras, a->n_loras + 1, sizeof *a->loras, err));
    a->loras = p;
    named_adapter *l = &a->loras[a->n_loras];
    LN_TRY(read_part("--lora", equals + 1, &l->part, err));
    l->name = ln_strndup(text, n);
    if (!l->name) {
        ln_free((char *)(uintptr_t)l->part.dir);
        return LN_OOM(err, "the command line");
    }
    a->n_loras++;
    return LN_OK;
}

void adapters_free(args *a) {
    for (size_t i = 0; i < a->n_adapters; i++) ln_free((char *)(uintptr_t)a->adapters[i].dir);
    for (size_t i = 0; i < a->n_loras; i++) {
        ln_free((char *)(uintptr_t)a->loras[i].part.dir);
        ln_free((char *)(uintptr_t)a->loras[i].name);
    }
    ln_free(a->adapters);
    ln_free(a->loras);
}

/* Sets how many adapters clients may load. */
static ln_status hot_options(const args *a, ln_options *opt, ln_error *err) {
    if (!has(a, F_LORA_DIR)) {
        const char *unmet = has(a, F_MAX_LORAS)       ? "--max-loras"
                            : has(a, F_MAX_LORA_RANK) ? "--max-lora-rank"
                            : has(a, F_LORA_EXPERTS)  ? "--lora-experts"
                                                      : NULL;
        return unmet ? ln_fail(err, LN_EUSAGE, "%s needs --lora-dir, below which clients may load adapters",
                               unmet)
                     : LN_OK;
    }
    const int most =
        has(a, F_MAX_LORAS) ? (int)a->flag[F_MAX_LORAS].i : LN_MAX(HOT_ADAPTERS, opt->n_adapters);
    const int rank = has(a, F_MAX_LORA_RANK) ? (int)a->flag[F_MAX_LORA_RANK].i : HOT_RANK;
    if (most < opt->n_adapters)
        return ln_fail(err, LN_EUSAGE, "--max-loras %d is less than the number of --lora, %d", most,
                       opt->n_adapters);
    opt->n_adapters = most;
    opt->adapter_rank = LN_MAX(opt->adapter_rank, rank);
    opt->adapter_experts |= has(a, F_LORA_EXPERTS);
    return LN_OK;
}

ln_status adapter_options(const args *a, ln_options *opt, ln_error *err) {
    ln_adapter_info *m = ln_zalloc(1, sizeof *m);
    ln_status st = m ? LN_OK : LN_OOM(err, "an adapter's facts");
    opt->adapter = a->adapters;
    opt->n_adapter_parts = a->n_adapters;
    for (size_t i = 0; st == LN_OK && i < a->n_loras; i++) {
        m->size = sizeof *m;
        st = ln_adapter_show(a->loras[i].part.dir, NULL, m, err);
        if (st == LN_OK) opt->adapter_rank = LN_MAX(opt->adapter_rank, (int)m->rank_max);
        if (st == LN_OK) opt->adapter_experts |= m->n_experts > 0;
    }
    opt->n_adapters = (int)a->n_loras;
    ln_free(m);
    return st == LN_OK ? hot_options(a, opt, err) : st;
}
