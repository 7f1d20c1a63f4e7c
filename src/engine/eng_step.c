/* Runs one step: batch items become a ragged batch, the program runs on it, the sequences advance.
 *
 * Rows are stored item by item; each sequence of the batch names its slot in the device's page tables. */
#include "engine.h"

#define FILES_SECONDS 0.25 /* between two checks of the model's files */

/* most_out: wanted rows of a step, at most. */
static ln_status check_items(const ln_eng *e, const ln_batch_item *items, int n_items, int most_out,
                             ln_error *err) {
    int64_t rows = 0, out = 0;
    if (n_items > e->run->opt.n_seqs)
        return ln_fail(err, LN_EINTERNAL, "step: %d items, at most %d", n_items, e->run->opt.n_seqs);
    for (int i = 0; i < n_items; i++) {
        if (!items[i].seq || items[i].n < 1)
            return ln_fail(err, LN_EINTERNAL, "step: item %d has %lld rows%s", i, (long long)items[i].n,
                           items[i].seq ? "" : " and no sequence");
        if (items[i].seq->n > 0 && ln_spec_both_ways(e->run->spec))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: its tokens attend to later ones, so that a text is computed whole and no "
                           "step "
                           "goes on with it",
                           e->run->spec->model_type);
        for (int k = 0; k < i; k++)
            if (items[k].seq == items[i].seq)
                return ln_fail(err, LN_EINTERNAL, "step: items %d and %d have the same sequence", k, i);
        rows += items[i].n;
        out += items[i].want == LN_LOGITS_ALL ? items[i].n : items[i].want == LN_LOGITS_LAST;
    }
    if (rows > e->run->opt.n_chunk || out > most_out)
        return ln_fail(err, LN_EINTERNAL, "step: %lld rows and %lld logits, at most %d and %d",
                       (long long)rows, (long long)out, e->run->opt.n_chunk, most_out);
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

/* Appends the rows of item number b to the step block. */
static void add_rows(ln_step_block *s, const ln_batch_item *item, int b) {
    ln_step_row0(s)[b] = s->n_rows;
    ln_step_n_prompt(s)[b] = (int32_t)item->seq->n_prompt;
    ln_step_slot(s)[b] = item->seq->slot;
    for (int64_t i = 0; i < item->n; i++, s->n_rows++) {
        ln_step_ids(s)[s->n_rows] = item->ids[i];
        ln_step_pos(s)[s->n_rows] = (int32_t)(item->seq->n + i);
        ln_step_seq(s)[s->n_rows] = b;
        ln_step_adapter(s)[s->n_rows] = item->seq->adapter_slot - 1;
        if (item->want == LN_LOGITS_ALL || (item->want == LN_LOGITS_LAST && i == item->n - 1))
            ln_step_out_rows(s)[s->n_out++] = s->n_rows;
    }
    ln_step_row0(s)[b + 1] = s->n_rows;
    s->n_seqs = b + 1;
}

static ln_status run(ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err) {
    for (int i = 0; i < n_items; i++) LN_TRY(ln_seq_reserve(e, items[i].seq, items[i].n, err));
    for (int i = 0; i < n_items; i++) ln_seq_reserve_snapshots(e, items[i].seq, items[i].n);
    for (int i = 0; i < n_items; i++) add_rows(e->run->step, &items[i], i);
    LN_TRY(ln_run_step(e->run, err));
    return check_files(e, err);
}

/* After an error the pages that the step took are freed, because they hold no valid keys and values. */
static ln_status run_items(ln_eng *e, const ln_batch_item *items, int n_items, bool no_logits,
                           ln_error *err) {
    LN_TRY(check_items(e, items, n_items, ln_run_choose(e->run, no_logits), err));
    const ln_status st = run(e, items, n_items, err);
    for (int i = 0; st != LN_OK && i < n_items; i++) ln_seq_free_unused(e, items[i].seq);
    return st;
}

ln_status ln_eng_run(ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err) {
    return run_items(e, items, n_items, false, err);
}

ln_status ln_eng_commit(ln_eng *e, const ln_batch_item *item, int64_t n_accepted, ln_error *err) {
    if (n_accepted < 0 || n_accepted > item->n)
        return ln_fail(err, LN_EINTERNAL, "%lld of %lld rows of a step are accepted", (long long)n_accepted,
                       (long long)item->n);
    ln_seq_advance(e, item->seq, item->ids, n_accepted);
    return n_accepted == item->n ? LN_OK : ln_seq_truncate(e, item->seq, err);
}

static ln_status step(ln_eng *e, const ln_batch_item *items, int n_items, bool no_logits, ln_error *err) {
    LN_TRY(run_items(e, items, n_items, no_logits, err));
    for (int i = 0; i < n_items; i++) ln_seq_advance(e, items[i].seq, items[i].ids, items[i].n);
    return LN_OK;
}

ln_status ln_eng_step(ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err) {
    return step(e, items, n_items, false, err);
}

ln_status ln_eng_step_headless(ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err) {
    return step(e, items, n_items, true, err);
}

ln_status ln_eng_prefill(ln_eng *e, ln_seq *s, const int32_t *ids, int64_t n, bool logits, ln_error *err) {
    for (int64_t at = 0; at < n;) {
        if (ln_eng_cancelled(e)) return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
        int64_t k = LN_MIN(n - at, e->run->opt.n_chunk);
        ln_batch_item f = {s, ids + at, k, logits && at + k == n ? LN_LOGITS_LAST : LN_LOGITS_NONE};
        LN_TRY(ln_eng_step(e, &f, 1, err));
        at += k;
        ln_say_progress(&e->run->opt, "reading", at, n);
    }
    return LN_OK;
}
