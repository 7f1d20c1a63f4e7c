/* Ranks that share work instead of a model (decision 063): evaluating and classifying have the results of one
 * process in every rank, however many there are, and stop in all when one stops; the lines of a file are
 * given out once each, and a rank that fails or ends is named in all. Ranks are threads here; tests/ranks has
 * processes over MPI. */
/* run: quick tsan-long */
#include "golden_ids.h"
#include "../common.h"
#include "api/check.h"
#include "args/handle.h"
#include "base/xxh64.h"
#include "batch/batch_ranks.h"
#include "engine/classify.h"
#include "engine/evaluate.h"

#include <pthread.h>

enum { MOST_RANKS = 3, N_TEXT = 150, N_PROMPTS = 70, LINES = 60 };

typedef struct rank_job {
    ln_transport *t; /* NULL: alone */
    ln_thread_ranks *group;
    ln_evaluation evaluation;
    ln_class_fn *fn;
    ln_xxh64 results; /* of all classes, in their order */
    size_t n_results;
    ln_status status;
    ln_error err;
} rank_job;

/* Runs fn in a thread for each rank, with its job; jobs of `bytes` bytes begin with a rank_job. */
static void run_ranks(void *jobs, size_t bytes, int size, void *(*fn)(void *)) {
    pthread_t threads[MOST_RANKS];
    ln_thread_ranks *group;
    OK(ln_thread_ranks_new(&group, size, err));
    for (int i = 0; i < size; i++) {
        rank_job *j = (rank_job *)((char *)jobs + (size_t)i * bytes);
        j->t = ln_thread_ranks_at(group, i), j->group = group;
        assert_int_equal(pthread_create(&threads[i], NULL, fn, j), 0);
    }
    for (int i = 0; i < size; i++) (void)pthread_join(threads[i], NULL);
    ln_thread_ranks_free(&group);
}

/* ---- evaluating and classifying ---- */

static const char *const labels[] = {"a", "bc ", "no"};
static const ln_sampling sampling = {.size = sizeof sampling,
                                     .temperature = 0.9F,
                                     .top_p = 1,
                                     .repeat_penalty = 1,
                                     .has_seed = true,
                                     .seed = 5};

/* Adds a class to the digest. */
static ln_status keep(void *user, const ln_class *c, ln_error *err) {
    rank_job *j = user;
    (void)err;
    ln_xxh64_add(&j->results, &c->index, sizeof c->index);
    ln_xxh64_add(&j->results, &c->status, sizeof c->status);
    ln_xxh64_add(&j->results, &c->label, sizeof c->label);
    ln_xxh64_add(&j->results, &c->token, sizeof c->token);
    if (c->scores) ln_xxh64_add(&j->results, c->scores, LN_COUNT(labels) * sizeof *c->scores);
    if (c->probabilities) ln_xxh64_add(&j->results, c->probabilities, LN_COUNT(labels) * sizeof *c->scores);
    if (c->text) ln_xxh64_add(&j->results, c->text, c->text_bytes);
    if (c->logits) ln_xxh64_add(&j->results, c->logits, (size_t)c->n_vocab * sizeof *c->logits);
    if (c->error) ln_xxh64_add(&j->results, c->error, strlen(c->error));
    assert_true(c->text || c->scores || c->error);
    j->n_results++;
    return LN_OK;
}
/* Stops in rank 0 alone. */
static ln_status stop(void *user, const ln_class *c, ln_error *err) {
    rank_job *j = user;
    (void)c, (void)err;
    return ++j->n_results == 20 && j->t->rank == 0 ? LN_ECANCELLED : LN_OK;
}

static ln_status classify(rank_job *j, ln_eng *e, const ln_prompt *prompts, const ln_classify_options *o) {
    if (j->t) return ln_eng_classify_shared(e, j->t, prompts, N_PROMPTS, o, j->fn, j, NULL, &j->err);
    return ln_eng_classify(e, prompts, N_PROMPTS, o, j->fn, j, NULL, &j->err);
}

static ln_status work(rank_job *j, ln_eng *e) {
    int32_t ids[N_TEXT];
    ln_prompt prompts[N_PROMPTS];
    make_ids(ids, N_TEXT, e->model->spec.V, 99);
    for (int i = 0; i < N_PROMPTS; i++)
        prompts[i] = (ln_prompt){.size = sizeof *prompts, .ids = ids + i, .n_ids = i == 9 ? 60 : 1 + i % 7};
    ln_classify_options of_labels = ln_classify_options_default(), of_tokens = of_labels;
    of_labels.labels = labels, of_labels.n_labels = LN_COUNT(labels);
    of_tokens.sampling = &sampling, of_tokens.want_logits = true;
    if (j->fn == keep) LN_TRY(ln_eng_evaluate(e, j->t, ids, N_TEXT, 32, 10, &j->evaluation, NULL, &j->err));
    LN_TRY(classify(j, e, prompts, &of_labels));
    return j->fn == keep ? classify(j, e, prompts, &of_tokens) : LN_OK;
}

static void *run_rank(void *user) {
    rank_job *j = user;
    const ln_options o = {.size = sizeof o, .n_threads = 1, .n_parallel = 1, .n_ctx = 48, .n_chunk = 32};
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_eng *e;
    ln_xxh64_open(&j->results);
    j->status = ln_model_open(&model, LN_ROOT "/tests/golden/qwen2-f32", &o, &j->err);
    if (j->status == LN_OK) j->status = ln_engine_open(&engine, model, &o, &j->err);
    if (j->status == LN_OK) j->status = ln_api_engine(engine, &e, &j->err);
    if (j->status == LN_OK) {
        j->status = work(j, e);
        ln_handle_done(engine);
    }
    ln_engine_close(&engine);
    ln_model_close(&model);
    return NULL;
}

static void results_are_those_of_one(void **state) {
    (void)state;
    rank_job one = {.fn = keep};
    (void)run_rank(&one);
    if (one.status != LN_OK) fail_msg("one: %s", one.err.message);
    assert_int_equal(one.n_results, 2 * N_PROMPTS);
    for (int size = 2; size <= MOST_RANKS; size++) {
        rank_job jobs[MOST_RANKS] = {{.fn = keep}, {.fn = keep}, {.fn = keep}};
        run_ranks(jobs, sizeof *jobs, size, run_rank);
        for (int i = 0; i < size; i++) {
            if (jobs[i].status != LN_OK) fail_msg("rank %d of %d: %s", i, size, jobs[i].err.message);
            assert_memory_equal(&jobs[i].evaluation, &one.evaluation, sizeof one.evaluation);
            assert_int_equal(jobs[i].n_results, one.n_results);
            assert_true(ln_xxh64_value(&jobs[i].results) == ln_xxh64_value(&one.results));
        }
    }
}

static void a_callback_stops_all(void **state) {
    (void)state;
    rank_job jobs[2] = {{.fn = stop}, {.fn = stop}};
    run_ranks(jobs, sizeof *jobs, 2, run_rank);
    for (int i = 0; i < 2; i++) {
        if (jobs[i].status != LN_OK) fail_msg("rank %d: %s", i, jobs[i].err.message);
        assert_true(jobs[i].n_results < N_PROMPTS);
    }
}

/* ---- the lines of a file ---- */

/* What a rank does with lines, and what becomes of it. */
typedef struct line_job {
    rank_job j;      /* first: what run_ranks sets */
    int fails, ends; /* the rank that does, after some lines; -1: none */
    int *count;      /* [LINES] how often rank 0 has written each */
    size_t n_own;
} line_job;

static bool done_before(size_t line) { return line % 7 == 0; }

/* Counts what the others have sent, whose text is the number of the line. */
static size_t count_received(const line_job *l, batch_ranks *k) {
    ln_str shares;
    batch_share share;
    size_t at = 0, n = 0;
    batch_ranks_receive(k, &shares);
    for (; batch_ranks_next(&shares, &at, &share); n++) {
        char want[32];
        (void)snprintf(want, sizeof want, "%d", (int)share.line);
        assert_true(share.bytes == strlen(want) && memcmp(share.text, want, share.bytes) == 0);
        assert_int_equal(share.outcome, share.line % 5 == 0 ? BATCH_LEFT : BATCH_ANSWERED);
        l->count[share.line]++;
    }
    ln_str_free(&shares);
    return n;
}

/* Works on a line: rank 0 writes, the others send. */
static ln_status do_line(line_job *l, batch_ranks *k, size_t line, ln_error *err) {
    char text[32];
    l->n_own++;
    if (l->j.t->rank == 0) {
        l->count[line]++;
        return LN_OK;
    }
    (void)snprintf(text, sizeof text, "%d", (int)line);
    const batch_share share = {line, line % 5 == 0 ? BATCH_LEFT : BATCH_ANSWERED, text, strlen(text)};
    if (l->fails == l->j.t->rank && l->n_own == 5) return ln_fail(err, LN_EIO, "no space");
    return batch_ranks_give(k, &share, err);
}

/* A rank that is to fail or to end has all lines, so that it does. */
static size_t wants(const line_job *l) {
    const int special = LN_MAX(l->fails, l->ends);
    return special < 0 || special == l->j.t->rank ? 3 : 0;
}

static ln_status do_lines(line_job *l, batch_ranks *k, ln_error *err) {
    size_t line, n_done = 0, n_all = 0;
    for (size_t i = 0; i < LINES; i++) n_all += !done_before(i);
    for (bool ended = false; !ended;) {
        while (batch_ranks_take(k, wants(l), &line)) {
            LN_TRY(do_line(l, k, line, err));
            n_done += l->j.t->rank == 0;
        }
        if (l->ends == l->j.t->rank && l->n_own >= 5) ln_thread_ranks_end(l->j.group, l->ends, NULL);
        if (l->j.t->rank == 0 && (n_done += count_received(l, k)) == n_all) return LN_OK;
        LN_TRY(batch_ranks_wait(k, 0.1, &ended, err));
    }
    return LN_OK;
}

static void *run_lines(void *user) {
    line_job *l = user;
    batch_ranks *k;
    uint8_t done[LINES];
    for (size_t i = 0; i < LINES; i++) done[i] = l->j.t->rank == 0 && done_before(i); /* rank 0 knows */
    ln_status st = batch_ranks_open(&k, l->j.t, done, LINES, LN_OK, 1, &l->j.err);
    if (st == LN_OK) st = do_lines(l, k, &l->j.err);
    l->j.status = batch_ranks_close(&k, st, &l->j.err);
    return NULL;
}

static void every_line_once(void **state) {
    (void)state;
    for (int size = 1; size <= MOST_RANKS; size++) {
        int count[LINES] = {0};
        line_job jobs[MOST_RANKS];
        for (int i = 0; i < size; i++) jobs[i] = (line_job){.fails = -1, .ends = -1, .count = count};
        run_ranks(jobs, sizeof *jobs, size, run_lines);
        size_t n_own = 0, n_all = 0;
        for (int i = 0; i < size; i++) {
            if (jobs[i].j.status != LN_OK) fail_msg("rank %d of %d: %s", i, size, jobs[i].j.err.message);
            n_own += jobs[i].n_own;
        }
        for (size_t i = 0; i < LINES; i++) {
            assert_int_equal(count[i], !done_before(i));
            n_all += !done_before(i);
        }
        assert_int_equal(n_own, n_all);
    }
}

static void a_failure_ends_all(void **state) {
    (void)state;
    int count[LINES] = {0};
    line_job jobs[MOST_RANKS];
    for (int i = 0; i < MOST_RANKS; i++) jobs[i] = (line_job){.fails = 1, .ends = -1, .count = count};
    run_ranks(jobs, sizeof *jobs, MOST_RANKS, run_lines);
    for (int i = 0; i < MOST_RANKS; i++) {
        assert_int_equal(jobs[i].j.status, LN_EIO);
        assert_string_equal(jobs[i].j.err.message, i == 1 ? "no space" : "rank 1 of 3: no space");
    }
}

static void an_end_is_noticed(void **state) {
    (void)state;
    int count[LINES] = {0};
    line_job jobs[MOST_RANKS];
    for (int i = 0; i < MOST_RANKS; i++) jobs[i] = (line_job){.fails = -1, .ends = 1, .count = count};
    run_ranks(jobs, sizeof *jobs, MOST_RANKS, run_lines);
    for (int i = 0; i < MOST_RANKS; i++) {
        assert_int_equal(jobs[i].j.status, LN_EDEVICE);
        assert_non_null(strstr(jobs[i].j.err.message, "rank 1 of 3 has ended"));
    }
}

/* A rank that has other requests is named before anything begins. */
static void *open_other(void *user) {
    rank_job *j = user;
    batch_ranks *k;
    uint8_t done[1] = {0};
    j->status = batch_ranks_open(&k, j->t, done, 1, LN_OK, (uint64_t)j->t->rank, &j->err);
    assert_null(k);
    return NULL;
}
static void other_requests(void **state) {
    (void)state;
    rank_job jobs[2] = {0};
    run_ranks(jobs, sizeof *jobs, 2, open_other);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(jobs[i].status, LN_EUSAGE);
        assert_non_null(strstr(jobs[i].err.message, "rank 1 of 2: its requests, model or settings"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_one), cmocka_unit_test(a_callback_stops_all),
        cmocka_unit_test(every_line_once),          cmocka_unit_test(a_failure_ends_all),
        cmocka_unit_test(an_end_is_noticed),        cmocka_unit_test(other_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
