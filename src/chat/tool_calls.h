/* Calls of tools in generated text: the formats in which models write them (call_formats.def), and a
 * streaming parser that separates them from the answer's text. */
#ifndef LN_TOOL_CALLS_H
#define LN_TOOL_CALLS_H

#include "../base/json.h"
#include "../tokenizer/tokenizer.h"

/* Where a group of calls may begin, and how a call is written: see call_formats.def. */
typedef enum ln_call_place { LN_CALLS_ANYWHERE, LN_CALLS_AT_START, LN_CALLS_IN_CHANNEL } ln_call_place;
typedef enum ln_call_body {
    LN_CALLS_OBJECT,
    LN_CALLS_JSON,
    LN_CALLS_TAGS,
    LN_CALLS_QUOTED,
    LN_CALLS_PYTHON
} ln_call_body;

/* How a model writes calls: a row of call_formats.def. */
typedef struct ln_call_format {
    const char *name;
    ln_call_place place;
    ln_call_body body;
    const char *tag, *open, *begin, *middle, *end, *sep, *close;
    const char *key, *key_end, *value_end;
    const char *has, *also, *lacks; /* texts of a template; NULL: none */
} ln_call_format;

/* ---- call_formats.c ---- */

/* The format of a template with this source. NULL: it has none of its own. */
const ln_call_format *ln_call_format_in(const char *source);
/* The format for templates without one. */
const ln_call_format *ln_call_format_generic(void);
/* Form i of the table, in its order; NULL: there are no more. */
const ln_call_format *ln_call_format_at(size_t i);
enum { LN_CALL_TOKENS = 12 };
/* Finds the special tokens in a format's texts: at most LN_CALL_TOKENS, -1 after the last one. */
void ln_call_format_tokens(const ln_call_format *format, const ln_tok *tok, int32_t ids[LN_CALL_TOKENS]);
/* Bytes of the special token that a text begins with, 0: none; *id is its id. */
size_t ln_call_token_at(const ln_tok *tok, const char *text, int32_t *id);

/* ---- call_tools.c: what calls may name ---- */

/* What the values of a parameter may be: a set of these. Where texts stand as they are, a value is read as
 * JSON only if it may be of that kind. */
enum {
    LN_PARAM_TEXT = 1,
    LN_PARAM_NULL = 2,
    LN_PARAM_BOOL = 4,
    LN_PARAM_INTEGER = 8,
    LN_PARAM_NUMBER = 16,
    LN_PARAM_ARRAY = 32,
    LN_PARAM_OBJECT = 64,
    LN_PARAM_ANY = 127
};
typedef struct ln_call_param {
    const char *name;
    unsigned kinds;
} ln_call_param;
typedef struct ln_call_tool {
    const char *name;
    const ln_call_param *params; /* [n_params] */
    size_t n_params;
} ln_call_tool;

/* The name of a tool in the list that a template is given, a text; NULL: it has none. */
const json_t *ln_call_tool_name(const json_t *tool);
/* The schema of its parameters; NULL: it has none. */
const json_t *ln_call_tool_schema(const json_t *tool);
/* Whether the tool's definition has "strict": false, which permits arguments outside its schema. */
bool ln_call_tool_is_lenient(const json_t *tool);
/* The schema that a local reference leads to, or the schema itself; NULL: it leads nowhere. */
const json_t *ln_call_resolve(const json_t *root, const json_t *schema);
unsigned ln_call_param_kinds(const json_t *root, const json_t *schema);
/* Makes the list of those of `tools` whose names are among names[0..n), in the arena. LN_EMEMORY. */
ln_status ln_call_tools(ln_arena *a, const json_t *tools, const char *const *names, size_t n,
                        const ln_call_tool **out, size_t *n_out, ln_error *err);
/* Copies a list into an arena. */
ln_status ln_call_tools_copy(ln_arena *a, const ln_call_tool *tools, size_t n, const ln_call_tool **out,
                             ln_error *err);

/* ---- call_grammar.c ---- */

typedef enum ln_call_need {
    LN_CALLS_MUST, /* the answer is calls */
    LN_CALLS_MAY   /* it is a text, in which calls are held to their format */
} ln_call_need;
/* Appends the expression of ln_sampling.grammar for an answer with calls (`single`: one) of those of the
 * tools that are among names[0..n), which is not empty. The arguments meet the schemas of their parameters,
 * which are objects; loose[i]: tool i takes any values. A failure is out->failed. */
void ln_call_grammar_put(ln_str *out, const ln_call_format *format, const ln_tok *tok, const json_t *tools,
                         const char *const *names, size_t n, const bool *loose_or_null, ln_call_need need,
                         bool single);
/* Appends the text of a call as the format has it, for a model that is shown how to call. */
void ln_call_text_put(ln_str *out, const ln_call_format *format, const char *name, const char *arguments,
                      size_t bytes);

/* ---- channel_grammar.c: answers that are messages with headers ---- */

/* Expressions of which the choice of the calls is a part: before the calls of an answer that must be one
 * (ended by "]}") and of one that may have some (ended by "}]}"); between a tool's name and its arguments. */
extern const char ln_channel_grammar_must[], ln_channel_grammar_may[], ln_channel_grammar_text[];
/* Appends the expression of a whole answer whose final message matches this grammar. */
void ln_channel_grammar_answer(ln_str *out, const char *grammar, size_t bytes);

/* ---- call_values.c ---- */

/* Appends a value of a format's parameters, text[0..bytes), as JSON. */
void ln_call_put_value(ln_str *out, unsigned kinds, const char *text, size_t bytes);
/* Appends {...} of a QUOTED format, or the arguments of a PYTHON one, as a JSON object. False: it is none. */
bool ln_call_put_quoted(ln_str *out, const char *quote, const char *text, size_t bytes);
bool ln_call_put_python(ln_str *out, const char *text, size_t bytes);

/* ---- tool_calls.c ---- */

/* What a call of ln_calls_next has found. */
typedef enum ln_calls_piece {
    LN_CALLS_NOTHING,   /* more text is needed, or the text has ended */
    LN_CALLS_TEXT,      /* text that belongs to no call is in t->text */
    LN_CALLS_ARGUMENTS, /* the call t->name has begun, and t->text continues the JSON text of its arguments */
    LN_CALLS_CALL,      /* a call is whole: t->name and t->arguments */
    LN_CALLS_CUT        /* the text ended in a call: t->arguments has the beginning of its arguments */
} ln_calls_piece;

/* The state of the streaming parser. It owns its strings; free it with ln_calls_close. */
typedef struct ln_calls {
    const ln_call_format *format; /* NULL: all text passes through */
    const ln_call_tool *tools;    /* [n_tools] that may be called; borrowed */
    size_t n_tools;
    bool single; /* the text ends after the first call */
    enum {
        LN_CALLS_SEARCH, /* for the tag of a group */
        LN_CALLS_OPEN,   /* of a call: what is before its arguments */
        LN_CALLS_READ,   /* its arguments */
        LN_CALLS_END,    /* what is after them */
        LN_CALLS_NEXT,   /* another call of the group, or its end */
        LN_CALLS_REST    /* no more calls */
    } step;
    bool in_group;                /* after a call of a group that may have more */
    bool listed;                  /* calls of one tag stand in brackets that the format does not have */
    bool in_string, escaped;      /* of the arguments that are being read */
    char quote;                   /* of the string, in a PYTHON format */
    int depth;                    /* open brackets */
    size_t begin, body, pos;      /* in `held`: the group or call, its arguments or object, the next byte */
    size_t from, end;             /* of an object's arguments, once they were found; else from is 0 */
    size_t seen;                  /* in `held`: before it a parameter's value does not end */
    size_t told;                  /* bytes of `arguments` that were given as pieces */
    const ln_call_tool *tool;     /* of the call that is read; NULL: not known yet */
    size_t n_failed;              /* tags after which there was no call */
    size_t n_malformed;           /* texts that began as a call and are none */
    ln_str held;                  /* text that may belong to a call */
    ln_str text, name, arguments; /* see ln_calls_piece; valid until the next call */
    size_t n;                     /* calls so far */
    bool ended;                   /* `single`, and there was a call; later text is dropped */
    bool spoke;                   /* a text was given */
    bool skip;                    /* blanks that follow stand beside the call before them */
    int gap;                      /* blanks beside calls since then: 0, ' ' or '\n' */
    uint64_t before;              /* bytes of the text so far that were taken for calls */
} ln_calls;

/* Starts a parser. A call of a tool that is not among tools[0..n) is text. */
void ln_calls_open(ln_calls *t, const ln_call_format *form_or_null, const ln_call_tool *tools, size_t n,
                   bool single);
/* Appends generated text; then ln_calls_next gives what became certain. LN_EMEMORY. */
ln_status ln_calls_push(ln_calls *t, const char *text, size_t bytes, ln_error *err);
/* Takes the next piece: to be called until it is LN_CALLS_NOTHING. With `final` no text follows: what is held
 * back is released. The pieces of a call's arguments, one after the other, are those of the call. LN_EMEMORY.
 */
ln_status ln_calls_next(ln_calls *t, bool final, ln_calls_piece *piece, ln_error *err);
void ln_calls_close(ln_calls *t);
/* Whether no call has begun, and the text does not end with a part of a tag. */
bool ln_calls_idle(const ln_calls *t);

#endif
