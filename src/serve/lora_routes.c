/* Adapters while the server runs: /lora-adapters lists them and sets their factors (llama.cpp's path),
 * /v1/load_lora_adapter and /v1/unload_lora_adapter (vLLM's paths). All but the list need
 * ln_serve_options.lora_dir, and adapters are read from below that directory alone.
 *
 * The worker for calls reads files and writes the engine's pool, one change after the other; the I/O thread
 * then replaces the model list. Requests that were accepted before keep their adapter. */
#include "../base/json.h"
#include "../base/json_write.h"
#include "../wire/body.h"
#include "dialect.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAME = 200 }; /* bytes of a name, its end included */

/* What a request changes. It belongs to its request. */
struct lora_change {
    char name[MOST_NAME];
    ln_adapter *adapter; /* that was loaded and is in no model list yet */
    bool replaces;       /* the adapter of this name, if there is one */
    double scales[];     /* [models.n] factors that were set; NaN: none was */
};

void lora_change_free(lora_change *c) {
    if (c) ln_adapter_close(&c->adapter);
    ln_free(c);
}

static request_context *of(work *w) { return (request_context *)(void *)w; }

static ln_status new_change(request_context *x) {
    const size_t n = x->models->n;
    x->change = ln_zalloc(1, sizeof *x->change + n * sizeof(double));
    if (!x->change) return wire_fail(&x->why, LN_OOM(&x->why.error, "a change of adapters"));
    for (size_t i = 0; i < n; i++) x->change->scales[i] = NAN;
    return LN_OK;
}

static void refuse(request_context *x, int status, const char *code) {
    x->why.http = status;
    x->why.code = code;
}

/* Whether adapters may be changed; otherwise the request is refused. */
static bool may_change(request_context *x) {
    if (x->s->o->lora_dir) return true;
    request_reject(x, 403, "adapters_are_fixed",
                   "adapters are changed only where the server was started with ln_serve_options.lora_dir");
    return false;
}

/* ---- bodies ---- */

/* Stores the text of the member `name`, which must be present and not empty. */
static ln_status text_member(request_context *x, const json_t *body, const char *name, const char **out) {
    LN_TRY(body_text(&x->why, name, json_object_get(body, name), out));
    return **out ? LN_OK : wire_refuse(&x->why, name, "expected a text that is not empty, found \"\"");
}

/* Reads `lora_name` to x->change->name. */
static ln_status read_name(request_context *x, const json_t *body) {
    const char *name = NULL;
    LN_TRY(new_change(x));
    LN_TRY(text_member(x, body, "lora_name", &name));
    const size_t n = strlen(name);
    if (n >= MOST_NAME)
        return wire_refuse(&x->why, "lora_name", "expected at most %d bytes, found %zu", MOST_NAME - 1, n);
    if (model_list_index(x->models, name, n) < x->models->n_base)
        return wire_refuse(&x->why, "lora_name", "'%s' is a name of the model itself", name);
    memcpy(x->change->name, name, n + 1);
    return LN_OK;
}

/* ---- loading ---- */

/* Resolves `path`, absolute or below ln_serve_options.lora_dir, to a directory below it. */
static ln_status resolve(request_context *x, const char *path, char out[PATH_MAX]) {
    char given[PATH_MAX], root[PATH_MAX], shown[80];
    const char *dir = x->s->o->lora_dir;
    const int n = path[0] == '/' ? snprintf(given, sizeof given, "%s", path)
                                 : snprintf(given, sizeof given, "%s/%s", dir, path);
    const bool there = n > 0 && (size_t)n < sizeof given && realpath(dir, root) && realpath(given, out);
    const size_t k = there ? strlen(root) : 0;
    if (there && strncmp(out, root, k) == 0 && (out[k] == '/' || (k == 1 && out[1]))) return LN_OK;
    const ln_status st =
        wire_refuse(&x->why, "lora_path", "there is no '%s' below the directory of ln_serve_options.lora_dir",
                    ln_excerpt(shown, path, strlen(path)));
    refuse(x, 404, "adapter_not_found"); /* whether something is there outside of it concerns no client */
    return st;
}

static ln_status read_load(request_context *x, const json_t *body, char dir[PATH_MAX]) {
    static const char *const known[] = {"lora_name", "lora_path", "load_inplace", NULL};
    static const char *const none[] = {NULL};
    const char *path = NULL;
    char found[80];
    const json_t *again = json_object_get(body, "load_inplace");
    LN_TRY(read_name(x, body));
    LN_TRY(text_member(x, body, "lora_path", &path));
    if (again && !json_is_null(again) && !json_is_boolean(again))
        return wire_refuse(&x->why, "load_inplace", "expected true or false, found %s",
                           ln_json_text(again, found));
    x->change->replaces = json_is_true(again);
    dialect_others(body, none, known);
    return resolve(x, path, dir);
}

/* Says what is wrong with the directory, or that there is no room for one more adapter. */
static ln_status fail_load(request_context *x, ln_status st) {
    /* this worker alone loads adapters, so that a place that was free before is free again */
    const bool full = st == LN_EMEMORY && ln_adapter_room(x->s->engine) == 0;
    if (st == LN_EIO || st == LN_ECHANGED) st = x->why.error.code = LN_EINVALID;
    (void)wire_fail(&x->why, st);
    if (full) refuse(x, 409, "too_many_adapters");
    if (x->why.http == 400) (void)snprintf(x->why.param, sizeof x->why.param, "lora_path");
    return st;
}

static void load(work *w) {
    request_context *x = of(w);
    char dir[PATH_MAX];
    json_t *body = NULL;
    ln_status st = request_read_object(x, &body);
    if (st == LN_OK) st = read_load(x, body, dir);
    json_decref(body);
    if (st != LN_OK || atomic_load(&x->left)) return;
    const ln_adapter_part part = {.dir = dir, .scale = 1};
    st = ln_adapter_open(&x->change->adapter, x->s->engine, &part, 1, &x->why.error);
    if (st != LN_OK) (void)fail_load(x, st);
}

/* Answers with entry i of /v1/models. */
static void answer_entry(request_context *x, size_t i) {
    ln_str out = {0};
    put_model(&out, x->s, i);
    reply_json(x, &out);
}

static void loaded(work *w) {
    request_context *x = request_of(w);
    if (!x) return;
    server *s = x->s;
    lora_change *c = x->change;
    if (x->why.http) {
        request_reply_error(x);
        return;
    }
    const size_t at = model_list_index(s->models, c->name, strlen(c->name));
    if (at < s->models->n && !c->replaces) {
        request_reject(x, 409, "adapter_exists",
                       "an adapter of this name is loaded; \"load_inplace\": true replaces it");
    } else if (model_list_put(s, c->name, c->adapter, 1, &x->why.error) != LN_OK) {
        request_reject(x, 503, "out_of_memory", "out of memory for an adapter");
    } else {
        c->adapter = NULL; /* the model list's */
        answer_entry(x, at);
    }
}

void handle_load_lora(request_context *x) {
    if (may_change(x)) request_work(x, &x->s->calling, load, loaded);
}

/* ---- unloading ---- */

static void unload(work *w) {
    static const char *const known[] = {"lora_name", "lora_int_id", NULL};
    static const char *const none[] = {NULL};
    request_context *x = of(w);
    json_t *body = NULL;
    if (request_read_object(x, &body) == LN_OK && read_name(x, body) == LN_OK)
        dialect_others(body, none, known);
    json_decref(body);
}

static void unloaded(work *w) {
    request_context *x = request_of(w);
    ln_str out = {0};
    size_t at = 0;
    if (!x) return;
    server *s = x->s;
    if (x->why.http == 0 &&
        wire_find_model(&at, &s->models->target, x->change->name, strlen(x->change->name), &x->why) ==
            LN_OK &&
        at < s->models->n_base) { /* every name is the base model's (--alias '*') */
        (void)wire_refuse(&x->why, "lora_name", "there is no adapter of this name");
        refuse(x, 404, "model_not_found");
    }
    if (x->why.http) {
        request_reply_error(x);
    } else if (model_list_remove(s, at, &x->why.error) != LN_OK) {
        request_reject(x, 503, "out_of_memory", "out of memory for the list of adapters");
    } else {
        ln_str_adds(&out, "{");
        put_text(&out, "id", x->change->name);
        put_text(&out, "object", "model");
        put_bool(&out, "deleted", true);
        ln_str_adds(&out, "}");
        reply_json(x, &out);
    }
}

void handle_unload_lora(request_context *x) {
    if (may_change(x)) request_work(x, &x->s->calling, unload, unloaded);
}

/* ---- the list, and factors ---- */

static void put_entry(ln_str *out, const model_list *r, size_t i) {
    ln_str_adds(out, i > r->n_base ? ",{" : "{");
    put_uint(out, "id", i - r->n_base);
    put_text(out, "name", r->names[i]);
    put_real(out, "scale", r->scales[i]);
    ln_str_adds(out, "}");
}

void handle_loras(request_context *x) {
    const model_list *r = x->s->models;
    ln_str out = {0};
    ln_str_adds(&out, "[");
    for (size_t i = r->n_base; i < r->n; i++) put_entry(&out, r, i);
    ln_str_adds(&out, "]");
    reply_json(x, &out);
}

/* Reads item k of the list: the index of an adapter, by its id or its name, and its new factor. */
static ln_status read_item(request_context *x, const json_t *item, size_t k, size_t *at, double *scale) {
    char field[48], found[80];
    int64_t id = -1;
    const json_t *name = json_object_get(item, "name"), *v = json_object_get(item, "scale");
    (void)snprintf(field, sizeof field, "[%zu]", k);
    if (!json_is_object(item))
        return wire_refuse(&x->why, field, "expected an object with id or name, and scale, found %s",
                           ln_json_text(item, found));
    (void)snprintf(field, sizeof field, "[%zu].scale", k);
    if (!json_is_number(v) || !isfinite((float)json_number_value(v))) /* factors are f32 */
        return wire_refuse(&x->why, field, "expected a number from -3.4e38 to 3.4e38, found %s",
                           ln_json_text(v, found));
    *scale = json_number_value(v);
    if (body_integer(json_object_get(item, "id"), &id))
        *at = id < 0 || id >= (int64_t)x->models->n ? SIZE_MAX : (size_t)id + x->models->n_base;
    else
        *at = json_is_string(name)
                  ? model_list_index(x->models, json_string_value(name), json_string_length(name))
                  : SIZE_MAX;
    if (*at >= x->models->n_base && *at < x->models->n) return LN_OK;
    (void)snprintf(field, sizeof field, "[%zu]", k);
    const ln_status st =
        wire_refuse(&x->why, field, "there is no such adapter: %s", ln_json_text(item, found));
    refuse(x, 404, "model_not_found");
    return st;
}

static ln_status set_scale(request_context *x, size_t at, double scale) {
    ln_status st = ln_adapter_set_scale(x->models->adapters[at], scale, &x->why.error);
    if (st == LN_OK) {
        x->change->scales[at] = scale;
        return LN_OK;
    }
    (void)wire_fail(&x->why, st);
    if (st == LN_EUSAGE) refuse(x, 409, "adapter_in_use");
    return model_list_check(x, at, st, &x->why);
}

/* All items are read before the first factor is set. */
static ln_status rescale_all(request_context *x, const json_t *list) {
    char found[80];
    size_t at;
    double scale;
    LN_TRY(new_change(x));
    if (!json_is_array(list) || json_array_size(list) > x->models->n)
        return wire_refuse(&x->why, "", "expected a list of adapters with their factors, found %s",
                           ln_json_text(list, found));
    for (size_t k = 0; k < json_array_size(list); k++)
        LN_TRY(read_item(x, json_array_get(list, k), k, &at, &scale));
    for (size_t k = 0; k < json_array_size(list); k++) {
        LN_TRY(read_item(x, json_array_get(list, k), k, &at, &scale));
        LN_TRY(set_scale(x, at, scale));
    }
    return LN_OK;
}

static void rescale(work *w) {
    request_context *x = of(w);
    json_t *list = NULL;
    if (body_load(&list, x->body.data ? x->body.data : "", x->body.len, &x->why) == LN_OK)
        (void)rescale_all(x, list);
    json_decref(list);
}

/* Notes the factors that were set, also when the client has left. */
static void note_scales(request_context *x) {
    const model_list *mine = x->models;
    model_list *now = x->s->models;
    for (size_t i = mine->n_base; x->change && i < mine->n; i++)
        for (size_t k = now->n_base; k < now->n && !isnan(x->change->scales[i]); k++)
            if (now->adapters[k] == mine->adapters[i]) now->scales[k] = x->change->scales[i];
}

static void rescaled(work *w) {
    note_scales(of(w));
    request_context *x = request_of(w);
    if (!x) return;
    if (x->why.http) request_reply_error(x);
    else handle_loras(x);
}

void handle_scale_loras(request_context *x) {
    if (may_change(x)) request_work(x, &x->s->calling, rescale, rescaled);
}
