/* What the process gives up once it listens: programs, new connections, files, and the kernel's odd corners.
 * A filter of system calls (seccomp) holds for all threads; what it denies fails with EPERM. Rules for files
 * (Landlock) hold for the thread that sets them and those that it starts later; what they deny fails with
 * EACCES.
 *
 * After the start the server reads (the mapped weights, /proc, /sys), accepts, and writes to sockets and to
 * the log, so that a defect in it can neither run a program nor reach another machine nor change a file, and
 * read none but those. */
#include "server.h"

#include <linux/audit.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/types.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__x86_64__)
#define LN_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define LN_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

/* The leak checker of AddressSanitizer traces its own process at the end. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef LN_AUDIT_ARCH
#endif

#ifdef LN_AUDIT_ARCH

static const int denied[] = {
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_userfaultfd,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_quotactl,
    SYS_acct,
    SYS_personality,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mknodat,
    SYS_truncate,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_setxattr,
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_unlink /* x86-64 has the older names of these, too */
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_symlink,
    SYS_mknod,
    SYS_chmod,
    SYS_chown,
    SYS_creat,
#endif
#ifdef SYS_io_uring_setup
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
#endif
};

enum { MOST_CODE = 160 };
typedef struct code {
    struct sock_filter at[MOST_CODE];
    unsigned short n;
} code;

static void put(code *c, struct sock_filter f) { c->at[c->n++] = f; }
static void load_field(code *c, size_t offset) {
    put(c, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}
static void give(code *c, uint32_t what) { put(c, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)); }
static void deny(code *c) { give(c, SECCOMP_RET_ERRNO | EPERM); }

/* Denies opening for writing: `arg` is the argument that has the flags. */
static void deny_writing(code *c, int call, int arg) {
    const uint32_t flags = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4));
    load_field(c, offsetof(struct seccomp_data, args) +
                      8 * (size_t)arg); /* the low half: these machines are little-endian */
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
    deny(c);
    give(c, SECCOMP_RET_ALLOW);
}

static void build(code *c) {
    load_field(c, offsetof(struct seccomp_data, arch));
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LN_AUDIT_ARCH, 1, 0));
    give(c, SECCOMP_RET_KILL_PROCESS);
    load_field(c, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0,
                                        1)); /* the x32 names of calls */
    deny(c);
#endif
    for (size_t i = 0; i < LN_COUNT(denied); i++) {
        put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denied[i], 0, 1));
        deny(c);
    }
#ifdef SYS_openat2 /* its flags are in memory, which a filter cannot read; the C library then uses openat */
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1));
    give(c, SECCOMP_RET_ERRNO | ENOSYS);
#endif
    deny_writing(c, SYS_openat, 2);
#ifdef SYS_open
    deny_writing(c, SYS_open, 1);
#endif
    give(c, SECCOMP_RET_ALLOW);
}

/* ---- files (Landlock) ---- */

/* The kernel's interface by its numbers, which do not depend on the headers that the build finds. */
enum { CREATE_RULESET = 444, ADD_RULE, RESTRICT_SELF }; /* the same on all architectures */
enum { FILE_READ = 1 << 2, FOLDER_READ = 1 << 3 };
enum { TCP_BIND = 1, TCP_CONNECT = 2 };
struct ruleset {
    __u64 files, network;
};
struct beneath {
    __u64 allowed;
    __s32 folder;
} __attribute__((packed));

/* The rights to files that a version of the interface knows, all of which are taken away. */
static __u64 rights_of(long version) {
    __u64 rights = (1u << 13) - 1;        /* execute, write, read, make and remove everything */
    if (version >= 2) rights |= 1u << 13; /* link or rename to another folder */
    if (version >= 3) rights |= 1u << 14; /* truncate */
    if (version >= 5) rights |= 1u << 15; /* ioctl of devices */
    return rights;
}

static bool allow_reading(int rules, const char *path) {
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == EACCES; /* what is not there cannot be read */
    const struct beneath b = {.allowed = FILE_READ | FOLDER_READ, .folder = fd};
    const bool good = syscall(ADD_RULE, rules, 1, &b, 0) == 0;
    (void)close(fd);
    return good;
}

bool sandbox_files(const char *const *paths, size_t n) {
    static const char *const always[] = {"/proc", "/sys"}; /* memory, limits of groups, processors */
    const long version = syscall(CREATE_RULESET, NULL, 0, 1);
    if (version < 1) return false;
    const struct ruleset all = {.files = rights_of(version),
                                .network = version >= 4 ? TCP_BIND | TCP_CONNECT : 0};
    const int rules = (int)syscall(CREATE_RULESET, &all, version >= 4 ? sizeof all : sizeof all.files, 0);
    bool good = rules >= 0;
    for (size_t i = 0; good && i < LN_COUNT(always); i++) good = allow_reading(rules, always[i]);
    for (size_t i = 0; good && i < n; i++) good = allow_reading(rules, paths[i]);
    good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(RESTRICT_SELF, rules, 0) == 0;
    if (rules >= 0) (void)close(rules);
    return good;
}

bool sandbox_enter(bool secrets) {
    static code c;
    c.n = 0;
    build(&c);
    const struct sock_fprog program = {.len = c.n, .filter = c.at};
    if (secrets) (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

#else

bool sandbox_enter(bool secrets) {
    (void)secrets;
    return true;
}

bool sandbox_files(const char *const *paths, size_t n) {
    (void)paths, (void)n;
    return true;
}

#endif

/* ---- systemd ---- */

int notify_open(void) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path) return -1;
    memcpy(a.sun_path, path, strlen(path));
    if (path[0] == '@') a.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, n) == 0) return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

void notify_send(int fd, const char *state) {
    if (fd < 0) return;
    const ssize_t n = send(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
}
