/* Compiling the chat templates of a model, and rendering requests. template_source.c finds the templates.
 *
 * A model may have one template or several named ones; "tool_use" is for conversations with tools and
 * "default" for the others. A request is parsed twice: the first pass finds the byte ranges of its members,
 * the second builds values, because the member "template", which determines the variables that matter, may
 * come last. Special tokens are trusted strings; everything else in a request is data. */
#include "chat_template.h"

#include "chat_render.h"
#include "template_source.h"
#include "../tokenizer/tokenizer_internal.h"

struct ln_model_template {
    jinja *plain, *tools; /* for conversations without tools and with them; tools NULL: plain is for both */
    ln_controls *controls;
    template_source from;
};

/* ---- opening ---- */

static ln_status compile(jinja **out, const template_text *t, ln_error *err) {
    static const jinja_options chat = {.trim_blocks = true, .lstrip_blocks = true};
    return t->text ? jinja_compile(out, t->name, t->text, t->bytes, &chat, err) : LN_OK;
}

static ln_status open_with(ln_model_template **out, const char *dir, const char *choice, const char *file,
                           ln_error *err) {
    *out = NULL;
    ln_model_template *t = ln_zalloc(1, sizeof *t);
    if (!t) return LN_OOM(err, "a chat template");
    ln_status st =
        file ? template_source_file(&t->from, file, err) : template_source_read(&t->from, dir, choice, err);
    if (st == LN_OK) st = compile(&t->plain, &t->from.plain, err);
    if (st == LN_OK) st = compile(&t->tools, &t->from.tools, err);
    if (st != LN_OK || (!t->plain && !t->tools)) ln_model_template_close(&t);
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
    ln_controls_close(&(*t)->controls);
    template_source_close(&(*t)->from);
    ln_free(*t);
    *t = NULL;
}

const char *ln_model_template_source(const ln_model_template *t, size_t *bytes) {
    const template_text *shown = t->plain ? &t->from.plain : &t->from.tools;
    *bytes = shown->bytes;
    return shown->text;
}

const char *ln_model_template_tools_source(const ln_model_template *t, size_t *bytes) {
    const template_text *shown = t->tools ? &t->from.tools : &t->from.plain;
    *bytes = shown->bytes;
    return shown->text;
}

bool ln_model_template_names(const ln_model_template *t, const char *name) {
    return (t->plain && jinja_names(t->plain, name)) || (t->tools && jinja_names(t->tools, name));
}

/* Whether a conversation is rendered differently when a variable is true and when it is false. */
static bool changes(const ln_model_template *t, const char *name) {
    ln_rendered r[2] = {0};
    bool good = true;
    for (int on = 0; on < 2; on++) {
        char json[200];
        const int n =
            snprintf(json, sizeof json,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"now\":\"2025-01-01T00:00:00\","
                     "\"add_generation_prompt\":true,\"kwargs\":{\"%s\":%s}}",
                     name, on ? "true" : "false");
        good = ln_model_template_request(t, json, (size_t)n, &r[on], NULL) == LN_OK && good;
    }
    good = good && (r[0].text.bytes != r[1].text.bytes ||
                    memcmp(r[0].text.text, r[1].text.text, r[0].text.bytes) != 0);
    ln_rendered_free(&r[0]);
    ln_rendered_free(&r[1]);
    return good;
}

bool ln_model_template_think_switch(const ln_model_template *t) {
    if (ln_model_template_names(t, "enable_thinking")) return true;
    return ln_model_template_names(t, "thinking") &&
           changes(t, "thinking"); /* it may be a member of messages */
}

/* ---- tokens ---- */

bool ln_model_template_wants_tok(const ln_model_template *t) { return !t->from.bos_told; }

ln_status ln_model_template_bind(ln_model_template *t, const ln_tok *tok, ln_error *err) {
    ln_str written = {0};
    int32_t bos = t->from.bos_told || t->from.token[0] || tok->post.n == 0
                      ? -1
                      : tok->post.items[0]; /* the token that the post-processor puts before a text */
    size_t n = 0;
    const char *text = bos >= 0 ? ln_tok_content(tok, bos, &n) : NULL;
    if (text) {
        t->from.token[0] = ln_strndup(text, n);
        t->from.token_bytes[0] = n;
        if (!t->from.token[0]) return LN_OOM(err, "a special token");
    }
    ln_status st = t->plain ? jinja_written(t->plain, &written, err) : LN_OK;
    if (st == LN_OK && t->tools) st = jinja_written(t->tools, &written, err);
    /* special tokens that the template writes by name */
    for (size_t i = 0; st == LN_OK && i < TEMPLATE_TOKENS; i++) {
        if (t->from.token[i]) ln_str_add(&written, t->from.token[i], t->from.token_bytes[i] + 1);
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

/* Parses a time such as "2025-07-10T12:34:56", or a date. */
static ln_status parse_time(const char *text, size_t bytes, struct tm *now, ln_error *err) {
    static const char form[] = "dddd-dd-ddTdd:dd:dd";
    int v[6] = {0}, field = 0;
    bool good = bytes == 10 || bytes >= sizeof form - 1;
    for (size_t i = 0; good && i < LN_MIN(bytes, sizeof form - 1); i++) {
        char c = text[i];
        if (form[i] != 'd') {
            good = c == form[i] || (form[i] == 'T' && c == ' ');
            field++;
        } else {
            good = c >= '0' && c <= '9';
            v[field] = v[field] * 10 + (c - '0');
        }
    }
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

/* Determines the time of a rendering, which the request or the caller states; *now is set to `time`, or to
 * NULL for the current time. */
static ln_status find_time(const request *q, const ln_conversation *talk, struct tm *time,
                           const struct tm **now, ln_error *err) {
    ln_json j;
    *now = NULL;
    if (!q->text[NOW] && !(talk && talk->now)) return LN_OK;
    *now = time;
    if (!q->text[NOW]) return parse_time(talk->now, strlen(talk->now), time, err);
    ln_status st = text_part(q, NOW, &j, err);
    if (st == LN_OK) st = parse_time(j.text, j.text_bytes, time, err);
    ln_json_close(&j);
    return st;
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
    for (size_t i = 0; t && i < TEMPLATE_TOKENS; i++)
        if (t->from.token[i])
            LN_TRY(jinja_set_text(run, template_token_names[i], t->from.token[i], t->from.token_bytes[i],
                                  true, err));
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

/* Chooses the template for a conversation. LN_EINVALID when the model has only one for conversations with
 * tools and this one has none. */
static ln_status choose(const ln_model_template *t, bool tools, const jinja **used, ln_error *err) {
    *used = tools && t->tools ? t->tools : t->plain;
    if (*used) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "this model has a chat template for conversations with tools (tool_use), none for others; "
                   "pass tools in a request, or name a template (ln_options.chat_template)");
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
    struct tm time;
    const struct tm *now;
    LN_TRY(find_parts(&q, json, bytes, err));
    if (!q.text[MESSAGES] == !q.text[CONTEXT])
        return ln_fail(err, LN_EINVALID, "request: expected one of \"messages\" and \"context\", found %s",
                       q.text[MESSAGES] ? "both" : "neither");
    if (talk && q.text[MESSAGES]) LN_TRY(check_messages(&q, err));
    if (q.text[TEMPLATE] && (q.text[CONTEXT] || !t)) LN_TRY(own_template(&q, out, err));
    if (!out->own && !t)
        return ln_fail(err, LN_EINVALID,
                       "request: expected a \"template\", since no model or file was named");
    out->used = out->own;
    if (!out->own) LN_TRY(choose(t, q.text[TOOLS] != NULL, &out->used, err));
    LN_TRY(find_time(&q, talk, &time, &now, err));
    LN_TRY(jinja_begin(&out->run, out->used, now, err));
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
    struct tm time;
    const struct tm *now;
    LN_TRY(choose(t, false, &out->used, err));
    LN_TRY(find_time(&(request){{0}, {0}}, talk, &time, &now, err));
    LN_TRY(jinja_begin(&out->run, out->used, now, err));
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
    if (talk->continues) return model_template_encode_last(t, tok, talk, out, err);
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
