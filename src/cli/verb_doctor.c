/* linnet doctor: the hardware of this machine, and the kernels that run on it. */
#include "cli.h"

#include <string.h>

void put_tile_reads(ln_str *s, const ln_machine *m) {
    if (!(m->tile_read_gb_s > 0)) return;
    put_real(s, "vector_read_gb_s", m->vector_read_gb_s);
    put_real(s, "tile_read_gb_s", m->tile_read_gb_s);
}

void add_ceilings(ln_str *s, const ln_machine *m) {
    bool tiles = m->tile_read_gb_s > 0;
    ln_str_addf(s, "%.1f GB/s read", m->read_gb_s);
    if (tiles) ln_str_addf(s, " (%.1f by vectors, %.1f by tiles)", m->vector_read_gb_s, m->tile_read_gb_s);
    ln_str_addf(s, ", %.1f GFLOP/s of %s multiply-adds", 1e-9 * m->peak_flop_s, tiles ? "bf16" : "f32");
}

/* A message of the library, whose field names become flags. */
static void put_advice(ln_str *s, const char *key, const char *message) {
    ln_str text = {0};
    advice_add(&text, message);
    s->failed |= text.failed;
    put_text(s, key, text.data ? text.data : "");
    ln_str_free(&text);
}

void add_gpu_ceilings(ln_str *s, const ln_machine *m) {
    ln_str_addf(s, "%.1f GB/s copied, ", m->gpu_copy_gb_s);
    if (m->gpu_flop_s > 0) ln_str_addf(s, "%.1f TFLOP/s of bf16 products by cuBLAS", 1e-12 * m->gpu_flop_s);
    else
        ln_str_adds(s, "products not measured: cuBLAS (libcublas.so.13 or .12) is not found, or cannot be "
                       "used");
}

static ln_status print_json(const args *a, const ln_machine *m, bool measured, ln_error *err) {
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_text(&s, "version", ln_version());
    put_text(&s, "cpu", m->cpu);
    put_int(&s, "cores", m->n_cores);
    put_int(&s, "logical_cores", m->n_logical);
    put_text(&s, "isa", m->isa);
    put_text(&s, "isas", m->isas);
    put_text(&s, "quantised", m->quantised);
    put_uint(&s, "memory_bytes", m->memory_bytes);
    put_uint(&s, "available_bytes", m->available_bytes);
    if (measured) {
        put_real(&s, "read_gb_s", m->read_gb_s);
        put_real(&s, "peak_flop_s", m->peak_flop_s);
        put_tile_reads(&s, m);
    }
    put_text(&s, "devices", m->devices);
    put_advice(&s, "gpu", m->gpu);
    if (m->gpu_copy_gb_s > 0) put_real(&s, "gpu_copy_gb_s", m->gpu_copy_gb_s);
    if (m->gpu_flop_s > 0) put_real(&s, "gpu_flop_s", m->gpu_flop_s);
    const ln_status st = backends_add(&s, a, err);
    if (st != LN_OK) ln_str_free(&s);
    LN_TRY(st);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status print_text(const args *a, const ln_machine *m, bool measured, ln_error *err) {
    ln_str s = {0};
    char total[32], left[32];
    ln_str_addf(&s, "linnet      %s\nprocessor   %s\n", ln_version(), m->cpu);
    ln_str_addf(&s, "cores       %d within affinity and quota, %d logical: %d threads by default\n",
                m->n_cores, m->n_logical, m->n_cores);
    ln_str_addf(&s, "kernels     %s (this machine has: %s)\n", m->isa, m->isas);
    if (m->quantised[0]) ln_str_addf(&s, "quantised   %s\n", m->quantised);
    ln_str_addf(&s, "memory      %s, %s available\n", bytes_text(total, m->memory_bytes),
                bytes_text(left, m->available_bytes));
    if (measured) {
        ln_str_adds(&s, "ceilings    ");
        add_ceilings(&s, m);
        ln_str_addf(&s, ", with %d thread%s\n", m->n_cores, m->n_cores == 1 ? "" : "s");
    }
    ln_str_addf(&s, "devices     %s\ngpu         ", m->devices);
    advice_add(&s, m->gpu);
    ln_str_adds(&s, "\n");
    if (m->gpu_copy_gb_s > 0) {
        ln_str_adds(&s, "            ");
        add_gpu_ceilings(&s, m);
        ln_str_adds(&s, "\n");
    }
    const ln_status st = backends_add(&s, a, err);
    if (st != LN_OK) ln_str_free(&s);
    LN_TRY(st);
    add_next_steps(&s, m, measured);
    return out_str(&s, err);
}

ln_status cmd_doctor(const args *a, ln_error *err) {
    ln_machine m = {.size = sizeof m};
    LN_TRY(ln_doctor(has(a, F_MEASURE), 0, &m, err));
    return has(a, F_JSON) ? print_json(a, &m, has(a, F_MEASURE), err)
                          : print_text(a, &m, has(a, F_MEASURE), err);
}
