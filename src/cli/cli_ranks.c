/* The command as one of several processes that mpirun or srun has started: rank 0 runs the verb, the others
 * follow it, or all train or work on lines together. Verbs that run no model are done by rank 0 alone. And
 * the command on several GPUs, whose ranks are threads. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Whether a verb runs a model step by step, so that ranks can share it. */
static bool is_shared(verb v) {
    switch (v) {
    case VERB_RUN:
    case VERB_CHAT:
    case VERB_SCORE:
    case VERB_CLASSIFY:
    case VERB_EVAL:
    case VERB_BENCH:
    case VERB_BATCH:
    case VERB_SERVE: return true;
    default: return false;
    }
}

/* Rank 0 stops the group: a signal to all ranks must not end a follower in the middle of a step. */
static void ignore_signals(void) {
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < LN_COUNT(stops); i++) (void)signal(stops[i], SIG_IGN);
}

static bool is_first = true;
bool ranks_first(void) { return is_first; }

/* What ranks share: the data of training, lines, or the model. */
static ln_ranks_use use_of(const args *a) {
    return a->verb == VERB_TRAIN || has(a, F_REPLICAS) ? LN_RANKS_DATA : LN_RANKS_MODEL;
}

/* Rejects what replicas cannot share. */
static ln_status check_replicas(const args *a, int size, ln_error *err) {
    if (!has(a, F_REPLICAS)) return LN_OK;
    if (size == 1)
        return ln_fail(err, LN_EUSAGE,
                       "--replicas: this process is alone; start several with mpirun (docs/ranks.md)");
    const bool from_file = a->argument ? strcmp(a->argument, "-") != 0
                                       : has(a, F_FILE) && strcmp(a->flag[F_FILE].text, "-") != 0;
    if (from_file) return LN_OK;
    return ln_fail(err, LN_EUSAGE,
                   "--replicas: each process reads the input itself; name a file, because only the first has "
                   "stdin");
}

ln_status gpus_of(const args *a, int gpus[GPUS_MOST], int *n, ln_error *err) {
    const flag_value *v = &a->flag[F_DEVICE];
    *n = v->listed ? (int)v->n_list : 0;
    for (int i = 0; i < *n; i++) gpus[i] = (int)v->list[i];
    if (!v->listed || *n > 0) return LN_OK;
    *n = ln_gpu_count(err);
    if (*n == 0) return LN_EDEVICE;
    if (*n > GPUS_MOST)
        return ln_fail(err, LN_EUSAGE,
                       "--device cuda:all: %d GPUs exist, at most %d work together; name some of "
                       "them, as cuda:0,1",
                       *n, (int)GPUS_MOST);
    for (int i = 0; i < *n; i++) gpus[i] = i;
    return LN_OK;
}

/* Chooses the GPUs that --device names. */
static ln_status choose_gpus(const args *a, int size, ln_error *err) {
    int gpus[GPUS_MOST], n;
    if (a->flag[F_DEVICE].listed) (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0); /* see ln_ranks_gpus */
    LN_TRY(gpus_of(a, gpus, &n, err));
    if (n == 0) return LN_OK;
    if (size == 1 && n > 1 && a->verb == VERB_PLAN) (void)ln_ranks_plan(n);
    else if (size == 1 && n > 1 && !is_shared(a->verb))
        return ln_fail(err, LN_EUSAGE, "--device %s: %s uses one GPU in a process%s", a->flag[F_DEVICE].text,
                       verb_name(a->verb),
                       a->verb == VERB_TRAIN ? "; mpirun starts one for each GPU (docs/ranks.md)" : "");
    return ln_ranks_gpus(gpus, n, err);
}

ln_status ranks_begin(const args *a, bool *follows, ln_error *err) {
    int rank, size;
    *follows = false;
    /* Ranks of one host exchange by shared memory, not by reading each other's memory, which the sandbox of
     * the server and containers forbid. Names of Open MPI 4 and 5; what the user has set stays. The library
     * changes no environment. */
    (void)setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    (void)setenv("OMPI_MCA_smsc", "^cma", 0);
    LN_TRY(ln_ranks_join(use_of(a), &rank, &size, err));
    is_first = rank == 0;
    LN_TRY(check_replicas(a, size, err));
    LN_TRY(choose_gpus(a, size, err));
    if (size == 1) return LN_OK;
    if (is_shared(a->verb) && other_backend(a))
        return ln_fail(err, LN_EUSAGE, "--backend: %d ranks share the native backend alone", size);
    if (rank == 0) {
        note("rank 0 of %d", size);
        return LN_OK;
    }
    ignore_signals();
    if (use_of(a) == LN_RANKS_DATA) { /* every rank does the same, and rank 0 alone prints */
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0) (void)dup2(null, STDOUT_FILENO), (void)close(null);
        return LN_OK;
    }
    *follows = true;
    if (!is_shared(a->verb)) return LN_OK;
    return ln_ranks_follow(err);
}
