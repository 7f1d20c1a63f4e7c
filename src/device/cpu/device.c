/* The CPU device: opening it, and its memory; exec.c runs programs, pack/pack_weight.c packs weights.
 *
 * Memory blocks are mapped directly from the system, so that large ones can be aligned to huge pages and use
 * them; the part that is certain to be needed is prefaulted by all threads at allocation, so that no step
 * waits for a page fault. The kernels are those of one ISA level (dispatch.c), which is chosen when the
 * device is opened. */
#include "../../base/os.h"
#include "exec.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 };

static void copy_text(char *to, size_t cap, const char *text) {
    size_t n = LN_MIN(strlen(text), cap - 1);
    memcpy(to, text, n);
    to[n] = 0;
}

static ln_status cpu_open(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    *out = NULL;
    ln_isa isa;
    if (opt && opt->ordinal != 0)
        return ln_fail(err, LN_EDEVICE, "device cpu: there is one, number 0; found number %d", opt->ordinal);
    int n = opt && opt->n_threads > 0 ? opt->n_threads : ln_cores();
    LN_TRY(ln_cpu_isa_pick(&isa, err));
    ln_pool *pool = opt && opt->pool ? opt->pool : ln_pool_default();
    LN_TRY(ln_pool_reserve(pool, n, err));
    ln_dev *d = ln_zalloc(1, sizeof *d);
    if (!d) return LN_OOM(err, "the CPU device");
    d->isa = isa;
    d->pool = pool;
    d->n_threads = n;
    d->mlock = opt && opt->mlock;
    ln_cpu_kernels(isa, &d->table);
    ln_cpu_kernel_levels(isa, d->levels);
    *out = d;
    return LN_OK;
}

ln_status ln_cpu_open_level(ln_dev **out, ln_isa isa, ln_error *err) {
    ln_dev *d = ln_zalloc(1, sizeof *d);
    *out = d;
    if (!d) return LN_OOM(err, "the CPU device");
    d->isa = isa;
    d->n_threads = 1;
    ln_cpu_kernels(isa, &d->table);
    ln_cpu_kernel_levels(isa, d->levels);
    return LN_OK;
}

static void cpu_close(ln_dev **dev) {
    ln_free(*dev);
    *dev = NULL;
}

static void cpu_describe(const ln_dev *d, ln_dev_info *out) {
    *out = (ln_dev_info){.size = out->size};
    copy_text(out->name, sizeof out->name, "cpu");
    copy_text(out->isa, sizeof out->isa, ln_cpu_isa_name(d->isa));
    size_t at = 0;
    for (ln_isa r = LN_ISA_PLAIN; r < LN_ISA_COUNT; r++) {
        if (!ln_cpu_isa_here(r)) continue;
        if (at) out->isas[at++] = ' ';
        copy_text(out->isas + at, sizeof out->isas - at - 1, ln_cpu_isa_name(r));
        at += strlen(out->isas + at);
    }
    copy_text(out->quantised, sizeof out->quantised,
              "fast: integers, x in fixed point; exact: f32, by group");
    out->real_bytes = 4;
    out->n_threads = d->n_threads;
    out->upload_rows = LN_PACK_NR;
    out->can = LN_CAN_ADAPTERS | LN_CAN_GRADIENTS | LN_CAN_EXPERT_GRADIENTS | LN_CAN_CODED | LN_CAN_EXPERTS |
               LN_CAN_RECURRENT | LN_CAN_COLLECTIVES | LN_CAN_BOTH_WAYS | LN_CAN_EXPERT_ADAPTERS |
               LN_CAN_RECURRENT_GRADIENTS | LN_CAN_KV_Q8;
    out->layout_uses = ln_cpu_columns_per_row(d->isa, 1) ? LN_USE_BFP : 0;
}

/* Bytes of a mapping: a multiple of the page size. */
static size_t block_bytes(size_t bytes) { return (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE; }

typedef struct block {
    uint8_t *data;
    int64_t n_pages;
} block;
/* Faults in huge pages [lo, hi) of a block. */
static void touch_pages(void *user, int thread, int64_t lo, int64_t hi) {
    const block *b = user;
    const int64_t n = HUGE_PAGE / SMALL_PAGE, end = LN_MIN(hi * n, b->n_pages);
    (void)thread;
    for (int64_t i = lo * n; i < end; i++) *(volatile uint8_t *)(b->data + i * SMALL_PAGE) = 0;
}

static ln_status cpu_alloc(ln_dev *d, size_t bytes, size_t ready, void **out, ln_error *err) {
    *out = NULL;
    bool huge = bytes >= HUGE_PAGE;
    size_t size = 0, slack = huge ? HUGE_PAGE : 0, all;
    if (ln_add_size(bytes ? bytes : 1, SMALL_PAGE + slack, &all)) size = block_bytes(bytes ? bytes : 1);
    uint8_t *p = size ? mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                      : MAP_FAILED;
    if (p == MAP_FAILED)
        return ln_fail(err, LN_EMEMORY,
                       "out of memory: the system gave no block of %zu bytes; lower "
                       "ln_options.n_ctx or ln_options.n_chunk, or raise the limit of this process (ulimit "
                       "-v)",
                       bytes);
    if (huge) { /* trim both ends to huge-page boundaries */
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) (void)munmap(p, head);
        if (slack - head) (void)munmap(p + head + size, slack - head);
        p += head;
        ln_os_use_huge_pages(p, size);
    }
    block touched = {p, (int64_t)(block_bytes(ready) / SMALL_PAGE)};
    ln_pool_run_units(d->pool, d->n_threads, (int64_t)((ready + HUGE_PAGE - 1) / HUGE_PAGE),
                      LN_POOL_SLICE_BYTES / HUGE_PAGE, touch_pages, &touched);
    ln_status st = d->mlock ? ln_lock(p, size, "memory", err) : LN_OK;
    if (st != LN_OK) (void)munmap(p, size);
    else *out = p;
    return st;
}

static void cpu_free(ln_dev *d, void *p, size_t bytes) {
    (void)d;
    if (p) (void)munmap(p, block_bytes(bytes ? bytes : 1));
}

const ln_device_ops ln_device_cpu = {
    .abi = LN_DEVICE_ABI,
    .size = sizeof(ln_device_ops),
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .queue_open = ln_cpu_queue_open,
    .queue_close = ln_cpu_queue_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .weight_size = ln_cpu_weight_size,
    .upload = ln_cpu_upload,
    .copy = ln_cpu_copy,
    .kv_bytes = ln_cpu_kv_bytes,
    .page = ln_cpu_page,
    .lower = ln_cpu_lower,
    .scratch_bytes = ln_cpu_scratch_bytes,
    .prepare = ln_cpu_prepare,
    .release = ln_cpu_release,
    .submit = ln_cpu_submit,
    .wait = ln_cpu_wait,
    .value = ln_cpu_value,
    .argmax = ln_cpu_argmax,
    .measure = ln_cpu_measure,
};
