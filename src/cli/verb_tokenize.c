/* linnet tokenize: text to ids and back, once or line by line.
 *
 * With --jsonl the output for each line is written before the program waits for the next one, so that
 * another program can interact with it; a bad line produces {"error"} (lines.c). */
#include "cli.h"

#include "../base/json.h"
#include "../base/text_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MOST = 16 << 20 };

static ln_status text_to_ids(const args *a, const ln_tokenizer *tok, const char *text, size_t bytes,
                             ln_str *out, ln_error *err) {
    size_t cap = bytes / 4 + 64, n = 0; /* a token has about four bytes */
    for (int tries = 0; tries < 2; tries++) {
        int32_t *ids = ln_alloc(cap * sizeof *ids);
        if (!ids) return LN_OOM(err, "token ids");
        ln_status st = ln_tokenize(tok, text, bytes, !has(a, F_NO_SPECIAL), ids, cap, &n, err);
        if (st == LN_OK && n <= cap) {
            ln_str_add(out, "{", 1);
            put_ids(out, "ids", ids, n);
            ln_str_adds(out, "}\n");
            ln_free(ids);
            return LN_OK;
        }
        ln_free(ids);
        if (st != LN_OK) return st;
        cap = n;
    }
    return ln_fail(err, LN_EINTERNAL, "the tokenizer gave two lengths for one text");
}

static ln_status ids_to_text(const args *a, const ln_tokenizer *tok, const int32_t *ids, size_t n,
                             ln_str *out, ln_error *err) {
    size_t cap = n * 8 + 64, bytes = 0;
    for (int tries = 0; tries < 2; tries++) {
        char *text = ln_alloc(cap);
        if (!text) return LN_OOM(err, "text");
        ln_status st = ln_detokenize(tok, ids, n, has(a, F_SKIP_SPECIAL), text, cap, &bytes, err);
        if (st == LN_OK && bytes <= cap) {
            ln_str_add(out, "{", 1);
            put_key(out, "text");
            ln_str_json(out, text, bytes);
            ln_str_adds(out, "}\n");
            ln_free(text);
            return LN_OK;
        }
        ln_free(text);
        if (st != LN_OK) return st;
        cap = bytes;
    }
    return ln_fail(err, LN_EINTERNAL, "the tokenizer gave two lengths for one list of ids");
}

static ln_status one_line(const args *a, const ln_tokenizer *tok, const char *line, size_t bytes, ln_str *out,
                          ln_error *err) {
    json_t *root = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    ln_status st = LN_OK;
    LN_GO(ln_json_load(&root, "JSON", line, bytes, err));
    const json_t *text = json_object_get(root, "text"), *list = json_object_get(root, "ids");
    if (json_is_string(text) && !list) {
        LN_GO(text_to_ids(a, tok, json_string_value(text), json_string_length(text), out, err));
    } else if (json_is_array(list) && !text) {
        LN_GO(ids_of_json(list, &ids, &n, err));
        LN_GO(ids_to_text(a, tok, ids, n, out, err));
    } else {
        st = ln_fail(err, LN_EINVALID,
                     "expected an object with \"text\", a string, or with \"ids\", an array");
    }
out:
    ln_free(ids);
    json_decref(root);
    return st;
}

typedef struct job {
    const args *a;
    const ln_tokenizer *tok;
} job;

static ln_status each(void *user, const char *line, size_t bytes, ln_str *out, ln_error *err) {
    const job *j = user;
    if (!line) return ln_fail(err, LN_EINVALID, "longer than %d bytes", LINE_MOST);
    return one_line(j->a, j->tok, line, bytes, out, err);
}

static ln_status tokenize(const args *a, ln_error *err) {
    input in = {0};
    ln_str out = {0};
    ln_tokenizer *tok = NULL;
    ln_status st = LN_OK;
    if (!has(a, F_JSONL)) LN_GO(input_read(&in, a, false, err));
    LN_GO(ln_tokenizer_open(&tok, a->model, err));
    job j = {a, tok};
    if (has(a, F_JSONL)) LN_GO(lines_each(a->flag[F_FILE].text, each, &j, LINE_MOST, err));
    else if (in.ids) LN_GO(ids_to_text(a, tok, in.ids, in.n_ids, &out, err));
    else LN_GO(text_to_ids(a, tok, in.text, in.bytes, &out, err));
    LN_GO(out_str(&out, err));
out:
    ln_str_free(&out);
    ln_tokenizer_close(&tok);
    input_free(&in);
    return st;
}

ln_status cmd_tokenize(const args *a, ln_error *err) {
    ln_text_work work;
    ln_text_begin(&work);
    const ln_status st = tokenize(a, err);
    return ln_text_end(&work, st, err);
}
