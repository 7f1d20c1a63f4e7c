#!/bin/sh
# Runs the cases of the Python module: against the library of the build, and its structs against the C compiler.
# usage: tests/python/module.sh ROOT BUILD [PYTHON [CASE...]]
set -eu
root=$1 build=$(cd "$2" && pwd) python=${3:-python3}
shift $(($# > 2 ? 3 : 2))
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "SKIP: $python 3.9 or later is not installed: the Python module is NOT tested"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/python_package" "$work" "$work/abi.c"
cc -I"$root/include" -o "$work/abi" "$work/abi.c"
"$work/abi" >"$work/abi.txt"
PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1 LINNET_LIBRARY=$build/liblinnet.so.0 LINNET_COMMAND=$build/linnet LINNET_ABI=$work/abi.txt \
    "$python" "$root/tests/python/module_cases.py" "$@" 2>"$work/log" || { cat "$work/log"; exit 1; }
sed -n 's/^Ran \([0-9]*\) tests.*/[  PASSED  ] \1 test(s)./p; /SKIP/p' "$work/log"
