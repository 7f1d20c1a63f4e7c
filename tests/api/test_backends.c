/* The registry of backends from outside: a program that knows linnet.h alone registers one and runs generate,
 * chat, cancel and close; the native backend against the engine's own functions; names, sizes, handles,
 * threads. */
/* run: slow asan tsan-long cuda */
#include <linnet.h>
#include <linnet_backend.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/qwen2-f32"
#define TINY  LN_ROOT "/models/tiny"

#define OK(x)                                                                                          \
    do {                                                                                               \
        if ((x) != LN_OK) fail_msg("%s: %d: %s", #x, ln_last_error()->code, ln_last_error()->message); \
    } while (0)
#define FAILS(status, word, x)                                                                             \
    do {                                                                                                   \
        const ln_status s_ = (x);                                                                          \
        if (s_ != (status) || !strstr(ln_last_error()->message, word))                                     \
            fail_msg("%s: %d, expected %d with '%s': %s", #x, s_, status, word, ln_last_error()->message); \
    } while (0)

static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a backend of this program: answers with the prompt's words ---- */

typedef struct parrot {
    int n_calls;
    atomic_bool interrupted;
} parrot;
static atomic_int n_open, n_closed, at_once, most_at_once, n_interrupts;

static ln_status parrot_load(void **model, void *user, const char *path, const ln_backend_options *opt,
                             ln_error *err) {
    (void)opt;
    if (strcmp(path, "absent") == 0) {
        err->code = LN_EIO;
        (void)snprintf(err->message, sizeof err->message, "absent: no such parrot in %s", (const char *)user);
        return LN_EIO;
    }
    *model = calloc(1, sizeof(parrot));
    n_open++;
    return *model ? LN_OK : LN_EMEMORY;
}
static void parrot_close(void *model) {
    free(model);
    n_closed++;
}

/* Repeats the text, a byte a token. A text "forever" goes on until it is stopped; "blocked" does not ask. */
static ln_status parrot_generate(void *model, const ln_prompt *p, const ln_sampling *how,
                                 const ln_backend_sink *sink, ln_backend_end *end, ln_error *err) {
    parrot *me = model;
    const char *text = p->text ? p->text : p->messages[p->n_messages - 1].content;
    const int32_t ids[] = {1, 2, 3};
    const int others = at_once++;
    if (others + 1 > most_at_once) most_at_once = others + 1;
    me->n_calls++;
    ln_status st = sink->on_prompt(sink->user, ids, 3, err);
    const bool forever = strcmp(text, "forever") == 0, blocked = strcmp(text, "blocked") == 0;
    for (size_t i = 0; st == LN_OK && (forever || blocked || text[i]); i++) {
        if (forever && sink->stopped(sink->user)) st = LN_ECANCELLED;
        if (blocked && me->interrupted) st = LN_ECANCELLED;
        if (st == LN_OK && how->n_max >= 0 && (int64_t)i >= how->n_max) break;
        if (st == LN_OK) st = sink->on_token(sink->user, 100 + (int32_t)i, err);
        if (st == LN_OK) st = sink->on_text(sink->user, forever || blocked ? "x" : text + i, 1, false, err);
        if (forever || blocked) usleep(2000);
    }
    if (strcmp(text, "fail") == 0) {
        st = err->code = LN_ENUMERIC;
        (void)snprintf(err->message, sizeof err->message, "the parrot is ill");
    }
    end->finish = st == LN_ECANCELLED ? LN_FINISH_CANCELLED : LN_FINISH_STOP;
    end->metrics.generated_tokens = 42;
    me->interrupted = false;
    at_once--;
    return st == LN_ECANCELLED ? LN_OK : st;
}
static void parrot_cancel(void *model) {
    n_interrupts++;
    ((parrot *)model)->interrupted = true;
}

static const ln_backend parrot_table = {.size = sizeof(ln_backend),
                                        .name = "parrot",
                                        .what = "repeats what it hears",
                                        .user = (void *)(uintptr_t) "Norway",
                                        .load = parrot_load,
                                        .close = parrot_close,
                                        .generate = parrot_generate,
                                        .chat = parrot_generate,
                                        .cancel = parrot_cancel};

static ln_prompt say(const char *text) {
    return (ln_prompt){.size = sizeof(ln_prompt), .text = text, .text_bytes = strlen(text)};
}

static ln_backend_model *load(const char *backend, const char *model) {
    ln_backend_model *m = NULL;
    OK(ln_backend_load(&m, backend, model, NULL, NULL));
    return m;
}

static void an_outside_backend_answers(void **state) {
    (void)state;
    ln_backend_model *m = load("parrot", "any"), *copy = m;
    ln_result r = {.size = sizeof r};
    ln_metrics metrics;
    ln_info info = {.size = sizeof info};
    ln_prompt p = say("Hello");
    OK(ln_backend_metrics(m, &metrics, NULL));
    assert_int_equal(metrics.generated_tokens, 0);
    OK(ln_backend_generate(m, &p, NULL, NULL, NULL, &r, NULL));
    assert_string_equal(r.text, "Hello");
    assert_string_equal(r.reasoning, "");
    assert_int_equal(r.n_prompt_ids, 3);
    assert_int_equal(r.n_ids, 5);
    assert_int_equal(r.ids[4], 104);
    assert_int_equal(r.stop_id, -1);
    ln_result_free(&r);
    OK(ln_backend_metrics(m, &metrics, NULL));
    assert_int_equal(metrics.generated_tokens, 42);
    const ln_message talk[] = {{"user", "first", 5}, {"user", "Hi", 2}};
    p = (ln_prompt){.size = sizeof(ln_prompt), .messages = talk, .n_messages = 2};
    OK(ln_backend_chat(m, &p, NULL, NULL, NULL, &r, NULL));
    assert_string_equal(r.text, "Hi");
    ln_result_free(&r);
    FAILS(LN_EUSAGE, "ln_backend_chat", ln_backend_generate(m, &p, NULL, NULL, NULL, &r, NULL));
    p = say("fail");
    FAILS(LN_ENUMERIC, "the parrot is ill", ln_backend_generate(m, &p, NULL, NULL, NULL, &r, NULL));
    assert_string_equal(r.text, "fail");
    assert_int_equal(r.finish, LN_FINISH_CANCELLED);
    ln_result_free(&r);
    FAILS(LN_EUNSUPPORTED, "the backend parrot has no", ln_backend_info(m, &info, NULL));
    FAILS(LN_EUNSUPPORTED, "the backend parrot has no",
          ln_backend_inspect(m, &(int32_t){1}, 1, (ln_keys_fn *)1, NULL, NULL));
    FAILS(LN_EUNSUPPORTED, "the backend parrot has no",
          ln_backend_classify(m, &p, 1, NULL, (ln_class_fn *)1, NULL, NULL, NULL));
    const int closed = n_closed;
    ln_backend_close(&m);
    assert_null(m);
    ln_backend_close(&copy);
    ln_backend_close(&m);
    assert_int_equal(n_closed, closed + 1);
    FAILS(LN_EUSAGE, "handle is NULL", ln_backend_metrics(m, &metrics, NULL));
    ln_backend_cancel(NULL, true);
    FAILS(LN_EIO, "no such parrot in Norway", ln_backend_load(&m, "parrot", "absent", NULL, NULL));
}

/* ---- cancelling ---- */

static void *cancel_soon(void *model) {
    usleep(50000);
    ln_backend_cancel(model, true);
    return NULL;
}

static void an_outside_backend_is_cancelled(void **state) {
    (void)state;
    static const char *const texts[] = {"forever", "blocked"}; /* asks; is interrupted */
    for (int i = 0; i < 2; i++) {
        ln_backend_model *m = load("parrot", "any");
        const ln_prompt p = say(texts[i]);
        const int before = n_interrupts;
        pthread_t t;
        ln_result r = {.size = sizeof r};
        const double begin = now();
        assert_int_equal(pthread_create(&t, NULL, cancel_soon, m), 0);
        OK(ln_backend_generate(m, &p, NULL, NULL, NULL, &r, NULL));
        if (now() - begin > 0.25) fail_msg("%s: %.3f s", texts[i], now() - begin);
        pthread_join(t, NULL);
        assert_int_equal(r.finish, LN_FINISH_CANCELLED);
        assert_true(r.n_ids > 2);
        ln_result_free(&r);
        if (i == 1) assert_int_equal(n_interrupts, before + 1);
        OK(ln_backend_generate(m, &p, NULL, NULL, NULL, &r,
                               NULL)); /* the request stays until it is cleared */
        assert_int_equal(r.finish, LN_FINISH_CANCELLED);
        assert_int_equal(r.n_ids, 0);
        ln_result_free(&r);
        ln_backend_cancel(m, false);
        const ln_prompt again = say("again");
        OK(ln_backend_generate(m, &again, NULL, NULL, NULL, &r, NULL));
        assert_string_equal(r.text, "again");
        ln_result_free(&r);
        ln_backend_close(&m);
    }
}

static void *run_forever(void *model) {
    const ln_prompt p = say("forever");
    ln_result r = {.size = sizeof r};
    if (ln_backend_generate(model, &p, NULL, NULL, NULL, &r, NULL) == LN_OK) ln_result_free(&r);
    return NULL;
}

static void closing_stops_what_runs(void **state) {
    (void)state;
    ln_backend_model *m = load("parrot", "any");
    const int closed = n_closed;
    pthread_t t[3];
    most_at_once = 0;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, run_forever, m), 0);
    usleep(30000);
    ln_backend_close(&m);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    assert_int_equal(n_closed, closed + 1);
    assert_int_equal(most_at_once, 1); /* the table does not say concurrent */
}

static ln_status call_again(void *user, const char *text, size_t bytes, ln_error *err) {
    const ln_prompt p = say("x");
    (void)text, (void)bytes;
    return ln_backend_generate(user, &p, NULL, NULL, NULL, NULL, err);
}

static void a_callback_cannot_call_its_model(void **state) {
    (void)state;
    ln_backend_model *m = load("parrot", "any");
    const ln_prompt p = say("abc");
    FAILS(LN_EUSAGE, "callback", ln_backend_generate(m, &p, NULL, call_again, m, NULL, NULL));
    ln_backend_close(&m);
}

/* ---- many prompts, files ---- */

static void many_prompts_one_by_one(void **state) {
    (void)state;
    ln_backend_model *m = load("parrot", "any");
    const ln_message talk[] = {{"user", "said", 4}};
    const ln_prompt prompts[] = {
        say("one"), say("fail"), {.size = sizeof(ln_prompt), .messages = talk, .n_messages = 1}, say("")};
    ln_result r[4];
    ln_error errors[4];
    for (int i = 0; i < 4; i++) r[i].size = sizeof r[i];
    OK(ln_backend_batch(m, prompts, 4, NULL, r, errors, NULL));
    assert_string_equal(r[0].text, "one");
    assert_int_equal(errors[0].code, LN_OK);
    assert_int_equal(errors[1].code, LN_ENUMERIC);
    assert_string_equal(errors[1].message, "the parrot is ill");
    assert_string_equal(r[2].text, "said");
    assert_string_equal(r[3].text, "");
    for (int i = 0; i < 4; i++) ln_result_free(&r[i]);
    ln_backend_cancel(m, true);
    OK(ln_backend_batch(m, prompts, 4, NULL, r, errors, NULL));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r[i].finish, LN_FINISH_CANCELLED);
        ln_result_free(&r[i]);
    }
    ln_backend_close(&m);
}

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_file_of_requests(void **state) {
    (void)state;
    char dir[] = "/tmp/test_backends_XXXXXX", in[64], out[64], text[8192];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(in, sizeof in, "%s/in", dir);
    (void)snprintf(out, sizeof out, "%s/out", dir);
#define LINE(id, more)                                                                                     \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":" more \
    "}}\n"
    write_file(in, LINE("a", "\"abc\"") LINE("b", "[\"x\",\"y\"],\"n\":2") LINE("c", "\"fail\"")
                       LINE("d", "\"q\",\"logprobs\":1") LINE("e", "\"q\",\"echo\":true"));
    ln_backend_model *m = load("parrot", "any");
    ln_batch_report report = {.size = sizeof report};
    OK(ln_backend_batch_file(m, in, out, NULL, &report, NULL));
    assert_int_equal(report.n_requests, 5);
    assert_int_equal(report.n_done, 5);
    assert_int_equal(report.n_failed, 3);
    FILE *f = fopen(out, "re");
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "\"abc\""));
    assert_non_null(strstr(text, "the parrot is ill"));
    assert_non_null(strstr(text, "logprobs: this backend does not support it"));
    assert_non_null(strstr(text, "echo: this backend does not support it"));
    unlink(in), unlink(out), rmdir(dir);
    ln_backend_close(&m);
}

/* ---- the registry ---- */

static ln_status nothing(void **model, void *user, const char *path, const ln_backend_options *opt,
                         ln_error *err) {
    (void)model, (void)user, (void)path, (void)opt, (void)err;
    return LN_EUNSUPPORTED;
}
static ln_status never(void *user, const ln_backend_options *opt, ln_error *err) {
    (void)user, (void)opt;
    err->code = LN_EUNSUPPORTED;
    (void)snprintf(err->message, sizeof err->message, "on Sundays only");
    return LN_EUNSUPPORTED;
}

static void names_and_sizes(void **state) {
    (void)state;
    static const char *const names[] = {"", "Upper", "a b", "a/b", "0123456789012345678901234567890x", "ü"};
    ln_backend b = parrot_table;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        b.name = names[i];
        FAILS(LN_EUSAGE, "ln_backend.name", ln_backend_register(&b, NULL));
    }
    b.name = NULL;
    FAILS(LN_EUSAGE, "ln_backend.name", ln_backend_register(&b, NULL));
    static const char *const taken[] = {"native", "mlx_lm", "parrot"};
    for (size_t i = 0; i < 3; i++) {
        b.name = taken[i];
        FAILS(LN_EUSAGE, "registered already", ln_backend_register(&b, NULL));
    }
    b = parrot_table, b.name = "incomplete", b.generate = NULL;
    FAILS(LN_EUSAGE, "generate must not be NULL", ln_backend_register(&b, NULL));
    b = parrot_table, b.name = "sizes", b.size = 0;
    FAILS(LN_EUSAGE, "ln_backend.size", ln_backend_register(&b, NULL));
    struct {
        ln_backend b;
        void *later;
    } newer = {parrot_table, NULL};
    newer.b.name = "newer", newer.b.size = sizeof newer, newer.later = &newer;
    FAILS(LN_EUSAGE, "a field beyond them is set", ln_backend_register(&newer.b, NULL));
    newer.later = NULL;
    OK(ln_backend_register(&newer.b, NULL));
    b = parrot_table, b.name = "older",
    b.size = offsetof(ln_backend, chat); /* without chat and what follows */
    OK(ln_backend_register(&b, NULL));
    const ln_backend *kept = ln_backend_get("older");
    assert_non_null(kept);
    assert_null(kept->chat);
    assert_null(kept->cancel);
    assert_true(kept->name != b.name);
    assert_null(ln_backend_get("nobody"));
    assert_null(ln_backend_get(NULL));
    ln_backend_model *m;
    FAILS(LN_EUSAGE, "no backend 'nobody'", ln_backend_load(&m, "nobody", "any", NULL, NULL));
    m = load("older", "any");
    const ln_message talk[] = {{"user", "Hi", 2}};
    const ln_prompt p = {.size = sizeof(ln_prompt), .messages = talk, .n_messages = 1};
    FAILS(LN_EUNSUPPORTED, "older has no", ln_backend_chat(m, &p, NULL, NULL, NULL, NULL, NULL));
    const ln_sampling how = {
        .size = sizeof how, .top_p = 1, .repeat_penalty = 1, .tool_choice = LN_TOOLS_AUTO};
    FAILS(LN_EUNSUPPORTED, "ln_sampling.tool_choice", ln_backend_chat(m, &p, &how, NULL, NULL, NULL, NULL));
    ln_backend_close(&m);
}

typedef struct listing {
    char names[512], why[512];
} listing;
static ln_status on_backend(void *user, const ln_backend *b, const char *why, ln_error *err) {
    listing *l = user;
    (void)err;
    (void)snprintf(l->names + strlen(l->names), sizeof l->names - strlen(l->names), "%s ", b->name);
    if (!strcmp(b->name, "sunday")) (void)snprintf(l->why, sizeof l->why, "%s", why ? why : "none");
    /* no lock is held */
    return ln_backend_get("native") ? LN_OK : LN_EINTERNAL;
}

static void the_list_and_the_default(void **state) {
    (void)state;
    listing l = {{0}, {0}};
    ln_backend b = {.size = sizeof b,
                    .name = "sunday",
                    .load = nothing,
                    .close = parrot_close,
                    .generate = parrot_generate,
                    .available = never};
    const ln_backend *first;
    ln_backend_options o = ln_backend_options_default();
    OK(ln_backend_register(&b, NULL));
    OK(ln_backend_list(NULL, on_backend, &l, NULL));
    assert_true(strncmp(l.names, "native mlx_lm parrot ", 21) == 0);
    assert_string_equal(l.why, "on Sundays only");
    OK(ln_backend_default(&first, NULL, NULL));
    assert_string_equal(first->name, "native");
    o.adapter_scale = 1e300 * 1e300;
    FAILS(LN_EUSAGE, "adapter_scale", ln_backend_default(&first, &o, NULL));
}

static void *register_some(void *arg) {
    const int t = *(int *)arg;
    for (int i = 0; i < 6; i++) {
        char name[32];
        ln_backend b = parrot_table;
        const ln_backend *first;
        (void)snprintf(name, sizeof name, "thread_%d_%d", t, i);
        b.name = name;
        if (ln_backend_register(&b, NULL) != LN_OK || strcmp(ln_backend_get(name)->name, name) != 0 ||
            ln_backend_default(&first, NULL, NULL) != LN_OK)
            abort();
    }
    return NULL;
}

static void threads_register_at_once(void **state) {
    (void)state;
    pthread_t t[8];
    int number[8];
    char name[32];
    for (int i = 0; i < 8; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, register_some, &number[i]), 0);
    }
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 48; i++) {
        (void)snprintf(name, sizeof name, "thread_%d_%d", i / 6, i % 6);
        assert_non_null(ln_backend_get(name));
    }
    ln_backend b = parrot_table;
    ln_status st = LN_OK;
    for (int i = 0; i < 64 && st == LN_OK; i++) {
        (void)snprintf(name, sizeof name, "more_%d", i);
        b.name = name;
        st = ln_backend_register(&b, NULL);
    }
    assert_int_equal(st, LN_EMEMORY);
}

/* ---- native ---- */

static void native_is_the_engine(void **state) {
    (void)state;
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_sampling how = {.size = sizeof how}, other = {.size = sizeof other};
    ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
    ln_info info = {.size = sizeof info}, known = {.size = sizeof known};
    OK(ln_model_open(&model, TINY, NULL, NULL));
    OK(ln_engine_open(&engine, model, NULL, NULL));
    OK(ln_sampling_default(model, &how, NULL));
    ln_backend_model *m = load(NULL, TINY);
    OK(ln_backend_sampling(m, &other, NULL));
    assert_int_equal(other.top_k, how.top_k);
    OK(ln_backend_info(m, &info, NULL));
    OK(ln_model_info(model, &known, NULL));
    assert_string_equal(info.path, known.path);
    how.n_max = 30, how.has_seed = true, how.seed = 5, how.temperature = 0.9;
    const ln_message talk[] = {{"user", "Tell me a story.", 16}};
    const ln_prompt prompts[] = {say("Once upon a time"),
                                 {.size = sizeof(ln_prompt), .messages = talk, .n_messages = 1}};
    for (int i = 0; i < 2; i++) {
        OK(ln_generate(engine, &prompts[i], &how, NULL, NULL, &a, NULL));
        OK(i == 0 ? ln_backend_generate(m, &prompts[i], &how, NULL, NULL, &b, NULL)
                  : ln_backend_chat(m, &prompts[i], &how, NULL, NULL, &b, NULL));
        assert_int_equal(a.n_ids, b.n_ids);
        assert_memory_equal(a.ids, b.ids, a.n_ids * sizeof *a.ids);
        assert_int_equal(a.n_prompt_ids, b.n_prompt_ids);
        assert_memory_equal(a.prompt_ids, b.prompt_ids, a.n_prompt_ids * sizeof *a.ids);
        assert_string_equal(a.text, b.text);
        assert_int_equal(a.finish, b.finish);
        assert_int_equal(a.seed, b.seed);
        ln_result_free(&a), ln_result_free(&b);
    }
    ln_backend_close(&m);
    ln_engine_close(&engine);
    ln_model_close(&model);
}

static ln_status note_label(void *user, const ln_class *c, ln_error *err) {
    (void)err;
    ((double *)user)[c->index] = c->probabilities[0];
    return LN_OK;
}

static void native_batches_and_classifies(void **state) {
    (void)state;
    ln_options o = ln_options_default();
    ln_backend_options opt = ln_backend_options_default();
    ln_backend_model *m = NULL;
    enum { N = 11 };
    static const int32_t ids[N][3] = {{5, 9, 44}, {7, 1, 2}, {1, 2, 3}, {8, 8, 8}, {9, 1, 30}, {2, 2, 5},
                                      {1, 3, 3},  {4, 4, 1}, {9, 9, 1}, {6, 1, 1}, {3, 5, 7}};
    ln_prompt prompts[N];
    ln_result all[N], one = {.size = sizeof one};
    ln_error errors[N];
    ln_sampling how = {.size = sizeof how};
    o.n_parallel = 3, o.n_ctx = 128;
    opt.options = &o;
    OK(ln_backend_load(&m, "native", MODEL, &opt, NULL));
    OK(ln_backend_sampling(m, &how, NULL));
    how.n_max = 12, how.ignore_eos = true;
    for (int i = 0; i < N; i++)
        prompts[i] = (ln_prompt){.size = sizeof(ln_prompt), .ids = ids[i], .n_ids = 3};
    for (int i = 0; i < N; i++) all[i].size = sizeof all[i];
    prompts[4].n_ids = 0; /* an empty prompt fails alone */
    OK(ln_backend_batch(m, prompts, N, &how, all, errors, NULL));
    for (int i = 0; i < N; i++) {
        assert_int_equal(errors[i].code, i == 4 ? LN_EUSAGE : LN_OK);
        if (i == 4) {
            ln_result_free(&all[i]);
            continue;
        }
        OK(ln_backend_generate(m, &prompts[i], &how, NULL, NULL, &one, NULL));
        assert_int_equal(all[i].n_ids, 12);
        assert_memory_equal(all[i].ids, one.ids, 12 * sizeof *one.ids);
        ln_result_free(&one), ln_result_free(&all[i]);
    }
    static const char *const labels[] = {"a", "b"};
    double shares[2] = {-1, -1};
    ln_classify_options c = ln_classify_options_default();
    c.labels = labels, c.n_labels = 2;
    OK(ln_backend_classify(m, prompts, 2, &c, note_label, shares, NULL, NULL));
    assert_true(shares[0] > 0 && shares[1] > 0);
    ln_backend_cancel(m, true);
    FAILS(LN_ECANCELLED, "ln_backend_cancel",
          ln_backend_classify(m, prompts, 2, &c, note_label, shares, NULL, NULL));
    ln_backend_close(&m);
    opt.adapter = "some";
    FAILS(LN_EIO, "expected the directory of an adapter", ln_backend_load(&m, "native", MODEL, &opt, NULL));
    opt.adapter = NULL, o.n_threads = -1;
    FAILS(LN_EUSAGE, "options", ln_backend_load(&m, "native", MODEL, &opt, NULL));
}

static void native_is_cancelled(void **state) {
    (void)state;
    ln_backend_model *m = load("native", TINY);
    ln_sampling how = {.size = sizeof how};
    ln_result r = {.size = sizeof r};
    pthread_t t;
    const ln_prompt p = say("Once upon a time");
    OK(ln_backend_sampling(m, &how, NULL));
    how.ignore_eos = true, how.n_max = 4000, how.temperature = 1;
    const double begin = now();
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, m), 0);
    OK(ln_backend_generate(m, &p, &how, NULL, NULL, &r, NULL));
    const double seconds = now() - begin;
    pthread_join(t, NULL);
    assert_int_equal(r.finish, LN_FINISH_CANCELLED);
    if (seconds > 1)
        fail_msg("%.3f s", seconds); /* a step of the reference kernels under a sanitizer is slow */
    ln_result_free(&r);
    ln_backend_cancel(m, false);
    how.n_max = 3;
    OK(ln_backend_generate(m, &p, &how, NULL, NULL, &r, NULL));
    assert_int_equal(r.n_ids, 3);
    ln_result_free(&r);
    ln_backend_close(&m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_outside_backend_answers),
        cmocka_unit_test(an_outside_backend_is_cancelled),
        cmocka_unit_test(closing_stops_what_runs),
        cmocka_unit_test(a_callback_cannot_call_its_model),
        cmocka_unit_test(many_prompts_one_by_one),
        cmocka_unit_test(a_file_of_requests),
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(the_list_and_the_default),
        cmocka_unit_test(native_is_the_engine),
        cmocka_unit_test(native_batches_and_classifies),
        cmocka_unit_test(native_is_cancelled),
        cmocka_unit_test(threads_register_at_once),
    };
    alarm(600);
    if (ln_backend_register(&parrot_table, NULL) != LN_OK) return 1;
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
