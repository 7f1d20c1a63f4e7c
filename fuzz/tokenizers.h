/* The tokenizers that fuzz_encode and fuzz_decode select from, opened once. Together they contain every type
 * of step that a tokenizer.json may name. They have one of two small vocabularies: characters with merges and
 * byte tokens, or the byte-level alphabet. */
#ifndef LN_FUZZ_TOKENIZERS_H
#define LN_FUZZ_TOKENIZERS_H

#include "fuzz.h"

#include "tokenizer/tokenizer.h"

#define ADDED                                                                                                \
    "\"added_tokens\":[{\"id\":600,\"content\":\"<s>\",\"special\":true},{\"id\":601,\"content\":\"ab "      \
    "c\",\"lstrip\":true,\"rstrip\":true},"                                                                  \
    "{\"id\":602,\"content\":\"The\",\"single_word\":true},{\"id\":603,\"content\":\"abcd\",\"normalized\":" \
    "false}],"
#define SPLIT(regex, behavior, invert)                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"" behavior \
    "\",\"invert\":" invert "}"
#define BYTE_LEVEL(prefix, regex) \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" regex "}"
#define PRE(steps)  "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]},"
#define NORM(steps) "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" steps "]},"
#define DEC(steps)  "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" steps "]},"
#define TYPE(t)     "{\"type\":\"" t "\"}"
#define META(more)  "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"" more "}"
#define REPLACE(kind, p, to) \
    "{\"type\":\"Replace\",\"pattern\":{\"" kind "\":\"" p "\"},\"content\":\"" to "\"}"
#define STRIP(a, b) "{\"type\":\"Strip\",\"content\":\" \",\"start\":" a ",\"stop\":" b "}"
#define POST                                                                                        \
    "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":" \
    "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"                                        \
    "\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}}]},"

/* Each tokenizer: its sections, the flags of its model, and whether its vocabulary is byte-level. */
static const struct {
    const char *sections, *model;
    bool bytes;
} kinds[] = {
    {PRE(BYTE_LEVEL("false", "true")) "\"decoder\":{\"type\":\"ByteLevel\"},", "",
     true}, /* the first two decode to the encoded text (fuzz_encode) */
    {PRE(SPLIT("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|\\\\s+", "Isolated",
               "false") "," BYTE_LEVEL("false", "false")) "\"decoder\":{\"type\":\"ByteLevel\"},",
     "\"ignore_merges\":true,", true},
    {ADDED POST NORM(TYPE("NFC")) PRE(BYTE_LEVEL("true", "true")) "\"decoder\":{\"type\":\"ByteLevel\"},", "",
     true},
    {ADDED NORM(TYPE("Lowercase") "," TYPE("StripAccents")) PRE("{\"type\":\"Digits\",\"individual_digits\":"
                                                                "true},{\"type\":\"Punctuation\"}"
                                                                "," BYTE_LEVEL("false", "false")) "\"decoder"
                                                                                                  "\":{"
                                                                                                  "\"type\":"
                                                                                                  "\"ByteLeve"
                                                                                                  "l\"},",
     "", true},
    {PRE("{\"type\":\"FixedLength\",\"length\":2},{\"type\":\"Digits\"}," BYTE_LEVEL("false", "false"))
         DEC(TYPE("Fuse") "," TYPE("ByteLevel")),
     "", true},
    {PRE(SPLIT("\\\\w+", "Removed", "true") "," SPLIT("a", "MergedWithNext", "false") "," BYTE_LEVEL("false",
                                                                                                     "false"))
         DEC(TYPE("ByteLevel") "," STRIP("1", "1")),
     "", true},
    {ADDED NORM("{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}," REPLACE("String", " ", "\xe2\x96\x81"))
         DEC(REPLACE("String", "\xe2\x96\x81", " ") "," TYPE("ByteFallback") "," TYPE("Fuse") "," STRIP("1",
                                                                                                        "0")),
     "\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"?\",", false},
    {ADDED PRE(META(",\"prepend_scheme\":\"first\"")) "\"decoder\":" META("") ",",
     "\"unk_token\":\"?\",\"fuse_unk\":true,", false},
    {PRE(META(",\"prepend_scheme\":\"always\",\"split\":false"))
         DEC(META(",\"prepend_scheme\":\"never\"") "," TYPE("ByteFallback")),
     "\"byte_fallback\":true,", false},
    {PRE(TYPE("WhitespaceSplit")) "\"decoder\":{\"type\":\"WordPiece\"},",
     "\"continuing_subword_prefix\":\"##\",\"unk_token\":\"?\",", false},
    {PRE(TYPE("Whitespace")) "\"decoder\":{\"type\":\"BPEDecoder\"},",
     "\"end_of_word_suffix\":\"</w>\",\"unk_token\":\"?\",", false},
    {PRE(TYPE("BertPreTokenizer"))
         DEC(REPLACE("Regex", "a+", "b") "," TYPE("Fuse") "," REPLACE("String", "ab", "a"))
             NORM("{\"type\":\"BertNormalizer\"}"),
     "", false},
    {PRE("{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"a\"}")
         NORM(TYPE("NFKD") "," TYPE("NFKC") "," TYPE("NFD")),
     "\"unk_token\":\"?\",", false},
    {PRE(SPLIT("-", "MergedWithPrevious", "false") "," SPLIT("b", "Contiguous", "false"))
         NORM("{\"type\":\"Strip\"}," REPLACE("Regex", "x*", "-")),
     "\"unk_token\":\"?\",", false},
    {NORM(TYPE("ByteLevel") ","
                            "{\"type\":\"BertNormalizer\",\"strip_accents\":true,\"lowercase\":false,"
                            "\"handle_chinese_chars\":false}") DEC(TYPE("Fuse") "," TYPE("ByteFallback")),
     "\"byte_fallback\":true,", false},
    {NORM(REPLACE("String", "the", "") ","
                                       "{\"type\":\"Strip\",\"strip_left\":false}")
         DEC(TYPE("ByteFallback") "," META("") "," STRIP("2", "3")),
     "\"byte_fallback\":true,\"ignore_merges\":true,", false},
};

static ln_tok *toks[LN_COUNT(kinds)];

static void add_token(ln_str *s, const char *text, size_t bytes, int *id) {
    if (*id) ln_str_adds(s, ",");
    ln_str_json(s, text, bytes);
    ln_str_addf(s, ":%d", (*id)++);
}

/* Writes the byte-level alphabet in the order of its code points, then the results of the merges. */
static void add_bytes(ln_str *s) {
    static const char *const more[] = {"th",  "the",  "\xc4\xa0t",        "\xc4\xa0the",     "aa",
                                       "aaa", "aaaa", "\xc4\xa0\xc4\xa0", "\xc3\x83\xc2\xa9"};
    char text[4];
    int id = 0;
    ln_str_adds(s, "\"vocab\":{");
    for (uint32_t cp = 0x21; cp < 0x144; cp++)
        if ((cp < 0x7f || cp > 0xa0) && cp != 0xad) add_token(s, text, (size_t)ln_utf8_put(text, cp), &id);
    must(id == 256);
    for (size_t i = 0; i < LN_COUNT(more); i++) add_token(s, more[i], strlen(more[i]), &id);
    ln_str_adds(s, "},\"merges\":[\"t h\",\"th e\",\"\xc4\xa0 t\",\"\xc4\xa0 the\",\"a a\",\"aa a\",\"aa "
                   "aa\",\"\xc4\xa0 \xc4\xa0\",\"\xc3\x83 \xc2\xa9\"]");
}

/* Writes printable ASCII, with byte fallback the 256 byte tokens, and some longer tokens. */
static void add_chars(ln_str *s, const char *model) {
    bool affixes = strstr(model, "##") || strstr(model, "</w>");
    char text[8];
    int id = 0;
    ln_str_adds(s, "\"vocab\":{");
    for (char c = ' '; c < 0x7f; c++) add_token(s, &c, 1, &id);
    for (int b = 0; strstr(model, "byte_fallback") && b < 256; b++) {
        (void)snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        add_token(s, text, 6, &id);
    }
    static const char *const more[] = {"\xe2\x96\x81", "\xc3\xa9", "ab",    "abc",  "\xe2\x96\x81t", "##a",
                                       "##b",          "a</w>",    "b</w>", "a##b", "ab</w>",        "\n"};
    for (size_t i = 0; i < LN_COUNT(more); i++) add_token(s, more[i], strlen(more[i]), &id);
    ln_str_adds(s, strstr(model, "##") ? "},\"merges\":[\"a ##b\"]"
                   : affixes           ? "},\"merges\":[\"a b</w>\"]"
                                       : "},\"merges\":[\"a b\",\"ab c\",\"\xe2\x96\x81 t\"]");
}

static void open_tokenizers(void) {
    for (size_t i = 0; i < LN_COUNT(kinds); i++) {
        ln_str s = {0};
        ln_error err = {0};
        ln_str_addf(&s, "{%s\"model\":{\"type\":\"BPE\",%s", kinds[i].sections, kinds[i].model);
        if (kinds[i].bytes) add_bytes(&s);
        else add_chars(&s, kinds[i].model);
        ln_str_adds(&s, "}}");
        if (ln_tok_open_memory(&toks[i], "built in", s.data, s.len, &err) != LN_OK) {
            fprintf(stderr, "tokenizer %zu: %s\n", i, err.message);
            abort();
        }
        ln_str_free(&s);
    }
}

#endif
