/* Exchanges of the CUDA device among ranks: connecting GPUs, and waiting for them (cuda_exchange.c). */
#ifndef LN_CUDA_EXCHANGE_H
#define LN_CUDA_EXCHANGE_H

#include "../../base/transport.h"
#include "cuda_ops.h"

/* Whether a program has exchanges, and the bytes of its inbox (exchange.cu). */
bool gpu_exchanges(const ln_program *p);
size_t gpu_inbox_bytes(const ln_dev *d, const ln_program *p);
/* Sets the rank and the sizes of a program's exchanges, when it is prepared. */
void gpu_link_begin(ln_exec *e);
/* Called by all ranks after all have prepared a program: connects them and captures the program's graphs.
 * LN_EDEVICE; LN_EMEMORY. */
ln_status gpu_connect(ln_exec *e, ln_error *err);
/* Whether the kernel of the product before a gather may do it, with this tail. */
bool gpu_tail_of(const gpu_launch *l, const gpu_node *gather, gpu_tail *out);
/* Unmaps the memory of other processes. */
void gpu_unmap(ln_exec *e);
/* Waits for the queue's stream. If another rank fails, kernels that wait for it end, and the
 * failure is returned. */
ln_status gpu_sync(ln_queue *q, const char *what, ln_error *err);
/* Ends all waiting of the queue's kernels for other ranks. */
void gpu_disconnect(ln_queue *q);

#endif
