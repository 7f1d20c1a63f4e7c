/* Tokens that a step computes ahead (lookup.h): which items have rows of them, and which of those rows are
 * kept.
 *
 * A token after a proposed one is sampled when the proposed one was sampled and appended to its request, so
 * that penalties, grammars, stop texts and log-probabilities are those of steps of one token: the rows have
 * the same bits, and a token is a function of its row and of the tokens before it. */
#include "engine.h"
#include "scheduler.h"

/* How many tokens may be proposed for a decoding request: the sequence has positions for them, and the answer
 * needs them. From ln_spec_rope_switch on all rows have other frequencies. */
static int64_t most_proposed(const ln_sched *s, const ln_req *r) {
    const int64_t most = ln_spec_rope_switch(s->e->run->spec), left = r->n_most - r->seq->n - 1;
    return most > 0 && (int64_t)r->all.n <= most ? LN_MIN(left, most - (int64_t)r->all.n) : left;
}

/* Proposes up to `most` tokens for an item; ids[1 + most] becomes its tokens. */
static void propose(const ln_sched *s, ln_req *r, ln_batch_item *item, int64_t most, int32_t *ids) {
    const int64_t n = (int64_t)r->all.n;
    r->n_proposed =
        most > 0 ? ln_lookup_propose(&r->lookup, r->all.data, n, LN_MIN(most, most_proposed(s, r)), ids + 1)
                 : 0;
    if (r->n_proposed == 0) return;
    ids[0] = r->all.data[n - 1];
    item->ids = ids;
    item->n += r->n_proposed;
    item->want = LN_LOGITS_ALL;
}

void ln_sched_propose(ln_sched *s, int n_decode) {
    int64_t rows = s->e->run->opt.n_chunk, outs = s->e->run->opt.n_logits;
    int32_t *ids = s->proposed;
    for (int i = 0; i < s->n_items; i++) {
        ln_req *r = s->parts[i];
        r->n_proposed = r->n_accepted = 0;
        rows -= s->items[i].n;
        outs -= ln_sched_rows_out(&s->items[i]);
    }
    for (int i = 0; i < n_decode; i++) {
        ln_req *r = s->parts[i];
        propose(s, r, &s->items[i], LN_MIN(rows, outs) / (n_decode - i), ids);
        rows -= r->n_proposed;
        outs -= r->n_proposed;
        ids += r->n_proposed > 0 ? 1 + r->n_proposed : 0;
    }
}

/* Whether the token that was sampled last is proposal k of the item, and the answer goes on with it. */
static bool goes_on(ln_req *r, const ln_batch_item *item, int64_t k) {
    if (r->n_proposed <= k || r->n_accepted < k || r->fault.code != LN_OK) return false;
    if (r->over || r->sampled != item->ids[k + 1]) return false;
    ln_error err;
    const ln_status st = ln_req_take(r, &r->over, &r->over_how, &err);
    if (st != LN_OK) r->fault = err, r->fault.code = st;
    if (st != LN_OK || r->over) return false;
    r->n_accepted = k + 1;
    return true;
}

/* Lists the rows of the proposals k that were sampled. */
static bool list_rows(ln_sched *s, int64_t k) {
    int64_t row = 0;
    s->n_jobs = 0;
    for (int i = 0; i < s->n_items; i++) {
        ln_req *r = s->parts[i];
        if (goes_on(r, &s->items[i], k))
            ln_sched_add_job(s, (ln_sample_job){.r = r, .kind = LN_SAMPLE_TOKEN, .row = row + k + 1});
        row += ln_sched_rows_out(&s->items[i]);
    }
    return s->n_jobs > 0;
}

ln_status ln_sched_accept(ln_sched *s, ln_error *err) {
    if (s->e->run->opt.n_lookup == 0) return LN_OK;
    for (int64_t k = 0; list_rows(s, k); k++) {
        ln_sched_sample_on_device(s);
        ln_sched_sample(s);
    }
    for (int i = 0; i < s->n_items; i++) {
        ln_req *r = s->parts[i];
        if (r->n_proposed == 0) continue;
        LN_TRY(ln_eng_commit(s->e, &s->items[i], 1 + r->n_accepted, err));
        ln_lookup_judge(&r->lookup, r->n_proposed, r->n_accepted);
    }
    return LN_OK;
}
