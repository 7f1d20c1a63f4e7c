/* --device: a missing device, a plug-in of another version next to the command, and the CUDA plug-in if no
 * GPU can be used, are rejected with exit code 7; auto goes on with the CPU then, and for what a device says
 * that it cannot run. */
/* run: quick */
#include "spawn.h"

#define LLAMA S(LN_ROOT "/tests/golden/llama-plain-f32")
#define IDS   S("--ids"), S("1,2,3,40,50,60,70")

static void copy_file(const char *from, const char *to, mode_t mode) {
    char *data;
    size_t bytes;
    assert_int_equal(ln_read_file(from, 1 << 30, &data, &bytes, NULL), LN_OK);
    const int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = write(fd, data + at, bytes - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    close(fd);
    ln_free(data);
}

static void an_absent_device(void **state) {
    (void)state;
    copy_file(LINNET, at(0, "linnet"), 0700); /* alone in its folder */
    program = at(0, "linnet");
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda")), 7, "liblinnet-cuda.so");
    assert_non_null(strstr(last->err, "--device cpu"));
    expect(RUN(S("plan"), S(TINY), S("--device"), S("cuda")), 7, "liblinnet-cuda.so");
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda:0,1")), 7, "liblinnet-cuda.so");
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda:all")), 7, "liblinnet-cuda.so");
    program = LINNET;
    assert_int_equal(unlink(at(0, "linnet")), 0);
}

/* Lists of GPUs that are none, and verbs that use one. */
static void lists_of_gpus(void **state) {
    char wrong[][16] = {"cuda:", "cuda:x", "cuda:0,", "cuda:0,0", "cuda:-1", "cuda:0,1,all"};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(wrong); i++)
        expect(RUN(S("run"), S(TINY), S("x"), S("--device"), wrong[i]), 2, "different numbers of GPUs");
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cpu:0")), 2, "auto|ref|cpu|cuda|mlx");
    expect(RUN(S("attention"), S(TINY), S("x"), S("-o"), S("y"), S("--device"), S("cuda:0,1")), 2,
           "uses one GPU");
    expect(RUN(S("train"), S(TINY), S("--data"), S("x"), S("-o"), S("y"), S("--device"), S("cuda:0,1")), 2,
           "mpirun starts one for each GPU");
}

/* The plug-in exists, but no GPU can be used: no driver, or none is visible. */
static void no_gpu(void **state) {
    (void)state;
    if (access(LN_BIN "/liblinnet-cuda.so", F_OK) != 0) {
        print_message("SKIP: built without the CUDA device\n");
        return;
    }
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda")), 7, "NVIDIA driver");
    assert_non_null(strstr(last->err, "--device cpu"));
    expect(RUN(S("run"), S(TINY), S("x"), S("-n"), S("2"), S("-v")), 0, NULL);
    assert_non_null(strstr(last->err, "device auto: cpu is used, because cuda is not available"));
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda")), 7, "NVIDIA driver");
    expect(RUN(S("run"), S(TINY), S("x"), S("-n"), S("2"), S("-v")), 0, NULL);
    assert_non_null(strstr(last->err, "device auto: cpu is used, because CUDA_VISIBLE_DEVICES is empty"));
    expect(RUN(S("doctor")), 0, NULL);
    assert_non_null(strstr(last->out, "gpu         device cuda: "));
}

static void a_device_of_another_version(void **state) {
    (void)state;
    copy_file(LINNET, at(0, "linnet"), 0700);
    copy_file(LN_BIN "/liblinnet-bad-abi.so", at(1, "liblinnet-cuda.so"), 0600);
    program = at(0, "linnet");
    expect(RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda")), 7, "liblinnet-cuda.so: device ABI ");
    program = LINNET;
    assert_int_equal(unlink(at(0, "linnet")), 0);
    assert_int_equal(unlink(at(1, "liblinnet-cuda.so")), 0);
}

/* `auto` takes the CPU for what the device says that it cannot run, and the device for everything else. */
static void what_a_device_cannot_run(void **state) {
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    copy_file(LINNET, at(0, "linnet"), 0700);
    copy_file(LN_BIN "/liblinnet-poor.so", at(1, "liblinnet-cuda.so"), 0600);
    program = at(0, "linnet");
    expect(RUN(S("score"), LLAMA, IDS, S("-v")), 0, NULL);
    assert_non_null(strstr(last->err, "device auto: cuda is used"));
    expect(RUN(S("score"), LLAMA, IDS, S("-v"), S("--adapter"), S(LN_ROOT "/tests/golden/lora/llama-all")), 0,
           NULL);
    assert_non_null(strstr(last->err, "cpu is used, because cuda has no kernels for adapters"));
    expect(RUN(S("train"), S(TINY), S("--data"), S(LN_ROOT "/examples/recommend"), S("--dry-run"), S("-v")),
           0, NULL);
    assert_non_null(strstr(last->err, "cpu is used, because cuda has no kernels for gradients"));
    expect(RUN(S("score"), S(LN_ROOT "/tests/golden/families/mixtral-base-bf16"), IDS, S("-v")), 0, NULL);
    assert_non_null(strstr(last->err, "cpu is used, because cuda has no kernels for experts"));
    expect(RUN(S("score"), LLAMA, IDS, S("-v"), S("--kv-type"), S("q8")), 0, NULL);
    assert_non_null(strstr(last->err, "cpu is used, because cuda has no kernels for keys and values of 8 "
                                      "bits"));
    expect(RUN(S("score"), LLAMA, IDS, S("--kv-type"), S("q8"), S("--device"), S("cuda")), 4,
           "linnet: device ");
    assert_non_null(strstr(last->err, "has no kernels for keys and values of 8 bits (--kv-type q8)"));
    program = LINNET;
    assert_int_equal(unlink(at(0, "linnet")), 0);
    assert_int_equal(unlink(at(1, "liblinnet-cuda.so")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_absent_device), cmocka_unit_test(lists_of_gpus), cmocka_unit_test(no_gpu),
        cmocka_unit_test(a_device_of_another_version), cmocka_unit_test(what_a_device_cannot_run)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
