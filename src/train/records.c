/* Splits files of training data into samples. */
#include "records.h"

#include <stdio.h>
#include <string.h>

enum { MOST_RECORD = 16 << 20, MOST_COLUMNS = 1000 };

void train_records_open(train_records *r, int fd, const char *path) {
    *r = (train_records){.layout = TRAIN_LINES};
    ln_lines_open(&r->lines, fd, path, MOST_RECORD);
    ln_sha256_open(&r->digest);
}

void train_records_close(train_records *r) {
    ln_lines_close(&r->lines);
    ln_str_free(&r->text);
    ln_str_free(&r->names);
    ln_str_free(&r->cells);
}

/* Counts bytes that were read in the digest and passes over them. */
static void pass(train_records *r, const char *data, size_t bytes) {
    ln_sha256_add(&r->digest, data, bytes);
    ln_lines_skip(&r->lines, bytes);
}

static ln_status bad_file(const train_records *r, ln_error *err, const char *expected) {
    char shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s:%llu: expected %s", ln_path_text(shown, r->lines.path),
                   (unsigned long long)r->lines.number + 1, expected);
}

static ln_status too_long(const train_records *r, ln_error *err) {
    char shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s:%llu: the sample that begins here is longer than %d bytes",
                   ln_path_text(shown, r->lines.path), (unsigned long long)r->line, MOST_RECORD);
}

/* ---- which layout ---- */

static bool ends_with(const char *path, const char *end) {
    const size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

/* LN_EUNSUPPORTED for files that are data sets in another format. */
static ln_status check_magic(const train_records *r, const char *data, size_t bytes, ln_error *err) {
    static const struct {
        const char *magic, *name, *hint;
    } others[] = {{"\x1f\x8b", "gzip", "; unpack it: gzip -dk FILE"},
                  {"PAR1", "Parquet",
                   "; convert it: python3 -c \"import pandas; pandas.read_parquet('FILE')"
                   ".to_json('FILE.jsonl', orient='records', lines=True)\""},
                  {"\x28\xb5\x2f\xfd", "zstd", "; unpack it: zstd -d FILE"},
                  {"PK\3\4", "zip", "; unpack it"},
                  {"\xfd"
                   "7zXZ",
                   "xz", "; unpack it: xz -dk FILE"},
                  {"ARROW1", "Arrow", "; save it as JSONL: dataset.to_json('FILE.jsonl')"}};
    char shown[LN_PATH_TEXT];
    for (size_t i = 0; i < LN_COUNT(others); i++) {
        const size_t n = strlen(others[i].magic);
        if (bytes >= n && memcmp(data, others[i].magic, n) == 0)
            return ln_fail(err, LN_EUNSUPPORTED, "%s: is %s data; expected JSONL, a JSON array, or CSV%s",
                           ln_path_text(shown, r->lines.path), others[i].name, others[i].hint);
    }
    return LN_OK;
}

static bool is_white(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Looks at the beginning of the file: a byte order mark is passed over, the first character decides the
 * layout, and the name decides that a file is a table. */
static ln_status begin(train_records *r, ln_error *err) {
    const char *data, *path = r->lines.path;
    size_t bytes, skip = 0, at = 0;
    r->began = true;
    LN_TRY(ln_lines_held(&r->lines, &data, &bytes, err));
    LN_TRY(check_magic(r, data, bytes, err));
    LN_TRY(ln_utf8_mark(path, data, bytes, &skip, err));
    if (skip) ln_log(LN_LOG_INFO, "%s: begins with a byte order mark, which is skipped", path);
    for (at = skip; at < bytes && is_white(data[at]);) at++;
    const bool table = ends_with(path, ".csv") || ends_with(path, ".tsv");
    if (at < bytes && data[at] == '[') {
        r->layout = TRAIN_ARRAY;
        pass(r, data, at + 1);
    } else if (table && (at == bytes || data[at] != '{')) {
        r->layout = TRAIN_TABLE;
        pass(r, data, skip);
    } else pass(r, data, skip);
    return LN_OK;
}

/* ---- lines ---- */

static ln_status next_line(train_records *r, char **text, size_t *bytes, ln_error *err) {
    uint64_t offset;
    bool whole;
    LN_TRY(ln_lines_next(&r->lines, text, bytes, &offset, &whole, err));
    r->line = r->lines.number;
    if (!*text) return LN_OK;
    ln_sha256_add(&r->digest, *text, *bytes);
    if (whole) ln_sha256_add(&r->digest, "\n", 1);
    return LN_OK;
}

/* ---- an array ---- */

/* Passes over white space; *c becomes the character behind it, which is not passed over, or 0 at the end. */
static ln_status next_mark(train_records *r, char *c, ln_error *err) {
    for (;;) {
        const char *data;
        size_t bytes, at = 0;
        LN_TRY(ln_lines_held(&r->lines, &data, &bytes, err));
        while (at < bytes && is_white(data[at])) at++;
        *c = at < bytes ? data[at] : '\0';
        const bool found = at < bytes || bytes == 0;
        pass(r, data, at);
        if (found) return LN_OK;
    }
}

/* The state of a value whose end is looked for. */
typedef struct value_end {
    int depth;
    bool text, escaped, found;
} value_end;

/* Whether character c is behind the value. Brackets are counted only: what is between them is read later. */
static bool is_behind(value_end *v, char c) {
    if (v->text) {
        if (v->escaped) v->escaped = false;
        else if (c == '\\') v->escaped = true;
        else if (c == '"') v->text = false;
        return false;
    }
    if (v->depth == 0 && (c == ',' || c == ']' || is_white(c))) return true;
    if (c == '"') v->text = true;
    else if (c == '{' || c == '[') v->depth++;
    else if ((c == '}' || c == ']') && v->depth > 0) v->depth--;
    return false;
}

/* Reads a value up to the character behind it. */
static ln_status read_value(train_records *r, ln_error *err) {
    value_end v = {0};
    while (!v.found) {
        const char *data;
        size_t bytes, at = 0;
        LN_TRY(ln_lines_held(&r->lines, &data, &bytes, err));
        if (bytes == 0) return LN_OK;
        while (at < bytes && !v.found) {
            v.found = is_behind(&v, data[at]);
            at += !v.found;
        }
        ln_str_add(&r->text, data, at);
        if (r->text.failed) return LN_OOM(err, "a sample");
        if (r->text.len > MOST_RECORD) return too_long(r, err);
        pass(r, data, at);
    }
    return LN_OK;
}

static ln_status next_item(train_records *r, char **text, size_t *bytes, ln_error *err) {
    const bool first = r->text.len == 0;
    char c;
    LN_TRY(next_mark(r, &c, err));
    if (r->ended || (c == ']' && !r->ended)) {
        if (!r->ended) pass(r, "]", 1);
        r->ended = true;
        LN_TRY(next_mark(r, &c, err));
        *text = NULL;
        return c == '\0' ? LN_OK : bad_file(r, err, "the end of the file after the array");
    }
    if (!first) {
        if (c != ',')
            return bad_file(r, err, c ? "a comma or ] after an item" : "], found the end of the file");
        pass(r, ",", 1);
        LN_TRY(next_mark(r, &c, err));
    }
    if (c == '\0' || c == ']' || c == ',') return bad_file(r, err, "an item of the array");
    r->line = r->lines.number + 1;
    r->text.len = 0;
    LN_TRY(read_value(r, err));
    *text = r->text.data, *bytes = r->text.len;
    return LN_OK;
}

/* ---- a table ---- */

/* Reads a row into r->cells; *n: its cells, 0 at the end of the file. Cells in quotes may have separators,
 * line breaks and doubled quotes (RFC 4180). */
static ln_status read_row(train_records *r, size_t *n, ln_error *err) {
    bool quoted = false, closed = false, any = false, done = false;
    const uint64_t line = r->lines.number + 1;
    r->cells.len = *n = 0;
    r->line = line;
    while (!done) {
        const char *data;
        size_t bytes, at = 0;
        LN_TRY(ln_lines_held(&r->lines, &data, &bytes, err));
        if (bytes == 0) break;
        for (; at < bytes && !done; at++) {
            const char c = data[at];
            const size_t from = r->cells.len;
            const bool empty = from == 0 || r->cells.data[from - 1] == '\0';
            any = any || (c != '\r' && c != '\n');
            if (c == '\0') return bad_file(r, err, "text, found a NUL byte");
            if (quoted && c == '"') quoted = false, closed = true;
            else if (quoted) ln_str_add(&r->cells, &c, 1);
            else if (c == '"' && closed) ln_str_add(&r->cells, &c, 1), quoted = true, closed = false;
            else if (c == '"' && empty) quoted = true;
            else if (c == r->separator || c == '\n') {
                if (c == '\n' && !closed && from > 0 && r->cells.data[from - 1] == '\r') r->cells.len--;
                ln_str_add(&r->cells, "", 1);
                ++*n, closed = false, done = c == '\n';
            } else if (!(closed && c == '\r')) ln_str_add(&r->cells, &c, 1);
        }
        if (r->cells.failed) return LN_OOM(err, "a row");
        if (r->cells.len > MOST_RECORD) return too_long(r, err);
        pass(r, data, at);
    }
    if (quoted) return bad_file(r, err, "a quote that ends the cell, found the end of the file");
    if (!done && any) ln_str_add(&r->cells, "", 1), ++*n;
    if (!any && *n > 0) r->cells.len = 0, *n = SIZE_MAX; /* a blank line */
    return r->cells.failed ? LN_OOM(err, "a row") : LN_OK;
}

/* The separator of a table is the one of the usual characters that its first line has most often. */
static ln_status find_separator(train_records *r, ln_error *err) {
    static const char usual[] = ",;\t|";
    const char *data;
    char best = ',';
    size_t bytes, most = 0;
    LN_TRY(ln_lines_held(&r->lines, &data, &bytes, err));
    const char *end = memchr(data, '\n', bytes);
    r->separator = ends_with(r->lines.path, ".tsv") ? '\t' : ',';
    for (const char *u = usual; r->separator != '\t' && *u; u++) {
        size_t n = 0;
        for (const char *p = data; p < (end ? end : data + bytes); p++) n += *p == *u;
        if (n > most) most = n, best = *u;
    }
    if (r->separator == ',') r->separator = best;
    return LN_OK;
}

static ln_status read_names(train_records *r, ln_error *err) {
    LN_TRY(find_separator(r, err));
    do LN_TRY(read_row(r, &r->n_columns, err));
    while (r->n_columns == SIZE_MAX);
    if (r->n_columns > MOST_COLUMNS) return bad_file(r, err, "at most 1000 columns");
    ln_str_add(&r->names, r->cells.data, r->cells.len);
    const char *name = r->names.data;
    if (!r->names.failed && ln_utf8_valid(name, r->names.len) != r->names.len)
        return bad_file(r, err, "UTF-8 in the first line, found other bytes");
    for (size_t i = 0; !r->names.failed && i < r->n_columns; i++, name += strlen(name) + 1)
        if (!name[0])
            return bad_file(r, err, "the name of each column in the first line, found an empty one");
    return r->names.failed ? LN_OOM(err, "a table") : LN_OK;
}

/* Members that are lists or objects: their cells hold JSON. */
static bool holds_json(const char *name, const char *cell) {
    static const char *const lists[] = {"messages", "conversations", "conversation", "tools",
                                        "history",  "ids",           "mask",         "input_ids",
                                        "labels",   "attention_mask"};
    for (size_t i = 0; i < LN_COUNT(lists); i++)
        if (strcmp(name, lists[i]) == 0) return cell[0] == '[';
    return false;
}

static ln_status next_row(train_records *r, char **text, size_t *bytes, ln_error *bad, ln_error *err) {
    size_t n = 0;
    *text = NULL;
    if (r->names.len == 0) LN_TRY(read_names(r, err));
    do LN_TRY(read_row(r, &n, err));
    while (n == SIZE_MAX);
    if (n == 0) return LN_OK;
    const char *name = r->names.data, *cell = r->cells.data;
    r->text.len = 0;
    if (n != r->n_columns)
        (void)ln_fail(bad, LN_EINVALID, "expected %zu cells, as the first line has, found %zu", r->n_columns,
                      n);
    else if (ln_utf8_valid(cell, r->cells.len) != r->cells.len)
        (void)ln_fail(bad, LN_EINVALID, "expected UTF-8, found other bytes");
    for (size_t i = 0; bad->code == LN_OK && i < n; i++) {
        ln_str_adds(&r->text, i ? "," : "{");
        ln_str_json(&r->text, name, strlen(name));
        ln_str_adds(&r->text, ":");
        if (holds_json(name, cell)) ln_str_adds(&r->text, cell);
        else ln_str_json(&r->text, cell, strlen(cell));
        name += strlen(name) + 1, cell += strlen(cell) + 1;
    }
    ln_str_adds(&r->text, "}");
    *text = r->text.data, *bytes = r->text.len;
    return r->text.failed ? LN_OOM(err, "a sample") : LN_OK;
}

ln_status train_records_next(train_records *r, char **text, size_t *bytes, ln_error *bad, ln_error *err) {
    bad->code = LN_OK;
    if (!r->began) LN_TRY(begin(r, err));
    switch (r->layout) {
    case TRAIN_ARRAY: return next_item(r, text, bytes, err);
    case TRAIN_TABLE: return next_row(r, text, bytes, bad, err);
    default: return next_line(r, text, bytes, err);
    }
}
