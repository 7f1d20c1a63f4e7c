/* NCCL, loaded when GPUs of several ranks cannot map each other's memory (cuda_nccl.c). */
#ifndef LN_CUDA_NCCL_H
#define LN_CUDA_NCCL_H

#include "../../base/base.h"

typedef struct gpu_nccl gpu_nccl; /* a communicator */
typedef struct gpu_nccl_id {
    char bytes[128];
} gpu_nccl_id;

/* Loads the library, and makes the id of a new group of ranks if `id` is given. LN_EDEVICE: it is not
 * installed, or fails. */
ln_status gpu_nccl_load(gpu_nccl_id *id_or_null, ln_error *err);
/* Opens the communicator of a rank on the thread's GPU. All ranks call it at once. */
ln_status gpu_nccl_open(gpu_nccl **out, const gpu_nccl_id *id, int size, int rank, ln_error *err);
/* Sets all[size * bytes] to what all ranks have in mine[bytes], on the stream. Returns a CUDA error. */
int gpu_nccl_all_gather(gpu_nccl *n, const void *mine, void *all, size_t bytes, void *stream);
/* Closes it; abort: while another rank does not answer. NULL does nothing. */
void gpu_nccl_close(gpu_nccl **n);
void gpu_nccl_abort(gpu_nccl **n);

#endif
