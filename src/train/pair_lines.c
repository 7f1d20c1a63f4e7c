/* Lines of preferences (contract: pair_lines.h). */
#include "pair_lines.h"

#include "../base/json.h"

#include <stdio.h>

/* The number of messages that both lists begin with, at least one being left of each. */
static size_t common_messages(const json_t *a, const json_t *b) {
    const size_t most = LN_MIN(json_array_size(a), json_array_size(b));
    size_t n = 0;
    while (n + 1 < most && json_equal(json_array_get(a, n), json_array_get(b, n))) n++;
    return n;
}

/* Returns items [from, to) of a list; NULL: out of memory. */
static json_t *part_of(const json_t *list, size_t from, size_t to) {
    json_t *out = json_array();
    for (size_t i = from; out && i < to; i++)
        if (json_array_append(out, json_array_get(list, i)) != 0) json_decref(out), out = NULL;
    return out;
}

static json_t *as_messages(const json_t *prompt) {
    if (json_is_array(prompt)) return json_incref((json_t *)(uintptr_t)prompt);
    return json_pack("[{s:s, s:O}]", "role", "user", "content", prompt);
}

static int add_text(const char *text, size_t bytes, void *user) {
    ln_str_add(user, text, bytes);
    return 0;
}

/* Writes the line of an answer; takes over the references. */
static ln_status put_line(const json_t *line, json_t *prompt, json_t *completion, ln_str *out,
                          ln_error *err) {
    json_t *x = ln_json_copy(line);
    bool ok = x && prompt && completion;
    if (ok) (void)json_object_del(x, "chosen"), (void)json_object_del(x, "rejected");
    ok = ok && json_object_set(x, "prompt", prompt) == 0 &&
         json_object_set(x, "completion", completion) == 0 &&
         json_dump_callback(x, add_text, out, JSON_COMPACT) == 0 && !out->failed;
    json_decref(x);
    json_decref(prompt);
    json_decref(completion);
    return ok ? LN_OK : LN_OOM(err, "a pair of answers");
}

static ln_status bad_line(const char *expected, const json_t *found, ln_error *err) {
    char text[80];
    return ln_fail(err, LN_EINVALID, "expected %s, found %s", expected,
                   found ? ln_json_text(found, text) : "nothing");
}

/* Writes the rows of a tokenised answer; false: out of memory. */
static bool put_rows(const json_t *prompt, const json_t *answer, ln_str *out) {
    json_t *ids = json_array(), *mask = json_array();
    bool ok = ids && mask && json_array_extend(ids, (json_t *)(uintptr_t)prompt) == 0 &&
              json_array_extend(ids, (json_t *)(uintptr_t)answer) == 0;
    for (size_t i = 0; ok && i < json_array_size(ids); i++)
        ok = json_array_append_new(mask, json_integer(i >= json_array_size(prompt))) == 0;
    json_t *line = ok ? json_pack("{s:O, s:O}", "ids", ids, "mask", mask) : NULL;
    ok = line && json_dump_callback(line, add_text, out, JSON_COMPACT) == 0 && !out->failed;
    json_decref(line);
    json_decref(ids);
    json_decref(mask);
    return ok;
}

static ln_status split_rows(const json_t *line, ln_str out[2], ln_error *err) {
    static const char *const names[] = {"prompt_ids", "chosen_ids", "rejected_ids"};
    const json_t *lists[3];
    char expected[60];
    for (int i = 0; i < 3; i++) {
        lists[i] = json_object_get(line, names[i]);
        (void)snprintf(expected, sizeof expected, "\"%s\": a list of token ids", names[i]);
        if (!json_is_array(lists[i])) return bad_line(expected, lists[i], err);
    }
    for (int i = 0; i < 2; i++)
        if (!put_rows(lists[0], lists[i + 1], &out[i])) return LN_OOM(err, "a pair of answers");
    return LN_OK;
}

static ln_status split(const json_t *line, ln_str out[2], ln_error *err) {
    if (json_object_get(line, "chosen_ids")) return split_rows(line, out, err);
    const json_t *prompt = json_object_get(line, "prompt");
    const json_t *answers[2] = {json_object_get(line, "chosen"), json_object_get(line, "rejected")};
    const bool lists = json_is_array(answers[0]);
    for (int i = 0; i < 2; i++)
        if (lists ? json_array_size(answers[i]) == 0 : !json_is_string(answers[i]))
            return bad_line(i ? "\"rejected\": a text or a list of messages, as \"chosen\" is"
                              : "\"chosen\": a text or a list of messages",
                            answers[i], err);
    const size_t n = lists ? common_messages(answers[0], answers[1]) : 0;
    if (n == 0 && !(json_is_string(prompt) || (lists && json_array_size(prompt) > 0)))
        return bad_line(lists ? "\"prompt\": a text or a list of messages, or messages that both lists begin "
                                "with"
                              : "\"prompt\": a text, as \"chosen\" is",
                        prompt, err);
    for (int i = 0; i < 2; i++) {
        json_t *before = n > 0   ? part_of(answers[i], 0, n)
                         : lists ? as_messages(prompt)
                                 : json_incref((json_t *)(uintptr_t)prompt),
               *after = lists ? part_of(answers[i], n, json_array_size(answers[i]))
                              : json_incref((json_t *)(uintptr_t)answers[i]);
        LN_TRY(put_line(line, before, after, &out[i], err));
    }
    return LN_OK;
}

ln_status train_pair_lines(const char *text, size_t bytes, ln_str out[2], ln_error *err) {
    json_t *line = NULL;
    LN_TRY(ln_json_load(&line, "the line", text, bytes, err));
    const ln_status st = json_is_object(line)
                             ? split(line, out, err)
                             : bad_line("an object with \"prompt\", \"chosen\" and \"rejected\"", line, err);
    json_decref(line);
    return st;
}
