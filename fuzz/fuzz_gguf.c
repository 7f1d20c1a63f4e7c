/* Fuzzes the reader of GGUF files, from memory. The target checks what holds of every file that opens: keys
 * are sorted and can be looked up, each element of each value can be read, tensors lie within the data and do
 * not overlap, every byte of them is readable. */
#include "fuzz.h"

#include "base/gguf.h"

static void fuzz_open(void) {}

static volatile unsigned total; /* keeps the reads */
static unsigned check_values(const ln_gguf *g) {
    unsigned sum = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const ln_gguf_value *v = &g->values[i];
        char key[LN_GGUF_MAX_NAME + 1];
        must(v->key_bytes > 0 && v->key_bytes <= LN_GGUF_MAX_NAME);
        memcpy(key, v->key, v->key_bytes);
        key[v->key_bytes] = '\0';
        must(ln_gguf_find(g, key) == v);
        for (uint64_t k = 0; k < v->n; k++) {
            const ln_gguf_text text = ln_gguf_text_at(v, k);
            for (size_t b = 0; b < text.bytes; b++) sum += (unsigned char)text.data[b];
            sum += (unsigned)ln_gguf_int_at(v, k) + (ln_gguf_real_at(v, k) > 0);
        }
        double real = 0;
        ln_error err;
        const ln_status st = ln_gguf_real(g, key, &real, NULL, &err);
        must(st == LN_OK || (st == LN_EINVALID && err.message[0]));
    }
    return sum;
}

static unsigned check_tensors(const ln_gguf *g, const uint8_t *data, size_t bytes) {
    unsigned sum = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const ln_gguf_tensor *x = &g->tensors[i];
        must(x->n_dims >= 0 && x->n_dims <= 4 && ln_ggml_block_of((uint32_t)x->type).name);
        must(x->data >= data && x->bytes <= bytes && (size_t)(x->data - data) <= bytes - x->bytes);
        must(ln_gguf_tensor_named(g, x->name) == x);
        for (size_t k = 0; k < i; k++) {
            const ln_gguf_tensor *y = &g->tensors[k];
            must(x->data + x->bytes <= y->data || y->data + y->bytes <= x->data);
        }
        for (uint64_t k = 0; k < x->bytes; k++) sum += x->data[k];
    }
    return sum;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    ln_gguf *g;
    LN_TRY(ln_gguf_open_memory(&g, "fuzz", data, bytes, err));
    total += check_values(g) + check_tensors(g, data, bytes);
    must(ln_gguf_find(g, "no such key") == NULL && ln_gguf_tensor_named(g, "") == NULL);
    ln_gguf_close(&g);
    return LN_OK;
}
