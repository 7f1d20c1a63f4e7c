/* Layouts of temps that belong to the CPU device: the pitch of rows, and row panels.
 *
 * A panel is 32 consecutive rows (the last panel has as many as remain), stored as 16 columns of its first
 * row, the same columns of its second row and so on, then the next 16 columns of each row. A kernel that
 * computes 16 outputs of row after row, as products do, then writes one stream and not a cache line on each
 * of 32 memory pages. With fewer live rows than a panel a value is stored row-major. */
#ifndef LN_PANEL_H
#define LN_PANEL_H

#include "../../../ops/ops.h"

enum { LN_CPU_PANELS = LN_LAYOUT_DEVICE };
enum { LN_PANEL_ROWS = 32, LN_PANEL_COLS = 16 };

/* Pitch: the distance from one row to the next, in elements of 4 bytes, of 2 where the layout is narrow. The
 * pitch of a long row is an odd number of 64-byte cache lines: otherwise all rows of a column would map to a
 * few cache sets, which slows down products that read or write 16 rows at a time
 * (docs/decisions/008-amx-tiles.md). */
static inline int64_t ln_cpu_pitch(ln_format f, uint8_t layout, int64_t cols) {
    const int64_t line = layout == LN_LAYOUT_NARROW ? 32 : 16;
    if (f.kind >= LN_FORMAT_BFP && layout != LN_CPU_PANELS)
        return (ln_format_row_elements(f, cols) + 31) / 32 * 32 +
               16; /* in panels the pitch is that of the f32 rows, whose buffer they share */
    return cols >= 256 && cols % 32 == 0 ? (cols / line | 1) * line : cols;
}

/* The index, in elements from the start of the value, of column c of row r in a value of `rows` rows, whose
 * columns are a multiple of 16. */
static inline int64_t ln_panel_at(int64_t rows, int64_t pitch, int64_t r, int64_t c) {
    const int64_t first = r - r % LN_PANEL_ROWS, n = LN_MIN(rows - first, (int64_t)LN_PANEL_ROWS);
    return first * pitch + c / LN_PANEL_COLS * LN_PANEL_COLS * n + (r - first) * LN_PANEL_COLS +
           c % LN_PANEL_COLS;
}
/* Layout of row r of int8 pairs in a row panel of n rows: for each 64 columns, n lines of 64 high digits h,
 * one for each row, then n lines of low digits l; the sums of the rows follow at the end of the panel, in
 * descending order. A product of 32 rows by 64 columns then reads 4 KB in one stream. pitch is in bytes.
 *
 * The digits may overwrite the f32 rows that they are computed from, where those are in a panel of the same
 * pitch and the pitch leaves padding after the columns: the digits of a row occupy lines that held the same
 * row's elements of the same or of earlier columns, and its sums are stored in the padding. */
static inline ln_i8pair_layout ln_i8pair_panel(const void *data, int64_t rows, int64_t pitch, int64_t r) {
    const int64_t first = r - r % LN_PANEL_ROWS, n = LN_MIN(rows - first, (int64_t)LN_PANEL_ROWS),
                  i = r - first;
    int8_t *panel = (int8_t *)(uintptr_t)data + first * pitch;
    return (ln_i8pair_layout){panel + i * 64, n * 64, n * 128,
                              panel + n * pitch - (i + 1) * (int64_t)sizeof(ln_i8pair_sums)};
}

static inline bool ln_arg_in_panels(const ln_arg *a) { return a->layout == LN_CPU_PANELS; }
/* Index, in elements from data, of column c of row r. */
static inline int64_t ln_arg_at(const ln_arg *a, int64_t r, int64_t c) {
    return ln_arg_in_panels(a) ? ln_panel_at(a->rows, a->pitch, r, c) : r * a->pitch + c;
}
/* Layout of row r of int8 pairs. */
static inline ln_i8pair_layout ln_arg_i8pair(const ln_arg *a, int64_t r) {
    return ln_arg_in_panels(a)
               ? ln_i8pair_panel(a->data, a->rows, a->pitch * (int64_t)sizeof(float), r)
               : ln_i8pair_row_layout((const char *)a->data + r * a->pitch * (int64_t)sizeof(float), a->cols);
}

#endif
