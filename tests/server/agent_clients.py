#!/usr/bin/env python3
"""Asks a running server through agents and frameworks that people use, as the examples of their READMEs have it.

usage: tests/server/agent_clients.py URL [LONG]     URL: http://127.0.0.1:PORT, of the bundled model
LONG: the same of a server whose model has a context of 32,768 positions, for agents with long system prompts

A client that is not installed is skipped, and named. Exit 1 when something is not as it should be."""
import importlib.util
import os
import sys
import time
import typing
import warnings

import pydantic

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1")
warnings.simplefilter("ignore")
URL = sys.argv[1].rstrip("/")
LONG = sys.argv[2].rstrip("/") if len(sys.argv) > 2 else None
STORY = "Tell me a short story."
ASK = [{"role": "user", "content": STORY}]
BEGIN = "Near the hill lived"


def check(what, good):
    if not good:
        sys.exit(f"agent_clients.py: {what}")


class Person(pydantic.BaseModel):
    """A person."""
    name: str = pydantic.Field(max_length=8)
    kind: typing.Literal["cat", "dog"]


class Place(pydantic.BaseModel):
    """Looks up the weather of a city."""
    city: typing.Literal["Paris", "Rome"]


def is_person(p):
    return isinstance(p, Person) and p.kind in ("cat", "dog") and len(p.name) <= 8


def openai_client(**more):
    import openai
    return openai.OpenAI(base_url=URL + "/v1", api_key="any", max_retries=0, **more)


def ollama():
    import asyncio

    import ollama as o
    c, greedy = o.Client(host=URL), {"temperature": 0, "num_predict": 20}
    check("list", [m.model for m in c.list().models] == ["tiny"] and c.ps().models[0].context_length == 1024)
    check("show", c.show("tiny").modelinfo["general.architecture"] == "qwen3" and "tools" in c.show("tiny").capabilities)
    r = c.chat(model="tiny", messages=ASK, options=greedy)
    check("chat", r.message.content.startswith(BEGIN) and r["message"]["role"] == "assistant" and r.done_reason == "length")
    check("counts", r.eval_count == 20 and r.prompt_eval_count == 14 and r.total_duration >= r.eval_duration > 0)
    check("stream", "".join(x.message.content for x in c.chat(model="tiny", messages=ASK, options=greedy, stream=True)) == r.message.content)
    check("generate", c.generate(model="tiny", prompt=STORY, options=greedy).response == r.message.content)
    check("raw", c.generate(model="tiny", prompt="Once upon", raw=True, options=greedy).response.startswith(" a time"))
    check("load", c.generate(model="tiny", keep_alive=-1).done_reason == "load")
    e = c.embed(model="tiny", input=["a cat", "a dog"])
    check("embed", len(e.embeddings) == 2 and abs(sum(x * x for x in e.embeddings[0]) - 1) < 1e-5)
    check("embeddings", len(c.embeddings(model="tiny", prompt="a cat").embedding) == len(e.embeddings[0]))
    p = Person.model_validate_json(c.chat(model="tiny", messages=ASK, format=Person.model_json_schema(), options={"seed": 5}).message.content)
    check("format", is_person(p))

    def weather(city: str) -> str:
        """Looks up the weather of a city.

        Args:
          city: the city
        """
        return city

    check("tools", c.chat(model="tiny", messages=ASK, tools=[weather], options=greedy).message.role == "assistant")
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]}
    again = [*ASK, call, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
    check("a result", c.chat(model="tiny", messages=again, tools=[weather], options=greedy).eval_count > 0)
    for bad in ({"model": "other"}, {"options": {"mirostat": 2}}):
        try:
            c.chat(**{"model": "tiny", "messages": ASK, **bad})
        except o.ResponseError as x:
            check("error", isinstance(x.error, str) and x.status_code == (404 if "model" in bad else 400))
        else:
            check(f"{bad} was answered", False)

    async def together():
        a = o.AsyncClient(host=URL)
        many = await asyncio.gather(*[a.chat(model="tiny", messages=ASK, options=greedy) for _ in range(6)])
        return {m.message.content for m in many}
    check("the asynchronous client", asyncio.run(together()) == {r.message.content})


def huggingface_hub():
    from huggingface_hub import InferenceClient
    c = InferenceClient(base_url=URL, api_key="any")
    r = c.chat_completion(ASK, model="tiny", max_tokens=8, temperature=0)
    check("chat", r.choices[0].message.content.startswith(BEGIN) and r.usage.completion_tokens == 8)
    text = "".join(x.choices[0].delta.content or "" for x in c.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=8, temperature=0, stream=True))
    check("stream", text == r.choices[0].message.content)
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema(), "strict": True}}
    check("schema", is_person(Person.model_validate_json(c.chat_completion(ASK, model="tiny", response_format=schema, seed=5).choices[0].message.content)))
    tool = {"type": "function", "function": {"name": "place", "parameters": Place.model_json_schema()}}
    call = c.chat_completion(ASK, model="tiny", tools=[tool], tool_choice="required", max_tokens=200, seed=1).choices[0].message.tool_calls[0]
    check("tools", call.function.name == "place")


def litellm():
    import litellm as m
    for model, base in (("openai/tiny", URL + "/v1"), ("hosted_vllm/tiny", URL + "/v1"), ("anthropic/tiny", URL), ("ollama_chat/tiny", URL)):
        r = m.completion(model=model, api_base=base, api_key="any", messages=ASK, max_tokens=8, temperature=0)
        check(model, r.choices[0].message.content.startswith(BEGIN))
        parts = m.completion(model=model, api_base=base, api_key="any", messages=ASK, max_tokens=8, temperature=0, stream=True)
        check(model + ", a stream", "".join(x.choices[0].delta.content or "" for x in parts).startswith(BEGIN))
    tool = {"type": "function", "function": {"name": "place", "parameters": Place.model_json_schema()}}
    r = m.completion(model="openai/tiny", api_base=URL + "/v1", api_key="any", messages=ASK, tools=[tool], tool_choice="required", max_tokens=200, seed=1)
    check("tools", Place.model_validate_json(r.choices[0].message.tool_calls[0].function.arguments))
    r = m.rerank(model="hosted_vllm/tiny", api_base=URL, api_key="any", query="a", documents=["b", "c"], top_n=1)
    check("rerank", len(r.results) == 1)
    e = m.embedding(model="openai/tiny", api_base=URL + "/v1", api_key="any", input=["a cat"])
    check("embedding", len(e.data[0]["embedding"]) > 100)


def instructor():
    import instructor as i
    for mode in (i.Mode.TOOLS, i.Mode.JSON_SCHEMA): # Mode.JSON asks for any object, and hopes for the right one
        c = i.from_openai(openai_client(), mode=mode)
        p = c.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Tom is a cat."}], response_model=Person,
                                      max_retries=0, seed=5, max_tokens=200)
        check(f"{mode}", is_person(p))


def pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel("tiny", provider=OpenAIProvider(base_url=URL + "/v1", api_key="any"))
    check("a text", Agent(model, model_settings={"max_tokens": 8, "temperature": 0}).run_sync(STORY).output.startswith(BEGIN))
    check("an output", is_person(Agent(model, output_type=Person, model_settings={"seed": 5, "max_tokens": 200}).run_sync("Tom is a cat.").output))
    agent = Agent(model, model_settings={"max_tokens": 8, "temperature": 0})

    @agent.tool_plain
    def weather(city: str) -> str:
        """Looks up the weather of a city."""
        return city
    check("a tool that is not called", agent.run_sync(STORY).output)


def agents():
    import agents as a
    import openai
    client = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="any", max_retries=0)
    a.set_tracing_disabled(True)

    @a.function_tool
    def weather(city: typing.Literal["Paris", "Rome"]) -> str:
        """Looks up the weather of a city."""
        called.append(city)
        return "sunny"
    for kind in (a.OpenAIChatCompletionsModel, a.OpenAIResponsesModel):
        called = []
        model, how = kind(model="tiny", openai_client=client), a.ModelSettings(temperature=0, max_tokens=800)
        r = a.Runner.run_sync(a.Agent(name="A", instructions="You tell stories.", model=model, model_settings=how), STORY)
        check(f"{kind.__name__}: a text", len(r.final_output) > 20)
        how.tool_choice = "required"
        r = a.Runner.run_sync(a.Agent(name="A", model=model, model_settings=how, tools=[weather]), "How is the weather?")
        check(f"{kind.__name__}: a call and its result", called and r.final_output is not None)
        how = a.ModelSettings(max_tokens=400, extra_body={"seed": 5})
        r = a.Runner.run_sync(a.Agent(name="A", model=model, model_settings=how, output_type=Person), "Tom is a cat.")
        check(f"{kind.__name__}: an output", is_person(r.final_output))


def langchain_openai():
    from langchain_openai import ChatOpenAI
    m = ChatOpenAI(model="tiny", base_url=URL + "/v1", api_key="any", temperature=0, max_tokens=200)
    for method in ("function_calling", "json_schema"):
        check(method, is_person(m.with_structured_output(Person, method=method).invoke("Tom is a cat.")))
    calls = m.bind_tools([Place], tool_choice="any").invoke("How is the weather?").tool_calls
    check("tools", calls[0]["name"] == "Place" and calls[0]["args"]["city"] in ("Paris", "Rome"))
    parts = list(m.bind_tools([Place], tool_choice="any").stream("How is the weather?"))
    whole = parts[0]
    for p in parts[1:]:
        whole += p
    check("a stream of calls", whole.tool_calls[0]["args"] == calls[0]["args"])


def langchain_anthropic():
    from langchain_anthropic import ChatAnthropic
    m = ChatAnthropic(model="tiny", base_url=URL, api_key="any", max_tokens=200, temperature=0)
    r = m.bind(max_tokens=8).invoke(STORY)
    check("a text", r.content.startswith(BEGIN) and r.usage_metadata["output_tokens"] == 8)
    calls = m.bind_tools([Place], tool_choice="any").invoke("How is the weather?").tool_calls
    check("tools", calls[0]["name"] == "Place" and calls[0]["args"]["city"] in ("Paris", "Rome"))
    check("an output", is_person(m.with_structured_output(Person).invoke("Tom is a cat.")))


def llama_index():
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    m = OpenAILike(model="tiny", api_base=URL + "/v1", api_key="any", is_chat_model=True, is_function_calling_model=True, max_tokens=8,
                   temperature=0, context_window=1024)
    asked = [ChatMessage(role="user", content=STORY)]
    check("chat", m.chat(asked).message.content.startswith(BEGIN))
    check("stream", "".join(x.delta or "" for x in m.stream_chat(asked)).startswith(BEGIN))
    check("complete", m.complete(STORY).text.startswith(BEGIN))

    def weather(city: typing.Literal["Paris", "Rome"]) -> str:
        """Looks up the weather of a city."""
        return city
    m.max_tokens = 200
    r = m.chat_with_tools([FunctionTool.from_defaults(weather)], user_msg="How is the weather?", tool_required=True)
    check("tools", m.get_tool_calls_from_response(r)[0].tool_kwargs["city"] in ("Paris", "Rome"))


def smolagents():
    """Its system prompts have thousands of tokens: the context is the model's own, without a flag."""
    import smolagents as s
    if not LONG:
        print("SKIP: smolagents needs a server with a long context")
        return
    m = s.OpenAIServerModel(model_id="tiny", api_base=LONG + "/v1", api_key="any", max_tokens=60, temperature=0)

    @s.tool
    def weather(city: str) -> str:
        """Looks up the weather of a city.

        Args:
            city: the city
        """
        return "sunny"
    m.last = None
    for kind in (s.CodeAgent, s.ToolCallingAgent):
        agent = kind(tools=[weather], model=m, max_steps=2, verbosity_level=0)
        agent.run("How is the weather in Rome?")
        used = sum(x.token_usage.input_tokens for x in agent.memory.steps if getattr(x, "token_usage", None))
        check(f"{kind.__name__}: the prompt", used > 1024)


def main():
    modules = {"llama_index": "llama_index.llms.openai_like"}
    every = (ollama, huggingface_hub, langchain_openai, langchain_anthropic, llama_index, litellm, pydantic_ai, instructor, agents, smolagents)
    for test in every:
        if sys.argv[3:] and test.__name__ not in sys.argv[3:]:
            continue
        try:
            there = importlib.util.find_spec(modules.get(test.__name__, test.__name__))
        except ModuleNotFoundError:
            there = None
        if not there:
            print(f"SKIP: {test.__name__} is not installed")
            continue
        began = time.monotonic()
        try:
            test()
        except SystemExit as e:
            sys.exit(f"{test.__name__}: {e}")
        print(f"{test.__name__} good, {time.monotonic() - began:.1f} s", flush=True)


main()
