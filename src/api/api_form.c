/* Forms of answers, checked without a model. */
#include "../base/base.h"
#include "../grammar/grammar.h"

ln_status ln_form_check(const char *form, size_t bytes, ln_error *err) {
    ln_grammar *g;
    if (!form || bytes == 0) return ln_fail(err, LN_EUSAGE, "%s: the form is NULL or empty", __func__);
    const ln_status st = ln_grammar_open(&g, form, bytes, err);
    ln_grammar_close(&g);
    return st;
}
