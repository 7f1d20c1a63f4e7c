/* Gathers the facts of this machine for `linnet doctor`: cores, ISA level, memory, and on request the
 * ceilings of its roofline (memory bandwidth, peak arithmetic), which the devices measure. */
#include "../base/os.h"
#include "doctor.h"
#include "../run/run.h"

#include <stdio.h>
#include <sys/utsname.h>

static void cpu_name(char *out, size_t cap) {
    ln_os_cpu_name(out, cap);
    struct utsname u;
    if (!out[0] && uname(&u) == 0) (void)snprintf(out, cap, "%s", u.machine); /* ARM's cpuinfo has no names */
}

ln_status ln_run_measure_bytes(uint64_t memory_bytes, size_t *out, ln_error *err) {
    enum { STEP = 64 << 20 }; /* buffers are multiples of it; as much is left free for everything else */
    char need[32], spare[32], left[32];
    const char *limit;
    const uint64_t here = ln_memory_resident();
    uint64_t available = ln_memory_left(&limit);
    const bool asked = memory_bytes > 0 && memory_bytes - LN_MIN(memory_bytes, here) <= available;
    if (asked) available = memory_bytes - LN_MIN(memory_bytes, here);
    const uint64_t most = available / STEP * STEP - LN_MIN(available / STEP * STEP, (uint64_t)STEP);
    *out = (size_t)LN_MIN(most, (uint64_t)LN_MEASURE_MOST);
    if (*out >= LN_MEASURE_LEAST) return LN_OK;
    *out = 0;
    return ln_fail(err, LN_EMEMORY,
                   "measuring how fast memory is read needs %s and %s to spare, since caches hold what is "
                   "smaller; %s are available (%s); %s",
                   ln_bytes_text(need, LN_MEASURE_LEAST), ln_bytes_text(spare, STEP),
                   ln_bytes_text(left, available), asked ? "ln_options.memory_bytes" : limit,
                   asked ? "raise that limit"
                         : "close other programs, or raise the limit of this process (cgroup, ulimit -v)");
}

/* Lists the devices that can be opened here. Of the first one with memory of its own it says what it is, or
 * why CUDA cannot be opened, and of MLX what it runs on. */
static void list_devices(ln_machine *out) {
    ln_device_entry entries[8];
    char total[32], left[32];
    const size_t n = ln_device_list(entries, LN_COUNT(entries)), cap = sizeof out->devices;
    size_t at = 0;
    bool has_gpu = false;
    for (size_t i = 0; i < n; i++) {
        const ln_dev_info *info = &entries[i].info;
        if (!entries[i].available) {
            if (strcmp(entries[i].name, "cuda") == 0)
                (void)snprintf(out->gpu, sizeof out->gpu, "%s", entries[i].reason);
            continue;
        }
        at += (size_t)snprintf(out->devices + at, cap - at, "%s%s", at ? ", " : "", entries[i].name);
        if (strcmp(entries[i].name, "mlx") == 0) {
            const size_t end = strlen(out->gpu);
            (void)snprintf(out->gpu + end, sizeof out->gpu - end, "%sdevice mlx: %s", end ? "; " : "",
                           info->isas);
        }
        if (info->memory_total == 0 || has_gpu) continue;
        has_gpu = true;
        (void)snprintf(out->gpu, sizeof out->gpu, "%s, %s, %s of memory, %s free", info->isas, info->isa,
                       ln_bytes_text(total, info->memory_total), ln_bytes_text(left, info->memory_free));
    }
}

/* Measures the ceilings of the GPU, if there is one that can be opened; list_devices says why not. */
static void measure_gpu(size_t bytes, ln_machine *out) {
    const ln_device_ops *ops;
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    ln_dev *dev = NULL;
    ln_dev_limits limits = {0};
    ln_error why;
    if (ln_device_find("cuda", &ops, &why) != LN_OK || !ops->measure) return;
    if (ops->open(&dev, &o, &why) != LN_OK) return;
    if (ops->measure(dev, bytes, &limits, &why) != LN_OK)
        ln_log(LN_LOG_WARN, "the ceilings of the GPU are not measured: %s", why.message);
    ops->close(&dev);
    out->gpu_copy_gb_s = limits.read_bytes_s * 1e-9;
    out->gpu_flop_s = limits.flop_s;
}

ln_status ln_run_doctor(bool measure, uint64_t memory_bytes, int n_threads, ln_machine *out, ln_error *err) {
    const ln_device_ops *ops;
    ln_dev *dev = NULL;
    ln_dev_info info = {.size = sizeof info};
    ln_dev_limits limits = {0};
    *out = (ln_machine){.size = sizeof *out};
    out->n_cores = ln_cores();
    out->memory_bytes = ln_memory_total();
    const char *limit;
    out->available_bytes = ln_memory_left(&limit);
    out->n_logical = ln_logical_cores();
    cpu_name(out->cpu, sizeof out->cpu);
    size_t bytes;
    ln_status st = ln_run_measure_bytes(memory_bytes, &bytes, err);
    out->measure_bytes = bytes;
    if (measure) LN_TRY(st);
    LN_TRY(ln_device_find("cpu", &ops, err));
    const ln_dev_options o = {
        .size = sizeof o, .n_threads = LN_MIN(n_threads > 0 ? n_threads : out->n_cores, LN_RUN_MAX_THREADS)};
    LN_TRY(ops->open(&dev, &o, err));
    ops->describe(dev, &info);
    st = measure ? ops->measure(dev, bytes, &limits, err) : LN_OK;
    ops->close(&dev);
    LN_TRY(st);
    out->vector_read_gb_s = limits.read_bytes_s * 1e-9;
    out->tile_read_gb_s = limits.tile_bytes_s * 1e-9;
    out->read_gb_s = LN_MAX(out->vector_read_gb_s, out->tile_read_gb_s);
    out->peak_flop_s = limits.flop_s;
    memcpy(out->isa, info.isa, sizeof out->isa);
    memcpy(out->isas, info.isas, sizeof out->isas);
    memcpy(out->quantised, info.quantised, sizeof out->quantised);
    list_devices(out);
    if (measure) measure_gpu(bytes, out);
    return LN_OK;
}
