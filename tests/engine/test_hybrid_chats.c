/* Chats with models that have recurrent layers, through the public interface.
 *
 * 200 chats at once, each with a secret and three turns, while requests that are cancelled put other secrets
 * into the same pages: every answer is that of the chat alone in a new engine, to the bit.
 *
 * The next turn of a chat of 15,000 tokens reads what is new and nothing else, and answers as a new engine
 * that reads everything. */
/* run: slow */
#include "../fewer.h"
#include "../defects/defects.h"

#include <linnet.h>

#include <string.h>

enum { CHATS = 200, TURNS = 3, TOKENS = 4, PARALLEL = 12, MOST = 400, SYSTEM = 61, SECRET = 9, BYTES = 250 };
static const char *const dirs[] = {LN_ROOT "/tests/golden/families/qwen3_5_text-last-linear-bf16",
                                   LN_ROOT "/tests/golden/families/qwen3_5_moe_text-bias-bf16",
                                   LN_ROOT "/tests/golden/families/lfm2_moe-base-f16"};

static ln_model *open_model(const char *dir, const ln_options *o) {
    ln_model *m;
    OK(ln_model_open(&m, dir, o, err));
    return m;
}
static ln_engine *open_engine(ln_model *m, const ln_options *o) {
    ln_engine *e;
    OK(ln_engine_open(&e, m, o, err));
    return e;
}
static ln_request *ask(ln_engine *e, const int32_t *ids, size_t n, int64_t n_max, bool no_cache) {
    const ln_sampling how = {
        .size = sizeof(ln_sampling), .n_max = n_max, .top_p = 1, .repeat_penalty = 1, .ignore_eos = true};
    const ln_prompt p = {.size = sizeof p, .ids = ids, .n_ids = n};
    ln_request_options o = ln_request_options_default();
    ln_request *r;
    o.sampling = &how;
    o.n_logprobs = 5;
    o.no_cache = no_cache;
    OK(ln_request_open(&r, e, &p, &o, err));
    return r;
}
static bool is_finished(ln_request *r) {
    ln_event v = {.size = sizeof v};
    do OK(ln_request_next(r, 0, &v, err));
    while (v.kind != LN_EVENT_FINISH && v.kind != LN_EVENT_NONE);
    return v.kind == LN_EVENT_FINISH;
}
static ln_result take(ln_request **r) {
    ln_result got = {.size = sizeof got};
    OK(ln_request_result(*r, &got, err));
    ln_request_close(r);
    return got;
}
static ln_result answer(ln_engine *e, const int32_t *ids, size_t n, int64_t n_max, bool no_cache) {
    ln_request *r = ask(e, ids, n, n_max, no_cache);
    while (!is_finished(r)) OK(ln_engine_step(e, NULL, err));
    return take(&r);
}
/* Whether both have the same tokens and, of each, the same five log-probabilities. */
static bool same(const ln_result *a, const ln_result *b) {
    if (a->n_ids != b->n_ids || memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) != 0) return false;
    for (size_t k = 0; k < a->n_ids * a->n_top; k++)
        if (a->top[k].id != b->top[k].id ||
            memcmp(&a->top[k].logprob, &b->top[k].logprob, sizeof a->top[k].logprob) != 0)
            return false;
    return true;
}

/* ---- secrets ---- */

typedef struct chat {
    int32_t ids[MOST];
    size_t n;
    int turn;
    ln_request *r, *decoy;
    ln_result got[TURNS], alone[TURNS];
} chat;
static chat chats[CHATS];
static int n_chats; /* of them, that the test has */

static void put(chat *c, uint64_t seed, size_t n) {
    for (size_t i = 0; i < n; i++) c->ids[c->n++] = (int32_t)(test_random(&seed) % BYTES);
}
/* The prompt of the first turn: what all have in common, the secret of chat `secret`, one of four questions.
 */
static void begin(chat *c, int i, int secret) {
    c->n = 0;
    c->turn = 0;
    put(c, 1, SYSTEM);
    put(c, (uint64_t)secret + 1000, SECRET);
    put(c, (uint64_t)i % 4 + 10, 5 + (size_t)i * 7 % 90);
}
/* The prompt of the next turn: with the answer and another question. */
static void go_on(chat *c, int i, const ln_result *said) {
    for (size_t k = 0; k < said->n_ids; k++) c->ids[c->n++] = said->ids[k];
    put(c, (uint64_t)(i + ++c->turn) % 4 + 10, 3 + (size_t)i * 5 % 40);
}

static void each_alone(ln_model *m, const ln_options *o) {
    for (int i = 0; i < n_chats; i++) {
        ln_engine *e = open_engine(m, o);
        chat *c = &chats[i];
        begin(c, i, i);
        for (int t = 0; t < TURNS; t++) {
            c->alone[t] = answer(e, c->ids, c->n, TOKENS, true);
            go_on(c, i, &c->alone[t]);
        }
        ln_engine_close(&e);
    }
}
/* Asks the next question of a chat, and one with another secret that will be cancelled. */
static void ask_next(ln_engine *e, chat *c, int i) {
    chat other;
    begin(&other, i, i + CHATS);
    c->decoy = i % 3 ? NULL : ask(e, other.ids, other.n, TOKENS + 9, false);
    c->r = ask(e, c->ids, c->n, TOKENS, false);
}
static void all_together(ln_engine *e, uint64_t *seed) {
    for (int i = 0; i < n_chats; i++) begin(&chats[i], i, i), ask_next(e, &chats[i], i);
    for (int left = n_chats; left > 0;) {
        OK(ln_engine_step(e, NULL, err));
        for (int i = 0; i < n_chats; i++) {
            chat *c = &chats[i];
            if (c->decoy && (is_finished(c->decoy) || test_random(seed) % 20 == 0))
                ln_request_close(&c->decoy);
            if (!c->r || !is_finished(c->r)) continue;
            c->got[c->turn] = take(&c->r);
            go_on(c, i, &c->got[c->turn]);
            if (c->turn < TURNS) ask_next(e, c, i);
            else left--;
        }
    }
    for (int i = 0; i < n_chats; i++) ln_request_close(&chats[i].decoy);
}

static void no_secret_leaves_its_chat(const char *dir) {
    const ln_options o = {
        .size = sizeof o, .n_ctx = MOST, .n_parallel = PARALLEL, .n_chunk = 96, .n_threads = 2};
    ln_model *m = open_model(dir, &o);
    uint64_t seed = 5;
    int reused = 0, told = 0;
    n_chats = (int)fewer(CHATS, 40);
    each_alone(m, &o);
    ln_engine *e = open_engine(m, &o);
    all_together(e, &seed);
    for (int i = 0; i < n_chats; i++) {
        begin(&chats[i], i, i + CHATS); /* another secret changes the answer, else equality shows nothing */
        ln_result other = answer(e, chats[i].ids, chats[i].n, TOKENS, true);
        told += !same(&other, &chats[i].alone[0]);
        ln_result_free(&other);
        for (int t = 0; t < TURNS; t++) {
            if (!same(&chats[i].got[t], &chats[i].alone[t]))
                fail_msg("%s: chat %d, turn %d: the answer is not that of the chat alone", dir, i, t);
            reused += chats[i].got[t].metrics.cached_tokens > 0;
            ln_result_free(&chats[i].got[t]);
            ln_result_free(&chats[i].alone[t]);
        }
    }
    print_message("%d of %d requests reused a prefix\n", reused, n_chats * TURNS);
    assert_int_equal(told, n_chats);
    assert_true(reused > n_chats);
    ln_engine_close(&e);
    ln_model_close(&m);
}
static void secrets(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(dirs); i++) no_secret_leaves_its_chat(dirs[i]);
}

/* ---- a long chat ---- */

static void long_context(json_t *config) {
    json_object_set_new(config, "max_position_embeddings", json_integer(16384));
}
static void a_turn_reads_what_is_new(void **state) {
    enum { FIRST = 15000, ANSWER = 8, NEW = 40, TEXT = FIRST + ANSWER + NEW };
    const ln_options o = {.size = sizeof o, .n_ctx = 16384, .n_parallel = 1, .n_chunk = 512, .n_threads = 2};
    const copied c = copy_of("families/qwen3_5_text-last-linear-bf16", long_context);
    static int32_t ids[TEXT];
    uint64_t seed = 11;
    (void)state;
    for (int i = 0; i < TEXT; i++) ids[i] = (int32_t)(test_random(&seed) % BYTES);
    ln_model *m = open_model(c.dir, &o);
    ln_engine *e = open_engine(m, &o);
    ln_result first = answer(e, ids, FIRST, ANSWER, false);
    assert_int_equal(first.metrics.cached_tokens, 0);
    memcpy(ids + FIRST, first.ids, ANSWER * sizeof *ids);
    ln_result second = answer(e, ids, TEXT, ANSWER, false);
    /* the last token of an answer is in no row of its own turn */
    assert_int_equal(second.metrics.cached_tokens, FIRST + ANSWER - 1);
    assert_string_equal(second.metrics.cache_miss_reason, "");
    const int64_t read = second.metrics.prompt_tokens - second.metrics.cached_tokens;
    assert_true(first.metrics.prompt_tokens >= 20 * read);
    print_message("the first token after %.3f s, of the second turn after %.4f s\n",
                  first.metrics.first_token_seconds, second.metrics.first_token_seconds);
    ids[FIRST - 30] = (ids[FIRST - 30] + 1) % BYTES; /* a template that changes the end of the turn before */
    ln_result other = answer(e, ids, TEXT, ANSWER, false);
    assert_int_equal(other.metrics.cached_tokens, FIRST - 30);
    ln_engine_close(&e);
    e = open_engine(m, &o);
    ln_result whole = answer(e, ids, TEXT, ANSWER, true);
    assert_true(same(&whole, &other));
    ids[FIRST - 30] = (ids[FIRST - 30] + BYTES - 1) % BYTES;
    ln_result again = answer(e, ids, TEXT, ANSWER, true);
    assert_true(same(&again, &second) && !same(&again, &whole));
    ln_result *all[] = {&first, &second, &other, &whole, &again};
    for (size_t i = 0; i < LN_COUNT(all); i++) ln_result_free(all[i]);
    ln_engine_close(&e);
    ln_model_close(&m);
    copy_gone(&c);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(secrets), cmocka_unit_test(a_turn_reads_what_is_new)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
