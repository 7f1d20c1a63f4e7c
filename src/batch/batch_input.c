/* The file of requests: validated in one pass, then read again line by line where it is needed.
 *
 * Requests are found by a hash of their custom_id; equal hashes are settled by comparing the texts, which are
 * read from the file. */
#include "../base/os.h"
#include "../base/file.h"
#include "batch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ln_status fail_errno(ln_error *err, const char *path, const char *what) {
    char why[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    int number = errno;
    return ln_fail(err, LN_EIO, "%s: cannot %s: %s", ln_path_text(shown, path), what,
                   ln_errno_text(why, number));
}

/* ---- one line ---- */

void batch_line_free(batch_line *line) {
    ln_str_free(&line->custom_id);
    ln_str_free(&line->method);
    ln_str_free(&line->url);
    *line = (batch_line){0};
}

static ln_status read_text(ln_json *j, const char *name, ln_str *out, ln_error *err) {
    char found[80];
    if (j->type != LN_J_STRING)
        return ln_fail(err, LN_EINVALID, "\"%s\": expected a text, found %s", name, ln_json_found(j, found));
    if (memchr(j->text, 0, j->text_bytes))
        return ln_fail(err, LN_EINVALID, "\"%s\": expected a text without U+0000", name);
    ln_str_add(out, j->text, j->text_bytes);
    return out->failed ? LN_OOM(err, "a line") : LN_OK;
}

static ln_status read_member(ln_json *j, batch_line *line, unsigned *seen, ln_error *err) {
    static const char *const names[] = {"custom_id", "method", "url", "body"};
    ln_str *texts[] = {&line->custom_id, &line->method, &line->url};
    char found[80];
    size_t k = 0;
    while (k < LN_COUNT(names) && !ln_json_is(j, names[k])) k++;
    LN_TRY(ln_json_next(j, err));
    if (k == LN_COUNT(names)) return ln_json_skip(j, err); /* other members are the caller's */
    if (*seen & 1u << k) return ln_fail(err, LN_EINVALID, "expected \"%s\" once, found it twice", names[k]);
    *seen |= 1u << k;
    if (k < LN_COUNT(texts)) return read_text(j, names[k], texts[k], err);
    if (j->type != LN_J_OBJECT)
        return ln_fail(err, LN_EINVALID, "\"body\": expected an object, found %s", ln_json_found(j, found));
    line->body = j->data + j->offset;
    LN_TRY(ln_json_skip(j, err));
    line->body_bytes = (size_t)(j->data + j->at - line->body);
    return LN_OK;
}

ln_status batch_line_read(batch_line *out, const char *text, size_t bytes, ln_error *err) {
    static const char *const needed[] = {"custom_id", "method", "url", "body"};
    char found[80];
    unsigned seen = 0;
    bool more = true;
    ln_json j;
    ln_status st;
    *out = (batch_line){0};
    ln_json_open(&j, "JSON", text, bytes, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&j, err));
    if (j.type != LN_J_OBJECT)
        LN_GO(ln_fail(err, LN_EINVALID, "expected an object with custom_id, method, url and body, found %s",
                      ln_json_found(&j, found)));
    for (;;) {
        LN_GO(ln_json_key(&j, &more, err));
        if (!more) break;
        LN_GO(read_member(&j, out, &seen, err));
    }
    LN_GO(ln_json_want(&j, LN_J_END, err));
    for (size_t k = 0; k < LN_COUNT(needed); k++)
        if (!(seen & 1u << k)) LN_GO(ln_fail(err, LN_EINVALID, "expected a \"%s\", found none", needed[k]));
    if (out->custom_id.len == 0)
        st = ln_fail(err, LN_EINVALID, "\"custom_id\": expected a text, found an empty one");
out:
    ln_json_close(&j);
    if (st != LN_OK) batch_line_free(out);
    return st;
}

/* ---- the index ---- */

static uint64_t hash_of(const char *s, size_t n) { /* FNV-1a with a final mix */
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static ln_status same_id(const batch_input *in, size_t i, const char *id, size_t bytes, bool *same,
                         ln_error *err) {
    char *text;
    size_t n;
    batch_line line;
    LN_TRY(batch_input_line(in, i, &text, &n, err));
    ln_status st = batch_line_read(&line, text, n, err);
    if (st == LN_OK) *same = line.custom_id.len == bytes && memcmp(line.custom_id.data, id, bytes) == 0;
    if (st == LN_OK) batch_line_free(&line);
    ln_free(text);
    return st;
}

ln_status batch_input_find(const batch_input *in, const char *id, size_t bytes, size_t *out, ln_error *err) {
    uint64_t h = hash_of(id, bytes);
    *out = SIZE_MAX;
    for (size_t at = h & (in->n_table - 1); in->n_table > 0 && in->table[at];
         at = (at + 1) & (in->n_table - 1)) {
        size_t i = in->table[at] - 1;
        bool same = false;
        if (in->hash[i] != h) continue;
        LN_TRY(same_id(in, i, id, bytes, &same, err));
        if (!same) continue;
        *out = i;
        return LN_OK;
    }
    return LN_OK;
}

static void put(uint32_t *table, size_t n_table, uint64_t h, size_t i) {
    size_t at = h & (n_table - 1);
    while (table[at]) at = (at + 1) & (n_table - 1);
    table[at] = (uint32_t)i + 1;
}

/* Doubles the table when it is half full. */
static ln_status reserve(batch_input *in, ln_error *err) {
    if (in->n_table / 2 > in->n) return LN_OK;
    size_t n = LN_MAX(in->n_table * 2, (size_t)1024);
    uint32_t *table = ln_zalloc(n, sizeof *table);
    if (!table) return LN_OOM(err, "the index of a file of requests");
    for (size_t i = 0; i < in->n; i++) put(table, n, in->hash[i], i);
    ln_free(in->table);
    in->table = table;
    in->n_table = n;
    return LN_OK;
}

static ln_status add(batch_input *in, uint64_t offset, const char *id, size_t bytes, ln_error *err) {
    char shown[80];
    size_t other;
    LN_TRY(batch_input_find(in, id, bytes, &other, err));
    if (other != SIZE_MAX)
        return ln_fail(err, LN_EINVALID,
                       "the custom_id '%s' is that of request %zu too; each must occur once",
                       ln_excerpt(shown, id, bytes), other + 1);
    if (in->n >= UINT32_MAX - 1) return ln_fail(err, LN_EINVALID, "more than %u requests", UINT32_MAX - 1);
    void *p = in->offset;
    ln_status st = ln_grow(&p, &in->cap, in->n + 2, sizeof *in->offset, err);
    in->offset = p;
    LN_TRY(st);
    p = in->hash;
    st = ln_grow(&p, &in->cap_hash, in->n + 1, sizeof *in->hash, err);
    in->hash = p;
    LN_TRY(st);
    LN_TRY(reserve(in, err));
    in->offset[in->n] = offset;
    in->hash[in->n] = hash_of(id, bytes);
    in->offset[in->n + 1] = in->bytes; /* until the next line is known */
    put(in->table, in->n_table, in->hash[in->n], in->n);
    in->n++;
    return LN_OK;
}

static bool is_blank(const char *line, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

static ln_status index_line(batch_input *in, ln_lines *l, char *text, size_t bytes, uint64_t offset,
                            ln_error *err) {
    char shown[LN_PATH_TEXT];
    size_t skip = 0;
    batch_line line = {0};
    ln_status st = l->number == 1 ? ln_utf8_mark("the file", text, bytes, &skip, err) : LN_OK;
    if (st == LN_OK && is_blank(text + skip, bytes - skip)) return LN_OK;
    if (st == LN_OK) st = batch_line_read(&line, text + skip, bytes - skip, err);
    if (st == LN_OK) st = add(in, offset + skip, line.custom_id.data, line.custom_id.len, err);
    batch_line_free(&line);
    return st == LN_OK ? st
                       : ln_prefix(err, st, "%s: line %llu", ln_path_text(shown, in->path),
                                   (unsigned long long)l->number);
}

static ln_status index_lines(batch_input *in, ln_lines *l, ln_error *err) {
    char shown[LN_PATH_TEXT];
    ln_sha256 digest;
    ln_sha256_open(&digest);
    for (;;) {
        char *text;
        size_t bytes;
        uint64_t offset;
        bool whole;
        LN_TRY(ln_lines_next(l, &text, &bytes, &offset, &whole, err));
        if (!text) break;
        ln_sha256_add(&digest, text, bytes);
        if (whole) ln_sha256_add(&digest, "\n", 1);
        in->bytes = l->offset;
        if (in->n > 0) in->offset[in->n] = offset; /* the end of the line before */
        LN_TRY(index_line(in, l, text, bytes, offset, err));
        if (in->n > 0) in->offset[in->n] = in->bytes;
    }
    ln_sha256_hex(&digest, in->digest);
    if (in->n == 0)
        return ln_fail(err, LN_EINVALID, "%s: expected a request in each line, found none",
                       ln_path_text(shown, in->path));
    in->done = ln_zalloc(in->n, 1);
    return in->done ? LN_OK : LN_OOM(err, "the index of a file of requests");
}

ln_status batch_input_open(batch_input *in, const char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    struct stat st;
    ln_lines l;
    *in = (batch_input){.fd = -1, .path = path};
    in->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (in->fd < 0) return fail_errno(err, path, "open");
    if (fstat(in->fd, &st) != 0) return fail_errno(err, path, "inspect");
    if (!S_ISREG(st.st_mode))
        return ln_fail(err, LN_EINVALID,
                       "%s: expected a regular file, whose lines are read twice; save the requests to one",
                       ln_path_text(shown, path));
    const struct timespec changed = ln_os_changed(&st);
    in->changed[0] = changed.tv_sec, in->changed[1] = changed.tv_nsec;
    ln_account *outer = ln_account_enter(&in->texts);
    ln_lines_open(&l, in->fd, path, BATCH_MOST_LINE);
    ln_status status = index_lines(in, &l, err);
    const uint64_t number = l.number + 1; /* of the line that could not be read */
    ln_lines_close(&l);
    ln_account_leave(outer);
    if (status != LN_EMEMORY || in->texts.asked == 0) return status;
    (void)ln_account_error(&in->texts, status, err);
    return ln_prefix(err, status, "%s: line %llu", ln_path_text(shown, path), (unsigned long long)number);
}

void batch_input_close(batch_input *in) {
    if (in->fd >= 0) close(in->fd);
    ln_free(in->offset);
    ln_free(in->hash);
    ln_free(in->done);
    ln_free(in->table);
    ln_account_close(&in->texts);
    *in = (batch_input){.fd = -1};
}

static ln_status cannot_read(const batch_input *in, int number, ln_error *err) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    return ln_fail(err, LN_EIO, "%s: cannot read: %s", ln_path_text(shown, in->path),
                   ln_errno_text(why, number));
}

ln_status batch_input_number(const batch_input *in, size_t i, uint64_t *number, ln_error *err) {
    char text[4096], shown[LN_PATH_TEXT];
    *number = 1;
    for (uint64_t at = 0; at < in->offset[i];) {
        const ssize_t got =
            pread(in->fd, text, (size_t)LN_MIN(in->offset[i] - at, (uint64_t)sizeof text), (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(err, in->path, "read");
        if (got == 0)
            return ln_fail(err, LN_ECHANGED, "%s: was written to while it is answered",
                           ln_path_text(shown, in->path));
        for (ssize_t k = 0; k < got; k++) *number += text[k] == '\n';
        at += (uint64_t)got;
    }
    return LN_OK;
}

ln_status batch_input_line(const batch_input *in, size_t i, char **text, size_t *bytes, ln_error *err) {
    char shown[LN_PATH_TEXT];
    struct stat now;
    ln_status st = LN_OK;
    size_t n = (size_t)(in->offset[i + 1] - in->offset[i]), have = 0;
    char *buf = ln_alloc(n + 1);
    if (!buf) return LN_OOM(err, "a line");
    while (have < n) {
        ssize_t got = pread(in->fd, buf + have, n - have, (off_t)(in->offset[i] + have));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) st = cannot_read(in, errno, err);
        if (got == 0) st = ln_check_end(in->fd, in->offset[i] + have, in->path, err);
        if (got <= 0) break;
        have += (size_t)got;
    }
    if (st != LN_OK) {
        ln_free(buf);
        return st;
    }
    bool same = have == n && fstat(in->fd, &now) == 0;
    const struct timespec changed = same ? ln_os_changed(&now) : (struct timespec){0};
    same = same && changed.tv_sec == in->changed[0] && changed.tv_nsec == in->changed[1];
    if (!same) {
        ln_free(buf);
        return ln_fail(err, LN_ECHANGED, "%s: was written to while it is answered",
                       ln_path_text(shown, in->path));
    }
    buf[n] = '\0';
    *text = buf;
    *bytes = n;
    return LN_OK;
}
