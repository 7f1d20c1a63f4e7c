/* Values of fields: each reader takes a JSON value of one type and range, or refuses it with the field's
 * name, what was expected and what was found. */
#include "body.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STOPS = 16, MOST_STOP_BYTES = 1024, MOST_IDS = 1 << 20, MOST_BIASES = 1024 };

static ln_status no_room(body_reader *b) { return wire_fail(b->why, LN_OOM(&b->why->error, "a request")); }

ln_status body_real(body_reader *b, const char *name, const json_t *v, double lo, double hi, double *out) {
    char found[80];
    double x = json_is_number(v) ? json_number_value(v) : (double)NAN;
    if (!(x >= lo && x <= hi))
        return wire_refuse(b->why, name, "expected a number from %g to %g, found %s", lo, hi,
                           ln_json_text(v, found));
    *out = x;
    return LN_OK;
}

bool body_integer(const json_t *v, int64_t *out) {
    double x = json_real_value(v);
    if (json_is_integer(v)) return *out = json_integer_value(v), true;
    if (!json_is_real(v) || !(fabs(x) <= 9007199254740992.0) || x != floor(x)) return false;
    *out = (int64_t)x;
    return true;
}

ln_status body_int(body_reader *b, const char *name, const json_t *v, int64_t lo, int64_t hi, int64_t *out) {
    char found[80];
    int64_t i = 0;
    if (!body_integer(v, &i) || i < lo || i > hi)
        return wire_refuse(b->why, name, "expected an integer from %lld to %lld, found %s", (long long)lo,
                           (long long)hi, ln_json_text(v, found));
    *out = i;
    return LN_OK;
}

ln_status body_bool(body_reader *b, const char *name, const json_t *v, bool *out) {
    char found[80];
    if (!json_is_boolean(v))
        return wire_refuse(b->why, name, "expected true or false, found %s", ln_json_text(v, found));
    *out = json_is_true(v);
    return LN_OK;
}

/* An integer from 2^63 on reaches the tree as a real, which has lost its last digits: the text of the body
 * still has them. */
static bool large_seed(const body_reader *b, const char *name, uint64_t *out) {
    ln_json j;
    ln_error none;
    bool more = false, found = false;
    ln_json_open(&j, "body", b->text, b->bytes, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, &none);
    while (st == LN_OK && !found) {
        st = ln_json_key(&j, &more, &none);
        if (st != LN_OK || !more) break;
        bool is = ln_json_is(&j, name);
        st = ln_json_next(&j, &none);
        found = st == LN_OK && is;
        if (st == LN_OK && !found) st = ln_json_skip(&j, &none);
    }
    found = found && j.type == LN_J_NUMBER && ln_parse_u64(j.text, j.text_bytes, out);
    ln_json_close(&j);
    return found;
}

ln_status body_seed(body_reader *b, const char *name, const json_t *v) {
    ln_sampling *s = &b->q->sampling;
    char found[80];
    int64_t i = 0;
    uint64_t large = 0;
    if (body_integer(v, &i)) {
        s->has_seed = i != -1;
        s->seed = s->has_seed ? (uint64_t)i : 0;
    } else if (json_is_real(v) && large_seed(b, name, &large)) {
        s->has_seed = true;
        s->seed = large;
    } else {
        return wire_refuse(b->why, name,
                           "expected an integer from -2^63 to 2^64 - 1 (-1: one of the system's), found %s",
                           ln_json_text(v, found));
    }
    return LN_OK;
}

ln_status body_ids(body_reader *b, const char *name, const json_t *v, const int32_t **ids, size_t *n) {
    char found[80], item[96];
    size_t count = json_array_size(v);
    if (!json_is_array(v) || count > MOST_IDS)
        return wire_refuse(b->why, name, "expected a list of at most %d token ids, found %s", MOST_IDS,
                           ln_json_text(v, found));
    int32_t *list = ln_arena_alloc(&b->q->arena, (count + 1) * sizeof *list);
    if (!list) return no_room(b);
    for (size_t i = 0; i < count; i++) {
        int64_t id = 0;
        const json_t *x = json_array_get(v, i);
        if (!body_integer(x, &id) || id < 0 || id >= b->t->n_vocab) {
            (void)snprintf(item, sizeof item, "%.60s[%zu]", name, i);
            return wire_refuse(b->why, item, "expected a token id from 0 to %lld, found %s",
                               (long long)b->t->n_vocab - 1, ln_json_text(x, found));
        }
        list[i] = (int32_t)id;
    }
    *ids = list;
    *n = count;
    return LN_OK;
}

ln_status body_bias(body_reader *b, const char *name, const json_t *v) {
    ln_sampling *s = &b->q->sampling;
    char found[80], key[80];
    const char *id_text;
    json_t *bias;
    if (!json_is_object(v))
        return wire_refuse(b->why, name, "expected an object of token ids and numbers, found %s",
                           ln_json_text(v, found));
    if (json_object_size(v) > MOST_BIASES)
        return wire_refuse(b->why, name, "expected at most %d tokens, found %zu", MOST_BIASES,
                           json_object_size(v));
    ln_logit_bias *list = ln_arena_alloc(&b->q->arena, (json_object_size(v) + 1) * sizeof *list);
    if (!list) return no_room(b);
    size_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)v, id_text, bias) {
        int64_t id = -1;
        const bool plain = id_text[0] != '-' && (id_text[0] != '0' || !id_text[1]); /* each id has one text */
        if (!plain || !ln_parse_i64(id_text, strlen(id_text), &id) || id < 0 || id >= b->t->n_vocab)
            return wire_refuse(b->why, name, "expected token ids from 0 to %lld as keys, found \"%s\"",
                               (long long)b->t->n_vocab - 1, ln_excerpt(key, id_text, strlen(id_text)));
        if (!json_is_number(bias) || !(fabs(json_number_value(bias)) <= 100))
            return wire_refuse(b->why, name, "expected a number from -100 to 100 for token %lld, found %s",
                               (long long)id, ln_json_text(bias, found));
        list[n++] = (ln_logit_bias){(int32_t)id, (float)json_number_value(bias)};
    }
    s->bias = list;
    s->n_bias = n;
    return LN_OK;
}

static ln_status one_stop(body_reader *b, const char *name, const json_t *v, const char **out) {
    char found[80];
    size_t n = json_string_length(v);
    if (!json_is_string(v) || n == 0 || n > MOST_STOP_BYTES || memchr(json_string_value(v), 0, n))
        return wire_refuse(b->why, name, "expected a text of 1 to %d bytes without U+0000, found %s",
                           MOST_STOP_BYTES, ln_json_text(v, found));
    *out = ln_arena_strndup(&b->q->arena, json_string_value(v), n);
    return *out ? LN_OK : no_room(b);
}

ln_status body_stop(body_reader *b, const char *name, const json_t *v) {
    ln_sampling *s = &b->q->sampling;
    char found[80], item[40];
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > MOST_STOPS)
        return wire_refuse(b->why, name, "expected at most %d texts, found %s", MOST_STOPS,
                           ln_json_text(v, found));
    const char **list = ln_arena_alloc(&b->q->arena, (n + 1) * sizeof *list);
    if (!list) return no_room(b);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(item, sizeof item, json_is_array(v) ? "stop[%zu]" : "stop", i);
        LN_TRY(one_stop(b, item, json_is_array(v) ? json_array_get(v, i) : v, &list[i]));
    }
    s->stop = list;
    s->n_stop = n;
    return LN_OK;
}

const json_t *body_member(const json_t *body, const char *a, const char *b, const char **name) {
    const json_t *v = json_object_get(body, a);
    *name = a;
    if (v && !json_is_null(v)) return v;
    v = b ? json_object_get(body, b) : NULL;
    if (!v || json_is_null(v)) return NULL;
    *name = b;
    return v;
}

ln_status body_text(wire_error *why, const char *field, const json_t *v, const char **out) {
    char found[80];
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return wire_refuse(why, field, "expected a text without U+0000, found %s", ln_json_text(v, found));
    *out = json_string_value(v);
    return LN_OK;
}
