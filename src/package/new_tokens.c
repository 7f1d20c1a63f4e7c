/* Tokens that are added to a model's vocabulary (ln_options.add_tokens). package.h has the contracts.
 *
 * Rows beyond the model's are the mean of its rows, as transformers' resize_token_embeddings makes them,
 * which adds noise of a millionth. They are changes of tables, as those of an adapter. */
#include "../model/adapter_match.h"
#include "../model/row_lengths.h"
#include "package.h"

#include <stdlib.h>
#include <string.h>

static int by_id(const void *x, const void *y) {
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* Reads the ids of the texts, each once. */
static ln_status read_ids(ln_package *m, ln_error *err) {
    const char *text = m->opt.add_tokens;
    size_t n = 1;
    for (const char *at = text; *at; at++) n += *at == ',';
    m->added = ln_zalloc(n, sizeof *m->added);
    m->added_texts = ln_strndup(text, strlen(text));
    if (!m->added || !m->added_texts) return LN_OOM(err, "added tokens");
    for (size_t i = 0, bytes; i < n; i++, text += bytes + 1) {
        bytes = strcspn(text, ",");
        m->added[i] = ln_tok_id(m->tok, text, bytes);
    }
    qsort(m->added, n, sizeof *m->added, by_id);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || m->added[i] != m->added[i - 1]) m->added[m->n_added++] = m->added[i];
    return LN_OK;
}

enum { SOME = 256 };

/* Writes the mean of the rows of weight i to out[d1]. */
static ln_status mean_row(const ln_weights *w, size_t i, float *out, ln_error *err) {
    const int64_t rows = w->items[i].d0, cols = w->items[i].d1;
    double *sum = ln_zalloc((size_t)cols, sizeof *sum);
    float *some = ln_zalloc((size_t)(SOME * cols), sizeof *some);
    ln_status st = sum && some ? LN_OK : LN_OOM(err, "added tokens");
    for (int64_t r = 0; r < rows && st == LN_OK; r += SOME) {
        const int64_t n = LN_MIN(rows - r, (int64_t)SOME);
        st = ln_weight_rows(w, i, r, n, some, err);
        for (int64_t k = 0; k < n * cols; k++) sum[k % cols] += (double)some[k];
    }
    for (int64_t k = 0; k < cols && st == LN_OK; k++) out[k] = (float)(sum[k] / (double)rows);
    ln_free(sum), ln_free(some);
    return st;
}

/* Adds n rows, each the mean of the others, as a change of a table. */
static ln_status add_rows(ln_package *m, const char *path, int weight, int64_t n, ln_error *err) {
    ln_adapter_file *a = m->grown;
    const int64_t cols = m->weights.items[weight].d1;
    ln_adapter_change *x = &a->changes[a->n_changes++];
    ln_tensor *t = ln_arena_alloc(&a->arena, sizeof *t);
    ln_adapter_row *listed = ln_arena_alloc(&a->arena, (size_t)n * sizeof *listed);
    float *row = ln_arena_alloc(&a->arena, (size_t)cols * sizeof *row);
    if (!t || !listed || !row) return LN_OOM(err, "added tokens");
    for (int64_t i = 0; i < n; i++) listed[i] = (ln_adapter_row){(int32_t)(m->spec.V + i), 0};
    *t = (ln_tensor){.name = path, .dtype = LN_ST_F32, .n_dims = 2, .dims = {1, cols}};
    t->data = (const uint8_t *)row, t->bytes = (uint64_t)cols * sizeof *row;
    *x = (ln_adapter_change){
        .path = path, .full = path, .scale = 1, .rows = t, .listed = listed, .n_listed = n};
    return mean_row(&m->weights, (size_t)weight, row, err);
}

ln_status ln_package_add_tokens(ln_package *m, ln_error *err) {
    if (!m->opt.add_tokens) return LN_OK;
    LN_TRY(read_ids(m, err));
    const int64_t more = m->added[m->n_added - 1] + 1 - m->spec.V;
    const int head = m->weights.index_fixed[LN_W_HEAD];
    if (more <= 0) return LN_OK;
    if (!(m->grown = ln_zalloc(1, sizeof *m->grown))) return LN_OOM(err, "added tokens");
    (void)snprintf(m->grown->path, sizeof m->grown->path, "%s", m->path);
    m->grown->changes = ln_arena_alloc(&m->grown->arena, 2 * sizeof *m->grown->changes);
    if (!m->grown->changes) return LN_OOM(err, "added tokens");
    LN_TRY(add_rows(m, "embed_tokens", m->weights.index_fixed[LN_W_EMBED], more, err));
    if (head >= 0) LN_TRY(add_rows(m, "lm_head", head, more, err));
    const ln_adapted by = {m->grown, 1};
    return ln_weights_change(&m->weights, &m->spec, &by, 1, err);
}

void ln_package_close_added(ln_package *m) {
    ln_free(m->added);
    ln_free(m->added_texts);
    if (m->grown) ln_arena_free(&m->grown->arena);
    ln_free(m->grown);
}
