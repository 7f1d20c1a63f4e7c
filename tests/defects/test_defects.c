/* Old defects of models, steps and errors: B1 to B4, B6, B9 to B15 (defects.h). */
/* run: quick */
#include "defects.h"

#include <linnet.h>

#define GOLDEN LN_ROOT "/tests/golden/"
enum { MAX_ROWS = 100 };

typedef struct opened {
    ln_package *m;
    ln_tensors t;
    ln_eng *e;
    int32_t ids[MAX_ROWS];
    int64_t T, V;
} opened;

static float f32_at(const ln_tensor *t, int64_t i) {
    float f;
    memcpy(&f, t->data + 4 * i, 4);
    return f;
}
static const ln_tensor *want(const opened *o, const char *name) {
    const ln_tensor *t = ln_tensors_find(&o->t, name);
    if (!t) fail_msg("golden.safetensors lacks %s", name);
    return t;
}

/* Opens a golden model and an engine of `seqs` sequences on one thread, with pages of 32 positions. */
static opened open_model(const char *name, ln_numerics numerics, int seqs, bool keep_full_kv) {
    opened o = {0};
    char path[600];
    ln_options opt = {.size = sizeof(ln_options),
                      .n_threads = 1,
                      .n_chunk = MAX_ROWS,
                      .n_logits = MAX_ROWS,
                      .n_parallel = seqs,
                      .numerics = numerics,
                      .keep_full_kv = keep_full_kv,
                      .n_ctx = 128};
    ln_run_options r;
    (void)snprintf(path, sizeof path, GOLDEN "%s", name);
    OK(ln_package_open(&o.m, path, &opt, err));
    (void)snprintf(path, sizeof path, GOLDEN "%s/golden.safetensors", name);
    OK(ln_tensors_open_file(&o.t, path, err));
    o.T = want(&o, "ids")->dims[0];
    o.V = o.m->spec.V;
    memcpy(o.ids, want(&o, "ids")->data, (size_t)o.T * sizeof *o.ids);
    OK(ln_eng_options(o.m, &opt, &r, err));
    r.page_len = 32;
    OK(ln_eng_open_with(&o.e, o.m, &r, err));
    return o;
}
static void close_model(opened *o) {
    ln_eng_close(&o->e);
    ln_tensors_close(&o->t);
    ln_package_close(&o->m);
}

/* Returns the largest difference between a prompt's logits, computed in one chunk, and the golden ones;
 * *dev is the standard deviation of the golden ones. */
static double worst_logit(const opened *o, double *dev) {
    const ln_tensor *rows = want(o, "logit_rows"), *logits = want(o, "logits");
    double worst = 0, sum = 0, sum2 = 0, n = (double)(rows->dims[0] * o->V);
    float *row = calloc((size_t)o->V, sizeof *row);
    ln_seq *seq = test_seq(o->e, o->T, o->T);
    OK(ln_eng_step(o->e, &(ln_batch_item){seq, o->ids, o->T, LN_LOGITS_ALL}, 1, err));
    ln_seq_close(o->e, &seq);
    for (int64_t i = 0; i < rows->dims[0]; i++) {
        int32_t t;
        memcpy(&t, rows->data + 4 * i, 4);
        OK(ln_run_logits(o->e->run, t, row, err));
        for (int64_t v = 0; v < o->V; v++) {
            double ref = (double)f32_at(logits, i * o->V + v), d = (double)row[v] - ref;
            if (d != d) worst = 1e9;
            worst = LN_MAX(worst, d < 0 ? -d : d);
            sum += ref, sum2 += ref * ref;
        }
    }
    free(row);
    if (dev) *dev = sqrt(sum2 / n - sum / n * (sum / n));
    return worst;
}
static void as_golden(const char *name, bool keep_full_kv) {
    opened o = open_model(name, LN_EXACT, 1, keep_full_kv);
    double worst = worst_logit(&o, NULL);
    close_model(&o);
    if (worst > 2e-4) fail_msg("%s: logits off by %g", name, worst);
}

/* ---- B1: positions that a row of a long prompt attends to ---- */

static void b1_window_is_masked(void **s) { (void)s, as_golden("gemma3-text-bf16", true); }
/* The first rows of a chunk longer than the window still attend to all of their window. */
static void b1_chunk_longer_than_the_window(void **s) { (void)s, as_golden("gemma3-text-bf16", false); }

/* ---- B2, B3: sequences of different length in one step ---- */

/* Runs two sequences together in two steps: n[i] tokens, then `more` tokens of each. The logits of the
 * second step must be those of each sequence alone. */
static void beside(const char *name, const int64_t n[2], int64_t more) {
    enum { BYTES = 4 };
    for (int seq = 0; seq < 2; seq++) {
        opened both = open_model(name, LN_EXACT, 2, false), alone = open_model(name, LN_EXACT, 2, false);
        float *a = calloc((size_t)both.V, BYTES), *b = calloc((size_t)both.V, BYTES);
        const int32_t *ids[] = {both.ids, both.ids + 3};
        ln_batch_item first[2], next[2];
        for (int i = 0; i < 2; i++) {
            ln_seq *q = test_seq(both.e, n[i], n[i] + more);
            first[i] = (ln_batch_item){q, ids[i], n[i], LN_LOGITS_NONE};
            next[i] = (ln_batch_item){q, ids[i] + n[i], more, LN_LOGITS_ALL};
        }
        OK(ln_eng_step(both.e, first, 2, err));
        OK(ln_eng_step(both.e, next, 2, err));
        first[seq].seq = next[seq].seq = test_seq(alone.e, n[seq], n[seq] + more);
        OK(ln_eng_step(alone.e, &first[seq], 1, err));
        OK(ln_eng_step(alone.e, &next[seq], 1, err));
        for (int64_t i = 0; i < more; i++) {
            OK(ln_run_logits(both.e->run, seq * more + i, a, err));
            OK(ln_run_logits(alone.e->run, i, b, err));
            if (memcmp(a, b, (size_t)both.V * BYTES) != 0)
                fail_msg("%s: sequence %d: row %lld depends on its neighbour", name, seq, (long long)i);
        }
        free(a), free(b);
        close_model(&both), close_model(&alone);
    }
}
/* The long sequence has left its first window, the short one has not. */
static void b2_window_of_a_short_sequence(void **s) {
    (void)s, beside("gemma3-text-bf16", (const int64_t[]){70, 5}, 2);
}
static void b3_each_sequence_counts_its_own_positions(void **s) {
    (void)s, beside("qwen3-sharded-bf16", (const int64_t[]){20, 7}, 1);
}

/* ---- B4: operands of two types in attention ---- */

static void b4_bf16_keys_under_f32_scores(void **s) {
    (void)s;
    static const char *const names[] = {"qwen2-bf16", "llama-llama3-bf16"};
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        double dev;
        opened o = open_model(names[i], LN_FAST, 2, false);
        assert_int_equal(o.e->run->kv.groups[0].dtype, LN_BF16);
        double worst = worst_logit(&o, &dev);
        if (worst > 0.08 * dev) fail_msg("%s: logits off by %g of %g", names[i], worst, dev);
        close_model(&o);
    }
}

/* ---- B6, B9: stop tokens ---- */

static void no_ends(json_t *config) {
    json_object_del(config, "eos_token_id");
    json_object_del(config, "bos_token_id");
}
static void two_ends(json_t *config) {
    json_object_set_new(config, "eos_token_id", json_pack("[i,i]", 3, 4));
}

/* Returns how a generation of at most three tokens ends if `id` is by far the likeliest. */
static ln_finish end_with(ln_package *m, int32_t id) {
    ln_options opt = {.size = sizeof(ln_options), .n_threads = 1, .n_ctx = 64};
    ln_eng *e;
    ln_sampling how = {.size = sizeof how};
    ln_result out = {.size = sizeof out};
    ln_logit_bias bias = {id, 1000};
    const int32_t ids[] = {9, 8};
    OK(ln_eng_open(&e, m, &opt, err));
    ln_package_sampling(m, &how);
    how.temperature = 0, how.n_max = 3, how.bias = &bias, how.n_bias = 1;
    OK(ln_eng_generate(e, &(ln_prompt){.size = sizeof(ln_prompt), .ids = ids, .n_ids = 2}, &how, NULL, NULL,
                       &out, err));
    ln_finish f = out.finish;
    assert_int_equal(out.n_ids, f == LN_FINISH_STOP ? 0 : 3);
    ln_result_free(&out);
    ln_eng_close(&e);
    return f;
}

static void b6_no_end_is_not_id_zero(void **s) {
    (void)s;
    copied c = copy_of("qwen3-f16", no_ends);
    ln_options opt = {.size = sizeof(ln_options)};
    ln_package *m;
    OK(ln_package_open(&m, c.dir, &opt, err));
    copy_gone(&c);
    assert_int_equal(m->gen.n_eos, 0);
    assert_int_equal(end_with(m, 0), LN_FINISH_LENGTH);
    ln_package_close(&m);
}

/* config.json, generation_config.json and tokenizer_config.json each name stop ids: all of them stop a
 * text, and no other id does. */
static void b9_every_stop_id_stops(void **s) {
    (void)s;
    static const int32_t stops[] = {3, 4, 5, 6, 257};
    copied c = copy_of("qwen3-f16", two_ends);
    json_t *gen = json_pack("{s:[i,i]}", "eos_token_id", 5, 6),
           *tok = json_pack("{s:s}", "eos_token", "<eos>");
    ln_options opt = {.size = sizeof(ln_options)};
    ln_package *m;
    copied_put(&c, "generation_config.json", gen);
    copied_put(&c, "tokenizer_config.json", tok);
    json_decref(gen), json_decref(tok);
    OK(ln_package_open(&m, c.dir, &opt, err));
    copy_gone(&c);
    for (size_t i = 0; i < LN_COUNT(stops); i++)
        if (end_with(m, stops[i]) != LN_FINISH_STOP) fail_msg("id %d does not stop", stops[i]);
    assert_int_equal(end_with(m, 7), LN_FINISH_LENGTH);
    ln_package_close(&m);
}

/* ---- B10: keys of a configuration that concern attention ---- */

static void b10_rope_is_scaled(void **s) {
    (void)s, as_golden("llama-llama3-bf16", false), as_golden("llama-linear-f16", false);
}
static void b10_query_pre_attn_scalar(void **s) { (void)s, as_golden("gemma3-text-f32", false); }

static void cap_scores(json_t *config) {
    json_object_set_new(config, "attn_logit_softcapping", json_real(50));
}
static void cap_logits(json_t *config) {
    json_object_set_new(config, "final_logit_softcapping", json_real(30));
}
static void b10_soft_caps_are_refused(void **s) {
    (void)s;
    void (*const edits[])(json_t *) = {cap_scores, cap_logits};
    for (size_t i = 0; i < LN_COUNT(edits); i++) {
        copied c = copy_of("gemma3-text-f32", edits[i]);
        ln_options opt = {.size = sizeof(ln_options)};
        ln_package *m = NULL;
        FAILS(LN_EUNSUPPORTED, "softcapping", ln_package_open(&m, c.dir, &opt, err));
        copy_gone(&c);
    }
}

static void without_heads(json_t *config) {
    static const char *const fields[] = {"num_attention_heads", "num_key_value_heads", "head_dim"};
    for (size_t i = 0; i < LN_COUNT(fields); i++)
        json_object_del(json_object_get(config, "text_config"), fields[i]);
}
/* Gemma3-4B's file omits its numbers of heads: the defaults of the class apply. */
static void b10_heads_that_the_file_omits(void **s) {
    (void)s;
    copied c = copy_of("gemma3-nested-bf16", without_heads);
    ln_config config;
    ln_spec spec;
    OK(ln_config_open(&config, c.dir, err));
    OK(ln_spec_open(&spec, &config, err));
    assert_true(spec.attn[0].H == 8 && spec.attn[0].K == 4 && spec.attn[0].E == 256);
    ln_spec_close(&spec);
    ln_config_close(&config);
    copy_gone(&c);
}

/* ---- B11: values read back from the cache ---- */

static ln_status near_golden(void *user, int layer, const float *keys, int K, int64_t T, int E,
                             ln_error *err) {
    const opened *o = user;
    char name[32];
    double worst = 0, max = 0;
    (void)err;
    (void)snprintf(name, sizeof name, "keys.%d", layer);
    const ln_tensor *ref = want(o, name);
    for (int64_t i = 0; i < K * T * E; i++) {
        double r = (double)f32_at(ref, i), d = (double)keys[i] - r;
        worst = d == d ? LN_MAX(worst, d < 0 ? -d : d) : 1e9;
        max = LN_MAX(max, r < 0 ? -r : r);
    }
    if (worst > 0.05 * max) fail_msg("layer %d: keys off by %g of %g", layer, worst, max);
    return LN_OK;
}
static void b11_keys_are_read_in_their_type(void **s) {
    (void)s;
    static const ln_numerics both[] = {LN_FAST, LN_EXACT};
    for (size_t i = 0; i < LN_COUNT(both); i++) {
        opened o = open_model("qwen3-sharded-bf16", both[i], 1, true);
        OK(ln_eng_inspect_keys(o.e, o.ids, (size_t)o.T, near_golden, &o, err));
        close_model(&o);
    }
}

/* ---- B12, B13: errors ---- */

/* Overwrites the stack that a failed call has used. */
static void scribble(void) {
    volatile char junk[1 << 16];
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = 'x';
}
static void b12_a_message_is_kept(void **s) {
    (void)s;
    ln_model *m;
    ln_error first = {0}, second = {0};
    assert_int_equal(ln_model_open(&m, "/nowhere/one", NULL, &first), LN_EIO);
    assert_int_equal(ln_model_open(&m, "/nowhere/two", NULL, &second), LN_EIO);
    assert_non_null(strstr(first.message, "/nowhere/one"));
    assert_non_null(strstr(second.message, "/nowhere/two"));
    assert_int_equal(ln_model_open(&m, "/nowhere/three", NULL, NULL), LN_EIO);
    scribble();
    assert_int_equal(ln_last_error()->code, LN_EIO);
    assert_non_null(strstr(ln_last_error()->message, "/nowhere/three"));
}

static ln_status lost(ln_exec *exec, const ln_step_block *step, const ln_trace *trace, uint64_t *fence,
                      ln_error *err) {
    (void)exec, (void)step, (void)trace, (void)fence;
    return ln_fail(err, LN_EDEVICE, "the device was lost");
}
/* A device that fails: step, prefill and generation return its error, and no token counts as processed. */
static void b13_a_failed_run_is_an_error(void **s) {
    (void)s;
    opened o = open_model("qwen3-f16", LN_EXACT, 1, false);
    ln_device_ops broken = *o.e->run->ops;
    const ln_device_ops *whole = o.e->run->ops;
    ln_sampling how = {.size = sizeof how};
    ln_result out = {.size = sizeof out};
    broken.submit = lost;
    o.e->run->ops = &broken;
    ln_seq *seq = test_seq(o.e, 4, 4);
    FAILS(LN_EDEVICE, "lost", ln_eng_step(o.e, &(ln_batch_item){seq, o.ids, 4, LN_LOGITS_LAST}, 1, err));
    assert_int_equal(seq->n, 0);
    FAILS(LN_EDEVICE, "lost", ln_eng_prefill(o.e, seq, o.ids, 4, true, err));
    ln_seq_close(o.e, &seq);
    ln_package_sampling(o.m, &how);
    FAILS(LN_EDEVICE, "lost",
          ln_eng_generate(o.e, &(ln_prompt){.size = sizeof(ln_prompt), .ids = o.ids, .n_ids = 4}, &how, NULL,
                          NULL, &out, err));
    o.e->run->ops = whole;
    close_model(&o);
}
/* A device that fails while it applies entries of page tables between two steps: the next step returns its
 * error, and so does every later one. */
static void b13_a_failed_change_is_an_error(void **s) {
    (void)s;
    opened o = open_model("qwen3-f16", LN_EXACT, 1, false);
    ln_device_ops broken = *o.e->run->ops;
    const ln_device_ops *whole = o.e->run->ops;
    broken.submit = lost;
    ln_seq *seq = test_seq(o.e, 8, 8);
    const ln_batch_item item = {seq, o.ids, 4, LN_LOGITS_LAST};
    o.e->run->ops = &broken;
    o.e->run->cap_changes = 0; /* every change is applied at once */
    FAILS(LN_EDEVICE, "lost", ln_eng_step(o.e, &item, 1, err));
    o.e->run->ops = whole;
    FAILS(LN_EDEVICE, "lost", ln_eng_step(o.e, &item, 1, err));
    assert_int_equal(seq->n, 0);
    ln_seq_close(o.e, &seq);
    close_model(&o);
}
/* An op that cannot be built, in the middle of a graph: checking the graph names that op, whatever was
 * built on top of it. */
static void b13_a_failed_op_is_an_error(void **s) {
    (void)s;
    ln_graph g;
    ln_graph_open(&g);
    ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 24), 1, 0);
    ln_v y = ln_g_linear(&g, "y", x, ln_g_weight(&g, "narrow", LN_F32, 1, 24, 23), -1);
    ln_g_output(&g, ln_g_add(&g, "z", x, ln_g_silu(&g, "act", y)));
    FAILS(LN_EINTERNAL, "narrow", ln_graph_check(&g, "a test", err));
    ln_graph_close(&g);
}

/* ---- B14: penalties ---- */

static void b14_repeat_penalty_counts_the_prompt(void **s) {
    (void)s;
    opened o = open_model("qwen3-f16", LN_EXACT, 1, false);
    for (int in_prompt = 0; in_prompt < 2; in_prompt++) {
        const int32_t ids[] = {9, in_prompt ? 7 : 6, 8};
        ln_logit_bias bias = {7, 1000};
        ln_sampling how = {.size = sizeof how};
        ln_result out = {.size = sizeof out};
        ln_package_sampling(o.m, &how);
        how.temperature = 0, how.n_max = 1, how.bias = &bias, how.n_bias = 1, how.repeat_penalty = 1e6,
        how.repeat_last = -1, how.ignore_eos = true;
        OK(ln_eng_generate(o.e, &(ln_prompt){.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3}, &how, NULL,
                           NULL, &out, err));
        assert_int_equal(out.ids[0] == 7, !in_prompt);
        ln_result_free(&out);
    }
    close_model(&o);
}

/* ---- B15: use after close ---- */

static void b15_use_after_close_is_an_error(void **s) {
    (void)s;
    ln_model *m, *m2;
    ln_engine *e, *e2;
    ln_tokenizer *t, *t2;
    ln_info info = {.size = sizeof info};
    ln_sampling how = {.size = sizeof how};
    ln_result out = {.size = sizeof out};
    int32_t ids[4];
    size_t n;
    OK(ln_model_open(&m, GOLDEN "qwen3-f16", NULL, err));
    OK(ln_engine_open(&e, m, NULL, err));
    OK(ln_tokenizer_open(&t, GOLDEN "qwen3-f16", err));
    OK(ln_sampling_default(m, &how, err));
    m2 = m, e2 = e, t2 = t;
    ln_engine_close(&e);
    ln_model_close(&m);
    ln_tokenizer_close(&t);
    FAILS(LN_EUSAGE, "closed", ln_model_info(m2, &info, err));
    FAILS(LN_EUSAGE, "closed",
          ln_generate(e2, &(ln_prompt){.size = sizeof(ln_prompt), .text = "a", .text_bytes = 1}, &how, NULL,
                      NULL, &out, err));
    FAILS(LN_EUSAGE, "closed", ln_engine_open(&e, m2, NULL, err));
    FAILS(LN_EUSAGE, "closed", ln_tokenize(t2, "a", 1, true, ids, 4, &n, err));
    ln_engine_close(&e2); /* closing again has no effect */
    ln_model_close(&m2);
    ln_tokenizer_close(&t2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b1_window_is_masked),
        cmocka_unit_test(b1_chunk_longer_than_the_window),
        cmocka_unit_test(b2_window_of_a_short_sequence),
        cmocka_unit_test(b3_each_sequence_counts_its_own_positions),
        cmocka_unit_test(b4_bf16_keys_under_f32_scores),
        cmocka_unit_test(b6_no_end_is_not_id_zero),
        cmocka_unit_test(b9_every_stop_id_stops),
        cmocka_unit_test(b10_rope_is_scaled),
        cmocka_unit_test(b10_query_pre_attn_scalar),
        cmocka_unit_test(b10_soft_caps_are_refused),
        cmocka_unit_test(b10_heads_that_the_file_omits),
        cmocka_unit_test(b11_keys_are_read_in_their_type),
        cmocka_unit_test(b12_a_message_is_kept),
        cmocka_unit_test(b13_a_failed_run_is_an_error),
        cmocka_unit_test(b13_a_failed_change_is_an_error),
        cmocka_unit_test(b13_a_failed_op_is_an_error),
        cmocka_unit_test(b14_repeat_penalty_counts_the_prompt),
        cmocka_unit_test(b15_use_after_close_is_an_error),
    };
    RUN_DEFECTS(argc, argv, tests);
}
