/* linnet chat: its commands, its history, and its behaviour in a pipe. */
/* run: slow */
#include "talk.h"

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
    assert_true(json_equal(doc, again)); /* the same question gives the same answer */
    json_decref(again);
    type("/set temp 2\r");
    until_prompt();
    type("/set top-k 0\r");
    until_prompt();
    bool differs = false; /* each answer has another seed, derived from the given one */
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
    type(line); /* an existing file is replaced only after confirmation */
    until("[y/N]");
    type("\r");
    until("not saved");
    until_prompt();
    type("/clear\r");
    until("system text kept");
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
    } bad[] = {{"/hlep", "unknown command /hlep; the nearest is /help"},
               {"/frobnicate", "unknown command /frobnicate; /help lists them"},
               {"/clera", "nearest is /clear"},
               {"/undo 3", "takes no argument"},
               {"/set", "/set NAME VALUE"},
               {"/set temp", "needs a value"},
               {"/set temp x", "found 'x'"},
               {"/set temp -1", "--temp"},
               {"/set tmp 1", "/set tmp: there is no such setting; the nearest is temp"},
               {"/set max-token 1", "the nearest is max-tokens"},
               {"/set foo", "/set foo: there is no such setting"},
               {"/set ctx 5", "decided when the chat begins"},
               {"/set top-p 1.5", "--top-p"},
               {"/set logit-bias 4096=1", "0 to 4095"},
               {"/set ignore-eos maybe", "on or off"},
               {"/set stats 1", "on or off"},
               {"/save", "which file"},
               {"/load /nowhere/x.json", "/nowhere"},
               {"/load /dev/zero", "/dev/zero"},
               {"/save /nowhere/x.json", "/nowhere"}};
    SIT("xterm", S(TINY));
    resize(24, 200); /* so that each message fits into one row */
    until_prompt();
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        type(bad[i].line);
        type("\r");
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
    type("/set n\r/set stop\r/show\r");
    until("max-tokens none");
    until_prompt();
    type("/regen\r");
    until("The capital of France is Paris.");
    until_prompt();
    json_t *doc = saved();
    assert_int_equal(n_messages(doc), 2); /* none of the commands reached the model */
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
    } bad[] = {{"{}", "expected {\"messages\""},
               {"[{\"role\":\"user\"}]", "message 1"},
               {"[{\"role\":\"tool\",\"content\":\"x\"}]", "found 'tool'"},
               {"[{\"role\":\"user\",\"content\":[]}]", "message 1"},
               {"[", "talk.json"}};
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
    sent(HI); /* the conversation is unchanged */
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
    until("/undo and /clear free space");
    until_prompt();
    sent(HI); /* the earlier message is kept, the question is dropped */
    type("Tell me a short story.\r");
    until("cut: the context is full");
    until_prompt();
    type("/undo\r");
    until("taken back");
    until_prompt();
    type("What is the capital of France?\r");
    until("cached"); /* tokens in the cache are not computed again */
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
    until("conversation cleared");
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
    assert_int_equal(chmod(at(0, "state/linnet/history"), 0644),
                     0); /* readable for others: the next entry restores the mode */
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
    FILE *f =
        fopen(at(0, "state/linnet/history"), "w"); /* a longer file is cut to the last thousand entries */
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
    assert_int_equal(mkdir(at(0, "state/linnet/history"), 0700),
                     0); /* a history file that cannot be opened is reported once, and the chat goes on */
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

/* A terminal without cursor movement: plain lines, edited by the kernel, and no escape sequence. */
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
    outcome *o = RUN_IN(HI "\n\n\"\"\"What is\nthe capital of France?\"\"\"\n/undo\nHello!\\\nagain",
                        S("chat"), S(TINY));
    expect(o, 0, NULL);
    assert_ptr_equal(strstr(o->out, HI_ANSWER "\nThe capital of France is Paris.\n"), o->out);
    assert_int_equal(o->out[o->out_bytes - 1], '\n');
    assert_string_equal(o->err, "taken back: What is\\nthe capital of France?\n");
    expect(RUN_IN("", S("chat"), S(TINY)), 0, NULL);
    assert_int_equal(last->out_bytes + last->err_bytes, 0);
    expect(RUN_IN(HI "\r\n/exit\n" HI "\n", S("chat"), S(TINY)), 0, NULL);
    assert_string_equal(last->out, HI_ANSWER "\n");
    assert_int_equal(last->err_bytes, 0);
    expect(RUN_IN("\"\"\"" HI "\n", S("chat"), S(TINY)), 0, NULL); /* the end of the input ends the block */
    assert_string_equal(last->out, HI_ANSWER "\n");
    o = RUN_IN(HI "\n", S("chat"), S(TINY), S("--stats"));
    assert_int_equal(o->code, 0);
    assert_non_null(strstr(o->err, "tok/s"));
    assert_null(memchr(o->err, 033, o->err_bytes));
    assert_false(ln_exists(at(0, ".local"))); /* no history is written for a pipe */
}

static void mistakes_in_a_pipe_end_it(void **state) {
    (void)state;
    ln_str longer = {0};
    for (int i = 0; i < 4000; i++) ln_str_adds(&longer, "many words ");
    expect(RUN_IN("/hlep\n" HI "\n", S("chat"), S(TINY)), 2, "/help");
    assert_int_equal(last->out_bytes, 0);
    expect(RUN_IN(HI "\nab\xff\n", S("chat"), S(TINY)), 3, "byte 2 of the line: expected UTF-8"); /* from 0 */
    assert_string_equal(last->out, HI_ANSWER "\n");
    expect(RUN_IN(longer.data, S("chat"), S(TINY)), 3, "the context holds 1024");
    expect(RUN_IN("/save /nowhere/x\n", S("chat"), S(TINY)), 5, "/nowhere");
    expect(RUN_IN("/save /dev/null\n", S("chat"), S(TINY)), 5, "exists already");
    expect(RUN_IN(HI "\n", S("chat"), S(SMALL)), 4, "ships no chat template");
    assert_int_equal(RUN_IN(HI "\n", S("chat"), S(SMALL), S("--chat"), S("-n"), S("2"), S("-v"))->code, 0);
    assert_non_null(strstr(last->err, "built-in template"));
    assert_non_null(strstr(last->err, "at most 2 tokens"));
    expect(RUN(S("chat"), S(TINY), S("--stats"), S("--no-stats")), 2, "contradict");
    expect(RUN(S("chat"), S(TINY), S("--json")), 2, "--json");
    expect(RUN(S("chat"), S(TINY), S("-p"), S("x")), 2, "belongs to run");
    expect(RUN(S("chat"), S(TINY), S("text")), 2, "unexpected argument");
    ln_str_free(&longer);
}

/* Lines from an untrusted source: with --no-commands no line is a command, and without --force no existing
 * file is replaced. */
static void a_pipe_may_have_no_commands(void **state) {
    (void)state;
    char line[300], *data;
    size_t bytes;
    (void)snprintf(line, sizeof line, HI "\n/save %s\n", at(0, "kept.json"));
    expect(RUN_IN(line, S("chat"), S(TINY)), 0, "saved to");
    expect(RUN_IN(line, S("chat"), S(TINY)), 5,
           "exists already; name another file, or start the chat with --force");
    (void)snprintf(line, sizeof line, HI "\n" HI "\n/save %s\n", at(0, "kept.json"));
    expect(RUN_IN(line, S("chat"), S(TINY), S("--force")), 0, "4 messages saved to");
    assert_int_equal(ln_read_file(at(0, "kept.json"), 1 << 20, &data, &bytes, NULL), LN_OK);
    expect(RUN_IN(line, S("chat"), S(TINY), S("--no-commands"), S("-n"), S("2")), 0, NULL);
    assert_null(strstr(last->err, "saved"));
    size_t answers = 0;
    for (const char *c = last->out; (c = strchr(c, '\n')); c++) answers++;
    assert_true(answers >= 3); /* the third line is a message too */
    ln_free(data);
    assert_int_equal(unlink(at(0, "kept.json")), 0);
    expect(RUN_IN(line, S("chat"), S(TINY), S("--no-commands"), S("-n"), S("2")), 0, NULL);
    assert_false(ln_exists(at(0, "kept.json")));
    expect(RUN_IN("/hlep\n /usr\n", S("chat"), S(TINY), S("--no-commands"), S("-n"), S("1")), 0, NULL);
    /* Each line is a message as it is: quotes begin no block, and a backslash joins no lines. */
    expect(RUN_IN("\"\"\"\n" HI "\n" HI "\\\n" HI "\n", S("chat"), S(TINY), S("--no-commands"), S("--temp"),
                  S("0"), S("-n"), S("1"), S("--stats")),
           0, NULL);
    size_t messages = 0;
    for (const char *c = last->err; (c = strstr(c, "tok/s; prompt ")); c++) messages++;
    assert_int_equal(messages, 4);
    expect(RUN(S("run"), S(TINY), S("x"), S("--no-commands")), 2, "belongs to chat");
}

/* The transcript in docs/chat.md: its input is typed again, and the model still gives the answers of the
 * transcript. */
static void the_page_is_true(void **state) {
    (void)state;
    char *page;
    size_t bytes;
    ln_str typed = {0};
    assert_int_equal(ln_read_file(LN_ROOT "/docs/chat.md", 1 << 20, &page, &bytes, NULL), LN_OK);
    char *from = strstr(page, "$ linnet chat --system \"You are terse.\"\n");
    assert_non_null(from);
    *strstr(from, "```") = '\0';
    for (char *line = from; (line = strstr(line, "\n> ")); line += 3)
        if (strncmp(line, "\n> /save", 8) != 0 && line[3] != '^')
            ln_str_addf(&typed, "%.*s\n", (int)strcspn(line + 3, "\n"), line + 3);
    outcome *o = RUN_IN(typed.data, S("chat"), S(TINY), S("--system"), S("You are terse."));
    expect(o, 0, NULL);
    size_t n = 0;
    for (char *answer = o->out, *end; (end = strchr(answer, '\n')); answer = end + 1, n++) {
        *end = '\0';
        from = strstr(from, answer);
        if (!from) fail_msg("docs/chat.md does not have '%s'", answer);
    }
    assert_int_equal(n, 3);
    assert_non_null(strstr(o->err, "taken back: What is the capital of Nepal?"));
    ln_str_free(&typed);
    ln_free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(commands_change_the_conversation),
                                       cmocka_unit_test(mistakes_are_said_and_forgiven),
                                       cmocka_unit_test(files_that_are_no_conversation),
                                       cmocka_unit_test(the_end_of_the_context),
                                       cmocka_unit_test(history_is_for_its_owner),
                                       cmocka_unit_test(colour_is_asked_for),
                                       cmocka_unit_test(a_dumb_terminal_gets_no_escape),
                                       cmocka_unit_test(a_pipe_is_a_conversation),
                                       cmocka_unit_test(mistakes_in_a_pipe_end_it),
                                       cmocka_unit_test(a_pipe_may_have_no_commands),
                                       cmocka_unit_test(the_page_is_true)};
    return cmocka_run_group_tests(tests, make_dir, clean);
}
