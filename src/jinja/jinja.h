/* A Jinja2 engine for chat templates, the subset of the language that transformers runs them with: a
 * template is compiled once and rendered many times.
 *
 * A compiled template is immutable and may be shared by threads. A rendering owns an arena: every value
 * that it creates is allocated there and is freed with it. A rendering may be used by one thread at a
 * time.
 *
 * Every byte of a string has an origin: it comes from data (messages, tools, keyword arguments) or from
 * the template. Filters, slices and concatenation keep the origin, so that user text can never become a
 * control token, whatever its content.
 *
 * Templates are sandboxed: a template can read its variables and nothing else. Steps, recursion depth,
 * string length and memory are bounded by the JINJA_ limits. Errors are LN_EINVALID with line and column
 * of the source, or LN_EMEMORY. */
#ifndef LN_JINJA_H
#define LN_JINJA_H

#include "../base/json.h"
#include <time.h>

enum {
    JINJA_MAX_SOURCE = 1 << 20, /* bytes of a template's source; gpt-oss has 16,738, Llama 3.1 4,614 */
    JINJA_MAX_NESTING = 200,    /* nesting of brackets and blocks in the source, of lists at run time */
    JINJA_MAX_DEPTH = 1200, /* recursion depth of the evaluator: nested expressions, blocks and macro calls */
    JINJA_MAX_STEPS = 1000000, /* evaluated nodes; an operation on long strings or lists counts as several */
    JINJA_MAX_TEXT = 8 << 20,  /* bytes of one string, including the output */
    JINJA_MAX_ITEMS = 1 << 20, /* items of one list or dictionary */
    JINJA_MAX_RANGE = 100000,  /* items of range(), the same limit as Jinja2's sandbox */
    JINJA_MAX_MEMORY = 256 << 20 /* bytes of a rendering's arena */
};

typedef struct jinja jinja;

typedef struct jinja_options {
    bool trim_blocks, lstrip_blocks, keep_trailing_newline;
} jinja_options;

/* Compiles `source` (UTF-8, `bytes` long), which the template copies. `name` is the name of the template
 * in error messages. Chat templates expect trim_blocks and lstrip_blocks to be true. The caller owns *out
 * and frees it with jinja_free; on failure *out is NULL. LN_EINVALID: a syntax error, invalid UTF-8 or a
 * source that is too long; LN_EMEMORY. */
ln_status jinja_compile(jinja **out, const char *name, const char *source, size_t bytes,
                        const jinja_options *opt, ln_error *err);
void jinja_free(jinja **t);
/* Appends every string that the template itself can write (its text outside tags and its string
 * constants), each followed by a zero byte. LN_EMEMORY. */
ln_status jinja_written(const jinja *t, ln_str *out, ln_error *err);

/* Whether the template mentions `name` as a variable, an attribute or a parameter. */
bool jinja_names(const jinja *t, const char *name);

typedef struct jinja_run jinja_run;

/* Starts a rendering; the template must outlive it. `now` is the time that strftime_now() formats, NULL
 * for the current local time. The caller owns *out and ends it with jinja_end. LN_EMEMORY. */
ln_status jinja_begin(jinja_run **out, const jinja *t, const struct tm *now, ln_error *err);
void jinja_end(jinja_run **r);

/* Set a variable of the rendering; a variable that the template does not mention is ignored. Strings are
 * copied, and are data unless `trusted` is true. text == NULL sets the variable to none. LN_EINVALID: a
 * limit is exceeded; LN_EMEMORY. */
ln_status jinja_set_text(jinja_run *r, const char *name, const char *text, size_t bytes, bool trusted,
                         ln_error *err);
ln_status jinja_set_bool(jinja_run *r, const char *name, bool v, ln_error *err);
/* Sets a variable to the next JSON value of the reader `j`; the call reads its first token. */
ln_status jinja_set_json(jinja_run *r, const char *name, size_t name_bytes, ln_json *j, bool trusted,
                         ln_error *err);
/* Sets `messages` to a list of n dictionaries {"role", "content"}. */
ln_status jinja_set_messages(jinja_run *r, const ln_message *m, size_t n, ln_error *err);

/* Normalises `messages` as transformers' apply_chat_template does: members that are null are removed, and
 * the reasoning of a message, which callers send as reasoning_content, thinking or reasoning, is stored
 * under both reasoning_content and thinking. */
ln_status jinja_tidy_messages(jinja_run *r, ln_error *err);

/* The messages that the last rendering was given, whatever the template set `messages` to (Llama 3 takes the
 * system message off): their number, and whether message i has the role assistant (i < jinja_messages). */
size_t jinja_messages(const jinja_run *r);
bool jinja_is_assistant(const jinja_run *r, size_t i);
/* Whether message i counts in training: its `weight`, 0 or 1 as in OpenAI's files, is 1 or absent.
 * LN_EINVALID: any other value. */
ln_status jinja_weight(const jinja_run *r, size_t i, bool *counts, ln_error *err);
/* Removes all messages but the first n. */
ln_status jinja_cut_messages(jinja_run *r, size_t n, ln_error *err);

/* A half-open range [from, to) of bytes. */
typedef struct jinja_span {
    size_t from, to;
} jinja_span;

/* The result of a rendering. All pointers are borrowed from the rendering until jinja_end. */
typedef struct jinja_text {
    const char *text;
    size_t bytes;
    /* Origin of each byte: 1 for data, 0 for the template. NULL: all bytes have the origin that all_data
     * says. */
    const uint8_t *origin;
    bool all_data;
    const jinja_span *generated; /* byte ranges of the output inside {% generation %} blocks, in order */
    size_t n_generated;
    /* The argument of raise_exception(), when the template failed because it called that function, else
     * NULL. */
    const char *refused;
    size_t n_refused;
} jinja_text;

/* Renders the template once. On failure only out->rejected and out->n_refused are meaningful. LN_EINVALID:
 * an error of the template or an exceeded limit; LN_EMEMORY. */
ln_status jinja_render(jinja_run *r, jinja_text *out, ln_error *err);

#endif
