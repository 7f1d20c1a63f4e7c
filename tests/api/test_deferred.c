/* Requests that are opened before they are queued (ln_request_options.defer). */
/* run: quick cuda */
#include <linnet.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collect.h"

#define OK(x) EXPECT(LN_OK, NULL, x)

static ln_event next(ln_request *r, double seconds) {
    ln_event v = {.size = sizeof v};
    OK(ln_request_next(r, seconds, &v, err));
    return v;
}

static ln_event finish_of(ln_request *r) {
    for (;;) {
        const ln_event v = next(r, -1);
        if (v.kind == LN_EVENT_FINISH) return v;
    }
}

static int64_t n_waiting(const ln_engine *engine) {
    ln_engine_stats s = {.size = sizeof s};
    OK(ln_engine_get_stats(engine, &s, err));
    return s.n_waiting + s.n_running;
}

/* A deferred request has no events and takes nothing until it is started; started twice it runs once; one
 * that is closed before leaves no trace. Errors of the prompt come from ln_request_open all the same. */
static void a_deferred_request_waits_for_its_start(void **state) {
    (void)state;
    static const int32_t ids[] = {5, 9, 44, 7};
    const ln_prompt prompt = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    const ln_options small = {.size = sizeof(ln_options), .n_ctx = 128};
    ln_model *model;
    ln_engine *engine;
    ln_request *r, *other;
    ln_sampling how = {.size = sizeof how};
    ln_request_options opt = ln_request_options_default();
    ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
    OK(ln_model_open(&model, NO_WINDOW, &small, err));
    OK(ln_engine_open(&engine, model, &small, err));
    OK(ln_sampling_default(model, &how, err));
    how.temperature = 0, how.ignore_eos = true, how.n_max = 20;
    opt.sampling = &how;
    OK(ln_request_open(&r, engine, &prompt, &opt, err));
    (void)finish_of(r);
    OK(ln_request_result(r, &a, err));
    ln_request_close(&r);
    opt.defer = true;
    OK(ln_request_open(&r, engine, &prompt, &opt, err));
    OK(ln_request_open(&other, engine, &prompt, &opt, err));
    size_t n_active = 9;
    OK(ln_engine_step(engine, &n_active, err));
    assert_int_equal(n_active, 0);
    assert_int_equal(next(r, 0).kind, LN_EVENT_NONE);
    assert_int_equal(n_waiting(engine), 0);
    ln_request_close(&other);
    OK(ln_request_start(r, err));
    OK(ln_request_start(r, err));
    assert_int_equal(n_waiting(engine), 1);
    assert_int_equal(finish_of(r).finish, LN_FINISH_LENGTH);
    OK(ln_request_start(r, err));
    OK(ln_request_result(r, &b, err));
    assert_int_equal(b.n_ids, a.n_ids);
    assert_memory_equal(a.ids, b.ids, a.n_ids * sizeof *a.ids);
    ln_request_close(&r);
    how.n_max = 0; /* it asks for no step: it finishes when it is started */
    OK(ln_request_open(&r, engine, &prompt, &opt, err));
    assert_int_equal(next(r, 0).kind, LN_EVENT_NONE);
    OK(ln_request_start(r, err));
    assert_int_equal(next(r, 0).kind, LN_EVENT_FINISH);
    ln_request_close(&r);
    const ln_prompt bad = {.size = sizeof(ln_prompt), .ids = (const int32_t[]){-1}, .n_ids = 1};
    assert_int_equal(ln_request_open(&r, engine, &bad, &opt, NULL), LN_EINVALID);
    assert_null(r);
    assert_int_equal(ln_request_start(r, NULL), LN_EUSAGE);
    ln_result_free(&a);
    ln_result_free(&b);
    ln_engine_close(&engine);
    ln_model_close(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_deferred_request_waits_for_its_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
