/* The ids of the texts of test_classify, test_embed and test_evaluate, as tools/golden_classify.py and
 * tools/golden_embed.py make them. */
#ifndef LN_TESTS_GOLDEN_IDS_H
#define LN_TESTS_GOLDEN_IDS_H

#include <stdint.h>

/* Writes n ids below V - 8, the upper bits of a linear congruential generator. */
static void make_ids(int32_t *ids, int n, int64_t V, uint32_t seed) {
    uint32_t x = seed;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 16) % (uint32_t)(V - 8));
    }
}

#endif
