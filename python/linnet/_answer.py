"""Answers, piece by piece."""
import ctypes
import dataclasses
import threading
from typing import Any, Dict, Iterator, List, Optional

from . import _abi
from ._library import address_of, call, exception, lib, sized, text_of

_WAIT = 0.1  # seconds inside the library, after which Python looks for Ctrl-C
_KINDS = {
    _abi.LN_EVENT_TOKEN: "token",
    _abi.LN_EVENT_TEXT: "text",
    _abi.LN_EVENT_REASONING: "reasoning",
    _abi.LN_EVENT_FINISH: "finish",
    _abi.LN_EVENT_TOOL_CALL: "tool_call",
    _abi.LN_EVENT_TOOL_ARGUMENTS: "tool_arguments",
}
_FINISH = {_abi.LN_FINISH_STOP: "stop", _abi.LN_FINISH_LENGTH: "length", _abi.LN_FINISH_CANCELLED: "cancelled"}


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call of a tool that a model asks for; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


@dataclasses.dataclass(frozen=True)
class Event:
    """What happened: `kind` is "token", "text", "reasoning", "tool_arguments", "tool_call" or "finish"."""

    kind: str
    text: str = ""
    id: Optional[int] = None
    logprob: Optional[float] = None
    top: Optional[List[tuple]] = None
    name: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Result:
    """A whole answer. `finish` is "stop", "length" or "cancelled"; `logprobs` has one number for each of `ids`, and `top` the
    likeliest tokens there as (id, logprob), if they were asked for; `metrics` has the times and counts of ln_metrics."""

    text: str
    reasoning: str
    ids: List[int]
    prompt_ids: List[int]
    finish: str
    seed: int
    metrics: Dict[str, Any]
    tool_calls: List[ToolCall]
    cut_tool_call: Optional[ToolCall]
    logprobs: Optional[List[float]]
    top: Optional[List[List[tuple]]]
    prompt_logprobs: Optional[List[float]]


def metrics_of(m) -> Dict[str, Any]:
    """Returns an ln_metrics as a dict."""
    values = {name: getattr(m, name) for name, _ in _abi.ln_metrics._fields_ if name != "reserved"}
    values["cache_miss_reason"] = (values["cache_miss_reason"] or b"").decode()
    return values


def _tops(pointer, n):
    return [(pointer[i].id, pointer[i].logprob) for i in range(n)]


def _tool_call(c) -> ToolCall:
    return ToolCall(c.name.decode(), text_of(address_of(c, "arguments"), c.arguments_bytes))


def _result(r) -> Result:
    n = r.n_ids
    return Result(
        text=text_of(address_of(r, "text"), r.text_bytes),
        reasoning=text_of(address_of(r, "reasoning"), r.reasoning_bytes),
        ids=r.ids[:n] if n else [],
        prompt_ids=r.prompt_ids[:r.n_prompt_ids] if r.n_prompt_ids else [],
        finish=_FINISH[r.finish],
        seed=r.seed,
        metrics=metrics_of(r.metrics),
        tool_calls=[_tool_call(r.tool_calls[i]) for i in range(r.n_tool_calls)],
        cut_tool_call=_tool_call(r.cut_tool_call[0]) if r.cut_tool_call else None,
        logprobs=r.logprobs[:n] if r.logprobs else None,
        top=[_tops(ctypes.cast(ctypes.addressof(r.top[i * r.n_top]), ctypes.POINTER(_abi.ln_top)), r.n_top)
             for i in range(n)] if r.top and r.n_top else None,
        prompt_logprobs=r.prompt_logprobs[:r.n_prompt_ids] if r.prompt_logprobs else None,
    )


class Answer:
    """An answer that is being generated: an iterator over the pieces of its text.

    `events()` iterates over everything that happens instead; `result()` waits for the end and returns all of it;
    `cancel()` ends it after the current step; `close()`, the end of a `with` block and garbage collection drop it."""

    def __init__(self, engine, prompt, request_options):
        self._request = ctypes.c_void_p()
        self._lock = threading.Lock()  # one thread at a time reads a request
        self._finished = False
        self._result: Optional[Result] = None
        call("ln_request_open", ctypes.byref(self._request), engine, ctypes.byref(prompt.struct),
             ctypes.byref(request_options.struct))

    def _next(self) -> Optional[Event]:
        """Returns the next event, or None after the last one."""
        event = sized(_abi.ln_event)
        while True:
            with self._lock:
                if self._finished or not self._request:
                    return None
                call("ln_request_next", self._request, _WAIT, ctypes.byref(event))
                if event.kind == _abi.LN_EVENT_NONE:
                    continue
                text = text_of(address_of(event, "text"), event.bytes)
                if event.kind == _abi.LN_EVENT_FINISH:
                    self._finished = True
                    if event.status != _abi.LN_OK:
                        raise exception(event.status, (event.text or b"").decode("utf-8", "replace"))
                    return Event("finish", name=_FINISH[event.finish])
                token = event.kind == _abi.LN_EVENT_TOKEN
                return Event(
                    _KINDS[event.kind], text,
                    event.id if token else None,
                    event.logprob if token and event.logprob == event.logprob else None,
                    _tops(event.top, event.n_top) if token and event.n_top else None,
                    event.name.decode() if event.name else None)

    def events(self) -> Iterator[Event]:
        """Yields every event, up to the one of the kind "finish", whose `name` is the reason."""
        while True:
            event = self._next()
            if event is None:
                return
            yield event

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            event = self._next()
            if event is None or event.kind == "finish":
                raise StopIteration
            if event.kind == "text":
                return event.text

    def result(self) -> Result:
        """Waits for the end of the answer and returns all of it."""
        if self._result is None:
            while self._next() is not None:
                pass
            out = sized(_abi.ln_result)
            with self._lock:
                call("ln_request_result", self._request, ctypes.byref(out))
            try:
                self._result = _result(out)
            finally:
                lib.ln_result_free(ctypes.byref(out))
        return self._result

    @property
    def text(self) -> str:
        """The whole text of the answer; waits for its end."""
        return self.result().text

    def cancel(self) -> None:
        """Asks the answer to end after the current step. What was generated stays."""
        lib.ln_request_cancel(self._request)

    def close(self) -> None:
        """Drops the answer; it ends if it has not ended."""
        if self._request:
            lib.ln_request_close(ctypes.byref(self._request))

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *raised) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_request", None):
            self.close()
