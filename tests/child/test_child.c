/* The mlx-lm child against a mock (mock_child.h): everything that a process can do wrong is a clear error
 * within its time limit, and no process, descriptor, thread or memory is left. */
/* run: slow tsan-long */
#include "../base/cm.h"
#include "mock_child.h"

#include <linnet_backend.h>

#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#define MODEL LN_ROOT "/tests/golden/qwen2-f32"

static char self[4096];
static const int32_t three[] = {1, 2, 3};
static const ln_prompt prompt = {.size = sizeof(ln_prompt), .ids = three, .n_ids = 3};

static ln_backend_options options(double load_seconds, double reply_seconds) {
    ln_backend_options o = ln_backend_options_default();
    o.python = self;
    o.load_seconds = load_seconds;
    o.reply_seconds = reply_seconds;
    return o;
}

static ln_backend_model *load_mock(const char *how, double reply_seconds) {
    ln_backend_model *m = NULL;
    ln_error err = {0};
    const ln_backend_options o = options(20, reply_seconds);
    setenv("LN_MOCK", how, 1);
    if (ln_backend_load(&m, "mlx_lm", MODEL, &o, &err) != LN_OK) fail_msg("%s: %s", how, err.message);
    return m;
}

static int count_in(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* What must be as before when all models are closed. */
typedef struct leftovers {
    int fds, threads;
    uint64_t bytes;
} leftovers;
static leftovers leftovers_now(void) {
    return (leftovers){count_in("/proc/self/fd"), count_in("/proc/self/task"), ln_mem_bytes()};
}
static void nothing_left(const leftovers *was, const char *what) {
    leftovers now = leftovers_now();
    for (int i = 0; i < 100 && now.threads != was->threads;
         i++) { /* a joined thread may be listed for a moment */
        usleep(10000);
        now = leftovers_now();
    }
    if (now.fds != was->fds || now.threads != was->threads || now.bytes != was->bytes)
        fail_msg("%s: %d descriptors, %d threads, %llu bytes; before %d, %d, %llu", what, now.fds,
                 now.threads, (unsigned long long)now.bytes, was->fds, was->threads,
                 (unsigned long long)was->bytes);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) fail_msg("%s: a child process is left", what);
}

/* ---- what the mock does right ---- */

static ln_status add_text(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)err;
    ln_str_add(user, text, bytes);
    return LN_OK;
}

static void test_answers(void **state) {
    (void)state;
    const leftovers was = leftovers_now();
    ln_backend_model *m = load_mock("", 20);
    ln_str text = {0};
    ln_result r = {.size = sizeof r};
    ln_info info = {.size = sizeof info};
    ln_metrics metrics;
    assert_int_equal(ln_backend_generate(m, &prompt, NULL, add_text, &text, &r, NULL), LN_OK);
    assert_string_equal(text.data, "Hello world!\n");
    assert_string_equal(r.text, text.data);
    assert_string_equal(r.reasoning, "");
    assert_int_equal(r.n_prompt_ids, 3);
    assert_int_equal(r.n_ids, 5);
    assert_int_equal(r.ids[4], 104);
    assert_int_equal(r.finish, LN_FINISH_STOP);
    assert_int_equal(r.stop_id, 7);
    assert_int_equal(r.metrics.prompt_tokens, 3);
    assert_true(r.metrics.prefill_tok_s == 6 && r.metrics.decode_tok_s == 5);
    ln_result_free(&r);
    ln_str_free(&text);
    assert_int_equal(ln_backend_metrics(m, &metrics, NULL), LN_OK);
    assert_int_equal(metrics.generated_tokens, 5);
    assert_int_equal(ln_backend_info(m, &info, NULL), LN_OK);
    assert_int_equal(info.vocab_size, 32000);
    assert_int_equal(info.n_ctx_max, 4096);
    assert_true(info.tied && info.has_template && !info.has_reasoning);
    const ln_message talk[] = {{"user", "Hi", 2}};
    assert_int_equal(ln_backend_chat(m,
                                     &(ln_prompt){
                                         .size = sizeof(ln_prompt), .messages = talk, .n_messages = 1},
                                     NULL, NULL, NULL, &r, NULL),
                     LN_OK);
    ln_result_free(&r);
    ln_backend_close(&m);
    ln_backend_close(&m);
    nothing_left(&was, "a plain run");
}

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    (void)err;
    *(ln_class *)user = *c;
    *(double *)((ln_class *)user + 1) = c->probabilities[1];
    return LN_OK;
}
static ln_status on_keys(void *user, int layer, const float *keys, int heads, int64_t rows, int width,
                         ln_error *err) {
    (void)err, (void)layer, (void)heads, (void)rows, (void)width;
    memcpy(user, keys, 2 * sizeof *keys);
    return LN_OK;
}

static void test_classes_and_keys(void **state) {
    (void)state;
    ln_backend_model *m = load_mock("", 20);
    struct {
        ln_class c;
        double share;
    } got = {0};
    static const char *const labels[] = {"a", "b"};
    ln_classify_options o = ln_classify_options_default();
    float keys[2] = {0, 0};
    o.labels = labels, o.n_labels = 2;
    assert_int_equal(ln_backend_classify(m, &prompt, 1, &o, on_class, &got, NULL, NULL), LN_OK);
    assert_int_equal(got.c.label, 1);
    assert_true(got.share > 0.7310 && got.share < 0.7311); /* 1 / (1 + e^-1) */
    assert_int_equal(ln_backend_inspect(m, three, 3, on_keys, keys, NULL), LN_OK);
    assert_true(keys[0] == 1 && keys[1] == 2);
    ln_backend_close(&m);
}

/* ---- what the mock does wrong ---- */

typedef struct wrong {
    const char *how, *word; /* LN_MOCK; a part of the message */
    ln_status status;
    double limit;
    bool dead; /* the model can only be closed afterwards */
} wrong;

static ln_status go_wrong(const wrong *w, ln_backend_model **m, ln_error *err) {
    const ln_backend_options o =
        options(strncmp(w->how, "hello", 5) && strncmp(w->how, "load", 4) ? 20 : 0.4, 0.4);
    static const char *const labels[] = {"a", "b"};
    ln_classify_options how = ln_classify_options_default();
    struct {
        ln_class c;
        double share;
    } got;
    ln_result r = {.size = sizeof r};
    float keys[2];
    how.labels = labels, how.n_labels = 2;
    setenv("LN_MOCK", w->how, 1);
    LN_TRY(ln_backend_load(m, "mlx_lm", MODEL, &o, err));
    if (!strncmp(w->how, "class", 5))
        return ln_backend_classify(*m, &prompt, 1, &how, on_class, &got, NULL, err);
    if (!strncmp(w->how, "keys", 4)) return ln_backend_inspect(*m, three, 3, on_keys, keys, err);
    const ln_status st = ln_backend_generate(*m, &prompt, NULL, NULL, NULL, &r, err);
    assert_non_null(r.text); /* what came before the error is kept */
    assert_true(st == LN_OK || r.finish == LN_FINISH_CANCELLED);
    ln_result_free(&r);
    return st;
}

static void test_every_wrong_step(void **state) {
    (void)state;
    static const wrong cases[] = {
        {"hello bad", "no JSON", LN_EIO, 2, true},
        {"hello binary", "no JSON", LN_EIO, 2, true},
        {"hello empty", "protocol", LN_EIO, 2, true},
        {"hello half", "middle of a message", LN_EIO, 2, true},
        {"hello stuck", "said nothing for 0.4 s (ln_backend_options.load_seconds)", LN_EIO, 2, true},
        {"hello long", "more than 1048576 bytes", LN_EIO, 2, true},
        {"hello die", "exit status 3; it wrote: Traceback: |   the mock died", LN_EIO, 2, true},
        {"hello kill", "signal 9", LN_EIO, 2, true},
        {"hello close", "closed", LN_EIO, 3, true},
        {"hello hang", "said nothing", LN_EIO, 2, true},
        {"hello unknown", "hello", LN_EIO, 2, true},
        {"hello without", "pip install mlx-lm", LN_EUNSUPPORTED, 2, true},
        {"load bad", "no JSON: '{nope'", LN_EIO, 2, true},
        {"load empty", "loaded: bits: expected an integer", LN_EIO, 2, true},
        {"load unknown", "surprise", LN_EIO, 2, true},
        {"load future", "never sent", LN_EIO, 2, true},
        {"load half", "middle of a message", LN_EIO, 2, true},
        {"load long", "more than 1048576 bytes", LN_EIO, 2, true},
        {"load mebibyte", "without id and ev", LN_EIO, 2, true},
        {"load die", "the mock died", LN_EIO, 2, true},
        {"load leave", "exit status 0", LN_EIO, 2, true},
        {"load hang", "load_seconds", LN_EIO, 2, true},
        {"load refuse", "NaN here", LN_ENUMERIC, 2, true},
        {"prompt bad", "no JSON", LN_EIO, 2, true},
        {"prompt list", "without id and ev", LN_EIO, 2, true},
        {"prompt noev", "without id and ev", LN_EIO, 2, true},
        {"prompt empty", "prompt: ids: expected a list, found nothing", LN_EIO, 2, true},
        {"prompt half", "middle of a message", LN_EIO, 2, true},
        {"prompt stuck", "reply_seconds", LN_EIO, 2, true},
        {"prompt long", "more than 1048576 bytes", LN_EIO, 2, true},
        {"prompt die", "the mock died", LN_EIO, 2, true},
        {"prompt hang", "said nothing for 0.4 s (ln_backend_options.reply_seconds)", LN_EIO, 2, true},
        {"prompt refuse", "NaN here", LN_ENUMERIC, 2, false},
        {"prompt kind", "unknown kind 'odd'", LN_EIO, 2, true},
        {"token bad", "no JSON", LN_EIO, 2, true},
        {"token empty", "token: expected an integer", LN_EIO, 2, true},
        {"token unknown", "surprise", LN_EIO, 2, true},
        {"token future", "never sent", LN_EIO, 2, true},
        {"token kill", "signal 9", LN_EIO, 2, true},
        {"token close", "closed", LN_EIO, 3, true},
        {"token hang", "reply_seconds", LN_EIO, 2, true},
        {"token mebibyte", "without id and ev", LN_EIO, 2, true},
        {"end bad", "no JSON", LN_EIO, 2, true},
        {"end empty", "finish: expected a text", LN_EIO, 2, true},
        {"end half", "middle of a message", LN_EIO, 2, true},
        {"end die", "the mock died", LN_EIO, 2, true},
        {"end hang", "reply_seconds", LN_EIO, 2, true},
        {"end refuse", "NaN here", LN_ENUMERIC, 2, false},
        {"class empty", "class: index", LN_EIO, 2, true},
        {"class bad", "no JSON", LN_EIO, 2, true},
        {"class hang", "reply_seconds", LN_EIO, 2, true},
        {"class refuse", "NaN here", LN_ENUMERIC, 2, false},
        {"keys empty", "keys: layer", LN_EIO, 2, true},
        {"keys die", "the mock died", LN_EIO, 2, true},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const wrong *w = &cases[i];
        const leftovers was = leftovers_now();
        ln_backend_model *m = NULL;
        ln_error err = {0};
        const double begin = ln_now();
        const ln_status st = go_wrong(w, &m, &err);
        const double seconds = ln_now() - begin;
        if (st != w->status || !strstr(err.message, w->word))
            fail_msg("%s: status %d, expected %d with '%s': %s", w->how, st, w->status, w->word, err.message);
        if (seconds > w->limit) fail_msg("%s: took %.1f s, at most %.1f", w->how, seconds, w->limit);
        for (const char *at = err.message; *at; at++)
            if ((unsigned char)*at < ' ') fail_msg("%s: a control character in '%s'", w->how, err.message);
        if (m) { /* the next call tells whether the process can be used */
            const ln_status next = ln_backend_generate(m, &prompt, NULL, NULL, NULL, NULL, &err);
            if (w->dead && (next != LN_EIO || !strstr(err.message, "before")))
                fail_msg("%s: the next call: %d: %s", w->how, next, err.message);
            if (!w->dead && next != w->status && next != LN_OK) fail_msg("%s: %s", w->how, err.message);
        }
        ln_backend_close(&m);
        nothing_left(&was, w->how);
    }
}

/* Standard error is read while the process answers: a full pipe would stop it. */
static void test_noise(void **state) {
    (void)state;
    ln_backend_model *m = load_mock("token noise", 20);
    ln_result r = {.size = sizeof r};
    assert_int_equal(ln_backend_generate(m, &prompt, NULL, NULL, NULL, &r, NULL), LN_OK);
    assert_int_equal(r.n_ids, 5);
    ln_result_free(&r);
    ln_backend_close(&m);
}

/* ---- interpreters ---- */

static void test_interpreters(void **state) {
    (void)state;
    static const struct {
        const char *python, *word;
    } cases[] = {{"/nonexistent/python", "found nothing"},
                 {LN_ROOT "/README.md", "found no program"},
                 {LN_ROOT "/tests", "virtual environment"},
                 {"no-such-python-anywhere", "on PATH"},
                 {"", "on PATH"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_backend_options o = ln_backend_options_default();
        ln_backend_model *m = NULL;
        ln_error err = {0};
        o.python = cases[i].python;
        assert_int_equal(ln_backend_load(&m, "mlx_lm", MODEL, &o, &err), LN_EIO);
        if (!strstr(err.message, cases[i].word)) fail_msg("'%s': %s", cases[i].python, err.message);
        assert_null(m);
    }
}

static void test_refused_options(void **state) {
    (void)state;
    const ln_options set[] = {{.size = sizeof(ln_options), .n_threads = 1},
                              {.size = sizeof(ln_options), .quantize_bits = 4},
                              {.size = sizeof(ln_options), .numerics = LN_FAST},
                              {.size = sizeof(ln_options), .mlock = true}};
    static const char *const names[] = {"n_threads", "quantize_bits", "numerics", "mlock"};
    for (size_t i = 0; i < LN_COUNT(set); i++) {
        ln_backend_options o = options(20, 20);
        ln_backend_model *m = NULL;
        ln_error err = {0};
        o.options = &set[i];
        assert_int_equal(ln_backend_load(&m, "mlx_lm", MODEL, &o, &err), LN_EUSAGE);
        if (!strstr(err.message, names[i])) fail_msg("%s: %s", names[i], err.message);
    }
    ln_backend_model *m = load_mock("", 20);
    ln_sampling how = {.size = sizeof how};
    ln_error err = {0};
    assert_int_equal(ln_backend_sampling(m, &how, NULL), LN_OK);
    how.has_think_budget = true;
    assert_int_equal(ln_backend_generate(m, &prompt, &how, NULL, NULL, NULL, &err), LN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "think_budget"));
    how.has_think_budget = false, how.temperature = -1;
    assert_int_equal(ln_backend_generate(m, &prompt, &how, NULL, NULL, NULL, &err), LN_EUSAGE);
    assert_int_equal(ln_backend_generate(m,
                                         &(ln_prompt){
                                             .size = sizeof(ln_prompt), .text = "a\xff", .text_bytes = 2},
                                         NULL, NULL, NULL, NULL, &err),
                     LN_EINVALID);
    assert_int_equal(ln_backend_generate(m,
                                         &(ln_prompt){.size = sizeof(ln_prompt),
                                                      .text = "a",
                                                      .text_bytes = 1,
                                                      .ids = three,
                                                      .n_ids = 3},
                                         NULL, NULL, NULL, NULL, &err),
                     LN_EUSAGE);
    ln_backend_close(&m);
}

/* ---- cancelling ---- */

static void *cancel_soon(void *model) {
    usleep(100000);
    ln_backend_cancel(model, true);
    return NULL;
}

static double cancel_seconds(ln_backend_model *m, ln_result *r) {
    pthread_t t;
    const double begin = ln_now();
    ln_error err = {0};
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, m), 0);
    if (ln_backend_generate(m, &prompt, NULL, NULL, NULL, r, &err) != LN_OK) fail_msg("%s", err.message);
    const double seconds = ln_now() - begin - 0.1;
    pthread_join(t, NULL);
    assert_int_equal(r->finish, LN_FINISH_CANCELLED);
    return seconds;
}

/* A process that obeys ends its request; one that does not, or is silent, delays no caller, and what it
 * still sends is not taken for the next answer. */
static void test_cancel(void **state) {
    (void)state;
    static const char *const hows[] = {"x slow", "x deaf"};
    for (size_t i = 0; i < LN_COUNT(hows); i++) {
        ln_backend_model *m = load_mock(hows[i], 20);
        ln_result r = {.size = sizeof r};
        const double seconds = cancel_seconds(m, &r);
        if (seconds > 0.25) fail_msg("%s: %.3f s", hows[i], seconds);
        assert_true(r.n_ids > 1 && r.text_bytes > 1);
        ln_result_free(&r);
        /* the request to stop stays until it is cleared */
        assert_int_equal(ln_backend_generate(m, &prompt, NULL, NULL, NULL, &r, NULL), LN_OK);
        assert_int_equal(r.finish, LN_FINISH_CANCELLED);
        assert_int_equal(r.n_ids, 0);
        ln_result_free(&r);
        ln_backend_cancel(m, false);
        if (i == 1) {
            assert_int_equal(ln_backend_generate(m, &prompt, NULL, NULL, NULL, &r, NULL), LN_OK);
            assert_int_equal(r.finish, LN_FINISH_STOP);
            assert_int_equal(r.n_ids, 100);
            ln_result_free(&r);
        }
        ln_backend_close(&m);
    }
}

static ln_status stop_at_second(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)text, (void)bytes;
    if (++*(int *)user < 2) return LN_OK;
    return *(int *)user > 2 ? ln_fail(err, LN_EINTERNAL, "called again") : LN_ECANCELLED;
}
static ln_status fail_at_once(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)user, (void)text, (void)bytes;
    return ln_fail(err, LN_EIO, "the disk is full");
}

static void test_callbacks_end_it(void **state) {
    (void)state;
    ln_backend_model *m = load_mock("x slow", 20);
    ln_result r = {.size = sizeof r};
    ln_error err = {0};
    int n = 0;
    assert_int_equal(ln_backend_generate(m, &prompt, NULL, stop_at_second, &n, &r, NULL), LN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(r.finish, LN_FINISH_CANCELLED);
    ln_result_free(&r);
    assert_int_equal(ln_backend_generate(m, &prompt, NULL, fail_at_once, NULL, &r, &err), LN_EIO);
    assert_string_equal(err.message, "the disk is full");
    ln_result_free(&r);
    ln_backend_close(&m);
}

static void *generate_once(void *model) {
    ln_result r = {.size = sizeof r};
    (void)!ln_backend_generate(model, &prompt, NULL, NULL, NULL, &r, NULL);
    ln_result_free(&r);
    return NULL;
}

/* Closing while a call runs: the call ends, and the last one out frees everything. */
static void test_close_while_running(void **state) {
    (void)state;
    const leftovers was = leftovers_now();
    ln_backend_model *m = load_mock("x slow", 20), *copy = m;
    pthread_t t[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, generate_once, m), 0);
    usleep(100000);
    ln_backend_close(&m);
    ln_backend_close(&copy); /* a second close of the same handle */
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    nothing_left(&was, "close while running");
}

/* ---- the end of the process ---- */

static int pid_of(ln_backend_model *m) {
    ln_info info = {.size = sizeof info};
    assert_int_equal(ln_backend_info(m, &info, NULL), LN_OK);
    return atoi(info.model_type + 3);
}

static bool runs(int pid) {
    char path[64], text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *after = n > 0 ? strrchr(text, ')') : NULL;
    return after && after[2] != 'Z' && after[2] != 'X';
}

/* The process ends with its parent, even if it never looks at its input. */
static void test_dies_with_parent(void **state) {
    (void)state;
    static const char *const hows[] = {"", "prompt hang"};
    for (size_t i = 0; i < LN_COUNT(hows); i++) {
        int report[2], pid = 0;
        assert_int_equal(pipe(report), 0);
        const pid_t parent = fork();
        if (parent == 0) {
            pthread_t t;
            ln_backend_model *m = load_mock(hows[i], 20);
            const int child = pid_of(m);
            (void)pthread_create(&t, NULL, generate_once, m);
            usleep(50000);
            if (write(report[1], &child, sizeof child) != sizeof child) _exit(1);
            mock_hang();
        }
        assert_int_equal(read(report[0], &pid, sizeof pid), sizeof pid);
        assert_true(pid > 0 && runs(pid));
        assert_int_not_equal(getpgid(pid), getpgid(0)); /* Ctrl-C is not for it */
        kill(parent, SIGKILL);
        assert_int_equal(waitpid(parent, NULL, 0), parent);
        for (int k = 0; k < 200 && runs(pid); k++) usleep(10000);
        assert_false(runs(pid));
        close(report[0]), close(report[1]);
    }
}

static void *load_in_thread(void *out) {
    *(ln_backend_model **)out = load_mock("", 20);
    return NULL;
}

/* The thread that loaded a model may end: the process is not its own. */
static void test_outlives_thread(void **state) {
    (void)state;
    ln_backend_model *m = NULL;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, load_in_thread, &m), 0);
    pthread_join(t, NULL);
    usleep(100000);
    assert_int_equal(ln_backend_generate(m, &prompt, NULL, NULL, NULL, NULL, NULL), LN_OK);
    ln_backend_close(&m);
}

/* A process that does not end by itself is killed two seconds after the close. */
static void test_close_of_a_hung_process(void **state) {
    (void)state;
    const leftovers was = leftovers_now();
    ln_backend_model *m = load_mock("prompt hang", 20);
    const int pid = pid_of(m);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, generate_once, m), 0);
    usleep(50000);
    const double begin = ln_now();
    ln_backend_close(&m);
    pthread_join(t, NULL);
    assert_true(ln_now() - begin < 3.5);
    assert_false(runs(pid));
    nothing_left(&was, "a hung process");
}

/* ---- memory ---- */

static void test_failing_allocations(void **state) {
    (void)state;
    const leftovers was = leftovers_now();
    ln_backend_model *m = NULL;
    const ln_backend_options o = options(20, 20);
    setenv("LN_MOCK", "", 1);
    bool done = false;
    for (int64_t n = 1; !done; n += n < 20 ? 1 : 7) {
        ln_result r = {.size = sizeof r};
        ln_mem_fail_at(n, false);
        ln_status st = ln_backend_load(&m, "mlx_lm", MODEL, &o, NULL);
        if (st == LN_OK) st = ln_backend_generate(m, &prompt, NULL, NULL, NULL, &r, NULL);
        done = ln_mem_fail_at(0, false) > 0;
        if (st != LN_OK && st != LN_EMEMORY)
            fail_msg("allocation %lld: %s", (long long)n, ln_last_error()->message);
        ln_result_free(&r);
        ln_backend_close(&m);
    }
    nothing_left(&was, "failed allocations");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_classes_and_keys),
        cmocka_unit_test(test_every_wrong_step),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_interpreters),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_callbacks_end_it),
        cmocka_unit_test(test_close_while_running),
        cmocka_unit_test(test_dies_with_parent),
        cmocka_unit_test(test_outlives_thread),
        cmocka_unit_test(test_close_of_a_hung_process),
        cmocka_unit_test(test_failing_allocations),
    };
    mock_main(argc, argv);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!realpath("/proc/self/exe", self)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
