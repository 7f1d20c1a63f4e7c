/* The stack size that docs/library.md promises is enough: a thread with exactly that much opens and runs a
 * model, scores with it, and renders templates at the deepest nesting that is allowed. */
/* run: slow */
#include <linnet.h>
#include <linnet_tools.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define TINY LN_ROOT "/models/tiny"
enum { PROMISED = 512 << 10, GUARD = 64 << 10 };

static void must(ln_status st, const ln_error *e) {
    if (st == LN_OK) return;
    fprintf(stderr, "status %d: %s\n", st, e->message);
    abort();
}

static void deepest_template(void) {
    static const char call[] =
        "{\"template\":\"{% macro m(n) %}{{ m(n + 2 ** 99) }}{% endmacro %}{{ m(0) }}\",\"context\":{}}";
    ln_rendering out;
    ln_error err;
    if (ln_chat_template_render(NULL, call, strlen(call), &out, &err) != LN_EINVALID ||
        !strstr(err.message, "deep"))
        abort();
    ln_rendering_free(&out);
}

static void *work(void *arg) {
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_sampling how = {.size = sizeof how};
    ln_result result = {.size = sizeof result};
    ln_prompt p = {.size = sizeof(ln_prompt), .text = "Tell me a short story.", .text_bytes = 22};
    ln_options opt = ln_options_default();
    ln_plan plan = {.size = sizeof plan};
    ln_error err = {0};
    opt.n_ctx = 256;
    must(ln_plan_memory(TINY, &opt, &plan, &err), &err);
    must(ln_model_open(&m, TINY, &opt, &err), &err);
    must(ln_engine_open(&e, m, &opt, &err), &err);
    must(ln_sampling_default(m, &how, &err), &err);
    how.n_max = 8;
    must(ln_generate(e, &p, &how, NULL, NULL, &result, &err), &err);
    ln_result_free(&result);
    ln_engine_close(&e);
    ln_model_close(&m);
    deepest_template();
    return arg;
}

static void the_promised_stack_is_enough(void **state) {
    (void)state;
    pthread_attr_t attr;
    pthread_t t;
    /* Guard pages below the stack: a frame beyond the promised size is a crash, whatever is mapped there. */
    char *buffer =
        mmap(NULL, GUARD + PROMISED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    assert_ptr_not_equal(buffer, MAP_FAILED);
    assert_int_equal(mprotect(buffer, GUARD, PROT_NONE), 0);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, buffer + GUARD, PROMISED), 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("SKIPPED: a sanitizer makes frames larger\n");
    skip();
#endif
    assert_int_equal(pthread_create(&t, &attr, work, NULL), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    pthread_attr_destroy(&attr);
    munmap(buffer, GUARD + PROMISED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_promised_stack_is_enough)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
