/* Traces a program while it runs: what each node costs (explain), and whether a device agrees with the
 * reference (diff).
 *
 * Both trace steps of an engine node by node; they run sequences and steps themselves rather than requests,
 * because the step has to have the rows that were asked for, at a depth that can be repeated. Diff runs the
 * reference device first and stores every node's outputs; then it runs the other device on the same rows and
 * compares. It takes a few rows at a time, so that the stored outputs are small compared with the weights.
 * If a kernel promises the reference's bits, the bound is 0, so that no tolerance can hide an error. If it
 * does not (device.h, tolerance), the node's outputs are replaced by the reference's after the comparison,
 * so that every node starts from the same inputs and the bound concerns that node alone. */
#include "../base/median.h"
#include "../engine/scheduler.h"
#include "inspect.h"

/* Rows of a step of diff: one more than the widest block of rows of a device or a vector has (32), so that
 * the code for tails runs too. */
enum { DIFF_ROWS = 33 };

/* ---- explain ---- */

/* What the trace of explain records. */
typedef struct timing {
    double *seconds; /* [n_nodes][n_reps] */
    int n_reps, rep;
} timing;

static void on_time(void *user, int i, double seconds) {
    timing *t = user;
    t->seconds[i * t->n_reps + t->rep] = seconds;
}

/* Runs one step of n_rows at `depth`, traced unless `trace` is NULL. */
static ln_status one_step(ln_eng *e, ln_seq **seq, const int32_t *ids, int64_t n_rows, int64_t depth,
                          const ln_trace *trace, double *seconds, ln_error *err) {
    LN_TRY(ln_eng_set_context(e, seq, ids, depth, n_rows, err));
    ln_batch_item f = {*seq, ids + depth, n_rows, LN_LOGITS_LAST};
    e->run->trace = trace;
    double start = ln_now();
    ln_status st = ln_eng_step(e, &f, 1, err);
    *seconds = ln_now() - start;
    e->run->trace = NULL;
    return st;
}

/* Fills in what is known of node i without running it. The report borrows its texts from text[2], until the
 * next call. */
static ln_status describe(const ln_eng *e, int i, ln_node_report *r, ln_str text[2], ln_error *err) {
    const ln_program *p = &e->run->programs[LN_RUN_LOGITS].program;
    const ln_pnode *n = ln_program_node(p, i);
    text[0].len = text[1].len = 0;
    ln_program_node_text(p, i, &text[0], &text[1]);
    if (text[0].failed || text[1].failed) return LN_OOM(err, "the text of a node");
    *r = (ln_node_report){.index = i, .stage = n->stage, .layer = n->layer, .op = ln_op_name(n->op)};
    r->kernel = n->kernel;
    r->makes = text[0].len ? text[0].data : "";
    r->reads = text[1].len ? text[1].data : "";
    return LN_OK;
}

static ln_status tell_times(ln_eng *e, timing *t, int64_t n_rows, int64_t depth, ln_node_fn *fn, void *user,
                            ln_error *err) {
    const ln_program *p = &e->run->programs[LN_RUN_LOGITS].program;
    ln_bounds live = {n_rows, 1, 1};
    ln_str text[2] = {0};
    ln_status st = LN_OK;
    for (int i = 0; st == LN_OK && i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        ln_cost c = ln_ops[n->op].cost(p, n, &live, depth);
        ln_node_report r;
        LN_GO(describe(e, i, &r, text, err));
        r.flops = c.flops, r.bytes = c.bytes, r.seconds = ln_median(t->seconds + i * t->n_reps, t->n_reps);
        st = LN_CALLBACK(fn(user, &r, err));
    }
out:
    ln_str_free(&text[0]);
    ln_str_free(&text[1]);
    return st == LN_ECANCELLED ? LN_OK : st;
}

ln_status ln_eng_explain(ln_eng *e, int64_t n_rows, int64_t depth, int n_reps, ln_node_fn *fn, void *user,
                         ln_program_report *out, ln_error *err) {
    const ln_program *p = &e->run->programs[LN_RUN_LOGITS].program;
    ln_status st = LN_OK;
    ln_seq *seq = NULL;
    bool alone = false;
    if (n_rows == 0) n_rows = e->run->opt.n_chunk;
    if (n_rows > e->run->opt.n_chunk)
        return ln_fail(err, LN_EUSAGE, "a step of %lld rows: ln_options.n_chunk allows %d", (long long)n_rows,
                       e->run->opt.n_chunk);
    if (depth > e->run->opt.n_ctx - n_rows)
        return ln_fail(err, LN_EUSAGE, "%lld rows at depth %lld are more than the context holds: %lld",
                       (long long)n_rows, (long long)depth, (long long)e->run->opt.n_ctx);
    timing t = {.seconds = ln_zalloc((size_t)(p->n_nodes + 1) * (size_t)n_reps, sizeof(double)),
                .n_reps = n_reps};
    double *whole = t.seconds ? t.seconds + p->n_nodes * n_reps : NULL, watched;
    int32_t *ids = ln_eng_random_ids(e->model, depth + n_rows);
    ln_trace trace = {on_time, &t};
    if (!t.seconds || !ids) LN_GO(LN_OOM(err, "the times of the nodes"));
    LN_GO(ln_driver_enter(e->sched, err));
    alone = true;
    for (t.rep = 0; t.rep < n_reps; t.rep++) {
        LN_GO(one_step(e, &seq, ids, n_rows, depth, NULL, &whole[t.rep], err));
        LN_GO(one_step(e, &seq, ids, n_rows, depth, &trace, &watched, err));
    }
    *out = (ln_program_report){.size = sizeof *out,
                               .n_nodes = p->n_nodes,
                               .n_stages = p->n_stages,
                               .n_rows = n_rows,
                               .depth = depth,
                               .temp_bytes = (uint64_t)p->temp_bytes,
                               .seconds = ln_median(whole, n_reps),
                               .n_threads = e->run->info.n_threads};
out:
    ln_seq_close(e, &seq);
    if (alone) ln_driver_leave(e->sched); /* before the callbacks, which may call the engine */
    if (st == LN_OK) st = tell_times(e, &t, n_rows, depth, fn, user, err);
    ln_free(t.seconds);
    ln_free(ids);
    return st;
}

/* ---- diff ---- */

/* What the trace of diff compares. */
typedef struct comparing {
    ln_eng *e;      /* the engine that runs now */
    ln_seq *seq;    /* its sequence */
    bool first;     /* e is the reference: store its outputs, do not compare */
    int64_t n_rows; /* of the step */
    /* kept: the reference's outputs of all nodes, one after the other; got: the other device's of one node */
    float *kept, *got;
    size_t *begin; /* [n_nodes + 1] start of each node's outputs in `kept`, for DIFF_ROWS rows */
    double *most;  /* [n_nodes] largest difference so far */
    /* [n_nodes] largest difference allowed: the largest magnitude in the reference's output so far, times the
     * node's tolerance */
    double *bound;
    ln_status st; /* the first error in the trace, with its message: */
    ln_error err;
} comparing;

/* How many pages the rows at positions from .. from + n - 1 are in. */
static int64_t pages_of(const ln_eng *e, int64_t from, int64_t n) {
    return (from + n - 1) / e->run->kv.page_len - from / e->run->kv.page_len + 1;
}
/* Elements of the keys that a node writes to a page, and of the keys and values. */
static size_t page_keys(const ln_pnode *n) {
    return (size_t)n->p.kv.n_kv_heads * (size_t)n->p.kv.head_dim * (size_t)n->p.kv.page_len;
}
static size_t page_numbers(const ln_pnode *n) {
    return page_keys(n) + (size_t)n->p.kv.n_kv_heads * (size_t)n->p.kv.v_dim * (size_t)n->p.kv.page_len;
}

/* Whether a node has no output but the pages that it writes. */
static bool writes_pages(const ln_pnode *n) { return (n->props & LN_PROP_EFFECT) && n->n_out == 1; }
/* The output of rows of a node: of one that replaces a state the second. */
static ln_v rows_of(const ln_pnode *n) { return n->out[n->props & LN_PROP_EFFECT ? 1 : 0]; }

/* Elements of a node's output in a step of `rows` rows from position `from` on. A node that writes keys and
 * values has the pages that it writes to as its output. */
static size_t node_numbers(const ln_eng *e, const ln_pnode *n, int64_t from, int64_t rows) {
    if (writes_pages(n)) return page_numbers(n) * (size_t)pages_of(e, from, rows);
    const ln_pvalue *v = ln_program_value(&e->run->programs[LN_RUN_LOGITS].program, rows_of(n));
    ln_bounds live = {rows, rows, 1};
    return (size_t)ln_dim(v->dims[0], &live) * (size_t)v->dims[v->n_dims - 1];
}

/* Downloads a node's output as f32, node_numbers elements. */
static ln_status read_node(ln_eng *e, const ln_seq *seq, const ln_pnode *n, int64_t rows, float *out,
                           ln_error *err) {
    int64_t from = seq->n, len = e->run->kv.page_len;
    if (!writes_pages(n)) {
        const ln_pvalue *v = ln_program_value(&e->run->programs[LN_RUN_LOGITS].program, rows_of(n));
        ln_bounds live = {rows, rows, 1};
        return ln_run_rows(e->run, rows_of(n), 0, ln_dim(v->dims[0], &live), out, err);
    }
    for (int64_t b = from / len; b <= (from + rows - 1) / len; b++, out += page_numbers(n)) {
        int32_t page = seq->tables[n->p.kv.window_group][b * n->p.kv.pages_per_block + n->p.kv.page_in_block];
        LN_TRY(ln_run_read_page(e->run, n->p.kv.layer, page, out, out + page_keys(n), err));
    }
    return LN_OK;
}

/* The largest difference of elements of a[n] and b[n]; NaN counts as infinity. `rounded`: the elements are
 * sums in any order that were then rounded to bf16, and may have been rounded to neighbouring values;
 * differences count as far as they exceed that spacing, 2^-7 of the larger magnitude. */
static double largest_difference(const float *a, const float *b, size_t n, bool rounded) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        if (ln_f32_bits(a[i]) == ln_f32_bits(b[i])) continue;
        double d = fabs((double)a[i] - (double)b[i]);
        if (rounded) d = LN_MAX(0, d - 0x1p-7 * fmax(fabs((double)a[i]), fabs((double)b[i])));
        most = d <= most ? most : d == d ? d : (double)INFINITY;
    }
    return most;
}

static void on_node(void *user, int i, double seconds) {
    comparing *c = user;
    const ln_program *p = &c->e->run->programs[LN_RUN_LOGITS].program;
    const ln_pnode *n = ln_program_node(p, i);
    (void)seconds;
    if (c->st != LN_OK) return;
    float *kept = c->kept + c->begin[i];
    c->st = read_node(c->e, c->seq, n, c->n_rows, c->first ? kept : c->got, &c->err);
    if (c->st != LN_OK || c->first) return;
    const size_t n_made = node_numbers(c->e, n, c->seq->n, c->n_rows);
    const double tolerance = n->tolerance;
    const bool rounded = tolerance > 0 && ln_program_value(p, n->out[0])->format.kind == LN_FORMAT_BF16;
    c->most[i] = LN_MAX(c->most[i], largest_difference(kept, c->got, n_made, rounded));
    if (tolerance == 0) return;
    for (size_t k = 0; k < n_made; k++) c->bound[i] = LN_MAX(c->bound[i], tolerance * fabs((double)kept[k]));
    const ln_bounds live = {c->n_rows, c->n_rows, 1};
    c->st = ln_run_set_rows(c->e->run, n->out[0], 0, ln_dim(ln_program_value(p, n->out[0])->dims[0], &live),
                            kept, &c->err);
}

static ln_status watched_step(comparing *c, ln_eng *e, ln_seq *seq, bool first, const int32_t *ids,
                              ln_error *err) {
    ln_trace trace = {on_node, c};
    ln_batch_item f = {seq, ids, c->n_rows, LN_LOGITS_ALL};
    c->e = e;
    c->seq = seq;
    c->first = first;
    e->run->trace = &trace;
    ln_status st = ln_eng_step(e, &f, 1, err);
    e->run->trace = NULL;
    if (st == LN_OK && c->st != LN_OK) *err = c->err, st = c->st;
    return st;
}

static ln_status tell_differences(comparing *c, const ln_eng *other, ln_node_fn *fn, void *user,
                                  ln_error *err) {
    int n = other->run->programs[LN_RUN_LOGITS].program.n_nodes, bad = n;
    ln_str text[2] = {0};
    ln_status st = LN_OK;
    ln_node_report r;
    for (int i = n - 1; i >= 0; i--)
        if (c->most[i] > c->bound[i]) bad = i;
    for (int i = 0; st == LN_OK && i < n; i++) {
        LN_GO(describe(other, i, &r, text, err));
        r.difference = c->most[i], r.bound = c->bound[i];
        st = LN_CALLBACK(fn(user, &r, err));
    }
    if (st == LN_ECANCELLED) st = LN_OK;
    if (st != LN_OK || bad == n) goto out;
    LN_GO(describe(other, bad, &r, text, err));
    st = ln_fail(err, LN_EINTERNAL,
                 "%s (%s, kernel %s) is the first node beyond its bound: it differs from the reference by "
                 "%g, allowed is %g",
                 r.makes, r.op, r.kernel, c->most[bad], c->bound[bad]);
out:
    ln_str_free(&text[0]);
    ln_str_free(&text[1]);
    return st;
}

/* Allocates the buffers of a comparison for steps of up to DIFF_ROWS rows. */
static ln_status new_buffers(comparing *c, const ln_eng *e, ln_error *err) {
    const ln_program *p = &e->run->programs[LN_RUN_LOGITS].program;
    size_t most = 0, sum = 0, bytes;
    c->begin = ln_zalloc((size_t)p->n_nodes + 1, sizeof *c->begin);
    c->most = ln_zalloc((size_t)p->n_nodes, sizeof *c->most);
    c->bound = ln_zalloc((size_t)p->n_nodes, sizeof *c->bound);
    if (!c->begin || !c->most || !c->bound) return LN_OOM(err, "what the nodes make");
    for (int i = 0; i < p->n_nodes; i++) {
        size_t n = node_numbers(e, ln_program_node(p, i), e->run->kv.page_len - 1, DIFF_ROWS);
        c->begin[i] = sum;
        sum += n;
        most = LN_MAX(most, n);
    }
    c->kept = ln_mul_size(sum, sizeof(float), &bytes) ? ln_alloc(bytes) : NULL;
    c->got = ln_zalloc(most, sizeof(float));
    return c->kept && c->got ? LN_OK : LN_OOM(err, "what the nodes make");
}

ln_status ln_eng_diff(ln_eng *ref, ln_eng *other, const int32_t *ids, int64_t n, ln_node_fn *fn, void *user,
                      ln_error *err) {
    comparing c = {0};
    ln_seq *seq[2] = {0};
    ln_status st = LN_OK;
    LN_GO(ln_eng_check_ids(ref, ids, (size_t)n, err));
    LN_GO(new_buffers(&c, other, err));
    const ln_seq_options o = {.n_prompt = n, .n_most = n, .no_cache = true};
    for (int i = 0; i < 2; i++) {
        LN_GO(ln_seq_open(i ? other : ref, &o, &seq[i], err));
        if (!seq[i]) LN_GO(ln_fail(err, LN_EMEMORY, "no sequence of the engine is free"));
    }
    for (int64_t at = 0; at < n; at += c.n_rows) {
        c.n_rows = LN_MIN(n - at, LN_MIN((int64_t)DIFF_ROWS, other->run->opt.n_chunk));
        LN_GO(watched_step(&c, ref, seq[0], true, ids + at, err));
        LN_GO(watched_step(&c, other, seq[1], false, ids + at, err));
    }
    LN_GO(tell_differences(&c, other, fn, user, err));
out:
    ln_seq_close(ref, &seq[0]);
    ln_seq_close(other, &seq[1]);
    ln_free(c.begin);
    ln_free(c.most);
    ln_free(c.bound);
    ln_free(c.kept);
    ln_free(c.got);
    return st;
}

/* The sum of the plans of two engines. */
static ln_status plan_both(const ln_package *m, const ln_options *one, const ln_options *two, ln_plan *out,
                           ln_error *err) {
    ln_plan a, b;
    LN_TRY(ln_eng_plan(m, one, &a, err));
    LN_TRY(ln_eng_plan(m, two, &b, err));
    b.other_bytes -= LN_MIN(b.other_bytes, ln_memory_resident()); /* both plans count what is held now */
    a.weights_bytes += b.weights_bytes;
    a.kv_bytes += b.kv_bytes;
    a.state_bytes += b.state_bytes;
    a.activation_bytes += b.activation_bytes;
    a.other_bytes += b.other_bytes;
    a.peak_bytes += b.weights_bytes + b.kv_bytes + b.state_bytes + b.activation_bytes + b.other_bytes;
    a.fits = a.peak_bytes <= a.available_bytes;
    *out = a;
    return LN_OK;
}

/* Two engines may each fit alone but not together: the sum of their plans is checked before the first engine
 * takes memory. What is advised was planned: the least context for n ids, one row a step. */
static ln_status check_both(const ln_package *m, const ln_options *one, const ln_options *two, int64_t n,
                            ln_error *err) {
    ln_plan both, least;
    char advice[160];
    LN_TRY(plan_both(m, one, two, &both, err));
    if (both.fits) return LN_OK;
    ln_options a = *one, b = *two;
    a.n_ctx = b.n_ctx = n;
    a.n_chunk = b.n_chunk = a.n_logits = b.n_logits = 1;
    LN_TRY(plan_both(m, &a, &b, &least, err));
    if (least.fits)
        (void)snprintf(advice, sizeof advice, "ln_options.n_ctx %lld and ln_options.n_chunk 1 would fit",
                       (long long)n);
    else
        (void)snprintf(advice, sizeof advice,
                       "no ln_options.n_ctx or ln_options.n_chunk is small enough, since both devices hold "
                       "the "
                       "weights: take a smaller model or more memory");
    return ln_plan_check(&both, advice, err);
}

ln_status ln_diff_model(const ln_package *m, const ln_options *opt, const int32_t *ids, int64_t n,
                        ln_node_fn *fn, void *user, ln_error *err) {
    ln_eng *ref = NULL, *other = NULL;
    ln_status st = LN_OK;
    ln_options o = *opt;
    int32_t *own = NULL;
    if (n == 0) ids = own = ln_eng_random_ids(m, n = LN_MIN((int64_t)DIFF_ROWS + 1, m->spec.n_ctx));
    if (n > 0 && !ids) LN_GO(LN_OOM(err, "token ids"));
    if (o.n_ctx == 0) o.n_ctx = n;
    o.n_chunk = o.n_logits = o.n_chunk > 0 ? LN_MIN(o.n_chunk, (int)DIFF_ROWS) : (int)DIFF_ROWS;
    o.n_parallel = 1;
    ln_options plain = o;
    plain.device = LN_DEVICE_REF;
    LN_GO(check_both(m, &o, &plain, n, err));
    LN_GO(ln_eng_open(&other, m, &o, err));
    ln_run_options same;
    LN_GO(ln_eng_options(m, &plain, &same, err));
    same.program_of = other->run;
    LN_GO(ln_eng_open_with(&ref, m, &same, err));
    LN_GO(ln_eng_diff(ref, other, ids, n, fn, user, err));
out:
    ln_eng_close(&ref);
    ln_eng_close(&other);
    ln_free(own);
    return st;
}
