/* The lists of tokenizer.ggml.* in a GGUF file (bpe_gguf.c, tokenizer_gguf.c). */
#ifndef LN_BPE_GGUF_H
#define LN_BPE_GGUF_H

#include "../base/gguf.h"
#include "tokenizer_internal.h"

/* tokenizer.ggml.token_type: the numbers of the format. */
typedef enum gguf_token {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN,
    GGUF_TOKEN_CONTROL,
    GGUF_TOKEN_USER,
    GGUF_TOKEN_UNUSED,
    GGUF_TOKEN_BYTE
} gguf_token;

typedef struct gguf_lists {
    const char *name; /* of the file, for messages */
    const ln_gguf_value *tokens, *merges;
    const ln_gguf_value *types;  /* of each token; NULL: all are normal */
    const ln_gguf_value *scores; /* of each token; NULL: merges are listed */
    bool marks_blanks;           /* U+2581 stands for blanks in the texts of tokens */
} gguf_lists;
static inline int gguf_token_type(const gguf_lists *g, uint64_t i) {
    return g->types ? (int)ln_gguf_int_at(g->types, i) : GGUF_TOKEN_NORMAL;
}

/* Reads vocabulary and merges. LN_EINVALID: the message names the key and the element. */
ln_status bpe_read_gguf(tok_bpe *b, const gguf_lists *g, ln_error *err);
/* Appends the merges to a list as [left, right], in the order of their ranks. Merges with one rank, into
 * whose parts a token with a score can be cut, are in the order of the ids, as the reference's converter has
 * them. */
ln_status bpe_list_merges(const gguf_lists *g, json_t *merges, ln_error *err);

#endif
