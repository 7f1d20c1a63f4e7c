/* Helpers that the tokenizer's tests share: the real tokenizers and test vectors of ../shared/data/tok,
 * unpacked in memory. */
#ifndef LN_TESTS_VECTORS_H
#define LN_TESTS_VECTORS_H

#include "tokenizer/tokenizer.h"

#include "../base/cm.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef LN_ROOT
#define LN_ROOT "."
#endif
#define TOK_DATA LN_ROOT "/../shared/data/tok"

static const char *const vector_families[] = {
    "gpt-2",   "smollm2",      "qwen2.5", "qwen3",  "deepseek-r1-distill-qwen", "deepseek-coder", "llama-3.1",
    "gpt-oss", "mistral-v0.3", "llama-2", "gemma-3"};

/* Returns the whole output of a shell command, or NULL if the command fails or writes nothing. The caller
 * frees it. */
static inline char *vector_pipe(const char *command, size_t *bytes) {
    FILE *f = popen(command, "r");
    char *data = NULL;
    size_t cap = 0, n = 0, got;
    if (!f) return NULL;
    do {
        if (n == cap) data = realloc(data, cap = cap ? cap * 2 : 1 << 20);
        got = fread(data + n, 1, cap - n, f);
        n += got;
    } while (got > 0);
    int rc = pclose(f);
    *bytes = n;
    if (rc == 0 && n > 0) return data;
    free(data);
    return NULL;
}

/* Opens the tokenizer of a family; without data it prints a SKIP line and returns NULL. */
static inline ln_tok *vector_tokenizer(const char *family) {
    char command[512];
    size_t bytes;
    snprintf(command, sizeof command, "xz -dkc '%s/tokenizers/%s/tokenizer.json.xz' 2>/dev/null", TOK_DATA,
             family);
    char *json = vector_pipe(command, &bytes);
    if (!json) {
        printf("SKIP: %s: no data in %s or no xz: this family is NOT tested\n", family, TOK_DATA);
        return NULL;
    }
    ln_tok *t = NULL;
    ln_error err = {0};
    if (ln_tok_open_memory(&t, family, json, bytes, &err) != LN_OK) fail_msg("%s: %s", family, err.message);
    free(json);
    return t;
}

/* Calls fn for each line of vectors/FAMILY`suffix`; returns the number of lines. */
typedef void vector_fn(void *user, const json_t *line);
static inline size_t vector_lines(const char *family, const char *suffix, vector_fn *fn, void *user) {
    char path[512], *line = NULL;
    size_t cap = 0, n = 0;
    ssize_t len;
    snprintf(path, sizeof path, "%s/vectors/%s%s", TOK_DATA, family, suffix);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s: cannot be read", path);
    while ((len = getline(&line, &cap, f)) > 0) {
        json_t *o = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, NULL);
        assert_non_null(o);
        fn(user, o);
        json_decref(o);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

static inline void vector_ids(const json_t *list, ln_ids *out) {
    out->n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        assert_int_equal(ln_ids_add(out, (int32_t)json_integer_value(json_array_get(list, i)), NULL), LN_OK);
}

#endif
