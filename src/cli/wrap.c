/* Line breaking for terminals.
 *
 * The text of a page (help) is complete when it is wrapped. An answer arrives in pieces and is shown
 * immediately: a word that turns out not to fit is erased with backspaces and written again on the next
 * line. The last column stays empty, because terminals differ in how a backspace behaves there. Text that
 * would lose its meaning is not broken: fenced and indented code, rows of tables, words longer than a
 * line. Between wide characters (Chinese, Japanese, Korean) a line may be broken anywhere. */
#include "cli.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

enum { FEWEST_COLUMNS = 20 };

int terminal_columns(int fd) {
    struct winsize size;
    if (!out_is_terminal(fd) || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < FEWEST_COLUMNS) return 0;
    return size.ws_col;
}

wrap wrap_for(int fd) {
    int columns = terminal_columns(fd);
    return (wrap){.columns = columns > 0 ? columns - 1 : 0, .beginning = true};
}

int page_columns(void) {
    const char *said = getenv("COLUMNS");
    int64_t n;
    int columns = terminal_columns(STDOUT_FILENO);
    if (columns > 0) return columns;
    if (said && ln_parse_i64(said, strlen(said), &n) && n >= FEWEST_COLUMNS && n <= 10000) return (int)n;
    return out_is_tty() ? 80 : 0;
}

/* ---- pages ---- */

static int columns_of(const char *text, size_t bytes) {
    int n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* The bytes of a word of n that fit in so many columns: all, or up to a comma, slash or bar, else as many as
 * fit. */
static size_t part_that_fits(const char *word, size_t n, int columns) {
    if (columns < 1 || columns_of(word, n) <= columns) return n;
    size_t fits = 0, good = 0;
    while (columns_of(word, fits + 1) <= columns) {
        fits++;
        if (strchr(",/|", word[fits - 1])) good = fits;
    }
    return good ? good : fits;
}

void add_wrapped(ln_str *s, const char *text, size_t bytes, int at, int indent, int columns) {
    bool first = true, within = false; /* within a word that is longer than a line */
    for (size_t i = 0; i < bytes;) {
        size_t n = 0;
        while (i < bytes && (text[i] == ' ' || text[i] == '\n')) i++, within = false;
        while (i + n < bytes && text[i + n] != ' ' && text[i + n] != '\n') n++;
        if (n == 0) break;
        if (columns > 0) n = part_that_fits(text + i, n, columns - indent);
        int width = columns_of(text + i, n), gap = within ? 0 : 1;
        if (!first && columns > 0 && at + gap + width > columns) {
            ln_str_addf(s, "\n%*s", indent, "");
            at = indent;
        } else if (!first && !within) {
            ln_str_add(s, " ", 1);
            at++;
        }
        ln_str_add(s, text + i, n);
        at += width;
        first = false, within = true;
        i += n;
    }
    ln_str_add(s, "\n", 1);
}

/* Bytes of the first word of a command line: up to a blank outside quotes. */
static size_t shell_word_bytes(const char *text, size_t bytes) {
    char quote = 0;
    size_t n = 0;
    for (; n < bytes && (quote || text[n] != ' '); n++) {
        if (quote ? text[n] == quote : text[n] == '"' || text[n] == '\'') quote = quote ? 0 : text[n];
    }
    return n;
}

void add_example(ln_str *s, const char *text, size_t bytes, int columns) {
    enum { FIRST = 2, FURTHER = 4 };
    static const char more[] = " \\";
    int at = 0;
    for (size_t i = 0; i < bytes;) {
        while (i < bytes && text[i] == ' ') i++;
        size_t n = shell_word_bytes(text + i, bytes - i);
        if (n == 0) break;
        int width = columns_of(text + i, n), end = i + n < bytes ? (int)sizeof more - 1 : 0;
        if (at > 0 && columns > 0 && at + 1 + width + end > columns) {
            ln_str_addf(s, "%s\n%*s", more, FURTHER, "");
            at = FURTHER;
        } else {
            ln_str_addf(s, "%*s", at > 0 ? 1 : FIRST, "");
            at += at > 0 ? 1 : FIRST;
        }
        ln_str_add(s, text + i, n);
        at += width;
        i += n;
    }
    ln_str_add(s, "\n", 1);
}

void add_prose(ln_str *s, const char *text, int columns) {
    while (*text) {
        size_t n = strcspn(text, "\n"), more = n;
        bool prose = n > 0 && strncmp(text, "  ", 2) != 0;
        while (prose && columns > 0 && text[more] == '\n' && text[more + 1] != '\n' && text[more + 1] &&
               strncmp(text + more + 1, "  ", 2) != 0)
            more += 1 + strcspn(text + more + 1, "\n"); /* extends the paragraph by one line */
        if (prose && columns > 0) {
            add_wrapped(s, text, more, 0, 0, columns);
        } else if (n > 0 && columns > 0) {
            add_example(s, text, n, columns);
            more = n;
        } else {
            ln_str_add(s, text, n);
            ln_str_add(s, "\n", 1);
            more = n;
        }
        text += more + (text[more] == '\n');
    }
}

/* ---- answers ---- */

/* Width of a character in columns, by the C library's UTF-8 table, independently of the process's locale. */
static int cells_of(uint32_t cp) {
    static locale_t utf8;
    if (cp >= 0x20 && cp < 0x7f) return 1;
    if (utf8 == (locale_t)0) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (utf8 == (locale_t)0) return 1;
    locale_t was = uselocale(utf8);
    int cells = wcwidth((wchar_t)cp);
    (void)uselocale(was);
    return LN_MAX(cells, 0);
}

static void put(wrap *w, ln_str *out, const char *text, size_t bytes, int cells) {
    ln_str_add(out, text, bytes);
    w->column += cells;
}

static void begin_line(wrap *w, ln_str *out) {
    ln_str_add(out, "\n", 1);
    w->column = 0;
}

static void end_word(wrap *w) { w->n_word = 0, w->cells = 0; }

/* Erases the current word and writes it on a new line. */
static void move_word(wrap *w, ln_str *out) {
    for (int i = 0; i < w->cells; i++) ln_str_add(out, "\b", 1);
    for (int i = 0; i < w->cells; i++) ln_str_add(out, " ", 1);
    begin_line(w, out);
    put(w, out, w->word, w->n_word, w->cells);
}

/* Writes one character of a line that may be broken. */
static void take(wrap *w, ln_str *out, const char *text, size_t n, uint32_t cp) {
    int cells = cells_of(cp);
    bool wide = cells == 2, full = w->column + cells > w->columns;
    if (cp == ' ' || wide) end_word(w);
    if (cp == ' ' && full) return; /* the line break replaces the blank */
    if (full && wide && w->column > 0) begin_line(w, out);
    else if (full && w->cells < w->column) move_word(w, out);
    put(w, out, text, n, cells);
    if (cp == ' ' || wide) return;
    if (w->n_word + n > sizeof w->word) end_word(w);
    memcpy(w->word + w->n_word, text, n);
    w->n_word += n;
    w->cells += cells;
}

/* Decides by the beginning of a line whether it may be broken. */
static void look_at_beginning(wrap *w, uint32_t cp) {
    if (!w->beginning) return;
    w->blanks += cp == ' ';
    w->ticks += cp == '`';
    if (cp == '|' || cp == '\t' || w->blanks == 4) w->as_is = true;
    if (w->ticks == 3) w->fenced = !w->fenced, w->as_is = true;
    w->beginning = (cp == ' ' && w->ticks == 0) || (cp == '`' && w->ticks < 3);
}

void wrap_add(wrap *w, ln_str *out, const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        uint32_t cp = 0;
        int n = ln_utf8_get(text + at, bytes - at, &cp);
        if (n <= 0) n = 1;
        look_at_beginning(w, cp);
        if (cp == '\n') {
            begin_line(w, out);
            *w = (wrap){.columns = w->columns, .fenced = w->fenced, .as_is = w->fenced, .beginning = true};
        } else if (w->as_is) {
            ln_str_add(out, text + at, (size_t)n);
        } else {
            take(w, out, text + at, (size_t)n, cp);
        }
        at += (size_t)n;
    }
}
