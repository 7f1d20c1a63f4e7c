/* The public API of quantised weights: checks arguments and forwards; the contracts are in linnet.h. */
#include "../convert/convert.h"
#include "../package/package.h"
#include "check.h"
#include "../args/handle.h"

static bool dtype_named(const char *name, ln_dtype *out) {
    static const char *const names[] = {"float32", "bfloat16", "float16"}; /* in the order of ln_dtype */
    for (int i = 0; i < 3; i++)
        if (name && strcmp(name, names[i]) == 0) {
            *out = (ln_dtype)i;
            return true;
        }
    return false;
}

ln_status ln_dequantize(const void *codes, const void *scales, const void *biases, const char *dtype,
                        int bits, int group, int64_t rows, int64_t cols, void *out, ln_error *err) {
    char shown[80];
    ln_dtype t;
    int64_t n;
    ENTER;
    err = ln_api_error(err);
    if (!ln_affine_bits_ok(bits))
        return ln_fail(err, LN_EUSAGE, "%s: bits: expected 2, 3, 4, 5, 6 or 8, found %d", __func__, bits);
    if (!ln_affine_group_ok(group))
        return ln_fail(err, LN_EUSAGE, "%s: group: expected 32, 64 or 128, found %d", __func__, group);
    if (!dtype_named(dtype, &t))
        return ln_fail(err, LN_EUSAGE, "%s: dtype: expected float32, bfloat16 or float16, found %s", __func__,
                       dtype ? ln_excerpt(shown, dtype, strnlen(dtype, 100)) : "NULL");
    if (rows < 0 || cols < 0)
        return ln_fail(err, LN_EUSAGE, "%s: rows and cols must not be negative", __func__);
    if (cols % group != 0)
        return ln_fail(err, LN_EUSAGE, "%s: cols: expected whole groups of %d, found %lld", __func__, group,
                       (long long)cols);
    if (__builtin_mul_overflow(rows, cols, &n) || n > INT64_MAX / 8)
        return ln_fail(err, LN_EUSAGE, "%s: rows x cols is too large", __func__);
    if (n > 0 && (!codes || !scales || !biases || !out))
        return ln_fail(err, LN_EUSAGE, "%s: codes, scales, biases and out must not be NULL", __func__);
    const ln_groups e = {bits, group};
    const int64_t size = ln_dtype_bytes(t), groups = cols / group;
    for (int64_t r = 0; r < rows && cols > 0; r++)
        ln_affine_row((const uint8_t *)codes + r * ln_affine_row_bytes(e, cols),
                      (const uint8_t *)scales + r * groups * size,
                      (const uint8_t *)biases + r * groups * size, t, e, cols,
                      (uint8_t *)out + r * cols * size);
    return LN_OK;
}

ln_status ln_quantize(const char *model, const char *out, const ln_quantize_options *opt, ln_quantized_fn *fn,
                      void *user, ln_error *err) {
    ln_quantize_options all = ln_quantize_options_default(), *o = &all;
    ARG(model && out, "model and out must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&all, sizeof all, opt, "ln_quantize_options", err));
    if (o->bits && !ln_affine_bits_ok(o->bits))
        return ln_fail(err, LN_EUSAGE, "%s: bits: expected 2, 3, 4, 5, 6 or 8, found %d", __func__, o->bits);
    if (o->group && !ln_affine_group_ok(o->group))
        return ln_fail(err, LN_EUSAGE, "%s: group: expected 32, 64 or 128, found %d", __func__, o->group);
    if (o->n_threads < 0 || (o->n_overrides && !o->overrides))
        return ln_fail(err, LN_EUSAGE, "%s: n_threads must not be negative, overrides not NULL", __func__);
    for (size_t i = 0; i < o->n_overrides; i++)
        if (!o->overrides[i].name || (o->overrides[i].bits != 16 && !ln_affine_bits_ok(o->overrides[i].bits)))
            return ln_fail(err, LN_EUSAGE,
                           "%s: overrides[%zu]: expected a name, and 2, 3, 4, 5, 6, 8 or 16 bits, found %d",
                           __func__, i, o->overrides[i].bits);
    return ln_convert_quantize(model, out, o, LN_CONVERT_SHARD_BYTES, fn, user, err);
}

ln_status ln_convert_model(const char *model, const char *out, const ln_convert_options *opt,
                           ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_convert_options all = ln_convert_options_default(), *o = &all;
    ARG(model && out, "model and out must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&all, sizeof all, opt, "ln_convert_options", err));
    if (o->bits && !ln_affine_bits_ok(o->bits))
        return ln_fail(err, LN_EUSAGE, "ln_convert_options.bits: expected 2, 3, 4, 5, 6 or 8, found %d",
                       o->bits);
    if (o->group && (!o->bits || !ln_affine_group_ok(o->group)))
        return ln_fail(err, LN_EUSAGE,
                       "ln_convert_options.group: expected 32, 64 or 128, with bits, found %d", o->group);
    if (o->n_threads < 0) return ln_fail(err, LN_EUSAGE, "ln_convert_options.n_threads must not be negative");
    return ln_convert_gguf(model, out, o, LN_CONVERT_SHARD_BYTES, fn, user, err);
}

/* The check of ln_init_model: the model that was written opens, tokenizer included. */
static ln_status opens(void *user, const char *dir, ln_error *err) {
    const ln_options o = ln_options_default();
    ln_package *m = NULL;
    (void)user;
    LN_TRY(ln_package_open(&m, dir, &o, err));
    if (ln_tok_check(m->tok, NULL) != LN_OK)
        ln_log(LN_LOG_WARN, "the model has no tokenizer, and works with token ids alone: "
                            "ln_init_options.tokenizer names a model that has one");
    ln_package_close(&m);
    return LN_OK;
}

ln_status ln_init_model(const char *config, const char *out, const ln_init_options *opt, ln_quantized_fn *fn,
                        void *user, ln_error *err) {
    ln_init_options all = ln_init_options_default(), *o = &all;
    ARG(config && out, "config and out must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&all, sizeof all, opt, "ln_init_options", err));
    if (o->n_threads < 0) return ln_fail(err, LN_EUSAGE, "ln_init_options.n_threads must not be negative");
    return ln_convert_new(config, out, o, LN_CONVERT_SHARD_BYTES, fn, user, opens, NULL, err);
}
