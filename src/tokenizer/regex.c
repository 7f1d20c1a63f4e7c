/* Compiles patterns and matches them from left to right, with PCRE2 (options UTF and UCP, and its JIT
 * compiler).
 *
 * A tokenizer.json may come from an untrusted source, so matching has limits: a pattern that exceeds them is
 * an error, not a hang. A limit for each match is not enough, because a match is attempted at every byte of a
 * text. So every start offset has a small limit of match steps, and an offset that needs more takes them from
 * a budget of the whole text. The budget counts steps, not time, so results do not depend on the speed of the
 * machine.
 *
 * Texts are known to be valid UTF-8, so PCRE2 is told not to check them: it would check the whole rest for
 * each match. As in the reference, an empty match directly after the preceding match is ignored. */
#include "tokenizer_internal.h"

/* Match steps of one start offset: FIRST_LIMIT without charge, then up to MATCH_LIMIT from the budget. */
enum {
    FIRST_LIMIT = 1024,
    LIMIT_GROWS = 32,
    MATCH_LIMIT = FIRST_LIMIT * LIMIT_GROWS * LIMIT_GROWS * LIMIT_GROWS
};
enum { BUDGET = 32 * 1000 * 1000, BUDGET_PER_BYTE = 256 };
enum { HEAP_LIMIT_KIB = 64 * 1024, STACK_START = 32 * 1024, STACK_MOST = 8 * 1024 * 1024 };

/* Set when an allocation failed. PCRE2 returns the same code when memory is short and when the system forbids
 * executable memory for the JIT; only the first case is an error. */
static _Thread_local bool starved;

static void *counted_alloc(size_t n, void *user) {
    (void)user;
    void *p = ln_alloc(n);
    if (!p) starved = true;
    return p;
}
static void counted_free(void *p, void *user) {
    (void)user;
    ln_free(p);
}

static ln_status compile(tok_regex *re, const char *what, const ln_str *pattern, ln_error *err) {
    pcre2_general_context *memory = pcre2_general_context_create(counted_alloc, counted_free, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    ln_status st = LN_OK;
    if (!context) {
        st = LN_OOM(err, "a pattern");
    } else {
        int code = 0;
        PCRE2_SIZE at = 0;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(context, 250);
        re->code = pcre2_compile((PCRE2_SPTR)(pattern->data ? pattern->data : ""), pattern->len,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                                     PCRE2_USE_OFFSET_LIMIT,
                                 &code, &at, context);
        if (!re->code) {
            char why[160];
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            bool lookbehind =
                code == PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH || code == PCRE2_ERROR_LOOKBEHIND_TOO_LONG;
            if (code == PCRE2_ERROR_HEAP_FAILED) st = LN_OOM(err, "a pattern");
            else st = ln_fail(err, lookbehind ? LN_EUNSUPPORTED : LN_EINVALID, "%s.pattern: %s", what, why);
        } else {
            /* Without the JIT, PCRE2 interprets the pattern, which is slower and counts match steps
             * differently. Which of the two runs must not depend on free memory, or the same text would
             * sometimes be within the limit and sometimes beyond it. */
            starved = false;
            if (pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) != 0 && starved)
                st = LN_OOM(err, "a pattern");
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return st;
}

ln_status regex_open(tok_regex *re, const char *what, const char *pattern, size_t bytes, bool literal,
                     ln_error *err) {
    *re = (tok_regex){0};
    if (bytes > TOK_MAX_PATTERN)
        return ln_fail(err, LN_EINVALID, "%s.pattern: expected at most %d bytes, found %zu", what,
                       TOK_MAX_PATTERN, bytes);
    if (literal) {
        re->literal = ln_strndup(pattern, bytes);
        re->n_literal = re->least = bytes;
        return re->literal ? LN_OK : LN_OOM(err, "a pattern");
    }
    ln_str text = {0};
    ln_status st = regex_rewrite(&text, what, pattern, bytes, err);
    if (st == LN_OK) st = compile(re, what, &text, err);
    uint32_t least = 0;
    bool keeps =
        text.len > 0 && strstr(text.data, "\\K"); /* then a replacement removes less than the match */
    if (st == LN_OK && !keeps && pcre2_pattern_info(re->code, PCRE2_INFO_MINLENGTH, &least) == 0)
        re->least = least;
    ln_str_free(&text);
    char shown[80];
    return st == LN_OK || st == LN_EMEMORY
               ? st
               : ln_prefix(err, st, "the pattern '%s'", ln_excerpt(shown, pattern, bytes));
}

double regex_growth(const tok_regex *re, size_t n_text) {
    if (n_text == 0) return 1;
    return re->least > 0 ? LN_MAX(1.0, (double)n_text / (double)re->least)
                         : 2.0 * (double)n_text + 1; /* an empty match before and after every byte */
}

void regex_close(tok_regex *re) {
    pcre2_code_free(re->code);
    ln_free(re->literal);
    *re = (tok_regex){0};
}

void regex_work_close(tok_regex_work *w) {
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    *w = (tok_regex_work){0};
}

static ln_status work_open(tok_regex_work *w, ln_error *err) {
    if (w->match) return LN_OK;
    pcre2_general_context *memory = pcre2_general_context_create(counted_alloc, counted_free, NULL);
    if (!memory) return LN_OOM(err, "a match");
    starved = false;
    w->context = pcre2_match_context_create(memory);
    w->stack = pcre2_jit_stack_create(STACK_START, STACK_MOST, memory);
    w->match = w->context ? pcre2_match_data_create(1, memory) : NULL;
    pcre2_general_context_free(memory);
    if (!w->match ||
        starved) { /* with too small a stack, matching would fail with an error about the pattern */
        regex_work_close(w);
        return LN_OOM(err, "a match");
    }
    pcre2_set_match_limit(w->context, FIRST_LIMIT);
    pcre2_set_heap_limit(w->context, HEAP_LIMIT_KIB);
    if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return LN_OK;
}

static int match_once(const tok_regex *re, tok_regex_work *w, const char *text, size_t bytes, size_t from) {
    return pcre2_match(re->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, w->match, w->context);
}

/* Like match_once, one start offset after the other. PCRE2 applies its match limit to each start offset; only
 * an offset that needs more than FIRST_LIMIT is charged to the budget. */
static int match_slowly(const tok_regex *re, tok_regex_work *w, const char *text, size_t bytes, size_t from) {
    uint64_t budget = BUDGET + (uint64_t)bytes * BUDGET_PER_BYTE;
    int rc = PCRE2_ERROR_NOMATCH;
    while (rc == PCRE2_ERROR_NOMATCH && from <= bytes) {
        pcre2_set_offset_limit(w->context, from);
        rc = match_once(re, w, text, bytes, from);
        for (uint32_t limit = FIRST_LIMIT;
             rc == PCRE2_ERROR_MATCHLIMIT && limit < MATCH_LIMIT && w->spent < budget;) {
            w->spent += limit;
            limit *= LIMIT_GROWS;
            pcre2_set_match_limit(w->context, limit);
            rc = match_once(re, w, text, bytes, from);
        }
        pcre2_set_match_limit(w->context, FIRST_LIMIT);
        uint32_t cp;
        from += from < bytes ? utf8_next(text + from, &cp) : 1;
    }
    pcre2_set_offset_limit(w->context, PCRE2_UNSET);
    return rc;
}

static ln_status match_at(const tok_regex *re, tok_regex_work *w, const char *text, size_t bytes,
                          tok_matches *m, bool *found, ln_error *err) {
    *found = false;
    LN_TRY(work_open(w, err));
    int rc = match_once(re, w, text, bytes, m->from);
    if (rc == PCRE2_ERROR_MATCHLIMIT) rc = match_slowly(re, w, text, bytes, m->from);
    if (rc == PCRE2_ERROR_NOMATCH) return LN_OK;
    if (rc == PCRE2_ERROR_NOMEMORY || (rc == PCRE2_ERROR_JIT_STACKLIMIT && !w->stack))
        return LN_OOM(err, "a match");
    if (rc < 0) {
        char why[160];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return ln_fail(err, LN_EINVALID, "a pattern of the tokenizer cannot be matched against this text: %s",
                       why);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match);
    m->start = v[0];
    m->end = LN_MAX(v[0], v[1]); /* \K in a look-ahead can put the start after the end */
    *found = true;
    return LN_OK;
}

ln_status regex_next(const tok_regex *re, tok_regex_work *w, const char *text, size_t bytes, tok_matches *m,
                     bool *found, ln_error *err) {
    *found = false;
    while (m->from <= bytes) {
        if (!re->code) {
            const char *hit =
                m->from < bytes ? memmem(text + m->from, bytes - m->from, re->literal, re->n_literal) : NULL;
            if (!hit) return LN_OK;
            m->start = (size_t)(hit - text);
            m->end = m->start + re->n_literal;
            *found = true;
        } else {
            LN_TRY(match_at(re, w, text, bytes, m, found, err));
            if (!*found) return LN_OK;
        }
        if (m->start == m->end && m->any && m->last_end == m->end) { /* an empty match after the last one */
            *found = false;
            uint32_t cp;
            m->from += m->from < bytes ? utf8_next(text + m->from, &cp) : 1;
            continue;
        }
        m->from = m->last_end = m->end;
        m->any = true;
        return LN_OK;
    }
    return LN_OK;
}
