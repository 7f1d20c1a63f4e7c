/* The public API of memory: of the process, and of keys and values in files. Checks arguments and forwards
 * the calls. */
#include "../base/memory_use.h"
#include "../base/text_memory.h"
#include "../engine/kv_file.h"
#include "../engine/memory_control.h"
#include "check.h"
#include "../args/handle.h"

#include <string.h>

uint64_t ln_memory_set_limit(uint64_t bytes) { return ln_limit_set(bytes); }

uint64_t ln_cache_set_limit(uint64_t bytes) { return ln_cache_limit_set(bytes); }

void ln_cache_clear(void) {
    ENTER;
    ln_cache_clear_all();
}

void ln_memory_reset_peak(void) { ln_peak_reset(); }

void ln_memory_stats(ln_memory *out) {
    ln_error ignored;
    ENTER;
    if (!out || ln_api_check_size(out, sizeof out->size, "ln_memory", &ignored) != LN_OK) return;
    ln_memory all = {.size = sizeof all};
    ln_memory_figures(&all);
    ln_api_give_sized(out, sizeof all, &all);
}

static ln_status done(const void *handle, ln_status st) {
    ln_handle_done(handle);
    return st;
}

ln_status ln_seq_save(ln_engine *engine, const int32_t *ids, size_t n_ids, const char *path, size_t *n_saved,
                      ln_error *err) {
    ln_eng *e;
    size_t n = 0;
    ARG(ids && n_ids > 0 && path, "ids and path must not be NULL, n_ids not 0");
    LN_TRY(ln_api_engine(engine, &e, err));
    const ln_status st = ln_eng_seq_save(e, ids, n_ids, path, &n, err);
    if (n_saved) *n_saved = n;
    return done(engine, st);
}

ln_status ln_seq_save_new(ln_engine *engine, const int32_t *ids, size_t n_ids, const char *path,
                          size_t *n_saved, ln_error *err) {
    ln_eng *e;
    size_t n = 0;
    ARG(ids && n_ids > 0 && path, "ids and path must not be NULL, n_ids not 0");
    LN_TRY(ln_api_engine(engine, &e, err));
    const ln_status st = ln_eng_seq_save_new(e, ids, n_ids, path, &n, err);
    if (n_saved) *n_saved = n;
    return done(engine, st);
}

ln_status ln_seq_load(ln_engine *engine, const char *path, size_t *n_loaded, ln_error *err) {
    ln_eng *e;
    size_t n = 0;
    ARG(path, "path must not be NULL");
    LN_TRY(ln_api_engine(engine, &e, err));
    const ln_status st = ln_eng_seq_load(e, path, &n, err);
    if (n_loaded) *n_loaded = n;
    return done(engine, st);
}
