/* Building the tables of a BPE model, vocabulary and merges, from texts in any source (bpe_tables.c): the
 * model section of tokenizer.json (bpe_load.c), the metadata of a GGUF file (bpe_gguf.c) or tekken.json. */
#ifndef LN_BPE_TABLES_H
#define LN_BPE_TABLES_H

#include "tokenizer_internal.h"

enum { BPE_BATCH = 64 };

/* A merge of the current batch. Its left and right texts follow each other in bpe_tables.texts from `at` on.
 * A vocabulary entry uses the same struct: the left text is its text, n_right its id. */
typedef struct bpe_waiting {
    size_t offset; /* in the JSON text, for messages */
    uint32_t at, n_left, n_right;
    uint64_t left, right; /* hashes */
} bpe_waiting;

/* A merge of the list: its parts, the token that they become, and its rank. */
typedef struct bpe_triple {
    uint32_t left, right, rank;
    int32_t id;
} bpe_triple;

typedef struct bpe_tables {
    tok_bpe *b;
    ln_json *j;                 /* the text that is read, for messages; NULL: another source */
    const char *name;           /* of the file */
    const char *vocab, *merges; /* names of the two lists in messages */
    bpe_triple *list;
    size_t n, cap;
    bpe_waiting batch[BPE_BATCH];
    size_t n_batch;
    ln_str texts, joined;
} bpe_tables;
void bpe_tables_close(bpe_tables *t);

/* Returns LN_EINVALID with a message that names the file and, in JSON, the position. */
ln_status bpe_fail(const bpe_tables *t, size_t offset, ln_error *err, const char *fmt, ...) LN_PRINTF(4, 5);

/* Adds a token to the batch; its text is at the end of t->texts, from `at` on. LN_EINVALID: the text is too
 * long, or belongs to two tokens. */
ln_status bpe_hold_token(bpe_tables *t, size_t offset, size_t at, uint32_t id, ln_error *err);
/* Adds the tokens of the batch to the vocabulary. */
ln_status bpe_take_tokens(bpe_tables *t, ln_error *err);

/* Prepares for merges: drops those of a call before. */
ln_status bpe_begin_merges(bpe_tables *t, ln_error *err);
/* Adds a merge to the batch; its two texts are at the end of t->texts, the left one from `at` on. */
ln_status bpe_hold_merge(bpe_tables *t, size_t offset, size_t at, size_t n_left, ln_error *err);
/* Adds the merges of the batch to the list. LN_EINVALID: a part, or both joined, is no token. */
ln_status bpe_take_merges(bpe_tables *t, ln_error *err);
/* Appends a merge of two tokens to the list. `cross`: the last character of the left text and the first of
 * the right one. */
ln_status bpe_add_merge(bpe_tables *t, const bpe_triple *merge, uint32_t cross[2], ln_error *err);
/* Builds the hash table of merges from the list. Of several merges of the same pair, the last one counts, as
 * in the reference. */
ln_status bpe_build_merges(bpe_tables *t, ln_error *err);

/* Fills the list of merges: each way to cut one of the n tokens into two is a merge with rank[id].
 * BPE_NOT_MERGED: no merge gives the token. */
#define BPE_NOT_MERGED UINT32_MAX
ln_status bpe_cut_tokens(bpe_tables *t, const uint32_t *rank, size_t n, ln_error *err);

uint32_t bpe_first_cp(const char *s, size_t n);
uint32_t bpe_last_cp(const char *s, size_t n);

#endif
