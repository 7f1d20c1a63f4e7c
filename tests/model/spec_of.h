/* A spec of a config.json that is given as a text. */
#ifndef LN_TESTS_SPEC_OF_H
#define LN_TESTS_SPEC_OF_H

#include "../io/io_test.h"
#include "model/spec.h"

/* The caller frees the spec. */
static inline void spec_of(const char *json, ln_spec *s) {
    put_text("c/config.json", json);
    ln_config c;
    OK(ln_config_open(&c, at("c"), err));
    OK(ln_spec_open(s, &c, err));
    ln_config_close(&c);
}

#endif
