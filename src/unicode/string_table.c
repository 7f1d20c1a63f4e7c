/* Maps texts to ids and ids to texts: one heap with the bytes of all texts, a span (offset and length) for
 * each id, and a hash table with open addressing whose slots are (tag, id).
 *
 * The tag is 32 bits of the hash; its high bits are the index of the first slot to probe. So the table grows
 * without rehashing the texts, and a probe compares tags before texts: a lookup mostly reads the heap once.
 */
#include "string_table.h"

static uint32_t tag_of(uint64_t h) { return (uint32_t)((h * 0xd6e8feb86659fd93u) >> 32); }

/* Allocates a hash table of 2^bits slots and moves the entries of the old one into it. */
static ln_status table(string_table *v, unsigned bits, ln_error *err) {
    size_t n = (size_t)1 << bits;
    struct strtab_slot *slots = ln_alloc(n * sizeof *slots);
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

ln_status strtab_open(string_table *v, size_t expected, ln_error *err) {
    unsigned bits = 8;
    while (bits < 23 && ((size_t)1 << bits) < expected * 2) bits++;
    return table(v, bits, err);
}

void strtab_close(string_table *v) {
    ln_free(v->heap);
    ln_free(v->span);
    ln_free(v->slots);
    *v = (string_table){0};
}

int32_t strtab_find_hash(const string_table *v, uint64_t hash, const char *text, size_t bytes) {
    if (!v->slots) return -1;
    uint32_t tag = tag_of(hash);
    size_t mask = ((size_t)1 << v->slot_bits) - 1;
    for (size_t at = tag >> (32 - v->slot_bits);; at = (at + 1) & mask) {
        struct strtab_slot s = v->slots[at];
        if (s.id < 0) return -1;
        if (s.tag != tag) continue;
        strtab_span p = v->span[s.id];
        if (p.bytes == bytes && strtab_same(v->heap + p.at, text, bytes)) return s.id;
    }
}

void strtab_prefetch(const string_table *v, uint64_t hash, int step) {
    uint32_t tag = tag_of(hash);
    size_t mask = ((size_t)1 << v->slot_bits) - 1, at = tag >> (32 - v->slot_bits);
    if (step == 0) {
        __builtin_prefetch(&v->slots[at]);
        return;
    }
    for (int i = 0; i < 8 && v->slots[at].id >= 0; i++, at = (at + 1) & mask) {
        if (v->slots[at].tag != tag) continue;
        const strtab_span *p = &v->span[v->slots[at].id];
        __builtin_prefetch(step == 1 ? (const void *)p : v->heap + p->at);
        return;
    }
}

int32_t strtab_find(const string_table *v, const char *text, size_t bytes) {
    if (bytes > v->longest) return -1;
    return strtab_find_hash(v, strtab_hash(text, bytes), text, bytes);
}

ln_status strtab_name(string_table *v, const char *text, size_t bytes, int32_t id, ln_error *err) {
    size_t need = (size_t)id + 1;
    if (need > v->n_span) {
        LN_TRY(ln_grow((void **)&v->span, &v->span_cap, need, sizeof *v->span, err));
        for (size_t i = v->n_span; i < need; i++) v->span[i] = (strtab_span){.at = UINT32_MAX};
        v->n_span = need;
    }
    if (v->span[id].at != UINT32_MAX) {
        size_t n;
        char a[80], b[80];
        const char *old = strtab_text(v, id, &n);
        if (n == bytes && memcmp(old, text, n) == 0) return LN_OK;
        return ln_fail(err, LN_EINVALID, "id %d: expected one text, found '%s' and '%s'", (int)id,
                       ln_excerpt(a, old, n), ln_excerpt(b, text, bytes));
    }
    LN_TRY(ln_grow((void **)&v->heap, &v->heap_cap, v->n_heap + bytes + 1, 1, err));
    v->span[id] = (strtab_span){.at = (uint32_t)v->n_heap, .bytes = (uint32_t)bytes};
    if (bytes > 0) memcpy(v->heap + v->n_heap, text, bytes);
    v->n_heap += bytes;
    v->heap[v->n_heap++] = '\0';
    return LN_OK;
}

ln_status strtab_add(string_table *v, const char *text, size_t bytes, uint64_t hash, int32_t id,
                     int32_t *clash, ln_error *err) {
    *clash = strtab_find_hash(v, hash, text, bytes);
    if (*clash >= 0) return LN_OK;
    if ((v->n_used + 1) * 10 > ((size_t)1 << v->slot_bits) * 6) LN_TRY(table(v, v->slot_bits + 1, err));
    LN_TRY(strtab_name(v, text, bytes, id, err));
    uint32_t tag = tag_of(hash);
    size_t mask = ((size_t)1 << v->slot_bits) - 1, at = tag >> (32 - v->slot_bits);
    while (v->slots[at].id >= 0) at = (at + 1) & mask;
    v->slots[at].tag = tag;
    v->slots[at].id = id;
    v->n_used++;
    v->longest = LN_MAX(v->longest, bytes);
    return LN_OK;
}
