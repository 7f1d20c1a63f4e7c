/* Reading the prompt from one of -p, -f, --ids, the positional text, - or piped stdin. Text that is piped in
 * with a prompt is appended to it after an empty line.
 *
 * Texts are byte strings with a length and are checked once, here, to be UTF-8; U+0000 is an ordinary
 * character, and a byte order mark at the beginning of a file is removed. Ids are decimal; a list with any
 * other content is rejected with the position of the error. Ids from a file or a pipe may also be JSON, an
 * array or an object with "ids", so that the output of `tokenize` can be piped into `run --ids -`. */
#include "cli.h"

#include "../base/json.h"
#include "../base/text_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT_MOST = 64 << 20 };

bool input_given(const args *a) { return has(a, F_PROMPT) || has(a, F_FILE) || has(a, F_IDS) || a->argument; }

void input_free(input *in) {
    ln_free(in->text);
    ln_free(in->ids);
    *in = (input){0};
}

bool is_stdin(const char *path) {
    static const char *const names[] = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"};
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

/* Reads stdin to its end. When nothing arrives for two seconds, the message `waiting` explains what the
 * program waits for and how to avoid that. */
static ln_status read_stdin(const char *waiting, size_t most, char **data, size_t *bytes, ln_error *err) {
    enum { PATIENCE_MS = 2000 };
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready;
    do ready = poll(&p, 1, PATIENCE_MS);
    while (ready < 0 && errno == EINTR);
    if (ready == 0) note("waiting for stdin: %s", waiting);
    return ln_read_stream(STDIN_FILENO, "stdin", most, data, bytes, err);
}

/* Removes a byte order mark from the beginning of the data; frees the data on failure. */
static ln_status drop_mark(const char *name, char **data, size_t *bytes, ln_error *err) {
    size_t skip = 0;
    ln_status st = ln_utf8_mark(name, *data, *bytes, &skip, err);
    if (st != LN_OK) {
        ln_free(*data);
        *data = NULL;
        return st;
    }
    *bytes -= skip;
    memmove(*data, *data + skip, *bytes + 1);
    return LN_OK;
}

ln_status source_read(const char *path, const char *what, size_t most, char **data, size_t *bytes,
                      ln_error *err) {
    char waiting[120];
    if (!is_stdin(path)) {
        LN_TRY(ln_read_input(path, most, data, bytes, err));
        return drop_mark(path, data, bytes, err);
    }
    (void)snprintf(waiting, sizeof waiting, "it is to bring %s; Ctrl-D or the end of the pipe ends it", what);
    LN_TRY(read_stdin(waiting, most, data, bytes, err));
    return drop_mark("stdin", data, bytes, err);
}

const char *file_named(const args *a) {
    return has(a, F_FILE) ? a->flag[F_FILE].text : a->argument ? a->argument : "-";
}

ln_status file_read(const args *a, const char *what, size_t most, const char **name, char **data,
                    size_t *bytes, ln_error *err) {
    const char *path = file_named(a);
    if (!has(a, F_FILE) && !a->argument && isatty(STDIN_FILENO))
        return ln_fail(err, LN_EUSAGE, "no input; name a FILE with %s, or pipe it in", what);
    *name = is_stdin(path) ? "stdin" : path;
    return source_read(path, what, most, data, bytes, err);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

ln_status ids_parse(const char *name, const char *text, size_t bytes, ln_status code, int32_t **ids,
                    size_t *n, ln_error *err) {
    void *list = NULL;
    size_t cap = 0, at = 0;
    char shown[80], path[LN_PATH_TEXT];
    ln_status st = LN_OK;
    bool comma = false; /* the last separator was a comma, so that a number must follow */
    *n = 0;
    for (;;) {
        while (at < bytes && is_blank(text[at])) at++;
        if (at == bytes && !comma) break;
        size_t from = at;
        int64_t id;
        while (at < bytes && !is_blank(text[at]) && text[at] != ',') at++;
        if (!ln_parse_i64(text + from, at - from, &id) || id < 0 || id > INT32_MAX) {
            st = ln_fail(err, code, "%s: id %zu: expected an integer from 0 to %d, found '%s'",
                         ln_path_text(path, name), *n + 1, INT32_MAX,
                         ln_excerpt(shown, text + from, at - from));
            goto out;
        }
        LN_GO(ln_grow(&list, &cap, *n + 1, sizeof(int32_t), err));
        ((int32_t *)list)[(*n)++] = (int32_t)id;
        while (at < bytes && is_blank(text[at])) at++;
        comma = at < bytes && text[at] == ',';
        at += comma;
    }
    if (*n == 0) {
        st = ln_fail(err, code, "%s: expected token ids, found none", ln_path_text(path, name));
        goto out;
    }
    *ids = list;
    return LN_OK;
out:
    ln_free(list);
    return st;
}

ln_status ids_of_json(const json_t *list, int32_t **ids, size_t *n, ln_error *err) {
    char found[80];
    *n = json_array_size(list);
    *ids = ln_zalloc(*n + 1, sizeof **ids);
    if (!*ids) return LN_OOM(err, "token ids");
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > INT32_MAX)
            return ln_fail(err, LN_EINVALID, "\"ids\": item %zu: expected an integer from 0 to %d, found %s",
                           i + 1, INT32_MAX, ln_json_text(v, found));
        (*ids)[i] = (int32_t)id;
    }
    return LN_OK;
}

/* Parses [1, 2] or {"ids": [1, 2]}, the output of tokenize and of run --json. */
static ln_status read_json_ids(input *in, const char *name, const char *text, size_t bytes, ln_error *err) {
    json_t *root = NULL;
    char found[80], path[LN_PATH_TEXT];
    ln_status st = LN_OK;
    LN_GO(ln_json_load(&root, name, text, bytes, err));
    const json_t *list = json_is_object(root) ? json_object_get(root, "ids") : root;
    if (!json_is_array(list) || json_array_size(list) == 0)
        LN_GO(ln_fail(err, LN_EINVALID,
                      "%s: expected token ids, a JSON array of integers or an object with one as \"ids\", "
                      "found %s",
                      ln_path_text(path, name),
                      json_is_array(list) ? "an empty array" : ln_json_text(list, found)));
    LN_GO(ids_of_json(list, &in->ids, &in->n_ids, err));
out:
    json_decref(root);
    return st;
}

/* Whether the first character that is not blank begins a JSON array or object. */
static bool is_json(const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes && is_blank(text[at])) at++;
    return at < bytes && (text[at] == '{' || text[at] == '[');
}

static ln_status read_ids(input *in, const char *list, ln_error *err) {
    if (list[0] != '@' && strcmp(list, "-") != 0)
        return ids_parse("--ids", list, strlen(list), LN_EUSAGE, &in->ids, &in->n_ids, err);
    char *data;
    size_t bytes;
    const char *path = list[0] == '@' ? list + 1 : list;
    LN_TRY(source_read(path, "the token ids", PROMPT_MOST, &data, &bytes, err));
    const char *name = is_stdin(path) ? "stdin" : path;
    ln_status st = is_json(data, bytes)
                       ? read_json_ids(in, name, data, bytes, err)
                       : ids_parse(name, data, bytes, LN_EINVALID, &in->ids, &in->n_ids, err);
    ln_free(data);
    return st;
}

static ln_status copy_text(input *in, const char *text, ln_error *err) {
    in->bytes = strlen(text);
    in->text = ln_strndup(text, in->bytes);
    return in->text ? LN_OK : LN_OOM(err, "the prompt");
}

static ln_status check_utf8(const input *in, ln_error *err) {
    size_t good = ln_utf8_valid(in->text, in->bytes);
    char shown[80];
    if (good == in->bytes) return LN_OK;
    return ln_fail(err, LN_EINVALID, "the prompt: byte %zu: expected UTF-8, found '%s'", good,
                   ln_excerpt(shown, in->text + good, LN_MIN(in->bytes - good, (size_t)4)));
}

static void drop_newline(char *text, size_t *bytes) {
    size_t n = *bytes;
    if (n && text[n - 1] == '\n') n--;
    if (n < *bytes && n && text[n - 1] == '\r') n--;
    text[n] = '\0';
    *bytes = n;
}

/* Whether stdin is a text that was piped or redirected in with a prompt: a pipe or a regular file, open for
 * reading, and not the file from which the prompt itself was read. */
static bool is_piped(const char *source) {
    struct stat in, other;
    int flags = fcntl(STDIN_FILENO, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || fstat(STDIN_FILENO, &in) != 0) return false;
    if (!S_ISFIFO(in.st_mode) && !S_ISREG(in.st_mode)) return false;
    return !source || (!is_stdin(source) && !(stat(source, &other) == 0 && other.st_dev == in.st_dev &&
                                              other.st_ino == in.st_ino));
}

/* Appends the text of stdin to the prompt after an empty line; an empty text changes nothing. */
static ln_status add_piped(input *in, bool trim, ln_error *err) {
    static const char waiting[] = "a text that is piped in goes after the prompt; the end of the pipe ends "
                                  "it, and `< /dev/null` does without it";
    char *data = NULL;
    size_t bytes = 0;
    ln_status st = LN_OK;
    ln_str both = {0};
    LN_TRY(read_stdin(waiting, PROMPT_MOST, &data, &bytes, err));
    LN_TRY(drop_mark("stdin", &data, &bytes, err));
    if (trim) drop_newline(data, &bytes);
    if (bytes == 0) goto out;
    ln_str_add(&both, in->text, in->bytes);
    ln_str_adds(&both, "\n\n");
    ln_str_add(&both, data, bytes);
    if (both.failed) LN_GO(LN_OOM(err, "the prompt"));
    ln_free(in->text);
    *in = (input){.text = both.data, .bytes = both.len};
    both = (ln_str){0};
out:
    ln_str_free(&both);
    ln_free(data);
    return st;
}

static ln_status read_prompt(input *in, const args *a, bool trim, ln_error *err) {
    *in = (input){0};
    ln_status st = LN_OK;
    const char *source = has(a, F_FILE)                                 ? a->flag[F_FILE].text
                         : a->argument && strcmp(a->argument, "-") == 0 ? "-"
                                                                        : NULL;
    if (!input_given(a)) {
        if (isatty(STDIN_FILENO))
            return ln_fail(err, LN_EUSAGE,
                           "no prompt; give a text, -p TEXT, -f FILE, --ids LIST, or pipe it in");
        source = "-";
    }
    if (has(a, F_IDS)) {
        st = read_ids(in, a->flag[F_IDS].text, err);
        if (st != LN_OK) input_free(in);
        return st;
    }
    if (source) {
        LN_TRY(source_read(source, "the prompt", PROMPT_MOST, &in->text, &in->bytes, err));
        if (in->bytes == 0 && !input_given(a))
            LN_GO(ln_fail(err, LN_EUSAGE,
                          "no prompt: stdin is empty; give a text, -p TEXT, -f FILE or --ids LIST"));
        if (trim) drop_newline(in->text, &in->bytes);
    } else {
        LN_TRY(copy_text(in, has(a, F_PROMPT) ? a->flag[F_PROMPT].text : a->argument, err));
    }
    if (is_piped(source)) LN_GO(add_piped(in, trim, err));
    LN_GO(check_utf8(in, err));
    return LN_OK;
out:
    input_free(in);
    return st;
}

ln_status input_read(input *in, const args *a, bool trim, ln_error *err) {
    ln_text_work work;
    ln_text_begin(&work);
    const ln_status st = read_prompt(in, a, trim, err);
    return ln_text_end(&work, st, err);
}

ln_status input_ids(const input *in, const ln_model *model, ln_template tmpl, int32_t **ids, size_t *n,
                    ln_error *err) {
    ln_prompt p = {.size = sizeof(ln_prompt),
                   .text = in->text,
                   .text_bytes = in->bytes,
                   .ids = in->ids,
                   .n_ids = in->n_ids,
                   .tmpl = tmpl};
    return prompt_ids(model, &p, ids, n, err);
}

ln_status prompt_ids(const ln_model *model, const ln_prompt *p, int32_t **ids, size_t *n, ln_error *err) {
    /* a token has about four bytes */
    size_t cap = p->ids ? p->n_ids : (p->text_bytes + p->system_bytes) / 4 + 64, got = 0;
    *ids = NULL;
    for (int tries = 0; tries < 2; tries++) {
        size_t bytes;
        *ids = ln_mul_size(cap + 1, sizeof(int32_t), &bytes) ? ln_alloc(bytes) : NULL;
        if (!*ids) return LN_OOM(err, "token ids");
        ln_status st = ln_prompt_ids(model, p, *ids, cap, &got, err);
        if (st == LN_OK && got <= cap) {
            *n = got;
            return LN_OK;
        }
        ln_free(*ids);
        *ids = NULL;
        if (st != LN_OK) return st;
        cap = got;
    }
    return ln_fail(err, LN_EINTERNAL, "the tokenizer gave two lengths for one text");
}
