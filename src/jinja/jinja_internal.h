/* Internal to the template engine: the syntax tree, values, and the declarations that its files share.
 *
 * The lexer (jinja_lex.c) produces tokens; the parser (jinja_expr.c, jinja_stmt.c) builds the syntax tree,
 * which is the compiled template: names are replaced by indices, filters and tests by pointers to their
 * functions. jinja_text.c, jinja_value.c, jinja_repr.c and jinja_ops.c implement values with Python's
 * semantics. jinja_run.c evaluates the tree, jinja_scope.c implements scopes, loops and calls.
 * jinja_filter.c, jinja_filter_list.c, jinja_test.c, jinja_method.c, jinja_strings.c, jinja_object.c and
 * jinja_call.c implement the built-in filters, tests, methods and globals; jinja_json.c reads and writes
 * JSON.
 *
 * A value (jj_val) has 16 bytes and is immutable, except for namespaces, loops and the position of a lazy
 * list. Values point into the rendering's arena or into the compiled template. A string knows the origin of
 * each of its bytes (data or template): `origin` holds one byte per byte of the string. If that is NULL,
 * `data` holds for all of them. */
#ifndef LN_JINJA_INTERNAL_H
#define LN_JINJA_INTERNAL_H

#include "jinja.h"
#include "../unicode/string_table.h"
#include "../unicode/unicode.h"

/* ---- values ---- */

typedef enum jj_kind {
    JJ_MISSING = 0, /* no value: an argument that was not given */
    JJ_UNDEF,
    JJ_NONE,
    JJ_BOOL,
    JJ_INT,
    JJ_BIG,
    JJ_FLOAT,
    JJ_STR,
    JJ_SEQ,
    JJ_DICT,
    JJ_SPACE,
    JJ_MACRO,
    JJ_LOOP,
    JJ_FUNC,
    JJ_METHOD,
    JJ_CYCLER,
    JJ_JOINER
} jj_kind;

typedef struct jj_str {
    const char *p;
    const uint8_t *origin; /* per byte: 1 for data, 0 for the template; NULL: all bytes as `data` says */
    size_t n, chars;       /* length in bytes and in characters; equal when all characters are ASCII */
    bool data;
    bool markup; /* a Markup string, the result of `safe` or `escape` */
} jj_str;

struct jj_seq;
struct jj_dict;
struct jj_space;
struct jj_loop;
struct jj_macro;
struct jj_func;
struct jj_undef;
struct jj_bound;
typedef struct jj_counter jj_counter; /* the state of a cycler or joiner */
typedef struct jj_big jj_big;         /* an integer beyond 64 bits (jinja_big.h) */

typedef struct jj_val {
    jj_kind kind;
    union {
        bool b;
        int64_t i;
        const jj_big *big;
        double f;
        const jj_str *s;
        struct jj_seq *q;
        const struct jj_dict *d;
        struct jj_space *space;
        struct jj_loop *loop;
        const struct jj_macro *macro;
        const struct jj_func *func;
        const struct jj_undef *undef;
        const struct jj_bound *bound;
        jj_counter *counter;
    } u;
} jj_val;

typedef enum jj_seq_kind { JJ_LIST, JJ_TUPLE, JJ_RANGE, JJ_KEYS, JJ_VALUES, JJ_ITEMS, JJ_LAZY } jj_seq_kind;

typedef struct jj_seq {
    jj_seq_kind kind;
    uint32_t nesting;
    size_t n;
    const jj_val *v;
    size_t taken;              /* JJ_LAZY: items already consumed */
    int64_t start, stop, step; /* JJ_RANGE */
    bool grouped;              /* a tuple of groupby: its two items also have the names grouper and list */
} jj_seq;

typedef struct jj_dict { /* ordered by insertion; large dictionaries have an open-addressing hash index */
    uint32_t nesting;
    size_t n;
    const jj_val *keys, *values;
    const uint32_t *index; /* 2^bits slots of position + 1, 0 for an empty slot; or NULL */
    unsigned bits;
} jj_dict;

typedef struct jj_undef { /* an undefined value with the parts of the error message for its use */
    const char *form;     /* the message's format; NULL: "'name' is undefined" */
    const jj_str *name;
    const char *of; /* type name of the object that lacks the attribute */
    jj_val key;
} jj_undef;

typedef struct jj_run jj_run;
typedef struct jj_node jj_node;

/* ---- calls ---- */

typedef struct jj_call { /* evaluated arguments of a call */
    const jj_val *pos, *named;
    const jj_str *const *names;
    size_t n_pos, n_named;
} jj_call;

enum { JJ_MAX_ARGS = 6 };
/* The C function of a built-in. `self` is the filtered or tested value, or the object of a method. `a` holds
 * the arguments in the order of jj_func.params, JJ_MISSING if one was not given. An entry whose params is
 * "*" gets the call's arguments unbound in `call`. */
/* An entry of the tables of built-in filters, tests, globals and methods. */
typedef ln_status jj_fn(jj_run *r, jj_val self, const jj_val *a, const jj_call *call, jj_val *out);
typedef struct jj_func {
    const char *name;
    const char *params; /* parameter names separated by blanks; those before '|' are required */
    jj_fn *fn;          /* NULL: exists in Jinja2 or Python, but is not implemented here */
    int how;            /* passed to a function that implements several entries (jj_run.how) */
} jj_func;
typedef struct jj_bound {
    const jj_func *func;
    jj_val self;
} jj_bound;

/* Look up a built-in by name; NULL: there is none. */
const jj_func *jj_filter_named(const char *name, size_t n);
const jj_func *jj_test_named(const char *name, size_t n);
const jj_func *jj_global_named(const char *name, size_t n);
/* The method of a value, or NULL. *unsafe is set when the method exists but the sandbox forbids it. */
const jj_func *jj_method_named(jj_val self, const char *name, size_t n, bool *unsafe);
/* jj_object_attr reads an attribute of an object; *out is unchanged if there is no such attribute.
 * jj_object_method finds the methods of values other than strings, lists and dictionaries. */
ln_status jj_object_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out);
const jj_func *jj_object_method(jj_val self, const char *name, size_t n);
jj_fn jj_cycler, jj_joiner;
ln_status jj_join_next(jj_run *r, jj_counter *k, const jj_call *c, jj_val *out); /* calls a joiner */
const jj_func *jj_find(const jj_func *rows, size_t n_rows, const char *name, size_t n);
/* Binds the call's arguments to the entry's parameters and calls its function. */
ln_status jj_apply(jj_run *r, const jj_func *f, jj_val self, const jj_call *call, jj_val *out);
/* Convert an argument to a string or an integer; `what` names it in the error message. A missing integer
 * argument is `otherwise`. */
ln_status jj_arg_text(jj_run *r, jj_val v, const char *what, const jj_str **out);
ln_status jj_arg_int(jj_run *r, jj_val v, const char *what, int64_t otherwise, int64_t *out);

/* ---- the syntax tree ---- */

typedef enum jj_op {
    JJ_ADD,
    JJ_SUB,
    JJ_MUL,
    JJ_DIV,
    JJ_FLOORDIV,
    JJ_MOD,
    JJ_POW,
    JJ_EQ,
    JJ_NE,
    JJ_LT,
    JJ_LE,
    JJ_GT,
    JJ_GE,
    JJ_IN,
    JJ_NOT_IN
} jj_op;

typedef enum jj_node_kind {
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_NOT,
    N_NEG,
    N_POS,
    N_BINARY,
    N_CONCAT,
    N_COMPARE,
    N_AND,
    N_OR,
    N_COND,
    N_SPACE_ATTR,
    N_DATA,
    N_PRINT,
    N_IF,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_GENERATION,
    N_BREAK,
    N_CONTINUE
} jj_node_kind;

typedef struct jj_args {
    jj_node *const *pos, *const *named;
    const jj_str *const *names;
    size_t n_pos, n_named;
    jj_node *star, *star_star;
} jj_args;

typedef struct jj_hidden { /* names that are undefined at the start of a scope (jinja_symbols.c) */
    const int32_t *names;
    size_t n;
} jj_hidden;

struct jj_node {
    uint8_t kind, op; /* a jj_node_kind and a jj_op */
    uint16_t height;  /* height of the subtree, in nodes */
    uint32_t at;      /* byte offset in the source, for error messages */
    int32_t name;     /* index of a name */
    bool constant;    /* a constant expression: built from literals only */
    jj_val value;     /* N_CONST, N_DATA, and the attribute of N_ATTR */
    jj_node *a, *b, *c;
    /* Items; the operands of N_COMPARE, each with its operator in `op`; the keys and values of N_DICT,
     * alternating. */
    jj_node *const *list;
    size_t n;
    const jj_args *args;
    const jj_func *func; /* the filter or test; NULL: unknown */
    const struct jj_sig *sig;
    jj_node *body, *otherwise; /* lists of statements, linked by `next` */
    jj_node *next;
    jj_hidden hidden, hidden_else; /* for the scopes that the node opens */
};

typedef struct jj_sig { /* the parameters of a macro */
    const int32_t *names;
    const jj_str *const *texts;
    jj_node *const *defaults; /* of the last n_defaults parameters */
    size_t n, n_defaults;
    bool caller, kwargs, varargs; /* whether the macro's body mentions them */
} jj_sig;

struct jinja {
    ln_arena arena;
    char name[128];
    char *source; /* the source with '\n' for every newline */
    size_t bytes;
    jinja_options opt;
    string_table names; /* from a name to its index */
    int32_t n_names;
    const jj_str **name_text;
    size_t cap_names;
    jj_node *body;
    jj_hidden hidden;
    const jj_str **written; /* the template's texts and string constants */
    size_t n_written, cap_written;
    struct {
        int32_t loop, caller, kwargs, varargs;
    } known;
};

/* Line and column (in characters) of a byte offset of the source, both counted from 1. */
void jj_place(const jinja *t, size_t at, size_t *line, size_t *column);
ln_status jj_fail_at(const jinja *t, size_t at, ln_error *err, const char *fmt, ...) LN_PRINTF(4, 5);

/* ---- a rendering ---- */

typedef struct jj_buf { /* a string builder; each append returns a status, so there is no sticky error flag */
    char *p;
    uint8_t *origin;
    size_t n, cap, cap_origin, chars;
    bool data;
} jj_buf;

typedef struct jj_scope {
    struct jj_scope *parent;
    struct jj_var {
        int32_t name;
        jj_val v;
    } * vars;
    size_t n, cap;
    bool captured; /* a macro refers to the scope, so that it must not be reused */
} jj_scope;

typedef struct jj_macro {
    const jj_str *name; /* NULL: the body of a call block */
    const jj_node *node;
    jj_scope *scope;
} jj_macro;

typedef struct jj_space { /* a namespace() object */
    const jj_str **names;
    jj_val *values;
    size_t n, cap;
} jj_space;

typedef struct jj_loop {
    const jj_node *node;
    jj_scope *scope; /* the scope that contains the loop */
    const jj_val *v; /* the items of the iterable */
    size_t n, pos;   /* pos: items consumed from v, including those that the loop's filter rejected */
    int64_t index0;
    jj_val current, before, after; /* the items for loop.previtem and loop.nextitem too; JJ_MISSING: none */
    jj_val changed;
    int64_t length; /* number of iterations; -1: not computed yet */
} jj_loop;

typedef enum jj_flow { FLOW_ON = 0, FLOW_BREAK, FLOW_CONTINUE } jj_flow;

struct jj_run {
    ln_arena arena;
    const jinja *t;
    ln_error *err;
    ln_error spare; /* err points here when the caller passed NULL */
    struct tm now;
    jj_val *root;    /* the template's global variables, by name index */
    jj_scope *scope; /* the innermost scope; NULL: the global one */
    jj_buf *out;
    int captures; /* depth of nested captures; 0: `out` is the output */
    jj_flow flow;
    size_t at;      /* source offset of the node that is evaluated */
    bool folding;   /* a constant expression of a print is evaluated, which Jinja2 does at compile time */
    int depth, how; /* recursion depth; jj_func.how of the built-in that runs */
    int64_t steps;
    jj_val filtered; /* input of the first filter of a filter block */
    jinja_span *spans;
    size_t n_spans, cap_spans;
    const jj_str *refused;
    const jj_seq *given; /* `messages` before the rendering, which may have set it to others; NULL: none */
};
struct jinja_run {
    jj_run run;
};

/* Fails with LN_EINVALID at the place of the current node; returns the status. */
ln_status jj_fail(jj_run *r, const char *fmt, ...) LN_PRINTF(2, 3);
ln_status jj_nomem(jj_run *r);
void *jj_take(jj_run *r, size_t bytes); /* zeroed, from the rendering's arena; NULL: out of memory, reported
                                           by jj_nomem */
enum { JJ_PER_CHAR = 4 }; /* cost of inspecting one character, relative to comparing or copying a byte */
/* Charges one step plus one for each 64 units; units are bytes of strings or items that an operation
 * handles. LN_EINVALID beyond JINJA_MAX_STEPS. */
static inline ln_status jj_spend(jj_run *r, size_t units) {
    r->steps += (int64_t)LN_MIN(units / 64, (size_t)JINJA_MAX_STEPS) + 1;
    return r->steps > JINJA_MAX_STEPS
               ? jj_fail(r, "expected at most %d steps, and there are more; does it loop for ever?",
                         JINJA_MAX_STEPS)
               : LN_OK;
}

/* ---- strings (jinja_text.c) ---- */

static inline jj_val jj_of(const jj_str *s) { return (jj_val){JJ_STR, {.s = s}}; }
static inline jj_val jj_none(void) { return (jj_val){JJ_NONE, {0}}; }
static inline jj_val jj_bool(bool b) { return (jj_val){JJ_BOOL, {.b = b}}; }
static inline jj_val jj_int(int64_t i) { return (jj_val){JJ_INT, {.i = i}}; }
static inline jj_val jj_float(double f) { return (jj_val){JJ_FLOAT, {.f = f}}; }

size_t jj_chars(const char *p, size_t n);
bool jj_is_case(const jj_str *s, bool upper); /* str.islower(), str.isupper() */
bool jj_is_space(uint32_t cp);                /* str.isspace() */
ln_status jj_str_new(jj_run *r, const char *p, size_t n, bool data, jj_val *out); /* copies the bytes */
ln_status jj_str_lit(jj_run *r, const char *text, jj_val *out); /* a C string literal: not copied, not data */
/* The bytes [from, to) of s as a string that shares them. */
ln_status jj_str_cut(jj_run *r, const jj_str *s, size_t from, size_t to, jj_val *out);
const jj_str *jj_str_part(jj_run *r, const jj_str *s, size_t from, size_t to); /* NULL: out of memory */
size_t jj_str_at(const jj_str *s, size_t index); /* byte offset of a character; index <= chars */
bool jj_str_eq(const jj_str *a, const jj_str *b);
bool jj_str_is(const jj_str *a, const char *text);
int jj_str_cmp(const jj_str *a, const jj_str *b); /* -1, 0, 1 */
/* Byte offset of the first or last occurrence of b in a[from, to); SIZE_MAX: none. */
size_t jj_str_find(const jj_str *a, size_t from, size_t to, const jj_str *b);
size_t jj_str_rfind(const jj_str *a, size_t from, size_t to, const jj_str *b);
ln_status jj_str_join(jj_run *r, const jj_str *a, const jj_str *b, jj_val *out);

ln_status jj_put(jj_run *r, jj_buf *b, const char *p, size_t n, bool data);
/* Append to a string builder. `data` is the origin of the bytes; jj_put_like takes the origin of byte `at`
 * of s. */
ln_status jj_put_like(jj_run *r, jj_buf *b, const char *p, size_t n, const jj_str *s, size_t at);
ln_status jj_put_str(jj_run *r, jj_buf *b, const jj_str *s);
ln_status jj_put_part(jj_run *r, jj_buf *b, const jj_str *s, size_t from, size_t to);
ln_status jj_put_lit(jj_run *r, jj_buf *b, const char *text);
ln_status jj_buf_str(jj_run *r, jj_buf *b, jj_val *out); /* moves the text to *out and ends the builder */
static inline bool jj_byte_data(const jj_str *s, size_t at) { return s->origin ? s->origin[at] : s->data; }

/* Case conversion; one character becomes up to three. CASE_CAPITAL is str.capitalize(): the first
 * character in title case, the rest in lower case. */
typedef enum jj_case { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP } jj_case;
ln_status jj_recase(jj_run *r, const jj_str *s, jj_case how, jj_val *out);
ln_status jj_plain(jj_run *r, const jj_str *s, jj_val *out); /* the same string without the Markup flag */
ln_status jj_mark(jj_run *r, const jj_str *s, jj_val *out);  /* the same string with the Markup flag */
/* Escapes & < > ' " for HTML; the result is Markup. */
ln_status jj_escape(jj_run *r, const jj_str *s, jj_val *out);

/* ---- values (jinja_value.c, jinja_repr.c, jinja_ops.c) ---- */

const char *jj_type(jj_val v); /* Python's name of the value's type */
bool jj_truth(jj_val v);
ln_status jj_seq_new(jj_run *r, jj_seq_kind kind, const jj_val *v, size_t n,
                     jj_val *out); /* v must be in the arena */
ln_status jj_range_new(jj_run *r, int64_t start, int64_t stop, int64_t step, jj_val *out);
/* `keys` and `values` must be in the arena; of equal keys the first position and the last value are kept,
 * as in Python. */
ln_status jj_dict_new(jj_run *r, jj_val *keys, jj_val *values, size_t n, jj_val *out);
/* The value of a key, JJ_MISSING when there is none. An unhashable key sets *hashable to false. */
ln_status jj_dict_get(jj_run *r, const jj_dict *d, jj_val key, jj_val *out, bool *hashable);
jj_val jj_dict_text(const jj_dict *d, const jj_str *key);
ln_status jj_undef_name(jj_run *r, const jj_str *name, jj_val *out);
ln_status jj_undef_attr(jj_run *r, jj_val of, jj_val key, jj_val *out);
ln_status jj_undef_form(jj_run *r, const char *form, jj_val *out);
/* Fails with the error message for the use of an undefined value. */
ln_status jj_undef_fail(jj_run *r, jj_val v);
/* The items of an iterable. A lazy list is consumed. */
ln_status jj_iterate(jj_run *r, jj_val v, const jj_val **items, size_t *n);
bool jj_iterable(jj_val v);
ln_status jj_length(jj_run *r, jj_val v, int64_t *out);
ln_status jj_equal(jj_run *r, jj_val a, jj_val b, bool *out);
bool jj_same(jj_val a, jj_val b); /* Python's `is` */
ln_status jj_less(jj_run *r, jj_val a, jj_val b, jj_op op, bool *out);
ln_status jj_contains(jj_run *r, jj_val item, jj_val in, bool *out);
ln_status jj_sort(jj_run *r, jj_val *keys, jj_val *items, size_t n, bool reverse);
/* Convert a bool, an integer or a float; false: another type. jj_number makes an integer beyond the range of
 * a double infinite, while jj_real fails. */
bool jj_number(jj_val v, double *out);
bool jj_integer(jj_val v, int64_t *out); /* bool, and integers of 64 bits */
bool jj_is_int(jj_val v);                /* bool, and integers of any size */
ln_status jj_real(jj_run *r, jj_val v, double *out);
/* The digits of an integer in base 2, 8, 10 or 16, without its sign. */
ln_status jj_int_text(jj_run *r, jj_val v, unsigned base, bool *minus, const char **digits);
ln_status jj_int_of_double(jj_run *r, double v, jj_val *out); /* rounds towards zero */
size_t jj_int_bits(jj_val v);
ln_status jj_binary(jj_run *r, jj_op op, jj_val a, jj_val b, jj_val *out);
ln_status jj_negative(jj_run *r, jj_val v, bool minus, jj_val *out);
ln_status jj_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out); /* v.name */
ln_status jj_item(jj_run *r, jj_val v, jj_val key, jj_val *out);         /* v[key] */
ln_status jj_format(jj_run *r, const jj_str *form, jj_val with,
                    jj_val *out); /* text % with (jinja_format.c) */
ln_status jj_slice(jj_run *r, jj_val v, jj_val from, jj_val to, jj_val step, jj_val *out);
ln_status jj_put_value(jj_run *r, jj_buf *b, jj_val v);       /* str() */
ln_status jj_put_repr(jj_run *r, jj_buf *b, jj_val v);        /* repr() */
ln_status jj_to_str(jj_run *r, jj_val v, const jj_str **out); /* str(); a string is returned unchanged */
ln_status jj_float_text(jj_run *r, char buf[40], double v);   /* repr() of a float */
/* Python's float() and int() of a string; false, or *ok = false: not a number. */
bool jj_parse_float(const jj_str *s, double *out);
ln_status jj_parse_int(jj_run *r, const jj_str *s, int64_t base, jj_val *out, bool *ok);

/* ---- shared by several built-ins (jinja_strings.c, jinja_method.c, jinja_filter_list.c) ---- */

const jj_func *jj_string_method(const char *name, size_t n);
ln_status jj_strip(jj_run *r, const jj_str *s, const jj_str *set, bool left, bool right,
                   jj_val *out); /* set NULL: white space */
ln_status jj_splitlines(jj_run *r, const jj_str *s, bool keep, jj_val *out);
ln_status jj_replace(jj_run *r, const jj_str *s, const jj_str *old, const jj_str *new, int64_t most,
                     jj_val *out);
ln_status jj_center(jj_run *r, const jj_str *s, int64_t width, const jj_str *fill, jj_val *out);
ln_status jj_dict_items(jj_run *r, const jj_dict *d, jj_seq_kind kind, jj_val *out);
const jj_func *jj_list_filter(const char *name, size_t n);

/* ---- running (jinja_run.c, jinja_scope.c) ---- */

ln_status jj_eval(jj_run *r, const jj_node *n, jj_val *out);
ln_status jj_exec(jj_run *r, const jj_node *n); /* executes n and the statements linked after it */
/* Executes the body and returns its output as a string. */
ln_status jj_capture(jj_run *r, const jj_node *body, jj_val *out);
ln_status jj_lookup(jj_run *r, int32_t name, jj_val *out);
ln_status jj_define(jj_run *r, int32_t name, jj_val v);
ln_status jj_assign(jj_run *r, const jj_node *target, jj_val v);
ln_status jj_push(jj_run *r, jj_scope *parent, const jj_hidden *hidden,
                  jj_scope **out); /* creates a scope without entering it */
/* Evaluates the arguments of a call. `caller`, unless it is JJ_MISSING, is passed as the keyword argument
 * `caller`. */
ln_status jj_call_args(jj_run *r, const jj_args *args, jj_val caller, jj_call *out);
ln_status jj_macro_new(jj_run *r, const jj_node *n, const jj_str *name, jj_val *out);
ln_status jj_for(jj_run *r, const jj_node *n);
ln_status jj_call_value(jj_run *r, jj_val f, const jj_call *call, jj_val *out);
/* *out is JJ_MISSING when there is no such attribute. */
ln_status jj_loop_attr(jj_run *r, jj_loop *l, const jj_str *name, jj_val *out);
const jj_func *jj_loop_method(const char *name);            /* cycle, changed */
ln_status jj_loop_next(jj_run *r, jj_loop *l, jj_val *out); /* *out is JJ_MISSING at the end of the loop */
ln_status jj_space_set(jj_run *r, jj_space *s, const jj_str *name, jj_val v);
jj_val *jj_space_find(const jj_space *s, const jj_str *name);

/* ---- JSON (jinja_json.c) ---- */

/* Reads a JSON value. `from`: the string that is parsed, whose origins the strings of the value inherit;
 * NULL: all of them have the origin `data`. */
ln_status jj_json_read(jj_run *r, ln_json *j, bool data, const jj_str *from, jj_val *out, ln_error *err);
typedef struct jj_json_how {
    bool ascii, sort;
    const jj_str *indent, *comma, *colon; /* indent NULL: everything on one line */
} jj_json_how;
ln_status jj_json_write(jj_run *r, jj_buf *b, jj_val v, const jj_json_how *how, int level);

#endif
