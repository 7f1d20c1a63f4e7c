/* linnet bench: tokens per second, and their share of this machine's roofline.
 *
 * The roofline is measured in the same run with the same number of threads, after the model is closed: a
 * token cannot take less time than reading its bytes or computing its operations. A roofline that is
 * measured too low makes shares look too good; --ceiling therefore takes the result of bench/ceiling on
 * this machine and rejects a run whose own roofline is below 90 % of it.
 *
 * The roofline of a run on a GPU is that of the GPU: a copy within its memory, and a product of bf16 matrices
 * by cuBLAS. Without that library the rows of prompts, which arithmetic bounds, have no roofline. */
#include "../base/os.h"
#include "cli.h"

#include "../base/c_locale.h"
#include "../base/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The least memory with which the roofline is measured, as ln_doctor_within documents it. */
#define MEASURE_LEAST ((uint64_t)576 << 20)

typedef struct results {
    ln_bench_row *rows;
    size_t n, cap;
} results;

static const char *const works[] = {"prefill", "decode", "streams"};

/* The name of the test as in llama-bench. */
static const char *test_name(char buf[64], const ln_bench_row *r) {
    int n = snprintf(buf, 64, "%s%lld", r->work == LN_WORK_PREFILL ? "pp" : "tg", (long long)r->n);
    if (r->depth > 0) n += snprintf(buf + n, 64 - (size_t)n, " @ d%lld", (long long)r->depth);
    if (r->work == LN_WORK_STREAMS)
        (void)snprintf(buf + n, 64 - (size_t)n, ", %d stream%s", r->streams, r->streams == 1 ? "" : "s");
    return buf;
}

static ln_status on_row(void *user, const ln_bench_row *row, ln_error *err) {
    results *r = user;
    void *p = r->rows;
    LN_TRY(ln_grow(&p, &r->cap, r->n + 1, sizeof *r->rows, err));
    r->rows = p;
    r->rows[r->n++] = *row;
    char name[64];
    if (isatty(STDERR_FILENO)) note("%s: %.1f tok/s", test_name(name, row), row->tok_s);
    return LN_OK;
}

/* ---- the roofline ---- */

static double read_seconds(const ln_bench_row *r, const ln_machine *m) {
    return r->bytes_token / (m->read_gb_s * 1e9);
}
static double compute_seconds(const ln_bench_row *r, const ln_machine *m) {
    return m->peak_flop_s > 0 ? r->flops_token / m->peak_flop_s : 0;
}
static bool memory_bound(const ln_bench_row *r, const ln_machine *m) {
    return read_seconds(r, m) > compute_seconds(r, m);
}

/* The roofline in tokens per second: the smaller of the limits by memory bandwidth and by arithmetic. */
static double ceiling_of(const ln_bench_row *r, const ln_machine *m) {
    return 1 / (memory_bound(r, m) ? read_seconds(r, m) : compute_seconds(r, m));
}

static double share_of(const ln_bench_row *r, const ln_machine *m) { return r->tok_s / ceiling_of(r, m); }

/* Size of the largest cache of the first processor in bytes; 8 MiB if the system does not report it. */
static double cache_bytes(void) {
    const uint64_t most = ln_os_cache_bytes();
    return most > 0 ? (double)most : 8 << 20;
}

/* Whether the data that a step reads fits into the caches, so that memory bandwidth is not its limit. */
static bool is_cached(const ln_bench_row *r) {
    return r->bytes_token * (double)(r->work == LN_WORK_PREFILL ? r->n : r->streams) <= cache_bytes();
}

/* Whether the run was on a GPU: the level of its kernels is none of the CPU's. */
static bool on_gpu(const ln_bench_report *b, const ln_machine *m) { return strstr(m->isas, b->isa) == NULL; }

/* Whether the roofline was measured: not if --memory leaves too little for that. */
static bool measured(const ln_machine *m) { return m->read_gb_s > 0; }
/* Whether the roofline of a row is known. */
static bool has_roofline(const ln_bench_row *r, const ln_machine *m) {
    return measured(m) && (m->peak_flop_s > 0 || r->work != LN_WORK_PREFILL);
}

/* "84.4 %", "202.0 % (cached)", or "-" for a share above 100 % with another reason or an unknown one. */
static const char *share_text(char buf[48], const ln_bench_row *r, const ln_machine *m) {
    double share = share_of(r, m);
    bool cached = is_cached(r);
    if (!has_roofline(r, m) || (share > 1 && !cached)) (void)snprintf(buf, 48, "-");
    else (void)ln_snprintf(buf, 48, "%.1f %%%s", 100 * share, cached ? " (cached)" : "");
    return buf;
}

/* Explains why shares are omitted, one line for each reason that occurs. */
static void add_reasons(ln_str *s, const results *r, const ln_machine *m, bool gpu) {
    bool compute = false, memory = false;
    for (size_t i = 0; i < r->n; i++) {
        bool above = has_roofline(&r->rows[i], m) && share_of(&r->rows[i], m) > 1 && !is_cached(&r->rows[i]);
        compute = compute || (above && !memory_bound(&r->rows[i], m));
        memory = memory || (above && memory_bound(&r->rows[i], m));
    }
    if (gpu && (compute || memory))
        ln_str_adds(s, "-: faster than the roofline: another program used the GPU; measure again\n");
    if (compute && !gpu)
        ln_str_addf(s, "-: faster than the roofline's %s multiply-adds, as products of integers%s can be\n",
                    m->tile_read_gb_s > 0 ? "bf16" : "f32",
                    m->tile_read_gb_s > 0 ? "" : " and of pairs of bf16 numbers");
    if (memory && !gpu)
        ln_str_adds(s, "-: faster than the roofline, whose reading was slow: another program used the "
                       "memory; measure again\n");
}

/* ---- the result of bench/ceiling ---- */

/* The entry of {"ceilings":[{"threads","read_gb_s","peak_flop_s"}]} for this number of threads. */
static const json_t *entry_of(const json_t *root, int n_threads) {
    const json_t *list = json_object_get(root, "ceilings");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_object_get(json_array_get(list, i), "threads")) == n_threads)
            return json_array_get(list, i);
    return NULL;
}

typedef struct found {
    double read_gb_s, peak_flop_s;
} found;
static ln_status read_ceiling(found *out, const char *path, int n_threads, ln_error *err) {
    json_t *root = NULL;
    char shown[LN_PATH_TEXT];
    ln_status st = LN_OK;
    LN_GO(ln_json_load_input(&root, path, 1 << 20, err));
    const json_t *e = entry_of(root, n_threads);
    *out = (found){json_number_value(json_object_get(e, "read_gb_s")),
                   json_number_value(json_object_get(e, "peak_flop_s"))};
    if (!(out->read_gb_s > 0) || !(out->peak_flop_s > 0))
        LN_GO(ln_fail(err, LN_EINVALID,
                      "%s: expected ceilings for %d thread%s, found none; write them with: ninja -C build "
                      "ceiling; build/ceiling >FILE",
                      ln_path_text(shown, path), n_threads, n_threads == 1 ? "" : "s"));
out:
    json_decref(root);
    return st;
}

static ln_status check_ceiling(const found *f, const ln_machine *m, ln_error *err) {
    if (m->read_gb_s >= 0.9 * f->read_gb_s && m->peak_flop_s >= 0.9 * f->peak_flop_s) return LN_OK;
    return ln_fail(err, LN_EDEVICE,
                   "the roofline of this run lies under 90 %% of bench/ceiling: %.1f of %.1f GB/s, %.1f of "
                   "%.1f GFLOP/s; the machine was busy: measure again",
                   m->read_gb_s, f->read_gb_s, 1e-9 * m->peak_flop_s, 1e-9 * f->peak_flop_s);
}

/* ---- output ---- */

static void put_if(ln_str *s, const char *key, bool known, double value) {
    if (known) {
        put_real(s, key, value);
        return;
    }
    put_key(s, key);
    ln_str_adds(s, "null");
}

static ln_status print_json(const results *r, const ln_bench_report *b, const ln_machine *m,
                            const ln_info *info, ln_error *err) {
    ln_str s = {0};
    ln_str_adds(&s, "{\"rows\":[");
    for (size_t i = 0; i < r->n; i++) {
        const ln_bench_row *row = &r->rows[i];
        ln_str_adds(&s, i ? ",{" : "{");
        put_text(&s, "work", works[row->work]);
        put_int(&s, "n", row->n);
        put_int(&s, "depth", row->depth);
        put_int(&s, "streams", row->streams);
        put_real(&s, "tok_s", row->tok_s);
        put_if(&s, "ceiling_tok_s", has_roofline(row, m), ceiling_of(row, m));
        put_if(&s, "share", has_roofline(row, m), share_of(row, m));
        ln_str_add(&s, "}", 1);
    }
    ln_str_add(&s, "]", 1);
    put_if(&s, "read_gb_s", measured(m), m->read_gb_s);
    put_if(&s, "peak_flop_s", m->peak_flop_s > 0, m->peak_flop_s);
    put_uint(&s, "peak_bytes", b->peak_bytes);
    put_real(&s, "load_seconds", b->load_seconds);
    put_real(&s, "first_token_seconds", b->first_token_seconds);
    put_key(&s, "bits");
    ln_str_addf(&s, info->bits ? "%d" : "null", info->bits);
    put_text(&s, "numerics", numerics_name(b->numerics));
    put_text(&s, "isa", b->isa);
    put_tile_reads(&s, m);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status print_text(const results *r, const ln_bench_report *b, const ln_machine *m,
                            const ln_info *info, ln_error *err) {
    ln_str s = {0};
    char peak[32], name[64], share[48], ceiling[40];
    ln_str_addf(&s, "%-24s %10s %10s  %s\n", "test", "tok/s", "roofline", "share");
    for (size_t i = 0; i < r->n; i++) {
        const ln_bench_row *row = &r->rows[i];
        (void)ln_snprintf(ceiling, sizeof ceiling, has_roofline(row, m) ? "%.1f" : "-", ceiling_of(row, m));
        ln_str_addf(&s, "%-24s %10.1f %10s  %s\n", test_name(name, row), row->tok_s, ceiling,
                    share_text(share, row, m));
    }
    ln_str_adds(&s, "pp: prompt processing, tg: token generation, @ d: after so many tokens\n");
    if (measured(m)) add_reasons(&s, r, m, on_gpu(b, m));
    ln_str_addf(&s, "\nload %.3f s, first token %.3f s, peak memory %s\n", b->load_seconds,
                b->first_token_seconds, bytes_text(peak, b->peak_bytes));
    ln_str_adds(&s, "roofline: ");
    if (!measured(m)) ln_str_adds(&s, "not measured");
    else if (on_gpu(b, m)) add_gpu_ceilings(&s, m);
    else add_ceilings(&s, m);
    ln_str_adds(&s, "\n");
    ln_str_addf(&s, "%s", info->dtype);
    if (info->bits) ln_str_addf(&s, ", %d bits in groups of %d", info->bits, info->group);
    ln_str_addf(&s, ", %s, %s, %d thread%s\n", numerics_name(b->numerics), b->isa, b->n_threads,
                b->n_threads == 1 ? "" : "s");
    return out_str(&s, err);
}

static ln_bench_options what_of(const args *a, int streams[MOST_LIST]) {
    const flag_value *depth = &a->flag[F_DEPTH], *many = &a->flag[F_STREAMS];
    for (size_t i = 0; i < many->n_list; i++) streams[i] = (int)many->list[i];
    return (ln_bench_options){.size = sizeof(ln_bench_options),
                              .n_prefill = a->flag[F_PREFILL].i,
                              .depths = depth->list,
                              .n_depths = depth->n_list,
                              .streams = streams,
                              .n_streams = many->n_list,
                              .n_reps = (int)a->flag[F_REPS].i};
}

/* Measures the roofline. If --memory leaves too little for it, one line says so and *m has none, unless
 * `needed`, which makes that an error. */
static ln_status measure_roofline(ln_machine *m, uint64_t memory_bytes, int n_threads, bool needed,
                                  ln_error *err) {
    ln_error why;
    ln_status st = ln_doctor_within(memory_bytes, n_threads, m, &why);
    if (st == LN_OK) return LN_OK;
    if (st != LN_EMEMORY || memory_bytes == 0 || needed) return ln_fail(err, st, "%s", why.message);
    note("the roofline is not measured: %s", why.message);
    m->read_gb_s = m->peak_flop_s = m->gpu_copy_gb_s = m->gpu_flop_s = 0;
    return LN_OK;
}

/* Sets the roofline in *m to that of the device on which the model ran. */
static ln_status roofline_of(const ln_bench_report *b, const ln_options *opt, const found *known,
                             ln_machine *m, ln_error *err) {
    const bool gpu = on_gpu(b, m);
    if (gpu && known)
        return ln_fail(err, LN_EUSAGE,
                       "--ceiling has the roofline of a CPU, and this ran on a GPU; leave it out, or use "
                       "--device cpu");
    LN_TRY(measure_roofline(m, opt->memory_bytes, b->n_threads, known != NULL, err));
    if (gpu) m->read_gb_s = m->gpu_copy_gb_s, m->peak_flop_s = m->gpu_flop_s, m->tile_read_gb_s = 0;
    return known ? check_ceiling(known, m, err) : LN_OK;
}

ln_status cmd_bench(const args *a, ln_error *err) {
    if (other_backend(a)) return bench_backend(a, err);
    ln_model *model = NULL;
    ln_options opt;
    ln_bench_report b = {.size = sizeof b};
    ln_machine m = {.size = sizeof m};
    results r = {0};
    int streams[MOST_LIST];
    ln_bench_options how = what_of(a, streams);
    ln_status st = LN_OK;
    const char *ceiling = a->flag[F_CEILING].text;
    found known = {0};
    ln_info *info = ln_zalloc(1, sizeof *info);
    if (!info) LN_GO(LN_OOM(err, "a model's facts"));
    info->size = sizeof *info;
    LN_GO(options_of(a, &opt, err));
    LN_GO(ln_doctor(false, 0, &m, err)); /* fail before the measurements and not minutes later */
    if (m.measure_bytes == 0) LN_GO(ln_doctor(true, 0, &m, err)); /* the error says what is missing */
    if (ceiling) {
        if (opt.memory_bytes > 0 && opt.memory_bytes < MEASURE_LEAST)
            LN_GO(measure_roofline(&m, opt.memory_bytes, 1, true, err)); /* an error with both numbers */
        LN_GO(read_ceiling(&known, ceiling, opt.n_threads > 0 ? opt.n_threads : m.n_cores, err));
    }
    LN_GO(ln_model_open(&model, a->model, &opt, err));
    LN_GO(ln_model_info(model, info, err));
    LN_GO(ln_bench(model, &opt, &how, on_row, &r, &b, err));
    ln_model_close(&model); /* frees memory for the measurement, which must not share the memory bus */
    LN_GO(roofline_of(&b, &opt, ceiling ? &known : NULL, &m, err));
    LN_GO(has(a, F_JSON) ? print_json(&r, &b, &m, info, err) : print_text(&r, &b, &m, info, err));
out:
    ln_model_close(&model);
    ln_free(r.rows);
    ln_free(info);
    return st;
}
