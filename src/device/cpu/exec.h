/* What device.c and exec.c share: the open device, and the device functions that exec.c implements
 * (contracts: device/device.h). */
#ifndef LN_CPU_EXEC_H
#define LN_CPU_EXEC_H

#include "../../base/pool.h"
#include "../device.h"
#include "cpu.h"

struct ln_dev {
    ln_kernel table[LN_OP_COUNT];
    ln_isa isa;
    int n_threads;
    bool mlock, fast;
};

size_t ln_cpu_scratch_bytes(const ln_dev *d, const ln_program *p);
ln_status ln_cpu_prepare(ln_dev *d, const ln_program *p, void *temp, ln_exec **out, ln_error *err);
void ln_cpu_release(ln_exec **exec);
ln_status ln_cpu_run(ln_exec *e, const ln_step *step, const ln_watch *watch, ln_error *err);
/* measure.c. The second one reads the caller's memory, for bench/ceiling. */
ln_status ln_cpu_measure(ln_dev *d, size_t bytes, ln_dev_limits *out, ln_error *err);
ln_status ln_cpu_measure_read(const ln_dev *d, const void *data, size_t bytes, double *bytes_s,
                              ln_error *err);

#endif
