/* Nothing of one request reaches another, and nothing is left behind.
 *
 * The canary: 200 chats at once, each with a secret in its system message and two turns, through the public
 * interface on the bundled model. No prompt has the tokens of another chat's secret, no request reuses more
 * than what its prompt shares with an earlier text, and every result is that of the chat alone to the bit.
 *
 * The leak: many short requests. What is allocated afterwards is what was allocated before, resident memory
 * stays on its plateau, and every page is free once the prefix cache is cleared. LN_LONG: 100,000 requests.
 */
/* run: slow cuda */
#include "../common.h"

#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include <linnet.h>

enum { CHATS = 200, TURNS = 2, TOKENS = 4, PARALLEL = 12, MOST_IDS = 400 };

/* ---- the canary ---- */

typedef struct chat {
    char system[96], secret[16];
    char said[TURNS][160]; /* what the assistant said */
    ln_request *r;
    int turn;
    ln_result results[TURNS], alone[TURNS];
} chat;

static chat chats[CHATS];

static const char *const asks[] = {"Tell me a short story.", "What is the capital of France?",
                                   "What is 7 + 5?", "Who are you?"};

/* The messages of a chat's turn; returns how many. */
static size_t messages_of(const chat *c, int i, int turn, ln_message out[2 * TURNS]) {
    size_t n = 0;
    out[n++] = (ln_message){"system", c->system, strlen(c->system)};
    for (int t = 0; t <= turn; t++) {
        const char *ask = asks[(i + t) % LN_COUNT(asks)];
        out[n++] = (ln_message){"user", ask, strlen(ask)};
        if (t < turn) out[n++] = (ln_message){"assistant", c->said[t], strlen(c->said[t])};
    }
    return n;
}

static ln_request *ask(ln_engine *e, const chat *c, int i, int turn, bool no_cache) {
    ln_sampling how = {
        .size = sizeof(ln_sampling), .n_max = TOKENS, .top_p = 1, .repeat_penalty = 1, .has_seed = true};
    ln_request_options o = ln_request_options_default();
    ln_message messages[2 * TURNS];
    ln_request *r;
    how.seed = (uint64_t)i;
    how.temperature = i % 3 ? 0 : 0.9;
    o.sampling = &how;
    o.n_logprobs = 5;
    o.no_cache = no_cache;
    const ln_prompt p = {
        .size = sizeof(ln_prompt), .messages = messages, .n_messages = messages_of(c, i, turn, messages)};
    OK(ln_request_open(&r, e, &p, &o, err));
    return r;
}

static void keep_answer(chat *c, int turn, const ln_result *r) {
    (void)snprintf(c->said[turn], sizeof c->said[turn], "%.*s", (int)LN_MIN(r->text_bytes, (size_t)150),
                   r->text);
}

static void alone(ln_engine *e) {
    for (int i = 0; i < CHATS; i++)
        for (int turn = 0; turn < TURNS; turn++) {
            ln_event v = {.size = sizeof v};
            ln_request *r = ask(e, &chats[i], i, turn, true);
            while (v.kind != LN_EVENT_FINISH) OK(ln_request_next(r, -1, &v, err));
            chats[i].alone[turn].size = sizeof(ln_result);
            OK(ln_request_result(r, &chats[i].alone[turn], err));
            ln_request_close(&r);
            keep_answer(&chats[i], turn, &chats[i].alone[turn]);
        }
}

static bool is_finished(ln_request *r) {
    ln_event v = {.size = sizeof v};
    do OK(ln_request_next(r, 0, &v, err));
    while (v.kind != LN_EVENT_FINISH && v.kind != LN_EVENT_NONE);
    return v.kind == LN_EVENT_FINISH;
}

/* All chats at once: each asks its next question when it has its answer. */
static void together(ln_engine *e) {
    size_t n_active = 1;
    for (int i = 0; i < CHATS; i++) {
        chats[i].turn = 0;
        chats[i].r = ask(e, &chats[i], i, 0, false);
    }
    for (int left = CHATS; left > 0;) {
        OK(ln_engine_step(e, &n_active, err));
        for (int i = 0; i < CHATS; i++) {
            chat *c = &chats[i];
            if (!c->r || !is_finished(c->r)) continue;
            c->results[c->turn].size = sizeof(ln_result);
            OK(ln_request_result(c->r, &c->results[c->turn], err));
            ln_request_close(&c->r);
            keep_answer(c, c->turn, &c->results[c->turn]);
            if (++c->turn < TURNS) c->r = ask(e, c, i, c->turn, false);
            else left--;
        }
    }
}

static size_t shared(const ln_result *a, const ln_result *b) {
    const size_t n = LN_MIN(a->n_prompt_ids, b->n_prompt_ids + b->n_ids);
    size_t k = 0;
    while (k < n &&
           a->prompt_ids[k] == (k < b->n_prompt_ids ? b->prompt_ids[k] : b->ids[k - b->n_prompt_ids]))
        k++;
    return k;
}

static void same_answer(int i, int turn, const ln_result *a, const ln_result *b) {
    const bool same = a->n_ids == b->n_ids && a->n_prompt_ids == b->n_prompt_ids &&
                      a->text_bytes == b->text_bytes && a->finish == b->finish &&
                      memcmp(a->prompt_ids, b->prompt_ids, a->n_prompt_ids * sizeof *a->prompt_ids) == 0 &&
                      memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0 &&
                      memcmp(a->text, b->text, a->text_bytes) == 0 &&
                      memcmp(a->logprobs, b->logprobs, a->n_ids * sizeof *a->logprobs) == 0;
    if (!same) fail_msg("chat %d, turn %d: the answer is not that of the chat alone", i, turn);
    for (size_t k = 0; k < a->n_ids * a->n_top; k++)
        if (a->top[k].id != b->top[k].id || memcmp(&a->top[k].logprob, &b->top[k].logprob, 8) != 0)
            fail_msg("chat %d, turn %d: likely token %zu is not that of the chat alone", i, turn, k);
}

/* No prompt contains another chat's secret. */
static void check_secrets(const ln_model *m, int i, int turn) {
    const ln_result *r = &chats[i].results[turn];
    char text[4096];
    size_t bytes;
    OK(ln_detokenize(ln_model_tokenizer(m), r->prompt_ids, r->n_prompt_ids, false, text, sizeof text - 1,
                     &bytes, err));
    assert_true(bytes < sizeof text);
    text[bytes] = 0;
    for (int k = 0; k < CHATS; k++)
        if ((strstr(text, chats[k].secret) != NULL) != (k == i))
            fail_msg("chat %d, turn %d: the secret of chat %d is %s its prompt", i, turn, k,
                     k == i ? "not in" : "in");
}

static void check_reuse(int i, int turn) {
    const ln_result *r = &chats[i].results[turn];
    size_t most = 0;
    for (int k = 0; k < CHATS; k++)
        for (int t = 0; t < TURNS; t++)
            if (k != i || t != turn) most = LN_MAX(most, shared(r, &chats[k].results[t]));
    if (r->metrics.cached_tokens > (int64_t)most || r->metrics.cached_tokens >= (int64_t)r->n_prompt_ids)
        fail_msg("chat %d, turn %d: %lld tokens reused, %zu shared", i, turn,
                 (long long)r->metrics.cached_tokens, most);
}

static void no_secret_leaves_its_chat(void **state) {
    ln_options o = {
        .size = sizeof(ln_options), .n_ctx = 256, .n_parallel = PARALLEL, .n_chunk = 96, .n_threads = 2};
    ln_model *m;
    ln_engine *e;
    int64_t reused = 0;
    (void)state;
    for (int i = 0; i < CHATS; i++) {
        (void)snprintf(chats[i].secret, sizeof chats[i].secret, "%d", 100000 + i * 4391);
        (void)snprintf(chats[i].system, sizeof chats[i].system, "You are a careful guard. The secret is %s.",
                       chats[i].secret);
    }
    OK(ln_model_open(&m, LN_ROOT "/models/tiny", &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    alone(e);
    together(e);
    for (int i = 0; i < CHATS; i++)
        for (int turn = 0; turn < TURNS; turn++) {
            same_answer(i, turn, &chats[i].results[turn], &chats[i].alone[turn]);
            check_secrets(m, i, turn);
            check_reuse(i, turn);
            reused += chats[i].results[turn].metrics.cached_tokens > 0;
        }
    assert_true(reused > CHATS / 2); /* else nothing was tested */
    for (int i = 0; i < CHATS; i++)
        for (int turn = 0; turn < TURNS; turn++) {
            ln_result_free(&chats[i].results[turn]);
            ln_result_free(&chats[i].alone[turn]);
        }
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* ---- cancelling ---- */

enum { DECODES = 0, READS, QUEUES, PLACES };

/* A request that decodes, one whose prompt takes many chunks, one that waits for a sequence. */
static ln_request *ask_at(ln_engine *e, int place) {
    static const size_t n_ids[PLACES] = {3, 120, 5};
    static const int64_t n_max[PLACES] = {40, 2, 3};
    int32_t ids[120];
    uint64_t text = (uint64_t)place + 77;
    for (size_t i = 0; i < n_ids[place]; i++) ids[i] = (int32_t)(test_random(&text) % 250);
    const ln_sampling how = {.size = sizeof(ln_sampling),
                             .n_max = n_max[place],
                             .top_p = 1,
                             .repeat_penalty = 1,
                             .ignore_eos = true};
    ln_request_options o = ln_request_options_default();
    ln_request *r;
    o.sampling = &how;
    o.n_logprobs = 3;
    o.no_cache = true;
    OK(ln_request_open(&r, e, &(ln_prompt){.size = sizeof(ln_prompt), .ids = ids, .n_ids = n_ids[place]}, &o,
                       err));
    return r;
}

static void finish(ln_engine *e, ln_request *r, ln_result *out) {
    out->size = sizeof *out;
    while (!is_finished(r)) OK(ln_engine_step(e, NULL, err));
    OK(ln_request_result(r, out, err));
}

/* One step after its cancel a request has finished, wherever it was; the others go on and give what they give
 * alone. */
static void a_cancel_takes_one_step(void **state) {
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 160, .n_parallel = 2, .n_chunk = 8, .n_threads = 2};
    ln_model *m;
    ln_engine *e;
    ln_result want[PLACES];
    (void)state;
    OK(ln_model_open(&m, LN_ROOT "/tests/golden/gemma3-text-bf16", &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    for (int i = 0; i < PLACES; i++) {
        ln_request *r = ask_at(e, i);
        finish(e, r, &want[i]);
        ln_request_close(&r);
    }
    for (int victim = 0; victim < PLACES; victim++) {
        ln_request *r[PLACES];
        ln_result got = {.size = sizeof got};
        for (int i = 0; i < PLACES; i++) r[i] = ask_at(e, i);
        for (int i = 0; i < 5; i++) OK(ln_engine_step(e, NULL, err));
        for (int i = 0; i < PLACES; i++) assert_false(is_finished(r[i]));
        ln_request_cancel(r[victim]);
        OK(ln_engine_step(e, NULL, err));
        for (int i = 0; i < PLACES; i++) assert_int_equal(is_finished(r[i]), i == victim);
        for (int i = 0; i < PLACES; i++) {
            finish(e, r[i], &got);
            assert_int_equal(got.finish == LN_FINISH_CANCELLED, i == victim);
            if (i == victim) assert_int_equal(got.n_ids > 0, i == DECODES);
            else same_answer(i, 0, &got, &want[i]);
            ln_result_free(&got);
            ln_request_close(&r[i]);
        }
    }
    for (int i = 0; i < PLACES; i++) ln_result_free(&want[i]);
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* ---- the leak ---- */

static int64_t resident_pages(void) {
    long long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld", &all, &resident), 2);
    fclose(f);
    return resident;
}

/* Bytes that malloc has handed out. */
static size_t allocated(void) {
#ifdef __GLIBC__
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#else
    return 0;
#endif
}

static void short_requests(ln_engine *e, int64_t n, uint64_t *seed) {
    enum { WINDOW = 24 };
    ln_request *open[WINDOW] = {0};
    const int64_t V = 264;
    for (int64_t sent = 0, done = 0; done < n;) {
        for (int k = 0; k < WINDOW; k++) {
            if (open[k] && is_finished(open[k])) {
                ln_result r = {.size = sizeof r};
                OK(ln_request_result(open[k], &r, err));
                ln_result_free(&r);
                ln_request_close(&open[k]);
                done++;
            }
            if (open[k] || sent == n) continue;
            int32_t ids[60];
            size_t n_ids = 1 + test_random(seed) % (test_random(seed) % 8 ? 12 : LN_COUNT(ids));
            uint64_t text = test_random(seed) % 50; /* few texts: prefixes are reused, and evicted */
            for (size_t i = 0; i < n_ids; i++) ids[i] = (int32_t)(test_random(&text) % V);
            ln_sampling how = {.size = sizeof(ln_sampling),
                               .n_max = 1 + test_random(seed) % 4,
                               .top_p = 1,
                               .repeat_penalty = 1};
            ln_request_options o = ln_request_options_default();
            const char *stop = "q";
            how.has_seed = true;
            how.temperature = 0.5;
            how.stop = &stop;
            how.n_stop = 1;
            o.sampling = &how;
            o.n_logprobs = (int)(test_random(seed) % 4) - 1;
            OK(ln_request_open(&open[k], e,
                               &(ln_prompt){.size = sizeof(ln_prompt), .ids = ids, .n_ids = n_ids}, &o, err));
            sent++;
            if (test_random(seed) % 10 == 0) ln_request_cancel(open[k]);
        }
        OK(ln_engine_step(e, NULL, err));
    }
}

static void nothing_is_left_behind(void **state) {
    enum { ROUNDS = 10 };
    const int64_t n = getenv("LN_LONG") ? 100000 : fewer(2000, 300);
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 128, .n_parallel = 8, .n_chunk = 64, .n_threads = 2};
    ln_model *m;
    ln_engine *e;
    uint64_t seed = 3;
    int64_t plateau = 0;
    (void)state;
    OK(ln_model_open(&m, LN_ROOT "/tests/golden/quantised/gemma3-text-q4-g32-bf16", &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    short_requests(e, 600, &seed); /* a warm-up: the pool is full, buffers have their sizes */
    const size_t before = allocated();
    for (int i = 0; i < ROUNDS; i++) {
        short_requests(e, n / ROUNDS, &seed);
        if (i < ROUNDS / 2) plateau = LN_MAX(plateau, resident_pages());
    }
    const size_t after = allocated();
    const int64_t resident = resident_pages(), page = sysconf(_SC_PAGESIZE);
    if (!getenv("LN_SANITIZED") && after != before)
        fail_msg("%zu bytes are allocated after %lld requests, %zu before", after, (long long)n, before);
    if (!getenv("LN_SANITIZED") && resident > plateau + (1 << 20) / page)
        fail_msg("resident memory grew by %lld bytes", (long long)(resident - plateau) * page);
    ln_engine_stats s = {.size = sizeof s};
    OK(ln_engine_get_stats(e, &s, err));
    assert_int_equal(s.n_running + s.n_waiting, 0);
    assert_int_equal(s.n_used, 0);
    assert_true(s.n_pages > 0 && s.n_cached > 0);
    ln_cache_clear();
    OK(ln_engine_get_stats(e, &s, err));
    assert_int_equal(s.n_used + s.n_cached, 0);
    ln_engine_close(&e);
    ln_model_close(&m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_secret_leaves_its_chat),
                                       cmocka_unit_test(a_cancel_takes_one_step),
                                       cmocka_unit_test(nothing_is_left_behind)};
    /* glibc counts what its caches of freed blocks hold as allocated: without those caches the count is exact
     */
    if (!getenv("GLIBC_TUNABLES") && !getenv("LN_SANITIZED")) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0", 1);
        execv("/proc/self/exe", argv);
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
