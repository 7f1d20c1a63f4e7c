/* A small model that reasons: a golden model with other names for two of its tokens, and a chat template.
 * Biases decide the text it writes: each token of a plan has a slightly smaller bias than the token before
 * it, and a token that was written is penalised so that it hardly occurs again. A plan must therefore not
 * contain a token twice. */
#ifndef LN_TESTS_THINK_MODEL_H
#define LN_TESTS_THINK_MODEL_H

#include "base/base.h"
#include "base/file.h"
#include "base/cm.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define THINK_FROM LN_ROOT "/tests/golden/qwen3-f16"
enum { ID_EOS = 257, ID_OPEN = 260, ID_END = 261 };
/* AS_QWEN: the template writes no delimiter unless the model is told not to reason, as Qwen 3 does. AS_R1:
 * the template opens the reasoning itself, as DeepSeek-R1's does. */
#define AS_QWEN                                                                                \
    "{{ messages[-1].content }}{% if enable_thinking is defined and not enable_thinking %}{{ " \
    "'<think>\\n\\n</think>\\n\\n' }}{% endif %}"
#define AS_R1                                                                                                \
    "{{ messages[-1].content }}{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}{# </think> #}{{ " \
    "'' if true else '</think>' }}"

static const char *const think_files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                          "chat_template.jinja"};

static void think_write(const char *dir, const char *leaf, const char *text, size_t bytes) {
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", dir, leaf);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static char *think_rename(char *json, const char *from, const char *to) {
    ln_str s = {0};
    const char *at, *rest = json;
    for (; (at = strstr(rest, from)); rest = at + strlen(from)) {
        ln_str_add(&s, rest, (size_t)(at - rest));
        ln_str_adds(&s, to);
    }
    assert_true(rest != json);
    ln_str_adds(&s, rest);
    assert_false(s.failed);
    ln_free(json);
    return s.data;
}

/* Writes the model to DIR. `tokens`: the reasoning delimiters are special tokens; otherwise they are spelt
 * in letters. */
static void think_make(const char *dir, const char *tmpl, bool tokens) {
    char path[400], *json;
    size_t bytes;
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 2; i++) {
        char to[400];
        (void)snprintf(path, sizeof path, "%s/%s", dir, think_files[i]);
        (void)snprintf(to, sizeof to, THINK_FROM "/%s", think_files[i]);
        assert_int_equal(symlink(to, path), 0);
    }
    assert_int_equal(ln_read_file(THINK_FROM "/tokenizer.json", 1 << 20, &json, &bytes, NULL), LN_OK);
    if (tokens)
        json = think_rename(think_rename(json, "\"<s4>\"", "\"<think>\""), "\"<s5>\"", "\"</think>\"");
    think_write(dir, "tokenizer.json", json, strlen(json));
    think_write(dir, "chat_template.jinja", tmpl, strlen(tmpl));
    ln_free(json);
}

static void think_remove(const char *dir) {
    char path[400];
    for (size_t i = 0; i < LN_COUNT(think_files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, think_files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* The token id of a character of a plan: '{' opens the reasoning, '}' ends it, '.' ends the text, any
 * other character is its own token. */
static int32_t think_id(const ln_tokenizer *tok, char c) {
    int32_t id[4];
    size_t n;
    if (c == '{' || c == '}' || c == '.') return c == '{' ? ID_OPEN : c == '}' ? ID_END : ID_EOS;
    assert_int_equal(ln_tokenize(tok, &c, 1, false, id, 4, &n, NULL), LN_OK);
    assert_int_equal(n, 1);
    return id[0];
}
static float think_bias(size_t i) {
    return 1000 - 10 * (float)i;
} /* together with presence and frequency penalties of 100 */

#endif
