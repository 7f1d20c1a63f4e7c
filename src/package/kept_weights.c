/* How a model's matrices are stored in its files, and what the engine keeps of them in memory: as texts. */
#include "package.h"

#include <stdio.h>
#include <string.h>

/* The encoding of a matrix as text. */
static void encoding_text(const ln_weight *w, char out[80]) {
    const ln_groups code = ln_encoding_groups(w->enc);
    if (code.bits) (void)snprintf(out, 80, "affine groups of %d bits", code.bits);
    else if (ln_encoding_is_coded(w->enc))
        (void)snprintf(out, 80, "%s (no fast kernel)", ln_stored_name(w->enc.kind));
    else (void)snprintf(out, 80, "%s", w->dtype == LN_BF16 ? "bf16" : w->dtype == LN_F16 ? "f16" : "f32");
}

void ln_package_kept(const ln_package *m, char out[160]) {
    enum { MOST = 8 };
    char names[MOST][80], text[80];
    int counts[MOST] = {0}, n = 0;
    size_t at = 0;
    for (size_t i = 0; i < m->weights.n; i++) {
        if (!m->weights.items[i].d1) continue;
        int k = 0;
        encoding_text(&m->weights.items[i], text);
        while (k < n && strcmp(names[k], text) != 0) k++;
        if (k == MOST) continue;
        if (k == n) memcpy(names[n++], text, sizeof text);
        counts[k]++;
    }
    out[0] = 0;
    for (int k = 0; k < n && at < 159; k++)
        at += (size_t)snprintf(out + at, 160 - at, "%s%d in %s", k ? ", " : "", counts[k], names[k]);
}

/* Writes the types of a GGUF file's tensors, those of the most bytes first, as many as fit. */
static void gguf_text(const ln_package *m, char out[32]) {
    enum { TYPES = 128 };
    uint64_t sums[TYPES] = {0};
    size_t at = (size_t)snprintf(out, 32, "gguf");
    for (size_t i = 0; i < m->tensors.n; i++) {
        const unsigned type = (unsigned)m->tensors.items[i].dtype;
        if (type < TYPES) sums[type] += m->tensors.items[i].bytes;
    }
    for (bool first = true;; first = false) {
        int most = 0;
        for (int k = 0; k < TYPES; k++)
            if (sums[k] > sums[most]) most = k;
        const char *name = ln_st_dtype_name((ln_st_dtype)most);
        if (!sums[most] || at + strlen(name) + 3 > 31) return;
        at += (size_t)snprintf(out + at, 32 - at, "%s%s", first ? ": " : ", ", name);
        sums[most] = 0;
    }
}

void ln_package_stored(const ln_package *m, char out[32]) {
    const char *method = ln_quant_method(&m->spec.quant);
    if (m->config.of_gguf) gguf_text(m, out);
    else (void)snprintf(out, 32, "%s", method ? method : "dense");
}
