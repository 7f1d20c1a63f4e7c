/* Opens a model directory: configuration, spec, tensors, weights, tokenizer, stop ids, chat template. Also
 * turns prompts into token ids.
 *
 * Opening reads nothing large: weights stay in the file mapping until an engine loads them. */
#include "../base/json.h"
#include "../base/text_memory.h"
#include "../io/directory.h"
#include "../model/adapter_match.h"
#include "package.h"
#include "../chat/builtin_templates.h"

#include <stdio.h>

static int32_t token_id(void *user, const char *text, size_t bytes) { return ln_tok_id(user, text, bytes); }

/* Ids of the vocabulary must be rows of the embedding table. Ids of added tokens may be beyond it: Gemma 3 1B
 * has one that only the larger models embed. */
static ln_status check_vocab(const ln_package *m, ln_error *err) {
    char shown[LN_PATH_TEXT];
    int32_t n = ln_tok_vocab(m->tok);
    if (n <= m->spec.V) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "%s/tokenizer.json: model.vocab: expected ids below %lld, the vocab_size of config.json, "
                   "found %d; is it another model's?",
                   ln_path_text(shown, m->path), (long long)m->spec.V, n - 1);
}

/* A model without tokenizer.json computes all the same: what takes or gives token ids alone runs, what needs
 * a text returns the error that is kept here. */
static ln_status open_tokenizer(ln_package *m, ln_error *err) {
    char path[sizeof m->path + 32];
    const char *dir = ln_package_tokenizer_dir(m);
    ln_error why = {0};
    bool there;
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    LN_TRY(ln_look(path, &there, err));
    const ln_status st = ln_check_tokenizer(dir, &why);
    if (m->tok) return LN_OK; /* it was opened with added tokens */
    if (m->opt.add_tokens)
        return st == LN_OK ? ln_tok_open_adding(&m->tok, dir, m->opt.add_tokens, err)
                           : ln_fail(err, st, "%s", why.message);
    if (st == LN_OK) return ln_tok_open(&m->tok, dir, err);
    if (there || st == LN_EMEMORY) return ln_fail(err, st, "%s", why.message);
    ln_log(LN_LOG_INFO, "%s; token ids can be scored, texts cannot be read or written", why.message);
    return ln_tok_open_absent(&m->tok, &why, err);
}

ln_status ln_package_is_template(const ln_package *m, const char *path, bool *own, ln_error *err) {
    char *data;
    size_t n, n_own = 0;
    const char *source = m->tmpl ? ln_model_template_source(m->tmpl, &n_own) : "";
    LN_TRY(ln_read_file(path, LN_CONFIG_LIMIT, &data, &n, err));
    *own = m->tmpl && n == n_own && memcmp(data, source, n) == 0;
    ln_free(data);
    return LN_OK;
}

/* An adapter that was trained with another template than the model's is asked with its own. */
static ln_status use_adapter_template(ln_package *m, ln_error *err) {
    bool replaced = false;
    for (size_t i = 0; i < m->opt.n_adapter_parts; i++) {
        char path[LN_PATH_MAX], shown[LN_PATH_TEXT];
        bool found = false, own = true;
        ln_error why = {0};
        if (ln_adapter_template(m->opt.adapter[i].dir, path, &found, &why) != LN_OK || !found) continue;
        LN_TRY(ln_package_is_template(m, path, &own, err));
        if (own) continue;
        if (replaced)
            return ln_fail(err, LN_EUSAGE,
                           "%s: differs from the chat template of another adapter; name the one to use in "
                           "ln_options.chat_template",
                           ln_path_text(shown, path));
        ln_model_template_close(&m->tmpl);
        LN_TRY(ln_model_template_open(&m->tmpl, m->path, path, err));
        LN_TRY(ln_model_template_bind(m->tmpl, m->tok, err));
        m->template_error.code = LN_OK;
        m->has_template = replaced = true;
        ln_log(LN_LOG_INFO, "the chat template is that of the adapter: %s", ln_path_text(shown, path));
    }
    return LN_OK;
}

/* A broken template is no error here, since the model can still run without one, unless the caller named the
 * template. */
static ln_status open_template(ln_package *m, ln_error *err) {
    LN_TRY(ln_has_template(m->path, &m->has_template, err));
    ln_status st = ln_model_template_open(&m->tmpl, m->path, m->opt.chat_template, &m->template_error);
    if (st == LN_OK && m->tmpl) st = ln_model_template_bind(m->tmpl, m->tok, &m->template_error);
    m->has_template = m->has_template || m->tmpl;
    if (st == LN_EMEMORY || (st != LN_OK && m->opt.chat_template))
        return ln_fail(err, st, "%s", m->template_error.message);
    if (st != LN_OK) ln_model_template_close(&m->tmpl);
    if (!m->opt.chat_template) LN_TRY(use_adapter_template(m, err));
    m->opt.chat_template = NULL; /* borrowed from the caller, who may free it now */
    return m->tmpl ? LN_OK : ln_controls_open(&m->controls, m->tok, "", 0, err);
}

static bool has_causal_head(const ln_config *c) {
    static const char end[] = "ForCausalLM";
    const char *name = json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0));
    const size_t n = name ? strlen(name) : 0;
    return n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
}

/* Files about embeddings that cannot be used are no error here either, since the model can still generate. */
static ln_status open_embedding(ln_package *m, ln_error *err) {
    ln_emb_model facts = {.width = m->spec.D, .causal_head = has_causal_head(&m->config)};
    LN_TRY(ln_config_int(&m->config, "max_position_embeddings", m->spec.n_ctx, 1, INT32_MAX, &facts.n_ctx,
                         err));
    ln_status st = ln_emb_files_open(&m->embedding, m->path, &facts, &m->embedding_error);
    if (st == LN_OK && m->embedding.lower_case && ln_tok_check(m->tok, &m->embedding_error) == LN_OK)
        st = ln_tok_open_lower(&m->lower_tok, m->path, &m->embedding_error);
    if (st == LN_EMEMORY) return ln_fail(err, st, "%s", m->embedding_error.message);
    if (st == LN_OK) m->embedding_error.code = LN_OK;
    else ln_emb_files_reset(&m->embedding, &facts); /* for callers that name a way of pooling */
    return LN_OK;
}

/* Opens what makes ids of texts and texts of ids: tokenizer, stop ids, chat template. */
static ln_status open_texts(ln_package *m, ln_error *err) {
    LN_TRY(open_tokenizer(m, err));
    LN_TRY(check_vocab(m, err));
    LN_TRY(ln_genconfig_open(&m->gen, m->path, &m->config, m->spec.V, token_id, m->tok, err));
    LN_TRY(open_template(m, err));
    m->delims = ln_reasoning_delims_of(m->tok, m->tmpl);
    LN_TRY(ln_tool_support_find(&m->tools, m->tmpl, err));
    if (m->tools.format->place == LN_CALLS_IN_CHANNEL && !(m->delims && m->delims->channels))
        ln_tool_support_forget(&m->tools); /* the vocabulary lacks the marks */
    return open_embedding(m, err);
}

static ln_status open_parts(ln_package *m, const char *model, ln_error *err) {
    char shared[LN_PATH_MAX];
    ln_json_memo memo;
    LN_TRY(ln_find_model(model, m->path, sizeof m->path, err));
    LN_TRY(ln_config_open(&m->config, m->path, err));
    LN_TRY(ln_spec_open(&m->spec, &m->config, err));
    LN_TRY(ln_tensors_open(&m->tensors, m->path, m->opt.skip_unknown, err));
    LN_TRY(ln_weights_bind(&m->weights, &m->spec, &m->tensors, err));
    LN_TRY(ln_package_change(m, err));
    if (m->opt.add_tokens) LN_TRY(open_tokenizer(m, err));
    LN_TRY(ln_package_add_tokens(m, err));
    if (m->opt.quantize_bits)
        LN_TRY(ln_weights_encode(&m->weights, &m->spec, (ln_groups){m->opt.quantize_bits, 64}, err));
    LN_TRY(ln_path_join(shared, m->path, "tokenizer_config.json", err)); /* which each of the parts reads */
    ln_json_memo_begin(&memo, shared);
    const ln_status st = open_texts(m, err);
    ln_json_memo_end(&memo);
    LN_TRY(st);
    return ln_tensors_check(&m->tensors, false, err);
}

ln_status ln_package_open(ln_package **out, const char *model, const ln_options *opt, ln_error *err) {
    double start = ln_now();
    *out = NULL;
    ln_package *m = ln_zalloc(1, sizeof *m);
    if (!m) return LN_OOM(err, "a model");
    m->opt = *opt;
    m->weight_cache = ln_alloc(sizeof *m->weight_cache);
    if (m->weight_cache) ln_weight_cache_open(m->weight_cache);
    ln_status st = m->weight_cache ? ln_digest_slot_open(&m->digests, err) : LN_OOM(err, "a model");
    if (st == LN_OK) st = open_parts(m, model, err);
    m->opt.add_tokens = NULL;
    m->opt.adapter = NULL; /* borrowed during the call, and the business of engines */
    m->opt.n_adapter_parts = 0;
    if (st != LN_OK) {
        ln_package_close(&m);
        return st;
    }
    m->load_seconds = ln_now() - start;
    *out = m;
    return LN_OK;
}

void ln_package_close(ln_package **m) {
    if (!*m) return;
    ln_package_end_led(*m);
    if ((*m)->weight_cache) ln_weight_cache_close((*m)->weight_cache);
    ln_free((*m)->weight_cache);
    ln_digest_slot_close(&(*m)->digests);
    ln_model_template_close(&(*m)->tmpl);
    ln_controls_close(&(*m)->controls);
    ln_emb_files_close(&(*m)->embedding);
    ln_tok_close(&(*m)->lower_tok);
    ln_tok_close(&(*m)->tok);
    ln_genconfig_close(&(*m)->gen);
    ln_weights_close(&(*m)->weights);
    ln_package_close_changers(*m);
    ln_package_close_added(*m);
    ln_tensors_close(&(*m)->tensors);
    ln_spec_close(&(*m)->spec);
    ln_config_close(&(*m)->config);
    ln_free(*m);
    *m = NULL;
}

void ln_package_info(const ln_package *m, ln_info *info) {
    const ln_spec *s = &m->spec;
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    *info = (ln_info){.size = sizeof *info};
    memcpy(info->path, m->path, sizeof info->path);
    memcpy(info->model_type, s->model_type, sizeof info->model_type);
    memcpy(info->dtype, names[s->dtype], strlen(names[s->dtype]));
    const ln_attn_spec *a = ln_attn_of(s, ln_first_attention(s));
    info->n_layers = s->L, info->n_heads = a->H, info->n_kv_heads = a->K, info->head_dim = a->E;
    info->width = s->D, info->ffn_width = ln_ffn_of(s, 0)->F ? ln_ffn_of(s, 0)->F : ln_ffn_of(s, 0)->moe.F,
    info->vocab_size = s->V, info->n_ctx_max = s->n_ctx;
    for (int i = 0; i < s->n_attn; i++) info->window = LN_MAX(info->window, s->attn[i].window);
    info->tied = s->tied;
    info->embed_scale = (double)s->embed_scale;
    info->has_template = m->has_template;
    info->has_reasoning = m->delims != NULL;
    info->has_think_switch = m->tmpl && ln_model_template_think_switch(m->tmpl);
    info->n_parameters = m->weights.n_parameters;
    info->n_active_parameters = m->weights.n_active;
    info->weights_bytes = m->weights.bytes;
    info->bits = m->weights.code.bits, info->group = m->weights.code.group;
    info->n_eos = m->gen.n_eos;
    memcpy(info->eos_ids, m->gen.eos, sizeof info->eos_ids);
    info->numerics = ln_run_numerics(s, m->opt.numerics);
    info->n_files = (int)m->tensors.n_files;
    if (m->embedding_error.code == LN_OK)
        info->embedding_width = m->embedding.dimensions
                                    ? LN_MIN(m->embedding.dimensions, m->embedding.n_values)
                                    : m->embedding.n_values;
    const char *class, *differs;
    ln_tok_class(m->tok, &class, &differs);
    (void)snprintf(info->tokenizer_class, sizeof info->tokenizer_class, "%s", class);
    (void)snprintf(info->tokenizer_differs, sizeof info->tokenizer_differs, "%s", differs);
    memcpy(info->tool_format, m->tools.format->name, strlen(m->tools.format->name));
    info->single_tool_call = !m->tools.several;
    info->null_tool_content = m->tools.null_content;
    info->text_tool_arguments = m->tools.text_arguments;
    ln_package_stored(m, info->stored);
    ln_package_kept(m, info->kept);
}

ln_status ln_package_split_adapter(const ln_package *m, struct ln_adapter_file *a, ln_error *err) {
    return ln_adapter_split(a, &m->spec, err);
}

int64_t ln_package_experts_of(const ln_adapter_module *m) { return ln_adapter_experts_of(m); }

ln_status ln_package_match_adapter(const ln_package *m, const struct ln_adapter_file *a, int *weights,
                                   ln_error *err) {
    int *slots = ln_zalloc(2 * a->n + 2, sizeof *slots), *layers = slots ? slots + a->n + 1 : NULL;
    ln_status st = slots ? ln_adapter_match(a, &m->spec, slots, layers, err) : LN_OOM(err, "an adapter");
    for (size_t i = 0; st == LN_OK && i < a->n; i++) {
        if (weights)
            weights[i] = layers[i] < 0 ? m->weights.index_fixed[slots[i]]
                                       : m->weights.index_layer[layers[i]][slots[i]];
    }
    ln_free(slots);
    return st;
}

const ln_weight *ln_package_bias_of(const ln_package *m, size_t weight) {
    const ln_weight *w = &m->weights.items[weight];
    const int slot = ln_adapter_bias_slot((int)w->slot);
    if (slot == LN_W_COUNT) return NULL;
    const int i = w->layer < 0 ? m->weights.index_fixed[slot] : m->weights.index_layer[w->layer][slot];
    return i < 0 ? NULL : &m->weights.items[i];
}

void ln_package_sampling(const ln_package *m, ln_sampling *out) {
    *out = (ln_sampling){
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .n_max = -1};
    if (!m->gen.present) return;
    out->repeat_penalty = m->gen.repeat_penalty;
    if (out->repeat_penalty != 1) out->repeat_last = -1; /* transformers looks at all tokens */
    out->suppress = m->gen.suppress, out->n_suppress = m->gen.n_suppress;
    out->begin_suppress = m->gen.begin_suppress, out->n_begin_suppress = m->gen.n_begin_suppress;
    out->bad_words = m->gen.bad_words, out->n_bad_words = m->gen.n_bad_words;
    out->no_repeat_ngram = m->gen.no_repeat_ngram;
    out->min_new = m->gen.min_new;
    out->model_stop = m->gen.stop, out->n_model_stop = m->gen.n_stop;
    if (!m->gen.do_sample) return;
    out->temperature = m->gen.temperature;
    out->top_k = m->gen.top_k;
    out->top_p = m->gen.top_p;
    out->min_p = m->gen.min_p;
}

ln_status ln_package_check_text(const char *what, const char *text, size_t bytes, ln_error *err) {
    size_t good = ln_utf8_valid(text, bytes);
    char shown[80];
    if (good == bytes) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: byte %zu: expected UTF-8, found '%s'", what, good,
                   ln_excerpt(shown, text + good, LN_MIN(bytes - good, (size_t)4)));
}

/* A message of a request without tools, for a built-in template. */
static ln_status read_message(const json_t *m, size_t i, ln_message *out, ln_error *err) {
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    if (!json_is_string(role) || !json_is_string(content))
        return ln_fail(err, LN_EINVALID, "message %zu: expected an object with the texts role and content",
                       i + 1);
    *out = (ln_message){json_string_value(role), json_string_value(content), json_string_length(content)};
    return LN_OK;
}

/* A conversation by the built-in template of the family: its text goes on with the header of an answer, and
 * with the last message if that is to be continued. */
static ln_status builtin_prompt(const ln_package *m, const ln_message *messages, size_t n, bool continues,
                                ln_ids *out, ln_error *err) {
    if (continues) LN_TRY(ln_conversation_last(messages, n, err));
    LN_TRY(ln_chat_encode(m->tok, m->controls, m->spec.model_type, messages, n - continues, out, err));
    if (!continues) return LN_OK;
    const ln_guard guard = {.all_data = true, .controls = m->controls};
    return ln_tok_encode_guarded(m->tok, messages[n - 1].content, messages[n - 1].content_bytes, false,
                                 &guard, out, err);
}

/* A request in JSON by the built-in template of the family. */
static ln_status fixed_request(const ln_package *m, const char *json, size_t bytes, bool continues,
                               ln_ids *out, ln_error *err) {
    json_t *root = NULL;
    ln_status st = ln_json_load(&root, "request", json, bytes, err);
    const json_t *list = json_object_get(root, "messages");
    const size_t n = json_array_size(list);
    ln_message *messages = ln_alloc((n + 1) * sizeof *messages);
    if (st == LN_OK && !messages) st = LN_OOM(err, "a conversation");
    for (size_t i = 0; st == LN_OK && i < n; i++)
        st = read_message(json_array_get(list, i), i, &messages[i], err);
    if (st == LN_OK) st = builtin_prompt(m, messages, n, continues, out, err);
    ln_free(messages);
    json_decref(root);
    return st;
}

static ln_status encode_request(const ln_package *m, const ln_conversation *talk, ln_ids *out,
                                ln_error *err) {
    return m->tmpl ? ln_model_template_encode(m->tmpl, m->tok, talk, out, err)
                   : fixed_request(m, talk->json, talk->json_bytes, talk->continues, out, err);
}

/* A request in JSON, whose tools and calls become texts if the template does not show them. */
static ln_status request_prompt(const ln_package *m, const ln_conversation *talk, ln_ids *out,
                                ln_error *err) {
    ln_conversation rewritten = *talk;
    ln_str json = {0};
    if (!ln_tool_text_is_needed(&m->tools)) return encode_request(m, talk, out, err);
    ln_status st = ln_tool_text(&m->tools, talk->json, talk->json_bytes, &json, err);
    rewritten.json = json.data;
    rewritten.json_bytes = json.len;
    if (st == LN_OK) st = encode_request(m, &rewritten, out, err);
    ln_str_free(&json);
    return st;
}

/* Appends the ids of a conversation to *out. Only this function decides how a conversation becomes text: by
 * the template that the model ships or the caller named, else by the built-in template of the model's
 * family. */
static ln_status chat_prompt(const ln_package *m, const ln_conversation *talk, ln_ids *out, ln_error *err) {
    if (m->tmpl && talk->json) return request_prompt(m, talk, out, err);
    if (m->tmpl) return ln_model_template_encode(m->tmpl, m->tok, talk, out, err);
    if (m->has_template)
        return ln_fail(err, m->template_error.code ? m->template_error.code : LN_EUNSUPPORTED,
                       "the chat template cannot be used: %s",
                       m->template_error.code ? m->template_error.message
                                              : "it is in none of the files that are read");
    if (talk->kwargs)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "this model ships no chat template, and its family's built-in template takes no "
                       "arguments");
    if (talk->json) return request_prompt(m, talk, out, err);
    return builtin_prompt(m, talk->messages, talk->n_messages, talk->continues, out, err);
}

static ln_status check_messages(const ln_message *messages, size_t n, ln_error *err) {
    char what[40];
    for (size_t i = 0; i < n; i++) {
        if (!messages[i].role || (!messages[i].content && messages[i].content_bytes > 0))
            return ln_fail(err, LN_EUSAGE, "message %zu: role and content must not be NULL", i + 1);
        (void)snprintf(what, sizeof what, "message %zu", i + 1);
        LN_TRY(ln_package_check_text(what, messages[i].content, messages[i].content_bytes, err));
    }
    return LN_OK;
}

/* Rejects messages that are too long for out->most, before they are rendered. Templates may leave reasoning
 * out of what the assistant said: its messages count only once they are rendered. */
static ln_status check_length(const ln_package *m, const ln_message *messages, size_t n, ln_ids *out,
                              ln_error *err) {
    ln_ids all = {.most = out->most};
    for (size_t i = 0; i < n; i++) {
        if (strcmp(messages[i].role, "assistant") == 0) continue;
        const ln_status st =
            ln_ids_check_length(&all, m->tok, messages[i].content, messages[i].content_bytes, err);
        out->fewest = all.fewest;
        if (st != LN_OK) return st;
        all.n += ln_tok_fewest(m->tok, messages[i].content, messages[i].content_bytes);
    }
    return LN_OK;
}

bool ln_package_uses_template(const ln_package *m, const ln_prompt *p) {
    return !p->ids && (p->tmpl == LN_TEMPLATE_CHAT || (p->tmpl == LN_TEMPLATE_AUTO && m->has_template));
}

static ln_conversation talk_of(const ln_prompt *p) {
    return (ln_conversation){.messages = p->messages,
                             .n_messages = p->n_messages,
                             .json = p->request,
                             .json_bytes = p->request_bytes,
                             .kwargs = p->template_args,
                             .kwargs_bytes = p->template_args_bytes,
                             .continues = p->continue_last};
}

static ln_status check_talk(const ln_package *m, const ln_prompt *p, ln_error *err) {
    const char *what = p->system                   ? "ln_prompt.system"
                       : p->messages || p->request ? "a conversation"
                       : p->template_args          ? "an argument of a chat template"
                                                   : NULL;
    if (what && !ln_package_uses_template(m, p))
        return ln_fail(err, LN_EUSAGE,
                       "%s needs a chat template, and this model's text is continued raw; ln_prompt.tmpl = "
                       "LN_TEMPLATE_CHAT uses the built-in template of its family",
                       what);
    if (p->continue_last && !p->messages && !p->request)
        return ln_fail(err, LN_EUSAGE, "prompt: continue_last needs messages or a request");
    if (p->messages && p->system)
        return ln_fail(err, LN_EUSAGE, "prompt: the system text of a conversation is its first message");
    if (p->request && p->system)
        return ln_fail(err, LN_EUSAGE, "prompt: the system text of a request is its first message");
    if (p->messages && p->n_messages == 0)
        return ln_fail(err, LN_EUSAGE, "the conversation is empty: expected at least one message");
    return LN_OK;
}

static ln_status encode_prompt(const ln_package *m, const ln_prompt *p, ln_ids *out, ln_error *err) {
    int given = !!p->ids + !!p->text + !!p->messages + !!p->request;
    if (given != 1)
        return ln_fail(err, LN_EUSAGE, "prompt: expected one of text, ids and messages, found %s",
                       given ? "more" : "none");
    if (p->tmpl < LN_TEMPLATE_AUTO || p->tmpl > LN_TEMPLATE_CHAT)
        return ln_fail(err, LN_EUSAGE, "prompt: tmpl: expected auto, raw or chat, found %d", (int)p->tmpl);
    if (p->ids && (p->system || p->template_args))
        return ln_fail(err, LN_EUSAGE,
                       "prompt: ids go as they are; expected no system text or arguments of a template with "
                       "them");
    if (p->ids) {
        for (size_t i = 0; i < p->n_ids; i++) LN_TRY(ln_ids_add(out, p->ids[i], err));
        return LN_OK;
    }
    LN_TRY(check_talk(m, p, err));
    ln_conversation talk = talk_of(p);
    if (p->messages) LN_TRY(check_messages(p->messages, p->n_messages, err));
    if (p->messages) LN_TRY(check_length(m, p->messages, p->n_messages, out, err));
    if (p->messages || p->request) return chat_prompt(m, &talk, out, err);
    LN_TRY(ln_package_check_text("the prompt", p->text, p->text_bytes, err));
    if (!ln_package_uses_template(m, p)) return ln_tok_encode(m->tok, p->text, p->text_bytes, true, out, err);
    if (p->system) LN_TRY(ln_package_check_text("the system text", p->system, p->system_bytes, err));
    const ln_message turns[] = {{"system", p->system, p->system_bytes}, {"user", p->text, p->text_bytes}};
    size_t skip = p->system ? 0 : 1;
    talk.messages = turns + skip;
    talk.n_messages = 2 - skip;
    LN_TRY(check_length(m, talk.messages, talk.n_messages, out, err));
    return chat_prompt(m, &talk, out, err);
}

ln_status ln_package_encode_prompt(const ln_package *m, const ln_prompt *p, ln_ids *out, ln_error *err) {
    ln_text_work work;
    ln_text_begin(&work);
    const ln_status st = encode_prompt(m, p, out, err);
    return ln_text_end(&work, st, err);
}

ln_status ln_package_assistant_mask(const ln_package *m, const ln_prompt *p, ln_token_mask *out,
                                    ln_error *err) {
    ln_ids ids = {0};
    ln_str mask = {0};
    ln_conversation talk = talk_of(p);
    ln_mask_report report;
    ln_status st = LN_OK;
    if (!p->messages == !p->request || p->text || p->ids)
        return ln_fail(err, LN_EUSAGE, "expected a conversation: messages or a request");
    if (!m->tmpl)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "this model has no chat template that can be used; name one when it is opened");
    if (p->messages) LN_TRY(check_messages(p->messages, p->n_messages, err));
    LN_GO(ln_model_template_assistant_mask(m->tmpl, m->tok, &talk, &ids, &mask, NULL, &report, err));
    out->n_unmatched = report.n_unmatched;
    out->n_ids = ids.n;
    out->ids = ln_alloc(ids.n * sizeof *out->ids + 1);
    out->mask = ln_alloc(ids.n + 1);
    if (!out->ids || !out->mask) LN_GO(LN_OOM(err, "a conversation's ids"));
    if (ids.n > 0) memcpy(out->ids, ids.data, ids.n * sizeof *out->ids), memcpy(out->mask, mask.data, ids.n);
out:
    ln_ids_free(&ids);
    ln_str_free(&mask);
    return st;
}
