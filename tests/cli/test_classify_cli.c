/* linnet classify from outside: inputs, labels, kinds of output, order, errors of single inputs, accuracy,
 * the next token, logits, and what plan says about it. */
/* run: quick */
#include "spawn.h"

#include "io/io.h"

#define REVIEWS LN_ROOT "/examples/reviews.jsonl"
#define ASK     "Is this review positive or negative? {text}"

/* ---- lines of output ---- */

/* The n-th line of stdout as JSON. */
static json_t *line_of(const outcome *o, size_t n) {
    const char *at = o->out;
    json_t *root;
    for (; n > 0; n--) {
        at = strchr(at, '\n');
        if (!at) fail_msg("too few lines: '%s'", o->out);
        at++;
    }
    size_t bytes = strcspn(at, "\n");
    if (ln_json_load(&root, "a line", at, bytes, NULL)) fail_msg("no JSON: '%.*s'", (int)bytes, at);
    return root;
}

static size_t count_lines(const char *text) {
    size_t n = 0;
    for (; (text = strchr(text, '\n')); text++) n++;
    return n;
}

static double real_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) fail_msg("'%s' is no number", key);
    return json_number_value(v);
}

static char *file_with(const char *leaf, const char *text) {
    char *path = at(3, leaf);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* ---- flags ---- */

static void contradictions_are_refused(void **state) {
    (void)state;
    expect(RUN(S("classify")), 2, "MODEL");
    expect(RUN(S("classify"), S(SMALL)), 2, "--labels");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--next-token")), 2, "--next-token");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--temp"), S("1")), 2, "--temp");
    expect(RUN(S("classify"), S(SMALL), S("--next-token"), S("--normalize"), S("sum")), 2, "--normalize");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--normalize"), S("mean")), 2,
           "sum|tokens");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,,b")), 2, "label 2 is empty");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b,a")), 2, "twice");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a\xff,b")), 3, "label 1");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("@/nowhere")), 5, "/nowhere");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--prompt"), S("no place")), 2, "{text}");
    expect(RUN(S("classify"), S(SMALL), S("/nowhere"), S("--labels"), S("a,b")), 5, "/nowhere");
    expect(RUN(S("classify"), S(SMALL), S("x"), S("-f"), S("y"), S("--labels"), S("a,b")), 2, "-");
    expect(RUN(S("classify"), S(SMALL), S("x"), S("y"), S("--labels"), S("a,b")), 2,
           "unexpected argument 'y'");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--force")), 2, "--force");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--raw"), S("--system"), S("x")), 2,
           "--raw");
    expect(RUN_IN("a\nb\n", S("classify"), S(SMALL), S("--labels"), S("@-")), 2, "stdin brings the inputs");
    expect(RUN(S("run"), S(SMALL), S("--labels"), S("a,b")), 2, "classify");
    char *labels = file_with("prompt.txt", "a\n\nb\n");
    char word[300];
    (void)snprintf(word, sizeof word, "@%s", labels);
    expect(RUN(S("classify"), S(SMALL), S("--labels"), word), 3, "label 2 is empty");
    (void)file_with("prompt.txt", "");
    expect(RUN(S("classify"), S(SMALL), S("--labels"), word), 3, "found none");
}

/* Flags that no input can follow are an error of the call, not of each input. */
static void a_system_text_needs_a_template(void **state) {
    (void)state;
    expect(RUN_IN("a\nb\n", S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--system"), S("x")), 2,
           "--system");
    assert_string_equal(last->out, "");
}

/* ---- labels ---- */

static void a_line_an_input(void **state) {
    (void)state;
    static const char input[] = "one\r\ntwo two\n\nlast line without an end";
    outcome *o = RUN_IN(input, S("classify"), S(TINY), S("--labels"), S("yes,no, no"));
    expect(o, 0, NULL);
    assert_string_equal(o->err, "");
    assert_int_equal(count_lines(o->out), 4); /* an empty line is an empty text */
    char *text = ln_strndup(o->out, o->out_bytes);
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *tab = strrchr(line, '\t'), *end;
        assert_non_null(tab);
        double p = strtod(tab + 1, &end);
        assert_true(*end == '\0' && p > 1.0 / 3 - 1e-6 && p <= 1);
        *tab = '\0';
        assert_true(!strcmp(line, "yes") || !strcmp(line, "no") || !strcmp(line, " no"));
    }
    /* the same from a file, and with the other ways of naming it */
    char *file = file_with("prompt.txt", input);
    expect(RUN(S("classify"), S(TINY), file, S("--labels"), S("yes,no, no")), 0, NULL);
    char *again = ln_strndup(last->out, last->out_bytes);
    expect(RUN(S("classify"), S(TINY), S("-f"), file, S("--labels"), S("yes,no, no")), 0, NULL);
    assert_string_equal(last->out, again);
    expect(RUN_IN(input, S("classify"), S(TINY), S("-"), S("--labels"), S("yes,no, no")), 0, NULL);
    assert_string_equal(last->out, again);
    ln_free(again);
    ln_free(text);
}

/* A label is one column of a line, whatever it holds; JSON has it as it is. */
static void labels_with_line_breaks(void **state) {
    (void)state;
    expect(RUN_IN("a text\n", S("classify"), S(SMALL), S("--labels"), S("x\ny\tz\\")), 0, NULL);
    assert_memory_equal(last->out, "x\\ny\\tz\\\\\t1.000000\n", last->out_bytes);
    expect(RUN_IN("a text\n", S("classify"), S(SMALL), S("--labels"), S("x\ny"), S("--json")), 0, NULL);
    assert_non_null(strstr(last->out, "\"label\":\"x\\ny\""));
}

static void no_inputs_are_no_error(void **state) {
    (void)state;
    expect(RUN(S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--json")), 0, NULL);
    assert_string_equal(last->out, "");
    expect(RUN_IN("\n \n", S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--jsonl")), 0, NULL);
    assert_string_equal(last->out, "");
}

static const char *const label_words[] = {"a", "bc", "the end"};

/* The sum of the log-probabilities that score gives a label after ids. */
static double score_of(const char *ids, size_t n_ids, const char *label) {
    ln_str all = {0};
    char word[64];
    (void)snprintf(word, sizeof word, "%s", label);
    json_t *o = json_of(RUN(S("tokenize"), S(SMALL), S("-p"), word, S("--no-special"), S("--json")));
    const json_t *list = json_object_get(o, "ids");
    ln_str_adds(&all, ids);
    for (size_t i = 0; i < json_array_size(list); i++)
        ln_str_addf(&all, ",%lld", (long long)json_integer_value(json_array_get(list, i)));
    json_decref(o);
    o = json_of(RUN(S("score"), S(SMALL), S("--ids"), all.data, S("--json")));
    double sum = 0;
    list = json_object_get(o, "logprobs");
    for (size_t t = n_ids; t < json_array_size(list); t++) sum += json_real_value(json_array_get(list, t));
    json_decref(o);
    ln_str_free(&all);
    return sum;
}

static void scores_are_those_of_score(void **state) {
    (void)state;
    static const char *const prompts[] = {"5,6,7", "44",
                                          "9,8,7,6,5,4,3,2,1,9,8,7,6,5,4,3,2,1,9,8,7,6,5,4,3,2,1"};
    static const size_t lengths[] = {3, 1, 27};
    ln_str lines = {0};
    json_t *result[3], *mean[3];
    for (size_t i = 0; i < 3; i++) ln_str_addf(&lines, "{\"ids\":[%s]}\n", prompts[i]);
    outcome *o = RUN_IN(lines.data, S("classify"), S(SMALL), S("--labels"), S("a,bc,the end"), S("--jsonl"),
                        S("--json"));
    expect(o, 0, NULL);
    for (size_t i = 0; i < 3; i++) result[i] = line_of(o, i);
    o = RUN_IN(lines.data, S("classify"), S(SMALL), S("--labels"), S("a,bc,the end"), S("--jsonl"),
               S("--json"), S("--normalize"), S("tokens"));
    expect(o, 0, NULL);
    for (size_t i = 0; i < 3; i++) mean[i] = line_of(o, i);
    static const int n_tokens[] = {1, 2, 7}; /* this tokenizer has letters only */
    for (size_t i = 0; i < 3; i++) {
        const json_t *scores = json_object_get(result[i], "scores");
        double best = -INFINITY, all = 0;
        const char *label = NULL;
        assert_int_equal(int_of(result[i], "index"), i);
        for (size_t k = 0; k < 3; k++) {
            double score = real_of(scores, label_words[k]);
            assert_true(score == score_of(prompts[i], lengths[i], label_words[k]));
            assert_true(real_of(json_object_get(mean[i], "scores"), label_words[k]) == score / n_tokens[k]);
            if (score > best) best = score, label = label_words[k];
            all += exp(score);
        }
        assert_string_equal(text_of(result[i], "label"), label);
        assert_true(fabs(real_of(result[i], "probability") - exp(best) / all) <= 64 * 0x1p-53);
        json_decref(result[i]);
        json_decref(mean[i]);
    }
    ln_str_free(&lines);
}

static void prompts_go_through_the_template(void **state) {
    (void)state;
    expect(RUN_IN("fox\n", S("classify"), S(TINY), S("--labels"), S("yes,no"), S("--json"), S("--raw"),
                  S("--prompt"), S("{text} and {text}, or {else}:")),
           0, NULL);
    char *filled = ln_strndup(last->out, last->out_bytes);
    expect(RUN_IN("fox and fox, or {else}:\n", S("classify"), S(TINY), S("--labels"), S("yes,no"),
                  S("--json"), S("--raw")),
           0, NULL);
    assert_string_equal(last->out, filled);
    expect(RUN_IN("fox and fox, or {else}:\n", S("classify"), S(TINY), S("--labels"), S("yes,no"),
                  S("--json")),
           0, NULL);
    assert_string_not_equal(last->out, filled);
    /* the conversation that the chat template makes of it, as ids */
    static const char chat[] = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nA fox<|im_end|>\n"
                               "<|im_start|>assistant\n";
    expect(RUN_IN("fox\n", S("classify"), S(TINY), S("--labels"), S("yes,no"), S("--json"), S("--system"),
                  S("Be brief."), S("--prompt"), S("A {text}")),
           0, NULL);
    ln_free(filled);
    filled = ln_strndup(last->out, last->out_bytes);
    json_t *o = json_of(RUN_IN(chat, S("tokenize"), S(TINY), S("--json")));
    char *line = json_dumps(o, JSON_COMPACT);
    expect(RUN_IN(line, S("classify"), S(TINY), S("--labels"), S("yes,no"), S("--json"), S("--jsonl")), 0,
           NULL);
    assert_string_equal(last->out, filled);
    free(line);
    json_decref(o);
    ln_free(filled);
}

/* ---- accuracy ---- */

static void accuracy_and_confusion(void **state) {
    (void)state;
    char *args[] = {S("classify"),          S(TINY),       S(REVIEWS), S("--jsonl"), S("--labels"),
                    S("positive,negative"), S("--prompt"), S(ASK)};
    expect(RUN(args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]), 0, NULL);
    assert_int_equal(count_lines(last->out), 6);
    static const char expected[] = "{\"n\":6,\"accuracy\":1,\"confusion\":{\"positive\":{\"positive\":3},"
                                   "\"negative\":{\"negative\":3}}}\n";
    assert_string_equal(last->err, expected);
    expect(RUN(args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7], S("--json")), 0, NULL);
    assert_string_equal(last->err, "");
    assert_int_equal(count_lines(last->out), 7);
    assert_string_equal(last->out + last->out_bytes - strlen(expected), expected);
}

static void labels_of_inputs(void **state) {
    (void)state;
    /* a label that --labels does not have is never right; an integer is its digits; null is none */
    static const char input[] =
        "{\"ids\":[5,6],\"label\":\"c\"}\n\n{\"ids\":[5,6],\"label\":1,\"other\":[1]}\n"
        "{\"ids\":[5,6],\"label\":null}\n{\"ids\":[5,6],\"label\":[]}\n{\"ids\":[5,6],\"label\":\"2\"}\n";
    outcome *o = RUN_IN(input, S("classify"), S(SMALL), S("--labels"), S("1,2"), S("--jsonl"), S("--json"));
    assert_int_equal(o->code, 3);
    assert_non_null(strstr(o->err, "input 3: \"label\": expected a text or an integer"));
    assert_int_equal(count_lines(o->out), 6);
    json_t *first = line_of(o, 0), *summary = line_of(o, 5);
    const char *answer = text_of(first, "label");
    assert_int_equal(int_of(summary, "n"), 3);
    assert_true(real_of(summary, "accuracy") == 1.0 / 3);
    const json_t *confusion = json_object_get(summary, "confusion");
    assert_int_equal(json_object_size(confusion), 3);
    static const char *const gold[] = {"c", "1", "2"};
    for (size_t i = 0; i < 3; i++) assert_int_equal(int_of(json_object_get(confusion, gold[i]), answer), 1);
    json_decref(first);
    json_decref(summary);
}

/* ---- inputs that fail ---- */

static void a_bad_input_stops_no_other(void **state) {
    (void)state;
    static const char input[] =
        "{\"ids\":[5,6]}\nno json\n{\"text\":7}\n{\"ids\":[5,9999]}\n{\"ids\":[]}\n"
        "{\"ids\":[1,2,3,4,5,6,7,8,9]}\n{\"text\":\"ab\"}\n{\"text\":\"a\",\"ids\":[1]}\n";
    outcome *o = RUN_IN(input, S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--jsonl"), S("--json"),
                        S("--ctx"), S("8"));
    expect(o, 3, "stdin: input 1: JSON");
    assert_non_null(strstr(o->err, "(and 5 more inputs)"));
    assert_int_equal(count_lines(o->out), 8);
    static const char *const words[] = {NULL,    "JSON",     "\"text\"", "9999",
                                        "empty", "9 tokens", NULL,       "\"ids\""};
    for (size_t i = 0; i < LN_COUNT(words); i++) {
        json_t *line = line_of(o, i);
        assert_int_equal(int_of(line, "index"), i);
        if (!words[i]) (void)text_of(line, "label");
        else if (!strstr(text_of(line, "error"), words[i]))
            fail_msg("line %zu: %s", i, text_of(line, "error"));
        json_decref(line);
    }
    json_t *line = line_of(o, 5);
    assert_non_null(strstr(text_of(line, "error"), "--ctx")); /* names the flag, not the field */
    json_decref(line);
    /* without --json too, and bytes that are not UTF-8 */
    o = RUN_IN("a\nb\xff\nc\n", S("classify"), S(SMALL), S("--labels"), S("a,b"));
    expect(o, 3, "input 1: byte 1: expected UTF-8");
    assert_int_equal(count_lines(o->out), 3);
    line = line_of(o, 1);
    assert_int_equal(int_of(line, "index"), 1);
    json_decref(line);
    /* what is for texts only */
    expect(RUN_IN("{\"ids\":[5,6]}\n", S("classify"), S(SMALL), S("--labels"), S("a,b"), S("--jsonl"),
                  S("--prompt"), S("x{text}")),
           3, "--prompt");
}

/* ---- the next token ---- */

static void the_next_token(void **state) {
    (void)state;
    static const char input[] = "{\"ids\":[5,6,7],\"label\":\"x\"}\n{\"ids\":[9,9]}\n";
    for (int draws = 0; draws < 2; draws++) {
        outcome *o =
            draws ? RUN_IN(input, S("classify"), S(SMALL), S("--next-token"), S("--jsonl"), S("--json"),
                           S("--temp"), S("2"), S("--top-k"), S("50"), S("--seed"), S("11"))
                  : RUN_IN(input, S("classify"), S(SMALL), S("--next-token"), S("--jsonl"), S("--json"));
        expect(o, 0, NULL);
        json_t *line[] = {line_of(o, 0), line_of(o, 1), line_of(o, 2)};
        static const char *const ids[] = {"5,6,7", "9,9"};
        assert_int_equal(int_of(line[2], "n"), 1);
        for (size_t i = 0; i < 2; i++) {
            char prompt[16];
            (void)snprintf(prompt, sizeof prompt, "%s", ids[i]);
            json_t *r = json_of(draws ? RUN(S("run"), S(SMALL), S("--ids"), prompt, S("-n"), S("1"),
                                            S("--json"), S("--temp"), S("2"), S("--top-k"), S("50"),
                                            S("--seed"), S("11"), S("--ignore-eos"))
                                      : RUN(S("run"), S(SMALL), S("--ids"), prompt, S("-n"), S("1"),
                                            S("--json"), S("--temp"), S("0"), S("--ignore-eos")));
            assert_int_equal(int_of(line[i], "token"),
                             json_integer_value(json_array_get(json_object_get(r, "ids"), 0)));
            assert_int_equal(int_of(line[i], "index"), i);
            assert_true(real_of(line[i], "logprob") < 0);
            json_decref(r);
        }
        for (size_t i = 0; i < 3; i++) json_decref(line[i]);
    }
    /* a line an input, whatever the token's text is */
    outcome *o = RUN_IN("The fox\nOnce upon\n", S("classify"), S(TINY), S("--next-token"), S("--raw"));
    expect(o, 0, NULL);
    assert_int_equal(count_lines(o->out), 2);
}

/* ---- logits ---- */

static void logits_are_those_after_each_prompt(void **state) {
    (void)state;
    static const char input[] = "{\"ids\":[5,6,7]}\n{}\n{\"ids\":[9,9]}\n";
    char *file = at(0, "logits.st"), *other = at(1, "keys.st");
    outcome *o =
        RUN_IN(input, S("classify"), S(SMALL), S("--labels"), S("a,bc"), S("--jsonl"), S("--logits"), file);
    assert_int_equal(o->code, 3);
    ln_tensors t, u;
    assert_int_equal(ln_tensors_open_file(&t, file, NULL), LN_OK);
    const ln_tensor *l = ln_tensors_find(&t, "logits");
    assert_true(l && l->n_dims == 2 && l->dims[0] == 3);
    const int64_t V = l->dims[1];
    static const char *const ids[] = {"5,6,7", NULL, "9,9"};
    for (int64_t i = 0; i < 3; i++) {
        const uint8_t *row = l->data + i * V * 4;
        float first;
        memcpy(&first, row, sizeof first);
        assert_int_equal(isnan(first), i == 1); /* the input that failed */
        if (i == 1) continue;
        char prompt[16];
        (void)snprintf(prompt, sizeof prompt, "%s", ids[i]);
        expect(RUN(S("score"), S(SMALL), S("--ids"), prompt, S("--logits"), other, S("--force")), 0, NULL);
        assert_int_equal(ln_tensors_open_file(&u, other, NULL), LN_OK);
        const ln_tensor *want = ln_tensors_find(&u, "logits");
        assert_true(want && want->dims[1] == V);
        assert_memory_equal(row, want->data + (want->dims[0] - 1) * V * 4, (size_t)V * 4);
        ln_tensors_close(&u);
    }
    ln_tensors_close(&t);
    expect(RUN_IN(input, S("classify"), S(SMALL), S("--labels"), S("a,bc"), S("--jsonl"), S("--logits"),
                  file),
           5, "--force");
    expect(RUN_IN("", S("classify"), S(SMALL), S("--next-token"), S("--logits"), file, S("--force")), 0,
           NULL);
    assert_int_equal(ln_tensors_open_file(&t, file, NULL), LN_OK);
    assert_int_equal(ln_tensors_find(&t, "logits")->dims[0], 0);
    ln_tensors_close(&t);
}

/* ---- memory ---- */

static void plan_knows_classify(void **state) {
    (void)state;
    expect(RUN(S("plan"), S(TINY), S("--labels"), S("a,b")), 2, "--for classify");
    expect(RUN(S("plan"), S(TINY), S("--jsonl")), 2, "--for classify");
    json_t *o = json_of(RUN(S("plan"), S(TINY), S("--for"), S("classify"), S("--json"))),
           *file = json_of(RUN(S("plan"), S(TINY), S(REVIEWS), S("--for"), S("classify"), S("--jsonl"),
                               S("--labels"), S("positive,negative"), S("--json")));
    assert_true(int_of(o, "kv_bytes") > 0 && json_is_true(json_object_get(o, "fits")));
    assert_true(int_of(file, "kv_bytes") < int_of(o, "kv_bytes")); /* six short reviews need less */
    json_decref(o);
    json_decref(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(contradictions_are_refused),
                                       cmocka_unit_test(a_system_text_needs_a_template),
                                       cmocka_unit_test(a_line_an_input),
                                       cmocka_unit_test(labels_with_line_breaks),
                                       cmocka_unit_test(no_inputs_are_no_error),
                                       cmocka_unit_test(scores_are_those_of_score),
                                       cmocka_unit_test(prompts_go_through_the_template),
                                       cmocka_unit_test(accuracy_and_confusion),
                                       cmocka_unit_test(labels_of_inputs),
                                       cmocka_unit_test(a_bad_input_stops_no_other),
                                       cmocka_unit_test(the_next_token),
                                       cmocka_unit_test(logits_are_those_after_each_prompt),
                                       cmocka_unit_test(plan_knows_classify)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
