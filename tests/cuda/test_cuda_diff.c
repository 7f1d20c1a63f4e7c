/* Every node of every golden model on the GPU against the reference device, exact and fast, what happens if
 * the GPU's memory is not enough, and the GPU's ceilings. Skipped if there is no GPU. */
/* run: quick cuda */
#include "../node_checks.h"
#include "cuda_case.h"

static void golden_models_node_by_node(void **state) {
    (void)state;
    check_golden_nodes(LN_DEVICE_CUDA, 1);
}

static void adapters_node_by_node(void **state) {
    (void)state;
    check_adapted_nodes(LN_DEVICE_CUDA);
}

/* A block that the GPU does not have is LN_EMEMORY with both numbers, and the device goes on. */
static void too_little_memory(void **state) {
    (void)state;
    ln_dev *dev;
    void *p;
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    ln_dev_info info = {.size = sizeof info};
    OK(cuda_ops->open(&dev, &o, err));
    cuda_ops->describe(dev, &info);
    assert_true(info.memory_total > 0 && info.memory_free > 0 && info.memory_free <= info.memory_total);
    FAILS(LN_EMEMORY, "bytes of the GPU's memory are free",
          cuda_ops->alloc(dev, (size_t)info.memory_total * 2, 0, &p, err));
    OK(cuda_ops->alloc(dev, 1 << 20, 0, &p, err));
    cuda_ops->free(dev, p, 1 << 20);
    cuda_ops->close(&dev);
}

/* The plan counts both memories. What is allocated on the GPU is at most 5 % more than planned, and an engine
 * that does not fit is rejected before anything is taken. */
static void planned_memory(void **state) {
    (void)state;
    ln_package *m;
    ln_plan plan;
    OK(ln_package_open(&m, LN_ROOT "/models/tiny", &(ln_options){0}, err));
    ln_options o = {.device = LN_DEVICE_CUDA, .n_ctx = m->spec.n_ctx, .n_parallel = 64};
    OK(ln_eng_plan(m, &o, &plan, err));
    assert_true(plan.fits && plan.device_bytes > 0 && plan.device_available_bytes > plan.device_bytes);
    assert_true(plan.device_bytes == plan.weights_bytes + plan.kv_bytes + plan.activation_bytes);
    assert_true(plan.peak_bytes == plan.other_bytes + plan.text_bytes);
    const ln_adapter_part part = {DIR_GOLDEN "lora/llama-all", 1};
    ln_package *llama;
    ln_plan with, without;
    OK(ln_package_open(&llama, DIR_GOLDEN "llama-plain-f32", &(ln_options){0}, err));
    ln_options lora = {.device = LN_DEVICE_CUDA};
    OK(ln_eng_plan(llama, &lora, &without, err));
    lora.adapter = &part, lora.n_adapter_parts = 1;
    OK(ln_eng_plan(llama, &lora, &with, err));
    assert_true(with.adapter_bytes > 0 && with.device_bytes >= without.device_bytes + with.adapter_bytes);
    ln_package_close(&llama);
    ln_eng *e;
    OK(ln_eng_open(&e, m, &o, err));
    ln_dev_info before = {.size = sizeof before}, after = before;
    cuda_ops->describe(e->run->dev, &before);
    ln_eng_close(&e);
    OK(ln_eng_open(&e, m, &(ln_options){.device = LN_DEVICE_CUDA, .n_ctx = 64}, err)); /* holds the device */
    cuda_ops->describe(e->run->dev, &after);
    const uint64_t small = e->run->sizes.weights_bytes + e->run->sizes.kv_bytes + e->run->sizes.temp_bytes +
                           e->run->sizes.scratch_bytes,
                   measured = after.memory_free - before.memory_free, planned = plan.device_bytes - small;
    enum { GRANULE = 2 << 20, BLOCKS = 12 }; /* of the driver's allocations */
    print_message("planned %llu bytes, measured %llu\n", (unsigned long long)planned,
                  (unsigned long long)measured);
    assert_true(measured <= planned + planned / 20 + (uint64_t)GRANULE * BLOCKS);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* No GPU that has kernels here copies less than 50 GB/s, or more than 100 TB/s. Without cuBLAS the rate of
 * products is 0; with it, it lies between 1 and 100,000 TFLOP/s. Nothing is measured without being asked. */
static void ceilings(void **state) {
    ln_machine m = {.size = sizeof m};
    (void)state;
    OK(ln_doctor(false, 1, &m, err));
    assert_true(m.gpu_copy_gb_s == 0 && m.gpu_flop_s == 0);
    OK(ln_doctor(true, 1, &m, err));
    print_message("copy %.0f GB/s, products %.0f TFLOP/s\n", m.gpu_copy_gb_s, m.gpu_flop_s * 1e-12);
    assert_true(m.gpu_copy_gb_s > 50 && m.gpu_copy_gb_s < 1e5);
    assert_true(m.gpu_flop_s == 0 || (m.gpu_flop_s > 1e12 && m.gpu_flop_s < 1e17));
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_node_by_node), cmocka_unit_test(adapters_node_by_node),
        cmocka_unit_test(too_little_memory), cmocka_unit_test(planned_memory), cmocka_unit_test(ceilings)};
    return cmocka_run_group_tests_name("cuda_diff", tests, NULL, NULL);
}
