/* Files of requests and of answers, without an engine: which lines are rejected, what is found again, and
 * what a file of answers that was left at any byte becomes. */
/* run: quick */
#include "../base/cm.h"

#include "base/file.h"
#include "batch/batch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], in_path[100], out_path[100], state_path[100];
static const batch_binding binding = {"d1", "m1", "fast"};

static void write_file(const char *path, const char *text, size_t bytes) {
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(text, 1, bytes, f) == bytes && fclose(f) == 0);
}

static void write_in(const char *text) { write_file(in_path, text, strlen(text)); }

#define LINE(id) \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"}}"

/* ---- requests ---- */

static void lines_found(void **state) {
    (void)state;
    batch_input in;
    batch_line line;
    ln_error err;
    char *text;
    size_t bytes, i;
    write_in("\xef\xbb\xbf" LINE("a") "\r\n\n   \n" LINE("\\u0062\\n") "\n" LINE("c"));
    assert_int_equal(batch_input_open(&in, in_path, &err), LN_OK);
    assert_int_equal(in.n, 3);
    static const char *const ids[] = {"a", "b\n", "c"};
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(batch_input_find(&in, ids[k], strlen(ids[k]), &i, &err), LN_OK);
        assert_int_equal(i, k);
        assert_int_equal(batch_input_line(&in, k, &text, &bytes, &err), LN_OK);
        assert_int_equal(batch_line_read(&line, text, bytes, &err), LN_OK);
        assert_string_equal(line.custom_id.data, ids[k]);
        assert_string_equal(line.method.data, "POST");
        assert_string_equal(line.url.data, "/v1/completions");
        assert_int_equal(line.body_bytes, strlen("{\"prompt\":\"x\"}"));
        assert_memory_equal(line.body, "{\"prompt\":\"x\"}", line.body_bytes);
        batch_line_free(&line);
        ln_free(text);
    }
    assert_int_equal(batch_input_find(&in, "d", 1, &i, &err), LN_OK);
    assert_true(i == SIZE_MAX);
    batch_input_close(&in);
}

static void lines_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"", "found none"},
        {"\n\n \n", "found none"},
        {LINE("a") "\n{\n", "line 2: JSON: byte 1"},
        {"\n" LINE("a") "\n" LINE("b") "\n" LINE("a"), "line 4: the custom_id 'a'"},
        {LINE("a") "\n" LINE("\\u0061"), "line 2: the custom_id 'a'"},
        {"[]", "line 1: expected an object"},
        {"5", "line 1: expected an object"},
        {LINE("a") LINE("b"), "line 1: JSON: byte"},
        {LINE(""), "line 1: \"custom_id\""},
        {LINE("a\\u0000"), "line 1: \"custom_id\""},
        {"{\"custom_id\":5,\"method\":\"POST\",\"url\":\"\",\"body\":{}}", "\"custom_id\": expected a text, "
                                                                           "found 5"},
        {"{\"method\":\"POST\",\"url\":\"\",\"body\":{}}", "expected a \"custom_id\""},
        {"{\"custom_id\":\"a\",\"url\":\"\",\"body\":{}}", "expected a \"method\""},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"body\":{}}", "expected a \"url\""},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"\"}", "expected a \"body\""},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"\",\"body\":[]}", "\"body\": expected an "
                                                                               "object"},
        {"{\"custom_id\":\"a\",\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"\",\"body\":{}}", "found it "
                                                                                                   "twice"},
        {"{\"custom_id\":\"a\xff\"}", "line 1: JSON: byte"},
        {"\xff\xfe{", "UTF-16LE"},
    };
    for (size_t k = 0; k < LN_COUNT(rows); k++) {
        batch_input in;
        ln_error err;
        write_in(rows[k].text);
        if (batch_input_open(&in, in_path, &err) != LN_EINVALID) fail_msg("taken: %s", rows[k].text);
        if (!strstr(err.message, rows[k].said) || !strstr(err.message, in_path))
            fail_msg("'%s' lacks '%s'", err.message, rows[k].said);
        batch_input_close(&in);
    }
}

/* Many requests: each is found again, and one more with an existing id is rejected. */
static void many_lines(void **state) {
    (void)state;
    enum { MANY = 20000 };
    ln_str s = {0};
    batch_input in;
    ln_error err;
    for (int k = 0; k < MANY; k++)
        ln_str_addf(&s,
                    "{\"custom_id\":\"request-%d\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{}}\n",
                    k);
    uint64_t before = ln_mem_bytes();
    write_file(in_path, s.data, s.len);
    assert_int_equal(batch_input_open(&in, in_path, &err), LN_OK);
    assert_true(ln_mem_bytes() - before < MANY * 64); /* offsets and hashes, no bodies */
    for (int k = 0; k < MANY; k += 7) {
        char id[40];
        size_t i;
        int n = snprintf(id, sizeof id, "request-%d", k);
        assert_int_equal(batch_input_find(&in, id, (size_t)n, &i, &err), LN_OK);
        assert_int_equal(i, k);
    }
    batch_input_close(&in);
    ln_str_adds(&s, LINE("request-777"));
    write_file(in_path, s.data, s.len);
    assert_int_equal(batch_input_open(&in, in_path, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "line 20001: the custom_id 'request-777' is that of request 778"));
    batch_input_close(&in);
    ln_str_free(&s);
}

static void changed_requests(void **state) {
    (void)state;
    batch_input in;
    ln_error err;
    char *text;
    size_t bytes;
    write_in(LINE("a") "\n");
    assert_int_equal(batch_input_open(&in, in_path, &err), LN_OK);
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, in_path, times, 0), 0);
    assert_int_equal(batch_input_line(&in, 0, &text, &bytes, &err), LN_ECHANGED);
    batch_input_close(&in);
    assert_int_equal(batch_input_open(&in, dir, &err), LN_EINVALID); /* a directory */
    batch_input_close(&in);
    assert_int_equal(batch_input_open(&in, "/nonexistent/in", &err), LN_EIO);
    batch_input_close(&in);
}

/* ---- answers ---- */

static const char answer_a[] = "{\"id\":\"1\",\"custom_id\":\"a\",\"response\":{},\"error\":null}\n",
                  answer_b[] = "{\"id\":\"2\",\"custom_id\":\"b\\u00e9\",\"response\":{},\"error\":{\"code\":"
                               "\"x\"}}\n";

static void open_in(batch_input *in) {
    ln_error err;
    write_in(LINE("a") "\n" LINE("b\xc3\xa9") "\n" LINE("c") "\n");
    if (batch_input_open(in, in_path, &err) != LN_OK) fail_msg("%s", err.message);
}

static size_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (size_t)st.st_size : SIZE_MAX;
}

/* Opens OUT with the binding and asserts status and message. */
static void open_out(batch_output *o, batch_input *in, const batch_binding *to, bool force, ln_status want,
                     const char *said) {
    ln_error err = {0};
    ln_status st = batch_output_open(o, out_path, in, to, force, &err);
    if (st != want || (want != LN_OK && !strstr(err.message, said)))
        fail_msg("status %d: %s", st, err.message);
    if (st != LN_OK) batch_output_close(o);
}

static void drop_files(void) {
    (void)unlink(out_path);
    (void)unlink(state_path);
}

static void one_course(void **state) {
    (void)state;
    batch_input in;
    batch_output o;
    ln_error err;
    drop_files();
    open_in(&in);
    open_out(&o, &in, &binding, false, LN_OK, "");
    assert_int_equal(size_of(out_path), 0);
    assert_true(size_of(state_path) != SIZE_MAX);
    assert_int_equal(batch_output_add(&o, answer_a, strlen(answer_a), &err), LN_OK);
    assert_int_equal(batch_output_add(&o, answer_b, strlen(answer_b), &err), LN_OK);
    batch_output_close(&o);
    open_out(&o, &in, &binding, false, LN_OK, "");
    assert_true(in.done[0] && in.done[1] && !in.done[2]);
    assert_int_equal(o.n_failed, 1);
    assert_int_equal(batch_output_finish(&o, &err), LN_OK);
    batch_output_close(&o);
    assert_true(size_of(state_path) == SIZE_MAX);
    assert_int_equal(size_of(out_path), strlen(answer_a) + strlen(answer_b));
    open_out(&o, &in, &binding, false, LN_EIO, "exists already");
    assert_int_equal(size_of(out_path), strlen(answer_a) + strlen(answer_b));
    batch_input_close(&in);
}

/* A file that ends at any byte continues behind its complete lines. */
static void torn_anywhere(void **state) {
    (void)state;
    char both[400];
    size_t n_a = strlen(answer_a), n = n_a + strlen(answer_b);
    batch_input in;
    batch_output o;
    ln_error err;
    (void)snprintf(both, sizeof both, "%s%s", answer_a, answer_b);
    open_in(&in);
    for (size_t k = 0; k <= n; k++) {
        drop_files();
        open_out(&o, &in, &binding, false, LN_OK, "");
        batch_output_close(&o);
        write_file(out_path, both, k);
        memset(in.done, 0, in.n);
        open_out(&o, &in, &binding, false, LN_OK, "");
        assert_int_equal(in.done[0], k >= n_a);
        assert_int_equal(in.done[1], k == n);
        size_t kept = k == n ? n : k >= n_a ? n_a : 0;
        assert_int_equal(size_of(out_path), kept);
        assert_int_equal(batch_output_add(&o, "{}\n", 3, &err), LN_OK);
        assert_int_equal(size_of(out_path), kept + 3);
        batch_output_close(&o);
    }
    batch_input_close(&in);
}

static void other_bindings(void **state) {
    (void)state;
    batch_input in;
    batch_output o;
    ln_error err;
    drop_files();
    open_in(&in);
    open_out(&o, &in, &binding, false, LN_OK, "");
    assert_int_equal(batch_output_add(&o, answer_a, strlen(answer_a), &err), LN_OK);
    batch_output_close(&o);
    open_out(&o, &in, &(batch_binding){"d2", "m1", "fast"}, false, LN_EINVALID, "other requests");
    open_out(&o, &in, &(batch_binding){"d1", "m2", "fast"}, false, LN_EINVALID, "another model");
    open_out(&o, &in, &(batch_binding){"d1", "m1", "slow"}, false, LN_EINVALID,
             "begun with 'fast', and this is 'slow'");
    assert_int_equal(size_of(out_path), strlen(answer_a)); /* nothing was lost */
    write_file(state_path, "{", 1);
    open_out(&o, &in, &binding, false, LN_EINVALID, ".state");
    write_file(state_path, "{}", 2);
    open_out(&o, &in, &binding, false, LN_EINVALID, "expected the state");
    memset(in.done, 0, in.n);
    open_out(&o, &in, &(batch_binding){"d1", "m1", "slow"}, true, LN_OK, "");
    assert_int_equal(size_of(out_path), 0);
    assert_false(in.done[0]);
    batch_output_close(&o);
    open_out(&o, &in, &(batch_binding){"d1", "m1", "slow"}, false, LN_OK, "");
    batch_output_close(&o);
    batch_input_close(&in);
}

static void strange_answers(void **state) {
    (void)state;
    static const char *const rows[] = {"{}\n", "5\n", "not JSON\n", "{\"custom_id\":\"z\"}\n",
                                       "{\"custom_id\":\"a\"}\n{\"custom_id\":\"a\"}\n"};
    batch_input in;
    batch_output o;
    open_in(&in);
    for (size_t k = 0; k < LN_COUNT(rows); k++) {
        drop_files();
        memset(in.done, 0, in.n);
        open_out(&o, &in, &binding, false, LN_OK, "");
        batch_output_close(&o);
        write_file(out_path, rows[k], strlen(rows[k]));
        open_out(&o, &in, &binding, false, LN_EINVALID, k == 4 ? "line 2: expected" : "line 1: expected");
        assert_int_equal(size_of(out_path), strlen(rows[k]));
    }
    batch_input_close(&in);
}

static void one_writer(void **state) {
    (void)state;
    batch_input in;
    batch_output o, other;
    drop_files();
    open_in(&in);
    open_out(&o, &in, &binding, false, LN_OK, "");
    open_out(&other, &in, &binding, false, LN_EIO, "another process");
    open_out(&other, &in, &binding, true, LN_EIO, "another process");
    batch_output_close(&o);
    open_out(&o, &in, &binding, false, LN_OK, "");
    batch_output_close(&o);
    batch_input_close(&in);
}

static void no_place(void **state) {
    (void)state;
    batch_input in;
    batch_output o;
    ln_error err = {0};
    drop_files();
    open_in(&in);
    assert_int_equal(batch_output_open(&o, in_path, &in, &binding, true, &err), LN_EUSAGE);
    batch_output_close(&o);
    assert_true(size_of(in_path) > 0);
    assert_int_equal(batch_output_open(&o, dir, &in, &binding, true, &err), LN_EIO);
    batch_output_close(&o);
    assert_int_equal(batch_output_open(&o, "/dev/null", &in, &binding, true, &err), LN_EIO);
    batch_output_close(&o);
    assert_int_equal(batch_output_open(&o, "/nonexistent/out", &in, &binding, false, &err), LN_EIO);
    batch_output_close(&o);
    write_file(out_path, "my poem\n", 8);
    open_out(&o, &in, &binding, false, LN_EIO, "no unfinished file of answers");
    assert_int_equal(size_of(out_path), 8);
    write_file(state_path, "{}", 2);
    write_file(out_path, "", 0);
    assert_int_equal(rename(in_path, state_path), 0); /* the state would replace the requests */
    in.path = state_path;
    open_out(&o, &in, &binding, true, LN_EUSAGE, "file of the requests");
    batch_input_close(&in);
}

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-batch-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(in_path, sizeof in_path, "%s/in", dir);
    (void)snprintf(out_path, sizeof out_path, "%s/out", dir);
    (void)snprintf(state_path, sizeof state_path, "%s/out.state", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    drop_files();
    (void)unlink(in_path);
    return rmdir(dir); /* fails if a temporary file was left */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_found),    cmocka_unit_test(lines_refused),
                                       cmocka_unit_test(many_lines),     cmocka_unit_test(changed_requests),
                                       cmocka_unit_test(one_course),     cmocka_unit_test(torn_anywhere),
                                       cmocka_unit_test(other_bindings), cmocka_unit_test(strange_answers),
                                       cmocka_unit_test(one_writer),     cmocka_unit_test(no_place)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
