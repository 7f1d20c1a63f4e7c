/* One request to the mlx-lm process: sending it, reading its messages, cancelling, time limits. */
#include "mlx_lm.h"

#include "../base/c_locale.h"

#include <math.h>
#include <string.h>

static const double SLICE = 0.01;            /* between two looks at the request to stop */
static const double ANSWER_TO_CANCEL = 0.12; /* so that a cancelled call returns within 200 ms */

ln_status ln_mlx_broken(ln_mlx *m, ln_error *err, const char *fmt, ...) {
    char text[800];
    va_list list;
    ln_error why;
    va_start(list, fmt);
    (void)ln_vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    (void)ln_fail(&why, LN_EIO, "mlx_lm: %s", text);
    ln_child_kill(m->child, &why);
    return ln_fail(err, LN_EIO, "%s; load the model again", why.message);
}

void ln_mlx_begin(ln_mlx_call *call, ln_mlx *m, const char *cmd, const ln_backend_sink *sink, ln_str *line) {
    *call = (ln_mlx_call){.m = m, .id = ++m->next_id, .sink = sink, .limit = m->reply_seconds};
    ln_str_adds(line, "{");
    put_uint(line, "id", call->id);
    put_text(line, "cmd", cmd);
}

ln_status ln_mlx_send(ln_mlx_call *call, ln_str *line, ln_error *err) {
    ln_str_adds(line, "\n");
    ln_status st = line->failed ? LN_OOM(err, "a request")
                                : ln_child_send(call->m->child, line->data, line->len, call->limit, err);
    ln_str_free(line);
    if (st == LN_EIO) return ln_prefix(err, st, "mlx_lm");
    call->heard = ln_now();
    return st;
}

ln_status ln_mlx_cancel(ln_mlx_call *call, ln_error *err) {
    ln_str line = {0};
    if (call->cancelled) return LN_OK;
    call->cancelled = true;
    call->cancelled_at = ln_now();
    ln_str_adds(&line, "{");
    put_uint(&line, "id", call->id);
    put_text(&line, "cmd", "cancel");
    ln_str_adds(&line, "}");
    return ln_mlx_send(call, &line, err);
}

void ln_mlx_done(ln_mlx_call *call) {
    json_decref(call->message);
    call->message = NULL;
    call->event = NULL;
}

/* ---- messages ---- */

static ln_status read_message(ln_mlx_call *call, const char *line, size_t bytes, uint64_t *id,
                              ln_error *err) {
    char shown[80];
    ln_error why;
    (void)ln_excerpt(shown, line, bytes);
    if (ln_json_load(&call->message, "message", line, bytes, &why) != LN_OK)
        return why.code == LN_EMEMORY
                   ? LN_OOM(err, "a message")
                   : ln_mlx_broken(call->m, err, "the process sent what is no JSON: '%s'", shown);
    const json_t *number = json_object_get(call->message, "id"),
                 *event = json_object_get(call->message, "ev");
    if (!json_is_integer(number) || json_integer_value(number) < 0 || !json_is_string(event))
        return ln_mlx_broken(call->m, err, "the process sent a message without id and ev: '%s'", shown);
    *id = (uint64_t)json_integer_value(number);
    call->event = json_string_value(event);
    if (*id > call->id)
        return ln_mlx_broken(call->m, err, "the process answered request %llu, which was never sent",
                             (unsigned long long)*id);
    return LN_OK;
}

static ln_status error_of(ln_mlx_call *call, ln_error *err) {
    static const struct {
        const char *kind;
        ln_status st;
    } kinds[] = {{"usage", LN_EUSAGE},
                 {"invalid", LN_EINVALID},
                 {"unsupported", LN_EUNSUPPORTED},
                 {"io", LN_EIO},
                 {"memory", LN_EMEMORY},
                 {"numeric", LN_ENUMERIC},
                 {"internal", LN_EUNSUPPORTED},
                 {"cancelled", LN_ECANCELLED}};
    const char *kind, *text;
    size_t bytes;
    LN_TRY(ln_mlx_text(call, "kind", &kind, &bytes, err));
    LN_TRY(ln_mlx_text(call, "message", &text, &bytes, err));
    char words[900];
    size_t n = LN_MIN(bytes, sizeof words - 1);
    while (n < bytes && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    for (size_t i = 0; i < n; i++) words[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? ' ' : text[i];
    words[n] = '\0';
    for (size_t i = 0; i < LN_COUNT(kinds); i++)
        if (strcmp(kind, kinds[i].kind) == 0) return ln_fail(err, kinds[i].st, "mlx_lm: %s", words);
    return ln_mlx_broken(call->m, err, "the process sent an error of unknown kind '%.40s'", kind);
}

/* Whether the wait is over without a message: the request was cancelled a while ago. Cancels it if the
 * caller asks for that. */
static ln_status look(ln_mlx_call *call, bool *over, ln_error *err) {
    const double now = ln_now();
    *over = call->cancelled && now - call->cancelled_at >= ANSWER_TO_CANCEL;
    if (!call->cancelled && call->sink && call->sink->stopped(call->sink->user))
        return ln_mlx_cancel(call, err);
    if (!*over && now - call->heard >= call->limit)
        return ln_mlx_broken(call->m, err, "the process has said nothing for %.3g s (%s)", call->limit,
                             call->sink ? "ln_backend_options.reply_seconds"
                                        : "ln_backend_options.load_seconds");
    return LN_OK;
}

ln_status ln_mlx_next(ln_mlx_call *call, ln_error *err) {
    for (;;) {
        char *line;
        size_t bytes;
        uint64_t id = 0;
        bool over;
        ln_mlx_done(call);
        LN_TRY(look(call, &over, err));
        if (over) return LN_OK;
        const ln_status st = ln_child_receive(call->m->child, LN_MIN(SLICE, call->limit), &line, &bytes, err);
        if (st == LN_EIO && err) {
            const ln_error why = *err;
            ln_child_kill(call->m->child, &why);
            return ln_prefix(err, st, "mlx_lm");
        }
        LN_TRY(st);
        if (!line) continue;
        call->heard = ln_now();
        LN_TRY(read_message(call, line, bytes, &id, err));
        if (id < call->id) continue; /* of a request that was cancelled */
        return strcmp(call->event, "error") == 0 ? error_of(call, err) : LN_OK;
    }
}

/* ---- members ---- */

static ln_status wrong(ln_mlx_call *call, const char *name, const char *expected, ln_error *err) {
    char found[80];
    return ln_mlx_broken(call->m, err, "the message %.20s: %s: expected %s, found %s", call->event, name,
                         expected, ln_json_text(json_object_get(call->message, name), found));
}

ln_status ln_mlx_int(ln_mlx_call *call, const char *name, int64_t lo, int64_t hi, int64_t *out,
                     ln_error *err) {
    const json_t *v = json_object_get(call->message, name);
    *out = json_is_integer(v) ? (int64_t)json_integer_value(v) : 0;
    return json_is_integer(v) && *out >= lo && *out <= hi ? LN_OK
                                                          : wrong(call, name, "an integer in range", err);
}

ln_status ln_mlx_real(ln_mlx_call *call, const char *name, double *out, ln_error *err) {
    const json_t *v = json_object_get(call->message, name);
    *out = json_is_number(v) ? json_number_value(v) : 0;
    return json_is_number(v) ? LN_OK : wrong(call, name, "a number", err);
}

ln_status ln_mlx_bool(ln_mlx_call *call, const char *name, bool *out, ln_error *err) {
    const json_t *v = json_object_get(call->message, name);
    *out = json_is_true(v);
    return json_is_boolean(v) ? LN_OK : wrong(call, name, "true or false", err);
}

ln_status ln_mlx_text(ln_mlx_call *call, const char *name, const char **text, size_t *bytes, ln_error *err) {
    const json_t *v = json_object_get(call->message, name);
    *text = json_is_string(v) ? json_string_value(v) : "";
    *bytes = json_is_string(v) ? json_string_length(v) : 0;
    return json_is_string(v) ? LN_OK : wrong(call, name, "a text", err);
}

ln_status ln_mlx_list(ln_mlx_call *call, const char *name, const json_t **out, ln_error *err) {
    *out = json_object_get(call->message, name);
    return json_is_array(*out) ? LN_OK : wrong(call, name, "a list", err);
}

/* ---- arrays ---- */

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 to out[cap]. Returns the number of bytes, SIZE_MAX for other text or too much of it. */
static size_t decode(const char *text, size_t n, uint8_t *out, size_t cap) {
    uint32_t bits = 0;
    size_t at = 0;
    int have = 0;
    while (n > 0 && text[n - 1] == '=') n--;
    for (size_t i = 0; i < n; i++) {
        const int d = digit_of(text[i]);
        if (d < 0) return SIZE_MAX;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        if (at == cap) return SIZE_MAX;
        out[at++] = (uint8_t)(bits >> have);
    }
    return at;
}

ln_status ln_mlx_array(ln_mlx_call *call, float **values, size_t *n, size_t most, bool *full, ln_error *err) {
    int64_t at, total;
    const char *text;
    size_t bytes;
    LN_TRY(ln_mlx_int(call, "total", 1, (int64_t)LN_MIN(most, (size_t)1 << 40), &total, err));
    LN_TRY(ln_mlx_int(call, "at", 0, total, &at, err));
    LN_TRY(ln_mlx_text(call, "data", &text, &bytes, err));
    if (!*values) {
        *n = (size_t)total;
        *values = ln_zalloc(*n, sizeof **values);
        if (!*values) return LN_OOM(err, "values of the process");
    }
    const size_t left = (*n - LN_MIN((size_t)at, *n)) * sizeof **values,
                 got = decode(text, bytes, (uint8_t *)(*values + LN_MIN((size_t)at, *n)), left);
    if (*n != (size_t)total || got == SIZE_MAX || got == 0 || got % sizeof **values != 0)
        return wrong(call, "data", "a part of the array in base64", err);
    *full = (size_t)at + got / sizeof **values == *n;
    return LN_OK;
}
