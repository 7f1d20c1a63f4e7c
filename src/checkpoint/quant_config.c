/* The quantization block of config.json: which weights are quantised in affine groups, and with which bits
 * and group size.
 *
 * MLX writes the block twice: as `quantization` and, for the hub, as `quantization_config`; the first one
 * counts. In addition to bits, group_size and mode it may have an entry per module path: an object with an
 * encoding of its own, false for a dense module, true for the encoding of the block. A field that such an
 * object lacks or sets to null (as mlx_lm's mixed recipes do) has MLX's default, whatever the block says,
 * unless the shapes of the tensors contradict it. The encoding of a tensor without an entry follows from its
 * shapes (tensor_source.c). A block with a quant_method is of another tool (schemes.def); methods that linnet
 * does not read are refused by name, so that their packed integers are never read as affine groups. */
#include "../base/dir_names.h"
#include "../io/directory.h"
#include "scheme.h"

#include <string.h>

static const char affine_only[] =
    "linnet reads affine groups of 2, 3, 4, 5, 6 or 8 bits, mxfp4, mxfp8 and nvfp4; use such a checkpoint or "
    "one in bf16, f16 or f32";

const char *const ln_mlx_mode_names[LN_MLX_MODES] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
const ln_groups ln_mlx_mode_groups[LN_MLX_MODES] = {{4, 64}, {4, 32}, {8, 32}, {4, 16}};

static ln_status read_mode(const ln_config *c, const json_t *block, const char *where, ln_mlx_mode *out,
                           ln_error *err) {
    char field[160], shown[LN_PATH_TEXT], text[80];
    const json_t *mode = json_object_get(block, "mode");
    *out = LN_MLX_AFFINE;
    if (!mode) return LN_OK;
    if (!json_is_string(mode)) {
        (void)snprintf(field, sizeof field, "%s.mode", where);
        return ln_config_fail(c, mode, field, "the name of a mode", err);
    }
    for (int i = 0; i < LN_MLX_MODES; i++)
        if (strcmp(json_string_value(mode), ln_mlx_mode_names[i]) == 0) {
            *out = (ln_mlx_mode)i;
            return LN_OK;
        }
    return ln_fail(err, LN_EUNSUPPORTED, "%s: %s: mode %s is not supported; %s", ln_path_text(shown, c->path),
                   where, ln_excerpt(text, json_string_value(mode), json_string_length(mode)), affine_only);
}

/* Reads bits and group_size of a mode that has one of each. */
static ln_status read_float_form(const ln_config *c, const json_t *block, const char *where, ln_mlx_mode mode,
                                 ln_groups *out, ln_error *err) {
    static const char *const fields[] = {"bits", "group_size"};
    char field[160], wanted[64];
    *out = ln_mlx_mode_groups[mode];
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(block, fields[i]);
        const int want = i ? out->group : out->bits;
        if (!value || json_is_null(value) || (json_is_integer(value) && json_integer_value(value) == want))
            continue;
        (void)snprintf(field, sizeof field, "%s.%s", where, fields[i]);
        (void)snprintf(wanted, sizeof wanted, "%d, which %s has", want, ln_mlx_mode_names[mode]);
        return ln_config_fail(c, value, field, wanted, err);
    }
    return LN_OK;
}

static ln_status read_form(const ln_config *c, const json_t *block, const char *where, const ln_groups *dflt,
                           ln_groups *out, ln_mlx_mode *mode, ln_error *err) {
    char field[160], shown[LN_PATH_TEXT];
    const json_t *bits = json_object_get(block, "bits"), *group = json_object_get(block, "group_size");
    int64_t v;
    LN_TRY(read_mode(c, block, where, mode, err));
    if (*mode) return read_float_form(c, block, where, *mode, out, err);
    *out = *dflt;
    if ((bits && !json_is_null(bits)) || !dflt->bits) {
        (void)snprintf(field, sizeof field, "%s.bits", where);
        LN_TRY(ln_config_int_at(c, bits, field, 1, 32, &v, err));
        if (!ln_affine_bits_ok(v))
            return ln_fail(err, LN_EUNSUPPORTED, "%s: %s: weights of %lld bits are not supported; %s",
                           ln_path_text(shown, c->path), where, (long long)v, affine_only);
        out->bits = (int)v;
    }
    if ((group && !json_is_null(group)) || !dflt->group) {
        (void)snprintf(field, sizeof field, "%s.group_size", where);
        LN_TRY(ln_config_int_at(c, group, field, 1, 1 << 20, &v, err));
        if (!ln_affine_group_ok(v))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: %s: groups of %lld are not supported; linnet reads groups of 32, 64 and 128",
                           ln_path_text(shown, c->path), where, (long long)v);
        out->group = (int)v;
    }
    return LN_OK;
}

/* Checks the keys of the block and of its module entries. */
static ln_status check_keys(const ln_config *c, const json_t *block, const char *where, ln_error *err) {
    char within[176], shown[80];
    const char *path;
    json_t *entry;
    ln_key_report report = {0};
    (void)snprintf(within, sizeof within, "%s.", where);
    ln_status st = ln_keys_check(&ln_quantization_keys, 1, block, c->path, within, &report, err);
    json_object_foreach((json_t *)(uintptr_t)block, path, entry) {
        if (st != LN_OK || !json_is_object(entry) || ln_key_find(&ln_quantization_keys, 1, path)) continue;
        (void)snprintf(within, sizeof within, "%s.%s.", where, ln_excerpt(shown, path, strlen(path)));
        st = ln_keys_check(&ln_quantization_keys, 1, entry, c->path, within, &report, err);
    }
    if (st == LN_OK) ln_key_report_say(&report, c->path);
    ln_key_report_free(&report);
    return st;
}

/* Reads a block with a quant_method, or one of a file whose tool is known. */
static ln_status read_scheme(ln_quant *q, const char *method, ln_error *err) {
    char within[80], shown[LN_PATH_TEXT], text[80];
    ln_key_report report = {0};
    for (int i = 0; i < LN_SCHEME_COUNT; i++) {
        if (strcmp(method, ln_schemes[i].method) != 0) continue;
        q->scheme = &ln_schemes[i];
        (void)snprintf(within, sizeof within, "%s.", q->where);
        ln_status st = ln_keys_check(&ln_scheme_keys, 1u << i, q->block, q->from.path, within, &report, err);
        if (st == LN_OK) ln_key_report_say(&report, q->from.path);
        ln_key_report_free(&report);
        return st == LN_OK ? q->scheme->read(q, err) : st;
    }
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: %s: quant_method %s is not supported; linnet reads fp8, gptq, awq, "
                   "compressed-tensors and MLX's affine groups; use such a checkpoint or one in bf16, f16 or "
                   "f32",
                   ln_path_text(shown, q->from.path), q->where, ln_excerpt(text, method, strlen(method)));
}

/* Reads the file next to config.json that older tools write instead of a block, if it exists. */
static ln_status read_tool_file(ln_quant *q, ln_error *err) {
    static const struct {
        const char *file, *method;
    } tools[] = {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}};
    char *slash = strrchr(q->from.path, '/'), dir[sizeof q->from.path];
    (void)snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - q->from.path) : 1,
                   slash ? q->from.path : ".");
    for (size_t i = 0; i < LN_COUNT(tools); i++) {
        char path[sizeof q->from.path];
        LN_TRY(ln_path_join(path, dir, tools[i].file, err));
        if (!ln_exists(path)) continue;
        memcpy(q->from.path, path, sizeof path);
        LN_TRY(ln_json_object_file(&q->own, path, err));
        q->block = q->own;
        q->where = "block";
        const char *method = json_string_value(json_object_get(q->own, "quant_method"));
        return read_scheme(q, method ? method : tools[i].method, err);
    }
    return LN_OK;
}

static ln_status open_block(ln_quant *out, const ln_config *c, ln_error *err) {
    static const char *const fields[] = {"quantization", "quantization_config"};
    *out = (ln_quant){.from = *c};
    for (size_t i = 0; i < 2 * LN_COUNT(fields); i++) {
        const char *where = fields[i / 2];
        const json_t *q = json_object_get(i & 1 ? c->text : c->root, where);
        if (!q || json_is_null(q)) continue;
        if (!json_is_object(q)) return ln_config_fail(c, q, where, "an object", err);
        out->block = q;
        out->where = where;
        const json_t *method = json_object_get(q, "quant_method");
        if (json_is_string(method)) return read_scheme(out, json_string_value(method), err);
        if (method && !json_is_null(method))
            return ln_config_fail(c, method, "quant_method", "the name of a method", err);
        LN_TRY(check_keys(c, q, where, err));
        return read_form(c, q, where, &(ln_groups){0, 0}, &out->code, &out->mode, err);
    }
    return read_tool_file(out, err);
}

ln_status ln_quant_open(ln_quant *out, const ln_config *c, ln_error *err) {
    const ln_status st = open_block(out, c, err);
    if (st != LN_OK) ln_quant_close(out);
    return st;
}

void ln_quant_close(ln_quant *q) {
    json_decref(q->own);
    q->own = NULL;
}

const char *ln_quant_method(const ln_quant *q) {
    return q->scheme ? q->scheme->method : q->block ? "mlx" : NULL;
}

/* Ends of names that a tool's layout alone has. */
static const struct {
    const char *end, *tool;
} packed[] = {{".g_idx", "GPTQ (older AutoGPTQ has it in quantize_config.json, which is missing, too)"},
              {".qzeros", "AWQ or GPTQ"},
              {".qweight", "GPTQ or AWQ"},
              {".weight_packed", "compressed-tensors"},
              {".weight_scale_inv", "fp8 with scales of blocks"},
              {".weight_scale", "compressed-tensors or fp8 with scales"}};

ln_status ln_quant_check_names(const ln_quant *q, const ln_tensors *t, ln_error *err) {
    char shown[LN_PATH_TEXT], text[80];
    for (size_t k = 0; k < LN_COUNT(packed) && !q->block; k++)
        for (size_t i = 0; i < t->n; i++) {
            const ln_tensor *x = &t->items[i];
            if (!ln_ends_with(x->name, packed[k].end)) continue;
            return ln_fail(err, LN_EUNSUPPORTED,
                           "tensor %s: a matrix as %s packs it, and %s has no quantization_config that says "
                           "how; get the file that has it, or use a checkpoint in bf16, f16 or f32",
                           ln_excerpt(text, x->name, x->name_bytes), packed[k].tool,
                           ln_path_text(shown, q->from.path));
        }
    return LN_OK;
}

static bool is_named(const json_t *entry, const char *field) {
    const json_t *value = json_object_get(entry, field);
    return value && !json_is_null(value);
}

ln_status ln_quant_of(const ln_quant *q, const char *path, ln_quant_entry *out, ln_error *err) {
    const json_t *v = q->block ? json_object_get(q->block, path) : NULL;
    char where[160], shown[80];
    *out = (ln_quant_entry){.found = v != NULL};
    if (!v || json_is_false(v)) return LN_OK;
    (void)snprintf(where, sizeof where, "%s.%s", q->where, ln_excerpt(shown, path, strlen(path)));
    if (json_is_true(v)) {
        out->code = q->code;
        out->mode = q->mode;
        out->names_bits = out->names_group = true;
        return LN_OK;
    }
    if (!json_is_object(v)) return ln_config_fail(&q->from, v, where, "true, false or an object", err);
    out->names_bits = is_named(v, "bits");
    out->names_group = is_named(v, "group_size");
    return read_form(&q->from, v, where, &ln_mlx_mode_groups[0], &out->code, &out->mode, err);
}
