/* Locating and compiling chat templates, and rendering requests.
 *
 * A model may ship one template or a list of named ones; of a list, "tool_use" is for conversations with
 * tools and "default" for the others. A request is parsed twice: the first pass finds the byte ranges of
 * its members, the second builds values, because the member "template", which determines the variables
 * that matter, may come last. Special tokens are trusted strings; everything else in a request is data. */
#include "chat_template.h"

#include "../base/file.h"
#include "chat_render.h"
#include "../tokenizer/tokenizer_internal.h"

enum { FILE_MOST = LN_CONFIG_LIMIT };

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
enum { N_TOKENS = LN_COUNT(token_names) };

struct ln_model_template {
    jinja *plain, *tools; /* tools: NULL when one template serves both */
    ln_controls *controls;
    char *source;
    size_t bytes;
    char *token[N_TOKENS];
    size_t token_bytes[N_TOKENS];
    bool bos_told; /* the configuration has a bos_token, which may be null */
};

/* ---- opening ---- */

static ln_status compile(jinja **out, const char *name, const char *source, size_t bytes, ln_error *err) {
    static const jinja_options chat = {.trim_blocks = true, .lstrip_blocks = true};
    return jinja_compile(out, name, source, bytes, &chat, err);
}

static ln_status use(ln_model_template *t, const char *name, const char *source, size_t bytes,
                     ln_error *err) {
    t->source = ln_strndup(source, bytes);
    if (!t->source) return LN_OOM(err, "a chat template");
    t->bytes = bytes;
    return compile(&t->plain, name, source, bytes, err);
}

/* Uses a template file: a file of the model, or one that the user chose (`named`), which may be a pipe. */
static ln_status use_file(ln_model_template *t, const char *path, bool named, ln_error *err) {
    char *data;
    size_t bytes, skip;
    LN_TRY((named ? ln_read_input : ln_read_file)(path, JINJA_MAX_SOURCE, &data, &bytes, err));
    const char *name = strrchr(path, '/');
    ln_status st = ln_utf8_mark(path, data, bytes, &skip, err);
    if (st == LN_OK) st = use(t, name ? name + 1 : path, data + skip, bytes - skip, err);
    ln_free(data);
    return st;
}

/* Reads the special tokens ("bos_token": a string, or an object with "content"). Tokens that are known
 * already are kept. */
static ln_status read_tokens(ln_model_template *t, const json_t *config, ln_error *err) {
    for (size_t i = 0; i < N_TOKENS; i++) {
        const json_t *v = json_object_get(config, token_names[i]);
        if (i == 0 && v) t->bos_told = true;
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (t->token[i] || !json_is_string(v)) continue;
        t->token_bytes[i] = json_string_length(v);
        t->token[i] = ln_strndup(json_string_value(v), t->token_bytes[i]);
        if (!t->token[i]) return LN_OOM(err, "a special token");
    }
    return LN_OK;
}

/* The template with that name in a list of named templates; of several, the last one, as in transformers. */
static const json_t *named(const json_t *list, const char *name) {
    for (size_t i = json_array_size(list); i-- > 0;) {
        const json_t *e = json_array_get(list, i), *n = json_object_get(e, "name"),
                     *text = json_object_get(e, "template");
        if (json_is_string(n) && json_is_string(text) && strcmp(json_string_value(n), name) == 0) return text;
    }
    return NULL;
}

static ln_status use_json(ln_model_template *t, const json_t *v, const char *name, ln_error *err) {
    return use(t, name, json_string_value(v), json_string_length(v), err);
}

static ln_status use_config(ln_model_template *t, const json_t *v, const char *choice, ln_error *err) {
    static const char file[] = "chat_template";
    bool usual = !choice || strcmp(choice, "default") == 0;
    if (json_is_string(v)) return usual ? use_json(t, v, file, err) : LN_OK;
    if (!json_is_array(v))
        return ln_fail(err, LN_EINVALID,
                       "chat_template: expected a text or a list of named ones, found neither");
    const json_t *plain = named(v, usual ? "default" : choice), *tools = choice ? NULL : named(v, "tool_use");
    if (!plain && !choice)
        return ln_fail(err, LN_EINVALID,
                       "chat_template: expected a template named default in the list; name one of the others "
                       "(ln_options.chat_template)");
    if (plain) LN_TRY(use_json(t, plain, file, err));
    return plain && tools ? compile(&t->tools, file, json_string_value(tools), json_string_length(tools), err)
                          : LN_OK;
}

static ln_status path_of(char path[4096], const char *dir, const char *folder, const char *name,
                         const char *suffix, ln_error *err) {
    if (snprintf(path, 4096, "%s/%s%s%s", dir, folder, name, suffix) < 4096) return LN_OK;
    return ln_fail(err, LN_EINVALID, "the path of the model is too long");
}

/* Finds the template as a file of the model's directory: writes its path and sets *found. */
static ln_status find_file(char path[4096], const char *dir, const char *choice, bool *found, ln_error *err) {
    static const char *const folders[] = {"additional_chat_templates/", "chat_templates/"};
    bool usual = !choice || strcmp(choice, "default") == 0;
    LN_TRY(path_of(path, dir, "", "chat_template", ".jinja", err));
    *found = false;
    if (usual) LN_TRY(ln_look(path, found, err));
    for (size_t i = 0; i < LN_COUNT(folders) && !*found; i++) {
        LN_TRY(path_of(path, dir, folders[i], usual ? "default" : choice, ".jinja", err));
        LN_TRY(ln_look(path, found, err));
    }
    return LN_OK;
}

/* Uses the member "chat_template" of a JSON file, if both exist. */
static ln_status from_json(ln_model_template *t, const char *path, const char *choice, bool read_names,
                           ln_error *err) {
    json_t *root = NULL;
    bool there;
    LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_json_load_file(&root, path, FILE_MOST, err));
    const json_t *v = json_object_get(root, "chat_template");
    ln_status st = read_names ? read_tokens(t, root, err) : LN_OK;
    if (st == LN_OK && !t->plain && v && !json_is_null(v) &&
        !(json_is_string(v) && json_string_length(v) == 0))
        st = use_config(t, v, choice, err);
    json_decref(root);
    return st;
}

static ln_status open_dir(ln_model_template *t, const char *dir, const char *choice, ln_error *err) {
    char path[4096], shown[80];
    size_t n = choice ? strlen(choice) : 0;
    bool found, is_path = choice && (strchr(choice, '/') || (n > 6 && strcmp(choice + n - 6, ".jinja") == 0));
    if (is_path) LN_TRY(use_file(t, choice, true, err));
    if (!t->plain) {
        LN_TRY(find_file(path, dir, choice, &found, err));
        if (found) LN_TRY(use_file(t, path, false, err));
    }
    LN_TRY(path_of(path, dir, "", "chat_template", ".json", err));
    if (!t->plain) LN_TRY(from_json(t, path, choice, false, err));
    LN_TRY(path_of(path, dir, "", "tokenizer_config", ".json", err));
    LN_TRY(from_json(t, path, choice, true, err));
    LN_TRY(path_of(path, dir, "", "special_tokens_map", ".json",
                   err)); /* older models keep their special tokens there */
    LN_TRY(from_json(t, path, choice, true, err));
    if (t->plain || !choice) return LN_OK;
    return ln_fail(err, LN_EIO,
                   "this model has no chat template named '%s'; a file is named with a '/' or by .jinja at "
                   "its end",
                   ln_excerpt(shown, choice, n));
}

static ln_status open_with(ln_model_template **out, const char *dir, const char *choice, const char *file,
                           ln_error *err) {
    *out = NULL;
    ln_model_template *t = ln_zalloc(1, sizeof *t);
    if (!t) return LN_OOM(err, "a chat template");
    ln_status st = file ? use_file(t, file, true, err) : open_dir(t, dir, choice, err);
    if (st != LN_OK || !t->plain) ln_model_template_close(&t);
    *out = t;
    return st;
}

ln_status ln_model_template_open(ln_model_template **out, const char *dir, const char *choice,
                                 ln_error *err) {
    return open_with(out, dir, choice, NULL, err);
}
ln_status ln_model_template_open_file(ln_model_template **out, const char *path, ln_error *err) {
    return open_with(out, NULL, NULL, path, err);
}

void ln_model_template_close(ln_model_template **t) {
    if (!*t) return;
    jinja_free(&(*t)->plain);
    jinja_free(&(*t)->tools);
    for (size_t i = 0; i < N_TOKENS; i++) ln_free((*t)->token[i]);
    ln_controls_close(&(*t)->controls);
    ln_free((*t)->source);
    ln_free(*t);
    *t = NULL;
}

const char *ln_model_template_source(const ln_model_template *t, size_t *bytes) {
    *bytes = t->bytes;
    return t->source;
}

bool ln_model_template_names(const ln_model_template *t, const char *name) {
    return jinja_names(t->plain, name) || (t->tools && jinja_names(t->tools, name));
}

/* ---- tokens ---- */

bool ln_model_template_wants_tok(const ln_model_template *t) { return !t->bos_told; }

ln_status ln_model_template_bind(ln_model_template *t, const ln_tok *tok, ln_error *err) {
    ln_str written = {0};
    int32_t bos = t->bos_told || t->token[0] || tok->post.n == 0
                      ? -1
                      : tok->post.items[0]; /* the token that the post-processor puts before a text */
    size_t n = 0;
    const char *text = bos >= 0 ? ln_tok_content(tok, bos, &n) : NULL;
    if (text) {
        t->token[0] = ln_strndup(text, n);
        t->token_bytes[0] = n;
        if (!t->token[0]) return LN_OOM(err, "a special token");
    }
    ln_status st = jinja_written(t->plain, &written, err);
    if (st == LN_OK && t->tools) st = jinja_written(t->tools, &written, err);
    /* special tokens that the template writes by name */
    for (size_t i = 0; st == LN_OK && i < N_TOKENS; i++) {
        if (t->token[i]) ln_str_add(&written, t->token[i], t->token_bytes[i] + 1);
        if (written.failed) st = LN_OOM(err, "the control tokens");
    }
    ln_controls_close(&t->controls);
    if (st == LN_OK)
        st = ln_controls_open(&t->controls, tok, written.data ? written.data : "", written.len, err);
    ln_str_free(&written);
    return st;
}

/* ---- requests ---- */

typedef enum part {
    MESSAGES,
    TOOLS,
    DOCUMENTS,
    KWARGS,
    CONTEXT,
    TEMPLATE,
    GENERATE,
    NOW,
    BOS,
    EOS,
    TRIM_BLOCKS,
    LSTRIP_BLOCKS,
    KEEP_NEWLINE,
    N_PARTS
} part;
static const char *const part_names[N_PARTS] = {"messages",
                                                "tools",
                                                "documents",
                                                "kwargs",
                                                "context",
                                                "template",
                                                "add_generation_prompt",
                                                "now",
                                                "bos_token",
                                                "eos_token",
                                                "trim_blocks",
                                                "lstrip_blocks",
                                                "keep_trailing_newline"};

typedef struct request {
    const char *text[N_PARTS]; /* the JSON text of each member, or NULL */
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
    if (q->text[p] && !yes && q->text[p][0] != 'f')
        return ln_fail(err, LN_EINVALID, "request: \"%s\": expected true or false", part_names[p]);
    *out = yes;
    return LN_OK;
}

/* Opens a reader on a member that must be a string; the caller closes it. */
static ln_status text_part(const request *q, part p, ln_json *j, ln_error *err) {
    ln_json_open(j, part_names[p], q->text[p], q->bytes[p], LN_JSON_MAX_DEPTH);
    LN_TRY(ln_json_next(j, err));
    return j->type == LN_J_STRING ? LN_OK : ln_json_fail(j, err, "expected a text");
}

/* Parses "now": a time such as "2025-07-10T12:34:56", or a date. */
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
    *now = (struct tm){.tm_year = v[0] - 1900,
                       .tm_mon = v[1] - 1,
                       .tm_mday = v[2],
                       .tm_hour = v[3],
                       .tm_min = v[4],
                       .tm_sec = v[5]};
    (void)timegm(now); /* computes the day of the week and of the year */
    return LN_OK;
}

/* Sets a variable for each member of a JSON object. */
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
    LN_GO(ln_json_want(&j, LN_J_END, err));
out:
    ln_json_close(&j);
    return st;
}

static ln_status set_arguments(jinja_run *run, const ln_conversation *talk, ln_error *err) {
    request q = {{0}, {0}};
    if (!talk->kwargs) return LN_OK;
    q.text[KWARGS] = talk->kwargs;
    q.bytes[KWARGS] = talk->kwargs_bytes;
    return set_members(run, &q, KWARGS, err);
}

static ln_status set_part(jinja_run *run, const request *q, part p, bool trusted, ln_error *err) {
    ln_json j;
    if (!q->text[p]) return jinja_set_text(run, part_names[p], NULL, 0, true, err);
    ln_json_open(&j, part_names[p], q->text[p], q->bytes[p], LN_JSON_MAX_DEPTH);
    ln_status st = jinja_set_json(run, part_names[p], strlen(part_names[p]), &j, trusted, err);
    ln_json_close(&j);
    return st;
}

static ln_status set_tokens(const ln_model_template *t, jinja_run *run, ln_error *err) {
    for (size_t i = 0; t && i < N_TOKENS; i++)
        if (t->token[i])
            LN_TRY(jinja_set_text(run, token_names[i], t->token[i], t->token_bytes[i], true, err));
    return LN_OK;
}

/* Sets the variables of a conversation. */
static ln_status set_conversation(const ln_model_template *t, jinja_run *run, const request *q, bool generate,
                                  ln_error *err) {
    LN_TRY(set_tokens(t, run, err));
    if (q->text[BOS]) LN_TRY(set_part(run, q, BOS, true, err));
    if (q->text[EOS]) LN_TRY(set_part(run, q, EOS, true, err));
    LN_TRY(set_part(run, q, TOOLS, false, err));
    LN_TRY(set_part(run, q, DOCUMENTS, false, err));
    LN_TRY(set_part(run, q, MESSAGES, false, err));
    if (q->text[GENERATE]) LN_TRY(flag(q, GENERATE, &generate, err));
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

/* A conversation that is to be answered must have at least one message. */
static ln_status check_messages(const request *q, ln_error *err) {
    ln_json j;
    bool more = false;
    ln_json_open(&j, part_names[MESSAGES], q->text[MESSAGES], q->bytes[MESSAGES], LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_ARRAY, err);
    if (st == LN_OK) st = ln_json_item(&j, &more, err);
    ln_json_close(&j);
    if (st == LN_OK && !more)
        st = ln_fail(err, LN_EINVALID, "request: \"messages\": expected at least one message, found none");
    return st;
}

static ln_status render(const ln_model_template *t, const char *json, size_t bytes, bool generate,
                        const ln_conversation *talk, ln_rendered *out, ln_error *err) {
    request q = {{0}, {0}};
    struct tm now;
    LN_TRY(find_parts(&q, json, bytes, err));
    if (!q.text[MESSAGES] == !q.text[CONTEXT])
        return ln_fail(err, LN_EINVALID, "request: expected one of \"messages\" and \"context\", found %s",
                       q.text[MESSAGES] ? "both" : "neither");
    if (talk && q.text[MESSAGES]) LN_TRY(check_messages(&q, err));
    if (q.text[TEMPLATE] && (q.text[CONTEXT] || !t)) LN_TRY(own_template(&q, out, err));
    if (!out->own && !t)
        return ln_fail(err, LN_EINVALID,
                       "request: expected a \"template\", since no model or file was named");
    out->used = out->own ? out->own : q.text[TOOLS] && t->tools ? t->tools : t->plain;
    if (q.text[NOW]) LN_TRY(read_now(&q, &now, err));
    LN_TRY(jinja_begin(&out->run, out->used, q.text[NOW] ? &now : NULL, err));
    if (q.text[CONTEXT]) LN_TRY(set_members(out->run, &q, CONTEXT, err));
    else LN_TRY(set_conversation(t, out->run, &q, generate, err));
    return talk ? set_arguments(out->run, talk, err) : LN_OK;
}

ln_status ln_model_template_request(const ln_model_template *t, const char *json, size_t bytes,
                                    ln_rendered *out, ln_error *err) {
    memset(out, 0, sizeof *out);
    LN_TRY(render(t, json, bytes, false, NULL, out, err));
    return jinja_render(out->run, &out->text, err);
}

/* Sets up the rendering of a conversation given as an array of messages. */
static ln_status render_messages(const ln_model_template *t, const ln_conversation *talk, bool generate,
                                 ln_rendered *out, ln_error *err) {
    out->used = t->plain;
    LN_TRY(jinja_begin(&out->run, out->used, NULL, err));
    LN_TRY(set_tokens(t, out->run, err));
    LN_TRY(jinja_set_text(out->run, "tools", NULL, 0, true, err));
    LN_TRY(jinja_set_text(out->run, "documents", NULL, 0, true, err));
    LN_TRY(jinja_set_messages(out->run, talk->messages, talk->n_messages, err));
    LN_TRY(jinja_set_bool(out->run, "add_generation_prompt", generate, err));
    return set_arguments(out->run, talk, err);
}

ln_status model_template_render(const ln_model_template *t, const ln_conversation *talk, size_t n,
                                bool generate, ln_rendered *out, ln_error *err) {
    memset(out, 0, sizeof *out);
    if (talk->json) LN_TRY(render(t, talk->json, talk->json_bytes, generate, talk, out, err));
    else LN_TRY(render_messages(t, talk, generate, out, err));
    LN_TRY(jinja_tidy_messages(out->run, err));
    /* a request may choose add_generation_prompt for the whole conversation, but not for a prefix of it */
    if (n != SIZE_MAX || !generate) LN_TRY(jinja_set_bool(out->run, "add_generation_prompt", generate, err));
    LN_TRY(jinja_cut_messages(out->run, n, err));
    return jinja_render(out->run, &out->text, err);
}

ln_status model_template_ids(const ln_model_template *t, const ln_tok *tok, const jinja_text *text,
                             size_t bytes, ln_ids *out, ln_error *err) {
    ln_guard guard = {text->origin, text->all_data, t->controls};
    return ln_tok_encode_guarded(tok, text->text, bytes, false, &guard, out, err);
}

ln_status ln_model_template_encode(const ln_model_template *t, const ln_tok *tok, const ln_conversation *talk,
                                   ln_ids *out, ln_error *err) {
    ln_rendered r;
    ln_status st = model_template_render(t, talk, SIZE_MAX, true, &r, err);
    if (st == LN_OK) st = model_template_ids(t, tok, &r.text, r.text.bytes, out, err);
    ln_rendered_free(&r);
    return st;
}

void ln_rendered_free(ln_rendered *r) {
    jinja_end(&r->run);
    jinja_free(&r->own);
    *r = (ln_rendered){0};
}
