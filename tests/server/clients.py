#!/usr/bin/env python3
"""Asks a running server through clients that people use, unmodified.

usage: tests/server/clients.py URL      URL: http://127.0.0.1:PORT

Needs openai; langchain-openai and llm are tried where they are installed. Exit 1 when something is not as it should be."""
import os
import subprocess
import sys
import tempfile

import openai

URL = sys.argv[1].rstrip("/")
ASK = [{"role": "user", "content": "Tell me a short story."}]
client = openai.OpenAI(base_url=URL + "/v1", api_key="any", max_retries=0)


def check(what, good):
    if not good:
        sys.exit(f"clients.py: {what}")


def chat():
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    r = client.chat.completions.create(model="tiny", messages=ASK, max_tokens=40, temperature=0)
    check("content", r.choices[0].message.content.startswith("Near the hill lived"))
    check("finish", r.choices[0].finish_reason == "length" and r.choices[0].message.role == "assistant")
    check("usage", r.usage.completion_tokens == 40 and r.usage.total_tokens == r.usage.prompt_tokens + 40)
    text, roles, usage, finish = "", 0, None, None
    with client.chat.completions.create(model="tiny", messages=ASK, max_tokens=40, temperature=0, stream=True,
                                        stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for c in chunk.choices:
                roles += c.delta.role == "assistant"
                text += c.delta.content or ""
                finish = c.finish_reason or finish
    check("stream", text == r.choices[0].message.content and roles == 1 and finish == "length")
    check("usage of a stream", usage.completion_tokens == 40)
    r = client.chat.completions.create(model="tiny", messages=ASK, max_tokens=5, seed=1, n=3, logprobs=True, top_logprobs=4)
    check("n", [c.index for c in r.choices] == [0, 1, 2])
    for c in r.choices:
        check("logprobs", "".join(t.token for t in c.logprobs.content) == c.message.content and len(c.logprobs.content[0].top_logprobs) == 4)
    r = client.chat.completions.create(model="tiny", messages=ASK, max_completion_tokens=60, temperature=0, stop=["boy"], user="x", metadata={"a": "b"})
    check("stop", r.choices[0].message.content == "Near the hill lived a little " and r.choices[0].finish_reason == "stop")
    with client.chat.completions.stream(model="tiny", messages=ASK, max_tokens=60, temperature=0, stop="boy") as stream:
        events = list(stream)
        check("helper", stream.get_final_completion().choices[0].message.content.startswith("Near the hill") and len(events) > 5)
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=ASK, max_tokens=1)
    check("request id", raw.parse()._request_id == raw.headers["x-request-id"])


def completions():
    r = client.completions.create(model="tiny", prompt="Once upon", max_tokens=8, temperature=0, logprobs=2, echo=True)
    check("echo", r.choices[0].text.startswith("Once upon a time"))
    check("old logprobs", "".join(r.choices[0].logprobs.tokens) == r.choices[0].text and r.choices[0].logprobs.token_logprobs[0] is None)
    r = client.completions.create(model="tiny", prompt=["One", [300, 301]], max_tokens=3, temperature=0, n=2)
    check("choices", len(r.choices) == 4)
    text = "".join(c.choices[0].text for c in client.completions.create(model="tiny", prompt="Once upon", max_tokens=8, temperature=0, stream=True))
    check("stream of a completion", text.startswith(" a time"))


def errors():
    for kind, call in ((openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=ASK, temperature=-1)),
                       (openai.NotFoundError, lambda: client.chat.completions.create(model="other", messages=ASK)),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=ASK, response_format={"type": "json_object"})),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "word " * 3000}]))):
        try:
            call()
        except kind as e:
            check("error body", e.body["message"] and "param" in e.body and "code" in e.body)
        else:
            check(f"{kind.__name__} was expected", False)


def langchain():
    try:
        from langchain_openai import ChatOpenAI
    except ImportError:
        print("SKIP: langchain-openai is not installed")
        return
    model = ChatOpenAI(model="tiny", base_url=URL + "/v1", api_key="any", temperature=0, max_tokens=20)
    whole = model.invoke("Tell me a short story.")
    check("langchain", whole.content.startswith("Near the hill") and whole.usage_metadata["output_tokens"] == 20)
    check("langchain's stream", "".join(c.content for c in model.stream("Tell me a short story.")) == whole.content)
    check("langchain's batch", [m.content for m in model.batch(["Tell me a short story."] * 4)] == [whole.content] * 4)


def llm():
    if subprocess.run([sys.executable, "-c", "import llm"], capture_output=True, check=False).returncode:
        print("SKIP: llm is not installed")
        return
    with tempfile.TemporaryDirectory() as home:
        with open(os.path.join(home, "extra-openai-models.yaml"), "w", encoding="utf-8") as f:
            f.write(f"- model_id: t\n  model_name: tiny\n  api_base: {URL}/v1\n")
        r = subprocess.run([sys.executable, "-m", "llm", "-m", "t", "-o", "temperature", "0", "-o", "max_tokens", "20", "Tell me a short story."],
                           env={**os.environ, "LLM_USER_PATH": home, "OPENAI_API_KEY": "any"}, capture_output=True, text=True, check=False)
        check("llm: " + r.stderr, r.stdout.startswith("Near the hill lived"))


for test in (chat, completions, errors, langchain, llm):
    test()
    print(test.__name__, "good", flush=True)
