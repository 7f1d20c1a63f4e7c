/* The common beginning of the verbs that process raw text: prompt, model, ids, engine. */
#include "cli.h"

#include <math.h>

ln_status check_texts(const ln_model *model, ln_error *err) {
    size_t n;
    return ln_tokenize(ln_model_tokenizer(model), "", 0, false, NULL, 0, &n, err);
}

ln_status session_ids(session *s, const args *a, ln_error *err) {
    input in = {0};
    ln_status st = LN_OK;
    LN_GO(input_read(&in, a, false, err));
    LN_GO(ln_model_open(&s->model, a->model, &s->opt, err));
    LN_GO(input_ids(&in, s->model, LN_TEMPLATE_RAW, &s->ids, &s->n_ids, err));
    s->opt.n_expected = (int64_t)s->n_ids;
out:
    input_free(&in);
    return st;
}

ln_status session_open(session *s, const args *a, ln_error *err) {
    LN_TRY(session_ids(s, a, err));
    return ln_engine_open(&s->engine, s->model, &s->opt, err);
}

bool embed_scale_rounded(const ln_info *m) {
    enum { BF16_STEPS = 256 }; /* rounding to bf16 changes a number by less than one part of this */
    const double root = sqrt((double)m->width);
    return (float)m->embed_scale != (float)root && fabs(m->embed_scale - root) * BF16_STEPS < root;
}

void note_embed_scale(const ln_info *m) {
    if (m->numerics != LN_EXACT || !embed_scale_rounded(m)) return;
    note("embeddings are multiplied by %.9g, sqrt(%lld) rounded to %s as the checkpoint is; transformers in "
         "f32 "
         "multiplies by %.9g (docs/numerics.md)",
         m->embed_scale, (long long)m->width, m->dtype, sqrt((double)m->width));
}

void session_close(session *s) {
    ln_engine_close(&s->engine);
    ln_model_close(&s->model);
    ln_free(s->ids);
    s->ids = NULL;
}
