/* The programs of the golden models are those that tests/golden/programs.txt records: the same nodes over the
 * same formats, with the same parameters, in the same stages, with every buffer at the same offset, and on
 * each ISA level a kernel of the same level. Programs are planned here and never run, so that the decisions
 * of every level of this build are compared on any machine.
 *
 *     program MODEL NUMERICS DECISIONS T: nodes, stages, bytes of temps, their lower bound, SHA-256
 *     kernel LEVEL OP FORMATS: the ISA level whose kernel the table of LEVEL has
 *
 * The hash is that of a text (program_text) that names values by their order, not by their names. DECISIONS:
 * the ISA level that chooses formats and storage; `diff`: formats chosen by AMX, storage by the reference
 * device; `double`: the same in double. LN_PROGRAMS=write records the programs again (lines of levels that
 * this build lacks stay); LN_PROGRAMS_TEXT=DIR writes each text into that directory, to compare two
 * versions.
 */
/* run: quick */
#include "../common.h"
#include "base/file.h"
#include "base/sha256.h"
#include "device/cpu/exec.h"
#include "run/run.h"

#define RECORD LN_ROOT "/tests/golden/programs.txt"

typedef struct writer {
    ln_str text; /* of one program */
    int *number; /* [n_values] order of first mention; -1: not mentioned yet */
    int n_numbers;
    const ln_run *r;
} writer;

/* ---- the words of an op, of a format and of a weight ---- */

static const char *op_name(const ln_pnode *n) {
    const bool silu = n->p.gate.act == LN_ACT_SILU;
    switch (n->op) {
    case LN_OP_LINEAR_GATED: return silu ? "linear_gated silu" : "linear_gated gelu_tanh";
    case LN_OP_GATED: return silu ? "gated silu" : "gated gelu_tanh";
    default: return ln_ops[n->op].name;
    }
}
static bool is_product(const ln_pnode *n) { return n->op == LN_OP_LINEAR || n->op == LN_OP_LINEAR_GATED; }
static const char *format_name(const ln_pvalue *v) {
    static const char *const names[LN_FORMAT_COUNT] = {"f32", "bf16", "bfp", "i8pair"};
    return names[v->format.kind];
}
static const char *stored_name(const ln_pvalue *w) {
    static const char *const names[LN_STORED_COUNT] = {"dense",    "bf16",     "affine",     "fp8 e4m3",
                                                       "fp8 e5m2", "fp4 e2m1", "zero points"};
    return names[(ln_stored)w->enc.kind];
}
static const char *layout_name(const ln_pvalue *v) {
    return v->layout == LN_CPU_PANELS ? "panels" : v->layout == LN_LAYOUT_NARROW ? "narrow" : "rows";
}

/* ---- the text of a program ---- */

static void add_value(writer *w, ln_v i) {
    const ln_pvalue *v = ln_program_value(&w->r->programs[LN_RUN_LOGITS].program, i);
    ln_str *s = &w->text;
    const bool is_new = w->number[i] < 0;
    if (is_new) w->number[i] = w->n_numbers++;
    ln_str_addf(s, " %d", w->number[i]);
    if (!is_new) return;
    if (v->kind == LN_KIND_STATE) {
        ln_str_addf(s, "(state %d)", v->slot);
        return;
    }
    ln_str_adds(s, v->kind == LN_KIND_WEIGHT ? "(weight" : "(temp");
    for (int d = 0; d < v->n_dims; d++) ln_str_addf(s, " %lld", (long long)v->dims[d]);
    if (v->kind == LN_KIND_WEIGHT)
        ln_str_addf(s, "; slot %d, %d, %d bits in %d)", v->slot, (int)v->dtype, v->enc.bits, v->enc.group);
    else
        ln_str_addf(s, "; %s %d in %d, %s; pitch %lld; %lld bytes at %lld + %lld; stages %d..%d)",
                    format_name(v), v->format.bits, v->format.group, layout_name(v), (long long)v->row_bytes,
                    (long long)v->bytes, (long long)v->offset, (long long)v->tail_offset, v->first, v->last);
}

static void add_params(writer *w, const ln_pnode *n) {
    ln_str *s = &w->text;
    const ln_p_kv *kv = n->op == LN_OP_ATTN_PAGED ? &n->p.attn.kv : &n->p.kv;
    switch (n->op) {
    case LN_OP_EMBED: ln_str_addf(s, " scale %a", (double)n->p.embed.scale); break;
    case LN_OP_RMSNORM:
        ln_str_addf(s, " eps %a, offset %a", (double)n->p.norm.eps, (double)n->p.norm.offset);
        break;
    case LN_OP_ROPE_TABLE:
        ln_str_addf(s, " scale %a, ntk %a, %a, %lld, freqs", (double)n->p.freqs.scale, n->p.freqs.ntk.theta,
                    n->p.freqs.ntk.factor, (long long)n->p.freqs.ntk.positions);
        for (int i = 0; i < n->p.freqs.n; i++) ln_str_addf(s, " %a", (double)n->p.freqs.freqs[i]);
        break;
    case LN_OP_ROPE:
        ln_str_addf(s, " %d heads of %d", n->p.heads.n_heads, n->p.heads.head_dim);
        if (n->p.heads.interleaved) ln_str_adds(s, ", interleaved");
        break;
    case LN_OP_ATTN_PAGED:
        ln_str_addf(s, " %d heads, scale %a, window %lld", n->p.attn.n_heads, (double)n->p.attn.scale,
                    (long long)n->p.attn.window);
        /* fall through */
    case LN_OP_KV_WRITE:
        ln_str_addf(s, " layer %d, %d heads of %d", kv->layer, kv->n_kv_heads, kv->head_dim);
        break;
    default: break;
    }
}

/* One line for each node: stage, layer, op, parameters, outputs, inputs; each value is described at its
 * first mention. */
static void program_text(writer *w) {
    const ln_program *p = &w->r->programs[LN_RUN_LOGITS].program;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        ln_str_addf(&w->text, "%d %d %s", n->stage, n->layer, op_name(n));
        add_params(w, n);
        ln_str_adds(&w->text, " ->");
        for (int k = 0; k < n->n_out; k++) add_value(w, n->out[k]);
        ln_str_adds(&w->text, " <-");
        for (int k = 0; k < n->n_in; k++) add_value(w, n->in[k]);
        ln_str_adds(&w->text, "\n");
    }
    ln_str_adds(&w->text, "outputs");
    for (int i = 0; i < p->n_outputs; i++) add_value(w, p->outputs[i]);
    ln_str_adds(&w->text, "\n");
}

/* ---- the record ---- */

/* Adds a line unless the record has it. */
static void add_once(ln_str *record, const ln_str *line) {
    if (!record->data || !strstr(record->data, line->data)) ln_str_add(record, line->data, line->len);
}
/* The kernels of a program's nodes, on every ISA level. */
static void add_kernels(ln_str *record, const ln_run *r) {
    const ln_program *p = &r->programs[LN_RUN_LOGITS].program;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        const ln_pvalue *in = n->n_in ? ln_program_value(p, n->in[0]) : NULL;
        for (ln_isa isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++) {
            ln_str line = {0};
            ln_str_addf(&line, "kernel %s %s", ln_cpu_isa_name(isa), op_name(n));
            if (is_product(n))
                ln_str_addf(&line, " %s x %s", format_name(in), stored_name(ln_program_value(p, n->in[1])));
            else if (n->op == LN_OP_EMBED) ln_str_addf(&line, " %s", stored_name(in));
            else if (n->op == LN_OP_CONVERT)
                ln_str_addf(&line, " %s", format_name(ln_program_value(p, n->out[0])));
            else if (n->op == LN_OP_ATTN_PAGED)
                ln_str_addf(&line, " %s", r->kv.groups[0].dtype == LN_BF16 ? "bf16" : "f32");
            ln_str_addf(&line, ": %s\n", ln_cpu_kernel_isa(isa, n->op, ln_node_variant(p, n)));
            add_once(record, &line);
            ln_str_free(&line);
        }
    }
}

static void write_text(const writer *w, const char *line) {
    if (!getenv("LN_PROGRAMS_TEXT")) return;
    char path[512];
    int n = snprintf(path, sizeof path, "%s/", getenv("LN_PROGRAMS_TEXT"));
    for (const char *c = line + strlen("program "); *c && *c != ':' && n < 500; c++)
        path[n++] = *c == ' ' || *c == '/' ? '_' : *c;
    path[n] = 0;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(w->text.data, 1, w->text.len, f);
    fclose(f);
}

/* The program of these options as `decisions` of r's devices: one line. */
static void add_program(ln_str *record, ln_run *r, const char *model, const char *decisions) {
    OK(ln_run_make_program(r, err));
    const size_t n_values = (size_t)r->programs[LN_RUN_LOGITS].program.n_values;
    writer w = {.r = r, .number = malloc((n_values + 1) * sizeof(int))};
    memset(w.number, 0xff, (n_values + 1) * sizeof(int));
    program_text(&w);
    ln_sha256 h;
    char hex[LN_SHA256_HEX];
    ln_sha256_open(&h);
    ln_sha256_add(&h, w.text.data, w.text.len);
    ln_sha256_hex(&h, hex);
    ln_str line = {0};
    ln_str_addf(&line, "program %s %s %s %d: %d nodes, %d stages, %lld bytes, bound %lld, %s\n", model,
                r->opt.numerics == LN_FAST ? "fast" : "exact", decisions, r->opt.n_chunk,
                r->programs[LN_RUN_LOGITS].program.n_nodes, r->programs[LN_RUN_LOGITS].program.n_stages,
                (long long)r->programs[LN_RUN_LOGITS].program.temp_bytes,
                (long long)r->programs[LN_RUN_LOGITS].program.temp_bound, hex);
    ln_str_add(record, line.data, line.len);
    write_text(&w, line.data);
    if (r->ops == &ln_device_cpu) add_kernels(record, r);
    free(w.number);
    ln_str_free(&line);
    ln_str_free(&w.text);
    ln_arena_free(&r->arena);
}

/* The programs of a model: two bounds, both numerics, the decisions of plain and of AMX, and AMX's formats on
 * the reference devices. The other levels decide as plain does (levels_decide_alike). */
static void add_model(ln_str *record, const ln_package *m, const char *name, ln_numerics numerics) {
    static const int rows[] = {17, 256};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_run_options o = test_options(m, LN_DEVICE_CPU, 1, rows[i], 2);
        o.numerics = numerics;
        o.n_logits = 4;
        ln_dev *plain;
        ln_run r = {.spec = &m->spec, .weights = &m->weights, .opt = o, .ops = &ln_device_cpu};
        r.info.real_bytes = 4;
        OK(ln_cpu_open_level(&plain, LN_ISA_PLAIN, err));
        r.dev = plain;
        add_program(record, &r, name, "plain");
#ifdef LN_X86
        ln_dev *amx, *ref;
        OK(ln_cpu_open_level(&amx, LN_ISA_AMX, err));
        OK(ln_device_ref.open(&ref, NULL, err));
        r.dev = amx;
        add_program(record, &r, name, "amx");
        const ln_run formats = {.ops = &ln_device_cpu, .dev = amx};
        r.opt.program_of = &formats;
        r.ops = &ln_device_ref;
        r.dev = ref;
        add_program(record, &r, name, "diff");
        r.info.real_bytes = 8;
        add_program(record, &r, name, "double");
        ln_device_cpu.close(&amx);
        ln_device_ref.close(&ref);
#endif
        ln_device_cpu.close(&plain);
    }
}

static void add_package(ln_str *record, const char *dir, int quantize_bits) {
    char path[512], name[128];
    ln_package *m;
    const ln_options o = {.quantize_bits = quantize_bits};
    (void)snprintf(path, sizeof path, LN_ROOT "/%s", dir);
    OK(ln_package_open(&m, path, &o, err));
    const char *last = strrchr(dir, '/') + 1;
    if (quantize_bits) (void)snprintf(name, sizeof name, "%s-%d", last, quantize_bits);
    else (void)snprintf(name, sizeof name, "%s", last);
    add_model(record, m, name, LN_EXACT);
    if (ln_run_numerics(&m->spec, LN_FAST) == LN_FAST) add_model(record, m, name, LN_FAST);
    ln_package_close(&m);
}
static void add_index(ln_str *record, const char *dir) {
    char path[512];
    json_t *index;
    size_t i;
    const json_t *row;
    (void)snprintf(path, sizeof path, LN_ROOT "/%s/index.json", dir);
    OK(ln_json_load_file(&index, path, 1 << 20, err));
    json_array_foreach(index, i, row) {
        const char *name = json_string_value(json_object_get(row, "dir"));
        (void)snprintf(path, sizeof path, "tests/golden/%s", name);
        add_package(record, path, 0);
    }
    json_decref(index);
}

/* Whether a line of the record is about a level that this build lacks. */
static bool is_of_other_level(const char *line) {
    char level[16] = "", decisions[16] = "";
    (void)sscanf(line, "kernel %15s", level);
    (void)sscanf(line, "program %*s %*s %15s", decisions);
    const char *word = level[0] ? level : decisions;
    if (strcmp(word, "diff") == 0 || strcmp(word, "double") == 0) word = "amx";
    for (ln_isa isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++)
        if (strcmp(word, ln_cpu_isa_name(isa)) == 0) return false;
    return true;
}

/* The next line at *at, which moves on. false: there is none. */
static bool next_line(const char **at, char *line, size_t cap) {
    if (!**at) return false;
    const size_t n = strcspn(*at, "\n");
    (void)snprintf(line, cap, "%.*s\n", (int)n, *at);
    *at += n + ((*at)[n] != 0);
    return true;
}

/* Each line of this build's levels is in the record, and each recorded program of them is planned here. (A
 * build without AMX plans no program with kernels that only AMX chooses.) */
static void compare(const char *now, const char *recorded) {
    char line[512];
    for (const char *at = now; next_line(&at, line, sizeof line);)
        if (!strstr(recorded, line))
            fail_msg("tests/golden/programs.txt lacks this line (LN_PROGRAMS=write records it):\n%s", line);
    for (const char *at = recorded; next_line(&at, line, sizeof line);)
        if (line[0] == 'p' && !is_of_other_level(line) && !strstr(now, line))
            fail_msg("no program of this build gives this line of tests/golden/programs.txt:\n%s", line);
}

static int by_line(const void *x, const void *y) {
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}
/* Writes the lines in order, kernels after programs. */
static void write_record(const ln_str *now, const char *recorded) {
    static char lines[4096][512];
    static const char *sorted[4096];
    size_t n = 0;
    for (const char *at = recorded; n < LN_COUNT(lines) && next_line(&at, lines[n], sizeof lines[n]);)
        n += lines[n][0] != '#' && is_of_other_level(lines[n]);
    for (const char *at = now->data; n < LN_COUNT(lines) && next_line(&at, lines[n], sizeof lines[n]);) n++;
    assert_true(n < LN_COUNT(lines));
    for (size_t i = 0; i < n; i++) sorted[i] = lines[i];
    qsort(sorted, n, sizeof *sorted, by_line);
    FILE *f = fopen(RECORD, "w");
    assert_non_null(f);
    fputs("# Programs and kernels, as tests/run/test_programs.c plans them; LN_PROGRAMS=write records "
          "them.\n",
          f);
    for (size_t i = 0; i < n; i++) fputs(sorted[i], f);
    fclose(f);
}

static void programs_are_the_recorded_ones(void **state) {
    (void)state;
    ln_str now = {0};
    char *recorded = NULL;
    size_t bytes = 0;
    add_index(&now, "tests/golden");
    add_index(&now, "tests/golden/quantised");
    add_package(&now, "models/tiny", 0);
    add_package(&now, "models/tiny", 4);
    add_package(&now, "models/tiny", 8);
    const ln_status st = ln_read_file(RECORD, 4 << 20, &recorded, &bytes, NULL);
    if (getenv("LN_PROGRAMS")) write_record(&now, st == LN_OK ? recorded : "");
    else {
        assert_int_equal(st, LN_OK);
        compare(now.data, recorded);
    }
    ln_free(recorded);
    ln_str_free(&now);
}

/* The record has the decisions of plain and AMX: the levels between decide as plain does. */
static void levels_decide_alike(void **state) {
    (void)state;
    const char *const models[] = {"models/tiny", "tests/golden/quantised/llama-q4-g64-bf16"};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[512];
        ln_package *m;
        (void)snprintf(path, sizeof path, LN_ROOT "/%s", models[i]);
        OK(ln_package_open(&m, path, &(ln_options){0}, err));
        ln_str lines[LN_ISA_COUNT] = {0};
        for (ln_isa isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++) {
            ln_run r = {.spec = &m->spec, .weights = &m->weights, .ops = &ln_device_cpu};
            r.opt = test_options(m, LN_DEVICE_CPU, 1, 64, 2);
            r.info.real_bytes = 4;
            OK(ln_cpu_open_level(&r.dev, isa, err));
            add_program(&lines[isa], &r, "model", "level");
            ln_device_cpu.close(&r.dev);
            const bool same = strncmp(lines[isa].data, lines[0].data, strcspn(lines[0].data, "\n")) == 0;
            assert_true(same == (strcmp(ln_cpu_isa_name(isa), "amx") != 0));
        }
        for (int isa = 0; isa < LN_ISA_COUNT; isa++) ln_str_free(&lines[isa]);
        ln_package_close(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_are_the_recorded_ones),
                                       cmocka_unit_test(levels_decide_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
