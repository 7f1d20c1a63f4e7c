#!/bin/sh
# Runs schemathesis, which sends what /openapi.json allows, and what it forbids, to a server on the bundled model, and promtool on its /metrics. Schemathesis is installed from PyPI into a virtual environment of its own.
# usage: tests/server/openapi.sh ROOT BUILD [EXAMPLES]     EXAMPLES: requests of each kind and path (30)
# If PyPI cannot be reached, or promtool (Debian: prometheus) is not installed, that part is skipped, and says so.
set -eu
root=$1 build=$(cd "$2" && pwd) examples=${3:-30}
venv=$build/openapi-venv
log=$(mktemp) work=$(mktemp -d)
"$build/linnet" serve "$root/models/tiny" --port 0 --lora-dir "$work" --log-format none 2>"$log" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$log" "$work"' EXIT
for _ in $(seq 100); do
    url=$(sed -n 's|.*listening on \(http://[^ ]*\)|\1|p' "$log" 2>/dev/null || true)
    [ -z "$url" ] || break
    sleep 0.1
done
[ -n "$url" ] || { cat "$log" >&2; exit 1; }
if command -v promtool >/dev/null; then
    python3 -c 'import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())' "$url/metrics" >"$work/metrics"
    promtool check metrics <"$work/metrics" >"$work/said" 2>&1 && ! [ -s "$work/said" ] || { cat "$work/said" >&2; exit 1; }
    echo "promtool has nothing to say"
else
    echo "SKIP: promtool is not installed: /metrics is NOT checked"
fi
if ! [ -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv" && timeout 240 "$venv/bin/python" -m pip install -q --retries 1 --timeout 10 schemathesis >"$build/openapi.log" 2>&1 || {
        rm -rf "$venv"
        echo "SKIP: schemathesis cannot be installed from PyPI: /openapi.json is NOT checked"
        exit 77
    }
fi
root=$(cd "$root" && pwd)
cd "$work" # it writes a cache
PYTHONPATH=$root/tests/server SCHEMATHESIS_HOOKS=openapi_hooks "$venv/bin/schemathesis" run "$url/openapi.json" --max-examples "$examples" --seed 1 --request-timeout 120 --suppress-health-check=too_slow
kill -TERM $server
wait $server
