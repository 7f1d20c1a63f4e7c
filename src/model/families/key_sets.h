/* Sets of rows of config_keys.def, one bit each. LISTED: for families whose own keys are in lists of the
 * registry. */
#ifndef LN_KEY_SETS_H
#define LN_KEY_SETS_H

enum {
    LN_FAMILY_LLAMA = 1,
    LN_FAMILY_QWEN2 = 2,
    LN_FAMILY_QWEN3 = 4,
    LN_FAMILY_GEMMA3 = 8,
    LN_FAMILY_LISTED = 16
};

#endif
