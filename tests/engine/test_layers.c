/* A model whose layers differ (mixed_layers.h) through everything that an engine does with layers: steps in
 * chunks, pages of several groups, prefixes, files of keys and values, classes, inspected keys, plans, and
 * training. */
/* run: quick */
#include "mixed_layers.h"

#include "engine/classify.h"
#include "engine/kv_file.h"
#include "engine/memory_plan.h"
#include "run/train_program.h"

#include <unistd.h>

static mixed model;
static int32_t ids[MIXED_ROWS];
static double *want; /* [MIXED_ROWS, V] */

static int open_all(void **state) {
    (void)state;
    mixed_open(&model);
    for (int i = 0; i < MIXED_ROWS; i++) ids[i] = (int32_t)((i * 53 + i * i) % model.V);
    want = mixed_logits(&model, ids, MIXED_ROWS);
    return 0;
}
static int close_all(void **state) {
    (void)state;
    free(want);
    mixed_close(&model);
    return 0;
}

static ln_run_options options_of(ln_device device, int chunk, int page_len) {
    ln_run_options o = test_options(model.m, device, 2, chunk, 2);
    o.page_len = page_len;
    o.n_logits = o.n_chunk;
    return o;
}

/* Runs tokens first .. MIXED_ROWS - 1 of the text through a sequence that has those before; all logits. */
static void run_rest(ln_eng *e, ln_seq *s, float *out) {
    while (s->n < MIXED_ROWS) {
        const int64_t at = s->n, n = LN_MIN((int64_t)e->run->opt.n_chunk, MIXED_ROWS - at);
        const ln_batch_item item = {s, ids + at, n, LN_LOGITS_ALL};
        OK(ln_eng_step(e, &item, 1, err));
        for (int64_t r = 0; r < n; r++) OK(ln_run_logits(e->run, r, out + (at + r) * model.V, err));
    }
}
static float *logits_of(const ln_run_options *o) {
    ln_eng *e;
    float *out = malloc((size_t)(MIXED_ROWS * model.V) * sizeof *out);
    OK(ln_eng_open_with(&e, model.m, o, err));
    ln_seq *s = test_seq(e, MIXED_ROWS, MIXED_ROWS);
    run_rest(e, s, out);
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    return out;
}

/* The groups that follow from the layers, and pages that no two layers share a byte of. */
static void groups_follow_from_the_layers(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
    ln_eng *e;
    OK(ln_eng_open_with(&e, model.m, &o, err));
    const ln_state_pool *p = &e->run->kv;
    assert_int_equal(p->n_groups, 3);
    const int group[MIXED_L] = {0, 1, 2, 0, 1, 0};
    for (int l = 0; l < MIXED_L; l++) {
        const int from = model.m->spec.layers[l].state_from;
        assert_int_equal(p->group[l], group[l]);
        assert_true(p->page_in_block[l] == p->page_in_block[from] &&
                    p->layer_in_page[l] == p->layer_in_page[from]);
        const ln_state_group *g = &p->groups[group[l]];
        assert_true(g->n_kv_heads == ln_attn_of(&model.m->spec, l)->K &&
                    g->head_dim == ln_attn_of(&model.m->spec, l)->E &&
                    g->v_dim == ln_attn_of(&model.m->spec, l)->Ev);
        assert_true((p->layer_in_page[l] + 1) * g->layer_bytes <= p->page_bytes &&
                    p->page_in_block[l] < g->pages_per_block);
        for (int k = 0; k < l; k++)
            assert_true(p->group[k] != group[l] || model.m->spec.layers[k].state_from == from ||
                        p->page_in_block[k] != p->page_in_block[l] ||
                        p->layer_in_page[k] != p->layer_in_page[l]);
    }
    assert_true(p->groups[0].n_layers == 2 && p->groups[1].n_layers == 1 && p->groups[2].n_layers == 1);
    assert_true(p->groups[0].window == 0 && p->groups[1].window == 5 && p->groups[2].window == 11);
    ln_eng_close(&e);
}

/* The reference device in double computes what the plain loops do; in float it differs by rounding alone. */
static void logits_are_those_of_plain_loops(void **state) {
    (void)state;
    double worst[2] = {0}, most = 0;
    for (int k = 0; k < 2; k++) {
        ln_run_options o = options_of(LN_DEVICE_REF, 16, 32);
        if (k == 0) o.ops = &ln_device_ref_double;
        float *got = logits_of(&o);
        for (int64_t i = 0; i < MIXED_ROWS * model.V; i++) {
            worst[k] = fmax(worst[k], fabs((double)got[i] - want[i]));
            most = fmax(most, fabs(want[i]));
        }
        free(got);
    }
    print_message("  logits up to %g: off by %g in double, by %g in float\n", most, worst[0], worst[1]);
    assert_true(worst[0] <= most * 0x1p-23); /* read as f32 */
    assert_true(worst[1] <= most * 0x1p-23 * 100);
}

/* The same bits whatever the device's ISA level, the chunks and the pages. */
static void bits_are_those_of_the_reference(void **state) {
    (void)state;
    static const char *const levels[] = {"plain", "avx2", "avx512", "amx", "neon"};
    static const int chunks[] = {1, 7, 16, 64}, pages[] = {32, 32, 64, 32};
    ln_run_options ref = options_of(LN_DEVICE_REF, 16, 32);
    float *x = logits_of(&ref);
    for (size_t k = 0; k < LN_COUNT(levels); k++) {
        setenv("LINNET_CPU", levels[k], 1);
        ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
        ln_eng *e;
        const bool here = ln_eng_open_with(&e, model.m, &o, NULL) == LN_OK;
        if (here) ln_eng_close(&e);
        assert_true(here || k > 0);
        for (size_t i = 0; here && i < LN_COUNT(chunks); i++) {
            o = options_of(LN_DEVICE_CPU, chunks[i], pages[i]);
            float *y = logits_of(&o);
            if (memcmp(x, y, (size_t)(MIXED_ROWS * model.V) * sizeof *x) != 0)
                fail_msg("%s, chunks of %d, pages of %d: other bits than the reference device's", levels[k],
                         chunks[i], pages[i]);
            free(y);
        }
    }
    unsetenv("LINNET_CPU");
    free(x);
}

/* Fast numerics: the same bits however the text is cut and pages are long; off by the rounding of keys,
 * values and products to bf16. */
static void fast_bits_do_not_depend_on_chunks(void **state) {
    (void)state;
    static const int chunks[] = {64, 1, 7, 16}, pages[] = {32, 32, 64, 32};
    double off = 0, most = 0;
    float *first = NULL;
    for (size_t i = 0; i < LN_COUNT(chunks); i++) {
        ln_run_options o = options_of(LN_DEVICE_CPU, chunks[i], pages[i]);
        o.numerics = LN_FAST;
        float *y = logits_of(&o);
        if (i == 0) first = y;
        assert_memory_equal(first, y, (size_t)(MIXED_ROWS * model.V) * sizeof *y);
        if (i > 0) free(y);
    }
    for (int64_t i = 0; i < MIXED_ROWS * model.V; i++) {
        off = fmax(off, fabs((double)first[i] - want[i]));
        most = fmax(most, fabs(want[i]));
    }
    print_message("  logits up to %g: off by %g in bf16\n", most, off);
    assert_true(off <= most * MIXED_L * 0x1p-8 * 4); /* each layer rounds q, k, v and softmax weights */
    free(first);
}

/* A prompt that begins like an earlier one, with pages of all groups, whole blocks and a part of one; and
 * from a file. */
static void prefixes_are_reused(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
    float *x = logits_of(&o), *y = malloc((size_t)(MIXED_ROWS * model.V) * sizeof *y);
    char path[] = "/tmp/linnet-layers-XXXXXX";
    close(mkstemp(path));
    for (int from_file = 0; from_file < 2; from_file++) {
        ln_eng *e;
        size_t n;
        OK(ln_eng_open_with(&e, model.m, &o, err));
        if (from_file) {
            OK(ln_eng_seq_load(e, path, &n, err));
            assert_int_equal(n, 41);
        } else {
            ln_seq *first = test_prompt(e, ids, 41, 41);
            const ln_batch_item items[3] = {{first, ids, 16, LN_LOGITS_NONE},
                                            {first, ids + 16, 16, LN_LOGITS_NONE},
                                            {first, ids + 32, 9, LN_LOGITS_NONE}};
            for (int i = 0; i < 3; i++) OK(ln_eng_step(e, &items[i], 1, err));
            ln_seq_close(e, &first);
            OK(ln_eng_seq_save(e, ids, 41, path, &n, err));
            assert_int_equal(n, 41);
        }
        ln_seq *s = test_prompt(e, ids, MIXED_ROWS, MIXED_ROWS);
        assert_int_equal(s->n_cached, 41);
        run_rest(e, s, y);
        ln_seq_close(e, &s);
        ln_eng_close(&e);
        assert_memory_equal(x + 41 * model.V, y + 41 * model.V,
                            (size_t)((MIXED_ROWS - 41) * model.V) * sizeof *x);
    }
    unlink(path);
    free(x), free(y);
}

/* The last page of each group has zeros beyond a sequence's tokens. */
static void nothing_beyond(ln_eng *e, const ln_seq *s) {
    const ln_state_pool *p = &e->run->kv;
    const int64_t b = s->n / p->page_len, n = s->n % p->page_len;
    float values[4 * 36 * 32];
    for (int l = 0; n > 0 && l < MIXED_L; l++) {
        const ln_state_group *g = &p->groups[p->group[l]];
        const int32_t page = s->tables[p->group[l]][b * g->pages_per_block + p->page_in_block[l]];
        assert_true(page >= 0);
        OK(ln_run_read_page(e->run, l, page, NULL, values, err));
        for (int64_t i = 0; i < g->n_kv_heads * p->page_len * g->v_dim; i++)
            assert_true(i / g->v_dim % p->page_len < n || values[i] == 0);
    }
}

/* Steps of which some rows are not accepted: the text goes on as if they had never been computed, and nothing
 * of them is registered for reuse. Rejected rows end in the same block, in the next one, and behind a window.
 */
static void rejected_rows_leave_nothing(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 40, 32);
    float *x = logits_of(&o), *y = malloc((size_t)(MIXED_ROWS * model.V) * sizeof *y);
    static const int accepted[] = {1, 5, 0, 23, 2, 9, 33};
    ln_eng *e;
    OK(ln_eng_open_with(&e, model.m, &o, err));
    ln_seq *s = test_prompt(e, ids, MIXED_ROWS, MIXED_ROWS + 40);
    int32_t wrong[40];
    for (size_t i = 0; i < LN_COUNT(accepted); i++) {
        const int64_t at = s->n, n = accepted[i] + 7;
        for (int64_t k = 0; k < n; k++)
            wrong[k] = k < accepted[i] ? ids[at + k] : (int32_t)((at * 7 + k) % model.V);
        const ln_batch_item item = {s, wrong, n, LN_LOGITS_ALL};
        OK(ln_eng_run(e, &item, 1, err));
        for (int64_t r = 0; r < accepted[i]; r++) OK(ln_run_logits(e->run, r, y + (at + r) * model.V, err));
        FAILS(LN_EINTERNAL, "accepted", ln_eng_commit(e, &item, n + 1, err));
        OK(ln_eng_commit(e, &item, accepted[i], err));
        assert_int_equal(s->n, at + accepted[i]);
        nothing_beyond(e, s);
    }
    run_rest(e, s, y);
    assert_memory_equal(x, y, (size_t)(MIXED_ROWS * model.V) * sizeof *x);
    ln_seq_close(e, &s);
    int32_t other[MIXED_ROWS];
    memcpy(other, ids, sizeof other);
    for (int i = 6; i < MIXED_ROWS; i++)
        other[i] = (int32_t)((1 * 7 + i - 1) % model.V); /* as was rejected */
    s = test_prompt(e, other, MIXED_ROWS, MIXED_ROWS);
    assert_true(s->n_cached <= 6);
    ln_seq_close(e, &s);
    s = test_prompt(e, ids, MIXED_ROWS, MIXED_ROWS);
    assert_int_equal(s->n_cached, MIXED_ROWS - 1);
    run_rest(e, s, y);
    assert_memory_equal(x + (MIXED_ROWS - 1) * model.V, y + (MIXED_ROWS - 1) * model.V,
                        (size_t)model.V * sizeof *x);
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    free(x), free(y);
}

/* The keys of each layer, with its own heads and width; a layer that reads another one's shows those. */
typedef struct seen_keys {
    float *of[MIXED_L];
} seen_keys;
static ln_status on_keys(void *user, int l, const float *keys, int n_heads, int64_t n_tokens, int width,
                         ln_error *err) {
    seen_keys *s = user;
    const ln_attn_spec *a = ln_attn_of(&model.m->spec, l);
    const size_t bytes = (size_t)n_heads * (size_t)n_tokens * (size_t)width * sizeof *keys;
    (void)err;
    assert_true(n_heads == a->K && width == a->E && n_tokens == MIXED_ROWS);
    s->of[l] = malloc(bytes);
    memcpy(s->of[l], keys, bytes);
    if (model.m->spec.layers[l].state_from != l)
        assert_memory_equal(keys, s->of[model.m->spec.layers[l].state_from], bytes);
    return LN_OK;
}
static void keys_have_the_sizes_of_their_layers(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
    ln_eng *e;
    seen_keys s = {0};
    o.keep_full_kv = true;
    OK(ln_eng_open_with(&e, model.m, &o, err));
    OK(ln_eng_inspect_keys(e, ids, MIXED_ROWS, on_keys, &s, err));
    for (int l = 0; l < MIXED_L; l++) assert_non_null(s.of[l]), free(s.of[l]);
    ln_eng_close(&e);
}

static ln_status on_score(void *user, int64_t i, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t V, ln_error *err) {
    (void)top, (void)n_top, (void)logits, (void)V, (void)err;
    ((double *)user)[i] = logprob;
    return LN_OK;
}
/* The logarithm of the probability of token id after row r. */
static double naive_logprob(int64_t r, int32_t id) {
    double most = -1e300, sum = 0;
    for (int64_t i = 0; i < model.V; i++) most = fmax(most, want[r * model.V + i]);
    for (int64_t i = 0; i < model.V; i++) sum += exp(want[r * model.V + i] - most);
    return want[r * model.V + id] - most - log(sum);
}
static void scores_are_those_of_plain_loops(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
    ln_eng *e;
    double got[MIXED_ROWS] = {0};
    OK(ln_eng_open_with(&e, model.m, &o, err));
    OK(ln_eng_score(e, ids, MIXED_ROWS, 0, on_score, got, NULL, err));
    for (int i = 1; i < MIXED_ROWS; i++) assert_true(fabs(got[i] - naive_logprob(i - 1, ids[i])) < 1e-4);
    ln_eng_close(&e);
}

/* What the head reads is kept in steps with logits and in steps without. Its product, capped, is the
 * logits. */
static void hidden_states_are_the_operand_of_the_head(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
    const float *head = mixed_weight(&model, LN_W_HEAD, -1);
    float hidden[2][MIXED_D];
    for (int without = 0; without < 2; without++) {
        ln_eng *e;
        OK(ln_eng_open_with(&e, model.m, &o, err));
        ln_seq *s = test_seq(e, MIXED_ROWS, MIXED_ROWS);
        const ln_batch_item item = {s, ids, 16, LN_LOGITS_ALL};
        if (without) OK(ln_run_add_hidden(e->run, UINT64_MAX, err));
        OK((without ? ln_eng_step_headless : ln_eng_step)(e, &item, 1, err));
        OK(ln_run_hidden(e->run, 11, hidden[without], err));
        ln_seq_close(e, &s);
        ln_eng_close(&e);
    }
    assert_memory_equal(hidden[0], hidden[1], sizeof hidden[0]);
    for (int64_t v = 0; v < model.V; v++) {
        double logit = 0, cap = (double)model.m->spec.logit_softcap, by = (double)model.m->spec.logit_scale;
        for (int i = 0; i < MIXED_D; i++) logit += (double)head[v * MIXED_D + i] * (double)hidden[0][i];
        assert_true(fabs(cap * tanh(by * logit / cap) - want[11 * model.V + v]) < 1e-5);
    }
}

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    (void)err;
    assert_int_equal(c->status, LN_OK);
    *(int32_t *)user = c->token;
    return LN_OK;
}
static void classes_are_those_of_plain_loops(void **state) {
    (void)state;
    ln_run_options o = options_of(LN_DEVICE_CPU, 16, 32);
    ln_eng *e;
    ln_prompt prompt = {.size = sizeof prompt, .ids = ids, .n_ids = 50};
    const ln_classify_options how = {.size = sizeof how};
    int32_t got = -1, best = 0;
    for (int32_t i = 1; i < model.V; i++)
        if (want[49 * model.V + i] > want[49 * model.V + best]) best = i;
    OK(ln_eng_open_with(&e, model.m, &o, err));
    OK(ln_eng_classify(e, &prompt, 1, &how, on_class, &got, NULL, err));
    assert_int_equal(got, best);
    ln_eng_close(&e);
}

/* The plan has the pages of all groups, and an engine takes what it says. */
static void plans_count_all_groups(void **state) {
    (void)state;
    const ln_options opt = {.n_ctx = 128, .n_threads = 1, .device = LN_DEVICE_CPU, .n_chunk = 16};
    ln_plan plan = {.size = sizeof plan};
    ln_eng *e;
    OK(ln_eng_plan(model.m, &opt, &plan, err));
    OK(ln_eng_open(&e, model.m, &opt, err));
    const ln_state_pool *p = &e->run->kv;
    int64_t pages = 0;
    for (int c = 0; c < p->n_groups; c++) {
        const int64_t all = 128 / p->page_len, w = p->groups[c].window;
        pages += p->groups[c].pages_per_block * (w ? LN_MIN(all, (w + 14) / p->page_len + 2) : all);
    }
    assert_int_equal(plan.kv_bytes, (uint64_t)(pages * p->page_bytes));
    assert_int_equal(e->run->sizes.kv_bytes, plan.kv_bytes);
    ln_eng_close(&e);
}

/* The loss of training is that of the plain loops, and a step along the gradient lowers it as the gradient
 * says. */
static void training_has_the_loss_of_plain_loops(void **state) {
    (void)state;
    ln_train_options o = {.size = sizeof o, .n_recompute = 2};
    ln_train_program *p;
    ln_train_result before, after;
    int32_t targets[MIXED_ROWS];
    const int32_t row0[2] = {0, MIXED_ROWS};
    double nll = 0, norm2 = 0;
    size_t n;
    o.run = options_of(LN_DEVICE_CPU, MIXED_ROWS, 32);
    o.run.numerics = LN_EXACT;
    o.lora = (ln_lora){.rank = 2, .scale = 1, .dtype = LN_F32};
    for (int i = 0; i < 5; i++) o.lora.targets[(int[]){LN_W_Q, LN_W_K, LN_W_V, LN_W_O, LN_W_UP}[i]] = true;
    OK(ln_train_program_open(&p, &model.m->spec, &model.m->weights, model.m->weight_cache, &o, err));
    ln_train_param *params = ln_train_program_params(p, &n);
    assert_int_equal(n, 2 * (6 + 4 + 2 + 6 + 6)); /* two layers have no keys and values of their own,
                                                        two more none for values */
    OK(ln_train_program_init(p, 3, err));
    for (int i = 0; i < MIXED_ROWS; i++) targets[i] = i + 1 < MIXED_ROWS ? ids[i + 1] : -1;
    for (int i = 0; i + 1 < MIXED_ROWS; i++) nll -= naive_logprob(i, ids[i + 1]);
    const ln_train_batch b = {
        .n_rows = MIXED_ROWS, .n_seqs = 1, .ids = ids, .row0 = row0, .targets = targets};
    ln_train_clear(p);
    OK(ln_train_step(p, &b, &before, err));
    assert_true(fabs(before.loss - nll) < 1e-5 * nll);
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i].rows * params[i].cols; k++)
            norm2 += (double)params[i].grad[k] * (double)params[i].grad[k];
    const double by = 1e-2 / sqrt(norm2);
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i].rows * params[i].cols; k++)
            params[i].value[k] -= (float)by * params[i].grad[k];
    ln_train_values_changed(p);
    OK(ln_train_evaluate(p, &b, &after, err));
    const double expected = by * norm2, found = before.loss - after.loss;
    print_message("  loss %g; a step was to lower it by %g and did by %g\n", before.loss, expected, found);
    assert_true(fabs(found - expected) < 0.05 * expected);
    ln_train_program_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_follow_from_the_layers),
                                       cmocka_unit_test(logits_are_those_of_plain_loops),
                                       cmocka_unit_test(bits_are_those_of_the_reference),
                                       cmocka_unit_test(fast_bits_do_not_depend_on_chunks),
                                       cmocka_unit_test(prefixes_are_reused),
                                       cmocka_unit_test(rejected_rows_leave_nothing),
                                       cmocka_unit_test(keys_have_the_sizes_of_their_layers),
                                       cmocka_unit_test(scores_are_those_of_plain_loops),
                                       cmocka_unit_test(hidden_states_are_the_operand_of_the_head),
                                       cmocka_unit_test(classes_are_those_of_plain_loops),
                                       cmocka_unit_test(plans_count_all_groups),
                                       cmocka_unit_test(training_has_the_loss_of_plain_loops)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
