"""Models: open, generate, score, classify, embed."""
import array
import ctypes
import dataclasses
import os
import warnings
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._answer import Answer
from ._library import Callback, UsageError, address_of, call, default, exception, lib, sized, text_of
from ._options import Held, adapter_parts, ids_array, one_of, options, path_bytes, prompt, sampling

Ids = Sequence[int]
Text = Union[str, Ids]
Messages = Sequence[Mapping[str, Any]]

POOLINGS = {"auto": 0, "last": 1, "mean": 2, "cls": 3, "max": 4, "mean_sqrt_len": 5, "weighted_mean": 6}
_open_engines: "weakref.WeakSet[Model]" = weakref.WeakSet()


def _warn_of_fork() -> None:
    if any(m._engine for m in _open_engines):
        warnings.warn("a process with an open linnet model forks: the child uses it with one thread, and has to open another "
                      "one if an answer is being generated now. multiprocessing.set_start_method('spawn') avoids the fork",
                      RuntimeWarning, stacklevel=3)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_warn_of_fork)


@dataclasses.dataclass(frozen=True)
class Class:
    """The class of one prompt: `label` is the likeliest label, with the scores and probabilities of all; without labels,
    `token`, `text` and `logprob` are of the likeliest next token. `error` says why a prompt failed, else it is None."""

    label: Optional[str]
    scores: Dict[str, float]
    probabilities: Dict[str, float]
    token: Optional[int]
    text: Optional[str]
    logprob: Optional[float]
    error: Optional[Exception]


class Adapter:
    """A LoRA adapter that an engine has loaded. Answers name it; `close()` frees its place."""

    def __init__(self, engine, parts):
        self._handle = ctypes.c_void_p()
        held = Held(None)
        items, n = adapter_parts(held, parts)
        call("ln_adapter_open", ctypes.byref(self._handle), engine, items, n)

    def set_scale(self, scale: float) -> None:
        """Sets the factor on all that the adapter adds."""
        call("ln_adapter_set_scale", self._handle, scale)

    def close(self) -> None:
        """Closes the adapter. Answers that use it go on."""
        if self._handle:
            lib.ln_adapter_close(ctypes.byref(self._handle))

    def __enter__(self) -> "Adapter":
        return self

    def __exit__(self, *raised) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()


class Model:
    """A model directory, GGUF file or cache id, opened, with the memory that its answers need.

    `model` is a path, a cache id `org/name[@rev]` or "tiny", the bundled model. The keyword arguments are the members of
    ln_options in linnet.h: `numerics` ("exact", "fast"), `device` ("auto", "cpu", "cuda", "mlx", "ref"), `quantize_bits` (4, 8),
    `n_threads`, `n_ctx` (positions of a context), `n_parallel` (answers at once), `memory_bytes` (limit of everything the
    process holds), `kv_bytes`, `n_adapters`, `adapter_rank`, `chat_template` and so on. `adapter` is a LoRA directory, a pair
    (directory, factor) or a list of them, whose sum every answer uses. All memory is taken here, or OutOfMemoryError says
    what would fit. Any number of threads may use a model."""

    def __init__(self, model: Union[str, os.PathLike] = "tiny", *, adapter=None, **opts: Any):
        known = {name for name, _ in _abi.ln_options._fields_} - {"size", "progress", "adapter", "n_adapter_parts", "keep_full_kv"}
        unknown = sorted(set(opts) - known)
        if unknown:
            raise TypeError(f"unexpected arguments: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        self._model, self._engine = ctypes.c_void_p(), ctypes.c_void_p()
        held = options({"n_logits": 64, **opts})
        if adapter is not None:
            held.struct.adapter, held.struct.n_adapter_parts = adapter_parts(held, adapter)
        try:
            call("ln_model_open", ctypes.byref(self._model), path_bytes(model), ctypes.byref(held.struct))
            call("ln_engine_open", ctypes.byref(self._engine), self._model, ctypes.byref(held.struct))
            call("ln_engine_start", self._engine)  # its thread runs the steps, so that no Python thread has to
        except BaseException:
            self.close()
            raise
        self._answers: "weakref.WeakSet[Answer]" = weakref.WeakSet()
        _open_engines.add(self)

    # ---- facts ----

    @property
    def info(self) -> Dict[str, Any]:
        """The facts of the model: the members of ln_info."""
        out = sized(_abi.ln_info)
        call("ln_model_info", self._model, ctypes.byref(out))
        facts = {}
        for name, _ in _abi.ln_info._fields_:
            value = getattr(out, name)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            facts[name] = value
        facts["eos_ids"] = list(out.eos_ids[:out.n_eos])
        facts["numerics"] = {_abi.LN_EXACT: "exact", _abi.LN_FAST: "fast"}[out.numerics]
        for name in ("size", "n_eos"):
            del facts[name]
        return facts

    @property
    def stats(self) -> Dict[str, Any]:
        """The state of the engine: the members of ln_engine_stats."""
        out = sized(_abi.ln_engine_stats)
        call("ln_engine_get_stats", self._engine, ctypes.byref(out))
        return {name: getattr(out, name) for name, _ in out._fields_ if name != "size"}

    # ---- tokens ----

    def _tokenizer(self):
        pointer = lib.ln_model_tokenizer(self._model)
        if not pointer:
            error = lib.ln_last_error()[0]
            raise exception(error.code, error.message.decode())
        return pointer

    def tokenize(self, text: str, *, add_special: bool = True) -> List[int]:
        """Returns the ids of a text, with the tokens that the tokenizer adds (bos) unless `add_special` is False."""
        data, n = text.encode(), ctypes.c_size_t()
        tok = self._tokenizer()
        call("ln_tokenize", tok, data, len(data), add_special, None, 0, ctypes.byref(n))
        ids = (ctypes.c_int32 * max(n.value, 1))()
        call("ln_tokenize", tok, data, len(data), add_special, ids, n.value, ctypes.byref(n))
        return ids[:n.value]

    def detokenize(self, ids: Ids, *, skip_special: bool = True) -> str:
        """Returns the text of ids."""
        array_, count = ids_array(ids)
        n = ctypes.c_size_t()
        tok = self._tokenizer()
        call("ln_detokenize", tok, array_, count, skip_special, None, 0, ctypes.byref(n))
        text = ctypes.create_string_buffer(max(n.value, 1))
        call("ln_detokenize", tok, array_, count, skip_special, text, n.value, ctypes.byref(n))
        return text.raw[:n.value].decode("utf-8", "replace")

    def prompt_ids(self, value: Union[Text, Messages], **how: Any) -> List[int]:
        """Returns the ids that `generate` or `chat` would read for a prompt: through the chat template, if one is used."""
        held = prompt(value, **how)
        n = ctypes.c_size_t()
        call("ln_prompt_ids", self._model, ctypes.byref(held.struct), None, 0, ctypes.byref(n))
        ids = (ctypes.c_int32 * max(n.value, 1))()
        call("ln_prompt_ids", self._model, ctypes.byref(held.struct), ids, n.value, ctypes.byref(n))
        return ids[:n.value]

    # ---- generating ----

    def generate(self, prompt_: Text, *, system: Optional[str] = None, template: str = "auto",
                 template_args: Optional[Mapping[str, Any]] = None, adapter: Optional[Adapter] = None,
                 n_logprobs: int = -1, prompt_logprobs: bool = False, no_cache: bool = False, **sampling_: Any) -> Answer:
        """Begins an answer after a prompt, a text or token ids, and returns it at once; iterate over it for the text.

        A text goes through the chat template if the model ships one (`template`: "auto", "raw", "chat"). Sampling is the
        model's own unless arguments say otherwise: `temperature` (0: greedy), `top_k`, `top_p`, `min_p`, `repeat_penalty`,
        `presence_penalty`, `frequency_penalty`, `seed`, `max_tokens`, `stop` (a text or several), `stop_ids`, `logit_bias`
        ({id: value}), `ignore_eos`, `think_budget`; `schema` (a JSON schema that the answer meets) or `grammar` (GBNF or
        Lark's EBNF as a text, or an expression of docs/structured.md). `n_logprobs` 0 .. 20 asks for log-probabilities."""
        held = prompt(prompt_, system=system, template=template, template_args=template_args)
        return self._begin(held, adapter, n_logprobs, prompt_logprobs, no_cache, sampling_)

    def chat(self, messages: Messages, *, tools: Optional[Iterable[Mapping[str, Any]]] = None,
             tool_choice: Optional[str] = None, template_args: Optional[Mapping[str, Any]] = None,
             continue_last: bool = False, adapter: Optional[Adapter] = None, n_logprobs: int = -1,
             no_cache: bool = False, **sampling_: Any) -> Answer:
        """Begins the answer to a conversation: dicts with `role` and `content`, as in OpenAI's API.

        `tools` are definitions of functions, as there; `tool_choice` is "auto" (with tools), "required" or "none", and calls
        are in Result.tool_calls. `template_args` are variables of the template ({"enable_thinking": False}). With
        `continue_last` the answer goes on after the last message, of the assistant. The rest is as in `generate`."""
        tools = list(tools) if tools else None
        held = prompt(list(messages), template="chat", template_args=template_args, tools=tools, continue_last=continue_last)
        if tools or tool_choice:
            sampling_["tool_choice"] = tool_choice or "auto"
        return self._begin(held, adapter, n_logprobs, False, no_cache, sampling_)

    def _begin(self, held, adapter, n_logprobs, prompt_logprobs, no_cache, sampling_) -> Answer:
        how = Held(sized(_abi.ln_sampling))
        call("ln_sampling_default", self._model, ctypes.byref(how.struct))
        sampling(how, dict(sampling_))
        if adapter is not None:
            held.struct.adapter = adapter._handle
        request = Held(default(_abi.ln_request_options))
        request.struct.sampling = ctypes.pointer(how.struct)
        request.struct.n_logprobs = n_logprobs
        request.struct.prompt_logprobs, request.struct.no_cache = prompt_logprobs, no_cache
        answer = Answer(self._engine, held, request)
        self._answers.add(answer)
        return answer

    # ---- scoring, classifying, embedding ----

    def score(self, text: Text) -> memoryview:
        """Returns the natural log-probability of each token given those before it, f64 [tokens], NaN for the first. A text is
        taken as it is, without a template. numpy.asarray(...) takes it without a copy."""
        return self.score_top(text, 0)[0]

    def score_top(self, text: Text, n_top: int) -> Tuple[memoryview, List[List[tuple]]]:
        """Returns what `score` does, and for each token the `n_top` likeliest tokens after it as (id, log-probability), in
        descending order."""
        ids, n = ids_array(self.tokenize(text) if isinstance(text, str) else text)
        values, tops = array.array("d", bytes(8 * n)), []
        state = Callback()

        def take(t, logprob, top, n_found):
            values[t] = logprob
            tops.append([(top[i].id, top[i].logprob) for i in range(n_found)])

        def on_row(_user, t, logprob, top, n_found, _logits, _n_vocab, _error):
            return state.run(take, t, logprob, top, n_found)

        try:
            call("ln_score", self._engine, ids, n, n_top, _abi.ln_score_fn(on_row), None, None)
        except Exception:
            state.end()
            raise
        state.end()
        return memoryview(values), tops

    def classify(self, prompts: Sequence[Text], labels: Sequence[str] = (), *, normalize: str = "sum",
                 template: str = "auto") -> List[Class]:
        """Returns the class of each prompt: the label whose tokens are likeliest after it (`normalize`: "sum" of their
        log-probabilities, or "tokens" for the mean), or without labels its next token. A prompt that fails has an `error`
        and does not stop the others."""
        how = Held(default(_abi.ln_classify_options))
        labels = list(labels)
        how.struct.labels, how.struct.n_labels = how.texts(labels)
        how.struct.normalize = one_of("normalize", {"sum": 0, "tokens": 1}, normalize)
        found: List[Optional[Class]] = [None] * len(prompts)

        def on_class(c):
            if c.status != _abi.LN_OK:
                found[c.index] = Class(None, {}, {}, None, None, None, exception(c.status, c.error.decode("utf-8", "replace")))
            elif labels:
                scores, shares = c.scores[:len(labels)], c.probabilities[:len(labels)]
                found[c.index] = Class(labels[c.label], dict(zip(labels, scores)), dict(zip(labels, shares)), None, None, None, None)
            else:
                text = text_of(address_of(c, "text"), c.text_bytes)
                found[c.index] = Class(None, {}, {}, c.token, text, c.logprob, None)

        self._each("ln_classify", _abi.ln_class_fn, prompts, how.struct, on_class, template)
        return found

    def embed(self, texts: Sequence[Text], *, pooling: str = "auto", dimensions: int = 0, prompt_name: Optional[str] = None,
              normalize: Optional[bool] = None) -> memoryview:
        """Returns the vectors of texts, f32 [texts, values]; numpy.asarray(...) takes them without a copy. `pooling`,
        `dimensions`, `prompt_name` and `normalize` are those of ln_embed_options. A text that fails raises its error."""
        how = Held(default(_abi.ln_embed_options))
        how.struct.pooling = one_of("pooling", POOLINGS, pooling)
        how.struct.dimensions = dimensions
        if prompt_name is not None:
            how.struct.prompt_name = how.keep(prompt_name.encode())
        how.struct.normalize = one_of("normalize", {None: 0, True: 1, False: 2}, normalize)
        vectors: List[Optional[bytes]] = [None] * len(texts)

        def on_vector(e):
            if e.status != _abi.LN_OK:
                raise exception(e.status, f"texts[{e.index}]: " + e.error.decode("utf-8", "replace"))
            vectors[e.index] = ctypes.string_at(e.values, 4 * e.n_values)

        self._each("ln_embed", _abi.ln_embed_fn, texts, how.struct, on_vector, "auto")
        if not vectors:
            return memoryview(b"").cast("f", (0,))
        return memoryview(b"".join(vectors)).cast("B").cast("f", (len(vectors), len(vectors[0]) // 4))

    def _each(self, function, kind, prompts, how, on_result, template):
        """Calls ln_classify or ln_embed and hands each result to a function, whose exception ends the call."""
        if isinstance(prompts, (str, bytes)):
            raise UsageError("prompts: expected a list, found one text")
        held = [prompt(p, template=template) for p in prompts]
        items = (_abi.ln_prompt * max(len(held), 1))(*[h.struct for h in held])
        state = Callback()

        def on_item(_user, pointer, _error):
            return state.run(on_result, pointer[0])

        try:
            call(function, self._engine, items, len(held), ctypes.byref(how), kind(on_item), None, None)
        except Exception:
            state.end()
            raise
        state.end()

    # ---- adapters and the end ----

    def load_adapter(self, parts) -> Adapter:
        """Loads a LoRA adapter for answers that name it: a directory, a pair (directory, factor) or a list of them. The model
        needs `n_adapters` for it."""
        return Adapter(self._engine, parts)

    def cancel(self) -> None:
        """Ends the answers that run or wait, after the current step. Later ones are not affected."""
        for answer in list(self._answers):
            answer.cancel()

    def close(self) -> None:
        """Ends the answers and gives the memory back. Closing twice does nothing."""
        lib.ln_engine_close(ctypes.byref(self._engine))
        lib.ln_model_close(ctypes.byref(self._model))

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *raised) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_engine", None) is not None:
            self.close()
