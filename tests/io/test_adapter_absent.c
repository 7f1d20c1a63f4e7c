/* Modules that an adapter's configuration names and of which its file has no tensors: they are listed and
 * warned about; excluded ones are not. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(absent_modules_are_named)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
