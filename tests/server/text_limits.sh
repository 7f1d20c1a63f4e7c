#!/bin/sh
# Runs text_limits.py on the bundled model; all of it with LN_LONG.
# usage: tests/server/text_limits.sh ROOT BUILD
set -eu
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed: the memory limit for texts is NOT checked"; exit 77; }
exec python3 "$1/tests/server/text_limits.py" "$2/linnet" "$1/models/tiny" ${LN_LONG:+--whole}
