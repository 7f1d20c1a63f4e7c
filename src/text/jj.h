/* Inside the template language: syntax tree, values, and what the files share.
 *
 * jj_lex.c cuts the source, jj_expr.c and jj_stmt.c make the tree, which is the compiled form: names are numbers, filters and tests are
 * pointers. jj_text.c, jj_value.c, jj_repr.c and jj_ops.c are the values and Python's semantics for them; jj_run.c walks the tree,
 * jj_scope.c holds names and calls; jj_filter*.c, jj_test.c, jj_method.c and jj_global.c are the vocabulary; jj_json.c reads and writes JSON.
 *
 * Values are 16 bytes and immutable, but for namespaces, loops and the cursor of a lazy list. They point into the rendering's arena or
 * into the compiled template. A text knows of each byte whether it is data: `origin` per byte, or one answer for all of them. */
#ifndef LN_TEXT_JJ_H
#define LN_TEXT_JJ_H

#include "jinja.h"
#include "tok.h"

/* ---- values ---- */

typedef enum jj_kind {
    JJ_MISSING = 0, /* no value: an argument that was not given */
    JJ_UNDEF, JJ_NONE, JJ_BOOL, JJ_INT, JJ_BIG, JJ_FLOAT, JJ_STR, JJ_SEQ, JJ_DICT, JJ_SPACE, JJ_MACRO, JJ_LOOP, JJ_FUNC, JJ_METHOD,
    JJ_CYCLER, JJ_JOINER
} jj_kind;

typedef struct jj_str {
    const char *p;
    const uint8_t *origin; /* per byte, or NULL: all bytes as `data` says */
    size_t n, chars;       /* bytes, characters: equal when all is ASCII */
    bool data;
    bool markup;           /* came out of `safe` or `escape` */
} jj_str;

struct jj_seq;
struct jj_dict;
struct jj_space;
struct jj_loop;
struct jj_macro;
struct jj_func;
struct jj_undef;
struct jj_bound;
typedef struct jj_counter jj_counter; /* of a cycler or joiner */
typedef struct jj_big jj_big; /* an integer beyond 64 bits (jj_big.h) */

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
    size_t taken;                /* JJ_LAZY: items already handed out */
    int64_t start, stop, step;   /* JJ_RANGE */
    bool grouped;                /* JJ_TUPLE of groupby: its items have names, grouper and list */
} jj_seq;

typedef struct jj_dict { /* insertion order; an open hash index when it is large */
    uint32_t nesting;
    size_t n;
    const jj_val *keys, *values;
    const uint32_t *index; /* 2^bits slots of position + 1, or NULL */
    unsigned bits;
} jj_dict;

typedef struct jj_undef { /* what the message will say when it is used */
    const char *form;     /* NULL: 'name' is undefined */
    const jj_str *name;
    const char *of;       /* type of the object that has no such attribute */
    jj_val key;
} jj_undef;

typedef struct jj_run jj_run;
typedef struct jj_node jj_node;

/* ---- calls ---- */

typedef struct jj_call { /* evaluated arguments */
    const jj_val *pos, *named;
    const jj_str *const *names;
    size_t n_pos, n_named;
} jj_call;

enum { JJ_MAX_ARGS = 6 };
/* `self` is the filtered or tested value, or what a method belongs to. `a` holds the parameters in the order of `params`. A row whose
 * params is "*" takes the call as it is. */
typedef ln_status jj_fn(jj_run *r, jj_val self, const jj_val *a, const jj_call *call, jj_val *out);
typedef struct jj_func {
    const char *name;
    const char *params; /* names with blanks between; those before '|' are required */
    jj_fn *fn;          /* NULL: known to Python, not to us */
    int how;            /* told to a function that serves several rows */
} jj_func;
typedef struct jj_bound {
    const jj_func *func;
    jj_val self;
} jj_bound;

const jj_func *jj_filter_named(const char *name, size_t n);
const jj_func *jj_test_named(const char *name, size_t n);
const jj_func *jj_global_named(const char *name, size_t n);
/* The method of a value, or NULL. *unsafe: the name exists and the sandbox refuses it. */
const jj_func *jj_method_named(jj_val self, const char *name, size_t n, bool *unsafe);
/* Attributes that are values; *out stays as it is where there is none. And methods of what is no text, list or dictionary. */
ln_status jj_object_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out);
const jj_func *jj_object_method(jj_val self, const char *name, size_t n);
jj_fn jj_cycler, jj_joiner;
ln_status jj_join_next(jj_run *r, jj_counter *k, const jj_call *c, jj_val *out); /* calling a joiner */
const jj_func *jj_find(const jj_func *rows, size_t n_rows, const char *name, size_t n);
/* Binds the arguments to the row's parameters and calls it. */
ln_status jj_apply(jj_run *r, const jj_func *f, jj_val self, const jj_call *call, jj_val *out);
ln_status jj_arg_text(jj_run *r, jj_val v, const char *what, const jj_str **out);
ln_status jj_arg_int(jj_run *r, jj_val v, const char *what, int64_t otherwise, int64_t *out); /* missing: `otherwise` */

/* ---- the tree ---- */

typedef enum jj_op {
    JJ_ADD, JJ_SUB, JJ_MUL, JJ_DIV, JJ_FLOORDIV, JJ_MOD, JJ_POW,
    JJ_EQ, JJ_NE, JJ_LT, JJ_LE, JJ_GT, JJ_GE, JJ_IN, JJ_NOT_IN
} jj_op;

typedef enum jj_node_kind {
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NOT, N_NEG, N_POS, N_BINARY, N_CONCAT,
    N_COMPARE, N_AND, N_OR, N_COND, N_SPACE_ATTR,
    N_DATA, N_PRINT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_CALL_BLOCK, N_FILTER_BLOCK, N_WITH, N_GENERATION, N_BREAK, N_CONTINUE
} jj_node_kind;

typedef struct jj_args {
    jj_node *const *pos, *const *named;
    const jj_str *const *names;
    size_t n_pos, n_named;
    jj_node *star, *star_star;
} jj_args;

typedef struct jj_hidden { /* names that a scope begins without (jj_symbols.c) */
    const int32_t *names;
    size_t n;
} jj_hidden;

struct jj_node {
    uint8_t kind, op;    /* jj_node_kind, jj_op */
    uint16_t height;     /* nodes on the longest way down */
    uint32_t at;         /* offset in the source, for messages */
    int32_t name;        /* number of a name */
    bool constant;       /* made of literals only */
    jj_val value;        /* N_CONST, N_DATA, and the attribute of N_ATTR */
    jj_node *a, *b, *c;
    jj_node *const *list; /* items; operands of N_COMPARE (their op is in `op`); keys and values in turn of N_DICT */
    size_t n;
    const jj_args *args;
    const jj_func *func; /* filter or test; NULL: unknown */
    const struct jj_sig *sig;
    jj_node *body, *otherwise; /* statements, linked by next */
    jj_node *next;
    jj_hidden hidden, hidden_else; /* of the scopes that it opens */
};

typedef struct jj_sig { /* parameters of a macro */
    const int32_t *names;
    const jj_str *const *texts;
    jj_node *const *defaults; /* of the last n_defaults */
    size_t n, n_defaults;
    bool caller, kwargs, varargs; /* what its body mentions */
} jj_sig;

struct jinja {
    ln_arena arena;
    char name[128];
    char *source;        /* newlines made '\n' */
    size_t bytes;
    jinja_options opt;
    text_vocab names;    /* name -> number */
    int32_t n_names;
    const jj_str **name_text;
    size_t cap_names;
    jj_node *body;
    jj_hidden hidden;
    const jj_str **written; /* its texts and string constants */
    size_t n_written, cap_written;
    struct { int32_t loop, caller, kwargs, varargs; } known;
};

/* Line and column (in characters), both from 1. */
void jj_place(const jinja *t, size_t at, size_t *line, size_t *column);
ln_status jj_fail_at(const jinja *t, size_t at, ln_error *err, const char *fmt, ...) LN_PRINTF(4, 5);

/* ---- a rendering ---- */

typedef struct jj_buf { /* a text being made; sticky failure is not needed: every add says so */
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
    } *vars;
    size_t n, cap;
    bool captured; /* a macro refers to it: it is not used again */
} jj_scope;

typedef struct jj_macro {
    const jj_str *name; /* NULL: the body of a call block */
    const jj_node *node;
    jj_scope *scope;
} jj_macro;

typedef struct jj_space { /* namespace() */
    const jj_str **names;
    jj_val *values;
    size_t n, cap;
} jj_space;

typedef struct jj_loop {
    const jj_node *node;
    jj_scope *scope;    /* the outer one */
    const jj_val *v;    /* what is looped over */
    size_t n, pos;      /* pos: items taken from v, refused ones included */
    int64_t index0;
    jj_val current, before, after; /* JJ_MISSING: none */
    jj_val changed;
    int64_t length;     /* -1: not asked yet */
} jj_loop;

typedef enum jj_flow { FLOW_ON = 0, FLOW_BREAK, FLOW_CONTINUE } jj_flow;

struct jj_run {
    ln_arena arena;
    const jinja *t;
    ln_error *err;
    ln_error spare;      /* where err points when the caller wants none */
    struct tm now;
    jj_val *root;        /* variables of the template itself, by name number */
    jj_scope *scope;     /* NULL: the root */
    jj_buf *out;
    int captures;        /* texts being captured: 0 means that `out` is the output */
    jj_flow flow;
    size_t at;           /* of the node at work */
    bool folding;        /* a print of literals is at work */
    int depth, how;      /* how: of the row being applied */
    int64_t steps;
    jj_val filtered;     /* what a filter block's first filter is applied to */
    jinja_span *spans;
    size_t n_spans, cap_spans;
    const jj_str *refused;
};
struct jinja_run { jj_run run; };

ln_status jj_fail(jj_run *r, const char *fmt, ...) LN_PRINTF(2, 3);
ln_status jj_nomem(jj_run *r);
void *jj_take(jj_run *r, size_t bytes); /* zeroed; NULL when there is no more, jj_nomem says why */
enum { JJ_PER_CHAR = 4 }; /* looking at each character costs so many times what comparing or copying bytes does */
/* Spends steps; `bytes` of text or items handled count too. */
static inline ln_status jj_spend(jj_run *r, size_t units) {
    r->steps += (int64_t)LN_MIN(units / 64, (size_t)JINJA_MAX_STEPS) + 1;
    return r->steps > JINJA_MAX_STEPS ? jj_fail(r, "expected at most %d steps, and there are more; does it loop for ever?", JINJA_MAX_STEPS) : LN_OK;
}

/* ---- texts (jj_text.c) ---- */

static inline jj_val jj_of(const jj_str *s) { return (jj_val){JJ_STR, {.s = s}}; }
static inline jj_val jj_none(void) { return (jj_val){JJ_NONE, {0}}; }
static inline jj_val jj_bool(bool b) { return (jj_val){JJ_BOOL, {.b = b}}; }
static inline jj_val jj_int(int64_t i) { return (jj_val){JJ_INT, {.i = i}}; }
static inline jj_val jj_float(double f) { return (jj_val){JJ_FLOAT, {.f = f}}; }

size_t jj_chars(const char *p, size_t n);
bool jj_is_case(const jj_str *s, bool upper); /* islower(), isupper() */
bool jj_is_space(uint32_t cp); /* str.isspace() */
ln_status jj_str_new(jj_run *r, const char *p, size_t n, bool data, jj_val *out); /* copies */
ln_status jj_str_lit(jj_run *r, const char *text, jj_val *out);                   /* a literal of ours: not copied, not data */
/* Bytes [from, to) of s, sharing them. */
ln_status jj_str_cut(jj_run *r, const jj_str *s, size_t from, size_t to, jj_val *out);
const jj_str *jj_str_part(jj_run *r, const jj_str *s, size_t from, size_t to); /* NULL: no memory */
size_t jj_str_at(const jj_str *s, size_t index); /* byte offset of a character; index <= chars */
bool jj_str_eq(const jj_str *a, const jj_str *b);
bool jj_str_is(const jj_str *a, const char *text);
int jj_str_cmp(const jj_str *a, const jj_str *b); /* -1, 0, 1 */
/* First or last place of b in a[from, to), SIZE_MAX: none. */
size_t jj_str_find(const jj_str *a, size_t from, size_t to, const jj_str *b);
size_t jj_str_rfind(const jj_str *a, size_t from, size_t to, const jj_str *b);
ln_status jj_str_join(jj_run *r, const jj_str *a, const jj_str *b, jj_val *out);

ln_status jj_put(jj_run *r, jj_buf *b, const char *p, size_t n, bool data);
ln_status jj_put_like(jj_run *r, jj_buf *b, const char *p, size_t n, const jj_str *s, size_t at); /* as data as byte `at` of s */
ln_status jj_put_str(jj_run *r, jj_buf *b, const jj_str *s);
ln_status jj_put_part(jj_run *r, jj_buf *b, const jj_str *s, size_t from, size_t to);
ln_status jj_put_lit(jj_run *r, jj_buf *b, const char *text);
ln_status jj_buf_str(jj_run *r, jj_buf *b, jj_val *out); /* the buffer is used up */
static inline bool jj_byte_data(const jj_str *s, size_t at) { return s->origin ? s->origin[at] : s->data; }

/* Case: a character becomes up to three. `title` of the first, `lower` of the rest make capitalize(). */
typedef enum jj_case { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP } jj_case;
ln_status jj_recase(jj_run *r, const jj_str *s, jj_case how, jj_val *out);
ln_status jj_plain(jj_run *r, const jj_str *s, jj_val *out);  /* the same, not markup */
ln_status jj_mark(jj_run *r, const jj_str *s, jj_val *out);   /* the same as markup */
ln_status jj_escape(jj_run *r, const jj_str *s, jj_val *out); /* & < > ' " for HTML; the result is markup */

/* ---- values (jj_value.c, jj_repr.c, jj_ops.c) ---- */

const char *jj_type(jj_val v); /* Python's name of it */
bool jj_truth(jj_val v);
ln_status jj_seq_new(jj_run *r, jj_seq_kind kind, const jj_val *v, size_t n, jj_val *out); /* v lies in the arena already */
ln_status jj_range_new(jj_run *r, int64_t start, int64_t stop, int64_t step, jj_val *out);
/* keys and values lie in the arena; equal keys are merged as Python does. */
ln_status jj_dict_new(jj_run *r, jj_val *keys, jj_val *values, size_t n, jj_val *out);
/* The value of a key; JJ_MISSING: none. An unhashable key is *hashable = false. */
ln_status jj_dict_get(jj_run *r, const jj_dict *d, jj_val key, jj_val *out, bool *hashable);
jj_val jj_dict_text(const jj_dict *d, const jj_str *key);
ln_status jj_undef_name(jj_run *r, const jj_str *name, jj_val *out);
ln_status jj_undef_attr(jj_run *r, jj_val of, jj_val key, jj_val *out);
ln_status jj_undef_form(jj_run *r, const char *form, jj_val *out);
ln_status jj_undef_fail(jj_run *r, jj_val v); /* using it is an error: says which */
/* What iterating over it gives. A lazy list is used up. */
ln_status jj_iterate(jj_run *r, jj_val v, const jj_val **items, size_t *n);
bool jj_iterable(jj_val v);
ln_status jj_length(jj_run *r, jj_val v, int64_t *out);
ln_status jj_equal(jj_run *r, jj_val a, jj_val b, bool *out);
bool jj_same(jj_val a, jj_val b); /* Python's `is` */
ln_status jj_less(jj_run *r, jj_val a, jj_val b, jj_op op, bool *out);
ln_status jj_contains(jj_run *r, jj_val item, jj_val in, bool *out);
ln_status jj_sort(jj_run *r, jj_val *keys, jj_val *items, size_t n, bool reverse);
bool jj_number(jj_val v, double *out);     /* bool, int, float; an integer beyond the range of a double is infinite */
bool jj_integer(jj_val v, int64_t *out);   /* bool, int of 64 bits */
bool jj_is_int(jj_val v);                  /* bool, int */
ln_status jj_real(jj_run *r, jj_val v, double *out); /* of a number; an integer beyond the range of a double is an error */
/* The digits of an integer in base 2, 8, 10 or 16, without its sign. */
ln_status jj_int_text(jj_run *r, jj_val v, unsigned base, bool *minus, const char **digits);
ln_status jj_int_of_double(jj_run *r, double v, jj_val *out); /* cut off at the point */
size_t jj_int_bits(jj_val v);
ln_status jj_binary(jj_run *r, jj_op op, jj_val a, jj_val b, jj_val *out);
ln_status jj_negative(jj_run *r, jj_val v, bool minus, jj_val *out);
ln_status jj_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out);  /* v.name */
ln_status jj_item(jj_run *r, jj_val v, jj_val key, jj_val *out);          /* v[key] */
ln_status jj_format(jj_run *r, const jj_str *form, jj_val with, jj_val *out); /* form % with (jj_format.c) */
ln_status jj_slice(jj_run *r, jj_val v, jj_val from, jj_val to, jj_val step, jj_val *out);
ln_status jj_put_value(jj_run *r, jj_buf *b, jj_val v);  /* str() */
ln_status jj_put_repr(jj_run *r, jj_buf *b, jj_val v);   /* repr() */
ln_status jj_to_str(jj_run *r, jj_val v, const jj_str **out); /* str(), as it is when it is a text */
ln_status jj_float_text(jj_run *r, char buf[40], double v); /* repr() of a float */
/* float() and int() of a text; false: not a number. */
bool jj_parse_float(const jj_str *s, double *out);
ln_status jj_parse_int(jj_run *r, const jj_str *s, int64_t base, jj_val *out, bool *ok);

/* ---- vocabulary that is shared (jj_strings.c, jj_method.c, jj_filter_list.c) ---- */

const jj_func *jj_string_method(const char *name, size_t n);
ln_status jj_strip(jj_run *r, const jj_str *s, const jj_str *set, bool left, bool right, jj_val *out); /* set NULL: white space */
ln_status jj_splitlines(jj_run *r, const jj_str *s, bool keep, jj_val *out);
ln_status jj_replace(jj_run *r, const jj_str *s, const jj_str *old, const jj_str *new, int64_t most, jj_val *out);
ln_status jj_center(jj_run *r, const jj_str *s, int64_t width, const jj_str *fill, jj_val *out);
ln_status jj_dict_items(jj_run *r, const jj_dict *d, jj_seq_kind kind, jj_val *out);
const jj_func *jj_list_filter(const char *name, size_t n);

/* ---- running (jj_run.c, jj_scope.c) ---- */

ln_status jj_eval(jj_run *r, const jj_node *n, jj_val *out);
ln_status jj_exec(jj_run *r, const jj_node *n); /* n and what is linked behind it */
ln_status jj_capture(jj_run *r, const jj_node *body, jj_val *out); /* runs body, its output becomes a text */
ln_status jj_lookup(jj_run *r, int32_t name, jj_val *out);
ln_status jj_define(jj_run *r, int32_t name, jj_val v);
ln_status jj_assign(jj_run *r, const jj_node *target, jj_val v);
ln_status jj_push(jj_run *r, jj_scope *parent, const jj_hidden *hidden, jj_scope **out); /* a new scope; it is not entered */
/* Evaluates arguments; `caller`, unless missing, is given by that name. */
ln_status jj_call_args(jj_run *r, const jj_args *args, jj_val caller, jj_call *out);
ln_status jj_macro_new(jj_run *r, const jj_node *n, const jj_str *name, jj_val *out);
ln_status jj_for(jj_run *r, const jj_node *n);
ln_status jj_call_value(jj_run *r, jj_val f, const jj_call *call, jj_val *out);
ln_status jj_loop_attr(jj_run *r, jj_loop *l, const jj_str *name, jj_val *out); /* JJ_MISSING: no such */
const jj_func *jj_loop_method(const char *name); /* cycle, changed */
ln_status jj_loop_next(jj_run *r, jj_loop *l, jj_val *out);                      /* JJ_MISSING: over */
ln_status jj_space_set(jj_run *r, jj_space *s, const jj_str *name, jj_val v);
jj_val *jj_space_find(const jj_space *s, const jj_str *name);

/* ---- JSON (jj_json.c) ---- */

ln_status jj_json_read(jj_run *r, ln_json *j, bool data, const jj_str *from, jj_val *out, ln_error *err);
typedef struct jj_json_how {
    bool ascii, sort;
    const jj_str *indent, *comma, *colon; /* indent NULL: one line */
} jj_json_how;
ln_status jj_json_write(jj_run *r, jj_buf *b, jj_val v, const jj_json_how *how, int level);

#endif
