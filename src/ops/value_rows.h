/* Rows of a program's values as f32: what devices in host memory do for ln_device_ops.value, but for values
 * in layouts of their own. */
#ifndef LN_VALUE_ROWS_H
#define LN_VALUE_ROWS_H

#include "ops.h"

/* Reads rows row .. row + n - 1 of a temporary value into `rows`, f32 [n, columns], or writes them from
 * there, converted to the value's format. `temp`: the program's temp block; live: the counts of the last
 * step. LN_EINTERNAL: the value has no buffer, or not so many rows. */
ln_status ln_host_value(const ln_program *p, void *temp, const ln_bounds *live, ln_v v, int64_t row,
                        int64_t n, float *rows, bool write, ln_error *err);
/* The check of those: *rows becomes the live rows of the value. */
ln_status ln_host_value_range(const ln_program *p, const ln_bounds *live, ln_v v, int64_t row, int64_t n,
                              int64_t *rows, ln_error *err);

#endif
