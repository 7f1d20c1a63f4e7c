/* The text of mlx_child.py, which the assembler includes. */
#include "child.h"

#ifndef LN_CHILD_SCRIPT /* the build gives the absolute path; without it the compiler runs in the root of \
                           the tree */
#define LN_CHILD_SCRIPT "src/child/mlx_child.py"
#endif

__asm__(".section .rodata\n"
        ".global ln_child_script_begin\n"
        ".hidden ln_child_script_begin\n"
        ".global ln_child_script_end\n"
        ".hidden ln_child_script_end\n"
        "ln_child_script_begin:\n"
        ".incbin \"" LN_CHILD_SCRIPT "\"\n"
        "ln_child_script_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char ln_child_script_begin[], ln_child_script_end[];

const char *ln_child_script(size_t *bytes) {
    *bytes = (size_t)(ln_child_script_end - ln_child_script_begin);
    return ln_child_script_begin;
}
