/* The constants of tuning.def as enum constants: tune_OP_PARAMETER_ISA, and tune_OP_PARAMETER_M_ISA for
 * parameters that depend on the number of rows M, 1 to 8. A kernel template reads the constants of its own
 * ISA level as LN_ISA(tune_OP_PARAMETER). */
#ifndef LN_TUNING_H
#define LN_TUNING_H

enum {
#define TUNE(op, isa, parameter, value, why) tune_##op##_##parameter##_##isa = (value),
#define TUNE_BY_M(op, isa, parameter, m1, m2, m3, m4, m5, m6, m7, m8, why)          \
    tune_##op##_##parameter##_1_##isa = m1, tune_##op##_##parameter##_2_##isa = m2, \
    tune_##op##_##parameter##_3_##isa = m3, tune_##op##_##parameter##_4_##isa = m4, \
    tune_##op##_##parameter##_5_##isa = m5, tune_##op##_##parameter##_6_##isa = m6, \
    tune_##op##_##parameter##_7_##isa = m7, tune_##op##_##parameter##_8_##isa = m8,
#include "tuning.def"
#undef TUNE
#undef TUNE_BY_M
    tune_end
};

#endif
