/* GGUF files as models: what a file says becomes a config.json, and its tensors get the names that they have
 * in safetensors, so that the readers of families are the only place that knows models.
 *
 * ln_config_open and ln_tensors_open take the path of a GGUF file as they take that of a directory. */
#ifndef LN_GGUF_MODEL_H
#define LN_GGUF_MODEL_H

#include "../base/gguf.h"
#include "io.h"

typedef enum ln_gguf_arch_id {
#define LN_GGUF_ARCH(NAME, arch, model_type, class, order) LN_GGUF_ARCH_##NAME,
#include "gguf_archs.def"
#undef LN_GGUF_ARCH
    LN_GGUF_ARCH_COUNT
} ln_gguf_arch_id;
/* The bit of an architecture, for tables. */
#define LN_GGUF_BIT(NAME) (UINT64_C(1) << LN_GGUF_ARCH_##NAME)
#define LN_GGUF_ALL       ((UINT64_C(1) << LN_GGUF_ARCH_COUNT) - 1)
typedef struct ln_gguf_arch {
    const char *name, *model_type, *class;
    bool pairs; /* rows of q and k stand in pairs */
} ln_gguf_arch;
extern const ln_gguf_arch ln_gguf_archs[LN_GGUF_ARCH_COUNT];

/* Whether a path is a GGUF file, by its content: directories are none. */
bool ln_is_gguf(const char *path);
/* Finds the architecture. LN_EUNSUPPORTED: the file is no language model (a vision tower, an adapter), or its
 * architecture is not read; the message lists those that are. */
ln_status ln_gguf_find_arch(const ln_gguf *g, ln_gguf_arch_id *out, ln_error *err);
/* The same for LoRA in a GGUF file. */
ln_status ln_gguf_find_lora_arch(const ln_gguf *g, ln_gguf_arch_id *out, ln_error *err);
/* Writes the key ARCH.suffix. */
enum { LN_GGUF_KEY_BYTES = 160 };
const char *ln_gguf_arch_key(char out[LN_GGUF_KEY_BYTES], ln_gguf_arch_id arch, const char *suffix);

/* gguf_config.c: fills *out with the configuration that a file's metadata describe. Its path is the file. */
ln_status ln_config_of_gguf(ln_config *out, const char *path, ln_error *err);
/* gguf_tensors.c: fills *out with the tensors of a file, under their names in safetensors. */
ln_status ln_tensors_of_gguf(ln_tensors *out, const char *path, ln_error *err);

/* gguf_tensors.c: the same for LoRA in a GGUF file, whose tensors get the names of mlx-lm's, with shapes as
 * PEFT has them. B of q and k has `rows` with n_inner 0 if pairs stand in it: the heads are those of the
 * model. *alpha 0: the file has none. LN_EUNSUPPORTED: no LoRA, or not for an architecture that is read. */
ln_status ln_tensors_of_gguf_lora(ln_tensors *out, const char *path, double *alpha, ln_error *err);

#endif
