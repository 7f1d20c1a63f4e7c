/* Selects the files of a directory that contain the tensors, and reads them all.
 *
 * In this order: `model.safetensors`, `model.safetensors.index.json` and the shards that it names, a
 * complete set `model-i-of-N.safetensors` without an index. An index is authoritative: each tensor must be
 * in the shard that the index names and in no other, and tensors that it does not name are dropped with a
 * warning. Tensors that the index names but the shard lacks, or whose shard does not exist, are recorded;
 * they cause an error if the model needs them, else a warning (model/weights.c).
 *
 * Names in an index are untrusted. They must be relative, without `..`, without anything that another
 * operating system would interpret as a drive, a share or a separator, and end in .safetensors. A shard may
 * be a symbolic link, as in the Hugging Face cache, whose snapshots link to `../../blobs`; within such a
 * cache (`models--org--name/snapshots/...`) the target must be inside `models--org--name`. In a plain
 * directory a link may lead to any regular file: there the user made the links, and a target that is not a
 * safetensors file is rejected by its content. */
#include "directory.h"
#include "gguf_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_LIMIT ((size_t)128 << 20) /* 94 KB for the 1,138 tensors of Llama 3.1 405B */
#define SINGLE      "model.safetensors"
#define INDEX       "model.safetensors.index.json"

typedef struct set {
    ln_tensors *t;
    ln_error *err;
    char dir[LN_PATH_MAX];    /* real path */
    char shown[LN_PATH_TEXT]; /* as given, for messages */
    char root[LN_PATH_MAX];   /* the cache entry that must contain all link targets; "" outside a cache */
    ln_names names;
    json_t *gone; /* an object whose keys are the shards of the index that do not exist */
} set;

/* Sets s->root to the cache entry models--org--name if the directory is a snapshot in a cache, else to "". */
static void find_root(set *s) {
    s->root[0] = '\0';
    char *mark = strstr(s->dir, "/snapshots/");
    for (char *next = mark; next && (next = strstr(next + 1, "/snapshots/"));) mark = next;
    if (!mark) return;
    char *slash = mark;
    while (slash > s->dir && slash[-1] != '/') slash--;
    if (strncmp(slash, "models--", 8) != 0) return;
    memcpy(s->root, s->dir, (size_t)(mark - s->dir));
    s->root[mark - s->dir] = '\0';
}

static ln_status add(set *s, const char *name) {
    char path[LN_PATH_MAX], real[LN_PATH_MAX], text[LN_PATH_TEXT];
    LN_TRY(ln_path_join(path, s->dir, name, s->err));
    ln_path_text(text, path);
    if (!realpath(path, real))
        return ln_fail(s->err, LN_EIO, "%s: cannot be opened: %s%s", text, strerror(errno),
                       errno == ENOENT ? "; a shard is missing, download the model again"
                                       : ln_errno_hint(errno));
    size_t n = strlen(s->root);
    if (n && (strncmp(real, s->root, n) != 0 || real[n] != '/'))
        return ln_fail(s->err, LN_EINVALID,
                       "%s: the link leads out of the cache entry; copy the model to a directory of its own",
                       text);
    return ln_tensors_add_file(s->t, path, real, s->err);
}

/* ---- a set without an index ---- */

/* Parses model-I-of-N.safetensors. */
static bool shard_numbers(const char *name, int64_t *i, int64_t *n) {
    static const char begin[] = "model-", middle[] = "-of-", end[] = ".safetensors";
    if (strncmp(name, begin, sizeof begin - 1) != 0 || !ln_ends_with(name, end)) return false;
    const char *a = name + sizeof begin - 1, *b = strstr(a, middle);
    if (!b) return false;
    const char *c = b + sizeof middle - 1, *d = name + strlen(name) - (sizeof end - 1);
    if (c > d) return false;
    while (a + 1 < b && *a == '0') a++; /* numbers are zero-padded */
    while (c + 1 < d && *c == '0') c++;
    return ln_parse_i64(a, (size_t)(b - a), i) && ln_parse_i64(c, (size_t)(d - c), n) && *i >= 0 && *n >= 0;
}

/* Checks that the shards 1 .. total are all present, once each, and agree on the total; marks them in
 * have[total + 1]. */
static ln_status check_set(set *s, bool *have, int64_t total) {
    int64_t i, n;
    char text[80];
    for (size_t k = 0; k < s->names.n; k++) {
        const char *name = s->names.items[k];
        if (!shard_numbers(name, &i, &n)) continue;
        if (n != total || i < 1 || i > total || have[i])
            return ln_fail(s->err, LN_EINVALID,
                           "%s: shards without an index: %s does not belong to one set of %lld; keep one set "
                           "only",
                           s->shown, ln_excerpt(text, name, strlen(name)), (long long)total);
        have[i] = true;
    }
    for (i = 1; i <= total; i++)
        if (!have[i])
            return ln_fail(s->err, LN_EINVALID,
                           "%s: shards without an index: shard %lld of %lld is missing; download the model "
                           "again",
                           s->shown, (long long)i, (long long)total);
    return LN_OK;
}

static ln_status open_set(set *s, bool *found) {
    int64_t total = -1, i;
    for (size_t k = 0; k < s->names.n && total < 0; k++)
        if (!shard_numbers(s->names.items[k], &i, &total)) total = -1;
    *found = total >= 0;
    if (!*found) return LN_OK;
    if (total > LN_ST_MAX_SHARDS)
        return ln_fail(s->err, LN_EINVALID, "%s: %lld shards, the limit is %u", s->shown, (long long)total,
                       LN_ST_MAX_SHARDS);
    bool *have = ln_zalloc((size_t)total + 1, sizeof *have);
    if (!have) return LN_OOM(s->err, "the list of shards");
    ln_status st = check_set(s, have, total);
    ln_free(have);
    if (st == LN_OK)
        ln_log(LN_LOG_WARN, "%s: no %s; using all %lld shards", s->shown, INDEX, (long long)total);
    for (size_t k = 0; k < s->names.n && st == LN_OK; k++) {
        int64_t n;
        if (shard_numbers(s->names.items[k], &i, &n)) st = add(s, s->names.items[k]);
    }
    return st;
}

/* ---- an index ---- */

/* Whether this is one component of a relative path that no operating system interprets as anything else. */
static bool good_component(const char *p, size_t n) {
    if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f || p[i] == '\\' || p[i] == ':') return false;
    return true;
}

/* Normalises the name of a shard for comparison: removes components `.`, which some tools write
 * (./x.safetensors). False if the name is not allowed. */
static bool clean_name(char out[LN_PATH_MAX], const char *name, size_t n) {
    size_t to = 0;
    if (!name || memchr(name, 0, n) || n >= LN_PATH_MAX || !ln_ends_with(name, ".safetensors")) return false;
    for (size_t at = 0; at <= n;) {
        const char *slash = memchr(name + at, '/', n - at);
        size_t len = slash ? (size_t)(slash - (name + at)) : n - at;
        bool here = slash && len == 1 && name[at] == '.';
        if (!here && !good_component(name + at, len)) return false;
        if (!here) {
            memcpy(out + to, name + at, len);
            to += len;
            if (slash) out[to++] = '/';
        }
        at += len + 1;
    }
    out[to] = '\0';
    return true;
}

static ln_status read_name(set *s, const char *key, const json_t *value, char out[LN_PATH_MAX]) {
    const char *name = json_string_value(value);
    size_t n = json_string_length(value);
    char tensor[80], text[80];
    if (clean_name(out, name, n)) return LN_OK;
    return ln_fail(s->err, LN_EINVALID,
                   "%s/" INDEX ": weight_map: %s: expected the name of a .safetensors file in this "
                   "directory, found %s%s%s",
                   s->shown, ln_excerpt(tensor, key, strlen(key)), name ? "'" : "",
                   name ? ln_excerpt(text, name, n) : ln_json_text(value, text), name ? "'" : "");
}

/* Whether a shard of the index does not exist, or is a link to nothing. */
static bool is_gone(const set *s, const char *name) {
    char path[LN_PATH_MAX];
    struct stat st;
    return ln_path_join(path, s->dir, name, NULL) == LN_OK && stat(path, &st) != 0 &&
           (errno == ENOENT || errno == ENOTDIR);
}

/* Adds a shard of the index, or notes that it does not exist; the last of all shards must exist when no other
 * does. */
static ln_status add_or_note(set *s, const char *name, bool last) {
    if (!is_gone(s, name) || (last && s->t->n_files == 0)) return add(s, name);
    return json_object_set_new(s->gone, name, json_true()) == 0 ? LN_OK : LN_OOM(s->err, "the index");
}

/* Opens the distinct shards that the index names, in the order of their first occurrence. */
static ln_status add_shards(set *s, json_t *map) {
    json_t *seen = json_object(), *value;
    const char *key;
    char name[LN_PATH_MAX];
    s->gone = json_object();
    ln_status st = seen && s->gone ? LN_OK : LN_OOM(s->err, "the index");
    json_object_foreach(map, key, value) {
        if (st != LN_OK) break;
        st = read_name(s, key, value, name);
        if (st != LN_OK || json_object_get(seen, name)) continue;
        if (json_object_size(seen) >= LN_ST_MAX_SHARDS)
            st =
                ln_fail(s->err, LN_EINVALID, "%s/" INDEX ": more than %u shards", s->shown, LN_ST_MAX_SHARDS);
        else if (json_object_set_new(seen, name, json_true()) != 0) st = LN_OOM(s->err, "the index");
    }
    size_t left = json_object_size(seen);
    json_object_foreach(seen, key, value) {
        if (st != LN_OK) break;
        st = add_or_note(s, key, --left == 0);
    }
    json_decref(seen);
    return st;
}

/* Records a tensor that is missing from the file in which the index places it; a load that needs it will
 * fail. `found`: the file that has it, borrowed, or NULL. */
static ln_status add_absent(set *s, const char *name, const json_t *shard, const char *found) {
    ln_tensors *t = s->t;
    char file[LN_PATH_MAX];
    LN_TRY(read_name(s, name, shard, file));
    LN_TRY(ln_grow((void **)&t->absent, &t->cap_absent, t->n_absent + 1, sizeof *t->absent, s->err));
    struct ln_absent a = {
        .name = ln_arena_strndup(&t->arena, name, strlen(name)),
        .shard = ln_arena_strndup(&t->arena, json_string_value(shard), json_string_length(shard)),
        .found = found,
        .no_file = json_object_get(s->gone, file) != NULL};
    if (!a.name || !a.shard) return LN_OOM(s->err, "the index");
    t->absent[t->n_absent++] = a;
    return LN_OK;
}

/* Removes tensors that the index places in another file. Those that it does not name are kept, with a
 * warning. */
static ln_status keep_named(set *s, const json_t *map) {
    ln_tensors *t = s->t;
    size_t kept = 0, unnamed = 0;
    char first[80] = "", there[LN_PATH_MAX];
    t->bytes = 0;
    for (size_t i = 0; i < t->n; i++) {
        ln_tensor *x = &t->items[i];
        const json_t *shard = json_object_get(map, x->name);
        if (!shard) { /* as transformers does: what an open shard holds can be used */
            if (!unnamed++) ln_excerpt(first, x->name, x->name_bytes);
            t->bytes += x->bytes;
            t->items[kept++] = *x;
            continue;
        }
        const char *path = t->files[x->file].path + strlen(s->dir);
        while (*path == '/') path++;
        LN_TRY(read_name(s, x->name, shard, there));
        if (strcmp(path, there) != 0) {
            LN_TRY(add_absent(s, x->name, shard, path));
            continue;
        }
        t->bytes += x->bytes;
        t->items[kept++] = *x;
    }
    t->n = kept;
    if (unnamed)
        ln_log(LN_LOG_WARN, "%s: %zu tensors are in the shards but not in the index: %s%s", s->shown, unnamed,
               first, unnamed > 1 ? ", ..." : "");
    return LN_OK;
}

/* Records the names of the index that no shard has. Requires the tensors to be sorted. */
static ln_status note_absent(set *s, json_t *map) {
    const char *key;
    json_t *value;
    const size_t elsewhere = s->t->n_absent;
    json_object_foreach(map, key, value) {
        bool known = ln_tensors_find(s->t, key) != NULL;
        for (size_t i = 0; i < elsewhere && !known; i++) known = strcmp(s->t->absent[i].name, key) == 0;
        if (!known) LN_TRY(add_absent(s, key, value, NULL));
    }
    return LN_OK;
}

static void check_total(set *s, const json_t *root) {
    const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    if (!total || (json_is_number(total) && json_number_value(total) == (double)s->t->bytes)) return;
    ln_log(LN_LOG_WARN, "%s/" INDEX ": metadata.total_size is not the %llu bytes of its tensors", s->shown,
           (unsigned long long)s->t->bytes);
}

static ln_status open_index(set *s) {
    char path[LN_PATH_MAX], text[LN_PATH_TEXT], found[80], *data = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    LN_TRY(ln_path_join(path, s->dir, INDEX, s->err));
    LN_TRY(ln_read_file(path, INDEX_LIMIT, &data, &bytes, s->err));
    ln_status st = ln_refuse_pointer(path, data, bytes, s->err);
    if (st == LN_OK) st = ln_json_load(&root, ln_path_text(text, path), data, bytes, s->err);
    ln_free(data);
    LN_TRY(st);
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        st = ln_fail(s->err, LN_EINVALID,
                     "%s: weight_map: expected an object that names a shard for each tensor, found %s", text,
                     ln_json_text(map, found));
    else if (json_object_size(map) > LN_ST_MAX_MODEL_TENSORS)
        st = ln_fail(s->err, LN_EINVALID, "%s: weight_map: more than %u tensors", text,
                     LN_ST_MAX_MODEL_TENSORS);
    if (st == LN_OK) st = add_shards(s, map);
    if (st == LN_OK) st = ln_tensors_finish(s->t, s->err);
    if (st == LN_OK) st = keep_named(s, map);
    if (st == LN_OK) st = note_absent(s, map);
    if (st == LN_OK && json_object_size(s->gone) == 0) check_total(s, root);
    json_decref(root);
    return st;
}

/* ---- no tensors ---- */

/* Returns the error for a directory without safetensors; the message depends on what it contains instead. */
static ln_status refuse(set *s) {
    static const struct {
        const char *begin, *end;
    } torch[] = {{"pytorch_model", ".bin"},
                 {"pytorch_model.bin", ".json"},
                 {"consolidated", ".pth"},
                 {"model", ".pt"}},
      other[] = {{"", ".onnx"},       {"onnx", ""},
                 {"weights", ".npz"}, {"flax_model", ".msgpack"},
                 {"tf_model", ".h5"}, {"openvino_model", ".xml"}};
    const char *found = NULL;
    char text[80];
    for (size_t i = 0; i < LN_COUNT(torch) && !found; i++)
        found = ln_names_like(&s->names, torch[i].begin, torch[i].end);
    if (found)
        return ln_fail(s->err, LN_EUNSUPPORTED,
                       "%s: only %s, which is pickle and never loaded; convert it: python3 -c \"from "
                       "transformers import AutoModelForCausalLM as M; "
                       "M.from_pretrained('%s', dtype='auto').save_pretrained('%s')\"",
                       s->shown, ln_excerpt(text, found, strlen(found)), s->shown, s->shown);
    found = ln_names_like(&s->names, "", ".gguf");
    if (found)
        return ln_fail(s->err, LN_EUNSUPPORTED, "%s: no safetensors but %s; give that file", s->shown,
                       ln_excerpt(text, found, strlen(found)));
    for (size_t i = 0; i < LN_COUNT(other) && !found; i++)
        found = ln_names_like(&s->names, other[i].begin, other[i].end);
    if (found)
        return ln_fail(s->err, LN_EUNSUPPORTED,
                       "%s: no safetensors but %s, which is not read; expected the model's safetensors or a "
                       "GGUF file",
                       s->shown, ln_excerpt(text, found, strlen(found)));
    found = ln_names_like(&s->names, "", ".safetensors");
    return ln_fail(s->err, LN_EIO,
                   "%s: no " SINGLE ", no " INDEX " and no shards%s%s; fetch the model with `hf download`",
                   s->shown, found ? "; there is only " : "",
                   found ? ln_excerpt(text, found, strlen(found)) : "");
}

static bool has(const set *s, const char *name) {
    for (size_t i = 0; i < s->names.n; i++)
        if (strcmp(s->names.items[i], name) == 0) return true;
    return false;
}

/* Whether the index places every tensor in the single file; mlx-lm writes such an index. */
static bool index_of_single(const set *s) {
    char path[LN_PATH_MAX];
    json_t *root, *value;
    const char *key;
    if (ln_path_join(path, s->dir, INDEX, NULL) != LN_OK ||
        ln_json_load_file(&root, path, INDEX_LIMIT, NULL) != LN_OK)
        return false;
    json_t *map = json_object_get(root, "weight_map");
    bool all = json_object_size(map) > 0;
    json_object_foreach(map, key, value) all =
        all && json_is_string(value) && strcmp(json_string_value(value), SINGLE) == 0;
    json_decref(root);
    return all;
}

static ln_status open_dir(set *s) {
    LN_TRY(ln_names_read(&s->names, s->dir, s->err));
    if (has(s, SINGLE)) {
        if (has(s, INDEX) && !index_of_single(s))
            ln_log(LN_LOG_WARN, "%s: both " SINGLE " and " INDEX "; using the single file", s->shown);
        LN_TRY(add(s, SINGLE));
        return ln_tensors_finish(s->t, s->err);
    }
    if (has(s, INDEX)) return open_index(s);
    bool found;
    LN_TRY(open_set(s, &found));
    return found ? ln_tensors_finish(s->t, s->err) : refuse(s);
}

ln_status ln_tensors_open(ln_tensors *out, const char *dir, bool skip_unknown, ln_error *err) {
    *out = (ln_tensors){.skip_unknown = skip_unknown};
    if (ln_is_gguf(dir)) {
        const ln_status gguf = ln_tensors_of_gguf(out, dir, err);
        if (gguf != LN_OK) ln_tensors_close(out);
        return gguf;
    }
    set s = {.t = out, .err = err};
    ln_path_text(s.shown, dir);
    if (!realpath(dir, s.dir)) return ln_fail(err, LN_EIO, "%s: %s", s.shown, strerror(errno));
    find_root(&s);
    ln_status st = open_dir(&s);
    ln_names_free(&s.names);
    json_decref(s.gone);
    if (st != LN_OK) ln_tensors_close(out);
    return st;
}
