/* The pipeline of passes (compile.h):
 *
 *     cast -> prune -> fuse -> lower -> plan -> program
 */
#include "compile.h"

ln_status ln_compile(ln_graph *g, const ln_compile_options *o, ln_arena *arena, ln_program *out,
                     ln_error *err) {
    const ln_device_ops *choose = o->choose_ops ? o->choose_ops : o->ops;
    const ln_dev *choose_dev = o->choose_ops ? o->choose_dev : o->dev;
    ln_lowering lowering;
    ln_temp_plan plan;
    LN_TRY(ln_graph_cast(g, o->policy, err));
    LN_TRY(ln_graph_check(g, "cast", err));
    ln_graph_prune(g);
    LN_TRY(ln_graph_check(g, "prune", err));
    if (o->fuses) {
        ln_graph_fuse(g);
        LN_TRY(ln_graph_check(g, "fuse", err));
    }
    LN_TRY(ln_graph_lower(g, choose->lower, choose_dev, o->ops->lower, o->dev, &o->bounds, o->real_bytes,
                          &lowering, err));
    if (o->lowered) o->lowered(o->user, g);
    LN_TRY(ln_graph_check(g, "lower", err));
    lowering.early_converts = o->early_converts;
    LN_TRY(ln_graph_plan(g, &lowering, &o->bounds, o->real_bytes, &plan, err));
    return ln_program_make(g, &lowering, &plan, arena, out, err);
}
