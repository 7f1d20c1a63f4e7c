/* Finds the longest context that fits into a limit, before anything is loaded, and opens an engine with it.
 * usage: plan [MODEL [MEGABYTES]] */
#include <linnet.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "tiny";
    ln_options options = ln_options_default();
    ln_info info = {.size = sizeof info};
    ln_plan plan = {.size = sizeof plan};
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_error err;
    options.memory_bytes =
        argc > 2 ? strtoull(argv[2], NULL, 10) << 20 : 0; /* 0: what the machine has left */
    ln_status st = ln_show(name, &options, &info, &err);
    options.n_ctx = st == LN_OK ? info.n_ctx_max : 0;
    while (st == LN_OK) {
        st = ln_plan_memory(name, &options, &plan, &err);
        if (st != LN_OK || plan.peak_bytes <= plan.available_bytes || options.n_ctx < 512) break;
        options.n_ctx /= 2;
    }
    if (st == LN_OK)
        printf("%s: %lld of %lld positions: %.1f MB (weights %.1f, keys and values %.1f), %.1f MB allowed\n",
               info.model_type, (long long)plan.n_ctx, (long long)info.n_ctx_max,
               1e-6 * (double)plan.peak_bytes, 1e-6 * (double)plan.weights_bytes,
               1e-6 * (double)plan.kv_bytes, 1e-6 * (double)plan.available_bytes);
    if (st == LN_OK) st = ln_model_open(&model, name, &options, &err);
    if (st == LN_OK)
        st = ln_engine_open(&engine, model, &options,
                            &err); /* LN_EMEMORY if even the shortest did not fit */
    if (st == LN_OK) printf("opened\n");
    else fprintf(stderr, "%s\n", err.message);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}
