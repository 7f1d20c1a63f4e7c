/* Opening an adapter: its file, pairs of tensors, shapes, one representation of all layouts; its digest.
 *
 * Every tensor of the file is one half of a pair, or it is rejected by name: an adapter of which a part does
 * nothing would answer as if it were another one. Tensors of a vision or audio tower are counted instead
 * (n_unused): they change nothing if there are only texts. */
#include "../base/dir_names.h"
#include "adapter.h"
#include "gguf_model.h"

#include "../base/elementary.h"
#include "tower_names.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const layout_names[] = {"PEFT", "mlx-lm", "go-mlx", "GGUF"};
const char *ln_adapter_layout_name(ln_adapter_layout l) { return layout_names[l]; }

/* ---- the file ---- */

static bool is_weights(const char *name) {
    const size_t n = strlen(name);
    return n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
}

/* go-mlx reads any safetensors file; more than one could hold the same tensors. */
static ln_status find_only(const char *dir, char *path, size_t cap, ln_error *err) {
    char shown[LN_PATH_TEXT], found[2][80];
    const char *first = NULL, *second = NULL;
    ln_names names;
    ln_status st = LN_OK;
    LN_TRY(ln_names_read(&names, dir, err));
    for (size_t i = 0; i < names.n && !second; i++)
        if (is_weights(names.items[i])) *(first ? &second : &first) = names.items[i];
    ln_path_text(shown, dir);
    if (!first)
        st = ln_fail(err, LN_EIO, "%s: expected adapter.safetensors, found no safetensors file", shown);
    else if (second)
        st =
            ln_fail(err, LN_EUNSUPPORTED,
                    "%s: expected one file of tensors, found %s and %s; keep the one to apply", shown,
                    ln_excerpt(found[0], first, strlen(first)), ln_excerpt(found[1], second, strlen(second)));
    else (void)snprintf(path, cap, "%s/%s", dir, first);
    ln_names_free(&names);
    return st;
}

static ln_status find_file(const ln_adapter_file *a, char *path, size_t cap, ln_error *err) {
    static const char *const names[] = {"adapter_model.safetensors", "adapters.safetensors",
                                        "adapter.safetensors"};
    char shown[LN_PATH_TEXT];
    const char *more = "";
    (void)snprintf(path, cap, "%s/%s", a->path, names[a->layout]);
    if (ln_exists(path)) return LN_OK;
    if (a->layout == LN_ADAPTER_GO_MLX) return find_only(a->path, path, cap, err);
    (void)snprintf(path, cap, "%s/adapter_model.bin", a->path);
    if (ln_exists(path))
        more = "; adapter_model.bin is PyTorch's format, convert it in this directory: python3 -c \"import "
               "torch; from "
               "safetensors.torch import save_file; save_file({k: v.contiguous() for k, v in "
               "torch.load('adapter_model.bin', map_location='cpu').items()}, 'adapter_model.safetensors')\"";
    return ln_fail(err, LN_EIO, "%s: by its adapter_config.json an adapter of %s, which needs %s%s",
                   ln_path_text(shown, a->path), layout_names[a->layout], names[a->layout], more);
}

/* ---- names ---- */

/* What a tensor is of its module. B_BIAS and BIAS: of PEFT alone (ln_adapter_module). */
typedef enum role { ROLE_A, ROLE_B, ROLE_B_BIAS, ROLE_BIAS, ROLE_MAGNITUDE, ROLES } role;
typedef struct half {
    const char *full, *path; /* of the module: as in the file without its end, and without prefixes */
    const ln_tensor *t;
    role role;
} half;

static const char *const ends[][2] = {{".lora_A.weight", ".lora_B.weight"},
                                      {".lora_a", ".lora_b"},
                                      {".lora_a", ".lora_b"},
                                      {".lora_a", ".lora_b"}};

/* Of DoRA, which PEFT and mlx-lm have; PEFT of some versions adds .weight. */
static const char *const magnitude_ends[] = {".lora_magnitude_vector", ".m", ".m", ".m"};

static bool cut(const char *name, size_t n, const char *end, size_t *left) {
    const size_t m = strlen(end);
    *left = n > m ? n - m : 0;
    return n > m && memcmp(name + n - m, end, m) == 0;
}

static ln_status refuse_tensor(const ln_adapter_file *a, const ln_tensor *t, ln_status st, const char *why,
                               ln_error *err) {
    char shown[80];
    return ln_fail(err, st, "%s: tensor %s: %s", a->tensors.files[t->file].path,
                   ln_excerpt(shown, t->name, t->name_bytes), why);
}

/* Finds the role of a tensor by the end of its name; *left: bytes of the module's. ROLES: none. */
static role role_of(const ln_adapter_file *a, const ln_adapter_config *c, const ln_tensor *t, size_t *left) {
    const char *name = t->name;
    const size_t n = t->name_bytes;
    if (cut(name, n, ends[a->layout][0], left)) return ROLE_A;
    if (cut(name, n, ends[a->layout][1], left)) return ROLE_B;
    if (c->dora && (cut(name, n, magnitude_ends[a->layout], left) ||
                    cut(name, n, ".lora_magnitude_vector.weight", left)))
        return ROLE_MAGNITUDE;
    if (c->lora_bias && cut(name, n, ".lora_B.bias", left)) return ROLE_B_BIAS;
    if (c->biases && cut(name, n, ".base_layer.bias", left)) return ROLE_BIAS;
    if (c->biases && cut(name, n, ".bias", left)) return ROLE_BIAS;
    return ROLES;
}

/* LN_EUNSUPPORTED for the embedding and the output head, whatever the tensor is of them: their adapters, with
 * which PEFT saves the matrices themselves. */
static ln_status check_place(const ln_adapter_file *a, const ln_tensor *t, ln_error *err) {
    static const char *const places[] = {"embed_tokens", "lm_head"};
    for (size_t i = 0; i < LN_COUNT(places); i++) {
        const char *p = strstr(t->name, places[i]);
        if (!p || (p != t->name && p[-1] != '.') || p[strlen(places[i])] != '.') continue;
        if (strstr(t->name, ".lora_magnitude_vector"))
            return refuse_tensor(a, t, LN_EUNSUPPORTED,
                                 "DoRA on the embedding or the output head is not applied; LoRA on it is",
                                 err);
        return refuse_tensor(a, t, LN_EUNSUPPORTED,
                             i == 0 ? "LoRA on the embedding, or another embedding, is not applied: linnet "
                                      "applies adapters to the projections of the layers alone"
                                    : "LoRA on the output head, or another head, is not applied: linnet "
                                      "applies adapters to the projections of the layers alone",
                             err);
    }
    return LN_OK;
}

/* Reports why a tensor has no role. */
static ln_status refuse_name(const ln_adapter_file *a, const ln_tensor *t, ln_error *err) {
    const size_t n = t->name_bytes;
    size_t left = 0;
    char why[200];
    LN_TRY(check_place(a, t, err));
    if (strstr(t->name, "lora_magnitude_vector") || cut(t->name, n, ".m", &left))
        return refuse_tensor(a, t, LN_EINVALID,
                             "the file has magnitudes of DoRA, and adapter_config.json does not say DoRA "
                             "(use_dora, "
                             "fine_tune_type)",
                             err);
    if (a->layout == LN_ADAPTER_PEFT && cut(t->name, n, ".weight", &left) && !strstr(t->name, ".lora_"))
        return refuse_tensor(a, t, LN_EINVALID,
                             "the file has a whole module, and modules_to_save of adapter_config.json does "
                             "not "
                             "name it",
                             err);
    if (cut(t->name, n, ".bias", &left))
        return refuse_tensor(a, t, LN_EINVALID,
                             "the file has a bias, and adapter_config.json says of none (bias, lora_bias)",
                             err);
    (void)snprintf(why, sizeof why, "expected a name that ends in %s or %s, as %s writes it",
                   ends[a->layout][0], ends[a->layout][1], layout_names[a->layout]);
    return refuse_tensor(a, t, LN_EINVALID, why, err);
}

static const char base_prefix[] = "base_model.model.";

static ln_status read_name(ln_adapter_file *a, const ln_adapter_config *c, const ln_tensor *t, half *out,
                           ln_error *err) {
    size_t n = t->name_bytes, left = 0, from = 0;
    *out = (half){.t = t, .role = role_of(a, c, t, &left)};
    if (out->role == ROLES) return refuse_name(a, t, err);
    LN_TRY(check_place(a, t, err));
    if (a->layout == LN_ADAPTER_PEFT) {
        if (n <= sizeof base_prefix || memcmp(t->name, base_prefix, sizeof base_prefix - 1) != 0)
            return refuse_tensor(a, t, LN_EINVALID, "expected a name that begins with base_model.model.",
                                 err);
        from = sizeof base_prefix - 1;
    }
    if (left <= from) return refuse_tensor(a, t, LN_EINVALID, "the name has no module", err);
    out->full = ln_arena_strndup(&a->arena, t->name + from, left - from);
    if (!out->full) return LN_OOM(err, "an adapter");
    out->path = ln_adapter_path(out->full);
    return LN_OK;
}

/* ---- pairs ---- */

static int by_path(const void *x, const void *y) {
    const half *a = x, *b = y;
    const int order = strcmp(a->path, b->path);
    return order ? order : (int)a->role - (int)b->role;
}

static bool dtype_is_known(const ln_tensor *t) {
    return t->dtype == LN_ST_F32 || t->dtype == LN_ST_BF16 || t->dtype == LN_ST_F16;
}

static ln_status check_half(const ln_adapter_file *a, const ln_tensor *t, ln_error *err) {
    const bool stacked = t->n_dims == 3 && a->layout == LN_ADAPTER_MLX_LM && t->dims[2] > 0;
    if (t->bytes == 0)
        return refuse_tensor(a, t, LN_EINVALID,
                             "is empty: DeepSpeed ZeRO-3 leaves such tensors if the parts are not gathered "
                             "before the "
                             "adapter is saved (stage3_gather_16bit_weights_on_model_save, or "
                             "zero_to_fp32.py)",
                             err);
    if ((t->n_dims != 2 && !stacked) || t->dims[0] < 1 || t->dims[1] < 1)
        return refuse_tensor(a, t, LN_EUNSUPPORTED, "expected a matrix", err);
    if (dtype_is_known(t)) return LN_OK;
    return refuse_tensor(a, t, LN_EUNSUPPORTED, "expected f32, bf16 or f16", err);
}

/* Checks and takes a bias or magnitudes, whose module has n_out outputs, or as many as it has elements (0).
 */
static ln_status take_bias(const ln_adapter_file *a, const half *h, ln_adapter_module *m, ln_error *err) {
    const ln_tensor *t = h->t;
    if (!dtype_is_known(t)) return refuse_tensor(a, t, LN_EUNSUPPORTED, "expected f32, bf16 or f16", err);
    if (t->n_dims != 1 || t->dims[0] < 1 || (m->n_out > 0 && t->dims[0] != m->n_out))
        return refuse_tensor(a, t, LN_EINVALID,
                             "expected a vector with an element for each output of its module", err);
    m->n_out = t->dims[0];
    *(h->role == ROLE_BIAS ? &m->bias : h->role == ROLE_MAGNITUDE ? &m->magnitude : &m->b_bias) = t;
    return LN_OK;
}

/* Sets the sizes of a module: those of one matrix, or of the matrices of experts. */
static void set_sizes(const ln_adapter_file *a, const ln_adapter_config *c, const char *full, int64_t rank,
                      ln_adapter_module *m) {
    const bool turned = a->transposed;
    if (m->a->n_dims == 3 && m->b->n_dims == 3) {
        m->n_experts = m->a->dims[0] == m->b->dims[0] ? m->a->dims[0] : -1;
        m->rank = m->a->dims[1] == m->b->dims[2] ? m->a->dims[1] : -1;
        m->n_in = m->a->dims[2], m->n_out = m->b->dims[1];
        return;
    }
    m->rank =
        m->a->dims[turned] == m->b->dims[!turned] && m->a->n_dims == m->b->n_dims ? m->a->dims[turned] : -1;
    m->n_in = m->a->dims[!turned], m->n_out = m->b->dims[turned];
    if (rank < 1 || m->rank <= rank || m->rank % rank || !ln_adapter_names_parameter(c, full)) return;
    m->n_experts = m->rank / rank;
    m->rank = rank;
}
/* Fills in A and B of a module, with rank and scale. */
static ln_status take_pair(ln_adapter_file *a, const ln_adapter_config *c, const half *x, const half *y,
                           ln_adapter_module *m, ln_error *err) {
    const bool turned = a->transposed;
    int64_t rank = x->t->dims[turned]; /* which no GGUF file states */
    bool named;
    LN_TRY(check_half(a, x->t, err));
    LN_TRY(check_half(a, y->t, err));
    m->a = x->t, m->b = y->t;
    m->rows = y->t->rows;
    if (a->layout != LN_ADAPTER_GGUF) LN_TRY(ln_adapter_rank_of(c, x->full, &rank, err));
    set_sizes(a, c, x->full, rank, m);
    if (m->n_experts < 0)
        return ln_fail(err, LN_EINVALID,
                       "%s: %s: A has %lld experts and B has %lld; expected the same number",
                       a->tensors.files[x->t->file].path, x->full, (long long)x->t->dims[0],
                       (long long)y->t->dims[0]);
    if (m->rank != rank)
        return ln_fail(err, LN_EINVALID,
                       "%s: %s: A is [%lld,%lld] and B is [%lld,%lld]; %s stores %s of rank %lld, which its "
                       "adapter_config.json states",
                       a->tensors.files[x->t->file].path, x->full, (long long)x->t->dims[0],
                       (long long)x->t->dims[1], (long long)y->t->dims[0], (long long)y->t->dims[1],
                       layout_names[a->layout], turned ? "[in,r] and [r,out]" : "[r,in] and [out,r]",
                       (long long)rank);
    LN_TRY(ln_adapter_targets(c, x->full, x->path, &named, &m->any_layer, err));
    named |= ln_adapter_names_parameter(c, x->full);
    const bool leaves_out = c->layers || c->exclude || c->excluded;
    if (!named)
        return ln_fail(err, LN_EINVALID,
                       "%s: the module %s has tensors and is not among those that it names%s", c->path,
                       x->full,
                       leaves_out ? ", or is left out by exclude_modules or layers_to_transform" : "");
    return ln_adapter_scale_of(c, x->full, rank, &m->scale, err);
}

/* Fills in one module from its tensors, sorted by role. */
static ln_status make_module(ln_adapter_file *a, const ln_adapter_config *c, const half *h, size_t n,
                             ln_adapter_module *m, ln_error *err) {
    const half *of[ROLES] = {0};
    char why[100];
    *m = (ln_adapter_module){.path = h->path, .stored = h->path};
    for (size_t i = 0; i < n; i++) {
        if (of[h[i].role])
            return refuse_tensor(a, h[i].t, LN_EINVALID, "the same module occurs twice, under two prefixes",
                                 err);
        of[h[i].role] = &h[i];
    }
    const half *one = of[ROLE_A]        ? of[ROLE_A]
                      : of[ROLE_B]      ? of[ROLE_B]
                      : of[ROLE_B_BIAS] ? of[ROLE_B_BIAS]
                                        : of[ROLE_MAGNITUDE];
    if (one && !(of[ROLE_A] && of[ROLE_B])) {
        (void)snprintf(why, sizeof why, "its other half, %s, is missing",
                       ends[a->layout][of[ROLE_A] != NULL]);
        return refuse_tensor(a, one->t, LN_EINVALID, why, err);
    }
    if (one) LN_TRY(take_pair(a, c, of[ROLE_A], of[ROLE_B], m, err));
    if (one && c->lora_bias && !of[ROLE_B_BIAS])
        return refuse_tensor(a, one->t, LN_EINVALID,
                             "adapter_config.json says lora_bias, and .lora_B.bias is missing", err);
    if (one && c->dora && !of[ROLE_MAGNITUDE])
        return refuse_tensor(a, one->t, LN_EINVALID,
                             "adapter_config.json says DoRA, and the magnitudes of its module are missing",
                             err);
    if (one && c->dora && m->n_experts)
        return refuse_tensor(a, one->t, LN_EUNSUPPORTED, "DoRA on experts is not applied", err);
    if (of[ROLE_MAGNITUDE]) LN_TRY(take_bias(a, of[ROLE_MAGNITUDE], m, err));
    if (of[ROLE_B_BIAS]) LN_TRY(take_bias(a, of[ROLE_B_BIAS], m, err));
    return of[ROLE_BIAS] ? take_bias(a, of[ROLE_BIAS], m, err) : LN_OK;
}

static ln_status make_modules(ln_adapter_file *a, const ln_adapter_config *c, half *halves, size_t n,
                              ln_error *err) {
    bool any = ln_adapter_changes_model(a);
    qsort(halves, n, sizeof *halves, by_path);
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && strcmp(halves[i].path, halves[end].path) == 0) end++;
        LN_TRY(make_module(a, c, &halves[i], end - i, &a->modules[a->n], err));
        any = any || a->modules[a->n].rank > 0;
        a->n++;
    }
    return any ? LN_OK
               : ln_fail(err, LN_EINVALID, "%s: no module has %s and %s%s", a->path, ends[a->layout][0],
                         ends[a->layout][1],
                         a->n_unused
                             ? "; what the adapter has for a vision or audio tower does not concern texts"
                             : "");
}

static ln_status read_modules(ln_adapter_file *a, const ln_adapter_config *c, ln_error *err) {
    const size_t n = a->tensors.n;
    half *halves = ln_zalloc(n + 1, sizeof *halves);
    size_t n_halves = 0;
    a->modules = ln_arena_alloc(&a->arena, (n + 1) * sizeof *a->modules);
    ln_status st = halves && a->modules ? LN_OK : LN_OOM(err, "an adapter");
    for (size_t i = 0; st == LN_OK && i < n; i++) {
        const ln_tensor *t = &a->tensors.items[i];
        bool taken = ln_tower_name(t->name);
        if (taken) a->n_unused++;
        else st = ln_adapter_take_change(a, c, t, &taken, err);
        if (st == LN_OK && !taken) st = read_name(a, c, t, &halves[n_halves++], err);
    }
    if (st == LN_OK && n == 0) st = ln_fail(err, LN_EINVALID, "%s: the adapter has no tensors", a->path);
    if (st == LN_OK) st = ln_adapter_check_changes(a, c, err);
    if (st == LN_OK) st = make_modules(a, c, halves, n_halves, err);
    ln_free(halves);
    a->in_file = a->modules, a->n_in_file = a->n;
    return st;
}

/* ---- open ---- */

/* Reads llama.cpp's file of LoRA. */
static ln_status open_gguf(ln_adapter_file *a, ln_adapter_config *c, ln_error *err) {
    a->layout = c->layout = LN_ADAPTER_GGUF;
    (void)snprintf(c->path, sizeof c->path, "%s", a->path);
    LN_TRY(ln_tensors_of_gguf_lora(&a->tensors, a->path, &c->alpha, err));
    return read_modules(a, c, err);
}

static ln_status open_parts(ln_adapter_file *a, const char *dir, ln_adapter_config *c, ln_error *err) {
    char path[4400];
    LN_TRY(ln_find_adapter(dir, a->path, err));
    if (ln_is_gguf(a->path)) return open_gguf(a, c, err);
    LN_TRY(ln_adapter_config_open(c, a->path, err));
    a->layout = c->layout;
    a->transposed = c->layout == LN_ADAPTER_MLX_LM;
    a->n_last_layers = c->n_last_layers;
    a->tied = c->tied;
    LN_TRY(find_file(a, path, sizeof path, err));
    LN_TRY(ln_tensors_open_file(&a->tensors, path, err));
    LN_TRY(read_modules(a, c, err));
    ln_adapter_find_absent(c, &a->tensors, a->absent);
    return LN_OK;
}

ln_status ln_adapter_file_open(ln_adapter_file **out, const char *dir, ln_error *err) {
    ln_adapter_config c = {0};
    ln_adapter_file *a = ln_zalloc(1, sizeof *a);
    *out = NULL;
    if (!a) return LN_OOM(err, "an adapter");
    const ln_status st = open_parts(a, dir, &c, err);
    ln_adapter_config_close(&c);
    if (st != LN_OK) ln_adapter_file_close(&a);
    *out = a;
    return st;
}

void ln_adapter_warn_absent(const ln_adapter_file *a) {
    if (a->absent[0])
        ln_log(LN_LOG_WARN,
               "%s: adapter_config.json names modules of which the file has no tensors, and nothing is added "
               "there: %s; "
               "if the adapter was trained on them, the file is not whole",
               a->path, a->absent);
}

void ln_adapter_file_close(ln_adapter_file **adapter) {
    ln_adapter_file *a = *adapter;
    *adapter = NULL;
    if (!a) return;
    ln_tensors_close(&a->tensors);
    ln_arena_free(&a->arena);
    ln_free(a);
}

/* ---- values ---- */

float ln_adapter_value(const ln_tensor *t, size_t i) {
    uint16_t half_bits;
    float f;
    if (t->dtype == LN_ST_F32) {
        memcpy(&f, t->data + 4 * i, sizeof f);
        return f;
    }
    memcpy(&half_bits, t->data + 2 * i, sizeof half_bits);
    return t->dtype == LN_ST_BF16 ? ln_bf16_f32(half_bits) : ln_f16_f32(half_bits);
}

/* Writes rows row0 .. row0 + rows - 1 of a matrix [whole, cols]; `turned`: it is stored [cols, whole]. */
static void read_matrix(const ln_tensor *t, bool turned, const ln_tensor_order *order, int64_t whole,
                        int64_t row0, int64_t rows, int64_t cols, float *out) {
    for (int64_t i = row0; i < row0 + rows; i++) {
        const int64_t at = ln_tensor_order_at(order, i);
        for (int64_t k = 0; k < cols; k++)
            *out++ = ln_adapter_value(t, (size_t)(turned ? k * whole + at : at * cols + k));
    }
}

void ln_adapter_file_read(const ln_adapter_file *a, const ln_adapter_module *m, float *A, float *B) {
    static const ln_tensor_order in_order = {0};
    read_matrix(m->a, a->transposed, &in_order, m->rank, 0, m->rank, m->n_in, A);
    const int64_t whole = m->whole ? m->whole : m->n_out;
    int64_t n = m->n_out;
    for (int64_t i = 0; i < m->n_out; i += n, n = m->n_out - i) {
        const int64_t row0 = m->pieces ? ln_pieces_row(m->pieces, i, &n) : m->row0;
        read_matrix(m->b, a->transposed, &m->rows, whole, row0, n, m->rank, B + i * m->rank);
    }
}

const ln_adapter_module *ln_adapter_read_expert(const ln_adapter_file *a, const ln_adapter_module *m,
                                                int64_t expert, float *A, float *B) {
    static const ln_tensor_order in_order = {0};
    if (m->each) {
        if (m->each[expert]) ln_adapter_file_read(a, m->each[expert], A, B);
        return m->each[expert];
    }
    const int64_t r = m->rank, X = m->n_experts, step = m->row_step ? m->row_step : 1;
    const int64_t rows = m->whole ? m->whole : m->n_out;
    const bool stacked = m->b->n_dims == 3; /* [X, rows, r], else [rows, r, X] */
    read_matrix(m->a, false, &in_order, X * r, expert * r, r, m->n_in, A);
    for (int64_t i = 0; i < m->n_out; i++)
        for (int64_t j = 0; j < r; j++) {
            const int64_t row = m->row0 + i * step;
            B[i * r + j] = ln_adapter_value(m->b, (size_t)(stacked ? (expert * rows + row) * r + j
                                                                   : (row * r + j) * X + expert));
        }
    return m;
}

void ln_adapter_vector(const ln_adapter_module *m, const ln_tensor *t, float *out) {
    for (int64_t i = 0; i < m->n_out; i++) {
        const int64_t row = m->pieces ? ln_pieces_row(m->pieces, i, NULL) : m->row0 + i;
        out[i] = ln_adapter_value(t, (size_t)row);
    }
}

static bool is_finite(const ln_tensor *t, size_t n) {
    bool ok = true;
    for (size_t i = 0; t && i < n; i++) ok = ok && isfinite(ln_adapter_value(t, i));
    return ok;
}

ln_status ln_adapter_check_finite(const ln_adapter_file *a, const ln_adapter_module *m, ln_error *err) {
    const size_t n_out = (size_t)(m->whole ? m->whole : m->n_out), X = (size_t)LN_MAX(1, m->n_experts);
    for (int64_t x = 0; m->each && x < m->n_experts; x++)
        if (m->each[x]) LN_TRY(ln_adapter_check_finite(a, m->each[x], err));
    if (m->each) return LN_OK;
    if (is_finite(m->a, X * (size_t)(m->rank * m->n_in)) && is_finite(m->b, X * (size_t)m->rank * n_out) &&
        is_finite(m->b_bias, n_out) && is_finite(m->bias, n_out) && is_finite(m->magnitude, n_out))
        return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "%s: module %s: the adapter has a NaN or an infinity; it cannot be applied", a->path,
                   m->path);
}

/* Adds a tensor's type and bytes; a missing tensor adds its absence. */
static void add_tensor(ln_sha256 *h, const ln_tensor *t) {
    const int32_t dtype = t ? (int32_t)t->dtype : -1;
    ln_sha256_add(h, &dtype, sizeof dtype);
    if (t) ln_sha256_add(h, t->data, t->bytes);
}

/* Adds what the adapter changes of the model's own tensors. */
static ln_status add_changes(ln_sha256 *h, const ln_adapter_file *a, ln_error *err) {
    for (size_t i = 0; i < a->n_changes; i++) {
        const ln_adapter_change *x = &a->changes[i];
        if (x->is_copy && !x->differs && !x->a && !x->rows) continue;
        ln_str s = {0};
        ln_str_addf(&s, "%s %d %d %lld ", x->path, x->is_bias, a->tied, (long long)x->rank);
        ln_str_double(&s, x->scale);
        for (int64_t k = 0; k < x->n_listed; k++) ln_str_addf(&s, " %d:%d", x->listed[k].id, x->listed[k].at);
        if (!s.failed) ln_sha256_add_text(h, s.data, s.len);
        const bool failed = s.failed;
        ln_str_free(&s);
        if (failed) return LN_OOM(err, "a digest");
        add_tensor(h, x->is_copy && !x->differs ? NULL : x->whole);
        add_tensor(h, x->rows);
        add_tensor(h, x->a);
        add_tensor(h, x->b);
    }
    return LN_OK;
}

ln_status ln_adapter_file_digest(const ln_adapter_file *a, char digest[LN_SHA256_HEX], ln_error *err) {
    ln_sha256 h;
    ln_sha256_open(&h);
    for (size_t i = 0; i < a->n_in_file; i++) {
        const ln_adapter_module *m = &a->in_file[i];
        ln_str s = {0};
        ln_str_addf(&s, "%s %lld %lld %lld ", m->stored, (long long)m->rank, (long long)m->n_in,
                    (long long)m->n_out);
        ln_str_double(&s, m->scale);
        ln_str_addf(&s, " %d", a->transposed);
        if (!s.failed) ln_sha256_add_text(&h, s.data, s.len);
        const bool failed = s.failed;
        ln_str_free(&s);
        if (failed) return LN_OOM(err, "a digest");
        add_tensor(&h, m->a);
        add_tensor(&h, m->b);
        add_tensor(&h, m->b_bias);
        add_tensor(&h, m->bias);
        if (m->magnitude) add_tensor(&h, m->magnitude);
    }
    LN_TRY(add_changes(&h, a, err));
    ln_sha256_hex(&h, digest);
    return ln_tensors_check(&a->tensors, false, err);
}
