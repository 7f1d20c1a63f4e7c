/* Conversations with tools for templates that take none, or not all of them: tools are written into the
 * system text, calls and results into the texts of messages. What a template requires is added. */
#ifndef LN_TOOL_TEXT_H
#define LN_TOOL_TEXT_H

#include "chat_template.h"
#include "tool_calls.h"

/* What a template makes of tools and calls, found by rendering a few conversations. */
typedef struct ln_tool_support {
    const ln_call_format *format;
    bool shows_tools;    /* it shows the list of tools to the model */
    bool shows_calls;    /* it shows calls of earlier turns, and their results */
    bool several;        /* ... also two calls of one message */
    bool takes_system;   /* it takes a message of role system */
    bool null_content;   /* it shows a call only in a message whose content is null */
    bool text_arguments; /* it takes the arguments of a call as a text */
    bool one_text;       /* it rejects a call with both reasoning and content */
    bool wants_about;    /* it rejects a tool without a description */
} ln_tool_support;

/* Judges a template; NULL: conversations have a built-in template. LN_EMEMORY. */
ln_status ln_tool_support_find(ln_tool_support *out, const ln_model_template *tmpl_or_null, ln_error *err);
/* Makes the support that of a template without a format of calls: tools and calls become texts. */
void ln_tool_support_forget(ln_tool_support *s);
/* Whether a template with this support needs ln_tool_text for requests with tools or calls. */
static inline bool ln_tool_text_is_needed(const ln_tool_support *s) {
    return !s->shows_tools || !s->shows_calls || s->one_text || s->wants_about;
}
/* Appends the request (see ln_model_template_request) with tools and calls as texts where the template does
 * not show them. A request without either is appended as it is. LN_EINVALID: it is no request; LN_EMEMORY. */
ln_status ln_tool_text(const ln_tool_support *s, const char *json, size_t bytes, ln_str *out, ln_error *err);

#endif
