/* Lines of training data as other tools write them, rewritten with the members of dataset.h. Internal to
 * train/.
 *
 * ShareGPT's conversations, Alpaca's instructions, other names of questions and answers, TRL's lists of
 * messages, and token ids with labels (docs/training.md has the table). In these also a system text, a
 * history, tools as a text of JSON or without their wrapper, function_call of a message, and messages that
 * are not trained on.
 *
 * Values are copied as they are written: numbers, escapes and the order of members stay. */
#ifndef LN_FOREIGN_LINES_H
#define LN_FOREIGN_LINES_H

#include "../base/base.h"

/* Rewrites the line text[0, bytes); *out stays empty if it has the members of dataset.h already, or is not an
 * object, which the reader reports. LN_EINVALID: malformed JSON, or a member of another type than its layout
 * has; the message names the members as the line has them. LN_EMEMORY. The caller frees *out, after an error
 * too. */
ln_status train_line_translate(const char *names, const char *text, size_t bytes, ln_str *out, ln_error *err);
/* Checks such a list of names. LN_EUSAGE: an entry is no NAME=MEMBER, NAME is not read in training data, or
 * two entries rename one. */
ln_status train_names_check(const char *names, ln_error *err);

#endif
