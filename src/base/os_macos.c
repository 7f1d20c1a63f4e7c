/* What os.h promises, on macOS. docs/macos.md says what of it has run. */
#include "os.h"
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <mach-o/dyld.h>
#include <malloc/malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <time.h>
#include <unistd.h>

/* ---- threads ---- */

/* There is no public futex before macOS 14.4: a table of condition variables by address. Words that share an
 * entry wake each other's sleepers, which look at their word again. */
enum { BEDS = 64 };
static struct bed {
    pthread_mutex_t lock;
    pthread_cond_t woken;
} beds[BEDS];
__attribute__((constructor)) static void make_beds(void) {
    for (int i = 0; i < BEDS; i++) {
        (void)pthread_mutex_init(&beds[i].lock, NULL);
        (void)pthread_cond_init(&beds[i].woken, NULL);
    }
}
static struct bed *bed_of(const _Atomic uint32_t *word) { return &beds[(uintptr_t)word / 128 % BEDS]; }

void ln_os_sleep_on(_Atomic uint32_t *word, uint32_t value) {
    struct bed *b = bed_of(word);
    (void)pthread_mutex_lock(&b->lock);
    if (atomic_load(word) == value) (void)pthread_cond_wait(&b->woken, &b->lock);
    (void)pthread_mutex_unlock(&b->lock);
}
void ln_os_wake(_Atomic uint32_t *word, int n) {
    struct bed *b = bed_of(word);
    (void)n; /* sleepers of other words may be woken instead: all are */
    (void)pthread_mutex_lock(&b->lock);
    (void)pthread_cond_broadcast(&b->woken);
    (void)pthread_mutex_unlock(&b->lock);
}

/* Threads have no affinity here: the system spreads them. */
int ln_os_processor(void) { return -1; }
bool ln_os_move_off(const int *taken, int n, int *now) { return (void)taken, (void)n, (void)now, false; }

int64_t ln_os_second(void) {
    return (int64_t)(clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW_APPROX) / 1000000000);
}

int ln_os_cond_init(pthread_cond_t *c) { return pthread_cond_init(c, NULL); }

bool ln_os_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    const double now = ln_now(), left = until > now ? until - now : 0;
    const time_t whole = (time_t)left;
    const struct timespec t = {.tv_sec = whole, .tv_nsec = (long)((left - (double)whole) * 1e9)};
    return pthread_cond_timedwait_relative_np(c, lock, &t) != ETIMEDOUT;
}

/* ---- descriptors ---- */

/* A descriptor that another thread's fork inherits before this has run stays open in that child. */
static int prepared(int fd, bool nonblocking, bool is_socket) {
    const int on = 1;
    if (fd < 0) return fd;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    const int flags = fcntl(fd, F_GETFL); /* an accepted socket has those of the listening one */
    (void)fcntl(fd, F_SETFL, nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
    if (is_socket) (void)setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    return fd;
}

int ln_os_pipe(int fd[2], bool nonblocking) {
    if (pipe(fd) != 0) return -1;
    (void)prepared(fd[0], nonblocking, false);
    (void)prepared(fd[1], nonblocking, false);
    return 0;
}
int ln_os_socket(int domain, int type, bool nonblocking) {
    return prepared(socket(domain, type, 0), nonblocking, true);
}
int ln_os_socket_pair(int fd[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) return -1;
    (void)prepared(fd[0], false, true);
    (void)prepared(fd[1], false, true);
    return 0;
}
int ln_os_accept(int fd, struct sockaddr *address, socklen_t *bytes, bool nonblocking) {
    return prepared(accept(fd, address, bytes), nonblocking, true);
}

void ln_os_keep_alive(int fd, double seconds) {
    const int on = 1, idle = 30, between = 10, n = 3, unacknowledged = (int)seconds;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPALIVE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_RXT_CONNDROPTIME, &unacknowledged, sizeof unacknowledged);
}

/* poll() reports POLLHUP for a peer that has only ended what it sends. */
ln_os_peer ln_os_peer_of(int fd) {
    char next;
    const ssize_t n = recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) return LN_OS_PEER_ENDED;
    return n > 0 || errno == EAGAIN || errno == EINTR ? LN_OS_PEER_OPEN : LN_OS_PEER_GONE;
}

int ln_os_event_open(int fd[2]) {
    fd[0] = fd[1] = -1;
    return ln_os_pipe(fd, true);
}
void ln_os_event_set(int fd) {
    const ssize_t n = write(fd, "", 1); /* a full pipe is readable, too */
    (void)n;
}
void ln_os_event_clear(int fd) {
    char some[256];
    while (read(fd, some, sizeof some) == (ssize_t)sizeof some) continue;
}
void ln_os_event_close(int fd[2]) {
    for (int i = 0; i < 2; i++) {
        if (fd[i] >= 0) (void)close(fd[i]);
        fd[i] = -1;
    }
}

/* ---- files ---- */

struct timespec ln_os_changed(const struct stat *st) {
    return st->st_mtimespec;
}

/* fsync leaves the data in the cache of the drive; file systems that cannot flush that get fsync. */
int ln_os_sync_data(int fd) { return fcntl(fd, F_FULLFSYNC) == 0 ? 0 : fsync(fd); }

bool ln_os_size_is_guess(int fd) { return (void)fd, false; }

int ln_rename(const char *from, const char *to, unsigned how) {
    return renamex_np(from, to, how == LN_RENAME_EXCHANGE ? RENAME_SWAP : RENAME_EXCL);
}

void ln_os_program(char *path, size_t cap) {
    char own[4096], *real = NULL;
    uint32_t n = sizeof own;
    path[0] = '\0';
    if (_NSGetExecutablePath(own, &n) == 0) real = realpath(own, NULL);
    if (real && strlen(real) < cap) memcpy(path, real, strlen(real) + 1);
    free(real);
}

/* ---- memory ---- */

size_t ln_os_block_bytes(const void *p) { return malloc_size(p); }

uint64_t ln_os_heap_bytes(void) {
    malloc_statistics_t s;
    malloc_zone_statistics(NULL, &s);
    return s.size_in_use;
}
void ln_os_heap_trim(void) { (void)malloc_zone_pressure_relief(NULL, 0); }
void ln_os_heap_return_large(void) {} /* it does so by itself */

bool ln_os_zero_pages(uintptr_t at, size_t bytes) {
    return mmap((void *)at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) == (void *)at;
}

void ln_os_use_huge_pages(void *p, size_t bytes) { (void)p, (void)bytes; }
void ln_os_fetch_pages(void *p, size_t bytes) { (void)madvise(p, bytes, MADV_WILLNEED); }
void ln_os_drop_pages(void *p, size_t bytes) { (void)madvise(p, bytes, MADV_DONTNEED); }

bool ln_os_pages_in_memory(void *at, size_t bytes, unsigned char *in) {
    return mincore(at, bytes, (char *)in) == 0;
}

/* ---- the machine and the process ---- */

void ln_os_cpu_name(char *out, size_t cap) {
    out[0] = '\0';
    if (sysctlbyname("machdep.cpu.brand_string", out, &cap, NULL, 0) != 0) out[0] = '\0';
}

uint64_t ln_os_cache_bytes(void) {
    static const char *const names[] = {"hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"};
    uint64_t most = 0;
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        uint64_t v = 0;
        size_t n = sizeof v;
        if (sysctlbyname(names[i], &v, &n, NULL, 0) == 0 && n == sizeof v) most = LN_MAX(most, v);
    }
    return most;
}

bool ln_os_allow_tiles(void) { return false; } /* no Mac has them */

/* A child is not ended with its parent here: it ends by itself when its socket is closed. */
bool ln_os_begin_child(pid_t parent, int first) {
    if (getppid() != parent) return false;
    for (int fd = first, n = getdtablesize(); fd < n; fd++) (void)close(fd);
    return true;
}

int ln_os_watch_process(pid_t pid) {
    const int fd = kqueue();
    struct kevent e;
    EV_SET(&e, pid, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL);
    if (fd < 0 || kevent(fd, &e, 1, NULL, 0, NULL) == 0) return fd;
    (void)close(fd);
    return -1;
}
