/* 16 lanes of a sum, as ops.h orders it: lane = index mod 16, then halves onto halves. Every step of the halving has a constant length, so
 * that it stays in registers. */
#ifndef LN_LANES_H
#define LN_LANES_H

static inline float ln_lanes_sum(const float lane[16]) {
    float a[8], b[4];
    for (int l = 0; l < 8; l++) a[l] = lane[l] + lane[l + 8];
    for (int l = 0; l < 4; l++) b[l] = a[l] + a[l + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

#endif
