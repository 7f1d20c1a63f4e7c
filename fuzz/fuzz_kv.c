/* Fuzzes the reader of files of keys and values. An engine with a tiny model writes such a file of its own.
 * The two lowest bits of the first byte choose what the rest is: the whole file; the header of the file,
 * before the data that were written; or members that replace those of that header. What loads is in the
 * cache, and can be saved again. */
#include "fuzz_dir.h"

#include "engine/generate.h"
#include "engine/kv_file.h"
#include "engine/memory_control.h"

enum { D = 4, F = 6, V = 11, N = 70, CTX = 96 };

static ln_package *package;
static ln_eng *engine;
static int32_t ids[N];
static char *written; /* the file: 8 bytes, header, data */
static size_t written_bytes, head_bytes;
static json_t *head;

static void make_model(void) {
    static const char config[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4,"
        "\"intermediate_size\":6,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"vocab_size\":11,\"max_position_embeddings\":96,\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\","
        "\"rope_theta\":10000.0,\"dtype\":\"float32\",\"tie_word_embeddings\":true}";
#define W(n, ...)                                                                                \
    {                                                                                            \
        .name = n, .dtype = LN_ST_F32, .n_dims = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dims = { \
            __VA_ARGS__                                                                          \
        }                                                                                        \
    }
    static const ln_tensor_spec specs[] = {W("model.embed_tokens.weight", V, D),
                                           W("model.layers.0.input_layernorm.weight", D),
                                           W("model.layers.0.mlp.down_proj.weight", D, F),
                                           W("model.layers.0.mlp.gate_proj.weight", F, D),
                                           W("model.layers.0.mlp.up_proj.weight", F, D),
                                           W("model.layers.0.post_attention_layernorm.weight", D),
                                           W("model.layers.0.self_attn.k_proj.weight", 2, D),
                                           W("model.layers.0.self_attn.o_proj.weight", D, D),
                                           W("model.layers.0.self_attn.q_proj.weight", D, D),
                                           W("model.layers.0.self_attn.v_proj.weight", 2, D),
                                           W("model.norm.weight", D)};
    static const char tokenizer[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,"
                                    "\"e\":4,\"f\":5,\"g\":6,\"h\":7,"
                                    "\"i\":8,\"j\":9,\"k\":10},\"merges\":[]}}";
    dir_put("config.json", config, sizeof config - 1);
    dir_put("tokenizer.json", tokenizer, sizeof tokenizer - 1);
    dir_put_tensors("model.safetensors", specs, LN_COUNT(specs));
}

static void call(ln_status st, const ln_error *err) {
    if (st == LN_OK) return;
    fprintf(stderr, "the model that is built in: %s\n", err->message);
    abort();
}

static void fuzz_open(void) {
    ln_error err = {0};
    ln_options o = {.size = sizeof o, .device = LN_DEVICE_REF, .n_ctx = CTX, .n_threads = 1};
    ln_result r = {.size = sizeof r};
    const ln_sampling greedy = {.top_p = 1, .repeat_penalty = 1, .n_max = 1, .ignore_eos = true};
    const ln_prompt p = {.size = sizeof p, .ids = ids, .n_ids = N};
    size_t n = 0;
    dir_open();
    make_model();
    for (int i = 0; i < N; i++) ids[i] = (i * 5 + i / 7) % V;
    call(ln_package_open(&package, fuzz_dir, &o, &err), &err);
    call(ln_eng_open(&engine, package, &o, &err), &err);
    call(ln_eng_generate(engine, &p, &greedy, NULL, NULL, &r, &err), &err);
    ln_free(r.ids), ln_free(r.prompt_ids), ln_free(r.text), ln_free(r.reasoning);
    call(ln_eng_seq_save(engine, ids, N, dir_path("kv"), &n, &err), &err);
    must(n > 0);
    call(ln_read_file(dir_path("kv"), 1 << 20, &written, &written_bytes, &err), &err);
    for (int i = 0; i < 8; i++) head_bytes |= (size_t)(uint8_t)written[i] << 8 * i;
    call(ln_json_load(&head, "head", written + 8, head_bytes, &err), &err);
    ln_cache_clear_all();
}

static ln_status put_file(const char *header, size_t bytes, ln_error *err) {
    ln_str s = {0};
    for (int i = 0; i < 8; i++) ln_str_add(&s, &(char){(char)(bytes >> 8 * i)}, 1);
    ln_str_add(&s, header, bytes);
    ln_str_add(&s, written + 8 + head_bytes, written_bytes - 8 - head_bytes);
    const ln_status st = s.failed ? LN_OOM(err, "a file") : LN_OK;
    if (st == LN_OK) dir_put("kv", s.data, s.len);
    ln_str_free(&s);
    return st;
}

static int add_text(const char *text, size_t bytes, void *user) {
    ln_str_add(user, text, bytes);
    return ((ln_str *)user)->failed ? -1 : 0;
}

/* Replaces members of the header, and those of __metadata__, whose other members stay. */
static ln_status put_changed(const uint8_t *data, size_t bytes, ln_error *err) {
    json_t *changes = NULL, *all = ln_json_deep_copy(head);
    ln_str text = {0};
    const char *key;
    json_t *v;
    ln_status st =
        all ? ln_json_load(&changes, "changes", (const char *)data, bytes, err) : LN_OOM(err, "a header");
    if (st == LN_OK && !json_is_object(changes)) st = ln_fail(err, LN_EINVALID, "expected an object");
    json_object_foreach(changes, key, v) {
        json_t *meta = json_object_get(all, key);
        const bool joins = strcmp(key, "__metadata__") == 0 && json_is_object(v);
        if (st == LN_OK && (joins ? json_object_update(meta, v) : json_object_set(all, key, v)) != 0)
            st = LN_OOM(err, "a header");
    }
    if (st == LN_OK && json_dump_callback(all, add_text, &text, JSON_COMPACT) != 0)
        st = LN_OOM(err, "a header");
    if (st == LN_OK) st = put_file(text.data, text.len, err);
    ln_str_free(&text);
    json_decref(changes);
    json_decref(all);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const int how = bytes ? data[0] % 4 : 0;
    size_t n = 0, again = 0;
    if (bytes) data++, bytes--;
    dir_put("kv", "", 0);
    if (how == 0) dir_put("kv", data, bytes);
    else if (how == 1) LN_TRY(put_file((const char *)data, bytes, err));
    else LN_TRY(put_changed(data, bytes, err));
    ln_status st = ln_eng_seq_load(engine, dir_path("kv"), &n, err);
    if (st == LN_OK) {
        must(n > 0 && n <= N);
        st = ln_eng_seq_save(engine, ids, N, dir_path("again"), &again, err);
        must(st == LN_EMEMORY || st == LN_EINVALID || (st == LN_OK && again <= N));
        if (st == LN_EINVALID) st = LN_OK; /* another text */
    }
    ln_cache_clear_all();
    return st;
}
