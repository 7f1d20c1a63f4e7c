/* Normalizers: a chain of steps that rewrite a text, alternating between two buffers. A step that changes
 * nothing does not copy the text, so normalizing ASCII to NFC costs one scan and no copy. */
#include "tokenizer_internal.h"

/* ---- reading ---- */

static ln_status read_replace(tok_norm_step *s, const json_t *o, ln_error *err) {
    const char *text;
    LN_TRY(section_pattern(o, "normalizer Replace", &s->re, err));
    LN_TRY(section_str(o, "normalizer Replace", "content", &text, &s->n_text, err));
    s->text = ln_strndup(text, s->n_text);
    return s->text ? LN_OK : LN_OOM(err, "a normalizer");
}

static ln_status read_prepend(tok_norm_step *s, const json_t *o, ln_error *err) {
    const char *text;
    LN_TRY(section_str(o, "normalizer Prepend", "prepend", &text, &s->n_text, err));
    s->text = ln_strndup(text, s->n_text);
    return s->text ? LN_OK : LN_OOM(err, "a normalizer");
}

static ln_status read_bert(tok_norm_step *s, const json_t *o, ln_error *err) {
    const char *what = "normalizer BertNormalizer";
    LN_TRY(section_bool(o, what, "clean_text", true, &s->clean, err));
    LN_TRY(section_bool(o, what, "handle_chinese_chars", true, &s->chinese, err));
    LN_TRY(section_bool(o, what, "lowercase", true, &s->lower, err));
    return section_bool(o, what, "strip_accents", s->lower, &s->accents, err); /* null: same as lowercase */
}

static ln_status read_step(void *user, const json_t *o, const char *type, ln_error *err) {
    static const struct {
        const char *name;
        int kind;
        unicode_form form;
    } kinds[] = {
        {"NFC", NORM_FORM, UNICODE_NFC},   {"NFD", NORM_FORM, UNICODE_NFD}, {"NFKC", NORM_FORM, UNICODE_NFKC},
        {"NFKD", NORM_FORM, UNICODE_NFKD}, {"Lowercase", NORM_LOWER, 0},    {"StripAccents", NORM_ACCENTS, 0},
        {"Replace", NORM_REPLACE, 0},      {"Prepend", NORM_PREPEND, 0},    {"Strip", NORM_STRIP, 0},
        {"BertNormalizer", NORM_BERT, 0},  {"ByteLevel", NORM_BYTES, 0}};
    tok_norm *n = user;
    LN_TRY(ln_grow((void **)&n->steps, &n->cap, n->n + 1, sizeof *n->steps, err));
    tok_norm_step *s = &n->steps[n->n];
    *s = (tok_norm_step){0};
    for (size_t i = 0; i < LN_COUNT(kinds); i++) {
        if (strcmp(type, kinds[i].name) != 0) continue;
        n->n++;
        s->kind = (unsigned)kinds[i].kind;
        s->form = kinds[i].form;
        if (s->kind == NORM_REPLACE) return read_replace(s, o, err);
        if (s->kind == NORM_PREPEND) return read_prepend(s, o, err);
        if (s->kind == NORM_BERT) return read_bert(s, o, err);
        if (s->kind != NORM_STRIP) return LN_OK;
        LN_TRY(section_bool(o, "normalizer Strip", "strip_left", true, &s->left, err));
        return section_bool(o, "normalizer Strip", "strip_right", true, &s->right, err);
    }
    char name[80];
    return ln_fail(err, LN_EUNSUPPORTED, "normalizer: the type '%s' is not supported",
                   ln_excerpt(name, type, strlen(type)));
}

/* Upper bound of output bytes per input byte of a step. The bounds of the normalisation forms are Unicode's
 * expansion factors: 11 for NFKC and NFKD (U+FDFA becomes 18 characters), 3 for NFC and NFD. */
static double growth(const tok_norm_step *s) {
    switch (s->kind) {
    case NORM_FORM: return s->form == UNICODE_NFKC || s->form == UNICODE_NFKD ? 11 : 3;
    case NORM_LOWER: return 1.5;
    case NORM_REPLACE: return regex_growth(&s->re, s->n_text);
    case NORM_PREPEND: return 1 + (double)s->n_text;
    case NORM_BYTES: return 2;
    case NORM_BERT: return 3;
    default: return 1;
    }
}

static ln_status read_counted(void *user, const json_t *o, const char *type, ln_error *err) {
    tok_norm *n = user;
    LN_TRY(read_step(user, o, type, err));
    const tok_norm_step *s = &n->steps[n->n - 1];
    bool again = n->n > 1 && s->kind == NORM_FORM && s[-1].kind == NORM_FORM &&
                 s->form == s[-1].form; /* a normalisation form is idempotent */
    return again ? LN_OK : section_growth(&n->growth, growth(s), "normalizer", err);
}

ln_status norm_read(tok_norm *n, const json_t *section, ln_error *err) {
    if (!section || json_is_null(section)) return LN_OK;
    return section_steps(section, "normalizer", "normalizers", read_counted, n, err);
}

ln_status norm_lower_first(tok_norm *n, ln_error *err) {
    for (size_t i = 0; i < n->n; i++)
        if (n->steps[i].kind == NORM_LOWER) return LN_OK;
    LN_TRY(ln_grow((void **)&n->steps, &n->cap, n->n + 1, sizeof *n->steps, err));
    if (n->n > 0) memmove(n->steps + 1, n->steps, n->n * sizeof *n->steps);
    n->steps[0] = (tok_norm_step){.kind = NORM_LOWER};
    n->n++;
    return section_growth(&n->growth, growth(&n->steps[0]), "normalizer", err);
}

void norm_close(tok_norm *n) {
    for (size_t i = 0; i < n->n; i++) {
        regex_close(&n->steps[i].re);
        ln_free(n->steps[i].text);
    }
    ln_free(n->steps);
    *n = (tok_norm){0};
}

/* ---- running: each step writes to `out`, which is empty, or sets *same when nothing changes ---- */

static ln_status run_replace(const tok_norm_step *s, tok_regex_work *w, const char *text, size_t bytes,
                             ln_str *out, bool *same, bool *at_start, ln_error *err) {
    tok_matches m = {0};
    size_t done = 0;
    for (bool found;;) {
        LN_TRY(regex_next(&s->re, w, text, bytes, &m, &found, err));
        if (!found) break;
        if (m.start == 0 && m.end > 0 && s->n_text == 0) *at_start = false;
        LN_TRY(utf8_reserve(out, m.start - done + s->n_text, err));
        memcpy(out->data + out->len, text + done, m.start - done);
        memcpy(out->data + out->len + (m.start - done), s->text, s->n_text);
        utf8_grown(out, m.start - done + s->n_text);
        done = m.end;
    }
    *same = !m.any;
    return *same ? LN_OK : utf8_append(out, text + done, bytes - done, err);
}

/* Replaces one byte by a text: the replacement of spaces by U+2581, which every SentencePiece model needs. */
static ln_status run_replace_byte(const tok_norm_step *s, const char *text, size_t bytes, ln_str *out,
                                  bool *same, bool *at_start, ln_error *err) {
    size_t n = 0;
    char c = s->re.literal[0];
    for (size_t i = 0; i < bytes; i++) n += text[i] == c;
    *same = n == 0;
    if (*same) return LN_OK;
    size_t extra;
    if (!ln_mul_size(n, s->n_text, &extra)) return LN_OOM(err, "a text");
    if (s->n_text == 0 && text[0] == c) *at_start = false;
    LN_TRY(utf8_reserve(out, bytes - n + extra, err));
    char *to = out->data + out->len;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != c) {
            *to++ = text[i];
        } else if (s->n_text == 3) {
            memcpy(to, s->text, 3);
            to += 3;
        } else {
            memcpy(to, s->text, s->n_text);
            to += s->n_text;
        }
    }
    utf8_grown(out, bytes - n + extra);
    return LN_OK;
}

static ln_status run_lower(const char *text, size_t bytes, ln_str *out, ln_error *err) {
    for (size_t at = 0; at < bytes;) {
        uint32_t cp, second;
        at += utf8_next(text + at, &cp);
        LN_TRY(utf8_append_cp(out, unicode_lower(cp, &second), err));
        if (second) LN_TRY(utf8_append_cp(out, second, err));
    }
    return LN_OK;
}

/* Copies the characters for which drop() is false. */
static ln_status run_drop(bool (*drop)(uint32_t), const char *text, size_t bytes, ln_str *out, bool *at_start,
                          ln_error *err) {
    LN_TRY(utf8_reserve(out, bytes, err));
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        if (drop(cp)) *at_start = *at_start && at > 0;
        else LN_TRY(utf8_append(out, text + at, n, err));
        at += n;
    }
    return LN_OK;
}

static ln_status run_strip(const tok_norm_step *s, const char *text, size_t bytes, ln_str *out, bool *same,
                           bool *at_start, ln_error *err) {
    size_t from = 0, to = bytes;
    uint32_t cp;
    while (s->left && from < to) {
        size_t n = utf8_next(text + from, &cp);
        if (!unicode_is_space(cp)) break;
        from += n;
    }
    while (s->right && to > from) {
        size_t last = to - 1;
        while (last > from && ((unsigned char)text[last] & 0xc0) == 0x80) last--;
        (void)utf8_next(text + last, &cp);
        if (!unicode_is_space(cp)) break;
        to = last;
    }
    *same = from == 0 && to == bytes;
    if (from > 0) *at_start = false;
    return *same ? LN_OK : utf8_append(out, text + from, to - from, err);
}

static bool is_chinese(uint32_t cp) {
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b81f) ||
           (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}

static ln_status run_bert(const tok_norm_step *s, const char *text, size_t bytes, ln_str *out, bool *at_start,
                          ln_error *err) {
    ln_str part = {0}, bare = {0};
    ln_status st = LN_OK;
    for (size_t at = 0; at < bytes && st == LN_OK;) {
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        bool blank = cp == '\t' || cp == '\n' || cp == '\r';
        if (s->clean && (cp == 0 || cp == 0xfffd || (!blank && unicode_is_control(cp)))) {
            *at_start = *at_start && at > 0;
        } else {
            if (s->clean && unicode_is_space(cp)) cp = ' ';
            bool apart = s->chinese && is_chinese(cp);
            if (apart) LN_GO(utf8_append(&part, " ", 1, err));
            LN_GO(utf8_append_cp(&part, cp, err));
            if (apart) LN_GO(utf8_append(&part, " ", 1, err));
        }
        at += n;
    }
    if (s->accents && part.len > 0) {
        ln_str nfd = {0};
        st = unicode_normalize(UNICODE_NFD, part.data, part.len, &nfd, err);
        if (st == LN_OK) st = run_drop(unicode_is_nonspacing, nfd.data, nfd.len, &bare, at_start, err);
        ln_str_free(&nfd);
        ln_str_free(&part);
        part = bare;
        if (st != LN_OK) goto out;
    }
    st = s->lower ? run_lower(part.data, part.len, out, err) : utf8_append(out, part.data, part.len, err);
out:
    ln_str_free(&part);
    return st;
}

static ln_status run_step(const tok_norm_step *s, tok_regex_work *w, const char *text, size_t bytes,
                          ln_str *out, bool *same, bool *at_start, ln_error *err) {
    *same = false;
    switch (s->kind) {
    case NORM_FORM:
        *same = unicode_is_normalized(s->form, text, bytes);
        return *same ? LN_OK : unicode_normalize(s->form, text, bytes, out, err);
    case NORM_LOWER: return run_lower(text, bytes, out, err);
    case NORM_ACCENTS: return run_drop(text_is_accent, text, bytes, out, at_start, err);
    case NORM_REPLACE:
        if (!s->re.code && s->re.n_literal == 1)
            return run_replace_byte(s, text, bytes, out, same, at_start, err);
        return run_replace(s, w, text, bytes, out, same, at_start, err);
    case NORM_PREPEND:
        LN_TRY(utf8_append(out, s->text, s->n_text, err));
        return utf8_append(out, text, bytes, err);
    case NORM_STRIP: return run_strip(s, text, bytes, out, same, at_start, err);
    case NORM_BERT: return run_bert(s, text, bytes, out, at_start, err);
    default: /* NORM_BYTES */
        for (size_t i = 0; i < bytes; i++)
            LN_TRY(utf8_append_cp(out, byte_level_cp[(unsigned char)text[i]], err));
        return LN_OK;
    }
}

ln_status norm_run(const tok_norm *n, tok_regex_work *w, ln_str buf[2], const char **text, size_t *bytes,
                   bool *at_start, ln_error *err) {
    for (size_t i = 0; i < n->n && bytes[0] > 0; i++) {
        ln_str *out = *text == buf[0].data ? &buf[1] : &buf[0];
        bool same;
        out->len = 0;
        LN_TRY(utf8_reserve(out, 0, err));
        LN_TRY(run_step(&n->steps[i], w, *text, *bytes, out, &same, at_start, err));
        if (same) continue;
        *text = out->data;
        *bytes = out->len;
    }
    return LN_OK;
}
