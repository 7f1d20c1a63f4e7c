/* linnet serve: OpenAI's API over HTTP. The server is src/serve; here flags become its options, and signals
 * its stops. */
#include "../serve/serve.h"
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_KEYS = 1024, MOST_KEY = 512, MOST_KEY_FILE = 1 << 20, DEFAULT_PORT = 8080 };

/* The keys that clients may give. `text` holds them. */
typedef struct key_list {
    char *text;
    const char **keys; /* [n] */
    size_t n;
} key_list;

static ln_status add_key(key_list *l, char *key, size_t line, ln_error *err) {
    const size_t n = strlen(key);
    if (n > MOST_KEY)
        return ln_fail(err, LN_EUSAGE, "--api-key: key %zu has %zu bytes, %d at most", line, n, MOST_KEY);
    for (const char *c = key; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return ln_fail(err, LN_EUSAGE,
                           "--api-key: key %zu has a character that no HTTP field may have; use "
                           "letters, digits and punctuation",
                           line);
    if (l->n == MOST_KEYS) return ln_fail(err, LN_EUSAGE, "--api-key: more than %d keys", MOST_KEYS);
    l->keys[l->n++] = key;
    return LN_OK;
}

static ln_status split_keys(key_list *l, bool file, const char *given, ln_error *err) {
    size_t line = 0;
    for (char *at = l->text, *next; at; at = next) {
        next = strchr(at, file ? '\n' : ',');
        if (next) *next++ = '\0';
        size_t n = strlen(at);
        if (n > 0 && at[n - 1] == '\r') at[n - 1] = '\0';
        line++;
        if (at[0] && !(file && at[0] == '#')) LN_TRY(add_key(l, at, line, err));
    }
    return l->n > 0 ? LN_OK : ln_fail(err, LN_EUSAGE, "--api-key: no key in '%s'", given);
}

/* Overwrites keys in the arguments, which every user can read in the list of processes. */
static void hide(const char *given) {
    char *text = (char *)(uintptr_t)given; /* main's argv, which may be written to */
    memset(text, 'x', strlen(text));
}

static void warn_of_readers(const char *path) {
    char shown[LN_PATH_TEXT];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || !(st.st_mode & (S_IRGRP | S_IROTH))) return;
    note("warning: --api-key: %s can be read by other users (mode %04o); chmod 600 it",
         ln_path_text(shown, path), (unsigned)st.st_mode & 07777);
}

/* Reads the keys of the flag, separated by commas as llama.cpp takes them, or those of its file: one a line,
 * without comments (#). Empty keys and lines are skipped. */
static ln_status read_keys(const args *a, key_list *l, ln_error *err) {
    const char *given = a->flag[F_API_KEY].text;
    const bool file = given && given[0] == '@';
    size_t bytes = 0;
    if (!has(a, F_API_KEY)) return LN_OK;
    l->keys = ln_zalloc(MOST_KEYS, sizeof *l->keys);
    if (!l->keys) return LN_OOM(err, "API keys");
    if (file) LN_TRY(source_read(given + 1, "API keys", MOST_KEY_FILE, &l->text, &bytes, err));
    else l->text = ln_strndup(given, strlen(given));
    if (!l->text) return LN_OOM(err, "API keys");
    if (file) warn_of_readers(given + 1);
    if (file && strlen(l->text) < bytes)
        return ln_fail(err, LN_EINVALID, "--api-key: byte %zu of the file is NUL, which no key may have",
                       strlen(l->text));
    const ln_status st = split_keys(l, file, given, err);
    if (!file) hide(given);
    return st;
}

static int take_stops(void) {
    const int stop = signals_take().stop;
    signals_forget();
    return stop != 0;
}

static void say(const char *line) { note("%s", line); }

/* The name of an id is the id; a directory and a file have their own. */
static const char *name_of(char buf[256], const args *a) {
    if (has(a, F_NAME)) return a->flag[F_NAME].text;
    if (ln_exists(a->model)) return NULL;
    (void)snprintf(buf, 256, "%.*s", (int)LN_MIN(strcspn(a->model, "@"), (size_t)255), a->model);
    return buf;
}

static ln_status check_name(const char *of, const char *name, ln_error *err) {
    const size_t n = name ? strlen(name) : 1;
    return n > 0 && n < 200 && (!name || ln_utf8_valid(name, n) == n)
               ? LN_OK
               : ln_fail(err, LN_EUSAGE, "%s: expected 1 to 199 bytes of UTF-8", of);
}

/* Checks an origin as browsers spell it: they send no path. */
static ln_status check_origin(const char *o, ln_error *err) {
    static const char scheme[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    const char *host = o + strspn(o, scheme);
    if (strcmp(o, "*") == 0 || strcmp(o, "null") == 0) return LN_OK;
    bool good = host > o && strncmp(host, "://", 3) == 0 && host[3];
    for (const char *c = host; good && *c; c++) good = (unsigned char)*c > ' ' && (unsigned char)*c < 0x7f;
    const char *star = strchr(o, '*'), *path = good ? strchr(host + 3, '/') : NULL;
    if (good && star) good = !star[1] && (star == host + 3 || star[-1] == ':');
    if (good && !path) return LN_OK;
    return ln_fail(err, LN_EUSAGE,
                   "--allow-origin %s: expected an origin as browsers send it, SCHEME://HOST or "
                   "SCHEME://HOST:PORT%s; * may stand for HOST or PORT, or be all of it",
                   o, path ? ", without a path or a slash at its end" : "");
}

static ln_status check_origins(const args *a, ln_error *err) {
    for (size_t i = 0; i < a->n_origins; i++) LN_TRY(check_origin(a->origins[i], err));
    return LN_OK;
}

static ln_status is_folder(const char *path, ln_error *err) {
    return ln_is_dir(path) ? LN_OK : ln_fail(err, LN_EIO, "--lora-dir: there is no directory '%s'", path);
}

ln_status cmd_serve(const args *a, ln_error *err) {
    char name[256];
    key_list keys = {0};
    ln_serve_lora *loras = ln_zalloc(a->n_loras + 1, sizeof *loras);
    ln_serve_options o = {.model = a->model,
                          .name = name_of(name, a),
                          .aliases = a->aliases,
                          .n_aliases = a->n_aliases,
                          .origins = a->origins,
                          .n_origins = a->n_origins,
                          .host = has(a, F_HOST) ? a->flag[F_HOST].text : "127.0.0.1",
                          .port = has(a, F_PORT) ? (int)a->flag[F_PORT].i : DEFAULT_PORT,
                          .max_queue = has(a, F_MAX_QUEUE) ? (int)a->flag[F_MAX_QUEUE].i : SERVE_MOST_QUEUE,
                          .log_json = has(a, F_LOG_FORMAT) && a->flag[F_LOG_FORMAT].i == 1,
                          .quiet = has(a, F_LOG_FORMAT) && a->flag[F_LOG_FORMAT].i == 2,
                          .drain_seconds = (double)a->flag[F_DRAIN].i,
                          .stop_fd = signals_fd(),
                          .take_stops = take_stops,
                          .say = say,
                          .reword = advice_add};
    ln_status st;
    if (!loras) return LN_OOM(err, "adapters");
    for (size_t i = 0; i < a->n_loras; i++) loras[i] = (ln_serve_lora){a->loras[i].name, a->loras[i].part};
    o.loras = loras;
    o.n_loras = a->n_loras;
    if (has(a, F_LORA_DIR)) {
        LN_GO(is_folder(a->flag[F_LORA_DIR].text, err));
        o.lora_dir = a->flag[F_LORA_DIR].text;
    }
    if (o.stop_fd < 0) LN_GO(ln_fail(err, LN_EIO, "no file descriptor is left for signals"));
    LN_GO(check_name("--name", o.name, err));
    for (size_t i = 0; i < a->n_aliases; i++) LN_GO(check_name("--alias", a->aliases[i], err));
    LN_GO(check_origins(a, err));
    LN_GO(options_of(a, &o.engine, err));
    o.engine.progress = progress_log();
    if (o.engine.n_parallel == 0) o.engine.n_parallel = BATCH_PARALLEL;
    o.engine.n_queue = o.max_queue;
    o.engine.embeddings = true;
    o.engine.text_bytes = SERVE_MOST_TEXTS;
    LN_GO(read_keys(a, &keys, err));
    o.keys = keys.keys;
    o.n_keys = keys.n;
    signals_note(true);
    st = serve_run(&o, err);
    signals_note(false);
out:
    ln_free(loras);
    ln_free(keys.keys);
    ln_free(keys.text);
    return st;
}
