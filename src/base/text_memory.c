/* Accounts and budgets of text memory: see text_memory.h. */
#include "text_memory.h"
#include "memory_use.h"

#include <pthread.h>
#include <stdio.h>

/* SMALL_STEP, STEP: bytes that an account reserves at a time, below and from STEP on. HEADER: what the
 * allocator adds to a block. MARGIN: bytes that stay free of a limit, because the count of resident memory is
 * not exact; so does an eighth of it, for what the allocator keeps. */
enum { SMALL_STEP = 4096, STEP = 65536, HEADER = 8, MARGIN = 1 << 20 };

_Thread_local ln_account *ln_account_here;

/* ---- the process ---- */

enum { PLANNED = 1 << 20 }; /* bytes for texts that no engine has to plan: small texts ask no limit */
static _Atomic uint64_t limit, used, planned = PLANNED;
/* Bytes that texts may hold beyond the plan, found when they first needed more than it; 0: not asked yet. */
static _Atomic uint64_t allowed;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(const char *) allowed_by;
static uint64_t (*_Atomic to_come)(void);

uint64_t ln_limit_get(void) { return atomic_load(&limit); }
uint64_t ln_limit_set(uint64_t bytes) { return atomic_exchange(&limit, bytes); }
void ln_texts_to_come(uint64_t (*fn)(void)) { to_come = fn; }
uint64_t ln_texts_used(void) { return atomic_load(&used); }
uint64_t ln_texts_unused(void) {
    const uint64_t plan = atomic_load(&planned) - PLANNED, now = atomic_load(&used);
    return plan - LN_MIN(plan, now);
}
void ln_texts_plan(int64_t bytes) { atomic_fetch_add(&planned, (uint64_t)bytes); }

/* What the limit of the process leaves for texts, what is planned for them included. */
static uint64_t ask_limit(void) {
    const char *by;
    const uint64_t here = ln_memory_resident(), most = ln_limit_get();
    uint64_t left = ln_memory_left(&by);
    if (most > 0 && (most <= here || most - here < left)) {
        left = most > here ? most - here : 0;
        by = "ln_memory_set_limit";
    }
    uint64_t (*const fn)(void) = to_come;
    const uint64_t coming = fn ? fn() : 0;
    left -= LN_MIN(left, coming);
    left -= LN_MIN(left, left / 8 + MARGIN);
    atomic_store(&allowed_by, by);
    return LN_MAX(left, (uint64_t)1);
}

/* Reserves bytes of the process. False: they are more than it may take; *most is what it may. The limit is
 * asked once for as long as texts hold more than was planned: what they have reserved may not be resident
 * yet, so that a later answer would count it twice. */
static bool process_take(uint64_t bytes, uint64_t *most) {
    const uint64_t now = atomic_fetch_add(&used, bytes) + bytes, plan = atomic_load(&planned);
    if (now <= plan) return true;
    (void)pthread_mutex_lock(&asking);
    if (atomic_load(&allowed) == 0) atomic_store(&allowed, ask_limit());
    *most = LN_MAX(atomic_load(&allowed), plan);
    (void)pthread_mutex_unlock(&asking);
    if (now <= *most) return true;
    atomic_fetch_sub(&used, bytes);
    return false;
}

static void process_give(uint64_t bytes) {
    if (atomic_fetch_sub(&used, bytes) - bytes <= atomic_load(&planned)) atomic_store(&allowed, 0);
}

/* ---- budgets ---- */

static void give(ln_budget *b, uint64_t bytes) {
    for (; b; b = b->parent) atomic_fetch_sub(&b->used, bytes);
    process_give(bytes);
}

/* Why bytes were rejected. */
typedef struct refusal {
    uint64_t limit, used; /* of the budget that rejected them */
    const char *limited_by;
} refusal;

/* Reserves bytes of a budget and of those above it. On a refusal nothing is reserved. */
static bool take(ln_budget *budget, uint64_t bytes, refusal *why) {
    ln_budget *b = budget;
    for (; b; b = b->parent) {
        const uint64_t now = atomic_fetch_add(&b->used, bytes) + bytes;
        if (now <= b->limit) continue;
        *why = (refusal){b->limit, now - bytes, b->limited_by};
        b = b->parent; /* the first that has not counted the bytes */
        break;
    }
    const bool refused = why->limited_by != NULL;
    if (!refused && process_take(bytes, &why->limit)) return true;
    for (ln_budget *k = budget; k != b; k = k->parent) atomic_fetch_sub(&k->used, bytes);
    if (refused) return false;
    why->used = atomic_load(&used);
    why->limited_by = atomic_load(&allowed_by);
    return false;
}

static uint64_t in_steps(uint64_t bytes) {
    const uint64_t step = bytes < STEP ? SMALL_STEP : STEP;
    return (bytes + step - 1) / step * step;
}

/* Reserves what is lacking for the account to hold `bytes`; the whole step if the budget has it. */
static bool reserve(ln_account *a, uint64_t bytes) {
    if (bytes <= a->reserved) return true;
    const uint64_t sizes[] = {in_steps(bytes), bytes};
    refusal why = {0};
    for (size_t i = 0; i < LN_COUNT(sizes); i++) {
        why = (refusal){0};
        if (!take(a->budget, sizes[i] - a->reserved, &why)) continue;
        a->reserved = sizes[i];
        return true;
    }
    if (a->asked > 0) return false; /* the first refusal is the one to tell */
    a->asked = bytes;
    a->limit = why.limit;
    a->others = why.used - LN_MIN(why.used, a->reserved);
    a->limited_by = why.limited_by;
    return false;
}

static void shrink(ln_account *a) {
    const uint64_t keep = in_steps(a->bytes);
    if (keep >= a->reserved) return;
    give(a->budget, a->reserved - keep);
    a->reserved = keep;
}

/* ---- accounts ---- */

ln_account *ln_account_enter(ln_account *a) {
    ln_account *outer = ln_account_here;
    ln_account_here = a;
    return outer;
}

void ln_account_leave(ln_account *outer) {
    if (ln_account_here) shrink(ln_account_here);
    ln_account_here = outer;
}

bool ln_account_ask(ln_account *a, uint64_t bytes) {
    uint64_t all;
    return !__builtin_add_overflow(a->bytes + HEADER, bytes, &all) && reserve(a, all);
}

void ln_account_took(ln_account *a, uint64_t usable) {
    a->bytes += usable + HEADER;
    a->peak = LN_MAX(a->peak, a->bytes);
}

void ln_account_gave(ln_account *a, uint64_t usable) {
    a->bytes -= LN_MIN(a->bytes, usable + HEADER);
    if (a->reserved - LN_MIN(a->reserved, a->bytes) > 2 * (uint64_t)STEP) shrink(a);
}

void ln_account_resized(ln_account *a, uint64_t before, uint64_t after) {
    if (after < before) ln_account_gave(a, before - after - LN_MIN(before - after, (uint64_t)HEADER));
    else a->bytes += after - before;
    a->peak = LN_MAX(a->peak, a->bytes);
}

bool ln_account_fits(ln_account *a, uint64_t bytes) {
    if (!reserve(a, a->bytes + bytes)) return false;
    shrink(a);
    return true;
}

bool ln_account_add(ln_account *a, uint64_t bytes) {
    if (!reserve(a, a->bytes + bytes)) return false;
    a->bytes += bytes;
    a->peak = LN_MAX(a->peak, a->bytes);
    return true;
}

void ln_account_subtract(ln_account *a, uint64_t bytes) {
    a->bytes -= LN_MIN(a->bytes, bytes);
    shrink(a);
}

void ln_account_move(ln_account *from, ln_account *to, uint64_t bytes) {
    ln_account_subtract(from, bytes);
    to->bytes += bytes;
    const uint64_t want = in_steps(to->bytes), more = want - LN_MIN(want, to->reserved);
    for (ln_budget *b = to->budget; b; b = b->parent) atomic_fetch_add(&b->used, more);
    atomic_fetch_add(&used, more);
    to->reserved += more;
}

void ln_account_close(ln_account *a) {
    a->bytes = 0;
    shrink(a);
    *a = (ln_account){.budget = a->budget};
}

bool ln_account_never_fits(const ln_account *a) { return a->asked > a->limit; }

ln_status ln_account_error(const ln_account *a, ln_status st, ln_error *err) {
    char need[32], most[32], others[48] = "", held[32];
    if (st != LN_EMEMORY || a->asked == 0) return st;
    if (!ln_account_never_fits(a))
        (void)snprintf(others, sizeof others, ", %s of which are in use", ln_bytes_text(held, a->others));
    return ln_fail(err, st, "reading this text takes %s or more, and %s leaves %s for texts%s",
                   ln_bytes_text(need, a->asked), a->limited_by, ln_bytes_text(most, a->limit), others);
}

void ln_text_begin(ln_text_work *w) {
    *w = (ln_text_work){.is_outermost = ln_account_here == NULL};
    if (w->is_outermost) ln_account_here = &w->own;
}

ln_status ln_text_end(ln_text_work *w, ln_status st, ln_error *err) {
    if (!w->is_outermost) return st;
    ln_account_leave(NULL);
    st = ln_account_error(&w->own, st, err);
    ln_account_close(&w->own);
    return st;
}
