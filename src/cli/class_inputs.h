/* What linnet classify reads: labels, and inputs from lines of text or of JSON. class_inputs.c reads them,
 * verb_classify.c classifies and prints them. */
#ifndef LN_CLASS_INPUTS_H
#define LN_CLASS_INPUTS_H

#include "../base/text_memory.h"
#include "cli.h"

/* One input. All pointers are into class_inputs.arena or .data. */
typedef struct class_input {
    const char *text; /* [bytes]; NULL: the input is ids */
    size_t bytes;
    const int32_t *ids; /* [n_ids] of the input or, after class_inputs_encode, of the prompt */
    size_t n_ids;
    const char *gold; /* [gold_bytes] its label; NULL: it has none */
    size_t gold_bytes;
    const char *error; /* why it cannot be classified; NULL: it can */
} class_input;

/* Initialise with zeros; class_inputs_free releases it. */
typedef struct class_inputs {
    ln_account texts; /* all of this */
    ln_arena arena;
    char *data; /* the file */
    const char *name;
    class_input *v; /* [n] */
    size_t n, cap;
    bool has_gold;       /* an input has a label */
    const char **labels; /* [n_labels], NUL-terminated; none with --next-token */
    size_t n_labels, cap_labels;
    size_t longest_label; /* tokens of the longest label, after class_inputs_encode */
} class_inputs;

/* Reads --labels. LN_EUSAGE, or LN_EINVALID for a file: a label is empty, occurs twice or is not UTF-8. */
ln_status class_labels_read(class_inputs *in, const args *a, ln_error *err);
/* Reads the inputs. A line that is no input gets its `error`. */
ln_status class_inputs_read(class_inputs *in, const args *a, ln_error *err);
/* Inserts the texts into --prompt and the chat template and encodes them, and the labels. LN_EUSAGE and
 * LN_EUNSUPPORTED: the flags do not fit the model, whatever the input. */
ln_status class_inputs_encode(class_inputs *in, const args *a, const ln_model *model, ln_error *err);
/* Inserts the texts into --prompt, for a backend that encodes them itself. */
ln_status class_inputs_fill(class_inputs *in, const args *a, ln_error *err);
void class_inputs_free(class_inputs *in);
/* Sets sequences, context and KV pool of *opt, unless a flag does, for these inputs; with n = 0 for inputs
 * of a usual length. */
ln_status class_size(const class_inputs *in, const args *a, const ln_info *info, ln_options *opt,
                     ln_error *err);
/* Reads and encodes what the arguments name, as classify does, and sets *opt; for linnet plan. */
ln_status class_plan(const args *a, ln_options *opt, ln_error *err);

#endif
