/* The embedding and the head in training (contract: train_parts.h), with LoRA or with rows of trained tokens.
 *
 * Rows of tokens are parameters as they will be saved. Programs read what these rows add to those of the
 * model, which are looked up and multiplied as ever: a token that is not trained has the bits that it had. */
#include "../model/row_lengths.h"
#include "train_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sets the path of the module of a parameter. */
static void name_table(ln_train_param *x, bool head) {
    x->slot = head ? LN_W_HEAD : LN_W_EMBED;
    (void)snprintf(x->path, sizeof x->path, "%s", head ? "lm_head" : "embed_tokens");
}

/* Describes LoRA on the embedding, or on a head that is the embedding. */
static void describe_pair(ln_train_program *p, int i, size_t *of, size_t *at) {
    const ln_lora_module *m = &p->modes[TRAIN].lora.modules[i];
    const ln_weight *w = &p->weights->items[m->weight];
    const int64_t rank = p->opt.lora.rank;
    const bool lookup = m->kind == LN_LORA_LOOKUP;
    of[i] = p->n_params;
    ln_train_param *a = ln_train_add_param(p, w, lookup ? w->d0 : rank, lookup ? rank : w->d1),
                   *b = ln_train_add_param(p, w, lookup ? w->d1 : w->d0, rank);
    b->is_b = true;
    a->is_lookup = b->is_lookup = lookup;
    name_table(a, !lookup), name_table(b, !lookup);
    if (lookup)
        p->pieces[p->n_pieces++] =
            (piece){.param = of[i], .slot = LN_LORA_PARTS * i + LN_LORA_A, .is_lookup = true, .at = *at};
    else ln_train_add_piece(p, of[i], LN_LORA_PARTS * i + LN_LORA_A, 0, rank, at);
    ln_train_add_piece(p, of[i] + 1, LN_LORA_PARTS * i + LN_LORA_B, 0, b->rows, at);
}

/* Describes a table that is trained as a whole. */
static void describe_whole(ln_train_program *p, int i, size_t *of, size_t *at) {
    const ln_lora_module *m = &p->modes[TRAIN].lora.modules[i];
    const ln_weight *w = &p->weights->items[m->weight];
    const bool head = m->kind == LN_LORA_WHOLE_HEAD;
    of[i] = p->n_params;
    ln_train_param *x = ln_train_add_param(p, w, w->d0, w->d1);
    x->is_whole = true;
    x->is_lookup = !head;
    name_table(x, head);
    if (head) ln_train_add_piece(p, of[i], LN_LORA_PARTS * i + LN_LORA_A, 0, x->rows, at);
    else
        p->pieces[p->n_pieces++] =
            (piece){.param = of[i], .slot = LN_LORA_PARTS * i + LN_LORA_A, .is_lookup = true, .at = *at};
}

void ln_tables_describe(ln_train_program *p, int i, size_t *of, size_t *at) {
    const ln_lora_module *m = &p->modes[TRAIN].lora.modules[i];
    const ln_weight *w = &p->weights->items[m->weight];
    if (m->kind == LN_LORA_WHOLE_TABLE || m->kind == LN_LORA_WHOLE_HEAD) {
        describe_whole(p, i, of, at);
        return;
    }
    if (m->kind == LN_LORA_PRODUCT || m->kind == LN_LORA_LOOKUP) {
        describe_pair(p, i, of, at);
        return;
    }
    if (m->first != i) return; /* a tied head has those of the embedding */
    of[i] = p->n_params;
    ln_train_param *x = ln_train_add_param(p, w, p->opt.lora.n_tokens, w->d1);
    x->is_rows = true;
    name_table(x, m->kind == LN_LORA_HEAD_ROWS);
    ln_train_add_piece(p, of[i], LN_LORA_PARTS * i + LN_LORA_A, 0, x->rows, at);
    p->n_token_rows += (size_t)(x->rows * x->cols);
}

ln_status ln_tables_open(ln_train_program *p, ln_error *err) {
    float *to = p->token_rows = p->n_token_rows ? ln_zalloc(p->n_token_rows, sizeof *to) : NULL;
    if (!p->n_token_rows) return LN_OK;
    if (!to) return LN_OOM(err, "rows of tokens");
    for (size_t k = 0; k < p->n_pieces; k++) {
        piece *y = &p->pieces[k];
        const ln_train_param *x = &p->params[y->param];
        const int weight = p->modes[TRAIN].lora.modules[y->slot / LN_LORA_PARTS].weight;
        if (!x->is_rows) continue;
        y->base = to;
        for (int i = 0; i < p->opt.lora.n_tokens; i++, to += x->cols)
            LN_TRY(ln_weight_rows(p->weights, (size_t)weight, p->opt.lora.tokens[i], 1, to, err));
    }
    return LN_OK;
}

/* Reads a table. Pages of the file that are read in place are released. */
static ln_status read_table(const ln_train_program *p, size_t weight, const ln_train_param *x,
                            ln_error *err) {
    enum { SOME = 256 }; /* rows that are read at once */
    const ln_weight *w = &p->weights->items[weight];
    if (ln_encoding_is_dense(w->enc) && !w->made)
        return ln_trained_weights_read(p->weights, weight, x->value, err);
    for (int64_t r = 0, n; r < x->rows; r += n) {
        n = LN_MIN((int64_t)SOME, x->rows - r);
        LN_TRY(ln_weight_rows(p->weights, weight, r, n, x->value + r * x->cols, err));
    }
    return LN_OK;
}

ln_status ln_tables_init(ln_train_program *p, ln_error *err) {
    for (size_t k = 0; k < p->n_pieces; k++) {
        const piece *y = &p->pieces[k];
        const ln_train_param *x = &p->params[y->param];
        const size_t weight = (size_t)p->modes[TRAIN].lora.modules[y->slot / LN_LORA_PARTS].weight;
        if (y->base) memcpy(x->value, y->base, (size_t)(x->rows * x->cols) * sizeof *x->value);
        if (x->is_whole) LN_TRY(read_table(p, weight, x, err));
    }
    return LN_OK;
}

/* Writes which trained token each row of the step is. */
static void choose(ln_train_program *p) {
    const int n = p->opt.lora.n_tokens;
    float *to = (float *)(void *)(p->host + p->input_at[LN_TRAIN_CHOSEN]);
    for (int64_t r = 0; r < p->step->n_rows; r++)
        for (int i = 0; i < n; i++) *to++ = p->opt.lora.tokens[i] == ln_step_ids(p->step)[r];
}

/* Writes the rows of A, or of the table, that the tokens of the step have. */
static void look_up(ln_train_program *p, const ln_train_param *x) {
    float *to = (float *)(void *)(p->host + p->input_at[LN_TRAIN_LOOKED_UP]);
    for (int64_t r = 0; r < p->step->n_rows; r++) {
        const float *row = x->value + ln_step_ids(p->step)[r] * x->cols;
        for (int64_t k = 0; k < x->cols; k++)
            *to++ = ln_train_dtype(p, x) == LN_BF16 ? ln_bf16_f32(ln_f32_bf16(row[k])) : row[k];
    }
}

void ln_tables_inputs(ln_train_program *p) {
    if (p->token_rows) choose(p);
    for (size_t k = 0; k < p->n_pieces; k++)
        if (p->pieces[k].is_lookup) look_up(p, &p->params[p->pieces[k].param]);
}

bool ln_tables_add(ln_train_program *p, const piece *y, int64_t first, int64_t n, const float *from) {
    const ln_train_param *x = &p->params[y->param];
    bool finite = true;
    for (int64_t r = first; r < first + n; r++, from += x->cols) {
        const int32_t id = ln_step_ids(p->step)[r];
        float *grad = x->grad + id * x->cols;
        for (int64_t k = 0; k < x->cols && id + 1 != p->spec->padding; k++) {
            grad[k] += from[k];
            finite &= isfinite(grad[k]) != 0;
        }
    }
    return finite;
}

void ln_tables_write(ln_train_program *p, const piece *y, const ln_train_param *x) {
    float *to = (float *)(void *)(p->host + y->at);
    for (int64_t i = 0; i < x->rows * x->cols; i++) to[i] = x->value[i] - y->base[i];
}
