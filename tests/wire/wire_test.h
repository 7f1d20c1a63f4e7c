/* A target for tests of request and answer bodies: a vocabulary of 300 tokens without a model. Ids below 256
 * are single bytes; 256 is the special token <bos>, 257 " the", 258 the first two bytes of the euro sign,
 * 259 its last one. */
#ifndef LN_TESTS_WIRE_H
#define LN_TESTS_WIRE_H

#include "../base/cm.h"

#include "base/json.h"
#include "wire/wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void test_token(void *user, int32_t id, bool *special, ln_str *out) {
    char c = (char)id;
    (void)user;
    *special = id == 256;
    if (id < 256) ln_str_add(out, &c, 1);
    if (id == 256) ln_str_adds(out, "<bos>");
    if (id == 257) ln_str_adds(out, " the");
    if (id == 258) ln_str_adds(out, "\xe2\x82");
    if (id == 259) ln_str_adds(out, "\xac");
}

static void test_text(void *user, const int32_t *ids, size_t n, ln_str *out) {
    bool special;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != 256) test_token(user, ids[i], &special, out);
}

static const char *const test_names[] = {"base", "poet", "/home/me/models/base"};

static const char *test_format; /* of calls of tools; NULL: none */
static bool test_reasons;       /* the model reasons, and its template has no switch for that */
static bool test_null, test_texts, test_single; /* what the template takes of earlier calls */

static wire_target test_target(void) {
    return (wire_target){
        .names = test_names,
        .n_names = 3,
        .n_vocab = 300,
        .has_template = true,
        .always_reasons = test_reasons,
        .tool_format = test_format,
        .null_tool_content = test_null,
        .text_tool_arguments = test_texts,
        .single_tool_call = test_single,
        .sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .n_max = -1},
        .token = test_token,
        .text = test_text};
}

static wire_target target;
static wire_request q;
static wire_error why;
static int told; /* messages of the log */
static char told_last[400];

static void on_log(void *user, ln_level level, const char *text) {
    (void)user, (void)level;
    told++;
    (void)snprintf(told_last, sizeof told_last, "%s", text);
}

/* Reads a body; the request of the call before is closed. */
static ln_status read_body(wire_kind kind, const char *body) {
    wire_request_close(&q);
    target = test_target();
    return wire_request_open(&q, &target, kind, body, strlen(body), &why);
}

/* Reads `members` together with a message or a prompt. */
static ln_status read_with(wire_kind kind, const char *members) {
    char body[8192];
    (void)snprintf(body, sizeof body, "{%s%s%s}",
                   kind == WIRE_CHAT ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
                                     : "\"prompt\":\"Hi\"",
                   members[0] ? "," : "", members);
    return read_body(kind, body);
}

static void good(wire_kind kind, const char *members) {
    ln_status st = read_with(kind, members);
    if (st != LN_OK) fail_msg("%s: %d: %s", members, st, why.error.message);
}

/* Asserts that the body is rejected with 400, and that the error names `param`. */
static void bad(wire_kind kind, const char *members, const char *param, const char *text) {
    ln_status st = read_with(kind, members);
    if (st != LN_EINVALID || why.error.code != st) fail_msg("%s: status %d", members, st);
    if (strcmp(why.param, param) != 0)
        fail_msg("%s: param '%s', expected '%s': %s", members, why.param, param, why.error.message);
    if (!strstr(why.error.message, text)) fail_msg("%s: '%s' lacks '%s'", members, why.error.message, text);
    assert_string_equal(why.type, "invalid_request_error");
    assert_true(why.http == 400 || why.http == 404);
    assert_true(why.code != NULL);
}

static int close_last(void **state) {
    (void)state;
    wire_request_close(&q);
    return 0;
}

#endif
