/* Internals of the tokenizer: the tables built from tokenizer.json, and the steps that convert a text to ids.
 *
 * Each step has a file. The encoder (tokenizer_encode.c) runs them in this order: added_tokens.c (literal
 * matching of added tokens), normalizer.c, pretokenizer.c, bpe.c, post_processor.c. token_decoder.c converts
 * ids to text. tokenizer_config.c reads the tokens that other files of the directory add, string_table.c maps
 * texts to ids, regex*.c compile and match patterns, unicode.c has the properties of characters.
 *
 * ln_tok and all tables in it are immutable after opening. The scratch memory of an encoding (tok_bpe_work,
 * tok_pre_work, tok_regex_work) belongs to one call. The structs below are opened by zero-initialisation and
 * freed by their _close function, also after an error. */
#ifndef LN_TOKENIZER_INTERNAL_H
#define LN_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "../base/json.h"
#include "../unicode/string_table.h"
#include "../unicode/unicode.h"
#include "tokenizer.h"
#include <pcre2.h>
#include <string.h>

/* ---- limits; after each, the largest value in the tokenizers of Llama 3, Qwen 2 and 3, Gemma 3 and models
 * derived from them, with the model in parentheses ---- */
enum {
    TOK_MAX_IDS = 1 << 22,      /* vocabulary entries and largest id + 1; 262,208 (Gemma 3) */
    TOK_MAX_MERGES = 1 << 23,   /* 514,906 (Gemma 3) */
    TOK_MAX_ADDED = 1 << 20,    /* 65,800 (Llasa, a speech model from Llama 3.2), 6,415 (Gemma 3) */
    TOK_MAX_TOKEN = 1 << 16,    /* bytes of one token; 256 (128 spaces, Llama 3 and Qwen) */
    TOK_MAX_STEPS = 256,        /* steps of one chain after Sequences are flattened; 4 */
    TOK_MAX_PATTERN = 1 << 16,  /* bytes of one pattern; 115 (Llama 3.1) */
    TOK_MAX_GROWTH = 2048,      /* output bytes of a chain per byte of its input; 3 */
    TOK_MAX_SECTION = 16 << 20, /* bytes of a section other than model and added_tokens; under 1 KB */
    TOK_MAX_FILE = 256 << 20    /* bytes of tokenizer.json; 33 MB (Gemma 3), about 30 MB (Llasa) */
};

/* ---- the model (bpe_load.c, bpe.c) ---- */
typedef struct tok_merge {
    uint64_t pair; /* ids: left << 32 | right; UINT64_MAX: a free slot */
    uint32_t rank;
    int32_t id;
} tok_merge;
typedef struct tok_bpe {
    string_table vocab;
    size_t n_ids; /* one more than the largest id of the vocabulary, without added tokens */
    tok_merge *merges;
    uint32_t n_slots;
    size_t n_merges;
    bool byte_fallback, fuse_unk, ignore_merges;
    bool raw; /* pieces are raw bytes instead of characters of the byte-level alphabet */
    bool has_unk;
    int32_t unk_id; /* -1: none, or the file names one that the vocabulary lacks (has_unk) */
    char *unk, *prefix, *suffix;
    size_t n_unk, n_prefix, n_suffix;
    int32_t byte_id[256];  /* id of the byte-fallback token <0xNN>; -1: none (also in the next two) */
    int32_t level_id[256]; /* id of the byte-level character of a byte */
    int32_t low_id[0x800]; /* id of a character below U+0800 */
    uint64_t *cross;       /* bitmap, indexed by bpe_cross_bit: set when some merge joins a text that ends in
                              the left character with one that begins with the right character */
} tok_bpe;
/* Reads the model section. The caller has just read its opening brace. LN_EINVALID, LN_EUNSUPPORTED. */
ln_status bpe_read(tok_bpe *b, ln_json *j, ln_error *err);
/* Fills the tables by byte and by character; called once after the whole file has been read. `byte_level`:
 * the pre-tokenizer maps bytes to the byte-level alphabet; LN_EINVALID when the vocabulary then lacks bytes
 * that ordinary text needs. `name` is for messages. */
ln_status bpe_finish(tok_bpe *b, const char *name, bool byte_level, ln_error *err);
void bpe_close(tok_bpe *b);
/* Hash of a pair of ids, scaled to [0, n_slots). */
static inline uint32_t bpe_merge_place(const tok_bpe *b, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9fb21c651e98df25u;
    h = (h ^ h >> 35) * 0x9fb21c651e98df25u;
    return (uint32_t)((h >> 32) * b->n_slots >> 32);
}
/* The slot of a pair (linear probing): the one that holds its merge, or the free one for it. */
static inline tok_merge *bpe_merge_slot(const tok_bpe *b, uint32_t left, uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right;
    for (uint32_t i = bpe_merge_place(b, left, right);;) {
        tok_merge *m = &b->merges[i];
        if (m->pair == pair || m->pair == UINT64_MAX) return m;
        if (++i == b->n_slots) i = 0;
    }
}
/* The merge of two ids, or NULL. */
static inline const tok_merge *bpe_merge(const tok_bpe *b, uint32_t left, uint32_t right) {
    const tok_merge *m = bpe_merge_slot(b, left, right);
    return m->pair == UINT64_MAX ? NULL : m;
}
enum { TOK_CROSS_BITS = 21 };
/* Index in tok_bpe.cross of a pair of characters. Pairs may collide, so a set bit only means "perhaps". */
static inline uint32_t bpe_cross_bit(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9fb21c651e98df25u;
    return (uint32_t)(h >> (64 - TOK_CROSS_BITS));
}
/* A priority queue of (rank, place), lowest first (merge_queue.c). A place is the index of a symbol in the
 * segment. Places are below 2^32 - 1, ranks below 2^23. */
typedef struct tok_queue {
    struct tok_list {
        uint32_t rank;
        int32_t head, tail; /* linked entries in ascending order of place */
        bool listed;        /* `ranks` holds its rank */
    } * lists;
    struct tok_entry {
        uint32_t place;
        int32_t next;
    } * entries;
    int32_t *table;         /* hash table: rank to index of its list */
    uint64_t *ranks, *heap; /* 4-ary heaps: rank << 32 | list, and rank << 32 | place */
    size_t n_lists, cap_lists, n_entries, cap_entries, n_table, n_ranks, cap_ranks, n_heap, cap_heap;
    int32_t spare, recent; /* head of the list of free entries; the list found last; -1: none */
} tok_queue;
/* Empties the queue; keeps its memory. */
ln_status queue_begin(tok_queue *q, ln_error *err);
ln_status queue_add(tok_queue *q, uint32_t rank, uint32_t place, ln_error *err);
/* Removes the lowest entry; false when the queue is empty. */
bool queue_take(tok_queue *q, uint32_t *rank, uint32_t *place);
void queue_close(tok_queue *q);

typedef struct tok_bpe_work {
    uint32_t *sym, *prev, *next; /* symbols (ids) of one segment, and the linked list over them */
    size_t n, cap_sym, cap_prev, cap_next;
    tok_queue queue;
    ln_str key;
    struct tok_cached *cache; /* direct-mapped cache of short segments and their ids; NULL: not yet used */
    size_t n_missed;          /* lookups before the cache is allocated */
    struct tok_char_id {
        uint32_t cp1; /* code point + 1; 0: empty */
        int32_t id;
    } chars[512]; /* direct-mapped cache of the ids of characters from U+0800 */
} tok_bpe_work;
void bpe_work_close(tok_bpe_work *w);
/* Appends the ids of one piece (`bytes` bytes of valid UTF-8, or raw bytes when b->raw) to out. LN_EINVALID:
 * the piece needs an unknown token that the vocabulary lacks, or is too long. */
ln_status bpe_encode(const tok_bpe *b, tok_bpe_work *w, const char *piece, size_t bytes, ln_ids *out,
                     ln_error *err);

/* ---- patterns (regex.c, regex_rewrite.c) ---- */
typedef struct tok_regex {
    pcre2_code *code; /* NULL: the pattern is a literal */
    char *literal;
    size_t n_literal;
    size_t least; /* lower bound of the bytes that replacing one match removes; 0: unknown */
} tok_regex;
typedef struct tok_regex_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint64_t spent; /* match steps charged to the budget of the text (regex.c) */
} tok_regex_work;
/* Rewrites a pattern from Oniguruma's Ruby syntax, which the reference uses, to PCRE2's and appends it to
 * out. `what` names the component in messages. LN_EUNSUPPORTED: a construct without an equivalent.
 * LN_EINVALID: a syntax error. */
ln_status regex_rewrite(ln_str *out, const char *what, const char *pattern, size_t bytes, ln_error *err);
/* regex_cluster.c: appends the pattern of an extended grapheme cluster. */
void regex_cluster(ln_str *out);
/* Compiles a pattern, or copies it when it is a literal. Errors as for regex_rewrite; the caller closes re in
 * any case. */
ln_status regex_open(tok_regex *re, const char *what, const char *pattern, size_t bytes, bool literal,
                     ln_error *err);
/* Upper bound of output bytes per input byte when every match is replaced by n_text bytes. */
double regex_growth(const tok_regex *re, size_t n_text);
void regex_close(tok_regex *re);
void regex_work_close(tok_regex_work *w);
/* An iterator over the matches of a text, from left to right; initialise it to all zero. The current match is
 * [start, end), in bytes. */
typedef struct tok_matches {
    size_t from, last_end, start, end;
    bool any;
} tok_matches;
/* Finds the next match; *found is false after the last one. LN_EINVALID: the pattern exceeds its match limit
 * on this text. */
ln_status regex_next(const tok_regex *re, tok_regex_work *w, const char *text, size_t bytes, tok_matches *m,
                     bool *found, ln_error *err);

/* ---- fields of sections parsed by jansson (tokenizer_json.c) ----
 * `what` names the section in messages. A field of the wrong type is LN_EINVALID. Texts are borrowed from the
 * JSON value. */

/* The string "type" of an object, or "". */
const char *section_type(const json_t *o);
/* Store `missing` when the field is absent or null. */
ln_status section_bool(const json_t *o, const char *what, const char *key, bool missing, bool *out,
                       ln_error *err);
ln_status section_size(const json_t *o, const char *what, const char *key, size_t missing, size_t *out,
                       ln_error *err);
/* A required string. */
ln_status section_str(const json_t *o, const char *what, const char *key, const char **text, size_t *bytes,
                      ln_error *err);
/* A required string of one character. */
ln_status section_char(const json_t *o, const char *what, const char *key, uint32_t *cp, ln_error *err);
/* The required field "pattern": {"String": ..} is a literal, {"Regex": ..} a regular expression. An empty one
 * matches the empty text before each character and at the end, as in `tokenizers`. */
ln_status section_pattern(const json_t *o, const char *what, tok_regex *re, ln_error *err);
/* Multiplies *all (0: no step yet) by the growth of one more step: an upper bound of its output bytes per
 * input byte. LN_EINVALID when the product exceeds TOK_MAX_GROWTH. The check when the file is read bounds the
 * memory that any text needs by a multiple of its length. */
ln_status section_growth(double *all, double times, const char *what, ln_error *err);
/* Calls fn for each step of a section, in order: the section itself, or the items of a (nested) Sequence,
 * which has them in the array `list`. LN_EINVALID for more than TOK_MAX_STEPS steps. No recursion. */
typedef ln_status section_step_fn(void *user, const json_t *step, const char *type, ln_error *err);
ln_status section_steps(const json_t *section, const char *what, const char *list, section_step_fn *fn,
                        void *user, ln_error *err);

/* ---- normalizers (normalizer.c) ---- */
typedef struct tok_norm_step {
    enum {
        NORM_FORM = 0,
        NORM_LOWER,
        NORM_ACCENTS,
        NORM_REPLACE,
        NORM_PREPEND,
        NORM_STRIP,
        NORM_BERT,
        NORM_BYTES
    } kind;
    unicode_form form;
    tok_regex re;
    char *text; /* Replace: content; Prepend: prepend */
    size_t n_text;
    bool left, right;                    /* Strip */
    bool clean, chinese, accents, lower; /* Bert */
} tok_norm_step;
typedef struct tok_norm {
    tok_norm_step *steps;
    size_t n, cap;
    double growth; /* section_growth */
} tok_norm;
/* The chain is empty when `section` is NULL or null; likewise for pre_read and post_read. LN_EINVALID,
 * LN_EUNSUPPORTED. */
ln_status norm_read(tok_norm *n, const json_t *section, ln_error *err);
/* Inserts a step Lowercase before the others, unless there is one. */
ln_status norm_lower_first(tok_norm *n, ln_error *err);
void norm_close(tok_norm *n);
/* Normalises *text (*bytes bytes of valid UTF-8). Afterwards *text points into one of the two buffers, which
 * the caller owns, or is unchanged when no step changed anything. *at_start: the first byte of *text is the
 * first byte of the input; set to false when a step removes its first characters. */
ln_status norm_run(const tok_norm *n, tok_regex_work *w, ln_str buf[2], const char **text, size_t *bytes,
                   bool *at_start, ln_error *err);

/* ---- pre-tokenizers (pretokenizer.c, pretokenizer_read.c) ---- */
typedef enum tok_behavior {
    SPLIT_REMOVED = 0,
    SPLIT_ISOLATED,
    SPLIT_PREVIOUS,
    SPLIT_NEXT,
    SPLIT_CONTIGUOUS
} tok_behavior;
typedef struct tok_pre_step {
    enum {
        PRE_SPLIT = 0,
        PRE_BYTES,
        PRE_METASPACE,
        PRE_DIGITS,
        PRE_PUNCT,
        PRE_WORDS,
        PRE_SPACE,
        PRE_CHAR,
        PRE_LENGTH
    } kind;
    tok_regex re;
    tok_behavior behavior;
    bool invert;
    bool prefix_space; /* ByteLevel */
    bool use_regex;
    enum { PREPEND_ALWAYS = 0, PREPEND_FIRST, PREPEND_NEVER } prepend; /* Metaspace */
    bool split;
    char rep[4]; /* Metaspace: the replacement of a space, UTF-8, n_rep bytes */
    size_t n_rep;
    uint32_t cp;   /* CharDelimiterSplit */
    size_t length; /* FixedLength */
} tok_pre_step;
typedef struct tok_pre {
    tok_pre_step *steps;
    size_t n, cap;
    bool has_bytes; /* some step is ByteLevel */
} tok_pre;
/* Buffers of the stages that change a text, each of which holds one piece. */
typedef struct tok_pre_work {
    ln_str *buf; /* [n_buf] */
    size_t n_buf;
} tok_pre_work;
ln_status pre_read(tok_pre *p, const json_t *section, ln_error *err);
void pre_close(tok_pre *p);
/* Receives the next piece: `bytes` > 0 bytes, valid during the call. */
typedef ln_status pre_piece_fn(void *user, const char *text, size_t bytes, ln_error *err);
/* Splits `text` (valid UTF-8) and calls `fn` for each piece, from left to right. With `raw`, a ByteLevel step
 * at the end of the chain leaves the bytes as they are instead of mapping them to the byte-level alphabet.
 * is_first: the text begins where the input began. */
ln_status pre_run(const tok_pre *p, tok_pre_work *w, tok_regex_work *rw, const char *text, size_t bytes,
                  bool is_first, bool raw, pre_piece_fn *fn, void *user, ln_error *err);
void pre_work_close(tok_pre_work *w);

/* ---- added tokens (added_tokens.c) ---- */
typedef struct tok_added_token {
    char *content;
    size_t bytes;
    int32_t id, file_id; /* the id assigned to the token, and the id that a file states; -1: none */
    bool special, lstrip, rstrip, single_word, normalized;
    bool was_normalized; /* an earlier list set `normalized`: decoding still gives the normalized content */
    char *shown; /* the text that decoding gives: the normalized content; NULL: the vocabulary's text of the
                    id */
    size_t n_shown;
} tok_added_token;
/* Patterns sorted by their bytes; a search narrows a range of them byte by byte, by binary search. */
typedef struct tok_trie {
    struct tok_pattern {
        char *text;
        size_t bytes;
        uint32_t token; /* index of the added token */
    } * p;
    size_t n;
    uint32_t first[257]; /* patterns that begin with byte b: [first[b], first[b + 1]) */
} tok_trie;
typedef struct tok_added {
    tok_added_token *t;
    size_t n, cap;
    tok_added_token *waiting; /* tokens that were read, but have no id yet */
    size_t n_waiting, cap_waiting;
    string_table seen;      /* contents of t, each with its index in t */
    bool split_special;     /* split_special_tokens: special tokens are not matched in texts */
    tok_trie plain, normal; /* tokens matched before and after normalization */
    struct tok_shown {
        int32_t id;
        uint32_t token; /* index in t */
    } * shown;          /* tokens that decoding gives another text than the vocabulary does, sorted by id */
    size_t n_shown;
} tok_added;
/* Reads the section added_tokens of tokenizer.json into the waiting tokens. LN_EINVALID. */
ln_status added_read(tok_added *a, ln_json *j, ln_error *err);
/* Appends a token to the waiting ones. On success `a` owns its content; on an error the caller still does.
 * LN_EINVALID for more than TOK_MAX_ADDED. */
ln_status added_wait(tok_added *a, const tok_added_token *t, ln_error *err);
/* Assigns ids to the waiting tokens, as the reference does for one list of new tokens, and moves them to
 * a->t. Texts of new ids are added to v, the vocabulary. `where` names the list in messages. LN_EINVALID when
 * a `strict` list contradicts itself or the vocabulary. */
ln_status added_number(tok_added *a, const char *where, string_table *v, bool strict, ln_error *err);
/* Builds the tables for searching and decoding; called once, after the last added_number. */
ln_status added_finish(tok_added *a, const tok_norm *norm, ln_error *err);
/* Sets the TOK_FLAG_* bits of each added token in flags, indexed by id; the caller provides an entry for each
 * id. */
ln_status added_flags(const tok_added *a, uint8_t *flags, ln_error *err);
void added_close(tok_added *a);
typedef struct tok_hit {
    size_t start, end; /* bytes of the text, extended by lstrip and rstrip */
    int32_t id;        /* -1: no further match */
} tok_hit;
typedef struct tok_scan {          /* state of a search; initialise it to all zero */
    size_t from;                   /* offset at which the search continues */
    size_t done;                   /* end of the text that is encoded already; the caller sets it */
    size_t blank_start, blank_end; /* the run of white space scanned last: no run is scanned twice */
} tok_scan;
/* The places at which control tokens are not matched: see ln_guard. */
typedef struct tok_guard {
    const uint8_t *origin;
    bool all_data;
    const uint8_t *control; /* 1 for a control token, indexed by added token */
} tok_guard;
/* The next match of an added token, leftmost first and the longest there. `guard` may be NULL. */
tok_hit added_next(const tok_added *a, const tok_trie *trie, const char *text, size_t bytes,
                   const tok_guard *guard, tok_scan *s);

/* ---- tokens that other files of the directory add (tokenizer_config.c) ---- */
typedef struct text_config {
    json_t *config, *map, *added; /* tokenizer_config.json, special_tokens_map.json, added_tokens.json; NULL:
                                     absent or not read */
    const json_t *decoder;        /* added_tokens_decoder of config, borrowed, or NULL */
    json_t *model;                /* config.json; NULL: it is absent or cannot be read */
} text_config;
/* Loads the files that exist. LN_EIO, LN_EINVALID; *c is then empty. */
ln_status config_open(text_config *c, const char *dir, ln_error *err);
void config_close(text_config *c);
/* Appends the tokens that the files add to the waiting tokens of `a`. `padding` is that section of
 * tokenizer.json, or NULL. LN_EINVALID. */
ln_status config_tokens(const text_config *c, const json_t *padding, tok_added *a, ln_error *err);

/* ---- the class of transformers (tokenizer_class.c) ---- */
typedef struct tok_class tok_class;
/* Stores the class as which transformers opens the directory, and applies add_prefix_space to the sections
 * (normalizer, pre_tokenizer, decoder) if the class does. */
ln_status class_apply(struct ln_tok *t, const text_config *c, json_t *const sections[3], ln_error *err);
/* Stores in which of the sections, and in the model, the class differs from them. */
ln_status class_compare(struct ln_tok *t, const text_config *c, json_t *const sections[3], ln_error *err);

/* ---- post-processors (post_processor.c) ---- */
typedef struct tok_post {
    int32_t *items; /* ids of the templates, concatenated; POST_END ends each template, POST_TEXT is the
                       place of the ids that the template encloses */
    size_t n, cap;
} tok_post;
enum { POST_TEXT = -1, POST_END = -2 };
/* LN_EINVALID: a template names an id that v, the vocabulary, lacks. `name` is for messages. */
ln_status post_read(tok_post *p, const char *name, const json_t *section, const string_table *v,
                    ln_error *err);
void post_close(tok_post *p);
/* Applies the templates to the ids of `out` from index `from` on. Without add_special only the places of the
 * text count. */
ln_status post_run(const tok_post *p, ln_ids *out, size_t from, bool add_special, ln_error *err);

/* ---- decoders (token_decoder.c, token_decoder_steps.c) ---- */
typedef struct tok_dec_step {
    enum {
        DEC_JOIN = 0,
        DEC_BYTES,
        DEC_METASPACE,
        DEC_REPLACE,
        DEC_FALLBACK,
        DEC_FUSE,
        DEC_STRIP,
        DEC_BPE,
        DEC_WORDPIECE
    } kind;
    tok_regex re;
    char *text; /* Replace: content; BPEDecoder: suffix; WordPiece: prefix */
    size_t n_text;
    uint32_t cp; /* Strip, Metaspace */
    size_t start, stop;
    bool drop_first, cleanup;
    bool fused; /* an earlier step fuses all tokens: the input is one token in several fragments */
} tok_dec_step;
typedef struct tok_dec {
    tok_dec_step *steps;
    size_t n, cap;
    double growth; /* section_growth */
} tok_dec;
/* When `section` is NULL or null, the decoder joins tokens by spaces. LN_EINVALID, LN_EUNSUPPORTED. */
ln_status dec_read(tok_dec *d, const json_t *section, ln_error *err);
void dec_close(tok_dec *d);
/* Fragments of tokens, the data between two decoder steps: fragment i is text[f[i - 1].end, f[i].end), in
 * bytes; `last` marks the last fragment of a token. */
typedef struct tok_frags {
    ln_str text;
    struct tok_frag {
        size_t end;
        bool last;
    } * f;
    size_t n, cap;
} tok_frags;
typedef struct tok_dec_state {
    ln_str held;     /* bytes held back until later input decides about them */
    size_t n_tokens; /* tokens completed so far */
    size_t count;    /* ByteFallback: valid bytes of held; Strip: characters dropped at the start */
    size_t n_tail;   /* Strip: characters held back at the end */
    bool decided;    /* ByteFallback: the run is invalid UTF-8; Strip: the start has been passed */
    bool open;       /* the step has received a fragment */
    bool whole;      /* BPEDecoder: held is a whole token */
} tok_dec_state;
typedef struct tok_decoding {
    tok_dec_state *states;
    tok_frags frags[2];
    tok_regex_work regex;
} tok_decoding;
/* Creates the state of one decoding. The caller owns *out and frees it with dec_free. */
ln_status dec_open(const tok_dec *d, tok_decoding **out, ln_error *err);
void dec_free(const tok_dec *d, tok_decoding *g);
/* Pushes the text of one token (text NULL: the end of the input) through all steps and appends the resulting
 * text to out. */
ln_status dec_push(const tok_dec *d, tok_decoding *g, const char *text, size_t bytes, ln_str *out,
                   ln_error *err);
/* The byte of a token <0xNN>, or -1. */
int dec_fallback_byte(const char *text, size_t bytes);
/* Runs one step (token_decoder_steps.c) on all fragments of `in` and appends its output to `out`; `final`: no
 * input follows. */
ln_status dec_step(const tok_dec_step *d, tok_dec_state *s, tok_regex_work *w, const tok_frags *in,
                   tok_frags *out, bool final, ln_error *err);
/* Ends a fragment: the text added to f->text since the end of the fragment before. */
ln_status frags_end(tok_frags *f, bool last, ln_error *err);

/* ---- the tokenizer ---- */
/* SPECIAL: a special token. SKIP: skip_special leaves it out. SHOWN: tok_added.shown has its text. */
enum { TOK_FLAG_SPECIAL = 1, TOK_FLAG_SKIP = 2, TOK_FLAG_SHOWN = 4 };
struct ln_tok {
    tok_bpe bpe;
    tok_added added;
    tok_norm norm;
    tok_pre pre;
    tok_post post;
    tok_dec dec;
    uint8_t *flags; /* TOK_FLAG_*, indexed by id, [n_flags] */
    size_t n_flags;
    size_t longest; /* the most bytes of a text that one id can stand for; 0: there is no such bound */
    const tok_class *class; /* NULL: transformers opens tokenizer.json as it is */
    char differs[64];       /* names of what that class makes otherwise, separated by commas */
    ln_error absent;        /* of ln_tok_open_absent; code LN_OK: there is a tokenizer */
};
/* The sections of tokenizer.json except the model and the added tokens, and what else decides how a tokenizer
 * is built (tokenizer_open.c). */
enum { TOK_NORMALIZER = 0, TOK_PRE, TOK_POST, TOK_DECODER, TOK_TRUNCATION, TOK_PADDING, TOK_SECTIONS };
typedef struct tok_opening {
    const char *name;               /* of the file, for messages */
    const text_config *config;      /* the other files of the directory; NULL: none */
    json_t *sections[TOK_SECTIONS]; /* NULL: absent */
    bool lower;                     /* texts are converted to lower case first */
    const char *more;               /* texts of further tokens, with commas between; NULL: none */
} tok_opening;
/* Completes a tokenizer whose model was read and whose added tokens wait. */
ln_status tok_finish(struct ln_tok *t, const tok_opening *o, ln_error *err);
/* tokenizer_tekken.c: opens a tekken.json. LN_EINVALID: the message names the file and what is wrong. */
ln_status tok_open_tekken(struct ln_tok **out, const char *name, const char *json, size_t bytes, bool lower,
                          ln_error *err);
/* text_bound.c: the value of ln_tok.longest. */
size_t tok_longest(const ln_tok *t);
/* The text of an id that decoding starts from, borrowed, its length in *bytes; NULL when there is none.
 * *skip: decoding with skip_special leaves it out (the rule of the reference, added_tokens.c). */
const char *tok_shown(const ln_tok *tok, int32_t id, size_t *bytes, bool *skip);

#endif
