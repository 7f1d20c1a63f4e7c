/* Ranks that are processes which mpirun or srun has started, on one host or several (mpi_ranks.c). */
#ifndef LN_MPI_RANKS_H
#define LN_MPI_RANKS_H

#include "transport.h"

/* What the launcher says of this process in its environment; size 0 or 1: it was started alone. local_size:
 * ranks on this host. */
typedef struct ln_launch {
    int rank, size, local_size;
} ln_launch;
ln_launch ln_mpi_launch(void);

/* Loads MPI and joins the other ranks of the launcher. Once a process: the caller closes *out before it ends.
 * LN_EDEVICE: libmpi.so.40 is not installed, or has another interface; LN_EMEMORY. */
ln_status ln_mpi_open(ln_transport **out, ln_error *err);
/* Leaves the group. After a failure it does not wait for other ranks. */
void ln_mpi_close(ln_transport **t);

#endif
