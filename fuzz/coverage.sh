#!/bin/sh
# How much of each parser its corpus reaches: lines, by clang's counters, target and twin together. Fails under 90 %.
# usage: fuzz/coverage.sh BUILD      BUILD: a build with -DLN_FUZZ=ON -DLN_FUZZ_COVERAGE=ON
set -eu
build=${1:?build folder}
cd "$(dirname "$0")/.."
tool() { command -v "$1" || command -v "$1-$(clang -dumpversion | cut -d. -f1)"; }
profdata=$(tool llvm-profdata); cov=$(tool llvm-cov)

# What each target's parser is made of.
files_of() {
    case $1 in
    safetensors) echo src/io/safetensors.c ;;
    json) echo src/base/json_pull.c src/base/json_dom.c ;;
    config) echo src/io/config.c src/io/genconfig.c src/model/spec.c src/model/rope.c src/model/family_*.c ;;
    tokenizer) echo src/text/open.c src/text/section.c src/text/bpe_load.c src/text/added.c src/text/vocab.c src/text/pretok_read.c src/text/post.c \
        src/text/regex.c src/text/regex_rewrite.c ;;
    encode) echo src/text/encode.c src/text/normalize.c src/text/pretok.c src/text/bpe.c src/text/queue.c src/text/str.c ;;
    decode) echo src/text/decode.c src/text/decode_steps.c src/text/detok.c ;;
    jinja) echo src/text/jj_*.c ;;
    esac
}

bad=0
for corpus in fuzz/corpus/*/; do
    name=$(basename "$corpus")
    files=$(files_of "$name")
    [ -x "$build/fuzz_$name" ] && [ -n "$files" ] || { echo "$name: no target for this corpus" >&2; bad=1; continue; }
    for twin in "" _oom; do
        LLVM_PROFILE_FILE="$build/$name$twin.profraw" "$build/fuzz_$name$twin" -runs=0 "$corpus" >"$build/$name$twin.log" 2>&1 ||
            { echo "fuzz_$name$twin: fails on its corpus; see $build/$name$twin.log" >&2; bad=1; }
    done
    "$profdata" merge -o "$build/$name.profdata" "$build/$name.profraw" "$build/${name}_oom.profraw"
    # shellcheck disable=SC2086 # a list of files
    "$cov" export -summary-only -format=text -instr-profile="$build/$name.profdata" "$build/fuzz_$name" -object "$build/fuzz_${name}_oom" $files |
        python3 -c '
import json, sys
total = json.load(sys.stdin)["data"][0]
for f in total["files"]:
    l = f["summary"]["lines"]
    print("    %-36s %5d of %5d lines" % (f["filename"].split("/src/")[-1], l["covered"], l["count"]))
l = total["totals"]["lines"]
print("%-11s %5.1f %% of %d lines, %s files in the corpus" % (sys.argv[1], l["percent"], l["count"], sys.argv[2]))
sys.exit(l["percent"] < 90)' "$name" "$(ls "$corpus" | wc -l)" || bad=1
done
exit $bad
