/* The open CPU device, and the functions of ln_device_ops that other files than device.c implement
 * (contracts: device/device.h). */
#ifndef LN_CPU_EXEC_H
#define LN_CPU_EXEC_H

#include "../../base/thread_pool.h"
#include "../../ops/host_queue.h"
#include "../device.h"
#include "cpu.h"

struct ln_dev {
    ln_kernel_table table;
    const char *levels[LN_OP_COUNT][LN_VARIANTS]; /* ISA level of each kernel of the table; NULL: none */
    ln_isa isa;
    ln_pool *pool;
    int n_threads;
    bool mlock;
};

/* What the device chooses for a program (cpu_lower.c). */
bool ln_cpu_lower(const ln_dev *d, const ln_lower_ask *ask, ln_lower_answer *answer);
/* Opens a device that lowers programs as this ISA level does, on machines that lack the level too: for tests.
 * It must not run anything. */
ln_status ln_cpu_open_level(ln_dev **out, ln_isa isa, ln_error *err);
size_t ln_cpu_scratch_bytes(const ln_dev *d, const ln_program *p);
/* pack/pack_weight.c. LN_CPU_LAYOUT_BF12: ln_device_weight.layout_id of a matrix in compressed bf16. */
enum { LN_CPU_LAYOUT_BF12 = 1 };
ln_status ln_cpu_weight_size(const ln_dev *d, const ln_weight_desc *w, const ln_host_weight *sample,
                             ln_weight_size *out, ln_error *err);
ln_status ln_cpu_upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                        ln_device_weight *out, ln_error *err);
/* exec.c */
ln_status ln_cpu_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err);
void ln_cpu_queue_close(ln_queue **queue);
ln_status ln_cpu_prepare(ln_queue *q, const ln_program *p, void *temp, ln_exec **out, ln_error *err);
void ln_cpu_release(ln_exec **exec);
ln_status ln_cpu_submit(ln_exec *e, const ln_step_block *block, const ln_trace *trace, uint64_t *fence,
                        ln_error *err);
ln_status ln_cpu_wait(ln_queue *q, uint64_t fence, ln_error *err);
ln_status ln_cpu_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write, ln_error *err);
ln_status ln_cpu_argmax(ln_exec *e, int v, int64_t row, int64_t n, int32_t *ids, ln_error *err);
/* cpu_value.c. ln_cpu_rows: ln_host_value (ops/value_rows.h), of values in row panels too.
 * ln_cpu_argmax_rows: what argmax does, of n rows [cols] that are `pitch` elements apart. */
ln_status ln_cpu_rows(const ln_program *p, void *temp, const ln_bounds *live, ln_v v, int64_t row, int64_t n,
                      float *rows, bool write, ln_error *err);
void ln_cpu_argmax_rows(ln_pool *pool, int n_threads, const float *x, int64_t pitch, int64_t cols, int64_t n,
                        int32_t *ids);
ln_status ln_cpu_copy(ln_queue *q, void *to, const void *from, size_t bytes, int how, ln_error *err);
int64_t ln_cpu_kv_bytes(const ln_dev *d, const ln_page_job *job);
ln_status ln_cpu_page(ln_queue *q, const ln_page_job *job, ln_error *err);
/* measure.c. ln_cpu_measure_read measures the read bandwidth over `bytes` bytes of the caller's memory, for
 * bench/ceiling: *bytes_s in bytes per second. */
ln_status ln_cpu_measure(ln_dev *d, size_t bytes, ln_dev_limits *out, ln_error *err);
ln_status ln_cpu_measure_read(const ln_dev *d, const void *data, size_t bytes, double *bytes_s,
                              ln_error *err);

#endif
