/* What a file of PEFT has for tensors of the model itself: LoRA on the embedding table and on the output
 * head, rows of trained tokens, modules that are saved whole. adapter.h has the contracts.
 *
 * Names, after base_model.model. and the prefixes of checkpoints:
 *
 *   embed_tokens.lora_embedding_A, .lora_embedding_B      LoRA on the embedding
 *   lm_head.lora_A.weight, lm_head.lora_B.weight          LoRA on the head
 *   embed_tokens.token_adapter.trainable_tokens_delta     rows of trained tokens: their values, no
 * differences M.weight, M.bias                                      a module of modules_to_save; else a table
 * as a copy M.base_layer.weight, M.token_adapter.base_layer.weight a copy of a table that has an adapter
 *   M.original_module.weight, M.modules_to_save.weight, .trainable_tokens_original   what PEFT adds if the
 *                                                         vocabulary was resized: not read */
#include "../base/dir_names.h"
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

static const char base_prefix[] = "base_model.model.";
static const char table[] = "embed_tokens", head[] = "lm_head";

bool ln_adapter_is_embedding(const ln_adapter_change *x) { return strcmp(x->path, table) == 0; }
bool ln_adapter_is_head(const ln_adapter_change *x) { return strcmp(x->path, head) == 0; }

/* What a tensor is of its module. */
typedef enum part { WHOLE, BIAS, COPY, ROWS, TABLE_A, TABLE_B, HEAD_A, HEAD_B, UNREAD, PARTS } part;
typedef struct ending {
    const char *end;
    part is;
    bool of_tables; /* of the embedding and the head alone */
} ending;
/* The longer endings come first. */
static const ending endings[] = {{".token_adapter.trainable_tokens_delta", ROWS, true},
                                 {".token_adapter.trainable_tokens_original", UNREAD, true},
                                 {".token_adapter.base_layer.weight", COPY, true},
                                 {".original_module.weight", UNREAD, false},
                                 {".original_module.bias", UNREAD, false},
                                 {".modules_to_save.weight", UNREAD, false},
                                 {".modules_to_save.bias", UNREAD, false},
                                 {".base_layer.weight", COPY, true},
                                 {".lora_embedding_A", TABLE_A, true},
                                 {".lora_embedding_B", TABLE_B, true},
                                 {".lora_A.weight", HEAD_A, true},
                                 {".lora_B.weight", HEAD_B, true},
                                 {".weight", WHOLE, false},
                                 {".bias", BIAS, false}};

static ln_status refuse(const ln_adapter_file *a, const ln_tensor *t, ln_status st, const char *why,
                        ln_error *err) {
    char shown[80];
    return ln_fail(err, st, "%s: tensor %s: %s", a->tensors.files[t->file].path,
                   ln_excerpt(shown, t->name, t->name_bytes), why);
}

const char *ln_adapter_path(const char *path) {
    static const char *const prefixes[] = {"language_model.", "model."};
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < LN_COUNT(prefixes); i++)
            if (strncmp(path, prefixes[i], strlen(prefixes[i])) == 0)
                path += strlen(prefixes[i]), again = true;
    }
    return path;
}

/* The change of a module, which is added if the file has none yet; NULL: out of memory. */
static ln_adapter_change *change_of(ln_adapter_file *a, const char *full, size_t n, bool is_bias) {
    if (!a->changes) a->changes = ln_arena_alloc(&a->arena, (a->tensors.n + 1) * sizeof *a->changes);
    const char *name = ln_arena_strndup(&a->arena, full, n);
    if (!a->changes || !name) return NULL;
    const char *path = ln_adapter_path(name);
    for (size_t i = 0; i < a->n_changes; i++)
        if (strcmp(a->changes[i].path, path) == 0 && a->changes[i].is_bias == is_bias) return &a->changes[i];
    ln_adapter_change *x = &a->changes[a->n_changes++];
    *x = (ln_adapter_change){.path = path, .full = name, .is_bias = is_bias, .scale = 1};
    return x;
}

/* Stores the tensor as the part of its change. */
static ln_status keep(ln_adapter_file *a, ln_adapter_change *x, part is, const ln_tensor *t, ln_error *err) {
    const ln_tensor **to = is == ROWS                      ? &x->rows
                           : is == TABLE_A || is == HEAD_A ? &x->a
                           : is == TABLE_B || is == HEAD_B ? &x->b
                                                           : &x->whole;
    if (*to) return refuse(a, t, LN_EINVALID, "the same module occurs twice, under two prefixes", err);
    if (t->dtype != LN_ST_F32 && t->dtype != LN_ST_BF16 && t->dtype != LN_ST_F16)
        return refuse(a, t, LN_EUNSUPPORTED, "expected f32, bf16 or f16", err);
    if (t->bytes == 0 || t->n_dims < 1 || t->n_dims > 2 || (t->n_dims != 2 && is != WHOLE && is != BIAS))
        return refuse(a, t, LN_EINVALID,
                      is == WHOLE || is == BIAS ? "expected a matrix or a vector" : "expected a matrix", err);
    *to = t;
    if (is == COPY) x->is_copy = true, a->n_copies++;
    return LN_OK;
}

ln_status ln_adapter_take_change(ln_adapter_file *a, const ln_adapter_config *c, const ln_tensor *t,
                                 bool *taken, ln_error *err) {
    const char *full = t->name + sizeof base_prefix - 1;
    size_t i = 0, n = 0;
    char module[224];
    *taken = false;
    if (a->layout != LN_ADAPTER_PEFT || strncmp(t->name, base_prefix, sizeof base_prefix - 1) != 0)
        return LN_OK;
    while (i < LN_COUNT(endings) && !ln_ends_with(full, endings[i].end)) i++;
    if (i == LN_COUNT(endings)) return LN_OK;
    n = strlen(full) - strlen(endings[i].end);
    if (n == 0 || n >= sizeof module) return LN_OK;
    (void)snprintf(module, sizeof module, "%.*s", (int)n, full);
    const char *path = ln_adapter_path(module);
    const bool is_table = strcmp(path, table) == 0, is_head = strcmp(path, head) == 0;
    part is = endings[i].is;
    if ((is == TABLE_A || is == TABLE_B) && !is_table)
        return refuse(a, t, LN_EUNSUPPORTED, "LoRA on this embedding is not applied: that of embed_tokens is",
                      err);
    if ((is == HEAD_A || is == HEAD_B) && is_table)
        return refuse(a, t, LN_EINVALID, "expected lora_embedding_A and lora_embedding_B of an embedding",
                      err);
    if ((is == HEAD_A || is == HEAD_B) && !is_head) return LN_OK; /* a pair of a layer */
    if (endings[i].of_tables && !is_table && !is_head) return LN_OK;
    if (is == WHOLE && !ln_adapter_saves(c, module)) {
        if (!is_table && !is_head) return LN_OK; /* the caller rejects it */
        is = COPY;
    }
    if (is == BIAS && !ln_adapter_saves(c, module)) return LN_OK;
    *taken = true;
    if (is == UNREAD) {
        a->n_copies++;
        return LN_OK;
    }
    ln_adapter_change *x = change_of(a, full, n, is == BIAS);
    return x ? keep(a, x, is, t, err) : LN_OOM(err, "an adapter");
}

/* ---- checks ---- */

static int by_id(const void *x, const void *y) {
    const ln_adapter_row *a = x, *b = y;
    return (a->id > b->id) - (a->id < b->id);
}

/* Reads which rows a change has. */
static ln_status read_ids(ln_adapter_file *a, const ln_adapter_config *c, ln_adapter_change *x,
                          ln_error *err) {
    const json_t *ids = ln_adapter_token_ids(c, x->full);
    const size_t n = json_array_size(ids);
    char why[120];
    if ((int64_t)n != x->rows->dims[0]) {
        (void)snprintf(why, sizeof why,
                       "has %lld rows, and trainable_token_indices of adapter_config.json lists %zu ids",
                       (long long)x->rows->dims[0], n);
        return refuse(a, x->rows, LN_EINVALID, why, err);
    }
    ln_adapter_row *listed = ln_arena_alloc(&a->arena, (n + 1) * sizeof *listed);
    if (!listed) return LN_OOM(err, "an adapter");
    for (size_t i = 0; i < n; i++)
        listed[i] = (ln_adapter_row){(int32_t)json_integer_value(json_array_get(ids, i)), (int32_t)i};
    qsort(listed, n, sizeof *listed, by_id);
    for (size_t i = 1; i < n; i++)
        if (listed[i].id == listed[i - 1].id)
            return refuse(a, x->rows, LN_EINVALID, "trainable_token_indices lists an id twice", err);
    x->listed = listed, x->n_listed = (int64_t)n;
    return LN_OK;
}

/* Checks A and B, and reads rank and scale. */
static ln_status read_pair(ln_adapter_file *a, const ln_adapter_config *c, ln_adapter_change *x,
                           ln_error *err) {
    bool named, whole;
    int64_t rank;
    const bool of_table = ln_adapter_is_embedding(x);
    if (!x->a || !x->b) return refuse(a, x->a ? x->a : x->b, LN_EINVALID, "its other half is missing", err);
    if (c->dora)
        return refuse(a, x->a, LN_EUNSUPPORTED, "DoRA on the embedding or the output head is not applied",
                      err);
    LN_TRY(ln_adapter_rank_of(c, x->full, &rank, err));
    if (x->a->dims[0] != rank || x->b->dims[1] != rank)
        return ln_fail(err, LN_EINVALID,
                       "%s: %s: A is [%lld,%lld] and B is [%lld,%lld]; expected rank %lld, which "
                       "adapter_config.json states",
                       a->tensors.files[x->a->file].path, x->full, (long long)x->a->dims[0],
                       (long long)x->a->dims[1], (long long)x->b->dims[0], (long long)x->b->dims[1],
                       (long long)rank);
    LN_TRY(ln_adapter_targets(c, x->full, x->path, &named, &whole, err));
    if (!named && !(a->tied && ln_adapter_is_head(x))) /* a tied head follows the embedding */
        return ln_fail(err, LN_EINVALID, "%s: the module %s has tensors and is not among those that it names",
                       c->path, x->full);
    x->rank = rank;
    LN_TRY(ln_adapter_scale_of(c, x->full, rank, &x->scale, err));
    if (x->rows)
        return refuse(a, x->rows, LN_EUNSUPPORTED,
                      of_table ? "expected LoRA on the embedding or rows of it, found both"
                               : "expected LoRA on the output head or rows of it, found both",
                      err);
    return LN_OK;
}

/* Columns of the tensor that a change is for; 0: a vector. */
static int64_t columns_of(const ln_adapter_change *x) {
    if (x->whole) return x->whole->n_dims > 1 ? x->whole->dims[1] : 0;
    if (x->rows) return x->rows->dims[1];
    return ln_adapter_is_embedding(x) ? x->b->dims[0] : x->a->dims[1];
}

ln_status ln_adapter_check_changes(ln_adapter_file *a, const ln_adapter_config *c, ln_error *err) {
    for (size_t i = 0; i < a->n_changes; i++) {
        ln_adapter_change *x = &a->changes[i];
        if (x->rows) LN_TRY(read_ids(a, c, x, err));
        if (x->a || x->b) LN_TRY(read_pair(a, c, x, err));
        const int64_t cols = columns_of(x);
        if ((x->rows && x->rows->dims[1] != cols) ||
            (x->a && (ln_adapter_is_embedding(x) ? x->b->dims[0] : x->a->dims[1]) != cols))
            return refuse(a, x->rows ? x->rows : x->a, LN_EINVALID,
                          "its width is not that of the table that is saved with it", err);
    }
    return LN_OK;
}

bool ln_adapter_changes_model(const ln_adapter_file *a) {
    for (size_t i = 0; i < a->n_changes; i++) {
        const ln_adapter_change *x = &a->changes[i];
        if (!x->is_copy || x->differs || x->a || x->rows) return true;
    }
    return false;
}

/* ---- rows ---- */

static const ln_adapter_row *listed(const ln_adapter_change *x, int64_t r) {
    const ln_adapter_row key = {.id = (int32_t)r};
    return x->n_listed ? bsearch(&key, x->listed, (size_t)x->n_listed, sizeof key, by_id) : NULL;
}

bool ln_adapter_has_row(const ln_adapter_change *x, int64_t r) {
    return listed(x, r) || (x->whole && r < x->whole->dims[0]);
}

int64_t ln_adapter_rows_of(const ln_adapter_change *x) {
    const int64_t most = x->n_listed ? x->listed[x->n_listed - 1].id + 1 : 0;
    const int64_t pair = x->a ? (ln_adapter_is_embedding(x) ? x->a->dims[1] : x->b->dims[0]) : 0;
    return LN_MAX(LN_MAX(most, pair), x->whole ? x->whole->dims[0] : 0);
}

void ln_adapter_changed_row(const ln_adapter_change *x, int64_t r, int64_t cols, const float *base,
                            double *out) {
    const ln_adapter_row *own = listed(x, r);
    const ln_tensor *from = own ? x->rows : x->whole && r < x->whole->dims[0] ? x->whole : NULL;
    const size_t row = (size_t)(own ? own->at : r);
    for (int64_t k = 0; k < cols; k++)
        out[k] = from ? (double)ln_adapter_value(from, row * (size_t)cols + (size_t)k) : (double)base[k];
    if (!x->a) return;
    const int64_t n_rows = ln_adapter_rows_of(x);
    for (int64_t j = 0; j < x->rank; j++) {
        const bool e = ln_adapter_is_embedding(x);
        const double by = x->scale * (double)(e ? ln_adapter_value(x->a, (size_t)(j * n_rows + r))
                                                : ln_adapter_value(x->b, (size_t)(r * x->rank + j)));
        for (int64_t k = 0; k < cols; k++)
            out[k] += by * (double)(e ? ln_adapter_value(x->b, (size_t)(k * x->rank + j))
                                      : ln_adapter_value(x->a, (size_t)(j * cols + k)));
    }
}
