#!/bin/sh
# Builds the int8-pair products and the row-wise kernels of a source tree as one shared object. bench/layer.c compares it with
# those of other trees.
# usage: bench/form.sh TREE OUT.so [COMPILER OPTIONS]
# TREE is a checkout in which `make` has run, or a modified copy of one: the other functions that the kernels call come from its
# library.
set -eu
tree=$(cd "${1:?a source tree}" && pwd); out=${2:?the file to make}; shift 2
entry=$(mktemp --suffix=.c)
trap 'rm -f "$entry"' EXIT
cat >"$entry" <<C
#include "$tree/src/device/cpu/cpu.h"
void form_kernels(ln_kernel *linear, ln_kernel *gated, ln_kernel *convert);
void form_kernels(ln_kernel *linear, ln_kernel *gated, ln_kernel *convert) {
    ln_kernel_table t = {0};
    ln_kernels_add(&t, ln_cpu_i8pair_amx);
    ln_kernels_add(&t, ln_cpu_rowwise_avx512);
    *linear = t.of[LN_OP_LINEAR][LN_PRODUCT_I8PAIR_AFFINE];
    *gated = t.of[LN_OP_LINEAR_GATED][LN_PRODUCT_I8PAIR_AFFINE];
    *convert = t.of[LN_OP_CONVERT][LN_FORMAT_I8PAIR];
}
C
exec "${CC:-cc}" -shared -fPIC -std=c17 -D_GNU_SOURCE -O3 -g -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-common -fstack-protector-strong \
    -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 "$@" -I"$tree/include" \
    "$tree/src/device/cpu/gemm/gemm_i8pair_amx.c" "$tree/src/device/cpu/rowwise/rowwise_avx512.c" "$entry" -o "$out" -Wl,-Bsymbolic "$tree/build/liblinnet.a" -lm
