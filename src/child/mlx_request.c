/* Prompts and samplings as JSON for the mlx-lm process. */
#include "mlx_lm.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static ln_status put_utf8(ln_str *s, const char *key, const char *what, const char *text, size_t bytes,
                          ln_error *err) {
    char shown[80];
    const size_t good = ln_utf8_valid(text ? text : "", text ? bytes : 0);
    if (text && good < bytes)
        return ln_fail(err, LN_EINVALID, "%s: byte %zu: expected UTF-8, found '%s'", what, good,
                       ln_excerpt(shown, text + good, LN_MIN(bytes - good, (size_t)4)));
    put_bytes(s, key, text ? text : "", text ? bytes : 0);
    return LN_OK;
}

/* Appends an object that the caller gave as JSON. Between its tokens a newline is a blank; within strings
 * none can be. */
static ln_status put_raw(ln_str *s, const char *key, const char *what, const char *text, size_t bytes,
                         ln_error *err) {
    json_t *root = NULL;
    LN_TRY(ln_json_load(&root, what, text, bytes, err));
    const bool ok = json_is_object(root);
    json_decref(root);
    if (!ok) return ln_fail(err, LN_EINVALID, "%s: expected a JSON object", what);
    put_key(s, key);
    const size_t from = s->len;
    ln_str_add(s, text, bytes);
    for (size_t i = from; i < s->len; i++)
        if (s->data[i] == '\n' || s->data[i] == '\r') s->data[i] = ' ';
    return LN_OK;
}

static ln_status put_messages(ln_str *s, const ln_prompt *p, ln_error *err) {
    put_list(s, "messages");
    for (size_t i = 0; i < p->n_messages; i++) {
        const ln_message *m = &p->messages[i];
        if (!m->role || (!m->content && m->content_bytes > 0))
            return ln_fail(err, LN_EUSAGE, "message %zu: role and content must not be NULL", i);
        ln_str_adds(s, i ? ",{" : "{");
        LN_TRY(put_utf8(s, "role", "a role", m->role, strlen(m->role), err));
        LN_TRY(put_utf8(s, "content", "a message", m->content ? m->content : "", m->content_bytes, err));
        ln_str_adds(s, "}");
    }
    ln_str_adds(s, "]");
    return LN_OK;
}

ln_status ln_mlx_put_prompt(ln_str *s, const char *key, const ln_prompt *p, ln_error *err) {
    static const char *const templates[] = {"auto", "raw", "chat"};
    const int kinds = (p->text != NULL) + (p->ids != NULL) + (p->messages != NULL) + (p->request != NULL);
    const bool talk = p->messages || p->request;
    if (kinds != 1)
        return ln_fail(err, LN_EUSAGE,
                       "a prompt has exactly one of text, ids, messages and request, found %d of them",
                       kinds);
    if (talk && p->tmpl == LN_TEMPLATE_RAW)
        return ln_fail(err, LN_EUSAGE,
                       "a conversation needs a chat template; ln_prompt.tmpl = "
                       "LN_TEMPLATE_RAW excludes one");
    if (p->system && (!p->text || p->tmpl == LN_TEMPLATE_RAW))
        return ln_fail(err, LN_EUSAGE, "ln_prompt.system belongs to a text with a chat template");
    if (p->continue_last)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "mlx-lm does not continue the last message (ln_prompt.continue_last)");
    if (key) put_object(s, key);
    else ln_str_adds(s, "{");
    if (p->ids) put_ids(s, "ids", p->ids, p->n_ids);
    if (p->messages) LN_TRY(put_messages(s, p, err));
    if (p->request) LN_TRY(put_raw(s, "request", "the conversation", p->request, p->request_bytes, err));
    if (p->text) {
        LN_TRY(put_utf8(s, "text", "the prompt", p->text, p->text_bytes, err));
        put_text(s, "template", templates[p->tmpl]);
    }
    if (p->system) LN_TRY(put_utf8(s, "system", "the system text", p->system, p->system_bytes, err));
    if (p->template_args)
        LN_TRY(put_raw(s, "args", "the template's arguments", p->template_args, p->template_args_bytes, err));
    ln_str_adds(s, "}");
    return LN_OK;
}

static ln_status put_stops(ln_str *s, const ln_sampling *how, ln_error *err) {
    put_list(s, "stop");
    for (size_t i = 0; i < how->n_stop + how->n_model_stop; i++) {
        const char *text = i < how->n_stop ? how->stop[i] : how->model_stop[i - how->n_stop];
        if (ln_utf8_valid(text, strlen(text)) < strlen(text))
            return ln_fail(err, LN_EUSAGE, "stop text %zu (ln_sampling.stop): expected UTF-8", i + 1);
        if (i) ln_str_adds(s, ",");
        ln_str_json(s, text, strlen(text));
    }
    ln_str_adds(s, "]");
    return LN_OK;
}

static void put_forbidden(ln_str *s, const ln_sampling *how) {
    put_ids(s, "stop_ids", how->stop_ids, how->n_stop_ids);
    put_ids(s, "suppress", how->suppress, how->n_suppress);
    put_ids(s, "begin_suppress", how->begin_suppress, how->n_begin_suppress);
    put_int(s, "no_repeat_ngram", how->no_repeat_ngram);
    put_int(s, "min_new", how->min_new);
    put_list(s, "bad_words");
    for (size_t i = 0; i < how->n_bad_words; i++) {
        ln_str_adds(s, i ? ",[" : "[");
        for (size_t k = 0; k < how->bad_words[i].n; k++)
            ln_str_addf(s, "%s%d", k ? "," : "", how->bad_words[i].ids[k]);
        ln_str_adds(s, "]");
    }
    ln_str_adds(s, "]");
    put_list(s, "bias");
    for (size_t i = 0; i < how->n_bias; i++) {
        ln_str_addf(s, "%s[%d,", i ? "," : "", how->bias[i].id);
        ln_str_double(s, (double)how->bias[i].bias); /* minus infinity becomes null */
        ln_str_adds(s, "]");
    }
    ln_str_adds(s, "]");
}

ln_status ln_mlx_put_sampling(ln_str *s, const ln_sampling *how, uint64_t *seed, ln_error *err) {
    if (how->has_think_budget)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "ln_sampling.think_budget: the backend mlx_lm does not limit reasoning; leave it out");
    if (how->grammar)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "ln_sampling.grammar: the backend mlx_lm does not constrain answers; leave it out");
    *seed = how->seed;
    if (!how->has_seed && getentropy(seed, sizeof *seed) != 0)
        return ln_fail(err, LN_EIO, "the system gives no random numbers for a seed");
    put_object(s, "sampling");
    put_real(s, "temperature", how->temperature);
    put_real(s, "top_p", how->top_p);
    put_real(s, "min_p", how->min_p);
    put_real(s, "repeat_penalty", how->repeat_penalty);
    put_real(s, "presence_penalty", how->presence_penalty);
    put_real(s, "frequency_penalty", how->frequency_penalty);
    put_int(s, "top_k", how->top_k);
    put_int(s, "repeat_last", how->repeat_last);
    put_bool(s, "ignore_eos", how->ignore_eos);
    put_uint(s, "seed", *seed);
    LN_TRY(put_stops(s, how, err));
    put_forbidden(s, how);
    ln_str_adds(s, "}");
    return LN_OK;
}
