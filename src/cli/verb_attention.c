/* linnet attention: the keys of all layers after RoPE as a safetensors file.
 *
 * The shapes are known before the first layer is computed, so that the header is written first and each
 * layer as soon as it is computed. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

typedef struct dump {
    ln_out file;
    int next;
} dump;

static ln_status begin(dump *d, const ln_info *info, size_t n_rows, ln_error *err) {
    tensor_head *h = ln_zalloc((size_t)info->n_layers, sizeof *h);
    if (!h) return LN_OOM(err, "a file header");
    for (int l = 0; l < info->n_layers; l++) {
        (void)snprintf(h[l].name, sizeof h[l].name, "keys.%d", l);
        h[l].shape[0] = info->n_kv_heads;
        h[l].shape[1] = (int64_t)n_rows;
        h[l].shape[2] = info->head_dim;
        h[l].n_dims = 3;
    }
    ln_status st = tensors_begin(&d->file, h, (size_t)info->n_layers, err);
    ln_free(h);
    return st;
}

static ln_status on_layer(void *user, int layer, const float *keys, int n_kv_heads, int64_t n_rows,
                          int head_dim, ln_error *err) {
    dump *d = user;
    size_t bytes = (size_t)n_kv_heads * (size_t)n_rows * (size_t)head_dim * sizeof *keys;
    if (layer != d->next++) return ln_fail(err, LN_EINTERNAL, "layer %d came out of order", layer);
    return ln_out_write(&d->file, keys, bytes, err);
}

static ln_status print_json(const char *path, const ln_info *info, size_t n_rows, ln_error *err) {
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_text(&s, "file", path);
    put_int(&s, "layers", info->n_layers);
    put_key(&s, "shape");
    ln_str_addf(&s, "[%d,%zu,%d]}\n", info->n_kv_heads, n_rows, info->head_dim);
    return out_str(&s, err);
}

static ln_status dump_keys(dump *d, ln_engine *engine, const ln_info *info, const int32_t *ids, size_t n,
                           ln_error *err) {
    LN_TRY(begin(d, info, n, err));
    signals_working(engine);
    ln_status st = ln_inspect_keys(engine, ids, n, on_layer, d, err);
    signals_working(NULL);
    LN_TRY(st);
    if (d->next != info->n_layers)
        return ln_fail(err, LN_EINTERNAL, "%d layers came, expected %d", d->next, info->n_layers);
    return ln_out_commit(&d->file, err);
}

ln_status cmd_attention(const args *a, ln_error *err) {
    session s = {0};
    ln_status st = LN_OK;
    const char *path = a->flag[F_OUTPUT].text;
    dump d = {0};
    ln_info *info = ln_zalloc(1, sizeof *info);
    if (!info) LN_GO(LN_OOM(err, "a model's facts"));
    info->size = sizeof *info;
    LN_GO(options_of(a, &s.opt, err));
    LN_GO(ln_out_open(&d.file, path, has(a, F_FORCE), err));
    signals_file(d.file.tmp);
    LN_GO(session_open(&s, a, err));
    LN_GO(ln_model_info(s.model, info, err));
    LN_GO(dump_keys(&d, s.engine, info, s.ids, s.n_ids, err));
    if (has(a, F_JSON)) LN_GO(print_json(path, info, s.n_ids, err));
out:
    signals_file(NULL);
    ln_out_abort(&d.file);
    session_close(&s);
    ln_free(info);
    return st;
}
