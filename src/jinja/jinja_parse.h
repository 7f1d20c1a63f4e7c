/* Internal to the template compiler: tokens, and what the files of the parser share. */
#ifndef LN_JINJA_PARSE_H
#define LN_JINJA_PARSE_H

#include "jinja_internal.h"

/* ---- lexer (jinja_lex.c) ---- */

typedef enum jj_tok {
    T_END,
    T_DATA,
    T_VAR,
    T_VAR_END,
    T_BLOCK,
    T_BLOCK_END,
    T_NAME,
    T_INT,
    T_FLOAT,
    T_STR,
    T_ADD,
    T_SUB,
    T_DIV,
    T_FLOORDIV,
    T_MUL,
    T_POW,
    T_MOD,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON
} jj_tok;

typedef struct jj_token {
    jj_tok kind;
    const char *p; /* the token's bytes: template text after whitespace control, a string literal with its
                      quotes */
    size_t n, at;
} jj_token;

enum { JJ_MAX_BRACKETS = 1024 };

typedef struct jj_lexer {
    const jinja *t;
    size_t at;
    enum { LEX_ROOT, LEX_BLOCK, LEX_VAR } state;
    jj_tok pending; /* the kind of tag that begins after the template text just returned; T_END: none */
    size_t pending_at;
    bool line_starting; /* the last piece of text ended with a newline */
    uint8_t open[JJ_MAX_BRACKETS];
    size_t n_open;
} jj_lexer;

void jj_lex_open(jj_lexer *l, const jinja *t);
ln_status jj_lex_next(jj_lexer *l, jj_token *out, ln_error *err);

/* ---- parser (jinja_expr.c, jinja_stmt.c) ---- */

typedef struct jj_parser {
    jinja *t;
    jj_lexer lex;
    jj_token cur, ahead;
    bool has_ahead;
    int depth, loops;
    bool caller, kwargs, varargs; /* whether the current macro's body mentions caller, kwargs, varargs */
    /* Whether the parser is inside a conditional branch. An unknown filter or test in a branch is an error
     * only when it is evaluated, because the branch may never be taken. */
    bool soft;
    const jj_node *unknown; /* the first unknown filter or test outside of branches, or NULL */
    ln_error *err;
} jj_parser;

void *jj_keep(jj_parser *p, size_t bytes); /* allocates from the template's arena; NULL: out of memory */
ln_status jj_oom(jj_parser *p);
/* Token stream: jj_advance reads the next token into p->cur, jj_look peeks at the one after p->cur,
 * jj_expect consumes a token of that kind. jj_unexpected reports p->cur as a syntax error (LN_EINVALID). */
ln_status jj_advance(jj_parser *p);
ln_status jj_look(jj_parser *p, jj_token *out);
bool jj_is_name(const jj_token *t, const char *name);
ln_status jj_expect(jj_parser *p, jj_tok kind);
ln_status jj_unexpected(jj_parser *p, const char *wanted);
ln_status jj_node_new(jj_parser *p, jj_node_kind kind, size_t at, jj_node **out);
ln_status jj_name_number(jj_parser *p, const char *text, size_t n, int32_t *out);
ln_status jj_written(jj_parser *p, const jj_str *s); /* records a string for jinja_written() */
ln_status jj_enter(jj_parser *p);
static inline void jj_leave(jj_parser *p) { p->depth--; }
/* A growing array of pointers in the template's arena; it needs no freeing. */
typedef struct jj_list {
    void **v;
    size_t n, cap;
} jj_list;
ln_status jj_list_add(jj_parser *p, jj_list *l, void *item);

ln_status jj_constant(jj_parser *p, size_t at, jj_val v, jj_node **out);
ln_status jj_text_literal(jj_parser *p, jj_node **out);
ln_status jj_number_literal(jj_parser *p, jj_node **out);
ln_status jj_expression(jj_parser *p, bool with_cond, jj_node **out);
/* Parses expressions separated by commas; two or more, or a trailing comma, make a tuple. */
ln_status jj_tuple(jj_parser *p, bool with_cond, bool in_parentheses, jj_node **out);
/* Parses an assignment target: a name, an attribute of a namespace (with_space), or a tuple of these. */
ln_status jj_target(jj_parser *p, bool with_space, jj_node **out);
/* Parses a chain of filters applied to `value`. `first`: the chain begins without a '|', as in {% filter
 * name %}. */
ln_status jj_filters(jj_parser *p, jj_node *value, bool first, jj_node **out);
/* Computes for each scope the names that it hides (jinja_symbols.c). */
ln_status jj_symbols(jinja *t, ln_error *err);
/* Parses statements up to one of the tags `ends` (NULL: the end of the source). `what` and `opened` are
 * the name and the source offset of the enclosing block, for the error message about a missing end tag. */
ln_status jj_statements(jj_parser *p, const char *const *ends, const char *what, size_t opened,
                        jj_node **out);

#endif
