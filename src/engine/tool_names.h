/* The tools that a request may call: read from its conversation, and checked. */
#ifndef LN_TOOL_NAMES_H
#define LN_TOOL_NAMES_H

#include "answer_text.h"

/* Where how->tool_choice asks for calls, fills in how->tool_names from the tools of p->request, or checks the
 * caller's names, and sets how->grammar and *tools; the texts are in the arena. *prose: the grammar leaves
 * the text free except for calls. If the answer is messages with headers, the caller's grammar becomes that
 * of the final one. LN_EUSAGE: the prompt has no tools, or none of a given name. LN_EINVALID: the request is
 * no JSON. */
ln_status ln_eng_tool_names(const ln_package *m, const ln_prompt *p, ln_arena *a, ln_sampling *how,
                            ln_answer_tools *tools, bool *prose, ln_error *err);

#endif
