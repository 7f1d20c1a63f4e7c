/* The library under a locale whose decimal separator is a comma and whose weekdays have other names.
 *
 * The test makes the locale with localedef in a temporary directory; without localedef it uses an
 * installed one, and without that it prints that the tests were skipped. Every test does the same work in
 * the C locale and in that one, and expects the same result. */
/* run: quick */
#include "../tokenizer/vectors.h"

#include <linnet_tools.h>

#include "base/file.h"
#include "base/json.h"
#include "base/c_locale.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#define TINY LN_ROOT "/models/tiny"

static char folder[] = "/tmp/linnet-locale-XXXXXX";
static char name[64];

static int drop(const char *path, const struct stat *s, int type, struct FTW *w) {
    return (void)s, (void)type, (void)w, remove(path);
}

static bool comma(const char *locale) {
    char text[16];
    if (!setlocale(LC_ALL, locale)) return false;
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    bool yes = strcmp(text, "0,5") == 0;
    setlocale(LC_ALL, "C");
    if (yes) (void)snprintf(name, sizeof name, "%s", locale);
    return yes;
}

static int make_locale(void **state) {
    static const char *const installed[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE",
                                            "fr_FR.UTF-8", "fr_FR.utf8", "ru_RU.UTF-8"};
    char command[200];
    (void)state;
    if (!mkdtemp(folder)) return 1;
    (void)snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", folder,
                   folder);
    if (system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 && comma("de_DE.UTF-8")) return 0;
    unsetenv("LOCPATH");
    for (size_t i = 0; i < LN_COUNT(installed); i++)
        if (comma(installed[i])) return 0;
    fprintf(stderr, "SKIPPED: localedef cannot make a locale with a decimal comma and none is installed; "
                    "nothing here was tested\n");
    return 0;
}

static int remove_locale(void **state) {
    (void)state;
    return nftw(folder, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* Enters the locale; skips the test if there is none. */
static void enter(void) {
    if (!name[0]) skip();
    assert_non_null(setlocale(LC_ALL, name));
    char text[16];
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* shows that the locale has an effect */
}
static void leave(void) { assert_non_null(setlocale(LC_ALL, "C")); }

static void rendered(const char *request, const char *want) {
    ln_rendering out = {0};
    ln_error err = {0};
    if (ln_chat_template_render(NULL, request, strlen(request), &out, &err) != LN_OK)
        fail_msg("%s", err.message);
    assert_string_equal(out.text, want);
    ln_rendering_free(&out);
}

static void templates(void **state) {
    static const struct {
        const char *source, *want;
    } rows[] = {{"{{ '%.2f' % 2.25 }} {{ '%e|%g|%#.3g' % (2.25, 0.5, 1.0) }}", "2.25 2.250000e+00|0.5|1.00"},
                {"{{ 3.75|round(1) }} {{ 2.5|round }} {{ 1234567.891|round(2) }}", "3.8 2.0 1234567.89"},
                {"{{ 0.1 + 0.2 }} {{ 1e300 * 10 }} {{ [1.5, 2e-7]|tojson }}", "0.30000000000000004 1e+301 "
                                                                              "[1.5, 2e-07]"},
                {"{{ '2.5'|float * 2 }} {{ '1,5'|float }} {{ '7.9'|int }}", "5.0 0.0 7"},
                {"{{ x }} {{ x|tojson }}", "3.14 3.14"},
                {"{{ strftime_now('%A %d %B %Y, %p %x') }}", "Thursday 10 July 2025, PM 07/10/25"}};
    (void)state;
    enter();
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char request[400];
        ln_str source = {0};
        ln_str_json(&source, rows[i].source, strlen(rows[i].source));
        (void)snprintf(request, sizeof request,
                       "{\"template\":%s,\"context\":{\"x\":3.14},\"now\":\"2025-07-10T12:34:56\"}",
                       source.data);
        rendered(request, rows[i].want);
        ln_str_free(&source);
    }
    leave();
}

static void messages_with_reals(void **state) {
    (void)state;
    ln_error err = {0};
    ln_str s = {0};
    char text[80], own[16];
    enter();
    assert_int_equal(ln_fail(&err, LN_EINVALID, "expected at most %g, found %.2f", 0.5, 2.25), LN_EINVALID);
    assert_string_equal(err.message, "expected at most 0.5, found 2.25");
    assert_int_equal(ln_prefix(&err, LN_EINVALID, "%.1f", 1.5), LN_EINVALID);
    assert_string_equal(err.message, "1.5: expected at most 0.5, found 2.25");
    ln_str_addf(&s, "%.3f", 1234.5);
    ln_str_double(&s, 1.0 / 3);
    assert_string_equal(s.data, "1234.5000.3333333333333333");
    json_t *v = json_real(0.25);
    assert_string_equal(ln_json_text(v, text), "0.25");
    json_decref(v);
    (void)ln_snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0.5");
    (void)snprintf(own, sizeof own, "%.1f", 0.5); /* the thread's locale is unchanged */
    assert_string_equal(own, "0,5");
    leave();
    ln_str_free(&s);
}

/* The embedding program may set a locale for one thread only. */
static void locale_of_a_thread(void **state) {
    (void)state;
    if (!name[0] || getenv("LN_SANITIZED")) skip(); /* newlocale of glibc leaks if LOCPATH is set */
    char text[16];
    locale_t own = newlocale(LC_ALL_MASK, name, (locale_t)0), was = uselocale(own);
    assert_true(own != (locale_t)0);
    rendered("{\"template\":\"{{ '%.2f' % 2.25 }}\",\"context\":{}}", "2.25");
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    (void)uselocale(was);
    freelocale(own);
}

/* Results of a model: its configuration, its memory plan, and a text generated with real-valued options. */
static void generated(ln_str *out) {
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_sampling how = {.size = sizeof how};
    ln_result result = {.size = sizeof result};
    ln_prompt p = {.size = sizeof(ln_prompt), .text = "Once", .text_bytes = 4};
    ln_plan plan = {.size = sizeof plan};
    ln_logit_bias bias = {.id = 1 << 30, .bias = 0.5f};
    ln_error err = {0};
    ln_options opt = ln_options_default();
    opt.n_ctx = 256;
    out->len = 0;
    assert_int_equal(ln_plan_memory(TINY, &opt, &plan, &err), LN_OK);
    assert_int_equal(ln_model_open(&m, TINY, &opt, &err), LN_OK);
    assert_int_equal(ln_engine_open(&e, m, &opt, &err), LN_OK);
    assert_int_equal(ln_sampling_default(m, &how, &err), LN_OK);
    how.temperature = 0.7, how.top_p = 0.9, how.n_max = 12, how.has_seed = true, how.seed = 5;
    assert_int_equal(ln_generate(e, &p, &how, NULL, NULL, &result, &err), LN_OK);
    ln_str_addf(out, "%llu %.17g %.17g %s", (unsigned long long)plan.weights_bytes, how.temperature,
                how.top_p, result.text);
    ln_result_free(&result);
    how.bias = &bias, how.n_bias = 1;
    assert_int_equal(ln_generate(e, &p, &how, NULL, NULL, &result, &err), LN_EUSAGE);
    ln_str_adds(out, err.message);
    ln_result_free(&result);
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void models(void **state) {
    (void)state;
    ln_str plain = {0}, here = {0};
    if (!name[0]) skip();
    generated(&plain);
    enter();
    generated(&here);
    leave();
    assert_string_equal(here.data, plain.data);
    assert_non_null(strstr(here.data, "=0.5")); /* the rejected bias in the error message */
    ln_str_free(&plain);
    ln_str_free(&here);
}

/* The message about a rejected configuration has the number that was found. */
static void refused_configuration(void **state) {
    (void)state;
    char path[200], *data;
    size_t n;
    ln_error err = {0}, again = {0};
    ln_info info = {.size = sizeof info};
    ln_str s = {0};
    if (!name[0]) skip();
    assert_int_equal(ln_read_file(TINY "/config.json", 1 << 20, &data, &n, NULL), LN_OK);
    const char *key = strstr(data, "\"rms_norm_eps\"");
    assert_non_null(key);
    ln_str_add(&s, data, (size_t)(key - data));
    ln_str_adds(&s, "\"rms_norm_eps\": -1.5");
    ln_str_adds(&s, key + strcspn(key, ",\n}"));
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(s.data, 1, s.len, f), s.len);
    assert_int_equal(fclose(f), 0);
    assert_int_not_equal(ln_show(folder, NULL, &info, &err), LN_OK);
    enter();
    assert_int_not_equal(ln_show(folder, NULL, &info, &again), LN_OK);
    leave();
    assert_non_null(strstr(err.message, "-1.5"));
    assert_string_equal(again.message, err.message);
    ln_free(data);
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates), cmocka_unit_test(messages_with_reals),
                                       cmocka_unit_test(locale_of_a_thread), cmocka_unit_test(models),
                                       cmocka_unit_test(refused_configuration)};
    return cmocka_run_group_tests(tests, make_locale, remove_locale);
}
