/* Builds GGUF files in memory for tests: add keys, add tensors, finish.
 *
 *     gguf_build b = {0};
 *     gguf_text(&b, "general.architecture", "llama");
 *     gguf_tensor(&b, "a", 0, 2, (uint64_t[]){4, 2}, 32);
 *     size_t bytes;
 *     uint8_t *file = gguf_finish(&b, &bytes);   the caller frees it
 *
 * Nothing is checked, so that files with any fault can be built. Data of a tensor are bytes 0, 1, 2, ... */
#ifndef LN_TESTS_GGUF_BUILD_H
#define LN_TESTS_GGUF_BUILD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_bytes {
    uint8_t *p;
    size_t n, capacity;
} gguf_bytes;
typedef struct gguf_build {
    gguf_bytes keys, tensors, data;
    uint64_t n_keys, n_tensors;
    uint32_t version;      /* 0: 3 */
    uint64_t more_keys;    /* added to the count of keys that the header states */
    uint64_t more_tensors; /* the same for tensors */
    uint64_t alignment;    /* 0: 32 */
    int64_t shift;         /* added to the offset of the tensor that is added next */
} gguf_build;

static inline void gguf_add(gguf_bytes *b, const void *p, size_t n) {
    if (b->n + n + 1 > b->capacity) { /* doubled: AddressSanitizer's realloc copies each time */
        b->capacity = (b->n + n + 1) * 2;
        b->p = realloc(b->p, b->capacity);
        if (!b->p) abort();
    }
    if (n > 0) memcpy(b->p + b->n, p, n);
    b->n += n;
}
static inline void gguf_number(gguf_bytes *b, uint64_t v, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) gguf_add(b, &(uint8_t){(uint8_t)(v >> 8 * i)}, 1);
}
static inline void gguf_string(gguf_bytes *b, const char *text, size_t n) {
    gguf_number(b, n, 8);
    gguf_add(b, text, n);
}
static inline void gguf_key(gguf_build *b, const char *key, uint32_t type) {
    gguf_string(&b->keys, key, strlen(key));
    gguf_number(&b->keys, type, 4);
    b->n_keys++;
}
static inline void gguf_u32(gguf_build *b, const char *key, uint32_t v) {
    gguf_key(b, key, 4);
    gguf_number(&b->keys, v, 4);
}
static inline void gguf_u16(gguf_build *b, const char *key, uint16_t v) {
    gguf_key(b, key, 2);
    gguf_number(&b->keys, v, 2);
}
static inline void gguf_bool(gguf_build *b, const char *key, uint8_t v) {
    gguf_key(b, key, 7);
    gguf_number(&b->keys, v, 1);
}
static inline void gguf_f32(gguf_build *b, const char *key, float v) {
    gguf_key(b, key, 6);
    gguf_add(&b->keys, &v, 4);
}
static inline void gguf_text(gguf_build *b, const char *key, const char *text) {
    gguf_key(b, key, 8);
    gguf_string(&b->keys, text, strlen(text));
}
static inline void gguf_texts(gguf_build *b, const char *key, const char *const *texts, size_t n) {
    gguf_key(b, key, 9);
    gguf_number(&b->keys, 8, 4);
    gguf_number(&b->keys, n, 8);
    for (size_t i = 0; i < n; i++) gguf_string(&b->keys, texts[i], strlen(texts[i]));
}
static inline void gguf_i32s(gguf_build *b, const char *key, const int32_t *v, size_t n) {
    gguf_key(b, key, 9);
    gguf_number(&b->keys, 5, 4);
    gguf_number(&b->keys, n, 8);
    for (size_t i = 0; i < n; i++) gguf_number(&b->keys, (uint32_t)v[i], 4);
}
static inline void gguf_f32s(gguf_build *b, const char *key, const float *v, size_t n) {
    gguf_key(b, key, 9);
    gguf_number(&b->keys, 6, 4);
    gguf_number(&b->keys, n, 8);
    gguf_add(&b->keys, v, 4 * n);
}

static inline void gguf_pad(gguf_bytes *b, uint64_t from, uint64_t alignment) {
    while ((from + b->n) % alignment) gguf_number(b, 0, 1);
}
/* Adds a tensor with the given data, or, if that is NULL, with bytes 0, 1, 2, ... */
static inline void gguf_tensor_of(gguf_build *b, const char *name, uint32_t type, int rank,
                                  const uint64_t *dims, const void *data, size_t bytes) {
    gguf_pad(&b->data, 0, b->alignment ? b->alignment : 32);
    gguf_string(&b->tensors, name, strlen(name));
    gguf_number(&b->tensors, (uint32_t)rank, 4);
    for (int i = 0; i < rank; i++) gguf_number(&b->tensors, dims[i], 8);
    gguf_number(&b->tensors, type, 4);
    gguf_number(&b->tensors, b->data.n + (uint64_t)b->shift, 8);
    for (size_t i = 0; !data && i < bytes; i++) gguf_number(&b->data, i, 1);
    if (data) gguf_add(&b->data, data, bytes);
    b->n_tensors++;
    b->shift = 0;
}
static inline void gguf_tensor(gguf_build *b, const char *name, uint32_t type, int rank, const uint64_t *dims,
                               size_t bytes) {
    gguf_tensor_of(b, name, type, rank, dims, NULL, bytes);
}

static inline uint8_t *gguf_finish(gguf_build *b, size_t *bytes) {
    gguf_bytes out = {0};
    gguf_add(&out, "GGUF", 4);
    gguf_number(&out, b->version ? b->version : 3, 4);
    gguf_number(&out, b->n_tensors + b->more_tensors, 8);
    gguf_number(&out, b->n_keys + b->more_keys, 8);
    gguf_add(&out, b->keys.p, b->keys.n);
    gguf_add(&out, b->tensors.p, b->tensors.n);
    gguf_pad(&out, 0, b->alignment ? b->alignment : 32);
    gguf_add(&out, b->data.p, b->data.n);
    free(b->keys.p), free(b->tensors.p), free(b->data.p);
    *b = (gguf_build){0};
    *bytes = out.n;
    out.p = realloc(out.p, out.n); /* exact, so that a sanitizer sees a read beyond the end */
    if (!out.p) abort();
    return out.p;
}

#endif
