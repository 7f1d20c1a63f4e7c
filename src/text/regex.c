/* Patterns at work: compiled once, matched left to right.
 *
 * PCRE2 with UTF and UCP, its JIT, and limits, because a tokenizer.json may come from anyone: a pattern that needs more steps than the
 * limit is an error, not a hang. A limit for each match is not enough, since a text has as many places for one as bytes: each place gets few
 * steps, and one that wants more takes them from a budget that the text as a whole has, counted in steps and not by a clock. Texts are known to be valid UTF-8, so PCRE2 is told not to look again (it would look at the whole rest
 * for each match). Matches follow the reference's rule: an empty match directly behind the last one does not count. */
#include "tok.h"

enum { FIRST_LIMIT = 1024, LIMIT_GROWS = 32, MATCH_LIMIT = FIRST_LIMIT * LIMIT_GROWS * LIMIT_GROWS * LIMIT_GROWS };
enum { BUDGET = 32 * 1000 * 1000, BUDGET_PER_BYTE = 256 };
enum { HEAP_LIMIT_KIB = 64 * 1024, STACK_START = 32 * 1024, STACK_MOST = 8 * 1024 * 1024 };

/* PCRE2 says the same when memory is short and when the system forbids executable memory; only the first is an error. */
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

static ln_status compile(text_regex *re, const char *what, const ln_str *pattern, ln_error *err) {
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
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &code, &at, context);
        if (!re->code) {
            char why[160];
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            bool lookbehind = code == PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH || code == PCRE2_ERROR_LOOKBEHIND_TOO_LONG;
            if (code == PCRE2_ERROR_HEAP_FAILED) st = LN_OOM(err, "a pattern");
            else st = ln_fail(err, lookbehind ? LN_EUNSUPPORTED : LN_EINVALID, "%s.pattern: %s", what, why);
        } else {
            /* Where there is no JIT the interpreter matches, slower and with steps of another size. That must not depend on the memory left:
             * a text within the limit today would be beyond it tomorrow. */
            starved = false;
            if (pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) != 0 && starved) st = LN_OOM(err, "a pattern");
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return st;
}

ln_status regex_open(text_regex *re, const char *what, const char *pattern, size_t bytes, bool literal, ln_error *err) {
    *re = (text_regex){0};
    if (bytes > TEXT_MAX_PATTERN)
        return ln_fail(err, LN_EINVALID, "%s.pattern: expected at most %d bytes, found %zu", what, TEXT_MAX_PATTERN, bytes);
    if (literal) {
        re->literal = ln_strndup(pattern, bytes);
        re->n_literal = re->least = bytes;
        return re->literal ? LN_OK : LN_OOM(err, "a pattern");
    }
    ln_str text = {0};
    ln_status st = regex_rewrite(&text, what, pattern, bytes, err);
    if (st == LN_OK) st = compile(re, what, &text, err);
    uint32_t least = 0;
    bool keeps = text.len > 0 && strstr(text.data, "\\K"); /* then what is matched is not what is taken away */
    if (st == LN_OK && !keeps && pcre2_pattern_info(re->code, PCRE2_INFO_MINLENGTH, &least) == 0) re->least = least;
    ln_str_free(&text);
    char shown[80];
    return st == LN_OK || st == LN_EMEMORY ? st : ln_prefix(err, st, "the pattern '%s'", ln_excerpt(shown, pattern, bytes));
}

double regex_growth(const text_regex *re, size_t n_text) {
    if (n_text == 0) return 1;
    return re->least > 0 ? LN_MAX(1.0, (double)n_text / (double)re->least) : 2.0 * (double)n_text + 1; /* between all bytes */
}

void regex_close(text_regex *re) {
    pcre2_code_free(re->code);
    ln_free(re->literal);
    *re = (text_regex){0};
}

void regex_work_close(text_regex_work *w) {
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    *w = (text_regex_work){0};
}

static ln_status work_open(text_regex_work *w, ln_error *err) {
    if (w->match) return LN_OK;
    pcre2_general_context *memory = pcre2_general_context_create(counted_alloc, counted_free, NULL);
    if (!memory) return LN_OOM(err, "a match");
    starved = false;
    w->context = pcre2_match_context_create(memory);
    w->stack = pcre2_jit_stack_create(STACK_START, STACK_MOST, memory);
    w->match = w->context ? pcre2_match_data_create(1, memory) : NULL;
    pcre2_general_context_free(memory);
    if (!w->match || starved) { /* a stack too small would be told as a defect of the pattern */
        regex_work_close(w);
        return LN_OOM(err, "a match");
    }
    pcre2_set_match_limit(w->context, FIRST_LIMIT);
    pcre2_set_heap_limit(w->context, HEAP_LIMIT_KIB);
    if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return LN_OK;
}

static int match_once(const text_regex *re, text_regex_work *w, const char *text, size_t bytes, size_t from) {
    return pcre2_match(re->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, w->match, w->context);
}

/* The same place by place: PCRE2 grants its limit to every place where a match may begin, and only one that wants more is charged. */
static int match_slowly(const text_regex *re, text_regex_work *w, const char *text, size_t bytes, size_t from) {
    uint64_t budget = BUDGET + (uint64_t)bytes * BUDGET_PER_BYTE;
    int rc = PCRE2_ERROR_NOMATCH;
    while (rc == PCRE2_ERROR_NOMATCH && from <= bytes) {
        pcre2_set_offset_limit(w->context, from);
        rc = match_once(re, w, text, bytes, from);
        for (uint32_t limit = FIRST_LIMIT; rc == PCRE2_ERROR_MATCHLIMIT && limit < MATCH_LIMIT && w->spent < budget;) {
            w->spent += limit;
            limit *= LIMIT_GROWS;
            pcre2_set_match_limit(w->context, limit);
            rc = match_once(re, w, text, bytes, from);
        }
        pcre2_set_match_limit(w->context, FIRST_LIMIT);
        uint32_t cp;
        from += from < bytes ? text_cp(text + from, &cp) : 1;
    }
    pcre2_set_offset_limit(w->context, PCRE2_UNSET);
    return rc;
}

static ln_status match_at(const text_regex *re, text_regex_work *w, const char *text, size_t bytes, text_matches *m, bool *found, ln_error *err) {
    *found = false;
    LN_TRY(work_open(w, err));
    int rc = match_once(re, w, text, bytes, m->from);
    if (rc == PCRE2_ERROR_MATCHLIMIT) rc = match_slowly(re, w, text, bytes, m->from);
    if (rc == PCRE2_ERROR_NOMATCH) return LN_OK;
    if (rc == PCRE2_ERROR_NOMEMORY || (rc == PCRE2_ERROR_JIT_STACKLIMIT && !w->stack)) return LN_OOM(err, "a match");
    if (rc < 0) {
        char why[160];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return ln_fail(err, LN_EINVALID, "a pattern of the tokenizer cannot be matched against this text: %s", why);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match);
    m->start = v[0];
    m->end = LN_MAX(v[0], v[1]); /* \K may put the start behind the end */
    *found = true;
    return LN_OK;
}

ln_status regex_next(const text_regex *re, text_regex_work *w, const char *text, size_t bytes, text_matches *m, bool *found, ln_error *err) {
    *found = false;
    while (m->from <= bytes) {
        if (!re->code) {
            const char *hit = m->from < bytes ? memmem(text + m->from, bytes - m->from, re->literal, re->n_literal) : NULL;
            if (!hit) return LN_OK;
            m->start = (size_t)(hit - text);
            m->end = m->start + re->n_literal;
            *found = true;
        } else {
            LN_TRY(match_at(re, w, text, bytes, m, found, err));
            if (!*found) return LN_OK;
        }
        if (m->start == m->end && m->any && m->last_end == m->end) { /* an empty match behind the last one */
            *found = false;
            uint32_t cp;
            m->from += m->from < bytes ? text_cp(text + m->from, &cp) : 1;
            continue;
        }
        m->from = m->last_end = m->end;
        m->any = true;
        return LN_OK;
    }
    return LN_OK;
}
