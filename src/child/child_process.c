/* The life of a child process: start, standard error, end. The keeper thread does all three.
 *
 * Between fork and exec only async-signal-safe functions run. Descriptors are close-on-exec; those of the
 * program around the library that are not are closed by close_range if the kernel has it. */
#include "../base/os.h"
#include "child_internal.h"

#include "../base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ; /* which not every system declares */

/* Reads as many bytes as argv[1] says and runs them. The folder of the working directory leaves the module
 * path first: a json.py there is not the child's. */
static const char bootstrap[] = "import sys; sys.path[:] = [p for p in sys.path if p]\n"
                                "import os; n = int(sys.argv[1]); b = b''\n"
                                "while len(b) < n:\n"
                                "    d = os.read(0, n - len(b))\n"
                                "    if not d: os._exit(0)\n"
                                "    b += d\n"
                                "exec(compile(b, 'mlx_child.py', 'exec'))\n";

/* ---- the interpreter ---- */

static bool is_program(const char *path) {
    bool dir = false;
    return ln_look_dir(path, &dir, NULL) == LN_OK && !dir && access(path, X_OK) == 0;
}

static bool find_on_path(const char *name, char *path, size_t cap) {
    const char *at = getenv("PATH");
    for (; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        const size_t n = strcspn(at, ":");
        if (n > 0 && at[0] == '/' &&
            snprintf(path, cap, "%.*s/%s", (int)LN_MIN(n, (size_t)4096), at, name) < (int)cap &&
            is_program(path))
            return true;
    }
    return false;
}

ln_status ln_child_find_python(const char *python, char *path, size_t cap, ln_error *err) {
    static const char *const names[] = {"bin/python3", "bin/python"};
    const char *wanted = python ? python : "python3";
    char shown[LN_PATH_TEXT];
    if (!strchr(wanted, '/') && !ln_is_dir(wanted)) {
        if (find_on_path(wanted, path, cap)) return LN_OK;
        return ln_fail(err, LN_EIO,
                       "no program %s on PATH; ln_backend_options.python names a Python interpreter or the "
                       "directory of a virtual environment",
                       ln_path_text(shown, wanted));
    }
    if (ln_is_dir(wanted)) {
        for (size_t i = 0; i < LN_COUNT(names); i++)
            if (snprintf(path, cap, "%s/%s", wanted, names[i]) < (int)cap && is_program(path)) return LN_OK;
        return ln_fail(err, LN_EIO,
                       "%s: expected a virtual environment with bin/python3 (ln_backend_options.python); "
                       "python3 -m venv makes one",
                       ln_path_text(shown, wanted));
    }
    if (snprintf(path, cap, "%s", wanted) < (int)cap && is_program(path)) return LN_OK;
    return ln_fail(err, LN_EIO, "%s: expected a Python interpreter (ln_backend_options.python), found %s",
                   ln_path_text(shown, wanted), ln_exists(wanted) ? "no program" : "nothing");
}

/* ---- start ---- */

/* Runs in the new process; returns only if exec fails. */
static void become(const ln_child *c, pid_t parent, int report_fd) {
    const char *argv[] = {c->python, "-u", "-c", bootstrap, c->bytes_text, NULL};
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t none;
    (void)setpgid(0, 0);
    for (int s = 1; s < NSIG; s++) (void)sigaction(s, &usual, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(c->child_fd, 0) < 0 || dup2(c->child_fd, 1) < 0 || dup2(c->error_child_fd, 2) < 0) return;
    if (dup2(report_fd, 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) != 0) return;
    if (!ln_os_begin_child(parent, 4)) _exit(127);
    (void)execve(c->python, (char *const *)(uintptr_t)argv, environ);
}

/* Forks and waits until exec has succeeded, which closes the pipe, or failed. Returns an errno or 0. */
static int start(ln_child *c) {
    int report[2], error = 0;
    if (ln_os_pipe(report, false) != 0) return errno;
    const int high = fcntl(report[1], F_DUPFD_CLOEXEC, 10);
    const pid_t parent = getpid(), pid = high < 0 ? -1 : fork();
    if (pid == 0) {
        become(c, parent, high);
        error = errno;
        const ssize_t done = write(3, &error, sizeof error);
        _exit(done > 0 ? 127 : 126);
    }
    if (pid < 0) error = errno;
    (void)close(report[1]);
    if (high >= 0) (void)close(high);
    ssize_t n;
    while (pid > 0 && (n = read(report[0], &error, sizeof error)) < 0 && errno == EINTR) continue;
    (void)close(report[0]);
    if (pid > 0) (void)setpgid(pid, pid);
    pthread_mutex_lock(&c->lock);
    c->pid = pid;
    pthread_mutex_unlock(&c->lock);
    return error;
}

/* ---- standard error and the end ---- */

static void keep_tail(ln_child *c, const char *data, size_t n) {
    pthread_mutex_lock(&c->lock);
    const size_t cap = sizeof c->tail, keep = n >= cap ? 0 : LN_MIN(c->n_tail, cap - n);
    memmove(c->tail, c->tail + c->n_tail - keep, keep);
    memcpy(c->tail + keep, data + n - LN_MIN(n, cap), LN_MIN(n, cap));
    c->n_tail = keep + LN_MIN(n, cap);
    pthread_mutex_unlock(&c->lock);
}

/* Reads what has arrived; false at the end of the file. */
static bool read_error(ln_child *c) {
    char data[4096];
    ssize_t n;
    while ((n = read(c->error_fd, data, sizeof data)) > 0) keep_tail(c, data, (size_t)n);
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool has_ended(pid_t pid) {
    siginfo_t what = {0};
    const int r = waitid(P_PID, (id_t)pid, &what, WEXITED | WNOHANG | WNOWAIT);
    return (r != 0 && errno == ECHILD) || (r == 0 && what.si_pid == pid);
}

/* Reads standard error until the process has ended, which a descriptor tells if the system has such, else 20
 * times a second. Another process may have inherited the pipe, so that its end is no sign. */
static void watch(ln_child *c, pid_t pid) {
    const int ended = ln_os_watch_process(pid);
    bool open = true;
    while (!has_ended(pid)) {
        struct pollfd p[] = {{.fd = open ? c->error_fd : -1, .events = POLLIN},
                             {.fd = ended, .events = POLLIN}};
        if (poll(p, 2, ended < 0 ? 50 : -1) > 0 && p[0].revents) open = read_error(c);
    }
    if (ended >= 0) (void)close(ended);
    if (open) (void)read_error(c);
}

static void *keep(void *arg) {
    ln_child *c = arg;
    const int error = start(c);
    const pid_t pid = c->pid; /* only this thread writes it */
    (void)close(c->child_fd);
    (void)close(c->error_child_fd);
    pthread_mutex_lock(&c->lock);
    c->exec_error = error;
    c->started = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (pid > 0) watch(c, pid);
    (void)close(c->error_fd);
    int status = -1;
    pthread_mutex_lock(&c->lock);
    if (pid > 0) (void)kill(-pid, SIGKILL); /* what it has started; the number is its own until waitpid */
    if (pid > 0 && waitpid(pid, &status, 0) != pid) status = -1;
    c->status = status;
    c->ended = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static bool wait_until(ln_child *c, const bool *flag, double seconds) {
    const double at = ln_now() + seconds;
    pthread_mutex_lock(&c->lock);
    while (!*flag && ln_os_wait_until(&c->changed, &c->lock, at)) continue;
    const bool done = *flag;
    pthread_mutex_unlock(&c->lock);
    return done;
}

bool ln_child_wait(ln_child *c, double seconds) { return wait_until(c, &c->ended, seconds); }

static void kill_now(ln_child *c) {
    pthread_mutex_lock(&c->lock);
    if (!c->ended && c->pid > 0) (void)kill(-c->pid, SIGKILL), (void)kill(c->pid, SIGKILL);
    pthread_mutex_unlock(&c->lock);
}

void ln_child_last_words(ln_child *c, ln_str *out) {
    enum { QUOTED = 600 };
    pthread_mutex_lock(&c->lock);
    if (!c->ended) ln_str_adds(out, "it still runs");
    else if (c->status < 0) ln_str_adds(out, "its exit status is unknown");
    else if (WIFSIGNALED(c->status)) ln_str_addf(out, "signal %d", WTERMSIG(c->status));
    else ln_str_addf(out, "exit status %d", WEXITSTATUS(c->status));
    size_t n = c->n_tail, from;
    while (n > 0 && (unsigned char)c->tail[n - 1] <= ' ') n--;
    from = n > QUOTED ? n - QUOTED : 0;
    if (n > 0) ln_str_adds(out, from > 0 ? "; it wrote: ..." : "; it wrote: ");
    while (from < n && ((unsigned char)c->tail[from] & 0xc0) == 0x80) from++;
    for (; from < n; from++) {
        const unsigned char byte = (unsigned char)c->tail[from];
        if (byte >= ' ' && byte != 127) ln_str_add(out, &c->tail[from], 1);
        else if (byte == '\n') ln_str_adds(out, " | ");
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- open, close ---- */

/* Descriptors below 10 could be those that become() makes 0 to 3. */
static int raise_fd(int fd) {
    const int high = fd >= 0 && fd < 10 ? fcntl(fd, F_DUPFD_CLOEXEC, 10) : fd;
    if (high != fd) (void)close(fd);
    return high;
}

static ln_status make_ends(ln_child *c, ln_error *err) {
    int sock[2] = {-1, -1}, error[2] = {-1, -1};
    char text[LN_ERRNO_TEXT];
    if (ln_os_socket_pair(sock) != 0 || ln_os_pipe(error, false) != 0) {
        const int number = errno;
        if (sock[0] >= 0) (void)close(sock[0]), (void)close(sock[1]);
        return ln_fail(err, LN_EIO, "a socket for a child process: %s", ln_errno_text(text, number));
    }
    c->fd = raise_fd(sock[0]), c->child_fd = raise_fd(sock[1]);
    c->error_fd = raise_fd(error[0]), c->error_child_fd = raise_fd(error[1]);
    if (c->fd < 0 || c->child_fd < 0 || c->error_fd < 0 || c->error_child_fd < 0)
        return ln_fail(err, LN_EIO, "no file descriptors are left for a child process");
    (void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->error_fd, F_SETFL, O_NONBLOCK);
    return LN_OK;
}

static void close_ends(ln_child *c) {
    const int fds[] = {c->fd, c->child_fd, c->error_fd, c->error_child_fd};
    for (size_t i = 0; i < LN_COUNT(fds); i++)
        if (fds[i] >= 0) (void)close(fds[i]);
}

/* Starts the keeper with all signals blocked: handlers of the program run on its own threads. */
static ln_status start_keeper(ln_child *c, ln_error *err) {
    sigset_t all, was;
    char text[LN_ERRNO_TEXT];
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    const int error = pthread_create(&c->keeper, NULL, keep, c);
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (error)
        return ln_fail(err, LN_EMEMORY, "a thread for a child process: %s", ln_errno_text(text, error));
    return LN_OK;
}

static void free_child(ln_child *c) {
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    ln_free(c->buf);
    ln_free(c);
}

ln_status ln_child_open(ln_child **out, const char *python, const char *script, size_t bytes, ln_error *err) {
    char number[32], text[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    ln_child *c = ln_zalloc(1, sizeof *c);
    *out = NULL;
    if (!c) return LN_OOM(err, "a child process");
    c->fd = c->child_fd = c->error_fd = c->error_child_fd = -1;
    (void)snprintf(number, sizeof number, "%zu", bytes);
    c->python = python;
    c->bytes_text = number;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)ln_os_cond_init(&c->changed);
    ln_status st = make_ends(c, err);
    if (st == LN_OK) st = start_keeper(c, err);
    if (st != LN_OK) {
        close_ends(c);
        free_child(c);
        return st;
    }
    while (!wait_until(c, &c->started, 60.0)) continue; /* fork and exec alone */
    if (c->exec_error)
        st = ln_fail(err, LN_EIO, "%s cannot be started: %s", ln_path_text(shown, python),
                     ln_errno_text(text, c->exec_error));
    if (st == LN_OK) st = ln_child_send(c, script, bytes, 30.0, err);
    if (st != LN_OK) ln_child_close(&c, 0);
    *out = c;
    return st;
}

void ln_child_kill(ln_child *c, const ln_error *why) {
    if (c->broken.code == LN_OK) c->broken = *why;
    kill_now(c);
}

void ln_child_close(ln_child **child, double seconds) {
    ln_child *c = *child;
    *child = NULL;
    if (!c) return;
    (void)shutdown(c->fd, SHUT_WR);
    if (!ln_child_wait(c, seconds)) kill_now(c);
    (void)close(c->fd);
    (void)pthread_join(c->keeper, NULL);
    free_child(c);
}

int ln_child_pid(const ln_child *c) { return c->pid; }
