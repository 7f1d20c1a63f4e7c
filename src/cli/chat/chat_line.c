/* Reading one line: with line editing (libedit) on a terminal, and unedited from a pipe or from a terminal
 * that cannot move its cursor.
 *
 * libedit provides character widths, history and key bindings. This file adds two things: libedit reads
 * characters through next_char, which polls stdin and signals_fd, so that Ctrl-C, Ctrl-Z and changes of
 * the window size are handled between two keys and never inside a signal handler; and bracketed paste
 * (ESC[200~ ... ESC[201~) is bound to take_paste. Characters are UTF-8 whatever the environment's locale
 * is: this thread uses its own locale, and nothing else in the process changes. The prompt and line
 * editing go to stderr. */
#include "chat.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { LINE_MOST = 64 << 20, INLINE_MOST = 400 /* bytes of a pasted line that is not folded */ };

struct reader {
    bool begun;                       /* a line was read: a byte order mark cannot follow */
    ln_error why;                     /* code LN_OK: nothing failed */
    bool person, broke, typed, ended; /* broke: by a signal; typed: the line was not empty then */
    EditLine *el;                     /* NULL: no line editing */
    History *history;
    FILE *screen, *nowhere;
    locale_t utf8, was;
    const char *prompt;
    char history_file[4096]; /* "": no history file */
    folds folds;
    char buf[4096];
    size_t at, n;
};

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";

/* The terminal's original settings; static, because the process may have to end in a signal handler. */
static struct termios found;
static int screen_fd = -1; /* terminal on which bracketed paste is on; -1: none */

static void to_screen(const char *text) {
    ssize_t done = write(screen_fd, text, strlen(text));
    (void)done;
}

static void put_back(void) {
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &found);
    if (screen_fd >= 0) to_screen(paste_off);
}

bool reader_is_person(const reader *r) { return r->person; }

folds *reader_folds(reader *r) { return &r->folds; }

/* Sets the terminal for the time between lines: typed keys are not echoed and are kept for the next line;
 * only Ctrl-C and Ctrl-Z have an effect. */
static void rest(const reader *r) {
    struct termios t = found;
    if (!r->person) return;
    t.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | IEXTEN);
    t.c_cc[VMIN] = 1, t.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

/* ---- bytes and signals ---- */

static const LineInfoW *line_of(const reader *r) { return el_wline(r->el); }

/* The cursor's row relative to that of the prompt, on a terminal of `columns` columns. */
static int cursor_row(const reader *r, int columns) {
    const LineInfoW *line = line_of(r);
    int row = 0, column = 0;
    for (const char *c = r->prompt; *c; c++) column += ((unsigned char)*c & 0xc0) != 0x80;
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        int w = LN_MAX(wcwidth(*c), 0);
        if (*c == L'\n' || column + w > columns) row++, column = 0;
        column += w;
    }
    return row + (column == columns);
}

/* Redraws the line from its beginning after a change of the window size, when the terminal has reflowed
 * it. */
static void draw_again(reader *r) {
    struct winsize size;
    if (ioctl(screen_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        int row = cursor_row(r, size.ws_col);
        if (row > 0) fprintf(r->screen, "\033[%dA", row);
        fputs("\r\033[J", r->screen);
        (void)fflush(r->screen);
    }
    el_resize(r->el);
    el_set(r->el, EL_REFRESH);
}

static void suspend(reader *r) {
    if (r->el) {
        el_set(r->el, EL_PREP_TERM, 0);
        to_screen(paste_off);
    }
    signals_reading(false);
    (void)raise(SIGTSTP);
    signals_reading(true);
    if (r->el) {
        to_screen(paste_on);
        to_screen("\r\033[J");
        el_set(r->el, EL_PREP_TERM, 1);
        el_set(r->el, EL_REFRESH);
    }
}

/* Notes why a pipe or file ended: at its end, or because it cannot be read. A terminal that is gone has
 * ended. */
static void end_input(reader *r, ssize_t got, int number) {
    char why[LN_ERRNO_TEXT];
    r->ended = true;
    if (r->person) return;
    const off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (got < 0) (void)ln_fail(&r->why, LN_EIO, "stdin: cannot read: %s", ln_errno_text(why, number));
    else if (at >= 0) (void)ln_check_end(STDIN_FILENO, (uint64_t)at, "stdin", &r->why);
}

/* Waits for bytes and reads them. False at the end of the input, or when a signal ends the line. */
static bool fill(reader *r) {
    struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals_fd(), .events = POLLIN}};
    for (;;) {
        if (poll(p, 2, -1) < 0 && errno != EINTR) return false;
        signals_noted now = signals_take();
        if (now.suspend) suspend(r);
        if (now.resized && r->el) draw_again(r);
        if (now.stop) {
            r->broke = true;
            return false;
        }
        if (!p[0].revents) continue;
        memmove(r->buf, r->buf + r->at, r->n - r->at);
        r->n -= r->at;
        r->at = 0;
        ssize_t got = read(STDIN_FILENO, r->buf + r->n, sizeof r->buf - r->n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) {
            end_input(r, got, errno);
            return false;
        }
        r->n += (size_t)got;
        return true;
    }
}

/* libedit's character source: returns 1 with a character, 0 when the line must end. */
static int next_char(EditLine *el, wchar_t *out) {
    reader *r;
    uint32_t cp = 0;
    el_get(el, EL_CLIENTDATA, &r);
    for (;;) {
        size_t have = r->n - r->at;
        const unsigned char *b = (const unsigned char *)r->buf + r->at;
        size_t want = have == 0 || b[0] < 0xc0 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
        int n = have ? ln_utf8_get(r->buf + r->at, have, &cp) : 0;
        if (n == 0 && have < want) {
            if (fill(r)) continue;
            r->typed = line_of(r)->lastchar > line_of(r)->buffer;
            return 0;
        }
        r->at += n ? (size_t)n : 1;
        if (n > 0 && cp == 0) continue; /* Ctrl-Space, not part of a text */
        *out = n > 0 ? (wchar_t)cp : 0xfffd;
        return 1;
    }
}

/* ---- keys ---- */

/* Handles ESC[200~: inserts everything up to ESC[201~ at once, folded when it is long. */
static unsigned char take_paste(EditLine *el, int key) {
    static const char end[] = "\033[201~";
    reader *r;
    ln_str s = {0};
    wchar_t c;
    bool cr = false, whole = false;
    (void)key;
    el_get(el, EL_CLIENTDATA, &r);
    while (!whole && s.len < LINE_MOST && el_wgetc(el, &c) == 1) {
        char utf8[4];
        if (!(c == L'\n' && cr))
            ln_str_add(&s, utf8, (size_t)ln_utf8_put(utf8, c == L'\r' ? '\n' : (uint32_t)c));
        cr = c == L'\r';
        whole = s.len >= 6 && memcmp(s.data + s.len - 6, end, 6) == 0;
    }
    if (whole) s.len -= 6;
    size_t n = 0; /* remove control characters */
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] >= ' ' || s.data[i] == '\n' || s.data[i] == '\t')
            s.data[n++] = s.data[i];
    while (n > 0 && s.data[n - 1] == '\n') n--; /* a trailing newline of a paste does not send the line */
    s.len = n;
    if (n > 0) {
        s.data[n] = '\0';
        bool folded = n > INLINE_MOST || memchr(s.data, '\n', n) || memchr(s.data, '\t', n);
        const char *text = folded ? fold_text(&r->folds, s.data, n) : s.data;
        if (s.failed || !text || el_insertstr(el, text) != 0) el_beep(el);
    }
    ln_str_free(&s);
    return whole ? CC_REFRESH : CC_EOF;
}

/* The number of characters that one backspace removes: a grapheme cluster with its accents, joiners and
 * skin tones. */
static int cluster(const wchar_t *s, size_t n) {
    size_t i = n, flags = 0;
    do i--;
    while (i > 0 && (wcwidth(s[i]) == 0 || (s[i] >= 0x1f3fb && s[i] <= 0x1f3ff) || s[i - 1] == 0x200d));
    for (size_t k = i + 1; k > 0 && s[k - 1] >= 0x1f1e6 && s[k - 1] <= 0x1f1ff; k--) flags++;
    if (flags > 0 && flags % 2 == 0) i--; /* two regional indicators make a flag */
    return (int)(n - i);
}

static unsigned char erase(EditLine *el, int key) {
    reader *r;
    (void)key;
    el_get(el, EL_CLIENTDATA, &r);
    const LineInfo *bytes = el_line(el);
    size_t mark = fold_before(&r->folds, bytes->buffer, (size_t)(bytes->cursor - bytes->buffer));
    int chars = 0;
    for (size_t i = 0; i < mark; i++)
        chars += ((unsigned char)bytes->cursor[-1 - (ptrdiff_t)i] & 0xc0) != 0x80;
    const LineInfoW *line = line_of(r);
    if (line->cursor == line->buffer) return CC_ERROR;
    el_deletestr(el, mark ? chars : cluster(line->buffer, (size_t)(line->cursor - line->buffer)));
    return CC_REFRESH;
}

static unsigned char new_line(EditLine *el, int key) {
    (void)key;
    return el_insertstr(el, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

static char *prompt_of_line(EditLine *el) {
    reader *r;
    el_get(el, EL_CLIENTDATA, &r);
    return (char *)(uintptr_t)r->prompt;
}

/* ---- opening and closing ---- */

static void bind_keys(EditLine *el) {
    static const char *const keys[][2] = {{"\\e[200~", "linnet-paste"}, {"^?", "linnet-erase"},
                                          {"^H", "linnet-erase"},       {"\\e^M", "linnet-newline"},
                                          {"\\e^J", "linnet-newline"},  {"^W", "ed-delete-prev-word"},
                                          {"^R", "em-inc-search-prev"}, {"\\e[3~", "ed-delete-next-char"},
                                          {"\\e[1~", "ed-move-to-beg"}, {"\\e[4~", "ed-move-to-end"},
                                          {"\\e[H", "ed-move-to-beg"},  {"\\e[F", "ed-move-to-end"},
                                          {"\\eOH", "ed-move-to-beg"},  {"\\eOF", "ed-move-to-end"},
                                          {"\\e[1;5D", "ed-prev-word"}, {"\\e[1;5C", "em-next-word"},
                                          {"^I", "ed-insert"}};
    el_set(el, EL_ADDFN, "linnet-paste", "Take a bracketed paste", take_paste);
    el_set(el, EL_ADDFN, "linnet-erase", "Delete what stands before the cursor", erase);
    el_set(el, EL_ADDFN, "linnet-newline", "Begin a new line of the same message", new_line);
    for (size_t i = 0; i < LN_COUNT(keys); i++) el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static void close_editing(reader *r) {
    if (r->el) el_end(r->el);
    if (r->history) history_end(r->history);
    if (r->screen) (void)fclose(r->screen);
    if (r->nowhere) (void)fclose(r->nowhere);
    if (r->utf8 != (locale_t)0) {
        (void)uselocale(r->was);
        freelocale(r->utf8);
    }
    r->el = NULL, r->history = NULL, r->screen = r->nowhere = NULL, r->utf8 = (locale_t)0;
}

/* Enables line editing if the terminal can move its cursor up and a UTF-8 locale exists. */
static void open_editing(reader *r) {
    const char *term = getenv("TERM");
    char *up = NULL;
    HistEvent event;
    int fd = isatty(STDERR_FILENO) ? STDERR_FILENO : isatty(STDOUT_FILENO) ? STDOUT_FILENO : -1;
    if (fd < 0 || !term || !term[0] || strcmp(term, "dumb") == 0) return;
    r->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (r->utf8 == (locale_t)0) return;
    r->was = uselocale(r->utf8);
    int copy = dup(fd);
    r->screen = copy >= 0 ? fdopen(copy, "w") : NULL;
    r->nowhere = fopen("/dev/null", "w"); /* discards libedit's warning about unknown terminals */
    r->history = history_init();
    if (r->screen && r->nowhere && r->history) {
        (void)setvbuf(r->screen, NULL, _IOFBF, 1 << 14); /* shows a line with a single write */
        r->el = el_init("linnet", stdin, r->screen, r->nowhere);
    }
    if (!r->el || el_get(r->el, EL_GETTC, "up", &up, NULL) != 0 || !up || !up[0]) {
        close_editing(r);
        return;
    }
    screen_fd = fd;
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_PROMPT, prompt_of_line);
    el_set(r->el, EL_GETCFN, next_char);
    (void)history(r->history, &event, H_SETSIZE, HISTORY_MOST);
    (void)history(r->history, &event, H_SETUNIQUE, 1);
    el_set(r->el, EL_HIST, history, r->history);
    bind_keys(r->el);
    to_screen(paste_on);
}

static void enter(void *user, const char *text, size_t bytes) {
    reader *r = user;
    HistEvent event;
    const char *shown = memchr(text, '\n', bytes) ? fold_text(&r->folds, text, bytes) : NULL;
    char *copy = shown ? NULL : ln_strndup(text, bytes);
    if (shown || copy) (void)history(r->history, &event, H_ENTER, shown ? shown : copy);
    ln_free(copy);
}

ln_status reader_open(reader **out, bool keep, ln_error *err) {
    ln_error why = {0};
    reader *r = *out = ln_zalloc(1, sizeof *r);
    if (!r) return LN_OOM(err, "a reader of lines");
    if (signals_fd() < 0) return ln_fail(err, LN_EIO, "chat: no descriptor is left for a pipe");
    signals_note(true);
    r->person = tcgetattr(STDIN_FILENO, &found) == 0;
    if (r->person) signals_restore(put_back);
    if (r->person) open_editing(r);
    rest(r);
    if (!r->el || !keep) return LN_OK;
    ln_status st = history_path(r->history_file, sizeof r->history_file, &why);
    if (st == LN_OK && r->history_file[0]) st = history_read(r->history_file, enter, r, &why);
    if (st != LN_OK) { /* a chat works without a history */
        note("%s; going on without it", why.message);
        r->history_file[0] = '\0';
    }
    return LN_OK;
}

void reader_close(reader **closed) {
    reader *r = *closed;
    if (!r) return;
    close_editing(r);
    if (r->person) put_back();
    signals_restore(NULL);
    signals_note(false);
    folds_free(&r->folds);
    ln_free(r);
    *closed = NULL;
}

void reader_remember(reader *r, const char *shown, const char *text, size_t bytes) {
    ln_error why = {0};
    HistEvent event;
    if (!r->el) return;
    bool again = history(r->history, &event, H_FIRST) == 0 && strcmp(event.str, shown) == 0;
    (void)history(r->history, &event, H_ENTER, shown);
    if (again || !r->history_file[0] || bytes > HISTORY_ENTRY_MOST || memchr(text, '\0', bytes)) return;
    if (history_add(r->history_file, text, bytes, &why) == LN_OK) return;
    note("%s; going on without it", why.message);
    r->history_file[0] = '\0';
}

/* ---- lines ---- */

static input_event edited_line(reader *r, ln_str *out) {
    int n = 0;
    const char *line = el_gets(r->el, &n);
    if (line && n > 0) {
        ln_str_add(out, line, (size_t)n - (line[n - 1] == '\n'));
        return INPUT_TEXT;
    }
    to_screen(r->broke ? "^C\n" : "\n");
    return r->broke ? r->typed ? INPUT_BREAK : INPUT_LEAVE : INPUT_END;
}

static void to_person(const reader *r, const char *text) {
    ssize_t done = r->person ? write(STDERR_FILENO, text, strlen(text)) : 0;
    (void)done;
}

static input_event plain_line(reader *r, ln_str *out, ln_error *err) {
    to_person(r, r->prompt);
    for (;;) {
        char *from = r->buf + r->at, *end = memchr(from, '\n', r->n - r->at);
        size_t n = end ? (size_t)(end - from) : r->n - r->at;
        if (n > LINE_MOST - out->len)
            return input_error(ln_fail(err, LN_EINVALID, "stdin: a line of more than %d bytes", LINE_MOST));
        ln_str_add(out, from, n);
        r->at += n + (end != NULL);
        if (out->failed) return input_error(LN_OOM(err, "a line"));
        const bool more = !end && fill(r);
        if (r->why.code != LN_OK) return input_error(ln_fail(err, r->why.code, "%s", r->why.message));
        if (end || (!more && !r->broke && out->len > 0)) break;
        if (!r->broke && !r->ended) continue;
        to_person(r, "\n");
        return r->ended ? INPUT_END : out->len > 0 ? INPUT_BREAK : INPUT_LEAVE;
    }
    if (out->len > 0 && out->data[out->len - 1] == '\r') out->data[--out->len] = '\0';
    return INPUT_TEXT;
}

input_event reader_line(reader *r, const char *prompt, ln_str *out, ln_error *err) {
    r->prompt = prompt;
    r->broke = r->typed = false;
    if (r->person) r->ended = false; /* on a terminal, end of input is a key */
    out->len = 0;
    if (r->el) el_set(r->el, EL_PREP_TERM, 1);
    else if (r->person) (void)tcsetattr(STDIN_FILENO, TCSANOW, &found);
    signals_reading(true);
    input_event h = r->el ? edited_line(r, out) : plain_line(r, out, err);
    signals_reading(false);
    rest(r);
    if (h == INPUT_TEXT) {
        ln_str_add(out, "", 0);
        if (out->failed) return input_error(LN_OOM(err, "a line"));
        size_t skip = 0;
        if (!r->begun && ln_utf8_mark("stdin", out->data, out->len, &skip, err) != LN_OK) return INPUT_ERROR;
        memmove(out->data, out->data + skip, out->len - skip + 1);
        out->len -= skip;
        r->begun = true;
        size_t good = ln_utf8_valid(out->data, out->len);
        if (good < out->len) {
            char found_text[80];
            return input_error(ln_fail(err, LN_EINVALID,
                                       "stdin: byte %zu of the line: expected UTF-8, found '%s'", good,
                                       ln_excerpt(found_text, out->data + good,
                                                  LN_MIN(out->len - good, (size_t)4))));
        }
    }
    if ((h == INPUT_BREAK || h == INPUT_LEAVE) && signals_seen() != SIGINT)
        return INPUT_END; /* SIGTERM, SIGHUP */
    return h;
}
