/* Look-ahead at the beginning of a pattern, as in ^(?!admin)(?=.*[0-9]).{8,}$: each condition is an automaton
 * of its own, whose texts the others must have too, or must not have. */
#include "automaton.h"

#include <string.h>

enum { MOST_CONDITIONS = 16 };

/* The bytes of a group, which begins at `at`, up to its closing parenthesis; 0: it has none. */
static size_t group_bytes(const char *p, size_t bytes, size_t at) {
    int depth = 0;
    bool in_class = false;
    for (size_t i = at; i < bytes; i++) {
        if (p[i] == '\\') i++;
        else if (p[i] == '[') in_class = true;
        else if (p[i] == ']') in_class = false;
        else if (!in_class && p[i] == '(') depth++;
        else if (!in_class && p[i] == ')' && --depth == 0) return i + 1 - at;
    }
    return 0;
}

/* Whether the outermost alternatives are more than one. */
static bool has_alternatives(const char *p, size_t bytes) {
    bool in_class = false;
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] == '\\') i++;
        else if (p[i] == '[') in_class = true;
        else if (p[i] == ']') in_class = false;
        else if (!in_class && p[i] == '|') return true;
        else if (!in_class && p[i] == '(') {
            const size_t n = group_bytes(p, bytes, i);
            if (n == 0) return false;
            i += n - 1;
        }
    }
    return false;
}

static bool is_condition(const char *p, size_t bytes, size_t at) {
    return at + 3 < bytes && p[at] == '(' && p[at + 1] == '?' && (p[at + 2] == '=' || p[at + 2] == '!');
}

/* Joins what ^(?:condition) says to `all`; a `!` in `p`, the group, negates it. */
static ln_status add_condition(automaton *all, const char *p, size_t bytes, ln_error *err) {
    automaton one = {0};
    ln_str text = {0};
    ln_status st = LN_OK;
    ln_str_adds(&text, "^(?:");
    ln_str_add(&text, p + 3, bytes - 4);
    ln_str_adds(&text, ")");
    if (text.failed) LN_GO(LN_OOM(err, "a pattern"));
    LN_GO(automaton_of_marked(&one, text.data, text.len, false, err));
    LN_GO(automaton_combine(all, &one, p[2] == '!' ? AUTOMATON_MINUS : AUTOMATON_AND, err));
out:
    automaton_free(&one);
    ln_str_free(&text);
    return st;
}

ln_status automaton_of_pattern(automaton *out, const char *pattern, size_t bytes, bool anchored,
                               ln_error *err) {
    ln_str rest = {0};
    ln_status st = LN_OK;
    const size_t begin = bytes > 0 && pattern[0] == '^';
    size_t at = begin, n = 0;
    *out = (automaton){0};
    if ((!begin && !anchored) || !is_condition(pattern, bytes, at) || has_alternatives(pattern, bytes))
        return automaton_of_marked(out, pattern, bytes, anchored, err);
    while (is_condition(pattern, bytes, at) && (n = group_bytes(pattern, bytes, at)) > 0) at += n;
    ln_str_adds(&rest, "^");
    ln_str_add(&rest, pattern + at, bytes - at);
    if (rest.failed) LN_GO(LN_OOM(err, "a pattern"));
    LN_GO(automaton_of_marked(out, rest.data, rest.len, anchored, err));
    int count = 0;
    for (at = begin; is_condition(pattern, bytes, at); at += n) {
        if ((n = group_bytes(pattern, bytes, at)) == 0 || ++count > MOST_CONDITIONS)
            LN_GO(ln_fail(err, LN_EINVALID, "the pattern has more than %d look-aheads, or one without an end",
                          MOST_CONDITIONS));
        LN_GO(add_condition(out, pattern + at, n, err));
    }
out:
    ln_str_free(&rest);
    if (st != LN_OK) automaton_free(out);
    return st;
}

ln_status gr_pattern(ln_grammar *g, const char *pattern, size_t bytes, gr_spelling how, bool anchored,
                     gr_node *out, ln_error *err) {
    automaton a = {0};
    ln_error why = {0};
    char shown[80];
    bool counted = false;
    const ln_status quick =
        gr_counted_pattern(g, pattern, bytes, how, anchored, 0, GR_UNBOUNDED, &counted, out, &why);
    if (quick == LN_OK && counted) return gr_check(g, err);
    const ln_status st = automaton_of_pattern(&a, pattern, bytes, anchored, &why);
    if (st == LN_OK) *out = automaton_expression(g, &a, how, NULL, NULL);
    automaton_free(&a);
    if (st == LN_OK) return gr_check(g, err);
    if (strstr(why.message, "the pattern")) return ln_fail(err, st, "%s", why.message);
    return ln_fail(err, st, "the pattern '%s': %s", ln_excerpt(shown, pattern, bytes), why.message);
}
