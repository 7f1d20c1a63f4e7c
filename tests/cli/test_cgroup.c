/* Runs under a limit that the kernel enforces by killing: a control group whose memory limit is what `plan`
 * says. A run with that limit is not killed, one with less is rejected before anything is loaded.
 *
 * The test makes a group below its own, of version 2 or 1. If it may not, it prints that and ends; the
 * limits of tests/api/test_memory_api.c (RLIMIT_AS, RLIMIT_DATA) need no rights. */
/* run: quick */
#include "spawn.h"

static char group[512]; /* directory of the group; "" if there is none */
static bool v2;

/* The path of this process in the hierarchy of the memory controller: the line "0::PATH" for version 2, and
 * "N:...,memory,...:PATH" for version 1. */
static bool own_path(bool version2, char *out, size_t cap) {
    char line[1024];
    bool found = false;
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = version2 ? names[1] == '\0' : strstr(names, "memory") != NULL;
        if (found) (void)snprintf(out, cap, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    if (f) (void)fclose(f);
    return found;
}

static bool put(const char *leaf, const char *text) {
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", group, leaf);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return ok;
}

static uint64_t get(const char *leaf, const char *key) {
    char path[600], line[256];
    uint64_t value = UINT64_MAX;
    (void)snprintf(path, sizeof path, "%s/%s", group, leaf);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) value = strtoull(line + strlen(key), NULL, 10);
    if (f) (void)fclose(f);
    return value;
}

/* Creates a group with a memory limit, below this process's own or, if that one may have no children because
 * it has processes, below the root. */
static bool make_group(bool version2) {
    char own[256];
    const char *root = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    v2 = version2;
    if (!own_path(version2, own, sizeof own)) return false;
    for (int below_root = 0; below_root < 2; below_root++) {
        (void)snprintf(group, sizeof group, "%s%s/linnet-test-%d", root, below_root ? "" : own,
                       (int)getpid());
        if (mkdir(group, 0755) != 0) continue;
        if (put(v2 ? "memory.max" : "memory.limit_in_bytes", "1073741824")) return true;
        (void)rmdir(group); /* the memory controller is not for groups here */
    }
    group[0] = '\0';
    return false;
}

static int make_all(void **state) {
    if (make_dir(state) != 0) return 1;
    if (!make_group(true)) (void)make_group(false);
    return 0;
}
static int remove_all(void **state) {
    if (group[0]) assert_int_equal(rmdir(group), 0);
    return remove_dir(state);
}

static bool possible(void) {
    if (getenv("LN_SANITIZED")) print_message("SKIP: a sanitizer's shadow is beyond any limit\n");
    else if (!group[0])
        print_message("SKIP: NO CONTROL GROUP MAY BE MADE HERE: runs under a limit that kills are not "
                      "tested\n");
    else return true;
    return false;
}

static void join(void) { /* in the child, which has forked and is about to run the command */
    if (!put("cgroup.procs", "0")) _exit(97);
}

static void limit_to(uint64_t bytes) {
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    if (!v2) (void)put("memory.memsw.limit_in_bytes", "-1"); /* never less than the limit without swap */
    assert_true(put(v2 ? "memory.max" : "memory.limit_in_bytes", text));
    if (v2) (void)put("memory.swap.max", "0");
    else (void)put("memory.memsw.limit_in_bytes", text);
}

static uint64_t n_killed(void) {
    const uint64_t n = v2 ? get("memory.events", "oom_kill ") : get("memory.oom_control", "oom_kill ");
    return n == UINT64_MAX ? 0 : n; /* an older kernel does not count them: the exit code tells */
}

/* Ids for a prompt of n tokens. */
static const char *prompt_of(char *buf, size_t cap, int n) {
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%d", i ? "," : "", 20 + i % 200);
    return buf;
}

/* The command that docs and gates measure memory with, at the limit that was planned for it. The margin of 3
 * MiB is for what the kernel charges to the group in addition to the process, and because the resident
 * memory of a process differs by some hundred kB from one start to the next: with 1 MiB, a run was
 * rejected. */
static void a_run_at_its_limit_is_not_killed(void **state) {
    (void)state;
    if (!possible()) return;
    static char ids[4096];
    static char numerics[][8] = {"exact", "fast"};
    (void)prompt_of(ids, sizeof ids, 200);
    for (int i = 0; i < 2; i++) {
        json_t *o = json_of(RUN(S("plan"), S(TINY), S("--ids"), ids, S("-n"), S("800"), S("--ctx"), S("1024"),
                                S("--threads"), S("2"), S("--numerics"), numerics[i], S("--json")));
        const uint64_t margin = 3 << 20, limit = (uint64_t)int_of(o, "peak_bytes") + margin;
        json_decref(o);
        limit_to(limit);
        const uint64_t before = n_killed();
        before_exec = join;
        expect(RUN(S("run"), S(TINY), S("--ids"), ids, S("-n"), S("800"), S("--ignore-eos"), S("--ctx"),
                   S("1024"), S("--threads"), S("2"), S("--numerics"), numerics[i]),
               0, NULL);
        limit_to(limit - (6 << 20));
        expect(RUN(S("run"), S(TINY), S("--ids"), ids, S("-n"), S("800"), S("--ctx"), S("1024"),
                   S("--threads"), S("2"), S("--numerics"), numerics[i]),
               6, "cgroup");
        before_exec = NULL;
        assert_int_equal(n_killed(), before);
        const uint64_t peak = v2 ? get("memory.peak", "") : get("memory.max_usage_in_bytes", "");
        if (peak != UINT64_MAX) assert_true(peak <= limit);
        print_message("  %s: planned %.1f MB, held at most %.1f MB\n", numerics[i],
                      (double)(limit - margin) * 1e-6, (double)peak * 1e-6);
        if (!v2) (void)put("memory.max_usage_in_bytes", "0");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_at_its_limit_is_not_killed)};
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
