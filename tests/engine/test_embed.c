/* ln_embed: the embeddings that transformers computes, of the last token and of the mean; the same bits in a
 * crowd, in chunks and after reuse as alone; fewer dimensions; errors of
 * single texts, order, and what ends a call. */
/* run: quick cuda */
#include "golden_ids.h"
#include "../common.h"
#include "embed_cases.h"

#include <math.h>

#define GOLDEN LN_ROOT "/tests/golden/"
enum { MOST = 40 };

typedef struct fixture {
    ln_model *model;
    ln_engine *engine;
    ln_info info;
    int32_t ids[MOST][200];
    ln_prompt prompts[MOST];
    size_t n;
} fixture;

static fixture *open_path(const char *path, ln_options o) {
    fixture *f = calloc(1, sizeof *f);
    if (o.n_threads == 0) o.n_threads = 2;
    OK(ln_model_open(&f->model, path, &o, err));
    f->info.size = sizeof f->info;
    OK(ln_model_info(f->model, &f->info, err));
    OK(ln_engine_open(&f->engine, f->model, &o, err));
    return f;
}

static fixture *open_golden(const char *name, ln_options o) {
    char path[300];
    (void)snprintf(path, sizeof path, GOLDEN "%s", name);
    return open_path(path, o);
}

static void close_all(fixture *f) {
    ln_engine_close(&f->engine);
    ln_model_close(&f->model);
    free(f);
}

static void add(fixture *f, int n, uint32_t seed) {
    make_ids(f->ids[f->n], n, f->info.vocab_size, seed);
    f->prompts[f->n] = (ln_prompt){.size = sizeof(ln_prompt), .ids = f->ids[f->n], .n_ids = (size_t)n};
    f->n++;
}

typedef struct answers {
    size_t n, stop_after;
    struct answer {
        ln_status status;
        char error[300];
        int64_t n_values, n_tokens;
        float values[256];
    } at[MOST];
} answers;

static ln_status keep(void *user, const ln_embedding *e, ln_error *err) {
    answers *a = user;
    struct answer *x = &a->at[a->n];
    (void)err;
    assert_int_equal(e->index, a->n++);
    x->status = e->status;
    x->n_values = e->n_values;
    x->n_tokens = e->n_tokens;
    assert_int_equal(e->error != NULL, e->status != LN_OK);
    assert_int_equal(e->values != NULL, e->status == LN_OK);
    if (e->error) (void)snprintf(x->error, sizeof x->error, "%s", e->error);
    if (e->values) memcpy(x->values, e->values, (size_t)e->n_values * sizeof(float));
    return a->n == a->stop_after ? LN_ECANCELLED : LN_OK;
}

static ln_embed_options pooled(ln_pooling p) {
    ln_embed_options o = ln_embed_options_default();
    o.pooling = p;
    return o;
}

static answers *embed(fixture *f, ln_embed_options o, ln_metrics *m) {
    answers *a = calloc(1, sizeof *a);
    OK(ln_embed(f->engine, f->prompts, f->n, &o, keep, a, m, err));
    assert_int_equal(a->n, f->n);
    return a;
}

static double length_of(const struct answer *x) {
    double s = 0;
    for (int64_t i = 0; i < x->n_values; i++) s += (double)x->values[i] * (double)x->values[i];
    return sqrt(s);
}

/* The bound is the script's, and half a unit of the last of the 9 digits that it prints. */
static void values_are_those_of_transformers(void **state) {
    (void)state;
    for (size_t k = 0; k < LN_COUNT(embed_cases); k++) {
        fixture *f = open_golden(embed_cases[k].model, ln_options_default());
        assert_int_equal(f->info.width, embed_cases[k].width);
        for (int i = 0; i < EMBED_N; i++) add(f, embed_lengths[i], (uint32_t)embed_lengths[i]);
        for (int way = 0; way < 2; way++) {
            answers *a = embed(f, pooled(way ? LN_POOLING_MEAN : LN_POOLING_LAST), NULL);
            for (int i = 0; i < EMBED_N; i++) {
                const double *want = way ? embed_cases[k].mean[i] : embed_cases[k].last[i];
                assert_int_equal(a->at[i].n_tokens, embed_lengths[i]);
                assert_true(fabs(length_of(&a->at[i]) - 1) < 1e-6);
                for (int d = 0; d < embed_cases[k].width; d++)
                    if (!(fabs((double)a->at[i].values[d] - want[d]) <= embed_cases[k].bound + 5e-10))
                        fail_msg("%s, text %d, value %d: %.9g, expected %.9g", embed_cases[k].model, i, d,
                                 (double)a->at[i].values[d], want[d]);
            }
            free(a);
        }
        close_all(f);
    }
}

/* Alone, one thread, small chunks and everything at once give the same bits, in both numerics. */
static void bits_are_the_same_in_any_company(void **state) {
    (void)state;
    static const char *const models[] = {"gemma3-text-f32", "qwen3-f16", "llama-bias-bf16"};
    static const int lengths[] = {1, 40, 3, 7, 70, 8, 2, 15, 33, 64, 5, 16};
    for (size_t k = 0; k < LN_COUNT(models); k++)
        for (int way = LN_POOLING_LAST; way <= LN_POOLING_WEIGHTED_MEAN; way++) {
            ln_options o = ln_options_default();
            o.n_parallel = 4;
            fixture *f = open_golden(models[k], o);
            for (size_t i = 0; i < 2 * LN_COUNT(lengths); i++)
                add(f, lengths[i % LN_COUNT(lengths)], (uint32_t)(i % 9));
            answers *all = embed(f, pooled((ln_pooling)way), NULL);
            o.n_parallel = 1, o.n_chunk = 5, o.n_threads = 1;
            fixture *g = open_golden(models[k], o);
            for (size_t i = 0; i < f->n; i++) {
                answers one = {0};
                ln_embed_options e = pooled((ln_pooling)way);
                OK(ln_embed(g->engine, &f->prompts[i], 1, &e, keep, &one, NULL, err));
                assert_int_equal(one.at[0].n_values, all->at[i].n_values);
                assert_memory_equal(one.at[0].values, all->at[i].values,
                                    (size_t)one.at[0].n_values * sizeof(float));
            }
            free(all);
            close_all(g);
            close_all(f);
        }
}

/* Steps that only embed compute no logits, so that a step takes a whole chunk of a text, whatever
 * ln_options.n_logits is. */
static void rows_are_not_bounded_by_logits(void **state) {
    (void)state;
    ln_options o = ln_options_default();
    o.n_chunk = 50;
    fixture *f = open_golden("qwen3-f16", o);
    ln_engine_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    ln_memory least = {.size = sizeof least}, most = {.size = sizeof most};
    add(f, 180, 1);
    OK(ln_engine_get_stats(f->engine, &before, err));
    ln_memory_stats(&least);
    free(embed(f, pooled(LN_POOLING_MEAN), NULL));
    OK(ln_engine_get_stats(f->engine, &after, err));
    ln_memory_stats(&most);
    assert_int_equal(after.n_steps - before.n_steps, (180 + 49) / 50);
    assert_true(most.activation_bytes > least.activation_bytes); /* the second program is counted */
    close_all(f);
    ln_memory_stats(&most);
    assert_int_equal(most.activation_bytes, 0);
}

/* With a request that generates, a step computes the logits of all its output rows; the bits stay. */
static void bits_are_the_same_beside_an_answer(void **state) {
    (void)state;
    static const char *const models[] = {"gemma3-text-f32", "qwen3-f16"};
    static const int lengths[] = {40, 3, 70, 8};
    for (size_t k = 0; k < LN_COUNT(models); k++)
        for (int way = LN_POOLING_LAST; way <= LN_POOLING_WEIGHTED_MEAN; way++) {
            ln_options o = ln_options_default();
            o.n_parallel = 4, o.n_chunk = 32;
            fixture *f = open_golden(models[k], o);
            for (size_t i = 0; i < LN_COUNT(lengths); i++) add(f, lengths[i], (uint32_t)i);
            answers *alone = embed(f, pooled((ln_pooling)way), NULL);
            ln_cache_clear();
            ln_request_options r = ln_request_options_default();
            ln_sampling how = {.size = sizeof how};
            OK(ln_sampling_default(f->model, &how, err));
            how.n_max = 60, how.ignore_eos = true;
            r.sampling = &how;
            ln_request *request;
            OK(ln_request_open(&request, f->engine, &f->prompts[0], &r, err));
            answers *beside = embed(f, pooled((ln_pooling)way), NULL);
            for (size_t i = 0; i < f->n; i++)
                assert_memory_equal(beside->at[i].values, alone->at[i].values, sizeof alone->at[i].values);
            ln_request_close(&request);
            free(beside);
            free(alone);
            close_all(f);
        }
}

/* Tokens of this model attend to later ones: a text is computed whole, in one step, and nothing of it is
 * reused. Its bits are the same alone and in any company, in a step that has just its rows, and again. */
static void texts_are_computed_whole(void **state) {
    (void)state;
    static const int lengths[] = {1, 40, 3, 7, 100, 8, 2, 15, 33, 64, 5, 16};
    for (int way = LN_POOLING_LAST; way <= LN_POOLING_WEIGHTED_MEAN; way++) {
        ln_options o = ln_options_default();
        o.n_parallel = 4, o.n_chunk = 128;
        fixture *f = open_golden("gemma3-embedding-f32", o);
        for (size_t i = 0; i < 2 * LN_COUNT(lengths); i++)
            add(f, lengths[i % LN_COUNT(lengths)], (uint32_t)(i % 9));
        ln_metrics m = {0};
        answers *all = embed(f, pooled((ln_pooling)way), NULL),
                *again = embed(f, pooled((ln_pooling)way), &m);
        assert_int_equal(m.cached_tokens, 0);
        o.n_parallel = 1, o.n_threads = 1;
        for (size_t i = 0; i < f->n; i++) {
            o.n_chunk = (int)f->prompts[i].n_ids;
            fixture *g = open_golden("gemma3-embedding-f32", o);
            ln_engine_stats before = {.size = sizeof before}, after = {.size = sizeof after};
            answers one = {0};
            ln_embed_options e = pooled((ln_pooling)way);
            OK(ln_engine_get_stats(g->engine, &before, err));
            OK(ln_embed(g->engine, &f->prompts[i], 1, &e, keep, &one, NULL, err));
            OK(ln_engine_get_stats(g->engine, &after, err));
            assert_int_equal(after.n_steps - before.n_steps, 1);
            assert_true(one.at[0].n_values > 0 && one.at[0].n_values == all->at[i].n_values);
            assert_memory_equal(one.at[0].values, all->at[i].values, sizeof one.at[0].values);
            assert_memory_equal(again->at[i].values, all->at[i].values, sizeof one.at[0].values);
            close_all(g);
        }
        free(all);
        free(again);
        close_all(f);
    }
}

static ln_status no_score(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    (void)user, (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    return LN_OK;
}
/* A text that is longer than a step has an error of its own; without ln_options.n_chunk a step has the rows
 * of a whole context. What needs a next token is rejected. */
static void texts_that_are_not_computed_whole_are_rejected(void **state) {
    (void)state;
    ln_options o = ln_options_default();
    o.n_chunk = 32;
    fixture *f = open_golden("gemma3-embedding-f32", o);
    add(f, 20, 1), add(f, 33, 2), add(f, 32, 3);
    answers *a = embed(f, pooled(LN_POOLING_MEAN), NULL);
    assert_int_equal(a->at[0].status, LN_OK);
    assert_int_equal(a->at[1].status, LN_EUSAGE);
    assert_non_null(strstr(a->at[1].error, "33 tokens"));
    assert_non_null(strstr(a->at[1].error, "n_chunk"));
    assert_int_equal(a->at[2].status, LN_OK);
    free(a);
    ln_error e = {0};
    ln_result r = {.size = sizeof r};
    assert_int_equal(ln_generate(f->engine, &f->prompts[0], NULL, NULL, NULL, &r, &e), LN_EUNSUPPORTED);
    assert_non_null(strstr(e.message, "gemma3_text"));
    assert_non_null(strstr(e.message, "ln_embed"));
    ln_result_free(&r);
    assert_int_equal(ln_score(f->engine, f->ids[0], 20, 0, no_score, NULL, NULL, &e), LN_EUNSUPPORTED);
    close_all(f);
    o.n_chunk = 0;
    f = open_golden("gemma3-embedding-f32", o);
    for (int i = 0; i < 2; i++) add(f, 200, (uint32_t)i);
    a = embed(f, pooled(LN_POOLING_MEAN), NULL);
    assert_int_equal(a->at[1].status, LN_OK);
    free(a);
    close_all(f);
}

/* The second program is rejected if the limit leaves nothing for it. */
static void the_limit_of_memory_holds(void **state) {
    (void)state;
    fixture *f = open_golden("llama-plain-f32", ln_options_default());
    ln_embed_options o = pooled(LN_POOLING_MEAN);
    answers a = {0};
    ln_error e;
    add(f, 8, 1);
    (void)ln_memory_set_limit(1);
    assert_int_equal(ln_embed(f->engine, f->prompts, 1, &o, keep, &a, NULL, &e), LN_EMEMORY);
    (void)ln_memory_set_limit(0);
    assert_non_null(strstr(e.message, "embeddings need"));
    free(embed(f, o, NULL));
    close_all(f);
}

/* An engine that is opened for embeddings plans their memory and has it: the first call takes none, even if
 * the limit leaves nothing, and the bits are those of an engine that prepares the second program later.
 */
static void memory_is_planned(void **state) {
    (void)state;
    ln_options o = ln_options_default();
    o.n_parallel = 4, o.n_chunk = 32;
    ln_plan plan[2] = {{.size = sizeof *plan}, {.size = sizeof *plan}};
    answers *a[2];
    for (int planned = 0; planned < 2; planned++) {
        o.embeddings = planned;
        fixture *f = open_golden("llama-plain-f32", o);
        OK(ln_plan_memory(LN_ROOT "/tests/golden/llama-plain-f32", &o, &plan[planned], err));
        add(f, 40, 1);
        ln_memory before = {.size = sizeof before}, after = before;
        ln_memory_stats(&before);
        if (planned) (void)ln_memory_set_limit(1);
        a[planned] = embed(f, pooled(LN_POOLING_MEAN), NULL);
        (void)ln_memory_set_limit(0);
        ln_memory_stats(&after);
        if (planned) assert_int_equal(after.activation_bytes, before.activation_bytes);
        else assert_true(after.activation_bytes > before.activation_bytes);
        close_all(f);
    }
    assert_true(plan[1].activation_bytes > plan[0].activation_bytes);
    assert_memory_equal(a[0]->at[0].values, a[1]->at[0].values, sizeof a[0]->at[0].values);
    free(a[0]);
    free(a[1]);
}

/* A second call reuses all but the last token of a text, and gives the same bits; the mean reuses nothing. */
static void prefixes_are_reused(void **state) {
    (void)state;
    fixture *f = open_golden("llama-plain-f32", ln_options_default());
    add(f, 150, 7);
    ln_metrics m[4];
    answers *a[4];
    for (int i = 0; i < 4; i++) a[i] = embed(f, pooled(i < 2 ? LN_POOLING_LAST : LN_POOLING_MEAN), &m[i]);
    assert_int_equal(m[0].prompt_tokens, 150);
    assert_int_equal(m[0].cached_tokens, 0);
    assert_true(m[1].cached_tokens > 0 && m[1].cached_tokens < 150);
    assert_int_equal(m[3].cached_tokens, 0);
    for (int i = 0; i < 4; i += 2)
        assert_memory_equal(a[i]->at[0].values, a[i + 1]->at[0].values, sizeof a[i]->at[0].values);
    for (int i = 0; i < 4; i++) free(a[i]);
    close_all(f);
}

static void fewer_dimensions(void **state) {
    (void)state;
    fixture *f = open_golden("llama-plain-f32", ln_options_default());
    add(f, 8, 8);
    ln_embed_options o = pooled(LN_POOLING_LAST);
    answers *all = embed(f, o, NULL);
    o.dimensions = 5;
    answers *a = embed(f, o, NULL);
    assert_int_equal(a->at[0].n_values, 5);
    assert_true(fabs(length_of(&a->at[0]) - 1) < 1e-6);
    for (int i = 1; i < 5; i++) /* the same direction */
        assert_true(fabs((double)a->at[0].values[i] * (double)all->at[0].values[0] -
                         (double)all->at[0].values[i] * (double)a->at[0].values[0]) < 1e-7);
    free(a);
    free(all);
    ln_error e;
    answers none = {0};
    o.dimensions = f->info.width + 1;
    assert_int_equal(ln_embed(f->engine, f->prompts, 1, &o, keep, &none, NULL, &e), LN_EUSAGE);
    assert_non_null(strstr(e.message, "dimensions: expected at most 32, found 33"));
    o.dimensions = -1;
    assert_int_equal(ln_embed(f->engine, f->prompts, 1, &o, keep, &none, NULL, &e), LN_EUSAGE);
    o = pooled((ln_pooling)7);
    assert_int_equal(ln_embed(f->engine, f->prompts, 1, &o, keep, &none, NULL, &e), LN_EUSAGE);
    assert_int_equal(none.n, 0);
    close_all(f);
}

/* A text that fails leaves the others alone; a callback may stop the call. */
static void a_text_that_fails_is_one_result(void **state) {
    (void)state;
    ln_options o = ln_options_default();
    o.n_ctx = 64;
    fixture *f = open_golden("llama-plain-f32", o);
    add(f, 8, 1);
    add(f, 100, 2); /* longer than the context */
    add(f, 8, 3);
    f->ids[2][3] = (int32_t)f->info.vocab_size;
    f->prompts[f->n++] = (ln_prompt){.size = sizeof(ln_prompt), .text = "the end", .text_bytes = 7};
    f->prompts[f->n++] = (ln_prompt){.size = sizeof(ln_prompt), .text = "\xff", .text_bytes = 1};
    answers *a = embed(f, pooled(LN_POOLING_MEAN), NULL);
    const ln_status want[] = {LN_OK, LN_EINVALID, LN_EINVALID, LN_OK, LN_EINVALID};
    for (size_t i = 0; i < f->n; i++)
        if (a->at[i].status != want[i])
            fail_msg("text %zu: %d (%s)", i, (int)a->at[i].status, a->at[i].error);
    free(a);
    answers stopped = {.stop_after = 1};
    OK(ln_embed(f->engine, f->prompts, f->n, NULL, keep, &stopped, NULL, err));
    assert_int_equal(stopped.n, 1);
    OK(ln_embed(f->engine, NULL, 0, NULL, keep, &stopped, NULL, err));
    close_all(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_those_of_transformers),
                                       cmocka_unit_test(bits_are_the_same_in_any_company),
                                       cmocka_unit_test(texts_are_computed_whole),
                                       cmocka_unit_test(texts_that_are_not_computed_whole_are_rejected),
                                       cmocka_unit_test(rows_are_not_bounded_by_logits),
                                       cmocka_unit_test(bits_are_the_same_beside_an_answer),
                                       cmocka_unit_test(the_limit_of_memory_holds),
                                       cmocka_unit_test(memory_is_planned),
                                       cmocka_unit_test(prefixes_are_reused),
                                       cmocka_unit_test(fewer_dimensions),
                                       cmocka_unit_test(a_text_that_fails_is_one_result)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
