/* The priority queue of the merges of a long word: lowest rank first, leftmost place first among equal ranks.
 *
 * A long word is usually a repetition, so many entries share few ranks and arrive in ascending order of
 * place. Such an entry is appended to a linked list, one for each rank, in O(1); it is also removed in O(1).
 * An entry that arrives out of order goes to a 4-ary heap instead. The lowest entry is the smaller one of the
 * head of the list of lowest rank and the top of the heap. A megabyte of underscores is therefore merged in
 * nearly linear time, with mostly sequential memory accesses. */
#include "tokenizer_internal.h"

enum { NONE = -1 };

static ln_status heap_add(uint64_t **heap, size_t *n, size_t *cap, uint64_t entry, ln_error *err) {
    if (*n == *cap) LN_TRY(ln_grow((void **)heap, cap, *n + 1, sizeof **heap, err));
    size_t i = (*n)++;
    uint64_t *h = *heap;
    for (; i > 0 && h[(i - 1) / 4] > entry; i = (i - 1) / 4) h[i] = h[(i - 1) / 4];
    h[i] = entry;
    return LN_OK;
}

static void heap_drop(uint64_t *h, size_t *count) {
    uint64_t last = h[--*count];
    size_t i = 0, n = *count;
    for (;;) {
        size_t child = 4 * i + 1, best = child;
        if (child >= n) break;
        size_t end = LN_MIN(child + 4, n);
        for (size_t k = child + 1; k < end; k++)
            if (h[k] < h[best]) best = k;
        if (h[best] >= last) break;
        h[i] = h[best];
        i = best;
    }
    if (n > 0) h[i] = last;
}

void queue_close(tok_queue *q) {
    ln_free(q->lists);
    ln_free(q->table);
    ln_free(q->entries);
    ln_free(q->ranks);
    ln_free(q->heap);
    *q = (tok_queue){0};
}

static ln_status table_grow(tok_queue *q, ln_error *err) {
    size_t n = q->n_table ? q->n_table * 2 : 256;
    int32_t *t = ln_alloc(n * sizeof *t);
    if (!t) return LN_OOM(err, "a queue");
    memset(t, 0xff, n * sizeof *t);
    for (size_t i = 0; i < q->n_lists; i++) {
        size_t at = (q->lists[i].rank * 0x9e3779b1u) & (n - 1);
        while (t[at] != NONE) at = (at + 1) & (n - 1);
        t[at] = (int32_t)i;
    }
    ln_free(q->table);
    q->table = t;
    q->n_table = n;
    return LN_OK;
}

ln_status queue_begin(tok_queue *q, ln_error *err) {
    if (!q->table) LN_TRY(table_grow(q, err));
    else memset(q->table, 0xff, q->n_table * sizeof *q->table);
    q->n_lists = q->n_ranks = q->n_heap = q->n_entries = 0;
    q->spare = q->recent = NONE;
    return LN_OK;
}

/* The index of the list of a rank; creates the list when there is none. */
static ln_status find_list(tok_queue *q, uint32_t rank, int32_t *out, ln_error *err) {
    if (q->recent != NONE && q->lists[q->recent].rank == rank) return *out = q->recent, LN_OK;
    size_t at = (rank * 0x9e3779b1u) & (q->n_table - 1);
    for (; q->table[at] != NONE; at = (at + 1) & (q->n_table - 1))
        if (q->lists[q->table[at]].rank == rank) return *out = q->recent = q->table[at], LN_OK;
    if (q->n_lists == q->cap_lists)
        LN_TRY(ln_grow((void **)&q->lists, &q->cap_lists, q->n_lists + 1, sizeof *q->lists, err));
    q->lists[q->n_lists] = (struct tok_list){.rank = rank, .head = NONE, .tail = NONE};
    q->table[at] = *out = q->recent = (int32_t)q->n_lists++;
    return q->n_lists * 2 > q->n_table ? table_grow(q, err) : LN_OK;
}

ln_status queue_add(tok_queue *q, uint32_t rank, uint32_t place, ln_error *err) {
    int32_t which, e = q->spare;
    LN_TRY(find_list(q, rank, &which, err));
    struct tok_list *l = &q->lists[which];
    if (l->head != NONE && q->entries[l->tail].place > place)
        return heap_add(&q->heap, &q->n_heap, &q->cap_heap, (uint64_t)rank << 32 | place, err);
    if (e != NONE) {
        q->spare = q->entries[e].next;
    } else {
        if (q->n_entries >= INT32_MAX) return ln_fail(err, LN_EINVALID, "a word is too long to tokenize");
        if (q->n_entries == q->cap_entries)
            LN_TRY(ln_grow((void **)&q->entries, &q->cap_entries, q->n_entries + 1, sizeof *q->entries, err));
        e = (int32_t)q->n_entries++;
    }
    q->entries[e] = (struct tok_entry){place, NONE};
    if (l->head == NONE) l->head = e;
    else q->entries[l->tail].next = e;
    l->tail = e;
    if (l->listed) return LN_OK;
    l->listed = true;
    return heap_add(&q->ranks, &q->n_ranks, &q->cap_ranks, (uint64_t)rank << 32 | (uint32_t)which, err);
}

bool queue_take(tok_queue *q, uint32_t *rank, uint32_t *place) {
    struct tok_list *l = NULL;
    while (q->n_ranks > 0) {
        l = &q->lists[(uint32_t)q->ranks[0]];
        if (l->head != NONE) break;
        l->listed = false;
        l = NULL;
        heap_drop(q->ranks, &q->n_ranks);
    }
    if (q->n_heap > 0 && (!l || q->heap[0] < ((uint64_t)l->rank << 32 | q->entries[l->head].place))) {
        *rank = (uint32_t)(q->heap[0] >> 32);
        *place = (uint32_t)q->heap[0];
        heap_drop(q->heap, &q->n_heap);
        return true;
    }
    if (!l) return false;
    int32_t e = l->head;
    *rank = l->rank;
    *place = q->entries[e].place;
    l->head = q->entries[e].next;
    q->entries[e].next = q->spare;
    q->spare = e;
    return true;
}
