/* Exchanges of ranks (rank_exchange.h), by the two operations of a transport. */
#include "rank_exchange.h"

#include <string.h>

enum { PIECE = 1 << 20 }; /* bytes of a rank in one exchange of ln_ranks_collect */

ln_status ln_ranks_agree(ln_transport *t, ln_status st, uint64_t digest, const char *what, ln_error *err) {
    typedef struct answer {
        int32_t status;
        uint64_t digest;
        char message[sizeof((ln_error *)0)->message];
    } answer;
    answer mine = {.status = (int32_t)st, .digest = digest}, *all = ln_zalloc((size_t)t->size, sizeof *all);
    if (!all) return LN_OOM(err, "ranks");
    if (st != LN_OK && err) memcpy(mine.message, err->message, sizeof mine.message);
    ln_status got = t->all_gather(t, &mine, sizeof mine, all);
    if (got != LN_OK && err) *err = t->failed;
    for (int i = 0; i < t->size && got == LN_OK; i++) {
        all[i].message[sizeof all[i].message - 1] = '\0';
        if (all[i].status != LN_OK && i == 0)
            got = ln_fail(err, (ln_status)all[i].status, "%s", all[i].message);
        else if (all[i].status != LN_OK)
            got = ln_fail(err, (ln_status)all[i].status, "rank %d of %d: %s", i, t->size, all[i].message);
    }
    for (int i = 1; i < t->size && got == LN_OK; i++)
        if (all[i].digest != all[0].digest)
            got = ln_fail(err, LN_EUSAGE, "rank %d of %d: its %s; all ranks must have the same", i, t->size,
                          what);
    ln_free(all);
    return got;
}

/* Places the bytes at `at` of every rank, of which `gathered` has up to `piece`, into the list of all. */
static void place(char *all, const size_t *ends, int size, const char *gathered, size_t at, size_t piece) {
    for (int r = 0; r < size; r++) {
        const size_t begin = r ? ends[r - 1] : 0, n = ends[r] - begin;
        if (n > at) memcpy(all + begin + at, gathered + (size_t)r * piece, LN_MIN(n - at, piece));
    }
}

ln_status ln_ranks_collect(ln_transport *t, const void *mine, size_t bytes, char **all, size_t *ends,
                           ln_error *err) {
    const size_t size = (size_t)t->size;
    size_t most = 0, total = 0;
    *all = NULL;
    if (t->all_gather(t, &bytes, sizeof bytes, ends) != LN_OK) return ln_ranks_failed(t, err);
    for (size_t r = 0; r < size; r++) most = LN_MAX(most, ends[r]), ends[r] = total += ends[r];
    const size_t piece = LN_MIN(most, (size_t)PIECE);
    char *gathered = ln_zalloc(size * piece + 1, 1), *block = ln_zalloc(piece + 1, 1);
    *all = ln_zalloc(total + 1, 1);
    ln_status st = gathered && block && *all ? LN_OK : LN_OOM(err, "results of ranks");
    st = ln_ranks_agree(t, st, 0, "", err); /* the exchanges that follow are made by all or by none */
    for (size_t at = 0; at < most && st == LN_OK; at += piece) {
        if (bytes > at) memcpy(block, (const char *)mine + at, LN_MIN(bytes - at, piece));
        st = t->all_gather(t, block, piece, gathered);
        if (st == LN_OK) place(*all, ends, t->size, gathered, at, piece);
        else (void)ln_ranks_failed(t, err);
    }
    ln_free(gathered), ln_free(block);
    if (st != LN_OK) ln_free(*all), *all = NULL;
    return st;
}
