/* What an engine needs for a file of requests: all of it is read, rendered and tokenised before the engine
 * is opened, so that the context, the pool of keys and values and the memory for texts are those of the
 * requests, and a file that was written for other models is rejected before anything is loaded. */
#include "../args/args.h"
#include "../base/text_memory.h"
#include "batch.h"

#include <string.h>

enum {
    OPEN_TOKENS = 2048,    /* of an answer without a limit */
    OPEN_POSITIONS = 4096, /* at least, of a request without a limit: the default of linnet run */
    STEP_ROWS = 512,       /* a step takes no more rows than a context has positions */
    PAGE = 64,             /* positions of a KV page */
    TEXT_LEAST = 1 << 20,
    TEXT_TIMES = 4 /* a line, the tree of its body, the unescaped text, what is rendered */
};

/* What the requests need. */
typedef struct needs {
    ln_model *model;
    int64_t n_ctx;    /* the most that one may have */
    int64_t *largest; /* [most] positions of the largest requests, in descending order */
    size_t n, most;
    size_t line_bytes;
    bool any_known;       /* a body names a model that is known, or none */
    size_t first_unknown; /* the first line whose model is not; SIZE_MAX: there is none */
    wire_error unknown;
} needs;

static void note_need(needs *a, int64_t positions) {
    size_t at = a->n;
    while (at > 0 && a->largest[at - 1] < positions) at--;
    if (at == a->most) return;
    if (a->n < a->most) a->n++;
    memmove(a->largest + at + 1, a->largest + at, (a->n - at - 1) * sizeof *a->largest);
    a->largest[at] = positions;
}

/* Positions of a prompt and its answer, whose last token takes none. */
static int64_t positions_of(const needs *a, int64_t n_prompt, int64_t n_max) {
    const bool open = n_max >= INT32_MAX;
    const int64_t n = open ? LN_MAX(n_prompt + OPEN_TOKENS, (int64_t)OPEN_POSITIONS) : n_prompt + n_max - 1;
    return LN_MIN(LN_MAX(n, n_prompt), a->n_ctx);
}

/* Measures the prompts of a body. A prompt that cannot be encoded gets its error when it is answered. */
static ln_status measure_body(needs *a, const wire_request *q, ln_error *err) {
    for (size_t i = 0; i < q->n_prompts; i++) {
        size_t n = q->prompts[i].n_ids;
        ln_error why = {0};
        const ln_status st =
            q->prompts[i].ids ? LN_OK : ln_prompt_ids(a->model, &q->prompts[i], NULL, 0, &n, &why);
        if (st == LN_ECHANGED || st == LN_EIO) return ln_fail(err, st, "%s", why.message);
        if (st != LN_OK || (int64_t)n > a->n_ctx) continue;
        for (int k = 0; k < q->n && (size_t)k < a->most; k++)
            note_need(a, positions_of(a, (int64_t)n, q->sampling.n_max));
    }
    return LN_OK;
}

static ln_status measure_line(needs *a, const wire_target *target, const batch_input *in, size_t i,
                              ln_error *err) {
    char *text = NULL;
    size_t bytes;
    batch_line line = {0};
    wire_request q = {0};
    wire_error why = {0};
    wire_kind kind;
    ln_status st;
    LN_GO(batch_input_line(in, i, &text, &bytes, err));
    LN_GO(batch_line_read(&line, text, bytes, err));
    a->line_bytes = LN_MAX(a->line_bytes, bytes);
    if (!batch_line_kind(&line, &kind, &why)) goto out;
    const ln_status read = wire_request_open(&q, target, kind, line.body, line.body_bytes, &why);
    if (read == LN_OK) {
        a->any_known = true;
        st = measure_body(a, &q, err);
    } else if (why.code && strcmp(why.code, "model_not_found") == 0 && a->first_unknown == SIZE_MAX) {
        a->first_unknown = i;
        a->unknown = why;
    }
out:
    wire_request_close(&q);
    batch_line_free(&line);
    ln_free(text);
    return st;
}

/* A line that lacks memory has none here and none when it is answered, which is where it is said. */
static ln_status measure_all(needs *a, const wire_target *target, const batch_input *in, ln_error *err) {
    for (size_t i = 0; i < in->n; i++) {
        ln_text_work work;
        ln_text_begin(&work);
        ln_status st = measure_line(a, target, in, i, err);
        st = ln_text_end(&work, st, err);
        if (st == LN_EMEMORY) continue;
        if (st != LN_OK) return st;
    }
    return LN_OK;
}

static ln_status check_names(const needs *a, const batch_input *in, ln_error *err) {
    char shown[LN_PATH_TEXT];
    uint64_t number;
    if (a->any_known || a->first_unknown == SIZE_MAX) return LN_OK;
    LN_TRY(batch_input_number(in, a->first_unknown, &number, err));
    return ln_fail(err, LN_EINVALID,
                   "%s: line %llu: %s; ln_batch_options.model_name or ln_batch_options.aliases accepts the "
                   "name "
                   "(\"*\": any name)",
                   ln_path_text(shown, in->path), (unsigned long long)number, a->unknown.error.message);
}

static void set_options(const needs *a, ln_options *o) {
    int64_t sum = 0;
    const int64_t rows = LN_MAX((int64_t)STEP_ROWS, a->n > 0 ? a->largest[0] : 0);
    if (o->n_ctx == 0) o->n_ctx = LN_MIN(rows, a->n_ctx);
    for (size_t i = 0; i < a->n; i++) sum += (LN_MIN(a->largest[i], o->n_ctx) + PAGE - 1) / PAGE * PAGE;
    if (o->pool_positions == 0) o->pool_positions = LN_MAX(sum, o->n_ctx);
    if (o->text_bytes == 0) o->text_bytes = TEXT_LEAST + TEXT_TIMES * (uint64_t)a->line_bytes;
}

static ln_status measure(ln_model *model, const char *path, const ln_batch_options *opt, ln_options *o,
                         ln_error *err) {
    ln_info info = {.size = sizeof info};
    wire_target target = {.sampling.size = sizeof target.sampling};
    batch_input in = {.fd = -1};
    needs a = {.model = model, .most = (size_t)LN_MAX(o->n_parallel, 1), .first_unknown = SIZE_MAX};
    ln_status st;
    LN_TRY(ln_model_info(model, &info, err));
    target.n_vocab = info.vocab_size;
    target.has_template = info.has_template;
    target.tool_format = info.tool_format;
    LN_TRY(ln_sampling_default(model, &target.sampling, err));
    a.n_ctx = o->n_ctx > 0 ? LN_MIN(o->n_ctx, info.n_ctx_max) : info.n_ctx_max;
    a.largest = ln_zalloc(a.most + 1, sizeof *a.largest);
    if (!a.largest) return LN_OOM(err, "the lengths of requests");
    LN_GO(batch_name_models(&target, opt->model_name ? opt->model_name : "model", info.path, opt, err));
    LN_GO(batch_input_open(&in, path, err));
    LN_GO(measure_all(&a, &target, &in, err));
    LN_GO(check_names(&a, &in, err));
    set_options(&a, o);
out:
    batch_input_close(&in);
    ln_free((void *)(uintptr_t)target.names);
    ln_free(a.largest);
    return st;
}

ln_status ln_batch_size(ln_model *model, const char *in, const ln_batch_options *opt, ln_options *options,
                        ln_error *err) {
    ln_batch_options how = ln_batch_options_default();
    ln_options all = ln_options_default();
    ARG(in && options, "in and options must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&how, sizeof how, opt, "ln_batch_options", err));
    LN_TRY(ln_api_options(options, &all, err));
    LN_TRY(measure(model, in, &how, &all, err));
    ln_api_give_sized(options, sizeof all, &all);
    return LN_OK;
}
