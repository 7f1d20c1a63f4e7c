/* The source of checkpoints as transformers and MLX write them: dense tensors, and matrices in affine groups
 * or in a mode of floats (mlx_float.c).
 *
 * Of a quantised matrix X.weight holds packed codes, X.scales and X.biases hold one value per group of
 * columns. Where the configuration's quantization block has an entry for the module, the tensors must have
 * the encoding of that entry. Where it has none, the shapes decide, as in mlx-lm (utils.py,
 * infer_quant_config): the number of columns is known from the configuration, so that the columns of the
 * codes give the bits and the columns of the scales give the group size. If the shapes match no encoding that
 * linnet reads, the tensors are refused and the message names the encoding of the block. Scales and biases
 * each have a dtype of their own. */
#include "mlx_float.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES LN_SOURCE_NAME

void ln_source_sibling_name(char out[NAME_BYTES], const char *weight, const char *leaf) {
    size_t n = strlen(weight), tail = strlen(".weight");
    n = n > tail ? n - tail : 0;
    (void)snprintf(out, NAME_BYTES, "%.*s%s", (int)n, weight, leaf);
}
const ln_tensor *ln_source_sibling(const ln_tensors *t, const char *weight, const char *leaf) {
    char name[NAME_BYTES];
    ln_source_sibling_name(name, weight, leaf);
    return ln_tensors_find(t, name);
}

const ln_tensor *ln_source_tensor(const ln_tensors *t, const char *weight) {
    static const char *const leaves[] = {".qweight", ".weight_packed"};
    const ln_tensor *x = ln_tensors_find(t, weight);
    for (size_t i = 0; i < LN_COUNT(leaves) && !x; i++) x = ln_source_sibling(t, weight, leaves[i]);
    return x;
}

/* The entry of the quantization block: under the module path of the tensor, or under any other name. */
static ln_status block_entry(const ln_source *s, const ln_source_ask *ask, const ln_tensor *x,
                             ln_quant_entry *out, ln_error *err) {
    char path[NAME_BYTES];
    ln_source_sibling_name(path, x->name, "");
    LN_TRY(ln_quant_of(s->quant, path, out, err));
    for (size_t i = 0; i < ask->n_names && !out->found; i++) {
        ln_source_sibling_name(path, ask->names[i], "");
        LN_TRY(ln_quant_of(s->quant, path, out, err));
    }
    return LN_OK;
}

/* The only groups with which tensors of these shapes hold `cols` columns; bits 0 if no supported encoding
 * fits. */
static ln_groups groups_of_shapes(const ln_tensor *codes, const ln_tensor *scales, int64_t cols) {
    const ln_groups none = {0, 0};
    if (codes->dtype != LN_ST_U32 || codes->n_dims < 2 || scales->n_dims != codes->n_dims) return none;
    const int64_t words = codes->dims[codes->n_dims - 1], groups = scales->dims[codes->n_dims - 1];
    if (words < 1 || words > cols || groups < 1 || cols % groups || 32 * words % cols) return none;
    const int64_t bits = 32 * words / cols, group = cols / groups;
    return ln_affine_bits_ok(bits) && ln_affine_group_ok(group) ? (ln_groups){(int)bits, (int)group} : none;
}

/* Sets *code to the groups that the shapes give, unless the entry of the block contradicts them. */
static void settle_groups(const ln_weight *w, const ln_quant_entry *entry, ln_groups *code) {
    const ln_groups shapes = groups_of_shapes(w->tensor, w->scales, w->d1);
    if (!shapes.bits || (entry->found && !entry->code.bits)) return;
    if (entry->names_bits && entry->code.bits != shapes.bits) return;
    if (entry->names_group && entry->code.group != shapes.group) return;
    *code = shapes;
}

/* Determines the groups of a matrix from the quantization block and from the tensors stored with it; sets
 * *code, *mode, w->scales and w->biases. */
static ln_status find_groups(const ln_source *s, const ln_source_ask *ask, ln_weight *w, ln_groups *code,
                             ln_mlx_mode *mode, ln_error *err) {
    ln_quant_entry entry;
    char name[NAME_BYTES];
    LN_TRY(block_entry(s, ask, w->tensor, &entry, err));
    *code = entry.code;
    *mode = entry.mode;
    w->scales = ln_source_sibling(s->tensors, w->tensor->name, ".scales");
    w->biases = ln_source_sibling(s->tensors, w->tensor->name, ".biases");
    if (!entry.found && w->scales) *code = s->quant->code, *mode = s->quant->mode;
    if (w->scales && !code->bits)
        return ln_fail(err, LN_EINVALID,
                       "%s: tensor %s: config.json %s; expected `quantization` with bits and group_size for "
                       "it",
                       s->tensors->files[w->scales->file].path, w->scales->name,
                       entry.found ? "says that it is dense" : "has no quantization block");
    /* packed codes without scales: reported below */
    if (!entry.found && w->tensor->dtype == LN_ST_U32) *code = s->quant->code, *mode = s->quant->mode;
    if (*mode) return LN_OK;
    if (code->bits && w->scales) settle_groups(w, &entry, code);
    if (!code->bits) return LN_OK;
    if (!w->scales &&
        (ln_source_sibling_name(name, w->tensor->name, ".scales"), !ln_report_misplaced(ask->report, name)))
        ln_report_fault(ask->report, name, " is missing");
    if (!w->biases &&
        (ln_source_sibling_name(name, w->tensor->name, ".biases"), !ln_report_misplaced(ask->report, name)))
        ln_report_fault(ask->report, name, " is missing");
    return LN_OK;
}

/* Whether a tensor has the dimensions of a convolution of one channel each, with the axes in either order. */
static bool has_taps(ln_bind_report *r, const ln_tensor *x, const ln_weight *w) {
    const int64_t n = (w->whole ? w->whole : w->d0) / w->taps;
    const int64_t shape[3] = {n, 1, w->taps};
    char why[64];
    if (x->n_dims == 3 && x->dims[0] == n && x->dims[1] == w->taps && x->dims[2] == 1) return true;
    (void)snprintf(why, sizeof why, " or [%lld, %d, 1]", (long long)n, w->taps);
    return ln_report_shape(r, x, 3, shape, why);
}

/* Whether a tensor has the dimensions of w's rows, or of all rows of the weights that share it, with so many
 * elements each. */
static bool has_rows(ln_bind_report *r, const ln_tensor *x, const ln_weight *w, int64_t elements,
                     const char *why) {
    if (w->taps) return has_taps(r, x, w);
    if (!w->d1 && w->d0 == 1 && x->n_dims == 0) return true;           /* a number without a dimension */
    const int64_t matrix[2] = {w->whole ? w->whole : w->d0, elements}, /* of a vector the first alone */
        experts[3] = {w->n_experts, w->n_experts ? w->d0 / w->n_experts : 0, elements};
    return w->n_experts ? ln_report_shape(r, x, w->d1 ? 3 : 2, experts, why)
                        : ln_report_shape(r, x, w->d1 ? 2 : 1, matrix, why);
}

/* Checks that codes, scales and biases of a quantised matrix fit each other and its groups; sets w->enc. */
static ln_status check_groups(const ln_source *s, const ln_source_ask *ask, ln_weight *w, ln_groups code,
                              bool *fits, ln_error *err) {
    char why[64], text[128];
    ln_dtype offset;
    *fits = false;
    if (!w->scales || !w->biases) return LN_OK; /* recorded as missing by find_groups */
    if (w->tensor->dtype != LN_ST_U32)
        return ln_tensor_unsupported(s->tensors, w->tensor,
                                     "codes packed in U32 where config.json says that a tensor is quantised",
                                     err);
    if (!ln_tensor_is_computed(w->scales, &w->dtype))
        return ln_tensor_unsupported(s->tensors, w->scales, "scales in F32, BF16 and F16", err);
    if (!ln_tensor_is_computed(w->biases, &offset))
        return ln_tensor_unsupported(s->tensors, w->biases, "biases in F32, BF16 and F16", err);
    if (w->d1 % code.group != 0) {
        (void)snprintf(text, sizeof text, ": its %lld columns are no whole groups of %d", (long long)w->d1,
                       code.group);
        ln_report_fault(ask->report, w->tensor->name, text);
        return LN_OK;
    }
    w->enc = ln_encoding_affine(code, w->dtype, offset);
    w->code = s->quant->code;
    (void)snprintf(why, sizeof why, " for %d bits in groups of %d", code.bits, code.group);
    *fits = has_rows(ask->report, w->tensor, w, w->d1 / 32 * code.bits, why);
    *fits &= has_rows(ask->report, w->scales, w, w->d1 / code.group, why);
    *fits &= has_rows(ask->report, w->biases, w, w->d1 / code.group, why);
    return LN_OK;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    ln_groups code = {0, 0};
    ln_mlx_mode mode = LN_MLX_AFFINE;
    *fits = true;
    for (size_t i = 0; i < ask->n_names && !w->tensor; i++)
        w->tensor = ln_tensors_find(s->tensors, ask->names[i]);
    if (!w->tensor) return LN_OK;
    if (w->d1 && !s->quant->scheme) LN_TRY(find_groups(s, ask, w, &code, &mode, err));
    if (mode) return ln_mlx_float_find(s, ask, mode, w, fits, err);
    if (code.bits) return check_groups(s, ask, w, code, fits, err);
    if (!ln_tensor_is_computed(w->tensor, &w->dtype))
        return ln_tensor_unsupported(s->tensors, w->tensor, "F32, BF16 and F16", err);
    w->enc = ln_encoding_dense(w->dtype);
    *fits = has_rows(ask->report, w->tensor, w, w->d1, "");
    return LN_OK;
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *room, ln_encoded_rows *out, ln_error *err) {
    const ln_row_bytes bytes = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    (void)s;
    if (w->made) return ln_mlx_float_rows(w, row0, n, work, room, out, err);
    row0 += w->row0;
    *out = (ln_encoded_rows){.data = w->tensor->data + row0 * bytes.data,
                             .scales = w->scales ? w->scales->data + row0 * bytes.scales : NULL,
                             .offsets = w->biases ? w->biases->data + row0 * bytes.offsets : NULL};
    return LN_OK;
}

static const ln_source_ops tensor_ops = {.find = find, .rows = rows};

const ln_source *ln_source_of_tensors(ln_arena *arena, const ln_tensors *t, const ln_quant *quant) {
    ln_source *s = ln_arena_alloc(arena, sizeof *s), *other = s;
    if (s) *s = (ln_source){.ops = &tensor_ops, .tensors = t, .quant = quant, .arena = arena};
    if (s && quant->scheme) {
        other = ln_arena_alloc(arena, sizeof *other);
        if (other)
            *other = (ln_source){
                .ops = quant->scheme->source, .tensors = t, .quant = quant, .of = s, .arena = arena};
    }
    const ln_source *experts = other ? ln_source_of_experts(arena, other) : NULL;
    return experts ? ln_source_of_pieces(arena, experts) : NULL;
}
