/* The files of training data: lines to samples, bad lines reported, the digest. */
#include "dataset.h"
#include "pair_lines.h"
#include "records.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_REPORTED = 20 };

typedef struct loading {
    train_data *d;
    train_reader reader;
    size_t most;   /* tokens of a sample */
    uint64_t line; /* that is read */
    size_t n_bad;
    ln_error first_bad;
} loading;

/* ---- which files ---- */

/* Finds the file of a directory that has one of the names; JSONL comes before other formats. */
static ln_status named_in(const char *dir, const char *const *names, size_t n, char out[4096],
                          ln_error *err) {
    static const char *const ends[] = {"jsonl", "json", "csv", "tsv"};
    char shown[LN_PATH_TEXT];
    for (size_t i = 0; i < n * LN_COUNT(ends); i++) {
        bool there = false;
        if ((size_t)snprintf(out, 4096, "%s/%s.%s", dir, names[i % n], ends[i / n]) >= 4096)
            return ln_fail(err, LN_EIO, "%s: the path is too long", ln_path_text(shown, dir));
        LN_TRY(ln_look(out, &there, err));
        if (there) return LN_OK;
    }
    out[0] = '\0';
    return LN_OK;
}

static ln_status copy_path(char out[4096], const char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    if ((size_t)snprintf(out, 4096, "%s", path) < 4096) return LN_OK;
    return ln_fail(err, LN_EIO, "%s: the path is too long", ln_path_text(shown, path));
}

ln_status train_data_paths(const char *data, const char *valid_file, char train[4096], char valid[4096],
                           ln_error *err) {
    static const char *const trains[] = {"train"}, *const valids[] = {"valid", "validation", "val", "dev",
                                                                      "eval"};
    char shown[LN_PATH_TEXT];
    bool is_dir = false;
    valid[0] = '\0';
    LN_TRY(ln_look_dir(data, &is_dir, err));
    if (!is_dir) LN_TRY(copy_path(train, data, err));
    else {
        LN_TRY(named_in(data, trains, LN_COUNT(trains), train, err));
        if (!train[0])
            return ln_fail(err, LN_EIO,
                           "%s: expected a file train.jsonl, .json, .csv or .tsv in this directory, found "
                           "none",
                           ln_path_text(shown, data));
        LN_TRY(named_in(data, valids, LN_COUNT(valids), valid, err));
    }
    return valid_file ? copy_path(valid, valid_file, err) : LN_OK;
}

/* ---- samples ---- */

static ln_status grow(train_data *d, size_t n_ids, ln_error *err) {
    void *p = d->ids;
    ln_status st = ln_grow(&p, &d->cap_ids, d->n_ids + n_ids, sizeof *d->ids, err);
    d->ids = p;
    LN_TRY(st);
    p = d->samples;
    st = ln_grow(&p, &d->cap, d->n + 1, sizeof *d->samples, err);
    d->samples = p;
    return st;
}

/* Adds a sample of the line that is read: cut to the limit, dropped if no target counts. */
static ln_status add_sample(void *user, const ln_ids *ids, const ln_str *mask, ln_error *err) {
    loading *l = user;
    train_data *d = l->d;
    const size_t n = LN_MIN(ids->n, l->most);
    uint32_t n_counted = 0;
    d->n_read++;
    d->n_cut += n < ids->n;
    for (size_t t = 1; t < n; t++) n_counted += mask->data[t] == 1;
    if (n_counted == 0) {
        if (d->n_dropped++ == 0) d->first_dropped = l->line;
        return LN_OK;
    }
    LN_TRY(grow(d, n, err));
    for (size_t t = 0; t < n; t++)
        d->ids[d->n_ids + t] = (uint32_t)ids->data[t] | (t > 0 && mask->data[t] == 1 ? TRAIN_COUNTED : 0);
    d->samples[d->n++] = (train_sample){
        .at = d->n_ids, .n = (uint32_t)n, .n_counted = n_counted, .line = l->line, .record = d->n_lines};
    d->n_ids += n;
    d->n_counted += n_counted;
    d->longest = LN_MAX(d->longest, (uint32_t)n);
    return LN_OK;
}

/* ---- lines ---- */

static bool is_blank(const char *line, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

static bool is_of_line(ln_status st) { return st == LN_EINVALID || st == LN_EUNSUPPORTED; }

/* Reports a bad line; later lines are read on, so that the user can fix them all at once. The first one is
 * the error that the call returns (check_all), and is not logged as well. */
static void note_bad(loading *l, uint64_t line, const ln_error *why) {
    char shown[LN_PATH_TEXT];
    ln_path_text(shown, l->d->path);
    if (l->n_bad++ == 0) {
        l->first_bad = *why;
        (void)ln_prefix(&l->first_bad, l->first_bad.code, "%s:%llu", shown, (unsigned long long)line);
    } else if (l->n_bad <= MOST_REPORTED)
        ln_log(LN_LOG_ERROR, "%s:%llu: %s", shown, (unsigned long long)line, why->message);
}

/* Reads a line of preferences: both answers, or neither if no target of one of them counts. */
static ln_status read_pair(loading *l, const char *text, size_t bytes, ln_error *err) {
    train_data *d = l->d;
    ln_str lines[2] = {{0}, {0}};
    const train_data before = *d;
    ln_status st = train_pair_lines(text, bytes, lines, err);
    for (int i = 0; i < 2 && st == LN_OK; i++) {
        const size_t n = d->n;
        st = train_line_read(&l->reader, lines[i].data, lines[i].len, err);
        if (st == LN_OK && d->n > n + 1)
            st =
                ln_fail(err, LN_EINVALID,
                        "\"%s\": has turns that the template changes once more messages follow; expected one "
                        "answer",
                        i ? "rejected" : "chosen");
    }
    if (st != LN_OK || d->n != before.n + 2)
        d->n = before.n, d->n_ids = before.n_ids, d->n_counted = before.n_counted,
        d->longest = before.longest;
    ln_str_free(&lines[0]);
    ln_str_free(&lines[1]);
    return st;
}

/* Reads all samples of a file. */
static ln_status load_file(loading *l, int fd, ln_error *err) {
    train_records r;
    ln_status st = LN_OK;
    train_records_open(&r, fd, l->d->path);
    for (;;) {
        char *text;
        size_t bytes;
        ln_error bad = {0};
        LN_GO(train_records_next(&r, &text, &bytes, &bad, err));
        if (!text) break;
        if (bad.code == LN_OK && is_blank(text, bytes)) continue;
        l->d->n_lines++;
        l->line = r.line;
        if (bad.code != LN_OK) st = bad.code;
        else if (l->d->in_pairs) st = read_pair(l, text, bytes, &bad);
        else st = train_line_read(&l->reader, text, bytes, &bad);
        if (st == LN_OK) continue;
        if (!is_of_line(st)) LN_GO(ln_fail(err, st, "%s", bad.message));
        note_bad(l, r.line, &bad);
    }
    st = LN_OK;
    ln_sha256_hex(&r.digest, l->d->digest);
out:
    train_records_close(&r);
    return st;
}

/* ---- the whole file ---- */

static ln_status check_all(const loading *l, ln_error *err) {
    const train_data *d = l->d;
    char shown[LN_PATH_TEXT];
    ln_path_text(shown, d->path);
    if (l->n_bad == 1) return ln_fail(err, l->first_bad.code, "%s", l->first_bad.message);
    if (l->n_bad > 1)
        return ln_fail(err, l->first_bad.code, "%s (and %zu more of %zu lines are bad)", l->first_bad.message,
                       l->n_bad - 1, d->n_lines);
    if (d->n_lines == 0)
        return ln_fail(err, LN_EINVALID, "%s: expected a sample in each line, found none", shown);
    if (d->n > 0) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "%s: none of its %zu samples has a token whose prediction counts%s; nothing can be "
                   "learned "
                   "from it",
                   shown, d->n_lines,
                   d->n_unmatched ? ", because the template does not render the assistant's turns after what "
                                    "precedes them"
                   : d->n_cut     ? " within ln_trainer_options.max_length"
                                  : "");
}

/* The digest of what the model is trained on: it differs if another template, tokenizer or time makes other
 * samples of the same file. */
static void hash_samples(train_data *d) {
    ln_sha256 h;
    ln_sha256_open(&h);
    for (size_t i = 0; i < d->n; i++) {
        const uint64_t n = d->samples[i].n;
        ln_sha256_add(&h, &n, sizeof n);
        ln_sha256_add(&h, d->ids + d->samples[i].at, (size_t)n * sizeof *d->ids);
    }
    ln_sha256_hex(&h, d->samples_digest);
}

ln_status train_data_open(train_data *out, const ln_package *m, const char *path, int64_t max_length,
                          bool in_pairs, const char *now, const char *fields, ln_error *err) {
    loading l = {.d = out,
                 .reader = {.m = m,
                            .now = now,
                            .fields = fields,
                            .kind = TRAIN_N_KINDS,
                            .report = {.unread = out->unread},
                            .add = add_sample,
                            .user = &l},
                 .most = (size_t)max_length};
    int fd = -1;
    *out = (train_data){.kind = TRAIN_N_KINDS, .in_pairs = in_pairs};
    LN_TRY(copy_path(out->path, path, err));
    LN_TRY(ln_open_input(path, &fd, err));
    ln_status st = load_file(&l, fd, err);
    (void)close(fd);
    out->kind = l.reader.kind;
    out->n_unmatched = l.reader.report.n_unmatched;
    out->n_parted = l.reader.report.n_parted;
    out->n_own = l.reader.report.n_own;
    if (st == LN_OK) st = check_all(&l, err);
    if (st == LN_OK) hash_samples(out);
    train_reader_close(&l.reader);
    return st;
}

ln_status train_data_append(train_data *d, train_data *more, ln_error *err) {
    const size_t ids = d->n_ids, records = d->n_lines;
    ln_sha256 h;
    for (size_t i = 0; i < more->n; i++) {
        train_sample s = more->samples[i];
        LN_TRY(grow(d, s.n, err));
        memcpy(d->ids + d->n_ids, more->ids + s.at, s.n * sizeof *d->ids);
        s.at += ids, s.record += records;
        d->samples[d->n++] = s;
        d->n_ids += s.n;
    }
    d->n_counted += more->n_counted, d->n_lines += more->n_lines, d->n_read += more->n_read;
    d->n_cut += more->n_cut, d->n_dropped += more->n_dropped;
    d->longest = LN_MAX(d->longest, more->longest);
    ln_sha256_open(&h);
    ln_sha256_add(&h, d->digest, strlen(d->digest));
    ln_sha256_add(&h, more->digest, strlen(more->digest));
    ln_sha256_hex(&h, d->digest);
    hash_samples(d);
    return LN_OK;
}

void train_data_close(train_data *d) {
    ln_free(d->ids);
    ln_free(d->samples);
    *d = (train_data){.kind = TRAIN_N_KINDS};
}

void train_data_say(const train_data *d) {
    char shown[LN_PATH_TEXT];
    ln_path_text(shown, d->path);
    if (d->unread[0]) ln_log(LN_LOG_WARN, "%s: members that are not read: %s", shown, d->unread);
    if (d->n_cut)
        ln_log(LN_LOG_WARN,
               "%s: %zu of %zu samples were longer than ln_trainer_options.max_length and were cut", shown,
               d->n_cut, d->n_read);
    if (d->n_dropped)
        ln_log(LN_LOG_WARN,
               "%s: %zu of %zu samples were dropped, the first in line %llu: none of their tokens counts as "
               "a "
               "target",
               shown, d->n_dropped, d->n_read, (unsigned long long)d->first_dropped);
    if (d->n_own)
        ln_log(LN_LOG_INFO,
               "%s: %zu turns of the assistant are samples of their own, which end with them, because the "
               "template "
               "renders them differently once more messages follow",
               shown, d->n_own);
    if (d->n_unmatched)
        ln_log(LN_LOG_WARN,
               "%s: %zu turns of the assistant do not count, because the template does not render them after "
               "what "
               "precedes them",
               shown, d->n_unmatched);
    if (d->n_parted)
        ln_log(LN_LOG_WARN,
               "%s: %zu turns of the assistant lack what the template writes before an answer (<think>, for "
               "example): the model learns to answer without it, and will be given it",
               shown, d->n_parted);
}
