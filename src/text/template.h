/* A model's chat templates: which one it is, what its special tokens are called, and rendering a conversation with it. */
#ifndef LN_TEXT_TEMPLATE_H
#define LN_TEXT_TEMPLATE_H

#include "jinja.h"
#include "text.h"

/* Immutable after opening; threads may share it. */
typedef struct ln_tmpl ln_tmpl;

/* Reads DIR/chat_template.jinja, else "chat_template" of DIR/tokenizer_config.json: a text, or a list of named ones. Tokens by name
 * (bos_token and the like) come from tokenizer_config.json. `choice`, when not NULL, is the name of one of the list, or a file to read
 * instead. *out is NULL when there is no template and none is chosen. You own *out. */
ln_status ln_tmpl_open(ln_tmpl **out, const char *dir, const char *choice, ln_error *err);
/* One template from a file; no tokens are known. */
ln_status ln_tmpl_open_file(ln_tmpl **out, const char *path, ln_error *err);
void ln_tmpl_close(ln_tmpl **t);
/* The source of what is used for a conversation without tools. Borrowed until close. */
const char *ln_tmpl_source(const ln_tmpl *t, size_t *bytes);

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
