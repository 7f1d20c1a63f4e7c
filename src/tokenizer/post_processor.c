/* Post-processors: templates that put special tokens around the ids of a text. Every type is converted to a
 * list of ids with a placeholder for the text; a type that only adjusts offsets is dropped. A Sequence
 * applies its templates one after the other, each to the result of the one before. */
#include "tokenizer_internal.h"

typedef struct reader {
    tok_post *p;
    const char *name;
    const string_table *v;
} reader;

static ln_status add(tok_post *p, int32_t item, ln_error *err) {
    LN_TRY(ln_grow((void **)&p->items, &p->cap, p->n + 1, sizeof *p->items, err));
    p->items[p->n++] = item;
    return LN_OK;
}

static ln_status add_id(const reader *r, const json_t *id, const char *what, ln_error *err) {
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    char found[80];
    if (!strtab_has(r->v, v))
        return ln_fail(err, LN_EINVALID, "%s: post_processor %s: expected ids of the vocabulary, found %s",
                       r->name, what, ln_json_text(id, found));
    return add(r->p, (int32_t)v, err);
}

static ln_status add_special(const reader *r, const json_t *template, const char *token, ln_error *err) {
    char name[80];
    const json_t *entry = json_object_get(json_object_get(template, "special_tokens"), token),
                 *ids = json_object_get(entry, "ids");
    if (!json_is_array(ids))
        return ln_fail(err, LN_EINVALID,
                       "%s: post_processor TemplateProcessing: expected '%s' in special_tokens with its ids, "
                       "found nothing",
                       r->name, ln_excerpt(name, token, strlen(token)));
    for (size_t i = 0; i < json_array_size(ids); i++)
        LN_TRY(add_id(r, json_array_get(ids, i), "TemplateProcessing", err));
    return LN_OK;
}

static ln_status read_template(const reader *r, const json_t *o, ln_error *err) {
    const json_t *single = json_object_get(o, "single");
    if (!json_is_array(single))
        return ln_fail(err, LN_EINVALID, "%s: post_processor TemplateProcessing.single: expected an array",
                       r->name);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const char *token = json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        const char *text = json_string_value(json_object_get(json_object_get(part, "Sequence"), "id"));
        if (text && strcmp(text, "A") != 0)
            return ln_fail(err, LN_EINVALID,
                           "%s: post_processor TemplateProcessing.single[%zu]: expected the sequence A",
                           r->name, i);
        if (!text && !token)
            return ln_fail(err, LN_EINVALID,
                           "%s: post_processor TemplateProcessing.single[%zu]: expected a Sequence or a "
                           "SpecialToken",
                           r->name, i);
        if (text) LN_TRY(add(r->p, POST_TEXT, err));
        else LN_TRY(add_special(r, o, token, err));
    }
    return add(r->p, POST_END, err);
}

/* Adds the id of the field `key`, which is [text, id]. */
static ln_status add_pair(const reader *r, const json_t *o, const char *type, const char *key,
                          ln_error *err) {
    const json_t *pair = json_object_get(o, key);
    if (json_array_size(pair) != 2)
        return ln_fail(err, LN_EINVALID, "%s: post_processor %s.%s: expected [text, id]", r->name, type, key);
    return add_id(r, json_array_get(pair, 1), type, err);
}

static ln_status read_step(void *user, const json_t *o, const char *type, ln_error *err) {
    reader *r = user;
    if (strcmp(type, "ByteLevel") == 0) return LN_OK; /* it trims offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(r, o, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        LN_TRY(add_pair(r, o, type, "cls", err));
        LN_TRY(add(r->p, POST_TEXT, err));
        LN_TRY(add_pair(r, o, type, "sep", err));
        return add(r->p, POST_END, err);
    }
    char name[80];
    return ln_fail(err, LN_EUNSUPPORTED, "%s: post_processor: the type '%s' is not supported", r->name,
                   ln_excerpt(name, type, strlen(type)));
}

ln_status post_read(tok_post *p, const char *name, const json_t *section, const string_table *v,
                    ln_error *err) {
    reader r = {p, name, v};
    if (!section || json_is_null(section)) return LN_OK;
    return section_steps(section, "post_processor", "processors", read_step, &r, err);
}

void post_close(tok_post *p) {
    ln_free(p->items);
    *p = (tok_post){0};
}

ln_status post_run(const tok_post *p, ln_ids *out, size_t from, bool add_special, ln_error *err) {
    ln_ids text = {0};
    ln_status st = LN_OK;
    for (size_t i = 0; i < p->n;) {
        text.n = 0;
        LN_GO(ln_grow((void **)&text.data, &text.cap, out->n - from + 1, sizeof *text.data, err));
        if (out->n > from) memcpy(text.data, out->data + from, (out->n - from) * sizeof *text.data);
        text.n = out->n - from;
        out->n = from;
        for (; p->items[i] != POST_END; i++) {
            if (p->items[i] != POST_TEXT) {
                if (add_special) LN_GO(ln_ids_add(out, p->items[i], err));
                continue;
            }
            LN_GO(ln_grow((void **)&out->data, &out->cap, out->n + text.n + 1, sizeof *out->data, err));
            if (text.n > 0) memcpy(out->data + out->n, text.data, text.n * sizeof *text.data);
            out->n += text.n;
        }
        i++;
    }
out:
    ln_ids_free(&text);
    return st;
}
