#!/usr/bin/env python3
"""Calls tools through OpenAI's and Anthropic's clients, unmodified, on a server whose model writes one call and ends.

usage: tests/server/tool_clients.py ROOT BUILD

The model is a golden one with another vocabulary, and a generation_config.json that forbids every token but one, which is a
text and a call, and the end. Needs openai; anthropic is tried where it is installed. Exit 1 when something is not as it should be."""
import json
import os
import re
import subprocess
import sys
import tempfile

import openai

ROOT, BUILD = sys.argv[1:3]
SAID = [{"role": "user", "content": "Weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}}
CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'
END, CALLS, VOCABULARY = 257, 260, 263
TEMPLATE = ("{% for m in messages %}{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %}"
            "{% endfor %}{# <tool_call> arguments #}")


def check(what, good):
    if not good:
        sys.exit(f"tool_clients.py: {what}")


def make_model(to):
    golden = os.path.join(ROOT, "tests/golden/qwen3-f16")
    os.symlink(os.path.join(golden, "model.safetensors"), os.path.join(to, "model.safetensors"))
    with open(os.path.join(golden, "config.json"), encoding="utf-8") as f:
        config = json.load(f) | {"max_position_embeddings": 4096}  # the template shows no tools: they are described in the system text
    with open(os.path.join(golden, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    token = next(t for t in tokenizer["added_tokens"] if t["id"] == CALLS)
    vocabulary, written = tokenizer["model"]["vocab"], f"Let me see.\n<tool_call>\n{CALL}\n</tool_call>"
    if token["content"] in vocabulary:
        vocabulary[written] = vocabulary.pop(token["content"])
    token.update(content=written, special=False)
    generation = {"eos_token_id": END, "begin_suppress_tokens": [END], "bad_words_ids": [[CALLS, CALLS]],
                  "suppress_tokens": [i for i in range(VOCABULARY) if i not in (END, CALLS)]}
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer), ("generation_config.json", generation)):
        with open(os.path.join(to, name), "w", encoding="utf-8") as f:
            json.dump(value, f)
    with open(os.path.join(to, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def chat(client):
    r = client.chat.completions.create(model="m", messages=SAID, tools=[TOOL])
    m, call = r.choices[0].message, r.choices[0].message.tool_calls[0]
    check("finish", r.choices[0].finish_reason == "tool_calls" and m.content == "Let me see.")
    check("call", call.function.name == "weather" and json.loads(call.function.arguments) == {"city": "Paris"} and call.type == "function")
    again = [*SAID, m, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    r = client.chat.completions.create(model="m", messages=again, tools=[TOOL], tool_choice="none")
    check("an answer to the result", "tool_call" in r.choices[0].message.content and not r.choices[0].message.tool_calls)
    with client.chat.completions.stream(model="m", messages=SAID, tools=[{**TOOL, "function": {**TOOL["function"], "strict": True}}]) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_completion().choices[0]
    check("events", "tool_calls.function.arguments.done" in kinds)
    check("stream", final.finish_reason == "tool_calls" and final.message.tool_calls[0].function.arguments == call.function.arguments)


def responses(client):
    flat = {"type": "function", **TOOL["function"]}
    r = client.responses.create(model="m", input=SAID, tools=[flat])
    call = r.output[-1]
    check("response", r.output_text == "Let me see." and call.type == "function_call" and json.loads(call.arguments) == {"city": "Paris"})
    r = client.responses.create(model="m", tools=[flat], input=[
        *SAID, *[o.model_dump(exclude_none=True) for o in r.output], {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
    check("a response to the result", r.status == "completed")
    with client.responses.stream(model="m", input=SAID, tools=[flat]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    check("numbers of events", [e.sequence_number for e in events] == list(range(len(events))))
    check("events of a response", {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= {e.type for e in events})
    done = [e.item for e in events if e.type == "response.output_item.done"]
    check("items", [o.type for o in final.output] == [o.type for o in done] == ["message", "function_call"])
    check("ids", [o.id for o in final.output] == [o.id for o in done])


def messages(url):
    try:
        import anthropic
    except ImportError:
        print("SKIP: anthropic is not installed")
        return
    client = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)
    tool = {"name": "weather", "description": "The weather of a city.", "input_schema": SCHEMA}
    r = client.messages.create(model="m", max_tokens=9, messages=SAID, tools=[tool])
    text, call = r.content
    check("message", r.stop_reason == "tool_use" and text.text == "Let me see." and call.name == "weather" and call.input == {"city": "Paris"})
    again = [*SAID, {"role": "assistant", "content": r.content},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}]
    r = client.messages.create(model="m", max_tokens=9, messages=again, tools=[tool], tool_choice={"type": "none"})
    check("a message to the result", r.stop_reason == "end_turn" and r.content[0].type == "text")
    check("count", client.messages.count_tokens(model="m", messages=again, tools=[tool]).input_tokens > 0)
    with client.messages.stream(model="m", max_tokens=9, messages=SAID, tools=[tool]) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_message()
    check("events of a message", "input_json" in kinds)
    check("stream of a message", final.stop_reason == "tool_use" and final.content[1].input == {"city": "Paris"})


def main():
    with tempfile.TemporaryDirectory() as home:
        model = os.path.join(home, "m")
        os.mkdir(model)
        make_model(model)
        with subprocess.Popen([os.path.join(BUILD, "linnet"), "serve", model, "--port", "0", "--log-format", "none"],
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                found = next((re.search(r"listening on (http://\S+)", line) for line in server.stderr if "listening on" in line), None)
                check("the server did not start", found)
                client = openai.OpenAI(base_url=found[1] + "/v1", api_key="any", max_retries=0)
                chat(client)
                responses(client)
                messages(found[1])
            finally:
                server.terminate()
    print("tools good")


main()
