/* What the files of the programs of training share (train_program.h): the open program, and DoRA's part of
 * it. */
#ifndef LN_TRAIN_PARTS_H
#define LN_TRAIN_PARTS_H

#include "train_program.h"
#include "trained_weights.h"

/* PREDICT: the logits of a text, if the options have rows for it. LENGTHS: of DoRA, what the lengths of rows
 * depend on. Else these have no program. */
enum { ALIGN = 64, MODES = 4, EVALUATE = 0, TRAIN = 1, PREDICT = 2, LENGTHS = 3 };
/* Numbers of one gradient, and of the gradients of adapters, that are read at a time. */
enum { MOST_READ = 1 << 20, MOST_TOGETHER = 1 << 22 };

/* A trainable of the graphs, or a weight that is trained: rows of a parameter. */
typedef struct piece {
    size_t param;
    int slot;                    /* of the trainable; of the weight */
    int64_t row0, rows;          /* of the parameter */
    const ln_row_pieces *pieces; /* its rows do not follow each other there; NULL: they do */
    bool is_vector;              /* its gradient is a row */
    bool is_lookup;    /* no trainable, but an input: rows of the parameter by the tokens of a step */
    const float *base; /* the trainable is the parameter minus this; NULL: the parameter */
    size_t at;         /* of a trainable: in `bound` */
} piece;

/* What DoRA has of a matrix in addition: constants of the programs, at these offsets in `bound`. */
typedef struct direction {
    size_t per_length, bias; /* bias: SIZE_MAX if the product has none */
    double *squares;         /* [n_out] of the lengths of the model's own rows */
} direction;

typedef struct mode {
    ln_graph graph;
    ln_train_graph built;
    ln_lora_graph lora;
    ln_v *wrt, *grads; /* [n_pieces] trainables or weights, and their gradients; in the graph's arena */
    size_t n_pieces;
    ln_program program;
    ln_exec *exec;
} mode;

struct ln_train_program {
    const ln_spec *spec;
    const ln_weights *weights;
    ln_train_options opt;
    ln_bounds bounds;
    const ln_device_ops *ops;
    ln_dev *dev;
    ln_dev_info info;
    ln_queue *queue;
    mode modes[MODES];
    ln_weight_cache *cache;
    const ln_device_weights *resident; /* of the cache; full: NULL */
    ln_device_weights *changing;       /* full: the weights that programs compute with; else NULL */
    ln_train_sizes sizes;
    ln_train_param *params;
    size_t n_params;
    piece *pieces; /* [n_pieces] in the order of modes[].grads */
    size_t n_pieces;
    direction *directions; /* [modules] of DoRA; else NULL */
    float *token_rows;     /* [n_token_rows] rows of the model of trained tokens */
    size_t n_token_rows;
    size_t input_at[LN_TRAIN_INPUTS];
    float *values; /* [2][n_numbers] values and gradients of all parameters */
    uint8_t *host; /* what is copied to `bound` before a step */
    void *bound, *temp;
    size_t bound_bytes, temp_bytes, n_numbers;
    size_t read_numbers, rounded_bytes;
    float *read;                     /* [read_numbers] some rows, or the losses, read from the device */
    void *rounded;                   /* [rounded_bytes] some rows of a weight, as they are stored */
    bool changed;                    /* the device has other values than the parameters */
    ln_step_block *step, *blocks[2]; /* of the micro-batch that runs: that of micro-batches, or of PREDICT */
};

static inline size_t ln_train_aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }
/* Returns whether a program exists. */
static inline bool ln_train_has(const ln_train_program *p, int which) {
    if (which == PREDICT) return p->opt.n_predicted > 0;
    return which != LENGTHS || p->directions;
}
/* Returns the bounds of a program. */
static inline ln_bounds ln_train_bounds(const ln_train_program *p, int which) {
    if (which != PREDICT) return p->bounds;
    return (ln_bounds){.T = p->opt.n_text, .N = p->opt.n_predicted, .B = 1};
}
/* Returns the most rows of a step of any program. */
static inline size_t ln_train_most_rows(const ln_train_program *p) {
    return LN_MAX((size_t)p->bounds.T, (size_t)p->opt.n_text);
}
/* Returns the piece of a trainable; their slots ascend. */
static inline const piece *ln_train_piece(const ln_train_program *p, int slot) {
    size_t i = LN_MIN((size_t)slot, p->n_pieces - 1); /* modules without an A of their own have one less */
    while (p->pieces[i].slot > slot) i--;
    return &p->pieces[i];
}

/* Returns the row of its parameter that is row r of a piece; *n becomes at most how many follow each other.
 */
static inline int64_t ln_train_row(const piece *y, int64_t r, int64_t *n) {
    return y->pieces ? ln_pieces_row(y->pieces, r, n) : y->row0 + r;
}

/* Returns the format in which programs read a parameter. */
static inline ln_dtype ln_train_dtype(const ln_train_program *p, const ln_train_param *x) {
    return x->is_rows || x->is_whole ? LN_F32 : p->opt.lora.dtype;
}
/* Writes the parameters as the programs read them, by a step that has rows. */
ln_status ln_train_write_params(ln_train_program *p, ln_error *err);

/* ---- train_gradients.c ---- */

/* Adds the gradient of piece i to that of its parameter, some rows at a time. */
ln_status ln_train_add_gradient(ln_train_program *p, const mode *m, size_t i, ln_train_result *out,
                                ln_error *err);
/* Adds the gradients of all pieces, on the threads of the program. */
ln_status ln_train_add_gradients(ln_train_program *p, const mode *m, ln_train_result *out, ln_error *err);

/* Adds a parameter of so many rows and columns for the tensor that holds a weight. */
ln_train_param *ln_train_add_param(ln_train_program *p, const ln_weight *w, int64_t rows, int64_t cols);
/* Adds rows of a parameter as a piece at *at in `bound`, and moves that. */
void ln_train_add_piece(ln_train_program *p, size_t param, int slot, int64_t row0, int64_t rows, size_t *at);
/* Tokens whose rows are trained. */
static inline int ln_train_tokens(const ln_train_program *p) {
    return p->opt.full ? 0 : p->opt.lora.n_tokens;
}

/* ---- train_tables.c: the embedding and the head ---- */

/* Describes the parameters and pieces of module i, which is of a table; of and at as describe_adapters. */
void ln_tables_describe(ln_train_program *p, int i, size_t *of, size_t *at);
/* Returns the bytes of the input of rows, of A or of the table, that are looked up. */
static inline size_t ln_tables_looked_up_bytes(const ln_train_program *p) {
    const ln_lora *o = &p->opt.lora;
    const int64_t cols = p->opt.full ? 0 : o->whole_table ? p->spec->D : o->targets[LN_W_EMBED] ? o->rank : 0;
    return sizeof(float) * ln_train_most_rows(p) * (size_t)cols;
}
/* Reads the rows of the model of trained tokens. LN_EMEMORY, LN_ENUMERIC. */
ln_status ln_tables_open(ln_train_program *p, ln_error *err);
/* Sets rows of tokens, and tables that are trained as a whole, to those of the model. LN_EMEMORY,
 * LN_ENUMERIC.
 */
ln_status ln_tables_init(ln_train_program *p, ln_error *err);
/* Writes the inputs that depend on the tokens of a step, which the step block has. */
void ln_tables_inputs(ln_train_program *p);
/* Adds n rows of the gradient of an input, from row `first` of the step on, to that of its parameter. Returns
 * whether all of it is finite. */
bool ln_tables_add(ln_train_program *p, const piece *y, int64_t first, int64_t n, const float *from);
/* Writes what rows of tokens add to those of the model. */
void ln_tables_write(ln_train_program *p, const piece *y, const ln_train_param *x);

/* ---- train_directions.c: DoRA ---- */

/* Builds the graph of the mode LENGTHS. `grads` of this mode are its outputs. */
ln_status ln_directions_build(ln_train_program *p, ln_error *err);
/* Adds the constants of module i at *at in `bound`, and moves that. */
void ln_directions_add(ln_train_program *p, int i, const ln_weight *w, size_t *at);
/* Returns the bytes of the squares of all directions, and has `read` hold the products of a module. */
uint64_t ln_directions_bytes(ln_train_program *p);
/* Measures the rows of the model's matrices, and reads the biases that follow DoRA. LN_EMEMORY, LN_ENUMERIC.
 */
ln_status ln_directions_open(ln_train_program *p, ln_error *err);
/* Sets magnitudes to the lengths of the rows of W, to which B A adds nothing yet. */
void ln_directions_init(ln_train_program *p);
/* Writes what a program multiplies by next to the magnitudes: 1 / the length of each row, with the values of
 * A and B that p->host has. LN_EDEVICE. */
ln_status ln_directions_write(ln_train_program *p, ln_error *err);

#endif
