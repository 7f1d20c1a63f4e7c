/* The device that tests run on. */
#ifndef LN_TEST_DEVICE_H
#define LN_TEST_DEVICE_H

#include "device/registry.h"

#include <stdlib.h>
#include <string.h>

/* The name of the device: cpu, or with LN_TEST_DEVICE=cuda (make test-cuda) or mlx (make test-mlx) that
 * one. */
static inline const char *test_device_name(void) {
    const char *name = getenv("LN_TEST_DEVICE");
    return name && (strcmp(name, "mlx") == 0 || strcmp(name, "cuda") == 0) ? name : "cpu";
}

/* The device that LN_DEVICE_AUTO means in a test. */
static inline ln_device test_device(void) {
    const char *name = test_device_name();
    return name[0] == 'm' ? LN_DEVICE_MLX : strcmp(name, "cuda") == 0 ? LN_DEVICE_CUDA : LN_DEVICE_CPU;
}
__attribute__((constructor)) static void set_test_device(void) { ln_device_auto_set(test_device()); }

#endif
