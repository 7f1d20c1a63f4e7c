/* Training data: the four kinds of samples, their masks, the length limit, and what is rejected. */
/* run: quick */
#include "../common.h"

#include "base/json.h"
#include "train/dataset.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ln_package *tiny;
static const char *fields;
static char dir[64], file[80];

static int setup(void **state) {
    (void)state;
    const ln_options o = ln_options_default();
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-data-%ld", (long)getpid());
    (void)snprintf(file, sizeof file, "%s/train.jsonl", dir);
    OK(ln_package_open(&tiny, LN_ROOT "/models/tiny", &o, err));
    return mkdir(dir, 0700);
}
static int teardown(void **state) {
    (void)state;
    char other[96];
    (void)snprintf(other, sizeof other, "%s/valid.jsonl", dir);
    (void)unlink(other);
    (void)unlink(file);
    ln_package_close(&tiny);
    return rmdir(dir);
}

static void write_bytes(const char *text, size_t n) {
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}
static void write_text(const char *text) { write_bytes(text, strlen(text)); }

static train_data load(const char *text, int64_t most) {
    train_data d;
    write_text(text);
    OK(train_data_open(&d, tiny, file, most, false, NULL, fields, err));
    return d;
}
#define REFUSES(status, word, text)                                                            \
    do {                                                                                       \
        train_data d_;                                                                         \
        write_text(text);                                                                      \
        FAILS(status, word, train_data_open(&d_, tiny, file, 1024, false, NULL, fields, err)); \
        train_data_close(&d_);                                                                 \
    } while (0)

/* The text of the tokens of sample i that count, or that do not. */
static char *text_of(const train_data *d, size_t i, bool counted) {
    ln_str s = {0};
    for (uint32_t t = 0; t < d->samples[i].n; t++) {
        const uint32_t id = d->ids[d->samples[i].at + t];
        if (!(id & TRAIN_COUNTED) == counted) continue;
        OK(ln_tok_decode(tiny->tok, &(int32_t){(int32_t)(id & ~TRAIN_COUNTED)}, 1, false, &s, err));
    }
    ln_str_add(&s, "", 0);
    return s.data ? s.data : ln_strndup("", 0);
}
static void check_text(const train_data *d, size_t i, bool counted, const char *want) {
    char *got = text_of(d, i, counted);
    assert_string_equal(got, want);
    ln_free(got);
}

static void conversations(void **state) {
    (void)state;
    train_data d =
        load("{\"messages\":[{\"role\":\"user\",\"content\":\"One day\"},{\"role\":\"assistant\",\"content\":"
             "\"a cat sat.\"},{\"role\":\"user\",\"content\":\"And then\"},{\"role\":\"assistant\","
             "\"content\":\"it ran.\"}],\"source\":\"x\"}\r\n\n"
             "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"},{\"role\":\"assistant\","
             "\"content\":\"no\"}],\"source\":1}",
             1024);
    assert_int_equal(d.kind, TRAIN_CHAT);
    assert_int_equal(d.n, 2);
    assert_int_equal(d.samples[1].line, 3);
    assert_string_equal(d.unread, "source");
    check_text(&d, 0, true, "a cat sat.<|im_end|>\nit ran.<|im_end|>\n");
    check_text(&d, 1, true, "no<|im_end|>\n");
    train_data_close(&d);
}

/* A content that is a list of parts of type text is the text that a request of the server makes of it. */
static void contents_in_parts(void **state) {
    (void)state;
    static const char plain[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"One\\n\\\"day\\\"\"},"
                                "{\"role\":\"assistant\",\"content\":\"a cat\"}]}\n";
    static const char parts[] =
        "{\"messages\": [ {\"content\" : [{\"type\":\"text\",\"text\":\"One\"}, "
        "{\"text\":\"\\u0022day\\u0022\",\"cache_control\":{\"type\":\"ephemeral\"},\"type\":\"text\"}],"
        "\"role\":\"user\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a cat\"}] } ] ,\"tools\":[]}\n";
    train_data a = load(plain, 1024), b = load(parts, 1024);
    assert_int_equal(a.samples[0].n, b.samples[0].n);
    assert_memory_equal(a.ids, b.ids, a.samples[0].n * sizeof *a.ids);
    train_data_close(&b);
    train_data_close(&a);
}

/* Arguments of calls that are a string holding a JSON object reach the template as that object, as in
 * requests; other strings, objects, and members of other names stay what they are. */
static void arguments_of_calls(void **state) {
    (void)state;
    static const char source[] =
        "{% for m in messages %}<|im_start|>{{ m.role }} {% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments | tojson }}{{ c.arguments | tojson }} {% endfor %}{{ m.content }}"
        "<|im_end|>{% endfor %}";
    static const char line[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"tool_calls\" : [{\"type\":\"function\","
        "\"function\":{\"arguments\": \"{\\\"b\\\": 1e1, \\\"a\\\":[\\\"\\\\u0041\\\"]}\" , \"name\":\"f\"},"
        "\"arguments\":\"{}\"},{\"function\":{\"arguments\":\"{\"},\"arguments\":1},"
        "{\"arguments\":0,\"function\":{\"arguments\":\"[1]\"}},"
        "{\"arguments\":0,\"function\":{\"arguments\":{\"a\":\"{}\"}}}],"
        "\"role\":\"assistant\",\"content\":\"x\"}]}\n";
    ln_options o = ln_options_default();
    ln_package *plain = tiny;
    write_text(source);
    o.chat_template = file;
    OK(ln_package_open(&tiny, LN_ROOT "/models/tiny", &o, err));
    train_data d = load(line, 1024);
    char *got = text_of(&d, 0, true);
    ln_package_close(&tiny);
    tiny = plain;
    train_data_close(&d);
    assert_non_null(strstr(got, "assistant {\"b\": 10.0, \"a\": [\"A\"]}\"{}\" \"{\"1 \"[1]\"0 "
                                "{\"a\": \"{}\"}0 x<"));
    ln_free(got);
}

static void prompt_and_completion(void **state) {
    (void)state;
    train_data d = load("{\"prompt\":\"Who?\",\"completion\":\"Tom\"}\n", 1024);
    check_text(&d, 0, true, "Tom<|im_end|>\n");
    check_text(&d, 0, false, "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n");
    train_data_close(&d);
}

/* Names that are empty, cut or contained in others are listed once each, however many there are. */
static void unread_members(void **state) {
    (void)state;
    train_data d =
        load("{\"note\":1,\"\":0,\"text\":\"hello\"}\n{\"\":0,\"no\":1,\"note\":2,\"text\":\"a\"}\n", 1024);
    assert_string_equal(d.unread, "note, \"\", no");
    train_data_close(&d);
    ln_str s = {0};
    for (int i = 0; i < 60; i++) ln_str_addf(&s, "{\"\":%d,\"member%d\":0,\"text\":\"hello\"}\n", i, i);
    d = load(s.data, 1024);
    ln_str_free(&s);
    assert_true(strlen(d.unread) < 256);
    assert_string_equal(d.unread + strlen(d.unread) - 5, ", ...");
    assert_memory_equal(d.unread, "\"\", member0, member1, ", 22);
    train_data_close(&d);
}

/* Published conversations repeat their first message under "prompt"; it is named as not read. */
static void conversation_with_prompt(void **state) {
    (void)state;
    train_data d = load("{\"prompt\":\"Who?\",\"prompt_id\":\"7\",\"messages\":[{\"role\":\"user\","
                        "\"content\":\"Who?\"},"
                        "{\"role\":\"assistant\",\"content\":\"Tom\"}]}\n",
                        1024);
    check_text(&d, 0, true, "Tom<|im_end|>\n");
    assert_string_equal(d.unread, "prompt_id, prompt");
    train_data_close(&d);
    REFUSES(LN_EINVALID, "found \"messages\" and \"prompt and completion\"",
            "{\"prompt\":\"a\",\"completion\":\"b\",\"messages\":[]}\n");
}

static void texts(void **state) {
    (void)state;
    train_data d = load("{\"text\":\"a cat sat.\"}\n{\"text\":\"the end<|im_end|>\"}", 1024);
    const int32_t eos = tiny->gen.eos[0];
    assert_true(tiny->gen.n_eos > 0);
    for (size_t i = 0; i < 2; i++) { /* ends with one stop id, and all but the first token count */
        const train_sample *s = &d.samples[i];
        assert_int_equal(s->n_counted, s->n - 1);
        assert_int_equal(d.ids[s->at + s->n - 1], (uint32_t)eos | TRAIN_COUNTED);
        assert_int_not_equal(d.ids[s->at + s->n - 2], (uint32_t)eos | TRAIN_COUNTED);
        assert_false(d.ids[s->at] & TRAIN_COUNTED);
    }
    train_data_close(&d);
}

static void rows(void **state) {
    (void)state;
    train_data d = load("{\"ids\":[5,6,7,8],\"mask\":[1,0,1,0]}\n{\"ids\":[9,10],\"mask\":null}\n", 1024);
    static const uint32_t want[] = {5, 6, 7 | TRAIN_COUNTED, 8, 9, 10 | TRAIN_COUNTED};
    assert_int_equal(d.n_ids, 6);
    assert_memory_equal(d.ids, want, sizeof want);
    assert_int_equal(d.n_counted, 2);
    train_data_close(&d);
}

/* Cut samples and samples without a target are counted; one whose targets were cut off is dropped. */
static void limits(void **state) {
    (void)state;
    const char *text =
        "{\"ids\":[5,6,7,8,9]}\n{\"ids\":[5,6],\"mask\":[1,0]}\n{\"ids\":[5,6,7,8],\"mask\":[0,0,"
        "0,1]}\n{\"ids\":[4]}\n{\"ids\":[5,6,7]}\n";
    train_data d = load(text, 3);
    assert_int_equal(d.n_lines, 5);
    assert_int_equal(d.n, 2);
    assert_int_equal(d.n_cut, 2);
    assert_int_equal(d.n_dropped, 3);
    assert_int_equal(d.first_dropped, 2);
    assert_int_equal(d.longest, 3);
    train_data_close(&d);
    REFUSES(LN_EINVALID, "none of its 1 samples", "{\"ids\":[5,6],\"mask\":[1,0]}\n");
}

static int n_logged;
static char logged[32][200];
static void on_log(void *user, ln_level level, const char *text) {
    (void)user;
    if (level != LN_LOG_ERROR) return;
    if (n_logged < 32) (void)snprintf(logged[n_logged], 200, "%s", text);
    n_logged++;
}

/* Bad lines are named with file and line: the first one in the error alone, the next 19 in the log. */
static void bad_lines(void **state) {
    (void)state;
    char text[4096] = "{\"text\":\"good\"}\n", place[128];
    for (int i = 0; i < 25; i++) strcat(text, i % 2 ? "{\"text\":3}\n" : "{\"text\":\"x\"\n");
    n_logged = 0;
    ln_log_set(on_log, NULL);
    REFUSES(LN_EINVALID, "(and 24 more of 26 lines are bad)", text);
    (void)snprintf(place, sizeof place, "%s:2: ", file);
    REFUSES(LN_EINVALID, place, text);
    assert_int_equal(n_logged, 2 * 19);
    (void)snprintf(place, sizeof place, "%s:3: ", file);
    assert_memory_equal(logged[0], place, strlen(place));
    assert_non_null(strstr(logged[0], "\"text\": expected a text, found 3"));
    n_logged = 0;
    REFUSES(LN_EINVALID, ":2: \"text\": expected a text, found 3", "{\"text\":\"good\"}\n{\"text\":3}\n");
    assert_int_equal(n_logged, 0);
    ln_log_set(NULL, NULL);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        ln_status status;
        const char *word, *text;
    } cases[] = {
        {LN_EINVALID, "expected a sample in each line, found none", ""},
        {LN_EINVALID, "expected a sample in each line, found none", "\n \r\n\t\n"},
        {LN_EINVALID, ":1: expected an object, found 1", "[1]\n"},
        {LN_EINVALID, ":2: expected an object, found \"x\"", "[{\"text\":\"a\"},\n\"x\"]\n"},
        {LN_EINVALID, ":2: expected a comma or ] after an item", "[{\"text\":\"a\"}\n{}]\n"},
        {LN_EINVALID, ":1: expected an item of the array", "[{\"text\":\"a\"},]\n"},
        {LN_EINVALID, ":1: expected an item of the array", "[{\"text\":\"a\"},"},
        {LN_EINVALID, ":2: expected ], found the end of the file", "[{\"text\":\"a\"}\n"},
        {LN_EINVALID, "expected the end of the file after the array", "[{\"text\":\"a\"}]\n[]"},
        {LN_EINVALID, "as in the first line", "{\"text\":\"a\"}\n{\"ids\":[1,2]}\n"},
        {LN_EINVALID, "expected one kind", "{\"text\":\"a\",\"ids\":[1,2]}\n"},
        {LN_EINVALID, "found one of them", "{\"prompt\":\"a\"}\n"},
        {LN_EINVALID, "once, found it twice", "{\"text\":\"a\",\"text\":\"b\"}\n"},
        {LN_EINVALID, "found null", "{\"text\":null}\n"},
        {LN_EINVALID, "expected a text, found \"\"", "{\"text\":\"\"}\n"},
        {LN_EINVALID, "found none", "{\"ids\":[]}\n"},
        {LN_EINVALID, "item 1: expected a token id", "{\"ids\":[1,-1]}\n"},
        {LN_EINVALID, "item 0: expected a token id", "{\"ids\":[4000000000]}\n"},
        {LN_EINVALID, "item 0: expected a token id", "{\"ids\":[1.0]}\n"},
        {LN_EINVALID, "expected 3 items", "{\"ids\":[1,2,3],\"mask\":[0,1]}\n"},
        {LN_EINVALID, "expected 0 or 1, found 2", "{\"ids\":[1,2],\"mask\":[0,2]}\n"},
        {LN_EINVALID, "expected 0 or 1, found true", "{\"ids\":[1,2],\"mask\":[0,true]}\n"},
        {LN_EINVALID, "with \"ids\" only", "{\"text\":\"a\",\"mask\":[1]}\n"},
        {LN_EINVALID, "with \"messages\" only", "{\"text\":\"a\",\"tools\":[]}\n"},
        {LN_EINVALID, "expected at least one message", "{\"conversations\":[]}\n"},
        {LN_EINVALID, "\"instruction\" with \"output\"", "{\"instruction\":\"a\",\"put\":\"b\"}\n"},
        {LN_EINVALID, "ln_trainer_options.fields", "{\"body\":\"a\"}\n"},
        {LN_EINVALID, "preferences", "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\",\"x\":0}\n"},
        {LN_EINVALID, ":1:", "{\"messages\":[]}\n"},
        {LN_EINVALID, ":1:", "{\"messages\":[3]}\n"},
        {LN_EINVALID, "\"prompt\": expected a text, found an array", "{\"prompt\":[{\"role\":\"user\"}]}\n"},
        {LN_EINVALID, "item 0: expected a \"role\" that is a text", "{\"messages\":[{\"content\":\"a\"}]}\n"},
        {LN_EINVALID, "item 1: expected a \"content\" or \"tool_calls\", found neither",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null}]}"
         "\n"},
        {LN_EINVALID, "item 0: \"content\": expected a text or a list of parts of type \"text\", found 5",
         "{\"messages\":[{\"role\":\"user\",\"content\":5}]}\n"},
        {LN_EINVALID, ":1: \"messages\": item 1: content[1]: expected a part of type \"text\"",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":"
         "\"text\",\"text\":\"b\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}\n"},
        {LN_EINVALID, "found the type \"image_url\"; only text is supported",
         "{\"messages\":[{\"content\":[{\"type\":\"image_url\",\"text\":\"x\"}]}]}\n"},
        {LN_EINVALID, "found the type nothing", "{\"messages\":[{\"content\":[{\"text\":\"x\"}]}]}\n"},
        {LN_EINVALID, "found none", "{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":3}]}]}\n"},
        {LN_EINVALID, "found \"x\"", "{\"messages\":[{\"content\":[\"x\"]}]}\n"},
        {LN_EINVALID, "UTF-8", "{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}]}\n"},
        {LN_EINVALID, "UTF-8", "{\"text\":\"\xff\"}\n"},
        {LN_EINVALID, "none of its 1 samples", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n"},
        {LN_EUNSUPPORTED, "gzip", "\x1f\x8b\x08"},
        {LN_EUNSUPPORTED, "Parquet", "PAR1xxxx"},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) REFUSES(cases[i].status, cases[i].word, cases[i].text);
    FAILS(LN_EIO, "no-such",
          train_data_open(&(train_data){0}, tiny, "/no-such/file", 9, false, NULL, NULL, err));
}

/* NUL bytes as an escape, a byte order mark, a last line without a newline, line separators of Unicode. */
static void odd_but_good(void **state) {
    (void)state;
    train_data d = load("\xef\xbb\xbf{\"text\":\"a\\u0000b\xe2\x80\xa8 c\"}", 1024);
    assert_int_equal(d.n, 1);
    train_data_close(&d);
}

static void a_line_too_long(void **state) {
    (void)state;
    const size_t n = (17 << 20) + 1;
    char *text = malloc(n);
    train_data d;
    memset(text, 'x', n);
    write_bytes(text, n);
    free(text);
    FAILS(LN_EINVALID, "line 1: longer than", train_data_open(&d, tiny, file, 1024, false, NULL, NULL, err));
    train_data_close(&d);
}

/* An array has the samples that its items have as lines; items may span lines. */
static void arrays(void **state) {
    (void)state;
    train_data a = load("{\"text\":\"a [b\"}\n{\"text\":\"c]\\\"\"}\n", 1024),
               b = load("\xef\xbb\xbf \n[ {\"text\":\n\"a [b\"}\n,{\"text\" : \"c]\\\"\"\n} ] \n", 1024);
    assert_int_equal(b.n, 2);
    assert_int_equal(b.samples[0].line, 2);
    assert_int_equal(b.samples[1].line, 4);
    assert_string_equal(a.samples_digest, b.samples_digest);
    assert_string_not_equal(a.digest, b.digest);
    train_data_close(&a);
    train_data_close(&b);
    char *many = malloc(3 << 20), *end = many;
    *end++ = '[';
    for (int i = 0; i < 60000; i++) end += sprintf(end, "%s{\"ids\":[1,2,%d]}", i ? "," : "", i % 4000);
    (void)strcpy(end, "]");
    b = load(many, 1024);
    assert_int_equal(b.n, 60000);
    assert_int_equal(b.ids[b.samples[59999].at + 2] & ~TRAIN_COUNTED, 59999 % 4000);
    train_data_close(&b);
    free(many);
}

/* Rows of tables: cells in quotes, other separators, lists as JSON, and what is malformed. */
static void tables(void **state) {
    (void)state;
    char was[sizeof file];
    strcpy(was, file);
    (void)snprintf(file, sizeof file, "%s/train.csv", dir);
    train_data a = load("id,prompt,completion\r\n1,\"say \"\"a, b\"\"\nnow\",\"x\"\r\n\r\n2,q,y", 1024);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.samples[1].line, 5);
    assert_string_equal(a.unread, "id");
    check_text(&a, 0, false, "<|im_start|>user\nsay \"a, b\"\nnow<|im_end|>\n<|im_start|>assistant\n");
    check_text(&a, 1, true, "y<|im_end|>\n");
    train_data_close(&a);
    a = load("instruction;input;output\ni;;o\n", 1024);
    check_text(&a, 0, true, "o<|im_end|>\n");
    train_data_close(&a);
    a = load("messages\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"q\"\"},{\"\"role\"\":"
             "\"\"assistant\"\","
             "\"\"content\"\":\"\"a\"\"}]\"\n",
             1024);
    check_text(&a, 0, true, "a<|im_end|>\n");
    train_data_close(&a);
    REFUSES(LN_EINVALID, ":3: expected 2 cells, as the first line has, found 3",
            "prompt,completion\na,b\na,b,c\n");
    REFUSES(LN_EINVALID, "a quote that ends the cell", "prompt,completion\na,\"b\n");
    REFUSES(LN_EINVALID, "the name of each column", "prompt,\na,b\n");
    REFUSES(LN_EINVALID, ":2: expected UTF-8", "prompt,completion\na,\xff\n");
    REFUSES(LN_EINVALID, "found none", "a,b\n1,2\n");
    REFUSES(LN_EINVALID, "expected a sample in each line, found none", "prompt,completion\n");
    (void)unlink(file);
    strcpy(file, was);
}

static void files_of_a_directory(void **state) {
    (void)state;
    char train[4096], valid[4096], other[96];
    write_text("{\"text\":\"a b\"}\n");
    OK(train_data_paths(dir, NULL, train, valid, err));
    assert_string_equal(train, file);
    assert_string_equal(valid, "");
    (void)snprintf(other, sizeof other, "%s/valid.jsonl", dir);
    FILE *f = fopen(other, "wb");
    assert_non_null(f);
    (void)fclose(f);
    OK(train_data_paths(dir, NULL, train, valid, err));
    assert_string_equal(valid, other);
    OK(train_data_paths(file, "v", train, valid, err));
    assert_string_equal(train, file);
    assert_string_equal(valid, "v");
    (void)unlink(file);
    FAILS(LN_EIO, "train.jsonl", train_data_paths(dir, NULL, train, valid, err));
}

/* A template that writes what later messages change: each turn is trained as the model wrote it, the last one
 * of the conversation first, and turns of the same text need no sample of their own. */
static void turns_that_change(void **state) {
    (void)state;
    static const char source[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == "
                                 "'assistant' and loop.last %}T{% endif %}"
                                 "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt "
                                 "%}<|im_start|>assistant\n{% endif %}";
    static const char three[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"A\"},"
        "{\"role\":\"user\",\"content\":\"2\"},{\"role\":\"assistant\",\"content\":\"B\"},"
        "{\"role\":\"user\",\"content\":\"3\"},{\"role\":\"assistant\",\"content\":\"C\"}]}\n",
                      left[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\","
                               "\"content\":\"A\"},"
                               "{\"role\":\"user\",\"content\":\"2\"}]}\n",
                      off[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\","
                              "\"content\":\"A\",\"weight\":0},"
                              "{\"role\":\"user\",\"content\":\"2\"},{\"role\":\"assistant\",\"content\":"
                              "\"B\"}]}\n";
    ln_options o = ln_options_default();
    ln_package *plain = tiny;
    write_text(source);
    o.chat_template = file;
    OK(ln_package_open(&tiny, LN_ROOT "/models/tiny", &o, err));
    train_data d = load(three, 1024);
    assert_int_equal(d.n, 3);
    assert_int_equal(d.n_own, 2);
    assert_int_equal(d.n_unmatched, 0);
    check_text(&d, 0, true, "TC<|im_end|>");
    check_text(&d, 1, true, "TB<|im_end|>");
    check_text(&d, 1, false,
               "<|im_start|>user\n1<|im_end|><|im_start|>assistant\nA<|im_end|><|im_start|>user\n2<|im_end|>"
               "<|im_start|>assistant\n");
    check_text(&d, 2, true, "TA<|im_end|>");
    for (size_t i = 0; i < 3; i++) assert_int_equal(d.samples[i].record, 1);
    train_data_close(&d);
    d = load(left, 1024);
    assert_int_equal(d.n, 1);
    check_text(&d, 0, true, "TA<|im_end|>");
    train_data_close(&d);
    d = load(off, 1024);
    assert_int_equal(d.n, 1);
    check_text(&d, 0, true, "TB<|im_end|>");
    train_data_close(&d);
    ln_package_close(&tiny);
    tiny = plain;
}

/* A greeting after a system message that the template writes by itself. */
static void greetings(void **state) {
    (void)state;
    static const char source[] =
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nBe "
        "good.<|im_end|>\n"
        "{% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    ln_options o = ln_options_default();
    ln_package *plain = tiny;
    write_text(source);
    o.chat_template = file;
    OK(ln_package_open(&tiny, LN_ROOT "/models/tiny", &o, err));
    train_data d = load("{\"messages\":[{\"role\":\"assistant\",\"content\":\"Hi!\"},{\"role\":\"user\","
                        "\"content\":\"Q\"},"
                        "{\"role\":\"assistant\",\"content\":\"A\"}]}\n",
                        1024);
    check_text(&d, 0, true, "Hi!<|im_end|>\nA<|im_end|>\n");
    assert_int_equal(d.n_parted, 0);
    train_data_close(&d);
    ln_package_close(&tiny);
    tiny = plain;
}

/* A model without a chat template: prompt and completion are joined as texts; conversations are rejected. */
static void without_a_template(void **state) {
    (void)state;
    ln_model_template *t = tiny->tmpl;
    train_data d;
    tiny->tmpl = NULL;
    write_text("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n");
    FAILS(LN_EUNSUPPORTED, "chat template", train_data_open(&d, tiny, file, 1024, false, NULL, NULL, err));
    train_data_close(&d);
    d = load("{\"prompt\":\"Who?\",\"completion\":\" Tom\"}\n", 1024);
    check_text(&d, 0, false, "Who?");
    check_text(&d, 0, true, " Tom<|im_end|>");
    train_data_close(&d);
    tiny->tmpl = t;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations),
        cmocka_unit_test(contents_in_parts),
        cmocka_unit_test(arguments_of_calls),
        cmocka_unit_test(prompt_and_completion),
        cmocka_unit_test(unread_members),
        cmocka_unit_test(conversation_with_prompt),
        cmocka_unit_test(texts),
        cmocka_unit_test(rows),
        cmocka_unit_test(limits),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(refused),
        cmocka_unit_test(odd_but_good),
        cmocka_unit_test(a_line_too_long),
        cmocka_unit_test(arrays),
        cmocka_unit_test(tables),
        cmocka_unit_test(files_of_a_directory),
        cmocka_unit_test(turns_that_change),
        cmocka_unit_test(greetings),
        cmocka_unit_test(without_a_template),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
