/* Runs one step: batch items become a ragged batch, the program runs on it, the sequences advance.
 *
 * Rows are stored item by item; each sequence of the batch names its slot in the device's page tables. */
#include "engine.h"

#define FILES_SECONDS 0.25 /* between two checks of the model's files */

static ln_status check_feeds(const ln_eng *e, const ln_batch_item *feeds, int n_feeds, ln_error *err) {
    int64_t rows = 0, out = 0;
    for (int f = 0; f < n_feeds; f++) {
        if (feeds[f].seq < 0 || feeds[f].seq >= e->run->opt.n_seqs || feeds[f].n < 1)
            return ln_fail(err, LN_EINTERNAL, "step: feed %d has sequence %d and %lld rows", f, feeds[f].seq,
                           (long long)feeds[f].n);
        for (int g = 0; g < f; g++)
            if (feeds[g].seq == feeds[f].seq)
                return ln_fail(err, LN_EINTERNAL, "step: sequence %d is fed twice", feeds[f].seq);
        rows += feeds[f].n;
        out += feeds[f].want == LN_LOGITS_ALL ? feeds[f].n : feeds[f].want == LN_LOGITS_LAST;
    }
    if (rows > e->run->opt.n_chunk || out > e->run->opt.n_logits || n_feeds > e->run->opt.n_seqs)
        return ln_fail(err, LN_EINTERNAL, "step: %lld rows and %lld logits, at most %d and %d",
                       (long long)rows, (long long)out, e->run->opt.n_chunk, e->run->opt.n_logits);
    return LN_OK;
}

/* Kernels may read weights from the mapped files. A page that was lost during the step is noticed at once
 * (sigbus_guard.c); whether a file was written to is checked every FILES_SECONDS, by system calls. */
static ln_status check_files(ln_eng *e, ln_error *err) {
    double now = ln_now();
    bool look = now - e->checked > FILES_SECONDS;
    LN_TRY(ln_tensors_check(&e->model->tensors, !look, err));
    if (look) e->checked = now; /* not set after a change, so that every later step checks again */
    return LN_OK;
}

static ln_status advance(ln_eng *e, ln_mode mode, const ln_batch_item *feeds, int n_feeds, ln_error *err) {
    for (int f = 0; f < n_feeds; f++) LN_TRY(ln_seq_reserve(e, feeds[f].seq, feeds[f].n, err));
    ln_step s = {.n_seqs = n_feeds,
                 .ids = e->ids,
                 .pos = e->pos,
                 .seq = e->seq_of,
                 .row0 = e->row0,
                 .out_rows = e->out_rows,
                 .n_prompt = e->n_prompt,
                 .slot = e->slots};
    for (int f = 0; f < n_feeds; f++) {
        const ln_seq *q = &e->seqs[feeds[f].seq];
        e->row0[f] = s.n_rows;
        e->n_prompt[f] = (int32_t)q->n_prompt;
        for (int64_t i = 0; i < feeds[f].n; i++, s.n_rows++) {
            e->ids[s.n_rows] = feeds[f].ids[i];
            e->pos[s.n_rows] = (int32_t)(q->n + i);
            e->seq_of[s.n_rows] = f;
            if (feeds[f].want == LN_LOGITS_ALL || (feeds[f].want == LN_LOGITS_LAST && i == feeds[f].n - 1))
                e->out_rows[s.n_out++] = s.n_rows;
        }
        e->slots[f] = feeds[f].seq;
        const int64_t len = e->run->kv.page_len, first = q->n / len, end = (q->n + feeds[f].n - 1) / len + 1;
        for (int c = 0; c < e->run->spec->n_window_groups; c++) { /* the blocks that this step writes to */
            const int64_t per_block = e->run->kv.pages_per_block[c];
            LN_TRY(ln_run_set_pages(e->run, feeds[f].seq, c, first * per_block,
                                    q->tables[c] + first * per_block, (end - first) * per_block, err));
        }
    }
    e->row0[n_feeds] = s.n_rows;
    LN_TRY(ln_run_step(e->run, mode, &s, err));
    LN_TRY(check_files(e, err));
    for (int f = 0; f < n_feeds; f++) {
        ln_seq *q = &e->seqs[feeds[f].seq];
        memcpy(q->tokens + q->n, feeds[f].ids, (size_t)feeds[f].n * sizeof(int32_t));
        q->n += feeds[f].n;
        ln_seq_evict_below(e, feeds[f].seq);
    }
    return LN_OK;
}

/* After an error the pages that the step took are freed, because they hold no valid keys and values. */
ln_status ln_eng_step(ln_eng *e, ln_mode mode, const ln_batch_item *feeds, int n_feeds, ln_error *err) {
    LN_TRY(check_feeds(e, feeds, n_feeds, err));
    const ln_status st = advance(e, mode, feeds, n_feeds, err);
    for (int f = 0; st != LN_OK && f < n_feeds; f++) ln_seq_free_unused(e, feeds[f].seq);
    return st;
}

ln_status ln_eng_prefill(ln_eng *e, ln_mode mode, int seq, const int32_t *ids, int64_t n, ln_error *err) {
    for (int64_t at = 0; at < n;) {
        if (ln_eng_cancelled(e)) return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
        int64_t k = LN_MIN(n - at, e->run->opt.n_chunk);
        ln_batch_item f = {seq, ids + at, k,
                           mode == LN_MODE_LOGITS && at + k == n ? LN_LOGITS_LAST : LN_LOGITS_NONE};
        LN_TRY(ln_eng_step(e, mode, &f, 1, err));
        at += k;
        ln_say_progress(&e->run->opt, "reading", at, n);
    }
    return LN_OK;
}
