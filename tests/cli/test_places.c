/* The places in which models are looked for: the message for a bundled model that is missing names every
 * place, the man page has them too, and `ls` reports a cache that it cannot read. */
/* run: quick */
#include "spawn.h"

/* ---- the bundled model ---- */

static void copy_program(const char *to) {
    char *data;
    size_t bytes;
    assert_int_equal(ln_read_file(LINNET, 1u << 30, &data, &bytes, NULL), LN_OK);
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    close(fd);
    ln_free(data);
}

static void all_places_of_tiny_are_named(void **state) {
    (void)state;
    static const char *const places[] = {"/a/models/tiny", "/a/share/linnet/models/tiny",
                                         "/share/linnet/models/tiny"};
    assert_int_equal(mkdir(at(0, "a"), 0700), 0);
    assert_int_equal(mkdir(at(0, "a/bin"), 0700), 0);
    copy_program(at(0, "a/bin/linnet"));
    program = at(0, "a/bin/linnet");
    outcome *o = RUN(S("run"), S("tiny"), S("-p"), S("x"));
    program = LINNET;
    if (o->code == 0) {
        print_message("SKIP: a bundled model is installed here\n");
    } else {
        expect(o, 5, "tiny: the bundled model is in none of its places (");
        for (size_t i = 0; i < LN_COUNT(places); i++) {
            char want[300];
            (void)snprintf(want, sizeof want, "%s%s", dir, places[i]);
            if (!strstr(o->err, want)) fail_msg("%s is not named: %s", want, o->err);
        }
        assert_non_null(strstr(o->err, ", /")); /* and the configured directory */
        assert_null(strstr(o->err, ".."));
    }
    assert_int_equal(unlink(at(0, "a/bin/linnet")), 0);
    assert_int_equal(rmdir(at(0, "a/bin")), 0);
    assert_int_equal(rmdir(at(0, "a")), 0);
    expect(RUN(S("help"), S("--man"), S("run")), 0, NULL);
    assert_non_null(strstr(last->out, "../models/tiny, ../share/linnet/models/tiny and "));
    assert_non_null(strstr(last->out, "../../share/linnet/models/tiny"));
}

/* ---- ls ---- */

/* Drops the right to read everything, if the tests run as root. */
static void as_nobody(void) {
    setenv("HF_HUB_CACHE", at(0, "outer/hub"), 1);
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(97);
}

static void ls_reports_a_cache_that_it_cannot_read(void **state) {
    (void)state;
    static const struct {
        const char *name;
        mode_t mode;
    } rows[] = {{"outer", 0}, {"outer/hub", 0}, {"outer/hub", 0100}};
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(mkdir(at(0, "outer"), 0755), 0);
    assert_int_equal(mkdir(at(0, "outer/hub"), 0755), 0);
    before_exec = as_nobody;
    expect(RUN(S("ls")), 0, NULL);
    assert_non_null(strstr(last->out, "/models/tiny"));
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        assert_int_equal(chmod(at(0, rows[i].name), rows[i].mode), 0);
        expect(RUN(S("ls")), 5, "Permission denied");
        assert_non_null(strstr(last->err, "outer/hub"));
        assert_non_null(strstr(last->out, "/models/tiny")); /* what the other place holds */
        expect(RUN(S("ls"), S("--json")), 5, "Permission denied");
        assert_int_equal(last->out_bytes, 0);
        expect(RUN(S("ls"), at(1, "outer/hub")), 5, "Permission denied");
        assert_int_equal(chmod(at(0, rows[i].name), 0755), 0);
    }
    before_exec = NULL;
    assert_int_equal(rmdir(at(0, "outer/hub")), 0);
    assert_int_equal(rmdir(at(0, "outer")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_places_of_tiny_are_named),
                                       cmocka_unit_test(ls_reports_a_cache_that_it_cannot_read)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
