/* linnet show and linnet ls: information about a model, and the models on this machine. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_or_null(ln_str *s, const char *key, int v) {
    if (v) {
        put_int(s, key, v);
        return;
    }
    put_key(s, key);
    ln_str_adds(s, "null");
}

/* Bits of the files for each parameter, scales included. */
static double bits_a_weight(const ln_info *m) {
    return m->n_parameters ? 8 * (double)m->weights_bytes / (double)m->n_parameters : 0;
}

static ln_status show_json(const ln_info *m, ln_error *err) {
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_text(&s, "path", m->path);
    put_text(&s, "model_type", m->model_type);
    put_text(&s, "dtype", m->dtype);
    put_or_null(&s, "bits", m->bits);
    put_or_null(&s, "group", m->group);
    put_key(&s, "encoding");
    ln_str_adds(&s, "{");
    put_text(&s, "file", m->stored);
    put_text(&s, "memory", m->kept);
    put_real(&s, "bits_a_weight", bits_a_weight(m));
    ln_str_adds(&s, "}");
    put_int(&s, "layers", m->n_layers);
    put_int(&s, "width", m->width);
    put_int(&s, "ffn_width", m->ffn_width);
    put_int(&s, "heads", m->n_heads);
    put_int(&s, "kv_heads", m->n_kv_heads);
    put_int(&s, "head_dim", m->head_dim);
    put_int(&s, "vocab", m->vocab_size);
    put_int(&s, "context", m->n_ctx_max);
    put_or_null(&s, "window", (int)m->window);
    put_bool(&s, "tied", m->tied);
    put_uint(&s, "parameters", m->n_parameters);
    put_uint(&s, "active_parameters", m->n_active_parameters);
    put_uint(&s, "bytes", m->weights_bytes);
    put_int(&s, "files", m->n_files);
    put_bool(&s, "template", m->has_template);
    put_text(&s, "tool_format", m->tool_format[0] ? m->tool_format : NULL);
    put_text(&s, "tokenizer_class", m->tokenizer_class[0] ? m->tokenizer_class : NULL);
    put_text(&s, "tokenizer_differs", m->tokenizer_differs[0] ? m->tokenizer_differs : NULL);
    put_ids(&s, "eos_ids", m->eos_ids, (size_t)m->n_eos);
    put_text(&s, "numerics", numerics_name(m->numerics));
    put_real(&s, "embed_scale", m->embed_scale);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status show_text(const ln_info *m, ln_error *err) {
    ln_str s = {0};
    char size[32], path[LN_PATH_TEXT];
    ln_str_addf(&s, "path        %s\n", ln_path_text(path, m->path));
    ln_str_addf(&s, "type        %s, %s%s\n", m->model_type, m->dtype, m->tied ? ", tied embeddings" : "");
    if (m->bits && m->group) ln_str_addf(&s, "quantised   %d bits, groups of %d\n", m->bits, m->group);
    else if (m->bits) ln_str_addf(&s, "quantised   %d bits, a scale for each row\n", m->bits);
    ln_str_addf(&s, "file        %s, %.2f bits a weight\n", m->stored, bits_a_weight(m));
    ln_str_addf(&s, "in memory   %s\n", m->kept);
    ln_str_addf(&s, "parameters  %.1f M, %s in %d file%s\n", 1e-6 * (double)m->n_parameters,
                bytes_text(size, m->weights_bytes), m->n_files, m->n_files == 1 ? "" : "s");
    if (m->n_active_parameters && m->n_active_parameters != m->n_parameters)
        ln_str_addf(&s, "active      %.1f M, of a token\n", 1e-6 * (double)m->n_active_parameters);
    ln_str_addf(&s, "layers      %d\n", m->n_layers);
    ln_str_addf(&s, "widths      %lld, feed-forward %lld, vocabulary %lld\n", (long long)m->width,
                (long long)m->ffn_width, (long long)m->vocab_size);
    ln_str_addf(&s, "attention   %d query head%s, %d key/value head%s of width %d\n", m->n_heads,
                m->n_heads == 1 ? "" : "s", m->n_kv_heads, m->n_kv_heads == 1 ? "" : "s", m->head_dim);
    ln_str_addf(&s, "context     %lld", (long long)m->n_ctx_max);
    if (m->window) ln_str_addf(&s, ", windows of %lld", (long long)m->window);
    ln_str_addf(&s, "\ntemplate    %s", m->has_template ? "yes: an instruct model" : "none: continues text");
    if (m->tool_format[0]) ln_str_addf(&s, ", calls tools in the format of %s", m->tool_format);
    ln_str_adds(&s, "\n");
    if (m->tokenizer_differs[0])
        ln_str_addf(&s, "tokenizer   tokenizer.json, whose %s transformers' class %s replaces\n",
                    m->tokenizer_differs, m->tokenizer_class);
    ln_str_adds(&s, "eos ids    ");
    for (int i = 0; i < m->n_eos; i++) ln_str_addf(&s, " %d", m->eos_ids[i]);
    ln_str_addf(&s, "%s\nnumerics    %s\n", m->n_eos ? "" : " none", numerics_name(m->numerics));
    if (embed_scale_rounded(m))
        ln_str_addf(&s, "embeddings  times %.9g: sqrt(%lld), %.9g, rounded to %s\n", m->embed_scale,
                    (long long)m->width, sqrt((double)m->width), m->dtype);
    else if (m->embed_scale != 1) ln_str_addf(&s, "embeddings  times %.9g\n", m->embed_scale);
    return out_str(&s, err);
}

/* ---- adapters ---- */

static void put_range(ln_str *s, double lo, double hi) {
    ln_str_double(s, lo);
    if (hi > lo) {
        ln_str_adds(s, " to ");
        ln_str_double(s, hi);
    }
}

static ln_status adapter_json(const ln_adapter_info *m, ln_error *err) {
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_text(&s, "path", m->path);
    put_text(&s, "layout", m->layout);
    put_text(&s, "targets", m->targets);
    put_int(&s, "modules", m->n_modules);
    put_int(&s, "tensors", m->n_tensors);
    put_key(&s, "applied");
    ln_str_addf(&s, m->n_applied < 0 ? "null" : "%d", m->n_applied);
    put_int(&s, "rank_min", m->rank_min);
    put_int(&s, "rank_max", m->rank_max);
    put_real(&s, "scale_min", m->scale_min);
    put_real(&s, "scale_max", m->scale_max);
    put_uint(&s, "parameters", m->n_parameters);
    put_text(&s, "digest", m->digest);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status adapter_text(const ln_adapter_info *m, ln_error *err) {
    ln_str s = {0};
    char path[LN_PATH_TEXT];
    ln_str_addf(&s, "path        %s\nlayout      %s\nrank        ", ln_path_text(path, m->path), m->layout);
    put_range(&s, (double)m->rank_min, (double)m->rank_max);
    ln_str_adds(&s, "\nscale       ");
    put_range(&s, m->scale_min, m->scale_max);
    ln_str_addf(&s, "\ntargets     %s: %d matrices, %llu parameters\n", m->targets, m->n_modules,
                (unsigned long long)m->n_parameters);
    if (m->n_applied >= 0) ln_str_addf(&s, "applied     %d of %d tensors", m->n_applied, m->n_tensors);
    if (m->n_applied >= 0 && m->n_applied < m->n_tensors)
        ln_str_addf(&s,
                    "; the other %d change nothing: tensors of a vision or audio tower, which texts do "
                    "not use, and copies of the model's embedding table or output head",
                    m->n_tensors - m->n_applied);
    if (m->n_applied >= 0) ln_str_adds(&s, "\n");
    ln_str_addf(&s, "digest      %s\n", m->digest);
    return out_str(&s, err);
}

/* linnet show [MODEL] --adapter DIR. */
static ln_status show_adapter(const args *a, ln_error *err) {
    ln_adapter_info *m = ln_zalloc(1, sizeof *m);
    if (!m) return LN_OOM(err, "an adapter's facts");
    m->size = sizeof *m;
    ln_status st = a->n_adapters == 1
                       ? ln_adapter_show(a->adapters[0].dir, a->model, m, err)
                       : ln_fail(err, LN_EUSAGE, "show: expected one --adapter, found %zu", a->n_adapters);
    if (st == LN_OK) st = has(a, F_JSON) ? adapter_json(m, err) : adapter_text(m, err);
    ln_free(m);
    return st;
}

ln_status cmd_show(const args *a, ln_error *err) {
    if (has(a, F_ADAPTER)) return show_adapter(a, err);
    ln_info *m = ln_zalloc(1, sizeof *m);
    if (!m) return LN_OOM(err, "a model's facts");
    m->size = sizeof *m;
    ln_options opt = ln_options_default();
    opt.skip_unknown = has(a, F_SKIP_UNKNOWN);
    ln_status st = ln_show(a->model, &opt, m, err);
    if (st == LN_OK) st = has(a, F_JSON) ? show_json(m, err) : show_text(m, err);
    ln_free(m);
    return st;
}

/* ---- ls ---- */

typedef struct listing {
    bool json;
    ln_str s;
    int n;
} listing;

static ln_status on_found(void *user, const ln_found *f, ln_error *err) {
    listing *l = user;
    char size[32], form[32], path[LN_PATH_TEXT];
    l->n++;
    if (!l->json) {
        if (f->bits) (void)snprintf(form, sizeof form, "%d bit g%d", f->bits, f->group);
        ln_str_addf(&l->s, "%-12s %-10s %10s  %s\n", f->model_type[0] ? f->model_type : "?",
                    f->bits       ? form
                    : f->dtype[0] ? f->dtype
                                  : "?",
                    bytes_text(size, f->bytes), ln_path_text(path, f->path));
        return l->s.failed ? LN_OOM(err, "the list") : LN_OK;
    }
    ln_str_adds(&l->s, l->n > 1 ? ",{" : "{");
    put_text(&l->s, "path", f->path);
    put_text(&l->s, "model_type", f->model_type);
    put_text(&l->s, "dtype", f->dtype);
    put_or_null(&l->s, "bits", f->bits);
    put_or_null(&l->s, "group", f->group);
    put_int(&l->s, "files", f->n_files);
    put_uint(&l->s, "bytes", f->bytes);
    ln_str_add(&l->s, "}", 1);
    return l->s.failed ? LN_OOM(err, "the list") : LN_OK;
}

ln_status cmd_ls(const args *a, ln_error *err) {
    listing l = {.json = has(a, F_JSON)};
    if (l.json) ln_str_adds(&l.s, "{\"models\":[");
    ln_status st = ln_list(a->model, on_found, &l, err);
    if (st == LN_EIO && !l.json && l.n > 0) { /* one of two places cannot be read: what the other holds */
        ln_error later;
        (void)out_str(&l.s, &later);
        return st;
    }
    if (st != LN_OK) {
        ln_str_free(&l.s);
        return st;
    }
    if (l.json) ln_str_adds(&l.s, "]}\n");
    else if (l.n == 0) note("no model found; name a directory, or download one with: hf download ORG/NAME");
    return out_str(&l.s, err);
}
