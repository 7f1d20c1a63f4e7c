/* A process whose ranks are threads, as several GPUs of one process are, on the CPU. A model that is opened
 * through the group returns the ids, log-probabilities, logits and embeddings of one rank. Some steps are
 * traced, a prefix is reused, and the group computes tokens ahead. If a rank fails, calls of rank 0 fail with
 * its message, and the group ends. */
/* run: quick asan tsan */
#include "../common.h"
#include "engine/embed.h"
#include "run/ranks.h"

#include <linnet_tools.h>

enum { RANKS = 3, PROMPT = 70, ANSWER = 24 };
static int answer_tokens(void) { return (int)fewer(ANSWER, 12); }

typedef struct outcome {
    int32_t ids[2][ANSWER];
    double logprobs[2][ANSWER];
    float *numbers; /* logits of a traced step, then an embedding */
    size_t n;
    int n_traced;
    uint64_t weights_bytes, n_proposed;
} outcome;

static void keep_embedding(outcome *o, const float *v, size_t n) {
    o->numbers = realloc(o->numbers, (o->n + n) * sizeof *v);
    assert_non_null(o->numbers);
    memcpy(o->numbers + o->n, v, n * sizeof *v);
    o->n += n;
}
static ln_status on_embedding(void *user, const ln_embedding *e, ln_error *err) {
    (void)err;
    keep_embedding(user, e->values, (size_t)e->n_values);
    return LN_OK;
}
static void count_node(void *user, int i, double seconds) {
    (void)i, (void)seconds;
    ++*(int *)user;
}

static ln_package *open_tiny(void) {
    ln_package *m;
    const ln_options o = {0};
    OK(ln_package_open_led(&m, LN_ROOT "/models/tiny", &o, err));
    return m;
}
static void close_tiny(ln_package *m) {
    ln_package_end_led(m);
    ln_package_close(&m);
}
static ln_eng *open_engine(const ln_package *m, int n_lookup) {
    ln_eng *e;
    const ln_options how = {.device = LN_DEVICE_CPU,
                            .n_ctx = 192,
                            .n_chunk = 32,
                            .n_parallel = 2,
                            .n_threads = 1,
                            .n_lookup = n_lookup};
    OK(ln_eng_open(&e, m, &how, err));
    return e;
}

/* Two requests whose prompts begin alike, so that the second copies pages of the first. Answers have few
 * tokens, so that they repeat themselves. */
static void answer_two(outcome *o, ln_eng *e, const int32_t *ids) {
    for (int i = 0; i < 2; i++) {
        ln_req *r;
        static const ln_logit_bias few[] = {{5, 50}, {6, 50}, {7, 50}};
        const ln_sampling how = {.size = sizeof how,
                                 .bias = few,
                                 .n_bias = LN_COUNT(few),
                                 .n_max = answer_tokens(),
                                 .repeat_penalty = 1,
                                 .top_p = 0.9,
                                 .temperature = 0.8,
                                 .seed = 3,
                                 .has_seed = true,
                                 .ignore_eos = true};
        OK(ln_req_new(&r, e,
                      &(ln_req_options){.ids = ids, .n_ids = PROMPT - 3 * i, .how = &how, .logprobs = true},
                      err));
        OK(ln_req_wait(r, err));
        assert_int_equal(r->all.n, PROMPT - 3 * i + answer_tokens());
        for (int k = 0; k < answer_tokens(); k++) o->ids[i][k] = r->all.data[PROMPT - 3 * i + k];
        for (int k = 0; k < answer_tokens(); k++) o->logprobs[i][k] = r->logprobs[k];
        ln_req_free(&r);
    }
}

static void compute(outcome *o, int n_lookup) {
    ln_package *m = open_tiny();
    ln_eng *e = open_engine(m, n_lookup);
    int32_t ids[PROMPT];
    uint64_t seed = 9;
    const ln_trace trace = {count_node, &o->n_traced};
    for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)(test_random(&seed) % (uint32_t)m->spec.V);
    answer_two(o, e, ids);
    o->n_proposed = e->sched->stats.proposed_tokens;
    float *logits = malloc((size_t)m->spec.V * sizeof *logits);
    ln_seq *s = test_seq(e, 8, 9);
    const ln_batch_item prompt = {s, ids, 8, LN_LOGITS_LAST}, next = {s, ids + 8, 1, LN_LOGITS_LAST};
    e->run->trace = &trace;
    OK(ln_eng_step(e, &prompt, 1, err));
    e->run->trace = NULL;
    OK(ln_eng_step(e, &next, 1, err));
    OK(ln_run_logits(e->run, 0, logits, err));
    keep_embedding(o, logits, (size_t)m->spec.V);
    free(logits);
    ln_seq_close(e, &s);
    const ln_embed_options how = {.size = sizeof how, .pooling = LN_POOLING_LAST};
    const ln_prompt text = {.size = sizeof text, .ids = ids, .n_ids = 20};
    OK(ln_eng_embed(e, &text, 1, &how, on_embedding, o, NULL, err));
    o->weights_bytes = e->run->sizes.weights_bytes;
    ln_eng_close(&e);
    close_tiny(m);
}

static void same_as_alone(void **state) {
    outcome one = {0}, several = {0};
    (void)state;
    compute(&one, 0);
    OK(ln_ranks_start_threads(RANKS, ln_ranks_follow_all, err));
    assert_int_equal(ln_ranks_led()->transport->size, RANKS);
    compute(&several, 6);
    assert_memory_equal(one.ids, several.ids, sizeof one.ids);
    assert_true(one.n_proposed == 0 && several.n_proposed > 0);
    for (int i = 0; i < 2 * ANSWER; i++)
        assert_memory_equal(&one.logprobs[0][0] + i, &several.logprobs[0][0] + i, sizeof(double));
    assert_int_equal(one.n, several.n);
    assert_memory_equal(one.numbers, several.numbers, one.n * sizeof *one.numbers);
    assert_true(one.n_traced > 0 && several.n_traced > one.n_traced); /* it has exchanges */
    assert_true(several.weights_bytes < one.weights_bytes);
    free(one.numbers), free(several.numbers);
    FAILS(LN_EUSAGE, "belongs to a group", ln_ranks_start_threads(2, ln_ranks_follow_all, err));
    ln_ranks_leave(LN_OK);
    assert_null(ln_ranks_led());
}

/* A follower that fails when it is told to open a run. */
static ln_status fail_in_run(ln_transport *t, ln_error *err) {
    ln_order o = {0};
    char payload[1 << 16];
    while (t->broadcast(t, &o, sizeof o) == LN_OK) {
        assert_true(o.bytes < sizeof payload);
        if (o.bytes && t->broadcast(t, payload, o.bytes) != LN_OK) break;
        if (o.what == LN_ORDER_MODEL) break;
    }
    return ln_fail(err, LN_EMEMORY, "the GPU of rank %d is full", t->rank);
}
static void a_rank_fails(void **state) {
    ln_package *m;
    const ln_options o = {0};
    (void)state;
    OK(ln_ranks_start_threads(2, fail_in_run, err));
    FAILS(LN_EDEVICE, "rank 1 of 2: the GPU of rank 1 is full",
          ln_package_open_led(&m, LN_ROOT "/models/tiny", &o, err));
    ln_ranks_leave(LN_OK);
    assert_null(ln_ranks_led());
}

/* A device of rank 0 that fails in a step makes the others fail too, and they end. */
static void rank_0_fails(void **state) {
    (void)state;
    OK(ln_ranks_start_threads(2, ln_ranks_follow_all, err));
    ln_package *m = open_tiny();
    ln_eng *e = open_engine(m, 0);
    ln_transport *t = ln_ranks_led()->transport;
    ln_error why = {0};
    (void)ln_fail(&why, LN_EDEVICE, "the GPU is lost");
    t->end(t, &why);
    assert_int_equal(t->check(t), LN_EDEVICE);
    const int32_t id = 1;
    ln_seq *s = test_seq(e, 1, 2);
    const ln_batch_item item = {s, &id, 1, LN_LOGITS_LAST};
    FAILS(LN_EDEVICE, "the GPU is lost", ln_eng_step(e, &item, 1, err));
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    close_tiny(m);
    ln_ranks_leave(LN_OK);
    assert_null(ln_ranks_led());
}

static void which_gpu(void **state) {
    static const int gpus[] = {3, 5};
    bool by_rank = true;
    (void)state;
    assert_int_equal(ln_ranks_gpu(0, &by_rank), 0);
    assert_false(by_rank);
    FAILS(LN_EUSAGE, "expected 1 to 16", ln_ranks_choose_gpus(gpus, 17, ln_ranks_follow_all, err));
    OK(ln_ranks_gpus(gpus, 1, err));
    assert_int_equal(ln_ranks_gpu(0, &by_rank), 3);
    assert_int_equal(ln_ranks_n_gpus(), 1);
    OK(ln_ranks_gpus(gpus, 2, err));
    assert_int_equal(ln_ranks_n_gpus(), 2);
    assert_int_equal(ln_ranks_gpu(1, &by_rank), 5);
    ln_ranks_leave(LN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_alone), cmocka_unit_test(a_rank_fails),
                                       cmocka_unit_test(rank_0_fails), cmocka_unit_test(which_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
