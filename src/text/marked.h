/* Inside chat templates: what template.c lends to marked.c. */
#ifndef LN_TEXT_MARKED_H
#define LN_TEXT_MARKED_H

#include "template.h"

/* The first n messages of a conversation, rendered. *out is to be freed, whatever is returned. */
ln_status tmpl_render(const ln_tmpl *t, const ln_talk *talk, size_t n, bool generate, ln_rendered *out, ln_error *err);
/* Appends the ids of the first `bytes` of a rendering. */
ln_status tmpl_ids(const ln_tmpl *t, const ln_tok *tok, const jinja_text *text, size_t bytes, ln_ids *out, ln_error *err);

#endif
