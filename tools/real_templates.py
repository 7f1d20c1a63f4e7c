#!/usr/bin/env python3
"""Renders conversations with chat templates of real models, by Jinja2, configured as in transformers, and by linnet.

usage: tools/real_templates.py LINNET FILE.jinja...      for example the folder models/templates of llama.cpp's source

Needs python3-jinja2 (Debian) or jinja2 >= 3.1 from PyPI. Each template gets every conversation, with and without tools, reasoning and a prompt for the
answer. The results agree when both texts are equal, or when both fail; of raise_exception the message is compared, too."""
import json
import os
import subprocess
import sys

import jinja_programs
from jinja_programs import NOW

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather \u2014 today", "parameters": {
    "type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "where"}, "days": {"type": "integer", "default": 1, "enum": [1, 3]},
        "more": {"type": "array", "items": {"type": "string"}}, "unit": {"type": ["string", "null"]}}}}},
         {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}}}]


def user(text):
    return {"role": "user", "content": text}


def answer(text, **more):
    return {"role": "assistant", "content": text} | more


def call(name, arguments, number=0):
    return {"type": "function", "id": "call%05d" % number, "function": {"name": name, "arguments": arguments}}


def result(text, number=0, name="weather"):
    return {"role": "tool", "content": text, "tool_call_id": "call%05d" % number, "name": name}


SYSTEM = {"role": "system", "content": "  Be brief. "}
ROME = {"city": "Rome \u00e9", "days": 3}
CONVERSATIONS = {
    "user": [user("Hi \u00e9 <b> & 'x' \"y\"\n")],
    "system": [SYSTEM, user("Hi")],
    "turns": [user("Hi"), answer(" Hello.\n"), user("more?")],
    "system-turns": [SYSTEM, user("Hi"), answer("Hello."), user("more?"), answer("no"), user("so")],
    "ends-in-answer": [user("Hi"), answer("Hello")],
    "call": [user("Rome?"), answer("", tool_calls=[call("weather", ROME)]), result("{\"t\": 20}"), user("and?")],
    "call-without-text": [user("Rome?"), answer(None, tool_calls=[call("weather", ROME)]), result("sunny")],
    "call-of-a-text": [user("Rome?"), answer("I look.", tool_calls=[call("weather", json.dumps(ROME))]), result("sunny"), answer("It is sunny.")],
    "two-calls": [SYSTEM, user("?"), answer("", tool_calls=[call("weather", ROME), call("stop", {}, 1)]), result("1"), result("2", 1, "stop"), user("so?")],
    "reasoning": [user("Hi"), answer("4", reasoning_content="2 + 2 is 4"), user("more?")],
    "thought": [user("Hi"), answer("<think>\n2 + 2\n</think>\n\n4"), user("more?")],
    "reasoned-call": [user("Rome?"), answer("", reasoning_content="I must look", tool_calls=[call("weather", ROME)]), result("20")],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": " there"}]}],
    "two-users": [user("a"), user("b")],
    "answer-first": [answer("Hello"), user("Hi")],
    "system-late": [user("Hi"), answer("Hello"), SYSTEM, user("so")],
    "developer": [{"role": "developer", "content": "Be brief"}, user("Hi")],
    "empty": [],
}
WAYS = [{}, {"add_generation_prompt": True}, {"tools": TOOLS, "add_generation_prompt": True}, {"tools": TOOLS},
        {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True, "thinking": True},
        {"add_generation_prompt": True, "reasoning_effort": "high", "tools": None},
        {"add_generation_prompt": True, "documents": [{"title": "a", "text": "b"}]}]


def lines_of(source):
    options = {"trim_blocks": True, "lstrip_blocks": True}
    env = jinja_programs.environment(options)
    env.filters["from_json"] = json.loads   # linnet has it, since some templates ask for it
    for name, messages in CONVERSATIONS.items():
        for way in WAYS:
            context = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": False} | way
            line = {"name": name, "template": source, "context": context, **options, "now": NOW}
            try:
                line["expected"] = env.from_string(source).render(**context)
            except Exception as e:  # any exception counts as a failure
                line["error"] = str(e) if type(e).__name__ == "TemplateError" else ""
            yield line


def check(linnet, path):
    with open(path, encoding="utf-8") as f:
        lines = list(lines_of(f.read()))
    text = "".join(json.dumps({k: v for k, v in line.items() if k not in ("name", "expected", "error")}) + "\n" for line in lines)
    out = subprocess.run([linnet, "template", "--jsonl"], input=text.encode(), stdout=subprocess.PIPE).stdout.decode()
    answers = [json.loads(x) for x in out.split("\n") if x]
    assert len(answers) == len(lines), "%d answers to %d conversations" % (len(answers), len(lines))
    bad = 0
    for line, got in zip(lines, answers):
        same = line.get("expected") == got.get("text") and ("error" in line) == ("error" in got) and line.get("error", "") in got.get("error", "")
        if not same:
            bad += 1
            print("%s: %s: expected %r, found %r" % (os.path.basename(path), line["name"], line.get("expected", "an error: " + line.get("error", "")), got))
    print("%s: %d conversations, %d of them rejected by both, %d differ" % (os.path.basename(path), len(lines), sum("error" in x for x in lines), bad), flush=True)
    return bad == 0


def main(argv):
    if len(argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    good = [check(argv[1], f) for f in argv[2:]]
    print("%d templates, %d of them differ" % (len(good), len(good) - sum(good)))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
