/* What holds for the four first families holds for every golden model of the others. A row has the same bits
 * in one chunk or many, on one thread or more, alone or among other texts, after a reused prefix, and after
 * keys and values that came from a file, in both numerics modes and quantised at load. What `quantize` writes
 * computes what quantising at load does. Scores and embeddings are those of the reference. Tokens that are
 * computed ahead change no bit. */
/* run: slow cuda */
#include "family_models.h"
#include "engine/kv_file.h"

static char top[100];
static int make_folder(void **state) {
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/linnet-families-XXXXXX");
    return mkdtemp(top) ? 0 : 1;
}
static int remove_folder(void **state) {
    char command[140];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

/* What is being compared, for messages. */
static char context[300];

static float *rows_for(const family_model *f) { return calloc((size_t)(f->T * f->V), sizeof(float)); }

/* Computes logits of the rows of a sequence that it does not have yet, up to row n, in chunks of the pattern,
 * which repeats. */
static void rest(ln_eng *e, ln_seq *s, const int32_t *ids, int64_t n, const int *chunks, size_t n_chunks,
                 int64_t V, float *out) {
    for (size_t i = 0; s->n < n; i++) {
        const int64_t at = s->n, k = LN_MIN(chunks[i % n_chunks], n - at);
        const ln_batch_item item = {s, ids + at, k, LN_LOGITS_ALL};
        OK(ln_eng_step(e, &item, 1, err));
        for (int64_t r = 0; r < k; r++) OK(ln_run_logits(e->run, r, out + (at + r) * V, err));
    }
}

static void same(const float *want, const float *got, int64_t from, int64_t to, int64_t V, const char *what) {
    for (int64_t i = from * V; i < to * V; i++)
        if (ln_f32_bits(want[i]) != ln_f32_bits(got[i]))
            fail_msg("%s, %s: logit %lld of row %lld is %.9g, alone in one chunk %.9g", context, what,
                     (long long)(i % V), (long long)(i / V), (double)got[i], (double)want[i]);
}

/* Logits of all rows of the model's text in one chunk, on one thread. */
static float *whole(const family_model *f, ln_package *m, ln_device device, ln_numerics numerics) {
    static const int one[] = {FAMILY_MOST};
    float *out = rows_for(f);
    ln_eng *e = family_engine(m, device, numerics, 1, 1);
    ln_seq *s = test_seq(e, f->T, f->T);
    rest(e, s, f->ids, f->T, one, 1, f->V, out);
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    return out;
}

static void check_chunks(const family_model *f, ln_package *m, ln_numerics numerics, const float *want) {
    static const int patterns[][4] = {{1, 1, 1, 1}, {7, 7, 7, 7}, {1, 13, 2, 16}};
    float *got = rows_for(f);
    for (size_t i = 0; i < LN_COUNT(patterns); i++) {
        ln_eng *e = family_engine(m, LN_DEVICE_AUTO, numerics, 2, 1);
        ln_seq *s = test_seq(e, f->T, f->T);
        rest(e, s, f->ids, f->T, patterns[i], 4, f->V, got);
        same(want, got, 0, f->T, f->V, "in chunks");
        ln_seq_close(e, &s);
        ln_eng_close(&e);
    }
    free(got);
}

/* Three other texts, of other lengths and in other chunks, in the same steps. They begin and end while the
 * compared one goes on. */
static void check_crowd(const family_model *f, ln_package *m, ln_numerics numerics, const float *want) {
    enum { OTHERS = 3 };
    static const int64_t lengths[OTHERS] = {9, 23, 41}, sizes[OTHERS + 1] = {2, 5, 3, 4};
    float *got = rows_for(f);
    ln_eng *e = family_engine(m, LN_DEVICE_AUTO, numerics, 2, OTHERS + 1);
    ln_seq *mine = test_seq(e, f->T, f->T), *other[OTHERS] = {0};
    for (int turn = 0; mine->n < f->T; turn++) {
        ln_batch_item items[OTHERS + 1];
        const int64_t k = LN_MIN(turn % 3 ? 1 : sizes[OTHERS], f->T - mine->n), at = mine->n;
        int n = 0, row = 0; /* of the compared text, which is after the first of the others */
        for (int q = 0; q < OTHERS; q++) {
            if (!other[q]) other[q] = test_seq(e, lengths[q], lengths[q]);
            const int64_t rows = LN_MIN(sizes[q], lengths[q] - other[q]->n);
            if ((turn + q) % 3)
                items[n++] = (ln_batch_item){other[q], f->ids + (7 * q + turn) % 10, rows, LN_LOGITS_LAST};
            if (q == 0) row = n, items[n++] = (ln_batch_item){mine, f->ids + at, k, LN_LOGITS_ALL};
        }
        OK(ln_eng_step(e, items, n, err));
        for (int64_t r = 0; r < k; r++) OK(ln_run_logits(e->run, row + r, got + (at + r) * f->V, err));
        for (int q = 0; q < OTHERS; q++)
            if (other[q]->n == lengths[q]) ln_seq_close(e, &other[q]);
    }
    same(want, got, 0, f->T, f->V, "among others");
    for (int q = 0; q < OTHERS; q++)
        if (other[q]) ln_seq_close(e, &other[q]);
    ln_seq_close(e, &mine);
    ln_eng_close(&e);
    free(got);
}

/* A text whose prompt has n_prompt tokens, on a fresh engine and after the whole text was computed. */
static void check_prefix(const family_model *f, ln_package *m, ln_numerics numerics) {
    static const int chunks[] = {16};
    static const int64_t prompts[] = {59, 48, 33, 20};
    float *want = rows_for(f), *got = rows_for(f);
    for (size_t i = 0; i < LN_COUNT(prompts); i++) {
        const int64_t n_prompt = prompts[i];
        ln_eng *fresh = family_engine(m, LN_DEVICE_AUTO, numerics, 2, 1),
               *used = family_engine(m, LN_DEVICE_AUTO, numerics, 2, 2);
        ln_seq *s = test_prompt(used, f->ids, f->T, f->T);
        rest(used, s, f->ids, f->T, chunks, 1, f->V, got);
        ln_seq_close(used, &s);
        s = test_seq(fresh, n_prompt, f->T);
        rest(fresh, s, f->ids, f->T, chunks, 1, f->V, want);
        ln_seq_close(fresh, &s);
        s = test_prompt(used, f->ids, n_prompt, f->T);
        const int64_t kept = s->n_cached;
        const bool alike = ln_spec_rope_length(&m->spec, f->T) == ln_spec_rope_length(&m->spec, n_prompt);
        const bool no_state = m->spec.n_recur && strcmp(s->cache_miss_reason, "state") == 0;
        if (no_state ? kept != 0 : alike != (kept == n_prompt - 1))
            fail_msg("%s: of a prompt of %lld tokens %lld were reused", context, (long long)n_prompt,
                     (long long)kept);
        rest(used, s, f->ids, f->T, chunks, 1, f->V, got);
        same(want, got, kept, f->T, f->V, "after a reused prefix");
        ln_seq_close(used, &s);
        ln_eng_close(&used);
        ln_eng_close(&fresh);
    }
    free(want), free(got);
}

static void check_kv_file(const family_model *f, ln_package *m, ln_numerics numerics, const float *want) {
    static const int chunks[] = {11};
    char path[120];
    size_t saved, loaded;
    float *got = rows_for(f);
    const int64_t n = 45;
    ln_eng *a = family_engine(m, LN_DEVICE_AUTO, numerics, 2, 1),
           *b = family_engine(m, LN_DEVICE_AUTO, numerics, 2, 2);
    (void)snprintf(path, sizeof path, "%s/kv.safetensors", top);
    ln_seq *s = test_prompt(a, f->ids, f->T, f->T);
    rest(a, s, f->ids, n, chunks, 1, f->V, got);
    ln_seq_close(a, &s);
    OK(ln_eng_seq_save(a, f->ids, (size_t)n, path, &saved, err));
    OK(ln_eng_seq_load(b, path, &loaded, err));
    assert_int_equal(saved, n);
    assert_int_equal(loaded, n);
    s = test_prompt(b, f->ids, f->T, f->T);
    const int64_t kept = s->n_cached;
    if (kept != n)
        fail_msg("%s: %lld of %lld rows of a file were used", context, (long long)kept, (long long)n);
    rest(b, s, f->ids, f->T, chunks, 1, f->V, got);
    same(want, got, kept, f->T, f->V, "after a file of keys and values");
    ln_seq_close(b, &s);
    ln_eng_close(&a);
    ln_eng_close(&b);
    assert_int_equal(unlink(path), 0);
    free(got);
}

static void check_bits(const family_model *f, ln_package *m, ln_numerics numerics, const char *what) {
    if (ln_run_numerics(&m->spec, numerics) != numerics) return; /* dense f32: always exact */
    (void)snprintf(context, sizeof context, "%s, %s, %s", f->name, what,
                   numerics == LN_EXACT ? "exact" : "fast");
    float *want = whole(f, m, LN_DEVICE_AUTO, numerics);
    check_chunks(f, m, numerics, want);
    check_crowd(f, m, numerics, want);
    check_prefix(f, m, numerics);
    check_kv_file(f, m, numerics, want);
    free(want);
}
static void bits(family_model *f) {
    check_bits(f, f->m, LN_EXACT, "as stored");
    check_bits(f, f->m, LN_FAST, "as stored");
}
static void rows_have_the_same_bits(void **state) {
    (void)state;
    each_family(bits, false);
}

/* The model that `quantize` writes has the bits of the one that is quantised at load. */
static void quantised(family_model *f) {
    if (ln_weights_are_quantised(&f->m->weights)) return;
    const ln_groups code = {4, 32}; /* at load groups have 64 columns, which these models do not have */
    ln_quantize_options o = ln_quantize_options_default();
    ln_package *at_load, *written;
    char path[120];
    (void)snprintf(path, sizeof path, "%s/q", top);
    /* of a table of inputs by layer the file's rows are read, and `quantize` writes it as mlx-lm does */
    static const ln_quantize_override table = {.name = "embed_tokens_per_layer", .bits = 16};
    o.bits = code.bits, o.group = code.group, o.force = true, o.n_threads = 2;
    if (f->m->spec.per_layer) o.overrides = &table, o.n_overrides = 1;
    OK(ln_package_open(&at_load, f->path, &(ln_options){0}, err));
    OK(ln_weights_encode(&at_load->weights, &at_load->spec, code, err));
    ln_error why = {0};
    const ln_status st = ln_quantize(f->path, path, &o, NULL, NULL, &why);
    if (st != LN_OK) fail_msg("%s: %s", f->name, why.message);
    OK(ln_package_open(&written, path, &(ln_options){0}, err));
    assert_int_equal(written->weights.code.bits, 4);
    if (strstr(f->name, "gpt_oss")) /* mlx-lm's name of it, which is another one than other families have */
        assert_non_null(ln_tensors_find(&written->tensors, "model.layers.0.mlp.experts.down_proj.weight"));
    for (int way = 0; way < 2; way++) {
        const ln_numerics numerics = way ? LN_FAST : LN_EXACT;
        check_bits(f, at_load, numerics, "quantised at load");
        float *want = whole(f, at_load, LN_DEVICE_AUTO, numerics),
              *got = whole(f, written, LN_DEVICE_AUTO, numerics);
        (void)snprintf(context, sizeof context, "%s, quantised", f->name);
        same(want, got, 0, f->T, f->V, "as quantize writes it");
        free(want), free(got);
    }
    ln_package_close(&at_load);
    ln_package_close(&written);
}
static void what_is_written_is_what_is_loaded(void **state) {
    (void)state;
    each_family(quantised, false);
}

/* ---- tokens that are computed ahead ---- */

/* What a request generates after the beginning of the model's text, twice; all tokens but eight are excluded,
 * so that the answer repeats itself. */
static void generate(ln_eng *e, const family_model *f, double temperature, ln_result *out) {
    enum { BEGINNING = 20, GENERATED = 30, KEPT = 8 };
    int32_t ids[2 * BEGINNING];
    ln_logit_bias bias[KEPT];
    ln_req *r;
    const ln_sampling how = {.size = sizeof how,
                             .n_max = GENERATED,
                             .temperature = temperature,
                             .top_p = 1,
                             .repeat_penalty = 1.1,
                             .repeat_last = 8,
                             .bias = bias,
                             .n_bias = KEPT,
                             .has_seed = true,
                             .ignore_eos = true};
    for (int i = 0; i < 2 * BEGINNING; i++) ids[i] = f->ids[i % BEGINNING];
    for (int i = 0; i < KEPT; i++) bias[i] = (ln_logit_bias){f->ids[i], 60 + (float)i};
    const ln_req_options o = {.ids = ids, .n_ids = 2 * BEGINNING, .how = &how, .logprobs = true, .n_top = 2};
    OK(ln_req_new(&r, e, &o, err));
    OK(ln_req_wait(r, err));
    OK(ln_req_result(r, out, err));
    ln_req_free(&r);
}

static int64_t n_proposed, n_accepted;
static void ahead(family_model *f) {
    for (int way = 0; way < 4; way++) {
        const ln_numerics numerics = way % 2 ? LN_FAST : LN_EXACT;
        ln_result want, got;
        if (ln_run_numerics(&f->m->spec, numerics) != numerics) continue;
        ln_run_options o = test_options(f->m, LN_DEVICE_AUTO, 2, 64, 1);
        o.numerics = numerics, o.n_ctx = o.n_prefault = FAMILY_MOST;
        ln_eng *plain, *e;
        OK(ln_eng_open_with(&plain, f->m, &o, err));
        o.n_lookup = 6, o.n_logits = 7;
        OK(ln_eng_open_with(&e, f->m, &o, err));
        generate(plain, f, way / 2, &want);
        generate(e, f, way / 2, &got);
        assert_int_equal(got.n_ids, want.n_ids);
        for (size_t i = 0; i < got.n_ids; i++)
            if (got.ids[i] != want.ids[i] || memcmp(&got.logprobs[i], &want.logprobs[i], sizeof(double)) != 0)
                fail_msg("%s: token %zu is %d (%.17g), without lookup %d (%.17g)", f->name, i, got.ids[i],
                         got.logprobs[i], want.ids[i], want.logprobs[i]);
        n_proposed += got.metrics.proposed_tokens;
        n_accepted += got.metrics.accepted_tokens;
        ln_result_free(&want), ln_result_free(&got);
        ln_eng_close(&plain);
        ln_eng_close(&e);
    }
}
static void tokens_computed_ahead_are_the_same(void **state) {
    (void)state;
    n_proposed = n_accepted = 0;
    each_family(ahead, false);
    print_message("%lld tokens proposed, %lld accepted\n", (long long)n_proposed, (long long)n_accepted);
    assert_true(n_accepted > 0 && n_proposed > n_accepted);
}

/* ---- scores and embeddings ---- */

typedef struct scoring {
    const family_model *f;
    int64_t next; /* recorded row */
    double worst;
} scoring;

static double log_probability(const ln_tensor *logits, int64_t row, int32_t id) {
    const int64_t V = logits->dims[1];
    double sum = 0, most = -INFINITY;
    for (int64_t i = 0; i < V; i++) most = fmax(most, (double)family_float(logits, row * V + i));
    for (int64_t i = 0; i < V; i++) sum += exp((double)family_float(logits, row * V + i) - most);
    return (double)family_float(logits, row * V + id) - most - log(sum);
}

/* Recorded row r predicts the token after it. */
static ln_status score_row(void *user, int64_t t, double logprob, const ln_top *all, size_t n_top,
                           const float *logits, int64_t n_vocab, ln_error *err) {
    scoring *s = user;
    const ln_tensor *rows = family_tensor(&s->f->golden, "logit_rows"),
                    *want = family_tensor(&s->f->golden, "logits");
    (void)all, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    int32_t row;
    while (s->next < rows->dims[0] && (memcpy(&row, rows->data + 4 * s->next, 4), row + 1 < t)) s->next++;
    if (s->next == rows->dims[0] || row + 1 != t) return LN_OK;
    s->worst = fmax(s->worst, fabs(logprob - log_probability(want, s->next, s->f->ids[t])));
    s->next++;
    return LN_OK;
}

/* A log-probability moves by at most twice as much as the logits, of which each may be off by 2e-4. */
static void scores(family_model *f) {
    scoring s = {.f = f};
    ln_eng *e = family_engine(f->m, LN_DEVICE_AUTO, LN_EXACT, 2, 1);
    OK(ln_eng_score(e, f->ids, (size_t)f->T, 0, score_row, &s, NULL, err));
    ln_eng_close(&e);
    if (!(s.worst <= 4e-4) || s.next < 10)
        fail_msg("%s: a log-probability is off by %g, after %lld rows", f->name, s.worst, (long long)s.next);
}

static ln_status keep_values(void *user, const ln_embedding *x, ln_error *err) {
    (void)err;
    assert_int_equal(x->status, LN_OK);
    memcpy(user, x->values, (size_t)x->n_values * sizeof(float));
    return LN_OK;
}

/* The mean of the last hidden states, divided by its length. */
static void embeddings(family_model *f) {
    const ln_tensor *mean = family_tensor(&f->adapted, "mean");
    const int64_t D = mean->dims[0];
    const ln_options o = {.size = sizeof o, .n_threads = 2, .numerics = LN_EXACT};
    const ln_prompt p = {.size = sizeof p, .ids = f->ids, .n_ids = (size_t)f->T};
    ln_embed_options how = ln_embed_options_default();
    ln_model *m;
    ln_engine *e;
    float *got = calloc((size_t)D, sizeof *got);
    double norm = 0, worst = 0;
    how.pooling = LN_POOLING_MEAN;
    OK(ln_model_open(&m, f->path, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_embed(e, &p, 1, &how, keep_values, got, NULL, err));
    for (int64_t i = 0; i < D; i++) norm += (double)family_float(mean, i) * (double)family_float(mean, i);
    norm = sqrt(norm);
    for (int64_t i = 0; i < D; i++)
        worst = fmax(worst, fabs((double)got[i] - (double)family_float(mean, i) / norm));
    if (!(worst <= 2e-5)) fail_msg("%s: an embedding is off by %g", f->name, worst);
    ln_engine_close(&e);
    ln_model_close(&m);
    free(got);
}
static void scores_and_embeddings_are_those_of_the_reference(void **state) {
    (void)state;
    each_family(scores, false);
    each_family(embeddings, true);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_have_the_same_bits),
                                       cmocka_unit_test(what_is_written_is_what_is_loaded),
                                       cmocka_unit_test(tokens_computed_ahead_are_the_same),
                                       cmocka_unit_test(scores_and_embeddings_are_those_of_the_reference)};
    return cmocka_run_group_tests_name("families", tests, make_folder, remove_folder);
}
