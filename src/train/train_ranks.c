/* Ranks that train together (trainer.h). Every rank has the whole model, the data and the state, and takes
 * the same steps; they exchange losses and gradients of micro-batches and nothing else. */
#include "../base/json_write.h"
#include "../base/xxh64.h"
#include "trainer.h"

#include <string.h>

uint64_t train_ranks_bytes(const train_trainer *t, uint64_t n_numbers) {
    return t->ranks ? (n_numbers + (uint64_t)(t->ranks->size + 1) * TRAIN_PIECE) * sizeof(float) : 0;
}

/* A digest of what decides the bits of a run: model, settings, samples, step and parameters. */
static uint64_t digest_of(const train_trainer *t) {
    ln_xxh64 h;
    ln_str settings = {0};
    const uint64_t model = ln_package_sample_digest(t->m);
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, &model, sizeof model);
    ln_str_json_value(&settings, t->settings);
    if (settings.data) ln_xxh64_add(&h, settings.data, settings.len);
    ln_str_free(&settings);
    ln_xxh64_add(&h, &t->info.n_rows, sizeof t->info.n_rows);
    ln_xxh64_add(&h, &t->state.step, sizeof t->state.step);
    for (size_t i = 0; i < t->data.n; i++)
        ln_xxh64_add(&h, t->data.ids + t->data.samples[i].at, t->data.samples[i].n * sizeof *t->data.ids);
    for (size_t i = 0; i < t->state.n_params; i++) {
        const train_param *p = &t->state.params[i];
        ln_xxh64_add(&h, p->value, (size_t)(p->rows * p->cols) * sizeof *p->value);
    }
    return ln_xxh64_value(&h);
}

ln_status train_ranks_open(train_trainer *t, ln_status st, ln_error *err) {
    ln_transport *ranks = ln_ranks_data(NULL);
    if (st == LN_OK) {
        t->sum = ln_arena_alloc(&t->arena, (t->info.n_trainable + 1) * sizeof *t->sum);
        t->gathered = ln_arena_alloc(&t->arena, (size_t)ranks->size * TRAIN_PIECE * sizeof *t->gathered);
        t->piece = ln_arena_alloc(&t->arena, TRAIN_PIECE * sizeof *t->piece);
        if (!t->sum || !t->gathered || !t->piece) st = LN_OOM(err, "the gradients of ranks");
    }
    return st == LN_OK ? train_ranks_compare(t, st, err) : ln_ranks_agree(ranks, st, 0, "", err);
}
ln_status train_ranks_compare(train_trainer *t, ln_status st, ln_error *err) {
    return ln_ranks_agree(t->ranks, st, st == LN_OK ? digest_of(t) : 0,
                          "model, data, settings or checkpoint are others than those of rank 0", err);
}

void train_ranks_clear(train_trainer *t) { memset(t->sum, 0, t->info.n_trainable * sizeof *t->sum); }

void train_ranks_finish(train_trainer *t) {
    size_t n;
    const ln_train_param *x = ln_train_program_params(t->program, &n);
    const float *from = t->sum;
    for (size_t i = 0; i < n; i++) {
        memcpy(x[i].grad, from, (size_t)(x[i].rows * x[i].cols) * sizeof *from);
        from += x[i].rows * x[i].cols;
    }
}

/* Adds n numbers of every rank that has run a micro-batch, in the order of ranks. */
static ln_status add_piece(train_trainer *t, const ln_train_result *all, size_t n, float *restrict sum) {
    enum { VECTOR = 8 };
    ln_transport *k = t->ranks;
    LN_TRY(k->all_gather(k, t->piece, n * sizeof *t->piece, t->gathered));
    for (int r = 0; r < k->size; r++) {
        const float *restrict from = t->gathered + (size_t)r * n;
        size_t i = all[r].n_counted ? 0 : n;
        for (; i + VECTOR <= n; i += VECTOR)
            for (size_t v = 0; v < VECTOR; v++) sum[i + v] += from[i + v];
        for (; i < n; i++) sum[i] += from[i];
    }
    return LN_OK;
}
/* Adds the gradients of all parameters, which are exchanged in pieces that do not end with a parameter: an
 * exchange of few numbers takes as long as one of many. */
static ln_status add_gradients(train_trainer *t, const ln_train_result *all) {
    size_t n, in_piece = 0;
    const ln_train_param *x = ln_train_program_params(t->program, &n);
    float *sum = t->sum;
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0, some, size = (size_t)(x[i].rows * x[i].cols); at < size; at += some) {
            some = LN_MIN(size - at, (size_t)TRAIN_PIECE - in_piece);
            memcpy(t->piece + in_piece, x[i].grad + at, some * sizeof *t->piece);
            in_piece += some;
            if (in_piece < TRAIN_PIECE) continue;
            LN_TRY(add_piece(t, all, in_piece, sum));
            sum += in_piece, in_piece = 0;
        }
    return in_piece ? add_piece(t, all, in_piece, sum) : LN_OK;
}

ln_status train_ranks_scores(train_trainer *t, size_t n, ln_error *err) {
    enum { SOME = TRAIN_PIECE * sizeof(float) / sizeof(train_scored) };
    ln_transport *k = t->ranks;
    const train_scored *all = (const train_scored *)(const void *)t->gathered;
    for (size_t at = 0, some; at < n; at += some) {
        some = LN_MIN(n - at, (size_t)SOME);
        if (k->all_gather(k, t->scored + at, some * sizeof *all, t->gathered) != LN_OK)
            return ln_ranks_failed(k, err);
        for (size_t i = 0; i < some; i++)
            t->scored[at + i] = all[t->bins[at + i] % (size_t)k->size * some + i];
    }
    return LN_OK;
}

ln_status train_ranks_round(train_trainer *t, ln_status st, const ln_train_result *mine, bool trains,
                            train_sums *out, ln_error *err) {
    ln_transport *k = t->ranks;
    const ln_train_result none = {.finite = true};
    LN_TRY(ln_ranks_agree(k, st, 0, "", err));
    ln_train_result *all = ln_zalloc((size_t)k->size, sizeof *all);
    if (!all) return LN_OOM(err, "ranks");
    st = k->all_gather(k, mine ? mine : &none, sizeof *all, all);
    for (int r = 0; r < k->size && st == LN_OK; r++) {
        out->loss += all[r].loss;
        out->n_counted += all[r].n_counted;
        out->finite = out->finite && all[r].finite;
    }
    if (st == LN_OK && trains) st = add_gradients(t, all);
    if (st != LN_OK && err) *err = k->failed;
    ln_free(all);
    return st;
}
