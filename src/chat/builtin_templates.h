/* Built-in chat formats of model families, for models without a chat template. */
#ifndef LN_BUILTIN_TEMPLATES_H
#define LN_BUILTIN_TEMPLATES_H

#include "../tokenizer/tokenizer.h"

/* Formats a conversation (n >= 1 messages, roles and contents not NULL) in the chat format of the family
 * `model_type`, followed by the assistant's header, and appends it to *out. The result is to be encoded
 * with ln_tok_encode. It contains bos where the family's format does; *add_special says whether the
 * tokenizer's post-processor must add its special tokens too, so that there is exactly one bos. Families:
 * gemma3, gemma3_text, qwen2, qwen3, llama.
 *
 * LN_EUSAGE: n is 0. LN_EINVALID: a message has an unknown role, or a role that the format does not allow
 * in this place; the error names the message. LN_EUNSUPPORTED: any other family. LN_EMEMORY. */
ln_status ln_chat_text(const ln_tok *tok, const char *model_type, const ln_message *messages, size_t n,
                       ln_str *out, bool *add_special, ln_error *err);

/* Appends the token ids of a conversation in its family's chat format. Only the format itself produces the
 * control tokens in `controls`; message contents do not. Errors as for ln_chat_text. */
ln_status ln_chat_encode(const ln_tok *tok, const ln_controls *controls, const char *model_type,
                         const ln_message *messages, size_t n, ln_ids *out, ln_error *err);

#endif
