/* Same bits (batch invariance): a request gives the same logits in one chunk or many, on 1 thread or N,
 * alone or together with three others, with its prefix resident or not, on every ISA level. All logits of
 * all rows are compared, in both numerics modes.
 *
 * The model of random weights is made here: C = 700 columns are more than 3 KC blocks of any matrix
 * product, 1,100 positions are more than 4 attention splits, T runs from 1 to 33 and more, the window is
 * shorter than the text, and a page is 32 positions. */
/* run: slow */
#include "../common.h"
#include "device/cpu/cpu.h"

#include <sys/stat.h>
#include <unistd.h>

#define T_ALL 1100
#define VOCAB 97

static char dir[256];
static ln_package *model;
static int32_t ids[T_ALL];
static int64_t n_rows = T_ALL, V = VOCAB; /* rows and vocabulary of the model under test */

static bool noisy; /* the first fifth of each gate's rows is noise: its exponents do not fit the dictionary
                      of compressed bf16 */

/* Writes a gemma3_text model of hidden size D and feed-forward size F: windows, two RoPE bases, all norms. */
static void make_model(int D, int F) {
    enum { L = 3, H = 3, K = 1, E = 20 };
    const struct {
        const char *name;
        int d0, d1, layers;
    } w[] = {{"model.embed_tokens.weight", VOCAB, D, 0},
             {"model.norm.weight", D, 0, 0},
             {"input_layernorm.weight", D, 0, 1},
             {"self_attn.q_proj.weight", H * E, D, 1},
             {"self_attn.k_proj.weight", K * E, D, 1},
             {"self_attn.v_proj.weight", K * E, D, 1},
             {"self_attn.o_proj.weight", D, H * E, 1},
             {"self_attn.q_norm.weight", E, 0, 1},
             {"self_attn.k_norm.weight", E, 0, 1},
             {"post_attention_layernorm.weight", D, 0, 1},
             {"pre_feedforward_layernorm.weight", D, 0, 1},
             {"post_feedforward_layernorm.weight", D, 0, 1},
             {"mlp.gate_proj.weight", F, D, 1},
             {"mlp.up_proj.weight", F, D, 1},
             {"mlp.down_proj.weight", D, F, 1}};
    ln_tensor_spec specs[64];
    char names[64][96];
    size_t n = 0;
    for (int l = -1; l < L; l++)
        for (size_t i = 0; i < LN_COUNT(w); i++) {
            if ((l >= 0) != (w[i].layers != 0)) continue;
            if (l < 0) snprintf(names[n], sizeof names[n], "%s", w[i].name);
            else snprintf(names[n], sizeof names[n], "model.layers.%d.%s", l, w[i].name);
            specs[n] = (ln_tensor_spec){names[n], LN_ST_BF16, w[i].d1 ? 2 : 1, {w[i].d0, w[i].d1}};
            n++;
        }
    snprintf(dir, sizeof dir, "/tmp/linnet-same-bits-XXXXXX");
    assert_non_null(mkdtemp(dir));
    char path[400];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ln_out o;
    ln_str head = {0};
    OK(ln_tensors_header(&head, specs, n, err));
    OK(ln_out_open(&o, path, false, err));
    OK(ln_out_write(&o, head.data, head.len, err));
    ln_str_free(&head);
    uint64_t seed = 7;
    for (size_t i = 0; i < n; i++) {
        int64_t count = specs[i].dims[0] * (specs[i].n_dims > 1 ? specs[i].dims[1] : 1);
        for (int64_t k = 0; k < count; k++) {
            uint16_t h = ln_f32_bf16(0.08f * test_normal(&seed));
            if (noisy && strstr(specs[i].name, "gate_proj") && k / specs[i].dims[1] < specs[i].dims[0] / 5)
                h = (uint16_t)(test_random(&seed) & 0xbfff); /* absolute value below 2 */
            OK(ln_out_write(&o, &h, 2, err));
        }
    }
    OK(ln_out_commit(&o, err));
    char config[800];
    snprintf(config, sizeof config,
             "{\"model_type\":\"gemma3_text\",\"hidden_size\":%d,\"num_hidden_layers\":3,\"intermediate_"
             "size\":%d,\"num_attention_heads\":3,"
             "\"num_key_value_heads\":1,\"head_dim\":20,\"vocab_size\":97,\"rms_norm_eps\":1e-6,\"rope_"
             "theta\":1000000.0,\"rope_local_base_freq\":10000.0,"
             "\"sliding_window\":100,\"sliding_window_pattern\":3,\"query_pre_attn_scalar\":24,\"max_"
             "position_embeddings\":2048,"
             "\"hidden_activation\":\"gelu_pytorch_tanh\",\"torch_dtype\":\"bfloat16\",\"eos_token_id\":96}",
             D, F);
    snprintf(path, sizeof path, "%s/config.json", dir);
    OK(ln_out_open(&o, path, false, err));
    OK(ln_out_write(&o, config, strlen(config), err));
    OK(ln_out_commit(&o, err));
    ln_str tok = {0};
    ln_str_adds(&tok, "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
                      "\"post_processor\":null,\"decoder\":null,"
                      "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < VOCAB; i++) ln_str_addf(&tok, "%s\"t%d\":%d", i ? "," : "", i, i);
    ln_str_adds(&tok, "},\"merges\":[]}}");
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    OK(ln_out_open(&o, path, false, err));
    OK(ln_out_write(&o, tok.data, tok.len, err));
    OK(ln_out_commit(&o, err));
    ln_str_free(&tok);
}

static int setup(void **s) {
    (void)s;
    uint64_t seed = 11;
    make_model(700, 330);
    n_rows = fewer(n_rows, 150); /* longer than the window */
    for (int i = 0; i < T_ALL; i++) ids[i] = (int32_t)(test_random(&seed) % VOCAB);
    ln_options o = {0};
    OK(ln_package_open(&model, dir, &o, err));
    return 0;
}
static int remove_model(void) {
    char cmd[400];
    static const char *const files[] = {"model.safetensors", "config.json", "tokenizer.json"};
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        snprintf(cmd, sizeof cmd, "%s/%s", dir, files[i]);
        unlink(cmd);
    }
    return rmdir(dir);
}
static int teardown(void **s) {
    (void)s;
    ln_package_close(&model);
    return remove_model();
}

static bool q8; /* keys and values of 8 bits */

static ln_eng *engine(ln_numerics numerics, int threads, int chunk, int seqs) {
    ln_run_options r = test_options(model, LN_DEVICE_AUTO, threads, chunk, seqs);
    ln_eng *e;
    r.numerics = numerics;
    r.kv_q8 = q8;
    r.n_ctx = 1200;
    r.n_chunk = LN_MAX(chunk, seqs);
    r.page_len = V == VOCAB ? 32 : r.page_len;
    r.n_logits = r.n_chunk;
    OK(ln_eng_open_with(&e, model, &r, err));
    return e;
}

/* Computes the logits of ids[s->n..n), which follow a sequence, in chunks; chunk sizes vary cyclically when
 * `ragged`. */
static void rest_logits(ln_eng *e, ln_seq *s, int64_t n, int chunk, bool ragged, float *out) {
    for (int64_t i = 1; s->n < n; i++) {
        const int64_t at = s->n, k = LN_MIN(n - at, ragged ? LN_MIN(1 + i % 33, chunk) : chunk);
        ln_batch_item f = {s, ids + at, k, LN_LOGITS_ALL};
        OK(ln_eng_step(e, &f, 1, err));
        for (int64_t r = 0; r < k; r++) OK(ln_run_logits(e->run, r, out + (at + r) * V, err));
    }
}
/* Computes all logits of ids[0..n), reusing nothing. */
static void all_logits(ln_eng *e, int64_t n, int chunk, bool ragged, float *out) {
    ln_seq *s = test_seq(e, n, n);
    rest_logits(e, s, n, chunk, ragged, out);
    ln_seq_close(e, &s);
}

static void same(const float *a, const float *b, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (ln_f32_bits(a[i]) != ln_f32_bits(b[i]))
            fail_msg("%s: logit %lld of row %lld differs: %.9g and %.9g", what, (long long)(i % V),
                     (long long)(i / V), (double)a[i], (double)b[i]);
}

static void check_numerics(ln_numerics numerics) {
    const int chunks[] = {64, 7, 16, 1, (int)n_rows}, threads[] = {2, 3, 1};
    float *want = calloc((size_t)(n_rows * V), sizeof(float)),
          *got = calloc((size_t)(n_rows * V), sizeof(float));
    ln_eng *e = engine(numerics, 1, (int)n_rows, 1);
    all_logits(e, n_rows, (int)n_rows, false, want);
    ln_eng_close(&e);
    for (size_t t = 0; t < (size_t)fewer(LN_COUNT(threads), 1); t++)
        for (size_t c = 0; c < (size_t)fewer(LN_COUNT(chunks), 2); c++) {
            char what[64];
            snprintf(what, sizeof what, "%d threads, chunk %d", threads[t], chunks[c]);
            e = engine(numerics, threads[t], chunks[c], 1);
            memset(got, 0, (size_t)(n_rows * V) * sizeof(float));
            all_logits(e, n_rows, chunks[c], false, got);
            same(want, got, n_rows * V, what);
            if (chunks[c] == 64) {
                all_logits(e, n_rows, 64, true, got);
                same(want, got, n_rows * V, "chunks of 1 to 33 rows");
            }
            ln_eng_close(&e);
        }
    free(want);
    free(got);
}
static void test_chunks_threads_exact(void **s) { (void)s, check_numerics(LN_EXACT); }
static void test_chunks_threads_fast(void **s) { (void)s, check_numerics(LN_FAST); }
/* Keys and values of 8 bits: other logits than with bf16, and the same bits in chunks and among others. */
static void check_crowd(ln_numerics numerics, int threads);
static void test_q8(void **s) {
    (void)s;
    float *of[2] = {calloc((size_t)(n_rows * V), sizeof(float)), calloc((size_t)(n_rows * V), sizeof(float))};
    for (int i = 0; i < 2; i++) {
        q8 = i;
        ln_eng *e = engine(LN_FAST, 2, 64, 1);
        all_logits(e, n_rows, 64, false, of[i]);
        ln_eng_close(&e);
    }
    assert_true(memcmp(of[0], of[1], (size_t)(n_rows * V) * sizeof(float)) != 0);
    check_numerics(LN_FAST);
    check_numerics(LN_EXACT);
    check_crowd(LN_FAST, 2);
    q8 = false;
    free(of[0]), free(of[1]);
}

/* Four sequences of different lengths in every step; the third one is compared. */
static void check_crowd(ln_numerics numerics, int threads) {
    const int64_t N = LN_MIN(600, n_rows);
    float *want = calloc((size_t)(N * V), sizeof(float)), *got = calloc((size_t)(N * V), sizeof(float));
    ln_eng *e = engine(numerics, threads, 128, 4);
    all_logits(e, N, 32, false, want);
    ln_seq *seqs[4];
    for (int q = 0; q < 4; q++) seqs[q] = test_seq(e, n_rows, n_rows);
    int64_t at[4] = {0};
    static const int64_t step[4] = {1, 37, 9, 20};
    for (int turn = 0; at[2] < N; turn++) {
        ln_batch_item f[4];
        int n = 0;
        int64_t before = 0, mine = -1;
        for (int q = 3; q >= 0; q--) { /* other sequences come before and after it, and leave now and then */
            if (q != 2 && (turn + q) % 5 == 0) {
                ln_seq_close(e, &seqs[q]);
                seqs[q] = test_seq(e, n_rows, n_rows);
                at[q] = 0;
            }
            if (q != 2 && (turn + q) % 3 == 0) continue;
            int64_t k = LN_MIN(step[(q + turn) % 4], (q == 2 ? N : n_rows) - at[q]);
            if (k < 1) continue;
            f[n++] = (ln_batch_item){seqs[q],
                                     q == 2 ? ids + at[q] : ids + (at[q] + 211 * (q + 1)) % (n_rows - 100), k,
                                     LN_LOGITS_ALL}; /* texts different from the compared one */
            if (q == 2) mine = before;
            before += k;
        }
        OK(ln_eng_step(e, f, n, err));
        for (int64_t r = 0; mine >= 0 && r < seqs[2]->n - at[2]; r++)
            OK(ln_run_logits(e->run, mine + r, got + (at[2] + r) * V, err));
        for (int q = 0; q < 4; q++) at[q] = seqs[q]->n;
    }
    same(want, got, N * V, "beside three others");
    ln_eng_close(&e);
    free(want);
    free(got);
}
static void test_crowd(void **s) {
    (void)s;
    for (int threads = 1; threads <= 3; threads += (int)fewer(1, 2))
        check_crowd(LN_EXACT, threads), check_crowd(LN_FAST, threads);
}

/* A reused prefix gives the bits of a fresh start, wherever it ends. */
static void test_prefix(void **state) {
    (void)state;
    enum { N = 500 };
    float *want = calloc(N * VOCAB, sizeof(float)), *got = calloc(N * VOCAB, sizeof(float));
    ln_eng *e = engine(LN_EXACT, 2, 64, 2); /* its pool holds all of it */
    ln_seq *first = test_prompt(e, ids, N, N);
    rest_logits(e, first, N, 64, false, want);
    ln_seq_close(e, &first);
    static const int64_t cuts[] = {499, 450, 70, 480, 64};
    for (size_t i = 0; i < LN_COUNT(cuts); i++) {
        ln_seq *s = test_prompt(e, ids, cuts[i] + 1, N);
        const int64_t kept = s->n_cached;
        assert_int_equal(kept, cuts[i]);
        rest_logits(e, s, N, 64, false, got);
        same(want + kept * VOCAB, got + kept * VOCAB, (N - kept) * VOCAB, "after a kept prefix");
        ln_seq_close(e, &s);
    }
    ln_eng_close(&e);
    free(want);
    free(got);
}

/* Writes NaN as every key and value of every position of every page. Bytes of a page that belong to no
 * position keep their values. */
static void poison_pages(ln_eng *e) {
    ln_run *r = e->run;
    const size_t n = (size_t)(r->kv.groups[0].n_kv_heads * r->kv.groups[0].head_dim * r->kv.page_len);
    float *nans = malloc(n * sizeof *nans);
    for (size_t i = 0; i < n; i++) nans[i] = NAN;
    for (int64_t page = 0; page < r->sizes.n_pages; page++)
        for (int layer = 0; layer < r->spec->L; layer++) /* some share a part of the page */
            OK(ln_run_write_page(r, layer, page, nans, nans, err));
    free(nans);
}
/* Earlier contents of pages have no effect: pages that one step fills are not zeroed, pages that a step
 * fills in part are; pages that a step had taken when it failed are given back. */
static void check_used_pages(ln_numerics numerics) {
    enum { N = 150 };
    float *want = calloc(N * VOCAB, sizeof(float)), *got = calloc(N * VOCAB, sizeof(float));
    ln_eng *e = engine(numerics, 2, 100, 2);
    all_logits(e, N, 100, false, want);
    for (int chunk = 100; chunk > 0;
         chunk = chunk / 3) { /* 100, 33, 11, 3, 1: pages are filled in one step, or in several */
        poison_pages(e);
        all_logits(e, N, chunk, false, got);
        same(want, got, N * VOCAB, "in used pages");
    }
    poison_pages(e);
    ln_seq *s[2] = {test_seq(e, N, N), test_seq(e, 9, 9)};
    const ln_batch_item both[] = {{s[0], ids, 70, LN_LOGITS_NONE}, {s[1], ids, 10, LN_LOGITS_NONE}};
    FAILS(LN_EINTERNAL, "was admitted for 9", ln_eng_step(e, both, 2, err));
    assert_int_equal(ln_kv_count(e->kv).n_free, ln_kv_count(e->kv).n_pages);
    ln_seq_close(e, &s[0]);
    ln_seq_close(e, &s[1]);
    all_logits(e, N, 3, false, got);
    same(want, got, N * VOCAB, "after a step that failed");
    ln_eng_close(&e);
    free(want);
    free(got);
}
static void test_used_pages(void **s) {
    (void)s;
    check_used_pages(LN_EXACT);
    check_used_pages(LN_FAST);
}

static void device_logits(ln_device device, ln_numerics numerics, int64_t n, float *out) {
    ln_run_options r = test_options(model, device, 1, 64, 1);
    r.numerics = numerics;
    r.page_len = 32, r.n_logits = 64;
    ln_eng *e;
    OK(ln_eng_open_with(&e, model, &r, err));
    all_logits(e, n, 64, false, out);
    ln_eng_close(&e);
}

typedef struct distance {
    double rms, most;
} distance;
static distance distance_of(const float *a, const float *b, int64_t n) {
    distance d = {0};
    for (int64_t i = 0; i < n; i++) {
        double x = fabs((double)a[i] - (double)b[i]);
        assert_true(x == x);
        d.rms += x * x / (double)n;
        d.most = LN_MAX(d.most, x);
    }
    d.rms = sqrt(d.rms);
    return d;
}

/* The ISA levels of this machine and the reference device agree to the bit. AMX, whose products have a
 * summation order of their own, is compared by error with the rounding to bf16 (reference in fast against
 * reference in exact): its rms is at most twice, its maximum at most three times that. In exact, in which a
 * sum is rounded to f32 and values are not rounded to bf16, both bounds are multiplied by 2^-15 * sqrt(700):
 * one rounding for each of the 700 additions of a sum, whose errors grow with the square root of their
 * number. */
static void test_isa_levels(void **s) {
    (void)s;
    const int64_t N = fewer(300, 120);
    float *want[2], *got = calloc((size_t)N * VOCAB, sizeof(float));
    for (int fast = 0; fast < 2; fast++) {
        want[fast] = calloc((size_t)N * VOCAB, sizeof(float));
        device_logits(LN_DEVICE_REF, fast ? LN_FAST : LN_EXACT, N, want[fast]);
    }
    for (int fast = 0; fast < 2; fast++)
        for (ln_isa isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++) {
            const char *name = ln_cpu_isa_name(isa);
            if (!ln_cpu_isa_here(isa)) {
                print_message("SKIP: this machine has no %s\n", name);
                continue;
            }
            setenv("LINNET_CPU", name, 1);
            ln_eng *e = engine(fast ? LN_FAST : LN_EXACT, 2, 64, 1);
            all_logits(e, N, 64, false, got);
            ln_eng_close(&e);
            if (strcmp(name, "amx")) {
                same(want[fast], got, N * VOCAB, name);
                continue;
            }
            distance d = distance_of(got, want[0], N * VOCAB),
                     round = distance_of(want[1], want[0], N * VOCAB);
            double scale = fast ? 1 : 0x1p-15 * sqrt(700);
            print_message("amx, %s: rms %.3g, most %.3g of what rounding to bf16 does\n",
                          fast ? "fast" : "exact", d.rms / round.rms, d.most / round.most);
            assert_true(d.rms <= 2 * scale * round.rms && d.most <= 3 * scale * round.most);
        }
    unsetenv("LINNET_CPU");
    free(want[0]), free(want[1]), free(got);
}

/* The weights take the bytes that the plan said. If bf16 matrices are compressed, they take at most that and
 * at least 90 % of it, and at least a tenth less than in the file; the bound is no tighter as some matrices
 * have few columns. */
static void check_bytes(const ln_run *run) {
    const uint64_t planned = run->sizes.weights_bytes, held = run->resident->bytes,
                   dense = (uint64_t)model->weights.bytes;
    if (!model->weights.code.bits)
        assert_true(held <= planned && held > planned - planned / 10 && held < dense - dense / 10);
    else assert_int_equal(planned, held);
}

/* Engines of both numerics modes of one model at once, opened in either order: each has the logits that it
 * has alone, whatever the layout of its weights. */
static void check_together(void) {
    enum { N = 100 };
    float *want[2], *got = calloc(N * VOCAB, sizeof(float));
    for (int fast = 0; fast < 2; fast++) {
        want[fast] = calloc(N * VOCAB, sizeof(float));
        ln_eng *e = engine(fast ? LN_FAST : LN_EXACT, 2, 64, 1);
        all_logits(e, N, 64, false, want[fast]);
        ln_eng_close(&e);
    }
    for (int first = 0; first < 2; first++) {
        ln_eng *e[2];
        for (int i = 0; i < 2; i++) e[i] = engine(i == first ? LN_FAST : LN_EXACT, 2, 64, 1);
        const ln_run *run = e[0]->run;
        const bool apart = run->info.layout_uses & LN_USE_BFP && model->weights.code.bits;
        assert_true(run->dev == e[1]->run->dev && run->dev == run->resident->dev); /* one open device */
        assert_true((run->resident != e[1]->run->resident) == apart);
        if (strcmp(run->info.isa, "plain")) /* on other ISA levels all weights are packed or copied */
            for (int i = 0; i < 2; i++) check_bytes(e[i]->run);
        for (int i = 0; i < 2; i++) {
            all_logits(e[i], N, 64, false, got);
            same(want[i == first], got, N * VOCAB, i == first ? "fast, beside exact" : "exact, beside fast");
            ln_eng_close(&e[i]); /* the other engine does not need its weights */
        }
    }
    for (int fast = 0; fast < 2; fast++) { /* what a plan adds for an engine when another one is already
                                              open */
        ln_eng *e = engine(LN_EXACT, 2, 64, 1);
        ln_plan plan;
        const ln_options o = {.n_threads = 2, .numerics = fast ? LN_FAST : LN_EXACT};
        OK(ln_eng_plan(model, &o, &plan, err));
        const bool made = fast && e->run->info.layout_uses & LN_USE_BFP && model->weights.code.bits;
        assert_int_equal(plan.peak_bytes, (made ? plan.weights_bytes : 0) + plan.kv_bytes +
                                              plan.activation_bytes + plan.text_bytes + plan.other_bytes);
        ln_eng_close(&e);
    }
    free(want[0]), free(want[1]), free(got);
}

static void test_together(void **s) {
    (void)s;
    char dense_dir[sizeof dir];
    ln_package *dense = model;
    check_together();
    memcpy(dense_dir, dir, sizeof dir);
    make_model(704, 320);
    for (int bits = 4; bits <= 8; bits += 4) {
        ln_options o = {.quantize_bits = bits};
        OK(ln_package_open(&model, dir, &o, err));
        check_together();
        ln_package_close(&model);
    }
    assert_int_equal(remove_model(), 0);
    memcpy(dir, dense_dir, sizeof dir);
    model = dense;
}

/* The same with weights in affine groups: 11 groups of 64 columns (three blocks of the kernel), and 60
 * columns of o_proj that stay dense. */
static void test_quantised(void **s) {
    (void)s;
    char dense_dir[sizeof dir];
    ln_package *dense = model;
    memcpy(dense_dir, dir, sizeof dir);
    make_model(704, 320);
    for (int bits = 4; bits <= 8; bits += 4) {
        ln_options o = {.quantize_bits = bits};
        OK(ln_package_open(&model, dir, &o, err));
        assert_int_equal(model->weights.code.bits, bits);
        if (bits == 4)
            check_numerics(LN_EXACT), check_crowd(LN_EXACT, 2), fewer(1, 0) ? test_prefix(NULL) : (void)0;
        else check_crowd(LN_FAST, 3);
        if (bits == 4 || fewer(1, 0)) test_isa_levels(NULL);
        ln_package_close(&model);
    }
    assert_int_equal(remove_model(), 0);
    memcpy(dir, dense_dir, sizeof dir);
    model = dense;
}

/* Matrices so large that threads split the outputs of a row into chunks (exec.c), with work stealing. */
static void test_pieces(void **s) {
    (void)s;
    char small_dir[sizeof dir];
    ln_package *small = model;
    const int64_t rows = n_rows;
    memcpy(small_dir, dir, sizeof dir);
    make_model(1024, 2080);
    n_rows = 20;
    for (int bits = 0; bits <= 8; bits += 8) {
        ln_options o = {.quantize_bits = bits};
        OK(ln_package_open(&model, dir, &o, err));
        check_numerics(LN_FAST);
        ln_package_close(&model);
    }
    assert_int_equal(remove_model(), 0);
    memcpy(dir, small_dir, sizeof dir);
    model = small, n_rows = rows;
}

/* Weight rows that differ from all others, in rows of which the plan takes no samples (bf12.h): more memory
 * is taken than planned, which is logged, and the logits have the same bits. */
static void test_beyond_plan(void **s) {
    (void)s;
    char small_dir[sizeof dir];
    ln_package *small = model;
    const int64_t rows = n_rows;
    float *want = calloc(20 * VOCAB, sizeof(float)), *got = calloc(20 * VOCAB, sizeof(float));
    const ln_options o = {0};
    memcpy(small_dir, dir, sizeof dir);
    noisy = true;
    make_model(1024, 2080);
    noisy = false;
    n_rows = 20;
    OK(ln_package_open(&model, dir, &o, err));
    ln_eng *e = engine(LN_EXACT, 2, 20, 1);
    if (!strcmp(e->run->info.isa, "plain"))
        print_message("SKIP: weights are never tight on the plain ISA level\n");
    else
        assert_true(e->run->resident->bytes > e->run->sizes.weights_bytes && e->run->resident->warned &&
                    e->run->resident->bytes < (uint64_t)model->weights.bytes);
    all_logits(e, 20, 7, false, got);
    const bool own = !strcmp(e->run->info.isa, "amx");
    ln_eng_close(&e);
    setenv("LINNET_CPU", "plain", 1);
    e = engine(LN_EXACT, 2, 20, 1);
    unsetenv("LINNET_CPU");
    all_logits(e, 20, 7, false, want);
    ln_eng_close(&e);
    if (!own) same(want, got, 20 * VOCAB, "with noise");
    ln_package_close(&model);
    assert_int_equal(remove_model(), 0);
    memcpy(dir, small_dir, sizeof dir);
    model = small, n_rows = rows;
    free(want), free(got);
}

/* The same on a real shape: LN_SAME_BITS_MODEL names a directory (bench/shape.py makes some). It takes
 * minutes. */
static void test_real_shape(void **s) {
    (void)s;
    const char *path = getenv("LN_SAME_BITS_MODEL");
    if (!path) {
        print_message("SKIP: LN_SAME_BITS_MODEL names no model in a real shape\n");
        skip();
    }
    ln_package *small = model;
    ln_options o = {0};
    uint64_t seed = 5;
    OK(ln_package_open(&model, path, &o, err));
    n_rows = 300, V = model->spec.V;
    for (int64_t i = 0; i < n_rows; i++) ids[i] = (int32_t)(test_random(&seed) % (uint32_t)V);
    check_numerics(LN_EXACT);
    check_numerics(LN_FAST);
    check_crowd(LN_EXACT, 2);
    check_crowd(LN_FAST, 2);
    ln_package_close(&model);
    model = small;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks_threads_exact),
                                       cmocka_unit_test(test_q8),
                                       cmocka_unit_test(test_chunks_threads_fast),
                                       cmocka_unit_test(test_crowd),
                                       cmocka_unit_test(test_prefix),
                                       cmocka_unit_test(test_used_pages),
                                       cmocka_unit_test(test_together),
                                       cmocka_unit_test(test_isa_levels),
                                       cmocka_unit_test(test_quantised),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_beyond_plan),
                                       cmocka_unit_test(test_real_shape)};
    if (getenv("LN_TEST"))
        cmocka_set_test_filter(getenv("LN_TEST")); /* runs a single test: used by
                                                      tools/check_amx */
    return cmocka_run_group_tests(tests, setup, teardown);
}
