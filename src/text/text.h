/* Words <-> ids. tokenizer.json interpreted as it stands: normalizers, pre-tokenizers, BPE, added tokens, post-processors,
 * decoders. A tokenizer is immutable after opening and may be shared by threads.
 *
 * Texts are bytes with a length. Input that is no valid UTF-8 becomes U+FFFD first, as the reference does. Ids are int32. */
#ifndef LN_TEXT_H
#define LN_TEXT_H

#include "../base/base.h"

typedef struct ln_tok ln_tok;

typedef struct ln_ids {
    int32_t *data;
    size_t n, cap;
} ln_ids;
ln_status ln_ids_add(ln_ids *ids, int32_t id, ln_error *err);
void ln_ids_free(ln_ids *ids);

/* Opens DIR/tokenizer.json, with the tokens that tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json add (docs/tokenizer.md). LN_EIO when it is absent, LN_EINVALID when it contradicts itself,
 * LN_EUNSUPPORTED naming the type that is not known here. You own *out. */
ln_status ln_tok_open(ln_tok **out, const char *dir, ln_error *err);
/* The same from a document in memory alone, which is not needed afterwards; `name` stands in messages. */
ln_status ln_tok_open_memory(ln_tok **out, const char *name, const char *json, size_t bytes, ln_error *err);
void ln_tok_close(ln_tok **tok);
/* One more than the largest id that has a text. */
int32_t ln_tok_count(const ln_tok *tok);
/* The same of the model's own vocabulary, without what added tokens put behind it. */
int32_t ln_tok_vocab(const ln_tok *tok);
/* The id of a whole token (vocabulary or added), -1 when there is none. */
int32_t ln_tok_id(const ln_tok *tok, const char *content, size_t bytes);
/* The text of one id as in the vocabulary file; NULL when it has none. Borrowed until close. */
const char *ln_tok_content(const ln_tok *tok, int32_t id, size_t *bytes);
bool ln_tok_is_special(const ln_tok *tok, int32_t id);
/* Appends to *out. */
ln_status ln_tok_encode(const ln_tok *tok, const char *text, size_t bytes, bool add_special, ln_ids *out, ln_error *err);
/* Appends to *out. Ids without a text are an LN_EINVALID error that names the first. */
ln_status ln_tok_decode(const ln_tok *tok, const int32_t *ids, size_t n, bool skip_special, ln_str *out, ln_error *err);

/* A streaming detokenizer: ids go in one by one, text comes out as it becomes certain: never half a character, never a lost
 * space; the concatenation of all pieces equals ln_tok_decode of all ids (it runs the same code). Work and memory are bounded per
 * token, except that a run of byte-fallback tokens is held back while it may still turn out to be no UTF-8. */
typedef struct ln_detok {
    const ln_tok *tok;
    bool skip_special;
    int32_t keep[2];             /* special ids that are shown all the same; set after opening, -1: none */
    struct text_decoding *state; /* what the decoder steps hold back; NULL before the first push */
    ln_str text;
} ln_detok;
void ln_detok_open(ln_detok *d, const ln_tok *tok, bool skip_special);
/* The new text is d->text.data, d->text.len (may be empty), valid until the next call. An id without a text gives none (a padded
 * head may draw one); a negative id is LN_EINVALID. */
ln_status ln_detok_push(ln_detok *d, int32_t id, ln_error *err);
/* What is left; an unfinished character becomes U+FFFD. The next push begins a new text. */
ln_status ln_detok_flush(ln_detok *d, ln_error *err);
void ln_detok_close(ln_detok *d);

/* The fixed chat form of a family for a conversation (n >= 1 messages, roles and contents not NULL), with the assistant's header after
 * it: what is encoded with ln_tok_encode. The form holds its own bos where the family writes one; *add_special tells whether the
 * post-processor's additions belong too (never two bos). LN_EINVALID names the message whose role is unknown or that the form cannot
 * say in this place. Families: gemma3, gemma3_text, qwen2, qwen3, llama. LN_EUNSUPPORTED names any other. */
ln_status ln_chat_form(const ln_tok *tok, const char *model_type, const ln_message *messages, size_t n, ln_str *out, bool *add_special, ln_error *err);

/* ---- no forgery ---- */

/* The tokens that steer a model: those that are special, and those that its template writes. Immutable. */
typedef struct ln_controls ln_controls;
/* `written`: the texts that the template writes itself, with a byte 0 between them (may be empty). You own *out. */
ln_status ln_controls_open(ln_controls **out, const ln_tok *tok, const char *written, size_t bytes, ln_error *err);
void ln_controls_close(ln_controls **c);

/* What of a text came from messages: a byte for each of its bytes, 1 where it did, the same within a character; NULL: all of it or nothing. */
typedef struct ln_guard {
    const uint8_t *origin;
    bool all_data;
    const ln_controls *controls;
} ln_guard;
/* The same as ln_tok_encode, but no control token comes out of what messages spell: it is matched only where its first and its last
 * character are the template's. Everything else is encoded as one text, so that ids are the same where nobody forges. The text is valid
 * UTF-8. */
ln_status ln_tok_encode_guarded(const ln_tok *tok, const char *text, size_t bytes, bool add_special, const ln_guard *guard, ln_ids *out, ln_error *err);
/* A conversation in its family's fixed form, as ids. */
ln_status ln_chat_encode(const ln_tok *tok, const ln_controls *controls, const char *model_type, const ln_message *messages, size_t n, ln_ids *out,
                         ln_error *err);

#endif
