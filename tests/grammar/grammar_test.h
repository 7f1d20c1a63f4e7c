/* What the tests of grammars share: a vocabulary of bytes, and verdicts on texts. */
#ifndef LN_GRAMMAR_TEST_H
#define LN_GRAMMAR_TEST_H

#include "../common.h"
#include "grammar/grammar.h"

/* A vocabulary of all bytes, in which id i is byte i, and of the texts of `more`. */
static inline void open_vocabulary(ln_vocabulary *v, const char *const *more, size_t n, bool strips) {
    size_t bytes = 256;
    for (size_t i = 0; i < n; i++) bytes += strlen(more[i]);
    *v = (ln_vocabulary){.n_vocab = (int64_t)(257 + n), .strips_blank = strips};
    v->at = ln_zalloc((size_t)v->n_vocab + 1, sizeof *v->at);
    v->text = ln_alloc(bytes);
    assert_true(v->at && v->text);
    for (unsigned i = 0; i < 256; i++) v->text[i] = (char)i, v->at[i + 1] = i + 1;
    v->at[257] = 256; /* id 256 has no text */
    for (size_t i = 0; i < n; i++) {
        memcpy(v->text + v->at[257 + i], more[i], strlen(more[i]));
        v->at[258 + i] = v->at[257 + i] + (uint32_t)strlen(more[i]);
    }
    OK(ln_vocabulary_sort(v, err));
}

typedef enum verdict { WRONG, BEGINS, WHOLE } verdict;

/* What the grammar says of a text, fed byte by byte and at once. */
static inline verdict judge(const char *form, const char *text, size_t bytes) {
    ln_grammar *g;
    ln_matcher *m;
    ln_vocabulary v;
    bool fits = true, at_once;
    open_vocabulary(&v, NULL, 0, false);
    OK(ln_grammar_open(&g, form, strlen(form), err));
    OK(ln_matcher_open(&m, g, &v, err));
    for (size_t i = 0; i < bytes && fits; i++) OK(ln_matcher_take(m, (unsigned char)text[i], &fits, err));
    const verdict said = !fits ? WRONG : ln_matcher_complete(m) ? WHOLE : BEGINS;
    if (said == WHOLE && ln_matcher_final(m)) { /* nothing follows */
        for (int c = 0; c < 256; c++) {
            OK(ln_matcher_allows(m, c, &fits, err));
            assert_false(fits);
        }
    }
    ln_matcher_close(&m);
    OK(ln_matcher_open(&m, g, &v, err));
    if (bytes <= 1000) {
        OK(ln_matcher_push(m, text, bytes, &at_once, err));
        assert_int_equal(at_once, said != WRONG);
    }
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
    return said;
}

typedef struct text_case {
    const char *form;
    const char *whole[8], *begin[6], *wrong[18];
} text_case;

#define SCHEMA(s) "{\"schema\":" s "}"

/* Asserts what each grammar says of its texts. */
static inline void all_fit(const text_case *cases, size_t n_cases) {
    static const char *const said[] = {"does not fit", "begins", "is whole"};
    for (size_t i = 0; i < n_cases; i++) {
        const text_case *c = &cases[i];
        const char *const *lists[] = {c->wrong, c->begin, c->whole};
        const size_t most[] = {LN_COUNT(c->wrong), LN_COUNT(c->begin), LN_COUNT(c->whole)};
        for (int want = WRONG; want <= WHOLE; want++)
            for (size_t k = 0; k < most[want] && lists[want][k]; k++) {
                const verdict v = judge(c->form, lists[want][k], strlen(lists[want][k]));
                if (v == WRONG && want == WRONG) continue;
                /* a text that does not fit as a whole may begin one that does: it must then be no whole one
                 */
                if (want == WRONG && v == BEGINS) continue;
                if (v != (verdict)want)
                    fail_msg("%s\n%s: %s, expected: %s", c->form, lists[want][k], said[v], said[want]);
            }
    }
}

#endif
