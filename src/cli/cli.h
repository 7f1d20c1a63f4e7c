/* Shared declarations of the command-line program: parsed arguments, input, output, signals.
 *
 * The program uses only the public API (linnet.h) and src/base, so that it can do nothing that another
 * user of the library cannot do. A verb is a function that takes the parsed arguments and an error and
 * returns a status, which becomes the exit code; main prints the message. Results are written to stdout by
 * out_write only, which handles closed pipes and full disks; everything else goes to stderr. */
#ifndef LN_CLI_H
#define LN_CLI_H

#include <linnet.h>
#include <linnet_train.h>
#include <linnet_tools.h>
#include <linnet_backend.h>

#include "../base/base.h"
#include "../base/file.h"
#include "../base/json_write.h"

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

enum { MAX_STOPS = 16, MOST_LIST = 16, GPUS_MOST = MOST_LIST };

typedef struct flag_value {
    bool set;
    const char *text;        /* the value as typed */
    int64_t i;               /* COUNT, SIZE, BYTES: the number; CHOICE, DEVICES: index of the chosen word */
    double f;                /* REAL */
    uint64_t u;              /* SEED */
    bool random;             /* SEED: use a seed from the system's random generator */
    int64_t list[MOST_LIST]; /* LIST; DEVICES: the GPUs of cuda:LIST, none for cuda:all */
    size_t n_list;
    bool listed; /* DEVICES: it was cuda:LIST or cuda:all */
} flag_value;

/* An adapter with the name by which requests choose it. */
typedef struct named_adapter {
    const char *name;
    ln_adapter_part part;
} named_adapter;

typedef struct args {
    verb verb;
    flag_value flag[F_COUNT];
    const char *model;    /* the first positional argument, or NULL: the verb's default */
    const char *argument; /* the second positional argument, or NULL */
    const char *runs[8];  /* of plot: all of them */
    size_t n_runs;
    const char *stops[MAX_STOPS];
    size_t n_stops;
    const char *prompts[MAX_STOPS]; /* --sample-prompt */
    size_t n_prompts;
    ln_arena texts;    /* of the settings of --config */
    char fields[1024]; /* --field: NAME=MEMBER, with commas between */
    const char *aliases[MAX_STOPS];
    size_t n_aliases;
    const char *origins[MAX_STOPS];
    size_t n_origins;
    ln_logit_bias *bias;
    size_t n_bias, cap_bias;
    int32_t *stop_ids;
    size_t n_stop_ids, cap_stop_ids;
    ln_train_file *mix; /* --mix; the array and its paths are owned */
    size_t n_mix, cap_mix;
    ln_quantize_override *overrides; /* the array and its names are owned */
    size_t n_overrides, cap_overrides;
    ln_adapter_part *adapters; /* --adapter; the array and its directories are owned */
    size_t n_adapters, cap_adapters;
    named_adapter *loras; /* --lora; the array and its texts are owned */
    size_t n_loras, cap_loras;
} args;

typedef ln_status verb_fn(const args *a, ln_error *err);
#define VERB(ID, name, form, takes, what, more) verb_fn cmd_##name;
#include "verbs.def"
#undef VERB

/* Parses the arguments after the verb. *a is to be freed with args_free, on failure too. LN_EUSAGE: an
 * unknown flag (the message names the nearest known one), a bad value, or flags that exclude each other;
 * LN_EMEMORY. */
ln_status args_parse(args *a, verb v, int argc, char **argv, ln_error *err);
void args_free(args *a);
static inline bool has(const args *a, flag f) { return a->flag[f].set; }
/* The verb of that name, or VERB_COUNT. */
verb verb_named(const char *name);
const char *verb_name(verb v);
/* The verb whose name is nearest to `name`, or NULL when none is similar. */
const char *verb_nearest(const char *name);
/* Advice for a verb of another tool: what to type instead. NULL: unknown. */
const char *verb_advice(const char *word);
/* The nearest of n names, at most two edits away from `typed`, or NULL. */
const char *name_nearest(const char *typed, const char *const *known, size_t n);
/* Writes the existing path that differs from `typed` in one mistyped component to out, or the name of the
 * bundled model; false when there is none. */
bool path_nearest(char *out, size_t cap, const char *typed);
/* Append the page of a verb, or the overview for VERB_COUNT, generated from the tables: as help text or as
 * a man page. */
void help_page(ln_str *s, verb v);
void man_page(ln_str *s, verb v);

/* ---- input ---- */

/* A prompt as given on the command line: text or token ids. */
typedef struct input {
    char *text; /* owned; NULL when `ids` is set */
    size_t bytes;
    int32_t *ids;
    size_t n_ids;
} input;

/* Reads the prompt from the source that the arguments name: -p, -f, -, --ids, the positional argument or
 * piped stdin; text piped in with a prompt is appended to it. `trim` removes one newline at the end of a
 * file or of stdin. The caller frees *in with input_free. LN_EUSAGE: no prompt; LN_EINVALID: invalid UTF-8
 * or ids; LN_EIO; LN_EMEMORY. */
ln_status input_read(input *in, const args *a, bool trim, ln_error *err);
bool input_given(const args *a); /* whether a flag or a positional argument specifies a prompt */
bool takes_prompt(verb v);       /* whether the verb's MODEL may be followed by a text */
void input_free(input *in);
/* Whether a FILE argument means stdin: "-" or the paths of that descriptor. */
bool is_stdin(const char *path);
/* Calls `fn` for each line of the file `path` (NULL and "-": stdin; a pipe or a device too) that is not
 * blank, without its newline and a byte order mark. `fn` appends its output to *out, which is written before
 * the program waits for more input. A line longer than `most` bytes is passed as NULL. An error of the line
 * itself (LN_EINVALID, LN_EUSAGE, LN_EUNSUPPORTED) becomes the output {"error"}, and lines_each returns
 * LN_EINVALID at the end, with the number and message of the first such line; any other error ends the loop
 * and is returned. */
typedef ln_status line_fn(void *user, const char *line, size_t bytes, ln_str *out, ln_error *err);
ln_status lines_each(const char *path, line_fn *fn, void *user, size_t most, ln_error *err);
/* Parses token ids: decimal, separated by commas or blanks. `name` is the source in error messages; `code`
 * is the status for a malformed list, LN_EUSAGE or LN_EINVALID. The caller owns *ids. */
ln_status ids_parse(const char *name, const char *text, size_t bytes, ln_status code, int32_t **ids,
                    size_t *n, ln_error *err);
/* Reads an array of token ids from JSON. The caller owns *ids, on failure too. */
struct json_t;
ln_status ids_of_json(const struct json_t *list, int32_t **ids, size_t *n, ln_error *err);
/* The token ids of a prompt: its ids, or its text encoded with the model's tokenizer. The caller owns
 * *ids. */
ln_status input_ids(const input *in, const ln_model *model, ln_template tmpl, int32_t **ids, size_t *n,
                    ln_error *err);
ln_status prompt_ids(const ln_model *model, const ln_prompt *p, int32_t **ids, size_t *n, ln_error *err);
/* Reads a file, a pipe, a device or, for "-", stdin, to its end: at most `most` bytes, without a byte order
 * mark. `what` names the content in messages. The caller owns *data, which has a NUL after its *bytes. */
ln_status source_read(const char *path, const char *what, size_t most, char **data, size_t *bytes,
                      ln_error *err);
/* The file of a verb that takes MODEL [FILE]: the argument, that of -f, else "-". */
const char *file_named(const args *a);
/* source_read of file_named. *name: what messages call it. LN_EUSAGE: none was named, and stdin is a
 * terminal. */
ln_status file_read(const args *a, const char *what, size_t most, const char **name, char **data,
                    size_t *bytes, ln_error *err);

/* ---- options ---- */

/* verb_batch.c: sets the sizes of *opt by the file of requests that the arguments name. */
ln_status batch_size(const args *a, ln_model *model, ln_options *opt, ln_error *err);
enum { BATCH_PARALLEL = 8 }; /* requests of batch and serve that run at once without --parallel */

/* ---- adapter_flags.c ---- */
/* Adds a value of --adapter, DIR[:SCALE], whose scale is a number after the last colon, or of --lora,
 * NAME=DIR[:SCALE]. LN_EUSAGE, LN_EMEMORY. */
ln_status adapter_add(args *a, const char *text, ln_error *err);
ln_status lora_add(args *a, const char *text, ln_error *err);
void adapters_free(args *a);
/* Sets the options of an engine that has the adapters of --adapter and space for those of --lora. Errors of
 * ln_adapter_show. */
ln_status adapter_options(const args *a, ln_options *opt, ln_error *err);

/* The library's options as the flags set them. The lists in *opt are borrowed from `a`. */
ln_status options_of(const args *a, ln_options *opt, ln_error *err);
/* Sets *seed to --seed; one from the system is printed. */
ln_status seed_of(const args *a, uint64_t *seed, ln_error *err);
void template_args(const args *a, ln_prompt *p); /* sets the variables of the chat template */
ln_prompt prompt_of(const args *a, const input *in);
/* The model's default sampling parameters, overridden by the flags. */
ln_status sampling_of(const args *a, const ln_model *model, ln_sampling *how, ln_error *err);
/* Sets the grammar that --json-schema or --grammar names; *grammar holds its text, which the caller frees
 * with ln_str_free. LN_EUSAGE, LN_EIO, LN_EINVALID. */
ln_status grammar_of(const args *a, ln_str *grammar, ln_sampling *how, ln_error *err);
/* Overrides the sampling parameters that have a flag, and no others. */
void sampling_change(const args *a, ln_sampling *how);
/* Prints remarks to stderr before generation starts: about flags that have no effect on this model, and
 * with -v all sampling parameters. */
void start_note(const args *a, const ln_info *info, const ln_sampling *how);
/* The maximum number of generated tokens: -n, else 256 after raw text or ids. A conversation is limited by
 * the context only: INT64_MAX. */
int64_t tokens_most(const args *a, const ln_info *info);
/* The number of positions to request from an engine (ln_options.n_expected): prompt + -n, or, without -n,
 * prompt + 2,048. */
int64_t positions_needed(const args *a, int64_t n_prompt);
/* Sets context and sequences of *opt for eval, unless a flag does; reports if --window is cut to the
 * context. LN_EUSAGE: --stride is more than the window. */
ln_status eval_size(const args *a, const ln_info *info, ln_options *opt, ln_error *err);
verb planned_verb(const args *a); /* the verb itself; for plan, the verb that it plans for */
bool plans_server(const args *a); /* plan --for serve, which is planned like batch */
/* The options of train as the flags set them; texts are borrowed from `a` (verb_train.c). */
ln_status train_options(const args *a, ln_trainer_options *o, ln_error *err);
/* Appends the memory plan and the sizes of a run. */
void train_plan_text(ln_str *s, const ln_trainer_info *f);
const char *numerics_name(ln_numerics n);

/* ---- next_steps.c ---- */
/* Appends three commands that are worth typing on this machine, each with its purpose. */
void add_next_steps(ln_str *s, const ln_machine *m, bool measured);
/* If `err` says that the model is not in the Hugging Face cache, a user is at the terminal, and Hugging
 * Face's command is installed: asks whether to run it, and runs it. Returns whether the model was fetched. */
bool fetch_offered(const args *a, ln_status st, const ln_error *err);

/* ---- backends (cli_backend.c) ---- */

bool other_backend(const args *a); /* --backend names another one than native */
/* Loads the model with the backend that --backend names; the caller owns *out. */
ln_status backend_open(const args *a, const char *model, ln_backend_model **out, ln_error *err);
/* ln_backend_generate, or ln_backend_chat for a conversation. */
ln_status backend_generate(ln_backend_model *m, const ln_prompt *p, const ln_sampling *how,
                           ln_text_fn *on_text, void *user, ln_result *out, ln_error *err);
/* Appends the backends and why they are not available: lines or, with --json, a member. */
ln_status backends_add(ln_str *s, const args *a, ln_error *err);
ln_status bench_backend(const args *a, ln_error *err); /* bench_backend.c */

/* ---- sessions on raw text: the common beginning of score, attention and diff ---- */

/* Initialise with zeros, then set `opt` (options_of, then the verb's own settings). session_close releases
 * whatever was opened. */
typedef struct session {
    ln_options opt;
    ln_model *model;
    ln_engine *engine;
    int32_t *ids;
    size_t n_ids;
} session;
/* Reads the prompt, opens the model and encodes the prompt. */
ln_status session_ids(session *s, const args *a, ln_error *err);
/* session_ids, and opens an engine with space for the ids. */
ln_status session_open(session *s, const args *a, ln_error *err);
/* Returns whether the factor of the embeddings was rounded to the checkpoint's dtype. */
bool embed_scale_rounded(const ln_info *m);
/* Prints a line to stderr if it was and the numerics are exact: then values differ from those of transformers
 * in f32, which does not round it. */
void note_embed_scale(const ln_info *m);
/* LN_EIO, LN_EUNSUPPORTED: the model has no tokenizer, so that it can neither read nor write a text. */
ln_status check_texts(const ln_model *model, ln_error *err);
void session_close(session *s);

/* ---- output ---- */

/* Writes to stdout immediately. A closed pipe is not an error: later writes do nothing and out_closed() is
 * true. LN_EIO: any other failure. */
ln_status out_write(const char *data, size_t bytes, ln_error *err);
/* Ends the line of a text on stdout before a message about it follows on stderr. */
void out_end_line(void);
ln_status out_str(ln_str *s, ln_error *err); /* writes and frees s; LN_EMEMORY when s->failed */
/* Writes generated text: like out_write, but on a terminal control characters are replaced by U+FFFD. */
ln_status out_text(const char *text, size_t bytes, ln_error *err);
/* Appends the text with its control characters replaced in the same way. */
void text_clean(ln_str *out, const char *text, size_t bytes);
bool out_closed(void);
/* Returns whether a descriptor is a terminal that people look at; out_is_tty: whether stdout is. */
bool out_is_terminal(int fd);
bool out_is_tty(void);
/* A progress callback that shows one line on stderr while an operation takes longer than half a second, and
 * removes it at the end. It does nothing if stderr is not a terminal. */
ln_progress progress_line(void);
ln_progress progress_log(void);       /* notes how far a model is loaded, at most every few seconds */
void progress_show(const char *text); /* shows a progress line at once; for terminals only */
void progress_wipe(void);             /* removes the progress line; called before other output */
/* Prints one line "linnet: ..." to stderr. */
void note(const char *fmt, ...) LN_PRINTF(1, 2);

/* ---- line breaking ---- */

int terminal_columns(int fd); /* width of the terminal fd; 0: not a terminal, or unknown */
int page_columns(void);       /* width for a page on stdout: the terminal's, else $COLUMNS; 0: do not wrap */
/* Appends words, broken into lines, and a newline. A word that is longer than a line is broken too. The first
 * word starts in column `at`; further lines are indented by `indent` blanks. */
void add_wrapped(ln_str *s, const char *text, size_t bytes, int at, int indent, int columns);
/* Appends an example, a command line, indented by two blanks. A line that is too long continues after a
 * backslash, as a shell reads it; never within quotes. */
void add_example(ln_str *s, const char *text, size_t bytes, int columns);
/* Appends paragraphs. Lines that begin with two blanks are examples. All lines stay unchanged if columns is
 * 0. */
void add_prose(ln_str *s, const char *text, int columns);

/* Streaming line breaking for a terminal: the text arrives in pieces. */
typedef struct wrap {
    int columns, column; /* width, 0: no wrapping; column of the next character */
    char word[256];      /* the current word so far */
    size_t n_word;
    int cells;      /* width of the word in columns */
    bool beginning; /* at the beginning of a line; number of blanks and backquotes there */
    int blanks, ticks;
    bool as_is, fenced; /* do not break this line; do not break lines up to the closing ``` */
} wrap;
wrap wrap_for(int fd);
void wrap_add(wrap *w, ln_str *out, const char *text, size_t bytes);

/* ---- messages of the library (advice.c) ---- */

void advice_for(verb v); /* sets the verb whose flags messages name; none before this call */
/* Appends a message of the library, with names of fields of its structs replaced by the verb's flags.
 * note() does this itself. */
void advice_add(ln_str *out, const char *message);
/* Logs the library's messages by note(): those of the level in LINNET_LOG, by default warnings and errors. */
void log_to_stderr(void);
void log_more(void); /* -v: also log information messages */

/* ---- generated text ---- */

/* The destination of generated text, decided once per answer; `user` of the two callbacks below. */
typedef struct text_output {
    /* Reasoning is discarded, shown muted on the terminal, or written to stderr. */
    enum { REASONING_DROPPED, REASONING_MUTED, REASONING_TO_STDERR } reasoning;
    bool in_reasoning;
    char last; /* last byte of the answer; initially a newline */
    wrap wrap; /* columns 0: no wrapping */
} text_output;
text_output text_output_for(const args *a);
ln_text_fn output_answer, output_reasoning;
ln_status output_end(text_output *s, ln_error *err); /* call after the last piece */
/* Reports on stderr that an answer was cut and by which limit, and when all of it was reasoning. `most`:
 * the maximum number of tokens. */
void note_cut(const ln_result *r, int64_t most);
bool wants_colour(const args *a, int fd);

void put_tile_reads(ln_str *s, const ln_machine *m); /* nothing on machines without tile instructions */
/* The measured ceilings of the CPU and of the GPU as a phrase. */
void add_ceilings(ln_str *s, const ln_machine *m);
void add_gpu_ceilings(ln_str *s, const ln_machine *m);
void put_metrics(ln_str *s, const ln_metrics *m);
const char *miss_text(const ln_metrics *m); /* cache_miss_reason; "" if there is none */
void stats_print(const ln_metrics *m);
/* A human-readable size such as "1.23 GB". Returns buf. */
const char *bytes_text(char buf[32], uint64_t bytes);

/* ---- what rounding costs (rounding.c) ---- */

/* Perplexities that rise by more than a tenth. 4 bits raise the bundled model's by less than 1 %, and that of
 * a small model from the hub was measured to rise from 20 to 26. */
#define ROUNDING_HURTS 1.1
/* Returns the factor by which rounding raises the perplexity of a text that the first model writes; NaN if it
 * cannot be measured: the models need more memory than there is (which is said), or have no tokenizer. */
double rounding_measure(const char *before, const char *after, int n_threads);
void rounding_warn(double ratio, int bits);

/* Checks that the files which the flags name can be written: before the work whose results they get. */
ln_status outputs_try(const args *a, ln_error *err);

/* Writes the header of a safetensors file of n f32 tensors, whose data must follow in the same order. */
typedef struct tensor_head {
    char name[48];
    int64_t shape[3];
    int n_dims;
} tensor_head;
ln_status tensors_begin(ln_out *o, const tensor_head *t, size_t n, ln_error *err);

/* ---- signals ---- */

/* SIGINT (Ctrl-C), SIGTERM and SIGHUP: while an engine works they ask it to stop; otherwise they end the
 * process with 128 + the signal's number (130, 143), after removing the file of signals_file. */
void signals_install(void);
/* cli_ranks.c: the GPUs that --device cuda:LIST names, or all. *n 0: it is not given. LN_EDEVICE: there are
 * none, or more than GPUS_MOST. */
ln_status gpus_of(const args *a, int gpus[GPUS_MOST], int *n, ln_error *err);
/* Joins the other processes of mpirun, if there are some. *follows: this one has done its part,
 * and does not run the verb. */
ln_status ranks_begin(const args *a, bool *follows, ln_error *err);
/* Whether this process writes files and notes: it is alone, or the first of those that mpirun has started. */
bool ranks_first(void);
void signals_working(ln_engine *engine);          /* the engine to stop; NULL: none */
void signals_working_on(ln_backend_model *model); /* the same for the model of a backend */
int signals_seen(void);                           /* the signal that requested a stop, or 0 */
void signals_file(const char *path);    /* temporary file to remove when the process ends early; NULL: none */
void signals_restore(void (*fn)(void)); /* called before the process ends at once, to restore the terminal;
                                           must be async-signal-safe */

/* Deferred signals, for chats and for writing a directory completely or not at all: while signals_note is
 * on, signals outside an engine are recorded (signals_seen) and make signals_fd() readable, if it was
 * called. A second signal before signals_forget() still ends the process. */
int signals_fd(void); /* -1: no file descriptors left */
void signals_note(bool on);
void signals_reading(bool on); /* on while a line is read: Ctrl-Z is deferred too, because the terminal must
                                  be restored first */
typedef struct signals_noted {
    int stop;              /* the signal that requests a stop, or 0; as signals_seen() */
    bool resized, suspend; /* the window size changed; Ctrl-Z */
} signals_noted;
signals_noted signals_take(void); /* the signals since the last call; resets resized and suspend */
void signals_forget(void);        /* resets signals_seen(): the request was fulfilled */

#endif
