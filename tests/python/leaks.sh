#!/bin/sh
# Opens a model a thousand times through the Python module under AddressSanitizer, and fails if any memory was lost.
# usage: tests/python/leaks.sh ROOT BUILD [PYTHON [OPENS]]      BUILD: a build with LN_SANITIZE; four minutes
set -eu
root=$1 build=$(cd "$2" && pwd) python=${3:-python3} opens=${4:-1000}
runtime=$(cc -print-file-name=libasan.so)
if ! [ -f "$runtime" ] || ! [ -f "$build/liblinnet.so.0" ]; then
    echo "SKIP: no libasan.so or no $build/liblinnet.so.0: leaks of the Python module are NOT looked for"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/python_package" "$work"
PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1 PYTHONMALLOC=malloc LINNET_LIBRARY=$build/liblinnet.so.0 LD_PRELOAD=$runtime \
    ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0 "$python" "$root/tests/python/leaks.py" "$root/models/tiny" "$opens"
