/* Forms of answers, checked without a model. */
#include "../base/base.h"
#include "../grammar/grammar.h"
#include "../args/args.h"

ln_status ln_form_check(const char *form, size_t bytes, ln_error *err) {
    ln_vocabulary none = {0};
    ln_grammar *g = NULL;
    ln_matcher *m = NULL;
    ln_status st = LN_OK;
    ARG(form && bytes > 0, "the form is NULL or empty");
    LN_GO(ln_grammar_open(&g, form, bytes, err));
    LN_GO(ln_matcher_open(&m, g, &none, err)); /* whether its beginning has room */
out:
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    return st;
}
