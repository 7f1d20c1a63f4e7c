/* Fuzzes the readers of the quantised formats of other tools (checkpoint/schemes.def). The input is a
 * quantization block, a byte 0xFF (which no JSON document contains) and a safetensors file, in which the
 * target looks for a matrix a.weight of 16 rows and 64 columns. The block's quant_method chooses the reader.
 * What is read must have finite numbers, the same in one piece and row by row. */
#include "fuzz_dir.h"

#include "base/thread_pool.h"
#include "checkpoint/source.h"

#include <math.h>

enum { D = 16, C = 64 };

static void fuzz_open(void) { dir_open(); }

static ln_status decode(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n, float *out,
                        ln_error *err) {
    static _Alignas(64) uint8_t buffer[1 << 18];
    const ln_source_work work = {ln_pool_default(), 1};
    ln_encoded_rows rows;
    must(ln_source_bytes(w, n) <= sizeof buffer);
    LN_TRY(s->ops->rows(s, w, row0, n, &work, buffer, &rows, err));
    for (int64_t r = 0; r < n; r++) ln_encoding_decode(w->enc, &rows, r, C, out + r * C);
    return LN_OK;
}

static ln_status check_rows(const ln_source *s, const ln_weight *w, ln_error *err) {
    static float whole[D * C], row[C];
    LN_TRY(decode(s, w, 0, D, whole, err));
    for (int r = 0; r < D && w->made; r++) {
        LN_TRY(decode(s, w, r, 1, row, err));
        must(memcmp(row, whole + r * C, sizeof row) == 0);
        for (int i = 0; i < C; i++) must(isfinite(row[i]));
    }
    return LN_OK;
}

static ln_status read_matrix(const ln_tensors *t, const ln_quant *q, ln_error *err) {
    static const char *const names[] = {"a.weight"};
    ln_arena arena = {0};
    ln_bind_report report = {.t = t};
    const ln_source_ask ask = {.names = names, .n_names = 1, .report = &report};
    ln_weight w = {.d0 = D, .d1 = C};
    bool fits = false;
    const ln_source *s = ln_source_of_tensors(&arena, t, q);
    ln_status st = s ? s->ops->find(s, &ask, &w, &fits, err) : LN_OOM(err, "a source");
    if (st == LN_OK) st = ln_report_end(&report, err);
    if (st == LN_OK && w.tensor) must(fits);
    if (st == LN_OK && w.tensor) st = check_rows(s, &w, err);
    ln_str_free(&report.list);
    ln_arena_free(&arena);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
    const size_t n = mark ? (size_t)(mark - data) : bytes;
    ln_str json = {0};
    ln_config c;
    ln_quant q;
    ln_tensors t;
    ln_str_adds(&json, "{\"model_type\":\"llama\",\"quantization_config\":");
    ln_str_add(&json, (const char *)data, n);
    ln_str_adds(&json, "}");
    if (json.failed) {
        ln_str_free(&json);
        return LN_OOM(err, "the input");
    }
    dir_put("config.json", json.data, json.len);
    ln_str_free(&json);
    LN_TRY(ln_config_open(&c, fuzz_dir, err));
    ln_status st = ln_quant_open(&q, &c, err);
    const uint8_t *file = mark ? mark + 1 : data + n;
    if (st == LN_OK) {
        st = ln_tensors_open_memory(&t, "m.safetensors", file, bytes - (size_t)(file - data), err);
        if (st == LN_OK) {
            st = read_matrix(&t, &q, err);
            ln_tensors_close(&t);
        }
        ln_quant_close(&q);
    }
    ln_config_close(&c);
    return st == LN_ENUMERIC ? (err->code = LN_EINVALID) : st; /* a value that makes no weight */
}
