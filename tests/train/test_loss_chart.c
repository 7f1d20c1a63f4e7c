/* loss.svg: the smoothed line lies within the losses around it, on both axes and however steeply they fall.
 */
/* run: quick */
#include "../common.h"
#include "train/run_record.h"

#include <math.h>
#include <string.h>

enum { MOST = 3000 };

/* Reads the points of polyline `which`; returns how many. */
static size_t points_of(const char *svg, int which, double x[MOST], double y[MOST]) {
    const char *at = svg;
    size_t n = 0;
    for (int i = 0; i <= which; i++) {
        at = strstr(at, "points=\"");
        assert_non_null(at);
        at += strlen("points=\"");
    }
    for (char *end; *at != '"'; n++, at = end + strspn(end, " ")) {
        assert_true(n < MOST);
        x[n] = strtod(at, &end);
        assert_true(*end == ',');
        y[n] = strtod(end + 1, &end);
    }
    return n;
}

/* Plots the losses; in the picture each point of the smoothed line must lie between the highest and the
 * lowest loss that is plotted near it. */
static void check(const char *name, const train_point *p, size_t n, size_t reach) {
    static double x[MOST], y[MOST], sx[MOST], sy[MOST];
    ln_str s = {0};
    train_chart(&s, p, n, NULL, 0);
    assert_false(s.failed);
    ln_str_add(&s, "", 1);
    const size_t m = points_of(s.data, 0, x, y);
    assert_int_equal(points_of(s.data, 1, sx, sy), m);
    for (size_t i = 0; i < m; i++) {
        double low = y[i], high = y[i];
        for (size_t k = i > reach ? i - reach : 0; k < LN_MIN(m, i + reach + 1); k++)
            low = fmin(low, y[k]), high = fmax(high, y[k]);
        if (!(sx[i] == x[i] && sy[i] >= low - 0.11 && sy[i] <= high + 0.11))
            fail_msg("%s: point %zu: the line is at %.1f, the losses around it from %.1f to %.1f", name, i,
                     sy[i], low, high);
    }
    ln_str_free(&s);
}

static void smoothed_is_near_the_losses(void **state) {
    (void)state;
    static train_point p[MOST];
    static const size_t counts[] = {1, 2, 3, 10, 20, 21, 120, 400, MOST};
    uint64_t seed = 5;
    for (size_t c = 0; c < LN_COUNT(counts); c++) {
        const size_t n = counts[c];
        for (size_t i = 0; i < n; i++) /* from 8 to 0.001, with noise of a factor of e^0.3 */
            p[i] = (train_point){(int64_t)i + 1,
                                 8 * exp(-9.0 * (double)i / (double)n + 0.3 * (double)test_normal(&seed))};
        check("falling", p, n, LN_MAX((size_t)1, n / 50));
        for (size_t i = 0; i < n; i++) p[i].loss = 2 + 0.4 * (double)test_normal(&seed);
        check("level", p, n, LN_MAX((size_t)1, n / 50));
    }
    /* a loss that is not finite is left out */
    for (size_t i = 0; i < 120; i++)
        p[i] = (train_point){(int64_t)i + 1, i % 7 == 3 ? NAN : 3.0 - (double)i / 60};
    check("with gaps", p, 120, 3);
}

/* A few early losses do not decide how the rest of the run is plotted. */
static void early_losses_do_not_stay(void **state) {
    (void)state;
    static train_point p[120];
    static double x[MOST], y[MOST];
    ln_str s = {0};
    for (size_t i = 0; i < LN_COUNT(p); i++) p[i] = (train_point){(int64_t)i + 1, i < 20 ? 8 : 0.0015};
    train_chart(&s, p, LN_COUNT(p), NULL, 0);
    ln_str_add(&s, "", 1);
    assert_int_equal(points_of(s.data, 1, x, y), LN_COUNT(p));
    for (size_t i = 30; i < LN_COUNT(p); i++) assert_true(y[i] == y[119]);
    ln_str_free(&s);
}

/* A chart of several runs has a smoothed line for each and a dashed one for its validations, with the points
 * of loss.svg; names are text of XML, cut to the column. */
static void several_runs(void **state) {
    (void)state;
    static train_point p[2][60], v[3];
    static double x[MOST], y[MOST];
    ln_str s = {0};
    for (size_t i = 0; i < LN_COUNT(p[0]); i++)
        for (int r = 0; r < 2; r++) p[r][i] = (train_point){(int64_t)i + 1, 3 - r - (double)i / 60};
    for (size_t i = 0; i < LN_COUNT(v); i++) v[i] = (train_point){20 * (int64_t)(i + 1), 2.5};
    const train_run_points runs[] = {{"a<b&c", p[0], v, 60, 3},
                                     {"a-name-that-is-much-too-long-for-its-column", p[1], NULL, 60, 0}};
    train_chart_of_runs(&s, runs, LN_COUNT(runs));
    ln_str_add(&s, "", 1);
    assert_int_equal(points_of(s.data, 0, x, y), 60);
    assert_int_equal(points_of(s.data, 1, x, y), 3);
    assert_true(y[0] == y[2]);
    assert_int_equal(points_of(s.data, 2, x, y), 60);
    assert_non_null(strstr(s.data, ">a&lt;b&amp;c<"));
    assert_non_null(strstr(s.data, ">a-name-that-is-much-too-lo...<"));
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(smoothed_is_near_the_losses),
                                       cmocka_unit_test(early_losses_do_not_stay),
                                       cmocka_unit_test(several_runs)};
    return cmocka_run_group_tests_name("loss_chart", tests, NULL, NULL);
}
