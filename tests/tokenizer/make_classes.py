#!/usr/bin/env python3
"""Writes classes.jsonl: directories that name classes of tokenizers, with what transformers' AutoTokenizer makes of them.

usage: make_classes.py > classes.jsonl        (needs transformers and tokenizers; tests need the file only)
       make_classes.py --random N SEED

The line {"texts": [...]} has the texts. A line {"name", "files", "class", "differs", "ids"} is a directory: its files, the class
that builds the tokenizer from code ("": tokenizer.json is opened as it is), in which sections its backend differs from the
file, and the ids of the texts."""
import json
import os
import random
import sys
import tempfile

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer
from transformers.utils import logging

logging.set_verbosity(50)
TEXTS = ["Hi, a<end>b", " two  blanks", "12ab 3", "caf\u00e9 cafe\u0301", "don't<end> x"]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = {c: i for i, c in enumerate(ALPHABET)}
CHARS = {c: i for i, c in enumerate(["<unk>", *(f"<0x{b:02X}>" for b in range(256)), *"\u2581abcdefghinotwx,'123H"])}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
MERGED = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
SPACE = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
TO_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
FALLBACK = [SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]
NFC = {"type": "NFC"}


def seq(key, *items):
    return {"type": "Sequence", key: list(items)}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def level(**more):
    return dict(LEVEL, **more)


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}


# name: byte-level, normalizer, pre_tokenizer, decoder, flags of the model
FILES = {
    "qwen2": (True, NFC, seq("pretokenizers", split(QWEN), level(use_regex=False)), LEVEL, {}),
    "gpt2": (True, None, LEVEL, level(add_prefix_space=True), {}),
    "gpt2 with a blank": (True, None, level(add_prefix_space=True), LEVEL, {}),
    "smollm2": (True, None, seq("pretokenizers", {"type": "Digits", "individual_digits": True}, LEVEL), LEVEL, {}),
    "llama3": (True, None, seq("pretokenizers", split(r"\p{N}{1,3}"), level(use_regex=False)), LEVEL, {"ignore_merges": True}),
    "llama2": (False, seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, TO_SPACE), None, seq("decoders", *FALLBACK, STRIP),
               {"byte_fallback": True, "fuse_unk": True}),
    "llama2 newer": (False, None, metaspace("first"), seq("decoders", *FALLBACK, STRIP), {"byte_fallback": True, "fuse_unk": True}),
    "gemma": (False, TO_SPACE, MERGED, seq("decoders", *FALLBACK), {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
}


def document(name):
    is_bytes, normalizer, pre, decoder, flags = FILES[name]
    vocab = BYTES if is_bytes else CHARS
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []}
    end = {"id": len(vocab), "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": decoder, "model": dict(model, **flags)}


def steps(section, key):
    if section is None:
        return []
    if section["type"] == "Sequence":
        return [s for item in section[key] for s in steps(item, key)]
    drop = {"trim_offsets"} | ({"add_prefix_space", "use_regex"} if key == "decoders" and section["type"] == "ByteLevel" else set())
    return [{k: v for k, v in section.items() if k not in drop}]


def record(name, file, config, tokenizer_config):
    doc = json.loads(json.dumps(document(file)))
    files = {"config.json": json.dumps(config), "tokenizer_config.json": json.dumps(tokenizer_config)}
    with tempfile.TemporaryDirectory() as d:
        for path, text in {**files, "tokenizer.json": json.dumps(doc)}.items():
            with open(os.path.join(d, path), "w", encoding="utf-8") as f:
                f.write(text)
        tok = AutoTokenizer.from_pretrained(d)
    backend = json.loads(tok.backend_tokenizer.to_str())
    builds = "__init__" in type(tok).__dict__ and type(tok).__name__ != "TokenizersBackend"
    key, prefix = tokenizer_config.get("add_prefix_space"), "ByteLevel" in json.dumps(doc["pre_tokenizer"])
    if builds and isinstance(key, bool) and prefix:  # what linnet applies
        for step in doc["pre_tokenizer"].get("pretokenizers", [doc["pre_tokenizer"]]):
            if step["type"] == "ByteLevel":
                step["add_prefix_space"] = key
    differs = [s for s, k in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders"))
               if steps(doc[s], k) != steps(backend[s], k)]
    if any(doc["model"][k] != backend["model"][k] for k in ("ignore_merges", "byte_fallback")):
        differs.append("model")
    line = {"name": name, "files": files, "tokenizer": file, "class": type(tok).__name__ if builds else "", "differs": ", ".join(differs),
            "ids": [tok.encode(t, add_special_tokens=False) for t in TEXTS]}
    print(json.dumps(line, ensure_ascii=True, separators=(",", ":")))


TYPES = ["qwen2", "qwen3", "llama", "gemma3_text", "mistral", "gpt2", "qwen3_5_text", "olmo2", "cohere", "unknown"]
CLASSES = [None, "Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "GPT2Tokenizer",
           "TokenizersBackend", "GPTNeoXTokenizer", "CohereTokenizer", "CodeLlamaTokenizer", "NoSuchTokenizer"]


def directories():
    for model_type in TYPES[:-1]:
        for name in (None, "PreTrainedTokenizerFast", "LlamaTokenizerFast", "GPT2Tokenizer", "Qwen2Tokenizer"):
            for file in ("qwen2", "smollm2", "llama2"):
                yield file, {"model_type": model_type}, {"tokenizer_class": name} if name else {}
    for key in (True, False, None):
        for name in ("Qwen2Tokenizer", "LlamaTokenizer", "PreTrainedTokenizerFast", "GemmaTokenizer", "CohereTokenizer"):
            for file in FILES:
                yield file, {"model_type": "llama"}, {"tokenizer_class": name, "add_prefix_space": key}
    for legacy in (True, False):
        for file in ("llama2", "llama2 newer"):
            yield file, {"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizer", "legacy": legacy}
    yield "qwen2", {"model_type": "llama", "tokenizer_class": "Qwen2Tokenizer"}, {"add_prefix_space": True}


def randomly(n, seed):
    r = random.Random(seed)
    for _ in range(n):
        config, own = {"model_type": r.choice(TYPES[:-1])}, {}
        if r.random() < 0.2:
            config["tokenizer_class"] = r.choice(CLASSES[1:-1])
        if (name := r.choice(CLASSES)) is not None:
            own["tokenizer_class"] = name
        if r.random() < 0.6:
            own["add_prefix_space"] = r.choice([True, False])
        if r.random() < 0.3:
            own["legacy"] = r.choice([True, False])
        yield r.choice(list(FILES)), config, own


def main():
    cases = randomly(int(sys.argv[2]), int(sys.argv[3])) if "--random" in sys.argv else directories()
    print(json.dumps({"texts": TEXTS, "tokenizers": {k: document(k) for k in FILES}}, ensure_ascii=True, separators=(",", ":")))
    for file, config, own in cases:
        try:
            record(f"{file}: {json.dumps(config)} {json.dumps(own)}", file, config, own)
        except Exception as e:  # directories that transformers rejects
            print("refused:", file, config, own, str(e)[:100].replace("\n", " "), file=sys.stderr)


main()
