/* One change to one file of a model: a value inside JSON text is replaced, added, duplicated or removed,
 * and all other bytes stay the same. The text is edited, not parsed and written again, so that it may
 * contain what no JSON writer produces (01, NaN, a duplicate key). */
#ifndef LN_TESTS_CHANGE_H
#define LN_TESTS_CHANGE_H

#include "../cli/spawn.h"

typedef struct span {
    size_t key, value, end, close; /* byte offsets of the member or item; close: the end of the enclosing
                                      object or list */
    bool found, empty, list;
} span;

/* Finds the last name of `path` below the value whose first token `j` has just read. */
static span find_value(ln_json *j, const char *path) {
    span s = {0};
    for (;;) {
        size_t n = strcspn(path, "/");
        bool last_name = path[n] == '\0', more;
        int64_t want = -1;
        s = (span){.empty = true, .list = j->type == LN_J_ARRAY};
        if (s.list) (void)ln_parse_i64(path, n, &want);
        else assert_int_equal(j->type, LN_J_OBJECT);
        for (int64_t i = 0;; i++) {
            assert_int_equal(s.list ? ln_json_item(j, &more, NULL) : ln_json_key(j, &more, NULL), LN_OK);
            if (!more) break;
            s.empty = false;
            size_t key = j->offset;
            bool here = s.list ? i == want : j->text_bytes == n && memcmp(j->text, path, n) == 0;
            if (!s.list) assert_int_equal(ln_json_next(j, NULL), LN_OK);
            if (here && !last_name) break;
            size_t value = j->offset;
            assert_int_equal(ln_json_skip(j, NULL), LN_OK);
            if (here) s.key = key, s.value = value, s.end = j->at, s.found = true;
        }
        if (!more) {
            s.close = j->offset;
            if (!last_name) fail_msg("no %s", path);
            return s;
        }
        path += n + 1;
    }
}

/* Returns the text with the value at `path` replaced by `json`; inputs.def explains paths. The caller
 * frees it. */
static ln_str changed(const char *text, size_t bytes, const char *path, const char *json) {
    ln_json j;
    ln_str s = {0};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (!*path) {
        ln_str_adds(&s, json);
        return s;
    }
    ln_json_open(&j, "the file to be changed", text, bytes, LN_JSON_MAX_DEPTH);
    assert_int_equal(ln_json_next(&j, NULL), LN_OK);
    span at = find_value(&j, path);
    ln_json_close(&j);
    size_t from = at.found ? at.value : at.close, to = at.found ? at.end : at.close;
    if (strcmp(json, "-") == 0) { /* removes the key by renaming it */
        assert_true(at.found && !at.list);
        from = to = at.key + 1;
        json = "without-";
    }
    ln_str_add(&s, text, from);
    if (!at.found) {
        ln_str_adds(&s, at.empty ? "" : ",");
        if (!at.list) ln_str_addf(&s, "\"%s\":", *name == '+' ? name + 1 : name);
    }
    ln_str_adds(&s, json);
    ln_str_add(&s, text + to, bytes - to);
    assert_false(s.failed);
    return s;
}

static void add_length(ln_str *file, size_t n) {
    for (int i = 0; i < 8; i++) ln_str_add(file, &(char){(char)(n >> 8 * i)}, 1);
}
static void add_zeros(ln_str *file, size_t n) {
    for (size_t i = 0; i < n; i++) ln_str_add(file, "", 1);
}

/* Returns a safetensors file with its header changed and `grow` more bytes of data (fewer if negative).
 * The caller frees it. */
static ln_str changed_tensors(const char *data, size_t bytes, const char *path, const char *json, int grow) {
    uint64_t n = 0;
    memcpy(&n, data, 8);
    ln_str header = changed(data + 8, n, path, json), file = {0};
    size_t rest = bytes - 8 - n - (grow < 0 ? (size_t)-grow : 0);
    add_length(&file, header.len);
    ln_str_add(&file, header.data, header.len);
    ln_str_add(&file, data + 8 + n, rest);
    if (grow > 0) add_zeros(&file, (size_t)grow);
    ln_str_free(&header);
    assert_false(file.failed);
    return file;
}

/* ---- a model of this test's own ---- */

static void write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) fail_msg("%s: cannot be written", path);
}
static ln_str read_whole(const char *path) {
    ln_str s = {0};
    if (ln_read_file(path, (size_t)1 << 30, &s.data, &s.len, NULL) != LN_OK)
        fail_msg("%s: cannot be read", path);
    return s;
}

/* Replaces dir/m by a fresh copy of a golden model. */
static void fresh_model(const char *golden) {
    char command[600];
    (void)snprintf(command, sizeof command,
                   "rm -rf '%s/m' && mkdir '%s/m' && cp '%s/tests/golden/%s/'[!g]* "
                   "'%s/tests/golden/%s/'generation_config.json '%s/m' 2>/dev/null",
                   dir, dir, LN_ROOT, golden, LN_ROOT, golden, dir);
    int made = system(command); /* cp fails if there is no generation_config.json */
    (void)made;
    (void)snprintf(command, sizeof command, "%s/m/config.json", dir);
    assert_true(ln_exists(command));
}

static int remove_all(void **state) {
    (void)state;
    drop_last();
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

#endif
