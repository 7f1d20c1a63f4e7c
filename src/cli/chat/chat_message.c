/* Building a message from lines, and folding long texts.
 *
 * A text of several lines is shown in the edited line as a placeholder, [text 1: 12 lines, "first words"],
 * and is substituted when the line is sent. Thus a paste of a thousand lines is one message and takes one
 * line of the screen, and nothing in it (a slash, a quote, a backslash at the end of a line) is
 * interpreted as a command. */
#include "chat.h"

/* ---- folds ---- */

/* Appends the first words of a text: at most 24 characters of the first line with more than blanks and
 * quotes. */
static void first_words(ln_str *s, const char *text, size_t bytes) {
    size_t at = 0;
    uint32_t cp;
    while (at < bytes && ((unsigned char)text[at] <= ' ' || text[at] == '"')) at++;
    size_t from = at;
    for (int n = 0, step; n < 24 && at < bytes; n++, at += (size_t)step) {
        step = ln_utf8_get(text + at, bytes - at, &cp);
        if (step == 0 || cp < ' ' || cp == '"' || (cp >= 0x7f && cp < 0xa0)) break;
    }
    ln_str_add(s, text + from, at - from);
}

const char *fold_text(folds *f, const char *text, size_t bytes) {
    void *p = f->items;
    if (ln_grow(&p, &f->cap, f->n + 1, sizeof *f->items, NULL) != LN_OK) return NULL;
    f->items = p;
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    ln_str mark = {0};
    ln_str_addf(&mark, "[text %zu: %zu line%s, \"", f->n + 1, lines, lines == 1 ? "" : "s");
    first_words(&mark, text, bytes);
    ln_str_adds(&mark, "\"]");
    char *copy = ln_strndup(text, bytes);
    if (mark.failed || !copy) {
        ln_str_free(&mark);
        ln_free(copy);
        return NULL;
    }
    f->items[f->n++] = (fold){mark.data, copy, bytes};
    return mark.data;
}

/* The fold whose placeholder begins here, or NULL. */
static const fold *fold_at(const folds *f, const char *line, size_t bytes) {
    for (size_t i = 0; i < f->n && bytes > 0 && line[0] == '['; i++) {
        size_t n = strlen(f->items[i].mark);
        if (n <= bytes && memcmp(line, f->items[i].mark, n) == 0) return &f->items[i];
    }
    return NULL;
}

void fold_open(const folds *f, const char *line, size_t bytes, ln_str *out) {
    for (size_t at = 0; at < bytes;) {
        const fold *found = fold_at(f, line + at, bytes - at);
        const char *next = memchr(line + at + 1, '[', bytes - at - 1);
        size_t n = next ? (size_t)(next - (line + at)) : bytes - at;
        if (found) ln_str_add(out, found->text, found->bytes);
        else ln_str_add(out, line + at, n);
        at += found ? strlen(found->mark) : n;
    }
}

size_t fold_before(const folds *f, const char *line, size_t bytes) {
    for (size_t i = 0; i < f->n; i++) {
        size_t n = strlen(f->items[i].mark);
        if (n <= bytes && memcmp(line + bytes - n, f->items[i].mark, n) == 0) return n;
    }
    return 0;
}

void folds_free(folds *f) {
    for (size_t i = 0; i < f->n; i++) {
        ln_free(f->items[i].mark);
        ln_free(f->items[i].text);
    }
    ln_free(f->items);
    *f = (folds){0};
}

/* ---- messages ---- */

static const char more[] = "\xe2\x80\xa6 "; /* an ellipsis */
static const char quotes[] = "\"\"\"";

static bool ends_block(const ln_str *line, size_t from) {
    return line->len >= from + 3 && memcmp(line->data + line->len - 3, quotes, 3) == 0;
}

static bool continues(const ln_str *line) {
    size_t n = 0;
    while (n < line->len && line->data[line->len - 1 - n] == '\\') n++;
    return n % 2 == 1;
}

static bool is_blank(const ln_str *s) {
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i] != ' ' && s->data[i] != '\t' && s->data[i] != '\n') return false;
    return true;
}

/* Reads the lines of a block or of a continued line; *line is its first one. */
static input_event read_lines(message *m, reader *r, ln_str *line, bool *several, ln_error *err) {
    bool block = line->len >= 3 && memcmp(line->data, quotes, 3) == 0;
    size_t from = block ? 3 : 0; /* start of the text of this line */
    for (;;) {
        bool end = block ? ends_block(line, from) : !continues(line),
             mark = block == end; /* whether to remove the closing quotes or the backslash */
        size_t to = line->len - (!mark ? 0 : block ? 3 : 1);
        if (!(block && *several && end &&
              to == from)) { /* quotes alone on the last line end the line before */
            if (*several && (!block || m->text.len > 0)) ln_str_add(&m->text, "\n", 1);
            fold_open(reader_folds(r), line->data + from, to - from, &m->text);
        }
        if (end) return INPUT_TEXT;
        *several = true;
        from = 0;
        input_event h = reader_line(r, more, line, err);
        if (h == INPUT_END && !reader_is_person(r)) return INPUT_TEXT; /* the end of a pipe ends a block */
        if (h != INPUT_TEXT) return h == INPUT_LEAVE ? INPUT_BREAK : h;
    }
}

input_event message_read(message *m, reader *r, bool commands, ln_error *err) {
    ln_str line = {0};
    input_event h;
    const bool as_is = !commands && !reader_is_person(r); /* lines of a pipe that another program writes */
    for (;;) {
        bool several = false;
        m->text.len = 0;
        h = reader_line(r, "> ", &line, err);
        if (h != INPUT_TEXT) break;
        if (is_blank(&line)) continue;
        m->command = commands && line.data[0] == '/';
        bool folded = commands && line.len > 1 && line.data[0] == ' ' &&
                      line.data[1] == '/'; /* a text that begins with a slash */
        ln_str shown = {0};
        ln_str_add(&shown, line.data, line.len);
        if (folded) memmove(line.data, line.data + 1, line.len--);
        if (as_is) ln_str_add(&m->text, line.data, line.len);
        else h = read_lines(m, r, &line, &several, err);
        if (h == INPUT_TEXT && (m->text.failed || shown.failed)) h = input_error(LN_OOM(err, "a message"));
        if (h == INPUT_TEXT && !is_blank(&m->text)) {
            const char *text = several ? fold_text(reader_folds(r), m->text.data, m->text.len) : shown.data;
            if (text) reader_remember(r, text, m->text.data, m->text.len);
        }
        ln_str_free(&shown);
        if (h != INPUT_TEXT || !is_blank(&m->text)) break;
    }
    ln_str_free(&line);
    return h;
}
