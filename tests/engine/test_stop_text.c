/* Stop texts that contain special tokens, which the text leaves out: against a naive search over random
 * pieces, and through the answer of the bundled model. */
/* run: quick asan */
#include "../common.h"
#include "../think_model.h"
#include "engine/answer_text.h"

#include <string.h>

/* ---- stop_text.c against a naive search ---- */

/* The texts are over {a, b}; M and N are the texts of two tokens that are left out. */
static const char *const sets[][4] = {{"abM", "b", NULL},         {"Ma", NULL},
                                      {"aMb", "aab", NULL},       {"MN", "ba", NULL},
                                      {"aMMa", "bb", "Nb", NULL}, {"aN", "ab", NULL}};

typedef struct expected {
    size_t end;   /* pieces after which a stop text is complete; SIZE_MAX: never */
    size_t shown; /* bytes of text before it */
    size_t token; /* the piece with which it begins, if that is a mark; SIZE_MAX */
    size_t which;
} expected;

static bool is_mark(char c) { return c == 'M' || c == 'N'; }
static bool is_mixed(const char *text) { return strpbrk(text, "MN") != NULL; }

/* Whether `stop` begins at all[at]; a text without marks passes over them. */
static bool begins(const char *all, size_t n, size_t at, const char *stop) {
    const bool mixed = is_mixed(stop);
    if (!mixed && is_mark(all[at])) return false;
    for (; *stop; at++) {
        if (at >= n) return false;
        if (!mixed && is_mark(all[at])) continue;
        if (all[at] != *stop++) return false;
    }
    return true;
}

/* Each piece is one character: text, or a mark. */
static expected search(const char *all, size_t n, const char *const *stops) {
    for (size_t end = 1; end <= n; end++) {
        size_t shown = 0;
        for (size_t at = 0; at < end; at++) {
            for (size_t i = 0; stops[i]; i++)
                if (begins(all, end, at, stops[i]))
                    return (expected){end, shown, is_mark(all[at]) ? at : SIZE_MAX, i};
            shown += !is_mark(all[at]);
        }
    }
    return (expected){SIZE_MAX, 0, SIZE_MAX, 0};
}

static void pieces_as_a_naive_search(void **state) {
    (void)state;
    uint64_t random = 1;
    size_t n_hits = 0;
    for (int round = 0; round < 20000; round++) {
        const char *const *stops = sets[test_random(&random) % LN_COUNT(sets)];
        char all[13], text[13] = "";
        bool mixed[4];
        size_t n = 1 + test_random(&random) % 12, n_stops = 0, n_text = 0;
        for (; stops[n_stops]; n_stops++) mixed[n_stops] = is_mixed(stops[n_stops]);
        for (size_t i = 0; i < n; i++) all[i] = "aabbMN"[test_random(&random) % 6];
        all[n] = '\0';
        const expected want = search(all, n, stops);
        ln_stop s;
        ln_str shown = {0};
        size_t end = SIZE_MAX;
        ln_stop_open(&s, stops, mixed, n_stops);
        for (size_t i = 0; i < n && end == SIZE_MAX; i++) {
            if (is_mark(all[i])) OK(ln_stop_push_mark(&s, all + i, 1, i, err));
            else OK(ln_stop_push(&s, all + i, 1, err));
            ln_str_add(&shown, s.ready.data, s.ready.len);
            if (s.hit) end = i + 1;
        }
        OK(ln_stop_flush(&s, err));
        ln_str_add(&shown, s.ready.data, s.ready.len);
        for (size_t i = 0; i < n; i++)
            if (!is_mark(all[i])) text[n_text++] = all[i];
        text[want.end == SIZE_MAX ? n_text : want.shown] = '\0';
        if (end != want.end || strcmp(shown.data ? shown.data : "", text) != 0 || s.shown != strlen(text) ||
            (s.hit && (s.token != want.token || s.which != want.which)))
            fail_msg("'%s' with '%s': ends after %zu, expected %zu; '%s', expected '%s'", all, stops[0], end,
                     want.end, shown.data, text);
        n_hits += s.hit;
        ln_str_free(&shown);
        ln_stop_close(&s);
    }
    assert_true(n_hits > 5000);
}

/* ---- an answer ---- */

/* Generates the tokens of `all`; `end`: a special token that then ends the answer, or NULL. */
static void check_answer(const ln_package *m, const char *all, const char *end, const char *stop,
                         const char *text, bool hit) {
    const char *const stops[] = {stop};
    const ln_sampling how = {.size = sizeof how, .stop = stops, .n_stop = 1};
    ln_ids ids = {0};
    ln_answer a;
    ln_str shown = {0}, rest = {0};
    size_t n;
    OK(ln_tok_encode(m->tok, all, strlen(all), false, &ids, err));
    OK(ln_answer_open(&a, m, &how, NULL, false, NULL, 0, err));
    for (size_t i = 0; i < ids.n && !a.stop.hit; i++) {
        OK(ln_answer_push(&a, ids.data[i], err));
        ln_str_add(&shown, a.text.data, a.text.len);
    }
    if (end) OK(ln_answer_end(&a, ln_tok_id(m->tok, end, strlen(end)), err));
    OK(ln_answer_flush(&a, err));
    ln_str_add(&shown, a.text.data, a.text.len);
    OK(ln_answer_visible(&a, ids.data, &n, err));
    OK(ln_tok_decode(m->tok, ids.data, n, true, &rest, err));
    if (a.stop.hit != hit || strcmp(shown.data ? shown.data : "", text) != 0 ||
        strcmp(rest.data ? rest.data : "", text) != 0)
        fail_msg("'%s', stop '%s': %s '%s', ids '%s'; expected '%s'", all, stop,
                 a.stop.hit ? "ends" : "goes on", shown.data, rest.data, text);
    /* no special token of the stop text is among the visible ids */
    if (hit && n > 0 && strncmp(stop, "<|", 2) == 0) assert_false(ln_tok_is_special(m->tok, ids.data[n - 1]));
    ln_answer_close(&a);
    ln_ids_free(&ids);
    ln_str_free(&shown);
    ln_str_free(&rest);
}

static void answers_end_before_a_mixed_stop(void **state) {
    (void)state;
    ln_package *m;
    const ln_options o = ln_options_default();
    OK(ln_package_open(&m, LN_ROOT "/models/tiny", &o, err));
    check_answer(m, "Once ###<|im_end|>\nmore", NULL, "###<|im_end|>", "Once ", true);
    check_answer(m, "Once<|im_end|>\nuser: hi", NULL, "<|im_end|>\nuser", "Once", true);
    check_answer(m, "Once<|im_end|>\nmore", NULL, "<|im_end|>\nuser", "Once\nmore", false);
    check_answer(m, "Once<|im_start|><|im_end|> x", NULL, "<|im_start|><|im_end|>", "Once", true);
    check_answer(m, "a ##<|im_start|>#<|im_end|> b", NULL, "###<|im_end|>", "a ### b", false);
    check_answer(m, "a ##<|im_start|># b", NULL, "###", "a ", true); /* a text passes over tokens left out */
    check_answer(m, "the end ###", "<|endoftext|>", "###<|endoftext|>", "the end ", true);
    check_answer(m, "the end ##", "<|endoftext|>", "###<|endoftext|>", "the end ##", false);
    check_answer(m, "caf\xc3\xa9<|im_end|>.", NULL, "\xc3\xa9<|im_end|>.", "caf", true);
    ln_package_close(&m);
}

/* A special token of the reasoning is not part of the answer, whose stop text begins with one. */
static void stops_of_answers_begin_after_the_reasoning(void **state) {
    (void)state;
    static const char all[] = "<think>ab<s6></think>Hello<pad>x";
    static const struct {
        const char *stop, *text;
    } rows[] = {{"<s6>Hello", "Hellox"}, {"lo<pad>", "Hel"}, {"<pad>x", "Hello"}};
    char dir[] = "/tmp/linnet-stop-XXXXXX", path[40];
    const ln_options o = ln_options_default();
    ln_package *m;
    ln_ids ids = {0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/m", dir);
    think_make(path, AS_QWEN, true);
    OK(ln_package_open(&m, path, &o, err));
    OK(ln_tok_encode(m->tok, all, strlen(all), false, &ids, err));
    for (size_t r = 0; r < LN_COUNT(rows); r++) {
        const ln_sampling how = {.size = sizeof how, .stop = &rows[r].stop, .n_stop = 1};
        ln_answer a;
        ln_str text = {0}, reasoning = {0};
        OK(ln_answer_open(&a, m, &how, NULL, true, NULL, 0, err));
        for (size_t i = 0; i < ids.n && !a.stop.hit; i++) {
            OK(ln_answer_push(&a, ids.data[i], err));
            ln_str_add(&text, a.text.data, a.text.len);
            ln_str_add(&reasoning, a.reasoning.data, a.reasoning.len);
        }
        OK(ln_answer_flush(&a, err));
        ln_str_add(&text, a.text.data, a.text.len);
        assert_string_equal(reasoning.data, "ab");
        assert_string_equal(text.data, rows[r].text);
        assert_int_equal(a.stop.hit, r > 0);
        ln_str_free(&text);
        ln_str_free(&reasoning);
        ln_answer_close(&a);
    }
    ln_ids_free(&ids);
    ln_package_close(&m);
    think_remove(path);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_as_a_naive_search),
                                       cmocka_unit_test(answers_end_before_a_mixed_stop),
                                       cmocka_unit_test(stops_of_answers_begin_after_the_reasoning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
