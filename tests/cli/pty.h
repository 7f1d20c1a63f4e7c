/* A user at a terminal: runs the command behind a pseudo-terminal and emulates its screen.
 *
 * The emulation supports what libedit sends to an xterm: cursor movement, erasing, inserting and deleting,
 * wide characters, wrapping at the margin. Character widths come from a small table here, not from the C
 * library that the command uses. All output is also kept in `raw`: `until` waits for a text in the output
 * since the last `until`; `until_row` waits for new output and for the content of the cursor's row. */
#ifndef LN_TESTS_PTY_H
#define LN_TESTS_PTY_H

#include "spawn.h"

#include <pty.h>
#include <termios.h>
#include <utmp.h>

enum { MOST_ROWS = 50, MOST_COLUMNS = 200, WAIT_SECONDS = 60 };

static struct terminal {
    int fd;
    pid_t pid;
    struct termios before; /* settings before the command started */
    int rows, columns, row, column;
    bool wrap; /* the last column holds a character: the next character begins a new row */
    uint32_t cell[MOST_ROWS][MOST_COLUMNS]; /* 0: empty; 1: the right half of a wide character */
    ln_str raw;
    size_t mark;   /* offset in `raw` from which the next `until` searches */
    char held[64]; /* an incomplete escape sequence or character */
    size_t n_held;
} tty;

static int width_of(uint32_t cp) {
    if ((cp >= 0x300 && cp < 0x370) || cp == 0x200d || (cp >= 0xfe00 && cp <= 0xfe0f)) return 0;
    return (cp >= 0x1100 && cp < 0x1160) || (cp >= 0x2e80 && cp < 0xa4d0) || (cp >= 0xac00 && cp < 0xd7a4) ||
                   (cp >= 0xff00 && cp < 0xff61) || (cp >= 0x1f300 && cp < 0x1fb00)
               ? 2
               : 1;
}

static void next_row(void) {
    if (tty.row + 1 < tty.rows) {
        tty.row++;
        return;
    }
    memmove(tty.cell[0], tty.cell[1], sizeof tty.cell[0] * (size_t)(tty.rows - 1));
    memset(tty.cell[tty.rows - 1], 0, sizeof tty.cell[0]);
}

static void show(uint32_t cp) {
    int w = width_of(cp);
    if (w == 0) return;
    if (tty.wrap || tty.column + w > tty.columns) {
        tty.column = 0;
        next_row();
    }
    tty.cell[tty.row][tty.column] = cp;
    if (w == 2) tty.cell[tty.row][tty.column + 1] = 1;
    tty.wrap = tty.column + w >= tty.columns;
    tty.column = tty.wrap ? tty.columns - 1 : tty.column + w;
}

static void clear(int row, int from, int to) {
    for (int i = from; i < to; i++) tty.cell[row][i] = 0;
}

static void obey(char final, int n, int second) {
    uint32_t *line = tty.cell[tty.row];
    int k = LN_MAX(n, 1), left = tty.columns - tty.column;
    tty.wrap = tty.wrap && final == 'm';
    switch (final) {
    case 'A': tty.row = LN_MAX(0, tty.row - k); break;
    case 'B': tty.row = LN_MIN(tty.rows - 1, tty.row + k); break;
    case 'C': tty.column = LN_MIN(tty.columns - 1, tty.column + k); break;
    case 'D': tty.column = LN_MAX(0, tty.column - k); break;
    case 'G': tty.column = k - 1; break;
    case 'H': tty.row = k - 1, tty.column = LN_MAX(second, 1) - 1; break;
    case 'd': tty.row = k - 1; break;
    case 'K': clear(tty.row, n == 0 ? tty.column : 0, n == 1 ? tty.column + 1 : tty.columns); break;
    case 'J':
        clear(tty.row, n == 2 ? 0 : tty.column, tty.columns);
        for (int r = n == 2 ? 0 : tty.row + 1; r < tty.rows; r++) clear(r, 0, tty.columns);
        break;
    case 'P':
        memmove(line + tty.column, line + tty.column + LN_MIN(k, left),
                sizeof *line * (size_t)(left - LN_MIN(k, left)));
        clear(tty.row, tty.columns - LN_MIN(k, left), tty.columns);
        break;
    case '@':
        memmove(line + tty.column + LN_MIN(k, left), line + tty.column,
                sizeof *line * (size_t)(left - LN_MIN(k, left)));
        clear(tty.row, tty.column, tty.column + LN_MIN(k, left));
        break;
    case 'm':
    case 'h':
    case 'l': break;
    default: fail_msg("the terminal does not know ESC [ %c", final);
    }
}

/* Executes the held sequence or character if it is complete; returns false if it is not. */
static bool take_held(void) {
    unsigned char c = (unsigned char)tty.held[0];
    char *s = tty.held;
    if (c == 033) {
        if (tty.n_held < 2) return false;
        if (s[1] != '[') return tty.n_held >= (s[1] == '(' ? 3 : 2);
        char final = s[tty.n_held - 1];
        if (tty.n_held < 3 || final < '@' || final > '~') return tty.n_held == sizeof tty.held;
        int value[2] = {0, 0}, at = 0;
        for (size_t i = 2; i + 1 < tty.n_held; i++) {
            if (s[i] == ';' && at == 0) at = 1;
            else if (s[i] >= '0' && s[i] <= '9') value[at] = value[at] * 10 + (s[i] - '0');
        }
        obey(final, value[0], value[1]);
        return true;
    }
    if (c == '\r') tty.column = 0, tty.wrap = false;
    else if (c == '\n') next_row(), tty.wrap = false;
    else if (c == '\b') tty.column = LN_MAX(0, tty.column - 1), tty.wrap = false;
    else if (c == '\t') tty.column = LN_MIN(tty.columns - 1, (tty.column / 8 + 1) * 8);
    if (c < ' ') return true;
    uint32_t cp;
    if (ln_utf8_get(s, tty.n_held, &cp) == 0) {
        if (tty.n_held == 4) fail_msg("no UTF-8 on the screen");
        return false;
    }
    show(cp);
    return true;
}

/* Reads the output of up to `ms` milliseconds; false at the end of the output. */
static bool pump(int ms) {
    struct pollfd p = {.fd = tty.fd, .events = POLLIN};
    char buf[4096];
    if (poll(&p, 1, ms) <= 0) return true;
    ssize_t n = read(tty.fd, buf, sizeof buf);
    if (n <= 0) return false;
    ln_str_add(&tty.raw, buf, (size_t)n);
    for (ssize_t i = 0; i < n; i++) {
        tty.held[tty.n_held++] = buf[i];
        if (take_held()) tty.n_held = 0;
    }
    return true;
}

/* The text of row `row` of the screen (0 or negative: relative to the cursor's row), without trailing
 * spaces. Valid until the next call. */
static const char *row_text(int row) {
    static char text[MOST_COLUMNS * 4 + 1];
    size_t n = 0, last_ink = 0;
    int r = row <= 0 ? tty.row + row : row;
    for (int i = 0; i < tty.columns; i++) {
        uint32_t cp = tty.cell[r][i];
        if (cp == 1) continue;
        n += (size_t)ln_utf8_put(text + n, cp ? cp : ' ');
        if (cp && cp != ' ') last_ink = n;
    }
    text[last_ink] = '\0';
    return text;
}

static void show_and_fail(const char *why, const char *what) {
    for (int r = 0; r < tty.rows; r++) print_message("|%s\n", row_text(r == 0 ? -tty.row : r));
    fail_msg("%s: %s", why, what);
}

static void until(const char *text) {
    double end = ln_now() + WAIT_SECONDS;
    for (;;) {
        const char *hit =
            tty.raw.data ? memmem(tty.raw.data + tty.mark, tty.raw.len - tty.mark, text, strlen(text)) : NULL;
        if (hit) {
            tty.mark = (size_t)(hit - tty.raw.data) + strlen(text);
            return;
        }
        if (ln_now() > end || !pump(100)) show_and_fail("never came", text);
    }
}

/* Waits until the cursor's row is `text` and the cursor is at `column`. */
static void until_row(const char *text, int column) {
    double end = ln_now() + WAIT_SECONDS;
    while (tty.raw.len == tty.mark || strcmp(row_text(0), text) != 0 || tty.column != column) {
        if (ln_now() > end || !pump(100)) show_and_fail("the row never was", text);
    }
    tty.mark = tty.raw.len;
}
static void until_prompt(void) { until_row(">", 2); }

static void type(const char *keys) {
    for (size_t n = strlen(keys); n > 0;) {
        ssize_t done = write(tty.fd, keys, LN_MIN(n, (size_t)512));
        assert_true(done > 0);
        keys += done;
        n -= (size_t)done;
        if (n > 0)
            (void)pump(0); /* reads output at the same time, so that neither side blocks on a full buffer */
    }
}

static void resize(int rows, int columns) {
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    tty.rows = rows, tty.columns = columns;
    tty.row = LN_MIN(tty.row, rows - 1);
    assert_int_equal(ioctl(tty.fd, TIOCSWINSZ, &size), 0);
}

static int wide = 80; /* width, in columns, of the next terminal */

/* Starts `linnet ARGS...` in a terminal of type `term`. */
static void sit_down(const char *term, char *const argv[]) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)wide};
    char state[100];
    int slave;
    ln_str_free(&tty.raw);
    memset(&tty, 0, sizeof tty);
    tty.rows = 24, tty.columns = wide;
    (void)snprintf(state, sizeof state, "%s/state", dir);
    assert_int_equal(openpty(&tty.fd, &slave, NULL, NULL, &size), 0);
    assert_int_equal(tcgetattr(slave, &tty.before), 0);
    tty.pid = fork();
    assert_true(tty.pid >= 0);
    if (tty.pid == 0) {
        if (login_tty(slave) != 0) _exit(97);
        close(tty.fd);
        set_limits();
        setenv("TERM", term, 1);
        setenv("XDG_STATE_HOME", state, 1);
        setenv("LSAN_OPTIONS", "print_suppressions=0:suppressions=" LN_ROOT "/tests/cli/libedit.supp", 1);
        setenv("LC_ALL", "C", 1); /* line editing uses UTF-8 nevertheless */
        if (before_exec) before_exec();
        execvp(program, argv);
        _exit(98);
    }
    close(slave);
}

/* Reads all output to its end and returns the exit code. */
static int stand_up(void) {
    double end = ln_now() + WAIT_SECONDS;
    while (pump(100))
        if (ln_now() > end) show_and_fail("never ended", "");
    close(tty.fd);
    return finish(tty.pid);
}

#define SIT(term, ...) \
    sit_down(term, (char *const[]){(char[]){"linnet"}, (char[]){"chat"}, __VA_ARGS__, NULL})

#endif
