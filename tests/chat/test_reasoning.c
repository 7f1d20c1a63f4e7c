/* Separation of the reasoning from the answer: the splitter with the text cut at every place, and the
 * engine with a model whose output is fixed by biases. */
/* run: quick asan */
#include "../common.h"
#include "../think_model.h"

/* ---- the splitter ---- */

static const ln_reasoning_delims delims = {"<think>", "</think>"};

typedef struct split {
    bool opened;
    const char *text, *reasoning, *answer;
} split;

static const split cases[] = {
    {false, "<think>\nwhy\nso\n</think>\n\nanswer\n", "why\nso", "answer\n"},
    {false, "\n<think>why</think>answer", "why", "answer"},
    {false, "<think></think>answer", "", "answer"},
    {false, "<think>\n\n</think>\n\n", "", ""},
    {false, "\n\nanswer", "", "\n\nanswer"},
    {false, "an <think>answer</think>", "", "an <think>answer</think>"},
    {false, "<thin", "", "<thin"},
    {false, "<thin>k</think>", "", "<thin>k</think>"},
    {false, "<think>a<b</</think></think>c", "a<b</", "</think>c"},
    {false, "<think>a</thin\n</think", "a</thin\n</think", ""},
    {false, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
    {true, "why\n\n</think>\n\nanswer", "why", "answer"},
    {true, "\nw\xc3\xa9\n</think>\n\xe2\x82\xac", "w\xc3\xa9", "\xe2\x82\xac"},
    {true, "</think>", "", ""},
    {true, "<think>\nwhy</think>x", "<think>\nwhy", "x"},
};

static void check_cut(const split *c, const size_t *cut, size_t n_cut) {
    ln_reasoning t;
    ln_str reasoning = {0}, answer = {0};
    size_t from = 0, bytes = strlen(c->text);
    ln_reasoning_open(&t, &delims, c->opened);
    for (size_t i = 0; i <= n_cut + 1; i++) {
        size_t to = i < n_cut ? cut[i] : bytes;
        if (i <= n_cut) OK(ln_reasoning_push(&t, c->text + from, to - from, err));
        else OK(ln_reasoning_flush(&t, err));
        if (answer.len > 0)
            assert_int_equal(t.reasoning.len, 0); /* the reasoning ends before the answer
                                                     begins */
        if (t.reasoning.len > 0) ln_str_add(&reasoning, t.reasoning.data, t.reasoning.len);
        if (t.answer.len > 0) ln_str_add(&answer, t.answer.data, t.answer.len);
        from = to;
    }
    if (strcmp(reasoning.data ? reasoning.data : "", c->reasoning) != 0 ||
        strcmp(answer.data ? answer.data : "", c->answer) != 0)
        fail_msg("'%s': '%s' and '%s'", c->text, reasoning.data ? reasoning.data : "",
                 answer.data ? answer.data : "");
    if (t.state == LN_REASONING_ANSWER) assert_int_equal(t.before + answer.len, bytes);
    ln_reasoning_close(&t);
    ln_str_free(&reasoning);
    ln_str_free(&answer);
}

static void every_cut_gives_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        size_t n = strlen(cases[i].text), all[64];
        assert_true(n < LN_COUNT(all));
        for (size_t k = 0; k < n; k++) all[k] = k + 1;
        check_cut(&cases[i], all, n);
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b++) check_cut(&cases[i], (const size_t[]){a, b}, 2);
    }
}

/* Text that is certain is not held back: a piece of reasoning is passed on as soon as it cannot be a
 * delimiter. */
static void nothing_is_held_longer_than_needed(void **state) {
    (void)state;
    ln_reasoning t;
    ln_reasoning_open(&t, &delims, true);
    OK(ln_reasoning_push(&t, "why <", 5, err));
    assert_string_equal(t.reasoning.data, "why ");
    OK(ln_reasoning_push(&t, "/th", 3, err));
    assert_int_equal(t.reasoning.len, 0);
    OK(ln_reasoning_push(&t, "e", 1, err));
    assert_string_equal(t.reasoning.data, "</the");
    OK(ln_reasoning_push(&t, "</think>A", 9, err));
    assert_string_equal(t.answer.data, "A");
    ln_reasoning_close(&t);
    ln_reasoning_open(&t, NULL, false); /* without delimiters the text is the answer */
    OK(ln_reasoning_push(&t, "<think>", 7, err));
    assert_string_equal(t.answer.data, "<think>");
    ln_reasoning_close(&t);
}

/* ---- the engine ---- */

typedef struct fixture {
    char dir[64];
    ln_model *model;
    ln_engine *engine;
    ln_tokenizer *tok;
} fixture;

static void enter(fixture *r, const char *tmpl, bool tokens) {
    char dir[] = "/tmp/linnet-think-XXXXXX";
    assert_non_null(mkdtemp(dir));
    (void)snprintf(r->dir, sizeof r->dir, "%s/m", dir);
    think_make(r->dir, tmpl, tokens);
    OK(ln_model_open(&r->model, r->dir, NULL, err));
    OK(ln_engine_open(&r->engine, r->model, NULL, err));
    OK(ln_tokenizer_open(&r->tok, r->dir, err));
    ln_info info = {.size = sizeof info};
    OK(ln_model_info(r->model, &info, err));
    assert_true(info.has_reasoning);
}

static void leave(fixture *r) {
    ln_engine_close(&r->engine);
    ln_model_close(&r->model);
    ln_tokenizer_close(&r->tok);
    think_remove(r->dir);
    *strrchr(r->dir, '/') = '\0';
    assert_int_equal(rmdir(r->dir), 0);
}

typedef struct heard {
    ln_str reasoning, answer;
    int stop_after; /* pieces of reasoning after which the callback stops */
} heard;
static ln_status on_reasoning(void *user, const char *text, size_t bytes, ln_error *err) {
    heard *h = user;
    (void)err;
    assert_int_equal(h->answer.len, 0);
    ln_str_add(&h->reasoning, text, bytes);
    return --h->stop_after == 0 ? LN_ECANCELLED : LN_OK;
}
static ln_status on_answer(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)err;
    ln_str_add(&((heard *)user)->answer, text, bytes);
    return LN_OK;
}
static bool same(const ln_str *s, const char *text) {
    return s->len == strlen(text) && (s->len == 0 || memcmp(s->data, text, s->len) == 0);
}

typedef struct wanted {
    const char *plan, *reasoning, *answer;
    bool has_budget, raw;
    int64_t budget, n_max;
    const char *stop;
    int stop_after;
    const char *args;
    const char *form;
    size_t n_ids; /* 0: not compared */
    int64_t n_reasoning;
} wanted;

static void check(fixture *r, const wanted *w) {
    ln_logit_bias bias[40];
    ln_result out = {.size = sizeof out};
    heard h = {.stop_after = w->stop_after};
    size_t n = strlen(w->plan);
    assert_true(n <= LN_COUNT(bias));
    for (size_t i = 0; i < n; i++) bias[i] = (ln_logit_bias){think_id(r->tok, w->plan[i]), think_bias(i)};
    ln_sampling how = {.size = sizeof(ln_sampling),
                       .top_p = 1,
                       .repeat_penalty = 1,
                       .presence_penalty = 100,
                       .frequency_penalty = 100,
                       .bias = bias,
                       .n_bias = n,
                       .stop = &w->stop,
                       .n_stop = w->stop ? 1 : 0,
                       .n_max = w->n_max ? w->n_max : 60,
                       .has_think_budget = w->has_budget,
                       .think_budget = w->budget,
                       .grammar = w->form,
                       .grammar_bytes = w->form ? strlen(w->form) : 0,
                       .on_reasoning = on_reasoning};
    ln_prompt p = {.size = sizeof(ln_prompt),
                   .text = "Q",
                   .text_bytes = 1,
                   .tmpl = w->raw ? LN_TEMPLATE_RAW : LN_TEMPLATE_AUTO,
                   .template_args = w->args,
                   .template_args_bytes = w->args ? strlen(w->args) : 0};
    OK(ln_generate(r->engine, &p, &how, on_answer, &h, &out, err));
    if (strcmp(out.reasoning, w->reasoning) != 0 || strcmp(out.text, w->answer) != 0)
        fail_msg("'%s': '%s' and '%s'", w->plan, out.reasoning, out.text);
    assert_int_equal(out.reasoning_bytes, strlen(w->reasoning));
    assert_int_equal(out.text_bytes, strlen(w->answer));
    assert_true(same(&h.reasoning, out.reasoning) && same(&h.answer, out.text));
    if (w->n_ids) assert_int_equal(out.n_ids, w->n_ids);
    if (w->n_reasoning >= 0) assert_int_equal(out.metrics.reasoning_tokens, w->n_reasoning);
    assert_int_equal(out.finish, w->n_max        ? LN_FINISH_LENGTH
                                 : w->stop_after ? LN_FINISH_CANCELLED
                                                 : LN_FINISH_STOP);
    ln_result_free(&out);
    ln_str_free(&h.reasoning);
    ln_str_free(&h.answer);
}

static void special_tokens(void **state) {
    (void)state;
    fixture r;
    enter(&r, AS_QWEN, true);
    static const wanted wishes[] = {
        {.plan = "{\nabc}de.", .reasoning = "abc", .answer = "de", .n_ids = 8, .n_reasoning = 5},
        {.plan = "ab.", .reasoning = "", .answer = "ab"},
        {.plan = "a{b}c.", .reasoning = "", .answer = "a<think>b</think>c"},
        {.plan = "{ab.", .reasoning = "ab", .answer = "", .n_reasoning = 2},
        {.plan = "{ab}cd.", .reasoning = "ab", .answer = "", .n_max = 4, .n_reasoning = 3},
        {.plan = "{abc}dxe.",
         .reasoning = "abc",
         .answer = "d",
         .stop = "x",
         .n_ids = 6,
         .n_reasoning = 4}, /* a stop text in the answer */
        {.plan = "{abc}dxe.",
         .reasoning = "abc",
         .answer = "dxe",
         .stop = "b",
         .n_reasoning = 4}, /* a stop text ends the answer only */
        {.plan = "{abc}dxe.", .reasoning = "ab", .answer = "", .stop_after = 2, .n_ids = 3, .n_reasoning = 2},
        {.plan = "{abc}de.", .reasoning = "", .answer = "abcde", .raw = true}, /* raw: special tokens have no
                                                                                  text */
        {.plan = "ab.", .reasoning = "", .answer = "ab", .args = "{\"enable_thinking\": false}"},
    };
    for (size_t i = 0; i < LN_COUNT(wishes); i++) check(&r, &wishes[i]);
    leave(&r);
}

static void letters_after_an_opened_prompt(void **state) {
    (void)state;
    fixture r;
    enter(&r, AS_R1, false);
    static const wanted wishes[] = {
        {.plan = "ab</think>cd.", .reasoning = "ab", .answer = "cd", .n_ids = 12, .n_reasoning = 10},
        {.plan = "ab</thxin.", .reasoning = "ab</thxin", .answer = "", .n_reasoning = 9},
        {.plan = "ab</think>cd.", .reasoning = "", .answer = "ab</think>cd", .raw = true},
    };
    for (size_t i = 0; i < LN_COUNT(wishes); i++) check(&r, &wishes[i]);
    leave(&r);
}

static void budgets(void **state) {
    (void)state;
    fixture r;
    static const wanted
        opened[] =
            {
                {.plan = "abcd.",
                 .reasoning = "ab",
                 .answer = "cd",
                 .has_budget = true,
                 .budget = 2,
                 .n_ids = 8,
                 .n_reasoning = 4}, /* the ids: ab \n end-delimiter \n \n cd */
                {.plan = "abcd.",
                 .reasoning = "",
                 .answer = "abcd",
                 .has_budget = true,
                 .budget = 0,
                 .n_ids = 8,
                 .n_reasoning = 2},
                {.plan = "ab}cd.",
                 .reasoning = "ab",
                 .answer = "cd",
                 .has_budget = true,
                 .budget = 9,
                 .n_ids = 5,
                 .n_reasoning = 3},
                {.plan = "abcd.",
                 .reasoning = "ab",
                 .answer = "",
                 .has_budget = true,
                 .budget = 2,
                 .n_max = 5,
                 .n_ids = 5,
                 .n_reasoning = 4},
            },
        unopened[] = {
            {.plan = "{abcd.",
             .reasoning = "abc",
             .answer = "d",
             .has_budget = true,
             .budget = 3,
             .n_ids = 9,
             .n_reasoning = 5},
            {.plan = "{abcd.",
             .reasoning = "",
             .answer = "abcd",
             .has_budget = true,
             .budget = 0,
             .n_reasoning = 2},
            {.plan = "abcd.", .reasoning = "", .answer = "abcd", .has_budget = true, .budget = 0, .n_ids = 4},
        };
    enter(&r, AS_R1, true);
    for (size_t i = 0; i < LN_COUNT(opened); i++) check(&r, &opened[i]);
    leave(&r);
    enter(&r, AS_QWEN, true);
    for (size_t i = 0; i < LN_COUNT(unopened); i++) check(&r, &unopened[i]);
    ln_result out = {.size = sizeof out};
    ln_sampling bad = {.size = sizeof(ln_sampling),
                       .top_p = 1,
                       .repeat_penalty = 1,
                       .has_think_budget = true,
                       .think_budget = -1};
    FAILS(LN_EUSAGE, "think_budget",
          ln_generate(r.engine, &(ln_prompt){.size = sizeof(ln_prompt), .text = "Q", .text_bytes = 1}, &bad,
                      NULL, NULL, &out, err));
    leave(&r);
}

/* Reasoning is free, and no stop id ends it; the grammar applies after it. */
static void forms_begin_after_reasoning(void **state) {
    (void)state;
    static const char form[] = "{\"choice\":[\"ab\",\"cd\"]}";
    static const wanted drawn[] = {
        {"{xyz}ab", "xyz", "ab", .form = form, .n_reasoning = 4},
        {"{x.}zcd", "x", "cd", .form = form, .n_reasoning = 2},
        {"zab", "", "ab", .form = form},
        {"{x}\nab", "x", "ab", .form = form, .n_reasoning = 2, .n_ids = 6},
        {"\nab", "", "ab", .form = form},
        {"{xyzab", "x", "ab", .form = form, .has_budget = true, .budget = 1, .n_reasoning = -1},
    };
    static const wanted opened[] = {
        {"xy}ab", "xy", "ab", .form = form, .n_reasoning = 3},
        {"x.}cd", "x", "cd", .form = form, .n_reasoning = 2},
    };
    fixture r;
    enter(&r, AS_QWEN, true);
    for (size_t i = 0; i < LN_COUNT(drawn); i++) check(&r, &drawn[i]);
    leave(&r);
    enter(&r, AS_R1, true);
    for (size_t i = 0; i < LN_COUNT(opened); i++) check(&r, &opened[i]);
    leave(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms_begin_after_reasoning),

                                       cmocka_unit_test(every_cut_gives_the_same),
                                       cmocka_unit_test(nothing_is_held_longer_than_needed),
                                       cmocka_unit_test(special_tokens),
                                       cmocka_unit_test(letters_after_an_opened_prompt),
                                       cmocka_unit_test(budgets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
