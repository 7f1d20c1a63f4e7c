/* linnet explain and linnet diff: a model's program node by node, with its cost on this machine, or
 * compared with the reference device.
 *
 * A model with 36 layers has 36 times the same nodes. The printed table merges nodes that differ only by
 * their layer, and -v shows each; --json always lists each. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum { REPS = 5 };

/* ---- nodes and groups of nodes ---- */

typedef struct group {
    char *op, *kernel, *makes, *reads;
    int n;
    double flops, bytes, seconds; /* sums */
    double difference, bound;     /* maxima */
} group;

typedef struct listing {
    const args *a;
    group *groups;
    size_t n, cap;
    ln_str nodes; /* JSON of the nodes so far */
    double seconds;
} listing;

/* A value's name without the number of its layer: layers.7.attn.q becomes layers.*.attn.q. */
static char *without_layer(const char *text) {
    static const char word[] = "layers.";
    ln_str s = {0};
    for (const char *c = text; *c;) {
        size_t n = sizeof word - 1, digits = strncmp(c, word, n) == 0 ? strspn(c + n, "0123456789") : 0;
        ln_str_add(&s, c, digits ? n : 1);
        if (digits) ln_str_adds(&s, "*");
        c += digits ? n + digits : 1;
    }
    if (!s.failed) return s.data;
    ln_str_free(&s);
    return NULL;
}

static void drop_group(group *g) {
    ln_free(g->op);
    ln_free(g->kernel);
    ln_free(g->makes);
    ln_free(g->reads);
}

static char *copy(const char *text) { return ln_strndup(text, strlen(text)); }

/* The group of a node; with -v each node has its own. A group shows the inputs of its last node, because
 * those of the first layer differ from the others. */
static ln_status group_of(listing *l, const ln_node_report *r, group **out, ln_error *err) {
    bool each = has(l->a, F_VERBOSE);
    group g = {.op = copy(r->op),
               .kernel = copy(r->kernel),
               .makes = each ? copy(r->makes) : without_layer(r->makes),
               .reads = each || !*r->reads ? copy(r->reads) : without_layer(r->reads)};
    ln_status st = g.op && g.kernel && g.makes && g.reads ? LN_OK : LN_OOM(err, "the nodes");
    for (size_t i = 0; st == LN_OK && !each && i < l->n; i++) {
        group *have = &l->groups[i];
        if (strcmp(have->makes, g.makes) != 0 || strcmp(have->op, g.op) != 0) continue;
        g.n = have->n, g.flops = have->flops, g.bytes = have->bytes, g.seconds = have->seconds;
        g.difference = have->difference, g.bound = have->bound;
        drop_group(have);
        *have = g;
        *out = have;
        return LN_OK;
    }
    void *p = l->groups;
    if (st == LN_OK) st = ln_grow(&p, &l->cap, l->n + 1, sizeof g, err);
    l->groups = p;
    if (st != LN_OK) {
        drop_group(&g);
        return st;
    }
    *out = &l->groups[l->n++];
    **out = g;
    return LN_OK;
}

static ln_status add_to_group(listing *l, const ln_node_report *r, ln_error *err) {
    group *g;
    LN_TRY(group_of(l, r, &g, err));
    g->n++;
    g->flops += r->flops, g->bytes += r->bytes, g->seconds += r->seconds;
    g->difference = LN_MAX(g->difference, r->difference), g->bound = LN_MAX(g->bound, r->bound);
    return LN_OK;
}

static void add_to_object(ln_str *s, const ln_node_report *r, bool compared) {
    ln_str_adds(s, s->len ? ",{" : "{");
    put_int(s, "index", r->index);
    put_int(s, "stage", r->stage);
    put_int(s, "layer", r->layer);
    put_text(s, "op", r->op);
    put_text(s, "kernel", r->kernel);
    put_text(s, "makes", r->makes);
    put_text(s, "reads", r->reads);
    put_real(s, compared ? "difference" : "flops", compared ? r->difference : r->flops);
    put_real(s, compared ? "bound" : "bytes", compared ? r->bound : r->bytes);
    if (!compared) put_real(s, "seconds", r->seconds);
    ln_str_add(s, "}", 1);
}

/* Completes the JSON object in `s` with the list of nodes, and writes it. */
static ln_status print_object(listing *l, ln_str *s, ln_error *err) {
    if (l->nodes.failed) s->failed = true;
    put_key(s, "nodes");
    ln_str_add(s, "[", 1);
    ln_str_add(s, l->nodes.data, l->nodes.len);
    ln_str_adds(s, "]}\n");
    return out_str(s, err);
}

static void listing_free(listing *l) {
    for (size_t i = 0; i < l->n; i++) drop_group(&l->groups[i]);
    ln_free(l->groups);
    ln_str_free(&l->nodes);
}

/* ---- explain ---- */

static ln_status on_cost(void *user, const ln_node_report *r, ln_error *err) {
    listing *l = user;
    l->seconds += r->seconds;
    if (!has(l->a, F_JSON)) return add_to_group(l, r, err);
    add_to_object(&l->nodes, r, false);
    return LN_OK;
}

static ln_status explain_json(listing *l, const ln_program_report *p, ln_error *err) {
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_int(&s, "rows", p->n_rows);
    put_int(&s, "depth", p->depth);
    put_int(&s, "threads", p->n_threads);
    put_int(&s, "stages", p->n_stages);
    put_uint(&s, "temp_bytes", p->temp_bytes);
    put_real(&s, "step_seconds", p->seconds);
    put_real(&s, "nodes_seconds", l->seconds);
    return print_object(l, &s, err);
}

static ln_status explain_text(const listing *l, const ln_program_report *p, ln_error *err) {
    ln_str s = {0};
    char temp[32];
    ln_str_addf(&s, "%lld row%s at depth %lld, %d thread%s: %d nodes in %d stages, values share %s\n",
                (long long)p->n_rows, p->n_rows == 1 ? "" : "s", (long long)p->depth, p->n_threads,
                p->n_threads == 1 ? "" : "s", p->n_nodes, p->n_stages, bytes_text(temp, p->temp_bytes));
    ln_str_addf(&s, "a step takes %.3f ms; node by node, with a barrier after each, %.3f ms\n\n",
                1e3 * p->seconds, 1e3 * l->seconds);
    ln_str_addf(&s, "%7s %9s %5s  %-11s %-7s %9s %9s  %s\n", "share", "ms", "nodes", "op", "kernel", "GFLOP",
                "MB", "makes <- reads");
    for (size_t i = 0; i < l->n; i++) {
        const group *g = &l->groups[i];
        ln_str_addf(&s, "%5.1f %% %9.3f %5d  %-11s %-7s %9.4f %9.3f  %s%s%s\n", 100 * g->seconds / l->seconds,
                    1e3 * g->seconds, g->n, g->op, g->kernel, 1e-9 * g->flops, 1e-6 * g->bytes, g->makes,
                    *g->reads ? " <- " : "", g->reads);
    }
    return out_str(&s, err);
}

static ln_status one_depth(const args *a, int64_t *depth, ln_error *err) {
    *depth = has(a, F_DEPTH) ? a->flag[F_DEPTH].list[0] : 0;
    return a->flag[F_DEPTH].n_list > 1 ? ln_fail(err, LN_EUSAGE, "--depth: one depth at a time") : LN_OK;
}

ln_status cmd_explain(const args *a, ln_error *err) {
    session s = {0};
    listing l = {.a = a};
    ln_program_report p = {.size = sizeof p};
    ln_status st = LN_OK;
    bool prefill = has(a, F_MODE) && a->flag[F_MODE].i == 1;
    int64_t depth;
    LN_GO(one_depth(a, &depth, err));
    LN_GO(options_of(a, &s.opt, err));
    s.opt.n_expected = depth + (prefill ? s.opt.n_chunk : 1);
    LN_GO(ln_model_open(&s.model, a->model, &s.opt, err));
    LN_GO(ln_engine_open(&s.engine, s.model, &s.opt, err));
    LN_GO(ln_explain(s.engine, prefill ? 0 : 1, depth, has(a, F_REPS) ? (int)a->flag[F_REPS].i : REPS,
                     on_cost, &l, &p, err));
    LN_GO(has(a, F_JSON) ? explain_json(&l, &p, err) : explain_text(&l, &p, err));
out:
    listing_free(&l);
    session_close(&s);
    return st;
}

/* ---- diff ---- */

static ln_status on_difference(void *user, const ln_node_report *r, ln_error *err) {
    listing *l = user;
    if (!has(l->a, F_JSON)) return add_to_group(l, r, err);
    add_to_object(&l->nodes, r, true);
    return LN_OK;
}

static ln_status diff_text(const listing *l, bool agree, ln_error *err) {
    ln_str s = {0};
    ln_str_addf(&s, "%10s %8s %5s  %-11s %-7s %s\n", "difference", "bound", "nodes", "op", "kernel", "makes");
    for (size_t i = 0; i < l->n; i++) {
        const group *g = &l->groups[i];
        ln_str_addf(&s, "%10.3g %8.3g %5d  %-11s %-7s %s\n", g->difference, g->bound, g->n, g->op, g->kernel,
                    g->makes);
    }
    if (agree) ln_str_adds(&s, "every node is within its bound\n");
    return out_str(&s, err);
}

static ln_status diff_json(listing *l, bool agree, ln_error *err) {
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_bool(&s, "agree", agree);
    return print_object(l, &s, err);
}

/* The table is printed whether the devices agree or not; the status says which. */
ln_status cmd_diff(const args *a, ln_error *err) {
    session s = {0};
    listing l = {.a = a};
    ln_error verdict = {0};
    ln_status st = LN_OK;
    LN_GO(options_of(a, &s.opt, err));
    if (input_given(a)) LN_GO(session_ids(&s, a, err));
    else LN_GO(ln_model_open(&s.model, a->model, &s.opt, err));
    verdict.code = ln_diff(s.model, &s.opt, s.ids, s.n_ids, on_difference, &l, &verdict);
    if (l.n || l.nodes.len)
        LN_GO(has(a, F_JSON) ? diff_json(&l, verdict.code == LN_OK, err)
                             : diff_text(&l, verdict.code == LN_OK, err));
    st = verdict.code;
    if (st != LN_OK) *err = verdict;
out:
    listing_free(&l);
    session_close(&s);
    return st;
}
