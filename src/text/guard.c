/* Which tokens are control tokens. A token that is special is one; so is any other added token that the template writes itself (a
 * <tool_call>), unless it is white space, which everybody writes. */
#include "guard.h"

static bool blank(const text_added_token *t) {
    for (size_t at = 0; at < t->bytes;) {
        uint32_t cp;
        at += text_cp(t->content + at, &cp);
        if (!text_is_space(cp) && cp != 0x2581) return false; /* U+2581 is how some tokenizers spell a blank */
    }
    return true;
}

ln_status ln_controls_open(ln_controls **out, const ln_tok *tok, const char *written, size_t bytes, ln_error *err) {
    const text_added *a = &tok->added;
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
        const text_added_token *t = &a->t[i];
        bool control = t->special || (bytes >= t->bytes && !blank(t) && memmem(written, bytes, t->content, t->bytes));
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
