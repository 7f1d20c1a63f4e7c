/* The devices of a process: one open device for each implementation and set of options, shared by all engines
 * and their weights. */
#ifndef LN_REGISTRY_H
#define LN_REGISTRY_H

#include "device.h"

/* Sets *out to the open device of these options, which is opened if there is none, and counts the user. To be
 * given back with ln_device_release. Errors: those of ops->open. */
ln_status ln_device_acquire(const ln_device_ops *ops, const ln_dev_options *opt, ln_dev **out, ln_error *err);
/* Gives a device back and sets *dev to NULL; the last user closes it. NULL does nothing. */
void ln_device_release(ln_dev **dev);

#endif
