/* Writing, finding, verifying and reading checkpoints. */
#include "moments.h"
#include "../io/directory.h"
#include "../io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, MANIFEST_LIMIT = 1 << 20, SLICE_BYTES = 4 << 20 };
#define ADAPTER_FILE "adapter_model.safetensors"
#define STATE_FILE   "train_state.safetensors"

static ln_status fail_errno(ln_error *err, const char *path, const char *doing) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    const int number = errno;
    return ln_fail(err, number == ENOMEM ? LN_EMEMORY : LN_EIO, "%s: cannot %s: %s",
                   ln_path_text(shown, path), doing, ln_errno_text(why, number));
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)at;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}
static void remove_tree(const char *path) {
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- names ---- */

/* The step of a name step-N of at least eight digits; 0 for any other name. */
static int64_t step_of(const char *name) {
    int64_t step = 0;
    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13) return 0;
    const char *digits = name + 5 + strspn(name + 5, "0"); /* leading zeros are no number's */
    return ln_parse_i64(digits, strlen(digits), &step) && step > 0 ? step : 0;
}
static void name_of(char name[32], int64_t step) { (void)snprintf(name, 32, "step-%08lld", (long long)step); }

/* Whether a name is one that only a killed process leaves. */
static bool is_leftover(const char *name) {
    return strncmp(name, ".trash-step-", 12) == 0 ||
           (strncmp(name, "step-", 5) == 0 && strstr(name, ".tmp-"));
}

void train_checkpoint_sweep(const char *dir) {
    ln_names names;
    char path[4096];
    if (ln_names_read(&names, dir, &(ln_error){0}) != LN_OK) return;
    for (size_t i = 0; i < names.n; i++)
        if (is_leftover(names.items[i]) && ln_path_join(path, dir, names.items[i], &(ln_error){0}) == LN_OK)
            remove_tree(path);
    ln_names_free(&names);
}

/* The steps in `dir`, highest first; the caller frees *steps. */
static int by_step(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}
static ln_status list_steps(const char *dir, int64_t **steps, size_t *n, ln_error *err) {
    ln_names names;
    *n = 0;
    LN_TRY(ln_names_read(&names, dir, err));
    *steps = ln_zalloc(names.n + 1, sizeof **steps);
    for (size_t i = 0; *steps && i < names.n; i++) {
        const int64_t step = step_of(names.items[i]);
        if (step) (*steps)[(*n)++] = step;
    }
    ln_names_free(&names);
    if (!*steps) return LN_OOM(err, "a list of checkpoints");
    qsort(*steps, *n, sizeof **steps, by_step);
    return LN_OK;
}

/* ---- verifying ---- */

static int add_text(const char *text, size_t bytes, void *user) {
    ln_sha256_add(user, text, bytes);
    return 0;
}

/* The SHA-256 of a manifest without its member sha256. */
static ln_status manifest_hash(const json_t *manifest, char hex[LN_SHA256_HEX], ln_error *err) {
    ln_sha256 h;
    json_t *bare = ln_json_copy(manifest);
    if (!bare) return LN_OOM(err, "a manifest");
    (void)json_object_del(bare, "sha256");
    ln_sha256_open(&h);
    const int bad = json_dump_callback(bare, add_text, &h, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(bare);
    ln_sha256_hex(&h, hex);
    return bad ? LN_OOM(err, "a manifest") : LN_OK;
}

static ln_status damaged(const char *path, const char *what, ln_error *err) {
    char shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s: the checkpoint is damaged: %s", ln_path_text(shown, path), what);
}

static ln_status verify_file(const char *dir, const char *name, const json_t *entry, ln_error *err) {
    char path[4096], hex[LN_SHA256_HEX];
    const char *want = json_string_value(json_object_get(entry, "sha256"));
    const json_int_t bytes = json_integer_value(json_object_get(entry, "bytes"));
    ln_map m;
    ln_sha256 h;
    if (strchr(name, '/')) return damaged(dir, "a file's name has a slash", err);
    LN_TRY(ln_path_join(path, dir, name, err));
    LN_TRY(ln_map_open(&m, path, err));
    ln_sha256_open(&h);
    for (size_t at = 0, n; at < m.bytes; at += n) { /* its pages are given back as they are read */
        n = LN_MIN(m.bytes - at, (size_t)SLICE_BYTES);
        ln_sha256_add(&h, (const char *)m.data + at, n);
        ln_guard_release((const char *)m.data + at, n);
    }
    ln_sha256_hex(&h, hex);
    const bool same = want && (uint64_t)m.bytes == (uint64_t)bytes && strcmp(hex, want) == 0;
    ln_map_close(&m);
    return same ? LN_OK : damaged(path, "size or SHA-256 are not those of its manifest.json", err);
}

static ln_status verify_manifest(const char *path, const json_t *m, ln_error *err) {
    static const char *const files[] = {STATE_FILE, ADAPTER_FILE, "adapter_config.json"};
    const bool full = json_object_get(json_object_get(m, "settings"), "method") != NULL;
    char hex[LN_SHA256_HEX], why[80];
    const json_int_t format = json_integer_value(json_object_get(m, "format"));
    const char *said = json_string_value(json_object_get(m, "sha256"));
    if (format > FORMAT) {
        char shown[LN_PATH_TEXT];
        return ln_fail(err, LN_EUNSUPPORTED, "%s: written by a newer version of linnet (format %lld)",
                       ln_path_text(shown, path), (long long)format);
    }
    LN_TRY(manifest_hash(m, hex, err));
    if (format != FORMAT || !said || strcmp(said, hex) != 0)
        return damaged(path, "manifest.json is not what was written", err);
    for (size_t i = 0; i < (full ? 1 : LN_COUNT(files)); i++) {
        const json_t *entry = json_object_get(json_object_get(m, "files"), files[i]);
        (void)snprintf(why, sizeof why, "manifest.json does not name %s", files[i]);
        if (!entry) return damaged(path, why, err);
        LN_TRY(verify_file(path, files[i], entry, err));
    }
    return LN_OK;
}

ln_status train_checkpoint_verify(const char *path, json_t **manifest, ln_error *err) {
    char file[4096];
    *manifest = NULL;
    LN_TRY(ln_path_join(file, path, "manifest.json", err));
    LN_TRY(ln_json_load_file(manifest, file, MANIFEST_LIMIT, err));
    ln_status st = json_is_object(*manifest) ? verify_manifest(path, *manifest, err)
                                             : damaged(file, "expected an object", err);
    if (st == LN_OK) return LN_OK;
    json_decref(*manifest);
    *manifest = NULL;
    return st;
}

/* ---- finding ---- */

ln_status train_checkpoint_find(const char *dir, train_found *out, ln_error *err) {
    int64_t *steps = NULL;
    size_t n = 0;
    ln_status st = list_steps(dir, &steps, &n, err);
    *out = (train_found){0};
    for (size_t i = 0; st == LN_OK && i < n && !out->manifest; i++) {
        char name[32];
        ln_error why = {0};
        name_of(name, steps[i]);
        st = ln_path_join(out->path, dir, name, err);
        if (st != LN_OK) break;
        const ln_status found = train_checkpoint_verify(out->path, &out->manifest, &why);
        if (found == LN_OK && json_integer_value(json_object_get(out->manifest, "step")) != steps[i]) {
            json_decref(out->manifest);
            out->manifest = NULL;
            (void)damaged(out->path, "its manifest.json is that of another step", &why);
        }
        if (out->manifest) out->step = steps[i];
        else if (found == LN_EMEMORY) st = ln_fail(err, found, "%s", why.message);
        else if (++out->n_damaged) ln_log(LN_LOG_WARN, "%s; the one before it is used", why.message);
    }
    ln_free(steps);
    return st;
}

void train_found_free(train_found *f) {
    json_decref(f->manifest);
    *f = (train_found){0};
}

/* ---- writing ---- */

/* What the state has of each parameter: tensors of its shape, codes too, and the largest numbers of blocks.
 */
typedef struct kind {
    const char *name;
    ln_st_dtype dtype;
    bool blocks;
    void *data;
} kind;
enum { MOST_KINDS = 5 };
static size_t kinds_of(const train_param *p, kind out[MOST_KINDS]) {
    const kind all[] = {{"value", LN_ST_F32, false, p->value}, {"m", LN_ST_F32, false, p->m},
                        {"v", LN_ST_F32, false, p->v},         {"m8", LN_ST_U8, false, p->m8},
                        {"v8", LN_ST_U8, false, p->v8},        {"m_most", LN_ST_F32, true, p->m_most},
                        {"v_most", LN_ST_F32, true, p->v_most}};
    size_t n = 0;
    for (size_t i = 0; i < LN_COUNT(all); i++)
        if (all[i].data) out[n++] = all[i];
    return n;
}
static size_t n_kinds(const train_state *s) {
    kind all[MOST_KINDS];
    return s->n_params ? kinds_of(&s->params[0], all) : 1;
}
static ln_tensor_spec spec_of(const train_param *p, const kind *k, const char *name) {
    if (k->blocks) return (ln_tensor_spec){name, k->dtype, 1, {train_blocks(p->rows * p->cols)}};
    return (ln_tensor_spec){name, k->dtype, 2, {p->rows, p->cols}};
}
static size_t bytes_of(const ln_tensor_spec *s) {
    return (size_t)(s->dims[0] * (s->n_dims > 1 ? s->dims[1] : 1)) *
           (s->dtype == LN_ST_F32 ? sizeof(float) : 1);
}

static ln_status write_state(const char *dir, const train_state *s, json_t *hashes, ln_error *err) {
    const size_t per = n_kinds(s), n = per * s->n_params;
    ln_tensor_spec *specs = ln_zalloc(n + 1, sizeof *specs);
    train_part *parts = ln_zalloc(n + 1, sizeof *parts);
    char(*names)[240] = ln_zalloc(n + 1, sizeof *names);
    ln_str header = {0};
    ln_status st = specs && parts && names ? LN_OK : LN_OOM(err, "a checkpoint");
    for (size_t i = 0; st == LN_OK && i < n; i++) {
        const train_param *p = &s->params[i / per];
        kind all[MOST_KINDS];
        (void)kinds_of(p, all);
        (void)snprintf(names[i], sizeof *names, "%s.%s", all[i % per].name, p->name);
        specs[i] = spec_of(p, &all[i % per], names[i]);
        parts[i + 1] = (train_part){all[i % per].data, bytes_of(&specs[i])};
    }
    if (st == LN_OK) st = ln_tensors_header(&header, specs, n, err);
    if (st == LN_OK) parts[0] = (train_part){header.data, header.len};
    if (st == LN_OK) st = train_file_write(dir, STATE_FILE, parts, n + 1, hashes, err);
    ln_str_free(&header);
    ln_free(names);
    ln_free(parts);
    ln_free(specs);
    return st;
}

static json_t *make_manifest(const train_state *s, const train_save *how, json_t *files) {
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"format", FORMAT},
                  {"step", (uint64_t)s->step},
                  {"updates", (uint64_t)s->n_updates},
                  {"bad", (uint64_t)s->n_bad},
                  {"epoch", s->cursor.epoch},
                  {"at", s->cursor.at},
                  {"tokens", s->n_tokens},
                  {"valid_step", (uint64_t)s->valid_step},
                  {"best_step", (uint64_t)s->best_step},
                  {"worse", (uint64_t)s->n_worse}};
    json_t *m = json_pack("{s:O, s:s, s:O}", "settings", how->settings, "time", how->time, "files", files);
    bool ok = m != NULL;
    for (size_t i = 0; ok && i < LN_COUNT(counts); i++)
        ok = json_object_set_new(m, counts[i].name, json_integer((json_int_t)counts[i].value)) == 0;
    ln_str loss = {0};
    ln_str_double(&loss, s->best_loss); /* as text: a real may lose its last digit in another library */
    ok = ok && !loss.failed && json_object_set_new(m, "best_loss", json_string(loss.data)) == 0;
    ln_str_free(&loss);
    if (ok) return m;
    json_decref(m);
    return NULL;
}

static ln_status write_files(const char *tmp, const train_state *s, const train_save *how, ln_error *err) {
    char hex[LN_SHA256_HEX];
    json_t *files = json_object(), *manifest = NULL;
    ln_status st = files ? LN_OK : LN_OOM(err, "a manifest");
    if (st == LN_OK && how->adapter_config)
        st = train_adapter_write(tmp, s->params, s->n_params, how->bf16, how->adapter_config, files, err);
    if (st == LN_OK) st = write_state(tmp, s, files, err);
    if (st == LN_OK && !(manifest = make_manifest(s, how, files))) st = LN_OOM(err, "a manifest");
    if (st == LN_OK) st = manifest_hash(manifest, hex, err);
    if (st == LN_OK && json_object_set_new(manifest, "sha256", json_string(hex)) != 0)
        st = LN_OOM(err, "a manifest");
    if (st == LN_OK) st = train_json_write(tmp, "manifest.json", manifest, NULL, err);
    json_decref(manifest);
    json_decref(files);
    return st;
}

/* Moves a checkpoint out of the way before it is removed, so that no reader finds half of it. */
static void trash(const char *dir, int64_t step) {
    char name[32], path[4096], aside[4096 + 32];
    name_of(name, step);
    if (ln_path_join(path, dir, name, &(ln_error){0}) != LN_OK) return;
    (void)snprintf(aside, sizeof aside, "%s/.trash-%s", dir, name);
    remove_tree(aside);
    if (rename(path, aside) == 0) remove_tree(aside);
}

ln_status train_checkpoint_prune(const char *dir, int keep, ln_error *err) {
    int64_t *steps = NULL;
    size_t n = 0;
    int valid = 0;
    const ln_status st = list_steps(dir, &steps, &n, err);
    for (size_t i = 0; st == LN_OK && i < n; i++) {
        char name[32], path[4096];
        json_t *m = NULL;
        name_of(name, steps[i]);
        if (valid >= LN_MAX(keep, 2)) trash(dir, steps[i]);
        else if (ln_path_join(path, dir, name, err) == LN_OK &&
                 train_checkpoint_verify(path, &m, NULL) == LN_OK)
            valid++;
        json_decref(m);
    }
    ln_free(steps);
    train_checkpoint_sweep(dir);
    return st;
}

/* Renames the new directory to the checkpoint of its step. */
static ln_status commit(const char *dir, const char *tmp, const char *path, int64_t step, ln_error *err) {
    LN_TRY(ln_sync_dir(tmp, err));
    if (ln_exists(path)) trash(dir, step); /* a damaged one: the caller has looked */
    if (ln_rename(tmp, path, LN_RENAME_NOREPLACE) != 0 &&
        !((errno == EINVAL || errno == ENOSYS) && rename(tmp, path) == 0))
        return fail_errno(err, path, "rename into place");
    return ln_sync_dir(dir, err);
}

ln_status train_checkpoint_write(const char *dir, const train_state *s, const train_save *how,
                                 ln_error *err) {
    char name[32], path[4096], tmp[4096 + 64];
    json_t *there = NULL;
    name_of(name, s->step);
    LN_TRY(ln_path_join(path, dir, name, err));
    if (train_checkpoint_verify(path, &there, NULL) == LN_OK) {
        json_decref(there);
        return train_checkpoint_prune(dir, how->keep, err);
    }
    (void)snprintf(tmp, sizeof tmp, "%s.tmp-%ld", path, (long)getpid());
    remove_tree(tmp);
    if (mkdir(tmp, 0777) != 0) return fail_errno(err, tmp, "create");
    ln_status st = write_files(tmp, s, how, err);
    if (st == LN_OK) st = commit(dir, tmp, path, s->step, err);
    if (st != LN_OK) remove_tree(tmp);
    return st == LN_OK ? train_checkpoint_prune(dir, how->keep, err) : st;
}

/* ---- reading ---- */

static ln_status read_count(const train_found *f, const char *name, uint64_t *out, ln_error *err) {
    char why[80];
    const json_t *v = json_object_get(f->manifest, name);
    (void)snprintf(why, sizeof why, "manifest.json: %s: expected a count", name);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return damaged(f->path, why, err);
    *out = (uint64_t)json_integer_value(v);
    return LN_OK;
}

static ln_status read_tensor(const train_found *f, const ln_tensors *t, const kind *k, const train_param *p,
                             ln_error *err) {
    char name[240], why[300];
    (void)snprintf(name, sizeof name, "%s.%s", k->name, p->name);
    const ln_tensor_spec s = spec_of(p, k, name);
    const ln_tensor *x = ln_tensors_find(t, name);
    (void)snprintf(why, sizeof why, "%s: tensor %s: expected %s [%lld,%lld]", STATE_FILE, name,
                   s.dtype == LN_ST_F32 ? "f32" : "u8", (long long)s.dims[0],
                   (long long)(s.n_dims > 1 ? s.dims[1] : 1));
    if (!x || x->dtype != s.dtype || x->n_dims != s.n_dims || x->dims[0] != s.dims[0] ||
        (s.n_dims > 1 && x->dims[1] != s.dims[1]))
        return damaged(f->path, why, err);
    for (size_t at = 0, n; at < x->bytes; at += n) {
        n = LN_MIN((size_t)x->bytes - at, (size_t)SLICE_BYTES);
        memcpy((char *)k->data + at, x->data + at, n);
        ln_guard_release(x->data + at, n);
    }
    return LN_OK;
}

static ln_status read_params(const train_found *f, train_state *s, ln_error *err) {
    char path[4096], why[120];
    ln_tensors t;
    LN_TRY(ln_path_join(path, f->path, STATE_FILE, err));
    LN_TRY(ln_tensors_open_file(&t, path, err));
    (void)snprintf(why, sizeof why, "%s: expected %zu tensors, found %zu", STATE_FILE,
                   n_kinds(s) * s->n_params, t.n);
    ln_status st = t.n == n_kinds(s) * s->n_params ? LN_OK : damaged(f->path, why, err);
    for (size_t i = 0; st == LN_OK && i < s->n_params; i++) {
        train_param *p = &s->params[i];
        kind all[MOST_KINDS];
        const size_t n = kinds_of(p, all);
        for (size_t k = 0; st == LN_OK && k < n; k++) st = read_tensor(f, &t, &all[k], p, err);
    }
    ln_tensors_close(&t);
    return st;
}

ln_status train_checkpoint_read(const train_found *f, train_state *s, ln_error *err) {
    const json_t *loss = json_object_get(f->manifest, "best_loss");
    const struct {
        const char *name;
        int64_t *to;
    } counts[] = {{"updates", &s->n_updates},
                  {"bad", &s->n_bad},
                  {"valid_step", &s->valid_step},
                  {"best_step", &s->best_step},
                  {"worse", &s->n_worse}};
    LN_TRY(read_count(f, "epoch", &s->cursor.epoch, err));
    LN_TRY(read_count(f, "at", &s->cursor.at, err));
    LN_TRY(read_count(f, "tokens", &s->n_tokens, err));
    for (size_t i = 0; i < LN_COUNT(counts); i++) {
        uint64_t v;
        LN_TRY(read_count(f, counts[i].name, &v, err));
        *counts[i].to = (int64_t)v;
    }
    if (!json_is_string(loss) ||
        !ln_parse_f64(json_string_value(loss), json_string_length(loss), &s->best_loss))
        return damaged(f->path, "manifest.json: best_loss: expected a number as text", err);
    s->step = f->step;
    return read_params(f, s, err);
}

static bool is_input(const char *key) {
    static const char *const keys[] = {"model", "config", "tokenizer", "template",
                                       "data",  "valid",  "samples",   "valid_samples"};
    for (size_t i = 0; i < LN_COUNT(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

ln_status train_settings_check(const train_found *f, const json_t *now, ln_error *err) {
    json_t *then = json_object_get(f->manifest, "settings"), *v;
    ln_str s = {0};
    const char *key;
    char was[80], is[80], shown[LN_PATH_TEXT];
    bool inputs = false; /* other files, not other options */
    json_object_foreach((json_t *)(uintptr_t)now, key, v) {
        const json_t *old = json_object_get(then, key);
        if (json_equal((json_t *)(uintptr_t)old, v)) continue;
        if (strcmp(key, "device") == 0) {
            ln_log(LN_LOG_WARN,
                   "%s: was written on another device; the run goes on with the bits of this one",
                   ln_path_text(shown, f->path));
            continue;
        }
        ln_str_addf(&s, "%s%s: ", s.len ? "; " : "", ln_excerpt(shown, key, strlen(key)));
        inputs = inputs || is_input(key);
        if (is_input(key)) ln_str_adds(&s, old ? "changed" : "not in the checkpoint of an older version");
        else ln_str_addf(&s, "%s then, %s now", ln_json_text(old, was), ln_json_text(v, is));
    }
    json_object_foreach(then, key, v) {
        if (!json_object_get(now, key))
            ln_str_addf(&s, "%s%s: %s then, nothing now", s.len ? "; " : "", ln_excerpt(is, key, strlen(key)),
                        ln_json_text(v, was));
    }
    if (s.failed) {
        ln_str_free(&s);
        return LN_OOM(err, "a list of settings");
    }
    const ln_status st = s.len == 0
                             ? LN_OK
                             : ln_fail(err, inputs ? LN_EINVALID : LN_EUSAGE,
                                       "%s: was written with other settings, and the same bits need the "
                                       "same ones: %.600s",
                                       ln_path_text(shown, f->path), s.data);
    ln_str_free(&s);
    return st;
}
