/* Measures what a grammar costs: sorting a vocabulary, compiling the grammar, and the mask of each state
 * along a text.
 *
 * usage: mask_speed DIR FORM TEXT DIR holds tokenizer.json; FORM is an ln_sampling.grammar; TEXT matches it
 *
 * Prints the times of sorting and compiling in milliseconds, then for each byte of TEXT those of the mask
 * before it, the first time that its state is met, and how many tokens may follow. */
#include "../src/engine/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const ln_error *err) {
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static size_t count(const uint64_t *mask, int64_t n_vocab) {
    size_t n = 0;
    for (int64_t i = 0; i < n_vocab; i++) n += mask[i / 64] >> (i % 64) & 1;
    return n;
}

/* Prints one line a byte. */
static void follow(ln_matcher *m, const ln_vocabulary *v, const char *text) {
    ln_error err = {0};
    const uint64_t *mask;
    bool fits = true;
    for (size_t i = 0; fits && i <= strlen(text); i++) {
        const double from = ln_now();
        if (ln_matcher_mask(m, &mask, &err) != LN_OK) die(&err);
        const double ms = (ln_now() - from) * 1e3;
        printf("%8.3f ms  %7zu tokens before '%s'\n", ms, count(mask, v->n_vocab), text + i);
        if (ln_matcher_push(m, text + i, text[i] != '\0', &fits, &err) != LN_OK) die(&err);
    }
    if (!fits || !ln_matcher_complete(m)) printf("the text does not have the form\n");
}

int main(int argc, char **argv) {
    ln_error err = {0};
    ln_tok *tok = NULL;
    ln_vocabulary v = {0};
    ln_grammar *g = NULL;
    ln_matcher *m = NULL;
    if (argc != 4) return fprintf(stderr, "usage: mask_speed DIR FORM TEXT\n"), 2;
    if (ln_tok_open(&tok, argv[1], &err) != LN_OK) die(&err);
    double from = ln_now();
    if (ln_form_vocabulary(&v, tok, ln_tok_count(tok), &err) != LN_OK) die(&err);
    printf("%lld tokens: sorted in %.1f ms, %.1f MB\n", (long long)v.n_vocab, (ln_now() - from) * 1e3,
           1e-6 * (double)ln_vocabulary_bytes(&v));
    from = ln_now();
    if (ln_grammar_open(&g, argv[2], strlen(argv[2]), &err) != LN_OK) die(&err);
    printf("compiled in %.3f ms, %.1f kB\n", (ln_now() - from) * 1e3, 1e-3 * (double)ln_grammar_bytes(g));
    if (ln_matcher_open(&m, g, &v, &err) != LN_OK) die(&err);
    follow(m, &v, argv[3]);
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
    ln_tok_close(&tok);
    return 0;
}
