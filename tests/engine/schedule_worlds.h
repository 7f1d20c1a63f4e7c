/* The worlds of random schedules (test_schedules): golden models of every kind of state and of layer, each in
 * the numerics modes that it has. */
#ifndef LN_TESTS_SCHEDULE_WORLDS_H
#define LN_TESTS_SCHEDULE_WORLDS_H

#include "../defects/defects.h"
#include "naive.h"

enum { N_WORLDS = 40 };

static world worlds[N_WORLDS];
static int n_worlds;
static ln_package *packages[N_WORLDS];
static int n_packages;

static void window_of_three_pages(json_t *config) {
    json_object_set_new(config, "sliding_window", json_integer(96));
}
static void window_inside_a_page(json_t *config) {
    json_object_set_new(config, "sliding_window", json_integer(45));
}

static void add_model(const char *name, const char *dir) {
    ln_package *m;
    OK(ln_package_open(&m, dir, &(ln_options){0}, err));
    packages[n_packages++] = m;
    world_open(&worlds[n_worlds++], name, m, LN_EXACT);
    if (ln_run_numerics(&m->spec, LN_FAST) == LN_FAST) world_open(&worlds[n_worlds++], name, m, LN_FAST);
}

static int open_models(void **state) {
    static const char *const names[] = {"gemma3-text-f32",
                                        "quantised/gemma3-text-q4-g32-bf16",
                                        "qwen3-sharded-bf16",
                                        "qwen2-f32",
                                        "llama-llama3-bf16",
                                        "llama-dynamic-f32",
                                        "gemma3-dynamic-bf16",
                                        "quantised/llama-q6-g128-bf16",
                                        "quantised/qwen3-q8-g32-f16",
                                        "quantised/qwen2-q3-g64-f32",
                                        "families/qwen3_5_text-last-linear-bf16",
                                        "families/qwen3_5_moe_text-bias-bf16",
                                        "families/gpt_oss-mxfp4-bf16",
                                        "families/lfm2_moe-base-f16",
                                        "families/gemma4_text-experts-bf16",
                                        "families/glm4_moe-base-bf16"};
    void (*const windows[])(json_t *) = {window_of_three_pages, window_inside_a_page};
    for (size_t i = 0; state && i < LN_COUNT(windows); i++) {
        const copied c = copy_of("gemma3-text-bf16", windows[i]);
        add_model("gemma3-text-bf16, another window", c.dir);
        copy_gone(&c);
    }
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        char dir[600];
        (void)snprintf(dir, sizeof dir, LN_ROOT "/tests/golden/%s", names[i]);
        add_model(names[i], dir);
    }
    return 0;
}
static int close_models(void **state) {
    (void)state;
    for (int i = 0; i < n_worlds; i++) world_close(&worlds[i]);
    for (int i = 0; i < n_packages; i++) ln_package_close(&packages[i]);
    return 0;
}

#endif
