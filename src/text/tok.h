/* Inside the tokenizer: the tables that tokenizer.json becomes, and the steps between a text and its ids.
 *
 * One file per step, in the order a text meets them: added.c (tokens matched as they stand), normalize.c, pretok.c, bpe.c, post.c;
 * decode.c goes back. tok_config.c reads the tokens that other files add, vocab.c holds texts and ids, regex*.c
 * the patterns, unicode.c what must be known of characters. Everything in ln_tok is immutable after opening; what an encoding changes lives in text_work, one per call. */
#ifndef LN_TEXT_TOK_H
#define LN_TEXT_TOK_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "../base/json.h"
#include "text.h"
#include <pcre2.h>
#include <string.h>

/* ---- limits, and the largest of what Llama 3, Qwen 2 and 3, Gemma 3 and models made from them have (which:
 * in brackets) ---- */
enum {
    TEXT_MAX_IDS = 1 << 22,        /* vocabulary entries and largest id + 1; 262,208 (Gemma 3) */
    TEXT_MAX_MERGES = 1 << 23,     /* 514,906 (Gemma 3) */
    TEXT_MAX_ADDED = 1 << 20,      /* 65,800 (Llasa, a speech model from Llama 3.2), 6,415 (Gemma 3) */
    TEXT_MAX_TOKEN = 1 << 16,      /* bytes of one token; 256 (128 blanks, Llama 3 and Qwen) */
    TEXT_MAX_STEPS = 256,          /* of one chain after Sequences are flattened; 4 */
    TEXT_MAX_PATTERN = 1 << 16,    /* bytes of one pattern; 115 (Llama 3.1) */
    TEXT_MAX_GROWTH = 2048,        /* times as long as its input, what a chain may make of a text; 3 */
    TEXT_MAX_SECTION = 16 << 20,   /* bytes of a section but the model and the added tokens; under 1 KB */
    TEXT_MAX_FILE = 256 << 20      /* bytes of tokenizer.json; 33 MB (Gemma 3), about 30 MB (Llasa) */
};

/* ---- strings (str.c) ---- */

/* Makes room for `more` bytes beyond s->len; what lies in the room is yours to fill before text_grown. */
ln_status text_room(ln_str *s, size_t more, ln_error *err);
static inline void text_grown(ln_str *s, size_t more) {
    s->len += more;
    s->data[s->len] = '\0';
}
ln_status text_add(ln_str *s, const char *data, size_t bytes, ln_error *err);
ln_status text_add_cp(ln_str *s, uint32_t cp, ln_error *err);
/* Appends `text` with each maximal invalid sequence replaced by U+FFFD, as Rust's from_utf8_lossy does. When `rest` is not NULL, a
 * beginning of a character at the very end is left alone and its length stored there. */
ln_status text_add_lossy(ln_str *s, const char *text, size_t bytes, size_t *rest, ln_error *err);
/* Whether `bytes` (more than 0, no whole character at their start) can be the beginning of a character that is cut off. */
bool text_is_beginning(const char *s, size_t bytes);
/* One character of text that is known to be valid; returns its length. */
static inline size_t text_cp(const char *s, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return *cp = u[0], 1;
    if (u[0] < 0xe0) return *cp = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu), 2;
    if (u[0] < 0xf0) return *cp = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu), 3;
    return *cp = (u[0] & 7u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu), 4;
}

/* ---- characters (unicode.c) ---- */
bool text_is_space(uint32_t cp);
bool text_is_word(uint32_t cp);
bool text_is_punct(uint32_t cp);
bool text_is_number(uint32_t cp);
bool text_is_mark(uint32_t cp);       /* general category M */
bool text_is_accent(uint32_t cp);     /* what the normalizer StripAccents removes */
bool text_is_nonspacing(uint32_t cp); /* what BertNormalizer removes as an accent */
bool text_is_control(uint32_t cp);    /* what BertNormalizer removes from a text that it cleans */
unsigned text_combining(uint32_t cp); /* canonical combining class */
/* The lower case of cp; *second is 0 but for U+0130, which becomes two characters. */
uint32_t text_lower(uint32_t cp, uint32_t *second);
/* Letters and other characters that the reference knows and Unicode 14 does not: [first, last] of general category `cat`. */
typedef struct text_newer {
    uint32_t first, last;
    char cat[3];
} text_newer;
extern const text_newer text_newer_table[];
extern const size_t text_n_newer;
typedef enum text_form { TEXT_NFC = 0, TEXT_NFD, TEXT_NFKC, TEXT_NFKD } text_form;
/* True when a look at the characters shows that `text` has that form already. */
bool text_is_normal(text_form form, const char *text, size_t bytes);
/* True for a character that no canonical composition or ordering ever touches (the test walks all of them). */
bool text_nfc_inert(uint32_t cp);
ln_status text_normal(text_form form, const char *text, size_t bytes, ln_str *out, ln_error *err);

/* The byte-level alphabet: every byte as a printable character. */
extern const uint16_t text_byte_cp[256];
int text_cp_byte(uint32_t cp); /* -1: not of the alphabet */

/* ---- texts and ids (vocab.c) ---- */
typedef struct text_span {
    uint32_t at, bytes; /* in the heap; at = UINT32_MAX: a hole */
} text_span;
typedef struct text_vocab {
    char *heap;
    size_t n_heap, heap_cap;
    text_span *span; /* by id */
    size_t n_span, span_cap;
    struct text_slot {
        uint32_t tag;
        int32_t id; /* -1: free */
    } *slots;
    unsigned slot_bits;
    size_t n_used, longest;
} text_vocab;
static inline uint64_t text_load(const char *s, size_t n) { /* up to eight bytes */
    uint64_t w = 0;
    uint32_t lo, hi;
    if (n >= 8) return memcpy(&w, s, 8), w;
    if (n >= 4) return memcpy(&lo, s, 4), memcpy(&hi, s + n - 4, 4), (uint64_t)hi << 32 | lo;
    return n == 0 ? 0 : (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[n / 2] << 8 | (unsigned char)s[n - 1];
}
static inline uint64_t text_hash(const char *s, size_t n) {
    uint64_t h = n * 0x9e3779b97f4a7c55u;
    for (; n > 8; s += 8, n -= 8) {
        h = (h ^ text_load(s, 8)) * 0x9fb21c651e98df25u;
        h ^= h >> 32;
    }
    h = (h ^ text_load(s, n)) * 0x9fb21c651e98df25u;
    return h ^ h >> 29;
}
/* memcmp for tokens, which are short. */
static inline bool text_same(const char *a, const char *b, size_t n) {
    for (; n > 8; a += 8, b += 8, n -= 8)
        if (text_load(a, 8) != text_load(b, 8)) return false;
    return text_load(a, n) == text_load(b, n);
}
ln_status vocab_open(text_vocab *v, size_t expected, ln_error *err);
void vocab_close(text_vocab *v);
/* Adds a text with its hash; *clash is the id that has it already, or -1. An id with another text is LN_EINVALID. */
ln_status vocab_add(text_vocab *v, const char *text, size_t bytes, uint64_t hash, int32_t id, int32_t *clash, ln_error *err);
/* Gives `id` a text without making it findable. */
ln_status vocab_name(text_vocab *v, const char *text, size_t bytes, int32_t id, ln_error *err);
int32_t vocab_find(const text_vocab *v, const char *text, size_t bytes);
int32_t vocab_find_hash(const text_vocab *v, uint64_t hash, const char *text, size_t bytes);
/* Fetches into the cache what a lookup of `hash` will touch: step 0 the slot, 1 the span, 2 the text. */
void vocab_fetch(const text_vocab *v, uint64_t hash, int step);
static inline bool vocab_has(const text_vocab *v, int64_t id) {
    return id >= 0 && (uint64_t)id < v->n_span && v->span[id].at != UINT32_MAX;
}
static inline const char *vocab_text(const text_vocab *v, int32_t id, size_t *bytes) {
    *bytes = v->span[id].bytes;
    return v->heap + v->span[id].at;
}

/* ---- the model (bpe_load.c, bpe.c) ---- */
typedef struct text_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
    int32_t id;
} text_merge;
typedef struct text_bpe {
    text_vocab vocab;
    size_t n_ids;          /* one more than the largest of the vocabulary before added tokens joined it */
    text_merge *merges;
    uint32_t n_slots;
    size_t n_merges;
    bool byte_fallback, fuse_unk, ignore_merges;
    bool raw;              /* pieces come as raw bytes instead of their byte-level characters */
    bool has_unk;
    int32_t unk_id;        /* -1: the file names one that the vocabulary lacks */
    char *unk, *prefix, *suffix;
    size_t n_unk, n_prefix, n_suffix;
    int32_t byte_id[256];  /* <0xNN> */
    int32_t level_id[256]; /* the byte-level character of a byte */
    int32_t low_id[0x800]; /* characters below U+0800 */
    uint64_t *cross;       /* bits: some merge joins a text that ends in one character with one that begins with the other */
} text_bpe;
/* Reads the model section; the opening brace was just read. */
ln_status bpe_read(text_bpe *b, ln_json *j, ln_error *err);
/* After everything is read: byte-level alphabet (required when `byte_level`), tables by character. */
ln_status bpe_finish(text_bpe *b, const char *name, bool byte_level, ln_error *err);
void bpe_close(text_bpe *b);
static inline uint32_t bpe_merge_place(const text_bpe *b, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9fb21c651e98df25u;
    h = (h ^ h >> 35) * 0x9fb21c651e98df25u;
    return (uint32_t)((h >> 32) * b->n_slots >> 32);
}
/* The slot of a pair: its merge, or the free one where it belongs. */
static inline text_merge *bpe_merge_slot(const text_bpe *b, uint32_t left, uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right;
    for (uint32_t i = bpe_merge_place(b, left, right);;) {
        text_merge *m = &b->merges[i];
        if (m->pair == pair || m->pair == UINT64_MAX) return m;
        if (++i == b->n_slots) i = 0;
    }
}
static inline const text_merge *bpe_merge(const text_bpe *b, uint32_t left, uint32_t right) {
    const text_merge *m = bpe_merge_slot(b, left, right);
    return m->pair == UINT64_MAX ? NULL : m;
}
enum { TEXT_CROSS_BITS = 21 };
static inline uint32_t bpe_cross_bit(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9fb21c651e98df25u;
    return (uint32_t)(h >> (64 - TEXT_CROSS_BITS));
}
/* A priority queue of (rank, place), lowest first (queue.c). Places are below 2^32 - 1, ranks below 2^23. */
typedef struct text_queue {
    struct text_list {
        uint32_t rank;
        int32_t head, tail; /* entries, in ascending order of places */
        bool listed;        /* its rank is in `ranks` */
    } *lists;
    struct text_entry {
        uint32_t place;
        int32_t next;
    } *entries;
    int32_t *table;         /* rank -> list */
    uint64_t *ranks, *heap;
    size_t n_lists, cap_lists, n_entries, cap_entries, n_table, n_ranks, cap_ranks, n_heap, cap_heap;
    int32_t spare, recent;
} text_queue;
ln_status queue_begin(text_queue *q, ln_error *err);
ln_status queue_add(text_queue *q, uint32_t rank, uint32_t place, ln_error *err);
bool queue_take(text_queue *q, uint32_t *rank, uint32_t *place);
void queue_close(text_queue *q);

typedef struct text_bpe_work {
    uint32_t *sym, *prev, *next; /* of one segment */
    size_t n, cap_sym, cap_prev, cap_next;
    text_queue queue;
    ln_str key;
    struct text_cached *cache;   /* short segments already merged */
    size_t n_missed;
    struct text_char_id {
        uint32_t cp1; /* character + 1; 0: empty */
        int32_t id;
    } chars[512];
} text_bpe_work;
void bpe_work_close(text_bpe_work *w);
/* The ids of one piece, appended to out. */
ln_status bpe_encode(const text_bpe *b, text_bpe_work *w, const char *piece, size_t bytes, ln_ids *out, ln_error *err);

/* ---- patterns (regex.c, regex_rewrite.c) ---- */
typedef struct text_regex {
    pcre2_code *code; /* NULL: a literal */
    char *literal;
    size_t n_literal;
    size_t least; /* bytes that a match takes at least, of those that a replacement takes away */
} text_regex;
typedef struct text_regex_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint64_t spent;        /* steps beyond the few that each place of a text has */
} text_regex_work;
/* Oniguruma's syntax as the reference compiles it, in PCRE2's. */
ln_status regex_rewrite(ln_str *out, const char *what, const char *pattern, size_t bytes, ln_error *err);
ln_status regex_open(text_regex *re, const char *what, const char *pattern, size_t bytes, bool literal, ln_error *err);
/* Times as long as its input, a text at most when every match is replaced by n_text bytes. */
double regex_growth(const text_regex *re, size_t n_text);
void regex_close(text_regex *re);
void regex_work_close(text_regex_work *w);
/* Walks the matches of a text from left to right; begin with all zero. */
typedef struct text_matches {
    size_t from, last_end, start, end;
    bool any;
} text_matches;
ln_status regex_next(const text_regex *re, text_regex_work *w, const char *text, size_t bytes, text_matches *m, bool *found, ln_error *err);

/* ---- sections as jansson has them (section.c) ---- */
const char *section_type(const json_t *o);
ln_status section_bool(const json_t *o, const char *what, const char *key, bool missing, bool *out, ln_error *err);
ln_status section_size(const json_t *o, const char *what, const char *key, size_t missing, size_t *out, ln_error *err);
/* A required string; borrowed from o. */
ln_status section_str(const json_t *o, const char *what, const char *key, const char **text, size_t *bytes, ln_error *err);
/* One character. */
ln_status section_char(const json_t *o, const char *what, const char *key, uint32_t *cp, ln_error *err);
/* {"String": ..} or {"Regex": ..}. */
ln_status section_pattern(const json_t *o, const char *what, text_regex *re, bool may_be_empty, ln_error *err);
/* A chain whose steps together make a text longer than TEXT_MAX_GROWTH times its input is refused, when it is read: then no text, however short,
 * needs memory out of proportion. Takes one more step into *all (0: none yet). */
ln_status section_growth(double *all, double times, const char *what, ln_error *err);
/* Calls fn for each step of a section: the section itself, or the items of a (nested) Sequence under `list`, in order, without
 * recursion and at most TEXT_MAX_STEPS of them. */
typedef ln_status section_step_fn(void *user, const json_t *step, const char *type, ln_error *err);
ln_status section_steps(const json_t *section, const char *what, const char *list, section_step_fn *fn, void *user, ln_error *err);

/* ---- normalizers (normalize.c) ---- */
typedef struct text_norm_step {
    enum { NORM_FORM = 0, NORM_LOWER, NORM_ACCENTS, NORM_REPLACE, NORM_PREPEND, NORM_STRIP, NORM_BERT, NORM_BYTES } kind;
    text_form form;
    text_regex re;
    char *text; /* Replace: content; Prepend: what */
    size_t n_text;
    bool left, right;                       /* Strip */
    bool clean, chinese, accents, lower;    /* Bert */
} text_norm_step;
typedef struct text_norm {
    text_norm_step *steps;
    size_t n, cap;
    double growth;
} text_norm;
ln_status norm_read(text_norm *n, const json_t *section, ln_error *err);
void norm_close(text_norm *n);
/* Normalises *text (valid UTF-8) into one of the two buffers, or leaves it where it is. *at_start tells whether the text begins where
 * the input began; cleared when its first characters are removed. */
ln_status norm_run(const text_norm *n, text_regex_work *w, ln_str buf[2], const char **text, size_t *bytes, bool *at_start, ln_error *err);

/* ---- pre-tokenizers (pretok.c, pretok_read.c) ---- */
typedef enum text_behavior { SPLIT_REMOVED = 0, SPLIT_ISOLATED, SPLIT_PREVIOUS, SPLIT_NEXT, SPLIT_CONTIGUOUS } text_behavior;
typedef struct text_pre_step {
    enum { PRE_SPLIT = 0, PRE_BYTES, PRE_METASPACE, PRE_DIGITS, PRE_PUNCT, PRE_WORDS, PRE_SPACE, PRE_CHAR, PRE_LENGTH } kind;
    text_regex re;
    text_behavior behavior;
    bool invert;
    bool prefix_space;                          /* ByteLevel */
    bool use_regex;
    enum { PREPEND_ALWAYS = 0, PREPEND_FIRST, PREPEND_NEVER } prepend; /* Metaspace */
    bool split;
    char rep[4];
    size_t n_rep;
    uint32_t cp;                                /* CharDelimiterSplit */
    size_t length;                              /* FixedLength */
} text_pre_step;
typedef struct text_pre {
    text_pre_step *steps;
    size_t n, cap;
    bool has_bytes;
} text_pre;
typedef struct text_piece {
    size_t at, bytes;
} text_piece;
typedef struct text_pieces {
    text_piece *p;
    size_t n, cap;
} text_pieces;
typedef struct text_pre_work {
    text_pieces pieces, spare;
    ln_str buf[2];
    const char *text; /* what the pieces lie in */
    bool at_start;    /* the first byte of it is the first of the input */
} text_pre_work;
ln_status pre_read(text_pre *p, const json_t *section, ln_error *err);
void pre_close(text_pre *p);
/* Splits `text`; the result is w->text and w->pieces. A ByteLevel at the end leaves the bytes raw when `raw`. */
ln_status pre_run(const text_pre *p, text_pre_work *w, text_regex_work *rw, const char *text, size_t bytes, bool at_start, bool raw, ln_error *err);
void pre_work_close(text_pre_work *w);

/* ---- added tokens (added.c) ---- */
typedef struct text_added_token {
    char *content;
    size_t bytes;
    int32_t id, file_id; /* the number it has, and the one that a file gives it; -1: none */
    bool special, lstrip, rstrip, single_word, normalized;
    bool was_normalized; /* before a later list said otherwise: decoding still shows the normalized content */
    char *shown; /* what decoding gives when normalized: the normalized content; NULL: what the vocabulary has
                    for the id */
    size_t n_shown;
} text_added_token;
/* Patterns in byte order; a search narrows a range of them byte by byte. */
typedef struct text_trie {
    struct text_pattern {
        char *text;
        size_t bytes;
        uint32_t token; /* index of the added token */
    } *p;
    size_t n;
    uint32_t first[257]; /* patterns that begin with byte b: [first[b], first[b + 1]) */
} text_trie;
typedef struct text_added {
    text_added_token *t;
    size_t n, cap;
    text_added_token *waiting; /* read, but without a number yet */
    size_t n_waiting, cap_waiting;
    text_vocab seen;           /* contents of t, by place */
    bool split_special;        /* special tokens are not matched in texts */
    text_trie plain, normal; /* matched before and after normalization */
    struct text_shown {
        int32_t id;
        uint32_t token;
    } *shown; /* tokens with another text when decoded, by id */
    size_t n_shown;
} text_added;
ln_status added_read(text_added *a, ln_json *j, ln_error *err);
/* Puts a token among those that wait for a number; its content is then a's, unless this fails. */
ln_status added_wait(text_added *a, const text_added_token *t, ln_error *err);
/* Numbers those that wait, as the reference numbers one list of new tokens. `where` names the list in
 * messages; a `strict` list must not contradict itself or the vocabulary. */
ln_status added_number(text_added *a, const char *where, text_vocab *v, bool strict, ln_error *err);
/* Builds both tries. */
ln_status added_finish(text_added *a, const text_norm *norm, ln_error *err);
/* Marks by id what is special and what decoding skips. */
ln_status added_flags(const text_added *a, uint8_t *flags, ln_error *err);
void added_close(text_added *a);
typedef struct text_hit {
    size_t start, end; /* after stripping */
    int32_t id;        /* -1: none left */
} text_hit;
typedef struct text_scan { /* begin with all zero */
    size_t from;                 /* where the search goes on */
    size_t done;                 /* the end of what was given out, kept by the caller */
    size_t blank_start, blank_end; /* blanks seen last, so that no run of them is walked twice */
} text_scan;
/* Which patterns are refused where: see ln_guard. */
typedef struct text_guard {
    const uint8_t *origin;
    bool all_data;
    const uint8_t *control; /* by added token */
} text_guard;
text_hit added_next(const text_added *a, const text_trie *trie, const char *text, size_t bytes, const text_guard *guard, text_scan *s);

/* ---- tokens that other files name (tok_config.c) ---- */
typedef struct text_config {
    json_t *config, *map, *added; /* tokenizer_config.json, special_tokens_map.json, added_tokens.json; NULL:
                                     absent or not read */
    const json_t *decoder;        /* config's added_tokens_decoder, or NULL */
} text_config;
ln_status config_open(text_config *c, const char *dir, ln_error *err);
void config_close(text_config *c);
/* Puts the tokens that they add among those that wait. `padding` is tokenizer.json's, or NULL. */
ln_status config_tokens(const text_config *c, const json_t *padding, text_added *a, ln_error *err);

/* ---- post-processors (post.c) ---- */
typedef struct text_post {
    int32_t *items; /* templates one after the other, each ended by POST_END; POST_TEXT stands for the text so far */
    size_t n, cap;
} text_post;
enum { POST_TEXT = -1, POST_END = -2 };
ln_status post_read(text_post *p, const char *name, const json_t *section, const text_vocab *v, ln_error *err);
void post_close(text_post *p);
/* Wraps what out holds from `from` on. */
ln_status post_run(const text_post *p, ln_ids *out, size_t from, bool add_special, ln_error *err);

/* ---- decoders (decode.c, decode_steps.c) ---- */
typedef struct text_dec_step {
    enum { DEC_JOIN = 0, DEC_BYTES, DEC_METASPACE, DEC_REPLACE, DEC_FALLBACK, DEC_FUSE, DEC_STRIP, DEC_BPE, DEC_WORDPIECE } kind;
    text_regex re;
    char *text; /* Replace: content; BPEDecoder: suffix; WordPiece: prefix */
    size_t n_text;
    uint32_t cp; /* Strip, Metaspace */
    size_t start, stop;
    bool drop_first, cleanup;
    bool fused;  /* its input is one token that comes in fragments */
} text_dec_step;
typedef struct text_dec {
    text_dec_step *steps;
    size_t n, cap;
    double growth;
} text_dec;
ln_status dec_read(text_dec *d, const json_t *section, ln_error *err);
void dec_close(text_dec *d);
/* Fragments of tokens between two steps: fragment i is text[end[i - 1], end[i]), and `last` marks a token's end. */
typedef struct text_frags {
    ln_str text;
    struct text_frag {
        size_t end;
        bool last;
    } *f;
    size_t n, cap;
} text_frags;
typedef struct text_dec_state {
    ln_str held;      /* bytes that wait for what follows */
    size_t n_tokens;  /* ended so far */
    size_t count;     /* ByteFallback: valid bytes of held; Strip: characters dropped at the start */
    size_t n_tail;    /* Strip: characters held at the end */
    bool decided;     /* ByteFallback: the run is no UTF-8; Strip: the start is over */
    bool open;        /* something came in */
    bool whole;       /* BPEDecoder: held is a whole token */
} text_dec_state;
typedef struct text_decoding {
    text_dec_state *states;
    text_frags frags[2];
    text_regex_work regex;
} text_decoding;
ln_status dec_open(const text_dec *d, text_decoding **out, ln_error *err);
void dec_free(const text_dec *d, text_decoding *g);
/* Pushes one token (or the end, when text is NULL) through all steps and appends what comes out. */
ln_status dec_push(const text_dec *d, text_decoding *g, const char *text, size_t bytes, ln_str *out, ln_error *err);
/* One step (decode_steps.c): consumes `in`, appends to `out`; `final`: nothing follows. */
ln_status dec_step(const text_dec_step *d, text_dec_state *s, text_regex_work *w, const text_frags *in, text_frags *out, bool final,
                   ln_error *err);
/* Ends a fragment: what was added to f->text since the one before. */
ln_status frags_end(text_frags *f, bool last, ln_error *err);

/* ---- the tokenizer ---- */
enum { TEXT_FLAG_SPECIAL = 1, TEXT_FLAG_SKIP = 2, TEXT_FLAG_SHOWN = 4 };
struct ln_tok {
    text_bpe bpe;
    text_added added;
    text_norm norm;
    text_pre pre;
    text_post post;
    text_dec dec;
    uint8_t *flags; /* by id */
    size_t n_flags;
};
/* What decoding starts from: the text of an id, NULL when there is none; *skip: special, as the reference judges it. */
const char *tok_shown(const ln_tok *tok, int32_t id, size_t *bytes, bool *skip);

#endif
