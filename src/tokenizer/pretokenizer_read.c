/* Reads the section pre_tokenizer: types, fields and defaults. pretokenizer.c runs the steps. */
#include "tokenizer_internal.h"

/* The pattern by which GPT-2 splits a text; ByteLevel uses it when use_regex is true. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static ln_status read_behavior(const json_t *o, const char *what, bool required, tok_behavior *out,
                               ln_error *err) {
    static const char *const names[][2] = {{"Removed", "removed"},
                                           {"Isolated", "isolated"},
                                           {"MergedWithPrevious", "merged_with_previous"},
                                           {"MergedWithNext", "merged_with_next"},
                                           {"Contiguous", "contiguous"}};
    const char *name;
    size_t n;
    *out = SPLIT_ISOLATED;
    if (!required && !json_object_get(o, "behavior")) return LN_OK;
    LN_TRY(section_str(o, what, "behavior", &name, &n, err));
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        if (strcmp(name, names[i][0]) != 0 && strcmp(name, names[i][1]) != 0) continue;
        *out = (tok_behavior)i;
        return LN_OK;
    }
    char found[80];
    return ln_fail(err, LN_EUNSUPPORTED, "%s.behavior: '%s' is not supported", what,
                   ln_excerpt(found, name, n));
}

static ln_status read_split(tok_pre_step *s, const json_t *o, ln_error *err) {
    LN_TRY(section_pattern(o, "pre_tokenizer Split", &s->re, err));
    LN_TRY(read_behavior(o, "pre_tokenizer Split", true, &s->behavior, err));
    return section_bool(o, "pre_tokenizer Split", "invert", false, &s->invert, err);
}

static ln_status read_bytes(tok_pre_step *s, const json_t *o, ln_error *err) {
    bool trim;
    LN_TRY(section_bool(o, "pre_tokenizer ByteLevel", "add_prefix_space", true, &s->prefix_space, err));
    LN_TRY(section_bool(o, "pre_tokenizer ByteLevel", "trim_offsets", true, &trim, err));
    LN_TRY(section_bool(o, "pre_tokenizer ByteLevel", "use_regex", true, &s->use_regex, err));
    s->behavior = SPLIT_ISOLATED;
    if (!s->use_regex) return LN_OK;
    return regex_open(&s->re, "pre_tokenizer ByteLevel", gpt2_pattern, sizeof gpt2_pattern - 1, false, err);
}

static ln_status read_metaspace(tok_pre_step *s, const json_t *o, ln_error *err) {
    const char *what = "pre_tokenizer Metaspace", *name = "always";
    size_t n;
    uint32_t cp;
    bool prefix;
    LN_TRY(section_char(o, what, "replacement", &cp, err));
    s->n_rep = (size_t)ln_utf8_put(s->rep, cp);
    LN_TRY(section_bool(o, what, "split", true, &s->split, err));
    LN_TRY(section_bool(o, what, "add_prefix_space", true, &prefix, err));
    if (json_object_get(o, "prepend_scheme")) LN_TRY(section_str(o, what, "prepend_scheme", &name, &n, err));
    else if (!prefix) name = "never"; /* older files have add_prefix_space only */
    s->prepend = strcmp(name, "always") == 0  ? PREPEND_ALWAYS
                 : strcmp(name, "first") == 0 ? PREPEND_FIRST
                                              : PREPEND_NEVER;
    if (s->prepend == PREPEND_NEVER && strcmp(name, "never") != 0) {
        char found[80];
        return ln_fail(err, LN_EUNSUPPORTED, "%s.prepend_scheme: '%s' is not supported", what,
                       ln_excerpt(found, name, strlen(name)));
    }
    if (!prefix && s->prepend != PREPEND_NEVER)
        return ln_fail(err, LN_EINVALID,
                       "%s: expected prepend_scheme never with add_prefix_space false, found %s", what, name);
    return LN_OK;
}

static ln_status read_simple(tok_pre_step *s, const json_t *o, ln_error *err) {
    bool single;
    if (s->kind == PRE_DIGITS) {
        LN_TRY(section_bool(o, "pre_tokenizer Digits", "individual_digits", false, &single, err));
        s->behavior = single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return LN_OK;
    }
    if (s->kind == PRE_PUNCT) return read_behavior(o, "pre_tokenizer Punctuation", false, &s->behavior, err);
    if (s->kind == PRE_CHAR)
        return section_char(o, "pre_tokenizer CharDelimiterSplit", "delimiter", &s->cp, err);
    if (s->kind != PRE_LENGTH) return LN_OK;
    LN_TRY(section_size(o, "pre_tokenizer FixedLength", "length", 5, &s->length, err));
    if (s->length == 0)
        return ln_fail(err, LN_EINVALID, "pre_tokenizer FixedLength.length: expected at least 1, found 0");
    return LN_OK;
}

static ln_status add_step(tok_pre *p, int kind, tok_pre_step **out, ln_error *err) {
    LN_TRY(ln_grow((void **)&p->steps, &p->cap, p->n + 1, sizeof *p->steps, err));
    *out = &p->steps[p->n++];
    **out = (tok_pre_step){.kind = (unsigned)kind};
    return LN_OK;
}

static ln_status read_step(void *user, const json_t *o, const char *type, ln_error *err) {
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {
        {"Split", PRE_SPLIT},           {"ByteLevel", PRE_BYTES},         {"Metaspace", PRE_METASPACE},
        {"Digits", PRE_DIGITS},         {"Punctuation", PRE_PUNCT},       {"Whitespace", PRE_WORDS},
        {"WhitespaceSplit", PRE_SPACE}, {"CharDelimiterSplit", PRE_CHAR}, {"FixedLength", PRE_LENGTH}};
    tok_pre *p = user;
    tok_pre_step *s;
    for (size_t i = 0; i < LN_COUNT(kinds); i++) {
        if (strcmp(type, kinds[i].name) != 0) continue;
        LN_TRY(add_step(p, kinds[i].kind, &s, err));
        if (s->kind == PRE_SPLIT) return read_split(s, o, err);
        if (s->kind == PRE_METASPACE) return read_metaspace(s, o, err);
        if (s->kind != PRE_BYTES) return read_simple(s, o, err);
        p->has_bytes = true;
        return read_bytes(s, o, err);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) { /* splits at white space, then isolates punctuation */
        LN_TRY(add_step(p, PRE_SPACE, &s, err));
        LN_TRY(add_step(p, PRE_PUNCT, &s, err));
        s->behavior = SPLIT_ISOLATED;
        return LN_OK;
    }
    char name[80];
    return ln_fail(err, LN_EUNSUPPORTED, "pre_tokenizer: the type '%s' is not supported",
                   ln_excerpt(name, type, strlen(type)));
}

ln_status pre_read(tok_pre *p, const json_t *section, ln_error *err) {
    if (!section || json_is_null(section)) return LN_OK;
    return section_steps(section, "pre_tokenizer", "pretokenizers", read_step, p, err);
}

void pre_close(tok_pre *p) {
    for (size_t i = 0; i < p->n; i++) regex_close(&p->steps[i].re);
    ln_free(p->steps);
    *p = (tok_pre){0};
}
