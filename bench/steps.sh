#!/bin/sh
# Builds a source tree's whole library as one shared object, for bench/steps.c to run steps of it in turn with those of other trees.
# usage: bench/steps.sh TREE OUT.so [BUILD]
# TREE is a checkout in which `make` has run; BUILD names another build folder of it than `build`.
set -eu
tree=$(cd "${1:?a source tree}" && pwd); out=${2:?the file to make}; build=${3:-$tree/build}
exec "${CC:-cc}" -shared -fPIC -std=c17 -D_GNU_SOURCE -O2 -Wall -Wextra -DSTEPS_BUILD -I"$tree/include" -include "$tree/src/engine/engine.h" "$(dirname "$0")/steps.c" \
    -o "$out" "$build/liblinnet.a" -Wl,-Bsymbolic -ljansson -lpcre2-8 -lutf8proc -lm
