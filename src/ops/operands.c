/* From a program to kernel calls: resolves every operand of every node to an address, once, when a device
 * prepares the program.
 *
 * The address of a temp is temp + offset; that of a weight or state is the one that run/ has set. Each
 * step then only writes the live row counts, since only the first dimension of a value may change. */
#include "../base/transport.h"
#include "ops.h"

#ifdef LN_REAL_FLOAT

static ln_status resolve(const ln_program *p, void *temp, ln_v i, ln_arg *a, ln_error *err) {
    const ln_pvalue *v = ln_program_value(p, i);
    const bool is_temp = v->kind == LN_KIND_TEMP;
    const int64_t rows = v->n_dims > 1 ? ln_dim(v->dims[0], &p->bounds) : 1;
    a->data = is_temp ? (char *)temp + ln_live_offset(v, rows) : v->data;
    if (!a->data || (is_temp && v->offset < 0))
        return ln_fail(err, LN_EINTERNAL, "program: %s has no address", v->name);
    a->dtype = (uint8_t)(v->layout == LN_LAYOUT_NARROW ? LN_BF16 : v->dtype);
    a->format = is_temp ? v->format : ln_format_of(LN_FORMAT_F32, ln_encoding_groups(v->enc));
    a->coded = !is_temp && ln_encoding_is_coded(v->enc);
    a->bf12 = v->layout_id != 0; /* of the devices in host memory only the CPU sets it, and only to this */
    a->rows = rows;
    a->cols = v->dims[v->n_dims - 1];
    a->pitch = is_temp ? ln_temp_pitch(p, v) : a->cols;
    a->layout = is_temp ? ln_live_layout(v, rows) : LN_LAYOUT_ROWS;
    return LN_OK;
}

/* Rejects a program for another number of ranks than there are. */
static ln_status check_ranks(const ln_pnode *n, const ln_transport *ranks, ln_error *err) {
    const int size = ranks ? ranks->size : 1;
    if (n->op != LN_OP_ALL_GATHER || n->p.gather.n_ranks == size) return LN_OK;
    return ln_fail(err, LN_EINTERNAL, "program: it is one of %d ranks, found %d", n->p.gather.n_ranks, size);
}

ln_status ln_calls_new(const ln_program *p, void *temp, ln_transport *ranks, ln_arena *arena, ln_call **out,
                       ln_error *err) {
    ln_call *calls = ln_arena_alloc(arena, ((size_t)p->n_nodes + 1) * sizeof *calls);
    if (!calls) return LN_OOM(err, "a prepared program");
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        calls[i].node = n;
        calls[i].n_threads = 1;
        calls[i].ranks = ranks;
        LN_TRY(check_ranks(n, ranks, err));
        for (int k = 0; k < n->n_in; k++) LN_TRY(resolve(p, temp, n->in[k], &calls[i].in[k], err));
        for (int k = 0; k < n->n_out; k++) LN_TRY(resolve(p, temp, n->out[k], &calls[i].out[k], err));
    }
    *out = calls;
    return LN_OK;
}

/* Sets the rows of an operand whose first dimension is symbolic. */
static void set_rows(const ln_program *p, ln_v i, ln_arg *a, const ln_bounds *live) {
    const ln_pvalue *v = ln_program_value(p, i);
    if (v->dims[0] >= 0) return;
    const int64_t rows = ln_dim(v->dims[0], live);
    a->data = (char *)a->data + (ln_live_offset(v, rows) - ln_live_offset(v, a->rows));
    a->rows = rows;
    a->layout = ln_live_layout(v, rows);
}
void ln_calls_live(const ln_program *p, ln_call *calls, const ln_step *step) {
    const ln_bounds live = {step->n_rows, step->n_out, step->n_seqs};
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = calls[i].node;
        calls[i].step = step;
        for (int k = 0; k < n->n_in; k++) set_rows(p, n->in[k], &calls[i].in[k], &live);
        for (int k = 0; k < n->n_out; k++) set_rows(p, n->out[k], &calls[i].out[k], &live);
    }
}
#endif
