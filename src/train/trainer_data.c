/* The samples of a run: reading the files, the samples that validate, and how often an epoch has those of
 * each file. */
#include "../base/xxh64.h"
#include "trainer.h"

#include <math.h>
#include <string.h>

/* ---- what validates ---- */

/* Marks the samples of which another one of the same record, such as a later turn of the same conversation,
 * is held out as held out, too. Returns how many are. */
static size_t hold_records(const train_data *d, uint32_t *trains, uint32_t *held, size_t n_held) {
    for (size_t from = 0, to; from < d->n; from = to) {
        bool out = false;
        for (to = from; to < d->n && d->samples[to].record == d->samples[from].record; to++)
            out |= !trains[to];
        for (size_t i = from; out && i < to; i++) {
            if (trains[i]) held[n_held++] = (uint32_t)i;
            trains[i] = 0;
        }
    }
    return n_held;
}

/* Both functions clear trains[] of the samples that validate, and store them in valid_rows; they return how
 * many there are. By seed: a share of the samples, chosen at random. */
static ln_status hold_by_seed(train_trainer *t, uint32_t *trains, size_t n, size_t *n_held, ln_error *err) {
    uint32_t *all = ln_zalloc(n + 1, sizeof *all);
    const size_t k = train_held_out(n, t->how.valid_split);
    if (!all) return LN_OOM(err, "the lists of samples");
    train_shuffle(all, n, t->how.seed, UINT64_MAX); /* no epoch has this number */
    for (size_t i = 0; i < k; i++) t->valid_rows[i] = all[i], trains[all[i]] = 0;
    ln_free(all);
    *n_held = train_per_unit(t) == 1 ? hold_records(&t->data, trains, t->valid_rows, k) : k;
    return LN_OK;
}

/* The hash of a sample as a number from 0 to below 1: of its tokens alone. */
static double hash_of(const train_data *d, const train_sample *s) {
    ln_xxh64 h;
    ln_xxh64_open(&h);
    for (uint32_t k = 0; k < s->n; k++) {
        const uint32_t id = d->ids[s->at + k] & ~TRAIN_COUNTED;
        ln_xxh64_add(&h, &id, sizeof id);
    }
    return (double)(ln_xxh64_value(&h) >> 11) * 0x1p-53;
}

/* By hash: each sample by itself, whatever the other samples, their order and the seed are; the samples of
 * one record by the first of them. */
static size_t hold_by_hash(train_trainer *t, uint32_t *trains, size_t n) {
    const size_t per = train_per_unit(t);
    size_t k = 0;
    bool out = false;
    for (size_t i = 0; i < n; i++) {
        const train_sample *s = &t->data.samples[per * i];
        if (i == 0 || per > 1 || s->record != s[-1].record) out = hash_of(&t->data, s) < t->how.valid_split;
        if (out) t->valid_rows[k++] = (uint32_t)i, trains[i] = 0;
    }
    return k;
}

static ln_status check_split(const train_trainer *t, size_t n, ln_error *err) {
    if (t->n_train > 0 && (t->n_valid > 0 || !t->how.split_by_hash)) return LN_OK;
    if (t->how.split_by_hash)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.valid_split: %zu of %zu samples would validate by their hashes; "
                       "expected "
                       "some, and some that train",
                       t->n_valid, n);
    return ln_fail(err, LN_EUSAGE,
                   "ln_trainer_options.valid_split: all %zu samples come from one conversation; expected one "
                   "more for "
                   "validation",
                   n);
}

/* Divides the samples of the data: a share of them validates. */
static ln_status split(train_trainer *t, ln_error *err) {
    const size_t per = train_per_unit(t), n = t->data.n / per;
    size_t k = 0;
    t->train_rows = ln_zalloc(n + 1, sizeof *t->train_rows);
    t->valid_rows = ln_zalloc((t->how.valid_split > 0 ? n : t->valid.n / per) + 1, sizeof *t->valid_rows);
    if (!t->train_rows || !t->valid_rows) return LN_OOM(err, "the lists of samples");
    for (size_t i = 0; i < n; i++) t->train_rows[i] = 1;
    if (t->how.split_by_hash) k = hold_by_hash(t, t->train_rows, n);
    else if (t->how.valid_split > 0) LN_TRY(hold_by_seed(t, t->train_rows, n, &k, err));
    for (size_t i = 0; i < n; i++)
        if (t->train_rows[i]) t->train_rows[t->n_train++] = (uint32_t)i; /* writes at or before i */
    t->valid_is_split = t->how.valid_split > 0;
    t->n_valid = t->valid_is_split ? k : t->valid.n / per;
    for (size_t i = 0; !t->valid_is_split && i < t->n_valid; i++) t->valid_rows[i] = (uint32_t)i;
    return check_split(t, n, err);
}

/* ---- several files ---- */

/* Decides how many samples an epoch has of each file, which ends before sample ends[i]. */
static ln_status share_files(train_trainer *t, const size_t *ends, ln_error *err) {
    const size_t n = t->how.n_mix + 1, per = train_per_unit(t);
    size_t row = 0;
    t->n_epoch = t->n_train;
    if (n == 1) return LN_OK;
    t->shares = ln_arena_alloc(&t->arena, n * sizeof *t->shares);
    if (!t->shares) return LN_OOM(err, "the files of samples");
    t->n_epoch = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t first = row;
        const double weight = i == 0 ? 1 : t->how.mix[i - 1].weight;
        while (row < t->n_train && per * t->train_rows[row] < ends[i]) row++;
        if (row == first) continue; /* all samples of the file validate */
        const size_t all = row - first, some = (size_t)(weight * (double)all + 0.5);
        t->shares[t->n_shares++] = (train_share){(uint32_t)first, all, LN_MAX(some, (size_t)1)};
        t->n_epoch += LN_MAX(some, (size_t)1);
    }
    return t->n_epoch <= INT32_MAX
               ? LN_OK
               : ln_fail(err, LN_EUSAGE,
                         "ln_trainer_options.mix: an epoch would have %zu samples; lower the "
                         "weights",
                         t->n_epoch);
}

/* Reads the file i of the mixture behind the samples that were read before. */
static ln_status read_more(train_trainer *t, size_t i, ln_error *err) {
    char path[4096], valid[4096];
    train_data more = {0};
    LN_TRY(train_data_paths(t->how.mix[i].path, NULL, path, valid, err));
    ln_status st = train_data_open(&more, t->m, path, t->how.max_length, train_is_in_pairs(t), t->time,
                                   t->how.fields, err);
    if (st == LN_OK) train_data_say(&more);
    if (st == LN_OK) st = train_data_append(&t->data, &more, err);
    train_data_close(&more);
    return st;
}

ln_status train_read_data(train_trainer *t, ln_error *err) {
    char train[4096], valid[4096];
    const bool pairs = train_is_in_pairs(t);
    LN_TRY(train_data_paths(t->how.data, t->how.valid, train, valid, err));
    LN_TRY(train_data_open(&t->data, t->m, train, t->how.max_length, pairs, t->time, t->how.fields, err));
    train_data_say(&t->data);
    size_t *ends = ln_arena_alloc(&t->arena, (t->how.n_mix + 1) * sizeof *ends);
    if (!ends) return LN_OOM(err, "the files of samples");
    ends[0] = t->data.n;
    for (size_t i = 0; i < t->how.n_mix; i++) {
        LN_TRY(read_more(t, i, err));
        ends[i + 1] = t->data.n;
    }
    if (valid[0] && t->how.valid_split > 0)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.valid_split: expected 0, because %s has samples for validation",
                       valid);
    if (valid[0]) {
        LN_TRY(train_data_open(&t->valid, t->m, valid, t->how.max_length, pairs, t->time, t->how.fields,
                               err));
        train_data_say(&t->valid);
    }
    if (t->how.valid_split > 0 && t->data.n / train_per_unit(t) < 2)
        return ln_fail(err, LN_EINVALID, "%s: a single sample cannot be split for validation", train);
    if (!valid[0] && t->how.valid_split == 0 && t->how.early_stop > 0)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.early_stop: expected 0 if there are no samples for validation");
    LN_TRY(split(t, err));
    return share_files(t, ends, err);
}
