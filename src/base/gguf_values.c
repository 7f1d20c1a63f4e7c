/* Values of a GGUF file's metadata: typed, with range checks and messages. */
#include "gguf.h"

#include "c_locale.h"

#include <math.h>
#include <string.h>

static const unsigned sizes[LN_GGUF_TYPES] = {
    [LN_GGUF_U8] = 1,  [LN_GGUF_I8] = 1,  [LN_GGUF_U16] = 2, [LN_GGUF_I16] = 2,
    [LN_GGUF_U32] = 4, [LN_GGUF_I32] = 4, [LN_GGUF_F32] = 4, [LN_GGUF_BOOL] = 1,
    [LN_GGUF_U64] = 8, [LN_GGUF_I64] = 8, [LN_GGUF_F64] = 8,
};

static bool is_real(ln_gguf_type t) { return t == LN_GGUF_F32 || t == LN_GGUF_F64; }
static bool is_signed(ln_gguf_type t) {
    return t == LN_GGUF_I8 || t == LN_GGUF_I16 || t == LN_GGUF_I32 || t == LN_GGUF_I64;
}
static bool is_integer(ln_gguf_type t) {
    return is_signed(t) || t == LN_GGUF_U8 || t == LN_GGUF_U16 || t == LN_GGUF_U32 || t == LN_GGUF_U64;
}

int64_t ln_gguf_int_at(const ln_gguf_value *v, uint64_t i) {
    const unsigned bytes = sizes[v->type];
    uint64_t x = 0;
    if (bytes == 0 || is_real(v->type)) return 0;
    for (unsigned b = bytes; b-- > 0;) x = x << 8 | v->data[i * bytes + b];
    if (is_signed(v->type)) {
        const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
        return (int64_t)((x ^ sign) - sign);
    }
    return x > INT64_MAX ? INT64_MAX : (int64_t)x;
}

double ln_gguf_real_at(const ln_gguf_value *v, uint64_t i) {
    float f;
    double d;
    if (v->type == LN_GGUF_F32) {
        memcpy(&f, v->data + 4 * i, 4);
        return (double)f;
    }
    if (v->type == LN_GGUF_F64) {
        memcpy(&d, v->data + 8 * i, 8);
        return d;
    }
    return (double)ln_gguf_int_at(v, i);
}

/* Returns the text at p, and advances p past it. */
static ln_gguf_text text_here(const uint8_t **p) {
    uint64_t n;
    memcpy(&n, *p, 8);
    const ln_gguf_text text = {(const char *)*p + 8, (size_t)n};
    *p += 8 + n;
    return text;
}

ln_gguf_text ln_gguf_text_at(const ln_gguf_value *v, uint64_t i) {
    ln_gguf_text text = {"", 0};
    if (v->type != LN_GGUF_TEXT) return text;
    const uint8_t *p = v->is_array ? v->data + v->marks[i / LN_GGUF_MARK] : v->data;
    for (uint64_t k = v->is_array ? i % LN_GGUF_MARK : 0; k > 0; k--) (void)text_here(&p);
    return text_here(&p);
}

/* Describes a value in a message. */
static const char *value_text(const ln_gguf_value *v, char out[160]) {
    static const char *const names[LN_GGUF_TYPES] = {[LN_GGUF_BOOL] = "bools",
                                                     [LN_GGUF_TEXT] = "texts",
                                                     [LN_GGUF_F32] = "numbers",
                                                     [LN_GGUF_F64] = "numbers"};
    char shown[80];
    if (!v) return "nothing";
    if (v->is_array)
        (void)ln_snprintf(out, 160, "an array of %llu %s", (unsigned long long)v->n,
                          names[v->type] ? names[v->type] : "integers");
    else if (v->type == LN_GGUF_TEXT) {
        const ln_gguf_text text = ln_gguf_text_at(v, 0);
        (void)ln_snprintf(out, 160, "the text \"%s\"", ln_excerpt(shown, text.data, text.bytes));
    } else if (v->type == LN_GGUF_BOOL) return v->data[0] ? "true" : "false";
    else if (is_real(v->type)) (void)ln_snprintf(out, 160, "%g", ln_gguf_real_at(v, 0));
    else (void)ln_snprintf(out, 160, "%lld", (long long)ln_gguf_int_at(v, 0));
    return out;
}

ln_status ln_gguf_fail(const ln_gguf *g, const char *key, const char *wanted, ln_error *err) {
    char path[LN_PATH_TEXT], found[160];
    return ln_fail(err, LN_EINVALID, "%s: key %s: expected %s, found %s",
                   ln_path_text(path, g->files[0].path), key, wanted,
                   value_text(ln_gguf_find(g, key), found));
}

/* Finds the value of a key; *v NULL: there is none. */
static bool look(const ln_gguf *g, const char *key, const ln_gguf_value **v, bool *found) {
    *v = ln_gguf_find(g, key);
    if (found) *found = *v != NULL;
    return *v != NULL;
}

ln_status ln_gguf_int(const ln_gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, bool *found,
                      ln_error *err) {
    const ln_gguf_value *v;
    char wanted[96];
    if (!look(g, key, &v, found)) return LN_OK;
    const int64_t x = ln_gguf_int_at(v, 0);
    if (!v->is_array && is_integer(v->type) && x >= lo && x <= hi) {
        *out = x;
        return LN_OK;
    }
    (void)ln_snprintf(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)lo, (long long)hi);
    return ln_gguf_fail(g, key, wanted, err);
}

ln_status ln_gguf_real(const ln_gguf *g, const char *key, double *out, bool *found, ln_error *err) {
    const ln_gguf_value *v;
    if (!look(g, key, &v, found)) return LN_OK;
    if (v->is_array || !(is_real(v->type) || is_integer(v->type)) || !isfinite(ln_gguf_real_at(v, 0)))
        return ln_gguf_fail(g, key, "a finite number", err);
    *out = ln_gguf_real_at(v, 0);
    return LN_OK;
}

ln_status ln_gguf_bool(const ln_gguf *g, const char *key, bool *out, bool *found, ln_error *err) {
    const ln_gguf_value *v;
    if (!look(g, key, &v, found)) return LN_OK;
    if (v->is_array || v->type != LN_GGUF_BOOL) return ln_gguf_fail(g, key, "a bool", err);
    *out = v->data[0] != 0;
    return LN_OK;
}

ln_status ln_gguf_get_text(const ln_gguf *g, const char *key, ln_gguf_text *out, bool *found, ln_error *err) {
    const ln_gguf_value *v;
    if (!look(g, key, &v, found)) return LN_OK;
    if (v->is_array || v->type != LN_GGUF_TEXT) return ln_gguf_fail(g, key, "a text", err);
    *out = ln_gguf_text_at(v, 0);
    return LN_OK;
}

ln_status ln_gguf_array(const ln_gguf *g, const char *key, ln_gguf_type of, const ln_gguf_value **out,
                        ln_error *err) {
    const ln_gguf_value *v = *out = ln_gguf_find(g, key);
    if (!v) return LN_OK;
    const bool fits = of == LN_GGUF_TEXT || of == LN_GGUF_BOOL ? v->type == of
                      : of == LN_GGUF_F64                      ? is_real(v->type) || is_integer(v->type)
                                                               : is_integer(v->type);
    if (v->is_array && fits) return LN_OK;
    return ln_gguf_fail(g, key,
                        of == LN_GGUF_TEXT   ? "an array of texts"
                        : of == LN_GGUF_BOOL ? "an array of bools"
                        : of == LN_GGUF_F64  ? "an array of numbers"
                                             : "an array of integers",
                        err);
}
