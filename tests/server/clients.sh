#!/bin/sh
# Runs clients.py, agent_clients.py and tool_clients.py against servers on the bundled model, in a virtual environment of its own.
# usage: tests/server/clients.sh ROOT BUILD
# If PyPI cannot be reached, the test is skipped, and says so. With LN_LONG more clients are installed, which takes minutes.
set -eu
root=$1 build=$2
venv=$build/clients-venv more=
[ -z "${LN_LONG:-}" ] || more="langchain-anthropic smolagents[openai] llama-index-llms-openai-like litellm pydantic-ai-slim[openai] instructor openai-agents"
if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import openai, anthropic, langchain_openai, llm, ollama, huggingface_hub' 2>/dev/null; then
    python3 -m venv "$venv" 2>/dev/null && timeout 240 "$venv/bin/python" -m pip install -q --no-compile --retries 1 --timeout 10 openai anthropic langchain-openai llm ollama huggingface_hub >"$build/clients.log" 2>&1 || {
        echo "SKIP: openai, anthropic, langchain-openai, llm, ollama and huggingface_hub cannot be installed from PyPI: clients of the server are NOT tested"
        exit 77
    }
fi
for package in $more; do # one after the other: each may ask for another openai
    timeout 240 "$venv/bin/python" -m pip install -q --prefer-binary "$package" >>"$build/clients.log" 2>&1 || echo "SKIP: $package cannot be installed"
done
work=$(mktemp -d)
server= other=
trap 'kill $server $other 2>/dev/null || true; rm -rf "$work"' EXIT
# Waits until the server whose log this is listens, and prints its address.
address() {
    for _ in $(seq 600); do
        url=$(sed -n 's|.*listening on \(http://[^ ]*\)|\1|p' "$1" 2>/dev/null || true) # the server may not have made it yet
        [ -z "$url" ] || { echo "$url"; return; }
        sleep 0.1
    done
    cat "$1" >&2
    exit 1
}
# The bundled model, and the same with a context for agents whose system prompts have thousands of tokens.
mkdir "$work/long"
ln -s "$root"/models/tiny/* "$work/long/"
rm "$work/long/config.json"
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 32768/' "$root/models/tiny/config.json" >"$work/long/config.json"
"$build/linnet" serve "$root/models/tiny" --port 0 --log-format none 2>"$work/log" &
server=$!
"$build/linnet" serve "$work/long" --name tiny --port 0 --log-format none 2>"$work/long.log" &
other=$!
url=$(address "$work/log") long=$(address "$work/long.log")
"$venv/bin/python" "$root/tests/server/clients.py" "$url"
"$venv/bin/python" "$root/tests/server/agent_clients.py" "$url" "$long"
"$venv/bin/python" "$root/tests/server/tool_clients.py" "$root" "$build"
if command -v curl >/dev/null; then # the line of docs/server.md
    curl -sf "$url/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "Tell me a short story."}], "max_tokens": 40}' | grep -q '"finish_reason":"length"'
fi
kill -TERM $server $other
wait $server
wait $other
