/* What the process gives up once it listens: programs, new connections, files, other processes, and the
 * kernel's odd corners. A filter of system calls (seccomp) holds for all threads and denies what the table
 * sandbox_calls.def does not allow. Rules for files (Landlock) hold for the thread that sets them and those
 * that it starts later; what they deny fails with EACCES.
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
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* The new names of system calls are common to all machines from 424 on. LAST_KNOWN is the highest number that
 * was assigned when the table was written. */
#if defined(__x86_64__)
enum { LAST_OWN = 334 };
#else
enum { LAST_OWN = 294 };
#endif
enum { FIRST_COMMON = 424, LAST_KNOWN = 469 };

/* Numbers of other headers. */
enum { SET_VMA = 0x53564d41 };
#define NAMESPACES                                                                             \
    (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
     CLONE_NEWCGROUP)

typedef enum rule_kind { ALWAYS, MASKED, IS_NULL, OWN, ON_GPU, NEVER } rule_kind;
typedef struct rule {
    int call;
    rule_kind kind;
    int arg;
    uint32_t mask, value;
} rule;

#define CALL(name)                      {SYS_##name, ALWAYS, 0, 0, 0},
#define CALL_IF(name, arg, mask, value) {SYS_##name, MASKED, arg, (uint32_t)(mask), (uint32_t)(value)},
#define CALL_NULL(name, arg)            {SYS_##name, IS_NULL, arg, ~0u, 0},
#define CALL_OWN(name, arg)             {SYS_##name, OWN, arg, ~0u, 0},
#define GPU_IF(name, arg, mask, value)  {SYS_##name, ON_GPU, arg, (uint32_t)(mask), (uint32_t)(value)},
#define NO_CALL(name)                   {SYS_##name, NEVER, 0, 0, 0},
static const rule call_rules[] = {
#include "sandbox_calls.def"
};

enum { MOST_CODE = 16 + 8 * (int)LN_COUNT(call_rules) };
typedef struct code {
    struct sock_filter at[MOST_CODE];
    unsigned short n;
} code;

static void put(code *c, struct sock_filter f) { c->at[c->n++] = f; }
static void load_field(code *c, size_t offset) {
    put(c, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}
/* Loads a half of an argument: 0 the low one, 1 the high one. These machines are little-endian. */
static void load_arg(code *c, int arg, size_t half) {
    load_field(c, offsetof(struct seccomp_data, args) + 8 * (size_t)arg + 4 * half);
}
static void give(code *c, uint32_t what) { put(c, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)); }
static void skip_unless(code *c, unsigned how, uint32_t value, unsigned char n) {
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | how | BPF_K, value, 0, n));
}

/* Appends a rule: code that allows the call, or goes on with the number of the call loaded. */
static void put_rule(code *c, const rule *r) {
    const uint32_t result = r->kind == NEVER ? SECCOMP_RET_ERRNO | ENOSYS : SECCOMP_RET_ALLOW;
    const uint32_t value = r->kind == OWN ? (uint32_t)getpid() : r->value;
    if (r->kind == ALWAYS || r->kind == NEVER) {
        skip_unless(c, BPF_JEQ, (uint32_t)r->call, 1);
        give(c, result);
        return;
    }
    const bool wide = r->kind == IS_NULL;
    skip_unless(c, BPF_JEQ, (uint32_t)r->call, wide ? 6 : 5);
    if (wide) {
        load_arg(c, r->arg, 1);
        skip_unless(c, BPF_JEQ, 0, 3);
    }
    load_arg(c, r->arg, 0);
    if (!wide) put(c, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, r->mask));
    skip_unless(c, BPF_JEQ, value, 1);
    give(c, result);
    load_field(c, offsetof(struct seccomp_data, nr)); /* a condition that does not hold: other rules follow */
}

/* What is not allowed is EPERM; a number that was not assigned when the table was written is ENOSYS, as in an
 * older kernel, so that a newer C library uses what it used before. */
static void build(code *c, bool gpu) {
    const uint32_t unknown = SECCOMP_RET_ERRNO | ENOSYS;
    load_field(c, offsetof(struct seccomp_data, arch));
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LN_AUDIT_ARCH, 1, 0));
    give(c, SECCOMP_RET_KILL_PROCESS);
    load_field(c, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < LN_COUNT(call_rules); i++)
        if (call_rules[i].kind != ON_GPU || gpu) put_rule(c, &call_rules[i]);
    skip_unless(c, BPF_JGT, LAST_KNOWN, 1); /* the x32 names of calls, too */
    give(c, unknown);
    skip_unless(c, BPF_JGT, LAST_OWN, 2);
    put(c, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_COMMON, 1, 0));
    give(c, unknown);
    give(c, SECCOMP_RET_ERRNO | EPERM);
}

/* ---- files (Landlock) ---- */

/* The kernel's interface by its numbers, which do not depend on the headers that the build finds. */
enum { CREATE_RULESET = 444, ADD_RULE, RESTRICT_SELF }; /* the same on all architectures */
enum { FILE_READ = 1 << 2, FOLDER_READ = 1 << 3 };
enum { TCP_BIND = 1, TCP_CONNECT = 2 };
enum { SCOPE_ABSTRACT_SOCKETS = 1, SCOPE_SIGNALS = 2 };
struct ruleset {
    __u64 files, network, scopes;
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
    if (fd < 0) return errno == ENOENT || errno == EACCES; /* what does not exist cannot be read */
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
                                .network = version >= 4 ? TCP_BIND | TCP_CONNECT : 0,
                                .scopes = version >= 6 ? SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS : 0};
    const size_t bytes = version >= 6   ? sizeof all
                         : version >= 4 ? offsetof(struct ruleset, scopes)
                                        : sizeof all.files;
    const int rules = (int)syscall(CREATE_RULESET, &all, bytes, 0);
    bool good = rules >= 0;
    for (size_t i = 0; good && i < LN_COUNT(always); i++) good = allow_reading(rules, always[i]);
    for (size_t i = 0; good && i < n; i++) good = allow_reading(rules, paths[i]);
    good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(RESTRICT_SELF, rules, 0) == 0;
    if (rules >= 0) (void)close(rules);
    return good;
}

bool sandbox_enter(bool secrets, bool gpu) {
    static code c;
    c.n = 0;
    build(&c, gpu);
    const struct sock_fprog program = {.len = c.n, .filter = c.at};
    if (secrets) (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

#else

bool sandbox_enter(bool secrets, bool gpu) {
    (void)secrets, (void)gpu;
    return true;
}

bool sandbox_files(const char *const *paths, size_t n) {
    (void)paths, (void)n;
    return true;
}

#endif
