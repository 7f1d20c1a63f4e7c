/* Reasoning in the command: a pipe gets the answer alone, JSON has both, a terminal shows the reasoning
 * muted, and reasoning is never sent back to the model. */
/* run: quick */
#include "talk.h"
#include "../think_model.h"

/* The model's output: a plan of seven tokens, as flags --logit-bias. */
static char model[100], bias[12][32];
static size_t n_bias;

static void plan(const char *text) {
    ln_tokenizer *tok;
    assert_int_equal(ln_tokenizer_open(&tok, model, NULL), LN_OK);
    for (n_bias = 0; text[n_bias]; n_bias++)
        (void)snprintf(bias[n_bias], sizeof bias[0], "--logit-bias=%d=%g", think_id(tok, text[n_bias]),
                       (double)think_bias(n_bias));
    ln_tokenizer_close(&tok);
    assert_int_equal(n_bias, 7);
}
#define PLANNED(verb)                                                              \
    S(verb), model, bias[0], bias[1], bias[2], bias[3], bias[4], bias[5], bias[6], \
        S("--presence-penalty=100"), S("--frequency-penalty=100")

static int make_model(void **state) {
    if (make_dir(state) != 0) return -1;
    (void)snprintf(model, sizeof model, "%s/m", dir);
    think_make(model, AS_QWEN, true);
    plan("{ab}cd.");
    return 0;
}
static int remove_model(void **state) {
    think_remove(model);
    return clean(state);
}

static void a_pipe_gets_the_answer(void **state) {
    (void)state;
    const outcome *o = RUN(PLANNED("run"), S("-p"), S("Q"));
    expect(o, 0, NULL);
    assert_string_equal(o->out, "cd");
    assert_int_equal(o->err_bytes, 0);
    o = RUN(PLANNED("run"), S("-p"), S("Q"), S("-v"));
    assert_string_equal(o->out, "cd");
    assert_non_null(strstr(o->err, "ab\n"));
    o = RUN(PLANNED("run"), S("-p"), S("Q"), S("-n"), S("3"));
    expect(o, 0, "no answer: all 3 tokens went into reasoning");
    assert_int_equal(o->out_bytes, 0);
    o = RUN_IN("Q\nR\n", PLANNED("chat"));
    assert_string_equal(o->out, "cd\ncd\n");
    assert_int_equal(o->err_bytes, 0);
}

static void json_has_both(void **state) {
    (void)state;
    json_t *o = json_of(RUN(PLANNED("run"), S("-p"), S("Q"), S("--json")));
    assert_string_equal(text_of(o, "text"), "cd");
    assert_string_equal(text_of(o, "reasoning"), "ab");
    assert_int_equal(json_array_size(json_object_get(o, "ids")), 6);
    assert_int_equal(int_of(json_object_get(o, "metrics"), "reasoning_tokens"), 3);
    json_decref(o);
    o = json_of(RUN(PLANNED("run"), S("-p"), S("Q"), S("--json"), S("--think-budget"), S("1")));
    assert_string_equal(text_of(o, "reasoning"), "a");
    assert_true(strncmp(text_of(o, "text"), "b", 1) == 0);
    json_decref(o);
    o = json_of(RUN(PLANNED("run"), S("-p"), S("Q"), S("--json"), S("--raw")));
    assert_string_equal(text_of(o, "reasoning"), "");
    assert_string_equal(text_of(o, "text"), "abcd");
    json_decref(o);
    expect(RUN(S("run"), model, S("-p"), S("x"), S("--raw"), S("--think-budget"), S("1")), 2,
           "--think-budget");
    expect(RUN(S("run"), model, S("-p"), S("x"), S("--think-budget=-1")), 2, "--think-budget");
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("-n"), S("1"), S("--think-budget"), S("1")), 0,
           "marks no reasoning");
}

static void a_terminal_shows_it_muted(void **state) {
    (void)state;
    SIT("xterm", model, bias[0], bias[1], bias[2], bias[3], bias[4], bias[5], bias[6],
        S("--presence-penalty=100"), S("--frequency-penalty=100"));
    until_prompt();
    type("Q\r");
    until("\033[2ma\033[0m\033[2mb\033[0m\r\n\r\ncd\r\n");
    until("tok/s");
    until_prompt();
    type("/set think-budget 0\r");
    until_prompt();
    type("R\r");
    until("ab"); /* the answer, without any reasoning */
    until("tok/s");
    until_prompt();
    type("/set think-budget\r");
    until_prompt();
    type("/set max-tokens 3\r");
    until_prompt();
    type("T\r");
    until("went into reasoning");
    until_prompt();
    json_t *doc = saved();
    assert_int_equal(n_messages(doc), 4); /* a question without an answer is not kept */
    assert_string_equal(content(doc, 0, "user"), "Q");
    assert_string_equal(content(doc, 1, "assistant"), "cd");
    assert_string_equal(content(doc, 2, "user"), "R");
    json_decref(doc);
    leave();
    SIT("dumb", model, bias[0], bias[1], bias[2], bias[3], bias[4], bias[5], bias[6],
        S("--presence-penalty=100"), S("--frequency-penalty=100"));
    until("> ");
    size_t from = tty.mark;
    type("Q\r");
    until("cd");
    assert_null(memmem(tty.raw.data + from, tty.raw.len - from, "ab", 2));
    until("tok/s");
    until_prompt();
    type("/exit\r");
    assert_int_equal(stand_up(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_pipe_gets_the_answer),
                                       cmocka_unit_test(json_has_both),
                                       cmocka_unit_test(a_terminal_shows_it_muted)};
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
