/* A child that stands in for Python: the test program itself, which the library starts with the arguments of
 * an interpreter. The environment variable LN_MOCK says at which step of the protocol it does what: "STEP
 * ACTION". Steps: hello, load, prompt, token, end, class, keys, cancel. */
#ifndef LN_TESTS_MOCK_CHILD_H
#define LN_TESTS_MOCK_CHILD_H

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char mock_step[32], mock_action[32];

static void mock_put(const char *data, size_t n) {
    while (n > 0) {
        const ssize_t done = write(1, data, n);
        if (done <= 0) _exit(0);
        data += done, n -= (size_t)done;
    }
}

static void mock_say(const char *fmt, ...) {
    char text[4096];
    va_list list;
    va_start(list, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    mock_put(text, (size_t)n);
}

static void mock_hang(void) {
    for (;;) sleep(100);
}

static void mock_fill(size_t n, char c) {
    static char block[1 << 16];
    memset(block, c, sizeof block);
    for (; n > 0; n -= n < sizeof block ? n : sizeof block)
        mock_put(block, n < sizeof block ? n : sizeof block);
}

/* Does what LN_MOCK says for this step, if it says something. True: the step's own message is left out. */
static bool mock_misbehaves(const char *step, int id) {
    if (strcmp(step, mock_step) != 0) return false;
    const char *a = mock_action;
    if (!strcmp(a, "bad")) mock_say("{nope\n");
    else if (!strcmp(a, "list")) mock_say("[1]\n");
    else if (!strcmp(a, "noev")) mock_say("{\"id\":%d}\n", id);
    else if (!strcmp(a, "future")) mock_say("{\"id\":999,\"ev\":\"token\"}\n");
    else if (!strcmp(a, "unknown")) mock_say("{\"id\":%d,\"ev\":\"surprise\"}\n", id);
    else if (!strcmp(a, "empty"))
        mock_say("{\"id\":%d,\"ev\":\"%s\"}\n", id, strcmp(step, "load") ? step : "loaded");
    else if (!strcmp(a, "binary")) mock_put("\0\xff\xfe\n", 4);
    else if (!strcmp(a, "half")) mock_say("{\"id\":%d,\"ev\":\"to", id), _exit(0);
    else if (!strcmp(a, "stuck")) mock_say("{\"id\":%d,\"ev\":\"to", id), mock_hang();
    else if (!strcmp(a, "long")) mock_fill((1 << 20) + 100, 'x'), mock_hang();
    else if (!strcmp(a, "mebibyte")) mock_fill((1 << 20) - 2, ' '), mock_say("{}\n");
    else if (!strcmp(a, "die")) fprintf(stderr, "Traceback:\n  the mock died\n"), _exit(3);
    else if (!strcmp(a, "kill")) raise(SIGKILL);
    else if (!strcmp(a, "leave")) _exit(0);
    else if (!strcmp(a, "close")) close(0), close(1), mock_hang();
    else if (!strcmp(a, "hang")) mock_hang();
    else if (!strcmp(a, "refuse"))
        mock_say("{\"id\":%d,\"ev\":\"error\",\"kind\":\"numeric\",\"message\":\"NaN\\nhere\"}\n", id);
    else if (!strcmp(a, "kind"))
        mock_say("{\"id\":%d,\"ev\":\"error\",\"kind\":\"odd\",\"message\":\"x\"}\n", id);
    else if (!strcmp(a, "noise")) {
        for (int i = 0; i < 20000; i++)
            fprintf(stderr, "line %d of much noise on standard error .......\n", i);
        return false;
    } else return false;
    return true;
}

static int mock_id_of(const char *line) {
    const char *at = strstr(line, "\"id\":");
    return at ? atoi(at + 5) : 0;
}

static void mock_end(int id, const char *finish, int n) {
    if (mock_misbehaves("end", id)) return;
    mock_say("{\"id\":%d,\"ev\":\"end\",\"finish\":\"%s\",\"stop_id\":7,\"stop_text\":-1,\"prompt_tokens\":3,"
             "\"generated_tokens\":%d,\"reasoning_tokens\":0,\"active_bytes\":10,\"peak_bytes\":20,"
             "\"prefill_seconds\":0.5,\"first_token_seconds\":0.6,\"total_seconds\":1.5}\n",
             id, finish, n);
}

static bool mock_readable(int ms) {
    struct pollfd p = {.fd = 0, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* Five tokens; "slow" and "deaf": one every 5 ms, until a cancel, or for half a second. */
static void mock_generate(int id) {
    static const char *const texts[] = {"Hello", " ", "world", "!", "\\n"};
    const bool slow = !strcmp(mock_action, "slow"), deaf = !strcmp(mock_action, "deaf");
    if (mock_misbehaves("prompt", id)) return;
    mock_say("{\"id\":%d,\"ev\":\"prompt\",\"ids\":[1,2,3]}\n", id);
    if (mock_misbehaves("token", id)) return;
    for (int i = 0; i < (slow ? 100000 : deaf ? 100 : 5); i++) {
        mock_say("{\"id\":%d,\"ev\":\"token\",\"token\":%d,\"text\":\"%s\",\"reasoning\":false}\n", id,
                 100 + i % 5, texts[i % 5]);
        if (deaf) usleep(5000);
        if (slow && mock_readable(5)) {
            mock_end(id, "cancelled", i + 1);
            return;
        }
    }
    mock_end(id, "stop", 5);
}

static void mock_load(int id) {
    if (mock_misbehaves("load", id)) return;
    mock_say("{\"id\":%d,\"ev\":\"loaded\",\"model_type\":\"pid%d\",\"dtype\":\"float32\",\"bits\":0,"
             "\"group\":0,"
             "\"layers\":24,\"heads\":8,\"kv_heads\":2,\"head_dim\":64,\"width\":2048,\"ffn\":1,"
             "\"vocabulary\":32000,\"context\":4096,\"window\":0,\"parameters\":9,\"bytes\":36,\"tied\":true,"
             "\"template\":true,\"reasoning\":false,\"think_switch\":false,\"ends\":[7]}\n",
             id, (int)getpid());
}

/* Ends, as the script does, if a request is not JSON. Seeds have 64 bits, jansson's integers 63. */
static void mock_check(const char *line) {
    json_t *v = json_loads(line, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
    if (!json_is_object(v)) fprintf(stderr, "a request is not JSON: %s\n", line), _exit(4);
    json_decref(v);
}

static void mock_answer(const char *line) {
    const int id = mock_id_of(line);
    mock_check(line);
    if (strstr(line, "\"cmd\":\"load\"")) mock_load(id);
    if (strstr(line, "\"cmd\":\"generate\"")) mock_generate(id);
    if (strstr(line, "\"cmd\":\"classify\"") && !mock_misbehaves("class", id)) {
        mock_say("{\"id\":%d,\"ev\":\"class\",\"index\":0,\"scores\":[-1.5,-0.5]}\n", id);
        mock_end(id, "stop", 0);
    }
    if (strstr(line, "\"cmd\":\"inspect\"") && !mock_misbehaves("keys", id)) {
        mock_say("{\"id\":%d,\"ev\":\"keys\",\"layer\":0,\"heads\":1,\"rows\":1,\"width\":2,\"at\":0,"
                 "\"total\":2,"
                 "\"data\":\"AACAPwAAAEA=\"}\n", /* 1, 2 */
                 id);
        mock_end(id, "stop", 0);
    }
    if (strstr(line, "\"cmd\":\"quit\"")) _exit(0);
}

/* Runs as the child if the arguments are those of an interpreter; returns otherwise. */
static void mock_main(int argc, char **argv) {
    const char *how = getenv("LN_MOCK");
    static char line[1 << 16];
    if (argc != 5 || strcmp(argv[1], "-u") != 0 || strcmp(argv[2], "-c") != 0) return;
    if (how) (void)sscanf(how, "%31s %31s", mock_step, mock_action);
    char first[4] = "";
    for (long left = atol(argv[4]), n; left > 0; left -= n) {
        n = read(0, line, (size_t)(left < (long)sizeof line ? left : (long)sizeof line));
        if (n <= 0) _exit(9);
        if (!first[0]) memcpy(first, line, 3);
    }
    if (strcmp(first, "\"\"\"") != 0) _exit(8); /* not the script */
    if (!mock_misbehaves("hello", 0))
        mock_say("{\"id\":0,\"ev\":\"hello\",\"protocol\":1,\"mlx_lm\":%s}\n",
                 !strcmp(mock_action, "without") ? "null" : "\"0\"");
    for (size_t n = 0;;) {
        char *stop;
        const ssize_t got = read(0, line + n, sizeof line - 1 - n);
        if (got <= 0) _exit(0);
        n += (size_t)got;
        line[n] = '\0';
        while ((stop = strchr(line, '\n'))) {
            *stop = '\0';
            mock_answer(line);
            n -= (size_t)(stop + 1 - line);
            memmove(line, stop + 1, n + 1);
        }
    }
}

#endif
