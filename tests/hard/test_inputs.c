/* Runs the command with every bad input of inputs.def: no signal, no sanitizer report, the right exit
 * code, one line that names the file, the field or tensor and the value, no raw bytes of the input on the
 * terminal, and no more memory than the input justifies.
 *
 * Cases that need more than one changed file or command line (limits, links, special files, weights that
 * are not finite) follow the table. */
/* run: slow */
#include "change.h"
#include "io/io.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef enum op { CONFIG, GEMMA, TOKENIZER, GENERATION, HEADER, ENTRY, INDEX, WHOLE, GONE, CLI, OP_COUNT } op;

typedef struct row {
    op op;
    const char *name, *where, *json;
    size_t bytes; /* of json */
    int grow, code;
    const char *words;
} row;

#define TEXT(t) t, sizeof t - 1
static const row rows[] = {
#define CONFIG(n, path, json, code, words)      {CONFIG, n, path, TEXT(json), 0, code, words},
#define GEMMA(n, path, json, code, words)       {GEMMA, n, path, TEXT(json), 0, code, words},
#define TOKENIZER(n, path, json, code, words)   {TOKENIZER, n, path, TEXT(json), 0, code, words},
#define GENERATION(n, path, json, code, words)  {GENERATION, n, path, TEXT(json), 0, code, words},
#define HEADER(n, json, data, code, words)      {HEADER, n, "", TEXT(json), data, code, words},
#define ENTRY(n, path, json, grow, code, words) {ENTRY, n, path, TEXT(json), grow, code, words},
#define INDEX(n, path, json, code, words)       {INDEX, n, path, TEXT(json), 0, code, words},
#define WHOLE(n, file, bytes, code, words)      {WHOLE, n, file, TEXT(bytes), 0, code, words},
#define GONE(n, file, code, words)              {GONE, n, file, TEXT(""), 0, code, words},
#define CLI(n, line, code, words)               {CLI, n, "", TEXT(line), 0, code, words},
#include "inputs.def"
};

/* The model and the file that each kind of row changes. */
static const struct {
    const char *golden, *file;
} kinds[OP_COUNT] = {
    [CONFIG] = {"llama-plain-f32", "config.json"},
    [GEMMA] = {"gemma3-text-bf16", "config.json"},
    [TOKENIZER] = {"llama-plain-f32", "tokenizer.json"},
    [GENERATION] = {"llama-llama3-bf16", "generation_config.json"},
    [HEADER] = {"llama-plain-f32", "model.safetensors"},
    [ENTRY] = {"llama-plain-f32", "model.safetensors"},
    [INDEX] = {"qwen3-sharded-bf16", "model.safetensors.index.json"},
    [WHOLE] = {"llama-plain-f32", NULL}, /* the row names the file */
    [GONE] = {"llama-plain-f32", NULL},
    [CLI] = {"llama-plain-f32", NULL},
};

static size_t n_wrong;

static void wrong(const char *name, const char *what, const outcome *o) {
    n_wrong++;
    printf("%s: %s; exit %d, stderr: %s%s", name, what, o->code, o->err, o->err_bytes ? "" : "\n");
}

/* Whether each of the words, separated by bars, occurs in the text. */
static bool has_words(const char *text, const char *words, char missing[256]) {
    while (*words) {
        size_t n = strcspn(words, "|");
        if (!memmem(text, strlen(text), words, n)) {
            (void)snprintf(missing, 256, "the message lacks '%.*s'", (int)n, words);
            return false;
        }
        words += n + (words[n] == '|');
    }
    return true;
}

/* Whether stderr consists of lines that begin with "linnet: " and has no control characters; counts the
 * lines. */
static bool clean_text(const outcome *o, size_t *lines) {
    *lines = 0;
    for (const char *p = o->err; *p;) {
        if (strncmp(p, "linnet: ", 8) != 0) return false;
        const char *end = strchr(p, '\n');
        if (!end) return false;
        for (; p < end; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) return false;
        p = end + 1;
        ++*lines;
    }
    return ln_utf8_valid(o->err, o->err_bytes) == o->err_bytes;
}

/* CPU time of all commands so far; the load of the host does not count. */
static double children_seconds(void) {
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &u), 0);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void judge(const char *name, const outcome *o, int code, const char *file, const char *words) {
    char missing[256];
    size_t lines;
    size_t was_cut = strncmp(o->err, "linnet: cut at ", 15) == 0; /* the message about -n 2 is no warning */
    bool names_file = strstr(words, ".json") || strstr(words, ".safetensors"); /* the words name another file
                                                                                  than the changed one */
    if (o->code != code) {
        (void)snprintf(missing, sizeof missing, "expected exit %d", code);
        wrong(name, missing, o);
    } else if (!clean_text(o, &lines)) {
        wrong(name, "raw text on stderr", o);
    } else if (code && lines == 0) {
        wrong(name, "nothing was said", o);
    } else if (code && o->out_bytes) {
        wrong(name, "a result was written all the same", o);
    } else if (!has_words(o->err, words, missing) ||
               (code && file && !names_file && !has_words(o->err, file, missing))) {
        wrong(name, missing, o);
    } else if (!code && !*words && lines > was_cut && strncmp(name, "L-", 2) != 0) {
        wrong(name, "an unexpected warning", o);
    }
}

/* Runs a command line of inputs.def. */
static outcome *run_line(const char *line) {
    char *argv[MOST_ARGS] = {S("linnet")}, *words[MOST_ARGS] = {0};
    int n = 1;
    while (*line) {
        size_t len = strcspn(line, " "), at = 0;
        char *word = words[n] = ln_zalloc(1, 4 * len + 200);
        for (size_t i = 0; i < len; i++)
            if (line[i] == '%') at += (size_t)sprintf(word + at, "%s/m", dir);
            else if (len > 1 || line[i] != '_') word[at++] = line[i];
        assert_true(n + 1 < MOST_ARGS);
        argv[n++] = word;
        line += len + (line[len] == ' ');
    }
    outcome *o = run_with("", 0, argv);
    for (int i = 1; i < n; i++) ln_free(words[i]);
    return o;
}

#define LOAD "run % --ids 5,6 -n 2 --temp 0"

static const char *model_file(const char *leaf) {
    static char path[600];
    (void)snprintf(path, sizeof path, "%s/m/%s", dir, leaf);
    return path;
}

static void run_row(const row *r) {
    const char *file = kinds[r->op].file ? kinds[r->op].file : r->where;
    if (r->op == CLI) {
        judge(r->name, run_line(r->json), r->code, NULL, r->words);
        return;
    }
    bool had = ln_exists(model_file(file));
    ln_str good = {0}, bad = {0};
    if (had) good = read_whole(model_file(file));
    if (r->op == WHOLE) {
        ln_str_add(&bad, r->json, r->bytes);
    } else if (r->op == HEADER) {
        add_length(&bad, r->bytes);
        ln_str_add(&bad, r->json, r->bytes);
        add_zeros(&bad, (size_t)r->grow);
    } else if (r->op == ENTRY) {
        bad = changed_tensors(good.data, good.len, r->where, r->json, r->grow);
    } else if (r->op != GONE) {
        bad = changed(good.data, good.len, r->where, r->json);
    }
    if (r->op == GONE) assert_int_equal(unlink(model_file(file)), 0);
    else write_file(model_file(file), bad.data ? bad.data : "", bad.len);
    judge(r->name, run_line(LOAD), r->code, file, r->words);
    if (had) write_file(model_file(file), good.data, good.len);
    else (void)unlink(model_file(file));
    ln_str_free(&good);
    ln_str_free(&bad);
}

static void every_row(void **state) {
    (void)state;
    const char *here = "";
    n_wrong = 0;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (strcmp(here, kinds[rows[i].op].golden) != 0) fresh_model(here = kinds[rows[i].op].golden);
        run_row(&rows[i]);
    }
    printf("%zu inputs, %zu wrong\n", LN_COUNT(rows), n_wrong);
    assert_true(LN_COUNT(rows) >= 200);
    assert_int_equal(n_wrong, 0);
}

/* No command so far may have taken more than 96 MiB, which is what 256 threads take on AMX: bad input is
 * rejected before memory is allocated for it. */
static void little_memory(void **state) {
    (void)state;
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &u), 0);
    printf("the largest child took %ld KiB\n", u.ru_maxrss);
    if (getenv("LN_SANITIZED")) return; /* a sanitizer's shadow memory is larger than that */
    assert_true(u.ru_maxrss < 96 << 10);
}

/* ---- cases of more than one change ---- */

#define BEGIN n_wrong = 0
#define END   assert_int_equal(n_wrong, 0)

static void write_header(const char *leaf, const ln_str *header, size_t data) {
    ln_str file = {0};
    add_length(&file, header->len);
    ln_str_add(&file, header->data, header->len);
    add_zeros(&file, data);
    assert_false(file.failed);
    write_file(model_file(leaf), file.data, file.len);
    ln_str_free(&file);
}

/* Writes a tensor file whose header has `n` entries; `entry` is a printf format that takes the number. */
static void many_tensors(size_t n, const char *entry, size_t data) {
    ln_str h = {0};
    ln_str_adds(&h, "{");
    for (size_t i = 0; i < n; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, entry, i);
        ln_str_adds(&h, i ? "," : "");
        ln_str_adds(&h, text);
    }
    ln_str_adds(&h, "}");
    write_header("model.safetensors", &h, data);
    ln_str_free(&h);
}

static void repeated(const char *leaf, const char *head, const char *unit, size_t n, const char *tail) {
    ln_str s = {0};
    ln_str_adds(&s, head);
    for (size_t i = 0; i < n; i++) ln_str_adds(&s, unit);
    ln_str_adds(&s, tail);
    assert_false(s.failed);
    write_file(model_file(leaf), s.data, s.len);
    ln_str_free(&s);
}

static void large_files(void **state) {
    (void)state;
    BEGIN;
    fresh_model("llama-plain-f32");
    double start = children_seconds();
    many_tensors(65536, "\"t%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}", 1);
    judge("S-23", run_line(LOAD), 3, "model.safetensors", "tensor t|overlap");
    many_tensors(65537, "\"t%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", 0);
    judge("S-44", run_line(LOAD), 3, "model.safetensors", "more than 65536 tensors");
    fresh_model("llama-plain-f32");
    ln_str header = {0};
    for (int i = 0; i < 10000; i++) ln_str_adds(&header, "[");
    write_header("model.safetensors", &header, 0);
    judge("S-49", run_line(LOAD), 3, "model.safetensors", "array");
    ln_str_free(&header);
    ln_str_adds(&header, "{\"a\":{\"note\":");
    for (int i = 0; i < 10000; i++) ln_str_adds(&header, "[");
    write_header("model.safetensors", &header, 0);
    judge("S-49 inside", run_line(LOAD), 3, "model.safetensors", "nested levels");
    ln_str_free(&header);
    ln_str_adds(&header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1099511627776],\"data_offsets\":[0,"
                         "1099511627776]}}");
    write_header("model.safetensors", &header, 0);
    assert_int_equal(truncate(model_file("model.safetensors"), (off_t)(8 + header.len + (1ull << 40))), 0);
    judge("S-54", run_line(LOAD), 3, NULL, "config.json|model.embed_tokens.weight is missing");
    ln_str_free(&header);
    fresh_model("llama-plain-f32");
    repeated("config.json", "", "[", 1000000, "");
    judge("C-28", run_line(LOAD), 3, "config.json", "nested levels");
    repeated("config.json", "{\"x\":\"", "y", LN_CONFIG_LIMIT, "\"}");
    judge("config.json beyond its limit", run_line(LOAD), 3, "config.json", "67108864");
    fresh_model("llama-plain-f32");
    repeated("tokenizer.json", "{\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", 100000, "1");
    judge("T-14 deep", run_line(LOAD), 3, "tokenizer.json", "nested levels");
    repeated("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"", "x", 65537,
             "\":0},\"merges\":[]}}");
    judge("a token of 64 KiB and more", run_line(LOAD), 3, "tokenizer.json", "model.vocab|65537");
    repeated("tokenizer.json",
             "{\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"", "a", 1 << 20,
             "\"}},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    judge("T-15 1 MiB", run_line(LOAD), 3, "tokenizer.json", "normalizer|1048");
    if (!getenv("LN_SANITIZED")) assert_true(children_seconds() - start < 20);
    END;
}

/* 90 MB of metadata are accepted, and take no more than twice that. */
static void large_metadata(void **state) {
    (void)state;
    BEGIN;
    fresh_model("llama-plain-f32");
    ln_str file = read_whole(model_file("model.safetensors")), text = {0};
    ln_str_adds(&text, "\"");
    for (int i = 0; i < 90000; i++)
        for (int k = 0; k < 10; k++)
            ln_str_adds(&text, "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"
                               "mmmmmmmmmmmmmmmmmmmmmmm");
    ln_str_adds(&text, "\"");
    ln_str bad = changed_tensors(file.data, file.len, "__metadata__/x", text.data, 0);
    write_file(model_file("model.safetensors"), bad.data, bad.len);
    judge("S-47", run_line(LOAD), 0, NULL, "");
    ln_str_free(&file), ln_str_free(&text), ln_str_free(&bad);
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &u), 0);
    if (!getenv("LN_SANITIZED")) assert_true(u.ru_maxrss < (2 * 90 + 64) << 10);
    END;
}

static void copy_of(const char *leaf, const char *golden_leaf, const char *golden) {
    char from[600];
    (void)snprintf(from, sizeof from, "%s/tests/golden/%s/%s", LN_ROOT, golden, golden_leaf);
    ln_str s = read_whole(from);
    write_file(model_file(leaf), s.data, s.len);
    ln_str_free(&s);
}

static void link_to(const char *target, const char *leaf) {
    (void)unlink(model_file(leaf));
    assert_int_equal(symlink(target, model_file(leaf)), 0);
}

static void shards(void **state) {
    (void)state;
    static const char index[] = "model.safetensors.index.json", three[] = "model-00003-of-00003.safetensors",
                      two[] = "model-00002-of-00003.safetensors";
    BEGIN;
    fresh_model("qwen3-sharded-bf16");
    assert_int_equal(unlink(model_file(index)), 0);
    judge("X-1 complete", run_line(LOAD), 0, NULL, "no model.safetensors.index.json|all 3 shards");
    assert_int_equal(unlink(model_file(two)), 0);
    judge("X-1 gap", run_line(LOAD), 3, NULL, "shard 2 of 3 is missing");
    link_to("model-00001-of-00003.safetensors", two);
    judge("X-4", run_line(LOAD), 3, two, "tensor |model-00001-of-00003.safetensors");
    fresh_model("qwen3-sharded-bf16");
    ln_str s = read_whole(model_file(three));
    write_file(model_file(three), s.data, s.len - 1);
    judge("X-19", run_line(LOAD), 3, three, "truncated");
    ln_str_free(&s);
    fresh_model("qwen3-sharded-bf16");
    link_to("/proc/self/environ", three);
    judge("X-10", run_line(LOAD), 3, three, "");
    link_to(three, three);
    judge("X-11", run_line(LOAD), 5, three, "levels of symbolic links");
    link_to("nowhere", three);
    judge("a link to nothing", run_line(LOAD), 5, three, "No such file");
    fresh_model("qwen3-sharded-bf16");
    copy_of("model.safetensors", "model.safetensors", "llama-plain-f32");
    judge("X-15", run_line(LOAD), 3, NULL,
          "both model.safetensors and model.safetensors.index.json|config.json");
    repeated(index, "{\"weight_map\":{\"a\":\"a.safetensors\"", ",\"a\":\"a.safetensors\"", 10, "}}");
    assert_int_equal(unlink(model_file("model.safetensors")), 0);
    judge("X-17", run_line(LOAD), 3, index, "duplicate");
    ln_str many = {0};
    ln_str_adds(&many, "{\"weight_map\":{");
    for (int i = 0; i < 4097; i++) ln_str_addf(&many, "%s\"t%d\":\"s%d.safetensors\"", i ? "," : "", i, i);
    ln_str_adds(&many, "}}");
    write_file(model_file(index), many.data, many.len);
    judge("X-18", run_line(LOAD), 3, index, "more than 4096 shards");
    ln_str_free(&many);
    fresh_model("llama-plain-f32");
    assert_int_equal(unlink(model_file("model.safetensors")), 0);
    judge("no tensors", run_line(LOAD), 5, NULL, "no model.safetensors|hf download");
    write_file(model_file("pytorch_model.bin"), "PK", 2);
    judge("pickle only", run_line(LOAD), 4, NULL, "pytorch_model.bin|never loaded|save_pretrained");
    assert_int_equal(unlink(model_file("pytorch_model.bin")), 0);
    write_file(model_file("x.gguf"), "GGUF", 4);
    judge("GGUF only", run_line(LOAD), 3, NULL, "x.gguf|not a GGUF file");
    END;
}

/* Sockets, pipes and devices in place of files: rejected without waiting for them. */
static void special_files(void **state) {
    (void)state;
    static const char *const leaves[] = {"config.json", "model.safetensors", "tokenizer.json"};
    BEGIN;
    for (size_t i = 0; i < LN_COUNT(leaves); i++) {
        fresh_model("llama-plain-f32");
        (void)unlink(model_file(leaves[i]));
        assert_int_equal(mkfifo(model_file(leaves[i]), 0600), 0);
        judge("L-10 pipe", run_line(LOAD), 3, leaves[i], "regular file");
        link_to("/dev/zero", leaves[i]);
        judge("L-10 /dev/zero", run_line(LOAD), 3, leaves[i], "regular file");
        (void)unlink(model_file(leaves[i]));
        assert_int_equal(mkdir(model_file(leaves[i]), 0700), 0);
        judge("L-10 directory", run_line(LOAD), 3, leaves[i], "regular file");
        assert_int_equal(rmdir(model_file(leaves[i])), 0);
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", model_file(leaves[i]));
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
        close(s);
        outcome *o = run_line(LOAD);
        judge("L-10 socket", o, o->code == 5 ? 5 : 3, leaves[i], "");
    }
    END;
}

static void skipping_unknown_dtypes(void **state) {
    (void)state;
    BEGIN;
    fresh_model("llama-plain-f32");
    ln_str good = read_whole(model_file("model.safetensors"));
    ln_str bad = changed_tensors(good.data, good.len, "x",
                                 "{\"dtype\":\"F17\",\"shape\":[3],\"data_offsets\":[146304,146309]}", 5);
    write_file(model_file("model.safetensors"), bad.data, bad.len);
    judge("S-39 refused", run_line(LOAD), 4, "model.safetensors", "tensor x|F17");
    judge("S-39 skipped", run_line(LOAD " --skip-unknown"), 0, NULL, "tensor x|F17|skipped");
    judge("S-39 shown", run_line("show % --skip-unknown"), 0, NULL, "tensor x|F17|skipped");
    ln_str_free(&bad);
    bad = changed_tensors(good.data, good.len, "model.norm.weight/dtype", "\"F17\"", 0);
    write_file(model_file("model.safetensors"), bad.data, bad.len);
    judge("S-39 needed", run_line(LOAD " --skip-unknown"), 4, NULL, "model.norm.weight|does not know");
    ln_str_free(&bad);
    bad = changed_tensors(good.data, good.len, "x",
                          "{\"dtype\":\"F17\",\"shape\":[3],\"data_offsets\":[146304,146309]}", 4);
    write_file(model_file("model.safetensors"), bad.data, bad.len);
    judge("S-39 still tiled", run_line(LOAD " --skip-unknown"), 3, "model.safetensors", "truncated");
    ln_str_free(&bad), ln_str_free(&good);
    END;
}

/* T-15: a pattern that takes exponentially many steps, within the limit of one match but at every position
 * of a text. Without a limit for the text, each thirty words took a second. */
static void patterns_without_end(void **state) {
    (void)state;
    static const char document[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" "
                                   "\":2},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\","
                                   "\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(a+)+$\"}}}";
    BEGIN;
    fresh_model("llama-plain-f32");
    write_file(model_file("tokenizer.json"), document, sizeof document - 1);
    ln_str text = {0};
    for (int i = 0; i < 4000; i++) ln_str_adds(&text, "aaaaaaaaaaaaaaaaaaaaaab ");
    double start = children_seconds();
    char model[128];
    (void)snprintf(model, sizeof model, "%s/m", dir);
    judge("T-15 (a+)+$", run_with(text.data, text.len, (char *[]){S("linnet"), S("tokenize"), model, NULL}),
          3, NULL, "pattern|match limit");
    assert_true(children_seconds() - start < (getenv("LN_SANITIZED") ? 100 : 20));
    ln_str_free(&text);
    judge("T-15 short", run_line("tokenize % aaaaab"), 0, NULL, "");
    END;
}

/* Sets every f32 of a tensor (NULL: of all tensors) to this value. */
static void fill(const char *tensor, float value) {
    fresh_model("llama-plain-f32");
    ln_tensors t;
    ln_str s = read_whole(model_file("model.safetensors"));
    assert_int_equal(ln_tensors_open_memory(&t, "x", (const uint8_t *)s.data, s.len, NULL), LN_OK);
    for (size_t i = 0; i < t.n; i++) {
        if (tensor && strcmp(t.items[i].name, tensor) != 0) continue;
        for (size_t k = 0; k < t.items[i].bytes; k += 4)
            memcpy(s.data + (t.items[i].data - (const uint8_t *)s.data) + k, &value, 4);
    }
    ln_tensors_close(&t);
    write_file(model_file("model.safetensors"), s.data, s.len);
    ln_str_free(&s);
}

static void numbers(void **state) {
    (void)state;
    BEGIN;
    static const char *const runs[] = {LOAD, LOAD " --numerics fast", LOAD " --device ref",
                                       "run % --ids 5,6 -n 2 --temp 1 --seed 1 --top-k 5",
                                       "run % --ids 5,6 -n 2 --temp 0 --json"};
    for (size_t i = 0; i < LN_COUNT(runs); i++) {
        fill("model.layers.1.mlp.down_proj.weight", NAN);
        judge("N-1 one tensor of NaN", run_line(runs[i]), 8, NULL, "NaN");
        fill(NULL, INFINITY);
        judge("N-2 infinity", run_line(runs[i]), 8, NULL, "NaN");
    }
    fill("model.layers.1.mlp.down_proj.weight", NAN);
    judge("N-1 score", run_line("score % --ids 5,6"), 8, NULL, "NaN");
    fill(NULL, 3.4e38f);
    outcome *o = run_line(LOAD);
    judge("N-2 the largest", o, o->code == 8 ? 8 : 0, NULL, o->code == 8 ? "NaN" : "");
    fill(NULL, 0);
    judge("N-3 zero", run_line(LOAD), 0, NULL, "");
    if (strcmp(last->out, "")) {
        judge("N-5", run_line("run % --ids 5,6 -n 2 --temp 0 --json"), 0, NULL, "");
        assert_non_null(strstr(last->out, "\"ids\":[0,0]")); /* all logits are equal: the lowest id */
    }
    fresh_model("llama-plain-f32");
    judge("N-7", run_line("run % --ids 5,6 -n 2 --temp 1e-30 --seed 1 --json"), 0, NULL, "");
    char *cold = ln_strndup(strstr(last->out, "\"ids\":"), 20);
    judge("N-9", run_line("run % --ids 5,6 -n 2 --temp 0 --seed 1 --json"), 0, NULL, "");
    assert_int_equal(strncmp(strstr(last->out, "\"ids\":"), cold, 12), 0);
    ln_free(cold);
    judge("N-8", run_line("run % --ids 5,6 -n 8 --temp 1 --top-p 0 --min-p 1 --seed 1"), 0, NULL, "");
    judge("N-11", run_line("run % --ids 5,6 -n 8 --temp 1 --repeat-penalty 1e6 --seed 1"), 0, NULL, "");
    judge("N-4 bias", run_line("run % --ids 5,6 -n 2 --temp 0 --logit-bias 7=-1e30 --logit-bias 8=1e30"), 0,
          NULL, "");
    judge("N-15", run_line("run % --ids 5 -n 300 --ignore-eos --temp 0 --ctx 256"), 0, NULL, "");
    END;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row),
                                       cmocka_unit_test(numbers),
                                       cmocka_unit_test(shards),
                                       cmocka_unit_test(special_files),
                                       cmocka_unit_test(skipping_unknown_dtypes),
                                       cmocka_unit_test(patterns_without_end),
                                       cmocka_unit_test(little_memory),
                                       cmocka_unit_test(large_files),
                                       cmocka_unit_test(large_metadata)};
    return cmocka_run_group_tests(tests, make_dir, remove_all);
}
