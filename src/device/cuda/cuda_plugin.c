/* The CUDA device as a plug-in (liblinnet-cuda.so): its one exported function. */
#include "../../../include/linnet.h"
#include "cuda_device.h"

static const ln_device_host *host;

static void to_host(void *user, ln_level level, const char *line) {
    (void)user;
    host->log((int)level, line);
}

__attribute__((visibility("default"))) ln_device_plugin_fn ln_device_plugin;
const ln_device_ops *ln_device_plugin(const ln_device_host *h) {
    if (h->abi != LN_DEVICE_ABI) return NULL;
    host = h;
    ln_log_set(to_host, NULL); /* of this library's own copy of the log */
    gpu_release_pages = h->release;
    return &ln_device_cuda;
}
