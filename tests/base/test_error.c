/* Messages and lines of the log are one printable line each, whatever bytes a caller puts into them. */
/* run: quick asan */
#include "../common.h"

#include <string.h>

static const char *message(const char *text) {
    static ln_error err;
    (void)ln_fail(&err, LN_EINVALID, "key '%s' is unknown", text);
    return err.message;
}

static void messages_are_printable(void **state) {
    (void)state;
    static const struct {
        const char *raw, *shown;
    } cases[] = {
        {"plain", "key 'plain' is unknown"},
        {"\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80", "key '\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80' is unknown"},
        {"\x1b[31mred\a\x7f", "key '\\u001b[31mred\\u0007\\u007f' is unknown"},
        {"a\nlinnet: forged", "key 'a linnet: forged' is unknown"},
        {"\tb", "key '\\tb' is unknown"},
        {"\xc2\x9b"
         "2J",
         "key '\\u009b2J' is unknown"},
        {"\xe2\x80\xae"
         "abc",
         "key '\\u202eabc' is unknown"},
        {"\xff\xfe", "key '\\xff\\xfe' is unknown"},
        {"cut \xe6\xbc", "key 'cut \\xe6\\xbc' is unknown"},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) assert_string_equal(message(cases[i].raw), cases[i].shown);
    ln_error err;
    (void)ln_fail(&err, LN_EINVALID, "inner \x1b");
    (void)ln_prefix(&err, LN_EINVALID, "outer \x1b");
    assert_string_equal(err.message, "outer \\u001b: inner \\u001b");
}

/* A message that is too long is cut, never within a character. */
static void long_messages_are_cut(void **state) {
    (void)state;
    char text[3000];
    for (size_t pad = 0; pad < 4; pad++) {
        memset(text, 'x', pad);
        for (size_t i = pad; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xe6\xbc\xa2", 4);
        const char *shown = message(text);
        assert_int_equal(ln_utf8_valid(shown, strlen(shown)), strlen(shown));
        assert_null(strstr(shown, "\\x"));
        assert_true(strlen(shown) > 1000 && strlen(shown) < 1024);
    }
    memset(text, '\x1b', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    const char *shown = message(text);
    assert_true(strlen(shown) < 1024);
    for (const char *c = shown; *c; c++) assert_true(*c >= ' ');
}

static char logged[2000];
static void on_log(void *user, ln_level level, const char *text) {
    (void)user, (void)level;
    (void)snprintf(logged, sizeof logged, "%s", text);
}

static void the_log_is_printable(void **state) {
    (void)state;
    ln_log_set(on_log, NULL);
    ln_log(LN_LOG_WARN, "adapter_config.json: %s", "\x1b]0;title\a \xc2\x9bm\n");
    ln_log_set(NULL, NULL);
    assert_string_equal(logged, "adapter_config.json: \\u001b]0;title\\u0007 \\u009bm ");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_are_printable),
                                       cmocka_unit_test(long_messages_are_cut),
                                       cmocka_unit_test(the_log_is_printable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
