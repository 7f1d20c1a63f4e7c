/* The command as one of several processes that mpirun or srun has started: rank 0 runs the verb, the others
 * follow it, or all train together. Verbs that run no model are done by rank 0 alone. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
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

ln_status ranks_begin(const args *a, bool *follows, ln_error *err) {
    int rank, size;
    *follows = false;
    /* Ranks of one host exchange by shared memory, not by reading each other's memory, which the sandbox of
     * the server and containers forbid. Names of Open MPI 4 and 5; what the user has set stays. The library
     * changes no environment. */
    (void)setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    (void)setenv("OMPI_MCA_smsc", "^cma", 0);
    LN_TRY(ln_ranks_join(a->verb == VERB_TRAIN ? LN_RANKS_DATA : LN_RANKS_MODEL, &rank, &size, err));
    if (size == 1) return LN_OK;
    if (is_shared(a->verb) && other_backend(a))
        return ln_fail(err, LN_EUSAGE, "--backend: %d ranks share the native backend alone", size);
    if (rank == 0) {
        note("rank 0 of %d", size);
        return LN_OK;
    }
    ignore_signals();
    if (a->verb == VERB_TRAIN) { /* every rank does the same, and rank 0 alone prints */
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0) (void)dup2(null, STDOUT_FILENO), (void)close(null);
        return LN_OK;
    }
    *follows = true;
    if (!is_shared(a->verb)) return LN_OK;
    return ln_ranks_follow(err);
}
