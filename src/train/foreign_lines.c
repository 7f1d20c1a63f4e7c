/* Rewrites lines of training data that other tools wrote. */
#include "foreign_lines.h"
#include "foreign_values.h"

#include <stdio.h>
#include <string.h>

/* Members that are known. Those up to ANSWER are texts, questions before answers. */
enum {
    PROMPT,
    INSTRUCTION,
    QUESTION,
    QUERY,
    INPUT,
    CONTEXT,
    COMPLETION,
    OUTPUT,
    RESPONSE,
    ANSWER,
    MESSAGES,
    CONVERSATIONS,
    CONVERSATION,
    SYSTEM,
    HISTORY,
    TOOLS,
    TEXT,
    IDS,
    MASK,
    INPUT_IDS,
    LABELS,
    ATTENTION,
    N_KNOWN,
    REPLACED /* it has the name of a member that is read under another name */
};
static const char *const known[N_KNOWN] = {
    "prompt",       "instruction", "question", "query",         "input",    "context",
    "completion",   "output",      "response", "answer",        "messages", "conversations",
    "conversation", "system",      "history",  "tools",         "text",     "ids",
    "mask",         "input_ids",   "labels",   "attention_mask"};

enum { NAME_BYTES = 64 };
typedef struct translation {
    const char *names;
    raw v[N_KNOWN];
    char called[N_KNOWN][NAME_BYTES]; /* names of members that were renamed */
    bool used[N_KNOWN];
    bool changed;
    ln_str rest; /* members that are not known */
    ln_str *out;
} translation;

/* ---- names ---- */

/* Calls for entry i of a list NAME=MEMBER,...; false: the list has no such entry. */
static bool entry_at(const char *names, size_t i, const char **name, size_t *n_name, const char **member,
                     size_t *n) {
    const char *p = names;
    for (; p && *p; i--) {
        const size_t all = strcspn(p, ",");
        const char *equals = memchr(p, '=', all);
        if (i == 0) {
            *name = p, *n_name = equals ? (size_t)(equals - p) : all;
            *member = equals ? equals + 1 : p + all, *n = (size_t)(p + all - *member);
            return true;
        }
        p += all;
        if (*p == ',') p++;
    }
    return false;
}

static int known_at(const char *name, size_t bytes) {
    for (int k = 0; k < N_KNOWN; k++)
        if (strlen(known[k]) == bytes && memcmp(known[k], name, bytes) == 0) return k;
    return N_KNOWN;
}

ln_status train_names_check(const char *names, ln_error *err) {
    const char *name, *member;
    size_t n_name, n_member;
    unsigned seen = 0;
    for (size_t i = 0; entry_at(names, i, &name, &n_name, &member, &n_member); i++) {
        const int k = known_at(name, n_name);
        char shown[80];
        if (n_member == 0 || n_member >= NAME_BYTES)
            return ln_fail(err, LN_EUSAGE,
                           "ln_trainer_options.fields: expected NAME=MEMBER with a member of 1 to %d bytes, "
                           "found \"%s\"",
                           NAME_BYTES - 1,
                           ln_excerpt(shown, name, n_name + (member > name + n_name) + n_member));
        if (k == N_KNOWN)
            return ln_fail(err, LN_EUSAGE,
                           "ln_trainer_options.fields: expected the name of a member of training data, such "
                           "as "
                           "messages, prompt, completion, text, instruction or output, found \"%s\"",
                           ln_excerpt(shown, name, n_name));
        if (seen >> k & 1)
            return ln_fail(err, LN_EUSAGE,
                           "ln_trainer_options.fields: expected one member for \"%s\", found two", known[k]);
        seen |= 1u << k;
    }
    return LN_OK;
}

/* Returns the known member that a key of the line stands for, N_KNOWN if it stands for none. */
static int member_of(translation *t, const char *key, size_t bytes) {
    const char *name, *member;
    size_t n_name, n_member;
    for (size_t i = 0; entry_at(t->names, i, &name, &n_name, &member, &n_member); i++) {
        const int k = known_at(name, n_name);
        if (k == N_KNOWN) continue;
        if (n_member == bytes && memcmp(member, key, bytes) == 0) {
            (void)snprintf(t->called[k], NAME_BYTES, "%.*s", (int)bytes, key);
            t->v[k].name = t->called[k];
            t->changed = true;
            return k;
        }
        if (n_name == bytes && memcmp(name, key, bytes) == 0) return REPLACED;
    }
    return known_at(key, bytes);
}

static ln_status read_line(translation *t, ln_json *j, ln_error *err) {
    for (bool more;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        const int k = member_of(t, j->text, j->text_bytes);
        raw other = {0}, *v = k < N_KNOWN ? &t->v[k] : &other;
        if (v->seen)
            return ln_fail(err, LN_EINVALID, "expected \"%s\" once, found it twice",
                           v->name ? v->name : known[k]);
        if (k == N_KNOWN) {
            ln_str_adds(&t->rest, ",");
            ln_str_json(&t->rest, j->text, j->text_bytes);
            ln_str_adds(&t->rest, ":");
        } else if (k < N_KNOWN && !v->name) v->name = known[k];
        LN_TRY(raw_read(j, v, err));
        if (k == N_KNOWN) raw_put(&t->rest, v);
    }
    return ln_json_want(j, LN_J_END, err);
}

/* ---- layouts ---- */

static ln_status put_tools_member(translation *t, ln_str *s, ln_error *err) {
    const raw *v = &t->v[TOOLS];
    ln_str text = {0};
    ln_status st = LN_OK;
    t->used[TOOLS] = v->seen && (v->type == LN_J_STRING || v->type == LN_J_ARRAY);
    if (!t->used[TOOLS]) return LN_OK;
    if (v->type == LN_J_STRING) {
        t->changed = true;
        LN_GO(raw_unescape(v, &text, err));
        if (text.len == 0) goto out;
    }
    ln_str_adds(s, ",\"tools\":");
    if (v->type == LN_J_STRING) LN_GO(foreign_tools(s, v->name, text.data, text.len, &t->changed, err));
    else LN_GO(foreign_tools(s, v->name, v->text, v->bytes, &t->changed, err));
out:
    ln_str_free(&text);
    return st;
}

/* Appends a message of the system, if the line has a text for it; *first becomes false. */
static ln_status put_system(translation *t, ln_str *s, bool *first, ln_error *err) {
    const raw *v = &t->v[SYSTEM];
    if (!v->seen) return LN_OK;
    t->used[SYSTEM] = t->changed = true;
    if (raw_is_empty(v)) return LN_OK;
    LN_TRY(raw_want(v, LN_J_STRING, "a text", err));
    ln_str_adds(s, "{\"role\":\"system\",\"content\":");
    raw_put(s, v);
    ln_str_adds(s, "}");
    *first = false;
    return LN_OK;
}

static void put_turn(ln_str *s, const char *role, bool *first) {
    ln_str_addf(s, "%s{\"role\":\"%s\",\"content\":", *first ? "" : ",", role);
    *first = false;
}

static ln_status put_history(translation *t, ln_str *s, bool *first, ln_error *err) {
    const raw *v = &t->v[HISTORY];
    ln_json j;
    ln_status st = LN_OK;
    bool more;
    if (!v->seen) return LN_OK;
    t->used[HISTORY] = true;
    if (raw_is_empty(v)) return LN_OK;
    LN_TRY(raw_want(v, LN_J_ARRAY, "a list of pairs of texts", err));
    ln_json_open(&j, "JSON", v->text, v->bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&j, err));
    for (size_t i = 0;; i++) {
        int n = 0;
        LN_GO(ln_json_item(&j, &more, err));
        if (!more) break;
        bool good = j.type == LN_J_ARRAY;
        while (good) {
            LN_GO(ln_json_item(&j, &more, err));
            if (!more) break;
            good = j.type == LN_J_STRING && n < 2;
            if (good) {
                put_turn(s, n++ ? "assistant" : "user", first);
                ln_str_add(s, j.data + j.offset, j.at - j.offset);
                ln_str_adds(s, "}");
            }
        }
        if (!good || n != 2)
            LN_GO(ln_fail(err, LN_EINVALID, "\"%s\": item %zu: expected a pair of texts, question and answer",
                          v->name, i));
    }
out:
    ln_json_close(&j);
    return st;
}

static ln_status chat_layout(translation *t, int list, ln_error *err) {
    ln_str *s = t->out;
    bool first = true;
    t->changed |= list != MESSAGES;
    t->used[list] = true;
    ln_str_adds(s, "\"messages\":[");
    LN_TRY(put_system(t, s, &first, err));
    LN_TRY(foreign_messages(s, &t->v[list], first, false, &t->changed, err));
    ln_str_adds(s, "]");
    return put_tools_member(t, s, err);
}

/* A question and an answer as texts, or as lists of messages, with what comes before. */
static ln_status put_side(translation *t, ln_str *s, int k, bool answer, bool *first, ln_error *err) {
    const raw *v = &t->v[k];
    if (v->type == LN_J_ARRAY) {
        LN_TRY(foreign_messages(s, v, *first, !answer, &t->changed, err));
        *first = false;
        return LN_OK;
    }
    LN_TRY(raw_want(v, LN_J_STRING, "a text or a list of messages", err));
    put_turn(s, answer ? "assistant" : "user", first);
    raw_put(s, v);
    ln_str_adds(s, "}");
    return LN_OK;
}

static ln_status pair_layout(translation *t, int ask, int more, int answer, ln_error *err) {
    ln_str *s = t->out;
    bool first = true;
    t->used[ask] = t->used[answer] = true;
    const bool texts = t->v[ask].type != LN_J_ARRAY && t->v[answer].type != LN_J_ARRAY;
    if (texts && raw_is_empty(&t->v[SYSTEM]) && raw_is_empty(&t->v[HISTORY])) {
        t->used[SYSTEM] = t->used[HISTORY] = true;
        LN_TRY(raw_want(&t->v[ask], LN_J_STRING, "a text", err));
        LN_TRY(raw_want(&t->v[answer], LN_J_STRING, "a text", err));
        ln_str_adds(s, "\"prompt\":\"");
        raw_put_inside(s, &t->v[ask]);
        if (more >= 0 && !raw_is_empty(&t->v[more])) {
            LN_TRY(raw_want(&t->v[more], LN_J_STRING, "a text", err));
            ln_str_adds(s, "\\n\\n");
            raw_put_inside(s, &t->v[more]);
        }
        ln_str_adds(s, "\",\"completion\":");
        raw_put(s, &t->v[answer]);
        t->changed |= ask != PROMPT || answer != COMPLETION || t->v[SYSTEM].seen || t->v[HISTORY].seen;
        if (more >= 0) t->used[more] = true;
        return LN_OK;
    }
    t->changed = true;
    ln_str_adds(s, "\"messages\":[");
    LN_TRY(put_system(t, s, &first, err));
    LN_TRY(put_history(t, s, &first, err));
    if (more >= 0 && !raw_is_empty(&t->v[more]) && texts) {
        LN_TRY(raw_want(&t->v[ask], LN_J_STRING, "a text", err));
        LN_TRY(raw_want(&t->v[more], LN_J_STRING, "a text", err));
        put_turn(s, "user", &first);
        ln_str_adds(s, "\"");
        raw_put_inside(s, &t->v[ask]);
        ln_str_adds(s, "\\n\\n");
        raw_put_inside(s, &t->v[more]);
        ln_str_adds(s, "\"}");
        t->used[more] = true;
    } else LN_TRY(put_side(t, s, ask, false, &first, err));
    LN_TRY(put_side(t, s, answer, true, &first, err));
    ln_str_adds(s, "]");
    return put_tools_member(t, s, err);
}

/* Reads item i of a list of numbers; *more false: the list has ended. */
static ln_status next_number(ln_json *j, const raw *v, size_t i, const char **text, size_t *n, bool *more,
                             ln_error *err) {
    char found[80];
    LN_TRY(ln_json_item(j, more, err));
    if (!*more) return LN_OK;
    if (j->type != LN_J_NUMBER)
        return ln_fail(err, LN_EINVALID, "\"%s\": item %zu: expected a number, found %s", v->name, i,
                       ln_json_found(j, found));
    *text = j->text, *n = j->text_bytes;
    return LN_OK;
}

static bool same(const char *a, size_t n, const char *b) { return strlen(b) == n && memcmp(a, b, n) == 0; }

/* Appends ids and a mask. Padding, which attention_mask marks with 0 at either end, is left out. */
static ln_status put_rows(translation *t, ln_json j[3], ln_str *mask, ln_error *err) {
    static const int lists[] = {INPUT_IDS, LABELS, ATTENTION};
    ln_str *s = t->out;
    bool began = false, ended = false;
    for (size_t i = 0;; i++) {
        const char *text[3] = {NULL, NULL, NULL};
        size_t n[3] = {0};
        bool more[3] = {false, false, false};
        for (int k = 0; k < 3; k++) {
            if (raw_is_empty(&t->v[lists[k]])) continue;
            LN_TRY(next_number(&j[k], &t->v[lists[k]], i, &text[k], &n[k], &more[k], err));
            if (more[k] != more[0])
                return ln_fail(err, LN_EINVALID,
                               "\"%s\": expected as many items as \"%s\" has, found %s than %zu",
                               t->v[lists[k]].name, t->v[INPUT_IDS].name, more[k] ? "more" : "fewer",
                               i + !more[k]);
        }
        if (!more[0]) return LN_OK;
        const bool ignored = text[1] && same(text[1], n[1], "-100"),
                   padding = text[2] && same(text[2], n[2], "0");
        if (text[1] && !ignored && (n[1] != n[0] || memcmp(text[0], text[1], n[0]) != 0))
            return ln_fail(err, LN_EINVALID,
                           "\"%s\": item %zu: expected -100 or %.*s, as \"%s\" has, found %.*s",
                           t->v[LABELS].name, i, (int)LN_MIN(n[0], 40), text[0], t->v[INPUT_IDS].name,
                           (int)LN_MIN(n[1], 40), text[1]);
        if (padding) {
            ended = began;
            continue;
        }
        if (ended)
            return ln_fail(err, LN_EINVALID,
                           "\"%s\": item %zu: expected 0 at the beginning and at the end only",
                           t->v[ATTENTION].name, i);
        ln_str_adds(s, began ? "," : "");
        ln_str_add(s, text[0], n[0]);
        ln_str_addf(mask, "%s%d", began ? "," : "", !ignored);
        began = true;
    }
}

static ln_status rows_layout(translation *t, ln_error *err) {
    static const int lists[] = {INPUT_IDS, LABELS, ATTENTION};
    ln_json j[3];
    ln_str mask = {0};
    ln_status st = LN_OK;
    for (int k = 0; k < 3; k++)
        if (k == 0 || !raw_is_empty(&t->v[lists[k]]))
            LN_TRY(raw_want(&t->v[lists[k]], LN_J_ARRAY, "a list of numbers", err));
    for (int k = 0; k < 3; k++) {
        const raw *v = &t->v[lists[k]];
        ln_json_open(&j[k], "JSON", v->seen ? v->text : "[]", v->seen ? v->bytes : 2, LN_JSON_MAX_DEPTH);
        t->used[lists[k]] = true;
    }
    for (int k = 0; k < 3; k++) LN_GO(ln_json_next(&j[k], err));
    t->changed = true;
    ln_str_adds(t->out, "\"ids\":[");
    LN_GO(put_rows(t, j, &mask, err));
    ln_str_adds(t->out, "],\"mask\":[");
    ln_str_add(t->out, mask.data, mask.len);
    ln_str_adds(t->out, "]");
    if (mask.failed) LN_GO(LN_OOM(err, "a sample"));
out:
    for (int k = 0; k < 3; k++) ln_json_close(&j[k]);
    ln_str_free(&mask);
    return st;
}

/* Pairs of a question and an answer, with the member that goes on with the question (-1: none). The first row
 * whose question and answer a line has is taken. */
static const struct {
    int ask, more, answer;
} pairs[] = {
    {PROMPT, -1, COMPLETION},       {INSTRUCTION, INPUT, OUTPUT},     {INSTRUCTION, CONTEXT, RESPONSE},
    {INSTRUCTION, INPUT, RESPONSE}, {INSTRUCTION, INPUT, COMPLETION}, {PROMPT, INPUT, OUTPUT},
    {PROMPT, CONTEXT, RESPONSE},    {QUESTION, CONTEXT, ANSWER},      {QUESTION, CONTEXT, RESPONSE},
    {QUERY, CONTEXT, RESPONSE},     {QUERY, CONTEXT, ANSWER},         {INPUT, -1, OUTPUT}};

static ln_status translate(translation *t, ln_error *err) {
    static const int lists[] = {MESSAGES, CONVERSATIONS, CONVERSATION};
    for (size_t i = 0; i < LN_COUNT(lists); i++)
        if (t->v[lists[i]].seen && (lists[i] != MESSAGES || t->v[MESSAGES].type == LN_J_ARRAY)) {
            LN_TRY(raw_want(&t->v[lists[i]], LN_J_ARRAY, "a list of messages", err));
            return chat_layout(t, lists[i], err);
        }
    if (t->v[INPUT_IDS].seen && !t->v[IDS].seen) return rows_layout(t, err);
    if (t->v[TEXT].seen || t->v[IDS].seen || t->v[MESSAGES].seen) return LN_OK;
    for (size_t i = 0; i < LN_COUNT(pairs); i++)
        if (t->v[pairs[i].ask].seen && t->v[pairs[i].answer].seen)
            return pair_layout(t, pairs[i].ask, pairs[i].more, pairs[i].answer, err);
    return LN_OK;
}

/* Appends what the layout did not take: the reader knows it, or lists it as not read. */
static void put_rest(translation *t) {
    ln_str *s = t->out;
    for (int k = 0; k < N_KNOWN; k++) {
        if (!t->v[k].seen || t->used[k]) continue;
        ln_str_addf(s, "%s\"%s\":", s->len > 1 ? "," : "", known[k]);
        raw_put(s, &t->v[k]);
    }
    if (t->rest.len > 0) ln_str_add(s, t->rest.data + (s->len == 1), t->rest.len - (s->len == 1));
    ln_str_adds(s, "}");
}

ln_status train_line_translate(const char *names, const char *text, size_t bytes, ln_str *out,
                               ln_error *err) {
    translation t = {.names = names, .out = out};
    ln_json j;
    ln_status st = LN_OK;
    ln_json_open(&j, "JSON", text, bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&j, err));
    if (j.type != LN_J_OBJECT) goto out;
    LN_GO(read_line(&t, &j, err));
    ln_str_adds(out, "{");
    LN_GO(translate(&t, err));
    put_rest(&t);
    if (!t.changed) out->len = 0;
    if (out->failed || t.rest.failed) LN_GO(LN_OOM(err, "a sample"));
out:
    ln_json_close(&j);
    ln_str_free(&t.rest);
    return st;
}
