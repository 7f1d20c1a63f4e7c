/* Added tokens: reads them, assigns their ids, and finds them in a text, leftmost first and the longest
 * there.
 *
 * Tokens with normalized = false are searched in the original text. The others are searched in the
 * normalized rest by their normalized content. The patterns are sorted by their bytes. A search keeps the
 * range of patterns that begin with the bytes read so far and narrows it by binary search. So no automaton
 * has to be built, and Gemma 3, which has 6,415 added tokens, opens fast.
 *
 * Decoding gives the normalized text of a normalized token, and skips it only if that text is the content of
 * a special token: Llama 2's <s> decodes to " <s>" and is never skipped. This rule is the reference's.
 *
 * Ids: the reference processes one list after the other, ignores the id that the file states, and gives a
 * token the id of an equal text in the vocabulary, else the next free id. A file with other ids is loaded
 * like that, with a warning. A tokenizer.json that gives a text two ids, or an id two texts, is rejected. */
#include "tokenizer_internal.h"

#include <stdlib.h>

/* ---- reading ---- */

static ln_status read_fields(tok_added_token *t, bool *has_id, ln_json *j, ln_error *err) {
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
            if (id >= TOK_MAX_IDS)
                return ln_json_fail(j, err, "an added token's id: expected less than %d, found %s",
                                    TOK_MAX_IDS, ln_json_found(j, found));
            *has_id = true;
            t->file_id = (int32_t)id;
        } else if (content) {
            if (j->type != LN_J_STRING || t->content)
                return ln_json_fail(j, err, "an added token's content: expected one string, found %s",
                                    t->content ? "a second one" : ln_json_found(j, found));
            if (j->text_bytes == 0 || j->text_bytes > TOK_MAX_TOKEN)
                return ln_json_fail(j, err, "an added token's content: expected 1 to %d bytes, found %zu",
                                    TOK_MAX_TOKEN, j->text_bytes);
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

ln_status added_wait(tok_added *a, const tok_added_token *t, ln_error *err) {
    if (a->n + a->n_waiting >= TOK_MAX_ADDED)
        return ln_fail(err, LN_EINVALID, "added_tokens: expected at most %d, found more", TOK_MAX_ADDED);
    LN_TRY(ln_grow((void **)&a->waiting, &a->cap_waiting, a->n_waiting + 1, sizeof *a->waiting, err));
    a->waiting[a->n_waiting++] = *t;
    return LN_OK;
}

ln_status added_read(tok_added *a, ln_json *j, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    if (j->type == LN_J_NULL) return LN_OK;
    char found[80];
    if (j->type != LN_J_ARRAY)
        return ln_json_fail(j, err, "added_tokens: expected an array, found %s", ln_json_found(j, found));
    for (bool more;;) {
        LN_TRY(ln_json_item(j, &more, err));
        if (!more) return LN_OK;
        if (j->type != LN_J_OBJECT)
            return ln_json_fail(j, err, "added_tokens: expected objects, found %s", ln_json_found(j, found));
        LN_TRY(added_wait(a, &(tok_added_token){.id = -1}, err));
        tok_added_token *t = &a->waiting[a->n_waiting - 1];
        bool has_id = false;
        LN_TRY(read_fields(t, &has_id, j, err));
        if (!t->content && has_id)
            return ln_json_fail(j, err,
                                "added_tokens: expected an id and a content in each, found no content for id "
                                "%d",
                                (int)t->file_id);
        if (!t->content || !has_id)
            return ln_json_fail(j, err,
                                "added_tokens: expected an id and a content in each, found no id for '%s'",
                                ln_excerpt(found, t->content ? t->content : "", t->bytes));
    }
}

/* ---- assigning ids ---- */

static int by_file_id(const void *x, const void *y) {
    const tok_added_token *a = *(tok_added_token *const *)x, *b = *(tok_added_token *const *)y;
    if (a->file_id != b->file_id) return a->file_id < b->file_id ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* LN_EINVALID when the ids of the waiting tokens contradict the vocabulary. */
static ln_status check_vocabulary(const tok_added *a, const char *where, const string_table *v,
                                  ln_error *err) {
    char shown[80], other[80];
    for (size_t i = 0; i < a->n_waiting; i++) {
        const tok_added_token *t = &a->waiting[i];
        int32_t id = strtab_find(v, t->content, t->bytes);
        size_t bytes;
        if (id == t->file_id || (id < 0 && !strtab_has(v, t->file_id))) continue;
        ln_excerpt(shown, t->content, t->bytes);
        if (id >= 0)
            return ln_fail(err, LN_EINVALID,
                           "%s: added_tokens: '%s': expected id %d, which the vocabulary gives it, found id "
                           "%d",
                           where, shown, (int)id, (int)t->file_id);
        const char *text = strtab_text(v, t->file_id, &bytes);
        return ln_fail(err, LN_EINVALID,
                       "%s: added_tokens: '%s': expected an id that no other text has, found id %d, which is "
                       "'%s' in the vocabulary",
                       where, shown, (int)t->file_id, ln_excerpt(other, text, bytes));
    }
    return LN_OK;
}

/* LN_EINVALID when two waiting tokens with different texts have the same id. */
static ln_status check_ids(const tok_added *a, const char *where, ln_error *err) {
    tok_added_token **order = ln_alloc((a->n_waiting + 1) * sizeof *order);
    char one[80], two[80];
    ln_status st = LN_OK;
    if (!order) return LN_OOM(err, "added tokens");
    for (size_t i = 0; i < a->n_waiting; i++) order[i] = &a->waiting[i];
    if (a->n_waiting > 1) qsort(order, a->n_waiting, sizeof *order, by_file_id);
    for (size_t i = 1; i < a->n_waiting && st == LN_OK; i++) {
        const tok_added_token *p = order[i - 1], *t = order[i];
        if (p->file_id != t->file_id ||
            (p->bytes == t->bytes && memcmp(p->content, t->content, t->bytes) == 0))
            continue;
        st = ln_fail(err, LN_EINVALID, "%s: added_tokens: id %d: expected one text, found '%s' and '%s'",
                     where, (int)t->file_id, ln_excerpt(one, p->content, p->bytes),
                     ln_excerpt(two, t->content, t->bytes));
    }
    ln_free(order);
    return st;
}

/* Merges a token into an earlier one of the same content: the later flags replace the earlier ones, but a
 * special token stays special. */
static void fold(tok_added_token *old, const tok_added_token *t) {
    old->special |= t->special;
    old->was_normalized |= old->normalized;
    old->normalized = t->normalized;
    old->lstrip = t->lstrip;
    old->rstrip = t->rstrip;
    old->single_word = t->single_word;
}

/* Assigns an id to a token of new content: the vocabulary's id of that text, else *next. When the ids of the
 * vocabulary have gaps, *next may belong to another text: the reference then gives both texts the same id,
 * and decoding gives the text of the added token. */
static ln_status give_id(tok_added_token *t, string_table *v, int64_t *next, ln_error *err) {
    t->id = strtab_find(v, t->content, t->bytes);
    if (t->id >= 0) return LN_OK;
    if (*next >= TOK_MAX_IDS)
        return ln_fail(err, LN_EINVALID, "added_tokens: expected ids less than %d", TOK_MAX_IDS);
    t->id = (int32_t)(*next)++;
    if (!strtab_has(v, t->id)) return strtab_name(v, t->content, t->bytes, t->id, err);
    t->shown = ln_strndup(t->content, t->bytes);
    t->n_shown = t->bytes;
    return t->shown ? LN_OK : LN_OOM(err, "added tokens");
}

static void tell_moved(const tok_added *a, const char *where, size_t first, size_t n_moved) {
    char shown[80];
    if (n_moved == 0) return;
    const tok_added_token *t = &a->t[first];
    ln_log(LN_LOG_WARN,
           "%s: %zu added tokens do not get the ids that the file says, as in the package tokenizers: "
           "'%s' has id %d, not %d",
           where, n_moved, ln_excerpt(shown, t->content, t->bytes), (int)t->id, (int)t->file_id);
}

ln_status added_number(tok_added *a, const char *where, string_table *v, bool strict, ln_error *err) {
    int64_t n_model = (int64_t)v->n_used, largest = -1;
    size_t moved = 0, n_moved = 0;
    char shown[80];
    if (strict) LN_TRY(check_vocabulary(a, where, v, err));
    if (strict) LN_TRY(check_ids(a, where, err));
    if (!a->seen.slots) LN_TRY(strtab_open(&a->seen, a->n_waiting, err));
    for (size_t i = 0; i < a->n; i++) largest = LN_MAX(largest, (int64_t)a->t[i].id);
    int64_t next = largest >= n_model || (n_model == 0 && largest >= 0) ? largest + 1 : n_model;
    LN_TRY(ln_grow((void **)&a->t, &a->cap, a->n + a->n_waiting, sizeof *a->t, err));
    for (size_t i = 0; i < a->n_waiting; i++) {
        tok_added_token *t = &a->waiting[i];
        int32_t twin, at = strtab_find(&a->seen, t->content, t->bytes);
        if (at >= 0 && strict && a->t[at].file_id != t->file_id)
            return ln_fail(err, LN_EINVALID, "%s: added_tokens: '%s': expected one id, found %d and %d",
                           where, ln_excerpt(shown, t->content, t->bytes), (int)a->t[at].file_id,
                           (int)t->file_id);
        if (at >= 0) {
            fold(&a->t[at], t);
            continue;
        }
        LN_TRY(strtab_add(&a->seen, t->content, t->bytes, strtab_hash(t->content, t->bytes), (int32_t)a->n,
                          &twin, err));
        LN_TRY(give_id(t, v, &next, err));
        if (t->file_id >= 0 && t->id != t->file_id && n_moved++ == 0) moved = a->n;
        a->t[a->n++] = *t;
        t->content = t->shown = NULL;
    }
    for (size_t i = 0; i < a->n_waiting; i++) ln_free(a->waiting[i].content);
    a->n_waiting = 0;
    tell_moved(a, where, moved, n_moved);
    return LN_OK;
}

/* ---- patterns ---- */

static int by_bytes(const void *x, const void *y) {
    const struct tok_pattern *a = x, *b = y;
    int c = memcmp(a->text, b->text, LN_MIN(a->bytes, b->bytes));
    if (c != 0) return c;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

/* Builds the patterns of all tokens with the given `normalized`. Of equal patterns, special tokens come
 * first, as in the reference. */
static ln_status build(tok_trie *trie, tok_added *a, bool normalized, const tok_norm *norm, ln_error *err) {
    tok_regex_work w = {0};
    ln_str buf[2] = {{0}, {0}};
    ln_status st = LN_OK;
    trie->p = ln_zalloc(a->n + 1, sizeof *trie->p);
    if (!trie->p) return LN_OOM(err, "added tokens");
    for (size_t k = 0; k < 2 * a->n; k++) {
        size_t i = k % a->n;
        tok_added_token *t = &a->t[i];
        if (t->normalized != normalized || t->special != (k < a->n)) continue;
        const char *text = t->content;
        size_t bytes = t->bytes;
        bool at_start = true;
        if (normalized || t->was_normalized) LN_GO(norm_run(norm, &w, buf, &text, &bytes, &at_start, err));
        if (bytes != t->bytes || memcmp(text, t->content, bytes) != 0) {
            ln_free(t->shown);
            t->shown = ln_strndup(text, bytes);
            t->n_shown = bytes;
            if (!t->shown) LN_GO(LN_OOM(err, "added tokens"));
        }
        if (!normalized) {
            text = t->content;
            bytes = t->bytes;
        }
        if (bytes == 0) continue;
        struct tok_pattern *p = &trie->p[trie->n];
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
    const struct tok_shown *a = x, *b = y;
    return a->id < b->id ? -1 : a->id > b->id;
}

static ln_status list_shown(tok_added *a, ln_error *err) {
    a->shown = ln_zalloc(a->n + 1, sizeof *a->shown);
    if (!a->shown) return LN_OOM(err, "added tokens");
    for (size_t i = 0; i < a->n; i++)
        if (a->t[i].shown) a->shown[a->n_shown++] = (struct tok_shown){a->t[i].id, (uint32_t)i};
    if (a->n_shown > 1) qsort(a->shown, a->n_shown, sizeof *a->shown, by_id);
    return LN_OK;
}

ln_status added_flags(const tok_added *a, uint8_t *flags, ln_error *err) {
    string_table special = {0};
    int32_t twin;
    ln_status st;
    LN_GO(strtab_open(&special, a->n, err));
    for (size_t i = 0; i < a->n; i++)
        if (a->t[i].special)
            LN_GO(strtab_add(&special, a->t[i].content, a->t[i].bytes,
                             strtab_hash(a->t[i].content, a->t[i].bytes), (int32_t)i, &twin, err));
    for (size_t i = 0; i < a->n; i++) {
        const tok_added_token *t = &a->t[i];
        bool skip = t->shown ? strtab_find(&special, t->shown, t->n_shown) >= 0 : t->special;
        if (t->special) flags[t->id] |= TOK_FLAG_SPECIAL;
        if (skip) flags[t->id] |= TOK_FLAG_SKIP;
        if (t->shown) flags[t->id] |= TOK_FLAG_SHOWN;
    }
out:
    strtab_close(&special);
    return st;
}

ln_status added_finish(tok_added *a, const tok_norm *norm, ln_error *err) {
    strtab_close(&a->seen);
    ln_free(a->waiting);
    a->waiting = NULL;
    a->cap_waiting = 0;
    if (a->n == 0) return LN_OK;
    LN_TRY(build(&a->plain, a, false, norm, err));
    LN_TRY(build(&a->normal, a, true, norm, err));
    return list_shown(a, err);
}

static void close_trie(tok_trie *t) {
    for (size_t i = 0; i < t->n; i++) ln_free(t->p[i].text);
    ln_free(t->p);
    *t = (tok_trie){0};
}

void added_close(tok_added *a) {
    for (size_t i = 0; i < a->n; i++) {
        ln_free(a->t[i].content);
        ln_free(a->t[i].shown);
    }
    for (size_t i = 0; i < a->n_waiting; i++) {
        ln_free(a->waiting[i].content);
        ln_free(a->waiting[i].shown);
    }
    ln_free(a->t);
    ln_free(a->waiting);
    ln_free(a->shown);
    strtab_close(&a->seen);
    close_trie(&a->plain);
    close_trie(&a->normal);
    *a = (tok_added){0};
}

/* ---- searching ---- */

/* The first pattern in [lo, hi) whose byte at `depth` is at least c. */
static size_t bound(const tok_trie *t, size_t lo, size_t hi, size_t depth, unsigned c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)t->p[mid].text[depth] < c) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* Whether the guard forbids a match of p at byte `at`: it is a control token and its first or last character
 * comes from a message. A prefix that the normalizer put before the token's content (Llama's U+2581) is not
 * checked: it stands for a space before the token, and a message may end with a space. */
static bool refused(const tok_added *a, const tok_guard *g, const struct tok_pattern *p, size_t at) {
    if (!g || !g->control[p->token]) return false;
    if (!g->origin) return g->all_data;
    const tok_added_token *t = &a->t[p->token];
    size_t lead = p->bytes > t->bytes && memcmp(p->text + p->bytes - t->bytes, t->content, t->bytes) == 0
                      ? p->bytes - t->bytes
                      : 0;
    return g->origin[at + lead] || g->origin[at + p->bytes - 1];
}

/* The longest pattern that matches at text + at and that the guard allows there, or NULL. `bytes` counts from
 * `at`. */
static const struct tok_pattern *longest(const tok_added *a, const tok_trie *t, const char *text, size_t at,
                                         size_t bytes, const tok_guard *g) {
    const char *s = text + at;
    const struct tok_pattern *best = NULL;
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

/* The start of the white space that ends at `at`; does not go back beyond `done`. */
static size_t space_before(const char *text, size_t at, size_t done) {
    while (at > done) {
        size_t last = at - 1;
        uint32_t cp;
        while (last > 0 && ((unsigned char)text[last] & 0xc0) == 0x80) last--;
        (void)utf8_next(text + last, &cp);
        if (!unicode_is_space(cp)) break;
        at = last;
    }
    return at;
}

/* The end of the white space that begins at `at`. */
static size_t space_after(const char *text, size_t bytes, size_t at, tok_scan *s) {
    size_t start = at;
    if (at >= s->blank_start && at < s->blank_end) return s->blank_end;
    while (at < bytes) {
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        if (!unicode_is_space(cp)) break;
        at += n;
    }
    s->blank_start = start;
    s->blank_end = at;
    return at;
}

static bool inside_word(const char *text, size_t bytes, size_t start, size_t end) {
    uint32_t cp;
    if (end < bytes && (utf8_next(text + end, &cp), unicode_is_word(cp))) return true;
    if (start == 0) return false;
    do start--;
    while (start > 0 && ((unsigned char)text[start] & 0xc0) == 0x80);
    (void)utf8_next(text + start, &cp);
    return unicode_is_word(cp);
}

tok_hit added_next(const tok_added *a, const tok_trie *trie, const char *text, size_t bytes,
                   const tok_guard *guard, tok_scan *s) {
    tok_hit none = {bytes, bytes, -1};
    if (trie->n == 0) return none;
    for (size_t at = s->from; at < bytes; at++) {
        unsigned c = (unsigned char)text[at];
        if (trie->first[c] == trie->first[c + 1]) continue;
        const struct tok_pattern *p = longest(a, trie, text, at, bytes - at, guard);
        if (!p) continue;
        const tok_added_token *t = &a->t[p->token];
        tok_hit hit = {at, at + p->bytes, t->id};
        s->from = hit.end;
        if (a->split_special &&
            t->special) { /* as in the reference, shorter tokens within this text are not matched either */
            at = hit.end - 1;
            continue;
        }
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
