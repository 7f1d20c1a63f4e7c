/* Where a prompt comes from: exactly one of -p, -f, --ids, the positional text, - or piped stdin.
 *
 * Texts are bytes with a length, checked to be UTF-8 here, once; U+0000 is a character in them. Ids are decimal and strict: what is
 * not wholly a list of numbers is refused with its position. */
#include "cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT_MOST = 64 << 20 };

bool input_given(const args *a) { return has(a, F_PROMPT) || has(a, F_FILE) || has(a, F_IDS) || a->argument; }

void input_free(input *in) {
    ln_free(in->text);
    ln_free(in->ids);
    *in = (input){0};
}

/* Reads a file or, for "-", stdin. */
static ln_status read_source(const char *path, char **data, size_t *bytes, ln_error *err) {
    if (strcmp(path, "-") == 0) return ln_read_stream(STDIN_FILENO, "stdin", PROMPT_MOST, data, bytes, err);
    return ln_read_file(path, PROMPT_MOST, data, bytes, err);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

ln_status ids_parse(const char *name, const char *text, size_t bytes, ln_status code, int32_t **ids, size_t *n, ln_error *err) {
    void *list = NULL;
    size_t cap = 0, at = 0;
    char shown[80], path[LN_PATH_TEXT];
    ln_status st = LN_OK;
    bool comma = false; /* the last separator was a comma: a number must follow */
    *n = 0;
    for (;;) {
        while (at < bytes && is_blank(text[at])) at++;
        if (at == bytes && !comma) break;
        size_t from = at;
        int64_t id;
        while (at < bytes && !is_blank(text[at]) && text[at] != ',') at++;
        if (!ln_parse_i64(text + from, at - from, &id) || id < 0 || id > INT32_MAX) {
            st = ln_fail(err, code, "%s: id %zu: expected an integer from 0 to %d, found '%s'", ln_path_text(path, name), *n + 1, INT32_MAX,
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

static ln_status read_ids(input *in, const char *list, ln_error *err) {
    if (list[0] != '@' && strcmp(list, "-") != 0) return ids_parse("--ids", list, strlen(list), LN_EUSAGE, &in->ids, &in->n_ids, err);
    char *data;
    size_t bytes;
    const char *path = list[0] == '@' ? list + 1 : list;
    LN_TRY(read_source(path, &data, &bytes, err));
    ln_status st = ids_parse(strcmp(path, "-") == 0 ? "stdin" : path, data, bytes, LN_EINVALID, &in->ids, &in->n_ids, err);
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

static void drop_newline(input *in) {
    if (in->bytes && in->text[in->bytes - 1] == '\n') in->bytes--;
    if (in->bytes && in->text[in->bytes] == '\n' && in->text[in->bytes - 1] == '\r') in->bytes--;
    in->text[in->bytes] = '\0';
}

ln_status input_read(input *in, const args *a, bool trim, ln_error *err) {
    *in = (input){0};
    ln_status st = LN_OK;
    const char *source = has(a, F_FILE) ? a->flag[F_FILE].text : a->argument && strcmp(a->argument, "-") == 0 ? "-" : NULL;
    if (!input_given(a)) {
        if (isatty(STDIN_FILENO)) return ln_fail(err, LN_EUSAGE, "no prompt; give a text, -p TEXT, -f FILE, --ids LIST, or pipe it in");
        source = "-";
    }
    if (has(a, F_IDS)) return read_ids(in, a->flag[F_IDS].text, err);
    if (source) {
        LN_TRY(read_source(source, &in->text, &in->bytes, err));
        if (in->bytes == 0 && !input_given(a)) LN_GO(ln_fail(err, LN_EUSAGE, "no prompt: stdin is empty; give a text, -p TEXT, -f FILE or --ids LIST"));
        if (trim) drop_newline(in);
    } else {
        LN_TRY(copy_text(in, has(a, F_PROMPT) ? a->flag[F_PROMPT].text : a->argument, err));
    }
    LN_GO(check_utf8(in, err));
    return LN_OK;
out:
    input_free(in);
    return st;
}

ln_status input_ids(const input *in, const ln_model *model, ln_template tmpl, int32_t **ids, size_t *n, ln_error *err) {
    ln_prompt p = {.text = in->text, .text_bytes = in->bytes, .ids = in->ids, .n_ids = in->n_ids, .tmpl = tmpl};
    size_t cap = in->ids ? in->n_ids : in->bytes + 64, got = 0;
    *ids = NULL;
    for (int tries = 0; tries < 2; tries++) {
        size_t bytes;
        *ids = ln_mul_size(cap + 1, sizeof(int32_t), &bytes) ? ln_alloc(bytes) : NULL;
        if (!*ids) return LN_OOM(err, "token ids");
        ln_status st = ln_prompt_ids(model, &p, *ids, cap, &got, err);
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
