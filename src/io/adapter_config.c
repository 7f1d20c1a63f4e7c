/* adapter_config.json of PEFT, mlx-lm and go-mlx: which layout it is, ranks, scales, the modules that it
 * names.
 *
 * With peft_type it is PEFT's, with lora_parameters or fine_tune_type mlx-lm's, else go-mlx's, whose rank
 * and alpha may be absent. */
#include "../base/dir_names.h"
#include "adapter.h"

#include <math.h>
#include <string.h>

static ln_status refuse(const ln_adapter_config *c, ln_status st, const char *field, const json_t *v,
                        const char *why, ln_error *err) {
    char found[80];
    return ln_fail(err, st, "%s: %s: found %s; %s", c->path, field, ln_json_text(v, found), why);
}

static ln_status read_number(const ln_adapter_config *c, const json_t *object, const char *field, double dflt,
                             double *out, ln_error *err) {
    const json_t *v = json_object_get(object, field);
    *out = json_is_number(v) ? json_number_value(v) : dflt;
    if ((v && !json_is_number(v)) || !isfinite(*out))
        return refuse(c, LN_EINVALID, field, v, "expected a number", err);
    return LN_OK;
}

/* A switch that is absent or null is off. */
static ln_status read_switch(const ln_adapter_config *c, const char *field, bool *out, ln_error *err) {
    const json_t *v = json_object_get(c->root, field);
    *out = json_is_true(v);
    if (!v || json_is_null(v) || json_is_boolean(v)) return LN_OK;
    return refuse(c, LN_EINVALID, field, v, "expected true or false", err);
}

/* LN_EINVALID unless v, which may be absent or null, is a list of texts. */
static ln_status check_names(const ln_adapter_config *c, const char *field, const json_t *v, ln_error *err) {
    if (v && !json_is_null(v) && !json_is_array(v))
        return refuse(c, LN_EINVALID, field, v, "expected a list of names", err);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return refuse(c, LN_EINVALID, field, json_array_get(v, i), "expected a list of names", err);
    return LN_OK;
}

static ln_status read_rank(const ln_adapter_config *c, const json_t *object, const char *field, int64_t dflt,
                           int64_t *out, ln_error *err) {
    const json_t *v = json_object_get(object, field);
    *out = json_is_integer(v) ? (int64_t)json_integer_value(v) : dflt;
    if ((v && !json_is_integer(v)) || *out < 1 || *out > 1 << 20)
        return refuse(c, LN_EINVALID, field, v, "expected a rank of at least 1", err);
    return LN_OK;
}

static bool is_set(const json_t *v) {
    if (json_is_array(v)) return json_array_size(v) > 0;
    if (json_is_object(v)) return json_object_size(v) > 0;
    return v && !json_is_null(v) && !json_is_false(v);
}

/* ---- PEFT ---- */

/* A key that neither says what is read here nor is known to change nothing. PEFT gains options with every
 * version, and one that is set changes what an adapter does. */
static ln_status check_unknown(const ln_adapter_config *c, ln_error *err) {
    static const char *const known[] = {"peft_type",
                                        "r",
                                        "lora_alpha",
                                        "rank_pattern",
                                        "alpha_pattern",
                                        "use_rslora",
                                        "bias",
                                        "lora_bias",
                                        "use_dora",
                                        "target_modules",
                                        "target_parameters",
                                        "modules_to_save",
                                        "trainable_token_indices",
                                        "init_lora_weights",
                                        "auto_mapping",
                                        "base_model_name_or_path",
                                        "inference_mode",
                                        "revision",
                                        "task_type",
                                        "peft_version",
                                        "lora_dropout",
                                        "exclude_modules",
                                        "layers_to_transform",
                                        "layers_pattern",
                                        "ensure_weight_tying",
                                        "megatron_core",
                                        "loftq_config",
                                        "eva_config",
                                        "qalora_group_size",
                                        "runtime_config"};
    const char *key;
    char shown[80];
    json_t *v;
    json_object_foreach(c->root, key, v) {
        size_t i = 0;
        while (i < LN_COUNT(known) && strcmp(key, known[i]) != 0) i++;
        if (i == LN_COUNT(known) && is_set(v))
            return refuse(c, LN_EUNSUPPORTED, ln_excerpt(shown, key, strlen(key)), v,
                          "linnet does not know this option of PEFT", err);
    }
    return LN_OK;
}

/* How PEFT initialised A and B does not matter, unless it changed the weights of the model for it: PiSSA,
 * OLoRA, CorDA, LoftQ, LoRA-GA, and perhaps what later versions add. */
static ln_status check_init(const ln_adapter_config *c, ln_error *err) {
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const json_t *init = json_object_get(c->root, "init_lora_weights");
    for (size_t i = 0; json_is_string(init) && i < LN_COUNT(harmless); i++)
        if (strcmp(json_string_value(init), harmless[i]) == 0) return LN_OK;
    if (!init || json_is_null(init) || json_is_boolean(init)) return LN_OK;
    return refuse(c, LN_EUNSUPPORTED, "init_lora_weights", init,
                  "such an adapter belongs to weights that PEFT has changed; save it with "
                  "path_initial_model_for_weight_conversion, which makes plain LoRA of it",
                  err);
}

/* Options that make more of an adapter than scale * B A x, or the base weights others than those of the
 * model. */
static ln_status check_peft(const ln_adapter_config *c, ln_error *err) {
    static const struct {
        const char *field, *why;
    } refused[] = {{"use_qalora", "linnet applies plain LoRA, not QALoRA"},
                   {"fan_in_fan_out", "the matrices of linnet's families are not transposed"},
                   {"alora_invocation_tokens", "activated LoRA is not applied"},
                   {"layer_replication", "replicated layers are not supported"},
                   {"megatron_config", "Megatron layers are not supported"}};
    for (size_t i = 0; i < LN_COUNT(refused); i++) {
        const json_t *v = json_object_get(c->root, refused[i].field);
        if (is_set(v)) return refuse(c, LN_EUNSUPPORTED, refused[i].field, v, refused[i].why, err);
    }
    const json_t *kind = json_object_get(c->root, "peft_type"), *bias = json_object_get(c->root, "bias");
    if (!json_is_string(kind) || strcmp(json_string_value(kind), "LORA") != 0)
        return refuse(c, LN_EUNSUPPORTED, "peft_type", kind,
                      "linnet applies LORA; if PEFT can merge this one (merge_and_unload), linnet runs the "
                      "merged model",
                      err);
    const char *word = json_is_string(bias) ? json_string_value(bias) : is_set(bias) ? "" : "none";
    if (strcmp(word, "none") != 0 && strcmp(word, "all") != 0 && strcmp(word, "lora_only") != 0)
        return refuse(c, LN_EUNSUPPORTED, "bias", bias, "linnet knows none, all and lora_only", err);
    LN_TRY(check_init(c, err));
    return check_unknown(c, err);
}

static ln_status read_pattern(ln_adapter_config *c, const char *field, ln_adapter_patterns *out,
                              ln_error *err) {
    const char *key;
    json_t *v, *object = json_object_get(c->root, field);
    char where[160];
    if (!is_set(object)) return LN_OK;
    if (!json_is_object(object)) return refuse(c, LN_EINVALID, field, object, "expected an object", err);
    out->items = ln_zalloc(json_object_size(object), sizeof *out->items);
    if (!out->items) return LN_OOM(err, "the configuration of an adapter");
    (void)snprintf(where, sizeof where, "%.120s: %s", c->path, field);
    json_object_foreach(object, key, v) {
        if (!json_is_number(v)) return refuse(c, LN_EINVALID, field, v, "expected numbers", err);
        out->items[out->n].value = json_number_value(v);
        LN_TRY(ln_name_pattern_open(&out->items[out->n].name, key, true, where, err));
        out->n++;
    }
    return LN_OK;
}

/* A list of names, or a text: a regular expression, or all-linear. */
static ln_status read_targets(ln_adapter_config *c, ln_error *err) {
    const json_t *targets = json_object_get(c->root, "target_modules");
    char where[160];
    c->targets = json_is_array(targets) ? targets : NULL;
    if (!json_is_string(targets)) return check_names(c, "target_modules", targets, err);
    if (strcmp(json_string_value(targets), "all-linear") == 0) return LN_OK;
    (void)snprintf(where, sizeof where, "%.120s: target_modules", c->path);
    return ln_name_pattern_open(&c->target, json_string_value(targets), false, where, err);
}

/* LN_EINVALID unless v is absent, null, or a number of a layer or a list of them. */
static ln_status check_layers(const ln_adapter_config *c, const json_t *v, ln_error *err) {
    bool good = !v || json_is_null(v) || json_is_integer(v) || json_is_array(v);
    for (size_t i = 0; i < json_array_size(v); i++) good = good && json_is_integer(json_array_get(v, i));
    return good ? LN_OK : refuse(c, LN_EINVALID, "layers_to_transform", v, "expected numbers of layers", err);
}

/* What the configuration leaves out of the modules that it names. */
static ln_status read_left_out(ln_adapter_config *c, ln_error *err) {
    const json_t *excluded = json_object_get(c->root, "exclude_modules"),
                 *layers = json_object_get(c->root, "layers_to_transform"),
                 *pattern = json_object_get(c->root, "layers_pattern");
    char where[160];
    LN_TRY(check_layers(c, layers, err));
    if (is_set(layers)) c->layers = layers;
    if (is_set(pattern) && !json_is_string(pattern)) LN_TRY(check_names(c, "layers_pattern", pattern, err));
    if (is_set(pattern)) c->layers_pattern = pattern;
    if (!json_is_string(excluded)) {
        LN_TRY(check_names(c, "exclude_modules", excluded, err));
        if (is_set(excluded)) c->excluded = excluded;
        return LN_OK;
    }
    if (!json_string_length(excluded)) return LN_OK;
    (void)snprintf(where, sizeof where, "%.120s: exclude_modules", c->path);
    return ln_name_pattern_open(&c->exclude, json_string_value(excluded), false, where, err);
}

/* LN_EINVALID unless v is a list of ids. */
static ln_status check_ids(const ln_adapter_config *c, const json_t *v, ln_error *err) {
    bool good = json_is_array(v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        good = good && json_is_integer(id) && json_integer_value(id) >= 0 &&
               json_integer_value(id) < INT32_MAX / 2;
    }
    return good ? LN_OK
                : refuse(c, LN_EINVALID, "trainable_token_indices", v, "expected lists of token ids", err);
}

/* trainable_token_indices: a list for the embedding, or an object with one for each module. */
static ln_status read_tokens(ln_adapter_config *c, ln_error *err) {
    json_t *tokens = json_object_get(c->root, "trainable_token_indices"), *ids;
    const char *module;
    if (!is_set(tokens)) return LN_OK;
    if (!json_is_object(tokens)) LN_TRY(check_ids(c, tokens, err));
    json_object_foreach(tokens, module, ids) LN_TRY(check_ids(c, ids, err));
    c->tokens = tokens;
    return LN_OK;
}

static ln_status read_peft(ln_adapter_config *c, ln_error *err) {
    const json_t *bias = json_object_get(c->root, "bias");
    LN_TRY(check_peft(c, err));
    LN_TRY(read_rank(c, c->root, "r", 8, &c->rank, err));
    LN_TRY(read_number(c, c->root, "lora_alpha", 8, &c->alpha, err));
    LN_TRY(read_pattern(c, "rank_pattern", &c->rank_pattern, err));
    LN_TRY(read_pattern(c, "alpha_pattern", &c->alpha_pattern, err));
    LN_TRY(read_switch(c, "use_rslora", &c->rslora, err));
    LN_TRY(read_switch(c, "lora_bias", &c->lora_bias, err));
    LN_TRY(read_switch(c, "use_dora", &c->dora, err));
    if (c->dora && c->lora_bias)
        return refuse(c, LN_EINVALID, "lora_bias", json_true(), "PEFT has no DoRA with biases of B", err);
    if (c->dora && is_set(json_object_get(c->root, "target_parameters")))
        return refuse(c, LN_EUNSUPPORTED, "target_parameters", json_object_get(c->root, "target_parameters"),
                      "DoRA on experts is not applied", err);
    c->parameters = json_object_get(c->root, "target_parameters");
    LN_TRY(check_names(c, "target_parameters", c->parameters, err));
    c->biases = json_is_string(bias) && strcmp(json_string_value(bias), "none") != 0;
    c->saved = json_object_get(c->root, "modules_to_save");
    LN_TRY(check_names(c, "modules_to_save", c->saved, err));
    LN_TRY(read_switch(c, "ensure_weight_tying", &c->tied, err));
    LN_TRY(read_tokens(c, err));
    LN_TRY(read_left_out(c, err));
    return read_targets(c, err);
}

/* ---- mlx-lm, go-mlx ---- */

static ln_status read_mlx(ln_adapter_config *c, ln_error *err) {
    const json_t *kind = json_object_get(c->root, "fine_tune_type"),
                 *parameters = json_object_get(c->root, "lora_parameters"),
                 *layers = json_object_get(c->root, "num_layers"), *keys;
    c->dora = json_is_string(kind) && strcmp(json_string_value(kind), "dora") == 0;
    if (kind && !json_is_null(kind) && !c->dora &&
        (!json_is_string(kind) || strcmp(json_string_value(kind), "lora") != 0))
        return refuse(c, LN_EUNSUPPORTED, "fine_tune_type", kind, "linnet applies lora and dora", err);
    if (!json_is_object(parameters))
        return refuse(c, LN_EINVALID, "lora_parameters", parameters, "expected an object", err);
    LN_TRY(read_rank(c, parameters, "rank", 0, &c->rank, err));
    if (!json_is_number(json_object_get(parameters, "scale")))
        return refuse(c, LN_EINVALID, "lora_parameters.scale", json_object_get(parameters, "scale"),
                      "expected the number that mlx-lm multiplies with", err);
    c->scale = json_number_value(json_object_get(parameters, "scale"));
    if (layers && !json_is_integer(layers))
        return refuse(c, LN_EINVALID, "num_layers", layers, "expected an integer", err);
    const json_int_t n = json_integer_value(layers);
    c->n_last_layers = n > 0 && n < INT32_MAX ? (int)n : 0;
    keys = json_object_get(parameters, "keys");
    LN_TRY(check_names(c, "lora_parameters.keys", keys, err));
    c->targets = is_set(keys) ? keys : NULL;
    return LN_OK;
}

static ln_status read_go_mlx(ln_adapter_config *c, ln_error *err) {
    const json_t *rank = json_object_get(c->root, "rank"), *alpha = json_object_get(c->root, "alpha");
    const bool no_rank = !is_set(rank) || (json_is_integer(rank) && json_integer_value(rank) == 0),
               no_alpha = !is_set(alpha) || (json_is_number(alpha) && json_number_value(alpha) == 0);
    c->rank = 8;
    if (!no_rank) LN_TRY(read_rank(c, c->root, "rank", 8, &c->rank, err));
    c->alpha = 2 * (double)c->rank;
    if (!no_alpha) LN_TRY(read_number(c, c->root, "alpha", 0, &c->alpha, err));
    return LN_OK;
}

/* ---- all ---- */

/* Returns LN_EIO if the directory has no adapter_config.json; the message says what it seems to be
 * instead. */
static ln_status check_there(const ln_adapter_config *c, const char *dir, ln_error *err) {
    char model[4200];
    bool there = true, is_model = false;
    LN_TRY(ln_look(c->path, &there, err));
    if (there) return LN_OK;
    (void)snprintf(model, sizeof model, "%s/config.json", dir);
    LN_TRY(ln_look(model, &is_model, err));
    return ln_fail(err, LN_EIO, "%s: expected the directory of an adapter, with adapter_config.json%s", dir,
                   is_model ? "; this one has config.json, as a model has"
                            : "; it may be in a directory below, such as that of a checkpoint");
}

ln_status ln_adapter_config_open(ln_adapter_config *out, const char *dir, ln_error *err) {
    *out = (ln_adapter_config){0};
    (void)snprintf(out->path, sizeof out->path, "%s/adapter_config.json", dir);
    LN_TRY(check_there(out, dir, err));
    LN_TRY(ln_json_load_file(&out->root, out->path, LN_CONFIG_LIMIT, err));
    if (!json_is_object(out->root)) return ln_fail(err, LN_EINVALID, "%s: expected a JSON object", out->path);
    const bool peft = json_object_get(out->root, "peft_type") != NULL,
               mlx = json_object_get(out->root, "lora_parameters") ||
                     json_object_get(out->root, "fine_tune_type");
    if (peft && mlx)
        return ln_fail(err, LN_EINVALID,
                       "%s: peft_type is PEFT's and lora_parameters or fine_tune_type mlx-lm's; expected one "
                       "of "
                       "the two",
                       out->path);
    out->layout = peft ? LN_ADAPTER_PEFT : mlx ? LN_ADAPTER_MLX_LM : LN_ADAPTER_GO_MLX;
    if (!peft && !mlx && json_object_get(out->root, "r"))
        return ln_fail(err, LN_EINVALID, "%s: r without peft_type; expected PEFT's peft_type, or rank",
                       out->path);
    return peft ? read_peft(out, err) : mlx ? read_mlx(out, err) : read_go_mlx(out, err);
}

static void close_patterns(ln_adapter_patterns *p) {
    for (size_t i = 0; i < p->n; i++) ln_name_pattern_close(&p->items[i].name);
    ln_free(p->items);
}

void ln_adapter_config_close(ln_adapter_config *c) {
    close_patterns(&c->rank_pattern);
    close_patterns(&c->alpha_pattern);
    ln_name_pattern_close(&c->target);
    ln_name_pattern_close(&c->exclude);
    json_decref(c->root);
    *c = (ln_adapter_config){0};
}

/* Whether a name is the path or its end after a dot. */
static bool ends_with(const char *path, const char *name) {
    const size_t n = strlen(path), m = strlen(name);
    return m > 0 && n >= m && strcmp(path + n - m, name) == 0 && (n == m || path[n - m - 1] == '.');
}

/* Whether the layers of the configuration are called by this name; without layers_pattern any is. */
static bool names_layers(const ln_adapter_config *c, const char *name, size_t n) {
    const json_t *p = c->layers_pattern;
    if (!p) return true;
    for (size_t i = 0; i < (json_is_array(p) ? json_array_size(p) : 1); i++) {
        const json_t *one = json_is_array(p) ? json_array_get(p, i) : p;
        if (json_string_length(one) == n && memcmp(json_string_value(one), name, n) == 0) return true;
    }
    return false;
}

/* Whether layers_to_transform has the layer of a module: the last number between dots behind a name of
 * layers, which has a dot before it, as PEFT finds it. */
static bool is_in_layers(const ln_adapter_config *c, const char *full) {
    int64_t layer = -1, number;
    const char *name = full, *at = full; /* a part between dots, and the one before it */
    size_t n_name = 0, i = 0;
    for (const char *dot; (dot = strchr(at, '.')) != NULL; at = dot + 1, i++) {
        const size_t n = (size_t)(dot - at);
        if (i >= 2 && strspn(at, "0123456789") == n && ln_parse_i64(at, n, &number) &&
            names_layers(c, name, n_name))
            layer = number;
        name = at, n_name = n;
    }
    if (json_is_integer(c->layers)) return layer == json_integer_value(c->layers);
    for (size_t k = 0; layer >= 0 && k < json_array_size(c->layers); k++)
        if (json_integer_value(json_array_get(c->layers, k)) == layer) return true;
    return false;
}

/* Sets *out: whether exclude_modules has this module. */
static ln_status is_left_out(const ln_adapter_config *c, const char *full, bool *out, ln_error *err) {
    *out = false;
    if (c->exclude) return ln_name_matches(c->exclude, full, out, err);
    for (size_t i = 0; i < json_array_size(c->excluded); i++)
        *out = *out || ends_with(full, json_string_value(json_array_get(c->excluded, i)));
    return LN_OK;
}

ln_status ln_adapter_targets(const ln_adapter_config *c, const char *full, const char *path, bool *named,
                             bool *whole, ln_error *err) {
    bool left_out;
    *whole = *named = false;
    LN_TRY(is_left_out(c, full, &left_out, err));
    if (left_out) return LN_OK;
    if (c->target) return ln_name_matches(c->target, full, named, err);
    *named = !c->targets;
    for (size_t i = 0; !*whole && i < json_array_size(c->targets); i++) {
        const char *name = json_string_value(json_array_get(c->targets, i));
        *whole = strcmp(full, name) == 0 || strcmp(path, name) == 0;
        *named = *named || *whole || ends_with(full, name);
    }
    if (c->layers && *named && !*whole) *named = is_in_layers(c, full);
    return LN_OK;
}

bool ln_adapter_saves(const ln_adapter_config *c, const char *full) {
    for (size_t i = 0; i < json_array_size(c->saved); i++)
        if (ln_ends_with(full, json_string_value(json_array_get(c->saved, i)))) return true;
    return false;
}

const json_t *ln_adapter_token_ids(const ln_adapter_config *c, const char *full) {
    const char *module;
    json_t *ids;
    if (!json_is_object(c->tokens)) return c->tokens;
    json_object_foreach((json_t *)(uintptr_t)c->tokens, module, ids) {
        if (ends_with(full, module)) return ids;
    }
    /* PEFT has a tied head follow the embedding */
    return ends_with(full, "lm_head") ? json_object_get(c->tokens, "embed_tokens") : NULL;
}

/* M of M.base_layer, as often as the end of a name has it. */
static size_t without_base_layers(const char *full) {
    static const char end[] = ".base_layer";
    size_t n = strlen(full);
    while (n >= sizeof end && memcmp(full + n - (sizeof end - 1), end, sizeof end - 1) == 0)
        n -= sizeof end - 1;
    return n;
}
/* Whether a module's name, of n bytes, is the path or its end after a dot. */
static bool is_end(const char *full, size_t n, const char *module, size_t m) {
    return m <= n && memcmp(full + n - m, module, m) == 0 && (m == n || full[n - m - 1] == '.');
}
bool ln_adapter_names_parameter(const ln_adapter_config *c, const char *full) {
    const size_t n = without_base_layers(full);
    for (size_t i = 0; i < json_array_size(c->parameters); i++) {
        const char *name = json_string_value(json_array_get(c->parameters, i)), *dot = strrchr(name, '.');
        const size_t m = dot ? (size_t)(dot - name) : 0; /* of the module's name */
        if (m == 0 || is_end(full, n, name, m)) return true;
    }
    return false;
}

/* The name of the parameter that the tensors of a module are for, if target_parameters names one; else NULL.
 * Of two parameters of experts, PEFT calls the module of the earlier one M.base_layer. */
static const char *parameter_of(const ln_adapter_config *c, const char *full) {
    static const char *const of_experts[] = {"down_proj", "gate_up_proj"}; /* the outer one comes first */
    const size_t n = without_base_layers(full), outer = (strlen(full) - n) / strlen(".base_layer");
    const bool experts = is_end(full, n, "experts", strlen("experts"));
    bool named[LN_COUNT(of_experts)] = {false};
    for (size_t i = 0; i < json_array_size(c->parameters); i++) {
        const char *name = json_string_value(json_array_get(c->parameters, i)), *dot = strrchr(name, '.');
        const char *last = dot ? dot + 1 : name;
        if (dot ? !is_end(full, n, name, (size_t)(dot - name)) : !experts) continue;
        if (!experts) return last;
        for (size_t k = 0; k < LN_COUNT(of_experts); k++) named[k] |= strcmp(last, of_experts[k]) == 0;
    }
    for (size_t k = 0, at = 0; k < LN_COUNT(of_experts); k++)
        if (named[k] && at++ == outer) return of_experts[k];
    return NULL;
}

/* Whether the name of a tensor has a module's name in it, as whole parts between dots. */
static bool has_module(const char *tensor, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = tensor; n > 0 && (at = strstr(at, name)) != NULL; at++)
        if ((at == tensor || at[-1] == '.') && at[n] == '.') return true;
    return false;
}

static bool is_excluded(const json_t *excluded, const char *name) {
    for (size_t i = 0; i < json_array_size(excluded); i++) {
        const char *other = json_string_value(json_array_get(excluded, i));
        if (other && ends_with(name, other)) return true;
    }
    return json_is_string(excluded); /* a regular expression, which is not read */
}

void ln_adapter_find_absent(const ln_adapter_config *c, const ln_tensors *tensors, char list[256]) {
    const json_t *excluded = json_object_get(c->root, "exclude_modules");
    size_t at = 0;
    list[0] = '\0';
    for (size_t i = 0; i < json_array_size(c->targets); i++) {
        char shown[80];
        const char *name = json_string_value(json_array_get(c->targets, i));
        bool found = is_excluded(excluded, name);
        for (size_t k = 0; !found && k < tensors->n; k++) found = has_module(tensors->items[k].name, name);
        if (found) continue;
        if (at + strlen(ln_excerpt(shown, name, strlen(name))) + 8 > 256) {
            (void)snprintf(list + at, 256 - at, ", ...");
            return;
        }
        at += (size_t)snprintf(list + at, 256 - at, "%s%s", at ? ", " : "", shown);
    }
}

/* Sets *value to that of the first pattern that matches, as PEFT's get_pattern_key finds it; else it stays.
 */
static ln_status find_pattern(const ln_adapter_config *c, const ln_adapter_patterns *p, const char *full,
                              double *value, ln_error *err) {
    bool matches = false;
    char name[320]; /* a parameter's is behind its module's */
    const char *parameter = parameter_of(c, full);
    if (parameter) {
        (void)snprintf(name, sizeof name, "%.*s.%s", (int)without_base_layers(full), full, parameter);
        full = name;
    }
    for (size_t i = 0; !matches && i < p->n; i++) {
        LN_TRY(ln_name_matches(p->items[i].name, full, &matches, err));
        if (matches) *value = p->items[i].value;
    }
    return LN_OK;
}

ln_status ln_adapter_rank_of(const ln_adapter_config *c, const char *full, int64_t *rank, ln_error *err) {
    double value = (double)c->rank;
    LN_TRY(find_pattern(c, &c->rank_pattern, full, &value, err));
    *rank = value < 1 << 20 ? (int64_t)value : 0;
    return *rank > 0 && (double)*rank == value
               ? LN_OK
               : refuse(c, LN_EINVALID, "rank_pattern", json_object_get(c->root, "rank_pattern"),
                        "expected integers", err);
}

ln_status ln_adapter_scale_of(const ln_adapter_config *c, const char *full, int64_t rank, double *scale,
                              ln_error *err) {
    double alpha = c->alpha;
    LN_TRY(find_pattern(c, &c->alpha_pattern, full, &alpha, err));
    if (c->layout == LN_ADAPTER_GGUF && alpha == 0) alpha = (double)rank; /* as llama.cpp has it */
    *scale =
        c->layout == LN_ADAPTER_MLX_LM ? c->scale : alpha / (c->rslora ? sqrt((double)rank) : (double)rank);
    if (isfinite(*scale)) return LN_OK;
    return refuse(c, LN_EINVALID, "scale", NULL, "expected a finite scale", err);
}
