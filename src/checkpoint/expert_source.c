/* Weights of experts: the matrices [X,D,C] of a layer, in whichever way files hold them.
 *
 *     one by one      experts.7.gate_proj.weight [D,C], in any format of the source below
 *     stacked         experts.down_proj [X,D,C]
 *     two in one      experts.gate_up_proj [X,2D,C]: the rows of both halves of an expert one after another,
 *                     or in turn (gpt-oss)
 *     outputs last    [X,C,D] or [X,C,2D], of dense tensors (gpt-oss)
 *
 * This source wraps the one of the checkpoint's format. What is stacked that one hands out as it is. The rest
 * is handed out rows at a time: those of one expert in place if the file holds them one after another,
 * others copied. A layer whose experts are in tensors of two such kinds is rejected: they may differ. */
#include "../base/file.h"
#include "scheme.h"

#include <stdio.h>

/* What is known of a weight that is not stacked (ln_weight.how). */
typedef struct experts {
    ln_experts_in in;
    bool out_last;
} experts;

static int64_t rows_of_expert(const ln_weight *w) { return w->d0 / w->n_experts; }

static void expert_name(char out[LN_SOURCE_NAME], const char *name, int64_t x) {
    const char *mark = strstr(name, "{x}");
    if (mark)
        (void)snprintf(out, LN_SOURCE_NAME, "%.*s%lld%s", (int)(mark - name), name, (long long)x, mark + 3);
    else (void)snprintf(out, LN_SOURCE_NAME, "%s", name);
}
/* A tensor that a weight with this name, of expert x, would have; NULL: none. */
static const ln_tensor *tensor_of(const ln_source *s, const char *name, int64_t x) {
    static const char *const ends[] = {"", "_blocks"};
    char text[LN_SOURCE_NAME], ended[LN_SOURCE_NAME + 8];
    const size_t n = strlen(name), tail = strlen(".weight");
    const ln_tensor *t = NULL;
    expert_name(text, name, x);
    if (n > tail && strcmp(name + n - tail, ".weight") == 0) return ln_source_tensor(s->tensors, text);
    for (size_t i = 0; i < LN_COUNT(ends) && !t; i++) {
        (void)snprintf(ended, sizeof ended, "%s%s", text, ends[i]);
        t = ln_tensors_find(s->tensors, ended);
    }
    return t;
}
/* Whether there is any tensor with this name: of experts one by one some are looked for, since one may be
 * missing. */
static const ln_tensor *any_of(const ln_source *s, const char *name, int64_t X) {
    const int64_t some[] = {0, 1, X - 1};
    const ln_tensor *t = NULL;
    for (size_t i = 0; i < LN_COUNT(some) && !t; i++) t = tensor_of(s, name, some[i]);
    return t;
}

/* Sets *at to the name that the tensors have. False: they have none and *at is -1,
 * or two, which is reported. */
static bool find_name(const ln_source *s, const ln_source_ask *ask, int64_t X, int *at) {
    const ln_tensor *first = NULL;
    char text[96 + 80], shown[80];
    *at = -1;
    for (size_t i = 0; i < ask->n_names; i++) {
        const ln_tensor *t = any_of(s, ask->names[i], X);
        if (!t || t == first) continue;
        if (!first) first = t, *at = (int)i;
        else {
            (void)snprintf(text, sizeof text, ": these experts are in %s, too; expected one of both",
                           ln_excerpt(shown, t->name, t->name_bytes));
            ln_report_fault(ask->report, first->name, text);
            return false;
        }
    }
    return *at >= 0;
}

static ln_source_ask one_name(const ln_source_ask *ask, const char *const *name) {
    return (ln_source_ask){.names = name, .n_names = 1, .report = ask->report};
}
/* Reports expert x, whose tensor is missing. */
static void report_missing(const ln_source_ask *ask, const char *name) {
    if (!ln_report_misplaced(ask->report, name)) ln_report_fault(ask->report, name, " is missing");
}
static ln_status find_each(const ln_source *s, const ln_source_ask *ask, const char *name, ln_weight *w,
                           bool *fits, ln_error *err) {
    ln_weight *parts = ln_arena_alloc(s->arena, (size_t)w->n_experts * sizeof *parts);
    if (!parts) return LN_OOM(err, "the experts");
    *fits = true;
    for (int64_t x = 0; x < w->n_experts; x++) {
        char text[LN_SOURCE_NAME];
        const char *const names[] = {text};
        const ln_source_ask each = one_name(ask, names);
        bool ok = false;
        expert_name(text, name, x);
        parts[x] = (ln_weight){
            .slot = w->slot, .layer = w->layer, .d0 = rows_of_expert(w), .d1 = w->d1, .uses = w->uses};
        LN_TRY(s->of->ops->find(s->of, &each, &parts[x], &ok, err));
        if (!parts[x].tensor) report_missing(ask, text);
        else if (ok && !ln_encoding_same(parts[x].enc, parts[0].enc) && parts[0].tensor) {
            ln_report_fault(ask->report, text, ": it is stored in another format than expert 0");
            ok = false;
        }
        *fits &= parts[x].tensor && ok;
        if (!w->tensor) w->tensor = parts[x].tensor;
    }
    w->parts = parts;
    w->n_parts = w->n_experts;
    if (*fits) ln_take_format(w, &parts[0]);
    return LN_OK;
}

/* Whether a tensor without a format of its own has outputs as its last axis, as that kind says. */
static bool is_out_last(const ln_source *s, uint8_t in, const char *name) {
    ln_dtype dtype;
    const ln_tensor *t = in & LN_EXPERTS_OUT_LAST ? ln_tensors_find(s->tensors, name) : NULL;
    return t && ln_tensor_is_computed(t, &dtype);
}
/* A dense tensor [X,C,rows]. */
static void find_out_last(const ln_source *s, const ln_source_ask *ask, const char *name, ln_weight *part,
                          bool *fits) {
    const int64_t dims[3] = {part->n_experts, part->d1, part->d0 / part->n_experts};
    part->tensor = ln_tensors_find(s->tensors, name);
    (void)ln_tensor_is_computed(part->tensor, &part->dtype);
    part->enc = ln_encoding_dense(part->dtype);
    *fits = ln_report_shape(ask->report, part->tensor, 3, dims, "");
}

/* One tensor for all experts, perhaps with the rows of two weights. */
static ln_status find_joint(const ln_source *s, const ln_source_ask *ask, int at, ln_weight *w, bool *fits,
                            ln_error *err) {
    const char *name = ask->names[at];
    const uint8_t in = ask->experts[at];
    const ln_source_ask one = one_name(ask, &name);
    experts how = {.in = in & (LN_EXPERTS_OUT_LAST - 1), .out_last = is_out_last(s, in, name)};
    if (how.in == LN_EXPERTS_STACKED && !how.out_last) return s->of->ops->find(s->of, &one, w, fits, err);
    ln_weight *part = ln_arena_alloc(s->arena, sizeof *part);
    if (!part) return LN_OOM(err, "the experts");
    *part = *w;
    if (how.in != LN_EXPERTS_STACKED) part->d0 *= 2;
    if (how.out_last) find_out_last(s, ask, name, part, fits);
    else LN_TRY(s->of->ops->find(s->of, &one, part, fits, err));
    w->tensor = part->tensor;
    w->parts = part;
    w->n_parts = 1;
    if (!*fits) return LN_OK;
    ln_take_format(w, part);
    w->how = ln_scheme_keep(s, &how, sizeof how);
    return w->how ? LN_OK : LN_OOM(err, "the experts");
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    int at;
    if (!w->n_experts) return s->of->ops->find(s->of, ask, w, fits, err);
    *fits = false;
    if (!find_name(s, ask, w->n_experts, &at)) {
        if (at >= 0) w->tensor = any_of(s, ask->names[at], w->n_experts);
        return LN_OK;
    }
    if (ask->experts[at] == LN_EXPERTS_EACH) return find_each(s, ask, ask->names[at], w, fits, err);
    return find_joint(s, ask, at, w, fits, err);
}

uint8_t ln_source_experts_in(const ln_weight *w) {
    const experts *how = w->how;
    if (!w->parts) return LN_EXPERTS_STACKED;
    if (w->n_parts == w->n_experts && (w->n_experts > 1 || w->parts[0].n_experts == 0))
        return LN_EXPERTS_EACH;
    return (uint8_t)(how->in | (how->out_last ? LN_EXPERTS_OUT_LAST : 0));
}

/* ---- rows ---- */

/* Row r of an expert of a weight: the row of the tensor that stores it. */
static int64_t stored_row(const ln_weight *w, int64_t x, int64_t r) {
    const experts *how = w->how;
    const int64_t D = rows_of_expert(w);
    switch (how->in) {
    case LN_EXPERTS_FIRST: return x * 2 * D + r;
    case LN_EXPERTS_SECOND: return x * 2 * D + D + r;
    case LN_EXPERTS_EVEN: return x * 2 * D + 2 * r;
    case LN_EXPERTS_ODD: return x * 2 * D + 2 * r + 1;
    default: return x * D + r;
    }
}
static bool is_in_turn(const ln_weight *w) {
    const experts *how = w->how;
    return how && (how->in == LN_EXPERTS_EVEN || how->in == LN_EXPERTS_ODD);
}

/* Rows of a dense tensor whose outputs are its last axis. */
typedef struct turning {
    const ln_weight *w;
    int64_t x, row0;
    uint8_t *to;
} turning;
static void turn_rows(void *user, int thread, int64_t lo, int64_t hi) {
    const turning *t = user;
    const ln_weight *w = t->w, *part = w->parts;
    const size_t element = (size_t)ln_dtype_bytes(w->dtype);
    const int64_t rows = part->d0 / part->n_experts, C = w->d1 ? w->d1 : 1;
    const uint8_t *matrix = part->tensor->data + (size_t)(t->x * rows * C) * element;
    (void)thread;
    for (int64_t c = 0; c < C; c++)
        for (int64_t r = lo; r < hi; r++)
            memcpy(t->to + (size_t)(r * C + c) * element,
                   matrix + (size_t)(c * rows + stored_row(w, t->x, t->row0 + r) - t->x * rows) * element,
                   element);
}

/* Rows row0 .. row0 + n - 1 of expert x, into their place or, if `to` is NULL, as they lie or in `buffer`. */
static ln_status expert_rows(const ln_source *s, const ln_weight *w, int64_t x, int64_t row0, int64_t n,
                             const ln_source_work *work, void *buffer, const ln_row_place *to,
                             ln_encoded_rows *out, ln_error *err) {
    const experts *how = w->how;
    const bool in_turn = is_in_turn(w), each = !how;
    const ln_weight *part = each ? &w->parts[x] : w->parts;
    const ln_row_place here = to ? *to : ln_row_place_of(w, buffer, n, 0);
    *out = (ln_encoded_rows){.data = here.data, .scales = here.scales, .offsets = here.offsets};
    if (how && how->out_last) {
        turning t = {.w = w, .x = x, .row0 = row0, .to = here.data};
        ln_pool_run_units(work->pool, work->n_threads, n,
                          LN_MAX((int64_t)16, LN_POOL_SLICE_BYTES / (w->d1 * 4)), turn_rows, &t);
        const int64_t bytes = (int64_t)part->tensor->bytes / w->n_experts;
        if (row0 + n == rows_of_expert(w)) ln_guard_release(part->tensor->data + x * bytes, (size_t)bytes);
        return LN_OK;
    }
    const int64_t first = each ? row0 : stored_row(w, x, row0), some = in_turn ? 2 * n - 1 : n;
    if (!to && !in_turn) return s->of->ops->rows(s->of, part, first, n, work, buffer, out, err);
    ln_encoded_rows from;
    void *copy = part->made ? ln_alloc(ln_source_bytes(part, some)) : NULL;
    if (part->made && !copy) return LN_OOM(err, "rows of an expert");
    const ln_status st = s->of->ops->rows(s->of, part, first, some, work, copy, &from, err);
    if (st == LN_OK) ln_rows_copy(w, here, &from, n, in_turn ? 2 : 1);
    if (st == LN_OK && !copy) ln_rows_release(part, &from, some);
    if (st == LN_OK) out->columns = from.columns;
    ln_free(copy);
    return st;
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!w->parts) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    const int64_t D = rows_of_expert(w);
    const bool one = row0 / D == (row0 + n - 1) / D; /* all rows are of one expert */
    ln_encoded_rows got = {0};
    for (int64_t at = 0, some; at < n; at += some) {
        const int64_t x = (row0 + at) / D, r = (row0 + at) % D;
        some = LN_MIN(n - at, D - r);
        const ln_row_place to = ln_row_place_of(w, buffer, n, at);
        LN_TRY(expert_rows(s, w, x, r, some, work, buffer, one ? NULL : &to, &got, err));
        if (got.columns)
            return ln_fail(err, LN_EUNSUPPORTED,
                           "tensor %s: experts whose columns are in groups out of order (desc_act) are not "
                           "supported; quantise the model without desc_act",
                           (w->n_parts > 1 ? &w->parts[x] : w->parts)->tensor->name);
    }
    const ln_row_place all = ln_row_place_of(w, buffer, n, 0);
    *out = one ? got : (ln_encoded_rows){.data = all.data, .scales = all.scales, .offsets = all.offsets};
    return LN_OK;
}

static const ln_source_ops expert_ops = {.find = find, .rows = rows};

const ln_source *ln_source_of_experts(ln_arena *arena, const ln_source *of) {
    ln_source *s = ln_arena_alloc(arena, sizeof *s);
    if (s)
        *s = (ln_source){
            .ops = &expert_ops, .tensors = of->tensors, .quant = of->quant, .of = of, .arena = arena};
    return s;
}
