/* Helpers of the tests of `linnet chat` at a terminal. */
#ifndef LN_TESTS_TALK_H
#define LN_TESTS_TALK_H

#include "pty.h"

#define HI        "Hello!"
#define HI_ANSWER "Hi! What can I do for you?"

/* Returns the conversation as /save writes it: a list of messages. The caller frees it. */
static json_t *saved(void) {
    static const char file[] = "talk.json";
    char line[300];
    json_t *doc;
    ln_error err;
    (void)unlink(at(0, file));
    (void)snprintf(line, sizeof line, "/save %s\r", at(0, file));
    type(line);
    until(" saved to ");
    until_prompt();
    if (ln_json_load_file(&doc, at(0, file), 1 << 20, &err) != LN_OK) fail_msg("%s", err.message);
    (void)unlink(at(0, file));
    return doc;
}

static const char *content(const json_t *doc, size_t i, const char *role) {
    const json_t *m = json_array_get(json_object_get(doc, "messages"), i);
    assert_string_equal(text_of(m, "role"), role);
    return text_of(m, "content");
}
static size_t n_messages(const json_t *doc) { return json_array_size(json_object_get(doc, "messages")); }

/* Asserts that the last message of the user is `text`. */
static void sent(const char *text) {
    json_t *doc = saved();
    assert_true(n_messages(doc) >= 2);
    assert_string_equal(content(doc, n_messages(doc) - 2, "user"), text);
    json_decref(doc);
}

static void leave(void) {
    type("\x04");
    assert_int_equal(stand_up(), 0);
    assert_non_null(strstr(tty.raw.data, "\033[?2004l")); /* bracketed paste is off again: the terminal is
                                                             restored */
}

static int clean(void **state) {
    static const char *const files[] = {"talk.json", "kept.json", "state/linnet/history"}, *const dirs[] = {
                                                                                               "state/linnet",
                                                                                               "state"};
    ln_str_free(&tty.raw);
    for (size_t i = 0; i < LN_COUNT(files); i++) (void)unlink(at(0, files[i]));
    for (size_t i = 0; i < LN_COUNT(dirs); i++) (void)rmdir(at(0, dirs[i]));
    return remove_dir(state);
}

#endif
