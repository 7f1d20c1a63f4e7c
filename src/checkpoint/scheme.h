/* What the readers of quantised formats share (schemes.def): settings, finding the tensors of a module, and
 * messages. */
#ifndef LN_SCHEME_H
#define LN_SCHEME_H

#include "source.h"

typedef enum ln_scheme_id {
#define LN_SCHEME(NAME, method, read, source) LN_SCHEME_##NAME,
#include "schemes.def"
#undef LN_SCHEME
    LN_SCHEME_COUNT
} ln_scheme_id;
struct ln_scheme {
    const char *method;
    /* Reads the block's settings into *q. LN_EINVALID, LN_EUNSUPPORTED. */
    ln_status (*read)(ln_quant *q, ln_error *err);
    const ln_source_ops *source;
};
extern const ln_scheme ln_schemes[LN_SCHEME_COUNT];
/* The keys of all blocks; the group of a scheme is 1 << its ln_scheme_id. */
extern const ln_keys ln_scheme_keys;

#define LN_SCHEME(NAME, method, read, source)   \
    ln_status read(ln_quant *q, ln_error *err); \
    extern const ln_source_ops source;
#include "schemes.def"
#undef LN_SCHEME

/* Reads an integer of the block, or of the first of the given fields that it has. LN_EINVALID: it is missing
 * (unless dflt is not 0), of another type, or outside [lo, hi]. */
ln_status ln_scheme_int(const ln_quant *q, const char *const fields[2], int64_t dflt, int64_t lo, int64_t hi,
                        int64_t *out, ln_error *err);
/* Returns LN_EUNSUPPORTED with a message about a field of the block. */
ln_status ln_scheme_unsupported(const ln_quant *q, const char *field, const json_t *value, const char *wanted,
                                ln_error *err);

/* Finds the tensor of a weight with this leaf instead of `.weight`, under any of the names that are asked
 * for; *weight becomes the name. NULL: there is none. */
const ln_tensor *ln_scheme_find(const ln_source *s, const ln_source_ask *ask, const char *leaf,
                                const char **weight);
/* Sets *out to a tensor of the same module; if it is missing, records that and sets *out to NULL. */
void ln_scheme_part(const ln_source *s, const ln_source_ask *ask, const char *weight, const char *leaf,
                    const ln_tensor **out);
/* Returns LN_ENUMERIC: tensor `x` has a value that makes no weight. */
ln_status ln_scheme_bad_value(const ln_tensor *x, const char *wanted, const char *found, ln_error *err);
/* Returns LN_EINVALID: tensor `x` contradicts the configuration or another tensor. */
ln_status ln_scheme_bad_tensor(const ln_source *s, const ln_tensor *x, const char *text, ln_error *err);

/* A place in a buffer for rows of a weight, and what the sources that copy rows of another one do with it. */
typedef struct ln_row_place {
    uint8_t *data, *scales, *offsets;
} ln_row_place;
/* Returns the place of row `at` in a buffer for n rows. */
ln_row_place ln_row_place_of(const ln_weight *w, void *buffer, int64_t n, int64_t at);
/* Copies n rows, every `step`-th of `from`. */
void ln_rows_copy(const ln_weight *w, ln_row_place to, const ln_encoded_rows *from, int64_t n, int64_t step);
/* Releases the file's pages of n rows, which were copied. */
void ln_rows_release(const ln_weight *w, const ln_encoded_rows *rows, int64_t n);
/* Sets the format of a weight whose rows are computed from those of a part. */
void ln_take_format(ln_weight *w, const ln_weight *part);

/* Allocates what a source knows of a weight; NULL: out of memory. */
void *ln_scheme_keep(const ln_source *s, const void *what, size_t bytes);

#endif
