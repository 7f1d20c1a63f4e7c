/* The machine, on Linux: the number of usable cores, the memory that can still be allocated.
 *
 * The number of cores is the smallest of three: the affinity mask (SMT siblings counted once per physical
 * core, since they share its multipliers), cgroup v2's cpu.max, and cgroup v1's quota, the latter two at
 * every level from the process's group upwards. Likewise for memory: MemAvailable, and for every enclosing
 * group its limit minus the usage that cannot be reclaimed. Files of /proc and /sys that are missing or
 * malformed are ignored.
 *
 * MemAvailable and the reclaimable usage of a group both count pages of mapped files as free, those of this
 * process too: its code, its libraries, weights that are read in place. VmRSS counts them as resident. A sum
 * of the two would count them twice, so that ln_memory_left subtracts them from what is left. */
#include "file.h"
#include "memory_use.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- files of /proc and /sys ---- */

/* Bytes of buffers: of files with a line or two, and of tables. They lie on the stack, several at once: a
 * program may run with a stack of 128 KiB. */
enum { LINE = 512, TABLE = 16384 };

/* Reads the first size - 1 bytes of the file; "" if it cannot be read. */
static const char *slurp(const char *path, char *text, size_t size) {
    text[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f) return text;
    const size_t n = fread(text, 1, size - 1, f);
    text[ferror(f) ? 0 : n] = '\0';
    fclose(f);
    return text;
}

/* Parses the number at *p after blanks, and moves *p past it; false if there is none. */
static bool number_at(const char **p, uint64_t *out) {
    const char *s = *p;
    while (*s == ' ' || *s == '\t') s++;
    size_t n = strspn(s, "0123456789");
    *p = s + n;
    return ln_parse_u64(s, n, out);
}

/* The number after `key`, searched for at the start of each line. */
static bool field(const char *text, const char *key, uint64_t *out) {
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, n) != 0) continue;
        const char *p = line + n;
        return number_at(&p, out);
    }
    return false;
}

/* ---- cgroups ---- */

typedef struct limits {
    double cpus;     /* 0: no quota found */
    uint64_t memory; /* bytes left in the tightest group; UINT64_MAX: no limit found */
} limits;

static bool read_number(const char *dir, const char *file, uint64_t *out) {
    char path[1200], text[LINE];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    const char *p = slurp(path, text, sizeof text);
    return number_at(&p, out);
}

static void take_cpu(limits *l, double quota, double period) {
    if (period > 0 && quota > 0 && (l->cpus == 0 || quota / period < l->cpus)) l->cpus = quota / period;
}

static void take_memory(limits *l, const char *dir, const char *limit_file, const char *usage_file,
                        const char *prefix) {
    uint64_t limit, usage, file_a = 0, file_b = 0;
    char path[1200], text[TABLE], key[64];
    if (!read_number(dir, limit_file, &limit) || !read_number(dir, usage_file, &usage)) return;
    (void)snprintf(path, sizeof path, "%s/memory.stat", dir);
    slurp(path, text, sizeof text);
    (void)snprintf(key, sizeof key, "%sinactive_file ", prefix);
    if (!field(text, key, &file_a)) file_a = 0;
    (void)snprintf(key, sizeof key, "%sactive_file ", prefix);
    if (!field(text, key, &file_b)) file_b = 0;
    usage -= LN_MIN(usage, file_a + file_b); /* the kernel reclaims page cache */
    uint64_t left = limit > usage ? limit - usage : 0;
    if (left < l->memory) l->memory = left;
}

static void take_group(limits *l, const char *dir, bool v2) {
    char path[1200], text[LINE];
    uint64_t quota, period;
    if (v2) {
        (void)snprintf(path, sizeof path, "%s/cpu.max", dir);
        const char *p = slurp(path, text, sizeof text);
        if (number_at(&p, &quota) && number_at(&p, &period)) take_cpu(l, (double)quota, (double)period);
        take_memory(l, dir, "memory.max", "memory.current", "");
        return;
    }
    if (read_number(dir, "cpu.cfs_quota_us", &quota) && read_number(dir, "cpu.cfs_period_us", &period))
        take_cpu(l, (double)quota, (double)period);
    take_memory(l, dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
}

/* Applies the limits of a group and of all its ancestors. Paths that do not exist below `root` (they may
 * belong to another cgroup namespace) are skipped. */
static void take_chain(limits *l, const char *root, const char *group, size_t n, bool v2) {
    char dir[1024];
    size_t root_len = strlen(root);
    if (root_len + n >= sizeof dir) n = 0;
    memcpy(dir, root, root_len);
    memcpy(dir + root_len, group, n);
    dir[root_len + n] = '\0';
    for (;;) {
        take_group(l, dir, v2);
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= root_len || !slash || slash < dir + root_len) return;
        *slash = '\0';
    }
}

/* Limits of this process's groups. Lines of /proc/self/cgroup: "0::/path" for v2, "4:cpu,cpuacct:/path" for
 * v1. */
static limits group_limits(void) {
    limits l = {.memory = UINT64_MAX};
    char text[TABLE], root[300];
    slurp("/proc/self/cgroup", text, sizeof text);
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n'), *names = strchr(line, ':');
        if (end) *end = '\0';
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (path) {
            *path++ = '\0';
            names++;
            bool v2 = names[0] == '\0';
            bool wanted = v2 || strstr(names, "cpu") || strstr(names, "memory");
            (void)snprintf(root, sizeof root, v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/%.200s", names);
            if (wanted) take_chain(&l, root, path, strlen(path), v2);
            if (v2 && ln_is_dir("/sys/fs/cgroup/unified"))
                take_chain(&l, "/sys/fs/cgroup/unified", path, strlen(path), true);
        }
        line = end ? end + 1 : NULL;
    }
    return l;
}

/* ---- cores ---- */

enum { MAX_CPU = 8192 };

/* The lowest logical processor on the same physical core as `cpu`; `cpu` itself if the kernel does not
 * tell. */
static int first_sibling(int cpu) {
    char path[128], text[LINE];
    uint64_t first;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    const char *p = slurp(path, text, sizeof text);
    return number_at(&p, &first) && first < MAX_CPU ? (int)first : cpu;
}

/* By how many processes the cores are shared (ln_cores_divide). */
static atomic_int sharing = 1;
void ln_cores_divide(int n) { atomic_store(&sharing, LN_MAX(n, 1)); }

int ln_cores(void) {
    int n = 0;
    cpu_set_t *set = CPU_ALLOC(MAX_CPU);
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPU);
    bool seen[MAX_CPU] = {false};
    if (set && sched_getaffinity(0, bytes, set) == 0) {
        for (int cpu = 0; cpu < MAX_CPU; cpu++) {
            if (!CPU_ISSET_S((size_t)cpu, bytes, set)) continue;
            int core = first_sibling(cpu);
            n += !seen[core];
            seen[core] = true;
        }
    }
    if (set) CPU_FREE(set);
    limits l = group_limits();
    if (l.cpus > 0 && l.cpus < n) {
        int whole = (int)l.cpus;
        n = whole + (l.cpus > whole);
    }
    return LN_MAX(n / atomic_load(&sharing), 1);
}

int ln_logical_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* ---- memory ---- */

static uint64_t kib(const char *path, const char *key) {
    char text[TABLE];
    uint64_t v;
    return field(slurp(path, text, sizeof text), key, &v) ? v * 1024 : 0;
}

uint64_t ln_memory_available(void) {
    uint64_t machine = kib("/proc/meminfo", "MemAvailable:");
    uint64_t group = group_limits().memory;
    if (machine == 0) machine = ln_memory_total();
    return LN_MIN(machine, group);
}

/* What a limit (ulimit) leaves: the limit minus the usage that `key` in /proc/self/status reports. */
static uint64_t left_of(rlim_t limit, const char *key) {
    if (limit == RLIM_INFINITY) return UINT64_MAX;
    return limit - LN_MIN((uint64_t)limit, kib("/proc/self/status", key));
}

/* Releases the pages of mapped files that are resident in this process. */
static uint64_t without_mapped(uint64_t left) {
    return left - LN_MIN(left, kib("/proc/self/status", "RssFile:"));
}

uint64_t ln_memory_left(const char **limit) {
    const uint64_t group = group_limits().memory;
    struct rlimit space = {.rlim_cur = RLIM_INFINITY}, data = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_AS, &space);
    (void)getrlimit(RLIMIT_DATA, &data);
    const struct {
        const char *name;
        uint64_t left;
    } all[] = {{"MemAvailable", without_mapped(kib("/proc/meminfo", "MemAvailable:"))},
               {"cgroup", group < UINT64_MAX ? without_mapped(group) : UINT64_MAX},
               {"RLIMIT_AS", left_of(space.rlim_cur, "VmSize:")},
               {"RLIMIT_DATA", left_of(data.rlim_cur, "VmData:")}};
    uint64_t least = UINT64_MAX;
    *limit = "the machine's memory";
    for (size_t i = 0; i < LN_COUNT(all); i++) {
        if (all[i].left >= least || (i == 0 && all[i].left == 0))
            continue; /* an old kernel without MemAvailable */
        least = all[i].left;
        *limit = all[i].name;
    }
    return least < UINT64_MAX ? least : ln_memory_total();
}

uint64_t ln_memory_total(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

/* The maximum of ln_memory_resident since a reset that the kernel rejected; 0: the kernel keeps the peak. */
static _Atomic uint64_t own_peak;

uint64_t ln_memory_resident(void) {
    const uint64_t now = kib("/proc/self/status", "VmRSS:");
    uint64_t peak = atomic_load(&own_peak);
    while (peak > 0 && peak < now && !atomic_compare_exchange_weak(&own_peak, &peak, now)) {
    }
    return now;
}

uint64_t ln_memory_peak(void) {
    if (ln_peak_is_kernels()) return kib("/proc/self/status", "VmHWM:");
    (void)ln_memory_resident();
    return atomic_load(&own_peak);
}

bool ln_peak_is_kernels(void) { return atomic_load(&own_peak) == 0; }

/* Asks the kernel to make VmRSS the new VmHWM, and looks whether it did: 1 MiB allows for what other threads
 * took during the call. */
static bool kernel_reset(void) {
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool written = write(fd, "5", 1) == 1;
    (void)close(fd);
    return written && kib("/proc/self/status", "VmHWM:") <= kib("/proc/self/status", "VmRSS:") + (1 << 20);
}

void ln_peak_reset(void) {
    atomic_store(&own_peak, kernel_reset() ? 0 : LN_MAX(kib("/proc/self/status", "VmRSS:"), (uint64_t)1));
}
