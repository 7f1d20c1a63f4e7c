/* Shared declarations of `linnet chat`: the conversation, the line reader, and the session that commands
 * modify.
 *
 *   chat_line.c     reads one line: from a terminal with line editing (libedit), or from a pipe
 *   chat_message.c  builds one message from lines: blocks, continued lines, pastes folded to placeholders
 *   chat_history.c  the history file
 *   chat_file.c     the conversation in memory and as a JSON file
 *   chat_command.c  the slash commands
 *   verb_chat.c     the main loop, and generating one answer
 *
 * stdout receives the model's answers only; the prompt, line editing and all messages of the program go to
 * stderr. */
#ifndef LN_CLI_CHAT_H
#define LN_CLI_CHAT_H

#include <linnet_backend.h>

#include "../cli.h"

#include <string.h>

/* ---- the conversation (chat_file.c) ---- */

/* The turns in order; a system text comes first. Contents are owned, roles point to constants. */
typedef struct talk {
    ln_message *messages;
    size_t n, cap;
} talk;

ln_status talk_add(talk *t, const char *role, const char *text, size_t bytes, ln_error *err);
void talk_cut(talk *t, size_t n); /* keeps the first n turns */
static inline bool talk_is(const talk *t, size_t i, const char *role) {
    return i < t->n && strcmp(t->messages[i].role, role) == 0;
}
/* Replaces the system text; an empty text removes it. */
ln_status talk_system(talk *t, const char *text, size_t bytes, ln_error *err);
/* Removes what follows the last user message, and that message too if `question_too`. False when there is
 * none. */
bool talk_undo(talk *t, bool question_too);
/* Writes {"messages":[{"role","content"}]} to a file, atomically. Does not overwrite an existing file unless
 * `force`. */
ln_status talk_save(const talk *t, const char *path, bool force, ln_error *err);
/* Reads such a file, or a bare array of messages. *t is unchanged on failure. LN_EINVALID: another
 * structure or an unknown role; LN_EIO. */
ln_status talk_load(talk *t, const char *path, ln_error *err);
void talk_free(talk *t);

/* ---- lines (chat_line.c) ---- */

typedef struct reader reader;

/* The kind of event that ends reading a line. */
typedef enum input_event {
    INPUT_TEXT = 0,
    INPUT_BREAK, /* Ctrl-C: the typed text is discarded */
    INPUT_LEAVE, /* Ctrl-C on an empty line */
    INPUT_END,   /* Ctrl-D, the end of a pipe, or a signal to end the process */
    INPUT_ERROR
} input_event;
static inline input_event input_error(ln_status st) { return st == LN_OK ? INPUT_TEXT : INPUT_ERROR; }

/* Opens stdin, with line editing if it is a terminal that supports it. `keep`: with a history file. The
 * caller owns *out. */
ln_status reader_open(reader **out, bool keep, ln_error *err);
void reader_close(reader **r);
/* Whether stdin is a terminal: then prompts are shown, and errors do not end the chat. */
bool reader_is_person(const reader *r);
/* Reads one line into *out, without its newline; folded texts appear as placeholders. LN_EINVALID: invalid
 * UTF-8, or a line that is too long. */
input_event reader_line(reader *r, const char *prompt, ln_str *out, ln_error *err);
/* Adds an entry to the history: `shown` is recalled by the arrow keys, `text` is written to the file. */
void reader_remember(reader *r, const char *shown, const char *text, size_t bytes);

/* ---- messages (chat_message.c) ---- */

/* Long texts that the edited line shows as a placeholder, such as [text 1: 12 lines, "first words"]. */
typedef struct fold {
    char *mark, *text;
    size_t bytes;
} fold;
typedef struct folds {
    fold *items;
    size_t n, cap;
} folds;

/* Copies a text and returns its placeholder, borrowed from *f. NULL: out of memory. */
const char *fold_text(folds *f, const char *text, size_t bytes);
/* Appends the line to *out with its placeholders replaced by their texts. */
void fold_open(const folds *f, const char *line, size_t bytes, ln_str *out);
/* The length of the placeholder at the end of line[0..bytes), 0 when there is none. */
size_t fold_before(const folds *f, const char *line, size_t bytes);
void folds_free(folds *f);
folds *reader_folds(reader *r);

typedef struct message {
    ln_str text;
    bool command; /* the line was typed with a slash at its beginning */
} message;

/* Reads a message: a line, lines joined by backslashes at their ends, or a block between two """. Without
 * `commands` a slash is an ordinary character, and each line of a pipe is a message as it is. */
input_event message_read(message *m, reader *r, bool commands, ln_error *err);

/* ---- the history file (chat_history.c) ---- */

enum { HISTORY_MOST = 1000, HISTORY_ENTRY_MOST = 64 << 10 };

/* Writes the path of the history file and creates its directories with mode 0700; "" when neither
 * XDG_STATE_HOME nor HOME is an absolute path. LN_EIO. */
ln_status history_path(char *path, size_t cap, ln_error *err);
/* Calls `entry` for the last HISTORY_MOST entries, oldest first. A file with twice as many is truncated. */
ln_status history_read(const char *path, void (*entry)(void *user, const char *text, size_t bytes),
                       void *user, ln_error *err);
ln_status history_add(const char *path, const char *text, size_t bytes, ln_error *err);

/* ---- the session (verb_chat.c) ---- */

typedef struct chat {
    const args *a;
    ln_model *model;
    ln_engine *engine;
    ln_backend_model *other; /* with --backend; then model and engine are NULL */
    ln_info info;
    reader *reader;
    talk talk;
    ln_sampling how;
    char *stops[MAX_STOPS]; /* owned; how.stop points to them */
    ln_logit_bias *bias;    /* owned; how.bias points to them */
    int32_t *stop_ids;      /* owned; how.stop_ids points to them */
    size_t cap_stop_ids;
    size_t cap_bias;
    uint64_t n_again; /* how often the last answer was regenerated; added to a seed that was given */
    bool person, stats, colour, leave;
    ln_metrics last; /* of the last answer */
    int64_t n_turns, n_generated;
    double seconds;
} chat;

/* Prints a line to stderr, muted if colours are used. */
void say(const chat *c, const char *fmt, ...) LN_PRINTF(2, 3);
/* Generates the answer to the conversation, whose last turn must be the user's, and appends it. When
 * nothing was generated, the user's turn is removed instead. */
ln_status chat_answer(chat *c, ln_error *err);
/* Runs "/name rest". LN_EUSAGE: an unknown command; the message names the nearest one. */
ln_status chat_command(chat *c, const char *line, ln_error *err);

#endif
