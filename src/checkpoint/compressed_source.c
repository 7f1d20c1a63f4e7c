/* compressed-tensors, as LLM Compressor writes it. The block has groups of modules, `config_groups`, each
 * with targets and the numbers of its weights. `format` of the group or of the block says how they are
 * stored:
 *
 *     pack-quantized   X.weight_packed      I32 [out, in bits / 32], rows packed low bits first
 *                      X.weight_shape       I64 [2] = out, in
 *                      X.weight_scale       [out, groups], [out, 1] of a channel, [1] of a tensor
 *                      X.weight_zero_point  I32 [out bits / 32, groups], packed along `out`; if asymmetric
 *                      X.weight_g_idx       I32 [in], the groups of act-order
 *     int-quantized    X.weight             I8 [out, in]
 *                      X.weight_scale, X.weight_zero_point I8 as the scales
 *     float-quantized, naive-quantized
 *                      X.weight             F8_E4M3 [out, in]
 *                      X.weight_scale       [1], [out, 1], or of blocks (block_structure)
 *
 *     w = (q - z) s; packed codes and zero points are stored plus 2^(bits-1)
 *
 * X.input_scale and its like belong to quantised activations and are not read. A target is the name of a
 * module, a class (Linear, Embedding), or a regular expression that the beginning of a name matches (re:).
 * Which modules are left dense the tensors say. */
#include "fp8_matrix.h"
#include "int_matrix.h"
#include "../base/dir_names.h"
#include "../io/name_pattern.h"

#include <stdio.h>
#include <string.h>

static const char *const formats[] = {"pack-quantized", "int-quantized", "float-quantized",
                                      "naive-quantized"};

/* What the weights of a group are. */
typedef struct form {
    const json_t *weights;
    const char *strategy;
    bool is_float, symmetric;
    int64_t bits, group, block[2];
} form;

static const json_t *text_field(const json_t *object, const char *field, const char **text) {
    const json_t *value = json_object_get(object, field);
    *text = json_is_string(value) ? json_string_value(value) : NULL;
    return value;
}
static bool is_one_of(const char *text, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text && strcmp(text, list[i]) == 0) return true;
    return false;
}

static ln_status check_format(const ln_quant *q, const char *where, const json_t *object, ln_error *err) {
    const char *text;
    char field[112];
    const json_t *value = text_field(object, "format", &text);
    if (!value || json_is_null(value) || is_one_of(text, formats, LN_COUNT(formats)) ||
        (text && (strcmp(text, "mixed-precision") == 0 || strcmp(text, "dense") == 0)))
        return LN_OK;
    (void)snprintf(field, sizeof field, "%s%sformat", where, *where ? "." : "");
    return ln_scheme_unsupported(q, field, value,
                                 "pack-quantized, int-quantized, float-quantized or naive-quantized", err);
}

/* Reads an integer of `weights`; null and absent are `dflt`. */
static ln_status int_field(const ln_quant *q, const char *where, const json_t *weights, const char *field,
                           int64_t dflt, int64_t lo, int64_t hi, int64_t *out, ln_error *err) {
    char text[160];
    const json_t *value = json_object_get(weights, field);
    *out = dflt;
    if (!value || json_is_null(value)) return LN_OK;
    (void)snprintf(text, sizeof text, "%s.%s.weights.%s", q->where, where, field);
    return ln_config_int_at(&q->from, value, text, lo, hi, out, err);
}

static ln_status read_block(const ln_quant *q, const char *where, form *f, ln_error *err) {
    const json_t *block = json_object_get(f->weights, "block_structure");
    char text[160];
    f->block[0] = f->block[1] = 128;
    if (!block || json_is_null(block)) return LN_OK;
    (void)snprintf(text, sizeof text, "%s.%s.weights.block_structure", q->where, where);
    if (!json_is_array(block) || json_array_size(block) != 2)
        return ln_config_fail(&q->from, block, text, "rows and columns of a block", err);
    for (size_t i = 0; i < 2; i++)
        LN_TRY(ln_config_int_at(&q->from, json_array_get(block, i), text, 1, 1 << 20, &f->block[i], err));
    return LN_OK;
}

static ln_status read_form(const ln_quant *q, const char *where, const json_t *group, form *f,
                           ln_error *err) {
    static const char *const strategies[] = {"tensor", "channel", "group", "block"};
    char field[128];
    const char *type;
    const json_t *value;
    *f = (form){.weights = json_object_get(group, "weights"), .symmetric = true};
    value = text_field(f->weights, "type", &type);
    f->is_float = type && strcmp(type, "float") == 0;
    (void)snprintf(field, sizeof field, "%s.weights.type", where);
    if (value && !f->is_float && !(type && strcmp(type, "int") == 0))
        return ln_scheme_unsupported(q, field, value, "int or float", err);
    LN_TRY(int_field(q, where, f->weights, "num_bits", 8, 1, 16, &f->bits, err));
    LN_TRY(int_field(q, where, f->weights, "group_size", -1, -1, 1 << 20, &f->group, err));
    (void)snprintf(field, sizeof field, "%s.weights.num_bits", where);
    if (f->bits > 8 || (f->is_float && f->bits != 8))
        return ln_scheme_unsupported(q, field, json_object_get(f->weights, "num_bits"),
                                     f->is_float ? "8" : "1 to 8", err);
    value = text_field(f->weights, "strategy", &f->strategy);
    if (!value || json_is_null(value)) f->strategy = f->group > 0 ? "group" : "tensor";
    (void)snprintf(field, sizeof field, "%s.weights.strategy", where);
    if (!is_one_of(f->strategy, strategies, LN_COUNT(strategies)))
        return ln_scheme_unsupported(q, field, value, "tensor, channel, group or block", err);
    value = json_object_get(f->weights, "symmetric");
    f->symmetric = !json_is_false(value);
    return read_block(q, where, f, err);
}

ln_status ln_compressed_read(ln_quant *q, ln_error *err) {
    const json_t *groups = json_object_get(q->block, "config_groups"),
                 *sparse = json_object_get(q->block, "sparsity_config");
    const char *where, *text;
    json_t *group;
    char field[96];
    LN_TRY(check_format(q, "", q->block, err));
    const json_t *sparse_format = text_field(sparse, "format", &text);
    if (json_object_size(sparse) > 0 && sparse_format && !(text && strcmp(text, "dense") == 0))
        return ln_scheme_unsupported(q, "sparsity_config.format", sparse_format, "dense", err);
    (void)snprintf(field, sizeof field, "%s.config_groups", q->where);
    if (!json_is_object(groups)) return ln_config_fail(&q->from, groups, field, "an object", err);
    json_object_foreach((json_t *)(uintptr_t)groups, where, group) {
        form f;
        (void)snprintf(field, sizeof field, "%s.config_groups.%.48s", q->where, where);
        if (!json_is_object(group)) return ln_config_fail(&q->from, group, field, "an object", err);
        if (!json_is_array(json_object_get(group, "targets")))
            return ln_config_fail(&q->from, json_object_get(group, "targets"), field, "targets", err);
        (void)snprintf(field, sizeof field, "config_groups.%.48s", where);
        LN_TRY(check_format(q, field, group, err));
        if (!json_is_object(json_object_get(group, "weights"))) continue; /* quantises activations alone */
        LN_TRY(read_form(q, field, group, &f, err));
        if (!f.is_float && !q->code.bits)
            q->code = (ln_groups){(int)f.bits, strcmp(f.strategy, "group") == 0 ? (int)f.group : 0};
    }
    return LN_OK;
}

/* ---- the group of a module ---- */

enum { NO_MATCH, BY_CLASS, BY_PATTERN, BY_NAME };

static ln_status match(const ln_quant *q, const char *target, const char *module, int *how, ln_error *err) {
    const bool table = ln_ends_with(module, "embed_tokens");
    *how = strcmp(target, module) == 0                           ? BY_NAME
           : strcmp(target, table ? "Embedding" : "Linear") == 0 ? BY_CLASS
                                                                 : NO_MATCH;
    if (strncmp(target, "re:", 3) != 0) return LN_OK;
    ln_name_pattern *p = NULL;
    ln_str whole = {0};
    bool matches = false;
    char where[112];
    (void)snprintf(where, sizeof where, "%s.config_groups", q->where);
    ln_str_addf(&whole, "(?:%s).*", target + 3);
    ln_status st =
        whole.failed ? LN_OOM(err, "a pattern") : ln_name_pattern_open(&p, whole.data, false, where, err);
    if (st == LN_OK) st = ln_name_matches(p, module, &matches, err);
    if (p) ln_name_pattern_close(&p);
    ln_str_free(&whole);
    if (matches) *how = BY_PATTERN;
    return st;
}

/* Reads what a module's weights are: of the group that names it, else of one whose pattern matches, else
 * of one for its class. */
static ln_status form_of(const ln_source *s, const ln_tensor *x, const char *module, form *f, ln_error *err) {
    const ln_quant *q = s->quant;
    const json_t *best = NULL;
    const char *name, *best_name = "";
    json_t *group, *target;
    int most = NO_MATCH;
    size_t i;
    json_object_foreach(json_object_get(q->block, "config_groups"), name, group) {
        json_array_foreach(json_object_get(group, "targets"), i, target) {
            int how = NO_MATCH;
            if (json_is_string(target)) LN_TRY(match(q, json_string_value(target), module, &how, err));
            if (how <= most || !json_is_object(json_object_get(group, "weights"))) continue;
            most = how, best = group, best_name = name;
        }
    }
    if (best) return read_form(q, best_name, best, f, err);
    return ln_scheme_bad_tensor(s, x, "is quantised, and no group of config_groups has it as a target", err);
}

/* ---- weights ---- */

static void unpack(const ln_int_matrix *m, int64_t d0, int64_t n, uint8_t *out) {
    const int64_t words = (m->C * m->bits + 31) / 32;
    for (int64_t d = 0; d < n; d++)
        for (int64_t i = 0; i < m->C; i++)
            out[d * m->C + i] = (uint8_t)ln_int_code(m->codes->data + (d0 + d) * words * 4, 1, m->bits, i);
}
static int packed_zero(const ln_int_matrix *m, int64_t d, int64_t group) {
    return (int)ln_int_code(m->zeros->data + 4 * group, m->n_groups, m->bits, d);
}

static void unpack_bytes(const ln_int_matrix *m, int64_t d0, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < n * m->C; i++) out[i] = m->codes->data[d0 * m->C + i] ^ 0x80;
}
static int byte_zero(const ln_int_matrix *m, int64_t d, int64_t group) {
    return m->zeros->data[d * m->n_groups + group] ^ 0x80;
}

/* The tensors of a weight of integers, packed or in bytes. */
static ln_status find_parts(const ln_source *s, const ln_source_ask *ask, const char *name, const form *f,
                            ln_int_matrix *m, ln_weight *w, ln_error *err) {
    const bool packed = m->unpack == unpack;
    ln_scheme_part(s, ask, name, ".weight_scale", &m->scales);
    if (!f->symmetric) ln_scheme_part(s, ask, name, ".weight_zero_point", &m->zeros);
    m->order = ln_source_sibling(s->tensors, name, ".weight_g_idx");
    w->scales = m->scales;
    w->biases = m->zeros ? m->zeros : ln_source_sibling(s->tensors, name, ".weight_zero_point");
    w->more[0] = m->order;
    w->more[1] = ln_source_sibling(s->tensors, name, ".weight_shape");
    w->more[2] = ln_source_sibling(s->tensors, name, ".input_scale");
    if (m->zeros && m->zeros->dtype != (packed ? LN_ST_I32 : LN_ST_I8))
        return ln_tensor_unsupported(s->tensors, m->zeros,
                                     packed ? "zero points in I32" : "zero points in I8", err);
    if (m->order && m->order->dtype != LN_ST_I32)
        return ln_tensor_unsupported(s->tensors, m->order, "groups of columns in I32", err);
    return LN_OK;
}

/* Whether X.weight_shape, if it exists, is [out, in]. */
static ln_status check_shape(const ln_source *s, const ln_int_matrix *m, const ln_tensor *x, ln_error *err) {
    int64_t shape[2];
    char text[128];
    if (!x) return LN_OK;
    if (x->dtype != LN_ST_I64 || x->bytes != sizeof shape)
        return ln_scheme_bad_tensor(s, x, "expected two numbers in I64", err);
    memcpy(shape, x->data, sizeof shape);
    if (shape[0] == m->D && shape[1] == m->C) return LN_OK;
    (void)snprintf(text, sizeof text, "expected [%lld, %lld], found [%lld, %lld]", (long long)m->D,
                   (long long)m->C, (long long)shape[0], (long long)shape[1]);
    return ln_scheme_bad_tensor(s, x, text, err);
}

static bool has_shapes(const ln_source_ask *ask, const ln_int_matrix *m, bool packed) {
    const int64_t codes[2] = {m->D, packed ? (m->C * m->bits + 31) / 32 : m->C},
                  scales[2] = {m->D, m->n_groups},
                  zeros[2] = {packed ? (m->D * m->bits + 31) / 32 : m->D, m->n_groups}, order[1] = {m->C};
    char why[64];
    (void)snprintf(why, sizeof why, " for %d bits in groups of %lld", m->bits, (long long)m->group);
    bool fits = ln_report_shape(ask->report, m->codes, 2, codes, why);
    fits &= ln_report_shape(ask->report, m->scales, 2, scales, why);
    if (m->zeros) fits &= ln_report_shape(ask->report, m->zeros, 2, zeros, why);
    if (m->order) fits &= ln_report_shape(ask->report, m->order, 1, order, why);
    return fits;
}

static ln_status find_ints(const ln_source *s, const ln_source_ask *ask, const char *name,
                           const ln_tensor *codes, const form *f, ln_weight *w, bool *fits, ln_error *err) {
    const bool packed = codes->dtype == LN_ST_I32, groups = strcmp(f->strategy, "group") == 0;
    ln_int_matrix m = {.codes = codes,
                       .D = ln_source_stored_rows(w),
                       .C = w->d1,
                       .bits = (int)f->bits,
                       .group = groups && f->group > 0 ? LN_MIN(f->group, w->d1) : w->d1,
                       .unpack = packed ? unpack : unpack_bytes,
                       .zero = packed ? packed_zero : byte_zero};
    if (w->n_experts || (!packed && codes->dtype != LN_ST_I8) || (!packed && f->bits != 8))
        return ln_tensor_unsupported(s->tensors, codes, "a matrix of codes packed in I32, or of 8 bits in I8",
                                     err);
    if (strcmp(f->strategy, "tensor") == 0 || strcmp(f->strategy, "block") == 0)
        return ln_tensor_unsupported(s->tensors, codes, "integers with scales of channels or groups", err);
    m.n_groups = (m.C + m.group - 1) / m.group;
    LN_TRY(find_parts(s, ask, name, f, &m, w, err));
    if (!m.scales || (!f->symmetric && !m.zeros)) return LN_OK;
    LN_TRY(check_shape(s, &m, w->more[1], err));
    if (!has_shapes(ask, &m, packed)) return LN_OK;
    *fits = true;
    return ln_int_matrix_settle(s, &m, w, err);
}

static ln_status find_floats(const ln_source *s, const ln_source_ask *ask, const char *name,
                             const ln_tensor *codes, const form *f, ln_weight *w, bool *fits, ln_error *err) {
    const bool blocks = strcmp(f->strategy, "block") == 0, tensor = strcmp(f->strategy, "tensor") == 0;
    ln_fp8_matrix m = {.codes = codes,
                       .D = ln_source_stored_rows(w),
                       .C = w->d1,
                       .block_rows = blocks   ? f->block[0]
                                     : tensor ? INT64_MAX
                                              : 1,
                       .block_cols = blocks         ? f->block[1]
                                     : f->group > 0 ? f->group
                                                    : INT64_MAX};
    ln_scheme_part(s, ask, name, ".weight_scale", &m.scales);
    w->scales = m.scales;
    w->more[0] = ln_source_sibling(s->tensors, name, ".input_scale");
    w->more[1] = ln_source_sibling(s->tensors, name, ".weight_zero_point");
    return m.scales ? ln_fp8_settle(s, ask, &m, w, fits, err) : LN_OK;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    const char *name = NULL;
    char module[LN_SOURCE_NAME];
    form f;
    const ln_tensor *codes = w->d1 ? ln_scheme_find(s, ask, ".weight_packed", &name) : NULL;
    if (!codes && w->d1) codes = ln_scheme_find(s, ask, ".weight", &name);
    if (!codes || (codes->dtype != LN_ST_I32 && codes->dtype != LN_ST_I8 && !ln_fp8_is(codes)))
        return s->of->ops->find(s->of, ask, w, fits, err);
    *fits = false;
    w->tensor = codes;
    ln_source_sibling_name(module, name, "");
    LN_TRY(form_of(s, codes, module, &f, err));
    if (f.is_float == ln_fp8_is(codes))
        return f.is_float ? find_floats(s, ask, name, codes, &f, w, fits, err)
                          : find_ints(s, ask, name, codes, &f, w, fits, err);
    return ln_scheme_bad_tensor(s, codes,
                                f.is_float ? "holds integers, and its group of config_groups says that it "
                                             "holds floats"
                                           : "holds floats, and its group of config_groups says that it "
                                             "holds integers",
                                err);
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    return (w->how && ln_fp8_is(w->tensor) ? ln_fp8_rows : ln_int_matrix_rows)(s, w, row0, n, work, buffer,
                                                                               out, err);
}

const ln_source_ops ln_compressed_ops = {.find = find, .rows = rows};
