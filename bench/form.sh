#!/bin/sh
# Builds the products by row and the row-wise kernels of a source tree as one shared object, for bench/layer.c to compare with those of other trees.
# usage: bench/form.sh TREE OUT.so [COMPILER OPTIONS]
# TREE is a checkout, or a copy of one with something changed, in which `make` has run: what else the kernels need comes from its library.
set -eu
tree=$(cd "${1:?a source tree}" && pwd); out=${2:?the file to make}; shift 2
entry=$(mktemp --suffix=.c)
trap 'rm -f "$entry"' EXIT
cat >"$entry" <<C
#include "$tree/src/device/cpu/cpu.h"
void form_fixed_row(ln_kernel *out);
void form_fixed_row(ln_kernel *out) {
    ln_kernel table[LN_OP_COUNT];
    ln_cpu_rowwise_avx512(table);
    *out = table[LN_OP_FIXED_ROW];
}
C
exec "${CC:-cc}" -shared -fPIC -std=c17 -D_GNU_SOURCE -O3 -g -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-common -fstack-protector-strong \
    -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 "$@" -I"$tree/include" \
    "$tree/src/device/cpu/gemm/gemm_i8pair_amx.c" "$tree/src/device/cpu/rowwise/rowwise_avx512.c" "$entry" -o "$out" -Wl,-Bsymbolic "$tree/build/liblinnet.a" -lm
