/* loss.svg: the loss of training and validation against the step; and a chart that compares runs, each with
 * its smoothed line and, dashed with points, its validations in a colour of its own.
 *
 * The loss of each step is noisy, so that its line is thin and pale, with its moving mean over it; the
 * losses of validations are points with a line, the lowest one labelled. The axis of the loss is linear, or
 * logarithmic if the losses span more than a factor of eight. Means are taken on the scale of the axis, and
 * the window of the moving mean is centred on its step: so the smoothed line lies within the losses around
 * it, however steeply they fall. A line has at most 1,000 points: of longer runs the mean of equal
 * stretches. */
#include "../base/c_locale.h"
#include "../base/elementary.h"
#include "run_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 400, LEFT = 64, RIGHT = 24, TOP = 52, BOTTOM = 48, MOST_POINTS = 1000 };

typedef struct chart {
    ln_str *s;
    double low, high; /* of the axis of the loss */
    int64_t last;     /* step at the right end */
    bool logarithmic;
    int top; /* of the area of lines; the legend is above it */
} chart;

static double x_of(const chart *c, double step) {
    return LEFT + (WIDTH - LEFT - RIGHT) * step / (double)c->last;
}
static double scaled(const chart *c, double v) { return c->logarithmic ? ln_log64(v) : v; }
/* v: a loss on the scale of the axis. */
static double y_of_scaled(const chart *c, double v) {
    const double a = scaled(c, c->low), b = scaled(c, c->high);
    return c->top + (HEIGHT - c->top - BOTTOM) * (b - LN_MAX(a, LN_MIN(v, b))) / (b - a);
}
static double y_of(const chart *c, double loss) {
    return y_of_scaled(c, scaled(c, LN_MAX(c->low, LN_MIN(loss, c->high))));
}

/* ---- ranges ---- */

static void widen(chart *c, const train_point *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(p[i].loss)) continue;
        c->low = LN_MIN(c->low, p[i].loss);
        c->high = LN_MAX(c->high, p[i].loss);
        c->last = LN_MAX(c->last, p[i].step);
    }
}

/* 1, 2 or 5 times a power of ten, at least v. */
static double round_step(double v) {
    double power = 1;
    while (power < v) power *= 10;
    while (power >= v * 10 && power > 1e-12) power /= 10;
    return power / 5 >= v ? power / 5 : power / 2 >= v ? power / 2 : power;
}

static void set_axis(chart *c) {
    if (c->high - c->low < 1e-9) c->high = c->low + 1e-3 + fabs(c->low) / 10;
    c->logarithmic = c->low > 0 && c->high > 8 * c->low;
    if (c->logarithmic) {
        c->low /= 1.15, c->high *= 1.15;
        return;
    }
    const double step = round_step((c->high - c->low) / 5);
    c->low = floor(c->low / step) * step;
    c->high = ceil(c->high / step) * step;
}

/* ---- axes ---- */

static void text_at(const chart *c, double x, double y, const char *anchor, const char *colour,
                    const char *text) {
    ln_str_addf(c->s, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor,
                colour, text);
}

static void grid_line(const chart *c, double v) {
    char label[32];
    const double y = y_of(c, v);
    (void)ln_snprintf(label, sizeof label, "%.4g", v);
    ln_str_addf(c->s, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", LEFT, y,
                WIDTH - RIGHT, y);
    text_at(c, LEFT - 8, y + 4, "end", "#555", label);
}

static void loss_axis(const chart *c) {
    if (!c->logarithmic) {
        const double step = round_step((c->high - c->low) / 5);
        for (int i = 0; c->low + i * step <= c->high + step / 2; i++)
            grid_line(c, fabs(c->low + i * step) < step / 1e6 ? 0 : c->low + i * step);
        return;
    }
    static const double marks[] = {1, 2, 5};
    for (double power = 1e-9; power < 1e9; power *= 10)
        for (size_t i = 0; i < LN_COUNT(marks); i++)
            if (marks[i] * power >= c->low && marks[i] * power <= c->high) grid_line(c, marks[i] * power);
}

static void step_axis(const chart *c) {
    double step = round_step((double)c->last / 6);
    if (step < 1) step = 1;
    for (double v = 0; v <= (double)c->last; v += step) {
        char label[32];
        (void)ln_snprintf(label, sizeof label, "%.0f", v);
        ln_str_addf(c->s, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#999\"/>\n", x_of(c, v),
                    HEIGHT - BOTTOM, x_of(c, v), HEIGHT - BOTTOM + 4);
        text_at(c, x_of(c, v), HEIGHT - BOTTOM + 18, "middle", "#555", label);
    }
    ln_str_addf(c->s, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#999\"/>\n", LEFT,
                HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    text_at(c, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10, "middle", "#555", "step");
}

/* ---- lines ---- */

/* A sum of the finite losses of consecutive points, on the scale of the axis. */
typedef struct window {
    double sum;
    size_t n;
} window;
static void change(const chart *c, window *w, const train_point *p, bool adds) {
    if (!isfinite(p->loss)) return;
    w->sum += adds ? scaled(c, p->loss) : -scaled(c, p->loss);
    w->n += adds ? 1 : (size_t)-1;
}

/* Adds a line through the points: means of stretches of `every` points, each of which is the mean of up to
 * `reach` points before it, itself and as many after it (reach 0: the points themselves). */
static void line(const chart *c, const train_point *p, size_t n, size_t reach, const char *style) {
    const size_t every = (n + MOST_POINTS - 1) / MOST_POINTS;
    window near = {0};
    double sum = 0;
    size_t m = 0, from = 0, to = 0; /* near: of the points [from, to) */
    ln_str_addf(c->s, "<polyline fill=\"none\" %s points=\"", style);
    for (size_t i = 0; i < n; i++) {
        const size_t r = LN_MIN(reach, LN_MIN(i, n - 1 - i));
        while (to < i + r + 1) change(c, &near, &p[to++], true);
        while (from < i - r) change(c, &near, &p[from++], false);
        if (!isfinite(p[i].loss)) continue;
        sum += near.sum / (double)near.n;
        if (++m < every && i + 1 < n) continue;
        ln_str_addf(c->s, "%.1f,%.1f ", x_of(c, (double)p[i].step), y_of_scaled(c, sum / (double)m));
        sum = 0, m = 0;
    }
    ln_str_adds(c->s, "\"/>\n");
}

/* How many steps on each side the smoothed line takes: a fiftieth of the run. */
static size_t reach_of(size_t n_steps) { return LN_MAX((size_t)1, LN_MIN(n_steps / 50, (size_t)100)); }

static void valid_points(const chart *c, const train_point *p, size_t n) {
    size_t best = 0;
    char label[64];
    for (size_t i = 0; i < n; i++) {
        if (p[i].loss < p[best].loss) best = i;
        ln_str_addf(c->s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#d1495b\"/>\n",
                    x_of(c, (double)p[i].step), y_of(c, p[i].loss));
    }
    const double x = x_of(c, (double)p[best].step), y = y_of(c, p[best].loss);
    ln_str_addf(c->s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"6\" fill=\"none\" stroke=\"#d1495b\"/>\n", x, y);
    (void)ln_snprintf(label, sizeof label, "%.4g at step %lld", p[best].loss, (long long)p[best].step);
    text_at(c, x, y - 12, x > WIDTH - 140 ? "end" : x < LEFT + 60 ? "start" : "middle", "#d1495b", label);
}

static void legend(const chart *c, bool has_valid) {
    ln_str_adds(c->s, "<line x1=\"64\" y1=\"28\" x2=\"88\" y2=\"28\" stroke=\"#1f6f8b\" "
                      "stroke-width=\"2.2\"/>\n");
    text_at(c, 94, 32, "start", "#333", "training loss, smoothed");
    if (!has_valid) return;
    ln_str_adds(c->s,
                "<line x1=\"260\" y1=\"28\" x2=\"284\" y2=\"28\" stroke=\"#d1495b\" stroke-width=\"1.6\"/>"
                "<circle cx=\"272\" cy=\"28\" r=\"3\" fill=\"#d1495b\"/>\n");
    text_at(c, 290, 32, "start", "#333", "validation loss");
}

/* Begins a chart whose ranges are known: the background and the axes. */
static void begin(chart *c) {
    set_axis(c);
    ln_str_addf(c->s,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" "
                "fill=\"#fff\"/>\n",
                WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    loss_axis(c);
    step_axis(c);
}

/* ---- several runs ---- */

enum { NAME_COLUMNS = 3, ROW = 20 };
static const char *const colours[TRAIN_MOST_RUNS] = {"#1f6f8b", "#d1495b", "#3a7d44", "#e07b00",
                                                     "#6a4c93", "#8d5524", "#c2185b", "#546e7a"};

/* Appends a name as text of XML, cut to what a column of the legend holds. */
static void add_name(ln_str *s, const char *name) {
    enum { MOST = 26 };
    size_t n = 0;
    for (; *name && n < MOST; name++, n++) {
        while (((unsigned char)*name & 0xc0) == 0x80 && name[1]) ln_str_add(s, name++, 1);
        if (*name == '&') ln_str_adds(s, "&amp;");
        else if (*name == '<') ln_str_adds(s, "&lt;");
        else if (*name == '>') ln_str_adds(s, "&gt;");
        else ln_str_add(s, name, 1);
    }
    if (*name) ln_str_adds(s, "...");
}

static void run_lines(const chart *c, const train_run_points *r, size_t i) {
    char style[120];
    const double x = LEFT + (WIDTH - LEFT - RIGHT) / NAME_COLUMNS * (double)(i % NAME_COLUMNS),
                 y = 28 + ROW * (double)(i / NAME_COLUMNS);
    (void)snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2.2\"", colours[i]);
    line(c, r->steps, r->n_steps, reach_of(r->n_steps), style);
    (void)snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"1.4\" stroke-dasharray=\"5 4\"",
                   colours[i]);
    if (r->n_valids > 0) line(c, r->valids, r->n_valids, 0, style);
    for (size_t k = 0; k < r->n_valids; k++)
        ln_str_addf(c->s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    x_of(c, (double)r->valids[k].step), y_of(c, r->valids[k].loss), colours[i]);
    ln_str_addf(c->s,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2.2\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" fill=\"#333\">",
                x, y, x + 24, y, colours[i], x + 30, y + 4);
    add_name(c->s, r->name);
    ln_str_adds(c->s, "</text>\n");
}

void train_chart_of_runs(ln_str *s, const train_run_points *runs, size_t n) {
    chart c = {.s = s, .low = INFINITY, .high = -INFINITY, .last = 1};
    bool any_valid = false;
    for (size_t i = 0; i < n; i++) {
        widen(&c, runs[i].steps, runs[i].n_steps);
        widen(&c, runs[i].valids, runs[i].n_valids);
        any_valid = any_valid || runs[i].n_valids > 0;
    }
    if (!(c.low <= c.high)) return;
    c.top = TOP + ROW * (int)((n - 1) / NAME_COLUMNS);
    begin(&c);
    for (size_t i = 0; i < n; i++) run_lines(&c, &runs[i], i);
    text_at(&c, WIDTH - RIGHT, HEIGHT - 10, "end", "#555",
            any_valid ? "training loss, smoothed; dashed: validation loss" : "training loss, smoothed");
    ln_str_adds(s, "</svg>\n");
}

/* ---- one run ---- */

void train_chart(ln_str *s, const train_point *steps, size_t n_steps, const train_point *valids,
                 size_t n_valids) {
    chart c = {.s = s, .low = INFINITY, .high = -INFINITY, .last = 1, .top = TOP};
    widen(&c, steps, n_steps);
    widen(&c, valids, n_valids);
    if (!(c.low <= c.high)) return;
    begin(&c);
    line(&c, steps, n_steps, 0, "stroke=\"#9fc8d6\" stroke-width=\"1\"");
    line(&c, steps, n_steps, reach_of(n_steps), "stroke=\"#1f6f8b\" stroke-width=\"2.2\"");
    if (n_valids > 0) {
        line(&c, valids, n_valids, 0, "stroke=\"#d1495b\" stroke-width=\"1.6\"");
        valid_points(&c, valids, n_valids);
    }
    legend(&c, n_valids > 0);
    ln_str_adds(s, "</svg>\n");
}
