/* The ids that generation_config.json forbids, compared with transformers' logits processors: the ids that
 * are excluded after random histories, and the ids that a whole model generates (forbid_cases.h, recorded
 * by tools/golden_forbid.py). Also the stop texts of stop_strings. */
/* run: slow cuda */
#include "../io/io_test.h"

#undef OK
#include "../common.h"
#include "forbid_cases.h"

#define MODEL LN_ROOT "/tests/golden/llama-plain-f32"

static size_t ids_of(const char *json, int32_t *out, size_t cap) {
    json_t *list = json_loads(json, 0, NULL);
    size_t n = json_array_size(list);
    assert_true(list && n <= cap);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    json_decref(list);
    return n;
}

/* Returns the sampler's defaults for a generation_config.json with these keys. */
static void forbid(const char *keys, int64_t V, ln_genconfig *g, ln_sampling *how) {
    ln_config c;
    put_text("g/config.json", "{}");
    put_text("g/generation_config.json", keys);
    OK(ln_config_open(&c, at("g"), err));
    OK(ln_genconfig_open(g, at("g"), &c, V, NULL, NULL, err));
    ln_config_close(&c);
    *how = (ln_sampling){.size = sizeof(ln_sampling),
                         .top_p = 1,
                         .repeat_penalty = 1,
                         .suppress = g->suppress,
                         .n_suppress = g->n_suppress,
                         .begin_suppress = g->begin_suppress,
                         .n_begin_suppress = g->n_begin_suppress,
                         .bad_words = g->bad_words,
                         .n_bad_words = g->n_bad_words,
                         .no_repeat_ngram = g->no_repeat_ngram,
                         .min_new = g->min_new};
}

static void test_rows(void **state) {
    (void)state;
    size_t excluded = 0;
    for (size_t r = 0; r < LN_COUNT(forbid_rows); r++) {
        int32_t history[64], want[FORBID_V];
        float logits[FORBID_V] = {0};
        ln_genconfig g;
        ln_sampling how = {.size = sizeof how};
        size_t n = ids_of(forbid_rows[r].history, history, LN_COUNT(history)),
               n_want = ids_of(forbid_rows[r].forbidden, want, FORBID_V);
        forbid(forbid_rows[r].keys, FORBID_V, &g, &how);
        ln_forbid(logits, &how, history, (int64_t)n, forbid_rows[r].n_generated, forbid_stop_ids,
                  (int)LN_COUNT(forbid_stop_ids));
        size_t k = 0;
        for (int32_t id = 0; id < FORBID_V; id++) {
            bool wanted = k < n_want && want[k] == id;
            if ((logits[id] == -INFINITY) != wanted)
                fail_msg("row %zu: %s: token %d", r, forbid_rows[r].keys, id);
            k += wanted;
        }
        /* If ln_forbids returns that nothing is forbidden, the device finds the largest logit by itself:
         * then the rules must indeed forbid nothing. */
        if (!ln_forbids(&how, forbid_rows[r].n_generated)) assert_int_equal(n_want, 0);
        excluded += n_want;
        ln_genconfig_close(&g);
    }
    print_message("  %zu rows, %zu tokens excluded\n", LN_COUNT(forbid_rows), excluded);
    assert_true(excluded > LN_COUNT(forbid_rows));
}

/* A directory with the golden model's files and a generation_config.json of these keys. */
static const char *model_with(const char *keys) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char from[512], to[64];
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(from, sizeof from, MODEL "/%s", files[i]);
        (void)snprintf(to, sizeof to, "m/%s", files[i]);
        (void)unlink(at(to));
        link_to(from, to);
    }
    put_text("m/generation_config.json", keys);
    return at("m");
}

static void generate(const char *keys, int64_t n_max, const char *const *stop, size_t n_stop,
                     ln_result *out) {
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_sampling how = {.size = sizeof how};
    const ln_options opt = {.size = sizeof(ln_options), .n_ctx = 64, .n_threads = 1};
    const ln_prompt prompt = {
        .size = sizeof(ln_prompt), .ids = forbid_prompt, .n_ids = LN_COUNT(forbid_prompt)};
    OK(ln_model_open(&model, model_with(keys), &opt, err));
    OK(ln_sampling_default(model, &how, err));
    how.n_max = n_max, how.stop = stop, how.n_stop = n_stop;
    OK(ln_engine_open(&engine, model, &opt, err));
    ln_model_close(&model); /* the engine owns what the fields of `how` point to */
    OK(ln_generate(engine, &prompt, &how, NULL, NULL, out, err));
    ln_engine_close(&engine);
}

static void test_runs(void **state) {
    (void)state;
    for (size_t r = 0; r < LN_COUNT(forbid_runs); r++) {
        int32_t want[64];
        size_t n = ids_of(forbid_runs[r].ids, want, LN_COUNT(want));
        ln_result out = {.size = sizeof out};
        generate(forbid_runs[r].keys, 20, NULL, 0, &out);
        bool same = out.n_ids == n;
        for (size_t i = 0; same && i < n; i++) same = out.ids[i] == want[i];
        if (!same) fail_msg("%s: other ids than %s", forbid_runs[r].keys, forbid_runs[r].ids);
        ln_result_free(&out);
    }
}

/* The text ends before the first stop text, whether it is one of the file or one of the caller. */
static void test_stop_strings(void **state) {
    (void)state;
    ln_result whole = {.size = sizeof whole}, out = {.size = sizeof out};
    char early[8], late[8];
    generate("{}", 20, NULL, 0, &whole);
    assert_int_equal(whole.finish, LN_FINISH_LENGTH);
    /* Two pieces of the text itself, each taken at its first occurrence. */
    size_t a = 2, b = whole.text_bytes / 2;
    while ((whole.text[a] & 0xc0) == 0x80) a++;
    while ((whole.text[b] & 0xc0) == 0x80) b++;
    size_t na = 1, nb = 1;
    while ((whole.text[a + na] & 0xc0) == 0x80) na++;
    while ((whole.text[b + nb] & 0xc0) == 0x80) nb++;
    (void)snprintf(early, sizeof early, "%.*s", (int)na, whole.text + a);
    (void)snprintf(late, sizeof late, "%.*s", (int)nb, whole.text + b);
    const size_t first_early = (size_t)(strstr(whole.text, early) - whole.text),
                 first_late = (size_t)(strstr(whole.text, late) - whole.text);
    const char *const early_list[] = {early}, *const never[] = {"no such text"};
    ln_str list = {0}, one = {0};
    ln_str_adds(&list, "{\"stop_strings\":[\"never\",");
    ln_str_json(&list, late, strlen(late));
    ln_str_adds(&list, "]}");
    ln_str_adds(&one, "{\"stop_strings\":");
    ln_str_json(&one, late, strlen(late));
    ln_str_adds(&one, "}");
    const struct {
        const char *keys;
        const char *const *stop;
        size_t n_stop, bytes;
    } rows[] = {{list.data, NULL, 0, first_late},
                {one.data, never, 1, first_late},
                {list.data, early_list, 1, LN_MIN(first_early, first_late)},
                {"{\"stop_strings\":null}", early_list, 1, first_early}};
    for (size_t r = 0; r < LN_COUNT(rows); r++) {
        generate(rows[r].keys, 20, rows[r].stop, rows[r].n_stop, &out);
        assert_int_equal(out.finish, LN_FINISH_STOP);
        assert_int_equal(out.text_bytes, rows[r].bytes);
        assert_memory_equal(out.text, whole.text, out.text_bytes);
        ln_result_free(&out);
    }
    ln_str_free(&list);
    ln_str_free(&one);
    ln_result_free(&whole);
}

/* A caller's own lists are validated before they are used as indices. */
static void test_misuse(void **state) {
    (void)state;
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_sampling good = {.size = sizeof good};
    ln_result out = {.size = sizeof out};
    static const int32_t far[] = {269}, negative[] = {-1}, fine[] = {268};
    static const ln_id_list empty[] = {{fine, 0}}, none[] = {{NULL, 1}}, outside[] = {{far, 1}};
    static const char *const stops[] = {"x", ""};
    const ln_options opt = {.size = sizeof(ln_options), .n_ctx = 64, .n_threads = 1};
    const ln_prompt prompt = {
        .size = sizeof(ln_prompt), .ids = forbid_prompt, .n_ids = LN_COUNT(forbid_prompt)};
    OK(ln_model_open(&model, MODEL, &opt, err));
    OK(ln_sampling_default(model, &good, err));
    good.n_max = 1;
    OK(ln_engine_open(&engine, model, &opt, err));
    ln_sampling bad[12];
    size_t n = 0;
    for (size_t i = 0; i < LN_COUNT(bad); i++) bad[i] = good;
    bad[n].suppress = far, bad[n++].n_suppress = 1;
    bad[n].suppress = negative, bad[n++].n_suppress = 1;
    bad[n++].n_suppress = 1;
    bad[n].begin_suppress = far, bad[n++].n_begin_suppress = 1;
    bad[n++].n_bad_words = 1;
    bad[n].bad_words = empty, bad[n++].n_bad_words = 1;
    bad[n].bad_words = none, bad[n++].n_bad_words = 1;
    bad[n].bad_words = outside, bad[n++].n_bad_words = 1;
    bad[n++].no_repeat_ngram = -1;
    bad[n++].min_new = -1;
    bad[n].model_stop = stops, bad[n++].n_model_stop = 2;
    bad[n++].n_model_stop = 1;
    assert_int_equal(n, LN_COUNT(bad));
    for (size_t i = 0; i < n; i++)
        FAILS(LN_EUSAGE, "", ln_generate(engine, &prompt, &bad[i], NULL, NULL, &out, err));
    good.suppress = fine, good.n_suppress = 1;
    OK(ln_generate(engine, &prompt, &good, NULL, NULL, &out, err));
    ln_result_free(&out);
    ln_engine_close(&engine);
    ln_model_close(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_runs),
                                       cmocka_unit_test(test_stop_strings), cmocka_unit_test(test_misuse)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
