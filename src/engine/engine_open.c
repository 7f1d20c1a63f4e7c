/* Opens and closes an engine: its run, sequences and scheduler, of the sizes that memory_plan.c has planned.
 * All memory that steps need is taken here. */
#include "../base/text_memory.h"
#include "memory_control.h"
#include "memory_plan.h"
#include "scheduler.h"

ln_status ln_eng_open_with(ln_eng **out, const ln_package *m, const ln_run_options *opt, ln_error *err) {
    ln_status st = LN_OK;
    *out = NULL;
    ln_eng *e = ln_zalloc(1, sizeof *e);
    if (!e) return LN_OOM(err, "an engine");
    e->model = m;
    ln_texts_to_come(ln_memory_to_come);
    double start = ln_now();
    st = ln_run_open(&e->run, &m->spec, &m->weights, m->weight_cache, opt, err);
    if (st != LN_OK && ln_tensors_check(&m->tensors, false, err) != LN_OK)
        st = LN_ECHANGED; /* a file that changed is the cause: mlock of lost pages fails, for example */
    if (st != LN_OK) goto out;
    LN_GO(ln_adapters_open(e, err));
    LN_GO(ln_seqs_open(e, err));
    e->cache_limit = UINT64_MAX;
    ln_cache_apply(e);
    LN_GO(ln_sched_open(&e->sched, e, err));
    ln_eng_count(e, true);
    e->counted = true;
    e->load_seconds = m->load_seconds + ln_now() - start;
    *out = e;
    return LN_OK;
out:
    ln_eng_close(&e);
    return st;
}

ln_status ln_eng_open(ln_eng **out, const ln_package *m, const ln_options *opt, ln_error *err) {
    ln_run_options o;
    uint64_t seen, bytes, text_bytes;
    *out = NULL;
    if (ln_ranks_planned() > 1 && !m->led)
        return ln_fail(err, LN_EUSAGE,
                       "ln_ranks_plan(%d) is for plans; start so many processes and call ln_ranks_join",
                       ln_ranks_planned());
    do { /* again where another thread has begun to open an engine after this one was planned */
        seen = ln_memory_reserved();
        LN_TRY(ln_eng_fit(m, opt, &o, &bytes, &text_bytes, err));
    } while (!ln_memory_reserve(seen, bytes));
    const ln_status st = ln_eng_open_with(out, m, &o, err);
    ln_memory_unreserve(bytes);
    if (st != LN_OK) return st;
    ln_sched *s = (*out)->sched;
    (*out)->memory_bytes = opt->memory_bytes;
    (*out)->text_bytes = text_bytes;
    ln_texts_plan((int64_t)text_bytes);
    s->request_planned = s->request_allowed = ln_requests_bytes(&o, &(*out)->run->sizes, opt->n_queue);
    return LN_OK;
}

void ln_eng_close(ln_eng **out) {
    ln_eng *e = *out;
    if (!e) return;
    if (e->counted) ln_eng_count(e, false);
    ln_texts_plan(-(int64_t)e->text_bytes);
    ln_sched_close(&e->sched);
    ln_seqs_close(e);
    ln_constraint_forget(e);
    if (e->run) ln_adapters_close(e);
    ln_run_close(&e->run);
    ln_free(e);
    *out = NULL;
}
