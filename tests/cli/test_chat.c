/* linnet chat at a terminal: typing, pasting, stopping, resizing the window. */
/* run: slow */
#include "talk.h"

#define LONG  LN_ROOT "/tests/golden/llama-long-bf16" /* random weights, a context of 32,768 tokens */
#define SLOW  S("--device"), S("ref"), S("--threads"), S("1"), S("--ignore-eos"), S("-n"), S("900")
#define ERASE "\x7f"

/* ---- typing ---- */

static void wide_characters_are_edited(void **state) {
    (void)state;
    SIT("xterm", S(TINY));
    until_prompt();
    type("日本語 x😀é");
    until_row("> 日本語 x😀é", 2 + 6 + 2 + 2 + 1);
    type(ERASE ERASE);
    until_row("> 日本語 x", 2 + 6 + 2);
    type("\033[D\033[D" ERASE); /* left, left: before the space */
    until_row("> 日本 x", 2 + 4);
    type("が");
    until_row("> 日本が x", 2 + 6);
    type("\033[H"
         "한"
         "\033[F"
         "!"); /* Home and End */
    until_row("> 한日本が x!", 2 + 11);
    type("👍🏽👩\u200d🚀");
    type(ERASE ERASE); /* each is one character (grapheme cluster) for the user */
    until_row("> 한日本が x!", 2 + 11);
    type("\r");
    until("tok/s");
    until_prompt();
    sent("한日本が x!");
    leave();
}

static void wide_characters_wrap(void **state) {
    (void)state;
    char text[3 * 60 + 1] = "", second[3 * 21 + 1];
    SIT("xterm", S(TINY));
    until_prompt();
    for (int i = 0; i < 60; i++) strcat(text, i % 2 ? "語" : "日");
    type(text);
    memcpy(second, text + (size_t)3 * 39,
           sizeof second); /* 39 wide characters fit into the 78 columns after the prompt */
    until_row(second, 42);
    for (int i = 0; i < 22; i++) type(ERASE);
    type("x\r");
    until("tok/s");
    until_prompt();
    strcpy(text + (size_t)3 * 38, "x");
    sent(text);
    leave();
}

static void messages_of_several_lines(void **state) {
    (void)state;
    SIT("xterm", S(TINY), S("-n"), S("2"));
    until_prompt();
    type("\"\"\"one\r");
    until_row("…", 2);
    type("/not a command\r");
    until_row("…", 2);
    type("three\"\"\"\r");
    until("tok/s");
    until_prompt();
    sent("one\n/not a command\nthree");
    type("\"\"\"\r");
    until_row("…", 2);
    type("alone\r\"\"\"\r");
    until("tok/s");
    until_prompt();
    sent("alone");
    type("a\\\r");
    until_row("…", 2);
    type("b\r");
    until("tok/s");
    until_prompt();
    sent("a\nb");
    type("c\033\rd\r"); /* Alt-Enter */
    until("tok/s");
    until_prompt();
    sent("c\nd");
    type("\"\"\"x\r");
    until_row("…", 2);
    type("\x03"); /* Ctrl-C abandons the message */
    until_prompt();
    sent("c\nd");
    type(" /usr is text\r");
    until("tok/s");
    until_prompt();
    sent("/usr is text");
    leave();
}

/* ---- pastes ---- */

static ln_str paste_of(int lines, ln_str *want) {
    ln_str s = {0};
    ln_str_adds(&s, "\033[200~");
    for (int i = 0; i < lines; i++) {
        ln_str_addf(&s, "%s/line %d \\\r", i % 3 == 0 ? "\"\"\"" : "", i);
        ln_str_addf(want, "%s%s/line %d \\", i ? "\n" : "", i % 3 == 0 ? "\"\"\"" : "", i);
    }
    ln_str_adds(&s, "\033[201~");
    return s;
}

static void a_thousand_lines_are_one_message(void **state) {
    (void)state;
    ln_str want = {0}, paste = paste_of(1000, &want);
    (void)unlink(at(0, "state/linnet/history"));
    SIT("xterm", S(LONG), S("--chat"), S("-n"), S("3"), S("--ctx"), S("32k"));
    until_prompt();
    type("Sum up: ");
    type(paste.data);
    until("[text 1: 1000 lines, \"/line 0 \\\"]");
    type(ERASE); /* the placeholder is deleted as one character */
    until_row("> Sum up:", 10);
    type(paste.data);
    until("[text 2: 1000 lines, ");
    type(" thanks\r");
    until("tok/s");
    until_prompt();
    json_t *doc = saved();
    assert_int_equal(n_messages(doc), 2);
    const char *got = content(doc, 0, "user");
    assert_int_equal(strlen(got), 8 + want.len + 7);
    assert_memory_equal(got, "Sum up: ", 8);
    assert_memory_equal(got + 8, want.data, want.len);
    assert_string_equal(got + 8 + want.len, " thanks");
    json_decref(doc);
    type("\033[A\033[A"); /* past /save to the message, placeholder included */
    until("[text 2: 1000 lines, ");
    type("\x15\x04");
    assert_int_equal(stand_up(), 0);
    /* The history of the next session still has it. */
    SIT("xterm", S(LONG), S("--chat"), S("-n"), S("3"), S("--ctx"), S("32k"));
    until_prompt();
    type("\033[A\033[A");
    until("[text 1: 1000 lines, \"Sum up: ");
    type("\r");
    until("tok/s");
    until_prompt();
    doc = saved();
    assert_int_equal(strlen(content(doc, 0, "user")), 8 + want.len + 7);
    json_decref(doc);
    leave();
    ln_str_free(&want);
    ln_str_free(&paste);
}

static void a_short_paste_stands_in_the_line(void **state) {
    (void)state;
    SIT("xterm", S(TINY));
    until_prompt();
    type("\033[200~Hel\a\033[31m\033[201~");
    until_row("> Hel[31m", 9); /* control characters of the paste are removed */
    type(ERASE ERASE ERASE ERASE "\033[200~lo!\n\033[201~");
    until_row("> Hello!", 8); /* the newline at the end of the paste does not send the message */
    type("\r");
    until(HI_ANSWER);
    until_prompt();
    sent(HI);
    leave();
}

/* ---- stopping ---- */

static void ctrl_c_keeps_what_was_said(void **state) {
    (void)state;
    SIT("xterm", S(TINY), SLOW);
    until_prompt();
    type("Tell me a short story.\r");
    until("story.\r\n");
    size_t from = tty.mark;
    until(" ");             /* the first word */
    struct termios keeping; /* without NOFLSH, Ctrl-C discards output that the terminal has not shown yet,
                               and typed input */
    assert_int_equal(tcgetattr(tty.fd, &keeping), 0);
    keeping.c_lflag |= NOFLSH;
    assert_int_equal(tcsetattr(tty.fd, TCSANOW, &keeping), 0);
    type("ahead"); /* typed text is not echoed within the answer */
    type("\x03");
    until("; stopped]");
    assert_null(memmem(tty.raw.data + from, tty.mark - from, "ahead", 5));
    until_row("> ahead", 7); /* and it is not lost */
    type("\x15");
    until_prompt();
    json_t *doc = saved();
    assert_int_equal(n_messages(doc), 2);
    const char *said = content(doc, 1, "assistant");
    assert_true(strlen(said) > 0);
    ln_str shown = {0};
    for (const char *c = said; *c; c++) ln_str_add(&shown, *c == '\n' ? "\r\n" : c, *c == '\n' ? 2 : 1);
    assert_memory_equal(tty.raw.data + from, shown.data, shown.len);
    ln_str_free(&shown);
    json_decref(doc);
    type("/set max-tokens 5\r");
    until_prompt();
    type(HI "\r"); /* the chat continues */
    until("cut at max-tokens 5");
    until_prompt();
    doc = saved();
    assert_int_equal(n_messages(doc), 4);
    json_decref(doc);
    leave();
}

/* Before the first token there is nothing to keep: the question is dropped as well. */
static void ctrl_c_while_the_prompt_is_read(void **state) {
    (void)state;
    ln_str want = {0}, paste = paste_of(1000, &want);
    SIT("xterm", S(LONG), S("--chat"), S("--device"), S("ref"), S("--threads"), S("1"), S("--ctx"), S("32k"),
        S("--chunk"), S("16"));
    until_prompt();
    type(paste.data);
    until("1000 lines, ");
    type("\r");
    until("\r\n");
    type("\x03");
    until("stopped before a word");
    until_prompt();
    json_t *doc = saved();
    assert_int_equal(n_messages(doc), 0);
    json_decref(doc);
    leave();
    ln_str_free(&want);
    ln_str_free(&paste);
}

static void ctrl_c_at_the_prompt(void **state) {
    (void)state;
    SIT("xterm", S(TINY));
    until_prompt();
    type("half a line");
    until_row("> half a line", 13);
    type("\x03");
    until_prompt(); /* the line is discarded; this does not count as a first Ctrl-C to leave */
    type("\x03");
    until("Ctrl-C again leaves");
    until_prompt();
    type(HI "\r"); /* after an answer, the next Ctrl-C counts as a first one again */
    until(HI_ANSWER);
    until_prompt();
    type("\x03");
    until("Ctrl-C again leaves");
    until_prompt();
    type("\x03");
    assert_int_equal(stand_up(), 130);
    assert_non_null(strstr(tty.raw.data, "\033[?2004l"));
}

static void signals_put_the_terminal_back(void **state) {
    (void)state;
    struct termios after;
    SIT("xterm", S(TINY), SLOW);
    until_prompt();
    kill(tty.pid, SIGTERM);
    int slave = open(ptsname(tty.fd), O_RDWR | O_NOCTTY); /* keeps the terminal open after the command has
                                                             ended */
    assert_true(slave >= 0);
    while (strstr(tty.raw.data, "\033[?2004l") == NULL) assert_true(pump(100));
    assert_int_equal(finish(tty.pid), 143);
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_int_equal(after.c_lflag, tty.before.c_lflag);
    assert_int_equal(after.c_iflag, tty.before.c_iflag);
    close(slave);
    close(tty.fd);
    SIT("xterm", S(TINY), SLOW); /* while an answer is being written */
    until_prompt();
    type(HI "\r");
    until("!\r\n");
    until("H");
    slave = open(ptsname(tty.fd), O_RDWR | O_NOCTTY);
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_false(after.c_lflag & ECHO);
    kill(tty.pid, SIGTERM);
    until("\033[?2004l");
    assert_int_equal(finish(tty.pid), 143);
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_int_equal(after.c_lflag, tty.before.c_lflag);
    close(slave);
    close(tty.fd);
}

static void windows_change_their_size(void **state) {
    (void)state;
    SIT("xterm", S(TINY), SLOW);
    until_prompt();
    type("half a line");
    until_row("> half a line", 13);
    resize(20, 40);
    type(" and the other half");
    until_row("> half a line and the other half", 32);
    type(" that goes on in a second row"); /* wraps at the new margin */
    until_row("es on in a second row", 21);
    resize(20, 60);
    until_row("w", 1);
    type("\r");
    until("\r\n");
    for (int i = 0; i < 3; i++) until(" ");
    resize(24, 100); /* while an answer is being written */
    for (int i = 0; i < 3; i++) until(" ");
    type("\x03");
    until("; stopped]");
    until_prompt();
    sent("half a line and the other half that goes on in a second row");
    type("0123456789012345678901234567890123456789012345678901234567890123456789");
    until_row("> 0123456789012345678901234567890123456789012345678901234567890123456789",
              72); /* at the current width */
    type("\x15");
    until_prompt();
    leave();
}

/* /help breaks its lines between words. */
static void help_wraps_at_words(void **state) {
    (void)state;
    wide = 50;
    SIT("xterm", S(TINY));
    until_prompt();
    type("/help\r");
    until("sends it to the model");
    until_prompt();
    wide = 80;
    size_t column = 0;
    for (const char *c = strstr(tty.raw.data, "/help\r"); *c; c++) { /* no line reaches the margin */
        column = *c == '\n' || *c == '\r' ? 0 : column + ((unsigned char)*c >= 0x20);
        if (strncmp(c, "sends it", 8) == 0) break;
        if (*c == 0x1b) column = 0; /* a sequence that moves the cursor */
        if (column > 55) fail_msg("a line of more than 50 columns");
    }
    type("/exit\r");
    assert_int_equal(stand_up(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(wide_characters_are_edited),
                                       cmocka_unit_test(wide_characters_wrap),
                                       cmocka_unit_test(help_wraps_at_words),
                                       cmocka_unit_test(messages_of_several_lines),
                                       cmocka_unit_test(a_thousand_lines_are_one_message),
                                       cmocka_unit_test(a_short_paste_stands_in_the_line),
                                       cmocka_unit_test(ctrl_c_keeps_what_was_said),
                                       cmocka_unit_test(ctrl_c_while_the_prompt_is_read),
                                       cmocka_unit_test(ctrl_c_at_the_prompt),
                                       cmocka_unit_test(signals_put_the_terminal_back),
                                       cmocka_unit_test(windows_change_their_size)};
    return cmocka_run_group_tests(tests, make_dir, clean);
}
