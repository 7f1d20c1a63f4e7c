/* Decides which tokens are control tokens: every special token, and every other added token that occurs in
 * the literal text of the chat template (such as <tool_call>), unless it consists of white space, which
 * ordinary messages contain too. */
#include "control_tokens.h"

static bool blank(const tok_added_token *t) {
    for (size_t at = 0; at < t->bytes;) {
        uint32_t cp;
        at += utf8_next(t->content + at, &cp);
        if (!unicode_is_space(cp) && cp != 0x2581)
            return false; /* some vocabularies spell a space as U+2581 */
    }
    return true;
}

ln_status ln_controls_open(ln_controls **out, const ln_tok *tok, const char *written, size_t bytes,
                           ln_error *err) {
    const tok_added *a = &tok->added;
    *out = NULL;
    ln_controls *c = ln_zalloc(1, sizeof *c);
    if (!c) return LN_OOM(err, "the control tokens");
    c->n_ids = ln_tok_count(tok);
    c->added = ln_zalloc(a->n + 1, 1);
    c->ids = ln_zalloc((size_t)c->n_ids + 1, 1);
    if (!c->added || !c->ids) {
        ln_controls_close(&c);
        return LN_OOM(err, "the control tokens");
    }
    for (size_t i = 0; i < a->n; i++) {
        const tok_added_token *t = &a->t[i];
        bool control =
            t->special || (bytes >= t->bytes && !blank(t) && memmem(written, bytes, t->content, t->bytes));
        c->added[i] = control;
        if (control && t->id >= 0 && t->id < c->n_ids) c->ids[t->id] = 1;
    }
    *out = c;
    return LN_OK;
}

void ln_controls_close(ln_controls **c) {
    if (!*c) return;
    ln_free((*c)->added);
    ln_free((*c)->ids);
    ln_free(*c);
    *c = NULL;
}
