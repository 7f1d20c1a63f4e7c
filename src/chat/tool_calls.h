/* Calls of tools in generated text: the form in which a model writes them, and a streaming parser that
 * separates them from the answer's text. */
#ifndef LN_TOOL_CALLS_H
#define LN_TOOL_CALLS_H

#include "../base/json.h"
#include "../tokenizer/tokenizer.h"
#include "chat_template.h"

typedef enum ln_call_style {
    LN_CALLS_TAGGED, /* each call between two tags, anywhere in the text */
    LN_CALLS_WHOLE,  /* the whole answer is calls, separated by blanks or semicolons */
    LN_CALLS_LISTED  /* one list of calls after a tag */
} ln_call_style;

/* How a model writes a call. */
typedef struct ln_call_form {
    const char *name; /* hermes, llama3 or mistral */
    ln_call_style style;
    const char *open;      /* before a call or a list; of a whole answer it may be left out */
    const char *end;       /* after a tagged call; else "" */
    const char *arguments; /* the member of the call's object that has the arguments */
} ln_call_form;

/* The form that a model's template asks for and shows. NULL: it has none that is known here, or takes no
 * tools. */
const ln_call_form *ln_call_form_of(const ln_model_template *tmpl_or_null);
/* The form of a template with this source; NULL: none. */
const ln_call_form *ln_call_form_in(const char *source);

/* The name of a tool in the list that a template is given, a text; NULL: it has none. */
const json_t *ln_call_tool_name(const json_t *tool);
/* Appends the expression of ln_sampling.form for one or more calls (`single`, and where templates take no
 * more: one) of those of the tools that are among names[0..n), which is not empty. The arguments meet the
 * schemas of their parameters, which are objects. A failure is out->failed. */
void ln_call_form_put(ln_str *out, const ln_call_form *form, const ln_tok *tok, const json_t *tools,
                      const char *const *names, size_t n, bool single);

/* What a call of ln_calls_next has found. */
typedef enum ln_calls_piece {
    LN_CALLS_NOTHING, /* more text is needed, or the text has ended */
    LN_CALLS_TEXT,    /* text that belongs to no call is in t->text */
    LN_CALLS_CALL     /* a call is in t->name and t->arguments */
} ln_calls_piece;

/* The state of the streaming parser. It owns its strings; free it with ln_calls_close. */
typedef struct ln_calls {
    const ln_call_form *form; /* NULL: all text passes through */
    const char *const *names; /* [n_names] of tools that may be called; borrowed */
    size_t n_names;
    bool single; /* the text ends after the first call */
    enum { LN_CALLS_SEARCH, LN_CALLS_OBJECT, LN_CALLS_END, LN_CALLS_REST } step;
    bool in_list;              /* inside the list of LN_CALLS_LISTED */
    bool skip;                 /* blanks that follow belong to the call before them */
    bool in_string, escaped;   /* of the object that is being read */
    int depth;                 /* its open braces and brackets */
    size_t begin, object, pos; /* in `held`: the opening tag, the call's object, the next byte to look at */
    size_t n_failed;           /* tags after which there was no call */
    ln_str held;               /* text that may belong to a call */
    ln_str text, name, arguments; /* see ln_calls_piece; valid until the next call */
    size_t n;                     /* calls so far */
    bool ended;                   /* `single`, and there was a call; later text is dropped */
    uint64_t before;              /* bytes of the text so far that were taken for calls */
} ln_calls;

/* Starts a parser. A call of a tool whose name is not among names[0..n) is text. */
void ln_calls_open(ln_calls *t, const ln_call_form *form_or_null, const char *const *names, size_t n,
                   bool single);
/* Appends generated text; then ln_calls_next gives what became certain. LN_EMEMORY. */
ln_status ln_calls_push(ln_calls *t, const char *text, size_t bytes, ln_error *err);
/* Takes the next piece: to be called until it is LN_CALLS_NOTHING. With `final` no text follows: what is held
 * back is released. The arguments are the JSON text of an object, as the model wrote it. LN_EMEMORY. */
ln_status ln_calls_next(ln_calls *t, bool final, ln_calls_piece *piece, ln_error *err);
void ln_calls_close(ln_calls *t);

#endif
