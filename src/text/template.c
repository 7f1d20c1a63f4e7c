/* Where a chat template comes from, and how a request becomes its variables.
 *
 * A model may ship one template or a list of named ones; then "tool_use" serves conversations with tools and "default" the others. A
 * request is read twice: once to find where its parts lie, once to make values of them, because the template that says which variables
 * matter may come after them. Only the names of special tokens are trusted text; all else in a request is data. */
#include "template.h"

#include "../base/file.h"

#include <string.h>

enum { FILE_MOST = 16 << 20 };

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
enum { N_TOKENS = LN_COUNT(token_names) };

struct ln_tmpl {
    jinja *plain, *tools; /* tools: NULL when the same serves both */
    char *source;
    size_t bytes;
    char *token[N_TOKENS];
    size_t token_bytes[N_TOKENS];
};

/* ---- opening ---- */

static ln_status compile(jinja **out, const char *name, const char *source, size_t bytes, ln_error *err) {
    static const jinja_options chat = {.trim_blocks = true, .lstrip_blocks = true};
    return jinja_compile(out, name, source, bytes, &chat, err);
}

static ln_status use(ln_tmpl *t, const char *name, const char *source, size_t bytes, ln_error *err) {
    t->source = ln_strndup(source, bytes);
    if (!t->source) return LN_OOM(err, "a chat template");
    t->bytes = bytes;
    return compile(&t->plain, name, source, bytes, err);
}

static ln_status use_file(ln_tmpl *t, const char *path, ln_error *err) {
    char *data;
    size_t bytes;
    LN_TRY(ln_read_file(path, JINJA_MAX_SOURCE, &data, &bytes, err));
    const char *name = strrchr(path, '/');
    ln_status st = use(t, name ? name + 1 : path, data, bytes, err);
    ln_free(data);
    return st;
}

/* "bos_token": a text, or an object with its "content". */
static ln_status read_tokens(ln_tmpl *t, const json_t *config, ln_error *err) {
    for (size_t i = 0; i < N_TOKENS; i++) {
        const json_t *v = json_object_get(config, token_names[i]);
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (!json_is_string(v)) continue;
        t->token_bytes[i] = json_string_length(v);
        t->token[i] = ln_strndup(json_string_value(v), t->token_bytes[i]);
        if (!t->token[i]) return LN_OOM(err, "a special token");
    }
    return LN_OK;
}

static const json_t *named(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i), *n = json_object_get(e, "name"), *text = json_object_get(e, "template");
        if (json_is_string(n) && json_is_string(text) && strcmp(json_string_value(n), name) == 0) return text;
    }
    return NULL;
}

static ln_status use_json(ln_tmpl *t, const json_t *v, const char *name, ln_error *err) {
    return use(t, name, json_string_value(v), json_string_length(v), err);
}

static ln_status use_config(ln_tmpl *t, const json_t *v, const char *choice, ln_error *err) {
    static const char file[] = "tokenizer_config.json";
    char shown[80];
    if (!v || json_is_null(v)) return choice ? ln_fail(err, LN_EIO, "no chat template '%s': this model ships none", ln_excerpt(shown, choice, strlen(choice))) : LN_OK;
    if (json_is_string(v) && (!choice || strcmp(choice, "default") == 0)) return use_json(t, v, file, err);
    if (!json_is_array(v)) return ln_fail(err, LN_EINVALID, "%s: chat_template: expected a text or a list of named ones%s", file, choice ? "; it has no names to choose from" : "");
    const json_t *plain = named(v, choice ? choice : "default"), *tools = choice ? NULL : named(v, "tool_use");
    if (!plain) return ln_fail(err, choice ? LN_EIO : LN_EINVALID, "%s: chat_template: no template named '%s' in the list", file, choice ? ln_excerpt(shown, choice, strlen(choice)) : "default");
    LN_TRY(use_json(t, plain, file, err));
    return tools ? compile(&t->tools, file, json_string_value(tools), json_string_length(tools), err) : LN_OK;
}

static ln_status open_dir(ln_tmpl *t, const char *dir, const char *choice, ln_error *err) {
    char path[4096];
    json_t *config = NULL;
    ln_status st = LN_OK;
    bool is_file = choice && (strchr(choice, '/') || (strlen(choice) > 6 && strcmp(choice + strlen(choice) - 6, ".jinja") == 0));
    if (snprintf(path, sizeof path, "%s/tokenizer_config.json", dir) >= (int)sizeof path) return ln_fail(err, LN_EINVALID, "the path of the model is too long");
    if (ln_exists(path)) LN_TRY(ln_json_load_file(&config, path, FILE_MOST, err));
    LN_GO(read_tokens(t, config, err));
    if (is_file) LN_GO(use_file(t, choice, err));
    if (is_file) goto out;
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    if (ln_exists(path) && (!choice || strcmp(choice, "default") == 0)) {
        LN_GO(use_file(t, path, err));
        goto out;
    }
    LN_GO(use_config(t, json_object_get(config, "chat_template"), choice, err));
out:
    json_decref(config);
    return st;
}

static ln_status open_with(ln_tmpl **out, const char *dir, const char *choice, const char *file, ln_error *err) {
    *out = NULL;
    ln_tmpl *t = ln_zalloc(1, sizeof *t);
    if (!t) return LN_OOM(err, "a chat template");
    ln_status st = file ? use_file(t, file, err) : open_dir(t, dir, choice, err);
    if (st != LN_OK || !t->plain) ln_tmpl_close(&t);
    *out = t;
    return st;
}

ln_status ln_tmpl_open(ln_tmpl **out, const char *dir, const char *choice, ln_error *err) { return open_with(out, dir, choice, NULL, err); }
ln_status ln_tmpl_open_file(ln_tmpl **out, const char *path, ln_error *err) { return open_with(out, NULL, NULL, path, err); }

void ln_tmpl_close(ln_tmpl **t) {
    if (!*t) return;
    jinja_free(&(*t)->plain);
    jinja_free(&(*t)->tools);
    for (size_t i = 0; i < N_TOKENS; i++) ln_free((*t)->token[i]);
    ln_free((*t)->source);
    ln_free(*t);
    *t = NULL;
}

const char *ln_tmpl_source(const ln_tmpl *t, size_t *bytes) {
    *bytes = t->bytes;
    return t->source;
}

/* ---- requests ---- */

typedef enum part {
    MESSAGES, TOOLS, DOCUMENTS, KWARGS, CONTEXT, TEMPLATE, GENERATE, NOW, BOS, EOS, TRIM_BLOCKS, LSTRIP_BLOCKS, KEEP_NEWLINE, N_PARTS
} part;
static const char *const part_names[N_PARTS] = {"messages", "tools", "documents", "kwargs", "context", "template", "add_generation_prompt", "now",
                                                "bos_token", "eos_token", "trim_blocks", "lstrip_blocks", "keep_trailing_newline"};

typedef struct request {
    const char *text[N_PARTS]; /* the JSON of each part, or NULL */
    size_t bytes[N_PARTS];
} request;

static ln_status find_parts(request *q, const char *json, size_t bytes, ln_error *err) {
    ln_json j;
    bool more;
    ln_status st = LN_OK;
    ln_json_open(&j, "request", json, bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_want(&j, LN_J_OBJECT, err));
    for (;;) {
        LN_GO(ln_json_key(&j, &more, err));
        if (!more) break;
        size_t k = 0;
        while (k < N_PARTS && !ln_json_is(&j, part_names[k])) k++;
        LN_GO(ln_json_next(&j, err));
        size_t from = j.offset;
        LN_GO(ln_json_skip(&j, err));
        if (k == N_PARTS || (j.at - from == 4 && memcmp(json + from, "null", 4) == 0)) continue;
        if (q->text[k]) LN_GO(ln_json_fail(&j, err, "expected \"%s\" once, found it twice", part_names[k]));
        q->text[k] = json + from;
        q->bytes[k] = j.at - from;
    }
    LN_GO(ln_json_want(&j, LN_J_END, err));
out:
    ln_json_close(&j);
    return st;
}

static ln_status flag(const request *q, part p, bool *out, ln_error *err) {
    bool yes = q->text[p] && q->text[p][0] == 't';
    if (q->text[p] && !yes && q->text[p][0] != 'f') return ln_fail(err, LN_EINVALID, "request: \"%s\": expected true or false", part_names[p]);
    *out = yes;
    return LN_OK;
}

/* A part that is a text; the reader stays open for it. */
static ln_status text_part(const request *q, part p, ln_json *j, ln_error *err) {
    ln_json_open(j, part_names[p], q->text[p], q->bytes[p], LN_JSON_MAX_DEPTH);
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_STRING ? LN_OK : ln_json_fail(j, err, "expected a text");
}

/* "2025-07-10T12:34:56", or a date alone. */
static ln_status read_now(const request *q, struct tm *now, ln_error *err) {
    static const char form[] = "dddd-dd-ddTdd:dd:dd";
    int v[6] = {0}, field = 0;
    ln_json j;
    ln_status st = text_part(q, NOW, &j, err);
    bool good = st == LN_OK && (j.text_bytes == 10 || j.text_bytes >= sizeof form - 1);
    for (size_t i = 0; good && i < LN_MIN(j.text_bytes, sizeof form - 1); i++) {
        char c = j.text[i];
        if (form[i] != 'd') {
            good = c == form[i] || (form[i] == 'T' && c == ' ');
            field++;
        } else {
            good = c >= '0' && c <= '9';
            v[field] = v[field] * 10 + (c - '0');
        }
    }
    ln_json_close(&j);
    LN_TRY(st);
    good = good && v[1] >= 1 && v[1] <= 12 && v[2] >= 1 && v[2] <= 31 && v[3] < 24 && v[4] < 60 && v[5] < 61;
    if (!good) return ln_fail(err, LN_EINVALID, "request: \"now\": expected a time as 2025-07-10T12:34:56");
    *now = (struct tm){.tm_year = v[0] - 1900, .tm_mon = v[1] - 1, .tm_mday = v[2], .tm_hour = v[3], .tm_min = v[4], .tm_sec = v[5]};
    (void)timegm(now); /* the day of the week and of the year */
    return LN_OK;
}

/* Each member of an object becomes a variable. */
static ln_status set_members(jinja_run *run, const request *q, part p, ln_error *err) {
    ln_json j;
    bool more;
    ln_status st;
    if (!q->text[p]) return LN_OK;
    ln_json_open(&j, part_names[p], q->text[p], q->bytes[p], LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_want(&j, LN_J_OBJECT, err));
    for (;;) {
        LN_GO(ln_json_key(&j, &more, err));
        if (!more) break;
        LN_GO(jinja_set_json(run, j.text, j.text_bytes, &j, false, err));
    }
out:
    ln_json_close(&j);
    return st;
}

static ln_status set_part(jinja_run *run, const request *q, part p, bool trusted, ln_error *err) {
    ln_json j;
    if (!q->text[p]) return jinja_set_text(run, part_names[p], NULL, 0, true, err);
    ln_json_open(&j, part_names[p], q->text[p], q->bytes[p], LN_JSON_MAX_DEPTH);
    ln_status st = jinja_set_json(run, part_names[p], strlen(part_names[p]), &j, trusted, err);
    ln_json_close(&j);
    return st;
}

/* The variables of a conversation. */
static ln_status set_conversation(const ln_tmpl *t, jinja_run *run, const request *q, ln_error *err) {
    bool generate = false;
    for (size_t i = 0; t && i < N_TOKENS; i++)
        if (t->token[i]) LN_TRY(jinja_set_text(run, token_names[i], t->token[i], t->token_bytes[i], true, err));
    if (q->text[BOS]) LN_TRY(set_part(run, q, BOS, true, err));
    if (q->text[EOS]) LN_TRY(set_part(run, q, EOS, true, err));
    LN_TRY(set_part(run, q, TOOLS, false, err));
    LN_TRY(set_part(run, q, DOCUMENTS, false, err));
    LN_TRY(set_part(run, q, MESSAGES, false, err));
    LN_TRY(flag(q, GENERATE, &generate, err));
    LN_TRY(jinja_set_bool(run, "add_generation_prompt", generate, err));
    return set_members(run, q, KWARGS, err);
}

static ln_status own_template(const request *q, ln_rendered *out, ln_error *err) {
    jinja_options opt = {.trim_blocks = true, .lstrip_blocks = true};
    ln_json j;
    if (q->text[CONTEXT]) {
        LN_TRY(flag(q, TRIM_BLOCKS, &opt.trim_blocks, err));
        LN_TRY(flag(q, LSTRIP_BLOCKS, &opt.lstrip_blocks, err));
        LN_TRY(flag(q, KEEP_NEWLINE, &opt.keep_trailing_newline, err));
    }
    ln_status st = text_part(q, TEMPLATE, &j, err);
    if (st == LN_OK) st = jinja_compile(&out->own, "template", j.text, j.text_bytes, &opt, err);
    ln_json_close(&j);
    return st;
}

ln_status ln_tmpl_request(const ln_tmpl *t, const char *json, size_t bytes, ln_rendered *out, ln_error *err) {
    request q = {{0}, {0}};
    struct tm now;
    memset(out, 0, sizeof *out);
    LN_TRY(find_parts(&q, json, bytes, err));
    if (!q.text[MESSAGES] == !q.text[CONTEXT])
        return ln_fail(err, LN_EINVALID, "request: expected one of \"messages\" and \"context\", found %s", q.text[MESSAGES] ? "both" : "neither");
    if (q.text[TEMPLATE] && (q.text[CONTEXT] || !t)) LN_TRY(own_template(&q, out, err));
    if (!out->own && !t) return ln_fail(err, LN_EINVALID, "request: expected a \"template\", since no model or file was named");
    out->used = out->own ? out->own : q.text[TOOLS] && t->tools ? t->tools : t->plain;
    if (q.text[NOW]) LN_TRY(read_now(&q, &now, err));
    LN_TRY(jinja_begin(&out->run, out->used, q.text[NOW] ? &now : NULL, err));
    if (q.text[CONTEXT]) LN_TRY(set_members(out->run, &q, CONTEXT, err));
    else LN_TRY(set_conversation(t, out->run, &q, err));
    return jinja_render(out->run, &out->text, err);
}

void ln_rendered_free(ln_rendered *r) {
    jinja_end(&r->run);
    jinja_free(&r->own);
    *r = (ln_rendered){0};
}
