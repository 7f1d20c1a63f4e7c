#!/bin/sh
# Runs clients.py against a server on the bundled model, in a virtual environment of its own.
# usage: tests/server/clients.sh ROOT BUILD
# If PyPI cannot be reached, the test is skipped, and says so. With LN_LONG more clients are installed, which takes minutes.
set -eu
root=$1 build=$2
venv=$build/clients-venv more=
[ -z "${LN_LONG:-}" ] || more="langchain-anthropic llama-index-llms-openai-like litellm pydantic-ai-slim[openai] instructor"
if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import openai, anthropic, langchain_openai, llm' 2>/dev/null; then
    python3 -m venv "$venv" 2>/dev/null && timeout 240 "$venv/bin/python" -m pip install -q --no-compile --retries 1 --timeout 10 openai anthropic langchain-openai llm >"$build/clients.log" 2>&1 || {
        echo "SKIP: openai, anthropic, langchain-openai and llm cannot be installed from PyPI: clients of the server are NOT tested"
        exit 77
    }
fi
for package in $more; do # one after the other: each may ask for another openai
    timeout 240 "$venv/bin/python" -m pip install -q --prefer-binary "$package" >>"$build/clients.log" 2>&1 || echo "SKIP: $package cannot be installed"
done
log=$(mktemp)
"$build/linnet" serve "$root/models/tiny" --port 0 --log-format none 2>"$log" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 100); do
    url=$(sed -n 's|.*listening on \(http://[^ ]*\)|\1|p' "$log")
    [ -z "$url" ] || break
    sleep 0.1
done
[ -n "$url" ] || { cat "$log" >&2; exit 1; }
"$venv/bin/python" "$root/tests/server/clients.py" "$url"
"$venv/bin/python" "$root/tests/server/tool_clients.py" "$root" "$build"
if command -v curl >/dev/null; then # the line of docs/server.md
    curl -sf "$url/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "Tell me a short story."}], "max_tokens": 40}' | grep -q '"finish_reason":"length"'
fi
kill -TERM $server
wait $server
