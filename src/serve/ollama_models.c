/* What ollama's clients ask about models: /api/tags, /api/show, /api/ps, /api/version. One model is served,
 * whose aliases and adapters are further entries. */
#include "../base/c_locale.h"
#include "../base/json_write.h"
#include "dialect.h"

#include <stdio.h>
#include <string.h>

/* The level of ollama's API that is answered: clients compare it with the one that they need. */
static const char api_version[] = "0.12.11";

static void put_parameters(ln_str *out, uint64_t n) {
    const double v = (double)n;
    char text[32];
    (void)ln_snprintf(text, sizeof text,
                      v >= 1e9   ? "%.1fB"
                      : v >= 1e6 ? "%.2fM"
                                 : "%.2fK",
                      v >= 1e9   ? v / 1e9
                      : v >= 1e6 ? v / 1e6
                                 : v / 1e3);
    put_text(out, "parameter_size", text);
}

static void put_details(ln_str *out, const server *s) {
    const ln_info *m = &s->info;
    const size_t n = strlen(m->path);
    char bits[32];
    (void)snprintf(bits, sizeof bits, "%d-bit", m->bits);
    put_object(out, "details");
    put_text(out, "parent_model", "");
    put_text(out, "format", n > 5 && strcmp(m->path + n - 5, ".gguf") == 0 ? "gguf" : "safetensors");
    put_text(out, "family", m->model_type);
    put_list(out, "families");
    ln_str_json(out, m->model_type, strlen(m->model_type));
    ln_str_adds(out, "]");
    put_parameters(out, m->n_parameters);
    put_text(out, "quantization_level",
             m->bits > 0                         ? bits
             : strcmp(m->dtype, "bfloat16") == 0 ? "BF16"
             : strcmp(m->dtype, "float16") == 0  ? "F16"
             : strcmp(m->dtype, "float32") == 0  ? "F32"
                                                 : m->dtype);
    ln_str_adds(out, "}");
}

/* Begins entry i. No digest is computed of the files. */
static void begin_model(ln_str *out, const server *s, size_t i) {
    ln_str_adds(out, i > 0 ? ",{" : "{");
    put_text(out, "name", s->models->names[i]);
    put_text(out, "model", s->models->names[i]);
    put_uint(out, "size", s->info.weights_bytes);
    put_text(out, "digest", "");
    put_details(out, s);
}

void handle_tags(request_context *x) {
    const server *s = x->s;
    ln_str out = {0};
    ln_str_adds(&out, "{\"models\":[");
    for (size_t i = 0; i < s->models->n; i++) {
        begin_model(&out, s, i);
        put_text(&out, "modified_at", s->created_at);
        ln_str_adds(&out, "}");
    }
    ln_str_adds(&out, "]}");
    reply_json(x, &out);
}

/* The model stays loaded until the server ends. */
void handle_ps(request_context *x) {
    const server *s = x->s;
    ln_str out = {0};
    ln_str_adds(&out, "{\"models\":[");
    begin_model(&out, s, 0);
    put_text(&out, "expires_at", "9999-12-31T23:59:59Z");
    put_uint(&out, "size_vram", s->plan.device_bytes);
    put_int(&out, "context_length", s->plan.n_ctx);
    ln_str_adds(&out, "}]}");
    reply_json(x, &out);
}

void handle_api_version(request_context *x) {
    ln_str out = {0};
    ln_str_addf(&out, "{\"version\":\"%s\",\"linnet\":\"%s\"}", api_version, ln_version());
    reply_json(x, &out);
}

/* ---- /api/show ---- */

static void put_fact(ln_str *out, const server *s, const char *name, int64_t v) {
    char key[160];
    (void)snprintf(key, sizeof key, "%s.%s", s->info.model_type, name);
    put_int(out, key, v);
}

/* The context is the server's, which is at most the model's. */
static void put_facts(ln_str *out, const server *s) {
    const ln_info *m = &s->info;
    put_object(out, "model_info");
    put_text(out, "general.architecture", m->model_type);
    put_text(out, "general.basename", s->name);
    put_uint(out, "general.parameter_count", m->n_parameters);
    put_fact(out, s, "context_length", s->plan.n_ctx);
    put_fact(out, s, "embedding_length", m->width);
    put_fact(out, s, "block_count", m->n_layers);
    put_fact(out, s, "feed_forward_length", m->ffn_width);
    put_fact(out, s, "attention.head_count", m->n_heads);
    put_fact(out, s, "attention.head_count_kv", m->n_kv_heads);
    put_fact(out, s, "vocab_size", m->vocab_size);
    ln_str_adds(out, "}");
}

/* Defaults of requests, as a Modelfile has them. */
static void put_settings(ln_str *out, const server *s) {
    const ln_sampling *d = &s->target.sampling;
    ln_str text = {0};
    const struct {
        const char *name;
        double value;
    } rows[] = {{"temperature", d->temperature},
                {"top_k", (double)d->top_k},
                {"top_p", d->top_p},
                {"min_p", d->min_p},
                {"repeat_penalty", d->repeat_penalty}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_str_addf(&text, i > 0 ? "\n%-30s " : "%-30s ", rows[i].name);
        ln_str_double(&text, rows[i].value);
    }
    put_bytes(out, "parameters", text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    ln_str_free(&text);
}

static ln_status show(request_context *x, const json_t *body) {
    static const char *const known[] = {"model", "name", "verbose", "system", "options", "template", NULL};
    static const char *const none[] = {NULL};
    const server *s = x->s;
    char found[80];
    size_t i;
    json_t *model = ollama_model(x, body);
    if (!json_is_string(model)) {
        const ln_status st =
            wire_refuse(&x->why, "model", "expected a text, found %s", ln_json_text(model, found));
        json_decref(model);
        return st;
    }
    ln_status st =
        wire_find_model(&i, &x->models->target, json_string_value(model), json_string_length(model), &x->why);
    json_decref(model);
    LN_TRY(st);
    dialect_others(body, none, known);
    ln_str_adds(&x->out, "{");
    put_text(&x->out, "modelfile", "");
    put_settings(&x->out, s);
    put_bytes(&x->out, "template", s->chat_template.data ? s->chat_template.data : "", s->chat_template.len);
    put_details(&x->out, s);
    put_facts(&x->out, s);
    ln_str_addf(&x->out, ",\"capabilities\":[\"completion\",\"tools\"%s]",
                s->info.has_reasoning || s->info.has_think_switch ? ",\"thinking\"" : "");
    put_text(&x->out, "modified_at", s->created_at);
    ln_str_adds(&x->out, "}");
    return LN_OK;
}

static void show_body(work *w) {
    request_context *x = (request_context *)(void *)w;
    json_t *body = NULL;
    if (request_read_object(x, &body) == LN_OK) (void)show(x, body);
    json_decref(body);
}

void handle_show(request_context *x) { request_work(x, &x->s->preparing, show_body, request_answer); }
