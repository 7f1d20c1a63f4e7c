/* Signals: Ctrl-C keeps what there is, a vanished file is named, a closed pipe is no death.
 *
 * While an engine works, the first SIGINT, SIGTERM or SIGHUP asks it to stop after the current step; the verb then writes what it has and
 * main turns the signal into the exit code. A second one, or one outside the library, ends the process at once. A mapped file
 * that is cut short while in use raises SIGBUS: nothing can go on from there, so it is said and the exit code is 9. */
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

static void on_bus(int number) {
    static const char text[] = "linnet: a mapped file changed while it was in use; the model's files must stay as they are\n";
    (void)number;
    remove_unfinished();
    ssize_t done = write(STDERR_FILENO, text, sizeof text - 1);
    (void)done;
    _exit(LN_ECHANGED);
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
    a.sa_handler = on_bus;
    (void)sigaction(SIGBUS, &a, NULL);
}

void signals_working(ln_engine *engine) { working = engine; }

int signals_seen(void) { return seen; }

void signals_file(const char *path) { unfinished = path; }
