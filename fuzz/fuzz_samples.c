/* Fuzzes the reader of training data. The first byte chooses whether the model has a chat template and a stop
 * id, and the length to which samples are cut; the rest is a file of lines. Samples that are returned have
 * valid ids, at least one counted target, and the digest of a second reading. */
#include "fuzz_dir.h"
#include "tokenizers.h"

#include "train/dataset.h"

static ln_package model;
static ln_model_template *tmpl;

static void fuzz_open(void) {
    static const char text[] =
        "{%- for m in messages %}{{- '<s>' + m.role + '\n' + (m.content or '') }}{%- if m.tool_calls %}"
        "{{- m.tool_calls|tojson }}{%- endif %}{{- '<s>\n' }}{%- endfor %}{%- if tools %}{{- tools|length }}"
        "{%- endif %}{{- strftime_now('%d') }}{%- if add_generation_prompt %}{{- '<s>assistant\n' }}{%- "
        "endif %}";
    open_tokenizers();
    dir_open();
    dir_put("t.jinja", text, sizeof text - 1);
    must(ln_model_template_open_file(&tmpl, dir_path("t.jinja"), NULL) == LN_OK);
    model.tok = toks[2]; /* with added tokens and a post-processor */
    must(ln_model_template_bind(tmpl, model.tok, NULL) == LN_OK);
    model.spec.V = ln_tok_count(model.tok);
    model.gen.bos = -1;
    model.gen.eos[0] = 2;
}

static void check(const train_data *d, size_t most) {
    uint64_t counted = 0;
    size_t n_ids = 0;
    must(d->n > 0 && d->kind < TRAIN_N_KINDS);
    for (size_t i = 0; i < d->n; i++) {
        const train_sample *s = &d->samples[i];
        uint32_t n = 0;
        must(s->n >= 2 && s->n <= most && s->at == n_ids && s->line > 0);
        for (uint32_t k = 0; k < s->n; k++) {
            const uint32_t id = d->ids[s->at + k];
            must((int64_t)(id & ~TRAIN_COUNTED) < model.spec.V);
            must(k > 0 || !(id & TRAIN_COUNTED));
            n += (id & TRAIN_COUNTED) != 0;
        }
        must(n == s->n_counted && n > 0);
        counted += n, n_ids += s->n;
    }
    must(counted == d->n_counted && n_ids == d->n_ids);
}

static ln_status read_data(train_data *d, size_t most, ln_error *err) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s", dir_path("data.jsonl"));
    return train_data_open(d, &model, path, (int64_t)most, false, "2025-07-10T12:34:56", NULL, err);
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    train_data d, again;
    const int how = bytes ? data[0] : 0;
    const size_t most = 2 + (size_t)(how >> 2);
    model.tmpl = how & 1 ? tmpl : NULL;
    model.gen.n_eos = how & 2 ? 1 : 0;
    dir_put("data.jsonl", data + (bytes > 0), bytes - (bytes > 0));
    ln_status st = read_data(&d, most, err);
    if (st == LN_OK) check(&d, most);
    if (st == LN_OK) train_data_say(&d);
    if (st == LN_OK) {
        st = read_data(&again, most, err);
        must(st == LN_EMEMORY || (st == LN_OK && strcmp(d.samples_digest, again.samples_digest) == 0));
        train_data_close(&again);
    }
    train_data_close(&d);
    return st;
}
