/* Weights in coded rows (quant/coded.h) in memory of the CPU device: every ISA level reads them as rows.
 *
 *     | ln_coded | groups of columns | codes, row after row | scales | offsets |    each part aligned to 64
 */
#include "../exec.h"
#include "coded_weight.h"

enum { ALIGN = 64 };

typedef struct parts {
    size_t columns, codes, scales, offsets, bytes;
} parts;
static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static parts parts_of(const ln_weight_desc *w) {
    const size_t D = (size_t)ln_weight_desc_rows(w), C = (size_t)ln_weight_desc_cols(w);
    const ln_row_bytes row = ln_encoding_row(w->enc, (int64_t)C);
    parts p = {.columns = aligned(sizeof(ln_coded))};
    p.codes = p.columns + (row.offsets ? aligned(C * sizeof(uint16_t)) : 0);
    p.scales = p.codes + aligned(D * (size_t)row.data);
    p.offsets = p.scales + aligned(D * (size_t)row.scales);
    p.bytes = p.offsets + aligned(D * (size_t)row.offsets);
    return p;
}

size_t ln_cpu_coded_bytes(const ln_weight_desc *w) { return parts_of(w).bytes; }

static void copy_rows(char *to, const void *from, int64_t row0, int64_t n, int64_t bytes, int64_t pitch) {
    for (int64_t r = 0; r < n && bytes; r++)
        memcpy(to + (row0 + r) * bytes, (const char *)from + r * (pitch ? pitch : bytes), (size_t)bytes);
}

void ln_cpu_coded_upload(const ln_weight_desc *w, const ln_host_weight *h, void *buffer) {
    const parts p = parts_of(w);
    const int64_t C = ln_weight_desc_cols(w);
    const ln_row_bytes row = ln_encoding_row(w->enc, C);
    char *at = buffer;
    const bool columns = row.offsets && h->columns;
    const ln_coded here = {.enc = w->enc,
                           .rows = {.data = at + p.codes,
                                    .scales = at + p.scales,
                                    .offsets = row.offsets ? at + p.offsets : NULL,
                                    .columns = columns ? (uint16_t *)(void *)(at + p.columns) : NULL},
                           .cols = C};
    memcpy(at, &here, sizeof here);
    if (columns) memcpy(at + p.columns, h->columns, (size_t)C * sizeof *h->columns);
    copy_rows(at + p.codes, h->data, h->row0, h->n_rows, row.data, h->pitch);
    copy_rows(at + p.scales, h->scales, h->row0, h->n_rows, row.scales, h->scale_pitch);
    copy_rows(at + p.offsets, h->offsets, h->row0, h->n_rows, row.offsets, h->offset_pitch);
}
