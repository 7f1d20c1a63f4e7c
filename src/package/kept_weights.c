/* What the engine keeps in memory of a model's matrices, for people: how many in which encoding. */
#include "package.h"

#include <stdio.h>

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
