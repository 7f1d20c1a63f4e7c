/* DoRA in training (contract: train_parts.h). Programs multiply by m / length, and the length of a row of
 * W + scale B A is a constant for the gradient: it is computed before the first micro-batch of each step, the
 * products with W on the device, the rest here in double. */
#include "../model/row_lengths.h"
#include "compile.h"
#include "train_parts.h"

#include <math.h>
#include <stdio.h>

/* Returns a copy of a value of another graph that run/ binds, with its slot. */
static ln_v copy_bound(ln_graph *g, const ln_value *v) {
    if (v->kind == LN_KIND_TRAINABLE)
        return ln_g_trainable(g, v->name, v->slot, v->dtype, v->n_dims, v->dims);
    if (!ln_encoding_is_dense(v->enc)) return ln_g_encoded(g, v->name, v->enc, v->slot, v->n_dims, v->dims);
    return ln_g_weight(g, v->name, v->dtype, v->slot, v->dims[0], v->dims[1]);
}

/* Builds in *g, which is open, what of the lengths of the rows of W + scale B A depends on A and B: for each
 * module of `of`, whose graph is `from`, the output out[i], [rank, n_out], 2 scale A W^T + scale^2 A A^T B^T.
 * The square of row o's length is that of W's row plus the sum over j of B[o][j] out[i][j][o]. LN_EMEMORY. */
static ln_status build_products(ln_graph *g, const ln_graph *from, const ln_lora_graph *of, double scale,
                                ln_v *out, ln_error *err) {
    ln_g_layer(g, -1, "");
    for (int i = 0; i < of->n_modules && g->error.code == LN_OK; i++) {
        const ln_lora_module *m = &of->modules[i];
        const ln_value *w = NULL;
        for (size_t v = 0; v < from->n_values && !w; v++)
            if (from->values[v].kind == LN_KIND_WEIGHT && from->values[v].slot == m->weight)
                w = &from->values[v];
        char name[80];
        (void)snprintf(name, sizeof name, "%.60s.%s", w->name, "products");
        const ln_v a = ln_g_load(g, "a", copy_bound(g, &from->values[m->a]));
        const ln_v b = ln_g_load(g, "b", copy_bound(g, &from->values[m->b]));
        const ln_v first =
            ln_g_scale(g, "a_w", ln_g_linear(g, "a_w", a, copy_bound(g, w), -1), (float)(2 * scale));
        const ln_v gram =
            ln_g_scale(g, "a_a", ln_g_matmul(g, "a_a", a, a, LN_MATMUL_NT), (float)(scale * scale));
        out[i] = ln_g_add(g, name, first, ln_g_matmul(g, "a_a_b", gram, b, LN_MATMUL_NT));
        ln_g_output(g, out[i]);
    }
    if (err) *err = g->error;
    return g->error.code;
}

ln_status ln_directions_build(ln_train_program *p, ln_error *err) {
    mode *m = &p->modes[LENGTHS];
    const mode *train = &p->modes[TRAIN];
    ln_graph_open(&m->graph);
    m->n_pieces = (size_t)train->lora.n_modules;
    m->grads = ln_arena_alloc(&m->graph.arena, (m->n_pieces + 1) * sizeof *m->grads);
    if (!m->grads) return LN_OOM(err, "the lengths of rows");
    LN_TRY(build_products(&m->graph, &train->graph, &train->lora, p->opt.lora.scale, m->grads, err));
    return ln_graph_check(&m->graph, "lengths", err);
}

void ln_directions_add(ln_train_program *p, int i, const ln_weight *w, size_t *at) {
    const size_t bytes = ln_train_aligned((size_t)w->d0 * sizeof(float));
    direction *d = &p->directions[i];
    *d = (direction){.per_length = *at, .bias = SIZE_MAX};
    *at += bytes;
    if (p->modes[TRAIN].lora.modules[i].bias < 0) return;
    d->bias = *at;
    *at += bytes;
}

uint64_t ln_directions_bytes(ln_train_program *p) {
    const ln_lora_graph *all = &p->modes[TRAIN].lora;
    uint64_t bytes = 0;
    for (int i = 0; p->directions && i < all->n_modules; i++) {
        const size_t n = (size_t)p->weights->items[all->modules[i].weight].d0;
        bytes += n * sizeof(double);
        p->read_numbers = LN_MAX(p->read_numbers, n * (size_t)p->opt.lora.rank);
    }
    return bytes;
}

ln_status ln_directions_open(ln_train_program *p, ln_error *err) {
    const ln_lora_graph *all = &p->modes[TRAIN].lora;
    for (int i = 0; i < all->n_modules; i++) {
        direction *d = &p->directions[i];
        const size_t weight = (size_t)all->modules[i].weight;
        const ln_weight *w = &p->weights->items[weight];
        d->squares = ln_zalloc((size_t)w->d0, sizeof *d->squares);
        if (!d->squares) return LN_OOM(err, "the lengths of rows");
        LN_TRY(ln_row_squares(p->weights, weight, NULL, ln_run_pool(&p->opt.run), p->opt.run.n_threads,
                              d->squares, err));
        if (d->bias == SIZE_MAX) continue;
        LN_TRY(ln_trained_weights_read(p->weights, (size_t)all->modules[i].bias_weight,
                                       (float *)(void *)(p->host + d->bias), err));
    }
    return LN_OK;
}

void ln_directions_init(ln_train_program *p) {
    for (size_t k = 0; k < p->n_pieces; k++) {
        const piece *y = &p->pieces[k];
        const double *squares = p->directions[y->slot / LN_LORA_PARTS].squares;
        float *to = p->params[y->param].value + y->row0;
        for (int64_t o = 0; y->slot % LN_LORA_PARTS == LN_LORA_MAGNITUDE && o < y->rows; o++)
            to[o] = (float)sqrt(squares[o]);
    }
}

/* 1 / the length of row o of W + scale B A, of module i, whose products are in p->read; of a row of zeros 0,
 * which leaves it as it is. */
static float per_length(const ln_train_program *p, int i, int64_t o, int64_t n_out) {
    const int64_t rank = p->opt.lora.rank;
    const uint8_t *b = p->host + ln_train_piece(p, LN_LORA_PARTS * i + LN_LORA_B)->at;
    double square = p->directions[i].squares[o];
    for (int64_t j = 0; j < rank; j++)
        square += (double)ln_num_load(b, p->opt.lora.dtype, o * rank + j) * (double)p->read[j * n_out + o];
    return square > 0 ? (float)(1 / sqrt(square)) : 0;
}

/* Writes what DoRA multiplies by next to the magnitudes: 1 / the length of each row with the values of A and
 * B that p->host has. A row of zeros divides by 0 in PEFT, too: its step is not finite and updates nothing.
 */
ln_status ln_directions_write(ln_train_program *p, ln_error *err) {
    mode *m = &p->modes[LENGTHS];
    uint64_t fence;
    LN_TRY(p->ops->copy(p->queue, p->bound, p->host, p->bound_bytes, LN_COPY_IN, err));
    LN_TRY(p->ops->submit(m->exec, p->step, NULL, &fence, err));
    LN_TRY(p->ops->wait(p->queue, fence, err));
    for (int i = 0; i < (int)m->n_pieces; i++) {
        const int64_t n_out = p->weights->items[p->modes[TRAIN].lora.modules[i].weight].d0;
        float *to = (float *)(void *)(p->host + p->directions[i].per_length);
        LN_TRY(p->ops->value(m->exec, m->grads[i], 0, p->opt.lora.rank, p->read, false, err));
        for (int64_t o = 0; o < n_out; o++) to[o] = per_length(p, i, o, n_out);
    }
    return LN_OK;
}
