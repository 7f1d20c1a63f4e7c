/* Wrapping of lines between words: streamed answers and help pages, at terminals of several widths. */
/* run: slow */
#include "pty.h"

#include "cli/wrap.c"

bool out_is_tty(void) { return false; } /* defined in output.c, as the next one; used by wrap.c */
bool out_is_terminal(int fd) { return isatty(fd); }

/* ---- an answer, streamed in pieces ---- */

/* Returns what a terminal shows of an output with backspaces, without spaces at the ends of lines. The
 * caller frees it. */
static char *shown(const char *text) {
    ln_str out = {0};
    uint32_t line[400];
    for (size_t n = strlen(text), at = 0; at <= n;) {
        size_t end = 0, cursor = 0;
        for (uint32_t cp = 0; at < n && text[at] != '\n';
             at += (size_t)LN_MAX(1, ln_utf8_get(text + at, n - at, &cp))) {
            if (text[at] == '\b') {
                assert_true(cursor > 0);
                cursor--;
                continue;
            }
            assert_true(ln_utf8_get(text + at, n - at, &cp) > 0 && cursor < LN_COUNT(line));
            line[cursor++] = cp;
            end = LN_MAX(end, cursor);
        }
        while (end > 0 && line[end - 1] == ' ') end--;
        for (size_t i = 0; i < end; i++) {
            char bytes[4];
            ln_str_add(&out, bytes, (size_t)ln_utf8_put(bytes, line[i]));
        }
        if (at < n) ln_str_add(&out, "\n", 1);
        at++;
    }
    ln_str_add(&out, "", 1);
    assert_false(out.failed);
    return out.data;
}

static char *wrapped(int columns, const char *text, size_t piece) {
    wrap w = {.columns = columns, .beginning = true};
    ln_str out = {0};
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t k = LN_MIN(piece, n - at);
        while (at + k < n && ((unsigned char)text[at + k] & 0xc0) == 0x80)
            k++; /* a piece has whole characters */
        wrap_add(&w, &out, text + at, k);
        at += k;
    }
    ln_str_add(&out, "", 1);
    assert_false(out.failed);
    char *result = shown(out.data);
    ln_str_free(&out);
    return result;
}

static void answers_break_between_words(void **state) {
    (void)state;
    static const struct {
        int columns;
        const char *text, *want;
    } cases[] = {
        {20, "", ""},
        {20, "short", "short"},
        {20, "one two three four five six", "one two three four\nfive six"},
        {20, "exactly twenty chars", "exactly twenty chars"},
        {20, "exactly twenty chars more", "exactly twenty chars\nmore"},
        {20, "a line\nand another one that is long", "a line\nand another one that\nis long"},
        {20, "two  blanks   stay  and", "two  blanks   stay\nand"},
        {20, "ends with a blank ", "ends with a blank"},
        {20, "\n\n  indented by two blanks", "\n\n  indented by two\nblanks"},
        {20, "a-word-that-is-longer-than-a-line and more", "a-word-that-is-longer-than-a-line\nand more"},
        {20, "see a-word-that-is-longer-than-a-line", "see\na-word-that-is-longer-than-a-line"},
        {20, "    code that is indented stays", "    code that is indented stays"},
        {20, "| a table | has | rows | that stay |", "| a table | has | rows | that stay |"},
        {20, "text\n```\nint main(void) { return 0; }\n```\nand words that go on again",
         "text\n```\nint main(void) { return 0; }\n```\nand words that go on\nagain"},
        {20,
         "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc "
         "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc x",
         "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc "
         "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\nx"},
        /* twelve wide characters: ten fit */
        {20,
         "\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5"
         "\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5",
         "\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5"
         "\xe6\x97\xa5\xe6\x97\xa5\n\xe6\x97\xa5\xe6\x97\xa5"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++)
        for (size_t piece = 1; piece < 40; piece += piece) {
            char *got = wrapped(cases[i].columns, cases[i].text, piece);
            if (strcmp(got, cases[i].want) != 0) fail_msg("case %zu by %zu: '%s'", i, piece, got);
            ln_free(got);
        }
}

/* ---- at a terminal ---- */

/* Returns the words of a text, separated by one space. The caller frees it. */
static char *words_of(const char *text, size_t bytes) {
    char *out = ln_zalloc(1, bytes + 2);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool blank = text[i] == ' ' || text[i] == '\n' || text[i] == '\r';
        if (!blank) out[n++] = text[i];
        else if (n > 0 && out[n - 1] != ' ') out[n++] = ' ';
    }
    if (n > 0 && out[n - 1] == ' ') n--;
    out[n] = '\0';
    return out;
}

static size_t longest_line(const char *text, size_t bytes) {
    size_t most = 0, at = 0;
    for (size_t i = 0; i <= bytes; i++) {
        if (i < bytes && text[i] != '\r' && text[i] != '\n') continue;
        most = LN_MAX(most, i - at);
        at = i + 1;
    }
    return most;
}

/* Returns the output to the terminal as lines. The caller frees it. */
static char *screen(void) {
    size_t n = 0;
    char *text = ln_strndup(tty.raw.data, tty.raw.len);
    for (char *c = text; *c; c++)
        if (*c != '\r') text[n++] = *c;
    text[n] = '\0';
    char *lines = shown(text);
    ln_free(text);
    return lines;
}

static void an_answer_fits_the_terminal(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("100"), S("--temp"), S("0"),
                            S("--json")));
    char *want = words_of(text_of(o, "text"), strlen(text_of(o, "text")));
    assert_true(strlen(want) > 120);
    for (wide = 30; wide <= 120; wide += 45) {
        sit_down("dumb", (char *const[]){S("linnet"), S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("100"),
                                         S("--temp"), S("0"), NULL});
        assert_int_equal(stand_up(), 0);
        char *lines = screen(), *note = strstr(lines, "linnet: cut at 100 tokens (-n)"); /* from stderr */
        assert_non_null(note);
        *note = '\0';
        char *got = words_of(lines, strlen(lines));
        assert_string_equal(got, want); /* no word was cut */
        assert_true(longest_line(lines, strlen(lines)) < (size_t)wide);
        ln_free(got), ln_free(lines);
    }
    wide = 30;
    sit_down("dumb", (char *const[]){S("linnet"), S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("100"),
                                     S("--temp"), S("0"), S("--no-wrap"), NULL});
    assert_int_equal(stand_up(), 0);
    assert_true(longest_line(tty.raw.data, tty.raw.len) > 30); /* wrapping is left to the terminal */
    expect(RUN(S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("100"), S("--temp"), S("0")), 0, NULL);
    /* A pipe gets the text, unchanged, and the end of its line before the note that it was cut. */
    char *line = ln_strndup(text_of(o, "text"), strlen(text_of(o, "text")) + 1);
    line[strlen(line)] = '\n';
    assert_memory_equal(last->out, line, strlen(text_of(o, "text")) + 1);
    assert_int_equal(last->out_bytes, strlen(text_of(o, "text")) + 1);
    ln_free(line);
    wide = 80;
    ln_free(want);
    json_decref(o);
}

/* The choices of a flag break after a bar. */
static void join_choices(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++)
        if (*at != ' ' || at == text || at[-1] != '|') *to++ = *at;
    *to = 0;
}

/* Lines of prose and of flags fit into the terminal; examples, which users copy, are not wrapped. */
static void help_fits_the_terminal(void **state) {
    (void)state;
    static char pages[][16] = {"", "run", "chat", "bench", "plan", "template", "quantize"};
    for (size_t p = 0; p < LN_COUNT(pages); p++) {
        expect(pages[p][0] ? RUN(S("help"), pages[p]) : RUN(S("help")), 0, NULL);
        char *want = words_of(last->out, last->out_bytes);
        join_choices(want);
        for (wide = 50; wide <= 110; wide += 30) {
            sit_down("dumb", (char *const[]){S("linnet"), S("help"), pages[p][0] ? pages[p] : NULL, NULL});
            assert_int_equal(stand_up(), 0);
            for (char *more; (more = strstr(tty.raw.data, " \\\r\n"));)
                more[1] = ' '; /* an example continues */
            char *got = words_of(tty.raw.data, tty.raw.len);
            join_choices(got);
            assert_string_equal(got, want);
            ln_free(got);
            for (char *save, *line = strtok_r(tty.raw.data, "\r\n", &save); line;
                 line = strtok_r(NULL, "\r\n", &save))
                if (strlen(line) > (size_t)wide && !strstr(line, "linnet") &&
                    strchr(line + strspn(line, " "), ' '))
                    fail_msg("%s at %d columns: '%s'", pages[p], wide, line);
        }
        ln_free(want);
    }
    wide = 80;
    setenv("COLUMNS", "60", 1); /* the width to use without a terminal */
    expect(RUN(S("help"), S("run")), 0, NULL);
    unsetenv("COLUMNS");
    for (const char *at = strstr(last->out, "\nflags:\n") + 8; *at; at += strcspn(at, "\n") + 1)
        assert_true(strcspn(at, "\n") <= 60);
}

/* At every width of a small terminal all lines of all pages fit; the words are the same, except that examples
 * continue after a backslash. */
static void pages_fit_small_terminals(void **state) {
    (void)state;
    static char pages[][16] = {
        "",
#define VERB(ID, name, form, takes, what, more) #name,
#include "../../src/cli/verbs.def"
#undef VERB
    };
    for (size_t p = 0; p < LN_COUNT(pages); p++) {
        expect(pages[p][0] ? RUN(S("help"), pages[p]) : RUN(S("help")), 0, NULL);
        char *want = ln_strndup(last->out, last->out_bytes);
        for (int columns = 40; columns <= 64; columns += 4) {
            char text[12];
            (void)snprintf(text, sizeof text, "%d", columns);
            setenv("COLUMNS", text, 1);
            expect(pages[p][0] ? RUN(S("help"), pages[p]) : RUN(S("help")), 0, NULL);
            unsetenv("COLUMNS");
            for (const char *at = last->out; *at; at += strcspn(at, "\n") + 1)
                if (strcspn(at, "\n") > (size_t)columns)
                    fail_msg("%s at %d columns: '%.*s'", pages[p], columns, (int)strcspn(at, "\n"), at);
            size_t a = 0, b = 0; /* the same characters except blanks and " \" before a line break */
            while (want[a] || last->out[b]) {
                while (want[a] == ' ' || want[a] == '\n') a++;
                while (last->out[b] == ' ' || last->out[b] == '\n' ||
                       (last->out[b] == '\\' && last->out[b + 1] == '\n'))
                    b++;
                if (want[a] != last->out[b])
                    fail_msg("%s at %d columns: '%.20s', expected '%.20s'", pages[p], columns, last->out + b,
                             want + a);
                a += want[a] != '\0', b += last->out[b] != '\0';
            }
        }
        ln_free(want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_break_between_words), cmocka_unit_test(an_answer_fits_the_terminal),
        cmocka_unit_test(help_fits_the_terminal), cmocka_unit_test(pages_fit_small_terminals)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
