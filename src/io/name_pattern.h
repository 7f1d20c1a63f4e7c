/* Regular expressions over names of modules, as PEFT's configurations have them (Python's re; PCRE2 matches
 * them here). */
#ifndef LN_NAME_PATTERN_H
#define LN_NAME_PATTERN_H

#include "../base/base.h"

typedef struct ln_name_pattern ln_name_pattern;
/* Compiles a pattern that must match a whole name or, with `end`, the name's end after a dot as well. `where`
 * names file and field, for messages. The caller owns *out. LN_EINVALID: it is no regular expression. */
ln_status ln_name_pattern_open(ln_name_pattern **out, const char *pattern, bool end, const char *where,
                               ln_error *err);
void ln_name_pattern_close(ln_name_pattern **p);
/* Sets *matches. LN_EINVALID: the match takes too many steps; LN_EMEMORY. */
ln_status ln_name_matches(const ln_name_pattern *p, const char *name, bool *matches, ln_error *err);

#endif
