/* Discovery (ln_list): every model below a directory is reported once, whichever links lead to it and
 * whichever files are broken. */
/* run: quick */
#include <linnet.h>
#include <linnet_tools.h>

#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char root[64], found[4096];
static int n_found, stop_after, fail_after;

static void make_dir(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}
static void make_file(const char *name, const char *text) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}
static void make_link(const char *name, const char *to) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(symlink(to, path), 0);
}
static void make_model(const char *name, const char *config) {
    char path[512];
    make_dir(name);
    (void)snprintf(path, sizeof path, "%s/config.json", name);
    make_file(path, config);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", name);
    make_file(path, "12345");
}

static int build(void **s) {
    (void)s;
    memcpy(root, "/tmp/linnet-list-XXXXXX", 24);
    if (!mkdtemp(root)) return -1;
    make_model("a", "{\"model_type\": \"llama\", \"torch_dtype\": \"bfloat16\"}");
    make_dir("a/runs");
    make_model("a/runs/deep", "{\"model_type\": \"qwen3\", \"dtype\": \"float32\", \"quantization\": "
                              "{\"bits\": 4, \"group_size\": 64}}");
    make_model("b bad", "{\"model_type\": \"llama\""); /* truncated JSON */
    make_model("c odd [x]*", "[\"model_type\"]");      /* not a JSON object, and a name with characters of a
                                                          glob pattern */
    make_dir("d");
    make_dir("d/models--org--name");
    make_dir("d/models--org--name/refs");
    make_dir("d/models--org--name/blobs");
    make_dir("d/models--org--name/snapshots");
    make_dir("d/models--org--name/snapshots/0123");
    make_file("d/models--org--name/blobs/cfg", "{\"model_type\": \"gemma3\"}");
    make_file("d/models--org--name/blobs/w", "1234567");
    make_link("d/models--org--name/snapshots/0123/config.json", "../../blobs/cfg");
    make_link("d/models--org--name/snapshots/0123/model-00001-of-00002.safetensors", "../../blobs/w");
    make_link("d/models--org--name/snapshots/0123/model-00002-of-00002.safetensors", "../../blobs/w");
    make_dir("e no weights");
    make_file("e no weights/config.json", "{}");
    make_dir("f no config");
    make_file("f no config/model.safetensors", "1");
    make_dir("g");
    make_link("g/circle", "..");
    make_link("h itself", "h itself");
    make_link("i dangling", "/nowhere/at/all");
    make_link("j again", "a"); /* already found under its own name */
    make_file("z file", "");
    return 0;
}

static int remove_all(void **s) {
    char command[128];
    (void)s;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static ln_status on_found(void *user, const ln_found *f, ln_error *err) {
    (void)user;
    size_t n = strlen(found), base = strlen(root);
    assert_memory_equal(f->path, root, base);
    (void)snprintf(found + n, sizeof found - n, "%s %s %s %d/%d %d %llu\n", f->path + base, f->model_type,
                   f->dtype, f->bits, f->group, f->n_files, (unsigned long long)f->bytes);
    n_found++;
    if (n_found == fail_after) return snprintf(err->message, sizeof err->message, "enough"), LN_EIO;
    return n_found == stop_after ? LN_ECANCELLED : LN_OK;
}

static void list(const char *below, ln_status want) {
    char path[256];
    ln_error err = {0};
    (void)snprintf(path, sizeof path, "%s%s", root, below);
    found[0] = '\0';
    n_found = 0;
    ln_status st = ln_list(path, on_found, NULL, &err);
    if (st != want) fail_msg("status %d: %s", st, err.message);
}

static void everything_once(void **s) {
    (void)s;
    list("", LN_OK);
    assert_string_equal(found, "/a llama bfloat16 0/0 1 5\n"
                               "/a/runs/deep qwen3 float32 4/64 1 5\n"
                               "/b bad   0/0 1 5\n"
                               "/c odd [x]*   0/0 1 5\n"
                               "/d/models--org--name/snapshots/0123 gemma3  0/0 2 14\n");
    list("/a", LN_OK); /* the directory itself comes first */
    assert_int_equal(n_found, 2);
    list("/j again", LN_OK); /* reported under the name of the link, resolved */
    assert_int_equal(n_found, 2);
    list("/d", LN_OK);
    assert_int_equal(n_found, 1);
}

static void stops_and_fails(void **s) {
    (void)s;
    stop_after = 2;
    list("", LN_OK);
    assert_int_equal(n_found, 2);
    stop_after = 0, fail_after = 3;
    list("", LN_EIO);
    assert_int_equal(n_found, 3);
    fail_after = 0;
    list("/absent", LN_EIO);
    list("/z file", LN_EIO);
    list("/h itself", LN_EIO);
}

/* A directory without read permission is skipped; only the directory that the caller named must be
 * readable. */
static void closed_doors(void **s) {
    (void)s;
    char path[256];
    int status;
    (void)snprintf(path, sizeof path, "%s/d", root);
    assert_int_equal(chmod(path, 0), 0);
    pid_t pid = fork();
    if (pid == 0) { /* the child gives up root's rights for good */
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};
        ln_error err;
        (void)syscall(SYS_capset, &head, none);
        n_found = 0;
        if (ln_list(root, on_found, NULL, &err) != LN_OK || n_found != 4) _exit(1);
        if (ln_list(path, on_found, NULL, &err) != LN_EIO || !strstr(err.message, path)) _exit(2);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_once), cmocka_unit_test(stops_and_fails),
                                       cmocka_unit_test(closed_doors)};
    return cmocka_run_group_tests(tests, build, remove_all);
}
