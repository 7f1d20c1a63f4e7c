#!/usr/bin/env python3
"""Asks a running server through clients that people use, unmodified.

usage: tests/server/clients.py URL      URL: http://127.0.0.1:PORT

Needs openai; the other clients are tried where they are installed. Exit 1 when something is not as it should be."""
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import typing

import openai
import pydantic

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


def embeddings():
    """The SDK asks for base64 and decodes it; floats are the same values. LangChain sends token ids."""
    texts = ["Once upon a time", "there was a little cat", "Once upon a time"]
    r = client.embeddings.create(model="tiny", input=texts)
    rows = [d.embedding for d in r.data]
    check("embeddings", [d.index for d in r.data] == [0, 1, 2] and rows[0] == rows[2] != rows[1])
    check("length", all(abs(sum(x * x for x in row) - 1) < 1e-5 for row in rows))
    floats = client.embeddings.create(model="tiny", input=texts[0], encoding_format="float")
    check("floats", all(abs(a - b) < 1e-8 for a, b in zip(floats.data[0].embedding, rows[0])) and len(floats.data[0].embedding) == len(rows[0]))
    check("usage of embeddings", r.usage.total_tokens == r.usage.prompt_tokens == 2 * floats.usage.prompt_tokens + client.embeddings.create(
        model="tiny", input=texts[1]).usage.prompt_tokens)
    check("dimensions", len(client.embeddings.create(model="tiny", input=texts[0], dimensions=8).data[0].embedding) == 8)
    ids = client.embeddings.create(model="tiny", input=[[300, 301], [302]]).data
    check("token ids", len(ids) == 2 and client.embeddings.create(model="tiny", input=[300, 301]).data[0].embedding == ids[0].embedding)
    for more in ({"input": []}, {"dimensions": 100000}, {"encoding_format": "x"}, {"input": ["a", 1]}, {"input": "word " * 3000}):
        try:
            client.embeddings.create(**{"model": "tiny", "input": "a", **more})
        except openai.BadRequestError as e:
            check("param of embeddings", e.body["param"].startswith(next(iter(more))))
        else:
            check(f"{str(more)[:40]} was answered", False)
    try:
        from langchain_openai import OpenAIEmbeddings
    except ImportError:
        print("SKIP: langchain-openai is not installed")
        return
    e = OpenAIEmbeddings(model="tiny", base_url=URL + "/v1", api_key="any", check_embedding_ctx_length=False)
    check("langchain's embeddings", all(abs(a - b) < 1e-8 for a, b in zip(e.embed_query(texts[0]), rows[0])))


class Friend(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    kind: typing.Literal["cat", "dog"]
    weight: float = pydantic.Field(ge=0, lt=100)
    friend: typing.Optional[Friend]


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def forms():
    """Answers of a form: what comes is JSON that meets the schema, whole and in a stream, drawn and greedy."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                               "pets": {"type": "array", "items": {"enum": ["cat", "dog"]}, "maxItems": 2}},
              "required": ["name", "age", "pets"], "additionalProperties": False}
    for seed in range(4):
        a = client.chat.completions.create(model="tiny", messages=ASK, response_format=schema_format(schema), seed=seed, temperature=seed and 1.0)
        v = json.loads(a.choices[0].message.content)
        check("form: keys", list(v) == ["name", "age", "pets"])
        check("form: values", isinstance(v["name"], str) and len(v["name"]) <= 20 and 0 <= v["age"] <= 120 and len(v["pets"]) <= 2 and set(v["pets"]) <= {"cat", "dog"})
        check("form: its end", a.choices[0].finish_reason == "stop")
        parts = client.chat.completions.create(model="tiny", messages=ASK, response_format=schema_format(schema), seed=seed, temperature=seed and 1.0, stream=True)
        check("form: a stream", "".join(p.choices[0].delta.content or "" for p in parts) == a.choices[0].message.content)
    a = client.chat.completions.create(model="tiny", messages=ASK, response_format={"type": "json_object"}, seed=3, max_tokens=400, n=2)
    for c in a.choices:
        check("form: an object", c.finish_reason == "length" or isinstance(json.loads(c.message.content), dict))
    a = client.completions.create(model="tiny", prompt="The answer is", extra_body={"guided_choice": [" yes", " no"]})
    check("form: a choice", a.choices[0].text in (" yes", " no"))
    a = client.responses.create(model="tiny", input="A person", extra_body={"seed": 2}, text={"format": {"type": "json_schema", "name": "person", "schema": schema, "strict": True}})
    check("form: a response", list(json.loads(a.output_text)) == ["name", "age", "pets"] and a.text.format.name == "person")
    parsed = client.chat.completions.parse(model="tiny", messages=ASK, response_format=Person, seed=5).choices[0].message.parsed
    check("form: parse", isinstance(parsed, Person) and parsed.kind in ("cat", "dog") and (parsed.friend is None or parsed.friend.name is not None))
    try:
        client.responses.create(model="tiny", input="x", text={"format": {"type": "json_schema", "name": "n", "schema": {"not": {}}}})
    except openai.BadRequestError as e:
        check("form: the field of a response", e.body["param"] == "text.format.schema")
    else:
        check("form: a schema that cannot be was taken", False)
    a = client.completions.create(model="tiny", prompt="Phone:", seed=1, extra_body={"structured_outputs": {"regex": "[0-9]{3}-[0-9]{4}"}})
    check("form: a pattern", len(a.choices[0].text) == 8 and a.choices[0].text[3] == "-")


def errors():
    for kind, call in ((openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=ASK, temperature=-1)),
                       (openai.NotFoundError, lambda: client.chat.completions.create(model="other", messages=ASK)),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=ASK, response_format={"type": "xml"})),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=ASK, response_format=schema_format({"not": {}}))),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "word " * 3000}]))):
        try:
            call()
        except kind as e:
            check("error body", e.body["message"] and "param" in e.body and "code" in e.body)
        else:
            check(f"{kind.__name__} was expected", False)


def responses():
    story = "Near the hill lived a little boy"
    r = client.responses.create(model="tiny", input="Tell me a short story.", max_output_tokens=40, temperature=0)
    check("response", r.output_text.startswith(story) and r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens")
    check("usage of a response", r.usage.output_tokens == 40 and r.usage.total_tokens == r.usage.input_tokens + 40)
    events = list(client.responses.create(model="tiny", input=[{"role": "user", "content": [{"type": "input_text", "text": "Tell me a short story."}]}],
                                          max_output_tokens=40, temperature=0, stream=True))
    check("numbers of events", [e.sequence_number for e in events] == list(range(len(events))))
    check("events", events[0].type == "response.created" and events[-1].type == "response.incomplete")
    check("deltas", "".join(e.delta for e in events if e.type == "response.output_text.delta") == events[-1].response.output_text == r.output_text)
    for more in ({"previous_response_id": "x"}, {"max_output_tokens": -3}):
        try:
            client.responses.create(**{"model": "tiny", "input": "x", **more})
        except openai.BadRequestError as e:
            check("param", e.body["param"] == next(iter(more)))
        else:
            check(f"{more} was answered", False)
    look = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"far": {"type": "boolean"}}, "required": ["far"]}}
    r = client.responses.create(model="tiny", input="x", tools=[look], tool_choice="required", parallel_tool_calls=False, temperature=0, max_output_tokens=100)
    calls = [o for o in r.output if o.type == "function_call"]
    check("a call without a format of the template's own", [c.name for c in calls] == ["look"] and list(json.loads(calls[0].arguments)) == ["far"])


def messages():
    try:
        import anthropic
    except ImportError:
        print("SKIP: anthropic is not installed")
        return
    a = anthropic.Anthropic(base_url=URL, api_key="any", max_retries=0)
    greedy = {"temperature": 0}
    r = a.messages.create(model="tiny", max_tokens=40, messages=ASK, extra_body=greedy)
    check("message", r.content[0].text.startswith("Near the hill lived") and r.stop_reason == "max_tokens" and r.usage.output_tokens == 40)
    kind = {"type": "json_schema", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}}
    f = a.messages.create(model="tiny", max_tokens=100, messages=ASK, extra_body={"temperature": 0, "output_config": {"format": kind}})
    check("a message of a form", list(json.loads(f.content[0].text)) == ["ok"] and f.stop_reason == "end_turn")
    with a.messages.stream(model="tiny", max_tokens=40, messages=ASK, extra_body=greedy) as stream:
        text = "".join(stream.text_stream)
        check("stream of a message", text == r.content[0].text == stream.get_final_message().content[0].text)
    r = a.messages.create(model="tiny", max_tokens=40, messages=ASK, stop_sequences=["zzz", " boy"], extra_body=greedy)
    check("stop sequence", r.stop_reason == "stop_sequence" and r.stop_sequence == " boy")
    n = a.messages.count_tokens(model="tiny", messages=ASK).input_tokens
    check("count", n == r.usage.input_tokens + r.usage.cache_read_input_tokens)
    check("system", a.messages.count_tokens(model="tiny", messages=ASK, system="Be short.").input_tokens > n)
    try:
        a.messages.create(model="tiny", max_tokens=4, messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a/b"}}]}])
    except anthropic.BadRequestError as e:
        check("error of a message", e.body["type"] == "error" and e.body["error"]["param"] == "messages[0].content")
    else:
        check("an image was answered", False)


def shapes():
    """Bodies as Open WebUI, aider and agents send them: fields that are null, parts, developer messages, no tools."""
    r = client.chat.completions.create(
        model="tiny", max_completion_tokens=4, n=2, seed=3, user="u", store=False, parallel_tool_calls=True, tools=[], service_tier="auto",
        reasoning_effort="low", verbosity="low", response_format={"type": "text"}, modalities=["text"], logprobs=True, top_logprobs=2,
        messages=[{"role": "developer", "content": [{"type": "text", "text": "Be short."}]},
                  {"role": "user", "name": "bob", "content": [{"type": "text", "text": "Tell me"}, {"type": "text", "text": " a story"}]}],
        extra_body={"metadata": {"a": "b"}, "features": {}, "session_id": "x", "stream_options": None, "tool_choice": None, "stop": None})
    check("fields of clients", len(r.choices) == 2 and r.system_fingerprint.startswith("linnet-") and r.choices[0].message.refusal is None)
    r = client.responses.create(
        model="tiny", max_output_tokens=4, store=False, metadata={"a": "b"}, reasoning={"effort": "low"}, text={"format": {"type": "text"}},
        truncation="disabled", parallel_tool_calls=True, tools=[], tool_choice="auto", include=[], service_tier="auto", top_logprobs=0,
        input=[{"role": "developer", "content": "Be short."}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
               {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [
                   {"type": "output_text", "text": "Hello", "annotations": []}]}, {"role": "user", "content": "Tell me a story."}])
    check("items of a response", r.output_text)

    async def together():
        async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key="any", max_retries=0) as a:
            ask = {"model": "tiny", "messages": ASK, "max_tokens": 8, "temperature": 0}
            texts = {r.choices[0].message.content for r in await asyncio.gather(*[a.chat.completions.create(**ask) for _ in range(12)])}
            stream = await a.chat.completions.create(**{**ask, "max_tokens": 500, "stream": True})
            async for _ in stream:
                break
            await stream.close()
            return texts
    check("the asynchronous client", len(asyncio.run(together())) == 1)


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


for test in (chat, completions, embeddings, forms, errors, responses, messages, shapes, langchain, llm):
    test()
    print(test.__name__, "good", flush=True)
