/* DoRA in training (contract: train_parts.h). Programs multiply by m / length, and the length of a row of
 * W + scale B A is a constant for the gradient: it is computed before the first micro-batch of each step, the
 * products with W on the device, the rest here in double. */
#include "../model/row_lengths.h"
#include "compile.h"
#include "train_parts.h"

#include <math.h>
#include <stdio.h>

ln_status ln_directions_build(ln_train_program *p, ln_error *err) {
    mode *m = &p->modes[LENGTHS];
    const mode *train = &p->modes[TRAIN];
    ln_graph_open(&m->graph);
    m->n_pieces = (size_t)train->lora.n_modules;
    m->grads = ln_arena_alloc(&m->graph.arena, (m->n_pieces + 1) * sizeof *m->grads);
    if (!m->grads) return LN_OOM(err, "the lengths of rows");
    LN_TRY(ln_graph_row_products(&m->graph, &train->graph, &train->lora, p->opt.lora.scale, m->grads, err));
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
