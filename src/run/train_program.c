/* Opens the programs of training and runs micro-batches (contract: train_program.h).
 *
 * Two graphs are built from one description: the forward pass for validation, and the forward pass with its
 * reverse pass. They share the block of temps, since they never run at once, and all bound memory: weights in
 * the device's layout, parameters, and the inputs of a micro-batch. */
#include "compile.h"
#include "train_parts.h"

#include <stdio.h>

/* ---- the graphs ---- */

static ln_status build_adapters(ln_train_program *p, int which, ln_error *err) {
    mode *m = &p->modes[which];
    ln_lora lora = p->opt.lora;
    ln_lora_training adapters;
    if (which != TRAIN) lora.dropout = 0;
    LN_TRY(ln_lora_targets(&lora, p->weights, p->spec, &m->graph.arena, &adapters, err));
    LN_TRY(ln_graph_adapt_training(&m->graph, &adapters, LN_TRAIN_SAMPLES, &m->lora, err));
    return ln_graph_check(&m->graph, "adapt", err);
}

/* Lists what is trained. */
static ln_status list_trained(ln_train_program *p, mode *m, ln_error *err) {
    const size_t most = LN_MAX(3 * (size_t)m->lora.n_modules, p->weights->n) + 1;
    m->wrt = ln_arena_alloc(&m->graph.arena, most * sizeof *m->wrt);
    m->grads = ln_arena_alloc(&m->graph.arena, most * sizeof *m->grads);
    if (!m->wrt || !m->grads) return LN_OOM(err, "gradients");
    if (p->opt.full) return ln_trained_weights_values(&m->graph, p->weights, m->wrt, &m->n_pieces, err);
    for (int i = 0; i < m->lora.n_modules; i++) {
        if (m->lora.modules[i].first == i) m->wrt[m->n_pieces++] = m->lora.modules[i].a;
        if (m->lora.modules[i].b >= 0) m->wrt[m->n_pieces++] = m->lora.modules[i].b;
        if (p->opt.lora.magnitudes) m->wrt[m->n_pieces++] = m->lora.modules[i].magnitude;
    }
    return LN_OK;
}

/* Adapters are small: their gradients are read after the run. Those of weights are read one by one. */
static ln_status add_gradient_nodes(ln_train_program *p, mode *m, ln_error *err) {
    const ln_v weights = ln_g_load(&m->graph, "loss.weights", m->built.weights);
    LN_TRY(ln_graph_grad(&m->graph, m->built.loss, weights, m->wrt, m->n_pieces, m->grads, err));
    for (size_t i = 0; i < m->n_pieces; i++) {
        if (m->grads[i] < 0)
            return ln_fail(err, LN_EUNSUPPORTED, "%s: the loss does not depend on it",
                           m->graph.values[m->wrt[i]].name);
        if (p->opt.full) ln_g_taken_output(&m->graph, m->grads[i]);
        else ln_g_output(&m->graph, m->grads[i]);
    }
    return ln_graph_check(&m->graph, "grad", err);
}

static ln_status build_mode(ln_train_program *p, int which, int n_recompute, ln_error *err) {
    mode *m = &p->modes[which];
    ln_graph_open(&m->graph);
    const bool logits = p->opt.full || ln_lora_needs_logits(&p->opt.lora);
    LN_TRY(which == PREDICT ? ln_decoder_build_packed(&m->graph, p->spec, p->weights, err)
                            : ln_decoder_build_train(&m->graph, p->spec, p->weights, logits, &m->built, err));
    if (!p->opt.full) LN_TRY(build_adapters(p, which, err));
    if (which == PREDICT) return LN_OK;
    ln_g_output(&m->graph, m->built.loss);
    if (which == EVALUATE) return LN_OK;
    const size_t n_forward = m->graph.n_nodes;
    LN_TRY(list_trained(p, m, err));
    LN_TRY(add_gradient_nodes(p, m, err));
    /* A device with memory of its own has little of it, and computes faster than it reads. */
    LN_TRY(ln_graph_recompute(&m->graph, n_forward, n_recompute, p->info.memory_total > 0, err));
    return ln_graph_check(&m->graph, "recompute", err);
}

/* Activations and products are not fused: the forward pass and its recomputation then have the same nodes,
 * and the same bits on every device. */
static ln_status make_mode(ln_train_program *p, int which, int n_recompute, ln_error *err) {
    mode *m = &p->modes[which];
    const bool exact = p->opt.run.numerics == LN_EXACT || which == LENGTHS;
    const ln_compile_options o = {.policy = exact ? LN_POLICY_EXACT : LN_POLICY_TRAIN,
                                  .bounds = ln_train_bounds(p, which),
                                  .real_bytes = p->info.real_bytes,
                                  .early_converts = p->info.memory_total > 0,
                                  .ops = p->ops,
                                  .dev = p->dev};
    LN_TRY(which == LENGTHS ? ln_directions_build(p, err) : build_mode(p, which, n_recompute, err));
    return ln_compile(&m->graph, &o, &m->graph.arena, &m->program, err);
}

/* ---- sizes ---- */

ln_train_param *ln_train_add_param(ln_train_program *p, const ln_weight *w, int64_t rows, int64_t cols) {
    ln_train_param *x = &p->params[p->n_params++];
    *x = (ln_train_param){
        .slot = (ln_slot)w->slot, .layer = w->layer, .decays = true, .rows = rows, .cols = cols};
    ln_weight_name(x->path, p->spec, (ln_slot)w->slot, w->layer);
    p->n_numbers += (size_t)(rows * cols);
    p->read_numbers = LN_MAX(p->read_numbers, (size_t)LN_MIN(rows * cols, LN_MAX(cols, MOST_READ)));
    return x;
}

/* The path of the module of a parameter, which add_param has called by its tensor. */
static void cut_weight(ln_train_param *x) { x->path[strlen(x->path) - strlen(".weight")] = '\0'; }

/* Adds A or B of the adapter of that tensor. */
static void add_adapter_param(ln_train_program *p, const ln_weight *w, bool is_b) {
    const int64_t rank = p->opt.lora.rank;
    const int64_t rows = ln_source_is_in_pieces(w) ? w->parts->d0 : ln_source_stored_rows(w);
    ln_train_param *x = ln_train_add_param(p, w, is_b ? rows : rank, is_b ? rank : w->d1);
    x->is_b = is_b;
    cut_weight(x);
}

/* Adds the magnitudes of DoRA for that tensor. */
static void add_magnitudes(ln_train_program *p, const ln_weight *w) {
    ln_train_param *x = ln_train_add_param(p, w, ln_source_stored_rows(w), 1);
    x->is_magnitude = true;
    cut_weight(x);
}

void ln_train_add_piece(ln_train_program *p, size_t param, int slot, int64_t row0, int64_t rows, size_t *at) {
    const ln_train_param *x = &p->params[param];
    const ln_dtype dtype = ln_train_dtype(p, x);
    p->pieces[p->n_pieces++] = (piece){.param = param, .slot = slot, .row0 = row0, .rows = rows, .at = *at};
    *at += ln_train_aligned((size_t)(rows * x->cols) * (size_t)ln_dtype_bytes(dtype));
}

/* Describes the parameters of all modules, and their pieces; *at as add_piece. of: by module, the parameter
 * that A is. */
static void describe_adapters(ln_train_program *p, size_t *of, size_t *at) {
    const ln_lora_graph *all = &p->modes[TRAIN].lora;
    for (int i = 0; i < all->n_modules; i++) {
        const ln_lora_module *m = &all->modules[i];
        const ln_weight *w = &p->weights->items[m->weight];
        if (m->kind != LN_LORA_PRODUCT || m->weight == p->weights->index_fixed[LN_W_EMBED]) {
            ln_tables_describe(p, i, of, at);
            continue;
        }
        if (m->first == i) {
            of[i] = p->n_params;
            add_adapter_param(p, w, false);
            add_adapter_param(p, w, true);
            if (p->opt.lora.magnitudes) add_magnitudes(p, w);
            ln_train_add_piece(p, of[i], LN_LORA_PARTS * i + LN_LORA_A, 0, p->opt.lora.rank, at);
        }
        ln_train_add_piece(p, of[m->first] + 1, LN_LORA_PARTS * i + LN_LORA_B, w->row0, w->d0, at);
        if (ln_source_is_in_pieces(w)) p->pieces[p->n_pieces - 1].pieces = w->how;
        if (!p->opt.lora.magnitudes) continue;
        ln_train_add_piece(p, of[m->first] + 2, LN_LORA_PARTS * i + LN_LORA_MAGNITUDE, w->row0, w->d0, at);
        p->pieces[p->n_pieces - 1].is_vector = true;
        ln_directions_add(p, i, w, at);
    }
}

/* Describes a parameter for each tensor of the weights that are trained, in the order of the weights, and the
 * pieces in that of their gradients. of: by weight, its parameter. */
static void describe_weights(ln_train_program *p, size_t *of) {
    const mode *m = &p->modes[TRAIN];
    for (size_t i = 0; i < p->weights->n; i++) {
        const ln_weight *w = &p->weights->items[i];
        size_t k = 0;
        while (k < p->n_params && p->params[k].tensor != w->tensor) k++;
        of[i] = k;
        if (k < p->n_params) continue;
        ln_train_param *x = ln_train_add_param(p, w, ln_source_stored_rows(w), LN_MAX(w->d1, 1));
        x->tensor = w->tensor;
        x->decays = w->d1 > 0;
    }
    for (size_t i = 0; i < m->n_pieces; i++) {
        const int slot = m->graph.values[m->wrt[i]].slot;
        const ln_weight *w = &p->weights->items[slot];
        p->rounded_bytes = LN_MAX(p->rounded_bytes, ln_trained_weights_buffer(w));
        p->pieces[p->n_pieces++] =
            (piece){.param = of[slot], .slot = slot, .row0 = w->row0, .rows = w->d0, .is_vector = w->d1 == 0};
    }
}

static ln_status describe_params(ln_train_program *p, size_t *at, ln_error *err) {
    const size_t n_modules = (size_t)p->modes[TRAIN].lora.n_modules,
                 most = LN_MAX(3 * n_modules, p->weights->n) + 1;
    if (p->opt.lora.magnitudes && !(p->directions = ln_zalloc(n_modules, sizeof *p->directions)))
        return LN_OOM(err, "the list of parameters");
    p->params = ln_zalloc(most, sizeof *p->params);
    p->pieces = ln_zalloc(most, sizeof *p->pieces);
    size_t *of = ln_zalloc(most, sizeof *of);
    const bool failed = !p->params || !p->pieces || !of;
    if (!failed && p->opt.full) describe_weights(p, of);
    else if (!failed) describe_adapters(p, of, at);
    ln_free(of);
    return failed ? LN_OOM(err, "the list of parameters") : LN_OK;
}

static ln_status take_sizes(ln_train_program *p, ln_error *err) {
    const ln_bounds *b = &p->bounds;
    size_t at = 0;
    uint64_t copies;
    LN_TRY(describe_params(p, &at, err));
    if (!p->opt.full) p->read_numbers = LN_MAX(p->read_numbers, LN_MIN(p->n_numbers, (size_t)MOST_TOGETHER));
    const size_t inputs[LN_TRAIN_INPUTS] = {[LN_TRAIN_TARGETS] = 4 * (size_t)b->N,
                                            [LN_TRAIN_WEIGHTS] = 4 * (size_t)b->N,
                                            [LN_TRAIN_SAMPLES] = 8 * (size_t)b->B,
                                            [LN_TRAIN_LOOKED_UP] = ln_tables_looked_up_bytes(p),
                                            [LN_TRAIN_CHOSEN] =
                                                4 * ln_train_most_rows(p) * (size_t)ln_train_tokens(p)};
    for (int i = 0; i < LN_TRAIN_INPUTS; i++) p->input_at[i] = at, at += ln_train_aligned(inputs[i]);
    p->bound_bytes = at;
    const ln_bounds text = ln_train_bounds(p, PREDICT);
    const int64_t step = ln_step_bytes(b, 0), text_step = ln_step_bytes(&text, 0);
    if (step < 0 || text_step < 0)
        return ln_fail(err, LN_EUSAGE, "a micro-batch of %lld rows is too large", (long long)b->T);
    for (int i = 0; i < MODES; i++) {
        if (!ln_train_has(p, i)) continue;
        p->temp_bytes = LN_MAX(p->temp_bytes, (size_t)p->modes[i].program.temp_bytes);
        p->sizes.scratch_bytes += p->ops->scratch_bytes(p->dev, &p->modes[i].program);
    }
    p->read_numbers = LN_MAX(p->read_numbers, (size_t)b->N);
    if (ln_train_has(p, PREDICT)) p->read_numbers = LN_MAX(p->read_numbers, (size_t)p->spec->V);
    const uint64_t squares = ln_directions_bytes(p);
    p->sizes.n_params = p->n_numbers;
    p->sizes.n_matrices = p->n_params;
    p->sizes.activation_bytes = p->temp_bytes;
    p->sizes.param_bytes = 2 * p->n_numbers * sizeof(float) + 2 * p->bound_bytes +
                           p->read_numbers * sizeof(float) + p->rounded_bytes + squares +
                           p->n_token_rows * sizeof(float);
    p->sizes.bound_bytes = p->bound_bytes;
    p->sizes.device_total = p->info.memory_total;
    p->sizes.device_free = p->info.memory_free;
    p->sizes.step_bytes = (uint64_t)(step + text_step);
    return ln_device_weights_bytes(p->ops, p->dev, p->weights, LN_EXACT, p->opt.full, &p->sizes.weights_bytes,
                                   &copies, err);
}

/* Builds and measures everything; allocates no large block. */
static ln_status describe(ln_train_program *p, ln_error *err) {
    const ln_run_options *o = &p->opt.run;
    if (o->n_chunk < 1 || o->n_seqs < 1)
        return ln_fail(err, LN_EUSAGE, "a micro-batch has at least one row, found %d rows and %d sequences",
                       o->n_chunk, o->n_seqs);
    p->bounds = (ln_bounds){.T = o->n_chunk, .N = o->n_chunk, .B = o->n_seqs};
    if (p->opt.full) LN_TRY(ln_trained_weights_check(p->weights, err));
    LN_TRY(ln_run_open_device(o, &p->ops, &p->dev, &p->info, err));
    LN_TRY(make_mode(p, EVALUATE, 0, err));
    if (ln_train_has(p, PREDICT)) LN_TRY(make_mode(p, PREDICT, 0, err));
    p->sizes.n_recompute = LN_MIN(p->opt.n_recompute, p->spec->L);
    LN_TRY(make_mode(p, TRAIN, p->sizes.n_recompute, err));
    if (!p->opt.full && p->opt.lora.magnitudes) LN_TRY(make_mode(p, LENGTHS, 0, err));
    return take_sizes(p, err);
}

static ln_status new_program(ln_train_program **out, const ln_spec *s, const ln_weights *w,
                             const ln_train_options *opt, ln_error *err) {
    const uint64_t held = ln_mem_bytes();
    ln_train_program *p = ln_zalloc(1, sizeof *p);
    *out = p;
    if (!p) return LN_OOM(err, "a training program");
    p->spec = s;
    p->weights = w;
    p->opt = *opt;
    LN_TRY(describe(p, err));
    p->sizes.graph_bytes = ln_mem_bytes() - held;
    return LN_OK;
}

ln_status ln_train_program_measure(const ln_spec *s, const ln_weights *w, const ln_train_options *opt,
                                   ln_train_sizes *out, ln_error *err) {
    ln_train_program *p = NULL;
    ln_status st = new_program(&p, s, w, opt, err);
    if (st == LN_OK) *out = p->sizes;
    ln_train_program_close(&p);
    return st;
}

/* ---- opening ---- */

/* Returns the place in `bound` of a trainable, or of a constant of DoRA. */
static size_t place_of(const ln_train_program *p, int slot) {
    if (p->opt.full) return 0; /* no program has one */
    const int part = slot % LN_LORA_PARTS, i = slot / LN_LORA_PARTS;
    if (part == LN_LORA_PER_LENGTH) return p->directions[i].per_length;
    return part == LN_LORA_BIAS ? p->directions[i].bias : ln_train_piece(p, slot)->at;
}

static ln_status bind(ln_train_program *p, mode *m, ln_error *err) {
    ln_device_weights_bind(p->changing ? p->changing : p->resident, &m->program);
    for (int v = 0; v < m->program.n_values; v++) {
        ln_pvalue *x = &m->program.values[v];
        if (x->kind == LN_KIND_TRAINABLE) x->data = (char *)p->bound + place_of(p, x->slot);
        if (x->kind == LN_KIND_INPUT) x->data = (char *)p->bound + p->input_at[x->slot];
    }
    return p->ops->prepare(p->queue, &m->program, p->temp, &m->exec, err);
}

/* Allocates a block of steps. */
static ln_status make_block(ln_train_program *p, int which, ln_step_block **out, ln_error *err) {
    const ln_bounds b = ln_train_bounds(p, which);
    *out = ln_zalloc(1, (size_t)ln_step_bytes(&b, 0));
    if (!*out) return LN_OOM(err, "a micro-batch");
    ln_step_init(*out, &b, 0);
    return LN_OK;
}

static ln_status take_memory(ln_train_program *p, ln_error *err) {
    float *at = p->values = ln_zalloc(2 * p->n_numbers, sizeof *p->values);
    p->host = ln_zalloc(1, p->bound_bytes);
    p->read = ln_zalloc(p->read_numbers, sizeof *p->read);
    p->rounded = ln_zalloc(1, p->rounded_bytes + 1);
    if (!p->values || !p->host || !p->read || !p->rounded) return LN_OOM(err, "trained parameters");
    LN_TRY(make_block(p, TRAIN, &p->blocks[0], err));
    LN_TRY(make_block(p, PREDICT, &p->blocks[1], err));
    p->step = p->blocks[0];
    for (size_t i = 0; i < p->n_params; i++) {
        ln_train_param *x = &p->params[i];
        x->value = at;
        x->grad = at + p->n_numbers;
        at += x->rows * x->cols;
    }
    LN_TRY(p->ops->alloc(p->dev, p->bound_bytes, p->bound_bytes, &p->bound, err));
    return p->ops->alloc(p->dev, p->temp_bytes, p->temp_bytes, &p->temp, err);
}

ln_status ln_train_program_open(ln_train_program **out, const ln_spec *s, const ln_weights *w,
                                ln_weight_cache *cache, const ln_train_options *opt, ln_error *err) {
    ln_train_program *p = NULL;
    ln_run_options weights = opt->run;
    ln_status st = LN_OK;
    weights.numerics = LN_EXACT; /* the layout of weights for operands that are never quantised */
    *out = NULL;
    LN_GO(ln_pool_reserve(ln_run_pool(&opt->run), opt->run.n_threads, err));
    LN_GO(new_program(&p, s, w, opt, err));
    LN_GO(take_memory(p, err));
    p->changed = true;
    if (opt->full) LN_GO(ln_device_weights_open(&p->changing, w, &weights, err));
    else {
        p->cache = cache;
        LN_GO(ln_weight_cache_acquire(cache, w, &weights, &p->resident, err));
    }
    const ln_queue_options queue = {.size = sizeof queue, .n_slots = 1, .n_blocks = 1};
    LN_GO(p->ops->queue_open(p->dev, &queue, &p->queue, err));
    for (int i = 0; i < MODES; i++)
        if (ln_train_has(p, i)) LN_GO(bind(p, &p->modes[i], err));
    if (p->directions) LN_GO(ln_directions_open(p, err));
    LN_GO(ln_tables_open(p, err));
    *out = p;
    return LN_OK;
out:
    ln_train_program_close(&p);
    return st;
}

void ln_train_program_close(ln_train_program **program) {
    ln_train_program *p = *program;
    if (!p) return;
    for (int i = 0; i < MODES; i++) {
        if (p->modes[i].exec) p->ops->release(&p->modes[i].exec);
        ln_graph_close(&p->modes[i].graph);
    }
    if (p->bound) p->ops->free(p->dev, p->bound, p->bound_bytes);
    if (p->temp) p->ops->free(p->dev, p->temp, p->temp_bytes);
    if (p->queue) p->ops->queue_close(&p->queue);
    ln_device_release(&p->dev);
    if (p->cache) ln_weight_cache_release(p->cache, p->resident);
    ln_device_weights_close(&p->changing);
    for (int i = 0; p->directions && i < p->modes[TRAIN].lora.n_modules; i++)
        ln_free(p->directions[i].squares);
    ln_free(p->directions);
    ln_free(p->token_rows);
    ln_free(p->params);
    ln_free(p->pieces);
    ln_free(p->values);
    ln_free(p->host);
    ln_free(p->read);
    ln_free(p->rounded);
    ln_free(p->blocks[0]);
    ln_free(p->blocks[1]);
    ln_free(p);
    *program = NULL;
}

const ln_train_sizes *ln_train_program_sizes(const ln_train_program *p) { return &p->sizes; }
const ln_program *ln_train_program_get(const ln_train_program *p, bool gradients) {
    return &p->modes[gradients ? TRAIN : EVALUATE].program;
}
ln_train_param *ln_train_program_params(ln_train_program *p, size_t *n) {
    *n = p->n_params;
    return p->params;
}
void ln_train_clear(ln_train_program *p) {
    memset(p->values + p->n_numbers, 0, p->n_numbers * sizeof *p->values);
}

/* The deviation of the normal numbers with which a parameter begins; 0: it begins with zeros. */
static double deviation_of(const ln_train_param *x) {
    if (x->is_lookup && !x->is_whole) return x->is_b; /* as PEFT has it for embeddings */
    return x->is_b || x->is_magnitude || x->is_rows || x->is_whole ? 0 : 1 / sqrt((double)x->cols);
}
static void init_adapters(ln_train_program *p, uint64_t seed) {
    for (size_t k = 0; k < p->n_params; k++) {
        ln_train_param *x = &p->params[k];
        const uint64_t n = (uint64_t)(x->rows * x->cols);
        const double by = deviation_of(x);
        memset(x->value, 0, n * sizeof *x->value);
        for (uint64_t i = 0; i < n && by > 0; i++) {
            const uint32_t draw[4] = {(uint32_t)(i / 2), (uint32_t)(i / 2 >> 32), (uint32_t)k, 0x4c6f5241u},
                           key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
            double pair[2];
            ln_normal_pair(draw, key, pair);
            x->value[i] = (float)(pair[i % 2] * by);
        }
    }
}
ln_status ln_train_program_init(ln_train_program *p, uint64_t seed, ln_error *err) {
    if (!p->opt.full) init_adapters(p, seed);
    if (!p->opt.full) LN_TRY(ln_tables_init(p, err));
    if (p->directions) ln_directions_init(p);
    for (size_t i = 0; p->opt.full && i < p->n_pieces; i++) {
        const piece *y = &p->pieces[i];
        const ln_train_param *x = &p->params[y->param];
        LN_TRY(ln_trained_weights_read(p->weights, (size_t)y->slot, x->value + y->row0 * x->cols, err));
    }
    ln_train_values_changed(p);
    return LN_OK;
}
void ln_train_values_changed(ln_train_program *p) { p->changed = true; }

/* ---- a micro-batch ---- */

static ln_status check_batch(const ln_train_program *p, const ln_train_batch *b, ln_error *err) {
    bool good = b->n_rows >= 0 && b->n_rows <= p->bounds.T && b->n_seqs >= 0 && b->n_seqs <= p->bounds.B &&
                b->row0[0] == 0 && b->row0[b->n_seqs] == b->n_rows;
    for (int32_t i = 0; good && i < b->n_seqs; i++)
        good = b->row0[i] < b->row0[i + 1] && (!b->lengths || b->lengths[i] >= b->row0[i + 1] - b->row0[i]);
    for (int32_t r = 0; good && r < b->n_rows; r++)
        good = b->ids[r] >= 0 && b->ids[r] < p->spec->V && b->targets[r] < p->spec->V;
    if (good) return LN_OK;
    return ln_fail(err, LN_EINTERNAL,
                   "a micro-batch of %d rows in %d sequences: expected at most %lld and %lld, none of them "
                   "empty, and ids below %lld",
                   b->n_rows, b->n_seqs, (long long)p->bounds.T, (long long)p->bounds.B,
                   (long long)p->spec->V);
}

/* Writes the step block and the inputs; counted targets are the output rows. */
static void write_step(ln_train_program *p, const ln_train_batch *b, ln_train_result *out) {
    ln_step_block *s = p->step;
    int32_t *targets = (int32_t *)(void *)(p->host + p->input_at[LN_TRAIN_TARGETS]),
            *samples = (int32_t *)(void *)(p->host + p->input_at[LN_TRAIN_SAMPLES]);
    float *weights = (float *)(void *)(p->host + p->input_at[LN_TRAIN_WEIGHTS]);
    s->n_rows = b->n_rows;
    s->n_seqs = b->n_seqs;
    s->n_out = 0;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const uint64_t sample = b->samples ? b->samples[q] : (uint64_t)q;
        ln_step_row0(s)[q] = b->row0[q];
        ln_step_n_prompt(s)[q] = b->lengths ? b->lengths[q] : b->row0[q + 1] - b->row0[q];
        ln_step_slot(s)[q] = 0;
        samples[2 * q] = (int32_t)(uint32_t)sample;
        samples[2 * q + 1] = (int32_t)(uint32_t)(sample >> 32);
        for (int32_t r = b->row0[q]; r < b->row0[q + 1]; r++) {
            ln_step_ids(s)[r] = b->ids[r];
            ln_step_pos(s)[r] = r - b->row0[q];
            ln_step_seq(s)[r] = q;
            ln_step_adapter(s)[r] = -1;
            const float weight = b->weights ? b->weights[r] : 1;
            if (b->targets[r] < 0 || weight == 0) continue;
            targets[s->n_out] = b->targets[r];
            weights[s->n_out] = weight;
            ln_step_out_rows(s)[s->n_out++] = r;
            out->weight += weight;
        }
    }
    ln_step_row0(s)[b->n_seqs] = b->n_rows;
    out->n_counted = s->n_out;
    ln_tables_inputs(p);
}

static void store_numbers(uint8_t *to, ln_dtype dtype, const float *from, int64_t n) {
    if (dtype == LN_F32) memcpy(to, from, (size_t)n * sizeof *from);
    else
        for (int64_t i = 0; i < n; i++) ln_num_store(to, dtype, i, from[i]);
}

/* Writes the values of a trainable. */
static void write_trainable(ln_train_program *p, const piece *y, const ln_train_param *x) {
    for (int64_t r = 0, n; r < y->rows; r += n) {
        n = y->rows - r;
        const float *from = x->value + ln_train_row(y, r, &n) * x->cols;
        const ln_dtype dtype = ln_train_dtype(p, x);
        uint8_t *to = p->host + y->at + (size_t)(r * x->cols) * (size_t)ln_dtype_bytes(dtype);
        store_numbers(to, dtype, from, n * x->cols);
    }
}

/* A thread writes every n_threads-th trainable. */
static void write_some(void *user, int thread, int n_threads) {
    ln_train_program *p = user;
    for (size_t i = (size_t)thread; i < p->n_pieces; i += (size_t)n_threads) {
        const piece *y = &p->pieces[i];
        const ln_train_param *x = &p->params[y->param];
        if (y->is_lookup) continue; /* by the tokens of each step */
        if (y->base) ln_tables_write(p, y, x);
        else write_trainable(p, y, x);
    }
}

ln_status ln_train_write_params(ln_train_program *p, ln_error *err) {
    for (size_t i = 0; p->changed && p->changing && i < p->n_pieces; i++) {
        const piece *y = &p->pieces[i];
        const ln_train_param *x = &p->params[y->param];
        const float *from = x->value + y->row0 * x->cols;
        LN_TRY(ln_trained_weights_store(p->changing, (size_t)y->slot, from, p->rounded, err));
    }
    if (p->changed && !p->changing)
        ln_pool_run(ln_run_pool(&p->opt.run), p->opt.run.n_threads, write_some, p);
    if (p->changed && p->directions) LN_TRY(ln_directions_write(p, err));
    p->changed = false;
    return LN_OK;
}

static ln_status add_losses(ln_train_program *p, const mode *m, const ln_train_batch *b, ln_train_result *out,
                            ln_error *err) {
    const float *weights = (const float *)(const void *)(p->host + p->input_at[LN_TRAIN_WEIGHTS]);
    LN_TRY(p->ops->value(m->exec, m->built.loss, 0, out->n_counted, p->read, false, err));
    for (int64_t n = 0; n < out->n_counted; n++) out->loss += (double)weights[n] * (double)p->read[n];
    for (int64_t n = 0; b->losses && n < out->n_counted; n++)
        b->losses[ln_step_out_rows(p->step)[n]] = p->read[n];
    out->finite = out->finite && isfinite(out->loss);
    return LN_OK;
}
/* A run whose gradients are added as soon as each is computed. */
typedef struct taking {
    ln_train_program *p;
    const mode *m;
    ln_train_result *out;
    ln_status st;
    ln_error *err;
} taking;
static void take_gradients(void *user, int node, double seconds) {
    taking *t = user;
    const ln_pnode *n = &t->m->program.nodes[node];
    (void)seconds;
    for (int k = 0; k < n->n_out; k++)
        for (size_t i = 0; i < t->p->n_pieces && t->st == LN_OK; i++)
            if (t->m->grads[i] == n->out[k]) t->st = ln_train_add_gradient(t->p, t->m, i, t->out, t->err);
}

static ln_status run_batch(ln_train_program *p, int which, const ln_train_batch *b, ln_train_result *out,
                           ln_error *err) {
    mode *m = &p->modes[which];
    uint64_t fence;
    *out = (ln_train_result){.finite = true};
    LN_TRY(check_batch(p, b, err));
    write_step(p, b, out);
    if (out->n_counted == 0) return LN_OK;
    LN_TRY(ln_train_write_params(p, err));
    taking t = {.p = p, .m = m, .out = out, .err = err};
    const ln_trace trace = {take_gradients, &t};
    const bool takes = which == TRAIN && p->opt.full;
    LN_TRY(p->ops->copy(p->queue, p->bound, p->host, p->bound_bytes, LN_COPY_IN, err));
    LN_TRY(p->ops->submit(m->exec, p->step, takes ? &trace : NULL, &fence, err));
    LN_TRY(p->ops->wait(p->queue, fence, err));
    LN_TRY(t.st);
    LN_TRY(add_losses(p, m, b, out, err));
    return which == TRAIN && !takes ? ln_train_add_gradients(p, m, out, err) : LN_OK;
}
ln_status ln_train_step(ln_train_program *p, const ln_train_batch *batch, ln_train_result *out,
                        ln_error *err) {
    return run_batch(p, TRAIN, batch, out, err);
}
ln_status ln_train_evaluate(ln_train_program *p, const ln_train_batch *batch, ln_train_result *out,
                            ln_error *err) {
    return run_batch(p, EVALUATE, batch, out, err);
}
