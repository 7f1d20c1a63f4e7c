/* Weights in coded rows in memory of the CPU device (coded_weight.c). */
#ifndef LN_CODED_WEIGHT_H
#define LN_CODED_WEIGHT_H

#include "../../device.h"
#include "../../../quant/coded.h"

/* Returns the bytes that a weight takes. */
size_t ln_cpu_coded_bytes(const ln_weight_desc *w);
/* Copies a range of rows to their place in `buffer`, which begins with the ln_coded that kernels read. */
void ln_cpu_coded_upload(const ln_weight_desc *w, const ln_host_weight *h, void *buffer);

#endif
