/* Keys and values of a text in a file, and back into the prefix cache. The contracts are those of
 * ln_seq_save, ln_seq_save_new and ln_seq_load; docs/memory.md describes the file. */
#ifndef LN_KV_FILE_H
#define LN_KV_FILE_H

#include "engine.h"

ln_status ln_eng_seq_save(ln_eng *e, const int32_t *ids, size_t n_ids, const char *path, size_t *n_saved,
                          ln_error *err);
ln_status ln_eng_seq_save_new(ln_eng *e, const int32_t *ids, size_t n_ids, const char *path, size_t *n_saved,
                              ln_error *err);
ln_status ln_eng_seq_load(ln_eng *e, const char *path, size_t *n_loaded, ln_error *err);

#endif
