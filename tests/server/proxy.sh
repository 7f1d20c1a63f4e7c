#!/bin/sh
# Runs proxy.py: servers behind nginx, with examples/nginx.conf.
# usage: tests/server/proxy.sh ROOT BUILD
set -eu
PATH=$PATH:/usr/sbin
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed: servers behind a proxy are NOT tested"; exit 77; }
command -v nginx >/dev/null || { echo "SKIP: nginx is not installed (Debian: apt-get install nginx-light): servers behind a proxy are NOT tested"; exit 77; }
exec python3 "$1/tests/server/proxy.py" "$2/linnet" "$1"
