/* Continues a text and prints it as it is made; Ctrl-C ends it in good order.
 * usage: generate [MODEL [TEXT]] */
#include <linnet.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static ln_engine *engine;

static void on_interrupt(int number) {
    (void)number;
    ln_cancel(engine, true); /* allowed in a signal handler */
}

static ln_status on_text(void *user, const char *text, size_t bytes, ln_error *err) {
    FILE *out = user;
    if (fwrite(text, 1, bytes, out) == bytes && fflush(out) == 0) return LN_OK;
    snprintf(err->message, sizeof err->message, "the text cannot be written");
    return LN_EIO; /* ln_generate hands it back */
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "tiny", *text = argc > 2 ? argv[2] : "Once upon a time";
    ln_prompt prompt = ln_prompt_default();
    ln_model *model = NULL;
    ln_sampling how = {.size = sizeof how};
    ln_result result = {.size = sizeof result};
    ln_error err;
    ln_status st = ln_model_open(&model, name, NULL, &err);
    if (st == LN_OK) st = ln_engine_open(&engine, model, NULL, &err);
    if (st == LN_OK) st = ln_sampling_default(model, &how, &err);
    prompt.text = text, prompt.text_bytes = strlen(text);
    signal(SIGINT, on_interrupt);
    if (st == LN_OK) st = ln_generate(engine, &prompt, &how, on_text, stdout, &result, &err);
    if (st == LN_OK)
        printf("\n[%lld tokens, %.0f a second%s]\n", (long long)result.metrics.generated_tokens,
               result.metrics.decode_tok_s, result.finish == LN_FINISH_CANCELLED ? ", stopped" : "");
    else fprintf(stderr, "%s\n", err.message);
    ln_result_free(&result);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}
