/* A model's chat template: finding it in the model's directory, its special tokens, and rendering and
 * encoding conversations with it. */
#ifndef LN_CHAT_TEMPLATE_H
#define LN_CHAT_TEMPLATE_H

#include "../jinja/jinja.h"
#include "../tokenizer/tokenizer.h"

/* A compiled chat template with the names of the special tokens. Immutable once it is opened and bound;
 * threads may share it. */
typedef struct ln_model_template ln_model_template;

/* Opens the chat templates of the model in `dir`: "default" and "tool_use", which is for conversations with
 * tools. Either may be missing; a conversation that needs a missing default is refused when it is rendered.
 * Template files come first: DIR/additional_chat_templates/NAME.jinja, and DIR/chat_template.jinja as the
 * default where that directory has none. Only when no file exists: the member "chat_template" of
 * DIR/chat_template.json, then of DIR/tokenizer_config.json, which is a string (the default) or a list of
 * named templates; then DIR/chat_templates/NAME.jinja. Special tokens by name (bos_token and so on) are read
 * from tokenizer_config.json, else from special_tokens_map.json.
 *
 * `choice`, unless NULL, is the name of another template of the model (a NAME.jinja in the two
 * directories, or a name in the list), or the path of a file to use instead (it contains '/' or ends in
 * .jinja). *out is NULL, with LN_OK, when the model has no template and `choice` is NULL; the caller owns
 * *out. LN_EIO: no template of that name, or a file cannot be read; LN_EINVALID: a file or a template has
 * invalid content, or all templates have other names; LN_EMEMORY. */
ln_status ln_model_template_open(ln_model_template **out, const char *dir, const char *choice, ln_error *err);
/* A conversation to render: exactly one of `messages` and `json` is set. All pointers are borrowed. */
typedef struct ln_conversation {
    const ln_message *messages;
    size_t n_messages;
    /* A request in the format of ln_model_template_request. add_generation_prompt defaults to true here. */
    const char *json;
    size_t json_bytes;
    /* A JSON object whose members become variables of the template (such as enable_thinking); NULL: none. */
    const char *kwargs;
    size_t kwargs_bytes;
    /* The time that strftime_now() formats, as 2025-07-10T12:34:56; NULL: the current local time. A member
     * "now" of `json` comes first. */
    const char *now;
    /* The last message is of the assistant and is to be continued: the rendering ends with its text. */
    bool continues;
} ln_conversation;
/* Binds the model's tokenizer to its template: determines the control tokens that the template may
 * produce, and the text of bos_token where the configuration does not specify it. Must be called before
 * ids are encoded. LN_EMEMORY. */
ln_status ln_model_template_bind(ln_model_template *t, const ln_tok *tok, ln_error *err);
/* Whether binding a tokenizer can change renderings: true when the configuration does not specify
 * bos_token. */
bool ln_model_template_wants_tok(const ln_model_template *t);
/* Appends the token ids of a conversation followed by the header of the assistant's answer. The
 * conversation is rendered to one string and encoded without the tokenizer's own special tokens, because
 * the template writes bos itself. Bytes that come from messages never become control tokens. The messages
 * are normalised as by apply_chat_template (jinja_tidy_messages), which ln_model_template_request leaves
 * to its caller. The template must be bound to `tok`. LN_EINVALID: the request is invalid or the template
 * fails; LN_EMEMORY. */
ln_status ln_model_template_encode(const ln_model_template *t, const ln_tok *tok, const ln_conversation *talk,
                                   ln_ids *out, ln_error *err);

/* Turns of which a mask of the assistant's tokens lacks something. */
typedef struct ln_mask_report {
    size_t n_unmatched; /* turns that could not be located */
    size_t n_parted;    /* turns that lack the end of the header of an answer */
} ln_mask_report;
/* Encodes a whole conversation, without a header after it, and determines which tokens the assistant wrote
 * (the loss mask of fine-tuning). Appends the ids to *ids, and one byte for each id to *mask: 1 for the
 * assistant's tokens including its end-of-turn token, else 0.
 *
 * Where the template has {% generation %} blocks, these define the mask. Otherwise the turn of message i
 * is the text between the rendering of the messages before it with the header of an answer, and the
 * rendering that includes it; if that header goes on with what the turn lacks (DeepSeek R1: <think>), the
 * turn begins where the two part. A system message of the template's own may precede the first turn. A turn
 * that the template renders differently when more messages follow (Qwen 3 removes its reasoning) cannot be
 * located in this way and stays 0. On failure *ids has its previous length. Errors as for
 * ln_model_template_encode. *missed, unless NULL, gets a byte for each message: 1 if it is a turn that counts
 * and could not be located. */
ln_status ln_model_template_assistant_mask(const ln_model_template *t, const ln_tok *tok,
                                           const ln_conversation *talk, ln_ids *ids, ln_str *mask,
                                           ln_str *missed, ln_mask_report *report, ln_error *err);
/* Encodes the beginning of a conversation that ends with the last turn in *missed, as the model wrote that
 * turn: no message follows. Only turns that were missed get mask 1. The length of *missed becomes the index
 * of that turn, and bytes of turns that were located become 0. report->n_unmatched is 1 if the last turn
 * cannot be located here either. Appends nothing if *missed has no turn. */
ln_status ln_model_template_missed_turns(const ln_model_template *t, const ln_tok *tok,
                                         const ln_conversation *talk, ln_str *missed, ln_ids *ids,
                                         ln_str *mask, ln_mask_report *report, ln_error *err);

/* Returns LN_OK if the last of n messages can be continued: it is of role assistant and has a text. Otherwise
 * LN_EINVALID. */
ln_status ln_conversation_last(const ln_message *messages, size_t n, ln_error *err);

/* Opens one template from a file, without special tokens. *out and errors as for ln_model_template_open. */
ln_status ln_model_template_open_file(ln_model_template **out, const char *path, ln_error *err);
void ln_model_template_close(ln_model_template **t);
/* The source of the template for conversations without tools, or of the one for tools if there is no other;
 * *bytes is its length. Borrowed until close. */
const char *ln_model_template_source(const ln_model_template *t, size_t *bytes);
/* The same of the template for conversations with tools, or of the one for all. */
const char *ln_model_template_tools_source(const ln_model_template *t, size_t *bytes);
/* Whether the template mentions a variable of that name, such as enable_thinking. */
bool ln_model_template_names(const ln_model_template *t, const char *name);
/* Whether the template has a switch of reasoning: it reads enable_thinking or thinking. */
bool ln_model_template_think_switch(const ln_model_template *t);

/* A finished rendering. `text` is borrowed from `run`. The caller frees it with ln_rendered_free, after a
 * failure too. */
typedef struct ln_rendered {
    jinja *own; /* the template that the request brought, or NULL */
    jinja_run *run;
    const jinja *used;
    jinja_text text;
} ln_rendered;
void ln_rendered_free(ln_rendered *r);

/* Renders a request, a JSON object in one of two forms:
 *   {"messages", "tools"?, "documents"?, "kwargs"?, "add_generation_prompt"?, "bos_token"?, "eos_token"?,
 *    "now"?, "template"?}: a conversation ("template" is used when t is NULL only);
 *   {"template"?, "context", "trim_blocks"?, "lstrip_blocks"?, "keep_trailing_newline"?, "now"?}: a template
 *    with its variables.
 * `t` may be NULL when the request has a "template". The caller frees *out with ln_rendered_free, whatever
 * is returned. LN_EINVALID: the request is invalid or the template fails (out->text.refused holds the
 * argument of raise_exception); LN_EMEMORY. */
ln_status ln_model_template_request(const ln_model_template *t, const char *json, size_t bytes,
                                    ln_rendered *out, ln_error *err);

#endif
