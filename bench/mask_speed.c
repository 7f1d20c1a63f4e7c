/* Measures what a grammar costs: sorting a vocabulary, compiling the grammar, the mask of each state.
 *
 * usage: mask_speed DIR GRAMMAR TEXT     prints the times of sorting and compiling in milliseconds, then for
 *                                        each byte of TEXT those of the mask before it, the first time that
 *                                        its state occurs, and how many tokens are permitted
 *        mask_speed DIR < LINES          a line is a JSON object with `grammar` and `ids`; prints an object
 *                                        for each, with `error`, or with compile_ms, `fits` (whether the ids
 *                                        match) and mask_ms, a list of the times before each id
 *
 * DIR contains tokenizer.json; GRAMMAR is an ln_sampling.grammar. Times of lines are processor time of the
 * thread. tools/mask_peers.py compares llguidance. */
#include "../src/base/json_write.h"
#include "../src/engine/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* ---- lines ---- */

static double thread_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Appends the times of the masks before each id; returns whether all ids match. */
static bool time_masks(ln_matcher *m, const json_t *ids, ln_str *out) {
    ln_error err = {0};
    const uint64_t *mask;
    bool fits = true;
    for (size_t i = 0; fits && i < json_array_size(ids); i++) {
        const double from = thread_ms();
        if (ln_matcher_mask(m, &mask, &err) != LN_OK) die(&err);
        ln_str_addf(out, i > 0 ? ",%.5f" : "%.5f", thread_ms() - from);
        if (ln_matcher_take(m, (int32_t)json_integer_value(json_array_get(ids, i)), &fits, &err) != LN_OK)
            die(&err);
    }
    return fits;
}

static void time_line(const ln_vocabulary *v, const char *line, size_t bytes, ln_str *out) {
    ln_error err = {0};
    json_t *root = NULL;
    ln_grammar *g = NULL;
    ln_matcher *m = NULL;
    ln_str times = {0}, grammar = {0};
    if (ln_json_load(&root, "a line", line, bytes, &err) != LN_OK) die(&err);
    ln_str_json_value(&grammar, json_object_get(root, "grammar"));
    const double from = thread_ms();
    ln_status st = ln_grammar_open(&g, grammar.data, grammar.len, &err);
    const double compiled = thread_ms() - from;
    if (st == LN_OK) st = ln_matcher_open(&m, g, v, &err);
    if (st == LN_OK) {
        const bool fits = time_masks(m, json_object_get(root, "ids"), &times);
        ln_str_addf(out, "{\"compile_ms\":%.4f,\"fits\":%s,\"mask_ms\":[%s]}", compiled,
                    fits ? "true" : "false", times.data ? times.data : "");
    } else {
        ln_str_adds(out, "{\"error\":");
        ln_str_json(out, err.message, strlen(err.message));
        ln_str_adds(out, "}");
    }
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_str_free(&times);
    ln_str_free(&grammar);
    json_decref(root);
}

static void time_lines(const ln_vocabulary *v) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        ln_str out = {0};
        time_line(v, line, (size_t)n, &out);
        puts(out.data);
        fflush(stdout);
        ln_str_free(&out);
    }
    free(line);
}

int main(int argc, char **argv) {
    ln_error err = {0};
    ln_tok *tok = NULL;
    ln_vocabulary v = {0};
    ln_grammar *g = NULL;
    ln_matcher *m = NULL;
    if (argc != 4 && argc != 2) return fprintf(stderr, "usage: mask_speed DIR [GRAMMAR TEXT]\n"), 2;
    if (ln_tok_open(&tok, argv[1], &err) != LN_OK) die(&err);
    double from = ln_now();
    if (ln_grammar_vocabulary(&v, tok, ln_tok_count(tok), &err) != LN_OK) die(&err);
    if (argc == 2) {
        time_lines(&v);
        ln_vocabulary_free(&v);
        ln_tok_close(&tok);
        return 0;
    }
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
