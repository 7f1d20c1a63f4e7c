/* Finding GGUF files: in a directory, and among those of other programs. Private to src/io. */
#ifndef LN_GGUF_FILES_H
#define LN_GGUF_FILES_H

#include "directory.h"

/* Whether a file in a directory is one to choose a model from: a .gguf that is no vision tower, and of a
 * split the first file. */
bool ln_gguf_is_choice(const char *name);
/* *yes: a directory has GGUF files and no safetensors, so that what else is in it belongs to a file. */
ln_status ln_gguf_alone(const char *dir, bool *yes, ln_error *err);
/* Replaces the directory in path[LN_PATH_MAX] by the GGUF file in it. *found = false: it has none.
 * LN_EINVALID: it has several, which the message lists. */
ln_status ln_gguf_choose(char *path, bool *found, ln_error *err);

/* Folder i of ollama's manifests, which need not exist; false: there are no more. */
bool ln_ollama_manifests(int i, char path[LN_PATH_MAX]);
/* Writes the path of the GGUF file that a manifest of ollama names to path[LN_PATH_MAX]. *found = false: the
 * file is no manifest. LN_EIO: the GGUF file is missing. `path` may be `manifest`. */
ln_status ln_ollama_blob(const char *manifest, char *path, bool *found, ln_error *err);
/* The same for a model that ollama calls NAME:TAG. */
ln_status ln_ollama_find(const char *name, char *path, bool *found, ln_error *err);

#endif
