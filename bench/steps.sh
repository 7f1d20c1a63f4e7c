#!/bin/sh
# Builds the whole library of a source tree as one shared object. bench/steps.c interleaves its steps with those of other trees.
# usage: bench/steps.sh TREE OUT.so [BUILD]
# TREE is a checkout in which `make` has run; BUILD is its build folder (TREE/build).
set -eu
tree=$(cd "${1:?a source tree}" && pwd); out=${2:?the file to make}; build=${3:-$tree/build}
exec "${CC:-cc}" -shared -fPIC -std=c17 -D_GNU_SOURCE -O2 -Wall -Wextra -DSTEPS_BUILD -I"$tree/include" -include "$tree/src/inspect/inspect.h" "$(dirname "$0")/steps.c" \
    -o "$out" "$build/liblinnet.a" -Wl,-Bsymbolic -ljansson -lpcre2-8 -lutf8proc -lm
