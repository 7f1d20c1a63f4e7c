/* Requests: the same bits alone and among others, whatever happens to the others; events; what ends an
 * answer; log-probabilities. */
/* run: quick tsan-long cuda */
#include "cancelled_cases.h"

#include "engine/logprob.h"

/* All cases at once, through fewer sequences than cases, with several chunk sizes and numbers of threads. */
static void alone_and_among_others(void **state) {
    (void)state;
    static const char *const models[] = {QWEN, GEMMA};
    static const int forms[][3] = {{3, 16, 4}, {2, 512, 16}, {1, 8, 5}};
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        ln_package *m = open_package(models[k]);
        static alone_results a;
        run_all_alone(m, &a);
        for (size_t f = 0; f < LN_COUNT(forms); f++) {
            ln_eng *e = open_engine(m, forms[f][0], forms[f][1], forms[f][2]);
            ln_req *r[CASES];
            for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
            step_until_done(e, 5000);
            assert_all_alone(r, &a);
            ln_eng_close(&e);
        }
        free_results(&a);
        ln_package_close(&m);
    }
}

/* 256 requests at once, all cases 16 times: each has the tokens and log-probabilities that it has alone. */
static void among_255_others(void **state) {
    (void)state;
    enum { COPIES = 16 };
    ln_package *m = open_package(QWEN);
    static alone_results a;
    static ln_req *r[COPIES * CASES];
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 2, 512, COPIES * CASES);
    for (int i = 0; i < COPIES * CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i % CASES].opt, err));
    step_until_done(e, 5000);
    for (int i = 0; i < COPIES; i++) assert_all_alone(r + i * CASES, &a);
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* Every other request is stopped at some step, or freed; those that stay give the same bits. */
static void others_are_cancelled(void **state) {
    (void)state;
    ln_package *m = open_package(GEMMA);
    static alone_results a;
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 2, 16, 6);
    cancel_others(e, &a, 8);
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* ---- events ---- */

/* What a reader gathers. */
typedef struct gathered {
    int32_t ids[256];
    double logprobs[256];
    size_t n;
    ln_str text;
    bool finished;
} gathered;

static void gather(ln_req *r, gathered *g, double seconds) {
    for (ln_event v = {.kind = LN_EVENT_TEXT}; v.kind != LN_EVENT_NONE && v.kind != LN_EVENT_FINISH;) {
        OK(ln_req_next(r, seconds, &v, err));
        if (v.kind == LN_EVENT_TOKEN) {
            assert_true(g->n < 256);
            g->logprobs[g->n] = v.logprob;
            g->ids[g->n++] = v.id;
        }
        if (v.kind == LN_EVENT_TEXT) ln_str_add(&g->text, v.text, v.bytes);
        g->finished = v.kind == LN_EVENT_FINISH;
    }
}

static void assert_gathered(gathered *g, const ln_result *want) {
    assert_true(g->finished);
    assert_int_equal(g->n, want->n_ids);
    assert_true(same(g->ids, want->ids, g->n * sizeof *g->ids));
    if (want->logprobs) assert_true(same(g->logprobs, want->logprobs, g->n * sizeof(double)));
    assert_string_equal(g->text.data ? g->text.data : "", want->text);
    ln_str_free(&g->text);
}

/* The events of a request are its result: read after each step, or only when all is over. */
static void events_are_the_result(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    static alone_results a;
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 2, 16, 4);
    static gathered g[CASES];
    ln_req *r[CASES];
    size_t left = 1;
    memset(g, 0, sizeof g);
    for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
    while (left > 0) {
        OK(ln_driver_step(e->sched, &left, err));
        for (int i = 0; i < CASES; i += 2)
            if (!g[i].finished) gather(r[i], &g[i], 0);
    }
    for (int i = 0; i < CASES; i++) {
        ln_event v;
        if (!g[i].finished) gather(r[i], &g[i], 0);
        assert_gathered(&g[i], &a.results[i]);
        OK(ln_req_next(r[i], -1, &v, err)); /* the end is told again and again */
        assert_int_equal(v.kind, LN_EVENT_FINISH);
        ln_req_free(&r[i]);
    }
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* A reader that waits runs the steps itself, those of the other requests among them. */
static void a_reader_runs_the_steps(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    static alone_results a;
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 2, 16, 4);
    static gathered g[CASES];
    ln_req *r[CASES];
    ln_event v;
    memset(g, 0, sizeof g);
    for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
    OK(ln_req_next(r[0], 0, &v, err)); /* not waiting runs nothing */
    assert_int_equal(v.kind, LN_EVENT_NONE);
    for (int i = CASES - 1; i >= 0; i--) {
        gather(r[i], &g[i], -1);
        assert_gathered(&g[i], &a.results[i]);
        ln_req_free(&r[i]);
    }
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* on_ready is called when something can be read after nothing could, and only then. */
static void count_ready(void *user) { ++*(int *)user; }

static void ready_is_told_once(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 16, 1);
    request_case c;
    ln_req *r;
    ln_event v;
    int n = 0;
    size_t left;
    make_case(m, 0, &c);
    c.how.n_max = 6, c.opt.n_ids = 4;
    c.opt.on_ready = count_ready, c.opt.user = &n;
    OK(ln_req_new(&r, e, &c.opt, err));
    OK(ln_driver_step(e->sched, &left, err));
    assert_int_equal(n, 1);
    OK(ln_driver_step(e->sched, &left, err));
    OK(ln_driver_step(e->sched, &left, err));
    assert_int_equal(n, 1); /* nothing was read */
    do OK(ln_req_next(r, 0, &v, err));
    while (v.kind != LN_EVENT_NONE);
    OK(ln_driver_step(e->sched, &left, err));
    assert_int_equal(n, 2);
    do OK(ln_req_next(r, 0, &v, err));
    while (v.kind != LN_EVENT_NONE);
    ln_req_mute(r);
    step_until_done(e, 100);
    assert_int_equal(n, 2);
    ln_req_free(&r);
    c.how.n_max = 0; /* over before the call returns */
    OK(ln_req_new(&r, e, &c.opt, err));
    assert_int_equal(n, 3);
    OK(ln_req_next(r, 0, &v, err));
    assert_true(v.kind == LN_EVENT_FINISH && v.finish == LN_FINISH_LENGTH && v.status == LN_OK);
    ln_req_free(&r);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* ---- what ends an answer ---- */

static void stop_ids_end_it(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 16, 2);
    request_case c;
    ln_result whole, got;
    make_case(m, 0, &c);
    c.how.n_max = 20, c.how.ignore_eos = true;
    run_alone(e, &c.opt, &whole);
    assert_int_equal(whole.n_ids, 20);
    assert_true(whole.stop_id == -1 && whole.stop_text == -1 && whole.finish == LN_FINISH_LENGTH);
    const int32_t stops[] = {(int32_t)m->spec.V - 1, whole.ids[7]};
    size_t first = 0;
    while (whole.ids[first] != stops[0] && whole.ids[first] != stops[1]) first++;
    c.how.stop_ids = stops, c.how.n_stop_ids = 2;
    run_alone(e, &c.opt, &got);
    assert_int_equal(got.finish, LN_FINISH_STOP);
    assert_int_equal(got.stop_id, whole.ids[first]);
    assert_int_equal(got.stop_text, -1);
    assert_int_equal(got.n_ids, first);
    assert_true(same(got.ids, whole.ids, first * sizeof *got.ids));
    ln_result_free(&got);
    c.how.min_new = 12; /* no stop id before that many tokens */
    run_alone(e, &c.opt, &got);
    assert_true(got.n_ids >= 12);
    for (int i = 0; i < 12; i++) assert_true(got.ids[i] != stops[0] && got.ids[i] != stops[1]);
    ln_result_free(&got);
    ln_result_free(&whole);
    ln_eng_close(&e);
    ln_package_close(&m);
}

static void stop_texts_are_named(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 16, 2);
    request_case c;
    ln_result whole, got;
    make_case(m, 0, &c);
    c.how.n_max = 30, c.how.ignore_eos = true;
    run_alone(e, &c.opt, &whole);
    assert_true(whole.text_bytes > 8);
    char end[8] = {0};
    size_t at = whole.text_bytes / 2;
    while (((unsigned char)whole.text[at] & 0xc0) == 0x80) at++; /* the first byte of a character */
    size_t n = 1;
    while (((unsigned char)whole.text[at + n] & 0xc0) == 0x80) n++;
    memcpy(end, whole.text + at, n);
    const char *const stops[] = {"never there", end};
    c.how.stop = stops, c.how.n_stop = 2;
    run_alone(e, &c.opt, &got);
    assert_int_equal(got.finish, LN_FINISH_STOP);
    assert_true(got.stop_id == -1 && got.stop_text == 1);
    assert_true(got.text_bytes <= at && !strstr(got.text, end));
    ln_result_free(&got);
    ln_result_free(&whole);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* The sampling is copied: the caller may change and free everything at once. */
static void the_sampling_is_copied(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 16, 1);
    request_case c;
    ln_result want, got;
    ln_req *r;
    char text[] = "never there";
    const char *stop = text;
    int32_t banned[] = {3, 4}, ids[] = {5, 6};
    ln_id_list word = {ids, 2};
    ln_logit_bias bias = {7, -INFINITY};
    make_case(m, 4, &c);
    c.how.stop = &stop, c.how.n_stop = 1;
    c.how.suppress = banned, c.how.n_suppress = 2, c.how.bias = &bias, c.how.n_bias = 1;
    c.how.stop_ids = banned, c.how.n_stop_ids = 2, c.how.bad_words = &word, c.how.n_bad_words = 1;
    run_alone(e, &c.opt, &want);
    OK(ln_req_new(&r, e, &c.opt, err));
    memset(text, 'e', sizeof text - 1);
    stop = NULL, banned[0] = banned[1] = ids[0] = ids[1] = 1 << 30, bias.id = 1 << 30;
    word = (ln_id_list){NULL, 1 << 20};
    memset(c.ids, 0x7f, sizeof c.ids);
    memset(&c.how, 0x55, sizeof c.how);
    OK(ln_req_wait(r, err));
    OK(ln_req_result(r, &got, err));
    assert_same_result(&got, &want);
    ln_result_free(&want);
    ln_result_free(&got);
    ln_req_free(&r);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* A greedy choice that the device makes is the one that the sampler makes, also if a stop id is the
 * likeliest token and excluded. */
static void a_plain_choice_is_the_samplers(void **state) {
    (void)state;
    static const ln_logit_bias nothing = {5, 0};
    ln_package *m = open_package(GEMMA);
    ln_eng *e = open_engine(m, 2, 16, 2);
    for (int i = 0; i < 40; i++) {
        request_case c;
        ln_result plain, full;
        make_case(m, i, &c);
        c.how = (ln_sampling){.top_p = 1, .repeat_penalty = 1, .n_max = 24, .has_seed = true};
        c.opt.prompt_logprobs = false;
        m->gen.n_eos = 0;
        run_alone(e, &c.opt, &full);
        m->gen.eos[0] = full.ids[full.n_ids / 2], m->gen.n_eos = 1; /* the likeliest at that place */
        ln_result_free(&full);
        c.how.ignore_eos = true;
        run_alone(e, &c.opt, &plain);
        c.how.bias = &nothing, c.how.n_bias = 1;
        run_alone(e, &c.opt, &full);
        assert_same_result(&plain, &full);
        ln_result_free(&plain);
        ln_result_free(&full);
    }
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* ---- log-probabilities ---- */

typedef struct scored {
    double logprobs[256];
    ln_top top[256][TOP];
    int64_t n;
} scored;

static ln_status keep_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    scored *s = user;
    (void)logits, (void)n_vocab, (void)err;
    s->logprobs[t] = logprob;
    for (size_t i = 0; i < n_top; i++) s->top[t][i] = top[i];
    s->n = t + 1;
    return LN_OK;
}

/* The log-probabilities of prompt and answer are those of ln_score of both together, whatever the sampling.
 */
static void logprobs_are_those_of_score(void **state) {
    (void)state;
    static const char *const models[] = {QWEN, GEMMA};
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        ln_package *m = open_package(models[k]);
        ln_eng *e = open_engine(m, 2, 16, 3);
        static scored s;
        request_case c;
        ln_result got;
        make_case(m, 7, &c); /* penalties, temperature */
        c.how.n_max = 12, c.how.ignore_eos = true, c.opt.prompt_logprobs = c.opt.logprobs = true;
        run_alone(e, &c.opt, &got);
        const size_t n = got.n_prompt_ids;
        int32_t all[256];
        memcpy(all, got.prompt_ids, n * sizeof *all);
        memcpy(all + n, got.ids, got.n_ids * sizeof *all);
        OK(ln_eng_score(e, all, n + got.n_ids, TOP, keep_row, &s, NULL, err));
        assert_int_equal(s.n, n + got.n_ids);
        for (size_t t = 1; t < n; t++) {
            assert_true(got.prompt_logprobs[t] == s.logprobs[t]);
            for (int i = 0; i < TOP; i++) assert_true(got.prompt_top[t * TOP + i].id == s.top[t - 1][i].id);
        }
        for (size_t t = 0; t < got.n_ids; t++) {
            assert_true(same_logprob(got.logprobs[t], s.logprobs[n + t]));
            for (int i = 0; i < TOP; i++)
                assert_true(same_logprob(got.top[t * TOP + i].logprob, s.top[n + t - 1][i].logprob));
        }
        ln_result_free(&got);
        c.how.n_max = 0; /* the prompt's alone */
        run_alone(e, &c.opt, &got);
        assert_true(got.n_ids == 0 && got.prompt_logprobs[1] == s.logprobs[1]);
        ln_result_free(&got);
        ln_eng_close(&e);
        ln_package_close(&m);
    }
}

/* ---- rows of a prompt ---- */

typedef struct rows {
    ln_eng *e;
    uint64_t hash[256];
    int64_t from, n;
} rows;

static uint64_t hash_row(const float *l, int64_t V) {
    uint64_t h = 1469598103934665603u;
    for (int64_t i = 0; i < V; i++) {
        uint32_t bits;
        memcpy(&bits, &l[i], 4);
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

static ln_status hash_rows(void *user, int64_t t, int64_t row, const ln_scratch *own, ln_error *err) {
    rows *x = user;
    assert_int_equal(t, x->from + x->n);
    LN_TRY(ln_run_logits(x->e->run, row, own->logits, err));
    x->hash[t] = hash_row(own->logits, x->e->run->spec->V);
    x->n++;
    return LN_OK;
}

/* All logits of a prompt, on which other requests run, are those of a sequence that is run row by row. */
static void all_logits_are_the_same(void **state) {
    (void)state;
    static const char *const models[] = {QWEN, GEMMA};
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        ln_package *m = open_package(models[k]);
        ln_eng *e = open_engine(m, 3, 16, 5), *one = open_engine(m, 1, 1, 1);
        const int64_t V = m->spec.V;
        float *logits = ln_zalloc((size_t)V, sizeof *logits);
        request_case c[5];
        ln_req *r[5];
        rows x[5] = {{0}};
        for (int i = 0; i < 5; i++) {
            make_case(m, i, &c[i]);
            x[i] = (rows){.e = e, .from = i % 2 ? c[i].opt.n_ids / 2 : 0};
            c[i].opt.on_row = hash_rows, c[i].opt.row_user = &x[i], c[i].opt.first_row = x[i].from;
            c[i].opt.prompt_logprobs = false;
            if (i == 2) c[i].opt.how = NULL;
            OK(ln_req_new(&r[i], e, &c[i].opt, err));
        }
        step_until_done(e, 1000);
        for (int i = 0; i < 5; i++) {
            ln_seq *q = test_seq(one, c[i].opt.n_ids, c[i].opt.n_ids);
            OK(ln_req_wait(r[i], err));
            assert_int_equal(x[i].n, c[i].opt.n_ids - x[i].from);
            for (int64_t t = 0; t < c[i].opt.n_ids; t++) {
                const ln_batch_item item = {q, &c[i].ids[t], 1, LN_LOGITS_LAST};
                OK(ln_eng_step(one, &item, 1, err));
                OK(ln_run_logits(one->run, 0, logits, err));
                if (t >= x[i].from) assert_true(x[i].hash[t] == hash_row(logits, V));
            }
            ln_seq_close(one, &q);
            ln_req_free(&r[i]);
        }
        ln_free(logits);
        ln_eng_close(&e);
        ln_eng_close(&one);
        ln_package_close(&m);
    }
}

/* ---- errors ---- */

static void one_request_fails_alone(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    static alone_results a;
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 2, 16, 4);
    const int64_t V = m->spec.V;
    ln_logit_bias *nothing = ln_zalloc((size_t)V, sizeof *nothing);
    for (int64_t i = 0; i < V; i++) nothing[i] = (ln_logit_bias){(int32_t)i, -INFINITY};
    request_case bad;
    ln_req *r[CASES], *b;
    ln_result got;
    ln_event v;
    make_case(m, 0, &bad);
    bad.how.bias = nothing, bad.how.n_bias = (size_t)V;
    for (int i = 0; i < CASES; i++) {
        if (i == 2) OK(ln_req_new(&b, e, &bad.opt, err));
        OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
    }
    step_until_done(e, 5000);
    FAILS(LN_ENUMERIC, "excluded", ln_req_wait(b, err));
    FAILS(LN_ENUMERIC, "excluded", ln_req_result(b, &got, err));
    assert_null(got.ids);
    OK(ln_req_next(b, 0, &v, err));
    assert_true(v.kind == LN_EVENT_FINISH && v.status == LN_ENUMERIC && v.finish == LN_FINISH_CANCELLED);
    assert_non_null(strstr(v.text, "excluded"));
    ln_req_free(&b);
    assert_all_alone(r, &a);
    ln_free(nothing);
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* The n-th allocation fails while requests run: they end with LN_EMEMORY or with the right result, and
 * nothing stays allocated. */
static void any_allocation_may_fail(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    static alone_results a;
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 1, 16, 3);
    int failed = 1;
    ln_result first;
    run_alone(e, &a.cases[1].opt, &first); /* what the first use allocates for good */
    ln_result_free(&first);
    for (int n = 1; failed > 0; n++) {
        const uint64_t before = ln_mem_bytes();
        ln_req *r[4] = {0};
        ln_error said;
        failed = 0;
        (void)ln_mem_fail_at(n, false);
        for (int i = 0; i < 4; i++) {
            const ln_status st = ln_req_new(&r[i], e, &a.cases[i].opt, &said);
            if (st != LN_OK) assert_int_equal(st, LN_EMEMORY), failed++;
        }
        step_until_done(e, 1000);
        const bool hit = ln_mem_fail_at(-1, false) < 0;
        for (int i = 0; i < 4; i++) {
            ln_result got;
            if (!r[i]) continue;
            const ln_status st = ln_req_result(r[i], &got, &said);
            if (st == LN_OK) assert_same_result(&got, &a.results[i]);
            else assert_int_equal(st, LN_EMEMORY), failed++;
            ln_result_free(&got);
            ln_req_free(&r[i]);
        }
        assert_true(failed <= 1);
        if (hit) assert_int_equal(failed, 1);
        assert_int_equal(ln_mem_bytes(), before);
    }
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_and_among_others),
                                       cmocka_unit_test(among_255_others),
                                       cmocka_unit_test(others_are_cancelled),
                                       cmocka_unit_test(events_are_the_result),
                                       cmocka_unit_test(a_reader_runs_the_steps),
                                       cmocka_unit_test(ready_is_told_once),
                                       cmocka_unit_test(stop_ids_end_it),
                                       cmocka_unit_test(stop_texts_are_named),
                                       cmocka_unit_test(the_sampling_is_copied),
                                       cmocka_unit_test(a_plain_choice_is_the_samplers),
                                       cmocka_unit_test(logprobs_are_those_of_score),
                                       cmocka_unit_test(all_logits_are_the_same),
                                       cmocka_unit_test(one_request_fails_alone),
                                       cmocka_unit_test(any_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
