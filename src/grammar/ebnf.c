/* Grammars as other engines take them: GBNF (llama.cpp; `name ::= ...`, begins at root) and Lark's EBNF
 * (`name: ...`, begins at start). Both have literals, groups, alternatives and repetitions; GBNF has classes
 * of characters, Lark regular expressions, ranges, optional parts in brackets, %import common and %ignore.
 *
 * A rule that begins with itself, as `sum: sum "+" term | term`, becomes a repetition. */
#include "ebnf.h"

#include <string.h>

enum { MOST_DEPTH = 64, MOST_COUNT = 65535, MOST_NESTED = 1024, MOST_IGNORED = 20 };

ln_status ebnf_refuse(const ebnf_reader *r, const char *what) {
    size_t line = 1;
    for (size_t i = 0; i < LN_MIN(r->at, r->bytes); i++) line += r->text[i] == '\n';
    return ln_fail(r->err, LN_EINVALID, "%s: line %zu: %s", r->place, line, what);
}

static int peek(const ebnf_reader *r, size_t ahead) {
    return r->at + ahead < r->bytes ? (unsigned char)r->text[r->at + ahead] : -1;
}
static bool take(ebnf_reader *r, const char *text) {
    const size_t n = strlen(text);
    if (r->bytes - r->at < n || memcmp(r->text + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

/* Skips blanks and comments; newlines too where a rule may go on after them. */
static void skip(ebnf_reader *r, bool newlines) {
    for (;;) {
        const int c = peek(r, 0);
        if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) r->at++;
        else if (r->lark ? c == '/' && peek(r, 1) == '/' : c == '#')
            while (peek(r, 0) >= 0 && peek(r, 0) != '\n') r->at++;
        else return;
    }
}

static bool is_name(int c, bool lark) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (c == '-' && !lark);
}
static size_t name_bytes(const ebnf_reader *r, size_t at) {
    size_t n = 0;
    while (at + n < r->bytes && is_name((unsigned char)r->text[at + n], r->lark)) n++;
    return n;
}

ln_status ebnf_rule_of(ebnf_reader *r, const char *name, size_t bytes, ebnf_rule **out) {
    void *p = r->rules;
    for (size_t i = 0; i < r->n_rules; i++)
        if (r->rules[i].bytes == bytes && memcmp(r->rules[i].name, name, bytes) == 0) {
            *out = &r->rules[i];
            return LN_OK;
        }
    LN_TRY(ln_grow(&p, &r->cap_rules, r->n_rules + 1, sizeof *r->rules, r->err));
    r->rules = p;
    r->rules[r->n_rules] = (ebnf_rule){name, bytes, gr_rule(r->g), false};
    *out = &r->rules[r->n_rules++];
    return gr_check(r->g, r->err);
}

/* ---- literals ---- */

static ln_status hexadecimal(ebnf_reader *r, size_t n, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < n; i++, r->at++) {
        const int c = peek(r, 0), low = c | 32;
        const int v = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (v < 0) return ebnf_refuse(r, "expected a hexadecimal digit");
        *out = *out * 16 + (uint32_t)v;
    }
    return *out > 0x10ffff || (*out >= 0xd800 && *out < 0xe000) ? ebnf_refuse(r, "this is no character")
                                                                : LN_OK;
}

/* Reads one character of a literal. */
static ln_status character(ebnf_reader *r, uint32_t *out) {
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v\0";
    if (!take(r, "\\")) {
        const int n = ln_utf8_get(r->text + r->at, r->bytes - r->at, out);
        if (n == 0) return ebnf_refuse(r, "this is no valid UTF-8");
        r->at += (size_t)n;
        return LN_OK;
    }
    const int c = peek(r, 0);
    if (c < 0) return ebnf_refuse(r, "a backslash ends the grammar");
    r->at++;
    if (c == 'x' || c == 'u' || c == 'U') return hexadecimal(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    const char *known = strchr(from, c);
    *out = known ? (uint32_t)to[known - from] : (uint32_t)c;
    return LN_OK;
}

/* Either case of a letter of ASCII. */
static gr_node either_case(ln_grammar *g, uint32_t c) {
    const uint32_t other = (c | 32) >= 'a' && (c | 32) <= 'z' ? c ^ 32 : c;
    return gr_alt(g, gr_characters(g, &(gr_points){c, c}, 1),
                  gr_characters(g, &(gr_points){other, other}, 1));
}

/* Reads a literal, after its quotation mark; in Lark an `i` behind it takes both cases, and "a".."z" is a
 * range. */
static ln_status literal(ebnf_reader *r, gr_node *out) {
    uint32_t c = 0, last = 0;
    size_t n = 0;
    const size_t from = r->at;
    bool both = false;
    for (int pass = 0; pass < 2; pass++) {
        gr_node parts[2] = {GR_EMPTY, GR_EMPTY};
        r->at = from;
        for (n = 0; peek(r, 0) != '"'; n++) {
            if (peek(r, 0) < 0 || peek(r, 0) == '\n') return ebnf_refuse(r, "the text has no end");
            LN_TRY(character(r, &c));
            parts[0] = gr_seq(r->g, parts[0],
                              both ? either_case(r->g, c) : gr_characters(r->g, &(gr_points){c, c}, 1));
        }
        r->at++;
        *out = parts[0];
        if (pass == 1 || !r->lark || peek(r, 0) != 'i') break;
        both = true;
    }
    if (both) r->at++;
    if (!r->lark || n != 1 || !take(r, "..")) return LN_OK;
    if (!take(r, "\"")) return ebnf_refuse(r, "expected the last character of a range, in quotation marks");
    LN_TRY(character(r, &last));
    if (!take(r, "\"") || last < c) return ebnf_refuse(r, "expected one character that ends a range");
    *out = gr_characters(r->g, &(gr_points){c, last}, 1);
    return LN_OK;
}

/* A regular expression: Lark's between slashes, or a class of GBNF. */
static ln_status expression(ebnf_reader *r, size_t from, size_t to, gr_node *out) {
    ln_error why = {0};
    const ln_status st = gr_pattern(r->g, r->text + from, to - from, GR_RAW, true, out, &why);
    return st == LN_EINVALID ? ebnf_refuse(r, why.message)
           : st == LN_OK     ? LN_OK
                             : ln_fail(r->err, st, "%s", why.message);
}
static ln_status delimited(ebnf_reader *r, char end, bool inclusive, gr_node *out) {
    const size_t from = r->at - inclusive;
    for (; peek(r, 0) != end; r->at++) {
        if (peek(r, 0) == '\\') r->at++;
        if (peek(r, 0) < 0 || peek(r, 0) == '\n') return ebnf_refuse(r, "the expression has no end");
    }
    r->at++;
    LN_TRY(expression(r, from, r->at - !inclusive, out));
    while (r->lark && strchr("imslux", peek(r, 0) > 0 ? peek(r, 0) : '-')) {
        if (peek(r, 0) == 'i')
            return ebnf_refuse(r, "the flag i of an expression is not supported; list both cases");
        r->at++;
    }
    return LN_OK;
}

/* ---- items ---- */

typedef struct item {
    gr_node node;
    uint32_t weight; /* the product of nested bounds */
    bool terminal;
    const ebnf_rule *rule; /* it is a name */
} item;

static ln_status alternatives(ebnf_reader *r, bool newlines, item *out);

static ln_status group(ebnf_reader *r, const char *end, item *out) {
    if (++r->depth > MOST_DEPTH) return ebnf_refuse(r, "groups are nested too deep");
    LN_TRY(alternatives(r, true, out));
    r->depth--;
    skip(r, true);
    if (!take(r, end)) return ebnf_refuse(r, "the group has no end");
    if (*end == ']') out->node = gr_optional(r->g, out->node);
    out->terminal = false;
    out->rule = NULL;
    return LN_OK;
}

static ln_status named(ebnf_reader *r, item *out) {
    const size_t n = name_bytes(r, r->at);
    ebnf_rule *rule;
    if (n == 0) return ebnf_refuse(r, "expected a text, a name, a group or an expression");
    LN_TRY(ebnf_rule_of(r, r->text + r->at, n, &rule));
    const char *p = r->text + r->at;
    while (*p == '_') p++;
    out->terminal = *p >= 'A' && *p <= 'Z';
    out->node = rule->node;
    out->rule = rule;
    r->at += n;
    return LN_OK;
}

static ln_status atom(ebnf_reader *r, item *out) {
    static const gr_points every = {0, 0x10ffff};
    *out = (item){GR_NOTHING, 1, true, NULL};
    if (take(r, "(")) return group(r, ")", out);
    if (take(r, "\"")) return literal(r, &out->node);
    if (r->lark && take(r, "[")) return group(r, "]", out);
    if (r->lark && take(r, "/")) return delimited(r, '/', false, &out->node);
    if (!r->lark && take(r, "[")) return delimited(r, ']', true, &out->node);
    if (!r->lark && take(r, ".")) return out->node = gr_characters(r->g, &every, 1), LN_OK;
    return named(r, out);
}

static bool count(ebnf_reader *r, uint32_t *out) {
    const size_t from = r->at;
    for (*out = 0; peek(r, 0) >= '0' && peek(r, 0) <= '9' && *out <= MOST_COUNT; r->at++)
        *out = *out * 10 + (uint32_t)(peek(r, 0) - '0');
    return r->at > from;
}

/* Reads {n}, {n,} and {n,m} of GBNF, or ~n and ~n..m of Lark, after its first character. */
static ln_status counts(ebnf_reader *r, uint32_t *min, uint32_t *max) {
    skip(r, false);
    if (!count(r, min)) *min = 0;
    *max = *min;
    skip(r, false);
    if (take(r, r->lark ? ".." : ",")) {
        skip(r, false);
        if (!count(r, max)) *max = GR_UNBOUNDED;
    }
    skip(r, false);
    if (!r->lark && !take(r, "}")) return ebnf_refuse(r, "expected a closing brace");
    if (*min > MOST_COUNT || (*max != GR_UNBOUNDED && (*max > MOST_COUNT || *max < *min)))
        return ebnf_refuse(r, "expected counts to 65,535 in ascending order");
    return LN_OK;
}

static ln_status repeated(ebnf_reader *r, item *p) {
    uint32_t min = 0, max = GR_UNBOUNDED;
    if (take(r, "*")) min = 0;
    else if (take(r, "+")) min = 1;
    else if (take(r, "?")) max = 1;
    else if (take(r, r->lark ? "~" : "{")) LN_TRY(counts(r, &min, &max));
    else return LN_OK;
    const uint32_t bound = max == GR_UNBOUNDED ? LN_MAX(min, 1) : LN_MAX(max, 1);
    if (p->weight > 1 && bound > 1 && (uint64_t)p->weight * bound > MOST_NESTED)
        return ebnf_refuse(r, "bounds of repetitions within each other multiply to more than 1,024; use "
                              "lower ones");
    p->weight = LN_MAX(p->weight, 1) * bound;
    p->node = gr_repeat(r->g, p->node, min, max);
    p->rule = NULL;
    return gr_check(r->g, r->err);
}

/* Where a sequence ends: at an alternative, the end of a group, or the end of the rule. */
static bool at_end(ebnf_reader *r, bool newlines) {
    skip(r, newlines);
    const int c = peek(r, 0);
    if (c < 0 || c == '|' || c == ')' || (r->lark && c == ']') || (r->lark && c == '-' && peek(r, 1) == '>'))
        return true;
    return !newlines && (c == '\n' || c == '\r');
}

/* *itself: the sequence begins with the rule that is read, which is left out. */
static ln_status sequence(ebnf_reader *r, bool newlines, item *out, bool *itself) {
    gr_node *nodes = NULL;
    size_t n = 0, cap = 0;
    ln_status st = LN_OK;
    *out = (item){GR_EMPTY, 1, false, NULL};
    *itself = false;
    while (st == LN_OK && !at_end(r, newlines)) {
        item one;
        void *p = nodes;
        st = atom(r, &one);
        if (st == LN_OK) st = repeated(r, &one);
        if (st == LN_OK && one.rule && r->depth == 0 && n == 0 && one.node == r->now) {
            *itself = true;
            one.node = GR_EMPTY;
        }
        if (st == LN_OK && one.terminal && r->in_rule) one.node = gr_seq(r->g, one.node, r->ignored);
        out->weight = LN_MAX(out->weight, st == LN_OK ? one.weight : 1);
        if (st == LN_OK) st = ln_grow(&p, &cap, n + 1, sizeof *nodes, r->err);
        nodes = p;
        if (st == LN_OK) nodes[n++] = one.node;
        if (n == 1) out->rule = one.rule;
    }
    while (n-- > 0 && st == LN_OK) out->node = gr_seq(r->g, nodes[n], out->node);
    ln_free(nodes);
    if (st == LN_OK && r->lark && take(r, "->")) { /* the name of a branch means nothing here */
        skip(r, false);
        r->at += name_bytes(r, r->at);
        skip(r, newlines);
    }
    return st;
}

static ln_status alternatives(ebnf_reader *r, bool newlines, item *out) {
    gr_node more = GR_NOTHING;
    const bool outermost = r->depth == 0;
    *out = (item){GR_NOTHING, 1, false, NULL};
    for (;;) {
        item one;
        bool itself;
        LN_TRY(sequence(r, newlines, &one, &itself));
        out->weight = LN_MAX(out->weight, one.weight);
        if (itself) more = gr_alt(r->g, more, one.node);
        else out->node = gr_alt(r->g, out->node, one.node);
        if (r->lark && !newlines) { /* an alternative may stand on a line of its own */
            const size_t at = r->at;
            skip(r, true);
            if (peek(r, 0) != '|') r->at = at;
        }
        if (!take(r, "|")) break;
        skip(r, true);
    }
    if (outermost && more != GR_NOTHING)
        out->node = gr_seq(r->g, out->node, gr_repeat(r->g, more, 0, GR_UNBOUNDED));
    return gr_check(r->g, r->err);
}

/* ---- statements ---- */

static ln_status definition(ebnf_reader *r) {
    ebnf_rule *rule;
    item body;
    while (r->lark && strchr("?!", peek(r, 0) > 0 ? peek(r, 0) : '-')) r->at++; /* shapes of trees */
    const size_t n = name_bytes(r, r->at), from = r->at;
    if (n == 0) return ebnf_refuse(r, "expected the name of a rule");
    const char *p = r->text + from;
    while (*p == '_') p++;
    r->in_rule = r->lark && !(*p >= 'A' && *p <= 'Z');
    LN_TRY(ebnf_rule_of(r, r->text + from, n, &rule));
    const size_t number = (size_t)(rule - r->rules);
    if (rule->defined) return ebnf_refuse(r, "the rule is defined twice");
    r->now = rule->node;
    r->at += n;
    if (r->lark && take(r, ".")) (void)count(r, &(uint32_t){0}); /* a priority */
    skip(r, false);
    if (!take(r, r->lark ? ":" : "::="))
        return ebnf_refuse(r, r->lark ? "expected a colon after the name" : "expected ::= after the name");
    skip(r, !r->lark);
    LN_TRY(alternatives(r, false, &body));
    gr_define(r->g, r->rules[number].node, body.node);
    r->rules[number].defined = true;
    skip(r, false);
    if (peek(r, 0) >= 0 && peek(r, 0) != '\n' && peek(r, 0) != '\r')
        return ebnf_refuse(r, "expected the end of the line");
    return LN_OK;
}

ln_status ebnf_item(ebnf_reader *r, gr_node *out) {
    item one;
    LN_TRY(atom(r, &one));
    LN_TRY(repeated(r, &one));
    *out = one.node;
    return LN_OK;
}

void ebnf_skip(ebnf_reader *r, bool newlines) { skip(r, newlines); }

static ln_status statements(ebnf_reader *r) {
    for (skip(r, true); r->at < r->bytes; skip(r, true)) {
        if (r->lark && take(r, "%")) LN_TRY(ebnf_directive(r));
        else LN_TRY(definition(r));
    }
    return LN_OK;
}

/* ---- all ---- */

static ln_status check_rules(const ebnf_reader *r) {
    char shown[80];
    for (size_t i = 0; i < r->n_rules; i++)
        if (!r->rules[i].defined)
            return ln_fail(r->err, LN_EINVALID, "%s: the rule \"%s\" is not defined", r->place,
                           ln_excerpt(shown, r->rules[i].name, r->rules[i].bytes));
    return LN_OK;
}

ln_status gr_ebnf(ln_grammar *g, const char *text, size_t bytes, const char *place, gr_node *out,
                  ln_error *err) {
    ebnf_reader r = {.g = g, .text = text, .bytes = bytes, .place = place, .err = err};
    ebnf_rule *first;
    ln_status st = LN_OK;
    r.lark = true;
    for (size_t i = 0; i + 3 <= bytes; i++)
        if (memcmp(text + i, "::=", 3) == 0) r.lark = false;
    r.ignored = gr_rule(g); /* what %ignore names comes last, often */
    r.ignored_body = GR_NOTHING;
    LN_GO(statements(&r));
    gr_define(g, r.ignored, gr_repeat(g, r.ignored_body, 0, MOST_IGNORED));
    LN_GO(ebnf_rule_of(&r, r.lark ? "start" : "root", r.lark ? 5 : 4, &first));
    *out = gr_seq(g, r.ignored, first->node);
    LN_GO(check_rules(&r));
    LN_GO(ebnf_check_recursion(&r));
    st = gr_check(g, err);
out:
    ln_free(r.rules);
    return st;
}
