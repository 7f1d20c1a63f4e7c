/* The CUDA device: opening a GPU, its memory, and errors of the CUDA runtime as statuses.
 *
 * The CUDA runtime is linked statically and loads the driver itself, so that this file can say why there is
 * none. An error that the driver keeps (an illegal access, a GPU that has fallen off the bus) is reported by
 * every later call of the process; other devices go on. */
#include "cuda_exchange.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether every later call of the process would fail too: the context of the GPU is broken. */
static bool stays(cudaError_t e) {
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorCudartUnloading:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

static ln_status lost(cudaError_t e, const char *what, ln_error *err) {
    return ln_fail(err, LN_EDEVICE,
                   "device cuda: %s while %s (%s); the GPU cannot be used again in this process: "
                   "restart it, or use ln_options.device = LN_DEVICE_CPU",
                   cudaGetErrorString(e), what, cudaGetErrorName(e));
}
static ln_status failed(cudaError_t e, const char *what, ln_error *err) {
    return ln_fail(err, LN_EDEVICE,
                   "device cuda: %s while %s (%s); other engines of this process can still use the GPU; open "
                   "the engine again, or use ln_options.device = LN_DEVICE_CPU",
                   cudaGetErrorString(e), what, cudaGetErrorName(e));
}

/* The version of CUDA that the driver supports, 1000 * major + 10 * minor; 0: there is no driver. The runtime
 * reports 0 for a driver with which it cannot work at all, so the driver's own library is asked then. */
static int driver_version(void) {
    int version = 0, (*get)(int *) = NULL;
    if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) return version;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL),
         *symbol = library ? dlsym(library, "cuDriverGetVersion") : NULL;
    memcpy(&get, &symbol, sizeof get);
    if (!get || get(&version) != 0) version = 0;
    if (library) (void)dlclose(library);
    return version;
}

/* There is no driver, or one that is too old for this plug-in's CUDA runtime. */
static ln_status no_driver(ln_error *err) {
    const int driver = driver_version();
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return ln_fail(err, LN_EDEVICE,
                       "device cuda: no NVIDIA driver found (libcuda.so.1); install the driver, or use "
                       "ln_options.device = LN_DEVICE_CPU");
    return ln_fail(err, LN_EDEVICE,
                   "device cuda: the NVIDIA driver supports CUDA %d.%d, expected %d.%d or later; install a "
                   "newer driver, or use ln_options.device = LN_DEVICE_CPU",
                   driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

ln_status gpu_status(int error, const char *what, ln_error *err) {
    const cudaError_t e = (cudaError_t)error;
    if (e == cudaSuccess) return LN_OK;
    (void)cudaGetLastError(); /* of errors that do not stay */
    switch (e) {
    case cudaErrorMemoryAllocation:
        return ln_fail(err, LN_EMEMORY,
                       "device cuda: out of memory while %s; lower ln_options.n_ctx or "
                       "ln_options.n_parallel, "
                       "or use ln_options.quantize_bits 4",
                       what);
    case cudaErrorInsufficientDriver: return no_driver(err);
    case cudaErrorNoDevice:
        return ln_fail(err, LN_EDEVICE,
                       "device cuda: the NVIDIA driver finds no GPU; check nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or use ln_options.device = LN_DEVICE_CPU");
    case cudaErrorNoKernelImageForDevice:
        return ln_fail(err, LN_EDEVICE,
                       "device cuda: the plug-in has no kernels for this GPU; build it with its architecture "
                       "(cmake -DLN_CUDA_ARCHS), or use ln_options.device = LN_DEVICE_CPU");
    default: return stays(e) ? lost(e, what, err) : failed(e, what, err);
    }
}

ln_status gpu_use(const ln_dev *d, ln_error *err) {
    GPU_TRY(cudaSetDevice(d->ordinal), "selecting the GPU");
    return LN_OK;
}

static void gpu_close(ln_dev **dev) {
    ln_dev *d = *dev;
    if (!d) return;
    *dev = NULL;
    (void)gpu_use(d, NULL);
    for (int i = 0; i < 2; i++) {
        if (d->staged[i]) (void)cudaEventDestroy(d->staged[i]);
        if (d->staging[i]) (void)cudaFreeHost(d->staging[i]);
    }
    if (d->uploads) (void)cudaStreamDestroy(d->uploads);
    ln_pool_close(&d->copiers);
    if (d->found_large) (void)cudaFreeHost(d->found_large);
    ln_free(d->large);
    (void)pthread_mutex_destroy(&d->lock);
    ln_free(d);
}

static int count_gpus(void) {
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}
/* Sets *ordinal to that of the GPU which the options name. */
static ln_status find_gpu(const ln_dev_options *opt, int *ordinal, ln_error *err) {
    int n = 0;
    GPU_TRY(cudaGetDeviceCount(&n), "counting the GPUs");
    *ordinal = opt ? opt->ordinal : 0;
    if (opt && opt->by_rank && n == 1) *ordinal = 0;
    if (*ordinal >= 0 && *ordinal < n) return LN_OK;
    char exist[32];
    (void)snprintf(exist, sizeof exist, n == 1 ? "GPU 0 exists" : "GPUs 0 to %d exist", n - 1);
    return ln_fail(err, LN_EDEVICE,
                   "device cuda: there is no GPU number %d; %s (nvidia-smi -L lists them; "
                   "CUDA_VISIBLE_DEVICES "
                   "chooses "
                   "among them)",
                   *ordinal, exist);
}

/* The number after `name=` in the variable LN_TEST_GPU, which makes this GPU as small as another one in
 * tests; `otherwise` if it is not named. */
static int test_limit(const char *name, int otherwise) {
    const char *all = getenv("LN_TEST_GPU"), *at = all ? strstr(all, name) : NULL;
    if (!at || at[strlen(name)] != '=') return otherwise;
    int64_t n;
    at += strlen(name) + 1;
    return ln_parse_i64(at, strcspn(at, ","), &n) ? (int)LN_MIN(n, (int64_t)otherwise) : otherwise;
}
/* Splits of a row that several blocks compute are stored until they are merged. There is space for one for
 * each 16 MiB of the GPU's memory: as many as those of a KV cache in bf16 that fills it, of an 8B model (128
 * positions take 18 MiB). */
static int splits_of(const ln_dev *d) {
    enum { LEAST = 1024, MOST = 16384, SHIFT = 24 };
    return (int)LN_MAX(LN_MIN(d->memory_total >> SHIFT, (size_t)MOST), (size_t)LEAST);
}
static void apply_test_limits(ln_dev *d) {
    d->n_multiprocessors = test_limit("multiprocessors", d->n_multiprocessors);
    d->shared_limit = test_limit("shared", d->shared_limit);
    const int capability = test_limit("capability", 10 * d->major + d->minor);
    d->major = capability / 10, d->minor = capability % 10;
    d->bad_clusters = test_limit("clusters", 1) == 0;
    d->splits = test_limit("splits", splits_of(d));
    d->patience = test_limit("patience", 400);
    d->unpacked = test_limit("unpacked", 64 << 20);
    d->words = test_limit("words", 4 << 20);
    d->tails = test_limit("tails", 1) != 0;
    d->maps = test_limit("maps", 1) != 0;
    d->fails_at = test_limit("fails", INT32_MAX) == d->ordinal ? test_limit("fails_at", INT32_MAX) : 0;
}

static ln_status describe_gpu(ln_dev *d, ln_error *err) {
    struct cudaDeviceProp p;
    GPU_TRY(cudaGetDeviceProperties(&p, d->ordinal), "reading the properties of the GPU");
    d->major = p.major, d->minor = p.minor;
    d->n_multiprocessors = p.multiProcessorCount;
    d->shared_limit = (int)p.sharedMemPerBlockOptin;
    d->memory_total = p.totalGlobalMem;
    (void)snprintf(d->name, sizeof d->name, "%.63s", p.name);
    apply_test_limits(d);
    if (d->major >= 8) return LN_OK;
    return ln_fail(err, LN_EDEVICE,
                   "device cuda: %s has compute capability %d.%d, expected 8.0 or later (Ampere); use "
                   "ln_options.device = LN_DEVICE_CPU",
                   d->name, d->major, d->minor);
}

enum { MOST_COPIERS = 8 };

static ln_status gpu_open(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    ln_status st = LN_OK;
    *out = NULL;
    int ordinal;
    LN_TRY(find_gpu(opt, &ordinal, err));
    ln_dev *d = ln_zalloc(1, sizeof *d);
    if (!d) return LN_OOM(err, "the CUDA device");
    d->ordinal = ordinal;
    (void)pthread_mutex_init(&d->lock, NULL);
    LN_GO(gpu_use(d, err));
    LN_GO(describe_gpu(d, err));
    d->n_copiers = LN_MAX(LN_MIN(opt ? opt->n_threads : 1, (int)MOST_COPIERS), 1);
    LN_GO(ln_pool_open(&d->copiers, err));
    LN_GO(ln_pool_reserve(d->copiers, d->n_copiers, err));
    GPU_GO(cudaStreamCreateWithFlags(&d->uploads, cudaStreamNonBlocking), "opening the GPU");
    GPU_GO(gpu_attention_open(d->shared_limit), "loading the kernels");
    GPU_GO(gpu_training_open(d->shared_limit, d->major == 9 && d->minor == 0), "loading the kernels");
    GPU_GO(gpu_products_open(d->major == 9 && d->minor == 0, &d->clusters), "loading the kernels");
    *out = d;
    return LN_OK;
out:
    gpu_close(&d);
    return st;
}

static void gpu_describe(const ln_dev *d, ln_dev_info *out) {
    size_t left = 0, total = 0;
    *out = (ln_dev_info){.size = out->size};
    (void)snprintf(out->name, sizeof out->name, "cuda");
    (void)snprintf(out->isa, sizeof out->isa, "sm_%d%d", d->major, d->minor);
    (void)snprintf(out->isas, sizeof out->isas, "%s", d->name);
    (void)snprintf(out->quantised, sizeof out->quantised, "fast: x and weights in bf16; exact: f32");
    out->real_bytes = 4;
    out->n_threads = 1;
    out->upload_rows = 1;
    out->layout_uses = LN_USE_FP8;
    out->can = LN_CAN_ADAPTERS | LN_CAN_GRADIENTS | LN_CAN_CODED | LN_CAN_FP8 | LN_CAN_EXPERTS |
               LN_CAN_RECURRENT | LN_CAN_BOTH_WAYS | LN_CAN_COLLECTIVES | LN_CAN_KV_Q8;
    if (gpu_use(d, NULL) != LN_OK || cudaMemGetInfo(&left, &total) != cudaSuccess) left = 0;
    out->memory_total = d->memory_total;
    out->memory_free = left;
    out->n_devices = count_gpus();
}

static ln_status gpu_alloc(ln_dev *d, size_t bytes, size_t ready, void **out, ln_error *err) {
    size_t left = 0, total = 0;
    (void)ready;
    *out = NULL;
    LN_TRY(gpu_use(d, err));
    const cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&left, &total);
        *out = NULL;
        return ln_fail(err, LN_EMEMORY,
                       "device cuda: a block of %zu bytes is needed, %zu of %zu bytes of the GPU's memory "
                       "are "
                       "free; lower ln_options.n_ctx or ln_options.n_parallel, or use "
                       "ln_options.quantize_bits 4",
                       bytes, left, total);
    }
    GPU_TRY(e, "allocating memory");
    ln_status st =
        gpu_status((int)cudaMemsetAsync(*out, 0, bytes ? bytes : 1, d->uploads), "clearing memory", err);
    if (st == LN_OK) st = gpu_status((int)cudaStreamSynchronize(d->uploads), "clearing memory", err);
    if (st != LN_OK) (void)cudaFree(*out), *out = NULL;
    return st;
}

static void gpu_free(ln_dev *d, void *p, size_t bytes) {
    if (!p || gpu_use(d, NULL) != LN_OK) return;
    gpu_forget_scales(d, p, bytes);
    (void)cudaFree(p);
}

const ln_device_ops ln_device_cuda = {
    .abi = LN_DEVICE_ABI,
    .size = sizeof(ln_device_ops),
    .name = "cuda",
    .open = gpu_open,
    .close = gpu_close,
    .describe = gpu_describe,
    .queue_open = gpu_queue_open,
    .queue_close = gpu_queue_close,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .weight_size = gpu_weight_size,
    .upload = gpu_upload,
    .copy = gpu_copy,
    .kv_bytes = gpu_kv_bytes,
    .page = gpu_page,
    .lower = gpu_lower,
    .scratch_bytes = gpu_scratch_bytes,
    .prepare = gpu_prepare,
    .release = gpu_release,
    .submit = gpu_submit,
    .wait = gpu_wait,
    .value = gpu_value,
    .argmax = gpu_argmax_rows,
    .measure = gpu_measure,
    .sample = gpu_sample_rows,
    .connect = gpu_connect,
};
