/* Added tokens: read, numbered, and found in a text, leftmost first and the longest there.
 *
 * Those with normalized = false are searched in the text as it came, the others in the normalized rest, by their own normalized
 * spelling. Patterns lie in byte order; a search keeps the range of patterns that share what was read so far and narrows it by binary
 * search, so that there is no automaton to build: Gemma 3 has 6,415 of them and opens in a moment.
 *
 * Decoding shows a normalized token in its normalized spelling, and skips it only if that spelling is a special token's content: Llama
 * 2's <s> comes back as " <s>" and is never skipped. This is the reference's rule, not ours.
 *
 * Numbers: the reference takes the id of an equal text in the vocabulary, else the next free one, whatever the file says. A file whose
 * ids follow another rule is loaded as the reference loads it, with a warning; one that gives an id to two texts is refused. */
#include "tok.h"

#include <stdlib.h>

/* ---- reading ---- */

static ln_status read_fields(text_added_token *t, bool *has_id, ln_json *j, ln_error *err) {
    uint64_t id = 0;
    bool more, has_normalized = false;
    char found[80];
    const struct {
        const char *key, *what;
        bool *flag;
    } flags[] = {{"special", "an added token's special", &t->special},
                 {"lstrip", "an added token's lstrip", &t->lstrip},
                 {"rstrip", "an added token's rstrip", &t->rstrip},
                 {"single_word", "an added token's single_word", &t->single_word},
                 {"normalized", "an added token's normalized", &t->normalized}};
    for (;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) break;
        size_t k = 0;
        while (k < LN_COUNT(flags) && !ln_json_is(j, flags[k].key)) k++;
        bool content = ln_json_is(j, "content"), number = ln_json_is(j, "id");
        LN_TRY(ln_json_next(j, err));
        if (k < LN_COUNT(flags)) {
            LN_TRY(ln_json_bool(j, flags[k].what, flags[k].flag, err));
            has_normalized |= flags[k].flag == &t->normalized;
        } else if (number) {
            LN_TRY(ln_json_u64(j, "an added token's id", &id, err));
            if (id >= TEXT_MAX_IDS) return ln_json_fail(j, err, "an added token's id: expected less than %d, found %s", TEXT_MAX_IDS, ln_json_found(j, found));
            *has_id = true;
            t->id = (int32_t)id;
        } else if (content) {
            if (j->type != LN_J_STRING || t->content) return ln_json_fail(j, err, "an added token's content: expected one string, found %s", t->content ? "a second one" : ln_json_found(j, found));
            if (j->text_bytes == 0 || j->text_bytes > TEXT_MAX_TOKEN)
                return ln_json_fail(j, err, "an added token's content: expected 1 to %d bytes, found %zu", TEXT_MAX_TOKEN, j->text_bytes);
            t->bytes = j->text_bytes;
            t->content = ln_strndup(j->text, j->text_bytes);
            if (!t->content) return LN_OOM(err, "added tokens");
        } else {
            LN_TRY(ln_json_skip(j, err));
        }
    }
    if (!has_normalized) t->normalized = !t->special;
    return LN_OK;
}

ln_status added_read(text_added *a, ln_json *j, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_NULL) return LN_OK;
    char found[80];
    if (j->type != LN_J_ARRAY) return ln_json_fail(j, err, "added_tokens: expected an array, found %s", ln_json_found(j, found));
    for (bool more;;) {
        LN_TRY(ln_json_item(j, &more, err));
        if (!more) return LN_OK;
        if (j->type != LN_J_OBJECT) return ln_json_fail(j, err, "added_tokens: expected objects, found %s", ln_json_found(j, found));
        if (a->n >= TEXT_MAX_ADDED) return ln_json_fail(j, err, "added_tokens: expected at most %d, found more", TEXT_MAX_ADDED);
        LN_TRY(ln_grow((void **)&a->t, &a->cap, a->n + 1, sizeof *a->t, err));
        text_added_token *t = &a->t[a->n++];
        bool has_id = false;
        *t = (text_added_token){0};
        LN_TRY(read_fields(t, &has_id, j, err));
        if (!t->content && has_id) return ln_json_fail(j, err, "added_tokens: expected an id and a content in each, found no content beside id %d", (int)t->id);
        if (!t->content || !has_id)
            return ln_json_fail(j, err, "added_tokens: expected an id and a content in each, found no id beside '%s'", ln_excerpt(found, t->content ? t->content : "", t->bytes));
    }
}

/* ---- numbering ---- */

static ln_status clash(const char *name, const text_added_token *t, int32_t id, const char *text, size_t bytes, ln_error *err) {
    char a[80], b[80];
    return ln_fail(err, LN_EINVALID, "%s: added_tokens: id %d: expected one text and one id for it, found '%s' (id %d) beside '%s'", name,
                   (int)t->id, ln_excerpt(a, t->content, t->bytes), (int)id, ln_excerpt(b, text, bytes));
}

/* Folds a repeated content into its first entry; the last flags win, special stays. */
static bool fold(text_added *a, text_vocab *seen, const text_added_token *t) {
    int32_t at = vocab_find(seen, t->content, t->bytes);
    if (at < 0 || a->t[at].id != t->id) return false;
    text_added_token *old = &a->t[at];
    bool special = old->special || t->special;
    char *content = old->content;
    *old = *t;
    old->content = content;
    old->special = special;
    return true;
}

static ln_status number(text_added *a, const char *name, text_vocab *v, text_vocab *seen, ln_error *err) {
    size_t n = 0, n_model = v->n_used;
    int64_t largest = -1;
    bool moved = false;
    for (size_t i = 0; i < a->n; i++) {
        text_added_token t = a->t[i];
        int32_t twin = -1, id = vocab_find(v, t.content, t.bytes);
        a->t[i].content = NULL;
        bool folded = fold(a, seen, &t);
        if (!folded) {
            a->t[n] = t;
            LN_TRY(vocab_add(seen, t.content, t.bytes, text_hash(t.content, t.bytes), (int32_t)n, &twin, err));
            n++;
        } else {
            ln_free(t.content);
        }
        if (twin >= 0) return clash(name, &t, a->t[twin].id, t.content, t.bytes, err);
        if (folded) continue;
        if (id >= 0 && id != t.id) return clash(name, &t, id, t.content, t.bytes, err);
        if (id < 0) {
            size_t bytes;
            bool taken = vocab_has(v, t.id);
            const char *other = taken ? vocab_text(v, t.id, &bytes) : NULL;
            id = (int32_t)(largest >= (int64_t)n_model || (n_model == 0 && largest >= 0) ? largest + 1 : (int64_t)n_model);
            if (taken) return clash(name, &t, t.id, other, bytes, err);
            if (id != t.id) moved = true;
            if (id >= TEXT_MAX_IDS) return ln_fail(err, LN_EINVALID, "%s: added_tokens: expected ids less than %d", name, TEXT_MAX_IDS);
            LN_TRY(vocab_name(v, t.content, t.bytes, id, err));
        }
        if (id > largest) largest = id;
        a->t[n - 1].id = id;
    }
    a->n = n;
    if (moved) ln_log(LN_LOG_WARN, "%s: added_tokens: some ids do not follow the vocabulary; numbered as the reference does", name);
    return LN_OK;
}

/* ---- patterns ---- */

static int by_bytes(const void *x, const void *y) {
    const struct text_pattern *a = x, *b = y;
    int c = memcmp(a->text, b->text, LN_MIN(a->bytes, b->bytes));
    if (c != 0) return c;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

/* Tokens with the given `normalized`, special ones first, as the reference orders equals. */
static ln_status build(text_trie *trie, text_added *a, bool normalized, const text_norm *norm, ln_error *err) {
    text_regex_work w = {0};
    ln_str buf[2] = {{0}, {0}};
    ln_status st = LN_OK;
    trie->p = ln_zalloc(a->n + 1, sizeof *trie->p);
    if (!trie->p) return LN_OOM(err, "added tokens");
    for (size_t k = 0; k < 2 * a->n; k++) {
        size_t i = k % a->n;
        text_added_token *t = &a->t[i];
        if (t->normalized != normalized || t->special != (k < a->n)) continue;
        const char *text = t->content;
        size_t bytes = t->bytes;
        bool at_start = true;
        if (normalized) LN_GO(norm_run(norm, &w, buf, &text, &bytes, &at_start, err));
        if (bytes != t->bytes || memcmp(text, t->content, bytes) != 0) {
            t->shown = ln_strndup(text, bytes);
            t->n_shown = bytes;
            if (!t->shown) LN_GO(LN_OOM(err, "added tokens"));
        }
        if (bytes == 0) continue;
        struct text_pattern *p = &trie->p[trie->n];
        p->text = ln_strndup(text, bytes);
        if (!p->text) LN_GO(LN_OOM(err, "added tokens"));
        p->bytes = bytes;
        p->token = (uint32_t)i;
        trie->n++;
    }
    if (trie->n > 1) qsort(trie->p, trie->n, sizeof *trie->p, by_bytes);
    for (size_t b = 0, i = 0; b <= 256; b++) {
        while (b < 256 && i < trie->n && (unsigned char)trie->p[i].text[0] < b) i++;
        trie->first[b] = (uint32_t)(b < 256 ? i : trie->n);
    }
out:
    regex_work_close(&w);
    ln_str_free(&buf[0]);
    ln_str_free(&buf[1]);
    return st;
}

static int by_id(const void *x, const void *y) {
    const struct text_shown *a = x, *b = y;
    return a->id < b->id ? -1 : a->id > b->id;
}

static ln_status list_shown(text_added *a, ln_error *err) {
    a->shown = ln_zalloc(a->n + 1, sizeof *a->shown);
    if (!a->shown) return LN_OOM(err, "added tokens");
    for (size_t i = 0; i < a->n; i++)
        if (a->t[i].shown) a->shown[a->n_shown++] = (struct text_shown){a->t[i].id, (uint32_t)i};
    if (a->n_shown > 1) qsort(a->shown, a->n_shown, sizeof *a->shown, by_id);
    return LN_OK;
}

ln_status added_flags(const text_added *a, uint8_t *flags, ln_error *err) {
    text_vocab special = {0};
    int32_t twin;
    ln_status st;
    LN_GO(vocab_open(&special, a->n, err));
    for (size_t i = 0; i < a->n; i++)
        if (a->t[i].special)
            LN_GO(vocab_add(&special, a->t[i].content, a->t[i].bytes, text_hash(a->t[i].content, a->t[i].bytes), (int32_t)i, &twin, err));
    for (size_t i = 0; i < a->n; i++) {
        const text_added_token *t = &a->t[i];
        bool skip = t->shown ? vocab_find(&special, t->shown, t->n_shown) >= 0 : t->special;
        if (t->special) flags[t->id] |= TEXT_FLAG_SPECIAL;
        if (skip) flags[t->id] |= TEXT_FLAG_SKIP;
        if (t->shown) flags[t->id] |= TEXT_FLAG_SHOWN;
    }
out:
    vocab_close(&special);
    return st;
}

ln_status added_finish(text_added *a, const char *name, text_vocab *v, const text_norm *norm, ln_error *err) {
    text_vocab seen = {0};
    size_t n = a->n;
    ln_status st = vocab_open(&seen, n, err);
    if (st == LN_OK) st = number(a, name, v, &seen, err);
    vocab_close(&seen);
    if (st == LN_OK && a->n > 0) st = build(&a->plain, a, false, norm, err);
    if (st == LN_OK && a->n > 0) st = build(&a->normal, a, true, norm, err);
    if (st == LN_OK && a->n > 0) st = list_shown(a, err);
    return st;
}

static void close_trie(text_trie *t) {
    for (size_t i = 0; i < t->n; i++) ln_free(t->p[i].text);
    ln_free(t->p);
    *t = (text_trie){0};
}

void added_close(text_added *a) {
    for (size_t i = 0; i < a->n; i++) {
        ln_free(a->t[i].content);
        ln_free(a->t[i].shown);
    }
    ln_free(a->t);
    ln_free(a->shown);
    close_trie(&a->plain);
    close_trie(&a->normal);
    *a = (text_added){0};
}

/* ---- searching ---- */

/* The first pattern in [lo, hi) whose byte at `depth` is at least c. */
static size_t bound(const text_trie *t, size_t lo, size_t hi, size_t depth, unsigned c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)t->p[mid].text[depth] < c) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* What the normalizer put before a token's own text (Llama's U+2581) may be a message's: it is a blank that the token swallows. */
static bool refused(const text_added *a, const text_guard *g, const struct text_pattern *p, size_t at) {
    if (!g || !g->control[p->token]) return false;
    if (!g->origin) return g->all_data;
    const text_added_token *t = &a->t[p->token];
    size_t lead = p->bytes > t->bytes && memcmp(p->text + p->bytes - t->bytes, t->content, t->bytes) == 0 ? p->bytes - t->bytes : 0;
    return g->origin[at + lead] || g->origin[at + p->bytes - 1];
}

/* The longest pattern that begins at text + at and is not refused there, or NULL. */
static const struct text_pattern *longest(const text_added *a, const text_trie *t, const char *text, size_t at, size_t bytes, const text_guard *g) {
    const char *s = text + at;
    const struct text_pattern *best = NULL;
    unsigned c = (unsigned char)s[0];
    size_t lo = t->first[c], hi = t->first[c + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (t->p[lo].bytes == depth && !refused(a, g, &t->p[lo], at)) best = &t->p[lo];
        while (lo < hi && t->p[lo].bytes == depth) lo++;
        if (depth >= bytes) break;
        c = (unsigned char)s[depth];
        lo = bound(t, lo, hi, depth, c);
        hi = bound(t, lo, hi, depth, c + 1);
    }
    return best;
}

static size_t space_before(const char *text, size_t at, size_t done) {
    while (at > done) {
        size_t last = at - 1;
        uint32_t cp;
        while (last > 0 && ((unsigned char)text[last] & 0xc0) == 0x80) last--;
        (void)text_cp(text + last, &cp);
        if (!text_is_space(cp)) break;
        at = last;
    }
    return at;
}

static size_t space_after(const char *text, size_t bytes, size_t at, text_scan *s) {
    size_t start = at;
    if (at >= s->blank_start && at < s->blank_end) return s->blank_end;
    while (at < bytes) {
        uint32_t cp;
        size_t n = text_cp(text + at, &cp);
        if (!text_is_space(cp)) break;
        at += n;
    }
    s->blank_start = start;
    s->blank_end = at;
    return at;
}

static bool inside_word(const char *text, size_t bytes, size_t start, size_t end) {
    uint32_t cp;
    if (end < bytes && (text_cp(text + end, &cp), text_is_word(cp))) return true;
    if (start == 0) return false;
    do start--;
    while (start > 0 && ((unsigned char)text[start] & 0xc0) == 0x80);
    (void)text_cp(text + start, &cp);
    return text_is_word(cp);
}

text_hit added_next(const text_added *a, const text_trie *trie, const char *text, size_t bytes, const text_guard *guard, text_scan *s) {
    text_hit none = {bytes, bytes, -1};
    if (trie->n == 0) return none;
    for (size_t at = s->from; at < bytes; at++) {
        unsigned c = (unsigned char)text[at];
        if (trie->first[c] == trie->first[c + 1]) continue;
        const struct text_pattern *p = longest(a, trie, text, at, bytes - at, guard);
        if (!p) continue;
        const text_added_token *t = &a->t[p->token];
        text_hit hit = {at, at + p->bytes, t->id};
        s->from = hit.end;
        if (t->single_word && inside_word(text, bytes, hit.start, hit.end)) {
            at = hit.end - 1;
            continue;
        }
        if (t->lstrip) hit.start = LN_MAX(space_before(text, hit.start, s->done), s->done);
        if (t->rstrip) hit.end = space_after(text, bytes, hit.end, s);
        return hit;
    }
    return none;
}
