/* The devices of a process: finding an implementation by name, and one open device for each implementation
 * and set of options, shared by all engines and their weights. */
#ifndef LN_REGISTRY_H
#define LN_REGISTRY_H

#include "device.h"

/* Finds a device by name: `cpu`, `ref` and `ref-double` are built in; any other NAME is the plug-in
 * liblinnet-NAME.so in the folder of this library (or program), else in the folder in which libraries are
 * installed, and nowhere else. *out stays valid until the process ends. LN_EDEVICE: there is none (the
 * message names both files), or ln_device_load refuses it. */
ln_status ln_device_find(const char *name, const ln_device_ops **out, ln_error *err);
/* Loads a plug-in, once. LN_EDEVICE, with a message that names the file: it cannot be loaded (the loader's
 * reason), is no device, has another ABI (found and expected), or lacks a function (its name). */
ln_status ln_device_load(const char *path, const ln_device_ops **out, ln_error *err);

/* A device that this library knows by name, and whether it can be opened here. */
typedef struct ln_device_entry {
    char name[32];
    bool available;
    char reason[1024]; /* why not; empty where it is available */
    ln_dev_info info;  /* where it is available */
} ln_device_entry;
/* Fills in up to `cap` entries and returns their number. Opens each device for a moment. */
size_t ln_device_list(ln_device_entry *entries, size_t cap);

/* The device that LN_DEVICE_AUTO means for a run that needs `needs` (LN_CAN_*): LN_DEVICE_CUDA where its
 * plug-in is installed, can be opened and says in ln_dev_info.can that it has the kernels, else
 * LN_DEVICE_CPU. The device is opened once in a process; where there is a plug-in, lines of the log say what
 * was chosen, and why not the GPU. */
ln_device ln_device_auto(uint32_t needs);
/* For tests: makes LN_DEVICE_AUTO mean this device; LN_DEVICE_AUTO: the decision above. */
void ln_device_auto_set(ln_device device);

/* Sets *out to the open device of these options (and of the present LINNET_CPU, the debugging variable),
 * which is opened if there is none, and counts the user. To be given back with ln_device_release. Errors:
 * those of ops->open. */
ln_status ln_device_acquire(const ln_device_ops *ops, const ln_dev_options *opt, ln_dev **out, ln_error *err);
/* Gives a device back and sets *dev to NULL; the last user closes it. NULL does nothing. */
void ln_device_release(ln_dev **dev);

#endif
