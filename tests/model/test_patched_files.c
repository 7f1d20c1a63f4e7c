/* Checkpoints of models with experts and recurrent layers that differ from a golden model in a few bytes:
 * each is rejected, when it is opened or when its weights are loaded, and the message names the tensor. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"

#include <linnet.h>

#include <string.h>
#include <unistd.h>

#define MXFP4  "gpt_oss-mxfp4-bf16"
#define DENSE  "qwen3_5_text-last-linear-bf16"
#define SHARED "qwen3_5_moe_text-bias-bf16"

/* A text of the header, and what takes its place, as long; NULL: the last byte of the tensor becomes 255. */
typedef struct patch {
    const char *model, *from, *to, *says;
    ln_status status;
} patch;
static const patch patches[] = {
    {MXFP4, "layers.0.mlp.experts.down_proj_scales", NULL,
     "layers.0.mlp.experts.down_proj_scales: expected scales up to 254, found 255", LN_ENUMERIC},
    {MXFP4, "layers.1.mlp.experts.gate_up_proj_scales", NULL,
     "layers.1.mlp.experts.gate_up_proj_scales: expected scales up to 254, found 255", LN_ENUMERIC},
    {MXFP4, "layers.0.mlp.experts.down_proj_scales", "layers.0.mlp.experts.down_proj_scalez",
     "layers.0.mlp.experts.down_proj_scales is missing", LN_EINVALID},
    {MXFP4, "[6,32,2,16]", "[6,2,32,16]", "layers.0.mlp.experts.down_proj_blocks: expected [6, 32, 2, 16]",
     LN_EINVALID},
    {DENSE, "[96,1,4]", "[96,2,2]",
     "layers.0.linear_attn.conv1d.weight: expected [96, 1, 4] or [96, 4, 1], found [96, 2, 2]", LN_EINVALID},
    {DENSE, "[96,1,4]", "[4,1,96]",
     "layers.0.linear_attn.conv1d.weight: expected [96, 1, 4] or [96, 4, 1], found [4, 1, 96]", LN_EINVALID},
    {DENSE, "layers.0.linear_attn.A_log", "layers.0.linear_attn.A_lo9",
     "layers.0.linear_attn.A_log is missing", LN_EINVALID},
    {SHARED, "layers.1.mlp.shared_expert_gate.weight", "layers.1.mlp.shared_expert_gate.weighs",
     "layers.1.mlp.shared_expert_gate.weight is missing", LN_EINVALID},
    {SHARED, "layers.2.mlp.experts.6.up_proj.weight", "layers.2.mlp.experts.9.up_proj.weight",
     "layers.2.mlp.experts.6.up_proj.weight is missing", LN_EINVALID},
};

static void put_file(const char *name, const char *bytes, size_t n) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", test_dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}
static ln_str file_of(const char *model, const char *name) {
    char path[600];
    ln_str bytes = {0};
    (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/families/%s/%s", model, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) ln_str_add(&bytes, block, n);
    (void)fclose(f);
    return bytes;
}

/* The byte after the end of the tensor whose entry in the header begins at `entry`. */
static size_t end_of(const char *file, const char *entry) {
    uint64_t head;
    long long from, to;
    const char *at = strstr(entry, "\"data_offsets\":[");
    memcpy(&head, file, sizeof head);
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"data_offsets\":[%lld,%lld]", &from, &to), 2);
    return 8 + (size_t)head + (size_t)to;
}
static void write_patched(const patch *p) {
    static const char *const others[] = {"config.json", "tokenizer.json"};
    ln_str file = file_of(p->model, "model.safetensors");
    char *entry = memmem(file.data + 8, file.len - 8, p->from, strlen(p->from));
    assert_non_null(entry);
    if (p->to) memcpy(entry, p->to, strlen(p->from));
    else file.data[end_of(file.data, entry) - 1] = (char)255;
    put_file("model.safetensors", file.data, file.len);
    ln_str_free(&file);
    for (size_t i = 0; i < LN_COUNT(others); i++) {
        ln_str other = file_of(p->model, others[i]);
        put_file(others[i], other.data, other.len);
        ln_str_free(&other);
    }
}

static ln_status run_it(ln_error *why) {
    const ln_options o = {.size = sizeof o, .n_ctx = 64, .n_threads = 1};
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_status st = ln_model_open(&m, test_dir, &o, why);
    if (st == LN_OK) st = ln_engine_open(&e, m, &o, why);
    ln_engine_close(&e);
    ln_model_close(&m);
    return st;
}

static void each_names_its_tensor(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(patches); i++) {
        ln_error why = {0};
        write_patched(&patches[i]);
        const ln_status st = run_it(&why);
        if (st != patches[i].status || !strstr(why.message, patches[i].says))
            fail_msg("%zu: expected status %d and %s, found %d: %s", i, patches[i].status, patches[i].says,
                     st, st ? why.message : "no error");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_names_its_tensor)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
