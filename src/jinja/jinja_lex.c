/* The lexer: produces the tokens of a template's source one at a time.
 *
 * Outside tags the source is text up to the next "{%", "{{" or "{#". Whitespace control is applied to that
 * text here, as in Jinja2: "-" strips all white space, lstrip_blocks strips blanks between the beginning
 * of a line and a block or comment, trim_blocks strips the newline after one, "+" disables both. Inside a
 * tag the lexer looks for the tag's end first, except inside brackets: "{{ {'a': {}} }}" contains one
 * dictionary. Comments and raw blocks produce no tokens of their own. */
#include "jinja_parse.h"

static bool space_at(const jinja *t, size_t at, size_t *n) {
    uint32_t cp;
    if (at >= t->bytes) return false;
    *n = utf8_next(t->source + at, &cp);
    return jj_is_space(cp);
}

static size_t skip_space(const jinja *t, size_t at) {
    size_t n;
    while (space_at(t, at, &n)) at += n;
    return at;
}

static bool here(const jinja *t, size_t at, const char *text) {
    size_t n = strlen(text);
    return at + n <= t->bytes && memcmp(t->source + at, text, n) == 0;
}

void jj_lex_open(jj_lexer *l, const jinja *t) {
    memset(l, 0, sizeof *l);
    l->t = t;
    l->line_starting = true;
}

/* ---- ends of tags ---- */

/* Matches the end of a tag ("%}" or "#}", given as `mark`) with its whitespace sign at `at`. Returns the
 * offset at which the text continues, or 0. */
static size_t end_of(const jinja *t, size_t at, const char *mark, bool plus, bool trim) {
    if (here(t, at, mark)) return at + 2 + (trim && t->opt.trim_blocks && here(t, at + 2, "\n"));
    if (plus && here(t, at, "+") && here(t, at + 1, mark)) return at + 3;
    if (here(t, at, "-") && here(t, at + 1, mark)) return skip_space(t, at + 3);
    return 0;
}

static void passed(jj_lexer *l, size_t to) {
    l->at = to;
    l->line_starting = to > 0 && l->t->source[to - 1] == '\n';
}

/* Matches "{%" sign blanks `word` blanks end at `at`. Returns the offset at which the text continues, or
 * 0; *sign is the sign of the beginning. */
static size_t mark_of(const jinja *t, size_t at, const char *word, char *sign, bool plus, bool trim) {
    if (!here(t, at, "{%")) return 0;
    at += 2;
    *sign = at < t->bytes && (t->source[at] == '-' || t->source[at] == '+') ? t->source[at] : '\0';
    at = skip_space(t, at + (*sign != '\0'));
    if (!here(t, at, word)) return 0;
    return end_of(t, skip_space(t, at + strlen(word)), "%}", plus, trim);
}

/* ---- text ---- */

/* Applies whitespace control to the end of the text [from, to) before a tag; returns its new end. */
static size_t strip(const jj_lexer *l, size_t from, size_t to, char sign, bool block) {
    const char *s = l->t->source;
    if (sign == '-') {
        while (to > from) {
            size_t at = to - 1;
            uint32_t cp;
            while (at > from && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
            (void)utf8_next(s + at, &cp);
            if (!jj_is_space(cp)) break;
            to = at;
        }
        return to;
    }
    if (sign == '+' || !block || !l->t->opt.lstrip_blocks) return to;
    size_t line = to;
    while (line > from && s[line - 1] != '\n') line--;
    if (line == from && !l->line_starting) return to;
    return skip_space(l->t, line) >= to ? line : to;
}

static void text_token(jj_lexer *l, size_t from, size_t to, jj_token *out) {
    *out = (jj_token){T_DATA, l->t->source + from, to - from, from};
}

/* Returns the content of a raw block as one T_DATA token; `from` is the end of its {% raw %}. */
static ln_status raw_text(jj_lexer *l, size_t opened, size_t from, jj_token *out, ln_error *err) {
    const jinja *t = l->t;
    char sign;
    passed(l, from);
    for (size_t at = from; at + 1 < t->bytes; at++) {
        if (t->source[at] != '{') continue;
        size_t to = mark_of(t, at, "endraw", &sign, true, true);
        if (!to) continue;
        text_token(l, from, strip(l, from, at, sign, true), out);
        passed(l, to);
        return LN_OK;
    }
    return jj_fail_at(t, opened, err, "a raw block that never ends; expected {%% endraw %%}");
}

static ln_status comment(jj_lexer *l, size_t opened, size_t at, ln_error *err) {
    if (at == l->t->bytes) return LN_OK; /* nothing follows the "{#"; Jinja2 accepts that */
    for (; at < l->t->bytes; at++) {
        char c = l->t->source[at];
        if (c != '#' && c != '-' && c != '+') continue;
        size_t to = end_of(l->t, at, "#}", true, true);
        if (!to) continue;
        passed(l, to);
        return LN_OK;
    }
    return jj_fail_at(l->t, opened, err, "a comment that never ends; expected #}");
}

/* The offset of the next tag, or the end of the source. */
static size_t next_tag(const jinja *t, size_t at) {
    while (at + 1 < t->bytes) {
        const char *p = memchr(t->source + at, '{', t->bytes - 1 - at);
        if (!p) break;
        at = (size_t)(p - t->source);
        if (p[1] == '%' || p[1] == '{' || p[1] == '#') return at;
        at++;
    }
    return t->bytes;
}

/* Returns the text up to the next tag and remembers the tag. Empty text is returned too; the parser drops
 * it. */
static ln_status root(jj_lexer *l, jj_token *out, ln_error *err) {
    const jinja *t = l->t;
    size_t from = l->at, at = next_tag(t, from);
    if (at >= t->bytes) {
        *out = (jj_token){from < t->bytes ? T_DATA : T_END, t->source + from, t->bytes - from, from};
        l->at = t->bytes;
        return LN_OK;
    }
    char what = t->source[at + 1], sign = '\0';
    size_t raw = what == '%' ? mark_of(t, at, "raw", &sign, false, false) : 0;
    if (!raw)
        sign = at + 2 < t->bytes && (t->source[at + 2] == '-' || t->source[at + 2] == '+') ? t->source[at + 2]
                                                                                           : '\0';
    text_token(l, from, strip(l, from, at, sign, what != '{'), out);
    l->pending_at = at;
    if (raw) {
        l->pending = T_DATA;
        l->at = raw;
        return LN_OK;
    }
    size_t inside = at + 2 + (sign != '\0');
    l->line_starting = false;
    l->at = inside;
    if (what == '#') return comment(l, at, inside, err);
    l->state = what == '%' ? LEX_BLOCK : LEX_VAR;
    l->pending = what == '%' ? T_BLOCK : T_VAR;
    l->n_open = 0;
    return LN_OK;
}

/* ---- inside tags ---- */

static size_t digits(const char *s, size_t at, size_t n, const char *set) {
    size_t end = at;
    while (at < n) {
        if (strchr(set, s[at]) && s[at]) end = ++at;
        else if (s[at] == '_' && at > 0 && at + 1 < n && s[at + 1] && strchr(set, s[at + 1])) at++;
        else break;
    }
    return end;
}

static const char decimal[] = "0123456789";

/* The length of a float literal at s, or 0: digits with a fraction, an exponent or both. */
static size_t float_length(const char *s, size_t n) {
    size_t at = digits(s, 0, n, decimal), end = 0;
    if (at == 0) return 0;
    if (at + 1 < n && s[at] == '.' && s[at + 1] >= '0' && s[at + 1] <= '9')
        end = at = digits(s, at + 1, n, decimal);
    if (at < n && (s[at] == 'e' || s[at] == 'E')) {
        size_t e = at + 1;
        if (e < n && (s[e] == '+' || s[e] == '-')) e++;
        if (e < n && s[e] >= '0' && s[e] <= '9') end = digits(s, e, n, decimal);
    }
    return end;
}

static size_t int_length(const char *s, size_t n) {
    static const struct {
        char letter;
        const char *set;
    } bases[] = {{'b', "01"}, {'o', "01234567"}, {'x', "0123456789abcdefABCDEF"}};
    if (s[0] < '0' || s[0] > '9') return 0;
    if (s[0] != '0') return digits(s, 0, n, decimal);
    for (size_t i = 0; i < LN_COUNT(bases) && n > 2; i++) {
        if ((s[1] | 0x20) != bases[i].letter) continue;
        size_t skip = s[2] == '_' ? 3 : 2, end = skip < n ? digits(s, skip, n, bases[i].set) : 0;
        if (end > skip) return end;
    }
    return digits(s, 0, n, "0");
}

static bool name_byte(unsigned char c) {
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
}

static size_t string_length(const char *s, size_t n) {
    for (size_t at = 1; at < n; at++) {
        if (s[at] == '\\') at++;
        else if (s[at] == s[0]) return at + 1;
    }
    return 0;
}

static jj_tok operator_at(const char *s, size_t n, size_t *length) {
    static const struct {
        char text[3];
        uint8_t kind;
    } table[] = {{"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},      {"!=", T_NE},      {">=", T_GE},
                 {"<=", T_LE},       {"+", T_ADD},    {"-", T_SUB},      {"/", T_DIV},      {"*", T_MUL},
                 {"%", T_MOD},       {"~", T_TILDE},  {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"(", T_LPAREN},
                 {")", T_RPAREN},    {"{", T_LBRACE}, {"}", T_RBRACE},   {">", T_GT},       {"<", T_LT},
                 {"=", T_ASSIGN},    {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},     {",", T_COMMA},
                 {";", T_SEMICOLON}};
    for (size_t i = 0; i < LN_COUNT(table); i++) {
        *length = strlen(table[i].text);
        if (*length <= n && memcmp(s, table[i].text, *length) == 0) return (jj_tok)table[i].kind;
    }
    return T_END;
}

static ln_status balance(jj_lexer *l, jj_tok kind, ln_error *err) {
    const char *s = l->t->source + l->at;
    if (kind == T_LBRACKET || kind == T_LPAREN || kind == T_LBRACE) {
        if (l->n_open == JJ_MAX_BRACKETS)
            return jj_fail_at(l->t, l->at, err, "more than %d open brackets", JJ_MAX_BRACKETS);
        l->open[l->n_open++] = (uint8_t)(kind + 1);
    } else if (kind == T_RBRACKET || kind == T_RPAREN || kind == T_RBRACE) {
        if (l->n_open == 0) return jj_fail_at(l->t, l->at, err, "a '%c' that closes nothing", s[0]);
        if (l->open[--l->n_open] != kind)
            return jj_fail_at(l->t, l->at, err, "a '%c' while another bracket is open", s[0]);
    }
    return LN_OK;
}

static ln_status inside(jj_lexer *l, jj_token *out, ln_error *err) {
    const jinja *t = l->t;
    bool block = l->state == LEX_BLOCK;
    char shown[80];
    l->at = skip_space(t, l->at);
    size_t end = l->n_open == 0 ? end_of(t, l->at, block ? "%}" : "}}", block, block) : 0;
    if (end) {
        *out = (jj_token){block ? T_BLOCK_END : T_VAR_END, t->source + l->at, end - l->at, l->at};
        l->state = LEX_ROOT;
        passed(l, end);
        return LN_OK;
    }
    const char *s = t->source + l->at;
    size_t n = t->bytes - l->at, length = 0;
    jj_tok kind = T_END;
    if (n == 0) {
        *out = (jj_token){T_END, s, 0, l->at};
        return LN_OK;
    }
    if (l->at > 0 && s[-1] != '.' && (length = float_length(s, n)) > 0) kind = T_FLOAT;
    else if ((length = int_length(s, n)) > 0) kind = T_INT;
    else if (name_byte((unsigned char)s[0])) {
        kind = T_NAME;
        while (length < n && name_byte((unsigned char)s[length])) length++;
    } else if (s[0] == '\'' || s[0] == '"') {
        kind = T_STR;
        length = string_length(s, n);
        if (length == 0)
            return jj_fail_at(t, l->at, err, "a text that never ends; expected a closing %c", s[0]);
    } else if ((kind = operator_at(s, n, &length)) == T_END) {
        return jj_fail_at(t, l->at, err, "expected an expression, found '%s'",
                          ln_excerpt(shown, s, LN_MIN(n, (size_t)8)));
    }
    LN_TRY(balance(l, kind, err));
    *out = (jj_token){kind, s, length, l->at};
    l->at += length;
    return LN_OK;
}

ln_status jj_lex_next(jj_lexer *l, jj_token *out, ln_error *err) {
    jj_tok pending = l->pending;
    l->pending = T_END;
    if (pending == T_DATA) return raw_text(l, l->pending_at, l->at, out, err);
    if (pending != T_END) {
        *out = (jj_token){pending, l->t->source + l->pending_at, 2, l->pending_at};
        return LN_OK;
    }
    return l->state == LEX_ROOT ? root(l, out, err) : inside(l, out, err);
}
