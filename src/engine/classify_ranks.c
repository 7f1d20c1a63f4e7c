/* Classifying by several ranks: rank r of N has the prompts r, r + N, r + 2 N and so on. They work in blocks,
 * after each of which they exchange their results, so that every rank reports all of them in the order of the
 * prompts. A result has the bits of one process, because it does not depend on its neighbours (classify.c).
 */
#include "classify.h"
#include "engine.h"
#include "sampler.h"

#include <string.h>

/* Prompts of a rank in a block, for each sequence of its engine; a row of logits is kept for each. */
enum { BLOCK_PER_SEQUENCE = 32, BLOCK_WITH_LOGITS = 64 };

typedef struct sharing {
    const ln_classify_options *opt;
    ln_class_fn *fn;
    void *user;
    ln_str mine; /* results of this rank, records as below */
    size_t n_vocab;
} sharing;

/* The fixed part of a record. Scores and probabilities, logits, text and error follow, each part padded to 8
 * bytes. */
typedef struct record {
    int32_t status, label, token, has_scores, has_logits, has_text;
    double logprob;
    uint64_t text_bytes, error_bytes; /* error_bytes: with its NUL; 0: none */
} record;

static void put_part(ln_str *s, const void *data, size_t bytes) {
    static const char zeros[8];
    if (bytes) ln_str_add(s, data, bytes);
    ln_str_add(s, zeros, (8 - bytes % 8) % 8);
}
/* Returns a part of so many bytes and moves *at behind it. NULL: it has none. */
static const void *take_part(const char **at, size_t bytes) {
    const char *part = *at;
    *at += (bytes + 7) / 8 * 8;
    return bytes ? part : NULL;
}

/* Keeps a result of this rank. */
static ln_status keep(void *user, const ln_class *c, ln_error *err) {
    sharing *s = user;
    const size_t scores = c->scores ? s->opt->n_labels * sizeof(double) : 0;
    const record r = {.status = (int32_t)c->status,
                      .label = c->label,
                      .token = c->token,
                      .has_scores = c->scores != NULL,
                      .has_logits = c->logits != NULL,
                      .has_text = c->text != NULL,
                      .logprob = c->logprob,
                      .text_bytes = c->text ? c->text_bytes : 0,
                      .error_bytes = c->error ? strlen(c->error) + 1 : 0};
    put_part(&s->mine, &r, sizeof r);
    put_part(&s->mine, c->scores, scores);
    put_part(&s->mine, c->probabilities, scores);
    put_part(&s->mine, c->logits, c->logits ? s->n_vocab * sizeof(float) : 0);
    put_part(&s->mine, c->text, r.text_bytes);
    put_part(&s->mine, c->error, r.error_bytes);
    return s->mine.failed ? LN_OOM(err, "results of ranks") : LN_OK;
}

/* Calls the caller with a result, and moves *at behind its record. */
static ln_status report(const sharing *s, size_t index, const char **at, ln_error *err) {
    const record *r = take_part(at, sizeof *r);
    const size_t scores = r->has_scores ? s->opt->n_labels * sizeof(double) : 0;
    ln_class c = {.size = sizeof c,
                  .index = index,
                  .status = (ln_status)r->status,
                  .label = r->label,
                  .token = r->token,
                  .logprob = r->logprob,
                  .n_vocab = (int64_t)s->n_vocab};
    c.scores = take_part(at, scores);
    c.probabilities = take_part(at, scores);
    c.logits = take_part(at, r->has_logits ? s->n_vocab * sizeof(float) : 0);
    c.text = take_part(at, r->text_bytes);
    c.text_bytes = r->text_bytes;
    if (r->has_text && !c.text) c.text = "";
    c.error = take_part(at, r->error_bytes);
    return LN_CALLBACK(s->fn(s->user, &c, err));
}

/* Reports the results of a block, whose first prompt is `begin`, in the order of the prompts. */
static ln_status report_all(const sharing *s, const ln_transport *ranks, size_t begin, size_t end, char *all,
                            const size_t *ends, const char **at, ln_error *err) {
    for (int r = 0; r < ranks->size; r++) at[r] = all + (r ? ends[r - 1] : 0);
    for (size_t i = begin; i < end; i++) LN_TRY(report(s, i, &at[(i - begin) % (size_t)ranks->size], err));
    return LN_OK;
}

/* Classifies the prompts begin .. end - 1, of which `mine` takes those of this rank. */
static ln_status classify_block(ln_eng *e, sharing *s, ln_transport *ranks, const ln_prompt *prompts,
                                size_t begin, size_t end, ln_prompt *mine, ln_metrics *metrics,
                                ln_error *err) {
    const size_t size = (size_t)ranks->size;
    size_t n = 0;
    char *all = NULL;
    size_t *ends = ln_zalloc(size, sizeof *ends);
    const char **at = ln_zalloc(size, sizeof *at);
    for (size_t i = begin + (size_t)ranks->rank; i < end; i += size) mine[n++] = prompts[i];
    s->mine.len = 0;
    ln_status st = ends && at ? LN_OK : LN_OOM(err, "results of ranks");
    if (st == LN_OK) st = ln_eng_classify(e, mine, n, s->opt, keep, s, metrics, err);
    st = ln_ranks_agree(ranks, st, 0, "", err);
    if (st == LN_OK) st = ln_ranks_collect(ranks, s->mine.data, s->mine.len, &all, ends, err);
    if (st == LN_OK) {
        st = report_all(s, ranks, begin, end, all, ends, at, err);
        st = ln_ranks_agree(ranks, st, 0, "", err); /* a callback may stop rank 0 alone */
        if (st == LN_ECANCELLED) s->fn = NULL, st = LN_OK;
    }
    ln_free(all), ln_free(ends), ln_free((void *)(uintptr_t)at);
    return st;
}

ln_status ln_eng_classify_shared(ln_eng *e, ln_transport *ranks, const ln_prompt *prompts, size_t n,
                                 const ln_classify_options *opt, ln_class_fn *fn, void *user,
                                 ln_metrics *metrics, ln_error *err) {
    ln_classify_options own = *opt;
    ln_sampling how =
        opt->sampling ? *opt->sampling : (ln_sampling){.size = sizeof how, .top_p = 1, .repeat_penalty = 1};
    sharing s = {.opt = &own, .fn = fn, .user = user, .n_vocab = (size_t)e->run->spec->V};
    const size_t most =
        opt->want_logits ? BLOCK_WITH_LOGITS : BLOCK_PER_SEQUENCE * (size_t)e->run->opt.n_seqs;
    const size_t block = most * (size_t)ranks->size;
    ln_prompt *mine = ln_zalloc(most, sizeof *mine);
    ln_status st = ln_ranks_agree(ranks, mine ? LN_OK : LN_OOM(err, "the prompts"), 0, "", err);
    how.seed = ln_sampling_seed(&how), how.has_seed = true; /* one for all prompts: that of rank 0 */
    own.sampling = &how;
    if (st == LN_OK && ranks->broadcast(ranks, &how.seed, sizeof how.seed) != LN_OK)
        st = ln_ranks_failed(ranks, err);
    for (size_t at = 0; at < n && st == LN_OK && s.fn; at += block)
        st = classify_block(e, &s, ranks, prompts, at, LN_MIN(at + block, n), mine, metrics, err);
    ln_str_free(&s.mine);
    ln_free(mine);
    return st;
}
