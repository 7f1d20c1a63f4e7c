/* Directory helpers for src/io and src/convert: joining paths with a length check, reading small JSON files,
 * recognising Git LFS pointers. */
#ifndef LN_DIRECTORY_H
#define LN_DIRECTORY_H

#include "../base/dir_names.h"
#include "io.h"

#define LN_PATH_MAX 4096

/* Writes dir/name to path[LN_PATH_MAX]. LN_EINVALID if it is too long. */
ln_status ln_path_join(char *path, const char *dir, const char *name, ln_error *err);

/* LN_EIO for a path that the system rejects with this errno value, with the reason. */
ln_status ln_cannot_reach(const char *path, int number, ln_error *err);

/* find_model.c. Writes `value`, with ~ and $VAR at its place as Python expands them, and `below` to
 * out[LN_PATH_MAX]; false: it does not fit. */
bool ln_expand_path(char *out, const char *value, const char *below);
/* Writes the directory of the Hugging Face cache; false: the environment names none. */
bool ln_hub_cache_dir(char *out);

/* bundled_model.c: the directory of the bundled model that contains `needs`, in path[LN_PATH_MAX]. A location
 * that cannot be accessed does not stop the search; the failure is returned if the model is not found
 * anywhere. */
ln_status ln_bundled_find(char *path, const char *needs, bool *found, ln_error *err);
/* LN_EIO, with all places in which ln_bundled_find looks. */
ln_status ln_bundled_missing(ln_error *err);

/* LN_EINVALID if the bytes are a Git LFS pointer, which a clone contains instead of a file that was not
 * fetched; LN_OK otherwise. `path` is for messages. */
ln_status ln_refuse_pointer(const char *path, const char *data, size_t bytes, ln_error *err);
/* Loads a JSON file of at most LN_CONFIG_LIMIT bytes whose top-level value must be an object. A Git LFS
 * pointer is reported as such. The caller releases *out with json_decref. */
ln_status ln_json_object_file(json_t **out, const char *path, ln_error *err);

/* safetensors.c: opens one tensor file and appends its tensors, unsorted, to *t. `path` is the name for
 * messages, `real` the file to open. */
ln_status ln_tensors_add_file(ln_tensors *t, const char *path, const char *real, ln_error *err);
/* safetensors.c: sorts the tensors by name. LN_EINVALID if a name occurs twice. */
ln_status ln_tensors_finish(ln_tensors *t, ln_error *err);

#endif
