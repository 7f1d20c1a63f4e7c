/* Internal to chat templates: the texts of a model's templates and its special tokens, as its files give
 * them. */
#ifndef LN_TEMPLATE_SOURCE_H
#define LN_TEMPLATE_SOURCE_H

#include "../base/base.h"

enum { TEMPLATE_TOKENS = 7 };
/* The variables of the special tokens: bos_token, eos_token and so on; bos_token is the first. */
extern const char *const template_token_names[TEMPLATE_TOKENS];

typedef struct template_text {
    char *text, *name; /* text NULL: no such template. name: of its file or JSON member, for messages */
    size_t bytes;
} template_text;

/* Owned by the caller, who closes it after an error too. */
typedef struct template_source {
    template_text plain, tools; /* for conversations without and with tools; tools NULL: plain is for both */
    char *token[TEMPLATE_TOKENS];
    size_t token_bytes[TEMPLATE_TOKENS];
    bool bos_told; /* the configuration has a bos_token, which may be null */
} template_source;

/* Reads the templates and special tokens of the model in `dir`; `choice` and errors as for
 * ln_model_template_open. Both texts are NULL, with LN_OK, when the model has no template. */
ln_status template_source_read(template_source *s, const char *dir, const char *choice, ln_error *err);
/* Reads one template from a file that the user names, which may be a pipe. */
ln_status template_source_file(template_source *s, const char *path, ln_error *err);
/* The same for a GGUF file (template_gguf.c). A text that *s has already is kept. */
ln_status template_source_gguf(template_source *s, const char *path, const char *choice, ln_error *err);
/* Stores a copy of the text and of its name. */
ln_status template_set_text(template_text *t, const char *name, const char *text, size_t bytes,
                            ln_error *err);
void template_source_close(template_source *s);

#endif
