/* The memory of `bench`: it keeps to --memory, its measurement of the machine included, and says in one line
 * what it leaves out for that. */
/* run: quick */
#include "spawn.h"

#include <sys/resource.h>

#define QUICK S("--threads"), S("1"), S("--reps"), S("1"), S("--prefill"), S("16")

/* The largest resident memory of the processes so far, which must be the runs of this test: it comes first.
 */
static int64_t peak_of_children(void) {
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &use), 0);
    return (int64_t)use.ru_maxrss * 1024;
}

static void the_roofline_keeps_to_the_limit(void **state) {
    (void)state;
    const int64_t limit = 200 << 20;
    expect(RUN(S("bench"), S(SMALL), S("--memory"), S("200M"), QUICK), 0,
           "the roofline is not measured: measuring how fast memory is read needs 536.9 MB");
    said_once(last);
    assert_non_null(strstr(last->err, " are available (--memory); "));
    assert_non_null(strstr(last->out, "roofline: not measured"));
    json_t *o = json_of(RUN(S("bench"), S(SMALL), S("--memory"), S("200M"), QUICK, S("--json")));
    const json_t *row = json_array_get(json_object_get(o, "rows"), 0);
    assert_true(json_is_null(json_object_get(o, "read_gb_s")));
    assert_true(json_is_null(json_object_get(o, "peak_flop_s")));
    assert_true(json_is_null(json_object_get(row, "share")));
    assert_true(json_is_null(json_object_get(row, "ceiling_tok_s")));
    assert_true(json_real_value(json_object_get(row, "tok_s")) > 0);
    assert_true(int_of(o, "peak_bytes") <= limit);
    json_decref(o);
    if (!getenv("LN_SANITIZED")) assert_true(peak_of_children() <= limit);
}

/* What is compared with --ceiling must be measured: rejected at once. */
static void a_ceiling_needs_the_roofline(void **state) {
    (void)state;
    expect(RUN(S("bench"), S(SMALL), S("--memory"), S("200M"), S("--ceiling"), S("/dev/null"), QUICK), 6,
           "measuring how fast memory is read needs");
}

/* Streams that do not fit are left out; the rest is measured. The limit leaves 32 contexts (20 MB) beyond the
 * plan of one, because the pages of libraries that become resident while the rows before are measured count
 * too; how many that are differs between machines. */
static void streams_that_do_not_fit_are_left_out(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) skip(); /* a sanitizer's own memory counts, and grows */
    char memory[64];
    json_t *plan =
        json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("320"), S("--threads"), S("1"), S("--json")));
    int64_t peak = int_of(plan, "peak_bytes"), kv = int_of(plan, "kv_bytes");
    json_decref(plan);
    (void)snprintf(memory, sizeof memory, "--memory=%lld", (long long)(peak + 32 * kv));
    json_t *o = json_of(RUN(S("bench"), S(TINY), memory, QUICK, S("--streams"), S("64,1"), S("--json")));
    assert_non_null(strstr(last->err, "warning: 64 streams are not measured: "));
    assert_non_null(strstr(last->err, "allowed by --memory"));
    const json_t *rows = json_object_get(o, "rows");
    assert_int_equal(json_array_size(rows), 3);
    assert_int_equal(int_of(json_array_get(rows, 2), "streams"), 1);
    assert_true(int_of(o, "peak_bytes") <= peak + 32 * kv);
    json_decref(o);
}

/* --ctx limits what is measured: a flag that asks for more is rejected, the streams' depth is less. */
static void a_context_limits_the_rows(void **state) {
    (void)state;
    static const char said[] = "the context (--ctx) has 128 positions";
    expect(RUN(S("bench"), S(TINY), S("--ctx"), S("128"), S("--prefill"), S("129")), 2, said);
    expect(RUN(S("bench"), S(TINY), S("--ctx"), S("128"), S("--depth"), S("65")), 2, said);
    json_t *o =
        json_of(RUN(S("bench"), S(TINY), S("--ctx"), S("80"), S("--threads"), S("1"), S("--reps"), S("1"),
                    S("--memory"), S("200M"), S("--depth"), S("16"), S("--streams"), S("2"), S("--json")));
    const json_t *rows = json_object_get(o, "rows");
    assert_int_equal(json_array_size(rows), 3);
    assert_int_equal(int_of(json_array_get(rows, 0), "n"), 80);
    assert_int_equal(int_of(json_array_get(rows, 2), "depth"), 16);
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_roofline_keeps_to_the_limit), cmocka_unit_test(a_ceiling_needs_the_roofline),
        cmocka_unit_test(a_context_limits_the_rows), cmocka_unit_test(streams_that_do_not_fit_are_left_out)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
