/* Internal to chat templates: what chat_template.c provides to assistant_mask.c. */
#ifndef LN_CHAT_RENDER_H
#define LN_CHAT_RENDER_H

#include "chat_template.h"

/* Renders the first n messages of a conversation (SIZE_MAX: all of them). `generate` asks for the
 * assistant's header after them. The caller frees *out with ln_rendered_free, on failure too. */
ln_status model_template_render(const ln_model_template *t, const ln_conversation *talk, size_t n,
                                bool generate, ln_rendered *out, ln_error *err);
/* Appends the token ids of the first `bytes` bytes of a rendering. */
ln_status model_template_ids(const ln_model_template *t, const ln_tok *tok, const jinja_text *text,
                             size_t bytes, ln_ids *out, ln_error *err);
/* Appends the ids of a conversation up to the end of its last message's text. LN_EINVALID as for
 * ln_prompt.continue_last. */
ln_status model_template_encode_last(const ln_model_template *t, const ln_tok *tok,
                                     const ln_conversation *talk, ln_ids *out, ln_error *err);

#endif
