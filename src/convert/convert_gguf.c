/* Writes a GGUF file as a model directory in Hugging Face layout: dense, or quantised again.
 *
 * Every weight is computed in f32 as the engine computes with it, then rounded once. Norms that the file has
 * as 1 + w become w again if the family's class adds the 1. The template of conversations and the ids that
 * end a text come from the metadata. */
#include "../base/c_locale.h"
#include "../base/gguf.h"
#include "../base/thread_pool.h"
#include "../io/directory.h"
#include "../tokenizer/tokenizer.h"
#include "convert.h"

#include <string.h>

static bool is_norm(const ln_spec *s, int slot) {
    switch (slot) {
    case LN_W_NORM: return !s->last_norm_plain;
    case LN_W_ATTN_NORM:
    case LN_W_ATTN_POST:
    case LN_W_FFN_NORM:
    case LN_W_FFN_POST:
    case LN_W_Q_NORM:
    case LN_W_K_NORM: return true;
    default: return false;
    }
}

/* Lists the weights as dense tensors of one dtype. */
static ln_status list_dense(ln_convert *c, uint64_t shard_bytes, ln_error *err) {
    size_t most = 0;
    char name[160];
    uint8_t in;
    for (size_t i = 0; i < c->weights.n; i++) most += (size_t)ln_convert_tensors(c, &c->weights.items[i]);
    c->items = ln_zalloc(most, sizeof *c->items);
    if (!c->items) return LN_OOM(err, "the list of tensors");
    for (size_t i = 0; i < c->weights.n; i++) {
        const ln_weight *w = ln_convert_stored(c, i);
        const bool joint = w && w->n_experts &&
                           !ln_expert_name(name, &c->spec, (ln_slot)w->slot, w->layer, 0) &&
                           ln_joint_name(name, &c->spec, (ln_slot)w->slot, w->layer, &in);
        if (joint) ln_convert_add_joint(c, w, c->dtype, in);
        for (int64_t k = 0; w && !joint && k < ln_convert_tensors(c, w); k++) {
            ln_convert_item *x = &c->items[c->n_items++];
            x->w = ln_convert_tensor(c, w, k);
            x->dtype = c->dtype;
            ln_convert_name(c, x);
        }
    }
    for (size_t i = 0; i < c->n_items; i++)
        if (c->items[i].in) ln_convert_name(c, &c->items[i]), c->items[i].same_name = false;
    ln_convert_lay_out(c, shard_bytes);
    return LN_OK;
}

static ln_status decide(ln_convert *c, const ln_convert_options *opt, ln_dtype dtype, uint64_t shard_bytes,
                        ln_error *err) {
    const ln_quantize_options q = {.bits = opt->bits, .group = opt->group};
    c->dtype = dtype;
    LN_TRY(opt->bits ? ln_convert_decide(c, &q, shard_bytes, err) : list_dense(c, shard_bytes, err));
    ln_convert_compute(c);
    return LN_OK;
}

void ln_convert_compute(ln_convert *c) {
    for (size_t i = 0; i < c->n_items; i++) {
        ln_convert_item *x = &c->items[i];
        x->computed = !x->mxfp4;
        if (is_norm(&c->spec, x->w->slot)) x->norm_shift = c->spec.norm_shift;
    }
}

ln_status ln_convert_gguf(const char *model, const char *out, const ln_convert_options *opt,
                          uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    ln_status st = LN_OK;
    char shown[LN_PATH_TEXT];
    const int n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), 256);
    if (!c) return LN_OOM(err, "a model");
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(ln_convert_open(c, model, err));
    if (!c->config.of_gguf)
        LN_GO(ln_fail(err, LN_EUSAGE, "%s: a model directory already; expected a GGUF file",
                      ln_path_text(shown, c->from)));
    LN_GO(decide(c, opt, opt->f32 ? LN_F32 : LN_BF16, shard_bytes, err));
    LN_GO(ln_convert_save(c, out, opt->force, n_threads, fn, user, err));
out:
    ln_convert_close(c);
    ln_free(c);
    return st;
}

/* ---- files ---- */

static ln_status write_template(const ln_gguf *g, const char *to, ln_error *err) {
    ln_gguf_text text;
    bool found;
    LN_TRY(ln_gguf_get_text(g, "tokenizer.chat_template", &text, &found, err));
    return found ? ln_convert_text(to, "chat_template.jinja", text.data, text.bytes, err) : LN_OK;
}

static bool add_id(json_t *list, int64_t id) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == id) return true;
    return json_array_append_new(list, json_integer(id)) == 0;
}

static ln_status write_generation(const ln_gguf *g, const char *to, ln_error *err) {
    static const char *const ends[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    char key[64];
    int64_t id = 0;
    bool found;
    json_t *out = json_object(), *list = json_array();
    ln_status st = json_object_set(out, "eos_token_id", list) == 0 ? LN_OK : LN_OOM(err, "a configuration");
    json_decref(list);
    for (size_t i = 0; st == LN_OK && i < LN_COUNT(ends); i++) {
        (void)ln_snprintf(key, sizeof key, "tokenizer.ggml.%s", ends[i]);
        st = ln_gguf_int(g, key, 0, INT32_MAX, &id, &found, err);
        if (st == LN_OK && found && !add_id(list, id)) st = LN_OOM(err, "a configuration");
    }
    if (st == LN_OK) st = ln_gguf_int(g, "tokenizer.ggml.bos_token_id", 0, INT32_MAX, &id, &found, err);
    if (st == LN_OK && found && json_object_set_new(out, "bos_token_id", json_integer(id)) != 0)
        st = LN_OOM(err, "a configuration");
    if (st == LN_OK && json_array_size(list) > 0)
        st = ln_convert_json(to, "generation_config.json", out, err);
    json_decref(out);
    return st;
}

/* Writes tokenizer.json and tokenizer_config.json. A tokenizer that is not read is not written: weights can
 * be converted without it. */
static ln_status write_tokenizer(const ln_gguf *g, const char *to, ln_error *err) {
    json_t *tokenizer, *config;
    ln_error why = {0};
    ln_status st = ln_tok_json_of_gguf(&tokenizer, &config, g, &why);
    if (st == LN_EIO || st == LN_EUNSUPPORTED) {
        ln_log(LN_LOG_WARN, "no tokenizer.json is written: %s", why.message);
        return LN_OK;
    }
    if (st != LN_OK) st = ln_fail(err, st, "%s", why.message);
    if (st == LN_OK) st = ln_convert_json(to, "tokenizer.json", tokenizer, err);
    if (st == LN_OK) st = ln_convert_json(to, "tokenizer_config.json", config, err);
    json_decref(tokenizer);
    json_decref(config);
    return st;
}

ln_status ln_convert_gguf_files(const ln_convert *c, const char *to, ln_error *err) {
    ln_gguf *g;
    LN_TRY(ln_gguf_open(&g, c->from, err));
    ln_status st = write_template(g, to, err);
    if (st == LN_OK) st = write_generation(g, to, err);
    if (st == LN_OK) st = write_tokenizer(g, to, err);
    ln_gguf_close(&g);
    return st;
}
