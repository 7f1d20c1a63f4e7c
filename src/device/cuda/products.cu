// The kernels of linear and linear_gated for one width of codes, GPU_CODE_BITS, which the build defines; 0:
// dense weights. The object of dense weights also has gpu_linear, which chooses among all.
#include "products.cuh"
#include "products_f32.cuh"
#if GPU_CODE_BITS == 0
#include "products_gemm.cuh"
#else
#include "products_mma.cuh"
#endif

#define JOIN(a, b, c) a##b##c
#define NAME_OF(bits) JOIN(product_, bits, bit)

// Rows up to which the kernel of few rows (launch_mma) is taken: where there is wgmma, and where the tiles of
// mma.sync (launch_gemm) are the other choice.
enum { FEW_ROWS_WGMMA = 8, FEW_ROWS = 64 };
static inline bool try_wgmma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
#ifdef GPU_HOPPER
    return p->w[0].form == GPU_FRAGMENTS && grid_rows(l, p->x.rows) > FEW_ROWS_WGMMA && gpu_wgmma(l, s, p);
#else
    (void)l, (void)s, (void)p;
    return false;
#endif
}

#if GPU_CODE_BITS == 0
PRODUCT_OF(product_dense) {
    const bool bf16 = p->x.type == GPU_BF16 || p->norm.data;
    if (!bf16 || p->w[0].form != GPU_FRAGMENTS) launch_f32<0>(l, s, p);
    else if (try_wgmma(l, s, p)) return;
    else if (grid_rows(l, p->x.rows) <= FEW_ROWS) launch_mma(l, s, p);
    else launch_gemm(l, s, p);
}

int gpu_products_open(bool hopper, int32_t *clusters) {
    cudaError_t e = cudaFuncSetAttribute((const void *)product_gemm<true>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, GEMM_SHARED);
    *clusters = 0;
    if (e != cudaSuccess) return (int)e;
    e = cudaFuncSetAttribute((const void *)product_gemm<false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             GEMM_SHARED);
#ifdef GPU_HOPPER
    if (e == cudaSuccess && hopper) return gpu_wgmma_open(clusters);
#else
    (void)hopper;
#endif
    return (int)e;
}

// Normalises x by a kernel of its own where the product's kernel does not do it.
static int normalise(const gpu_launch *l, const gpu_step *s, gpu_product *p) {
    if (!p->norm.data || (p->w[0].form == GPU_FRAGMENTS && norms_itself(l, p))) return 0;
    const int error = gpu_rmsnorm(l, s, &p->x, &p->norm, &p->normed, p->eps, p->offset);
    p->x = p->normed;
    p->norm.data = NULL;
    return error;
}

int gpu_linear(const gpu_launch *l, const gpu_step *s, const gpu_product *product) {
    gpu_product copy = *product;
    const gpu_product *p = &copy;
    const int error = normalise(l, s, &copy);
    if (error) return error;
    switch (p->w[0].bits) {
    case 0: product_dense(l, s, p); break;
    case 2: product_2bit(l, s, p); break;
    case 3: product_3bit(l, s, p); break;
    case 4: product_4bit(l, s, p); break;
    case 5: product_5bit(l, s, p); break;
    case 6: product_6bit(l, s, p); break;
    default: product_8bit(l, s, p); break;
    }
    return (int)cudaGetLastError();
}
#else
PRODUCT_OF(NAME_OF(GPU_CODE_BITS)) {
    const bool bf16 = p->x.type == GPU_BF16 || p->norm.data;
    if (bf16 && try_wgmma(l, s, p)) return;
    if (bf16) launch_mma(l, s, p);
    else launch_f32<GPU_CODE_BITS>(l, s, p);
}
#endif
