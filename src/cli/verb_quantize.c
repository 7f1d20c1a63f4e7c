/* linnet quantize, convert, fuse and init: write a model into a new directory, and print a line for each
 * tensor. */
#include "cli.h"

#include <math.h>
#include <stdio.h>

typedef struct quantizing {
    bool json;
    ln_str tensors; /* JSON of the tensors so far */
    int64_t n_params;
    uint64_t before, after;
} quantizing;

static const int widths[] = {2, 3, 4, 5, 6, 8},
                 groups[] = {32, 64, 128}; /* in the order of the words of the flags' CHOICE */

static void add_json(quantizing *q, const ln_quantized *t) {
    ln_str *s = &q->tensors;
    ln_str_adds(s, s->len ? ",{" : "{");
    put_text(s, "name", t->name);
    put_key(s, "shape");
    ln_str_addf(s, t->cols ? "[%lld,%lld]" : "[%lld]", (long long)t->rows, (long long)t->cols);
    put_key(s, "bits");
    ln_str_addf(s, t->bits ? "%d" : "null", t->bits);
    put_key(s, "group");
    ln_str_addf(s, t->bits ? "%d" : "null", t->group);
    put_uint(s, "bytes_before", t->bytes_before);
    put_uint(s, "bytes", t->bytes);
    put_real(s, "rms_error", t->rms_error);
    put_real(s, "max_error", t->max_error);
    ln_str_adds(s, "}");
}

static ln_status add_line(const ln_quantized *t, ln_error *err) {
    ln_str s = {0};
    char size[32], form[32] = "dense";
    if (t->bits) (void)snprintf(form, sizeof form, "%d bit g%d", t->bits, t->group);
    ln_str_addf(&s, "%-50s %6lld x %-6lld %-10s %10s", t->name, (long long)t->rows,
                (long long)LN_MAX(t->cols, 1), form, bytes_text(size, t->bytes));
    if (t->bits) ln_str_addf(&s, "  error %.2f %%, at most %.2g", 100 * t->rms_error, t->max_error);
    ln_str_adds(&s, "\n");
    return out_str(&s, err);
}

/* The members that the results of conversions begin and end with. `bits` 0: the result is dense. */
static void begin_json(ln_str *s, const char *dir, int bits, int group) {
    ln_str_adds(s, "{");
    put_text(s, "path", dir);
    put_key(s, "bits");
    ln_str_addf(s, bits ? "%d" : "null", bits);
    put_key(s, "group");
    ln_str_addf(s, bits ? "%d" : "null", group);
}
static void end_json(ln_str *s, const quantizing *q) {
    put_key(s, "tensors");
    ln_str_adds(s, "[");
    ln_str_add(s, q->tensors.data, q->tensors.len);
    ln_str_adds(s, "]}\n");
}

static ln_status on_tensor(void *user, const ln_quantized *t, ln_error *err) {
    quantizing *q = user;
    q->n_params += t->rows * LN_MAX(t->cols, 1);
    q->before += t->bytes_before;
    q->after += t->bytes;
    if (signals_seen()) return ln_fail(err, LN_ECANCELLED, "stopped; nothing was written");
    if (!q->json) return add_line(t, err);
    add_json(q, t);
    return LN_OK;
}

static ln_status print_end(quantizing *q, const char *dir, const ln_quantize_options *o, double ratio,
                           ln_error *err) {
    ln_str s = {0};
    char before[32], after[32], path[LN_PATH_TEXT];
    double bits = 8 * (double)q->after / (double)q->n_params;
    if (!q->json) {
        ln_str_addf(&s, "%s: %s, was %s; %.3f bits a weight\n", ln_path_text(path, dir),
                    bytes_text(after, q->after), bytes_text(before, q->before), bits);
        return out_str(&s, err);
    }
    if (q->tensors.failed) return LN_OOM(err, "the result");
    ln_str_adds(&s, "{");
    put_text(&s, "path", dir);
    put_int(&s, "bits", o->bits);
    put_int(&s, "group", o->group);
    put_uint(&s, "bytes_before", q->before);
    put_uint(&s, "bytes", q->after);
    put_real(&s, "bits_per_weight", bits);
    put_real(&s, "perplexity_ratio", ratio); /* NaN becomes null */
    end_json(&s, q);
    return out_str(&s, err);
}

ln_status cmd_quantize(const args *a, ln_error *err) {
    quantizing q = {.json = has(a, F_JSON)};
    const char *dir = a->flag[F_OUTPUT].text;
    ln_quantize_options o = {.size = sizeof(ln_quantize_options),
                             .bits = has(a, F_BITS) ? widths[a->flag[F_BITS].i] : 4,
                             .group = has(a, F_GROUP) ? groups[a->flag[F_GROUP].i] : 64,
                             .overrides = a->overrides,
                             .n_overrides = a->n_overrides,
                             .n_threads = (int)a->flag[F_THREADS].i,
                             .force = has(a, F_FORCE)};
    signals_note(true);
    ln_status st = ln_quantize(a->model, dir, &o, on_tensor, &q, err);
    signals_note(false);
    const double ratio =
        st == LN_OK && !signals_seen() ? rounding_measure(a->model, dir, o.n_threads) : (double)NAN;
    if (st == LN_OK) st = print_end(&q, dir, &o, ratio, err);
    if (st == LN_OK) rounding_warn(ratio, o.bits);
    ln_str_free(&q.tensors);
    return st;
}

/* linnet convert: a GGUF file as a model directory. */
static ln_status print_converted(quantizing *q, const char *dir, const ln_convert_options *o, ln_error *err) {
    ln_str s = {0};
    char after[32], path[LN_PATH_TEXT];
    if (!q->json) {
        ln_str_addf(&s, "%s: %s\n", ln_path_text(path, dir), bytes_text(after, q->after));
        return out_str(&s, err);
    }
    if (q->tensors.failed) return LN_OOM(err, "the result");
    begin_json(&s, dir, o->bits, o->group);
    put_uint(&s, "bytes_before", q->before);
    put_uint(&s, "bytes", q->after);
    end_json(&s, q);
    return out_str(&s, err);
}

ln_status cmd_convert(const args *a, ln_error *err) {
    quantizing q = {.json = has(a, F_JSON)};
    ln_convert_options o = ln_convert_options_default();
    o.bits = has(a, F_BITS) ? widths[a->flag[F_BITS].i] : 0;
    o.group = has(a, F_GROUP) ? groups[a->flag[F_GROUP].i] : o.bits ? 64 : 0;
    o.f32 = has(a, F_UNROUNDED);
    o.n_threads = (int)a->flag[F_THREADS].i;
    o.force = has(a, F_FORCE);
    signals_note(true);
    ln_status st = ln_convert_model(a->model, a->flag[F_OUTPUT].text, &o, on_tensor, &q, err);
    signals_note(false);
    if (st == LN_OK) st = print_converted(&q, a->flag[F_OUTPUT].text, &o, err);
    ln_str_free(&q.tensors);
    return st;
}

/* linnet init: a model with random weights. */
static ln_status print_new(quantizing *q, const char *dir, ln_error *err) {
    ln_str s = {0};
    char size[32], path[LN_PATH_TEXT];
    if (!q->json) {
        ln_str_addf(&s, "%s: %s, %lld parameters\n", ln_path_text(path, dir), bytes_text(size, q->after),
                    (long long)q->n_params);
        return out_str(&s, err);
    }
    if (q->tensors.failed) return LN_OOM(err, "the result");
    ln_str_adds(&s, "{");
    put_text(&s, "path", dir);
    put_int(&s, "parameters", q->n_params);
    put_uint(&s, "bytes", q->after);
    end_json(&s, q);
    return out_str(&s, err);
}

ln_status cmd_init(const args *a, ln_error *err) {
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"}; /* as the words of --dtype */
    quantizing q = {.json = has(a, F_JSON)};
    ln_init_options o = ln_init_options_default();
    LN_TRY(seed_of(a, &o.seed, err));
    o.dtype = has(a, F_DTYPE) ? dtypes[a->flag[F_DTYPE].i] : NULL;
    o.tokenizer = has(a, F_TOKENIZER) ? a->flag[F_TOKENIZER].text : NULL;
    o.n_threads = (int)a->flag[F_THREADS].i;
    o.force = has(a, F_FORCE);
    signals_note(true);
    ln_status st = ln_init_model(a->model, a->flag[F_OUTPUT].text, &o, on_tensor, &q, err);
    signals_note(false);
    if (st == LN_OK) st = print_new(&q, a->flag[F_OUTPUT].text, err);
    ln_str_free(&q.tensors);
    return st;
}

static ln_status print_fused(const args *a, quantizing *q, const ln_fuse_options *o, const ln_fuse_report *r,
                             ln_error *err) {
    ln_str s = {0};
    char path[LN_PATH_TEXT], size[32];
    const char *dir = a->flag[F_OUTPUT].text;
    if (!q->json) {
        ln_str_addf(&s, "%s: %s, %d modules added\n", ln_path_text(path, dir), bytes_text(size, q->after),
                    r->n_modules);
        if (r->n_rows)
            ln_str_addf(&s,
                        "logits of %d tokens: fused and applied differ by at most %.2g; the adapter changes "
                        "them by up to %.2g\n",
                        r->n_rows, r->difference, r->change);
        return out_str(&s, err);
    }
    if (q->tensors.failed) return LN_OOM(err, "the result");
    begin_json(&s, dir, o->bits, o->group);
    put_int(&s, "modules", r->n_modules);
    put_uint(&s, "bytes", q->after);
    put_int(&s, "compared_tokens", r->n_rows);
    put_real(&s, "difference", r->n_rows ? r->difference : (double)NAN); /* NaN becomes null */
    put_real(&s, "change", r->n_rows ? r->change : (double)NAN);
    end_json(&s, q);
    return out_str(&s, err);
}

/* Warns if rounding changes the logits by more than half of what the adapter does: then less of the adapter
 * is in the result than of the noise. */
static void warn_of_fused(const ln_fuse_options *o, const ln_fuse_report *r) {
    if (!r->n_rows || !(r->difference > r->change / 2)) return;
    note("warning: rounding changes the logits by up to %.2g, and the adapter by up to %.2g: the result does "
         "not "
         "have what was trained; %s",
         r->difference, r->change,
         o->bits
             ? "leave out --bits, or give more of them, or apply the adapter when the model runs"
             : "fuse it into the model before it was quantised, or apply the adapter when the model runs");
}

ln_status cmd_fuse(const args *a, ln_error *err) {
    quantizing q = {.json = has(a, F_JSON)};
    ln_fuse_options o = ln_fuse_options_default();
    ln_fuse_report r = {.size = sizeof r};
    o.scale = a->adapters[0].scale;
    o.bits = has(a, F_BITS) ? widths[a->flag[F_BITS].i] : 0;
    o.group = has(a, F_GROUP) ? groups[a->flag[F_GROUP].i] : o.bits ? 64 : 0;
    o.n_threads = (int)a->flag[F_THREADS].i;
    o.force = has(a, F_FORCE);
    signals_note(true);
    ln_status st = ln_fuse(a->model, a->adapters[0].dir, a->flag[F_OUTPUT].text, &o, on_tensor, &q, &r, err);
    signals_note(false);
    if (st == LN_OK) st = print_fused(a, &q, &o, &r, err);
    if (st == LN_OK) warn_of_fused(&o, &r);
    ln_str_free(&q.tensors);
    return st;
}
