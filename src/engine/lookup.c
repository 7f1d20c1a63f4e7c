/* Proposals of next tokens from earlier places of a text.
 *
 * `ends` has the last place of every GRAM tokens in sequence, without those that end the text: collisions
 * lose places, and what is found is compared. A place that was found goes along with the text, so that a text
 * with small changes is continued directly behind each of them, although its last GRAM tokens are new. */
#include "lookup.h"

enum { GRAM = 3, LEAST_BITS = 6, MOST_BITS = 30, FIRST_WIDTH = 4, MOST_MISSES = 6 };

static int bits_for(int64_t n) {
    int bits = LEAST_BITS;
    while (bits < MOST_BITS && (int64_t)1 << bits < 2 * n) bits++;
    return bits;
}

uint64_t ln_lookup_bytes(int64_t n) { return (sizeof(int32_t)) << bits_for(n); }

ln_status ln_lookup_open(ln_lookup *l, int64_t n, int64_t most, ln_error *err) {
    *l = (ln_lookup){.bits = bits_for(n), .most = LN_MIN(most, (int64_t)LN_LOOKUP_MOST)};
    l->width = LN_MIN((int64_t)FIRST_WIDTH, l->most);
    l->ends = ln_zalloc((size_t)1 << l->bits, sizeof *l->ends);
    return l->ends ? LN_OK : LN_OOM(err, "the places of a text's tokens");
}

void ln_lookup_close(ln_lookup *l) {
    ln_free(l->ends);
    *l = (ln_lookup){0};
}

/* The entry of the GRAM tokens that end before index `end`. */
static int32_t *entry(const ln_lookup *l, const int32_t *ids, int64_t end) {
    uint64_t h = 0;
    for (int i = 1; i <= GRAM; i++) h = (h ^ (uint32_t)ids[end - i]) * UINT64_C(0x9e3779b97f4a7c15);
    return &l->ends[h >> (64 - l->bits)];
}

/* Returns how many of the last tokens are the same before two indices, at most GRAM. */
static int same_before(const int32_t *ids, int64_t a, int64_t b) {
    int n = 0;
    while (n < GRAM && n < a && n < b && ids[a - 1 - n] == ids[b - 1 - n]) n++;
    return n;
}

/* Returns the index of the token that may come next; 0: none. */
static int64_t find(ln_lookup *l, const int32_t *ids, int64_t n) {
    const int64_t along = l->at > 0 ? l->at + (n - l->n_at) : 0;
    const int same = along > 0 ? same_before(ids, along, n) : 0;
    if (same == GRAM || n < GRAM) return same > 0 ? along : 0;
    const int64_t found = *entry(l, ids, n);
    return found > 0 && same_before(ids, found, n) == GRAM ? found : same > 0 ? along : 0;
}

int64_t ln_lookup_propose(ln_lookup *l, const int32_t *ids, int64_t n, int64_t most, int32_t *out) {
    if (!l->ends) return 0;
    for (l->n = LN_MAX(l->n, (int64_t)GRAM - 1); l->n + 1 < n; l->n++)
        *entry(l, ids, l->n + 1) = (int32_t)(l->n + 1);
    const int64_t at = find(l, ids, n);
    if (at > 0) l->at = at, l->n_at = n;
    if (at == 0) return 0;
    const int64_t k = n < l->resume ? 0 : LN_MIN(most, l->width);
    for (int64_t i = 0; i < k; i++) out[i] = at + i < n ? ids[at + i] : out[at + i - n]; /* it goes on */
    return k;
}

/* The width follows what was accepted. A row of a token that is rejected costs time, so that a text in which
 * most are rejected has fewer and fewer proposals: after the second miss in sequence there is none for one
 * token, then for 3, 7, 15 and 31. */
void ln_lookup_judge(ln_lookup *l, int64_t n, int64_t n_accepted) {
    l->width = n_accepted == n ? LN_MAX(l->width, LN_MIN(2 * n, l->most)) : n_accepted + 1;
    l->misses = n_accepted > 0 ? 0 : LN_MIN(l->misses + 1, (int)MOST_MISSES);
    if (l->misses > 1) l->resume = l->n_at + ((int64_t)1 << (l->misses - 1));
}
