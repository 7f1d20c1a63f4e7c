/* Modules that an adapter's configuration names and of which its file has no tensors: they are listed and
 * warned about; excluded ones are not. Modules that it leaves out and of which the file has tensors, and
 * tensors that are empty, are rejected. */
/* run: quick */
#include "../common.h"
#include "io/adapter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/adapters/"
#define PEFT   "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,"

static char dir[] = "/tmp/linnet-absent-XXXXXX";
static ln_str logged;

static void keep_line(void *user, ln_level level, const char *line) {
    (void)user;
    if (level == LN_LOG_WARN) ln_str_addf(&logged, "%s\n", line);
}

static void path_of(char path[300], const char *name) { (void)snprintf(path, 300, "%s/%s", dir, name); }

/* Writes an adapter of this configuration to the directory, whose tensors are for q_proj and v_proj of all
 * layers. */
static void set_config(const char *config) {
    char path[300];
    path_of(path, "adapter_config.json");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(config, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void absent_modules_are_named(void **state) {
    (void)state;
    static const struct {
        const char *config, *absent;
    } rows[] = {
        {PEFT "\"target_modules\":[\"q_proj\",\"v_proj\"]}", ""},
        {PEFT "\"target_modules\":[\"k_proj\",\"q_proj\",\"v_proj\",\"proj\",\"fc1\"]}", "k_proj, proj, fc1"},
        {PEFT "\"target_modules\":[\"q_proj\",\"v_proj\",\"layers.9.self_attn.q_proj\","
              "\"model.layers.0.self_attn.q_proj\",\"self_attn.v_proj\"]}",
         "layers.9.self_attn.q_proj"},
        {PEFT "\"target_modules\":[\"q_proj\",\"v_proj\",\"k_proj\",\"a.o_proj\"],\"exclude_modules\":[\"o_"
              "proj\"]}",
         "k_proj"},
        {PEFT "\"target_modules\":[\"q_proj\",\"v_proj\",\"k_proj\"],\"exclude_modules\":\".*k_proj\"}", ""},
        {PEFT "\"target_modules\":\".*_proj\"}", ""},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_adapter_file *a;
        ln_adapter_info info = {.size = sizeof info};
        set_config(rows[i].config);
        OK(ln_adapter_file_open(&a, dir, err));
        if (strcmp(a->absent, rows[i].absent) != 0)
            fail_msg("row %zu: '%s', expected '%s'", i, a->absent, rows[i].absent);
        ln_adapter_file_close(&a);
        logged.len = 0;
        ln_log_set(keep_line, NULL);
        OK(ln_adapter_show(dir, NULL, &info, err));
        ln_log_set(NULL, NULL);
        assert_int_equal(logged.len > 0, rows[i].absent[0] != 0);
        if (logged.len) assert_non_null(strstr(logged.data, rows[i].absent));
    }
}

/* PEFT applies nothing to modules that exclude_modules, layers_to_transform and layers_pattern leave out. */
static void modules_that_are_left_out(void **state) {
    (void)state;
#define NAMED PEFT "\"target_modules\":[\"q_proj\",\"v_proj\"],"
    static const struct {
        const char *config;
        bool good;
    } rows[] = {{NAMED "\"exclude_modules\":[\"k_proj\",\"proj\"]}", true},
                {NAMED "\"exclude_modules\":[\"v_proj\"]}", false},
                {NAMED "\"exclude_modules\":\".*k_proj\"}", true},
                {NAMED "\"exclude_modules\":\".*layers\\\\.0.*\"}", false},
                {NAMED "\"exclude_modules\":7}", false},
                {NAMED "\"layers_to_transform\":[0,1,2,3,4,5,6,7]}", true},
                {NAMED "\"layers_to_transform\":[1]}", false},
                {NAMED "\"layers_to_transform\":1}", false},
                {NAMED "\"layers_to_transform\":\"1\"}", false},
                {NAMED "\"layers_to_transform\":[0,1,2,3],\"layers_pattern\":\"layers\"}", true},
                {NAMED "\"layers_to_transform\":[0,1,2,3],\"layers_pattern\":[\"h\",\"layers\"]}", true},
                {NAMED "\"layers_to_transform\":[0,1,2,3],\"layers_pattern\":[\"h\"]}", false}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_adapter_file *a = NULL;
        ln_error e = {0};
        set_config(rows[i].config);
        const ln_status st = ln_adapter_file_open(&a, dir, &e);
        if (st != (rows[i].good ? LN_OK : LN_EINVALID))
            fail_msg("%s: status %d, %s", rows[i].config, (int)st, e.message);
        ln_adapter_file_close(&a);
    }
}

/* What DeepSpeed ZeRO-3 leaves if parts are not gathered is called that. */
static void empty_tensors_are_named(void **state) {
    (void)state;
    static const char header[] =
        "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\","
        "\"shape\":[0],\"data_offsets\":[0,0]},\"base_model.model.model.layers.0.self_attn."
        "q_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    const uint64_t n = sizeof header - 1;
    char path[300];
    ln_adapter_file *a = NULL;
    path_of(path, "adapter_model.safetensors");
    assert_int_equal(unlink(path), 0);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&n, sizeof n, 1, f), 1);
    assert_int_equal(fwrite(header, n, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    set_config(PEFT "\"target_modules\":[\"q_proj\"]}");
    FAILS(LN_EINVALID, "lora_A.weight: is empty: DeepSpeed ZeRO-3", ln_adapter_file_open(&a, dir, err));
}

static int make_dir(void **state) {
    char path[300];
    (void)state;
    if (!mkdtemp(dir)) return 1;
    path_of(path, "adapter_model.safetensors");
    return symlink(GOLDEN "peft-default/adapter_model.safetensors", path);
}

static int remove_dir(void **state) {
    char path[300];
    (void)state;
    path_of(path, "adapter_model.safetensors");
    (void)unlink(path);
    path_of(path, "adapter_config.json");
    (void)unlink(path);
    ln_str_free(&logged);
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(absent_modules_are_named),
                                       cmocka_unit_test(modules_that_are_left_out),
                                       cmocka_unit_test(empty_tensors_are_named)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
