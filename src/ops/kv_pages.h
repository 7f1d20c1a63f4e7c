/* Jobs on KV pages in host memory: what devices that share the layout of kv_layout.h do for
 * ln_device_ops.kv_bytes and ln_device_ops.page. */
#ifndef LN_KV_PAGES_H
#define LN_KV_PAGES_H

#include "../graph/state_pool.h"

/* Bytes of one layer's keys and values in a page; real_bytes: of an f32 element on this device. -1: the size
 * overflows. */
int64_t ln_host_kv_bytes(const ln_page_job *job, int real_bytes);
/* Does the job (graph/state_pool.h); real_bytes as above. */
void ln_host_page(const ln_page_job *job, int real_bytes);

#endif
