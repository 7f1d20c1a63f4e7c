/* Fuzz target: a tokenizer.json from memory, then a text through it and back. Not part of the build:
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -Iinclude fuzz/fuzz_tokenizer.c src/text/(all).c src/base/(all).c
 *         -ljansson -lpcre2-8 -lutf8proc -lpthread -lm -o fuzz_tokenizer
 *
 * The input is a document, or a document and a text with a byte 0xFF between them (0xFF is in no JSON document). Seeds: the documents of
 * tests/text/test_tokenizer.c. With -DFUZZ_MAIN it is a program that runs the files named on its command line, for any compiler. */
#include "../src/text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char default_text[] = "The caf\xc3\xa9 <s> 12 a\xff\xe2\x96\x81 \n\n\xf0\x9f\x91\xa9\xe2\x80\x8d";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const uint8_t *mark = bytes > 0 ? memchr(data, 0xff, bytes) : NULL;
    size_t n_doc = mark ? (size_t)(mark - data) : bytes;
    const char *text = mark ? (const char *)mark + 1 : default_text;
    size_t n_text = mark ? bytes - n_doc - 1 : sizeof default_text - 1;
    ln_tok *tok = NULL;
    ln_error err;
    ln_log_level(LN_LOG_ERROR);
    if (ln_tok_open_memory(&tok, "fuzz", (const char *)data, n_doc, &err) != LN_OK) return 0;
    ln_ids ids = {0};
    if (ln_tok_encode(tok, text, n_text, true, &ids, &err) == LN_OK) {
        ln_str whole = {0}, streamed = {0};
        ln_detok d;
        ln_detok_open(&d, tok, false);
        bool ok = ln_tok_decode(tok, ids.data, ids.n, false, &whole, &err) == LN_OK;
        for (size_t i = 0; ok && i <= ids.n; i++) {
            ok = (i < ids.n ? ln_detok_push(&d, ids.data[i], &err) : ln_detok_flush(&d, &err)) == LN_OK;
            if (ok) ln_str_add(&streamed, d.text.data, d.text.len);
        }
        if (ok && (whole.len != streamed.len || (whole.len > 0 && memcmp(whole.data, streamed.data, whole.len) != 0))) __builtin_trap();
        ln_detok_close(&d);
        ln_str_free(&whole);
        ln_str_free(&streamed);
    }
    ln_ids_free(&ids);
    ln_tok_close(&tok);
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
