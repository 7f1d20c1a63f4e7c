/* Texts and ids: one heap of bytes, a span per id, and a hash table of (tag, id) whose tag's high bits are its place.
 *
 * The table grows by its tags alone. A probe compares 32 bits before it looks at a text, so that a lookup touches the heap once. */
#include "tok.h"

static uint32_t tag_of(uint64_t h) { return (uint32_t)((h * 0xd6e8feb86659fd93u) >> 32); }

static ln_status table(text_vocab *v, unsigned bits, ln_error *err) {
    size_t n = (size_t)1 << bits;
    struct text_slot *slots = ln_alloc(n * sizeof *slots);
    if (!slots) return LN_OOM(err, "the vocabulary's table");
    memset(slots, 0xff, n * sizeof *slots);
    for (size_t i = 0; v->slots && i < (size_t)1 << v->slot_bits; i++) {
        if (v->slots[i].id < 0) continue;
        size_t at = v->slots[i].tag >> (32 - bits);
        while (slots[at].id >= 0) at = (at + 1) & (n - 1);
        slots[at] = v->slots[i];
    }
    ln_free(v->slots);
    v->slots = slots;
    v->slot_bits = bits;
    return LN_OK;
}

ln_status vocab_open(text_vocab *v, size_t expected, ln_error *err) {
    unsigned bits = 8;
    while (bits < 23 && ((size_t)1 << bits) < expected * 2) bits++;
    return table(v, bits, err);
}

void vocab_close(text_vocab *v) {
    ln_free(v->heap);
    ln_free(v->span);
    ln_free(v->slots);
    *v = (text_vocab){0};
}

int32_t vocab_find_hash(const text_vocab *v, uint64_t hash, const char *text, size_t bytes) {
    if (!v->slots) return -1;
    uint32_t tag = tag_of(hash);
    size_t mask = ((size_t)1 << v->slot_bits) - 1;
    for (size_t at = tag >> (32 - v->slot_bits);; at = (at + 1) & mask) {
        struct text_slot s = v->slots[at];
        if (s.id < 0) return -1;
        if (s.tag != tag) continue;
        text_span p = v->span[s.id];
        if (p.bytes == bytes && text_same(v->heap + p.at, text, bytes)) return s.id;
    }
}

void vocab_fetch(const text_vocab *v, uint64_t hash, int step) {
    uint32_t tag = tag_of(hash);
    size_t mask = ((size_t)1 << v->slot_bits) - 1, at = tag >> (32 - v->slot_bits);
    if (step == 0) {
        __builtin_prefetch(&v->slots[at]);
        return;
    }
    for (int i = 0; i < 8 && v->slots[at].id >= 0; i++, at = (at + 1) & mask) {
        if (v->slots[at].tag != tag) continue;
        const text_span *p = &v->span[v->slots[at].id];
        __builtin_prefetch(step == 1 ? (const void *)p : v->heap + p->at);
        return;
    }
}

int32_t vocab_find(const text_vocab *v, const char *text, size_t bytes) {
    if (bytes > v->longest) return -1;
    return vocab_find_hash(v, text_hash(text, bytes), text, bytes);
}

ln_status vocab_name(text_vocab *v, const char *text, size_t bytes, int32_t id, ln_error *err) {
    size_t need = (size_t)id + 1;
    if (need > v->n_span) {
        LN_TRY(ln_grow((void **)&v->span, &v->span_cap, need, sizeof *v->span, err));
        for (size_t i = v->n_span; i < need; i++) v->span[i] = (text_span){.at = UINT32_MAX};
        v->n_span = need;
    }
    if (v->span[id].at != UINT32_MAX) {
        size_t n;
        char a[80], b[80];
        const char *old = vocab_text(v, id, &n);
        if (n == bytes && memcmp(old, text, n) == 0) return LN_OK;
        return ln_fail(err, LN_EINVALID, "id %d: expected one text, found '%s' and '%s'", (int)id, ln_excerpt(a, old, n),
                       ln_excerpt(b, text, bytes));
    }
    LN_TRY(ln_grow((void **)&v->heap, &v->heap_cap, v->n_heap + bytes + 1, 1, err));
    v->span[id] = (text_span){.at = (uint32_t)v->n_heap, .bytes = (uint32_t)bytes};
    if (bytes > 0) memcpy(v->heap + v->n_heap, text, bytes);
    v->n_heap += bytes;
    v->heap[v->n_heap++] = '\0';
    return LN_OK;
}

ln_status vocab_add(text_vocab *v, const char *text, size_t bytes, uint64_t hash, int32_t id, int32_t *clash, ln_error *err) {
    *clash = vocab_find_hash(v, hash, text, bytes);
    if (*clash >= 0) return LN_OK;
    if ((v->n_used + 1) * 10 > ((size_t)1 << v->slot_bits) * 6) LN_TRY(table(v, v->slot_bits + 1, err));
    LN_TRY(vocab_name(v, text, bytes, id, err));
    uint32_t tag = tag_of(hash);
    size_t mask = ((size_t)1 << v->slot_bits) - 1, at = tag >> (32 - v->slot_bits);
    while (v->slots[at].id >= 0) at = (at + 1) & mask;
    v->slots[at].tag = tag;
    v->slots[at].id = id;
    v->n_used++;
    v->longest = LN_MAX(v->longest, bytes);
    return LN_OK;
}
