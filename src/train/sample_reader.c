/* One line of training data to token ids and a mask. */
#include "../base/json_write.h"
#include "dataset.h"
#include "foreign_lines.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {"messages", "prompt and completion", "text", "ids"};
const char *train_kind_name(train_kind kind) { return kind_names[kind]; }

enum { MESSAGES, PROMPT, COMPLETION, TEXT, IDS, MASK, TOOLS, DOCUMENTS, KWARGS, N_MEMBERS };
static const struct {
    const char *name, *also; /* also: another name of the same member */
    ln_jtype type;
    const char *wanted;
} members[N_MEMBERS] = {
    [MESSAGES] = {"messages", NULL, LN_J_ARRAY, "a list of messages"},
    [PROMPT] = {"prompt", NULL, LN_J_STRING, "a text"},
    [COMPLETION] = {"completion", NULL, LN_J_STRING, "a text"},
    [TEXT] = {"text", NULL, LN_J_STRING, "a text"},
    [IDS] = {"ids", NULL, LN_J_ARRAY, "a list of token ids"},
    [MASK] = {"mask", NULL, LN_J_ARRAY, "a list of 0 and 1"},
    [TOOLS] = {"tools", NULL, LN_J_ARRAY, "a list of tools"},
    [DOCUMENTS] = {"documents", NULL, LN_J_ARRAY, "a list of documents"},
    [KWARGS] = {"kwargs", "chat_template_kwargs", LN_J_OBJECT, "an object"},
};

typedef struct line_reader {
    train_reader *t;
    const ln_package *m;
    ln_json j;
    unsigned seen;
    ln_str text[N_MEMBERS];      /* PROMPT, COMPLETION, TEXT; MESSAGES, as JSON as templates expect it
                             */
    const char *part[N_MEMBERS]; /* the others but IDS and MASK: as written, borrowed from the line */
    size_t part_bytes[N_MEMBERS];
    ln_ids *ids; /* those of *t */
    ln_str *mask;
    ln_str missed; /* turns that the template renders differently once more messages follow */
    train_line_report *report;
} line_reader;

static bool has(const line_reader *r, int member) { return r->seen >> member & 1u; }

/* ---- members ---- */

/* Adds a name to the list of members that are not read, once. */
static void note_unread(char list[256], const char *name, size_t bytes) {
    char shown[80];
    ln_list_once(list, 256, ln_excerpt(shown, name, bytes), ", ");
}

static ln_status read_ids(line_reader *r, ln_error *err) {
    char found[80];
    for (bool more;;) {
        uint64_t id;
        LN_TRY(ln_json_item(&r->j, &more, err));
        if (!more) return LN_OK;
        const bool is_id = r->j.type == LN_J_NUMBER && ln_parse_u64(r->j.text, r->j.text_bytes, &id);
        if (!is_id || id >= (uint64_t)r->m->spec.V)
            return ln_fail(err, LN_EINVALID,
                           "\"ids\": item %zu: expected a token id from 0 to %lld, found %s", r->ids->n,
                           (long long)r->m->spec.V - 1, ln_json_found(&r->j, found));
        LN_TRY(ln_ids_add(r->ids, (int32_t)id, err));
    }
}

static ln_status read_mask(line_reader *r, ln_error *err) {
    char found[80];
    for (bool more;;) {
        LN_TRY(ln_json_item(&r->j, &more, err));
        if (!more) return LN_OK;
        const bool number = r->j.type == LN_J_NUMBER && r->j.text_bytes == 1;
        if (!number || (r->j.text[0] != '0' && r->j.text[0] != '1'))
            return ln_fail(err, LN_EINVALID, "\"mask\": item %zu: expected 0 or 1, found %s", r->mask->len,
                           ln_json_found(&r->j, found));
        ln_str_add(r->mask, r->j.text[0] == '1' ? "\1" : "\0", 1);
    }
}

/* ---- messages ---- */

/* Reads one part of a content and appends its text. Members of a part but type and text are not read, as in
 * requests (wire/messages.c). */
static ln_status read_part(line_reader *r, size_t i, size_t k, ln_str *all, ln_error *err) {
    char found[80], type[80] = "nothing";
    bool is_text = false, has_text = false;
    if (r->j.type != LN_J_OBJECT)
        return ln_fail(err, LN_EINVALID,
                       "\"messages\": item %zu: content[%zu]: expected a part of type \"text\", found %s", i,
                       k, ln_json_found(&r->j, found));
    if (k > 0) ln_str_adds(all, "\n");
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, err));
        if (!more) break;
        const bool names_type = ln_json_is(&r->j, "type"), names_text = ln_json_is(&r->j, "text");
        LN_TRY(ln_json_next(&r->j, err));
        if (names_type) {
            is_text = r->j.type == LN_J_STRING && ln_json_is(&r->j, "text");
            (void)snprintf(type, sizeof type, "%s", ln_json_found(&r->j, found));
        }
        if (names_text && r->j.type == LN_J_STRING) {
            ln_str_add(all, r->j.text, r->j.text_bytes);
            has_text = true;
        }
        LN_TRY(ln_json_skip(&r->j, err));
    }
    if (is_text && has_text) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "\"messages\": item %zu: content[%zu]: expected a part of type \"text\" with a \"text\", "
                   "found %s%s; only text is supported",
                   i, k, is_text ? "none" : "the type ", is_text ? "" : type);
}

/* Reads a content that is a list of parts of type text and appends the text that they are together: joined by
 * newlines, as in requests. */
static ln_status read_parts(line_reader *r, size_t i, ln_error *err) {
    ln_str all = {0};
    ln_status st = LN_OK;
    bool more;
    for (size_t k = 0;; k++) {
        LN_GO(ln_json_item(&r->j, &more, err));
        if (!more) break;
        LN_GO(read_part(r, i, k, &all, err));
    }
    ln_str_json(&r->text[MESSAGES], all.data ? all.data : "", all.len);
    if (all.failed) st = LN_OOM(err, "a sample");
out:
    ln_str_free(&all);
    return st;
}

/* Reads the function of a call. Arguments that are a text of JSON are appended as the object, as in requests.
 */
static ln_status read_function(line_reader *r, size_t *at, ln_error *err) {
    ln_str *out = &r->text[MESSAGES];
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, err));
        if (!more) return LN_OK;
        const bool arguments = ln_json_is(&r->j, "arguments");
        LN_TRY(ln_json_next(&r->j, err));
        if (arguments && r->j.type == LN_J_STRING) {
            const size_t from = out->len;
            ln_str_add(out, r->j.data + *at, r->j.offset - *at);
            if (ln_str_call_arguments(out, r->j.text, r->j.text_bytes)) *at = r->j.at;
            else out->len = from;
        } else LN_TRY(ln_json_skip(&r->j, err));
    }
}

static ln_status read_call(line_reader *r, size_t *at, ln_error *err) {
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, err));
        if (!more) return LN_OK;
        const bool function = ln_json_is(&r->j, "function");
        LN_TRY(ln_json_next(&r->j, err));
        if (function && r->j.type == LN_J_OBJECT) LN_TRY(read_function(r, at, err));
        else LN_TRY(ln_json_skip(&r->j, err));
    }
}

/* Copies the calls of a message, a list that has begun, up to the last arguments that were a text of JSON. */
static ln_status read_calls(line_reader *r, size_t *at, ln_error *err) {
    for (bool more;;) {
        LN_TRY(ln_json_item(&r->j, &more, err));
        if (!more) return LN_OK;
        if (r->j.type == LN_J_OBJECT) LN_TRY(read_call(r, at, err));
        else LN_TRY(ln_json_skip(&r->j, err));
    }
}

/* What a message has. */
typedef struct seen_members {
    bool role, content, calls;
} seen_members;

/* Reads a member of message i, whose value has begun; copies up to *at a content in parts, which becomes a
 * text. */
static ln_status read_content(line_reader *r, size_t i, size_t *at, seen_members *seen, ln_error *err) {
    char found[80];
    if (r->j.type == LN_J_ARRAY) {
        ln_str_add(&r->text[MESSAGES], r->j.data + *at, r->j.offset - *at);
        LN_TRY(read_parts(r, i, err));
        *at = r->j.at;
        seen->content = true;
        return LN_OK;
    }
    if (r->j.type != LN_J_STRING && r->j.type != LN_J_NULL)
        return ln_fail(err, LN_EINVALID,
                       "\"messages\": item %zu: \"content\": expected a text or a list of parts of type "
                       "\"text\", found %s",
                       i, ln_json_found(&r->j, found));
    seen->content = r->j.type == LN_J_STRING;
    return ln_json_skip(&r->j, err);
}

static ln_status check_message(const seen_members *seen, size_t i, ln_error *err) {
    if (!seen->role)
        return ln_fail(err, LN_EINVALID, "\"messages\": item %zu: expected a \"role\" that is a text", i);
    if (seen->content || seen->calls) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "\"messages\": item %zu: expected a \"content\" or \"tool_calls\", found neither", i);
}

/* Copies message i up to its end, from byte *at of the line on; lists of parts become texts, and
 * the arguments of calls objects. */
static ln_status read_message(line_reader *r, size_t i, size_t *at, ln_error *err) {
    seen_members seen = {0};
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, err));
        if (!more) return check_message(&seen, i, err);
        const bool role = ln_json_is(&r->j, "role"), calls = ln_json_is(&r->j, "tool_calls"),
                   content = ln_json_is(&r->j, "content");
        LN_TRY(ln_json_next(&r->j, err));
        seen.role |= role && r->j.type == LN_J_STRING;
        seen.calls |= calls && r->j.type == LN_J_ARRAY;
        if (content) LN_TRY(read_content(r, i, at, &seen, err));
        else if (calls && r->j.type == LN_J_ARRAY) LN_TRY(read_calls(r, at, err));
        else LN_TRY(ln_json_skip(&r->j, err));
    }
}

/* What else is wrong with a message is said where it is rendered. */
static ln_status read_messages(line_reader *r, ln_error *err) {
    size_t at = r->j.offset;
    bool more;
    for (size_t i = 0;; i++) {
        LN_TRY(ln_json_item(&r->j, &more, err));
        if (!more) break;
        if (r->j.type == LN_J_OBJECT) LN_TRY(read_message(r, i, &at, err));
        else LN_TRY(ln_json_skip(&r->j, err));
    }
    ln_str_add(&r->text[MESSAGES], r->j.data + at, r->j.at - at);
    return r->text[MESSAGES].failed ? LN_OOM(err, "a sample") : LN_OK;
}

static ln_status read_value(line_reader *r, int k, ln_error *err) {
    char found[80];
    if (r->j.type != members[k].type) {
        return ln_fail(err, LN_EINVALID, "\"%s\": expected %s, found %s", members[k].name, members[k].wanted,
                       ln_json_found(&r->j, found));
    }
    if (k == IDS) return read_ids(r, err);
    if (k == MASK) return read_mask(r, err);
    if (k == MESSAGES) return read_messages(r, err);
    if (members[k].type == LN_J_STRING) {
        ln_str_add(&r->text[k], r->j.text, r->j.text_bytes);
        return r->text[k].failed ? LN_OOM(err, "a sample") : LN_OK;
    }
    r->part[k] = r->j.data + r->j.offset;
    LN_TRY(ln_json_skip(&r->j, err));
    r->part_bytes[k] = (size_t)(r->j.data + r->j.at - r->part[k]);
    return LN_OK;
}

static ln_status read_member(line_reader *r, ln_error *err) {
    int k = 0;
    while (k < N_MEMBERS && !ln_json_is(&r->j, members[k].name) &&
           !(members[k].also && ln_json_is(&r->j, members[k].also)))
        k++;
    if (k == N_MEMBERS) {
        note_unread(r->report->unread, r->j.text, r->j.text_bytes);
        return ln_json_skip(&r->j, err);
    }
    if (has(r, k)) return ln_fail(err, LN_EINVALID, "expected \"%s\" once, found it twice", members[k].name);
    LN_TRY(ln_json_next(&r->j, err));
    if (r->j.type == LN_J_NULL && k >= MASK) return LN_OK; /* as if it were absent: exports write null */
    r->seen |= 1u << k;
    return read_value(r, k, err);
}

static ln_status read_members(line_reader *r, ln_error *err) {
    char found[80];
    LN_TRY(ln_json_next(&r->j, err));
    if (r->j.type != LN_J_OBJECT)
        return ln_fail(err, LN_EINVALID, "expected an object, found %s%s", ln_json_found(&r->j, found),
                       r->j.type == LN_J_ARRAY ? "; write each sample in a line of its own (jq -c '.[]')"
                                               : "");
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, err));
        if (!more) break;
        LN_TRY(read_member(r, err));
    }
    return ln_json_want(&r->j, LN_J_END, err);
}

/* ---- which kind ---- */

static bool prefers(const line_reader *r) {
    return strstr(r->report->unread, "chosen") && strstr(r->report->unread, "rejected");
}

static ln_status no_kind(const line_reader *r, ln_error *err) {
    return ln_fail(err, LN_EINVALID,
                   "expected \"messages\" or \"conversations\", \"prompt\" with \"completion\", "
                   "\"instruction\" with "
                   "\"output\", \"text\", \"ids\" or \"input_ids\", found none%s",
                   prefers(r)
                       ? "; chosen and rejected are data of preferences, which linnet does not train on"
                       : "; name the members that hold them in ln_trainer_options.fields");
}

static ln_status find_kind(const line_reader *r, train_kind *kind, ln_error *err) {
    static const unsigned of[] = {1u << MESSAGES, 1u << PROMPT | 1u << COMPLETION, 1u << TEXT, 1u << IDS};
    int found = TRAIN_N_KINDS;
    unsigned seen = r->seen;
    if (has(r, MESSAGES) && has(r, PROMPT) && !has(r, COMPLETION)) {
        /* Published conversations (ultrachat_200k, no_robots) repeat the first message under "prompt". */
        note_unread(r->report->unread, members[PROMPT].name, strlen(members[PROMPT].name));
        seen &= ~(1u << PROMPT);
    }
    for (int k = 0; k < TRAIN_N_KINDS; k++) {
        if (!(seen & of[k])) continue;
        if (found != TRAIN_N_KINDS)
            return ln_fail(err, LN_EINVALID, "expected one kind of sample, found \"%s\" and \"%s\"",
                           kind_names[found], kind_names[k]);
        if ((seen & of[k]) != of[k] && prefers(r)) return no_kind(r, err);
        if ((seen & of[k]) != of[k])
            return ln_fail(err, LN_EINVALID, "expected \"prompt\" and \"completion\", found one of them");
        found = k;
    }
    if (found == TRAIN_N_KINDS) return no_kind(r, err);
    if (found != TRAIN_ROWS && has(r, MASK))
        return ln_fail(err, LN_EINVALID, "\"mask\": expected it with \"ids\" only");
    if (found != TRAIN_CHAT && (has(r, TOOLS) || has(r, DOCUMENTS) || has(r, KWARGS)))
        return ln_fail(err, LN_EINVALID,
                       "\"tools\", \"documents\" and \"kwargs\": expected them with \"messages\" only");
    if (*kind != TRAIN_N_KINDS && *kind != (train_kind)found)
        return ln_fail(err, LN_EINVALID, "expected %s as in the first line, found %s", kind_names[*kind],
                       kind_names[found]);
    *kind = (train_kind)found;
    return LN_OK;
}

/* ---- ids and mask ---- */

static ln_status add_mask(line_reader *r, size_t n, bool counted, ln_error *err) {
    for (size_t i = 0; i < n; i++) ln_str_add(r->mask, counted ? "\1" : "\0", 1);
    return r->mask->failed ? LN_OOM(err, "a sample") : LN_OK;
}

static ln_status need_template(const ln_package *m, ln_error *err) {
    if (m->tmpl) return LN_OK;
    if (m->template_error.code)
        return ln_fail(err, m->template_error.code, "the model's chat template cannot be used: %s",
                       m->template_error.message);
    return ln_fail(err, LN_EUNSUPPORTED,
                   "conversations need a chat template, and this model ships none; name one with "
                   "ln_options.chat_template, or write the samples as prompt and completion, or text");
}

ln_status train_ids_check(const ln_package *m, const ln_ids *ids, ln_error *err) {
    for (size_t i = 0; i < ids->n; i++)
        if (ids->data[i] < 0 || ids->data[i] >= m->spec.V)
            return ln_fail(err, LN_EINVALID, "token %zu: the model has no embedding for the id %d", i,
                           ids->data[i]);
    return LN_OK;
}

static ln_status add_sample(line_reader *r, ln_error *err) {
    LN_TRY(train_ids_check(r->m, r->ids, err));
    return r->t->add(r->t->user, r->ids, r->mask, err);
}

static bool has_mark(const ln_str *s) { return s->len > 0 && memchr(s->data, 1, s->len); }

/* Adds the sample of the whole conversation, and one for each turn that is rendered differently in it. */
static ln_status encode_talk(line_reader *r, ln_conversation talk, ln_error *err) {
    ln_mask_report report;
    LN_TRY(need_template(r->m, err));
    talk.now = r->t->now;
    LN_TRY(ln_model_template_assistant_mask(r->m->tmpl, r->m->tok, &talk, r->ids, r->mask, &r->missed,
                                            &report, err));
    r->report->n_parted += report.n_parted;
    if (has_mark(r->mask) || !has_mark(&r->missed)) LN_TRY(add_sample(r, err));
    while (has_mark(&r->missed)) {
        r->ids->n = r->mask->len = 0;
        LN_TRY(ln_model_template_missed_turns(r->m->tmpl, r->m->tok, &talk, &r->missed, r->ids, r->mask,
                                              &report, err));
        r->report->n_unmatched += report.n_unmatched;
        r->report->n_parted += report.n_parted;
        if (!has_mark(r->mask)) continue;
        r->report->n_own++;
        LN_TRY(add_sample(r, err));
    }
    return LN_OK;
}

static ln_status encode_chat(line_reader *r, ln_error *err) {
    static const int parts[] = {MESSAGES, TOOLS, DOCUMENTS, KWARGS};
    ln_str s = {0};
    ln_conversation talk = {0};
    for (size_t i = 0; i < LN_COUNT(parts); i++) {
        const int k = parts[i];
        if (!has(r, k)) continue;
        ln_str_addf(&s, "%s\"%s\":", i ? "," : "{", members[k].name);
        if (k == MESSAGES) ln_str_add(&s, r->text[k].data, r->text[k].len);
        else ln_str_add(&s, r->part[k], r->part_bytes[k]);
    }
    ln_str_adds(&s, "}");
    talk.json = s.data;
    talk.json_bytes = s.len;
    const ln_status st = s.failed ? LN_OOM(err, "a sample") : encode_talk(r, talk, err);
    ln_str_free(&s);
    return st;
}

/* Ends a text with the model's first stop id, unless it ends with that. */
static ln_status end_text(line_reader *r, ln_error *err) {
    const ln_genconfig *gen = &r->m->gen;
    if (gen->n_eos == 0 || (r->ids->n > 0 && r->ids->data[r->ids->n - 1] == gen->eos[0])) return LN_OK;
    return ln_ids_add(r->ids, gen->eos[0], err);
}

ln_status train_text_ids(const ln_package *m, const char *text, size_t bytes, ln_ids *out, ln_error *err) {
    const int32_t bos = m->gen.bos;
    LN_TRY(ln_tok_encode(m->tok, text, bytes, true, out, err));
    if (bos >= 0 && out->n > 1 && out->data[0] == bos && out->data[1] == bos)
        memmove(out->data, out->data + 1, --out->n * sizeof *out->data);
    return LN_OK;
}

/* Appends the ids of a text; `first`: those with which a sample begins. */
static ln_status encode_text(line_reader *r, int member, bool first, ln_error *err) {
    const ln_str *s = &r->text[member];
    const char *text = s->data ? s->data : "";
    return first ? train_text_ids(r->m, text, s->len, r->ids, err)
                 : ln_tok_encode(r->m->tok, text, s->len, false, r->ids, err);
}

/* A prompt is tokenised alone, as it will be when the model answers it. */
static ln_status encode_pair(line_reader *r, ln_error *err) {
    const ln_str *p = &r->text[PROMPT], *c = &r->text[COMPLETION];
    if (r->m->tmpl) {
        const ln_message turns[] = {{"user", p->data ? p->data : "", p->len},
                                    {"assistant", c->data ? c->data : "", c->len}};
        return encode_talk(r, (ln_conversation){.messages = turns, .n_messages = 2}, err);
    }
    LN_TRY(encode_text(r, PROMPT, true, err));
    const size_t n = r->ids->n;
    LN_TRY(encode_text(r, COMPLETION, false, err));
    LN_TRY(end_text(r, err));
    LN_TRY(add_mask(r, n, false, err));
    LN_TRY(add_mask(r, r->ids->n - n, true, err));
    return add_sample(r, err);
}

static ln_status encode_line(line_reader *r, train_kind kind, ln_error *err) {
    const size_t n_mask = r->mask->len;
    switch (kind) {
    case TRAIN_CHAT: return encode_chat(r, err);
    case TRAIN_PAIR: return encode_pair(r, err);
    case TRAIN_TEXT:
        if (r->text[TEXT].len == 0) return ln_fail(err, LN_EINVALID, "\"text\": expected a text, found \"\"");
        LN_TRY(encode_text(r, TEXT, true, err));
        LN_TRY(end_text(r, err));
        LN_TRY(add_mask(r, r->ids->n, true, err));
        return add_sample(r, err);
    default: break;
    }
    const size_t n = r->ids->n;
    if (n == 0) return ln_fail(err, LN_EINVALID, "\"ids\": expected at least one token id, found none");
    if (!has(r, MASK)) LN_TRY(add_mask(r, n, true, err));
    if (!has(r, MASK) || n_mask == n) return add_sample(r, err);
    return ln_fail(err, LN_EINVALID, "\"mask\": expected %zu items, as \"ids\" has, found %zu", n, n_mask);
}

/* Reads a line whose members are those of dataset.h. */
static ln_status read_usual(train_reader *t, const char *text, size_t bytes, ln_error *err) {
    line_reader r = {.t = t, .m = t->m, .ids = &t->ids, .mask = &t->mask, .report = &t->report};
    train_kind found = t->kind;
    ln_json_open(&r.j, "JSON", text, bytes, LN_JSON_MAX_DEPTH);
    t->ids.n = t->mask.len = 0;
    ln_status st = read_members(&r, err);
    if (st == LN_OK && t->mask.failed) st = LN_OOM(err, "a sample");
    if (st == LN_OK) st = find_kind(&r, &found, err);
    if (st == LN_OK) st = encode_line(&r, found, err);
    if (st == LN_OK) t->kind = found;
    for (int k = 0; k < N_MEMBERS; k++) ln_str_free(&r.text[k]);
    ln_str_free(&r.missed);
    ln_json_close(&r.j);
    return st;
}

ln_status train_line_read(train_reader *t, const char *text, size_t bytes, ln_error *err) {
    ln_str usual = {0};
    ln_status st = train_line_translate(t->fields, text, bytes, &usual, err);
    if (st == LN_OK && usual.len > 0) st = read_usual(t, usual.data, usual.len, err);
    else if (st == LN_OK) st = read_usual(t, text, bytes, err);
    ln_str_free(&usual);
    return st;
}

void train_reader_close(train_reader *t) {
    ln_ids_free(&t->ids);
    ln_str_free(&t->mask);
}
