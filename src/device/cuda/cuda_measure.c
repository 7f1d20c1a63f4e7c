/* Measures the ceilings of a GPU: the bandwidth of a copy within its memory, and the rate of a product of
 * bf16 matrices by cuBLAS, whose library is loaded where the system finds it. Without the library the second
 * is not measured; this device's own products are no ceiling, because they are what is compared with it. */
#include "cuda_device.h"

#include <dlfcn.h>
#include <library_types.h>
#include <stdio.h>
#include <string.h>

/* ROUNDS: of which the best counts; CALLS: of a round; SIDE: rows and columns of the matrices. */
enum { ROUNDS = 3, CALLS = 8, SIDE = 8192 };

typedef struct measuring {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *from, *to; /* [bytes] in device memory */
    size_t bytes;
    void *blas;
} measuring;

/* The functions of cuBLAS that are called; the constants are those of its interface. */
enum { BLAS_TRANSPOSE = 1, BLAS_PLAIN = 0, BLAS_COMPUTE_F32 = 68, BLAS_ANY_ALGORITHM = -1 };
static struct {
    int (*create)(void **handle), (*destroy)(void *handle), (*set_stream)(void *handle, cudaStream_t stream);
    int (*gemm)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
                const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb,
                const void *beta, void *c, cudaDataType c_type, int ldc, int compute, int algorithm);
} blas;

static bool has_blas;

/* Loads the library of this CUDA version, which stays loaded; called once in the process. */
static void find_blas(void) {
    char name[32];
    void *symbol;
    (void)snprintf(name, sizeof name, "libcublas.so.%d", CUDART_VERSION / 1000);
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
#define FIND(to, name) \
    (symbol = dlsym(library, name), memcpy(&blas.to, &symbol, sizeof symbol), symbol != NULL)
    has_blas = library && FIND(create, "cublasCreate_v2") && FIND(destroy, "cublasDestroy_v2") &&
               FIND(set_stream, "cublasSetStream_v2") && FIND(gemm, "cublasGemmEx");
#undef FIND
}

static ln_status copy_once(const measuring *m, ln_error *err) {
    return gpu_status((int)cudaMemcpyAsync(m->to, m->from, m->bytes, cudaMemcpyDeviceToDevice, m->stream),
                      "measuring", err);
}
static ln_status multiply_once(const measuring *m, ln_error *err) {
    const float one = 1, zero = 0;
    const char *a = m->from, *b = a + (size_t)SIDE * SIDE * 2;
    const int e =
        blas.gemm(m->blas, BLAS_TRANSPOSE, BLAS_PLAIN, SIDE, SIDE, SIDE, &one, a, CUDA_R_16BF, SIDE, b,
                  CUDA_R_16BF, SIDE, &zero, m->to, CUDA_R_16BF, SIDE, BLAS_COMPUTE_F32, BLAS_ANY_ALGORITHM);
    return e ? ln_fail(err, LN_EDEVICE, "device cuda: cublasGemmEx failed with status %d", e) : LN_OK;
}

/* Seconds of a call: the least of ROUNDS means of CALLS calls, after one call that does not count. */
static ln_status seconds_of(const measuring *m, ln_status (*call)(const measuring *, ln_error *), double *out,
                            ln_error *err) {
    *out = 0;
    LN_TRY(call(m, err));
    for (int round = 0; round < ROUNDS; round++) {
        float ms;
        GPU_TRY(cudaEventRecord(m->begin, m->stream), "measuring");
        for (int i = 0; i < CALLS; i++) LN_TRY(call(m, err));
        GPU_TRY(cudaEventRecord(m->end, m->stream), "measuring");
        GPU_TRY(cudaEventSynchronize(m->end), "measuring");
        GPU_TRY(cudaEventElapsedTime(&ms, m->begin, m->end), "measuring");
        const double each = (double)ms * 1e-3 / CALLS;
        if (round == 0 || each < *out) *out = each;
    }
    return LN_OK;
}

/* Fills `from` with random bf16 numbers: a product of zeros takes less power, and may be faster. */
static ln_status fill(const measuring *m, ln_error *err) {
    enum { PIECE = 1 << 20 };
    uint16_t *piece = ln_alloc(PIECE * sizeof *piece);
    if (!piece) return LN_OOM(err, "random numbers");
    for (uint32_t i = 0; i < PIECE; i++) {
        uint32_t bits[4];
        ln_philox((const uint32_t[4]){i}, (const uint32_t[2]){0}, bits);
        piece[i] = ln_f32_bf16((float)(int32_t)bits[0] * 0x1p-31f);
    }
    size_t have = LN_MIN(m->bytes, PIECE * sizeof *piece);
    ln_status st = gpu_status((int)cudaMemcpyAsync(m->from, piece, have, cudaMemcpyHostToDevice, m->stream),
                              "measuring", err);
    for (size_t n; st == LN_OK && have < m->bytes; have += n) {
        n = LN_MIN(have, m->bytes - have);
        st = gpu_status((int)cudaMemcpyAsync(m->from + have, m->from, n, cudaMemcpyDeviceToDevice, m->stream),
                        "measuring", err);
    }
    if (st == LN_OK) st = gpu_status((int)cudaStreamSynchronize(m->stream), "measuring", err);
    ln_free(piece);
    return st;
}

/* *flop_s is 0 where cuBLAS is not found, cannot be used, or the buffers are too small for its matrices. */
static ln_status measure_products(measuring *m, double *flop_s, ln_error *err) {
    double seconds;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *flop_s = 0;
    if (m->bytes < (size_t)SIDE * SIDE * 4) return LN_OK;
    (void)pthread_once(&once, find_blas);
    if (!has_blas) return LN_OK;
    if (blas.create(&m->blas) != 0) return LN_OK;
    const int e = blas.set_stream(m->blas, m->stream);
    ln_status st = e ? ln_fail(err, LN_EDEVICE, "device cuda: cublasSetStream failed with status %d", e)
                     : seconds_of(m, multiply_once, &seconds, err);
    (void)blas.destroy(m->blas);
    if (st == LN_OK) *flop_s = 2.0 * SIDE * SIDE * SIDE / seconds;
    return st;
}

ln_status gpu_measure(ln_dev *d, size_t bytes, ln_dev_limits *out, ln_error *err) {
    measuring m = {.stream = d->uploads, .bytes = bytes};
    double seconds;
    void *p = NULL;
    ln_status st = LN_OK;
    *out = (ln_dev_limits){0};
    LN_GO(gpu_use(d, err));
    GPU_GO(cudaEventCreate(&m.begin), "measuring");
    GPU_GO(cudaEventCreate(&m.end), "measuring");
    GPU_GO(cudaMalloc(&p, 2 * bytes), "measuring");
    m.from = p, m.to = m.from + bytes;
    LN_GO(fill(&m, err));
    LN_GO(seconds_of(&m, copy_once, &seconds, err));
    out->read_bytes_s = 2.0 * (double)bytes / seconds;
    LN_GO(measure_products(&m, &out->flop_s, err));
out:
    if (m.begin) (void)cudaEventDestroy(m.begin);
    if (m.end) (void)cudaEventDestroy(m.end);
    (void)cudaFree(p);
    return st;
}
