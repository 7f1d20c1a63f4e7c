/* From a built graph to the program of a device: the pipeline of passes, written once for inference, training
 * and the graphs of callers. The caller has built the graph and applied what depends on its purpose:
 * adapters, gradients, recomputation. */
#ifndef LN_COMPILE_H
#define LN_COMPILE_H

#include "../device/device.h"
#include "../graph/graph.h"

typedef struct ln_compile_options {
    ln_policy policy;    /* number formats of operands */
    bool fuses;          /* products and activations may become one node */
    ln_bounds bounds;    /* most live rows, output rows and sequences of a step */
    int real_bytes;      /* of the device that runs the program */
    bool early_converts; /* ln_lowering */
    const ln_device_ops *ops;
    const ln_dev *dev;
    /* The device that decides fusions and formats, if it is not that one; NULL: it is. */
    const ln_device_ops *choose_ops;
    const ln_dev *choose_dev;
    /* Changes the outputs of the lowered graph, before its temps are planned; NULL: they stay. */
    void (*lowered)(void *user, ln_graph *g);
    void *user;
} ln_compile_options;

/* Casts, prunes, fuses, lowers and plans a graph, with a check after each pass, and makes its program in the
 * arena. LN_EINTERNAL: a pass made a graph that is not valid, which the message names; LN_EMEMORY; errors of
 * the device. */
ln_status ln_compile(ln_graph *g, const ln_compile_options *o, ln_arena *arena, ln_program *out,
                     ln_error *err);

#endif
