/* A conversation: every line of stdin is a turn; answers are printed and remembered.
 * usage: chat [MODEL] */
#define _POSIX_C_SOURCE 200809L
#include <linnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 100 };
static ln_message turns[MOST_TURNS]; /* contents are ours */
static size_t n_turns;

static void add_turn(const char *role, const char *text, size_t bytes) {
    char *copy = malloc(bytes + 1);
    if (!copy || n_turns == MOST_TURNS) exit(LN_EMEMORY);
    memcpy(copy, text, bytes);
    turns[n_turns++] = (ln_message){.role = role, .content = copy, .content_bytes = bytes};
}

static ln_status on_text(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)user, (void)err;
    fwrite(text, 1, bytes, stdout);
    return fflush(stdout) == 0 ? LN_OK : LN_ECANCELLED; /* the reader is gone: stop, without an error */
}

/* The engine keeps the keys and values of the turns before: only the new ones are computed. */
static ln_status answer(ln_engine *engine, const ln_sampling *how, ln_error *err) {
    ln_prompt prompt = ln_prompt_default();
    ln_result result = {.size = sizeof result};
    prompt.messages = turns, prompt.n_messages = n_turns;
    ln_status st = ln_generate(engine, &prompt, how, on_text, NULL, &result, err);
    if (st == LN_OK) add_turn("assistant", result.text, result.text_bytes);
    ln_result_free(&result);
    return st;
}

int main(int argc, char **argv) {
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_sampling how = {.size = sizeof how};
    ln_error err;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    ln_status st = ln_model_open(&model, argc > 1 ? argv[1] : "tiny", NULL, &err);
    if (st == LN_OK) st = ln_engine_open(&engine, model, NULL, &err);
    if (st == LN_OK) st = ln_sampling_default(model, &how, &err);
    while (st == LN_OK && (n = getline(&line, &cap, stdin)) > 0) {
        add_turn("user", line, (size_t)n - (line[n - 1] == '\n'));
        st = answer(engine, &how, &err);
        putchar('\n');
    }
    if (st != LN_OK) fprintf(stderr, "%s\n", err.message);
    while (n_turns > 0) free((char *)turns[--n_turns].content);
    free(line);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}
