/* Translates patterns from Oniguruma's syntax to PCRE2's. The reference compiles a Split or Replace pattern
 * with Oniguruma in its Ruby syntax. PCRE2 shares most of that syntax; one pass rewrites the rest:
 *
 *   \s \S \w \W \h \H \d \D      become explicit sets. PCRE2 counts U+180E as a space and does not
 *                                count marks as word characters; \h is a hexadecimal digit here.
 *   \p{Letter} \p{Alpha} \p{Han} long names, POSIX names, scripts (not script extensions).
 *   \p{^L}                       a negation within the braces.
 *   \p{L}, other categories      gain the characters of Unicode 16 that PCRE2's tables lack.
 *   [a[bc]] [^x\S]               nested sets are flattened, complements in a set become look-aheads.
 *   x{1,2}+ x{2}?                the suffix applies to the group; PCRE2: possessive, lazy.
 *   x{,3}                        the lower bound is 0.
 *   (?m: \b                      Ruby's m is dot-all; word boundaries follow the set for \w.
 *   \u0041 \v                    one code point; a vertical tab.
 *   \X                           the rules of Unicode (regex_cluster.c).
 *
 * A construct without an equivalent (&&, \y, absent groups) is rejected by name. Syntax errors are reported
 * by PCRE2. */
#include "tokenizer_internal.h"

#include <stdio.h>

#define SPACE \
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define HEX "0-9a-fA-F"
enum { GROUPS_MAX = 200 };

typedef struct rewriter {
    ln_str *out;
    const char *what, *p;
    size_t n, at;
    size_t atom; /* offset in out of the last atom; SIZE_MAX: there is none that can be repeated */
    size_t groups[GROUPS_MAX]; /* offsets in out of the open groups */
    size_t n_groups;
} rewriter;

static void put(ln_str *s, const char *text) { ln_str_adds(s, text); }

static ln_status unsupported(const rewriter *r, const char *found, ln_error *err) {
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s.pattern: %s at byte %zu is not supported; rewrite the pattern without it", r->what,
                   found, r->at);
}
static ln_status invalid(const rewriter *r, const char *found, ln_error *err) {
    return ln_fail(err, LN_EINVALID, "%s.pattern: %s at byte %zu", r->what, found, r->at);
}

/* ---- sets: the functions below append the items of a bracketed set ---- */

/* The characters of a category that were assigned after Unicode 14. */
static void newer_items(ln_str *s, const char *cat) {
    size_t n = strlen(cat);
    for (size_t i = 0; i < unicode_n_newer; i++) {
        const unicode_newer *e = &unicode_newer_table[i];
        if (strncmp(e->cat, cat, n) != 0) continue;
        uint32_t last = e->last;
        while (i + 1 < unicode_n_newer && unicode_newer_table[i + 1].first == last + 1 &&
               strncmp(unicode_newer_table[i + 1].cat, cat, n) == 0)
            last = unicode_newer_table[++i].last;
        ln_str_addf(s, "\\x{%x}", e->first);
        if (last > e->first) ln_str_addf(s, "-\\x{%x}", last);
    }
}

static void items_of_category(ln_str *s, const char *cat) {
    ln_str_addf(s, "\\p{%s}", cat);
    newer_items(s, cat);
}

/* \w. Outside sets the reference also counts the superscripts and fractions of Latin-1 as word characters. */
static void items_of_word(ln_str *s, bool inside_set) {
    items_of_category(s, "L");
    items_of_category(s, "M");
    items_of_category(s, "Nd");
    if (!inside_set) put(s, "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}");
    put(s, "\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{"
           "1f189}");
}

static bool compiles(const char *pattern) {
    int code;
    PCRE2_SIZE at;
    pcre2_code *c =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_code_free(c);
    return c != NULL;
}

/* Long and POSIX names of properties, in lower case without spaces, '-' and '_', and their items. A value
 * without a backslash is a general category. */
static const char *const named_sets[][2] = {{"letter", "L"},
                                            {"uppercaseletter", "Lu"},
                                            {"lowercaseletter", "Ll"},
                                            {"titlecaseletter", "Lt"},
                                            {"casedletter", "\\p{L&}"},
                                            {"modifierletter", "Lm"},
                                            {"otherletter", "Lo"},
                                            {"mark", "M"},
                                            {"nonspacingmark", "Mn"},
                                            {"spacingmark", "Mc"},
                                            {"enclosingmark", "Me"},
                                            {"number", "N"},
                                            {"decimalnumber", "Nd"},
                                            {"letternumber", "Nl"},
                                            {"othernumber", "No"},
                                            {"punctuation", "P"},
                                            {"connectorpunctuation", "Pc"},
                                            {"dashpunctuation", "Pd"},
                                            {"openpunctuation", "Ps"},
                                            {"closepunctuation", "Pe"},
                                            {"initialpunctuation", "Pi"},
                                            {"finalpunctuation", "Pf"},
                                            {"otherpunctuation", "Po"},
                                            {"symbol", "S"},
                                            {"mathsymbol", "Sm"},
                                            {"currencysymbol", "Sc"},
                                            {"modifiersymbol", "Sk"},
                                            {"othersymbol", "So"},
                                            {"separator", "Z"},
                                            {"spaceseparator", "Zs"},
                                            {"lineseparator", "Zl"},
                                            {"paragraphseparator", "Zp"},
                                            {"other", "\\p{C}"},
                                            {"control", "Cc"},
                                            {"format", "Cf"},
                                            {"surrogate", "Cs"},
                                            {"privateuse", "Co"},
                                            {"unassigned", "\\p{Cn}"},
                                            {"alpha", "\\p{Alphabetic}"},
                                            {"alphabetic", "\\p{Alphabetic}"},
                                            {"alnum", "\\p{Alphabetic}\\p{Nd}"},
                                            {"upper", "\\p{Uppercase}"},
                                            {"lower", "\\p{Lowercase}"},
                                            {"digit", "Nd"},
                                            {"punct", "P"},
                                            {"space", SPACE},
                                            {"xdigit", HEX},
                                            {"cntrl", "Cc"},
                                            {"any", "\\x{0}-\\x{10ffff}"},
                                            {"ascii", "\\x{0}-\\x{7f}"}};

/* Appends the items of property `name` (n bytes); false when the property is unknown. */
static bool items_of_property(ln_str *s, const char *name, size_t n) {
    char plain[64], test[96];
    size_t m = 0;
    for (size_t i = 0; i < n && m + 1 < sizeof plain; i++)
        if (name[i] != ' ' && name[i] != '_' && name[i] != '-')
            plain[m++] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20 : name[i]);
    plain[m] = '\0';
    if (m == 0 || m + 1 >= sizeof plain) return false;
    if (m <= 2) {
        char cat[3] = {(char)(plain[0] & ~0x20), plain[1], '\0'};
        snprintf(test, sizeof test, "\\p{%s}", cat);
        if (!compiles(test)) return false;
        items_of_category(s, cat);
        return true;
    }
    if (strcmp(plain, "word") == 0) return items_of_word(s, true), true;
    for (size_t i = 0; i < LN_COUNT(named_sets); i++) {
        if (strcmp(plain, named_sets[i][0]) != 0) continue;
        if (named_sets[i][1][0] == '\\' || named_sets[i][1][0] == '0') put(s, named_sets[i][1]);
        else items_of_category(s, named_sets[i][1]);
        if (strncmp(plain, "al", 2) == 0) newer_items(s, "L"); /* alpha, alphabetic, alnum */
        if (strcmp(plain, "alnum") == 0) newer_items(s, "Nd");
        return true;
    }
    for (size_t i = 0; i < m; i++)
        if ((plain[i] < 'a' || plain[i] > 'z') && (plain[i] < '0' || plain[i] > '9')) return false;
    snprintf(test, sizeof test, "\\p{sc:%s}", plain);
    if (!compiles(test)) snprintf(test, sizeof test, "\\p{%s}", plain);
    if (!compiles(test)) return false;
    put(s, test);
    if (strcmp(plain, "han") == 0) put(s, "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}");
    return true;
}

/* If the escape at r->at (a backslash) names a set: appends its items, stores whether it is a complement, and
 * moves r->at after it. Otherwise *is_set is false and r->at stays. */
static ln_status set_escape(rewriter *r, bool inside_set, ln_str *items, bool *is_set, bool *complement,
                            ln_error *err) {
    char c = r->at + 1 < r->n ? r->p[r->at + 1] : '\0', low = (char)(c | 0x20);
    *is_set = true;
    *complement = c == 'S' || c == 'W' || c == 'H' || c == 'D' || c == 'P';
    if (low == 's' && (c == 's' || c == 'S')) put(items, SPACE);
    else if (c == 'w' || c == 'W') items_of_word(items, inside_set);
    else if (c == 'h' || c == 'H') put(items, HEX);
    else if (c == 'd' || c == 'D') items_of_category(items, "Nd");
    else if ((c == 'p' || c == 'P') && r->at + 2 < r->n && r->p[r->at + 2] == '{') {
        size_t from = r->at + 3;
        const char *end = memchr(r->p + from, '}', r->n - from);
        if (!end) return invalid(r, "a property without its closing brace", err);
        size_t next = (size_t)(end - r->p) + 1;
        if (from < next - 1 && r->p[from] == '^') {
            *complement = !*complement;
            from++;
        }
        if (!items_of_property(items, r->p + from, next - 1 - from)) {
            char name[80], text[128];
            snprintf(text, sizeof text, "the property '%s'", ln_excerpt(name, r->p + from, next - 1 - from));
            return unsupported(r, text, err);
        }
        r->at = next;
        return LN_OK;
    } else {
        *is_set = false;
        return LN_OK;
    }
    r->at += 2;
    return LN_OK;
}

/* Translates an escape of one character or one assertion, the same inside and outside sets. */
static ln_status plain_escape(rewriter *r, ln_str *out, ln_error *err) {
    char c = r->at + 1 < r->n ? r->p[r->at + 1] : '\0';
    if (r->at + 1 >= r->n) return invalid(r, "a backslash at the end", err);
    if (c == 'u') {
        if (r->n - r->at < 6) return invalid(r, "\\u without four hexadecimal digits", err);
        ln_str_addf(out, "\\x{%.4s}", r->p + r->at + 2);
        r->at += 6;
        return LN_OK;
    }
    if (c == 'y' || c == 'Y' || c == 'O' || c == 'M' ||
        (c == 'C' && r->at + 2 < r->n && r->p[r->at + 2] == '-')) {
        char name[3] = {'\\', c, '\0'};
        return unsupported(r, name, err);
    }
    if (c == 'v') put(out, "\\x0b");
    else if (c == 'Q' || c == 'E' || c == 'i' || c == 'I' || c == 'j' || c == 'l' || c == 'L' || c == 'm' ||
             c == 'q' || c == 'U')
        ln_str_add(out, &c, 1);
    else if ((unsigned char)c >= 0x80)
        put(out, ""); /* an escaped character beyond ASCII means itself; the caller's loop copies it */
    else {
        ln_str_add(out, "\\", 1);
        ln_str_add(out, &c, 1);
    }
    r->at += (unsigned char)c >= 0x80 ? 1 : 2;
    return LN_OK;
}

/* ---- a bracketed set ---- */

/* The content of a bracketed set: plain items, and complements such as the \S in [a\S], in two notations. */
typedef struct set {
    ln_str items;
    ln_str or_not; /* |[^X]|[^Y]: matches a character of any of the complements */
    ln_str in_all; /* (?=[X])(?=[Y]): matches before a character of none of the complements */
} set;

static void add_complement(set *s, const char *items) {
    ln_str_addf(&s->or_not, "|[^%s]", items);
    ln_str_addf(&s->in_all, "(?=[%s])", items);
}

/* Adds the items of an escape or a POSIX name to the set, as plain items or as a complement. */
static ln_status add_named(rewriter *r, set *s, ln_error *err) {
    ln_str items = {0};
    bool is_set = true, complement = false;
    ln_status st = LN_OK;
    if (r->p[r->at] == '\\') {
        st = set_escape(r, true, &items, &is_set, &complement, err);
    } else { /* [:name:] or [:^name:] */
        size_t from = r->at + 2;
        const char *end = from < r->n ? memchr(r->p + from, ']', r->n - from) : NULL;
        complement = from < r->n && r->p[from] == '^';
        if (complement) from++;
        if (!end || end[-1] != ':' || end - 1 < r->p + from)
            st = invalid(r, "a POSIX set without its end", err);
        else if (end - 1 - (r->p + from) == 5 &&
                 memcmp(r->p + from, "punct", 5) == 0) { /* [:punct:] includes symbols, \p{Punct} does not */
            items_of_category(&items, "P");
            items_of_category(&items, "S");
            r->at = (size_t)(end - r->p) + 1;
        } else if (!items_of_property(&items, r->p + from, (size_t)(end - 1 - (r->p + from))))
            st = unsupported(r, "this POSIX set", err);
        else r->at = (size_t)(end - r->p) + 1;
    }
    if (st == LN_OK && !is_set) st = plain_escape(r, &s->items, err);
    else if (st == LN_OK && items.failed) st = LN_OOM(err, "a pattern");
    else if (st == LN_OK && complement) add_complement(s, items.data);
    else if (st == LN_OK) ln_str_add(&s->items, items.data, items.len);
    ln_str_free(&items);
    return st;
}

/* Reads the items up to and including the closing bracket. */
static ln_status set_body(rewriter *r, set *s, ln_error *err) {
    size_t depth = 1;
    if (r->at < r->n && r->p[r->at] == ']') {
        put(&s->items, "\\]");
        r->at++;
    }
    while (r->at < r->n) {
        char c = r->p[r->at], next = r->at + 1 < r->n ? r->p[r->at + 1] : '\0';
        if (c == '\\' || (c == '[' && next == ':')) {
            LN_TRY(add_named(r, s, err));
            continue;
        }
        if (c == '[' && next == '^') return unsupported(r, "a negated set inside a set", err);
        if (c == '&' && next == '&') return unsupported(r, "an intersection of sets (&&)", err);
        r->at++;
        if (c == '[') depth++;
        else if (c != ']') ln_str_add(&s->items, &c, 1);
        else if (--depth == 0) return LN_OK;
    }
    return invalid(r, "a set without its closing bracket", err);
}

static ln_status take_set(rewriter *r, ln_error *err) {
    set s = {0};
    ln_str *out = r->out;
    r->atom = out->len;
    r->at++;
    bool negated = r->at < r->n && r->p[r->at] == '^';
    if (negated) r->at++;
    ln_status st = set_body(r, &s, err);
    if (s.items.failed || s.or_not.failed || s.in_all.failed) st = LN_OOM(err, "a pattern");
    const char *items = s.items.data ? s.items.data : "";
    if (st == LN_OK && s.items.len == 0 && s.or_not.len == 0) st = invalid(r, "an empty set", err);
    if (st == LN_OK && s.or_not.len == 0) {
        ln_str_addf(out, "[%s%s]", negated ? "^" : "", items);
    } else if (st == LN_OK && negated) {
        if (s.items.len > 0) ln_str_addf(out, "(?:(?![%s])%s[\\s\\S])", items, s.in_all.data);
        else ln_str_addf(out, "(?:%s[\\s\\S])", s.in_all.data);
    } else if (st == LN_OK) {
        if (s.items.len > 0) ln_str_addf(out, "(?:[%s]%s)", items, s.or_not.data);
        else ln_str_addf(out, "(?:%s)", s.or_not.data + 1);
    }
    ln_str_free(&s.items);
    ln_str_free(&s.or_not);
    ln_str_free(&s.in_all);
    return st;
}

/* ---- outside sets ---- */

static ln_status take_escape(rewriter *r, ln_error *err) {
    ln_str items = {0};
    bool is_set, complement;
    char c = r->at + 1 < r->n ? r->p[r->at + 1] : '\0';
    if (c == 'b' || c == 'B') {
        items_of_word(&items, false);
        const char *w = items.data ? items.data : "";
        r->atom = SIZE_MAX;
        ln_str_addf(r->out,
                    c == 'b' ? "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))"
                             : "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))",
                    w, w, w, w);
        r->at += 2;
        r->out->failed |= items.failed;
        ln_str_free(&items);
        return LN_OK;
    }
    r->atom = r->out->len;
    if (c == 'X') {
        regex_cluster(r->out);
        r->at += 2;
        return LN_OK;
    }
    ln_status st = set_escape(r, false, &items, &is_set, &complement, err);
    if (st == LN_OK && is_set)
        ln_str_addf(r->out, "[%s%s]", complement ? "^" : "", items.data ? items.data : "");
    else if (st == LN_OK) st = plain_escape(r, r->out, err);
    r->out->failed |= items.failed;
    ln_str_free(&items);
    return st;
}

static ln_status take_group(rewriter *r, ln_error *err) {
    if (r->n_groups >= GROUPS_MAX) return unsupported(r, "a group nested deeper than 200", err);
    size_t start = r->out->len, at = r->at + 1;
    put(r->out, "(");
    r->at++;
    if (at + 1 < r->n && r->p[at] == '?') {
        if (r->p[at + 1] == '~') return unsupported(r, "an absent group (?~", err);
        if (r->p[at + 1] == '#') { /* a comment */
            const char *end = memchr(r->p + at, ')', r->n - at);
            if (!end) return invalid(r, "a comment without its end", err);
            r->out->len = start;
            r->at = (size_t)(end - r->p) + 1;
            return LN_OK;
        }
        put(r->out, "?");
        for (at++; at < r->n && (strchr("imxs-", r->p[at]) != NULL); at++) {
            if (r->p[at] == 's') return invalid(r, "the group option s", err);
            ln_str_add(r->out, r->p[at] == 'm' ? "s" : &r->p[at], 1);
        }
        r->at = at;
    }
    r->groups[r->n_groups++] = start;
    r->atom = SIZE_MAX;
    return LN_OK;
}

/* Wraps the last atom in out, with its quantifier, in a non-capturing group. */
static ln_status wrap(rewriter *r, ln_error *err) {
    ln_str *s = r->out;
    LN_TRY(utf8_reserve(s, 4, err));
    memmove(s->data + r->atom + 3, s->data + r->atom, s->len - r->atom);
    memcpy(s->data + r->atom, "(?:", 3);
    utf8_grown(s, 3);
    put(s, ")");
    return LN_OK;
}

/* Translates an interval {n}, {n,}, {n,m} or {,m}; any other brace is literal. */
static ln_status take_interval(rewriter *r, ln_error *err) {
    size_t at = r->at + 1, low = at, comma = 0;
    while (at < r->n && ((r->p[at] >= '0' && r->p[at] <= '9') || (r->p[at] == ',' && comma == 0))) {
        if (r->p[at] == ',') comma = at;
        at++;
    }
    bool bare = comma != 0 ? at == low + 1 : at == low;
    if (at >= r->n || r->p[at] != '}' || bare || r->atom == SIZE_MAX) {
        put(r->out, "\\{");
        r->atom = r->out->len - 2;
        r->at++;
        return LN_OK;
    }
    put(r->out, comma == low ? "{0" : "{");
    ln_str_add(r->out, r->p + low, at + 1 - low);
    r->at = at + 1;
    char next = r->at < r->n ? r->p[r->at] : '\0';
    if (next == '+' || next == '*' || (next == '?' && comma == 0)) return wrap(r, err);
    if (next == '?') {
        put(r->out, "?");
        r->at++;
    }
    return LN_OK;
}

ln_status regex_rewrite(ln_str *out, const char *what, const char *pattern, size_t bytes, ln_error *err) {
    rewriter r = {.out = out, .what = what, .p = pattern, .n = bytes, .atom = SIZE_MAX};
    while (r.at < r.n) {
        char c = r.p[r.at];
        if (c == '\\') {
            LN_TRY(take_escape(&r, err));
        } else if (c == '[') {
            LN_TRY(take_set(&r, err));
        } else if (c == '(') {
            LN_TRY(take_group(&r, err));
        } else if (c == '{') {
            LN_TRY(take_interval(&r, err));
        } else if (c == '*' || c == '+' ||
                   c == '?') { /* with a suffix ? (lazy) or + (possessive), as in PCRE2 */
            ln_str_add(out, &c, 1);
            r.at++;
            if (r.at < r.n && (r.p[r.at] == '?' || r.p[r.at] == '+')) ln_str_add(out, &r.p[r.at++], 1);
        } else {
            if (c == ')' && r.n_groups > 0) r.atom = r.groups[--r.n_groups];
            else if (((unsigned char)c & 0xc0) != 0x80)
                r.atom = c == '|' || c == '^' || c == '$' ? SIZE_MAX : out->len;
            ln_str_add(out, &c, 1);
            r.at++;
        }
    }
    return out->failed ? LN_OOM(err, "a pattern") : LN_OK;
}
