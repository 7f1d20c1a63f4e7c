/* Data of the CPU device outside programs: copies and KV pages. */
#include "../../ops/kv_pages.h"
#include "exec.h"

ln_status ln_cpu_copy(ln_queue *q, void *to, const void *from, size_t bytes, int how, ln_error *err) {
    (void)q, (void)how, (void)err; /* all memory is host memory, and submit has run the earlier steps */
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
    return LN_OK;
}

int64_t ln_cpu_kv_bytes(const ln_dev *d, const ln_page_job *job) {
    (void)d;
    return ln_host_kv_bytes(job, sizeof(float));
}

ln_status ln_cpu_page(ln_queue *q, const ln_page_job *job, ln_error *err) {
    (void)q, (void)err;
    ln_host_page(job, sizeof(float));
    return LN_OK;
}
