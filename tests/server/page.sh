#!/bin/sh
# Runs page.py: the server's page in Chromium, on the bundled model.
# usage: tests/server/page.sh ROOT BUILD [--shots DIR]
# If there is no Chromium, or no websocket-client from PyPI, the test is skipped, and says so.
set -eu
root=$1 build=$2
shift 2
venv=$build/page-venv
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    echo "SKIP: there is no chromium (Debian: apt-get install chromium): the server's page is NOT tested"
    exit 77
fi
if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import websocket' 2>/dev/null; then
    python3 -m venv "$venv" 2>/dev/null && timeout 60 "$venv/bin/python" -m pip install -q --no-compile --retries 1 --timeout 10 websocket-client >"$build/page.log" 2>&1 || {
        echo "SKIP: websocket-client cannot be installed from PyPI: the server's page is NOT tested"
        exit 77
    }
fi
log=$(mktemp) log2=$(mktemp)
PORT=0 BROWSER=none "$root/tools/demo_serve" "$build/linnet" >"$log" 2>&1 &
server=$!
"$build/linnet" serve "$root/models/tiny" --port 0 --log-format none --api-key secret-of-the-test 2>"$log2" &
keyed=$!
trap 'kill $server $keyed 2>/dev/null || true; rm -f "$log" "$log2"' EXIT
url_of() {
    for _ in $(seq 100); do
        found=$(grep -o 'http://[0-9.:]*' "$1" | head -n 1)
        [ -z "$found" ] || { echo "$found"; return; }
        sleep 0.1
    done
    cat "$1" >&2
    return 1
}
url=$(url_of "$log") keyed_url=$(url_of "$log2")
"$venv/bin/python" -B "$root/tests/server/page.py" "$@" "$url" "$keyed_url" secret-of-the-test
kill -TERM $server $keyed
wait $server $keyed
