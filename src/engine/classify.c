/* Classifies many prompts: one request for each prompt, whose last row scores the first token of every label,
 * and one for each way on that a label of several tokens takes.
 *
 * A label's tokens but the last are its path. Rows of a path are wanted once, even where labels begin alike:
 * the paths are sorted, those that begin another one are left out, and each is computed from where it leaves
 * the one before. A path's request is the prompt and the path; the prefix cache holds the prompt.
 *
 * Two inputs for each sequence of the engine are under way, so that steps are full while the oldest of them
 * is waited for: results go to the callback in the order of the prompts. A log-probability is that of
 * score.c, and the tokens of a label are added in their order, so that neighbours cannot change a bit. */
#include "classify.h"
#include "engine.h"
#include "logprob.h"
#include "scheduler.h"
#include "text_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* WITH_LOGITS: inputs under way at most where each holds a row of logits, which no plan counts. */
enum { INPUTS_PER_SEQUENCE = 2, WITH_LOGITS = 16 };

/* Tokens of a label, and its path: the tokens but the last. */
typedef struct label {
    const int32_t *ids; /* [n] into classifier.label_ids */
    int n;
} label;

struct classifier;
struct input;

/* A request of an input: for its prompt (path -1) or a path. */
typedef struct run {
    struct classifier *c;
    struct input *in;
    int path;
    ln_req *req;       /* NULL: this place is free */
    atomic_bool ready; /* the request has finished */
    uint64_t order;    /* requests before it */
    uint64_t seen;     /* of ln_req_wait_change */
} run;

/* An input under way. */
typedef struct input {
    size_t index; /* of the prompt */
    ln_ids ids;   /* [n_prompt] the prompt, and scratch behind it */
    size_t n_prompt;
    double *logprobs; /* [label_ids.n] of each token of each label */
    float *logits;    /* [V] after the prompt; NULL: not wanted */
    int32_t token;
    double logprob;           /* of the token */
    bool read;                /* the prompt's request has finished */
    int next_path, n_running; /* paths that have a request; requests that have not finished */
    bool done;
    ln_error error; /* code LN_OK: none */
} input;

typedef struct classifier {
    ln_eng *e;
    const ln_prompt *prompts;
    size_t n;
    const ln_classify_options *opt;
    ln_class_fn *fn;
    void *user;
    ln_sampling how; /* of the next token */
    uint64_t seed;
    ln_ids label_ids; /* of all labels, one after the other */
    label *labels;    /* [n_labels] */
    label *paths;     /* [n_paths] sorted; n: length of the path */
    int *fork;        /* [n_paths] tokens that a path has in common with the one before */
    int n_paths, longest_path;
    input *inputs; /* [n_inputs], a ring: prompt i is in inputs[i % n_inputs] */
    run *runs;     /* [n_runs] */
    size_t n_inputs, n_runs;
    uint64_t n_requests;            /* so far */
    size_t begun, reported;         /* prompts that have been taken, and whose results were handed over */
    double *scores, *probabilities; /* [n_labels] */
    ln_str text;
    double caller; /* seconds in callbacks */
    bool stopped;  /* the callback asked to stop */
    int64_t n_prompt_ids, n_cached, n_tokens;
} classifier;

/* ---- labels ---- */

static ln_status encode_labels(classifier *c, ln_error *err) {
    const size_t n = c->opt->n_labels;
    size_t *at = ln_zalloc(n + 1, sizeof *at);
    ln_status st = LN_OK;
    c->labels = ln_zalloc(n + 1, sizeof *c->labels);
    if (!at || !c->labels) LN_GO(LN_OOM(err, "the labels"));
    for (size_t i = 0; i < n; i++) {
        const char *text = c->opt->labels[i];
        LN_GO(ln_tok_encode(c->e->model->tok, text, strlen(text), false, &c->label_ids, err));
        at[i + 1] = c->label_ids.n;
        if (at[i + 1] == at[i])
            LN_GO(ln_fail(err, LN_EUSAGE,
                          "label %zu (ln_classify_options.labels) has no tokens; expected a text", i + 1));
    }
    for (size_t i = 0; i < n; i++)
        c->labels[i] = (label){c->label_ids.data + at[i], (int)(at[i + 1] - at[i])};
out:
    ln_free(at);
    return st;
}

static int in_common(const label *a, const label *b) {
    int n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n]) n++;
    return n;
}

static int by_ids(const void *x, const void *y) {
    const label *a = x, *b = y;
    int n = in_common(a, b);
    if (n < a->n && n < b->n) return a->ids[n] < b->ids[n] ? -1 : 1;
    return a->n - b->n;
}

/* Finds the paths of the labels. In sorted order the paths that begin another one stand right before it. */
static ln_status find_paths(classifier *c, ln_error *err) {
    const size_t n = c->opt->n_labels;
    size_t found = 0;
    c->paths = ln_zalloc(n + 1, sizeof *c->paths);
    c->fork = ln_zalloc(n + 1, sizeof *c->fork);
    if (!c->paths || !c->fork) return LN_OOM(err, "the labels");
    for (size_t i = 0; i < n; i++)
        if (c->labels[i].n > 1) c->paths[found++] = (label){c->labels[i].ids, c->labels[i].n - 1};
    qsort(c->paths, found, sizeof *c->paths, by_ids);
    for (size_t i = 0; i < found; i++) {
        if (i + 1 < found && in_common(&c->paths[i], &c->paths[i + 1]) == c->paths[i].n) continue;
        c->paths[c->n_paths] = c->paths[i];
        c->fork[c->n_paths] = c->n_paths > 0 ? in_common(&c->paths[c->n_paths - 1], &c->paths[i]) : 0;
        c->longest_path = LN_MAX(c->longest_path, c->paths[i].n);
        c->n_paths++;
    }
    return LN_OK;
}

/* ---- rows: called inside a step ---- */

/* The row after the prompt: the first token of every label, or the next token. */
static ln_status prompt_row(const run *r, int64_t row, const ln_scratch *x, ln_error *err) {
    const classifier *c = r->c;
    input *in = r->in;
    const ln_genconfig *gen = &c->e->model->gen;
    const int64_t V = c->e->run->spec->V;
    double lse;
    LN_TRY(ln_run_logits(c->e->run, row, x->logits, err));
    LN_TRY(ln_log_sum(x->logits, V, &lse, err));
    if (in->logits) memcpy(in->logits, x->logits, (size_t)V * sizeof *in->logits);
    for (size_t i = 0; i < c->opt->n_labels; i++)
        in->logprobs[c->labels[i].ids - c->label_ids.data] = (double)x->logits[c->labels[i].ids[0]] - lse;
    if (c->opt->n_labels > 0) return LN_OK;
    LN_TRY(ln_sample(x->sampler, x->logits, &c->how, c->seed, in->ids.data, (int64_t)in->n_prompt, 0,
                     gen->eos, gen->n_eos, &in->token, err));
    LN_TRY(ln_run_logits(c->e->run, row, x->logits, err)); /* ln_sample overwrote them */
    in->logprob = (double)x->logits[in->token] - lse;
    return LN_OK;
}

/* The row after path[0 .. depth]: the next token of every label that begins with it. */
static ln_status path_row(const run *r, int depth, int64_t row, const ln_scratch *x, ln_error *err) {
    const classifier *c = r->c;
    const label here = {c->paths[r->path].ids, depth + 1};
    double lse;
    LN_TRY(ln_run_logits(c->e->run, row, x->logits, err));
    LN_TRY(ln_log_sum(x->logits, c->e->run->spec->V, &lse, err));
    for (size_t i = 0; i < c->opt->n_labels; i++) {
        const label *l = &c->labels[i];
        if (l->n <= here.n || in_common(l, &here) < here.n) continue;
        r->in->logprobs[l->ids - c->label_ids.data + here.n] = (double)x->logits[l->ids[here.n]] - lse;
    }
    return LN_OK;
}

static ln_status on_row(void *user, int64_t t, int64_t row, const ln_scratch *x, ln_error *err) {
    const run *r = user;
    if (r->path < 0) return prompt_row(r, row, x, err);
    return path_row(r, (int)(t - (int64_t)r->in->n_prompt), row, x, err);
}

/* ---- inputs and requests ---- */

/* Takes the error of a request: it is that of its input, or the whole call's. */
static ln_status take_error(const classifier *c, input *in, const ln_error *why, ln_error *err) {
    if (!ln_eng_error_of_text(c->e, why->code, (int64_t)in->n_prompt + c->longest_path))
        return ln_fail(err, why->code, "%s", why->message);
    if (in->error.code == LN_OK) in->error = *why;
    in->next_path = c->n_paths;
    return LN_OK;
}

static void on_ready(void *user) {
    run *r = user;
    atomic_store(&r->ready, true);
}

/* Makes a request for the prompt of an input (path -1), or for the prompt and a path. */
static ln_status open_request(run *r, input *in, int path, ln_error *err) {
    const classifier *c = r->c;
    const int n_path = path < 0 ? 0 : c->paths[path].n;
    for (int i = 0; i < n_path; i++) LN_TRY(ln_ids_add(&in->ids, c->paths[path].ids[i], err));
    const ln_req_options o = {.ids = in->ids.data,
                              .n_ids = (int64_t)in->ids.n,
                              .on_row = on_row,
                              .row_user = r,
                              .first_row = (int64_t)in->n_prompt + (path < 0 ? -1 : c->fork[path]),
                              /* labels would push prompts out of the cache whose own labels are to come */
                              .n_share = (int64_t)in->n_prompt,
                              .adapter_slot = ln_prompt_adapter(&c->prompts[in->index]),
                              .on_ready = on_ready,
                              .user = r};
    r->in = in;
    r->path = path;
    r->order = r->c->n_requests++;
    r->seen = 0;
    atomic_store(&r->ready, false);
    ln_status st = ln_eng_check_ids(c->e, o.ids, in->ids.n, err);
    if (st != LN_OK) return path < 0 ? st : ln_prefix(err, st, "with a label of %d tokens", n_path + 1);
    return ln_req_new(&r->req, c->e, &o, err);
}

static ln_status begin_request(run *r, input *in, int path, ln_error *err) {
    ln_error why = {0};
    ln_status st = open_request(r, in, path, &why);
    in->ids.n = in->n_prompt;
    if (st != LN_OK) return take_error(r->c, in, &why, err);
    in->n_running++;
    return LN_OK;
}

/* Takes the next prompt. */
static ln_status begin_input(classifier *c, run *r, ln_error *err) {
    input *in = &c->inputs[c->begun % c->n_inputs];
    ln_error why = {0};
    in->index = c->begun++;
    in->ids.n = in->n_prompt = 0;
    in->next_path = in->n_running = 0;
    in->read = in->done = false;
    in->error.code = LN_OK;
    ln_status st = ln_eng_encode(c->e, &c->prompts[in->index], &in->ids, &why);
    in->n_prompt = in->ids.n;
    if (st == LN_OK && in->n_prompt == 0)
        st = ln_fail(&why, LN_EUSAGE,
                     "the prompt is empty and this model adds no token of its own; give some text");
    if (st != LN_OK) LN_TRY(take_error(c, in, &why, err));
    else LN_TRY(begin_request(r, in, -1, err));
    in->done = in->n_running == 0;
    return LN_OK;
}

/* The oldest input whose prompt was read and that has a path without a request; NULL: there is none. */
static input *next_with_path(const classifier *c) {
    for (size_t i = c->reported; i < c->begun; i++) {
        input *in = &c->inputs[i % c->n_inputs];
        if (in->read && in->next_path < c->n_paths) return in;
    }
    return NULL;
}

/* Gives every free place a request: paths of inputs that have begun first, then new inputs. */
static ln_status fill(classifier *c, ln_error *err) {
    for (size_t i = 0; i < c->n_runs; i++) {
        run *r = &c->runs[i];
        if (r->req) continue;
        input *in = next_with_path(c);
        if (in) {
            LN_TRY(begin_request(r, in, in->next_path++, err));
            in->done = in->n_running == 0 && in->next_path >= c->n_paths;
        } else if (c->begun < c->n && c->begun - c->reported < c->n_inputs) {
            LN_TRY(begin_input(c, r, err));
        } else {
            break;
        }
    }
    return LN_OK;
}

/* Takes the result of a request that has finished. */
static ln_status end_request(run *r, ln_error *err) {
    classifier *c = r->c;
    input *in = r->in;
    ln_error why = {0};
    int64_t n_cached;
    const ln_status st = ln_eng_end_request(&r->req, &n_cached, &why);
    in->n_running--;
    if (st != LN_OK) LN_TRY(take_error(c, in, &why, err));
    if (r->path < 0) {
        in->read = true;
        c->n_prompt_ids += (int64_t)in->n_prompt;
        c->n_cached += n_cached;
    }
    in->done = in->n_running == 0 && in->next_path >= c->n_paths;
    return LN_OK;
}

/* The request that has waited longest, unless one has finished; NULL: there is nothing to wait for. */
static run *oldest(const classifier *c) {
    run *found = NULL;
    for (size_t i = 0; i < c->n_runs; i++) {
        run *r = &c->runs[i];
        if (!r->req) continue;
        if (atomic_load(&r->ready)) return NULL;
        if (!found || r->order < found->order) found = r;
    }
    return found;
}

/* Waits for a step, running it where no other thread does, and ends the requests that have finished. The
 * oldest one runs, because requests are admitted in their order, so that every step changes it. */
static ln_status collect(classifier *c, ln_error *err) {
    run *r = oldest(c);
    if (r) r->seen = ln_req_wait_change(r->req, r->seen, -1);
    for (size_t i = 0; i < c->n_runs; i++)
        if (c->runs[i].req && atomic_load(&c->runs[i].ready)) LN_TRY(end_request(&c->runs[i], err));
    return LN_OK;
}

/* ---- results ---- */

/* Computes scores and probabilities; sets *best. LN_ENUMERIC: no label is possible. */
static ln_status score_labels(const classifier *c, const input *in, int *best, ln_error *err) {
    const size_t n = c->opt->n_labels;
    double sum = 0;
    *best = 0;
    for (size_t i = 0; i < n; i++) {
        const label *l = &c->labels[i];
        const double *logprobs = in->logprobs + (l->ids - c->label_ids.data);
        c->scores[i] = 0;
        for (int k = 0; k < l->n; k++) c->scores[i] += logprobs[k];
        if (c->opt->normalize == LN_NORMALIZE_TOKENS) c->scores[i] /= l->n;
        if (c->scores[i] > c->scores[*best]) *best = (int)i;
    }
    if (c->scores[*best] == -INFINITY)
        return ln_fail(err, LN_ENUMERIC, "every label has the probability 0 after this prompt");
    for (size_t i = 0; i < n; i++) sum += c->probabilities[i] = ln_exp64(c->scores[i] - c->scores[*best]);
    for (size_t i = 0; i < n; i++) c->probabilities[i] /= sum;
    return LN_OK;
}

static ln_status token_text(classifier *c, int32_t token, ln_error *err) {
    c->text.len = 0;
    LN_TRY(ln_tok_decode(c->e->model->tok, &token, 1, false, &c->text, err));
    return c->text.failed ? LN_OOM(err, "a token's text") : LN_OK;
}

/* Fills in what the callback gets, but for the error. */
static ln_status fill_class(classifier *c, const input *in, ln_class *out, ln_error *err) {
    if (c->opt->n_labels > 0) {
        LN_TRY(score_labels(c, in, &out->label, err));
        out->scores = c->scores;
        out->probabilities = c->probabilities;
    } else {
        LN_TRY(token_text(c, in->token, err));
        out->token = in->token;
        out->logprob = in->logprob;
        out->text = c->text.data ? c->text.data : "";
        out->text_bytes = c->text.len;
        c->n_tokens++;
    }
    out->logits = in->logits;
    return LN_OK;
}

/* Hands the result of one input to the callback. */
static ln_status report(classifier *c, input *in, ln_error *err) {
    const ln_class empty = {
        .size = sizeof empty, .index = in->index, .label = -1, .n_vocab = c->e->run->spec->V};
    ln_class result = empty;
    if (in->error.code == LN_OK) {
        ln_error why = {0};
        ln_status st = fill_class(c, in, &result, &why);
        if (st != LN_OK) LN_TRY(take_error(c, in, &why, err));
    }
    if (in->error.code != LN_OK) {
        result = empty;
        result.status = in->error.code;
        result.error = in->error.message;
    }
    double start = ln_now();
    ln_status said = LN_CALLBACK(c->fn(c->user, &result, err));
    c->caller += ln_now() - start;
    c->reported++;
    c->stopped = said == LN_ECANCELLED;
    return c->stopped ? LN_OK : said;
}

static ln_status report_all(classifier *c, ln_error *err) {
    while (c->reported < c->begun && !c->stopped) {
        input *in = &c->inputs[c->reported % c->n_inputs];
        if (!in->done) return LN_OK;
        LN_TRY(report(c, in, err));
    }
    return LN_OK;
}

static ln_status classify_all(classifier *c, ln_error *err) {
    while (c->reported < c->n && !c->stopped) {
        if (ln_eng_cancelled(c->e)) return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
        LN_TRY(fill(c, err));
        LN_TRY(collect(c, err));
        LN_TRY(report_all(c, err));
    }
    return LN_OK;
}

/* ---- the call ---- */

static ln_status allocate(classifier *c, ln_error *err) {
    const size_t V = (size_t)c->e->run->spec->V, places = INPUTS_PER_SEQUENCE * (size_t)c->e->run->opt.n_seqs;
    c->n_runs = places;
    c->n_inputs = LN_MIN(places, c->n + (c->n == 0));
    if (c->opt->want_logits) c->n_inputs = LN_MIN(c->n_inputs, (size_t)WITH_LOGITS);
    c->runs = ln_zalloc(c->n_runs, sizeof *c->runs);
    c->inputs = ln_zalloc(c->n_inputs, sizeof *c->inputs);
    c->scores = ln_zalloc(c->opt->n_labels + 1, sizeof *c->scores);
    c->probabilities = ln_zalloc(c->opt->n_labels + 1, sizeof *c->probabilities);
    if (!c->runs || !c->inputs || !c->scores || !c->probabilities)
        return LN_OOM(err, "what classifying needs");
    for (size_t i = 0; i < c->n_runs; i++) c->runs[i].c = c;
    for (size_t i = 0; i < c->n_inputs; i++) {
        input *in = &c->inputs[i];
        in->logprobs = ln_zalloc(c->label_ids.n + 1, sizeof *in->logprobs);
        if (c->opt->want_logits) in->logits = ln_zalloc(V, sizeof *in->logits);
        if (!in->logprobs || (c->opt->want_logits && !in->logits))
            return LN_OOM(err, "what classifying needs");
    }
    return LN_OK;
}

static void release(classifier *c) {
    for (size_t i = 0; c->runs && i < c->n_runs; i++)
        if (c->runs[i].req) ln_req_cancel(c->runs[i].req);
    for (size_t i = 0; c->runs && i < c->n_runs; i++) ln_req_free(&c->runs[i].req);
    for (size_t i = 0; c->inputs && i < c->n_inputs; i++) {
        ln_ids_free(&c->inputs[i].ids);
        ln_free(c->inputs[i].logprobs);
        ln_free(c->inputs[i].logits);
    }
    ln_free(c->runs);
    ln_free(c->inputs);
    ln_free(c->scores);
    ln_free(c->probabilities);
    ln_free(c->labels);
    ln_free(c->paths);
    ln_free(c->fork);
    ln_ids_free(&c->label_ids);
    ln_str_free(&c->text);
}

/* The sampling of the next token: without one, the likeliest token. The seed is one for all prompts, so that
 * a prompt gets the same token alone. */
static void choose_sampling(classifier *c) {
    c->how = c->opt->sampling ? *c->opt->sampling : (ln_sampling){.top_p = 1, .repeat_penalty = 1};
    c->seed = ln_sampling_seed(&c->how);
}

ln_status ln_eng_classify(ln_eng *e, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                          ln_class_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    classifier c = {.e = e, .prompts = prompts, .n = n, .opt = opt, .fn = fn, .user = user};
    ln_status st = LN_OK;
    double start = ln_now();
    choose_sampling(&c);
    LN_GO(ln_tok_check(e->model->tok, err));
    LN_GO(encode_labels(&c, err));
    LN_GO(find_paths(&c, err));
    LN_GO(allocate(&c, err));
    LN_GO(classify_all(&c, err));
out:
    release(&c);
    if (metrics) {
        ln_eng_fill_metrics(e, c.n_prompt_ids, c.n_cached, ln_now() - start - c.caller, metrics);
        metrics->generated_tokens = c.n_tokens;
    }
    return st;
}
