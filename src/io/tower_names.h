/* Names of the parts of multimodal checkpoints that a model of texts does not have. */
#ifndef LN_TOWER_NAMES_H
#define LN_TOWER_NAMES_H

#include <stdbool.h>

/* Whether the name of a tensor, NUL-terminated, is in a vision or audio tower or in its projector: one of the
 * names of tower_names.c, at the beginning or after a dot. */
bool ln_tower_name(const char *name);

#endif
