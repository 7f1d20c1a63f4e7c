/* Checks of a sampling that a caller gives. */
#include "args.h"

#include <math.h>
#include <string.h>

static bool ids_ok(const int32_t *ids, size_t n, int64_t V) {
    if (n > 0 && !ids) return false;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= V) return false;
    return true;
}

static bool texts_ok(const char *const *texts, size_t n) {
    if (n > 0 && !texts) return false;
    for (size_t i = 0; i < n; i++) {
        size_t len = texts[i] ? strlen(texts[i]) : 0;
        if (len == 0 || len > LN_STOP_MOST || ln_utf8_valid(texts[i], len) < len) return false;
    }
    return true;
}

/* Checks what a sampling forbids. The lists of ln_sampling_default are valid; a caller's own may not be. */
static ln_status check_lists(const ln_sampling *s, int64_t V, ln_error *err) {
    bool ok = ids_ok(s->suppress, s->n_suppress, V) && ids_ok(s->begin_suppress, s->n_begin_suppress, V) &&
              (s->bad_words || !s->n_bad_words);
    for (size_t i = 0; ok && i < s->n_bad_words; i++)
        ok = s->bad_words[i].n > 0 && ids_ok(s->bad_words[i].ids, s->bad_words[i].n, V);
    if (!ok)
        return ln_fail(err, LN_EUSAGE,
                       "suppress, begin_suppress and bad_words: expected lists of ids from 0 to %lld, not "
                       "NULL, and no empty sequence",
                       (long long)V - 1);
    if (!ids_ok(s->stop_ids, s->n_stop_ids, V))
        return ln_fail(err, LN_EUSAGE, "stop ids (ln_sampling.stop_ids): expected ids from 0 to %lld",
                       (long long)V - 1);
    ok = s->tool_names || s->n_tool_names == 0;
    for (size_t i = 0; ok && i < s->n_tool_names; i++) ok = s->tool_names[i] != NULL;
    if (!ok || s->tool_choice < LN_TOOLS_OFF || s->tool_choice > LN_TOOLS_REQUIRED)
        return ln_fail(err, LN_EUSAGE,
                       "ln_sampling.tool_choice: expected LN_TOOLS_OFF, _AUTO or _REQUIRED, and in "
                       "tool_names texts that are not NULL");
    if (!s->grammar != (s->grammar_bytes == 0))
        return ln_fail(err, LN_EUSAGE,
                       "ln_sampling.grammar: expected a JSON text of grammar_bytes bytes, or NULL and 0, "
                       "found %s and %zu bytes",
                       s->grammar ? "a text" : "NULL", s->grammar_bytes);
    if (!texts_ok(s->model_stop, s->n_model_stop))
        return ln_fail(err, LN_EUSAGE, "model_stop: expected texts of 1 to %d bytes of UTF-8", LN_STOP_MOST);
    return LN_OK;
}

static ln_status check_numbers(const ln_sampling *s, int64_t V, ln_error *err) {
    const struct {
        const char *field;
        double value, least, most;
    } reals[] = {
        {"temperature", s->temperature, 0, 1e6},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"presence_penalty", s->presence_penalty, -100, 100},
        {"frequency_penalty", s->frequency_penalty, -100, 100},
    };
    const struct {
        const char *field;
        int64_t value, least;
    } counts[] = {
        {"top_k", s->top_k, 0},
        {"repeat_last", s->repeat_last, -1},
        {"n_max", s->n_max, -1},
        {"think_budget", s->has_think_budget ? s->think_budget : 0, 0},
        {"no_repeat_ngram", s->no_repeat_ngram, 0},
        {"min_new", s->min_new, 0},
    };
    for (size_t i = 0; i < LN_COUNT(reals); i++)
        if (!(reals[i].value >= reals[i].least && reals[i].value <= reals[i].most)) /* a NaN, too */
            return ln_fail(err, LN_EUSAGE, "sampling: %s: expected a number from %g to %g, found %g",
                           reals[i].field, reals[i].least, reals[i].most, reals[i].value);
    if (!(s->repeat_penalty > 0 && s->repeat_penalty <= 1e6))
        return ln_fail(err, LN_EUSAGE,
                       "repeat penalty (ln_sampling.repeat_penalty): expected more than 0 (1 is off), at "
                       "most 1e+06, "
                       "found %g",
                       s->repeat_penalty);
    for (size_t i = 0; i < LN_COUNT(counts); i++)
        if (counts[i].value < counts[i].least)
            return ln_fail(err, LN_EUSAGE, "sampling: %s: expected %lld or more, found %lld", counts[i].field,
                           (long long)counts[i].least, (long long)counts[i].value);
    if (s->n_bias > 0 && !s->bias)
        return ln_fail(err, LN_EUSAGE, "n_bias is %zu, but there is no bias", s->n_bias);
    if (s->n_stop > 0 && !s->stop)
        return ln_fail(err, LN_EUSAGE, "n_stop is %zu, but there is no stop", s->n_stop);
    if (s->n_stop > 16)
        return ln_fail(err, LN_EUSAGE, "stop (ln_sampling.stop): expected at most 16 texts, found %zu",
                       s->n_stop);
    for (size_t i = 0; i < s->n_stop; i++)
        if (!s->stop[i] || !s->stop[i][0] || strlen(s->stop[i]) > 1024 ||
            ln_utf8_valid(s->stop[i], strlen(s->stop[i])) < strlen(s->stop[i]))
            return ln_fail(err, LN_EUSAGE,
                           "stop text %zu (ln_sampling.stop): expected 1 to 1024 bytes of UTF-8, found %zu "
                           "bytes",
                           i + 1, s->stop[i] ? strlen(s->stop[i]) : 0);
    for (size_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= V || !(s->bias[i].bias < INFINITY))
            return ln_fail(err, LN_EUSAGE,
                           "logit bias (ln_sampling.bias): expected an id from 0 to %lld and a number below "
                           "infinity, found %d=%g",
                           (long long)V - 1, s->bias[i].id, (double)s->bias[i].bias);
    return LN_OK;
}

ln_status ln_api_check_sampling(const ln_sampling *s, int64_t V, ln_error *err) {
    LN_TRY(check_numbers(s, V, err));
    return check_lists(s, V, err);
}

ln_status ln_api_sampling(const ln_sampling *sampling, int64_t V, ln_sampling *out, ln_error *err) {
    LN_TRY(ln_api_copy_sized(out, sizeof *out, sampling, "ln_sampling", err));
    return ln_api_check_sampling(out, V, err);
}
