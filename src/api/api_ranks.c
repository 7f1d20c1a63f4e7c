/* The public API of ranks: processes that run models together. Forwards the calls (run/ranks.h). */
#include "check.h"

#include <linnet_tools.h>

ln_status ln_ranks_join(ln_ranks_use use, int *rank, int *size, ln_error *err) {
    ARG(rank && size, "rank and size must not be NULL");
    *rank = 0, *size = 1;
    LN_TRY(ln_ranks_join_world(use == LN_RANKS_DATA, err));
    const ln_ranks *k = ln_ranks_world();
    if (k) *rank = k->transport->rank, *size = k->transport->size;
    return LN_OK;
}

ln_status ln_ranks_gpus(const int *gpus, int n, ln_error *err) {
    ARG(gpus && n > 0, "expected the numbers of one GPU or more");
    return ln_ranks_choose_gpus(gpus, n, ln_ranks_follow_all, err);
}

int ln_gpu_count(ln_error *err) {
    ENTER;
    return ln_run_count_gpus(err);
}

ln_status ln_ranks_follow(ln_error *err) {
    ln_ranks *k = ln_ranks_world();
    ARG(k && k->transport->rank > 0, "expected a process that ln_ranks_join made rank 1 or more");
    return ln_ranks_follow_all(k->transport, err);
}

int ln_ranks_plan(int n) {
    ENTER;
    return ln_ranks_plan_for(n);
}

void ln_ranks_leave(ln_status st) {
    ENTER;
    ln_ranks_leave_world(st);
}
