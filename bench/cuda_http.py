#!/usr/bin/env python3
"""Tokens per second over HTTP of `linnet serve` on a GPU, by kind of request: what sampling asks for must not cost much.

usage: bench/cuda_http.py MODEL [CLIENTS [TOKENS [ROUNDS]]]       64 clients, 128 tokens each, 3 rounds

Kinds alternate in each round; a row has the median, and its ratio to plain (greedy) requests. Each client sends one request a round, not streamed. The
environment variable LINNET is the path of the command. If the model has a chat template, the last kinds are a plain
conversation whose prompt has a tool, and the same with a call of it. Only Python's standard library is needed; the client runs on the same machine."""
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LINNET = os.environ.get("LINNET", os.path.join(HERE, "../build/linnet"))
DRAW = dict(temperature=0.7, top_p=0.8, top_k=20)
SCHEMA = dict(type="array", items=dict(type="string"), minItems=400)  # an answer that cannot end early
KINDS = {
    "plain": dict(temperature=0),
    "draws": DRAW,
    "penalties": dict(DRAW, presence_penalty=1.5, frequency_penalty=0.1, repetition_penalty=1.05),
    "bias": dict(DRAW, logit_bias={"11": 2, "13": -3, "15": 1}),
    "logprobs 5": dict(DRAW, logprobs=5),
    "JSON schema": dict(DRAW, json_schema=SCHEMA, ignore_eos=False),
}
TOOL = dict(type="function", function=dict(name="report", description="Reports names of towns.", parameters=dict(
    type="object", properties=dict(towns=SCHEMA), required=["towns"])))
TOOLS = {
    "chat": dict(temperature=0, tools=[TOOL], tool_choice="none", chat_template_kwargs=dict(enable_thinking=False)),
    "tools": dict(DRAW, tools=[TOOL], tool_choice="required", ignore_eos=False, chat_template_kwargs=dict(enable_thinking=False)),
}


def has_template(model):
    path = os.path.join(model, "tokenizer_config.json")
    return os.path.exists(os.path.join(model, "chat_template.jinja")) or os.path.exists(path) and "chat_template" in open(path).read()


def start(*flags):
    """Starts a server with these flags of `linnet serve`; returns it and its port."""
    p = subprocess.Popen([LINNET, "serve", *flags, "--port", "0", "--log-format", "none"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for line in p.stderr:
        if "listening on http://" in line:
            threading.Thread(target=p.stderr.read, daemon=True).start()
            return p, int(line.split("listening on http://")[1].split()[0].rsplit(":", 1)[1].rstrip("/,;"))
    sys.exit("the server ended")


def ask(port, body, out):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", "/v1/chat/completions" if "messages" in body else "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    answer = json.loads(r.read())
    out.append(answer if r.status == 200 else sys.exit(f"{r.status}: {answer}"))


def ask_all(port, bodies):
    """Sends the requests at once; returns the answers, in no order, and the seconds that they took."""
    out = []
    threads = [threading.Thread(target=ask, args=(port, b, out)) for b in bodies]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if len(out) < len(bodies):
        sys.exit(f"{len(bodies) - len(out)} requests failed")
    return out, time.monotonic() - begin


def run(port, kind, clients, tokens):
    bodies = []
    for i in range(clients):
        text = f"Client {i} asks about the weather in {i * 37} towns."
        prompt = dict(messages=[dict(role="user", content=text)]) if "tools" in KINDS[kind] else dict(prompt=text)
        bodies.append(dict(dict(prompt, max_tokens=tokens, seed=i, ignore_eos=True), **KINDS[kind]))
    answers, seconds = ask_all(port, bodies)
    return sum(a["usage"]["completion_tokens"] for a in answers) / seconds


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    clients, tokens, rounds = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 64), (3, 128), (4, 3)))
    if has_template(sys.argv[1]):
        KINDS.update(TOOLS)
    server, port = start(sys.argv[1], "--device", "cuda", "--numerics", "fast", "--parallel", str(clients), "--ctx", str(tokens + 512))
    rates = {k: [] for k in KINDS}
    try:
        for r in range(rounds + 1):
            for k in KINDS:
                rate = run(port, k, clients, tokens if r else 8)
                if r:
                    rates[k].append(rate)
        plain = statistics.median(rates["plain"])
        for k, v in rates.items():
            print(f"{clients:3} clients  {k:<14}{statistics.median(v):8.0f} tok/s {100 * statistics.median(v) / plain:6.1f} %", flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
