/* Fuzzes the reader of request bodies, and of the lines of batch files around them. The lowest bit of the
 * first byte chooses the kind of body, the next one a line with a body in it. A body that is accepted has
 * usable prompts, and texts for the chat template that are JSON; its answer, made from a result with
 * log-probabilities, and the chunks of its stream are JSON too. */
#include "fuzz.h"

#include "batch/batch.h"

#include <math.h>

const char *ln_version(void) { return LN_VERSION; } /* of api/, which is not linked */

static const char *const names[] = {"base", "poet"};

static void token(void *user, int32_t id, bool *special, ln_str *out) {
    char c = (char)id;
    (void)user;
    *special = id == 300;
    if (id % 7) ln_str_add(out, &c, 1);
    else ln_str_adds(out, " the");
}

static void text_of(void *user, const int32_t *ids, size_t n, ln_str *out) {
    bool special;
    for (size_t i = 0; i < n; i++) token(user, ids[i], &special, out);
}

static const wire_target target = {
    .names = names,
    .n_names = 2,
    .n_vocab = 400,
    .has_template = true,
    .sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .n_max = -1},
    .token = token,
    .text = text_of};

static void fuzz_open(void) {}

static ln_status must_be_json(const char *text, size_t bytes, ln_error *err) {
    json_t *root = NULL;
    ln_status st = ln_json_load(&root, "written", text, bytes, err);
    must(st == LN_OK || st == LN_EMEMORY);
    json_decref(root);
    return st;
}

static ln_status check_prompt(const ln_prompt *p, ln_error *err) {
    must(!!p->text + !!p->ids + !!p->messages + !!p->request == 1);
    for (size_t i = 0; i < p->n_ids; i++) must(p->ids[i] >= 0 && p->ids[i] < target.n_vocab);
    for (size_t i = 0; i < p->n_messages; i++)
        must(p->messages[i].role && p->messages[i].content &&
             ln_utf8_valid(p->messages[i].content, p->messages[i].content_bytes) ==
                 p->messages[i].content_bytes);
    if (p->request) LN_TRY(must_be_json(p->request, p->request_bytes, err));
    return p->template_args ? must_be_json(p->template_args, p->template_args_bytes, err) : LN_OK;
}

static void check_sampling(const ln_sampling *s) {
    must(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1 && s->top_k >= 0);
    must(s->min_p >= 0 && s->min_p <= 1 && s->repeat_penalty > 0 && s->repeat_last >= -1);
    must(fabs(s->presence_penalty) <= 2 && fabs(s->frequency_penalty) <= 2 && s->n_max >= 0);
    must(s->n_stop <= 16);
    for (size_t i = 0; i < s->n_stop; i++) must(s->stop[i][0] && strlen(s->stop[i]) <= 1024);
    for (size_t i = 0; i < s->n_bias; i++)
        must(s->bias[i].id >= 0 && s->bias[i].id < target.n_vocab && isfinite(s->bias[i].bias));
    for (size_t i = 0; i < s->n_stop_ids; i++) must(s->stop_ids[i] >= 0 && s->stop_ids[i] < target.n_vocab);
}

/* Writes a stream of one choice: its beginning, its tokens in two parts, its end, and the usage. */
static ln_status write_stream(const wire_request *q, const wire_answer *a, const ln_result *r,
                              ln_error *err) {
    const size_t n = r[0].n_ids;
    wire_place place = {0};
    const wire_delta parts[] = {
        {.role = true},
        {.text = r[0].text, .text_bytes = r[0].text_bytes, .tokens = r, .to = n / 2, .place = &place},
        {.reasoning = r[0].text, .reasoning_bytes = r[0].text_bytes},
        {.index = 1, .tokens = r, .from = n / 2, .to = n, .place = &place, .finish = "stop", .timings = r}};
    for (size_t i = 0; i <= LN_COUNT(parts); i++) {
        ln_str s = {0};
        if (i < LN_COUNT(parts)) wire_put_delta(&s, q, a, &parts[i]);
        else wire_put_usage_delta(&s, q, a, r);
        const ln_status st = s.failed ? LN_OOM(err, "a chunk") : must_be_json(s.data, s.len, err);
        ln_str_free(&s);
        LN_TRY(st);
    }
    return LN_OK;
}

/* Writes the answer with the same result for each choice. */
static ln_status write_answer(const wire_request *q, ln_error *err) {
    static int32_t ids[] = {300, 'a', 200, 7};
    static double logprobs[] = {-1, -2, -1e30, 0};
    static ln_top top[4 * WIRE_MOST_LOGPROBS];
    char text[] = "a\xc3\xa9\"\n";
    ln_str s = {0};
    wire_answer a = wire_answer_of(q);
    a.timings = q->n % 2;
    ln_result *r = ln_zalloc(wire_n_choices(q), sizeof *r);
    if (!r) return LN_OOM(err, "results");
    for (size_t i = 0; i < LN_COUNT(top); i++) top[i] = (ln_top){(int32_t)i * 5 % 400, -(double)i};
    for (size_t i = 0; i < wire_n_choices(q) && i < 20; i++) {
        r[i] = (ln_result){.text = text, .text_bytes = sizeof text - 1, .finish = (ln_finish)(i % 3)};
        r[i].ids = r[i].prompt_ids = ids, r[i].n_ids = r[i].n_prompt_ids = 4;
        r[i].logprobs = r[i].prompt_logprobs = logprobs, r[i].top = r[i].prompt_top = top;
        r[i].n_top = q->n_logprobs > 0 ? (size_t)q->n_logprobs : 0;
        r[i].reasoning = text, r[i].reasoning_bytes = i % 2;
    }
    for (size_t i = 20; i < wire_n_choices(q); i++) r[i].text = text; /* many choices would only take time */
    wire_put_answer(&s, q, &a, r);
    ln_status st = s.failed ? LN_OOM(err, "an answer") : must_be_json(s.data, s.len, err);
    ln_str_free(&s);
    if (st == LN_OK) st = write_stream(q, &a, r, err);
    ln_free(r);
    return st;
}

static ln_status one_body(wire_kind kind, const char *text, size_t bytes, ln_error *err) {
    wire_request q;
    wire_error why;
    ln_prompt p;
    ln_sampling how;
    ln_request_options opt = {0};
    ln_status st = wire_request_open(&q, &target, kind, text, bytes, &why);
    if (st != LN_OK) {
        ln_str s = {0};
        must(why.http == 400 || why.http == 404 || (why.http == 503 && st == LN_EMEMORY));
        wire_put_error(&s, &why);
        ln_error none;
        if (!s.failed) (void)must_be_json(s.data, s.len, &none);
        ln_str_free(&s);
        *err = why.error;
    } else {
        must(wire_n_choices(&q) > 0 && wire_n_choices(&q) <= WIRE_MOST_CHOICES && q.model < 2);
        must(q.n_logprobs >= -1 && q.n_logprobs <= WIRE_MOST_LOGPROBS);
        wire_choice(&q, wire_n_choices(&q) - 1, &p, &how, &opt);
        check_sampling(&how);
        for (size_t i = 0; st == LN_OK && i < q.n_prompts; i++) st = check_prompt(&q.prompts[i], err);
        if (st == LN_OK) st = write_answer(&q, err);
    }
    wire_request_close(&q);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    unsigned how = bytes ? data[0] : 0;
    const char *text = (const char *)data + (bytes > 0);
    bytes -= bytes > 0;
    if (!(how & 2)) return one_body((wire_kind)(how & 1), text, bytes, err);
    batch_line line;
    LN_TRY(batch_line_read(&line, text, bytes, err));
    must(line.custom_id.len > 0 && line.body >= text && line.body + line.body_bytes <= text + bytes);
    ln_status st = one_body((wire_kind)(how & 1), line.body, line.body_bytes, err);
    batch_line_free(&line);
    return st;
}
