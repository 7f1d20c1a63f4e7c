/* A device that calls itself cuda and says that it has kernels for neither adapters nor gradients: what
 * LN_DEVICE_AUTO chooses then is the subject of tests/cli/test_devices.c. It runs the reference kernels. */
#include "device/device.h"

static void poor_describe(const ln_dev *dev, ln_dev_info *out) {
    ln_device_ref.describe(dev, out);
    out->can = 0;
}

__attribute__((visibility("default"))) ln_device_plugin_fn ln_device_plugin;
const ln_device_ops *ln_device_plugin(const ln_device_host *host) {
    static ln_device_ops ops;
    if (host->abi != LN_DEVICE_ABI) return NULL;
    ops = ln_device_ref;
    ops.name = "cuda";
    ops.describe = poor_describe;
    return &ops;
}
