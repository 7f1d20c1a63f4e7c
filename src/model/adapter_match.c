/* Matches the modules of an adapter with the matrices of weights.def, by name and shape. */
#include "adapter_match.h"
#include "../base/c_locale.h"
#include "expert_names.h"
#include "weight_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 80 };

/* Splits "layers.3.self_attn.q_proj" into the name of weights.def, "layers.{}.self_attn.q_proj.weight",
 * and 3. */
static void name_of(const char *path, char name[NAME_BYTES], int64_t *layer) {
    static const char start[] = "layers.";
    const char *at = path + sizeof start - 1;
    size_t digits = 0;
    *layer = -1;
    if (strncmp(path, start, sizeof start - 1) == 0) digits = strspn(at, "0123456789");
    if (digits == 0 || at[digits] != '.' || !ln_parse_i64(at, digits, layer)) {
        (void)snprintf(name, NAME_BYTES, "%s.weight", path);
        return;
    }
    (void)snprintf(name, NAME_BYTES, "layers.{}%s.weight", at + digits);
}

/* The slot of a matrix that has this name in files of the model's family. */
static int find_slot(const ln_spec *s, const char *name) {
    int by_module = LN_W_COUNT;
    for (int i = 0; i < LN_W_COUNT; i++) {
        if (!(ln_slot_rows[i].flags & LN_WF_LORA)) continue;
        const ln_slot_name *own = ln_slot_name_of(s, i);
        const bool renamed = own && own->n_parts == 0;
        if (strcmp(renamed ? own->name : ln_slot_rows[i].name, name) == 0) return i;
        if (renamed && strcmp(ln_slot_rows[i].name, name) == 0) by_module = i;
    }
    return by_module;
}

/* ---- modules of several weights ---- */

/* The family's name of the tensor `name`, if it holds the rows of several weights; else NULL. */
static const ln_slot_name *shared_name(const ln_spec *s, const char *name) {
    for (size_t i = 0; i < s->n_names; i++)
        if (s->names[i].n_parts > 0 && strcmp(s->names[i].name, name) == 0) return &s->names[i];
    return NULL;
}

static int64_t rows_of(const ln_spec *s, const ln_slot_name *shared, int n_parts, int layer) {
    int64_t rows = 0;
    for (int i = 0; i < n_parts; i++) rows += ln_slot_size(s, ln_slot_rows[shared->parts[i]].shape[0], layer);
    return rows;
}

/* The name that the module of a file is to be split by; NULL: it is for one weight, or does not fit. */
static const ln_slot_name *splits_by(const ln_spec *s, const ln_adapter_module *m, int *layer) {
    char name[NAME_BYTES];
    int64_t number;
    name_of(m->path, name, &number);
    const ln_slot_name *shared = number < 0 || number >= s->L ? NULL : shared_name(s, name);
    *layer = (int)LN_MIN(number, (int64_t)INT32_MAX);
    return shared && m->n_out == rows_of(s, shared, shared->n_parts, *layer) ? shared : NULL;
}

static int by_path(const void *key, const void *module) {
    return strcmp(key, ((const ln_adapter_module *)module)->path);
}

/* Sets the rows of a part of a tensor that holds rows by heads. */
static ln_status add_pieces(ln_adapter_file *a, const ln_spec *s, const ln_slot_name *shared, int part,
                            int layer, ln_adapter_module *out, ln_error *err) {
    ln_row_pieces *pieces = ln_arena_alloc(&a->arena, sizeof *pieces);
    if (!pieces) return LN_OOM(err, "an adapter");
    ln_slot_pieces(s, shared, (int)shared->parts[part], layer, pieces);
    out->pieces = pieces;
    return LN_OK;
}

/* Writes the parts of a module to out[]. */
static ln_status split(ln_adapter_file *a, const ln_spec *s, const ln_slot_name *shared, int layer,
                       const ln_adapter_module *m, ln_adapter_module *out, ln_error *err) {
    for (int i = 0; i < shared->n_parts; i++) {
        char path[160], shown[2][80];
        ln_weight_name(path, NULL, shared->parts[i], layer);
        path[strlen(path) - strlen(".weight")] = 0;
        if (bsearch(path, a->modules, a->n, sizeof *a->modules, by_path))
            return ln_fail(err, LN_EINVALID, "%s: modules %s and %s: one tensor of the model holds both",
                           a->path, ln_excerpt(shown[0], m->path, strlen(m->path)),
                           ln_excerpt(shown[1], path, strlen(path)));
        out[i] = *m;
        out[i].path = ln_arena_strndup(&a->arena, path, strlen(path));
        if (!out[i].path) return LN_OOM(err, "an adapter");
        if (s->parts_by_head) LN_TRY(add_pieces(a, s, shared, i, layer, &out[i], err));
        else out[i].row0 = rows_of(s, shared, i, layer);
        out[i].n_out = ln_slot_size(s, ln_slot_rows[shared->parts[i]].shape[0], layer);
        out[i].whole = m->n_out;
    }
    return LN_OK;
}

/* Completes the order of rows of q and k that stand in pairs, from the width of the layer's heads. */
static ln_status set_pairs(ln_adapter_file *a, const ln_spec *s, ln_error *err) {
    for (size_t i = 0; i < a->n; i++) {
        ln_adapter_module *m = &a->modules[i];
        char name[NAME_BYTES], shown[80];
        int64_t layer;
        if (!m->rows.n_outer || m->rows.n_inner) continue;
        name_of(m->path, name, &layer);
        const ln_attn_spec *attn = layer >= 0 && layer < s->L ? ln_attn_of(s, (int)layer) : NULL;
        if (!attn || attn->E < 2 || m->n_out % attn->E)
            return ln_fail(err, LN_EINVALID,
                           "%s: module %s: expected a layer of the model and rows of whole heads", a->path,
                           ln_excerpt(shown, m->path, strlen(m->path)));
        m->rows.n_inner = attn->E / 2;
    }
    return LN_OK;
}

/* ---- modules of experts ---- */

/* The modules of an adapter, those of experts by weight. */
typedef struct gathering {
    ln_adapter_file *a;
    const ln_spec *s;
    ln_adapter_module *all;
    size_t n;
    ln_error *err;
} gathering;

static ln_status refuse_module(const gathering *g, const ln_adapter_module *m, const char *why) {
    char shown[80];
    return ln_fail(g->err, LN_EINVALID, "%s: module %s: %s", g->a->path,
                   ln_excerpt(shown, m->path, strlen(m->path)), why);
}

/* The module of a weight of experts in a layer that was added before; NULL: there is none. */
static ln_adapter_module *find_experts(const gathering *g, int slot, int64_t layer) {
    for (size_t i = g->n; i-- > 0;) {
        char name[NAME_BYTES];
        int64_t number = -1;
        if (g->all[i].weight != slot + 1) continue;
        name_of(g->all[i].path, name, &number);
        if (number == layer) return &g->all[i];
    }
    return NULL;
}

/* Adds the module of one expert to that of its weight. */
static ln_status add_expert(gathering *g, const ln_adapter_module *m, int slot, int64_t layer, int64_t x) {
    const int64_t X = layer < g->s->L ? ln_ffn_of(g->s, (int)layer)->moe.n_experts : 0;
    ln_adapter_module *all = find_experts(g, slot, layer);
    if (x >= X)
        return refuse_module(g, m, "the model has no such expert; the adapter was made for another model");
    if (!all) {
        all = &g->all[g->n++];
        *all = *m;
        all->n_experts = X, all->weight = slot + 1;
        all->each = ln_arena_alloc(&g->a->arena, (size_t)X * sizeof *all->each);
        if (!all->each) return LN_OOM(g->err, "an adapter");
    }
    if (!all->each) return refuse_module(g, m, "the adapter has one module for all of these experts, too");
    if (m->n_in != all->n_in || m->n_out != all->n_out || m->n_experts)
        return refuse_module(g, m, "its shape differs from that of other experts");
    if (m->b_bias || m->bias) return refuse_module(g, m, "biases of experts are not applied");
    if (m->magnitude) return refuse_module(g, m, "DoRA on experts is not applied");
    all->rank = LN_MAX(all->rank, m->rank);
    ((const ln_adapter_module **)(uintptr_t)all->each)[x] = m;
    return LN_OK;
}

/* Adds the module of all experts of a layer as parts for its weights: gate and up have rows of one B. */
static ln_status add_joint(gathering *g, const ln_adapter_module *m, int64_t layer) {
    const ln_moe_spec *moe = &ln_ffn_of(g->s, (int)layer)->moe;
    static const int pair[] = {LN_W_X_GATE, LN_W_X_UP}, down[] = {LN_W_X_DOWN};
    const bool both = m->n_in == g->s->D && m->n_out == 2 * moe->F;
    for (int i = 0; i < (both ? 2 : 1); i++) {
        const int slot = both ? pair[i] : down[i];
        if (find_experts(g, slot, layer))
            return refuse_module(g, m, "the adapter has two modules for the same matrices of experts");
        ln_adapter_module *part = &g->all[g->n++];
        *part = *m;
        part->weight = slot + 1;
        if (!both) continue;
        part->whole = m->n_out, part->n_out = moe->F;
        part->row0 = moe->interleaved ? i : i * moe->F;
        part->row_step = moe->interleaved ? 2 : 1;
    }
    return LN_OK;
}

/* Replaces modules of experts by modules of the weights that the model has for them. */
static ln_status gather_experts(ln_adapter_file *a, const ln_spec *s, ln_error *err) {
    gathering g = {.a = a, .s = s, .err = err};
    bool any = false;
    for (int l = 0; l < s->L && !any; l++) any = ln_ffn_of(s, l)->moe.n_experts > 0;
    if (!any) return LN_OK;
    g.all = ln_arena_alloc(&a->arena, (2 * a->n + 1) * sizeof *g.all);
    if (!g.all) return LN_OOM(err, "an adapter");
    for (size_t i = 0; i < a->n; i++) {
        const ln_adapter_module *m = &a->modules[i];
        int64_t layer = -1, x = -1;
        char path[160];
        (void)snprintf(path, sizeof path, "%.159s", m->path);
        for (char *end; (end = strstr(path, ".base_layer")) != NULL;) *end = '\0';
        const int slot = ln_expert_slot(path, &layer, &x);
        if (slot < LN_W_COUNT && x >= 0) LN_TRY(add_expert(&g, m, slot, layer, x));
        else if (m->n_experts && ln_is_experts_module(s, path, &layer)) LN_TRY(add_joint(&g, m, layer));
        else {
            g.all[g.n] = *m;
            if (slot < LN_W_COUNT && m->n_experts) g.all[g.n].weight = slot + 1;
            g.n++;
        }
    }
    a->modules = g.all, a->n = g.n;
    return LN_OK;
}

int64_t ln_adapter_experts_of(const ln_adapter_module *m) {
    int64_t layer, x = -1;
    if (m->n_experts || ln_expert_slot(m->path, &layer, &x) == LN_W_COUNT) return m->n_experts;
    return x + 1;
}
bool ln_adapter_has_experts(const ln_adapter_file *a) {
    for (size_t i = 0; i < a->n; i++)
        if (ln_adapter_experts_of(&a->modules[i]) > 0) return true;
    return false;
}

/* Writes why a module of experts has no place in the model to why[cap]; true if it has one. */
static bool match_experts(const ln_spec *s, const ln_adapter_module *m, int64_t number, int *slot, int *layer,
                          char *why, size_t cap) {
    *slot = m->weight - 1;
    *layer = (int)LN_MIN(number, (int64_t)INT32_MAX);
    if (number < 0 || number >= s->L || !ln_slot_wanted(s, *slot, *layer)) {
        (void)snprintf(why, cap, "the model has no experts in this layer");
        return false;
    }
    const int64_t X = ln_ffn_of(s, *layer)->moe.n_experts,
                  rows = ln_slot_size(s, ln_slot_rows[*slot].shape[1], *layer),
                  cols = ln_slot_size(s, ln_slot_rows[*slot].shape[2], *layer);
    if (m->n_experts == X && m->n_out == rows && m->n_in == cols) return true;
    (void)snprintf(why, cap,
                   "the adapter is for %lld experts of [%lld,%lld], the model has %lld of [%lld,%lld]",
                   (long long)m->n_experts, (long long)m->n_out, (long long)m->n_in, (long long)X,
                   (long long)rows, (long long)cols);
    return false;
}

ln_status ln_adapter_split(ln_adapter_file *a, const ln_spec *s, ln_error *err) {
    size_t n = 0;
    int layer;
    if (a->modules != a->in_file) return LN_OK; /* it was split before */
    LN_TRY(set_pairs(a, s, err));
    LN_TRY(gather_experts(a, s, err));
    for (size_t i = 0; i < a->n; i++) n += splits_by(s, &a->modules[i], &layer) != NULL;
    if (n == 0) return LN_OK;
    ln_adapter_module *all =
        ln_arena_alloc(&a->arena, (a->n + n * (LN_FUSED_PARTS - 1)) * sizeof *a->modules);
    if (!all) return LN_OOM(err, "an adapter");
    n = 0;
    for (size_t i = 0; i < a->n; i++) {
        const ln_slot_name *shared = splits_by(s, &a->modules[i], &layer);
        if (shared) LN_TRY(split(a, s, shared, layer, &a->modules[i], all + n, err));
        else all[n] = a->modules[i];
        n += shared ? (size_t)shared->n_parts : 1;
    }
    a->modules = all, a->n = n;
    return LN_OK;
}

/* ---- one module ---- */

int ln_adapter_bias_slot(int slot) {
    char name[NAME_BYTES];
    const char *matrix = ln_slot_rows[slot].name;
    int i = 0;
    (void)snprintf(name, sizeof name, "%.*sbias", (int)(strlen(matrix) - strlen("weight")), matrix);
    while (i < LN_W_COUNT && strcmp(ln_slot_rows[i].name, name) != 0) i++;
    return i;
}

/* Writes why the module has no place in the model to why[cap]; true where it has one. */
static bool match(const ln_adapter_file *a, const ln_spec *s, const ln_adapter_module *m, int *slot,
                  int *layer, char *why, size_t cap) {
    char name[NAME_BYTES];
    int64_t number;
    name_of(m->path, name, &number);
    if (m->weight) return match_experts(s, m, number, slot, layer, why, cap);
    const ln_slot_name *shared = shared_name(s, name); /* that ln_adapter_split left: it does not fit */
    *slot = shared ? (int)shared->parts[0] : find_slot(s, name);
    *layer = (int)LN_MIN(number, (int64_t)INT32_MAX);
    if (*slot == LN_W_COUNT) {
        (void)snprintf(why, cap, "no matrix of this name takes an adapter");
        return false;
    }
    const bool in_layer = (ln_slot_rows[*slot].flags & LN_WF_LAYER) != 0;
    if (!in_layer && !ln_slot_wanted(s, *slot, -1)) {
        (void)snprintf(why, cap, "%s",
                       *slot == LN_W_HEAD ? "the model's output head is its embedding table"
                                          : "the model has no matrix of this name");
        return false;
    }
    if (number >= s->L ||
        (a->n_last_layers > 0 && !m->any_layer && number >= 0 && number < s->L - a->n_last_layers)) {
        (void)snprintf(why, cap, "the model has layers 0 to %d%s", s->L - 1,
                       number >= s->L ? "" : ", and num_layers of the adapter excludes this one");
        return false;
    }
    const int l = in_layer ? *layer : -1;
    if (!ln_slot_wanted(s, *slot, l)) {
        const bool shares = (*slot == LN_W_K || *slot == LN_W_V) && !ln_owns_state(s, l);
        (void)snprintf(why, cap, "%s",
                       shares ? "this layer attends to the keys and values of another one"
                              : "the model has no matrix of this name");
        return false;
    }
    const int64_t rows = shared ? rows_of(s, shared, shared->n_parts, l)
                                : ln_slot_size(s, ln_slot_rows[*slot].shape[0], l),
                  cols = ln_slot_size(s, ln_slot_rows[*slot].shape[1], l);
    const int bias = ln_adapter_bias_slot(*slot);
    if (m->bias && (bias == LN_W_COUNT || !ln_slot_wanted(s, bias, l))) {
        (void)snprintf(why, cap, "the adapter has a bias in the place of the model's, which has none there");
        return false;
    }
    if (m->n_out == rows && (m->n_in == cols || !m->a)) return true;
    (void)snprintf(why, cap, "the adapter is for a matrix of [%lld,%lld], the model's is [%lld,%lld]",
                   (long long)m->n_out, (long long)m->n_in, (long long)rows, (long long)cols);
    return false;
}

/* ---- the model's own matrices ---- */

/* The table that a copy is of. */
static const ln_weight *table_of(const ln_weights *w, const ln_adapter_change *x) {
    const int head = w->index_fixed[LN_W_HEAD];
    return &w->items[ln_adapter_is_head(x) && head >= 0 ? head : w->index_fixed[LN_W_EMBED]];
}

/* Whether a tensor has the values of a table. */
static bool has_values(const ln_tensor *t, const ln_weight *own) {
    const int64_t n = own->d0 * own->d1;
    if (own->scales || own->made || !own->tensor || t->n_dims != 2 || t->dims[0] != own->d0 ||
        t->dims[1] != own->d1)
        return false;
    if (t->dtype == own->tensor->dtype && memcmp(t->data, own->tensor->data, t->bytes) == 0) return true;
    for (int64_t i = 0; i < n; i++)
        if (ln_adapter_value(t, (size_t)i) != ln_num_load(own->tensor->data, own->dtype, i)) return false;
    return true;
}

ln_status ln_adapter_compare(ln_adapter_file *a, const ln_spec *s, const ln_weights *w, ln_error *err) {
    for (size_t i = 0; i < a->n_changes; i++) {
        ln_adapter_change *x = &a->changes[i];
        const ln_weight *own = x->is_copy ? table_of(w, x) : NULL;
        if (!own || x->differs || own->changed) continue;
        x->differs = !has_values(x->whole, own);
        if (!x->differs) continue;
        a->n_copies--;
        ln_log(LN_LOG_INFO, "adapter %s: tensor %.120s differs from the model's", a->path, x->whole->name);
    }
    (void)s;
    return ln_tensors_check(&a->tensors, false, err);
}

ln_status ln_adapter_match(const ln_adapter_file *a, const ln_spec *s, int *at_slot, int *at_layer,
                           ln_error *err) {
    char why[200], first[200] = "", shown[80], more[60] = "";
    const char *path = "";
    size_t n_bad = 0;
    for (size_t i = 0; i < a->n; i++) {
        int slot, layer;
        if (match(a, s, &a->modules[i], &slot, &layer, why, sizeof why)) {
            if (at_slot) at_slot[i] = slot;
            if (at_layer) at_layer[i] = layer;
        } else if (n_bad++ == 0) {
            path = a->modules[i].path;
            memcpy(first, why, sizeof first);
        }
    }
    if (n_bad == 0) return LN_OK;
    if (n_bad > 1) (void)snprintf(more, sizeof more, " (and %zu more of %zu modules)", n_bad - 1, a->n);
    return ln_fail(err, LN_EINVALID, "%s: module %s: %s%s; the adapter was made for another model", a->path,
                   ln_excerpt(shown, path, strlen(path)), first, more);
}
