/* Adapters that are trained in the layouts of other programs than PEFT: what mlx-lm and go-mlx read.
 * Checkpoints have PEFT's layout in any case. */
#ifndef LN_OTHER_LAYOUTS_H
#define LN_OTHER_LAYOUTS_H

#include "trainer.h"

/* LN_EUSAGE, LN_EUNSUPPORTED: the layout of the options cannot express the adapter. After train_targets. */
ln_status train_layout_check(const train_trainer *t, ln_error *err);
/* Writes the adapter to `dir` in that layout, which is not PEFT's. LN_EIO, LN_EMEMORY. */
ln_status train_layout_write(const train_trainer *t, const char *dir, ln_error *err);

#endif
