/* Reads the body of a request: each field by its row in body_fields.def, then what fields mean together. */
#include "body.h"
#include "../base/json_write.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Without max_tokens a completion has as many tokens as OpenAI's; a conversation is limited by its context.
 */
enum { COMPLETION_TOKENS = 16, MOST_NAMES = 64, MOST_NAME = 64, MOST_MESSAGES = 4096, MOST_STOP_IDS = 1024 };

typedef ln_status read_fn(body_reader *b, const char *name, const json_t *v);

/* ---- what is asked ---- */

ln_status wire_find_model(size_t *out, const wire_target *target, const char *name, size_t n,
                          wire_error *why) {
    char shown[80];
    ln_str known = {0};
    *out = 0;
    if (n == 0) return LN_OK;
    for (*out = 0; *out < target->n_names; ++*out)
        if (strlen(target->names[*out]) == n && memcmp(target->names[*out], name, n) == 0) return LN_OK;
    if (target->any_name) {
        *out = 0;
        return LN_OK;
    }
    for (size_t i = 0; i < target->n_names; i++) { /* a path on this machine concerns no client */
        if (target->names[i][0] == '/') continue;
        ln_str_adds(&known, known.len ? ", " : "");
        ln_str_adds(&known, target->names[i]);
    }
    ln_status st = wire_refuse(why, "model", "there is no model '%s' here; known: %s",
                               ln_excerpt(shown, name, n), known.data ? known.data : "");
    ln_str_free(&known);
    why->http = 404;
    why->code = "model_not_found";
    return st;
}

static ln_status read_model(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (!json_is_string(v))
        return wire_refuse(b->why, name, "expected a text, found %s", ln_json_text(v, found));
    return wire_find_model(&b->q->model, b->t, json_string_value(v), json_string_length(v), b->why);
}

static ln_status read_messages(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (!json_is_array(v) || json_array_size(v) == 0)
        return wire_refuse(b->why, name, "expected a list of at least one message, found %s",
                           ln_json_text(v, found));
    if (json_array_size(v) > MOST_MESSAGES)
        return wire_refuse(b->why, name, "expected at most %d messages, found %zu", MOST_MESSAGES,
                           json_array_size(v));
    b->messages = v;
    return LN_OK;
}

static ln_status read_prompt(body_reader *b, const char *name, const json_t *v) {
    (void)name;
    b->prompt = v;
    return LN_OK;
}

static ln_status read_tools(body_reader *b, const char *name, const json_t *v) {
    LN_TRY(body_tools(b, name, v));
    b->tools = json_array_size(v) > 0 ? v : NULL;
    return LN_OK;
}

static ln_status read_tool_choice(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (!json_is_string(v) && !json_is_object(v))
        return wire_refuse(b->why, name, "expected none, auto, required or an object, found %s",
                           ln_json_text(v, found));
    b->tool_choice = v;
    return LN_OK;
}

static ln_status read_parallel(body_reader *b, const char *name, const json_t *v) {
    bool parallel;
    LN_TRY(body_bool(b, name, v, &parallel));
    b->q->sampling.single_tool_call = !parallel;
    return LN_OK;
}

static ln_status read_documents(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (!json_is_array(v))
        return wire_refuse(b->why, name, "expected a list of documents, found %s", ln_json_text(v, found));
    b->documents = json_array_size(v) > 0 ? v : NULL;
    return LN_OK;
}

static ln_status read_kwargs(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (!json_is_object(v))
        return wire_refuse(b->why, name, "expected an object, found %s", ln_json_text(v, found));
    b->kwargs = v;
    return LN_OK;
}

static ln_status read_effort(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (!json_is_string(v))
        return wire_refuse(b->why, name, "expected a text, found %s", ln_json_text(v, found));
    b->effort = v;
    return LN_OK;
}

static ln_status read_thinking(body_reader *b, const char *name, const json_t *v) {
    bool on;
    LN_TRY(body_bool(b, name, v, &on));
    b->thinking = v;
    return LN_OK;
}

static ln_status read_continue(body_reader *b, const char *name, const json_t *v) {
    return body_bool(b, name, v, &b->continues);
}

static ln_status read_header(body_reader *b, const char *name, const json_t *v) {
    bool header;
    LN_TRY(body_bool(b, name, v, &header));
    b->no_header = !header;
    return LN_OK;
}

/* ---- how many, how long ---- */

static ln_status read_n(body_reader *b, const char *name, const json_t *v) {
    int64_t n;
    LN_TRY(body_int(b, name, v, 1, WIRE_MOST_N, &n));
    b->q->n = (int)n;
    b->has_n = true;
    return LN_OK;
}

static ln_status read_best_of(body_reader *b, const char *name, const json_t *v) {
    LN_TRY(body_int(b, name, v, 1, WIRE_MOST_N, &b->best_of));
    b->has_best_of = true;
    return LN_OK;
}

/* -1, as in llama.cpp: to the end of the context. */
static ln_status read_max_tokens(body_reader *b, const char *name, const json_t *v) {
    LN_TRY(body_int(b, name, v, -1, INT64_MAX, &b->max_tokens));
    b->has_max = true;
    return LN_OK;
}

static ln_status read_max_completion(body_reader *b, const char *name, const json_t *v) {
    LN_TRY(body_int(b, name, v, -1, INT64_MAX, &b->max_completion));
    b->has_completion = true;
    return LN_OK;
}

static ln_status read_min_tokens(body_reader *b, const char *name, const json_t *v) {
    return body_int(b, name, v, 0, INT32_MAX, &b->q->sampling.min_new);
}

static ln_status read_stop(body_reader *b, const char *name, const json_t *v) {
    return body_stop(b, name, v);
}

static ln_status read_stop_ids(body_reader *b, const char *name, const json_t *v) {
    if (json_array_size(v) > MOST_STOP_IDS)
        return wire_refuse(b->why, name, "expected at most %d token ids, found %zu", MOST_STOP_IDS,
                           json_array_size(v));
    return body_ids(b, name, v, &b->q->sampling.stop_ids, &b->q->sampling.n_stop_ids);
}

static ln_status read_ignore_eos(body_reader *b, const char *name, const json_t *v) {
    return body_bool(b, name, v, &b->q->sampling.ignore_eos);
}

static ln_status read_echo(body_reader *b, const char *name, const json_t *v) {
    return body_bool(b, name, v, &b->q->echo);
}

/* ---- how the next token is chosen ---- */

static ln_status read_temperature(body_reader *b, const char *name, const json_t *v) {
    return body_real(b, name, v, 0, 2, &b->q->sampling.temperature);
}

static ln_status read_top_p(body_reader *b, const char *name, const json_t *v) {
    return body_real(b, name, v, 0, 1, &b->q->sampling.top_p);
}

static ln_status read_top_k(body_reader *b, const char *name, const json_t *v) {
    int64_t k;
    LN_TRY(body_int(b, name, v, -1, INT32_MAX, &k));
    b->q->sampling.top_k = (int)LN_MAX(k, 0); /* 0 and -1 are off */
    return LN_OK;
}

static ln_status read_min_p(body_reader *b, const char *name, const json_t *v) {
    return body_real(b, name, v, 0, 1, &b->q->sampling.min_p);
}

static ln_status read_presence(body_reader *b, const char *name, const json_t *v) {
    return body_real(b, name, v, -2, 2, &b->q->sampling.presence_penalty);
}

static ln_status read_frequency(body_reader *b, const char *name, const json_t *v) {
    return body_real(b, name, v, -2, 2, &b->q->sampling.frequency_penalty);
}

static ln_status read_repetition(body_reader *b, const char *name, const json_t *v) {
    b->has_penalty = true;
    return body_real(b, name, v, 1e-6, 1e6, &b->q->sampling.repeat_penalty);
}

static ln_status read_repeat_last(body_reader *b, const char *name, const json_t *v) {
    int64_t n;
    LN_TRY(body_int(b, name, v, -1, INT32_MAX, &n));
    b->q->sampling.repeat_last = (int)n;
    b->has_window = true;
    return LN_OK;
}

static ln_status read_bias(body_reader *b, const char *name, const json_t *v) {
    return body_bias(b, name, v);
}

static ln_status read_seed(body_reader *b, const char *name, const json_t *v) {
    return body_seed(b, name, v);
}

/* ---- what the answer has ---- */

/* A number of tokens for a completion; true or false for a conversation, whose number is top_logprobs. */
static ln_status read_logprobs(body_reader *b, const char *name, const json_t *v) {
    int64_t n;
    if (b->q->kind == WIRE_CHAT) return body_bool(b, name, v, &b->want_logprobs);
    LN_TRY(body_int(b, name, v, 0, WIRE_MOST_LOGPROBS, &n));
    b->q->n_logprobs = (int)n;
    return LN_OK;
}

static ln_status read_top_logprobs(body_reader *b, const char *name, const json_t *v) {
    int64_t n;
    LN_TRY(body_int(b, name, v, 0, WIRE_MOST_LOGPROBS, &n));
    b->q->n_logprobs = (int)n;
    b->has_top = true;
    return LN_OK;
}

static ln_status read_stream(body_reader *b, const char *name, const json_t *v) {
    return body_bool(b, name, v, &b->q->stream);
}

static ln_status read_stream_options(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    const json_t *usage = json_object_get(v, "include_usage");
    if (!json_is_object(v))
        return wire_refuse(b->why, name, "expected an object, found %s", ln_json_text(v, found));
    b->has_stream_options = true;
    return usage && !json_is_null(usage)
               ? body_bool(b, "stream_options.include_usage", usage, &b->q->include_usage)
               : LN_OK;
}

/* ---- the table ---- */

enum { CHAT = 1 << WIRE_CHAT, COMPLETION = 1 << WIRE_COMPLETION, BOTH = CHAT | COMPLETION };

typedef struct field {
    const char *name;
    unsigned kinds;
    read_fn *read;
    const char *values, *advice; /* of a refused field; NULL: it changes nothing */
} field;

static const field fields[] = {
#define READ(name, kinds, fn)                {name, kinds, fn, NULL, NULL},
#define SAFE(name, kinds)                    {name, kinds, NULL, NULL, NULL},
#define REFUSED(name, kinds, values, advice) {name, kinds, NULL, values, advice},
#include "body_fields.def"
#undef READ
#undef SAFE
#undef REFUSED
};

static const field *field_named(const char *name, wire_kind kind) {
    for (size_t i = 0; i < LN_COUNT(fields); i++)
        if (fields[i].kinds & 1u << kind && strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

void body_unknown(const char *where, const char *name) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char seen[MOST_NAMES][MOST_NAME];
    static size_t n_seen;
    char text[MOST_NAME], shown[80];
    bool is_new = true;
    (void)snprintf(text, sizeof text, "%s%s", where, ln_excerpt(shown, name, strlen(name)));
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_seen && is_new; i++) is_new = strcmp(seen[i], text) != 0;
    is_new = is_new && n_seen < MOST_NAMES;
    if (is_new) memcpy(seen[n_seen++], text, sizeof text);
    bool full = is_new && n_seen == MOST_NAMES;
    pthread_mutex_unlock(&lock);
    if (is_new)
        ln_log(LN_LOG_WARN, "the field \"%s\" of a request is unknown and has no effect%s", text,
               full ? "; further ones are not named" : "");
}

/* Whether `value` is among the texts of `list`, separated by bars. */
static ln_status is_listed(body_reader *b, const char *list, const json_t *value, bool *is) {
    ln_str text = {0};
    ln_str_json_value(&text, value);
    *is = false;
    for (const char *at = list; !text.failed && *at && !*is; at += strcspn(at, "|"), at += *at == '|') {
        size_t n = strcspn(at, "|");
        *is = n == text.len && memcmp(at, text.data, n) == 0;
    }
    bool failed = text.failed;
    ln_str_free(&text);
    return failed ? wire_fail(b->why, LN_OOM(&b->why->error, "a request")) : LN_OK;
}

static ln_status read_field(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    const field *f = field_named(name, b->q->kind);
    if (!f) body_unknown("", name);
    if (!f || json_is_null(v)) return LN_OK;
    if (f->read) return f->read(b, f->name, v);
    bool idle = !f->advice;
    if (!idle) LN_TRY(is_listed(b, f->values, v, &idle));
    if (idle) return LN_OK;
    ln_status st = wire_refuse(b->why, f->name, "%s is not supported; %s", ln_json_text(v, found), f->advice);
    b->why->code = "unsupported_parameter";
    return st;
}

/* ---- prompts of completions ---- */

static ln_status add_text(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    ln_prompt *p = &b->q->prompts[b->q->n_prompts++];
    if (!json_is_string(v))
        return wire_refuse(b->why, name, "expected a text or a list of token ids, found %s",
                           ln_json_text(v, found));
    *p = (ln_prompt){.size = sizeof(ln_prompt),
                     .text = json_string_value(v),
                     .text_bytes = json_string_length(v),
                     .tmpl = LN_TEMPLATE_RAW};
    return LN_OK;
}

static ln_status add_ids(body_reader *b, const char *name, const json_t *v) {
    ln_prompt *p = &b->q->prompts[b->q->n_prompts++];
    *p = (ln_prompt){.size = sizeof(ln_prompt), .tmpl = LN_TEMPLATE_RAW};
    LN_TRY(body_ids(b, name, v, &p->ids, &p->n_ids));
    return p->n_ids > 0 ? LN_OK
                        : wire_refuse(b->why, name, "expected at least one token id, found an empty list");
}

/* A text, a list of ids, or a list of either; several prompts are answered in their order. */
static ln_status make_prompts(body_reader *b) {
    static const char name[] = "prompt";
    const json_t *v = b->prompt, *first = json_array_get(v, 0);
    char item[40], found[80];
    int64_t id;
    bool several = json_is_array(v) && !body_integer(first, &id);
    size_t n = several ? json_array_size(v) : 1;
    if (json_is_array(v) && (json_array_size(v) == 0 || (several && n > WIRE_MOST_CHOICES)))
        return wire_refuse(b->why, name, "expected 1 to %d prompts, found %zu", WIRE_MOST_CHOICES,
                           json_array_size(v));
    if (!json_is_array(v) && !json_is_string(v))
        return wire_refuse(b->why, name,
                           "expected a text, a list of token ids, or a list of either, found %s",
                           ln_json_text(v, found));
    b->q->prompts = ln_arena_alloc(&b->q->arena, n * sizeof *b->q->prompts);
    if (!b->q->prompts) return wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
    if (!several) return json_is_array(v) ? add_ids(b, name, v) : add_text(b, name, v);
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_array_get(v, i);
        (void)snprintf(item, sizeof item, "prompt[%zu]", i);
        LN_TRY(json_is_array(p) ? add_ids(b, item, p) : add_text(b, item, p));
    }
    return LN_OK;
}

/* ---- fields together ---- */

static ln_status check_length(body_reader *b) {
    wire_request *q = b->q;
    if (b->has_max && b->has_completion && b->max_tokens != b->max_completion)
        return wire_refuse(b->why, "max_completion_tokens",
                           "%lld contradicts max_tokens %lld; give one of them", (long long)b->max_completion,
                           (long long)b->max_tokens);
    int64_t most = b->has_completion ? b->max_completion : b->has_max ? b->max_tokens : -2;
    if (most == -2) most = q->kind == WIRE_CHAT ? -1 : COMPLETION_TOKENS;
    q->sampling.n_max = most < 0 ? INT32_MAX : LN_MIN(most, (int64_t)INT32_MAX); /* the context cuts it */
    return LN_OK;
}

static ln_status check_choices(body_reader *b) {
    wire_request *q = b->q;
    if (b->has_best_of && b->best_of != q->n)
        return wire_refuse(b->why, "best_of",
                           b->best_of < q->n ? "expected at least n, %d, found %lld"
                                             : "choices are not ranked: expected n, %d, found %lld",
                           q->n, (long long)b->best_of);
    if (wire_n_choices(q) > WIRE_MOST_CHOICES)
        return wire_refuse(b->why, "n", "expected at most %d choices, found %zu prompts x %d",
                           WIRE_MOST_CHOICES, q->n_prompts, q->n);
    return LN_OK;
}

/* vLLM has both fields, which contradict each other if both are true; the second one's default is true. */
static ln_status check_continued(body_reader *b) {
    if (!b->no_header || b->continues) return LN_OK;
    return wire_refuse(b->why, "add_generation_prompt",
                       "an answer of the assistant begins unless \"continue_final_message\" is true; leave "
                       "the field out");
}

static ln_status check_stream(body_reader *b) {
    if (!b->has_stream_options || b->q->stream) return LN_OK;
    return wire_refuse(b->why, "stream_options", "needs \"stream\": true");
}

static ln_status check_logprobs(body_reader *b) {
    if (b->q->kind != WIRE_CHAT) return LN_OK;
    if (b->has_top && !b->want_logprobs && b->q->n_logprobs > 0)
        return wire_refuse(b->why, "top_logprobs", "needs \"logprobs\": true");
    if (!b->want_logprobs) b->q->n_logprobs = -1;
    else if (!b->has_top) b->q->n_logprobs = 0;
    return LN_OK;
}

static ln_status read_all(body_reader *b) {
    const char *name;
    json_t *v;
    char found[80];
    if (!json_is_object(b->q->root))
        return wire_refuse(b->why, "", "expected the body to be an object, found %s",
                           ln_json_text(b->q->root, found));
    json_object_foreach(b->q->root, name, v) LN_TRY(read_field(b, name, v));
    if (b->q->kind == WIRE_CHAT && !b->messages) return wire_refuse(b->why, "messages", "is required");
    if (b->q->kind == WIRE_COMPLETION && !b->prompt) return wire_refuse(b->why, "prompt", "is required");
    LN_TRY(body_check_tools(b));
    LN_TRY(check_length(b));
    LN_TRY(check_stream(b));
    LN_TRY(check_continued(b));
    LN_TRY(check_logprobs(b));
    if (b->has_penalty && !b->has_window) b->q->sampling.repeat_last = -1; /* as transformers and vLLM */
    LN_TRY(b->q->kind == WIRE_CHAT ? body_conversation(b) : make_prompts(b));
    return check_choices(b);
}

ln_status body_load(json_t **out, const char *text, size_t bytes, wire_error *why) {
    static const ln_json_limits most = {BODY_MOST_VALUES, BODY_MOST_CONTAINERS, BODY_MOST_KEY};
    const ln_status st = ln_json_load_limited(out, "body", text, bytes, &most, &why->error);
    return st == LN_OK ? LN_OK : wire_fail(why, st);
}

ln_status wire_request_open(wire_request *out, const wire_target *target, wire_kind kind, const char *body,
                            size_t bytes, wire_error *why) {
    *out = (wire_request){
        .kind = kind, .target = target, .n = 1, .n_logprobs = -1, .sampling = target->sampling};
    *why = (wire_error){0};
    body_reader b = {.q = out, .t = target, .why = why, .text = body, .bytes = bytes};
    LN_TRY(body_load(&out->root, body, bytes, why));
    return read_all(&b);
}

void wire_request_trim(wire_request *q) {
    json_t *prompt = q->echo ? json_incref(json_object_get(q->root, "prompt")) : NULL;
    json_decref(q->root);
    q->root = prompt;
    ln_str_free(&q->request);
    ln_str_free(&q->arguments);
    ln_str_free(&q->grammar);
    q->sampling.grammar = NULL;
    q->sampling.grammar_bytes = 0;
    if (!q->echo) q->prompts = NULL; /* its texts are gone */
}

void wire_request_close(wire_request *q) {
    json_decref(q->root);
    ln_arena_free(&q->arena);
    ln_str_free(&q->request);
    ln_str_free(&q->arguments);
    ln_str_free(&q->grammar);
    *q = (wire_request){0};
}

void wire_choice(const wire_request *q, size_t i, ln_prompt *prompt, ln_sampling *how,
                 ln_request_options *opt) {
    *prompt = q->prompts[i / (size_t)q->n];
    prompt->adapter = q->target->adapters ? q->target->adapters[q->model] : NULL;
    *how = q->sampling;
    how->seed += how->has_seed ? i % (size_t)q->n : 0;
    opt->sampling = how;
    opt->n_logprobs = q->n_logprobs;
    opt->prompt_logprobs = q->echo && q->n_logprobs >= 0;
}
