/* Files of keys and values.
 *
 * A file is safetensors: `tokens`, I32 [n]; for each layer keys.LAYER, [T, K, E], and values.LAYER,
 * [T, K, Ev], of the last T positions that the layer's window group holds (all n without a window), in the
 * KV type, bit for bit; for each recurrent layer state.LAYER, F32, its state in the page of the last block,
 * with 0 in rows that the text does not have; `checksum`, U64 [1], the XXH64 of the bytes of the tensors
 * before it. __metadata__ has what the bits depend on. The layout is that of no device: run/ has the device
 * pack and unpack its pages.
 *
 * Pages are read and written with the driver token, so that no step runs meanwhile. Saving holds the pages of
 * the text (ln_kv_hold), takes the token for a slice of them at a time, and writes without it, so that it
 * delays other requests by a few milliseconds only. Where the requests that run may need all pages of the
 * pool, it keeps the token instead. A file is checked completely, checksum included, before it is loaded. */
#include "kv_file.h"
#include "../base/json.h"
#include "../base/xxh64.h"
#include "scheduler.h"

#include <string.h>

/* Metadata. FORMAT to KV_TYPE must be equal in file and engine. ROPE: which rotary frequencies the keys have
 * (ln_spec_rope_length). */
enum {
    FORMAT,
    VERSION,
    WEIGHTS,
    CONFIG,
    TOKENIZER,
    ADAPTER,
    NUMERICS,
    QUANTIZE,
    KV_TYPE,
    N_CHECKED,
    ROPE = N_CHECKED,
    N_META
};
static const struct {
    const char *key, *what; /* what: for messages */
} metas[N_META] = {{"format", "the format"},
                   {"version", "the version of the format"},
                   {"weights", "the weights"},
                   {"config", "config.json"},
                   {"tokenizer", "the tokenizer"},
                   {"adapter", "the adapter"},
                   {"numerics", "the numerics"},
                   {"quantize", "the bits that weights are quantised to at load"},
                   {"kv_type", "the type of keys and values"},
                   {"rope", "the rotary frequencies"}};

enum { META_TEXT = 80 };
typedef char meta_texts[N_META][META_TEXT];

/* The key of the engine's own adapter in the prefix cache. */
static uint64_t own_adapter(const ln_eng *e) {
    const ln_adapter_slot *a = ln_adapters_default(e);
    return a ? a->key : 0;
}

/* Whether the file stores an element in bf16. Elements of pages of 8 bits are exact in it, and packing them
 * again gives the same pages (quant/block_int8.h). */
static bool is_two_bytes(const ln_run *r) { return r->kv.groups[0].dtype == LN_BF16 || r->opt.kv_q8; }

/* What this engine writes, but for ROPE. */
static ln_status own_meta(const ln_eng *e, meta_texts out, ln_error *err) {
    const ln_digests *d;
    LN_TRY(ln_package_digests(e->model, &d, err));
    memset(out, 0, sizeof(meta_texts));
    (void)snprintf(out[FORMAT], META_TEXT, "linnet-kv");
    (void)snprintf(out[VERSION], META_TEXT, "1");
    (void)snprintf(out[WEIGHTS], META_TEXT, "%s", d->weights);
    (void)snprintf(out[CONFIG], META_TEXT, "%s", d->config);
    (void)snprintf(out[TOKENIZER], META_TEXT, "%s", d->tokenizer);
    const ln_adapter_slot *a = ln_adapters_default(e);
    (void)snprintf(out[ADAPTER], META_TEXT, "%s", a ? a->digest : "none");
    (void)snprintf(out[NUMERICS], META_TEXT, "%s", e->run->opt.numerics == LN_FAST ? "fast" : "exact");
    (void)snprintf(out[QUANTIZE], META_TEXT, "%d", e->model->opt.quantize_bits);
    (void)snprintf(out[KV_TYPE], META_TEXT, "%s",
                   e->run->opt.kv_q8      ? "q8"
                   : is_two_bytes(e->run) ? "bfloat16"
                                          : "float32");
    return LN_OK;
}

/* ---- the tensors of a file ---- */

/* The file of n tokens in the view of an engine. Tensors: tokens; keys and values of each layer that has some
 * of its own; checksum. */
typedef struct layout {
    ln_tensor_spec *specs; /* [n_specs] */
    size_t n_specs;
    char (*names)[24];
    size_t *tensor_of; /* [L] index of a layer's keys, which its values follow; 0: it reads another layer's */
    int64_t n, first[LN_STATE_GROUPS]; /* tokens; the first position of window group c in the file */
} layout;

static void layout_free(layout *l) {
    ln_free(l->specs);
    ln_free(l->names);
    ln_free(l->tensor_of);
}

/* The first position that a group with a window holds in pages for a text of n tokens. */
static int64_t first_position(const ln_eng *e, int c, int64_t n) {
    const int64_t w = e->run->opt.keep_full_kv ? 0 : e->run->kv.groups[c].window;
    return w == 0 || n < w ? 0 : (n - w + 1) / e->run->kv.page_len * e->run->kv.page_len;
}

static bool is_recurrent(const ln_run *r, int layer) {
    return r->kv.groups[r->kv.group[layer]].kind == LN_STATE_CHUNKS;
}
/* Numbers of a recurrent layer's state in a page. */
static int64_t state_numbers(const ln_run *r, int layer) {
    ln_recur_part part;
    int64_t n = 0;
    for (int i = 0; i < LN_RECUR_PARTS; i++)
        n += ln_recur_part_of(&r->kv.groups[r->kv.group[layer]].recur, r->kv.page_len, i, &part);
    return n;
}
/* Sets to 0 what rows n .. page_len - 1 have left in a state: of another text, perhaps. */
static void clear_rows(const ln_run *r, int layer, int64_t n, float *state) {
    for (int i = 0; i < LN_RECUR_PARTS; i++) {
        ln_recur_part p;
        const int64_t all = ln_recur_part_of(&r->kv.groups[r->kv.group[layer]].recur, r->kv.page_len, i, &p);
        for (int64_t k = 0; k < all; k++) {
            const int64_t row = p.by_row ? k / p.cols % p.rows - p.lead : p.by_col ? k % p.cols : -1;
            if (row >= n) state[k] = 0;
        }
        state += all;
    }
}

static ln_status layout_of(const ln_eng *e, int64_t n, layout *l, ln_error *err) {
    const ln_spec *s = e->run->spec;
    const ln_state_pool *kv = &e->run->kv;
    *l = (layout){.n = n, .n_specs = 2};
    for (int i = 0; i < s->L; i++) l->n_specs += is_recurrent(e->run, i) ? 1 : ln_owns_state(s, i) ? 2 : 0;
    l->specs = ln_zalloc(l->n_specs, sizeof *l->specs);
    l->names = ln_zalloc(l->n_specs, sizeof *l->names);
    l->tensor_of = ln_zalloc((size_t)s->L, sizeof *l->tensor_of);
    if (!l->specs || !l->names || !l->tensor_of) return LN_OOM(err, "a file of keys and values");
    for (int c = 0; c < kv->n_groups; c++) l->first[c] = first_position(e, c, n);
    l->specs[0] = (ln_tensor_spec){.name = "tokens", .dtype = LN_ST_I32, .n_dims = 1, .dims = {n}};
    size_t at = 1;
    for (int i = 0; i < 2 * s->L; i++) {
        const int c = kv->group[i / 2];
        if (!ln_owns_state(s, i / 2)) continue;
        if (is_recurrent(e->run, i / 2) && i % 2) continue;
        if (i % 2 == 0) l->tensor_of[i / 2] = at;
        if (is_recurrent(e->run, i / 2)) {
            (void)snprintf(l->names[at], sizeof l->names[at], "state.%d", i / 2);
            l->specs[at] = (ln_tensor_spec){.name = l->names[at],
                                            .dtype = LN_ST_F32,
                                            .n_dims = 1,
                                            .dims = {state_numbers(e->run, i / 2)}};
            at++;
            continue;
        }
        (void)snprintf(l->names[at], sizeof l->names[at], "%s.%d", i % 2 ? "values" : "keys", i / 2);
        l->specs[at] = (ln_tensor_spec){.name = l->names[at],
                                        .dtype = is_two_bytes(e->run) ? LN_ST_BF16 : LN_ST_F32,
                                        .n_dims = 3,
                                        .dims = {n - l->first[c], kv->groups[c].n_kv_heads,
                                                 i % 2 ? kv->groups[c].v_dim : kv->groups[c].head_dim}};
        at++;
    }
    l->specs[l->n_specs - 1] =
        (ln_tensor_spec){.name = "checksum", .dtype = LN_ST_U64, .n_dims = 1, .dims = {1}};
    return LN_OK;
}

/* ---- one layer's part of a page ---- */

static const ln_state_group *group_of(const ln_run *r, int layer) {
    return &r->kv.groups[r->kv.group[layer]];
}
/* Width of a head of a layer's keys, or values. */
static int64_t head_of(const ln_run *r, int layer, bool values) {
    return values ? group_of(r, layer)->v_dim : group_of(r, layer)->head_dim;
}
/* Elements of a position's keys, or values. */
static size_t elements_of(const ln_run *r, int layer, bool values) {
    return (size_t)group_of(r, layer)->n_kv_heads * (size_t)head_of(r, layer, values);
}

/* Where element e of head h at position t of a page is in what run/ downloads: keys [K, E, page_len], values
 * [K, page_len, Ev]. */
static size_t in_page(const ln_run *r, int layer, bool values, int64_t h, int64_t t, int64_t e) {
    const int64_t E = head_of(r, layer, values), len = r->kv.page_len;
    return (size_t)(values ? (h * len + t) * E + e : (h * E + e) * len + t);
}

static size_t width_of(const ln_run *r) { return is_two_bytes(r) ? 2 : 4; }

/* Converts the first n positions of a downloaded part to [n, K, E or Ev] in the KV type, or back. */
static void to_rows(const ln_run *r, int layer, bool values, int64_t n, const float *part, uint8_t *rows) {
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < group_of(r, layer)->n_kv_heads; h++)
            for (int64_t e = 0; e < head_of(r, layer, values); e++, rows += width_of(r)) {
                uint32_t bits;
                memcpy(&bits, &part[in_page(r, layer, values, h, t, e)], sizeof bits);
                const uint16_t high = (uint16_t)(bits >> 16); /* bf16: the low bits are zero */
                if (width_of(r) == 2) memcpy(rows, &high, 2);
                else memcpy(rows, &bits, 4);
            }
}
static void from_rows(const ln_run *r, int layer, bool values, int64_t n, const uint8_t *rows, float *part) {
    memset(part, 0, elements_of(r, layer, values) * (size_t)r->kv.page_len * sizeof *part);
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < group_of(r, layer)->n_kv_heads; h++)
            for (int64_t e = 0; e < head_of(r, layer, values); e++, rows += width_of(r)) {
                uint32_t bits;
                uint16_t high;
                if (width_of(r) == 2) memcpy(&high, rows, 2), bits = (uint32_t)high << 16;
                else memcpy(&bits, rows, 4);
                memcpy(&part[in_page(r, layer, values, h, t, e)], &bits, sizeof bits);
            }
}

/* ---- saving ---- */

enum { SLICE = 16 }; /* parts of pages that are read at once */

typedef struct saver {
    ln_eng *e;
    ln_out out;
    bool replace; /* an existing file */
    ln_xxh64 sum;
    layout l;
    int64_t rope;
    int32_t *pages[LN_STATE_GROUPS]; /* of ln_kv_lookup */
    ln_seq *held;                    /* holds them; NULL: this thread has the driver token until the end */
    float *parts;                    /* [SLICE, part_of] */
    uint8_t *rows;                   /* one of them, in the KV type */
} saver;

static ln_status put(saver *s, const void *data, size_t bytes, ln_error *err) {
    ln_xxh64_add(&s->sum, data, bytes);
    return ln_out_write(&s->out, data, bytes, err);
}

/* The most elements of a layer's keys or values in a page. */
static size_t part_of(const ln_run *r) {
    size_t most = 0;
    for (int i = 0; i < 2 * r->spec->L; i++) most = LN_MAX(most, elements_of(r, i / 2, i % 2));
    return most * (size_t)r->kv.page_len;
}
/* The most numbers of a recurrent layer's state in a page. */
static size_t state_of(const ln_run *r) {
    int64_t most = 0;
    for (int i = 0; i < r->spec->L; i++)
        if (is_recurrent(r, i)) most = LN_MAX(most, state_numbers(r, i));
    return (size_t)most;
}

/* Reads a layer's parts of n blocks from block b on. */
static ln_status read_parts(saver *s, int layer, bool values, int64_t b, int64_t n, ln_error *err) {
    ln_run *r = s->e->run;
    const int c = r->kv.group[layer];
    ln_status st = LN_OK;
    if (s->held) LN_TRY(ln_driver_pause(s->e->sched, err));
    for (int64_t i = 0; st == LN_OK && i < n; i++) {
        const int64_t page =
            s->pages[c][(b + i) * r->kv.groups[c].pages_per_block + r->kv.page_in_block[layer]];
        float *to = s->parts + (size_t)i * part_of(r);
        st = ln_run_read_page(r, layer, page, values ? NULL : to, values ? to : NULL, err);
    }
    if (s->held) ln_driver_resume(s->e->sched);
    return st;
}

static ln_status put_layer(saver *s, int layer, bool values, ln_error *err) {
    const ln_run *r = s->e->run;
    const int c = r->kv.group[layer], len = r->kv.page_len;
    const int64_t blocks = (s->l.n + len - 1) / len;
    for (int64_t b = s->l.first[c] / len; b < blocks; b += SLICE) {
        const int64_t m = LN_MIN(blocks - b, (int64_t)SLICE);
        LN_TRY(read_parts(s, layer, values, b, m, err));
        for (int64_t i = 0; i < m; i++) {
            const int64_t n = LN_MIN(s->l.n - (b + i) * len, (int64_t)len);
            to_rows(r, layer, values, n, s->parts + (size_t)i * part_of(r), s->rows);
            LN_TRY(put(s, s->rows, (size_t)n * elements_of(r, layer, values) * width_of(r), err));
        }
    }
    return LN_OK;
}

static ln_status put_state(saver *s, int layer, ln_error *err) {
    const int64_t len = s->e->run->kv.page_len, b = (s->l.n - 1) / len;
    LN_TRY(read_parts(s, layer, false, b, 1, err));
    clear_rows(s->e->run, layer, s->l.n - b * len, s->parts);
    return put(s, s->parts, (size_t)state_numbers(s->e->run, layer) * sizeof *s->parts, err);
}

static ln_status put_header(saver *s, meta_texts texts, ln_error *err) {
    const char *meta[N_META][2];
    ln_str head = {0};
    (void)snprintf(texts[ROPE], META_TEXT, "%lld", (long long)s->rope);
    for (int i = 0; i < N_META; i++) meta[i][0] = metas[i].key, meta[i][1] = texts[i];
    ln_status st = ln_tensors_header_meta(&head, meta, N_META, s->l.specs, s->l.n_specs, err);
    if (st == LN_OK) st = ln_out_write(&s->out, head.data, head.len, err);
    ln_str_free(&head);
    return st;
}

static ln_status put_file(saver *s, const char *path, meta_texts texts, const int32_t *ids, ln_error *err) {
    LN_TRY(layout_of(s->e, s->l.n, &s->l, err));
    LN_TRY(ln_out_open_as(&s->out, path, s->replace, 0600, err)); /* it tells what a user wrote */
    LN_TRY(put_header(s, texts, err));
    ln_xxh64_open(&s->sum);
    LN_TRY(put(s, ids, (size_t)s->l.n * sizeof *ids, err));
    for (int i = 0; i < 2 * s->e->run->spec->L; i++) {
        const bool recurrent = is_recurrent(s->e->run, i / 2);
        if (recurrent && i % 2 == 0) LN_TRY(put_state(s, i / 2, err));
        if (!recurrent && s->l.tensor_of[i / 2]) LN_TRY(put_layer(s, i / 2, i % 2, err));
    }
    const uint64_t sum = ln_xxh64_value(&s->sum);
    LN_TRY(ln_out_write(&s->out, &sum, sizeof sum, err));
    return ln_out_commit(&s->out, err);
}

static ln_status open_saver(saver *s, size_t n, ln_error *err) {
    const ln_run *r = s->e->run;
    const size_t blocks = n / (size_t)r->kv.page_len + 1;
    s->parts = ln_zalloc(LN_MAX(SLICE * part_of(r), state_of(r)), sizeof *s->parts);
    s->rows = ln_zalloc(part_of(r), sizeof(float));
    for (int c = 0; c < r->kv.n_groups; c++) {
        s->pages[c] = ln_zalloc(blocks * (size_t)r->kv.groups[c].pages_per_block, sizeof(int32_t));
        if (!s->pages[c]) return LN_OOM(err, "a file of keys and values");
    }
    return s->parts && s->rows ? LN_OK : LN_OOM(err, "a file of keys and values");
}

static void close_saver(saver *s) {
    if (s->held) {
        ln_error lost; /* in a fork: no step runs then */
        const bool mine = ln_driver_pause(s->e->sched, &lost) == LN_OK;
        ln_kv_release(s->e->kv, &s->held);
        if (mine) ln_driver_resume(s->e->sched);
    }
    ln_out_abort(&s->out);
    layout_free(&s->l);
    for (int c = 0; c < LN_STATE_GROUPS; c++) ln_free(s->pages[c]);
    ln_free(s->parts);
    ln_free(s->rows);
}

/* Finds what is kept of a text, and holds it where that takes nothing from the requests that run. With the
 * token. */
static ln_status find_text(saver *s, const char *path, const int32_t *ids, size_t n, ln_error *err) {
    char shown[LN_PATH_TEXT];
    s->l.n = ln_kv_lookup(s->e->kv, own_adapter(s->e), ids, (int64_t)n, &s->rope, s->pages);
    if (s->l.n > 0) return ln_kv_hold(s->e->kv, s->l.n, s->pages, &s->held, err);
    return ln_fail(err, LN_EINVALID,
                   "%s: the engine holds no keys and values of a text that begins with these tokens, so that "
                   "there is nothing to save; a request must have read it before",
                   ln_path_text(shown, path));
}

static ln_status save(ln_eng *e, const int32_t *ids, size_t n_ids, const char *path, bool replace,
                      size_t *n_saved, ln_error *err) {
    meta_texts texts;
    saver s = {.e = e, .out = {.fd = -1}, .replace = replace};
    ln_status st = LN_OK;
    n_ids = LN_MIN(n_ids, (size_t)e->run->opt.n_ctx);
    LN_TRY(ln_eng_check_ids(e, ids, n_ids, err));
    LN_TRY(own_meta(e, texts, err));
    LN_GO(open_saver(&s, n_ids, err));
    LN_GO(ln_driver_pause(e->sched, err));
    st = find_text(&s, path, ids, n_ids, err);
    if (s.held) ln_driver_resume(e->sched);
    if (st == LN_OK) *n_saved = (size_t)s.l.n, st = put_file(&s, path, texts, ids, err);
    if (!s.held) ln_driver_resume(e->sched);
out:
    close_saver(&s);
    return st;
}

ln_status ln_eng_seq_save(ln_eng *e, const int32_t *ids, size_t n_ids, const char *path, size_t *n_saved,
                          ln_error *err) {
    return save(e, ids, n_ids, path, true, n_saved, err);
}

ln_status ln_eng_seq_save_new(ln_eng *e, const int32_t *ids, size_t n_ids, const char *path, size_t *n_saved,
                              ln_error *err) {
    return save(e, ids, n_ids, path, false, n_saved, err);
}

/* ---- loading ---- */

typedef struct loader {
    ln_eng *e;
    const char *path;
    ln_tensors file;
    layout l;
    meta_texts meta; /* of the file; "" where it has none */
    int64_t rope;
    const ln_tensor **tensors; /* [n_specs] of the file, in the order of the layout */
    int32_t *ids;
    float *part;
} loader;

static ln_status read_meta_key(loader *d, ln_json *j, ln_error *err) {
    int i = 0;
    while (i < N_META && !ln_json_is(j, metas[i].key)) i++;
    LN_TRY(ln_json_want(j, LN_J_STRING, err));
    if (i < N_META && j->text_bytes < META_TEXT) {
        memcpy(d->meta[i], j->text, j->text_bytes);
        d->meta[i][j->text_bytes] = '\0';
    }
    return LN_OK;
}

static ln_status read_meta(loader *d, ln_json *j, ln_error *err) {
    bool more;
    LN_TRY(ln_json_want(j, LN_J_OBJECT, err));
    for (;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) return LN_OK;
        const bool meta = ln_json_is(j, "__metadata__");
        LN_TRY(ln_json_next(j, err));
        if (meta && j->type == LN_J_OBJECT) break;
        LN_TRY(ln_json_skip(j, err));
    }
    for (;;) {
        LN_TRY(ln_json_key(j, &more, err));
        if (!more) return LN_OK;
        LN_TRY(read_meta_key(d, j, err));
    }
}

/* Reads __metadata__ of a header that ln_tensors_open_file has accepted. */
static ln_status file_meta(loader *d, ln_error *err) {
    const ln_map *m = &d->file.files[0].map;
    uint64_t bytes = 0;
    for (int i = 0; i < 8; i++) bytes |= (uint64_t)m->data[i] << 8 * i;
    ln_json j;
    ln_json_open(&j, d->path, (const char *)m->data + 8, (size_t)bytes, 8);
    const ln_status st = read_meta(d, &j, err);
    ln_json_close(&j);
    return st;
}

static ln_status check_meta(loader *d, ln_error *err) {
    meta_texts own;
    char shown[LN_PATH_TEXT], found[META_TEXT];
    LN_TRY(own_meta(d->e, own, err));
    LN_TRY(file_meta(d, err));
    if (strcmp(d->meta[FORMAT], own[FORMAT]) != 0)
        return ln_fail(err, LN_EINVALID,
                       "%s: __metadata__: expected format linnet-kv, found '%s': it is not a file of keys "
                       "and "
                       "values that ln_seq_save wrote",
                       ln_path_text(shown, d->path),
                       ln_excerpt(found, d->meta[FORMAT], strlen(d->meta[FORMAT])));
    for (int i = 0; i < N_CHECKED; i++)
        if (strcmp(d->meta[i], own[i]) != 0)
            return ln_fail(err, LN_EINVALID,
                           "%s: %s: expected %s, as this engine has it, found '%s': these keys and values "
                           "belong to another model or to other options",
                           ln_path_text(shown, d->path), metas[i].what, own[i],
                           ln_excerpt(found, d->meta[i], strlen(d->meta[i])));
    uint64_t rope;
    if (!ln_parse_u64(d->meta[ROPE], strlen(d->meta[ROPE]), &rope) || rope > INT64_MAX)
        return ln_fail(err, LN_EINVALID, "%s: __metadata__: rope: expected a number, found '%s'",
                       ln_path_text(shown, d->path), ln_excerpt(found, d->meta[ROPE], strlen(d->meta[ROPE])));
    d->rope = (int64_t)rope;
    return LN_OK;
}

/* The tensor `spec` of the file; LN_EINVALID unless it is there with this type and shape. */
static ln_status find(loader *d, const ln_tensor_spec *spec, const ln_tensor **out, ln_error *err) {
    char shown[LN_PATH_TEXT];
    const ln_tensor *t = *out = ln_tensors_find(&d->file, spec->name);
    bool same = t && t->dtype == spec->dtype && t->n_dims == spec->n_dims;
    for (int i = 0; same && i < spec->n_dims; i++) same = t->dims[i] == spec->dims[i];
    if (same) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: tensor %s %s; save the file again", ln_path_text(shown, d->path),
                   spec->name, t ? "has not the type and shape that this model gives" : "is missing");
}

static ln_status check_tokens(loader *d, ln_error *err) {
    char shown[LN_PATH_TEXT];
    const ln_tensor *t = ln_tensors_find(&d->file, "tokens");
    if (!t || t->dtype != LN_ST_I32 || t->n_dims != 1 || t->dims[0] < 1)
        return ln_fail(err, LN_EINVALID, "%s: tensor tokens: expected I32 [n], n of 1 or more",
                       ln_path_text(shown, d->path));
    if (t->dims[0] > d->e->run->opt.n_ctx)
        return ln_fail(err, LN_EINVALID,
                       "%s: the text has %lld tokens, the context holds %lld; use a larger ln_options.n_ctx",
                       ln_path_text(shown, d->path), (long long)t->dims[0], (long long)d->e->run->opt.n_ctx);
    d->ids = ln_alloc((size_t)t->bytes);
    if (!d->ids) return LN_OOM(err, "the tokens of a file");
    memcpy(d->ids, t->data, (size_t)t->bytes);
    for (int64_t i = 0; i < t->dims[0]; i++)
        if (d->ids[i] < 0 || d->ids[i] >= d->e->run->spec->V)
            return ln_fail(err, LN_EINVALID, "%s: tensor tokens: [%lld] is %d, the vocabulary has %lld",
                           ln_path_text(shown, d->path), (long long)i, d->ids[i],
                           (long long)d->e->run->spec->V);
    if (d->rope > 0 && t->dims[0] > d->rope)
        return ln_fail(err, LN_EINVALID, "%s: %lld tokens have the rotary frequencies of %lld",
                       ln_path_text(shown, d->path), (long long)t->dims[0], (long long)d->rope);
    return layout_of(d->e, t->dims[0], &d->l, err);
}

static ln_status check_sum(loader *d, ln_error *err) {
    char shown[LN_PATH_TEXT];
    uint64_t want;
    ln_xxh64 h;
    ln_xxh64_open(&h);
    for (size_t i = 0; i + 1 < d->l.n_specs; i++)
        ln_xxh64_add(&h, d->tensors[i]->data, (size_t)d->tensors[i]->bytes);
    memcpy(&want, d->tensors[d->l.n_specs - 1]->data, sizeof want);
    LN_TRY(ln_tensors_check(&d->file, false, err));
    if (ln_xxh64_value(&h) == want) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: the checksum does not match: the file is damaged; save it again",
                   ln_path_text(shown, d->path));
}

static ln_status check_file(loader *d, ln_error *err) {
    const ln_run *r = d->e->run;
    LN_TRY(ln_tensors_open_file(&d->file, d->path, err));
    LN_TRY(check_meta(d, err));
    LN_TRY(check_tokens(d, err));
    d->tensors = ln_zalloc(d->l.n_specs, sizeof(ln_tensor *));
    d->part = ln_zalloc(LN_MAX(part_of(r), state_of(r)), sizeof *d->part);
    if (!d->tensors || !d->part) return LN_OOM(err, "a file of keys and values");
    for (size_t i = 0; i < d->l.n_specs; i++) LN_TRY(find(d, &d->l.specs[i], &d->tensors[i], err));
    return check_sum(d, err);
}

/* ln_kv_blocks.fill: the layers of one page. */
static ln_status fill(void *user, int c, int64_t b, int i, int64_t page, ln_error *err) {
    loader *d = user;
    ln_run *r = d->e->run;
    const int64_t at = b * r->kv.page_len, n = LN_MIN(d->l.n - at, (int64_t)r->kv.page_len);
    for (int layer = 0; layer < r->spec->L; layer++) {
        const size_t keys = d->l.tensor_of[layer];
        if (!keys || r->kv.group[layer] != c || r->kv.page_in_block[layer] != i) continue;
        if (is_recurrent(r, layer)) {
            memcpy(d->part, d->tensors[keys]->data, (size_t)state_numbers(r, layer) * sizeof *d->part);
            LN_TRY(ln_run_write_page(r, layer, page, d->part, NULL, err));
            continue;
        }
        for (int v = 0; v < 2; v++) {
            const size_t skip = (size_t)(at - d->l.first[c]) * elements_of(r, layer, v) * width_of(r);
            from_rows(r, layer, v, n, d->tensors[keys + (size_t)v]->data + skip, d->part);
            LN_TRY(ln_run_write_page(r, layer, page, v ? NULL : d->part, v ? d->part : NULL, err));
        }
    }
    return LN_OK;
}

/* ln_kv_blocks.check: the file is what was checked. */
static ln_status unchanged(void *user, ln_error *err) {
    return ln_tensors_check(&((loader *)user)->file, false, err);
}

/* Puts the file's blocks into the cache; *n: tokens that it then holds of the text. */
static ln_status insert(loader *d, size_t *n, ln_error *err) {
    char shown[LN_PATH_TEXT];
    const ln_kv_blocks blocks = {.ids = d->ids,
                                 .n = d->l.n,
                                 .adapter = own_adapter(d->e),
                                 .rope = d->rope,
                                 .user = d,
                                 .fill = fill,
                                 .check = unchanged};
    LN_TRY(ln_kv_insert(d->e->kv, &blocks, err));
    *n = (size_t)ln_kv_match_length(d->e->kv, own_adapter(d->e), d->rope, d->ids, d->l.n);
    if (*n > 0) return LN_OK;
    return ln_fail(err, LN_EMEMORY,
                   "%s: nothing of it can be kept now: what ln_cache_set_limit allows is too little, or the "
                   "pages of a longer text that the engine holds stand in its place",
                   ln_path_text(shown, d->path));
}

ln_status ln_eng_seq_load(ln_eng *e, const char *path, size_t *n_loaded, ln_error *err) {
    loader d = {.e = e, .path = path};
    ln_status st = LN_OK;
    LN_GO(check_file(&d, err));
    LN_GO(ln_driver_pause(e->sched, err));
    st = insert(&d, n_loaded, err);
    ln_driver_resume(e->sched);
out:
    ln_tensors_close(&d.file);
    layout_free(&d.l);
    ln_free(d.tensors);
    ln_free(d.ids);
    ln_free(d.part);
    return st;
}
