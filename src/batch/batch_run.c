/* Runs a file of requests: keeps as many requests open as the engine runs, and a few that wait, so that a
 * sequence which ends is replaced in the next step; writes the answer to a line as soon as all its choices
 * have finished.
 *
 * Rows are the lines that are being answered. A row opens its choices one by one as requests become free, so
 * that a line with many choices takes no more requests than many lines with one. An error that concerns one
 * line becomes its answer. A row that lacks memory waits until another request has ended; one that lacks it
 * alone is left for a later run. Any other error ends the run, and the lines that are not answered stay to
 * do.
 *
 * Of several ranks each has lines of its own (batch_ranks.h), and rank 0 writes the answers of all. */
#include "batch.h"
#include "../base/json_write.h"
#include "../base/xxh64.h"
#include "batch_ranks.h"

#include <string.h>

enum { WAITING = 4, STORED = 4 }; /* requests beyond those that run; lines that a rank has in store */
static const double WAIT_SECONDS = 0.1;

typedef struct batch_row {
    struct batch_row *next;
    ln_account texts; /* the body and what is made of it */
    size_t line;      /* in IN */
    ln_str custom_id;
    wire_request q;
    ln_request **requests; /* [n] NULL: not open, or done */
    ln_result *results;    /* [n] */
    size_t n, n_opened, n_done;
    wire_error why; /* why.http 0: no error */
    bool left;      /* for a later run */
} batch_row;

typedef struct batch {
    ln_engine *engine; /* NULL: `by` answers */
    batch_answer_fn *by;
    void *user;
    const wire_target *target;
    const ln_batch_options *opt;
    ln_batch_report *report;
    batch_input in;
    batch_output out;
    batch_row *rows, **last;
    batch_ranks *ranks; /* NULL: this process is alone */
    bool writes;        /* it is rank 0, or alone */
    bool holds_line;    /* of several ranks: next_line is this rank's and has not begun */
    size_t next_line, n_open, most_open;
    bool full;      /* memory was lacking, and no request has ended since */
    size_t n_left;  /* lines for a later run */
    ln_error first; /* why the first of them was left */
} batch;

/* ---- rows ---- */

static void free_row(batch_row *r) {
    for (size_t k = 0; k < r->n; k++) {
        ln_request_close(&r->requests[k]);
        ln_result_free(&r->results[k]);
    }
    ln_free(r->requests);
    ln_free(r->results);
    ln_str_free(&r->custom_id);
    wire_request_close(&r->q);
    ln_account_close(&r->texts);
    ln_free(r);
}

/* Whether an error concerns the request alone. Others may not come again when the file is continued. */
static bool is_of_request(ln_status st) {
    return st == LN_EUSAGE || st == LN_EINVALID || st == LN_EUNSUPPORTED || st == LN_ENUMERIC;
}

static bool refuse_address(wire_error *why, int http, const char *param, const char *fmt,
                           const ln_str *found) {
    char shown[80];
    (void)wire_refuse(why, param, fmt, ln_excerpt(shown, found->data ? found->data : "", found->len));
    why->http = http;
    why->code = http == 404 ? "not_found" : "method_not_allowed";
    return false;
}

bool batch_line_kind(const batch_line *line, wire_kind *kind, wire_error *why) {
    static const struct {
        const char *url;
        wire_kind kind;
    } urls[] = {{"/v1/chat/completions", WIRE_CHAT}, {"/v1/completions", WIRE_COMPLETION}};
    size_t k = 0;
    while (k < LN_COUNT(urls) && (!line->url.data || strcmp(line->url.data, urls[k].url) != 0)) k++;
    if (k == LN_COUNT(urls))
        return refuse_address(why, 404, "url", "expected /v1/chat/completions or /v1/completions, found '%s'",
                              &line->url);
    if (!line->method.data || strcmp(line->method.data, "POST") != 0)
        return refuse_address(why, 405, "method", "expected POST, found '%s'", &line->method);
    *kind = urls[k].kind;
    return true;
}

static ln_status read_body(batch *b, batch_row *r, const batch_line *line, ln_error *err) {
    wire_kind kind;
    if (!batch_line_kind(line, &kind, &r->why)) return LN_OK;
    ln_status st = wire_request_open(&r->q, b->target, kind, line->body, line->body_bytes, &r->why);
    if (st == LN_EMEMORY) return LN_OOM(err, "a request");
    if (st == LN_OK && r->q.stream) {
        static _Atomic bool told;
        if (!told)
            ln_log(LN_LOG_WARN, "the field \"stream\" of a request has no effect: a file has whole answers");
        told = true;
    }
    return LN_OK;
}

static ln_status reserve(batch_row *r, ln_error *err) {
    r->n = r->why.http ? 0 : wire_n_choices(&r->q);
    r->requests = ln_zalloc(r->n + 1, sizeof *r->requests);
    r->results = ln_zalloc(r->n + 1, sizeof *r->results);
    for (size_t i = 0; r->results && i < r->n; i++) r->results[i].size = sizeof *r->results;
    if (r->requests && r->results) return LN_OK;
    r->n = 0;
    return LN_OOM(err, "a request");
}

static ln_status read_row(batch *b, batch_row *r, ln_error *err) {
    char *text = NULL;
    size_t bytes;
    batch_line line = {0};
    ln_status st;
    LN_GO(batch_input_line(&b->in, r->line, &text, &bytes, err));
    LN_GO(batch_line_read(&line, text, bytes, err));
    r->custom_id = line.custom_id;
    line.custom_id = (ln_str){0};
    LN_GO(read_body(b, r, &line, err));
    LN_GO(reserve(r, err));
out:
    batch_line_free(&line);
    ln_free(text);
    return st;
}

/* Reads the next line into a new row at the end of the list. One that lacks memory is read again when a
 * request has ended or, if no other is open, in a later run. */
static ln_status begin_row(batch *b, ln_error *err) {
    ln_error why = {0};
    batch_row *r = ln_zalloc(1, sizeof *r);
    if (!r) return LN_OOM(err, "a request");
    r->line = b->next_line;
    ln_account *outer = ln_account_enter(&r->texts);
    ln_status st = read_row(b, r, &why);
    ln_account_leave(outer);
    st = ln_account_error(&r->texts, st, &why);
    if (st == LN_EMEMORY && r->texts.asked > 0 && b->n_open > 0) {
        b->full = true;
        free_row(r);
        return LN_OK;
    }
    if (st == LN_EMEMORY && r->texts.asked > 0) {
        r->left = true;
        if (b->n_left++ == 0) b->first = why;
    } else if (st != LN_OK) {
        free_row(r);
        return ln_fail(err, st, "%s", why.message);
    }
    b->next_line++;
    b->holds_line = false;
    *b->last = r;
    b->last = &r->next;
    return LN_OK;
}

/* ---- answers ---- */

static void put_response(ln_str *s, const batch_row *r) {
    char hex[33];
    wire_random_hex(hex, 24);
    ln_str_addf(s, "{\"id\":\"batch_req_%s\"", hex);
    put_bytes(s, "custom_id", r->custom_id.data ? r->custom_id.data : "", r->custom_id.len);
    wire_random_hex(hex, 32);
    put_object(s, "response");
    put_int(s, "status_code", r->why.http ? r->why.http : 200);
    put_text(s, "request_id", hex);
    put_key(s, "body");
}

/* An error is the body of the response, as the API has it, and `error` next to it tells the two kinds of
 * answer apart without a look at the body. */
static void put_line(ln_str *s, const batch_row *r) {
    put_response(s, r);
    if (r->why.http) {
        const char *code = r->why.code ? r->why.code : r->why.type;
        wire_put_error(s, &r->why);
        ln_str_adds(s, "}");
        put_object(s, "error");
        put_text(s, "code", code);
        put_text(s, "message", r->why.error.message);
        ln_str_adds(s, "}}\n");
    } else {
        wire_answer a = wire_answer_of(&r->q);
        wire_put_answer(s, &r->q, &a, r->results);
        ln_str_adds(s, "}");
        put_text(s, "error", NULL);
        ln_str_adds(s, "}\n");
    }
}

/* Counts an answer that was written. */
static ln_status count_answer(batch *b, size_t line, bool failed, ln_error *err) {
    if (!b->ranks) b->in.done[line] = 1; /* else it is the list of what was done before */
    b->report->n_done++;
    b->report->n_failed += failed;
    if (!b->opt->on_answer) return LN_OK;
    const ln_status st =
        LN_CALLBACK(b->opt->on_answer(b->opt->user, b->report->n_done + b->report->n_earlier, b->in.n, err));
    return st == LN_ECANCELLED ? ln_fail(err, st, "stopped by on_answer; the same call answers the rest")
                               : st;
}

/* Writes the line of an answer, or sends it to rank 0. */
static ln_status write_line(batch *b, const batch_row *r, const ln_str *s, ln_error *err) {
    if (b->writes) return batch_output_add(&b->out, s->data, s->len, err);
    const batch_share share = {r->line, r->why.http ? BATCH_FAILED : BATCH_ANSWERED, s->data, s->len};
    return batch_ranks_give(b->ranks, &share, err);
}

static ln_status answer(batch *b, batch_row *r, ln_error *err) {
    ln_str s = {0};
    ln_account *outer = ln_account_enter(&r->texts);
    put_line(&s, r);
    ln_status st = s.failed ? LN_OOM(err, "an answer") : write_line(b, r, &s, err);
    ln_str_free(&s);
    ln_account_leave(outer);
    LN_TRY(ln_account_error(&r->texts, st, err));
    return count_answer(b, r->line, r->why.http != 0, err);
}

/* Tells rank 0 of a line that is left for a later run. */
static ln_status leave_line(batch *b, const batch_row *r, ln_error *err) {
    if (b->writes) return LN_OK;
    const batch_share share = {r->line, BATCH_LEFT, b->first.message, strlen(b->first.message)};
    return batch_ranks_give(b->ranks, &share, err);
}

static bool is_complete(const batch_row *r) { return r->left || r->why.http || r->n_done == r->n; }

/* Writes and removes the rows that are complete. */
static ln_status answer_complete(batch *b, ln_error *err) {
    for (batch_row **at = &b->rows; *at;) {
        batch_row *r = *at;
        if (!is_complete(r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (!r->next) b->last = at;
        for (size_t k = 0; k < r->n; k++) b->n_open -= r->requests[k] != NULL; /* of a row that failed */
        ln_status st = r->left ? leave_line(b, r, err) : answer(b, r, err);
        free_row(r);
        LN_TRY(st);
    }
    return LN_OK;
}

/* ---- requests ---- */

/* Answers a choice at once. */
static ln_status answer_choice(batch *b, batch_row *r, size_t k, const ln_prompt *prompt,
                               const ln_sampling *how, const ln_request_options *o, ln_error *err) {
    if (o->n_logprobs >= 0 || r->q.echo) {
        const char *field = r->q.echo ? "echo" : "logprobs";
        (void)wire_refuse(&r->why, field, "this backend does not support it; leave it out");
        return LN_OK;
    }
    ln_status st = b->by(b->user, prompt, how, &r->results[k], &r->why.error);
    if (st == LN_OK && r->results[k].finish == LN_FINISH_CANCELLED)
        return ln_fail(err, LN_ECANCELLED, "stopped by ln_backend_cancel; the same call answers the rest");
    if (st != LN_OK && !is_of_request(st)) return ln_fail(err, st, "%s", r->why.error.message);
    if (st != LN_OK) (void)wire_fail_request(&r->why, &r->q, st);
    r->n_done++;
    return LN_OK;
}

/* A row lacks memory: it starts again when a request has ended or, if no other is open, in a later run. */
static void lacks_memory(batch *b, batch_row *r) {
    for (size_t k = 0; k < r->n_opened; k++) {
        b->n_open -= r->requests[k] != NULL;
        ln_request_close(&r->requests[k]);
        ln_result_free(&r->results[k]);
    }
    r->n_opened = r->n_done = 0;
    b->full = b->n_open > 0;
    if (b->full) return;
    r->left = true;
    if (b->n_left++ == 0) b->first = r->why.error;
}

static ln_status open_choice(batch *b, batch_row *r, ln_error *err) {
    ln_prompt prompt;
    ln_sampling how = {.size = sizeof how};
    ln_request_options o = ln_request_options_default();
    size_t k = r->n_opened++;
    wire_choice(&r->q, k, &prompt, &how, &o);
    if (b->by) return answer_choice(b, r, k, &prompt, &how, &o, err);
    ln_account *outer = ln_account_enter(&r->texts);
    ln_status st = ln_request_open(&r->requests[k], b->engine, &prompt, &o, &r->why.error);
    ln_account_leave(outer);
    st = ln_account_error(&r->texts, st, &r->why.error);
    if (st == LN_OK) {
        b->n_open++;
    } else if (st == LN_EMEMORY) {
        r->n_opened = k;
        if (b->n_open == 0) lacks_memory(b, r);
        else b->full = true;
    } else if (is_of_request(st)) {
        (void)wire_fail_request(&r->why, &r->q, st);
    } else {
        return ln_fail(err, st, "%s", r->why.error.message);
    }
    return LN_OK;
}

/* Finds the next line to answer. False: there is none or, of several ranks, none now. */
static bool find_line(batch *b) {
    if (b->ranks) {
        if (!b->holds_line)
            b->holds_line = batch_ranks_take(b->ranks, b->most_open - b->n_open + STORED, &b->next_line);
        return b->holds_line;
    }
    while (b->next_line < b->in.n && b->in.done[b->next_line]) b->next_line++;
    return b->next_line < b->in.n;
}

/* Opens requests until there are enough. */
static ln_status open_more(batch *b, ln_error *err) {
    while (b->n_open < b->most_open && !b->full) {
        batch_row *r = b->rows;
        while (r && (is_complete(r) || r->n_opened == r->n)) r = r->next;
        if (r) {
            LN_TRY(open_choice(b, r, err));
            continue;
        }
        LN_TRY(answer_complete(b, err)); /* lines that are rejected take no request */
        if (!find_line(b)) break;
        LN_TRY(begin_row(b, err));
    }
    return answer_complete(b, err);
}

static ln_status finish_choice(batch *b, batch_row *r, size_t k, const ln_event *ev, ln_error *err) {
    ln_status st = ev->status;
    if (st == LN_OK && ev->finish == LN_FINISH_CANCELLED)
        return ln_fail(err, LN_ECANCELLED, "stopped by ln_cancel; the same call answers the rest");
    if (st == LN_OK) st = ln_request_result(r->requests[k], &r->results[k], &r->why.error);
    else
        (void)ln_fail(&r->why.error, st, "%.*s", (int)LN_MIN(ev->bytes, (size_t)1000),
                      ev->text ? ev->text : "");
    b->full = false;
    if (st == LN_EMEMORY) {
        lacks_memory(b, r);
        return LN_OK;
    }
    if (st != LN_OK && !is_of_request(st)) return ln_fail(err, st, "%s", r->why.error.message);
    if (st != LN_OK) (void)wire_fail_request(&r->why, &r->q, st);
    ln_request_close(&r->requests[k]);
    b->n_open--;
    r->n_done++;
    return LN_OK;
}

/* Reads the events of a request; waits for the first at most `seconds`. */
static ln_status read_events(batch *b, batch_row *r, size_t k, double seconds, ln_error *err) {
    for (;;) {
        ln_event ev = {.size = sizeof ev};
        LN_TRY(ln_request_next(r->requests[k], seconds, &ev, err));
        if (ev.kind == LN_EVENT_NONE) return LN_OK;
        if (ev.kind == LN_EVENT_FINISH) return finish_choice(b, r, k, &ev, err);
        seconds = 0;
    }
}

/* Waits for an event of the oldest request, which runs steps, and reads those of all the others. */
static ln_status read_all(batch *b, ln_error *err) {
    double seconds = WAIT_SECONDS;
    for (batch_row *r = b->rows; r; r = r->next)
        for (size_t k = 0; k < r->n_opened && !r->why.http; k++) {
            if (!r->requests[k]) continue;
            LN_TRY(read_events(b, r, k, seconds, err));
            seconds = 0;
        }
    return LN_OK;
}

static ln_status run_all(batch *b, ln_error *err) {
    for (;;) {
        LN_TRY(open_more(b, err));
        if (!b->rows) return LN_OK;
        LN_TRY(read_all(b, err));
    }
}

/* ---- several ranks ---- */

/* Writes what the other ranks have answered. */
static ln_status receive(batch *b, ln_error *err) {
    ln_str shares = {0};
    batch_share one;
    ln_status st = LN_OK;
    if (b->writes) batch_ranks_receive(b->ranks, &shares);
    for (size_t at = 0; st == LN_OK && batch_ranks_next(&shares, &at, &one);) {
        if (one.outcome == BATCH_LEFT) {
            if (b->n_left++ == 0) (void)ln_fail(&b->first, LN_EMEMORY, "%.*s", (int)one.bytes, one.text);
            continue;
        }
        st = batch_output_add(&b->out, one.text, one.bytes, err);
        if (st == LN_OK) st = count_answer(b, one.line, one.outcome == BATCH_FAILED, err);
    }
    ln_str_free(&shares);
    return st;
}

/* Runs until all lines of all ranks are answered: rank 0 counts them, the others wait for its end. */
static ln_status run_shared(batch *b, ln_error *err) {
    for (bool ended = false; !ended;) {
        LN_TRY(open_more(b, err));
        LN_TRY(receive(b, err));
        if (b->writes && b->report->n_done + b->report->n_earlier + b->n_left == b->in.n) break;
        LN_TRY(batch_ranks_wait(b->ranks, b->rows ? 0 : WAIT_SECONDS, &ended, err));
        if (b->rows) LN_TRY(read_all(b, err));
    }
    return LN_OK;
}

static uint64_t digest_of(const batch_binding *to) {
    ln_xxh64 h;
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, to->digest, strlen(to->digest));
    ln_xxh64_add(&h, to->model, strlen(to->model));
    ln_xxh64_add(&h, to->conditions, strlen(to->conditions));
    return ln_xxh64_value(&h);
}

static ln_status open_files(batch *b, const char *model, const char *in, const char *out, ln_transport *ranks,
                            ln_error *err) {
    batch_binding to = {b->in.digest, model, b->opt->conditions ? b->opt->conditions : ""};
    ln_status st = batch_input_open(&b->in, in, err);
    if (st == LN_OK && b->writes) {
        ln_account *outer = ln_account_enter(&b->in.texts);
        st = batch_output_open(&b->out, out, &b->in, &to, b->opt->force, err);
        ln_account_leave(outer);
        st = ln_account_error(&b->in.texts, st, err);
    }
    return batch_ranks_open(&b->ranks, ranks, b->in.done, b->in.n, st, digest_of(&to), err);
}

static ln_status run_file(batch *b, ln_transport *ranks, const char *model, const char *in, const char *out,
                          ln_error *err) {
    char shown[LN_PATH_TEXT];
    ln_status st;
    b->last = &b->rows;
    b->out.fd = -1;
    b->writes = !ranks || ranks->rank == 0;
    LN_GO(open_files(b, model, in, out, ranks, err));
    b->report->n_requests = b->in.n;
    for (size_t i = 0; i < b->in.n; i++) b->report->n_earlier += b->in.done[i];
    b->report->n_failed = b->out.n_failed;
    LN_GO(b->ranks ? run_shared(b, err) : run_all(b, err));
    if (!b->writes) goto out;
    st = b->n_left == 0
             ? batch_output_finish(&b->out, err)
             : ln_fail(err, LN_EMEMORY,
                       "%s: %zu of %zu requests need more memory than there is (%.*s); the same call "
                       "answers them when there is more",
                       ln_path_text(shown, in), b->n_left, b->in.n, 600, b->first.message);
out:
    for (batch_row *r = b->rows, *next; r; r = next) {
        next = r->next;
        free_row(r);
    }
    st = batch_ranks_close(&b->ranks, st, err);
    batch_output_close(&b->out);
    batch_input_close(&b->in);
    return st;
}

ln_status batch_run(ln_engine *engine, ln_transport *ranks, int n_parallel, const wire_target *target,
                    const char *model, const char *in, const char *out, const ln_batch_options *opt,
                    ln_batch_report *report, ln_error *err) {
    batch b = {.engine = engine, .target = target, .opt = opt, .report = report};
    b.most_open = (size_t)n_parallel + WAITING;
    return run_file(&b, ranks, model, in, out, err);
}

ln_status batch_run_with(batch_answer_fn *by, void *user, const wire_target *target, const char *model,
                         const char *in, const char *out, const ln_batch_options *opt,
                         ln_batch_report *report, ln_error *err) {
    batch b = {.by = by, .user = user, .target = target, .opt = opt, .report = report, .most_open = 1};
    return run_file(&b, NULL, model, in, out, err);
}
