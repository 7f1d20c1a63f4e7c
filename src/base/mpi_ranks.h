/* Ranks that are processes which mpirun or srun has started, on one host or several (mpi_ranks.c). */
#ifndef LN_MPI_RANKS_H
#define LN_MPI_RANKS_H

#include "transport.h"

/* What the launcher says of this process in its environment; size 0 or 1: it was started alone. */
typedef struct ln_launch {
    int rank, size;
    bool by_slurm; /* srun has started it */
} ln_launch;
ln_launch ln_mpi_launch(void);
/* The number of this process among those of its host. */
int ln_mpi_local_rank(void);
/* The number of processes that a launcher has started together with this one without an MPI that linnet can
 * load: srun without PMIx, or the mpirun of an MPICH before 5. 0: none, or this is not the first of them. */
int ln_mpi_others_alone(void);

/* Loads MPI and joins the other ranks of the launcher. Once a process: the caller closes *out before it ends.
 * *n_local: the ranks on this host. LN_EDEVICE: no MPI is installed, it has another interface, or is not that
 * of the launcher; LN_EMEMORY. */
ln_status ln_mpi_open(ln_transport **out, int *n_local, ln_error *err);
/* Leaves the group. After a failure, of a rank or (alone) of what this one did, it does not wait for the
 * other ranks. */
void ln_mpi_close(ln_transport **t, bool alone);

#endif
