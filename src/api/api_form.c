/* Grammars of answers, checked without a model. */
#include "../base/base.h"
#include "../grammar/grammar.h"
#include "../args/args.h"

ln_status ln_grammar_check(const char *grammar, size_t bytes, ln_error *err) {
    ln_vocabulary none = {0};
    ln_grammar *g = NULL;
    ln_matcher *m = NULL;
    ln_status st = LN_OK;
    ARG(grammar && bytes > 0, "the grammar is NULL or empty");
    LN_GO(ln_grammar_open(&g, grammar, bytes, err));
    LN_GO(ln_matcher_open(&m, g, &none, err)); /* whether its beginning fits */
out:
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    return st;
}
