/* Measures how fast the tokenizer opens and encodes: ordinary prose, and repetitive texts, which are the
 * worst case of BPE.
 *
 * usage: tok_speed DIR [PROSE]     DIR holds tokenizer.json; PROSE is a file from tools/prose.py
 *
 * Prints one line a case: the median and the best of RUNS runs on one thread, in milliseconds. For the
 * repetitive texts (1 MiB of one unit) it also prints the time divided by that of half the length: 2 means
 * linear. */
#include "../src/base/file.h"
#include "../src/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void die(const ln_error *err) {
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

/* Returns the median time of RUNS encodings in ms; stores the best time and the number of ids. */
static double encode(const ln_tok *tok, const char *text, size_t bytes, double *best, size_t *n_ids) {
    double t[RUNS];
    ln_error err = {0};
    for (int i = 0; i < RUNS; i++) {
        ln_ids ids = {0};
        double from = ln_now();
        if (ln_tok_encode(tok, text, bytes, false, &ids, &err) != LN_OK) die(&err);
        t[i] = (ln_now() - from) * 1e3;
        *n_ids = ids.n;
        ln_ids_free(&ids);
    }
    qsort(t, RUNS, sizeof *t, by_value);
    *best = t[0];
    return t[RUNS / 2];
}

static char *repeat(const char *unit, size_t bytes, size_t *n) {
    size_t len = strlen(unit);
    char *s = malloc(bytes + len);
    if (!s) exit(1);
    for (*n = 0; *n + len <= bytes; *n += len) memcpy(s + *n, unit, len);
    return s;
}

static void hard(const ln_tok *tok, const char *name, const char *unit) {
    double best, half;
    size_t n, ids;
    char *s = repeat(unit, (size_t)1 << 20, &n);
    double whole = encode(tok, s, n, &best, &ids);
    encode(tok, s, n / 2, &half, &ids);
    printf("1 MiB of %-12s %8.2f ms best %8.2f   doubling %.2f\n", name, whole, best, best / half);
    free(s);
}

int main(int argc, char **argv) {
    ln_error err = {0};
    ln_tok *tok = NULL;
    double best, t[RUNS];
    size_t ids, n;
    if (argc < 2) {
        fprintf(stderr, "usage: tok_speed DIR [PROSE]\n");
        return 2;
    }
    for (int i = 0; i < RUNS; i++) {
        ln_tok_close(&tok);
        double from = ln_now();
        if (ln_tok_open(&tok, argv[1], &err) != LN_OK) die(&err);
        t[i] = (ln_now() - from) * 1e3;
    }
    qsort(t, RUNS, sizeof *t, by_value);
    printf("open                   %8.2f ms best %8.2f   holds %.1f MB\n", t[RUNS / 2], t[0],
           (double)ln_mem_bytes() / 1e6);
    if (argc > 2) {
        char *text;
        if (ln_read_file(argv[2], (size_t)1 << 30, &text, &n, &err) != LN_OK) die(&err);
        double median = encode(tok, text, n, &best, &ids);
        printf("prose, %7zu bytes   %8.2f ms best %8.2f   %zu ids\n", n, median, best, ids);
        ln_free(text);
    }
    char *s = repeat("_", 50000, &n);
    double median = encode(tok, s, n, &best, &ids);
    printf("50,000 underscores     %8.2f ms best %8.2f   %zu ids\n", median, best, ids);
    free(s);
    hard(tok, "a", "a");
    hard(tok, "_", "_");
    hard(tok, "7", "7");
    hard(tok, "newline", "\n");
    hard(tok, "space", " ");
    hard(tok, "ZWJ", "\xe2\x80\x8d");
    hard(tok, "family emoji", "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d");
    hard(tok, "CJK", "\xe7\x8e\x8b");
    hard(tok, "base64", "QmFzZTY0+/9zdHJpbmc");
    ln_tok_close(&tok);
    return 0;
}
