/* Binds the weights that a spec calls for to the tensors of a checkpoint, under any of the name prefixes that
 * checkpoints use.
 *
 * A matrix may be stored with affine group quantisation: X.weight then holds packed codes, X.scales and
 * X.biases hold one value per group of columns. Where the configuration's quantization block has an entry for
 * the module, the tensors must have the encoding of that entry. Where it has none, the shapes decide, as in
 * mlx-lm (utils.py, infer_quant_config): the number of columns is known from the configuration, so that the
 * columns of the codes give the bits and the columns of the scales give the group size. If the shapes match
 * no encoding that linnet reads, the tensors are refused and the message names the encoding of the block.
 *
 * weights.def lists the slots; the spec says which of them this model has. Missing and misshapen tensors are
 * refused together in one message: a checkpoint that lacks one tensor usually lacks many, and the list shows
 * why. Unused tensors do not stop loading; one warning counts them. Tensors that are known to serve other
 * purposes (a vision tower, stored rotary buffers) are ignored silently.
 *
 * The tensors override two facts of the configuration: whether the head is tied to the embedding (a head
 * whose bytes equal the table counts as tied), and the dtype to which the embedding scale is rounded. A tied
 * model may be stored with the name of the head only: safetensors' save_model keeps the first name of a
 * shared pair, which is lm_head.weight. */
#include "../io/tower_names.h"
#include "family.h"
#include "weight_slots.h"

#include <string.h>

#define NAME_MAX_BYTES 192

/* The prefixes are tried in this order; the first one with a tensor of that name wins. */
static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.",
                                       "language_model.", ""};

typedef struct binder {
    ln_weights *w;
    ln_spec *s;
    const ln_tensors *t;
    ln_error *err;
    bool *used;  /* [t->n]: tensors that a weight or a tied head accounts for */
    ln_str list; /* descriptions of the first 8 missing or misshapen tensors */
    size_t n_bad;
    const struct ln_absent *gone; /* the first of them whose shard does not exist, or NULL */
    size_t n_gone;                /* how many of them */
} binder;

static void slot_name(char out[NAME_MAX_BYTES], const char *prefix, int slot, int layer) {
    const char *name = ln_slot_rows[slot].name, *mark = strstr(name, "{}");
    if (mark)
        (void)snprintf(out, NAME_MAX_BYTES, "%s%.*s%d%s", prefix, (int)(mark - name), name, layer, mark + 2);
    else (void)snprintf(out, NAME_MAX_BYTES, "%s%s", prefix, name);
}

/* lm_head is a sibling of the `model` module and not part of it: for it the prefixes are tried in reverse,
 * the plain name first. */
static const ln_tensor *find(const ln_tensors *t, int slot, int layer) {
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; i < LN_COUNT(prefixes); i++) {
        size_t p = slot == LN_W_HEAD ? LN_COUNT(prefixes) - 1 - i : i;
        slot_name(name, prefixes[p], slot, layer);
        const ln_tensor *x = ln_tensors_find(t, name);
        if (x) return x;
    }
    return NULL;
}

/* The embedding table. A tied model may store it under the name lm_head.weight only. */
static const ln_tensor *find_table(const binder *b) {
    const ln_tensor *x = find(b->t, LN_W_EMBED, -1);
    return x || !b->s->tied ? x : find(b->t, LN_W_HEAD, -1);
}

static void complain(binder *b, const char *name, const char *text) {
    if (b->n_bad++ < 8) ln_str_addf(&b->list, "%s%s%s", b->n_bad > 1 ? "; " : "", name, text);
}

/* Whether the index of the shards places a tensor in a file that does not have it; records that. */
static bool is_misplaced(binder *b, const char *name) {
    char text[320], shard[80], found[80];
    for (size_t i = 0; i < b->t->n_absent; i++) {
        const struct ln_absent *a = &b->t->absent[i];
        if (strcmp(a->name, name) != 0) continue;
        (void)snprintf(text, sizeof text,
                       " is missing: the index places it in %s, which lacks it%s%s; download that shard "
                       "again",
                       ln_excerpt(shard, a->shard, strlen(a->shard)), a->found ? "; it is in " : "",
                       a->found ? ln_excerpt(found, a->found, strlen(a->found)) : "");
        complain(b, name, text);
        if (a->no_file && b->n_gone++ == 0) b->gone = a;
        return true;
    }
    return false;
}

static bool has_shape(const ln_tensor *x, int64_t d0, int64_t d1) {
    return d1 ? x->n_dims == 2 && x->dims[0] == d0 && x->dims[1] == d1 : x->n_dims == 1 && x->dims[0] == d0;
}

static void shape_text(char out[64], const ln_tensor *x) {
    size_t n = (size_t)snprintf(out, 64, "[");
    for (int i = 0; i < x->n_dims && n < 48; i++)
        n += (size_t)snprintf(out + n, 64 - n, "%s%lld", i ? ", " : "", (long long)x->dims[i]);
    (void)snprintf(out + LN_MIN(n, (size_t)60), 4, "]");
}

/* Whether the tensor has the shape [d0, d1], or [d0] if d1 is 0; records it as misshapen otherwise. `why` is
 * appended to the expected shape in the message. */
static bool shape_ok(binder *b, const ln_tensor *x, int64_t d0, int64_t d1, const char *why) {
    char text[256], shape[64];
    if (has_shape(x, d0, d1)) return true;
    shape_text(shape, x);
    if (d1)
        (void)snprintf(text, sizeof text, ": expected [%lld, %lld]%s, found %s", (long long)d0, (long long)d1,
                       why, shape);
    else (void)snprintf(text, sizeof text, ": expected [%lld]%s, found %s", (long long)d0, why, shape);
    complain(b, x->name, text);
    return false;
}

static bool storage(const ln_tensor *x, ln_dtype *out) {
    if (x->dtype != LN_ST_F32 && x->dtype != LN_ST_BF16 && x->dtype != LN_ST_F16) return false;
    *out = x->dtype == LN_ST_F32 ? LN_F32 : x->dtype == LN_ST_BF16 ? LN_BF16 : LN_F16;
    return true;
}

static ln_status bad_storage(const binder *b, const ln_tensor *x, const char *wanted) {
    return ln_fail(b->err, LN_EUNSUPPORTED, "%s: tensor %s is stored as %s; linnet computes with %s",
                   b->t->files[x->file].path, x->name, ln_st_dtype_name(x->dtype), wanted);
}

/* ---- affine group quantisation ---- */

/* The name of a tensor of the same module: `a.b.weight` -> `a.b` + leaf. */
static void sibling(char out[NAME_MAX_BYTES], const char *weight, const char *leaf) {
    size_t n = strlen(weight), tail = strlen(".weight");
    n = n > tail ? n - tail : 0;
    (void)snprintf(out, NAME_MAX_BYTES, "%.*s%s", (int)n, weight, leaf);
}
static const ln_tensor *find_sibling(const ln_tensors *t, const ln_tensor *x, const char *leaf) {
    char name[NAME_MAX_BYTES];
    sibling(name, x->name, leaf);
    return ln_tensors_find(t, name);
}

/* The entry of the quantization block for this slot: under the module path of the tensor, or under any other
 * prefix. */
static ln_status block_entry(const binder *b, const ln_tensor *x, int slot, int layer, ln_quant_entry *out) {
    char name[NAME_MAX_BYTES], path[NAME_MAX_BYTES];
    sibling(path, x->name, "");
    LN_TRY(ln_quant_of(&b->s->quant, path, out, b->err));
    for (size_t i = 0; i < LN_COUNT(prefixes) && !out->found; i++) {
        slot_name(name, prefixes[i], slot, layer);
        sibling(path, name, "");
        LN_TRY(ln_quant_of(&b->s->quant, path, out, b->err));
    }
    return LN_OK;
}

/* The only encoding with which tensors of these shapes hold `cols` columns; bits 0 if no supported encoding
 * fits. */
static ln_enc form_of_shapes(const ln_tensor *codes, const ln_tensor *scales, int64_t cols) {
    const ln_enc none = {0, 0};
    if (codes->dtype != LN_ST_U32 || codes->n_dims != 2 || scales->n_dims != 2) return none;
    const int64_t words = codes->dims[1], groups = scales->dims[1];
    if (words < 1 || words > cols || groups < 1 || cols % groups || 32 * words % cols) return none;
    const int64_t bits = 32 * words / cols, group = cols / groups;
    return ln_enc_bits_ok(bits) && ln_enc_group_ok(group) ? (ln_enc){(int)bits, (int)group} : none;
}

/* Sets w->enc to the encoding that the shapes give, unless the entry of the block contradicts it. */
static void settle_form(ln_weight *w, const ln_quant_entry *entry) {
    const ln_enc shapes = form_of_shapes(w->tensor, w->scales, w->d1);
    if (!shapes.bits || (entry->found && !entry->enc.bits)) return;
    if (entry->names_bits && entry->enc.bits != shapes.bits) return;
    if (entry->names_group && entry->enc.group != shapes.group) return;
    w->enc = shapes;
}

/* Determines the encoding of a matrix from the quantization block and from the tensors stored with it; fills
 * w->enc, w->scales and w->biases. */
static ln_status matrix_encoding(binder *b, ln_weight *w) {
    ln_quant_entry entry;
    char name[NAME_MAX_BYTES];
    LN_TRY(block_entry(b, w->tensor, (int)w->slot, w->layer, &entry));
    w->enc = entry.enc;
    w->scales = find_sibling(b->t, w->tensor, ".scales");
    w->biases = find_sibling(b->t, w->tensor, ".biases");
    if (w->scales) b->used[w->scales - b->t->items] = true;
    if (w->biases) b->used[w->biases - b->t->items] = true;
    if (!entry.found && w->scales) w->enc = b->s->quant.enc;
    if (w->scales && !w->enc.bits)
        return ln_fail(b->err, LN_EINVALID,
                       "%s: tensor %s: config.json %s; expected `quantization` with bits and group_size for "
                       "it",
                       b->t->files[w->scales->file].path, w->scales->name,
                       entry.found ? "says that it is dense" : "has no quantization block");
    /* packed codes without scales: reported below */
    if (!entry.found && w->tensor->dtype == LN_ST_U32) w->enc = b->s->quant.enc;
    if (w->enc.bits && w->scales) settle_form(w, &entry);
    if (!w->enc.bits) return LN_OK;
    if (!w->scales && (sibling(name, w->tensor->name, ".scales"), !is_misplaced(b, name)))
        complain(b, name, " is missing");
    if (!w->biases && (sibling(name, w->tensor->name, ".biases"), !is_misplaced(b, name)))
        complain(b, name, " is missing");
    return LN_OK;
}

/* Checks that codes, scales and biases of a quantised matrix fit each other and the encoding; sets w->dtype.
 * *fits = false: a mismatch was recorded for the common message. */
static ln_status check_encoded(binder *b, ln_weight *w, bool *fits) {
    char why[64], text[128];
    *fits = false;
    if (!w->scales || !w->biases) return LN_OK; /* recorded as missing by matrix_encoding */
    if (w->tensor->dtype != LN_ST_U32)
        return bad_storage(b, w->tensor,
                           "codes packed in U32 where config.json says that a tensor is quantised");
    if (!storage(w->scales, &w->dtype)) return bad_storage(b, w->scales, "scales in F32, BF16 and F16");
    if (w->biases->dtype != w->scales->dtype)
        return bad_storage(b, w->biases, "biases in the type of the scales");
    if (w->d1 % w->enc.group != 0) {
        (void)snprintf(text, sizeof text, ": its %lld columns are no whole groups of %d", (long long)w->d1,
                       w->enc.group);
        complain(b, w->tensor->name, text);
        return LN_OK;
    }
    (void)snprintf(why, sizeof why, " for %d bits in groups of %d", w->enc.bits, w->enc.group);
    *fits = shape_ok(b, w->tensor, w->d0, w->d1 / 32 * w->enc.bits, why);
    *fits &= shape_ok(b, w->scales, w->d0, w->d1 / w->enc.group, why);
    *fits &= shape_ok(b, w->biases, w->d0, w->d1 / w->enc.group, why);
    return LN_OK;
}

/* Records a missing tensor. If the index of the shards lists it, the message says in which file it should be
 * and where it was found instead. */
static void missing(binder *b, int slot, int layer) {
    char name[NAME_MAX_BYTES];
    for (size_t p = 0; p < LN_COUNT(prefixes); p++) {
        slot_name(name, prefixes[p], slot, layer);
        if (is_misplaced(b, name)) return;
    }
    slot_name(name, slot == LN_W_HEAD ? "" : "model.", slot, layer);
    complain(b, name, " is missing");
}

/* Binds one slot; *index becomes its index in items, or -1. Missing and misshapen tensors are recorded, not
 * returned as an error: bind_all refuses them together. */
static ln_status bind(binder *b, int slot, int layer, int *index) {
    const ln_tensor *x = slot == LN_W_EMBED ? find_table(b) : find(b->t, slot, layer);
    *index = -1;
    if (!x) {
        missing(b, slot, layer);
        return LN_OK;
    }
    b->used[x - b->t->items] = true;
    ln_weight w = {.slot = (ln_slot)slot,
                   .layer = layer,
                   .tensor = x,
                   .d0 = ln_slot_size(b->s, ln_slot_rows[slot].shape[0])};
    bool fits = true;
    if (ln_slot_rows[slot].shape[1]) {
        w.d1 = ln_slot_size(b->s, ln_slot_rows[slot].shape[1]);
        w.uses = !(ln_slot_rows[slot].flags & LN_WF_EMBED) ? LN_WEIGHT_MATMUL
                 : b->s->tied                              ? LN_WEIGHT_MATMUL | LN_WEIGHT_GATHER
                                                           : LN_WEIGHT_GATHER;
        LN_TRY(matrix_encoding(b, &w));
    }
    if (w.enc.bits) LN_TRY(check_encoded(b, &w, &fits));
    else if (!storage(x, &w.dtype)) return bad_storage(b, x, "F32, BF16 and F16");
    else fits = shape_ok(b, x, w.d0, w.d1, "");
    if (!fits) return LN_OK;
    *index = (int)b->w->n;
    for (int i = 0; i < LN_WEIGHT_PARTS && ln_weight_part(&w, i); i++)
        b->w->bytes += ln_weight_part(&w, i)->bytes;
    b->w->n_parameters += (uint64_t)w.d0 * (uint64_t)(w.d1 ? w.d1 : 1);
    if (w.enc.bits) b->w->enc = b->s->quant.enc;
    b->w->items[b->w->n++] = w;
    return LN_OK;
}

static ln_status bind_all(binder *b) {
    for (int k = 0; k < LN_W_COUNT; k++) {
        b->w->index_fixed[k] = -1;
        if (!(ln_slot_rows[k].flags & LN_WF_LAYER) && ln_slot_wanted(b->s, k))
            LN_TRY(bind(b, k, -1, &b->w->index_fixed[k]));
    }
    for (int l = 0; l < b->s->L; l++)
        for (int k = 0; k < LN_W_COUNT; k++) {
            b->w->index_layer[l][k] = -1;
            if ((ln_slot_rows[k].flags & LN_WF_LAYER) && ln_slot_wanted(b->s, k))
                LN_TRY(bind(b, k, l, &b->w->index_layer[l][k]));
        }
    char shard[80], name[80];
    if (b->n_bad == 0) return LN_OK;
    if (b->list.failed) return LN_OOM(b->err, "the list of missing tensors");
    if (b->gone)
        return ln_fail(b->err, LN_EIO,
                       "%s: No such file, but the index places %s there; %zu of the tensors that the model "
                       "needs "
                       "are in missing shards; download the model again",
                       ln_excerpt(shard, b->gone->shard, strlen(b->gone->shard)),
                       ln_excerpt(name, b->gone->name, strlen(b->gone->name)), b->n_gone);
    return ln_fail(b->err, LN_EINVALID, "%zu tensors do not match config.json: %s%s", b->n_bad, b->list.data,
                   b->n_bad > 8 ? "; ... and more; is this the config.json of these weights?" : "");
}

/* ---- facts that the tensors decide ---- */

static const char *const leaves[] = {".scales", ".biases"}; /* stored with the codes of a quantised matrix */

/* Whether both tensors have the same type, shape and bytes; two absent tensors (NULL) are the same. */
static bool same_tensor(const ln_tensor *a, const ln_tensor *b) {
    if (!a || !b) return a == b;
    return a->dtype == b->dtype && a->bytes == b->bytes && a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
           (a->bytes == 0 || memcmp(a->data, b->data, (size_t)a->bytes) == 0);
}

/* Whether the index of the shards lists a separate head, although no file has it. */
static bool lists_head(const binder *b) {
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; i < b->t->n_absent; i++)
        for (size_t p = 0; p < LN_COUNT(prefixes); p++) {
            slot_name(name, prefixes[p], LN_W_HEAD, -1);
            if (strcmp(b->t->absent[i].name, name) == 0) return true;
        }
    return false;
}

/* Decides s->tied. A separate head in a model that the configuration calls tied: if its bytes equal the table
 * it counts as tied, else the separate head is used. */
static void settle_head(binder *b) {
    const ln_tensor *head = find(b->t, LN_W_HEAD, -1), *embed = find(b->t, LN_W_EMBED, -1);
    if (!head && !b->s->tied && lists_head(b)) return; /* bind_all records that it is missing */
    if (!head) {
        if (!b->s->tied)
            ln_log(LN_LOG_WARN, "tie_word_embeddings is false but there is no lm_head.weight; the embedding "
                                "is used as the head");
        b->s->tied = true;
        return;
    }
    if (!b->s->tied || !embed) return; /* not tied, or stored as lm_head only (find_table) */
    bool same = same_tensor(embed, head);
    for (size_t i = 0; same && i < LN_COUNT(leaves); i++)
        same = same_tensor(find_sibling(b->t, embed, leaves[i]), find_sibling(b->t, head, leaves[i]));
    if (same) {
        b->used[head - b->t->items] = true;
        for (size_t i = 0; i < LN_COUNT(leaves); i++) {
            const ln_tensor *x = find_sibling(b->t, head, leaves[i]);
            if (x) b->used[x - b->t->items] = true;
        }
        return;
    }
    ln_log(LN_LOG_WARN, "tie_word_embeddings is true but lm_head.weight differs from the embedding; using "
                        "lm_head.weight");
    b->s->tied = false;
}

static void settle_dtype(binder *b) {
    ln_spec *s = b->s;
    ln_dtype stored = b->w->items[b->w->index_fixed[LN_W_EMBED]].dtype;
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    if (stored != s->dtype)
        ln_log(LN_LOG_INFO, "config.json says %s, the tensors are %s; the tensors decide", names[s->dtype],
               names[stored]);
    s->dtype = stored;
    if (s->embed_scale == 1) return;
    if (stored == LN_BF16) s->embed_scale = ln_bf16_f32(ln_f32_bf16(s->embed_scale));
    if (stored == LN_F16) s->embed_scale = ln_f16_f32(ln_f32_f16(s->embed_scale));
}

/* ---- unused tensors ---- */

/* The layer number in the name of a layer's weight, if it is beyond the layers of the configuration:
 * config.json then belongs to another model. -1 for every other name. */
static int beyond(const ln_spec *s, const char *name) {
    const char *p = strstr(name, "layers.");
    if (!p || strstr(name, "vision") || strstr(name, "audio")) return -1;
    p += strlen("layers.");
    size_t n = strspn(p, "0123456789");
    int64_t l;
    if (n == 0 || !ln_parse_i64(p, n, &l) || l < s->L || l > INT32_MAX) return -1;
    for (int k = 0; k < LN_W_COUNT; k++)
        if ((ln_slot_rows[k].flags & LN_WF_LAYER) &&
            strcmp(ln_slot_rows[k].name + strlen("layers.{}"), p + n) == 0)
            return (int)l;
    return -1;
}

static bool known_extra(const char *name) {
    static const char end[] = ".rotary_emb.inv_freq";
    if (ln_tower_name(name)) return true;
    size_t n = strlen(name);
    return n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
}

static ln_status check_rest(binder *b) {
    size_t n = 0;
    ln_str names = {0};
    ln_status st = LN_OK;
    for (size_t i = 0; i < b->t->n && st == LN_OK; i++) {
        const ln_tensor *x = &b->t->items[i];
        if (b->used[i] || known_extra(x->name)) continue;
        char text[80];
        ln_excerpt(text, x->name, x->name_bytes);
        if (beyond(b->s, x->name) >= 0)
            st = ln_fail(b->err, LN_EINVALID,
                         "tensor %s: config.json says num_hidden_layers is %d; is it the config.json of "
                         "these weights?",
                         text, b->s->L);
        if (n++ < 3) ln_str_addf(&names, "%s%s", n > 1 ? ", " : "", text);
    }
    if (st == LN_OK && n)
        ln_log(LN_LOG_WARN, "%zu tensors are not used: %s%s", n, names.data ? names.data : "",
               n > 3 ? ", ..." : "");
    ln_str_free(&names);
    char text[80], shard[80];
    const struct ln_absent *a = b->t->absent; /* the model needs none of them: binding would have failed */
    if (st == LN_OK && b->t->n_absent)
        ln_log(LN_LOG_WARN,
               "the index names %zu tensors that are not where it says, and that this model does not need: "
               "%s in %s%s%s",
               b->t->n_absent, ln_excerpt(text, a->name, strlen(a->name)),
               ln_excerpt(shard, a->shard, strlen(a->shard)), a->no_file ? ", which does not exist" : "",
               b->t->n_absent > 1 ? ", ..." : "");
    return st;
}

static ln_status allocate(binder *b) {
    size_t per_layer = LN_W_COUNT, n;
    if (!ln_mul_size(per_layer, (size_t)b->s->L + 1, &n)) return LN_OOM(b->err, "the weights");
    b->w->items = ln_arena_alloc(&b->w->arena, n * sizeof *b->w->items);
    b->w->index_layer = ln_arena_alloc(&b->w->arena, (size_t)b->s->L * sizeof *b->w->index_layer);
    b->used = ln_zalloc(b->t->n + 1, sizeof *b->used);
    return b->w->items && b->w->index_layer && b->used ? LN_OK : LN_OOM(b->err, "the list of weights");
}

ln_status ln_weights_bind(ln_weights *out, ln_spec *s, const ln_tensors *t, ln_error *err) {
    *out = (ln_weights){0};
    binder b = {.w = out, .s = s, .t = t, .err = err};
    ln_status st = allocate(&b);
    if (st == LN_OK) {
        settle_head(&b);
        st = bind_all(&b);
    }
    if (st == LN_OK) st = check_rest(&b);
    if (st == LN_OK) settle_dtype(&b);
    ln_free(b.used);
    ln_str_free(&b.list);
    if (st != LN_OK) ln_weights_close(out);
    return st;
}

void ln_weight_name(char out[160], ln_slot slot, int layer) {
    char name[NAME_MAX_BYTES];
    slot_name(name, "", (int)slot, layer);
    (void)snprintf(out, 160, "%.159s", name);
}

ln_status ln_weights_encode(ln_weights *w, ln_spec *s, ln_enc enc, ln_error *err) {
    if (w->enc.bits)
        return ln_fail(err, LN_EUSAGE,
                       "ln_options.quantize_bits %d: the model is quantised already, to %d bits; leave it "
                       "out, or use the dense model",
                       enc.bits, w->enc.bits);
    for (size_t i = 0; i < w->n; i++) {
        ln_weight *x = &w->items[i];
        if (x->d1 == 0 || x->d1 % enc.group != 0) continue;
        x->enc = w->enc = s->quant.enc = enc;
        w->bytes -= x->tensor->bytes;
        w->bytes += (uint64_t)x->d0 * (uint64_t)(ln_affine_row_bytes(enc, x->d1) +
                                                 2 * (x->d1 / enc.group) * ln_dtype_bytes(x->dtype));
    }
    if (w->enc.bits) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "ln_options.quantize_bits %d: no matrix of this model has whole groups of %d columns; "
                   "leave it out",
                   enc.bits, enc.group);
}

void ln_weights_close(ln_weights *w) {
    ln_arena_free(&w->arena);
    *w = (ln_weights){0};
}
