/* What the files of the command share: parsed arguments, input, output, signals.
 *
 * The command can do nothing that a user of the library could not: it sees linnet.h and base. A verb is a function that takes the
 * arguments and an error and returns a status, which becomes the exit code; main prints the message. Results go to stdout
 * through out_write only, which knows about closed pipes and full disks; all else goes to stderr. */
#ifndef LN_CLI_H
#define LN_CLI_H

#include <linnet.h>

#include "../base/base.h"
#include "../base/file.h"

/* ---- verbs and flags ---- */

typedef enum verb {
#define VERB(ID, name, form, takes, what, more) VERB_##ID,
#include "verbs.def"
#undef VERB
    VERB_COUNT
} verb;

typedef enum flag {
#define FLAG(id, name, letter, kind, verbs, value, lo, hi, help) F_##id,
#include "flags.def"
#undef FLAG
    F_COUNT
} flag;

enum { MAX_STOPS = 16, MOST_LIST = 16 };

typedef struct flag_value {
    bool set;
    const char *text; /* as written */
    int64_t i;        /* COUNT, SIZE, BYTES; the index of a CHOICE */
    double f;         /* REAL */
    uint64_t u;       /* SEED */
    bool random;      /* SEED: take one from the system */
    int64_t list[MOST_LIST]; /* LIST */
    size_t n_list;
} flag_value;

typedef struct args {
    verb verb;
    flag_value flag[F_COUNT];
    const char *model;    /* the first positional, or NULL: the verb's default */
    const char *argument; /* the second positional, or NULL */
    const char *stops[MAX_STOPS];
    size_t n_stops;
    ln_logit_bias *bias;
    size_t n_bias, cap_bias;
    ln_keep *keep; /* names are owned */
    size_t n_keep, cap_keep;
} args;

typedef ln_status verb_fn(const args *a, ln_error *err);
#define VERB(ID, name, form, takes, what, more) verb_fn cmd_##name;
#include "verbs.def"
#undef VERB

/* Parses argv after the verb. LN_EUSAGE names the flag and the nearest known one. */
ln_status args_parse(args *a, verb v, int argc, char **argv, ln_error *err);
void args_free(args *a);
static inline bool has(const args *a, flag f) { return a->flag[f].set; }
/* The verb of that name, or VERB_COUNT. */
verb verb_named(const char *name);
const char *verb_name(verb v);
/* The verb whose name is nearest, or NULL when none is near. */
const char *verb_nearest(const char *name);
/* What to type instead of a verb of another tool, or NULL. */
const char *verb_advice(const char *word);
/* The nearest of n names, at most two edits away, or NULL. */
const char *name_nearest(const char *typed, const char *const *known, size_t n);
/* The pages made from the tables: for one verb, or the overview for VERB_COUNT; as help or as a man page. */
void help_page(ln_str *s, verb v);
void man_page(ln_str *s, verb v);

/* ---- input ---- */

/* A prompt as the command line gave it: text or ids. */
typedef struct input {
    char *text; /* owned; NULL when ids are set */
    size_t bytes;
    int32_t *ids;
    size_t n_ids;
} input;

/* Reads the prompt from wherever the flags say: -p, -f, -, --ids, the positional, piped stdin; a text piped
 * beside a prompt is put after it. `trim` drops one newline at the end of a file or of stdin. No prompt at
 * all is LN_EUSAGE, invalid UTF-8 LN_EINVALID. */
ln_status input_read(input *in, const args *a, bool trim, ln_error *err);
bool input_given(const args *a); /* some flag or positional names a prompt */
bool takes_prompt(verb v);       /* MODEL is followed by a text there */
void input_free(input *in);
/* For each line of stdin that is not blank, without its newline and a byte order mark: `fn` adds its answer
 * to *out, which is written before more is waited for. A line of more than `most` bytes comes as NULL. An
 * error of the line itself (LN_EINVALID, LN_EUSAGE, LN_EUNSUPPORTED) is answered with {"error"}, and the
 * result is LN_EINVALID in the end, with the number of the first such line before its message; any other
 * error ends it. */
typedef ln_status line_fn(void *user, const char *line, size_t bytes, ln_str *out, ln_error *err);
ln_status lines_each(line_fn *fn, void *user, size_t most, ln_error *err);
/* Ids in text: decimal, separated by commas or blanks. `code` is what a bad list is: LN_EUSAGE or LN_EINVALID. */
ln_status ids_parse(const char *name, const char *text, size_t bytes, ln_status code, int32_t **ids, size_t *n, ln_error *err);
/* The integers of a JSON array; *ids is yours, whatever is returned. */
struct json_t;
ln_status ids_of_json(const struct json_t *list, int32_t **ids, size_t *n, ln_error *err);
/* The ids of a prompt: its own, or its text through the model's tokenizer. Owned by the caller. */
ln_status input_ids(const input *in, const ln_model *model, ln_template tmpl, int32_t **ids, size_t *n, ln_error *err);

/* ---- options ---- */

ln_status options_of(const args *a, ln_options *opt, ln_error *err);
void template_args(const args *a, ln_prompt *p); /* what the flags say to a chat template */
ln_prompt prompt_of(const args *a, const input *in);
/* The model's own sampling, and what the flags make of it. */
ln_status sampling_of(const args *a, const ln_model *model, ln_sampling *how, ln_error *err);
/* Changes what the flags name, and nothing else. */
void sampling_change(const args *a, ln_sampling *how);
/* What is said of it before the first word: that --chat was given; all of it with -v. */
void start_note(const args *a, const ln_info *info, const ln_sampling *how);
/* How many tokens may be generated: -n, else 256 after raw text or ids. In a conversation the context is the
 * only bound: INT64_MAX. */
int64_t tokens_most(const args *a, const ln_info *info);
/* The positions to ask an engine for (ln_options.n_needed): prompt + -n, without -n prompt + 2,048. */
int64_t positions_needed(const args *a, int64_t n_prompt);
verb planned_verb(const args *a);     /* the verb itself; of plan: the one whose memory is asked for */
const char *numerics_name(ln_numerics n);

/* ---- a text, fed as it is: the beginning of score, attention and diff ---- */

/* Zero-initialise, fill `opt` (options_of, then the verb's own wishes); session_close gives back whatever was opened. */
typedef struct session {
    ln_options opt;
    ln_model *model;
    ln_engine *engine;
    int32_t *ids;
    size_t n_ids;
} session;
ln_status session_ids(session *s, const args *a, ln_error *err);  /* the prompt, the model, the prompt's ids */
ln_status session_open(session *s, const args *a, ln_error *err); /* and an engine that holds them */
void session_close(session *s);

/* ---- output ---- */

/* Writes to stdout at once. A closed pipe is no error: later writes do nothing and out_closed() is true. */
ln_status out_write(const char *data, size_t bytes, ln_error *err);
ln_status out_str(ln_str *s, ln_error *err); /* writes, checks `failed`, frees */
/* The same for a model's words: on a terminal, characters that would command it are shown as U+FFFD. */
ln_status out_text(const char *text, size_t bytes, ln_error *err);
void text_clean(ln_str *out, const char *text, size_t bytes); /* appends it with those characters exchanged */
bool out_closed(void);
bool out_is_tty(void);
/* What takes long, as a line on stderr that comes when it has taken a while and goes when it is done; nothing where stderr is no terminal. */
ln_progress progress_line(void);
void progress_wipe(void); /* before anything else is said */
/* One line to stderr: "linnet: ...". */
void note(const char *fmt, ...) LN_PRINTF(1, 2);

/* ---- lines ---- */

int terminal_columns(int fd); /* of the terminal that fd is; 0 where it is none, or where it does not say */
int page_columns(void);       /* of a page on stdout: the terminal's, else $COLUMNS; 0: not to be wrapped */
/* Adds words, of which the first begins in column `at` and those of later lines behind `indent` blanks, and a
 * newline. */
void add_wrapped(ln_str *s, const char *text, size_t bytes, int at, int indent, int columns);
/* Adds paragraphs; lines that begin with two blanks, and all of them where columns is 0, stay as they are. */
void add_prose(ln_str *s, const char *text, int columns);

/* A text that comes in pieces, laid out for a terminal. */
typedef struct wrap {
    int columns, column; /* that may be used, 0: not wrapped; where the next character goes */
    char word[256];      /* the word that is being written */
    size_t n_word;
    int cells;      /* its columns */
    bool beginning; /* of a line; blanks and backquotes there */
    int blanks, ticks;
    bool as_is, fenced; /* this line, or all up to ```, is not broken */
} wrap;
wrap wrap_for(int fd);
void wrap_add(wrap *w, ln_str *out, const char *text, size_t bytes);

/* ---- the library's words (advice.c) ---- */

void advice_for(verb v); /* the verb whose flags its messages are to name; none before this call */
/* Appends a message of the library with the verb's flags in place of the fields of its structs. note() does so by itself. */
void advice_add(ln_str *out, const char *message);
void log_to_stderr(void); /* remarks of the library become notes: those that LINNET_LOG asks for, or warnings and worse */
void log_more(void);      /* with -v: facts too */

/* ---- a model's words ---- */

/* Where they go, decided once an answer; `user` of the two callbacks below. */
typedef struct speech {
    enum { SPEECH_NOT, SPEECH_MUTED, SPEECH_ASIDE } reasoning; /* nowhere; muted on the terminal; to stderr */
    bool in_reasoning;
    char last; /* byte of the answer; a newline before it */
    wrap wrap; /* columns 0: not wrapped */
} speech;
speech speech_of(const args *a);
ln_text_fn speech_answer, speech_reasoning;
ln_status speech_end(speech *s, ln_error *err); /* after the last piece */
/* Says that an answer was cut, by which limit, and when all of it went into reasoning; `most`: the tokens
 * that were allowed. */
void note_cut(const ln_result *r, int64_t most);
bool wants_colour(const args *a, int fd);

/* JSON pieces: `"key":` with a comma before it where one is needed (after anything but '{' and '['). */
void put_key(ln_str *s, const char *key);
void put_text(ln_str *s, const char *key, const char *value);
void put_int(ln_str *s, const char *key, int64_t v);
void put_uint(ln_str *s, const char *key, uint64_t v);
void put_real(ln_str *s, const char *key, double v);
void put_tile_reads(ln_str *s, const ln_machine *m); /* nothing where there are no tiles */
void add_ceilings(ln_str *s, const ln_machine *m);   /* the measured ceilings, as a phrase */
void put_bool(ln_str *s, const char *key, bool v);
void put_ids(ln_str *s, const char *key, const int32_t *ids, size_t n);
void put_metrics(ln_str *s, const ln_metrics *m);
void stats_print(const ln_metrics *m);
/* "1.23 GB" and the like, for people. */
const char *bytes_text(char buf[32], uint64_t bytes);

/* A safetensors file of f32 tensors that follow each other: names, shapes, then bytes in that order. */
typedef struct tensor_head {
    char name[48];
    int64_t shape[3];
    int n_dims;
} tensor_head;
ln_status tensors_begin(ln_out *o, const tensor_head *t, size_t n, ln_error *err);

/* ---- signals ---- */

/* Ctrl-C and SIGTERM: outside a call on an engine they end the process (130, 143), removing the file named last; inside one they
 * ask it to stop. */
void signals_install(void);
void signals_working(ln_engine *engine); /* NULL: not any more */
int signals_seen(void); /* the signal that asked to stop, or 0 */
void signals_file(const char *path); /* a temporary file to remove when the process must end; NULL: none */
void signals_restore(void (*fn)(void)); /* called before the process is ended at once: puts the terminal back; async-signal-safe */

/* For a chat, and for a directory that is written whole or not at all: signals outside an engine are noted (signals_seen), and signals_fd(),
 * if it has been called, becomes readable; only one that follows another which nobody forgot still ends the process. */
int signals_fd(void);              /* -1: out of descriptors */
void signals_note(bool on);
void signals_reading(bool on);     /* while a line is read, Ctrl-Z is noted too: the terminal must be put back first */
typedef struct signals_noted {
    int stop;                      /* the signal that asks to stop, or 0; as signals_seen() */
    bool resized, suspend;         /* the window has another size; Ctrl-Z */
} signals_noted;
signals_noted signals_take(void);  /* what was noted since the last call; forgets resized and suspend */
void signals_forget(void);         /* the wish to stop was fulfilled */

#endif
