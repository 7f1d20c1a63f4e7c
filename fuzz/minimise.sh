#!/bin/sh
# Adds the inputs that fuzzing found (FOUND/NAME) to fuzz/corpus/NAME and reduces the corpus to few, small files with the same coverage.
# Needs the build of `make fuzz`.
# usage: fuzz/minimise.sh BUILD FOUND
set -eu
build=${1:?build folder}; found=${2:?folder with found inputs}
cd "$(dirname "$0")/.."
for f in "$build"/fuzz_*; do
    name=$(basename "$f")
    case $name in *_oom | *.*) continue ;; esac
    name=${name#fuzz_}
    set --
    for more in "fuzz/corpus/$name" "$found/$name" "$found/fuzz_$name" "$found/fuzz_${name}_oom"; do
        [ ! -d "$more" ] || set -- "$@" "$more"
    done
    [ $# -gt 0 ] || continue
    new=$(mktemp -d)
    "$f" -merge=1 -use_counters=0 -max_len=8192 "$new" "$@" >/dev/null 2>&1 || { echo "$name: the merge failed" >&2; exit 1; }
    rm -rf "fuzz/corpus/$name"
    mkdir "fuzz/corpus/$name"
    for x in "$new"/*; do mv "$x" "fuzz/corpus/$name/$(basename "$x" | cut -c1-12)"; done
    rm -rf "$new"
    echo "$name: $(ls "fuzz/corpus/$name" | wc -l) files, $(du -sb "fuzz/corpus/$name" | cut -f1) bytes"
done
