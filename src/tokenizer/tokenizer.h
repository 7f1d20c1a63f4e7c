/* Converts text to token ids and token ids to text. The tokenizer interprets tokenizer.json: normalizers,
 * pre-tokenizers, BPE, added tokens, post-processors, decoders. In this module, "the reference" is the
 * package tokenizers by Hugging Face, whose results the tokenizer reproduces (docs/tokenizer.md). A tokenizer
 * is immutable after opening, so threads may share it.
 *
 * Texts are UTF-8 with a length in bytes; they need no terminating zero byte. The encoder first replaces
 * invalid UTF-8 by U+FFFD, as the reference does. Token ids are int32_t. Every function that returns an
 * ln_status can also return LN_EMEMORY. */
#ifndef LN_TOKENIZER_H
#define LN_TOKENIZER_H

#include "../base/base.h"

typedef struct ln_tok ln_tok;

/* A growable list of n token ids. An all-zero struct is an empty list. ln_ids_free frees it. */
typedef struct ln_ids {
    int32_t *data;
    size_t n, cap;
    /* With most > 0 a text that needs more than `most` ids by its length alone (ln_tok_fewest) is rejected
     * before it is encoded: LN_EINVALID, and `fewest` is set to the least number of ids. */
    size_t most, fewest;
} ln_ids;
/* Appends one id. On an error the list is unchanged. */
ln_status ln_ids_add(ln_ids *ids, int32_t id, ln_error *err);
void ln_ids_free(ln_ids *ids);

/* Opens the tokenizer in a GGUF file, or DIR/tokenizer.json with the tokens that tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json in DIR add (docs/tokenizer.md). LN_EIO: the file is absent.
 * LN_EINVALID: a file is malformed or contradicts itself. LN_EUNSUPPORTED: the file uses a type of component
 * that is not implemented; the message names it. LN_ECHANGED: the file changed while it was read. The caller
 * owns *out; on an error it is NULL. */
ln_status ln_tok_open(ln_tok **out, const char *dir, ln_error *err);
/* The same with further tokens, texts with commas between, which get the ids that transformers' add_tokens
 * gives them, and are matched as they are. LN_EUSAGE: a text is empty. */
ln_status ln_tok_open_adding(ln_tok **out, const char *dir, const char *texts, ln_error *err);
/* The same with a normalizer Lowercase before the others, unless they have one. */
ln_status ln_tok_open_lower(ln_tok **out, const char *dir, ln_error *err);
/* Opens a tokenizer from the text of a tokenizer.json alone. The text may be freed afterwards. `name` is the
 * name of the file in error messages. LN_EINVALID, LN_EUNSUPPORTED and ownership as for ln_tok_open. */
ln_status ln_tok_open_memory(ln_tok **out, const char *name, const char *json, size_t bytes, ln_error *err);
/* Opens the tokenizer in the metadata of a GGUF file, which is not needed afterwards (docs/gguf.md). LN_EIO:
 * the file has none. LN_EINVALID: the message names the key. LN_EUNSUPPORTED: a kind of tokenizer, or of
 * splitting texts, that is not implemented. The caller owns *out. */
struct ln_gguf;
struct json_t;
ln_status ln_tok_open_gguf(ln_tok **out, const struct ln_gguf *g, ln_error *err);
/* Returns in *tokenizer and *config what tokenizer.json and tokenizer_config.json of the same tokenizer are.
 * Errors as for ln_tok_open_gguf. */
ln_status ln_tok_json_of_gguf(struct json_t **tokenizer, struct json_t **config, const struct ln_gguf *g,
                              ln_error *err);
/* Opens the tokenizer of a model that has none: it knows no token, and what converts returns *why, an error
 * that is copied. The caller owns *out. */
ln_status ln_tok_open_absent(ln_tok **out, const ln_error *why, ln_error *err);
/* The error of ln_tok_open_absent; LN_OK for any other tokenizer. */
ln_status ln_tok_check(const ln_tok *tok, ln_error *err);
/* Frees *tok and sets it to NULL; does nothing when it is NULL. */
void ln_tok_close(ln_tok **tok);
/* The class of transformers that builds this tokenizer from code of its own; "": it opens tokenizer.json as
 * it is. *differs: the sections of tokenizer.json that it replaces by others ("pre_tokenizer, decoder"); here
 * the file's are used. Both are borrowed from the tokenizer. */
void ln_tok_class(const ln_tok *tok, const char **name, const char **differs);
/* One more than the largest id that has a text, added tokens included. */
int32_t ln_tok_count(const ln_tok *tok);
/* One more than the largest id of the BPE model's vocabulary, without added tokens. */
int32_t ln_tok_vocab(const ln_tok *tok);
/* The id of the token (of the vocabulary or added) whose text is `content`, -1 when there is none. */
int32_t ln_tok_id(const ln_tok *tok, const char *content, size_t bytes);
/* The text of one id as the vocabulary spells it (byte-level tokens in the byte-level alphabet), its length
 * in *bytes; NULL when the id has none. The tokenizer owns the text; it is valid until ln_tok_close. */
const char *ln_tok_content(const ln_tok *tok, int32_t id, size_t *bytes);
/* Whether the id is an added token that the tokenizer's files mark as special. False for an unknown id. */
bool ln_tok_is_special(const ln_tok *tok, int32_t id);
/* Appends the ids of the text to *out. With add_special, the post-processor adds its special tokens (BOS and
 * the like). LN_EINVALID: the text needs an unknown token that the vocabulary lacks, or a pattern exceeds its
 * match limit. On an error *out keeps the ids that it had. */
ln_status ln_tok_encode(const ln_tok *tok, const char *text, size_t bytes, bool add_special, ln_ids *out,
                        ln_error *err);
/* Like ln_tok_encode with add_special, for a text of which at most `most` ids are wanted, special tokens
 * included: it loses its last ids, or with `left` its first ones, before the post-processor adds its tokens.
 * *n_cut: how many. LN_EINVALID too: `most` is less than the tokens that the post-processor adds. */
typedef struct ln_tok_limit {
    size_t most;
    bool left;
} ln_tok_limit;
ln_status ln_tok_encode_limited(const ln_tok *tok, const char *text, size_t bytes, const ln_tok_limit *limit,
                                ln_ids *out, size_t *n_cut, ln_error *err);
/* A lower bound of the number of ids of a text, by its length alone; 0: nothing is known. */
size_t ln_tok_fewest(const ln_tok *tok, const char *text, size_t bytes);
/* Rejects a text that cannot fit ids->most together with the ids that the list has: see ln_ids. */
ln_status ln_ids_check_length(ln_ids *ids, const ln_tok *tok, const char *text, size_t bytes, ln_error *err);
/* Appends the text of n ids to *out. With skip_special, special tokens give no text. An id that the tokenizer
 * does not know gives none either: the output layer of many models is padded beyond the vocabulary.
 * LN_EINVALID: an id is negative; the message names the first one. On an error *out keeps the text that it
 * had. */
ln_status ln_tok_decode(const ln_tok *tok, const int32_t *ids, size_t n, bool skip_special, ln_str *out,
                        ln_error *err);

/* Appends the bytes that one id stands for within a text, which may be a part of a character; nothing for an
 * id without a text. */
ln_status ln_tok_bytes(const ln_tok *tok, int32_t id, ln_str *out, ln_error *err);

/* A streaming detokenizer. The caller pushes ids one by one; each call returns the text that no later id can
 * change: whole characters only, spaces included. The concatenation of all returned texts equals
 * ln_tok_decode of all ids, because both run the same code. Work and memory per token are bounded, except
 * that a run of byte-fallback tokens is held back while it may still turn out to be invalid UTF-8, and that a
 * decoder with a regular expression or WordPiece after Fuse holds back the whole text. */
typedef struct ln_detok {
    const ln_tok *tok;
    bool skip_special;
    bool marks;       /* the byte 0xFF, which no UTF-8 text has, stands before the text of a special token */
    int32_t keep[24]; /* special ids that give text despite skip_special; the caller sets them after opening;
                        -1: none */
    struct tok_decoding *state; /* text that the decoder steps hold back; NULL before the first push */
    ln_str text;
} ln_detok;
/* Initialises *d; allocates nothing. `tok` must outlive *d, which the caller frees with ln_detok_close. */
void ln_detok_open(ln_detok *d, const ln_tok *tok, bool skip_special);
/* Pushes one id. The new text is d->text.data with d->text.len bytes (it may be empty), valid until the next
 * call. An id without a text gives an empty text, because sampling can return one if the output layer is
 * padded beyond the vocabulary. LN_EINVALID: the id is negative. */
ln_status ln_detok_push(ln_detok *d, int32_t id, ln_error *err);
/* Returns in d->text the text that was held back; an incomplete character becomes U+FFFD. The next push
 * begins a new text. */
ln_status ln_detok_flush(ln_detok *d, ln_error *err);
void ln_detok_close(ln_detok *d);

/* ---- protection of control tokens ---- */

/* The control tokens of a tokenizer: special tokens, and other added tokens that the chat template writes.
 * Immutable. */
typedef struct ln_controls ln_controls;
/* `written`: the literal texts of the chat template, separated by zero bytes (may be empty); not needed
 * afterwards. `tok` is not needed afterwards either. The caller owns *out; on an error it is NULL. */
ln_status ln_controls_open(ln_controls **out, const ln_tok *tok, const char *written, size_t bytes,
                           ln_error *err);
/* Frees *c and sets it to NULL; does nothing when it is NULL. */
void ln_controls_close(ln_controls **c);

/* Which bytes of a text came from messages (data) and which from the chat template. origin[i], one entry for
 * each byte of the text, is 1 for data and 0 for the template; all bytes of a character have the same origin.
 * With origin NULL, all_data decides for the whole text. All pointers are borrowed. */
typedef struct ln_guard {
    const uint8_t *origin;
    bool all_data;
    const ln_controls *controls;
} ln_guard;
/* Like ln_tok_encode, but text from messages never becomes a control token: a control token is matched only
 * if its first and its last character come from the template. The text is encoded as a whole, not piece by
 * piece, so the ids equal those of ln_tok_encode for every text in which no message spells a control token.
 * LN_EINVALID: as for ln_tok_encode, or the text is invalid UTF-8. */
ln_status ln_tok_encode_guarded(const ln_tok *tok, const char *text, size_t bytes, bool add_special,
                                const ln_guard *guard, ln_ids *out, ln_error *err);

#endif
