/* The tools that a request may call: read from its conversation, and checked. */
#ifndef LN_TOOL_NAMES_H
#define LN_TOOL_NAMES_H

#include "../package/package.h"

/* Where how->tool_choice asks for calls, fills in how->tool_names from the tools of p->request, or checks the
 * caller's names, and sets how->form where calls are required or the answer has a form already; the texts are
 * in the arena. LN_EUNSUPPORTED: the model has no form of calls that is known.
 * LN_EUSAGE: the prompt has no tools, or none of a given name. LN_EINVALID: the request is no JSON. */
ln_status ln_eng_tool_names(const ln_package *m, const ln_prompt *p, ln_arena *a, ln_sampling *how,
                            ln_error *err);

#endif
