/* Lines of preferences as two lines of a prompt and a completion. Internal to train/. */
#ifndef LN_PAIR_LINES_H
#define LN_PAIR_LINES_H

#include "../base/base.h"

/* Divides the line text[0, bytes), {"prompt"?, "chosen", "rejected", ...} or {"prompt_ids", "chosen_ids",
 * "rejected_ids"}, into one for each answer, which train_line_read takes. Answers are texts or lists of
 * messages. Messages that both lists begin with are the prompt; other members are copied. LN_EINVALID:
 * another line, with its members named; LN_EMEMORY. The caller frees both, after an error too. */
ln_status train_pair_lines(const char *text, size_t bytes, ln_str out[2], ln_error *err);

#endif
