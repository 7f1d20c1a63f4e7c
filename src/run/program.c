/* Opens a run (device, KV layout, program, bindings, memory), runs its steps, and downloads
 * values.
 *
 * A run has a list of programs: ln_run_open prepares that of the whole model and, with ln_run_options.embeds,
 * another one that ends where the first multiplies with the head; else ln_run_add_hidden prepares it later.
 * All read and write the same states and page tables, which programs name by their slots. */
#include "run.h"
#include "compile.h"

#include "../base/memory_use.h"
#include "../base/xxh64.h"

ln_numerics ln_run_numerics(const ln_spec *s, ln_numerics wanted) {
    return wanted != LN_EXACT && (s->dtype != LN_F32 || s->quant.code.bits) ? LN_FAST : LN_EXACT;
}

ln_status ln_run_device(const ln_run_options *opt, const ln_device_ops **out, ln_error *err) {
    static const char *const names[] = {
        [LN_DEVICE_REF] = "ref", [LN_DEVICE_CPU] = "cpu", [LN_DEVICE_CUDA] = "cuda", [LN_DEVICE_MLX] = "mlx"};
    const ln_device device =
        opt->device ? opt->device : ln_device_auto(opt->n_adapters > 0 ? LN_CAN_ADAPTERS : 0);
    *out = opt->ops;
    return opt->ops ? LN_OK : ln_device_find(names[device], out, err);
}

static bool is_cuda(const ln_device_ops *ops) { return strcmp(ops->name, "cuda") == 0; }

ln_dev_options ln_run_dev_options(const ln_run_options *opt, const ln_device_ops *ops, bool mlock) {
    ln_dev_options o = {.size = sizeof o, .n_threads = opt->n_threads, .mlock = mlock, .pool = opt->pool};
    if (is_cuda(ops)) o.ordinal = ln_ranks_gpu(opt->rank, &o.by_rank);
    return o;
}

ln_status ln_run_open_device(const ln_run_options *opt, const ln_device_ops **ops, ln_dev **dev,
                             ln_dev_info *info, ln_error *err) {
    LN_TRY(ln_run_device(opt, ops, err));
    const ln_dev_options o = ln_run_dev_options(opt, *ops, opt->mlock);
    LN_TRY(ln_device_acquire(*ops, &o, dev, err));
    info->size = sizeof *info;
    (*ops)->describe(*dev, info);
    return LN_OK;
}

int ln_run_count_gpus(ln_error *err) {
    const ln_run_options cuda = {.device = LN_DEVICE_CUDA, .n_threads = 1};
    const ln_device_ops *ops;
    ln_dev *dev = NULL;
    ln_dev_info info;
    if (ln_run_open_device(&cuda, &ops, &dev, &info, err) != LN_OK) return 0;
    ln_device_release(&dev);
    return info.n_devices;
}

/* The most entries of page tables that one step changes: its rows touch n_chunk / page_len whole blocks and
 * two partial ones for each sequence. A list that is full is applied early, after an admission that reuses a
 * long prefix for example. */
static int64_t max_changes(const ln_run *r) {
    int64_t width = 0;
    for (int c = 0; c < r->kv.n_groups; c++) width += r->kv.groups[c].pages_per_block;
    return width * (2 * (int64_t)r->opt.n_seqs + r->opt.n_chunk / r->opt.page_len);
}
static int outputs_of(const ln_run_options *o, int which) {
    return which == LN_RUN_HIDDEN ? o->n_chunk : o->n_logits;
}
static ln_bounds bounds_of(const ln_run_options *o, int which) {
    return (ln_bounds){.T = o->n_chunk, .N = outputs_of(o, which), .B = o->n_seqs};
}

/* The node of the product that makes the logits. An adapter, a factor or a cap may follow it. */
static int head_product(const ln_graph *g, ln_v logits) {
    int i = g->values[logits].def;
    while (g->nodes[i].op != LN_OP_LINEAR) i = g->values[g->nodes[i].in[0]].def;
    return i;
}
/* What it reads. */
static ln_v head_operand(const ln_graph *g, ln_v logits) { return g->nodes[head_product(g, logits)].in[0]; }

/* The outputs of a lowered graph: with the operand of the product that makes the logits, which ln_run_hidden
 * reads after a step. */
static void keep_head(void *user, ln_graph *g) { ln_g_output(g, head_operand(g, *(const ln_v *)user)); }

/* Takes the product that makes the logits, and what follows it, out of a lowered graph, whose output is its
 * operand then. All that was decided about the operand stays, so that its bits are those of the whole
 * program. */
static void drop_head(void *user, ln_graph *g) {
    const ln_v logits = *(const ln_v *)user;
    g->outputs[0] = head_operand(g, logits);
    for (size_t i = (size_t)head_product(g, logits); i < g->n_nodes; i++) g->nodes[i].dead = true;
}

/* Turns the graph into that of a rank. Its output keeps its index. */
static ln_status shard(const ln_run *r, ln_graph *g, ln_error *err) {
    ln_split_weight *split = ln_arena_alloc(&g->arena, (r->weights->n + 1) * sizeof *split);
    if (!split) return LN_OOM(err, "the shares of a rank");
    for (size_t i = 0; i < r->weights->n; i++)
        split[i].share = ln_source_share_of(&r->weights->items[i], r->opt.n_ranks, r->opt.rank);
    LN_TRY(ln_graph_shard(g, split, r->opt.n_ranks, r->opt.rank, err));
    return ln_graph_check(g, "shard", err);
}

/* Builds the graph of the model, with adapters where the run has room for some. */
static ln_status build(const ln_run *r, ln_graph *g, ln_v *logits, ln_error *err) {
    LN_TRY(ln_decoder_build(g, r->spec, r->weights, &r->kv, logits, err));
    if (r->lora) {
        LN_TRY(ln_graph_adapt(g, r->lora, r->weights->n, err));
        *logits = g->outputs[0];
        LN_TRY(ln_graph_check(g, "adapt", err));
    }
    return r->opt.n_ranks > 1 ? shard(r, g, err) : LN_OK;
}

static ln_policy policy_of(const ln_run *r) {
    const ln_run *as = r->opt.program_of; /* its device chooses formats */
    const uint32_t can = as ? as->info.can : r->info.can;
    if (r->opt.numerics != LN_FAST) return LN_POLICY_EXACT;
    return can & LN_CAN_FP8 ? LN_POLICY_FAST_FP8 : LN_POLICY_FAST;
}

/* Makes a program in r->arena. The graph is needed no longer then. */
static ln_status make_program(ln_run *r, int which, ln_error *err) {
    const ln_run *as = r->opt.program_of;
    ln_run_program *p = &r->programs[which];
    ln_v logits;
    const ln_compile_options o = {.policy = policy_of(r),
                                  .fuses = true,
                                  .bounds = bounds_of(&r->opt, which),
                                  .real_bytes = r->info.real_bytes,
                                  .ops = r->ops,
                                  .dev = r->dev,
                                  .choose_ops = as ? as->ops : NULL,
                                  .choose_dev = as ? as->dev : NULL,
                                  .lowered = which == LN_RUN_HIDDEN ? drop_head : keep_head,
                                  .user = &logits};
    ln_graph g;
    ln_graph_open(&g);
    ln_status st = build(r, &g, &logits, err);
    if (st == LN_OK) st = ln_compile(&g, &o, &r->arena, &p->program, err);
    if (st == LN_OK) {
        p->made = true;
        p->hidden = head_operand(&g, logits);
        if (which == LN_RUN_LOGITS) r->logits = logits;
    }
    ln_graph_close(&g);
    return st;
}

ln_status ln_run_make_program(ln_run *r, ln_error *err) {
    if (r->opt.n_ranks > 1 && !(r->info.can & LN_CAN_COLLECTIVES))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "device %s cannot exchange values among ranks; use ln_options.device = LN_DEVICE_CPU",
                       r->info.name);
    LN_TRY(ln_run_make_pool(r, err));
    LN_TRY(ln_run_make_adapters(r, err));
    return make_program(r, LN_RUN_LOGITS, err);
}

/* A device with memory of its own that reports none free may be lost; allocating tells. */
static ln_status check_device(const ln_run *r, ln_error *err) {
    void *p;
    if (r->info.memory_total == 0 || r->info.memory_free > 0) return LN_OK;
    LN_TRY(r->ops->alloc(r->dev, 1, 0, &p, err));
    r->ops->free(r->dev, p, 1);
    return LN_OK;
}

/* Makes a program and adds its memory to the sizes of the run, whose temp block is large enough for all of
 * them. */
static ln_status measure_program(ln_run *r, int which, ln_error *err) {
    if (!r->programs[which].made) LN_TRY(make_program(r, which, err));
    const ln_bounds b = bounds_of(&r->opt, which);
    const ln_program *p = &r->programs[which].program;
    const int64_t step = ln_step_bytes(&b, max_changes(r));
    if (step < 0 && which == LN_RUN_HIDDEN)
        return ln_fail(err, LN_EUSAGE, "ln_options.n_chunk %d is too large for embeddings; lower it",
                       r->opt.n_chunk);
    if (step < 0)
        return ln_fail(err, LN_EUSAGE, "ln_options.n_chunk %d and n_parallel %d are too large; lower them",
                       r->opt.n_chunk, r->opt.n_seqs);
    r->sizes.temp_bytes = LN_MAX(r->sizes.temp_bytes, (uint64_t)p->temp_bytes);
    r->sizes.scratch_bytes += r->ops->scratch_bytes(r->dev, p);
    r->sizes.step_bytes += step;
    return LN_OK;
}

/* What is free on the fullest GPU of the ranks that are threads of this process: plans are equal for all. */
static ln_status find_least_free(ln_run *r, ln_error *err) {
    const int n = r->opt.rank == 0 && is_cuda(r->ops) ? ln_ranks_n_gpus() : 1;
    for (int i = 1; i < n; i++) {
        ln_run_options other = r->opt;
        const ln_device_ops *ops;
        ln_dev *dev = NULL;
        ln_dev_info info;
        other.rank = i;
        LN_TRY(ln_run_open_device(&other, &ops, &dev, &info, err));
        r->info.memory_free = LN_MIN(r->info.memory_free, info.memory_free);
        r->info.memory_total = LN_MIN(r->info.memory_total, info.memory_total);
        ln_device_release(&dev);
    }
    return LN_OK;
}

/* Opens the device and computes everything that decides memory: KV layout, program, sizes. Allocates none of
 * the large blocks. */
static ln_status describe(ln_run *r, ln_error *err) {
    ln_weights mine;
    LN_TRY(ln_run_open_device(&r->opt, &r->ops, &r->dev, &r->info, err));
    LN_TRY(check_device(r, err));
    LN_TRY(find_least_free(r, err));
    r->sizes.device_total = r->info.memory_total;
    r->sizes.device_free = r->info.memory_free;
    LN_TRY(ln_run_make_program(r, err));
    LN_TRY(ln_rank_weights(&r->arena, r->weights, r->opt.n_ranks, r->opt.rank, &mine, err));
    LN_TRY(ln_device_weights_bytes(r->ops, r->dev, &mine, r->opt.numerics, false, &r->sizes.weights_bytes,
                                   &r->sizes.copied_bytes, err));
    LN_TRY(measure_program(r, LN_RUN_LOGITS, err));
    return r->opt.embeds ? measure_program(r, LN_RUN_HIDDEN, err) : LN_OK;
}

/* Allocates a run and describes it. *out is set, and to be closed, after an error too. */
static ln_status new_run(ln_run **out, const ln_spec *s, const ln_weights *w, const ln_run_options *opt,
                         ln_error *err) {
    ln_run *r = ln_zalloc(1, sizeof *r);
    if (!r) return LN_OOM(err, "a run");
    r->spec = s;
    r->weights = w;
    r->opt = *opt;
    *out = r;
    return describe(r, err);
}

ln_status ln_run_measure(const ln_spec *s, const ln_weights *w, const ln_run_options *opt, ln_run_sizes *out,
                         ln_error *err) {
    ln_run *r = NULL;
    ln_status st = new_run(&r, s, w, opt, err);
    if (st == LN_OK) *out = r->sizes;
    ln_run_close(&r);
    return st;
}

static ln_status new_step(const ln_run *r, const ln_bounds *b, ln_step_block **out, ln_error *err) {
    const int64_t bytes = ln_step_bytes(b, max_changes(r));
    if (bytes < 0) return ln_fail(err, LN_EINTERNAL, "a step block of more than 4 GiB");
    *out = ln_alloc((size_t)bytes);
    if (!*out) return LN_OOM(err, "the step block");
    memset(*out, 0, (size_t)bytes);
    ln_step_init(*out, b, max_changes(r));
    return LN_OK;
}

/* Makes the step block of a program, binds weights and states to it, and has the device prepare it. */
static ln_status prepare(ln_run *r, int which, ln_error *err) {
    ln_run_program *p = &r->programs[which];
    const ln_bounds b = bounds_of(&r->opt, which);
    LN_TRY(new_step(r, &b, &p->step, err));
    ln_device_weights_bind(r->resident, &p->program);
    for (int i = 0; i < p->program.n_values; i++) {
        ln_pvalue *v = &p->program.values[i];
        if (v->kind == LN_KIND_STATE) v->data = r->states[v->slot];
    }
    return r->ops->prepare(r->queue, &p->program, p->temp ? p->temp : r->temp, &p->exec, err);
}

static ln_status open_alone(ln_run **out, const ln_spec *s, const ln_weights *w,
                            ln_weight_cache *weight_cache, const ln_run_options *opt, ln_error *err) {
    ln_run *r = NULL;
    ln_status st = LN_OK;
    *out = NULL;
    LN_GO(ln_pool_reserve(ln_run_pool(opt), opt->n_threads, err));
    LN_GO(new_run(&r, s, w, opt, err));
    r->weight_cache = weight_cache;
    r->pool_bytes = r->sizes.kv_bytes;
    r->recur_bytes = r->sizes.recur_bytes;
    r->temp_bytes = r->sizes.temp_bytes;
    LN_GO(r->ops->alloc(r->dev, r->pool_bytes, r->sizes.ready_bytes, &r->states[LN_STATE_PAGES], err));
    if (r->recur_bytes)
        LN_GO(r->ops->alloc(r->dev, r->recur_bytes, r->sizes.recur_ready_bytes,
                            &r->states[LN_STATE_RECURRENT], err));
    LN_GO(r->ops->alloc(r->dev, r->temp_bytes, r->temp_bytes, &r->temp, err));
    if (r->lora)
        LN_GO(r->ops->alloc(r->dev, r->sizes.adapter_bytes, r->sizes.adapter_bytes,
                            &r->states[LN_STATE_ADAPTERS], err));
    LN_GO(ln_weight_cache_acquire(weight_cache, w, opt, &r->resident, err));
    r->cap_changes = (int32_t)max_changes(r);
    const ln_queue_options queue = {.size = sizeof queue,
                                    .n_slots = opt->n_seqs,
                                    .n_blocks = r->sizes.n_blocks,
                                    .kv = &r->kv,
                                    .ranks = r->opt.transport};
    LN_GO(r->ops->queue_open(r->dev, &queue, &r->queue, err));
    for (int i = 0; i < LN_RUN_PROGRAMS; i++)
        if (r->programs[i].made) LN_GO(prepare(r, i, err));
    r->step = r->programs[LN_RUN_LOGITS].step;
    *out = r;
    return LN_OK;
out:
    ln_run_close(&r);
    return st;
}

uint64_t ln_run_digest(const ln_run *r) {
    const ln_program *p = &r->programs[LN_RUN_LOGITS].program;
    ln_xxh64 h;
    ln_xxh64_open(&h);
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        const char *kernel = n->kernel ? n->kernel : "";
        ln_xxh64_add(&h, &n->op, sizeof n->op);
        ln_xxh64_add(&h, kernel, strlen(kernel));
    }
    for (int i = 0; i < p->n_values; i++) {
        const ln_pvalue *v = ln_program_value(p, i);
        ln_xxh64_add(&h, v->dims, (size_t)v->n_dims * sizeof *v->dims);
        ln_xxh64_add(&h, &v->offset, sizeof v->offset);
    }
    ln_xxh64_add(&h, &r->sizes.n_pages, sizeof r->sizes.n_pages);
    return ln_xxh64_value(&h);
}

/* Connects a program with those of the other ranks, which have all prepared it. */
static ln_status connect(ln_run *r, int which, ln_error *err) {
    ln_run_program *p = &r->programs[which];
    return p->exec && r->ops->connect ? r->ops->connect(p->exec, err) : LN_OK;
}

/* All ranks: whether they have opened the same run, which is connected then; after an error *r is closed. */
static ln_status agree(ln_run **out, ln_transport *t, ln_status st, ln_error *err) {
    ln_run *r = *out;
    st = ln_ranks_agree(t, st, r ? ln_run_digest(r) : 0,
                        "program differs from that of rank 0: another kind of processor, or LINNET_CPU", err);
    for (int i = 0; i < LN_RUN_PROGRAMS && st == LN_OK; i++) st = connect(r, i, err);
    if (r && r->ops && r->ops->connect && t->failed.code == LN_OK) st = ln_ranks_agree(t, st, 0, "", err);
    if (st != LN_OK) ln_run_close(out);
    return st;
}

ln_status ln_run_open(ln_run **out, const ln_spec *s, const ln_weights *w, ln_weight_cache *weight_cache,
                      const ln_run_options *opt, ln_error *err) {
    ln_ranks *k = opt->led;
    const int32_t id = k ? ++k->last_id : 0;
    const ln_order order = {.what = LN_ORDER_RUN, .id = id, .a = opt->led_model, .bytes = sizeof *opt};
    *out = NULL;
    LN_TRY(ln_ranks_order(k, &order, opt, err));
    ln_status st = open_alone(out, s, w, weight_cache, opt, err);
    ln_run *r = *out;
    if (r) r->opt.led = NULL; /* followers close theirs if ranks disagree */
    if (opt->transport && opt->n_ranks > 1) st = agree(out, opt->transport, st, err);
    if (st == LN_OK) r->opt.led = k, r->id = id;
    ln_ranks_done(k);
    return st;
}

static void close_program(ln_run *r, int which) {
    ln_run_program *p = &r->programs[which];
    if (p->exec) r->ops->release(&p->exec);
    if (p->temp) r->ops->free(r->dev, p->temp, (size_t)p->program.temp_bytes);
    ln_free(p->step);
    ln_memory_count(LN_MEMORY_ACTIVATIONS, -p->counted);
    *p = (ln_run_program){0};
}

void ln_run_close(ln_run **run) {
    ln_run *r = *run;
    if (!r) return;
    const ln_order order = {.what = LN_ORDER_RUN_CLOSE, .id = r->id};
    if (r->id && ln_ranks_order(r->opt.led, &order, NULL, NULL) == LN_OK) ln_ranks_done(r->opt.led);
    for (int i = 0; i < LN_RUN_PROGRAMS; i++) close_program(r, i);
    if (r->states[LN_STATE_PAGES]) r->ops->free(r->dev, r->states[LN_STATE_PAGES], r->pool_bytes);
    if (r->states[LN_STATE_RECURRENT]) r->ops->free(r->dev, r->states[LN_STATE_RECURRENT], r->recur_bytes);
    if (r->states[LN_STATE_ADAPTERS])
        r->ops->free(r->dev, r->states[LN_STATE_ADAPTERS], r->sizes.adapter_bytes);
    if (r->temp) r->ops->free(r->dev, r->temp, r->temp_bytes);
    if (r->queue) r->ops->queue_close(&r->queue);
    ln_device_release(&r->dev);
    ln_weight_cache_release(r->weight_cache, r->resident);
    ln_arena_free(&r->arena);
    ln_free(r);
    *run = NULL;
}

/* ---- the program without the head ---- */

/* Makes and prepares it in an open run. Its temps are those of a layer, as in the whole program, and no
 * logits; they fit into r->temp unless a layer's are larger with n_chunk output rows than the logits were. */
static ln_status add_hidden(ln_run *r, uint64_t room, ln_error *err) {
    ln_run_program *p = &r->programs[LN_RUN_HIDDEN];
    LN_TRY(make_program(r, LN_RUN_HIDDEN, err));
    const uint64_t temp = (uint64_t)p->program.temp_bytes;
    const uint64_t own = temp > r->temp_bytes ? temp : 0;
    const uint64_t need = own + r->ops->scratch_bytes(r->dev, &p->program);
    if (need > room)
        return ln_fail(err, LN_EMEMORY,
                       "embeddings need %llu bytes more than the engine has taken, and %llu are left; raise "
                       "the limit or lower ln_options.n_chunk",
                       (unsigned long long)need, (unsigned long long)room);
    if (own) LN_TRY(r->ops->alloc(r->dev, own, own, &p->temp, err));
    LN_TRY(prepare(r, LN_RUN_HIDDEN, err));
    p->counted = (int64_t)need;
    ln_memory_count(LN_MEMORY_ACTIVATIONS, p->counted);
    return LN_OK;
}

ln_status ln_run_add_hidden(ln_run *r, uint64_t space, ln_error *err) {
    if (r->programs[LN_RUN_HIDDEN].made) return LN_OK;
    const uint64_t most = LN_MIN(space, (uint64_t)INT64_MAX);
    const ln_order order = {.what = LN_ORDER_HIDDEN, .id = r->id, .a = (int64_t)most};
    LN_TRY(ln_ranks_order(r->opt.led, &order, NULL, err));
    ln_status st = add_hidden(r, space, err);
    if (r->opt.transport) {
        st = ln_ranks_agree(r->opt.transport, st, 0, "", err);
        if (st == LN_OK && r->ops->connect) {
            st = connect(r, LN_RUN_HIDDEN, err);
            st = ln_ranks_agree(r->opt.transport, st, 0, "", err);
        }
    }
    ln_ranks_done(r->opt.led);
    if (st != LN_OK) close_program(r, LN_RUN_HIDDEN);
    return st;
}

int ln_run_choose(ln_run *r, bool no_logits) {
    ln_step_block *from = r->step;
    r->now = no_logits && r->programs[LN_RUN_HIDDEN].made ? LN_RUN_HIDDEN : LN_RUN_LOGITS;
    r->step = r->programs[r->now].step;
    if (r->step != from) { /* changes of page tables that no step has applied yet */
        memcpy(ln_step_changes(r->step), ln_step_changes(from),
               (size_t)from->n_changes * sizeof(ln_page_change));
        r->step->n_changes = from->n_changes;
        from->n_changes = 0;
    }
    return outputs_of(&r->opt, r->now);
}

/* ---- steps ---- */

/* Bytes of a block up to the last change. */
static size_t used_bytes(const ln_step_block *s) {
    return s->changes + (size_t)s->n_changes * sizeof(ln_page_change);
}

/* Submits the step block and waits. A device that fails may not have applied the changes; they are kept for
 * the next step, and applying them twice does no harm. */
static ln_status submit_alone(ln_run *r, const ln_trace *trace, ln_error *err) {
    uint64_t fence;
    LN_TRY(r->ops->submit(r->programs[r->now].exec, r->step, trace, &fence, err));
    if (r->submitted && r->step->n_rows > 0) r->submitted(r->submitted_user);
    LN_TRY(r->ops->wait(r->queue, fence, err));
    r->step->n_changes = 0;
    return LN_OK;
}

static ln_status submit(ln_run *r, const ln_trace *trace, ln_error *err) {
    const ln_order order = {
        .what = LN_ORDER_STEP, .id = r->id, .a = r->now, .b = trace != NULL, .bytes = used_bytes(r->step)};
    LN_TRY(ln_ranks_order(r->opt.led, &order, r->step, err));
    ln_error why = {0};
    const ln_status st = submit_alone(r, trace, &why);
    if (st != LN_OK && err) *err = why;
    if (st != LN_OK && r->opt.led) {
        ln_transport *t = r->opt.transport;
        /* CUDA reports the fault of a GPU for all GPUs of a process that map each other's memory */
        if (t->failed.code == LN_OK && ln_ranks_n_gpus() > 1)
            (void)ln_prefix(err, st, "one of %d GPUs", t->size);
        else if (t->failed.code == LN_OK) (void)ln_prefix(err, st, "rank %d of %d", t->rank, t->size);
        t->end(t, &why); /* others may wait for it */
    }
    ln_ranks_done(r->opt.led);
    return st;
}

static void ignore_node(void *user, int i, double seconds) { (void)user, (void)i, (void)seconds; }

ln_status ln_run_follow_step(ln_run *r, int which, bool traced, const void *block, size_t bytes,
                             ln_error *err) {
    static const ln_trace quiet = {ignore_node, NULL};
    const ln_run_program *p = which >= 0 && which < LN_RUN_PROGRAMS ? &r->programs[which] : NULL;
    if (!p || !p->step || bytes < sizeof *p->step || bytes > p->step->size)
        return ln_fail(err, LN_EINTERNAL, "rank %d: a step of %zu bytes of program %d", r->opt.rank, bytes,
                       which);
    r->now = which;
    r->step = p->step;
    memcpy(p->step, block, bytes);
    return submit_alone(r, traced ? &quiet : NULL, err);
}

ln_status ln_run_step(ln_run *r, ln_error *err) {
    ln_step_block *s = r->step;
    const int n_out = outputs_of(&r->opt, r->now);
    ln_status st = r->lost.code;
    if (st != LN_OK && err) *err = r->lost;
    if (st == LN_OK && (s->n_rows > r->opt.n_chunk || s->n_out > n_out || s->n_seqs > r->opt.n_seqs))
        st = ln_fail(err, LN_EINTERNAL,
                     "step of %d rows, %d outputs, %d sequences is beyond the program's bounds %d, %d, %d",
                     s->n_rows, s->n_out, s->n_seqs, r->opt.n_chunk, n_out, r->opt.n_seqs);
    if (st == LN_OK) st = submit(r, r->trace, err);
    s->n_rows = s->n_out = s->n_seqs = 0;
    return st;
}

ln_status ln_run_rows(ln_run *r, ln_v value, int64_t row, int64_t n, float *out, ln_error *err) {
    return r->ops->value(r->programs[r->now].exec, value, row, n, out, false, err);
}

ln_status ln_run_set_rows(ln_run *r, ln_v value, int64_t row, int64_t n, const float *from, ln_error *err) {
    return r->ops->value(r->programs[r->now].exec, value, row, n, (float *)(uintptr_t)from, true,
                         err); /* only read */
}

ln_status ln_run_logits(ln_run *r, int64_t n, float *out, ln_error *err) {
    return ln_run_rows(r, r->logits, n, 1, out, err);
}

/* Nothing runs after the product that makes the logits, so that no later node reuses its operand's buffer. */
ln_status ln_run_hidden(ln_run *r, int64_t n, float *out, ln_error *err) {
    return ln_run_rows(r, r->programs[r->now].hidden, n, 1, out, err);
}

void ln_run_argmax(ln_run *r, int64_t row, int64_t n, int32_t *ids) {
    if (r->ops->argmax &&
        r->ops->argmax(r->programs[LN_RUN_LOGITS].exec, r->logits, row, n, ids, NULL) == LN_OK)
        return;
    for (int64_t i = 0; i < n; i++) ids[i] = -1;
}

void ln_run_sample(ln_run *r, const ln_row_sampling *rows, int64_t n, int32_t *ids) {
    if (r->ops->sample &&
        r->ops->sample(r->programs[LN_RUN_LOGITS].exec, r->logits, rows, n, ids, NULL) == LN_OK)
        return;
    for (int64_t i = 0; i < n; i++) ids[i] = -1;
}

ln_cost ln_run_cost(const ln_run *r, const ln_bounds *live, int64_t depth) {
    const ln_program *p = &r->programs[LN_RUN_LOGITS].program;
    ln_cost sum = {0};
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        ln_cost c = ln_ops[n->op].cost(p, n, live, depth);
        sum.flops += c.flops, sum.bytes += c.bytes, sum.weight_bytes += c.weight_bytes,
            sum.kv_bytes += c.kv_bytes;
    }
    return sum;
}

/* Applies the changes by a step of 0 rows. */
static void apply_changes(ln_run *r) {
    const int32_t n_rows = r->step->n_rows;
    r->step->n_rows = 0;
    (void)submit(r, NULL, &r->lost);
    r->step->n_rows = n_rows;
}

void ln_run_set_pages(ln_run *r, int slot, int c, int64_t first, const int32_t *pages, int64_t n) {
    const int64_t at = (int64_t)slot * r->sizes.n_blocks * r->kv.groups[c].pages_per_block + first;
    const int32_t first_page = r->kv.groups[c].kind == LN_STATE_CHUNKS ? (int32_t)r->sizes.n_pages : 0;
    ln_step_block *s = r->step;
    for (int64_t i = 0; i < n && r->lost.code == LN_OK; i++) {
        if (s->n_changes >= r->cap_changes) apply_changes(r);
        if (r->lost.code == LN_OK)
            ln_step_changes(s)[s->n_changes++] =
                (ln_page_change){.group = c, .page = pages[i] < 0 ? -1 : pages[i] - first_page, .at = at + i};
    }
}
