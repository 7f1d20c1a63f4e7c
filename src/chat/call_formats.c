/* The table of the formats of calls. */
#include "tool_calls.h"

#include <string.h>

#define ANYWHERE LN_CALLS_ANYWHERE
#define AT_START LN_CALLS_AT_START
#define CHANNEL  LN_CALLS_IN_CHANNEL
#define OBJECT   LN_CALLS_OBJECT
#define JSON     LN_CALLS_JSON
#define TAGS     LN_CALLS_TAGS
#define QUOTED   LN_CALLS_QUOTED
#define PYTHON   LN_CALLS_PYTHON

static const ln_call_format formats[] = {
#define FORM(name, place, body, tag, open, begin, middle, end, sep, close, key, key_end, value_end, has, \
             also, lacks, shown)                                                                         \
    {name, place, body, tag, open, begin, middle, end, sep, close, key, key_end, value_end, has, also, lacks},
#include "call_formats.def"
#undef FORM
};

const ln_call_format *ln_call_format_generic(void) { return &formats[LN_COUNT(formats) - 1]; }

const ln_call_format *ln_call_format_at(size_t i) { return i < LN_COUNT(formats) ? &formats[i] : NULL; }

const ln_call_format *ln_call_format_in(const char *source) {
    for (size_t i = 0; i < LN_COUNT(formats); i++) {
        const ln_call_format *f = &formats[i];
        if (f->has && strstr(source, f->has) && (!f->also || strstr(source, f->also)) &&
            (!f->lacks || !strstr(source, f->lacks)))
            return f;
    }
    return NULL;
}

size_t ln_call_token_at(const ln_tok *tok, const char *text, int32_t *id) {
    const char *stop = *text == '<' ? ">" : *text == '[' ? "]" : "";
    for (const char *at = text; *stop && (at = strpbrk(at, stop)); at++) {
        const size_t n = (size_t)(at - text) + 1;
        *id = ln_tok_id(tok, text, n);
        if (*id >= 0 && ln_tok_is_special(tok, *id)) return n;
    }
    *id = -1;
    return 0;
}

void ln_call_format_tokens(const ln_call_format *format, const ln_tok *tok, int32_t ids[LN_CALL_TOKENS]) {
    const char *const texts[] = {format->tag,     format->open,     format->begin, format->middle,
                                 format->end,     format->sep,      format->close, format->key,
                                 format->key_end, format->value_end};
    size_t n = 0;
    int32_t id;
    for (size_t i = 0; i < LN_COUNT(texts); i++)
        for (const char *at = texts[i]; at && *at;) {
            const size_t bytes = ln_call_token_at(tok, at, &id);
            if (bytes > 0 && n < LN_CALL_TOKENS) ids[n++] = id;
            at += bytes > 0 ? bytes : 1;
        }
    for (; n < LN_CALL_TOKENS; n++) ids[n] = -1;
}
