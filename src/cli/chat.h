/* What the files of `linnet chat` share: the conversation, the reader of lines, the session that commands change.
 *
 *   chat_line.c     one line from a person (libedit), or from a pipe or a dumb terminal
 *   chat_message.c  one message out of lines: blocks, continued lines, long pastes folded to a mark
 *   chat_history.c  the file that arrow-up reads
 *   chat_talk.c     the conversation: turns, and as JSON in a file
 *   chat_command.c  what begins with a slash
 *   chat.c          the loop, and one answer
 *
 * stdout gets what the model says and nothing else; the prompt, the editing and everything said by linnet go to stderr. */
#ifndef LN_CLI_CHAT_H
#define LN_CLI_CHAT_H

#include "cli.h"

#include <string.h>

/* ---- the conversation (chat_talk.c) ---- */

/* Turns in order; a system text is the first. Contents are owned, roles are constants. */
typedef struct talk {
    ln_message *messages;
    size_t n, cap;
} talk;

ln_status talk_add(talk *t, const char *role, const char *text, size_t bytes, ln_error *err);
void talk_cut(talk *t, size_t n); /* keeps the first n */
static inline bool talk_is(const talk *t, size_t i, const char *role) { return i < t->n && strcmp(t->messages[i].role, role) == 0; }
/* Exchanges the system text; an empty one is none. */
ln_status talk_system(talk *t, const char *text, size_t bytes, ln_error *err);
/* Drops what came after the last message of a person, or that message too, with its answer. False when there is none. */
bool talk_undo(talk *t, bool question_too);
/* {"messages":[{"role","content"}]}, written whole or not at all. An existing file is refused unless `force`. */
ln_status talk_save(const talk *t, const char *path, bool force, ln_error *err);
/* Reads such a file, or a bare list of messages. *t changes only on success. */
ln_status talk_load(talk *t, const char *path, ln_error *err);
void talk_free(talk *t);

/* ---- lines (chat_line.c) ---- */

typedef struct reader reader;

typedef enum heard {
    HEARD_TEXT = 0,
    HEARD_BREAK, /* Ctrl-C: what was typed is gone */
    HEARD_LEAVE, /* Ctrl-C on an empty line */
    HEARD_END,   /* Ctrl-D, the end of a pipe, or a signal that wants the process to end */
    HEARD_ERROR
} heard;
static inline heard heard_error(ln_status st) { return st == LN_OK ? HEARD_TEXT : HEARD_ERROR; }

/* Opens stdin: with editing where a person sits at a terminal that can do it. `keep`: with a history file. */
ln_status reader_open(reader **out, bool keep, ln_error *err);
void reader_close(reader **r);
bool reader_is_person(const reader *r); /* stdin is a terminal: prompts are shown, mistakes are forgiven */
/* One line without its newline, put into *out. With marks in it where text was folded. */
heard reader_line(reader *r, const char *prompt, ln_str *out, ln_error *err);
/* Adds an entry to the history: what arrow-up shows, and what the file keeps. */
void reader_remember(reader *r, const char *shown, const char *text, size_t bytes);

/* ---- messages (chat_message.c) ---- */

/* Texts that stand as a mark in a line: [text 1: 12 lines, "first words"]. */
typedef struct fold {
    char *mark, *text;
    size_t bytes;
} fold;
typedef struct folds {
    fold *items;
    size_t n, cap;
} folds;

/* Keeps a text; its mark is borrowed. NULL when memory is short. */
const char *fold_text(folds *f, const char *text, size_t bytes);
/* Puts the texts in the place of their marks. */
void fold_open(const folds *f, const char *line, size_t bytes, ln_str *out);
/* The length of the mark that ends at the end of line[0..bytes), 0 when there is none. */
size_t fold_before(const folds *f, const char *line, size_t bytes);
void folds_free(folds *f);
folds *reader_folds(reader *r);

typedef struct message {
    ln_str text;
    bool command; /* it was typed with a slash at its beginning */
} message;

/* A message: a line; lines that a backslash continues; or a block between two """ . Without `commands` a
 * slash is a character like any other. */
heard message_read(message *m, reader *r, bool commands, ln_error *err);

/* ---- the history file (chat_history.c) ---- */

enum { HISTORY_MOST = 1000, HISTORY_ENTRY_MOST = 64 << 10 };

/* The path of the history file with its directories made, 0700; "" when there is no home. */
ln_status history_path(char *path, size_t cap, ln_error *err);
/* Reads the last HISTORY_MOST entries, oldest first; a file that has grown to twice that is cut. */
ln_status history_read(const char *path, void (*entry)(void *user, const char *text, size_t bytes), void *user, ln_error *err);
ln_status history_add(const char *path, const char *text, size_t bytes, ln_error *err);

/* ---- the session (chat.c) ---- */

typedef struct chat {
    const args *a;
    ln_model *model;
    ln_engine *engine;
    ln_info info;
    reader *reader;
    talk talk;
    ln_sampling how;
    char *stops[MAX_STOPS]; /* owned; how.stop shows them */
    ln_logit_bias *bias;    /* owned; how.bias shows them */
    size_t cap_bias;
    uint64_t n_again;       /* how often the last answer was asked for again: shifts a seed that was given */
    bool person, stats, colour, leave;
    ln_metrics last;        /* of the last answer */
    int64_t n_turns, n_generated;
    double seconds;
} chat;

/* A line to stderr, muted where there is colour. */
void say(const chat *c, const char *fmt, ...) LN_PRINTF(2, 3);
/* Answers the conversation, whose last turn is the person's. What was said is added to it; when nothing was, that turn is
 * taken back. */
ln_status chat_answer(chat *c, ln_error *err);
/* Runs "/name rest". LN_EUSAGE names the nearest command. */
ln_status chat_command(chat *c, const char *line, ln_error *err);

#endif
