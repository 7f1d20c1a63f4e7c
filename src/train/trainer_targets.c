/* Which matrices are trained: by names in the options, or as an adapter has them. */
#include "../io/adapter.h"
#include "../model/adapter_match.h"
#include "../model/weight_slots.h"
#include "methods.h"

#include <stdio.h>
#include <string.h>

void train_leaf(const ln_spec *s, int slot, char out[48]) {
    char name[160];
    ln_weight_name(name, s, (ln_slot)slot, 0);
    const char *end = strrchr(name, '.'), *from = end;
    while (from > name && from[-1] != '.') from--;
    (void)snprintf(out, 48, "%.*s", (int)(end - from), from);
}

/* Whether the matrices of a slot can be trained in this model: any but the head, if the model has one, and
 * those that decide which experts a row has and how much the shared one counts. */
static bool trainable(const ln_spec *s, int slot) {
    bool any = ln_slot_wanted(s, slot, -1);
    for (int l = 0; l < s->L; l++) any = any || ln_slot_wanted(s, slot, l);
    const bool routes = slot == LN_W_ROUTER || slot == LN_W_S_SHARE;
    return any && slot != LN_W_HEAD && !routes && (ln_slot_rows[slot].flags & LN_WF_LORA);
}

bool train_is_repeated(const ln_spec *s, const bool *wanted, int slot, const char *leaf) {
    char other[48];
    for (int i = 0; i < slot; i++) {
        if (wanted ? !wanted[i] : !trainable(s, i)) continue;
        train_leaf(s, i, other);
        if (strcmp(leaf, other) == 0) return true;
    }
    return false;
}

/* Whether a slot is called `name`: as the tensor of the files, or as the part of it that it is. */
static bool is_called(const ln_spec *s, int slot, const char *name, size_t n) {
    char leaf[2][48];
    train_leaf(s, slot, leaf[0]);
    train_leaf(NULL, slot, leaf[1]);
    for (int i = 0; i < 2; i++)
        if (strlen(leaf[i]) == n && memcmp(leaf[i], name, n) == 0) return true;
    return false;
}

/* Adapts the tensor that holds the matrix of a slot: as in PEFT, all of it. */
static void adapt_tensor(const ln_spec *s, int slot, ln_lora *out) {
    const ln_slot_name *own = ln_slot_name_of(s, slot);
    out->targets[slot] = true;
    for (int i = 0; own && i < own->n_parts; i++) out->targets[own->parts[i]] = true;
}

/* Adapts the embedding or the head, if it has this name. *is: it has. */
static ln_status add_table(const char *name, size_t n, ln_lora *out, bool *is, ln_error *err) {
    static const struct {
        const char *name;
        ln_slot slot;
    } tables[] = {{"embed_tokens", LN_W_EMBED}, {"lm_head", LN_W_HEAD}};
    for (size_t i = 0; i < LN_COUNT(tables); i++) {
        if (strlen(tables[i].name) != n || memcmp(tables[i].name, name, n) != 0) continue;
        *is = out->targets[tables[i].slot] = true;
        if (out->layers)
            return ln_fail(err, LN_EUSAGE,
                           "ln_trainer_options.layers: expected none, because %s of "
                           "ln_trainer_options.targets "
                           "is outside of the layers",
                           tables[i].name);
    }
    return LN_OK;
}

static ln_status add_target(const ln_spec *s, const char *name, size_t n, ln_lora *out, ln_error *err) {
    char shown[80], leaf[48];
    ln_str known = {0};
    bool any = false;
    LN_TRY(add_table(name, n, out, &any, err));
    for (int i = 0; i < LN_W_COUNT;
         i++) { /* several matrices may have a name, or a tensor several matrices */
        if (!trainable(s, i)) continue;
        train_leaf(s, i, leaf);
        if (!train_is_repeated(s, NULL, i, leaf)) ln_str_addf(&known, "%s%s", known.len ? ", " : "", leaf);
        if (is_called(s, i, name, n)) any = true, adapt_tensor(s, i, out);
    }
    ln_status st = LN_OK;
    if (known.failed) st = LN_OOM(err, "a list of matrices");
    else if (!any)
        st = ln_fail(err, LN_EUSAGE,
                     "ln_trainer_options.targets: expected all-linear, or names among %s, embed_tokens, "
                     "lm_head "
                     "with commas between, found '%s'",
                     known.data ? known.data : "", ln_excerpt(shown, name, n));
    ln_str_free(&known);
    return st;
}

static ln_status targets_by_name(const ln_package *m, const ln_trainer_options *how, ln_lora *out,
                                 ln_error *err) {
    const char *text = how->targets;
    out->rank = how->rank;
    out->scale = how->rslora ? how->alpha / sqrt((double)how->rank) : how->alpha / (double)how->rank;
    if (strcmp(text, "all-linear") == 0) {
        for (int i = 0; i < LN_W_COUNT; i++) out->targets[i] = trainable(&m->spec, i);
        return LN_OK;
    }
    for (;;) {
        const char *end = text + strcspn(text, ",");
        size_t n = (size_t)(end - text), blanks = strspn(text, " ");
        blanks = LN_MIN(blanks, n);
        while (n > blanks && text[n - 1] == ' ') n--;
        LN_TRY(add_target(&m->spec, text + blanks, n - blanks, out, err));
        if (!*end) return LN_OK;
        text = end + 1;
    }
}

/* Sets which tables are trained as a whole. */
static ln_status whole_modules(const char *text, ln_lora *out, ln_error *err) {
    char shown[80];
    for (const char *at = text; text && *at;) {
        at += strspn(at, " ,");
        size_t n = strcspn(at, ","), all = n;
        while (n > 0 && at[n - 1] == ' ') n--;
        const bool table = n == strlen("embed_tokens") && memcmp(at, "embed_tokens", n) == 0,
                   head = n == strlen("lm_head") && memcmp(at, "lm_head", n) == 0;
        if (!table && !head)
            return ln_fail(err, LN_EUSAGE,
                           "ln_trainer_options.modules_to_save: expected embed_tokens, lm_head or both with "
                           "a "
                           "comma between, found '%s'; matrices of layers are adapted, or trained with "
                           "ln_trainer_options.method",
                           ln_excerpt(shown, at, n));
        out->whole_table |= table, out->whole_head |= head;
        at += all;
    }
    return LN_OK;
}

/* ---- layers ---- */

static ln_status bad_layers(const ln_spec *s, const char *text, ln_error *err) {
    char shown[80];
    return ln_fail(err, LN_EUSAGE,
                   "ln_trainer_options.layers: expected numbers or ranges from 0 to %d with commas between, "
                   "such "
                   "as 0-3,7, found '%s'",
                   s->L - 1, ln_excerpt(shown, text, strlen(text)));
}

/* Reads a number of a layer at *at, and moves that behind it; -1: there is none. */
static int64_t layer_at(const ln_spec *s, const char **at) {
    int64_t number;
    *at += strspn(*at, " ");
    const size_t n = strspn(*at, "0123456789");
    if (n == 0 || !ln_parse_i64(*at, n, &number) || number >= s->L) return -1;
    *at += n;
    *at += strspn(*at, " ");
    return number;
}

static ln_status layers_by_number(const ln_spec *s, const char *text, bool *out, ln_error *err) {
    const char *at = text;
    do {
        const int64_t from = layer_at(s, &at);
        int64_t to = from;
        if (*at == '-') at++, to = layer_at(s, &at);
        if (from < 0 || to < from || (*at && *at != ',')) return bad_layers(s, text, err);
        for (int64_t l = from; l <= to; l++) out[l] = true;
    } while (*at++);
    return LN_OK;
}

/* Sets out->layers if not all layers are trained. */
static ln_status choose_layers(train_trainer *t, ln_lora *out, ln_error *err) {
    const ln_spec *s = &t->m->spec;
    const size_t n = (size_t)s->L * sizeof *out->layers;
    if (!t->how.layers) return LN_OK;
    bool *layers = ln_arena_alloc(&t->arena, n);
    if (!layers) return LN_OOM(err, "the list of layers");
    memset(layers, 0, n);
    out->layers = layers;
    return layers_by_number(s, t->how.layers, layers, err);
}

/* ---- of an adapter ---- */

static bool is_trained(const ln_lora *lora, int slot, int layer) {
    return lora->targets[slot] && (!lora->layers || (layer >= 0 && lora->layers[layer]));
}

/* How many matrices the model has in the slots and layers that are trained. */
static size_t n_matrices(const ln_spec *s, const ln_lora *lora) {
    size_t n = 0;
    for (int i = 0; i < LN_W_COUNT; i++)
        for (int l = -1; l < s->L; l++) n += is_trained(lora, i, l) && ln_slot_wanted(s, i, l);
    return n;
}

/* Sets out->layers to those of which the adapter has modules, unless these are all. */
static ln_status layers_of_modules(train_trainer *t, const int *layers, size_t n, ln_lora *out,
                                   ln_error *err) {
    const int L = t->m->spec.L;
    bool *some = ln_arena_alloc(&t->arena, (size_t)L * sizeof *some), all = true;
    if (!some) return LN_OOM(err, "the list of layers");
    memset(some, 0, (size_t)L * sizeof *some);
    for (size_t i = 0; i < n; i++)
        if (layers[i] >= 0) some[layers[i]] = true;
    for (int l = 0; l < L; l++) all = all && some[l];
    if (!all) out->layers = some;
    return LN_OK;
}

/* Adds the rank and the scale of a module; LN_EUNSUPPORTED: those before it have others. */
static ln_status add_rank(const ln_adapter_file *a, const char *path, int64_t rank, double scale,
                          ln_lora *out, ln_error *err) {
    if (out->rank == 0) out->rank = (int)rank, out->scale = scale;
    if (out->rank == (int)rank && out->scale == scale) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: module %s has rank %lld and scale %g, those before it %d and %g; training needs one "
                   "rank and one scale",
                   a->path, path, (long long)rank, scale, out->rank, out->scale);
}

/* Whether a change has the rows of the tokens that are trained. */
static bool lists_tokens(const ln_adapter_change *x, const ln_lora *lora) {
    bool same = x->n_listed == lora->n_tokens;
    for (int64_t i = 0; same && i < x->n_listed; i++) same = x->listed[i].id == lora->tokens[i];
    return same;
}

/* Adds a module that is saved whole. Returns false if it cannot be trained so. */
static bool add_whole(const train_trainer *t, const ln_adapter_file *a, const ln_adapter_change *x,
                      ln_lora *out) {
    const bool head = ln_adapter_is_head(x);
    if (x->is_bias || a->tied || x->whole->dims[0] != t->m->spec.V) return false;
    if (!head && !ln_adapter_is_embedding(x)) return false;
    *(head ? &out->whole_head : &out->whole_table) = true;
    return true;
}

/* Adds what the adapter has for the embedding and the head. */
static ln_status tables_of_adapter(train_trainer *t, const ln_adapter_file *a, ln_lora *out, ln_error *err) {
    for (size_t i = 0; i < a->n_changes; i++) {
        const ln_adapter_change *x = &a->changes[i];
        if (x->a && !a->tied) {
            out->targets[ln_adapter_is_head(x) ? LN_W_HEAD : LN_W_EMBED] = true;
            LN_TRY(add_rank(a, x->path, x->rank, x->scale, out, err));
        }
        if (x->rows && !lists_tokens(x, out))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: module %s: has rows of trained tokens; name them in ln_options.add_tokens, "
                           "as "
                           "in the run that made it",
                           a->path, x->path);
        if ((x->whole && (!x->is_copy || x->differs) && !add_whole(t, a, x, out)) || (x->a && a->tied))
            return ln_fail(err, LN_EUNSUPPORTED, "%s: module %s: %s; fuse the adapter, and train the result",
                           a->path, x->path,
                           x->whole ? "is saved whole, and is no embedding or head that can be trained so"
                                    : "ensure_weight_tying is not trained");
    }
    bool rows = false;
    for (size_t i = 0; i < a->n_changes; i++) rows = rows || a->changes[i].rows;
    if (t->m->n_added > 0 && !rows)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: has no rows of the tokens of ln_options.add_tokens; leave init_adapter out, or "
                       "begin with "
                       "an adapter that has them",
                       a->path);
    return LN_OK;
}

/* LN_EUNSUPPORTED unless all modules have one rank and one scale, and every layer has the same ones. */
static ln_status check_uniform(train_trainer *t, const ln_adapter_file *a, const int *slots, ln_lora *out,
                               ln_error *err) {
    const ln_spec *s = &t->m->spec;
    if (a->n_unused)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: %zu of %zu tensors are for a vision or audio tower, which is not trained",
                       a->path, a->n_unused, a->tensors.n);
    out->magnitudes = a->n > 0 && a->modules[0].magnitude != NULL;
    for (size_t i = 0; i < a->n; i++) {
        const ln_adapter_module *x = &a->modules[i];
        LN_TRY(ln_adapter_check_finite(a, x, err));
        if (x->bias || x->b_bias)
            return ln_fail(err, LN_EUNSUPPORTED, "%s: module %s: has a bias, which is not trained", a->path,
                           x->path);
        if (!trainable(s, slots[i]))
            return ln_fail(err, LN_EUNSUPPORTED, "%s: module %s: this matrix cannot be trained", a->path,
                           x->path);
        LN_TRY(add_rank(a, x->path, x->rank, x->scale, out, err));
        if (x->weight)
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: module %s: LoRA on experts is applied and not trained; train on attention "
                           "and "
                           "shared layers",
                           a->path, x->path);
        const ln_slot_name *own = ln_slot_name_of(s, slots[i]);
        if (own && own->n_parts > 0 && !x->whole)
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: module %s: expected one for the whole tensor %s, as PEFT makes it", a->path,
                           x->path, own->name);
        out->targets[slots[i]] = true;
    }
    if (n_matrices(s, out) == a->n) return tables_of_adapter(t, a, out, err);
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: has %zu of %zu matrices of its kinds and layers; training needs the same kinds in "
                   "each "
                   "layer that has any",
                   a->path, a->n, n_matrices(s, out));
}

static ln_status targets_of_adapter(train_trainer *t, ln_lora *out, ln_error *err) {
    const ln_package *m = t->m;
    ln_adapter_file *a = NULL;
    int *slots = NULL, *layers = NULL;
    ln_status st = ln_adapter_file_open(&a, t->how.init_adapter, err);
    if (st == LN_OK) st = ln_adapter_split(a, &m->spec, err);
    if (st == LN_OK && !(slots = ln_zalloc(2 * a->n + 1, sizeof *slots))) st = LN_OOM(err, "an adapter");
    if (st == LN_OK) layers = slots + a->n;
    if (st == LN_OK) st = ln_adapter_match(a, &m->spec, slots, layers, err);
    if (st == LN_OK) st = ln_adapter_compare(a, &m->spec, &m->weights, err);
    if (st == LN_OK && a->n > 0) st = layers_of_modules(t, layers, a->n, out, err);
    if (st == LN_OK) st = check_uniform(t, a, slots, out, err);
    if (st == LN_OK) ln_adapter_warn_absent(a);
    ln_free(slots);
    ln_adapter_file_close(&a);
    return st;
}

ln_status train_targets(train_trainer *t, ln_lora *out, ln_error *err) {
    const ln_trainer_options *how = &t->how;
    *out = (ln_lora){.tokens = t->m->added,
                     .n_tokens = (int)t->m->n_added,
                     .dropout = how->dropout,
                     .seed = how->seed,
                     .dtype = how->bf16 ? LN_BF16 : LN_F32};
    if (how->init_adapter && how->dora)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.dora: expected false, because ln_trainer_options.init_adapter "
                       "decides it");
    if (how->init_adapter && how->layers)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.layers: expected none, because ln_trainer_options.init_adapter "
                       "has "
                       "layers of its own");
    if (how->init_adapter && how->modules_to_save)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.modules_to_save: expected none, because "
                       "ln_trainer_options.init_adapter decides what is trained");
    if (how->init_adapter) return targets_of_adapter(t, out, err);
    out->magnitudes = how->dora;
    LN_TRY(whole_modules(how->modules_to_save, out, err));
    LN_TRY(choose_layers(t, out, err));
    return targets_by_name(t->m, how, out, err);
}

static const ln_adapter_module *module_named(const ln_adapter_file *a, const char *path, size_t n) {
    for (size_t i = 0; i < a->n; i++)
        if (strlen(a->modules[i].path) == n && memcmp(a->modules[i].path, path, n) == 0)
            return &a->modules[i];
    return NULL;
}

/* The change of the adapter for the module of a path; NULL: it has none. */
static const ln_adapter_change *change_named(const ln_adapter_file *a, const char *path, size_t n) {
    for (size_t i = 0; i < a->n_changes; i++)
        if (strlen(a->changes[i].path) == n && memcmp(a->changes[i].path, path, n) == 0)
            return &a->changes[i];
    return NULL;
}

/* Copies a tensor to a parameter. */
static void copy_values(const ln_tensor *from, train_param *to) {
    for (int64_t i = 0; i < to->rows * to->cols; i++)
        to->value[i] =
            ln_adapter_value(from, (size_t)(to->is_turned ? i % to->cols * to->rows + i / to->cols : i));
}

/* Copies rows of tokens, which a file has in its own order. */
static void copy_rows(const ln_adapter_change *x, train_param *to) {
    for (int64_t i = 0; i < to->rows * to->cols; i++)
        to->value[i] =
            ln_adapter_value(x->rows, (size_t)(x->listed[i / to->cols].at * to->cols + i % to->cols));
}

/* Parameters come in pairs, A before B, whose names begin with base_model.model. and, after prefixes of
 * checkpoints, the path of a module; the magnitudes of DoRA follow. Those of tables may be alone. */
static ln_status init_pairs(const ln_adapter_file *a, train_param *params, size_t n, ln_error *err) {
    static const char before[] = "base_model.model.";
    for (size_t i = 0; i < n; i++) {
        const char *path = ln_adapter_path(params[i].name + sizeof before - 1), *end = strstr(path, ".lora_");
        if (!end) end = strstr(path, ".token_adapter.");
        if (!end) end = strstr(path, ".weight");
        const ln_adapter_change *table = end ? change_named(a, path, (size_t)(end - path)) : NULL;
        const ln_adapter_module *x = end ? module_named(a, path, (size_t)(end - path)) : NULL;
        if (table && table->rows) copy_rows(table, &params[i]);
        else if (table && table->a) copy_values(table->a, &params[i]), copy_values(table->b, &params[++i]);
        else if (table && table->whole) copy_values(table->whole, &params[i]);
        else if (!x) return ln_fail(err, LN_EINTERNAL, "%s: no module for %s", a->path, params[i].name);
        else {
            ln_adapter_file_read(a, x, params[i].value, params[i + 1].value);
            i++;
            if (x->magnitude) ln_adapter_vector(x, x->magnitude, params[++i].value);
        }
    }
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i].rows * params[i].cols; k++)
            if (!isfinite(params[i].value[k]))
                return ln_fail(err, LN_ENUMERIC, "%s: %s: the adapter has a NaN or an infinity", a->path,
                               params[i].name);
    return LN_OK;
}

ln_status train_init_values(const ln_package *m, const char *dir, train_param *params, size_t n,
                            ln_error *err) {
    ln_adapter_file *a;
    (void)m;
    LN_TRY(ln_adapter_file_open(&a, dir, err));
    const ln_status st = init_pairs(a, params, n, err);
    ln_adapter_file_close(&a);
    return st;
}
