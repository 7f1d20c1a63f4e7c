/* The trainer on a GPU: fast numerics next to exact ones, twice with the same bits. A run that is rejected
 * for lack of memory, and one whose GPU is lost, which continues on the CPU from its last checkpoint. Skipped
 * if there is no GPU. */
/* run: quick cuda */
#include "lost_gpu.h"

#include <math.h>

#define MODEL LN_ROOT "/models/tiny"
#define DATA  LN_ROOT "/examples/recommend/train.jsonl"
enum { STEPS = 12 };
static char out_dir[100];

static ln_trainer_options short_run(void) {
    ln_trainer_options how = ln_trainer_options_default();
    how.data = DATA, how.steps = STEPS, how.targets = "all-linear", how.lr = 5e-4;
    return how;
}

/* ---- fast numerics ---- */

static double losses[STEPS + 1];
static ln_status keep_loss(void *user, const ln_step_report *r, ln_error *err) {
    (void)user, (void)err;
    losses[r->step] = r->loss;
    return LN_OK;
}
static ln_status run(ln_device device, ln_numerics numerics, const ln_trainer_options *how,
                     ln_status (*on_step)(void *, const ln_step_report *, ln_error *), ln_error *err) {
    ln_options o = ln_options_default();
    const ln_trainer_events on = {.size = sizeof on, .on_step = on_step};
    ln_trainer_result r = {.size = sizeof r};
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    o.device = device, o.numerics = numerics;
    ln_status st = ln_model_open(&m, MODEL, &o, err);
    if (st == LN_OK) st = ln_trainer_new(&t, m, &o, how, err);
    if (st == LN_OK) st = ln_trainer_run(t, &on, &r, err);
    ln_trainer_free(&t);
    ln_model_close(&m);
    return st;
}

/* Products and what is kept between them are rounded to bf16, that is by up to 2^-9 of each number. */
static void fast_is_near_exact(void **state) {
    (void)state;
    double exact[STEPS + 1], fast[STEPS + 1], worst = 0;
    const ln_trainer_options how = short_run();
    OK(run(LN_DEVICE_CUDA, LN_EXACT, &how, keep_loss, err));
    memcpy(exact, losses, sizeof exact);
    OK(run(LN_DEVICE_CUDA, LN_FAST, &how, keep_loss, err));
    memcpy(fast, losses, sizeof fast);
    OK(run(LN_DEVICE_CUDA, LN_FAST, &how, keep_loss, err));
    for (int k = 1; k <= STEPS; k++) {
        assert_true(losses[k] == fast[k]);
        worst = fmax(worst, fabs(fast[k] - exact[k]) / exact[k]);
    }
    print_message("losses of %d steps in fast and in exact numerics differ by at most %.2g of them\n", STEPS,
                  worst);
    assert_true(worst > 0 && worst <= 0x1p-7);
}

/* ---- too little memory ---- */

static void not_enough_memory(void **state) {
    (void)state;
    enum { LEFT = 24 << 20 };
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    ln_dev_info i = {.size = sizeof i};
    ln_dev *dev;
    void *p;
    ln_trainer_options how = short_run();
    how.batch = 64;
    OK(cuda_ops->open(&dev, &o, err));
    cuda_ops->describe(dev, &i);
    const size_t bytes = (size_t)(i.memory_free - LEFT);
    OK(cuda_ops->alloc(dev, bytes, 0, &p, err));
    FAILS(LN_EMEMORY, "memory", run(LN_DEVICE_CUDA, LN_FAST, &how, keep_loss, err));
    cuda_ops->free(dev, p, bytes);
    cuda_ops->close(&dev);
    how.steps = 1;
    OK(run(LN_DEVICE_CUDA, LN_FAST, &how, keep_loss, err));
}

/* ---- a lost GPU ---- */

enum { LAST = 3 };
static ln_status lose_after_some(void *user, const ln_step_report *r, ln_error *err) {
    (void)user, (void)err;
    losses[r->step] = r->loss;
    if (r->step == LAST + 1) lose_gpu();
    return LN_OK;
}
/* Last: the GPU is of no use to this process afterwards. */
static void lost(void **state) {
    (void)state;
    ln_trainer_options how = short_run();
    how.out = out_dir, how.save_every = LAST;
    FAILS(LN_EDEVICE, "device cuda", run(LN_DEVICE_CUDA, LN_FAST, &how, lose_after_some, err));
    const double before = losses[LAST + 1];
    memset(losses, 0, sizeof losses);
    how.resume = true;
    OK(run(LN_DEVICE_CPU, LN_FAST, &how, keep_loss, err));
    assert_true(losses[LAST] == 0); /* was not done again */
    assert_true(fabs(losses[LAST + 1] - before) <= 0x1p-7 * before && losses[STEPS] > 0);
}

static int begin_files(void **state) {
    (void)state;
    snprintf(out_dir, sizeof out_dir, "/tmp/linnet-cuda-trainer-XXXXXX");
    return mkdtemp(out_dir) ? 0 : -1;
}
static int end_files(void **state) {
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", out_dir);
    return system(command);
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(fast_is_near_exact),
                                       cmocka_unit_test(not_enough_memory), cmocka_unit_test(lost)};
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
