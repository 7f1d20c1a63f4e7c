/* Each configuration file is read once per open: all parts of a model take it from one version. */
/* run: quick */
#include "../base/cm.h"

#include <linnet_tools.h>
#include <sys/inotify.h>
#include <unistd.h>

#define TINY LN_ROOT "/models/tiny"
#define OK(x)                                                               \
    do {                                                                    \
        if ((x) != LN_OK) fail_msg("%s: %s", #x, ln_last_error()->message); \
    } while (0)

/* Begins to watch a file. The kernel joins equal events that follow each other, hence the closes. */
static int watch(const char *path) {
    const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) fail_msg("inotify_init1 failed");
    if (inotify_add_watch(fd, path, IN_OPEN | IN_CLOSE) < 0) fail_msg("%s cannot be watched", path);
    return fd;
}

/* Returns how often the file was opened since `watch`. */
static int opened(int fd) {
    _Alignas(struct inotify_event) char events[4096];
    int n = 0;
    for (ssize_t got; (got = read(fd, events, sizeof events)) > 0;)
        for (char *at = events; at < events + got;
             at += sizeof(struct inotify_event) + ((struct inotify_event *)(void *)at)->len)
            n += (((struct inotify_event *)(void *)at)->mask & IN_OPEN) != 0;
    (void)close(fd);
    return n;
}

static void a_model_reads_it_once(void **state) {
    (void)state;
    ln_model *m = NULL;
    const int fd = watch(TINY "/tokenizer_config.json");
    OK(ln_model_open(&m, TINY "/", NULL, NULL));
    assert_int_equal(opened(fd), 1);
    ln_model_close(&m);
}

static void a_tokenizer_reads_it_once(void **state) {
    (void)state;
    ln_tokenizer *t = NULL;
    const int fd = watch(TINY "/tokenizer_config.json");
    OK(ln_tokenizer_open(&t, TINY, NULL));
    assert_int_equal(opened(fd), 1);
    ln_tokenizer_close(&t);
}

static void a_template_reads_it_once(void **state) {
    (void)state;
    ln_chat_template *t = NULL;
    const int fd = watch(TINY "/tokenizer_config.json");
    OK(ln_chat_template_open(&t, TINY, NULL, NULL));
    assert_int_equal(opened(fd), 1);
    ln_chat_template_close(&t);
}

/* Nothing is kept beyond an open: the next one sees the file as it is then. */
static void the_next_open_reads_it_again(void **state) {
    (void)state;
    ln_tokenizer *t = NULL;
    const int fd = watch(TINY "/tokenizer_config.json");
    for (int i = 0; i < 3; i++) {
        OK(ln_tokenizer_open(&t, TINY, NULL));
        ln_tokenizer_close(&t);
    }
    assert_int_equal(opened(fd), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_reads_it_once),
        cmocka_unit_test(a_tokenizer_reads_it_once),
        cmocka_unit_test(a_template_reads_it_once),
        cmocka_unit_test(the_next_open_reads_it_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
