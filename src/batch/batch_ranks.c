/* The thread by which ranks share a file of requests (batch_ranks.h). */
#include "batch_ranks.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { ROUND_MS = 20 };

/* What a rank tells the others in a round. */
typedef struct news {
    int32_t status; /* of its work */
    int32_t ended;  /* of rank 0: all is written */
    uint64_t wanted, bytes;
    char message[sizeof((ln_error *)0)->message];
} news;

struct batch_ranks {
    ln_transport *t;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const uint8_t *done; /* [n] */
    size_t n, cursor;    /* lines below it are assigned; the same in all ranks */
    size_t *lines;       /* [n_lines] of this rank, from `begun` on not begun yet */
    size_t n_lines, cap_lines, begun, wanted;
    ln_str out, in;        /* shares to send, and those that were received */
    bool ended;            /* this rank has */
    bool over;             /* the thread has ended */
    ln_error mine, failed; /* how this rank ended; the first failure of all */
};

/* ---- shares as bytes ---- */

typedef struct share_head {
    uint64_t line, bytes;
    int64_t outcome;
} share_head;

bool batch_ranks_next(const ln_str *shares, size_t *at, batch_share *out) {
    share_head h;
    if (!shares->data || shares->len - *at < sizeof h) return false;
    memcpy(&h, shares->data + *at, sizeof h);
    *at += sizeof h;
    *out = (batch_share){h.line, (batch_outcome)h.outcome, shares->data + *at, h.bytes};
    *at += h.bytes;
    return true;
}

ln_status batch_ranks_give(batch_ranks *k, const batch_share *share, ln_error *err) {
    const share_head h = {share->line, share->bytes, share->outcome};
    (void)pthread_mutex_lock(&k->lock);
    ln_str_add(&k->out, (const char *)&h, sizeof h);
    ln_str_add(&k->out, share->text, share->bytes);
    const bool failed = k->out.failed;
    (void)pthread_mutex_unlock(&k->lock);
    return failed ? LN_OOM(err, "an answer") : LN_OK;
}

void batch_ranks_receive(batch_ranks *k, ln_str *shares) {
    (void)pthread_mutex_lock(&k->lock);
    *shares = k->in;
    k->in = (ln_str){0};
    (void)pthread_mutex_unlock(&k->lock);
}

/* ---- rounds ---- */

/* Assigns the next lines in the order of the ranks, one to each that wants some until none does. */
static ln_status assign(batch_ranks *k, news *all, ln_error *err) {
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < k->t->size; r++) {
            while (k->cursor < k->n && k->done[k->cursor]) k->cursor++;
            if (all[r].wanted == 0 || k->cursor == k->n) continue;
            all[r].wanted--;
            more = true;
            const size_t line = k->cursor++;
            if (r != k->t->rank) continue;
            void *lines = k->lines;
            LN_TRY(ln_grow(&lines, &k->cap_lines, k->n_lines + 1, sizeof *k->lines, err));
            k->lines = lines;
            k->lines[k->n_lines++] = line;
        }
    }
    return LN_OK;
}

/* What this rank has to tell; its shares move to *shares. */
static news tell(batch_ranks *k, ln_str *shares) {
    const size_t stored = k->n_lines - k->begun;
    news mine = {.status = (int32_t)k->mine.code, .ended = k->ended};
    *shares = k->out;
    k->out = (ln_str){0};
    mine.bytes = shares->len;
    mine.wanted = k->ended || k->wanted < stored ? 0 : k->wanted - stored;
    memcpy(mine.message, k->mine.message, sizeof mine.message);
    return mine;
}

static void take_failure(const batch_ranks *k, news *all, int r, ln_error *err) {
    all[r].message[sizeof all[r].message - 1] = '\0';
    if (r == 0) (void)ln_fail(err, (ln_status)all[r].status, "%s", all[r].message);
    else (void)ln_fail(err, (ln_status)all[r].status, "rank %d of %d: %s", r, k->t->size, all[r].message);
}

/* Exchanges once. *over: no further round follows, in any rank. */
static ln_status exchange(batch_ranks *k, news *all, size_t *ends, bool *over, ln_error *err) {
    ln_str shares;
    char *received = NULL;
    bool any = false;
    (void)pthread_mutex_lock(&k->lock);
    const news mine = tell(k, &shares);
    (void)pthread_mutex_unlock(&k->lock);
    ln_status st = k->t->all_gather(k->t, &mine, sizeof mine, all);
    if (st != LN_OK) (void)ln_ranks_failed(k->t, err);
    for (int r = 0; r < k->t->size && st == LN_OK; r++) any = any || all[r].bytes;
    if (st == LN_OK && any) st = ln_ranks_collect(k->t, shares.data, shares.len, &received, ends, err);
    ln_str_free(&shares);
    for (int r = 0; r < k->t->size && st == LN_OK; r++) {
        if (all[r].status == LN_OK) continue;
        take_failure(k, all, r, err);
        st = (ln_status)all[r].status;
    }
    *over = st != LN_OK || all[0].ended;
    (void)pthread_mutex_lock(&k->lock);
    if (any && received && k->t->rank == 0) ln_str_add(&k->in, received, ends[k->t->size - 1]);
    if (st == LN_OK && k->in.failed) k->mine.code = LN_OOM(&k->mine, "answers");
    if (st == LN_OK) (void)assign(k, all, &k->mine); /* a failure is told in the next round */
    (void)pthread_cond_broadcast(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
    ln_free(received);
    return st;
}

/* Waits with the lock held. */
static void wait_for(batch_ranks *k, double seconds) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000L, until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&k->changed, &k->lock, &until);
}

static void *exchange_all(void *user) {
    batch_ranks *k = user;
    const struct timespec pause = {0, ROUND_MS * 1000000L};
    news *all = ln_zalloc((size_t)k->t->size, sizeof *all);
    size_t *ends = ln_zalloc((size_t)k->t->size, sizeof *ends);
    ln_error err = {0};
    ln_status st = all && ends ? LN_OK : LN_OOM(&err, "ranks");
    for (bool over = false; st == LN_OK && !over;) {
        st = exchange(k, all, ends, &over, &err);
        if (st == LN_OK && !over) (void)nanosleep(&pause, NULL);
    }
    (void)pthread_mutex_lock(&k->lock);
    k->over = true;
    k->failed = err;
    k->failed.code = st;
    (void)pthread_cond_broadcast(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
    ln_free(all), ln_free(ends);
    return NULL;
}

/* ---- the work of this rank ---- */

static void release(batch_ranks *k) {
    (void)pthread_mutex_destroy(&k->lock);
    (void)pthread_cond_destroy(&k->changed);
    ln_str_free(&k->in), ln_str_free(&k->out);
    ln_free(k->lines);
    ln_free(k);
}

ln_status batch_ranks_open(batch_ranks **out, ln_transport *t, uint8_t *done, size_t n, ln_status st,
                           uint64_t digest, ln_error *err) {
    *out = NULL;
    if (!t) return st;
    batch_ranks *k = ln_zalloc(1, sizeof *k);
    if (st == LN_OK && !k) st = LN_OOM(err, "ranks");
    st = ln_ranks_agree(t, st, digest, "requests, model or settings are others than those of rank 0", err);
    if (st == LN_OK && t->broadcast(t, done, n) != LN_OK) st = ln_ranks_failed(t, err);
    if (st != LN_OK) {
        ln_free(k);
        return st;
    }
    k->t = t, k->done = done, k->n = n;
    (void)pthread_mutex_init(&k->lock, NULL);
    (void)pthread_cond_init(&k->changed, NULL);
    st = pthread_create(&k->thread, NULL, exchange_all, k) == 0 ? LN_OK
                                                                : LN_OOM(err, "the thread of the ranks");
    if (st == LN_OK) *out = k;
    else release(k);
    return st;
}

bool batch_ranks_take(batch_ranks *k, size_t wanted, size_t *line) {
    (void)pthread_mutex_lock(&k->lock);
    k->wanted = wanted;
    const bool has = k->begun < k->n_lines;
    if (has) *line = k->lines[k->begun++];
    (void)pthread_mutex_unlock(&k->lock);
    return has;
}

ln_status batch_ranks_wait(batch_ranks *k, double seconds, bool *ended, ln_error *err) {
    (void)pthread_mutex_lock(&k->lock);
    if (seconds > 0 && !k->over) wait_for(k, seconds);
    *ended = k->over;
    const ln_status st = k->over ? k->failed.code : LN_OK;
    if (st != LN_OK && err) *err = k->failed;
    (void)pthread_mutex_unlock(&k->lock);
    return st;
}

ln_status batch_ranks_close(batch_ranks **ranks, ln_status st, ln_error *err) {
    batch_ranks *k = *ranks;
    if (!k) return st;
    (void)pthread_mutex_lock(&k->lock);
    if (st != LN_OK && k->mine.code == LN_OK) {
        if (err) k->mine = *err;
        k->mine.code = st;
    }
    k->ended = true;
    (void)pthread_mutex_unlock(&k->lock);
    (void)pthread_join(k->thread, NULL);
    if (st == LN_OK && k->failed.code != LN_OK) {
        if (err) *err = k->failed;
        st = k->failed.code;
    }
    release(k);
    *ranks = NULL;
    return st;
}
