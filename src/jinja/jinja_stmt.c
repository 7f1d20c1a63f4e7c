/* The statement parser, and compiling a template.
 *
 * A body is a linked list of nodes. The parser knows which tags may end the current block, so that a stray
 * or missing end tag is reported with the position of its block. Names are numbered in order of
 * appearance; the tree refers to them by index. */
#include "jinja_parse.h"

#include "../base/c_locale.h"

/* ---- memory, tokens, names ---- */

void *jj_keep(jj_parser *p, size_t bytes) { return ln_arena_alloc(&p->t->arena, bytes); }
ln_status jj_oom(jj_parser *p) { return LN_OOM(p->err, "a chat template"); }

ln_status jj_list_add(jj_parser *p, jj_list *l, void *item) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        void **v = jj_keep(p, cap * sizeof *v);
        if (!v) return jj_oom(p);
        if (l->n > 0) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = item;
    return LN_OK;
}

ln_status jj_advance(jj_parser *p) {
    if (!p->has_ahead) return jj_lex_next(&p->lex, &p->cur, p->err);
    p->cur = p->ahead;
    p->has_ahead = false;
    return LN_OK;
}

ln_status jj_look(jj_parser *p, jj_token *out) {
    if (!p->has_ahead) LN_TRY(jj_lex_next(&p->lex, &p->ahead, p->err));
    p->has_ahead = true;
    *out = p->ahead;
    return LN_OK;
}

bool jj_is_name(const jj_token *t, const char *name) {
    return t->kind == T_NAME && t->n == strlen(name) && memcmp(t->p, name, t->n) == 0;
}

ln_status jj_unexpected(jj_parser *p, const char *wanted) {
    char shown[80];
    if (p->cur.kind == T_END)
        return jj_fail_at(p->t, p->cur.at, p->err, "expected %s, found the end of the template", wanted);
    return jj_fail_at(p->t, p->cur.at, p->err, "expected %s, found '%s'", wanted,
                      ln_excerpt(shown, p->cur.p, LN_MIN(p->cur.n, (size_t)24)));
}

ln_status jj_expect(jj_parser *p, jj_tok kind) {
    static const char *const names[] = {
        [T_VAR_END] = "}}", [T_BLOCK_END] = "%}", [T_RBRACKET] = "]", [T_RPAREN] = ")",
        [T_RBRACE] = "}",   [T_COMMA] = ",",      [T_COLON] = ":",    [T_ASSIGN] = "="};
    char wanted[8];
    if (p->cur.kind == kind) return jj_advance(p);
    (void)snprintf(wanted, sizeof wanted, "'%s'", kind < LN_COUNT(names) && names[kind] ? names[kind] : "?");
    return jj_unexpected(p, wanted);
}

ln_status jj_enter(jj_parser *p) {
    if (++p->depth <= JINJA_MAX_NESTING) return LN_OK;
    return jj_fail_at(p->t, p->cur.at, p->err, "nested deeper than %d", JINJA_MAX_NESTING);
}

ln_status jj_node_new(jj_parser *p, jj_node_kind kind, size_t at, jj_node **out) {
    *out = jj_keep(p, sizeof **out);
    if (!*out) return jj_oom(p);
    (*out)->kind = (uint8_t)kind;
    (*out)->at = (uint32_t)at;
    (*out)->height = 1;
    return LN_OK;
}

ln_status jj_name_number(jj_parser *p, const char *text, size_t n, int32_t *out) {
    jinja *t = p->t;
    int32_t clash = strtab_find(&t->names, text, n);
    *out = clash;
    if (clash >= 0) return LN_OK;
    jj_str *s = jj_keep(p, sizeof *s);
    char *copy = ln_arena_strndup(&t->arena, text, n);
    if (!s || !copy) return jj_oom(p);
    *s = (jj_str){.p = copy, .n = n, .chars = jj_chars(copy, n)};
    LN_TRY(ln_grow((void **)&t->name_text, &t->cap_names, (size_t)t->n_names + 1, sizeof *t->name_text,
                   p->err));
    LN_TRY(strtab_add(&t->names, text, n, strtab_hash(text, n), t->n_names, &clash, p->err));
    t->name_text[t->n_names] = s;
    *out = t->n_names++;
    return LN_OK;
}

static ln_status known(jj_parser *p, const char *name, int32_t *out) {
    return jj_name_number(p, name, strlen(name), out);
}

ln_status jj_written(jj_parser *p, const jj_str *s) {
    LN_TRY(ln_grow((void **)&p->t->written, &p->t->cap_written, p->t->n_written + 1, sizeof *p->t->written,
                   p->err));
    p->t->written[p->t->n_written++] = s;
    return LN_OK;
}

/* ---- statements ---- */

static ln_status block_body(jj_parser *p, const char *end, const char *what, size_t opened, jj_node **out) {
    const char *const ends[] = {end, NULL};
    LN_TRY(jj_expect(p, T_BLOCK_END));
    LN_TRY(jj_statements(p, ends, what, opened, out));
    return jj_advance(p); /* the name of the end tag */
}

static ln_status if_(jj_parser *p, jj_node *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    size_t opened = n->at;
    bool soft = p->soft;
    for (;;) {
        p->soft = true;
        LN_TRY(jj_tuple(p, false, false, &n->a));
        p->soft = soft;
        LN_TRY(jj_expect(p, T_BLOCK_END));
        LN_TRY(jj_statements(p, ends, "if", opened, &n->body));
        if (!jj_is_name(&p->cur, "elif")) break;
        jj_node *more;
        LN_TRY(jj_node_new(p, N_IF, p->cur.at, &more));
        n->c = more; /* a chain of elif is a linked list, so that its length does not count as depth */
        n = more;
        LN_TRY(jj_advance(p));
    }
    bool has_else = jj_is_name(&p->cur, "else");
    LN_TRY(jj_advance(p));
    if (!has_else) return LN_OK;
    LN_TRY(jj_expect(p, T_BLOCK_END));
    LN_TRY(jj_statements(p, last, "if", opened, &n->otherwise));
    return jj_advance(p);
}

static ln_status for_(jj_parser *p, jj_node *n) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    bool soft = p->soft;
    p->loops++;
    LN_TRY(jj_target(p, false, &n->b));
    if (!jj_is_name(&p->cur, "in")) return jj_unexpected(p, "'in'");
    LN_TRY(jj_advance(p));
    LN_TRY(jj_tuple(p, false, false, &n->a));
    if (jj_is_name(&p->cur, "if")) {
        LN_TRY(jj_advance(p));
        p->soft = false;
        LN_TRY(jj_expression(p, true, &n->c));
        p->soft = soft;
    }
    if (jj_is_name(&p->cur, "recursive"))
        return jj_fail_at(p->t, p->cur.at, p->err, "recursive loops are not supported");
    LN_TRY(jj_expect(p, T_BLOCK_END));
    LN_TRY(jj_statements(p, ends, "for", n->at, &n->body));
    p->loops--;
    bool has_else = jj_is_name(&p->cur, "else");
    LN_TRY(jj_advance(p));
    if (!has_else) return LN_OK;
    LN_TRY(jj_expect(p, T_BLOCK_END));
    LN_TRY(jj_statements(p, last, "for", n->at, &n->otherwise));
    return jj_advance(p);
}

/* set target = value, or set target [|filters] ... endset. */
static ln_status set(jj_parser *p, jj_node *n) {
    LN_TRY(jj_target(p, true, &n->b));
    if (p->cur.kind == T_ASSIGN) {
        LN_TRY(jj_advance(p));
        return jj_tuple(p, true, false, &n->a);
    }
    n->kind = N_SET_BLOCK;
    if (p->cur.kind == T_PIPE) LN_TRY(jj_filters(p, NULL, false, &n->a));
    return block_body(p, "endset", "set", n->at, &n->body);
}

enum { MAX_PARAMETERS = 255 }; /* binding a call compares each parameter with every keyword */

/* Parses (a, b=1): parameter names, and the defaults of the last ones. */
static ln_status signature(jj_parser *p, jj_sig *s) {
    jj_list names = {0}, defaults = {0};
    int32_t *numbers;
    LN_TRY(jj_expect(p, T_LPAREN));
    for (bool first = true; p->cur.kind != T_RPAREN; first = false) {
        jj_node *target, *value;
        if (!first) LN_TRY(jj_expect(p, T_COMMA));
        if (p->cur.kind != T_NAME) return jj_unexpected(p, "the name of a parameter");
        LN_TRY(jj_node_new(p, N_NAME, p->cur.at, &target));
        LN_TRY(jj_name_number(p, p->cur.p, p->cur.n, &target->name));
        LN_TRY(jj_advance(p));
        LN_TRY(jj_list_add(p, &names, target));
        if (names.n > MAX_PARAMETERS)
            return jj_fail_at(p->t, target->at, p->err, "expected at most %d parameters", MAX_PARAMETERS);
        if (p->cur.kind == T_ASSIGN) {
            LN_TRY(jj_advance(p));
            LN_TRY(jj_expression(p, true, &value));
            LN_TRY(jj_list_add(p, &defaults, value));
        } else if (defaults.n > 0) {
            return jj_fail_at(p->t, target->at, p->err,
                              "a parameter without a default after one that has one");
        }
    }
    LN_TRY(jj_advance(p));
    numbers = jj_keep(p, names.n * sizeof *numbers + 1);
    const jj_str **texts = jj_keep(p, names.n * sizeof *texts + 1);
    if (!numbers || !texts) return jj_oom(p);
    for (size_t i = 0; i < names.n; i++) {
        numbers[i] = ((const jj_node *)names.v[i])->name;
        texts[i] = p->t->name_text[numbers[i]];
    }
    s->names = numbers;
    s->texts = texts;
    s->n = names.n;
    s->defaults = (jj_node *const *)defaults.v;
    s->n_defaults = defaults.n;
    return LN_OK;
}

/* Parses the body of a macro or call block and records whether it mentions caller, kwargs and varargs; a
 * mention counts for the enclosing macros too. */
static ln_status function_body(jj_parser *p, jj_node *n, jj_sig *s, const char *end, const char *what) {
    bool caller = p->caller, kwargs = p->kwargs, varargs = p->varargs;
    int loops = p->loops;
    p->caller = p->kwargs = p->varargs = false;
    p->loops = 0;
    LN_TRY(block_body(p, end, what, n->at, &n->body));
    s->caller = p->caller, s->kwargs = p->kwargs, s->varargs = p->varargs;
    p->caller = p->caller || caller, p->kwargs = p->kwargs || kwargs, p->varargs = p->varargs || varargs;
    p->loops = loops;
    n->sig = s;
    return LN_OK;
}

static ln_status macro(jj_parser *p, jj_node *n) {
    jj_sig *s = jj_keep(p, sizeof *s);
    if (!s) return jj_oom(p);
    if (p->cur.kind != T_NAME) return jj_unexpected(p, "the name of a macro");
    bool soft = p->soft;
    LN_TRY(jj_name_number(p, p->cur.p, p->cur.n, &n->name));
    LN_TRY(jj_advance(p));
    p->soft = false;
    LN_TRY(signature(p, s));
    p->soft = soft;
    return function_body(p, n, s, "endmacro", "macro");
}

static ln_status call_block(jj_parser *p, jj_node *n) {
    jj_sig *s = jj_keep(p, sizeof *s);
    if (!s) return jj_oom(p);
    if (p->cur.kind == T_LPAREN) LN_TRY(signature(p, s));
    LN_TRY(jj_expression(p, true, &n->a));
    if (n->a->kind != N_CALL) return jj_fail_at(p->t, n->a->at, p->err, "expected a call");
    return function_body(p, n, s, "endcall", "call");
}

static ln_status filter_block(jj_parser *p, jj_node *n) {
    LN_TRY(jj_filters(p, NULL, true, &n->a));
    return block_body(p, "endfilter", "filter", n->at, &n->body);
}

static ln_status with(jj_parser *p, jj_node *n) {
    jj_list l = {0};
    while (p->cur.kind != T_BLOCK_END) {
        jj_node *item;
        if (l.n > 0) LN_TRY(jj_expect(p, T_COMMA));
        LN_TRY(jj_target(p, false, &item));
        LN_TRY(jj_list_add(p, &l, item));
        LN_TRY(jj_expect(p, T_ASSIGN));
        LN_TRY(jj_expression(p, true, &item));
        LN_TRY(jj_list_add(p, &l, item));
    }
    n->list = (jj_node *const *)l.v;
    n->n = l.n;
    return block_body(p, "endwith", "with", n->at, &n->body);
}

static ln_status generation(jj_parser *p, jj_node *n) {
    return block_body(p, "endgeneration", "generation", n->at, &n->body);
}

static ln_status leave_loop(jj_parser *p, jj_node *n) {
    if (p->loops > 0) return LN_OK;
    return jj_fail_at(p->t, n->at, p->err, "'%s' outside a loop", n->kind == N_BREAK ? "break" : "continue");
}

static ln_status statement(jj_parser *p, jj_node **out) {
    static const struct {
        char name[12];
        uint8_t kind;
        ln_status (*parse)(jj_parser *, jj_node *);
    } rows[] = {{"if", N_IF, if_},
                {"for", N_FOR, for_},
                {"set", N_SET, set},
                {"macro", N_MACRO, macro},
                {"call", N_CALL_BLOCK, call_block},
                {"filter", N_FILTER_BLOCK, filter_block},
                {"with", N_WITH, with},
                {"generation", N_GENERATION, generation},
                {"break", N_BREAK, leave_loop},
                {"continue", N_CONTINUE, leave_loop}};
    char shown[80];
    if (p->cur.kind != T_NAME) return jj_unexpected(p, "the name of a tag");
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (!jj_is_name(&p->cur, rows[i].name)) continue;
        LN_TRY(jj_node_new(p, (jj_node_kind)rows[i].kind, p->cur.at, out));
        LN_TRY(jj_advance(p));
        return rows[i].parse(p, *out);
    }
    return jj_fail_at(p->t, p->cur.at, p->err, "unknown tag '%s'", ln_excerpt(shown, p->cur.p, p->cur.n));
}

static bool is_end(const jj_parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (jj_is_name(&p->cur, *ends)) return true;
    return false;
}

/* Parses one piece of a body: text, a print or a statement. *ended: it was the tag that ends the body. */
static ln_status piece(jj_parser *p, const char *const *ends, jj_node **out, bool *ended) {
    *out = NULL;
    if (p->cur.kind == T_DATA) {
        jj_str *s = p->cur.n > 0 ? jj_keep(p, sizeof *s) : NULL;
        if (p->cur.n == 0) return jj_advance(p);
        if (!s) return jj_oom(p);
        *s = (jj_str){.p = p->cur.p, .n = p->cur.n, .chars = jj_chars(p->cur.p, p->cur.n)};
        LN_TRY(jj_written(p, s));
        LN_TRY(jj_node_new(p, N_DATA, p->cur.at, out));
        (*out)->value = jj_of(s);
        return jj_advance(p);
    }
    if (p->cur.kind == T_VAR) {
        LN_TRY(jj_node_new(p, N_PRINT, p->cur.at, out));
        LN_TRY(jj_advance(p));
        LN_TRY(jj_tuple(p, true, false, &(*out)->a));
        return jj_expect(p, T_VAR_END);
    }
    LN_TRY(jj_advance(p));
    *ended = is_end(p, ends);
    if (*ended) return LN_OK;
    LN_TRY(statement(p, out));
    return jj_expect(p, T_BLOCK_END);
}

static ln_status unknown_row(const jj_parser *p) {
    char shown[80];
    const jj_node *n = p->unknown;
    return jj_fail_at(p->t, n->at, p->err, "no %s named '%s'", n->kind == N_FILTER ? "filter" : "test",
                      ln_excerpt(shown, n->value.u.s->p, n->value.u.s->n));
}

ln_status jj_statements(jj_parser *p, const char *const *ends, const char *what, size_t opened,
                        jj_node **out) {
    jj_node **link = out;
    bool ended = false, soft = p->soft;
    *out = NULL;
    LN_TRY(jj_enter(p));
    p->soft = strcmp(what, "if") == 0;
    while (!ended && p->cur.kind != T_END) {
        LN_TRY(piece(p, ends, link, &ended));
        if (p->unknown) return unknown_row(p);
        if (*link) link = &(*link)->next;
    }
    p->soft = soft;
    jj_leave(p);
    if (ended || !ends) return LN_OK;
    size_t line, column;
    jj_place(p->t, opened, &line, &column);
    return jj_fail_at(p->t, p->cur.at, p->err,
                      "the template ends inside '%s' of line %zu, column %zu; expected {%% %s %%}", what,
                      line, column,
                      ends[0][0] == 'e' && ends[1] ? ends[strcmp(what, "if") == 0 ? 2 : 1] : ends[0]);
}

/* ---- the compiled template ---- */

/* Copies the source with '\n' for every kind of newline and without the last newline. */
static ln_status copy_source(jinja *t, const char *source, size_t bytes, ln_error *err) {
    if (bytes > JINJA_MAX_SOURCE)
        return ln_fail(err, LN_EINVALID, "%s: expected a template of at most %d bytes, found %zu", t->name,
                       JINJA_MAX_SOURCE, bytes);
    size_t good = ln_utf8_valid(source, bytes);
    if (good < bytes) return ln_fail(err, LN_EINVALID, "%s: byte %zu: expected UTF-8", t->name, good);
    t->source = ln_alloc(bytes + 1);
    if (!t->source) return LN_OOM(err, "a chat template");
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n') continue;
        t->source[t->bytes++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (!t->opt.keep_trailing_newline && t->bytes > 0 && t->source[t->bytes - 1] == '\n') t->bytes--;
    t->source[t->bytes] = '\0';
    return LN_OK;
}

ln_status jinja_compile(jinja **out, const char *name, const char *source, size_t bytes,
                        const jinja_options *opt, ln_error *err) {
    ln_status st;
    jj_parser p = {.err = err};
    char shown[LN_PATH_TEXT];
    *out = NULL;
    jinja *t = ln_zalloc(1, sizeof *t);
    if (!t) return LN_OOM(err, "a chat template");
    p.t = t;
    t->opt = *opt;
    (void)snprintf(t->name, sizeof t->name, "%s", ln_path_text(shown, name));
    LN_GO(copy_source(t, source, bytes, err));
    LN_GO(strtab_open(&t->names, 64, err));
    LN_GO(known(&p, "loop", &t->known.loop));
    LN_GO(known(&p, "caller", &t->known.caller));
    LN_GO(known(&p, "kwargs", &t->known.kwargs));
    LN_GO(known(&p, "varargs", &t->known.varargs));
    jj_lex_open(&p.lex, t);
    LN_GO(jj_advance(&p));
    LN_GO(jj_statements(&p, NULL, "", 0, &t->body));
    LN_GO(jj_symbols(t, err));
    *out = t;
    return LN_OK;
out:
    jinja_free(&t);
    return st;
}

void jinja_free(jinja **t) {
    if (!*t) return;
    strtab_close(&(*t)->names);
    ln_free((*t)->name_text);
    ln_free((*t)->written);
    ln_free((*t)->source);
    ln_arena_free(&(*t)->arena);
    ln_free(*t);
    *t = NULL;
}

ln_status jinja_written(const jinja *t, ln_str *out, ln_error *err) {
    for (size_t i = 0; i < t->n_written; i++) {
        ln_str_add(out, t->written[i]->p, t->written[i]->n);
        ln_str_add(out, "\0", 1);
    }
    return out->failed ? LN_OOM(err, "what a template writes") : LN_OK;
}

bool jinja_names(const jinja *t, const char *name) { return strtab_find(&t->names, name, strlen(name)) >= 0; }

void jj_place(const jinja *t, size_t at, size_t *line, size_t *column) {
    size_t begin = 0;
    *line = 1;
    for (size_t i = 0; i < at && i < t->bytes; i++) {
        if (t->source[i] != '\n') continue;
        ++*line;
        begin = i + 1;
    }
    *column = jj_chars(t->source + begin, LN_MIN(at, t->bytes) - begin) + 1;
}

ln_status jj_fail_at(const jinja *t, size_t at, ln_error *err, const char *fmt, ...) {
    char text[640];
    size_t line, column;
    va_list args;
    if (!err) return LN_EINVALID;
    va_start(args, fmt);
    if (ln_vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    jj_place(t, at, &line, &column);
    return ln_fail(err, LN_EINVALID, "%s: line %zu, column %zu: %s", t->name, line, column, text);
}
