/* Moments in 8 bits (contract: moments.h). */
#include "moments.h"

#include <math.h>

/* A kind of codes: `per` of them for a factor of 2, n of them above 0, and code n for 0. */
typedef struct scale {
    int per, n;
    double step; /* 2^(-1 / per) */
} scale;
static const scale first_scale = {8, 127, 0.91700404320467123174},
                   root_scale = {16, 255, 0.95760328069857364694};

/* 2^(-k / per); powers of 2 are exact. */
static double level(const scale *s, int k) {
    double x = ldexp(1, -(k / s->per));
    for (int i = k % s->per; i > 0; i--) x *= s->step;
    return x;
}

/* Fills levels[k] with the numbers of codes, and between[k] with the middle of those of k and k + 1. */
static void fill(const scale *s, float *levels, float *between) {
    for (int k = 0; k < s->n; k++) {
        levels[k] = (float)level(s, k);
        between[k] = (float)((level(s, k) + level(s, k + 1)) / 2);
    }
    levels[s->n] = 0;
}

/* The levels of both kinds, the middles, and whether they are filled. Threads that fill them at once write
 * the same numbers. */
typedef struct tables {
    float firsts[128], first_between[128], roots[256], root_between[256];
} tables;
static const tables *all_tables(void) {
    static tables t;
    static int filled;
    if (!__atomic_load_n(&filled, __ATOMIC_ACQUIRE)) {
        static int filling;
        int none = 0;
        if (__atomic_compare_exchange_n(&filling, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            fill(&first_scale, t.firsts, t.first_between);
            fill(&root_scale, t.roots, t.root_between);
            __atomic_store_n(&filled, 1, __ATOMIC_RELEASE);
        }
        while (!__atomic_load_n(&filled, __ATOMIC_ACQUIRE)) {
        }
    }
    return &t;
}

/* The code of the level that is nearest to x, 0 to 1. */
static uint8_t nearest(const scale *s, const float *levels, const float *between, float x) {
    int e;
    if (x <= levels[s->n - 1] / 2) return (uint8_t)s->n;
    (void)frexpf(x, &e); /* x is below 2^e, and at least half of it */
    int k = LN_MIN(LN_MAX(0, -e) * s->per, s->n - 1);
    while (k < s->n - 1 && x < between[k]) k++;
    return (uint8_t)k;
}

void train_codes_read(const train_param *p, int64_t at, int64_t n, float *m, float *v) {
    const tables *t = all_tables();
    const float m_most = p->m_most[at / TRAIN_BLOCK], v_most = p->v_most[at / TRAIN_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        const uint8_t code = p->m8[at + i];
        const float root = v_most * t->roots[p->v8[at + i]];
        m[i] = (code & 0x80 ? -m_most : m_most) * t->firsts[code & 0x7f];
        v[i] = root * root;
    }
}

void train_codes_write(train_param *p, int64_t at, int64_t n, const float *m, const float *v) {
    const tables *t = all_tables();
    float m_most = 0, v_most = 0;
    for (int64_t i = 0; i < n; i++)
        m_most = LN_MAX(m_most, fabsf(m[i])), v_most = LN_MAX(v_most, sqrtf(v[i]));
    p->m_most[at / TRAIN_BLOCK] = m_most, p->v_most[at / TRAIN_BLOCK] = v_most;
    for (int64_t i = 0; i < n; i++) {
        const float x = m_most > 0 ? fabsf(m[i]) / m_most : 0, y = v_most > 0 ? sqrtf(v[i]) / v_most : 0;
        const uint8_t code = nearest(&first_scale, t->firsts, t->first_between, x),
                      root = nearest(&root_scale, t->roots, t->root_between, y);
        p->m8[at + i] = (uint8_t)(code | (m[i] < 0 ? 0x80 : 0));
        p->v8[at + i] = root == root_scale.n && v[i] > 0 ? (uint8_t)(root_scale.n - 1) : root;
    }
}

uint64_t train_codes_bytes(uint64_t n, uint64_t n_params) {
    return 2 * n + (n / TRAIN_BLOCK + n_params) * 2 * sizeof(float);
}
