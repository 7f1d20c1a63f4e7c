/* A configuration that is made of the metadata of a GGUF file: what gguf_config.c and gguf_facts.c share. */
#ifndef LN_GGUF_MAKING_H
#define LN_GGUF_MAKING_H

#include "gguf_model.h"

typedef struct ln_gguf_making {
    const ln_gguf *g;
    ln_gguf_arch_id arch;
    json_t *out; /* the config.json */
    ln_error *err;
} ln_gguf_making;

/* gguf_config.c. `suffix`: a key without the name of the architecture and the dot. */

/* Stores a new value, which may be NULL: out of memory. */
ln_status ln_gguf_put(const ln_gguf_making *m, json_t *in, const char *field, json_t *value);
/* Returns the shortest decimal number that rounds to this f32. */
json_t *ln_gguf_real_of(double v);
/* Reads an integer, or an array with the same one for each layer. */
ln_status ln_gguf_read_int(const ln_gguf_making *m, const char *suffix, int64_t *out, bool *found);
ln_status ln_gguf_read_real(const ln_gguf_making *m, const char *suffix, double *out, bool *found);
/* Reads an integer that the metadata must have. */
ln_status ln_gguf_need_int(const ln_gguf_making *m, const char *suffix, int64_t *out);
/* Stores the number of a key, if the file has it. */
ln_status ln_gguf_put_real(const ln_gguf_making *m, json_t *in, const char *field, const char *suffix);
bool ln_gguf_has(const ln_gguf_making *m, const char *tensor);
/* Reads the numbers of a tensor of one dimension as a list; *out NULL: there is no such tensor. */
ln_status ln_gguf_divisors(const ln_gguf_making *m, const char *name, json_t **out);

/* gguf_facts.c: stores what single architectures need beyond the tables. */
ln_status ln_gguf_put_gemma4(const ln_gguf_making *m);
/* Stores the kinds of layers of a model with short convolutions, whose layers without heads of keys are
 * these, and sets *kv to the heads of the others. */
ln_status ln_gguf_put_conv_layers(const ln_gguf_making *m, int64_t *kv);
ln_status ln_gguf_put_facts(const ln_gguf_making *m);

#endif
