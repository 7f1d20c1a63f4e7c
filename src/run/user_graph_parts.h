/* What the files of graphs that a caller builds share (user_graph.h): an open graph. */
#ifndef LN_USER_GRAPH_PARTS_H
#define LN_USER_GRAPH_PARTS_H

#include "user_graph.h"

/* Memory of an input, of a trainable, or of labels: by the value that `load` makes of it, or, of labels, by
 * the value itself. */
typedef struct bound {
    ln_v bound, user; /* value in memory, and the number that the caller has */
    bool trainable, is_set;
    int64_t n;
    void *data;      /* [n] f32, of labels int32 */
    void *device;    /* a copy in the device's own memory; NULL: it reads `data` */
    bool stale;      /* the copy has other numbers */
    float *m, *v;    /* [n] moments of AdamW; NULL before the first step */
    int64_t below;   /* of labels: columns of the narrowest logits that they index */
    ln_v inverse_of; /* of a hidden input [1,1]: the mask, the inverse of whose sum it is; -1: none */
    ln_v chosen_by;  /* of a hidden input [rows, n]: the labels, whose columns are 1; -1: none */
} bound;

typedef enum derivative { GRADIENT, TANGENT } derivative;
typedef struct program {
    struct program *next;
    derivative kind;
    ln_v y, *wrt; /* [n_wrt] what it was asked for */
    size_t n_wrt;
    bool has_cotangent;
    ln_graph graph;
    ln_program program;
    ln_exec *exec;
    void *temp;
    ln_v *out;     /* [n_wrt] gradients, or [1] tangent; -1: zero */
    float **given; /* [n_wrt] tangents, or [1] cotangent: memory of inputs of this program alone */
    void **device; /* [n_wrt] or [1] copies of them in the device's own memory; NULL: it reads `given` */
} program;

struct ln_user_graph {
    ln_run_options opt;
    const ln_device_ops *ops;
    ln_dev *dev;
    ln_queue *queue;
    ln_dev_info info;
    ln_graph graph;
    bound *bounds;
    size_t n_bounds, cap_bounds;
    program *programs;
    ln_step_block *step;
    int n_ended; /* parts, whose values are computed again for gradients; they are layers of the graph */
    int64_t t;   /* steps of AdamW */
};

/* Returns the first failure of a builder, or LN_OK. */
ln_status ln_user_failure(const ln_user_graph *u, ln_error *err);
/* Returns the memory of an input, a trainable or labels; NULL: v is another value. */
bound *ln_user_bound(const ln_user_graph *u, int32_t v);

#endif
