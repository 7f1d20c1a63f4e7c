/* Binds the weights that a spec calls for to what a source finds (checkpoint/source.h), under any of the name
 * prefixes that checkpoints use.
 *
 * weights.def lists the slots; the spec says which of them this model has. Missing and misshapen tensors are
 * refused together in one message (checkpoint/bind_report.h). Unused tensors do not stop loading; one warning
 * counts them. Tensors that are known to serve other purposes (a vision tower, stored rotary buffers) are
 * ignored silently.
 *
 * The tensors override two facts of the configuration: whether the head is tied to the embedding (a head
 * whose bytes equal the table counts as tied), and the dtype to which the embedding scale is rounded. A tied
 * model may be stored with the name of the head only: safetensors' save_model keeps the first name of a
 * shared pair, which is lm_head.weight. */
#include "../base/elementary.h"
#include "../io/tower_names.h"
#include "expert_names.h"
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
    bool *used; /* [t->n]: tensors that a weight or a tied head accounts for */
    ln_bind_report report;
} binder;

static void fill_name(char out[NAME_MAX_BYTES], const char *prefix, const char *name, int layer) {
    const char *mark = strstr(name, "{}");
    if (mark)
        (void)snprintf(out, NAME_MAX_BYTES, "%s%.*s%d%s", prefix, (int)(mark - name), name, layer, mark + 2);
    else (void)snprintf(out, NAME_MAX_BYTES, "%s%s", prefix, name);
}

/* The name of a slot's tensor: the family's, or that of weights.def. s NULL: of every family. */
static void slot_name(char out[NAME_MAX_BYTES], const ln_spec *s, const char *prefix, int slot, int layer) {
    const ln_slot_name *own = s ? ln_slot_name_of(s, slot) : NULL;
    fill_name(out, prefix, own ? own->name : ln_slot_rows[slot].name, layer);
}

/* The names that a slot's tensor may have. lm_head is a sibling of the `model` module and not part of it: for
 * it the prefixes are tried in reverse, the plain name first. Returns how many there are. */
enum { PREFIXES = LN_COUNT(prefixes) };
static size_t names_of(char names[][NAME_MAX_BYTES], const ln_spec *s, int slot, int layer) {
    for (size_t i = 0; i < PREFIXES; i++)
        slot_name(names[i], s, prefixes[slot == LN_W_HEAD ? PREFIXES - 1 - i : i], slot, layer);
    return PREFIXES;
}

/* Finds a weight of experts under any of its names. */
static ln_status find_experts(binder *b, ln_weight *w, bool *fits) {
    size_t n_rows, n = 0;
    const ln_expert_row *rows = ln_expert_rows(&n_rows);
    char(*text)[NAME_MAX_BYTES] = ln_alloc(PREFIXES * n_rows * sizeof *text);
    const char **names = ln_alloc(PREFIXES * n_rows * sizeof *names);
    uint8_t *in = ln_alloc(PREFIXES * n_rows);
    ln_status st = text && names && in ? LN_OK : LN_OOM(b->err, "the names of experts");
    for (size_t i = 0; st == LN_OK && i < n_rows; i++)
        for (size_t p = 0; p < PREFIXES && rows[i].slot == w->slot; p++, n++) {
            fill_name(text[n], prefixes[p], rows[i].name, w->layer);
            names[n] = text[n];
            in[n] = ln_expert_row_in(&rows[i], &ln_ffn_of(b->s, w->layer)->moe);
        }
    const ln_source_ask ask = {.names = names, .experts = in, .n_names = n, .report = &b->report};
    if (st == LN_OK) st = b->w->source->ops->find(b->w->source, &ask, w, fits, b->err);
    ln_free(text);
    ln_free(names);
    ln_free(in);
    return st;
}

static const ln_tensor *find(const binder *b, int slot) {
    char names[PREFIXES][NAME_MAX_BYTES];
    const ln_tensor *x = NULL;
    const size_t n = names_of(names, b->s, slot, -1);
    for (size_t i = 0; i < n && !x; i++) x = ln_source_tensor(b->t, names[i]);
    return x;
}

/* Records a missing tensor. If the index of the shards lists it, the message says in which file it should be
 * and where it was found instead. */
static void missing(binder *b, int slot, int layer) {
    char name[NAME_MAX_BYTES];
    for (size_t p = 0; p < PREFIXES; p++) {
        slot_name(name, b->s, prefixes[p], slot, layer);
        if (ln_report_misplaced(&b->report, name)) return;
    }
    slot_name(name, b->s, slot == LN_W_HEAD ? "" : "model.", slot, layer);
    char *mark = strstr(name, "{x}");
    if (mark) memmove(mark + 1, mark + 3, strlen(mark + 3) + 1), *mark = '0';
    ln_report_fault(&b->report, name, " is missing");
}

static unsigned uses_of(const binder *b, int slot) {
    if (!(ln_slot_rows[slot].flags & LN_WF_EMBED)) return LN_WEIGHT_MATMUL;
    return slot == LN_W_EMBED && b->s->tied ? LN_WEIGHT_MATMUL | LN_WEIGHT_GATHER : LN_WEIGHT_GATHER;
}

/* Has the source find a weight. The embedding table of a tied model may have the name lm_head.weight only. */
static ln_status find_weight(binder *b, ln_weight *w, const ln_row_pieces *pieces, bool *fits) {
    char text[2 * PREFIXES][NAME_MAX_BYTES];
    const char *names[2 * PREFIXES];
    if (w->n_experts) return find_experts(b, w, fits);
    size_t n = names_of(text, b->s, w->slot, w->layer);
    if (w->slot == LN_W_EMBED && b->s->tied) n += names_of(text + n, b->s, LN_W_HEAD, -1);
    for (size_t i = 0; i < n; i++) names[i] = text[i];
    const ln_source_ask ask = {.names = names, .n_names = n, .pieces = pieces, .report = &b->report};
    return b->w->source->ops->find(b->w->source, &ask, w, fits, b->err);
}

/* Sets what a weight has of a tensor that holds the rows of several slots. Returns its pieces, if it lies in
 * some. */
static const ln_row_pieces *take_place(const ln_spec *s, int slot, int layer, ln_weight *w,
                                       ln_row_pieces *pieces) {
    const ln_slot_name *own = ln_slot_name_of(s, slot);
    if (own && own->n_parts > 0 && s->parts_by_head) {
        ln_slot_pieces(s, own, slot, layer, pieces);
        return pieces;
    }
    for (int i = 0; own && i < own->n_parts; i++) {
        if (own->parts[i] == (ln_slot)slot) w->row0 = w->whole;
        w->whole += ln_slot_size(s, ln_slot_rows[own->parts[i]].shape[0], layer);
    }
    return NULL;
}

/* The rows of a weight that are split among ranks as one, which ln_weight describes; 0: it is not split. */
static int64_t split_rows(const ln_spec *s, const ln_weight *w) {
    switch (ln_slot_rows[w->slot].split) {
    case LN_SPLIT_NONE: return 0;
    case LN_SPLIT_HEADS: return w->d0 / ln_attn_of(s, w->layer)->K;
    case LN_SPLIT_ROWS: break;
    }
    return LN_SPLIT_UNIT;
}

/* Binds one slot; *index becomes its index in items, or -1. Missing and misshapen tensors are recorded, not
 * returned as an error: bind_all refuses them together. */
static ln_status bind(binder *b, int slot, int layer, int *index) {
    const char *shape = ln_slot_rows[slot].shape;
    ln_weight w = {.slot = slot, .layer = layer, .d0 = ln_slot_size(b->s, shape[0], layer)};
    bool fits;
    if (ln_slot_rows[slot].flags & LN_WF_CONV) w.taps = ln_recur_of(b->s, layer)->sizes.taps;
    ln_row_pieces in_pieces;
    const ln_row_pieces *pieces = take_place(b->s, slot, layer, &w, &in_pieces);
    *index = -1;
    if (ln_slot_rows[slot].flags &
        LN_WF_EXPERTS) { /* each row of the shape is one of the rows of an expert */
        w.n_experts = w.d0;
        w.d0 *= ln_slot_size(b->s, *++shape, layer);
    }
    if (shape[1]) w.d1 = ln_slot_size(b->s, shape[1], layer), w.uses = uses_of(b, slot);
    w.split_rows = split_rows(b->s, &w);
    LN_TRY(find_weight(b, &w, pieces, &fits));
    if (!w.tensor) {
        if (!(ln_slot_rows[slot].flags & LN_WF_OPTIONAL)) missing(b, slot, layer);
        return LN_OK;
    }
    for (int64_t i = 0; i < ln_weight_tensors(&w); i++)
        if (ln_weight_tensor(&w, i)) b->used[ln_weight_tensor(&w, i) - b->t->items] = true;
    if (!fits) return LN_OK;
    *index = (int)b->w->n;
    for (int64_t i = 0; i < ln_weight_tensors(&w); i++) b->w->bytes += ln_weight_tensor_bytes(&w, i);
    const uint64_t n = (uint64_t)w.d0 * (uint64_t)(w.d1 ? w.d1 : 1);
    b->w->n_parameters += n;
    b->w->n_active +=
        !w.n_experts ? n : n / (uint64_t)w.n_experts * (uint64_t)ln_ffn_of(b->s, layer)->moe.route.top_k;
    if (w.code.bits) b->w->code = w.code;
    b->w->items[b->w->n++] = w;
    return LN_OK;
}

static ln_status bind_all(binder *b) {
    for (int k = 0; k < LN_W_COUNT; k++) {
        b->w->index_fixed[k] = -1;
        if (ln_slot_wanted(b->s, k, -1)) LN_TRY(bind(b, k, -1, &b->w->index_fixed[k]));
    }
    for (int l = 0; l < b->s->L; l++)
        for (int k = 0; k < LN_W_COUNT; k++) {
            b->w->index_layer[l][k] = -1;
            if (ln_slot_wanted(b->s, k, l)) LN_TRY(bind(b, k, l, &b->w->index_layer[l][k]));
        }
    return LN_OK;
}

/* ---- facts that the tensors decide ---- */

static const char *const leaves[] = {".scales", ".biases"}; /* stored with the codes of a quantised matrix */

/* A tensor of the same module: `a.b.weight` -> `a.b` + leaf; or NULL. */
static const ln_tensor *find_sibling(const ln_tensors *t, const ln_tensor *x, const char *leaf) {
    char name[NAME_MAX_BYTES];
    const size_t n = strlen(x->name), tail = strlen(".weight");
    (void)snprintf(name, sizeof name, "%.*s%s", (int)(n > tail ? n - tail : 0), x->name, leaf);
    return ln_tensors_find(t, name);
}

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
        for (size_t p = 0; p < PREFIXES; p++) {
            slot_name(name, b->s, prefixes[p], LN_W_HEAD, -1);
            if (strcmp(b->t->absent[i].name, name) == 0) return true;
        }
    return false;
}

/* Decides s->tied. A separate head in a model that the configuration calls tied: if its bytes equal the table
 * it counts as tied, else the separate head is used. */
static void settle_head(binder *b) {
    const ln_tensor *head = find(b, LN_W_HEAD), *embed = find(b, LN_W_EMBED);
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
    const ln_weight *table = &b->w->items[b->w->index_fixed[LN_W_EMBED]];
    const bool blocks = table->tensor->dtype >= LN_ST_BLOCKS; /* of GGUF: products of f32 and f16 */
    const ln_dtype stored = blocks ? LN_F16 : table->dtype;
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    if (stored != s->dtype)
        ln_log(LN_LOG_INFO, "config.json says %s, the tensors are %s; the tensors decide", names[s->dtype],
               names[stored]);
    s->dtype = stored;
    if (blocks) s->embed_scale_rounded = false;
    if (!s->embed_scale_rounded) return;
    if (stored == LN_BF16) s->per_layer_scale = ln_bf16_f32(ln_f32_bf16(s->per_layer_scale));
    if (stored == LN_F16) s->per_layer_scale = ln_f16_f32(ln_f32_f16(s->per_layer_scale));
    if (stored == LN_BF16) s->embed_scale = ln_bf16_f32(ln_f32_bf16(s->embed_scale));
    if (stored == LN_F16) s->embed_scale = ln_f16_f32(ln_f32_f16(s->embed_scale));
}

/* The number that a tensor of layer l holds, or what stands for it if the model has none. */
static float number_of(const binder *b, ln_slot slot, int l, float absent) {
    const int i = b->w->index_layer[l][slot];
    const ln_weight *w = i < 0 ? NULL : &b->w->items[i];
    return w ? ln_num_load(w->tensor->data, w->dtype, 0) : absent;
}

/* log(1 + exp(x)), as torch's softplus, in which it is x above 20. */
static float softplus(float x) { return x > 20 ? x : (float)ln_log64(1 + ln_exp64((double)x)); }

/* Numbers of layers are numbers of the spec, so that a program has them without an operand: the factor of its
 * output, and those of xIELU (XIELUActivation in transformers' activations.py). */
static void settle_numbers(binder *b) {
    for (int l = 0; l < b->s->L; l++) {
        ln_layer *x = &b->s->layers[l];
        if (b->s->layer_scales) x->scale = number_of(b, LN_W_SCALE, l, 1);
        if (ln_ffn_of(b->s, l)->act != LN_ACT_XIELU) continue;
        const float beta = number_of(b, LN_W_XIELU_BETA, l, 0.5f);
        x->xielu = (ln_p_xielu){.alpha_p = softplus(number_of(b, LN_W_XIELU_P, l, 0)),
                                .alpha_n = beta + softplus(number_of(b, LN_W_XIELU_N, l, 0)),
                                .beta = beta,
                                .eps = number_of(b, LN_W_XIELU_EPS, l, -1e-6f)};
    }
}

/* Norm weights of files whose convolutions have the axes of mlx-lm: it adds the offset when it converts. */
static void settle_norms(binder *b) {
    for (size_t i = 0; i < b->w->n && b->s->conv_tells_norms; i++) {
        const ln_weight *w = &b->w->items[i];
        if (w->taps > 1 && w->tensor->dims[2] == 1) b->s->norm_offset = 0;
    }
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
    for (int k = 0; k < LN_W_COUNT; k++) {
        const ln_slot_name *own = ln_slot_name_of(s, k);
        const char *slot = own ? own->name : ln_slot_rows[k].name;
        if ((ln_slot_rows[k].flags & LN_WF_LAYER) && strcmp(slot + strlen("layers.{}"), p + n) == 0)
            return (int)l;
    }
    return -1;
}

/* Whether a tensor would be a weight of keys or values if its layer did not attend to those of another one:
 * files may have them. */
static bool of_shared_state(const ln_spec *s, const char *name) {
    const char *p = strstr(name, "layers.");
    int64_t l;
    if (!p) return false;
    p += strlen("layers.");
    const size_t n = strspn(p, "0123456789");
    if (n == 0 || !ln_parse_i64(p, n, &l) || l >= s->L || ln_owns_state(s, (int)l)) return false;
    for (int k = 0; k < LN_W_COUNT; k++)
        if ((ln_slot_rows[k].flags & LN_WF_LAYER) && !ln_slot_wanted(s, k, (int)l) &&
            strcmp(ln_slot_rows[k].name + strlen("layers.{}"), p + n) == 0)
            return true;
    return false;
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
        if (b->used[i] || known_extra(x->name) || of_shared_state(b->s, x->name)) continue;
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
    b->w->source = ln_source_of_tensors(&b->w->arena, b->t, &b->s->quant);
    return b->w->items && b->w->index_layer && b->used && b->w->source
               ? LN_OK
               : LN_OOM(b->err, "the list of weights");
}

ln_status ln_weights_bind(ln_weights *out, ln_spec *s, const ln_tensors *t, ln_error *err) {
    *out = (ln_weights){0};
    binder b = {.w = out, .s = s, .t = t, .err = err, .report.t = t};
    ln_status st = ln_quant_check_names(&s->quant, t, err);
    if (st == LN_OK) st = allocate(&b);
    if (st == LN_OK) {
        settle_head(&b);
        st = bind_all(&b);
    }
    if (st == LN_OK) st = ln_report_end(&b.report, err);
    if (st == LN_OK) st = check_rest(&b);
    if (st == LN_OK) settle_dtype(&b), settle_numbers(&b), settle_norms(&b);
    ln_free(b.used);
    ln_str_free(&b.report.list);
    if (st != LN_OK) ln_weights_close(out);
    return st;
}

void ln_weight_name(char out[160], const ln_spec *s, ln_slot slot, int layer) {
    char name[NAME_MAX_BYTES];
    slot_name(name, s, "", (int)slot, layer);
    (void)snprintf(out, 160, "%.159s", name);
}

bool ln_weights_are_quantised(const ln_weights *w) {
    for (size_t i = 0; i < w->n; i++)
        if (w->items[i].code.bits && !ln_source_is_mxfp4(&w->items[i])) return true;
    return false;
}

ln_status ln_weights_encode(ln_weights *w, ln_spec *s, ln_groups code, ln_error *err) {
    if (ln_weights_are_quantised(w))
        return ln_fail(err, LN_EUSAGE,
                       "ln_options.quantize_bits %d: the model is quantised already, to %d bits; leave it "
                       "out, or use the dense model",
                       code.bits, w->code.bits);
    const ln_source *source = ln_source_quantizing(&w->arena, w->source);
    if (!source) return LN_OOM(err, "the weights");
    w->source = source;
    for (size_t i = 0; i < w->n; i++) {
        ln_weight *x = &w->items[i];
        /* The inputs of layers stay in the file, of which few rows are read. */
        if (x->slot == LN_W_LAYER_EMBED || ln_weight_stays_dense(x) || !ln_source_quantize(x, code)) continue;
        const ln_row_bytes row = ln_encoding_row(x->enc, x->d1);
        w->code = s->quant.code = code;
        for (int64_t k = 0; k < ln_weight_tensors(x); k++) w->bytes -= ln_weight_tensor_bytes(x, k);
        w->bytes += (uint64_t)x->d0 * (uint64_t)(row.data + row.scales + row.offsets);
    }
    if (w->code.bits) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "ln_options.quantize_bits %d: no matrix of this model has whole groups of %d columns; "
                   "leave it out",
                   code.bits, code.group);
}

bool ln_weights_are_coded(const ln_weights *w) {
    for (size_t i = 0; i < w->n; i++)
        if (ln_encoding_is_coded(w->items[i].enc)) return true;
    return false;
}

bool ln_weights_have_experts(const ln_weights *w) {
    for (size_t i = 0; i < w->n; i++)
        if (w->items[i].n_experts) return true;
    return false;
}

void ln_weights_close(ln_weights *w) {
    ln_arena_free(&w->arena);
    *w = (ln_weights){0};
}
