/* Signals: Ctrl-C keeps what there is, a closed pipe is no death.
 *
 * While an engine works, the first SIGINT, SIGTERM or SIGHUP asks it to stop after the current step; the verb then writes what it has and
 * main turns the signal into the exit code. A second one, or one outside an engine, ends the process at once. SIGBUS is the library's
 * (ln_guard_files), which main asks for. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static _Atomic(ln_engine *) working;
static volatile sig_atomic_t seen;
static const char *volatile unfinished;

static void remove_unfinished(void) {
    const char *path = unfinished;
    if (path) (void)unlink(path);
}

static void on_stop(int number) {
    int saved = errno;
    bool again = seen != 0;
    seen = number;
    ln_engine *engine = working;
    if (!engine || again) {
        remove_unfinished();
        _exit(128 + number);
    }
    ln_cancel(engine, true);
    errno = saved;
}

void signals_install(void) {
    struct sigaction a = {0};
    sigemptyset(&a.sa_mask);
    a.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &a, NULL);
    (void)sigaction(SIGXFSZ, &a, NULL); /* a file over `ulimit -f` is a failed write */
    a.sa_flags = SA_RESTART;
    a.sa_handler = on_stop;
    (void)sigaction(SIGINT, &a, NULL);
    (void)sigaction(SIGTERM, &a, NULL);
    struct sigaction was;
    if (sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler != SIG_IGN) (void)sigaction(SIGHUP, &a, NULL); /* nohup's wish stands */
}

void signals_working(ln_engine *engine) { working = engine; }

int signals_seen(void) { return seen; }

void signals_file(const char *path) { unfinished = path; }
