/* Adapters that change tensors of the model itself: LoRA on the embedding table and the output head, trained
 * tokens, modules saved whole. They are a part of the model that is opened with them (ln_options.adapter),
 * since its tables are loaded once for all requests. package.h has the contracts. */
#include "../base/file.h"
#include "../model/adapter_match.h"
#include "package.h"

#include <string.h>

/* Opens an adapter; NULL with LN_OK: it cannot be opened, which an engine reports. */
static ln_status open_file(ln_adapter_file **out, const char *dir, ln_error *err) {
    ln_error why = {0};
    const ln_status st = ln_adapter_file_open(out, dir, &why);
    return st == LN_EMEMORY ? ln_fail(err, st, "%s", why.message) : LN_OK;
}

ln_status ln_package_change(ln_package *m, ln_error *err) {
    const size_t n = m->opt.n_adapter_parts;
    if (n == 0) return LN_OK;
    m->changers = ln_zalloc(n, sizeof *m->changers);
    if (!m->changers) return LN_OOM(err, "adapters");
    for (size_t i = 0; i < n; i++) {
        ln_adapter_file *a = NULL;
        if (!m->opt.adapter[i].dir) continue;
        LN_TRY(open_file(&a, m->opt.adapter[i].dir, err));
        if (a && a->n_changes > 0) m->changers[m->n_changers++] = (ln_adapted){a, m->opt.adapter[i].scale};
        else ln_adapter_file_close(&a);
    }
    LN_TRY(ln_weights_change(&m->weights, &m->spec, m->changers, m->n_changers, err));
    if (!ln_weights_will_change(m->changers, m->n_changers)) ln_package_close_changers(m);
    return LN_OK;
}

void ln_package_close_changers(ln_package *m) {
    for (size_t i = 0; i < m->n_changers; i++) ln_adapter_file_close(&m->changers[i].file);
    ln_free(m->changers);
    m->changers = NULL, m->n_changers = 0;
}

const char *ln_package_tokenizer_dir(const ln_package *m) {
    for (size_t i = 0; i < m->n_changers; i++) {
        const ln_adapter_file *a = m->changers[i].file;
        char path[sizeof a->path + 32];
        (void)snprintf(path, sizeof path, "%s/tokenizer.json", a->path);
        for (size_t k = 0; k < a->n_changes; k++)
            if ((a->changes[k].rows || ln_adapter_rows_of(&a->changes[k]) == m->spec.V) && ln_exists(path))
                return a->path;
    }
    return m->path;
}

/* The adapter that the model was opened with, if it is this file with this factor; else NULL. */
static const ln_adapter_file *changer(const ln_package *m, const ln_adapter_file *a, double factor) {
    for (size_t i = 0; i < m->n_changers; i++)
        if (m->changers[i].factor == factor && strcmp(m->changers[i].file->path, a->path) == 0)
            return m->changers[i].file;
    return NULL;
}

/* Copies what the comparison of the same file with the model has found. */
static void take_comparison(ln_adapter_file *a, const ln_adapter_file *compared) {
    for (size_t i = 0; i < a->n_changes && i < compared->n_changes; i++)
        a->changes[i].differs = compared->changes[i].differs;
    a->n_copies = compared->n_copies;
}

ln_status ln_package_check_changes(const ln_package *m, struct ln_adapter_file *const *files,
                                   const double *factors, size_t n, bool own, ln_error *err) {
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++) {
        const ln_adapter_file *opened = own ? changer(m, files[i], factors[i]) : NULL;
        if (opened) take_comparison(files[i], opened);
        else LN_TRY(ln_adapter_compare(files[i], &m->spec, &m->weights, err));
        n_found += opened != NULL;
        if (!opened && ln_adapter_changes_model(files[i]))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: changes the model itself (%s), which all requests share; open the model with "
                           "it (ln_options.adapter), or fuse it into the model",
                           files[i]->path, files[i]->changes[0].path);
    }
    if (n_found == m->n_changers) return LN_OK;
    return ln_fail(err, LN_EUSAGE,
                   "%s: the model was opened with this adapter, which changes the model itself; requests "
                   "with other adapters, and engines without it, need a model that was opened without it",
                   m->changers[0].file->path);
}
