"""Keyword arguments as the structs of the library."""
import ctypes
import json
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _abi
from ._library import UsageError, default

NUMERICS = {None: 0, "exact": _abi.LN_EXACT, "fast": _abi.LN_FAST}
DEVICES = {"auto": _abi.LN_DEVICE_AUTO, "ref": _abi.LN_DEVICE_REF, "cpu": _abi.LN_DEVICE_CPU, "cuda": _abi.LN_DEVICE_CUDA,
           "mlx": _abi.LN_DEVICE_MLX}
TEMPLATES = {"auto": _abi.LN_TEMPLATE_AUTO, "raw": _abi.LN_TEMPLATE_RAW, "chat": _abi.LN_TEMPLATE_CHAT}
TOOL_CHOICES = {"auto": _abi.LN_TOOLS_AUTO, "required": _abi.LN_TOOLS_REQUIRED, "none": _abi.LN_TOOLS_OFF}


def one_of(name: str, table: Mapping[Any, int], value: Any) -> int:
    """Returns the number of a word, or raises UsageError with all words that are known."""
    if value not in table:
        words = ", ".join(str(k) for k in table)
        raise UsageError(f"{name}: expected one of {words}, found {value!r}")
    return table[value]


def path_bytes(path: Union[str, os.PathLike]) -> bytes:
    """Returns a path as the library takes it."""
    return os.fsencode(os.fspath(path))


class Held:
    """A struct and the objects that it points to."""

    def __init__(self, struct):
        self.struct = struct
        self._kept: List[Any] = []

    def keep(self, value):
        """Keeps an object alive as long as the struct, and returns it."""
        self._kept.append(value)
        return value

    def texts(self, values: Iterable[str]):
        """Returns an array of texts and its length."""
        encoded = [v.encode() for v in values]
        return self.keep((ctypes.c_char_p * max(len(encoded), 1))(*encoded)), len(encoded)


def ids_array(ids):
    """Returns token ids as a C array: of a buffer of 32-bit integers (NumPy, array) without a copy of each element, of any
    other sequence by its elements."""
    try:
        view = memoryview(ids)
    except TypeError:
        values = [int(i) for i in ids]
        return (ctypes.c_int32 * max(len(values), 1))(*values), len(values)
    if view.itemsize != 4 or view.format not in ("i", "l", "<i") or view.ndim != 1:
        raise UsageError(f"ids: expected one dimension of 32-bit signed integers, found format {view.format!r} with "
                         f"{view.ndim} dimensions. Convert it: ids.astype('int32')")
    data = view.tobytes()
    return (ctypes.c_int32 * max(len(view), 1)).from_buffer_copy(data or b"\0\0\0\0"), len(view)


def options(values: Mapping[str, Any]) -> Held:
    """Returns an ln_options of keyword arguments; None is the default of each."""
    held = Held(default(_abi.ln_options))
    for name, value in values.items():
        if value is None:
            continue
        if name == "numerics":
            value = one_of(name, NUMERICS, value)
        elif name == "device":
            value = one_of(name, DEVICES, value)
        elif name == "chat_template":
            value = path_bytes(value)
        setattr(held.struct, name, value)
    return held


def adapter_parts(held: Held, parts):
    """Returns an array of ln_adapter_part and its length: of a directory, of (directory, factor), or of a list of them."""
    if isinstance(parts, (str, os.PathLike)) or (isinstance(parts, tuple) and len(parts) == 2 and
                                                 isinstance(parts[1], (int, float))):
        parts = [parts]
    pairs = [p if isinstance(p, tuple) else (p, 1.0) for p in parts]
    array = held.keep((_abi.ln_adapter_part * len(pairs))())
    for item, (directory, scale) in zip(array, pairs):
        item.dir, item.scale = path_bytes(directory), scale
    return array, len(pairs)


def grammar_of(schema, grammar) -> Optional[bytes]:
    """Returns the grammar of an answer as JSON, or None: it is free."""
    if schema is not None and grammar is not None:
        raise UsageError("schema, grammar: expected one of them, found both")
    if schema is not None:
        return json.dumps({"schema": schema}).encode()
    if isinstance(grammar, str):
        return json.dumps({"grammar": grammar}).encode()
    return None if grammar is None else json.dumps(grammar).encode()


PLAIN_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last", "presence_penalty",
                  "frequency_penalty", "ignore_eos", "no_repeat_ngram", "min_new")


def sampling(held: Held, values: Dict[str, Any]) -> None:
    """Sets the members of an ln_sampling that keyword arguments name. `values` is emptied of what is known; the rest is
    an error."""
    s = held.struct
    for name in PLAIN_SAMPLING:
        value = values.pop(name, None)
        if value is not None:
            setattr(s, name, value)
    for name, member, flag in (("seed", "seed", "has_seed"), ("think_budget", "think_budget", "has_think_budget")):
        value = values.pop(name, None)
        if value is not None:
            setattr(s, member, value)
            setattr(s, flag, True)
    most = values.pop("max_tokens", None)
    if most is not None:
        s.n_max = most
    stop: Union[str, Sequence[str], None] = values.pop("stop", None)
    if stop is not None:
        s.stop, s.n_stop = held.texts([stop] if isinstance(stop, str) else stop)
    stop_ids = values.pop("stop_ids", None)
    if stop_ids is not None:
        array, s.n_stop_ids = ids_array(stop_ids)
        s.stop_ids = held.keep(array)
    bias = values.pop("logit_bias", None)
    if bias:
        array = held.keep((_abi.ln_logit_bias * len(bias))())
        for item, (token, value) in zip(array, bias.items()):
            item.id, item.bias = int(token), value
        s.bias, s.n_bias = array, len(bias)
    text = grammar_of(values.pop("schema", None), values.pop("grammar", None))
    if text is not None:
        s.grammar, s.grammar_bytes = held.keep(text), len(text)
    choice = values.pop("tool_choice", None)
    if choice is not None:
        s.tool_choice = one_of("tool_choice", TOOL_CHOICES, choice)
    names = values.pop("tool_names", None)
    if names is not None:
        s.tool_names, s.n_tool_names = held.texts(names)
    s.single_tool_call = bool(values.pop("single_tool_call", False))
    if values:
        raise TypeError(f"unexpected arguments: {', '.join(sorted(values))}")


def prompt(value, *, system=None, template="auto", template_args=None, tools=None, documents=None,
           continue_last=False) -> Held:
    """Returns an ln_prompt: of a text, of token ids, or of a list of messages, which are dicts as in OpenAI's API."""
    held = Held(default(_abi.ln_prompt))
    p = held.struct
    p.tmpl = one_of("template", TEMPLATES, template)
    p.continue_last = continue_last
    if isinstance(value, str):
        data = held.keep(value.encode())
        p.text, p.text_bytes = data, len(data)
        if system is not None:
            data = held.keep(system.encode())
            p.system, p.system_bytes = data, len(data)
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        request = {"messages": list(value)}
        if system is not None:
            request["messages"].insert(0, {"role": "system", "content": system})
        if tools:
            request["tools"] = list(tools)
        if documents:
            request["documents"] = list(documents)
        data = held.keep(json.dumps(request).encode())
        p.request, p.request_bytes = data, len(data)
    else:
        if system is not None:
            raise UsageError("system: expected a text or messages as prompt, found token ids")
        array, p.n_ids = ids_array(value)
        p.ids = held.keep(array)
    if tools and not p.request:
        raise UsageError("tools: expected messages as prompt; use chat()")
    if template_args:
        data = held.keep(json.dumps(template_args).encode())
        p.template_args, p.template_args_bytes = data, len(data)
    return held
