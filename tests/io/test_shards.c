/* Which files hold the tensors: a single file, an index, a set of shards without an index; names that an
 * index must not have; links. The ids are those of the catalogue of bad inputs (X-1 ...). Also the places in
 * which a model is searched: paths, the Hugging Face cache, the bundled model. */
/* run: slow asan */
#include "io_test.h"

#define A "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
#define B "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"
#define AB                                                                                                  \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[2]," \
    "\"data_offsets\":[1,3]}}"
#define S1        "model-00001-of-00002.safetensors"
#define S2        "model-00002-of-00002.safetensors"
#define INDEX     "model.safetensors.index.json"
#define MAP(a, b) "{\"metadata\":{\"total_size\":3},\"weight_map\":{\"a\":\"" a "\",\"b\":\"" b "\"}}"

/* Opens test_dir/DIR and expects this status and, for an error, `word` in the message. If it loads: n
 * tensors, and `word` lists the tensors that the index assigns to a shard without them. */
static void opens(const char *id, const char *dir, ln_status want, const char *word, size_t n) {
    ln_error err = {0};
    ln_tensors t;
    ln_status st = ln_tensors_open(&t, at(dir), false, &err);
    expect(id, want, word, st, &err);
    if (st != LN_OK) return;
    if (t.n != n) fail_msg("%s: %zu tensors, expected %zu", id, t.n, n);
    char absent[400] = "";
    for (size_t i = 0, at = 0; i < t.n_absent; i++) {
        const struct ln_absent *a = &t.absent[i];
        at += (size_t)snprintf(absent + at, sizeof absent - at, "%s in %s%s%s%s\n", a->name, a->shard,
                               a->found ? " not " : "", a->found ? a->found : "",
                               a->no_file ? " (no file)" : "");
    }
    if (strcmp(absent, word) != 0) fail_msg("%s: absent: %s", id, absent);
    ln_tensors_close(&t);
}

/* Opens a directory with both shards and this index. */
static void with_index(const char *id, const char *index, ln_status want, const char *word, size_t n) {
    static int count;
    char dir[32], name[128];
    (void)snprintf(dir, sizeof dir, "index%d", count++);
    (void)snprintf(name, sizeof name, "%s/" S1, dir), put_tensors(name, A, 1);
    (void)snprintf(name, sizeof name, "%s/" S2, dir), put_tensors(name, B, 2);
    (void)snprintf(name, sizeof name, "%s/" INDEX, dir), put_text(name, index);
    opens(id, dir, want, word, n);
}

static void test_sets(void **state) {
    (void)state;
    put_tensors("single/model.safetensors", AB, 3);
    opens("single", "single", LN_OK, "", 2);
    put_text("single/" INDEX, "not even JSON");
    opens("X-15", "single", LN_OK, "", 2);

    put_tensors("set/" S1, A, 1);
    opens("X-1 a gap at the end", "set", LN_EINVALID, "shard 2 of 2 is missing", 0);
    put_tensors("set/" S2, B, 2);
    opens("X-1 gapless", "set", LN_OK, "", 2);
    put_tensors("set/model-00003-of-00002.safetensors", B, 2);
    opens("X-1 beyond the last", "set", LN_EINVALID, "does not belong", 0);
    drop("set/model-00003-of-00002.safetensors");
    put_tensors("set/model-00001-of-00003.safetensors", B, 2);
    opens("X-1 two sets", "set", LN_EINVALID, "does not belong", 0);
    drop("set/model-00001-of-00003.safetensors");
    put_tensors("set/model-1-of-2.safetensors", B, 2);
    opens("X-1 one twice", "set", LN_EINVALID, "does not belong", 0);
    drop("set/model-1-of-2.safetensors");
    drop("set/" S1);
    opens("X-1 a gap at the beginning", "set", LN_EINVALID, "shard 1 of 2 is missing", 0);
    put_tensors("set/" S1, B, 2);
    opens("X-4 without an index", "set", LN_EINVALID, "also in", 0);

    /* More than nine shards without zero padding: "10" sorts before "2". */
    char name[64], header[80];
    for (int i = 1; i <= 11; i++) {
        (void)snprintf(name, sizeof name, "eleven/model-%d-of-11.safetensors", i);
        (void)snprintf(header, sizeof header,
                       "{\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", i);
        put_tensors(name, header, 1);
    }
    opens("eleven", "eleven", LN_OK, "", 11);
    put_tensors("huge/model-1-of-5000.safetensors", A, 1);
    opens("limit of shards", "huge", LN_EINVALID, "limit is 4096", 0);
}

static void test_index(void **state) {
    (void)state;
    with_index("good", MAP(S1, S2), LN_OK, "", 2);
    /* The tensors of a shard that does not exist are recorded too, but one shard must exist. */
    with_index("X-2", MAP(S1, "model-00003-of-00002.safetensors"), LN_OK,
               "b in model-00003-of-00002.safetensors (no file)\n", 1);
    with_index("X-2 ./", MAP("./" S1, "./parts/x.safetensors"), LN_OK,
               "b in ./parts/x.safetensors (no file)\n", 1);
    with_index("X-2 below a file", MAP(S1, S2 "/x.safetensors"), LN_OK,
               "b in " S2 "/x.safetensors (no file)\n", 1);
    with_index("X-2 no shard", MAP("x.safetensors", "y.safetensors"), LN_EIO,
               "y.safetensors: cannot be opened", 0);
    /* A tensor that its shard lacks is recorded; a load that needs the tensor rejects. */
    with_index("X-3", "{\"weight_map\":{\"a\":\"" S1 "\",\"c\":\"" S2 "\",\"b\":\"" S2 "\"}}", LN_OK,
               "c in " S2 "\n", 2);
    with_index("X-3 elsewhere", MAP(S2, S1), LN_OK, "a in " S2 " not " S1 "\nb in " S1 " not " S2 "\n", 0);
    with_index("./", MAP("./" S1, S2), LN_OK, "", 2);
    with_index("./ in the midst", MAP("././" S1, "./" S2), LN_OK, "", 2);
    with_index("X-5", "{\"weight_map\":{\"a\":\"" S1 "\"}}", LN_OK, "", 1);
    static const char *const bad[] = {
        "../../etc/passwd.safetensors",
        "/etc/passwd.safetensors",
        "C:x.safetensors",
        "\\\\\\\\srv\\\\x.safetensors",
        "..\\\\x.safetensors",
        "a/../x.safetensors",
        "a//x.safetensors",
        "./../x.safetensors",
        ".//x.safetensors",
        "a/.",
        ".",
        "..",
        "",
        "x.bin",
        "x",
        "x\\u0000.safetensors",
        "x\\n.safetensors",
        INDEX,
        "/",
        "a/",
    };
    char index[2048], name[400];
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        (void)snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"%s\"}}", bad[i]);
        with_index(bad[i], index, LN_EINVALID, "weight_map", 0);
    }
    memset(name, 'x', 300);
    name[300] = '\0';
    (void)snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"%s.safetensors\"}}", name);
    with_index("X-8 300 characters", index, LN_EINVALID, "weight_map", 0);
    with_index("X-8 no string", "{\"weight_map\":{\"a\":1}}", LN_EINVALID, "found 1", 0);
    with_index("X-13 empty", "{\"weight_map\":{}}", LN_EINVALID, "weight_map", 0);
    with_index("X-13 no object", "{\"weight_map\":[]}", LN_EINVALID, "weight_map", 0);
    with_index("X-13 missing", "{}", LN_EINVALID, "weight_map", 0);
    with_index("X-13 an array", "[]", LN_EINVALID, "weight_map", 0);
    with_index("X-14 wrong",
               "{\"metadata\":{\"total_size\":4},\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S2 "\"}}", LN_OK,
               "", 2);
    with_index("X-14 negative",
               "{\"metadata\":{\"total_size\":-1},\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S2 "\"}}", LN_OK,
               "", 2);
    with_index("X-14 string",
               "{\"metadata\":{\"total_size\":\"3\"},\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S2 "\"}}",
               LN_OK, "", 2);
    with_index("X-17", "{\"weight_map\":{\"a\":\"" S1 "\",\"a\":\"" S1 "\",\"b\":\"" S2 "\"}}", LN_EINVALID,
               "", 0);
    with_index("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", LN_EINVALID,
               "Git LFS pointer", 0);
    with_index("not JSON", "{\"weight_map\":{'a':1}}", LN_EINVALID, "", 0);

    put_tensors("both/" S1, AB, 3);
    put_tensors("both/" S2, B, 2);
    put_text("both/" INDEX, MAP(S1, S2));
    opens("X-4", "both", LN_EINVALID, "also in", 0);
    put_tensors("short/" S1, A, 1);
    put_tensors("short/" S2, B, 1);
    put_text("short/" INDEX, MAP(S1, S2));
    opens("X-19", "short", LN_EINVALID, "truncated", 0);

    put_tensors("below/parts/x.safetensors", A, 1);
    put_text("below/" INDEX, "{\"weight_map\":{\"a\":\"parts/x.safetensors\"}}");
    opens("a shard in a directory below", "below", LN_OK, "", 1);
}

/* X-18: of a million shard names, the 4,097th is rejected. */
static void test_many_shards(void **state) {
    (void)state;
    ln_str s = {0};
    ln_str_adds(&s, "{\"weight_map\":{");
    for (int i = 0; i < 1000000; i++) ln_str_addf(&s, "%s\"t%d\":\"s%d.safetensors\"", i ? "," : "", i, i);
    ln_str_adds(&s, "}}");
    assert_false(s.failed);
    put("million/" INDEX, s.data, s.len);
    ln_str_free(&s);
    opens("X-18", "million", LN_EINVALID, "more than 4096 shards", 0);
}

static void test_links(void **state) {
    (void)state;
    put_tensors("hub/models--o--n/blobs/aa", A, 1);
    put_tensors("hub/models--o--n/blobs/bb", B, 2);
    put_tensors("hub/elsewhere", A, 1);
    link_to("../../blobs/aa", "hub/models--o--n/snapshots/c0/" S1);
    link_to("../../blobs/bb", "hub/models--o--n/snapshots/c0/" S2);
    put_text("hub/models--o--n/snapshots/c0/" INDEX, MAP(S1, S2));
    opens("X-9", "hub/models--o--n/snapshots/c0", LN_OK, "", 2);
    link_to("hub/models--o--n/snapshots/c0", "mine");
    opens("X-9 through a link of one's own", "mine", LN_OK, "", 2);

    link_to("../../../elsewhere", "hub/models--o--n/snapshots/c1/model.safetensors");
    opens("X-10 outside the cache entry", "hub/models--o--n/snapshots/c1", LN_EINVALID, "leads out", 0);
    link_to("/proc/self/environ", "hub/models--o--n/snapshots/c2/model.safetensors");
    opens("X-10 outside, /proc", "hub/models--o--n/snapshots/c2", LN_EINVALID, "leads out", 0);
    link_to("../hub/elsewhere", "plain/model.safetensors");
    opens("a link in a plain directory", "plain", LN_OK, "", 1);
    link_to("/proc/self/environ", "plain2/model.safetensors");
    opens("X-10 in a plain directory", "plain2", LN_EINVALID, "", 0);
    link_to("/dev/zero", "plain3/model.safetensors");
    opens("X-10 a device", "plain3", LN_EINVALID, "", 0);
    link_to("model.safetensors", "loop/model.safetensors");
    opens("X-11", "loop", LN_EIO, "model.safetensors", 0);
    link_to("nowhere", "broken/model.safetensors");
    opens("a link to nothing", "broken", LN_EIO, "model.safetensors", 0);
    make_dirs("dir/model.safetensors/x");
    opens("a directory of that name", "dir", LN_EINVALID, "", 0);
}

static void test_nothing_to_read(void **state) {
    (void)state;
    make_dirs("empty/x");
    opens("nothing", "empty", LN_EIO, "no model.safetensors", 0);
    put_text("bin/pytorch_model.bin", "PK");
    opens("only .bin", "bin", LN_EUNSUPPORTED, "save_pretrained", 0);
    put_text("bins/pytorch_model-00001-of-00002.bin", "PK");
    opens("only .bin shards", "bins", LN_EUNSUPPORTED, "pytorch_model-00001-of-00002.bin", 0);
    put_text("gguf/x-Q4_0.gguf", "GGUF");
    opens("only GGUF", "gguf", LN_EUNSUPPORTED, "no safetensors but x-Q4_0.gguf; give that file", 0);
    put_text("other/weights.safetensors", "x");
    opens("another name", "other", LN_EIO, "there is only weights.safetensors", 0);
    put_text("lfs/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    opens("S-52", "lfs", LN_EINVALID, "Git LFS pointer", 0);
    opens("no directory", "absent", LN_EIO, "absent", 0);

    static const struct {
        const char *file, *text, *word;
        ln_status want;
    } tok[] = {
        {"t1/tokenizer.json", "{}", "", LN_OK},
        {"t2/tokenizer.model", "x", "AutoTokenizer", LN_EUNSUPPORTED},
        {"t3/vocab.json", "{}", "vocab.json and merges.txt", LN_EUNSUPPORTED},
        {"t4/tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
         "Git LFS pointer", LN_EINVALID},
        {"t5/x", "", "no tokenizer.json", LN_EIO},
    };
    for (size_t i = 0; i < LN_COUNT(tok); i++) {
        char dir[8];
        put_text(tok[i].file, tok[i].text);
        (void)snprintf(dir, sizeof dir, "t%zu", i + 1);
        ln_error err = {0};
        expect(tok[i].file, tok[i].want, tok[i].word, ln_check_tokenizer(at(dir), &err), &err);
    }
}

/* ---- discovery ---- */

static void finds(const char *model, ln_status want, const char *word) {
    ln_error err = {0};
    char path[4096] = "";
    ln_status st = ln_find_model(model, path, sizeof path, &err);
    expect(model, want, word, st, &err);
    if (st == LN_OK && !strstr(path, word)) fail_msg("%s: found %s, expected %s in it", model, path, word);
    if (st == LN_OK) assert_int_equal(path[0], '/');
}

/* References whose content is a name of at most 96 bytes, or is not taken: a longer name (whose snapshot
 * exists), a file of more than 256 bytes (a good name and spaces), an empty file, a directory. */
static void put_odd_refs(void) {
    char name[98], file[160], padded[300];
    for (size_t n = 96; n <= 97; n++) {
        memset(name, 'c', n);
        name[n] = '\0';
        put_text(n == 96 ? "find/hub/models--org--name/refs/longest"
                         : "find/hub/models--org--name/refs/longer",
                 name);
        (void)snprintf(file, sizeof file, "find/hub/models--org--name/snapshots/%s/config.json", name);
        put_text(file, "{}");
    }
    (void)snprintf(padded, sizeof padded, "abc123%270s", "");
    put_text("find/hub/models--org--name/refs/padded", padded);
    put_text("find/hub/models--org--name/refs/empty", "");
    make_dirs("find/hub/models--org--name/refs/folder/x");
}

static void test_find(void **state) {
    (void)state;
    put_text("find/m/config.json", "{}");
    make_dirs("find/no/x");
    finds(at("find/m"), LN_OK, "find/m");
    finds(at("find/m/"), LN_OK, "find/m");
    finds(at("find/no"), LN_EINVALID, "no config.json");
    finds(at("find/absent"), LN_EIO, "no such directory");
    finds(at("find/m/config.json"), LN_EINVALID, "found a file");
    finds("", LN_EUSAGE, "empty");
    char path[16];
    ln_error err = {0};
    expect("a short buffer", LN_EINVALID, "longer", ln_find_model(at("find/m"), path, sizeof path, &err),
           &err);

    setenv("HF_HUB_CACHE", at("find/hub"), 1);
    put_text("find/hub/models--org--name/refs/main", "abc123\n");
    put_text("find/hub/models--org--name/refs/v1", "def456");
    put_text("find/hub/models--org--name/refs/evil", "../../../m");
    put_text("find/hub/models--org--name/snapshots/abc123/config.json", "{}");
    put_text("find/hub/models--org--name/snapshots/def456/config.json", "{}");
    put_text("find/hub/models--org--part/refs/main", "abc");
    put_odd_refs();
    make_dirs("find/hub/models--org--part/snapshots/abc/x");
    finds("org/name", LN_OK, "snapshots/abc123");
    finds("org/name@main", LN_OK, "snapshots/abc123");
    finds("org/name@v1", LN_OK, "snapshots/def456");
    finds("org/name@def456", LN_OK, "snapshots/def456");
    finds("org/name@evil", LN_EIO, "hf download org/name --revision evil");
    finds("org/name@longest", LN_OK, "snapshots/cccc");
    finds("org/name@longer", LN_EIO, "hf download org/name --revision longer");
    finds("org/name@padded", LN_EIO, "hf download org/name --revision padded");
    finds("org/name@empty", LN_EIO, "hf download org/name --revision empty");
    finds("org/name@folder", LN_EIO, "hf download org/name --revision folder");
    finds("org/name@v2", LN_EIO, "hf download org/name --revision v2");
    finds("org/other", LN_EIO, "hf download org/other");
    finds("org/part", LN_EIO, "hf download org/part");
    finds("org/../name", LN_EIO, "no such directory");
    finds("../org/name", LN_EIO, "no such directory");
    finds("org/name@../../m", LN_EIO, "no such directory");
    finds("a/b/c", LN_EIO, "no such directory");

    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", at("find/home"), 1);
    put_text("find/home/hub/models--org--name/refs/main", "77");
    put_text("find/home/hub/models--org--name/snapshots/77/config.json", "{}");
    finds("org/name", LN_OK, "home/hub/models--org--name/snapshots/77");
    unsetenv("HF_HOME");
    setenv("XDG_CACHE_HOME", at("find/xdg"), 1);
    put_text("find/xdg/huggingface/hub/models--org--name/refs/main", "78");
    put_text("find/xdg/huggingface/hub/models--org--name/snapshots/78/config.json", "{}");
    finds("org/name", LN_OK, "snapshots/78");
    unsetenv("XDG_CACHE_HOME");
    /* `~` and variables, as huggingface_hub expands them with expanduser and expandvars. */
    static const struct {
        const char *name, *value;
    } expanded[] = {{"HF_HOME", "$LN_TEST_ROOT/home"},
                    {"HF_HOME", "${LN_TEST_ROOT}/home"},
                    {"HF_HOME", "~/home"},
                    {"HF_HUB_CACHE", "~/home/hub"},
                    {"HF_HUB_CACHE", "$LN_TEST_ROOT/$LN_TEST_PART/hub"},
                    {"HUGGINGFACE_HUB_CACHE", "${LN_TEST_ROOT}/home/hub"},
                    {"XDG_CACHE_HOME", "~/xdg"},
                    {"XDG_CACHE_HOME", "$LN_TEST_ROOT/xdg"}};
    setenv("HOME", at("find"), 1);
    setenv("LN_TEST_ROOT", at("find"), 1);
    setenv("LN_TEST_PART", "home", 1);
    for (size_t i = 0; i < LN_COUNT(expanded); i++) {
        setenv(expanded[i].name, expanded[i].value, 1);
        finds("org/name", LN_OK,
              strstr(expanded[i].name, "XDG") ? "find/xdg/huggingface/hub/models--org--name"
                                              : "find/home/hub/models--org--name");
        unsetenv(expanded[i].name);
    }
    static const char *const unknown[] = {"$LN_TEST_NONE/home",
                                          "${LN_TEST_ROOT/home",
                                          "${}/home",
                                          "$/home",
                                          "~nobody-of-this-name/home",
                                          "x~/home"};
    for (size_t i = 0; i < LN_COUNT(unknown); i++) { /* these are not expanded */
        setenv("HF_HOME", unknown[i], 1);
        finds("org/name", LN_EIO, unknown[i]);
        unsetenv("HF_HOME");
    }
    setenv("HOME", at("find/me"), 1);
    put_text("find/me/.cache/huggingface/hub/models--org--name/refs/main", "79");
    put_text("find/me/.cache/huggingface/hub/models--org--name/snapshots/79/config.json", "{}");
    finds("org/name", LN_OK, "snapshots/79");
}

typedef struct seen {
    int n, stop_at;
    char all[2048];
} seen;
static ln_status see(void *user, const char *path, ln_error *err) {
    seen *s = user;
    (void)err;
    const char *last = strrchr(path, '/');
    (void)snprintf(s->all + strlen(s->all), sizeof s->all - strlen(s->all), "%s ", last ? last + 1 : path);
    return ++s->n != s->stop_at ? LN_OK : LN_ECANCELLED;
}

static void test_each(void **state) {
    (void)state;
    put_text("ls/config.json", "{}");
    put_text("ls/model.safetensors", "");
    put_text("ls/b/config.json", "broken");
    put_text("ls/b/x.safetensors", "");
    put_text("ls/a*[/config.json", "{}");
    put_text("ls/a*[/x.safetensors", "");
    put_text("ls/c/config.json", "{}");
    put_text("ls/d/x.safetensors", "");
    put_text("ls/e/f/config.json", "{}");
    put_text("ls/e/f/x.safetensors", "");
    link_to("b", "ls/z");
    put_text("ls/models--o--n/snapshots/s1/config.json", "{}");
    put_text("ls/models--o--n/snapshots/s1/x.safetensors", "");
    seen s = {0};
    OK(ln_each_model(at("ls"), see, &s, err));
    assert_string_equal(s.all, "ls a*[ b f s1 "); /* the models below the directory, each once: z is a link
                                                     to b */
    seen two = {.stop_at = 2};
    OK(ln_each_model(at("ls"), see, &two, err));
    assert_int_equal(two.n, 2);
    ln_error err = {0};
    expect("absent", LN_EIO, "absent", ln_each_model(at("absent"), see, &s, &err), &err);
    setenv("HF_HUB_CACHE", at("ls"), 1);
    seen cache = {0};
    OK(ln_each_model(NULL, see, &cache, err));
    assert_non_null(strstr(cache.all, "s1 "));
    unsetenv("HF_HUB_CACHE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_many_shards),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_nothing_to_read),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_each),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
