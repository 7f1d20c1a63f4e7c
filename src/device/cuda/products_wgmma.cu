// The wgmma kernels for one stored form of the weight, GPU_WGMMA_FORM, which the build defines: a value of
// the enum in products_wgmma.cuh. The build compiles this file for compute capability 9.0 (sm_90a) only. The
// object of dense weights also has gpu_wgmma, which chooses among all.
#include "products_split.cuh"

template <int FORM> static int open_form(void) {
    return (int)open_few_rows<FORM>(open_wgmma<FORM>(cudaSuccess));
}
template <int FORM> static int launch_form(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (grid_rows(l, p->x.rows) <= SPLIT_ROWS) return launch_few_rows<FORM>(l, s, p);
    return launch_wgmma<FORM>(l, s, p);
}

#if GPU_WGMMA_FORM == 0
gpu_map_encoder gpu_encode_map;

// Whether clusters of this size fit on the device, which may be a part of a GPU: MIG.
template <typename K> static bool fits_cluster(K *kernel, unsigned cluster, unsigned threads, size_t shared) {
    cudaLaunchAttribute a = {};
    cudaLaunchConfig_t c = {};
    int n = 0;
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = cluster, a.val.clusterDim.y = a.val.clusterDim.z = 1;
    c.gridDim = dim3(cluster), c.blockDim = dim3(threads), c.dynamicSmemBytes = shared;
    c.attrs = &a, c.numAttrs = 1;
    const cudaError_t e = cudaOccupancyMaxActiveClusters(&n, kernel, &c);
    if (e != cudaSuccess) (void)cudaGetLastError();
    return e == cudaSuccess && n > 0;
}
static int32_t largest_cluster(void) {
    typedef split_shape<WG_DENSE, WG_SEGMENTS> eight;
    typedef wg_shape<192, WG_DENSE, false, WG_OUTPUTS> pair;
    if (!fits_cluster(product_wgmma<192, WG_DENSE, false, WG_OUTPUTS>, WG_CLUSTER, pair::THREADS,
                      pair::BYTES))
        return 0;
    return fits_cluster(product_split<WG_DENSE, false, WG_SEGMENTS>, WG_SEGMENTS, eight::THREADS,
                        eight::BYTES)
               ? WG_SEGMENTS
               : WG_CLUSTER;
}

int gpu_wgmma_open(int32_t *clusters) {
    void *f = NULL;
    *clusters = 0;
    cudaDriverEntryPointQueryResult found;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
    if (e == cudaSuccess && found != cudaDriverEntryPointSuccess) e = cudaErrorNotSupported;
    if (e != cudaSuccess) return (int)e;
    gpu_encode_map = (gpu_map_encoder)f;
    int r = wgmma_open_dense();
    if (r == 0) r = wgmma_open_bf16();
    if (r == 0) r = wgmma_open_f16();
    if (r == 0) r = wgmma_open_bytes();
    if (r == 0) r = wgmma_open_fp8();
    if (r == 0) *clusters = largest_cluster();
    return r;
}

// Whether there is a kernel of this stored form, the copies can read the operands, and the stores can write
// pairs of bf16.
static bool fits(const gpu_product *p) {
    if (p->w[0].C % WG_COLUMNS || p->x.pitch % 8 || (uintptr_t)p->x.data % 16) return false;
    for (int i = 0; i < p->n; i++)
        if (p->y[i].type != GPU_F32 && (p->y[i].pitch % 2 || (uintptr_t)p->y[i].data % 4)) return false;
    const gpu_weight *w = &p->w[0];
    return w->bits == 0 || w->type == GPU_BF16 || (w->bits == 4 && w->type == GPU_F16);
}

bool gpu_wgmma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (l->clusters < WG_CLUSTER || !fits(p)) return false;
    const int e = p->w[0].bits == 0          ? wgmma_dense(l, s, p)
                  : p->w[0].numbers          ? wgmma_fp8(l, s, p)
                  : p->w[0].bits == 8        ? wgmma_bytes(l, s, p)
                  : p->w[0].type == GPU_BF16 ? wgmma_bf16(l, s, p)
                                             : wgmma_f16(l, s, p);
    if (e) (void)cudaGetLastError(); // another kernel computes the product
    return e == 0;
}

int wgmma_open_dense(void) { return open_form<WG_DENSE>(); }
int wgmma_dense(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    return launch_form<WG_DENSE>(l, s, p);
}
#elif GPU_WGMMA_FORM == 1
int wgmma_open_bf16(void) { return open_form<WG_CODES_BF16>(); }
int wgmma_bf16(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    return launch_form<WG_CODES_BF16>(l, s, p);
}
#elif GPU_WGMMA_FORM == 3
int wgmma_open_bytes(void) { return open_form<WG_BYTES_BF16>(); }
int wgmma_bytes(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    return launch_form<WG_BYTES_BF16>(l, s, p);
}
#elif GPU_WGMMA_FORM == 4
int wgmma_open_fp8(void) { return open_form<WG_FP8_BF16>(); }
int wgmma_fp8(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    return launch_form<WG_FP8_BF16>(l, s, p);
}
#else
int wgmma_open_f16(void) { return open_form<WG_CODES_F16>(); }
int wgmma_f16(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    return launch_form<WG_CODES_F16>(l, s, p);
}
#endif
