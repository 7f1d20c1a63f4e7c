/* Chat templates compared with the reference: recorded cases, one JSON object a line with a request and
 * the result of Jinja2.
 *
 * templates.jsonl (in git, made by tools/jinja_programs.py) has random programs;
 * ../shared/data/tok/templates has the templates of real models with conversations, and upstream's unit
 * tests. A line with "error" must fail; the message of raise_exception is compared. */
/* run: slow asan */
#include "chat/chat_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <dirent.h>

#define SHARED LN_ROOT "/../shared/data/tok/templates"

/* Returns the string of a member of the object, which the caller frees; NULL if there is no such member or
 * it is no string. Uses the pull reader, since keys may contain U+0000. */
static char *member(const char *line, size_t bytes, const char *key, size_t *n) {
    ln_json j;
    bool more = false;
    char *out = NULL;
    ln_json_open(&j, "line", line, bytes, LN_JSON_MAX_DEPTH);
    assert_int_equal(ln_json_want(&j, LN_J_OBJECT, NULL), LN_OK);
    while (ln_json_key(&j, &more, NULL) == LN_OK && more) {
        bool found = ln_json_is(&j, key);
        assert_int_equal(ln_json_next(&j, NULL), LN_OK);
        if (found && j.type == LN_J_STRING) {
            out = ln_strndup(j.text, j.text_bytes);
            *n = j.text_bytes;
            break;
        }
        assert_int_equal(ln_json_skip(&j, NULL), LN_OK);
    }
    ln_json_close(&j);
    return out;
}

typedef struct counts {
    size_t n, bad;
} counts;

static void one(const ln_model_template *t, const char *line, size_t bytes, counts *c) {
    size_t n_want = 0, n_error = 0, n_message = 0;
    char *want = member(line, bytes, "expected", &n_want), *error = member(line, bytes, "error", &n_error),
         *message = member(line, bytes, "message", &n_message);
    ln_rendered r;
    ln_error err = {0};
    ln_status st = ln_model_template_request(t, line, bytes, &r, &err);
    bool good = st == LN_OK ? want && r.text.bytes == n_want && memcmp(r.text.text, want, n_want) == 0
                            : error != NULL;
    if (st != LN_OK && error && strcmp(error, "raise_exception") == 0)
        good = r.text.refused && r.text.n_refused == n_message &&
               memcmp(r.text.refused, message, n_message) == 0;
    if (st != LN_OK && !strstr(err.message, "line ")) good = false; /* an error gives a line number */
    c->n++;
    c->bad += !good;
    if (!good && c->bad < 6) {
        char a[80], b[80];
        printf("case %zu: wanted '%s', found '%s'\n  %.600s\n", c->n,
               want ? ln_excerpt(a, want, n_want) : error,
               st == LN_OK ? ln_excerpt(b, r.text.text, r.text.bytes) : err.message, line);
    }
    ln_rendered_free(&r);
    ln_free(want);
    ln_free(error);
    ln_free(message);
}

static size_t file(const ln_model_template *t, const char *path) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    counts c = {0, 0};
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s: cannot be read", path);
    while ((n = getline(&line, &cap, f)) > 0) one(t, line, (size_t)n - (line[n - 1] == '\n'), &c);
    free(line);
    fclose(f);
    if (c.bad > 0) fail_msg("%s: %zu of %zu cases differ", path, c.bad, c.n);
    return c.n;
}

/* Cases of tools/jinja_features.py: integers beyond 64 bits, format(), attributes of every type of value. */
static void recorded_features(void **state) {
    (void)state;
    assert_true(file(NULL, LN_ROOT "/tests/jinja/features.jsonl") > 300);
}

static void recorded_programs(void **state) {
    (void)state;
    size_t n = file(NULL, LN_ROOT "/tests/jinja/templates.jsonl");
    assert_true(n > 300);
    printf("%zu programs\n", n);
}

static void real_templates(void **state) {
    (void)state;
    DIR *d = opendir(SHARED);
    size_t n = 0, n_templates = 0;
    if (!d) {
        printf("SKIP: no %s: real templates are NOT tested\n", SHARED);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[700], cases[700];
        size_t k = strlen(e->d_name);
        if (k < 7 || strcmp(e->d_name + k - 6, ".jinja") != 0) continue;
        ln_model_template *t = NULL;
        ln_error err = {0};
        (void)snprintf(path, sizeof path, "%s/%s", SHARED, e->d_name);
        (void)snprintf(cases, sizeof cases, "%s/%.*s.cases.jsonl", SHARED, (int)(k - 6), e->d_name);
        if (ln_model_template_open_file(&t, path, &err) != LN_OK) fail_msg("%s", err.message);
        n += file(t, cases);
        n_templates++;
        ln_model_template_close(&t);
    }
    closedir(d);
    n += file(NULL, SHARED "/jinja_unit.jsonl") + file(NULL, SHARED "/upstream_chat.jsonl");
    printf("%zu cases of %zu real templates and upstream's own\n", n, n_templates);
    assert_true(n_templates >= 10 && n > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_programs),
                                       cmocka_unit_test(recorded_features), cmocka_unit_test(real_templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
