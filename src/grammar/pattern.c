/* Regular expressions of JSON schemas (ECMA-262 as far as it describes regular languages) as grammars.
 *
 * Supported: literals, ., classes, \d \w \s and their complements, escapes, groups, alternatives, greedy and
 * lazy quantifiers, ^ and $. Refused: back references, look-around (but see pattern_ahead.c), \b, \p, flags.
 *
 * ^ and $ are read as bytes that no text has: the beginning of the text is marked by GR_BEGIN and its end by
 * GR_FINISH, so that they may stand anywhere in the expression. */
#include "grammar_build.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 256, MOST_GROUPS = 64, MOST_CODE_POINT = 0x10ffff, MOST_COUNT = 65535 };

typedef struct reader {
    ln_grammar *g;
    const char *text;
    size_t bytes, at;
    gr_spelling how;
    int depth;
    ln_error *err;
} reader;
/* An expression, and how often it repeats one character; max 0: it is not of this kind. */
typedef struct part {
    gr_node node, character;
    uint32_t min, max;
} part;
typedef struct class {
    gr_points ranges[MOST_RANGES];
    size_t n;
} class;

static ln_status refuse(const reader *r, const char *what) {
    char shown[80];
    return ln_fail(r->err, LN_EINVALID, "the pattern '%s': character %zu: %s",
                   ln_excerpt(shown, r->text, r->bytes), r->at + 1, what);
}

static bool at_end(const reader *r) { return r->at >= r->bytes; }
static int peek(const reader *r, size_t ahead) {
    return r->at + ahead < r->bytes ? (unsigned char)r->text[r->at + ahead] : -1;
}
static bool take(reader *r, char c) {
    if (peek(r, 0) != (unsigned char)c) return false;
    r->at++;
    return true;
}

/* ---- classes ---- */

static ln_status add_range(reader *r, class *k, uint32_t lo, uint32_t hi) {
    if (lo > hi) return refuse(r, "the range of a class ends before it begins");
    if (k->n == MOST_RANGES) return refuse(r, "the class has too many ranges");
    k->ranges[k->n++] = (gr_points){lo, hi};
    return LN_OK;
}

static int by_begin(const void *a, const void *b) {
    const gr_points *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Sorts the ranges and joins those that touch. */
static void tidy(class *k) {
    size_t n = 0;
    qsort(k->ranges, k->n, sizeof *k->ranges, by_begin);
    for (size_t i = 0; i < k->n; i++) {
        if (n > 0 && k->ranges[i].lo <= k->ranges[n - 1].hi + 1)
            k->ranges[n - 1].hi = LN_MAX(k->ranges[n - 1].hi, k->ranges[i].hi);
        else k->ranges[n++] = k->ranges[i];
    }
    k->n = n;
}

static void negate(class *k) {
    class out = {.n = 0};
    uint32_t from = 0;
    tidy(k);
    for (size_t i = 0; i < k->n; i++) {
        if (k->ranges[i].lo > from) out.ranges[out.n++] = (gr_points){from, k->ranges[i].lo - 1};
        from = k->ranges[i].hi + 1;
    }
    if (from <= MOST_CODE_POINT && out.n < MOST_RANGES)
        out.ranges[out.n++] = (gr_points){from, MOST_CODE_POINT};
    *k = out;
}

/* Adds the class of \d, \w, \s or a complement, or of the point. False: `letter` names none. */
static bool add_named(class *k, int letter) {
    static const gr_points digit[] = {{'0', '9'}}, word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const gr_points space[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                      {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    static const gr_points line[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    static const struct {
        int letter;
        const gr_points *ranges;
        size_t n;
        bool negated;
    } named[] = {{'d', digit, LN_COUNT(digit), false}, {'D', digit, LN_COUNT(digit), true},
                 {'w', word, LN_COUNT(word), false},   {'W', word, LN_COUNT(word), true},
                 {'s', space, LN_COUNT(space), false}, {'S', space, LN_COUNT(space), true},
                 {'.', line, LN_COUNT(line), true}};
    for (size_t i = 0; i < LN_COUNT(named); i++) {
        if (named[i].letter != letter) continue;
        class one = {.n = named[i].n};
        memcpy(one.ranges, named[i].ranges, one.n * sizeof *one.ranges);
        if (named[i].negated) negate(&one);
        if (k->n + one.n > MOST_RANGES) return false;
        memcpy(k->ranges + k->n, one.ranges, one.n * sizeof *one.ranges);
        k->n += one.n;
        return true;
    }
    return false;
}

/* The same for the letter after a backslash, where a point is a point. */
static bool adds_escape(class *k, int letter) { return letter > 0 && letter != '.' && add_named(k, letter); }

/* ---- escapes ---- */

static ln_status hexadecimal(reader *r, size_t n, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < n; i++, r->at++) {
        const int c = peek(r, 0);
        const int v = c >= '0' && c <= '9'                 ? c - '0'
                      : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                           : -1;
        if (c < 0 || v < 0) return refuse(r, "expected a hexadecimal digit");
        *out = *out * 16 + (uint32_t)v;
    }
    return LN_OK;
}

/* Reads \u0041 and \u{1F600}, after the u. A pair of surrogates is one character. */
static ln_status unicode_escape(reader *r, uint32_t *out) {
    uint32_t low;
    if (take(r, '{')) {
        size_t n = 0;
        while (peek(r, n) >= 0 && peek(r, n) != '}') n++;
        if (n < 1 || n > 6) return refuse(r, "expected 1 to 6 hexadecimal digits and a brace");
        LN_TRY(hexadecimal(r, n, out));
        if (!take(r, '}')) return refuse(r, "expected a closing brace");
    } else {
        LN_TRY(hexadecimal(r, 4, out));
        if (*out >= 0xd800 && *out < 0xdc00 && peek(r, 0) == '\\' && peek(r, 1) == 'u') {
            r->at += 2;
            LN_TRY(hexadecimal(r, 4, &low));
            if (low < 0xdc00 || low > 0xdfff)
                return refuse(r, "expected the second half of a surrogate pair");
            *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (*out > MOST_CODE_POINT || (*out >= 0xd800 && *out < 0xe000)) return refuse(r, "this is no character");
    return LN_OK;
}

/* Reads an escape of one character, after the backslash. */
static ln_status escape(reader *r, bool in_class, uint32_t *out) {
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v\0";
    const int c = peek(r, 0);
    if (c < 0) return refuse(r, "a backslash ends the pattern");
    r->at++;
    const char *known = strchr(from, c);
    *out = (uint32_t)c;
    if (known && !(c == '0' && peek(r, 0) >= '0' && peek(r, 0) <= '9')) {
        *out = (uint32_t)to[known - from];
        return LN_OK;
    }
    if (c == 'x') return hexadecimal(r, 2, out);
    if (c == 'u') return unicode_escape(r, out);
    if (c == 'b' && in_class) {
        *out = '\b';
        return LN_OK;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80) {
        r->at--;
        return refuse(r, "this escape is not supported (only \\d \\w \\s \\D \\W \\S, \\t \\n \\r \\f \\v "
                         "\\0, \\x41, "
                         "\\u0041 and punctuation)");
    }
    return LN_OK;
}

static ln_status literal(reader *r, uint32_t *out) {
    const int n = ln_utf8_get(r->text + r->at, r->bytes - r->at, out);
    if (n == 0) return refuse(r, "this is no valid UTF-8");
    r->at += (size_t)n;
    return LN_OK;
}

/* One member of a class; *single: it is a character, which may begin a range. */
static ln_status class_member(reader *r, class *k, uint32_t *c, bool *single) {
    *single = true;
    if (!take(r, '\\')) return literal(r, c);
    if (adds_escape(k, peek(r, 0))) {
        r->at++;
        *single = false;
        return LN_OK;
    }
    return escape(r, true, c);
}

/* Reads a class, after its bracket. */
static ln_status read_class(reader *r, class *k) {
    const bool negated = take(r, '^');
    while (!take(r, ']')) {
        uint32_t lo, hi;
        bool single, second;
        if (at_end(r)) return refuse(r, "the class has no end");
        LN_TRY(class_member(r, k, &lo, &single));
        if (!single) continue;
        hi = lo;
        if (peek(r, 0) == '-' && peek(r, 1) >= 0 && peek(r, 1) != ']') {
            r->at++;
            LN_TRY(class_member(r, k, &hi, &second));
            if (!second) return refuse(r, "a range of a class ends with a class");
        }
        LN_TRY(add_range(r, k, lo, hi));
    }
    if (negated) negate(k);
    else tidy(k);
    return LN_OK;
}

/* ---- expressions ---- */

static gr_node marking(const reader *r, unsigned mark) { return gr_byte_range(r->g, mark, mark); }

static ln_status alternatives(reader *r, gr_node *out);

/* Reads a group, after its parenthesis. */
static ln_status group(reader *r, part *out) {
    if (take(r, '?')) {
        (void)take(r, 'P');
        if (take(r, '<') && peek(r, 0) != '=' && peek(r, 0) != '!') {
            while (!at_end(r) && peek(r, 0) != '>') r->at++;
            r->at++;
        } else if (!take(r, ':')) {
            return refuse(r,
                          "only groups (...), (?:...) and (?<name>...) are supported here; look-ahead only "
                          "after the ^ that begins the pattern");
        }
    }
    if (++r->depth > MOST_GROUPS) return refuse(r, "groups are nested too deep");
    *out = (part){.character = GR_EMPTY};
    LN_TRY(alternatives(r, &out->node));
    r->depth--;
    return take(r, ')') ? LN_OK : refuse(r, "the group has no end");
}

static ln_status atom(reader *r, part *out) {
    class k = {.n = 0};
    uint32_t c = 0;
    *out = (part){.character = GR_EMPTY};
    if (take(r, '(')) return group(r, out);
    if (take(r, '^') || take(r, '$')) {
        out->node = marking(r, r->text[r->at - 1] == '^' ? GR_BEGIN : GR_FINISH);
        return LN_OK;
    }
    if (take(r, '[')) {
        LN_TRY(read_class(r, &k));
    } else if (take(r, '.')) {
        (void)add_named(&k, '.');
    } else if (take(r, '\\')) {
        if (adds_escape(&k, peek(r, 0))) r->at++;
        else {
            LN_TRY(escape(r, false, &c));
            LN_TRY(add_range(r, &k, c, c));
        }
    } else {
        if (strchr("*+?", peek(r, 0))) return refuse(r, "there is nothing to repeat");
        LN_TRY(literal(r, &c));
        LN_TRY(add_range(r, &k, c, c));
    }
    out->node = out->character = gr_spelt(r->g, r->how, k.ranges, k.n);
    out->min = out->max = 1;
    return LN_OK;
}

/* Reads a decimal count; false: there is none here. */
static bool count(const reader *r, size_t *ahead, uint32_t *out) {
    const size_t from = *ahead;
    for (*out = 0; peek(r, *ahead) >= '0' && peek(r, *ahead) <= '9' && *out <= MOST_COUNT; ++*ahead)
        *out = *out * 10 + (uint32_t)(peek(r, *ahead) - '0');
    return *ahead > from;
}

/* Reads {n}, {n,} or {n,m}; *found is false where the brace is a literal. */
static ln_status braces(reader *r, uint32_t *min, uint32_t *max, bool *found) {
    size_t ahead = 1;
    *found = false;
    if (!count(r, &ahead, min)) return LN_OK;
    *max = *min;
    if (peek(r, ahead) == ',') {
        ahead++;
        if (!count(r, &ahead, max)) *max = GR_UNBOUNDED;
    }
    if (peek(r, ahead) != '}') return LN_OK;
    if (*min > MOST_COUNT || (*max != GR_UNBOUNDED && *max > MOST_COUNT))
        return refuse(r, "a count above 65,535 is not supported");
    if (*min > *max) return refuse(r, "the counts are in the wrong order");
    r->at += ahead + 1;
    *found = true;
    return LN_OK;
}

static ln_status repeated(reader *r, part *p) {
    uint32_t min = 1, max = 1;
    bool found = true;
    if (take(r, '*')) min = 0, max = GR_UNBOUNDED;
    else if (take(r, '+')) max = GR_UNBOUNDED;
    else if (take(r, '?')) min = 0;
    else if (peek(r, 0) == '{') LN_TRY(braces(r, &min, &max, &found));
    else found = false;
    if (!found) return LN_OK;
    (void)take(r, '?'); /* lazy: the same texts */
    p->node = gr_repeat(r->g, p->node, min, max);
    if (p->max > 0) p->min = min, p->max = max;
    return LN_OK;
}

/* The parts of a sequence, which are joined from the last to the first: so a long sequence has no deep
 * nesting. */
typedef struct parts {
    part *part;
    size_t n, cap;
} parts;

static ln_status read_parts(reader *r, parts *all) {
    while (!at_end(r) && peek(r, 0) != '|' && peek(r, 0) != ')') {
        void *grown = all->part;
        part p;
        LN_TRY(atom(r, &p));
        LN_TRY(repeated(r, &p));
        LN_TRY(ln_grow(&grown, &all->cap, all->n + 1, sizeof *all->part, r->err));
        all->part = grown;
        all->part[all->n++] = p;
    }
    return LN_OK;
}

static ln_status sequence(reader *r, gr_node *out) {
    parts all = {0};
    const ln_status st = read_parts(r, &all);
    *out = GR_EMPTY;
    for (size_t i = all.n; i-- > 0;) *out = gr_seq(r->g, all.part[i].node, *out);
    ln_free(all.part);
    return st;
}

static ln_status alternatives(reader *r, gr_node *out) {
    LN_TRY(sequence(r, out));
    while (take(r, '|')) {
        gr_node more;
        LN_TRY(sequence(r, &more));
        *out = gr_alt(r->g, *out, more);
    }
    return LN_OK;
}

ln_status gr_marked_pattern(ln_grammar *g, const char *pattern, size_t bytes, bool anchored, gr_node *out,
                            ln_error *err) {
    static const gr_points every = {0, MOST_CODE_POINT};
    reader r = {.g = g, .text = pattern, .bytes = bytes, .how = GR_RAW, .err = err};
    gr_node before, after, all;
    LN_TRY(alternatives(&r, &all));
    if (!at_end(&r)) return refuse(&r, "this parenthesis has no beginning");
    if (anchored) {
        before = gr_optional(g, marking(&r, GR_BEGIN));
        after = gr_optional(g, marking(&r, GR_FINISH));
    } else { /* anything, the marks included */
        before =
            gr_alt(g, gr_characters(g, &every, 1), gr_alt(g, marking(&r, GR_BEGIN), marking(&r, GR_FINISH)));
        before = after = gr_repeat(g, before, 0, GR_UNBOUNDED);
    }
    *out = gr_all(g, before, all, after);
    return gr_check(g, err);
}

/* ---- patterns that only their length makes large ---- */

/* Whether all parts but the last are single characters, after a ^ unless `anchored`; then the last one may
 * be repeated with a counter instead of a state for each length. *to: the parts before a $. */
static bool is_counted(const reader *r, const parts *all, bool anchored, size_t *to) {
    const gr_node begin = marking(r, GR_BEGIN), end = marking(r, GR_FINISH);
    size_t from = all->n > 0 && all->part[0].node == begin;
    *to = all->n;
    if (all->n > from && all->part[all->n - 1].node == end) --*to;
    if (!anchored && (from == 0 || *to == all->n)) return false;
    for (size_t i = from; i < *to; i++)
        if (all->part[i].max == 0 || (i + 1 < *to && all->part[i].min != all->part[i].max)) return false;
    return *to > from;
}

ln_status gr_counted_pattern(ln_grammar *g, const char *pattern, size_t bytes, gr_spelling how, bool anchored,
                             uint32_t min, uint32_t max, bool *counted, gr_node *out, ln_error *err) {
    reader r = {.g = g, .text = pattern, .bytes = bytes, .how = how, .err = err};
    parts all = {0};
    uint32_t fixed = 0;
    size_t to = 0;
    const ln_status st = read_parts(&r, &all);
    *counted = st == LN_OK && at_end(&r) && is_counted(&r, &all, anchored, &to);
    if (*counted) {
        part *last = &all.part[to - 1];
        for (size_t i = 0; i + 1 < to; i++) fixed += all.part[i].max; /* a mark has none */
        if (last->max > 0) {
            last->min = LN_MAX(last->min, min - LN_MIN(min, fixed));
            if (max != GR_UNBOUNDED) last->max = fixed > max ? 0 : LN_MIN(last->max, max - fixed);
            *out = last->min > last->max ? GR_NOTHING : gr_repeat(g, last->character, last->min, last->max);
        }
        for (size_t i = to - 1; i-- > 0;)
            if (all.part[i].max > 0) *out = gr_seq(g, all.part[i].node, *out);
    }
    ln_free(all.part);
    return st;
}
