/* The text of mlx_child.py, which the assembler includes. */
#include "../base/file_text.h"
#include "child.h"

#ifndef LN_CHILD_SCRIPT /* the build gives the absolute path; without it the compiler runs in the root of \
                           the tree */
#define LN_CHILD_SCRIPT "src/child/mlx_child.py"
#endif

LN_EMBED("ln_child_script", LN_EMBED_FILE(LN_CHILD_SCRIPT))

extern const char ln_child_script_begin[], ln_child_script_end[];

const char *ln_child_script(size_t *bytes) {
    *bytes = (size_t)(ln_child_script_end - ln_child_script_begin);
    return ln_child_script_begin;
}
