/* The child process as child_process.c and child_lines.c share it. */
#ifndef LN_CHILD_INTERNAL_H
#define LN_CHILD_INTERNAL_H

#include "child.h"

#include <pthread.h>
#include <sys/types.h>

struct ln_child {
    int fd; /* this end of the socket; -1: closed */
    pthread_t keeper;
    /* below: under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, ended; /* started: the program runs, or exec_error says why not */
    int exec_error;
    pid_t pid;
    int status;      /* of waitpid, if `ended`; -1: unknown, because another thread waited for it */
    char tail[2048]; /* the last bytes of standard error */
    size_t n_tail;
    /* for the keeper, until `started` */
    const char *python, *bytes_text;
    int child_fd, error_fd, error_child_fd;
    /* received and not yet given */
    char *buf;
    size_t n, at, cap;
    ln_error broken; /* code LN_OK: not */
};

/* Waits at most `seconds` until the process has ended; returns whether it has. */
bool ln_child_wait(ln_child *c, double seconds);
/* Appends how the process ended and what it wrote to standard error last: ": exit status 1; ...". */
void ln_child_last_words(ln_child *c, ln_str *out);

#endif
