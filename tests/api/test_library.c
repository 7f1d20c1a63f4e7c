/* Promises to a program that embeds the library: log messages go only to the program's function, a model's
 * tokenizer can be borrowed, ln_generate needs neither sampling options nor a result, error messages name
 * fields of linnet.h. Uses linnet.h alone (and the golden models). */
/* run: slow */
#include <linnet.h>
#include <linnet_tools.h>

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/qwen3-f16"

#define OK(x)                                                   \
    do {                                                        \
        ln_error err_ = {0}, *err = &err_;                      \
        (void)err;                                              \
        if ((x) != LN_OK) fail_msg("%s: %s", #x, err_.message); \
    } while (0)

/* ---- log messages ---- */

static char dir[] = "/tmp/linnet-library-XXXXXX";

static void path_of(char out[300], const char *leaf) { (void)snprintf(out, 300, "%s/%s", dir, leaf); }

/* Creates a copy of a model with a configuration that the library warns about: auto_map. */
static void make_remarkable(void) {
    static const char *const links[] = {"tokenizer.json", "model.safetensors"};
    char path[300], target[300], text[8192];
    FILE *f = fopen(MODEL "/config.json", "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *brace = strchr(text, '{');
    assert_non_null(brace);
    path_of(path, "config.json");
    f = fopen(path, "w");
    assert_true(f && fprintf(f, "{\"auto_map\": {\"AutoModel\": \"x.Y\"}, %s", brace + 1) > 0 &&
                fclose(f) == 0);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(target, sizeof target, "%s/%s", MODEL, links[i]);
        path_of(path, links[i]);
        assert_int_equal(symlink(target, path), 0);
    }
}

static int drop_remarkable(void **s) {
    (void)s;
    static const char *const leaves[] = {"config.json", "tokenizer.json", "model.safetensors", "stderr"};
    char path[300];
    for (size_t i = 0; i < 4; i++) path_of(path, leaves[i]), (void)unlink(path);
    return rmdir(dir);
}

static void open_remarkable(void) {
    ln_model *m;
    OK(ln_model_open(&m, dir, NULL, err));
    ln_model_close(&m);
}

/* Opens the model that is warned about and returns the number of bytes written to descriptor 2 (stderr). */
static long bytes_said(void) {
    char path[300];
    struct stat st;
    path_of(path, "stderr");
    int kept = dup(2), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(kept >= 0 && file >= 0 && dup2(file, 2) == 2);
    open_remarkable();
    assert_true(dup2(kept, 2) == 2 && fstat(file, &st) == 0);
    close(kept), close(file);
    return (long)st.st_size;
}

typedef struct heard {
    int n, running, most;
    ln_level level;
    char last[1024];
    bool calls; /* the callback calls the library itself */
} heard;

static void on_remark(void *user, ln_level level, const char *text) {
    heard *h = user;
    h->most = ++h->running > h->most ? h->running : h->most;
    if (strstr(text, "auto_map"))
        h->n++, h->level = level, (void)snprintf(h->last, sizeof h->last, "%s", text);
    if (h->calls) open_remarkable();
    usleep(100);
    h->running--;
}

static void remarks(void **s) {
    (void)s;
    heard h = {0};
    assert_int_equal(bytes_said(), 0); /* no log callback is set: nothing is written */
    ln_log_set(on_remark, &h);
    assert_int_equal(bytes_said(), 0);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, LN_LOG_WARN);
    assert_true(strstr(h.last, dir) && !strchr(h.last, '\n') &&
                !strstr(h.last, "linnet:")); /* the message alone, without a program's prefix */
    h.calls = true; /* a message caused by the log callback itself is dropped, and the callback does not
                       deadlock on itself */
    open_remarkable();
    assert_int_equal(h.n, 2);
    ln_log_set(NULL, NULL);
    assert_int_equal(bytes_said(), 0);
    assert_int_equal(h.n, 2);
}

static void *open_some(void *user) {
    (void)user;
    for (int i = 0; i < 20; i++) open_remarkable();
    return NULL;
}

/* The log callback runs in one thread at a time; a child of fork() may log as well. */
static void remarks_of_threads(void **s) {
    (void)s;
    heard h = {0};
    pthread_t t[3];
    ln_log_set(on_remark, &h);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, open_some, NULL), 0);
    for (int i = 0; i < 5; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            ln_log_set(NULL, NULL); /* would wait for ever if the child waited for a thread that it does
                                       not have */
            _exit(0);
        }
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    ln_log_set(NULL, NULL);
    assert_int_equal(h.n, 60);
    assert_int_equal(h.most, 1);
}

/* ---- a model's tokenizer ---- */

static void same_ids(const ln_tokenizer *a, const ln_tokenizer *b) {
    static const char text[] = "Hello, world: ab cd\n12";
    int32_t x[64], y[64];
    size_t n = 0, m = 0;
    OK(ln_tokenize(a, text, sizeof text - 1, true, x, 64, &n, err));
    OK(ln_tokenize(b, text, sizeof text - 1, true, y, 64, &m, err));
    assert_true(n > 2 && n == m);
    assert_memory_equal(x, y, n * sizeof *x);
}

static ln_status try_it(const ln_tokenizer *t) {
    size_t n = 0;
    return ln_tokenize(t, "a", 1, false, NULL, 0, &n, NULL);
}

static void borrowed_tokenizer(void **s) {
    (void)s;
    ln_model *m, *again;
    ln_engine *e;
    ln_tokenizer *own;
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 64, .n_threads = 1};
    char text[64];
    size_t bytes = 0;
    OK(ln_model_open(&m, MODEL, NULL, err));
    OK(ln_tokenizer_open(&own, MODEL, err));
    const ln_tokenizer *t = ln_model_tokenizer(m);
    assert_non_null(t);
    assert_ptr_equal(t, ln_model_tokenizer(m));
    for (int i = 0; i < 5000; i++)
        assert_ptr_equal(t, ln_model_tokenizer(m)); /* a borrowed tokenizer takes none of the handles */
    same_ids(t, own);
    OK(ln_detokenize(t, (const int32_t[]){5}, 1, false, text, sizeof text, &bytes, err));
    ln_tokenizer *copy = (ln_tokenizer *)(uintptr_t)t;
    ln_tokenizer_close(&copy); /* the caller does not own it: nothing is closed */
    assert_null(copy);
    same_ids(t, own);
    OK(ln_engine_open(&e, m, &o, err));
    /* a handle of the other kind is rejected in both directions */
    assert_int_equal(ln_model_info((const ln_model *)(const void *)t, &(ln_info){0}, NULL), LN_EUSAGE);
    assert_int_equal(try_it((const ln_tokenizer *)(const void *)m), LN_EUSAGE);
    ln_model_close(&m);
    assert_int_equal(try_it(t), LN_EUSAGE); /* closed with its model, though an engine still uses the model */
    assert_int_equal(try_it(own), LN_OK);
    ln_engine_close(&e);
    OK(ln_model_open(&again, MODEL, NULL, err)); /* gets the slot of the first model */
    assert_int_equal(try_it(t), LN_EUSAGE);
    assert_null(ln_model_tokenizer(NULL));
    assert_int_equal(ln_last_error()->code, LN_EUSAGE);
    const ln_model *closed = again;
    ln_model_close(&again);
    assert_null(ln_model_tokenizer(closed));
    ln_tokenizer_close(&own);
}

typedef struct user {
    const ln_tokenizer *t;
    int n_good;
    bool other; /* a status other than LN_OK and LN_EUSAGE */
} user;
static void *use_until_closed(void *p) {
    user *u = p;
    for (;;) {
        ln_status st = try_it(u->t);
        if (st == LN_OK) u->n_good++;
        else return u->other = st != LN_EUSAGE, NULL;
    }
}

/* The model is closed while threads use its tokenizer. */
static void closed_in_use(void **s) {
    (void)s;
    for (int round = 0; round < 5; round++) {
        ln_model *m;
        pthread_t t[3];
        OK(ln_model_open(&m, MODEL, NULL, err));
        user u[3];
        for (int i = 0; i < 3; i++) {
            u[i] = (user){.t = ln_model_tokenizer(m)};
            assert_int_equal(pthread_create(&t[i], NULL, use_until_closed, &u[i]), 0);
        }
        usleep(5000);
        ln_model_close(&m);
        for (int i = 0; i < 3; i++) {
            pthread_join(t[i], NULL);
            assert_false(u[i].other);
        }
    }
}

/* ---- ln_generate with as few arguments as possible ---- */

static ln_status on_text(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)text, (void)err;
    *(size_t *)user += bytes;
    return LN_OK;
}

static void defaults(void **s) {
    (void)s;
    static const int32_t ids[] = {5, 9, 44};
    ln_model *m;
    ln_engine *e;
    ln_sampling how = {.size = sizeof how};
    ln_result said = {.size = sizeof said}, usual = {.size = sizeof usual};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3};
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 256, .n_threads = 1};
    size_t bytes = 0;
    OK(ln_model_open(&m, MODEL, NULL, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_sampling_default(m, &how, err));
    assert_true(how.temperature == 0); /* greedy: the same tokens on each call */
    OK(ln_generate(e, &p, &how, NULL, NULL, &said, err));
    OK(ln_generate(e, &p, NULL, NULL, NULL, &usual, err));
    assert_true(said.n_ids > 0 && said.n_ids == usual.n_ids);
    assert_memory_equal(said.ids, usual.ids, said.n_ids * sizeof *said.ids);
    OK(ln_generate(e, &p, NULL, on_text, &bytes, NULL, err));
    assert_int_equal(bytes, said.text_bytes);
    OK(ln_generate(e, &p, NULL, NULL, NULL, NULL, err));
    assert_int_equal(ln_generate(e, NULL, NULL, NULL, NULL, NULL, NULL), LN_EUSAGE);
    assert_int_equal(ln_generate(NULL, &p, NULL, NULL, NULL, NULL, NULL), LN_EUSAGE);
    ln_result_free(&said), ln_result_free(&usual);
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* ---- error messages ---- */

static void says(ln_status st, ln_status want, const ln_error *e, const char *field) {
    assert_int_equal(st, want);
    if (!strstr(e->message, field) || strstr(e->message, "--"))
        fail_msg("expected the field %s and no flag: %s", field, e->message);
}

static void fields_are_named(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_error err;
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 1 << 30},
               small = {.size = sizeof(ln_options), .memory_bytes = 1},
               twice = {.size = sizeof(ln_options), .quantize_bits = 4};
    OK(ln_model_open(&m, MODEL, NULL, err));
    says(ln_engine_open(&e, m, &o, &err), LN_EUSAGE, &err, "n_ctx");
    says(ln_engine_open(&e, m, &small, &err), LN_EMEMORY, &err, "memory_bytes");
    says(ln_model_open(&m, LN_ROOT "/tests/golden/quantised/qwen3-q8-g32-f16", &twice, &err), LN_EUSAGE, &err,
         "quantize_bits");
    ln_model_close(&m);
}

/* ---- memory ---- */

/* The memory, in MiB, that ln_doctor's measurement would take in a child process with this limit of
 * address space: as much as the limit leaves. 99 * 16: the child failed. */
static int mib_to_measure(rlim_t limit_mib) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        ln_machine m = {.size = sizeof m};
        ln_error err;
        struct rlimit r = {limit_mib << 20, limit_mib << 20};
        if (setrlimit(RLIMIT_AS, &r) != 0 || ln_doctor(false, 1, &m, NULL) != LN_OK) _exit(99);
        if (m.measure_bytes == 0 && (ln_doctor(true, 1, &m, &err) != LN_EMEMORY || strstr(err.message, "--")))
            _exit(98);
        if (m.available_bytes > r.rlim_cur) _exit(97);
        _exit((int)(m.measure_bytes >> 24)); /* in units of 16 MiB */
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) * 16;
}

static void measuring_asks_first(void **s) {
    (void)s;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("SKIP: under a sanitizer the address space cannot be limited: what measuring takes is not "
                  "asked\n");
#else
    ln_machine m = {.size = sizeof m};
    OK(ln_doctor(false, 1, &m, err));
    if (m.available_bytes < (uint64_t)2 << 30) {
        print_message("SKIP: less than 2 GiB are available here: how measuring follows a limit is not "
                      "asked\n");
        return;
    }
    assert_int_equal(m.measure_bytes, 1 << 30);
    assert_int_equal(mib_to_measure(300), 0); /* too little memory for a measurement of memory bandwidth:
                                                 rejected */
    const int some = mib_to_measure(900);     /* less than without a limit, but more than a cache holds and
                                                 less than the limit */
    assert_true(some >= 512 && some < 900 && some % 64 == 0);
#endif
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    make_remarkable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_asks_first), cmocka_unit_test(remarks),
        cmocka_unit_test(remarks_of_threads),   cmocka_unit_test(borrowed_tokenizer),
        cmocka_unit_test(closed_in_use),        cmocka_unit_test(defaults),
        cmocka_unit_test(fields_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, drop_remarkable);
}
