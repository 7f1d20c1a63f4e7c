/* Writes the model of a tokenizer.json as the keys tokenizer.ggml.* of a GGUF file, as llama.cpp's converter
 * does, for tests that compare both. */
#ifndef LN_TESTS_GGUF_OF_JSON_H
#define LN_TESTS_GGUF_OF_JSON_H

#include "../base/gguf_build.h"

#include <jansson.h>
#include <stdio.h>

enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER, GGUF_UNUSED, GGUF_BYTE };

typedef struct gguf_vocabulary {
    const char **tokens;
    char **made; /* texts that the struct owns */
    int32_t *types;
    float *scores;
    size_t n, n_made;
} gguf_vocabulary;

static inline void gguf_vocabulary_free(gguf_vocabulary *v) {
    for (size_t i = 0; i < v->n_made; i++) free(v->made[i]);
    free(v->tokens), free(v->made), free(v->types), free(v->scores);
}

static inline char *gguf_own(gguf_vocabulary *v, const char *text, size_t bytes) {
    char *copy = malloc(bytes + 1);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if ((v->n_made & (v->n_made - 1)) == 0) /* full at each power of two */
        v->made = realloc(v->made, (v->n_made ? 2 * v->n_made : 1) * sizeof *v->made);
    return v->made[v->n_made++] = copy;
}

/* Replaces U+2581 by blanks. */
static inline char *gguf_blanks(gguf_vocabulary *v, const char *text) {
    char *copy = gguf_own(v, text, strlen(text)), *to = copy;
    for (const char *s = text; *s; to++)
        if (strncmp(s, "\xe2\x96\x81", 3) == 0) *to = ' ', s += 3;
        else *to = *s++;
    *to = 0;
    return copy;
}

/* Collects tokens and types. `pieces`: SentencePiece, or Gemma 4. The root must outlive *v. */
static inline void gguf_vocabulary_of(gguf_vocabulary *v, const json_t *root, bool pieces) {
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab"),
                 *added = json_object_get(root, "added_tokens");
    const char *text, *unknown = json_string_value(json_object_get(model, "unk_token"));
    json_t *item;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, item) if ((size_t)json_integer_value(item) >= v->n)
        v->n = (size_t)json_integer_value(item) + 1;
    json_array_foreach(added, i, item) {
        const size_t id = (size_t)json_integer_value(json_object_get(item, "id"));
        if (id >= v->n) v->n = id + 1;
    }
    v->tokens = calloc(v->n, sizeof *v->tokens);
    v->types = calloc(v->n, sizeof *v->types);
    v->scores = calloc(v->n, sizeof *v->scores);
    json_object_foreach((json_t *)(uintptr_t)vocab, text, item) {
        const size_t id = (size_t)json_integer_value(item);
        const bool is_byte = pieces && strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
        v->tokens[id] = text;
        v->types[id] = is_byte ? GGUF_BYTE : GGUF_NORMAL;
        v->scores[id] = -1e6f;
    }
    json_array_foreach(added, i, item) {
        const size_t id = (size_t)json_integer_value(json_object_get(item, "id"));
        const bool special = json_is_true(json_object_get(item, "special"));
        text = json_string_value(json_object_get(item, "content"));
        v->types[id] = special ? GGUF_CONTROL : GGUF_USER;
        v->scores[id] = -1000;
        if (pieces && special && unknown && strcmp(text, unknown) == 0) v->types[id] = GGUF_UNKNOWN;
        v->tokens[id] = special ? text : pieces ? gguf_blanks(v, text) : text;
    }
    for (i = 0; i < v->n; i++)
        if (!v->tokens[i]) {
            char name[32];
            v->types[i] = GGUF_UNUSED;
            v->tokens[i] = gguf_own(v, name, (size_t)snprintf(name, sizeof name, "[PAD%zu]", i));
        }
}

/* The two parts of a merge. */
static inline void gguf_merge_parts(const json_t *merge, const char **left, size_t *n_left,
                                    const char **right) {
    if (json_is_array(merge)) {
        *left = json_string_value(json_array_get(merge, 0));
        *n_left = strlen(*left);
        *right = json_string_value(json_array_get(merge, 1));
    } else {
        *left = json_string_value(merge);
        *n_left = (size_t)(strchr(*left, ' ') - *left);
        *right = *left + *n_left + 1;
    }
}

static inline void gguf_add_merges(gguf_build *b, const json_t *merges) {
    gguf_key(b, "tokenizer.ggml.merges", 9);
    gguf_number(&b->keys, 8, 4);
    gguf_number(&b->keys, json_array_size(merges), 8);
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *left, *right;
        size_t n_left;
        gguf_merge_parts(json_array_get(merges, i), &left, &n_left, &right);
        gguf_number(&b->keys, n_left + 1 + strlen(right), 8);
        gguf_add(&b->keys, left, n_left);
        gguf_add(&b->keys, " ", 1);
        gguf_add(&b->keys, right, strlen(right));
    }
}

/* Scores by the place of the first merge that gives a token, as SentencePiece assigns them. */
static inline void gguf_scores_of(gguf_vocabulary *v, const json_t *root) {
    const json_t *model = json_object_get(root, "model"), *merges = json_object_get(model, "merges");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *left, *right;
        char joined[1024];
        size_t n_left;
        gguf_merge_parts(json_array_get(merges, i), &left, &n_left, &right);
        if ((size_t)snprintf(joined, sizeof joined, "%.*s%s", (int)n_left, left, right) >= sizeof joined)
            continue;
        const json_t *id = json_object_get(json_object_get(model, "vocab"), joined);
        const size_t at = (size_t)json_integer_value(id);
        if (id && v->types[at] == GGUF_NORMAL && v->scores[at] == -1e6f) v->scores[at] = -(float)i;
    }
}

/* Adds the keys of a tokenizer. `pre` NULL: SentencePiece, with scores. bos < 0: none. */
static inline void gguf_add_tokenizer(gguf_build *b, const json_t *root, const char *pre, int64_t bos,
                                      bool prefix) {
    gguf_vocabulary v = {0};
    gguf_vocabulary_of(&v, root, !pre);
    gguf_text(b, "tokenizer.ggml.model", pre ? "gpt2" : "llama");
    gguf_text(b, "tokenizer.ggml.pre", pre ? pre : "default");
    gguf_texts(b, "tokenizer.ggml.tokens", v.tokens, v.n);
    gguf_i32s(b, "tokenizer.ggml.token_type", v.types, v.n);
    if (!pre) gguf_scores_of(&v, root);
    if (pre) gguf_add_merges(b, json_object_get(json_object_get(root, "model"), "merges"));
    else gguf_f32s(b, "tokenizer.ggml.scores", v.scores, v.n);
    if (bos >= 0) gguf_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    gguf_bool(b, "tokenizer.ggml.add_bos_token", bos >= 0);
    if (!pre) gguf_bool(b, "tokenizer.ggml.add_space_prefix", prefix);
    for (size_t i = 0; i < v.n && !pre; i++)
        if (v.types[i] == GGUF_UNKNOWN) gguf_u32(b, "tokenizer.ggml.unknown_token_id", (uint32_t)i);
    gguf_vocabulary_free(&v);
}

#endif
