/* Generates text after one prompt: opens a request and hands on its events.
 *
 * Callbacks run on the calling thread, while no thread, or another, runs the engine's steps. A cancelled
 * generation is a result, not an error; an error in mid-generation comes with the text before it. */
#include "generate.h"

#include "engine.h"
#include "tool_names.h"

#include <string.h>

enum { RAW_TOKENS = 256 }; /* the default of n_max for text without a chat template */

ln_status ln_eng_check_ids(const ln_eng *e, const int32_t *ids, size_t n, ln_error *err) {
    if (n > (size_t)e->run->opt.n_ctx)
        return ln_fail(err, LN_EINVALID,
                       "the prompt has %zu tokens, the context holds %lld%s a shorter prompt", n,
                       (long long)e->run->opt.n_ctx,
                       e->run->opt.n_ctx < e->model->spec.n_ctx ? "; use a larger ln_options.n_ctx or"
                                                                : ", as many as the model was made for; use");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->run->spec->V)
            return ln_fail(err, LN_EINVALID, "token %zu is %d, expected 0 .. %lld", i, ids[i],
                           (long long)e->run->spec->V - 1);
    return LN_OK;
}

ln_status ln_eng_encode(const ln_eng *e, const ln_prompt *p, ln_ids *ids, ln_error *err) {
    const int64_t n_ctx = e->run->opt.n_ctx;
    ids->most = (size_t)n_ctx;
    ids->fewest = 0;
    const ln_status st = ln_package_encode_prompt(e->model, p, ids, err);
    if (st == LN_OK || ids->fewest == 0) return st;
    return ln_fail(err, st,
                   "the prompt has at least %zu tokens, the context holds %lld; use %sa shorter prompt",
                   ids->fewest, (long long)n_ctx,
                   n_ctx < e->model->spec.n_ctx ? "a larger ln_options.n_ctx or " : "");
}

ln_status ln_eng_request(ln_req **out, ln_eng *e, const ln_prompt *p, const ln_req_options *opt,
                         ln_error *err) {
    ln_status st = LN_OK;
    ln_ids ids = {0};
    ln_req_options o = *opt;
    ln_arena names = {0};
    ln_sampling how;
    const bool tmpl = ln_package_uses_template(e->model, p);
    *out = NULL;
    o.opened = ln_now();
    LN_GO(ln_eng_encode(e, p, &ids, err));
    if (ids.n == 0)
        LN_GO(ln_fail(err, LN_EUSAGE,
                      "the prompt is empty and this model adds no token of its own; give some text"));
    LN_GO(ln_eng_check_ids(e, ids.data, ids.n, err));
    o.ids = ids.data;
    o.n_ids = (int64_t)ids.n;
    o.split_reasoning = tmpl;
    o.adapter_slot = ln_prompt_adapter(p);
    if (o.how) {
        how = *o.how;
        if (how.n_max < 0) how.n_max = tmpl ? INT64_MAX : RAW_TOKENS;
        LN_GO(ln_eng_tool_names(e->model, p, &names, &how, &o.tools, &o.prose, err));
        o.how = &how;
    }
    LN_GO(ln_req_new(out, e, &o, err));
out:
    ln_ids_free(&ids);
    ln_arena_free(&names);
    return st;
}

/* Hands a piece of text to a callback, which may be NULL. */
static ln_status show(const ln_event *v, ln_text_fn *fn, void *user, ln_error *err) {
    return fn ? LN_CALLBACK(fn(user, v->text, v->bytes, err)) : LN_OK;
}

void ln_eng_say_read(const ln_req *r, const ln_req_view *v, int64_t *said) {
    if (v->n_read <= LN_MAX(*said, v->n_cached)) return;
    *said = v->n_read;
    ln_say_progress(&r->e->run->opt, "reading", v->n_read - v->n_cached, r->opt.n_ids - v->n_cached);
}

ln_status ln_eng_generate(ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text,
                          void *user, ln_result *out, ln_error *err) {
    ln_req *r;
    ln_event v = {.size = sizeof v};
    ln_error refusal;
    ln_status said = LN_OK, st = LN_OK;
    bool refused = false; /* a callback that asked to stop is not called again */
    int64_t said_read = 0;
    *out = (ln_result){.size = sizeof *out};
    LN_TRY(ln_eng_request(&r, e, p, &(ln_req_options){.how = how}, err));
    while (v.kind != LN_EVENT_FINISH) {
        const ln_req_view view = ln_req_look(r);
        ln_eng_say_read(r, &view, &said_read);
        LN_GO(ln_req_next(r, 0, &v, err));
        if (v.kind == LN_EVENT_NONE) (void)ln_req_wait_change(r, view.changes, -1);
        if (refused || (v.kind != LN_EVENT_TEXT && v.kind != LN_EVENT_REASONING)) continue;
        said = show(&v, v.kind == LN_EVENT_TEXT ? on_text : how->on_reasoning, user, &refusal);
        refused = said != LN_OK;
        if (refused) ln_req_cancel(r);
    }
    st = ln_req_result(r, out, err);
    if (refused) out->finish = LN_FINISH_CANCELLED; /* the request may have ended before it was refused */
    if (said != LN_OK && said != LN_ECANCELLED) st = ln_fail(err, said, "%s", refusal.message);
out:
    ln_req_free(&r);
    return st;
}
