/* What to do next: three commands at the end of doctor and of the page that `linnet` alone prints, and the
 * offer to fetch a model that is not on this machine. */
#include "../base/dir_names.h"
#include "cli.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LONGEST = 4096 }; /* of a path, in bytes */

/* ---- next steps ---- */

/* The largest model that fits into the available memory. */
typedef struct choice {
    uint64_t available, bytes;
    int n; /* models that were found, without the bundled one */
    char name[LONGEST];
} choice;

/* Writes what a user would type for the model at `path`: its id if it lies in a Hugging Face cache, whose
 * directories are named models--ORG--NAME, else the path. */
static void name_of(char *out, size_t cap, const char *path) {
    const char *cached = strstr(path, "/models--"), *end = cached ? strchr(cached + 1, '/') : NULL,
               *org = cached ? cached + strlen("/models--") : NULL, *split = org ? strstr(org, "--") : NULL;
    if (!end || !split || split > end || strncmp(end, "/snapshots/", 11) != 0)
        (void)snprintf(out, cap, "%s", path);
    else (void)snprintf(out, cap, "%.*s/%.*s", (int)(split - org), org, (int)(end - split - 2), split + 2);
}

static ln_status consider(void *user, const ln_found *f, ln_error *err) {
    choice *c = user;
    (void)err;
    if (ln_ends_with(f->path, "/models/tiny") || !f->model_type[0]) return LN_OK;
    c->n++;
    /* with its KV cache and activations a model takes about a fifth more than its files */
    if (f->bytes <= c->bytes || f->bytes + f->bytes / 5 > c->available) return LN_OK;
    c->bytes = f->bytes;
    name_of(c->name, sizeof c->name, f->path);
    return LN_OK;
}

/* The largest of some models whose weights, in bf16, leave a third of the memory free. */
static const char *worth_fetching(uint64_t available) {
    static const struct {
        const char *id;
        uint64_t needs;
    } known[] = {{"Qwen/Qwen3-8B", 25000000000},
                 {"Qwen/Qwen3-4B", 12000000000},
                 {"Qwen/Qwen3-1.7B", 5500000000},
                 {"Qwen/Qwen3-0.6B", 0}};
    size_t i = 0;
    while (available < known[i].needs) i++;
    return known[i].id;
}

static void add_step(ln_str *s, int *n, const char *what, const char *command, const char *model) {
    char shown[LN_PATH_TEXT], line[LN_PATH_TEXT + 64];
    (void)snprintf(line, sizeof line, "%s%s%s", command, model[0] ? " " : "",
                   model[0] ? ln_path_text(shown, model) : "");
    ln_str_addf(s, "%-11s %-31s  %s\n", (*n)++ == 0 ? "next" : "", line, what);
}

void add_next_steps(ln_str *s, const ln_machine *m, bool measured) {
    choice *c = ln_zalloc(1, sizeof *c);
    ln_error ignored;
    int n = 0;
    if (!c) return;
    c->available = m->available_bytes;
    if (ln_list(NULL, consider, c, &ignored) != LN_OK) c->name[0] = '\0'; /* the cache cannot be listed */
    if (ln_exists("/proc/driver/nvidia/version") && !strstr(m->devices, "cuda"))
        add_step(s, &n, "builds the device for the GPU of this machine, if the CUDA toolkit is installed",
                 "make CMAKE_FLAGS=-DLN_CUDA=on", "");
    if (c->name[0]) {
        add_step(s, &n, "a conversation with the largest model here that fits", "linnet chat", c->name);
        add_step(s, &n, "its speed, and the share of what this machine can do", "linnet bench", c->name);
        if (n < 3)
            add_step(s, &n, "answers programs, and has a page for the browser", "linnet serve", c->name);
    } else {
        const char *id = worth_fetching(c->available);
        add_step(s, &n,
                 c->n ? "none of the models here fits into the available memory; this one does"
                      : "no model but the bundled one is here; this one fits",
                 "hf download", id);
        add_step(s, &n, "then a conversation with it", "linnet chat", id);
        if (n < 3 && measured) add_step(s, &n, "a story from the bundled model", "linnet run tiny", "Once");
        else if (n < 3) add_step(s, &n, "what this machine reads and computes", "linnet doctor", "--measure");
    }
    ln_free(c);
}

/* ---- fetching ---- */

/* Returns the name of Hugging Face's command in PATH, or NULL. */
static const char *fetcher(void) {
    static const char *const names[] = {"hf", "huggingface-cli"};
    const char *path = getenv("PATH");
    for (size_t i = 0; i < LN_COUNT(names); i++)
        for (const char *p = path; p && *p;) {
            char file[LONGEST];
            size_t n = strcspn(p, ":");
            int len = snprintf(file, sizeof file, "%.*s/%s", (int)LN_MIN(n, sizeof file), p, names[i]);
            if (n > 0 && len > 0 && (size_t)len < sizeof file && access(file, X_OK) == 0) return names[i];
            p += n + (p[n] == ':');
        }
    return NULL;
}

/* Asks on the terminal; anything but y or yes is no. */
static bool agreed(const char *command) {
    char line[64];
    (void)fprintf(stderr, "linnet: run it now: %s [y/N] ", command);
    (void)fflush(stderr);
    if (!fgets(line, sizeof line, stdin)) return false;
    return strcmp(line, "y\n") == 0 || strcmp(line, "Y\n") == 0 || strcmp(line, "yes\n") == 0;
}

/* Runs a command in the foreground; true if it ended with 0. */
static bool succeeded(char **argv) {
    pid_t child;
    int status;
    const int failed = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
    if (failed) {
        note("%s: %s", argv[0], strerror(failed));
        return false;
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool fetch_offered(const args *a, ln_status st, const ln_error *err) {
    char id[400], command[500];
    const char *model = a->model, *slash = model ? strchr(model, '/') : NULL, *program;
    if (st != LN_EIO || !slash || slash == model || model[0] == '.' || strchr(slash + 1, '/') ||
        strlen(model) >= sizeof id || !strstr(err->message, "in the Hugging Face cache") ||
        !strstr(err->message, "hf download") || has(a, F_JSON) || !isatty(STDIN_FILENO) ||
        !isatty(STDERR_FILENO) || !(program = fetcher()))
        return false;
    (void)snprintf(id, sizeof id, "%s", model);
    char *revision = strchr(id, '@');
    if (revision) *revision++ = '\0';
    (void)snprintf(command, sizeof command, "%s download %s%s%s", program, id, revision ? " --revision " : "",
                   revision ? revision : "");
    note("%s", err->message);
    if (!agreed(command)) return false;
    char *argv[] = {
        (char[16]){0}, (char[]){"download"}, id, revision ? (char[]){"--revision"} : NULL, revision, NULL};
    (void)snprintf(argv[0], 16, "%s", program);
    if (succeeded(argv)) return true;
    note("%s failed; its messages are above", command);
    return false;
}
