/* Chat templates: the language that model directories ship them in (Jinja2, as transformers runs it), compiled once and rendered often.
 *
 * A compiled template is immutable and may be shared by threads. A rendering is an arena: every value it makes lies in it and goes with
 * it. For every byte of the text it is known whether it came from data (messages, tools, keyword arguments) or from the template, through
 * every filter and slice: what a user writes can never become a control token, whatever it spells.
 *
 * A template can reach nothing but its variables. Steps, depth, bytes of a text and memory are bounded (JINJA_ limits); errors are
 * LN_EINVALID and name line and column. */
#ifndef LN_TEXT_JINJA_H
#define LN_TEXT_JINJA_H

#include "../base/json.h"
#include <time.h>

enum {
    JINJA_MAX_SOURCE = 1 << 20,  /* bytes of a template; 16,738 (gpt-oss), 4,614 (Llama 3.1) */
    JINJA_MAX_NESTING = 200,     /* groups within groups while reading one, lists within lists while running */
    JINJA_MAX_DEPTH = 1200,      /* expressions, blocks and macro calls alive at once */
    JINJA_MAX_STEPS = 1000000,   /* nodes visited; long texts count for more */
    JINJA_MAX_TEXT = 8 << 20,    /* bytes of one text, the output among them */
    JINJA_MAX_ITEMS = 1 << 20,   /* items of one list */
    JINJA_MAX_RANGE = 100000,    /* items of range(), as in the reference */
    JINJA_MAX_MEMORY = 256 << 20 /* bytes of a rendering */
};

typedef struct jinja jinja;

typedef struct jinja_options {
    bool trim_blocks, lstrip_blocks, keep_trailing_newline;
} jinja_options;

/* Compiles `source`, which is not needed afterwards. `name` stands in messages. Chat templates are written for trim_blocks and
 * lstrip_blocks. You own *out. */
ln_status jinja_compile(jinja **out, const char *name, const char *source, size_t bytes, const jinja_options *opt, ln_error *err);
void jinja_free(jinja **t);
/* Appends what the template itself writes, its own text and its string constants, each with a byte 0 after it. */
ln_status jinja_written(const jinja *t, ln_str *out, ln_error *err);

/* Whether a name occurs in it: a variable that it may read, an attribute or a parameter. */
bool jinja_names(const jinja *t, const char *name);

typedef struct jinja_run jinja_run;

/* Begins a rendering; the template must outlive it. `now` is what strftime_now() formats; NULL: the clock. You own *out. */
ln_status jinja_begin(jinja_run **out, const jinja *t, const struct tm *now, ln_error *err);
void jinja_end(jinja_run **r);

/* Variables. Their texts are data unless set with `trusted`. A NULL text is none. */
ln_status jinja_set_text(jinja_run *r, const char *name, const char *text, size_t bytes, bool trusted, ln_error *err);
ln_status jinja_set_bool(jinja_run *r, const char *name, bool v, ln_error *err);
/* The JSON value at the reader (its first token is read by this call). */
ln_status jinja_set_json(jinja_run *r, const char *name, size_t name_bytes, ln_json *j, bool trusted, ln_error *err);
/* `messages`, a list of {"role", "content"}. */
ln_status jinja_set_messages(jinja_run *r, const ln_message *m, size_t n, ln_error *err);

/* Makes `messages` what apply_chat_template hands to a template: members that are null are left out, and reasoning, which callers send as
 * reasoning_content, thinking or reasoning, is found under the first two. */
ln_status jinja_tidy_messages(jinja_run *r, ln_error *err);

/* What `messages` is now: how many, whether one is the assistant's; and leaving out all but the first n. */
size_t jinja_messages(const jinja_run *r);
bool jinja_is_assistant(const jinja_run *r, size_t i);
ln_status jinja_cut_messages(jinja_run *r, size_t n, ln_error *err);

/* A half-open range of bytes. */
typedef struct jinja_span {
    size_t from, to;
} jinja_span;

/* What was rendered; everything is borrowed until jinja_end. */
typedef struct jinja_text {
    const char *text;
    size_t bytes;
    const uint8_t *origin;       /* per byte: 1 from data, 0 from the template; NULL: all as all_data says */
    bool all_data;
    const jinja_span *generated; /* what {% generation %} encloses, in order */
    size_t n_generated;
    const char *refused;         /* when it failed because the template called raise_exception: the text, as it was given */
    size_t n_refused;
} jinja_text;

/* Renders once. *out is filled on failure too, as far as it has a meaning there (`refused`). */
ln_status jinja_render(jinja_run *r, jinja_text *out, ln_error *err);

#endif
