/* BPE merging compared with the plain rule ("merge the pair of lowest rank, the leftmost on ties, until
 * none is left"), on random models whose merges are in no natural order and on words of every length: the
 * algorithms for short and for long words, the split into segments and the cache must all agree. */
/* run: quick asan */
#include "vectors.h"

enum { LETTERS = 4, TOKENS = 40, LENGTH = 400 };

typedef struct model {
    char text[TOKENS + 1][64]; /* and one more that a test adds */
    int n;
    struct {
        int left, right, id;
    } merges[200];
    int n_merges;
} model;

static uint64_t seed = 42;
static int draw(int n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static int find(const model *m, const char *text) {
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->text[i], text) == 0) return i;
    return -1;
}

/* Creates random tokens and all merges that produce them, shuffled: ranks need not follow the order in which
 * tokens are built. */
static void make(model *m) {
    m->n = m->n_merges = 0;
    for (int i = 0; i < LETTERS; i++) snprintf(m->text[m->n++], sizeof *m->text, "%c", 'a' + i);
    for (int tries = 0; tries < 60 && m->n < TOKENS; tries++) {
        char text[128];
        snprintf(text, sizeof text, "%s%s", m->text[draw(m->n)], m->text[draw(m->n)]);
        if (strlen(text) < 20 && find(m, text) < 0) memcpy(m->text[m->n++], text, strlen(text) + 1);
    }
    for (int l = 0; l < m->n; l++)
        for (int r = 0; r < m->n && m->n_merges < 200; r++) {
            char text[160];
            snprintf(text, sizeof text, "%s%s", m->text[l], m->text[r]);
            int id = find(m, text);
            if (id < 0 || draw(4) == 0) continue;
            m->merges[m->n_merges].left = l;
            m->merges[m->n_merges].right = r;
            m->merges[m->n_merges++].id = id;
        }
    for (int i = m->n_merges - 1; i > 0; i--) {
        int k = draw(i + 1);
        __typeof__(m->merges[0]) t = m->merges[i];
        m->merges[i] = m->merges[k];
        m->merges[k] = t;
    }
}

static ln_tok *open_model(const model *m, bool byte_level) {
    ln_str s = {0};
    ln_tok *t = NULL;
    ln_error err = {0};
    ln_str_addf(&s, "{\"model\":{\"type\":\"BPE\",%s\"vocab\":{", byte_level ? "\"unk_token\":\"a\"," : "");
    for (int i = 0; i < m->n; i++) ln_str_addf(&s, "%s\"%s\":%d", i ? "," : "", m->text[i], i);
    ln_str_addf(&s, "},\"merges\":[");
    for (int i = 0; i < m->n_merges; i++)
        ln_str_addf(&s, "%s[\"%s\",\"%s\"]", i ? "," : "", m->text[m->merges[i].left],
                    m->text[m->merges[i].right]);
    ln_str_addf(&s, "]}}");
    if (ln_tok_open_memory(&t, "random", s.data, s.len, &err) != LN_OK) fail_msg("%s", err.message);
    ln_str_free(&s);
    return t;
}

static int plain_rule(const model *m, int *ids, int n) {
    for (;;) {
        int best = m->n_merges, at = -1;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (m->merges[k].left == ids[i] && m->merges[k].right == ids[i + 1]) {
                    best = k;
                    at = i;
                }
        if (at < 0) return n;
        ids[at] = m->merges[best].id;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}

static void merging_as_the_plain_rule(void **state) {
    (void)state;
    static model m;
    for (int round = 0; round < 150; round++) {
        make(&m);
        ln_tok *t = open_model(&m, round % 2);
        for (int word = 0; word < 30; word++) {
            char text[LENGTH + 1];
            int ids[LENGTH], n = 1 + draw(word % 3 ? 60 : LENGTH), letters = 1 + draw(LETTERS);
            for (int i = 0; i < n; i++) {
                ids[i] = draw(letters);
                text[i] = (char)('a' + ids[i]);
            }
            n = plain_rule(&m, ids, n);
            ln_ids got = {0};
            size_t bytes = 0;
            for (int i = 0; i < n; i++) bytes += strlen(m.text[ids[i]]);
            assert_int_equal(ln_tok_encode(t, text, bytes, false, &got, NULL), LN_OK);
            if ((int)got.n != n) fail_msg("round %d: %d ids expected, %zu found", round, n, got.n);
            for (int i = 0; i < n; i++) assert_int_equal(got.data[i], ids[i]);
            ln_ids_free(&got);
        }
        ln_tok_close(&t);
    }
}

/* One text of thousands of words: the cache is in use, and every word has the ids that it has alone. */
static void cached_words_are_the_same(void **state) {
    (void)state;
    static model m;
    make(&m);
    ln_tok *t = open_model(&m, false);
    ln_ids whole = {0}, alone = {0};
    ln_str text = {0};
    for (int i = 0; i < 3000; i++) {
        char word[40];
        int n = 1 + draw(30);
        for (int k = 0; k < n; k++) word[k] = (char)('a' + draw(LETTERS));
        ln_str_add(&text, word, (size_t)n);
        ln_str_add(&text, "\xc3\xa9", 2); /* not in the vocabulary: dropped, and never merged across */
        assert_int_equal(ln_tok_encode(t, word, (size_t)n, false, &alone, NULL), LN_OK);
        if (i % 3 == 0) { /* the same word again */
            ln_str_add(&text, word, (size_t)n);
            ln_str_add(&text, "\xc3\xa9", 2);
            assert_int_equal(ln_tok_encode(t, word, (size_t)n, false, &alone, NULL), LN_OK);
        }
    }
    ln_tok_close(&t);
    /* With "é" as a token the words are separated in the ids. */
    snprintf(m.text[m.n++], sizeof *m.text, "\xc3\xa9");
    t = open_model(&m, false);
    assert_int_equal(ln_tok_encode(t, text.data, text.len, false, &whole, NULL), LN_OK);
    size_t k = 0;
    for (size_t i = 0; i < whole.n; i++) {
        if (whole.data[i] == m.n - 1) continue;
        assert_true(k < alone.n);
        assert_int_equal(whole.data[i], alone.data[k++]);
    }
    assert_int_equal(k, alone.n);
    ln_ids_free(&whole);
    ln_ids_free(&alone);
    ln_str_free(&text);
    ln_tok_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(merging_as_the_plain_rule),
                                       cmocka_unit_test(cached_words_are_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
