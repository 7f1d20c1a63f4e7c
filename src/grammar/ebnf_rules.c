/* What stands around the rules of a grammar: directives of Lark, and rules that begin with themselves. */
#include "ebnf.h"

#include <string.h>

/* The terminals of Lark's library `common`. */
static const struct {
    const char *name, *pattern;
} common[] = {{"DIGIT", "[0-9]"},
              {"HEXDIGIT", "[0-9a-fA-F]"},
              {"INT", "[0-9]+"},
              {"SIGNED_INT", "[+-]?[0-9]+"},
              {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
              {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
              {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
              {"NUMBER", "[0-9]+(\\.[0-9]*)?([eE][+-]?[0-9]+)?|\\.[0-9]+([eE][+-]?[0-9]+)?"},
              {"SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?([eE][+-]?[0-9]+)?|\\.[0-9]+([eE][+-]?[0-9]+)?)"},
              {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
              {"LCASE_LETTER", "[a-z]"},
              {"UCASE_LETTER", "[A-Z]"},
              {"LETTER", "[a-zA-Z]"},
              {"WORD", "[a-zA-Z]+"},
              {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
              {"WS_INLINE", "[ \\t]+"},
              {"WS", "[ \\t\\f\\r\\n]+"},
              {"CR", "\\r"},
              {"LF", "\\n"},
              {"NEWLINE", "(\\r?\\n)+"}};

static size_t word_bytes(const ebnf_reader *r) {
    size_t n = 0;
    while (r->at + n < r->bytes && (r->text[r->at + n] == '_' || (r->text[r->at + n] | 32) >= 'a') &&
           (r->text[r->at + n] == '_' || (r->text[r->at + n] | 32) <= 'z'))
        n++;
    return n;
}

static bool take(ebnf_reader *r, const char *text) {
    const size_t n = strlen(text);
    ebnf_skip(r, false);
    if (r->bytes - r->at < n || memcmp(r->text + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

/* Defines a terminal of the library, perhaps with a name of its own. */
static ln_status import_one(ebnf_reader *r) {
    const size_t n = word_bytes(r), from = r->at;
    size_t name = from, bytes = n;
    ebnf_rule *rule;
    gr_node node;
    r->at += n;
    if (take(r, "->")) {
        ebnf_skip(r, false);
        name = r->at, bytes = word_bytes(r);
        r->at += bytes;
    }
    for (size_t i = 0; i < LN_COUNT(common); i++) {
        if (strlen(common[i].name) != n || memcmp(common[i].name, r->text + from, n) != 0) continue;
        LN_TRY(gr_pattern(r->g, common[i].pattern, strlen(common[i].pattern), GR_RAW, true, &node, r->err));
        LN_TRY(ebnf_rule_of(r, r->text + name, bytes, &rule));
        gr_define(r->g, rule->node, node);
        rule->defined = true;
        return LN_OK;
    }
    return ebnf_refuse(r, "the terminals of %import are those of common, such as common.INT, NUMBER, WS, "
                          "CNAME and "
                          "ESCAPED_STRING");
}

static ln_status import_all(ebnf_reader *r) {
    if (!take(r, "common")) return ebnf_refuse(r, "only %import common is supported");
    if (take(r, ".")) return import_one(r);
    if (!take(r, "(")) return ebnf_refuse(r, "expected a name after %import common");
    do {
        ebnf_skip(r, true);
        LN_TRY(import_one(r));
    } while (take(r, ","));
    return take(r, ")") ? LN_OK : ebnf_refuse(r, "the list of names has no end");
}

ln_status ebnf_directive(ebnf_reader *r) {
    gr_node one;
    if (take(r, "import")) return import_all(r);
    if (!take(r, "ignore"))
        return ebnf_refuse(r, "of Lark's directives %import common and %ignore are supported");
    ebnf_skip(r, false);
    r->in_rule = false;
    LN_TRY(ebnf_item(r, &one));
    r->ignored_body = gr_alt(r->g, r->ignored_body, one);
    return LN_OK;
}

/* ---- rules that begin with themselves ---- */

typedef struct recursion {
    const ln_grammar *g;
    bool *empty;   /* an expression matches the empty text */
    uint8_t *seen; /* 1: on the way, 2: done */
    uint32_t *way;
    size_t n_way;
} recursion;

static bool find_empty(const recursion *c) {
    bool more = false;
    for (size_t i = 0; i < c->g->n_exprs; i++) {
        const gr_expr *e = &c->g->exprs[i];
        bool is = e->kind == GR_IS_EMPTY;
        if (e->kind == GR_IS_SEQ) is = c->empty[e->a] && c->empty[e->b];
        if (e->kind == GR_IS_ALT) is = c->empty[e->a] || c->empty[e->b];
        if (e->kind == GR_IS_REPEAT) is = e->min == 0 || c->empty[e->a];
        if (e->kind == GR_IS_RULE) is = c->empty[e->a];
        if (is && !c->empty[i]) c->empty[i] = more = true;
    }
    return more;
}

/* What an expression may begin with, without a byte; at most two. */
static int begins_with(const recursion *c, uint32_t i, uint32_t out[2]) {
    const gr_expr *e = &c->g->exprs[i];
    int n = 0;
    if (e->kind == GR_IS_SET || e->kind == GR_IS_EMPTY || e->kind == GR_IS_NOTHING) return 0;
    out[n++] = e->a;
    if (e->kind == GR_IS_ALT || (e->kind == GR_IS_SEQ && c->empty[e->a])) out[n++] = e->b;
    return n;
}

/* Walks without recursion: the way is a stack. False: some expression begins with itself. */
static bool no_loop(const recursion *c, uint32_t root) {
    size_t n = 0;
    uint32_t *way = c->way;
    if (c->seen[root]) return true;
    way[n++] = root;
    while (n > 0) {
        const uint32_t i = way[n - 1];
        uint32_t next[2];
        const int k = c->seen[i] == 0 ? begins_with(c, i, next) : 0;
        if (c->seen[i] != 0) {
            c->seen[i] = 2, n--;
            continue;
        }
        c->seen[i] = 1;
        for (int j = 0; j < k; j++) {
            if (c->seen[next[j]] == 1) return false;
            if (c->seen[next[j]] == 0) way[n++] = next[j];
        }
    }
    return true;
}

ln_status ebnf_check_recursion(const ebnf_reader *r) {
    char shown[80];
    recursion c = {.g = r->g};
    c.empty = ln_zalloc(r->g->n_exprs + 1, sizeof *c.empty);
    c.seen = ln_zalloc(r->g->n_exprs + 1, sizeof *c.seen);
    c.way = ln_alloc((2 * r->g->n_exprs + 2) * sizeof *c.way);
    ln_status st = c.empty && c.seen && c.way ? LN_OK : LN_OOM(r->err, "a grammar");
    while (st == LN_OK && find_empty(&c)) continue;
    for (size_t i = 0; st == LN_OK && i < r->n_rules; i++)
        if (!no_loop(&c, r->rules[i].node))
            st = ln_fail(r->err, LN_EINVALID,
                         "%s: the rule \"%s\" begins with itself by way of another one, or repeats what may "
                         "be "
                         "empty; write it as a repetition",
                         r->place, ln_excerpt(shown, r->rules[i].name, r->rules[i].bytes));
    ln_free(c.empty);
    ln_free(c.seen);
    ln_free(c.way);
    return st;
}
