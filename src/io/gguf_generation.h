/* The generation settings of a GGUF file. */
#ifndef LN_GGUF_GENERATION_H
#define LN_GGUF_GENERATION_H

#include "../base/gguf.h"
#include "io.h"

/* Reads the ids that end an answer, bos, and sampling parameters, into *out, which has the defaults. The
 * caller closes *out after an error. LN_EINVALID: a key is malformed. */
ln_status ln_genconfig_of_gguf(ln_genconfig *out, const char *path, int64_t vocab, ln_error *err);

#endif
