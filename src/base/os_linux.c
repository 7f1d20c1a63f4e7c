/* What os.h promises, on Linux with glibc or musl. */
#include "os.h"
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* ---- threads ---- */

void ln_os_sleep_on(_Atomic uint32_t *word, uint32_t value) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
void ln_os_wake(_Atomic uint32_t *word, int n) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

int ln_os_processor(void) { return sched_getcpu(); }

/* Narrows the affinity mask of the thread and restores it. */
bool ln_os_move_off(const int *taken, int n, int *now) {
    cpu_set_t may, left;
    if (sched_getaffinity(0, sizeof may, &may) != 0) return false;
    left = may;
    for (int i = 0; i < n; i++) CPU_CLR((size_t)taken[i], &left);
    if (CPU_COUNT(&left) == 0 || sched_setaffinity(0, sizeof left, &left) != 0) return false;
    *now = sched_getcpu();
    return sched_setaffinity(0, sizeof may, &may) == 0;
}

int64_t ln_os_second(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

int ln_os_cond_init(pthread_cond_t *c) {
    pthread_condattr_t attr;
    int bad = pthread_condattr_init(&attr);
    if (bad) return bad;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    bad = pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
    return bad;
}

bool ln_os_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    const time_t whole = (time_t)until;
    const struct timespec at = {.tv_sec = whole, .tv_nsec = (long)((until - (double)whole) * 1e9)};
    return pthread_cond_timedwait(c, lock, &at) != ETIMEDOUT;
}

/* ---- descriptors ---- */

int ln_os_pipe(int fd[2], bool nonblocking) { return pipe2(fd, O_CLOEXEC | (nonblocking ? O_NONBLOCK : 0)); }
int ln_os_socket(int domain, int type, bool nonblocking) {
    return socket(domain, type | SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0), 0);
}
int ln_os_socket_pair(int fd[2]) { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd); }
int ln_os_accept(int fd, struct sockaddr *address, socklen_t *bytes, bool nonblocking) {
    return accept4(fd, address, bytes, SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0));
}

void ln_os_keep_alive(int fd, double seconds) {
    const int on = 1, idle = 30, between = 10, n = 3;
    const unsigned unacknowledged = (unsigned)(1000 * seconds);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof unacknowledged);
}

ln_os_peer ln_os_peer_of(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0) return LN_OS_PEER_OPEN;
    return p.revents & (POLLERR | POLLHUP) ? LN_OS_PEER_GONE : LN_OS_PEER_ENDED;
}

int ln_os_event_open(int fd[2]) {
    fd[0] = fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd[0] < 0 ? -1 : 0;
}
void ln_os_event_set(int fd) {
    const uint64_t one = 1;
    const ssize_t n = write(fd, &one, sizeof one); /* a full counter is readable, too */
    (void)n;
}
void ln_os_event_clear(int fd) {
    uint64_t count;
    const ssize_t n = read(fd, &count, sizeof count);
    (void)n;
}
void ln_os_event_close(int fd[2]) {
    if (fd[0] >= 0) (void)close(fd[0]);
    fd[0] = fd[1] = -1;
}

/* ---- files ---- */

struct timespec ln_os_changed(const struct stat *st) {
    return st->st_mtim;
}

int ln_os_sync_data(int fd) { return fdatasync(fd); }

/* Files of /sys report 4096 bytes, whatever they have. */
bool ln_os_size_is_guess(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == SYSFS_MAGIC;
}

/* A raw system call: musl has neither the function nor its flags. */
int ln_rename(const char *from, const char *to, unsigned how) {
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, how);
}

void ln_os_program(char *path, size_t cap) {
    const ssize_t n = readlink("/proc/self/exe", path, cap - 1);
    path[LN_MAX(n, 0)] = '\0';
}

/* ---- memory ---- */

size_t ln_os_block_bytes(const void *p) { return malloc_usable_size((void *)(uintptr_t)p); }

uint64_t ln_os_heap_bytes(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 33))
    const struct mallinfo2 m = mallinfo2();
    return (uint64_t)m.uordblks + (uint64_t)m.hblkhd;
#else
    return 0;
#endif
}

void ln_os_heap_trim(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

/* By default the C library keeps blocks of up to 32 MiB once one was freed, and a heap for every thread. */
void ln_os_heap_return_large(void) {
#ifdef __GLIBC__
    enum { LARGE = 256 << 10 };
    (void)mallopt(M_MMAP_THRESHOLD, LARGE);
    (void)mallopt(M_TRIM_THRESHOLD, LARGE);
    (void)mallopt(M_ARENA_MAX, 2);
#endif
}

/* A raw system call: the C library's function need not be async-signal-safe. */
bool ln_os_zero_pages(uintptr_t at, size_t bytes) {
    return syscall(SYS_mmap, at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                   -1, 0) == (long)at;
}

void ln_os_use_huge_pages(void *p, size_t bytes) { (void)madvise(p, bytes, MADV_HUGEPAGE); }
void ln_os_fetch_pages(void *p, size_t bytes) {
#ifdef MADV_POPULATE_READ /* Linux 5.14; without it pages are faulted in on access */
    (void)madvise(p, bytes, MADV_POPULATE_READ);
#else
    (void)p, (void)bytes;
#endif
}
void ln_os_drop_pages(void *p, size_t bytes) { (void)madvise(p, bytes, MADV_DONTNEED); }

bool ln_os_pages_in_memory(void *at, size_t bytes, unsigned char *in) { return mincore(at, bytes, in) == 0; }

/* ---- the machine and the process ---- */

void ln_os_cpu_name(char *out, size_t cap) {
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    out[0] = '\0';
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        size_t n = strcspn(colon + 2, "\n");
        n = LN_MIN(n, cap - 1);
        memcpy(out, colon + 2, n);
        out[n] = 0;
        break;
    }
    if (f) fclose(f);
}

uint64_t ln_os_cache_bytes(void) {
    uint64_t most = 0;
    for (int i = 0; i < 10; i++) {
        char path[80], text[32] = "";
        uint64_t size;
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "re");
        if (!f) continue;
        size_t n = fread(text, 1, sizeof text - 1, f), digits = strspn(text, "0123456789");
        fclose(f);
        if (n == 0 || !ln_parse_u64(text, digits, &size)) continue;
        const int shift = text[digits] == 'G' ? 30 : text[digits] == 'M' ? 20 : 10;
        if (size <= UINT64_MAX >> shift) most = LN_MAX(most, size << shift);
    }
    return most;
}

/* The permission for feature 18, the 8 KB of data of the tiles. */
bool ln_os_allow_tiles(void) {
#ifdef SYS_arch_prctl
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool ln_os_begin_child(pid_t parent, int first) {
#ifdef PR_SET_PDEATHSIG
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return false;
#endif
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, (unsigned)first, ~0u, 0u);
#endif
    return true;
}

int ln_os_watch_process(pid_t pid) {
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0u);
#else
    return (void)pid, -1;
#endif
}
