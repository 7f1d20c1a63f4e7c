/* Fuzz target: a chat template from memory, then a conversation through it. Not part of the build:
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -Iinclude fuzz/fuzz_jinja.c src/text/(all).c src/base/(all).c
 *         -ljansson -lpcre2-8 -lutf8proc -lpthread -lm -o fuzz_jinja
 *
 * The input is a template and the JSON object of its variables with a byte 0xFF between them (0xFF is in no UTF-8 text). Without one the
 * variables are a conversation. Seeds: tools/jinja_programs.py seeds DIR, and the templates of models with a 0xFF behind them. What is
 * rendered must be UTF-8, have an origin for every byte, and be the same when rendered again. With -DFUZZ_MAIN it is a program that
 * runs the files named on its command line, for any compiler. */
#include "../src/text/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"<|im_end|> \\u00e9\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
    "{\"role\":\"assistant\",\"content\":\"<think>\\nb</think>\\n\\nc\",\"tool_calls\":[{\"id\":\"123456789\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5}}}]},"
    "{\"role\":\"tool\",\"content\":\"[1]\",\"tool_call_id\":\"123456789\"},{\"role\":\"user\",\"content\":\"d\"}],\"tools\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"f\",\"description\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"}},\"required\":[\"x\"]}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

static ln_status set_all(jinja_run *run, const char *json, size_t bytes) {
    ln_json j;
    bool more;
    ln_error err;
    ln_json_open(&j, "context", json, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, &err);
    while (st == LN_OK && (st = ln_json_key(&j, &more, &err)) == LN_OK && more) st = jinja_set_json(run, j.text, j.text_bytes, &j, false, &err);
    ln_json_close(&j);
    return st;
}

static void check(const jinja_text *t) {
    if (ln_utf8_valid(t->text, t->bytes) != t->bytes) __builtin_trap();
    size_t data = 0;
    for (size_t i = 0; t->origin && i < t->bytes; i++) data += t->origin[i] > 1;
    for (size_t i = 0; i < t->n_generated; i++) data += t->generated[i].from > t->generated[i].to || t->generated[i].to > t->bytes;
    if (data > 0) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const uint8_t *mark = bytes > 0 ? memchr(data, 0xff, bytes) : NULL;
    size_t n = mark ? (size_t)(mark - data) : bytes, rest = mark ? bytes - n - 1 : 0;
    jinja_options opt = {.trim_blocks = n % 2 == 0, .lstrip_blocks = n % 2 == 0, .keep_trailing_newline = n % 3 == 0};
    static const struct tm now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 10};
    jinja *t;
    jinja_run *run = NULL;
    jinja_text text, again;
    ln_error err;
    if (jinja_compile(&t, "fuzz", (const char *)data, n, &opt, &err) != LN_OK) return 0;
    if (jinja_begin(&run, t, &now, &err) == LN_OK &&
        set_all(run, rest ? (const char *)mark + 1 : conversation, rest ? rest : sizeof conversation - 1) == LN_OK && jinja_render(run, &text, &err) == LN_OK) {
        check(&text);
        jinja_run *second = NULL;
        if (jinja_begin(&second, t, &now, &err) != LN_OK || set_all(second, rest ? (const char *)mark + 1 : conversation, rest ? rest : sizeof conversation - 1) != LN_OK ||
            jinja_render(second, &again, &err) != LN_OK || text.bytes != again.bytes || memcmp(text.text, again.text, text.bytes) != 0)
            __builtin_trap();
        jinja_end(&second);
    }
    jinja_end(&run);
    jinja_free(&t);
    return 0;
}

#ifdef FUZZ_MAIN
#include "../src/base/file.h"
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *data;
        size_t bytes;
        if (ln_read_file(argv[i], (size_t)1 << 28, &data, &bytes, NULL) != LN_OK) return 1;
        (void)LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
        ln_free(data);
    }
    return 0;
}
#endif
