/* Plug-ins that are to be rejected, one for each value of BAD_...: see tests/run/test_plugins.c. */
#include "device/device.h"

#include <stddef.h>
#include <string.h>

static void nothing(void) {}

__attribute__((visibility("default"))) ln_device_plugin_fn
#ifdef BAD_ENTRY
    ln_device_plugin_of_another_program;
#define ln_device_plugin ln_device_plugin_of_another_program
#else
    ln_device_plugin;
#endif

const ln_device_ops *ln_device_plugin(const ln_device_host *host) {
    static ln_device_ops ops;
    void (*const stub)(void) = nothing;
    ops = (ln_device_ops){.abi = LN_DEVICE_ABI, .size = sizeof ops, .name = "bad"};
    for (size_t at = offsetof(ln_device_ops, open); at < sizeof ops; at += sizeof stub)
        memcpy((char *)&ops + at, &stub, sizeof stub);
#ifdef BAD_ABI
    ops.abi = LN_DEVICE_ABI + 41;
#endif
#ifdef BAD_FUNCTION /* in the middle of the table */
    ops.upload = NULL;
#endif
#ifdef BAD_SIZE /* an older table: it ends before `value` */
    ops.size = offsetof(ln_device_ops, value);
#endif
#ifdef BAD_HOST
    if (host->abi != 0) return NULL;
#endif
    host->log(3, "a plug-in for tests");
    return &ops;
}
