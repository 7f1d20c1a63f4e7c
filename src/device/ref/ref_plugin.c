/* The reference device as a plug-in (liblinnet-ref.so): what a device needs beside its ln_device_ops. The
 * tests load it and run every golden model on it. */
#include "../device.h"
#include "../../../include/linnet.h"

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
    return &ln_device_ref;
}
