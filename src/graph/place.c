/* Offsets of buffers in the temp block.
 *
 * Values are allocated in order of time, alternately from both ends of a block as large as the lower bound
 * (the largest sum of live bytes). Where that does not fit, allocation is greedy by size: the largest value
 * first, at the lowest offset that is free over its whole lifetime. Either looks at those values only whose
 * lifetimes overlap that of the new one: by time, at the values that live at its first stage; by size, at
 * those that an interval tree finds. So a plan of n values, k of which live together, takes O(n (k + log n))
 * steps by time and O(n k log n) by size. */
#include "place.h"

#include <stdlib.h>

/* A value that has an offset. */
typedef struct placed {
    int64_t offset, bytes;
    int last; /* stage */
} placed;

/* Both functions search p[n], the placed values whose lifetimes overlap that of the new value, sorted by
 * offset. Returns the lowest offset with a free gap of `bytes`. */
static int64_t lowest_gap(const placed *p, size_t n, int64_t bytes) {
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i].offset - at >= bytes) break;
        at = LN_MAX(at, p[i].offset + p[i].bytes);
    }
    return at;
}
/* The highest such offset below `room`. The values of p do not overlap each other: they live at one stage. */
static int64_t highest_gap(const placed *p, size_t n, int64_t bytes, int64_t room) {
    int64_t end = room;
    for (size_t i = n; i-- > 0;) {
        if (end - p[i].offset - p[i].bytes >= bytes) break;
        end = LN_MIN(end, p[i].offset);
    }
    return end - bytes;
}

/* Working memory. */
typedef struct placing {
    ln_storage *values; /* by value */
    size_t n;
    ln_v *queue, *spare; /* [n]: the values in order of allocation; working memory of sort */
    placed *found;       /* [n]: placed values that live together with the current one */
    ln_v *by_first;      /* [n]: the values by first stage: the leaves of the interval tree */
    size_t *leaf;        /* [n_values]: index in by_first */
    int *latest;         /* [2 n_leaves]: see find_placed */
    size_t n_leaves;     /* a power of two, at least n */
} placing;

/* Order of allocation: by size, the largest first; by time, the earliest first; or by the first stage alone.
 */
typedef enum order { BY_SIZE, BY_TIME, BY_FIRST } order;
static bool before(const ln_storage *a, const ln_storage *b, order by) {
    if (by != BY_SIZE && a->first != b->first) return a->first < b->first;
    if (by == BY_FIRST) return false;
    if (by == BY_TIME && a->last != b->last) return a->last > b->last;
    return a->bytes > b->bytes;
}

/* Stable merge sort of list[n]; `spare` has space for n entries. */
static void sort(const ln_storage *values, ln_v *list, ln_v *spare, size_t n, order by) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t a = from, b = LN_MIN(from + width, n), mid = b, end = LN_MIN(from + 2 * width, n);
            for (size_t to = from; to < end; to++) {
                const bool right = a == mid || (b < end && before(&values[list[b]], &values[list[a]], by));
                spare[to] = right ? list[b++] : list[a++];
            }
        }
        memcpy(list, spare, n * sizeof *list);
    }
}

/* Allocates in order of time, alternately at the lowest and at the highest free gap within `room` bytes, so
 * that the input of a node is near one end and its output near the other. `found` holds the values that live
 * at the first stage of the current one. Returns the bytes used; -1 when `room` bytes are not enough. */
static int64_t place_by_time(placing *p, int64_t room) {
    int64_t total = 0;
    size_t n_live = 0;
    sort(p->values, p->queue, p->spare, p->n, BY_TIME);
    for (size_t i = 0; i < p->n; i++) {
        ln_storage *v = &p->values[p->queue[i]];
        size_t kept = 0;
        for (size_t k = 0; k < n_live; k++)
            if (p->found[k].last >= v->first) p->found[kept++] = p->found[k];
        v->offset =
            i % 2 ? highest_gap(p->found, kept, v->bytes, room) : lowest_gap(p->found, kept, v->bytes);
        if (v->offset < 0 || v->offset + v->bytes > room) return -1;
        total = LN_MAX(total, v->offset + v->bytes);
        size_t at = kept;
        for (; at > 0 && p->found[at - 1].offset > v->offset; at--) p->found[at] = p->found[at - 1];
        p->found[at] = (placed){v->offset, v->bytes, v->last};
        n_live = kept + 1;
    }
    return total;
}

/* The interval tree: entry 1 covers all leaves, entries 2 i and 2 i + 1 the halves of entry i. latest[i] is
 * the largest last stage of the placed values below entry i, -1 for none. Appends to p->found the placed
 * values below an entry, which covers the leaves [lo, hi), that live at a stage of v. */
static void find_placed(placing *p, size_t entry, size_t lo, size_t hi, const ln_storage *v, size_t *n) {
    if (lo >= p->n || p->latest[entry] < v->first) return;
    const ln_storage *x = &p->values[p->by_first[lo]];
    if (x->first > v->last) return;
    if (hi - lo == 1) {
        p->found[(*n)++] = (placed){x->offset, x->bytes, x->last};
        return;
    }
    const size_t mid = lo + (hi - lo) / 2;
    find_placed(p, 2 * entry, lo, mid, v, n);
    find_placed(p, 2 * entry + 1, mid, hi, v, n);
}
static int by_offset(const void *x, const void *y) {
    const placed *a = x, *b = y;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Allocates in order of size, each value at the lowest free gap. Returns the bytes used. */
static int64_t place_by_size(placing *p) {
    int64_t total = 0;
    memcpy(p->by_first, p->queue, p->n * sizeof *p->by_first);
    sort(p->values, p->by_first, p->spare, p->n, BY_FIRST);
    sort(p->values, p->queue, p->spare, p->n, BY_SIZE);
    for (size_t i = 0; i < p->n; i++) p->leaf[p->by_first[i]] = i;
    for (size_t i = 0; i < 2 * p->n_leaves; i++) p->latest[i] = -1;
    for (size_t i = 0; i < p->n; i++) {
        ln_storage *v = &p->values[p->queue[i]];
        size_t n = 0;
        find_placed(p, 1, 0, p->n_leaves, v, &n);
        if (n > 1) qsort(p->found, n, sizeof *p->found, by_offset);
        v->offset = lowest_gap(p->found, n, v->bytes);
        total = LN_MAX(total, v->offset + v->bytes);
        for (size_t e = p->n_leaves + p->leaf[p->queue[i]]; e > 0; e /= 2)
            p->latest[e] = LN_MAX(p->latest[e], v->last);
    }
    return total;
}

ln_status ln_graph_place(ln_storage *storage, size_t n_values, ln_v *queue, size_t n, int64_t bound,
                         int64_t *bytes, ln_error *err) {
    placing p = {.values = storage, .n = n, .queue = queue, .n_leaves = 1};
    while (p.n_leaves < n) p.n_leaves *= 2;
    p.spare = ln_zalloc(n + 1, sizeof *p.spare);
    p.found = ln_zalloc(n + 1, sizeof *p.found);
    p.by_first = ln_zalloc(n + 1, sizeof *p.by_first);
    p.leaf = ln_zalloc(n_values + 1, sizeof *p.leaf);
    p.latest = ln_zalloc(2 * p.n_leaves, sizeof *p.latest);
    bool good = p.spare && p.found && p.by_first && p.leaf && p.latest;
    if (good) *bytes = place_by_time(&p, bound);
    if (good && *bytes < 0) *bytes = place_by_size(&p);
    ln_free(p.spare);
    ln_free(p.found);
    ln_free(p.by_first);
    ln_free(p.leaf);
    ln_free(p.latest);
    return good ? LN_OK : LN_OOM(err, "the memory plan");
}
