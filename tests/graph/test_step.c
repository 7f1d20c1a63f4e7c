/* The step block, and what queues in host memory make of it. */
/* run: quick */
#include "graph/graph.h"
#include "ops/host_queue.h"

#include "../common.h"

/* The arrays of a block are apart, aligned and inside the block, whatever the bounds; the offsets do not
 * depend on the counts. */
static void layout(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 1000; round++) {
        const ln_bounds b = {1 + (int64_t)(test_random(&seed) % 700), 1 + (int64_t)(test_random(&seed) % 90),
                             1 + (int64_t)(test_random(&seed) % 70)};
        const int64_t changes = (int64_t)(test_random(&seed) % 100), bytes = ln_step_bytes(&b, changes);
        assert_true(bytes > 0 && bytes % 64 == 0);
        ln_step_block *s = calloc(1, (size_t)bytes);
        ln_step_init(s, &b, changes);
        assert_int_equal(s->size, bytes);
        const struct {
            const void *at;
            int64_t n;
            size_t element;
        } arrays[] = {{ln_step_ids(s), b.T, 4},
                      {ln_step_pos(s), b.T, 4},
                      {ln_step_seq(s), b.T, 4},
                      {ln_step_adapter(s), b.T, 4},
                      {ln_step_row0(s), b.B + 1, 4},
                      {ln_step_slot(s), b.B, 4},
                      {ln_step_n_prompt(s), b.B, 4},
                      {ln_step_out_rows(s), b.N, 4},
                      {ln_step_changes(s), changes, sizeof(ln_page_change)}};
        uintptr_t end = (uintptr_t)s + sizeof *s;
        for (size_t i = 0; i < LN_COUNT(arrays); i++) {
            const uintptr_t at = (uintptr_t)arrays[i].at;
            assert_true(at >= end && (at - (uintptr_t)s) % 64 == 0);
            end = at + (size_t)arrays[i].n * arrays[i].element;
        }
        assert_true(end <= (uintptr_t)s + s->size);
        const ln_step_block before = *s;
        ln_step_init(s, &b, changes);
        assert_memory_equal(&before, s, sizeof before);
        free(s);
    }
    assert_int_equal(ln_step_bytes(&(ln_bounds){INT32_MAX, 1, 1}, 0), -1);
    assert_int_equal(ln_step_bytes(&(ln_bounds){(int64_t)INT32_MAX + 1, 1, 1}, 0), -1);
    assert_int_equal(ln_step_bytes(&(ln_bounds){1, 1, 1}, INT32_MAX), -1);
}

/* Changes are applied in their order, by steps without rows, too, which leave the kernels' view alone. */
static void changes(void **state) {
    (void)state;
    enum { SLOTS = 3, BLOCKS = 5 };
    const ln_state_pool kv = {
        .size = sizeof kv, .n_groups = 2, .groups = {{.pages_per_block = 1}, {.pages_per_block = 4}}};
    const ln_bounds b = {4, 1, SLOTS};
    ln_host_queue q;
    ln_step view = {.n_rows = 77};
    OK(ln_host_queue_open(&q, &kv, SLOTS, BLOCKS, err));
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < SLOTS * BLOCKS * kv.groups[c].pages_per_block; i++)
            assert_int_equal(q.pages[c][i], -1);
    ln_step_block *s = calloc(1, (size_t)ln_step_bytes(&b, 3));
    ln_step_init(s, &b, 3);
    ln_step_changes(s)[0] = (ln_page_change){1, 8, SLOTS * BLOCKS * 4 - 1};
    ln_step_changes(s)[1] = (ln_page_change){0, 5, 2};
    ln_step_changes(s)[2] = (ln_page_change){0, 6, 2};
    s->n_changes = 3;
    assert_int_equal(ln_host_queue_submit(&q, s, &view), 1);
    assert_true(q.pages[1][SLOTS * BLOCKS * 4 - 1] == 8 && q.pages[0][2] == 6 && q.pages[0][1] == -1);
    assert_int_equal(view.n_rows, 77);
    s->n_rows = 2, s->n_changes = 0;
    ln_step_pos(s)[1] = 9;
    assert_int_equal(ln_host_queue_submit(&q, s, &view), 2);
    assert_true(view.n_rows == 2 && view.pos[1] == 9 && view.n_blocks == BLOCKS &&
                view.pages[0] == q.pages[0] && view.pages_per_block[1] == 4);
    OK(ln_host_queue_wait(&q, 2, err));
    FAILS(LN_EINTERNAL, "fence 3; 2", ln_host_queue_wait(&q, 3, err));
    FAILS(LN_EINTERNAL, "fence 0", ln_host_queue_wait(&q, 0, err));
    ln_host_queue_close(&q);
    free(s);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest tests[] = {cmocka_unit_test(layout), cmocka_unit_test(changes)};
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
