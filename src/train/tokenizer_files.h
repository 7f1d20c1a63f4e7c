/* The files of a tokenizer with added tokens, next to the adapter that has their rows. */
#ifndef LN_TOKENIZER_FILES_H
#define LN_TOKENIZER_FILES_H

#include "../package/package.h"

/* Writes the tokenizer of a model that was opened with ln_options.add_tokens into `dir`: tokenizer.json and
 * tokenizer_config.json with the added tokens, special_tokens_map.json as it is. Each file is written
 * atomically. LN_EIO, LN_EMEMORY. */
ln_status train_tokenizer_write(const ln_package *m, const char *dir, ln_error *err);

#endif
