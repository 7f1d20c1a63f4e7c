/* Signal handling: Ctrl-C keeps the results so far, and a closed pipe does not kill the process.
 *
 * While an engine works, the first SIGINT, SIGTERM or SIGHUP asks it to stop after the current step; the
 * verb then writes its results and main converts the signal to the exit code. A second one, or one outside
 * an engine, ends the process at once. In a chat, signals outside an engine are recorded instead: its line
 * reader polls signals_fd (a self-pipe), because a signal may be delivered to any thread and thus does not
 * interrupt a particular call. A signal that the parent process set to be ignored (nohup, a background job
 * of a script) stays ignored. SIGBUS is handled by the library (ln_guard_files), which main calls. */
#include "../base/os.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static _Atomic(ln_engine *) working;
static _Atomic(ln_backend_model *) working_on;
static volatile sig_atomic_t noting, seen;
static atomic_bool resized, suspend;
static const char *volatile unfinished;
static void (*volatile restore)(void);
static int noted[2] = {-1, -1}; /* the self-pipe: one byte per signal */

static _Noreturn void end_now(int code) {
    const char *path = unfinished;
    void (*fn)(void) = restore;
    if (fn) fn();
    if (path) (void)unlink(path);
    _exit(code);
}

static void poke(void) {
    ssize_t done = write(noted[1], "", 1); /* a full pipe is readable, too */
    (void)done;
}

static void on_stop(int number) {
    int saved = errno;
    bool again = seen != 0;
    seen = number;
    ln_engine *engine = working;
    ln_backend_model *model = working_on;
    if (again || (!engine && !model && !noting)) end_now(128 + number);
    if (engine) ln_cancel(engine, true);
    else if (model) ln_backend_cancel(model, true);
    else poke();
    errno = saved;
}

static void on_note(int number) {
    int saved = errno;
    atomic_store(number == SIGWINCH ? &resized : &suspend, true);
    poke();
    errno = saved;
}

void signals_install(void) {
    struct sigaction a = {0};
    sigemptyset(&a.sa_mask);
    a.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &a, NULL);
    (void)sigaction(SIGXFSZ, &a, NULL); /* exceeding `ulimit -f` becomes a failed write */
    a.sa_flags = SA_RESTART;
    a.sa_handler = on_stop;
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct sigaction was;
        if (sigaction(stops[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            (void)sigaction(stops[i], &a, NULL);
    }
}

void signals_working(ln_engine *engine) { working = engine; }

void signals_working_on(ln_backend_model *model) { working_on = model; }

int signals_seen(void) { return seen; }

void signals_forget(void) { seen = 0; }

void signals_file(const char *path) { unfinished = path; }

void signals_restore(void (*fn)(void)) { restore = fn; }

int signals_fd(void) {
    if (noted[0] >= 0 || ln_os_pipe(noted, true) != 0) return noted[0];
    struct sigaction a = {.sa_handler = on_note, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    (void)sigaction(SIGWINCH, &a, NULL); /* between lines too: the next line uses the new width */
    return noted[0];
}

void signals_note(bool on) { noting = on; }

void signals_reading(bool on) {
    struct sigaction a = {.sa_handler = on ? on_note : SIG_DFL, .sa_flags = SA_RESTART}, was;
    sigemptyset(&a.sa_mask);
    if (sigaction(SIGTSTP, NULL, &was) == 0 && was.sa_handler != SIG_IGN) (void)sigaction(SIGTSTP, &a, NULL);
}

signals_noted signals_take(void) {
    char sink[64];
    while (read(noted[0], sink, sizeof sink) > 0) continue;
    return (signals_noted){.stop = seen,
                           .resized = atomic_exchange(&resized, false),
                           .suspend = atomic_exchange(&suspend, false)};
}
