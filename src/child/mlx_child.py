"""The process behind the backend mlx_lm: loads a model with mlx-lm and answers requests.

Standard input and output are one socket. Each message is a JSON object in one line. A request has the members "id" and "cmd" (load, generate,
classify, inspect); its answer is a sequence of messages with that id and a member "ev", of which the last is end, loaded or error. "cancel" has
the id of the request that it ends, "quit" ends the process, and so does the end of the input, at once, whatever the process is doing. A thread
of its own reads the requests, so that a cancel is seen while a token is computed.

The sampler is that of src/engine/sampler.c, in the same order and with the same random numbers; tests/child compare them.
"""
import base64
import json
import os
import queue
import sys
import threading
import time
import traceback

PROTOCOL = 1
PIECE = 65536  # numbers in one message, which keeps lines below the limit of the reader
OUT = os.dup(1)
os.dup2(2, 1)  # what libraries print goes to standard error, not between the messages
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_HUB_DISABLE_PROGRESS_BARS="1")


class Refused(Exception):
    """A request that cannot be answered; kind is the status of the library that it becomes."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Cancelled(Exception):
    pass


def send(**message):
    data = (json.dumps(message, separators=(",", ":"), allow_nan=False) + "\n").encode()
    try:
        while data:
            data = data[os.write(OUT, data):]
    except OSError:
        os._exit(0)  # the library has closed its end


# ---- requests ----

requests = queue.SimpleQueue()
cancelled = set()


def read_requests():
    rest = b""
    while True:
        try:
            data = os.read(0, 1 << 16)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError as e:
                print(f"a request is not JSON: {e}", file=sys.stderr, flush=True)
                os._exit(1)
            if message["cmd"] == "quit":
                os._exit(0)
            elif message["cmd"] == "cancel":
                cancelled.add(message["id"])
            else:
                requests.put(message)


def check_cancelled(request):
    if request["id"] in cancelled:
        raise Cancelled


# ---- sampling: src/engine/sampler.c and forbid.c ----

def philox(seed, position, ids):
    """Uniform numbers in (0, 1), one for each id: Philox-4x32-10, as ln_gumbel uses it."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0 = np.full(len(ids), position & 0xFFFFFFFF, np.uint64)
    c1 = np.full(len(ids), position >> 32, np.uint64)
    c2, c3 = ids.astype(np.uint64), np.zeros(len(ids), np.uint64)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> shift) ^ c1 ^ np.uint64(k0), b & low, (a >> shift) ^ c3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    bits = (c0 << np.uint64(20)) | (c1 >> np.uint64(12))
    return (bits.astype(np.float64) + 0.5) * 2.0 ** -52


def penalise(logits, how, history, n_generated):
    f = np.float32
    for token, bias in how["bias"]:
        logits[token] += f("-inf") if bias is None else f(bias)
    if how["ignore_eos"]:
        logits[how["ignored"]] = -np.inf
    last, penalty = how["repeat_last"], f(how["repeat_penalty"])
    if how["repeat_penalty"] != 1 and last != 0:
        seen = np.unique(history if last < 0 else history[max(len(history) - last, 0):])
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    if n_generated > 0 and (how["presence_penalty"] or how["frequency_penalty"]):
        seen, counts = np.unique(history[len(history) - n_generated:], return_counts=True)
        logits[seen] -= f(how["presence_penalty"]) + f(how["frequency_penalty"]) * counts.astype(np.float32)


def forbid(logits, how, history, n_generated):
    logits[how["suppress"]] = -np.inf
    if n_generated == 0:
        logits[how["begin_suppress"]] = -np.inf
    if n_generated < how["min_new"]:
        logits[how["ends"] + how["stop_ids"]] = -np.inf
    for word in how["bad_words"]:
        before = len(word) - 1
        if before == 0 and word[0] in how["ends"]:
            continue
        if before <= len(history) and history[len(history) - before:] == word[:-1]:
            logits[word[-1]] = -np.inf
    size = how["no_repeat_ngram"]
    if 0 < size <= len(history):
        end = history[len(history) - size + 1:] if size > 1 else []
        for i in range(len(history) - size + 1):
            if history[i:i + size - 1] == end:
                logits[history[i + size - 1]] = -np.inf


def filtered(logits, how):
    """The ids that top-k, top-p and min-p leave, in this order, of logits whose largest is 0."""
    ids = np.flatnonzero(logits != -np.inf)
    if how["top_p"] >= 1 and how["top_k"] <= 0 and how["min_p"] <= 0:
        return ids
    ids = ids[np.lexsort((ids, -logits[ids]))]
    if how["top_k"] > 0:
        ids = ids[:how["top_k"]]
    weights = np.exp(logits[ids].astype(np.float64))
    total = weights.sum()
    p = weights / total
    keep = np.ones(len(ids), bool)
    if how["top_p"] < 1:
        keep &= np.concatenate(([0.0], np.cumsum(p)[:-1])) < how["top_p"]
    if how["min_p"] > 0:
        keep &= p * total >= how["min_p"]
    keep[0] = True
    return ids[:len(ids) if keep.all() else int(np.argmin(keep))]


def sample(logits, how, history, n_generated):
    """The next token. logits: float32 [V], overwritten. history: ids of prompt and answer, of which the last n_generated are the answer's."""
    penalise(logits, how, history, n_generated)
    forbid(logits, how, history, n_generated)
    if np.isnan(logits).any():
        raise Refused("numeric", "logits: NaN for token %d; the weights or the arithmetic are broken" % int(np.flatnonzero(np.isnan(logits))[0]))
    best = int(np.argmax(logits))
    if logits[best] == -np.inf:
        raise Refused("numeric", "logits: minus infinity for every token; all are excluded")
    temperature = np.float32(how["temperature"])
    if not temperature > 0 or how["top_k"] == 1:
        return best
    if logits[best] == np.inf:
        raise Refused("numeric", "logits: infinite for token %d; the weights or the arithmetic are broken" % best)
    logits = (logits - logits[best]) / temperature
    ids = np.sort(filtered(logits, how))
    noise = -np.log(-np.log(philox(how["seed"], len(history), ids)))
    return int(ids[int(np.argmax(logits[ids].astype(np.float64) + noise))])


# ---- text ----

class Text:
    """Token ids to text, piece by piece. A piece is what the decoded text gains; it waits while it may be a part of a character."""

    def __init__(self, prompt):
        self.ids = list(prompt[-8:])
        self.begin, self.end = 0, len(self.ids)

    def decode(self, begin, end):
        return tokenizer.decode(self.ids[begin:end], skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def add(self, token, last=False):
        if token is not None:
            self.ids.append(token)
        before, now = self.decode(self.begin, self.end), self.decode(self.begin, len(self.ids))
        if now.endswith("\ufffd") and not last and len(self.ids) - self.end < 16:
            return ""
        self.begin, self.end = self.end, len(self.ids)
        return now[len(before):]


class Answer:
    """Splits the text of an answer into reasoning and answer, and ends it before a stop text."""

    def __init__(self, how, prompt, templated):
        self.stops = how["stop"]
        self.held, self.hit, self.newlines = "", -1, ""
        self.start, self.finish = thinking() if templated else (None, None)
        self.reasoning = self.skip = False
        if self.start is not None and self.start in prompt:
            self.reasoning = self.skip = self.finish not in prompt[len(prompt) - prompt[::-1].index(self.start):]

    def turn(self, token):
        """Whether the token is a delimiter of reasoning, which has no text."""
        if token not in (self.start, self.finish) or self.start is None:
            return False
        self.reasoning, self.skip, self.newlines = token == self.start, True, ""
        return True

    def think(self, piece):
        """Newlines beside a delimiter belong to it: those at the end of the reasoning wait for the next piece."""
        text = self.newlines + self.lead(piece)
        kept = text.rstrip("\n")
        self.newlines = text[len(kept):]
        return kept

    def lead(self, piece):
        if self.skip:
            piece = piece.lstrip("\n")
            self.skip = not piece
        return piece

    def say(self, piece, last=False):
        """The part of the answer that can be shown. What may be the beginning of a stop text is held back."""
        text = self.held + self.lead(piece)
        found = [(text.find(stop), i) for i, stop in enumerate(self.stops) if stop and stop in text]
        if found:
            at, self.hit = min(found)
            self.held = ""
            return text[:at]
        n = 0 if last else max((k for stop in self.stops for k in range(1, min(len(stop), len(text) + 1)) if text.endswith(stop[:k])), default=0)
        self.held = text[len(text) - n:]
        return text[:len(text) - n]


def thinking():
    """The ids of the two delimiters of reasoning, where each is one token."""
    pair = []
    for name in ("think_start", "think_end"):
        text = getattr(tokenizer, name, None) if getattr(tokenizer, "has_thinking", False) else None
        ids = tokenizer.encode(text, add_special_tokens=False) if text else []
        pair.append(ids[0] if len(ids) == 1 else None)
    return tuple(pair) if None not in pair else (None, None)


def encode(prompt):
    """The ids of a prompt, and whether a chat template made them."""
    if "ids" in prompt:
        return list(prompt["ids"]), False
    request = prompt.get("request") or {}
    messages = request.get("messages", prompt.get("messages"))
    has_template = bool(getattr(tokenizer, "has_chat_template", tokenizer.chat_template))
    if messages is None:
        if prompt["template"] == "raw" or (prompt["template"] == "auto" and not has_template):
            return list(tokenizer.encode(prompt["text"])), False
        messages = [{"role": "system", "content": prompt["system"]}] if prompt.get("system") is not None else []
        messages.append({"role": "user", "content": prompt["text"]})
    if not has_template:
        raise Refused("unsupported", "the model ships no chat template, and mlx-lm has no built-in template")
    kwargs = dict(request.get("kwargs") or {}, **(prompt.get("args") or {}))
    for name in ("tools", "documents"):
        if request.get(name):
            kwargs[name] = request[name]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **kwargs)
    except Exception as e:
        raise Refused("invalid", "the chat template refuses the conversation: %s" % e)
    return list(tokenizer.encode(text, add_special_tokens=False)), True


# ---- the model ----

model = tokenizer = config = None
ends, vocabulary, context = [], 0, None


def load(request):
    global mx, np, model, tokenizer, config, ends, vocabulary, context
    try:
        import mlx.core as mx
        import numpy as np
        from mlx_lm import load as mlx_load
    except ImportError as e:
        raise Refused("unsupported", "%s: mlx-lm cannot be imported: %s (pip install mlx-lm; on Linux also 'mlx[cpu]')" % (sys.executable, e))
    if mx.default_device() == mx.Device(mx.cpu) and hasattr(mx, "disable_compile"):
        mx.disable_compile()  # on the processor it runs a compiler and leaves its output in the folder for temporary files
    check_adapter(request.get("adapter"))
    try:
        model, tokenizer = mlx_load(request["path"], adapter_path=request.get("adapter"))
    except MemoryError:
        raise
    except Exception as e:
        traceback.print_exc()
        raise Refused("io" if isinstance(e, OSError) else "unsupported", "mlx-lm cannot load the model: %s: %s" % (type(e).__name__, e))
    with open(os.path.join(request["path"], "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    applied = apply_adapter(request.get("adapter"), request.get("adapter_scale", 1))
    text = dict(config, **config.get("text_config", {}))
    vocabulary = int(text.get("vocab_size") or len(tokenizer.get_vocab()))
    context = text.get("max_position_embeddings")
    ends = sorted(set(tokenizer.eos_token_ids) | set(request["eos"]))
    send(id=request["id"], ev="loaded", adapted=applied, **facts(text))


def check_adapter(path):
    if path and not os.path.exists(os.path.join(path, "adapters.safetensors")):
        more = "; adapter_model.safetensors is PEFT's form, which mlx-lm does not read" if os.path.exists(os.path.join(path, "adapter_model.safetensors")) else ""
        raise Refused("io", "%s: expected an adapter of mlx-lm, adapters.safetensors and adapter_config.json%s" % (path, more))


def apply_adapter(path, scale):
    """The number of tensors of the adapter, after a check that the model has taken every one of them."""
    from mlx.utils import tree_flatten
    if not path:
        return 0
    tensors, parameters = mx.load(os.path.join(path, "adapters.safetensors")), dict(tree_flatten(model.parameters()))
    for name, tensor in tensors.items():
        if name not in parameters or parameters[name].shape != tensor.shape:
            raise Refused("invalid", "%s: the tensor %s %s has no place in the model" % (path, name, list(tensor.shape)))
    for _, module in model.named_modules():
        if scale != 1 and hasattr(module, "lora_a") and hasattr(module, "scale"):
            module.scale = module.scale * scale
    return len(tensors)


def facts(text):
    from mlx.utils import tree_flatten
    tensors = tree_flatten(model.parameters())
    quantised = config.get("quantization") or config.get("quantization_config") or {}
    heads, width = int(text.get("num_attention_heads") or 0), int(text.get("hidden_size") or 0)
    template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else ""
    parameters = sum(t.size * (32 // int(quantised.get("bits", 4)) if t.dtype == mx.uint32 else 1) for name, t in tensors if not name.endswith(("scales", "biases")))
    return dict(model_type=str(config.get("model_type", "")), dtype=str(text.get("dtype") or text.get("torch_dtype") or ""), bits=int(quantised.get("bits") or 0),
                group=int(quantised.get("group_size") or 0), layers=int(text.get("num_hidden_layers") or 0), heads=heads, kv_heads=int(text.get("num_key_value_heads") or heads),
                head_dim=int(text.get("head_dim") or (width // heads if heads else 0)), width=width, ffn=int(text.get("intermediate_size") or 0), vocabulary=vocabulary,
                context=int(context or 0), window=int(text.get("sliding_window") or 0), tied=bool(text.get("tie_word_embeddings", False)),
                template=bool(getattr(tokenizer, "has_chat_template", template)), reasoning=thinking()[0] is not None, think_switch="enable_thinking" in template,
                parameters=int(parameters), bytes=int(sum(t.nbytes for _, t in tensors)), ends=ends[:32])


def run(ids, cache):
    """The logits after the ids, float32 [V] of numpy."""
    return np.array(model(mx.array([ids]), cache=cache)[0, -1].astype(mx.float32))


def prefill(request, ids):
    """A cache that holds the ids, and the logits after them."""
    from mlx_lm.models.cache import make_prompt_cache
    cache, done, chunk = make_prompt_cache(model), 0, request.get("chunk") or 256
    while len(ids) - done > 1:
        check_cancelled(request)
        n = min(chunk, len(ids) - 1 - done)
        model(mx.array([ids[done:done + n]]), cache=cache)
        mx.eval([c.state for c in cache])
        done += n
        send(id=request["id"], ev="reading", done=done, total=len(ids))
    check_cancelled(request)
    return cache, run(ids[done:], cache)


def most_tokens(request, n_prompt, templated):
    """How many tokens may be generated: the request's limit, and what the context leaves; the last token needs no position."""
    limit = request.get("context") or context
    if n_prompt == 0:
        raise Refused("usage", "the prompt is empty: it has no tokens")
    if limit and n_prompt > limit:
        raise Refused("invalid", "the prompt has %d tokens, and the context has %d positions" % (n_prompt, limit))
    most = request.get("n_max", 0) if request.get("n_max", 0) >= 0 else (1 << 62 if templated else 256)
    return min(most, limit - n_prompt + 1) if limit else most


def check_ids(ids):
    for i in ids:
        if not 0 <= i < vocabulary:
            raise Refused("invalid", "the token id %d is not in the vocabulary, which has %d" % (i, vocabulary))


def sampling_of(request):
    """The request's sampling with what the model adds: its stop ids, and stop texts that are one special token."""
    how = request["sampling"]
    how["stop_tokens"], special = {}, set(tokenizer.all_special_ids)
    how["ends"] = [e for e in ends if e < vocabulary]
    for i, stop in enumerate(how["stop"]):
        ids = tokenizer.encode(stop, add_special_tokens=False)
        if len(ids) == 1 and ids[0] in special:
            how["stop_tokens"][ids[0]] = i
    how["ignored"] = [e for e in how["ends"] if e not in how["stop_tokens"]]
    check_ids(how["stop_ids"] + how["suppress"] + how["begin_suppress"] + [t for t, _ in how["bias"]])
    return how


def generate(request):
    began = time.monotonic()
    ids, templated = encode(request["prompt"])
    check_ids(ids)
    most, how = most_tokens(request, len(ids), templated), sampling_of(request)
    for at in range(0, len(ids), PIECE):
        send(id=request["id"], ev="prompt", ids=ids[at:at + PIECE])
    result = dict(finish="length", stop_id=-1, stop_text=-1, prompt_tokens=len(ids), generated_tokens=0, reasoning_tokens=0, prefill_seconds=0.0, first_token_seconds=0.0)
    text, answer = Text(ids), Answer(how, ids, templated)
    try:
        if most > 0:
            decode(request, how, ids, most, text, answer, result, began)
    except Cancelled:
        result["finish"] = "cancelled"
    rest = text.add(None, True)
    if answer.hit < 0:
        piece, about = (answer.think(rest), True) if answer.reasoning else (answer.say(rest, True), False)
        if piece:
            send(id=request["id"], ev="text", text=piece, reasoning=about)
    end(request, result, began)


def decode(request, how, ids, most, text, answer, result, began):
    history = list(ids)
    cache, logits = prefill(request, ids)
    result["prefill_seconds"] = time.monotonic() - began
    while True:
        token = sample(logits, how, history, result["generated_tokens"])
        if result["first_token_seconds"] == 0:
            result["first_token_seconds"] = time.monotonic() - began
        if token in how["stop_tokens"] and not answer.reasoning or token in how["stop_ids"] or token in how["ends"]:
            stop = how["stop_tokens"].get(token, -1)
            result.update(finish="stop", stop_id=token, stop_text=stop)
            return
        history.append(token)
        result["generated_tokens"] += 1
        result["reasoning_tokens"] += answer.reasoning
        about = answer.reasoning
        piece = text.add(token)
        if answer.turn(token):
            piece = ""
        else:
            piece = answer.think(piece) if about else answer.say(piece)
        send(id=request["id"], ev="token", token=token, text=piece, reasoning=about)
        if answer.hit >= 0:
            result.update(finish="stop", stop_text=answer.hit)
            return
        if result["generated_tokens"] >= most:
            return
        check_cancelled(request)
        logits = run([token], cache)


def end(request, result, began):
    total = time.monotonic() - began
    result.setdefault("generated_tokens", 0)
    send(id=request["id"], ev="end", total_seconds=total, active_bytes=int(mx.get_active_memory()), peak_bytes=int(mx.get_peak_memory()), **result)


# ---- classifying, inspecting ----

def log_softmax(logits):
    logits = logits.astype(np.float64)
    top = logits.max()
    return logits - top - np.log(np.exp(logits - top).sum())


def send_array(request, ev, values, **more):
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    for at in range(0, len(flat), PIECE):
        send(id=request["id"], ev=ev, at=at, total=len(flat), data=base64.b64encode(flat[at:at + PIECE].astype("<f4").tobytes()).decode(), **more)


def classify_one(request, index, prompt, labels, how):
    ids, _ = encode(prompt)
    check_ids(ids)
    most_tokens(request, len(ids) + max([len(label) for label in labels] or [1]) - 1, False)
    cache, logits = prefill(request, ids)
    logp = log_softmax(logits)
    if request["logits"]:
        send_array(request, "logits", logits, index=index)
    if not labels:
        token = sample(logits.copy(), how, ids, 0)
        send(id=request["id"], ev="class", index=index, token=token, text=Text(ids).add(token, True), logprob=float(logp[token]))
        return len(ids)
    scores = []
    for label in labels:
        check_cancelled(request)
        score = float(logp[label[0]])
        if len(label) > 1:
            rows = np.array(model(mx.array([ids + label[:-1]]))[0, len(ids):].astype(mx.float32))
            score += float(sum(log_softmax(row)[token] for row, token in zip(rows, label[1:])))
        scores.append(score / len(label) if request["mean"] else score)
    send(id=request["id"], ev="class", index=index, scores=scores)
    return len(ids)


def classify(request):
    began, read = time.monotonic(), 0
    labels = [list(tokenizer.encode(label, add_special_tokens=False)) for label in request["labels"]]
    for label, ids in zip(request["labels"], labels):
        if not ids:
            raise Refused("usage", "the label '%s' has no tokens" % label)
    how = sampling_of(request)
    for index, prompt in enumerate(request["prompts"]):
        try:
            check_cancelled(request)
            read += classify_one(request, index, prompt, labels, how)
        except Refused as e:
            send(id=request["id"], ev="class", index=index, error=str(e), kind=e.kind)
        except Cancelled:
            raise Refused("cancelled", "stopped by ln_backend_cancel")
    end(request, dict(finish="stop", stop_id=-1, stop_text=-1, prompt_tokens=read, generated_tokens=len(request["prompts"]) if not labels else 0, reasoning_tokens=0,
                      prefill_seconds=time.monotonic() - began, first_token_seconds=0.0), began)


def inspect(request):
    began, ids = time.monotonic(), request["ids"]
    check_ids(ids)
    most_tokens(request, len(ids), False)
    try:
        cache, _ = prefill(request, ids)
    except Cancelled:
        raise Refused("cancelled", "stopped by ln_backend_cancel")
    for layer, one in enumerate(cache):
        keys, most = getattr(one, "keys", None), getattr(one, "max_size", len(ids))
        rows = 0 if keys is None or keys.ndim != 4 else min(keys.shape[2], one.offset, most)
        if rows != len(ids):
            raise Refused("unsupported", "layer %d: mlx-lm keeps %d of the keys of %d tokens" % (layer, rows, len(ids)))
        send_array(request, "keys", np.array(keys[0, :, :rows].astype(mx.float32)), layer=layer, heads=keys.shape[1], rows=rows, width=keys.shape[3])
    end(request, dict(finish="stop", stop_id=-1, stop_text=-1, prompt_tokens=len(ids), reasoning_tokens=0, prefill_seconds=time.monotonic() - began,
                      first_token_seconds=0.0), began)


# ---- the loop ----

def answer_request(request):
    try:
        {"load": load, "generate": generate, "classify": classify, "inspect": inspect}[request["cmd"]](request)
    except Refused as e:
        send(id=request["id"], ev="error", kind=e.kind, message=str(e))
    except MemoryError:
        send(id=request["id"], ev="error", kind="memory", message="Python is out of memory")
    except BaseException as e:
        traceback.print_exc()
        send(id=request["id"], ev="error", kind="internal", message="%s: %s" % (type(e).__name__, e))
    cancelled.discard(request["id"])


def version(package):
    from importlib import metadata
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main():
    send(id=0, ev="hello", protocol=PROTOCOL, python="%d.%d.%d" % sys.version_info[:3], executable=sys.executable, mlx_lm=version("mlx-lm"), mlx=version("mlx"))
    threading.Thread(target=read_requests, daemon=True).start()
    while True:
        answer_request(requests.get())


main()
