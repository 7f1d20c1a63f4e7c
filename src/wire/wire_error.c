/* Errors as the API writes them. */
#include "wire.h"
#include "../base/c_locale.h"
#include "../base/json_write.h"

#include <stdio.h>
#include <string.h>

static const char invalid[] = "invalid_request_error", server[] = "server_error";

ln_status wire_refuse(wire_error *why, const char *param, const char *fmt, ...) {
    char text[sizeof why->error.message];
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    *why = (wire_error){.http = 400, .type = invalid, .code = "invalid_value"};
    (void)snprintf(why->param, sizeof why->param, "%s", param);
    return ln_fail(&why->error, LN_EINVALID, "%s%s%s", param, param[0] ? ": " : "", n < 0 ? fmt : text);
}

ln_status wire_fail(wire_error *why, ln_status st) {
    bool theirs = st == LN_EUSAGE || st == LN_EINVALID || st == LN_EUNSUPPORTED;
    why->http = theirs ? 400 : st == LN_EMEMORY ? 503 : 500;
    why->type = theirs ? invalid : server;
    why->code = theirs ? NULL : st == LN_EMEMORY ? "out_of_memory" : "internal_error";
    why->param[0] = '\0';
    why->error.code = st;
    return st;
}

ln_status wire_fail_request(wire_error *why, const wire_request *q, ln_status st) {
    if (st == LN_EMEMORY && strstr(why->error.message, "KV pool")) { /* what is asked for can never run */
        (void)wire_fail(why, LN_EINVALID);
        why->code = "insufficient_memory";
        why->error.code = st;
        return st;
    }
    (void)wire_fail(why, st);
    /* Chat templates take texts of 8 MiB at most: a longer conversation is too long, whatever the context is.
     */
    const bool is_long =
        strstr(why->error.message, "context") ||
        (strstr(why->error.message, "chat_template: ") && strstr(why->error.message, "bytes, found one of"));
    if (why->http == 400 && is_long && st != LN_EUSAGE) {
        why->code = "context_length_exceeded";
        (void)snprintf(why->param, sizeof why->param, "%s", q->kind == WIRE_CHAT ? "messages" : "prompt");
    }
    return st;
}

/* An empty text is null. */
static void put_member(ln_str *out, const char *key, const char *value) {
    put_text(out, key, value && value[0] ? value : NULL);
}

void wire_put_error(ln_str *out, const wire_error *why) {
    ln_str_adds(out, "{");
    put_object(out, "error");
    put_text(out, "message", why->error.message);
    put_member(out, "type", why->type);
    put_member(out, "param", why->param);
    put_member(out, "code", why->code);
    ln_str_adds(out, "}}");
}
