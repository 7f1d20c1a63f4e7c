/* Rows of packed integer matrices in an encoding that holds them without loss (int_matrix.h). */
#include "int_matrix.h"

#include <math.h>
#include <stdio.h>

enum { ROWS = 16, TILE_BYTES = 1 << 19 }; /* rows of a unit of work; codes that a thread unpacks at a time */

static float scale_at(const ln_int_matrix *m, int64_t d, int64_t group) {
    return ln_num_load(m->scales->data, m->scale, m->by_group ? group * m->D + d : d * m->n_groups + group);
}
static int zero_at(const ln_int_matrix *m, int64_t d, int64_t group) {
    return m->zeros ? m->zero(m, d, group) : 1 << (m->bits - 1);
}

/* The columns of an affine group that divides every group of the matrix; 0: there is none. */
static int affine_group(const ln_int_matrix *m) {
    static const int sizes[] = {128, 64, 32};
    const bool exact = m->scale != LN_F32 || !m->zeros;
    if (m->order || !exact || !ln_affine_bits_ok(m->bits) || m->C % m->group) return 0;
    for (size_t i = 0; i < LN_COUNT(sizes); i++)
        if (m->group % sizes[i] == 0) return sizes[i];
    return 0;
}

/* Whether the columns are in the order of their groups. */
static bool is_in_order(const ln_int_matrix *m) {
    for (int64_t i = 0; i < m->C; i++) {
        int32_t g;
        memcpy(&g, m->order->data + 4 * i, 4);
        if (g != i / m->group) return false;
    }
    return true;
}

static ln_status read_order(const ln_source *s, ln_int_matrix *m, ln_error *err) {
    char text[128];
    if (is_in_order(m)) {
        m->order = NULL;
        return LN_OK;
    }
    uint16_t *columns = ln_arena_alloc(s->arena, (size_t)m->C * sizeof *columns);
    if (!columns) return LN_OOM(err, "the groups of columns");
    for (int64_t i = 0; i < m->C; i++) {
        int32_t g;
        memcpy(&g, m->order->data + 4 * i, 4);
        if (g < 0 || g >= m->n_groups || g > UINT16_MAX) {
            (void)snprintf(text, sizeof text, "column %lld is in group %d; expected 0 to %lld", (long long)i,
                           g, (long long)m->n_groups - 1);
            return ln_scheme_bad_tensor(s, m->order, text, err);
        }
        columns[i] = (uint16_t)g;
    }
    m->columns = columns;
    return LN_OK;
}

ln_status ln_int_matrix_settle(const ln_source *s, ln_int_matrix *m, ln_weight *w, ln_error *err) {
    if (!ln_tensor_is_computed(m->scales, &m->scale))
        return ln_tensor_unsupported(s->tensors, m->scales, "scales in F32, BF16 and F16", err);
    if (m->order) LN_TRY(read_order(s, m, err));
    const int affine = affine_group(m);
    if (!affine && m->n_groups > 1 && m->group > INT16_MAX) /* ln_encoding.group */
        return ln_tensor_unsupported(s->tensors, m->scales, "groups of at most 32767 columns", err);
    w->dtype = m->scale;
    w->code = (ln_groups){m->bits, m->n_groups == 1 ? 0 : (int)m->group};
    w->enc = affine ? ln_encoding_affine((ln_groups){m->bits, affine}, LN_F32, LN_F32)
                    : ln_encoding_zeroed(m->bits, m->scale, m->n_groups == 1 ? 0 : (int)m->group);
    w->made = true;
    w->how = ln_scheme_keep(s, m, sizeof *m);
    return w->how ? LN_OK : LN_OOM(err, "the list of weights");
}

/* ---- rows ---- */

typedef struct making {
    const ln_int_matrix *m;
    const ln_weight *w;
    int64_t row0, n; /* rows that are asked for */
    ln_row_bytes row;
    uint8_t *codes, *scales, *offsets, *tiles; /* tiles: [n_threads][tile][C] */
    int64_t tile;
    _Atomic bool bad; /* a scale is not finite */
} making;

/* Packs codes into a row's bit stream. */
static void pack_row(const uint8_t *q, int64_t n, int bits, uint8_t *out, int64_t bytes) {
    uint64_t held = 0;
    int n_held = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        held |= (uint64_t)q[i] << n_held;
        for (n_held += bits; n_held >= 8; n_held -= 8, held >>= 8) out[at++] = (uint8_t)held;
    }
    if (n_held) out[at++] = (uint8_t)held;
    memset(out + at, 0, (size_t)(bytes - at));
}

/* Writes the scales and offsets of one row; false: a scale is not finite. */
static bool make_units(const making *k, int64_t r) {
    const ln_int_matrix *m = k->m;
    const ln_encoding e = k->w->enc;
    const int64_t d = k->row0 + r;
    const bool affine = e.kind == LN_STORED_AFFINE;
    const int64_t copies = affine ? m->group / e.group : 1;
    for (int64_t g = 0; g < m->n_groups; g++) {
        const float s = scale_at(m, d, g), z = (float)zero_at(m, d, g);
        if (!isfinite(s)) return false;
        for (int64_t i = g * copies; i < (g + 1) * copies; i++) {
            ln_num_store(k->scales + r * k->row.scales, (ln_dtype)e.scale, i, s);
            ln_num_store(k->offsets + r * k->row.offsets, (ln_dtype)e.offset, i, affine ? -s * z : z);
        }
    }
    return true;
}

static void make_rows(void *user, int thread, int64_t lo, int64_t hi) {
    making *k = user;
    const int64_t C = k->m->C, end = LN_MIN(hi * ROWS, k->n);
    uint8_t *tile = k->tiles + thread * k->tile * C;
    for (int64_t r = lo * ROWS; r < end; r += k->tile) {
        const int64_t n = LN_MIN(k->tile, end - r);
        k->m->unpack(k->m, k->row0 + r, n, tile);
        for (int64_t i = 0; i < n; i++) {
            pack_row(tile + i * C, C, k->m->bits, k->codes + (r + i) * k->row.data, k->row.data);
            if (!make_units(k, r + i)) k->bad = true;
        }
    }
}

ln_status ln_int_matrix_rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                             const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!w->how) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    const ln_int_matrix *m = w->how;
    making k = {.m = m,
                .w = w,
                .row0 = row0 + w->row0,
                .n = n,
                .row = ln_encoding_row(w->enc, w->d1),
                .codes = buffer};
    k.scales = k.codes + ln_source_aligned(n * k.row.data);
    k.offsets = k.scales + ln_source_aligned(n * k.row.scales);
    k.tile = LN_MIN(LN_MAX((int64_t)ROWS, TILE_BYTES / m->C / ROWS * ROWS), (int64_t)8 * ROWS);
    k.tiles = ln_alloc((size_t)(k.tile * m->C) * (size_t)work->n_threads);
    if (!k.tiles) return LN_OOM(err, "the codes of a matrix");
    ln_pool_run_units(work->pool, work->n_threads, (n + ROWS - 1) / ROWS,
                      LN_MAX((int64_t)1, LN_POOL_SLICE_BYTES / (ROWS * m->C)), make_rows, &k);
    ln_free(k.tiles);
    for (int64_t i = 0; i < ln_weight_tensors(w); i++)
        if (ln_weight_tensor(w, i))
            ln_guard_release(ln_weight_tensor(w, i)->data, ln_weight_tensor(w, i)->bytes);
    *out =
        (ln_encoded_rows){.data = k.codes, .scales = k.scales, .offsets = k.offsets, .columns = m->columns};
    return k.bad ? ln_scheme_bad_value(m->scales, "finite scales", "a NaN or an infinity", err) : LN_OK;
}
