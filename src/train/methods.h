/* Methods of training: what is trained, and what the result of a run is. A row of methods.c for each; the
 * trainer knows no other difference. */
#ifndef LN_METHODS_H
#define LN_METHODS_H

#include "trainer.h"

typedef struct train_method {
    const char *name;
    bool full; /* all weights are trained; else an adapter */
    /* Sets the options of the program that decide what is trained. */
    ln_status (*choose)(train_trainer *t, ln_error *err);
    /* Writes the name of a parameter's tensor in the files of the result. */
    void (*name_param)(const train_trainer *t, const ln_train_param *x, char out[224]);
    /* Sets the parameters to the values that a run starts with. */
    ln_status (*begin)(train_trainer *t, ln_error *err);
    /* Writes the result to a directory that exists, and may hold another one of the same run. */
    ln_status (*write)(const train_trainer *t, const char *dir, ln_error *err);
} train_method;

/* trainer_targets.c. Writes the name of the matrix of a slot in the model's files: q_proj, or qkv_proj for
 * all three. */
void train_leaf(const ln_spec *s, int slot, char out[48]);
/* Returns whether an earlier slot of those that `wanted` holds (NULL: that can be trained) has this name,
 * too. */
bool train_is_repeated(const ln_spec *s, const bool *wanted, int slot, const char *leaf);

/* By ln_method. */
extern const train_method train_methods[LN_METHOD_FULL + 1];

#endif
