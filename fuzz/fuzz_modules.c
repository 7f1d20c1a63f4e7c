/* Fuzzes the reader of the files of sentence-transformers. The input is modules.json and the configurations
 * of a Pooling, of the model, of the Transformer and of a Dense, separated by bytes 0xFF. Modules that are
 * returned follow one another in width, and every prompt can be looked up. */
#include "fuzz_dir.h"

#include "io/embedding_files.h"

static const char *const names[] = {"modules.json", "1_Pooling/config.json",
                                    "config_sentence_transformers.json", "sentence_bert_config.json",
                                    "2_Dense/config.json"};

static void fuzz_open(void) {
    static const ln_tensor_spec specs[] = {
        {.name = "linear.bias", .dtype = LN_ST_F32, .n_dims = 1, .dims = {4}},
        {.name = "linear.weight", .dtype = LN_ST_F32, .n_dims = 2, .dims = {4, 8}}};
    dir_open();
    dir_make("1_Pooling");
    dir_make("2_Dense");
    dir_put_tensors("2_Dense/model.safetensors", specs, 2);
}

static ln_status check(const ln_emb_files *f, ln_error *err) {
    int64_t n = 0;
    must(f->n_pooling >= 1 && f->n_pooling <= LN_EMB_MOST_WAYS && f->n_modules <= LN_EMB_MOST_MODULES);
    must(f->n_values > 0 && f->dimensions >= 0 && f->max_tokens >= 0);
    for (size_t i = 0; i < f->n_modules; i++) {
        const ln_emb_module *m = &f->modules[i];
        must(m->n_in > 0 && m->n_out > 0 && (i == 0 || m->n_in == n));
        n = m->n_out;
        must(m->kind == LN_EMB_NORMALIZE || m->weight != NULL);
    }
    must(f->n_modules == 0 || n == f->n_values);
    if (f->default_prompt) {
        const char *text;
        size_t bytes;
        LN_TRY(ln_emb_prompt(f, f->default_prompt, &text, &bytes, err));
        must(bytes == 0 || text != NULL);
    }
    ln_emb_files_warn(f);
    return LN_OK;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    static const ln_emb_model model = {.width = 8, .n_ctx = 64, .causal_head = true};
    ln_emb_files f;
    dir_put_parts(names, LN_COUNT(names), data, bytes);
    ln_status st = dir_status(ln_emb_files_open(&f, fuzz_dir, &model, err), err);
    if (st == LN_OK) st = check(&f, err);
    ln_emb_files_close(&f);
    return st;
}
