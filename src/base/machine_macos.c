/* The machine, on macOS: the number of usable cores, the memory that can still be allocated, by Mach and
 * sysctl.
 *
 * Cores are the physical ones of the fastest kind, which all threads of a step wait for. Memory is available
 * if it is free, or holds pages of files or purgeable data. The system counts what a process takes as its
 * footprint, which has no pages of mapped files. Its peak cannot be set back, so that after a reset the peak
 * is the maximum of what ln_memory_resident has returned. */
#include "memory_use.h"

#include <mach/mach.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#include <unistd.h>

/* A number of sysctl; 0 if it has none of that name. */
static uint64_t number_of(const char *name) {
    union {
        uint64_t wide;
        uint32_t narrow;
    } v = {0};
    size_t n = sizeof v;
    if (sysctlbyname(name, &v, &n, NULL, 0) != 0) return 0;
    return n == sizeof v.narrow ? v.narrow : v.wide;
}

/* By how many processes the cores are shared (ln_cores_divide). */
static atomic_int sharing = 1;
void ln_cores_divide(int n) { atomic_store(&sharing, LN_MAX(n, 1)); }

int ln_cores(void) {
    const uint64_t fast = number_of("hw.perflevel0.physicalcpu"), all = number_of("hw.physicalcpu");
    return LN_MAX((int)(fast ? fast : all) / atomic_load(&sharing), 1);
}

int ln_logical_cores(void) { return (int)LN_MAX(number_of("hw.logicalcpu"), (uint64_t)1); }

/* ---- memory ---- */

uint64_t ln_memory_total(void) { return number_of("hw.memsize"); }

uint64_t ln_memory_available(void) {
    vm_statistics64_data_t v;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    const mach_port_t host = mach_host_self();
    const kern_return_t bad = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&v, &n);
    (void)mach_port_deallocate(mach_task_self(), host);
    if (bad != KERN_SUCCESS) return ln_memory_total();
    const uint64_t pages = (uint64_t)v.free_count + v.purgeable_count + v.external_page_count;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static task_vm_info_data_t task_memory(void) {
    task_vm_info_data_t v = {0};
    mach_msg_type_number_t n = TASK_VM_INFO_COUNT;
    if (task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&v, &n) != KERN_SUCCESS)
        v = (task_vm_info_data_t){0};
    return v;
}

/* What the limit of an address space leaves. */
static uint64_t left_of_limit(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_AS, &l) != 0 || l.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    return l.rlim_cur - LN_MIN((uint64_t)l.rlim_cur, (uint64_t)task_memory().virtual_size);
}

uint64_t ln_memory_left(const char **limit) {
    const uint64_t machine = ln_memory_available(), own = left_of_limit();
    *limit = own < machine ? "RLIMIT_AS" : "the machine's memory";
    return LN_MIN(machine, own);
}

/* The maximum of ln_memory_resident since a reset; 0: there was none. */
static _Atomic uint64_t own_peak;

uint64_t ln_memory_resident(void) {
    const uint64_t now = task_memory().phys_footprint;
    uint64_t peak = atomic_load(&own_peak);
    while (peak > 0 && peak < now && !atomic_compare_exchange_weak(&own_peak, &peak, now)) {
    }
    return now;
}

uint64_t ln_memory_peak(void) {
    if (ln_peak_is_kernels()) return (uint64_t)task_memory().ledger_phys_footprint_peak;
    (void)ln_memory_resident();
    return atomic_load(&own_peak);
}

bool ln_peak_is_kernels(void) { return atomic_load(&own_peak) == 0; }

void ln_peak_reset(void) { atomic_store(&own_peak, LN_MAX(task_memory().phys_footprint, (uint64_t)1)); }
