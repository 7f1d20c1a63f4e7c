/* NCCL by its C interface, whose functions in use are declared here: the library is loaded at run time, as
 * the driver is. The interface is stable within version 2. */
#include "cuda_nccl.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { NCCL_SUCCESS = 0, NCCL_INT8 = 0 };

#define NCCL_FUNCTIONS(X)                                                   \
    X(GetUniqueId, (gpu_nccl_id *))                                         \
    X(CommInitRank, (void **, int, gpu_nccl_id, int))                       \
    X(AllGather, (const void *, void *, size_t, int, void *, cudaStream_t)) \
    X(CommDestroy, (void *))                                                \
    X(CommAbort, (void *))
static struct {
#define X(name, args) int(*name) args;
    NCCL_FUNCTIONS(X)
#undef X
    const char *(*GetErrorString)(int);
    void *library;
} f;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct gpu_nccl {
    void *comm;
};

static ln_status load(ln_error *err) {
    static const char name[] = "libnccl.so.2";
    if (f.library) return LN_OK;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ln_fail(err, LN_EDEVICE,
                       "these GPUs exchange values by NCCL, and %s is not installed; install it (package "
                       "libnccl2 "
                       "of NVIDIA's repository, or pip install nvidia-nccl-cu13 and add its folder to "
                       "LD_LIBRARY_PATH), or use one GPU",
                       name);
    const char *missing = NULL;
#define X(function, args)                                     \
    *(void **)&f.function = dlsym(library, "nccl" #function); \
    if (!f.function) missing = "nccl" #function;
    NCCL_FUNCTIONS(X)
#undef X
    *(void **)&f.GetErrorString = dlsym(library, "ncclGetErrorString");
    if (missing || !f.GetErrorString)
        return ln_fail(err, LN_EDEVICE, "%s lacks %s: it is not NCCL 2; install NCCL 2.18 or later", name,
                       missing ? missing : "ncclGetErrorString");
    f.library = library;
    return LN_OK;
}

static ln_status status_of(int code, const char *what, ln_error *err) {
    if (code == NCCL_SUCCESS) return LN_OK;
    return ln_fail(err, LN_EDEVICE, "nccl%s: %s; NCCL_DEBUG=WARN makes NCCL say more", what,
                   f.GetErrorString(code));
}

ln_status gpu_nccl_load(gpu_nccl_id *id, ln_error *err) {
    (void)pthread_mutex_lock(&lock);
    ln_status st = load(err);
    (void)pthread_mutex_unlock(&lock);
    if (st == LN_OK && id) st = status_of(f.GetUniqueId(id), "GetUniqueId", err);
    return st;
}

ln_status gpu_nccl_open(gpu_nccl **out, const gpu_nccl_id *id, int size, int rank, ln_error *err) {
    gpu_nccl *n = ln_zalloc(1, sizeof *n);
    *out = NULL;
    if (!n) return LN_OOM(err, "NCCL");
    const ln_status st = status_of(f.CommInitRank(&n->comm, size, *id, rank), "CommInitRank", err);
    if (st == LN_OK) *out = n;
    else ln_free(n);
    return st;
}

int gpu_nccl_all_gather(gpu_nccl *n, const void *mine, void *all, size_t bytes, void *stream) {
    const int code = f.AllGather(mine, all, bytes, NCCL_INT8, n->comm, (cudaStream_t)stream);
    if (code == NCCL_SUCCESS) return cudaSuccess;
    ln_log(LN_LOG_WARN, "ncclAllGather: %s", f.GetErrorString(code));
    return cudaErrorExternalDevice;
}

void gpu_nccl_close(gpu_nccl **n) {
    if (*n) (void)f.CommDestroy((*n)->comm);
    ln_free(*n);
    *n = NULL;
}
void gpu_nccl_abort(gpu_nccl **n) {
    if (*n) (void)f.CommAbort((*n)->comm);
    ln_free(*n);
    *n = NULL;
}
