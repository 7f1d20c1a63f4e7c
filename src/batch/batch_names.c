/* The names of the model and its adapters, by which the bodies of a file choose. */
#include "batch.h"

#include <string.h>

ln_status batch_name_models(wire_target *t, const char *name, const char *path, const ln_batch_options *opt,
                            ln_error *err) {
    const size_t most = opt->n_adapters + opt->n_aliases + 2;
    const void **all = ln_zalloc(2 * most, sizeof *all);
    if (!all) return LN_OOM(err, "the names of models");
    const char **names = (const char **)all;
    const ln_adapter **adapters = (const ln_adapter **)(all + most);
    size_t n = 0;
    names[n++] = name;
    for (size_t i = 0; i < opt->n_adapters; i++) {
        adapters[n] = opt->adapters[i].adapter;
        names[n++] = opt->adapters[i].name;
    }
    if (path[0]) names[n++] = path;
    for (size_t i = 0; i < opt->n_aliases; i++) {
        const bool any = strcmp(opt->aliases[i], "*") == 0;
        t->any_name = t->any_name || any;
        if (!any) names[n++] = opt->aliases[i];
    }
    t->names = names, t->adapters = adapters, t->n_names = n;
    return LN_OK;
}
