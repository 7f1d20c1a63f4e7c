/* Conversations whose last message, an answer that was cut, is to be continued: the prompt ends with its
 * text, as the template shows it. */
#include "chat_render.h"
#include "../base/json.h"

#include <string.h>

static ln_status cannot_continue(ln_error *err, const char *why) {
    return ln_fail(err, LN_EINVALID, "the last message cannot be continued: %s", why);
}

ln_status ln_conversation_last(const ln_message *messages, size_t n, ln_error *err) {
    if (n == 0 || strcmp(messages[n - 1].role, "assistant") != 0)
        return cannot_continue(err, "expected one of role assistant");
    return messages[n - 1].content_bytes > 0 ? LN_OK : cannot_continue(err, "it has no text");
}

/* Reads the last message of a request. Its texts are borrowed from *root, which the caller releases. */
static ln_status read_last(const ln_conversation *talk, json_t **root, ln_message *out, ln_error *err) {
    LN_TRY(ln_json_load(root, "request", talk->json, talk->json_bytes, err));
    const json_t *list = json_object_get(*root, "messages"),
                 *last = json_array_get(list, json_array_size(list) - 1),
                 *role = json_object_get(last, "role"), *content = json_object_get(last, "content");
    if (json_array_size(json_object_get(last, "tool_calls")) > 0)
        return cannot_continue(err, "it has calls of tools");
    *out =
        (ln_message){json_is_string(role) ? json_string_value(role) : "",
                     json_is_string(content) ? json_string_value(content) : "", json_string_length(content)};
    return LN_OK;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Sets *bytes to the end of the last message's text in a rendering, at its last place. Templates
 * often drop blanks at its ends. */
static ln_status find_end(const jinja_text *text, const ln_message *last, size_t *bytes, ln_error *err) {
    const char *from = last->content;
    size_t all = last->content_bytes;
    while (all > 0 && is_blank(*from)) from++, all--;
    size_t n = all;
    while (n > 0 && is_blank(from[n - 1])) n--;
    if (n == 0) return cannot_continue(err, "its text is blank");
    for (size_t begin = text->bytes - LN_MIN(n, text->bytes) + 1; begin-- > 0;) {
        if (begin + n > text->bytes || memcmp(text->text + begin, from, n) != 0) continue;
        const bool whole = begin + all <= text->bytes && memcmp(text->text + begin, from, all) == 0;
        *bytes = begin + (whole ? all : n);
        return LN_OK;
    }
    return cannot_continue(err, "the chat template does not show its text as it is");
}

ln_status model_template_encode_last(const ln_model_template *t, const ln_tok *tok,
                                     const ln_conversation *talk, ln_ids *out, ln_error *err) {
    ln_rendered r = {0};
    json_t *root = NULL;
    ln_message last = {0};
    size_t bytes = 0;
    ln_status st = LN_OK;
    if (talk->json) LN_GO(read_last(talk, &root, &last, err));
    else if (talk->n_messages > 0) last = talk->messages[talk->n_messages - 1];
    LN_GO(ln_conversation_last(&last, last.role != NULL, err));
    LN_GO(model_template_render(t, talk, SIZE_MAX, false, &r, err));
    LN_GO(find_end(&r.text, &last, &bytes, err));
    st = model_template_ids(t, tok, &r.text, bytes, out, err);
out:
    ln_rendered_free(&r);
    json_decref(root);
    return st;
}
