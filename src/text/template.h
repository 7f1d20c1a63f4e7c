/* A model's chat templates: which one it is, what its special tokens are called, and rendering a conversation with it. */
#ifndef LN_TEXT_TEMPLATE_H
#define LN_TEXT_TEMPLATE_H

#include "jinja.h"
#include "text.h"

/* Immutable after opening; threads may share it. */
typedef struct ln_tmpl ln_tmpl;

/* Reads DIR/chat_template.jinja, else "chat_template" of DIR/chat_template.json or DIR/tokenizer_config.json: a text, or a list of named
 * ones; named ones also lie in DIR/additional_chat_templates/NAME.jinja and DIR/chat_templates/NAME.jinja. Tokens by name (bos_token and
 * the like) come from tokenizer_config.json, else special_tokens_map.json. `choice`, when not NULL, is such a name, or a file to read instead (it has a '/' or ends in
 * .jinja). *out is NULL when there is no template and none is chosen. You own *out. */
ln_status ln_tmpl_open(ln_tmpl **out, const char *dir, const char *choice, ln_error *err);
/* What a conversation is to be rendered from. One of messages and json. */
typedef struct ln_talk {
    const ln_message *messages;
    size_t n_messages;
    const char *json;      /* a request as ln_tmpl_request takes it; add_generation_prompt is true unless it says otherwise */
    size_t json_bytes;
    const char *kwargs;    /* a JSON object whose members become variables (enable_thinking); or NULL */
    size_t kwargs_bytes;
} ln_talk;
/* A model's tokenizer beside its template: finds the control tokens, and the text of bos where the configuration does not tell it. */
ln_status ln_tmpl_bind(ln_tmpl *t, const ln_tok *tok, ln_error *err);
/* Whether a rendering could differ once a tokenizer is bound. */
bool ln_tmpl_wants_tok(const ln_tmpl *t);
/* Appends the ids of a conversation, with the header of the answer to it. Rendered as one text; nothing is added around it (a template
 * writes its own bos), and no control token comes out of what the messages spell. The messages are tidied as apply_chat_template does
 * (jinja_tidy_messages), which ln_tmpl_request leaves to its caller. The template is bound to `tok`. */
ln_status ln_tmpl_encode(const ln_tmpl *t, const ln_tok *tok, const ln_talk *talk, ln_ids *out, ln_error *err);

/* The ids of a whole conversation, without a header after it, and which of them the assistant wrote: what fine-tuning learns from.
 * Appends to *ids, and to *mask a byte for each, 1 for the assistant's, the end of its turn among them. Where the template marks what is
 * generated ({% generation %}), that is taken; else a turn lies between the conversation before it with the header of an answer and the
 * conversation with it. A turn that the template writes otherwise when more follows (Qwen 3 drops its thoughts) cannot be found so:
 * *n_left counts those. */
ln_status ln_tmpl_marked(const ln_tmpl *t, const ln_tok *tok, const ln_talk *talk, ln_ids *ids, ln_str *mask, size_t *n_left, ln_error *err);

/* One template from a file; no tokens are known. */
ln_status ln_tmpl_open_file(ln_tmpl **out, const char *path, ln_error *err);
void ln_tmpl_close(ln_tmpl **t);
/* The source of what is used for a conversation without tools. Borrowed until close. */
const char *ln_tmpl_source(const ln_tmpl *t, size_t *bytes);
/* Whether it has a variable of that name. */
bool ln_tmpl_names(const ln_tmpl *t, const char *name);

/* A finished rendering. `text` is borrowed from `run`; jinja_end gives all of it back, on failure too. */
typedef struct ln_rendered {
    jinja *own;      /* the request's own template */
    jinja_run *run;
    const jinja *used;
    jinja_text text;
} ln_rendered;
void ln_rendered_free(ln_rendered *r);

/* Renders a request, a JSON object:
 *   {"messages", "tools"?, "documents"?, "kwargs"?, "add_generation_prompt"?, "bos_token"?, "eos_token"?, "now"?}, or
 *   {"template"?, "context", "trim_blocks"?, "lstrip_blocks"?, "keep_trailing_newline"?, "now"?}: a template with its variables.
 * t may be NULL when the request brings its template. *out is yours, whatever is returned. */
ln_status ln_tmpl_request(const ln_tmpl *t, const char *json, size_t bytes, ln_rendered *out, ln_error *err);

#endif
