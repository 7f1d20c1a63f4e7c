/* Opens an engine: fills in the options, plans the memory, checks the plan against the limit, takes the
 * memory once.
 *
 * The plan has four parts. Weights: the tensors in use, in the device's layout. KV: the pool of pages.
 * Activations: the buffer of temporaries, the threads' scratch, the keys that ln_inspect_keys gathers. Other:
 * what the process holds at the time of planning (code, tokenizer, tables), the engine's own arrays, and an
 * allowance for the process and for each thread. The allowance covers code pages and stacks that are not
 * touched yet, and pages of the file that are mapped while weights are packed: one fault can map a whole
 * large page of the page cache, for codes, scales and biases each. */
#include "engine.h"
#include "scheduler.h"

/* PAGE_LEN: positions in a KV page. ALLOWANCE, THREAD_ALLOWANCE: bytes, see above. ROOM: bytes that an
 * advised context leaves free. FEW_ROWS: the n_chunk that is advised where no context fits with the given
 * one. */
#define PAGE_LEN         64
#define DEFAULT_CHUNK    512
#define ALLOWANCE        ((uint64_t)15 << 19)
#define THREAD_ALLOWANCE ((uint64_t)1 << 18)
#define ROOM             ((uint64_t)1 << 20)
#define FEW_ROWS         32

ln_status ln_eng_options(const ln_package *m, const ln_options *opt, ln_run_options *out, ln_error *err) {
    int64_t most = m->spec.n_ctx;
    memset(out, 0, sizeof *out);
    if (opt->quantize_bits && opt->quantize_bits != m->opt.quantize_bits)
        return ln_fail(err, LN_EUSAGE,
                       "options: quantize_bits is %d, but the model was opened with %d; it is decided by "
                       "ln_model_open",
                       opt->quantize_bits, m->opt.quantize_bits);
    out->numerics = ln_run_numerics(&m->spec, opt->numerics ? opt->numerics : m->opt.numerics);
    out->device = opt->device ? opt->device : LN_DEVICE_CPU;
    out->n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), LN_RUN_MAX_THREADS);
    out->n_seqs = opt->n_parallel > 0 ? opt->n_parallel : 1;
    out->n_ctx = opt->n_ctx > 0 ? opt->n_ctx : LN_MIN(most, LN_MAX(4096, opt->n_expected));
    if (out->n_ctx > most)
        return ln_fail(err, LN_EUSAGE,
                       "ln_options.n_ctx %lld is more than the model was made for: its context is %lld",
                       (long long)out->n_ctx, (long long)most);
    /* KV pages of a context that is only the default are faulted in when they are taken, beyond the tokens
     * that the caller expects: faulting in memory may take longer than all else of opening an engine. */
    out->n_prefault =
        opt->n_ctx > 0 || opt->n_expected <= 0 ? out->n_ctx : LN_MIN(out->n_ctx, opt->n_expected);
    out->n_chunk = (int)LN_MIN(opt->n_chunk > 0 ? opt->n_chunk : DEFAULT_CHUNK, out->n_ctx);
    out->n_chunk = LN_MAX(out->n_chunk, out->n_seqs);
    out->n_logits = opt->n_logits > 0 ? opt->n_logits : out->n_seqs;
    out->n_logits = LN_MIN(out->n_logits, out->n_chunk);
    out->page_len = PAGE_LEN;
    out->keep_full_kv = opt->keep_full_kv;
    out->mlock = opt->mlock;
    out->progress = opt->progress;
    return LN_OK;
}

/* Bytes of the engine's own arrays: step block, sequences and prefix cache, the run's page tables, scheduler.
 */
static uint64_t array_bytes(const ln_run_options *o, const ln_run_sizes *z, const ln_spec *s) {
    uint64_t tables = 0;
    for (int c = 0; c < s->n_window_groups; c++)
        tables += (uint64_t)z->n_blocks * (uint64_t)z->pages_per_block[c] * 4;
    return (uint64_t)o->n_chunk * 16 + (uint64_t)o->n_logits * 4 + tables * (uint64_t)o->n_seqs +
           ln_seqs_bytes(o, z, s) + ln_sched_bytes(o, s->V);
}

/* Computes the plan with these options for a process that holds `here` bytes already; leaves out
 * available_bytes and what depends on it. */
static ln_status sum(const ln_package *m, const ln_options *opt, uint64_t here, ln_plan *out, ln_error *err) {
    ln_run_options o;
    ln_run_sizes z;
    LN_TRY(ln_eng_options(m, opt, &o, err));
    LN_TRY(ln_run_measure(&m->spec, &m->weights, &o, &z, err));
    const bool open = ln_weight_cache_has(m->weight_cache, &m->weights, &o);
    here -= open ? 0 : LN_MIN(here, z.copied_bytes); /* copies of files in memory: counted as weights */
    *out = (ln_plan){.weights_bytes = z.weights_bytes,
                     .kv_bytes = z.kv_bytes,
                     .activation_bytes = z.temp_bytes + z.scratch_bytes,
                     .n_ctx = o.n_ctx,
                     .numerics = o.numerics};
    out->other_bytes = here + array_bytes(&o, &z, &m->spec) + ln_encoding_bytes(&m->weights, o.n_threads) +
                       ALLOWANCE + (uint64_t)o.n_threads * THREAD_ALLOWANCE;
    /* ln_inspect_keys gathers one layer's keys of all positions: f32 [K, T, E] */
    if (o.keep_full_kv)
        out->activation_bytes += (uint64_t)o.n_ctx * (uint64_t)m->spec.K * (uint64_t)m->spec.E * 4;
    /* the weights of an engine that is already open are resident and thus part of `here` */
    out->peak_bytes =
        (open ? 0 : out->weights_bytes) + out->kv_bytes + out->activation_bytes + out->other_bytes;
    return LN_OK;
}

static const char asked_for[] = "ln_options.memory_bytes"; /* ln_plan.limit where the caller set the limit */

ln_status ln_eng_plan(const ln_package *m, const ln_options *opt, ln_plan *out, ln_error *err) {
    const char *limit;
    if (opt->n_threads > LN_RUN_MAX_THREADS)
        ln_log(LN_LOG_WARN, "ln_options.n_threads %d is more than linnet uses: %d", opt->n_threads,
               LN_RUN_MAX_THREADS);
    uint64_t here = ln_memory_resident();
    LN_TRY(sum(m, opt, here, out, err));
    uint64_t available = ln_memory_left(&limit);
    available = available < UINT64_MAX - here ? available + here : UINT64_MAX;
    if (opt->memory_bytes > 0 && opt->memory_bytes <= available)
        available = opt->memory_bytes, limit = asked_for;
    out->available_bytes = available;
    out->limit = limit;
    out->fits = out->peak_bytes <= available;
    return LN_OK;
}

/* Finds by bisection the largest context of up to `most` positions that fits; 0 when none does. The resident
 * memory of a process differs by some hundred kB from one start to the next, so that a context that is
 * advised leaves ROOM bytes free. */
static ln_status largest(const ln_package *m, const ln_options *opt, const ln_plan *plan, int64_t most,
                         int64_t *out, ln_error *err) {
    ln_options o = *opt;
    ln_plan p;
    int64_t fits = 0, beyond = most + 1;
    uint64_t here = ln_memory_resident();
    for (o.n_ctx = most; fits + 1 < beyond; o.n_ctx = fits + (beyond - fits) / 2) {
        LN_TRY(sum(m, &o, here, &p, err));
        if (p.peak_bytes + ROOM <= plan->available_bytes) fits = o.n_ctx;
        else beyond = o.n_ctx;
    }
    *out = fits;
    return LN_OK;
}

ln_status ln_eng_largest(const ln_package *m, const ln_options *opt, ln_plan *plan, ln_error *err) {
    LN_TRY(largest(m, opt, plan, m->spec.n_ctx, &plan->largest_ctx, err));
    if (plan->fits) plan->largest_ctx = LN_MAX(plan->largest_ctx, plan->n_ctx);
    return LN_OK;
}

/* ---- messages about plans that do not fit ---- */

/* A size for messages: in bytes below 10,000, else as ln_bytes_text writes it. */
static const char *size_text(char buf[32], uint64_t bytes) {
    if (bytes >= 10000) return ln_bytes_text(buf, bytes);
    (void)snprintf(buf, 32, "%llu bytes", (unsigned long long)bytes);
    return buf;
}

ln_status ln_plan_check(const ln_plan *plan, const char *advice, ln_error *err) {
    char need[32], weights[32], kv[32], act[32], other[32], left[32], lack[32];
    if (plan->peak_bytes <= plan->available_bytes) return LN_OK;
    bool asked = strcmp(plan->limit, asked_for) == 0;
    return ln_fail(err, LN_EMEMORY,
                   "%s are needed (weights %s, KV %s, activations %s, other %s), %s are %s by %s: %s short; "
                   "%s",
                   size_text(need, plan->peak_bytes), size_text(weights, plan->weights_bytes),
                   size_text(kv, plan->kv_bytes), size_text(act, plan->activation_bytes),
                   size_text(other, plan->other_bytes), size_text(left, plan->available_bytes),
                   asked ? "allowed" : "left", plan->limit,
                   size_text(lack, plan->peak_bytes - plan->available_bytes), advice);
}

/* Writes advice to out[cap]: the context that would fit, with fewer rows a step where a smaller context alone
 * is not enough. If it does not hold the positions that are expected, the advice says so. */
static ln_status advise(const ln_package *m, const ln_options *opt, ln_plan *plan, char *out, size_t cap,
                        ln_error *err) {
    char chunk[40] = "";
    LN_TRY(largest(m, opt, plan, plan->n_ctx, &plan->largest_ctx, err));
    int64_t ctx = plan->largest_ctx;
    if (ctx >= PAGE_LEN && ctx - ctx % PAGE_LEN >= opt->n_expected)
        ctx -= ctx % PAGE_LEN; /* a partly used page takes the memory of a full one */
    ln_options few = *opt;
    few.n_chunk = FEW_ROWS;
    if (ctx == 0 && (opt->n_chunk == 0 || opt->n_chunk > FEW_ROWS)) {
        LN_TRY(largest(m, &few, plan, plan->n_ctx, &ctx, err));
        (void)snprintf(chunk, sizeof chunk, "ln_options.n_chunk %d and ", FEW_ROWS);
    }
    if (ctx == 0) (void)snprintf(out, cap, "no ln_options.n_ctx is small enough; see ln_plan_memory");
    else if (ctx < opt->n_expected)
        (void)snprintf(out, cap, "%sln_options.n_ctx %lld would fit, but %lld positions are asked for", chunk,
                       (long long)ctx, (long long)opt->n_expected);
    else (void)snprintf(out, cap, "%sln_options.n_ctx %lld would fit", chunk, (long long)ctx);
    return LN_OK;
}

static ln_status new_arrays(ln_eng *e, ln_error *err) {
    const ln_run_options *o = &e->run->opt;
    e->ids = ln_zalloc((size_t)o->n_chunk, sizeof *e->ids);
    e->pos = ln_zalloc((size_t)o->n_chunk, sizeof *e->pos);
    e->seq_of = ln_zalloc((size_t)o->n_chunk, sizeof *e->seq_of);
    e->row0 = ln_zalloc((size_t)o->n_seqs + 1, sizeof *e->row0);
    e->out_rows = ln_zalloc((size_t)o->n_logits, sizeof *e->out_rows);
    e->n_prompt = ln_zalloc((size_t)o->n_seqs, sizeof *e->n_prompt);
    e->slots = ln_zalloc((size_t)o->n_seqs, sizeof *e->slots);
    if (!e->ids || !e->pos || !e->seq_of || !e->row0 || !e->out_rows || !e->n_prompt || !e->slots)
        return LN_OOM(err, "the step block");
    return ln_sched_open(&e->sched, e, err);
}

ln_status ln_eng_open_with(ln_eng **out, const ln_package *m, const ln_run_options *opt, ln_error *err) {
    ln_status st = LN_OK;
    *out = NULL;
    ln_eng *e = ln_zalloc(1, sizeof *e);
    if (!e) return LN_OOM(err, "an engine");
    e->model = m;
    double start = ln_now();
    st = ln_run_open(&e->run, &m->spec, &m->weights, m->weight_cache, opt, err);
    if (st != LN_OK && ln_tensors_check(&m->tensors, false, err) != LN_OK)
        st = LN_ECHANGED; /* a file that changed is the cause: mlock of lost pages fails, for example */
    if (st != LN_OK) goto out;
    LN_GO(ln_seqs_open(e, err));
    LN_GO(new_arrays(e, err));
    e->load_seconds = m->load_seconds + ln_now() - start;
    *out = e;
    return LN_OK;
out:
    ln_eng_close(&e);
    return st;
}

ln_status ln_eng_open(ln_eng **out, const ln_package *m, const ln_options *opt, ln_error *err) {
    ln_plan plan;
    ln_run_options o;
    *out = NULL;
    LN_TRY(ln_eng_plan(m, opt, &plan, err));
    if (!plan.fits) {
        char advice[160];
        LN_TRY(advise(m, opt, &plan, advice, sizeof advice, err));
        return ln_plan_check(&plan, advice, err);
    }
    LN_TRY(ln_eng_options(m, opt, &o, err));
    return ln_eng_open_with(out, m, &o, err);
}

void ln_eng_close(ln_eng **out) {
    ln_eng *e = *out;
    if (!e) return;
    ln_sched_close(&e->sched);
    ln_seqs_close(e);
    ln_free(e->ids);
    ln_free(e->pos);
    ln_free(e->seq_of);
    ln_free(e->row0);
    ln_free(e->n_prompt);
    ln_free(e->slots);
    ln_free(e->out_rows);
    ln_run_close(&e->run);
    ln_free(e);
    *out = NULL;
}
