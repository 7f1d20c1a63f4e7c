/* Shared by the two kinds of string formatting: printf-style `format % values` (jinja_format.c) and
 * str.format() (jinja_str_format.c, jinja_spec.c). */
#ifndef LN_TEXT_JJ_FORMAT_H
#define LN_TEXT_JJ_FORMAT_H

#include "jinja_internal.h"

enum { JJ_MAX_PRECISION = 4000 };

/* Formats |v| as printf does with the conversion `letter` (e, f, g or upper case), independently of the
 * locale. *out is in the arena. */
ln_status jj_float_digits(jj_run *r, double v, char letter, bool alternate, int64_t precision,
                          const char **out);
ln_status jj_upper_digits(jj_run *r, const char **text); /* replaces *text by an upper-case copy */
ln_status jj_put_ascii(jj_run *r, jj_buf *b, jj_val v);  /* Python's ascii() */
ln_status jj_put_code_point(jj_run *r, jj_buf *b, jj_val v, const char *what); /* Python's chr() */
/* Python's format(v, spec), with the format specification mini-language (jinja_spec.c). */
ln_status jj_put_spec(jj_run *r, jj_buf *b, jj_val v, const jj_str *spec);
jj_fn jj_str_format, jj_str_format_map; /* str.format and str.format_map (jinja_str_format.c) */

#endif
