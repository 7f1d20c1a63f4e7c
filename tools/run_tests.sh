#!/bin/sh
# Runs the tests of a build folder and prints a last line: N passed, N failed[, N skipped].
# usage: tools/run_tests.sh BUILD [CTEST OPTIONS]
# N counts the cases within the test programs. A program that ends abnormally without a failed case counts as one failed case.
# The tests are the CPU's: a GPU is hidden from them, unless LN_TEST_DEVICE names it (make test-cuda).
set -u
[ "${LN_TEST_DEVICE:-}" = cuda ] || export CUDA_VISIBLE_DEVICES=
build=${1:?build folder}; shift
log=$build/Testing/Temporary/LastTest.log
rm -f "$log"
# One test more than there are processors, since some wait for files and sockets.
ctest --test-dir "$build" --output-on-failure --timeout "${LN_TEST_TIMEOUT:-900}" -j "$(($(nproc 2>/dev/null || echo 2) + 1))" "$@"
status=$?
[ -f "$log" ] || { echo "linnet: no test ran" >&2; echo "0 passed, 1 failed"; exit 1; }
awk -v status=$status '
function close_program() { if (open && broken && !named) failed++; open = broken = named = 0 }
/^[0-9]+\/[0-9]+ Testing: / { close_program(); open = 1; program = $3; next }
/^Command: / { next }
/\[  PASSED  \] [0-9]+ test/ { match($0, /PASSED  \] [0-9]+/); passed += substr($0, RSTART + 10, RLENGTH - 10) }
/\[  FAILED  \] [0-9]+ test/ { match($0, /FAILED  \] [0-9]+/); n = substr($0, RSTART + 10, RLENGTH - 10); failed += n; named += n }
/^SKIP|[^A-Z]SKIP:/ { skips[++skipped] = program ": " $0 }
/^Test (Failed|Timeout)/ { broken = 1 }
END {
    close_program()
    for (i = 1; i <= skipped; i++) print skips[i]
    if (status && !failed) failed = 1
    printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : ""
    exit failed > 0 || passed == 0
}' "$log"
