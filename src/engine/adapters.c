/* Loading adapters into the slots of a run's pool. adapters.h has the contracts.
 *
 * A sum of adapters is one adapter whose rank is the sum of the ranks: the rows of their A and of their
 * (transposed) B follow each other, and each row has the scale of its own part. */
#include "adapters.h"

#include "../model/adapter_match.h"
#include "../model/row_lengths.h"
#include "engine.h"
#include "scheduler.h"

#include <math.h>
#include <stdlib.h>

/* ---- files ---- */

static void close_files(ln_adapter_slot *s) {
    for (size_t k = 0; k < s->n_parts; k++) ln_adapter_file_close(&s->files[k]);
    *s = (ln_adapter_slot){0};
}

static ln_status open_files(ln_adapter_slot *s, const ln_adapter_part *parts, size_t n, ln_error *err) {
    if (n < 1 || n > LN_ADAPTER_PARTS)
        return ln_fail(err, LN_EUSAGE, "an adapter (ln_options.adapter) is the sum of 1 to %d, found %zu",
                       (int)LN_ADAPTER_PARTS, n);
    for (size_t k = 0; k < n; k++) {
        if (!parts[k].dir || !isfinite(parts[k].scale))
            return ln_fail(err, LN_EUSAGE,
                           "adapter %zu (ln_options.adapter): expected a directory and a finite "
                           "scale",
                           k + 1);
        LN_TRY(ln_adapter_file_open(&s->files[k], parts[k].dir, err));
        s->scales[k] = parts[k].scale;
        s->n_parts = k + 1;
    }
    return LN_OK;
}

/* The largest rank of a part's modules. */
static int64_t rank_of(const ln_adapter_file *a) {
    int64_t most = 0;
    for (size_t i = 0; i < a->n; i++) most = LN_MAX(most, a->modules[i].rank);
    return most;
}

ln_status ln_adapter_parts_rank(const ln_adapter_part *parts, size_t n, int64_t *rank, bool *experts,
                                ln_error *err) {
    ln_adapter_slot s = {0};
    const ln_status st = open_files(&s, parts, n, err);
    *rank = 0, *experts = false;
    for (size_t k = 0; st == LN_OK && k < n; k++) {
        *rank += rank_of(s.files[k]);
        *experts |= ln_adapter_has_experts(s.files[k]);
    }
    close_files(&s);
    return st;
}

/* The digest of the parts with their factors, and the key. */
static ln_status set_digest(ln_adapter_slot *s, ln_error *err) {
    ln_sha256 sum;
    uint8_t digest[LN_SHA256_BYTES];
    uint64_t key;
    ln_sha256_open(&sum);
    for (size_t k = 0; k < s->n_parts; k++) {
        char one[LN_SHA256_HEX];
        const double scale = s->scales[k] * s->scale;
        LN_TRY(ln_adapter_file_digest(s->files[k], one, err));
        ln_sha256_add(&sum, one, sizeof one);
        ln_sha256_add(&sum, &scale, sizeof scale);
    }
    ln_sha256 whole = sum; /* either form ends it */
    ln_sha256_hex(&sum, s->digest);
    ln_sha256_end(&whole, digest);
    memcpy(&key, digest, sizeof key);
    s->key = key ? key : 1;
    return LN_OK;
}

/* ---- the matrices of a sum ---- */

/* A slot that is being filled. */
typedef struct filling {
    ln_eng *e;
    ln_adapter_slot *s;
    int slot;
    bool by_token; /* the driver token is taken for each weight, so that steps go on between them */
    int *at[LN_ADAPTER_PARTS]; /* [weights] index of the module of each part plus 1; 0: none */
    /* of a weight, whose matrices are 1 or those of its experts: the largest sum of ranks; [matrices], and
     * what they consist of */
    int64_t rank, n_matrices;
    ln_lora_matrix *matrices;
    float *a, *b, *scale, *bias, *gain;
    double *squares; /* of the lengths of rows, of DoRA */
    float *turned;   /* B as ln_adapter_file_read writes it, or a bias */
} filling;

/* Finds the weight of each module of each part. */
static ln_status match_all(filling *f, ln_error *err) {
    for (size_t k = 0; k < f->s->n_parts; k++) {
        ln_adapter_file *a = f->s->files[k];
        LN_TRY(ln_package_split_adapter(f->e->model, a, err));
        int *weights = ln_zalloc(a->n + 1, sizeof *weights);
        f->at[k] = ln_zalloc(f->e->model->weights.n + 1, sizeof **f->at);
        ln_status st = weights && f->at[k] ? LN_OK : LN_OOM(err, "an adapter");
        if (st == LN_OK) st = ln_package_match_adapter(f->e->model, a, weights, err);
        for (size_t i = 0; st == LN_OK && i < a->n; i++) f->at[k][weights[i]] = (int)i + 1;
        ln_free(weights);
        LN_TRY(st);
    }
    return LN_OK;
}

/* Adds the biases of a part: that of B as it is scaled, and the difference of the model's bias and the one
 * that stands in its place. */
static void add_biases(filling *f, size_t k, size_t weight, const ln_adapter_module *mod, ln_lora_matrix *m) {
    const double factor = f->s->scales[k] * f->s->scale;
    const ln_weight *own = mod->bias ? ln_package_bias_of(f->e->model, weight) : NULL;
    float *v = f->turned; /* [n_out] scratch */
    if (mod->b_bias) {
        ln_adapter_vector(mod, mod->b_bias, v);
        for (int64_t d = 0; d < mod->n_out; d++) f->bias[d] += (float)(mod->scale * factor * (double)v[d]);
    }
    if (own) {
        ln_adapter_vector(mod, mod->bias, v);
        for (int64_t d = 0; d < mod->n_out; d++)
            f->bias[d] +=
                (float)(factor * ((double)v[d] - (double)ln_num_load(own->tensor->data, own->dtype, d)));
    }
    if (mod->b_bias || own) m->bias = f->bias;
}

/* Adds to the rows of part k what DoRA makes of them. With g, a magnitude over the length of its row, that is
 * (g - 1) W x and g scale B A x, times the factor. What W x has of the model's bias is taken off again. */
static ln_status add_gains(filling *f, size_t k, size_t weight, const ln_adapter_module *mod, const float *A,
                           float *B, ln_lora_matrix *m, ln_error *err) {
    const double factor = f->s->scales[k] * f->s->scale;
    const ln_weight *own = ln_package_bias_of(f->e->model, weight);
    const ln_low_rank add = {A, f->turned, mod->rank, mod->scale};
    LN_TRY(ln_row_squares(&f->e->model->weights, weight, &add, ln_run_pool(&f->e->run->opt),
                          f->e->run->opt.n_threads, f->squares, err));
    ln_adapter_vector(mod, mod->magnitude, f->turned);
    for (int64_t d = 0; d < mod->n_out; d++) {
        const double g = f->squares[d] > 0 ? (double)f->turned[d] / sqrt(f->squares[d]) : 0;
        f->gain[d] += (float)(factor * (g - 1));
        if (own)
            f->bias[d] -= (float)(factor * (g - 1) * (double)ln_num_load(own->tensor->data, own->dtype, d));
        for (int64_t j = 0; j < mod->rank; j++) B[j * mod->n_out + d] *= (float)g;
    }
    m->gain = f->gain;
    if (own) m->bias = f->bias;
    return LN_OK;
}

/* Adds what part k adds to matrix x of a weight, as rows m->rank and following. */
static ln_status add_part(filling *f, size_t k, size_t weight, const ln_adapter_module *mod, int64_t x,
                          ln_error *err) {
    const ln_adapter_file *a = f->s->files[k];
    ln_lora_matrix *m = &f->matrices[x];
    float *A = f->a + (x * f->rank + m->rank) * mod->n_in, *B = f->b + (x * f->rank + m->rank) * mod->n_out;
    float *scales = f->scale + x * f->rank + m->rank;
    if (x == 0) LN_TRY(ln_adapter_check_finite(a, mod, err));
    if (mod->n_experts) mod = ln_adapter_read_expert(a, mod, x, A, f->turned);
    else if (mod->a) ln_adapter_file_read(a, mod, A, f->turned);
    if (!mod) return LN_OK; /* the adapter leaves this expert alone */
    const float scale = (float)(mod->scale * f->s->scales[k] * f->s->scale);
    if (!isfinite(scale))
        return ln_fail(err, LN_EUSAGE,
                       "%s: module %s: its scale %g times the factor %g is more than f32 holds; expected a "
                       "smaller factor",
                       a->path, mod->path, mod->scale, f->s->scales[k] * f->s->scale);
    for (int64_t j = 0; j < mod->rank; j++) {
        scales[j] = scale;
        for (int64_t d = 0; d < mod->n_out; d++) B[j * mod->n_out + d] = f->turned[d * mod->rank + j];
    }
    m->rank += mod->rank;
    if (mod->magnitude) LN_TRY(add_gains(f, k, weight, mod, A, B, m, err));
    add_biases(f, k, weight, mod, m);
    return LN_OK;
}

/* Allocates and fills the matrices of a weight. */
static ln_status make_matrices(filling *f, size_t i, ln_error *err) {
    const ln_weight *w = &f->e->model->weights.items[i];
    const int64_t rows = w->d0 / f->n_matrices, n = f->n_matrices * f->rank;
    f->matrices = ln_zalloc((size_t)f->n_matrices, sizeof *f->matrices);
    f->a = ln_alloc((size_t)(n * w->d1 + 1) * sizeof *f->a);
    f->b = ln_alloc((size_t)(n * rows + 1) * sizeof *f->b);
    f->scale = ln_zalloc((size_t)n + 1, sizeof *f->scale);
    f->turned = ln_alloc((size_t)((f->rank + 1) * rows) * sizeof *f->turned);
    f->bias = ln_zalloc((size_t)rows, sizeof *f->bias);
    f->gain = ln_zalloc((size_t)rows, sizeof *f->gain);
    f->squares = ln_zalloc((size_t)rows, sizeof *f->squares);
    if (!f->matrices || !f->a || !f->b || !f->scale || !f->turned || !f->bias || !f->gain || !f->squares)
        return LN_OOM(err, "an adapter");
    for (int64_t x = 0; x < f->n_matrices; x++) {
        for (size_t k = 0; k < f->s->n_parts; k++)
            if (f->at[k][i]) LN_TRY(add_part(f, k, i, &f->s->files[k]->modules[f->at[k][i] - 1], x, err));
        f->matrices[x].a = f->a + x * f->rank * w->d1;
        f->matrices[x].b = f->b + x * f->rank * rows;
        f->matrices[x].scale = f->scale + x * f->rank;
    }
    return LN_OK;
}

static ln_status check_rank(const filling *f, ln_error *err) {
    const int64_t most = f->e->run->opt.adapter_rank;
    if (f->rank <= most) return LN_OK;
    return ln_fail(err, LN_EUSAGE,
                   "%s: rank %lld%s is more than the engine has room for, ln_options.adapter_rank %lld; open "
                   "the engine with a larger one",
                   f->s->files[0]->path, (long long)f->rank, f->s->n_parts > 1 ? " of the sum" : "",
                   (long long)most);
}
static ln_status fill_weight(filling *f, size_t i, ln_error *err) {
    f->rank = 0, f->n_matrices = LN_MAX((int64_t)1, f->e->model->weights.items[i].n_experts);
    for (size_t k = 0; k < f->s->n_parts; k++)
        if (f->at[k][i]) f->rank += f->s->files[k]->modules[f->at[k][i] - 1].rank;
    ln_status st = check_rank(f, err);
    if (st == LN_OK) st = make_matrices(f, i, err);
    if (st == LN_OK && f->by_token) st = ln_driver_pause(f->e->sched, err);
    if (st == LN_OK) {
        for (int64_t x = 0; st == LN_OK && x < f->n_matrices; x++)
            st = ln_run_set_adapter(f->e->run, f->slot, i, x, &f->matrices[x], err);
        if (f->by_token) ln_driver_resume(f->e->sched);
    }
    ln_free(f->matrices), ln_free(f->a), ln_free(f->b), ln_free(f->scale), ln_free(f->turned);
    ln_free(f->bias), ln_free(f->gain), ln_free(f->squares);
    f->matrices = NULL, f->a = f->b = f->scale = f->turned = f->bias = f->gain = NULL, f->squares = NULL;
    return st;
}

/* Rejects a module for a weight for which the engine's slots have no space. */
static ln_status check_space(const filling *f, size_t i, ln_error *err) {
    char shown[80];
    for (size_t k = 0; k < f->s->n_parts; k++) {
        if (!f->at[k][i]) continue;
        const char *path = f->s->files[k]->modules[f->at[k][i] - 1].path;
        return ln_fail(err, LN_EUSAGE,
                       "%s: module %s: the engine keeps no memory for LoRA on experts "
                       "(ln_options.adapter_experts); open the engine with it",
                       f->s->files[k]->path, ln_excerpt(shown, path, strlen(path)));
    }
    return LN_OK;
}

/* Writes a slot: by_token where no row names it yet, else with the driver token, or while the engine is being
 * opened. */
static ln_status fill(ln_eng *e, int slot, bool by_token, ln_error *err) {
    filling f = {.e = e, .slot = slot, .by_token = by_token, .s = &e->adapters[slot]};
    ln_status st = LN_OK;
    LN_GO(match_all(&f, err));
    for (size_t i = 0; i < e->model->weights.n; i++)
        if (!ln_run_adapts(e->run, i)) LN_GO(check_space(&f, i, err));
    for (size_t i = 0; i < e->model->weights.n; i++)
        if (ln_run_adapts(e->run, i)) LN_GO(fill_weight(&f, i, err));
    for (size_t k = 0; k < f.s->n_parts; k++) LN_GO(ln_tensors_check(&f.s->files[k]->tensors, false, err));
out:
    for (size_t k = 0; k < f.s->n_parts; k++) ln_free(f.at[k]);
    return st;
}

/* Says which tensors were applied: all of them, because anything else is an error, but those of towers. */
static void say(const ln_adapter_slot *s) {
    for (size_t k = 0; k < s->n_parts; k++) {
        const ln_adapter_file *a = s->files[k];
        ln_adapter_warn_absent(a);
        if (a->n_unused)
            ln_log(LN_LOG_WARN,
                   "adapter %s: %zu of %zu tensors are for a vision or audio tower, which texts do not use",
                   a->path, a->n_unused, a->tensors.n);
        if (a->n_copies)
            ln_log(LN_LOG_INFO, "adapter %s: its embedding table or output head is the model's own", a->path);
        ln_log(LN_LOG_INFO, "adapter %s: %zu of %zu tensors applied, %s, rank %lld, factor %g", a->path,
               ln_adapter_applied(a), a->tensors.n, ln_adapter_layout_name(a->layout), (long long)rank_of(a),
               s->scales[k]);
    }
}

static ln_status load(ln_eng *e, int slot, const ln_adapter_part *parts, size_t n, ln_error *err) {
    ln_adapter_slot *s = &e->adapters[slot];
    const bool own = slot == 0 && e->run->opt.n_adapter_parts > 0;
    s->scale = 1;
    LN_TRY(open_files(s, parts, n, err));
    LN_TRY(ln_package_check_changes(e->model, s->files, s->scales, n, own, err));
    LN_TRY(set_digest(s, err));
    LN_TRY(fill(e, slot, e->sched != NULL, err));
    say(s);
    return LN_OK;
}

/* ---- the table ---- */

ln_status ln_adapters_open(ln_eng *e, ln_error *err) {
    const ln_run_options *o = &e->run->opt;
    if (o->n_adapter_parts == 0) LN_TRY(ln_package_check_changes(e->model, NULL, NULL, 0, true, err));
    if (o->n_adapters == 0) return LN_OK;
    e->adapters = ln_zalloc((size_t)o->n_adapters, sizeof *e->adapters);
    if (!e->adapters) return LN_OOM(err, "adapters");
    if (o->n_adapter_parts == 0) return LN_OK;
    e->adapters[0].used = true;
    return load(e, 0, o->adapter_parts, o->n_adapter_parts, err);
}

void ln_adapters_close(ln_eng *e) {
    for (int i = 0; e->adapters && i < e->run->opt.n_adapters; i++) close_files(&e->adapters[i]);
    ln_free(e->adapters);
    e->adapters = NULL;
}

const ln_adapter_slot *ln_adapters_default(const ln_eng *e) {
    return e->adapters && e->run->opt.n_adapter_parts > 0 ? &e->adapters[0] : NULL;
}

/* With the lock. */
static void free_unused(ln_eng *e, int slot) {
    ln_adapter_slot *s = &e->adapters[slot];
    if (s->closing && s->n_users == 0) close_files(s);
}

uint64_t ln_adapters_hold(ln_eng *e, int slot) {
    e->adapters[slot].n_users++;
    return e->adapters[slot].key;
}
void ln_adapters_let_go(ln_eng *e, int slot) {
    e->adapters[slot].n_users--;
    free_unused(e, slot);
}

/* ---- handles ---- */

/* Takes a free slot; -1: there is none. */
static int take_slot(ln_eng *e) {
    int slot = 0;
    pthread_mutex_lock(&e->sched->lock);
    while (slot < e->run->opt.n_adapters && e->adapters[slot].used) slot++;
    if (slot < e->run->opt.n_adapters) e->adapters[slot].used = true;
    else slot = -1;
    pthread_mutex_unlock(&e->sched->lock);
    return slot;
}

int ln_adapters_room(ln_eng *e) {
    int n = 0;
    pthread_mutex_lock(&e->sched->lock);
    for (int i = 0; i < e->run->opt.n_adapters; i++) n += !e->adapters[i].used;
    pthread_mutex_unlock(&e->sched->lock);
    return n;
}

static void give_slot(ln_eng *e, int slot) {
    pthread_mutex_lock(&e->sched->lock);
    e->adapters[slot].closing = true;
    free_unused(e, slot);
    pthread_mutex_unlock(&e->sched->lock);
}

ln_status ln_adapter_load(ln_adapter_ref **out, ln_eng *e, const ln_adapter_part *parts, size_t n,
                          ln_error *err) {
    const int slot = take_slot(e);
    *out = NULL;
    if (slot < 0)
        return ln_fail(err, LN_EMEMORY,
                       "the engine has room for %d adapters (ln_options.n_adapters)%s; close one, or open "
                       "the "
                       "engine with more",
                       e->run->opt.n_adapters - (e->run->opt.n_adapter_parts > 0),
                       e->run->opt.n_adapters ? ", which are loaded" : "");
    ln_adapter_ref *l = ln_zalloc(1, sizeof *l);
    const ln_status st = l ? load(e, slot, parts, n, err) : LN_OOM(err, "an adapter");
    if (st != LN_OK) {
        give_slot(e, slot);
        ln_free(l);
        return st;
    }
    *l = (ln_adapter_ref){e, slot};
    *out = l;
    return LN_OK;
}

void ln_adapter_unload(ln_adapter_ref **l) {
    if (!*l) return;
    give_slot((*l)->e, (*l)->slot);
    ln_free(*l);
    *l = NULL;
}

/* The new key is set before the pool changes, under the lock: a request that is opened meanwhile has it, and
 * no step runs before the pool has the new scale. */
ln_status ln_adapter_rescale(ln_adapter_ref *l, double scale, ln_error *err) {
    ln_sched *sched = l->e->sched;
    ln_adapter_slot *s = &l->e->adapters[l->slot], next = *s;
    if (!isfinite(scale)) return ln_fail(err, LN_EUSAGE, "ln_adapter_set_scale: expected a finite factor");
    next.scale = scale;
    LN_TRY(set_digest(&next, err));
    LN_TRY(ln_driver_pause(sched, err));
    pthread_mutex_lock(&sched->lock);
    const int n_users = s->n_users;
    if (n_users == 0) *s = next;
    pthread_mutex_unlock(&sched->lock);
    const ln_status st = n_users == 0 ? fill(l->e, l->slot, false, err)
                                      : ln_fail(err, LN_EUSAGE,
                                                "ln_adapter_set_scale: %d open requests use the adapter; "
                                                "close them before, or open the "
                                                "adapter once more with the other scale",
                                                n_users);
    ln_driver_resume(sched);
    return st;
}
