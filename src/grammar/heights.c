/* Which expressions some text completes, and how many frames that takes at least. */
#include "grammar_build.h"

/* The expressions that contain each expression, and a list of those whose height is found. */
typedef struct heights {
    uint32_t *users, *users_at; /* those of expression i are users[users_at[i] .. users_at[i + 1]) */
    gr_node *now, *later;       /* of the height that is looked for, and of the next one */
    size_t n_now, n_later;
} heights;

static bool open_users(const ln_grammar *g, heights *h) {
    h->users = ln_alloc(2 * g->n_exprs * sizeof *h->users);
    h->users_at = ln_zalloc(g->n_exprs + 2, sizeof *h->users_at);
    h->now = ln_alloc(g->n_exprs * sizeof *h->now);
    h->later = ln_alloc(g->n_exprs * sizeof *h->later);
    if (!h->users || !h->users_at || !h->now || !h->later) return false;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < g->n_exprs; i++) {
            const gr_expr *e = &g->exprs[i];
            const bool one = e->kind == GR_IS_RULE || e->kind == GR_IS_REPEAT;
            const bool two = e->kind == GR_IS_SEQ || e->kind == GR_IS_ALT;
            if (pass == 0) {
                h->users_at[e->a + 2] += one || two;
                h->users_at[e->b + 2] += two;
                continue;
            }
            if (one || two) h->users[h->users_at[e->a + 1]++] = (uint32_t)i;
            if (two) h->users[h->users_at[e->b + 1]++] = (uint32_t)i;
        }
        for (size_t i = 2; pass == 0 && i < g->n_exprs + 2; i++) h->users_at[i] += h->users_at[i - 1];
    }
    return true;
}

/* The height of an expression, given those of others that were found; see ln_grammar. */
static uint32_t height_of(const gr_expr *e, const uint16_t *height) {
    const uint32_t a = e->kind == GR_IS_SET ? 0 : height[e->a];
    const uint32_t above = a == GR_ENDLESS ? a : LN_MIN(a + 1, GR_ENDLESS - 1u);
    switch (e->kind) {
    case GR_IS_NOTHING: return GR_ENDLESS;
    case GR_IS_SEQ: return LN_MAX(above, height[e->b]);
    case GR_IS_ALT: return LN_MIN(a, height[e->b]);
    case GR_IS_REPEAT: return e->min == 0 ? 1 : above;
    case GR_IS_RULE: return a;
    default: return 1;
    }
}

/* Finds heights in ascending order: an expression is at most one higher than what it contains. */
static void find(ln_grammar *g, heights *h) {
    for (size_t i = 0; i < g->n_exprs; i++) {
        const gr_expr *e = &g->exprs[i];
        if (e->kind == GR_IS_EMPTY || e->kind == GR_IS_SET || (e->kind == GR_IS_REPEAT && e->min == 0))
            g->height[i] = 1, h->now[h->n_now++] = (gr_node)i;
    }
    for (uint32_t level = 1; h->n_now > 0; level = LN_MIN(level + 1, GR_ENDLESS - 1u)) {
        for (size_t k = 0; k < h->n_now; k++) {
            const gr_node i = h->now[k];
            for (uint32_t u = h->users_at[i]; u < h->users_at[i + 1]; u++) {
                const uint32_t user = h->users[u], found = height_of(&g->exprs[user], g->height);
                if (g->height[user] != GR_ENDLESS || found == GR_ENDLESS) continue;
                g->height[user] = (uint16_t)found;
                if (found <= level) h->now[h->n_now++] = user;
                else h->later[h->n_later++] = user;
            }
        }
        gr_node *const t = h->now;
        h->now = h->later, h->later = t;
        h->n_now = h->n_later, h->n_later = 0;
    }
}

static void close_endless(ln_grammar *g) {
    for (size_t i = 0; i < g->n_exprs; i++) {
        gr_expr *e = &g->exprs[i];
        if (e->kind == GR_IS_REPEAT && e->min == 0 && g->height[e->a] == GR_ENDLESS)
            *e = (gr_expr){.kind = GR_IS_EMPTY}; /* no repetition */
        else if (g->height[i] == GR_ENDLESS) *e = (gr_expr){.kind = GR_IS_NOTHING};
    }
}

ln_status gr_find_heights(ln_grammar *g, gr_node root, bool *ends, ln_error *err) {
    heights h = {0};
    g->height = ln_alloc(g->n_exprs * sizeof *g->height);
    const bool ok = g->height && open_users(g, &h);
    if (ok) {
        for (size_t i = 0; i < g->n_exprs; i++) g->height[i] = GR_ENDLESS;
        find(g, &h);
        *ends = g->height[root] != GR_ENDLESS;
        close_endless(g);
    }
    ln_free(h.users);
    ln_free(h.users_at);
    ln_free(h.now);
    ln_free(h.later);
    return ok ? LN_OK : LN_OOM(err, "a grammar");
}
