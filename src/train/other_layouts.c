/* Layouts of adapters other than PEFT's (contract: other_layouts.h). */
#include "other_layouts.h"

#include <stdio.h>
#include <string.h>

/* A layout: its file, what names begin with less than PEFT's, their ends, and whether A is [in,r] and B
 * [r,out]. */
typedef struct layout {
    const char *name, *file, *without, *a, *b, *m; /* m NULL: it has no DoRA */
    bool turned;
} layout;
static const layout layouts[] = {
    [LN_ADAPTER_AS_MLX_LM] = {"mlx-lm's layout", "adapters.safetensors", "base_model.model.", ".lora_a",
                              ".lora_b", ".m", true},
    [LN_ADAPTER_AS_GO_MLX] = {"go-mlx's layout", "adapter.safetensors", "base_model.model.model.", ".lora_a",
                              ".lora_b", NULL, false},
};

/* How many of the last layers are adapted, if no other ones are; 0: others are, too. */
static int last_layers(const train_trainer *t) {
    const bool *layers = t->program_options.lora.layers;
    const int L = t->m->spec.L;
    int first = 0;
    if (!layers) return L;
    while (first < L && !layers[first]) first++;
    for (int l = first; l < L; l++)
        if (!layers[l]) return 0;
    return L - first;
}

ln_status train_layout_check(const train_trainer *t, ln_error *err) {
    if (t->how.adapter_as == LN_ADAPTER_AS_PEFT) return LN_OK;
    const layout *y = &layouts[t->how.adapter_as];
    if (t->m->config.text != t->m->config.root)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "ln_trainer_options.adapter_as: %s is written for text models alone, and this one has "
                       "images; "
                       "expected LN_ADAPTER_AS_PEFT",
                       y->name);
    const ln_lora *lora = &t->program_options.lora;
    if (lora->targets[LN_W_EMBED] || lora->targets[LN_W_HEAD] || lora->n_tokens > 0 || lora->whole_table ||
        lora->whole_head)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.adapter_as: expected LN_ADAPTER_AS_PEFT, because the embedding or "
                       "the "
                       "head is trained");
    if (lora->magnitudes && !y->m)
        return ln_fail(err, LN_EUSAGE, "ln_trainer_options.adapter_as: %s has no DoRA", y->name);
    if (last_layers(t) == 0)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.layers: expected all layers or the last ones, because %s has no "
                       "others",
                       y->name);
    return LN_OK;
}

/* ---- the configuration ---- */

/* Adds the names of the adapted matrices in a layer. */
static json_t *keys_of(const train_trainer *t) {
    json_t *list = json_array();
    const char *seen = "";
    for (size_t i = 0; list && i < t->state.n_params; i++) {
        const char *at = strstr(t->state.params[i].name, "layers."), *end = strstr(at ? at : "", ".lora_");
        if (!at || !end) continue;
        at += strlen("layers.");
        at += strspn(at, "0123456789") + 1;
        bool found = false;
        for (size_t k = 0; k < json_array_size(list); k++) {
            seen = json_string_value(json_array_get(list, k));
            found =
                found || (strlen(seen) == (size_t)(end - at) && memcmp(seen, at, (size_t)(end - at)) == 0);
        }
        if (!found && json_array_append_new(list, json_stringn(at, (size_t)(end - at))) != 0)
            json_decref(list), list = NULL;
    }
    return list;
}

static json_t *config_of(const train_trainer *t) {
    const ln_lora *lora = &t->program_options.lora;
    if (t->how.adapter_as == LN_ADAPTER_AS_GO_MLX)
        return json_pack("{s:i, s:f, s:i, s:o}", "rank", lora->rank, "alpha", lora->scale * lora->rank,
                         "num_layers", last_layers(t), "lora_layers", keys_of(t));
    return json_pack("{s:s, s:i, s:{s:o, s:i, s:f, s:f}}", "fine_tune_type",
                     lora->magnitudes ? "dora" : "lora", "num_layers", last_layers(t), "lora_parameters",
                     "keys", keys_of(t), "rank", lora->rank, "scale", lora->scale, "dropout", lora->dropout);
}

/* ---- tensors ---- */

static void name_in(const layout *y, const char *peft, char out[224]) {
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"};
    const char *const own[] = {y->a, y->b, y->m};
    const char *from = peft + strlen(y->without);
    for (int i = 0; i < 3; i++) {
        const char *end = strstr(from, ends[i]);
        if (end) (void)snprintf(out, 224, "%.*s%s", (int)(end - from), from, own[i]);
    }
}

/* Returns a parameter as the file has it, which the caller frees; NULL: there is too little memory. */
static void *stored(const train_param *p, bool turned, bool bf16) {
    const int64_t rows = p->rows, cols = p->cols;
    void *out = ln_alloc((size_t)(rows * cols) * (bf16 ? 2 : 4) + 1);
    for (int64_t r = 0; out && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ln_num_store(out, bf16 ? LN_BF16 : LN_F32, turned ? c * rows + r : r * cols + c,
                         p->value[r * cols + c]);
    return out;
}

static ln_status write_tensors(const train_trainer *t, const layout *y, const char *dir,
                               ln_tensor_spec *specs, train_part *parts, char (*names)[224], ln_error *err) {
    const size_t n = t->state.n_params;
    const bool bf16 = t->how.bf16;
    ln_str header = {0};
    ln_status st = LN_OK;
    for (size_t i = 0; i < n && st == LN_OK; i++) {
        const train_param *p = &t->state.params[i];
        const bool turned = y->turned && !p->is_vector;
        name_in(y, p->name, names[i]);
        specs[i] = (ln_tensor_spec){names[i],
                                    bf16 ? LN_ST_BF16 : LN_ST_F32,
                                    p->is_vector ? 1 : 2,
                                    {turned ? p->cols : p->rows, turned ? p->rows : p->cols}};
        parts[i + 1] = (train_part){stored(p, turned, bf16), (size_t)(p->rows * p->cols) * (bf16 ? 2 : 4)};
        if (!parts[i + 1].data) st = LN_OOM(err, "an adapter's file");
    }
    if (st == LN_OK) st = ln_tensors_header_as(&header, y->turned ? "mlx" : "pt", specs, n, err);
    if (st == LN_OK) parts[0] = (train_part){header.data, header.len};
    if (st == LN_OK) st = train_file_write(dir, y->file, parts, n + 1, NULL, err);
    ln_str_free(&header);
    return st;
}

ln_status train_layout_write(const train_trainer *t, const char *dir, ln_error *err) {
    const size_t n = t->state.n_params;
    const layout *y = &layouts[t->how.adapter_as];
    json_t *config = config_of(t);
    ln_tensor_spec *specs = ln_zalloc(n + 1, sizeof *specs);
    train_part *parts = ln_zalloc(n + 1, sizeof *parts);
    char(*names)[224] = ln_zalloc(n + 1, sizeof *names);
    ln_status st = config && specs && parts && names ? LN_OK : LN_OOM(err, "an adapter's file");
    if (st == LN_OK) st = train_json_write(dir, "adapter_config.json", config, NULL, err);
    if (st == LN_OK) st = write_tensors(t, y, dir, specs, parts, names, err);
    for (size_t i = 0; parts && i < n; i++) ln_free((void *)(uintptr_t)parts[i + 1].data);
    ln_free(specs), ln_free(parts), ln_free(names);
    json_decref(config);
    return st;
}
