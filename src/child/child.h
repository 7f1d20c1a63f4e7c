/* A child process that speaks lines of JSON over one socket: its life (child_process.c), its messages
 * (child_lines.c), and the Python program that runs mlx-lm (child_script.c, mlx_child.py).
 *
 * The process has one socket as standard input and output, and a pipe as standard error, whose last bytes are
 * kept for error messages. It is started by a thread of its own, the keeper, which lives as long as the
 * process does: PR_SET_PDEATHSIG ends a process when the thread that started it ends. The keeper also reads
 * standard error and waits for the process, so that neither a full pipe nor a zombie is left, whatever thread
 * calls what. The process has a process group of its own: a Ctrl-C at the terminal does not reach it, and
 * what it has started ends with it.
 *
 * Every function that waits has a time limit. One thread at a time may send and receive; ln_child_close may
 * follow when that has returned. */
#ifndef LN_CHILD_H
#define LN_CHILD_H

#include "../base/base.h"

enum { LN_CHILD_LINE = 1 << 20 }; /* the most bytes of a message */

typedef struct ln_child ln_child;

/* Writes the path of the interpreter that `python` names: a path, a directory of a virtual environment (its
 * bin/python3 or bin/python), or a name that is searched on PATH; NULL: python3. LN_EIO: there is none. */
ln_status ln_child_find_python(const char *python, char *path, size_t cap, ln_error *err);
/* Starts `python` with the script of `bytes` bytes, which it is sent through its standard input, so that no
 * file of it exists. The caller owns *out; ln_child_close. LN_EIO: the process cannot be started. */
ln_status ln_child_open(ln_child **out, const char *python, const char *script, size_t bytes, ln_error *err);
/* Closes the connection, which ends the process, waits for that at most `seconds`, kills it then, and frees
 * everything. NULL and a second call do nothing. */
void ln_child_close(ln_child **c, double seconds);
/* Kills the process: it has broken the protocol. Later calls of send and receive fail with the message. */
void ln_child_kill(ln_child *c, const ln_error *why);
/* Sends a line, which ends with a newline, within `seconds`. LN_EIO. */
ln_status ln_child_send(ln_child *c, const char *line, size_t bytes, double seconds, ln_error *err);
/* Receives a line, without its newline and with a NUL after it; borrowed until the next call. *line is NULL
 * if `seconds` pass without one. LN_EIO: the process has ended, in the middle of a message or not, or sent a
 * line of more than LN_CHILD_LINE bytes; the message has its exit and the end of its standard error. */
ln_status ln_child_receive(ln_child *c, double seconds, char **line, size_t *bytes, ln_error *err);
int ln_child_pid(const ln_child *c); /* for tests */

/* The Python program of mlx_child.py. */
const char *ln_child_script(size_t *bytes);

#endif
