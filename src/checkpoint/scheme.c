/* The table of quantised formats, and what their readers share (scheme.h). */
#include "scheme.h"
#include "../base/file.h"

#include <stdio.h>
#include <string.h>

const ln_scheme ln_schemes[LN_SCHEME_COUNT] = {
#define LN_SCHEME(NAME, method, read, source) {method, read, &source},
#include "schemes.def"
#undef LN_SCHEME
};

enum {
    FP8 = 1 << LN_SCHEME_FP8,
    GPTQ = 1 << LN_SCHEME_GPTQ,
    AWQ = 1 << LN_SCHEME_AWQ,
    CT = 1 << LN_SCHEME_COMPRESSED,
    GGUF = 1 << LN_SCHEME_GGUF,
    MXFP4 = 1 << LN_SCHEME_MXFP4
};
static const ln_key keys[] = {
#define KEY(schemes, name, kind, same, what) {schemes, name, LN_KEY_##kind, same, what},
#include "scheme_keys.def"
#undef KEY
};
const ln_keys ln_scheme_keys = {.rows = keys, .n = LN_COUNT(keys)};

ln_status ln_scheme_int(const ln_quant *q, const char *const fields[2], int64_t dflt, int64_t lo, int64_t hi,
                        int64_t *out, ln_error *err) {
    char where[96];
    const json_t *value = json_object_get(q->block, fields[0]);
    const char *field = fields[0];
    if ((!value || json_is_null(value)) && fields[1]) {
        const json_t *other = json_object_get(q->block, fields[1]);
        if (other) value = other, field = fields[1];
    }
    *out = dflt;
    if ((!value || json_is_null(value)) && dflt) return LN_OK;
    (void)snprintf(where, sizeof where, "%s.%s", q->where, field);
    return ln_config_int_at(&q->from, value, where, lo, hi, out, err);
}

ln_status ln_scheme_unsupported(const ln_quant *q, const char *field, const json_t *value, const char *wanted,
                                ln_error *err) {
    char text[80], shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EUNSUPPORTED, "%s: %s.%s: expected %s, found %s; linnet reads no other kind of %s",
                   ln_path_text(shown, q->from.path), q->where, field, wanted, ln_json_text(value, text),
                   q->scheme->method);
}

const ln_tensor *ln_scheme_find(const ln_source *s, const ln_source_ask *ask, const char *leaf,
                                const char **weight) {
    for (size_t i = 0; i < ask->n_names; i++) {
        const ln_tensor *x = ln_source_sibling(s->tensors, ask->names[i], leaf);
        *weight = ask->names[i];
        if (x) return x;
    }
    return NULL;
}

void ln_scheme_part(const ln_source *s, const ln_source_ask *ask, const char *weight, const char *leaf,
                    const ln_tensor **out) {
    char name[LN_SOURCE_NAME];
    *out = ln_source_sibling(s->tensors, weight, leaf);
    if (*out) return;
    ln_source_sibling_name(name, weight, leaf);
    if (!ln_report_misplaced(ask->report, name)) ln_report_fault(ask->report, name, " is missing");
}

ln_status ln_scheme_bad_value(const ln_tensor *x, const char *wanted, const char *found, ln_error *err) {
    char name[80];
    return ln_fail(err, LN_ENUMERIC, "tensor %s: expected %s, found %s; get the file again",
                   ln_excerpt(name, x->name, x->name_bytes), wanted, found);
}

ln_status ln_scheme_bad_tensor(const ln_source *s, const ln_tensor *x, const char *text, ln_error *err) {
    char name[80], shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s: tensor %s: %s",
                   ln_path_text(shown, s->tensors->files[x->file].path),
                   ln_excerpt(name, x->name, x->name_bytes), text);
}

void *ln_scheme_keep(const ln_source *s, const void *what, size_t bytes) {
    void *p = ln_arena_alloc(s->arena, bytes);
    if (p) memcpy(p, what, bytes);
    return p;
}

ln_row_place ln_row_place_of(const ln_weight *w, void *buffer, int64_t n, int64_t at) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    uint8_t *data = buffer, *scales = data + ln_source_aligned(n * row.data),
            *offsets = scales + ln_source_aligned(n * row.scales);
    return (ln_row_place){data + at * row.data, scales + at * row.scales, offsets + at * row.offsets};
}

void ln_rows_copy(const ln_weight *w, ln_row_place to, const ln_encoded_rows *from, int64_t n, int64_t step) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    for (int64_t r = 0; r < n; r++) {
        memcpy(to.data + r * row.data, (const uint8_t *)from->data + r * step * row.data, (size_t)row.data);
        if (row.scales)
            memcpy(to.scales + r * row.scales, (const uint8_t *)from->scales + r * step * row.scales,
                   (size_t)row.scales);
        if (row.offsets)
            memcpy(to.offsets + r * row.offsets, (const uint8_t *)from->offsets + r * step * row.offsets,
                   (size_t)row.offsets);
    }
}

void ln_rows_release(const ln_weight *w, const ln_encoded_rows *rows, int64_t n) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    ln_guard_release(rows->data, (size_t)(n * row.data));
    if (row.scales) ln_guard_release(rows->scales, (size_t)(n * row.scales));
    if (row.offsets) ln_guard_release(rows->offsets, (size_t)(n * row.offsets));
}

void ln_take_format(ln_weight *w, const ln_weight *part) {
    w->tensor = part->tensor;
    w->dtype = part->dtype;
    w->enc = part->enc;
    w->code = part->code;
    w->transposed = part->transposed;
    w->made = true;
}
