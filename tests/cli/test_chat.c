/* linnet chat as a person meets it, at a terminal, and as a script does, through a pipe. */
#include "pty.h"

#define LONG LN_ROOT "/tests/golden/llama-long-bf16" /* random weights, and room for 32,768 tokens */
#define HI "Hello!"
#define HI_ANSWER "Hi! What can I do for you?"
#define SLOW S("--device"), S("ref"), S("--threads"), S("1"), S("--ignore-eos"), S("-n"), S("900")
#define ERASE "\x7f"

/* The conversation as /save writes it: a list of messages. */
static json_t *saved(void) {
    static const char file[] = "talk.json";
    char line[300];
    json_t *doc;
    ln_error err;
    (void)unlink(at(0, file));
    (void)snprintf(line, sizeof line, "/save %s\r", at(0, file));
    type(line);
    until(" saved to ");
    until_prompt();
    if (ln_json_load_file(&doc, at(0, file), 1 << 20, &err) != LN_OK) fail_msg("%s", err.message);
    (void)unlink(at(0, file));
    return doc;
}

static const char *content(const json_t *doc, size_t i, const char *role) {
    const json_t *m = json_array_get(json_object_get(doc, "messages"), i);
    assert_string_equal(text_of(m, "role"), role);
    return text_of(m, "content");
}
static size_t n_messages(const json_t *doc) { return json_array_size(json_object_get(doc, "messages")); }

/* The last message of a person is `text`. */
static void sent(const char *text) {
    json_t *doc = saved();
    assert_true(n_messages(doc) >= 2);
    assert_string_equal(content(doc, n_messages(doc) - 2, "user"), text);
    json_decref(doc);
}

static void leave(void) {
    type("\x04");
    assert_int_equal(stand_up(), 0);
    assert_non_null(strstr(tty.raw.data, "\033[?2004l")); /* the terminal is as it was */
}

/* ---- typing ---- */

static void wide_characters_are_edited(void **state) {
    (void)state;
    SIT("xterm", S(TINY));
    until_prompt();
    type("日本語 x😀é");
    until_row("> 日本語 x😀é", 2 + 6 + 2 + 2 + 1);
    type(ERASE ERASE);
    until_row("> 日本語 x", 2 + 6 + 2);
    type("\033[D\033[D" ERASE); /* left, left: before the blank */
    until_row("> 日本 x", 2 + 4);
    type("が");
    until_row("> 日本が x", 2 + 6);
    type("\033[H" "한" "\033[F" "!"); /* to the beginning, to the end */
    until_row("> 한日本が x!", 2 + 11);
    type("👍🏽👩\u200d🚀");
    type(ERASE ERASE); /* each is one character to the eye */
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
    memcpy(second, text + (size_t)3 * 39, sizeof second); /* 39 characters fit into the 78 columns beside the prompt */
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
    type("\x03"); /* given up */
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
    type(ERASE); /* the mark goes as one character */
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
    type("\033[A\033[A"); /* over /save to the message, mark and all */
    until("[text 2: 1000 lines, ");
    type("\x15\x04");
    assert_int_equal(stand_up(), 0);
    /* the next session still has it */
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
    until_row("> Hel[31m", 9); /* what would command the terminal is gone */
    type(ERASE ERASE ERASE ERASE "\033[200~lo!\n\033[201~");
    until_row("> Hello!", 8); /* the newline that was copied with it does not send it */
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
    until(" "); /* the first words */
    type("ahead"); /* not shown in the middle of the answer */
    type("\x03");
    until("; stopped]");
    until_prompt();
    assert_null(strstr(tty.raw.data + from, "ahead"));
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
    type(HI "\r"); /* and it goes on */
    until("cut at max-tokens 5");
    until_prompt();
    doc = saved();
    assert_int_equal(n_messages(doc), 4);
    json_decref(doc);
    leave();
}

static void ctrl_c_at_the_prompt(void **state) {
    (void)state;
    SIT("xterm", S(TINY));
    until_prompt();
    type("half a line");
    until_row("> half a line", 13);
    type("\x03");
    until_prompt(); /* thrown away, and no step towards leaving */
    type("\x03");
    until("Ctrl-C again leaves");
    until_prompt();
    type(HI "\r"); /* an answer between them: the next is again the first */
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
    struct termios before, after;
    SIT("xterm", S(TINY), SLOW);
    assert_int_equal(tcgetattr(tty.fd, &before), 0);
    until_prompt();
    kill(tty.pid, SIGTERM);
    int slave = open(ptsname(tty.fd), O_RDWR | O_NOCTTY); /* keeps the terminal when the command is gone */
    assert_true(slave >= 0);
    while (strstr(tty.raw.data, "\033[?2004l") == NULL) assert_true(pump(100));
    assert_int_equal(finish(tty.pid), 143);
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_int_equal(after.c_lflag, before.c_lflag);
    assert_int_equal(after.c_iflag, before.c_iflag);
    close(slave);
    close(tty.fd);
    SIT("xterm", S(TINY), SLOW); /* in mid-answer */
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
    assert_int_equal(after.c_lflag, before.c_lflag);
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
    resize(24, 100); /* in mid-answer */
    for (int i = 0; i < 3; i++) until(" ");
    type("\x03");
    until("; stopped]");
    until_prompt();
    sent("half a line and the other half that goes on in a second row");
    type("0123456789012345678901234567890123456789012345678901234567890123456789");
    until_row("> 0123456789012345678901234567890123456789012345678901234567890123456789", 72); /* at the width of now */
    type("\x15");
    until_prompt();
    leave();
}

/* ---- commands ---- */

static void commands_change_the_conversation(void **state) {
    (void)state;
    char line[400];
    SIT("xterm", S(TINY), S("--system"), S("Be kind."), S("--seed"), S("7"));
    until_prompt();
    type("/undo\r");
    until("nothing to undo");
    until_prompt();
    type("/regen\r");
    until("nothing to answer yet");
    until_prompt();
    type(HI "\r");
    until("tok/s");
    until_prompt();
    type("What is the capital of France?\r");
    until("tok/s");
    until_prompt();
    json_t *doc = saved(), *again;
    assert_int_equal(n_messages(doc), 5);
    assert_string_equal(content(doc, 0, "system"), "Be kind.");
    type("/regen\r");
    until("greedy");
    until("tok/s");
    until_prompt();
    again = saved();
    assert_true(json_equal(doc, again)); /* the same question, the same answer */
    json_decref(again);
    type("/set temp 2\r/set top-k 0\r");
    until_prompt();
    until_prompt();
    bool differs = false; /* each time another seed, made from the one that was given */
    for (int i = 0; i < 3 && !differs; i++) {
        type("/regen\r");
        until("tok/s");
        until_prompt();
        again = saved();
        assert_int_equal(n_messages(again), 5);
        assert_string_equal(content(again, 3, "user"), "What is the capital of France?");
        differs = !json_equal(doc, again);
        json_decref(again);
    }
    assert_true(differs);
    (void)snprintf(line, sizeof line, "/save %s\r", at(1, "kept.json"));
    type(line);
    until("5 messages saved");
    until_prompt();
    type("/undo\r");
    until("taken back: What is the capital of France?");
    until_prompt();
    again = saved();
    assert_int_equal(n_messages(again), 3);
    json_decref(again);
    type(line); /* an existing file: not without a word */
    until("[y/N]");
    type("\r");
    until("not saved");
    until_prompt();
    type("/clear\r");
    until("but for the system text");
    until_prompt();
    (void)snprintf(line, sizeof line, "/load %s\r", at(1, "kept.json"));
    type(line);
    until("5 messages");
    until_prompt();
    again = saved();
    assert_string_equal(content(again, 3, "user"), "What is the capital of France?");
    assert_int_equal(n_messages(again), 5);
    json_decref(again);
    type("/clear\r/system Be brief.\r");
    until("system text set");
    until_prompt();
    (void)snprintf(line, sizeof line, "/save %s\r", at(1, "kept.json"));
    type(line);
    until("[y/N]");
    type("y\r");
    until("1 messages saved");
    until_prompt();
    type("/system\r");
    until("no system text");
    until_prompt();
    json_decref(doc);
    doc = saved();
    assert_int_equal(n_messages(doc), 0);
    json_decref(doc);
    (void)unlink(at(1, "kept.json"));
    leave();
}

static void mistakes_are_said_and_forgiven(void **state) {
    (void)state;
    static const struct {
        const char *line, *said;
    } bad[] = {{"/hlep", "unknown command /hlep; the nearest is /help"}, {"/frobnicate", "unknown command /frobnicate; /help lists them"},
               {"/clera", "nearest is /clear"}, {"/undo 3", "takes no argument"}, {"/set", "/set NAME VALUE"}, {"/set temp", "needs a value"}, {"/set temp x", "found 'x'"},
               {"/set temp -1", "--temp"}, {"/set tmp 1", "nearest is --temp"}, {"/set ctx 5", "decided when the chat begins"}, {"/set top-p 1.5", "--top-p"},
               {"/set logit-bias 4096=1", "0 to 4095"}, {"/set ignore-eos maybe", "on or off"}, {"/set stats 1", "on or off"}, {"/save", "which file"},
               {"/load /nowhere/x.json", "/nowhere"}, {"/load /dev/zero", "/dev/zero"}, {"/save /nowhere/x.json", "/nowhere"}};
    SIT("xterm", S(TINY));
    until_prompt();
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        type(bad[i].line);
        type("\r");
        resize(24, 200); /* so that what is said stands in one row */
        until(bad[i].said);
        until_prompt();
    }
    type("/set temp 0.5\r/set stop Paris\r/set logit-bias 7=-1.5\r/set ignore-eos on\r/set n 9\r/show\r");
    until("max-tokens 9, temp 0.5");
    until("ignore-eos on");
    until("stop 'Paris'");
    until("logit-bias 7=-1.5");
    until_prompt();
    type("/set temp 0\r/set ignore-eos off\r/set n 50\r/set logit-bias\rWhat is the capital of France?\r");
    until("The capital of France is \r\n");
    until_prompt();
    type("/set stop\r/regen\r");
    until("The capital of France is Paris.");
    until_prompt();
    json_t *doc = saved();
    assert_int_equal(n_messages(doc), 2); /* nothing else ever reached the model */
    json_decref(doc);
    type("/stats\r");
    until("2 answers");
    until_prompt();
    type("/help\r");
    until("/regen");
    until_prompt();
    type("/exit\r");
    assert_int_equal(stand_up(), 0);
}

static void files_that_are_no_conversation(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } bad[] = {{"{}", "expected {\"messages\""}, {"[{\"role\":\"user\"}]", "message 1"}, {"[{\"role\":\"tool\",\"content\":\"x\"}]", "found 'tool'"},
               {"[{\"role\":\"user\",\"content\":[]}]", "message 1"}, {"[", "talk.json"}};
    static const char good[] = "[{\"role\":\"user\",\"content\":\"" HI "\"}]";
    char line[300];
    (void)snprintf(line, sizeof line, "/load %s\r", at(0, "talk.json"));
    SIT("xterm", S(TINY));
    resize(24, 200);
    until_prompt();
    type(HI "\r");
    until("tok/s");
    until_prompt();
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        FILE *f = fopen(at(0, "talk.json"), "w");
        fputs(bad[i].text, f);
        fclose(f);
        type(line);
        until(bad[i].said);
        until_prompt();
    }
    sent(HI); /* the conversation is as it was */
    FILE *f = fopen(at(0, "talk.json"), "w");
    fputs(good, f);
    fclose(f);
    type(line);
    until("/regen answers the last one");
    until_prompt();
    type("/regen\r");
    until(HI_ANSWER);
    until_prompt();
    (void)unlink(at(0, "talk.json"));
    leave();
}

static void the_end_of_the_context(void **state) {
    (void)state;
    ln_str text = {0};
    for (int i = 0; i < 40; i++) ln_str_adds(&text, "many words ");
    SIT("xterm", S(TINY), S("--ctx"), S("64"));
    until_prompt();
    type(HI "\r");
    until(HI_ANSWER);
    until_prompt();
    type(text.data);
    type("\r");
    until("the context holds 64");
    until("/undo and /clear make room");
    until_prompt();
    sent(HI); /* it is still there, and the question is not */
    type("Tell me a short story.\r");
    until("cut: the context is full");
    until_prompt();
    type("/undo\r");
    until("taken back");
    until_prompt();
    type("What is the capital of France?\r");
    until("cached"); /* what was kept is not computed again */
    until_prompt();
    ln_str_free(&text);
    leave();
}

/* ---- history, colour, terminals ---- */

static void history_is_for_its_owner(void **state) {
    (void)state;
    struct stat sb;
    char *data;
    size_t bytes;
    (void)unlink(at(0, "state/linnet/history"));
    SIT("xterm", S(TINY), S("--no-history"));
    until_prompt();
    type("/clear\r");
    until("forgotten");
    until_prompt();
    leave();
    assert_false(ln_exists(at(0, "state/linnet/history")));
    SIT("xterm", S(TINY));
    until_prompt();
    type("one \\ \xc3\xa9\rtwo\rtwo\r");
    for (int i = 0; i < 3; i++) until("tok/s");
    until_prompt();
    leave();
    assert_int_equal(stat(at(0, "state/linnet/history"), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0600);
    assert_int_equal(stat(at(0, "state/linnet"), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0700);
    assert_int_equal(ln_read_file(at(0, "state/linnet/history"), 1 << 20, &data, &bytes, NULL), LN_OK);
    assert_string_equal(data, "one \\\\ \xc3\xa9\ntwo\n");
    ln_free(data);
    assert_int_equal(chmod(at(0, "state/linnet/history"), 0644), 0); /* somebody opened it: the next entry closes it */
    SIT("xterm", S(TINY));
    until_prompt();
    type("\033[A");
    until_row("> two", 5);
    type("\033[A");
    until_row("> one \\ \xc3\xa9", 9);
    type("!\r");
    until("tok/s");
    until_prompt();
    leave();
    assert_int_equal(stat(at(0, "state/linnet/history"), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0600);
    FILE *f = fopen(at(0, "state/linnet/history"), "w"); /* a file that has grown is cut to the last thousand */
    for (int i = 0; i < 2500; i++) fprintf(f, "entry %d\n", i);
    fclose(f);
    SIT("xterm", S(TINY));
    until_prompt();
    type("\033[A");
    until_row("> entry 2499", 12);
    type("\x15");
    until_prompt();
    leave();
    assert_int_equal(ln_read_file(at(0, "state/linnet/history"), 1 << 20, &data, &bytes, NULL), LN_OK);
    assert_memory_equal(data, "entry 1500\n", 11);
    ln_free(data);
    assert_int_equal(stat(at(0, "state/linnet/history"), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0600);
    (void)unlink(at(0, "state/linnet/history"));
    assert_int_equal(mkdir(at(0, "state/linnet/history"), 0700), 0); /* a history that cannot be is said once, and the chat goes on */
    SIT("xterm", S(TINY));
    until("going on without it");
    until_prompt();
    type(HI "\r");
    until(HI_ANSWER);
    until_prompt();
    leave();
    assert_int_equal(rmdir(at(0, "state/linnet/history")), 0);
}

static void colour_is_asked_for(void **state) {
    (void)state;
    static const char muted[] = "\033[2m";
    SIT("xterm", S(TINY));
    until_prompt();
    leave();
    assert_non_null(strstr(tty.raw.data, muted));
    setenv("NO_COLOR", "1", 1);
    SIT("xterm", S(TINY));
    until_prompt();
    leave();
    assert_null(strstr(tty.raw.data, muted));
    SIT("xterm", S(TINY), S("--color=always"), S("--no-stats"));
    until_prompt();
    type(HI "\r");
    until(HI_ANSWER);
    until_prompt();
    leave();
    assert_non_null(strstr(tty.raw.data, muted));
    assert_null(strstr(tty.raw.data, "tok/s"));
    unsetenv("NO_COLOR");
}

/* No cursor to move: plain lines, edited by the kernel, and not one escape. */
static void a_dumb_terminal_gets_no_escape(void **state) {
    (void)state;
    static const char *const terms[] = {"dumb", "", "no-such-terminal"};
    for (size_t i = 0; i < LN_COUNT(terms); i++) {
        SIT(terms[i], S(TINY), S("--color=never"));
        until_prompt();
        type(HI "\r");
        until(HI_ANSWER);
        until("tok/s");
        until_prompt();
        type("/hlep\r");
        until("nearest is /help");
        until_prompt();
        type("a\\\r");
        until_row("…", 2);
        type("b\r");
        until("tok/s");
        until_prompt();
        sent("a\nb");
        type("\x03");
        until("Ctrl-C again leaves");
        until_prompt();
        type("\x04");
        assert_int_equal(stand_up(), 0);
        assert_null(memchr(tty.raw.data, 033, tty.raw.len));
    }
}

/* ---- pipes ---- */

static void a_pipe_is_a_conversation(void **state) {
    (void)state;
    outcome *o = RUN_IN(HI "\n\n\"\"\"What is\nthe capital of France?\"\"\"\n/undo\nHello!\\\nagain", S("chat"), S(TINY));
    expect(o, 0, NULL);
    assert_ptr_equal(strstr(o->out, HI_ANSWER "\nThe capital of France is Paris.\n"), o->out);
    assert_int_equal(o->out[o->out_bytes - 1], '\n');
    assert_string_equal(o->err, "taken back: What is\\nthe capital of France?\n");
    expect(RUN_IN("", S("chat"), S(TINY)), 0, NULL);
    assert_int_equal(last->out_bytes + last->err_bytes, 0);
    expect(RUN_IN(HI "\r\n/exit\n" HI "\n", S("chat"), S(TINY)), 0, NULL);
    assert_string_equal(last->out, HI_ANSWER "\n");
    assert_int_equal(last->err_bytes, 0);
    expect(RUN_IN("\"\"\"" HI "\n", S("chat"), S(TINY)), 0, NULL); /* the end of the pipe ends the block */
    assert_string_equal(last->out, HI_ANSWER "\n");
    o = RUN_IN(HI "\n", S("chat"), S(TINY), S("--stats"));
    assert_int_equal(o->code, 0);
    assert_non_null(strstr(o->err, "tok/s"));
    assert_null(memchr(o->err, 033, o->err_bytes));
    assert_false(ln_exists(at(0, ".local"))); /* no history of a pipe */
}

static void mistakes_in_a_pipe_end_it(void **state) {
    (void)state;
    ln_str longer = {0};
    for (int i = 0; i < 4000; i++) ln_str_adds(&longer, "many words ");
    expect(RUN_IN("/hlep\n" HI "\n", S("chat"), S(TINY)), 2, "/help");
    assert_int_equal(last->out_bytes, 0);
    expect(RUN_IN(HI "\nab\xff\n", S("chat"), S(TINY)), 3, "UTF-8");
    assert_string_equal(last->out, HI_ANSWER "\n");
    expect(RUN_IN(longer.data, S("chat"), S(TINY)), 3, "the context holds 1024");
    expect(RUN_IN("/save /nowhere/x\n", S("chat"), S(TINY)), 5, "/nowhere");
    expect(RUN_IN("/save /dev/null\n", S("chat"), S(TINY)), 5, "exists already");
    expect(RUN_IN(HI "\n", S("chat"), S(SMALL)), 4, "ships no chat template");
    assert_int_equal(RUN_IN(HI "\n", S("chat"), S(SMALL), S("--chat"), S("-n"), S("2"))->code, 0);
    expect(RUN(S("chat"), S(TINY), S("--stats"), S("--no-stats")), 2, "contradict");
    expect(RUN(S("chat"), S(TINY), S("--json")), 2, "--json");
    expect(RUN(S("chat"), S(TINY), S("-p"), S("x")), 2, "belongs to run");
    expect(RUN(S("chat"), S(TINY), S("text")), 2, "unexpected argument");
    ln_str_free(&longer);
}

/* ---- */

static int clean(void **state) {
    static const char *const files[] = {"talk.json", "kept.json", "state/linnet/history"}, *const dirs[] = {"state/linnet", "state"};
    ln_str_free(&tty.raw);
    for (size_t i = 0; i < LN_COUNT(files); i++) (void)unlink(at(0, files[i]));
    for (size_t i = 0; i < LN_COUNT(dirs); i++) (void)rmdir(at(0, dirs[i]));
    return remove_dir(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_characters_are_edited), cmocka_unit_test(wide_characters_wrap), cmocka_unit_test(messages_of_several_lines),
        cmocka_unit_test(a_thousand_lines_are_one_message), cmocka_unit_test(a_short_paste_stands_in_the_line),
        cmocka_unit_test(ctrl_c_keeps_what_was_said), cmocka_unit_test(ctrl_c_at_the_prompt), cmocka_unit_test(signals_put_the_terminal_back),
        cmocka_unit_test(windows_change_their_size), cmocka_unit_test(commands_change_the_conversation), cmocka_unit_test(mistakes_are_said_and_forgiven),
        cmocka_unit_test(files_that_are_no_conversation), cmocka_unit_test(the_end_of_the_context), cmocka_unit_test(history_is_for_its_owner),
        cmocka_unit_test(colour_is_asked_for), cmocka_unit_test(a_dumb_terminal_gets_no_escape), cmocka_unit_test(a_pipe_is_a_conversation),
        cmocka_unit_test(mistakes_in_a_pipe_end_it)};
    return cmocka_run_group_tests(tests, make_dir, clean);
}
