/* Patterns of module names by PCRE2. A configuration may come from an untrusted source, so that the steps and
 * the memory of a match are limited. */
#include "name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

enum { MATCH_LIMIT = 1 << 20, DEPTH_LIMIT = 1 << 12, HEAP_LIMIT_KIB = 1 << 10, NEST_LIMIT = 100 };

struct ln_name_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    pcre2_general_context *memory;
    char where[160];
};

static void *counted_alloc(size_t n, void *user) {
    (void)user;
    return ln_alloc(n);
}
static void counted_free(void *p, void *user) {
    (void)user;
    ln_free(p);
}

static ln_status compile(ln_name_pattern *p, const ln_str *text, ln_error *err) {
    int code = 0;
    PCRE2_SIZE at = 0;
    char why[120];
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    if (!context) return LN_OOM(err, "a pattern");
    pcre2_set_parens_nest_limit(context, NEST_LIMIT);
    p->code = pcre2_compile((PCRE2_SPTR)text->data, text->len,
                            PCRE2_UTF | PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, context);
    pcre2_compile_context_free(context);
    if (p->code) return LN_OK;
    if (code == PCRE2_ERROR_HEAP_FAILED) return LN_OOM(err, "a pattern");
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    return ln_fail(err, LN_EINVALID, "%s: expected a regular expression: %s", p->where, why);
}

ln_status ln_name_pattern_open(ln_name_pattern **out, const char *pattern, bool end, const char *where,
                               ln_error *err) {
    ln_name_pattern *p = *out = ln_zalloc(1, sizeof *p);
    ln_str text = {0};
    if (!p) return LN_OOM(err, "a pattern");
    (void)snprintf(p->where, sizeof p->where, "%s", where);
    ln_str_addf(&text, "%s(?:%s)$", end ? "(?:.*\\.)?" : "", pattern);
    p->memory = pcre2_general_context_create(counted_alloc, counted_free, NULL);
    p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
    ln_status st = p->limits && !text.failed ? compile(p, &text, err) : LN_OOM(err, "a pattern");
    if (st == LN_OK) {
        pcre2_set_match_limit(p->limits, MATCH_LIMIT);
        pcre2_set_depth_limit(p->limits, DEPTH_LIMIT);
        pcre2_set_heap_limit(p->limits, HEAP_LIMIT_KIB);
        p->data = pcre2_match_data_create(1, p->memory);
        if (!p->data) st = LN_OOM(err, "a pattern");
    }
    ln_str_free(&text);
    if (st != LN_OK) ln_name_pattern_close(out);
    return st;
}

void ln_name_pattern_close(ln_name_pattern **pattern) {
    ln_name_pattern *p = *pattern;
    *pattern = NULL;
    if (!p) return;
    pcre2_match_data_free(p->data);
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    ln_free(p);
}

ln_status ln_name_matches(const ln_name_pattern *p, const char *name, bool *matches, ln_error *err) {
    char why[120];
    const int n = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->data, p->limits);
    *matches = n >= 0;
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH) return LN_OK;
    if (n == PCRE2_ERROR_NOMEMORY) return LN_OOM(err, "a match");
    pcre2_get_error_message(n, (PCRE2_UCHAR *)why, sizeof why);
    return ln_fail(err, LN_EINVALID, "%s: the pattern takes too long for a name: %s", p->where, why);
}
