/* Converts flags to the library's options, in one place, so that run, score, attention and plan use the
 * same ones. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    RAW_TOKENS = 256,
    CONTEXT_LEAST = 4096,
    ANSWER_TOKENS = 2048,
    THREADS_MOST = 256,
    GRAMMAR_FILE_MOST = 16 << 20,
    SCORE_ROWS = 64
}; /* score: at most 64 rows x 262,144 logits x 4 bytes */

int64_t tokens_most(const args *a, const ln_info *info) {
    if (has(a, F_N)) return a->flag[F_N].i < 0 ? INT64_MAX : a->flag[F_N].i;
    bool talks = !has(a, F_IDS) && !has(a, F_RAW) && (has(a, F_CHAT) || info->has_template);
    return talks ? INT64_MAX : RAW_TOKENS;
}

/* If the minimum context has space for prompt + 2,048 anyway, fewer positions are requested, because the KV
 * pages for them are written before the first token. */
int64_t positions_needed(const args *a, int64_t n_prompt) {
    if (has(a, F_N) && a->flag[F_N].i >= 0) return n_prompt + a->flag[F_N].i;
    if (has(a, F_N)) return n_prompt + ANSWER_TOKENS;
    return n_prompt + ANSWER_TOKENS <= CONTEXT_LEAST ? n_prompt + RAW_TOKENS : n_prompt + ANSWER_TOKENS;
}

const char *numerics_name(ln_numerics n) { return n == LN_FAST ? "fast" : "exact"; }

ln_status options_of(const args *a, ln_options *opt, ln_error *err) {
    *opt = ln_options_default();
    LN_TRY(adapter_options(a, opt, err));
    if (has(a, F_QUANTIZE)) opt->quantize_bits = a->flag[F_QUANTIZE].i == 0 ? 4 : 8;
    if (has(a, F_NUMERICS)) opt->numerics = a->flag[F_NUMERICS].i == 0 ? LN_EXACT : LN_FAST;
    if (has(a, F_KV_TYPE)) {
        static const ln_kv_type types[] = {LN_KV_AUTO, LN_KV_F32, LN_KV_BF16, LN_KV_Q8};
        opt->kv_type = types[a->flag[F_KV_TYPE].i];
    }
    if (has(a, F_DEVICE)) {
        static const ln_device devices[] = {LN_DEVICE_AUTO, LN_DEVICE_REF, LN_DEVICE_CPU, LN_DEVICE_CUDA,
                                            LN_DEVICE_MLX};
        opt->device = devices[a->flag[F_DEVICE].i];
    }
    opt->n_threads = (int)a->flag[F_THREADS].i;
    if (opt->n_threads > THREADS_MOST) {
        note("--threads %d is more than linnet uses: %d", opt->n_threads, THREADS_MOST);
        opt->n_threads = THREADS_MOST;
    }
    opt->n_chunk = (int)a->flag[F_CHUNK].i;
    opt->n_ctx = a->flag[F_CTX].i;
    opt->memory_bytes = (uint64_t)a->flag[F_MEMORY].i;
    opt->n_parallel = (int)a->flag[F_PARALLEL].i;
    opt->kv_bytes = (uint64_t)a->flag[F_KV_MEMORY].i;
    opt->n_lookup = (int)a->flag[F_LOOKUP].i;
    opt->mlock = has(a, F_MLOCK);
    if (planned_verb(a) == VERB_SCORE || planned_verb(a) == VERB_EVAL) opt->n_logits = SCORE_ROWS;
    opt->keep_full_kv = planned_verb(a) == VERB_ATTENTION;
    opt->skip_unknown = has(a, F_SKIP_UNKNOWN);
    opt->add_tokens = has(a, F_ADD_TOKENS) ? a->flag[F_ADD_TOKENS].text : NULL;
    opt->chat_template = has(a, F_CHAT_TEMPLATE) ? a->flag[F_CHAT_TEMPLATE].text : NULL;
    opt->progress = progress_line();
    return LN_OK;
}

void template_args(const args *a, ln_prompt *p) {
    if (has(a, F_TEMPLATE_ARGS)) p->template_args = a->flag[F_TEMPLATE_ARGS].text;
    else if (has(a, F_THINK)) p->template_args = "{\"enable_thinking\": true, \"thinking\": true}";
    else if (has(a, F_NO_THINK)) p->template_args = "{\"enable_thinking\": false, \"thinking\": false}";
    else return;
    p->template_args_bytes = strlen(p->template_args);
}

ln_prompt prompt_of(const args *a, const input *in) {
    ln_prompt p = {.size = sizeof(ln_prompt),
                   .text = in->text,
                   .text_bytes = in->bytes,
                   .ids = in->ids,
                   .n_ids = in->n_ids};
    if (has(a, F_SYSTEM)) {
        p.system = a->flag[F_SYSTEM].text;
        p.system_bytes = strlen(p.system);
    }
    template_args(a, &p);
    p.tmpl = has(a, F_RAW) ? LN_TEMPLATE_RAW : has(a, F_CHAT) ? LN_TEMPLATE_CHAT : LN_TEMPLATE_AUTO;
    return p;
}

void sampling_change(const args *a, ln_sampling *s) {
    if (has(a, F_N)) s->n_max = a->flag[F_N].i < 0 ? INT32_MAX : a->flag[F_N].i;
    if (has(a, F_TEMP)) s->temperature = a->flag[F_TEMP].f;
    if (has(a, F_TOP_K)) s->top_k = (int)LN_MAX(a->flag[F_TOP_K].i, 0);
    if (has(a, F_TOP_P)) s->top_p = a->flag[F_TOP_P].f;
    if (has(a, F_MIN_P)) s->min_p = a->flag[F_MIN_P].f;
    if (has(a, F_REPEAT_PENALTY)) s->repeat_penalty = a->flag[F_REPEAT_PENALTY].f;
    if (has(a, F_REPEAT_LAST)) s->repeat_last = (int)a->flag[F_REPEAT_LAST].i;
    if (has(a, F_PRESENCE)) s->presence_penalty = a->flag[F_PRESENCE].f;
    if (has(a, F_FREQUENCY)) s->frequency_penalty = a->flag[F_FREQUENCY].f;
    if (has(a, F_BIAS)) s->bias = a->bias, s->n_bias = a->n_bias;
    if (has(a, F_STOP)) s->stop = a->stops, s->n_stop = a->n_stops;
    if (has(a, F_STOP_ID)) s->stop_ids = a->stop_ids, s->n_stop_ids = a->n_stop_ids;
    if (has(a, F_THINK_BUDGET)) s->has_think_budget = true, s->think_budget = a->flag[F_THINK_BUDGET].i;
    if (has(a, F_IGNORE_EOS)) s->ignore_eos = true;
    if (has(a, F_SEED)) {
        s->has_seed = !a->flag[F_SEED].random;
        s->seed = s->has_seed ? a->flag[F_SEED].u : 0;
    }
}

ln_status sampling_of(const args *a, const ln_model *model, ln_sampling *s, ln_error *err) {
    s->size = sizeof *s;
    LN_TRY(ln_sampling_default(model, s, err));
    sampling_change(a, s);
    return LN_OK;
}

/* A grammar in GBNF or EBNF begins with the name of a rule, a directive or a comment; an expression in JSON
 * with a bracket or a quotation mark. */
static bool is_json(const char *text, size_t bytes) {
    size_t i = 0;
    while (i < bytes && strchr(" \t\r\n", text[i]) && text[i]) i++;
    return i < bytes && text[i] && strchr("{[\"", text[i]);
}

ln_status grammar_of(const args *a, ln_str *grammar, ln_sampling *how, ln_error *err) {
    const bool schema = has(a, F_JSON_SCHEMA);
    if (!schema && !has(a, F_GRAMMAR)) return LN_OK;
    const char *text = a->flag[schema ? F_JSON_SCHEMA : F_GRAMMAR].text,
               *name = schema ? "--json-schema" : "--grammar";
    char *data = NULL;
    size_t bytes = strlen(text);
    ln_error why;
    if (text[0] == '@')
        LN_TRY(source_read(text + 1, schema ? "the schema" : "the grammar", GRAMMAR_FILE_MOST, &data, &bytes,
                           err));
    const bool wrapped = !schema && !is_json(data ? data : text, bytes);
    if (schema) ln_str_adds(grammar, "{\"schema\":");
    if (wrapped) {
        ln_str_adds(grammar, "{\"grammar\":");
        ln_str_json(grammar, data ? data : text, bytes);
    } else {
        ln_str_add(grammar, data ? data : text, bytes);
    }
    if (schema || wrapped) ln_str_adds(grammar, "}");
    ln_free(data);
    if (grammar->failed) return LN_OOM(err, "the grammar");
    const ln_status st = ln_grammar_check(grammar->data ? grammar->data : "", grammar->len, &why);
    if (st != LN_OK) return ln_fail(err, st == LN_EINVALID ? LN_EUSAGE : st, "%s: %s", name, why.message);
    how->grammar = grammar->data;
    how->grammar_bytes = grammar->len;
    return LN_OK;
}

void start_note(const args *a, const ln_info *info, const ln_sampling *s) {
    if (has(a, F_CHAT) && !info->has_template)
        note("--chat: the model ships no chat template; its family's built-in template is used");
    if (s->has_think_budget && !info->has_reasoning)
        note("--think-budget: this model marks no reasoning, so there is nothing to count");
    if ((has(a, F_THINK) || has(a, F_NO_THINK)) && info->has_template && !info->has_think_switch)
        note("%s: this model's chat template has no switch for reasoning (enable_thinking), so the flag "
             "changes nothing",
             has(a, F_THINK) ? "--think" : "--no-think");
    if (!has(a, F_VERBOSE)) return;
    char most[40] = "to the end of the context";
    int64_t n = tokens_most(a, info);
    if (n < INT64_MAX) (void)snprintf(most, sizeof most, "at most %lld tokens", (long long)n);
    note("temperature %g, top-k %d, top-p %g, min-p %g, repeat penalty %g over %d, presence %g, frequency "
         "%g, %s",
         s->temperature, s->top_k, s->top_p, s->min_p, s->repeat_penalty, s->repeat_last, s->presence_penalty,
         s->frequency_penalty, most);
    if (s->n_suppress || s->n_begin_suppress || s->n_bad_words || s->no_repeat_ngram || s->min_new ||
        s->n_model_stop)
        note("generation_config.json: %zu suppress_tokens, %zu begin_suppress_tokens, %zu bad_words_ids, "
             "no_repeat_ngram_size %lld, min_new_tokens %lld, %zu stop_strings",
             s->n_suppress, s->n_begin_suppress, s->n_bad_words, (long long)s->no_repeat_ngram,
             (long long)s->min_new, s->n_model_stop);
}

ln_status seed_of(const args *a, uint64_t *seed, ln_error *err) {
    *seed = a->flag[F_SEED].u;
    if (!a->flag[F_SEED].random) return LN_OK;
    if (getentropy(seed, sizeof *seed) != 0)
        return ln_fail(err, LN_EIO, "--seed random: the system gives no random number");
    note("--seed %llu", (unsigned long long)*seed);
    return LN_OK;
}
