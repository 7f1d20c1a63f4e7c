/* What the two ways of formatting share: text % values (jj_format.c) and text.format() (jj_str_format.c, jj_spec.c). */
#ifndef LN_TEXT_JJ_FORMAT_H
#define LN_TEXT_JJ_FORMAT_H

#include "jj.h"

enum { JJ_MAX_PRECISION = 4000 };

/* printf's text of |v| for the letters e, f, g and their capitals. Does not depend on the locale. */
ln_status jj_float_digits(jj_run *r, double v, char letter, bool alternate, int64_t precision, const char **out);
ln_status jj_upper_digits(jj_run *r, const char **text);              /* a copy in capitals */
ln_status jj_put_ascii(jj_run *r, jj_buf *b, jj_val v);               /* ascii(): repr() with all else escaped */
ln_status jj_put_code_point(jj_run *r, jj_buf *b, jj_val v, const char *what); /* chr() */
/* format(v, spec): Python's format specification mini-language (jj_spec.c). */
ln_status jj_put_spec(jj_run *r, jj_buf *b, jj_val v, const jj_str *spec);
jj_fn jj_str_format, jj_str_format_map; /* the methods of a text (jj_str_format.c) */

#endif
