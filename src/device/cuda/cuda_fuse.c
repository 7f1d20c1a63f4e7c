/* Fuses nodes of a prepared program into kernels that do several in one, with the same bits:
 *
 *     linear of one x, up to three of them        one product kernel (q, k and v)
 *     rmsnorm, linear [..] or linear_gated        products of normalised rows, if only they read these rows
 *     linear, add                                 a product whose outputs are added to the residual
 *     linear_back, add                            a product that is added to another gradient
 *     matmul .. add, matmul .. scale              a product with the addition, or the factor
 *     an op of training .. convert                the op, which stores bf16
 *     silu or gelu_tanh, convert .. mul           gpu_gate
 *     mul, silu or gelu_tanh, convert, mul,       gpu_gate_back, of what ln_graph_recompute makes again
 *       convert, act_back, convert
 *     rmsnorm .. rope                             gpu_norm_rope
 *     rope_back .. rmsnorm_back .. convert        gpu_rope_norm_back
 *     rmsnorm_back, add .. convert                the gradient, which is added to another
 *     all_gather, add or convert                  an exchange of sums, or of rounded values
 *     a product or attention, all_gather          the product stores its part in the gathered value's buffer
 *     [rmsnorm q, rmsnorm k,] rope q, rope k,     gpu_heads
 *       kv_write
 *       [, attn_paged]                            and attention, if only a linear reads its output
 *
 * Only nodes that follow each other are fused, except with ".." between them. A plan reuses buffers in the
 * order of the nodes, so a fused kernel must not write where it still reads: patterns whose buffers overlap
 * stay as they are. A traced step runs the nodes one by one.
 *
 * Attention with gpu_heads reads the queries, keys and values before rmsnorm in many blocks, so its output
 * must not overlap them, but in the plan it may. In steps of up to GPU_FUSED_ROWS rows, where both run as one
 * kernel, the output goes to a buffer of its own (ln_exec.attended), from which the linear that follows reads
 * it, or the all_gather. */
#include "cuda_device.h"

typedef struct fusing {
    ln_exec *e;
    int *readers; /* [n_values] nodes that read a value; an output counts as one */
    bool *done;   /* [n_nodes] conversions and additions that an op before them does */
} fusing;

static const ln_pnode *node_at(const fusing *f, int i) {
    return i < f->e->program->n_nodes ? ln_program_node(f->e->program, i) : NULL;
}
static bool is_op(const fusing *f, int i, ln_op op) {
    const ln_pnode *n = node_at(f, i);
    return n && n->op == op;
}
/* Whether the output of node i is read by node `by` alone, as its operand k. */
static bool feeds(const fusing *f, int i, int by, int k) {
    const ln_v v = node_at(f, i)->out[0];
    return node_at(f, by)->in[k] == v && f->readers[v] == 1;
}

static const char *end_of(const fusing *f, const gpu_array *a) {
    const int64_t rows = ln_dim(a->rows, &f->e->program->bounds);
    return (const char *)a->data + rows * a->pitch * (a->type == GPU_F32 ? 4 : 2);
}
static bool apart(const fusing *f, const gpu_array *a, const gpu_array *b) {
    return end_of(f, a) <= (const char *)b->data || end_of(f, b) <= (const char *)a->data;
}
/* Whether y may be written while x is read element by element: the same elements, or others altogether. */
static bool same_or_apart(const fusing *f, const gpu_array *y, const gpu_array *x) {
    return (y->data == x->data && y->pitch == x->pitch && y->type == x->type) || apart(f, y, x);
}

/* Products i .. i + n - 1 of one x as one; returns n. */
static int fuse_products(const fusing *f, int i, gpu_node *out) {
    gpu_product *p = &out->product;
    int n = 1;
    for (; n < GPU_PRODUCTS && is_op(f, i + n, LN_OP_LINEAR); n++) {
        const gpu_product *q = &f->e->nodes[i + n].product;
        if (node_at(f, i + n)->in[0] != node_at(f, i)->in[0] ||
            node_at(f, i + n)->stage != node_at(f, i)->stage || q->w[0].type != p->w[0].type ||
            q->w[0].bits != p->w[0].bits || q->w[0].group != p->w[0].group || q->w[0].form != p->w[0].form ||
            q->w[0].numbers != p->w[0].numbers || !apart(f, &q->y[0], &p->x))
            break;
        p->w[n] = q->w[0], p->bias[n] = q->bias[0], p->y[n] = q->y[0];
    }
    return p->n = n;
}

/* A product and the addition of its outputs to a residual; returns 2, or 1 where they stay apart. */
static int fuse_add(const fusing *f, int i, gpu_node *out) {
    if (!is_op(f, i + 1, LN_OP_ADD)) return 1;
    const gpu_node *add = &f->e->nodes[i + 1];
    const int k = feeds(f, i, i + 1, 1) ? 1 : feeds(f, i, i + 1, 0) ? 0 : -1;
    const gpu_array *residual = k == 1 ? &add->x : &add->second;
    if (k < 0 || node_at(f, i + 1)->in[0] == node_at(f, i + 1)->in[1] ||
        !apart(f, &add->y, &out->product.x) || !same_or_apart(f, &add->y, residual))
        return 1;
    out->product.residual = *residual;
    out->product.y[0] = out->y = add->y;
    return 2;
}

/* Adds attention to the heads that the nodes up to `write` make; returns the number of nodes added: 1, or 0
 * where it stays apart. */
static int fuse_attention(const fusing *f, int rope, int write, gpu_node *out) {
    const int i = write + 1;
    const bool read_so = is_op(f, i + 1, LN_OP_LINEAR) || is_op(f, i + 1, LN_OP_ALL_GATHER);
    if (!is_op(f, i, LN_OP_ATTN_PAGED) || !read_so || !feeds(f, rope, i, 0) || !feeds(f, i, i + 1, 0))
        return 0;
    const gpu_node *n = &f->e->nodes[i];
    if (n->attention.n_heads != out->heads.n_heads ||
        n->attention.kv.layer_offset != out->heads.kv.layer_offset ||
        n->attention.kv.window_group != out->heads.kv.window_group ||
        n->attention.kv.page_in_block != out->heads.kv.page_in_block ||
        !gpu_has_attention_heads(&n->attention, &out->heads, f->e->queue->dev->shared_limit))
        return 0;
    out->op = GPU_OP_ATTENTION;
    out->attention = n->attention;
    out->y = out->few = n->y;
    out->few.data = f->e->attended;
    return 1;
}

/* rmsnorm of q and k if the model has it, rope of both, kv_write; returns the number of nodes, 0 where they
 * stay apart. Keys of 8 bits do: a block of them needs its largest element first. */
static int fuse_heads(const fusing *f, int i, gpu_node *out) {
    const gpu_node *n = f->e->nodes;
    const bool norms = is_op(f, i, LN_OP_RMSNORM) && is_op(f, i + 1, LN_OP_RMSNORM);
    const int rope = norms ? i + 2 : i, write = rope + 2;
    if (!is_op(f, rope, LN_OP_ROPE) || !is_op(f, rope + 1, LN_OP_ROPE) || !is_op(f, write, LN_OP_KV_WRITE))
        return 0;
    const ln_pnode *q = node_at(f, rope), *k = node_at(f, rope + 1);
    const int32_t E = n[write].kv.head_dim;
    if (n[write].kv.q8 || !feeds(f, rope + 1, write, 1) || q->in[1] != k->in[1] || n[rope].head_dim != E ||
        n[write].kv.v_dim != E || n[rope].interleaved != n[rope + 1].interleaved ||
        n[rope + 1].n_heads != n[write].kv.n_kv_heads)
        return 0;
    gpu_heads h = {.q = n[norms ? i : rope].x,
                   .k = n[norms ? i + 1 : rope + 1].x,
                   .v = n[write].second,
                   .table = n[rope].second,
                   .y = n[rope].y,
                   .n_heads = n[rope].n_heads,
                   .interleaved = n[rope].interleaved,
                   .kv = n[write].kv};
    if (norms) {
        enum { WARP_COLUMNS = 256 }; /* up to which a warp has a group of gpu_rmsnorm */
        if (!feeds(f, i, rope, 0) || !feeds(f, i + 1, rope + 1, 0) || n[i].w.C != E || n[i + 1].w.C != E ||
            !n[i].w.data || !n[i + 1].w.data || E > WARP_COLUMNS || n[i].eps != n[i + 1].eps ||
            n[i].offset != n[i + 1].offset || n[i].y.type != GPU_F32 || n[i + 1].y.type != GPU_F32)
            return 0;
        h.q_norm = n[i].w, h.k_norm = n[i + 1].w;
        h.eps = n[i].eps, h.offset = n[i].offset;
    }
    if (n[rope + 1].y.type != GPU_F32 || !same_or_apart(f, &h.y, &h.q) || !apart(f, &h.y, &h.k) ||
        !apart(f, &h.y, &h.v) || !apart(f, &h.y, &h.table))
        return 0;
    *out = (gpu_node){.op = GPU_OP_HEADS, .heads = h};
    return write - i + 1 + fuse_attention(f, rope, write, out);
}

/* Whether the bytes of temp v overlap those of temp `of`; a value without a buffer overlaps none. */
static bool overlaps(const fusing *f, ln_v v, ln_v of) {
    const ln_pvalue *a = ln_program_value(f->e->program, v), *b = ln_program_value(f->e->program, of);
    if (a->kind != LN_KIND_TEMP || a->offset < 0 || b->offset < 0) return false;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}
/* Whether node i reads or writes the buffer of `of`. A node that is done writes alone: what it converts was
 * never stored. */
static bool touches(const fusing *f, int i, ln_v of) {
    const ln_pnode *n = node_at(f, i);
    for (int k = 0; !f->done[i] && k < n->n_in; k++)
        if (overlaps(f, n->in[k], of)) return true;
    for (int k = 0; k < n->n_out; k++)
        if (overlaps(f, n->out[k], of)) return true;
    return false;
}
/* Whether a kernel that does nodes i .. last may write the output of a later node j: they do not read its
 * buffer, and no node between them uses it. */
static bool may_write_early(const fusing *f, int i, int last, int j) {
    const ln_v y = node_at(f, j)->out[0];
    for (int n = i; n <= last; n++)
        for (int k = 0; k < node_at(f, n)->n_in; k++)
            if (overlaps(f, node_at(f, n)->in[k], y)) return false;
    for (int k = i + 1; k < j; k++)
        if (touches(f, k, y)) return false;
    return true;
}

enum { NEAR = 24 }; /* nodes between two that are fused */

/* Converts output o of node `last` as it is stored, by a kernel that does nodes i .. last and stores each
 * element once, if its only reader is a conversion to bf16 among the next nodes, whose output it may write.
 * y: the array to which it is stored. The conversion is marked as done. */
static void fuse_convert(const fusing *f, int i, int last, int o, gpu_array *y) {
    const ln_v v = node_at(f, last)->n_out > o ? node_at(f, last)->out[o] : -1;
    if (v < 0 || y->type != GPU_F32 || f->readers[v] != 1) return;
    for (int j = last + 1; j <= last + NEAR && node_at(f, j); j++) {
        if (node_at(f, j)->n_in < 1 || node_at(f, j)->in[0] != v) continue;
        if (!is_op(f, j, LN_OP_CONVERT) || !may_write_early(f, i, last, j)) return;
        *y = f->e->nodes[j].y;
        f->done[j] = true;
        return;
    }
}

static int fuse_linear(const fusing *f, int i, gpu_node *out) {
    const int n = fuse_products(f, i, out);
    const int all = n > 1 ? n : fuse_add(f, i, out);
    for (int k = 0; all == n && k < n; k++) fuse_convert(f, i, i + k, 0, &out->product.y[k]);
    return all;
}

/* rmsnorm and the products, if only they read its output; returns the number of nodes, 0 where they stay
 * apart. */
static int fuse_norm(const fusing *f, int i, gpu_node *out) {
    const gpu_node *norm = &f->e->nodes[i];
    const bool gated = is_op(f, i + 1, LN_OP_LINEAR_GATED);
    if ((!gated && !is_op(f, i + 1, LN_OP_LINEAR)) || node_at(f, i + 1)->in[0] != node_at(f, i)->out[0] ||
        norm->x.type != GPU_F32 || !norm->w.data || norm->w.C != norm->x.cols)
        return 0;
    gpu_node product = f->e->nodes[i + 1];
    const int n = gated ? 1 : fuse_linear(f, i + 1, &product);
    gpu_product *p = &product.product;
    if (f->readers[node_at(f, i)->out[0]] != p->n) return 0;
    for (int k = 0; k < p->n; k++)
        if (!apart(f, &p->y[k], &norm->x)) return 0;
    p->norm = norm->w, p->normed = norm->y, p->x = norm->x;
    p->eps = norm->eps, p->offset = norm->offset;
    *out = product;
    return n + 1;
}

static bool is_made_between(const fusing *f, int i, int j, ln_v v) {
    for (int n = i + 1; n < j; n++)
        for (int o = 0; o < node_at(f, n)->n_out; o++)
            if (node_at(f, n)->out[o] == v) return true;
    return false;
}
/* A product of arrays and, among the next nodes, its factor or the addition of its output to an earlier
 * value; the conversion of what remains. */
static void fuse_matmul(const fusing *f, int i, gpu_node *out) {
    const ln_v v = node_at(f, i)->out[0];
    for (int j = i + 1; j <= i + NEAR && node_at(f, j); j++) {
        const ln_pnode *n = node_at(f, j);
        const int k = n->n_in > 0 && n->in[0] == v ? 0 : n->n_in > 1 && n->in[1] == v ? 1 : -1;
        if (k < 0) continue;
        if (n->op == LN_OP_SCALE && f->readers[v] == 1 && may_write_early(f, i, i, j) &&
            gpu_scales_matmul(out->variant, &out->x, &out->second, &out->y)) {
            out->scale = n->p.scale.factor, out->y = f->e->nodes[j].y;
            f->done[j] = true;
            return;
        }
        if (n->op != LN_OP_ADD || f->readers[v] != 1 || n->in[0] == n->in[1] ||
            !gpu_adds_matmul(out->variant, &out->x, &out->y))
            break;
        if (is_made_between(f, i, j, n->in[1 - k])) return;
        const gpu_array *other = k == 1 ? &f->e->nodes[j].x : &f->e->nodes[j].second;
        if (!may_write_early(f, i, i, j) || !same_or_apart(f, &f->e->nodes[j].y, other)) return;
        out->third = *other, out->y = f->e->nodes[j].y;
        f->done[j] = true;
        fuse_convert(f, i, j, 0, &out->y);
        return;
    }
    fuse_convert(f, i, i, 0, &out->y);
}

/* linear_back and the addition of another gradient; returns the number of nodes. */
static int fuse_back_add(const fusing *f, int i, gpu_node *out) {
    if (!is_op(f, i + 1, LN_OP_ADD) || !gpu_adds_back(&out->x, out->work_bytes)) return 1;
    const gpu_node *add = &f->e->nodes[i + 1];
    const int k = feeds(f, i, i + 1, 1) ? 1 : feeds(f, i, i + 1, 0) ? 0 : -1;
    const gpu_array *other = k == 1 ? &add->x : &add->second;
    if (k < 0 || node_at(f, i + 1)->in[0] == node_at(f, i + 1)->in[1] || !apart(f, &add->y, &out->x) ||
        !same_or_apart(f, &add->y, other))
        return 1;
    out->second = *other;
    out->y = add->y;
    return 2;
}
/* The same with the conversion of its output, unless that is the sum of several products. */
static int fuse_back(const fusing *f, int i, gpu_node *out) {
    const int n = fuse_back_add(f, i, out);
    const bool whole = out->w.D * out->w.C * 2 <= (int64_t)out->work_bytes;
    if (whole || !gpu_adds_back(&out->x, out->work_bytes)) fuse_convert(f, i, i + n - 1, 0, &out->y);
    return n;
}

/* ---- exchanges ---- */

/* The rank's columns of a whole value. */
static gpu_array own_columns(const gpu_node *gather, const gpu_array *whole) {
    const gpu_exchange *e = &gather->exec->link.exchange;
    const int64_t S = gather->x.cols, first = LN_MIN(e->rank * S, whole->cols - S);
    gpu_array a = *whole;
    a.data = (char *)a.data + first * (a.type == GPU_F32 ? 4 : 2);
    a.cols = (int32_t)S;
    return a;
}

/* Whether a node, whose output y goes to the gather alone, may store in a whole value, `to`, instead, from
 * column `first` on: no kernel of it reads that buffer. */
static bool can_store_in(const fusing *f, const gpu_node *by, const gpu_array *to, const void *first) {
    const gpu_product *p = &by->product;
    if ((uintptr_t)first % 16) return false; /* kernels store vectors */
    switch (by->op) {
    case LN_OP_LINEAR:
    case LN_OP_LINEAR_GATED:
        return p->n == 1 && !p->residual.data && apart(f, to, &p->x) &&
               (!p->norm.data || apart(f, to, &p->normed)) &&
               (to->type == GPU_F32 || by->op == LN_OP_LINEAR_GATED);
    case LN_OP_ATTN_PAGED: return apart(f, to, &by->x);
    case GPU_OP_ATTENTION:
        return apart(f, to, &by->heads.q) && apart(f, to, &by->heads.k) && apart(f, to, &by->heads.v) &&
               apart(f, to, &by->heads.y);
    default: return false;
    }
}

/* Changes the node before a gather so that it stores its part, with the residual added, in the buffer of the
 * gathered value. In steps of few rows GPU_OP_ATTENTION has a buffer of its own. */
static void store_in_place(const fusing *f, gpu_node *by, gpu_node *gather) {
    const bool product = by->op == LN_OP_LINEAR || by->op == LN_OP_LINEAR_GATED;
    const gpu_array *made = product ? &by->product.y[0] : &by->y;
    const gpu_array own = own_columns(gather, &gather->y);
    if (made->data != gather->x.data || !can_store_in(f, by, &gather->y, own.data)) return;
    if (gather->second.data && by->op != LN_OP_LINEAR) return;
    if (gather->second.data) by->product.residual = own_columns(gather, &gather->second);
    if (product) by->product.y[0] = own;
    by->y = gather->x = own;
    gather->second.data = NULL;
    if (product) by->pair = gather, gather->pair = by;
}

/* A gather and the addition of a residual, or the conversion of its output; returns the number of nodes. */
static int fuse_gather(const fusing *f, int i, gpu_node *by, gpu_node *out) {
    const gpu_node *add = &f->e->nodes[i + 1];
    const bool alone = f->readers[node_at(f, i)->in[0]] == 1;
    int n = 1;
    if (is_op(f, i + 1, LN_OP_ADD) && node_at(f, i + 1)->in[0] != node_at(f, i + 1)->in[1]) {
        const int k = feeds(f, i, i + 1, 1) ? 1 : feeds(f, i, i + 1, 0) ? 0 : -1;
        const gpu_array *residual = k == 1 ? &add->x : &add->second;
        if (k >= 0 && residual->type == GPU_F32 && add->y.type == GPU_F32 && apart(f, &add->y, &out->x) &&
            same_or_apart(f, &add->y, residual)) {
            out->second = *residual;
            out->y = add->y;
            n = 2;
        }
    }
    if (n == 1) fuse_convert(f, i, i, 0, &out->y);
    if (by && alone) store_in_place(f, by, out);
    return n;
}

/* ---- training ---- */

/* The conversion to bf16 among the nodes after `last` that alone reads v and whose output no node before it
 * uses; -1: there is none. */
static int conversion_of(const fusing *f, ln_v v, int last) {
    if (f->readers[v] != 1) return -1;
    for (int j = last + 1; j <= last + NEAR && node_at(f, j); j++) {
        if (node_at(f, j)->n_in < 1 || node_at(f, j)->in[0] != v) {
            if (node_at(f, j)->n_in > 1 && node_at(f, j)->in[1] == v) return -1;
            continue;
        }
        if (!is_op(f, j, LN_OP_CONVERT)) return -1;
        for (int k = last + 1; k < j; k++)
            if (touches(f, k, node_at(f, j)->out[0])) return -1;
        return j;
    }
    return -1;
}
static int gate_of(const fusing *f, int i) {
    return is_op(f, i, LN_OP_SILU)        ? GPU_GATE_SILU
           : is_op(f, i, LN_OP_GELU_TANH) ? GPU_GATE_GELU
                                          : GPU_NO_GATE;
}
/* Whether node i is a conversion to bf16 of the output of node `of`, which it alone reads. */
static bool converts(const fusing *f, int i, int of) {
    return is_op(f, i, LN_OP_CONVERT) && f->e->nodes[i].y.type == GPU_BF16 && feeds(f, of, i, 0);
}

/* An activation, its conversion and the product with `up`; returns the number of nodes, 0 if they stay
 * apart. Between them are conversions that nodes before have done. */
static int fuse_gate(const fusing *f, int i, gpu_node *out) {
    const gpu_node *n = f->e->nodes;
    int m = i + 2;
    if (gate_of(f, i) == GPU_NO_GATE || !converts(f, i + 1, i)) return 0;
    while (node_at(f, m) && f->done[m]) m++;
    if (!is_op(f, m, LN_OP_MUL) || !feeds(f, i + 1, m, 0)) return 0;
    const int c = conversion_of(f, node_at(f, m)->out[0], m);
    const gpu_array *gate = &n[i].x, *up = &n[m].second, *y = c < 0 ? &n[m].y : &n[c].y;
    if (!gpu_fuses_gate(gate, up, y) || !same_or_apart(f, y, gate) || !same_or_apart(f, y, up)) return 0;
    *out = (gpu_node){.op = GPU_OP_GATE, .variant = gate_of(f, i), .x = *gate, .second = *up, .y = *y};
    if (c >= 0) f->done[c] = true;
    return m - i + 1;
}

/* The gradients of that product, from the activation made again; returns the number of nodes, 0 if they
 * stay apart. */
static int fuse_gate_back(const fusing *f, int i, gpu_node *out) {
    enum { ACT = 1, ROUNDED, OF_UP, DY_UP, OF_GATE, OF_UP_ROUNDED, N };
    const gpu_node *n = f->e->nodes + i;
    if (!node_at(f, i + N - 1) || gate_of(f, i + ACT) == GPU_NO_GATE || !converts(f, i + ROUNDED, i + ACT) ||
        !is_op(f, i + OF_UP, LN_OP_MUL) || !converts(f, i + DY_UP, i) ||
        !is_op(f, i + OF_GATE, LN_OP_ACT_BACK) || !converts(f, i + OF_UP_ROUNDED, i + OF_UP))
        return 0;
    if (!feeds(f, i + ROUNDED, i + OF_UP, 1) || !feeds(f, i + DY_UP, i + OF_GATE, 1) ||
        node_at(f, i + OF_UP)->in[0] != node_at(f, i)->in[0] ||
        node_at(f, i + OF_GATE)->in[0] != node_at(f, i + ACT)->in[0])
        return 0;
    const int c = conversion_of(f, node_at(f, i + OF_GATE)->out[0], i + N - 1);
    const gpu_array *gate = &n[ACT].x, *up = &n[0].second, *dy = &n[0].x, *of_up = &n[OF_UP_ROUNDED].y;
    const gpu_array *inputs[] = {gate, up, dy};
    const gpu_array *y = c < 0 ? &n[OF_GATE].y : &f->e->nodes[c].y;
    if (!gpu_fuses_gate(gate, up, y) || !gpu_fuses_gate(dy, up, of_up) || !apart(f, y, of_up)) return 0;
    for (size_t k = 0; k < LN_COUNT(inputs); k++)
        if (!same_or_apart(f, y, inputs[k]) || !same_or_apart(f, of_up, inputs[k])) return 0;
    *out = (gpu_node){.op = GPU_OP_GATE_BACK,
                      .variant = gate_of(f, i + ACT),
                      .x = *gate,
                      .second = *up,
                      .third = *dy,
                      .y = *y,
                      .also = *of_up};
    if (c >= 0) f->done[c] = true;
    return N;
}

/* rmsnorm of heads and the rope that alone reads it, among the next nodes; returns 1, or 0 if they stay
 * apart. */
static int fuse_norm_rope(const fusing *f, int i, gpu_node *out) {
    const gpu_node *norm = &f->e->nodes[i];
    int j = i + 1;
    while (j <= i + NEAR && node_at(f, j) &&
           !(is_op(f, j, LN_OP_ROPE) && node_at(f, j)->in[0] == node_at(f, i)->out[0]))
        j++;
    if (j > i + NEAR || !node_at(f, j) || !feeds(f, i, j, 0)) return 0;
    const gpu_node *rope = &f->e->nodes[j];
    if (rope->interleaved || rope->head_dim != rope->second.cols || norm->w.C != rope->head_dim ||
        !gpu_fuses_norm_rope(&norm->x, &norm->w, &rope->second) ||
        is_made_between(f, i, j, node_at(f, j)->in[1]))
        return 0;
    f->done[j] = true;
    const int c = conversion_of(f, node_at(f, j)->out[0], j);
    const ln_v y = node_at(f, c < 0 ? j : c)->out[0];
    bool free = same_or_apart(f, &f->e->nodes[c < 0 ? j : c].y, &norm->x);
    for (int k = i + 1; k < j && free; k++) free = !touches(f, k, y);
    if (!free) {
        f->done[j] = false;
        return 0;
    }
    *out = (gpu_node){.op = GPU_OP_NORM_ROPE,
                      .x = norm->x,
                      .w = norm->w,
                      .second = rope->second,
                      .y = f->e->nodes[c < 0 ? j : c].y,
                      .eps = norm->eps,
                      .offset = norm->offset};
    if (c >= 0) f->done[c] = true;
    return 1;
}

/* The gradient of rope and that of the rmsnorm before it, which it alone feeds, among the next nodes, with
 * the conversion of that; returns whether they are one. */
static bool fuse_rope_norm_back(const fusing *f, int i, gpu_node *out) {
    int j = i + 1;
    while (j <= i + NEAR && node_at(f, j) && !is_op(f, j, LN_OP_RMSNORM_BACK)) j++;
    for (; j <= i + NEAR && is_op(f, j, LN_OP_RMSNORM_BACK); j++)
        if (feeds(f, i, j, node_at(f, j)->n_in - 1)) break;
    if (j > i + NEAR || !is_op(f, j, LN_OP_RMSNORM_BACK) || f->done[j]) return false;
    const gpu_node *norm = &f->e->nodes[j];
    const int c = conversion_of(f, node_at(f, j)->out[0], j);
    const gpu_array *y = c < 0 ? &norm->y : &f->e->nodes[c].y;
    if (out->interleaved || out->head_dim != norm->w.C || is_made_between(f, i, j, node_at(f, j)->in[0]) ||
        !gpu_fuses_rope_norm_back(&norm->x, &norm->w, &out->x, &out->second, y) ||
        !same_or_apart(f, y, &norm->x) || !same_or_apart(f, y, &out->x) || !apart(f, y, &out->second))
        return false;
    for (int k = i + 1; k < j; k++)
        if (touches(f, k, node_at(f, c < 0 ? j : c)->out[0])) return false;
    f->done[j] = true;
    if (c >= 0) f->done[c] = true;
    *out = (gpu_node){.op = GPU_OP_ROPE_NORM_BACK,
                      .x = norm->x,
                      .w = norm->w,
                      .second = out->second,
                      .third = out->x,
                      .y = *y,
                      .eps = norm->eps,
                      .offset = norm->offset};
    return true;
}

/* The gradient of rmsnorm, its addition to another, which it alone feeds, and the conversion of the sum to
 * bf16 if there is one among the next nodes; returns the number of nodes. */
static int fuse_norm_back(const fusing *f, int i, gpu_node *out) {
    const gpu_node *add = &f->e->nodes[i + 1];
    const int k = !is_op(f, i + 1, LN_OP_ADD) ? -1
                  : feeds(f, i, i + 1, 1)     ? 1
                  : feeds(f, i, i + 1, 0)     ? 0
                                              : -1;
    if (k < 0 || node_at(f, i + 1)->in[0] == node_at(f, i + 1)->in[1]) return 1;
    const gpu_array *other = k == 1 ? &add->x : &add->second;
    const gpu_array *inputs[] = {&out->x, &out->third, other};
    if (!gpu_adds_rmsnorm_back(&out->x, &out->w, &out->third, other, &add->y)) return 1;
    for (size_t n = 0; n < LN_COUNT(inputs); n++)
        if (!same_or_apart(f, &add->y, inputs[n])) return 1;
    out->second = *other, out->y = add->y;
    const ln_v sum = node_at(f, i + 1)->out[0];
    int j = i + 2;
    while (j <= i + NEAR && node_at(f, j) && !(is_op(f, j, LN_OP_CONVERT) && node_at(f, j)->in[0] == sum))
        j++;
    if (j > i + NEAR || !node_at(f, j) || f->e->nodes[j].y.pitch % 4) return 2;
    const gpu_array *also = &f->e->nodes[j].y;
    bool free = apart(f, also, &out->y);
    for (size_t n = 0; n < LN_COUNT(inputs); n++) free = free && apart(f, also, inputs[n]);
    for (int n = i + 2; n < j && free; n++) free = !touches(f, n, node_at(f, j)->out[0]);
    if (!free) return 2;
    out->also = *also;
    f->done[j] = true;
    return 2;
}

/* A pointwise op of training with the nodes that one kernel does with it; returns their number. */
static int fuse_pointwise(const fusing *f, int i, gpu_node *out) {
    const int n = out->op == LN_OP_MUL ? fuse_gate_back(f, i, out) : fuse_gate(f, i, out);
    if (n == 0) fuse_convert(f, i, i, 0, &out->y);
    return n ? n : 1;
}

static int fuse_at(const fusing *f, int i, gpu_node *out) {
    int n;
    gpu_node *before = f->e->n_fused > 0 ? &f->e->fused[f->e->n_fused - 1] : NULL;
    *out = f->e->nodes[i];
    if (before && before->op == GPU_OP_ATTENTION) out->few = before->few;
    switch (out->op) {
    case LN_OP_LINEAR: return fuse_linear(f, i, out);
    case LN_OP_RMSNORM:
    case LN_OP_ROPE:
        n = fuse_heads(f, i, out);
        if (n == 0 && out->op == LN_OP_RMSNORM) n = fuse_norm(f, i, out);
        if (n == 0 && out->op == LN_OP_RMSNORM) n = fuse_norm_rope(f, i, out);
        if (n == 0) fuse_convert(f, i, i, 0, &out->y);
        return n ? n : 1;
    case LN_OP_LINEAR_BACK: return fuse_back(f, i, out);
    case LN_OP_MATMUL: fuse_matmul(f, i, out); return 1;
    case LN_OP_ATTN: fuse_convert(f, i, i, 0, &out->packed.y); return 1;
    case LN_OP_ATTN_BACK:
        fuse_convert(f, i, i, 0, &out->packed.dq);
        fuse_convert(f, i, i, 1, &out->packed.dk);
        fuse_convert(f, i, i, 2, &out->packed.dv);
        return 1;
    case LN_OP_ALL_GATHER: return fuse_gather(f, i, before, out);
    case LN_OP_MUL:
    case LN_OP_SILU:
    case LN_OP_GELU_TANH: return fuse_pointwise(f, i, out);
    case LN_OP_ADD:
    case LN_OP_SCALE:
    case LN_OP_SCALE_ROWS:
    case LN_OP_DROPOUT:
    case LN_OP_ACT_BACK: fuse_convert(f, i, i, 0, &out->y); return 1;
    case LN_OP_ROPE_BACK:
        if (!fuse_rope_norm_back(f, i, out)) fuse_convert(f, i, i, 0, &out->y);
        return 1;
    case LN_OP_RMSNORM_BACK:
        n = fuse_norm_back(f, i, out);
        if (n == 1) fuse_convert(f, i, i, 0, &out->y);
        return n;
    default: return 1;
    }
}

ln_status gpu_fuse(ln_exec *e, ln_error *err) {
    const ln_program *p = e->program;
    fusing f = {.e = e,
                .readers = ln_zalloc((size_t)p->n_values + 1, sizeof(int)),
                .done = ln_zalloc((size_t)p->n_nodes + 1, sizeof(bool))};
    e->fused = ln_zalloc((size_t)p->n_nodes + 1, sizeof *e->fused);
    if (!f.readers || !f.done || !e->fused) {
        ln_free(f.readers);
        ln_free(f.done);
        return LN_OOM(err, "a prepared program");
    }
    for (int i = 0; i < p->n_nodes; i++)
        for (int k = 0; k < node_at(&f, i)->n_in; k++) f.readers[node_at(&f, i)->in[k]]++;
    for (int i = 0; i < p->n_outputs; i++) f.readers[p->outputs[i]]++;
    for (int i = 0; i < p->n_nodes;) {
        if (f.done[i]) {
            i++;
            continue;
        }
        i += fuse_at(&f, i, &e->fused[e->n_fused]);
        e->n_fused++; /* after fuse_at, which reads what was fused before */
    }
    ln_free(f.readers);
    ln_free(f.done);
    return LN_OK;
}
