/* /score, /rerank and /classify against transformers: the same probabilities on the bundled model
 * (rank_cases.h, written by tools/golden_rank.py). */
/* run: quick */
#include "server_test.h"

#include "rank_cases.h"

#include <math.h>

static json_t *ask(const char *path, json_t *body) {
    char *text = json_dumps(body, 0);
    reply r = post(path, text);
    if (r.status != 200) fail_msg("%s %s: %d: %s", path, text, r.status, r.body.data);
    json_t *root = json_of(&r);
    ln_free(text);
    json_decref(body);
    drop_reply(&r);
    return root;
}

/* p = e^a / (e^a + e^b + ...): an error of `bound` in every log-probability changes p by 2 p (1 - p) bound at
 * most. */
static void near_enough(double got, double want, const char *what) {
    const double most = 2 * bound * want * (1 - want) + 1e-15;
    if (!(fabs(got - want) <= most))
        fail_msg("%s: %.17g, transformers has %.17g (bound %g)", what, got, want, most);
}

/* Each pair alone: the same ids, the same probability. */
static void pairs_have_their_scores(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(pairs); i++) {
        json_t *body = json_pack("{s:s,s:[s]}", "text_1", pairs[i].query, "text_2", pairs[i].document);
        if (pairs[i].instruction)
            (void)json_object_set_new(body, "instruction", json_string(pairs[i].instruction));
        json_t *a = ask(i % 2 ? "/v1/score" : "/score", body);
        near_enough(json_real_value(at(a, "data.0.score")), pairs[i].score, pairs[i].document);
        const int64_t labels = 2; /* each label is one token, scored after the prompt */
        const int64_t n = int_at(a, "usage.prompt_tokens");
        if (n != pairs[i].n_ids && n != labels * pairs[i].n_ids)
            fail_msg("%s: %lld tokens, transformers has %d", pairs[i].document, (long long)n, pairs[i].n_ids);
        json_decref(a);
    }
}

/* The documents of one query together, in the order of their scores. */
static void documents_are_ranked(void **state) {
    (void)state;
    const char *query = pairs[0].query;
    json_t *documents = json_array();
    double scores[LN_COUNT(pairs)];
    size_t n = 0;
    for (; n < LN_COUNT(pairs) && strcmp(pairs[n].query, query) == 0 && !pairs[n].instruction; n++) {
        (void)json_array_append_new(documents, json_string(pairs[n].document));
        scores[n] = pairs[n].score;
    }
    assert_true(n > 1);
    json_t *a = ask("/rerank", json_pack("{s:s,s:o}", "query", query, "documents", documents));
    assert_int_equal(json_array_size(at(a, "results")), n);
    double before = 2;
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(at(a, "results"), i);
        const double score = json_real_value(at(r, "relevance_score"));
        near_enough(score, scores[int_at(r, "index")], "rerank");
        assert_true(score <= before);
        before = score;
    }
    json_decref(a);
}

static void labels_have_their_probabilities(void **state) {
    (void)state;
    json_t *input = json_array(), *names = json_array();
    for (size_t i = 0; i < LN_COUNT(texts); i++) (void)json_array_append_new(input, json_string(texts[i]));
    for (size_t i = 0; i < LN_COUNT(labels); i++) (void)json_array_append_new(names, json_string(labels[i]));
    json_t *a = ask("/classify", json_pack("{s:o,s:o,s:b}", "input", input, "labels", names, "raw", 1));
    for (size_t i = 0; i < LN_COUNT(texts); i++)
        for (size_t k = 0; k < LN_COUNT(labels); k++)
            near_enough(json_real_value(json_array_get(at(json_array_get(at(a, "data"), i), "probs"), k)),
                        classes[i][k], labels[k]);
    json_decref(a);
}

static int start_server(void **state) {
    (void)state;
    json_decref(parse("{}", 2)); /* sets the allocator of all trees */
    START("--log-format", "none", "--numerics", "exact");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_have_their_scores),
        cmocka_unit_test(documents_are_ranked),
        cmocka_unit_test(labels_have_their_probabilities),
    };
    return cmocka_run_group_tests(tests, start_server, end_with_0);
}
