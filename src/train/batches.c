/* The order of samples and their packing. */
#include "batches.h"
#include "../base/elementary.h"

#include <math.h>
#include <stdlib.h>

enum { SHUFFLE = 0x5348 }; /* the domain of these random numbers: no other use of the seed has this counter */

/* A uniform random number from 0 .. n - 1, the i-th of an epoch. Multiplying 64 random bits is biased by
 * less than n / 2^64. */
static uint32_t draw_below(uint32_t n, uint64_t seed, uint64_t epoch, uint32_t i) {
    const uint32_t counter[4] = {i, (uint32_t)epoch, (uint32_t)(epoch >> 32), SHUFFLE},
                   key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    ln_philox(counter, key, bits);
    const uint64_t r = (uint64_t)bits[0] << 32 | bits[1], high = r >> 32, low = r & UINT32_MAX;
    return (uint32_t)((high * n + (low * n >> 32)) >> 32);
}

void train_shuffle(uint32_t *order, size_t n, uint64_t seed, uint64_t epoch) { /* Fisher and Yates */
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i-- > 1;) {
        const uint32_t k = draw_below((uint32_t)(i + 1), seed, epoch, (uint32_t)i), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}

ln_status train_order_open(train_order *o, size_t n, uint64_t seed, bool shuffle, ln_error *err) {
    *o = (train_order){.n = n, .seed = seed, .shuffle = shuffle};
    o->order = ln_zalloc(n, sizeof *o->order);
    return o->order ? LN_OK : LN_OOM(err, "the order of samples");
}

ln_status train_order_mix(train_order *o, const train_share *shares, size_t n, ln_error *err) {
    size_t most = 0;
    o->shares = shares, o->n_shares = n, o->n = 0;
    for (size_t i = 0; i < n; i++) o->n += shares[i].per_epoch, most = LN_MAX(most, shares[i].n);
    ln_free(o->order);
    o->order = ln_zalloc(o->n, sizeof *o->order);
    o->rows = ln_zalloc(o->n, sizeof *o->rows);
    o->pass = ln_zalloc(most, sizeof *o->pass);
    return o->order && o->rows && o->pass ? LN_OK : LN_OOM(err, "the order of samples");
}

static void shuffle_or_not(const train_order *o, uint32_t *out, size_t n, uint64_t seed, uint64_t number) {
    if (o->shuffle) train_shuffle(out, n, seed, number);
    else
        for (size_t k = 0; k < n; k++) out[k] = (uint32_t)k;
}

/* Writes the rows that an epoch takes: of each share the next ones of passes over its rows, each of which has
 * an order of its own. */
static void take_shares(train_order *o, uint64_t epoch) {
    size_t at = 0;
    for (size_t i = 0; i < o->n_shares; i++) {
        const train_share *s = &o->shares[i];
        uint64_t pass = UINT64_MAX;
        for (size_t k = 0; k < s->per_epoch; k++) {
            const uint64_t number = epoch * s->per_epoch + k;
            if (number / s->n != pass) {
                pass = number / s->n;
                shuffle_or_not(o, o->pass, s->n, o->seed + 1 + i, pass);
            }
            o->rows[at++] = s->first + o->pass[number % s->n];
        }
    }
}

void train_order_close(train_order *o) {
    ln_free(o->order);
    ln_free(o->rows);
    ln_free(o->pass);
    *o = (train_order){0};
}

void train_order_next(train_order *o, train_cursor *c, size_t n, uint32_t *out) {
    for (size_t i = 0; i < n; i++) {
        if (c->at >= o->n) c->epoch++, c->at = 0;
        if (!o->ready || ((o->shuffle || o->n_shares) && o->epoch != c->epoch)) {
            shuffle_or_not(o, o->order, o->n, o->seed, c->epoch);
            if (o->n_shares) take_shares(o, c->epoch);
            o->epoch = c->epoch;
            o->ready = true;
        }
        const uint32_t place = o->order[c->at++];
        out[i] = o->n_shares ? o->rows[place] : place;
    }
}

/* Largest first; the key has the size above the complement of the index. */
static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

void train_pack(const uint32_t *sizes, size_t n, uint64_t budget, uint32_t *bin, uint64_t *scratch,
                size_t *n_bins) {
    uint64_t *keys = scratch, *left = scratch + n;
    size_t bins = 0;
    for (size_t i = 0; i < n; i++) keys[i] = (uint64_t)sizes[i] << 32 | (UINT32_MAX - (uint32_t)i);
    qsort(keys, n, sizeof *keys, by_size);
    for (size_t i = 0; i < n; i++) {
        const uint32_t item = UINT32_MAX - (uint32_t)keys[i], size = (uint32_t)(keys[i] >> 32);
        size_t best = bins;
        for (size_t b = 0; b < bins; b++)
            if (left[b] >= size && (best == bins || left[b] < left[best])) best = b;
        if (best == bins) left[bins++] = budget;
        left[best] -= size;
        bin[item] = (uint32_t)best;
    }
    *n_bins = bins;
}

size_t train_held_out(size_t n, double share) {
    if (!(share > 0) || n < 2) return 0;
    const double k = floor((double)n * share + 0.5);
    return k < 1 ? 1 : k > (double)(n - 1) ? n - 1 : (size_t)k;
}
