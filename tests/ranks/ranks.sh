#!/bin/sh
# Runs whole_ranks.py: a sample on two hosts, or all of it with LN_LONG.
# usage: tests/ranks/ranks.sh ROOT BUILD
set -eu
PATH=$PATH:/usr/sbin:/sbin
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed: ranks on two hosts are NOT tested"; exit 77; }
exec python3 "$1/tests/ranks/whole_ranks.py" "$2/linnet" "$1" ${LN_LONG:+--long}
