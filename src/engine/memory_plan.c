/* Plans the memory of an engine: fills in the options, sizes the KV pool, sums the parts, compares the sum
 * with the limit, and finds what would fit where it does not.
 *
 * The plan has five parts. Weights: the tensors in use, in the device's layout. KV: the pool of pages.
 * Activations: the buffer of temporaries, the threads' scratch, the keys that ln_inspect_keys gathers. Other:
 * what the process holds at the time of planning (code, tokenizer, tables), the engine's own arrays, the
 * pool of adapters, the records of requests, and an allowance for the process and for each thread
 * (base/memory_use.h). Texts: bodies, renderings and ids of prompts that are read (base/text_memory.h).
 *
 * A device with memory of its own holds the first three parts and the pool of adapters. Its free memory is a
 * second limit, which they must keep; the process holds the rest of the fourth part alone.
 *
 * The pool holds at least one context. Beyond that it holds what the sequences could use at most (a context
 * each), reduced to ln_options.kv_bytes and to what the limit leaves when the other parts are counted; of
 * memory that is merely available, where the caller set no limit, an engine takes half. Of a GPU that no
 * other process uses, it fills nine tenths. */
#include "memory_plan.h"
#include "../base/memory_use.h"
#include "../base/text_memory.h"
#include "memory_control.h"
#include "scheduler.h"

/* PAGE_LEN: positions in a KV page. ROOM: bytes that an advised context and a pool of more than one context
 * leave free. FEW_ROWS: the n_chunk that is advised if no context fits with the given one. */
#define PAGE_LEN      64
#define DEFAULT_CHUNK 512
#define ROOM          ((uint64_t)1 << 20)
#define FEW_ROWS      32
/* More than what a GPU without other processes has in use: its driver's share and this process's context. */
#define CONTEXT_MOST ((uint64_t)1 << 30)
/* The least that is planned for texts: of any engine, of a position of the context, of a waiting request. */
#define TEXT_LEAST    ((uint64_t)1 << 20)
#define TEXT_POSITION ((uint64_t)32)
#define TEXT_WAITING  ((uint64_t)8 << 10)

enum { ADAPTER_RANK = 16, RANK_MOST = 4096 }; /* ln_options.adapter_rank: default, the largest */
enum { LOOKUP_ROWS = 64 };

/* Slots and rank of the pool of adapters. */
static ln_status set_adapters(const ln_options *opt, ln_run_options *out, ln_error *err) {
    int64_t rank = 0;
    bool experts = false;
    if (opt->n_adapter_parts > 0)
        LN_TRY(ln_adapter_parts_rank(opt->adapter, opt->n_adapter_parts, &rank, &experts, err));
    out->adapter_experts = experts || (opt->adapter_experts && opt->n_adapters > 0);
    out->adapter_parts = opt->adapter;
    out->n_adapter_parts = opt->n_adapter_parts;
    out->n_adapters = opt->n_adapters + (opt->n_adapter_parts > 0);
    if (opt->n_adapters > 0) rank = LN_MAX(rank, opt->adapter_rank > 0 ? opt->adapter_rank : ADAPTER_RANK);
    if (rank > RANK_MOST)
        return ln_fail(err, LN_EUSAGE, "ln_options.adapter: rank %lld of the sum, at most %d",
                       (long long)rank, (int)RANK_MOST);
    out->adapter_rank = (int)rank;
    return LN_OK;
}

/* Rows of logits of a step: one for each sequence, and for proposed tokens up to LOOKUP_ROWS in all, as many
 * as a GPU's captured steps have. */
static int logits_with_lookup(int n_seqs, int n_lookup) {
    const int64_t rows = (int64_t)n_seqs * (1 + n_lookup);
    return (int)LN_MAX((int64_t)n_seqs, LN_MIN(rows, (int64_t)LOOKUP_ROWS));
}

/* Rejects a type of keys and values that the numerics do not compute with. */
static ln_status check_kv_type(ln_kv_type type, ln_numerics numerics, ln_error *err) {
    if (type == LN_KV_F32 && numerics == LN_FAST)
        return ln_fail(err, LN_EUSAGE,
                       "ln_options.kv_type = LN_KV_F32 goes with ln_options.numerics = LN_EXACT; fast "
                       "numerics keep keys and values in bf16: leave it out, or use ln_options.kv_type = "
                       "LN_KV_Q8");
    if (type == LN_KV_BF16 && numerics == LN_EXACT)
        return ln_fail(err, LN_EUSAGE,
                       "ln_options.kv_type = LN_KV_BF16 goes with ln_options.numerics = LN_FAST; exact "
                       "numerics keep keys and values in f32: leave it out, or use ln_options.kv_type = "
                       "LN_KV_Q8");
    return LN_OK;
}

ln_status ln_eng_options(const ln_package *m, const ln_options *opt, ln_run_options *out, ln_error *err) {
    int64_t most = m->spec.n_ctx;
    memset(out, 0, sizeof *out);
    if (opt->quantize_bits && opt->quantize_bits != m->opt.quantize_bits)
        return ln_fail(err, LN_EUSAGE,
                       "options: quantize_bits is %d, but the model was opened with %d; it is decided by "
                       "ln_model_open",
                       opt->quantize_bits, m->opt.quantize_bits);
    out->numerics = ln_run_numerics(&m->spec, opt->numerics ? opt->numerics : m->opt.numerics);
    LN_TRY(check_kv_type(opt->kv_type, out->numerics, err));
    LN_TRY(set_adapters(opt, out, err));
    const uint32_t needs =
        (out->n_adapters > 0 ? LN_CAN_ADAPTERS : 0u) | (out->adapter_experts ? LN_CAN_EXPERT_ADAPTERS : 0u) |
        (ln_weights_are_coded(&m->weights) ? LN_CAN_CODED : 0u) |
        (ln_weights_have_experts(&m->weights) ? LN_CAN_EXPERTS : 0u) |
        (m->spec.n_recur ? LN_CAN_RECURRENT : 0u) | (ln_spec_both_ways(&m->spec) ? LN_CAN_BOTH_WAYS : 0u) |
        (opt->kv_type == LN_KV_Q8 ? LN_CAN_KV_Q8 : 0u);
    out->device = opt->device ? opt->device : ln_device_auto(needs);
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
    const int64_t rows = ln_spec_both_ways(&m->spec) ? out->n_ctx : DEFAULT_CHUNK; /* or whole texts */
    out->n_chunk = (int)LN_MIN(opt->n_chunk > 0 ? opt->n_chunk : rows, out->n_ctx);
    out->n_chunk = LN_MAX(out->n_chunk, out->n_seqs);
    out->n_lookup = opt->n_lookup;
    out->n_logits = opt->n_logits > 0 ? opt->n_logits : logits_with_lookup(out->n_seqs, out->n_lookup);
    out->n_logits = LN_MIN(out->n_logits, out->n_chunk);
    out->page_len = PAGE_LEN;
    out->keep_full_kv = opt->keep_full_kv;
    out->kv_q8 = opt->kv_type == LN_KV_Q8;
    out->mlock = opt->mlock;
    out->embeds = opt->embeddings;
    out->progress = opt->progress;
    out->n_ranks = ln_ranks_planned();
    if (m->led) {
        out->n_ranks = m->led->transport->size;
        out->transport = m->led->transport;
        out->led = m->led, out->led_model = m->led_id;
    }
    return LN_OK;
}

/* ---- the sum ---- */

/* ln_plan.limit where the caller set the limit */
static const char by_options[] = "ln_options.memory_bytes", by_process[] = "ln_memory_set_limit";

/* What the process holds before the engine is opened, and what it may hold afterwards, in bytes. */
typedef struct budget {
    uint64_t here, available;
    const char *limit; /* ln_plan.limit */
    bool asked;        /* the caller set the limit; else it is the machine's */
} budget;

static budget budget_of(const ln_options *opt) {
    budget b = {.here = ln_memory_resident()};
    const uint64_t most = ln_limit_get();
    uint64_t left = ln_memory_left(&b.limit);
    b.available = left < UINT64_MAX - b.here ? left + b.here : UINT64_MAX;
    if (opt->memory_bytes > 0 && opt->memory_bytes <= b.available)
        b.available = opt->memory_bytes, b.limit = by_options, b.asked = true;
    if (most > 0 && most < b.available) b.available = most, b.limit = by_process, b.asked = true;
    b.here += ln_memory_to_come(); /* what other engines have planned counts like what they have taken */
    return b;
}

/* An engine that is planned. */
typedef struct layout {
    ln_run_options run;
    ln_run_sizes sizes;
    ln_plan plan;
    uint64_t text_bytes;
    bool no_context; /* ln_options.kv_bytes is less than one context */
} layout;

uint64_t ln_requests_bytes(const ln_run_options *o, const ln_run_sizes *z, int64_t n_queue) {
    const ln_sampling how = {.n_max = o->n_ctx};
    const ln_req_options running = {.how = &how, .n_lookup = o->n_lookup}, waiting = {.n_ids = o->n_ctx};
    const uint64_t one = ln_req_bytes(&running, o->n_ctx) - sizeof(ln_req);
    const double contexts = (double)z->n_pages / (double)z->seq_pages;
    return (uint64_t)o->n_seqs * sizeof(ln_req) + (uint64_t)((double)one * contexts) +
           (uint64_t)n_queue * ln_req_bytes(&waiting, o->n_ctx);
}

uint64_t ln_memory_room(uint64_t memory_bytes, const char **limit) {
    const ln_options o = {.memory_bytes = memory_bytes};
    const budget b = budget_of(&o);
    *limit = b.limit;
    return b.available - LN_MIN(b.available, b.here);
}

/* Bytes of the engine's own arrays: step block, sequences and prefix cache, the run's page tables, scheduler,
 * and of the records of the requests that run. */
static uint64_t array_bytes(const ln_run_options *o, const ln_run_sizes *z, const ln_spec *s) {
    uint64_t tables = 0;
    for (int c = 0; c < z->n_groups; c++)
        tables += (uint64_t)z->n_blocks * (uint64_t)z->groups[c].pages_per_block * 4;
    return (uint64_t)z->step_bytes + tables * (uint64_t)o->n_seqs + ln_seqs_bytes(o, z) +
           ln_sched_bytes(o, s->V) + ln_requests_bytes(o, z, 0);
}

/* The most elements of a position's keys in any layer. */
static int64_t widest_keys(const ln_run_sizes *z) {
    int64_t most = 0;
    for (int c = 0; c < z->n_groups; c++)
        most = LN_MAX(most, (int64_t)z->groups[c].n_kv_heads * z->groups[c].head_dim);
    return most;
}

/* Snapshots of recurrent state that the pool holds while all its contexts are in use. */
static int64_t snapshots_of(const ln_run_sizes *z) {
    if (!z->seq_recur_pages) return 0;
    const int64_t each = z->seq_recur_pages / LN_CHUNK_BLOCKS, contexts = z->n_pages / z->seq_pages;
    return LN_MAX(0, z->n_recur_pages - contexts * z->seq_recur_pages) / LN_MAX(each, 1);
}

/* Sums the parts of a plan whose weights are `open` (resident already, and part of b->here) or not. */
static void add_up(const ln_package *m, const ln_options *opt, const budget *b, bool open, layout *l) {
    const ln_run_options *o = &l->run;
    const ln_run_sizes *z = &l->sizes;
    /* copies of files in memory are resident and counted as weights */
    const uint64_t here = b->here - (open ? 0 : LN_MIN(b->here, z->copied_bytes));
    l->plan = (ln_plan){.size = sizeof l->plan,
                        .weights_bytes = z->weights_bytes,
                        .kv_bytes = z->kv_bytes,
                        .state_bytes = z->recur_bytes,
                        .n_snapshots = snapshots_of(z),
                        .activation_bytes = z->temp_bytes + z->scratch_bytes,
                        .n_ctx = o->n_ctx,
                        .numerics = o->numerics,
                        .available_bytes = b->available,
                        .limit = b->limit,
                        .n_parallel = o->n_seqs,
                        .n_contexts = z->n_pages / z->seq_pages};
    const uint64_t queue = ln_requests_bytes(o, z, opt->n_queue) - ln_requests_bytes(o, z, 0);
    l->plan.adapter_bytes = z->adapter_bytes;
    const uint64_t adapters_here = z->device_total ? 0 : z->adapter_bytes;
    l->plan.other_bytes = here + adapters_here + array_bytes(o, z, &m->spec) + queue +
                          ln_source_work_bytes(m->weights.items, m->weights.n, o->n_threads) +
                          LN_MEMORY_ALLOWANCE + (uint64_t)o->n_threads * LN_MEMORY_THREAD_ALLOWANCE;
    /* ln_inspect_keys gathers one layer's keys of all positions: f32 [K, T, E] */
    if (o->keep_full_kv) l->plan.activation_bytes += (uint64_t)o->n_ctx * (uint64_t)widest_keys(z) * 4;
    const uint64_t on_device = (open ? 0 : l->plan.weights_bytes) + l->plan.kv_bytes + l->plan.state_bytes +
                               z->temp_bytes + z->scratch_bytes;
    const uint64_t on_gpu = on_device + z->adapter_bytes;
    l->plan.text_bytes = l->text_bytes;
    l->plan.peak_bytes = l->plan.activation_bytes - z->temp_bytes - z->scratch_bytes + l->plan.other_bytes +
                         l->plan.text_bytes;
    if (z->device_total) l->plan.device_bytes = on_gpu, l->plan.device_available_bytes = z->device_free;
    else l->plan.peak_bytes += on_device;
    l->plan.fits = !l->no_context && l->plan.peak_bytes <= b->available &&
                   l->plan.device_bytes <= l->plan.device_available_bytes;
}

/* Bytes that are left for KV pages beyond those of the plan: of the memory that holds them, less ROOM. */
static uint64_t bytes_left(const budget *b, const layout *l) {
    const uint64_t need = (l->sizes.device_total ? l->plan.device_bytes : l->plan.peak_bytes) + ROOM,
                   have = l->sizes.device_total ? l->plan.device_available_bytes : b->available;
    return have > need ? have - need : 0;
}

uint64_t ln_pool_share(uint64_t left, uint64_t need, uint64_t total, uint64_t available) {
    const uint64_t most = total / 10 * 9;
    if (total == 0 || total - LN_MIN(total, available) > CONTEXT_MOST) return left / 2;
    return LN_MIN(left, most > need ? most - need : 0);
}
/* Whether the plan fits with ROOM bytes to spare in each memory. */
static bool fits_with_room(const budget *b, const layout *l) {
    return l->plan.fits && l->plan.peak_bytes + ROOM <= b->available &&
           (!l->sizes.device_total || l->plan.device_bytes + ROOM <= l->plan.device_available_bytes);
}

/* Sizes the pool of recurrent state by that of keys and values: as many bytes, and at least what its contexts
 * hold with a snapshot each. */
static void set_recurrent(layout *l) {
    ln_run_sizes *z = &l->sizes;
    if (!z->seq_recur_pages) return;
    const int64_t contexts = LN_MAX(1, z->n_pages / z->seq_pages),
                  least = contexts * (z->seq_recur_pages + z->seq_recur_pages / LN_CHUNK_BLOCKS),
                  same = (int64_t)(z->kv_bytes / (uint64_t)z->recur_page_bytes);
    ln_run_size_recurrent(z, l->run.n_seqs, LN_MAX(least, same));
    l->run.n_recur_pages = z->n_recur_pages;
}

static void set_pages(layout *l, int64_t pages) {
    l->sizes.n_pages = l->run.n_pages = pages;
    l->sizes.kv_bytes = (uint64_t)(pages * l->sizes.page_bytes);
    set_recurrent(l);
}

/* Sizes the share of texts: a quarter of what is left beyond one context, at most what is asked for. */
static void size_texts(const ln_options *opt, const budget *b, layout *l) {
    const uint64_t peak = l->plan.peak_bytes + ROOM, left = b->available - LN_MIN(b->available, peak);
    l->text_bytes = LN_MAX(l->text_bytes, LN_MIN(opt->text_bytes, left / 4));
}

/* Pages of ln_options.pool_positions, shared equally: sequences of other lengths hold no more together,
 * because a window bounds the pages of the longest. */
static int64_t pages_of_pool(const ln_options *opt, const layout *l) {
    const ln_run_sizes *z = &l->sizes;
    const int64_t n = l->run.n_seqs, each = LN_MIN((opt->pool_positions + n - 1) / n, l->run.n_ctx),
                  blocks = (each + PAGE_LEN - 1) / PAGE_LEN;
    int64_t pages = 0;
    for (int c = 0; c < z->n_groups; c++)
        pages += LN_MIN(blocks, z->blocks[c]) * z->groups[c].pages_per_block;
    return LN_MAX(z->seq_pages, pages * n);
}

/* Bytes of recurrent state that come with a page of keys and values, at most. */
static uint64_t recurrent_of_page(const ln_run_sizes *z) {
    const int64_t context = z->seq_recur_pages * z->recur_page_bytes;
    if (!context) return 0;
    return (uint64_t)LN_MAX(z->page_bytes, (context + context / LN_CHUNK_BLOCKS) / z->seq_pages + 1);
}

/* Sizes the share of texts and the pool, and adds up the parts. */
static void size_pool(const ln_package *m, const ln_options *opt, const budget *b, layout *l) {
    const bool open = ln_weight_cache_has(m->weight_cache, &m->weights, &l->run);
    const int64_t one = l->sizes.seq_pages, bytes = l->sizes.page_bytes;
    int64_t pages = l->sizes.n_pages; /* a context for each sequence */
    if (opt->kv_bytes > 0) pages = (int64_t)LN_MIN((uint64_t)pages, opt->kv_bytes / (uint64_t)bytes);
    if (opt->pool_positions > 0) pages = LN_MIN(pages, pages_of_pool(opt, l));
    l->no_context = pages < one;
    uint64_t arrays = array_bytes(&l->run, &l->sizes, &m->spec);
    const int64_t all = l->sizes.n_pages;
    l->text_bytes =
        TEXT_LEAST + (uint64_t)l->run.n_ctx * TEXT_POSITION + (uint64_t)opt->n_queue * TEXT_WAITING;
    set_pages(l, one);
    add_up(m, opt, b, open, l);
    size_texts(opt, b, l);
    add_up(m, opt, b, open, l);
    if (pages > one) { /* the engine's arrays grow with the number of pages too */
        arrays -= array_bytes(&l->run, &l->sizes, &m->spec);
        const uint64_t each =
            (uint64_t)bytes + recurrent_of_page(&l->sizes) + arrays / (uint64_t)(all - one) + 1;
        uint64_t left = bytes_left(b, l);
        if (!b->asked && opt->kv_bytes == 0)
            left = ln_pool_share(left, l->plan.device_bytes, l->sizes.device_total,
                                 l->plan.device_available_bytes);
        set_pages(l, (int64_t)LN_MIN((uint64_t)pages, (uint64_t)one + left / each));
        add_up(m, opt, b, open, l);
    }
}

/* Plans an engine of these options within a budget. LN_OK although the plan may not fit. */
static ln_status lay_out(const ln_package *m, const ln_options *opt, const budget *b, layout *l,
                         ln_error *err) {
    *l = (layout){0};
    LN_TRY(ln_eng_options(m, opt, &l->run, err));
    LN_TRY(ln_run_measure(&m->spec, &m->weights, &l->run, &l->sizes, err));
    size_pool(m, opt, b, l);
    return LN_OK;
}

/* Finds by bisection the largest context of up to `most` positions that fits; 0 when none does. The resident
 * memory of a process differs by some hundred kB from one start to the next, so that a context that is
 * advised leaves ROOM bytes free. */
static ln_status largest(const ln_package *m, const ln_options *opt, const budget *b, int64_t most,
                         int64_t *out, ln_error *err) {
    ln_options o = *opt;
    layout l;
    int64_t fits = 0, beyond = most + 1;
    for (o.n_ctx = most; fits + 1 < beyond; o.n_ctx = fits + (beyond - fits) / 2) {
        LN_TRY(lay_out(m, &o, b, &l, err));
        if (fits_with_room(b, &l)) fits = o.n_ctx;
        else beyond = o.n_ctx;
    }
    *out = fits;
    return LN_OK;
}

/* ---- messages about plans that do not fit ---- */

/* A size for messages: in bytes below 10,000, else as ln_bytes_text writes it. */
static const char *size_text(char buf[32], uint64_t bytes) {
    if (bytes >= 10000) return ln_bytes_text(buf, bytes);
    (void)snprintf(buf, 32, "%llu bytes", (unsigned long long)bytes);
    return buf;
}

/* The size of keys and values and, if the model has it, of recurrent state. */
static const char *kv_text(char out[96], char state[32], const ln_plan *plan) {
    char kv[32];
    if (!plan->state_bytes) return size_text(out, plan->kv_bytes);
    (void)snprintf(out, 96, "%s, recurrent state %s", size_text(kv, plan->kv_bytes),
                   size_text(state, plan->state_bytes));
    return out;
}

ln_status ln_plan_check(const ln_plan *plan, const char *advice, ln_error *err) {
    char need[32], weights[32], kv[96], state[32], act[32], text[32], other[32], left[32], lack[32], size[32],
        adapters[48] = "";
    if (plan->adapter_bytes > 0)
        (void)snprintf(adapters, sizeof adapters, ", adapters %s", size_text(size, plan->adapter_bytes));
    if (plan->device_bytes > plan->device_available_bytes)
        return ln_fail(err, LN_EMEMORY,
                       "%s of the GPU's memory are needed (weights %s, KV %s, activations %s%s), %s are "
                       "free: "
                       "%s "
                       "short; %s, or ln_options.device = LN_DEVICE_CPU uses the CPU",
                       size_text(need, plan->device_bytes), size_text(weights, plan->weights_bytes),
                       kv_text(kv, state, plan), size_text(act, plan->activation_bytes), adapters,
                       size_text(left, plan->device_available_bytes),
                       size_text(lack, plan->device_bytes - plan->device_available_bytes), advice);
    if (plan->peak_bytes <= plan->available_bytes) return LN_OK;
    const bool asked = strcmp(plan->limit, by_options) == 0 || strcmp(plan->limit, by_process) == 0;
    return ln_fail(err, LN_EMEMORY,
                   "%s are needed (weights %s, KV %s, activations %s, texts %s, other %s), %s are %s by %s: "
                   "%s "
                   "short; "
                   "%s",
                   size_text(need, plan->peak_bytes), size_text(weights, plan->weights_bytes),
                   kv_text(kv, state, plan), size_text(act, plan->activation_bytes),
                   size_text(text, plan->text_bytes), size_text(other, plan->other_bytes),
                   size_text(left, plan->available_bytes), asked ? "allowed" : "left", plan->limit,
                   size_text(lack, plan->peak_bytes - plan->available_bytes), advice);
}

/* Writes advice to out[cap]: the context that would fit, with fewer rows a step or fewer sequences where a
 * smaller context alone is not enough. If it does not hold the positions that are expected, the advice says
 * so. */
static ln_status advise(const ln_package *m, const ln_options *opt, const budget *b, const layout *l,
                        char *out, size_t cap, ln_error *err) {
    char chunk[40] = "", seqs[40] = "";
    const int64_t most = l->plan.n_ctx;
    int64_t ctx;
    ln_options less = *opt;
    LN_TRY(largest(m, &less, b, most, &ctx, err));
    if (ctx == 0 && l->run.n_chunk > FEW_ROWS) {
        less.n_chunk = FEW_ROWS;
        LN_TRY(largest(m, &less, b, most, &ctx, err));
        (void)snprintf(chunk, sizeof chunk, "ln_options.n_chunk %d and ", FEW_ROWS);
    }
    for (int n = l->plan.n_parallel / 2; ctx == 0 && n > 0; n /= 2) {
        less.n_parallel = n;
        LN_TRY(largest(m, &less, b, most, &ctx, err));
        (void)snprintf(seqs, sizeof seqs, "ln_options.n_parallel %d and ", n);
    }
    if (ctx >= PAGE_LEN && ctx - ctx % PAGE_LEN >= opt->n_expected)
        ctx -= ctx % PAGE_LEN; /* a partly used page takes the memory of a full one */
    if (ctx == 0) (void)snprintf(out, cap, "no ln_options.n_ctx is small enough; see ln_plan_memory");
    else if (ctx < opt->n_expected)
        (void)snprintf(out, cap, "%s%sln_options.n_ctx %lld would fit, but %lld positions are asked for",
                       seqs, chunk, (long long)ctx, (long long)opt->n_expected);
    else (void)snprintf(out, cap, "%s%sln_options.n_ctx %lld would fit", seqs, chunk, (long long)ctx);
    return LN_OK;
}

/* LN_EMEMORY: ln_options.kv_bytes is less than one context. */
static ln_status check_context(const ln_package *m, const ln_options *opt, const budget *b, const layout *l,
                               ln_error *err) {
    char advice[200];
    if (!l->no_context) return LN_OK;
    LN_TRY(advise(m, opt, b, l, advice, sizeof advice, err));
    return ln_fail(err, LN_EMEMORY,
                   "ln_options.kv_bytes %llu is less than the KV pages of one context of %lld positions, "
                   "%lld bytes; %s",
                   (unsigned long long)opt->kv_bytes, (long long)l->plan.n_ctx,
                   (long long)(l->sizes.seq_pages * l->sizes.page_bytes), advice);
}

ln_status ln_eng_plan(const ln_package *m, const ln_options *opt, ln_plan *out, ln_error *err) {
    layout l;
    if (opt->n_threads > LN_RUN_MAX_THREADS)
        ln_log(LN_LOG_WARN, "ln_options.n_threads %d is more than linnet uses: %d", opt->n_threads,
               LN_RUN_MAX_THREADS);
    const budget b = budget_of(opt);
    LN_TRY(lay_out(m, opt, &b, &l, err));
    LN_TRY(check_context(m, opt, &b, &l, err));
    *out = l.plan;
    return LN_OK;
}

ln_status ln_eng_largest(const ln_package *m, const ln_options *opt, ln_plan *plan, ln_error *err) {
    budget b = budget_of(opt);
    b.available = plan->available_bytes;
    LN_TRY(largest(m, opt, &b, m->spec.n_ctx, &plan->largest_ctx, err));
    if (plan->fits) plan->largest_ctx = LN_MAX(plan->largest_ctx, plan->n_ctx);
    return LN_OK;
}

ln_status ln_eng_fit(const ln_package *m, const ln_options *opt, ln_run_options *out, uint64_t *bytes,
                     uint64_t *text_bytes, ln_error *err) {
    layout l;
    char advice[200];
    const budget b = budget_of(opt);
    LN_TRY(lay_out(m, opt, &b, &l, err));
    LN_TRY(check_context(m, opt, &b, &l, err));
    *out = l.run;
    *text_bytes = l.plan.text_bytes;
    *bytes = l.plan.peak_bytes - LN_MIN(l.plan.peak_bytes, b.here);
    if (l.plan.fits) return LN_OK;
    LN_TRY(advise(m, opt, &b, &l, advice, sizeof advice, err));
    return ln_plan_check(&l.plan, advice, err);
}
