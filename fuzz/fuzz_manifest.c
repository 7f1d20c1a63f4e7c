/* Fuzzes the reader of a checkpoint's manifest.json. The lowest bit of the first byte chooses whether the
 * rest is the manifest itself, or an object whose members replace those of a valid one, with the digest of
 * the result. A checkpoint that verifies is one that a run can have written. */
#include "fuzz_dir.h"

#include "train/checkpoint.h"

enum { STEP = 3, N = 4 };
#define MANIFEST "step-00000003/manifest.json"

static float value[2][N], m[2][N], v[2][N];
static json_t *valid, *settings;

static train_state state(train_param params[2]) {
    for (int i = 0; i < 2; i++) {
        params[i] = (train_param){.rows = 2, .cols = 2, .value = value[i], .m = m[i], .v = v[i]};
        (void)snprintf(params[i].name, sizeof params[i].name,
                       "base_model.model.model.layers.0.q.lora_%c.weight", i ? 'B' : 'A');
    }
    return (train_state){.params = params, .n_params = 2, .step = STEP, .n_updates = STEP};
}

static void fuzz_open(void) {
    train_param params[2];
    const train_state s = state(params);
    dir_open();
    settings = json_pack("{s:s, s:i}", "model", "digest", "rank", 2);
    json_t *config = json_object();
    const train_save how = {
        .settings = settings, .adapter_config = config, .time = "2025-07-10T12:34:56", .keep = 2};
    must(settings && config && train_checkpoint_write(fuzz_dir, &s, &how, NULL) == LN_OK);
    json_decref(config);
    must(ln_json_load_file(&valid, dir_path(MANIFEST), 1 << 20, NULL) == LN_OK);
}

static int add_text(const char *text, size_t bytes, void *user) {
    ln_str_add(user, text, bytes);
    return ((ln_str *)user)->failed ? -1 : 0;
}

/* Writes the valid manifest with the members of an object, and the digest of it all. */
static ln_status put_changed(const uint8_t *data, size_t bytes, ln_error *err) {
    json_t *changes = NULL, *all = NULL;
    ln_str text = {0};
    ln_sha256 h;
    char hex[LN_SHA256_HEX];
    ln_status st = ln_json_load(&changes, "changes", (const char *)data, bytes, err);
    if (st == LN_OK && !json_is_object(changes)) st = ln_fail(err, LN_EINVALID, "expected an object");
    if (st == LN_OK && (!(all = ln_json_copy(valid)) || json_object_update(all, changes) != 0))
        st = LN_OOM(err, "a manifest");
    if (st == LN_OK) (void)json_object_del(all, "sha256");
    if (st == LN_OK && json_dump_callback(all, add_text, &text, JSON_COMPACT | JSON_SORT_KEYS) != 0)
        st = LN_OOM(err, "a manifest");
    if (st == LN_OK) {
        ln_sha256_open(&h);
        ln_sha256_add(&h, text.data, text.len);
        ln_sha256_hex(&h, hex);
        text.len = 0;
        if (json_object_set_new(all, "sha256", json_string(hex)) != 0 ||
            json_dump_callback(all, add_text, &text, JSON_COMPACT) != 0)
            st = LN_OOM(err, "a manifest");
    }
    if (st == LN_OK) dir_put(MANIFEST, text.data, text.len);
    ln_str_free(&text);
    json_decref(changes);
    json_decref(all);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    train_param params[2];
    train_state s = state(params);
    train_found f = {0};
    const bool whole = bytes && data[0] & 1;
    if (bytes) data++, bytes--;
    if (whole) dir_put(MANIFEST, data, bytes);
    else LN_TRY(put_changed(data, bytes, err));
    ln_status st = train_checkpoint_find(fuzz_dir, &f, err);
    if (st == LN_OK && f.manifest) {
        must(f.step == STEP);
        st = train_settings_check(&f, settings, err);
        must(st == LN_OK || st == LN_EUSAGE || st == LN_EINVALID || st == LN_EMEMORY);
        if (st == LN_EUSAGE) st = err->code = LN_EINVALID;
        if (st == LN_OK) st = train_checkpoint_read(&f, &s, err);
        if (st == LN_OK) must(s.step == STEP && s.n_updates >= 0 && s.n_bad >= 0 && s.n_worse >= 0);
    }
    train_found_free(&f);
    return st;
}
