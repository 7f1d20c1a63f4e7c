/* Regular expressions of JSON schemas (ECMA-262 as far as it describes regular languages) as grammars.
 *
 * Supported: literals, ., classes, \d \w \s and their complements, escapes, groups, alternatives, greedy and
 * lazy quantifiers, and ^ and $ at the ends of the outermost alternatives. Refused: back references,
 * look-around, \b, \p, flags. */
#include "grammar_build.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 256, MOST_GROUPS = 64, MOST_CODE_POINT = 0x10ffff, MOST_COUNT = 65535 };

typedef struct reader {
    ln_grammar *g;
    const char *text;
    size_t bytes, at;
    gr_spelling how;
    bool anchored;
    uint32_t least, most; /* characters that are wanted */
    int depth;
    ln_error *err;
} reader;
/* An expression with the least and the most characters that it matches. */
typedef struct part {
    gr_node node;
    uint32_t shortest, longest;
    gr_node repeated; /* the one character that is repeated, else GR_EMPTY */
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

static uint32_t sum(uint32_t a, uint32_t b) { return a > GR_UNBOUNDED - b ? GR_UNBOUNDED : a + b; }
static uint32_t times(uint32_t a, uint32_t b) {
    if (a == 0 || b == 0) return 0;
    return a > GR_UNBOUNDED / b ? GR_UNBOUNDED : a * b;
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

static part one_character(const reader *r, const class *k) {
    return (part){gr_spelt(r->g, r->how, k->ranges, k->n), 1, 1, GR_EMPTY};
}

static ln_status alternatives(reader *r, part *out);

/* Reads a group, after its parenthesis. */
static ln_status group(reader *r, part *out) {
    if (take(r, '?')) {
        (void)take(r, 'P');
        if (take(r, '<') && peek(r, 0) != '=' && peek(r, 0) != '!') {
            while (!at_end(r) && peek(r, 0) != '>') r->at++;
            r->at++;
        } else if (!take(r, ':')) {
            return refuse(r, "only groups (...), (?:...) and (?<name>...) are supported");
        }
    }
    if (++r->depth > MOST_GROUPS) return refuse(r, "groups are nested too deep");
    LN_TRY(alternatives(r, out));
    r->depth--;
    return take(r, ')') ? LN_OK : refuse(r, "the group has no end");
}

static ln_status atom(reader *r, part *out) {
    class k = {.n = 0};
    uint32_t c = 0;
    if (take(r, '(')) return group(r, out);
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
        if (strchr("^$", peek(r, 0)))
            return refuse(r, "^ and $ are supported at the ends of the outermost alternatives only");
        LN_TRY(literal(r, &c));
        LN_TRY(add_range(r, &k, c, c));
    }
    *out = one_character(r, &k);
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
    const gr_node one = p->shortest == 1 && p->longest == 1 ? p->node : GR_EMPTY;
    *p = (part){gr_repeat(r->g, p->node, min, max), times(p->shortest, min), times(p->longest, max), one};
    return LN_OK;
}

/* Any characters, before or after a pattern that is not anchored. */
static part anything(const reader *r) {
    const gr_node c = gr_spelt(r->g, r->how, &(gr_points){0, MOST_CODE_POINT}, 1);
    return (part){gr_repeat(r->g, c, 0, GR_UNBOUNDED), 0, GR_UNBOUNDED, c};
}

/* The parts of a sequence, which are joined from the last to the first: so a long sequence has no deep
 * nesting. */
typedef struct parts {
    part *part;
    size_t n, cap;
} parts;

static ln_status append(const reader *r, parts *all, part p) {
    void *grown = all->part;
    LN_TRY(ln_grow(&grown, &all->cap, all->n + 1, sizeof *all->part, r->err));
    all->part = grown;
    all->part[all->n++] = p;
    return LN_OK;
}

static ln_status read_parts(reader *r, parts *all) {
    const bool outermost = r->depth == 0;
    bool begins = r->anchored || !outermost, ends = begins;
    if (outermost && take(r, '^')) begins = true;
    if (!begins) LN_TRY(append(r, all, anything(r)));
    while (!at_end(r) && peek(r, 0) != '|' && peek(r, 0) != ')') {
        part p;
        if (outermost && peek(r, 0) == '$' && (peek(r, 1) < 0 || peek(r, 1) == '|')) {
            r->at++;
            ends = true;
            continue;
        }
        LN_TRY(atom(r, &p));
        LN_TRY(repeated(r, &p));
        LN_TRY(append(r, all, p));
    }
    return ends ? LN_OK : append(r, all, anything(r));
}

/* Bounds the repetitions of the one part that decides the length, if there is one. */
static void bound_length(const reader *r, parts *all) {
    part *one = NULL;
    uint32_t fixed = 0;
    for (size_t i = 0; i < all->n; i++) {
        part *p = &all->part[i];
        if (p->shortest == p->longest) fixed = sum(fixed, p->shortest);
        else if (one || p->repeated == GR_EMPTY) return;
        else one = p;
    }
    if (!one || fixed > r->most) return;
    const uint32_t min = LN_MAX(one->shortest, r->least - LN_MIN(r->least, fixed));
    const uint32_t max = r->most == GR_UNBOUNDED ? one->longest : LN_MIN(one->longest, r->most - fixed);
    if (min <= max) *one = (part){gr_repeat(r->g, one->repeated, min, max), min, max, GR_EMPTY};
}

static ln_status sequence(reader *r, part *out) {
    parts all = {0};
    const bool outermost = r->depth == 0;
    const ln_status st = read_parts(r, &all);
    if (st == LN_OK && outermost) bound_length(r, &all);
    *out = (part){GR_EMPTY, 0, 0, GR_EMPTY};
    for (size_t i = all.n; i-- > 0;)
        *out = (part){gr_seq(r->g, all.part[i].node, out->node), sum(out->shortest, all.part[i].shortest),
                      sum(out->longest, all.part[i].longest), GR_EMPTY};
    ln_free(all.part);
    return st;
}

static ln_status alternatives(reader *r, part *out) {
    LN_TRY(sequence(r, out));
    while (take(r, '|')) {
        part p;
        LN_TRY(sequence(r, &p));
        *out = (part){gr_alt(r->g, out->node, p.node), LN_MIN(out->shortest, p.shortest),
                      LN_MAX(out->longest, p.longest), GR_EMPTY};
    }
    return LN_OK;
}

ln_status gr_pattern(ln_grammar *g, const char *pattern, size_t bytes, gr_spelling how, bool anchored,
                     gr_node *out, uint32_t *shortest, uint32_t *longest, ln_error *err) {
    reader r = {.g = g,
                .text = pattern,
                .bytes = bytes,
                .how = how,
                .anchored = anchored,
                .least = *shortest,
                .most = *longest,
                .err = err};
    part all;
    LN_TRY(alternatives(&r, &all));
    if (!at_end(&r)) return refuse(&r, "this parenthesis has no beginning");
    *out = all.node;
    *shortest = all.shortest;
    *longest = all.longest;
    return gr_check(g, err);
}
