/* Converts ids to text with the chain of decoders, as a stream.
 *
 * The reference runs each decoder step on the whole list of tokens. Here every step takes fragments of tokens
 * as they arrive, holds back the text that later input can still change, and passes on the rest. Decoding a
 * list means pushing all of its tokens and then the end, so streamed and whole texts come from one
 * implementation and are equal by construction. After a Fuse or ByteLevel step there is one token, which
 * arrives in fragments; before it, every token is one fragment. A fragment consists of whole characters. */
#include "tokenizer_internal.h"

/* ---- reading ---- */

static ln_status copy(tok_dec_step *s, const char *text, size_t n, ln_error *err) {
    s->text = ln_strndup(text, n);
    s->n_text = n;
    return s->text ? LN_OK : LN_OOM(err, "a decoder");
}

static ln_status read_metaspace(tok_dec_step *s, const json_t *o, ln_error *err) {
    const char *what = "decoder Metaspace", *name = "always";
    size_t n;
    bool prefix;
    LN_TRY(section_char(o, what, "replacement", &s->cp, err));
    LN_TRY(section_bool(o, what, "add_prefix_space", true, &prefix, err));
    if (json_object_get(o, "prepend_scheme")) LN_TRY(section_str(o, what, "prepend_scheme", &name, &n, err));
    else if (!prefix) name = "never";
    s->drop_first = strcmp(name, "never") != 0;
    return LN_OK;
}

static ln_status read_strip(tok_dec_step *s, const json_t *o, ln_error *err) {
    LN_TRY(section_char(o, "decoder Strip", "content", &s->cp, err));
    LN_TRY(section_size(o, "decoder Strip", "start", 0, &s->start, err));
    return section_size(o, "decoder Strip", "stop", 0, &s->stop, err);
}

static ln_status read_fields(tok_dec_step *s, const json_t *o, double *growth, ln_error *err) {
    const char *text;
    size_t n;
    switch (s->kind) {
    case DEC_METASPACE: return read_metaspace(s, o, err);
    case DEC_STRIP: return read_strip(s, o, err);
    case DEC_REPLACE:
        LN_TRY(section_pattern(o, "decoder Replace", &s->re, err));
        LN_TRY(section_str(o, "decoder Replace", "content", &text, &n, err));
        LN_TRY(section_growth(growth, regex_growth(&s->re, n), "decoder", err));
        return copy(s, text, n, err);
    case DEC_BPE:
        if (!json_object_get(o, "suffix")) return copy(s, "</w>", 4, err);
        LN_TRY(section_str(o, "decoder BPEDecoder", "suffix", &text, &n, err));
        if (n == 0)
            return ln_fail(err, LN_EINVALID,
                           "decoder BPEDecoder.suffix: expected a suffix, found an empty one");
        return copy(s, text, n, err);
    case DEC_WORDPIECE:
        LN_TRY(section_bool(o, "decoder WordPiece", "cleanup", true, &s->cleanup, err));
        if (!json_object_get(o, "prefix")) return copy(s, "##", 2, err);
        LN_TRY(section_str(o, "decoder WordPiece", "prefix", &text, &n, err));
        return copy(s, text, n, err);
    default: return LN_OK;
    }
}

static ln_status read_step(void *user, const json_t *o, const char *type, ln_error *err) {
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {{"ByteLevel", DEC_BYTES},       {"Metaspace", DEC_METASPACE}, {"Replace", DEC_REPLACE},
                 {"ByteFallback", DEC_FALLBACK}, {"Fuse", DEC_FUSE},           {"Strip", DEC_STRIP},
                 {"BPEDecoder", DEC_BPE},        {"WordPiece", DEC_WORDPIECE}};
    tok_dec *d = user;
    LN_TRY(ln_grow((void **)&d->steps, &d->cap, d->n + 1, sizeof *d->steps, err));
    tok_dec_step *s = &d->steps[d->n];
    *s = (tok_dec_step){0};
    for (size_t i = 0; i < LN_COUNT(kinds); i++) {
        if (strcmp(type, kinds[i].name) != 0) continue;
        s->kind = (unsigned)kinds[i].kind;
        if (d->n > 0) {
            const tok_dec_step *before = &d->steps[d->n - 1];
            s->fused = before->fused || before->kind == DEC_FUSE || before->kind == DEC_BYTES;
        }
        d->n++;
        return read_fields(s, o, &d->growth, err);
    }
    char name[80];
    return ln_fail(err, LN_EUNSUPPORTED, "decoder: the type '%s' is not supported",
                   ln_excerpt(name, type, strlen(type)));
}

ln_status dec_read(tok_dec *d, const json_t *section, ln_error *err) {
    if (section && !json_is_null(section))
        return section_steps(section, "decoder", "decoders", read_step, d, err);
    LN_TRY(ln_grow((void **)&d->steps, &d->cap, 1, sizeof *d->steps,
                   err)); /* without a decoder, tokens are joined by spaces */
    d->steps[d->n++] = (tok_dec_step){.kind = DEC_JOIN};
    return LN_OK;
}

void dec_close(tok_dec *d) {
    for (size_t i = 0; i < d->n; i++) {
        regex_close(&d->steps[i].re);
        ln_free(d->steps[i].text);
    }
    ln_free(d->steps);
    *d = (tok_dec){0};
}

/* ---- running ---- */

ln_status frags_end(tok_frags *f, bool last, ln_error *err) {
    if (f->n == f->cap) LN_TRY(ln_grow((void **)&f->f, &f->cap, f->n + 1, sizeof *f->f, err));
    f->f[f->n++] = (struct tok_frag){f->text.len, last};
    return LN_OK;
}

ln_status dec_open(const tok_dec *d, tok_decoding **out, ln_error *err) {
    tok_decoding *g = ln_zalloc(1, sizeof *g);
    if (g) g->states = ln_zalloc(d->n + 1, sizeof *g->states);
    if (!g || !g->states) {
        ln_free(g);
        return LN_OOM(err, "a decoder");
    }
    *out = g;
    return LN_OK;
}

void dec_free(const tok_dec *d, tok_decoding *g) {
    if (!g) return;
    for (size_t i = 0; i < d->n; i++) ln_str_free(&g->states[i].held);
    for (size_t i = 0; i < 2; i++) {
        ln_str_free(&g->frags[i].text);
        ln_free(g->frags[i].f);
    }
    regex_work_close(&g->regex);
    ln_free(g->states);
    ln_free(g);
}

ln_status dec_push(const tok_dec *d, tok_decoding *g, const char *text, size_t bytes, ln_str *out,
                   ln_error *err) {
    tok_frags *in = &g->frags[0], *next = &g->frags[1];
    in->n = in->text.len = 0;
    LN_TRY(utf8_reserve(&in->text, bytes, err));
    if (text) {
        LN_TRY(utf8_append(&in->text, text, bytes, err));
        LN_TRY(frags_end(in, true, err));
    }
    for (size_t i = 0; i < d->n; i++) {
        next->n = next->text.len = 0;
        LN_TRY(utf8_reserve(&next->text, in->text.len, err));
        LN_TRY(dec_step(&d->steps[i], &g->states[i], &g->regex, in, next, text == NULL, err));
        tok_frags *t = in;
        in = next;
        next = t;
    }
    return utf8_append(out, in->text.data, in->text.len, err);
}
