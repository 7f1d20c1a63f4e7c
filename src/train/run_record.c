/* metrics.jsonl: appended to line by line, cut back to the checkpoint when a run is resumed. */
#include "../base/json.h"
#include "../base/json_write.h"
#include "../base/line_reader.h"
#include "run_record.h"
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20 }; /* of a line: texts may have long prompts */

/* ---- lines ---- */

void train_step_line(ln_str *s, const ln_step_report *r) {
    ln_str_adds(s, "{");
    put_int(s, "step", r->step);
    put_real(s, "loss", r->loss);
    put_real(s, "lr", r->lr);
    put_real(s, "grad_norm", r->grad_norm);
    put_int(s, "tokens", r->tokens);
    put_real(s, "tok_s", r->tok_s);
    put_real(s, "seconds", r->seconds);
    put_uint(s, "peak_bytes", r->peak_bytes);
    if (!isnan(r->accuracy)) put_real(s, "accuracy", r->accuracy), put_real(s, "margin", r->margin);
    if (r->skipped) put_bool(s, "skipped", true);
    ln_str_adds(s, "}\n");
}
void train_valid_line(ln_str *s, const ln_valid_report *r) {
    ln_str_adds(s, "{");
    put_int(s, "step", r->step);
    put_real(s, "valid_loss", r->loss);
    put_real(s, "valid_perplexity", r->perplexity);
    if (!isnan(r->accuracy))
        put_real(s, "valid_accuracy", r->accuracy), put_real(s, "valid_margin", r->margin);
    ln_str_adds(s, "}\n");
}

void train_text_line(ln_str *s, const ln_text_report *r) {
    ln_str_adds(s, "{");
    put_int(s, "step", r->step);
    put_uint(s, "sample", r->index + 1);
    put_key(s, "prompt");
    ln_str_json(s, r->prompt, r->prompt_bytes);
    put_key(s, "text");
    ln_str_json(s, r->text, r->text_bytes);
    put_int(s, "tokens", r->n_tokens);
    put_bool(s, "ended", r->ended);
    ln_str_adds(s, "}\n");
}

/* ---- points ---- */

/* Counts a text of a step. */
static void add_text(train_metrics *m, int64_t step) {
    m->n_texts = m->text_step == step ? m->n_texts + 1 : 1;
    m->text_step = step;
}

static ln_status add_point(train_point **list, size_t *n, size_t *cap, int64_t step, double loss,
                           ln_error *err) {
    void *p = *list;
    const ln_status st = ln_grow(&p, cap, *n + 1, sizeof **list, err);
    *list = p;
    if (st == LN_OK) (*list)[(*n)++] = (train_point){step, loss};
    return st;
}

/* Reads a line of the file. *later: the checkpoint does not have its step or, of a validation, was written
 * before that; the validation of a checkpoint's own step may follow the checkpoint. *good false: it is no
 * line of a run. */
static ln_status take_line(train_metrics *m, const char *data, size_t bytes, int64_t step, int64_t valid_step,
                           bool *good, bool *later, ln_error *err) {
    json_t *line = NULL;
    ln_status st = LN_OK;
    *good = ln_json_load(&line, "metrics.jsonl", data, bytes, &(ln_error){0}) == LN_OK;
    const json_t *at = json_object_get(line, "step"), *loss = json_object_get(line, "loss"),
                 *valid = json_object_get(line, "valid_loss"), *text = json_object_get(line, "text");
    *good = *good && json_is_integer(at) && (loss || valid || text);
    *later = *good && json_integer_value(at) > (valid ? valid_step : step);
    if (*good && !*later && valid)
        st = add_point(&m->valids, &m->n_valids, &m->cap_valids, json_integer_value(at),
                       json_number_value(valid), err);
    else if (*good && !*later && text) add_text(m, json_integer_value(at));
    else if (*good && !*later && json_is_number(loss))
        st = add_point(&m->steps, &m->n_steps, &m->cap_steps, json_integer_value(at), json_number_value(loss),
                       err);
    json_decref(line);
    return st;
}

/* Reads the lines that the checkpoint knows; *keep becomes the bytes of the file that stay. */
static ln_status read_lines(train_metrics *m, int64_t step, int64_t valid_step, uint64_t *keep,
                            ln_error *err) {
    ln_lines l;
    char shown[LN_PATH_TEXT];
    ln_status st = LN_OK;
    ln_lines_open(&l, m->fd, m->path, MOST_BYTES);
    for (*keep = 0;;) {
        char *text;
        size_t bytes;
        uint64_t offset;
        bool whole, good, later;
        LN_GO(ln_lines_next(&l, &text, &bytes, &offset, &whole, err));
        if (!text || !whole) break; /* a torn last line is cut off */
        LN_GO(take_line(m, text, bytes, step, valid_step, &good, &later, err));
        if (!good)
            LN_GO(ln_fail(err, LN_EINVALID, "%s:%llu: expected a line that a run wrote; move the file away",
                          ln_path_text(shown, m->path), (unsigned long long)l.number));
        if (later) break;
        *keep = offset + bytes + 1;
    }
out:
    ln_lines_close(&l);
    return st;
}

static ln_status fail_errno(const train_metrics *m, const char *doing, ln_error *err) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    return ln_fail(err, LN_EIO, "%s: cannot %s: %s", ln_path_text(shown, m->path), doing,
                   ln_errno_text(why, errno));
}

ln_status train_metrics_open(train_metrics *m, const char *dir, int64_t step, int64_t valid_step,
                             ln_error *err) {
    uint64_t keep = 0;
    *m = (train_metrics){.fd = -1};
    if ((size_t)snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", dir) >= sizeof m->path)
        return ln_fail(err, LN_EIO, "the path of metrics.jsonl is too long");
    m->fd = open(m->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (m->fd < 0) return fail_errno(m, "open", err);
    LN_TRY(read_lines(m, step, valid_step, &keep, err));
    if (ftruncate(m->fd, (off_t)keep) != 0 || lseek(m->fd, (off_t)keep, SEEK_SET) < 0)
        return fail_errno(m, "cut", err);
    return LN_OK;
}

ln_status train_metrics_read(train_metrics *m, const char *dir, ln_error *err) {
    uint64_t keep;
    *m = (train_metrics){.fd = -1};
    if ((size_t)snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", dir) >= sizeof m->path)
        return ln_fail(err, LN_EIO, "the path of metrics.jsonl is too long");
    m->fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (m->fd < 0) return fail_errno(m, "open", err);
    return read_lines(m, INT64_MAX, INT64_MAX, &keep, err);
}

void train_metrics_close(train_metrics *m) {
    if (m->path[0] && m->fd >= 0) (void)close(m->fd);
    ln_free(m->steps);
    ln_free(m->valids);
    *m = (train_metrics){.fd = -1};
}

static ln_status write_line(const train_metrics *m, ln_str *s, ln_error *err) {
    ln_status st = s->failed ? LN_OOM(err, "a line of metrics") : LN_OK;
    if (st == LN_OK && m->path[0] && write(m->fd, s->data, s->len) != (ssize_t)s->len)
        st = fail_errno(m, "write", err);
    ln_str_free(s);
    return st;
}

ln_status train_metrics_step(train_metrics *m, const ln_step_report *r, ln_error *err) {
    ln_str s = {0};
    train_step_line(&s, r);
    LN_TRY(write_line(m, &s, err));
    if (r->skipped) return LN_OK;
    return add_point(&m->steps, &m->n_steps, &m->cap_steps, r->step, r->loss, err);
}

ln_status train_metrics_valid(train_metrics *m, const ln_valid_report *r, ln_error *err) {
    ln_str s = {0};
    train_valid_line(&s, r);
    LN_TRY(write_line(m, &s, err));
    return add_point(&m->valids, &m->n_valids, &m->cap_valids, r->step, r->loss, err);
}

ln_status train_metrics_text(train_metrics *m, const ln_text_report *r, ln_error *err) {
    ln_str s = {0};
    train_text_line(&s, r);
    LN_TRY(write_line(m, &s, err));
    add_text(m, r->step);
    return LN_OK;
}

ln_status train_chart_write(const train_metrics *m, const char *dir, ln_error *err) {
    ln_str s = {0};
    ln_status st = LN_OK;
    train_chart(&s, m->steps, m->n_steps, m->valids, m->n_valids);
    if (s.failed) st = LN_OOM(err, "a chart");
    else if (s.len > 0) st = train_file_write(dir, "loss.svg", &(train_part){s.data, s.len}, 1, NULL, err);
    ln_str_free(&s);
    return st;
}
