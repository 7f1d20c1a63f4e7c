#!/bin/sh
# The server's three measurements that need a quiet machine, each in less than four minutes on two cores.
# usage: bench/serve_gates.sh overload | slow | peer MODEL LLAMA_SERVER FILE.gguf
#   overload   goodput at ten times the capacity: at least 95 % of the peak
#   slow       p99 with 5,000 connections that drip their heads: at most 5 % more
#   peer       tokens per second and time to the first one beside llama-server, 1, 4 and 16 clients
# SECONDS, TIMES, TOKENS: see bench/serve_load.py; the values here are those that keep within the time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
overload) SECONDS=${SECONDS_EACH:-12} exec timeout 240 python3 "$here/serve_load.py" overload ;;
slow) SECONDS=${SECONDS_EACH:-12} exec timeout 240 python3 "$here/serve_load.py" slow ;;
peer) TIMES=${TIMES:-1} TOKENS=${TOKENS:-32} THREADS=${THREADS:-2} exec timeout 240 python3 "$here/serve_load.py" "$@" ;;
*) sed -n '2,7s/^# //p' "$0" >&2 && exit 2 ;;
esac
