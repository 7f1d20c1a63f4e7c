/* --backend NAME: a verb that runs on a backend of the library's registry instead of the native engine.
 *
 * --backend native is the verb without the flag. Flags that only the native engine honours are rejected by
 * name before anything is loaded. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ln_status backend_open(const args *a, const char *model, ln_backend_model **out, ln_error *err) {
    char full[4096];
    ln_options o = ln_options_default();
    ln_backend_options opt = ln_backend_options_default();
    o.n_ctx = a->flag[F_CTX].i;
    o.n_chunk = (int)a->flag[F_CHUNK].i;
    o.progress = progress_line();
    opt.options = &o;
    opt.python = has(a, F_PYTHON) ? a->flag[F_PYTHON].text : NULL;
    if (a->n_adapters > 1)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "--adapter: the backend %s takes one adapter, found %zu; the native engine sums them",
                       a->flag[F_BACKEND].text, a->n_adapters);
    if (a->n_adapters == 1) {
        opt.adapter = realpath(a->adapters[0].dir, full) ? full : a->adapters[0].dir;
        opt.adapter_scale = a->adapters[0].scale;
    }
    const ln_status st = ln_backend_load(out, a->flag[F_BACKEND].text, model, &opt, err);
    progress_wipe();
    return st;
}

ln_status backend_generate(ln_backend_model *m, const ln_prompt *p, const ln_sampling *how,
                           ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    if (p->messages || p->request) return ln_backend_chat(m, p, how, on_text, user, out, err);
    return ln_backend_generate(m, p, how, on_text, user, out, err);
}

/* ---- doctor ---- */

typedef struct listing {
    ln_str *s;
    bool json;
} listing;

static ln_status on_backend(void *user, const ln_backend *b, const char *why, ln_error *err) {
    listing *l = user;
    (void)err;
    if (l->json) {
        ln_str_adds(l->s, l->s->data[l->s->len - 1] == '[' ? "{" : ",{");
        put_text(l->s, "name", b->name);
        put_bool(l->s, "available", !why);
        if (why) {
            put_key(l->s, "reason");
            ln_str words = {0};
            advice_add(&words, why);
            ln_str_json(l->s, words.data ? words.data : "", words.len);
            ln_str_free(&words);
        }
        ln_str_adds(l->s, "}");
    } else {
        ln_str_addf(l->s, "backend     %s: %s%s", b->name, b->what, why ? "; not available: " : "");
        if (why) advice_add(l->s, why);
        ln_str_adds(l->s, "\n");
    }
    return LN_OK;
}

ln_status backends_add(ln_str *s, const args *a, ln_error *err) {
    listing l = {s, has(a, F_JSON)};
    ln_backend_options opt = ln_backend_options_default();
    opt.python = has(a, F_PYTHON) ? a->flag[F_PYTHON].text : NULL;
    if (l.json) {
        put_key(s, "backends");
        ln_str_adds(s, "[");
    }
    LN_TRY(ln_backend_list(&opt, on_backend, &l, err));
    if (l.json) ln_str_adds(s, "]");
    return LN_OK;
}
