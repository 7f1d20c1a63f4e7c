#!/bin/sh
# Runs all fuzzers of a folder at once, each on its corpus, and prints their findings.
# usage: fuzz/run.sh DIR SECONDS [CORPUS]     DIR has the binaries fuzz_*; CORPUS has their corpora (corpus/ next to this script)
# With 0 seconds each runs the files of its corpus once and nothing else: what .ci/run checks.
# Needs only a shell and the binaries. New inputs are written to DIR/found/NAME, inputs that crash, leak or time out to DIR/crashes/NAME.
# Exit 1 when there are any of the latter.
set -eu
dir=$(cd "${1:?folder with the fuzzers}" && pwd)
seconds=${2:?seconds}
corpus=$(cd "${3:-$(dirname "$0")/corpus}" && pwd)
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=0}" UBSAN_OPTIONS=print_stacktrace=1
running=
how="-max_total_time=$seconds -max_len=8192"
[ "$seconds" != 0 ] || how=-runs=0
for f in "$dir"/fuzz_*; do
    name=$(basename "$f")
    case $name in *.*) continue ;; esac
    [ -x "$f" ] && [ ! -d "$f" ] || continue
    seeds=$corpus/$(echo "$name" | sed 's/^fuzz_//; s/_oom$//')
    [ -d "$seeds" ] || { echo "$name: no corpus at $seeds" >&2; exit 1; }
    rm -rf "$dir/crashes/$name"
    mkdir -p "$dir/found/$name" "$dir/crashes/$name"
    rm -f "$dir/$name.exit"
    (
        status=0
        set -- "$seeds"
        [ "$seconds" = 0 ] || set -- "$dir/found/$name" "$seeds"
        # shellcheck disable=SC2086 # two flags
        "$f" $how -timeout=20 -rss_limit_mb=3000 -artifact_prefix="$dir/crashes/$name/" -print_final_stats=1 "$@" >"$dir/$name.log" 2>&1 || status=$?
        echo $status >"$dir/$name.exit"
    ) &
    running="$running $name"
done
[ -n "$running" ] || { echo "$dir: no fuzzers" >&2; exit 1; }
wait
bad=0
for name in $running; do
    status=$(cat "$dir/$name.exit")
    left=$(find "$dir/crashes/$name" -type f | wc -l)
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/$name.log")
    if [ "$status" = 0 ] && [ "$left" = 0 ]; then
        printf '%-22s %12s runs, clean\n' "$name" "${runs:-?}"
    else
        printf '%-22s %12s runs, exit %s: %s\n' "$name" "${runs:-?}" "$status" "$(grep -aE 'must hold|SUMMARY|runtime error|ERROR: libFuzzer' "$dir/$name.log" | head -2 | tr '\n' ' ')"
        bad=1
    fi
done
exit $bad
