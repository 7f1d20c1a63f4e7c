/* linnet classify: the likeliest of some labels, or the next token, for each of many inputs.
 *
 * A result is written as soon as all inputs before it have theirs; an input that could not be read or encoded
 * gets its error in its place. Logits are streamed to their file, a row of NaN for an input that failed, so
 * that row i belongs to input i. */
#include "class_inputs.h"

#include "../base/elementary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* How often an answer was given to inputs of one label. */
typedef struct confusion {
    const char *gold; /* borrowed from the inputs */
    size_t gold_bytes;
    char *answer; /* owned */
    size_t answer_bytes;
    int64_t count;
} confusion;

typedef struct job {
    const args *a;
    class_inputs in;
    size_t *where; /* [prompts] the input of each prompt of the call */
    size_t next;   /* inputs below it are written */
    uint64_t n_failed;
    size_t first_failed;
    char why[1024]; /* the first input that failed */
    confusion *table;
    size_t n_table, cap_table;
    int64_t n_gold, n_right; /* classified inputs that have a label; those that got it */
    ln_out file;
    bool writing, wants_logits; /* this process writes them to a file; a rank of several does */
    int64_t n_vocab;
} job;

/* ---- accuracy ---- */

static bool same(const char *a, size_t n, const char *b, size_t m) {
    return n == m && (n == 0 || memcmp(a, b, n) == 0);
}

static ln_status count_answer(job *j, const class_input *one, const char *answer, size_t bytes,
                              ln_error *err) {
    if (!one->gold) return LN_OK;
    j->n_gold++;
    j->n_right += same(one->gold, one->gold_bytes, answer, bytes);
    for (size_t i = 0; i < j->n_table; i++) {
        confusion *c = &j->table[i];
        if (!same(c->gold, c->gold_bytes, one->gold, one->gold_bytes) ||
            !same(c->answer, c->answer_bytes, answer, bytes))
            continue;
        c->count++;
        return LN_OK;
    }
    void *p = j->table;
    LN_TRY(ln_grow(&p, &j->cap_table, j->n_table + 1, sizeof *j->table, err));
    j->table = p;
    char *copy = ln_strndup(answer, bytes);
    if (!copy) return LN_OOM(err, "the confusion table");
    j->table[j->n_table++] = (confusion){one->gold, one->gold_bytes, copy, bytes, 1};
    return LN_OK;
}

static void put_count(ln_str *s, const char *key, size_t bytes) {
    if (s->len > 0 && s->data[s->len - 1] != '{') ln_str_add(s, ",", 1);
    ln_str_json(s, key, bytes);
    ln_str_add(s, ":", 1);
}

/* Appends the answers to one label, and marks their rows of the table as done. */
static void put_answers(job *j, size_t first, ln_str *s) {
    const confusion *label = &j->table[first];
    put_count(s, label->gold, label->gold_bytes);
    ln_str_add(s, "{", 1);
    for (size_t i = first; i < j->n_table; i++) {
        confusion *c = &j->table[i];
        if (c->count == 0 || !same(c->gold, c->gold_bytes, label->gold, label->gold_bytes)) continue;
        put_count(s, c->answer, c->answer_bytes);
        ln_str_addf(s, "%lld", (long long)c->count);
        c->count = 0;
    }
    ln_str_add(s, "}", 1);
}

/* Prints {"n","accuracy","confusion"}: with --json the last line of stdout, else on stderr. */
static ln_status print_summary(job *j, ln_error *err) {
    ln_str s = {0};
    if (!j->in.has_gold) return LN_OK;
    ln_str_add(&s, "{", 1);
    put_int(&s, "n", j->n_gold);
    put_real(&s, "accuracy", j->n_gold > 0 ? (double)j->n_right / (double)j->n_gold : (double)NAN);
    put_key(&s, "confusion");
    ln_str_add(&s, "{", 1);
    for (size_t i = 0; i < j->n_table; i++)
        if (j->table[i].count > 0) put_answers(j, i, &s);
    ln_str_adds(&s, "}}\n");
    if (has(j->a, F_JSON)) return out_str(&s, err);
    progress_wipe();
    if (!s.failed) (void)fwrite(s.data, 1, s.len, stderr);
    ln_str_free(&s);
    return LN_OK;
}

/* ---- results ---- */

static ln_status write_logits(job *j, const float *logits, ln_error *err) {
    if (!j->writing) return LN_OK;
    if (logits) return ln_out_write(&j->file, logits, (size_t)j->n_vocab * sizeof *logits, err);
    float none[1024];
    for (size_t i = 0; i < LN_COUNT(none); i++) none[i] = NAN;
    for (int64_t left = j->n_vocab; left > 0; left -= (int64_t)LN_COUNT(none))
        LN_TRY(ln_out_write(&j->file, none, (size_t)LN_MIN(left, (int64_t)LN_COUNT(none)) * sizeof *none,
                            err));
    return LN_OK;
}

static ln_status write_failure(job *j, size_t index, const char *why, ln_error *err) {
    ln_str s = {0}, words = {0};
    advice_add(&words, why);
    if (words.failed) {
        ln_str_free(&words);
        return LN_OOM(err, "an answer");
    }
    if (j->n_failed++ == 0) {
        j->first_failed = index;
        (void)snprintf(j->why, sizeof j->why, "%s", why);
    }
    ln_str_add(&s, "{", 1);
    put_uint(&s, "index", index);
    put_key(&s, "error");
    ln_str_json(&s, words.data ? words.data : "", words.len);
    ln_str_adds(&s, "}\n");
    ln_str_free(&words);
    ln_status st = write_logits(j, NULL, err);
    if (st == LN_OK) return out_str(&s, err);
    ln_str_free(&s);
    return st;
}

/* Writes the errors of the inputs before `end`, none of which was a prompt of the call. */
static ln_status failures_before(job *j, size_t end, ln_error *err) {
    for (; j->next < end; j->next++) LN_TRY(write_failure(j, j->next, j->in.v[j->next].error, err));
    return LN_OK;
}

/* Appends a text with newlines, tabs and backslashes escaped, so that it is one column of a line. */
static void add_column(ln_str *s, const char *text, size_t bytes) {
    static const char from[] = "\n\t\r\\", to[] = "ntr\\";
    for (size_t i = 0; i < bytes; i++) {
        const char *hit = text[i] ? strchr(from, text[i]) : NULL;
        if (hit) ln_str_add(s, "\\", 1);
        ln_str_add(s, hit ? &to[hit - from] : &text[i], 1);
    }
}

static void add_label(const job *j, const ln_class *c, ln_str *s) {
    const char *label = j->in.labels[c->label];
    if (!has(j->a, F_JSON)) {
        add_column(s, label, strlen(label));
        ln_str_addf(s, "\t%.6f", c->probabilities[c->label]);
        return;
    }
    put_text(s, "label", label);
    put_real(s, "probability", c->probabilities[c->label]);
    put_key(s, "scores");
    ln_str_add(s, "{", 1);
    for (size_t i = 0; i < j->in.n_labels; i++) put_real(s, j->in.labels[i], c->scores[i]);
    ln_str_add(s, "}", 1);
}

static void add_token(const job *j, const ln_class *c, ln_str *s) {
    if (!has(j->a, F_JSON)) {
        add_column(s, c->text, c->text_bytes);
        ln_str_addf(s, "\t%.6f", ln_exp64(c->logprob));
        return;
    }
    put_int(s, "token", c->token);
    put_key(s, "text");
    ln_str_json(s, c->text, c->text_bytes);
    put_real(s, "logprob", c->logprob);
}

static ln_status write_class(job *j, size_t index, const ln_class *c, ln_error *err) {
    const char *answer = c->label >= 0 ? j->in.labels[c->label] : c->text;
    ln_str s = {0};
    LN_TRY(count_answer(j, &j->in.v[index], answer, c->label >= 0 ? strlen(answer) : c->text_bytes, err));
    LN_TRY(write_logits(j, c->logits, err));
    if (has(j->a, F_JSON)) {
        ln_str_add(&s, "{", 1);
        put_uint(&s, "index", index);
    }
    if (c->label >= 0) add_label(j, c, &s);
    else add_token(j, c, &s);
    ln_str_adds(&s, has(j->a, F_JSON) ? "}\n" : "\n");
    return out_str(&s, err);
}

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    job *j = user;
    const size_t index = j->where[c->index];
    LN_TRY(failures_before(j, index, err));
    j->next = index + 1;
    if (c->status != LN_OK) LN_TRY(write_failure(j, index, c->error, err));
    else LN_TRY(write_class(j, index, c, err));
    return out_closed() ? LN_ECANCELLED : LN_OK;
}

/* ---- the call ---- */

/* The sampling of --next-token: greedy, unless flags say otherwise; nothing of generation_config.json. */
static ln_sampling next_token_sampling(const args *a) {
    ln_sampling how = {.size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .n_max = 1};
    sampling_change(a, &how);
    return how;
}

/* The prompt of an input: its ids or, for a backend that encodes texts itself, its text. */
static ln_prompt prompt_for(const args *a, const class_input *one) {
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = one->ids, .n_ids = one->n_ids};
    if (one->ids) return p;
    p = prompt_of(a, &(input){0});
    p.text = one->text;
    p.text_bytes = one->bytes;
    return p;
}

/* Classifies on the engine or, if that is NULL, on the model of a backend. */
static ln_status classify(job *j, ln_engine *engine, ln_backend_model *other, ln_metrics *m, ln_error *err) {
    ln_status st = LN_OK;
    size_t n = 0;
    ln_classify_options opt = ln_classify_options_default();
    ln_sampling how = next_token_sampling(j->a);
    ln_prompt *prompts = ln_zalloc(j->in.n + 1, sizeof *prompts);
    j->where = ln_zalloc(j->in.n + 1, sizeof *j->where);
    if (!prompts || !j->where) LN_GO(LN_OOM(err, "the prompts"));
    for (size_t i = 0; i < j->in.n; i++) {
        if (j->in.v[i].error) continue;
        prompts[n] = prompt_for(j->a, &j->in.v[i]);
        j->where[n++] = i;
    }
    opt.labels = j->in.labels;
    opt.n_labels = j->in.n_labels;
    opt.normalize = j->a->flag[F_NORMALIZE].i == 1 ? LN_NORMALIZE_TOKENS : LN_NORMALIZE_SUM;
    opt.sampling = &how;
    opt.want_logits = j->wants_logits;
    signals_working(engine);
    signals_working_on(other);
    st = engine ? ln_classify(engine, prompts, n, &opt, on_class, j, m, err)
                : ln_backend_classify(other, prompts, n, &opt, on_class, j, m, err);
    signals_working(NULL);
    signals_working_on(NULL);
    if (st == LN_OK && !out_closed() && !signals_seen()) st = failures_before(j, j->in.n, err);
out:
    ln_free(prompts);
    return st;
}

/* LN_EINVALID when inputs failed, with the first one's reason. */
static ln_status verdict(const job *j, ln_error *err) {
    char more[60] = "";
    if (j->n_failed == 0) return LN_OK;
    if (j->n_failed > 1)
        (void)snprintf(more, sizeof more, " (and %llu more inputs)", (unsigned long long)j->n_failed - 1);
    return ln_fail(err, LN_EINVALID, "%s: input %zu: %s%s", j->in.name, j->first_failed, j->why, more);
}

static ln_status begin_logits(job *j, ln_error *err) {
    tensor_head h = {.name = "logits", .shape = {(int64_t)j->in.n, j->n_vocab}, .n_dims = 2};
    return j->writing ? tensors_begin(&j->file, &h, 1, err) : LN_OK;
}

static ln_status finish(job *j, const ln_metrics *m, ln_error *err) {
    if (signals_seen() || out_closed()) return LN_OK;
    LN_TRY(print_summary(j, err));
    if (j->writing) LN_TRY(ln_out_commit(&j->file, err));
    if (has(j->a, F_STATS)) stats_print(m);
    return verdict(j, err);
}

static void job_free(job *j) {
    for (size_t i = 0; i < j->n_table; i++) ln_free(j->table[i].answer);
    ln_free(j->table);
    ln_free(j->where);
    signals_file(NULL);
    if (j->writing) ln_out_abort(&j->file);
    class_inputs_free(&j->in);
    ln_free(j);
}

/* Opens the model, and encodes the inputs if the model does that. */
static ln_status open_model(job *j, ln_model **model, ln_engine **engine, ln_backend_model **other,
                            ln_options *opt, ln_info *info, ln_error *err) {
    const args *a = j->a;
    if (other_backend(a)) {
        LN_TRY(backend_open(a, a->model, other, err));
        LN_TRY(ln_backend_info(*other, info, err));
        j->n_vocab = info->vocab_size;
        return class_inputs_fill(&j->in, a, err);
    }
    LN_TRY(ln_model_open(model, a->model, opt, err));
    LN_TRY(check_texts(*model, err));
    LN_TRY(ln_model_info(*model, info, err));
    j->n_vocab = info->vocab_size;
    LN_TRY(class_inputs_encode(&j->in, a, *model, err));
    LN_TRY(class_size(&j->in, a, info, opt, err));
    return ln_engine_open(engine, *model, opt, err);
}

ln_status cmd_classify(const args *a, ln_error *err) {
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_backend_model *other = NULL;
    ln_options opt;
    ln_metrics m = {0};
    ln_info *info = ln_zalloc(1, sizeof *info);
    job *j = ln_zalloc(1, sizeof *j);
    ln_status st = LN_OK;
    if (!info || !j) {
        ln_free(info);
        ln_free(j);
        return LN_OOM(err, "the inputs");
    }
    info->size = sizeof *info;
    j->a = a;
    if (!other_backend(a)) LN_GO(options_of(a, &opt, err));
    LN_GO(class_labels_read(&j->in, a, err));
    j->wants_logits = has(a, F_LOGITS);
    if (j->wants_logits && ranks_first()) { /* check that the file can be written before anything is loaded */
        LN_GO(ln_out_open(&j->file, a->flag[F_LOGITS].text, has(a, F_FORCE), err));
        j->writing = true;
        signals_file(j->file.tmp);
    }
    LN_GO(class_inputs_read(&j->in, a, err));
    LN_GO(open_model(j, &model, &engine, &other, &opt, info, err));
    LN_GO(begin_logits(j, err));
    LN_GO(classify(j, engine, other, &m, err));
    LN_GO(finish(j, &m, err));
out:
    ln_backend_close(&other);
    ln_engine_close(&engine);
    ln_model_close(&model);
    job_free(j);
    ln_free(info);
    return st;
}
