/* What the calls that run texts for numbers share. */
#include "text_calls.h"
#include "scheduler.h"

bool ln_eng_error_of_text(const ln_eng *e, ln_status st, int64_t n_positions) {
    if (st == LN_EMEMORY) return !ln_seq_possible(e, n_positions);
    return st == LN_EINVALID || st == LN_EUSAGE || st == LN_EUNSUPPORTED || st == LN_ENUMERIC;
}

ln_status ln_eng_end_request(ln_req **req, int64_t *n_cached, ln_error *err) {
    ln_status st = ln_req_wait(*req, err);
    if (st == LN_OK && (*req)->finish == LN_FINISH_CANCELLED)
        st = ln_fail(err, LN_ECANCELLED, "stopped by the caller");
    if (n_cached) *n_cached = ln_req_look(*req).n_cached;
    ln_req_free(req);
    return st;
}

void ln_eng_fill_metrics(const ln_eng *e, int64_t n_prompt, int64_t n_cached, double seconds, ln_metrics *m) {
    *m = (ln_metrics){.prompt_tokens = n_prompt,
                      .cached_tokens = n_cached,
                      .load_seconds = e->load_seconds,
                      .prefill_seconds = seconds,
                      .total_seconds = seconds,
                      .active_bytes = ln_memory_resident(),
                      .peak_bytes = ln_memory_peak(),
                      .cache_miss_reason = ""};
    if (seconds > 0) m->prefill_tok_s = (double)(n_prompt - n_cached) / seconds;
}
