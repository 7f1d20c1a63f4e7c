/* JSON as a grammar (RFC 8259).
 *
 * White space is bounded, because a model that may write it without end sometimes does. Numbers have at most
 * 18 digits before the point, 17 after it and 2 in the exponent, so that 64-bit integers and doubles hold
 * them. */
#include "grammar_build.h"

#include <math.h>
#include <string.h>

enum { MOST_INDENT = 20, INTEGER_DIGITS = 18, FRACTION_DIGITS = 17, EXPONENT_DIGITS = 2 };

/* ---- characters ---- */

bool gr_is_escaped(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

static const char escaped_chars[] = "\"\\\b\f\n\r\t", escape_letters[] = "\"\\bfnrt",
                  hex_digits[] = "0123456789abcdef";

/* The escape sequence of a character for which gr_is_escaped, ended by NUL. */
static void put_escape(uint32_t c, char out[7]) {
    const char *letter = memchr(escaped_chars, (int)c, sizeof escaped_chars - 1);
    memset(out, 0, 7);
    out[0] = '\\';
    if (letter) {
        out[1] = escape_letters[letter - escaped_chars];
        return;
    }
    memcpy(out, "\\u00", 4);
    out[4] = hex_digits[c >> 4], out[5] = hex_digits[c & 15];
}

static void add_byte(gr_bytes *set, unsigned char c) { set->bits[c / 64] |= UINT64_C(1) << (c % 64); }

gr_node gr_escapes(ln_grammar *g, const uint64_t chars[2]) {
    gr_bytes letters = {{0}}, low[2] = {{{0}}, {{0}}}; /* low: the last digits of \u000? and \u001? */
    for (unsigned c = 0; c <= '\\'; c++) {
        if (!(chars[c / 64] >> (c % 64) & 1)) continue;
        const char *letter = memchr(escaped_chars, (int)c, sizeof escaped_chars - 1);
        if (letter) add_byte(&letters, (unsigned char)escape_letters[letter - escaped_chars]);
        else add_byte(&low[c >> 4 & 1], (unsigned char)hex_digits[c & 15]);
    }
    const gr_node codes = gr_alt(g, gr_seq(g, gr_texts(g, "0"), gr_set(g, &low[0])),
                                 gr_seq(g, gr_texts(g, "1"), gr_set(g, &low[1])));
    return gr_seq(g, gr_texts(g, "\\"), gr_alt(g, gr_set(g, &letters), gr_seq(g, gr_texts(g, "u00"), codes)));
}

gr_node gr_spelt(ln_grammar *g, gr_spelling how, const gr_points *ranges, size_t n) {
    if (how == GR_RAW) return gr_characters(g, ranges, n);
    uint64_t escaped[2] = {0};
    gr_node all = GR_NOTHING;
    for (size_t i = 0; i < n; i++) {
        uint32_t from = ranges[i].lo;
        for (uint32_t c = ranges[i].lo; c <= ranges[i].hi && c <= '\\'; c++) {
            if (!gr_is_escaped(c)) continue;
            if (c > from) all = gr_alt(g, all, gr_characters(g, &(gr_points){from, c - 1}, 1));
            escaped[c / 64] |= UINT64_C(1) << (c % 64);
            from = c + 1;
        }
        if (from <= ranges[i].hi) all = gr_alt(g, all, gr_characters(g, &(gr_points){from, ranges[i].hi}, 1));
    }
    return gr_alt(g, all, gr_escapes(g, escaped));
}

static gr_node one_of(ln_grammar *g, const char *bytes) {
    gr_bytes s = {{0}};
    for (; *bytes; bytes++) add_byte(&s, (unsigned char)*bytes);
    return gr_set(g, &s);
}

/* One character of a string. An escaped surrogate is followed by its other half. */
static gr_node character(ln_grammar *g) {
    static const gr_points plain[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10ffff}};
    const gr_node hex = one_of(g, "0123456789abcdefABCDEF"), two = gr_repeat(g, hex, 2, 2);
    const gr_node d = one_of(g, "dD"), low = gr_all(g, d, one_of(g, "cdefCDEF"), two);
    const gr_node high = gr_all(g, d, one_of(g, "89abAB"), two, gr_texts(g, "\\u"), low);
    const gr_node other = gr_seq(g, one_of(g, "0123456789abcefABCEF"), gr_repeat(g, hex, 3, 3));
    const gr_node not_surrogate = gr_alt(g, other, gr_all(g, d, one_of(g, "01234567"), two));
    const gr_node escapes =
        gr_alt(g, one_of(g, "\"\\/bfnrt"), gr_seq(g, gr_texts(g, "u"), gr_alt(g, not_surrogate, high)));
    return gr_alt(g, gr_characters(g, plain, LN_COUNT(plain)), gr_seq(g, gr_texts(g, "\\"), escapes));
}

/* ---- values ---- */

static gr_node blank_of(ln_grammar *g) {
    const gr_node indent = gr_repeat(g, one_of(g, " \t"), 0, MOST_INDENT);
    return gr_optional(g, gr_alt(g, gr_texts(g, " "), gr_seq(g, gr_texts(g, "\n"), indent)));
}

gr_node gr_json_list(ln_grammar *g, const gr_json *j, char open, gr_node item, uint32_t min, uint32_t max,
                     char end) {
    const char opening[] = {open, '\0'}, ending[] = {end, '\0'};
    const gr_node more = gr_all(g, gr_texts(g, ","), j->blank, item);
    const uint32_t most = max == GR_UNBOUNDED ? max : max - LN_MIN(max, 1);
    gr_node items = gr_seq(g, item, gr_repeat(g, more, min - LN_MIN(min, 1), most));
    if (max == 0 || item == GR_NOTHING) items = min == 0 ? GR_EMPTY : GR_NOTHING;
    else if (min == 0) items = gr_optional(g, items);
    return gr_all(g, gr_texts(g, opening), j->blank, items, j->blank, gr_texts(g, ending));
}

/* The rules refer to each other through `value`. */
gr_json gr_json_rules(ln_grammar *g) {
    const gr_node digit = gr_byte_range(g, '0', '9'), natural = gr_byte_range(g, '1', '9');
    gr_json j = {.open = false};
    j.blank = gr_rule(g);
    gr_define(g, j.blank, blank_of(g));
    j.character = gr_rule(g);
    gr_define(g, j.character, character(g));
    if (j.character != GR_NOTHING) g->exprs[j.character].b = GR_ANY_PLAIN;
    j.string = gr_all(g, gr_texts(g, "\""), gr_repeat(g, j.character, 0, GR_UNBOUNDED), gr_texts(g, "\""));
    j.integer =
        gr_seq(g, gr_optional(g, gr_texts(g, "-")),
               gr_alt(g, gr_texts(g, "0"), gr_seq(g, natural, gr_repeat(g, digit, 0, INTEGER_DIGITS - 1))));
    const gr_node fraction = gr_seq(g, gr_texts(g, "."), gr_repeat(g, digit, 1, FRACTION_DIGITS));
    const gr_node exponent =
        gr_all(g, one_of(g, "eE"), gr_optional(g, one_of(g, "+-")), gr_repeat(g, digit, 1, EXPONENT_DIGITS));
    j.number = gr_all(g, j.integer, gr_optional(g, fraction), gr_optional(g, exponent));
    j.value = gr_rule(g);
    const gr_node member = gr_all(g, j.string, gr_texts(g, ":"), j.blank, j.value);
    const gr_node words =
        gr_alt(g, gr_texts(g, "true"), gr_alt(g, gr_texts(g, "false"), gr_texts(g, "null")));
    const gr_node scalars = gr_alt(g, gr_alt(g, j.string, j.number), words);
    gr_define(g, j.value,
              gr_alt(g, scalars,
                     gr_alt(g, gr_json_list(g, &j, '{', member, 0, GR_UNBOUNDED, '}'),
                            gr_json_list(g, &j, '[', j.value, 0, GR_UNBOUNDED, ']'))));
    return j;
}

/* ---- given values ---- */

/* Appends a string as a grammar of JSON spells it. */
static void put_string(ln_str *out, const char *text, size_t bytes) {
    char escape[7];
    ln_str_adds(out, "\"");
    for (size_t i = 0; i < bytes; i++) {
        put_escape((unsigned char)text[i], escape);
        if (gr_is_escaped((unsigned char)text[i])) ln_str_adds(out, escape);
        else ln_str_add(out, text + i, 1);
    }
    ln_str_adds(out, "\"");
}

gr_node gr_json_string(ln_grammar *g, const char *text, size_t bytes) {
    ln_str s = {0};
    put_string(&s, text, bytes);
    const gr_node node = gr_text(g, s.data ? s.data : "", s.len);
    g->no_memory = g->no_memory || s.failed;
    ln_str_free(&s);
    return node;
}

/* Appends a value that is neither an array nor an object. */
static void put_scalar(ln_str *out, const json_t *v) {
    if (json_is_string(v)) put_string(out, json_string_value(v), json_string_length(v));
    else if (json_is_real(v)) ln_str_double(out, json_real_value(v));
    else if (json_is_integer(v)) ln_str_addf(out, "%lld", (long long)json_integer_value(v));
    else ln_str_adds(out, json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false");
}

/* Whether a number is an integer, which may be written with zeros after a point where 2.0 is 2. */
static bool is_whole(const json_t *v) {
    return json_is_integer(v) || (json_is_real(v) && fabs(json_real_value(v)) < 1e15 &&
                                  json_real_value(v) == floor(json_real_value(v)));
}

static gr_node scalar(ln_grammar *g, const gr_json *j, const json_t *v) {
    ln_str s = {0};
    const bool zeros = j->open && is_whole(v);
    if (zeros && json_is_real(v)) ln_str_addf(&s, "%lld", (long long)json_real_value(v));
    else put_scalar(&s, v);
    gr_node node = gr_text(g, s.data ? s.data : "", s.len);
    if (zeros)
        node = gr_seq(g, node,
                      gr_optional(g, gr_seq(g, gr_texts(g, "."),
                                            gr_repeat(g, gr_byte_range(g, '0', '0'), 1, FRACTION_DIGITS))));
    g->no_memory = g->no_memory || s.failed;
    ln_str_free(&s);
    return node;
}

static bool is_scalar(const json_t *v) { return !json_is_array(v) && !json_is_object(v); }

gr_node gr_json_values(ln_grammar *g, const gr_json *j, const json_t *list) {
    const size_t n = json_array_size(list);
    gr_span *spans = ln_alloc((n + 1) * sizeof *spans);
    ln_str all = {0};
    gr_node out = GR_NOTHING;
    size_t k = 0, from = 0;
    if (!spans) return g->no_memory = true, GR_NOTHING;
    for (size_t i = 0; i < n; i++, from = all.len) {
        const json_t *v = json_array_get(list, i);
        if (is_scalar(v) && !(j->open && is_whole(v))) put_scalar(&all, v), spans[k++].bytes = all.len - from;
        else out = gr_alt(g, gr_json_value(g, j, v), out);
    }
    g->no_memory = g->no_memory || all.failed;
    if (!all.failed) {
        size_t at = 0;
        for (size_t i = 0; i < k; at += spans[i++].bytes) spans[i].text = all.data + at;
        out = gr_alt(g, gr_text_list(g, spans, k), out);
    }
    ln_str_free(&all);
    ln_free(spans);
    return out;
}

/* Arrays and objects, from their last item to the first; each level is a call, at most LN_JSON_MAX_DEPTH of
 * them. */
gr_node gr_json_value(ln_grammar *g, const gr_json *j, const json_t *value) {
    json_t *v = (json_t *)(uintptr_t)value, *item;
    const bool list = json_is_array(v);
    const size_t n = list ? json_array_size(v) : json_object_size(v);
    const char *key;
    size_t i = 0;
    if (is_scalar(v)) return scalar(g, j, v);
    gr_node *nodes = ln_alloc((n + 1) * sizeof *nodes);
    if (!nodes) return g->no_memory = true, GR_NOTHING;
    json_object_foreach(v, key, item) nodes[i++] =
        gr_all(g, gr_json_string(g, key, strlen(key)), gr_texts(g, ":"), j->blank, gr_json_value(g, j, item));
    for (; list && i < n; i++) nodes[i] = gr_json_value(g, j, json_array_get(v, i));
    gr_node all = gr_seq(g, n > 0 ? j->blank : GR_EMPTY, gr_texts(g, list ? "]" : "}"));
    for (; i-- > 0;) all = gr_all(g, i > 0 ? gr_seq(g, gr_texts(g, ","), j->blank) : GR_EMPTY, nodes[i], all);
    ln_free(nodes);
    return gr_all(g, gr_texts(g, list ? "[" : "{"), j->blank, all);
}
