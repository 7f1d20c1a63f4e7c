/* Reads the labels and inputs of linnet classify and encodes them.
 *
 * Everything is read and encoded before the engine is opened, because the longest prompts decide how much
 * memory it takes. An input that cannot be read or encoded keeps its place and its error; the others go on.
 */
#include "class_inputs.h"

#include "../base/json.h"

#include <stdlib.h>
#include <string.h>

enum {
    FILE_MOST = 1 << 30,
    LABELS_FILE_MOST = 16 << 20,
    PARALLEL_MOST = 64, /* sequences at once by default */
    USUAL_TOKENS = 128, /* of a prompt, if the inputs are not known yet */
    CHUNK = 512,
    PAGE = 64, /* the library's defaults: rows a step, positions of a KV page */
};
static const uint64_t POOL_MOST = 1u << 30; /* bytes of the KV pool by default */

void class_inputs_free(class_inputs *in) {
    ln_arena_free(&in->arena);
    ln_free(in->data);
    ln_free(in->v);
    ln_free(in->labels);
    ln_account_close(&in->texts);
    *in = (class_inputs){0};
}

/* Copies a text into the arena. */
static ln_status keep(class_inputs *in, const char *text, size_t bytes, const char **out, ln_error *err) {
    *out = ln_arena_strndup(&in->arena, text, bytes);
    return *out ? LN_OK : LN_OOM(err, "the inputs");
}

/* The next line of text[*at .. bytes), without its newline; false at the end. */
static bool next_line(const char *text, size_t bytes, size_t *at, const char **line, size_t *n) {
    if (*at >= bytes) return false;
    const char *end = memchr(text + *at, '\n', bytes - *at);
    *line = text + *at;
    *n = end ? (size_t)(end - *line) : bytes - *at;
    *at += *n + (end != NULL);
    if (*n > 0 && (*line)[*n - 1] == '\r') --*n;
    return true;
}

/* ---- labels ---- */

static ln_status add_label(class_inputs *in, ln_status code, const char *text, size_t bytes, ln_error *err) {
    char shown[80];
    (void)ln_excerpt(shown, text, bytes);
    if (bytes == 0)
        return ln_fail(err, code, "--labels: label %zu is empty; expected a text", in->n_labels + 1);
    if (memchr(text, '\0', bytes) || ln_utf8_valid(text, bytes) < bytes)
        return ln_fail(err, LN_EINVALID, "--labels: label %zu: expected UTF-8 without NUL, found '%s'",
                       in->n_labels + 1, shown);
    for (size_t i = 0; i < in->n_labels; i++)
        if (strlen(in->labels[i]) == bytes && memcmp(in->labels[i], text, bytes) == 0)
            return ln_fail(err, code, "--labels: '%s' occurs twice, as label %zu and label %zu", shown, i + 1,
                           in->n_labels + 1);
    void *p = in->labels;
    LN_TRY(ln_grow(&p, &in->cap_labels, in->n_labels + 1, sizeof *in->labels, err));
    in->labels = p;
    LN_TRY(keep(in, text, bytes, &in->labels[in->n_labels], err));
    in->n_labels++;
    return LN_OK;
}

/* --labels @FILE: one a line. */
static ln_status labels_of_file(class_inputs *in, const args *a, const char *path, ln_error *err) {
    char *data, shown[LN_PATH_TEXT];
    size_t bytes, at = 0, n;
    const char *line;
    ln_status st = LN_OK;
    if (is_stdin(path) && a->verb == VERB_CLASSIFY && is_stdin(file_named(a)))
        return ln_fail(err, LN_EUSAGE, "--labels @%s: stdin brings the inputs; name a file for one of them",
                       path);
    LN_TRY(source_read(path, "the labels", LABELS_FILE_MOST, &data, &bytes, err));
    while (st == LN_OK && next_line(data, bytes, &at, &line, &n))
        st = add_label(in, LN_EINVALID, line, n, err);
    if (st == LN_OK && in->n_labels == 0)
        st = ln_fail(err, LN_EINVALID, "%s: expected labels, one a line, found none",
                     ln_path_text(shown, path));
    ln_free(data);
    return st;
}

ln_status class_labels_read(class_inputs *in, const args *a, ln_error *err) {
    if (!has(a, F_LABELS)) return LN_OK;
    const char *at = a->flag[F_LABELS].text;
    if (at[0] == '@') return labels_of_file(in, a, at + 1, err);
    for (;; at++) {
        size_t n = strcspn(at, ",");
        LN_TRY(add_label(in, LN_EUSAGE, at, n, err));
        at += n;
        if (!*at) return LN_OK;
    }
}

/* ---- inputs ---- */

static ln_status add_input(class_inputs *in, const class_input *one, ln_error *err) {
    void *p = in->v;
    LN_TRY(ln_grow(&p, &in->cap, in->n + 1, sizeof *in->v, err));
    in->v = p;
    in->v[in->n++] = *one;
    in->has_gold = in->has_gold || one->gold;
    return LN_OK;
}

/* Reads the label of an input: a text, or an integer, whose digits are the text. */
static ln_status read_gold(class_inputs *in, const json_t *label, class_input *out, ln_error *err) {
    char found[80];
    ln_str digits = {0};
    if (!label || json_is_null(label)) return LN_OK;
    if (json_is_string(label)) {
        out->gold_bytes = json_string_length(label);
        return keep(in, json_string_value(label), out->gold_bytes, &out->gold, err);
    }
    if (!json_is_integer(label))
        return ln_fail(err, LN_EINVALID, "\"label\": expected a text or an integer, found %s",
                       ln_json_text(label, found));
    ln_str_addf(&digits, "%lld", (long long)json_integer_value(label));
    ln_status st =
        digits.failed ? LN_OOM(err, "a label") : keep(in, digits.data, digits.len, &out->gold, err);
    out->gold_bytes = digits.len;
    ln_str_free(&digits);
    return st;
}

static ln_status keep_ids(class_inputs *in, const int32_t *ids, size_t n, class_input *out, ln_error *err) {
    int32_t *copy = ln_arena_alloc(&in->arena, (n + 1) * sizeof *copy);
    if (!copy) return LN_OOM(err, "token ids");
    if (n > 0) memcpy(copy, ids, n * sizeof *copy);
    out->ids = copy;
    out->n_ids = n;
    return LN_OK;
}

/* Reads {"text"|"ids", "label"?}; other members are ignored. */
static ln_status read_object(class_inputs *in, const args *a, const json_t *root, class_input *out,
                             ln_error *err) {
    static const struct {
        flag flag;
        const char *name;
    } of_text[] = {{F_PROMPT, "--prompt"},
                   {F_SYSTEM, "--system"},
                   {F_CHAT, "--chat"},
                   {F_CHAT_TEMPLATE, "--chat-template"},
                   {F_THINK, "--think"},
                   {F_NO_THINK, "--no-think"},
                   {F_TEMPLATE_ARGS, "--chat-template-kwargs"}};
    const json_t *text = json_object_get(root, "text"), *list = json_object_get(root, "ids");
    LN_TRY(read_gold(in, json_object_get(root, "label"), out, err));
    if (json_is_string(text) && !list) {
        out->bytes = json_string_length(text);
        return keep(in, json_string_value(text), out->bytes, &out->text, err);
    }
    if (!json_is_array(list) || text)
        return ln_fail(err, LN_EINVALID,
                       "expected an object with \"text\", a string, or with \"ids\", an array");
    for (size_t i = 0; i < LN_COUNT(of_text); i++)
        if (has(a, of_text[i].flag))
            return ln_fail(err, LN_EINVALID,
                           "\"ids\" are used as they are, and %s is for a \"text\"; give one",
                           of_text[i].name);
    int32_t *ids = NULL;
    size_t n = 0;
    ln_status st = ids_of_json(list, &ids, &n, err);
    if (st == LN_OK) st = keep_ids(in, ids, n, out, err);
    ln_free(ids);
    return st;
}

static ln_status read_json_line(class_inputs *in, const args *a, const char *line, size_t n, class_input *out,
                                ln_error *err) {
    json_t *root = NULL;
    LN_TRY(ln_json_load(&root, "JSON", line, n, err));
    ln_status st = read_object(in, a, root, out, err);
    json_decref(root);
    return st;
}

static ln_status read_text_line(const char *line, size_t n, class_input *out, ln_error *err) {
    char shown[80];
    size_t good = ln_utf8_valid(line, n);
    out->text = line;
    out->bytes = n;
    if (good == n) return LN_OK;
    return ln_fail(err, LN_EINVALID, "byte %zu: expected UTF-8, found '%s'", good,
                   ln_excerpt(shown, line + good, LN_MIN(n - good, (size_t)4)));
}

/* Whether an error is that of one input, so that the others can go on. */
static bool is_of_input(ln_status st) {
    return st == LN_EINVALID || st == LN_EUSAGE || st == LN_EUNSUPPORTED;
}

static bool is_blank(const char *line, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t') return false;
    return true;
}

static ln_status read_inputs(class_inputs *in, const args *a, ln_error *err) {
    size_t bytes, at = 0, n;
    const char *line;
    bool json = has(a, F_JSONL);
    LN_TRY(file_read(a, json ? "{\"text\"} or {\"ids\"} in each line" : "a text in each line", FILE_MOST,
                     &in->name, &in->data, &bytes, err));
    while (next_line(in->data, bytes, &at, &line, &n)) {
        class_input one = {0};
        ln_error why = {0};
        if (json && is_blank(line, n)) continue;
        ln_status st =
            json ? read_json_line(in, a, line, n, &one, &why) : read_text_line(line, n, &one, &why);
        if (st != LN_OK && !is_of_input(st)) return ln_fail(err, st, "%s", why.message);
        if (st != LN_OK) LN_TRY(keep(in, why.message, strlen(why.message), &one.error, err));
        LN_TRY(add_input(in, &one, err));
    }
    if (json) { /* all of it was copied */
        ln_free(in->data);
        in->data = NULL;
    }
    return LN_OK;
}

/* Runs a part of the reading inside the account of the inputs. */
typedef ln_status part_fn(class_inputs *in, const args *a, const ln_model *model, ln_error *err);
static ln_status in_account(part_fn *fn, class_inputs *in, const args *a, const ln_model *model,
                            ln_error *err) {
    ln_account *outer = ln_account_enter(&in->texts);
    const ln_status st = fn(in, a, model, err);
    ln_account_leave(outer);
    return ln_account_error(&in->texts, st, err);
}

static ln_status read_part(class_inputs *in, const args *a, const ln_model *model, ln_error *err) {
    (void)model;
    return read_inputs(in, a, err);
}

ln_status class_inputs_read(class_inputs *in, const args *a, ln_error *err) {
    return in_account(read_part, in, a, NULL, err);
}

/* ---- token ids ---- */

/* Inserts a text into a template at each {text}. */
static void fill_template(const char *form, const char *text, size_t bytes, ln_str *out) {
    static const char place[] = "{text}";
    for (const char *hit; (hit = strstr(form, place)); form = hit + sizeof place - 1) {
        ln_str_add(out, form, (size_t)(hit - form));
        ln_str_add(out, text, bytes);
    }
    ln_str_adds(out, form);
}

static ln_status encode(class_inputs *in, const args *a, const ln_model *model, class_input *one,
                        ln_error *err) {
    ln_str filled = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    ln_status st = LN_OK;
    ln_prompt p = prompt_of(a, &(input){0});
    p.text = one->text;
    p.text_bytes = one->bytes;
    if (has(a, F_PROMPT)) {
        fill_template(a->flag[F_PROMPT].text, one->text, one->bytes, &filled);
        if (filled.failed) LN_GO(LN_OOM(err, "a prompt"));
        p.text = filled.data;
        p.text_bytes = filled.len;
    }
    LN_GO(prompt_ids(model, &p, &ids, &n, err));
    LN_GO(keep_ids(in, ids, n, one, err));
out:
    ln_free(ids);
    ln_str_free(&filled);
    return st;
}

static ln_status fill(class_inputs *in, const args *a, const ln_model *model, ln_error *err) {
    (void)model;
    for (size_t i = 0; has(a, F_PROMPT) && i < in->n; i++) {
        class_input *one = &in->v[i];
        ln_str filled = {0};
        if (one->error || !one->text) continue;
        fill_template(a->flag[F_PROMPT].text, one->text, one->bytes, &filled);
        ln_status st = filled.failed ? LN_OOM(err, "a prompt") : LN_OK;
        one->bytes = filled.len;
        if (st == LN_OK) st = keep(in, filled.data ? filled.data : "", filled.len, &one->text, err);
        ln_str_free(&filled);
        LN_TRY(st);
    }
    return LN_OK;
}

ln_status class_inputs_fill(class_inputs *in, const args *a, ln_error *err) {
    return in_account(fill, in, a, NULL, err);
}

static ln_status measure_labels(class_inputs *in, const ln_model *model, ln_error *err) {
    for (size_t i = 0; i < in->n_labels; i++) {
        size_t n = 0;
        LN_TRY(ln_tokenize(ln_model_tokenizer(model), in->labels[i], strlen(in->labels[i]), false, NULL, 0,
                           &n, err));
        in->longest_label = LN_MAX(in->longest_label, n);
    }
    return LN_OK;
}

static ln_status encode_all(class_inputs *in, const args *a, const ln_model *model, ln_error *err) {
    class_input probe = {.text = "a",
                         .bytes = 1}; /* flags that no input can follow are an error of the call */
    LN_TRY(encode(in, a, model, &probe, err));
    LN_TRY(measure_labels(in, model, err));
    for (size_t i = 0; i < in->n; i++) {
        class_input *one = &in->v[i];
        ln_error why = {0};
        if (one->error || !one->text) continue;
        ln_status st = encode(in, a, model, one, &why);
        if (st != LN_OK && !is_of_input(st)) return ln_fail(err, st, "%s", why.message);
        if (st != LN_OK) LN_TRY(keep(in, why.message, strlen(why.message), &one->error, err));
    }
    return LN_OK;
}

ln_status class_inputs_encode(class_inputs *in, const args *a, const ln_model *model, ln_error *err) {
    return in_account(encode_all, in, a, model, err);
}

/* ---- memory ---- */

static int by_length(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Bytes of the KV pages of one sequence of n positions; with windows that is an upper bound. */
static uint64_t sequence_bytes(const ln_info *info, const ln_options *opt, int64_t n) {
    const uint64_t blocks = (uint64_t)((n + PAGE - 1) / PAGE),
                   blocks_of_head = ((uint64_t)info->head_dim + 31) / 32;
    const uint64_t block_bytes = opt->kv_type == LN_KV_Q8 ? 33 : info->numerics == LN_FAST ? 64 : 128;
    return blocks * PAGE * 2 * (uint64_t)info->n_layers * (uint64_t)info->n_kv_heads * blocks_of_head *
           block_bytes;
}

/* The n lengths of the prompts with the longest label, in descending order. */
static int64_t *sorted_lengths(const class_inputs *in, size_t *n) {
    int64_t *lengths = ln_zalloc(in->n + 1, sizeof *lengths);
    *n = 0;
    for (size_t i = 0; lengths && i < in->n; i++)
        if (!in->v[i].error) lengths[(*n)++] = (int64_t)(in->v[i].n_ids + in->longest_label);
    if (lengths) qsort(lengths, *n, sizeof *lengths, by_length);
    return lengths;
}

/* As many sequences as fill four steps with prompts of the mean length: a step takes its rows from all of
 * them, and those that finish free their rows only with the next step. */
static int sequences(const int64_t *lengths, size_t n, const class_inputs *in, int64_t chunk) {
    int64_t sum = 0, most = (int64_t)LN_MIN(n * LN_MAX(in->n_labels, 1), (size_t)PARALLEL_MOST);
    for (size_t i = 0; i < n; i++) sum += lengths[i];
    if (n == 0 || sum == 0) return 1;
    int64_t wanted = 4 * chunk * (int64_t)n / sum;
    return (int)LN_MAX(LN_MIN(LN_MAX(wanted, 4), most), 1);
}

ln_status class_size(const class_inputs *in, const args *a, const ln_info *info, ln_options *opt,
                     ln_error *err) {
    const int64_t chunk = opt->n_chunk > 0 ? opt->n_chunk : CHUNK;
    size_t n;
    int64_t usual = USUAL_TOKENS, *known = sorted_lengths(in, &n), *lengths = n > 0 ? known : &usual;
    uint64_t bytes = 0;
    if (!known) return LN_OOM(err, "the lengths of the prompts");
    if (opt->n_parallel == 0) opt->n_parallel = n > 0 ? sequences(lengths, n, in, chunk) : PARALLEL_MOST;
    /* an engine takes no more rows a step than a context has positions */
    if (!has(a, F_CTX)) opt->n_ctx = LN_MIN(LN_MAX(lengths[0], chunk), info->n_ctx_max);
    /* twice: the pages of a prompt stay for its labels while other prompts take theirs */
    for (size_t i = 0; i < (size_t)opt->n_parallel; i++)
        bytes += 2 * sequence_bytes(info, opt, n == 0 ? usual : lengths[LN_MIN(i, n - 1)]);
    if (opt->kv_bytes == 0)
        opt->kv_bytes = LN_MAX(LN_MIN(bytes, POOL_MOST), sequence_bytes(info, opt, opt->n_ctx));
    ln_free(known);
    return LN_OK;
}

ln_status class_plan(const args *a, ln_options *opt, ln_error *err) {
    class_inputs in = {0};
    ln_model *model = NULL;
    ln_info *info = ln_zalloc(1, sizeof *info);
    ln_status st = LN_OK;
    if (!info) return LN_OOM(err, "a model's facts");
    info->size = sizeof *info;
    LN_GO(class_labels_read(&in, a, err));
    if (has(a, F_FILE) || a->argument) LN_GO(class_inputs_read(&in, a, err));
    LN_GO(ln_model_open(&model, a->model, opt, err));
    LN_GO(ln_model_info(model, info, err));
    LN_GO(class_inputs_encode(&in, a, model, err));
    LN_GO(class_size(&in, a, info, opt, err));
out:
    ln_model_close(&model);
    ln_free(info);
    class_inputs_free(&in);
    return st;
}
