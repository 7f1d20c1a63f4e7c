// The kernels of linear and linear_gated for one width of codes, GPU_CODE_BITS, which the build defines; 0:
// dense weights, 16: those in f16 that tensor cores multiply. The object of dense weights also has
// gpu_linear, which chooses among all.
#include "products.cuh"
#include "experts_f32.cuh"
#include "experts_mma.cuh"
#if GPU_CODE_BITS == 0
#include "products_gemm.cuh"
#endif

#define JOIN(a, b, c)         a##b##c
#define NAME_OF(bits)         JOIN(product_, bits, bit)
#define EXPERTS_NAME_OF(bits) JOIN(experts_, bits, bit)

#if GPU_CODE_BITS != 16
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
#endif

#if GPU_CODE_BITS == 0
EXPERTS_OF(experts_dense) {
    if (e->w.form == GPU_FRAGMENTS && experts_by_tiles(e)) {
        if (e->w.type == GPU_F16) experts_16bit(l, s, e);
        else launch_experts(l, s, e);
    } else launch_experts_f32<0>(l, s, e);
}
PRODUCT_OF(product_dense) {
    const bool bf16 = p->x.type == GPU_BF16 || p->norm.data;
    if (!bf16 || p->w[0].form != GPU_FRAGMENTS) launch_f32<0>(l, s, p);
    else if (p->w[0].type == GPU_F16) product_16bit(l, s, p);
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

bool gpu_unpacks(const gpu_weight *w, int32_t clusters) {
    const bool read_by_wgmma = clusters > 0 && w->form == GPU_FRAGMENTS && w->C % 64 == 0 &&
                               (w->type == GPU_BF16 || (w->bits == 4 && w->type == GPU_F16));
    return w->bits > 0 && w->form != GPU_CODED && w->C % CHUNK == 0 && !read_by_wgmma;
}

// The elements from `d` on of a row, or of a bias.
static gpu_array from_column(gpu_array a, int64_t d) {
    if (a.data) a.data = (char *)a.data + d * (a.type == GPU_F32 ? 4 : 2);
    return a;
}
static gpu_weight from_output(gpu_weight b, int64_t d) {
    if (b.data) b.data = (const char *)b.data + d * (b.type == GPU_F32 ? 4 : 2);
    return b;
}
// The product of many rows with weights in groups: as bf16, as many outputs at a time as there is space for.
static void product_unpacked(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const bool gated = p->gate != GPU_NO_GATE;
    gpu_launch after = *l;
    after.overlap = false; // a product reads weights before it waits for the kernel before it
    const int64_t row = p->w[0].C * 2 * (gated ? 2 : 1),
                  most = (int64_t)p->unpacked_bytes / row / GEMM_TILE * GEMM_TILE;
    for (int32_t i = 0; i < p->n; i++)
        for (int64_t d = 0; d < p->w[i].D; d += most) {
            const int64_t n = p->w[i].D - d < most ? p->w[i].D - d : most;
            gpu_product part = *p;
            part.n = 1, part.tail = NULL;
            part.w[0] = unpacked_part(l, &p->w[i], d, n, p->unpacked);
            if (gated)
                part.w[1] = unpacked_part(l, &p->w[1], d, n, (char *)p->unpacked + most * p->w[0].C * 2);
            part.bias[0] = from_output(p->bias[i], d);
            part.residual = from_column(p->residual, d);
            part.y[0] = from_column(p->y[i], d);
            product_dense(&after, s, &part);
        }
}
static bool is_unpacked(const gpu_launch *l, const gpu_product *p) {
    return p->unpacked && p->x.type == GPU_BF16 && grid_rows(l, p->x.rows) > FEW_ROWS;
}

int gpu_linear(const gpu_launch *l, const gpu_step *s, const gpu_product *product) {
    gpu_product copy = *product;
    const gpu_product *p = &copy;
    const int error = normalise(l, s, &copy);
    if (error) return error;
    if (p->w[0].form == GPU_CODED) {
        product_coded(l, s, p);
        return (int)cudaGetLastError();
    }
    if (is_unpacked(l, p)) {
        product_unpacked(l, s, p);
        return (int)cudaGetLastError();
    }
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
#elif GPU_CODE_BITS == 16
EXPERTS_OF(experts_16bit) { launch_experts(l, s, e); }
PRODUCT_OF(product_16bit) { launch_mma(l, s, p); }
#else
EXPERTS_OF(EXPERTS_NAME_OF(GPU_CODE_BITS)) {
    if (experts_by_tiles(e)) launch_experts(l, s, e);
    else launch_experts_f32<GPU_CODE_BITS>(l, s, e);
}
PRODUCT_OF(NAME_OF(GPU_CODE_BITS)) {
    const bool bf16 = p->x.type == GPU_BF16 || p->norm.data;
    if (bf16 && try_wgmma(l, s, p)) return;
    if (bf16) launch_mma(l, s, p);
    else launch_f32<GPU_CODE_BITS>(l, s, p);
}
#endif
