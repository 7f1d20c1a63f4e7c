/* From a program to kernel calls: resolves every operand of every node to an address, once, when a device
 * prepares the program.
 *
 * The address of a temp is temp + offset; that of a weight or state is the binding that run/ has set. Each
 * step then only writes the live row counts, since only the first dimension of a value may change. */
#include "ops.h"

#ifdef LN_REAL_FLOAT

static ln_status resolve(const ln_program *p, void *temp, ln_v i, ln_arg *a, ln_error *err) {
    const ln_value *v = &p->graph->values[i];
    ln_v at = i;
    if (v->kind == LN_KIND_STATE) /* all versions of a state share the address of the first version */
        while (p->graph->values[at].def >= 0) at = p->graph->nodes[p->graph->values[at].def].in[0];
    const int64_t rows = v->n_dims > 1 ? ln_dim(v->dims[0], &p->bounds) : 1;
    a->data = v->kind == LN_KIND_TEMP ? (char *)temp + ln_live_offset(p, i, rows) : p->binding[at];
    if (!a->data || (v->kind == LN_KIND_TEMP && p->storage[i].offset < 0))
        return ln_fail(err, LN_EINTERNAL, "program: %s has no place", v->name);
    a->dtype = (uint8_t)(v->layout == LN_LAYOUT_NARROW ? LN_BF16 : v->dtype);
    a->format = v->kind == LN_KIND_TEMP ? v->format : ln_format_of(LN_FORMAT_F32, v->enc);
    a->bf12 = v->bf12;
    a->rows = rows;
    a->cols = v->dims[v->n_dims - 1];
    a->pitch = v->kind == LN_KIND_TEMP ? ln_temp_pitch(p, i) : a->cols;
    a->layout = v->kind == LN_KIND_TEMP ? ln_live_layout(p, i, rows) : LN_LAYOUT_ROWS;
    return LN_OK;
}

ln_status ln_calls_new(const ln_program *p, void *temp, ln_arena *arena, ln_call **out, ln_error *err) {
    ln_call *calls = ln_arena_alloc(arena, ((size_t)p->n_live + 1) * sizeof *calls);
    if (!calls) return LN_OOM(err, "a prepared program");
    for (int i = 0; i < p->n_live; i++) {
        const ln_node *n = &p->graph->nodes[p->order[i]];
        calls[i].node = n;
        calls[i].n_threads = 1;
        for (int k = 0; k < n->n_in; k++) LN_TRY(resolve(p, temp, n->in[k], &calls[i].in[k], err));
        for (int k = 0; k < n->n_out; k++) LN_TRY(resolve(p, temp, n->out[k], &calls[i].out[k], err));
    }
    *out = calls;
    return LN_OK;
}

static void set_rows(const ln_program *p, ln_v v, ln_arg *a, int64_t rows) {
    a->data = (char *)a->data + (ln_live_offset(p, v, rows) - ln_live_offset(p, v, a->rows));
    a->rows = rows;
    a->layout = ln_live_layout(p, v, rows);
}
void ln_calls_live(const ln_program *p, ln_call *calls, const ln_step *step) {
    ln_bounds live = {step->n_rows, step->n_out, step->n_seqs};
    for (int i = 0; i < p->n_live; i++) {
        const ln_node *n = calls[i].node;
        calls[i].step = step;
        for (int k = 0; k < n->n_in; k++) {
            const ln_value *v = &p->graph->values[n->in[k]];
            if (v->dims[0] < 0) set_rows(p, n->in[k], &calls[i].in[k], ln_dim(v->dims[0], &live));
        }
        for (int k = 0; k < n->n_out; k++) {
            const ln_value *v = &p->graph->values[n->out[k]];
            if (v->dims[0] < 0) set_rows(p, n->out[k], &calls[i].out[k], ln_dim(v->dims[0], &live));
        }
    }
}
#endif
